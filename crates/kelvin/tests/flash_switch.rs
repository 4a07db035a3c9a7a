//! Flash is switched on and off while the server runs, and clients find what they have written all the while.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use resp::{Frame, Reply};
use rustix::process::{Pid, Signal, kill_process};
use stdx::Random;
use support::kept::{field, shut_down, take_checkpoint, times_written, value, wait_until};
use support::{Client, Server, show, text};

/// So small a segment that flash of some megabytes has enough of them.
const SMALL: [&str; 4] = ["--flash-segment-size", "1mb", "--enable-debug-command", "yes"];
/// Numbers in a value.
const WORDS_MAX: u64 = 100;
/// Writers, and the keys of each.
const WRITERS: u64 = 3;
const KEYS: u64 = 4_000;
/// How often a test tries what a busy machine may be too slow for.
const TRIES: usize = 10;

fn set(client: &mut Client, words: &[&str]) -> String {
    show(&client.call(&[&["CONFIG", "SET"], words].concat()))
}

fn get(client: &mut Client, name: &str) -> String {
    show(&client.call(&["CONFIG", "GET", name]))
}

fn tiering(client: &mut Client, name: &str) -> u64 {
    field(client, "tiering", name)
}

/// A new directory in that of a server, by its path.
fn folder(server: &Server, name: &str) -> (PathBuf, String) {
    let path = server.directory().join(name);
    fs::create_dir(&path).expect("a directory");
    let text = path.to_str().expect("a path in UTF-8").to_owned();
    (path, text)
}

fn file(folder: &Path) -> PathBuf {
    folder.join("kelvin.flash")
}

/// Sets keys to what they have after so many times.
fn fill(client: &mut Client, keys: std::ops::Range<u64>, times: u64) {
    for index in keys.clone() {
        let key = format!("k{index}");
        client.send(&["SET", &key, &value(&key, times, WORDS_MAX)]);
    }
    keys.for_each(|_| assert_eq!(show(&client.read()), "+OK"));
}

/// Looks whether they have it.
fn check(client: &mut Client, keys: std::ops::Range<u64>, times: u64) {
    for index in keys {
        assert_eq!(times_written(client, &format!("k{index}"), WORDS_MAX), times, "k{index}");
    }
}

/// Writes and reads keys of its own until it is told to stop. Returns how often each was written.
fn write_on(server: &Server, writer: &str, stops: &AtomicBool) -> Vec<u64> {
    let mut client = server.connect();
    let mut times = vec![0; KEYS as usize];
    let mut random = Random::new(writer.len() as u64);
    while !stops.load(Ordering::Relaxed) {
        let index = random.below(KEYS);
        let key = format!("{writer}:{index}");
        let written = &mut times[index as usize];
        if random.below(3) > 0 {
            *written += 1;
            assert_eq!(
                show(&client.call(&["SET", &key, &value(&key, *written, WORDS_MAX)])),
                "+OK"
            );
        } else {
            assert_eq!(times_written(&mut client, &key, WORDS_MAX), *written);
        }
    }
    times
}

/// What writers have written: each by its name, and how often each of its keys.
type Written = Vec<(String, Vec<u64>)>;

/// Has writers write all the while, which are new ones each time, and looks at what they have written in the end.
fn under_load(server: &Server, act: impl FnOnce(&mut Client)) -> Written {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let stops = AtomicBool::new(false);
    let times: Written = thread::scope(|scope| {
        let stops = &stops;
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn(move || {
                let name = format!("{}{run}", "w".repeat(1 + writer as usize));
                let times = write_on(server, &name, stops);
                (name, times)
            })
        });
        let writers: Vec<_> = writers.collect();
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            act(&mut server.connect());
        }));
        stops.store(true, Ordering::Relaxed);
        let times = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        acted.expect("what was done meanwhile");
        times
    });
    check_all(&mut server.connect(), &times);
    times
}

fn check_all(client: &mut Client, written: &Written) {
    for (writer, times) in written {
        for (index, &times) in times.iter().enumerate() {
            let key = format!("{writer}:{index}");
            assert_eq!(times_written(client, &key, WORDS_MAX), times, "{key}");
        }
    }
}

