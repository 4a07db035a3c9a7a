//! What all workers of a log share: the segments, the free space, and the rules by which segments
//! are freed.
//!
//! On the read path nothing here takes a lock: a segment is found in the table, pinned, and its
//! counters are atomics. The mutex of `Space` is taken once for each segment that is opened or
//! freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::counters::{Counters, Histogram};
use super::flush::Flushes;
use super::format::{Block, SegmentId};
use super::geometry::Geometry;
use super::keeping::Keeping;
use super::lifetime::{Lifetimes, STREAMS, Stream};
use super::moving::AllMoving;
use super::segment::{Pending, STATES, Segment, State};
use super::space::{Blocks, FreeSegment, NoSegment, Purpose, Space};
use super::table::SegmentTable;
use crate::device::{Drives, Extent, FileIndex};
use crate::engine::FreeSpace;
use crate::engine::stats::EngineStats;
use crate::engine::{FREE_SPARE_EIGHTHS, HELD_SPARE_SHARE, SHORT_SPARE_EIGHTHS};
use crate::error::{AppendError, EngineError};
use crate::limits::PATHS_MAX;
use crate::location::{Location, RecordId};
use crate::record::{Lane, Place};

/// Free segments that gc has to itself, for each worker: one for small survivors, one
/// for large ones.
const RESERVE_SEGMENTS: usize = 2;

/// Garbage collection begins when fewer segments are free than this share of all, or than two for each
/// worker. The later, the more is dead by then.
const GC_BELOW_SHARE: usize = 256;

/// A victim must give back at least this share of itself: below that, collecting is copying.
const VICTIM_DEAD_SHARE: u32 = 32;

pub(crate) struct Shared {
    pub(crate) geometry: Geometry,
    pub(crate) table: SegmentTable,
    pub(crate) drives: Arc<dyn Drives>,
    pub(super) workers: usize,
    pub(super) space: Mutex<Space>,
    /// Whether `space` has segments to be freed.
    unsettled: AtomicBool,
    /// Free segments beyond the reserve.
    pub(super) free_segments: AtomicU64,
    /// Segments that the flash size allows and that exist.
    active_segments: AtomicU64,
    /// Whether there are more segments than the flash size allows.
    over_target: AtomicBool,
    /// The paths that are being left and still have segments in use, as bits by their file's index.
    leaving: AtomicU64,
    pub(super) live_bytes: AtomicU64,
    pub(super) sequence: AtomicU64,
    pub(crate) lifetimes: Lifetimes,
    gc_segments_unread: AtomicU64,
    last_write_error: Mutex<Option<EngineError>>,
    /// Reads that failed or brought damaged records, for the log.
    unreadable: AtomicU64,
    counters: Mutex<Vec<Arc<Counters>>>,
    /// See `Engine::set_read_ahead`.
    reads_ahead: AtomicBool,
    /// One change of the size or of the paths at a time.
    pub(super) resizing: Mutex<()>,
    /// Segments that are free but for checkpoints.
    held_segments: AtomicU64,
    /// See `Space::is_held_up`.
    is_held_up: AtomicBool,
    /// [`super::epochs::Epochs::holds_before`].
    holds_before: AtomicU64,
    /// Whether a checkpoint is taken when what is held is wanted.
    pub(super) checkpoint_comes: AtomicBool,
    pub(super) keeping: Keeping,
    pub(crate) flushes: Flushes,
    pub(crate) moving: AllMoving,
}

impl Shared {
    pub(crate) fn new(
        drives: Arc<dyn Drives>,
        geometry: Geometry,
        workers: usize,
        lifetimes: Lifetimes,
    ) -> Self {
        let files = drives.files();
        let count = files.iter().map(|file| usize::from(file.0) + 1).max().unwrap_or(0);
        assert!(workers > 0 && count <= PATHS_MAX);
        let is_open = |index| files.contains(&FileIndex(index as u16));
        let is_open: Vec<bool> = (0..count).map(is_open).collect();
        let space = Space::new(&is_open, RESERVE_SEGMENTS * workers);
        Self {
            geometry,
            table: SegmentTable::new(),
            drives,
            workers,
            space: Mutex::new(space),
            unsettled: AtomicBool::new(false),
            free_segments: AtomicU64::new(0),
            active_segments: AtomicU64::new(0),
            over_target: AtomicBool::new(false),
            leaving: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
            sequence: AtomicU64::new(1),
            lifetimes,
            gc_segments_unread: AtomicU64::new(0),
            last_write_error: Mutex::new(None),
            unreadable: AtomicU64::new(0),
            counters: Mutex::new(Vec::new()),
            reads_ahead: AtomicBool::new(true),
            resizing: Mutex::new(()),
            held_segments: AtomicU64::new(0),
            is_held_up: AtomicBool::new(false),
            holds_before: AtomicU64::new(0),
            checkpoint_comes: AtomicBool::new(true),
            keeping: Keeping::default(),
            flushes: Flushes::default(),
            moving: AllMoving::default(),
        }
    }

