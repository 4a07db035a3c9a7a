//! DEBUG DIGEST and DEBUG DIGEST-VALUE: the digests of a real redis-server, wherever values are.

mod support;

use std::fs::OpenOptions;

use resp::Frame;
use support::{Client, Server, assert_same_replies, show, text};

const ALLOWED: [&str; 2] = ["--enable-debug-command", "yes"];

#[test]
fn replies_are_those_of_redis() {
    assert_same_replies(
        &Server::kelvin(&ALLOWED),
        &Server::redis(&ALLOWED),
        &[
            "FLUSHALL",
            "DEBUG DIGEST",
            "DEBUG DIGEST x",
            "DEBUG DIGEST-VALUE",
            "debug digest-value missing",
            "SET foo bar",
            "debug digest",
            "DEBUG DIGEST-VALUE foo missing foo",
            // Numbers count as the text that clients see, in any encoding.
            "SET number 42",
            "SET text 4",
            "APPEND text 2",
            "SET float 1.50",
            "INCRBYFLOAT float 1",
            "SET empty ''",
            "SET '' 'the empty name'",
            "SET '\\x00\\xff' '\\x00\\xff\\r\\n'",
            "SETRANGE long 100000 x",
            "DEBUG DIGEST-VALUE number text float empty '' '\\x00\\xff' long",
            "DEBUG DIGEST",
            // That a key expires counts, not when.
            "EXPIRE foo 100000",
            "DEBUG DIGEST-VALUE foo",
            "DEBUG DIGEST",
            "EXPIRE foo 200000",
            "DEBUG DIGEST",
            "PERSIST foo",
            "DEBUG DIGEST",
            // The database of a key counts, its table does not.
            "MOVE foo 15",
            "DEBUG DIGEST",
            "DEBUG DIGEST-VALUE foo",
            "SELECT 15",
            "DEBUG DIGEST-VALUE foo number",
            "SWAPDB 0 3",
            "DEBUG DIGEST",
            "SWAPDB 3 15",
            "DEBUG DIGEST",
            "DEBUG DIGEST-VALUE foo number",
            "SELECT 0",
            // A key whose time has come counts until somebody meets it.
            "DEBUG SET-ACTIVE-EXPIRE 0",
            "SET brief v PX 1",
            "DEBUG SLEEP 0.01",
            "DEBUG DIGEST",
            "DEBUG DIGEST-VALUE brief",
            "EXISTS brief",
            "DEBUG DIGEST",
            "DEBUG DIGEST-VALUE brief",
        ],
    );
}

#[test]
fn a_transaction_holds_slots_and_is_refused() {
    let server = Server::kelvin(&ALLOWED);
    let mut client = server.connect();
    for line in ["MULTI", "DEBUG DIGEST", "DEBUG DIGEST-VALUE k", "PING"] {
        client.line(line);
    }
    let refused = "-ERR this subcommand of DEBUG is not allowed in a transaction";
    assert_eq!(client.show("EXEC"), format!("[{refused} {refused} +PONG]"));
    assert_eq!(client.show("DEBUG DIGEST"), format!("+{}", "0".repeat(40)));
}

/// Kelvin with flash and Redis, with a connection to each.
struct Pair {
    kelvin: Server,
    _redis: Server,
    clients: [Client; 2],
}

impl Pair {
    fn start(options: &[&str]) -> Pair {
        let options: Vec<&str> = ALLOWED.iter().chain(options).copied().collect();
        let kelvin = Server::kelvin_with_flash("256mb", &options);
        let redis = Server::redis(&ALLOWED);
        let clients = [kelvin.connect(), redis.connect()];
        Pair { kelvin, _redis: redis, clients }
    }

    fn send(&mut self, words: &[&[u8]]) {
        self.clients.iter_mut().for_each(|client| client.send_bytes(words));
    }

    /// Reads the replies to `count` requests, none of which may be an error.
    fn read(&mut self, count: usize) {
        for client in &mut self.clients {
            for _ in 0..count {
                let reply = client.read();
                assert!(!matches!(reply, Frame::Error(_)), "{}", show(&reply));
            }
        }
    }

    /// The reply of both.
    fn same(&mut self, words: &[&str]) -> Frame {
        let [kelvin, redis] = self.clients.each_mut().map(|client| client.call(words));
        assert_eq!(show(&kelvin), show(&redis), "{}", words[..2].join(" "));
        kelvin
    }

    fn demote_all(&mut self) {
        let reply = self.clients[0].line("TIER DEMOTE ALL");
        assert!(matches!(reply, Frame::Integer(1..)), "{}", show(&reply));
    }
}

