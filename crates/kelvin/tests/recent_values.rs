//! Values in RAM that the journal has: a checkpoint says in which record each stands, and has none of them itself.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use resp::Frame;
use stdx::Random;
use support::kept::{
    check, field, on_directory, shut_down, take_checkpoint, times_written, value, wait_until,
};
use support::{Client, Server, show};

/// With segments so long that values in RAM, which fill less than four, are not copied to flash for a checkpoint.
const OPTIONS: [&str; 8] = [
    "--workers",
    "2",
    "--flash-segment-size",
    "8mb",
    "--auto-aof-rewrite-percentage",
    "0",
    "--save",
    "",
];
const VALUES: usize = 3_000;
/// Words of values, at most.
const WORDS_MAX: u64 = 300;

fn set(client: &mut Client, key: &str, times: u64) {
    let reply = client.call(&["SET", key, &value(key, times, WORDS_MAX)]);
    assert_eq!(show(&reply), "+OK");
}

fn fill(client: &mut Client, times: u64) {
    (0..VALUES).for_each(|number| set(client, &format!("key:{number}"), times));
}

/// The options of a server that is not to be started.
fn options_on(directory: &Path) -> Vec<String> {
    let dir = directory.to_str().expect("a path in UTF-8");
    let own = ["--dir", dir, "--flash-path", dir, "--flash-size", "512mb"];
    let kept = ["--appendonly", "yes", "--tier-persistence", "yes"];
    [&own[..], &kept, &OPTIONS].concat().into_iter().map(str::to_owned).collect()
}

fn run(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = client.line(line);
        assert!(!matches!(reply, Frame::Error(_)), "{line}: {}", show(&reply));
    }
}

/// The segments of the journal, the oldest first.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("appendonlydir")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_segment = |path: &PathBuf| path.to_string_lossy().contains("/journal.");
    let mut paths: Vec<PathBuf> = paths.filter(is_segment).collect();
    paths.sort();
    paths
}

/// Bytes of the segments in front of the last checkpoint.
fn kept_bytes(client: &mut Client) -> u64 {
    field(client, "persistence", "aof_kept_size")
}

