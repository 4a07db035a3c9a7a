//! `maxmemory` bounds what the process takes from the machine, whatever is written how fast.

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use resp::Frame;
use stdx::Random;
use support::{Client, Server, show, text};

const MIB: u64 = 1 << 20;
/// How often a write is tried again while pages come free.
const RETRIES_MAX: usize = 500;
/// Keys that may fit where one was refused a moment ago: 2 MiB.
const MORE_KEYS_MAX: u32 = 50_000;
/// Writes that are refused in a row: seconds of measurements.
const REFUSALS: u64 = 10_000;
/// How long a write waits for room that there may be.
const ROOM_WAIT: Duration = Duration::from_secs(5);
/// Beside work in the background every client is answered so soon, on a machine that tests keep busy.
const SERVED_WITHIN: Duration = Duration::from_millis(150);
const OPTIONS: [&str; 4] = ["--workers", "1", "--flash-segment-size", "4mb"];

/// Without flash.
const EVICTING: [&str; 6] =
    ["--workers", "1", "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];

/// Writes keys 1 to `keys` once each as fast as it goes; whether all were taken.
fn fill(server: &Server, keys: u64, sizes: &[&str]) -> bool {
    let (port, keys) = (server.port().to_string(), keys.to_string());
    let output = Command::new(env!("CARGO_BIN_EXE_kelvin"))
        .args(["bench", "run", "-p", &port, "-n", "allkeys", "-c", "16", "-t", "1"])
        .args(["--pipeline", "32", "--ratio", "1:0", "--key-pattern", "P:P", "--batch"])
        .args(["--key-minimum", "1", "--key-maximum", &keys])
        .args(sizes)
        .output()
        .expect("the load runs");
    output.status.success()
}

/// How long writes have waited for room, by the server's clock: the test may be kept waiting, too.
fn waited(client: &mut Client) -> Duration {
    Duration::from_micros(counter(client, "tier_pressure_us:"))
}

/// How many writes have sought room.
fn searches(client: &mut Client) -> u64 {
    counter(client, "tier_pressure_waits:")
}

/// What keys and values take, in bytes.
fn dataset_bytes(client: &mut Client) -> u64 {
    counter(client, "used_memory_dataset:")
}

fn counter(client: &mut Client, name: &str) -> u64 {
    let info = text(&client.line("INFO everything"));
    let value = info.lines().find_map(|line| line.strip_prefix(name)).expect("a counter");
    value.trim().parse().expect("a number")
}

#[test]
fn a_fill_at_full_speed_stays_within_maxmemory() {
    let cases: &[(u64, u64, &[&str])] = &[
        (100, 1_200_000, &["-d", "100"]),
        (100, 1_000_000, &["-d", "512"]),
        (128, 1_000_000, &["--data-size-range", "1-1024"]),
    ];
    for &(maxmemory, keys, sizes) in cases {
        let bytes = (maxmemory * MIB).to_string();
        let options = [&OPTIONS[..], &["--maxmemory", &bytes]].concat();
        let server = Server::kelvin_with_flash("2gb", &options);
        assert!(fill(&server, keys, sizes), "{sizes:?}: every write is taken");
        assert_eq!(server.connect().line("DBSIZE"), Frame::Integer(keys as i64));
        let peak = server.resident_peak();
        assert!(peak <= maxmemory * MIB * 21 / 20, "{sizes:?}: {} MiB of {maxmemory}", peak / MIB);
    }
}

/// Without flash keys go, which leave holes in pages: values that find no room there wait until pages are emptied.
#[test]
fn values_larger_than_those_that_go_stay_within_maxmemory() {
    let server = Server::kelvin(&EVICTING);
    assert!(fill(&server, 80_000, &["-d", "1000"]));
    assert!(fill(&server, 10_000, &["-d", "20000"]));
    let peak = server.resident_peak();
    assert!(peak <= 64 * MIB * 21 / 20, "{:.3}", peak as f64 / (64 * MIB) as f64);
    assert!(dataset_bytes(&mut server.connect()) >= 64 * MIB * 5 / 8);
}

/// Keys of a few bytes leave holes as they go: others do not go for these, during the writes or behind them.
#[test]
fn small_keys_without_flash_fill_memory_while_others_go() {
    let server = Server::kelvin(&EVICTING);
    assert!(fill(&server, 2_500_000, &["-d", "10"]));
    let mut client = server.connect();
    let before = dataset_bytes(&mut client);
    assert!(before >= 64 * MIB * 5 / 8, "{before} bytes are left");
    std::thread::sleep(Duration::from_secs(2));
    let left = dataset_bytes(&mut client);
    assert!(left >= before * 7 / 8, "{left} of {before} bytes are left");
    assert!(server.resident_peak() <= 64 * MIB * 21 / 20);
}

/// A large value needs whole pages, and keys that go for it leave holes in many: no more of them go for that.
#[test]
fn large_values_without_flash_evict_about_what_they_take() {
    let server = Server::kelvin(&EVICTING);
    let mut client = server.connect();
    let value = "v".repeat(80);
    for hash in 0..1_200 {
        let key = format!("hash-{hash}");
        let fields: Vec<String> = (0..1_000).map(|field| format!("field-{field}")).collect();
        let mut words = vec!["HSET", &key];
        fields.iter().for_each(|field| words.extend([field, value.as_str()]));
        client.call(&words);
    }
    let before = dataset_bytes(&mut client);
    let large = "v".repeat(MIB as usize);
    for number in 0..6 {
        assert_eq!(show(&client.call(&["SET", &format!("large-{number}"), &large])), "+OK");
    }
    let left = dataset_bytes(&mut client);
    assert!(left >= before * 5 / 6, "{left} of {before} bytes are left");
    assert!(server.resident_peak() <= 64 * MIB * 21 / 20);
}

#[test]
fn large_replies_without_flash_evict_about_what_they_take() {
    const REPLIES: usize = 100;
    let server = Server::kelvin(&EVICTING);
    let mut client = server.connect();
    let element = "e".repeat(100);
    let mut words = vec!["RPUSH", "list"];
    words.extend([element.as_str(); 3_000]);
    client.call(&words);
    for keys in [200_000, 400_000] {
        assert!(fill(&server, keys, &["-d", "100"]));
        // It is in use.
        client.line("LRANGE list 0 0");
    }
    let before = dataset_bytes(&mut client);
    let mut readers: Vec<Client> = (0..REPLIES).map(|_| server.connect()).collect();
    readers.iter_mut().for_each(|reader| reader.send(&["LRANGE", "list", "0", "-1"]));
    for reader in &mut readers {
        let Frame::Array(elements) = reader.read() else { panic!("an array") };
        assert_eq!(elements.len(), 3_000);
    }
    let left = dataset_bytes(&mut client);
    assert!(left >= before / 3, "{left} of {before} bytes are left");
}

#[test]
fn keys_that_fill_memory_alone_are_refused_and_what_is_there_is_served() {
    let options = [&OPTIONS[..], &["--maxmemory", "64mb"]].concat();
    let server = Server::kelvin_with_flash("1gb", &options);
    assert!(!fill(&server, 2_000_000, &["-d", "100"]), "2 M keys do not fit");
    let mut client = server.connect();
    let Frame::Integer(keys) = client.line("DBSIZE") else { panic!("a number") };
    assert!((1_000_000..1_900_000).contains(&keys), "{keys} keys in 64 MiB");
    // Pages of values that have left may come free a moment later: some keys more may fit.
    let refused = (0..MORE_KEYS_MAX)
        .map(|number| client.show(&format!("SET another-{number} value")))
        .find(|reply| reply != "+OK");
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(refused.as_deref(), Some(oom));
    let Frame::Bulk(value) = client.line("GET memtier-1") else { panic!("a value") };
    assert_eq!(value.len(), 100);
    // What is in flight is a larger part of so little.
    assert!(server.resident_peak() <= 64 * MIB * 11 / 10, "{}", server.resident_peak());
    // What is deleted makes room, once it leaves whole pages.
    for key in 1..=100_000 {
        client.send(&["DEL", &format!("memtier-{key}")]);
    }
    (0..100_000).for_each(|_| drop(client.read()));
    let is_taken = |_| {
        std::thread::sleep(Duration::from_millis(20));
        client.show("SET another value") == "+OK"
    };
    assert!((0..RETRIES_MAX).any(is_taken));
}

/// Sets keys to tiny values, a thousand at a time, until so many were refused. Returns those that were taken.
fn set_until_refused(client: &mut Client, keys: Vec<String>, refusals_max: usize) -> Vec<String> {
    let (mut taken, mut refusals) = (Vec::new(), 0);
    for batch in keys.chunks(1_000) {
        batch.iter().for_each(|key| client.send(&["SET", key, "value"]));
        for key in batch {
            match show(&client.read()).as_str() {
                "+OK" => taken.push(key.clone()),
                _ => refusals += 1,
            }
        }
        if refusals >= refusals_max {
            break;
        }
    }
    taken
}

#[test]
fn keys_that_were_deleted_leave_room_for_longer_ones() {
    let options = ["--workers", "2", "--flash-segment-size", "4mb", "--maxmemory", "64mb"];
    let server = Server::kelvin_with_flash("1gb", &options);
    let mut client = server.connect();
    let mut random = Random::new(1);
    let mut named = |round: u64, count: u64, lengths: u64| -> Vec<String> {
        let mut name =
            |number| format!("{round}:{number}:{}", "x".repeat(random.below(lengths) as usize));
        (0..count).map(&mut name).collect()
    };
    let mut there = set_until_refused(&mut client, named(0, 320_000, 20), 1);
    assert_eq!(there.len(), 320_000);
    let mut choice = Random::new(2);
    for round in 1..4 {
        let (gone, left) = there.into_iter().partition::<Vec<_>, _>(|_| choice.below(10) < 7);
        gone.iter().for_each(|key| client.send(&["DEL", key]));
        gone.iter().for_each(|_| assert_eq!(show(&client.read()), ":1"));
        there = left;
        there.extend(set_until_refused(&mut client, named(round, 400_000, 30 + 30 * round), 2_000));
    }
    // What is left of the first ones holds a quarter of RAM, until it has moved.
    let makes_room = |_| {
        std::thread::sleep(Duration::from_millis(20));
        let keys = (0..3_000).map(|number| format!("{number}:{}", "y".repeat(100))).collect();
        set_until_refused(&mut client, keys, 1).len() == 3_000
    };
    assert!((0..RETRIES_MAX).any(makes_room), "{}", text(&client.line("INFO memory")));
}

#[test]
fn a_bound_that_nothing_can_meet_is_not_waited_for() {
    let options = [&OPTIONS[..], &["--maxmemory", "100mb"]].concat();
    let server = Server::kelvin_with_flash("1gb", &options);
    let mut client = server.connect();
    assert_eq!(client.show("SET key value"), "+OK");
    assert_eq!(client.show("CONFIG SET maxmemory 1"), "+OK");
    let before = waited(&mut client);
    let refused = client.show("SET key other");
    assert_eq!(refused, "-OOM command not allowed when used memory > 'maxmemory'.");
    assert!(waited(&mut client) - before < ROOM_WAIT / 2, "before the wait for room is over");
    // Those that come before memory is measured again, fifty times a second, do not seek at all.
    let before = searches(&mut client);
    (0..REFUSALS).for_each(|_| client.send(&["SET", "key", "other"]));
    (0..REFUSALS).for_each(|_| assert_eq!(show(&client.read()), refused));
    assert!(searches(&mut client) - before < REFUSALS / 2);
    assert_eq!(client.show("CONFIG SET maxmemory 0"), "+OK");
    assert_eq!(client.show("SET key other"), "+OK");
}

#[test]
fn a_transaction_of_commands_with_large_replies_stays_within_maxmemory() {
    let server = Server::kelvin(&["--workers", "2", "--maxmemory", "64mb"]);
    let mut client = server.connect();
    client.line("MULTI");
    let subscribe = format!("SUBSCRIBE {}", "c".repeat(100));
    let others = ["SET key value", "CONFIG SET maxmemory-samples 6", &subscribe];
    let lines = [&["MEMORY MALLOC-STATS", "COMMAND"], &others[..]].concat();
    for line in lines.iter().cycle().take(2_000) {
        assert_eq!(client.show(line), "+QUEUED");
    }
    let Frame::Array(replies) = client.line("EXEC") else { panic!("replies") };
    let shown = |nth: usize| replies.iter().skip(nth).step_by(lines.len()).map(show);
    assert!(show(&replies[1]).contains("getrange"), "the first are given");
    for nth in [0, 1] {
        let last = shown(nth).next_back().expect("a reply");
        assert!(last.starts_with("-ERR request needs more memory"), "{last}");
    }
    for nth in [2, 3] {
        let refused = shown(nth).find(|reply| reply != "+OK");
        assert_eq!(refused, None, "small ones always are");
    }
    let told = shown(4).all(|reply| reply.starts_with("[$subscribe "));
    assert!(told, "what a connection hears from now on it is told");
    assert!(server.resident_peak() <= 64 * MIB * 21 / 20, "{}", server.resident_peak());
    assert_eq!(server.connect().show("GET key"), "$value");
}

/// Values of 12 MB and a hash of 24 MB, most of them on flash, and the peak of before forgotten.
fn filled_with_large_values() -> Server {
    let options = ["--workers", "2", "--maxmemory", "64mb", "--enable-debug-command", "yes"];
    let server = Server::kelvin_with_flash("1gb", &options);
    let mut client = server.connect();
    for number in 0..12usize {
        let value: Vec<u8> =
            (0..12 << 20).map(|at: usize| ((at * (at + number)) >> 7) as u8).collect();
        client.send_bytes(&[b"SET", format!("string-{number}").as_bytes(), &value]);
        assert_eq!(show(&client.read()), "+OK");
    }
    let value = "v".repeat(400);
    for start in (0..60_000).step_by(500) {
        let fields: Vec<String> = (start..start + 500).map(|field| format!("f{field}")).collect();
        let mut words = vec!["HSET", "hash"];
        fields.iter().for_each(|field| words.extend([field, value.as_str()]));
        assert_eq!(client.call(&words), Frame::Integer(500));
    }
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5")
        .expect("the peak is forgotten");
    server
}

/// How long a PING took at most, while `work` was done.
fn slowest_ping(server: &Server, work: impl FnOnce()) -> Duration {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                for client in &mut clients {
                    let start = Instant::now();
                    client.line("PING");
                    slowest = slowest.max(start.elapsed());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            slowest
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        pinging.join().expect("it is answered")
    })
}

