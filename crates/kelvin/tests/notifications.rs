//! Keyspace notifications: which come, and in which order, is what Redis says.

mod support;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, text};

const PATIENCE: Duration = Duration::from_secs(30);

/// A client that hears all notifications.
fn listen(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.show("CONFIG SET notify-keyspace-events AKEmn"), "+OK");
    client.line("PSUBSCRIBE __key*@*__:*");
    client
}

/// What has come since the last call: the channel and the message of each.
fn heard(listener: &mut Client, client: &mut Client) -> Vec<String> {
    client.line("PUBLISH __keyend@0__:end x");
    let mut heard = Vec::new();
    loop {
        let frame = listener.read_within(PATIENCE).expect("the end is published");
        let (Frame::Array(parts) | Frame::Push(parts)) = &frame else { panic!("{frame:?}") };
        let [_, _, channel, message] = &parts[..] else { panic!("{frame:?}") };
        let (channel, message) = (text(channel), text(message));
        if channel == "__keyend@0__:end" {
            return heard;
        }
        heard.push(format!("{channel} {message}"));
    }
}

/// Commands of keys `a` to `f`, and a number from 0 to 9 for each `#`.
const TEMPLATES: &[&str] = &[
    "SET * #",
    "SET * # EX 1000",
    "SET * # XX",
    "SET * # NX GET",
    "SET * # KEEPTTL",
    "GET *",
    "GETSET * #",
    "GETDEL *",
    "GETEX * EX 1000",
    "GETEX * PERSIST",
    "SETEX * 1000 #",
    "SETNX * #",
    "MSET * # * #",
    "MSETNX * # * #",
    "MGET * * *",
    "INCR *",
    "DECRBY * #",
    "INCRBYFLOAT * 1.5",
    "APPEND * #",
    "SETRANGE * # x",
    "GETRANGE * 0 #",
    "STRLEN *",
    "LCS * *",
    "SETBIT * # 1",
    "GETBIT * #",
    "BITCOUNT *",
    "BITPOS * 1",
    "BITOP OR * * *",
    "BITFIELD * SET u8 # 7",
    "BITFIELD * GET u8 #",
    "BITFIELD_RO * GET u8 #",
    "DEL *",
    "DEL * * *",
    "UNLINK *",
    "EXISTS * *",
    "TYPE *",
    "TOUCH * *",
    "TTL *",
    "PEXPIRETIME *",
    "EXPIRE * 1000",
    "EXPIRE * 1000 NX",
    "EXPIRE * -1",
    "PEXPIREAT * 1",
    "PERSIST *",
    "RENAME * *",
    "RENAMENX * *",
    "COPY * *",
    "COPY * * REPLACE",
    "COPY * * DB 1 REPLACE",
    "MOVE * 1",
    "OBJECT ENCODING *",
    "LPUSH * # # #",
    "RPUSH * #",
    "LPUSHX * #",
    "LPOP *",
    "RPOP * 2",
    "LPOP * 0",
    "LLEN *",
    "LINDEX * #",
    "LRANGE * 0 #",
    "LSET * 0 #",
    "LINSERT * BEFORE # x",
    "LREM * 0 #",
    "LTRIM * 1 #",
    "LTRIM * 0 -1",
    "LPOS * #",
    "LMOVE * * LEFT RIGHT",
    "RPOPLPUSH * *",
    "LMPOP 2 * * LEFT COUNT 2",
    "SADD * # # #",
    "SREM * # #",
    "SMOVE * * #",
    "SPOP * 100",
    "SISMEMBER * #",
    "SMEMBERS *",
    "SCARD *",
    "SRANDMEMBER *",
    "SINTER * *",
    "SINTERSTORE * * *",
    "SUNIONSTORE * * *",
    "SDIFFSTORE * * *",
    "SINTERCARD 2 * *",
    "SSCAN * 0",
    "HSET * # 1 # 2",
    "HSETNX * # 1",
    "HMSET * # 1",
    "HGET * #",
    "HMGET * # #",
    "HGETALL *",
    "HDEL * # #",
    "HINCRBY * # 1",
    "HINCRBYFLOAT * # 1",
    "HLEN *",
    "HSTRLEN * #",
    "HSCAN * 0",
    "SORT * ALPHA",
    "SORT * ALPHA STORE *",
    "PFADD * #",
    "PFCOUNT * *",
    "PFMERGE * *",
    "BLPOP * * 0.001",
    "BLMOVE * * LEFT LEFT 0.001",
    "BLMPOP 0.001 1 * LEFT",
    "BZPOPMIN * * 0.001",
    "BZMPOP 0.001 1 * MAX",
    "XREAD BLOCK 1 STREAMS * $",
    "MULTI;SET * #;LPUSH * #;DEL *;EXEC",
    "SWAPDB 0 1",
    "DBSIZE",
    "FLUSHDB",
];

