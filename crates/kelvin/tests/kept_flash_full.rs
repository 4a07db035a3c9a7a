//! A flash that is full of what a checkpoint refers to: the next one is taken for the room that it makes, and one that fails
//! keeps nobody waiting and loses nothing.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use stdx::Random;
use support::kept::{field, on_directory, take_checkpoint, times_written, value, wait_until};
use support::{Client, Server, show, text};

/// Values of 4 kB on average, of which there are 28 MB.
const KEYS: u64 = 7_000;
const WORDS_MAX: u64 = 400;
/// Writes of a step.
const AT_ONCE: usize = 50;
/// The journal has written what was answered.
const JOURNALED_WITHIN: Duration = Duration::from_millis(100);
/// A write is answered within this, be it refused.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Values longer than a segment, and elements of a hash for which a checkpoint must have memory: 12 MB.
const LONG_KEYS: u64 = 3;
const LONG_WORDS: u64 = 150_000;
const ELEMENTS: u64 = 5;
const ELEMENT_WORDS: u64 = 35_000;

/// RAM for half of the values, and a flash that has room for a third of them to be written over.
const OPTIONS: [&str; 10] = [
    "--maxmemory",
    "40mb",
    "--flash-size",
    "62mb",
    "--flash-segment-size",
    "512kb",
    "--workers",
    "2",
    "--auto-aof-rewrite-percentage",
    "0",
];

const FLASH_BYTES: u64 = 62 << 20;
/// Steps of writes within which as much reaches flash.
const ROUNDS_MAX: usize = 3_000;

/// How often each key was written.
type Written = BTreeMap<String, u64>;

/// Writes some keys anew. Returns how many were refused, all of which for want of memory.
fn write_some(client: &mut Client, written: &mut Written, random: &mut Random) -> usize {
    let keys: Vec<String> = (0..AT_ONCE).map(|_| format!("key:{}", random.below(KEYS))).collect();
    let mut refused = 0;
    for key in &keys {
        let start = Instant::now();
        let times = written.get(key).copied().unwrap_or(0) + 1;
        match client.call(&["SET", key, &value(key, times, WORDS_MAX)]) {
            Frame::Error(text) => {
                let text = String::from_utf8_lossy(&text);
                assert!(text.starts_with("OOM command not allowed"), "{text}");
                refused += 1;
            }
            reply => {
                assert_eq!(show(&reply), "+OK");
                written.insert(key.clone(), times);
            }
        }
        assert!(start.elapsed() < ANSWERED_WITHIN, "{:?}", start.elapsed());
    }
    refused
}

fn check_all(client: &mut Client, written: &Written) {
    for (key, times) in written {
        assert_eq!(times_written(client, key, WORDS_MAX), *times, "{key}");
    }
}

/// There must be memory for these, which is refused to them while all is full.
fn check_long(client: &mut Client) {
    for number in 0..LONG_KEYS {
        let key = format!("long:{number}");
        wait_until("there is memory", || match client.call(&["GET", &key]) {
            Frame::Error(text) => {
                assert!(text.starts_with(b"OOM command not allowed"), "{}", text.escape_ascii());
                false
            }
            found => {
                assert!(text(&found) == long_value(number, LONG_WORDS), "{key}");
                true
            }
        });
    }
    for number in 0..ELEMENTS {
        let found = text(&client.call(&["HGET", "hash", &number.to_string()]));
        assert!(found == long_value(number, ELEMENT_WORDS), "element {number}");
    }
}

/// A value of 20 bytes a word.
fn long_value(seed: u64, words: u64) -> String {
    let mut random = Random::new(seed);
    (0..words).map(|_| format!("{:020}", random.next_u64())).collect()
}

/// Values for which RAM is too small, and a checkpoint that refers to most of them.
fn fill(client: &mut Client, written: &mut Written) {
    for number in 0..KEYS {
        let key = format!("key:{number}");
        assert_eq!(show(&client.call(&["SET", &key, &value(&key, 1, WORDS_MAX)])), "+OK");
        written.insert(key, 1);
    }
    for number in 0..LONG_KEYS {
        let (key, value) = (format!("long:{number}"), long_value(number, LONG_WORDS));
        assert_eq!(show(&client.call(&["SET", &key, &value])), "+OK");
    }
    for number in 0..ELEMENTS {
        let (field, value) = (number.to_string(), long_value(number, ELEMENT_WORDS));
        assert_eq!(show(&client.call(&["HSET", "hash", &field, &value])), ":1");
    }
    client.line("TIER DEMOTE ALL");
    take_checkpoint(client);
}

