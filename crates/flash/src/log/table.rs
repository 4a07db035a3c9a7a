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
        let entries = self.chunks[chunk].get_or_init(|| {
            let entry = |_| Entry { segment: Segment::new(), home: AtomicU64::new(0) };
            (0..CHUNK_SEGMENTS).map(entry).collect()
        });
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
        self.get(before).set_filled_next(next);
        self.get(next).set_filled_before(before);
    }

    /// The segment that was filled after one, while neither was used again since: a link leads both ways, or it is
    /// forgotten.
    pub(crate) fn filled_next(&self, index: u32) -> Option<u32> {
        let next = self.get(index).filled_next();
        self.find(next).is_some_and(|segment| segment.filled_before() == index).then_some(next)
    }

    /// The same the other way.
    pub(crate) fn filled_before(&self, index: u32) -> Option<u32> {
        let before = self.get(index).filled_before();
        self.find(before).is_some_and(|segment| segment.filled_next() == index).then_some(before)
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
    use crate::log::lifetime::Stream;
    use crate::log::segment::State;

    #[test]
    fn a_link_is_forgotten_when_either_segment_is_used_again() {
        let table = SegmentTable::new();
        let home = Home { file: FileIndex(0), number: 0 };
        (0..4).for_each(|index| assert_eq!(table.push(home, 0), index));
        let open = |index: u32| {
            table.get(index).set_state(State::Free);
            table.get(index).open(Stream::Demote, 0);
        };
        (0..4).for_each(open);
        assert_eq!((table.filled_before(1), table.filled_next(1)), (None, None));
        table.link(0, 1);
        table.link(1, 2);
        assert_eq!((table.filled_next(0), table.filled_next(1)), (Some(1), Some(2)));
        assert_eq!((table.filled_before(1), table.filled_before(2)), (Some(0), Some(1)));
        open(1);
        assert_eq!((table.filled_next(0), table.filled_before(2)), (None, None));
        table.link(3, 1);
        assert_eq!((table.filled_next(0), table.filled_next(3)), (None, Some(1)));
        assert_eq!((table.filled_before(1), table.filled_before(2)), (Some(3), None));
    }
}
