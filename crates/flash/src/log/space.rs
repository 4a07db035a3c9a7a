//! Which segments are free, on which file, and who may have them.
//!
//! Owns the lists behind one short mutex, taken once for each segment that is opened or freed. The
//! rules:
//! - Segments are opened on the files in turn, so that all drives share the load.
//! - The last `reserve` free segments are for what collections keep: without them a full log could
//!   not be collected.
//! - Of the free segments of a file the one freed last is used first: its blocks are still the
//!   file's. The ones that are free for long give their blocks back to the filesystem
//!   (`Space::take_to_punch`).

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::device::FileIndex;

/// What the blocks of a free segment are.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Blocks {
    /// The file's, and never written since: nothing for the drive to forget.
    Reserved,
    /// The file's, with old data.
    Written,
    /// Given back.
    Punched,
}

/// Who asks for a segment.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// New records.
    Fresh,
    /// Records that a collection keeps.
    Collected,
}

/// Why there is no segment.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum NoSegment {
    /// None is free.
    Full,
    /// No path takes writes.
    Failed,
}

/// A segment that is free.
#[derive(Copy, Clone, Debug)]
pub(crate) struct FreeSegment {
    pub(crate) segment: u32,
    pub(crate) file: FileIndex,
    pub(crate) blocks: Blocks,
}

#[derive(Default)]
struct FileSpace {
    /// The ones with old data at the end, in the order in which they were freed.
    free: VecDeque<FreeSegment>,
    /// Free segments with old data.
    written: usize,
    /// Segments that the file has room for, in use or not.
    numbers: u32,
    /// Writes fail.
    failed: bool,
    /// The filesystem ran out of blocks: punched segments cannot be written.
    no_space: bool,
}

/// The lists.
pub(crate) struct Space {
    files: Vec<FileSpace>,
    next_file: usize,
    free: usize,
    reserve: usize,
    /// Segments that count: free or in use, not retired.
    active: usize,
    /// Segments that should count, by the flash size.
    target: usize,
    /// Segments that do not count: the flash size was lowered, or their path failed.
    retired: Vec<FreeSegment>,
    /// Segments in which nothing lives, to be freed.
    pub(crate) emptied: Vec<u32>,
    /// Segments to be freed that had reads in flight.
    pub(crate) draining: Vec<u32>,
    /// The other segments of records that are larger than a segment, by their first.
    pub(crate) spans: HashMap<u32, Vec<u32>>,
}

impl Space {
    pub(crate) fn new(files: usize, reserve: usize) -> Self {
        let files = (0..files).map(|_| FileSpace::default()).collect();
        Self {
            files,
            next_file: 0,
            free: 0,
            reserve,
            active: 0,
            target: 0,
            retired: Vec::new(),
            emptied: Vec::new(),
            draining: Vec::new(),
            spans: HashMap::new(),
        }
    }

