//! What the fuzz targets `restore` and `commands` run: whatever is restored, and whatever clients ask for, no handler
//! panics, counters agree with a recount, replies are the same with all values in RAM and with all of them on flash,
//! and what is logged leads to the same data. And what `journal_record` runs. Compiled for tests and with the feature `fuzzing`.

use std::cell::RefCell;

use keyspace::{DB_COUNT, Keyspace};
use rdb::payload::{Payload, finish};
use resp::{ArgRange, Args};
use value::Kind;

use crate::family::FAMILIES;
use crate::harness::Harness;
use crate::journal_record::{At, BadRecord, Commands, LoggedCommand, Record, put_command};
use crate::saved::Reference;
use crate::spec::Command;

/// Longer strings are refused, so that one input takes little memory.
const STRING_BYTES_MAX: usize = 1 << 20;
/// The same for what is made of a payload, and for replies.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Longer replies have to be granted.
const REPLY_BYTES_FREE: usize = 64 << 10;

thread_local! {
    /// Keyspaces without keys: to make and to drop one takes longer than most inputs.
    static EMPTY: RefCell<Vec<Keyspace>> = const { RefCell::new(Vec::new()) };
}

/// A server whose values are all on flash, or in RAM.
fn server(demote: bool) -> Harness {
    let keyspace = EMPTY.with_borrow_mut(Vec::pop).unwrap_or_default();
    let mut server = Harness::with_keyspace(keyspace, demote);
    server.string_bytes_max = STRING_BYTES_MAX;
    server.memory_bytes_max = MEMORY_BYTES_MAX;
    server.reply_bytes_max = MEMORY_BYTES_MAX;
    server.reply_bytes_free = REPLY_BYTES_FREE;
    if !demote {
        server.add_replica(EMPTY.with_borrow_mut(Vec::pop).unwrap_or_default());
    }
    server
}

/// Runs a request of these words.
fn run(server: &mut Harness, words: &[&[u8]]) -> Vec<u8> {
    let (mut buffer, mut ranges) = (Vec::new(), Vec::new());
    for word in words {
        ranges.push(ArgRange { start: buffer.len() as u32, len: word.len() as u32 });
        buffer.extend_from_slice(word);
    }
    server.run_args(Args::new(&buffer, &ranges), None)
}

/// The bytes of a bulk string that is the whole reply.
fn bulk(reply: &[u8]) -> &[u8] {
    let end = reply.iter().position(|&byte| byte == b'\n').expect("a line");
    assert_eq!(reply[0], b'$', "{}", reply.escape_ascii());
    &reply[end + 1..reply.len() - 2]
}

/// What a checkpoint has in place of a value: refused, or it is written as it was read.
pub fn placed(input: &[u8]) {
    let Some(reference) = Reference::read(input) else { return };
    assert_eq!(reference.bytes(), input);
    if let Reference::Placed(placed) = reference {
        assert!(placed.first_expiry_ms == 0 || Kind::from_bits(placed.kind).is_hash());
    }
}

/// One input of `restore`: a byte that chooses the version, a type, and an object. It is restored with a right
/// checksum. If that succeeds, all of it is read, dumped, restored again, and changed.
pub fn restore(input: &[u8]) {
    let Some((&choice, object)) = input.split_first() else { return };
    let version = [10, 12, 80][usize::from(choice) % 3];
    let mut payload = object.to_vec();
    finish(&mut payload, 0, version);
    let mut pair = Pair::new();
    if choice & 0x80 != 0 {
        // Fields that expire have a past.
        pair.each(|server| server.now_ms = 1_000);
    }
    if pair.ask(&[b"RESTORE", b"k", b"0", &payload]) == b"+OK\r\n" {
        read_and_change(&mut pair, &payload, choice);
    }
    pair.settle();
}

/// What is asked of a restored payload.
fn read_and_change(pair: &mut Pair, payload: &[u8], choice: u8) {
    let is_there = pair.ask(&[b"EXISTS", b"k"]) == b":1\r\n";
    assert!(is_there, "it was restored");
    pair.each(|server| server.check_tree(b"k"));
    for line in READING {
        pair.ask(&words(line));
    }
    dump(pair, payload);
    pair.may_differ_in_order = true;
    for (at, line) in CHANGING.iter().enumerate() {
        // Half of the inputs leave out every other change.
        if choice & 0x40 == 0 || at % 2 == usize::from(choice >> 5 & 1) {
            pair.ask(&words(line));
        }
        if choice & 0x10 != 0 {
            pair.each(|server| {
                server.now_ms += 1_000;
                server.expire_fields();
            });
        }
    }
    // How many fields that have expired are there yet, HLEN tells, and the leaves of one server are others.
    pair.each(Harness::expire_fields);
    for line in READING {
        pair.ask(&words(line));
    }
}

