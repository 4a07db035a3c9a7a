//! What the commands of a transaction take together.

use super::*;

#[test]
fn what_a_transaction_queues_is_its_client_s_and_bounded() {
    let server = Server::kelvin(&["--workers", "1", "--maxmemory", "100mb"]);
    let mut client = server.connect();
    client.line("MULTI");
    let value = "v".repeat(10_000_000);
    assert_eq!(show(&client.call(&["SET", "a", &value])), "+QUEUED");
    let mut control = server.connect();
    let used = info(&mut control, "mem_clients_normal");
    assert!(used > 10_000_000, "{used} bytes of clients");
    assert_eq!(show(&client.call(&["SET", "b", &value])), "+QUEUED");
    assert_eq!(show(&client.call(&["SET", "c", &value])), refusal(100));
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(client.show("EXEC"), aborted);
    assert_eq!(client.show("GET a"), "_");
    assert_peak(&server, 100);
}

/// Nothing leaves RAM while it runs.
#[test]
fn what_a_transaction_brings_into_ram_counts_together() {
    const COPIES: usize = 30;
    let server = start_with("SADD", |number| vec![member(number)]);
    let mut client = server.connect();
    for command in ["COPY s {t}NUMBER", "RENAME {t}NUMBER {u}NUMBER"] {
        client.line("TIER DEMOTE ALL");
        client.line("MULTI");
        for number in 0..COPIES {
            client.line(&command.replace("NUMBER", &number.to_string()));
        }
        let reply = client.show("EXEC");
        let refused = reply.matches("request needs more memory").count();
        assert!((1..COPIES).contains(&refused), "{command}: {reply}");
        assert_peak(&server, 64);
    }
}

/// What the commands of a transaction need of collections is reserved before any of them runs: leaves on flash,
/// replies, copies.
#[test]
fn transactions_on_cold_collections_take_turns() {
    const ELEMENTS: usize = 60_000;
    const CLIENTS: usize = 8;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    fill(&server, 20_000, 1000);
    push_elements(&mut client, "list", ELEMENTS);
    push_elements(&mut client, "set", ELEMENTS);
    let reads = ["LRANGE list 0 -1", "INCR runs", "SMEMBERS set"].map(str::to_owned).to_vec();
    let copies =
        |number: usize| (0..2).map(|copy| format!("COPY list c{number}:{copy} REPLACE")).collect();
    for round in 0..4 {
        client.line("TIER DEMOTE ALL");
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let lines: Vec<String> = if round < 2 { reads.clone() } else { copies(number) };
                let mut client = server.connect();
                scope.spawn(move || {
                    client.line("MULTI");
                    lines.iter().for_each(|line| assert_eq!(client.show(line), "+QUEUED"));
                    let Frame::Array(replies) = client.line("EXEC") else { panic!("an array") };
                    match &replies[..] {
                        [Frame::Array(list), Frame::Integer(_), Frame::Array(set)] => {
                            assert_eq!((list.len(), set.len()), (ELEMENTS, ELEMENTS));
                        }
                        copied => assert!(copied.iter().all(|reply| show(reply) == ":1")),
                    }
                });
            }
        });
    }
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_eq!(client.show("GET runs"), format!("${}", 2 * CLIENTS));
    assert_peak(&server, 64);
}

/// The commands of a transaction are run to see what they need, and that counts for nothing: neither in the
/// statistics nor in notifications.
#[test]
fn what_a_transaction_reads_of_large_collections_counts_once() {
    const LINES: [&str; 4] =
        ["LRANGE list 0 -1", "SUNION missing set", "LPOS list nothing", "SUNION missing list"];
    const KEYMISS: &str = "__keyevent@0__:keymiss";
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    push_elements(&mut client, "list", 10_000);
    push_elements(&mut client, "set", 10_000);
    client.line("CONFIG SET notify-keyspace-events Em");
    let mut listener = server.connect();
    listener.line(&format!("SUBSCRIBE {KEYMISS}"));
    let mut seen = Vec::new();
    for begin_and_end in [None, Some(["MULTI", "EXEC"])] {
        client.line("TIER DEMOTE ALL");
        client.line("CONFIG RESETSTAT");
        begin_and_end.iter().for_each(|[begin, _]| drop(client.line(begin)));
        LINES.iter().for_each(|line| drop(client.line(line)));
        begin_and_end.iter().for_each(|[_, end]| drop(client.line(end)));
        let counts = ["keyspace_hits", "keyspace_misses"].map(|name| info(&mut client, name));
        client.line(&format!("PUBLISH {KEYMISS} end"));
        let mut messages = 0;
        while !show(&listener.read()).ends_with("$end]") {
            messages += 1;
        }
        seen.push((counts, messages));
    }
    assert_eq!(seen[0], seen[1], "by themselves, and in a transaction");
    assert_eq!(seen[0].1, 2, "one for each that is missing");
}

/// Leaves that several commands read are needed once, and replies that are short need no memory.
#[test]
fn commands_that_read_the_same_collection_need_it_once() {
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    push_elements(&mut client, "list", 80_000);
    push_elements(&mut client, "set", 40_000);
    for line in ["LPOS list nothing", "SINTERCARD 2 set set"] {
        client.line("TIER DEMOTE ALL");
        client.line("MULTI");
        (0..20).for_each(|_| drop(client.line(line)));
        let Frame::Array(replies) = client.line("EXEC") else { panic!("an array") };
        assert!(replies.iter().all(|reply| !show(reply).starts_with('-')), "{line}");
    }
    assert_peak(&server, 64);
}
