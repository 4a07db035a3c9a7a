//! Which segments are free, on which file, and who may have them.
//!
//! Owns the lists behind one short mutex, taken once for each segment that is opened or freed. The
//! rules:
//! - Segments are opened on the files in turn, so that all drives share the load.
//! - The last `reserve` free segments are for what gc runs keep: without them a full log could
//!   not be collected.
//! - Of the free segments of a file the one freed last is used first: its blocks are still the
//!   file's. The ones that are free for long give their blocks back to the filesystem
//!   (`Space::take_to_punch`).
//! - The flash size is shared out evenly over the paths that take segments. A path with less than
//!   its share (a new one, or one that takes over from one that is left) has the rest of it as
//!   spare segments: writable, but counted only when another path has given up as many. So what is
//!   in use never grows beyond the flash size, and nothing is moved for the sake of balance.
//! - A path that is left has a share of nothing, and is closed when nothing of it is in use.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::epochs::Epochs;
use super::state::Holds;
use crate::device::FileIndex;

/// What is held of a log that is to be smaller is worth a checkpoint from this share of its size on, a 32nd.
const HELD_UP_SHIFT: u32 = 5;

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
    /// Records that a gc run keeps.
    Survivors,
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
    /// Segments that count.
    active: usize,
    /// Those of them that are free but for checkpoints.
    held: usize,
    /// Segments that should count.
    share: usize,
    /// Writable segments that do not count yet.
    spare: VecDeque<FreeSegment>,
    /// Retired segments whose blocks are being given back.
    punching: usize,
    /// Segments that the file has room for, in use or not.
    numbers: u32,
    /// Writes fail.
    failed: bool,
    /// The filesystem ran out of blocks: punched segments cannot be written.
    no_space: bool,
    /// The path was taken off the list.
    leaving: bool,
    /// There is no file with this index.
    closed: bool,
}

impl FileSpace {
    fn takes_segments(&self) -> bool {
        !(self.failed || self.leaving || self.closed)
    }

    /// Whether there is no space for a segment.
    fn lacks_space(&self, free: &FreeSegment) -> bool {
        self.no_space && free.blocks == Blocks::Punched
    }

    /// Segments beyond the share.
    fn excess(&self) -> isize {
        self.active as isize - self.share as isize
    }
}

/// What a segment is for, of a log that was there before.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Recovered {
    /// It has records.
    Records,
    /// It can be written.
    Unused,
    /// It does not count.
    Retired,
}

/// What has to be made writable so that each path can have its share.
pub(crate) struct Plan {
    target: usize,
    shares: Vec<(FileIndex, usize)>,
    /// Retired segments that will count again.
    pub(crate) returning: Vec<FreeSegment>,
    /// New segments.
    pub(crate) homes: Vec<(FileIndex, Range<u32>)>,
}

/// The lists.
pub(crate) struct Space {
    files: Vec<FileSpace>,
    next_file: usize,
    free: usize,
    reserve: usize,
    /// Free segments that new records may not have yet: what is free is to last until a checkpoint brings more.
    pub(crate) kept_back: usize,
    /// Segments that count: free or in use, not retired.
    active: usize,
    /// Segments that should count, by the flash size.
    target: usize,
    /// Segments that do not count: the flash size was lowered, or their path failed or is left.
    retired: Vec<FreeSegment>,
    /// Segments whose path was removed: they can be made anew elsewhere.
    homeless: Vec<u32>,
    /// Segments in which nothing lives, to be freed.
    pub(crate) emptied: Vec<u32>,
    /// Segments to be freed that had reads in flight.
    pub(crate) draining: Vec<u32>,
    /// The other segments of records that are larger than a segment, by their first, until it is given back.
    pub(crate) spans: HashMap<u32, Vec<u32>>,
    /// Which checkpoints may refer to segments.
    pub(crate) epochs: Epochs,
    /// Segments that are free but for these. They count, and are in use.
    held: Vec<Held>,
}

/// A segment that is free but for a checkpoint.
struct Held {
    free: FreeSegment,
    /// As `Epochs` had it remembered.
    opened: u64,
    freed: u64,
}

