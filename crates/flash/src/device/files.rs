//! Real drives: data files, driven by io_uring or by threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::file::{DataFile, FILE_NAME, FileSet};
use super::label::Label;
use super::threads::ThreadDevice;
use super::uring::UringDevice;
use super::{Device, Drives, FileIndex};
use crate::error::EngineError;
use crate::journal::JournalMark;
use crate::limits::PATHS_MAX;
use crate::log::Backend;

/// What to do where files are not those that a journal refers to.
pub(crate) const WAY_OUT: &str = "start with the flash-path and the files that belong to the journal, or move the journal \
     and the flash files away to start from a snapshot";

/// Data files and the backend that serves them.
pub(crate) struct FileDrives {
    files: Arc<FileSet>,
    /// The largest sector of the files at the start: what all operations keep to.
    sector_bytes: u32,
    backend: Backend,
    /// Workers that io_uring serves, and workers that threads serve.
    uring_workers: AtomicUsize,
    thread_workers: AtomicUsize,
}

impl FileDrives {
    /// Creates an empty data file in each directory. `without`: the journal, if its last checkpoint refers to nothing on
    /// flash.
    ///
    /// Errors: with a text for the operator: one is kept for a journal, say. No file that has a label was changed then, and
    /// the others were removed.
    pub(crate) fn create(
        directories: &[PathBuf],
        backend: Backend,
        without: Option<JournalMark>,
    ) -> Result<Self, EngineError> {
        let mut files: Vec<DataFile> = Vec::new();
        let open = |directory: &PathBuf| {
            let file = DataFile::create(directory)?;
            let checked = file.check_needless(without);
            files.push(file);
            checked
        };
        // None is emptied before it is known that all may be.
        let opened = directories.iter().try_for_each(open);
        if let Err(error) = opened.and_then(|()| files.iter().try_for_each(DataFile::clear)) {
            files.iter().filter(|file| !file.is_labelled()).for_each(DataFile::remove);
            return Err(error);
        }
        let sector_bytes = files.iter().map(DataFile::sector_bytes).max();
        let sector_bytes = sector_bytes
            .ok_or_else(|| EngineError::Settings("flash needs at least one path".to_owned()))?;
        Self::new(files.into_iter().map(Some).collect(), sector_bytes, backend)
    }

    /// Opens the data files that were kept in some directories, which are those of the flash with this number. Returns the
    /// directories without one as well, and the files that `is_outdated` says are not needed any more: they are not opened.
    ///
    /// Errors: with a text for the operator: all are missing, or one is another. Nothing was changed then.
    pub(crate) fn reopen(
        directories: &[PathBuf],
        backend: Backend,
        (flash, sector_bytes): (u64, u32),
        is_outdated: impl Fn(&Label) -> bool,
    ) -> Result<(Self, Vec<PathBuf>, Vec<DataFile>), EngineError> {
        let (mut files, mut without): (Vec<Option<DataFile>>, _) = (Vec::new(), Vec::new());
        let mut outdated = Vec::new();
        for directory in directories {
            let refused = |what: &str| Err(refusal(directory, what));
            let Some((file, label)) = reopen_one(directory)? else {
                without.push(directory.clone());
                continue;
            };
            if label.flash != flash {
                return refused(&format!("{FILE_NAME} is not the one that the journal refers to"));
            }
            if is_outdated(&label) {
                outdated.push(file);
                without.push(directory.clone());
                continue;
            }
            let sector = file.sector_bytes();
            if sector > sector_bytes {
                return refused(&format!("it has sectors of {sector} bytes, not {sector_bytes}"));
            }
            let index = label.file as usize;
            if files.len() <= index {
                files.resize_with(index + 1, || None);
            }
            if files[index].replace(file).is_some() {
                return refused(&format!("another path has a copy of its {FILE_NAME}"));
            }
        }
        match without.first().filter(|_| files.is_empty()) {
            Some(directory) => Err(refusal(
                directory,
                &format!("there is no {FILE_NAME} with a label, and the journal refers to one"),
            )),
            None => Ok((Self::new(files, sector_bytes, backend)?, without, outdated)),
        }
    }

