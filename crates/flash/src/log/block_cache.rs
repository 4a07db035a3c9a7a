//! Blocks that were read ahead, kept for the records in them.
//!
//! They take memory of their own, as much as the owner of the engine allows them
//! (`EngineWorker::bound_block_cache`): the clients of a walk drift apart by more the more there is to walk over, and a
//! block that goes before all of them have passed it was read for a few. A block of which all was used goes first, so that
//! where clients stay together little memory is taken, and stays until then, for the last of them. Records are copied out, so
//! that nobody but the cache holds a block, and to give one up frees its memory, or hands it to the next.
//!
//! # Why nothing stale is served
//!
//! A sector of a segment is written once per generation, before `flushed` passes it. A block holds
//! sectors below that mark, read while the segment was pinned, so all of one generation, which it
//! remembers: what it holds is what they hold until that generation ends. Whoever asks names the
//! generation of its record; a block of another is never looked into. So the record is the one that was asked for, be its
//! segment freed since or not: nobody has to pin it. And a record is checked in its place like any that was read, so what
//! was damaged on its way is not served either: it is read again by itself.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use slab::Slab;
use stdx::prefetch::prefetch_lines;

use super::format::SEGMENT_HEADER_BYTES;
use super::read_ahead::BLOCK_BYTES;
use crate::device::buffer::{IoBuffer, ReadPool};

/// What a worker's blocks may take until its owner says otherwise.
pub(crate) const BYTES_MAX_AT_FIRST: usize = 1 << 20;
/// Blocks that go at a time when there are too many: 4 MiB, so that nobody waits for it.
const EVICTED_AT_ONCE_MAX: usize = 64;
/// A block that was not used for so many times as long as one stays goes though nothing else is to be read ahead.
const STAYS_IDLE: u64 = 16;
/// Blocks take more than at first while at least this part of all look-ups was served from them, 1/8, of so many: else what is
/// read is near other reads by chance, and values in RAM serve more.
const PAYS_SHIFT: u32 = 3;
const JUDGED_LOOK_UPS: u64 = 1024;
/// So often is a bound set without a look-up in between before blocks go, one at a time.
const IDLE_BOUNDS: u32 = 200;
/// A block is used up when all was served of it, by pieces of so many bytes: a client that walks beside others and is the last
/// of them finds what it comes to. One that has to read it by itself waits for each block, and falls behind for good. The
/// pieces are so small that a record of 128 bytes has one to itself. Those of zeros alone need not be served: a write buffer that
/// ends, or is flushed, has them up to the end of its last sector. (A record of zeros that nobody has asked for yet may pass for
/// padding; it is read again then.)
const PIECE_BYTES: u32 = 64;
/// For padding is looked where no more than so many pieces were not served: 4 KiB, a sector of the largest size.
const PADDING_PIECES_MAX: u32 = 64;
/// A block counts as so many bytes at least: an end of what is on flash may be short.
const COUNTED_BYTES_MIN: usize = 4 << 10;
/// For each block of the largest size that may be kept, a block stays for so many look-ups behind its last use, whatever
/// else is to be read ahead: clients that have drifted apart by more than is kept would else push out each other's blocks before
/// anything in them is used.
const STAYS_LOOK_UPS: usize = 16;
/// Cache lines of a record that are asked for ahead: one of 512 bytes.
const PREFETCH_LINES: usize = 10;
/// Blocks that are used up and stay until their memory is used again: to allocate and zero it takes more CPU than to read into
/// it.
const USED_UP_MAX: usize = 16;
/// How many are noted whenever all blocks are looked at for those that were not used for longest: with blocks of the largest
/// size one look is for a megabyte that is read ahead, and costs a microsecond for each 16 MiB of them.
const OLDEST_MAX: usize = 16;

/// The blocks of one worker. Those that are being read are among them.
pub(crate) struct BlockCache {
    blocks: Slab<Block>,
    /// Their keys in that, by where they begin. None overlaps another.
    keys: BTreeMap<Place, usize>,
    /// The key of the one that was found last: most look-ups are near the one before.
    found: Cell<usize>,
    /// Where blocks have been used up. Some of them may be gone.
    used_up: VecDeque<Place>,
    bytes: usize,
    bytes_max: usize,
    /// For so many look-ups a block stays.
    stays: u64,
    /// Counts look-ups.
    clock: u64,
    /// The same when a bound was last set, and how often in a row one was set without a look-up in between.
    bounded_at: u64,
    idle_bounds: u32,
    /// Look-ups when it was last judged whether blocks pay, those that were served from them since, and what came of it.
    judged_at: u64,
    served: u64,
    pays: bool,
    /// The blocks that were not used for longest, with when they were used last, the oldest behind: as of when all were
    /// looked at.
    oldest: Vec<(u64, Place)>,
}

#[derive(Copy, Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    segment: u32,
    start: u32,
}

struct Block {
    place: Place,
    end: u32,
    generation: u64,
    content: Content,
    /// Bytes of records that were served from it, besides those it was read for.
    used_bytes: u32,
    /// Of which pieces some was served.
    used: PieceSet,
    /// Whether all of it but padding was served.
    is_used_up: bool,
    used_at: u64,
}

enum Content {
    /// The number of the device read that brings it.
    Reading(u32),
    Ready(IoBuffer),
}

