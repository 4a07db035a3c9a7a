//! Blocks that were read ahead, kept for the records in them.
//!
//! They stand in the pool of read buffers, which is there anyway: a block is given up when a read
//! finds no buffer, so that what is kept takes no memory beside the pool and holds nobody up. Records
//! are copied out, so that nobody but the cache holds a block, and to give one up frees its buffer.
//!
//! # Why nothing stale is served
//!
//! A sector of a segment is written once per generation, before `flushed` passes it. A block holds
//! sectors below that mark, read while the segment was pinned, so all of one generation, which it
//! remembers: what it holds is what they hold until that generation ends. Whoever asks names the
//! generation of its record, and has pinned the segment and found that generation there; a block of
//! another is never looked into. And a record is checked in its place like any that was read, so what
//! was damaged on its way is not served either: it is read again by itself.

use std::ops::Range;
use std::rc::Rc;

use super::read_ahead::BLOCK_BYTES;
use crate::device::buffer::{IoBuffer, ReadPool};
use crate::limits::{BLOCK_CACHE_BYTES_MAX, READ_POOL_BYTES};

/// Blocks of one worker: small windows make small ones.
const BLOCKS_MAX: usize = 64;
/// A block stays for so many look-ups behind its last use, whatever else is to be read ahead: clients that have drifted
/// apart by more than is kept would else push out each other's blocks before anything in them is used.
const STAYS_LOOK_UPS: u64 = 512;

const _: () = assert!(BLOCK_CACHE_BYTES_MAX <= BLOCKS_MAX * BLOCK_BYTES as usize);
const _: () = assert!(3 * BLOCK_CACHE_BYTES_MAX <= 2 * READ_POOL_BYTES);