#[test]
fn notifications_are_those_of_redis() {
    let (kelvin, redis) = (Server::kelvin(&["--workers", "2"]), Server::redis(&[]));
    let mut pairs = [&kelvin, &redis].map(|server| (listen(server), server.connect()));
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut count, mut differences) = (0, BTreeMap::new());
    for _ in 0..6000 {
        // Few keys of each kind, so that most commands meet what they are for.
        let template = TEMPLATES[random(TEMPLATES.len() as u64) as usize];
        let line: String = template
            .chars()
            .map(|letter| match letter {
                '*' => char::from(b'a' + random(6) as u8),
                '#' => char::from(b'0' + random(10) as u8),
                other => other,
            })
            .collect();
        let results = pairs.each_mut().map(|(listener, client)| {
            line.split(';').for_each(|line| drop(client.line(line)));
            heard(listener, client)
        });
        if results[0] != results[1] {
            differences.insert(template, format!("{line}: {results:?}"));
        }
        count += results[0].len();
        if random(20) == 0 {
            for (listener, client) in &mut pairs {
                client.line("FLUSHALL");
                heard(listener, client);
            }
        }
    }
    let differences: Vec<String> = differences.into_values().collect();
    assert!(differences.is_empty(), "kelvin and redis:\n{}", differences.join("\n"));
    assert!(count > 4000, "{count} notifications");
}

#[test]
fn keys_that_expire_are_told_of_whoever_finds_them() {
    let options = ["--enable-debug-command", "yes"];
    let kelvin = Server::kelvin(&[&options[..], &["--workers", "2"]].concat());
    let redis = Server::redis(&options);
    let mut pairs = [&kelvin, &redis].map(|server| (listen(server), server.connect()));
    for line in ["GET k", "SET k 1", "RPUSH k 1", "DEL k", "RENAME k l", "EXISTS k"] {
        let results = pairs.each_mut().map(|(listener, client)| {
            client.line("DEBUG SET-ACTIVE-EXPIRE 0");
            client.line("SET k v PX 10");
            thread::sleep(Duration::from_millis(20));
            heard(listener, client);
            client.line(line);
            let found = heard(listener, client);
            client.line("FLUSHALL");
            found
        });
        assert!(results[0].iter().any(|one| one.contains("expired")), "{line}: {results:?}");
        assert_eq!(results[0], results[1], "{line}: kelvin and redis");
    }
    for (listener, client) in &mut pairs {
        client.line("DEBUG SET-ACTIVE-EXPIRE 1");
        client.line("SET k v PX 10");
        let start = Instant::now();
        let mut all = Vec::new();
        while !all.iter().any(|one: &String| one == "__keyspace@0__:k expired") {
            assert!(start.elapsed() < PATIENCE, "{all:?}");
            thread::sleep(Duration::from_millis(5));
            all.extend(heard(listener, client));
        }
    }
}

#[test]
fn keys_that_are_evicted_are_told_of() {
    let server = Server::kelvin(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]);
    let (mut listener, mut client) = (listen(&server), server.connect());
    client.line("CONFIG SET notify-keyspace-events Ke");
    let value = "x".repeat(10_000);
    for key in 0..12_000 {
        client.line(&format!("SET key-{key} {value}"));
    }
    let heard = heard(&mut listener, &mut client);
    let is_evicted =
        |one: &String| one.starts_with("__keyspace@0__:key-") && one.ends_with(" evicted");
    assert!(!heard.is_empty() && heard.iter().all(is_evicted), "{:?}", heard.first());
    let evicted = text(&client.line("INFO stats"));
    let evicted = evicted.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    let evicted: usize = evicted.expect("a field").trim().parse().expect("a number");
    assert!(heard.len() <= evicted && heard.len() + 2000 > evicted, "{} of {evicted}", heard.len());
}

/// Only what is asked for comes.
#[test]
fn classes_and_forms() {
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let mut pairs = [&kelvin, &redis].map(|server| (listen(server), server.connect()));
    for flags in ["", "A", "K", "KA", "EA", "Kl", "El$", "KEg", "Kn", "KEm", "Kx", "Ksh", "KEA"] {
        let results = pairs.each_mut().map(|(listener, client)| {
            client.line("FLUSHALL");
            client.call(&["CONFIG", "SET", "notify-keyspace-events", flags]);
            for line in
                ["SET a 1", "GET b", "LPUSH l 1", "SADD s 1", "HSET h a 1", "DEL a", "EXPIRE l 9"]
            {
                client.line(line);
            }
            heard(listener, client)
        });
        assert_eq!(results[0], results[1], "{flags}: kelvin and redis");
    }
}
