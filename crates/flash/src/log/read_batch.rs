//! The end of a turn: the device is asked for the reads that were gathered, sorted by their place.
//!
//! Reads whose sectors touch become one; for who walks over flash in order, also those with a gap in between. A read that
//! follows others brings the block around it (`read_ahead`), and those of the turn that lie in it wait for that.

use std::ops::Range;

use super::io::Io;
use super::read::{DeviceRead, Kind, Reader, Waiter};
use super::read_ahead::{BLOCK_BYTES, block_range};
use crate::device::buffer::IoBuffer;
use crate::limits::READS_IN_FLIGHT_MAX;

/// Bytes of neighbours that are read at once: as those of a block that is read ahead.
const RUN_BYTES_MAX: u32 = BLOCK_BYTES;
/// What a stream comes to is read ahead in as many parts: a request to the drive costs microseconds, however large it is.
const AHEAD_PARTS: usize = 4;

impl Reader {
    /// Asks the device for all that was gathered.
    pub(crate) fn begin(&mut self, io: &mut Io) {
        // Who walks over flash in order asks for all that it wants.
        let reads_ahead = io.shared.reads_ahead() && self.gap_bytes == 0;
        let is_idle = self.ahead.ends_all();
        if !self.blocks.is_empty() && (is_idle || !reads_ahead) {
            self.blocks.clear();
        }
        if !self.gathered.is_empty() {
            let mut gathered = std::mem::take(&mut self.gathered);
            if gathered.len() > 1 {
                gathered.sort_unstable_by_key(|&index| self.get(index).place());
            }
            let mut begins_any = false;
            gathered.retain(|&index| {
                let is_joined = self.has_joined_block(io, index);
                let begins = !is_joined && reads_ahead && self.has_begun_block(io, index);
                begins_any |= begins;
                !is_joined && !begins
            });
            if begins_any {
                // A block that was begun for a read may hold those before it: a stream begins at the last of a few.
                gathered.retain(|&index| !self.has_joined_block(io, index));
            }
            self.begin_runs(io, &gathered);
            gathered.clear();
            self.gathered = gathered;
        }
        io.counters.block_cache_bytes.set(self.blocks.bytes() as u64);
    }

    // Neighbours.

    /// Begins reads, in the order of their places.
    fn begin_runs(&mut self, io: &mut Io, gathered: &[u32]) {
        let mut rest = gathered;
        while !rest.is_empty() {
            let (run, more) = rest.split_at(self.run_len(rest));
            rest = more;
            self.begin_run(io, run);
        }
    }

    /// How many of the first reads touch, or nearly so.
    fn run_len(&self, reads: &[u32]) -> usize {
        let first = self.get(reads[0]);
        let mut end = first.end;
        let touches = |&&index: &&u32| {
            let next = self.get(index);
            let touches = next.segment == first.segment
                && next.start <= end.saturating_add(self.gap_bytes)
                && next.end - first.start <= RUN_BYTES_MAX;
            end = end.max(next.end);
            touches
        };
        1 + reads[1..].iter().take_while(touches).count()
    }

    /// Begins reads that touch: as one, if there is a buffer for that.
    fn begin_run(&mut self, io: &mut Io, run: &[u32]) {
        let start = self.get(run[0]).start;
        let end = run.iter().map(|&index| self.get(index).end).max().unwrap_or(start);
        let size = (end - start) as usize;
        let buffer = if run.len() > 1 { io.device.pool().take_slot(size) } else { None };
        let Some(buffer) = buffer else {
            return run.iter().for_each(|&index| self.ask(io, index));
        };
        for &index in &run[1..] {
            io.counters.reads_merged.add(1);
            self.note_recent(self.get(index).place(), run[0]);
            let kind = self.get(index).kind;
            let joined = self.dissolve(io, index);
            let first = self.get_mut(run[0]);
            first.more.extend(joined);
            if kind == Kind::Around {
                first.kind = kind;
            }
        }
        let first = self.get_mut(run[0]);
        first.end = end;
        first.buffer = Some(buffer);
        self.ask(io, run[0]);
    }

    /// Ends a gathered read whose records another brings, of the same segment, which is pinned for that. Returns those
    /// who wait for it.
    fn dissolve(&mut self, io: &Io, index: u32) -> impl Iterator<Item = Waiter> + use<> {
        let DeviceRead { segment, first, more, .. } = self.remove(index);
        io.shared.unpin(segment);
        first.into_iter().chain(more)
    }

    // Blocks.

    /// Has a record wait for a block that is being read. Its segment is pinned for that.
    pub(super) fn join_block(&mut self, io: &mut Io, index: u32, waiter: Waiter) {
        let read = self.get_mut(index);
        let place = (read.segment, read.generation);
        let used = (waiter.offset, waiter.size as u32);
        read.more.push(waiter);
        self.note_use(io, place, used);
    }

    /// Has the records of a gathered read wait for a block that is being read, if one has them.
    fn has_joined_block(&mut self, io: &mut Io, index: u32) -> bool {
        if self.blocks.is_empty() {
            return false;
        }
        let read = self.get(index);
        let (place, range) = ((read.segment, read.generation), read.asked_sectors(io));
        let Some(block) = self.blocks.find_read(place, &range) else { return false };
        io.counters.reads_merged.add(1);
        self.dissolve(io, index).for_each(|waiter| self.join_block(io, block, waiter));
        true
    }