    /// The fewest segments with which a log can work: every stream of every worker open, the
    /// reserve, some free ones.
    pub(crate) fn segments_min(workers: usize) -> usize {
        workers * (STREAMS.len() + RESERVE_SEGMENTS + 2) + 2
    }

    /// Counters for one more worker.
    pub(crate) fn add_worker(&self) -> Arc<Counters> {
        Counters::of_one_more(&mut self.counters.lock())
    }

    pub(crate) fn reads_ahead(&self) -> bool {
        self.reads_ahead.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_ahead(&self, is_on: bool) {
        self.reads_ahead.store(is_on, Ordering::Relaxed);
    }

    // Places.

    /// The segment and offset of a location from outside; `None` when no record of that size can be
    /// there.
    pub(crate) fn split(&self, at: Location, size: usize) -> Option<(u32, u32)> {
        let (segment, offset) = self.geometry.split(at);
        self.table.find(segment)?;
        let end = if size > self.geometry.segment_record_max() { 0 } else { size as u64 };
        (u64::from(offset) + end <= u64::from(self.geometry.data_end()))
            .then_some((segment, offset))
    }

    /// See `Engine::identify`. A segment's generation rises before the segment takes its first
    /// record, and whoever holds the slot of a record has seen that record's append.
    pub(crate) fn identify(&self, at: Location) -> RecordId {
        let (segment, _) = self.geometry.split(at);
        let generation = self.table.find(segment).map_or(0, Segment::generation);
        RecordId { at, generation }
    }

    pub(crate) fn place(&self, segment: u32, offset: u32) -> Place {
        let generation = self.table.get(segment).generation();
        Place { at: self.geometry.join(segment, offset), generation }
    }

    pub(crate) fn id(&self, segment: u32) -> SegmentId {
        SegmentId { segment, generation: self.table.get(segment).generation() }
    }

    /// Where a range of a segment is on the drives.
    pub(crate) fn extent(&self, segment: u32, offset: u32, size: usize) -> Extent {
        let home = self.table.home(segment);
        let start = u64::from(home.number) * self.geometry.segment_bytes();
        Extent { file: home.file, offset: start + u64::from(offset), size }
    }

    /// A read of a segment has ended. The last one of a segment that waits to be freed leaves that
    /// to `settle`.
    pub(crate) fn unpin(&self, segment: u32) {
        self.table.get(segment).unpin();
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    // Errors.

    pub(crate) fn read_error(&self, segment: u32, errno: i32) -> EngineError {
        let path = self.drives.name(self.table.home(segment).file);
        self.log_unreadable(EngineError::Io { path, operation: "read", errno })
    }

    pub(crate) fn corrupted(&self, at: Location, what: &'static str) -> EngineError {
        let (segment, offset) = self.geometry.split(at);
        let path = self.drives.name(self.table.home(segment).file);
        let offset = u64::from(offset);
        self.log_unreadable(EngineError::Corrupted { path, segment, offset, what })
    }

    /// Tells the operator where the drive fails, which clients are not told. A drive that keeps
    /// failing fills no log: of n failures about log n are told.
    fn log_unreadable(&self, error: EngineError) -> EngineError {
        let failures = self.unreadable.fetch_add(1, Ordering::Relaxed) + 1;
        if failures.is_power_of_two() {
            tracing::error!(%error, failures, "flash cannot be read");
        }
        error
    }

    /// A write failed: takes the file, or its unreserved part, out of use. Returns the error to
    /// report.
    pub(crate) fn write_failed(&self, file: FileIndex, errno: i32) -> EngineError {
        self.keeping.note_failed_write();
        let path = self.drives.name(file);
        let error = EngineError::Io { path, operation: "write", errno };
        *self.last_write_error.lock() = Some(error.clone());
        let mut space = self.space.lock();
        if errno == libc::ENOSPC {
            tracing::error!(%error, "flash path is full: it takes less until there is room again");
            let retired = space.set_no_space(file);
            self.set_states(&retired, State::Retired);
        } else {
            let retired = space.fail_file(file);
            if !retired.is_empty() {
                tracing::error!(%error, "flash path takes no more writes");
            }
            self.set_states(&retired, State::Retired);
        }
        self.publish(&space);
        error
    }

    // Segments: opened, filled, freed.

    /// Opens free segments for one record or for a stream.
    pub(crate) fn open_segments(
        &self,
        count: usize,
        stream: Stream,
        purpose: Purpose,
    ) -> Result<Vec<u32>, AppendError> {
        let mut space = self.space.lock();
        self.settle_locked(&mut space);
        let taken = space.take_many(count, purpose);
        self.publish(&space);
        let opened_in = space.epochs.at_opening();
        drop(space);
        let segments = taken.map_err(|reason| match reason {
            NoSegment::Full => AppendError::Full,
            NoSegment::Failed => AppendError::Failed(self.write_error()),
        })?;
        let clock = self.lifetimes.now();
        for &segment in &segments {
            self.table.unlink(segment);
            let segment = self.table.get(segment);
            segment.set_opened_in(opened_in);
            segment.open(stream, clock);
        }
        Ok(segments)
    }

    fn write_error(&self) -> EngineError {
        let last = self.last_write_error.lock().clone();
        last.expect("invariant: files fail with an error")
    }

    /// Counts a record in.
    pub(crate) fn add_live(&self, segment: &Segment, size: usize) {
        segment.add_live(size as u32);
        self.live_bytes.fetch_add(size as u64, Ordering::Relaxed);
    }

    /// Counts a record out; frees nothing yet. Returns the lane for what replaces the record.
    pub(crate) fn release(&self, at: Location, size: usize) -> Lane {
        let Some((index, _)) = self.split(at, size) else { return Lane::default() };
        let segment = self.table.get(index);
        let (taken, left) = segment.sub_live(size as u32);
        self.live_bytes.fetch_sub(u64::from(taken), Ordering::Relaxed);
        if left == 0 {
            self.note_if_empty(index);
        }
        self.lifetimes.lane_after(segment.stream(), segment.opened_at())
    }

    /// A segment that is not open any more enters its next state.
    pub(crate) fn seal(&self, index: u32, state: State) {
        let segment = self.table.get(index);
        if matches!(state, State::Sealed | State::Span) {
            segment.set_flushed(u32::MAX);
            segment.set_sealed_at(self.lifetimes.now());
        }
        segment.set_state(state);
        self.note_if_empty(index);
    }

    /// Seals a segment in which a write failed. Those of its blocks that were written can be
    /// collected, and have to be when its path is left: they are remembered in RAM.
    pub(crate) fn seal_without_footer(&self, index: u32, blocks: Vec<Block>) {
        let segment = self.table.get(index);
        segment.pending.lock().remember_written(blocks);
        segment.set_sealed_at(self.lifetimes.now());
        segment.set_state(State::Sealed);
        self.note_if_empty(index);
    }

    /// Notes which segments a record has that is larger than a segment, before it is read from
    /// flash.
    pub(crate) fn note_span(&self, segments: &[u32]) {
        let (&first, rest) = segments.split_first().expect("invariant: a span has segments");
        self.set_states(rest, State::SpanPart);
        self.space.lock().spans.insert(first, rest.to_vec());
    }

    /// The segments of a record that is larger than a segment, the first included.
    pub(crate) fn span(&self, first: u32) -> Option<Vec<u32>> {
        let space = self.space.lock();
        let rest = space.spans.get(&first)?;
        Some(std::iter::once(first).chain(rest.iter().copied()).collect())
    }

    /// Puts a segment on the list to be freed when nothing lives in it and nobody works on it.
    fn note_if_empty(&self, index: u32) {
        let segment = self.table.get(index);
        // Releases look at the state after the count, seals at the count after the state: one of
        // them sees both.
        let at_rest = matches!(segment.state(), State::Sealed | State::Emptied | State::Span);
        if at_rest && segment.live_bytes() == 0 {
            self.space.lock().emptied.push(index);
            self.unsettled.store(true, Ordering::Release);
        }
    }

    /// Frees what can be freed. Cost: one atomic load when there is nothing.
    pub(crate) fn settle(&self) {
        if self.unsettled.load(Ordering::Acquire) {
            let mut space = self.space.lock();
            self.settle_locked(&mut space);
            self.publish(&space);
        }
    }

    fn settle_locked(&self, space: &mut Space) {
        for index in std::mem::take(&mut space.emptied) {
            let segment = self.table.get(index);
            let state = segment.state();
            let at_rest = matches!(state, State::Sealed | State::Emptied | State::Span);
            // The list may name a segment twice, or one that a gc run took in between.
            if at_rest && segment.live_bytes() == 0 && segment.change_state(state, State::Draining)
            {
                if state == State::Sealed {
                    self.gc_segments_unread.fetch_add(1, Ordering::Relaxed);
                }
                space.draining.push(index);
            }
        }
        for index in std::mem::take(&mut space.draining) {
            if self.table.get(index).is_pinned() {
                space.draining.push(index);
                continue;
            }
            let rest = space.spans.get(&index).cloned().unwrap_or_default();
            self.free_segment(space, index);
            rest.into_iter().for_each(|part| self.free_segment(space, part));
        }
        self.unsettled.store(!space.draining.is_empty(), Ordering::Release);
    }

    fn free_segment(&self, space: &mut Space, index: u32) {
        let segment = self.table.get(index);
        self.lifetimes.segment_freed(segment.stream(), segment.opened_at());
        let file = self.table.home(index).file;
        // What could not be written may lack space.
        let blocks = match segment.pending.lock().lost.is_empty() {
            true => Blocks::Written,
            false => Blocks::Punched,
        };
        let free = FreeSegment { segment: index, file, blocks };
        match space.hold_if_needed(free, segment.opened_in()) {
            true => segment.set_state(State::Held),
            false => self.give_segment(space, free),
        }
    }

    /// Gives a segment back that nothing refers to.
    fn give_segment(&self, space: &mut Space, free: FreeSegment) {
        let segment = self.table.get(free.segment);
        *segment.pending.lock() = Pending::default();
        space.spans.remove(&free.segment);
        let is_free = space.give(free);
        segment.set_state(if is_free { State::Free } else { State::Retired });
    }

    /// Gives the segments back that no checkpoint refers to any more.
    pub(super) fn give_needless(&self, space: &mut Space) {
        for free in space.take_needless() {
            self.give_segment(space, free);
        }
        self.publish(space);
    }

    pub(super) fn set_states(&self, segments: &[u32], state: State) {
        segments.iter().for_each(|&segment| self.table.get(segment).set_state(state));
    }

    /// Makes the counts of the space readable without its lock.
    pub(super) fn publish(&self, space: &Space) {
        let reserve = RESERVE_SEGMENTS * self.workers;
        let free = space.free().saturating_sub(reserve);
        self.free_segments.store(free as u64, Ordering::Relaxed);
        self.active_segments.store(space.active().min(space.target()) as u64, Ordering::Relaxed);
        self.held_segments.store(space.held() as u64, Ordering::Relaxed);
        self.is_held_up.store(space.is_held_up(), Ordering::Relaxed);
        self.holds_before.store(space.epochs.holds_before(), Ordering::Relaxed);
        self.over_target.store(space.is_over_target(), Ordering::Relaxed);
        self.leaving.store(space.leaving_in_use(), Ordering::Relaxed);
    }

    // Paths that are being left.

    /// Whether something has to be moved off a path that is being left. Cost: an atomic load.
    pub(crate) fn leaves_paths(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) != 0
    }

    /// Whether a segment is on a path that is being left.
    pub(crate) fn is_left(&self, segment: u32) -> bool {
        let file = self.table.home(segment).file;
        self.leaving.load(Ordering::Relaxed) >> file.0 & 1 == 1
    }

    /// Takes the segment with the least to move off the paths that are being left. A record that is
    /// larger than a segment counts as there when a part of it is; it waits until there is room for
    /// all of it.
    fn take_left(&self) -> Option<u32> {
        let free = self.space.lock().free();
        let mut best: Option<(u32, u32)> = None;
        for (index, segment) in self.table.iter() {
            let is_left = match segment.state() {
                _ if segment.unclaimed() > 0 => false,
                State::Sealed => self.is_left(index),
                State::Span => {
                    let parts = self.span(index).unwrap_or_default();
                    parts.len() <= free && parts.into_iter().any(|part| self.is_left(part))
                }
                _ => false,
            };
            let live = segment.live_bytes();
            if is_left && best.is_none_or(|(least, _)| live < least) {
                best = Some((live, index));
            }
        }
        let (_, index) = best?;
        let segment = self.table.get(index);
        let is_taken = [State::Sealed, State::Span]
            .into_iter()
            .any(|state| segment.change_state(state, State::Victim));
        is_taken.then_some(index)
    }

    // Garbage collection.

    /// The number of free segments below which gc works.
    fn gc_below(&self) -> u64 {
        self.part_of_spare(FREE_SPARE_EIGHTHS)
    }

    /// So many eighths of the segments beyond what lives where freed ones are held, and what gc needs at least.
    fn part_of_spare(&self, eighths: u64) -> u64 {
        match self.holds_for_next_checkpoint() {
            true => self.gc_below_min().max(self.spare_segments() * eighths / 8),
            false => self.gc_below_min(),
        }
    }

    fn gc_below_min(&self) -> u64 {
        let active = self.active_segments.load(Ordering::Relaxed) as usize;
        (active / GC_BELOW_SHARE).max(2 * self.workers) as u64
    }

    /// Segments beyond what lives.
    pub(super) fn spare_segments(&self) -> u64 {
        let live = self.live_bytes.load(Ordering::Relaxed) / self.geometry.segment_bytes();
        self.active_segments.load(Ordering::Relaxed).saturating_sub(live)
    }

    /// Whether what gc frees comes free with the next checkpoint alone, which comes.
    fn holds_for_next_checkpoint(&self) -> bool {
        self.holds_before.load(Ordering::Relaxed) > 0
            && self.checkpoint_comes.load(Ordering::Relaxed)
    }

    /// See `Checkpoints::set_comes`.
    pub(super) fn set_checkpoint_comes(&self, comes: bool) {
        self.checkpoint_comes.store(comes, Ordering::Relaxed);
    }

    /// Whether there is no need for gc: enough is free, or comes free by itself.
    fn has_room(&self) -> bool {
        let free = self.free_segments.load(Ordering::Relaxed);
        let left = free.saturating_sub(self.keeping.kept_back.load(Ordering::Relaxed));
        let held = self.held_segments.load(Ordering::Relaxed);
        let held_enough = self.gc_below_min().max(self.spare_segments() / HELD_SPARE_SHARE);
        // What gc has to itself is not used up for what comes free later.
        let comes_soon = held >= held_enough || left == 0 && held > 0;
        free >= self.gc_below() || self.holds_for_next_checkpoint() && comes_soon
    }

    /// Whether gc may take a segment: not while keys of it are loaded, and not where it would be held for a checkpoint when none
    /// is to come.
    fn may_be_victim(&self, segment: &Segment) -> bool {
        let comes_free = || {
            self.checkpoint_comes.load(Ordering::Relaxed)
                || segment.opened_in() >= self.holds_before.load(Ordering::Relaxed)
        };
        segment.state() == State::Sealed && segment.unclaimed() == 0 && comes_free()
    }

    /// Takes the sealed segment that it pays most to collect, if that is needed.
    ///
    /// Cost-benefit, as log-structured file systems have it: what is gained is the dead share, and
    /// it stays gained the longer the older the segment is; what is paid is what lives and has to
    /// be copied. Age counts for less than in those, because the streams have sorted records by age
    /// already: found by trial in the simulation that `lifetime` speaks of (1.48, where the classic
    /// formula has 1.55).
    ///
    /// Paths that are being left come first, but without a free segment last: to move what is there
    /// makes no room for others.
    ///
    /// Where the owner evicts what is met, each segment is worth collecting: one that is half dead,
    /// or else the oldest.
    pub(crate) fn take_victim(&self, evicts: bool) -> Option<u32> {
        let shrinking = self.over_target.load(Ordering::Relaxed);
        let free = self.free_segments.load(Ordering::Relaxed);
        let leaves = self.leaves_paths();
        if leaves
            && free > 0
            && let Some(index) = self.take_left()
        {
            return Some(index);
        }
        if !shrinking && self.has_room() {
            return None;
        }
        let segment_bytes = self.geometry.segment_bytes() as u32;
        let dead_min = segment_bytes / if evicts { 2 } else { VICTIM_DEAD_SHARE };
        self.take_mostly_dead(dead_min)
            .or_else(|| evicts.then(|| self.take_oldest()).flatten())
            .or_else(|| leaves.then(|| self.take_left()).flatten())
    }

    /// The segment that was sealed first.
    fn take_oldest(&self) -> Option<u32> {
        let sealed = self.table.iter().filter(|(_, segment)| self.may_be_victim(segment));
        let (index, segment) = sealed.min_by_key(|(_, segment)| segment.sealed_at())?;
        segment.change_state(State::Sealed, State::Victim).then_some(index)
    }

    fn take_mostly_dead(&self, dead_min: u32) -> Option<u32> {
        let now = self.lifetimes.now();
        let mut best: Option<(f64, u32)> = None;
        for (index, segment) in self.table.iter() {
            // Of the bytes that were used: what large records left unused behind them is not gained
            // by moving them.
            let (used, live) = (segment.used_bytes(), segment.live_bytes());
            let dead = used.saturating_sub(live);
            if dead < dead_min || !self.may_be_victim(segment) {
                continue;
            }
            let live_share = f64::from(live) / f64::from(used);
            let age = now.saturating_sub(segment.sealed_at()) + u64::from(used);
            let score = (1.0 - live_share) / (live_share + 0.05) * (age as f64).powf(0.8);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, index));
            }
        }
        let (_, index) = best?;
        self.table.get(index).change_state(State::Sealed, State::Victim).then_some(index)
    }

    /// A victim whose survivors cannot be written is full again.
    pub(crate) fn give_up_victim(&self, index: u32) {
        let is_span = self.space.lock().spans.contains_key(&index);
        self.table.get(index).set_state(if is_span { State::Span } else { State::Sealed });
        self.note_if_empty(index);
    }

    // Figures.

    pub(crate) fn free_space(&self) -> FreeSpace {
        let segment_bytes = self.geometry.segment_bytes();
        let held_bytes = self.held_segments.load(Ordering::Relaxed) * segment_bytes;
        FreeSpace {
            free_bytes: self.free_segments.load(Ordering::Relaxed) * segment_bytes,
            gc_below_bytes: self.gc_below() * segment_bytes,
            short_below_bytes: self.part_of_spare(SHORT_SPARE_EIGHTHS) * segment_bytes,
            capacity_bytes: self.active_segments.load(Ordering::Relaxed) * segment_bytes,
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
            held_bytes,
            coming_bytes: if self.holds_for_next_checkpoint() { held_bytes } else { 0 },
            is_held_up: self.is_held_up.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let segment_bytes = self.geometry.segment_bytes();
        let mut stats = EngineStats {
            backend: self.drives.backend(),
            segment_bytes,
            gc_segments_unread: self.gc_segments_unread.load(Ordering::Relaxed),
            buffer_bytes: self.table.bytes() as u64,
            ..EngineStats::default()
        };
        let mut states = [0; STATES.len()];
        for (_, segment) in self.table.iter() {
            stats.live_bytes += u64::from(segment.live_bytes());
            states[segment.state() as usize] += 1;
        }
        let count = |state: State| states[state as usize];
        stats.segments_open = count(State::Open);
        stats.segments_sealed = count(State::Sealed) + count(State::Span) + count(State::SpanPart);
        stats.segments_in_gc = count(State::Victim);
        stats.segments_emptied = count(State::Emptied) + count(State::Draining);
        let space = self.space.lock();
        stats.segments_free = space.free() as u64;
        stats.segments_held = space.held() as u64;
        stats.paths = space.files_open() as u64;
        stats.paths_leaving = u64::from(space.leaving().count_ones());
        stats.leaving_bytes = space.leaving_segments() as u64 * segment_bytes;
        stats.paths_failed = space.files_failed() as u64;
        stats.capacity_bytes = space.active() as u64 * segment_bytes;
        drop(space);
        stats.free_bytes = stats.segments_free * segment_bytes;
        stats.used_bytes = stats.capacity_bytes - stats.free_bytes;
        stats.dead_bytes = stats.used_bytes.saturating_sub(stats.live_bytes);
        let counters = self.counters.lock();
        counters.iter().for_each(|counters| counters.add_to(&mut stats));
        stats.gc_segments += stats.gc_segments_unread;
        stats.read_latency =
            Histogram::summary(counters.iter().map(|counters| &counters.read_latency));
        stats
    }

    // Contents as a whole.

    /// See `Engine::reset`. A segment that is being filled goes on, with what it holds already as
    /// dead bytes; one that is being collected is freed by its gc run, which finds nothing alive.
    pub(crate) fn reset(&self) {
        for (index, segment) in self.table.iter() {
            if !matches!(segment.state(), State::Free | State::Retired | State::Held) {
                let forgotten = segment.clear_live();
                self.live_bytes.fetch_sub(u64::from(forgotten), Ordering::Relaxed);
                self.note_if_empty(index);
            }
        }
        self.settle();
    }
}
