//! Requests that wait: they run at the time at which they run, and their clients can be killed.

mod support;

use resp::Frame;
use support::{Client, Server, show, text};

/// Tries to make something take longer than a clock's step.
const TRIES_MAX: usize = 20;
/// Bytes of a value, and how many there are.
const VALUE_BYTES: usize = 2000;
const VALUES: usize = 4000;
/// Looks at the list of clients until those that were killed have gone.
const LOOKS_MAX: usize = 10_000;

fn integer(frame: &Frame) -> i64 {
    match frame {
        Frame::Integer(number) => *number,
        other => panic!("{}", show(other)),
    }
}

/// The reply of TIME in milliseconds.
fn milliseconds(frame: &Frame) -> i64 {
    let Frame::Array(parts) = frame else { panic!("{}", show(frame)) };
    let parts: Vec<i64> = parts.iter().map(|part| text(part).parse().expect("a number")).collect();
    parts[0] * 1000 + parts[1] / 1000
}

fn fill(client: &mut Client) {
    let value = "v".repeat(VALUE_BYTES);
    (0..VALUES).for_each(|index| client.send(&["SET", &format!("k{index}"), &value]));
    (0..VALUES).for_each(|_| assert_eq!(show(&client.read()), "+OK"));
}

/// Sends one batch in which something waits before a key is set that lives for `life_ms`, until the
/// wait is longer than the clock's step. The key's life must begin after the wait, not before.
fn assert_life_begins_after(client: &mut Client, mut wait: impl FnMut(&mut Client) -> Vec<String>) {
    let life_ms = 1_000_000;
    for _ in 0..TRIES_MAX {
        let waits = wait(client);
        let waits: Vec<&str> = waits.iter().map(String::as_str).collect();
        let mut batch = Vec::new();
        for request in [
            &["TIME"][..],
            &waits,
            &["TIME"],
            &["SET", "new", "v", "PX", &life_ms.to_string()],
            &["PEXPIRETIME", "new"],
        ] {
            batch.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
            for word in request {
                batch.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        client.write(&batch);
        let replies: Vec<Frame> = (0..5).map(|_| client.read()).collect();
        let (before, after) = (milliseconds(&replies[0]), milliseconds(&replies[2]));
        if after - before >= 3 {
            let begin = integer(&replies[4]) - life_ms;
            assert!(begin > before + 1, "it began {} ms before the wait ended", after - begin);
            return;
        }
    }
    panic!("nothing waited for three milliseconds");
}

#[test]
fn the_clock_is_that_of_the_run_after_waiting_for_flash() {
    let options = ["--workers", "1", "--flash-segment-size", "1mb", "--tier-promotion", "access"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut client = kelvin.connect();
    fill(&mut client);
    assert_life_begins_after(&mut client, |client| {
        assert!(integer(&client.line("TIER DEMOTE ALL")) >= 0);
        let keys = (0..VALUES / 2).map(|index| format!("k{index}"));
        std::iter::once("MGET".to_owned()).chain(keys).collect()
    });
}

#[test]
fn the_clock_is_that_of_the_run_after_waiting_for_an_errand() {
    let options = ["--workers", "1", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut client = kelvin.connect();
    assert_life_begins_after(&mut client, |client| {
        fill(client);
        ["TIER", "DEMOTE", "ALL"].map(str::to_owned).into()
    });
}

#[test]
fn a_client_that_is_killed_while_it_waits_for_flash_leaves_nothing_behind() {
    let options = ["--workers", "1", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("64mb", &options);
    let mut control = kelvin.connect();
    fill(&mut control);
    for round in 0..20 {
        assert!(integer(&control.line("TIER DEMOTE ALL")) >= 0);
        let mut victims: Vec<Client> = (0..4).map(|_| kelvin.connect()).collect();
        let ids: Vec<i64> =
            victims.iter_mut().map(|victim| integer(&victim.line("CLIENT ID"))).collect();
        for victim in &mut victims {
            let keys = (0..VALUES).map(|index| format!("k{}", (index * 7 + round) % VALUES));
            let words: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
            victim.send(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for id in &ids {
            assert_eq!(control.show(&format!("CLIENT KILL ID {id}")), ":1");
        }
        let gone = |control: &mut Client| text(&control.line("CLIENT LIST")).lines().count() == 1;
        assert!((0..LOOKS_MAX).any(|_| gone(&mut control)), "round {round}: they are still there");
    }
    // Every place for a read is free again.
    assert!(integer(&control.line("TIER DEMOTE ALL")) >= 0);
    let value = "v".repeat(VALUE_BYTES);
    (0..VALUES).for_each(|index| control.send(&["GET", &format!("k{index}")]));
    (0..VALUES).for_each(|_| assert_eq!(text(&control.read()), value));
}
