//! CLIENT, with several connections to one server.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use support::{Client, Server, assert_same_replies, show, text};

/// Long enough for a reply that must not come to have come.
const SILENCE: Duration = Duration::from_millis(100);

#[test]
fn errors_are_those_of_redis() {
    assert_same_replies(
        &Server::kelvin(&[]),
        &Server::redis(&[]),
        &[
            "CLIENT",
            "CLIENT FOO",
            "CLIENT ID x",
            "CLIENT KILL",
            "CLIENT KILL a b c",
            "CLIENT KILL 1.1.1.1:5",
            "CLIENT KILL ID x",
            "CLIENT KILL ID 0",
            "CLIENT KILL ID 99999",
            "CLIENT KILL TYPE foo",
            "CLIENT KILL TYPE normal SKIPME maybe",
            "CLIENT KILL USER nobody",
            "CLIENT KILL FOO bar",
            "CLIENT KILL ID",
            "CLIENT KILL ADDR 1.1.1.1:1 SKIPME no",
            "CLIENT KILL TYPE pubsub",
            "CLIENT LIST FOO",
            "CLIENT LIST TYPE",
            "CLIENT LIST TYPE foo",
            "CLIENT LIST TYPE normal foo",
            "CLIENT LIST TYPE replica",
            "CLIENT LIST TYPE MASTER",
            "CLIENT LIST ID",
            "CLIENT LIST ID x",
            "CLIENT LIST ID 1000 2000 x",
            "CLIENT LIST ID 1000",
            "CLIENT PAUSE",
            "CLIENT PAUSE x",
            "CLIENT PAUSE -1",
            "CLIENT PAUSE 99999999999999999999",
            "CLIENT PAUSE 0 FOO",
            "CLIENT PAUSE 0 ALL bar",
            "CLIENT PAUSE 0 write",
            "CLIENT UNPAUSE",
            "CLIENT UNPAUSE x",
            "CLIENT REPLY foo",
            "CLIENT REPLY ON",
            "CLIENT NO-EVICT foo",
            "CLIENT NO-EVICT on",
            "CLIENT NO-EVICT off",
            "CLIENT GETNAME",
            "CLIENT SETNAME 'a b'",
            "CLIENT SETNAME me",
            "CLIENT GETNAME",
            "CLIENT SETNAME ''",
            "CLIENT GETNAME",
            "CLIENT INFO x",
        ],
    );
}

/// The fields of a line of CLIENT LIST.
fn fields(line: &str) -> HashMap<&str, &str> {
    line.split(' ').map(|field| field.split_once('=').expect("name=value")).collect()
}

fn field(client: &mut Client, name: &str) -> String {
    let info = text(&client.call(&["CLIENT", "INFO"]));
    fields(info.trim_end())[name].to_owned()
}

