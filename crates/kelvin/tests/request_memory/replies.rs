//! Replies: of values on flash and in RAM, to clients that read them and to those that do not.

use super::*;

#[test]
fn cold_values_that_do_not_fit_are_refused_and_those_that_do_are_read() {
    const KEYS: usize = 200_000;
    let server = start("128mb", "512mb");
    fill(&server, KEYS as u64, 1000);
    let mut client = server.connect();
    client.line("TIER DEMOTE ALL");
    let mget = |keys: usize| -> Vec<String> {
        let keys = (1..=keys).map(|key| format!("memtier-{key}"));
        std::iter::once("MGET".to_owned()).chain(keys).collect()
    };
    let call = |client: &mut Client, words: &[String]| {
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_peak(&server, 128);
    assert_eq!(show(&call(&mut client, &mget(KEYS))), refusal(128));
    assert_eq!(client.show("PING"), "+PONG");
    let values = match call(&mut client, &mget(KEYS / 10)) {
        Frame::Array(values) => values,
        other => panic!("{}", show(&other)),
    };
    assert_eq!(values.len(), KEYS / 10);
    assert!(values.iter().all(|value| matches!(value, Frame::Bulk(bytes) if bytes.len() == 1000)));
    assert_peak(&server, 128);
    client.send(&["MULTI"]);
    (1..=KEYS).for_each(|key| client.send(&["GET", &format!("memtier-{key}")]));
    client.send(&["EXEC"]);
    (0..=KEYS).for_each(|_| drop(client.read()));
    let reason = refusal(128).replace("-ERR ", "");
    let aborted = format!("-EXECABORT Transaction discarded because of: {reason}");
    assert_eq!(show(&client.read()), aborted);
    assert_eq!(client.show("PING"), "+PONG");
    assert_peak(&server, 128);
}

#[test]
fn pipelines_of_large_cold_values_do_not_wait_for_each_other() {
    const KEYS: usize = 120;
    const CLIENTS: usize = 4;
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    let value = "v".repeat(300_000);
    (0..KEYS).for_each(|key| drop(client.call(&["SET", &format!("key-{key}"), &value])));
    client.line("TIER DEMOTE ALL");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            let value = &value;
            scope.spawn(move || {
                (0..KEYS).for_each(|key| client.send(&["GET", &format!("key-{key}")]));
                (0..KEYS).for_each(|_| assert!(text(&client.read()) == *value));
            });
        }
    });
    assert_eq!(client.show("PING"), "+PONG");
    assert_peak(&server, 128);
}

#[test]
fn requests_that_do_not_fit_together_take_turns() {
    const KEYS: usize = 8_000;
    const CLIENTS: usize = 6;
    let server = start("128mb", "512mb");
    fill(&server, KEYS as u64, 1000);
    let mut client = server.connect();
    client.line("TIER DEMOTE ALL");
    let keys = (1..=KEYS).map(|key| format!("memtier-{key}"));
    let mget: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            let words: Vec<&str> = mget.iter().map(String::as_str).collect();
            scope.spawn(move || {
                let Frame::Array(values) = client.call(&words) else { panic!("an array") };
                assert_eq!(values.len(), KEYS);
                assert!(values.iter().all(|value| matches!(value, Frame::Bulk(_))));
            });
        }
    });
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 128);
}

#[test]
fn many_large_reads_are_answered_one_after_another() {
    const KEYS: usize = 40_000;
    const CLIENTS: usize = 24;
    let server = start("128mb", "512mb");
    fill(&server, KEYS as u64, 1000);
    let mut client = server.connect();
    client.line("TIER DEMOTE ALL");
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.connect();
            scope.spawn(move || {
                let first = number * 500 + 1;
                let keys = (first..first + KEYS / 2).map(|key| format!("memtier-{key}"));
                let words: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let Frame::Array(values) = client.call(&words) else { panic!("an array") };
                assert_eq!(values.len(), KEYS / 2);
            });
        }
    });
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 128);
}

#[test]
fn a_large_reply_is_right_whatever_its_transaction_learns_of_late() {
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    let names = |from: usize| (from..40).step_by(2).map(|number| format!("key-{number}"));
    let value = |name: &str| name.repeat(100_000 / name.len());
    // Every other one, so that what is fetched late lies in between.
    for name in (0..40).map(|number| format!("key-{number}")) {
        client.call(&["SET", &name, &value(&name)]);
        client.line(&format!("TIER DEMOTE {name}"));
    }
    client.line("MULTI");
    let read: Vec<String> = std::iter::once("MGET".to_owned()).chain(names(0)).collect();
    client.call(&read.iter().map(String::as_str).collect::<Vec<_>>());
    for name in names(1) {
        // That it wants the value, its row in the table does not tell.
        client.call(&["SET", &name, "new", "GET"]);
    }
    let Frame::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    let bulk = |name: String| Frame::Bulk(value(&name).into_bytes());
    assert!(replies[0] == Frame::Array(names(0).map(bulk).collect()));
    assert!(replies[1..].iter().cloned().eq(names(1).map(bulk)));
}

