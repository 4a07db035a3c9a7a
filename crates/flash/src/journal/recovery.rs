//! A journal is opened: what is there is read, checked and handed over record by record, and then goes on.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::buffer::Buffer;
use super::checkpoint::{read_manifest, remove};
use super::error::JournalError;
use super::folder::Folder;
use super::header::{HEADER_BYTES, Header, Kind, NoHeader};
use super::host::Host;
use super::names::{self, MANIFEST, Name};
use super::queue::Queue;
use super::reader::{Read, SegmentReader};
use super::record::Part;
use super::shared::Shared;
use super::status::Facts;
use super::storage::{Storage, StoredFile, read_exactly};
use super::tuning::Tuning;
use super::writer::Writer;
use super::{Journal, JournalOptions, Position, TornTail};

/// A journal that is being opened.
pub struct Recovery {
    pub(super) storage: Arc<dyn Storage>,
    options: JournalOptions,
    pub(super) tuning: Tuning,
    pub(super) host: Host,
    /// The last checkpoint. Number and position are 0 where there was none.
    pub(super) manifest: Header,
    pub(super) has_manifest: bool,
    snapshot_bytes: u64,
    pub(super) segments: Vec<Segment>,
    /// Those in front of the checkpoint that stay with it. What is damaged or missing of them is told by who reads them.
    pub(super) kept: Vec<Segment>,
    /// Files that count for nothing.
    pub(super) needless: Vec<String>,
    /// What is wrong with the first segment that cannot be read, and the names from that one on: what comes before is
    /// read all the same by whoever checks.
    pub(super) damage: Option<JournalError>,
    pub(super) beyond: Vec<String>,
    /// The highest number that a segment ever had.
    number_last: u64,
    /// The segment that is read, by its place in `segments`.
    pub(super) at: usize,
    pub(super) reader: Option<SegmentReader>,
    /// Parts of a record that is not whole yet.
    parts: Vec<u8>,
    /// Where the last whole record or mark ends: the position, and the place in the file.
    end: u64,
    pub(super) end_offset: u64,
    /// Where the last record ends.
    records_end: u64,
    /// Up to where the last mark says that it was durable.
    durable: u64,
    /// All was read.
    is_read: bool,
    pub(super) torn: Option<Torn>,
}

/// A segment whose header is right.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) header: Header,
    pub(super) size: u64,
}

/// The end that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) what: &'static str,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRecord<'a> {
    /// Where it ends.
    pub position: Position,
    /// What was appended.
    pub payload: &'a [u8],
}

impl Recovery {
    /// Opens the folder, for this process alone, and looks at the headers of all files in it.
    ///
    /// Errors: another process has it, it cannot be read, or files are missing, damaged or of another format.
    pub fn open(options: JournalOptions) -> Result<Self, JournalError> {
        let folder = Arc::new(Folder::open(&options.folder)?);
        Self::open_on(folder, options, Tuning::new())
    }

    pub(super) fn open_on(
        storage: Arc<dyn Storage>,
        options: JournalOptions,
        tuning: Tuning,
    ) -> Result<Self, JournalError> {
        let mut recovery = Self::look(storage, options, tuning)?;
        recovery.damage.take().map_or(Ok(recovery), Err)
    }

    /// Looks at the headers of all files, up to the first segment that is damaged.
    ///
    /// Errors: the folder cannot be read, or what the journal begins with is damaged or missing.
    pub(super) fn look(
        storage: Arc<dyn Storage>,
        options: JournalOptions,
        tuning: Tuning,
    ) -> Result<Self, JournalError> {
        let names = storage.list().map_err(|error| {
            JournalError::io(options.folder.display(), "look at the folder", &error)
        })?;
        let manifest = read_manifest(&*storage, &names)?;
        let mut recovery = Self {
            storage,
            options,
            tuning,
            host: Host::default(),
            manifest: manifest.unwrap_or_default(),
            has_manifest: manifest.is_some(),
            snapshot_bytes: 0,
            segments: Vec::new(),
            kept: Vec::new(),
            needless: Vec::new(),
            damage: None,
            beyond: Vec::new(),
            number_last: 0,
            at: 0,
            reader: None,
            parts: Vec::new(),
            end: 0,
            end_offset: 0,
            records_end: 0,
            durable: 0,
            is_read: false,
            torn: None,
        };
        recovery.sort_out(names)?;
        recovery.check_chain();
        recovery.end = recovery.manifest.position;
        recovery.records_end = recovery.end;
        recovery.durable = recovery.end;
        Ok(recovery)
    }

