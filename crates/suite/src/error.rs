//! What can end a run of the suite before its tests, each as one line.

use std::io;
use std::path::{Path, PathBuf};

/// Why the suite cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// The options contradict each other or the machine.
    #[error("{0}")]
    Options(String),
    /// A file or folder cannot be used.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The server does not start, is not there, or refuses.
    #[error("{0}")]
    Server(String),
    /// The load cannot be run, or its outcome cannot be read.
    #[error("{0}")]
    Load(String),
    /// The standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// The earlier run cannot be gone on with.
    #[error(transparent)]
    Resume(#[from] crate::read::ReadError),
}

impl SuiteError {
    /// For `map_err`: names the file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> SuiteError {
        let path = path.to_owned();
        move |error| SuiteError::File { path, error }
    }
}
