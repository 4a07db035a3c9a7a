//! CONFIG on a running server.

mod support;

use std::time::Duration;

use resp::Frame;
use support::{Server, assert_same_replies, show, text};

/// How often what a busy machine can spoil is tried.
const TRIES: usize = 10;

#[test]
fn replies_are_those_of_redis() {
    assert_same_replies(
        &Server::kelvin(&[]),
        &Server::redis(&[]),
        &[
            "CONFIG",
            "CONFIG FOO",
            "CONFIG GET",
            "CONFIG GET foo",
            "CONFIG GET maxmemory maxmemory",
            "CONFIG GET MaxMemory-Samples",
            "CONFIG GET PORT[x] TIMEOUT time*t",
            "CONFIG GET time*t TIMEOUT",
            "CONFIG SET",
            "CONFIG SET foo",
            "CONFIG SET foo bar",
            "CONFIG SET maxmemory",
            "CONFIG SET maxmemory 100mb port",
            "CONFIG SET maxmemory x",
            "CONFIG SET port abc",
            "CONFIG SET daemonize yes",
            "CONFIG SET dir /nonexistent",
            "CONFIG SET timeout 5 timeout 6",
            "CONFIG SET timeout 100 slowlog-max-len 7",
            "CONFIG GET timeout",
            "CONFIG GET slowlog-max-len",
            "CONFIG SET timeout 200 slowlog-max-len x",
            "CONFIG GET timeout",
            "CONFIG SET maxmemory 1gb",
            "CONFIG GET maxmemory",
            "CONFIG SET maxmemory 0",
            "CONFIG REWRITE",
            "CONFIG REWRITE x",
            "CONFIG RESETSTAT",
            "CONFIG RESETSTAT x",
        ],
    );
}

#[test]
fn what_was_set_survives_in_the_file() {
    let text_of = |server: &Server| {
        std::fs::read_to_string(server.directory().join("kelvin.conf")).expect("the file")
    };
    let server = Server::kelvin_with_file("# Mine.\ntimeout 10\n", &[]);
    let mut client = server.connect();
    assert_eq!(client.show("CONFIG GET timeout"), "[$timeout $10]");
    assert_eq!(client.show("CONFIG SET timeout 77 maxmemory-policy allkeys-lru"), "+OK");
    assert_eq!(text_of(&server), "# Mine.\ntimeout 10\n");
    assert_eq!(client.show("CONFIG REWRITE"), "+OK");
    let written = text_of(&server);
    assert!(written.starts_with("# Mine.\ntimeout 77\n"), "{written}");
    assert!(written.contains("\nmaxmemory-policy allkeys-lru\n"), "{written}");
}

/// The options of the file that Redis 7.0 comes with.
const REDIS_FILE: &str = include_str!("../../server/src/config/redis-options.txt");

#[test]
fn a_file_of_redis_starts_the_server() {
    let mut server = Server::kelvin_with_file(REDIS_FILE, &["--pidfile", "kelvin.pid"]);
    let pid_file = server.directory().join("kelvin.pid");
    let mut client = server.connect();
    assert_eq!(client.show("SET k v"), "+OK");
    assert_eq!(client.show("CONFIG GET repl-backlog-ttl"), "[$repl-backlog-ttl $3600]");
    // The server tells what follows after it is ready.
    let expected = format!("{}\n", server.pid());
    let is_written = || std::fs::read_to_string(&pid_file).is_ok_and(|text| text == expected);
    while !is_written() {
        assert!(server.is_running());
        std::thread::yield_now();
    }
    client.write(b"SHUTDOWN\r\n");
    assert_eq!(client.try_read(), None);
    server.wait();
    assert!(!pid_file.exists());
    let log = server.log_to_its_end();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    let [warning] = warnings[..] else { panic!("one warning: {log}") };
    assert!(warning.contains("daemonize, save (by default)"), "{warning}");
}

