//! Servers for the tests of the load generator: one in this process that records what arrives, and
//! real ones.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod lines;
pub mod real;
pub mod recorder;

use bench::{Options, Report};
use std::time::{Duration, Instant};

/// What takes longer than this to come true will not.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Rows of the stats.
pub const SETS: usize = 0;
pub const GETS: usize = 1;
pub const WAITS: usize = 2;

/// The options of a command line, as a shell would split one without quotes.
pub fn options(port: u16, line: &str) -> Options {
    let words = format!("load -s 127.0.0.1 -p {port} {line}");
    Options::parse(words.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Runs a load of one thread, unless `line` says more, against the server at `port`.
pub fn load(port: u16, line: &str) -> Report {
    let options = options(port, &format!("-t 1 {line}"));
    bench::run(&options).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Waits until something is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
