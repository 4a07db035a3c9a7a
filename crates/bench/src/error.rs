//! What can go wrong with a load as a whole.

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
        /// What the system said.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused something that is not a connection.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
