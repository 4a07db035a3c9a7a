//! What a request takes counts as its client's: one that cannot fit is refused at once, its
//! connection stays, and no more is resident than `maxmemory` says.
//!
//! The bound on resident memory is the promise: 1.05 times `maxmemory` at the kernel's own mark,
//! which no moment escapes.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resp::Frame;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, Server, show, text};

const MIB: u64 = 1 << 20;
/// Connections that the test itself may need besides.
const SPARE_FILES: u64 = 64;
/// Attempts at a large SET or copy while values make room for it.
const RETRIES_MAX: usize = 60;
/// What has been refused for want of memory is refused until memory is measured again.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// Elements of a collection that many clients store copies of.
const COPIED: usize = 100_000;
const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const OPTIONS: [&str; 6] =
    ["--workers", "1", "--flash-segment-size", "4mb", "--tier-compression", "none"];

fn start(maxmemory: &str, flash: &str) -> Server {
    Server::kelvin_with_flash(flash, &[&OPTIONS[..], &["--maxmemory", maxmemory]].concat())
}

fn refusal(maxmemory_mib: u64) -> String {
    let limit = maxmemory_mib * MIB / 4;
    format!("-ERR request needs more memory than maxmemory-clients allows ({limit} bytes)")
}

/// The most that was ever resident, in bytes.
fn peak(server: &Server) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a mark");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

#[track_caller]
fn assert_peak(server: &Server, maxmemory_mib: u64) {
    let peak = peak(server);
    println!(
        "{peak} bytes of {maxmemory_mib} MiB: {:.4}",
        peak as f64 / (maxmemory_mib * MIB) as f64
    );
    assert!(peak <= maxmemory_mib * MIB * 21 / 20, "{peak} bytes of {maxmemory_mib} MiB");
}

/// Writes keys `memtier-1` to `memtier-{keys}` with values of `bytes`.
fn fill(server: &Server, keys: u64, bytes: u64) {
    let (port, keys, bytes) = (server.port().to_string(), keys.to_string(), bytes.to_string());
    let output = Command::new(env!("CARGO_BIN_EXE_kelvin"))
        .args(["bench", "run", "-p", &port, "-n", "allkeys", "-c", "4", "-t", "1"])
        .args(["--pipeline", "32", "--ratio", "1:0", "--key-pattern", "P:P", "--batch"])
        .args(["--key-minimum", "1", "--key-maximum", &keys, "-d", &bytes])
        .output()
        .expect("the load runs");
    assert!(output.status.success());
}

fn info(client: &mut Client, name: &str) -> u64 {
    let info = text(&client.line("INFO everything"));
    let value = info.lines().find_map(|line| line.strip_prefix(name)).expect("a figure");
    value.trim_start_matches(':').trim().parse().expect("a number")
}

fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("a process may raise its limit up to the hard one");
    limit.maximum.unwrap_or(u64::MAX)
}

#[test]
fn cold_values_that_do_not_fit_are_refused_and_those_that_do_are_read() {
    const KEYS: usize = 200_000;
    let server = start("128mb", "512mb");
    fill(&server, KEYS as u64, 1000);
    let mut client = server.connect();
    client.line("TIER DEMOTE ALL");
    let mget = |keys: usize| -> Vec<String> {
        let keys = (1..=keys).map(|key| format!("memtier-{key}"));
        std::iter::once("MGET".to_owned()).chain(keys).collect()
    };
    let call = |client: &mut Client, words: &[String]| {
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_peak(&server, 128);
    assert_eq!(show(&call(&mut client, &mget(KEYS))), refusal(128));
    assert_eq!(client.show("PING"), "+PONG");
    let values = match call(&mut client, &mget(KEYS / 10)) {
        Frame::Array(values) => values,
        other => panic!("{}", show(&other)),
    };
    assert_eq!(values.len(), KEYS / 10);
    assert!(values.iter().all(|value| matches!(value, Frame::Bulk(bytes) if bytes.len() == 1000)));
    assert_peak(&server, 128);
    client.send(&["MULTI"]);
    (1..=KEYS).for_each(|key| client.send(&["GET", &format!("memtier-{key}")]));
    client.send(&["EXEC"]);
    (0..=KEYS).for_each(|_| drop(client.read()));
    let reason = refusal(128).replace("-ERR ", "");
    let aborted = format!("-EXECABORT Transaction discarded because of: {reason}");
    assert_eq!(show(&client.read()), aborted);
    assert_eq!(client.show("PING"), "+PONG");
    assert_peak(&server, 128);
}

#[test]
fn pipelines_of_large_cold_values_do_not_wait_for_each_other() {
    const KEYS: usize = 120;
    const CLIENTS: usize = 4;
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    let value = "v".repeat(300_000);
    (0..KEYS).for_each(|key| drop(client.call(&["SET", &format!("key-{key}"), &value])));
    client.line("TIER DEMOTE ALL");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            let value = &value;
            scope.spawn(move || {
                (0..KEYS).for_each(|key| client.send(&["GET", &format!("key-{key}")]));
                (0..KEYS).for_each(|_| assert!(text(&client.read()) == *value));
            });
        }
    });
    assert_eq!(client.show("PING"), "+PONG");
    assert_peak(&server, 128);
}

#[test]
fn requests_that_do_not_fit_together_take_turns() {
    const KEYS: usize = 8_000;
    const CLIENTS: usize = 6;
    let server = start("128mb", "512mb");
    fill(&server, KEYS as u64, 1000);
    let mut client = server.connect();
    client.line("TIER DEMOTE ALL");
    let keys = (1..=KEYS).map(|key| format!("memtier-{key}"));
    let mget: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            let words: Vec<&str> = mget.iter().map(String::as_str).collect();
            scope.spawn(move || {
                let Frame::Array(values) = client.call(&words) else { panic!("an array") };
                assert_eq!(values.len(), KEYS);
                assert!(values.iter().all(|value| matches!(value, Frame::Bulk(_))));
            });
        }
    });
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 128);
}

