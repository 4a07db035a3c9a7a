//! Errors that several families answer.

use command::CommandError;

/// The error of a subcommand whose arguments no form of it has.
pub(super) fn wrong_subcommand(container: &str, name: &[u8]) -> CommandError {
    CommandError::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {container} HELP.",
        quoted(name)
    ))
}

/// A client's word as an error repeats it: not all of a long one.
pub(super) fn quoted(word: &[u8]) -> String {
    /// Bytes that are repeated.
    const QUOTED_BYTES_MAX: usize = 128;
    String::from_utf8_lossy(&word[..word.len().min(QUOTED_BYTES_MAX)]).into_owned()
}
