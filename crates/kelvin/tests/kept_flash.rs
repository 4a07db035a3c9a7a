//! Values stay on flash over a restart with `appendonly`: what a checkpoint refers to is there however the process ends, and
//! whatever was written since; and files that do not belong to it are refused.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use resp::Frame;
use rustix::process::{Pid, Signal, kill_process};
use stdx::Random;
use support::kept::{
    field, on_directory, shut_down, take_checkpoint, times_written, value, wait_until,
};
use support::{Client, Server, show};

/// How often a server is killed and started again on what it left, unless KELVIN_KILLS says so (`make crash`).
const KILLS: usize = 6;
/// After so many times it begins with nothing.
const KILLS_OF_ONE: usize = 25;
/// Words of values, at most.
const WORDS_MAX: u64 = 800;
const LABEL: &str = "kelvin.flash.label";

/// Small collections of every type, with fields and keys that expire.
fn fill_collections(client: &mut Client) {
    for number in 0..300 {
        for line in [
            format!("HSET hash:{number} field:1 value:{number} field:2 {}", "v".repeat(100)),
            format!("RPUSH list:{number} a b {number} {}", "e".repeat(100)),
            format!("SADD set:{number} member:{number} {}", "m".repeat(100)),
            format!("SADD integers:{number} {number} 70000 5000000000 1 2 3 4 5 6 7 8 9"),
            format!("ZADD zset:{number} 1.5 one {number} two 3 {}", "z".repeat(100)),
            format!("XADD stream:{number} 5-1 field {}", "s".repeat(100)),
            format!("HSET expiring:{number} field:1 {} field:2 v", "v".repeat(100)),
            format!("HPEXPIRE expiring:{number} 99999999 FIELDS 1 field:1"),
            format!("SET volatile:{number} {} PX 99999999", "v".repeat(100)),
        ] {
            let reply = client.line(&line);
            assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
        }
    }
    client.line("SWAPDB 0 3");
    client.line("SELECT 3");
    client.line("XGROUP CREATE stream:1 group 0");
    client.line("XREADGROUP GROUP group alice STREAMS stream:1 >");
}