#[test]
fn checkpoints_are_taken_for_the_room_that_they_make() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &OPTIONS);
    let mut client = server.connect();
    let (mut written, mut random) = (Written::new(), Random::new(3));
    fill(&mut client, &mut written);
    let before = field(&mut client, "persistence", "aof_rewrites");
    let appended = |client: &mut Client| field(client, "tiering", "flash_append_bytes");
    let (appended_before, mut rounds) = (appended(&mut client), 0);
    // As much as the flash has.
    while appended(&mut client) - appended_before < FLASH_BYTES {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
        rounds += 1;
        assert!(rounds < ROUNDS_MAX, "they hardly reach flash");
    }
    let taken = field(&mut client, "persistence", "aof_rewrites") - before;
    assert!((2..60).contains(&taken), "{taken} checkpoints");
    check_all(&mut client, &written);
    server.kill();
    let server = on_directory(owner.directory(), &OPTIONS);
    let mut client = server.connect();
    check_all(&mut client, &written);
    check_long(&mut client);
}

/// How a checkpoint is kept from being taken.
struct Obstacle(PathBuf);

impl Obstacle {
    /// A directory where the journal wants to make a file.
    fn new(server: &Server, directory: &Path, name: &str) -> Obstacle {
        let name = name.replace("PID", &server.pid().to_string());
        let path = directory.join("appendonlydir").join(name);
        fs::create_dir(&path).expect("a directory");
        Obstacle(path)
    }

    fn remove(self) {
        fs::remove_dir(&self.0).expect("it is there");
    }
}

#[test]
fn a_full_flash_beside_checkpoints_that_do_not_begin_refuses_writes_and_loses_nothing() {
    check_full_flash("temp-PID.rdb");
}

/// Nobody knows whether they are in place.
#[test]
fn a_full_flash_beside_checkpoints_that_fail_in_the_end_refuses_writes_and_loses_nothing() {
    check_full_flash("manifest.new");
}

/// Writes until as many writes are refused.
fn fill_up(client: &mut Client, written: &mut Written, random: &mut Random, refusals: usize) {
    let mut refused = 0;
    for _ in 0..1_500 {
        refused += write_some(client, written, random);
        if refused >= refusals {
            return;
        }
    }
    panic!("flash is not full: {refused} refused");
}

fn check_full_flash(obstacle: &str) {
    let owner = Server::kelvin(&[]);
    // So that it has no room for what RAM has none for, however little of that there is.
    let options = [&OPTIONS[..], &["--flash-size", "50mb"]].concat();
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let (mut written, mut random) = (Written::new(), Random::new(4));
    fill(&mut client, &mut written);
    let obstacle = Obstacle::new(&server, owner.directory(), obstacle);
    fill_up(&mut client, &mut written, &mut random, 100);
    assert!(field(&mut client, "tiering", "flash_segments_held") > 0);
    check_all(&mut client, &written);
    // A start finds the checkpoint before, and all that was written behind it.
    server.kill();
    obstacle.remove();
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    check_all(&mut client, &written);
    let obstacle = Obstacle::new(&server, owner.directory(), "manifest.new");
    fill_up(&mut client, &mut written, &mut random, 1);
    // It gets on when checkpoints do.
    obstacle.remove();
    let is_taken = |client: &mut Client| {
        let all = text(&client.call(&["INFO", "persistence"]));
        all.contains("aof_last_bgrewrite_status:ok")
    };
    wait_until("a checkpoint is taken", || {
        thread::sleep(Duration::from_millis(50));
        is_taken(&mut client) || {
            write_some(&mut client, &mut written, &mut random);
            false
        }
    });
    for _ in 0..100 {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
    }
    check_all(&mut client, &written);
    server.kill();
    let server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    check_all(&mut client, &written);
    check_long(&mut client);
}

