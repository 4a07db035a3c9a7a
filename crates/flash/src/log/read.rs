//! How records come back: from a write buffer, from a block that was read ahead, or by a device read
//! of their sectors.
//!
//! Two reads of the same sectors share one device read while it is in flight: a small table
//! remembers for the recent reads where they began. It is a cache, not an index: an entry that was
//! overwritten costs a second device read. The reads of one turn are gathered, and the device is asked
//! at its end (`read_batch`): for neighbours at once, and for more where reads follow each other.
//!
//! A device read that brings more than a record's own sectors is not the last word on it: when it
//! fails, or brings the record damaged, the record is read by itself. So to read more never costs a
//! record, and what is wrong is said, and counted, of the record that has it.
//!
//! # Why no read waits for ever
//!
//! Buffers are bounded, and whoever asks for several values holds the buffers of those that have
//! come while it waits for the rest. So no wait may end only by a buffer coming back. The waits:
//!
//! 1. A small read takes a buffer and gives it to whoever asked, who holds it for as long as it
//!    likes. Without a free one the read is refused (`Busy`), but only while another small read is
//!    in flight, whose end is the time to ask again. When none is, one is read beyond the bound.
//! 2. A large read takes a buffer a piece and gives it back when the piece has ended; what it hands
//!    out is memory of the record's own. Without a free one it stands still, but only while a piece
//!    of any large read is in flight, whose end continues them all, in turn. When none is, one
//!    piece is read beyond the bound. It is refused (`Busy`) only while another one is under way.
//!    So is the large record of a gc run, which waits for nothing else.
//! 3. A gc run takes the buffers of its footer and its blocks beyond the bound; their number is
//!    bounded by itself. It holds blocks while it waits for write buffers.
//! 4. A write waits for write buffers alone. There are more than can be open, so one that is taken
//!    is being written, and comes back without anybody's help.
//! 5. A block that is read ahead takes memory of its own, or that of an older block, or is not read. Nobody
//!    but the cache holds it.
//! 6. A record that a larger read did not bring takes its buffer beyond the bound.
//! 7. A blocking read takes its buffers beyond the bound, one for each record of a few, and waits for the
//!    drive alone.
//!
//! So a read waits for reads in flight, a gc run for its reads and for writes, a write for writes
//! in flight: no circle. What is taken beyond the bound is one small buffer for each value that a
//! caller holds already, the small buffers of the records in a read that failed, and one piece.
//! Whoever holds values must not wait for anything but its own reads: the tier's callers let go of
//! their buffers first.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use super::block_cache::{BlockCache, Cached};
use super::io::{Io, User};
use super::large_read::LargeReads;
use super::read_ahead::ReadAhead;
use super::segment::Found;
use crate::device::buffer::IoBuffer;
use crate::device::{Errno, Extent};
use crate::engine::fetched::FetchedRecord;
use crate::engine::neighbours::Neighbours;
use crate::engine::{Completion, ReadStart};
use crate::error::EngineError;
use crate::limits::{AROUND_BYTES, READS_IN_FLIGHT_MAX};
use crate::location::{Location, RecordId};
use crate::record::{self, Header, Place, RECORD_HEADER_BYTES};

/// Entries of the table of recent reads.
const RECENT: usize = 2 * READS_IN_FLIGHT_MAX;

/// One worker's reads.
pub(crate) struct Reader {
    reads: Vec<Option<DeviceRead>>,
    free: Vec<u32>,
    /// For a hash of the first sector, the read that began there last.
    recent: Vec<u32>,
    /// Those that the device has not been asked for yet.
    pub(super) gathered: Vec<u32>,
    /// Reads become one over such a gap between them; 0: where they touch.
    pub(super) gap_bytes: u32,
    pub(super) ahead: ReadAhead,
    pub(super) blocks: BlockCache,
    /// Room for the blocks to be read ahead.
    pub(super) next_blocks: Vec<((u32, u64), u32)>,
    pub(crate) large: LargeReads,
}

/// A device read, gathered or in flight.
pub(super) struct DeviceRead {
    pub(super) segment: u32,
    pub(super) generation: u64,
    /// Where it begins in the segment, in bytes.
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) started: Instant,
    /// Until the device is asked.
    pub(super) buffer: Option<IoBuffer>,
    pub(super) kind: Kind,
    /// None: it was not asked for, or has joined another.
    pub(super) first: Option<Waiter>,
    pub(super) more: Vec<Waiter>,
}

