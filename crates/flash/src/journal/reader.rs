//! The records of one segment, read from its start.

use std::io;
use std::ops::Range;

use super::header::{HEADER_BYTES, Header};
use super::record::{self, Claim, MARK_BYTES, Part, Place, RECORD_HEADER_BYTES};
use super::storage::StoredFile;
use crate::limits::JOURNAL_READ_BYTES;

pub(crate) struct SegmentReader {
    file: Box<dyn StoredFile>,
    header: Header,
    /// Bytes of the file.
    size: u64,
    /// Where in the file the next record begins.
    offset: u64,
    window: Window,
}

/// What comes next in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A record of that payload, in what `bytes` returns until the next is read.
    Record { payload: Range<usize>, part: Part },
    /// A mark, which says that the journal was durable up to a position.
    Mark(u64),
    /// The file ends.
    End,
    /// No record, for that reason.
    Bad(&'static str),
}

impl SegmentReader {
    /// Errors: the file cannot be read.
    pub(crate) fn new(file: Box<dyn StoredFile>, header: Header) -> io::Result<Self> {
        let size = file.size()?;
        Ok(Self {
            file,
            header,
            size,
            offset: HEADER_BYTES as u64,
            window: Window { size, ..Window::default() },
        })
    }

    /// The position at which the next record begins.
    pub(crate) fn position(&self) -> u64 {
        self.header.position + (self.offset - HEADER_BYTES as u64)
    }

    /// Where that is in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to the record that begins at a position.
    pub(crate) fn go_to(&mut self, position: u64) {
        assert!(position >= self.header.position);
        self.offset = HEADER_BYTES as u64 + (position - self.header.position);
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// What the range of a payload is of.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.window.bytes
    }

    /// Reads the next record. Behind one that is bad it stays.
    ///
    /// Errors: the file cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<Read> {
        let place = Place { run: self.header.run, position: self.position() };
        let left = self.size.saturating_sub(self.offset);
        let front = self.window.look(&*self.file, self.offset, RECORD_HEADER_BYTES)?;
        let Some(header) = self.window.bytes[front.clone()].first_chunk() else {
            return Ok(if front.is_empty() { Read::End } else { Read::Bad("record cut off") });
        };
        let claim = match Claim::decode(header) {
            Ok(claim) => claim,
            Err(what) => return Ok(Read::Bad(what)),
        };
        // No more is read than there is, whatever the record claims.
        let bytes = claim.record_bytes();
        if bytes as u64 > left {
            return Ok(Read::Bad("record cut off"));
        }
        let whole = self.window.look(&*self.file, self.offset, bytes)?;
        let record = &self.window.bytes[whole.clone()];
        if record.len() < bytes {
            return Ok(Read::Bad("record cut off"));
        }
        if !record::is_valid(record, place) {
            return Ok(Read::Bad("record checksum"));
        }
        let read = match claim {
            Claim::Mark => match record::decode_mark(record, place) {
                Some(durable) if durable <= place.position => Read::Mark(durable),
                _ => Read::Bad("mark of what comes behind it"),
            },
            Claim::Payload { part, .. } => {
                Read::Record { payload: whole.start + RECORD_HEADER_BYTES..whole.end, part }
            }
        };
        if !matches!(read, Read::Bad(_)) {
            self.offset += bytes as u64;
        }
        Ok(read)
    }

    /// Passes over a record of more than so many bytes, without a look at more than its header, and says which part it is. None:
    /// what comes is none.
    ///
    /// Errors: the file cannot be read.
    pub(crate) fn pass_over_longer(&mut self, bytes_max: usize) -> io::Result<Option<Part>> {
        let front = self.window.look(&*self.file, self.offset, RECORD_HEADER_BYTES)?;
        let claim = self.window.bytes[front].first_chunk().map(Claim::decode);
        let Some(Ok(claim @ Claim::Payload { part, .. })) = claim else { return Ok(None) };
        let bytes = claim.record_bytes();
        let is_there = self.offset + bytes as u64 <= self.size;
        if bytes <= bytes_max || !is_there {
            return Ok(None);
        }
        self.offset += bytes as u64;
        Ok(Some(part))
    }

    /// Whether a mark from `offset` on says that what begins there was durable, and where that mark is.
    ///
    /// Cost: a pass over the rest of the file.
    pub(crate) fn find_durable_beyond(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let position = self.header.position + (offset - HEADER_BYTES as u64);
        self.find_mark(offset, |durable| durable > position)
    }

    /// Passes over a record that is bad: to where it says that it ends, if a record begins there, or else to the next
    /// mark. False: there is none.
    ///
    /// Cost: a pass over the rest of the file.
    pub(crate) fn pass_over_bad(&mut self) -> io::Result<bool> {
        let bad = self.offset;
        let front = self.window.look(&*self.file, bad, RECORD_HEADER_BYTES)?;
        let claim = self.window.bytes[front].first_chunk().map(Claim::decode);
        if let Some(Ok(claim)) = claim {
            let end = bad + claim.record_bytes() as u64;
            self.offset = end;
            if end <= self.size && !matches!(self.next()?, Read::Bad(_)) {
                self.offset = end;
                return Ok(true);
            }
        }
        let mark = self.find_mark(bad + 1, |_| true)?;
        self.offset = mark.unwrap_or(self.size);
        Ok(mark.is_some())
    }

    /// Where from `offset` on a mark stands that is wanted by what it says.
    fn find_mark(
        &mut self,
        offset: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> io::Result<Option<u64>> {
        let mut at = offset;
        while at + MARK_BYTES as u64 <= self.size {
            let seen = self.window.look(&*self.file, at, JOURNAL_READ_BYTES)?;
            let bytes = &self.window.bytes[seen];
            if bytes.len() < MARK_BYTES {
                break;
            }
            let starts = bytes.len() - MARK_BYTES + 1;
            let first = self.header.position + (at - HEADER_BYTES as u64);
            for start in 0..starts {
                let place = Place { run: self.header.run, position: first + start as u64 };
                if record::decode_mark(&bytes[start..], place).is_some_and(&is_wanted) {
                    return Ok(Some(at + start as u64));
                }
            }
            at += starts as u64;
        }
        Ok(None)
    }
}

/// A part of the file in memory.
#[derive(Default)]
struct Window {
    /// Bytes of the file.
    size: u64,
    /// Where in the file it begins.
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Has `bytes` bytes from `offset` on in memory, fewer at the end of the file alone, and says where in the window
    /// they are.
    fn look(
        &mut self,
        file: &dyn StoredFile,
        offset: u64,
        bytes: usize,
    ) -> io::Result<Range<usize>> {
        let end = self.offset + self.bytes.len() as u64;
        if offset < self.offset || offset + bytes as u64 > end {
            let left = self.size.saturating_sub(offset);
            let bytes = bytes.max(JOURNAL_READ_BYTES) as u64;
            self.read(file, offset, bytes.min(left) as usize)?;
        }
        let start = (offset - self.offset) as usize;
        Ok(start..(start + bytes).min(self.bytes.len()))
    }

    fn read(&mut self, file: &dyn StoredFile, offset: u64, bytes: usize) -> io::Result<()> {
        // No longer than it need be behind a long record.
        if bytes <= JOURNAL_READ_BYTES {
            self.bytes.truncate(JOURNAL_READ_BYTES);
            self.bytes.shrink_to(JOURNAL_READ_BYTES);
        }
        self.bytes.resize(bytes, 0);
        self.offset = offset;
        let read = file.read_at(offset, &mut self.bytes);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }
}
