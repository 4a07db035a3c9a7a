//! How records come back: from a write buffer, or by one device read of exactly their sectors.
//!
//! Two reads of the same sectors share one device read while it is in flight: a small table
//! remembers for the recent reads where they began. It is a cache, not an index: an entry that was
//! overwritten costs a second device read.
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
//! 5. A blocking read takes its buffers beyond the bound, one for each record of a few, and waits for the
//!    drive alone.
//!
//! So a read waits for reads in flight, a gc run for its reads and for writes, a write for
//! writes in flight: no circle. What is taken beyond the bound is one small buffer for each
//! value that a caller holds already, and one piece. Whoever holds values must not wait for
//! anything but its own reads: the tier's callers let go of their buffers first.

use std::rc::Rc;
use std::time::Instant;

use super::io::{Io, User};
use super::large_read::LargeReads;
use super::segment::Found;
use crate::device::buffer::IoBuffer;
use crate::device::{Errno, Extent};
use crate::engine::fetched::FetchedRecord;
use crate::engine::{Completion, ReadStart};
use crate::error::EngineError;
use crate::limits::READS_IN_FLIGHT_MAX;
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
    pub(crate) large: LargeReads,
}

/// A device read in flight.
struct DeviceRead {
    segment: u32,
    generation: u64,
    /// Where it begins in the segment, in bytes.
    start: u32,
    end: u32,
    started: Instant,
    first: Waiter,
    more: Vec<Waiter>,
}

/// A read of the tier's.
struct Waiter {
    at: Location,
    offset: u32,
    size: usize,
    token: u64,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            reads: Vec::new(),
            free: Vec::new(),
            recent: vec![0; RECENT],
            large: LargeReads::default(),
        }
    }

    /// See `EngineWorker::read`.
    pub(crate) fn read(
        &mut self,
        io: &mut Io,
        record: RecordId,
        size: usize,
        token: u64,
    ) -> ReadStart {
        let at = record.at;
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
            None => self.start(io, (segment, offset), Waiter { at, offset, size, token }),
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

    /// Starts a device read, or joins one.
    fn start(&mut self, io: &mut Io, (segment, offset): (u32, u32), waiter: Waiter) -> ReadStart {
        let sectors = io.shared.geometry.sectors(offset, waiter.size);
        let slot = recent_slot(segment, sectors.start);
        if let Some(Some(read)) = self.reads.get_mut(self.recent[slot] as usize)
            && read.segment == segment
            && read.start <= sectors.start
            && sectors.end <= read.end
        {
            read.more.push(waiter);
            io.counters.reads_merged.add(1);
            io.shared.unpin(segment);
            return ReadStart::Pending;
        }
        let in_flight = self.reads.len() - self.free.len();
        if in_flight == READS_IN_FLIGHT_MAX {
            return ReadStart::Busy;
        }
        let pool = io.device.pool();
        let buffer = match pool.take(sectors.len()) {
            Some(buffer) => buffer,
            // No read will end that could free one: whoever holds them may wait for this very read.
            None if in_flight == 0 => pool.take_beyond(sectors.len()),
            None => return ReadStart::Busy,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() as u32 - 1
        });
        self.recent[slot] = index;
        self.reads[index as usize] = Some(DeviceRead {
            segment,
            generation: io.shared.table.get(segment).generation(),
            start: sectors.start,
            end: sectors.end,
            started: io.now(),
            first: waiter,
            more: Vec::new(),
        });
        io.counters.device_reads.add(1);
        io.counters.device_read_bytes.add(sectors.len() as u64);
        io.read(segment, sectors.start, buffer, User::Read { index });
        ReadStart::Pending
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
        let read = self.reads[index as usize].take().expect("invariant: each read ends once");
        self.free.push(index);
        let us = now.saturating_duration_since(read.started).as_micros();
        io.counters.read_latency.add(us as u64);
        if let Err(errno) = result {
            io.counters.read_errors.add(1);
            let error = io.shared.read_error(read.segment, errno);
            for waiter in std::iter::once(read.first).chain(read.more) {
                done.push(Completion::Read { token: waiter.token, result: Err(error.clone()) });
            }
        } else if read.more.is_empty() {
            let waiter = read.first;
            let start = (waiter.offset - read.start) as usize;
            let result = verify(io, buffer.bytes(), start, &waiter, read.generation)
                .map(|header| FetchedRecord::in_buffer(waiter.at, header, buffer, start));
            done.push(Completion::Read { token: waiter.token, result });
        } else {
            let buffer = Rc::new(buffer);
            for waiter in std::iter::once(read.first).chain(read.more) {
                let start = (waiter.offset - read.start) as usize;
                let shared = Rc::clone(&buffer);
                let result = verify(io, buffer.bytes(), start, &waiter, read.generation)
                    .map(|header| FetchedRecord::in_shared(waiter.at, header, shared, start));
                done.push(Completion::Read { token: waiter.token, result });
            }
        }
        io.shared.unpin(read.segment);
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
                let header = verify(io, buffer.bytes(), start, &waiter, generation);
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

/// Checks a record in the middle of what was read.
fn verify(
    io: &Io,
    bytes: &[u8],
    start: usize,
    waiter: &Waiter,
    generation: u64,
) -> Result<Header, EngineError> {
    let place = Place { at: waiter.at, generation };
    let bytes = &bytes[start..start + waiter.size];
    let header = record::verify(bytes, place).and_then(|header| {
        if header.record_size() == waiter.size { Ok(header) } else { Err("length") }
    });
    header.map_err(|what| {
        io.counters.checksum_failures.add(1);
        io.shared.corrupted(waiter.at, what)
    })
}

fn recent_slot(segment: u32, start: u32) -> usize {
    // Fibonacci hashing: spreads multiples of the sector over the high bits.
    let mixed = (u64::from(segment) << 32 | u64::from(start)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (u64::BITS - RECENT.ilog2())) as usize
}