#[test]
fn values_on_flash_stay_there_over_a_restart() {
    let owner = Server::kelvin(&[]);
    let options = ["--maxmemory", "64mb", "--workers", "2", "--auto-aof-rewrite-percentage", "0"];
    let options = [&options[..], &["--tier-read-back", "no"]].concat();
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    fill_collections(&mut client);
    // Five times what may be in RAM.
    for batch in 0..400 {
        for number in 0..200 {
            let key = format!("key:{batch}:{number}");
            client.send(&["SET", &key, &format!("{batch}:{number}:{}", "v".repeat(4_000))]);
        }
        for _ in 0..200 {
            assert_eq!(show(&client.read()), "+OK");
        }
    }
    assert_eq!(client.show("TIER DEMOTE ALL").chars().next(), Some(':'));
    take_checkpoint(&mut client);
    // Behind the checkpoint: changes of what is on flash, and new keys.
    for line in
        ["APPEND key:3:1 more", "HSET hash:7 field:3 v", "DEL key:4:2", "SET new v", "LPOP list:9"]
    {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
    let keys = client.show("DBSIZE");
    let expected = client.show("DEBUG DIGEST");
    for round in 0..4 {
        if round % 2 == 0 {
            server.kill();
        } else {
            shut_down(&mut server, &mut client);
        }
        server = on_directory(owner.directory(), &options);
        client = server.connect();
        let on_flash = field(&mut client, "tiering", "tier_loaded_cold");
        assert!(on_flash > 80_000, "round {round}: {on_flash}");
        let read = field(&mut client, "tiering", "flash_device_read_bytes");
        assert!(read < 4 << 20, "round {round}: {read} bytes were read");
        client.line("SELECT 3");
        assert_eq!(client.show("DBSIZE"), keys, "round {round}");
        assert_eq!(client.show("DEBUG DIGEST"), expected, "round {round}");
        let count = client.show("TTL volatile:5");
        assert!(count.starts_with(':') && count != ":-1" && count != ":-2", "{count}");
        let ttl = client.show("HTTL expiring:5 FIELDS 2 field:1 field:2");
        assert!(ttl.ends_with(" :-1]") && !ttl.starts_with("[:-"), "{ttl}");
        if round == 1 {
            // The next starts go on from one that refers to what the first has left.
            take_checkpoint(&mut client);
        }
    }
    // What is there is used as ever, and its room comes back.
    assert_eq!(client.show("FLUSHALL"), "+OK");
    wait_until("all is dead", || field(&mut client, "tiering", "flash_live_bytes") == 0);
    thread::sleep(Duration::from_millis(50));
    take_checkpoint(&mut client);
    wait_until("nothing is held", || field(&mut client, "tiering", "flash_segments_held") == 0);
}

/// Values in RAM go to flash with the checkpoint, which refers to them: a start reads none of them.
#[test]
fn values_in_ram_are_not_read_by_a_start() {
    const VALUES: usize = 8_000;
    let owner = Server::kelvin(&[]);
    let options = [
        "--workers",
        "2",
        "--flash-segment-size",
        "512kb",
        "--auto-aof-rewrite-percentage",
        "0",
        "--save",
        "",
        "--tier-read-back",
        "no",
    ];
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    fill_collections(&mut client);
    for number in 0..VALUES {
        let key = format!("key:{number}");
        // From those that stand in their records to those that have writes of their own.
        let words_max = if number % 100 == 0 { 20_000 } else { WORDS_MAX };
        client.send(&["SET", &key, &value(&key, 1, words_max)]);
        assert_eq!(show(&client.read()), "+OK");
    }
    let check = |client: &mut Client, round: &str| {
        client.line("SELECT 3");
        for number in 0..VALUES {
            let words_max = if number % 100 == 0 { 20_000 } else { WORDS_MAX };
            let key = format!("key:{number}");
            assert_eq!(times_written(client, &key, words_max), 1, "{round}: {key}");
        }
    };
    let expected = client.show("DEBUG DIGEST");
    let bytes = field(&mut client, "tiering", "tier_values_hot_bytes");
    take_checkpoint(&mut client);
    let copied = field(&mut client, "tiering", "tier_copied");
    assert!(copied > VALUES as u64 * 9 / 10, "{copied}");
    let appended = field(&mut client, "tiering", "flash_append_bytes");
    // None is written twice, be it by another checkpoint or to leave RAM.
    take_checkpoint(&mut client);
    for end in ["kill", "SHUTDOWN", "demoted", "kill"] {
        if end == "demoted" {
            client.line("TIER DEMOTE ALL");
            // Small values, which were not copied.
            let more = field(&mut client, "tiering", "tier_demoted_dirty");
            assert!(more < VALUES as u64 / 2, "{more}");
            take_checkpoint(&mut client);
        } else {
            assert_eq!(field(&mut client, "tiering", "tier_demoted_dirty"), 0, "{end}");
        }
        if end == "SHUTDOWN" {
            shut_down(&mut server, &mut client);
        } else {
            server.kill();
        }
        server = on_directory(owner.directory(), &options);
        client = server.connect();
        let on_flash = field(&mut client, "tiering", "tier_loaded_cold");
        assert!(on_flash >= copied, "{end}: {on_flash} of {copied}");
        let read = field(&mut client, "tiering", "flash_device_read_bytes")
            + field(&mut client, "persistence", "aof_base_size");
        assert!(read < bytes / 8, "{end}: {read} of {bytes} bytes");
        assert_eq!(client.show("DEBUG DIGEST"), expected, "{end}");
        check(&mut client, end);
    }
    assert!(appended > bytes * 7 / 8, "{appended} of {bytes} bytes");
}

/// Values that were hot come back to RAM behind a start, whatever else is on flash, as far as memory is free.
#[test]
fn values_that_were_hot_come_back_behind_a_start() {
    const VALUES: usize = 60_000;
    // They fit into RAM with room left: none is demoted for the checkpoint.
    const HOT: usize = 3_000;
    let owner = Server::kelvin(&[]);
    let options =
        ["--maxmemory", "64mb", "--workers", "2", "--flash-segment-size", "512kb", "--save", ""];
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let name = |number: usize| format!("key:{number}");
    for number in 0..VALUES {
        client.send(&["SET", &name(number), &value(&name(number), 1, WORDS_MAX)]);
        assert_eq!(show(&client.read()), "+OK");
    }
    client.line("TIER DEMOTE ALL");
    let hot = || (0..VALUES).step_by(VALUES / HOT);
    for _ in 0..4 {
        for number in hot() {
            assert_eq!(times_written(&mut client, &name(number), WORDS_MAX), 1);
        }
    }
    let is_hot = |client: &mut Client, number: usize| {
        !client.show(&format!("TIER LOCATE {}", name(number))).contains("cold")
    };
    take_checkpoint(&mut client);
    let in_ram = hot().filter(|&number| is_hot(&mut client, number)).count();
    assert!(in_ram > HOT / 2, "{in_ram} of {HOT}");
    server.kill();
    server = on_directory(owner.directory(), &options);
    client = server.connect();
    wait_until("they are read back", || {
        field(&mut client, "tiering", "tier_read_back") > in_ram as u64 * 9 / 10
    });
    let (back, others): (Vec<usize>, Vec<usize>) = (0..VALUES)
        .filter(|&number| is_hot(&mut client, number))
        .partition(|number| number % (VALUES / HOT) == 0);
    println!("{in_ram} were in RAM, {} are, and {} of the others", back.len(), others.len());
    assert!(back.len() > in_ram * 9 / 10, "{} of {in_ram}", back.len());
    for number in 0..VALUES {
        assert_eq!(times_written(&mut client, &name(number), WORDS_MAX), 1, "{number}");
    }
    // Nothing of it is done where it is not wanted.
    take_checkpoint(&mut client);
    shut_down(&mut server, &mut client);
    server = on_directory(owner.directory(), &[&options[..], &["--tier-read-back", "no"]].concat());
    client = server.connect();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(field(&mut client, "tiering", "tier_read_back"), 0);
}

/// Values in RAM, of which flash has no room for all: the checkpoint has the others, and nothing is lost.
#[test]
fn a_checkpoint_has_values_itself_for_which_flash_has_no_room() {
    const VALUES: usize = 6_000;
    let owner = Server::kelvin(&[]);
    let options = [
        "--workers",
        "2",
        "--maxmemory",
        "256mb",
        "--flash-segment-size",
        "256kb",
        "--flash-size",
        "16mb",
        "--auto-aof-rewrite-percentage",
        "0",
    ];
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    let mut times = vec![0; VALUES];
    let mut random = Random::new(8);
    for round in 0..6 {
        for _ in 0..if round == 0 { 2 * VALUES } else { VALUES / 4 } {
            let number = random.below(VALUES as u64) as usize;
            let key = format!("key:{number}");
            times[number] += 1;
            let words = value(&key, times[number], WORDS_MAX);
            assert_eq!(show(&client.call(&["SET", &key, &words])), "+OK");
        }
        // One may be taken for want of room.
        wait_until("none is under way", || {
            field(&mut client, "persistence", "aof_rewrite_in_progress") == 0
        });
        take_checkpoint(&mut client);
        let copied = field(&mut client, "tiering", "tier_copied");
        assert!(copied < VALUES as u64 * 3 / 4, "round {round}: {copied}");
        assert!(round > 0 || copied > VALUES as u64 / 4, "{copied}");
        if round % 2 == 1 {
            server.kill();
            server = on_directory(owner.directory(), &options);
            client = server.connect();
            let cold = field(&mut client, "tiering", "tier_loaded_cold");
            assert!(cold > 0 && cold < VALUES as u64, "round {round}: {cold}");
        }
        for (number, times) in times.iter().enumerate() {
            let key = format!("key:{number}");
            let found = times_written(&mut client, &key, WORDS_MAX);
            assert_eq!(found, *times, "round {round}: {key}");
        }
    }
}

/// What a writer has done with each of its keys: the number that was answered last, and that which was sent last.
type Written = BTreeMap<u64, (u64, u64)>;

/// Writes over some keys again and again, until the server is gone.
fn write_over(mut client: Client, writer: u64, written: &mut Written, seed: u64) {
    const KEYS: u64 = 300;
    let mut random = Random::new(seed);
    loop {
        let number = random.below(KEYS);
        let (entry, key) = (written.entry(number).or_default(), format!("{writer}:{number}"));
        entry.1 += 1;
        client.send(&["SET", &key, &value(&key, entry.1, WORDS_MAX)]);
        match client.try_read() {
            None => return,
            Some(Frame::Error(_)) => entry.1 -= 1,
            Some(_) => entry.0 = entry.1,
        }
    }
}

/// Has a checkpoint taken again and again, until the server is gone.
fn take_checkpoints(mut client: Client, seed: u64) {
    let mut random = Random::new(seed);
    while client.try_write(b"*1\r\n$12\r\nBGREWRITEAOF\r\n") && client.try_read().is_some() {
        thread::sleep(Duration::from_millis(random.below(60)));
    }
}

/// Looks whether each key has what was answered last, or something that was sent later.
fn check_written(client: &mut Client, writer: u64, written: &mut Written, round: usize) {
    for (number, (answered, sent)) in written {
        let times = times_written(client, &format!("{writer}:{number}"), WORDS_MAX);
        assert!(
            (*answered..=*sent).contains(&times),
            "round {round}: {writer}:{number}: {times}, not {answered} to {sent}"
        );
        (*answered, *sent) = (times, times);
    }
}

#[test]
fn what_was_answered_is_there_though_segments_are_used_again_and_again() {
    const WRITERS: u64 = 3;
    let kills = std::env::var("KELVIN_KILLS");
    let kills = kills.map_or(KILLS, |text| text.parse().expect("a number"));
    let mut owner = Server::kelvin(&[]);
    let mut all: Vec<Written> = vec![Written::new(); WRITERS as usize];
    let mut random = Random::new(5);
    let mut collected = 0;
    for round in 0..kills {
        if round % KILLS_OF_ONE == 0 {
            owner = Server::kelvin(&[]);
            all.fill(Written::new());
        }
        let options = [
            "--appendfsync",
            "always",
            "--workers",
            ["2", "2", "1"][round % 3],
            "--flash-size",
            "26mb",
            "--flash-segment-size",
            "1mb",
        ];
        let mut server = on_directory(owner.directory(), &options);
        let mut client = server.connect();
        for (writer, written) in (0..).zip(&mut all) {
            check_written(&mut client, writer, written, round);
        }
        assert_eq!(client.show("DEBUG DEMOTE-AFTER-COMMAND 1"), "+OK");
        thread::scope(|scope| {
            for (writer, written) in (0..).zip(&mut all) {
                let (client, seed) = (server.connect(), random.next_u64());
                scope.spawn(move || write_over(client, writer, written, seed));
            }
            let (rewriter, seed) = (server.connect(), random.next_u64());
            scope.spawn(move || take_checkpoints(rewriter, seed));
            thread::sleep(Duration::from_millis(300 + random.below(1_500)));
            let mut segments = || field(&mut client, "tiering", "flash_gc_segments");
            if round % 3 < 2 {
                wait_until("a segment is collected", || segments() > 0);
            }
            collected += segments();
            server.kill();
        });
    }
    assert!(collected >= kills as u64 / 2, "segments are used again: {collected}");
}

/// Checkpoints copy values to flash that are written over meanwhile.
#[test]
fn what_was_answered_is_there_though_values_in_ram_are_copied() {
    const WRITERS: u64 = 2;
    const ROUNDS: usize = 4;
    let owner = Server::kelvin(&[]);
    let options = [
        "--appendfsync",
        "always",
        "--workers",
        "2",
        "--flash-size",
        "96mb",
        "--flash-segment-size",
        "64kb",
    ];
    let mut all: Vec<Written> = vec![Written::new(); WRITERS as usize];
    let mut random = Random::new(9);
    let mut copied = 0;
    for round in 0..ROUNDS {
        let mut server = on_directory(owner.directory(), &options);
        let mut client = server.connect();
        for (writer, written) in (0..).zip(&mut all) {
            check_written(&mut client, writer, written, round);
        }
        thread::scope(|scope| {
            for (writer, written) in (0..).zip(&mut all) {
                let (client, seed) = (server.connect(), random.next_u64());
                scope.spawn(move || write_over(client, writer, written, seed));
            }
            let (rewriter, seed) = (server.connect(), random.next_u64());
            scope.spawn(move || take_checkpoints(rewriter, seed));
            let mut copies = || field(&mut client, "tiering", "tier_copied");
            wait_until("values are copied", || copies() > 500);
            thread::sleep(Duration::from_millis(random.below(500)));
            copied += copies();
            server.kill();
        });
    }
    assert!(copied > 500 * ROUNDS as u64, "{copied}");
}

/// Makes so many keys of 1,000 bytes, all on flash, and a checkpoint that refers to them.
fn fill_flash(client: &mut Client, keys: usize, prefix: &str) {
    assert_eq!(client.show(&format!("DEBUG POPULATE {keys} {prefix} 1000")), "+OK");
    client.line("TIER DEMOTE ALL");
    take_checkpoint(client);
}

/// Starts a server that is to refuse. Returns its log.
fn refused(directory: &Path, options: &[&str]) -> String {
    let dir = directory.to_str().expect("a path in UTF-8");
    Server::failed_kelvin(&[&["--dir", dir, "--flash-size", "512mb"], options].concat())
}

#[test]
fn flash_that_does_not_belong_to_the_journal_is_refused() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8").to_owned();
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    fill_flash(&mut client, 1000, "key");
    let expected = client.show("DEBUG DIGEST");
    let in_use = refused(owner.directory(), &["--flash-path", &dir, "--appendonly", "yes"]);
    assert!(in_use.contains("in use by another server"), "{in_use}");
    shut_down(&mut server, &mut client);

    let usual = ["--flash-path", &dir, "--appendonly", "yes"];
    let without = refused(owner.directory(), &["--flash-path", &dir, "--appendonly", "no"]);
    assert!(without.contains("holds values that a journal refers to"), "{without}");
    let other = owner.directory().join("other");
    fs::create_dir(&other).expect("a directory");
    let other_path = other.to_str().expect("a path in UTF-8");
    let elsewhere =
        refused(owner.directory(), &["--flash-path", other_path, "--appendonly", "yes"]);
    assert!(elsewhere.contains("there is no kelvin.flash with a label"), "{elsewhere}");
    assert!(!other.join("kelvin.flash").exists(), "nothing is made where it is refused");
    let none = Server::failed_kelvin(&["--dir", &dir, "--appendonly", "yes"]);
    assert!(none.contains("the journal refers to values on flash"), "{none}");
    let segment = [&usual[..], &["--flash-segment-size", "1mb"]].concat();
    let segment = refused(owner.directory(), &segment);
    assert!(segment.contains("flash-segment-size"), "{segment}");

    // Each file of the checkpoint is damaged in turn, at many places, and its flash cut off.
    let folder = owner.directory().join("appendonlydir");
    let names =
        fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let of_checkpoint = |path: &std::path::PathBuf| {
        let path = path.to_string_lossy();
        path.contains("/snapshot.") || path.contains("/flash.")
    };
    let mut files: Vec<_> = names.filter(of_checkpoint).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    files.push(owner.directory().join("kelvin.flash.label"));
    for path in &files {
        let whole = fs::read(path).expect("it can be read");
        for number in 0..4 {
            let mut damaged = whole.clone();
            damaged[whole.len() * number / 4 + 5 % whole.len()] ^= 0x41;
            fs::write(path, &damaged).expect("it can be written");
            let log = refused(owner.directory(), &usual);
            assert!(!log.contains("panicked"), "{}: {log}", path.display());
        }
        fs::write(path, &whole).expect("it can be written");
    }
    let server = on_directory(owner.directory(), &["--workers", "1"]);
    assert_eq!(server.connect().show("DEBUG DIGEST"), expected, "nothing was changed");
}