#[test]
fn options_are_acted_on_at_once() {
    let server = Server::kelvin(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.connect();
    client.line("SET k v");
    assert!(client.show("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not"));
    client.line("CONFIG SET maxmemory-policy allkeys-lfu");
    assert_eq!(client.show("OBJECT FREQ k"), ":0");
    client.line("CONFIG SET requirepass secret");
    let mut other = server.connect();
    assert_eq!(other.show("GET k"), "-NOAUTH Authentication required.");
    assert_eq!(other.show("AUTH secret"), "+OK");
    assert_eq!(other.show("GET k"), "$v");
}

#[test]
fn a_bound_below_what_the_server_takes_stops_writes_and_nothing_else() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    client.line("SET k v");
    assert_eq!(client.show("CONFIG SET maxmemory 1"), "+OK");
    assert_eq!(client.show("SET k w"), "-OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(client.show("GET k"), "$v");
    assert_eq!(client.show("CONFIG SET maxmemory 0"), "+OK");
    assert_eq!(client.show("SET k w"), "+OK");
}

/// A path whose file somebody else holds makes the server try again for two seconds.
#[test]
fn others_are_served_while_a_change_waits_for_a_drive() {
    let server = Server::kelvin_with_flash("64mb", &["--workers", "1"]);
    let new = server.directory().join("new");
    std::fs::create_dir(&new).expect("a directory");
    let (mut client, mut other) = (server.connect(), server.connect());
    let paths = format!("{} {}", server.directory().display(), new.display());
    let mut change = || {
        let held = std::fs::File::create(new.join("kelvin.flash")).expect("a file");
        held.lock().expect("nobody else has it");
        client.send(&["CONFIG", "SET", "flash-path", &paths]);
        // The new value shows as soon as the server begins to act on it.
        while !other.show("CONFIG GET flash-path").contains(&paths) {
            if let Some(reply) = client.read_within(Duration::from_millis(1)) {
                return show(&reply);
            }
        }
        // Had the worker tried for two seconds first, the change would have been refused by now.
        drop(held);
        show(&client.read())
    };
    // On a busy machine the test itself may take two seconds; a worker that does so always does.
    let replies: Vec<String> =
        (0..TRIES).map(|_| change()).take_while(|reply| reply != "+OK").collect();
    assert!(replies.len() < TRIES, "{replies:?}");
    assert!(replies.iter().all(|reply| reply.contains("in use by another server")), "{replies:?}");
}

#[test]
fn options_that_one_must_restart_for_say_so() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    let reply = client.show("CONFIG SET port 1");
    assert!(reply.starts_with("-ERR CONFIG SET failed (possibly related to"), "{reply}");
    // What stays as it is may be set, as programs do that set everything.
    for name in ["port", "bind", "flash-path", "flash-size"] {
        let shown = client.call(&["CONFIG", "GET", name]);
        let Frame::Array(pair) = shown else { panic!("a name and a value") };
        let reply = client.call(&["CONFIG", "SET", name, &text(&pair[1])]);
        assert_eq!(show(&reply), "+OK", "{name}");
    }
}

#[test]
fn the_log_says_as_much_as_is_asked_for() {
    for (level, shows_information) in [("warning", false), ("notice", true)] {
        let server = Server::kelvin(&["--enable-debug-command", "yes"]);
        let mut client = server.connect();
        client.call(&["CONFIG", "SET", "loglevel", level]);
        client.line("DEBUG LOG hello");
        client.write(b"SHUTDOWN\r\n");
        assert_eq!(client.try_read(), None);
        let log = server.log_to_its_end();
        assert!(log.contains("DEBUG LOG: hello"), "{log}");
        assert_eq!(log.contains("SHUTDOWN: stopping"), shows_information, "{level}: {log}");
    }
}

#[test]
fn protected_options_are_for_whom_they_are_allowed() {
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'dir') - can't set \
                   protected config";
    for (allowed, expected) in [("no", refused), ("local", "+OK"), ("yes", "+OK")] {
        let server = Server::kelvin(&["--enable-protected-configs", allowed]);
        assert_eq!(server.connect().show("CONFIG SET dir /"), expected, "{allowed}");
    }
}

#[test]
fn statistics_begin_again() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    for line in ["SET k v", "GET k", "GET missing", "CONFIG SET foo bar"] {
        client.line(line);
    }
    let stat = |client: &mut support::Client, name: &str| {
        let info = text(&client.call(&["INFO", "everything"]));
        let value = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        value.map(str::to_owned)
    };
    assert_eq!(stat(&mut client, "keyspace_hits").as_deref(), Some("1"));
    assert_eq!(stat(&mut client, "keyspace_misses").as_deref(), Some("1"));
    assert!(stat(&mut client, "errorstat_ERR").is_some());
    assert!(stat(&mut client, "cmdstat_get").is_some());
    assert_eq!(client.show("CONFIG RESETSTAT"), "+OK");
    assert_eq!(stat(&mut client, "keyspace_hits").as_deref(), Some("0"));
    assert_eq!(stat(&mut client, "keyspace_misses").as_deref(), Some("0"));
    assert_eq!(stat(&mut client, "errorstat_ERR"), None);
    assert_eq!(stat(&mut client, "cmdstat_get"), None);
}

#[test]
fn a_bound_that_was_set_too_small_and_written_to_the_file_does_not_stop_the_next_start() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8");
    let file = format!("dir {dir}\nmaxmemory 64mb\nappendonly yes\n");
    let mut server = Server::kelvin_with_file(&file, &[]);
    let mut client = server.connect();
    assert_eq!(client.show("SET k v"), "+OK");
    assert_eq!(client.show("CONFIG SET maxmemory 1mb"), "+OK");
    assert_eq!(client.show("CONFIG REWRITE"), "+OK");
    let path = server.directory().join("kelvin.conf");
    let written = std::fs::read_to_string(path).expect("a file");
    assert!(written.contains("maxmemory 1mb\n"), "{written}");
    client.send(&["SHUTDOWN"]);
    assert!(server.wait().success());
    let server = Server::kelvin_with_file(&written, &[]);
    let mut client = server.connect();
    assert_eq!(client.show("GET k"), "$v");
    assert_eq!(client.show("SET k w"), "-OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(client.show("CONFIG SET maxmemory 64mb"), "+OK");
    assert_eq!(client.show("SET k w"), "+OK");
    assert!(server.log().contains("maxmemory is too small"), "{}", server.log());
}