#[test]
fn flash_is_there_once_both_options_are_set() {
    for order in [&["flash-path", "flash-size"][..], &["flash-size", "flash-path"]] {
        let server = Server::kelvin(&[&SMALL[..], &["--workers", "2"]].concat());
        let mut client = server.connect();
        let (path, dir) = folder(&server, "flash");
        let option = |name| if name == "flash-path" { dir.as_str() } else { "64mb" };
        fill(&mut client, 0..2_000, 1);
        assert_eq!(tiering(&mut client, "flash_enabled"), 0);
        assert_eq!(set(&mut client, &[order[0], option(order[0])]), "+OK");
        assert_eq!(tiering(&mut client, "flash_enabled"), 0);
        assert!(!file(&path).exists());
        assert!(client.show("TIER DEMOTE ALL").starts_with("-ERR there is no flash"));
        assert_eq!(set(&mut client, &[order[1], option(order[1])]), "+OK");
        assert_eq!(tiering(&mut client, "flash_enabled"), 1);
        assert!(file(&path).exists());
        client.line("TIER DEMOTE ALL");
        assert!(tiering(&mut client, "tier_values_cold") > 1_900);
        check(&mut client, 0..2_000, 1);
        // What is set again is as it was.
        assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "64mb"]), "+OK");
        assert_eq!(set(&mut client, &["flash-size", "128mb"]), "+OK");
        assert_eq!(tiering(&mut client, "flash_capacity_bytes"), 128 << 20);
        check(&mut client, 0..2_000, 1);
    }
}

#[test]
fn what_a_start_would_refuse_changes_nothing() {
    let holder = Server::kelvin_with_flash("64mb", &SMALL);
    let held = holder.directory().to_str().expect("a path in UTF-8");
    let server = Server::kelvin(&SMALL);
    let mut client = server.connect();
    let (_, dir) = folder(&server, "flash");
    let missing = format!("{dir}/missing");
    let twice = format!("{dir} {dir}");
    let refused = [
        (missing.as_str(), "64mb", "is not a directory"),
        (held, "64mb", "in use by another server"),
        (&dir, "1mb", "flash size too small"),
        (&dir, "1000000gb", "flash size too large"),
        (&twice, "64mb", "is given twice"),
        ("\"\"", "64mb", "no flash is an empty value"),
    ];
    for (path, size, reason) in refused {
        let reply = set(&mut client, &["flash-path", path, "flash-size", size]);
        assert!(reply.starts_with("-ERR CONFIG SET failed (possibly related to"), "{reply}");
        assert!(reply.contains(reason), "{reply}");
        // As the start says it.
        let flash = ["--flash-path", path, "--flash-size", size];
        let log = Server::failed_kelvin(&[&SMALL[..], &flash].concat());
        assert!(log.contains(reason), "{log}");
        assert_eq!(get(&mut client, "flash-path"), "[$flash-path $]");
        assert!(get(&mut client, "flash-size").contains("$0"));
        assert_eq!(tiering(&mut client, "flash_enabled"), 0);
    }
    client.line("MULTI");
    client.call(&["CONFIG", "SET", "flash-path", &dir, "flash-size", "64mb"]);
    assert!(client.show("EXEC").contains("cannot be changed in a transaction"));
    assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "64mb"]), "+OK");
    fill(&mut client, 0..100, 1);
    client.line("TIER DEMOTE ALL");
    check(&mut client, 0..100, 1);
}

#[test]
fn flash_comes_while_clients_write_and_a_snapshot_is_taken() {
    let options = ["--workers", "2", "--maxmemory", "48mb", "--rdbcompression", "no"];
    let server = Server::kelvin(&[&SMALL[..], &options].concat());
    let (_, dir) = folder(&server, "flash");
    fill(&mut server.connect(), 0..20_000, 1);
    under_load(&server, |client| {
        assert!(client.show("BGSAVE").starts_with('+'));
        assert_eq!(set(client, &["flash-path", &dir, "flash-size", "256mb"]), "+OK");
        // More than there is memory for.
        fill(client, 20_000..80_000, 2);
        assert!(tiering(client, "tier_values_cold") > 10_000);
        check(client, 0..20_000, 1);
        wait_until("the snapshot is taken", || {
            field(client, "persistence", "rdb_bgsave_in_progress") == 0
        });
        let info = text(&client.line("INFO persistence"));
        assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
        assert_eq!(client.show("SAVE"), "+OK");
    });
    check(&mut server.connect(), 20_000..80_000, 2);
}

