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

/// Values of 4 kB on average, of which there are 60 MB.
const KEYS: u64 = 15_000;
const WORDS_MAX: u64 = 400;
/// Writes of a step.
const AT_ONCE: usize = 50;
/// A write is answered within this, be it refused.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// RAM for half of the values, and a flash that has room for a third of them to be written over.
const OPTIONS: [&str; 10] = [
    "--maxmemory",
    "64mb",
    "--flash-size",
    "96mb",
    "--flash-segment-size",
    "1mb",
    "--workers",
    "2",
    "--auto-aof-rewrite-percentage",
    "0",
];

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

/// Values for which RAM is too small, and a checkpoint that refers to most of them.
fn fill(client: &mut Client, written: &mut Written) {
    for number in 0..KEYS {
        let key = format!("key:{number}");
        assert_eq!(show(&client.call(&["SET", &key, &value(&key, 1, WORDS_MAX)])), "+OK");
        written.insert(key, 1);
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
    // Three times what the flash has.
    for _ in 0..1_500 {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
    }
    let taken = field(&mut client, "persistence", "aof_rewrites") - before;
    assert!((2..400).contains(&taken), "{taken} checkpoints");
    check_all(&mut client, &written);
    server.kill();
    let server = on_directory(owner.directory(), &OPTIONS);
    check_all(&mut server.connect(), &written);
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
fn a_full_flash_beside_checkpoints_that_fail_refuses_writes_and_loses_nothing() {
    // Before it begins; and in the end, when nobody knows whether it is in place.
    for obstacle in ["temp-PID.rdb", "manifest.new"] {
        let owner = Server::kelvin(&[]);
        let mut server = on_directory(owner.directory(), &OPTIONS);
        let mut client = server.connect();
        let (mut written, mut random) = (Written::new(), Random::new(4));
        fill(&mut client, &mut written);
        let obstacle = Obstacle::new(&server, owner.directory(), obstacle);
        let mut refused = 0;
        for _ in 0..1_500 {
            refused += write_some(&mut client, &mut written, &mut random);
            if refused > 500 {
                break;
            }
        }
        assert!(refused > 500, "flash is full: {refused}");
        assert!(field(&mut client, "tiering", "flash_segments_held") > 0);
        check_all(&mut client, &written);
        // A start finds the checkpoint before, and all that was written behind it.
        server.kill();
        obstacle.remove();
        let mut server = on_directory(owner.directory(), &OPTIONS);
        let mut client = server.connect();
        check_all(&mut client, &written);
        let obstacle = Obstacle::new(&server, owner.directory(), "manifest.new");
        while write_some(&mut client, &mut written, &mut random) == 0 {}
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
        for _ in 0..300 {
            assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
        }
        check_all(&mut client, &written);
        server.kill();
        let server = on_directory(owner.directory(), &OPTIONS);
        check_all(&mut server.connect(), &written);
    }
}

#[test]
fn a_start_that_needs_more_flash_than_is_free_of_its_checkpoint_has_it_for_a_while() {
    let owner = Server::kelvin(&[]);
    let less = ["--flash-size", "76mb", "--maxmemory", "40mb", "--appendfsync", "always"];
    let options = [&OPTIONS[..], &less].concat();
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let (mut written, mut random) = (Written::new(), Random::new(6));
    fill(&mut client, &mut written);
    // All is in RAM that comes behind the checkpoint, and not all of it can be at the start.
    assert_eq!(client.show("CONFIG SET maxmemory 512mb"), "+OK");
    for _ in 0..500 {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
    }
    let is_larger = "flash is larger than flash-size";
    for restart in 0..3 {
        server.kill();
        server = on_directory(owner.directory(), &options);
        assert!(restart > 0 || server.log().contains(is_larger), "{}", server.log());
        client = server.connect();
        check_all(&mut client, &written);
    }
    wait_until("it is as large as it was", || {
        field(&mut client, "tiering", "flash_capacity_bytes") == 76 << 20
    });
    for _ in 0..300 {
        assert_eq!(write_some(&mut client, &mut written, &mut random), 0);
    }
    server.kill();
    server = on_directory(owner.directory(), &options);
    check_all(&mut server.connect(), &written);
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
    let options = [&OPTIONS[..], &["--flash-size", "82mb"]].concat();
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
