//! Which segments are free, on which file, and who may have them.
//!
//! Owns the lists behind one short mutex, taken once for each segment that is opened or freed. The rules:
//! - Segments are opened on the files in turn, so that all drives share the load.
//! - The last `reserve` free segments are for what collections keep: without them a full log could not be collected.
//! - Of the free segments of a file the one freed last is used first: its blocks are still the file's. The ones that
//!   are free for long give their blocks back to the filesystem (`Space::take_to_punch`).

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

    /// Takes free segments: all of them or none. More than one is for a record that is larger than a segment.
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
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            // Punched segments that cannot be written are counted as free, so there may be too few.
            let Some(free) = self.take_next() else {
                taken.into_iter().for_each(|free| self.put(free));
                return Err(NoSegment::Full);
            };
            taken.push(free);
        }
        Ok(taken.iter().map(|free| free.segment).collect())
    }

    fn take_next(&mut self) -> Option<FreeSegment> {
        for turn in 0..self.files.len() {
            let index = (self.next_file + turn) % self.files.len();
            let file = &mut self.files[index];
            let usable = |free: &FreeSegment| !file.no_space || free.blocks != Blocks::Punched;
            let Some(at) = file.free.iter().rposition(usable) else { continue };
            let taken = file.free.remove(at).expect("invariant: the position was found");
            file.written -= usize::from(taken.blocks == Blocks::Written);
            self.free -= 1;
            self.next_file = (index + 1) % self.files.len();
            return Some(taken);
        }
        None
    }

    /// Takes a segment back: as a free one, or as one that does not count any more. True when it is free.
    pub(crate) fn give(&mut self, free: FreeSegment) -> bool {
        let failed = self.files[usize::from(free.file.0)].failed;
        if failed || self.is_over_target() {
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
        // The end is used first: what was written last, then what was reserved, in the order of the file.
        if free.blocks == Blocks::Written {
            file.free.push_back(free);
        } else {
            file.free.push_front(free);
        }
    }

    /// Takes a segment whose blocks should go back to the filesystem: a retired one, or a free one when its file has
    /// more than `keep` free ones with old data. `give_punched` brings it back.
    pub(crate) fn take_to_punch(&mut self, keep: usize) -> Option<FreeSegment> {
        if let Some(at) = self.retired.iter().position(|free| free.blocks == Blocks::Written) {
            return Some(self.retired.swap_remove(at));
        }
        let file = self.files.iter_mut().find(|file| file.written > keep)?;
        let at = file.free.iter().position(|free| free.blocks == Blocks::Written)?;
        file.written -= 1;
        self.free -= 1;
        // Out of the count while it is away, as if it were retired.
        self.active -= 1;
        file.free.remove(at)
    }

    /// Takes back what `take_to_punch` gave. Returns the segments that are free now.
    pub(crate) fn give_punched(&mut self, free: FreeSegment) -> Vec<u32> {
        self.retired.push(FreeSegment { blocks: Blocks::Punched, ..free });
        self.unretire()
    }

    /// Adds a segment that was just made at the end of its file.
    pub(crate) fn add(&mut self, segment: u32, file: FileIndex) {
        self.files[usize::from(file.0)].numbers += 1;
        self.active += 1;
        self.put(FreeSegment { segment, file, blocks: Blocks::Reserved });
    }

    /// Changes how many segments count. Returns the free ones that do not count any more; those in use follow when
    /// they are freed.
    pub(crate) fn lower_target(&mut self, segments: usize) -> Vec<u32> {
        self.target = segments;
        let mut retired = Vec::new();
        while self.is_over_target()
            && let Some(free) = self.files.iter_mut().find_map(|file| file.free.pop_front())
        {
            self.files[usize::from(free.file.0)].written -=
                usize::from(free.blocks == Blocks::Written);
            self.free -= 1;
            self.active -= 1;
            self.retired.push(free);
            retired.push(free.segment);
        }
        retired
    }

    /// Changes how many segments count. Returns those that were retired and are free now; for the rest the caller
    /// adds new ones.
    pub(crate) fn raise_target(&mut self, segments: usize) -> Vec<u32> {
        self.target = segments;
        self.unretire()
    }

    fn unretire(&mut self) -> Vec<u32> {
        let mut freed = Vec::new();
        while self.active < self.target {
            let back = |free: &FreeSegment| {
                free.blocks != Blocks::Written && !self.files[usize::from(free.file.0)].failed
            };
            let Some(at) = self.retired.iter().position(back) else { break };
            let free = self.retired.swap_remove(at);
            self.active += 1;
            self.put(free);
            freed.push(free.segment);
        }
        freed
    }

    /// Which new segments each file needs for a raised target, after the retired ones that come back: the emptiest
    /// file that works gets the next.
    pub(crate) fn plan_homes(&self, target: usize) -> Vec<(FileIndex, Range<u32>)> {
        let works = |file: FileIndex| !self.files[usize::from(file.0)].failed;
        let back = |free: &&FreeSegment| free.blocks != Blocks::Written && works(free.file);
        let returning = self.retired.iter().filter(back).count();
        let mut missing = target.saturating_sub(self.active + returning);
        let mut plan: Vec<(FileIndex, Range<u32>)> = (0..self.files.len() as u16)
            .map(|index| (FileIndex(index), self.files[usize::from(index)].numbers))
            .filter(|(file, _)| works(*file))
            .map(|(file, numbers)| (file, numbers..numbers))
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
        let file = &mut self.files[usize::from(index.0)];
        file.failed = true;
        file.written = 0;
        let free: Vec<FreeSegment> = file.free.drain(..).collect();
        self.free -= free.len();
        self.active -= free.len();
        let segments = free.iter().map(|free| free.segment).collect();
        self.retired.extend(free);
        segments
    }

    /// The filesystem of a file ran out of blocks: only segments that have theirs are used from now on.
    pub(crate) fn set_no_space(&mut self, index: FileIndex) {
        self.files[usize::from(index.0)].no_space = true;
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
        assert!(space.raise_target(count as usize).is_empty());
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
        space.raise_target(4);
        (0..4).for_each(|segment| space.add(segment, FileIndex(segment as u16 % 2)));
        let taken: Vec<u32> =
            (0..4).filter_map(|_| take(&mut space, Purpose::Fresh).ok()).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn a_lowered_flash_size_retires_and_a_raised_one_brings_back() {
        let mut space = space(4);
        let used = take(&mut space, Purpose::Fresh).expect("free");
        assert_eq!(space.lower_target(1).len(), 3);
        assert_eq!((space.free(), space.active()), (0, 1));
        assert_eq!(space.raise_target(3).len(), 2);
        assert_eq!(space.active(), 3);
        space.lower_target(0);
        assert!(!space.give(written(used)));
        assert_eq!((space.free(), space.active()), (0, 0));
        // Old data is punched out before the segment counts again.
        let punch = space.take_to_punch(9);
        assert_eq!(punch.map(|free| free.segment), Some(used));
    }

    #[test]
    fn old_data_is_punched_beyond_what_is_kept() {
        let mut space = space(3);
        let taken = space.take_many(3, Purpose::Collected).expect("free");
        taken.iter().for_each(|&segment| assert!(space.give(written(segment))));
        assert!(space.take_to_punch(3).is_none());
        let punch = space.take_to_punch(2).expect("three are written");
        assert_eq!(punch.segment, taken[0]);
        assert!(space.take_to_punch(2).is_none());
        assert_eq!(space.give_punched(punch), [taken[0]]);
        // Freed last, used first: the punched one comes last, and not at all where blocks have run out.
        assert_eq!(space.take_many(2, Purpose::Collected), Ok(vec![taken[2], taken[1]]));
        space.set_no_space(ONE);
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
