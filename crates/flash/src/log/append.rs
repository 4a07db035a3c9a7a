//! How records reach flash: streams, write buffers, blocks, footers.
//!
//! Each stream has at most one open segment with one open block, which lies in the segment's
//! `pending` so that all workers can read from it. A full block goes to the device and the next
//! begins where it ends. A full segment gets its footer and is left to `closing` until its last
//! write has ended; only then it is sealed.
//!
//! A failed write takes the segment out of use (and the path, unless it was only full): what was on
//! its way is handed back to the tier, what is on flash stays readable.

use std::sync::Arc;

use super::flush::FillMark;
use super::format::{
    BLOCKS_MAX, Block, FOOTER_BYTES, Footer, Part, SEGMENT_HEADER_BYTES, encode_segment_header,
    next_record,
};
use super::io::{Io, User};
use super::large::LargeWrites;
use super::lifetime::{STREAMS, Stream};
use super::segment::{LostRange, OpenBlock, Pending, State, WritingBlock};
use super::space::Purpose;
use crate::device::buffer::AlignedBuffer;
use crate::engine::Completion;
use crate::error::{AppendError, EngineError};
use crate::limits::{
    LARGE_PIECES_IN_FLIGHT_MAX, OPEN_BUFFERS_MAX, RECORD_BYTES_MAX, WRITE_BUFFERS,
    WRITE_BUFFERS_MIN,
};
use crate::location::Location;
use crate::record::{self, OwnedRecord, Record, record_size};

/// One worker's open segments and writes.
pub(crate) struct Appender {
    streams: [Option<Filling>; STREAMS.len()],
    /// The segment that was opened last for each of them.
    opened_last: [Option<u32>; STREAMS.len()],
    /// Segments that are full, or given up, and have writes in flight.
    closing: Vec<Filling>,
    pub(crate) buffers: WriteBuffers,
    pub(crate) large: LargeWrites,
}

/// A segment that this worker fills.
pub(crate) struct Filling {
    pub(crate) segment: u32,
    /// Where the next block begins.
    pub(crate) next: u32,
    pub(crate) footer: Footer,
    /// Writes in flight; a large record counts as one.
    pub(crate) writes: u32,
    outcome: Outcome,
    /// The worker has ended before it was full.
    is_left: bool,
}

/// How the filling of a segment ends.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Outcome {
    Good,
    /// A write failed: there is no footer.
    Failed,
}

impl Filling {
    /// Where the next record would begin if it began a block.
    pub(crate) fn next_record(&self) -> u32 {
        if self.next == 0 { SEGMENT_HEADER_BYTES as u32 } else { self.next }
    }

    /// Whether a block with a record of that size fits.
    pub(crate) fn has_room(&self, size: usize, data_end: u32) -> bool {
        self.footer.blocks.len() < BLOCKS_MAX
            && u64::from(self.next_record()) + size as u64 <= u64::from(data_end)
    }
}

/// The write buffers of a worker. Made when first needed, then reused.
pub(crate) struct WriteBuffers {
    size: usize,
    free: Vec<AlignedBuffer>,
    made: usize,
    made_max: usize,
}

impl WriteBuffers {
    pub(crate) fn take(&mut self) -> Option<AlignedBuffer> {
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        (self.made < self.made_max).then(|| {
            self.made += 1;
            AlignedBuffer::new(self.size)
        })
    }

    /// Takes a buffer back from the device.
    pub(crate) fn give_back(&mut self, buffer: Arc<AlignedBuffer>) {
        let buffer = Arc::into_inner(buffer);
        self.give(buffer.expect("invariant: whoever shared the buffer let it go first"));
    }

    pub(crate) fn give(&mut self, buffer: AlignedBuffer) {
        self.free.push(buffer);
        self.drop_beyond();
    }

    /// See `EngineWorker::bound_write_buffers`. False: it was so before.
    pub(crate) fn bound(&mut self, count: usize) -> bool {
        assert!(count == 0 || count >= WRITE_BUFFERS_MIN, "{count} write buffers are too few");
        let before = std::mem::replace(&mut self.made_max, count);
        self.drop_beyond();
        before != count
    }