/// Dumps what was restored, and restores that.
fn dump(pair: &mut Pair, payload: &[u8]) {
    let object = Payload::check(payload).and_then(|payload| payload.object());
    let (object_type, _) = object.expect("it was restored");
    let dump = pair.ask(&[b"DUMP", b"k"]);
    if !dump.starts_with(b"$") || dump == b"$-1\r\n" {
        return;
    }
    let again = pair.ask(&[b"RESTORE", b"again", b"0", bulk(&dump)]);
    assert_eq!(again, b"+OK\r\n", "a dump of {object_type:?} is restored: {}", dump.escape_ascii());
    let second = pair.ask(&[b"DUMP", b"again"]);
    let third = pair.ask(&[b"RESTORE", b"again", b"0", bulk(&second), b"REPLACE"]);
    assert_eq!(third, b"+OK\r\n");
    let third = pair.ask(&[b"DUMP", b"again"]);
    assert_eq!(third, second, "a dump of what was dumped is the same");
    pair.ask(&[b"COPY", b"k", b"copy"]);
    let copied = pair.ask(&[b"DUMP", b"copy"]);
    assert_eq!(copied, dump, "a copy is the same");
}

/// Two servers that are asked the same: all values of one are in RAM, all of the other on flash.
struct Pair {
    in_ram: Harness,
    on_flash: Harness,
    /// Whether hashes and sets may be in another order where they are on flash: once they have been changed. A small
    /// leaf is joined with a neighbour only if that is in RAM, and what is added then stands behind the elements of both.
    may_differ_in_order: bool,
}

impl Pair {
    fn new() -> Pair {
        Pair { in_ram: server(false), on_flash: server(true), may_differ_in_order: false }
    }

    fn each(&mut self, mut change: impl FnMut(&mut Harness)) {
        change(&mut self.in_ram);
        change(&mut self.on_flash);
    }

    /// Runs a request on both, compares the replies, and returns that of values in RAM. Requests whose effects follow
    /// from an order that is another on flash are left out.
    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let key = words.get(1).copied().unwrap_or_default();
        if TAKING_IN_ORDER.contains(&words[0]) && self.differ_in_order(key) {
            return Vec::new();
        }
        let (one, two) = (run(&mut self.in_ram, words), run(&mut self.on_flash, words));
        let is_same = one == two || self.may_differ_in_order && self.agree(words, &one, &two);
        assert!(
            is_same,
            "{}\nin RAM   {}\non flash {}",
            words.join(&b' ').escape_ascii(),
            one.escape_ascii(),
            two.escape_ascii()
        );
        one
    }

    /// Whether replies that differ do so for the order of a hash or a set alone.
    fn agree(&mut self, words: &[&[u8]], one: &[u8], two: &[u8]) -> bool {
        match words {
            [name, ..] if LISTING.contains(name) => in_any_order(one) == in_any_order(two),
            // A call lists whole leaves: others follow where it has ended.
            [b"SSCAN" | b"HSCAN", key, ..] if is_alike(one, two) && one[0] == b'*' => {
                in_any_order(one) == in_any_order(two)
                    || cursor(one) != cursor(two) && self.differ_in_order(key)
            }
            [b"SRANDMEMBER" | b"HRANDFIELD", key, ..] => {
                is_alike(one, two) && self.differ_in_order(key)
            }
            [b"DUMP", key] if self.differ_in_order(key) => {
                self.restore_to_the_same(key, bulk(one), bulk(two));
                true
            }
            _ => false,
        }
    }

    /// Whether the set or the hash of a key is in another order on flash. Panics: it differs otherwise.
    fn differ_in_order(&mut self, key: &[u8]) -> bool {
        if !self.may_differ_in_order {
            return false;
        }
        WHOLE.iter().any(|&name| {
            let one = run(&mut self.in_ram, &[name, key]);
            let two = run(&mut self.on_flash, &[name, key]);
            assert_eq!(in_any_order(&one), in_any_order(&two), "{}", key.escape_ascii());
            one != two
        })
    }

    /// Restores the dumps of a key, and compares what comes of them with the key.
    fn restore_to_the_same(&mut self, key: &[u8], one: &[u8], two: &[u8]) {
        const DUMPED: &[u8] = b"restored from a dump";
        for (server, dump) in [(&mut self.in_ram, one), (&mut self.on_flash, two)] {
            assert_eq!(run(server, &[b"RESTORE", DUMPED, b"0", dump]), b"+OK\r\n");
            for name in WHOLE {
                let [one, two] = [key, DUMPED].map(|key| run(server, &[name, key]));
                assert_eq!(in_any_order(&one), in_any_order(&two), "{}", key.escape_ascii());
            }
            run(server, &[b"DEL", DUMPED]);
        }
    }

    fn settle(self) {
        settle(self.in_ram);
        settle(self.on_flash);
    }
}