#[test]
fn a_checkpoint_that_refers_to_flash_is_packed_unless_told_not_to() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    for number in 0..2_000 {
        let value = format!("{number}{}", "v".repeat(500));
        assert_eq!(show(&client.call(&["SET", &format!("key:{number}"), &value])), "+OK");
    }
    assert_eq!(client.show("TIER DEMOTE ALL").chars().next(), Some(':'));
    let expected = client.show("DEBUG DIGEST");
    let folder = owner.directory().join("appendonlydir");
    let mut sizes = Vec::new();
    for (packs, head) in [("yes", &b"\x28\xb5\x2f\xfd"[..]), ("no", b"REDIS00")] {
        assert_eq!(client.show(&format!("CONFIG SET rdbcompression {packs}")), "+OK");
        take_checkpoint(&mut client);
        let paths =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("one").path());
        let mut paths = paths.filter(|path| path.to_string_lossy().contains("/snapshot."));
        let file = fs::read(paths.next().expect("a snapshot")).expect("it can be read");
        assert!(file.starts_with(head), "{packs}: {}", file[..8].escape_ascii());
        sizes.push(file.len());
        shut_down(&mut server, &mut client);
        server = on_directory(owner.directory(), &["--workers", "1"]);
        client = server.connect();
        assert_eq!(client.show("DEBUG DIGEST"), expected, "{packs}");
    }
    assert!(sizes[0] * 2 < sizes[1], "{sizes:?}");
}