#[test]
fn a_snapshot_of_large_values_stays_within_maxmemory() {
    let server = filled_with_large_values();
    let mut client = server.connect();
    for _ in 0..2 {
        assert_eq!(client.show("SAVE"), "+OK");
    }
    let peak = server.resident_peak();
    assert!(peak <= 64 * MIB * 21 / 20, "{:.3}", peak as f64 / (64 * MIB) as f64);
}

/// The walk needs many turns for it, and keeps no names of what it has met meanwhile.
#[test]
fn a_snapshot_of_very_many_keys_in_one_slot_stays_within_maxmemory() {
    let options = ["--workers", "2", "--flash-segment-size", "4mb", "--maxmemory", "64mb"];
    let server = Server::kelvin_with_flash("1gb", &options);
    let mut client = server.connect();
    let keys: Vec<String> = (0..600_000).map(|number| format!("{{slot}}:{number:08}")).collect();
    let there = set_until_refused(&mut client, keys, 1);
    assert!(there.len() > 500_000, "{}", there.len());
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5")
        .expect("the peak is forgotten");
    for _ in 0..2 {
        assert_eq!(client.show("SAVE"), "+OK");
    }
    let peak = server.resident_peak();
    assert!(peak <= 64 * MIB * 21 / 20, "{:.3}", peak as f64 / (64 * MIB) as f64);
}

