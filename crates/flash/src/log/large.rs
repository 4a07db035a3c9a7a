//! Writing records that are too large for a write buffer.
//!
//! The log keeps the record itself (the tier hands it over) and copies it piece by piece into write
//! buffers, a few of them in flight: beyond the record, memory stays bounded. Until the last piece
//! is on flash, reads are answered from the record. A record that fits a segment shares one in a
//! stream of its own; a larger one has whole segments to itself, wherever they are free, so that a
//! fragmented log can still take it.
//!
//! Its header, with the checksum of everything, stands in the first piece, which is therefore
//! written last.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::append::{Appender, WriteBuffers, failed_completion};
use super::format::{Block, Part, SEGMENT_HEADER_BYTES, encode_segment_header};
use super::geometry::Piece;
use super::io::{Io, User};
use super::lifetime::Stream;
use super::moving::Moving;
use super::segment::{LargeRecord, LostRange, State};
use super::space::Purpose;
use crate::device::buffer::AlignedBuffer;
use crate::engine::Completion;
use crate::error::AppendError;
use crate::limits::LARGE_WRITE_BYTES_MAX;
use crate::location::Location;
use crate::record::{HeaderBytes, OwnedRecord, RECORD_HEADER_BYTES};

/// Large records on their way to flash, one after the other.
#[derive(Default)]
pub(crate) struct LargeWrites {
    queue: VecDeque<LargeWrite>,
    bytes: usize,
}

struct LargeWrite {
    record: Arc<OwnedRecord>,
    header: HeaderBytes,
    at: Location,
    offset: u32,
    size: usize,
    segments: Vec<u32>,
    /// Whether the segments hold nothing else.
    spans: bool,
    pieces: Vec<Piece>,
    /// The next piece to write; the first comes after the last.
    next: usize,
    in_flight: usize,
    /// The errno of a write that failed, and the segment.
    failed: Option<(i32, u32)>,
    /// Of a gc run: what it was let move, until it is on flash.
    _moving: Option<Moving>,
}

/// Which bytes of key and payload a range of a record's bytes covers; header and padding are left
/// out.
pub(crate) fn body(
    stream: &Range<usize>,
    key_len: usize,
    payload_len: usize,
) -> (Range<usize>, Range<usize>) {
    let clip = |start: usize, len: usize| {
        let from = stream.start.clamp(start, start + len) - start;
        let to = stream.end.clamp(start, start + len) - start;
        from..to
    };
    (clip(RECORD_HEADER_BYTES, key_len), clip(RECORD_HEADER_BYTES + key_len, payload_len))
}

impl LargeWrite {
    fn body(&self, piece: &Piece) -> (&[u8], &[u8]) {
        let (key, payload) = (&self.record.key, &self.record.payload);
        let (in_key, in_payload) = body(&piece.stream, key.len(), payload.len());
        (&key[in_key], &payload[in_payload])
    }

    /// Adds a piece to the checksum.
    fn check_in(&mut self, index: usize) {
        let record = Arc::clone(&self.record);
        let stream = &self.pieces[index].stream;
        let (in_key, in_payload) = body(stream, record.key.len(), record.payload.len());
        self.header.add(&record.key[in_key]);
        self.header.add(&record.payload[in_payload]);
    }

