//! Which commands are sent, how often, in which shapes, and how their replies are compared.

/// How the replies of two servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Byte by byte.
    Exact,
    /// Numbers that follow from the time at which a server ran the command may differ a little.
    Time,
    /// Elements of an array or a set may come in any order.
    AnyOrder,
    /// Pairs of elements may, of a map or of an array.
    Pairs,
    /// Of what is told of streams, times may differ a little, and numbers of nodes.
    Pending,
    /// Only their type; errors must be equal.
    Kind,
    /// Redis 7.0 may find that a score is no double because of what another command has left behind.
    Scores,
    /// Kelvin checks all arguments in Valkey's order, and takes BITCOUNT with a start alone; Redis
    /// 7.0 answers 0 or -1 for a missing key without a look at them.
    Checked,
}

/// How a request may be spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoilt {
    /// In any way.
    Anyhow,
    /// No argument is replaced by a small number, which would be a time that comes while the test runs
    /// where the command sets an expiry, nor by one of a few thousand million.
    NotBySmallNumbers,
    /// Not at all: with other arguments it would leave other data on each server.
    Never,
}

/// A command.
pub struct Command {
    pub name: &'static str,
    /// How often it is chosen, against the others.
    pub weight: u32,
    pub rule: Rule,
    pub shape: &'static str,
    pub spoilt: Spoilt,
}

const fn exact(name: &'static str, weight: u32, shape: &'static str) -> Command {
    Command { name, weight, rule: Rule::Exact, shape, spoilt: Spoilt::Anyhow }
}

const fn ruled(name: &'static str, weight: u32, rule: Rule, shape: &'static str) -> Command {
    Command { name, weight, rule, shape, spoilt: Spoilt::Anyhow }
}

/// With other arguments it would wait for long.
const fn waiting(name: &'static str, weight: u32, shape: &'static str) -> Command {
    Command { name, weight, rule: Rule::Exact, shape, spoilt: Spoilt::Never }
}

const fn expiring(name: &'static str, weight: u32, shape: &'static str) -> Command {
    Command { name, weight, rule: Rule::Exact, shape, spoilt: Spoilt::NotBySmallNumbers }
}