#[test]
fn a_large_reply_stays_whole_when_a_command_behind_it_reads_twice() {
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    let names: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    let value = |name: &str| name.repeat(100_000 / name.len());
    let write = |client: &mut Client, name: &str| {
        client.call(&["SET", name, &value(name)]);
        client.line(&format!("TIER DEMOTE {name}"));
    };
    names.iter().for_each(|name| write(&mut client, name));
    client.line("SELECT 1");
    ["a", "b", "c"].iter().for_each(|name| write(&mut client, name));
    client.line("SELECT 0");
    client.line("MULTI");
    let words: Vec<&str> =
        std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
    client.call(&words);
    // What these keys are is known only when the databases have been exchanged.
    client.line("SWAPDB 0 1");
    client.line("MGET a b c");
    let Frame::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    let values = |names: &[&str]| {
        Frame::Array(names.iter().map(|name| Frame::Bulk(value(name).into_bytes())).collect())
    };
    assert!(replies[0] == values(&words[1..]));
    assert!(replies[2] == values(&["a", "b", "c"]));
    assert_eq!(client.show("PING"), "+PONG");
}

#[test]
fn what_a_request_names_twice_counts_once() {
    // Clients may take 32 MiB.
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    client.call(&["SET", "large", &"v".repeat(18 << 20)]);
    client.line("SET small v");
    client.call(&["SETBIT", "bits", "524287", "1"]);
    client.line("TIER DEMOTE large");
    client.line("TIER DEMOTE bits");
    let Frame::Array(values) = client.call(&["MGET", "large", "small"]) else { panic!("an array") };
    assert_eq!(values.len(), 2);
    client.line("MULTI");
    (0..1000).for_each(|bit| drop(client.line(&format!("SETBIT bits {bit} 1"))));
    let Frame::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    assert_eq!(replies.len(), 1000);
}

#[test]
fn clients_with_large_replies_unwritten_do_not_wait_for_each_other() {
    const LEN: usize = 8 << 20;
    // Clients may take 32 MiB: three replies, and nothing for a request behind one of them.
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    for name in ["a", "b", "c"] {
        client.call(&["SET", name, &name.repeat(LEN)]);
    }
    for _ in 0..3 {
        client.line("TIER DEMOTE ALL");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut client = server.connect();
                scope.spawn(move || {
                    ["a", "b", "c"].iter().for_each(|name| client.send(&["GET", name]));
                    for name in ["a", "b", "c"] {
                        let Frame::Bulk(value) = client.read() else { panic!("a value") };
                        assert!(value == name.repeat(LEN).into_bytes());
                    }
                });
            }
        });
    }
    assert_eq!(info(&mut client, "evicted_clients"), 0);
}

#[test]
fn large_replies_that_wait_for_their_turn_keep_to_maxmemory_however_full_it_is() {
    const LEN: usize = 8 << 20;
    let server = start("128mb", "512mb");
    fill(&server, 130_000, 900);
    let mut client = server.connect();
    let names = ["a", "b", "c"];
    for name in names {
        let value = name.repeat(LEN);
        let write = |_| show(&client.call(&["SET", name, &value]));
        assert!((0..RETRIES_MAX).map(write).any(|reply| reply == "+OK"));
    }
    let mut answered = 0;
    for _ in 0..12 {
        names.iter().for_each(|name| drop(client.line(&format!("TIER DEMOTE {name}"))));
        let read = |mut client: Client| {
            names.iter().for_each(|name| client.send(&["GET", name]));
            let mut is_value = |name: &&str| match client.read() {
                Frame::Bulk(value) => {
                    assert!(value == name.repeat(LEN).into_bytes());
                    true
                }
                refused => {
                    assert!(show(&refused).contains("needs more memory"), "{}", show(&refused));
                    false
                }
            };
            names.iter().filter(|name| is_value(name)).count()
        };
        std::thread::scope(|scope| {
            let readers = [(); 4].map(|()| server.connect());
            let readers = readers.map(|client| scope.spawn(|| read(client)));
            answered += readers.into_iter().map(|one| one.join().expect("it ends")).sum::<usize>();
        });
    }
    assert!(answered > 0);
    // Each is let have its reply only when that fits.
    assert!(peak(&server) <= 128 * MIB * 51 / 50, "{}", peak(&server));
}

