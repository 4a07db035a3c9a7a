//! The data files of a log: one for each path, opened for this process alone, as large as the
//! path's share.
//!
//! The files are scratch space: emptied when opened, removed when the log is closed. Those with a label (`label.rs`), in a
//! file beside each, are kept: a journal refers to what is in them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno as RustixErrno;

use super::buffer::IoBuffer;
use super::label::Label;
use super::{Errno, Extent, FileIndex};
use crate::error::EngineError;
use crate::file::{lock, read_at};
use crate::journal::JournalMark;
use crate::limits::PATHS_MAX;

/// The name of the data file in each path.
pub(crate) const FILE_NAME: &str = "kelvin.flash";

/// The name of its label.
const LABEL_NAME: &str = "kelvin.flash.label";
/// What becomes the label once it is whole: until then the label before the last, or what a crash has left of one.
const LABEL_NEW_NAME: &str = "kelvin.flash.label.new";

/// The sector size where the filesystem does not tell.
const SECTOR_BYTES_DEFAULT: u32 = 4096;

/// The smallest sector there is.
pub(crate) const SECTOR_BYTES_MIN: u32 = 512;

/// Threads that help with reads that are waited for, and how many reads there are for each at least: to start one
/// takes a few times as long as the system call of a read.
const READ_HELPERS_MAX: usize = 16;
const READS_A_HELPER_MIN: usize = 4;
const HELPER_STACK_BYTES: usize = 128 << 10;

/// One data file.
pub(crate) struct DataFile {
    path: PathBuf,
    fd: OwnedFd,
    sector_bytes: u32,
    direct: bool,
}

impl DataFile {
    /// Opens the data file in a directory, or makes one, to be emptied.
    ///
    /// Errors: with a text for the operator: no directory, no permission, used by another server.
    pub(crate) fn create(directory: &Path) -> Result<Self, EngineError> {
        match Self::open(directory, OFlags::CREATE)? {
            Some(file) => Ok(file),
            // Another server has just removed the file, in the time between opening and locking it.
            None => Self::create(directory),
        }
    }

    /// Looks whether it may be emptied. `without`: see [`Label::is_needed`].
    ///
    /// Errors: with a text for the operator: it is kept for a journal, or its label is damaged.
    pub(crate) fn check_needless(&self, without: Option<JournalMark>) -> Result<(), EngineError> {
        match self.label()?.is_some_and(|label| label.is_needed(without)) {
            true => Err(self.is_kept()),
            false => Ok(()),
        }
    }

    /// Looks whether it may be emptied for a flash that is open, with this number in its labels: not if it is of another.
    ///
    /// Errors: with a text for the operator: it is kept, or its label is damaged.
    pub(crate) fn check_unclaimed(&self, flash: Option<u64>) -> Result<(), EngineError> {
        let is_of_another = |label: Label| label.is_needed(None) && Some(label.flash) != flash;
        if !self.label()?.is_some_and(is_of_another) {
            return Ok(());
        }
        let (path, label) = (self.path.display(), self.beside(LABEL_NAME));
        Err(EngineError::Settings(format!(
            "{path} holds values that the journal of another server refers to; if nobody needs them any more, remove {path} \
             and {}",
            label.display()
        )))
    }

    /// Removes what is in it, and its label first.
    pub(crate) fn clear(&self) -> Result<(), EngineError> {
        self.remove_label()?;
        rustix::fs::ftruncate(&self.fd, 0).map_err(|errno| self.failed("truncate", errno))
    }

    /// Opens the data file that was kept in a directory.
    ///
    /// Errors: with a text for the operator: there is none, no permission, used by another server.
    pub(crate) fn reopen(directory: &Path) -> Result<Self, EngineError> {
        let file = Self::open(directory, OFlags::empty())?;
        file.ok_or_else(|| EngineError::io(&directory.join(FILE_NAME), "open", libc::ENOENT))
    }