/// A block that was given up.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Evicted {
    pub(crate) segment: u32,
    pub(crate) range: Range<u32>,
    /// As in the block: a record counts as often as it was served.
    pub(crate) used_bytes: u32,
    /// Of what was served at all, also to those it was read for, in whole pieces.
    pub(crate) served_bytes: u32,
}

/// What is there of a record.
pub(crate) enum Cached {
    Missing,
    /// A device read is under way that brings it.
    Reading(u32),
    /// Its bytes, unchecked.
    Ready(Rc<[u8]>),
}

impl Default for BlockCache {
    fn default() -> Self {
        BlockCache {
            blocks: Slab::new(),
            keys: BTreeMap::new(),
            found: Cell::new(0),
            used_up: VecDeque::new(),
            bytes: 0,
            bytes_max: BYTES_MAX_AT_FIRST,
            stays: stays_of(BYTES_MAX_AT_FIRST),
            clock: 0,
            bounded_at: 0,
            idle_bounds: 0,
            judged_at: 0,
            served: 0,
            pays: false,
            oldest: Vec::new(),
        }
    }
}

impl BlockCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn look_ups(&self) -> u64 {
        self.clock
    }

    /// Memory of all blocks, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Says how much memory blocks may take, of a share that they may come to in all: to be called every few milliseconds. Those
    /// that are too many go, some at a time, and so do those that nobody has used for long.
    pub(crate) fn set_bytes_max(&mut self, bytes: usize, share: usize) {
        self.judge();
        let bytes = if self.pays { bytes } else { bytes.min(BYTES_MAX_AT_FIRST) };
        (self.bytes_max, self.stays) = (bytes, stays_of(share));
        let is_idle = std::mem::replace(&mut self.bounded_at, self.clock) == self.clock;
        self.idle_bounds = if is_idle { self.idle_bounds.saturating_add(1) } else { 0 };
        let mut places_left = EVICTED_AT_ONCE_MAX;
        let used_up_max = if is_idle { 0 } else { USED_UP_MAX };
        // Else those that stay would come to be places of blocks that have gone.
        self.used_up.retain(|&place| is_used_up(&self.keys, &self.blocks, place));
        while self.used_up.len() > used_up_max && places_left > 0 {
            let oldest = self.used_up.pop_front();
            let is_there = |place: &Place| is_used_up(&self.keys, &self.blocks, *place);
            oldest.filter(is_there).map(|place| self.remove(place));
            places_left -= 1;
        }
        while self.bytes > bytes && places_left > 0 && self.evict_unused(0).is_some() {
            places_left -= 1;
        }
        let stays = if self.idle_bounds > IDLE_BOUNDS { 0 } else { STAYS_IDLE * self.stays };
        self.evict_unused(stays);
    }

    /// Whether blocks pay, by what was served from them.
    fn judge(&mut self) {
        let look_ups = self.clock - self.judged_at;
        if look_ups >= JUDGED_LOOK_UPS {
            self.judged_at = self.clock;
            self.pays = std::mem::take(&mut self.served) >= look_ups >> PAYS_SHIFT;
        }
    }

    /// Looks for the bytes of a record. They may stand in two blocks.
    pub(crate) fn find(
        &mut self,
        (segment, generation): (u32, u64),
        offset: u32,
        size: usize,
    ) -> Cached {
        self.clock += 1;
        let end = offset + size as u32;
        let of_generation = |at: u32| {
            let found = self.block_at(segment, at);
            found.filter(|block| block.generation == generation)
        };
        let Some(block) = of_generation(offset) else { return Cached::Missing };
        let bytes = match &block.content {
            Content::Reading(read) if end <= block.end => return Cached::Reading(*read),
            Content::Reading(_) => return Cached::Missing,
            Content::Ready(buffer) => &buffer.bytes()[(offset - block.place.start) as usize..],
        };
        if end <= block.end {
            return Cached::Ready(Rc::from(&bytes[..size]));
        }
        match of_generation(block.end).map(|next| (&next.content, next.end)) {
            Some((Content::Ready(more), next_end)) if end <= next_end => {
                Cached::Ready([bytes, &more.bytes()[..size - bytes.len()]].concat().into())
            }
            _ => Cached::Missing,
        }
    }

    /// Asks for the lines of a record of about so many bytes, where it is there.
    pub(crate) fn prefetch(&self, segment: u32, offset: u32, bytes: usize) {
        if self.blocks.is_empty() {
            return;
        }
        if let Some(block) = self.block_at(segment, offset)
            && let Content::Ready(buffer) = &block.content
        {
            let from = &buffer.bytes()[(offset - block.place.start) as usize..];
            prefetch_lines(&from[..bytes.min(from.len())], PREFETCH_LINES);
        }
    }

    /// The device read under way that brings a range.
    pub(crate) fn find_read(
        &self,
        (segment, generation): (u32, u64),
        range: &Range<u32>,
    ) -> Option<u32> {
        let block = self.block_at(segment, range.start)?;
        match block.content {
            Content::Reading(read) if block.generation == generation && range.end <= block.end => {
                Some(read)
            }
            _ => None,
        }
    }

    /// The block that has what is at an offset of a segment.
    fn block_at(&self, segment: u32, offset: u32) -> Option<&Block> {
        Some(&self.blocks[self.key_at(segment, offset)?])
    }

    fn key_at(&self, segment: u32, offset: u32) -> Option<usize> {
        let has_it = |key: &usize| self.blocks.get(*key).is_some_and(|it| it.has(segment, offset));
        Some(self.found.get()).filter(has_it).or_else(|| {
            let (_, &key) = self.keys.range(..=Place { segment, start: offset }).next_back()?;
            has_it(&key).then(|| self.found.set(key))?;
            Some(key)
        })
    }

    /// The blocks that have some of a range.
    fn overlapping(&self, segment: u32, range: &Range<u32>) -> impl Iterator<Item = &Block> {
        let first = self.block_at(segment, range.start).map_or(range.start, |it| it.place.start);
        let last = range.end.max(first);
        let places = Place { segment, start: first }..Place { segment, start: last };
        self.keys.range(places).map(|(_, &key)| &self.blocks[key])
    }

    /// Notes that a record was served from the block at an offset, and from the next where it ends in that. Returns where the
    /// first is when it is the first record that begins in it.
    pub(crate) fn note_use(&mut self, segment: u32, offset: u32, bytes: u32) -> Option<Range<u32>> {
        let block = self.use_bytes(segment, offset, bytes)?;
        let range = block.place.start..block.end;
        let is_first = block.used_bytes == 0;
        block.used_bytes = block.used_bytes.saturating_add(bytes);
        self.served += 1;
        if offset + bytes > range.end {
            self.use_bytes(segment, range.end, offset + bytes - range.end);
        }
        is_first.then_some(range)
    }

    /// Notes that the record for which a block is read will be served from it.
    pub(crate) fn note_asked(&mut self, segment: u32, offset: u32, bytes: u32) {
        self.use_bytes(segment, offset, bytes);
    }

    /// Notes that so many bytes from an offset on were served, as far as the block there goes, which it returns.
    fn use_bytes(&mut self, segment: u32, offset: u32, bytes: u32) -> Option<&mut Block> {
        let key = self.key_at(segment, offset)?;
        let block = &mut self.blocks[key];
        block.note_use(offset - block.place.start, bytes.min(block.end - offset));
        block.used_at = self.clock;
        if block.becomes_used_up() {
            self.used_up.push_back(block.place);
        }
        Some(block)
    }

    /// Whether there is a block that has some of a range, or is to have.
    pub(crate) fn overlaps(&self, segment: u32, range: &Range<u32>) -> bool {
        self.overlapping(segment, range).next().is_some()
    }

    /// Whether one that has some of it is being read.
    pub(crate) fn is_reading(&self, segment: u32, range: &Range<u32>) -> bool {
        self.overlapping(segment, range).any(|block| !block.is_ready())
    }

    /// Takes memory for a block, if there is room. Blocks that are used up, or were not used lately, go for it, each of
    /// which is given to `evicted`.
    pub(crate) fn take_buffer(
        &mut self,
        pool: &ReadPool,
        size: usize,
        mut evicted: impl FnMut(Evicted),
    ) -> Option<IoBuffer> {
        // Memory that has been in use needs not be zeroed, nor faulted in.
        let mut spare = None;
        let mut give_up = |(one, content): (Evicted, Content)| {
            if let Content::Ready(buffer) = content
                && buffer.bytes().len() == size
            {
                spare = Some(buffer);
            }
            evicted(one);
        };
        self.evict_used_up().map(&mut give_up);
        if counted_bytes(size) > self.bytes_max {
            return None;
        }
        while self.bytes + counted_bytes(size) > self.bytes_max {
            give_up(self.evict_used_up().or_else(|| self.evict_unused(self.stays))?);
        }
        Some(spare.unwrap_or_else(|| pool.take_apart(size)))
    }

    /// Puts a block in that a device read is to bring, in place of those that it covers.
    pub(crate) fn begin(
        &mut self,
        (segment, generation): (u32, u64),
        range: Range<u32>,
        read: u32,
    ) {
        let covered: Vec<Place> =
            self.overlapping(segment, &range).map(|block| block.place).collect();
        for place in covered {
            self.remove(place);
        }
        self.bytes += counted_bytes(range.len());
        let place = Place { segment, start: range.start };
        let mut block = Block {
            place,
            end: range.end,
            generation,
            content: Content::Reading(read),
            used_bytes: 0,
            used: PieceSet::default(),
            is_used_up: false,
            used_at: self.clock,
        };
        if range.start == 0 {
            block.note_use(0, SEGMENT_HEADER_BYTES as u32);
        }
        self.keys.insert(place, self.blocks.insert(block));
    }

    /// The device read of the block that begins at a place has ended well.
    pub(crate) fn fill(&mut self, (segment, start): (u32, u32), read: u32, buffer: IoBuffer) {
        let Some(&key) = self.keys.get(&Place { segment, start }) else { return };
        let block = &mut self.blocks[key];
        if block.is_read_by(read) {
            block.content = Content::Ready(buffer);
            // By those who have waited for it.
            if block.becomes_used_up() {
                self.used_up.push_back(block.place);
            }
        }
    }

    /// The device read of the block that begins at a place has failed.
    pub(crate) fn forget_read(&mut self, (segment, start): (u32, u32), read: u32) {
        let place = Place { segment, start };
        if self.keys.get(&place).is_some_and(|&key| self.blocks[key].is_read_by(read)) {
            self.remove(place);
        }
    }

    /// Gives up the blocks that have some of a range and are not being read.
    pub(crate) fn discard(&mut self, segment: u32, range: &Range<u32>) {
        let ready = self.overlapping(segment, range).filter(|block| block.is_ready());
        let places: Vec<Place> = ready.map(|block| block.place).collect();
        for place in places {
            self.remove(place);
        }
    }

    /// Gives up all that is not being read.
    pub(crate) fn clear(&mut self) {
        self.used_up.clear();
        self.oldest = Vec::new();
        self.blocks.retain(|_, block| !block.is_ready());
        self.keys.retain(|_, key| self.blocks.contains(*key));
        self.blocks.shrink_to_fit();
        self.bytes = self.blocks.iter().map(|(_, block)| block.counted_bytes()).sum();
    }

    /// Gives up a block that is used up, the last that came to be.
    fn evict_used_up(&mut self) -> Option<(Evicted, Content)> {
        loop {
            let place = self.used_up.pop_back()?;
            if is_used_up(&self.keys, &self.blocks, place) {
                return Some(self.remove(place));
            }
        }
    }

    /// Gives up the block that was not used for longest, if that is for so many look-ups. (Not just one that was not: where
    /// some records are in RAM, no block is ever used up, and of those that stay the newest are still waited for, by clients
    /// that have fallen behind. Those would read them again, fall behind further, and so on: a walk of GETs of which one in
    /// 64 keys was in RAM read each block four times, and took 1.70 us a GET in place of 1.45.)
    fn evict_unused(&mut self, unused_for: u64) -> Option<(Evicted, Content)> {
        // Ends: each turn but the last forgets one, or notes those that are there.
        loop {
            let Some(&(used_at, place)) = self.oldest.last() else {
                self.find_oldest();
                self.oldest.last()?;
                continue;
            };
            let block = self.keys.get(&place).map(|&key| &self.blocks[key]);
            let is_same = block.is_some_and(|block| block.is_ready() && block.used_at == used_at);
            if is_same && self.clock - used_at < unused_for {
                return None;
            }
            self.oldest.pop();
            if is_same {
                return Some(self.remove(place));
            }
        }
    }

    /// Notes the blocks that were not used for longest.
    fn find_oldest(&mut self) {
        let ready = self.blocks.iter().filter(|(_, block)| block.is_ready());
        self.oldest.extend(ready.map(|(_, block)| (block.used_at, block.place)));
        if self.oldest.len() > OLDEST_MAX {
            self.oldest.select_nth_unstable(OLDEST_MAX);
            self.oldest.truncate(OLDEST_MAX);
        }
        self.oldest.sort_unstable_by(|one, two| two.cmp(one));
    }

    fn remove(&mut self, place: Place) -> (Evicted, Content) {
        let key = self.keys.remove(&place).expect("invariant: the block is there");
        let block = self.blocks.remove(key);
        self.bytes -= block.counted_bytes();
        let range = place.start..block.end;
        let served_bytes = (block.used.count * PIECE_BYTES).min(range.len() as u32);
        let used_bytes = block.used_bytes;
        let evicted = Evicted { segment: place.segment, range, used_bytes, served_bytes };
        (evicted, block.content)
    }
}