#[test]
fn many_large_reads_are_answered_one_after_another() {
    const KEYS: usize = 40_000;
    const CLIENTS: usize = 24;
    let server = start("128mb", "512mb");
    fill(&server, KEYS as u64, 1000);
    let mut client = server.connect();
    client.line("TIER DEMOTE ALL");
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.connect();
            scope.spawn(move || {
                let first = number * 500 + 1;
                let keys = (first..first + KEYS / 2).map(|key| format!("memtier-{key}"));
                let words: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let Frame::Array(values) = client.call(&words) else { panic!("an array") };
                assert_eq!(values.len(), KEYS / 2);
            });
        }
    });
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 128);
}

#[test]
fn a_large_reply_is_right_whatever_its_transaction_learns_of_late() {
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    let names = |from: usize| (from..40).step_by(2).map(|number| format!("key-{number}"));
    let value = |name: &str| name.repeat(100_000 / name.len());
    // Every other one, so that what is fetched late lies in between.
    for name in (0..40).map(|number| format!("key-{number}")) {
        client.call(&["SET", &name, &value(&name)]);
        client.line(&format!("TIER DEMOTE {name}"));
    }
    client.line("MULTI");
    let read: Vec<String> = std::iter::once("MGET".to_owned()).chain(names(0)).collect();
    client.call(&read.iter().map(String::as_str).collect::<Vec<_>>());
    for name in names(1) {
        // That it wants the value, its row in the table does not tell.
        client.call(&["SET", &name, "new", "GET"]);
    }
    let Frame::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    let bulk = |name: String| Frame::Bulk(value(&name).into_bytes());
    assert!(replies[0] == Frame::Array(names(0).map(bulk).collect()));
    assert!(replies[1..].iter().cloned().eq(names(1).map(bulk)));
}

#[test]
fn a_large_reply_stays_whole_when_a_command_behind_it_reads_twice() {
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    let names: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    let value = |name: &str| name.repeat(100_000 / name.len());
    let write = |client: &mut Client, name: &str| {
        client.call(&["SET", name, &value(name)]);
        client.line(&format!("TIER DEMOTE {name}"));
    };
    names.iter().for_each(|name| write(&mut client, name));
    client.line("SELECT 1");
    ["a", "b", "c"].iter().for_each(|name| write(&mut client, name));
    client.line("SELECT 0");
    client.line("MULTI");
    let words: Vec<&str> =
        std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
    client.call(&words);
    // What these keys are is known only when the databases have been exchanged.
    client.line("SWAPDB 0 1");
    client.line("MGET a b c");
    let Frame::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    let values = |names: &[&str]| {
        Frame::Array(names.iter().map(|name| Frame::Bulk(value(name).into_bytes())).collect())
    };
    assert!(replies[0] == values(&words[1..]));
    assert!(replies[2] == values(&["a", "b", "c"]));
    assert_eq!(client.show("PING"), "+PONG");
}

#[test]
fn what_a_request_names_twice_counts_once() {
    // Clients may take 32 MiB.
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    client.call(&["SET", "large", &"v".repeat(18 << 20)]);
    client.line("SET small v");
    client.call(&["SETBIT", "bits", "524287", "1"]);
    client.line("TIER DEMOTE large");
    client.line("TIER DEMOTE bits");
    let Frame::Array(values) = client.call(&["MGET", "large", "small"]) else { panic!("an array") };
    assert_eq!(values.len(), 2);
    client.line("MULTI");
    (0..1000).for_each(|bit| drop(client.line(&format!("SETBIT bits {bit} 1"))));
    let Frame::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    assert_eq!(replies.len(), 1000);
}

#[test]
fn a_large_request_that_stops_does_not_hold_up_others_that_arrive() {
    // Clients may take 32 MiB, of which large requests that arrive share 4, but for one that stands still.
    let server = start("128mb", "512mb");
    let mut stopped = server.connect();
    stopped.write(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$12000000\r\n");
    stopped.write(&vec![b'v'; 10 << 20]);
    let mut client = server.connect();
    assert_eq!(client.call(&["SET", "b", &"v".repeat(1 << 20)]), Frame::Simple(b"OK".to_vec()));
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    stopped.write(&vec![b'v'; 12_000_000 - (10 << 20)]);
    stopped.write(b"\r\n");
    assert_eq!(show(&stopped.read()), "+OK");
}

#[test]
fn clients_with_large_replies_unwritten_do_not_wait_for_each_other() {
    const LEN: usize = 8 << 20;
    // Clients may take 32 MiB: three replies, and nothing for a request behind one of them.
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    for name in ["a", "b", "c"] {
        client.call(&["SET", name, &name.repeat(LEN)]);
    }
    for _ in 0..3 {
        client.line("TIER DEMOTE ALL");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut client = server.connect();
                scope.spawn(move || {
                    ["a", "b", "c"].iter().for_each(|name| client.send(&["GET", name]));
                    for name in ["a", "b", "c"] {
                        let Frame::Bulk(value) = client.read() else { panic!("a value") };
                        assert!(value == name.repeat(LEN).into_bytes());
                    }
                });
            }
        });
    }
    assert_eq!(info(&mut client, "evicted_clients"), 0);
}

