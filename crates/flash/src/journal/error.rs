//! What can go wrong with the journal, for the operator to read.

use std::fmt::Display;
use std::io;

/// Why the journal is not opened, or does not become durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The filesystem answered with an error.
    #[error("journal {operation} failed: {path}: {}", io::Error::from_raw_os_error(*errno))]
    Io {
        /// The file or folder.
        path: String,
        /// What was tried: "write", "sync" ...
        operation: &'static str,
        /// The errno.
        errno: i32,
    },
    /// What is there is not what was written.
    #[error("journal damaged: {path} at byte {offset}: {what}")]
    Damaged {
        /// The file.
        path: String,
        /// Bytes from its start.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The last records are not whole, and may not be cut off.
    #[error("journal {path} is cut off at byte {offset}: {what}")]
    Torn {
        /// The file.
        path: String,
        /// Where the last whole record ends.
        offset: u64,
        /// What is wrong behind it.
        what: &'static str,
    },
    /// Another version wrote it.
    #[error(
        "journal {path} has format {version}, and this server reads format {}",
        crate::journal::header::VERSION
    )]
    Version {
        /// The file.
        path: String,
        /// Its format.
        version: u32,
    },
    /// Another process has it.
    #[error("journal {path} is in use by another server")]
    InUse {
        /// The folder.
        path: String,
    },
    /// A checkpoint ends that another one has replaced, or that never began.
    #[error("the checkpoint was overtaken by another")]
    Overtaken,
    /// Its writer has ended.
    #[error("the journal is closed")]
    Closed,
}

impl JournalError {
    pub(crate) fn io(path: impl Display, operation: &'static str, error: &io::Error) -> Self {
        // Errors that the standard library makes itself have no number.
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Self::Io { path: path.to_string(), operation, errno }
    }

    pub(crate) fn damaged(path: String, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { path, offset, what: what.into() }
    }

    /// What a client may know of it: all but where the files are.
    pub fn for_client(&self) -> String {
        match self {
            Self::Io { errno, .. } => io::Error::from_raw_os_error(*errno).to_string(),
            Self::Damaged { what, .. } => format!("journal damaged: {what}"),
            Self::Torn { .. } => "the journal is cut off".to_owned(),
            Self::InUse { .. } => "the journal is in use by another server".to_owned(),
            Self::Version { version, .. } => format!("the journal has format {version}"),
            Self::Overtaken | Self::Closed => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_not_told_where_files_are() {
        let path = || "/mnt/secret/journal.000001".to_owned();
        let errors = [
            JournalError::io(path(), "write", &io::Error::from_raw_os_error(libc::ENOSPC)),
            JournalError::damaged(path(), 64, "checksum"),
            JournalError::Torn { path: path(), offset: 64, what: "checksum" },
            JournalError::Version { path: path(), version: 9 },
            JournalError::InUse { path: path() },
        ];
        for error in errors {
            assert!(error.to_string().contains("/mnt/secret"), "{error}");
            assert!(!error.for_client().contains("secret"), "{}", error.for_client());
        }
    }
}