/// What a device read is for.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Records that were asked for.
    Records,
    /// And what lies around them: who asked is told what else is there.
    Around,
    /// Records alone, after a read of more than their sectors did not bring them.
    Alone,
    /// A block to be kept, with the records that are asked for in it meanwhile.
    Block,
}

/// What was read ahead of a record.
enum InBlocks {
    Missing,
    /// The device read under way that brings it.
    Reading(u32),
    Ready(FetchedRecord),
}

/// A read of the tier's.
pub(super) struct Waiter {
    pub(super) at: Location,
    pub(super) offset: u32,
    pub(super) size: usize,
    token: u64,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            reads: Vec::new(),
            free: Vec::new(),
            recent: vec![0; RECENT],
            gathered: Vec::new(),
            gap_bytes: 0,
            ahead: ReadAhead::new(),
            blocks: BlockCache::default(),
            next_blocks: Vec::new(),
            large: LargeReads::default(),
        }
    }

    /// See `EngineWorker::read` and `read_around`, which ask for [`Kind::Records`] and [`Kind::Around`].
    pub(crate) fn read(
        &mut self,
        io: &mut Io,
        record: RecordId,
        size: usize,
        (token, kind): (u64, Kind),
    ) -> ReadStart {
        let at = record.at;
        let block = match self.read_from_blocks(io, record, size) {
            InBlocks::Ready(record) => return ReadStart::Ready(record),
            InBlocks::Reading(block) => Some(block),
            InBlocks::Missing => None,
        };
        let (segment, offset) = match pin_record(io, record, size) {
            Ok(place) => place,
            Err(error) => return ReadStart::Failed(error),
        };
        let started = match in_ram(io, (segment, offset), at, size) {
            Some(Ok(record)) => {
                io.counters.reads_buffered.add(1);
                ReadStart::Ready(record)
            }
            Some(Err(error)) => ReadStart::Failed(error),
            None if size > io.shared.geometry.small_record_max() => {
                self.large.start(io, at, size, token)
            }
            None => {
                let waiter = Waiter { at, offset, size, token };
                let place = (segment, record.generation);
                match block {
                    Some(block) => self.wait_for_block(io, segment, waiter, block),
                    None => self.start(io, place, waiter, kind),
                }
            }
        };
        // A read that was started keeps the pin until it ends, one that was merged has that of the
        // other.
        match &started {
            ReadStart::Pending => io.counters.reads.add(1),
            ReadStart::Ready(_) | ReadStart::Failed(_) => {
                io.counters.reads.add(1);
                io.shared.unpin(segment);
            }
            ReadStart::Busy => io.shared.unpin(segment),
        }
        started
    }

    /// Serves a record from what was read ahead.
    fn read_from_blocks(
        &mut self,
        io: &mut Io,
        RecordId { at, generation }: RecordId,
        size: usize,
    ) -> InBlocks {
        if self.blocks.is_empty() || size > io.shared.geometry.small_record_max() {
            return InBlocks::Missing;
        }
        let (segment, offset) = io.shared.geometry.split(at);
        let place = (segment, generation);
        match self.blocks.find(place, offset, size) {
            Cached::Missing => InBlocks::Missing,
            Cached::Reading(index) => InBlocks::Reading(index),
            Cached::Ready(bytes) => match check(&bytes, at, size, generation) {
                Ok(header) => {
                    io.counters.reads.add(1);
                    io.counters.block_cache_hits.add(1);
                    self.note_use(io, place, (offset, size as u32));
                    InBlocks::Ready(FetchedRecord::copied(at, header, bytes))
                }
                // Only a read of its own can tell whether it is damaged on flash.
                Err(_) => {
                    self.blocks.discard(segment, &(offset..offset + size as u32));
                    InBlocks::Missing
                }
            },
        }
    }

    /// Has a record wait for the block that is being read with it.
    fn wait_for_block(
        &mut self,
        io: &mut Io,
        segment: u32,
        waiter: Waiter,
        block: u32,
    ) -> ReadStart {
        io.counters.reads_merged.add(1);
        self.join_block(io, block, waiter);
        io.shared.unpin(segment);
        ReadStart::Pending
    }

    /// Starts a device read, or joins one.
    fn start(
        &mut self,
        io: &mut Io,
        (segment, generation): (u32, u64),
        waiter: Waiter,
        kind: Kind,
    ) -> ReadStart {
        let sectors = match kind {
            Kind::Around => around_on_flash(io, segment, &waiter),
            Kind::Records | Kind::Alone | Kind::Block => {
                io.shared.geometry.sectors(waiter.offset, waiter.size)
            }
        };
        let slot = recent_slot(segment, sectors.start);
        if let Some(Some(read)) = self.reads.get_mut(self.recent[slot] as usize)
            && read.segment == segment
            && read.start <= sectors.start
            && sectors.end <= read.end
            && read.kind != Kind::Block
        {
            read.more.push(waiter);
            io.counters.reads_merged.add(1);
            io.shared.unpin(segment);
            return ReadStart::Pending;
        }
        let in_flight = self.in_flight();
        if in_flight >= READS_IN_FLIGHT_MAX {
            return ReadStart::Busy;
        }
        let buffer = match io.device.pool().take(sectors.len()) {
            Some(buffer) => buffer,
            // No read will end that could free one: whoever holds them may wait for this very read.
            None if in_flight == 0 => io.device.pool().take_beyond(sectors.len()),
            None => return ReadStart::Busy,
        };
        let index = self.insert(DeviceRead {
            segment,
            generation,
            start: sectors.start,
            end: sectors.end,
            started: io.now(),
            buffer: Some(buffer),
            kind,
            first: Some(waiter),
            more: Vec::new(),
        });
        self.recent[slot] = index;
        self.gathered.push(index);
        ReadStart::Pending
    }

    /// Has reads that begin at a place find one that brings what is there.
    pub(super) fn note_recent(&mut self, (segment, start): (u32, u32), index: u32) {
        self.recent[recent_slot(segment, start)] = index;
    }

    /// Reads begun and not ended, gathered ones included.
    pub(super) fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    /// Reads that the device has not been asked for yet.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.len()
    }

    pub(super) fn insert(&mut self, read: DeviceRead) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() as u32 - 1
        });
        self.reads[index as usize] = Some(read);
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> DeviceRead {
        self.free.push(index);
        self.reads[index as usize].take().expect("invariant: each read ends once")
    }

    pub(super) fn get(&self, index: u32) -> &DeviceRead {
        self.reads[index as usize].as_ref().expect("invariant: the read has not ended")
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut DeviceRead {
        self.reads[index as usize].as_mut().expect("invariant: the read has not ended")
    }

    /// Asks the device for what was gathered.
    pub(super) fn ask(&mut self, io: &mut Io, index: u32) {
        let read = self.get_mut(index);
        let buffer = read.buffer.take().expect("invariant: the device is asked once");
        let (segment, start) = (read.segment, read.start);
        io.counters.device_reads.add(1);
        io.counters.device_read_bytes.add(buffer.bytes().len() as u64);
        io.read(segment, start, buffer, User::Read { index });
    }

    /// A device read has ended. `now` is the time of the turn.
    pub(crate) fn finish(
        &mut self,
        io: &mut Io,
        index: u32,
        (buffer, result): (IoBuffer, Result<(), i32>),
        now: Instant,
        done: &mut Vec<Completion>,
    ) {
        let mut read = self.remove(index);
        if read.first.is_some() || !read.more.is_empty() {
            let us = now.saturating_duration_since(read.started).as_micros();
            io.counters.read_latency.add(us as u64);
        }
        if read.kind == Kind::Block {
            self.finish_block(io, index, read, (buffer, result), done);
        } else if let Err(errno) = result {
            self.fail(io, read, errno, done);
        } else if read.more.is_empty() && read.kind != Kind::Around {
            let waiter = read.first.take().expect("invariant: it was begun for a record");
            let start = (waiter.offset - read.start) as usize;
            let bytes = &buffer.bytes()[start..start + waiter.size];
            let result = verify(io, bytes, &waiter, read.generation)
                .map(|header| FetchedRecord::in_buffer(waiter.at, header, buffer, start));
            done.push(Completion::Read { token: waiter.token, result });
            io.shared.unpin(read.segment);
        } else {
            self.finish_several(io, read, buffer, done);
        }
    }

    /// A device read for several records has brought them.
    fn finish_several(
        &mut self,
        io: &mut Io,
        mut read: DeviceRead,
        buffer: IoBuffer,
        done: &mut Vec<Completion>,
    ) {
        let buffer = Rc::new(buffer);
        let mut asked = Vec::new();
        for waiter in read.take_waiters() {
            let start = (waiter.offset - read.start) as usize;
            let bytes = &buffer.bytes()[start..start + waiter.size];
            if read.kind == Kind::Around {
                asked.push(waiter.at);
            }
            let header = match check(bytes, waiter.at, waiter.size, read.generation) {
                Err(_) if !read.is_only_for(io, &waiter) => {
                    self.read_alone(io, &read, waiter);
                    continue;
                }
                checked => checked.map_err(|what| damaged(io, waiter.at, what)),
            };
            let result = header.map(|header| {
                FetchedRecord::in_shared(waiter.at, header, Rc::clone(&buffer), start)
            });
            done.push(Completion::Read { token: waiter.token, result });
        }
        if read.kind == Kind::Around {
            let start = io.shared.geometry.join(read.segment, read.start);
            let neighbours = Neighbours::new(buffer, start, read.generation, asked);
            done.push(Completion::Neighbours(neighbours));
        }
        io.shared.unpin(read.segment);
    }

    /// A block has been read, or not.
    fn finish_block(
        &mut self,
        io: &mut Io,
        index: u32,
        mut read: DeviceRead,
        (buffer, result): (IoBuffer, Result<(), i32>),
        done: &mut Vec<Completion>,
    ) {
        if let Err(errno) = result {
            self.blocks.forget_read((read.segment, read.start), index);
            self.ahead.end_stream(read.segment, &(read.start..read.end));
            return self.fail(io, read, errno, done);
        }
        for waiter in read.take_waiters() {
            let start = (waiter.offset - read.start) as usize;
            let bytes = &buffer.bytes()[start..start + waiter.size];
            match check(bytes, waiter.at, waiter.size, read.generation) {
                Ok(header) => {
                    let record = FetchedRecord::copied(waiter.at, header, Rc::from(bytes));
                    done.push(Completion::Read { token: waiter.token, result: Ok(record) });
                }
                Err(_) => self.read_alone(io, &read, waiter),
            }
        }
        self.blocks.fill((read.segment, read.start), index, buffer);
        io.shared.unpin(read.segment);
    }

    /// A device read has failed. Records for which it was larger than need be are read alone: their own sectors may be
    /// readable.
    fn fail(&mut self, io: &mut Io, mut read: DeviceRead, errno: i32, done: &mut Vec<Completion>) {
        io.counters.read_errors.add(1);
        let error = io.shared.read_error(read.segment, errno);
        for waiter in read.take_waiters() {
            if read.is_only_for(io, &waiter) {
                done.push(Completion::Read { token: waiter.token, result: Err(error.clone()) });
            } else {
                self.read_alone(io, &read, waiter);
            }
        }
        io.shared.unpin(read.segment);
    }

    /// Reads a record that a larger read did not bring, of which the pin is there still, unless such a read of all its sectors
    /// is under way. Its buffer is taken beyond the bound where need be.
    fn read_alone(&mut self, io: &mut Io, larger: &DeviceRead, waiter: Waiter) {
        let sectors = io.shared.geometry.sectors(waiter.offset, waiter.size);
        let slot = recent_slot(larger.segment, sectors.start);
        if let Some(Some(read)) = self.reads.get_mut(self.recent[slot] as usize)
            && (read.kind, read.segment) == (Kind::Alone, larger.segment)
            && read.start <= sectors.start
            && sectors.end <= read.end
        {
            read.more.push(waiter);
            return;
        }
        io.shared.table.get(larger.segment).pin_again();
        let buffer = io.device.pool().take_beyond(sectors.len());
        let index = self.insert(DeviceRead {
            segment: larger.segment,
            generation: larger.generation,
            start: sectors.start,
            end: sectors.end,
            started: larger.started,
            buffer: Some(buffer),
            kind: Kind::Alone,
            first: Some(waiter),
            more: Vec::new(),
        });
        self.note_recent((larger.segment, sectors.start), index);
        self.ask(io, index);
    }

    /// See `EngineWorker::read_all_blocking`.
    pub(crate) fn read_all_blocking(
        io: &mut Io,
        reads: &[(Location, usize)],
    ) -> Vec<Result<FetchedRecord, EngineError>> {
        let mut begun: Vec<BegunRead> =
            reads.iter().map(|&(at, size)| BegunRead::begin(io, at, size)).collect();
        let on_device = begun.iter_mut().filter_map(BegunRead::device_read);
        let results = io.device.read_all_now(on_device.collect());
        let mut results = results.into_iter();
        begun.into_iter().map(|read| read.finish(io, &mut results)).collect()
    }
}