    /// None: it was removed a moment ago.
    fn open(directory: &Path, flags: OFlags) -> Result<Option<Self>, EngineError> {
        if !directory.is_dir() {
            let shown = directory.display();
            return Err(EngineError::Settings(format!("flash path {shown} is not a directory")));
        }
        let path = directory.join(FILE_NAME);
        let (fd, direct) = open(&path, flags).map_err(|errno| failed(&path, "open", errno))?;
        if !lock(&fd).map_err(|errno| failed(&path, "lock", errno))? {
            let shown = path.display();
            return Err(EngineError::Settings(format!("{shown} is in use by another server")));
        }
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(&path, "stat", errno))?;
        let sector_bytes = if direct { sector_bytes(&fd) } else { SECTOR_BYTES_MIN };
        Ok((stat.st_nlink > 0).then_some(Self { path, fd, sector_bytes, direct }))
    }

    fn is_kept(&self) -> EngineError {
        let (path, label) = (self.path.display(), self.beside(LABEL_NAME));
        EngineError::Settings(format!(
            "{path} holds values that a journal refers to: start with appendonly yes and the dir of that journal, or, if \
             nobody needs them any more, remove {path} and {}",
            label.display()
        ))
    }

    /// Whether the data file in a directory has a label.
    pub(crate) fn has_label(directory: &Path) -> bool {
        directory.join(LABEL_NAME).exists()
    }

    /// Gives the label in a directory another name, which nobody has, if there is no data file. Returns that.
    pub(crate) fn set_label_aside(directory: &Path) -> Result<Option<String>, EngineError> {
        let label = directory.join(LABEL_NAME);
        if directory.join(FILE_NAME).exists() || !label.exists() {
            return Ok(None);
        }
        let name = |number: u64| directory.join(format!("damaged-{number}.{LABEL_NAME}"));
        let aside = (1..).map(name).find(|path| !path.exists()).expect("invariant: names are many");
        std::fs::rename(&label, &aside)
            .and_then(|()| File::open(directory)?.sync_all())
            .map_err(|error| io_failed(&label, "rename", &error))?;
        Ok(Some(aside.display().to_string()))
    }

    pub(crate) fn is_labelled(&self) -> bool {
        self.beside(LABEL_NAME).exists()
    }

    /// A file in the same directory.
    fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// The label beside the file. Errors: it cannot be read, or is damaged.
    pub(crate) fn label(&self) -> Result<Option<Label>, EngineError> {
        let path = self.beside(LABEL_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_failed(&path, "read", &error)),
        };
        Label::decode(&bytes).map(Some).map_err(|what| {
            let (label, path) = (path.display(), self.path.display());
            EngineError::Settings(format!(
                "{label} is no label of a flash file: {what}; if nobody needs what is in {path}, remove both"
            ))
        })
    }

    /// Puts a label beside the file, in place of one that is there, which stays as what becomes the next: so a start
    /// needs no room on a full drive.
    pub(crate) fn set_label(&self, label: &Label) -> Result<(), EngineError> {
        let (new, path) = (self.beside(LABEL_NEW_NAME), self.beside(LABEL_NAME));
        let write = || {
            write_over(&new, &label.encode())?;
            if path.is_file() {
                exchange(&new, &path)?;
            } else {
                std::fs::rename(&new, &path)?;
                // Where there is no room for it now the next label needs some.
                let _ = write_over(&new, &label.encode());
            }
            self.sync_directory()
        };
        write().map_err(|error| io_failed(&path, "write of the label", &error))
    }

    /// Takes the label away, if there is one.
    pub(crate) fn remove_label(&self) -> Result<(), EngineError> {
        // What is left of one that could not be put on counts for nothing.
        let _ = std::fs::remove_file(self.beside(LABEL_NEW_NAME));
        let path = self.beside(LABEL_NAME);
        match std::fs::remove_file(&path).and_then(|()| self.sync_directory()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_failed(&path, "removal of the label", &error))
            }
            _ => Ok(()),
        }
    }

    fn sync_directory(&self) -> std::io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }

    /// Has all writes that have ended become durable.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        rustix::fs::fsync(&self.fd).map_err(|errno| self.failed("sync", errno))
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> Result<u64, EngineError> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| self.failed("stat", errno))?;
        Ok(stat.st_size as u64)
    }

    /// Has it reach to so many bytes, durably.
    pub(crate) fn lengthen(&self, bytes: u64) -> Result<(), EngineError> {
        if self.bytes()? >= bytes {
            return Ok(());
        }
        rustix::fs::ftruncate(&self.fd, bytes).map_err(|errno| self.failed("lengthen", errno))?;
        self.sync()
    }

    /// Gives the bytes behind so many back.
    pub(crate) fn shorten(&self, bytes: u64) -> Result<(), EngineError> {
        if self.bytes()? <= bytes {
            return Ok(());
        }
        rustix::fs::ftruncate(&self.fd, bytes).map_err(|errno| self.failed("truncate", errno))
    }

    fn failed(&self, operation: &'static str, errno: RustixErrno) -> EngineError {
        failed(&self.path, operation, errno)
    }

    /// Reserves the bytes from `from` to `to` on the drive.
    ///
    /// Reserved but unwritten: the filesystem notes what was written when a write ends. On ext4 the
    /// first pass over a file then takes 256 KiB writes at 1.7 GB/s where later ones reach 3.0
    /// (measured with fio); both are more than a server demotes. Writing zeros first would cost a
    /// full pass over the drive at every start.
    pub(crate) fn reserve(&self, from: u64, to: u64) -> Result<(), EngineError> {
        assert!(from <= to);
        if from == to {
            return Ok(());
        }
        // Asked first, because a reservation that fails takes all blocks of the filesystem before
        // it does.
        let stat =
            rustix::fs::fstatvfs(&self.fd).map_err(|errno| failed(&self.path, "stat", errno))?;
        let available = stat.f_bavail.saturating_mul(stat.f_frsize);
        if to - from > available {
            return Err(self.no_space(to - from, available));
        }
        match self.reserve_again(from, to)? {
            true => Ok(()),
            false => Err(self.no_space(to - from, available)),
        }
    }

    /// The same without a look at what is free before: where nothing is in the range and it has its blocks, as far as is
    /// known. False: there are none, and it has none.
    pub(crate) fn reserve_again(&self, from: u64, to: u64) -> Result<bool, EngineError> {
        match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), from, to - from) {
            Ok(()) => Ok(true),
            Err(RustixErrno::OPNOTSUPP) => {
                let bytes = self.bytes()?.max(to);
                rustix::fs::ftruncate(&self.fd, bytes)
                    .map_err(|errno| self.failed("truncate", errno))?;
                Ok(true)
            }
            Err(RustixErrno::NOSPC | RustixErrno::FBIG) => {
                // A reservation that failed half way keeps its blocks.
                if let Err(error) = self.punch(from, to - from) {
                    tracing::warn!(%error, "flash space not given back");
                }
                Ok(false)
            }
            Err(errno) => Err(self.failed("reserve", errno)),
        }
    }

    fn no_space(&self, wanted: u64, available: u64) -> EngineError {
        let path = self.path.display();
        EngineError::Settings(format!(
            "not enough space for flash: {path} needs {wanted} bytes more, {available} are free"
        ))
    }

    /// Gives the bytes of a range back to the filesystem, and so to the drive. They read as zeros
    /// afterwards.
    pub(crate) fn punch(&self, offset: u64, size: u64) -> Result<(), EngineError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.fd, flags, offset, size)
            .map_err(|errno| failed(&self.path, "punch a hole", errno))
    }

    /// Gives all space back, although rings may hold the file a little longer.
    pub(crate) fn empty(&self) {
        if let Err(error) = rustix::fs::ftruncate(&self.fd, 0) {
            tracing::warn!(path = %self.path.display(), %error, "flash space not given back");
        }
    }

    /// Removes the file's name, and that of its label; the space goes with the last descriptor.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.remove_label() {
            tracing::warn!(%error, "label of a flash file not removed");
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "flash file not removed");
        }
    }

    /// Reads at once. Errors: the errno; a file that ends early is EIO.
    pub(crate) fn read_now(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        match read_at(&self.fd, offset, bytes) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) => Err(libc::EIO),
            Err(errno) => Err(errno.raw_os_error()),
        }
    }

    /// Writes at once. Errors: the errno.
    pub(crate) fn write_now(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(libc::ENOSPC),
                Ok(written) => done += written,
                Err(RustixErrno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Offsets and sizes of reads and writes are multiples of this.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Whether reads and writes bypass the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }
}

