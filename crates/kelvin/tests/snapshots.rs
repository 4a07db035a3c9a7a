//! Snapshots: what Kelvin saves redis-server loads, and the other way round; one is of one moment, whatever is
//! written meanwhile; and what goes wrong is told, and leaves the file of before.

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use resp::Frame;
use support::values::{call, fill_all, told};
use support::{Client, Server, assert_same_replies, show, text};

const ALLOWED: [&str; 2] = ["--enable-debug-command", "yes"];
/// A test waits no longer than this for a snapshot.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(30);

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn digest(client: &mut Client) -> String {
    client.show("DEBUG DIGEST")
}

fn info(client: &mut Client, name: &str) -> String {
    let all = text(&client.call(&["INFO", "persistence"]));
    let field = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("{name}: {all}")).to_owned()
}

/// Waits until no snapshot is under way.
fn wait_for_snapshot(client: &mut Client) {
    let start = Instant::now();
    while info(client, "rdb_bgsave_in_progress") != "0" {
        assert!(start.elapsed() < SNAPSHOT_WITHIN, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Values of every type, in several databases, some of which expire.
fn fill_databases(client: &mut Client) -> Vec<String> {
    let keys = fill_all(client);
    for (line, db) in [("SET a text", 3), ("RPUSH b 1 2 3", 3), ("SET a 12", 15)] {
        client.line(&format!("SELECT {db}"));
        client.line(line);
    }
    client.line("SELECT 0");
    for line in
        ["PEXPIRE string:100 99999999", "PEXPIREAT hash10000 9999999999999", "EXPIRE list1 7000"]
    {
        assert_eq!(client.show(line), ":1");
    }
    keys
}

#[test]
fn databases_go_from_either_server_to_the_other() {
    let options = ["--enable-debug-command", "yes", "--flash-segment-size", "1mb"];
    let kelvin = Server::kelvin_with_flash("256mb", &options);
    let mut of_kelvin = kelvin.connect();
    let keys = fill_databases(&mut of_kelvin);
    call(&mut of_kelvin, &[b"TIER", b"DEMOTE", b"ALL"]);
    let expected = digest(&mut of_kelvin);
    assert_eq!(of_kelvin.show("SAVE"), "+OK");
    assert_eq!(digest(&mut of_kelvin), expected);

    // Redis takes what Kelvin has saved.
    let dir = path_text(kelvin.directory());
    let redis = Server::redis(&[ALLOWED[0], ALLOWED[1], "--dir", dir]);
    let mut of_redis = redis.connect();
    assert_eq!(digest(&mut of_redis), expected);
    for key in &keys {
        assert_eq!(told(&mut of_redis, key), told(&mut of_kelvin, key), "{key}");
        let expiry = |client: &mut Client| show(&client.call(&["PEXPIRETIME", key]));
        assert_eq!(expiry(&mut of_redis), expiry(&mut of_kelvin), "{key}");
    }

    // Kelvin takes what Redis saves of that, and itself, with values on flash as it loads.
    for encode in ["yes", "no"] {
        of_redis.line(&format!("CONFIG SET rdbcompression {encode}"));
        assert_eq!(of_redis.show("SAVE"), "+OK");
        let other = Server::kelvin_with_flash("256mb", &[&options[..], &["--dir", dir]].concat());
        let mut of_other = other.connect();
        assert_eq!(digest(&mut of_other), expected);
        for key in &keys {
            assert_eq!(told(&mut of_other, key), told(&mut of_kelvin, key), "{key}");
        }
        assert_eq!(info(&mut of_other, "rdb_changes_since_last_save"), "0");
        assert_eq!(of_other.show("DEBUG RELOAD"), "+OK");
        assert_eq!(digest(&mut of_other), expected);
    }
}

#[test]
fn keys_that_have_expired_are_not_loaded() {
    let server = Server::kelvin(&ALLOWED);
    let mut client = server.connect();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0");
    for line in ["SET gone v PX 30", "SET stays v", "SET later v PX 99999999", "HSET h f v g v"] {
        client.line(line);
    }
    client.line("HPEXPIRE h 30 FIELDS 1 f");
    client.line("SAVE");
    std::thread::sleep(Duration::from_millis(40));
    let other = Server::kelvin(&["--dir", path_text(server.directory())]);
    let mut client = other.connect();
    assert_eq!(client.show("DBSIZE"), ":3");
    assert_eq!(client.show("HGETALL h"), "[$g $v]");
    assert_eq!(info(&mut client, "rdb_last_load_keys_expired"), "1");
    assert_eq!(info(&mut client, "rdb_last_load_keys_loaded"), "3");
}

/// Keys that one writer changes in turn: each is given the number of the change.
const KEYS: usize = 700;

/// Changes keys in turn, by a transaction that counts and that gives a key the count, until told to stop.
fn write_in_turn(server: &Server, writer: usize, is_over: &AtomicBool) {
    let mut client = server.connect();
    let mut number = 0usize;
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("{writer}:{}", number % KEYS);
        let text = number.to_string();
        let padded = format!("{text}:{}", "x".repeat(200));
        client.send(&["MULTI"]);
        client.send(&["SET", &format!("{writer}:count"), &text]);
        match number % 7 {
            0 => client.send(&["DEL", &key]),
            1 => client.send(&["SETEX", &key, "10000", &padded]),
            _ => client.send(&["SET", &key, &padded]),
        }
        client.send(&["HSET", &format!("{writer}:hash"), &(number % 3_000).to_string(), &padded]);
        client.send(&[
            "RENAME",
            &format!("{writer}:name{}", number % 2),
            &format!("{writer}:name{}", (number + 1) % 2),
        ]);
        client.send(&["EXEC"]);
        (0..6).for_each(|_| drop(client.read()));
        number += 1;
    }
}

/// Looks whether what was loaded is what a writer had made at one moment. Returns its count.
fn check_moment(client: &mut Client, writer: usize) -> usize {
    let number_of = |frame: &Frame| text(frame).split(':').next().expect("a text").parse::<usize>();
    let count = number_of(&client.call(&["GET", &format!("{writer}:count")])).expect("a count");
    for at in 0..KEYS {
        let last = (0..=count).rev().take(KEYS).find(|number| number % KEYS == at);
        let found = client.call(&["GET", &format!("{writer}:{at}")]);
        match last {
            None => assert_eq!(show(&found), "_"),
            Some(number) if number % 7 == 0 => {
                assert_eq!(show(&found), "_", "{writer}:{at} {count}")
            }
            Some(number) => assert_eq!(number_of(&found), Ok(number), "{writer}:{at} {count}"),
        }
    }
    let fields = count.min(2_999) + 1;
    assert_eq!(show(&client.call(&["HLEN", &format!("{writer}:hash")])), format!(":{fields}"));
    for field in 0..fields {
        let found = client.call(&["HGET", &format!("{writer}:hash"), &field.to_string()]);
        let number = number_of(&found).expect("a number");
        assert_eq!(number % 3_000, field);
        assert!(number <= count && number + 3_000 > count, "{field} {number} {count}");
    }
    let names = [(count + 1) % 2, count % 2].map(|at| format!("{writer}:name{at}"));
    assert_eq!(show(&client.call(&["EXISTS", &names[0]])), ":1", "{count}");
    assert_eq!(show(&client.call(&["EXISTS", &names[1]])), ":0", "{count}");
    count
}

/// Tells writers to stop, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_snapshot_is_of_one_moment() {
    const WRITERS: usize = 4;
    let options =
        ["--enable-debug-command", "yes", "--flash-segment-size", "1mb", "--workers", "2"];
    let server = Server::kelvin_with_flash("256mb", &options);
    let mut client = server.connect();
    client.line("DEBUG POPULATE 50000 filler 200");
    (0..WRITERS).for_each(|writer| drop(client.call(&["SET", &format!("{writer}:name0"), "v"])));
    let is_over = AtomicBool::new(false);
    let mut counts = HashMap::new();
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for writer in 0..WRITERS {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || write_in_turn(server, writer, is_over));
        }
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            client.line("TIER DEMOTE ALL");
            if round == 2 {
                // What changes whole databases has it begin again.
                assert_eq!(client.show("BGSAVE"), "+Background saving started");
                client.line("SELECT 5");
                client.line("FLUSHDB");
                client.line("SELECT 0");
            } else {
                assert_eq!(client.show("BGSAVE"), "+Background saving started");
            }
            wait_for_snapshot(&mut client);
            assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok", "{}", server.log());
            let loaded = Server::kelvin(&["--dir", path_text(server.directory())]);
            let mut of_loaded = loaded.connect();
            for writer in 0..WRITERS {
                let count = check_moment(&mut of_loaded, writer);
                let before = counts.insert(writer, count).unwrap_or(0);
                assert!(count > before, "each is of a later moment");
            }
            assert_eq!(of_loaded.show("GET filler:49999").len(), "$".len() + 200);
        }
    });
}