/// A blocking read that has begun.
enum BegunRead {
    Ended(Result<FetchedRecord, EngineError>),
    /// The device is asked for its sectors, which begin at `start` of the pinned segment.
    OnDevice {
        waiter: Waiter,
        segment: u32,
        start: u32,
        extent: Extent,
        buffer: IoBuffer,
    },
}

impl BegunRead {
    fn begin(io: &mut Io, at: Location, size: usize) -> BegunRead {
        let (segment, offset) = match pin(io, at, size) {
            Ok(place) => place,
            Err(error) => return BegunRead::Ended(Err(error)),
        };
        io.counters.reads.add(1);
        let in_ram = in_ram(io, (segment, offset), at, size);
        let is_large = size > io.shared.geometry.small_record_max();
        if in_ram.is_some() || is_large {
            io.counters.reads_buffered.add(u64::from(in_ram.is_some()));
            let result = in_ram.unwrap_or_else(|| LargeReads::read_blocking(io, at, size));
            io.shared.unpin(segment);
            return BegunRead::Ended(result);
        }
        let sectors = io.shared.geometry.sectors(offset, size);
        let buffer = io.device.pool().take_beyond(sectors.len());
        let extent = io.shared.extent(segment, sectors.start, sectors.len());
        io.counters.device_reads.add(1);
        io.counters.device_read_bytes.add(sectors.len() as u64);
        let waiter = Waiter { at, offset, size, token: 0 };
        BegunRead::OnDevice { waiter, segment, start: sectors.start, extent, buffer }
    }