/// A server on a directory with a journal and a configuration file.
fn journaled(directory: &Path, flash: &[&str]) -> Server {
    let dir = directory.to_str().expect("a path in UTF-8");
    let base = ["--dir", dir, "--appendonly", "yes", "--tier-persistence", "yes", "--workers", "2"];
    Server::kelvin(&[&base[..], &SMALL, &["--maxmemory", "48mb"], flash].concat())
}

#[test]
fn with_a_journal_all_is_there_after_a_kill() {
    // Whether a checkpoint was taken since.
    for has_checkpoint in [false, true] {
        let owner = Server::kelvin(&[]);
        let (_, dir) = folder(&owner, "flash");
        let flash = ["flash-path", dir.as_str(), "flash-size", "256mb"];
        let mut server = journaled(owner.directory(), &[]);
        let mut client = server.connect();
        fill(&mut client, 0..10_000, 1);
        assert_eq!(set(&mut client, &["appendfsync", "always"]), "+OK");
        let times = under_load(&server, |client| {
            assert_eq!(set(client, &flash), "+OK");
            fill(client, 10_000..60_000, 2);
            if has_checkpoint {
                take_checkpoint(client);
            }
            assert!(tiering(client, "tier_values_cold") > 1_000);
        });
        server.kill();
        let with_flash = ["--flash-path", dir.as_str(), "--flash-size", "256mb"];
        if has_checkpoint {
            // It refers to flash, so a start without is refused.
            let base = ["--dir", owner.directory().to_str().expect("UTF-8"), "--appendonly", "yes"];
            let log = Server::failed_kelvin(&base);
            assert!(log.contains("the journal refers to values on flash"), "{log}");
        }
        let mut server = journaled(owner.directory(), &with_flash);
        let mut client = server.connect();
        check(&mut client, 0..10_000, 1);
        check(&mut client, 10_000..60_000, 2);
        check_all(&mut client, &times);
        shut_down(&mut server, &mut client);
    }
}

/// Waits until flash has gone.
fn wait_until_off(client: &mut Client) {
    wait_until("flash is off", || word(client, "flash_state") == "off");
    assert_eq!(word(client, "flash_last_drain"), "done");
    assert_eq!(tiering(client, "flash_enabled"), 0);
    assert_eq!(tiering(client, "tier_values_cold") + tiering(client, "tier_values_clean"), 0);
    assert_eq!(get(client, "flash-path"), "[$flash-path $]");
}

/// A field of INFO tiering that is a word.
fn word(client: &mut Client, name: &str) -> String {
    let all = text(&client.call(&["INFO", "tiering"]));
    let field = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_else(|| panic!("{name}: {all}")).to_owned()
}

#[test]
fn flash_goes_while_clients_write_and_comes_again() {
    let options = ["--workers", "2", "--tier-promotion", "second-touch"];
    let server = Server::kelvin(&[&SMALL[..], &options].concat());
    let (path, dir) = folder(&server, "flash");
    let mut all_keys = support::values::fill_all(&mut server.connect());
    all_keys.sort();
    let told = |client: &mut Client| -> Vec<Vec<String>> {
        all_keys.iter().map(|key| support::values::told(client, key)).collect()
    };
    let before = told(&mut server.connect());
    for round in 1..=3 {
        assert_eq!(
            set(&mut server.connect(), &["flash-path", &dir, "flash-size", "256mb"]),
            "+OK",
            "{round}"
        );
        fill(&mut server.connect(), 0..20_000, round);
        under_load(&server, |client| {
            client.line("TIER DEMOTE ALL");
            assert!(tiering(client, "tier_values_cold") > 20_000);
            // A snapshot, whose walk reads what the drain brings back.
            assert!(client.show("BGSAVE").contains("aving"));
            assert_eq!(set(client, &["flash-path", ""]), "+OK");
            if round == 2 {
                // Nothing new goes there.
                assert!(client.show("TIER DEMOTE ALL").starts_with("-ERR there is no flash"));
            }
            wait_until_off(client);
            assert!(!file(&path).exists());
            assert_eq!(fs::read_dir(&path).expect("a directory").count(), 0);
        });
        let mut client = server.connect();
        check(&mut client, 0..20_000, round);
        assert_eq!(told(&mut client), before);
        wait_until("the snapshot is taken", || {
            field(&mut client, "persistence", "rdb_bgsave_in_progress") == 0
        });
        assert!(text(&client.line("INFO persistence")).contains("rdb_last_bgsave_status:ok"));
    }
}