#[test]
fn a_client_takes_its_large_replies_one_after_another() {
    const LEN: usize = 24 << 20;
    // Clients may take 32 MiB: one such reply.
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    client.call(&["SET", "a", &"v".repeat(LEN)]);
    for demote in [false, true] {
        if demote {
            client.line("TIER DEMOTE a");
        }
        (0..6).for_each(|_| client.send(&["GET", "a"]));
        for _ in 0..6 {
            let Frame::Bulk(value) = client.read() else { panic!("a value") };
            assert_eq!(value.len(), LEN);
        }
    }
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 128);
}

#[test]
fn replies_of_values_in_ram_are_bounded_too() {
    // Without flash all of it is in RAM.
    let server = Server::kelvin(&["--workers", "1", "--maxmemory", "200mb"]);
    let mut client = server.connect();
    let value = "v".repeat(4_000_000);
    let keys: Vec<String> = (0..14).map(|key| format!("key-{key}")).collect();
    for key in &keys {
        assert_eq!(show(&client.call(&["SET", key, &value])), "+OK");
    }
    let mget = |count: usize| -> Vec<&str> {
        std::iter::once("MGET").chain(keys[..count].iter().map(String::as_str)).collect()
    };
    assert_eq!(show(&client.call(&mget(14))), refusal(200), "56 MB are more than 50 MiB");
    let Frame::Array(values) = client.call(&mget(12)) else { panic!("an array") };
    assert!(values.iter().all(|one| text(one) == value));
    client.line("MULTI");
    keys.iter().for_each(|key| drop(client.call(&["GET", key])));
    let reason = refusal(200).replace("-ERR ", "");
    let aborted = format!("-EXECABORT Transaction discarded because of: {reason}");
    assert_eq!(client.show("EXEC"), aborted);
    // What a command reads and does not send is no reply.
    client.line("MULTI");
    keys.iter().for_each(|key| drop(client.call(&["GETBIT", key, "1"])));
    let Frame::Array(bits) = client.line("EXEC") else { panic!("an array") };
    assert!(bits.iter().all(|bit| show(bit) == ":1"));
    assert_peak(&server, 200);
}

#[test]
fn names_of_keys_are_listed_only_if_they_fit() {
    const KEYS: u64 = 1_200_000;
    const CLIENTS: usize = 4;
    let server = start("96mb", "512mb");
    fill(&server, KEYS, 40);
    let list = |line: &str, names: u64| {
        let mut client = server.connect();
        let reply = client.show(line);
        let is_listed = reply.matches("memtier-").count() as u64 == names;
        assert!(is_listed || reply == refusal(96), "{line}: {:.200}", reply);
        is_listed
    };
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                assert!(!list("KEYS *", KEYS), "it does not fit");
                assert!(list("KEYS memtier-2*", 111_111));
                assert!(list("SCAN 0 COUNT 100000", 100_000));
            });
        }
    });
    assert_peak(&server, 96);
}

/// What each needs first, its reply, is a part of what it needs then, and the rest must be there when it asks.
#[test]
fn cold_collections_that_are_read_from_many_sides_take_turns() {
    const CLIENTS: usize = 6;
    for (command, line, width) in [
        ("ZADD", "ZRANGE s 0 -1 WITHSCORES", 60),
        ("SADD", "SORT s ALPHA", 60),
        ("SADD", "SUNION s", 30),
    ] {
        let element = |number: usize| match command {
            "ZADD" => vec![number.to_string(), format!("{number:0width$}")],
            _ => vec![format!("{number:0width$}")],
        };
        let server = start_with(command, element);
        fill(&server, 250_000, 100);
        server.connect().line("TIER DEMOTE ALL");
        let read = || {
            let reply = server.connect().show(line);
            let is_read = reply.len() > COPIED * width;
            assert!(is_read || reply == OOM || reply == refusal(64), "{line}: {reply:.200}");
            is_read
        };
        let read_count = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(read)).collect();
            readers.into_iter().map(|reader| reader.join().expect("a reader")).collect::<Vec<_>>()
        });
        let read_count = read_count.into_iter().filter(|is_read| *is_read).count();
        assert!(read_count >= CLIENTS * 2 / 3, "{line}: {read_count} of {CLIENTS}");
        assert_peak(&server, 64);
    }
}

