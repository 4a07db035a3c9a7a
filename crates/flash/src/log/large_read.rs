//! Reading records that are too large for one device read.
//!
//! The first piece tells the lengths; then memory for the record is allocated, and the other pieces
//! are read, a few at a time, and copied into place. The checksum follows in order, so that no step
//! takes long. Beyond the record itself, memory stays bounded.
//!
//! A piece gives its buffer back as soon as it was copied, and while any large read is under way at
//! least one piece is in flight, beyond the bound of the pool if need be (see the head of `read`).

use std::ops::Range;
use std::sync::Arc;

use super::geometry::Piece;
use super::io::{Io, User};
use super::large::body;
use crate::device::buffer::IoBuffer;
use crate::engine::ReadStart;
use crate::engine::fetched::FetchedRecord;
use crate::error::EngineError;
use crate::limits::{LARGE_PIECES_IN_FLIGHT_MAX, LARGE_READ_BYTES_MAX};
use crate::location::Location;
use crate::record::{OwnedRecord, PieceChecker, Place, RECORD_HEADER_BYTES};

/// One worker's reads of large records.
#[derive(Default)]
pub(crate) struct LargeReads {
    reads: Vec<Option<LargeRead>>,
    bytes: usize,
    /// Pieces in flight of all reads.
    in_flight: usize,
    /// Which read is asked for its next pieces first: each in turn, as buffers may be few.
    turn: usize,
}

/// Whose read it is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum ReadFor {
    /// The tier's, with its token.
    Client(u64),
    /// A gc run's.
    Gc,
}

/// What is known of a record's size before it is read, in bytes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum RecordSize {
    Exact(usize),
    /// Up to the end of the sector.
    Rounded(usize),
}

impl RecordSize {
    /// Of the record, and what rounds it up.
    pub(crate) fn bytes(self) -> usize {
        let (RecordSize::Exact(bytes) | RecordSize::Rounded(bytes)) = self;
        bytes
    }
}

/// A read that has ended.
pub(crate) struct LargeResult {
    pub(crate) read_for: ReadFor,
    pub(crate) result: Result<FetchedRecord, EngineError>,
}

struct LargeRead {
    assembly: Assembly,
    read_for: ReadFor,
    /// The segment that is pinned.
    first_segment: u32,
    size: usize,
    next: usize,
    in_flight: usize,
    failed: Option<EngineError>,
}

/// A record that is put together from its pieces.
struct Assembly {
    place: Place,
    pieces: Vec<Piece>,
    arrived: Vec<bool>,
    /// Pieces that the checksum covers.
    checked: usize,
    checker: Option<PieceChecker>,
    /// Its payload grows with the pieces that arrive.
    record: OwnedRecord,
    payload_len: usize,
    /// The record's size; of a collected one only the size up to the sector is known before its
    /// header is read.
    size: usize,
    is_rounded: bool,
}

impl Assembly {
    fn new(io: &Io, at: Location, size: RecordSize) -> Result<Self, EngineError> {
        let (size, is_rounded) = match size {
            RecordSize::Exact(size) => (size, false),
            RecordSize::Rounded(size) => (size, true),
        };
        let (segment, offset) = io.shared.geometry.split(at);
        let segments = if size > io.shared.geometry.segment_record_max() {
            io.shared
                .span(segment)
                .filter(|segments| segments.len() == io.shared.geometry.span_segments(size))
        } else {
            Some(vec![segment])
        };
        let Some(segments) = segments else { return Err(EngineError::Gone { units: at.units() }) };
        let pieces = io.shared.geometry.pieces(&segments, offset, size);
        Ok(Self {
            place: io.shared.place(segment, offset),
            arrived: vec![false; pieces.len()],
            pieces,
            checked: 0,
            checker: None,
            record: OwnedRecord::default(),
            payload_len: 0,
            size,
            is_rounded,
        })
    }