    fn device_read(&mut self) -> Option<(Extent, &mut IoBuffer)> {
        match self {
            BegunRead::Ended(_) => None,
            BegunRead::OnDevice { extent, buffer, .. } => Some((*extent, buffer)),
        }
    }

    fn finish(
        self,
        io: &Io,
        results: &mut impl Iterator<Item = Result<(), Errno>>,
    ) -> Result<FetchedRecord, EngineError> {
        let BegunRead::OnDevice { waiter, segment, start, buffer, .. } = self else {
            let BegunRead::Ended(result) = self else { unreachable!("it is one of the two") };
            return result;
        };
        let read = results.next().expect("invariant: the device answers each read");
        let generation = io.shared.table.get(segment).generation();
        let result = match read {
            Ok(()) => {
                let start = (waiter.offset - start) as usize;
                let bytes = &buffer.bytes()[start..start + waiter.size];
                let header = verify(io, bytes, &waiter, generation);
                header.map(|header| FetchedRecord::in_buffer(waiter.at, header, buffer, start))
            }
            Err(errno) => {
                io.counters.read_errors.add(1);
                Err(io.shared.read_error(segment, errno))
            }
        };
        io.shared.unpin(segment);
        result
    }
}

/// Counts a read in at its segment. Errors: there is no record.
fn pin(io: &Io, at: Location, size: usize) -> Result<(u32, u32), EngineError> {
    let gone = EngineError::Gone { units: at.units() };
    if size < RECORD_HEADER_BYTES {
        return Err(gone);
    }
    let Some((segment, offset)) = io.shared.split(at, size) else { return Err(gone) };
    if io.shared.table.get(segment).pin() { Ok((segment, offset)) } else { Err(gone) }
}

