//! Files that are loaded: collections of any size within little memory, and what clients are told meanwhile.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, show, text};

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];
const MAXMEMORY: u64 = 64 << 20;
/// A test waits no longer than this for a server to load.
const LOADED_WITHIN: Duration = Duration::from_secs(120);

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn info(client: &mut Client, section: &str, name: &str) -> String {
    let all = text(&client.call(&["INFO", section]));
    let field = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("{name}: {all}")).to_owned()
}

/// The most that was resident of a server. Units: bytes.
fn resident_peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("the kernel tells it in kB") << 10
}

/// Has the kernel begin its mark anew.
fn reset_resident_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("Linux 4.0");
}

/// What makes a large collection of each type: with how many elements, and by which command of element `i`, of which
/// `text` is long and tells it from all others.
const COLLECTIONS: [(&str, usize, &str); 5] = [
    ("hash", 600_000, "redis.call('HSET', KEYS[1], 'field:' .. i, text)"),
    ("set", 300_000, "redis.call('SADD', KEYS[1], text)"),
    ("list", 600_000, "redis.call('RPUSH', KEYS[1], text)"),
    ("zset", 300_000, "redis.call('ZADD', KEYS[1], (i * 7919) % 1000003, text)"),
    ("stream", 300_000, "redis.call('XADD', KEYS[1], i .. '-1', 'field', text)"),
];

/// Pending entries without the third of their four fields, which grows between two requests.
fn without_idle_time(shown: &str) -> Vec<String> {
    let fields = shown.split(' ').enumerate();
    fields.filter(|(index, _)| index % 4 != 2).map(|(_, field)| field.to_owned()).collect()
}

#[test]
fn large_collections_are_loaded_in_little_memory() {
    let redis = Server::redis(&DEBUG);
    let mut of_redis = redis.connect();
    for (key, count, command) in COLLECTIONS {
        let script = format!(
            "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
               local text = redis.sha1hex('{key}' .. i) .. redis.sha1hex(i .. 'more')
               {command}
             end"
        );
        for first in (1..=count).step_by(100_000) {
            let (from, to) = (first.to_string(), (first + 99_999).min(count).to_string());
            of_redis.call(&["EVAL", &script, "1", key, &from, &to]);
        }
    }
    for line in [
        "XGROUP CREATE stream group 0 ENTRIESREAD 5",
        "XGROUP CREATE stream idle $",
        "PEXPIREAT hash 9999999999999",
    ] {
        of_redis.line(line);
    }
    for (consumer, count) in [("alice", "50000"), ("bob", "1"), ("alice", "20000")] {
        let words = ["XREADGROUP", "GROUP", "group", consumer, "COUNT", count];
        of_redis.call(&[&words[..], &["STREAMS", "stream", ">"]].concat());
    }
    assert_eq!(of_redis.show("SAVE"), "+OK");
    let dir = path_text(redis.directory());
    let options = ["--maxmemory", "64mb", "--workers", "2", "--dir", dir];
    let kelvin = Server::kelvin_with_flash("2gb", &[&options[..], &DEBUG].concat());
    let mut of_kelvin = kelvin.connect();
    let peak = resident_peak_bytes(&kelvin);
    assert!(peak < MAXMEMORY * 105 / 100, "{peak}");
    for (key, count, _) in COLLECTIONS {
        let line = format!("DEBUG DIGEST-VALUE {key}");
        assert_eq!(of_kelvin.show(&line), of_redis.show(&line), "{key}");
        let command = match key {
            "hash" => "HLEN",
            "set" => "SCARD",
            "list" => "LLEN",
            "zset" => "ZCARD",
            _ => "XLEN",
        };
        assert_eq!(of_kelvin.show(&format!("{command} {key}")), format!(":{count}"));
        for line in ["OBJECT ENCODING", "PEXPIRETIME", "TYPE"] {
            let line = format!("{line} {key}");
            assert_eq!(of_kelvin.show(&line), of_redis.show(&line), "{line}");
        }
    }
    for line in [
        "XPENDING stream group",
        "XINFO GROUPS stream",
        "ZRANGE zset 1000 1010 WITHSCORES",
        "ZRANK zset 5b1f9cb4dbc5bd1ad2a2c8fa1b0b6c6c6f2c9e4d",
        "LINDEX list 599999",
        "HGET hash field:123456",
    ] {
        assert_eq!(of_kelvin.show(line), of_redis.show(line), "{line}");
    }
    for range in ["69990-1 + 20", "- + 20 bob"] {
        let line = format!("XPENDING stream group {range}");
        let pending = |client: &mut Client| without_idle_time(&client.show(&line));
        assert_eq!(pending(&mut of_kelvin), pending(&mut of_redis), "{line}");
    }
    // And once more, on top of what is there. What is resident while digests are made is not this test's.
    reset_resident_peak(&kelvin);
    assert_eq!(of_kelvin.show("DEBUG RELOAD"), "+OK");
    let peak = resident_peak_bytes(&kelvin);
    assert!(peak < MAXMEMORY * 105 / 100, "{peak}");
    let line = "DEBUG DIGEST-VALUE hash set list zset stream";
    assert_eq!(of_kelvin.show(line), of_redis.show(line));
}