    /// Reads the block around a gathered read in its place, where reads follow each other.
    fn has_begun_block(&mut self, io: &mut Io, index: u32) -> bool {
        let read = self.get(index);
        let (place, sectors) = ((read.segment, read.generation), read.asked_sectors(io));
        let Some(window) = self.ahead.note_read(place.0, &sectors) else { return false };
        let Some(block) = self.begin_block(io, place, window, &sectors) else { return false };
        let waiters = self.dissolve(io, index);
        for waiter in waiters {
            self.blocks.note_asked(place.0, waiter.offset, waiter.size as u32);
            self.get_mut(block).more.push(waiter);
        }
        true
    }

    /// Notes that a record is served from the block at an offset, so many bytes, and reads what comes next.
    pub(super) fn note_use(&mut self, io: &mut Io, place: (u32, u64), (offset, bytes): (u32, u32)) {
        io.counters.read_ahead_used_bytes.add(u64::from(bytes));
        let Some(block) = self.blocks.note_use(place.0, offset, bytes) else {
            return self.ahead.earn(bytes);
        };
        if !io.shared.reads_ahead() {
            return;
        }
        let mut next = std::mem::take(&mut self.next_blocks);
        self.find_next_blocks(io, place, &block, &mut next);
        for (place_of_next, number) in next.drain(..) {
            let range = block_range(number);
            let has_begun = self.begin_block(io, place_of_next, range, &(0..0)).is_some();
            if has_begun && place_of_next != place {
                self.ahead.go_on((place.0, &block), (place_of_next.0, number));
            }
        }
        self.next_blocks = next;
    }

    /// Finds the blocks to be read now that one is used for the first time, which are not there: none, unless they are as many
    /// as are worth the call, or the next is among them, or there are no others. What is asked for together is one request to the
    /// drive.
    fn find_next_blocks(
        &mut self,
        io: &Io,
        place: (u32, u64),
        block: &Range<u32>,
        next: &mut Vec<((u32, u64), u32)>,
    ) {
        let (mut is_next_there, mut is_end) = (true, false);
        let numbers = self.ahead.note_use(place.0, block, self.blocks.look_ups());
        let least = numbers.len() / AHEAD_PARTS;
        for (distance, number) in numbers.enumerate() {
            let Some((place, number)) = in_order_of_writing(io, place, number) else {
                is_end = true;
                break;
            };
            if !self.blocks.overlaps(place.0, &block_range(number)) {
                is_next_there &= distance > 0;
                next.push((place, number));
            }
        }
        if is_next_there && !is_end && next.len() < least {
            next.clear();
        }
    }

    /// Reads a block, as far as it is on flash, for sectors in it that were asked for. Returns the number of the device
    /// read; none: it cannot be read now.
    fn begin_block(
        &mut self,
        io: &mut Io,
        (segment, generation): (u32, u64),
        window: Range<u32>,
        sectors: &Range<u32>,
    ) -> Option<u32> {
        if self.in_flight() >= READS_IN_FLIGHT_MAX || self.blocks.is_reading(segment, &window) {
            return None;
        }
        let entry = io.shared.table.get(segment);
        if !entry.pin() {
            return None;
        }
        let geometry = &io.shared.geometry;
        let end = window.end.min(geometry.data_end()).min(entry.flushed());
        let end = geometry.sector_down(u64::from(end)) as u32;
        let is_there = entry.generation() == generation && window.start < end && sectors.end <= end;
        let range = window.start..end;
        let buffer = if is_there { self.take_block_buffer(io, range.len()) } else { None };
        let Some(buffer) = buffer else {
            io.shared.unpin(segment);
            return None;
        };
        let ahead_bytes = (range.len() - sectors.len()) as u32;
        self.ahead.pay(ahead_bytes);
        io.counters.read_ahead_bytes.add(u64::from(ahead_bytes));
        let index = self.insert(DeviceRead {
            segment,
            generation,
            start: range.start,
            end: range.end,
            started: io.now(),
            buffer: Some(buffer),
            kind: Kind::Block,
            first: None,
            more: Vec::new(),
        });
        self.blocks.begin((segment, generation), range, index);
        self.ask(io, index);
        Some(index)
    }

    /// Says how much memory blocks may take now, of a share that they may come to.
    pub(crate) fn bound_blocks(&mut self, bytes: usize, share: usize) {
        self.ahead.set_kept_bytes_max(share);
        // For want of memory: that says nothing of what was read ahead.
        self.blocks.set_bytes_max(bytes, share);
    }

    fn take_block_buffer(&mut self, io: &Io, size: usize) -> Option<IoBuffer> {
        let Self { ahead, blocks, .. } = self;
        blocks.take_buffer(io.device.pool(), size, |evicted| ahead.note_eviction(&evicted))
    }
}

/// Where a block is that a segment may not have: below its first in the segment that was filled before, beyond its last in
/// the one after. None: that is not known, or further off.
fn in_order_of_writing(io: &Io, place: (u32, u64), number: i32) -> Option<((u32, u64), u32)> {
    let blocks = io.shared.geometry.data_end().div_ceil(BLOCK_BYTES) as i32;
    if (0..blocks).contains(&number) {
        return Some((place, number as u32));
    }
    let table = &io.shared.table;
    let (segment, number) = if number < 0 {
        (table.filled_before(place.0)?, number + blocks)
    } else {
        (table.filled_next(place.0)?, number - blocks)
    };
    let is_there = (0..blocks).contains(&number);
    is_there.then(|| ((segment, table.get(segment).generation()), number as u32))
}