/// Values are written once, to the journal, and are there behind a start, however the process ends and however many
/// checkpoints are taken.
#[test]
fn values_that_the_journal_has_are_not_written_again() {
    let owner = Server::kelvin(&[]);
    let mut server = on_directory(owner.directory(), &OPTIONS);
    let mut client = server.connect();
    fill(&mut client, 1);
    fill(&mut client, 2);
    let long = |byte: &str| byte.repeat(400);
    let lines = [
        // One record with several commands, of which the last counts; the same name in another database.
        "MULTI".to_owned(),
        format!("SET twice {}", long("a")),
        format!("SET other {}", long("b")),
        format!("SET twice {}", long("c")),
        "SELECT 3".to_owned(),
        format!("SET twice {}", long("d")),
        "SELECT 0".to_owned(),
        "EXEC".to_owned(),
        format!("SET appended {}", long("e")),
        format!("APPEND appended {}", long("f")),
        format!("SET volatile {} PX 99999999", long("g")),
        format!("SET volatile {} KEEPTTL", long("h")),
        format!("SET gone {}", long("i")),
        "DEL gone".to_owned(),
        format!("SET moved {}", long("j")),
        "MOVE moved 5".to_owned(),
        format!("SET renamed {}", long("k")),
        "RENAME renamed new".to_owned(),
        format!("SET number {}", "7".repeat(18)),
        format!("MSET one {} two {} one {}", long("l"), long("m"), long("o")),
        format!("SETEX short 999999 {}", long("p")),
        format!("GETSET short {}", long("q")),
        format!("SET empty {}", long("n")),
        "SETRANGE empty 0 x".to_owned(),
        "SWAPDB 3 4".to_owned(),
    ];
    run(&mut client, &lines.each_ref().map(String::as_str));
    let expected = client.show("DEBUG DIGEST");
    let bytes = field(&mut client, "tiering", "tier_values_hot_bytes");
    let mut copied = 0;
    for round in 0..4 {
        take_checkpoint(&mut client);
        let base = field(&mut client, "persistence", "aof_base_size");
        assert!(base < bytes / 20, "{round}: {base} of {bytes}");
        let kept = kept_bytes(&mut client);
        assert!(kept > bytes, "{round}: {kept} of {bytes}");
        copied += field(&mut client, "tiering", "flash_append_bytes");
        assert!(copied < bytes / 100, "{round}: {copied} of {bytes}");
        set(&mut client, "behind", round);
        wait_until("the last write is durable", || {
            field(&mut client, "persistence", "aof_buffer_length") == 0
        });
        match round % 2 {
            0 => server.kill(),
            _ => shut_down(&mut server, &mut client),
        }
        server = on_directory(owner.directory(), &OPTIONS);
        client = server.connect();
        // The end of a server has a checkpoint of its own.
        let kept_now = kept_bytes(&mut client);
        assert!(
            kept_now == kept || round % 2 == 1 && kept_now > bytes,
            "{round}: {kept_now}, {kept}"
        );
        assert_eq!(times_written(&mut client, "behind", WORDS_MAX), round);
        run(&mut client, &["DEL behind"]);
        assert_eq!(client.show("DEBUG DIGEST"), expected, "{round}");
        assert!(matches!(client.line("PTTL volatile"), Frame::Integer(ms) if ms > 1));
        let found = field(&mut client, "tiering", "tier_loaded_recent");
        assert!(found > VALUES as u64 * 9 / 10, "{round}: {found}");
        let hot = field(&mut client, "tiering", "tier_values_hot_bytes");
        assert!(bytes - hot <= copied, "{round}: {hot} of {bytes} bytes are in RAM again");
    }
    // What nobody refers to is not kept.
    let before = segments(owner.directory());
    run(&mut client, &["FLUSHALL"]);
    take_checkpoint(&mut client);
    let after = segments(owner.directory());
    assert!(before.len() > 1 && after.len() == 1, "{before:?} {after:?}");
    assert_eq!(kept_bytes(&mut client), 0);
}

/// Writers change values while checkpoints are taken again and again: each has them as they were at its moment.
#[test]
fn what_was_answered_is_there_though_values_change_meanwhile() {
    const ROUNDS: u64 = 4;
    let owner = Server::kelvin(&[]);
    let options = [&OPTIONS[..], &["--appendfsync", "always"]].concat();
    let mut written = vec![0; VALUES];
    let mut random = Random::new(5);
    for round in 0..ROUNDS {
        let mut server = on_directory(owner.directory(), &options);
        let mut client = server.connect();
        for (number, times) in written.iter_mut().enumerate() {
            let found = times_written(&mut client, &format!("key:{number}"), WORDS_MAX);
            // The last one may not have been answered.
            assert!(found == *times || found == *times + 1, "{round}: {number}: {found}");
            *times = found;
        }
        let seed = random.next_u64();
        thread::scope(|scope| {
            let (mut writer, written) = (server.connect(), &mut written);
            let writer = scope.spawn(move || {
                let mut random = Random::new(seed);
                loop {
                    // Few are written again and again.
                    let number = (random.below(VALUES as u64) * random.below(100) / 100) as usize;
                    let (key, times) = (format!("key:{number}"), written[number] + 1);
                    writer.send(&["SET", &key, &value(&key, times, WORDS_MAX)]);
                    match writer.try_read() {
                        Some(reply) => assert_eq!(show(&reply), "+OK"),
                        None => return,
                    }
                    written[number] = times;
                }
            });
            for _ in 0..4 {
                take_checkpoint(&mut client);
            }
            server.kill();
            writer.join().expect("it ends");
        });
    }
}

