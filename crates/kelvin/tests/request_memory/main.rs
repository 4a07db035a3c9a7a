//! What a request takes counts as its client's: one that cannot fit is refused at once, its
//! connection stays, and no more is resident than `maxmemory` says.
//!
//! The bound on resident memory is the promise: 1.05 times `maxmemory` at the kernel's own mark,
//! which no moment escapes.

#[path = "../support/mod.rs"]
mod support;

mod arriving;
mod copies;
mod elements;
mod in_transactions;
mod kept;
mod replies;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, show, text};

const MIB: u64 = 1 << 20;
/// Attempts at a large SET or copy while values make room for it.
const RETRIES_MAX: usize = 60;
/// What has been refused for want of memory is refused until memory is measured again.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// How long a figure of INFO may take to become what a test waits for.
const FIGURE_TIME_MAX: Duration = Duration::from_secs(60);
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

/// Waits until a figure of INFO is as it must become.
fn wait_for(client: &mut Client, name: &str, is_there: impl Fn(u64) -> bool) {
    let deadline = Instant::now() + FIGURE_TIME_MAX;
    loop {
        let value = info(client, name);
        if is_there(value) {
            return;
        }
        assert!(Instant::now() < deadline, "{name}: still {value} after {FIGURE_TIME_MAX:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
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

/// A server of 64 MB with a collection of 100,000 elements in `s`, to which `command` adds what `element` says of
/// each. Its flash holds all that the tests store: a value of 4.7 MB takes two segments of 4 MB to itself, so that
/// 60 of them fill half a gigabyte, and what does not fit is refused for good.
fn start_with(command: &str, element: impl Fn(usize) -> Vec<String>) -> Server {
    let server = Server::kelvin_with_flash(
        "1gb",
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

fn member(number: usize) -> String {
    format!("member-{number:09}")
}