/// Every command that is sent.
///
/// `GT` and `LT` stand with absolute times only, which are far from all others: which of two
/// relative times is the greater depends on when they came.
pub const COMMANDS: &[Command] = &[
    exact("GET", 160, "<key>"),
    expiring("SET", 160, "<key> <value>"),
    expiring("SET", 50, "<key> <value> [<expiry> | KEEPTTL] [NX | XX] [GET]"),
    // A key that has expired before it was set never exists here; in Redis it does until somebody
    // meets it, and watchers hear of it: keys of their own, which nobody watches.
    expiring("SET", 4, "<unwatched-key> <value> [NX | XX] (EXAT | PXAT) 1000000 [GET]"),
    expiring("GETEX", 15, "<key> [<expiry> | (EXAT | PXAT) 1000000 | PERSIST]"),
    exact("GETDEL", 10, "<key>"),
    exact("GETSET", 10, "<key> <value>"),
    exact("SETNX", 10, "<key> <value>"),
    expiring("SETEX", 10, "<key> (100000 | 200000 | 300000) <value>"),
    expiring("PSETEX", 10, "<key> (100000000 | 200000000) <value>"),
    exact("MGET", 30, "<key>+"),
    exact("MSET", 20, "(<key> <value>)+"),
    exact("MSETNX", 10, "(<key> <value>)+"),
    exact("INCR", 20, "<key>"),
    exact("DECR", 20, "<key>"),
    exact("INCRBY", 20, "<key> <integer>"),
    exact("DECRBY", 20, "<key> <integer>"),
    exact("INCRBYFLOAT", 20, "<key> <float>"),
    exact("APPEND", 30, "<key> <value>"),
    exact("STRLEN", 20, "<key>"),
    exact("GETRANGE", 20, "<key> <index> <index>"),
    exact("SUBSTR", 5, "<key> <index> <index>"),
    exact("SETRANGE", 25, "<key> <offset> <value>"),
    // Its table has the product of both lengths: keys of their own, whose values stay short.
    expiring("SET", 4, "<short-key> <short-value>"),
    exact("LCS", 6, "<short-key> <short-key> [LEN] [IDX] [MINMATCHLEN <integer>] [WITHMATCHLEN]"),
    exact("SETBIT", 25, "<key> <bit-offset> (0 | 1)"),
    exact("SETBIT", 1, "<key> <bit-offset> <integer>"),
    exact("GETBIT", 15, "<key> <bit-offset>"),
    ruled("BITCOUNT", 15, Rule::Checked, "<key> [<index> <index> [BYTE | BIT]]"),
    ruled("BITPOS", 15, Rule::Checked, "<key> (0 | 1) [<index> [<index> [BYTE | BIT]]]"),
    exact("BITOP", 12, "(AND | OR | XOR) <key> <key>+"),
    exact("BITOP", 4, "NOT <key> <key>"),
    exact("BITFIELD", 15, "<key> ([OVERFLOW (WRAP | SAT)] <bit-operation>)+"),
    // When all its operations fail, Redis lengthens the value without telling who watches the key:
    // keys of their own, which nobody watches.
    exact("BITFIELD", 4, "<unwatched-key> ([OVERFLOW (WRAP | SAT | FAIL)] <bit-operation>)+"),
    exact("GET", 2, "<unwatched-key>"),
    exact("PFADD", 20, "<hll> [<element>+]"),
    exact("PFADD", 15, "<hll> <numbers>"),
    exact("PFCOUNT", 20, "<hll>"),
    exact("PFCOUNT", 8, "<hll>+"),
    exact("PFMERGE", 10, "<hll> [<hll>+]"),
    exact("PFDEBUG", 8, "(ENCODING | DECODE | ENCODING | DECODE | GETREG) <hll>"),
    exact("PFDEBUG", 1, "TODENSE <hll>"),
    exact("GET", 15, "<hll>"),
    exact("OBJECT", 3, "ENCODING <hll>"),
    exact("DEL", 4, "<hll>"),
    // Of one with wrong bytes, Redis adds the elements in front of the first that meets them: one element.
    Command { spoilt: Spoilt::Never, ..exact("PFADD", 8, "<broken-hll> <element>") },
    exact("PFCOUNT", 6, "<broken-hll>+"),
    exact("PFMERGE", 3, "<broken-hll> <broken-hll>"),
    exact("PFDEBUG", 4, "(ENCODING | DECODE | GETREG) <broken-hll>"),
    exact("SETRANGE", 6, "<broken-hll> <hll-offset> <hll-bytes>"),
    exact("COPY", 6, "<hll> <broken-hll> REPLACE"),
    exact("GET", 4, "<broken-hll>"),
    exact("BITFIELD_RO", 8, "<key> (GET <bit-type> <bit-position>)+"),
    exact("HSET", 60, "<hash> (<field> <field-value>)+"),
    exact("HMSET", 8, "<hash> (<field> <field-value>)+"),
    exact("HSETNX", 10, "<hash> <field> <field-value>"),
    exact("HGET", 40, "<hash> <field>"),
    exact("HMGET", 15, "<hash> <field>+"),
    exact("HDEL", 25, "<hash> <field>+"),
    exact("HLEN", 8, "<hash>"),
    exact("HEXISTS", 8, "<hash> <field>"),
    exact("HSTRLEN", 8, "<hash> <field>"),
    exact("HINCRBY", 15, "<hash> <field> <integer>"),
    exact("HINCRBYFLOAT", 15, "<hash> <field> <float>"),
    ruled("HGETALL", 12, Rule::Pairs, "<hash>"),
    ruled("HKEYS", 6, Rule::AnyOrder, "<hash>"),
    ruled("HVALS", 6, Rule::AnyOrder, "<hash>"),
    ruled("HSCAN", 6, Rule::Kind, "<hash> 0 [MATCH <pattern>] [COUNT <integer>]"),
    // Asked for as many as an edge says, Redis would run out of memory.
    Command {
        spoilt: Spoilt::NotBySmallNumbers,
        ..ruled("HRANDFIELD", 8, Rule::Kind, "<hash> [(0 | 1 | 5 | -5 | -30 | 200) [WITHVALUES]]")
    },
    exact("DEL", 4, "<hash>"),
    exact("SADD", 40, "<set> <small-number>+"),
    exact("SADD", 12, "<set> <member>+"),
    exact("SADD", 6, "<set> <numbers>"),
    exact("SADD", 16, "<large-set> <members>"),
    exact("SREM", 25, "<set> <member>+"),
    exact("SREM", 8, "<large-set> <members>"),
    exact("SMISMEMBER", 3, "<large-set> <members>"),
    exact("SISMEMBER", 10, "<set> <member>"),
    exact("SMISMEMBER", 8, "<set> <member>+"),
    exact("SCARD", 8, "<set>"),
    exact("SMOVE", 15, "<set> <set> <member>"),
    ruled("SMEMBERS", 8, Rule::AnyOrder, "<set>"),
    ruled("SSCAN", 6, Rule::Kind, "<set> 0 [MATCH <pattern>] [COUNT <integer>]"),
    ruled("SINTER", 8, Rule::AnyOrder, "<set>+"),
    ruled("SUNION", 6, Rule::AnyOrder, "<set>+"),
    ruled("SDIFF", 8, Rule::AnyOrder, "<set>+"),
    exact("SINTERSTORE", 6, "<small-set> <set>+"),
    exact("SINTERSTORE", 2, "<large-set> <large-set> <large-set>"),
    exact("SUNIONSTORE", 6, "<small-set> <set>+"),
    exact("SUNIONSTORE", 2, "<large-set> <set>+"),
    exact("SDIFFSTORE", 8, "<set> <set>+"),
    exact("SINTERCARD", 8, "(1 <set> | 2 <set> <set> | 3 <set> <set> <set>) [LIMIT <integer>]"),
    // It takes all there is, since each server would choose others.
    Command { spoilt: Spoilt::Never, ..ruled("SPOP", 6, Rule::AnyOrder, "<small-set> 20000") },
    Command {
        spoilt: Spoilt::NotBySmallNumbers,
        ..ruled("SRANDMEMBER", 8, Rule::Kind, "<set> [(0 | 1 | 5 | -5 | -30 | 200)]")
    },
    exact("OBJECT", 10, "ENCODING <set>"),
    exact("DEL", 6, "<set>"),
    exact("RPUSH", 30, "<list> <element>+"),
    exact("RPUSH", 8, "<list> ((<element>+)+)+"),
    exact("LPUSH", 30, "<list> <element>+"),
    exact("LPUSH", 8, "<list> ((<element>+)+)+"),
    exact("RPUSH", 8, "<large-list> <elements>"),
    exact("LPUSH", 8, "<large-list> <elements>"),
    exact("RPUSHX", 6, "<list> <element>+"),
    exact("LPUSHX", 6, "<list> <element>+"),
    exact("LPOP", 15, "<list> [0 | 1 | 2 | 3 | 4 | 5 | 9 | 30 | <integer>]"),
    exact("RPOP", 15, "<list> [0 | 1 | 2 | 3 | 4 | 5 | 9 | 30 | <integer>]"),
    exact("LLEN", 8, "<list>"),
    exact("LINDEX", 20, "<list> <index>"),
    exact("LSET", 15, "<list> <index> <element>"),
    exact("LRANGE", 20, "<list> <index> <index>"),
    exact("LTRIM", 2, "<small-list> <index> <index>"),
    exact("LTRIM", 8, "<small-list> (0 | 1 | 2 | -500) (-1 | -2 | 500)"),
    exact("LTRIM", 4, "<large-list> (0 | 1 | 30 | 300) (-1 | -2 | -40 | -400)"),
    exact("LINSERT", 15, "<list> (BEFORE | AFTER) <element> <element>"),
    exact("LREM", 12, "<list> (0 | 1 | 2 | -1 | -2 | <integer>) <element>"),
    exact(
        "LPOS",
        15,
        "<list> <element> [RANK (1 | 2 | 5 | -1 | -2 | <integer>)] [COUNT (0 | 1 | 3 | <integer>)] [MAXLEN (0 | 5 | 50 | <integer>)]",
    ),
    exact("LMOVE", 15, "<list> <list> (LEFT | RIGHT) (LEFT | RIGHT)"),
    exact("RPOPLPUSH", 8, "<list> <list>"),
    // Nobody brings anything meanwhile: those that wait give up at once.
    waiting("BLPOP", 3, "(<list> | <list> <key>)+ 0.001"),
    waiting("BRPOP", 3, "<list>+ 0.001"),
    waiting("BLMOVE", 5, "<list> <list> (LEFT | RIGHT) (LEFT | RIGHT) 0.001"),
    waiting("BRPOPLPUSH", 3, "<list> <list> 0.001"),
    waiting(
        "BLMPOP",
        3,
        "0.001 (1 <list> | 2 <list> <list>) (LEFT | RIGHT) [COUNT (1 | 2 | 3 | 9)]",
    ),
    exact(
        "LMPOP",
        8,
        "(1 <list> | 2 <list> <list> | 3 <list> <list> <list>) (LEFT | RIGHT) [COUNT (1 | 2 | 3 | 9 | <integer>)]",
    ),
    // Redis compares texts up to a zero byte unless it stores them, and those that are equal then come in no
    // order.
    ruled("SORT", 8, Rule::AnyOrder, "<sortable> <sort-by> [ASC | DESC] ALPHA [<sort-get>+]"),
    ruled("SORT", 8, Rule::AnyOrder, "<list> [ASC | DESC] ALPHA [<sort-get>+]"),
    ruled("SORT_RO", 8, Rule::AnyOrder, "<set> [ASC | DESC] ALPHA [<sort-get>+]"),
    // Any other word may come in the key's place, and name a set.
    ruled(
        "SORT",
        8,
        Rule::AnyOrder,
        "<sortable> BY nosort [<sort-limit>] [ASC | DESC] [<sort-get>+]",
    ),
    ruled("SORT_RO", 8, Rule::Scores, "<list> [<sort-limit>] [ASC | DESC] [<sort-get>+]"),
    ruled("SORT", 8, Rule::Scores, "<set> [<sort-limit>] [ASC | DESC] [<sort-get>+]"),
    ruled(
        "SORT",
        12,
        Rule::Scores,
        "<sortable> [<sort-by>] [<sort-limit>] [ASC | DESC] [<sort-get>+]",
    ),
    // Into keys of their own, which stay short.
    exact("SORT", 6, "<sortable> LIMIT 0 20 [ASC | DESC] ALPHA [<sort-get>] STORE <sortable>"),
    exact("SORT", 3, "<set> BY nosort LIMIT 0 20 [<sort-get>] STORE <sortable>"),
    exact("RPUSH", 6, "<sortable> (<small-number>+)+"),
    exact("RPUSH", 2, "<sortable> <element>"),
    exact("LTRIM", 2, "<sortable> 0 10"),
    exact("DEL", 3, "<sortable>"),
    exact("SORT", 1, "(<key> | <hash>) [<integer>]"),
    exact("DEL", 2, "<list>"),
    exact("ZADD", 40, "<zset> (<score> <zmember>)+"),
    exact("ZADD", 15, "<zset> [NX | XX] [GT | LT] [CH] (<score> <zmember>)+"),
    exact("ZADD", 8, "<zset> [NX | XX | GT | LT] INCR <score> <zmember>"),
    exact("ZADD", 6, "<zset> <scored-members>"),
    // Which members are in a range of members is not told where scores differ.
    Command { spoilt: Spoilt::Never, ..exact("ZADD", 15, "<lexset> (0 <zmember>)+") },
    exact("ZINCRBY", 12, "<zset> <score> <zmember>"),
    exact("ZREM", 20, "<zset> <zmember>+"),
    exact("ZREM", 3, "<lexset> <zmember>+"),
    exact("ZCARD", 5, "<zset>"),
    exact("ZSCORE", 12, "<zset> <zmember>"),
    exact("ZMSCORE", 8, "<zset> <zmember>+"),
    // Redis 7.0 has no WITHSCORE.
    Command { spoilt: Spoilt::Never, ..exact("ZRANK", 12, "<zset> <zmember>") },
    Command { spoilt: Spoilt::Never, ..exact("ZREVRANK", 8, "<zset> <zmember>") },
    exact("ZRANGE", 12, "<zset> <index> <index> [REV] [WITHSCORES]"),
    exact(
        "ZRANGE",
        8,
        "<zset> <score-end> <score-end> BYSCORE [REV] [LIMIT <index> <index>] [WITHSCORES]",
    ),
    exact("ZRANGE", 8, "<lexset> <member-end> <member-end> BYLEX [REV] [LIMIT <index> <index>]"),
    exact(
        "ZRANGE",
        3,
        "<zset> <index> <index> [BYSCORE | BYLEX] [REV] [LIMIT <index> (-1 | <index>)] [WITHSCORES]",
    ),
    exact("ZREVRANGE", 6, "<zset> <index> <index> [LIMIT <index> -1] [WITHSCORES]"),
    exact(
        "ZRANGEBYSCORE",
        8,
        "<zset> <score-end> <score-end> [WITHSCORES] [LIMIT <index> <index>]",
    ),
    exact(
        "ZREVRANGEBYSCORE",
        8,
        "<zset> <score-end> <score-end> [WITHSCORES] [LIMIT <index> <index>]",
    ),
    exact("ZRANGEBYLEX", 6, "<lexset> <member-end> <member-end> [LIMIT <index> <index>]"),
    exact("ZREVRANGEBYLEX", 6, "<lexset> <member-end> <member-end> [LIMIT <index> <index>]"),
    exact("ZRANGESTORE", 5, "<zset> <zset> <index> <index> [REV] [LIMIT <index> -1]"),
    exact(
        "ZRANGESTORE",
        4,
        "<zset> <zset> <score-end> <score-end> BYSCORE [REV] [LIMIT <index> <index>]",
    ),
    Command {
        spoilt: Spoilt::Never,
        ..exact("ZRANGESTORE", 3, "<lexset> <lexset> <member-end> <member-end> BYLEX [REV]")
    },
    exact("ZCOUNT", 8, "<zset> <score-end> <score-end>"),
    exact("ZLEXCOUNT", 8, "<lexset> <member-end> <member-end>"),
    exact("ZREMRANGEBYRANK", 5, "<zset> (0 | 1 | -5 | <index>) (0 | 3 | -6 | <index>)"),
    exact("ZREMRANGEBYSCORE", 5, "<zset> <score-end> <score-end>"),
    exact("ZREMRANGEBYLEX", 4, "<lexset> <member-end> <member-end>"),
    exact("ZPOPMIN", 8, "<zset> [0 | 1 | 2 | 9 | <integer>]"),
    exact("ZPOPMAX", 8, "<zset> [0 | 1 | 2 | 9 | <integer>]"),
    exact(
        "ZMPOP",
        8,
        "(1 <zset> | 2 <zset> <zset> | 3 <zset> <zset> <zset>) (MIN | MAX) [COUNT (1 | 2 | 9 | <integer>)]",
    ),
    // Nobody brings anything meanwhile: those that wait give up at once.
    waiting("BZPOPMIN", 3, "(<zset> | <zset> <key>)+ 0.001"),
    waiting("BZPOPMAX", 3, "<zset>+ 0.001"),
    waiting("BZMPOP", 3, "0.001 (1 <zset> | 2 <zset> <zset>) (MIN | MAX) [COUNT (1 | 2 | 3 | 9)]"),
    Command {
        spoilt: Spoilt::NotBySmallNumbers,
        ..ruled("ZRANDMEMBER", 8, Rule::Kind, "<zset> [(0 | 1 | 5 | -5 | -30 | 200) [WITHSCORES]]")
    },
    ruled("ZSCAN", 6, Rule::Kind, "<zset> 0 [MATCH <pattern>] [COUNT <integer>]"),
    exact(
        "ZUNION",
        6,
        "2 <zset-or-set> <zset-or-set> [WEIGHTS <score> <score>] [AGGREGATE (SUM | MIN | MAX)] [WITHSCORES]",
    ),
    exact(
        "ZINTER",
        6,
        "2 <zset-or-set> <zset-or-set> [WEIGHTS <score> <score>] [AGGREGATE (SUM | MIN | MAX)] [WITHSCORES]",
    ),
    exact(
        "ZDIFF",
        6,
        "(1 <zset> | 2 <zset-or-set> <zset-or-set> | 3 <zset> <zset> <zset>) [WITHSCORES]",
    ),
    exact(
        "ZUNIONSTORE",
        5,
        "<zset> (1 <zset-or-set> | 2 <zset-or-set> <zset-or-set>) [AGGREGATE (SUM | MIN | MAX)]",
    ),
    exact("ZUNIONSTORE", 2, "<zset> 3 <zset> <zset> <zset> [WEIGHTS <score> <score> <score>]"),
    exact(
        "ZINTERSTORE",
        5,
        "<zset> 2 <zset-or-set> <zset-or-set> [WEIGHTS <score> <score>] [AGGREGATE (SUM | MIN | MAX)]",
    ),
    exact("ZDIFFSTORE", 5, "<zset> (1 <zset> | 2 <zset-or-set> <zset-or-set>)"),
    exact("ZINTERCARD", 6, "2 <zset-or-set> <zset-or-set> [LIMIT <integer>]"),
    exact("OBJECT", 10, "ENCODING <zset>"),
    exact("DEL", 3, "<zset>"),
    exact("GEOADD", 15, "<geo> [NX | XX] [CH] (<position> <zmember>)+"),
    exact("GEOADD", 6, "<geo> <placed-members>"),
    exact("ZREM", 3, "<geo> <zmember>+"),
    exact("GEODIST", 6, "<geo> <zmember> <zmember> [<unit>]"),
    exact("GEOHASH", 4, "<geo> <zmember>+"),
    exact("GEOPOS", 4, "<geo> <zmember>+"),
    exact("GEOHASH", 2, "<zset> <zmember>+"),
    exact("GEOPOS", 3, "<zset> <zmember>+"),
    exact(
        "GEOSEARCH",
        12,
        "<geo> (FROMLONLAT <position> | FROMMEMBER <zmember>) (BYRADIUS <meters> <unit> | BYBOX <meters> <meters> <unit>) [ASC | DESC] [WITHCOORD] [WITHDIST] [WITHHASH]",
    ),
    exact(
        "GEOSEARCH",
        8,
        "<geo> (FROMLONLAT <position> | FROMMEMBER <zmember>) (BYRADIUS <meters> <unit> | BYBOX <meters> <meters> <unit>) COUNT (1 | 2 | 5 | <integer>) [ANY] [WITHDIST]",
    ),
    exact(
        "GEOSEARCHSTORE",
        5,
        "<geo> <geo> (FROMLONLAT <position> | FROMMEMBER <zmember>) (BYRADIUS <meters> <unit> | BYBOX <meters> <meters> <unit>) [ASC | DESC]",
    ),
    exact(
        "GEOSEARCHSTORE",
        3,
        "<zset> <geo> (FROMLONLAT <position> | FROMMEMBER <zmember>) (BYRADIUS <meters> <unit> | BYBOX <meters> <meters> <unit>) [ASC | DESC] STOREDIST",
    ),
    exact(
        "GEORADIUS",
        6,
        "<geo> <position> <meters> <unit> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT (1 | 3 | <integer>)] [ASC | DESC]",
    ),
    exact("GEORADIUS", 3, "<geo> <position> <meters> <unit> (STORE <geo> | STOREDIST <zset>)"),
    exact("GEORADIUS_RO", 4, "<geo> <position> <meters> <unit> [WITHCOORD] [WITHDIST] [WITHHASH]"),
    exact(
        "GEORADIUSBYMEMBER",
        5,
        "<geo> <zmember> <meters> <unit> [WITHDIST] [COUNT (1 | 3 | <integer>) [ANY]] [ASC | DESC]",
    ),
    exact(
        "GEORADIUSBYMEMBER",
        3,
        "<geo> <zmember> <meters> <unit> (STORE <geo> | STOREDIST <zset>)",
    ),
    exact("GEORADIUSBYMEMBER_RO", 4, "<geo> <zmember> <meters> <unit> [WITHHASH] [ASC | DESC]"),
    exact("XADD", 160, "<stream> <new-id> (<entry-field> <entry-value>)+"),
    exact(
        "XADD",
        8,
        "<stream> [NOMKSTREAM] [MAXLEN [=] (0 | 5 | 150 | <integer>) | MINID [=] <id>] <new-id> a 1",
    ),
    // Where a node ends in Redis, a leaf ends here as long as it is the number of entries that ends both:
    // streams of their own, of small entries.
    exact("XADD", 30, "<even-stream> <new-id> f <small-number>"),
    exact(
        "XADD",
        6,
        "<even-stream> (MAXLEN ~ (0 | 50 | 150 | 250) | MINID ~ <id>) [LIMIT (0 | 90 | 100 | 101 | <integer>)] <new-id> f 1",
    ),
    exact(
        "XTRIM",
        6,
        "<even-stream> (MAXLEN ~ (0 | 50 | 150 | 250) | MINID ~ <id>) [LIMIT (0 | 90 | 100 | 101 | <integer>)]",
    ),
    exact("XDEL", 12, "<even-stream> <id>+"),
    exact("XRANGE", 4, "<even-stream> <id> <id>"),
    // With another argument gone, the ID would be that of the time.
    Command { spoilt: Spoilt::Never, ..exact("XADD", 2, "no-key-of-these NOMKSTREAM * a 1") },
    exact("XLEN", 8, "<stream>"),
    exact("XDEL", 25, "<stream> <id>+"),
    exact("XTRIM", 6, "<stream> (MAXLEN [=] (0 | 5 | 150 | 300 | <integer>) | MINID [=] <id>)"),
    exact(
        "XSETID",
        3,
        "<stream> <id> [ENTRIESADDED (0 | 5 | 5000 | <integer>)] [MAXDELETEDID <id>]",
    ),
    exact("XRANGE", 15, "<stream> <id-end> <id-end> [COUNT (0 | 1 | 5 | 120 | <integer>)]"),
    exact("XREVRANGE", 15, "<stream> <id-end> <id-end> [COUNT (0 | 1 | 5 | 120 | <integer>)]"),
    exact("XREAD", 10, "[COUNT (1 | 3 | 150 | <integer>)] STREAMS <stream> (<id> | $)"),
    exact("XREAD", 5, "[COUNT (1 | 3 | 150)] STREAMS <stream> <stream> <id> (<id> | $ | >)"),
    waiting("XREAD", 3, "[COUNT (0 | 1 | 3)] BLOCK 1 STREAMS <stream> <stream> $ (<id> | $)"),
    exact(
        "XGROUP",
        8,
        "CREATE <stream> <group> (0 | $ | <id>) [MKSTREAM] [ENTRIESREAD (0 | 3 | -1 | <integer>)]",
    ),
    exact(
        "XGROUP",
        4,
        "SETID <stream> <group> (0 | $ | <id>) [ENTRIESREAD (0 | 3 | -1 | <integer>)]",
    ),
    exact("XGROUP", 4, "CREATECONSUMER <stream> <group> <consumer>"),
    exact("XGROUP", 3, "DELCONSUMER <stream> <group> <consumer>"),
    exact("XGROUP", 1, "DESTROY <stream> <group>"),
    exact(
        "XREADGROUP",
        45,
        "GROUP <group> <consumer> [COUNT (1 | 3 | 20 | 150)] [NOACK] STREAMS <stream> >",
    ),
    exact(
        "XREADGROUP",
        12,
        "GROUP <group> <consumer> [COUNT (1 | 3 | 20)] STREAMS <stream> (0 | <id>)",
    ),
    exact(
        "XREADGROUP",
        5,
        "GROUP <group> <consumer> COUNT 5 STREAMS <stream> <stream> > (> | 0 | <id> | $)",
    ),
    waiting("XREADGROUP", 2, "GROUP <group> <consumer> BLOCK 1 STREAMS <stream> >"),
    exact("XACK", 25, "<stream> <group> <id>+"),
    ruled("XPENDING", 8, Rule::Pending, "<stream> <group>"),
    ruled(
        "XPENDING",
        10,
        Rule::Pending,
        "<stream> <group> <id-end> <id-end> (0 | 1 | 10 | 200) [<consumer>]",
    ),
    Command {
        spoilt: Spoilt::NotBySmallNumbers,
        ..ruled(
            "XPENDING",
            5,
            Rule::Pending,
            "<stream> <group> IDLE (0 | 100000000) - + 10 [<consumer>]",
        )
    },
    Command {
        spoilt: Spoilt::NotBySmallNumbers,
        ..exact(
            "XCLAIM",
            15,
            "<stream> <group> <consumer> (0 | 100000000) <id>+ [IDLE 5 | TIME 1000000] [RETRYCOUNT (0 | 7)] [FORCE] [JUSTID] [LASTID <id>]",
        )
    },
    // Redis would ask for memory for as many as an edge says.
    Command {
        spoilt: Spoilt::Never,
        ..exact(
            "XAUTOCLAIM",
            12,
            "<stream> <group> <consumer> (0 | 100000000) <id-end> [COUNT (0 | 1 | 5 | 200)] [JUSTID]",
        )
    },
    ruled("XINFO", 8, Rule::Pending, "STREAM <stream> [FULL [COUNT (0 | 1 | 20 | -1)]]"),
    ruled("XINFO", 6, Rule::Pending, "GROUPS <stream>"),
    ruled("XINFO", 6, Rule::Pending, "CONSUMERS <stream> <group>"),
    exact("COPY", 2, "<stream> <stream> [REPLACE]"),
    exact("RENAME", 1, "<stream> <stream>"),
    exact("OBJECT", 2, "ENCODING <stream>"),
    exact("TYPE", 2, "<stream>"),
    exact("DEL", 5, "<stream>"),
    exact("DEL", 2, "<even-stream>"),
    exact("DEL", 20, "<key>+"),
    exact("UNLINK", 10, "<key>+"),
    exact("EXISTS", 15, "<key>+"),
    exact("TOUCH", 5, "<key>+"),
    exact("TYPE", 10, "<key>"),
    exact("COPY", 20, "<key> <key> [DB <db>] [REPLACE]"),
    exact("MOVE", 10, "<key> <db>"),
    exact("RENAME", 12, "<key> <key>"),
    exact("RENAMENX", 8, "<key> <key>"),
    exact("OBJECT", 15, "ENCODING <key>"),
    // The references that Redis counts tell of its inside: of arguments queued, of copies made.
    ruled("OBJECT", 6, Rule::Kind, "(REFCOUNT | IDLETIME | FREQ) <key>"),
    exact("OBJECT", 1, "<value> <key>"),
    ruled("KEYS", 1, Rule::AnyOrder, "<pattern>"),
    ruled("SCAN", 4, Rule::Kind, "<integer> [MATCH <pattern>] [COUNT <integer>] [TYPE string]"),
    ruled("RANDOMKEY", 3, Rule::Kind, ""),
    exact("DBSIZE", 5, ""),
    exact("PERSIST", 10, "<key>"),
    expiring("EXPIRE", 10, "<key> (100000 | 200000 | 300000) [NX | XX]"),
    expiring("PEXPIRE", 8, "<key> (100000000 | 200000000) [NX | XX]"),
    expiring("EXPIREAT", 10, "<key> <time> [NX | XX | GT | LT | XX GT | NX GT]"),
    expiring("PEXPIREAT", 8, "<key> <time-ms> [NX | XX | GT | LT | XX LT | GT LT]"),
    ruled("TTL", 10, Rule::Time, "<key>"),
    ruled("PTTL", 10, Rule::Time, "<key>"),
    ruled("EXPIRETIME", 8, Rule::Time, "<key>"),
    ruled("PEXPIRETIME", 8, Rule::Time, "<key>"),
    exact("SELECT", 8, "<db>"),
    exact("ECHO", 3, "<value>"),
    exact("PING", 3, "[<value>]"),
    ruled("HELLO", 2, Rule::Kind, "(2 | 3)"),
    exact("NOSUCHCOMMAND", 2, "<key> <value>"),
];