/// A record that is damaged or gone is told with the keys whose values it has, a start is refused, and a repair deletes
/// these and nothing else.
#[test]
fn a_value_that_is_lost_with_its_record_is_told_and_taken_out() {
    // Shorter ones are in the checkpoint.
    let is_long = |number: &usize| value(&format!("key:{number}"), 1, WORDS_MAX).len() >= 128;
    let in_journal = (0..VALUES).filter(is_long).count();
    assert!(is_long(&7) && is_long(&1500));
    for removes_segment in [false, true] {
        let owner = Server::kelvin(&[]);
        let options = options_on(owner.directory());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut server = on_directory(owner.directory(), &OPTIONS);
        let mut client = server.connect();
        fill(&mut client, 1);
        take_checkpoint(&mut client);
        set(&mut client, "key:7", 2);
        set(&mut client, "behind", 1);
        shut_down(&mut server, &mut client);
        let (code, told) = check(&options);
        assert_eq!(code, 0, "{told}");
        let segments = segments(owner.directory());
        assert!(segments.len() > 1, "{segments:?}");
        if removes_segment {
            fs::remove_file(&segments[0]).expect("it is there");
        } else {
            let mut bytes = fs::read(&segments[0]).expect("it can be read");
            let name = b"key:1500";
            let at = bytes.windows(name.len()).position(|window| window == name);
            bytes[at.expect("its record") + 40] ^= 1;
            fs::write(&segments[0], bytes).expect("it can be written");
        }
        let log = Server::failed_kelvin(&options);
        assert!(log.contains("its value is in the record of the journal"), "{log}");
        let (code, told) = check(&options);
        assert_eq!(code, 1, "{told}");
        let lost = told.lines().filter(|line| line.starts_with("lost: ")).count();
        let expected = if removes_segment { in_journal } else { 1 };
        assert!(lost == expected && told.contains("\"key:1500\""), "{lost}: {told}");
        let (code, told) = check(&[&options[..], &["--repair"]].concat());
        assert_eq!(code, 0, "{told}");
        let mut server = on_directory(owner.directory(), &OPTIONS);
        let mut client = server.connect();
        assert_eq!(times_written(&mut client, "behind", WORDS_MAX), 1);
        assert_eq!(times_written(&mut client, "key:7", WORDS_MAX), 2);
        assert_eq!(times_written(&mut client, "key:1500", WORDS_MAX), 0);
        // The keys 7 and behind were written later.
        let left = VALUES - expected + if removes_segment { 2 } else { 1 };
        assert_eq!(client.show("DBSIZE"), format!(":{left}"));
        take_checkpoint(&mut client);
        shut_down(&mut server, &mut client);
        let (code, told) = check(&options);
        assert_eq!(code, 0, "{told}");
    }
}

/// Where the flash is lost and the keys on it are taken out, values that the journal has stay, and the rest can be checked.
#[test]
fn values_that_the_journal_has_stay_where_the_flash_is_lost() {
    let owner = Server::kelvin(&[]);
    let options = options_on(owner.directory());
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut server = on_directory(owner.directory(), &OPTIONS);
    let mut client = server.connect();
    fill(&mut client, 1);
    let is_long = |number: &usize| value(&format!("key:{number}"), 1, WORDS_MAX).len() >= 128;
    let demoted: Vec<usize> = (0..VALUES).filter(is_long).take(10).collect();
    for number in &demoted {
        assert_eq!(client.show(&format!("TIER DEMOTE key:{number}")), ":1", "{number}");
    }
    take_checkpoint(&mut client);
    shut_down(&mut server, &mut client);
    fs::remove_file(owner.directory().join("kelvin.flash")).expect("it is there");
    let (code, told) = check(&[&options[..], &["--repair"]].concat());
    assert_eq!(code, 0, "{told}");
    let (code, told) = check(&options);
    assert_eq!(code, 0, "{told}");
    let server = on_directory(owner.directory(), &OPTIONS);
    let mut client = server.connect();
    for number in 0..VALUES {
        let found = times_written(&mut client, &format!("key:{number}"), WORDS_MAX);
        assert_eq!(found, u64::from(!demoted.contains(&number)), "{number}");
    }
    take_checkpoint(&mut client);
}
