//! DUMP and RESTORE beside a real redis-server: what one has dumped, the other restores, and it is the same.

mod support;

use resp::Frame;
use support::values::{call, fill_all, told};
use support::{Client, Server, assert_same_replies, show, text};

const ALLOWED: [&str; 2] = ["--enable-debug-command", "yes"];
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