    /// The file with what the records in front of the first one that is read make; none where they begin with nothing.
    pub fn snapshot(&self) -> Option<PathBuf> {
        let name = names::snapshot(self.checkpoint());
        self.has_manifest.then(|| self.options.folder.join(name))
    }

    /// The position of that snapshot.
    pub fn checkpoint(&self) -> Position {
        Position(self.manifest.position)
    }

    /// Bytes of all records that are read, about.
    pub fn bytes(&self) -> u64 {
        let bytes = |segment: &Segment| segment.size - HEADER_BYTES as u64;
        self.segments.iter().map(bytes).sum()
    }

    /// The next record; none behind the last.
    ///
    /// Errors: the file cannot be read, or is damaged.
    pub fn read(&mut self) -> Result<Option<JournalRecord<'_>>, JournalError> {
        let Some(payload) = self.read_payload()? else { return Ok(None) };
        Ok(Some(self.record(payload)))
    }

    pub(super) fn record(&self, payload: Range<usize>) -> JournalRecord<'_> {
        let reader = self.reader.as_ref().expect("invariant: a record was read");
        let payload =
            if self.parts.is_empty() { &reader.bytes()[payload] } else { &self.parts[..] };
        JournalRecord { position: Position(self.records_end), payload }
    }

    /// Goes on behind what was read, to the end of it. What is torn there is left out, and the log tells of it.
    ///
    /// Errors: the folder cannot be synced, what was read cannot be read again, or there is no thread.
    /// Panics: not all was read.
    pub fn start(self) -> Result<Journal, JournalError> {
        let now = self.host.now();
        let (journal, writer) = self.finish(now)?;
        journal.start(writer)?;
        Ok(journal)
    }

    /// Begins anew without the records that are there, which count until a checkpoint is taken: what is appended until
    /// then is lost if that never comes. For a server whose data are not those of the journal.
    ///
    /// Errors: there is no thread.
    pub fn start_anew(self) -> Result<Journal, JournalError> {
        let now = self.host.now();
        let (journal, writer) = self.finish_anew(now);
        journal.start(writer)?;
        Ok(journal)
    }
}

/// What is there.
impl Recovery {
    /// Tells segments that count from other files.
    fn sort_out(&mut self, names: Vec<String>) -> Result<(), JournalError> {
        let mut numbers = Vec::new();
        let snapshot = names::snapshot(self.checkpoint());
        let mut is_snapshot_there = false;
        // No snapshot gets its name before a segment is durable, so one alone means that the rest is missing.
        let snapshot_alone =
            names.iter().rfind(|name| matches!(Name::parse(name), Name::Snapshot(_))).cloned();
        for name in names {
            match Name::parse(&name) {
                Name::Segment(number) => numbers.push(number),
                Name::Snapshot(_) if self.has_manifest && name == snapshot => {
                    is_snapshot_there = true;
                }
                Name::Flash(position) if self.has_manifest && position == self.checkpoint() => {}
                Name::Snapshot(_) | Name::Flash(_) | Name::Unfinished => self.needless.push(name),
                Name::Other => {}
            }
        }
        if is_snapshot_there {
            let size = self.open_file(&snapshot)?.size();
            self.snapshot_bytes = size.map_err(|error| self.failed(&snapshot, "look", &error))?;
        } else if self.has_manifest {
            let what = format!("it names {snapshot}, which is missing");
            return Err(JournalError::damaged(self.storage.path(MANIFEST), 0, what));
        }
        if let Some(orphan) = snapshot_alone.filter(|_| !self.has_manifest && numbers.is_empty()) {
            let what = "the manifest and all segments of its journal are missing";
            return Err(JournalError::damaged(self.storage.path(&orphan), 0, what));
        }
        numbers.sort_unstable();
        self.number_last = numbers.last().copied().unwrap_or(0).max(self.manifest.number);
        for number in numbers {
            let name = names::segment(number);
            if (self.manifest.first_kept()..self.manifest.number).contains(&number) {
                self.keep(name, number)?;
                continue;
            }
            if self.damage.is_some() {
                self.beyond.push(name);
                continue;
            }
            match self.look_at_segment(&name, number) {
                Ok(Some(segment)) => self.segments.push(segment),
                Ok(None) => self.needless.push(name),
                Err(error @ JournalError::Io { .. }) => return Err(error),
                Err(error) => {
                    self.damage = Some(error);
                    self.beyond.push(name);
                }
            }
        }
        Ok(())
    }

