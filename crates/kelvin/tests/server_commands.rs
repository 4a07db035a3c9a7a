//! SHUTDOWN, TIME, ROLE, LOLWUT, MONITOR, ACL and DEBUG.

mod support;

use resp::Frame;
use support::{Server, assert_same_replies, text};

#[test]
fn replies_are_those_of_redis() {
    assert_same_replies(
        &Server::kelvin(&["--enable-debug-command", "yes"]),
        &Server::redis(&["--enable-debug-command", "yes"]),
        &[
            "TIME x",
            "ROLE",
            "ROLE x",
            "LOLWUT VERSION x",
            "SHUTDOWN ABORT",
            "SHUTDOWN foo",
            "SHUTDOWN SAVE NOSAVE",
            "SHUTDOWN ABORT NOW",
            "MONITOR x",
            "ACL",
            "ACL FOO",
            "ACL WHOAMI",
            "ACL USERS",
            "ACL CAT",
            "ACL CAT foo",
            "ACL CAT geo foo",
            "DEBUG",
            "DEBUG FOO",
            "DEBUG SLEEP",
            "DEBUG SLEEP x",
            "DEBUG SLEEP 0",
            "DEBUG SLEEP -1",
            "DEBUG OBJECT",
            "DEBUG OBJECT missing",
            "DEBUG SET-ACTIVE-EXPIRE",
            "DEBUG SET-ACTIVE-EXPIRE 1",
            "DEBUG PROTOCOL",
            "DEBUG PROTOCOL foo",
            "DEBUG PROTOCOL string",
            "DEBUG PROTOCOL INTEGER",
            "DEBUG PROTOCOL double",
            "DEBUG PROTOCOL null",
            "DEBUG PROTOCOL array",
            "DEBUG PROTOCOL set",
            "DEBUG PROTOCOL map",
            "DEBUG PROTOCOL attrib",
            "DEBUG PROTOCOL push",
            "DEBUG PROTOCOL verbatim",
            "DEBUG PROTOCOL true",
            "DEBUG PROTOCOL false",
            "DEBUG PROTOCOL bignum",
            "DEBUG SET-DISABLE-DENY-SCRIPTS 1",
            "DEBUG CHANGE-REPL-ID",
            "DEBUG PAUSE-CRON 0",
            "DEBUG REPLYBUFFER RESIZING 1",
            "DEBUG HTSTATS",
            "DEBUG HTSTATS x",
            "DEBUG HTSTATS 16",
            "DEBUG ERROR 'MY error'",
            "DEBUG ERROR \"two\\nlines\"",
            "DEBUG LOG hello",
            "DEBUG POPULATE",
            "DEBUG POPULATE x",
            "DEBUG POPULATE -1",
            "DEBUG POPULATE 1 a -1",
            "DEBUG POPULATE 1 a 1 1",
            "SET foo:1 kept",
            "DEBUG POPULATE 3 foo 10",
            "DEBUG POPULATE 3",
            "MGET foo:0 foo:1 foo:2 key:0 key:2",
            "DBSIZE",
        ],
    );
}

#[test]
fn time_goes_on() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    let mut now = || {
        let Frame::Array(parts) = client.call(&["TIME"]) else { panic!("two numbers") };
        let [seconds, micros] = [0, 1].map(|at| text(&parts[at]).parse::<u64>().expect("a number"));
        assert!(micros < 1_000_000);
        seconds * 1_000_000 + micros
    };
    let first = now();
    assert!(first > 1_700_000_000_000_000);
    assert!(now() >= first);
}

#[test]
fn lolwut_names_the_version_under_a_picture() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    for line in ["LOLWUT", "LOLWUT VERSION 5", "LOLWUT 1 2 3"] {
        let shown = text(&client.line(line));
        assert!(shown.ends_with("\nRedis ver. 7.0.15\n"), "{shown}");
        assert!(shown.contains('*'), "{shown}");
    }
}

#[test]
fn shutdown_ends_the_server() {
    for line in ["SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN NOW", "SHUTDOWN SAVE FORCE"] {
        let mut server = Server::kelvin(&[]);
        let (mut client, mut other) = (server.connect(), server.connect());
        other.line("PING");
        client.write(format!("{line}\r\n").as_bytes());
        assert_eq!(client.try_read(), None, "{line}");
        assert_eq!(other.try_read(), None, "{line}");
        assert!(server.wait().success(), "{line}");
    }
}

#[test]
fn shutdown_is_no_part_of_a_transaction() {
    let mut server = Server::kelvin(&[]);
    let mut client = server.connect();
    client.line("MULTI");
    assert_eq!(client.show("SHUTDOWN"), "-ERR Command not allowed inside a transaction");
    assert!(server.is_running());
}