#[test]
fn what_does_not_fit_into_memory_keeps_flash() {
    let server = Server::kelvin(&[&SMALL[..], &["--workers", "2", "--maxmemory", "48mb"]].concat());
    let mut client = server.connect();
    let (path, dir) = folder(&server, "flash");
    assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "256mb"]), "+OK");
    fill(&mut client, 0..80_000, 1);
    let reply = set(&mut client, &["flash-path", ""]);
    assert!(reply.contains("are free within maxmemory"), "{reply}");
    assert!(get(&mut client, "flash-path").contains(&dir));
    assert_eq!(word(&mut client, "flash_state"), "on");
    // There is room at first, and then no longer. On a busy machine it may have ended before.
    let is_stopped = (0..TRIES).any(|_| {
        assert_eq!(set(&mut client, &["maxmemory", "512mb"]), "+OK");
        assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "256mb"]), "+OK");
        client.line("TIER DEMOTE ALL");
        wait_until("there is room", || {
            set(&mut client, &["flash-path", "", "flash-size", "0"]) == "+OK"
        });
        assert_eq!(set(&mut client, &["maxmemory", "48mb"]), "+OK");
        wait_until("it ends", || word(&mut client, "flash_state") != "draining");
        word(&mut client, "flash_last_drain") == "no-memory"
    });
    assert!(is_stopped);
    assert!(get(&mut client, "flash-size").contains(&(256 << 20).to_string()));
    assert_eq!(word(&mut client, "flash_state"), "on");
    assert!(get(&mut client, "flash-path").contains(&dir));
    assert!(file(&path).exists());
    check(&mut client, 0..80_000, 1);
    fill(&mut client, 80_000..90_000, 1);
    check(&mut client, 0..90_000, 1);
    assert!(server.log().contains("flash stays, for values could not be brought back"));
}

/// A new path, where values are on their way back for which there is no room.
#[test]
fn a_path_that_is_refused_leaves_what_there_is() {
    let server = Server::kelvin(&[&SMALL[..], &["--workers", "2", "--maxmemory", "48mb"]].concat());
    let mut client = server.connect();
    let (path, dir) = folder(&server, "flash");
    let missing = format!("{dir}/missing");
    fill(&mut client, 0..1_000, 1);
    assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "256mb"]), "+OK");
    fill(&mut client, 1_000..80_000, 1);
    // On a busy machine all may be back before, or there may be room.
    let is_kept = (0..TRIES).any(|_| {
        assert_eq!(set(&mut client, &["maxmemory", "512mb"]), "+OK");
        assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "256mb"]), "+OK");
        client.line("TIER DEMOTE ALL");
        wait_until("there is room", || set(&mut client, &["flash-path", ""]) == "+OK");
        assert_eq!(set(&mut client, &["maxmemory", "48mb"]), "+OK");
        let reply = set(&mut client, &["flash-path", &missing]);
        assert!(reply.contains("is not a directory"), "{reply}");
        word(&mut client, "flash_state") == "on"
            && word(&mut client, "flash_last_drain") == "called-off"
    });
    assert!(is_kept);
    assert!(get(&mut client, "flash-path").contains(&dir));
    assert!(get(&mut client, "flash-size").contains(&(256 << 20).to_string()));
    assert!(file(&path).exists());
    check(&mut client, 0..80_000, 1);
}

