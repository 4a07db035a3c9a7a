//! Where snapshots are kept: in directories of the machine, or in the one folder of a simulation.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::num::NonZeroU64;
use std::path::Path;

#[cfg(feature = "simulation")]
use flash::{SimFile, SimFiles};
use rustix::fs::{Advice, fadvise};

/// Files by their path.
#[derive(Default)]
pub(crate) enum Files {
    /// Those of the machine.
    #[default]
    System,
    /// Those of a folder, whatever directory is asked for.
    #[cfg(feature = "simulation")]
    Simulated(SimFiles),
}

/// An open file.
pub(crate) enum SavedFile {
    System(File),
    #[cfg(feature = "simulation")]
    Simulated(SimFile),
}

impl Files {
    /// Makes an empty file in place of one that is there. Errors: it cannot be made.
    pub(crate) fn create(&self, path: &Path) -> io::Result<SavedFile> {
        match self {
            Files::System => {
                let mut options = File::options();
                options.read(true).write(true).create(true).truncate(true);
                options.open(path).map(SavedFile::System)
            }
            #[cfg(feature = "simulation")]
            Files::Simulated(files) => files.create(name(path)?).map(SavedFile::Simulated),
        }
    }

    /// Errors: it cannot be read, or is not there.
    pub(crate) fn open(&self, path: &Path) -> io::Result<SavedFile> {
        match self {
            Files::System => File::open(path).map(SavedFile::System),
            #[cfg(feature = "simulation")]
            Files::Simulated(files) => files.open(name(path)?).map(SavedFile::Simulated),
        }
    }

    /// Gives a file another name in its directory, in place of one that has it; durable when this returns.
    ///
    /// Errors: it is not, or nobody knows.
    pub(crate) fn put(&self, dir: &Path, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Files::System => {
                std::fs::rename(from, to)?;
                File::open(dir)?.sync_all()
            }
            #[cfg(feature = "simulation")]
            Files::Simulated(files) => {
                files.rename(name(from)?, name(to)?)?;
                files.sync()
            }
        }
    }

    /// Errors: it is there still, or was not.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Files::System => std::fs::remove_file(path),
            #[cfg(feature = "simulation")]
            Files::Simulated(files) => files.remove(name(path)?),
        }
    }
}

#[cfg(feature = "simulation")]
fn name(path: &Path) -> io::Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or(io::Error::from(io::ErrorKind::InvalidFilename))
}

impl SavedFile {
    /// Bytes. Errors: they cannot be told.
    pub(crate) fn size(&self) -> io::Result<u64> {
        match self {
            SavedFile::System(file) => file.metadata().map(|metadata| metadata.len()),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(file) => file.size(),
        }
    }

    /// What is read next is at its begin. Errors: it cannot be.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        match self {
            SavedFile::System(file) => file.rewind(),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(file) => {
                file.rewind();
                Ok(())
            }
        }
    }

    /// Has all of it become durable, or all but what tells when it was written. Errors: it is not.
    pub(crate) fn sync(&self, is_whole: bool) -> io::Result<()> {
        match self {
            SavedFile::System(file) if is_whole => file.sync_all(),
            SavedFile::System(file) => file.sync_data(),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(file) => file.sync(),
        }
    }

    /// Tells the kernel what comes of some bytes. It is a hint: whatever becomes of it, all goes on.
    pub(crate) fn advise(&self, from: u64, bytes: u64, advice: Advice) {
        match self {
            SavedFile::System(file) => drop(fadvise(file, from, NonZeroU64::new(bytes), advice)),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(_) => {}
        }
    }
}

impl Read for SavedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            SavedFile::System(file) => file.read(buffer),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(file) => file.read(buffer),
        }
    }
}

impl Write for SavedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            SavedFile::System(file) => file.write(bytes),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            SavedFile::System(file) => file.flush(),
            #[cfg(feature = "simulation")]
            SavedFile::Simulated(file) => file.flush(),
        }
    }
}