#[test]
fn large_replies_that_wait_for_their_turn_keep_to_maxmemory_however_full_it_is() {
    const LEN: usize = 8 << 20;
    let server = start("128mb", "512mb");
    fill(&server, 130_000, 900);
    let mut client = server.connect();
    let names = ["a", "b", "c"];
    for name in names {
        let value = name.repeat(LEN);
        let write = |_| show(&client.call(&["SET", name, &value]));
        assert!((0..RETRIES_MAX).map(write).any(|reply| reply == "+OK"));
    }
    let mut answered = 0;
    for _ in 0..12 {
        names.iter().for_each(|name| drop(client.line(&format!("TIER DEMOTE {name}"))));
        let read = |mut client: Client| {
            names.iter().for_each(|name| client.send(&["GET", name]));
            let mut is_value = |name: &&str| match client.read() {
                Frame::Bulk(value) => {
                    assert!(value == name.repeat(LEN).into_bytes());
                    true
                }
                refused => {
                    assert!(show(&refused).contains("needs more memory"), "{}", show(&refused));
                    false
                }
            };
            names.iter().filter(|name| is_value(name)).count()
        };
        std::thread::scope(|scope| {
            let readers = [(); 4].map(|()| server.connect());
            let readers = readers.map(|client| scope.spawn(|| read(client)));
            answered += readers.into_iter().map(|one| one.join().expect("it ends")).sum::<usize>();
        });
    }
    assert!(answered > 0);
    // Each is let have its reply only when that fits.
    assert!(peak(&server) <= 128 * MIB * 51 / 50, "{}", peak(&server));
}

#[test]
fn a_client_takes_its_large_replies_one_after_another() {
    const LEN: usize = 24 << 20;
    // Clients may take 32 MiB: one such reply.
    let server = start("128mb", "512mb");
    let mut client = server.connect();
    client.call(&["SET", "a", &"v".repeat(LEN)]);
    for demote in [false, true] {
        if demote {
            client.line("TIER DEMOTE a");
        }
        (0..6).for_each(|_| client.send(&["GET", "a"]));
        for _ in 0..6 {
            let Frame::Bulk(value) = client.read() else { panic!("a value") };
            assert_eq!(value.len(), LEN);
        }
    }
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 128);
}

#[test]
fn replies_of_values_in_ram_are_bounded_too() {
    // Without flash all of it is in RAM.
    let server = Server::kelvin(&["--workers", "1", "--maxmemory", "200mb"]);
    let mut client = server.connect();
    let value = "v".repeat(4_000_000);
    let keys: Vec<String> = (0..14).map(|key| format!("key-{key}")).collect();
    for key in &keys {
        assert_eq!(show(&client.call(&["SET", key, &value])), "+OK");
    }
    let mget = |count: usize| -> Vec<&str> {
        std::iter::once("MGET").chain(keys[..count].iter().map(String::as_str)).collect()
    };
    assert_eq!(show(&client.call(&mget(14))), refusal(200), "56 MB are more than 50 MiB");
    let Frame::Array(values) = client.call(&mget(12)) else { panic!("an array") };
    assert!(values.iter().all(|one| text(one) == value));
    client.line("MULTI");
    keys.iter().for_each(|key| drop(client.call(&["GET", key])));
    let reason = refusal(200).replace("-ERR ", "");
    let aborted = format!("-EXECABORT Transaction discarded because of: {reason}");
    assert_eq!(client.show("EXEC"), aborted);
    // What a command reads and does not send is no reply.
    client.line("MULTI");
    keys.iter().for_each(|key| drop(client.call(&["GETBIT", key, "1"])));
    let Frame::Array(bits) = client.line("EXEC") else { panic!("an array") };
    assert!(bits.iter().all(|bit| show(bit) == ":1"));
    assert_peak(&server, 200);
}

#[test]
fn large_arguments_from_many_sides_are_taken_in_turn() {
    const CLIENTS: usize = 8;
    let server = start("100mb", "512mb");
    let value = "v".repeat(24 << 20);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, value) = (server.connect(), &value);
            let key = format!("key-{number}");
            scope.spawn(move || assert_eq!(show(&client.call(&["SET", &key, value])), "+OK"));
        }
    });
    let mut client = server.connect();
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 100);
}

#[test]
fn a_large_request_that_does_not_go_on_is_closed_for_others() {
    let server = start("100mb", "256mb");
    let mut stuck = server.connect();
    stuck.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000000\r\n");
    stuck.write(&[b'v'; 1 << 20]);
    let mut client = server.connect();
    while info(&mut client, "mem_clients_normal") < 20_000_000 {}
    let value = "v".repeat(20_000_000);
    assert_eq!(show(&client.call(&["SET", "key", &value])), "+OK");
    assert_eq!(info(&mut client, "evicted_clients"), 1);
    assert_peak(&server, 100);
}