fn number(client: &mut Client, name: &str) -> u64 {
    let info = text(&client.call(&["INFO", "tiering"]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Bytes that do not compress, different for each number.
fn noise(number: usize, len: usize) -> Vec<u8> {
    let mut state = number as u64;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect()
}

#[test]
fn a_data_set_on_flash_has_the_digest_it_has_in_ram() {
    // More than one step passes, in one slot and in all databases, and more than one batch reads.
    const KEYS: usize = 6_000;
    const LARGE: [usize; 4] = [3 << 20, 5 << 20, 200_000, 70_000];
    let mut pair = Pair::start(&["--flash-segment-size", "1mb", "--workers", "2"]);
    let key = |index: usize| match index % 2 {
        0 => format!("{{one slot}}{index}"),
        _ => format!("key-{index}"),
    };
    for index in 0..KEYS {
        let db = if index % 3 == 0 { 0 } else { index % 16 };
        let value = match LARGE.get(index) {
            Some(len) => noise(index, *len),
            None if index % 5 == 0 => format!("{index} ").repeat(index % 400).into_bytes(),
            None => noise(index, index % 2_500),
        };
        pair.send(&[b"SELECT", db.to_string().as_bytes()]);
        let key = key(index);
        match index % 7 {
            0 => pair.send(&[b"SET", key.as_bytes(), &value, b"EX", b"100000"]),
            _ => pair.send(&[b"SET", key.as_bytes(), &value]),
        }
        if index % 100 == 99 {
            pair.read(200);
        }
    }
    let in_ram = pair.same(&["DEBUG", "DIGEST"]);
    pair.demote_all();
    let cold = number(&mut pair.clients[0], "tier_values_cold");
    assert!(cold > KEYS as u64 / 2, "{cold} values are on flash");
    assert_eq!(pair.clients[0].line("DEBUG DIGEST"), in_ram);
    pair.same(&["SELECT", "0"]);
    let names: Vec<String> = (0..KEYS).map(key).collect();
    let mut request = vec!["DEBUG", "DIGEST-VALUE"];
    request.extend(names.iter().map(String::as_str));
    pair.same(&request);
    let after = number(&mut pair.clients[0], "tier_values_cold");
    assert_eq!(after, cold, "a digest brings nothing back to RAM");
    // Some hot, some clean, some cold.
    for index in (0..KEYS).step_by(3) {
        let key = key(index);
        match index % 2 {
            0 => pair.send(&[b"APPEND", key.as_bytes(), b"more"]),
            _ => pair.send(&[b"GET", key.as_bytes()]),
        }
    }
    pair.read(KEYS / 3);
    assert_ne!(pair.same(&["DEBUG", "DIGEST"]), in_ram);
}

#[test]
fn digests_are_taken_while_others_write_and_values_move() {
    const KEYS: usize = 300;
    const ROUNDS: usize = 20;
    let options = ["--flash-segment-size", "1mb", "--workers", "2"];
    let mut pair = Pair::start(&options);
    let set = |client: &mut Client, round: usize| {
        for key in 0..KEYS {
            let value = noise(key * ROUNDS + round, 1_000);
            client.send_bytes(&[b"SET", format!("k{key}").as_bytes(), &value]);
        }
        (0..KEYS).for_each(|_| assert_eq!(client.read(), Frame::Simple(b"OK".to_vec())));
    };
    set(&mut pair.clients[0], 0);
    let mut writer = pair.kelvin.connect();
    let writing = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            set(&mut writer, round);
            writer.line("TIER DEMOTE ALL");
        }
    });
    while !writing.is_finished() {
        for request in [&["DEBUG", "DIGEST"][..], &["DEBUG", "DIGEST-VALUE", "k1", "k2"]] {
            let shown = pair.clients[0].call(request);
            assert!(!matches!(shown, Frame::Error(_)), "{}", show(&shown));
        }
    }
    writing.join().expect("the writer is served");
    set(&mut pair.clients[1], ROUNDS - 1);
    pair.same(&["DEBUG", "DIGEST"]);
}

#[test]
fn a_value_that_cannot_be_read_is_told() {
    let mut pair = Pair::start(&["--flash-segment-size", "1mb"]);
    for index in 0..2_000 {
        pair.send(&[b"SET", index.to_string().as_bytes(), &noise(index, 1_000)]);
    }
    pair.read(2_000);
    pair.demote_all();
    let kelvin = &mut pair.clients[0];
    // Write buffers leave some moments later.
    while number(kelvin, "flash_device_write_bytes") < number(kelvin, "flash_append_bytes") {}
    let path = pair.kelvin.directory().join("kelvin.flash");
    let file = OpenOptions::new().write(true).open(path).expect("the flash");
    file.set_len(0).expect("a file can be cut off");
    for line in ["DEBUG DIGEST", "DEBUG DIGEST-VALUE missing 0 1 2"] {
        let shown = kelvin.show(line);
        assert!(shown.starts_with("-ERR cannot read the value of a key: "), "{shown}");
    }
    assert_eq!(kelvin.show("PING"), "+PONG");
}