/// The same for one record, and not for another that has taken its place. Pinned, a segment keeps
/// its generation.
fn pin_record(io: &Io, record: RecordId, size: usize) -> Result<(u32, u32), EngineError> {
    let (segment, offset) = pin(io, record.at, size)?;
    if io.shared.table.get(segment).generation() != record.generation {
        io.shared.unpin(segment);
        return Err(EngineError::Gone { units: record.at.units() });
    }
    Ok((segment, offset))
}

/// Looks for a record among what is not on flash yet; `None` when it is on flash.
fn in_ram(
    io: &Io,
    (index, offset): (u32, u32),
    at: Location,
    size: usize,
) -> Option<Result<FetchedRecord, EngineError>> {
    let segment = io.shared.table.get(index);
    if u64::from(offset) + size as u64 <= u64::from(segment.flushed()) {
        return None;
    }
    let found = segment.pending.lock().find(offset, size as u32);
    match found {
        Found::OnFlash => None,
        Found::Lost => Some(Err(EngineError::Gone { units: at.units() })),
        Found::Whole(record) => Some(Ok(FetchedRecord::owned(at, record))),
        Found::Copied(bytes) => Some(match Header::decode(&bytes) {
            Ok(header) if header.record_size() == size => {
                Ok(FetchedRecord::copied(at, header, bytes))
            }
            // Not damage: the bytes never left RAM. The location is not one that `append` gave.
            _ => Err(EngineError::Gone { units: at.units() }),
        }),
    }
}

