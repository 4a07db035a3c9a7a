//! INFO: sections and fields as those of Redis, and true figures in them.

mod support;

use std::collections::BTreeMap;

use support::{Client, Server, text};

/// Lines of Kelvin's that Redis does not have.
const OWN_FIELDS: [&str; 2] = ["kelvin_version", "workers"];
/// Sections whose lines depend on what was done.
const CHANGING: [&str; 4] = ["Commandstats", "Errorstats", "Latencystats", "Keyspace"];

/// The names of an INFO: a line for each section and field, in order.
fn names(client: &mut Client, line: &str) -> Vec<String> {
    let info = text(&client.line(line));
    let mut section = String::new();
    let mut names = Vec::new();
    for line in info.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            section = title.to_owned();
            names.push(line.to_owned());
        } else if line.is_empty() || !CHANGING.contains(&section.as_str()) {
            names.push(line.split(':').next().unwrap_or_default().to_owned());
        }
    }
    names
}

/// Without what is Kelvin's own: the last section, and a few lines.
fn without_own(mut names: Vec<String>) -> Vec<String> {
    if let Some(tiering) = names.iter().position(|name| name == "# Tiering") {
        names.truncate(tiering);
        // The empty line in front of it.
        names.pop();
    }
    names.retain(|name| !OWN_FIELDS.contains(&name.as_str()));
    names
}

#[test]
fn sections_and_fields_are_those_of_redis() {
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let (mut ours, mut theirs) = (kelvin.connect(), redis.connect());
    let lines = [
        "INFO",
        "INFO default",
        "INFO all",
        "INFO everything",
        "INFO server",
        "INFO CLIENTS memory",
        "INFO keyspace server",
        "INFO modules",
        "INFO module_list",
        "INFO commandstats latencystats errorstats",
        "INFO nothing",
        "INFO nothing cpu",
        "INFO stats default",
        "INFO persistence replication cluster",
    ];
    for protocol in ["HELLO 2", "HELLO 3"] {
        ours.line(protocol);
        theirs.line(protocol);
        for line in lines {
            let ours = without_own(names(&mut ours, line));
            assert_eq!(ours, names(&mut theirs, line), "{line}");
        }
    }
    assert_eq!(names(&mut ours, "INFO tiering")[0], "# Tiering");
    assert!(names(&mut ours, "INFO").contains(&"tier_values_hot".to_owned()));
}