fn failed(path: &Path, operation: &'static str, errno: RustixErrno) -> EngineError {
    EngineError::io(path, operation, errno.raw_os_error())
}

fn io_failed(path: &Path, operation: &'static str, error: &std::io::Error) -> EngineError {
    EngineError::io(path, operation, error.raw_os_error().unwrap_or(libc::EIO))
}

/// Opens for direct access; where the filesystem refuses that, through the page cache.
fn open(path: &Path, flags: OFlags) -> Result<(OwnedFd, bool), RustixErrno> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
        Ok(fd) => Ok((fd, true)),
        Err(RustixErrno::INVAL) => Ok((rustix::fs::open(path, flags, mode)?, false)),
        Err(errno) => Err(errno),
    }
}

fn sector_bytes(fd: &OwnedFd) -> u32 {
    let empty = OsStr::new("");
    match rustix::fs::statx(fd.as_fd(), empty, AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            match stat.stx_dio_offset_align {
                0 => SECTOR_BYTES_DEFAULT,
                align => align.max(SECTOR_BYTES_MIN),
            }
        }
        _ => SECTOR_BYTES_DEFAULT,
    }
}

/// The data files of a log. Files come and go while devices use others.
pub(crate) struct FileSet {
    /// By `FileIndex`.
    slots: RwLock<Vec<Option<Arc<DataFile>>>>,
    /// How often a file came or went.
    changes: AtomicU64,
}