#[test]
fn a_start_that_needs_more_flash_than_is_free_of_its_checkpoint_has_it_for_a_while() {
    let owner = Server::kelvin(&[]);
    let less = ["--flash-size", "46mb"];
    let options = [&OPTIONS[..], &less].concat();
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let (mut written, mut random) = (Written::new(), Random::new(6));
    fill(&mut client, &mut written);
    // All is in RAM that comes behind the checkpoint, the last one, and not all of it can be at the start.
    let obstacle = Obstacle::new(&server, owner.directory(), "temp-PID.rdb");
    assert_eq!(client.show("CONFIG SET maxmemory 512mb"), "+OK");
    for _ in 0..350 {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
    }
    thread::sleep(JOURNALED_WITHIN);
    server.kill();
    obstacle.remove();
    let is_larger = "flash is larger than flash-size";
    for is_first in [true, false] {
        server = on_directory(owner.directory(), &options);
        assert!(!is_first || server.log().contains(is_larger), "{}", server.log());
        client = server.connect();
        check_all(&mut client, &written);
        if is_first {
            server.kill();
        }
    }
    wait_until("it is as large as it was", || {
        field(&mut client, "tiering", "flash_capacity_bytes") == 46 << 20
    });
    for _ in 0..300 {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
    }
    thread::sleep(JOURNALED_WITHIN);
    server.kill();
    server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    check_all(&mut client, &written);
    check_long(&mut client);
}

/// A drive that takes 3 MB a second: whoever reads what is written to it.
fn read_slowly(path: &Path) {
    let mut pipe = fs::File::open(path).expect("a pipe");
    let mut bytes = vec![0; 32 << 10];
    while pipe.read(&mut bytes).is_ok_and(|count| count > 0) {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_snapshot_gives_way_to_the_checkpoint_that_writes_wait_for() {
    let owner = Server::kelvin(&[]);
    // So that it is full before a pipe is told to sync.
    let options = [&OPTIONS[..], &["--flash-size", "46mb"]].concat();
    let server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let (mut written, mut random) = (Written::new(), Random::new(5));
    fill(&mut client, &mut written);
    let pipe = owner.directory().join(format!("temp-{}.rdb", server.pid()));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    thread::scope(|scope| {
        scope.spawn(|| read_slowly(&pipe));
        assert_eq!(client.show("BGSAVE"), "+Background saving started");
        wait_until("it is called off", || {
            assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
            server.log().contains("the journal's checkpoint that frees some goes first")
        });
        wait_until("a checkpoint is taken", || {
            assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
            field(&mut client, "persistence", "aof_rewrites") > 1
        });
    });
    check_all(&mut client, &written);
}

/// Writers have filled all that they may, and what reads need cannot be demoted.
#[test]
fn reads_are_answered_while_ram_and_flash_are_full() {
    const VALUES_MAX: u64 = 1_000;
    const WORDS: u64 = 50_000;
    for persists in ["yes", "no"] {
        let owner = Server::kelvin(&[]);
        let options =
            ["--maxmemory", "64mb", "--flash-size", "96mb", "--tier-persistence", persists];
        let server = on_directory(owner.directory(), &options);
        let mut client = server.connect();
        let mut set = |seed: u64| {
            let reply = client.call(&["SET", &format!("key:{seed}"), &long_value(seed, WORDS)]);
            !matches!(reply, Frame::Error(_))
        };
        let mut written: Vec<u64> = (0..VALUES_MAX).take_while(|&seed| set(seed)).collect();
        written.extend((VALUES_MAX..VALUES_MAX + 20).filter(|&seed| set(seed)));
        assert!(written.len() > 80, "{} values are more than RAM has room for", written.len());
        for seed in written {
            let start = Instant::now();
            let reply = client.call(&["GET", &format!("key:{seed}")]);
            assert!(!matches!(reply, Frame::Error(_)), "{persists}, {seed}: {}", show(&reply));
            assert!(text(&reply) == long_value(seed, WORDS), "{persists}, {seed}");
            assert!(start.elapsed() < ANSWERED_WITHIN, "{:?}", start.elapsed());
        }
    }
}
