//! `kelvin check`: what a server has kept is whole, or is damaged in one way or another; what is told of it, and what a
//! start makes of the same files.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use resp::Frame;
use stdx::Random;
use support::kept::{check, on_directory, shut_down, take_checkpoint};
use support::{Client, Server, show, text};

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

fn run(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
}

fn set(client: &mut Client, keys: impl Iterator<Item = String>, times: u64) {
    for key in keys {
        let value = value(&key, times);
        assert_eq!(show(&client.call(&["SET", &key, &value])), "+OK");
    }
}

/// What a server has kept: keys on flash to which a checkpoint refers, and records behind that.
struct Kept {
    owner: Server,
}

impl Kept {
    fn new() -> Kept {
        Kept::with(&[], &[])
    }

    /// With more commands in front of the checkpoint, and behind it.
    fn with(before: &[&str], behind: &[&str]) -> Kept {
        let kept = Kept { owner: Server::kelvin(&[]) };
        let mut server = kept.start();
        let mut client = server.connect();
        set(&mut client, (0..KEYS).map(key), 1);
        run(&mut client, before);
        client.line("TIER DEMOTE ALL");
        take_checkpoint(&mut client);
        run(&mut client, behind);
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

    /// What a server has that starts on it: the keys of which it has not the value that they were given.
    fn missing(&self) -> Vec<String> {
        let mut server = self.start();
        let mut client = server.connect();
        let keys = (0..KEYS + LATER_KEYS).map(key);
        let missing = keys.filter(|key| {
            let reply = client.call(&["GET", key]);
            assert!(!matches!(reply, Frame::Error(_)), "{key}: {}", show(&reply));
            reply == Frame::NullBulk || text(&reply) != value(key, 1)
        });
        let missing = missing.collect();
        shut_down(&mut server, &mut client);
        missing
    }

    /// Names in the folder of the journal.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir().join("appendonlydir")).expect("a folder");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
    }

    fn check(&self, more: &[&str]) -> (i32, String) {
        check(&[&self.options()[..], more].concat())
    }

