//! Checkpoints: a snapshot takes the place of all records in front of it.

use std::path::Path;

use super::error::JournalError;
use super::folder::Folder;
use super::header::{HEADER_BYTES, Header, Kind, NoHeader};
use super::names::{self, MANIFEST, MANIFEST_NEW, Name};
use super::queue::Cut;
use super::storage::{Storage, read_exactly};
use super::{Journal, Position};
use crate::limits::FLASH_STATE_BYTES_MAX;

impl Journal {
    /// The moment of a checkpoint: a segment begins at the position that is returned. What the records in front of it
    /// make is to be written to the file [`Journal::snapshot_name`] in [`Journal::folder`], and nothing else. One that
    /// was begun before and has not ended is called off.
    pub fn begin_checkpoint(&self) -> Position {
        Position(self.shared.queue.begin_cut(&self.shared))
    }

    /// The checkpoint has a snapshot, which is durable, its name as well: it takes the place of the records in front of
    /// it, which are removed, as is the snapshot before. Waits for the writer to come to the position.
    ///
    /// Errors: the checkpoint before is still the one that counts, or this one is if its manifest is there in spite of
    /// the error. So the file stays: the next checkpoint removes it, or the next start does.
    pub fn end_checkpoint(&self, position: Position) -> Result<(), JournalError> {
        let cut = self.shared.queue.wait_for_cut(position, &self.shared)?;
        let _alone = self.checkpoint.lock();
        let name = names::snapshot(position);
        let failed = |operation| {
            let path = self.storage.path(&name);
            move |error: std::io::Error| JournalError::io(path, operation, &error)
        };
        let file = self.storage.open(&name).map_err(failed("open of the snapshot"))?;
        let snapshot_bytes = file.size().map_err(failed("look at the snapshot"))?;
        let header = self.manifest(cut);
        write_manifest(&*self.storage, &header)?;
        let mut facts = self.shared.facts.lock();
        facts.checkpoint = position.0;
        facts.snapshot_bytes = snapshot_bytes;
        facts.segments.retain(|&number| number >= cut.number);
        drop(facts);
        remove_obsolete(&*self.storage, &header);
        Ok(())
    }

    /// Keeps what a checkpoint says of the flash that its snapshot refers to; it is durable when this returns. Called before
    /// the checkpoint is ended. A start finds it by [`flash_state`].
    ///
    /// Errors: it could not be written.
    pub fn put_flash_state(&self, position: Position, state: &[u8]) -> Result<(), JournalError> {
        let name = names::flash(position);
        let failed = |operation| {
            let path = self.storage.path(&name);
            move |error: std::io::Error| JournalError::io(path, operation, &error)
        };
        let file = self.storage.create(&name).map_err(failed("creation"))?;
        file.write_at(0, state).map_err(failed("write"))?;
        file.sync().map_err(failed("sync"))?;
        self.storage.sync_folder().map_err(failed("sync of the folder"))
    }

    fn manifest(&self, cut: Cut) -> Header {
        Header { number: cut.number, position: cut.position, run: 0, ..self.identity }
    }

    /// The name of the file that is the snapshot of a checkpoint.
    pub fn snapshot_name(position: Position) -> String {
        names::snapshot(position)
    }