    /// Keeps a segment in front of the checkpoint, unless it is damaged. Errors: it cannot be read.
    fn keep(&mut self, name: String, number: u64) -> Result<(), JournalError> {
        match self.look_at_segment(&name, number) {
            Ok(Some(segment)) => self.kept.push(segment),
            Ok(None) => self.needless.push(name),
            Err(error @ JournalError::Io { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a segment in front of the checkpoint cannot be read")
            }
        }
        Ok(())
    }

    /// None: it counts for nothing.
    pub(super) fn look_at_segment(
        &mut self,
        name: &str,
        number: u64,
    ) -> Result<Option<Segment>, JournalError> {
        if number < self.manifest.first_kept() {
            return Ok(None);
        }
        let file = self.open_file(name)?;
        let size = file.size().map_err(|error| self.failed(name, "look", &error))?;
        let bytes = read_exactly(&*file).map_err(|error| self.failed(name, "read", &error))?;
        let path = self.storage.path(name);
        let decoded = bytes.map_or(Err(NoHeader::Bad("header cut off")), |bytes| {
            Header::decode(&bytes, Kind::Segment)
        });
        let header = match decoded {
            Ok(header) => header,
            Err(NoHeader::Version(version)) => return Err(JournalError::Version { path, version }),
            Err(NoHeader::Bad(what)) => return Err(JournalError::damaged(path, 0, what)),
        };
        if !self.has_manifest && self.segments.is_empty() && header.life == 0 {
            self.manifest.journal = header.journal;
        }
        if header.life > self.manifest.life {
            // No checkpoint came.
            return Ok(None);
        }
        let what = if header.number != number {
            Some(format!("it is segment {} by its header", header.number))
        } else if header.journal != self.manifest.journal || header.life != self.manifest.life {
            Some("it is of another journal".to_owned())
        } else {
            None
        };
        match what {
            Some(what) => Err(JournalError::damaged(path, 0, what)),
            None => Ok(Some(Segment { name: name.to_owned(), header, size })),
        }
    }

    /// Looks whether segments are missing.
    fn check_chain(&mut self) {
        if self.has_manifest && self.segments.is_empty() && self.damage.is_none() {
            let first = self.storage.path(&names::segment(self.manifest.number));
            let what = "it is missing, and so are all behind it";
            self.damage = Some(JournalError::damaged(first, 0, what));
        }
        let mut from = self.manifest.position;
        for (index, segment) in self.segments.iter().enumerate() {
            let position = segment.header.position;
            // Where each ends is known when it is read.
            if position < from || (index == 0 && position > from) {
                let what = format!("it begins at position {position} where {from} is expected");
                let damage = JournalError::damaged(self.storage.path(&segment.name), 0, what);
                let names = self.segments.drain(index..).map(|segment| segment.name);
                self.beyond.splice(0..0, names);
                self.damage = Some(damage);
                return;
            }
            from = position;
        }
    }

    pub(super) fn open_file(&self, name: &str) -> Result<Box<dyn StoredFile>, JournalError> {
        self.storage.open(name).map_err(|error| self.failed(name, "open", &error))
    }

    pub(super) fn failed(
        &self,
        name: &str,
        operation: &'static str,
        error: &io::Error,
    ) -> JournalError {
        JournalError::io(self.storage.path(name), operation, error)
    }
}

/// What is read.
impl Recovery {
    /// The next payload: in what the reader has, or in `parts` if that is not empty.
    pub(super) fn read_payload(&mut self) -> Result<Option<Range<usize>>, JournalError> {
        self.parts.clear();
        while !self.is_read {
            let Some(segment) = self.segments.get(self.at) else {
                self.is_read = true;
                break;
            };
            let next = self.segments.get(self.at + 1).map(|segment| segment.header.position);
            if self.reader.is_none() {
                let (name, header) = (&segment.name, segment.header);
                let reader = SegmentReader::new(self.open_file(name)?, header);
                self.reader = Some(reader.map_err(|error| self.failed(name, "read", &error))?);
                self.end_offset = HEADER_BYTES as u64;
                // It would not have been begun otherwise.
                self.durable = header.position;
            }
            let reader = self.reader.as_mut().expect("invariant: it was opened");
            if next == Some(reader.position()) && self.parts.is_empty() {
                // What is behind that was given up.
                self.reader = None;
                self.at += 1;
                continue;
            }
            let read = match reader.next() {
                Ok(read) => read,
                Err(error) => {
                    return Err(self.failed(&self.segments[self.at].name, "read", &error));
                }
            };
            let position = reader.position();
            if let Some(next) = next.filter(|&next| position > next) {
                return Err(self.damaged(format!(
                    "a record reaches over position {next}, where the next segment begins"
                )));
            }
            match read {
                Read::Record { payload, part: Part::GoesOn } => {
                    self.parts.extend_from_slice(&reader.bytes()[payload]);
                }
                Read::Record { payload, part: Part::Last } => {
                    if !self.parts.is_empty() {
                        self.parts.extend_from_slice(&reader.bytes()[payload.clone()]);
                    }
                    (self.end, self.end_offset) = (position, reader.offset());
                    self.records_end = position;
                    return Ok(Some(payload));
                }
                Read::Mark(durable) => {
                    (self.end, self.end_offset) = (position, reader.offset());
                    self.durable = durable.max(self.durable);
                }
                Read::End if self.parts.is_empty() => self.end_of_file(next)?,
                Read::End => self.bad("record cut off", next)?,
                Read::Bad(what) => self.bad(what, next)?,
            }
        }
        Ok(None)
    }