impl Space {
    /// `files`: whether there is a file with each index.
    pub(crate) fn new(files: &[bool], reserve: usize) -> Self {
        let file = |&is_open: &bool| FileSpace { closed: !is_open, ..FileSpace::default() };
        let files = files.iter().map(file).collect();
        Self {
            files,
            next_file: 0,
            free: 0,
            reserve,
            kept_back: 0,
            active: 0,
            target: 0,
            retired: Vec::new(),
            homeless: Vec::new(),
            emptied: Vec::new(),
            draining: Vec::new(),
            spans: HashMap::new(),
            epochs: Epochs::default(),
            held: Vec::new(),
        }
    }

    /// Keeps a segment, opened then, that is to be freed, if a checkpoint may refer to it. False: none does.
    pub(crate) fn hold_if_needed(&mut self, free: FreeSegment, opened: u64) -> bool {
        let freed = self.epochs.at_freeing();
        let is_held = self.epochs.holds(opened, freed);
        if is_held {
            self.file(free.file).held += 1;
            self.held.push(Held { free, opened, freed });
        }
        is_held
    }

    /// Takes those of the held segments that no checkpoint refers to any more.
    pub(crate) fn take_needless(&mut self) -> Vec<FreeSegment> {
        let epochs = &self.epochs;
        let is_needed = |held: &Held| epochs.holds(held.opened, held.freed);
        let (needed, needless): (Vec<Held>, Vec<Held>) = self.held.drain(..).partition(is_needed);
        self.held = needed;
        needless.iter().for_each(|held| self.file(held.free.file).held -= 1);
        needless.into_iter().map(|held| held.free).collect()
    }

    /// Whether the next checkpoint is all that a path lacks to be left, or brings the log down to its size, or nearer to it by
    /// a 32nd.
    pub(crate) fn is_held_up(&self) -> bool {
        let is_emptied =
            |file: &FileSpace| file.leaving && file.held > 0 && file.held == file.active;
        let excess = self.active.saturating_sub(self.target);
        let is_worth_it = || self.held.len() >= excess.min(self.target >> HELD_UP_SHIFT).max(1);
        self.files.iter().any(is_emptied) || excess > 0 && is_worth_it()
    }

    /// Segments that are free but for a checkpoint.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes in a segment of a log that was there before, whose file has room for `numbers` segments at least.
    pub(crate) fn recover(&mut self, segment: FreeSegment, numbers: u32, holds: Recovered) {
        let file = self.file(segment.file);
        file.numbers = file.numbers.max(numbers);
        match holds {
            Recovered::Records => self.count_in(segment.file),
            Recovered::Unused => self.file(segment.file).spare.push_back(segment),
            Recovered::Retired => self.retired.push(segment),
        }
    }

    /// Takes in a segment of such a log whose file is gone.
    pub(crate) fn recover_homeless(&mut self, segment: u32) {
        self.homeless.push(segment);
    }

    /// The segments that are in no use, as a checkpoint has them.
    pub(crate) fn unused(&self) -> Vec<(u32, Holds)> {
        let of_files = self.files.iter().flat_map(|file| file.free.iter().chain(&file.spare));
        let unused = of_files.map(|free| (free.segment, Holds::Unused(free.blocks)));
        let retired = self.retired.iter().map(|free| (free.segment, Holds::Retired(free.blocks)));
        let homeless = self.homeless.iter().map(|&segment| (segment, Holds::Homeless));
        unused.chain(retired).chain(homeless).collect()
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
        self.files.iter().filter(|file| file.failed && !file.closed).count()
    }

    /// Paths that are on the list.
    pub(crate) fn files_open(&self) -> usize {
        self.files.iter().filter(|file| !file.leaving && !file.closed).count()
    }

    /// Paths that are being left, as bits by their index.
    pub(crate) fn leaving(&self) -> u64 {
        self.bits(|file| file.leaving)
    }

    /// Those of them that have segments in use.
    pub(crate) fn leaving_in_use(&self) -> u64 {
        self.bits(|file| file.leaving && file.active > 0)
    }

    fn bits(&self, chosen: impl Fn(&FileSpace) -> bool) -> u64 {
        let files = self.files.iter().enumerate();
        files.map(|(index, file)| u64::from(chosen(file)) << index).sum()
    }

    /// Segments in use on paths that are being left.
    pub(crate) fn leaving_segments(&self) -> usize {
        self.files.iter().filter(|file| file.leaving).map(|file| file.active).sum()
    }

