//! `kelvin check`: what a server has kept is whole, or is damaged in one way or another; what is told of it, and what a
//! start makes of the same files.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stdx::Random;
use support::kept::{on_directory, shut_down, take_checkpoint};
use support::{Client, Server};

/// Keys on flash, and in the journal behind the checkpoint.
const KEYS: usize = 1_000;
const LATER_KEYS: usize = 300;
const FLASH: [&str; 6] = ["--workers", "1", "--flash-size", "32mb", "--flash-segment-size", "1mb"];

fn key(number: usize) -> String {
    format!("key:{number:05}")
}

/// What a key is given: more than stays in RAM, and no shorter when it is compressed.
fn value(key: &str, times: u64) -> String {
    let seed = key.bytes().fold(times, |seed, byte| stdx::mix(seed ^ u64::from(byte)));
    let mut random = Random::new(seed);
    let words = (0..30).map(|_| random.next_u64().to_string());
    format!("{times}:{key}:{}", words.collect::<String>())
}

fn set(client: &mut Client, keys: impl Iterator<Item = String>, times: u64) {
    for key in keys {
        let value = value(&key, times);
        assert_eq!(support::show(&client.call(&["SET", &key, &value])), "+OK");
    }
}

/// What a server has kept: keys on flash to which a checkpoint refers, and records behind that.
struct Kept {
    owner: Server,
}

impl Kept {
    fn new() -> Kept {
        let kept = Kept { owner: Server::kelvin(&[]) };
        let mut server = kept.start();
        let mut client = server.connect();
        set(&mut client, (0..KEYS).map(key), 1);
        client.line("TIER DEMOTE ALL");
        take_checkpoint(&mut client);
        set(&mut client, (KEYS..KEYS + LATER_KEYS).map(key), 1);
        shut_down(&mut server, &mut client);
        kept
    }

    fn dir(&self) -> &Path {
        self.owner.directory()
    }

    fn start(&self) -> Server {
        on_directory(self.dir(), &FLASH)
    }

    /// The options of a server that is not to be started.
    fn options(&self) -> Vec<&str> {
        let dir = self.dir().to_str().expect("a path in UTF-8");
        let own = ["--dir", dir, "--flash-path", dir, "--appendonly", "yes"];
        [&own[..], &["--tier-persistence", "yes"], &FLASH].concat()
    }

    fn check(&self, more: &[&str]) -> (i32, String) {
        check(&[&self.options()[..], more].concat())
    }

    /// The file of the journal whose name begins so.
    fn file(&self, start: &str) -> PathBuf {
        let entries = fs::read_dir(self.dir().join("appendonlydir")).expect("a folder");
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let is_it = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        };
        paths.iter().rfind(is_it).unwrap_or_else(|| panic!("{start}: {paths:?}")).clone()
    }
}

/// Runs `kelvin check`. Returns how it ended, and what it told.
fn check(words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
    let output = command.arg("check").args(words).output().expect("it can be started");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!told.contains("panicked"), "{told}");
    (output.status.code().expect("an exit status"), told)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("it can be read");
    bytes[at] ^= 0x10;
    fs::write(path, bytes).expect("it can be written");
}

/// Flips a byte of the value that a key has on flash.
fn damage_on_flash(dir: &Path, key: &str) {
    let path = dir.join("kelvin.flash");
    let bytes = fs::read(&path).expect("it can be read");
    let is_record =
        |at: &usize| bytes[at + 4] == 0xA1 && bytes[at + 32..].starts_with(key.as_bytes());
    let at = (0..bytes.len() - 64).step_by(16).find(is_record).expect("a record");
    flip(&path, at + 32 + key.len());
}

#[test]
fn what_is_whole_is_told_to_be() {
    let kept = Kept::new();
    let (code, told) = kept.check(&[]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains(&format!("{KEYS} keys, {KEYS} of them on flash")), "{told}");
    assert!(told.contains(&format!("{LATER_KEYS} records of {LATER_KEYS} commands")), "{told}");
    assert!(told.ends_with("all is whole\n"), "{told}");
    let server = kept.start();
    let (code, told) = kept.check(&[]);
    assert!(code == 2 && told.contains("in use by another server: stop it"), "{told}");
    drop(server);
    let (code, told) = kept.check(&["--no-such-option", "1"]);
    assert!(code == 2 && told.contains("no-such-option"), "{told}");
    let dir = kept.dir().to_str().expect("a path in UTF-8");
    let (code, told) = check(&["--dir", dir]);
    assert!(code == 2 && told.contains("give the flash-path"), "{told}");
}

