//! SLOWLOG, LATENCY and MEMORY: what the server tells of its slow commands and its memory.

mod support;

use resp::Frame;
use support::{Client, Server, assert_same_replies, show, text};

#[test]
fn replies_are_those_of_redis() {
    // A minute: on a busy machine any command may take ten milliseconds, and be in the log.
    let options = ["--slowlog-log-slower-than", "60000000"];
    let (kelvin, redis) = (Server::kelvin(&options), Server::redis(&options));
    assert_same_replies(
        &kelvin,
        &redis,
        &[
            "SLOWLOG",
            "SLOWLOG NOSUCH",
            "SLOWLOG GET",
            "SLOWLOG GET 0",
            "SLOWLOG GET -1",
            "SLOWLOG GET -2",
            "SLOWLOG GET x",
            "SLOWLOG GET 9999999999999999999",
            "SLOWLOG GET 1 2",
            "SLOWLOG LEN",
            "SLOWLOG LEN 1",
            "SLOWLOG RESET",
            "SLOWLOG RESET x",
            "LATENCY",
            "LATENCY NOSUCH",
            "LATENCY LATEST",
            "LATENCY LATEST x",
            "LATENCY HISTORY",
            "LATENCY HISTORY command",
            "LATENCY RESET",
            "LATENCY RESET a b",
            "LATENCY GRAPH",
            "LATENCY GRAPH command",
            "LATENCY HISTOGRAM nosuch",
            "LATENCY HISTOGRAM setrange",
            "MEMORY",
            "MEMORY NOSUCH",
            "MEMORY PURGE",
            "MEMORY PURGE x",
            "MEMORY STATS x",
            "MEMORY DOCTOR x",
            "MEMORY MALLOC-STATS x",
        ],
    );
}

/// The arguments of the slow log's entries, and how many parts an entry has.
fn slow_commands(client: &mut Client) -> Vec<(usize, String)> {
    let Frame::Array(entries) = client.line("SLOWLOG GET -1") else { panic!("an array") };
    let parts = |entry: &Frame| match entry {
        Frame::Array(parts) => (parts.len(), show(&parts[3])),
        other => panic!("{}", show(other)),
    };
    entries.iter().map(parts).collect()
}

#[test]
fn the_slow_log_keeps_what_redis_keeps() {
    let options = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "6"];
    let (kelvin, redis) = (Server::kelvin(&options), Server::redis(&options));
    let (mut ours, mut theirs) = (kelvin.connect(), redis.connect());
    let many: Vec<String> = (0..50).map(|index| format!("key{index}")).collect();
    let many: Vec<&str> = std::iter::once("MGET").chain(many.iter().map(String::as_str)).collect();
    let long = "x".repeat(300);
    for client in [&mut ours, &mut theirs] {
        client.line("SLOWLOG RESET");
        client.line("GET first");
        client.call(&["SET", "k", &long]);
        client.call(&many);
        client.line("MULTI");
        client.line("SET a b");
        client.line("EXEC");
        client.line("CONFIG SET requirepass secret");
        client.line("AUTH secret");
    }
    assert_eq!(slow_commands(&mut ours), slow_commands(&mut theirs));
    assert_eq!(ours.show("SLOWLOG LEN"), theirs.show("SLOWLOG LEN"));
}

#[test]
fn spikes_are_remembered_by_event() {
    // Longer than any other command takes on a busy machine.
    let options = ["--latency-monitor-threshold", "1000", "--enable-debug-command", "yes"];
    let kelvin = Server::kelvin(&options);
    let mut client = kelvin.connect();
    assert!(text(&client.line("LATENCY DOCTOR")).contains("1000 ms or longer"));
    client.line("DEBUG SLEEP 1.1");
    let frame = client.line("LATENCY LATEST");
    let Frame::Array(events) = &frame else { panic!("{}", show(&frame)) };
    let Some(Frame::Array(event)) = events.first() else { panic!("{}", show(&frame)) };
    assert_eq!(text(&event[0]), "command");
    assert!(matches!(event[2], Frame::Integer(1000..)), "{}", show(&frame));
    assert!(client.show("LATENCY HISTORY command").starts_with("[[:"));
    assert!(text(&client.line("LATENCY GRAPH command")).starts_with("command - high "));
    assert!(text(&client.line("LATENCY DOCTOR")).contains("command: 1 spikes"));
    assert_eq!(client.show("LATENCY RESET nosuch command"), ":1");
    assert_eq!(client.show("LATENCY LATEST"), "[]");
}

#[test]
fn histograms_count_every_call() {
    /// The bounds that Redis has, in microseconds.
    const BOUNDS: [i64; 16] =
        [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16909, 33818];
    let kelvin = Server::kelvin(&[]);
    let mut client = kelvin.connect();
    client.line("HELLO 3");
    for _ in 0..20 {
        client.line("SET k v");
        client.line("CLIENT ID");
    }
    for (names, expected) in [("set", "set"), ("client", "client|id"), ("CLIENT|ID", "client|id")] {
        let frame = client.line(&format!("LATENCY HISTOGRAM {names} nosuch"));
        let Frame::Map(commands) = &frame else { panic!("{}", show(&frame)) };
        assert_eq!(commands.len(), 1, "{}", show(&frame));
        assert_eq!(text(&commands[0].0), expected);
        let Frame::Map(pairs) = &commands[0].1 else { panic!("{}", show(&frame)) };
        assert_eq!(pairs[0].1, Frame::Integer(20));
        let Frame::Map(buckets) = &pairs[1].1 else { panic!("{}", show(&frame)) };
        assert_eq!(buckets.last().expect("a bucket").1, Frame::Integer(20));
        for (bound, _) in buckets {
            let Frame::Integer(bound) = bound else { panic!("{}", show(&frame)) };
            let near = |known: &&i64| (**known - bound).abs() <= 4;
            assert!(*bound > BOUNDS[15] || BOUNDS.iter().any(|known| near(&known)), "{bound}");
        }
    }
}

/// The names of a map, with those of maps in it.
fn names(frame: &Frame) -> Vec<String> {
    let Frame::Map(pairs) = frame else { return Vec::new() };
    let own = |(name, value): &(Frame, Frame)| {
        let name = text(name);
        let inner = names(value).into_iter().map(|inner| format!("{name} {inner}"));
        std::iter::once(name.clone()).chain(inner).collect::<Vec<_>>()
    };
    pairs.iter().flat_map(own).collect()
}

#[test]
fn memory_stats_have_the_fields_of_redis() {
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let fields = |server: &Server| {
        let mut client = server.connect();
        for line in ["HELLO 3", "SET a 1", "SELECT 9", "SET b 1", "SET c 1"] {
            client.line(line);
        }
        names(&client.line("MEMORY STATS"))
    };
    assert_eq!(fields(&kelvin), fields(&redis));
}

#[test]
fn memory_is_told_in_words_too() {
    let kelvin = Server::kelvin(&["--maxmemory", "100mb"]);
    let mut client = kelvin.connect();
    assert!(!text(&client.line("MEMORY DOCTOR")).is_empty());
    let report = text(&client.line("MEMORY MALLOC-STATS"));
    assert!(report.contains("Allocated:") && report.contains("curslabs"), "{report}");
    for container in ["MEMORY", "LATENCY", "SLOWLOG"] {
        let help = client.show(&format!("{container} HELP"));
        assert!(help.starts_with(&format!("[+{container} <subcommand>")), "{help}");
    }
}
