//! Why bytes cannot be read.

/// Why bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They end in the midst of something.
    #[error("the input ends early")]
    Short,
    /// They are no such thing.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// They are a collection without elements, which some versions of Redis have saved; all of it was read.
    #[error("malformed collection: it is empty")]
    Empty,
    /// They are something that is not read, with its number.
    #[error("{0} {1} is not supported")]
    Unsupported(&'static str, u64),
    /// They cannot be had: whoever reads them knows why.
    #[error("the input cannot be read")]
    Unreadable,
    /// Whoever takes the elements wants no more.
    #[error("reading was stopped")]
    Stopped,
}