/// Commands that answer all of a set or a hash.
const WHOLE: [&[u8]; 2] = [b"SMEMBERS", b"HGETALL"];
/// Commands that list members or fields in the order in which they are kept.
const LISTING: [&[u8]; 7] =
    [b"SMEMBERS", b"HGETALL", b"HKEYS", b"HVALS", b"SUNION", b"SINTER", b"SDIFF"];
/// Commands that take members by where they stand, or may keep their order.
const TAKING_IN_ORDER: [&[u8]; 3] = [b"SPOP", b"SORT", b"SORT_RO"];

/// The items of a reply, sorted: of a map each name with its value. Those of an array in another are taken for its own.
fn in_any_order(reply: &[u8]) -> Vec<&[u8]> {
    let items_of_one = if reply.starts_with(b"%") { 2 } else { 1 };
    let (header, mut rest) = split_item(reply);
    let mut items = Vec::new();
    while !rest.is_empty() {
        let all = rest;
        (0..items_of_one).for_each(|_| rest = split_item(rest).1);
        items.push(&all[..all.len() - rest.len()]);
    }
    items.sort_unstable();
    items.push(header);
    items
}

/// A line, or a bulk string, and what follows it.
fn split_item(reply: &[u8]) -> (&[u8], &[u8]) {
    let end = reply.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    let (kind, len) = (reply[0], value::parse_i64(&reply[1..end - 2]));
    match len.and_then(|len| usize::try_from(len).ok()) {
        Some(len) if kind == b'$' => reply.split_at(end + len + 2),
        _ => reply.split_at(end),
    }
}

/// Whether replies are of one type, and as long if they are arrays.
fn is_alike(one: &[u8], two: &[u8]) -> bool {
    one[0] == two[0] && (one[0] == b'$' || split_item(one).0 == split_item(two).0)
}

/// The cursor that a scan has answered.
fn cursor(reply: &[u8]) -> &[u8] {
    split_item(split_item(reply).1).0
}

fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// What ends every input: counters agree with a recount, and where there is nothing left they say so.
fn settle(mut server: Harness) {
    server.expire_fields();
    server.check_counts();
    for db in 0..DB_COUNT as u8 {
        server.db = db;
        for key in server.keys() {
            server.check_tree(&key);
            run(&mut server, &[b"DUMP", &key]);
            run(&mut server, &[b"DEL", &key]);
        }
    }
    let replica = server.take_replica();
    for server in replica.into_iter().chain([server]) {
        server.check_empty();
        EMPTY.with_borrow_mut(|empty| empty.extend(server.into_keyspace()));
    }
}

/// One input of `journal_record`: bytes that may be a record. What is read of one is written again, and then read.
pub fn journal_record(input: &[u8]) {
    let Ok(first) = read_record(input) else { return };
    let now_ms = first.iter().map(|(_, now_ms, _)| *now_ms).max().unwrap_or(0);
    let mut record = Record::new(Vec::new(), now_ms);
    for (db, now_ms, args) in &first {
        let at = if *now_ms == 0 { At::TimeZero } else { At::ItsTime };
        let mut bytes = Vec::new();
        put_command(&mut bytes, (*db, at), args.iter().map(Vec::as_slice));
        record.add_commands(&bytes);
    }
    assert_eq!(read_record(&record.pieces().concat()), Ok(first));
}

type ReadCommand = (u8, u64, Vec<Vec<u8>>);