#[test]
fn an_argument_that_cannot_fit_is_refused_by_its_header() {
    const PIECE: usize = 1 << 20;
    let server = start("100mb", "256mb");
    let mut client = server.connect();
    for (announced, refused) in [(30 * PIECE, refusal(100)), (500 * PIECE, OOM.to_owned())] {
        client.write(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${announced}\r\n").as_bytes());
        assert_eq!(show(&client.read()), refused, "before any of it has come");
        let piece = vec![b'v'; PIECE];
        (0..announced / PIECE).for_each(|_| client.write(&piece));
        client.write(b"\r\n");
        assert_eq!(client.show("GET k"), "_", "the next request");
    }
    assert_peak(&server, 100);
}

#[test]
fn ten_thousand_halves_of_requests_take_about_what_has_arrived() {
    let count = (raise_open_files() - SPARE_FILES).min(10_000);
    assert!(count == 10_000, "{count} connections are not ten thousand");
    let options = ["--workers", "2", "--maxmemory", "100mb", "--maxclients", "10010"];
    let server = Server::kelvin(&options);
    let mut control = server.connect();
    control.call(&["SET", "key", "value"]);
    let mut clients: Vec<TcpStream> = (0..count).map(|_| server.stream()).collect();
    for client in &mut clients {
        client.write_all(b"*2\r\n$3\r\nGET\r\n$3\r\nk").expect("the server reads");
    }
    assert_eq!(control.show("GET key"), "$value");
    for client in &mut clients {
        client.write_all(b"ey\r\n").expect("nobody was closed");
        let mut reply = [0; 11];
        client.read_exact(&mut reply).expect("an answer");
        assert_eq!(&reply, b"$5\r\nvalue\r\n");
    }
    assert_eq!(info(&mut control, "evicted_clients"), 0);
    assert_peak(&server, 100);
}

/// Small buffers of very many count, and so do the connections by themselves.
#[test]
fn what_ten_thousand_connections_hold_stays_within_maxmemory() {
    let count = (raise_open_files() - SPARE_FILES).min(10_000);
    let options = ["--workers", "2", "--maxmemory", "64mb", "--maxclients", "10010"];
    let server = Server::kelvin_with_flash("512mb", &options);
    let mut control = server.connect();
    let mut clients: Vec<TcpStream> = (0..count).map(|_| server.stream()).collect();
    while info(&mut control, "connected_clients") <= count {}
    assert_eq!(info(&mut control, "evicted_clients"), 0, "nobody is closed for being there");
    assert!(info(&mut control, "mem_clients_normal") >= count * 2_000);
    assert_peak(&server, 64);
    let begun = [&b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$100000\r\n"[..], &[b'x'; 2_000]].concat();
    for (number, client) in clients.iter_mut().enumerate() {
        // One that was closed cannot send any more: that is what should happen.
        let _closed = client.write_all(&begun);
        if number % 20 == 0 {
            // Ten thousand in half a second.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for number in 0..100 {
        assert_eq!(control.show(&format!("SET key-{number} value")), "+OK");
        std::thread::sleep(RETRY_EVERY);
    }
    let (closed, left) =
        (info(&mut control, "evicted_clients"), info(&mut control, "connected_clients"));
    println!("{closed} closed, {left} left");
    assert!(count < 10_000 || closed > 0 && left > 2_000);
    assert_peak(&server, 64);
}

#[test]
fn strangers_have_a_little_memory_of_their_own_and_go_first() {
    const STRANGERS: usize = 700;
    let options = ["--workers", "1", "--maxmemory", "100mb", "--requirepass", "secret"];
    let server = Server::kelvin(&options);
    let mut client = server.connect();
    assert_eq!(client.show("AUTH secret"), "+OK");
    let before = server.resident_bytes();
    let value = "v".repeat(200_000);
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n{value}\r\n");
    let (first, last) = request.split_at(request.len() / 2);
    client.write(first.as_bytes());
    let mut strangers: Vec<TcpStream> = (0..STRANGERS).map(|_| server.stream()).collect();
    for stranger in &mut strangers {
        // One that was closed cannot send any more: that is what should happen.
        let _closed = stranger.write_all(&[b'x'; 60_000]);
    }
    let mut control = server.connect();
    control.line("AUTH secret");
    while info(&mut control, "evicted_clients") < STRANGERS as u64 / 2 {}
    client.write(last.as_bytes());
    assert_eq!(show(&client.read()), "+OK", "the one that has authenticated stays");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB, "{} KiB", grown >> 10);
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("maxmemory-clients")).count();
    assert!(lines < 60, "{lines} lines of the log");
}

#[test]
fn what_a_transaction_queues_is_its_client_s_and_bounded() {
    let server = Server::kelvin(&["--workers", "1", "--maxmemory", "100mb"]);
    let mut client = server.connect();
    client.line("MULTI");
    let value = "v".repeat(10_000_000);
    assert_eq!(show(&client.call(&["SET", "a", &value])), "+QUEUED");
    let mut control = server.connect();
    let used = info(&mut control, "mem_clients_normal");
    assert!(used > 10_000_000, "{used} bytes of clients");
    assert_eq!(show(&client.call(&["SET", "b", &value])), "+QUEUED");
    assert_eq!(show(&client.call(&["SET", "c", &value])), refusal(100));
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(client.show("EXEC"), aborted);
    assert_eq!(client.show("GET a"), "_");
    assert_peak(&server, 100);
}

#[test]
fn large_strings_are_combined_only_if_they_fit() {
    let server = start("200mb", "1gb");
    let mut client = server.connect();
    let value = "v".repeat(40_000_000);
    for key in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(show(&client.call(&["SET", key, &value])), "+OK");
    }
    client.line("TIER DEMOTE ALL");
    assert_eq!(client.show("BITOP XOR target a b c d e f"), refusal(200));
    assert_eq!(client.show("EXISTS target"), ":0");
    assert_eq!(text(&client.line("GET a")).len(), value.len());
    assert_peak(&server, 200);
}

/// Without `maxmemory`, too.
#[test]
fn an_old_value_that_does_not_fit_beside_a_new_one_stays() {
    const OLD_BYTES: usize = 12 << 20;
    let server = start("64mb", "256mb");
    let mut client = server.connect();
    for line in ["SET GET", "GETSET"] {
        client.line("DEL k");
        client.call(&["SETRANGE", "k", &(OLD_BYTES - 1).to_string(), "x"]);
        client.line("TIER DEMOTE ALL");
        let new = "n".repeat(10 << 20);
        let request = match line {
            "GETSET" => vec!["GETSET", "k", &new],
            _ => vec!["SET", "k", &new, "GET"],
        };
        assert_eq!(show(&client.call(&request)), refusal(64), "{line}");
        assert_eq!(client.show("STRLEN k"), format!(":{OLD_BYTES}"), "{line}");
        // What fits beside it is taken.
        assert_eq!(text(&client.call(&["SET", "k", "new", "GET"])).len(), OLD_BYTES, "{line}");
    }
}

