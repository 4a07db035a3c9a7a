//! A journal is made one that a start reads again, without a server. Nothing is written over: what takes the place of a
//! file leaves a copy of it in the folder, and files that are given up get another name there.
//!
//! Each step may be the last, as when the process is killed: the journal is then as damaged as before, or less, and the
//! repair can be run again.

use std::path::Path;

use super::checkpoint::{put_manifest, write_manifest};
use super::error::JournalError;
use super::header::{HEADER_BYTES, Header, Kind};
use super::names::{self, FLASH_NEW, MANIFEST, Name, SEGMENT_NEW};
use super::storage::{Storage, StoredFile, read_exactly};
use super::{CheckedJournal, Position, Recovery};
use crate::limits::JOURNAL_READ_BYTES;

/// The front of the names of files that are set aside, and of copies; a number stands behind it, one for each repair.
const ASIDE: &str = "damaged-";

/// Names for what is set aside: none that is taken.
struct Aside(u64);

impl Aside {
    fn new(names: &[String]) -> Aside {
        let number = |name: &String| name.strip_prefix(ASIDE)?.split('.').next()?.parse().ok();
        let last: Option<u64> = names.iter().filter_map(number).max();
        Aside(last.unwrap_or(0).saturating_add(1))
    }

    fn name(&self, name: &str) -> String {
        format!("{ASIDE}{}.{name}", self.0)
    }
}

fn failed<'a>(
    storage: &'a dyn Storage,
    name: &'a str,
    operation: &'static str,
) -> impl FnOnce(std::io::Error) -> JournalError + 'a {
    move |error| JournalError::io(storage.path(name), operation, &error)
}

/// Has a copy of a file that is about to be replaced. It is durable with the folder.
fn keep(storage: &dyn Storage, name: &str, kept: &str) -> Result<(), JournalError> {
    storage.keep(name, kept).map_err(failed(storage, name, "copy"))
}

fn sync_folder(storage: &dyn Storage) -> Result<(), JournalError> {
    storage.sync_folder().map_err(failed(storage, "", "sync of the folder"))
}

impl Recovery {
    /// Whether there is anything in front of the damage that could be kept.
    pub fn has_beginning(&self) -> bool {
        self.has_manifest || !self.segments.is_empty()
    }

    /// Gives up what stands behind the last whole record that was read: the segment ends there, and those behind it are set
    /// aside. Returns the names under which there is what it was.
    ///
    /// Errors: not all of it could be done, or made durable.
    pub fn cut(self) -> Result<Vec<String>, JournalError> {
        let storage = &*self.storage;
        let names = storage.list().map_err(failed(storage, "", "look at the folder"))?;
        let aside = Aside::new(&names);
        let mut kept = Vec::new();
        let behind = self.segments.iter().skip(self.at + 1).map(|segment| &segment.name);
        // The last first: so what is there always follows from what stands in front of it.
        let behind: Vec<&String> = behind.chain(&self.beyond).collect();
        for name in behind.into_iter().rev() {
            let new = aside.name(name);
            storage.rename(name, &new).map_err(failed(storage, name, "rename"))?;
            kept.push(new);
        }
        sync_folder(storage)?;
        if let Some(segment) = self.segments.get(self.at).filter(|one| one.size > self.end_offset) {
            let new = aside.name(&segment.name);
            keep(storage, &segment.name, &new)?;
            kept.push(new);
            shorten(storage, &segment.name, self.end_offset)?;
        }
        if self.has_manifest && self.segments.is_empty() {
            put_segment(storage, &self.manifest)?;
        }
        Ok(kept)
    }
}

/// Begins a segment without records where the checkpoint is.
fn put_segment(storage: &dyn Storage, manifest: &Header) -> Result<(), JournalError> {
    let file = storage.create(SEGMENT_NEW).map_err(failed(storage, SEGMENT_NEW, "creation"))?;
    let header = Header { run: 0, ..*manifest }.encode(Kind::Segment);
    file.write_at(0, &header).map_err(failed(storage, SEGMENT_NEW, "write"))?;
    file.sync().map_err(failed(storage, SEGMENT_NEW, "sync"))?;
    let name = names::segment(manifest.number);
    storage.rename(SEGMENT_NEW, &name).map_err(failed(storage, SEGMENT_NEW, "rename"))?;
    sync_folder(storage)
}

/// Puts the first bytes of a segment in its place.
fn shorten(storage: &dyn Storage, name: &str, bytes: u64) -> Result<(), JournalError> {
    let source = storage.open(name).map_err(failed(storage, name, "open"))?;
    let target = storage.create(SEGMENT_NEW).map_err(failed(storage, SEGMENT_NEW, "creation"))?;
    copy(&*source, &*target, bytes).map_err(failed(storage, SEGMENT_NEW, "write"))?;
    target.sync().map_err(failed(storage, SEGMENT_NEW, "sync"))?;
    // The copy has its name by then.
    sync_folder(storage)?;
    storage.rename(SEGMENT_NEW, name).map_err(failed(storage, SEGMENT_NEW, "rename"))?;
    sync_folder(storage)
}