fn read_record(bytes: &[u8]) -> Result<Vec<ReadCommand>, BadRecord> {
    let (mut commands, mut read) = (Commands::read(bytes)?, Vec::new());
    while let Some(LoggedCommand { db, now_ms, args }) = commands.read_next()? {
        read.push((db, now_ms, args.iter().map(<[u8]>::to_vec).collect()));
    }
    Ok(read)
}

/// Commands that read a key of any type: most are refused for its type.
const READING: &[&str] = &[
    "TYPE k",
    "OBJECT ENCODING k",
    "GET k",
    "STRLEN k",
    "GETRANGE k 1 -2",
    "BITCOUNT k",
    "BITPOS k 1",
    "BITFIELD k GET u63 3 GET i64 #1",
    "PFCOUNT k",
    "LCS k k",
    "LLEN k",
    "LRANGE k 0 -1",
    "LRANGE k -3 -2",
    "LPOS k 1 COUNT 0 RANK -1",
    "SCARD k",
    "SMEMBERS k",
    "SRANDMEMBER k 5",
    "SRANDMEMBER k -5",
    "SSCAN k 0 COUNT 1000",
    "SINTERCARD 2 k k",
    "ZCARD k",
    "ZRANGE k 0 -1 WITHSCORES",
    "ZREVRANGE k 0 -1",
    "ZRANGEBYSCORE k (1 +inf LIMIT 1 5",
    "ZRANGEBYLEX k [a (c",
    "ZCOUNT k -inf (3",
    "ZLEXCOUNT k - +",
    "ZRANDMEMBER k 5 WITHSCORES",
    "ZSCAN k 0 COUNT 1000",
    "ZRANK k a",
    "ZSCORE k a",
    "GEOPOS k a b",
    "GEOSEARCH k FROMLONLAT 1 1 BYRADIUS 20000 km ASC WITHDIST WITHHASH WITHCOORD",
    "HLEN k",
    "HGETALL k",
    "HKEYS k",
    "HRANDFIELD k 5 WITHVALUES",
    "HSCAN k 0 COUNT 1000",
    "HGET k a",
    "HSTRLEN k f",
    "HPTTL k FIELDS 2 a f",
    "HEXPIRETIME k FIELDS 2 a f",
    "XLEN k",
    "XRANGE k - +",
    "XREVRANGE k + - COUNT 3",
    "XINFO STREAM k",
    "XINFO STREAM k FULL COUNT 0",
    "XINFO GROUPS k",
    "XINFO CONSUMERS k h",
    "XPENDING k h",
    "XPENDING k h - + 100",
    "XREAD COUNT 2 STREAMS k 1-1",
    "SORT k ALPHA",
    "SORT k BY nosort GET #",
    "TTL k",
];

/// Commands that change it, and their likes on others.
const CHANGING: &[&str] = &[
    "PFADD k a b c",
    "PFMERGE m k",
    "APPEND k xyz",
    "SETRANGE k 30 z",
    "SETBIT k 77 1",
    "BITFIELD k SET u8 100 200 INCRBY i5 3 9",
    "INCRBY k 5",
    "INCRBYFLOAT k 0.5",
    "BITOP NOT m k",
    "RPUSH k a 1 b",
    "LPUSH k z",
    "LINSERT k BEFORE a y",
    "LSET k 1 longer-than-it-was",
    "LREM k 2 a",
    "LMOVE k l LEFT RIGHT",
    "RPOP k 2",
    "LTRIM k 1 -2",
    "SADD k a 1 b 99999999999",
    "SREM k 1 x",
    "SMOVE k s b",
    "SUNIONSTORE s k s",
    "SPOP k 2",
    "ZADD k 1 a 2 b -inf c",
    "ZADD k GT CH 7 a",
    "ZINCRBY k 3 b",
    "ZUNIONSTORE z 2 k s WEIGHTS 2 3",
    "ZRANGESTORE z k 0 5",
    "ZREM k c x",
    "ZPOPMIN k 2",
    "ZREMRANGEBYRANK k 1 2",
    "ZREMRANGEBYSCORE k 3 (9",
    "GEOADD k 13 38 p",
    "HSET k a 1 g long-value-long-value",
    "HINCRBY k a 7",
    "HINCRBYFLOAT k a 0.25",
    "HPEXPIRE k 1500 FIELDS 2 a f",
    "HPERSIST k FIELDS 1 f",
    "HGETEX k PX 2500 FIELDS 1 g",
    "HDEL k f x",
    "HSET k a 2",
    "XADD k * a 1",
    "XADD k 18446744073709551615-18446744073709551614 a 1 b 2",
    "XADD k MAXLEN ~ 3 * c 3",
    "XGROUP CREATE k n 0",
    "XREADGROUP GROUP n c COUNT 2 STREAMS k >",
    "XREADGROUP GROUP h alice COUNT 3 STREAMS k >",
    "XREADGROUP GROUP h alice COUNT 3 STREAMS k 0",
    "XACK k h 1-1 5-0",
    "XCLAIM k h carol 0 1-1 6-0 FORCE RETRYCOUNT 3",
    "XAUTOCLAIM k h carol 0 0 COUNT 10",
    "XGROUP CREATECONSUMER k h dave",
    "XGROUP DELCONSUMER k h alice",
    "XGROUP SETID k h $ ENTRIESREAD 2",
    "XDEL k 1-1 5-0",
    "XSETID k 18446744073709551615-18446744073709551615 ENTRIESADDED 9 MAXDELETEDID 6-0",
    "XTRIM k MAXLEN 1",
    "XGROUP DESTROY k n",
    "XTRIM k MINID 7",
    "SORT k ALPHA STORE sorted",
    "PEXPIRE k 50000",
    "RENAME k moved",
    "RENAME moved k",
];

