//! Many clients, and clients that take without end: bounded refusals, and others served on.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use resp::Frame;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Server, text};

/// Connections that the test itself may need besides.
const SPARE_FILES: u64 = 64;
const MIB: u64 = 1 << 20;
/// How long it may take until clients that take too much are closed.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(60);
/// The same until those that have gone are noticed: hundreds were left after a minute when they were not.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(20);

/// Lets this process open as many files as it may at all; how many that is.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("a process may raise its limit up to the hard one");
    limit.maximum.unwrap_or(u64::MAX)
}

fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).expect("the server answers") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

#[test]
fn ten_thousand_clients_are_served_and_the_next_is_told() {
    let files = raise_open_files();
    let kelvin = Server::kelvin(&["--maxmemory", "200mb"]);
    let mut control = kelvin.connect();
    control.call(&["SET", "key", "value"]);
    let before = kelvin.resident_bytes();
    // The server has its own limit of files, and lowers maxclients to what it allows.
    let shown = control.show("CONFIG GET maxclients");
    let allowed = shown.split(|mark: char| !mark.is_ascii_digit()).find_map(|at| at.parse().ok());
    let allowed: u64 = allowed.expect("maxclients is a number");
    let count = allowed.min(files - SPARE_FILES) - 1;
    assert!(count >= 9_999, "{count} connections are not ten thousand");
    let mut clients: Vec<TcpStream> = (0..count).map(|_| kelvin.stream()).collect();
    for client in &mut clients {
        client.write_all(b"GET key\r\n").expect("the server reads");
    }
    for client in &mut clients {
        assert_eq!(read_line(client), "$5");
        assert_eq!(read_line(client), "value");
    }
    if count + 1 == allowed {
        let refused = read_line(&mut kelvin.stream());
        assert_eq!(refused, "-ERR max number of clients reached");
    }
    let grown = kelvin.resident_bytes() - before;
    assert!(grown / count < 8 << 10, "an idle client takes {} bytes", grown / count);
    drop(clients);
    assert_eq!(text(&control.line("GET key")), "value");
}