fn copy(source: &dyn StoredFile, target: &dyn StoredFile, bytes: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; JOURNAL_READ_BYTES];
    let mut done = 0;
    while done < bytes {
        let wanted = (bytes - done).min(JOURNAL_READ_BYTES as u64) as usize;
        let read = source.read_at(done, &mut buffer[..wanted])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        target.write_at(done, &buffer[..read])?;
        done += read as u64;
    }
    Ok(())
}

impl CheckedJournal {
    /// Makes a manifest that is damaged or missing anew, of a snapshot at whose position a segment begins. `is_whole`: whether
    /// a snapshot is. Returns the position; none: there is no such snapshot.
    ///
    /// Errors: it could not be written.
    pub fn make_manifest(
        &self,
        is_whole: &mut dyn FnMut(&Path) -> bool,
    ) -> Result<Option<Position>, JournalError> {
        let storage = &*self.storage;
        let names = self.names()?;
        let position = |name: &String| match Name::parse(name) {
            Name::Snapshot(position) => Some(position),
            _ => None,
        };
        let mut positions: Vec<Position> = names.iter().filter_map(position).collect();
        // Each has all that is in front of it; with the last the fewest records are to be run.
        positions.sort_unstable();
        for position in positions.into_iter().rev() {
            let Some(segment) = self.segment_at(&names, position)? else { continue };
            if !is_whole(&self.path.join(names::snapshot(position))) {
                continue;
            }
            if names.iter().any(|name| name == MANIFEST) {
                keep(storage, MANIFEST, &Aside::new(&names).name(MANIFEST))?;
                sync_folder(storage)?;
            }
            let run = self.first_before(&names, &segment)?;
            write_manifest(storage, &Header { run, ..segment })?;
            put_manifest(storage)?;
            return Ok(Some(position));
        }
        Ok(None)
    }

    /// The first segment of the last life that begins at a position.
    fn segment_at(
        &self,
        names: &[String],
        position: Position,
    ) -> Result<Option<Header>, JournalError> {
        let headers = self.headers(names)?;
        let there = headers.into_iter().filter(|header| header.position() == position);
        Ok(there.max_by_key(|header| (header.life, u64::MAX - header.number)))
    }

    /// The number of the first segment of the same life, in front of one that is to be the first behind a checkpoint: the
    /// snapshot may refer to it. 0: there is none.
    fn first_before(&self, names: &[String], first: &Header) -> Result<u64, JournalError> {
        let headers = self.headers(names)?;
        let is_before =
            |header: &&Header| header.life == first.life && header.number < first.number;
        Ok(headers.iter().filter(is_before).map(|header| header.number).min().unwrap_or(0))
    }

    /// Those of all segments that are whole.
    fn headers(&self, names: &[String]) -> Result<Vec<Header>, JournalError> {
        let storage = &*self.storage;
        let mut headers = Vec::new();
        for name in names {
            let Name::Segment(number) = Name::parse(name) else { continue };
            let read = storage.open(name).and_then(|file| read_exactly::<HEADER_BYTES>(&*file));
            let bytes = read.map_err(failed(storage, name, "read"))?;
            let header = bytes.and_then(|bytes| Header::decode(&bytes, Kind::Segment).ok());
            headers.extend(header.filter(|header| header.number == number));
        }
        Ok(headers)
    }

    /// Puts a snapshot that was written to a file of the folder, and what it says of the flash, in place of those of the last
    /// checkpoint; none: it refers to nothing there. The file is durable. Returns the names under which there is what it was.
    ///
    /// Errors: not all of it could be done, or made durable.
    pub fn replace_snapshot(
        &self,
        position: Position,
        new: &str,
        flash_state: Option<&[u8]>,
    ) -> Result<Vec<String>, JournalError> {
        let storage = &*self.storage;
        let names = self.names()?;
        let aside = Aside::new(&names);
        let (snapshot, state) = (names::snapshot(position), names::flash(position));
        let mut kept = Vec::new();
        for name in [&snapshot, &state].into_iter().filter(|name| names.contains(name)) {
            keep(storage, name, &aside.name(name))?;
            kept.push(aside.name(name));
        }
        if let Some(bytes) = flash_state {
            let file = storage.create(FLASH_NEW).map_err(failed(storage, FLASH_NEW, "creation"))?;
            file.write_at(0, bytes).map_err(failed(storage, FLASH_NEW, "write"))?;
            file.sync().map_err(failed(storage, FLASH_NEW, "sync"))?;
        }
        sync_folder(storage)?;
        storage.rename(new, &snapshot).map_err(failed(storage, new, "rename"))?;
        match flash_state {
            Some(_) => {
                storage.rename(FLASH_NEW, &state).map_err(failed(storage, FLASH_NEW, "rename"))?
            }
            None if names.contains(&state) => {
                storage.remove(&state).map_err(failed(storage, &state, "removal"))?;
            }
            None => {}
        }
        sync_folder(storage)?;
        Ok(kept)
    }
}