#[test]
fn with_a_journal_flash_goes_once_no_checkpoint_refers_to_it() {
    let owner = Server::kelvin(&[]);
    let (path, dir) = folder(&owner, "flash");
    let flash = ["flash-path", dir.as_str(), "flash-size", "256mb"];
    let mut server = journaled(owner.directory(), &[]);
    let mut client = server.connect();
    assert_eq!(set(&mut client, &["maxmemory", "512mb"]), "+OK");
    assert_eq!(set(&mut client, &flash), "+OK");
    fill(&mut client, 0..20_000, 1);
    client.line("TIER DEMOTE ALL");
    take_checkpoint(&mut client);
    assert_eq!(set(&mut client, &["appendfsync", "always"]), "+OK");
    let mut times = under_load(&server, |client| {
        assert!(client.show("BGREWRITEAOF").starts_with('+'));
        assert_eq!(set(client, &["flash-path", ""]), "+OK");
        wait_until_off(client);
    });
    assert_eq!(fs::read_dir(&path).expect("a directory").count(), 0);
    for is_last in [false, true] {
        server.kill();
        // A size without a path is no flash.
        let size = ["--flash-size", "256mb", "--maxmemory", "512mb"];
        server = journaled(owner.directory(), &size);
        client = server.connect();
        check(&mut client, 0..20_000, 1);
        check_all(&mut client, &times);
        if is_last {
            break;
        }
        assert_eq!(set(&mut client, &["flash-path", &dir, "appendfsync", "always"]), "+OK");
        times = under_load(&server, |client| {
            fill(client, 0..20_000, 1);
            client.line("TIER DEMOTE ALL");
            assert_eq!(set(client, &["flash-path", ""]), "+OK");
            wait_until_off(client);
        });
    }
}

#[test]
fn changes_of_many_clients_come_one_by_one() {
    let server = Server::kelvin(&[&SMALL[..], &["--workers", "2"]].concat());
    let (_, one) = folder(&server, "one");
    let (_, two) = folder(&server, "two");
    fill(&mut server.connect(), 0..10_000, 1);
    under_load(&server, |_| {
        thread::scope(|scope| {
            let server = &server;
            for paths in [[one.as_str(), ""], [two.as_str(), ""]] {
                scope.spawn(move || {
                    let mut client = server.connect();
                    for round in 0..30 {
                        let path = paths[round % 2];
                        let reply = set(&mut client, &["flash-path", path, "flash-size", "256mb"]);
                        assert_eq!(reply, "+OK", "{path}");
                        // Where there is flash just now.
                        client.line("TIER DEMOTE ALL");
                        check(&mut client, round as u64 * 300..round as u64 * 300 + 100, 1);
                    }
                });
            }
        });
    });
    let mut client = server.connect();
    check(&mut client, 0..10_000, 1);
    wait_until_off(&mut client);
    check(&mut client, 0..10_000, 1);
}

#[test]
fn a_drain_ends_with_what_is_flushed_with_a_new_path_and_with_the_server() {
    let owner = Server::kelvin(&[]);
    let (path, dir) = folder(&owner, "flash");
    let with_flash = ["--flash-path", dir.as_str(), "--flash-size", "512mb", "--maxmemory", "1gb"];
    let mut server = journaled(owner.directory(), &with_flash);
    let mut client = server.connect();
    fill(&mut client, 0..50_000, 1);
    client.line("TIER DEMOTE ALL");
    // What is asked for is answered, and is what was set, whether it is back or not.
    client.send(&["CONFIG", "SET", "flash-path", ""]);
    client.send(&["FLUSHALL"]);
    assert_eq!([show(&client.read()), show(&client.read())], ["+OK", "+OK"]);
    wait_until_off(&mut client);
    assert!(!file(&path).exists());
    assert_eq!(client.show("DBSIZE"), ":0");
    assert_eq!(set(&mut client, &["flash-path", &dir]), "+OK");
    fill(&mut client, 0..50_000, 2);
    client.line("TIER DEMOTE ALL");
    take_checkpoint(&mut client);
    let cold = tiering(&mut client, "tier_values_cold");
    // On a busy machine it may have ended before.
    let is_called_off = (0..TRIES).any(|_| {
        client.line("TIER DEMOTE ALL");
        assert_eq!(set(&mut client, &["flash-path", ""]), "+OK");
        wait_until("some are back", || tiering(&mut client, "tier_values_cold") < cold);
        assert_eq!(set(&mut client, &["flash-path", &dir]), "+OK");
        assert_eq!(word(&mut client, "flash_state"), "on");
        check(&mut client, 0..50_000, 2);
        word(&mut client, "flash_last_drain") == "called-off"
    });
    assert!(is_called_off);
    check(&mut client, 0..50_000, 2);
    client.line("TIER DEMOTE ALL");
    assert_eq!(set(&mut client, &["flash-path", ""]), "+OK");
    wait_until("some are back", || tiering(&mut client, "tier_values_cold") < cold);
    shut_down(&mut server, &mut client);
    let mut server = journaled(owner.directory(), &with_flash);
    let mut client = server.connect();
    check(&mut client, 0..50_000, 2);
    assert_eq!(set(&mut client, &["flash-path", ""]), "+OK");
    wait_until("some are back", || tiering(&mut client, "tier_values_cold") < cold);
    server.kill();
    let mut server = journaled(owner.directory(), &with_flash);
    let mut client = server.connect();
    check(&mut client, 0..50_000, 2);
    shut_down(&mut server, &mut client);
}