/// Keys of the commands.
const KEYS: [&str; 5] = ["k", "a", "b", "c", "l"];

/// Words that some command takes for something special.
const WORDS: [&[u8]; 64] = [
    b"0",
    b"1",
    b"-1",
    b"2",
    b"3",
    b"7",
    b"10",
    b"-5",
    b"100",
    b"1000",
    b"65536",
    b"-100000",
    b"2147483647",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"1.5",
    b"-0.25",
    b"1e300",
    b"-1e-300",
    b"inf",
    b"-inf",
    b"nan",
    b"0x1p-5",
    b"(1",
    b"(inf",
    b"[a",
    b"(b",
    b"-",
    b"+",
    b"*",
    b"$",
    b">",
    b"#",
    b"#2",
    b"",
    b"a",
    b"b",
    b"f",
    b"member",
    b"u8",
    b"i64",
    b"u63",
    b"1-1",
    b"5-*",
    b"0-0",
    b"18446744073709551615-18446744073709551615",
    b"a*",
    b"k*->f",
    b"[a-c]?",
    b"\\",
    b"nosort",
    b"km",
    b"1700000000001",
    b"1700000001",
    b"1699999999999",
    b"\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x7f\xff",
    b"HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x41\x00\x84\x7e\xfb",
    b"a-word-that-is-longer-than-what-is-kept-packed-in-collections-which-is-64-bytes",
    b"\xc3\x28\xe2\x82\xac",
    b"left",
];

/// Bytes of the input, one by one; zeros behind the end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// From here on a choice is one of a collection that grows, up to those that let time pass.
const GROW_FROM: u16 = 0xf000;
/// Commands of an input at most.
const COMMANDS_MAX: usize = 60;
/// Commands that tell where values are, or by what has been used lately.
const DIFFERENT: &[&str] = &["MEMORY|USAGE", "OBJECT|IDLETIME", "OBJECT|FREQ"];
/// Words of a command at most.
const WORDS_MAX: usize = 40;

/// One input of `commands`: which commands, and how each follows its syntax.
pub fn commands(input: &[u8]) {
    let mut pair = Pair { may_differ_in_order: true, ..Pair::new() };
    let mut bytes = Bytes(input);
    for _ in 0..COMMANDS_MAX {
        if bytes.0.is_empty() {
            break;
        }
        let choice = u16::from_le_bytes([bytes.next(), bytes.next()]);
        if choice >= 0xff00 {
            pair.each(|server| {
                server.db = (choice as u8) % 3;
                server.now_ms += u64::from(choice as u8) << 4;
                server.expire_fields();
            });
            continue;
        }
        let rows: Vec<&Command> = FAMILIES.iter().copied().flatten().collect();
        let command = rows[usize::from(choice) % rows.len()];
        // They take long, for there is little to be found.
        let is_rare = command.name == "PFSELFTEST" || command.name.starts_with("FLUSH");
        if is_rare && choice >> 8 != 1 {
            continue;
        }
        let words = match choice {
            GROW_FROM.. => growth(choice, bytes.next()),
            _ => words_of(command, &mut bytes),
        };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if DIFFERENT.contains(&command.name) {
            pair.each(|server| drop(run(server, &words)));
        } else {
            pair.ask(&words);
        }
        let random = pair.in_ram.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        pair.each(|server| server.random = random);
    }
    pair.settle();
}

