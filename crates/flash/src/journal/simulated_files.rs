//! The files of a simulated folder, for the snapshots that are kept there beside a journal.

use std::io::{self, Read, Write};

use super::sim::SimFolder;
use super::storage::{Storage, StoredFile};

/// The folder. Clones are the same one.
#[derive(Clone)]
pub struct SimFiles(SimFolder);

/// An open file, at some place.
pub struct SimFile {
    file: Box<dyn StoredFile>,
    at: u64,
}

impl SimFiles {
    pub(super) fn in_folder(folder: SimFolder) -> Self {
        Self(folder)
    }

    /// Makes an empty file, in place of one that has the name. Errors: it cannot be made.
    pub fn create(&self, name: &str) -> io::Result<SimFile> {
        self.0.create(name).map(SimFile::at_its_begin)
    }

    /// Errors: there is none.
    pub fn open(&self, name: &str) -> io::Result<SimFile> {
        self.0.open(name).map(SimFile::at_its_begin)
    }

    /// Gives a file another name, in place of one that has it. Errors: it has the old one, or nobody knows.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    /// Errors: it is there, or nobody knows.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    /// Has all names become durable. Errors: they are not.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_folder()
    }
}

impl SimFile {
    fn at_its_begin(file: Box<dyn StoredFile>) -> Self {
        Self { file, at: 0 }
    }

    /// What is read or written next is at its begin.
    pub fn rewind(&mut self) {
        self.at = 0;
    }

    /// Bytes. Errors: those of the folder.
    pub fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    /// Has all that was written become durable. Errors: it is not.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Read for SimFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(self.at, buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
