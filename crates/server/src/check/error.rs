//! What keeps files from being looked at.

use std::io;

use flash::{EngineError, JournalError};
use rdb::file::FileError;
use thiserror::Error;

use crate::config::LoadError;

#[derive(Debug, Error)]
pub(super) enum CheckError {
    /// The options make no sense.
    #[error("{0}")]
    Options(#[from] LoadError),
    /// The journal cannot be read, or a server has it.
    #[error("{}", with_way_out(.0))]
    Journal(#[from] JournalError),
    /// A server has the flash, or it cannot be read.
    #[error(transparent)]
    Flash(#[from] EngineError),
    /// The journal refers to values on flash, and nobody says where.
    #[error("the journal refers to values on flash: give the flash-path that the server has")]
    NoFlash,
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A snapshot cannot be read.
    #[error("{path}: {error}")]
    Snapshot {
        /// Which.
        path: String,
        /// Why.
        error: FileError,
    },
    /// A record of the journal is none.
    #[error("a record of the journal: {0}")]
    Record(String),
    /// The standard output cannot be written.
    #[error("standard output: {0}")]
    Output(io::Error),
}

fn with_way_out(error: &JournalError) -> String {
    match error {
        JournalError::InUse { .. } => format!("{error}: stop it to have its files checked"),
        _ => error.to_string(),
    }
}
