//! A journal is looked at without a server: what a start would read of it, by the same reader; and what stands behind
//! damage, at which a start ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint::{is_there, read_flash_state, read_manifest};
use super::error::JournalError;
use super::folder::Folder;
use super::names;
use super::reader::{Read, SegmentReader};
use super::record::Part;
use super::recovery::Torn;
use super::storage::Storage;
use super::tuning::Tuning;
use super::{JournalMark, JournalOptions, JournalRecord, Position, Recovery, SyncPolicy, TornTail};

/// The folder of a journal, which nobody else opens meanwhile.
pub struct CheckedJournal {
    pub(super) path: PathBuf,
    pub(super) storage: Arc<dyn Storage>,
}

/// A segment that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFile {
    /// Its name in the folder.
    pub name: String,
    /// Where its first record begins.
    pub first: Position,
    /// Bytes of the file.
    pub bytes: u64,
}

/// An end that is not whole: a start leaves it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornEnd {
    /// The name of the file.
    pub name: String,
    /// Where the last whole record ends in it.
    pub offset: u64,
    /// Bytes behind that.
    pub bytes: u64,
    /// What is wrong with them.
    pub what: &'static str,
}

/// What stands behind damage.
#[derive(Debug)]
pub enum Beyond<'a> {
    /// A record that is whole.
    Record(&'a [u8]),
    /// More damage.
    Damage(JournalError),
}

impl CheckedJournal {
    /// Opens a folder. None: there is no journal.
    ///
    /// Errors: a server has it, or it cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>, JournalError> {
        if !is_there(path)? {
            return Ok(None);
        }
        let storage = Arc::new(Folder::open(path)?);
        Ok(Some(Self { path: path.to_owned(), storage }))
    }

    /// What a start would read. Damage of a segment is told by [`Recovery::read_checked`] when what stands in front of it
    /// has been read.
    ///
    /// Errors: the folder cannot be read, or what the journal begins with is damaged or missing.
    pub fn recovery(&self) -> Result<Recovery, JournalError> {
        let options = JournalOptions {
            folder: self.path.clone(),
            sync: SyncPolicy::Always,
            torn_tail: TornTail::Cut,
        };
        Recovery::look(self.storage.clone(), options, Tuning::new())
    }

    /// What the last checkpoint says of the flash. None: that refers to nothing there.
    ///
    /// Errors: it cannot be read, or the manifest cannot.
    pub fn flash_state(&self) -> Result<Option<Vec<u8>>, JournalError> {
        let names = self.names()?;
        match read_manifest(&*self.storage, &names)? {
            Some(manifest) => read_flash_state(&*self.storage, &names, manifest.position()),
            None => Ok(None),
        }
    }

    pub(super) fn names(&self) -> Result<Vec<String>, JournalError> {
        let failed = |error| JournalError::io(self.path.display(), "look at the folder", &error);
        self.storage.list().map_err(failed)
    }

    /// The name of what a checkpoint says of the flash.
    pub fn flash_state_name(position: Position) -> String {
        names::flash(position)
    }
}

impl Recovery {
    /// As [`Recovery::read`], up to the first damage.
    ///
    /// Errors: that, or a file cannot be read.
    pub fn read_checked(&mut self) -> Result<Option<JournalRecord<'_>>, JournalError> {
        match self.read_payload()? {
            Some(payload) => Ok(Some(self.record(payload))),
            None => self.damage.clone().map_or(Ok(None), Err),
        }
    }

    /// The segments in front of the first damage, in their order.
    pub fn files(&self) -> Vec<JournalFile> {
        let file = |segment: &super::recovery::Segment| JournalFile {
            name: segment.name.clone(),
            first: Position(segment.header.position),
            bytes: segment.size,
        };
        self.segments.iter().map(file).collect()
    }

    /// Which journal it is, and where its last checkpoint is.
    pub fn mark(&self) -> JournalMark {
        JournalMark { journal: self.manifest.journal, checkpoint: self.checkpoint() }
    }

    /// Which of these files the last record was read of.
    pub fn file_index(&self) -> usize {
        self.at
    }

    /// Files of the journal that count for nothing, and that a start removes.
    pub fn needless(&self) -> &[String] {
        &self.needless
    }

    /// The end that a start leaves out, when all was read.
    pub fn torn(&self) -> Option<TornEnd> {
        let Torn { offset, bytes, what } = self.torn?;
        let name = self.segments.get(self.at)?.name.clone();
        Some(TornEnd { name, offset, bytes, what })
    }

    /// Reads what stands behind the damage that was told, as far as it can be read.
    ///
    /// Errors: a file cannot be read.
    pub fn read_beyond(&mut self, found: &mut dyn FnMut(Beyond<'_>)) -> Result<(), JournalError> {
        let first = self.at;
        for index in first..self.segments.len() {
            let segment = &self.segments[index];
            let next = self.segments.get(index + 1).map(|next| next.header.position);
            let from = (index == first).then_some(self.end_offset);
            let (name, header) = (segment.name.clone(), segment.header);
            self.read_segment_beyond(&name, header, (from, next), found)?;
        }
        for name in self.beyond.clone() {
            let names::Name::Segment(number) = names::Name::parse(&name) else { continue };
            match self.look_at_segment(&name, number) {
                Ok(Some(segment)) => {
                    self.read_segment_beyond(&name, segment.header, (None, None), found)?;
                }
                Ok(None) => {}
                // The first was told.
                Err(error) if self.damage.as_ref() == Some(&error) => {}
                Err(error) => found(Beyond::Damage(error)),
            }
        }
        Ok(())
    }

    /// `from`: where in the file, if what stands there was told; `next`: the position at which another segment begins.
    fn read_segment_beyond(
        &self,
        name: &str,
        header: super::header::Header,
        (from, next): (Option<u64>, Option<u64>),
        found: &mut dyn FnMut(Beyond<'_>),
    ) -> Result<(), JournalError> {
        let failed = |error| self.failed(name, "read", &error);
        let mut reader = SegmentReader::new(self.open_file(name)?, header).map_err(failed)?;
        let mut is_told = from.is_some();
        if let Some(offset) = from {
            reader.go_to(header.position + offset - super::header::HEADER_BYTES as u64);
        }
        let mut parts: Vec<u8> = Vec::new();
        while next.is_none_or(|next| reader.position() < next) {
            match reader.next().map_err(failed)? {
                Read::Record { payload, part: Part::GoesOn } => {
                    parts.extend_from_slice(&reader.bytes()[payload]);
                }
                Read::Record { payload, part: Part::Last } if parts.is_empty() => {
                    found(Beyond::Record(&reader.bytes()[payload]));
                }
                Read::Record { payload, part: Part::Last } => {
                    parts.extend_from_slice(&reader.bytes()[payload]);
                    found(Beyond::Record(&parts));
                    parts.clear();
                }
                Read::Mark(_) => {}
                Read::End => break,
                Read::Bad(what) => {
                    parts.clear();
                    if !std::mem::replace(&mut is_told, false) {
                        let path = self.storage.path(name);
                        found(Beyond::Damage(JournalError::damaged(path, reader.offset(), what)));
                    }
                    if !reader.pass_over_bad().map_err(failed)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}
