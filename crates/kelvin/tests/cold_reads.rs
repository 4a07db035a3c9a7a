//! Reads of values on flash: each answers with its own value, and each is answered.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use resp::Frame;
use support::{Client, Server, show, text};

/// Starts a server with one worker, so that all clients share its reads and its buffers.
fn one_worker(flash_size: &str, maxmemory: &str) -> Server {
    with_segments("4mb", flash_size, maxmemory)
}

fn with_segments(segment_size: &str, flash_size: &str, maxmemory: &str) -> Server {
    let options = [
        ["--workers", "1"],
        ["--maxmemory", maxmemory],
        ["--flash-segment-size", segment_size],
        // No client is closed for the size of its replies.
        ["--maxmemory-clients", "1gb"],
        // Values take the room that they seem to.
        ["--tier-compression", "none"],
    ];
    Server::kelvin_with_flash(flash_size, &options.concat())
}

/// Sets a key and sends its value to flash.
fn set_cold(client: &mut Client, key: &str, value: &str) {
    assert_eq!(client.call(&["SET", key, value]), Frame::Simple(b"OK".to_vec()));
    client.call(&["TIER", "DEMOTE", key]);
    let Frame::Array(place) = client.call(&["TIER", "LOCATE", key]) else { panic!("no place") };
    assert_eq!(text(&place[1]), "cold", "{key}");
}

/// Sets so much more than fits into RAM that no value comes back at its first use.
fn leave_no_free_room(client: &mut Client, megabytes: usize) {
    let value = "x".repeat(8 << 10);
    for index in 0..megabytes * 128 {
        client.send(&["SET", &format!("filler-{index}"), &value]);
        if index % 128 == 127 {
            (0..128).for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
        }
    }
}

/// A value that says whose it is.
fn named(key: &str, round: usize, len: usize) -> String {
    let mut value = format!("{key}:{round}:");
    value.extend(std::iter::repeat_n('.', len - value.len()));
    value
}

