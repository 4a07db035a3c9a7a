//! The settings of a flash log.

use std::path::PathBuf;

/// Which device backend to use.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Backend {
    /// io_uring, or threads where the kernel or a sandbox refuses it.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// A pool of threads with `pread` and `pwrite`.
    Threads,
}

/// The settings of a flash log. Directories in `paths` must exist; each gets one scratch file.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directories, one for each drive; segments are striped over them.
    pub paths: Vec<PathBuf>,
    /// Bytes to use on all paths together.
    pub flash_bytes: u64,
    /// Worker threads that will ask for an `EngineWorker`.
    pub workers: usize,
    /// Bytes of a segment, a power of two; `None` chooses 64 MiB, or less where the flash is small.
    pub segment_bytes: Option<u64>,
    /// Which device backend to use.
    pub backend: Backend,
}