#[test]
fn a_stored_range_counts_with_what_it_takes_beside_its_members() {
    const MEMBERS: usize = 400_000;
    let server = start("64mb", "256mb");
    let mut client = server.connect();
    for first in (0..MEMBERS).step_by(2000) {
        let pairs = (first..first + 2000).flat_map(|rank| [rank.to_string(), format!("m{rank}")]);
        let request: Vec<String> =
            ["ZADD", "z"].map(String::from).into_iter().chain(pairs).collect();
        client.call(&request.iter().map(String::as_str).collect::<Vec<_>>());
    }
    client.line("TIER DEMOTE ALL");
    for target in 0..4 {
        assert_eq!(client.show(&format!("ZRANGESTORE d{target} z 0 -1")), OOM);
        assert_eq!(client.show(&format!("ZRANGESTORE d{target} z 0 49999")), ":50000");
    }
    assert_peak(&server, 64);
}

#[test]
fn a_sorted_copy_counts_with_what_it_takes_to_sort() {
    const ELEMENTS: usize = 1_000_000;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    for first in (0..ELEMENTS).step_by(2_000) {
        // Short ones, which take more for where they are than for what they are.
        let elements = (first..first + 2_000).map(|number| number.to_string());
        let request: Vec<String> =
            ["RPUSH", "l"].map(String::from).into_iter().chain(elements).collect();
        client.call(&request.iter().map(String::as_str).collect::<Vec<_>>());
    }
    client.line("TIER DEMOTE ALL");
    for line in [
        "SORT l ALPHA STORE to",
        "SORT l BY nosort STORE to",
        "SORT l BY nosort GET # GET # GET # STORE to",
        "SORT l ALPHA LIMIT 0 3",
    ] {
        assert_eq!(client.show(line), refusal(64), "{line}");
    }
    assert_eq!(client.show("SORT l BY nosort LIMIT 0 50000 STORE to"), ":50000");
    assert_peak(&server, 64);
}

#[test]
fn names_of_keys_are_listed_only_if_they_fit() {
    const KEYS: u64 = 1_200_000;
    const CLIENTS: usize = 4;
    let server = start("96mb", "512mb");
    fill(&server, KEYS, 40);
    let list = |line: &str, names: u64| {
        let mut client = server.connect();
        let reply = client.show(line);
        let is_listed = reply.matches("memtier-").count() as u64 == names;
        assert!(is_listed || reply == refusal(96), "{line}: {:.200}", reply);
        is_listed
    };
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                assert!(!list("KEYS *", KEYS), "it does not fit");
                assert!(list("KEYS memtier-2*", 111_111));
                assert!(list("SCAN 0 COUNT 100000", 100_000));
            });
        }
    });
    assert_peak(&server, 96);
}

/// A server of 64 MB with a collection of 100,000 elements in `s`, to which `command` adds what `element` says of
/// each.
fn start_with(command: &str, element: impl Fn(usize) -> Vec<String>) -> Server {
    let server = Server::kelvin_with_flash(
        "512mb",
        &["--workers", "2", "--flash-segment-size", "4mb", "--maxmemory", "64mb"],
    );
    let mut client = server.connect();
    for first in (0..COPIED).step_by(2_000) {
        let elements = (first..first + 2_000).flat_map(&element);
        let request: Vec<String> =
            [command, "s"].map(String::from).into_iter().chain(elements).collect();
        client.call(&request.iter().map(String::as_str).collect::<Vec<_>>());
    }
    server
}

/// Has so many clients store copies at once, each for so many rounds. All are answered in a few tries, and
/// no more is resident than may be.
fn copy_from_many_sides(
    server: &Server,
    (clients, rounds): (usize, usize),
    line: &str,
    reply: &str,
) {
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut client = server.connect();
                for round in 0..rounds {
                    let line = line.replace("TARGET", &format!("to-{number}-{}", round % 2));
                    let answer = |_| match client.show(&line) {
                        answer if answer == OOM => {
                            std::thread::sleep(RETRY_EVERY);
                            None
                        }
                        answer => Some(answer),
                    };
                    let answer = (0..RETRIES_MAX).find_map(answer);
                    assert_eq!(answer.as_deref(), Some(reply), "{line}");
                }
            });
        }
    });
    assert_peak(server, 64);
}

fn member(number: usize) -> String {
    format!("member-{number:09}")
}

#[test]
fn sets_that_are_stored_from_many_sides_take_turns() {
    let server = start_with("SADD", |number| vec![member(number)]);
    copy_from_many_sides(&server, (8, 6), "SINTERSTORE TARGET s s", ":100000");
    copy_from_many_sides(&server, (40, 2), "COPY s TARGET REPLACE", ":1");
}

/// Nothing leaves RAM while it runs.
#[test]
fn what_a_transaction_brings_into_ram_counts_together() {
    const COPIES: usize = 30;
    let server = start_with("SADD", |number| vec![member(number)]);
    let mut client = server.connect();
    for command in ["COPY s {t}NUMBER", "RENAME {t}NUMBER {u}NUMBER"] {
        client.line("TIER DEMOTE ALL");
        client.line("MULTI");
        for number in 0..COPIES {
            client.line(&command.replace("NUMBER", &number.to_string()));
        }
        let reply = client.show("EXEC");
        let refused = reply.matches("request needs more memory").count();
        assert!((1..COPIES).contains(&refused), "{command}: {reply}");
        assert_peak(&server, 64);
    }
}

