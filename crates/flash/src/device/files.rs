//! Real drives: data files, driven by io_uring or by threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::file::{DataFile, FileSet};
use super::threads::ThreadDevice;
use super::uring::UringDevice;
use super::{Device, Drives, FileIndex};
use crate::error::EngineError;
use crate::log::Backend;

/// Data files and the backend that serves them.
pub(crate) struct FileDrives {
    files: Arc<FileSet>,
    backend: Backend,
    /// Workers that io_uring serves, and workers that threads serve.
    uring_workers: AtomicUsize,
    thread_workers: AtomicUsize,
}

impl FileDrives {
    /// Creates an empty data file in each directory.
    ///
    /// Errors: with a text for the operator. What was created is removed again.
    pub(crate) fn create(directories: &[PathBuf], backend: Backend) -> Result<Self, EngineError> {
        let mut files: Vec<DataFile> = Vec::new();
        for directory in directories {
            match DataFile::create(directory) {
                Ok(file) => files.push(file),
                Err(error) => {
                    files.iter().for_each(DataFile::remove);
                    return Err(error);
                }
            }
        }
        for file in files.iter().filter(|file| !file.is_direct()) {
            let path = file.path().display();
            tracing::warn!(%path, "no direct I/O here: flash reads go through the page cache");
        }
        let drives = Self {
            files: Arc::new(FileSet::new(files)),
            backend,
            uring_workers: AtomicUsize::new(0),
            thread_workers: AtomicUsize::new(0),
        };
        if backend == Backend::Uring {
            // Says so now, not when the first worker starts.
            drives.ring()?;
        }
        Ok(drives)
    }

    /// A ring; `None` where threads are to take over: asked for, or because rings are refused, or
    /// because there is not enough lockable memory for one more.
    fn ring(&self) -> Result<Option<UringDevice>, EngineError> {
        if self.backend == Backend::Threads {
            return Ok(None);
        }
        match UringDevice::new(Arc::clone(&self.files)) {
            Ok(device) => Ok(Some(device)),
            Err(errno) if self.backend == Backend::Uring => {
                Err(self.failed("io_uring set-up", errno))
            }
            Err(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "io_uring is refused: threads serve flash instead");
                Ok(None)
            }
        }
    }

    fn failed(&self, operation: &'static str, errno: i32) -> EngineError {
        EngineError::io(self.files.get(FileIndex(0)).path(), operation, errno)
    }
}

impl Drives for FileDrives {
    fn device(&self) -> Result<Box<dyn Device>, EngineError> {
        if let Some(device) = self.ring()? {
            self.uring_workers.fetch_add(1, Ordering::Relaxed);
            return Ok(Box::new(device));
        }
        let device = ThreadDevice::new(Arc::clone(&self.files))
            .map_err(|errno| self.failed("thread set-up", errno))?;
        self.thread_workers.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(device))
    }

    fn backend(&self) -> &'static str {
        let workers = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        match (workers(&self.uring_workers), workers(&self.thread_workers)) {
            (0, 0) => "none",
            (_, 0) => "io_uring",
            (0, _) => "threads",
            _ => "io_uring and threads",
        }
    }

    fn count(&self) -> usize {
        self.files.iter().count()
    }

    fn name(&self, file: FileIndex) -> String {
        self.files.get(file).path().display().to_string()
    }

    fn sector_bytes(&self) -> u32 {
        let largest = self.files.iter().map(DataFile::sector_bytes).max();
        largest.expect("invariant: there is at least one file")
    }

    fn reserve(&self, file: FileIndex, from: u64, to: u64) -> Result<(), EngineError> {
        self.files.get(file).reserve(from, to)
    }

    fn punch(&self, file: FileIndex, offset: u64, size: u64) -> Result<(), EngineError> {
        self.files.get(file).punch(offset, size)
    }
}

impl Drop for FileDrives {
    fn drop(&mut self) {
        self.files.iter().for_each(DataFile::remove);
    }
}
