//! The journal's folder on a real filesystem, locked for this process alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::JournalError;
use super::storage::{Storage, StoredFile};
use crate::file;

/// The file that is locked.
const LOCK_NAME: &str = "lock";

pub(crate) struct Folder {
    path: PathBuf,
    /// Its sync is that of the names.
    folder: File,
    /// The lock goes with it.
    _lock: File,
}

impl Folder {
    /// Opens the folder, and makes it where there is none.
    ///
    /// Errors: it cannot be made or opened, or another process has it.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let failed =
            |operation| move |error: io::Error| JournalError::io(path.display(), operation, &error);
        if !path.is_dir() {
            std::fs::create_dir(path).map_err(failed("creation of the folder"))?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = File::open(parent.unwrap_or(Path::new(".")));
            parent.and_then(|parent| parent.sync_all()).map_err(failed("sync of the folder"))?;
        }
        let folder = File::open(path).map_err(failed("open"))?;
        let lock = open(&path.join(LOCK_NAME), false).map_err(failed("open of the lock"))?;
        if !file::lock(&lock).map_err(|errno| failed("lock")(errno.into()))? {
            return Err(JournalError::InUse { path: path.display().to_string() });
        }
        Ok(Self { path: path.to_owned(), folder, _lock: lock })
    }
}

/// Opens a file that need not be there, for this user alone.
fn open(path: &Path, empties: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(empties).mode(0o600).open(path)
}

impl Storage for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // The journal's names are text; others are not its own.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(open(&self.path.join(name), true)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn keep(&self, name: &str, kept: &str) -> io::Result<()> {
        let (path, kept) = (self.path.join(name), self.path.join(kept));
        // Some filesystems have no links.
        std::fs::hard_link(&path, &kept).or_else(|_| {
            std::fs::copy(&path, &kept)?;
            File::open(&kept)?.sync_all()
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn path(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

impl StoredFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<usize> {
        Ok(file::read_at(self, offset, target)?)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