#[test]
fn clients_that_never_read_are_closed_and_the_others_served() {
    let options = ["--maxmemory", "100mb", "--workers", "2", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut control = kelvin.connect();
    let value = "v".repeat(1 << 20);
    control.call(&["SET", "big", &value]);
    let mut greedy: Vec<TcpStream> = (0..16).map(|_| kelvin.stream()).collect();
    let mut peak = 0;
    for _ in 0..20 {
        for client in &mut greedy {
            // A client that was closed cannot send any more: that is what should happen.
            let _closed = client.write_all(&b"GET big\r\n".repeat(100));
        }
        assert_eq!(text(&control.call(&["GET", "big"])), value);
        peak = peak.max(kelvin.resident_bytes());
    }
    // A worker that was kept waiting comes to its clients later.
    let deadline = Instant::now() + CLOSE_TIME_MAX;
    let mut closed = || {
        let info = text(&control.line("INFO stats"));
        let count = info.lines().find_map(|line| line.strip_prefix("evicted_clients:"));
        count.expect("a counter").trim() != "0"
    };
    while !closed() {
        assert!(Instant::now() < deadline, "no client is closed");
        peak = peak.max(kelvin.resident_bytes());
    }
    assert!(peak <= 105 * MIB, "{} MiB were resident", peak / MIB);
}

#[test]
fn more_cold_reads_than_there_are_buffers_are_all_answered() {
    const KEYS: usize = 20_000;
    const CLIENTS: usize = 100;
    const PIPELINE: usize = 256;
    let options = ["--workers", "1", "--maxmemory", "100mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut control = kelvin.connect();
    let value = |index: usize| format!("{index:05}").repeat(100);
    for index in 0..KEYS {
        control.send(&["SET", &format!("k{index}"), &value(index)]);
    }
    (0..KEYS).for_each(|_| drop(control.read()));
    control.line("TIER DEMOTE ALL");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| kelvin.connect()).collect();
    let key = |client: usize, index: usize| (client * 7_919 + index * 31) % KEYS;
    for round in 0..3 {
        for (client, connection) in clients.iter_mut().enumerate() {
            for index in 0..PIPELINE {
                connection.send(&["GET", &format!("k{}", key(client + round, index))]);
            }
        }
        for (client, connection) in clients.iter_mut().enumerate() {
            for index in 0..PIPELINE {
                assert_eq!(text(&connection.read()), value(key(client + round, index)));
            }
        }
    }
}

#[test]
fn one_command_that_reads_more_than_all_buffers_is_answered() {
    const KEYS: usize = 600;
    let options = ["--workers", "1", "--maxmemory", "200mb", "--tier-compression", "none"];
    let kelvin = Server::kelvin_with_flash("4gb", &options);
    let mut client = kelvin.connect();
    let value = |index: usize| format!("{index:04}").repeat(10_000);
    let mut get = vec!["MGET".to_owned()];
    for index in 0..KEYS {
        client.call(&["SET", &format!("k{index}"), &value(index)]);
        get.push(format!("k{index}"));
    }
    client.line("TIER DEMOTE ALL");
    let words: Vec<&str> = get.iter().map(String::as_str).collect();
    let Frame::Array(values) = client.call(&words) else { panic!("an array") };
    for (index, found) in values.iter().enumerate() {
        assert_eq!(text(found), value(index), "{index}");
    }
}

/// Requests of clients that give up, and ask again, and give up again, must not fill the queue for memory.
#[test]
fn reads_of_clients_that_have_gone_leave_the_queue_for_memory() {
    const KEYS: usize = 60_000;
    const READ: usize = 1000;
    let options = ["--workers", "2", "--maxmemory", "64mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut control = kelvin.connect();
    let value = "v".repeat(1600);
    for first in (0..KEYS).step_by(100) {
        for index in first..first + 100 {
            control.send(&["SET", &format!("key:{index:06}"), &value]);
        }
        (0..100).for_each(|_| assert_eq!(control.read(), Frame::Simple(b"OK".to_vec())));
    }
    control.call(&["TIER", "DEMOTE", "ALL"]);
    raise_open_files();
    let gone: Vec<TcpStream> = (0..800).map(|_| kelvin.stream()).collect();
    for (number, mut client) in gone.into_iter().enumerate() {
        let first = number * 7919 % (KEYS - READ);
        let keys = (first..first + READ).map(|index| format!(" key:{index:06}"));
        client
            .write_all(format!("MGET{}\r\n", keys.collect::<String>()).as_bytes())
            .expect("taken");
    }
    let clients = |control: &mut support::Client| {
        let info = text(&control.line("INFO clients"));
        let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
        count.expect("a counter").trim().parse::<usize>().expect("a number")
    };
    let deadline = Instant::now() + LEAVE_TIME_MAX;
    while clients(&mut control) > 1 {
        assert!(Instant::now() < deadline, "{} are left", clients(&mut control));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(text(&control.line("GET key:000007")), value);
}

/// Keys are written until they are refused: they fill memory but for what is left to reads, and each of the clients wants
/// a part of that. Buffers of the engine take a quarter of `maxmemory` here, which keys do not get either.
#[test]
fn large_cold_reads_are_answered_where_keys_fill_memory() {
    const KEYS_MAX: usize = 2_000_000;
    const REFUSED_MAX: usize = 10;
    const READ: usize = 1000;
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 10;
    let options = ["--workers", "4", "--maxmemory", "64mb", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("2gb", &options);
    let mut control = kelvin.connect();
    let value = |index: usize| format!("{index:08}").repeat(64);
    let (mut keys, mut refused) = (0, 0);
    // What is refused at first fits behind defragmentation.
    while refused < REFUSED_MAX {
        for index in keys..keys + READ {
            control.send(&["SET", &format!("key:{index:07}"), &value(index)]);
        }
        let replies: Vec<_> = (0..READ).map(|_| control.read()).collect();
        if replies
            .iter()
            .any(|reply| matches!(reply, Frame::Error(text) if text.starts_with(b"OOM ")))
        {
            refused += 1;
            std::thread::sleep(Duration::from_millis(100));
        } else {
            (keys, refused) = (keys + READ, 0);
        }
        assert!(keys < KEYS_MAX, "keys do not fill memory");
    }
    control.line("TIER DEMOTE ALL");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| kelvin.connect()).collect();
    let first = |client: usize, round: usize| (client * ROUNDS + round) * 7_919 % (keys - READ);
    let mut answered = 0;
    for round in 0..ROUNDS {
        for (client, connection) in clients.iter_mut().enumerate() {
            let first = first(client, round);
            let keys = (first..first + READ).map(|index| format!("key:{index:07}"));
            let words: Vec<String> = ["MGET".to_owned()].into_iter().chain(keys).collect();
            connection.send(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        control.call(&["SET", &format!("written:{round}"), &value(round)]);
        for (client, connection) in clients.iter_mut().enumerate() {
            let first = first(client, round);
            match connection.read() {
                Frame::Array(values) => {
                    let right = (first..first + READ).map(value);
                    assert!(values.iter().map(text).eq(right), "{first}");
                    answered += 1;
                }
                Frame::Error(refused) => assert!(refused.starts_with(b"OOM "), "{refused:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(answered * 10 >= CLIENTS * ROUNDS * 9, "{answered} of {}", CLIENTS * ROUNDS);
    assert!(keys > 600_000, "{keys} fill memory");
    let peak = kelvin.resident_peak();
    assert!(peak <= 64 * MIB * 105 / 100, "{} KiB were resident", peak >> 10);
}
