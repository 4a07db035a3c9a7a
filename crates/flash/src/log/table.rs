//! The table of all segments: read without a lock, grown while it is read, never shrunk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::segment::Segment;
use crate::device::FileIndex;
use crate::limits::SEGMENTS_MAX;

const CHUNK_SEGMENTS: usize = 256;
const CHUNKS: usize = SEGMENTS_MAX / CHUNK_SEGMENTS;

/// Where a segment's bytes are. Changes only while the segment is out of use because its path was
/// removed.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Home {
    pub(crate) file: FileIndex,
    /// Segments of that file in front of it.
    pub(crate) number: u32,
}

impl Home {
    fn pack(self) -> u64 {
        u64::from(self.file.0) << 32 | u64::from(self.number)
    }

    fn unpack(packed: u64) -> Self {
        Self { file: FileIndex((packed >> 32) as u16), number: packed as u32 }
    }
}

struct Entry {
    segment: Segment,
    home: AtomicU64,
    /// The segments that were filled before and after it (`SegmentTable::link`).
    filled_before: AtomicU32,
    filled_next: AtomicU32,
}

/// In place of a segment's index: there is none.
const NO_SEGMENT: u32 = u32::MAX;

impl Entry {
    fn new() -> Self {
        Self {
            segment: Segment::new(),
            home: AtomicU64::new(0),
            filled_before: AtomicU32::new(NO_SEGMENT),
            filled_next: AtomicU32::new(NO_SEGMENT),
        }
    }
}

pub(crate) struct SegmentTable {
    chunks: Box<[OnceLock<Box<[Entry]>>]>,
    count: AtomicU32,
}

impl SegmentTable {
    pub(crate) fn new() -> Self {
        let chunks = (0..CHUNKS).map(|_| OnceLock::new()).collect();
        Self { chunks, count: AtomicU32::new(0) }
    }

    /// Adds a free segment, which counts on from a generation. Called by one thread at a time.
    pub(crate) fn push(&self, home: Home, generation: u64) -> u32 {
        let index = self.count();
        let (chunk, rest) = split(index);
        let entries =
            self.chunks[chunk].get_or_init(|| (0..CHUNK_SEGMENTS).map(|_| Entry::new()).collect());
        entries[rest].segment.set_generation(generation);
        entries[rest].home.store(home.pack(), Ordering::Release);
        self.count.store(index + 1, Ordering::Release);
        index
    }

    /// Gives a segment a new home. Shape: it is retired, and its path was removed.
    pub(crate) fn set_home(&self, index: u32, home: Home) {
        self.entry(index).home.store(home.pack(), Ordering::Release);
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The segment with an index that may come from outside.
    pub(crate) fn find(&self, index: u32) -> Option<&Segment> {
        (index < self.count()).then(|| self.get(index))
    }

    /// The segment with a known index.
    pub(crate) fn get(&self, index: u32) -> &Segment {
        &self.entry(index).segment
    }

    /// Notes that a worker fills a segment after another, with records of one stream: reads in the order of writing
    /// follow the link.
    pub(crate) fn link(&self, before: u32, next: u32) {
        self.entry(before).filled_next.store(next, Ordering::Relaxed);
        self.entry(next).filled_before.store(before, Ordering::Relaxed);
    }

    /// Forgets the links of a segment that is opened anew.
    pub(crate) fn unlink(&self, index: u32) {
        self.entry(index).filled_next.store(NO_SEGMENT, Ordering::Relaxed);
        self.entry(index).filled_before.store(NO_SEGMENT, Ordering::Relaxed);
    }

    /// The segment that was filled after one, while neither was opened again since: a link leads both ways, or it is
    /// forgotten.
    pub(crate) fn filled_next(&self, index: u32) -> Option<u32> {
        let next = self.entry(index).filled_next.load(Ordering::Relaxed);
        let leads_back =
            |next: u32| self.entry(next).filled_before.load(Ordering::Relaxed) == index;
        (next < self.count() && leads_back(next)).then_some(next)
    }

    /// The same the other way.
    pub(crate) fn filled_before(&self, index: u32) -> Option<u32> {
        let before = self.entry(index).filled_before.load(Ordering::Relaxed);
        let leads_here =
            |before: u32| self.entry(before).filled_next.load(Ordering::Relaxed) == index;
        (before < self.count() && leads_here(before)).then_some(before)
    }

    pub(crate) fn home(&self, index: u32) -> Home {
        Home::unpack(self.entry(index).home.load(Ordering::Acquire))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..self.count()).map(|index| (index, self.get(index)))
    }

    /// RAM held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        CHUNKS * size_of::<OnceLock<Box<[Entry]>>>() + chunks * CHUNK_SEGMENTS * size_of::<Entry>()
    }

    fn entry(&self, index: u32) -> &Entry {
        let (chunk, rest) = split(index);
        let entries = self.chunks[chunk].get();
        &entries.expect("invariant: indexes are of segments in the table")[rest]
    }
}

fn split(index: u32) -> (usize, usize) {
    (index as usize / CHUNK_SEGMENTS, index as usize % CHUNK_SEGMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_forgotten_when_either_segment_is_opened_again() {
        let table = SegmentTable::new();
        let home = Home { file: FileIndex(0), number: 0 };
        (0..4).for_each(|index| assert_eq!(table.push(home, 0), index));
        assert_eq!((table.filled_before(1), table.filled_next(1)), (None, None));
        table.link(0, 1);
        table.link(1, 2);
        assert_eq!((table.filled_next(0), table.filled_next(1)), (Some(1), Some(2)));
        assert_eq!((table.filled_before(1), table.filled_before(2)), (Some(0), Some(1)));
        table.unlink(1);
        assert_eq!((table.filled_next(0), table.filled_before(2)), (None, None));
        table.link(3, 1);
        assert_eq!((table.filled_next(0), table.filled_next(3)), (None, Some(1)));
        assert_eq!((table.filled_before(1), table.filled_before(2)), (Some(3), None));
    }
}
