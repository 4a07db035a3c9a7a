//! Checkpoints: a snapshot takes the place of all records in front of it.

use std::fs::DirEntry;
use std::io;
use std::ops::Range;
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

    /// Waits until the segment is there that begins with a checkpoint, so that a start finds which journal it is. No snapshot
    /// gets its name before: one without any segment is what is left of a journal.
    ///
    /// Errors: the journal fails, or the checkpoint was called off.
    pub fn await_checkpoint_segment(&self, position: Position) -> Result<(), JournalError> {
        self.shared.queue.wait_for_cut(position, &self.shared).map(drop)
    }

    /// The checkpoint has a snapshot, which is durable, its name as well: it takes the place of the records in front of
    /// it, which are removed, as is the snapshot before. Waits for the writer to come to the position.
    ///
    /// `kept`: the number of the first segment that the snapshot refers to ([`Journal::recent`]); it and those behind it
    /// stay.
    ///
    /// Errors: the checkpoint before is still the one that counts, or this one is if its manifest is there in spite of
    /// the error. So the files stay if it may be: the next checkpoint removes them, or the next start does.
    pub fn end_checkpoint(
        &self,
        position: Position,
        kept: Option<u64>,
    ) -> Result<(), JournalError> {
        let cut = self.shared.queue.wait_for_cut(position, &self.shared);
        let _alone = self.checkpoint.lock();
        let prepared = cut.and_then(|cut| self.prepare_manifest((cut, kept), position));
        if prepared.is_err() {
            remove(&*self.storage, &names::snapshot(position));
            remove(&*self.storage, &names::flash(position));
        }
        let (header, snapshot_bytes) = prepared?;
        let kept_bytes = self.bytes_of_segments(header.first_kept()..header.number);
        put_manifest(&*self.storage)?;
        let mut facts = self.shared.facts.lock();
        facts.checkpoint = position.0;
        (facts.snapshot_bytes, facts.kept_bytes) = (snapshot_bytes, kept_bytes);
        facts.segments.retain(|&number| number >= header.first_kept());
        drop(facts);
        remove_obsolete(&*self.storage, &header);
        Ok(())
    }

    /// Bytes of some segments, by their numbers: of those whose files can be looked at.
    fn bytes_of_segments(&self, numbers: Range<u64>) -> u64 {
        let sizes = numbers.filter_map(|number| {
            let file = self.storage.open(&names::segment(number)).ok()?;
            file.size().ok()
        });
        sizes.sum()
    }

    /// Writes the manifest of a checkpoint, which is not in place yet. Returns it, and the bytes of the snapshot.
    fn prepare_manifest(
        &self,
        (cut, kept): (Cut, Option<u64>),
        position: Position,
    ) -> Result<(Header, u64), JournalError> {
        let name = names::snapshot(position);
        let failed = |operation| {
            let path = self.storage.path(&name);
            move |error: io::Error| JournalError::io(path, operation, &error)
        };
        let file = self.storage.open(&name).map_err(failed("open of the snapshot"))?;
        let snapshot_bytes = file.size().map_err(failed("look at the snapshot"))?;
        let header = self.manifest(cut, kept);
        write_manifest(&*self.storage, &header)?;
        Ok((header, snapshot_bytes))
    }

    /// Keeps what a checkpoint says of the flash that its snapshot refers to; it is durable when this returns. Called before
    /// the checkpoint is ended. A start finds it by [`find_journal`].
    ///
    /// Errors: it could not be written, and is not there.
    pub fn put_flash_state(&self, position: Position, state: &[u8]) -> Result<(), JournalError> {
        let name = names::flash(position);
        let failed = |operation| {
            let path = self.storage.path(&name);
            move |error: io::Error| JournalError::io(path, operation, &error)
        };
        let file = self.storage.create(&name).map_err(failed("creation"))?;
        let written = (file.write_at(0, state).map_err(failed("write")))
            .and_then(|()| file.sync().map_err(failed("sync")))
            .and_then(|()| self.storage.sync_folder().map_err(failed("sync of the folder")));
        if written.is_err() {
            remove(&*self.storage, &name);
        }
        written
    }

    /// Which journal it is: [`JournalMark`].
    pub fn id(&self) -> u64 {
        self.identity.journal
    }

    /// The same, with where its last checkpoint is.
    pub fn mark(&self) -> JournalMark {
        let checkpoint = Position(self.shared.facts.lock().checkpoint);
        JournalMark { journal: self.id(), checkpoint }
    }

    fn manifest(&self, cut: Cut, kept: Option<u64>) -> Header {
        let run = kept.filter(|&first| first < cut.number).unwrap_or(0);
        Header { number: cut.number, position: cut.position, run, ..self.identity }
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

/// Which journal it is, and how far it has come: the labels of flash that it refers to say so, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMark {
    /// Drawn when it was made.
    pub journal: u64,
    /// Where its last checkpoint is; 0 before the first one.
    pub checkpoint: Position,
}

/// A journal before it is opened. As long as this is held nobody opens it, so that its last checkpoint stays that.
pub struct FoundJournal {
    /// Which it is.
    pub mark: JournalMark,
    /// What its last checkpoint says of the flash, as it was handed to [`Journal::put_flash_state`]; none: that refers to nothing
    /// there.
    pub flash_state: Option<Vec<u8>>,
    _folder: Folder,
}