impl FileSet {
    /// The files by their index.
    pub(crate) fn new(files: Vec<Option<DataFile>>) -> Self {
        assert!(!files.is_empty() && files.len() <= PATHS_MAX);
        let slots = files.into_iter().map(|file| file.map(Arc::new)).collect();
        Self { slots: RwLock::new(slots), changes: AtomicU64::new(0) }
    }

    /// Adds a file. `None`: there are `PATHS_MAX` already.
    pub(crate) fn add(&self, file: DataFile) -> Option<FileIndex> {
        let mut slots = self.slots.write();
        let index = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if index == PATHS_MAX {
            return None;
        }
        if index == slots.len() {
            slots.push(None);
        }
        slots[index] = Some(Arc::new(file));
        self.changes.fetch_add(1, Ordering::Release);
        Some(FileIndex(index as u16))
    }

    /// Takes a file out.
    pub(crate) fn take(&self, index: FileIndex) -> Option<Arc<DataFile>> {
        let taken = self.slots.write().get_mut(usize::from(index.0))?.take();
        self.changes.fetch_add(1, Ordering::Release);
        taken
    }

    /// How often a file came or went: what a device knows of the files is true while this stays.
    /// Cost: an atomic load.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self, index: FileIndex) -> Option<Arc<DataFile>> {
        self.slots.read().get(usize::from(index.0))?.clone()
    }

    /// All files, by their index.
    pub(crate) fn all(&self) -> Vec<(FileIndex, Arc<DataFile>)> {
        let slots = self.slots.read();
        let files = slots.iter().enumerate();
        files
            .filter_map(|(index, file)| Some((FileIndex(index as u16), Arc::clone(file.as_ref()?))))
            .collect()
    }

    pub(crate) fn read_now(&self, extent: Extent, bytes: &mut [u8]) -> Result<(), Errno> {
        let file = self.get(extent.file).ok_or(libc::EBADF)?;
        file.read_now(extent.offset, &mut bytes[..extent.size])
    }

    /// Reads side by side, for a drive answers many about as soon as one: this thread and some helpers take one
    /// read after another. A helper that the system does not give is done without.
    pub(crate) fn read_all_now(
        &self,
        reads: Vec<(Extent, &mut IoBuffer)>,
    ) -> Vec<Result<(), Errno>> {
        let helpers = (reads.len() / READS_A_HELPER_MIN).min(READ_HELPERS_MAX);
        let mut results = vec![Ok(()); reads.len()];
        let bytes = reads.into_iter().map(|(extent, buffer)| (extent, buffer.bytes_mut()));
        let bytes: Vec<(Extent, &mut [u8])> = bytes.collect();
        let left = Mutex::new(bytes.into_iter().zip(&mut results));
        let read = || {
            let next = || left.lock().next();
            while let Some(((extent, bytes), result)) = next() {
                *result = self.read_now(extent, bytes);
            }
        };
        std::thread::scope(|scope| {
            let helper = || std::thread::Builder::new().stack_size(HELPER_STACK_BYTES);
            let started = |_: &usize| helper().spawn_scoped(scope, read).is_ok();
            (0..helpers).take_while(started).for_each(drop);
            read();
        });
        results
    }
}