    fn damaged(&self, what: impl Into<String>) -> JournalError {
        let path = self.storage.path(&self.segments[self.at].name);
        JournalError::damaged(path, self.end_offset, what)
    }

    /// The file ends. Errors: the next segment begins behind that.
    fn end_of_file(&mut self, next: Option<u64>) -> Result<(), JournalError> {
        if let Some(next) = next {
            return Err(self.damaged(format!("records up to position {next} are missing")));
        }
        self.is_read = true;
        Ok(())
    }

    /// What comes is no record. Errors: it was one, which was durable; or a torn end is refused.
    fn bad(&mut self, what: &'static str, next: Option<u64>) -> Result<(), JournalError> {
        if next.is_some() {
            return Err(self.damaged(what));
        }
        let reader = self.reader.as_mut().expect("invariant: something was read");
        let (offset, bytes) = (self.end_offset, reader.size() - self.end_offset);
        let found = reader.find_durable_beyond(offset);
        let name = &self.segments[self.at].name;
        if let Some(mark) = found.map_err(|error| self.failed(name, "read", &error))? {
            let what = format!("{what}, of a record that was durable by the mark at byte {mark}");
            return Err(self.damaged(what));
        }
        if self.options.torn_tail == TornTail::Refuse {
            return Err(JournalError::Torn { path: self.storage.path(name), offset, what });
        }
        self.torn = Some(Torn { offset, bytes, what });
        self.parts.clear();
        self.is_read = true;
        Ok(())
    }
}

/// What goes on.
impl Recovery {
    /// The journal, whose writer nobody runs yet.
    pub(super) fn finish(self, now: Instant) -> Result<(Journal, Writer), JournalError> {
        assert!(self.is_read, "a journal goes on behind its last record");
        if let (Some(last), Some(Torn { offset, bytes, what })) = (self.segments.last(), self.torn)
        {
            let path = self.storage.path(&last.name);
            tracing::warn!(path, offset, bytes, what, "the end of the journal is left out");
        }
        let failed = |error| self.failed("", "sync of the folder", &error);
        // Before anything is removed that an earlier manifest needs.
        self.storage.sync_folder().map_err(failed)?;
        let identity = self.identity(self.manifest.life);
        let mut buffer = Buffer::new(identity.run, self.durable, &self.tuning);
        if self.records_end > self.durable {
            self.append_again(&mut buffer)?;
        }
        Ok(self.go_on(identity, buffer, now))
    }