    /// Drops free ones that are too many; those in use are dropped when they come back.
    fn drop_beyond(&mut self) {
        while self.made > self.made_max && self.free.pop().is_some() {
            self.made -= 1;
        }
    }

    /// Pieces of a large record that may be in flight, so that streams get on meanwhile.
    pub(crate) fn large_pieces_max(&self) -> usize {
        let left = self.made_max.saturating_sub(OPEN_BUFFERS_MAX + 1);
        left.clamp(1, LARGE_PIECES_IN_FLIGHT_MAX)
    }

    /// Whether there may be any.
    pub(crate) fn are_any(&self) -> bool {
        self.made_max > 0
    }

    /// RAM held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.made * self.size
    }

    /// The same for those not made yet.
    pub(crate) fn unmade_bytes(&self) -> usize {
        self.made_max.saturating_sub(self.made) * self.size
    }
}

impl Appender {
    pub(crate) fn new(write_buffer_bytes: usize) -> Self {
        Self {
            streams: [const { None }; _],
            opened_last: [None; _],
            closing: Vec::new(),
            buffers: WriteBuffers {
                size: write_buffer_bytes,
                free: Vec::new(),
                made: 0,
                made_max: WRITE_BUFFERS,
            },
            large: LargeWrites::default(),
        }
    }

    /// Appends a record of any size.
    pub(crate) fn append(
        &mut self,
        io: &mut Io,
        stream: Stream,
        record: &Record<'_>,
    ) -> Result<Location, AppendError> {
        let size = bounded_size(record)?;
        if size <= io.shared.geometry.small_record_max() {
            return self.append_small(io, stream, record, size);
        }
        self.large.check_room(size)?;
        self.append_large(io, stream.purpose(), &Arc::new(record.to_owned_record()), &mut None)
    }

    /// Appends a record of any size without a copy of a large one.
    pub(crate) fn append_owned(
        &mut self,
        io: &mut Io,
        stream: Stream,
        record: OwnedRecord,
    ) -> Result<Location, (AppendError, OwnedRecord)> {
        let size = match bounded_size(&record.as_record()) {
            Ok(size) => size,
            Err(error) => return Err((error, record)),
        };
        if size <= io.shared.geometry.small_record_max() {
            let appended = self.append_small(io, stream, &record.as_record(), size);
            return appended.map_err(|error| (error, record));
        }
        let record = Arc::new(record);
        self.append_large(io, stream.purpose(), &record, &mut None).map_err(|error| {
            (error, Arc::into_inner(record).expect("invariant: what was refused is not kept"))
        })
    }

    fn append_small(
        &mut self,
        io: &mut Io,
        stream: Stream,
        record: &Record<'_>,
        size: usize,
    ) -> Result<Location, AppendError> {
        loop {
            if let Some(at) = self.append_to_block(io, stream, record, size) {
                return Ok(at);
            }
            self.open_block(io, stream, size)?;
        }
    }

    /// Appends to the open block of a stream, if there is one with room.
    fn append_to_block(
        &mut self,
        io: &Io,
        stream: Stream,
        record: &Record<'_>,
        size: usize,
    ) -> Option<Location> {
        let shared = &io.shared;
        let filling = self.streams[stream as usize].as_mut()?;
        let segment = shared.table.get(filling.segment);
        let mut pending = segment.pending.lock();
        let open = pending.open.as_mut()?;
        let offset = open.offset + open.len;
        let end = open.len as usize + size;
        let data_end = shared.geometry.data_end() as usize;
        if end > open.buffer.len() || offset as usize + size > data_end {
            return None;
        }
        let place = shared.place(filling.segment, offset);
        let sequence = shared.next_sequence();
        record::encode(record, sequence, place, &mut open.buffer[open.len as usize..end]);
        open.len = end as u32;
        // The next record is probably about as long.
        open.buffer.expect_write(end, size);
        drop(pending);
        filling.footer.add_record(sequence);
        shared.add_live(segment, size);
        Some(place.at)
    }

