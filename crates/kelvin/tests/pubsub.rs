//! Publish and subscribe: replies compared with those of a real redis-server, and messages across workers.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use resp::{Frame, Reply};
use support::{Client, Server, show, text};

/// What a script ends with: its answer is the last one of interest.
const END: &str = "the end";
/// No message comes that late.
const SILENCE: Duration = Duration::from_millis(100);

/// Everything that a new connection is sent when it sends these lines.
fn run(server: &Server, lines: &[&str]) -> Vec<String> {
    let mut client = server.connect();
    let mut requests = Reply::default();
    for words in lines.iter().map(|line| line.split(' ').collect()).chain([vec!["PING", END]]) {
        requests.array(words.len());
        words.iter().for_each(|word| requests.bulk(word.as_bytes()));
    }
    // At once: one of them may end the connection.
    client.write(requests.as_slice());
    let mut shown = Vec::new();
    while let Some(frame) = client.try_read() {
        let frame = show(&frame);
        if frame.contains(END) {
            break;
        }
        shown.push(frame);
    }
    shown
}

/// A client that listens, and has been told so.
fn subscriber(server: &Server, command: &str, name: &str) -> Client {
    let mut client = server.connect();
    client.call(&[command, name]);
    client
}

/// A field of INFO, or of a line of CLIENT LIST.
fn field(text: &str, name: &str) -> String {
    let mut fields = text.split_whitespace();
    let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix([':', '=']));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn what_a_subscriber_is_sent_is_what_redis_sends() {
    let scripts: &[&[&str]] = &[
        &["SUBSCRIBE a b a", "UNSUBSCRIBE b", "UNSUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE x y"],
        &["PSUBSCRIBE p* q*", "SUBSCRIBE c", "PUNSUBSCRIBE p*", "PUNSUBSCRIBE", "UNSUBSCRIBE"],
        &["PUNSUBSCRIBE", "PUNSUBSCRIBE z", "SUNSUBSCRIBE", "SUNSUBSCRIBE q", "PING", "PING x"],
        &["SSUBSCRIBE s1", "SUBSCRIBE c", "SSUBSCRIBE s2 s2", "SUNSUBSCRIBE s1", "SUNSUBSCRIBE"],
        &["SUBSCRIBE a", "PING", "PING x", "PING x y", "GET x", "CLIENT GETNAME", "MULTI", "EXEC"],
        &["SUBSCRIBE a", "SUBSCRIBE", "PUBLISH no b", "PUBSUB NUMPAT", "NOSUCH", "CONFIG"],
        &["SUBSCRIBE a", "HELLO 9", "CLIENT NOSUCH", "DISCARD", "WATCH x", "PING", "QUIT", "PING"],
        &["PSUBSCRIBE a", "GET x", "PUNSUBSCRIBE", "GET x"],
        &["SSUBSCRIBE a", "GET x", "RESET", "GET x", "PUBSUB CHANNELS", "PUBSUB SHARDCHANNELS"],
        &["MULTI", "SUBSCRIBE a b", "PING", "PSUBSCRIBE c", "UNSUBSCRIBE a", "EXEC", "PING"],
        &["MULTI", "SSUBSCRIBE a", "PUBLISH no 1", "SPUBLISH no 1", "SUNSUBSCRIBE", "EXEC", "PING"],
        &["MULTI", "SUBSCRIBE a", "EXEC", "MULTI", "EXEC", "UNSUBSCRIBE a", "MULTI", "EXEC"],
        &["CLIENT REPLY OFF", "SUBSCRIBE a", "PING", "GET x", "UNSUBSCRIBE a", "CLIENT REPLY ON"],
        &["CLIENT REPLY SKIP", "SUBSCRIBE a", "PING"],
        &["CLIENT REPLY OFF", "PSUBSCRIBE a", "RESET", "PING"],
        &["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "PUBLISH a", "SPUBLISH a", "PUBLISH a b c"],
        &["PUBLISH a b", "SPUBLISH a b", "PUBSUB", "PUBSUB NOSUCH", "PUBSUB HELP x"],
        &["PUBSUB CHANNELS", "PUBSUB CHANNELS *", "PUBSUB CHANNELS a b", "PUBSUB SHARDCHANNELS"],
        &["PUBSUB SHARDCHANNELS a b", "PUBSUB NUMSUB", "PUBSUB NUMSUB a b", "PUBSUB NUMPAT x"],
        &["PUBSUB SHARDNUMSUB", "PUBSUB SHARDNUMSUB a", "PUBSUB NUMPAT"],
        &["COMMAND GETKEYS SPUBLISH a b", "COMMAND GETKEYSANDFLAGS SSUBSCRIBE a b"],
    ];
    let redis = Server::redis(&[]);
    for workers in ["2", "4"] {
        let kelvin = Server::kelvin(&["--workers", workers]);
        for script in scripts {
            assert_eq!(run(&kelvin, script), run(&redis, script), "{script:?}");
            let script = [&["HELLO 3"], *script].concat();
            let [ours, theirs] = [&kelvin, &redis].map(|server| run(server, &script));
            // The first tells the number of the connection.
            assert_eq!(ours[1..], theirs[1..], "{script:?}");
        }
        let script = ["HELLO 3", "SUBSCRIBE b", "PING", "HELLO 2", "PING", "GET a"];
        let [ours, theirs] = [&kelvin, &redis].map(|server| run(server, &script));
        assert_eq!((&ours[1..3], &ours[4..]), (&theirs[1..3], &theirs[4..]));
    }
}

#[test]
fn messages_look_as_those_of_redis() {
    let servers = [Server::kelvin(&["--workers", "2"]), Server::redis(&[])];
    let [ours, theirs] = servers.map(|server| {
        let mut shown = Vec::new();
        for hello in ["2", "3"] {
            let mut listeners: Vec<Client> = (0..4).map(|_| server.connect()).collect();
            for listener in &mut listeners {
                listener.call(&["HELLO", hello]);
                for line in
                    ["SUBSCRIBE news", "PSUBSCRIBE n*", "PSUBSCRIBE [^x]ew?", "SSUBSCRIBE news"]
                {
                    listener.line(line);
                }
            }
            let mut publisher = server.connect();
            let empty: &[&[u8]] = &[b"PUBLISH", b"", b""];
            publisher.send_bytes(empty);
            shown.push(show(&publisher.read()));
            for (channel, message) in
                [("news", "hello"), ("new", ""), ("news", "\0\r\n"), ("xews", "x")]
            {
                shown.push(show(&publisher.call(&["PUBLISH", channel, message])));
                shown.push(show(&publisher.call(&["SPUBLISH", channel, message])));
            }
            for listener in &mut listeners {
                listener.send(&["PUNSUBSCRIBE", "n*"]);
                let mut messages = Vec::new();
                while let frame = show(&listener.read())
                    && !frame.contains("punsubscribe")
                {
                    messages.push(frame);
                }
                // Of one message those by patterns come in no order.
                messages.sort();
                shown.extend(messages);
            }
        }
        shown
    });
    assert_eq!(ours, theirs);
}

#[test]
fn who_listens_to_what_is_told_as_redis_tells_it() {
    let servers = [Server::kelvin(&["--workers", "2"]), Server::redis_on_port(&[])];
    let [ours, theirs] = servers.map(|server| {
        let mut shown = Vec::new();
        let one = subscriber(&server, "SUBSCRIBE", "a");
        let mut other = subscriber(&server, "SUBSCRIBE", "a");
        other.line("PSUBSCRIBE p* q*");
        other.read();
        other.line("SSUBSCRIBE s");
        let pattern = subscriber(&server, "PSUBSCRIBE", "p*");
        let mut control = server.connect();
        for line in [
            "PUBSUB CHANNELS",
            "PUBSUB CHANNELS b*",
            "PUBSUB NUMSUB a b s",
            "PUBSUB NUMPAT",
            "PUBSUB SHARDCHANNELS",
            "PUBSUB SHARDNUMSUB s a",
        ] {
            shown.push(control.show(line));
        }
        let info = text(&control.line("INFO stats"));
        for name in ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"] {
            shown.push(field(&info, name));
        }
        let list = text(&control.line("CLIENT LIST"));
        for line in list.lines() {
            shown.extend(["flags", "sub", "psub", "ssub"].map(|name| field(line, name)));
        }
        let pubsub = text(&control.line("CLIENT LIST TYPE pubsub"));
        let normal = text(&control.line("CLIENT LIST TYPE normal"));
        shown.push(format!("{} {}", pubsub.lines().count(), normal.lines().count()));
        shown.push(control.show("CLIENT KILL TYPE pubsub"));
        for mut client in [one, other, pattern] {
            assert!(client.try_read().is_none(), "it is closed");
        }
        while control.show("PUBSUB NUMSUB a") != "[$a :0]" {}
        shown.push(control.show("PUBSUB NUMPAT"));
        shown.push(control.show("PUBLISH a x"));
        shown
    });
    assert_eq!(ours, theirs);
}