#[test]
fn fields_that_expire_are_loaded_in_pieces() {
    let server = Server::kelvin(&DEBUG);
    let mut client = server.connect();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0");
    for first in (0..30_000).step_by(100) {
        let words: Vec<String> = (first..first + 100)
            .flat_map(|number| [format!("field:{number}"), "v".repeat(40)])
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        client.call(&[&["HSET", "hash"][..], &words].concat());
    }
    client.line("HPEXPIREAT hash 9999999999999 FIELDS 2 field:7 field:29999");
    // All that come first in the file but for some.
    for number in 0..3_000 {
        // The one that is kept must be there still when it is.
        let ms = if number == 8 { "1000000" } else { "30" };
        client.send(&["HPEXPIRE", "hash", ms, "FIELDS", "1", &format!("field:{number}")]);
    }
    (0..3_000).for_each(|_| drop(client.read()));
    client.line("HPERSIST hash FIELDS 1 field:8");
    assert_eq!(client.show("SAVE"), "+OK");
    std::thread::sleep(Duration::from_millis(40));
    let other = Server::kelvin(&["--dir", path_text(server.directory())]);
    let mut client = other.connect();
    assert_eq!(
        client.show("HPEXPIRETIME hash FIELDS 3 field:8 field:29999 field:9"),
        "[:-1 :9999999999999 :-2]"
    );
    let start = Instant::now();
    while client.show("HLEN hash") != ":27001" {
        assert!(start.elapsed() < LOADED_WITHIN, "{}", client.show("HLEN hash"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_element_that_is_there_twice_is_told_wherever_it_stands() {
    let kelvin = Server::kelvin(&[]);
    let path = kelvin.directory().join("dump.rdb");
    // Types 2 and 4: a number of members, or of fields with values, of 12 bytes each. The last is the first again.
    for (object_type, per_element) in [(2u8, 1), (4, 2)] {
        let mut bytes = [b"REDIS0003", &[object_type, 1, b'k'][..]].concat();
        let count: u32 = 20_000;
        bytes.push(0x80);
        bytes.extend((count + 1).to_be_bytes());
        for number in (0..count).chain([0]) {
            for _ in 0..per_element {
                bytes.push(12);
                bytes.extend(format!("{number:012}").as_bytes());
            }
        }
        bytes.push(0xff);
        std::fs::write(&path, bytes).expect("it can be written");
        let log = Server::failed_kelvin(&["--dir", path_text(kelvin.directory())]);
        assert!(
            log.contains("the key k of database 0") && log.contains("an element twice"),
            "{log}"
        );
    }
}

#[test]
fn an_element_too_large_to_be_loaded_is_told() {
    let server = Server::kelvin(&["--maxmemory-clients", "64mb"]);
    let mut client = server.connect();
    client.call(&["RPUSH", "list", &"x".repeat(3_000_000), "y"]);
    for _ in 0..40 {
        client.call(&[&["RPUSH", "list"][..], &["some element"; 1_000]].concat());
    }
    assert_eq!(client.show("SAVE"), "+OK");
    let dir = ["--dir", path_text(server.directory())];
    let log = Server::failed_kelvin(&[&dir[..], &["--maxmemory-clients", "2mb"]].concat());
    assert!(log.contains("start with a larger maxmemory-clients"), "{log}");
    assert!(!log.contains("move it away"), "{log}");
    // All of it may be larger than a request.
    client.line("LPOP list");
    assert_eq!(client.show("SAVE"), "+OK");
    let other = Server::kelvin(&[&dir[..], &["--maxmemory-clients", "256kb"]].concat());
    assert_eq!(other.connect().show("LLEN list"), ":40001");
}

/// What was taken is loaded again, though it does not fit at once beside what is resident by then.
#[test]
fn large_values_are_loaded_where_they_were_saved() {
    let options = ["--maxmemory", "64mb", "--workers", "2"];
    let server = Server::kelvin_with_flash("1gb", &options);
    let mut client = server.connect();
    for first in (0..200_000).step_by(1_000) {
        (first..first + 1_000).for_each(|number: usize| {
            client.send(&["SET", &format!("key:{number}"), &"v".repeat(100)]);
        });
        (0..1_000).for_each(|_| assert_eq!(show(&client.read()), "+OK"));
    }
    let large = |seed: u8| -> String { (0..12 << 20).map(|at: usize| letter(at, seed)).collect() };
    let strings = [large(1), large(2)];
    let mut taken = Vec::new();
    for (name, string) in ["a", "b"].into_iter().zip(&strings) {
        // It may be refused at this size, and then is not there.
        if show(&client.call(&["SET", name, string])) == "+OK" {
            taken.push((name, string));
        }
    }
    assert!(!taken.is_empty());
    let element = "e".repeat(8 << 20);
    let elements = usize::from(show(&client.call(&["HSET", "hash", "field", &element])) == ":1");
    assert_eq!(client.show("SAVE"), "+OK");
    let dir = ["--dir", path_text(server.directory())];
    let other = Server::kelvin_with_flash("1gb", &[&options[..], &dir].concat());
    let mut client = other.connect();
    assert_eq!(client.show("DBSIZE"), format!(":{}", 200_000 + elements + taken.len()));
    for (name, string) in taken {
        assert_eq!(client.show(&format!("STRLEN {name}")), format!(":{}", string.len()));
    }
    assert_eq!(client.show("EXISTS hash"), format!(":{elements}"));
}

/// A letter of a text that is not easily compressed.
fn letter(at: usize, seed: u8) -> char {
    let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ u64::from(seed) << 32);
    char::from(b'a' + (mixed >> 40) as u8 % 26)
}

/// A server that has not loaded its file yet, and a client of it.
struct LoadingServer {
    process: std::process::Child,
    socket: std::path::PathBuf,
}

impl LoadingServer {
    fn start(dir: &Path, options: &[&str]) -> LoadingServer {
        let socket = dir.join("loading.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
        command.args(["server", "--port", "0", "--bind", "127.0.0.1", "--dir", path_text(dir)]);
        command.arg("--unixsocket").arg(&socket).args(options).stdout(std::process::Stdio::null());
        let process = command.spawn().expect("the program starts");
        LoadingServer { process, socket }
    }

    fn connect(&self) -> Client {
        let start = Instant::now();
        loop {
            if let Some(client) = Client::of_socket(&self.socket) {
                return client;
            }
            assert!(start.elapsed() < LOADED_WITHIN, "it does not listen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for LoadingServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn clients_are_told_that_the_file_is_being_loaded() {
    let server = Server::kelvin(&DEBUG);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG POPULATE 400000 key 100"), "+OK");
    assert_eq!(client.show("SAVE"), "+OK");
    let file_bytes = std::fs::metadata(server.directory().join("dump.rdb")).expect("a file").len();
    let loading = LoadingServer::start(server.directory(), &["--save", "1 1"]);
    let mut client = loading.connect();
    const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
    for line in ["GET key:7", "SET k v", "DBSIZE", "PING", "KEYS *", "BGSAVE"] {
        assert_eq!(client.show(line), LOADING, "{line}");
    }
    for line in ["MULTI", "SET k v"] {
        client.line(line);
    }
    let refused = client.show("EXEC");
    assert!(refused.starts_with("-EXECABORT"), "{refused}");
    assert_eq!(client.show("CONFIG GET maxmemory-samples"), "[$maxmemory-samples $5]");
    assert_eq!(client.show("CLIENT SETNAME me"), "+OK");
    assert_eq!(info(&mut client, "persistence", "loading"), "1");
    assert_eq!(info(&mut client, "persistence", "async_loading"), "0");
    let figure = |client: &mut Client, name: &str| {
        info(client, "persistence", name).parse::<f64>().expect("a number")
    };
    assert_eq!(figure(&mut client, "loading_total_bytes") as u64, file_bytes);
    assert!(figure(&mut client, "loading_start_time") > 1.7e9);
    // The thread that reads the file comes to it in a moment.
    let start = Instant::now();
    while figure(&mut client, "loading_rdb_used_mem") < 1e6 {
        assert!(start.elapsed() < LOADED_WITHIN, "the file does not say");
    }
    let mut last = 0.0;
    while info(&mut client, "persistence", "loading") == "1" {
        let all = text(&client.call(&["INFO", "persistence"]));
        let value = |name: &str| {
            let found = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.map(|text| text.parse::<f64>().expect("a number"))
        };
        let Some(loaded) = value("loading_loaded_bytes") else { break };
        assert!(loaded >= last && loaded <= file_bytes as f64, "{last} {loaded}");
        let part = value("loading_loaded_perc").expect("it is told");
        assert!((part - 100.0 * loaded / file_bytes as f64).abs() < 0.01, "{all}");
        assert!(value("loading_eta_seconds").is_some(), "{all}");
        last = loaded;
    }
    let start = Instant::now();
    while client.show("DBSIZE") != ":400000" {
        assert!(start.elapsed() < LOADED_WITHIN, "it does not end");
    }
    assert_eq!(client.show("GET key:7").len(), "$".len() + 100);
    let after = text(&client.call(&["INFO", "persistence"]));
    assert!(after.contains("loading:0") && !after.contains("loading_total_bytes"), "{after}");
}

#[test]
fn a_server_that_loads_can_be_stopped() {
    let server = Server::kelvin(&DEBUG);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG POPULATE 400000 key 100"), "+OK");
    assert_eq!(client.show("SAVE"), "+OK");
    let path = server.directory().join("dump.rdb");
    let whole = std::fs::read(&path).expect("the file is there");
    let mut loading = LoadingServer::start(server.directory(), &["--save", "1 1"]);
    let mut client = loading.connect();
    // What there is takes no file's place, though there are save points.
    client.write(b"SHUTDOWN\r\n");
    assert_eq!(client.try_read(), None);
    assert!(loading.process.wait().expect("it ends").success());
    assert!(std::fs::read(&path).expect("the file is there") == whole);
}

#[test]
fn writes_are_refused_after_a_snapshot_has_failed() {
    let options = ["--enable-protected-configs", "yes", "--save", "3600 1000000"];
    let (kelvin, redis) = (Server::kelvin(&options), Server::redis(&options));
    // `Server::redis` has said that there are none.
    redis.connect().call(&["CONFIG", "SET", "save", "3600 1000000"]);
    let mut replies: [Vec<String>; 2] = Default::default();
    for (server, replies) in [&kelvin, &redis].into_iter().zip(&mut replies) {
        let mut client = server.connect();
        let gone = server.directory().join("gone");
        std::fs::create_dir(&gone).expect("a directory");
        client.call(&["CONFIG", "SET", "dir", path_text(&gone)]);
        std::fs::remove_dir(&gone).expect("it is empty");
        let mut note = |client: &mut Client, line: &str| replies.push(client.show(line));
        for line in ["SET k v", "BGSAVE"] {
            note(&mut client, line);
        }
        let start = Instant::now();
        while info(&mut client, "persistence", "rdb_last_bgsave_status") != "err" {
            assert!(start.elapsed() < LOADED_WITHIN, "it does not fail");
            std::thread::sleep(Duration::from_millis(5));
        }
        for line in [
            "SET k w",
            "GET k",
            "PING",
            "DEL k",
            "ECHO hello",
            "PUBLISH channel message",
            "MULTI",
            "SET k x",
            "EXEC",
            "MULTI",
            "GET k",
            "EXEC",
            "CONFIG SET stop-writes-on-bgsave-error no",
            "SET k y",
            "MULTI",
            "SET k z",
            "CONFIG SET stop-writes-on-bgsave-error yes",
            "EXEC",
            "SET k a",
            "CONFIG SET save \"\"",
            "SET k b",
            "PING",
            "CONFIG SET save \"3600 1000000\"",
            "SET k c",
        ] {
            note(&mut client, line);
        }
        // One that is waited for cures it.
        client.call(&["CONFIG", "SET", "dir", path_text(server.directory())]);
        for line in ["SAVE", "SET k d", "PING"] {
            note(&mut client, line);
        }
        assert_eq!(info(&mut client, "persistence", "rdb_last_bgsave_status"), "ok");
    }
    let [of_kelvin, of_redis] = replies;
    assert!(of_redis.iter().any(|reply| reply.starts_with("-MISCONF")), "{of_redis:?}");
    assert_eq!(of_kelvin, of_redis);
}

/// A collection that is on flash is saved some leaves at a time; who writes to it waits, and nobody else.
#[test]
fn a_write_to_a_large_cold_collection_waits_for_a_snapshot_alone() {
    const FIELDS: usize = 300_000;
    let options = ["--workers", "1", "--maxmemory", "64mb", "--save", ""];
    let server = Server::kelvin_with_flash("1gb", &[&options[..], &DEBUG].concat());
    let mut client = server.connect();
    client.line("DEBUG POPULATE 100000 key 200");
    // In the last of the slots.
    let hash = "{ykq}hash";
    for first in (0..FIELDS).step_by(500) {
        let words: Vec<String> = (first..(first + 500).min(FIELDS))
            .flat_map(|number| [number.to_string(), format!("{number}:{}", "v".repeat(100))])
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        client.call(&[&["HSET", hash][..], &words].concat());
    }
    client.line("TIER DEMOTE ALL");
    let filled = resident_peak_bytes(&server);
    let mut writer = server.connect();
    assert_eq!(client.show("BGSAVE"), "+Background saving started");
    while info(&mut client, "persistence", "current_save_keys_processed") == "0" {}
    writer.send(&["HSET", hash, "7", "changed"]);
    let mut in_transaction = server.connect();
    for line in ["MULTI", "SET beside v", &format!("HDEL {hash} 8")] {
        in_transaction.line(line);
    }
    in_transaction.send(&["EXEC"]);
    let mut longest = Duration::ZERO;
    let mut number = 0;
    while info(&mut client, "persistence", "rdb_bgsave_in_progress") == "1" {
        let start = Instant::now();
        assert_eq!(client.show(&format!("SET key:{} {number}", number % 100_000)), "+OK");
        assert_eq!(client.show(&format!("HGET {hash} 11")).len(), "$11:".len() + 100);
        longest = longest.max(start.elapsed());
        number += 1;
    }
    assert!(matches!(writer.read(), Frame::Integer(0)));
    assert_eq!(show(&in_transaction.read()), "[+OK :1]");
    assert_eq!(
        info(&mut client, "persistence", "rdb_last_bgsave_status"),
        "ok",
        "{}",
        server.log()
    );
    assert!(longest < Duration::from_millis(500), "{longest:?} {number}");
    let peak = resident_peak_bytes(&server);
    assert!(peak < MAXMEMORY * 105 / 100, "{peak}, {filled} before it");
    // What is saved is of the moment before.
    let redis = Server::redis(&["--dir", path_text(server.directory())]);
    let mut of_redis = redis.connect();
    assert_eq!(of_redis.show(&format!("HLEN {hash}")), format!(":{FIELDS}"));
    assert_eq!(of_redis.show(&format!("HGET {hash} 7")).len(), "$7:".len() + 100);
    assert_eq!(of_redis.show("EXISTS beside"), ":0");
    assert_eq!(of_redis.show("DBSIZE"), ":100001");
    assert_eq!(client.show(&format!("HGET {hash} 7")), "$changed");
    assert_eq!(client.show(&format!("HLEN {hash}")), format!(":{}", FIELDS - 1));
}

/// A server that was filled until it refused writes starts again within the same `maxmemory`, from its journal and from
/// its dump: what was resident when it was filled may have been a little less.
#[test]
fn what_fills_memory_without_flash_is_loaded_again() {
    for value_bytes in [200, 200_000, 1 << 20] {
        for by_dump in [false, true] {
            let mut options = vec!["--maxmemory", "64mb", "--workers", "2"];
            if !by_dump {
                options.extend(["--appendonly", "yes", "--appendfsync", "always"]);
            }
            let mut server = Server::kelvin(&options);
            let taken = fill_until_refused(&mut server.connect(), value_bytes);
            assert!(taken * value_bytes > 24 << 20, "{taken} of {value_bytes}");
            if by_dump {
                assert_eq!(server.connect().show("SAVE"), "+OK");
            }
            server.kill();
            let dir = ["--dir", path_text(server.directory())];
            let other = Server::kelvin(&[&options[..], &dir].concat());
            assert_eq!(other.connect().show("DBSIZE"), format!(":{taken}"), "{value_bytes}");
            let peak = resident_peak_bytes(&other);
            // A load may use an eighth and a journal a quarter more where nothing else helps.
            assert!(peak <= MAXMEMORY * 9 / 8, "{peak} bytes resident, values of {value_bytes}");
        }
    }
}

/// Writes values of so many bytes until they stay refused. Returns how many were taken.
fn fill_until_refused(client: &mut Client, value_bytes: usize) -> usize {
    const REFUSED_MAX: usize = 20;
    let at_once = ((1 << 20) / value_bytes).clamp(1, 500);
    let (mut number, mut taken, mut refused) = (0, 0, 0);
    while refused < REFUSED_MAX {
        for _ in 0..at_once {
            let value: String = (0..value_bytes).map(|at| letter(at, number as u8)).collect();
            client.send(&["SET", &format!("key:{number}"), &value]);
            number += 1;
        }
        let replies: Vec<String> = (0..at_once).map(|_| show(&client.read())).collect();
        let new = replies.iter().filter(|reply| *reply == "+OK").count();
        taken += new;
        refused = if new == 0 { refused + 1 } else { 0 };
    }
    taken
}

/// Some versions of Redis have saved them.
#[test]
fn empty_collections_are_passed_over() {
    let mut file = b"REDIS0011".to_vec();
    let values: [(&[u8], u8, &[u8]); 8] = [
        (b"list", 1, b"\x00"),
        (b"packed list", 18, b"\x01\x02\x07\x07\0\0\0\0\0\xff"),
        (b"set", 2, b"\x00"),
        (b"numbers", 11, b"\x08\x02\0\0\0\0\0\0\0"),
        (b"full", 2, b"\x01\x01m"),
        (b"sorted", 5, b"\x00"),
        (b"packed\nhash", 16, b"\x07\x07\0\0\0\0\0\xff"),
        (b"text", 0, b"\x01t"),
    ];
    for (key, kind, value) in values {
        file.extend([kind, key.len() as u8]);
        file.extend([key, value].concat());
    }
    file.extend([&b"\xff"[..], &[0; 8]].concat());
    let owner = Server::kelvin(&[]);
    let dir = owner.directory();
    std::fs::write(dir.join("dump.rdb"), file).expect("it can be written");
    let server = Server::kelvin(&["--dir", path_text(dir)]);
    let mut client = server.connect();
    assert_eq!(client.show("DBSIZE"), ":2");
    assert_eq!(client.show("SMEMBERS full"), "[$m]");
    assert_eq!(client.show("GET text"), "$t");
    let kelvin = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
        let output = command.args(arguments).output().expect("the program runs");
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output.stderr));
        shown(&output.stderr)
    };
    kelvin(&["check", "--dir", path_text(dir)]);
    let (path, port) = (dir.join("dump.rdb"), owner.port().to_string());
    let told = kelvin(&["import", path_text(&path), "--port", &port]);
    assert_eq!(told.matches("passed over: an empty key").count(), 6, "{told}");
    assert!(told.contains("packed\\nhash"), "{told}");
    assert_eq!(owner.connect().show("DBSIZE"), ":2");
}