/// The fields of a section.
fn fields(client: &mut Client, section: &str) -> BTreeMap<String, String> {
    let info = text(&client.call(&["INFO", section]));
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Calls, refusals and failures of each command, without times.
fn command_counts(client: &mut Client) -> BTreeMap<String, String> {
    let without_times = |value: String| {
        let parts = value.split(',').filter(|part| !part.starts_with("usec"));
        parts.collect::<Vec<_>>().join(",")
    };
    let stats = fields(client, "commandstats");
    stats.into_iter().map(|(name, value)| (name, without_times(value))).collect()
}

#[test]
fn figures_are_those_of_redis() {
    let lines = [
        "SET a 1",
        "SET b 2 EX 10000",
        "GET a",
        "GET missing",
        "GET",
        "GET a b",
        "nosuchcommand",
        "INCR a",
        "SET a x",
        "INCR a",
        "OBJECT nosuch",
        "OBJECT ENCODING a",
        "CLIENT nosuch",
        "CLIENT GETNAME",
        "EXEC",
        "MULTI",
        "INCR a",
        "GET a",
        "SET b",
        "EXEC",
        "MULTI",
        "INCR a",
        "GET a",
        "EXEC",
        "SELECT 3",
        "SET c 1",
        "MGET a b c",
        "SELECT 99",
        "EXISTS a b c",
        "HELLO 9",
        "AUTH a b c d",
        "CONFIG SET nosuch 1",
    ];
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let (mut ours, mut theirs) = (kelvin.connect(), redis.connect());
    for line in lines {
        assert_eq!(ours.line(line), theirs.line(line), "{line}");
    }
    assert_eq!(command_counts(&mut ours), command_counts(&mut theirs));
    for section in ["errorstats", "keyspace"] {
        let mut expected = fields(&mut theirs, section);
        // Redis estimates how long keys live on average.
        for value in expected.values_mut() {
            if let Some(at) = value.find("avg_ttl=") {
                value.truncate(at);
                value.push_str("avg_ttl=0");
            }
        }
        assert_eq!(fields(&mut ours, section), expected, "{section}");
    }
    let (ours, theirs) = (fields(&mut ours, "all"), fields(&mut theirs, "all"));
    let same = [
        "redis_version",
        "connected_clients",
        "total_connections_received",
        "total_error_replies",
        "expired_keys",
        "rdb_changes_since_last_save",
        "maxclients",
        "role",
    ];
    for name in same {
        assert_eq!(ours[name], theirs[name], "{name}");
    }
}

#[test]
fn hits_expired_and_rejected_are_counted() {
    let kelvin = Server::kelvin(&["--maxclients", "2"]);
    let mut client = kelvin.connect();
    for line in ["SET a 1", "GET a", "MGET a b c"] {
        client.line(line);
    }
    let stats = fields(&mut client, "stats");
    assert_eq!((stats["keyspace_hits"].as_str(), stats["keyspace_misses"].as_str()), ("2", "2"));
    client.line("SET k v PX 1");
    while client.show("EXISTS k") == ":1" {}
    // Where another worker removed the key, it counts it a moment later.
    while fields(&mut client, "stats")["expired_keys"] == "0" {}
    assert_eq!(fields(&mut client, "stats")["expired_keys"], "1");
    let mut others = [kelvin.connect(), kelvin.connect()];
    assert_eq!(others[0].show("PING"), "+PONG");
    assert_eq!(others[1].show("PING"), "-ERR max number of clients reached");
    assert_eq!(fields(&mut client, "stats")["rejected_connections"], "1");
}

#[test]
fn latencies_stand_with_their_percentiles() {
    let kelvin = Server::kelvin(&["--latency-tracking-info-percentiles", "50 100"]);
    let mut client = kelvin.connect();
    for _ in 0..10 {
        client.line("SET k v");
    }
    let line = fields(&mut client, "latencystats")["latency_percentiles_usec_set"].clone();
    let values: Vec<f64> = line
        .split(',')
        .zip(["p50=", "p100="])
        .map(|(part, name)| part.strip_prefix(name).expect(name).parse().expect("a number"))
        .collect();
    assert!(values.len() == 2 && values[0] > 0.0 && values[0] <= values[1], "{line}");
}

/// Reads and writes whose hits and misses are compared with those of Redis.
const LOOKUPS: &[&str] = &[
    "LRANGE list 0 -1",
    "LRANGE few 0 -1",
    "LINDEX list 5000",
    "LLEN list",
    "LLEN none",
    "LPOS list 77",
    "LPUSH list 1",
    "LPUSHX none 1",
    "RPOP list",
    "LPOP none",
    "LSET list 5 6",
    "LINSERT list BEFORE 8 9",
    "LTRIM list 0 9000",
    "LREM list 1 77",
    "LMOVE list list LEFT RIGHT",
    "LMPOP 2 none list LEFT",
    "RPOPLPUSH none x",
    "SMEMBERS set",
    "SMEMBERS few:set",
    "SISMEMBER set 7",
    "SMISMEMBER set 7 none",
    "SCARD none",
    "SRANDMEMBER set 3",
    "SINTER set set",
    "SINTERCARD 2 set other",
    "SUNION set other none",
    "SDIFF set other",
    "SUNIONSTORE to set other none",
    "SADD set 7",
    "SREM set 7",
    "SREM none 7",
    "SMOVE set other 8",
    "SMOVE none x 1",
    "HGETALL hash",
    "HGETALL few:hash",
    "HGET hash 77",
    "HMGET hash 1 2 none",
    "HGET none 1",
    "HLEN hash",
    "HSTRLEN hash 5",
    "HRANDFIELD hash",
    "HSCAN hash 0",
    "HSET hash 1 2",
    "HSETNX hash 1 2",
    "HDEL hash 1",
    "HINCRBY hash 2 1",
    "HINCRBY none:hash 2 1",
    "ZRANGE sorted 0 -1",
    "ZRANGE few:sorted 0 -1",
    "ZSCORE sorted 55",
    "ZMSCORE sorted 5 6",
    "ZRANK sorted none",
    "ZCARD none",
    "ZRANGEBYSCORE sorted 5 10",
    "ZUNION 2 sorted set",
    "ZINTER 2 few:sorted few:set",
    "ZSCAN sorted 0",
    "ZUNIONSTORE to 2 sorted none",
    "ZRANGESTORE to sorted 0 5",
    "ZADD sorted 5 5",
    "ZINCRBY sorted 1 5",
    "ZADD none:sorted 5 5",
    "ZREM sorted 7",
    "ZREMRANGEBYRANK sorted 0 5",
    "ZPOPMIN sorted",
    "ZMPOP 1 sorted MIN",
    "GEOADD none:places 13 38 place",
    "GET string",
    "GET list",
    "STRLEN string",
    "STRLEN none",
    "STRLEN list",
    "GETRANGE string 0 1",
    "MGET string none string",
    "SETRANGE string 0 x",
    "SETRANGE long 0 x",
    "APPEND string x",
    "APPEND long x",
    "SET string value GET",
    "GETSET string value",
    "GETDEL none",
    "GETEX string PERSIST",
    "INCR number",
    "INCR none:number",
    "INCRBYFLOAT number 1",
    "SETNX string x",
    "SETBIT string 7 1",
    "BITCOUNT string",
    "BITFIELD string GET u8 0",
    "BITFIELD string SET u8 0 7",
    "BITOP NOT to string",
    "LCS string long",
    "PFADD hll a b",
    "PFCOUNT hll",
    "PFCOUNT none",
    "PFMERGE hll hll none",
    "XRANGE stream - +",
    "XLEN none",
    "XREAD STREAMS stream 0",
    "XADD stream * field value",
    "XTRIM stream MAXLEN 9",
    "XGROUP CREATE stream group 0",
    "XREADGROUP GROUP group one STREAMS stream >",
    "XPENDING stream group",
    "SORT list LIMIT 0 5",
    "SORT few LIMIT 0 5 STORE to",
    "SORT_RO set ALPHA LIMIT 0 5",
    "SORT string",
    "SORT list BY none:* GET string:* LIMIT 0 2",
    "EXISTS list none",
    "TOUCH list none",
    "TYPE list",
    "TTL list",
    "PTTL none",
    "EXPIRE list 1000",
    "DUMP hash",
    "OBJECT ENCODING hash",
    "OBJECT FREQ none",
    "COPY another other",
    "COPY none other",
    "RENAME other another",
    "GETDEL string",
];

/// A key that is read counts once, as with Redis, however large it is and wherever it is; one that is written does not.
#[test]
fn hits_and_misses_are_those_of_redis() {
    let kelvin = Server::kelvin_with_flash("256mb", &["--maxmemory", "64mb"]);
    let redis = Server::redis(&[]);
    let mut clients = [kelvin.connect(), redis.connect()];
    let mut different = Vec::new();
    for is_cold in [true, false] {
        clients.iter_mut().for_each(make_keys);
        for &line in LOOKUPS {
            if is_cold {
                clients[0].line("TIER DEMOTE ALL");
            }
            let counted = clients.each_mut().map(|client| {
                client.line("CONFIG RESETSTAT");
                client.line(line);
                let stats = fields(client, "stats");
                (stats["keyspace_hits"].clone(), stats["keyspace_misses"].clone())
            });
            if counted[0] != counted[1] {
                different.push((line, is_cold, counted));
            }
        }
    }
    assert_eq!(different, [], "hits and misses, of Kelvin and of Redis");
}

/// Makes small and large ones of every type, and nothing else.
fn make_keys(client: &mut Client) {
    let numbers = |count: usize, step: usize| -> String {
        (0..count).step_by(step).map(|number| format!(" {number}")).collect()
    };
    let pairs = |count: usize| -> String {
        (0..count).map(|number| format!(" {number} {number}")).collect()
    };
    for line in [
        "FLUSHALL".to_owned(),
        format!("RPUSH list{}", numbers(10_000, 1)),
        format!("RPUSH few{}", numbers(10, 1)),
        format!("SADD set{}", numbers(10_000, 1)),
        format!("SADD few:set{}", numbers(10, 1)),
        format!("SADD other{}", numbers(10_000, 2)),
        format!("HSET hash{}", pairs(10_000)),
        format!("HSET few:hash{}", pairs(10)),
        format!("ZADD sorted{}", pairs(10_000)),
        format!("ZADD few:sorted{}", pairs(10)),
        format!("SET long {}", "v".repeat(1_000)),
        "SET string value".to_owned(),
        "SET number 7".to_owned(),
        "PFADD hll a".to_owned(),
        "SET another value".to_owned(),
        "XADD stream * field value".to_owned(),
    ] {
        client.line(&line);
    }
}
