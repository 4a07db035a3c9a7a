//! Records in front of a checkpoint, in the segments that stay with it: a checkpoint that says of a value which record
//! has it need not have it once more.
//!
//! A manifest names the first of these segments ([`Header::first_kept`]). Who takes a checkpoint reads them while the
//! journal goes on ([`Journal::recent`]); a start reads them before the records behind the checkpoint
//! ([`Recovery::kept_records`]).

use std::ops::Range;
use std::sync::Arc;

use super::error::JournalError;
use super::header::{HEADER_BYTES, Header, Kind};
use super::names;
use super::reader::{Read, SegmentReader};
use super::record::Part;
use super::recovery::Segment;
use super::storage::{Storage, read_exactly};
use super::{Journal, Position, Recovery};
use crate::limits::{RECENT_RECORD_BYTES_MAX, RECENT_SEGMENTS_MAX};

/// The records of some segments that follow each other, up to a position.
pub struct RecentRecords {
    storage: Arc<dyn Storage>,
    segments: Vec<Segment>,
    /// The segment that is read, by its place in `segments`.
    at: usize,
    reader: Option<SegmentReader>,
    /// Parts of a record that is not whole yet.
    parts: Vec<u8>,
    /// Records with longer parts are passed over.
    record_bytes_max: usize,
    is_too_long: bool,
    /// Where the next record begins, whose parts may have been read.
    position: u64,
    /// Where the last record ends that was read.
    read_to: u64,
    /// Where they end. None: others are appended meanwhile.
    end: Option<u64>,
    /// How far the journal has come: what the last file has behind it a start gave up.
    appended: u64,
    /// What comes is bad, as was told.
    is_bad: bool,
    /// The file ends too early, as was told.
    is_past: bool,
}

/// What comes next.
#[derive(Debug)]
pub enum Recent<'a> {
    /// A record.
    Record {
        /// Where it begins.
        begin: Position,
        /// What was appended.
        payload: &'a [u8],
    },
    /// Something that cannot be read. More may come behind it, first the rest of a record that does not begin there.
    Damage(JournalError),
    /// No more: none that is there by now.
    End,
}

impl Journal {
    /// The records of the last segments, 64 of them at most, which have `bytes_max` bytes at most unless there is only one.
    ///
    /// Records with parts of more than 4 MiB are passed over.
    ///
    /// Errors: they cannot be read.
    pub fn recent(&self, bytes_max: u64) -> Result<RecentRecords, JournalError> {
        let appended = self.appended().0;
        let first = {
            let facts = self.shared.facts.lock();
            let passed_over = facts.segments.len().saturating_sub(RECENT_SEGMENTS_MAX);
            facts.segments.iter().nth(passed_over).copied().unwrap_or(0)
        };
        let mut segments = self.segments_from(first)?;
        let (mut bytes, mut count) = (0, 0);
        for segment in segments.iter().rev() {
            bytes += segment.size;
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        let segments = segments.split_off(segments.len() - count);
        let records =
            RecentRecords::new(self.storage.clone(), segments, (None, RECENT_RECORD_BYTES_MAX));
        Ok(RecentRecords { appended, ..records })
    }

    /// Segments by their numbers.
    fn segments_from(&self, first: u64) -> Result<Vec<Segment>, JournalError> {
        let numbers: Vec<u64> = self.shared.facts.lock().segments.range(first..).copied().collect();
        let segment = |number| {
            let name = names::segment(number);
            let failed = |error| JournalError::io(self.storage.path(&name), "read", &error);
            let file = self.storage.open(&name).map_err(failed)?;
            let size = file.size().map_err(failed)?;
            let bytes = read_exactly::<HEADER_BYTES>(&*file).map_err(failed)?;
            let header = bytes.and_then(|bytes| Header::decode(&bytes, Kind::Segment).ok());
            let damaged = || JournalError::damaged(self.storage.path(&name), 0, "no header");
            let header = header.ok_or_else(damaged)?;
            // One of an earlier life counts for nothing behind a checkpoint of this one.
            Ok((header.life == self.identity.life).then_some(Segment { name, header, size }))
        };
        numbers.into_iter().filter_map(|number| segment(number).transpose()).collect()
    }
}

impl Recovery {
    /// The records that stay with the last checkpoint, in front of it.
    pub fn kept_records(&self) -> RecentRecords {
        let end = Some(self.checkpoint().0);
        RecentRecords::new(self.storage.clone(), self.kept.clone(), (end, usize::MAX))
    }
}

impl RecentRecords {
    fn new(
        storage: Arc<dyn Storage>,
        segments: Vec<Segment>,
        (end, record_bytes_max): (Option<u64>, usize),
    ) -> RecentRecords {
        let position = segments.first().map_or(0, |segment| segment.header.position);
        let (at, reader, parts) = (0, None, Vec::new());
        let (is_bad, is_past) = (false, false);
        RecentRecords {
            storage,
            segments,
            at,
            reader,
            parts,
            record_bytes_max,
            is_too_long: false,
            position,
            read_to: position,
            end,
            appended: u64::MAX,
            is_bad,
            is_past,
        }
    }

    /// The number of the first segment. None: there is none.
    pub fn first(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.header.number)
    }

