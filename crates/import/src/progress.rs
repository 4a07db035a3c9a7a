//! What is told while an import is under way.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crate::{PROGRAM, Sent};

/// Between two lines that take each other's place, and between two that stay.
const SHOWN_EVERY: Duration = Duration::from_millis(500);
const LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Calls between two looks at the time.
const CALLS: u32 = 256;

pub(crate) struct Progress {
    total_bytes: u64,
    /// Bytes of the files that are done.
    done_bytes: u64,
    is_quiet: bool,
    is_terminal: bool,
    start: Instant,
    told: Instant,
    calls: u32,
    has_line: bool,
}

impl Progress {
    pub(crate) fn new(total_bytes: u64, is_quiet: bool) -> Progress {
        let (start, is_terminal) = (Instant::now(), stderr().is_terminal());
        let (done_bytes, calls, has_line) = (0, 0, false);
        Progress {
            total_bytes,
            done_bytes,
            is_quiet,
            is_terminal,
            start,
            told: start,
            calls,
            has_line,
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// So much of the file under way has been sent.
    pub(crate) fn at(&mut self, offset: u64, sent: &Sent) {
        self.calls = self.calls.wrapping_add(1);
        if self.is_quiet || !self.calls.is_multiple_of(CALLS) {
            return;
        }
        let every = if self.is_terminal { SHOWN_EVERY } else { LOGGED_EVERY };
        if self.told.elapsed() >= every {
            self.told = Instant::now();
            self.tell(self.done_bytes + offset, sent);
        }
    }

    fn tell(&mut self, bytes: u64, sent: &Sent) {
        let part = bytes as f64 / self.total_bytes.max(1) as f64;
        let rest = self.seconds() * (1.0 / part.max(f64::MIN_POSITIVE) - 1.0);
        let line = format!(
            "{PROGRAM}: {:.0} % of {} MB, {} keys, {} commands, {rest:.0} s left",
            100.0 * part,
            self.total_bytes / 1_000_000,
            sent.keys,
            sent.commands,
        );
        // Nobody may be there to read it.
        let _ = match self.is_terminal {
            true => write!(stderr(), "\r{line}\x1b[K"),
            false => writeln!(stderr(), "{line}"),
        };
        self.has_line = self.is_terminal;
    }

    /// A file of so many bytes is done.
    pub(crate) fn end_file(&mut self, bytes: u64) {
        self.done_bytes += bytes;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.has_line {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