/// Commands that are rare, because they wipe what the others have built.
pub const SWEEPING: &[Command] = &[
    exact("FLUSHALL", 1, "[ASYNC | SYNC]"),
    exact("FLUSHDB", 4, "[ASYNC | SYNC]"),
    exact("SWAPDB", 6, "<db> <db>"),
    exact("RESET", 2, ""),
];

/// The same, for who has only some of the databases.
pub const SWEEPING_OWN: &[Command] =
    &[exact("FLUSHDB", 4, "[ASYNC | SYNC]"), exact("SWAPDB", 20, "<db> <db>")];

/// Commands of transactions; the generator places them.
pub const TRANSACTION: &[Command] = &[
    exact("WATCH", 1, "<key>+"),
    exact("MULTI", 1, ""),
    exact("EXEC", 1, ""),
    exact("DISCARD", 1, ""),
    exact("UNWATCH", 1, ""),
];

/// Commands of the keyspace that are not sent, with the reason.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("PFSELFTEST", "it takes seconds there"),
    ("OBJECT|HELP", "its text is our own"),
    ("XGROUP|HELP", "its text is our own"),
    ("XINFO|HELP", "its text is our own"),
    ("MEMORY|USAGE", "values take other amounts of memory here"),
    ("DUMP", "its bytes are others here; tests/dump.rs takes them from one server to the other"),
    ("RESTORE", "as DUMP"),
    ("HEXPIRE", "Redis 7.0 does not have it"),
    ("HPEXPIRE", "Redis 7.0 does not have it"),
    ("HEXPIREAT", "Redis 7.0 does not have it"),
    ("HPEXPIREAT", "Redis 7.0 does not have it"),
    ("HPERSIST", "Redis 7.0 does not have it"),
    ("HTTL", "Redis 7.0 does not have it"),
    ("HPTTL", "Redis 7.0 does not have it"),
    ("HEXPIRETIME", "Redis 7.0 does not have it"),
    ("HPEXPIRETIME", "Redis 7.0 does not have it"),
    ("HGETDEL", "Redis 7.0 does not have it"),
    ("HGETEX", "Redis 7.0 does not have it"),
    ("HSETEX", "Redis 7.0 does not have it"),
];

/// Asked of Kelvin alone. Nothing of it is a change to who watches a key, or to OBJECT ENCODING.
pub const TIER: &[Command] = &[
    exact("TIER", 60, "DEMOTE <key>"),
    exact("TIER", 20, "DEMOTE (<hash> | <large-set> | <large-list>)"),
    exact("TIER", 12, "PROMOTE <key>"),
    exact("TIER", 4, "LOCATE <key>"),
    exact("TIER", 2, "FLUSH"),
    exact("TIER", 1, "DEMOTE ALL"),
];