/// What each needs first, its reply, is a part of what it needs then, and the rest must be there when it asks.
#[test]
fn cold_collections_that_are_read_from_many_sides_take_turns() {
    const CLIENTS: usize = 6;
    for (command, line, width) in [
        ("ZADD", "ZRANGE s 0 -1 WITHSCORES", 60),
        ("SADD", "SORT s ALPHA", 60),
        ("SADD", "SUNION s", 30),
    ] {
        let element = |number: usize| match command {
            "ZADD" => vec![number.to_string(), format!("{number:0width$}")],
            _ => vec![format!("{number:0width$}")],
        };
        let server = start_with(command, element);
        fill(&server, 250_000, 100);
        server.connect().line("TIER DEMOTE ALL");
        let read = || {
            let reply = server.connect().show(line);
            let is_read = reply.len() > COPIED * width;
            assert!(is_read || reply == OOM || reply == refusal(64), "{line}: {reply:.200}");
            is_read
        };
        let read_count = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(read)).collect();
            readers.into_iter().map(|reader| reader.join().expect("a reader")).collect::<Vec<_>>()
        });
        let read_count = read_count.into_iter().filter(|is_read| *is_read).count();
        assert!(read_count >= CLIENTS * 2 / 3, "{line}: {read_count} of {CLIENTS}");
        assert_peak(&server, 64);
    }
}

#[test]
fn lists_that_are_stored_from_many_sides_take_turns() {
    let server = start_with("RPUSH", |number| vec![member(number)]);
    copy_from_many_sides(&server, (40, 2), "SORT s BY nosort STORE TARGET", ":100000");
}

#[test]
fn strings_that_are_lengthened_from_many_sides_take_turns() {
    let server = start_with("RPUSH", |number| vec![member(number)]);
    copy_from_many_sides(&server, (24, 2), "SETRANGE TARGET 3000000 x", ":3000001");
    copy_from_many_sides(&server, (24, 2), "SETBIT TARGET 32000000 1", ":0");
    let line = "BITFIELD TARGET SET u8 40000000 1";
    copy_from_many_sides(&server, (24, 2), line, "[:0]");
}

#[test]
fn strings_that_are_combined_from_many_sides_take_turns() {
    let server = start_with("RPUSH", |number| vec![member(number)]);
    fill(&server, 100_000, 200);
    let mut client = server.connect();
    for name in ["a", "b"] {
        assert_eq!(show(&client.call(&["SET", name, &name.repeat(4_700_000)])), "+OK");
    }
    client.line("TIER DEMOTE ALL");
    copy_from_many_sides(&server, (8, 3), "BITOP AND TARGET a b", ":4700000");
    copy_from_many_sides(&server, (30, 2), "BITOP NOT TARGET a", ":4700000");
}

/// To grow by a part of its length a string moves, and is there twice meanwhile.
#[test]
fn strings_that_are_appended_to_from_many_sides_take_turns() {
    const PARTS: usize = 48;
    const PART_BYTES: usize = 250_000;
    let server = start_with("RPUSH", |number| vec![member(number)]);
    fill(&server, 100_000, 200);
    let part = "x".repeat(PART_BYTES);
    let append = |mut client: Client, key: String| {
        for count in 1..=PARTS {
            let append = |_| match show(&client.call(&["APPEND", &key, &part])) {
                reply if reply == OOM => {
                    std::thread::sleep(RETRY_EVERY);
                    None
                }
                reply => Some(reply),
            };
            let reply = (0..RETRIES_MAX).find_map(append);
            assert_eq!(reply, Some(format!(":{}", count * PART_BYTES)));
        }
    };
    std::thread::scope(|scope| {
        for number in 0..8 {
            let client = server.connect();
            scope.spawn(move || append(client, format!("to-{number}")));
        }
    });
    assert_peak(&server, 64);
}

#[test]
fn sorted_sets_that_are_stored_from_many_sides_take_turns() {
    let element = |number: usize| vec![number.to_string(), format!("{number:0100}")];
    let server = start_with("ZADD", element);
    fill(&server, 20_000, 1_000);
    let mut client = server.connect();
    assert_eq!(client.show("ZRANGESTORE few s 0 32999"), ":33000");
    for line in
        ["ZRANGESTORE TARGET s 0 32999", "ZUNIONSTORE TARGET 1 few", "ZINTERSTORE TARGET 2 few few"]
    {
        client.line("TIER DEMOTE ALL");
        copy_from_many_sides(&server, (16, 3), line, ":33000");
    }
}

#[test]
fn sorted_sets_of_large_requests_take_turns() {
    const MEMBERS: usize = 25_000;
    const CLIENTS: usize = 12;
    let element = |number: usize| [number.to_string(), format!("{number:098}")];
    let server = start_with("RPUSH", |number| vec![member(number)]);
    fill(&server, 20_000, 1_000);
    let pairs: Vec<String> = (0..MEMBERS).flat_map(element).collect();
    for _ in 0..3 {
        server.connect().line("TIER DEMOTE ALL");
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (mut client, pairs) = (server.connect(), &pairs);
                scope.spawn(move || {
                    let key = format!("to-{number}");
                    client.line(&format!("DEL {key}"));
                    let words = ["ZADD", &key].into_iter().chain(pairs.iter().map(String::as_str));
                    let reply = client.call(&words.collect::<Vec<_>>());
                    assert_eq!(show(&reply), format!(":{MEMBERS}"));
                });
            }
        });
    }
    assert_peak(&server, 64);
}