#[test]
fn a_journal_that_is_switched_off_keeps_nothing() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8").to_owned();
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    fill_flash(&mut client, 1000, "key");
    assert_eq!(client.show("CONFIG SET appendonly no"), "+OK");
    assert_eq!(client.show("FLUSHALL"), "+OK");
    assert_eq!(field(&mut client, "tiering", "flash_segments_held"), 0);
    assert!(!owner.directory().join("kelvin.flash.label").exists());
    assert_eq!(client.show("DEBUG POPULATE 500 key 1000"), "+OK");
    client.line("TIER DEMOTE ALL");
    // Switched on again it goes on from what is there then.
    assert_eq!(client.show("CONFIG SET appendonly yes"), "+OK");
    let expected = client.show("DEBUG DIGEST");
    server.kill();
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    assert_eq!(field(&mut client, "tiering", "tier_loaded_cold"), 500);
    assert_eq!(client.show("DEBUG DIGEST"), expected);
    // Off for good: a start without a journal has an empty flash, and one with the old journal is refused.
    assert_eq!(client.show("CONFIG SET appendonly no"), "+OK");
    server.kill();
    let log = refused(owner.directory(), &["--flash-path", &dir, "--appendonly", "yes"]);
    assert!(log.contains("there is no kelvin.flash with a label"), "{log}");
    let options = ["--dir", &dir, "--flash-path", &dir, "--flash-size", "512mb"];
    assert_eq!(Server::kelvin(&options).connect().show("DBSIZE"), ":0");
}