    fn remove_segments(&self) {
        for name in self.names().iter().filter(|name| name.starts_with("journal.")) {
            fs::remove_file(self.dir().join("appendonlydir").join(name)).expect("it is there");
        }
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

/// A kind of damage for which a start is refused.
struct Case {
    name: &'static str,
    damage: fn(&Kept),
    /// What `kelvin check` tells of it.
    checked: &'static [&'static str],
    /// What a start tells.
    started: &'static str,
    /// What a repair tells; none: there is none.
    repaired: Option<&'static str>,
    /// Keys that are missing then, and that are not told: they stood in what could not be read.
    untold: usize,
}

const CASES: &[Case] = &[
    Case {
        name: "a record",
        damage: |kept| {
            let path = kept.file("journal.");
            let bytes = fs::read(&path).expect("it can be read").len();
            flip(&path, bytes / 2);
        },
        checked: &[
            "damaged: journal damaged: ",
            "behind the first damage: 1",
            "behind: database 0: \"key:01299\": SET",
        ],
        started: "journal damaged: ",
        repaired: Some("kept as damaged-1.journal.00000"),
        untold: 1,
    },
    Case {
        name: "a header",
        damage: |kept| flip(&kept.file("journal."), 40),
        checked: &["at byte 0: header checksum", "behind the first damage: 0 records"],
        started: "header checksum",
        repaired: Some("kept as damaged-1.journal.00000"),
        untold: LATER_KEYS,
    },
    Case {
        name: "a snapshot",
        damage: |kept| flip(&kept.file("snapshot."), 2_000),
        checked: &["damaged: "],
        started: "its snapshot",
        repaired: None,
        untold: 0,
    },
    Case {
        name: "a snapshot that is cut off",
        damage: |kept| {
            let path = kept.file("snapshot.");
            let file = fs::read(&path).expect("it can be read");
            fs::write(&path, &file[..file.len() / 2]).expect("it can be written");
        },
        checked: &["damaged: ", "it ends too early"],
        started: "it ends too early",
        repaired: None,
        untold: 0,
    },
    Case {
        name: "the state of the flash",
        damage: |kept| flip(&kept.file("flash."), 200),
        checked: &[
            "what the journal says of the flash cannot be used",
            "lost: database 0: \"key:00000\"",
        ],
        started: "what the journal says of the flash cannot be used",
        repaired: None,
        untold: 0,
    },
    Case {
        name: "the manifest",
        damage: |kept| flip(&kept.file("manifest"), 30),
        checked: &["manifest at byte 0: header checksum"],
        started: "manifest at byte 0",
        repaired: Some("repair: the manifest names the snapshot"),
        untold: 0,
    },
    Case {
        name: "no manifest",
        damage: |kept| fs::remove_file(kept.file("manifest")).expect("it is there"),
        checked: &["where 0 is expected"],
        started: "holds values that a journal refers to",
        repaired: Some("repair: the manifest names the snapshot"),
        untold: 0,
    },
    Case {
        name: "no segments",
        damage: |kept| kept.remove_segments(),
        checked: &["it is missing, and so are all behind it"],
        started: "it is missing, and so are all behind it",
        repaired: Some("repair: the journal ends in front of the first damage"),
        untold: LATER_KEYS,
    },
    Case {
        name: "no manifest and no segments",
        damage: |kept| {
            kept.remove_segments();
            fs::remove_file(kept.file("manifest")).expect("it is there");
        },
        checked: &["the manifest and all segments of its journal are missing"],
        started: "holds values that a journal refers to",
        repaired: None,
        untold: 0,
    },
    Case {
        name: "no snapshot",
        damage: |kept| fs::remove_file(kept.file("snapshot.")).expect("it is there"),
        checked: &["which is missing"],
        started: "which is missing",
        repaired: None,
        untold: 0,
    },
    Case {
        name: "no label",
        damage: |kept| {
            fs::remove_file(kept.dir().join("kelvin.flash.label")).expect("it is there");
        },
        checked: &["has no label", "lost: database 0: \"key:00999\""],
        started: "no kelvin.flash with a label",
        repaired: None,
        untold: 0,
    },
    Case {
        name: "no flash",
        damage: |kept| fs::remove_file(kept.dir().join("kelvin.flash")).expect("it is there"),
        checked: &["which is on none of the paths", "lost: database 0: \"key:00999\""],
        started: "no kelvin.flash with a label",
        repaired: Some("repair: 1000 keys are taken out of the snapshot"),
        untold: 0,
    },
    Case {
        name: "a part of the flash",
        damage: |kept| {
            let path = kept.dir().join("kelvin.flash");
            let file = fs::OpenOptions::new().write(true).open(path).expect("it is there");
            file.set_len(300_000).expect("it can be cut");
        },
        checked: &["has 300000 bytes, and the journal refers to", "lost: database 0: "],
        started: "has 300000 bytes, and the journal refers to",
        repaired: Some("keys are taken out of the snapshot"),
        untold: 0,
    },
];

#[test]
fn damage_for_which_a_start_is_refused_is_told_and_repaired_where_that_is_sound() {
    for case in CASES {
        let name = case.name;
        let kept = Kept::new();
        (case.damage)(&kept);
        let before = kept.names();
        let (code, told) = kept.check(&[]);
        assert_eq!(code, 1, "{name}: {told}");
        for text in case.checked {
            assert!(told.contains(text), "{name}: {text}: {told}");
        }
        let log = Server::failed_kelvin(&kept.options());
        assert!(log.contains(case.started), "{name}: {log}");
        assert!(log.contains("kelvin check"), "{name}: {log}");
        assert_eq!(kept.names(), before, "{name}: nothing is changed");
        let (code, told) = kept.check(&["--repair"]);
        let Some(repaired) = case.repaired else {
            assert!(code == 1 && told.contains("not repaired: "), "{name}: {told}");
            assert_eq!(kept.names(), before, "{name}: nothing is changed");
            continue;
        };
        assert_eq!(code, 0, "{name}: {told}");
        assert!(told.contains(repaired) && told.ends_with("all is whole\n"), "{name}: {told}");
        let untold = |key: &&String| !told.contains(&format!("\"{key}\""));
        // The second time from what the first has made of it.
        for _ in 0..2 {
            let missing = kept.missing();
            assert_eq!(missing.iter().filter(untold).count(), case.untold, "{name}: {missing:?}");
        }
    }
}

#[test]
fn keys_whose_value_is_lost_are_deleted_and_what_was_made_of_them_as_well() {
    let long = "e".repeat(100);
    let before = [format!("RPUSH list:one {long} {long}"), format!("RPUSH list:two {long} b")];
    let before = before.each_ref().map(String::as_str);
    let kept = Kept::with(
        &before,
        &[
            "APPEND key:00001 more",
            "SET key:00002 new",
            "RENAME key:00003 renamed",
            "LSET list:one 0 x",
            "COPY key:00004 copied",
            "DEL key:00005",
            "SET key:00005 again",
            "MOVE key:00006 3",
            "SWAPDB 3 4",
            "RPOPLPUSH list:one list:two",
            "BITOP NOT key:00008 key:00007",
            "INCR counter",
        ],
    );
    for number in 1..8 {
        damage_on_flash(kept.dir(), &key(number));
    }
    damage_on_flash(kept.dir(), "list:one");
    let log = Server::failed_kelvin(&kept.options());
    assert!(log.contains("cannot read the value of a key"), "{log}");
    let (code, told) = kept.check(&["--repair"]);
    assert_eq!(code, 0, "{told}");
    let given_up: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("given up: database ")?.split(": its").next())
        .collect();
    let names = ["copied", "key:00001", "key:00004", "key:00007", "key:00008"];
    let names = names.iter().chain(&["list:one", "list:two", "renamed"]);
    let mut expected: Vec<String> = names.map(|name| format!("0: \"{name}\"")).collect();
    expected.push("4: \"key:00006\"".to_owned());
    assert_eq!(given_up, expected, "{told}");
    for _ in 0..2 {
        let mut server = kept.start();
        let mut client = server.connect();
        for name in expected.iter().filter_map(|name| name.strip_prefix("0: \"")?.strip_suffix('"'))
        {
            assert_eq!(client.show(&format!("EXISTS {name}")), ":0", "{name}");
        }
        assert_eq!(client.show("GET key:00002"), "$new");
        assert_eq!(client.show("GET key:00005"), "$again");
        assert_eq!(client.show("GET counter"), "$1");
        assert_eq!(client.show("DBSIZE"), format!(":{}", KEYS + LATER_KEYS + 1 - 6));
        client.line("SELECT 4");
        assert_eq!(client.show("DBSIZE"), ":0");
        shut_down(&mut server, &mut client);
    }
}