/// Each first reads a leaf of the index, then all leaves, and then makes its copies.
#[test]
fn places_that_are_stored_from_many_sides_take_turns() {
    let place = |number: usize| {
        let (column, row) = (number % 1_000, number / 1_000);
        vec![format!("13.{column:03}"), format!("38.{row:03}"), member(number)]
    };
    let server = start_with("GEOADD", place);
    let line = "GEOSEARCHSTORE TARGET s FROMLONLAT 13 38 BYRADIUS 999 km";
    copy_from_many_sides(&server, (30, 1), line, ":100000");
}

#[test]
fn no_request_asks_for_more_memory_than_there_is() {
    let server = Server::kelvin(&["--workers", "1"]);
    let mut client = server.connect();
    for line in ["HSET h f v", "SADD s a", "ZADD z 1 a"] {
        assert_eq!(client.show(line), ":1");
    }
    for count in ["-1000000000000", "-4611686018427387903", "-9223372036854775807"] {
        for (command, option) in [
            ("HRANDFIELD h", ""),
            ("HRANDFIELD h", " WITHVALUES"),
            ("SRANDMEMBER s", ""),
            ("ZRANDMEMBER z", ""),
            ("ZRANDMEMBER z", " WITHSCORES"),
        ] {
            let reply = client.show(&format!("{command} {count}{option}"));
            let is_huge = count == "-9223372036854775807" && !option.is_empty();
            let expected = if is_huge { "-ERR value is out of range" } else { OOM };
            assert_eq!(reply, expected, "{command} {count}{option}");
        }
    }
    assert_eq!(client.show("HRANDFIELD h -2"), "[$f $f]");
    assert!(peak(&server) < 200 * MIB, "{} MiB", peak(&server) / MIB);
}

/// A share of no `maxmemory` bounds nothing, as with Redis.
#[test]
fn clients_have_no_share_of_no_maxmemory() {
    let server = Server::kelvin(&["--workers", "1", "--maxmemory-clients", "5%"]);
    let mut client = server.connect();
    assert_eq!(show(&client.call(&["SET", "k", &"v".repeat(3_000_000)])), "+OK");
    assert_eq!(text(&client.line("GET k")).len(), 3_000_000);
}

/// Many clients each send the request that `words` makes, and go when they were answered or refused. Returns the
/// replies.
fn call_from_many_sides(
    server: &Server,
    clients: usize,
    words: impl Fn(usize) -> Vec<String> + Sync,
) -> Vec<String> {
    std::thread::scope(|scope| {
        let words = &words;
        let call = |number: usize| {
            let mut client = server.connect();
            let words = words(number);
            show(&client.call(&words.iter().map(String::as_str).collect::<Vec<_>>()))
        };
        let calls: Vec<_> = (0..clients).map(|number| scope.spawn(move || call(number))).collect();
        calls.into_iter().map(|call| call.join().expect("it is answered")).collect()
    })
}

#[test]
fn places_in_the_queues_of_keys_are_asked_for_first() {
    const CLIENTS: usize = 8;
    let server = start("64mb", "512mb");
    fill(&server, 80_000, 1000);
    let words = |keys: usize| {
        move |number: usize| {
            let names = (0..keys).map(|key| format!("list:{number}:{key}"));
            let begin = std::iter::once("BLPOP".to_owned());
            begin.chain(names).chain(std::iter::once("2".to_owned())).collect()
        }
    };
    let replies = call_from_many_sides(&server, CLIENTS, words(5_000));
    let refused = replies.iter().filter(|reply| **reply == refusal(64)).count();
    assert!((1..CLIENTS).contains(&refused), "{refused} refused");
    assert!(replies.iter().all(|reply| *reply == refusal(64) || reply == "_"), "{:?}", replies[0]);
    let mut client = server.connect();
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_peak(&server, 64);
    // What they had is free again.
    let replies = call_from_many_sides(&server, 1, words(10_000));
    assert_eq!(replies, ["_"]);
    assert_peak(&server, 64);
    // None of these fits. What requests take as they arrive, and their names while they run, is some MiB here, and
    // not asked for.
    let replies = call_from_many_sides(&server, 5 * CLIENTS, words(30_000));
    assert!(replies.iter().all(|reply| *reply == refusal(64)), "{:?}", replies[0]);
    assert!(peak(&server) <= 64 * MIB * 11 / 10, "{}", peak(&server));
}