    fn new(
        files: Vec<Option<DataFile>>,
        sector_bytes: u32,
        backend: Backend,
    ) -> Result<Self, EngineError> {
        files.iter().flatten().for_each(warn_if_cached);
        let drives = Self {
            files: Arc::new(FileSet::new(files)),
            sector_bytes,
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
        let files = self.files.all();
        let path = files.first().map_or(Path::new(FILE_NAME), |(_, file)| file.path());
        EngineError::io(path, operation, errno)
    }

    /// The file that the log works with. Errors: it was removed, so there is nothing to work on.
    fn file(&self, index: FileIndex) -> Result<Arc<DataFile>, EngineError> {
        self.files.get(index).ok_or_else(|| self.failed("look-up", libc::EBADF))
    }

    /// Whether a file can serve a log that is under way.
    fn check_sectors(&self, file: &DataFile) -> Result<(), EngineError> {
        let (sector, most) = (file.sector_bytes(), self.sector_bytes);
        if sector > most {
            let path = file.path().display();
            return Err(EngineError::Settings(format!(
                "{path} has sectors of {sector} bytes, larger than the {most} of the paths at the \
                 start: it can be added by a restart only"
            )));
        }
        Ok(())
    }
}

fn warn_if_cached(file: &DataFile) {
    if !file.is_direct() {
        let path = file.path().display();
        tracing::warn!(%path, "no direct I/O here: flash reads go through the page cache");
    }
}

/// The data file that was kept in a directory, and its label. None: there is none, or it was not kept.
pub(crate) fn reopen_one(directory: &Path) -> Result<Option<(DataFile, Label)>, EngineError> {
    let file = match DataFile::reopen(directory) {
        Ok(file) => file,
        Err(EngineError::Io { errno: libc::ENOENT, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(file.label()?.map(|label| (file, label)))
}

/// Says that the files are not those of the journal.
fn refusal(directory: &Path, what: &str) -> EngineError {
    EngineError::Settings(format!("flash path {}: {what}; {WAY_OUT}", directory.display()))
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

    fn files(&self) -> Vec<FileIndex> {
        self.files.all().into_iter().map(|(index, _)| index).collect()
    }

    fn find(&self, directory: &Path) -> Option<FileIndex> {
        let path = directory.join(FILE_NAME);
        let mut files = self.files.all().into_iter();
        files.find_map(|(index, file)| (file.path() == path).then_some(index))
    }

    fn add(&self, directory: &Path, flash: Option<u64>) -> Result<FileIndex, EngineError> {
        let file = DataFile::create(directory)?;
        file.check_unclaimed(flash)?;
        if let Err(error) = file.clear().and_then(|()| self.check_sectors(&file)) {
            file.remove();
            return Err(error);
        }
        warn_if_cached(&file);
        let path = file.path().to_owned();
        self.files.add(file).ok_or_else(|| {
            // Nobody else can have made it: it was locked a moment ago.
            let _ = std::fs::remove_file(&path);
            EngineError::Settings(format!(
                "more than {PATHS_MAX} flash paths, those that are being left included"
            ))
        })
    }

    fn remove(&self, file: FileIndex) {
        if let Some(file) = self.files.take(file) {
            file.remove();
            file.empty();
        }
    }

    fn name(&self, file: FileIndex) -> String {
        let file = self.files.get(file);
        file.map_or("a removed flash path".to_owned(), |file| file.path().display().to_string())
    }

    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    fn reserve(&self, file: FileIndex, from: u64, to: u64) -> Result<(), EngineError> {
        self.file(file)?.reserve(from, to)
    }

    fn reserve_again(&self, file: FileIndex, from: u64, to: u64) -> Result<bool, EngineError> {
        self.file(file)?.reserve_again(from, to)
    }

    fn punch(&self, file: FileIndex, offset: u64, size: u64) -> Result<(), EngineError> {
        self.file(file)?.punch(offset, size)
    }

    fn sync(&self, file: FileIndex) -> Result<(), EngineError> {
        self.file(file)?.sync()
    }

    fn label(&self, file: FileIndex) -> Result<Option<Label>, EngineError> {
        self.file(file)?.label()
    }

    fn set_label(&self, file: FileIndex, label: &Label) -> Result<(), EngineError> {
        self.file(file)?.set_label(label)
    }

    fn remove_label(&self, file: FileIndex) -> Result<(), EngineError> {
        self.file(file)?.remove_label()
    }

    fn file_bytes(&self, file: FileIndex) -> Result<u64, EngineError> {
        self.file(file)?.bytes()
    }

    fn shorten(&self, file: FileIndex, bytes: u64) -> Result<(), EngineError> {
        self.file(file)?.shorten(bytes)
    }
}

impl Drop for FileDrives {
    fn drop(&mut self) {
        let all = self.files.all();
        let needless = all.iter().filter(|(_, file)| file.check_needless(None).is_ok());
        needless.for_each(|(_, file)| file.remove());
    }
}