#[test]
fn the_file_of_options_says_that_there_is_none() {
    let owner = Server::kelvin(&[]);
    let (_, dir) = folder(&owner, "flash");
    let text = format!("flash-path {dir}\nflash-size 256mb\nflash-segment-size 1mb\n");
    let server = Server::kelvin_with_file(&text, &[]);
    let mut client = server.connect();
    fill(&mut client, 0..1_000, 1);
    client.line("TIER DEMOTE ALL");
    assert_eq!(set(&mut client, &["flash-path", ""]), "+OK");
    wait_until_off(&mut client);
    assert_eq!(client.show("CONFIG REWRITE"), "+OK");
    let written = fs::read_to_string(server.directory().join("kelvin.conf")).expect("a file");
    assert!(!written.contains(&dir), "{written}");
    let again = Server::kelvin_with_file(&written, &[]);
    assert_eq!(tiering(&mut again.connect(), "flash_enabled"), 0);
    assert_eq!(set(&mut again.connect(), &["flash-path", &dir]), "+OK");
    assert_eq!(again.connect().show("CONFIG REWRITE"), "+OK");
    let written = fs::read_to_string(again.directory().join("kelvin.conf")).expect("a file");
    assert!(written.contains(&dir), "{written}");
}

#[test]
fn what_is_kept_for_another_journal_is_left_alone() {
    let owner = Server::kelvin(&[]);
    let (path, dir) = folder(&owner, "flash");
    let with_flash = ["--flash-path", dir.as_str(), "--flash-size", "256mb"];
    let mut server = journaled(owner.directory(), &with_flash);
    let mut client = server.connect();
    fill(&mut client, 0..1_000, 1);
    client.line("TIER DEMOTE ALL");
    take_checkpoint(&mut client);
    server.kill();
    let other = Server::kelvin(&[]);
    for options in [&["--appendonly", "no"], &["--appendonly", "yes"]] {
        let dir_of_other = other.directory().to_str().expect("a path in UTF-8");
        let options = [&SMALL[..], options, &["--dir", dir_of_other]].concat();
        let other = Server::kelvin(&options);
        let reply = set(&mut other.connect(), &["flash-path", &dir, "flash-size", "256mb"]);
        assert!(reply.contains("cannot open the flash as it is kept"), "{reply}");
        let log = Server::failed_kelvin(&[&options[..], &with_flash].concat());
        assert!(log.contains("cannot open the flash as it is kept"), "{log}");
    }
    assert!(file(&path).exists());
    let server = journaled(owner.directory(), &with_flash);
    check(&mut server.connect(), 0..1_000, 1);
}

/// Sends a request and reads its reply; none when the server is gone.
fn try_call(client: &mut Client, words: &[&str]) -> Option<Frame> {
    let mut request = Reply::default();
    request.array(words.len());
    words.iter().for_each(|word| request.bulk(word.as_bytes()));
    if client.try_write(request.as_slice()) { client.try_read() } else { None }
}

/// Switches flash on and off, and has it copied to meanwhile, until the server is gone.
fn switch_on_and_off(mut client: Client, dir: &str) {
    let lines: [&[&str]; 5] = [
        &["CONFIG", "SET", "flash-path", ""],
        &["PING"],
        &["CONFIG", "SET", "flash-path", dir],
        &["TIER", "DEMOTE", "ALL"],
        &["BGREWRITEAOF"],
    ];
    let mut random = Random::new(1);
    while lines.iter().all(|words| {
        thread::sleep(Duration::from_millis(random.below(60)));
        try_call(&mut client, words).is_some()
    }) {}
}

