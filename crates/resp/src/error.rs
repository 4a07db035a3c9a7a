//! What can be wrong with bytes from the other side, with the texts Redis gives it.

use thiserror::Error;

/// Why a request or a reply could not be read. The connection cannot go on after it.
///
/// `Display` gives Redis's text without the leading `ERR `; [`crate::Reply::protocol_error`]
/// writes the whole error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// An argument count that is no integer or above the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// More arguments than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// The line with the argument count has no end.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// An argument does not start with `$`. Line ends are shown as a space, as Redis does.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0) as char)]
    ExpectedBulk(u8),
    /// An argument length that is no integer, negative, or above the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// A longer argument than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// The line with an argument's length has no end.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// An inline command has no end.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// An inline command with a quote that does not close where a word ends.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A request of 4 GiB or more. Redis closes such connections by its query buffer limit.
    #[error("Protocol error: too big request")]
    TooBigRequest,
    /// A reply that is none, and what is wrong with it.
    #[error("Protocol error: {0}")]
    InvalidReply(&'static str),
}

impl ProtocolError {
    /// The text of `Display` as bytes, where an unexpected byte above 127 stands as it came.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::ExpectedBulk(byte) => {
                let mut text = b"Protocol error: expected '$', got '".to_vec();
                text.push(printable(*byte));
                text.push(b'\'');
                text
            }
            other => other.to_string().into_bytes(),
        }
    }
}

/// An error reply is one line, so a line end inside it becomes a space.
fn printable(byte: u8) -> u8 {
    if byte == b'\r' || byte == b'\n' { b' ' } else { byte }
}
