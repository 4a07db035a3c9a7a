//! Subscribers that do not read: what waits for them is counted and bounded, and publishers never wait.

mod support;

use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, text};

const MIB: u64 = 1 << 20;
/// How long it may take until a client is closed that is to be.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(30);

/// Connections that listen to a channel and read nothing more.
fn deaf(server: &Server, count: usize, channel: &str) -> Vec<Client> {
    let listen = |_| {
        let mut client = server.connect();
        client.call(&["SUBSCRIBE", channel]);
        client
    };
    (0..count).map(listen).collect()
}

/// How many clients a message of so many bytes on a channel is for.
fn publish(client: &mut Client, channel: &str, bytes: usize) -> i64 {
    match client.call(&["PUBLISH", channel, &"m".repeat(bytes)]) {
        Frame::Integer(count) => count,
        other => panic!("{}", support::show(&other)),
    }
}

/// A figure of the line of CLIENT LIST of the first subscriber; none when there is none.
fn figure(control: &mut Client, name: &str) -> Option<u64> {
    field(&text(&control.line("CLIENT LIST TYPE pubsub")), name)
}

/// A figure of the first line of a reply to CLIENT LIST.
fn field(list: &str, name: &str) -> Option<u64> {
    let mut fields = list.lines().next()?.split_whitespace();
    let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some(value.expect("a field").parse().expect("a number"))
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + CLOSE_TIME_MAX;
    while !is() {
        assert!(Instant::now() < deadline, "{what}: not within {CLOSE_TIME_MAX:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_at_the_hard_limit() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let mut control = kelvin.connect();
    control.line("CONFIG SET client-output-buffer-limit 'pubsub 1mb 0 0'");
    // One on each worker.
    let clients = deaf(&kelvin, 2, "a");
    let mut reader = kelvin.connect();
    reader.call(&["SUBSCRIBE", "b"]);
    let mut most = 0;
    let mut messages = 0;
    while publish(&mut control, "a", 10_000) > 0 {
        messages += 1;
        assert!(messages < 100_000, "a socket takes no GiB");
        most = most.max(figure(&mut control, "omem").unwrap_or(0));
    }
    assert!((MIB / 2..=MIB + 100_000).contains(&most), "{most} bytes were left unread at most");
    assert_eq!(publish(&mut control, "b", 10), 1);
    reader.read();
    wait_until("a word in the log", || {
        kelvin.log().matches("exceeds the output buffer limit").count() == clients.len()
    });
    // What is large alone is never given, and ends the connection just so.
    let mut client = deaf(&kelvin, 1, "a").pop().expect("one");
    assert_eq!(publish(&mut control, "a", 2 << 20), 1);
    assert!(client.try_read().is_none());
}

#[test]
fn a_subscriber_may_be_over_the_soft_limit_for_a_while() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let mut control = kelvin.connect();
    control.line("CONFIG SET client-output-buffer-limit 'pubsub 0 100kb 2'");
    let _clients = deaf(&kelvin, 1, "a");
    // When it was last seen below the limit.
    let mut below = Instant::now();
    wait_until("it is closed", || {
        let now = Instant::now();
        let Some(bytes) = figure(&mut control, "omem") else { return true };
        if bytes < 100_000 {
            below = now;
        }
        // Nobody publishes once it is over the limit. Its socket may take all of that yet.
        while figure(&mut control, "omem").is_some_and(|bytes| bytes < 200_000) {
            publish(&mut control, "a", 10_000);
        }
        false
    });
    assert!(below.elapsed() > Duration::from_secs(2), "{:?}", below.elapsed());
}

#[test]
fn a_subscriber_that_reads_in_time_stays() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let mut control = kelvin.connect();
    control.line("CONFIG SET client-output-buffer-limit 'pubsub 0 100kb 4'");
    let mut clients = deaf(&kelvin, 1, "a");
    let start = Instant::now();
    // Longer in all than it may be over the limit at a stretch.
    while start.elapsed() < Duration::from_secs(6) {
        let mut messages = 0;
        while figure(&mut control, "omem").expect("it stays") < 200_000 {
            assert_eq!(publish(&mut control, "a", 10_000), 1);
            messages += 1;
        }
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..messages {
            clients[0].read();
        }
        wait_until("it has read all", || figure(&mut control, "omem") == Some(0));
    }
}

#[test]
fn messages_larger_than_the_data_set_reach_who_reads() {
    // The publisher's request, the message and its copy for who reads fit into what clients may take.
    const BYTES: usize = 8_000_000;
    let kelvin = Server::kelvin_with_flash("1gb", &["--workers", "2", "--maxmemory", "128mb"]);
    let mut control = kelvin.connect();
    let mut clients = deaf(&kelvin, 1, "a");
    for _ in 0..40 {
        let received = std::thread::scope(|scope| {
            let reading = scope.spawn(|| clients[0].read());
            assert_eq!(publish(&mut control, "a", BYTES), 1);
            reading.join().expect("a message")
        });
        let Frame::Array(parts) = received else { panic!("{}", support::show(&received)) };
        assert!(matches!(&parts[2], Frame::Bulk(bytes) if bytes.len() == BYTES));
    }
}