    /// Takes a piece in. Errors: what is wrong with it.
    fn add(&mut self, io: &Io, index: usize, bytes: &[u8]) -> Result<(), &'static str> {
        let piece = &self.pieces[index];
        let bytes = &bytes[piece.skip as usize..][..piece.stream.len()];
        if index == 0 {
            self.begin(io, bytes)?;
        }
        let (key, payload) = self.body(index);
        if self.record.payload.len() < payload.end {
            // By and by: to touch all of it at once takes long.
            self.record.payload.resize(payload.end, 0);
        }
        let from = if index == 0 { RECORD_HEADER_BYTES } else { 0 };
        let (in_key, rest) = bytes[from..].split_at(key.len());
        let in_payload = &rest[..payload.len()];
        self.record.key[key].copy_from_slice(in_key);
        self.record.payload[payload].copy_from_slice(in_payload);
        self.arrived[index] = true;
        self.check_arrived();
        Ok(())
    }

    /// Reads the header and makes room for the record.
    fn begin(&mut self, io: &Io, bytes: &[u8]) -> Result<(), &'static str> {
        let checker = PieceChecker::new(bytes, self.place)?;
        let header = checker.header();
        let mut size = header.record_size();
        if self.is_rounded {
            let skip = self.pieces[0].skip as usize;
            size = io.shared.geometry.sector_up((skip + size) as u64) as usize - skip;
        }
        if size != self.size {
            return Err("length");
        }
        self.record.meta = header.meta;
        self.record.key = vec![0; header.key_len];
        self.record.payload = Vec::with_capacity(header.payload_len);
        self.payload_len = header.payload_len;
        self.checker = Some(checker);
        Ok(())
    }

    /// Adds to the checksum what has arrived without a gap.
    fn check_arrived(&mut self) {
        let Some(checker) = &mut self.checker else { return };
        while self.arrived.get(self.checked) == Some(&true) {
            let stream = &self.pieces[self.checked].stream;
            let (key, payload) = body(stream, self.record.key.len(), self.payload_len);
            checker.add(&self.record.key[key]);
            checker.add(&self.record.payload[payload]);
            self.checked += 1;
        }
    }

    /// Which bytes of key and payload a piece brings.
    fn body(&self, index: usize) -> (Range<usize>, Range<usize>) {
        body(&self.pieces[index].stream, self.record.key.len(), self.payload_len)
    }

    /// The record, when all pieces have arrived.
    fn finish(self) -> Result<OwnedRecord, &'static str> {
        assert_eq!(self.checked, self.pieces.len());
        self.checker.ok_or("no header")?.finish()?;
        Ok(self.record)
    }

    /// How many pieces may be asked for: only the first until it has come.
    fn askable(&self) -> usize {
        if self.checker.is_some() { self.pieces.len() } else { 1 }
    }
}

impl LargeReads {
    /// Starts the tier's read of a record on flash.
    pub(crate) fn start(
        &mut self,
        io: &mut Io,
        at: Location,
        size: usize,
        token: u64,
    ) -> ReadStart {
        if self.bytes > 0 && self.bytes + size > LARGE_READ_BYTES_MAX {
            return ReadStart::Busy;
        }
        match Assembly::new(io, at, RecordSize::Exact(size)) {
            Ok(assembly) => {
                self.begin(io, assembly, ReadFor::Client(token));
                ReadStart::Pending
            }
            Err(error) => ReadStart::Failed(error),
        }
    }

    /// Starts a gc run's read of a record that has a block or segments to itself.
    ///
    /// The caller holds a pin of the segment for it.
    pub(crate) fn start_for_gc(
        &mut self,
        io: &mut Io,
        at: Location,
        size: RecordSize,
    ) -> Result<(), EngineError> {
        let assembly = Assembly::new(io, at, size)?;
        self.begin(io, assembly, ReadFor::Gc);
        Ok(())
    }

    fn begin(&mut self, io: &mut Io, assembly: Assembly, read_for: ReadFor) {
        let (first_segment, size) = (assembly.pieces[0].segment, assembly.size);
        self.bytes += size;
        let read = LargeRead {
            assembly,
            read_for,
            first_segment,
            size,
            next: 0,
            in_flight: 0,
            failed: None,
        };
        let free = self.reads.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        self.reads[index] = Some(read);
        self.ask(io, index);
    }

    /// RAM held for records that are being read, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues the next device reads of all large records. Called when buffers may have come back.
    pub(crate) fn continue_all(&mut self, io: &mut Io) {
        let count = self.reads.len();
        let first = self.turn;
        for index in (first..first + count).map(|index| index % count) {
            if self.reads[index].is_some() && self.ask(io, index) {
                self.turn = (index + 1) % count;
            }
        }
    }

