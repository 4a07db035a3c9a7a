//! Real drives: data files, driven by io_uring or by threads.

use std::path::PathBuf;
use std::sync::Arc;

use super::file::{DataFile, FileSet};
use super::threads::ThreadDevice;
use super::uring::UringDevice;
use super::{Device, Drives, FileIndex};
use crate::error::EngineError;
use crate::log::Backend;

/// Data files and the backend that serves them.
pub(crate) struct FileDrives {
    files: Arc<FileSet>,
    uring: bool,
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
            tracing::warn!(%path, "the filesystem takes no direct I/O: flash reads go through the page cache");
        }
        let mut drives = Self { files: Arc::new(FileSet::new(files)), uring: false };
        drives.uring = drives.choose_uring(backend)?;
        Ok(drives)
    }

    /// Whether to use io_uring: tries to make a ring.
    fn choose_uring(&self, backend: Backend) -> Result<bool, EngineError> {
        if backend == Backend::Threads {
            return Ok(false);
        }
        match UringDevice::new(Arc::clone(&self.files)) {
            Ok(_) => Ok(true),
            Err(errno) if backend == Backend::Uring => {
                let path = self.files.get(FileIndex(0)).path();
                Err(EngineError::io(path, "io_uring set-up", errno))
            }
            Err(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "io_uring is refused: flash I/O goes through a pool of threads");
                Ok(false)
            }
        }
    }
}

impl Drives for FileDrives {
    fn device(&self) -> Result<Box<dyn Device>, EngineError> {
        let files = Arc::clone(&self.files);
        let failed =
            |errno| EngineError::io(self.files.get(FileIndex(0)).path(), "device set-up", errno);
        if self.uring {
            Ok(Box::new(UringDevice::new(files).map_err(failed)?))
        } else {
            Ok(Box::new(ThreadDevice::new(files).map_err(failed)?))
        }
    }

    fn backend(&self) -> &'static str {
        if self.uring { "io_uring" } else { "threads" }
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
