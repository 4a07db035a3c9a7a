//! What is told: lines as they come, and what they amount to.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

use stdx::output::unless_closed;

use super::PROGRAM;
use super::error::CheckError;
use crate::config::quote::quote;

/// Between two lines of progress that take each other's place, and between two that stay.
const SHOWN_EVERY: Duration = Duration::from_millis(500);
const LOGGED_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Report {
    /// Places that are damaged.
    damaged: u64,
    /// Keys whose value is lost.
    lost: u64,
    /// The first failure of the output.
    failure: Option<io::Error>,
    is_quiet: bool,
    is_terminal: bool,
    told: Instant,
    has_line: bool,
}

impl Report {
    pub(super) fn new(is_quiet: bool) -> Report {
        let (is_terminal, told) = (stderr().is_terminal(), Instant::now());
        Report { damaged: 0, lost: 0, failure: None, is_quiet, is_terminal, told, has_line: false }
    }

    /// Tells how something is.
    pub(super) fn line(&mut self, text: impl Display) {
        self.write(format!("{text}\n").as_bytes());
    }

    /// Tells of damage, for which a start would refuse the files.
    pub(super) fn damage(&mut self, what: impl Display) {
        self.damaged += 1;
        self.line(format_args!("damaged: {what}"));
    }

    /// Tells of a key whose value is lost.
    pub(super) fn lost(&mut self, db: u64, key: &[u8], why: impl Display) {
        self.lost += 1;
        self.key("lost", db, key, why);
    }

    /// A key, as redis-cli shows it.
    pub(super) fn key(&mut self, what: &str, db: u64, key: &[u8], why: impl Display) {
        let key = String::from_utf8_lossy(&quote(key)).into_owned();
        self.line(format_args!("{what}: database {db}: {key}: {why}"));
    }

    fn write(&mut self, bytes: &[u8]) {
        self.clear_line();
        if self.failure.is_none() {
            self.failure = unless_closed(stdout().write_all(bytes)).err();
        }
    }

    /// So much of a file has been read.
    pub(super) fn progress(&mut self, name: &str, done: u64, bytes: u64) {
        let every = if self.is_terminal { SHOWN_EVERY } else { LOGGED_EVERY };
        if self.is_quiet || self.told.elapsed() < every {
            return;
        }
        self.told = Instant::now();
        let part = 100.0 * done as f64 / bytes.max(1) as f64;
        let line = format!("{PROGRAM}: {name}: {part:.0} % of {} MB", bytes / 1_000_000);
        // Nobody may be there to read it.
        let _ = match self.is_terminal {
            true => write!(stderr(), "\r{line}\x1b[K"),
            false => writeln!(stderr(), "{line}"),
        };
        self.has_line = self.is_terminal;
    }

    fn clear_line(&mut self) {
        if std::mem::replace(&mut self.has_line, false) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    /// Whether nothing was found that is not.
    pub(super) fn is_whole(&self) -> bool {
        (self.damaged, self.lost) == (0, 0)
    }

    /// Says what it amounts to. Whether all is whole.
    ///
    /// Errors: not all could be told.
    pub(super) fn end(mut self) -> Result<bool, CheckError> {
        let (damaged, lost, is_whole) = (self.damaged, self.lost, self.is_whole());
        match (damaged, lost) {
            (0, 0) => self.line("all is whole"),
            (0, _) => self.line(format_args!(
                "{lost} values are lost. A server answers with an error where it needs one of them, and does not start \
                 if its journal does: restore them from a copy, or have --repair delete these keys."
            )),
            _ => self.line(format_args!(
                "{damaged} places are damaged, {lost} values lost. A server does not start on these files: restore \
                 them from a copy, or have --repair give up what is damaged."
            )),
        }
        let flushed = unless_closed(stdout().flush());
        match self.failure.take().map_or(flushed, Err) {
            Ok(()) => Ok(is_whole),
            Err(error) => Err(CheckError::Output(error)),
        }
    }
}