/// With `tier-persistence no` a checkpoint has all values itself, whatever the one before it referred to.
#[test]
fn a_journal_of_all_values_starts_without_the_flash() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    fill_flash(&mut client, 1000, "key");
    let expected = client.show("DEBUG DIGEST");
    server.kill();
    // The start makes cold keys of what the checkpoint refers to.
    let options = ["--workers", "1", "--tier-persistence", "no"];
    let mut server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    assert_eq!(field(&mut client, "tiering", "tier_loaded_cold"), 1000);
    assert_eq!(client.show("DEBUG DIGEST"), expected);
    take_checkpoint(&mut client);
    assert!(!owner.directory().join(LABEL).exists());
    assert_eq!(field(&mut client, "tiering", "flash_segments_held"), 0);
    server.kill();
    let other = owner.directory().join("other");
    fs::create_dir(&other).expect("a directory");
    let other = other.to_str().expect("a path in UTF-8");
    let options = [&options[..], &["--flash-path", other]].concat();
    let server = on_directory(owner.directory(), &options);
    let mut client = server.connect();
    assert_eq!(field(&mut client, "tiering", "tier_loaded_cold"), 0);
    assert_eq!(client.show("DEBUG DIGEST"), expected);
}

#[test]
fn paths_may_be_added_and_left_from_start_to_start() {
    let owner = Server::kelvin(&[]);
    let [one, two] = ["one", "two"].map(|name| {
        let path = owner.directory().join(name);
        fs::create_dir(&path).expect("a directory");
        path.to_str().expect("a path in UTF-8").to_owned()
    });
    let first = ["--workers", "1", "--flash-segment-size", "64kb", "--flash-path", &one];
    let both = [&first[..], &[&two]].concat();
    let fill = |client: &mut Client, prefix: &str| {
        fill_flash(client, 20_000, prefix);
        client.show("DEBUG DIGEST")
    };
    let mut server = on_directory(owner.directory(), &first);
    let expected = fill(&mut server.connect(), "first");
    server.kill();
    let mut server = on_directory(owner.directory(), &both);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG DIGEST"), expected);
    assert_eq!(field(&mut client, "tiering", "flash_paths"), 2);
    let expected = fill(&mut client, "second");
    server.kill();
    let mut server = on_directory(owner.directory(), &both);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG DIGEST"), expected);
    // What is left is removed once no checkpoint refers to it, and may be given again.
    assert_eq!(show(&client.call(&["CONFIG", "SET", "flash-path", &one])), "+OK");
    wait_until("nothing lives there", || {
        field(&mut client, "tiering", "flash_paths_draining") == 0
    });
    server.kill();
    for options in [&first[..], &both, &first, &both] {
        let mut server = on_directory(owner.directory(), options);
        let mut client = server.connect();
        assert_eq!(client.show("DEBUG DIGEST"), expected);
        // Those that nothing refers to are behind with it.
        take_checkpoint(&mut client);
        server.kill();
    }
}

