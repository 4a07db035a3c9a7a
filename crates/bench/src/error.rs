//! What can go wrong with a load as a whole.

use crate::session::OpenError;

/// Why a load could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The options are malformed or contradict each other.
    #[error("{0}")]
    Options(String),
    /// A connection could not be made.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Host and port, or the path of the socket.
        address: String,
        /// What the system or the server said.
        source: OpenError,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or a key is of no use.
    #[error("{what}: {why}")]
    Certificate {
        /// Its path, or its option.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server said of its cluster what cannot be understood.
    #[error("the server's answer to CLUSTER {0} has no slots, or another form than Redis's")]
    Cluster(&'static str),
    /// The system refused something that is not a connection.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