    /// Queues the next device reads of one record, as far as there are buffers. True: some were.
    fn ask(&mut self, io: &mut Io, index: usize) -> bool {
        let read = self.reads[index].as_mut().expect("invariant: the read is under way");
        let before = read.next;
        while read.failed.is_none()
            && read.next < read.assembly.askable()
            && read.in_flight < LARGE_PIECES_IN_FLIGHT_MAX
        {
            let piece = &read.assembly.pieces[read.next];
            let pool = io.device.pool();
            let buffer = match pool.take(piece.size as usize) {
                Some(buffer) => buffer,
                // No piece will end that would start this read again, and whoever holds the buffers
                // may wait for it.
                None if self.in_flight == 0 => pool.take_beyond(piece.size as usize),
                None => break,
            };
            let user = User::LargeRead { index: index as u32, piece: read.next as u32 };
            // What gc runs read is counted apart.
            if read.read_for != ReadFor::Gc {
                io.counters.device_reads.add(1);
                io.counters.device_read_bytes.add(u64::from(piece.size));
            }
            io.read(piece.segment, piece.offset, buffer, user);
            read.next += 1;
            read.in_flight += 1;
            self.in_flight += 1;
        }
        read.next > before
    }

    /// A piece has been read, or not. Returns the record when that was the last.
    pub(crate) fn finish_piece(
        &mut self,
        io: &mut Io,
        (index, piece): (u32, u32),
        buffer: IoBuffer,
        result: Result<(), i32>,
    ) -> Option<LargeResult> {
        let entry = &mut self.reads[index as usize];
        let read = entry.as_mut().expect("invariant: pieces belong to a read under way");
        read.in_flight -= 1;
        self.in_flight -= 1;
        let at = read.assembly.place.at;
        if let Err(errno) = result {
            io.counters.read_errors.add(1);
            read.failed = Some(io.shared.read_error(read.first_segment, errno));
        } else if read.failed.is_none()
            && let Err(what) = read.assembly.add(io, piece as usize, buffer.bytes())
        {
            io.counters.checksum_failures.add(1);
            read.failed = Some(io.shared.corrupted(at, what));
        }
        drop(buffer);
        let complete = read.failed.is_some() || read.next == read.assembly.pieces.len();
        if read.in_flight > 0 || !complete {
            self.ask(io, index as usize);
            return None;
        }
        let read = entry.take()?;
        self.bytes -= read.size;
        io.shared.unpin(read.first_segment);
        let result = match read.failed {
            Some(error) => Err(error),
            None => finish(io, at, read.assembly),
        };
        Some(LargeResult { read_for: read.read_for, result })
    }

    /// Reads a record on flash and waits for it.
    pub(crate) fn read_blocking(
        io: &mut Io,
        at: Location,
        size: usize,
    ) -> Result<FetchedRecord, EngineError> {
        let mut assembly = Assembly::new(io, at, RecordSize::Exact(size))?;
        for index in 0..assembly.pieces.len() {
            let piece = &assembly.pieces[index];
            let mut buffer = io.device.pool().take_beyond(piece.size as usize);
            let extent = io.shared.extent(piece.segment, piece.offset, piece.size as usize);
            let segment = piece.segment;
            io.counters.device_reads.add(1);
            io.counters.device_read_bytes.add(u64::from(piece.size));
            io.device.read_now(extent, &mut buffer).map_err(|errno| {
                io.counters.read_errors.add(1);
                io.shared.read_error(segment, errno)
            })?;
            assembly.add(io, index, buffer.bytes()).map_err(|what| {
                io.counters.checksum_failures.add(1);
                io.shared.corrupted(at, what)
            })?;
        }
        finish(io, at, assembly)
    }
}

fn finish(io: &Io, at: Location, assembly: Assembly) -> Result<FetchedRecord, EngineError> {
    match assembly.finish() {
        Ok(record) => Ok(FetchedRecord::owned(at, Arc::new(record))),
        Err(what) => {
            io.counters.checksum_failures.add(1);
            Err(io.shared.corrupted(at, what))
        }
    }
}