/// Whether a block is at a place, and used up: another may stand there by now.
fn is_used_up(keys: &BTreeMap<Place, usize>, blocks: &Slab<Block>, place: Place) -> bool {
    keys.get(&place).is_some_and(|&key| blocks[key].is_used_up)
}

impl Block {
    fn has(&self, segment: u32, offset: u32) -> bool {
        self.place.segment == segment && (self.place.start..self.end).contains(&offset)
    }

    fn counted_bytes(&self) -> usize {
        counted_bytes((self.end - self.place.start) as usize)
    }

    fn is_ready(&self) -> bool {
        matches!(self.content, Content::Ready(_))
    }

    fn is_read_by(&self, read: u32) -> bool {
        matches!(self.content, Content::Reading(one) if one == read)
    }

    /// Notes that so many bytes from an offset in it on were served.
    fn note_use(&mut self, offset: u32, bytes: u32) {
        self.used.add(offset / PIECE_BYTES..(offset + bytes).div_ceil(PIECE_BYTES));
    }

    /// Whether it is used up, and was not before.
    fn becomes_used_up(&mut self) -> bool {
        let Content::Ready(buffer) = &self.content else { return false };
        if self.is_used_up {
            return false;
        }
        let pieces = (self.end - self.place.start).div_ceil(PIECE_BYTES);
        let left = pieces - self.used.count;
        let is_padding = |piece: u32| {
            let bytes = &buffer.bytes()[(piece * PIECE_BYTES) as usize..];
            bytes.iter().take(PIECE_BYTES as usize).all(|byte| *byte == 0)
        };
        self.is_used_up = left <= PADDING_PIECES_MAX && self.used.others(pieces).all(is_padding);
        self.is_used_up
    }
}