#[test]
fn a_value_that_moves_while_others_are_fetched_is_not_taken_for_the_one_that_follows_it() {
    const SMALL: usize = 60;
    const SMALL_LEN: usize = 4 << 10;
    const READS: usize = 30;
    // Segments so short that one round of writes fills one.
    let kelvin = with_segments("256kb", "128mb", "128mb");
    let mut reader = kelvin.connect();
    let keys: Vec<String> = (0..SMALL).map(|index| format!("small-{index}")).collect();
    for key in &keys {
        set_cold(&mut reader, key, &named(key, 0, SMALL_LEN));
    }
    set_cold(&mut reader, "large", &named("large", 0, 16 << 20));
    let has_ended = Arc::new(AtomicBool::new(false));
    let writing = std::thread::spawn({
        let (mut writer, keys, has_ended) = (kelvin.connect(), keys.clone(), has_ended.clone());
        move || {
            // In other orders, so that a place is given to other keys each time.
            for round in 1.. {
                for index in 0..SMALL {
                    let key = &keys[(index * 7 + round) % SMALL];
                    writer.send(&["SET", key, &named(key, round, SMALL_LEN)]);
                    writer.send(&["TIER", "DEMOTE", key]);
                }
                (0..2 * SMALL).for_each(|_| drop(writer.read()));
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let words: Vec<&str> =
        ["MGET", "large"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let mut wrong = 0;
    for _ in 0..READS {
        reader.call(&["TIER", "DEMOTE", "large"]);
        let Frame::Array(values) = reader.call(&words) else { panic!("an array") };
        for (key, value) in words[1..].iter().zip(&values) {
            wrong += usize::from(!text(value).starts_with(&format!("{key}:")));
        }
    }
    has_ended.store(true, Ordering::Relaxed);
    writing.join().expect("the writer is served");
    assert_eq!(wrong, 0, "values of other keys in {READS} reads");
}

/// Sets values that need more read buffers than a worker has, and a large one.
fn set_more_than_all_buffers(client: &mut Client, small: usize, large: usize) -> Vec<String> {
    let mut keys: Vec<String> = (0..small).map(|index| format!("small-{index}")).collect();
    for key in &keys {
        set_cold(client, key, &named(key, 0, 20_000));
    }
    set_cold(client, "large", &named("large", 0, large));
    keys.push("large".into());
    keys
}

#[test]
fn a_pipeline_whose_values_take_all_read_buffers_is_answered() {
    let kelvin = one_worker("128mb", "128mb");
    let mut client = kelvin.connect();
    let keys = set_more_than_all_buffers(&mut client, 250, 300_000);
    keys.iter().for_each(|key| client.send(&["GET", key]));
    for key in &keys {
        assert!(text(&client.read()).starts_with(&format!("{key}:")));
    }
    client.call(&["TIER", "DEMOTE", "large"]);
    let other = kelvin.connect().call(&["GET", "large"]);
    assert!(text(&other).starts_with("large:"));
}

#[test]
fn one_command_whose_values_take_all_read_buffers_is_answered() {
    let kelvin = one_worker("128mb", "128mb");
    let mut client = kelvin.connect();
    let keys = set_more_than_all_buffers(&mut client, 256, 1_000_000);
    let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let Frame::Array(values) = client.call(&words) else { panic!("an array") };
    for (key, value) in keys.iter().zip(&values) {
        assert!(text(value).starts_with(&format!("{key}:")));
    }
}

#[test]
fn a_transaction_keeps_what_was_fetched_for_it_when_it_needs_more() {
    let kelvin = one_worker("256mb", "64mb");
    let mut client = kelvin.connect();
    leave_no_free_room(&mut client, 96);
    for key in ["x", "a", "b"] {
        set_cold(&mut client, key, &named(key, 0, 500));
    }
    // Reads that do not count as uses bring nothing back to RAM.
    client.line("CLIENT NO-TOUCH ON");
    client.line("MULTI");
    client.line("SET x v GET");
    client.line("MGET a b");
    let reply = client.line("EXEC");
    let Frame::Array(replies) = &reply else { panic!("{}", show(&reply)) };
    assert!(text(&replies[0]).starts_with("x:"));
    let Frame::Array(values) = &replies[1] else { panic!("{}", show(&reply)) };
    assert!(text(&values[0]).starts_with("a:"));
    assert!(text(&values[1]).starts_with("b:"));
}

#[test]
fn a_command_whose_values_are_longer_than_a_fetch_gets_them_all() {
    const LEN: usize = 33 << 20;
    let kelvin = one_worker("384mb", "160mb");
    let mut client = kelvin.connect();
    for key in ["one", "two"] {
        set_cold(&mut client, key, &named(key, 0, LEN));
    }
    leave_no_free_room(&mut client, 170);
    client.line("CLIENT NO-TOUCH ON");
    assert_eq!(client.show("BITOP XOR target one two"), format!(":{LEN}"));
}

/// A figure of INFO.
fn figure(client: &mut Client, section: &str, name: &str) -> String {
    let info = text(&client.call(&["INFO", section]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

#[test]
fn a_command_that_waits_for_flash_counts_its_reads_and_uses_once() {
    let kelvin = one_worker("64mb", "64mb");
    let mut client = kelvin.connect();
    client.line("CONFIG SET maxmemory-policy allkeys-lfu");
    for key in ["hot", "control"] {
        client.call(&["SET", key, &named(key, 0, 500)]);
    }
    set_cold(&mut client, "cold", &named("cold", 0, 500));
    client.line("CONFIG RESETSTAT");
    let Frame::Array(values) = client.line("MGET hot missing cold") else { panic!("an array") };
    assert!(text(&values[2]).starts_with("cold:"));
    assert_eq!(figure(&mut client, "stats", "keyspace_hits"), "2");
    assert_eq!(figure(&mut client, "stats", "keyspace_misses"), "1");
    assert_eq!(figure(&mut client, "tiering", "tier_read_ram"), "1");
    assert_eq!(figure(&mut client, "tiering", "tier_read_flash"), "1");
    client.line("GET control");
    assert_eq!(client.show("OBJECT FREQ hot"), client.show("OBJECT FREQ control"));
}