/// Messages of a subscriber up to the end that each publisher sends, as publisher and number.
fn receive_all(client: &mut Client, publishers: usize, each: usize) -> Vec<(String, usize)> {
    let mut received = Vec::new();
    while received.len() < publishers * each {
        let (Frame::Array(parts) | Frame::Push(parts)) = client.read() else { panic!("a message") };
        let message = text(parts.last().expect("a message has parts"));
        let (publisher, number) = message.split_once(' ').expect("two words");
        received.push((publisher.to_owned(), number.parse().expect("a number")));
    }
    received
}

#[test]
fn nothing_is_lost_or_out_of_order_across_workers() {
    /// Messages of each publisher.
    const EACH: usize = 3000;
    const PUBLISHERS: usize = 4;
    for workers in ["2", "4"] {
        let kelvin = Server::kelvin(&["--workers", workers]);
        let mut listeners: Vec<Client> = Vec::new();
        for index in 0..8 {
            let (command, name) =
                [("SUBSCRIBE", "all"), ("PSUBSCRIBE", "a*")][usize::from(index >= 4)];
            let mut client = kelvin.connect();
            client.call(&["HELLO", if index % 2 == 0 { "2" } else { "3" }]);
            client.call(&[command, name]);
            listeners.push(client);
        }
        let received: Vec<Vec<(String, usize)>> = std::thread::scope(|scope| {
            let receive = |mut client: Client| {
                scope.spawn(move || receive_all(&mut client, PUBLISHERS, EACH))
            };
            let receivers: Vec<_> = listeners.drain(..).map(receive).collect();
            for publisher in 0..PUBLISHERS {
                let mut client = kelvin.connect();
                scope.spawn(move || {
                    for first in (0..EACH).step_by(50) {
                        for number in first..first + 50 {
                            let message = format!("{publisher} {number}");
                            client.send(&["PUBLISH", "all", &message]);
                        }
                        (0..50).for_each(|_| assert_eq!(client.read(), Frame::Integer(8)));
                    }
                });
            }
            receivers.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        for one in &received {
            assert!(*one == received[0], "all see the messages of a channel in one order");
        }
        let mut numbers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (publisher, number) in &received[0] {
            numbers.entry(publisher).or_default().push(*number);
        }
        assert_eq!(numbers.len(), PUBLISHERS);
        assert!(numbers.values().all(|numbers| numbers.iter().copied().eq(0..EACH)));
    }
}

#[test]
fn pushes_come_between_replies() {
    const REQUESTS: usize = 4000;
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let large = "v".repeat(3000);
    let mut both = kelvin.connect();
    both.call(&["HELLO", "3"]);
    both.call(&["SUBSCRIBE", "news"]);
    both.call(&["SET", "large", &large]);
    std::thread::scope(|scope| {
        let mut publisher = kelvin.connect();
        scope.spawn(move || {
            for number in 0..REQUESTS {
                let message = number.to_string();
                assert_eq!(publisher.call(&["PUBLISH", "news", &message]), Frame::Integer(1));
            }
        });
        let (mut messages, mut replies) = (0, 0);
        for number in 0..REQUESTS / 20 {
            for request in 0..20 {
                match request % 4 {
                    0 => both.send(&["SET", "key", &number.to_string()]),
                    1 => both.send(&["GET", "large"]),
                    2 => both.send(&["PUBLISH", "other", "x"]),
                    _ => both.send(&["GET", "key"]),
                }
            }
            let mut answered = 0;
            while answered < 20 {
                match both.read() {
                    Frame::Push(parts) => {
                        assert_eq!(text(&parts[2]), messages.to_string());
                        messages += 1;
                        continue;
                    }
                    Frame::Simple(ok) => assert_eq!((answered % 4, &ok[..]), (0, &b"OK"[..])),
                    Frame::Bulk(bytes) if answered % 4 == 1 => assert_eq!(bytes.len(), 3000),
                    Frame::Integer(count) => assert_eq!((answered % 4, count), (2, 0)),
                    Frame::Bulk(bytes) => assert_eq!(bytes, number.to_string().as_bytes()),
                    other => panic!("{}", show(&other)),
                }
                answered += 1;
                replies += 1;
            }
        }
        while messages < REQUESTS {
            let Frame::Push(parts) = both.read() else { panic!("all has been answered") };
            assert_eq!(text(&parts[2]), messages.to_string());
            messages += 1;
        }
        assert_eq!(replies, REQUESTS);
    });
}

#[test]
fn a_client_that_publishes_to_itself_is_answered_first() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let shown = run(
        &kelvin,
        &[
            "HELLO 3",
            "SUBSCRIBE a",
            "PUBLISH a 1",
            "GET x",
            "MULTI",
            "PUBLISH a 2",
            "GET x",
            "EXEC",
        ],
    );
    assert_eq!(
        shown[1..],
        [
            ">[$subscribe $a :1]",
            ":1",
            ">[$message $a $1]",
            "_",
            "+OK",
            "+QUEUED",
            "+QUEUED",
            "[:1 _]",
            ">[$message $a $2]",
        ]
    );
    // A channel of its own: the connection before may not have ended yet.
    let lines = ["HELLO 3", "SUBSCRIBE b", "PUBLISH b 1", "UNSUBSCRIBE b", "GET x"];
    let shown = run(&kelvin, &lines);
    let expected = [":1", ">[$message $b $1]", ">[$unsubscribe $b :0]", "_"];
    assert_eq!(shown[2..], expected, "none comes behind the end of the subscription");
    let lines =
        ["HELLO 3", "SUBSCRIBE a", "CLIENT REPLY OFF", "PUBLISH a 1", "PUBLISH a 2", "RESET"];
    let shown = run(&kelvin, &lines);
    assert_eq!(shown[2..], [">[$message $a $1]", ">[$message $a $2]", "+RESET"]);
}

#[test]
fn no_message_comes_outside_of_its_subscription() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let mut listener = kelvin.connect();
    // On the other worker, whichever that is, and on the same.
    let mut publishers = [kelvin.connect(), kelvin.connect()];
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for publisher in &mut publishers {
            threads.push(scope.spawn(|| {
                let mut receivers = 0;
                for number in 0..20_000 {
                    let reply = publisher.call(&["PUBLISH", "a", &number.to_string()]);
                    let Frame::Integer(count) = reply else { panic!("{}", show(&reply)) };
                    receivers += count;
                }
                receivers
            }));
        }
        let mut received = 0;
        while !threads.iter().all(|thread| thread.is_finished()) {
            listener.send(&["SUBSCRIBE", "a"]);
            listener.send(&["UNSUBSCRIBE", "a"]);
            let mut frames = vec![show(&listener.read())];
            while !frames.last().is_some_and(|last| last.starts_with("[$unsubscribe")) {
                frames.push(show(&listener.read()));
            }
            assert_eq!(frames[0], "[$subscribe $a :1]");
            let count = frames.len() - 2;
            assert!(frames[1..=count].iter().all(|frame| frame.starts_with("[$message")));
            received += count;
        }
        let sent: i64 = threads.into_iter().map(|one| one.join().expect("no panic")).sum();
        assert_eq!(received as i64, sent, "all that were given came");
    });
    assert!(listener.read_within(SILENCE).is_none());
}

#[test]
fn messages_come_while_a_request_waits() {
    let kelvin = Server::kelvin(&["--workers", "2"]);
    let mut listener = kelvin.connect();
    listener.call(&["HELLO", "3"]);
    listener.call(&["SUBSCRIBE", "a"]);
    let mut control = kelvin.connect();
    control.call(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    listener.send(&["SET", "k", "v"]);
    assert!(listener.read_within(SILENCE).is_none(), "it waits");
    assert_eq!(control.show("PUBLISH a hello"), ":1");
    assert_eq!(show(&listener.read()), ">[$message $a $hello]");
    control.call(&["CLIENT", "UNPAUSE"]);
    assert_eq!(show(&listener.read()), "+OK");
}