#[test]
fn a_digest_of_large_values_on_flash_stays_within_maxmemory_and_lets_others_be_served() {
    let server = filled_with_large_values();
    let mut client = server.connect();
    let mut digests = Vec::new();
    let ping = slowest_ping(&server, || {
        for _ in 0..2 {
            digests.push(client.show("DEBUG DIGEST"));
            client.line("DEBUG DIGEST-VALUE hash string-1 string-2");
        }
    });
    assert_eq!(digests[0], digests[1]);
    let peak = server.resident_peak();
    assert!(peak <= 64 * MIB * 21 / 20, "{:.3}", peak as f64 / (64 * MIB) as f64);
    // It was 2 s; a machine that does much else may take a while.
    assert!(ping < SERVED_WITHIN, "{ping:?}");
}

/// Small records and large ones in turns, as many as the journal holds in memory; then few.
#[test]
fn what_the_journal_keeps_in_memory_is_counted_bounded_and_given_back_while_writes_go_on() {
    /// A 16th of `maxmemory` is less than that, and twice as much where pieces are not full; what is kept for later; and
    /// what one batch brings.
    const HELD_MAX: u64 = 2 * (4 + 1) * MIB + MIB;
    const KEPT_MAX: u64 = MIB;
    const WITHIN: Duration = Duration::from_secs(20);
    let options = ["--workers", "2", "--maxmemory", "48mb", "--appendonly", "yes"];
    let server = Server::kelvin_with_flash("256mb", &options);
    let mut client = server.connect();
    let journal = |client: &mut Client| {
        let all = text(&client.call(&["INFO", "memory"]));
        let field = all.lines().find_map(|line| line.strip_prefix("mem_aof_buffer:"));
        field.expect("a field").parse::<u64>().expect("a number")
    };
    let (large, mut most) = ("v".repeat(40_000), 0);
    for turn in 0..1_000 {
        assert_eq!(show(&client.call(&["SET", &format!("large:{}", turn % 100), &large])), "+OK");
        assert_eq!(show(&client.call(&["SET", &format!("small:{turn}"), "1"])), "+OK");
        most = most.max(journal(&mut client));
    }
    assert!((256 << 10..HELD_MAX).contains(&most), "{most}");
    let start = Instant::now();
    while journal(&mut client) > KEPT_MAX {
        assert!(start.elapsed() < WITHIN, "{}", journal(&mut client));
        assert_eq!(show(&client.call(&["SET", "small:0", "1"])), "+OK");
        std::thread::sleep(Duration::from_millis(2));
    }
}
