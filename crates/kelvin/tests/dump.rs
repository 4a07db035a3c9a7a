//! DUMP and RESTORE beside a real redis-server: what one has dumped, the other restores, and it is the same.

mod support;

use resp::Frame;
use support::{Client, Server, assert_same_replies, show, text};

const ALLOWED: [&str; 2] = ["--enable-debug-command", "yes"];
/// Numbers of elements.
const SIZES: [usize; 8] = [1, 2, 100, 129, 513, 1_000, 4_000, 10_000];
/// Elements that are sent at once.
const AT_ONCE: usize = 500;

/// A text of some kind, different for each number.
fn word(number: usize) -> Vec<u8> {
    match number % 8 {
        0 | 1 => number.to_string().into_bytes(),
        2 => format!("-{number}000000000").into_bytes(),
        3 => [&[0, 0xff, b'\r', b'\n'][..], &number.to_le_bytes()].concat(),
        4 if number % 64 == 4 => format!("{number}:{}", "long ".repeat(200)).into_bytes(),
        _ => format!("element:{number}").into_bytes(),
    }
}

fn score(number: usize) -> Vec<u8> {
    match number % 6 {
        0 => b"inf".to_vec(),
        1 => b"-inf".to_vec(),
        2 => b"-0".to_vec(),
        3 => format!("{number}.25e-7").into_bytes(),
        4 => format!("-{number}000000000000000000").into_bytes(),
        _ => number.to_string().into_bytes(),
    }
}

/// Sends a request and returns what it answers, which is no error.
fn call(client: &mut Client, words: &[&[u8]]) -> Frame {
    client.send_bytes(words);
    let reply = client.read();
    assert!(!matches!(reply, Frame::Error(_)), "{}: {}", words[0].escape_ascii(), show(&reply));
    reply
}

/// Makes a key of so many elements with one command, each of some words.
fn fill(
    client: &mut Client,
    command: &str,
    key: &str,
    len: usize,
    words: impl Fn(usize) -> Vec<Vec<u8>>,
) {
    for start in (0..len).step_by(AT_ONCE) {
        let elements = (start..len.min(start + AT_ONCE)).flat_map(&words);
        let elements: Vec<Vec<u8>> = elements.collect();
        let mut request = vec![command.as_bytes(), key.as_bytes()];
        request.extend(elements.iter().map(Vec::as_slice));
        call(client, &request);
    }
}

/// Fills a server with values of every type and size. Returns their keys.
fn fill_all(client: &mut Client) -> Vec<String> {
    let mut keys = Vec::new();
    let strings: [&[u8]; 9] =
        [b"", b"0", b"-1", b"127", b"-32769", b"4294967296", b"text", b"\0\xff", b"3.5"];
    for (at, value) in strings.iter().enumerate() {
        let key = format!("string{at}");
        call(client, &[b"SET", key.as_bytes(), value]);
        keys.push(key);
    }
    for len in [100, 20_000, 3_000_000] {
        let key = format!("string:{len}");
        call(client, &[b"SET", key.as_bytes(), &word(12_345).repeat(len / 13)]);
        keys.push(key);
    }
    for len in SIZES {
        let name = |sort: &str| format!("{sort}{len}");
        fill(client, "RPUSH", &name("list"), len, |number| vec![word(number)]);
        fill(client, "SADD", &name("set"), len, |number| vec![word(number)]);
        fill(client, "SADD", &name("integers"), len, |number| {
            vec![format!("-{}", number * number * 97).into_bytes()]
        });
        fill(client, "HSET", &name("hash"), len, |number| vec![word(number), word(number / 2)]);
        fill(client, "HSET", &name("short"), len, |number| {
            vec![number.to_string().into_bytes(), b"v".to_vec()]
        });
        fill(client, "ZADD", &name("zset"), len, |number| vec![score(number), word(number)]);
        keys.extend(["list", "set", "integers", "hash", "short", "zset"].map(name));
        fill_stream(client, &name("stream"), len);
        keys.push(name("stream"));
    }
    call(client, &[b"XADD", b"emptied", b"MAXLEN", b"0", b"7-7", b"f", b"v"]);
    keys.push("emptied".into());
    keys
}