    /// Fills a write buffer with a piece.
    fn fill(&self, io: &Io, index: usize, buffer: &mut AlignedBuffer) {
        let piece = &self.pieces[index];
        let buffer = &mut buffer[..piece.size as usize];
        if piece.offset == 0 {
            let part = Part { first: self.segments[0], number: piece.number };
            encode_segment_header(io.shared.id(piece.segment), part, buffer);
        }
        let mut at = piece.skip as usize;
        if index == 0 {
            buffer[at..at + RECORD_HEADER_BYTES].copy_from_slice(&self.header.finish());
            at += RECORD_HEADER_BYTES;
        }
        let (key, payload) = self.body(piece);
        for bytes in [key, payload] {
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        buffer[at..].fill(0);
    }

    /// Whether another piece may be written while no more than so many are in flight.
    fn has_next(&self, in_flight_max: usize) -> bool {
        self.is_good() && self.next < self.pieces.len() && self.in_flight < in_flight_max
    }

    /// The next piece to write: all but the first, then the first.
    fn take_next(&mut self) -> usize {
        self.next += 1;
        let index = self.next % self.pieces.len();
        if index != 0 {
            self.check_in(index);
        }
        index
    }

    fn is_good(&self) -> bool {
        self.failed.is_none()
    }

    fn has_ended(&self) -> bool {
        self.in_flight == 0 && (!self.is_good() || self.next == self.pieces.len())
    }
}

impl LargeWrites {
    /// Errors: `Busy` when too much is on its way already.
    pub(crate) fn check_room(&self, size: usize) -> Result<(), AppendError> {
        if !self.queue.is_empty() && self.bytes + size > LARGE_WRITE_BYTES_MAX {
            return Err(AppendError::Busy);
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The first segments of records that have several to themselves.
    pub(crate) fn spanning(&self) -> impl Iterator<Item = u32> {
        self.queue.iter().filter(|write| write.spans).map(|write| write.segments[0])
    }

    /// RAM held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues device writes as far as buffers are free.
    fn start_pieces(&mut self, io: &mut Io, buffers: &mut WriteBuffers) {
        let Some(write) = self.queue.front_mut() else { return };
        let in_flight_max = buffers.large_pieces_max();
        while write.has_next(in_flight_max)
            && let Some(mut buffer) = buffers.take()
        {
            let index = write.take_next();
            write.fill(io, index, &mut buffer);
            write.in_flight += 1;
            let piece = &write.pieces[index];
            let user = User::LargeWrite { piece: index as u32 };
            let size = piece.size as usize;
            io.write((piece.segment, piece.offset), Arc::new(buffer), size, user);
        }
    }
}

impl Appender {
    /// Appends a record that is too large for a write buffer. What a gc run was let move, `moving`, goes with it until it
    /// is on flash.
    pub(crate) fn append_large(
        &mut self,
        io: &mut Io,
        purpose: Purpose,
        record: &Arc<OwnedRecord>,
        moving: &mut Option<Moving>,
    ) -> Result<Location, AppendError> {
        let size = record.as_record().size();
        self.large.check_room(size)?;
        let spans = size > io.shared.geometry.segment_record_max();
        let (segments, offset) = if spans {
            let count = io.shared.geometry.span_segments(size);
            let segments = io.shared.open_segments(count, Stream::Large, purpose)?;
            (segments, SEGMENT_HEADER_BYTES as u32)
        } else {
            let (segment, offset) = self.reserve_in_stream(io, purpose, size)?;
            (vec![segment], offset)
        };
        let (first, sequence) = (segments[0], io.shared.next_sequence());
        if !spans {
            self.filling(first).footer.add_record(sequence);
        }
        let place = io.shared.place(first, offset);
        let lengths = (record.key.len(), record.payload.len());
        let header = HeaderBytes::new(record.meta, lengths, sequence, place);
        let pieces = io.shared.geometry.pieces(&segments, offset, size);
        let mut write = LargeWrite {
            record: Arc::clone(record),
            header,
            at: place.at,
            offset,
            size,
            segments,
            spans,
            pieces,
            next: 0,
            in_flight: 0,
            failed: None,
            _moving: moving.take(),
        };
        write.check_in(0);
        self.large.bytes += size;
        self.large.queue.push_back(write);
        let segment = io.shared.table.get(first);
        let pending = LargeRecord { offset, record: Arc::clone(record) };
        segment.pending.lock().large.push(pending);
        io.shared.add_live(segment, size);
        Ok(place.at)
    }

    /// Reserves a block for one record in the stream of large records.
    fn reserve_in_stream(
        &mut self,
        io: &mut Io,
        purpose: Purpose,
        size: usize,
    ) -> Result<(u32, u32), AppendError> {
        let (geometry, data_end) = (io.shared.geometry, io.shared.geometry.data_end());
        if self.filling_of(Stream::Large).is_some_and(|filling| !filling.has_room(size, data_end)) {
            self.close_segment(io, Stream::Large);
        }
        if self.filling_of(Stream::Large).is_none() {
            self.open_segment(io, Stream::Large, purpose)?;
        }
        let filling = self.filling_of(Stream::Large).expect("invariant: the stream was opened");
        let (start, offset) = (filling.next, filling.next_record());
        let end = geometry.sector_up(u64::from(offset) + size as u64) as u32;
        filling.footer.blocks.push(Block { offset: start, size: end - start });
        filling.next = end;
        filling.writes += 1;
        Ok((filling.segment, offset))
    }

    /// Queues the next device writes of large records.
    pub(crate) fn continue_large(&mut self, io: &mut Io) {
        self.large.start_pieces(io, &mut self.buffers);
    }

    /// A piece of the first large record was written, or not.
    pub(crate) fn finish_large_piece(
        &mut self,
        io: &mut Io,
        piece: u32,
        buffer: Arc<AlignedBuffer>,
        result: Result<(), i32>,
    ) -> Option<Completion> {
        self.buffers.give_back(buffer);
        let write = self.large.queue.front_mut().expect("invariant: pieces belong to the first");
        write.in_flight -= 1;
        if let Err(errno) = result {
            write.failed = Some((errno, write.pieces[piece as usize].segment));
        }
        let failed = write.has_ended().then(|| self.end_large(io)).flatten();
        self.continue_large(io);
        failed
    }

    /// The first large record is on flash, or will never be.
    fn end_large(&mut self, io: &mut Io) -> Option<Completion> {
        let write = self.large.queue.pop_front().expect("invariant: there is a first");
        self.large.bytes -= write.size;
        if write.spans && write.is_good() {
            io.shared.note_span(&write.segments);
        }
        let segment = io.shared.table.get(write.segments[0]);
        let mut pending = segment.pending.lock();
        pending.large.retain(|large| large.offset != write.offset);
        if !write.is_good() {
            let range = write.offset..write.offset.saturating_add(write.size as u32);
            let record = std::iter::once((write.offset, &write.record));
            pending.lost.push(LostRange::new(range, record));
        }
        if !write.spans {
            segment.set_flushed(pending.flushed(self.filling(write.segments[0]).next));
        }
        drop(pending);
        if write.spans {
            return end_span(io, write);
        }
        let segment = write.segments[0];
        let completion = write
            .failed
            .and_then(|(errno, _)| self.fail(io, segment, errno, vec![(write.at, write.record)]));
        self.write_ended(io, segment);
        completion
    }
}

/// The last write of a record that is larger than a segment has ended.
fn end_span(io: &mut Io, write: LargeWrite) -> Option<Completion> {
    if write.is_good() {
        io.shared.seal(write.segments[0], State::Span);
        return None;
    }
    let (errno, segment) = write.failed?;
    io.counters.write_errors.add(1);
    // Before a checkpoint that waits for it goes on.
    let error = io.shared.write_failed(io.shared.table.home(segment).file, errno);
    for &segment in &write.segments {
        io.shared.seal(segment, State::Emptied);
    }
    failed_completion(vec![(write.at, write.record)], error)
}