#[test]
fn watched_keys_count_as_their_clients() {
    let server = start("64mb", "512mb");
    fill(&server, 80_000, 1000);
    let watch = |client: &mut Client, keys: usize| {
        let names = (0..keys).map(|key| format!("key:{key}"));
        let words: Vec<String> = std::iter::once("WATCH".to_owned()).chain(names).collect();
        show(&client.call(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let replies: Vec<String> = clients.iter_mut().map(|client| watch(client, 15_000)).collect();
    let watching = replies.iter().filter(|reply| *reply == "+OK").count();
    assert!((1..4).contains(&watching), "{watching} watch");
    assert!(replies.iter().all(|reply| *reply == refusal(64) || reply == "+OK"), "{replies:?}");
    assert_peak(&server, 64);
    // Whoever is alone may watch more, and has it count once.
    drop(clients);
    let mut client = server.connect();
    while info(&mut client, "connected_clients") > 1 {
        std::thread::sleep(Duration::from_millis(2));
    }
    for _ in 0..5 {
        assert_eq!(watch(&mut client, 40_000), "+OK");
        for line in ["MULTI", "SET done 1", "EXEC"] {
            assert!(!client.show(line).starts_with('-'));
        }
    }
    assert_peak(&server, 64);
}

#[test]
fn collections_that_move_from_flash_to_another_key_ask_for_the_memory() {
    const COLLECTIONS: usize = 5;
    const ELEMENTS: usize = 80_000;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    let value = "v".repeat(90);
    for number in 0..COLLECTIONS {
        let (command, name) = (["RPUSH", "SADD"][number % 2], format!("a{number}"));
        for first in (0..ELEMENTS).step_by(1_000) {
            let elements = (first..first + 1_000).map(|element| format!("{element}:{value}"));
            let words: Vec<String> =
                [command.to_owned(), name.clone()].into_iter().chain(elements).collect();
            client.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    fill(&server, 60_000, 1000);
    for line in ["RENAME a# b#", "MOVE b# 1", "RENAME b# a#"] {
        client.line("TIER DEMOTE ALL");
        for number in 0..COLLECTIONS {
            let reply = client.show(&line.replace('#', &number.to_string()));
            assert!(reply == "+OK" || reply == ":1", "{line}: {reply}");
        }
        if line.starts_with("MOVE") {
            client.line("SELECT 1");
        }
        assert_peak(&server, 64);
    }
    assert_eq!(client.show("LLEN a0"), format!(":{ELEMENTS}"));
    assert_eq!(client.show("SCARD a1"), format!(":{ELEMENTS}"));
}

/// Clients that stop in the midst of a request, and others that send a byte of theirs now and then, do not keep those
/// waiting that go on, one after another.
#[test]
fn requests_that_stand_still_hold_nobody_up_for_long() {
    const STALLED: usize = 24;
    let server = start("64mb", "512mb");
    let begin = |number: usize| {
        let mut client = server.connect();
        client
            .write(format!("*3\r\n$3\r\nSET\r\n$7\r\nhalf:{number:02}\r\n$1000000\r\n").as_bytes());
        client.write(&vec![b'x'; 800_000]);
        client
    };
    let mut stalled: Vec<Client> = (0..STALLED).map(begin).collect();
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trickle = || {
            while !is_answered.load(Ordering::Relaxed) {
                // Those that were closed no longer take it.
                for client in stalled.iter_mut().step_by(2) {
                    let _ = client.try_write(b"x");
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        scope.spawn(trickle);
        let set = || show(&server.connect().call(&["SET", "whole", &"v".repeat(500_000)]));
        let reply = scope.spawn(set).join();
        is_answered.store(true, Ordering::Relaxed);
        assert_eq!(reply.expect("it is answered"), "+OK");
    });
    assert_peak(&server, 64);
}

/// The same of clients that never read what they have asked for.
#[test]
fn replies_that_nobody_reads_hold_nobody_up_for_long() {
    const ELEMENTS: usize = 60_000;
    const STALLED: usize = 30;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    push_elements(&mut client, "list", ELEMENTS);
    let begin = |_| {
        let mut client = server.connect();
        (0..12).for_each(|_| client.send(&["LRANGE", "list", "0", "-1"]));
        client
    };
    let stalled: Vec<Client> = (0..STALLED).map(begin).collect();
    // What their sockets do not take is in the way of others.
    while info(&mut client, "tier_ram_clients_bytes") < 12 * MIB {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(300));
    let Frame::Array(elements) = client.line("LRANGE list 0 -1") else { panic!("an array") };
    assert_eq!(elements.len(), ELEMENTS);
    assert_peak(&server, 64);
    drop(stalled);
}

/// Makes a list or a set, as its name says, of so many elements of about 55 bytes.
fn push_elements(client: &mut Client, name: &str, elements: usize) {
    let (value, command) =
        ("v".repeat(50), if name.starts_with("list") { "RPUSH" } else { "SADD" });
    for first in (0..elements).step_by(1_000) {
        let elements = (first..first + 1_000).map(|element| format!("{element}:{value}"));
        let words: Vec<String> =
            [command.to_owned(), name.to_owned()].into_iter().chain(elements).collect();
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// What the commands of a transaction need of collections is reserved before any of them runs: leaves on flash,
/// replies, copies.
#[test]
fn transactions_on_cold_collections_take_turns() {
    const ELEMENTS: usize = 60_000;
    const CLIENTS: usize = 8;
    let server = start("64mb", "512mb");
    let mut client = server.connect();
    fill(&server, 20_000, 1000);
    push_elements(&mut client, "list", ELEMENTS);
    push_elements(&mut client, "set", ELEMENTS);
    let reads = ["LRANGE list 0 -1", "INCR runs", "SMEMBERS set"].map(str::to_owned).to_vec();
    let copies =
        |number: usize| (0..2).map(|copy| format!("COPY list c{number}:{copy} REPLACE")).collect();
    for round in 0..4 {
        client.line("TIER DEMOTE ALL");
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let lines: Vec<String> = if round < 2 { reads.clone() } else { copies(number) };
                let mut client = server.connect();
                scope.spawn(move || {
                    client.line("MULTI");
                    lines.iter().for_each(|line| assert_eq!(client.show(line), "+QUEUED"));
                    let Frame::Array(replies) = client.line("EXEC") else { panic!("an array") };
                    match &replies[..] {
                        [Frame::Array(list), Frame::Integer(_), Frame::Array(set)] => {
                            assert_eq!((list.len(), set.len()), (ELEMENTS, ELEMENTS));
                        }
                        copied => assert!(copied.iter().all(|reply| show(reply) == ":1")),
                    }
                });
            }
        });
    }
    assert_eq!(info(&mut client, "evicted_clients"), 0);
    assert_eq!(client.show("GET runs"), format!("${}", 2 * CLIENTS));
    assert_peak(&server, 64);
}