/// A request that makes a collection large.
fn growth(choice: u16, seed: u8) -> Vec<Vec<u8>> {
    let name = ["RPUSH", "SADD", "ZADD", "HSET", "XADD", "LPUSH", "SADD", "HSET"];
    let name = name[usize::from(choice % 8)];
    let key = KEYS[usize::from(choice >> 3) % KEYS.len()];
    let mut words = vec![name.as_bytes().to_vec(), key.as_bytes().to_vec()];
    if name == "XADD" {
        words.push(b"*".to_vec());
    }
    for number in 0..(usize::from(seed) + 1) * 2 {
        // Scores, and names with values.
        if name == "ZADD" || number % 2 == 1 && name != "SADD" {
            words.push((number * usize::from(seed) % 97).to_string().into_bytes());
        }
        if name == "ZADD" || number % 2 == 0 || name == "SADD" {
            let len = 1 + usize::from(choice >> 6 & 3) * 20;
            words.push(format!("{number:0len$}").into_bytes());
        }
    }
    words
}

/// A request of a command that follows its syntax, as far as the input lets it.
fn words_of(command: &Command, bytes: &mut Bytes<'_>) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> =
        command.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    let syntax: Vec<&str> = command.docs.syntax.split(' ').collect();
    // Where the group in brackets began that may be repeated.
    let (mut at, mut group, mut repeats) = (0, 0, 0);
    while at < syntax.len() && words.len() < WORDS_MAX {
        let token = syntax[at];
        if token.starts_with('[') {
            group = at;
        }
        if token.starts_with("...") {
            if bytes.next() % 2 == 1 && repeats < 8 {
                repeats += 1;
                at = group;
                continue;
            }
        } else {
            let word = token.trim_matches(['[', ']', '<', '>', '|']);
            push_word(&mut words, word, bytes);
        }
        at += 1;
    }
    // Whatever else there may be.
    if bytes.next() % 8 == 7 {
        words.push(value(bytes));
    }
    words
}

/// Adds what stands for a word of the syntax, or leaves it out.
fn push_word(words: &mut Vec<Vec<u8>>, word: &str, bytes: &mut Bytes<'_>) {
    let is_value = word.starts_with(|first: char| first.is_ascii_lowercase());
    if word.is_empty() {
        return;
    }
    let choice = bytes.next();
    if !is_value {
        if choice % 2 == 1 {
            words.push(word.as_bytes().to_vec());
        }
        return;
    }
    let names_key = ["key", "source", "dest", "dst", "src", "newkey"];
    match choice {
        0..8 => {}
        8..24 => words.push(value(bytes)),
        _ if names_key.iter().any(|name| word.starts_with(name)) => {
            words.push(KEYS[usize::from(choice) % KEYS.len()].as_bytes().to_vec());
        }
        _ if word.starts_with("num") => words.push((choice % 4 + 1).to_string().into_bytes()),
        _ if word.starts_with("timeout") => words.push(b"0".to_vec()),
        _ if word.starts_with("serialized") => words.push(payload(bytes)),
        _ => words.push(value(bytes)),
    }
}

/// A word, from those that are special or of the input itself.
fn value(bytes: &mut Bytes<'_>) -> Vec<u8> {
    match bytes.next() {
        choice @ 0..192 => WORDS[usize::from(choice) % WORDS.len()].to_vec(),
        choice @ 192..240 => bytes.take(usize::from(choice) - 192).to_vec(),
        // Long ones, and so many that a collection of them is large.
        choice => vec![choice; 1 << (choice % 12)],
    }
}

/// A payload with a right checksum, of an object of the input.
fn payload(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let len = usize::from(bytes.next());
    let mut payload = bytes.take(len).to_vec();
    finish(&mut payload, 0, 12);
    payload
}

#[cfg(test)]
mod tests {
    use stdx::Random;
    use value::leaf::element_hash;

    use super::*;

    /// Bytes of an input.
    const INPUT_BYTES: usize = 400;