#[test]
fn monitor_shows_what_runs_once_and_no_secret() {
    let server = Server::kelvin(&["--workers", "2"]);
    let (mut watcher, mut client) = (server.connect(), server.connect());
    assert_eq!(watcher.show("MONITOR"), "+OK");
    let lines = [
        "SET k \"a\\x00b\"",
        "SET k",
        "FOO",
        "MULTI",
        "GET k",
        "CONFIG GET port",
        "EXEC",
        "AUTH secret",
        "HELLO 2 AUTH default secret",
        "SELECT 3",
        "CLIENT ID",
        "CONFIG SET requirepass ''",
    ];
    for line in lines {
        client.line(line);
    }
    let mut shown = Vec::new();
    while shown.last().is_none_or(|line| line != "[3] \"CLIENT\" \"ID\"") {
        let Frame::Simple(line) = watcher.read() else { panic!("lines are simple strings") };
        let line = String::from_utf8(line).expect("quoted");
        let (time, rest) = line.split_once(" [").expect("a time, then a source");
        let (seconds, micros) = time.split_once('.').expect("a decimal point");
        assert_eq!((seconds.len(), micros.len()), (10, 6), "{time}");
        let (source, words) = rest.split_once("] ").expect("a source, then words");
        let (db, address) = source.split_once(' ').expect("a database and an address");
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        shown.push(format!("[{db}] {words}"));
    }
    // Administrators' commands and what was refused are not shown; a transaction's commands are
    // when they run, before its EXEC, as Redis 7.0 does.
    assert_eq!(
        shown,
        [
            r#"[0] "SET" "k" "a\x00b""#,
            r#"[0] "MULTI""#,
            r#"[0] "GET" "k""#,
            r#"[0] "EXEC""#,
            r#"[0] "AUTH" "(redacted)""#,
            r#"[0] "HELLO" "2" "AUTH" "(redacted)" "(redacted)""#,
            r#"[3] "SELECT" "3""#,
            r#"[3] "CLIENT" "ID""#,
        ]
    );
}

#[test]
fn who_monitors_sees_itself_and_touches_no_key() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    for line in ["MULTI", "MONITOR"] {
        client.line(line);
    }
    let refused = "[-ERR MONITOR isn't allowed for DENY BLOCKING client]";
    assert_eq!(client.show("EXEC"), refused);
    assert_eq!(client.show("MONITOR"), "+OK");
    assert_eq!(client.show("PING"), "+PONG");
    assert!(text(&client.read()).ends_with("\"PING\""));
    assert_eq!(client.show("GET k"), "-ERR Replica can't interact with the keyspace");
    assert_eq!(client.show("RESET"), "+RESET");
    assert_eq!(client.show("GET k"), "_");
}

#[test]
fn monitors_that_do_not_read_are_closed() {
    let server = Server::kelvin(&["--client-output-buffer-limit", "normal 1mb 0 0"]);
    let (mut watcher, mut client) = (server.connect(), server.connect());
    assert_eq!(watcher.show("MONITOR"), "+OK");
    let long = "x".repeat(100 << 10);
    // Sockets hold some of it.
    for _ in 0..1000 {
        client.call(&["ECHO", &long]);
        if !text(&client.call(&["CLIENT", "LIST"])).contains(" flags=O ") {
            return;
        }
    }
    panic!("a client holds 100 MB of output");
}

#[test]
fn debug_is_for_whom_it_is_allowed() {
    let refused = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                   \"local\", you can run it from a local connection, otherwise you need to set \
                   this option in the configuration file, and then restart the server.";
    for (allowed, expected) in [("no", refused), ("local", "+OK"), ("yes", "+OK")] {
        let server = Server::kelvin(&["--enable-debug-command", allowed]);
        assert_eq!(server.connect().show("DEBUG SLEEP 0"), expected, "{allowed}");
    }
    assert_eq!(Server::kelvin(&[]).connect().show("DEBUG HELP"), refused);
}

#[test]
fn debug_tells_how_a_value_is_kept() {
    let options = ["--enable-debug-command", "yes", "--flash-segment-size", "1mb"];
    let server = Server::kelvin_with_flash("64mb", &options);
    let mut client = server.connect();
    let long = "x".repeat(100);
    client.call(&["SET", "long", &long]);
    client.line("SET number 42");
    let cases = [
        ("number", "refcount:1 encoding:int serializedlength:3 "),
        ("long", "refcount:1 encoding:raw serializedlength:102 "),
    ];
    for (key, expected) in cases {
        let shown = client.show(&format!("DEBUG OBJECT {key}"));
        assert!(shown.starts_with("+Value at:0x"), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
    // What is told needs no value.
    assert_eq!(client.show("TIER DEMOTE long"), ":1");
    let shown = client.show("DEBUG OBJECT long");
    assert!(shown.starts_with("+Value at:0x0 refcount:1 encoding:raw"), "{shown}");
    assert!(client.show("TIER LOCATE long").contains("$cold"));
}

#[test]
fn debug_keeps_off_locked_slots() {
    let server = Server::kelvin(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    for line in ["SET k v", "MULTI", "GET k", "DEBUG OBJECT k", "DEBUG POPULATE 1", "DEBUG SLEEP 0"]
    {
        client.line(line);
    }
    let refused = "-ERR this subcommand of DEBUG is not allowed in a transaction";
    assert_eq!(client.show("EXEC"), format!("[$v {refused} {refused} +OK]"));
}

#[test]
fn expired_keys_stay_while_debug_says_so() {
    let server = Server::kelvin(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0");
    client.line("SET k v PX 1");
    // Time passes where the server counts it; the key's time is long over then.
    client.line("DEBUG SLEEP 0.3");
    assert_eq!(client.show("DBSIZE"), ":1");
    client.line("DEBUG SET-ACTIVE-EXPIRE 1");
    while client.show("DBSIZE") != ":0" {
        client.line("DEBUG SLEEP 0.01");
    }
}

#[test]
fn a_journal_is_not_read_by_debug() {
    let server = Server::kelvin(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    let expected = "-ERR the journal is read when the server starts, and not by DEBUG LOADAOF";
    assert_eq!(client.show("DEBUG LOADAOF"), expected);
}