    /// Where the segments begin.
    pub fn starts(&self) -> Vec<Position> {
        self.segments.iter().map(|segment| segment.header.position()).collect()
    }

    /// Where the next record begins, unless the segment ends there.
    pub fn position(&self) -> Position {
        Position(self.position)
    }

    /// Forgets the segments in front of one, by its place among them.
    pub fn forget_before(&mut self, index: usize) {
        self.segments.drain(..index);
        self.go_to(self.position());
    }

    /// Where the last record ends that was read. A mark behind it may be given up: a start writes others in its place.
    pub fn read_to(&self) -> Position {
        Position(self.read_to)
    }

    /// Goes on to what the journal has got meanwhile, behind the last record that was read.
    ///
    /// Errors: that cannot be read.
    pub fn go_on(&mut self, journal: &Journal) -> Result<(), JournalError> {
        let Some(first) = self.first() else { return Ok(()) };
        self.appended = journal.appended().0;
        self.segments = journal.segments_from(first)?;
        self.go_to(Position(self.read_to));
        Ok(())
    }

    /// Goes to where a record begins.
    pub fn go_to(&mut self, position: Position) {
        let is_before = |segment: &Segment| segment.header.position <= position.0;
        self.at = self.segments.iter().rposition(is_before).unwrap_or(0);
        (self.position, self.read_to) = (position.0, position.0);
        (self.reader, self.is_bad, self.is_past) = (None, false, false);
    }

    /// What comes next.
    ///
    /// Errors: a file cannot be read.
    pub fn read(&mut self) -> Result<Recent<'_>, JournalError> {
        self.parts.clear();
        self.is_too_long = false;
        loop {
            let Some(segment) = self.segments.get(self.at) else { return Ok(Recent::End) };
            let failed = |error| JournalError::io(self.storage.path(&segment.name), "read", &error);
            let bound = self.segments.get(self.at + 1).map(|next| next.header.position);
            let bound = bound.into_iter().chain(self.end).min();
            if self.reader.is_none() {
                let file = self.storage.open(&segment.name).map_err(failed)?;
                self.position = self.position.max(segment.header.position);
                let mut reader = SegmentReader::new(file, segment.header).map_err(failed)?;
                reader.go_to(self.position);
                self.reader = Some(reader);
            }
            let reader = self.reader.as_mut().expect("invariant: it was opened");
            if std::mem::take(&mut self.is_bad) {
                // To the end of the file where nothing comes.
                reader.pass_over_bad().map_err(failed)?;
                self.position = reader.position();
            }
            // What stands behind its bound was given up, or is not there.
            if self.is_past || bound.is_some_and(|bound| reader.position() >= bound) {
                self.go_to_next_segment();
                continue;
            }
            if bound.is_none() && reader.position() >= self.appended {
                return Ok(Recent::End);
            }
            if let Some(part) = reader.pass_over_longer(self.record_bytes_max).map_err(failed)? {
                self.is_too_long = part == Part::GoesOn;
                if part == Part::Last {
                    self.position = reader.position();
                }
                self.parts.clear();
                continue;
            }
            let what = match reader.next().map_err(failed)? {
                Read::Record { payload, part: Part::GoesOn } => {
                    if !self.is_too_long {
                        self.parts.extend_from_slice(&reader.bytes()[payload]);
                    }
                    continue;
                }
                Read::Record { part: Part::Last, .. } if self.is_too_long => {
                    (self.is_too_long, self.position) = (false, reader.position());
                    continue;
                }
                Read::Record { payload, part: Part::Last } => {
                    let begin = Position(std::mem::replace(&mut self.position, reader.position()));
                    self.read_to = self.position;
                    return Ok(Recent::Record { begin, payload: self.payload(payload) });
                }
                Read::Mark(_) => {
                    self.position = reader.position();
                    continue;
                }
                // It is being written.
                Read::End | Read::Bad(_) if bound.is_none() => return Ok(Recent::End),
                Read::End => {
                    self.is_past = true;
                    "records behind it are missing"
                }
                Read::Bad(what) => {
                    self.is_bad = true;
                    what
                }
            };
            let path = self.storage.path(&segment.name);
            return Ok(Recent::Damage(JournalError::damaged(path, reader.offset(), what)));
        }
    }

    /// Bytes of the file that are in memory.
    #[cfg(test)]
    pub(super) fn window_bytes(&self) -> usize {
        self.reader.as_ref().map_or(0, |reader| reader.bytes().len())
    }

    fn go_to_next_segment(&mut self) {
        self.at += 1;
        (self.reader, self.is_past, self.is_too_long) = (None, false, false);
        self.parts.clear();
        // Not what a record claims that is bad.
        self.position =
            self.segments.get(self.at).map_or(self.position, |next| next.header.position);
    }

    /// All of a payload whose last part the reader has.
    fn payload(&mut self, last: Range<usize>) -> &[u8] {
        let reader = self.reader.as_ref().expect("invariant: a record was read");
        let last = &reader.bytes()[last];
        if self.parts.is_empty() {
            return last;
        }
        self.parts.extend_from_slice(last);
        &self.parts
    }
}