#[test]
fn no_request_asks_for_more_memory_than_there_is() {
    let server = Server::kelvin(&["--workers", "1"]);
    let mut client = server.connect();
    for line in ["HSET h f v", "SADD s a", "ZADD z 1 a"] {
        assert_eq!(client.show(line), ":1");
    }
    for count in ["-1000000000000", "-4611686018427387903", "-9223372036854775807"] {
        for (command, option) in [
            ("HRANDFIELD h", ""),
            ("HRANDFIELD h", " WITHVALUES"),
            ("SRANDMEMBER s", ""),
            ("ZRANDMEMBER z", ""),
            ("ZRANDMEMBER z", " WITHSCORES"),
        ] {
            let reply = client.show(&format!("{command} {count}{option}"));
            let is_huge = count == "-9223372036854775807" && !option.is_empty();
            let expected = if is_huge { "-ERR value is out of range" } else { OOM };
            assert_eq!(reply, expected, "{command} {count}{option}");
        }
    }
    assert_eq!(client.show("HRANDFIELD h -2"), "[$f $f]");
    assert!(peak(&server) < 200 * MIB, "{} MiB", peak(&server) / MIB);
}

/// A share of no `maxmemory` bounds nothing, as with Redis.
#[test]
fn clients_have_no_share_of_no_maxmemory() {
    let server = Server::kelvin(&["--workers", "1", "--maxmemory-clients", "5%"]);
    let mut client = server.connect();
    assert_eq!(show(&client.call(&["SET", "k", &"v".repeat(3_000_000)])), "+OK");
    assert_eq!(text(&client.line("GET k")).len(), 3_000_000);
}

/// The same of clients that never read what they have asked for.
#[test]
fn replies_that_nobody_reads_hold_nobody_up_for_long() {
    const ELEMENTS: usize = 60_000;
    const STALLED: usize = 30;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    push_elements(&mut client, "list", ELEMENTS);
    let begin = |_| {
        let mut client = server.connect();
        (0..12).for_each(|_| client.send(&["LRANGE", "list", "0", "-1"]));
        client
    };
    let stalled: Vec<Client> = (0..STALLED).map(begin).collect();
    // What their sockets do not take is in the way of others.
    wait_for(&mut client, "tier_ram_clients_bytes", |value| value >= 12 * MIB);
    std::thread::sleep(Duration::from_millis(300));
    let Frame::Array(elements) = client.line("LRANGE list 0 -1") else { panic!("an array") };
    assert_eq!(elements.len(), ELEMENTS);
    assert_peak(&server, 64);
    drop(stalled);
}

/// Many small replies, of which none asks for memory by itself.
#[test]
fn small_replies_that_nobody_reads_stay_within_maxmemory() {
    for bytes in [1_000, 10_000] {
        leave_replies_unread(&start("64mb", "512mb"), bytes);
    }
}

/// The same while they wait for the journal, too.
#[test]
fn small_replies_that_nobody_reads_and_are_not_durable_stay_within_maxmemory() {
    let durable = ["--maxmemory", "64mb", "--appendonly", "yes", "--appendfsync", "always"];
    for bytes in [1_000, 10_000] {
        let options = [&OPTIONS[..], &durable].concat();
        leave_replies_unread(&Server::kelvin_with_flash("512mb", &options), bytes);
    }
}

/// Writes, and reads of a value of so many bytes, by one client that reads when it has sent all, and by one that never
/// does.
fn leave_replies_unread(server: &Server, bytes: usize) {
    const REPLIES_BYTES: usize = 4_000_000;
    const UNREAD_TIME: Duration = Duration::from_secs(2);
    let replies = REPLIES_BYTES / bytes;
    fill(server, 250_000, 200);
    let mut client = server.connect();
    let value = "v".repeat(bytes);
    client.call(&["SET", "k", &value]);
    let mut late = server.connect();
    for _ in 0..replies {
        late.send(&["INCR", "late"]);
        late.send(&["GET", "k"]);
    }
    let mut deaf = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    deaf.set_write_timeout(Some(Duration::from_millis(10))).expect("a timeout");
    let requests = "INCR deaf\r\nGET k\r\n".repeat(500);
    let deadline = Instant::now() + UNREAD_TIME;
    let is_over = |error: &io::Error| error.kind() != io::ErrorKind::WouldBlock;
    while Instant::now() < deadline {
        // Half a request may have been sent: what is answered does not matter.
        if deaf.write(requests.as_bytes()).is_err_and(|error| is_over(&error)) {
            break;
        }
        assert_eq!(client.show("SET memtier-1 w"), "+OK");
    }
    for count in 1..=replies {
        assert_eq!(show(&late.read()), format!(":{count}"));
        assert!(text(&late.read()) == value);
    }
    assert_peak(server, 64);
}