    /// The journal's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What the last checkpoint of a journal says of the flash that its snapshot refers to. As long as this is held nobody opens
/// the journal, so that it stays the last.
pub struct FlashState {
    /// As it was handed to [`Journal::put_flash_state`].
    pub bytes: Vec<u8>,
    _folder: Folder,
}

/// Looks what the last checkpoint says of the flash, before the journal is opened. None: there is no journal, it has no
/// checkpoint, or that refers to nothing.
///
/// Errors: another process has the journal, it cannot be read, or its manifest is damaged or of another format.
pub fn flash_state(folder: &Path) -> Result<Option<FlashState>, JournalError> {
    if !folder.join(MANIFEST).exists() {
        return Ok(None);
    }
    let folder = Folder::open(folder)?;
    let state = read_flash_state(&folder)?;
    Ok(state.map(|bytes| FlashState { bytes, _folder: folder }))
}

/// See [`flash_state`]. What it is read by is durable when this returns: whoever acts on it writes over what an earlier
/// checkpoint refers to.
pub(super) fn read_flash_state(storage: &dyn Storage) -> Result<Option<Vec<u8>>, JournalError> {
    let failed = |name: &str, operation| {
        let path = storage.path(name);
        move |error: std::io::Error| JournalError::io(path, operation, &error)
    };
    storage.sync_folder().map_err(failed("", "sync of the folder"))?;
    let names = storage.list().map_err(failed("", "look at the folder"))?;
    let Some(manifest) = read_manifest(storage, &names)? else { return Ok(None) };
    let name = names::flash(manifest.position());
    if !names.contains(&name) {
        return Ok(None);
    }
    let file = storage.open(&name).map_err(failed(&name, "open"))?;
    let size = file.size().map_err(failed(&name, "look"))?;
    if size > FLASH_STATE_BYTES_MAX {
        return Err(JournalError::damaged(storage.path(&name), 0, "it is longer than it can be"));
    }
    let mut bytes = vec![0; size as usize];
    let read = file.read_at(0, &mut bytes).map_err(failed(&name, "read"))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// The manifest, if the folder has one. Errors: it cannot be read, or is damaged, or of another format.
pub(super) fn read_manifest(
    storage: &dyn Storage,
    names: &[String],
) -> Result<Option<Header>, JournalError> {
    if !names.iter().any(|name| name == MANIFEST) {
        return Ok(None);
    }
    let path = storage.path(MANIFEST);
    let read = storage.open(MANIFEST).and_then(|file| read_exactly::<HEADER_BYTES>(&*file));
    let bytes = read.map_err(|error| JournalError::io(&path, "read", &error))?;
    let Some(bytes) = bytes else {
        return Err(JournalError::damaged(path, 0, "it is cut off"));
    };
    match Header::decode(&bytes, Kind::Manifest) {
        Ok(header) => Ok(Some(header)),
        Err(NoHeader::Version(version)) => Err(JournalError::Version { path, version }),
        Err(NoHeader::Bad(what)) => Err(JournalError::damaged(path, 0, what)),
    }
}

/// Puts a manifest in place of the one that is there.
fn write_manifest(storage: &dyn Storage, header: &Header) -> Result<(), JournalError> {
    let failed = |operation| {
        let path = storage.path(MANIFEST_NEW);
        move |error: std::io::Error| JournalError::io(path, operation, &error)
    };
    let file = storage.create(MANIFEST_NEW).map_err(failed("creation"))?;
    file.write_at(0, &header.encode(Kind::Manifest)).map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))?;
    storage.rename(MANIFEST_NEW, MANIFEST).map_err(failed("rename"))?;
    storage.sync_folder().map_err(failed("sync of the folder"))
}

/// Removes what a manifest, which is durable, does not need. What stays is removed next time.
pub(super) fn remove_obsolete(storage: &dyn Storage, manifest: &Header) {
    let names = match storage.list() {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "old segments of the journal are not removed");
            return;
        }
    };
    for name in names {
        let is_obsolete = match Name::parse(&name) {
            Name::Segment(number) => number < manifest.number,
            Name::Snapshot(position) | Name::Flash(position) => position.0 < manifest.position,
            Name::Unfinished | Name::Other => false,
        };
        if is_obsolete {
            remove(storage, &name);
        }
    }
}

/// Removes a file that nobody needs.
pub(super) fn remove(storage: &dyn Storage, name: &str) {
    if let Err(error) = storage.remove(name) {
        tracing::warn!(%error, path = storage.path(name), "not removed");
    }
}