    /// Free segments, the reserve included.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    pub(crate) fn active(&self) -> usize {
        self.active
    }

    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// Whether there are more segments than the flash size allows.
    pub(crate) fn is_over_target(&self) -> bool {
        self.active > self.target
    }

    pub(crate) fn files_failed(&self) -> usize {
        self.files.iter().filter(|file| file.failed).count()
    }

    /// Takes free segments: all of them or none. More than one is for a record that is larger than
    /// a segment.
    pub(crate) fn take_many(
        &mut self,
        count: usize,
        purpose: Purpose,
    ) -> Result<Vec<u32>, NoSegment> {
        if self.files.iter().all(|file| file.failed) {
            return Err(NoSegment::Failed);
        }
        let reserved = if purpose == Purpose::Fresh { self.reserve } else { 0 };
        if self.free < count + reserved {
            return Err(NoSegment::Full);
        }
        let taken = std::iter::from_fn(|| self.take_next()).take(count);
        let segments: Vec<u32> = taken.map(|free| free.segment).collect();
        assert_eq!(segments.len(), count, "free segments are counted");
        Ok(segments)
    }

    /// The next free segment: of the files in turn.
    fn take_next(&mut self) -> Option<FreeSegment> {
        let count = self.files.len();
        let mut turns = (0..count).map(|turn| (self.next_file + turn) % count);
        let index = turns.find(|&index| !self.files[index].free.is_empty())?;
        self.next_file = (index + 1) % count;
        let taken = self.files[index].free.pop_back()?;
        self.forget(&taken);
        Some(taken)
    }

    /// Counts out a free segment.
    fn forget(&mut self, free: &FreeSegment) {
        self.files[usize::from(free.file.0)].written -= usize::from(free.blocks == Blocks::Written);
        self.free -= 1;
    }

    /// Takes a segment back: as a free one, or as one that does not count any more. True when it is
    /// free.
    pub(crate) fn give(&mut self, free: FreeSegment) -> bool {
        let failed = self.files[usize::from(free.file.0)].failed;
        // A lower flash size must not take the collector's reserve: it is what makes room.
        if failed || (self.is_over_target() && self.free >= self.reserve) {
            self.active -= 1;
            self.retired.push(free);
            return false;
        }
        self.put(free);
        true
    }

    fn put(&mut self, free: FreeSegment) {
        let file = &mut self.files[usize::from(free.file.0)];
        file.written += usize::from(free.blocks == Blocks::Written);
        self.free += 1;
        // The end is used first: what was written last, then what was reserved, in the order of the
        // file.
        if free.blocks == Blocks::Written {
            file.free.push_back(free);
        } else {
            file.free.push_front(free);
        }
    }

    /// Takes a segment whose blocks should go back to the filesystem: a retired one, or a free one
    /// when its file has more than `keep` free ones with old data. `give_punched` brings it back.
    pub(crate) fn take_to_punch(&mut self, keep: usize) -> Option<FreeSegment> {
        if let Some(at) = self.retired.iter().position(|free| free.blocks == Blocks::Written) {
            return Some(self.retired.swap_remove(at));
        }
        if self.free <= self.reserve {
            return None;
        }
        let file = self.files.iter_mut().find(|file| file.written > keep)?;
        let at = file.free.iter().position(|free| free.blocks == Blocks::Written)?;
        let free = file.free.remove(at)?;
        self.forget(&free);
        // Out of the count while it is away, as if it were retired.
        self.active -= 1;
        Some(free)
    }

    /// Takes back what `take_to_punch` gave. True when it is free.
    pub(crate) fn give_punched(&mut self, free: FreeSegment) -> bool {
        let free = FreeSegment { blocks: Blocks::Punched, ..free };
        let file = &self.files[usize::from(free.file.0)];
        let is_free = self.active < self.target && !file.failed && !file.no_space;
        if is_free {
            self.active += 1;
            self.put(free);
        } else {
            self.retired.push(free);
        }
        is_free
    }

    /// Adds a segment that was just made at the end of its file.
    pub(crate) fn add(&mut self, segment: u32, file: FileIndex) {
        self.files[usize::from(file.0)].numbers += 1;
        self.active += 1;
        self.put(FreeSegment { segment, file, blocks: Blocks::Reserved });
    }

    /// Lowers how many segments count. Returns the free ones that do not count any more; those in
    /// use follow when they are freed.
    pub(crate) fn lower_target(&mut self, segments: usize) -> Vec<u32> {
        self.target = segments;
        let mut retired = Vec::new();
        while self.is_over_target()
            && self.free > self.reserve
            && let Some(free) = self.files.iter_mut().find_map(|file| file.free.pop_front())
        {
            self.forget(&free);
            self.active -= 1;
            self.retired.push(free);
            retired.push(free.segment);
        }
        retired
    }

    /// Raises how many segments count; the caller has reserved the blocks of those that return, and
    /// adds the new ones. Paths that were out of blocks are tried again. Returns the segments that
    /// were retired and are free now.
    pub(crate) fn raise_target(
        &mut self,
        segments: usize,
        returning: Vec<FreeSegment>,
    ) -> Vec<u32> {
        self.target = segments;
        self.files.iter_mut().for_each(|file| file.no_space = false);
        let freed = returning.iter().map(|free| free.segment).collect();
        for mut free in returning {
            if free.blocks == Blocks::Punched {
                free.blocks = Blocks::Reserved;
            }
            self.active += 1;
            self.put(free);
        }
        freed
    }

    /// Takes retired segments that can be used again, up to that many. They come back by
    /// `raise_target`, or by `retire_again`.
    pub(crate) fn take_retired(&mut self, count: usize) -> Vec<FreeSegment> {
        let mut taken = Vec::new();
        self.retired.retain(|free| {
            let takes = taken.len() < count && !self.files[usize::from(free.file.0)].failed;
            if takes {
                taken.push(*free);
            }
            !takes
        });
        taken
    }

    /// Takes back what `take_retired` gave.
    pub(crate) fn retire_again(&mut self, segments: Vec<FreeSegment>) {
        self.retired.extend(segments);
    }

    /// Which new segments each file gets when that many are missing: the emptiest file that works
    /// gets the next.
    pub(crate) fn plan_homes(&self, mut missing: usize) -> Vec<(FileIndex, Range<u32>)> {
        let mut plan: Vec<(FileIndex, Range<u32>)> = (0..self.files.len() as u16)
            .map(|index| (FileIndex(index), &self.files[usize::from(index)]))
            .filter(|(_, file)| !file.failed)
            .map(|(index, file)| (index, file.numbers..file.numbers))
            .collect();
        while missing > 0
            && let Some((_, numbers)) = plan.iter_mut().min_by_key(|(_, numbers)| numbers.end)
        {
            numbers.end += 1;
            missing -= 1;
        }
        plan
    }

    /// Writes to a file fail: its free segments do not count any more. Returns them.
    pub(crate) fn fail_file(&mut self, index: FileIndex) -> Vec<u32> {
        self.files[usize::from(index.0)].failed = true;
        self.retire_free(index, |_| true)
    }

    /// The filesystem of a file ran out of blocks: the free segments that have none do not count
    /// any more. Returns them.
    pub(crate) fn set_no_space(&mut self, index: FileIndex) -> Vec<u32> {
        self.files[usize::from(index.0)].no_space = true;
        self.retire_free(index, |free| free.blocks == Blocks::Punched)
    }

    fn retire_free(&mut self, index: FileIndex, chosen: fn(&FreeSegment) -> bool) -> Vec<u32> {
        let all = std::mem::take(&mut self.files[usize::from(index.0)].free);
        let (retired, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(chosen);
        self.files[usize::from(index.0)].free = kept.into();
        for free in &retired {
            self.forget(free);
            self.active -= 1;
        }
        let segments = retired.iter().map(|free| free.segment).collect();
        self.retired.extend(retired);
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FileIndex = FileIndex(0);

    fn take(space: &mut Space, purpose: Purpose) -> Result<u32, NoSegment> {
        space.take_many(1, purpose).map(|segments| segments[0])
    }

    /// A space of `count` new segments on one file, two of them reserved.
    fn space(count: u32) -> Space {
        let mut space = Space::new(1, 2);
        assert!(space.raise_target(count as usize, Vec::new()).is_empty());
        (0..count).for_each(|segment| space.add(segment, ONE));
        space
    }

    fn written(segment: u32) -> FreeSegment {
        FreeSegment { segment, file: ONE, blocks: Blocks::Written }
    }

    #[test]
    fn the_reserve_is_for_collections() {
        let mut space = space(3);
        assert!(take(&mut space, Purpose::Fresh).is_ok());
        assert_eq!(take(&mut space, Purpose::Fresh), Err(NoSegment::Full));
        assert!(take(&mut space, Purpose::Collected).is_ok());
        assert!(take(&mut space, Purpose::Collected).is_ok());
        assert_eq!(take(&mut space, Purpose::Collected), Err(NoSegment::Full));
    }

    #[test]
    fn many_are_all_or_none() {
        let mut space = space(5);
        assert_eq!(space.take_many(4, Purpose::Fresh), Err(NoSegment::Full));
        assert_eq!(space.free(), 5);
        assert_eq!(space.take_many(3, Purpose::Fresh).map(|taken| taken.len()), Ok(3));
    }

    #[test]
    fn files_take_turns() {
        let mut space = Space::new(2, 0);
        space.raise_target(4, Vec::new());
        (0..4).for_each(|segment| space.add(segment, FileIndex(segment as u16 % 2)));
        let taken: Vec<u32> =
            (0..4).filter_map(|_| take(&mut space, Purpose::Fresh).ok()).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn a_lowered_flash_size_retires_all_but_the_reserve_and_a_raised_one_brings_back() {
        let mut space = space(6);
        let used = take(&mut space, Purpose::Fresh).expect("free");
        assert_eq!(space.lower_target(1).len(), 3);
        assert_eq!((space.free(), space.active()), (2, 3));
        assert!(!space.give(written(used)));
        assert_eq!((space.free(), space.active()), (2, 2));
        assert_eq!(take(&mut space, Purpose::Collected), Ok(1));
        assert!(space.give(written(1)), "the reserve is filled first");
        let returning = space.take_retired(9);
        assert_eq!(returning.len(), 4);
        assert!(space.take_retired(9).is_empty());
        assert_eq!(space.raise_target(6, returning).len(), 4);
        assert_eq!((space.free(), space.active()), (6, 6));
    }

    #[test]
    fn old_data_is_punched_beyond_what_is_kept() {
        let mut space = space(5);
        let taken = space.take_many(3, Purpose::Collected).expect("free");
        taken.iter().for_each(|&segment| assert!(space.give(written(segment))));
        assert!(space.take_to_punch(3).is_none());
        let punch = space.take_to_punch(2).expect("three are written");
        assert_eq!(punch.segment, taken[0]);
        assert!(space.take_to_punch(2).is_none());
        assert!(space.give_punched(punch));
        // Freed last, used first; the punched one comes last, and not at all where blocks have run
        // out.
        assert_eq!(space.take_many(2, Purpose::Collected), Ok(vec![taken[2], taken[1]]));
        assert_eq!(space.set_no_space(ONE), [taken[0]]);
        assert_eq!(space.take_many(2, Purpose::Collected), Ok(vec![3, 4]));
        assert_eq!(take(&mut space, Purpose::Collected), Err(NoSegment::Full));
    }

    #[test]
    fn a_failed_file_has_no_segments() {
        let mut space = space(4);
        let used = take(&mut space, Purpose::Fresh).expect("free");
        assert_eq!(space.fail_file(ONE).len(), 3);
        assert_eq!(take(&mut space, Purpose::Collected), Err(NoSegment::Failed));
        assert!(!space.give(written(used)));
        assert_eq!(space.active(), 0);
    }
}