/// Values that take several reads, or segments; keys of other databases, and of any bytes.
#[test]
fn large_values_and_odd_names_are_checked_and_deleted_as_others_are() {
    let kept = Kept::with(&[], &[]);
    let mut server = kept.start();
    let mut client = server.connect();
    let odd = "odd \"\u{1}\n";
    for (key, bytes) in [("several reads", 300_000), ("several segments", 3_000_000), (odd, 1_000)]
    {
        client.line("SELECT 2");
        let mut value = vec![0; bytes];
        Random::new(bytes as u64).fill(&mut value);
        client.send_bytes(&[b"SET", key.as_bytes(), &value]);
        assert_eq!(show(&client.read()), "+OK");
    }
    client.line("TIER DEMOTE ALL");
    take_checkpoint(&mut client);
    shut_down(&mut server, &mut client);
    let keys = KEYS + LATER_KEYS + 3;
    let (code, told) = kept.check(&[]);
    assert!(code == 0 && told.contains(&format!("{keys} keys, {keys} of them on flash")), "{told}");
    for key in ["several reads", "several segments", odd] {
        damage_on_flash(kept.dir(), key);
    }
    let (code, told) = kept.check(&["--repair"]);
    assert_eq!(code, 0, "{told}");
    for name in ["several reads", "several segments", r#"odd \"\x01\n"#] {
        for what in ["lost", "given up"] {
            assert!(told.contains(&format!("{what}: database 2: \"{name}\": ")), "{told}");
        }
    }
    assert_eq!(kept.missing(), [""; 0]);
    let server = kept.start();
    let mut client = server.connect();
    client.line("SELECT 2");
    assert_eq!(client.show("DBSIZE"), ":0");
}