    /// Hands the open block of a stream to the device and opens the next, in a segment with room
    /// for a record.
    fn open_block(&mut self, io: &mut Io, stream: Stream, size: usize) -> Result<(), AppendError> {
        self.close_block(io, stream);
        loop {
            let Some(filling) = &self.streams[stream as usize] else {
                self.open_segment(io, stream, stream.purpose())?;
                continue;
            };
            if !filling.has_room(size, io.shared.geometry.data_end()) {
                self.close_segment(io, stream);
                continue;
            }
            let mut buffer = self.buffers.take().ok_or(AppendError::Busy)?;
            let mut len = 0;
            if filling.next == 0 {
                let id = io.shared.id(filling.segment);
                let part = Part { first: id.segment, number: 0 };
                encode_segment_header(id, part, &mut buffer);
                len = SEGMENT_HEADER_BYTES as u32;
            }
            let open = OpenBlock { offset: filling.next, len, buffer };
            io.shared.table.get(filling.segment).pending.lock().open = Some(open);
            return Ok(());
        }
    }

    /// Opens a segment for a stream that has none.
    pub(crate) fn open_segment(
        &mut self,
        io: &mut Io,
        stream: Stream,
        purpose: Purpose,
    ) -> Result<(), AppendError> {
        assert!(self.streams[stream as usize].is_none());
        let segment = io.shared.open_segments(1, stream, purpose)?[0];
        let before = self.opened_last[stream as usize].replace(segment);
        if let Some(before) = before.filter(|&before| before != segment) {
            io.shared.table.link(before, segment);
        }
        self.streams[stream as usize] = Some(Filling {
            segment,
            next: 0,
            footer: Footer::default(),
            writes: 0,
            outcome: Outcome::Good,
            is_left: false,
        });
        Ok(())
    }

    pub(crate) fn filling_of(&mut self, stream: Stream) -> Option<&mut Filling> {
        self.streams[stream as usize].as_mut()
    }

    /// Hands the open block of a stream to the device.
    fn close_block(&mut self, io: &mut Io, stream: Stream) {
        let Some(filling) = &mut self.streams[stream as usize] else { return };
        let shared = Arc::clone(&io.shared);
        let mut pending = shared.table.get(filling.segment).pending.lock();
        let Some(open) = pending.open.take() else { return };
        let OpenBlock { offset, len, mut buffer } = open;
        let size = shared.geometry.sector_up(u64::from(len)) as usize;
        buffer[len as usize..size].fill(0);
        let buffer = Arc::new(buffer);
        pending.writing.push(WritingBlock { offset, len, buffer: Arc::clone(&buffer) });
        drop(pending);
        if stream.purpose() == Purpose::Fresh {
            shared.lifetimes.advance(size as u64);
        }
        filling.footer.blocks.push(Block { offset, size: size as u32 });
        filling.next = offset + size as u32;
        filling.writes += 1;
        let user = User::Block { segment: filling.segment, offset };
        io.write((filling.segment, offset), buffer, size, user);
    }

    /// Writes the footer of a stream's segment and leaves the segment to its last writes.
    pub(crate) fn close_segment(&mut self, io: &mut Io, stream: Stream) {
        self.close_block(io, stream);
        let Some(mut filling) = self.streams[stream as usize].take() else { return };
        let mut buffer = AlignedBuffer::new(FOOTER_BYTES);
        filling.footer.encode(io.shared.id(filling.segment), &mut buffer);
        filling.writes += 1;
        let place = (filling.segment, io.shared.geometry.data_end());
        let user = User::Footer { segment: filling.segment };
        io.write(place, Arc::new(buffer), FOOTER_BYTES, user);
        self.closing.push(filling);
    }

    /// Closes segments on paths that are being left. True when there were any.
    pub(crate) fn leave_paths(&mut self, io: &mut Io) -> bool {
        if !io.shared.leaves_paths() {
            return false;
        }
        let mut has_left = false;
        for stream in STREAMS {
            let filling = self.streams[stream as usize].as_ref();
            if filling.is_some_and(|filling| io.shared.is_left(filling.segment)) {
                self.close_segment(io, stream);
                has_left = true;
            }
        }
        has_left
    }