    /// The same of one that begins anew.
    pub(super) fn finish_anew(self, now: Instant) -> (Journal, Writer) {
        let identity = self.identity(self.manifest.life + 1);
        // Behind all that may have been written.
        let behind = |last: &Segment| last.header.position + last.size;
        let end = self.segments.last().map_or(self.manifest.position, behind);
        let buffer = Buffer::new(identity.run, end, &self.tuning);
        self.go_on(identity, buffer, now)
    }

    /// What the headers of the segments to come say, but for number and position.
    fn identity(&self, life: u32) -> Header {
        let mut random = stdx::Random::new(self.tuning.seed);
        let (journal, run) = (random.next_u64(), random.next_u64());
        let is_new = !self.has_manifest && self.segments.is_empty();
        let journal = if is_new { journal } else { self.manifest.journal };
        Header { journal, run, number: 0, position: 0, life }
    }

    /// Appends what was read and may not be durable: it was written but not synced, or its sync failed and the page
    /// cache alone has it.
    fn append_again(&self, buffer: &mut Buffer) -> Result<(), JournalError> {
        let last = self.segments.last().expect("invariant: records were read");
        let failed = |error| self.failed(&last.name, "read", &error);
        let file = self.open_file(&last.name)?;
        let mut reader = SegmentReader::new(file, last.header).map_err(failed)?;
        reader.go_to(self.durable);
        while reader.position() < self.records_end {
            match reader.next().map_err(failed)? {
                Read::Record { payload, part } => buffer.append_any(&reader.bytes()[payload], part),
                Read::Mark(durable) => buffer.append_mark(durable),
                Read::End | Read::Bad(_) => {
                    return Err(self.damaged("it changed while it was read"));
                }
            }
        }
        Ok(())
    }

    fn go_on(self, identity: Header, buffer: Buffer, now: Instant) -> (Journal, Writer) {
        for name in &self.needless {
            tracing::info!(name, "a needless file of the journal is removed");
            remove(&*self.storage, name);
        }
        let segments = self.kept.iter().chain(&self.segments);
        let facts = Facts {
            error: None,
            segments: segments.map(|segment| segment.header.number).collect(),
            checkpoint: self.manifest.position,
            snapshot_bytes: self.snapshot_bytes,
            kept_bytes: self.kept.iter().map(|segment| segment.size).sum(),
        };
        let last_checkpoint = self.has_manifest.then_some(self.manifest.position);
        let queue = Queue::new(buffer, last_checkpoint);
        let shared = Arc::new(Shared::new(queue, self.options.sync, self.tuning, facts, now));
        let writer =
            Writer::new(shared.clone(), self.storage.clone(), identity, self.number_last + 1, now);
        let folder = self.options.folder;
        (Journal::new(shared, self.storage, folder, identity, self.host), writer)
    }
}