#[test]
fn replies_are_those_of_redis() {
    let (kelvin, redis) = (Server::kelvin(&[]), Server::redis(&[]));
    let lines = [
        "SAVE",
        "SAVE now",
        "BGSAVE now",
        "BGSAVE SCHEDULE SCHEDULE",
        "LASTSAVE x",
        "CONFIG GET save",
        "CONFIG SET save \"900 1 300 10\"",
        "CONFIG GET save",
        "CONFIG SET save \"900 1 300\"",
        "CONFIG SET save \"0 1\"",
        "CONFIG SET save \"\"",
        "MULTI",
        "SAVE",
        "EXEC",
        "SHUTDOWN SAVE NOSAVE",
    ];
    assert_same_replies(&kelvin, &redis, &lines);
    for server in [kelvin, redis] {
        let mut client = server.connect();
        ["MULTI", "BGSAVE"].iter().for_each(|line| drop(client.line(line)));
        assert_eq!(client.show("EXEC"), "[+Background saving scheduled]");
        let start = Instant::now();
        while info(&mut client, "rdb_last_bgsave_time_sec") == "-1" {
            assert!(start.elapsed() < SNAPSHOT_WITHIN);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn save_points_and_the_end_save() {
    let server = Server::kelvin(&["--save", "1 3"]);
    let mut client = server.connect();
    let began: u64 = info(&mut client, "rdb_last_save_time").parse().expect("seconds");
    for number in 0..5 {
        client.line(&format!("SET k{number} v"));
    }
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "5");
    let start = Instant::now();
    while info(&mut client, "rdb_saves") == "0" {
        assert!(start.elapsed() < SNAPSHOT_WITHIN);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    let Frame::Integer(last) = client.line("LASTSAVE") else { panic!("a number") };
    assert!(last as u64 > began);
    // A signal saves, too, where there are save points; then SHUTDOWN does.
    client.line("SET behind v");
    let dir = path_text(server.directory()).to_owned();
    let mut server = server;
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(server.wait().success());
    let mut again = Server::kelvin(&["--dir", &dir]);
    let mut client = again.connect();
    assert_eq!(client.show("DBSIZE"), ":6");
    client.line("SET more v");
    client.write(b"SHUTDOWN SAVE\r\n");
    assert_eq!(client.try_read(), None);
    assert!(again.wait().success());
    let last = Server::kelvin(&["--dir", &dir]);
    assert_eq!(last.connect().show("DBSIZE"), ":7");
}

#[test]
fn what_cannot_be_saved_is_told() {
    let server = Server::kelvin(&["--enable-protected-configs", "yes"]);
    let mut client = server.connect();
    let dir = server.directory().join("gone");
    std::fs::create_dir(&dir).expect("a directory");
    client.call(&["CONFIG", "SET", "dir", path_text(&dir)]);
    std::fs::remove_dir(&dir).expect("it is empty");
    client.line("SET k v");
    assert_eq!(client.show("SAVE"), "-ERR");
    assert_eq!(client.show("BGSAVE"), "+Background saving started");
    wait_for_snapshot(&mut client);
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "err");
    assert_eq!(client.show("SHUTDOWN SAVE"), "-ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(client.show("SET k w"), "+OK");
    let start = Instant::now();
    while !server.log().contains("No such file or directory") {
        assert!(start.elapsed() < SNAPSHOT_WITHIN, "{}", server.log());
        std::thread::sleep(Duration::from_millis(2));
    }
    // A file of this name cannot be replaced.
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::create_dir(dir.join("dump.rdb")).expect("a directory");
    assert_eq!(client.show("SAVE"), "-ERR");
    assert_eq!(std::fs::read_dir(&dir).expect("it is there").count(), 1, "nothing is left behind");
    std::fs::remove_dir(dir.join("dump.rdb")).expect("it is empty");
    assert_eq!(client.show("SAVE"), "+OK");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
}

#[test]
fn damaged_files_stop_the_start_and_are_left_alone() {
    let server = Server::kelvin(&[]);
    let mut client = server.connect();
    for line in ["SET k v", "RPUSH l a b c", "HSET h f v", "XADD s 1-1 f v"] {
        client.line(line);
    }
    client.line("SAVE");
    let path = server.directory().join("dump.rdb");
    let whole = std::fs::read(&path).expect("the file is there");
    let mut other_sum = whole.clone();
    *other_sum.last_mut().expect("bytes") ^= 1;
    let cases = [
        (other_sum, "malformed checksum"),
        (whole[..whole.len() - 9].to_vec(), "the input ends early"),
        (whole[..40].to_vec(), "the input ends early"),
        (b"REDIS0099\xff".to_vec(), "version 99 is not supported"),
        (b"something else".to_vec(), "it is no RDB file"),
        (Vec::new(), "the input ends early"),
        (b"REDIS0003\x00\x01a\x01v\x00\x01a\x01w\xff".to_vec(), "it is there twice"),
        (b"REDIS0003\xfe\x10\x00\x01a\x01v\xff".to_vec(), "there are fewer databases"),
        (b"REDIS0003\x06\x01a\x01v\xff".to_vec(), "value of a module"),
        (b"REDIS0003\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), "is not supported"),
    ];
    for (bytes, reason) in cases {
        std::fs::write(&path, &bytes).expect("the file can be written");
        let log = Server::failed_kelvin(&["--dir", path_text(server.directory())]);
        assert!(log.contains(reason) && log.contains("dump.rdb"), "{reason}: {log}");
        assert_eq!(std::fs::read(&path).expect("the file is there"), bytes);
    }
}

#[test]
fn a_kill_leaves_the_file_of_before() {
    let mut server = Server::kelvin(&ALLOWED);
    let mut client = server.connect();
    client.line("SET before v");
    assert_eq!(client.show("SAVE"), "+OK");
    client.line("DEBUG POPULATE 300000 filler 500");
    client.write(b"SAVE\r\n");
    let is_unfinished = |name: &str| name.starts_with("temp-") && name.ends_with(".rdb");
    let start = Instant::now();
    loop {
        let entries = std::fs::read_dir(server.directory()).expect("it is there");
        let mut names = entries.flatten().map(|entry| entry.file_name());
        if names.any(|name| is_unfinished(&name.to_string_lossy())) {
            break;
        }
        assert!(start.elapsed() < SNAPSHOT_WITHIN, "no snapshot begins");
    }
    server.kill();
    let again = Server::kelvin(&["--dir", path_text(server.directory())]);
    assert_eq!(again.connect().show("KEYS *"), "[$before]");
}

#[test]
fn a_data_set_larger_than_memory_is_saved_and_loaded() {
    let options = ["--enable-debug-command", "yes", "--maxmemory", "120mb", "--workers", "2"];
    let server = Server::kelvin_with_flash("512mb", &options);
    let mut client = server.connect();
    for (sort, len, count) in [("long", 1_000_000, 100), ("short", 400, 60_000)] {
        let value = "x".repeat(len);
        for start in (0..count).step_by(100) {
            (start..start + 100)
                .for_each(|at| client.send(&["SET", &format!("{sort}:{at}"), &value]));
            (0..100).for_each(|_| assert_eq!(show(&client.read()), "+OK"));
        }
    }
    assert_eq!(client.show("SAVE"), "+OK");
    let expected = digest(&mut client);
    let dir = path_text(server.directory());
    let other = Server::kelvin_with_flash("512mb", &[&options[..], &["--dir", dir]].concat());
    assert_eq!(digest(&mut other.connect()), expected);
    assert!(other.resident_bytes() < 130 << 20, "{}", other.resident_bytes());
    // Without flash there is no room for it.
    let log = Server::failed_kelvin(&["--dir", dir, "--maxmemory", "80mb"]);
    assert!(log.contains("there is no memory for it within maxmemory"), "{log}");
}

/// Values lie on flash in an order that is none of the slots': read slot by slot each would be a read of the device.
#[test]
fn cold_values_are_read_in_the_order_in_which_they_lie_there() {
    const COUNT: usize = 20_000;
    let server = Server::kelvin_with_flash("256mb", &["--workers", "1", ALLOWED[0], ALLOWED[1]]);
    let mut client = server.connect();
    let names = (0..COUNT).map(|number| format!("key:{number}"));
    for (number, name) in names.enumerate() {
        let value = number.to_string().repeat(500 / number.to_string().len());
        client.send(&["SET", &name, &value]);
        client.send(&["TIER", "DEMOTE", &name]);
        if number % 100 == 99 {
            (0..200).for_each(|_| drop(client.read()));
        }
    }
    assert_eq!(client.show("TIER FLUSH"), "+OK");
    let tiering = |client: &mut Client, name: &str| {
        let all = text(&client.call(&["INFO", "tiering"]));
        let field = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        field.expect("it is told").parse::<usize>().expect("a number")
    };
    assert_eq!(tiering(&mut client, "tier_values_cold"), COUNT);
    let before = tiering(&mut client, "flash_device_reads");
    assert_eq!(client.show("SAVE"), "+OK");
    let reads = tiering(&mut client, "flash_device_reads") - before;
    assert!((1..COUNT / 16).contains(&reads), "{reads} reads of the device");
    let expected = digest(&mut client);
    let redis = Server::redis(&[ALLOWED[0], ALLOWED[1], "--dir", path_text(server.directory())]);
    assert_eq!(digest(&mut redis.connect()), expected);
}

#[test]
fn a_snapshot_can_be_looked_at_as_it_ends() {
    let server = Server::kelvin(&[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.connect();
            while !is_over.load(Ordering::Relaxed) {
                info(&mut client, "current_save_keys_total");
            }
        });
        let mut client = server.connect();
        for _ in 0..30 {
            assert_eq!(client.show("SAVE"), "+OK");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_slot_of_very_many_keys_is_saved() {
    let options = [&ALLOWED[..], &["--maxmemory", "128mb"]].concat();
    let server = Server::kelvin_with_flash("256mb", &options);
    let mut client = server.connect();
    // Their names take more than those may that are written before the walk comes to them.
    assert_eq!(client.show("DEBUG POPULATE 150000 {a} 3"), "+OK");
    assert_eq!(client.show("SAVE"), "+OK");
}

/// Where nothing can go to flash there may never be as much memory as a large write waits for.
#[test]
fn a_full_server_without_flash_saves_its_large_collections() {
    let server = Server::kelvin(&["--maxmemory", "48mb", "--maxmemory-policy", "noeviction"]);
    let mut client = server.connect();
    let value = "v".repeat(1000);
    let is_ok = |frame: &Frame| !show(frame).starts_with('-');
    for field in 0..1_000 {
        assert!(is_ok(&client.call(&["HSET", "hash", &format!("field:{field}"), &value])));
    }
    let large = "v".repeat(100_000);
    let mut keys = 0..;
    while is_ok(&client.call(&["SET", &format!("key:{:?}", keys.next()), &large])) {}
    let start = Instant::now();
    assert_eq!(client.show("SAVE"), "+OK");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let again = Server::kelvin(&["--dir", path_text(server.directory())]);
    assert_eq!(again.connect().show("HLEN hash"), ":1000");
}

/// Waits until a file is being loaded, or none is.
fn wait_for_loading(client: &mut Client, is_loading: bool) {
    let start = Instant::now();
    while info(client, "loading") != if is_loading { "1" } else { "0" } {
        assert!(start.elapsed() < SNAPSHOT_WITHIN, "it does not come");
    }
}

#[test]
fn others_are_refused_while_a_file_is_loaded() {
    let server = Server::kelvin(&ALLOWED);
    let mut client = server.connect();
    let mut loader = server.connect();
    assert_eq!(client.show("DEBUG POPULATE 300000 key 100"), "+OK");
    assert_eq!(client.show("SET key:7 first"), "+OK");
    loader.write(b"DEBUG RELOAD\r\n");
    const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
    let (mut refused, mut written) = (0, "first".to_owned());
    let reply = loop {
        for number in 0..100 {
            let reply = client.show(&format!("SET key:7 {number}"));
            assert!(reply == "+OK" || reply == LOADING, "{reply}");
            match reply == LOADING {
                true => refused += 1,
                false => written = number.to_string(),
            }
        }
        if let Some(reply) = loader.read_within(Duration::from_millis(1)) {
            break reply;
        }
    };
    assert_eq!(show(&reply), "+OK");
    assert!(refused > 0);
    assert_eq!(text(&client.line("GET key:7")), written);
    assert_eq!(client.show("DBSIZE"), ":300000");

    // A client that goes leaves nothing half done.
    let Frame::Integer(id) = loader.line("CLIENT ID") else { panic!("a number") };
    loader.write(b"DEBUG RELOAD\r\n");
    wait_for_loading(&mut client, true);
    for line in ["GET key:7", "DBSIZE", "BGSAVE", "DEBUG RELOAD"] {
        assert_eq!(client.show(line), LOADING, "{line}");
    }
    assert_eq!(client.show(&format!("CLIENT KILL ID {id}")), ":1");
    wait_for_loading(&mut client, false);
    let start = Instant::now();
    while client.show("DBSIZE") == LOADING {
        assert!(start.elapsed() < SNAPSHOT_WITHIN, "it does not end");
    }
    assert_eq!(client.show("DBSIZE"), ":300000");
    assert_eq!(client.show("DEBUG RELOAD"), "+OK");
}

#[test]
fn what_was_not_loaded_does_not_take_the_place_of_the_file() {
    let server = Server::kelvin(&ALLOWED);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG POPULATE 1000 key 100"), "+OK");
    assert_eq!(client.show("SAVE"), "+OK");
    let path = server.directory().join("dump.rdb");
    let mut damaged = std::fs::read(&path).expect("the file is there");
    damaged.truncate(damaged.len() / 2);
    std::fs::write(&path, &damaged).expect("the file can be written");
    let failed = "-ERR Error trying to load the RDB dump, check server logs.";
    assert_eq!(client.show("DEBUG RELOAD NOSAVE"), failed);
    client.call(&["CONFIG", "SET", "save", "1 1"]);
    assert_eq!(client.show("SET k v"), "+OK");
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(client.show("BGSAVE").starts_with("-ERR the file could not be loaded"));
    assert_eq!(client.show("SHUTDOWN SAVE"), "-ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(std::fs::read(&path).expect("the file is there"), damaged);
    assert_eq!(client.show("SAVE"), "+OK");
    assert_ne!(std::fs::read(&path).expect("the file is there"), damaged);
    assert_eq!(client.show("BGSAVE"), "+Background saving started");
}

/// A server of 64 MB and a client of it, with so many values that a snapshot takes a while.
fn filled() -> (Server, Client) {
    let options = ["--workers", "1", "--flash-segment-size", "4mb", "--maxmemory", "64mb"];
    let server =
        Server::kelvin_with_flash("1gb", &[&options[..], &ALLOWED[..], &["--save", ""]].concat());
    let mut client = server.connect();
    let value = "v".repeat(1000);
    for first in (0..60_000).step_by(200) {
        (first..first + 200).for_each(|key| client.send(&["SET", &format!("key:{key}"), &value]));
        (0..200).for_each(|_| assert_eq!(show(&client.read()), "+OK"));
    }
    (server, client)
}

/// Has a snapshot begin, up to its moment, which is a little later.
fn begin_snapshot(client: &mut Client) {
    assert_eq!(client.show("BGSAVE"), "+Background saving started");
    while info(client, "current_save_keys_processed") == "0" {
        assert_eq!(info(client, "rdb_bgsave_in_progress"), "1");
    }
}

/// What a snapshot has to save first does not count against a client's write: long strings are saved by the walk, for
/// which the write waits.
#[test]
fn a_write_is_not_refused_for_what_a_snapshot_lacks() {
    const LEN: usize = 7 << 20;
    // The walk comes to the last of the slots when these have been written.
    const NAMES: [&str; 3] = ["{ykq}a", "{ykq}b", "{ykq}c"];
    let (_server, mut client) = filled();
    let deletions = NAMES.map(|name| format!("DEL {name}"));
    let at_once = [format!("DEL {}", NAMES.join(" "))];
    for (transaction, replies) in [(&deletions[..], "[:1 :1 :1]"), (&at_once[..], "[:3]")] {
        for name in NAMES {
            let set = |_| show(&client.call(&["SET", name, &"v".repeat(LEN)]));
            assert!((0..20).map(set).any(|reply| reply == "+OK"));
        }
        client.line("TIER DEMOTE ALL");
        begin_snapshot(&mut client);
        client.line("MULTI");
        transaction.iter().for_each(|line| drop(client.line(line)));
        assert_eq!(client.show("EXEC"), replies);
        wait_for_snapshot(&mut client);
        assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
        assert_eq!(client.show("SAVE"), "+OK");
    }
}

/// A write that stands alone can wait until the snapshot has read what is too large for it.
#[test]
fn a_snapshot_does_not_end_for_a_write_to_values_that_no_request_may_read() {
    let (_server, mut client) = filled();
    // In the last of the slots.
    let names = ["{ykq}a", "{ykq}b", "{ykq}c"];
    for name in names {
        let set = |_| show(&client.call(&["SET", name, &"v".repeat(7 << 20)]));
        assert!((0..20).map(set).any(|reply| reply == "+OK"));
    }
    client.line("TIER DEMOTE ALL");
    begin_snapshot(&mut client);
    assert_eq!(client.show(&format!("DEL {}", names.join(" "))), ":3");
    wait_for_snapshot(&mut client);
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(client.show("DEBUG RELOAD NOSAVE"), "+OK");
    assert_eq!(client.show(&format!("STRLEN {}", names[2])), format!(":{}", 7 << 20));
}

/// What a snapshot has a transaction read does not count as what its own commands read.
#[test]
fn a_command_of_a_transaction_is_not_refused_for_what_a_snapshot_lacks() {
    const ELEMENTS: usize = 14_000;
    let (_server, mut client) = filled();
    let value = "v".repeat(1000);
    // Its slot is the first, which has been saved soon.
    let words = [&["RPUSH", "{06S}list"][..], &[value.as_str(); 100]].concat();
    (0..ELEMENTS / 100).for_each(|_| drop(client.call(&words)));
    // And this is the last, which the walk comes to when the transaction has run.
    assert_eq!(show(&client.call(&["SET", "{ykq}", &"v".repeat(3 << 20)])), "+OK");
    client.line("TIER DEMOTE ALL");
    begin_snapshot(&mut client);
    // All leaves of the list come to less than a request may read, and not with the string. Of a command that
    // writes they are read with the slots held.
    for line in ["MULTI", "DEL {ykq}", "LREM {06S}list 0 nothing", "LLEN {06S}list"] {
        client.line(line);
    }
    assert_eq!(client.show("EXEC"), format!("[:1 :0 :{ELEMENTS}]"));
    wait_for_snapshot(&mut client);
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
}

/// Beyond a bound the names of keys are not kept that are written before the walk comes to them.
#[test]
fn writes_to_very_many_keys_wait_for_the_snapshot_rather_than_end_it() {
    const NAMES: usize = 1_000;
    let (_server, mut client) = filled();
    // In the last of the slots, and of more bytes in all than the bound.
    let name = |number: usize| format!("{{ykq}}{number}:{}", "n".repeat(10_000));
    begin_snapshot(&mut client);
    (0..NAMES).for_each(|number| client.send(&["SET", &name(number), "v"]));
    (0..NAMES).for_each(|_| assert_eq!(show(&client.read()), "+OK"));
    wait_for_snapshot(&mut client);
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(client.show("DBSIZE"), ":61000");
    // It is of the moment when it began.
    assert_eq!(client.show("DEBUG RELOAD NOSAVE"), "+OK");
    assert_eq!(client.show("DBSIZE"), ":60000");
}
