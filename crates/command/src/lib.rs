//! Commands: the table of their properties and the handlers of those that work on keys.
//!
//! Architecture invariants:
//! - A handler is a plain synchronous function. It knows no socket, no file, no future and no
//!   flash: when a value it needs is on flash alone it returns [`CommandError::NotResident`], and
//!   its caller fetches the value and runs it again from the start.
//! - Therefore a handler looks up every value it needs before its first change.
//! - A command is one row, one function and its cases in one file of `family/`. Dispatch, arity,
//!   key positions, COMMAND and the compatibility page come from the row.

#![forbid(unsafe_code)]

pub mod collection;
mod cx;
mod effect;
mod error;
pub mod family;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod harness;
mod journal_record;
mod keys;
mod logged;
mod lookup;
pub mod saved;
mod spec;
mod varint;
mod wait;

pub use cx::{Cx, Fetched, Limits, NothingFetched, SPARE_BYTES_MIN, Statistics, Value};
pub use effect::{Classes, Effect, Effects, Event};
pub use error::{ColdValue, CommandError, CommandResult, LongReply, NotResident, fixed};
pub use journal_record::{BadRecord, Commands, LoggedCommand, Record};
pub use keys::{KeyAt, find_keys};
pub use logged::Arg;
pub use lookup::{CommandTable, Name, names_are_short_enough};
pub use spec::{
    Begin, Command, Docs, Find, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs, Row, Spec,
};
pub use wait::{Deadline, Wait, Waits};
