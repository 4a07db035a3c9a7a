//! Commands that wait until there is something for them (BLPOP and the like).
//!
//! A handler that finds nothing ends with [`Cx::wait`]. The caller of the handler lines the client up for the
//! keys of the command, and runs the same handler again when one of them holds something, on that key alone
//! ([`Cx::candidates`]), with the arguments that the handler has replaced ([`Wait::replaced`]).

use std::ops::Range;

use keyspace::Key;
use resp::Reply;
use value::long_double::LongDouble;
use value::parse_i64;

use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};

const NOT_A_TIMEOUT: CommandError = fixed("ERR timeout is not a float or out of range");
const NOT_MILLISECONDS: CommandError = fixed("ERR timeout is not an integer or out of range");
const NEGATIVE: CommandError = fixed("ERR timeout is negative");

/// Whether a command may wait, and for what it has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// It may not, being part of a transaction: what it does not find it answers at once.
    #[default]
    Never,
    /// It may.
    May,
    /// It has waited, and the key of this number may hold something now.
    For(usize),
}

/// How a command waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Until when.
    pub deadline: Deadline,
    /// Arguments that are others when it is run again, by their numbers, in ascending order.
    pub replaced: Vec<(usize, String)>,
    /// The group of consumers that it reads streams for. It is run again, too, when a key is gone or holds something
    /// of another type, and fails then. Where there is nothing for one of a group there is nothing for any.
    pub group: Option<Box<[u8]>>,
}

impl Wait {
    /// Until there is something for the command as it is.
    pub fn until(deadline: Deadline) -> Wait {
        Wait { deadline, replaced: Vec::new(), group: None }
    }
}

/// What a client that waits gives up at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The first Unix millisecond in which it waits no longer; 0 is never.
    pub at_ms: u64,
}

impl Deadline {
    /// That of a timeout in seconds, fractions included.
    ///
    /// Errors: it is no number, or negative.
    pub fn after_seconds(text: &[u8], now_ms: u64) -> Result<Deadline, CommandError> {
        let seconds = LongDouble::parse(text).ok_or(NOT_A_TIMEOUT)?;
        let seconds: f64 = seconds.print().parse().map_err(|_| NOT_A_TIMEOUT)?;
        let ms = (seconds * 1000.0).ceil();
        // What is beyond its integers is negative to Redis.
        if ms < 0.0 || ms >= i64::MAX as f64 {
            return Err(NEGATIVE);
        }
        Ok(Deadline::after(ms as u64, now_ms))
    }

    /// That of a timeout in milliseconds.
    ///
    /// Errors: as above.
    pub fn after_ms(text: &[u8], now_ms: u64) -> Result<Deadline, CommandError> {
        let ms = parse_i64(text).ok_or(NOT_MILLISECONDS)?;
        Ok(Deadline::after(u64::try_from(ms).map_err(|_| NEGATIVE)?, now_ms))
    }

    fn after(ms: u64, now_ms: u64) -> Deadline {
        // The present millisecond has begun: one more, lest the wait be too short by a part of it.
        Deadline { at_ms: if ms == 0 { 0 } else { now_ms.saturating_add(ms).saturating_add(1) } }
    }
}

impl<'a> Cx<'a, '_> {
    /// The keys among which a command that may wait looks for something, by their numbers: all, or the one
    /// that it has waited for, which alone is locked then (with those that it inserts into).
    pub fn candidates(&self) -> Range<usize> {
        match self.waits {
            Waits::For(index) => index..index + 1,
            Waits::Never | Waits::May => 0..self.keys.len(),
        }
    }

    /// The same as keys.
    pub fn candidate_keys(&self) -> &'a [Key<'a>] {
        &self.keys[self.candidates()]
    }

    /// Whether it has waited and runs again: for one key, which holds something now or has lost what it held.
    pub fn has_waited(&self) -> bool {
        matches!(self.waits, Waits::For(_))
    }

    /// Ends a command that has found nothing: it waits, or answers what `answer` writes if it may not.
    pub fn wait(
        &self,
        wait: Wait,
        reply: &mut Reply,
        answer: impl FnOnce(&mut Reply),
    ) -> CommandResult {
        if self.waits != Waits::Never {
            return Err(CommandError::Wait(Box::new(wait)));
        }
        answer(reply);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds() {
        for (text, at_ms) in [
            ("0", 0),
            ("-0.0001", 0),
            ("0.0000001", 1002),
            ("0.001", 1002),
            ("1.5", 2501),
            ("1e2", 101_001),
            ("90071992547", 90_071_992_548_001),
        ] {
            let deadline = Deadline::after_seconds(text.as_bytes(), 1000);
            assert_eq!(deadline, Ok(Deadline { at_ms }), "{text}");
        }
        for (text, error) in [
            ("", NOT_A_TIMEOUT),
            ("abc", NOT_A_TIMEOUT),
            (" 1", NOT_A_TIMEOUT),
            ("nan", NOT_A_TIMEOUT),
            ("-1", NEGATIVE),
            ("inf", NEGATIVE),
            ("1e400", NEGATIVE),
            ("9223372036854775807", NEGATIVE),
        ] {
            assert_eq!(Deadline::after_seconds(text.as_bytes(), 1000), Err(error), "{text}");
        }
    }

    #[test]
    fn milliseconds() {
        let after = |text: &str| Deadline::after_ms(text.as_bytes(), 1000);
        assert_eq!(after("0"), Ok(Deadline { at_ms: 0 }));
        assert_eq!(after("15"), Ok(Deadline { at_ms: 1016 }));
        assert_eq!(after("1.5"), Err(NOT_MILLISECONDS));
        assert_eq!(after("-1"), Err(NEGATIVE));
    }
}