    /// Hands all open blocks that hold records to the device.
    pub(crate) fn flush(&mut self, io: &mut Io) {
        for stream in STREAMS {
            let Some(filling) = &self.streams[stream as usize] else { continue };
            let pending = io.shared.table.get(filling.segment).pending.lock();
            let begun = pending.open.as_ref().is_some_and(|open| {
                let empty = Block { offset: open.offset, size: 0 };
                open.len as usize > empty.first_record()
            });
            drop(pending);
            if begun {
                self.close_block(io, stream);
            }
        }
    }

    /// How far this worker has filled segments. What it has appended so far is on flash when all of these are reached.
    pub(crate) fn fill_marks(&self, io: &Io) -> Vec<FillMark> {
        let mark = |filling: &Filling, is_closing: bool| FillMark {
            id: io.shared.id(filling.segment),
            end: filling.next,
            blocks: (!is_closing).then(|| filling.footer.blocks.clone()),
        };
        let open = self.streams.iter().flatten().map(|filling| mark(filling, false));
        let closing = self.closing.iter().map(|filling| mark(filling, true));
        let alone = self.large.spanning().map(|segment| FillMark {
            id: io.shared.id(segment),
            end: 0,
            blocks: None,
        });
        open.chain(closing).chain(alone).collect()
    }

    /// A write of a block or a footer has ended.
    pub(crate) fn finish_write(
        &mut self,
        io: &mut Io,
        user: User,
        buffer: Arc<AlignedBuffer>,
        result: Result<(), i32>,
    ) -> Option<Completion> {
        let (segment, block) = match user {
            User::Block { segment, offset } => (segment, Some(offset)),
            User::Footer { segment } => (segment, None),
            _ => unreachable!("invariant: only blocks and footers come here"),
        };
        let lost = block.and_then(|offset| self.take_written(io, segment, offset, result.is_ok()));
        let failed =
            result.err().and_then(|errno| self.fail(io, segment, errno, lost.unwrap_or_default()));
        if block.is_some() {
            self.buffers.give_back(buffer);
            // Before small records take it.
            self.continue_large(io);
        }
        self.write_ended(io, segment);
        failed
    }

    /// Takes a block out of what is pending. Returns its records when they were not written.
    fn take_written(
        &mut self,
        io: &Io,
        segment: u32,
        offset: u32,
        good: bool,
    ) -> Option<LostRecords> {
        let next = self.filling(segment).next;
        let entry = io.shared.table.get(segment);
        let mut pending = entry.pending.lock();
        let at = pending.writing.iter().position(|block| block.offset == offset);
        let block =
            pending.writing.swap_remove(at.expect("invariant: blocks in flight are listed"));
        let lost = (!good).then(|| {
            let bytes = &block.buffer[..block.len as usize];
            lose_block(io, (segment, offset), bytes, &mut pending)
        });
        entry.set_flushed(pending.flushed(next));
        lost
    }

    /// The segment that this worker fills or has filled.
    pub(crate) fn filling(&mut self, segment: u32) -> &mut Filling {
        let open = self.streams.iter_mut().flatten();
        open.chain(&mut self.closing)
            .find(|filling| filling.segment == segment)
            .expect("invariant: segments with writes in flight are listed")
    }

    /// One write of a segment has ended: seals the segment if that was the last.
    pub(crate) fn write_ended(&mut self, io: &Io, segment: u32) {
        self.filling(segment).writes -= 1;
        self.seal_if_ended(io, segment);
    }

    fn seal_if_ended(&mut self, io: &Io, segment: u32) {
        let ended = |filling: &Filling| filling.segment == segment && filling.writes == 0;
        let Some(at) = self.closing.iter().position(ended) else { return };
        let filling = self.closing.swap_remove(at);
        // What was left of it counts as dead, so that gc finds it worth collecting.
        let used_bytes = if filling.is_left { io.shared.geometry.data_end() } else { filling.next };
        io.shared.table.get(segment).set_used_bytes(used_bytes);
        match filling.outcome {
            Outcome::Good => io.shared.seal(segment, State::Sealed),
            Outcome::Failed => io.shared.seal_without_footer(segment, filling.footer.blocks),
        }
    }