/// Writes a file that is as long as what is written, durably, in the room that it has.
fn write_over(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().create(true).write(true).truncate(false).open(path)?;
    file.set_len(bytes.len() as u64)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Gives two files each other's name at once. A filesystem that cannot has the first take the place of the second.
fn exchange(one: &Path, other: &Path) -> std::io::Result<()> {
    match rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(RustixErrno::INVAL | RustixErrno::NOSYS) => std::fs::rename(one, other),
        result => result.map_err(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::log::tests::Directory;

    const LABEL: Label =
        Label { flash: 1, checkpoint: 2, file: 0, starts: 3, newest: 4, journal: 5, position: 6 };

    /// A start on a full drive was refused for want of the room of a new file.
    #[test]
    fn a_label_takes_the_room_of_the_one_before_the_last() {
        let directory = Directory::new();
        let file = DataFile::create(&directory.0).expect("a file");
        let inodes = || {
            let names = [LABEL_NAME, LABEL_NEW_NAME];
            let mut inodes = names
                .map(|name| std::fs::metadata(directory.0.join(name)).expect("it is there").ino());
            inodes.sort_unstable();
            inodes
        };
        file.set_label(&LABEL).expect("nothing fails");
        let first = inodes();
        for starts in 4..10 {
            let label = Label { starts, ..LABEL };
            file.set_label(&label).expect("nothing fails");
            assert_eq!(file.label().expect("it is whole"), Some(label));
            assert_eq!(inodes(), first);
        }
        // What a crash has left in the one that is to come does no harm.
        std::fs::write(directory.0.join(LABEL_NEW_NAME), b"torn").expect("it can be written");
        file.set_label(&LABEL).expect("nothing fails");
        assert_eq!(file.label().expect("it is whole"), Some(LABEL));
    }

    #[test]
    fn nothing_is_left_of_a_label_that_could_not_be_put_on() {
        let directory = Directory::new();
        let file = DataFile::create(&directory.0).expect("a file");
        let in_the_way = directory.0.join(LABEL_NAME);
        std::fs::create_dir(&in_the_way).expect("a directory");
        file.set_label(&LABEL).expect_err("something is in the way");
        std::fs::remove_dir(&in_the_way).expect("it is empty");
        file.remove();
        let left = std::fs::read_dir(&directory.0).expect("a directory").count();
        assert_eq!(left, 0);
    }
}
