//! Why nothing, or not all, was imported.

use std::io;
use std::path::PathBuf;

/// Why an import has ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// The files cannot be made out.
    #[error("{}: {what}", path.display())]
    Files {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is damaged, or has something that is not supported.
    #[error("{} at byte {offset}: {what}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// There is no connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Of the server.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection is lost.
    #[error("the connection is lost: {0}")]
    Lost(#[from] io::Error),
    /// The server closed it.
    #[error("the server closed the connection")]
    Closed,
    /// The server sent what is no reply.
    #[error("the server sent what is no reply")]
    NoReply,
    /// The server said no before anything was sent.
    #[error("the server says: {0}")]
    Refused(String),
    /// The server has keys.
    #[error(
        "the server has keys: empty it, or say --replace to have those of the same name replaced"
    )]
    NotEmpty,
    /// The server did not take something.
    #[error("{} at byte {offset}: {about}: the server says: {says}", path.display())]
    Rejected {
        /// The file that it stands in.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The key, or the command.
        about: String,
        /// What the server answered.
        says: String,
    },
}