    /// A write to a segment failed: gives up the segment, or all on its path, and hands back what
    /// was not written: `records`, and what the open blocks hold.
    pub(crate) fn fail(
        &mut self,
        io: &mut Io,
        segment: u32,
        errno: i32,
        mut records: LostRecords,
    ) -> Option<Completion> {
        io.counters.write_errors.add(1);
        let file = io.shared.table.home(segment).file;
        let error = io.shared.write_failed(file, errno);
        for stream in STREAMS {
            let Some(filling) = &self.streams[stream as usize] else { continue };
            let same_path = io.shared.table.home(filling.segment).file == file;
            if filling.segment == segment || (errno != libc::ENOSPC && same_path) {
                self.give_up_stream(io, stream, &mut records);
            }
        }
        let closing = self.closing.iter_mut().filter(|filling| filling.segment == segment);
        closing.filter(|filling| filling.outcome == Outcome::Good).for_each(|filling| {
            filling.outcome = Outcome::Failed;
        });
        failed_completion(records, error)
    }

    /// Takes a stream's segment out of use without a footer; its open block is lost.
    fn give_up_stream(&mut self, io: &mut Io, stream: Stream, records: &mut LostRecords) {
        let Some(mut filling) = self.streams[stream as usize].take() else { return };
        filling.outcome = Outcome::Failed;
        let segment = filling.segment;
        let entry = io.shared.table.get(segment);
        let mut pending = entry.pending.lock();
        if let Some(open) = pending.open.take() {
            let bytes = &open.buffer[..open.len as usize];
            records.extend(lose_block(io, (segment, open.offset), bytes, &mut pending));
            entry.set_flushed(pending.flushed(filling.next));
            self.buffers.give(open.buffer);
        }
        drop(pending);
        self.closing.push(filling);
        self.seal_if_ended(io, segment);
    }

    /// Whether nothing waits to be written or is being written.
    pub(crate) fn is_idle(&self) -> bool {
        self.closing.is_empty() && self.large.is_empty()
    }

    /// Closes all segments: the worker ends.
    pub(crate) fn close(&mut self, io: &mut Io) {
        for stream in STREAMS {
            if let Some(filling) = &mut self.streams[stream as usize] {
                filling.is_left = true;
                self.close_segment(io, stream);
            }
        }
    }
}

/// The size on flash, if the record is within the limit.
fn bounded_size(record: &Record<'_>) -> Result<usize, AppendError> {
    if record.key.len().saturating_add(record.payload.len()) > RECORD_BYTES_MAX {
        return Err(AppendError::TooLarge);
    }
    Ok(record_size(record.key.len(), record.payload.len()))
}

/// Records that were not written, with their places.
pub(crate) type LostRecords = Vec<(Location, Arc<OwnedRecord>)>;

/// What to tell the tier of a failed write, if anything was in it.
pub(crate) fn failed_completion(records: LostRecords, error: EngineError) -> Option<Completion> {
    (!records.is_empty()).then_some(Completion::WriteFailed { records, error })
}

/// Copies the records of a block that was not written, and lists it as lost in the moment in which
/// it is not pending any more, so that other workers find its records all the time.
fn lose_block(
    io: &Io,
    (segment, offset): (u32, u32),
    bytes: &[u8],
    pending: &mut Pending,
) -> LostRecords {
    let block = Block { offset, size: bytes.len() as u32 };
    let mut records = LostRecords::new();
    let mut from = block.first_record();
    while let Some((at, header)) = next_record(bytes, from) {
        let record = &bytes[at..];
        let owned = OwnedRecord {
            meta: header.meta,
            key: record[header.key()].to_vec(),
            payload: record[header.payload()].to_vec(),
        };
        let place = io.shared.geometry.join(segment, offset + at as u32);
        records.push((place, Arc::new(owned)));
        from = at + header.record_size();
    }
    let listed = records.iter().map(|(at, record)| (io.shared.geometry.split(*at).1, record));
    pending.lost.push(LostRange::new(offset..offset + block.size, listed));
    records
}
