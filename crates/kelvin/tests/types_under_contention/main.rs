//! Every type under contention, on a real server with several workers: clients change and read the same
//! keys while everything is forced to flash, and nothing is lost, doubled, torn or out of order.
//!
//! All parts run at once, on keys of their own: elements that move between lists (`moves`), a thousand
//! clients that wait for elements (`waiters`), streams read by groups (`groups`), sets that are combined
//! (`combined`), and values of all types that change together (`together`).
//!
//! `KELVIN_CONTENTION_SECONDS` says for how long (`make contention` runs ten minutes).

#[path = "../support/mod.rs"]
mod support;

mod combined;
mod groups;
mod moves;
mod together;
mod waiters;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use resp::Frame;
use support::{Client, Server, show};

/// How long the clients go on when nobody says.
const SECONDS_DEFAULT: u64 = 3;
/// Little enough that values leave it by themselves as well.
const MAXMEMORY: &str = "64mb";
/// More than a thousand clients take whose requests all come at once: none is to be closed for it.
const MAXMEMORY_CLIENTS: &str = "40mb";
const FLASH: &str = "1gb";

/// Keys of all parts, each with a number behind it.
const KEYS: [&str; 13] = [
    "list",
    "queue",
    "moved",
    "taken-moved",
    "stream",
    "set",
    "sorted",
    "string",
    "many",
    "hash",
    "members",
    "scores",
    "log",
];
const KEYS_A_NAME: usize = 6;

#[test]
fn with_two_workers() {
    contend("2");
}

#[test]
fn with_four_workers() {
    contend("4");
}

fn contend(workers: &str) {
    // One after the other: each has more clients than a machine has time for.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = ["--maxmemory", MAXMEMORY, "--maxmemory-clients", MAXMEMORY_CLIENTS];
    let options = [&["--workers", workers, "--flash-segment-size", "1mb"], &memory[..]].concat();
    let server = Server::kelvin_with_flash(FLASH, &options);
    let run = Run::new(&server);
    let parts = [moves::check, waiters::check, groups::check, combined::check, together::check];
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let (run, ended) = (&run, &ended);
        let demoter = scope.spawn(|| demote_all(run, ended));
        let chooser = scope.spawn(|| demote_keys(run, ended));
        let parts = parts.map(|part| scope.spawn(move || run.guard(|| part(run))));
        let reports = parts.map(|part| part.join());
        ended.store(true, Ordering::Relaxed);
        let demoted = demoter.join().expect("a client that demotes");
        let keys = chooser.join().expect("a client that demotes keys");
        for report in reports {
            eprintln!("{workers} workers: {}", report.expect("a part that failed tells why above"));
        }
        eprintln!("{workers} workers: {demoted} values forced to flash, {keys} keys besides");
        assert!(demoted > 0 && keys > 0, "nothing was forced to flash");
    });
}

/// Forces everything to flash as long as anybody goes on. Returns how many values went.
fn demote_all(run: &Run, ended: &AtomicBool) -> i64 {
    let mut client = run.server.connect();
    let mut demoted = 0;
    while !ended.load(Ordering::Relaxed) {
        demoted += integer(&client.line("TIER DEMOTE ALL"));
    }
    demoted
}

/// Forces one key after the other to flash, all that the parts use: the round over everything waits for its
/// turn, and what is in use meanwhile comes back at once. Returns how often something went.
fn demote_keys(run: &Run, ended: &AtomicBool) -> i64 {
    let mut client = run.server.connect();
    let mut demoted = 0;
    for round in 0.. {
        for name in KEYS {
            demoted +=
                integer(&client.line(&format!("TIER DEMOTE {name}-{}", round % KEYS_A_NAME)));
        }
        if ended.load(Ordering::Relaxed) {
            break;
        }
    }
    demoted
}

/// The server, until when its clients go on (not known before the last has connected), and whether one of
/// them has failed.
struct Run<'a> {
    server: &'a Server,
    until: OnceLock<Instant>,
    failed: AtomicBool,
}

impl<'a> Run<'a> {
    fn new(server: &'a Server) -> Run<'a> {
        Run { server, until: OnceLock::new(), failed: AtomicBool::new(false) }
    }

    /// All clients have connected: from now on the time counts.
    fn begin(&self) {
        let seconds = std::env::var("KELVIN_CONTENTION_SECONDS").ok();
        let seconds = seconds.map_or(SECONDS_DEFAULT, |text| text.parse().expect("a number"));
        self.until.set(Instant::now() + Duration::from_secs(seconds)).expect("it begins once");
    }

    /// Whether clients should go on to change things.
    fn goes_on(&self) -> bool {
        !self.has_failed() && self.until.get().is_none_or(|until| Instant::now() < *until)
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Runs a thread's work. Should it fail, the others are not to go on for ever.
    fn guard<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Guard<'a>(&'a AtomicBool);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        let _guard = Guard(&self.failed);
        work()
    }
}

/// Sends requests as one transaction and reads its replies; none when it was called off.
fn transaction(client: &mut Client, requests: &[Vec<String>]) -> Vec<Frame> {
    client.send(&["MULTI"]);
    requests.iter().for_each(|request| send(client, request));
    client.send(&["EXEC"]);
    (0..=requests.len()).for_each(|_| {
        let queued = client.read();
        assert!(matches!(queued, Frame::Simple(_)), "{}", show(&queued));
    });
    let replies = items(client.read());
    assert_eq!(replies.len(), requests.len());
    replies
}

fn call(client: &mut Client, words: &[String]) -> Frame {
    send(client, words);
    client.read()
}

fn send(client: &mut Client, words: &[String]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.send_bytes(&words);
}

/// A request, its words separated by spaces.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn integer(frame: &Frame) -> i64 {
    match frame {
        Frame::Integer(number) => *number,
        other => panic!("no number: {}", show(other)),
    }
}

fn items(frame: Frame) -> Vec<Frame> {
    match frame {
        Frame::Array(items) => items,
        other => panic!("no array: {}", show(&other)),
    }
}

/// The texts of an array.
fn texts(frame: Frame) -> Vec<String> {
    items(frame).iter().map(support::text).collect()
}

/// A text that is made so long that it can leave RAM.
fn padded(text: &str, bytes: usize) -> String {
    format!("{text:.<bytes$}")
}

/// What was padded.
fn unpadded(text: &str) -> &str {
    text.trim_end_matches('.')
}