    #[test]
    fn requests_drawn_at_random_agree() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let mut input = [0; INPUT_BYTES];
            random.fill(&mut input);
            // Some collections are large.
            input[..6].copy_from_slice(&[seed as u8, 0xf0, 90, seed as u8 + 1, 0xf1, 120]);
            commands(&input);
        }
    }

    #[test]
    fn records_and_damaged_ones_agree() {
        let record = b"\xac\x02\x07\x02\x03DEL\x01k\x00\x03\x03SET\x01k\x00";
        journal_record(record);
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut damaged = *record;
                damaged[at] ^= 1 << bit;
                journal_record(&damaged);
                journal_record(&damaged[..at]);
            }
        }
    }

    #[test]
    fn payloads_and_damaged_ones_agree() {
        let objects: [&[u8]; 5] = [
            b"\x01\x02\x01a\xc0\x05",
            b"\x02\x03\x01a\x01b\xc0\x07",
            b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff",
            b"\x16\x02\x00\x01f\x01v\x53\x88\x01g\x01w",
            b"\x00\xc3\x09\x40\xc8\x01aa\xe0\xbb\x00\x01aa",
        ];
        for object in objects {
            for choice in [0x00, 0x10, 0x40, 0xb0] {
                restore(&[&[choice], object].concat());
            }
            for at in 0..object.len() {
                let mut damaged = [&[0], object].concat();
                damaged[at + 1] ^= 1 << (at % 8);
                restore(&damaged);
            }
        }
    }

    /// Long enough for its leaf to be demoted.
    const LONG: &[u8] = &[b'v'; 200];

    /// A field whose leaf no other is put into, and one of another leaf, with places for `a` and `g` between them.
    fn fields_of_two_leaves() -> [Vec<u8>; 2] {
        let names = || (0..).map(|number: u32| number.to_string().into_bytes());
        let long = |name: Vec<u8>| [&[b'x'; 4_400][..], &name].concat();
        let first = names().map(long).find(|field| element_hash(field) < element_hash(b"a") / 2);
        let last = names().find(|field| element_hash(field) > u64::MAX / 8 * 7);
        [first, last].map(|field| field.expect("numbers do not end"))
    }

    /// What is left of a leaf is joined with its neighbour in RAM alone, and is gone where it is on flash before another
    /// field is set.
    #[test]
    fn leaves_that_are_joined_in_ram_alone_differ_in_order_alone() {
        let mut pair = Pair { may_differ_in_order: true, ..Pair::new() };
        let [first, last] = fields_of_two_leaves();
        pair.ask(&[b"HSET", b"k", &first, LONG, &last, LONG]);
        for line in ["HSET k a 1 g 1", "HDEL k a", "HDEL k g"] {
            pair.ask(&words(line));
            assert!(!pair.differ_in_order(b"k"), "{line}");
        }
        pair.ask(&words("HSET k a 2"));
        assert!(pair.differ_in_order(b"k"));
        for line in READING.iter().chain(&["HVALS k", "DUMP k", "SPOP k"]) {
            pair.ask(&words(line));
        }
        pair.settle();
    }

    /// The same where the two fields expire.
    #[test]
    fn restored_hashes_whose_leaves_are_joined_in_ram_alone_agree() {
        // So that places are known.
        settle(server(false));
        let mut input = b"\x90\x04\x02".to_vec();
        for field in fields_of_two_leaves() {
            input.extend((0x4000 | field.len() as u16).to_be_bytes());
            input.extend([&field[..], b"\x40\xc8", LONG].concat());
        }
        restore(&input);
    }

    #[test]
    fn replies_are_compared_in_any_order() {
        let same = |one, other| in_any_order(one) == in_any_order(other);
        assert!(same(b"~2\r\n$1\r\na\r\n$2\r\n\r\n\r\n", b"~2\r\n$2\r\n\r\n\r\n$1\r\na\r\n"));
        assert!(!same(b"~1\r\n$1\r\na\r\n", b"~1\r\n$1\r\nb\r\n"));
        assert!(!same(b"*1\r\n$1\r\na\r\n", b"~1\r\n$1\r\na\r\n"));
        let map = b"%2\r\n+a\r\n+b\r\n+c\r\n+d\r\n";
        assert!(same(map, b"%2\r\n+c\r\n+d\r\n+a\r\n+b\r\n"));
        assert!(!same(map, b"%2\r\n+a\r\n+d\r\n+c\r\n+b\r\n"));
        assert_eq!(cursor(b"*2\r\n$1\r\n7\r\n*0\r\n"), b"$1\r\n7\r\n");
    }
}
