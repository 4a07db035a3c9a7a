//! Fields of hashes that expire: nobody sees them when their time has come, and they are removed wherever they
//! are, in RAM or on flash.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, text};

const PATIENCE: Duration = Duration::from_secs(30);
/// Fields of a large hash.
const FIELDS: usize = 4_000;

fn server() -> Server {
    Server::kelvin_with_flash("256mb", &["--workers", "2", "--enable-debug-command", "yes"])
}

fn integer(frame: &Frame) -> i64 {
    match frame {
        Frame::Integer(number) => *number,
        other => panic!("{}", support::show(other)),
    }
}

fn is_null(frame: &Frame) -> bool {
    support::show(frame) == "_"
}

fn info(client: &mut Client, name: &str) -> i64 {
    let info = text(&client.call(&["INFO", "tiering"]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Asks until the answer is as expected.
fn wait_for(client: &mut Client, line: &str, expected: &str) {
    let start = Instant::now();
    loop {
        let shown = client.show(line);
        if shown == expected {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{line} answers {shown}, not {expected}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn wait_for_no_nodes(client: &mut Client) {
    let start = Instant::now();
    while info(client, "tier_nodes") > 0 {
        assert!(start.elapsed() < PATIENCE, "{} nodes", info(client, "tier_nodes"));
        thread::sleep(Duration::from_millis(10));
    }
}

fn field(number: usize) -> String {
    format!("field {number}")
}

fn value(number: usize) -> String {
    format!("value {number} {}", "x".repeat(60))
}

/// Sets the fields of a hash, with an option or two of HSETEX.
fn fill(client: &mut Client, key: &str, options: &[&str], numbers: &[usize]) {
    for some in numbers.chunks(100) {
        let count = some.len().to_string();
        let mut words: Vec<String> = vec!["HSETEX".into(), key.into()];
        words.extend(options.iter().map(|&option| option.to_owned()));
        words.extend(["FIELDS".into(), count]);
        words.extend(some.iter().flat_map(|&number| [field(number), value(number)]));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(client.call(&words), Frame::Integer(1));
    }
}

/// A time so long from now, in Unix milliseconds.
fn in_ms(client: &mut Client, ms: u64) -> String {
    let Frame::Array(time) = client.call(&["TIME"]) else { panic!("an array") };
    let seconds: u64 = text(&time[0]).parse().expect("a number");
    (seconds * 1_000 + 1_000 + ms).to_string()
}

/// Checks that of a large hash the odd fields are left, or none.
fn check_odd(client: &mut Client, key: &str) {
    let Frame::Array(all) = client.call(&["HGETALL", key]) else { panic!("an array") };
    assert_eq!(all.len(), FIELDS, "half of the fields, and their values");
    for number in (0..FIELDS).step_by(37) {
        let found = client.call(&["HGET", key, &field(number)]);
        match number % 2 {
            0 => assert!(is_null(&found)),
            _ => assert_eq!(text(&found), value(number)),
        }
    }
}

#[test]
fn fields_on_flash_are_removed() {
    let kelvin = server();
    let mut client = kelvin.connect();
    let even: Vec<usize> = (0..FIELDS).step_by(2).collect();
    let odd: Vec<usize> = (1..FIELDS).step_by(2).collect();
    let (soon, later) = (in_ms(&mut client, 4_000), in_ms(&mut client, 100_000));
    for key in ["large", "{k}from", "copied", "moved"] {
        fill(&mut client, key, &["PXAT", &soon], &even);
        fill(&mut client, key, &["PXAT", &later], &odd);
    }
    for number in 0..200 {
        let (gone, stays) = (format!("gone {number}"), format!("stays {number}"));
        fill(&mut client, &gone, &["PXAT", &soon], &[0, 1]);
        fill(&mut client, &stays, &["PXAT", &soon], &[0]);
        fill(&mut client, &stays, &[], &[1]);
    }
    // From flash to another key, within the slot and to other ones.
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.show("RENAME {k}from {k}to"), "+OK");
    assert_eq!(client.show("COPY copied copy"), ":1");
    assert_eq!(client.show("MOVE moved 3"), ":1");
    assert_eq!(client.show("HLEN {k}to"), format!(":{FIELDS}"));
    client.line("TIER DEMOTE ALL");
    let half = format!(":{}", FIELDS / 2);
    for key in ["large", "{k}to", "copied", "copy"] {
        wait_for(&mut client, &format!("HLEN {key}"), &half);
        check_odd(&mut client, key);
    }
    wait_for(&mut client, "DBSIZE", ":204");
    for number in 0..200 {
        assert_eq!(client.show(&format!("EXISTS 'gone {number}'")), ":0");
        // HLEN counts a field until it is removed.
        wait_for(&mut client, &format!("HLEN 'stays {number}'"), ":1");
    }
    client.line("SELECT 3");
    wait_for(&mut client, "HLEN moved", &half);
    check_odd(&mut client, "moved");
    // The rest, when all is on flash.
    client.line("SELECT 0");
    client.line("TIER DEMOTE ALL");
    let soon = in_ms(&mut client, 1_000);
    for (db, key) in
        [("0", "large"), ("0", "{k}to"), ("0", "copied"), ("0", "copy"), ("3", "moved")]
    {
        client.call(&["SELECT", db]);
        for number in &odd {
            let words = ["HPEXPIREAT", key, &soon, "FIELDS", "1", &field(*number)];
            let Frame::Array(done) = client.call(&words) else { panic!("an array") };
            assert!([1, 2, -2].contains(&integer(&done[0])));
        }
        client.line("TIER DEMOTE ALL");
    }
    wait_for(&mut client, "DBSIZE", ":0");
    client.line("SELECT 0");
    wait_for(&mut client, "DBSIZE", ":200");
    wait_for_no_nodes(&mut client);
}

#[test]
fn keys_that_go_take_their_timers_along() {
    let kelvin = server();
    let mut client = kelvin.connect();
    let numbers: Vec<usize> = (0..FIELDS).collect();
    for end in ["DEL h", "SET h v", "PEXPIRE h 1", "FLUSHDB", "RENAME s h", "UNLINK h"] {
        client.line("SET s v");
        let soon = in_ms(&mut client, 0);
        fill(&mut client, "h", &["PXAT", &soon], &numbers);
        client.line("TIER DEMOTE h");
        client.line(end);
        thread::sleep(Duration::from_millis(5));
        fill(&mut client, "h2", &["PXAT", &soon], &[1, 2]);
        wait_for(&mut client, "EXISTS h2", ":0");
        client.line("FLUSHALL");
    }
    assert_eq!(client.show("PING"), "+PONG");
}

#[test]
fn subscribers_hear_of_fields_that_expire() {
    let kelvin = server();
    let mut client = kelvin.connect();
    let mut listener = kelvin.connect();
    assert_eq!(client.show("CONFIG SET notify-keyspace-events KAE"), "+OK");
    listener.line("PSUBSCRIBE __keyspace@0__:*");
    client.line("HSET h a 1 b 2");
    client.line("HPEXPIRE h 20 FIELDS 1 a");
    wait_for(&mut client, "HLEN h", ":1");
    client.line("HPEXPIRE h 20 FIELDS 1 b");
    wait_for(&mut client, "EXISTS h", ":0");
    let mut heard = Vec::new();
    while let Some(frame) = listener.read_within(Duration::from_millis(200)) {
        let (Frame::Array(parts) | Frame::Push(parts)) = &frame else { panic!("{frame:?}") };
        heard.push(text(&parts[3]));
    }
    let expected = ["hset", "hexpire", "hexpired", "hexpire", "hexpired", "del"];
    assert_eq!(heard, expected);
}

#[test]
fn what_has_expired_is_not_seen_before_it_is_removed() {
    let kelvin = server();
    let mut client = kelvin.connect();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0");
    let numbers: Vec<usize> = (0..FIELDS).collect();
    let soon = in_ms(&mut client, 0);
    fill(&mut client, "h", &["PXAT", &soon], &numbers);
    client.line("HSET h stays 1");
    for place in ["DEMOTE", "PROMOTE"] {
        client.call(&["TIER", place, "h"]);
        wait_for(&mut client, "HGETALL h", "[$stays $1]");
        assert_eq!(client.show("HLEN h"), format!(":{}", FIELDS + 1));
        assert!(is_null(&client.call(&["HGET", "h", &field(7)])));
        assert_eq!(client.show("HRANDFIELD h 5"), client.show("HKEYS h"));
    }
    client.line("DEBUG SET-ACTIVE-EXPIRE 1");
    wait_for(&mut client, "HLEN h", ":1");
}

/// Each client sets fields of its own in hashes that all share, while everything is demoted again and again: a
/// field is there until its time has come, and never after.
#[test]
fn no_client_sees_a_field_too_long() {
    const KEYS: usize = 6;
    let kelvin = Arc::new(server());
    let is_over = Arc::new(AtomicBool::new(false));
    let demoting = {
        let (kelvin, is_over) = (kelvin.clone(), is_over.clone());
        thread::spawn(move || {
            let mut client = kelvin.connect();
            while !is_over.load(Ordering::Relaxed) {
                client.line("TIER DEMOTE ALL");
                thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let clients: Vec<_> = (0..4u64)
        .map(|own| {
            let kelvin = kelvin.clone();
            thread::spawn(move || live_for_a_while(&kelvin, own, KEYS))
        })
        .collect();
    let (mut found, mut missed) = (0, 0);
    for client in clients {
        let (there, gone) = client.join().expect("a client");
        (found, missed) = (found + there, missed + gone);
    }
    is_over.store(true, Ordering::Relaxed);
    demoting.join().expect("a client");
    assert!(found > 100 && missed > 100, "{found} {missed}");
    let mut client = kelvin.connect();
    wait_for(&mut client, "DBSIZE", ":0");
    wait_for_no_nodes(&mut client);
}

/// Returns how many fields were read that were there for sure, and that were gone for sure.
fn live_for_a_while(kelvin: &Server, own: u64, keys: usize) -> (usize, usize) {
    const OWN_FIELDS: u64 = 400;
    let mut client = kelvin.connect();
    let mut random = stdx::Random::new(own);
    // Until when each field is there for sure, and from when on it is gone.
    let mut model: Vec<Option<(String, Instant, Instant)>> = vec![None; OWN_FIELDS as usize * keys];
    let (mut found, mut missed) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        let (number, key) = (random.below(OWN_FIELDS), random.below(keys as u64));
        let at = (number as usize) * keys + key as usize;
        let (key, field) = (format!("h{key}"), format!("field {own} {number}"));
        if random.below(2) == 0 {
            let most_ms = if random.below(2) == 0 { 100 } else { 2_000 };
            let ms = 1 + random.below(most_ms);
            let value =
                format!("{} {}", random.below(1 << 30), "y".repeat(random.below(80) as usize));
            let ttl = Duration::from_millis(ms);
            let (sent, px) = (Instant::now(), ms.to_string());
            let words = ["HSETEX", &key, "PX", &px, "FIELDS", "1", &field, &value];
            assert_eq!(client.call(&words), Frame::Integer(1));
            // The server's milliseconds are cut off.
            let grain = Duration::from_millis(2);
            model[at] =
                Some((value, sent + ttl.saturating_sub(grain), Instant::now() + ttl + grain));
            continue;
        }
        let sent = Instant::now();
        let reply = client.call(&["HGET", &key, &field]);
        match &model[at] {
            Some((value, until, _)) if Instant::now() < *until => {
                found += 1;
                assert_eq!(text(&reply), *value, "{key} {field}");
            }
            Some((_, _, from)) if sent > *from => {
                missed += 1;
                assert!(is_null(&reply), "{key} {field}");
            }
            None => assert!(is_null(&reply), "{key} {field}"),
            Some(_) => {}
        }
    }
    (found, missed)
}