/// Looks for a journal in a folder, and at what its last checkpoint says of the flash. None: there is none.
///
/// Errors: another process has the journal, it cannot be read, or its manifest is damaged or of another format.
pub fn find_journal(folder: &Path) -> Result<Option<FoundJournal>, JournalError> {
    if !is_there(folder)? {
        return Ok(None);
    }
    let folder = Folder::open(folder)?;
    let found = read_found(&folder)?;
    Ok(found.map(|(mark, flash_state)| FoundJournal { mark, flash_state, _folder: folder }))
}

/// Whether a folder has files of a journal. Errors: it cannot be read.
pub(super) fn is_there(folder: &Path) -> Result<bool, JournalError> {
    let failed = |error| JournalError::io(folder.display(), "look at the folder", &error);
    let is_of_journal = |entry: io::Result<DirEntry>| {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        Ok(name == MANIFEST || matches!(Name::parse(&name), Name::Segment(_) | Name::Snapshot(_)))
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let are_of_journal: io::Result<Vec<bool>> = entries.map(is_of_journal).collect();
    Ok(are_of_journal.map_err(failed)?.contains(&true))
}

/// Which journal it is, and what its last checkpoint says of the flash.
type Found = (JournalMark, Option<Vec<u8>>);

/// See [`find_journal`]. What it is read by is durable when this returns: whoever acts on it writes over what an earlier
/// checkpoint refers to.
pub(super) fn read_found(storage: &dyn Storage) -> Result<Option<Found>, JournalError> {
    let failed = |name: &str, operation| {
        let path = storage.path(name);
        move |error: io::Error| JournalError::io(path, operation, &error)
    };
    storage.sync_folder().map_err(failed("", "sync of the folder"))?;
    let names = storage.list().map_err(failed("", "look at the folder"))?;
    let Some(manifest) = read_manifest(storage, &names)? else {
        let journal = read_identity(storage, &names)?;
        let mark = |journal| JournalMark { journal, checkpoint: Position(0) };
        return Ok(journal.map(|journal| (mark(journal), None)));
    };
    let mark = JournalMark { journal: manifest.journal, checkpoint: manifest.position() };
    Ok(Some((mark, read_flash_state(storage, &names, manifest.position())?)))
}

/// What a checkpoint says of the flash. None: nothing. Errors: it cannot be read.
pub(super) fn read_flash_state(
    storage: &dyn Storage,
    names: &[String],
    position: Position,
) -> Result<Option<Vec<u8>>, JournalError> {
    let name = names::flash(position);
    if !names.contains(&name) {
        return Ok(None);
    }
    let failed = |operation| {
        let path = storage.path(&name);
        move |error: io::Error| JournalError::io(path, operation, &error)
    };
    let file = storage.open(&name).map_err(failed("open"))?;
    let size = file.size().map_err(failed("look"))?;
    if size > FLASH_STATE_BYTES_MAX {
        return Err(JournalError::damaged(storage.path(&name), 0, "it is longer than it can be"));
    }
    let mut bytes = vec![0; size as usize];
    let read = file.read_at(0, &mut bytes).map_err(failed("read"))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Which journal it is by its segments: it has no manifest. None: none of them has a header.
fn read_identity(storage: &dyn Storage, names: &[String]) -> Result<Option<u64>, JournalError> {
    for name in names.iter().filter(|name| matches!(Name::parse(name), Name::Segment(_))) {
        let read = storage.open(name).and_then(|file| read_exactly::<HEADER_BYTES>(&*file));
        let bytes = read.map_err(|error| JournalError::io(storage.path(name), "read", &error))?;
        if let Some(Ok(header)) = bytes.map(|bytes| Header::decode(&bytes, Kind::Segment)) {
            return Ok(Some(header.journal));
        }
    }
    Ok(None)
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

fn manifest_failed(
    storage: &dyn Storage,
    operation: &'static str,
) -> impl FnOnce(io::Error) -> JournalError {
    let path = storage.path(MANIFEST_NEW);
    move |error| JournalError::io(path, operation, &error)
}

/// Writes what becomes the manifest.
pub(super) fn write_manifest(storage: &dyn Storage, header: &Header) -> Result<(), JournalError> {
    let failed = |operation| manifest_failed(storage, operation);
    let file = storage.create(MANIFEST_NEW).map_err(failed("creation"))?;
    file.write_at(0, &header.encode(Kind::Manifest)).map_err(failed("write"))?;
    file.sync().map_err(failed("sync"))
}

/// Puts it in place of the one that is there.
pub(super) fn put_manifest(storage: &dyn Storage) -> Result<(), JournalError> {
    let failed = |operation| manifest_failed(storage, operation);
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
            Name::Segment(number) => number < manifest.first_kept(),
            Name::Snapshot(position) | Name::Flash(position) => position.0 < manifest.position,
            Name::Unfinished | Name::Other => false,
        };
        if is_obsolete {
            remove(storage, &name);
        }
    }
}

/// Removes a file that nobody needs, if it is there.
pub(super) fn remove(storage: &dyn Storage, name: &str) {
    if let Err(error) = storage.remove(name)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = storage.path(name), "not removed");
    }
}