/// The label of the flash file in a directory, as it is before it says that a checkpoint was seen in place.
fn unsee_checkpoint(directory: &Path) {
    let path = directory.join(LABEL);
    let mut label = fs::read(&path).expect("a label");
    label[24..32].fill(0);
    label[56..64].fill(0);
    let checksum = crc_fast::crc32_iscsi(&label[12..]);
    label[8..12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, &label).expect("it can be written");
}

/// The process is killed between the manifest of a checkpoint and the labels that go with it.
#[test]
fn a_start_knows_whether_its_journal_needs_the_flash() {
    let owner = Server::kelvin(&[]);
    let dir = owner.directory().to_str().expect("a path in UTF-8").to_owned();
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    fill_flash(&mut client, 1000, "key");
    let expected = client.show("DEBUG DIGEST");
    server.kill();
    // The first that refers to flash: what it refers to is there, whoever starts first.
    unsee_checkpoint(owner.directory());
    let without = refused(owner.directory(), &["--flash-path", &dir, "--appendonly", "no"]);
    assert!(without.contains("holds values that a journal refers to"), "{without}");
    let mut server = on_directory(owner.directory(), &["--workers", "1"]);
    let mut client = server.connect();
    assert_eq!(client.show("DEBUG DIGEST"), expected);
    // One that refers to nothing, since the flash cannot be labelled: all is there, though the label is that of before.
    let label = fs::read(owner.directory().join(LABEL)).expect("a label");
    assert_eq!(client.show("CONFIG SET appendonly no"), "+OK");
    let obstacle = owner.directory().join("kelvin.flash.label.new");
    fs::create_dir(&obstacle).expect("a directory");
    assert_eq!(client.show("CONFIG SET appendonly yes"), "+OK");
    server.kill();
    fs::remove_dir(&obstacle).expect("it is there");
    for appendonly in ["yes", "no"] {
        fs::write(owner.directory().join(LABEL), &label).expect("it can be written");
        let options = ["--workers", "1", "--appendonly", appendonly];
        let mut server = on_directory(owner.directory(), &options);
        let keys = if appendonly == "yes" { ":1000" } else { ":0" };
        assert_eq!(server.connect().show("DBSIZE"), keys);
        server.kill();
    }
}

