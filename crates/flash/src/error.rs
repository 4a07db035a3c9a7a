//! What can go wrong in the store, for the tier to act on and for the operator to read.

use std::path::PathBuf;

/// A read, a write or an operation on the files failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The bytes at the location are not the record that was written there. Never served.
    #[error("flash record damaged: {path} segment {segment} offset {offset}: {what}")]
    Corrupted {
        /// The file of the segment.
        path: String,
        /// The segment's index in the address space.
        segment: u32,
        /// Bytes from the start of the segment.
        offset: u64,
        /// What did not match.
        what: &'static str,
    },
    /// The location holds no record now: it was released and collected, or the engine was reset.
    /// Look the key up again.
    #[error("flash location {units:#x} holds no record")]
    Gone {
        /// The location, in 16-byte units.
        units: u64,
    },
    /// The device or the filesystem answered with an error.
    #[error("flash {operation} failed: {path}: {}", std::io::Error::from_raw_os_error(*errno))]
    Io {
        /// The file.
        path: String,
        /// What was tried: "read", "write", "open" ...
        operation: &'static str,
        /// The errno.
        errno: i32,
    },
    /// The operator's settings cannot work: the text says which and why.
    #[error("{0}")]
    Settings(String),
}

impl EngineError {
    /// What a client may know of it: all but where the files are, which is the operator's business
    /// and stands in the log.
    pub fn for_client(&self) -> String {
        match self {
            Self::Corrupted { segment, offset, what, .. } => {
                format!("flash record damaged: segment {segment} offset {offset}: {what}")
            }
            Self::Io { operation, errno, .. } => {
                format!("flash {operation} failed: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Gone { .. } | Self::Settings(_) => self.to_string(),
        }
    }

    pub(crate) fn io(path: &std::path::Path, operation: &'static str, errno: i32) -> Self {
        Self::Io { path: PathBuf::from(path).display().to_string(), operation, errno }
    }
}

/// Why a record was not appended. Nothing of it was stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Every write buffer is in flight: come back after `reap`.
    #[error("all flash write buffers are in flight")]
    Busy,
    /// No free segment is left: garbage collection or eviction must make room first.
    #[error("flash is full")]
    Full,
    /// No path takes writes any more: stop demoting.
    #[error(transparent)]
    Failed(EngineError),
    /// Key and payload are larger than `RECORD_BYTES_MAX`.
    #[error("record larger than {} bytes", crate::limits::RECORD_BYTES_MAX)]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_not_told_where_files_are() {
        let path = || "/mnt/secret/kelvin.flash".to_owned();
        let io = EngineError::Io { path: path(), operation: "read", errno: libc::EIO };
        let corrupted =
            EngineError::Corrupted { path: path(), segment: 3, offset: 16, what: "checksum" };
        for error in [io, corrupted] {
            assert!(error.to_string().contains("/mnt/secret"), "{error}");
            assert!(!error.for_client().contains("secret"), "{}", error.for_client());
        }
    }
}
