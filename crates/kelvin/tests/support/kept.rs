//! Servers with a journal and flash on one directory, started again and again, and what is written to them.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use stdx::Random;

use super::{Client, Server, text};

/// A test waits no longer than this for what is to happen.
const WITHIN: Duration = Duration::from_secs(60);

/// A server on a directory, with flash and a journal there.
pub fn on_directory(directory: &Path, options: &[&str]) -> Server {
    let dir = directory.to_str().expect("a path in UTF-8");
    let base = [
        "--dir",
        dir,
        "--flash-path",
        dir,
        "--flash-size",
        "512mb",
        "--appendonly",
        "yes",
        "--tier-persistence",
        "yes",
        "--enable-debug-command",
        "yes",
    ];
    Server::kelvin(&[&base, options].concat())
}

/// A field of INFO, as a number.
pub fn field(client: &mut Client, section: &str, name: &str) -> u64 {
    let all = text(&client.call(&["INFO", section]));
    let field = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.and_then(|field| field.parse().ok()).unwrap_or_else(|| panic!("{name}: {all}"))
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WITHIN, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Has a checkpoint taken, and waits for it.
pub fn take_checkpoint(client: &mut Client) {
    let before = field(client, "persistence", "aof_rewrites");
    let reply = client.show("BGREWRITEAOF");
    assert!(reply.starts_with('+'), "{reply}");
    wait_until("a checkpoint ends", || {
        field(client, "persistence", "aof_rewrites") > before
            && field(client, "persistence", "aof_rewrite_in_progress") == 0
    });
    let all = text(&client.call(&["INFO", "persistence"]));
    assert!(all.contains("aof_last_bgrewrite_status:ok"), "{all}");
}

/// Ends a server as it is told to.
pub fn shut_down(server: &mut Server, client: &mut Client) {
    client.send(&["SHUTDOWN"]);
    assert!(client.try_read().is_none());
    assert!(server.wait().success());
}

/// What the key has that was written so often: another value for each, of up to `words_max` numbers, which become no shorter
/// on flash.
pub fn value(key: &str, times: u64, words_max: u64) -> String {
    let seed = key.bytes().fold(times, |seed, byte| stdx::mix(seed ^ u64::from(byte)));
    let mut random = Random::new(seed);
    let words = (0..random.below(words_max)).map(|_| random.next_u64().to_string());
    format!("{times}:{}", words.collect::<String>())
}

/// How often a key was written that has a value, which is the one of then. 0: there is none.
pub fn times_written(client: &mut Client, key: &str, words_max: u64) -> u64 {
    let reply = client.call(&["GET", key]);
    if reply == resp::Frame::NullBulk {
        return 0;
    }
    let found = text(&reply);
    let times = found.split(':').next().and_then(|front| front.parse().ok());
    let times = times.unwrap_or_else(|| panic!("{key}: {found}"));
    assert!(found == value(key, times, words_max), "{key}: not what was written {times} times");
    times
}

/// Runs `kelvin check`. Returns how it ended, and what it told.
pub fn check(words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    let output = command.arg("check").args(words).output().expect("it can be started");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!told.contains("panicked"), "{told}");
    (output.status.code().expect("an exit status"), told)
}