/// The sectors of a record and around it, as far as they are on flash.
fn around_on_flash(io: &Io, segment: u32, waiter: &Waiter) -> Range<u32> {
    let geometry = &io.shared.geometry;
    let sectors = geometry.sectors(waiter.offset, waiter.size);
    let start = waiter.offset.saturating_sub(AROUND_BYTES);
    let around = geometry.sectors(start, waiter.size + 2 * AROUND_BYTES as usize);
    let flushed = io.shared.table.get(segment).flushed().min(geometry.data_end());
    let end = geometry.sector_down(u64::from(flushed)) as u32;
    // Behind a gap, which is being written, lies what is on flash by itself.
    if sectors.end > end { sectors } else { around.start..around.end.min(end) }
}

impl DeviceRead {
    pub(super) fn place(&self) -> (u32, u32) {
        (self.segment, self.start)
    }

    /// Takes those who wait for it, in their order.
    fn take_waiters(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        self.first.take().into_iter().chain(std::mem::take(&mut self.more))
    }

    /// The sectors of the records that are asked for.
    pub(super) fn asked_sectors(&self, io: &Io) -> Range<u32> {
        if self.kind != Kind::Around {
            return self.start..self.end;
        }
        let waiters = self.first.iter().chain(&self.more);
        let sectors = waiters.map(|waiter| io.shared.geometry.sectors(waiter.offset, waiter.size));
        let both =
            |one: Range<u32>, other: Range<u32>| one.start.min(other.start)..one.end.max(other.end);
        sectors.reduce(both).unwrap_or(self.start..self.end)
    }

    /// Whether it brings a record's sectors and no others.
    fn is_only_for(&self, io: &Io, waiter: &Waiter) -> bool {
        io.shared.geometry.sectors(waiter.offset, waiter.size) == (self.start..self.end)
    }
}

/// Checks a record that was read. Errors: what is wrong with it.
fn check(bytes: &[u8], at: Location, size: usize, generation: u64) -> Result<Header, &'static str> {
    let header = record::verify(bytes, Place { at, generation })?;
    if header.record_size() == size { Ok(header) } else { Err("length") }
}

/// The same of one that nothing else can bring.
fn verify(io: &Io, bytes: &[u8], waiter: &Waiter, generation: u64) -> Result<Header, EngineError> {
    check(bytes, waiter.at, waiter.size, generation).map_err(|what| damaged(io, waiter.at, what))
}

/// Counts a damaged record, and says so.
fn damaged(io: &Io, at: Location, what: &'static str) -> EngineError {
    io.counters.checksum_failures.add(1);
    io.shared.corrupted(at, what)
}

fn recent_slot(segment: u32, start: u32) -> usize {
    // Fibonacci hashing: spreads multiples of the sector over the high bits.
    let mixed = (u64::from(segment) << 32 | u64::from(start)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (u64::BITS - RECENT.ilog2())) as usize
}