/// Pieces of a block.
#[derive(Default)]
struct PieceSet {
    words: [u64; (BLOCK_BYTES / PIECE_BYTES / u64::BITS) as usize],
    count: u32,
}

impl PieceSet {
    /// Those of so many that are not among them. Cost: a step for each 64, and for each that is returned.
    fn others(&self, pieces: u32) -> impl Iterator<Item = u32> {
        let words = self.words.iter().zip((0..pieces).step_by(u64::BITS as usize));
        words.flat_map(move |(word, first)| {
            let mut left = !word;
            std::iter::from_fn(move || {
                let at = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (at < u64::BITS.min(pieces - first)).then_some(first + at)
            })
        })
    }

    /// Cost: a step for each 64 of them.
    fn add(&mut self, pieces: Range<u32>) {
        let mut at = pieces.start;
        while at < pieces.end {
            let (word, first) = ((at / u64::BITS) as usize, at % u64::BITS);
            let count = (u64::BITS - first).min(pieces.end - at);
            let added = (u64::MAX >> (u64::BITS - count) << first) & !self.words[word];
            self.words[word] |= added;
            self.count += added.count_ones();
            at += count;
        }
    }
}

/// For how many look-ups a block stays unused, where all may take so many bytes.
pub(crate) fn stays_of(bytes_max: usize) -> u64 {
    (bytes_max / BLOCK_BYTES as usize * STAYS_LOOK_UPS) as u64
}

