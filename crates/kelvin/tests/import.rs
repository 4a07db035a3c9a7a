//! `kelvin import`: what a redis-server has saved comes to Kelvin as it was, and what is damaged is told.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::values::{fill_all, told};
use support::{Client, Server, show, text};

/// A test waits no longer than this for Redis to rewrite its log.
const REWRITE_WITHIN: Duration = Duration::from_secs(30);
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// What an import prints, what it complains of, and whether all went well.
fn import(path: &Path, server: &Server, options: &[&str]) -> (String, String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    command.arg("import").arg(path).args(["--port", &server.port().to_string()]).args(options);
    let output = command.output().expect("the program runs");
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (shown(&output.stdout), shown(&output.stderr), output.status.success())
}

fn digest(client: &mut Client) -> String {
    client.show("DEBUG DIGEST")
}

fn wait_for_rewrite(client: &mut Client) {
    let start = Instant::now();
    let is_over = |text: String| {
        ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"]
            .iter()
            .all(|line| text.contains(line))
    };
    while !is_over(text(&client.call(&["INFO", "persistence"]))) {
        assert!(start.elapsed() < REWRITE_WITHIN, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A redis-server with a log, a base and what came since, and a client of it.
fn redis_with_log(preamble: &str) -> (Server, Client, Vec<String>) {
    let log = ["--appendonly", "yes", "--appendfsync", "no", "--aof-timestamp-enabled", "yes"];
    let options = [&DEBUG[..], &log, &["--aof-use-rdb-preamble", preamble]].concat();
    let redis = Server::redis(&options);
    let mut client = redis.connect();
    let mut keys = fill_all(&mut client);
    for line in ["EXPIREAT string0 9999999999", "SELECT 3", "SET other v", "SELECT 0"] {
        client.line(line);
    }
    client.line("BGREWRITEAOF");
    wait_for_rewrite(&mut client);
    for line in [
        "SET since text",
        "MULTI",
        "INCR counter",
        "RPUSH list100 more",
        "EXEC",
        "DEL list2",
        "SELECT 7",
        "HSET there f v",
        "SELECT 0",
        "ZADD zset100 7 member",
        "SETEX later 100000 v",
        "XADD stream100 9999-1 f v",
    ] {
        client.line(line);
    }
    keys.extend(["since", "counter", "later"].map(str::to_owned));
    (redis, client, keys)
}

/// A copy of the directory of the log, to be damaged.
fn copy_log(redis: &Server, name: &str) -> PathBuf {
    let (from, to) = (redis.directory().join("appendonlydir"), redis.directory().join(name));
    std::fs::create_dir(&to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, to.join(name)).expect("it can be copied");
    }
    to
}

/// Another redis-server, which has loaded a copy of the log.
fn redis_again(redis: &Server, copy: &str) -> Server {
    let data = redis.directory().to_str().expect("a path in UTF-8");
    let options = ["--appendonly", "yes", "--dir", data, "--appenddirname", copy];
    Server::redis(&[&DEBUG[..], &options].concat())
}

/// The file of a log that has this in its name.
fn file_of(directory: &Path, part: &str) -> PathBuf {
    let mut paths = std::fs::read_dir(directory).expect("it is there").flatten();
    let found = paths.find(|entry| entry.file_name().to_string_lossy().contains(part));
    found.expect("there is one").path()
}

#[test]
fn a_log_of_several_files_is_imported_as_redis_loads_it() {
    for preamble in ["yes", "no"] {
        let (redis, _, keys) = redis_with_log(preamble);
        // Not all that there was comes back by the commands of a log that was rewritten.
        let directory = copy_log(&redis, "copy");
        let again = redis_again(&redis, "copy");
        let mut of_redis = again.connect();
        let kelvin = Server::kelvin(&DEBUG);
        let mut of_kelvin = kelvin.connect();
        let (out, error, is_right) = import(&directory, &kelvin, &[]);
        assert!(is_right, "{error}");
        assert!(out.contains("2 files"), "{out}");
        assert_eq!(digest(&mut of_kelvin), digest(&mut of_redis), "preamble {preamble}");
        for key in &keys {
            // No command sets when a consumer was last seen.
            let by_commands = preamble == "no" || ["stream4000", "stream10000"].contains(&&key[..]);
            let count = if by_commands && key.starts_with("stream") { 2 } else { 3 };
            let told = |client: &mut Client| {
                let mut told = told(client, key);
                told.truncate(count);
                told
            };
            assert_eq!(told(&mut of_kelvin), told(&mut of_redis), "{key}");
            let line = format!("PEXPIRETIME {key}");
            assert_eq!(of_kelvin.show(&line), of_redis.show(&line), "{key}");
        }
        // A second time the server has keys. The directory of a server names that of its log.
        let (_, error, is_right) = import(redis.directory(), &kelvin, &[]);
        assert!(!is_right && error.contains("--replace"), "{error}");
    }
}

#[test]
fn an_rdb_file_is_imported_in_pieces_into_little_memory() {
    let redis = Server::redis(&DEBUG);
    let mut of_redis = redis.connect();
    let keys = fill_all(&mut of_redis);
    // Each some times what is sent as a whole.
    of_redis.call(&[
        "EVAL",
        "for i = 1, 60000 do
           local member = 'member:' .. i .. ':' .. string.rep('x', 40)
           redis.call('HSET', 'large hash', member, i)
           redis.call('SADD', 'large set', member)
           redis.call('RPUSH', 'large list', member)
           redis.call('ZADD', 'large zset', i * 1.1, member)
           redis.call('XADD', 'large stream', i .. '-1', 'field', member)
         end
         redis.call('SET', 'large string', string.rep('y', 3000000))
         redis.call('XDEL', 'large stream', '60000-1', '17-1')
         redis.call('XGROUP', 'CREATE', 'large stream', 'group', '0')
         redis.call('XREADGROUP', 'GROUP', 'group', 'alice', 'COUNT', 900, 'STREAMS', 'large stream', '>')
         redis.call('XREADGROUP', 'GROUP', 'group', 'bob', 'COUNT', 90, 'STREAMS', 'large stream', '>')
         redis.call('PEXPIREAT', 'large hash', 9999999999999)",
        "0",
    ]);
    assert_eq!(of_redis.show("SAVE"), "+OK");
    let path = redis.directory().join("dump.rdb");
    let options = [&DEBUG[..], &["--maxmemory", "64mb", "--requirepass", "secret"]].concat();
    let kelvin = Server::kelvin_with_flash("512mb", &options);
    let mut of_kelvin = kelvin.connect();
    let (_, error, is_right) = import(&path, &kelvin, &[]);
    assert!(!is_right && error.contains("NOAUTH"), "{error}");
    of_kelvin.line("AUTH secret");
    of_kelvin.line("SET hash1 of-another-type");
    let (_, error, is_right) = import(&path, &kelvin, &["-a", "secret"]);
    assert!(!is_right && error.contains("the server has keys"), "{error}");
    for round in 0..2 {
        let options = ["-a", "secret", "--replace", "--quiet"];
        let (out, error, is_right) = import(&path, &kelvin, &options);
        assert!(is_right && error.is_empty(), "{error}");
        assert!(out.contains("one file"), "{out}");
        assert_eq!(digest(&mut of_kelvin), digest(&mut of_redis), "round {round}");
        assert_eq!(of_kelvin.show("DBSIZE"), of_redis.show("DBSIZE"));
    }
    for key in keys.iter().map(String::as_str).chain(["large hash", "large stream"]) {
        let expiry = |client: &mut Client| show(&client.call(&["PEXPIRETIME", key]));
        assert_eq!(expiry(&mut of_kelvin), expiry(&mut of_redis), "{key}");
    }
    // All of a consumer but when it was last seen, which no command sets.
    for words in [
        &["XPENDING", "large stream", "group"][..],
        &["XINFO", "GROUPS", "large stream"],
        &["XRANGE", "large stream", "-", "+", "COUNT", "50"],
    ] {
        assert_eq!(show(&of_kelvin.call(words)), show(&of_redis.call(words)), "{words:?}");
    }
    let resident = kelvin.resident_bytes();
    assert!(resident < (64 << 20) * 105 / 100, "{resident}");
}

#[test]
fn a_tail_that_a_crash_has_cut_off_is_left_out_as_redis_does() {
    let (redis, mut client, _) = redis_with_log("yes");
    client.line("MULTI");
    client.line("SET in-transaction v");
    client.line("SET in-transaction-too v");
    client.line("EXEC");
    client.line("SET last v");
    let whole = std::fs::read(file_of(&copy_log(&redis, "whole"), "incr")).expect("a file");
    let len = whole.len();
    let position = |text: &str| {
        let found = whole.windows(text.len()).rposition(|bytes| bytes == text.as_bytes());
        found.expect("it is there")
    };
    let cuts = [
        (len - 1, "a command"),
        (len - 20, "a command"),
        (position("EXEC") - 3, "a transaction"),
        (position("in-transaction-too"), "a transaction"),
    ];
    for (number, (cut, what)) in cuts.into_iter().enumerate() {
        let directory = copy_log(&redis, &format!("cut{number}"));
        let path = file_of(&directory, "incr");
        std::fs::write(&path, &whole[..cut]).expect("it can be written");
        let kelvin = Server::kelvin(&DEBUG);
        let (_, error, is_right) = import(&directory, &kelvin, &["--strict"]);
        let told = format!("{} at byte ", path.display());
        assert!(!is_right && error.contains(&told) && error.contains(what), "{error}");
        // What was on its way to the other may come to it yet.
        let kelvin = Server::kelvin(&DEBUG);
        let (_, error, is_right) = import(&directory, &kelvin, &[]);
        assert!(is_right && error.contains("are left out") && error.contains(what), "{error}");
        // Redis cuts the file back in the same place.
        let again = redis_again(&redis, &format!("cut{number}"));
        assert_eq!(digest(&mut kelvin.connect()), digest(&mut again.connect()), "{cut}");
    }
}

/// Damages a file.
type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn damage_is_told_with_its_file_and_place() {
    let (redis, mut client, _) = redis_with_log("yes");
    client.line("SET last v");
    let damage = |name: &str, part: &str, change: Change<'_>| {
        let directory = copy_log(&redis, name);
        let path = file_of(&directory, part);
        let mut bytes = std::fs::read(&path).expect("a file");
        change(&mut bytes);
        std::fs::write(&path, bytes).expect("it can be written");
        (directory, path)
    };
    let flip_sum = |bytes: &mut Vec<u8>| *bytes.last_mut().expect("bytes") ^= 1;
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    // "$4" of DEL's key "list2" says another length.
    let lengthen = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(9).position(|bytes| bytes == b"$3\r\nDEL\r\n").expect("a DEL");
        bytes[at + 1] = b'2';
    };
    let unknown = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(5).position(|bytes| bytes == b"\r\nDEL").expect("a DEL");
        bytes[at + 2] = b'X';
    };
    let nonsense = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(5).position(|bytes| bytes == b"\r\nDEL").expect("a DEL");
        let head = bytes[..at].iter().rposition(|byte| *byte == b'*').expect("its head");
        bytes[head] = b'?';
    };
    let cases: [(&str, &str, Change<'_>, &str); 5] = [
        ("sum", "base", &flip_sum, "malformed checksum"),
        ("short", "base", &cut, "the input ends early"),
        ("long", "incr", &lengthen, "an argument that is longer than it says"),
        ("unknown", "incr", &unknown, "XEL: the server says: ERR unknown command"),
        ("head", "incr", &nonsense, "in place of * and a number"),
    ];
    for (name, part, change, reason) in cases {
        let (directory, path) = damage(name, part, change);
        let kelvin = Server::kelvin(&DEBUG);
        let (_, error, is_right) = import(&directory, &kelvin, &[]);
        let told = format!("{} at byte ", path.display());
        assert!(!is_right && error.contains(&told) && error.contains(reason), "{name}: {error}");
    }
    let kelvin = Server::kelvin(&DEBUG);
    let missing = copy_log(&redis, "missing");
    std::fs::remove_file(file_of(&missing, "base")).expect("it is there");
    let (_, error, is_right) = import(&missing, &kelvin, &[]);
    assert!(!is_right && error.contains("base.rdb: No such file"), "{error}");
    let (_, error, is_right) = import(kelvin.directory(), &kelvin, &[]);
    assert!(!is_right && error.contains("there is no manifest"), "{error}");
}