#[test]
fn the_list_has_the_fields_of_redis_in_their_order() {
    let names = |server: &Server| {
        let list = text(&server.connect().call(&["CLIENT", "LIST"]));
        let line = list.lines().next().expect("a line").to_owned();
        let names = line.split(' ').map(|field| field.split('=').next().expect("a name"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut expected = names(&Server::redis(&[]));
    // Redis 7.2 has these too.
    expected.extend(["lib-name".to_owned(), "lib-ver".to_owned()]);
    assert_eq!(names(&Server::kelvin(&[])), expected);
}

#[test]
fn a_connection_tells_what_it_was_told() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    assert_eq!(field(&mut client, "flags"), "N");
    assert_eq!(field(&mut client, "cmd"), "client|info");
    assert_eq!(field(&mut client, "multi"), "-1");
    let cases = [
        ("CLIENT SETNAME me", "name", "me"),
        ("CLIENT SETINFO LIB-NAME lib", "lib-name", "lib"),
        ("CLIENT SETINFO lib-ver 1.2.3", "lib-ver", "1.2.3"),
        ("SELECT 5", "db", "5"),
        ("CLIENT NO-EVICT on", "flags", "e"),
        ("CLIENT NO-TOUCH on", "flags", "eT"),
        ("CLIENT NO-EVICT off", "flags", "T"),
    ];
    for (line, name, expected) in cases {
        assert_eq!(client.show(line), "+OK", "{line}");
        assert_eq!(field(&mut client, name), expected, "{line}");
    }
    client.call(&["HELLO", "3"]);
    assert_eq!(field(&mut client, "resp"), "3");
    client.call(&["RESET"]);
    let after = text(&client.call(&["CLIENT", "INFO"]));
    let after = fields(after.trim_end());
    for (name, expected) in [("name", ""), ("lib-name", "lib"), ("db", "0"), ("flags", "N")] {
        assert_eq!(after[name], expected, "{name} after RESET");
    }
}

#[test]
fn labels_that_would_break_the_list_are_refused() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    for (line, expected) in [
        (
            "CLIENT SETINFO lib-name 'a b'",
            "-ERR lib-name cannot contain spaces, newlines or special characters.",
        ),
        (
            "CLIENT SETINFO LIB-VER \"1\\n2\"",
            "-ERR LIB-VER cannot contain spaces, newlines or special characters.",
        ),
        ("CLIENT SETINFO color red", "-ERR Unrecognized option 'color'"),
        ("CLIENT NO-TOUCH foo", "-ERR syntax error"),
    ] {
        assert_eq!(client.show(line), expected, "{line}");
    }
}

#[test]
fn a_killed_connection_ends_and_the_others_go_on() {
    let server = Server::kelvin(&[]);
    let (mut killer, mut victim, mut other) =
        (server.connect(), server.connect(), server.connect());
    let id = show(&victim.call(&["CLIENT", "ID"]));
    let id = id.trim_start_matches(':');
    assert_eq!(killer.show(&format!("CLIENT KILL ID {id}")), ":1");
    assert_eq!(killer.show(&format!("CLIENT KILL ID {id}")), ":0");
    assert!(!text(&killer.call(&["CLIENT", "LIST"])).contains(&format!("id={id} ")));
    assert_eq!(victim.try_read(), None);
    assert_eq!(other.show("PING"), "+PONG");
    let address = field(&mut other, "addr");
    assert_eq!(killer.show(&format!("CLIENT KILL {address}")), "+OK");
    assert_eq!(other.try_read(), None);
    // A connection that kills itself is answered first.
    assert_eq!(killer.show("CLIENT KILL TYPE normal SKIPME no"), ":1");
    assert_eq!(killer.try_read(), None);
    assert_eq!(server.connect().show("PING"), "+PONG");
}

#[test]
fn a_client_that_is_killed_from_another_worker_runs_nothing_more() {
    const ROUNDS: usize = 20;
    const REQUESTS: u64 = 30_000;
    let server = Server::kelvin(&["--workers", "2"]);
    let mut killer = server.connect();
    let mut cut_short = 0;
    let count = |client: &mut Client| text(&client.call(&["GET", "n"])).parse::<u64>();
    for round in 0..ROUNDS {
        let mut victim = server.connect();
        let id = show(&victim.call(&["CLIENT", "ID"]));
        assert_eq!(killer.show("SET n 0"), "+OK");
        victim.write(&b"INCR n\r\n".repeat(REQUESTS as usize));
        while count(&mut killer) == Ok(0) {}
        killer.show(&format!("CLIENT KILL ID {}", id.trim_start_matches(':')));
        let before = count(&mut killer).expect("a number");
        std::thread::sleep(SILENCE / 10);
        let after = count(&mut killer).expect("a number");
        // One may have been under way.
        assert!(after <= before + 1, "{} ran in round {round}", after - before);
        cut_short += u32::from(after < REQUESTS);
    }
    assert!(cut_short > 0, "one of {ROUNDS} was killed in the midst");
}

#[test]
fn a_pause_holds_writes_and_lets_reads_through() {
    let server = Server::kelvin(&[]);
    let (mut control, mut client) = (server.connect(), server.connect());
    assert_eq!(control.show("CLIENT PAUSE 100000 WRITE"), "+OK");
    assert_eq!(client.show("GET k"), "_");
    client.send(&["SET", "k", "v"]);
    assert_eq!(client.read_within(SILENCE), None);
    assert_eq!(control.show("GET k"), "_");
    assert_eq!(control.show("CLIENT UNPAUSE"), "+OK");
    assert_eq!(show(&client.read()), "+OK");
    assert_eq!(control.show("GET k"), "$v");
}

#[test]
fn a_pause_of_all_commands_ends_by_itself() {
    let server = Server::kelvin(&[]);
    let (mut control, mut client) = (server.connect(), server.connect());
    assert_eq!(control.show("CLIENT PAUSE 200"), "+OK");
    assert_eq!(client.show("PING"), "+PONG");
}

#[test]
fn replies_come_only_when_they_are_wanted() {
    let server = Server::kelvin(&[]);
    let cases: [(&[&str], &str); 4] = [
        (&["CLIENT REPLY SKIP", "PING", "ECHO a"], "$a"),
        (&["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING", "ECHO b"], "$b"),
        (&["CLIENT REPLY OFF", "PING", "CLIENT REPLY ON"], "+OK"),
        (&["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "PING", "CLIENT REPLY ON"], "+OK"),
    ];
    for (lines, expected) in cases {
        let mut client = server.connect();
        for line in lines {
            client.write(format!("{line}\r\n").as_bytes());
        }
        assert_eq!(show(&client.read()), expected, "{lines:?}");
        assert_eq!(client.show("PING"), "+PONG", "{lines:?}");
    }
}

#[test]
fn a_transaction_announces_its_replies_so_none_can_be_left_out() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    for line in ["MULTI", "CLIENT REPLY SKIP", "PING"] {
        client.line(line);
    }
    assert_eq!(client.show("EXEC"), "[-ERR replies cannot be turned off in a transaction +PONG]");
}

#[test]
fn reads_without_touch_leave_the_frequency() {
    let server = Server::kelvin(&["--maxmemory-policy", "allkeys-lfu"]);
    let mut client = server.connect();
    client.line("SET k v");
    client.line("CLIENT NO-TOUCH on");
    client.line("GET k");
    assert_eq!(client.show("OBJECT FREQ k"), ":0");
    client.line("CLIENT NO-TOUCH off");
    client.line("GET k");
    assert_eq!(client.show("OBJECT FREQ k"), ":85");
}