    /// Segments that can be made anew with another home.
    pub(crate) fn homeless(&self) -> usize {
        self.homeless.len()
    }

    /// Takes free segments: all of them or none. More than one is for a record that is larger than
    /// a segment.
    pub(crate) fn take_many(
        &mut self,
        count: usize,
        purpose: Purpose,
    ) -> Result<Vec<u32>, NoSegment> {
        if !self.files.iter().any(FileSpace::takes_segments) {
            return Err(NoSegment::Failed);
        }
        let reserved = match purpose {
            Purpose::Fresh => self.reserve + self.kept_back,
            Purpose::Survivors => 0,
        };
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

    fn file(&mut self, index: FileIndex) -> &mut FileSpace {
        &mut self.files[usize::from(index.0)]
    }

    fn count_in(&mut self, index: FileIndex) {
        self.file(index).active += 1;
        self.active += 1;
    }

    fn count_out(&mut self, index: FileIndex) {
        self.file(index).active -= 1;
        self.active -= 1;
    }

    /// Takes a segment back: as a free one, a spare one, or one that is retired. False when it is
    /// retired.
    pub(crate) fn give(&mut self, free: FreeSegment) -> bool {
        let file = &self.files[usize::from(free.file.0)];
        // A lower flash size must not take gc's reserve: it is what makes room.
        let shrinks = self.is_over_target() && self.free >= self.reserve;
        let moves = !self.is_over_target() && file.excess() > 0 && self.has_spare();
        if !file.takes_segments() || file.lacks_space(&free) || shrinks || moves {
            self.count_out(free.file);
            let is_spare = self.set_aside(free);
            self.fill();
            return is_spare;
        }
        self.put(free);
        true
    }

    /// Keeps a segment that does not count: as a spare one while its file has less than its share,
    /// else as a retired one. True when it is spare.
    fn set_aside(&mut self, free: FreeSegment) -> bool {
        let file = &mut self.files[usize::from(free.file.0)];
        let is_writable = file.takes_segments() && !file.lacks_space(&free);
        let is_spare = is_writable && file.active + file.spare.len() < file.share;
        if is_spare {
            file.spare.push_back(free);
        } else {
            self.retired.push(free);
        }
        is_spare
    }

    fn has_spare(&self) -> bool {
        self.files.iter().any(|file| !file.spare.is_empty())
    }

    /// Counts spare segments in, as many as are missing.
    fn fill(&mut self) {
        while self.active < self.target || self.free < self.reserve {
            let most = self.files.iter_mut().max_by_key(|file| file.spare.len());
            let Some(spare) = most.and_then(|file| file.spare.pop_front()) else { return };
            self.count_in(spare.file);
            self.put(spare);
        }
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
        // Blocks without data go at once when the file of a path that is left is removed.
        let is_held = |free: &FreeSegment| match free.blocks {
            Blocks::Written => true,
            Blocks::Reserved => !self.files[usize::from(free.file.0)].leaving,
            Blocks::Punched => false,
        };
        if let Some(at) = self.retired.iter().position(is_held) {
            let free = self.retired.swap_remove(at);
            self.file(free.file).punching += 1;
            return Some(free);
        }
        if self.free <= self.reserve {
            return None;
        }
        let file = self.files.iter_mut().find(|file| file.written > keep)?;
        let at = file.free.iter().position(|free| free.blocks == Blocks::Written)?;
        let free = file.free.remove(at)?;
        self.forget(&free);
        // Out of the count while it is away, as if it were retired.
        self.count_out(free.file);
        self.file(free.file).punching += 1;
        Some(free)
    }

    /// Takes back what `take_to_punch` gave. False when it is retired.
    pub(crate) fn give_punched(&mut self, free: FreeSegment) -> bool {
        let free = FreeSegment { blocks: Blocks::Punched, ..free };
        let file = self.file(free.file);
        file.punching -= 1;
        let is_writable = file.takes_segments() && !file.no_space;
        if !is_writable {
            self.retired.push(free);
            return false;
        }
        if self.active >= self.target {
            return self.set_aside(free);
        }
        self.count_in(free.file);
        self.put(free);
        true
    }

    /// A path was added: there is a new, empty file.
    pub(crate) fn add_file(&mut self, index: FileIndex) {
        let at = usize::from(index.0);
        if at == self.files.len() {
            self.files.push(FileSpace::default());
        }
        self.files[at] = FileSpace::default();
    }

    /// There is no file with this index any more.
    pub(crate) fn close_file(&mut self, index: FileIndex) {
        *self.file(index) = FileSpace { closed: true, ..FileSpace::default() };
    }

    /// A file that is left and of which nothing is in use any more.
    pub(crate) fn left_file(&self) -> Option<FileIndex> {
        let has_data = |file: FileIndex| {
            self.retired.iter().any(|free| free.file == file && free.blocks == Blocks::Written)
        };
        (0..self.files.len() as u16).map(FileIndex).find(|&index| {
            let file = &self.files[usize::from(index.0)];
            file.leaving && file.active + file.punching == 0 && !has_data(index)
        })
    }

    /// Closes such a file: its segments have no home any more.
    pub(crate) fn close_left(&mut self, index: FileIndex) {
        let (gone, kept) = self.retired.drain(..).partition(|free| free.file == index);
        self.retired = kept;
        let gone: Vec<FreeSegment> = gone;
        self.homeless.extend(gone.iter().map(|free| free.segment));
        self.close_file(index);
    }

    /// Takes a segment that can be made anew with another home.
    pub(crate) fn take_homeless(&mut self) -> Option<u32> {
        self.homeless.pop()
    }

    /// What is missing so that the files for which `stays` holds have an even share each of that
    /// many segments. `None`: none of them takes segments. Give it to `carry_out` or `cancel`.
    pub(crate) fn plan(
        &mut self,
        target: usize,
        stays: impl Fn(FileIndex) -> bool,
    ) -> Option<Plan> {
        let all = (0..self.files.len() as u16).map(FileIndex);
        let takers: Vec<FileIndex> = all
            .filter(|&index| {
                let file = &self.files[usize::from(index.0)];
                stays(index) && !file.failed && !file.closed
            })
            .collect();
        let count = takers.len();
        let mut plan =
            Plan { target, shares: Vec::new(), returning: Vec::new(), homes: Vec::new() };
        for (turn, index) in takers.into_iter().enumerate() {
            let share = target / count + usize::from(turn < target % count);
            let file = &self.files[usize::from(index.0)];
            let (numbers, held) = (file.numbers, file.active + file.spare.len());
            let missing = share.saturating_sub(held);
            let returning = self.take_retired(index, missing);
            let new = (missing - returning.len()) as u32;
            plan.shares.push((index, share));
            plan.returning.extend(returning);
            plan.homes.push((index, numbers..numbers + new));
        }
        (count > 0).then_some(plan)
    }

    /// Takes retired segments of a file, up to that many.
    fn take_retired(&mut self, index: FileIndex, count: usize) -> Vec<FreeSegment> {
        let mut taken = Vec::new();
        self.retired.retain(|free| {
            let takes = taken.len() < count && free.file == index;
            if takes {
                taken.push(*free);
            }
            !takes
        });
        taken
    }

    /// Takes back what `plan` gave: dropped now, the plan changes nothing; carried out, it makes
    /// nothing writable.
    pub(crate) fn cancel(&mut self, plan: &mut Plan) {
        self.retired.append(&mut plan.returning);
        plan.homes.clear();
    }

    /// Shares the segments out as planned. `made` are the new ones that the plan asked for; their
    /// blocks, and those of the ones that return, were reserved. Files without a share are left.
    /// Paths that were out of blocks are tried again.
    ///
    /// Returns the segments that do not count any more.
    pub(crate) fn carry_out(&mut self, plan: Plan, made: Vec<FreeSegment>) -> Vec<u32> {
        self.target = plan.target;
        for file in &mut self.files {
            file.share = 0;
            file.no_space = false;
            file.leaving = !file.closed;
        }
        for (index, share) in plan.shares {
            let file = self.file(index);
            file.share = share;
            file.leaving = false;
        }
        for made in &made {
            self.file(made.file).numbers += 1;
        }
        for mut free in plan.returning.into_iter().chain(made) {
            if free.blocks == Blocks::Punched {
                free.blocks = Blocks::Reserved;
            }
            self.file(free.file).spare.push_back(free);
        }
        self.balance()
    }

    /// Lets each file have its share, as far as free and spare segments allow. Those in use follow
    /// when they are freed. Returns the segments that do not count any more.
    fn balance(&mut self) -> Vec<u32> {
        let before = self.retired.len();
        for file in &mut self.files {
            let missing = file.share.saturating_sub(file.active);
            // The path may have failed since the plan was made.
            let spare_max = if file.takes_segments() { missing } else { 0 };
            let surplus = file.spare.len().saturating_sub(spare_max);
            self.retired.extend(file.spare.drain(file.spare.len() - surplus..));
        }
        while let Some(index) = self.most_excessive(|file| file.leaving) {
            self.retire_one_free(index);
        }
        while self.is_over_target()
            && self.free > self.reserve
            && let Some(index) = self.most_excessive(|_| true)
        {
            self.retire_one_free(index);
        }
        while self.has_spare()
            && let Some(index) = self.most_excessive(|file| file.excess() > 0)
        {
            self.retire_one_free(index);
            self.fill();
        }
        self.fill();
        self.retired[before..].iter().map(|free| free.segment).collect()
    }

    /// The file with free segments that is furthest beyond its share.
    fn most_excessive(&self, chosen: impl Fn(&FileSpace) -> bool) -> Option<FileIndex> {
        let files = self.files.iter().enumerate();
        let with_free = files.filter(|(_, file)| !file.free.is_empty() && chosen(file));
        let most = with_free.max_by_key(|(_, file)| file.excess())?;
        Some(FileIndex(most.0 as u16))
    }

    fn retire_one_free(&mut self, index: FileIndex) {
        let free = self.file(index).free.pop_front();
        let free = free.expect("invariant: the file has free segments");
        self.forget(&free);
        self.count_out(index);
        self.set_aside(free);
    }

    /// Writes to a file fail: its free segments do not count any more. Returns them.
    pub(crate) fn fail_file(&mut self, index: FileIndex) -> Vec<u32> {
        let file = self.file(index);
        file.failed = true;
        let retired = self.retire_free(index, |_| true);
        self.fill();
        retired
    }

    /// The filesystem of a file ran out of blocks: the free segments that have none do not count
    /// any more. Returns them.
    pub(crate) fn set_no_space(&mut self, index: FileIndex) -> Vec<u32> {
        self.files[usize::from(index.0)].no_space = true;
        self.retire_free(index, |free| free.blocks == Blocks::Punched)
    }

    /// Takes one segment that has no blocks, of a file whose filesystem had none left, to try again.
    pub(crate) fn take_without_blocks(&mut self) -> Option<FreeSegment> {
        for index in 0..self.files.len() {
            if !self.files[index].no_space {
                continue;
            }
            let index = FileIndex(index as u16);
            match self.retired.iter().position(|free| free.file == index) {
                Some(at) => return Some(self.retired.swap_remove(at)),
                None => self.file(index).no_space = false,
            }
        }
        None
    }

    /// Takes back what `take_without_blocks` gave, with blocks or still without. True when it is
    /// free.
    pub(crate) fn give_tried(&mut self, free: FreeSegment, has_blocks: bool) -> bool {
        if !has_blocks || !self.file(free.file).takes_segments() {
            self.retired.push(free);
            return false;
        }
        let free = FreeSegment { blocks: Blocks::Reserved, ..free };
        if self.active >= self.target {
            return self.set_aside(free);
        }
        self.count_in(free.file);
        self.put(free);
        true
    }

    fn retire_free(&mut self, index: FileIndex, chosen: fn(&FreeSegment) -> bool) -> Vec<u32> {
        let all = std::mem::take(&mut self.files[usize::from(index.0)].free);
        let (retired, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(chosen);
        self.files[usize::from(index.0)].free = kept.into();
        for free in &retired {
            self.forget(free);
            self.count_out(free.file);
        }
        let all = std::mem::take(&mut self.file(index).spare);
        let (retired_spare, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(chosen);
        self.file(index).spare = kept.into();
        let retired: Vec<FreeSegment> = retired.into_iter().chain(retired_spare).collect();
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

    /// Makes what a plan asks for, with segments from `next` on.
    fn carry_out(space: &mut Space, plan: Plan, mut next: u32) -> Vec<u32> {
        let mut made = Vec::new();
        for (file, numbers) in &plan.homes {
            for _ in numbers.clone() {
                made.push(FreeSegment { segment: next, file: *file, blocks: Blocks::Reserved });
                next += 1;
            }
        }
        space.carry_out(plan, made)
    }

    /// Changes the flash size. Returns the segments that do not count any more.
    fn resize(space: &mut Space, target: usize, next: u32) -> Vec<u32> {
        let leaving = space.leaving();
        let plan = space.plan(target, |file| leaving >> file.0 & 1 == 0).expect("files");
        carry_out(space, plan, next)
    }

    /// A space of `count` new segments on one file, two of them reserved.
    fn space(count: u32) -> Space {
        let mut space = Space::new(&[true], 2);
        assert!(resize(&mut space, count as usize, 0).is_empty());
        space
    }

    fn written(segment: u32) -> FreeSegment {
        FreeSegment { segment, file: ONE, blocks: Blocks::Written }
    }

    #[test]
    fn the_reserve_is_for_gc() {
        let mut space = space(3);
        assert!(take(&mut space, Purpose::Fresh).is_ok());
        assert_eq!(take(&mut space, Purpose::Fresh), Err(NoSegment::Full));
        assert!(take(&mut space, Purpose::Survivors).is_ok());
        assert!(take(&mut space, Purpose::Survivors).is_ok());
        assert_eq!(take(&mut space, Purpose::Survivors), Err(NoSegment::Full));
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
        let mut space = Space::new(&[true; 2], 0);
        resize(&mut space, 4, 0);
        let taken: Vec<u32> =
            (0..4).filter_map(|_| take(&mut space, Purpose::Fresh).ok()).collect();
        assert_eq!(taken, [0, 2, 1, 3]);
    }

    #[test]
    fn a_lowered_flash_size_retires_all_but_the_reserve_and_a_raised_one_brings_back() {
        let mut space = space(6);
        let used = take(&mut space, Purpose::Fresh).expect("free");
        assert_eq!(resize(&mut space, 1, 9).len(), 3);
        assert_eq!((space.free(), space.active()), (2, 3));
        assert!(!space.give(written(used)));
        assert_eq!((space.free(), space.active()), (2, 2));
        assert_eq!(take(&mut space, Purpose::Survivors), Ok(1));
        assert!(space.give(written(1)), "the reserve is filled first");
        let mut plan = space.plan(6, |_| true).expect("a file");
        assert_eq!(plan.returning.len(), 4);
        assert_eq!(plan.homes, [(ONE, 6..6)]);
        space.cancel(&mut plan);
        assert!(resize(&mut space, 6, 9).is_empty());
        assert_eq!((space.free(), space.active()), (6, 6));
    }

    #[test]
    fn a_new_path_takes_over_its_share_as_the_others_free_theirs() {
        let mut space = space(8);
        let used = space.take_many(6, Purpose::Survivors).expect("free");
        let two = FileIndex(1);
        space.add_file(two);
        let retired = resize(&mut space, 8, 100);
        assert_eq!(retired.len(), 2, "what is free is exchanged at once");
        assert_eq!((space.free(), space.active()), (2, 8));
        assert!(!space.give(written(used[0])));
        assert!(!space.give(written(used[1])));
        assert!(space.give(written(used[2])), "each has its share");
        assert_eq!((space.free(), space.active()), (5, 8));
        assert!(!space.has_spare());
        assert_eq!(space.leaving(), 0);
    }

    #[test]
    fn a_path_is_closed_when_nothing_of_it_is_in_use_and_can_return_before() {
        let two = FileIndex(1);
        let mut space = Space::new(&[true; 2], 0);
        resize(&mut space, 8, 0);
        let used = space.take_many(4, Purpose::Fresh).expect("free");
        let on_one: Vec<u32> = used.into_iter().filter(|&segment| segment < 4).collect();
        assert_eq!(on_one.len(), 2);
        for round in 0..2 {
            let plan = space.plan(8, |file| file == two).expect("a file");
            assert_eq!(carry_out(&mut space, plan, 100).len(), 2);
            assert_eq!((space.leaving(), space.files_open()), (1, 1));
            assert_eq!((space.free(), space.active()), (4, 8));
            assert_eq!((space.leaving_segments(), space.left_file()), (2, None));
            if round == 0 {
                let plan = space.plan(8, |_| true).expect("files");
                assert!(plan.homes.iter().all(|(_, numbers)| numbers.is_empty()));
                carry_out(&mut space, plan, 200);
                assert_eq!((space.leaving(), space.files_open()), (0, 2));
                assert_eq!((space.free(), space.active()), (4, 8));
            }
        }
        assert!(on_one.iter().all(|&segment| !space.give(written(segment))));
        assert_eq!((space.free(), space.active(), space.left_file()), (6, 8, None));
        while let Some(punched) = space.take_to_punch(9) {
            assert!(!space.give_punched(punched));
        }
        assert_eq!(space.left_file(), Some(ONE));
        space.close_left(ONE);
        assert_eq!(space.left_file(), None);
        assert_eq!((space.leaving(), space.homeless()), (0, 4));
        assert!(space.plan(8, |file| file == ONE).is_none(), "there is no such path");
    }

    #[test]
    fn a_checkpoint_is_worth_it_that_lets_a_path_be_left_or_the_log_be_smaller() {
        let two = FileIndex(1);
        let mut space = Space::new(&[true; 2], 0);
        space.epochs = Epochs::behind(1);
        resize(&mut space, 128, 0);
        let used = space.take_many(8, Purpose::Fresh).expect("free");
        let file_of = |segment: u32| FileIndex((segment / 64) as u16);
        let free = |segment| FreeSegment { file: file_of(segment), ..written(segment) };
        let hold = |space: &mut Space, segment| {
            assert!(space.hold_if_needed(free(segment), 0), "the checkpoint may refer to it");
            space.is_held_up()
        };
        let (on_one, on_two): (Vec<u32>, _) =
            used.into_iter().partition(|&segment| file_of(segment) == ONE);
        // Nothing is to be given up.
        assert!(!hold(&mut space, on_one[0]));
        // All that is in use of a path, or less.
        let plan = space.plan(128, |file| file == two).expect("a file");
        carry_out(&mut space, plan, 128);
        let held: Vec<bool> =
            on_one[1..].iter().map(|&segment| hold(&mut space, segment)).collect();
        assert_eq!(held, [false, false, true]);
        // All that there is too much, or a 32nd.
        resize(&mut space, 2, 0);
        assert_eq!(space.active() - space.target(), 6);
        assert!(hold(&mut space, on_two[0]));
        let number = space.epochs.begin();
        space.epochs.end(number, crate::engine::CheckpointEnd::InPlace);
        for free in space.take_needless() {
            space.give(free);
        }
        assert!(!space.is_held_up() && space.held() == 0);
    }

    #[test]
    fn old_data_is_punched_beyond_what_is_kept() {
        let mut space = space(5);
        let taken = space.take_many(3, Purpose::Survivors).expect("free");
        taken.iter().for_each(|&segment| assert!(space.give(written(segment))));
        assert!(space.take_to_punch(3).is_none());
        let punch = space.take_to_punch(2).expect("three are written");
        assert_eq!(punch.segment, taken[0]);
        assert!(space.take_to_punch(2).is_none());
        assert!(space.give_punched(punch));
        // Freed last, used first; the punched one comes last, and not at all where blocks have run
        // out.
        assert_eq!(space.take_many(2, Purpose::Survivors), Ok(vec![taken[2], taken[1]]));
        assert_eq!(space.set_no_space(ONE), [taken[0]]);
        assert_eq!(space.take_many(2, Purpose::Survivors), Ok(vec![3, 4]));
        assert_eq!(take(&mut space, Purpose::Survivors), Err(NoSegment::Full));
        // It is tried again until the filesystem has blocks for it.
        for has_blocks in [false, true] {
            let tried = space.take_without_blocks().expect("one has none");
            assert_eq!(tried.segment, taken[0]);
            assert!(space.take_without_blocks().is_none());
            assert_eq!(space.give_tried(tried, has_blocks), has_blocks);
            space.files[0].no_space = true;
        }
        assert_eq!(take(&mut space, Purpose::Survivors), Ok(taken[0]));
    }

    #[test]
    fn a_failed_file_has_no_segments() {
        let mut space = space(4);
        let used = take(&mut space, Purpose::Fresh).expect("free");
        assert_eq!(space.fail_file(ONE).len(), 3);
        assert_eq!(take(&mut space, Purpose::Survivors), Err(NoSegment::Failed));
        assert!(!space.give(written(used)));
        assert_eq!(space.active(), 0);
    }
}