#[test]
fn a_repair_that_was_killed_is_run_again() {
    let kept = Kept::new();
    damage_on_flash(kept.dir(), &key(7));
    let state = fs::read(kept.file("flash.")).expect("it can be read");
    let (code, told) = kept.check(&["--repair"]);
    assert_eq!(code, 0, "{told}");
    // It had the snapshot in place, and not what goes with it; and was about to put another there.
    fs::write(kept.file("flash."), &state).expect("it can be written");
    fs::write(kept.dir().join("appendonlydir/temp-0.rdb"), "part").expect("it can be written");
    let (code, told) = kept.check(&[]);
    assert!(code == 1 && told.contains("is not what the state of the flash says"), "{told}");
    let (code, told) = kept.check(&["--repair"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(kept.missing(), [key(7)]);

    // The same where nothing is left on flash: the state was there still.
    fs::remove_file(kept.dir().join("kelvin.flash")).expect("it is there");
    let path = kept.file("flash.");
    let state = fs::read(&path).expect("it can be read");
    let (code, told) = kept.check(&["--repair"]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("damaged-1.kelvin.flash.label"), "{told}");
    assert!(!path.exists());
    fs::write(&path, &state).expect("it can be written");
    let (code, told) = kept.check(&[]);
    assert!(code == 1 && told.contains("which is on none of the paths"), "{told}");
    let (code, told) = kept.check(&["--repair"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(kept.missing().len(), KEYS);
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
    let (code, told) = kept.check(&["--aof-load-truncated", "no", "--repair"]);
    assert_eq!(code, 0, "{told}");
    assert!(kept.missing().len() <= 1);
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

/// A start would take its own empty data for what the snapshot has, and remove that.
#[test]
fn a_snapshot_that_is_all_that_is_left_of_a_journal_stays() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8");
    let options = ["--dir", dir, "--appendonly", "yes"];
    let mut server = Server::kelvin(&options);
    let mut client = server.connect();
    set(&mut client, (0..20).map(key), 1);
    take_checkpoint(&mut client);
    shut_down(&mut server, &mut client);
    let folder = owner.directory().join("appendonlydir");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&folder).expect("a folder");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
    };
    for name in names().iter().filter(|name| !name.starts_with("snapshot.")) {
        fs::remove_file(folder.join(name)).expect("it is there");
    }
    let snapshot = names().remove(0);
    let what = "the manifest and all segments of its journal are missing";
    let log = Server::failed_kelvin(&options);
    assert!(log.contains(what) && log.contains("kelvin check"), "{log}");
    let (code, told) = check(&options);
    assert!(code == 1 && told.contains(what), "{told}");
    // As the documentation says.
    fs::rename(folder.join(&snapshot), owner.directory().join("dump.rdb")).expect("it is moved");
    let mut server = Server::kelvin(&options);
    let mut client = server.connect();
    assert_eq!(client.show("DBSIZE"), ":20");
    shut_down(&mut server, &mut client);
}