#[test]
fn nothing_is_lost_whenever_the_server_is_killed() {
    const KILLS: u64 = 8;
    let owner = Server::kelvin(&[]);
    let (_, dir) = folder(&owner, "flash");
    let options = ["--flash-path", &dir, "--flash-size", "256mb", "--appendfsync", "always"];
    let mut written = vec![0; KEYS as usize];
    let mut random = Random::new(2);
    for kill in 0..KILLS {
        let mut server = journaled(owner.directory(), &options);
        let mut client = server.connect();
        for (index, times) in written.iter_mut().enumerate() {
            let found = times_written(&mut client, &format!("k{index}"), WORDS_MAX);
            // One may have been written and not answered.
            assert!(
                found == *times || found == *times + 1,
                "k{index}: {found}, {times} in kill {kill}"
            );
            *times = found;
        }
        let (pid, after) = (server.pid(), Duration::from_millis(200 + random.below(1_500)));
        thread::scope(|scope| {
            let switching = server.connect();
            scope.spawn(|| switch_on_and_off(switching, &dir));
            scope.spawn(move || {
                thread::sleep(after);
                let pid = Pid::from_raw(pid as i32).expect("a process");
                kill_process(pid, Signal::KILL).expect("a child can be killed");
            });
            loop {
                let index = random.below(KEYS) as usize;
                let (key, times) = (format!("k{index}"), written[index] + 1);
                match try_call(&mut client, &["SET", &key, &value(&key, times, WORDS_MAX)]) {
                    Some(reply) => assert_eq!(show(&reply), "+OK"),
                    None => break,
                }
                written[index] = times;
            }
        });
        server.kill();
    }
}

#[test]
fn a_server_that_is_full_goes_on_with_flash() {
    let server = Server::kelvin(&[&SMALL[..], &["--workers", "2", "--maxmemory", "48mb"]].concat());
    let mut client = server.connect();
    let (_, dir) = folder(&server, "flash");
    let set_one = |client: &mut Client, index: u64| {
        let key = format!("k{index}");
        show(&client.call(&["SET", &key, &value(&key, 1, WORDS_MAX)]))
    };
    let full =
        (0..200_000).find(|&index| set_one(&mut client, index) != "+OK").expect("it is full");
    assert_eq!(set(&mut client, &["flash-path", &dir, "flash-size", "256mb"]), "+OK");
    fill(&mut client, full..full + 50_000, 1);
    check(&mut client, 0..full + 50_000, 1);
}

#[test]
fn a_value_that_cannot_be_read_keeps_flash() {
    let owner = Server::kelvin(&[]);
    // In one word, which only a file with several can have.
    let (path, dir) = folder(&owner, "flash with blanks");
    let (_, other) = folder(&owner, "other");
    let flash = format!("flash-path \"{dir}\" {other}");
    let server = Server::kelvin_with_file(&format!("{flash}\nflash-size 256mb\n"), &SMALL);
    let mut client = server.connect();
    fill(&mut client, 0..10_000, 1);
    client.line("TIER DEMOTE ALL");
    let damaged = fs::OpenOptions::new().write(true).open(file(&path)).expect("the flash");
    // Some may be on their way there.
    wait_until("it ends with a value that cannot be read", || {
        damaged.write_all_at(&vec![0xA5; 4 << 20], 0).expect("it can be written");
        damaged.sync_all().expect("it can be written");
        assert_eq!(set(&mut client, &["flash-path", ""]), "+OK");
        wait_until("it ends", || word(&mut client, "flash_state") != "draining");
        word(&mut client, "flash_last_drain") == "unreadable"
    });
    assert_eq!(word(&mut client, "flash_state"), "on");
    assert!(get(&mut client, "flash-path").contains(&dir));
    assert!(file(&path).exists());
    assert!(server.log().contains("a value on flash cannot be read"));
    assert_eq!(client.show("CONFIG REWRITE"), "+OK");
    let written = fs::read_to_string(server.directory().join("kelvin.conf")).expect("a file");
    assert!(written.contains(&flash), "{written}");
    client.line("FLUSHALL");
    assert_eq!(set(&mut client, &["flash-path", ""]), "+OK");
    wait_until_off(&mut client);
    assert!(!file(&path).exists());
}
