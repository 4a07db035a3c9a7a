//! The seam between the journal and its folder.
//!
//! Names are those of files in the one folder. What was written or changed is durable once a sync of the file, or for
//! names one of the folder, has returned without an error; until then a loss of power may leave any part of it.

use std::io;

/// The folder.
pub(crate) trait Storage: Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes an empty file, in place of one that has the name.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Opens a file that is there.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Gives a file another name, in place of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Has a file kept under another name as well, which nobody has: what takes its place leaves that as it is.
    fn keep(&self, name: &str, kept: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Has all changes of names become durable.
    fn sync_folder(&self) -> io::Result<()>;

    /// What people call a file.
    fn path(&self, name: &str) -> String;
}

/// An open file.
pub(crate) trait StoredFile: Send {
    /// Bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads into `target`, and returns how much: less than its length at the end of the file alone.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Has all that was written become durable. After an error any part of it may be lost, though it can be read.
    fn sync(&self) -> io::Result<()>;
}

/// Reads a whole small file. Errors: those of reading, or it has another size.
pub(crate) fn read_exactly<const BYTES: usize>(
    file: &dyn StoredFile,
) -> io::Result<Option<[u8; BYTES]>> {
    let mut bytes = [0; BYTES];
    let read = file.read_at(0, &mut bytes)?;
    Ok((read == BYTES).then_some(bytes))
}