fn counted_bytes(size: usize) -> usize {
    size.max(COUNTED_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (u32, u64) = (3, 7);

    /// Puts a block in that was read, each byte of which is its offset.
    fn put(cache: &mut BlockCache, pool: &ReadPool, place: (u32, u64), range: Range<u32>) -> bool {
        let Some(mut buffer) = cache.take_buffer(pool, range.len(), drop) else { return false };
        for (offset, byte) in range.clone().zip(buffer.bytes_mut()) {
            *byte = offset as u8;
        }
        let start = (place.0, range.start);
        cache.begin(place, range, 1);
        cache.fill(start, 1, buffer);
        true
    }

    fn found(cache: &mut BlockCache, place: (u32, u64), offset: u32, size: usize) -> bool {
        match cache.find(place, offset, size) {
            Cached::Ready(bytes) => {
                assert_eq!(bytes.len(), size);
                assert!(bytes.iter().zip(offset..).all(|(byte, offset)| *byte == offset as u8));
                true
            }
            _ => false,
        }
    }

    fn pass_look_ups(cache: &mut BlockCache) {
        (0..cache.stays).for_each(|_| drop(cache.find((999, 0), 0, 16)));
    }

    #[test]
    fn a_record_is_found_in_one_block_or_in_two_of_its_generation_only() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        put(&mut cache, &pool, PLACE, 8192..16_384);
        put(&mut cache, &pool, PLACE, 16_384..24_576);
        assert!(found(&mut cache, PLACE, 8192, 100));
        assert!(found(&mut cache, PLACE, 16_300, 200), "in two");
        assert!(!found(&mut cache, PLACE, 24_500, 200), "the rest is not there");
        assert!(!found(&mut cache, PLACE, 8100, 200), "the beginning is not there");
        for place in [(3, 8), (3, 6), (2, 7)] {
            assert!(!found(&mut cache, place, 8192, 100), "{place:?}");
        }
        // The second of two blocks may be of another generation.
        put(&mut cache, &pool, (3, 8), 16_384..24_576);
        assert!(!found(&mut cache, PLACE, 16_300, 200));
        assert!(found(&mut cache, (3, 8), 16_384, 100));
    }

    fn gone(number: u32, used_bytes: u32, served_bytes: u32) -> Evicted {
        Evicted { segment: 3, range: block(number), used_bytes, served_bytes }
    }

    fn block(number: u32) -> Range<u32> {
        number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES
    }

    #[test]
    fn blocks_are_bounded_and_one_that_was_not_used_lately_goes() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let most = BYTES_MAX_AT_FIRST as u32 / BLOCK_BYTES;
        for number in 0..most {
            assert!(put(&mut cache, &pool, PLACE, block(number)));
        }
        assert_eq!(cache.bytes(), BYTES_MAX_AT_FIRST);
        assert_eq!(cache.note_use(3, 5, 100), Some(block(0)));
        assert_eq!(cache.note_use(3, 50, 100), None, "not the first");
        let refused = cache.take_buffer(&pool, BLOCK_BYTES as usize, |_| panic!("all are in use"));
        assert!(refused.is_none());
        pass_look_ups(&mut cache);
        assert_eq!(cache.note_use(3, 50, 100), None);
        let mut evicted = Vec::new();
        let buffer = cache.take_buffer(&pool, BLOCK_BYTES as usize, |one| evicted.push(one));
        assert!(buffer.is_some());
        assert_eq!(evicted, [gone(1, 0, 0)]);
        assert!(found(&mut cache, PLACE, 5, 100));
        for number in 0..500 {
            pass_look_ups(&mut cache);
            assert!(put(&mut cache, &pool, PLACE, number * 8192..(number + 1) * 8192));
            assert!(cache.bytes() <= BYTES_MAX_AT_FIRST);
        }
    }

    #[test]
    fn the_block_that_was_not_used_for_longest_goes() {
        let mut random = stdx::Random::new(5);
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let most = BYTES_MAX_AT_FIRST as u32 / BLOCK_BYTES;
        // Those that are there, the one that was not used for longest first.
        let mut order = Vec::new();
        for number in 0..1000 {
            let mut evicted = Vec::new();
            let buffer = cache.take_buffer(&pool, BLOCK_BYTES as usize, |one| evicted.push(one));
            let expected: Vec<_> =
                (order.len() as u32 == most).then(|| block(order[0])).into_iter().collect();
            order.drain(..expected.len());
            assert_eq!(evicted.into_iter().map(|one| one.range).collect::<Vec<_>>(), expected);
            cache.begin(PLACE, block(number), 1);
            cache.fill((3, number * BLOCK_BYTES), 1, buffer.expect("room"));
            order.push(number);
            for _ in 0..random.next_u64() % 4 {
                pass_look_ups(&mut cache);
                let place = random.next_u64() as usize % order.len();
                let one = order.remove(place);
                match random.next_u64() % 8 {
                    0 => cache.discard(3, &block(one)),
                    // It is read again, and cannot go until it is there.
                    1 if one + 1 < number => {
                        cache.begin(PLACE, block(one), 2);
                        let gone = cache.evict_unused(cache.stays).map(|(gone, _)| gone.range);
                        assert_ne!(gone, Some(block(one)));
                        order.retain(|other| Some(block(*other)) != gone);
                        cache.discard(3, &block(one));
                        cache.forget_read((3, one * BLOCK_BYTES), 2);
                    }
                    _ => {
                        cache.note_use(3, one * BLOCK_BYTES, 100);
                        assert_eq!(cache.evict_unused(u64::MAX).map(drop), None, "none is so old");
                        order.push(one);
                    }
                }
                if order.is_empty() {
                    break;
                }
            }
            pass_look_ups(&mut cache);
        }
    }

    #[test]
    fn short_blocks_are_bounded_too() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let put_short = |cache: &mut BlockCache, number: u32| {
            put(cache, &pool, PLACE, number * 1024..number * 1024 + 512)
        };
        let count = (0..10_000).take_while(|&number| put_short(&mut cache, number)).count();
        assert_eq!(count, BYTES_MAX_AT_FIRST / COUNTED_BYTES_MIN);
    }

    #[test]
    fn a_block_that_is_used_up_goes_before_more_memory_is_taken() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        put(&mut cache, &pool, PLACE, block(0));
        put(&mut cache, &pool, PLACE, block(1));
        let half = BLOCK_BYTES / 2;
        assert_eq!(cache.note_use(3, BLOCK_BYTES, half), Some(block(1)));
        assert_eq!(cache.note_use(3, BLOCK_BYTES, half), None, "the same once more");
        put(&mut cache, &pool, PLACE, block(2));
        assert_eq!(cache.bytes(), 3 << 16, "half of it is left");
        assert_eq!(cache.note_use(3, BLOCK_BYTES + half, half), None);
        let mut evicted = Vec::new();
        let buffer = cache.take_buffer(&pool, BLOCK_BYTES as usize, |one| evicted.push(one));
        assert!(buffer.is_some());
        assert_eq!(evicted, [gone(1, 3 * half, BLOCK_BYTES)]);
        assert_eq!(cache.bytes(), 2 << 16);
    }

    #[test]
    fn a_block_stays_for_the_last_record_in_it_which_may_end_in_the_next() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        put(&mut cache, &pool, PLACE, block(0));
        put(&mut cache, &pool, PLACE, block(1));
        cache.note_use(3, 0, BLOCK_BYTES - 1024);
        cache.note_use(3, BLOCK_BYTES + 128, BLOCK_BYTES - 128);
        let key = cache.key_at(3, 0).expect("the first block is there");
        let Content::Ready(buffer) = &mut cache.blocks[key].content else { panic!("it is read") };
        let (address, _) = buffer.address();
        let mut evicted = Vec::new();
        let take = |cache: &mut BlockCache, evicted: &mut Vec<Range<u32>>| {
            drop(cache.take_buffer(&pool, BLOCK_BYTES as usize, |one| evicted.push(one.range)));
        };
        take(&mut cache, &mut evicted);
        assert_eq!(evicted, [], "of which a record of 128 bytes is left");
        cache.note_use(3, BLOCK_BYTES, 128);
        take(&mut cache, &mut evicted);
        assert_eq!(evicted, [block(1)]);
        evicted.clear();
        put(&mut cache, &pool, PLACE, block(1));
        cache.note_use(3, BLOCK_BYTES + 1024, BLOCK_BYTES - 1024);
        // The last of the first block, and the first of the second.
        cache.note_use(3, BLOCK_BYTES - 1024, 1024 + 1024);
        let mut take =
            || cache.take_buffer(&pool, BLOCK_BYTES as usize, |one| evicted.push(one.range));
        let buffers = [take(), take()].map(|buffer| buffer.expect("there is room"));
        assert_eq!(evicted, [block(1), block(0)], "the last first");
        let [_, mut buffer] = buffers;
        assert_eq!(buffer.address().0, address, "memory is used again");
    }

    #[test]
    fn few_that_are_used_up_stay_for_their_memory_and_none_while_nothing_is_looked_up() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let_grow(&mut cache, 100 << 16);
        let bound = |cache: &mut BlockCache| cache.set_bytes_max(100 << 16, 100 << 16);
        for number in 0..50 {
            assert!(put(&mut cache, &pool, PLACE, block(number)));
        }
        for number in 0..50 {
            cache.note_use(3, number * BLOCK_BYTES, BLOCK_BYTES);
        }
        pass_look_ups(&mut cache);
        bound(&mut cache);
        assert_eq!(cache.bytes(), USED_UP_MAX << 16);
        // Each takes the place of another.
        for number in 50..60 {
            assert!(put(&mut cache, &pool, PLACE, block(number)));
            assert_eq!(cache.bytes(), USED_UP_MAX << 16);
        }
        bound(&mut cache);
        bound(&mut cache);
        assert_eq!(cache.bytes(), 10 << 16);
    }

    #[test]
    fn padding_needs_not_be_served() {
        // So many records of 1072 bytes, behind them zeros to the end of a sector, and so on to the end of the block.
        for (records_of_buffers, served, goes) in [
            (vec![61], 61, 1),
            (vec![61], 60, 0),
            (vec![30, 31], 61, 1),
            (vec![30, 31], 60, 0),
            (vec![1, 30, 5, 24], 60, 1),
        ] {
            let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
            let mut evicted = 0;
            let mut take = |cache: &mut BlockCache| {
                cache.take_buffer(&pool, BLOCK_BYTES as usize, |_| evicted += 1).expect("room")
            };
            let mut buffer = take(&mut cache);
            buffer.bytes_mut().fill(0);
            let (mut offsets, mut end) = (Vec::new(), 0);
            for count in records_of_buffers.iter().copied() {
                for _ in 0..count {
                    buffer.bytes_mut()[end..end + 1072].fill(1);
                    offsets.push(end as u32);
                    end += 1072;
                }
                end = end.next_multiple_of(512);
            }
            cache.begin(PLACE, block(1), 1);
            // Some are waited for, others served later.
            let (waited, later) = offsets.split_at(offsets.len() / 2);
            let mut left = served;
            let mut serve = |cache: &mut BlockCache, offsets: &[u32]| {
                for offset in offsets.iter().take(left) {
                    cache.note_use(3, BLOCK_BYTES + offset, 1072);
                }
                left -= offsets.len().min(left);
            };
            serve(&mut cache, waited);
            cache.fill((3, BLOCK_BYTES), 1, buffer);
            serve(&mut cache, later);
            drop(take(&mut cache));
            assert_eq!(evicted, goes, "{records_of_buffers:?} {served}");
        }
    }

    #[test]
    fn pieces_that_were_not_served_are_told() {
        let mut random = stdx::Random::new(7);
        for _ in 0..200 {
            let (mut set, mut model) = (PieceSet::default(), vec![false; 1024]);
            for _ in 0..random.next_u64() % 40 {
                let start = random.next_u64() as usize % 1000;
                let end = (start + random.next_u64() as usize % 200).min(1024);
                set.add(start as u32..end as u32);
                model[start..end].fill(true);
            }
            assert_eq!(set.count as usize, model.iter().filter(|used| **used).count());
            for pieces in [1, 8, 63, 64, 65, 700, 1024] {
                let others = (0..pieces).filter(|&piece| !model[piece as usize]);
                assert!(set.others(pieces).eq(others), "{pieces}");
            }
        }
    }

    #[test]
    fn used_up_blocks_that_have_gone_do_not_take_the_place_of_others() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let_grow(&mut cache, 100 << 16);
        let use_up = |cache: &mut BlockCache, numbers: Range<u32>| {
            for number in numbers {
                assert!(put(cache, &pool, PLACE, block(number)));
            }
        };
        let most = USED_UP_MAX as u32;
        use_up(&mut cache, 0..2 * most);
        (0..2 * most).for_each(|number| {
            cache.note_use(3, number * BLOCK_BYTES, BLOCK_BYTES);
        });
        // All but one of the first go otherwise.
        cache.discard(3, &(0..(2 * most - 1) * BLOCK_BYTES));
        pass_look_ups(&mut cache);
        cache.set_bytes_max(100 << 16, 100 << 16);
        assert_eq!((cache.bytes(), cache.used_up.len()), (1 << 16, 1));
        cache.clear();
        assert!(cache.used_up.is_empty());
    }

    #[test]
    fn the_header_of_a_segment_needs_not_be_served() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        put(&mut cache, &pool, PLACE, block(0));
        cache.note_use(3, 64, BLOCK_BYTES - 64);
        let mut evicted = 0;
        assert!(cache.take_buffer(&pool, BLOCK_BYTES as usize, |_| evicted += 1).is_some());
        assert_eq!(evicted, 1);
    }

    #[test]
    fn so_does_one_that_was_used_up_by_those_who_waited_for_it() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let buffer = cache.take_buffer(&pool, BLOCK_BYTES as usize, drop).expect("there is room");
        cache.begin(PLACE, block(0), 1);
        cache.note_use(3, 0, BLOCK_BYTES);
        let next = cache.take_buffer(&pool, BLOCK_BYTES as usize, |_| panic!("it is being read"));
        assert!(next.is_some());
        cache.fill((3, 0), 1, buffer);
        let mut evicted = 0;
        assert!(cache.take_buffer(&pool, BLOCK_BYTES as usize, |_| evicted += 1).is_some());
        assert_eq!((evicted, cache.bytes()), (1, 0));
    }

    /// Has blocks pay, and more than at first may be taken.
    fn let_grow(cache: &mut BlockCache, bytes: usize) {
        cache.clock += JUDGED_LOOK_UPS;
        cache.served = JUDGED_LOOK_UPS >> PAYS_SHIFT;
        cache.set_bytes_max(bytes, bytes);
    }

    #[test]
    fn blocks_take_more_than_at_first_while_they_serve_an_eighth_of_all_look_ups() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let share = 4 * BYTES_MAX_AT_FIRST;
        let count = |cache: &mut BlockCache| {
            (0..100).filter(|&number| put(cache, &pool, PLACE, block(number))).count();
            cache.bytes()
        };
        cache.set_bytes_max(share, share);
        assert_eq!(count(&mut cache), BYTES_MAX_AT_FIRST);
        let look_up = |cache: &mut BlockCache, served: u64| {
            for number in 0..JUDGED_LOOK_UPS {
                let is_found = number % 100 < served;
                found(cache, PLACE, if is_found { 100 } else { u32::MAX / 2 }, 100);
                is_found.then(|| cache.note_use(3, 100, 1));
            }
            cache.set_bytes_max(share, share);
        };
        look_up(&mut cache, 5);
        assert_eq!(count(&mut cache), BYTES_MAX_AT_FIRST);
        look_up(&mut cache, 20);
        assert_eq!(count(&mut cache), share);
        look_up(&mut cache, 5);
        assert_eq!(cache.bytes(), BYTES_MAX_AT_FIRST.max(share - (EVICTED_AT_ONCE_MAX << 16)));
    }

    #[test]
    fn with_a_smaller_bound_what_is_too_much_goes_in_steps() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let_grow(&mut cache, 100 << 16);
        (0..100).for_each(|number| assert!(put(&mut cache, &pool, PLACE, block(number))));
        cache.set_bytes_max(3 << 16, 100 << 16);
        assert_eq!(cache.bytes(), (100 - EVICTED_AT_ONCE_MAX) << 16);
        assert!(!put(&mut cache, &pool, PLACE, block(200)), "nothing more may go yet");
        cache.set_bytes_max(3 << 16, 100 << 16);
        assert_eq!(cache.bytes(), 3 << 16);
        cache.set_bytes_max(16 << 16, 100 << 16);
        (200..213).for_each(|number| assert!(put(&mut cache, &pool, PLACE, block(number))));
        assert_eq!(cache.bytes(), 16 << 16);
        cache.set_bytes_max(1 << 15, 1 << 15);
        assert_eq!(cache.bytes(), 0);
        assert!(!put(&mut cache, &pool, PLACE, block(1)), "it is larger than all may be");
    }

    #[test]
    fn blocks_that_nobody_uses_go_while_nothing_else_is_read_ahead() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let bound = |cache: &mut BlockCache| cache.set_bytes_max(16 << 16, 16 << 16);
        (0..8).for_each(|number| assert!(put(&mut cache, &pool, PLACE, block(number))));
        (0..IDLE_BOUNDS).for_each(|_| bound(&mut cache));
        assert_eq!(cache.bytes(), 8 << 16, "not for so long");
        (0..3).for_each(|_| bound(&mut cache));
        assert_eq!(cache.bytes(), 5 << 16, "without a look-up");
        (0..STAYS_IDLE).for_each(|_| pass_look_ups(&mut cache));
        assert_eq!(cache.note_use(3, 7 * BLOCK_BYTES, 100), Some(block(7)));
        (0..8).for_each(|_| bound(&mut cache));
        assert_eq!(cache.bytes(), 1 << 16, "with those of others");
        assert!(found(&mut cache, PLACE, 7 * BLOCK_BYTES, 100));
    }

    #[test]
    fn what_is_being_read_stays() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let buffer = cache.take_buffer(&pool, 65_536, drop).expect("there is room");
        cache.begin(PLACE, 0..65_536, 9);
        assert!(put(&mut cache, &pool, PLACE, 65_536..131_072));
        assert!(matches!(cache.find(PLACE, 100, 100), Cached::Reading(9)));
        assert_eq!(cache.find_read(PLACE, &(512..1024)), Some(9));
        assert_eq!(cache.find_read(PLACE, &(65_024..66_048)), None, "it has a part alone");
        assert!(cache.is_reading(3, &(65_000..70_000)) && !cache.is_reading(3, &(65_536..70_000)));
        assert!(cache.overlaps(3, &(131_071..140_000)) && !cache.overlaps(3, &(131_072..140_000)));
        cache.clear();
        assert_eq!(cache.bytes(), 65_536);
        pass_look_ups(&mut cache);
        assert!(cache.evict_unused(0).is_none());
        cache.forget_read((3, 0), 8);
        assert!(!cache.is_empty(), "another read");
        cache.forget_read((3, 0), 9);
        assert!(cache.is_empty() && cache.bytes() == 0);
        cache.fill((3, 0), 9, buffer);
        assert!(cache.is_empty(), "it was forgotten");
    }

    #[test]
    fn a_larger_block_takes_the_place_of_smaller_ones() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        put(&mut cache, &pool, PLACE, 0..8192);
        put(&mut cache, &pool, PLACE, 16_384..24_576);
        put(&mut cache, &pool, PLACE, 0..32_768);
        assert_eq!((cache.bytes(), cache.blocks.len()), (32_768, 1));
        cache.discard(3, &(40_000..40_001));
        assert!(found(&mut cache, PLACE, 8100, 200));
        cache.discard(3, &(100..101));
        assert!(cache.is_empty());
    }
}