#[test]
fn a_value_that_is_damaged_on_flash_is_listed() {
    let kept = Kept::new();
    for number in [7, 123] {
        damage_on_flash(kept.dir(), &key(number));
    }
    let (code, told) = kept.check(&[]);
    assert_eq!(code, 1, "{told}");
    for number in [7, 123] {
        let line = format!("lost: database 0: \"{}\": flash record damaged: ", key(number));
        assert!(told.contains(&line), "{told}");
    }
    assert!(told.contains("2 values are lost"), "{told}");
    // A start does not read them.
    let server = kept.start();
    let reply = server.connect().show(&format!("GET {}", key(123)));
    assert!(reply.contains("damaged"), "{reply}");
}

/// What is done to the files, what `kelvin check` tells of it, and a start.
type Case = (&'static str, fn(&Kept), &'static [&'static str], &'static str);

#[test]
fn damage_for_which_a_start_is_refused_is_told() {
    let cases: &[Case] = &[
        (
            "a record",
            |kept| {
                let path = kept.file("journal.");
                let bytes = fs::read(&path).expect("it can be read").len();
                flip(&path, bytes / 2);
            },
            &["damaged: journal damaged: ", "behind the first damage: "],
            "journal damaged: ",
        ),
        (
            "a header",
            |kept| flip(&kept.file("journal."), 40),
            &["at byte 0: header checksum", "behind the first damage: 0 records"],
            "header checksum",
        ),
        ("a snapshot", |kept| flip(&kept.file("snapshot."), 2_000), &["damaged: "], "its snapshot"),
        (
            "the state of the flash",
            |kept| flip(&kept.file("flash."), 200),
            &[
                "what the journal says of the flash cannot be used",
                "lost: database 0: \"key:00000\"",
            ],
            "what the journal says of the flash cannot be used",
        ),
        (
            "the manifest",
            |kept| flip(&kept.file("manifest"), 30),
            &["manifest at byte 0: header checksum"],
            "manifest at byte 0",
        ),
        (
            "no snapshot",
            |kept| fs::remove_file(kept.file("snapshot.")).expect("it is there"),
            &["which is missing"],
            "which is missing",
        ),
        (
            "no label",
            |kept| {
                fs::remove_file(kept.dir().join("kelvin.flash.label")).expect("it is there");
            },
            &["has no label", "lost: database 0: \"key:00999\""],
            "no kelvin.flash with a label",
        ),
        (
            "no flash",
            |kept| fs::remove_file(kept.dir().join("kelvin.flash")).expect("it is there"),
            &["which is on none of the paths", "lost: database 0: \"key:00999\""],
            "no kelvin.flash with a label",
        ),
    ];
    for (name, damage, checked, started) in cases {
        let kept = Kept::new();
        damage(&kept);
        let (code, told) = kept.check(&[]);
        assert_eq!(code, 1, "{name}: {told}");
        for text in *checked {
            assert!(told.contains(text), "{name}: {text}: {told}");
        }
        let log = Server::failed_kelvin(&kept.options());
        assert!(log.contains(started), "{name}: {log}");
        assert!(log.contains("kelvin check"), "{name}: {log}");
    }
}

#[test]
fn an_end_that_is_not_whole_is_told_and_is_no_damage() {
    let kept = Kept::new();
    let path = kept.file("journal.");
    let bytes = fs::read(&path).expect("it can be read");
    // Marks stand at the end.
    fs::write(&path, &bytes[..bytes.len() - 60]).expect("it can be written");
    let (code, told) = kept.check(&[]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("a start leaves them out"), "{told}");
    let (code, told) = kept.check(&["--aof-load-truncated", "no"]);
    assert_eq!(code, 1, "{told}");
}

#[test]
fn what_is_kept_without_flash_is_checked_and_that_nothing_is() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8");
    let (code, told) = check(&["--dir", dir]);
    assert!(code == 0 && told.contains("there is nothing to check"), "{told}");
    let options = ["--dir", dir, "--appendonly", "yes"];
    let mut server = Server::kelvin(&options);
    let mut client = server.connect();
    set(&mut client, (0..20).map(key), 1);
    assert_eq!(client.show("SAVE"), "+OK");
    shut_down(&mut server, &mut client);
    let (code, told) = check(&options);
    assert!(code == 0 && told.contains("20 records of 20 commands"), "{told}");
    let (code, told) = check(&["--dir", dir]);
    assert!(code == 0 && told.contains("dump.rdb: 20 keys"), "{told}");
    flip(&owner.directory().join("dump.rdb"), 300);
    let (code, told) = check(&["--dir", dir]);
    assert!(code == 1 && told.contains("dump.rdb: at byte"), "{told}");
}
