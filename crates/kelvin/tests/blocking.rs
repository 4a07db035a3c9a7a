//! Commands that wait for lists, on a real server with several workers.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, show, text};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A field of INFO, as a number.
fn info(client: &mut Client, field: &str) -> u64 {
    let text = text(&client.line("INFO"));
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.expect("the field").trim().parse().expect("a number")
}

/// Waits until so many clients wait for keys.
fn wait_for_blocked(client: &mut Client, count: u64) {
    let start = Instant::now();
    while info(client, "blocked_clients") != count {
        assert!(start.elapsed() < PATIENCE, "{count} clients should wait");
        thread::sleep(Duration::from_millis(1));
    }
}

fn read(client: &mut Client) -> String {
    show(&client.read_within(PATIENCE).expect("a reply"))
}

/// Clients that wait, in their order; then lines; then what the clients have been answered, which is what
/// Redis answers. A client's lines are separated by `;`.
#[test]
fn who_waits_is_served_as_with_redis() {
    let (kelvin, redis) = (Server::kelvin(&["--workers", "2"]), Server::redis(&[]));
    let cases: &[(&[&str], &[&str])] = &[
        (&["BLPOP a 0"], &["RPUSH a 1 2"]),
        (&["BLPOP a b 0", "BRPOP b a 0"], &["RPUSH b 1 2 3"]),
        (&["BLPOP a 0", "BLPOP a 0", "BLPOP a 0"], &["RPUSH a 1", "RPUSH a 2", "RPUSH a 3"]),
        (&["BLPOP a a 0"], &["RPUSH a 1 2"]),
        (&["BLMPOP 0 2 a b LEFT COUNT 2", "BLPOP a 0"], &["RPUSH a 1 2 3"]),
        (&["BLPOP a b 0"], &["MULTI", "RPUSH b 1", "RPUSH a 2", "EXEC", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["MULTI", "RPUSH a 1", "DEL a", "EXEC", "RPUSH a 2"]),
        (&["BLPOP a 0"], &["MULTI", "RPUSH a 1", "DEL a", "SET a x", "EXEC", "DEL a", "RPUSH a 2"]),
        (&["BLPOP a 0"], &["RPUSH o 1 2", "RENAME o a", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SET a x", "RPUSH o 1", "RENAME o a", "EXISTS a"]),
        (&["BLPOP a 0"], &["RPUSH o 1 2", "COPY o a", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH a 1 2", "MOVE a 0", "SELECT 0", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH o 1 2", "COPY o a DB 0", "SELECT 0", "LLEN a"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH a 1 2", "SWAPDB 0 3", "SELECT 0", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SELECT 3", "RPUSH a 1", "SELECT 0", "RPUSH a 2"]),
        (&["SELECT 3;BLPOP a 0"], &["RPUSH a 1", "SELECT 3", "RPUSH a 2", "SELECT 0", "LLEN a"]),
        (&["BLMOVE a b LEFT RIGHT 0", "BLPOP b 0"], &["RPUSH a 1 2", "LRANGE a 0 -1", "EXISTS b"]),
        (&["BLPOP b 0", "BLMOVE a b LEFT RIGHT 0"], &["RPUSH a 1 2", "LRANGE a 0 -1", "EXISTS b"]),
        (&["BRPOPLPUSH a b 0", "BRPOPLPUSH b a 0"], &["RPUSH a 1", "LRANGE a 0 -1", "EXISTS b"]),
        (&["BRPOPLPUSH a a 0"], &["RPUSH a 1 2", "LRANGE a 0 -1"]),
        (
            &["BRPOPLPUSH l1 l3 0", "BLPOP l2 0", "BLMPOP 0 2 l2 l3 LEFT COUNT 1"],
            &["MULTI", "LPUSH l1 1", "LPUSH l2 2", "EXEC", "EXISTS l1 l2 l3"],
        ),
        (&["BLMOVE a b LEFT LEFT 0", "BLPOP a 0"], &["SET b x", "RPUSH a 1 2", "LRANGE a 0 -1"]),
        (&["BLPOP a 0"], &["SADD a x", "DEL a", "RPUSH a 1"]),
        (&["BLPOP a 0;SET after 1"], &["GET after", "RPUSH a 1"]),
        (&["BLPOP a 0"], &["RPUSH o 1", "LMOVE o a LEFT LEFT", "EXISTS o a"]),
        (&["HELLO 3;BLPOP a 0", "BLPOP a 0"], &["RPUSH a 1 2"]),
        (&["HELLO 3;BLPOP a 0.001", "BLMOVE a b LEFT LEFT 0.001"], &["PING"]),
        (&["MULTI;BLPOP a 0;BLMOVE a b LEFT LEFT 0;BLMPOP 0 1 a LEFT;EXEC"], &["PING"]),
        (&["CLIENT REPLY SKIP;BLPOP a 0;PING"], &["RPUSH a 1"]),
        (&["WATCH a;BLPOP a 0;MULTI;PING;EXEC"], &["RPUSH a 1"]),
    ];
    for (waiting, lines) in cases {
        let results = [&kelvin, &redis].map(|server| served(server, waiting, lines));
        assert_eq!(results[0], results[1], "{waiting:?} {lines:?}: kelvin and redis");
    }
}

/// What clients that wait and one that runs lines are answered.
fn served(server: &Server, waiting: &[&str], lines: &[&str]) -> Vec<Vec<String>> {
    let mut client = server.connect();
    client.line("FLUSHALL");
    let mut clients = Vec::new();
    for requests in waiting {
        let mut waiter = server.connect();
        let before = info(&mut client, "blocked_clients");
        requests.split(';').for_each(|line| waiter.write(format!("{line}\r\n").as_bytes()));
        // Whoever waits does so before the next one comes; some are answered at once.
        let start = Instant::now();
        while info(&mut client, "blocked_clients") == before
            && start.elapsed() < Duration::from_millis(100)
        {
            thread::yield_now();
        }
        clients.push((waiter, requests));
    }
    let answers = lines.iter().map(|line| client.show(line)).collect();
    let mut results = vec![answers];
    for (waiter, requests) in &mut clients {
        let mut replies = Vec::new();
        let mut requests = requests.split(';');
        while let Some(request) = requests.next() {
            if request == "CLIENT REPLY SKIP" {
                requests.next();
                continue;
            }
            let reply = waiter.read_within(PATIENCE).expect("a reply");
            // The kind of a null counts, and what HELLO says does not.
            if !request.starts_with("HELLO") {
                replies.push(format!("{} {reply:?}", show(&reply)));
            }
        }
        results.push(replies);
    }
    results
}

#[test]
fn clients_give_up_in_time_or_are_told_to() {
    let server = Server::kelvin(&["--workers", "2"]);
    let mut client = server.connect();
    let mut waiter = server.connect();
    for (line, ms) in [
        ("BLPOP a 0.05", 50),
        ("BLMPOP 0.02 1 a LEFT", 20),
        ("BLMOVE a b LEFT LEFT 0.001", 1),
        ("BRPOP a 0.3", 300),
    ] {
        let start = Instant::now();
        assert_eq!(waiter.show(line), "_", "{line}");
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(ms), "{line} took {took:?}");
        assert!(took < Duration::from_millis(ms + 2000), "{line} took {took:?}");
    }
    let Frame::Integer(id) = waiter.line("CLIENT ID") else { panic!("a number") };
    assert_eq!(client.show(&format!("CLIENT UNBLOCK {id}")), ":0");
    for (line, how, answer) in [
        ("BLPOP a 0", "", "_"),
        ("BLPOP a 100", "TIMEOUT", "_"),
        ("BLMOVE a b LEFT LEFT 0", "ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        waiter.write(format!("{line}\r\n").as_bytes());
        wait_for_blocked(&mut client, 1);
        let with_deadline = u64::from(line.contains("100"));
        assert_eq!(info(&mut client, "clients_in_timeout_table"), with_deadline);
        let list = text(&client.line("CLIENT LIST"));
        let own = list.lines().find(|line| line.starts_with(&format!("id={id} ")));
        let own = own.expect("its line");
        assert!(own.contains("flags=b"), "{own}");
        let command = line.split(' ').next().expect("a name").to_ascii_lowercase();
        assert!(own.contains(&format!("cmd={command} ")), "{own}");
        assert_eq!(client.show(&format!("CLIENT UNBLOCK {id} {how}")), ":1");
        assert_eq!(read(&mut waiter), answer, "{line} {how}");
    }
    // What comes then goes to nobody.
    assert_eq!(client.show("RPUSH a 1"), ":1");
    assert_eq!(client.show("LRANGE a 0 -1"), "[$1]");
    assert_eq!(info(&mut client, "blocked_clients"), 0);
    assert_eq!(info(&mut client, "clients_in_timeout_table"), 0);
}

#[test]
fn a_client_that_goes_takes_nothing() {
    let server = Server::kelvin(&["--workers", "2"]);
    let mut client = server.connect();
    for is_killed in [false, true] {
        let mut waiter = server.connect();
        let Frame::Integer(id) = waiter.line("CLIENT ID") else { panic!("a number") };
        // What it sends behind its request does not hide that it is gone.
        waiter.write(b"BLPOP a b 0\r\nSET behind 1\r\n");
        wait_for_blocked(&mut client, 1);
        match is_killed {
            true => assert_eq!(client.show(&format!("CLIENT KILL ID {id}")), ":1"),
            false => drop(waiter),
        }
        wait_for_blocked(&mut client, 0);
        assert_eq!(client.show("RPUSH a 1"), ":1");
        assert_eq!(client.show("RPUSH b 1"), ":1");
        assert_eq!(client.show("DEL a b"), ":2");
        assert_eq!(client.show("EXISTS behind"), ":0");
    }
}

#[test]
fn lists_on_flash_are_fetched_for_who_waits() {
    let server =
        Server::kelvin_with_flash("64mb", &["--workers", "2", "--flash-segment-size", "1mb"]);
    let (mut client, mut waiter) = (server.connect(), server.connect());
    let element = "x".repeat(500);
    client.line("SELECT 3");
    client.line(&format!("RPUSH a {element} {element}"));
    client.line("SELECT 0");
    waiter.write(b"BLPOP a 0\r\n");
    wait_for_blocked(&mut client, 1);
    assert!(!client.show("TIER DEMOTE ALL").starts_with('-'));
    assert_eq!(client.show("SWAPDB 0 3"), "+OK");
    assert_eq!(read(&mut waiter), format!("[$a ${element}]"));
    assert_eq!(client.show("LLEN a"), ":1");
}

/// Many clients on several keys: each element goes to the client that has waited longest for its key.
#[test]
fn a_thousand_clients_are_served_in_the_order_of_their_arrival() {
    const KEYS: usize = 10;
    const CLIENTS: usize = 1000;
    for workers in ["2", "4"] {
        let server = Server::kelvin(&["--workers", workers, "--maxclients", "2000"]);
        let mut client = server.connect();
        let mut waiters = Vec::new();
        for round in 0..CLIENTS / KEYS {
            // One at each key at a time, so that the order of all at a key is known.
            for key in 0..KEYS {
                let mut waiter = server.connect();
                let other = (key + 1) % KEYS;
                let line = match round % 3 {
                    0 => format!("BLPOP k{key} 0\r\n"),
                    1 => format!("BLMOVE k{key} done{other} LEFT RIGHT 0\r\n"),
                    _ => format!("BLPOP k{key} none{other} 0\r\n"),
                };
                waiter.write(line.as_bytes());
                waiters.push((key, waiter));
            }
            wait_for_blocked(&mut client, ((round + 1) * KEYS) as u64);
        }
        // Elements are numbered in the order in which they are pushed to a key.
        thread::scope(|scope| {
            for key in 0..KEYS {
                let server = &server;
                scope.spawn(move || {
                    let mut pusher = server.connect();
                    for element in 0..CLIENTS / KEYS {
                        pusher.write(format!("RPUSH k{key} {element}\r\n").as_bytes());
                    }
                    for _ in 0..CLIENTS / KEYS {
                        assert_eq!(show(&pusher.read()), ":1", "somebody has taken the last one");
                    }
                });
            }
        });
        let mut next = BTreeMap::<usize, usize>::new();
        for (key, waiter) in &mut waiters {
            let number = next.entry(*key).or_default();
            let got = read(waiter);
            let is_it = got == format!("${number}") || got.ends_with(&format!(" ${number}]"));
            assert!(is_it, "{got} and not {number} of key {key}");
            *number += 1;
        }
        assert_eq!(info(&mut client, "blocked_clients"), 0);
        let moved =
            (0..KEYS).map(|key| client.show(&format!("LLEN done{key}"))).collect::<Vec<_>>();
        assert_eq!(moved, vec![":33"; KEYS]);
    }
}

/// Producers push numbers, clients that wait move them on, and nothing is lost, doubled or out of order.
#[test]
fn elements_that_move_on_stay_in_their_order() {
    const PRODUCERS: usize = 4;
    const MOVERS: usize = 12;
    const ELEMENTS: usize = 3000;
    for workers in ["2", "4"] {
        let server = Server::kelvin(&["--workers", workers]);
        let is_over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let mut movers = Vec::new();
            for mover in 0..MOVERS {
                let mut client = server.connect();
                movers.push(scope.spawn(move || {
                    // From the first list to the second, and from there to the last.
                    let (from, to) = [("one", "two"), ("two", "three")][mover % 2];
                    let mut moved = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let line = format!("BLMOVE {from} {to} LEFT RIGHT 0.1");
                        moved += usize::from(client.show(&line) != "_");
                    }
                    moved
                }));
            }
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        for element in 0..ELEMENTS {
                            client.line(&format!("RPUSH one {producer}:{element}"));
                        }
                    })
                })
                .collect();
            producers.into_iter().for_each(|thread| thread.join().expect("it pushes"));
            let mut client = server.connect();
            let start = Instant::now();
            while client.show("LLEN three") != format!(":{}", PRODUCERS * ELEMENTS) {
                assert!(start.elapsed() < PATIENCE, "everything should have moved on");
                thread::sleep(Duration::from_millis(5));
            }
            is_over.store(true, Ordering::Relaxed);
            let moved: usize =
                movers.into_iter().map(|thread| thread.join().expect("it moves")).sum();
            assert_eq!(moved, 2 * PRODUCERS * ELEMENTS);
        });
        let Frame::Array(elements) = server.connect().line("LRANGE three 0 -1") else {
            panic!("a list")
        };
        let mut next = [0; PRODUCERS];
        for element in &elements {
            let element = text(element);
            let (producer, number) = element.split_once(':').expect("both numbers");
            let producer: usize = producer.parse().expect("a number");
            assert_eq!(number.parse(), Ok(next[producer]), "of producer {producer}");
            next[producer] += 1;
        }
        assert_eq!(next, [ELEMENTS; PRODUCERS]);
    }
}