#[test]
fn a_long_journal_is_made_short_before_the_server_ends() {
    let owner = Server::kelvin(&[]);
    let options = ["--maxmemory", "64mb", "--workers", "2", "--auto-aof-rewrite-percentage", "0"];
    for end in
        ["SHUTDOWN NOW", "SHUTDOWN NOSAVE", "SIGTERM nosave", "SHUTDOWN", "SIGTERM", "BGREWRITEAOF"]
    {
        let on_signal = if end == "SIGTERM nosave" { "nosave" } else { "default" };
        let options = [&options[..], &["--shutdown-on-sigterm", on_signal]].concat();
        let mut server = on_directory(owner.directory(), &options);
        let mut client = server.connect();
        for number in 0..5_000 {
            let value = "v".repeat(16_000);
            assert_eq!(show(&client.call(&["SET", &format!("key:{number}"), &value])), "+OK");
        }
        client.line("TIER DEMOTE ALL");
        let written = field(&mut client, "persistence", "aof_current_size");
        if end.starts_with("SIGTERM") {
            let pid = Pid::from_raw(server.pid() as i32).expect("a process");
            kill_process(pid, Signal::TERM).expect("it runs");
        } else if end == "BGREWRITEAOF" {
            // The server is told to end while that is under way.
            assert!(client.show(end).starts_with('+'));
            client.send(&["SHUTDOWN"]);
        } else {
            client.send(&end.split(' ').collect::<Vec<_>>());
        }
        assert!(client.try_read().is_none());
        assert!(server.wait().success());
        let mut server = on_directory(owner.directory(), &options);
        let mut client = server.connect();
        let on_flash = field(&mut client, "tiering", "tier_loaded_cold");
        let there = field(&mut client, "persistence", "aof_current_size");
        match end {
            "SHUTDOWN NOW" | "SHUTDOWN NOSAVE" | "SIGTERM nosave" => {
                assert!(on_flash == 0 && there >= written, "{end}: {on_flash} {there}");
            }
            _ => assert!(on_flash > 4_000 && there < written / 8, "{end}: {on_flash} {there}"),
        }
        assert_eq!(client.show("DBSIZE"), ":5000");
        server.kill();
    }
}