/// The blocks of one worker. Those that are being read are among them.
#[derive(Default)]
pub(crate) struct BlockCache {
    /// Of each block where it lies; apart, since every read looks through them.
    places: Vec<Place>,
    blocks: Vec<Block>,
    bytes: usize,
    /// Counts look-ups.
    clock: u64,
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
struct Place {
    segment: u32,
    start: u32,
    end: u32,
}

struct Block {
    generation: u64,
    content: Content,
    /// Bytes of records that were served from it, besides those it was read for.
    used_bytes: u32,
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
    pub(crate) used_bytes: u32,
}

/// What is there of a record.
pub(crate) enum Cached {
    Missing,
    /// A device read is under way that brings it.
    Reading(u32),
    /// Its bytes, unchecked.
    Ready(Rc<[u8]>),
}

impl BlockCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
        let Some(index) = self.index_of((segment, generation), offset) else {
            return Cached::Missing;
        };
        let (place, block) = (self.places[index], &self.blocks[index]);
        let bytes = match &block.content {
            Content::Reading(read) if end <= place.end => return Cached::Reading(*read),
            Content::Reading(_) => return Cached::Missing,
            Content::Ready(buffer) => &buffer.bytes()[(offset - place.start) as usize..],
        };
        if end <= place.end {
            return Cached::Ready(Rc::from(&bytes[..size]));
        }
        let rest = self.index_of((segment, generation), place.end);
        match rest.map(|index| (&self.places[index], &self.blocks[index].content)) {
            Some((next, Content::Ready(more))) if end <= next.end => {
                let more = &more.bytes()[(place.end - next.start) as usize..];
                Cached::Ready([bytes, &more[..size - bytes.len()]].concat().into())
            }
            _ => Cached::Missing,
        }
    }

    /// The device read under way that brings a range.
    pub(crate) fn find_read(
        &self,
        (segment, generation): (u32, u64),
        range: &Range<u32>,
    ) -> Option<u32> {
        let index = self.index_of((segment, generation), range.start)?;
        match self.blocks[index].content {
            Content::Reading(read) if range.end <= self.places[index].end => Some(read),
            _ => None,
        }
    }

    fn index_of(&self, (segment, generation): (u32, u64), offset: u32) -> Option<usize> {
        let holds =
            |place: &Place| place.segment == segment && (place.start..place.end).contains(&offset);
        let index = self.places.iter().position(holds)?;
        (self.blocks[index].generation == generation).then_some(index)
    }

    /// Notes that a record was served from the block at an offset. Returns where that is when it is the first.
    pub(crate) fn note_use(&mut self, segment: u32, offset: u32, bytes: u32) -> Option<Range<u32>> {
        let holds =
            |place: &Place| place.segment == segment && (place.start..place.end).contains(&offset);
        let index = self.places.iter().position(holds)?;
        let block = &mut self.blocks[index];
        let is_first = block.used_bytes == 0;
        block.used_bytes = block.used_bytes.saturating_add(bytes);
        block.used_at = self.clock;
        is_first.then(|| self.places[index].start..self.places[index].end)
    }

    /// Whether there is a block that has some of a range, or is to have.
    pub(crate) fn overlaps(&self, segment: u32, range: &Range<u32>) -> bool {
        self.places.iter().any(|place| place.overlaps(segment, range))
    }

    /// Whether one that has some of it is being read.
    pub(crate) fn is_reading(&self, segment: u32, range: &Range<u32>) -> bool {
        let both = self.places.iter().zip(&self.blocks);
        both.into_iter().any(|(place, block)| {
            place.overlaps(segment, range) && matches!(block.content, Content::Reading(_))
        })
    }

    /// Takes a buffer for a block, if there is room in the cache and in the pool. Blocks that were not used lately go for
    /// it, each of which is given to `evicted`.
    pub(crate) fn take_buffer(
        &mut self,
        pool: &ReadPool,
        size: usize,
        mut evicted: impl FnMut(Evicted),
    ) -> Option<IoBuffer> {
        while self.places.len() >= BLOCKS_MAX || self.bytes + size > BLOCK_CACHE_BYTES_MAX {
            evicted(self.evict_unused()?);
        }
        loop {
            if let Some(buffer) = pool.take_slot(size) {
                return Some(buffer);
            }
            evicted(self.evict_unused()?);
        }
    }

    /// Puts a block in that a device read is to bring, in place of those that it covers.
    pub(crate) fn begin(
        &mut self,
        (segment, generation): (u32, u64),
        range: Range<u32>,
        read: u32,
    ) {
        while let Some(index) = self.places.iter().position(|place| place.overlaps(segment, &range))
        {
            self.remove(index);
        }
        self.bytes += range.len();
        self.places.push(Place { segment, start: range.start, end: range.end });
        self.blocks.push(Block {
            generation,
            content: Content::Reading(read),
            used_bytes: 0,
            used_at: self.clock,
        });
    }

    /// The device read of a block has ended well.
    pub(crate) fn fill(&mut self, read: u32, buffer: IoBuffer) {
        if let Some(index) = self.index_of_read(read) {
            self.blocks[index].content = Content::Ready(buffer);
        }
    }

    /// The device read of a block has failed.
    pub(crate) fn forget_read(&mut self, read: u32) {
        if let Some(index) = self.index_of_read(read) {
            self.remove(index);
        }
    }

    fn index_of_read(&self, read: u32) -> Option<usize> {
        let is_it = |block: &Block| matches!(block.content, Content::Reading(one) if one == read);
        self.blocks.iter().position(is_it)
    }

    /// Gives up the blocks that have some of a range and are not being read.
    pub(crate) fn discard(&mut self, segment: u32, range: &Range<u32>) {
        let mut index = 0;
        while index < self.places.len() {
            let is_ready = matches!(self.blocks[index].content, Content::Ready(_));
            if is_ready && self.places[index].overlaps(segment, range) {
                self.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Gives up all that is not being read.
    pub(crate) fn clear(&mut self) {
        while self.evict().is_some() {}
    }

    /// Gives up the block that was longest not used; none, when all that there are are being read.
    pub(crate) fn evict(&mut self) -> Option<Evicted> {
        let index = self.longest_unused()?;
        Some(self.remove(index))
    }

    /// The same, if it was not used lately.
    fn evict_unused(&mut self) -> Option<Evicted> {
        let index = self.longest_unused()?;
        let stays = self.clock - self.blocks[index].used_at < STAYS_LOOK_UPS;
        (!stays).then(|| self.remove(index))
    }

    fn longest_unused(&self) -> Option<usize> {
        let ready = self.blocks.iter().enumerate();
        let ready = ready.filter(|(_, block)| matches!(block.content, Content::Ready(_)));
        ready.min_by_key(|(_, block)| block.used_at).map(|(index, _)| index)
    }

    fn remove(&mut self, index: usize) -> Evicted {
        let place = self.places.swap_remove(index);
        let block = self.blocks.swap_remove(index);
        let range = place.start..place.end;
        self.bytes -= range.len();
        Evicted { segment: place.segment, range, used_bytes: block.used_bytes }
    }
}

impl Place {
    fn overlaps(&self, segment: u32, range: &Range<u32>) -> bool {
        self.segment == segment && self.start < range.end && range.start < self.end
    }
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
        cache.begin(place, range, 1);
        cache.fill(1, buffer);
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
        (0..STAYS_LOOK_UPS).for_each(|_| drop(cache.find((999, 0), 0, 16)));
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

    #[test]
    fn blocks_are_bounded_and_the_one_that_was_longest_not_used_goes() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        let most = BLOCK_CACHE_BYTES_MAX as u32 / BLOCK_BYTES;
        let block = |number: u32| number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES;
        for number in 0..most {
            assert!(put(&mut cache, &pool, PLACE, block(number)));
        }
        assert_eq!(cache.bytes(), BLOCK_CACHE_BYTES_MAX);
        assert_eq!(cache.note_use(3, 5, 100), Some(block(0)));
        assert_eq!(cache.note_use(3, 50, 100), None, "not the first");
        let refused = cache.take_buffer(&pool, BLOCK_BYTES as usize, |_| panic!("all are in use"));
        assert!(refused.is_none());
        pass_look_ups(&mut cache);
        assert_eq!(cache.note_use(3, 50, 100), None);
        let mut evicted = Vec::new();
        let buffer = cache.take_buffer(&pool, BLOCK_BYTES as usize, |one| evicted.push(one));
        assert!(buffer.is_some());
        assert_eq!(evicted, [Evicted { segment: 3, range: block(1), used_bytes: 0 }]);
        assert!(found(&mut cache, PLACE, 5, 100));
        for number in 0..200 {
            pass_look_ups(&mut cache);
            assert!(put(&mut cache, &pool, PLACE, number * 8192..(number + 1) * 8192));
            assert!(cache.places.len() <= BLOCKS_MAX && cache.bytes() <= BLOCK_CACHE_BYTES_MAX);
        }
    }

    #[test]
    fn what_is_being_read_stays_and_everything_else_gives_its_buffer_back() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::bounded(3, 0));
        let buffer = cache.take_buffer(&pool, 65_536, drop).expect("there is room");
        cache.begin(PLACE, 0..65_536, 9);
        assert!(put(&mut cache, &pool, PLACE, 65_536..131_072));
        assert!(matches!(cache.find(PLACE, 100, 100), Cached::Reading(9)));
        assert_eq!(cache.find_read(PLACE, &(512..1024)), Some(9));
        assert_eq!(cache.find_read(PLACE, &(65_024..66_048)), None, "it has a part alone");
        assert!(cache.is_reading(3, &(65_000..70_000)) && !cache.is_reading(3, &(65_536..70_000)));
        cache.clear();
        assert_eq!(cache.bytes(), 65_536);
        assert!(cache.evict().is_none());
        cache.forget_read(9);
        assert!(cache.is_empty() && cache.bytes() == 0);
        drop(buffer);
        assert!(
            (0..3).map(|_| pool.take_slot(65_536)).collect::<Vec<_>>().iter().all(Option::is_some)
        );
    }

    #[test]
    fn a_larger_block_takes_the_place_of_smaller_ones() {
        let (mut cache, pool) = (BlockCache::default(), ReadPool::new());
        put(&mut cache, &pool, PLACE, 0..8192);
        put(&mut cache, &pool, PLACE, 16_384..24_576);
        put(&mut cache, &pool, PLACE, 0..32_768);
        assert_eq!((cache.bytes(), cache.places.len()), (32_768, 1));
        cache.discard(3, &(40_000..40_001));
        assert!(found(&mut cache, PLACE, 8100, 200));
        cache.discard(3, &(100..101));
        assert!(cache.is_empty());
    }
}
