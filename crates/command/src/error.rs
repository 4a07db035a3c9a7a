//! What a handler can answer instead of a result.

use std::borrow::Cow;

use keyspace::{FlashRef, Key};
use smallvec::SmallVec;

use crate::wait::Wait;

/// Bytes of a client's argument that an error quotes.
const QUOTED_BYTES_MAX: usize = 128;

/// How a handler ends.
pub type CommandResult = Result<(), CommandError>;

/// An error for the client, or the wish for a value.
#[derive(Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The full text of an error reply, with its code.
    Reply(Cow<'static, str>),
    /// A value is on flash alone: fetch it and run the command again. Nothing was changed.
    NotResident(Box<NotResident>),
    /// The reply takes more than [`crate::Cx::reply_bytes_max`]: run the command again when there is
    /// memory for it. Nothing was changed.
    ReplyTooLong(Box<LongReply>),
    /// There is nothing for the command yet: run it again when one of its keys may hold something. Nothing was
    /// changed.
    Wait(Box<Wait>),
    /// The run would walk over more than it may ([`crate::collection::Walk::UpTo`]): run the command on one window
    /// after another. Nothing was changed, and nothing replied but the header.
    LongWalk,
}

/// A reply that there is no memory for.
#[derive(Debug, PartialEq, Eq)]
pub struct LongReply {
    /// The key whose value is too long for it.
    pub key: Box<[u8]>,
    /// What it takes in bytes, about, if that is more than the values of all keys.
    pub bytes: u64,
    /// Whether that is for copies that the command holds while it runs, and its reply is short.
    pub is_for_copies: bool,
    /// Leaves that the run has read from flash, which the next will read again: whoever runs the command
    /// notes them.
    pub leaves: Vec<ColdValue>,
}

/// Which values a handler misses.
#[derive(Debug, PartialEq, Eq)]
pub struct NotResident {
    /// The key of which it wants them.
    pub key: Box<[u8]>,
    /// The key's value, or leaves of it: those that it has looked at so far and are on flash alone,
    /// whether they were fetched or not. One of them was not.
    pub values: SmallVec<[ColdValue; 1]>,
    /// What it replies with them takes in bytes, about, if that is more than the values of all keys.
    pub reply_bytes: u64,
    /// Whether the command can do without them, and a snapshot is to save them before it changes them.
    pub is_to_save: bool,
}

/// A value that is on flash alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdValue {
    /// Its place.
    pub at: FlashRef,
    /// Length of the key, or of the leaf's name, that stands beside it.
    pub key_len: u32,
    /// Its own length.
    pub value_len: u32,
}

impl CommandError {
    /// An operation on a key of another type.
    pub const WRONG_TYPE: CommandError =
        fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// Unknown or contradictory arguments.
    pub const SYNTAX: CommandError = fixed("ERR syntax error");
    /// An argument or value that should be a 64-bit integer.
    pub const NOT_INTEGER: CommandError = fixed("ERR value is not an integer or out of range");
    /// An argument or value that should be a number.
    pub const NOT_FLOAT: CommandError = fixed("ERR value is not a valid float");
    /// A missing key where there must be one.
    pub const NO_SUCH_KEY: CommandError = fixed("ERR no such key");
    /// An index out of range.
    pub const OUT_OF_RANGE: CommandError = fixed("ERR index out of range");

    /// A value that memory has no room for.
    pub const OUT_OF_MEMORY: CommandError =
        fixed("OOM command not allowed when used memory > 'maxmemory'.");

    /// A container command with a subcommand that it does not have.
    pub fn unknown_subcommand(container: &str, given: &[u8]) -> CommandError {
        let text = format!("ERR unknown subcommand '{}'. Try {container} HELP.", quoted(given));
        CommandError::owned(text)
    }

    /// The reply with the value of `key` is too long for the memory there is.
    #[cold]
    pub fn too_long(key: &Key<'_>) -> CommandError {
        CommandError::too_long_of(key, 0)
    }

    /// The same for a reply that takes so many bytes, about, where the value of `key` says less: it is a
    /// large collection.
    #[cold]
    pub fn too_long_of(key: &Key<'_>, bytes: u64) -> CommandError {
        let (key, leaves) = (key.bytes.into(), Vec::new());
        let is_for_copies = false;
        CommandError::ReplyTooLong(Box::new(LongReply { key, bytes, is_for_copies, leaves }))
    }

    /// The same of a command that takes the memory for copies of what it makes a value of, if that is what
    /// it is short of.
    #[cold]
    pub(crate) fn of_copies(mut self) -> CommandError {
        if let CommandError::ReplyTooLong(long) = &mut self {
            long.is_for_copies = true;
        }
        self
    }

    /// An error made on the spot.
    pub fn owned(text: String) -> CommandError {
        CommandError::Reply(Cow::Owned(text))
    }
}

/// Bytes of a client as an error tells them: as in Redis, up to the first zero byte.
pub(crate) fn shown(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(until_nul(bytes))
}

/// What stands in front of the first NUL, if there is one: what Redis makes of bytes that it takes for a C string.
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// An error with a constant text (its code included).
pub const fn fixed(text: &'static str) -> CommandError {
    CommandError::Reply(Cow::Borrowed(text))
}

/// An argument as an error quotes it.
pub fn quoted(given: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&given[..given.len().min(QUOTED_BYTES_MAX)])
}