#[test]
fn what_waits_for_a_subscriber_counts_as_its_memory() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let mut control = kelvin.connect();
    let _clients = deaf(&kelvin, 1, "a");
    let waiting = |control: &mut Client| {
        let line = text(&control.line("CLIENT LIST TYPE pubsub"));
        (field(&line, "omem").expect("it stays"), field(&line, "tot-mem").expect("it stays"))
    };
    while waiting(&mut control).0 < 200_000 {
        assert_eq!(publish(&mut control, "a", 10_000), 1);
    }
    // One line: the kernel may take more of it between two.
    let (unread, memory) = waiting(&mut control);
    assert!(memory > unread, "{memory} bytes in all, {unread} of them unread");
}

#[test]
fn what_waits_for_subscribers_counts_among_all_clients() {
    let kelvin = Server::kelvin(&["--workers", "2", "--maxmemory-clients", "8mb"]);
    let mut control = kelvin.connect();
    let mut largest = deaf(&kelvin, 1, "a");
    let others = deaf(&kelvin, 6, "b");
    // Its socket may take what has just come: it is to stay behind.
    let mut behind_since = Instant::now();
    while behind_since.elapsed() < Duration::from_millis(100) {
        if figure(&mut control, "omem").expect("it stays") < 3 * MIB {
            assert_eq!(publish(&mut control, "a", 100_000), 1);
            behind_since = Instant::now();
        }
    }
    let evicted = |control: &mut Client| {
        let info = text(&control.line("INFO stats"));
        let count = info.lines().find_map(|line| line.strip_prefix("evicted_clients:"));
        count.expect("a counter").trim().parse::<u64>().expect("a number")
    };
    assert_eq!(evicted(&mut control), 0);
    while evicted(&mut control) == 0 {
        publish(&mut control, "b", 10_000);
    }
    assert!(drain(&mut largest[0]), "the one that takes the most is closed first");
    assert!(publish(&mut control, "b", 10) > 0, "not all go");
    drop(others);
}

#[test]
fn what_a_client_listens_to_counts_as_its_memory() {
    let kelvin = Server::kelvin(&["--workers", "2", "--maxmemory-clients", "1mb"]);
    let mut control = kelvin.connect();
    let subscribe = |client: &mut Client, number: usize| {
        client.send(&["SUBSCRIBE", &format!("{number:01000}")]);
        client.try_read().is_some()
    };
    let mut listener = kelvin.connect();
    let mut count = 0;
    while subscribe(&mut listener, count) {
        count += 1;
        assert!(count < 2000, "it is closed when its names take too much");
    }
    assert!(count > 500, "{count} names");
    // One that stays has more of them than another may be told.
    let mut listener = kelvin.connect();
    listener.line("CLIENT NO-EVICT on");
    assert!((0..1500).all(|number| subscribe(&mut listener, number)));
    assert_eq!(
        control.show("PUBSUB CHANNELS"),
        "-ERR request needs more memory than maxmemory-clients allows (1048576 bytes)"
    );
    assert_eq!(control.show("PUBSUB CHANNELS 0*7").matches("$0").count(), 150);
}

/// Reads what has come. Whether the connection is at its end.
fn drain(client: &mut Client) -> bool {
    while client.read_within(Duration::from_secs(1)).is_some() {}
    client.try_read().is_none()
}

#[test]
fn a_thousand_subscribers_that_do_not_read_take_no_more_than_they_may() {
    const MAX_MEMORY: u64 = 100 * MIB;
    let options = ["--maxmemory", "100mb", "--workers", "2", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut control = kelvin.connect();
    // More than fits into RAM.
    for key in 0..1500 {
        control.call(&["SET", &format!("key:{key}"), &key.to_string().repeat(25_000)]);
    }
    let clients = deaf(&kelvin, 1000, "a");
    let mut peak = 0;
    let mut published = 0;
    std::thread::scope(|scope| {
        let publishers: Vec<_> = [100, 4000]
            .map(|bytes| {
                let mut client = kelvin.connect();
                // On a busy machine what waits to be published may be the most that a client holds.
                client.line("CLIENT NO-EVICT on");
                scope.spawn(move || {
                    let message = "m".repeat(bytes);
                    let start = Instant::now();
                    let mut count = 0_u64;
                    while start.elapsed() < Duration::from_secs(6) {
                        (0..32).for_each(|_| client.send(&["PUBLISH", "a", &message]));
                        (0..32).for_each(|_| _ = client.read());
                        count += 32;
                    }
                    count
                })
            })
            .into();
        while !publishers.iter().all(|thread| thread.is_finished()) {
            peak = peak.max(kelvin.resident_bytes());
            assert_eq!(text(&control.call(&["GET", "key:7"])), "7".repeat(25_000));
        }
        published = publishers.into_iter().map(|one| one.join().expect("no panic")).sum();
    });
    assert!(
        published > 10_000,
        "{published} messages: publishers do not wait for those who are deaf"
    );
    assert!(peak <= MAX_MEMORY * 105 / 100, "{} MiB were resident", peak / MIB);
    drop(clients);
    assert_eq!(text(&control.call(&["GET", "key:1234"])), "1234".repeat(25_000));
}