fn fill_stream(client: &mut Client, key: &str, len: usize) {
    for number in 0..len {
        let id = format!("{}-{}", number / 5 + 1, number % 5);
        let field: &[u8] = if number % 9 == 5 { b"other" } else { b"field" };
        let value = word(number);
        client.send_bytes(&[b"XADD", key.as_bytes(), id.as_bytes(), field, &value, b"n", b"1"]);
    }
    (0..len).for_each(|_| assert!(matches!(client.read(), Frame::Bulk(_))));
    for line in [
        format!("XDEL {key} 1-2 3-0 17-4"),
        format!("XGROUP CREATE {key} early 0"),
        format!("XGROUP CREATE {key} late $ ENTRIESREAD 7"),
        format!("XGROUP CREATECONSUMER {key} late idle"),
        format!("XREADGROUP GROUP early alice COUNT {} STREAMS {key} >", len / 2 + 1),
        format!("XREADGROUP GROUP early bob COUNT {} STREAMS {key} >", len / 4 + 1),
        format!("XACK {key} early 1-1 4-3 6-0"),
        format!("XDEL {key} 2-2"),
    ] {
        let reply = client.line(&line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
}

/// What is told of a key: its digest, its encoding, and of a stream all that there is.
fn told(client: &mut Client, key: &str) -> Vec<String> {
    let mut told = vec![
        show(&client.call(&["DEBUG", "DIGEST-VALUE", key])),
        show(&client.call(&["OBJECT", "ENCODING", key])),
    ];
    if key.contains("stream") || key.contains("emptied") {
        let full = show(&client.call(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"]));
        // Nodes are Redis's own affair.
        let words: Vec<&str> = full.split(' ').collect();
        let is_of_nodes = |at: usize| at > 0 && words[at - 1].contains("radix-tree");
        let kept = (0..words.len()).filter(|&at| !is_of_nodes(at)).map(|at| words[at]);
        told.push(kept.collect::<Vec<&str>>().join(" "));
    }
    told
}

/// Has one server restore, under another name, what another has dumped, and compares what both tell.
fn carry(from: &mut Client, to: &mut Client, keys: &[String]) {
    for key in keys {
        let Frame::Bulk(payload) = call(from, &[b"DUMP", key.as_bytes()]) else {
            panic!("{key}: no payload");
        };
        let target = format!("restored:{key}");
        call(to, &[b"RESTORE", target.as_bytes(), b"0", &payload, b"REPLACE"]);
        assert_eq!(told(from, key), told(to, &target), "{key}");
    }
}

#[test]
fn values_go_from_either_server_to_the_other() {
    let options = ["--enable-debug-command", "yes", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let redis = Server::redis(&ALLOWED);
    let (mut of_kelvin, mut of_redis) = (kelvin.connect(), redis.connect());
    let keys = fill_all(&mut of_kelvin);
    assert_eq!(fill_all(&mut of_redis), keys);
    carry(&mut of_redis, &mut of_kelvin, &keys);
    carry(&mut of_kelvin, &mut of_redis, &keys);
    // And once more from flash, with what was restored in between.
    call(&mut of_kelvin, &[b"DEBUG", b"DEMOTE-AFTER-COMMAND", b"1"]);
    call(&mut of_kelvin, &[b"TIER", b"DEMOTE", b"ALL"]);
    let restored: Vec<String> = keys.iter().map(|key| format!("restored:{key}")).collect();
    carry(&mut of_kelvin, &mut of_redis, &restored);
    carry(&mut of_redis, &mut of_kelvin, &keys);
    let info = text(&of_kelvin.call(&["INFO", "tiering"]));
    let reads = info.lines().find_map(|line| line.strip_prefix("tier_read_flash:"));
    assert!(reads.expect("it is told").parse::<u64>().expect("a number") > 1_000, "{reads:?}");
}

#[test]
fn replies_are_those_of_redis() {
    let string = "\"\\x00\\x01v\\x0a\\x00\\x91\\x08\\xce\\xb2\\x19\\x38\\x8a\\xce\"";
    let restore = |rest: &str| format!("RESTORE k {rest}");
    let lines = [
        "DUMP missing".into(),
        "DUMP".into(),
        "SET number -129".into(),
        "DUMP number".into(),
        "SET short text".into(),
        "DUMP short".into(),
        "SADD integers 1 -2 70000".into(),
        "DUMP integers".into(),
        "HSET hash f v n 10".into(),
        "DUMP hash".into(),
        "ZADD zset 1 a inf c -3 b".into(),
        "DUMP zset".into(),
        restore(""),
        restore("0"),
        restore("0 x"),
        restore("x x"),
        restore("-1 x"),
        restore("0 x NONE"),
        restore("0 x IDLETIME"),
        restore("0 x IDLETIME x"),
        restore("0 x IDLETIME -1"),
        restore("0 x IDLETIME 1 FREQ 1"),
        restore("0 x FREQ 1 IDLETIME 1"),
        restore("0 x FREQ 256"),
        restore("0 x FREQ -1"),
        restore(&format!("0 {string}")),
        restore(&format!("0 {string} IDLETIME 1000 ABSTTL")),
        restore(&format!("1 {string} ABSTTL REPLACE")),
        "EXISTS k".into(),
        "RESTORE number 0 x".into(),
        "RESTORE number 0 x REPLACE".into(),
        "GET number".into(),
        "COMMAND INFO DUMP".into(),
        "COMMAND INFO RESTORE".into(),
        "COMMAND GETKEYS DUMP k".into(),
        "COMMAND GETKEYS RESTORE k 0 x".into(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_same_replies(&Server::kelvin(&ALLOWED), &Server::redis(&ALLOWED), &lines);
}

#[test]
fn a_payload_that_claims_more_than_there_is_room_for_is_refused() {
    let server = Server::kelvin(&["--maxmemory", "64mb", "--workers", "1"]);
    let mut client = server.connect();
    // A set whose members are compressed: each of 40 KB in 470 bytes.
    let mut object = b"\x02\x80\x00\x00\x40\x00".to_vec();
    for number in 0..16_384u32 {
        let copies = b"\xe0\xff\x03".repeat(150);
        let literals = [&b"\x03"[..], &number.to_be_bytes()].concat();
        let compressed = (literals.len() + copies.len()) as u16;
        object.push(0xc3);
        object.extend((0x4000 | compressed).to_be_bytes());
        object.push(0x80);
        object.extend((4 + 264 * 150u32).to_be_bytes());
        object.extend(&literals);
        object.extend(&copies);
    }
    rdb::payload::finish(&mut object, 0, rdb::payload::VERSION_7_0);
    let before = server.resident_bytes();
    client.send_bytes(&[b"RESTORE", b"k", b"0", &object]);
    let reply = show(&client.read());
    assert!(reply.starts_with('-'), "{reply:.100}");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more");
    assert_eq!(client.show("PING"), "+PONG");
    assert_eq!(client.show("EXISTS k"), ":0");
}
