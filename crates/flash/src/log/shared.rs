//! What all workers of a log share: the segments, the free space, and the rules by which segments
//! are freed.
//!
//! On the read path nothing here takes a lock: a segment is found in the table, pinned, and its
//! counters are atomics. The mutex of `Space` is taken once for each segment that is opened or
//! freed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::counters::{Counters, Histogram};
use super::format::SegmentId;
use super::geometry::Geometry;
use super::lifetime::{Lifetimes, STREAMS, Stream};
use super::segment::{Pending, Segment, State};
use super::space::{Blocks, FreeSegment, NoSegment, Purpose, Space};
use super::table::{Home, SegmentTable};
use crate::device::{Drives, Extent, FileIndex};
use crate::engine::FreeSpace;
use crate::engine::stats::EngineStats;
use crate::error::{AppendError, EngineError};
use crate::limits::PATHS_MAX;
use crate::location::Location;
use crate::record::{Lane, Place};

/// Free segments that the collector has to itself, for each worker: one for small survivors, one
/// for large ones.
const RESERVE_SEGMENTS: usize = 2;

/// Collection begins when fewer segments are free than this share of all, or than two for each
/// worker. The later, the more is dead by then.
const COLLECT_BELOW_SHARE: usize = 256;

/// A victim must give back at least this share of itself: below that, collecting is copying.
const VICTIM_DEAD_SHARE: u32 = 32;

/// Free segments of a file that keep their blocks although nothing is in them, as a share of all:
/// they are written again soon.
const KEEP_WRITTEN_SHARE: usize = 16;

pub(crate) struct Shared {
    pub(crate) geometry: Geometry,
    pub(crate) table: SegmentTable,
    pub(crate) drives: Arc<dyn Drives>,
    workers: usize,
    space: Mutex<Space>,
    /// Whether `space` has segments to be freed.
    unsettled: AtomicBool,
    /// Free segments beyond the reserve.
    free_segments: AtomicU64,
    /// Segments that the flash size allows and that exist.
    active_segments: AtomicU64,
    /// Whether there are more segments than the flash size allows.
    over_target: AtomicBool,
    live_bytes: AtomicU64,
    sequence: AtomicU64,
    pub(crate) lifetimes: Lifetimes,
    gc_segments_unread: AtomicU64,
    last_write_error: Mutex<Option<EngineError>>,
    counters: Mutex<Vec<Arc<Counters>>>,
    /// One change of the size at a time.
    resizing: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(
        drives: Arc<dyn Drives>,
        geometry: Geometry,
        workers: usize,
        lifetimes: Lifetimes,
    ) -> Self {
        assert!(workers > 0 && drives.count() <= PATHS_MAX);
        let space = Space::new(drives.count(), RESERVE_SEGMENTS * workers);
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
            live_bytes: AtomicU64::new(0),
            sequence: AtomicU64::new(1),
            lifetimes,
            gc_segments_unread: AtomicU64::new(0),
            last_write_error: Mutex::new(None),
            counters: Mutex::new(Vec::new()),
            resizing: Mutex::new(()),
        }
    }

    /// The fewest segments with which a log can work: every stream of every worker open, the
    /// reserve, some free ones.
    pub(crate) fn segments_min(workers: usize) -> usize {
        workers * (STREAMS.len() + RESERVE_SEGMENTS + 2) + 2
    }

    /// Counters for one more worker.
    pub(crate) fn add_worker(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().push(Arc::clone(&counters));
        counters
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
        EngineError::Io { path, operation: "read", errno }
    }

    pub(crate) fn corrupted(&self, at: Location, what: &'static str) -> EngineError {
        let (segment, offset) = self.geometry.split(at);
        let path = self.drives.name(self.table.home(segment).file);
        EngineError::Corrupted { path, segment, offset: u64::from(offset), what }
    }

    /// A write failed: takes the file, or its unreserved part, out of use. Returns the error to
    /// report.
    pub(crate) fn write_failed(&self, file: FileIndex, errno: i32) -> EngineError {
        let path = self.drives.name(file);
        let error = EngineError::Io { path, operation: "write", errno };
        *self.last_write_error.lock() = Some(error.clone());
        let mut space = self.space.lock();
        if errno == libc::ENOSPC {
            tracing::error!(%error, "flash path is full: what was given back is not used again");
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
        drop(space);
        let segments = taken.map_err(|reason| match reason {
            NoSegment::Full => AppendError::Full,
            NoSegment::Failed => AppendError::Failed(self.write_error()),
        })?;
        let clock = self.lifetimes.now();
        segments.iter().for_each(|&segment| self.table.get(segment).open(stream, clock));
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
            // The list may name a segment twice, or one that a collector took in between.
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
            let rest = space.spans.remove(&index).unwrap_or_default();
            self.free_segment(space, index);
            rest.into_iter().for_each(|part| self.free_segment(space, part));
        }
        self.unsettled.store(!space.draining.is_empty(), Ordering::Release);
    }

    fn free_segment(&self, space: &mut Space, index: u32) {
        let segment = self.table.get(index);
        *segment.pending.lock() = Pending::default();
        self.lifetimes.segment_freed(segment.stream(), segment.opened_at());
        let file = self.table.home(index).file;
        let free = FreeSegment { segment: index, file, blocks: Blocks::Written };
        let is_free = space.give(free);
        segment.set_state(if is_free { State::Free } else { State::Retired });
    }

    fn set_states(&self, segments: &[u32], state: State) {
        segments.iter().for_each(|&segment| self.table.get(segment).set_state(state));
    }

    /// Makes the counts of the space readable without its lock.
    fn publish(&self, space: &Space) {
        let reserve = RESERVE_SEGMENTS * self.workers;
        let free = space.free().saturating_sub(reserve);
        self.free_segments.store(free as u64, Ordering::Relaxed);
        self.active_segments.store(space.active().min(space.target()) as u64, Ordering::Relaxed);
        self.over_target.store(space.is_over_target(), Ordering::Relaxed);
    }

    // Collection.

    /// The number of free segments below which collection works.
    fn collect_below(&self) -> u64 {
        let active = self.active_segments.load(Ordering::Relaxed) as usize;
        (active / COLLECT_BELOW_SHARE).max(2 * self.workers) as u64
    }

    /// Takes the sealed segment whose collection pays most, if collection is needed.
    ///
    /// Cost-benefit, as log-structured file systems have it: what is gained is the dead share, and
    /// it stays gained the longer the older the segment is; what is paid is what lives and has to
    /// be copied. Age counts for less than in those, because the streams have sorted records by age
    /// already: found by trial in the simulation that `lifetime` speaks of (1.48, where the classic
    /// formula has 1.55).
    pub(crate) fn take_victim(&self) -> Option<u32> {
        let shrinking = self.over_target.load(Ordering::Relaxed);
        if !shrinking && self.free_segments.load(Ordering::Relaxed) >= self.collect_below() {
            return None;
        }
        let now = self.lifetimes.now();
        let dead_min = self.geometry.segment_bytes() as u32 / VICTIM_DEAD_SHARE;
        let mut best: Option<(f64, u32)> = None;
        for (index, segment) in self.table.iter() {
            // Of the bytes that were used: what large records left unused behind them is not gained
            // by moving them.
            let (used, live) = (segment.used_bytes(), segment.live_bytes());
            let dead = used.saturating_sub(live);
            if segment.state() != State::Sealed || dead < dead_min {
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
        self.table.get(index).change_state(State::Sealed, State::Collecting).then_some(index)
    }

    /// A victim whose survivors cannot be written is full again.
    pub(crate) fn give_up_collecting(&self, index: u32) {
        self.table.get(index).set_state(State::Sealed);
        self.note_if_empty(index);
    }

    // Figures.

    pub(crate) fn free_space(&self) -> FreeSpace {
        let segment_bytes = self.geometry.segment_bytes();
        FreeSpace {
            free_bytes: self.free_segments.load(Ordering::Relaxed) * segment_bytes,
            collect_below_bytes: self.collect_below() * segment_bytes,
            capacity_bytes: self.active_segments.load(Ordering::Relaxed) * segment_bytes,
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
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
        let mut states: HashMap<u8, u64> = HashMap::new();
        for (_, segment) in self.table.iter() {
            stats.live_bytes += u64::from(segment.live_bytes());
            *states.entry(segment.state() as u8).or_default() += 1;
        }
        let count = |state: State| states.get(&(state as u8)).copied().unwrap_or_default();
        stats.segments_open = count(State::Open);
        stats.segments_sealed = count(State::Sealed) + count(State::Span) + count(State::SpanPart);
        stats.segments_collecting = count(State::Collecting);
        stats.segments_emptied = count(State::Emptied) + count(State::Draining);
        let space = self.space.lock();
        stats.segments_free = space.free() as u64;
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

    // Size and contents as a whole.

    /// See `Engine::resize`.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), EngineError> {
        let _one_at_a_time = self.resizing.lock();
        let wanted = self.check_size(bytes)?;
        let mut space = self.space.lock();
        if wanted <= space.active() {
            let retired = space.lower_target(wanted);
            self.set_states(&retired, State::Retired);
            self.publish(&space);
            return Ok(());
        }
        let missing = wanted - space.active();
        let returning = space.take_retired(missing);
        let homes = space.plan_homes(missing - returning.len());
        drop(space);
        let reserved = self.reserve(&returning, &homes);
        let mut space = self.space.lock();
        if let Err(error) = reserved {
            space.retire_again(returning);
            return Err(error);
        }
        let freed = space.raise_target(wanted, returning);
        self.set_states(&freed, State::Free);
        for (file, numbers) in homes {
            for number in numbers {
                let index = self.table.push(Home { file, number });
                space.add(index, file);
            }
        }
        self.publish(&space);
        Ok(())
    }

    /// Makes retired segments and new ones writable.
    fn reserve(
        &self,
        returning: &[FreeSegment],
        homes: &[(FileIndex, Range<u32>)],
    ) -> Result<(), EngineError> {
        let segment_bytes = self.geometry.segment_bytes();
        for free in returning {
            let start = self.extent(free.segment, 0, 0).offset;
            self.drives.reserve(free.file, start, start + segment_bytes)?;
        }
        for (file, numbers) in homes {
            let range = u64::from(numbers.start)..u64::from(numbers.end);
            let (start, end) = (range.start * segment_bytes, range.end * segment_bytes);
            self.drives.reserve(*file, start, end)?;
        }
        Ok(())
    }

    /// Errors: when a log of that size cannot work. Returns its segments.
    fn check_size(&self, bytes: u64) -> Result<usize, EngineError> {
        let segment_bytes = self.geometry.segment_bytes();
        let segments = bytes / segment_bytes;
        let least = Self::segments_min(self.workers);
        if segments < least as u64 {
            let least_bytes = least as u64 * segment_bytes;
            return Err(EngineError::Settings(format!(
                "flash size too small: {bytes} bytes, at least {least_bytes} are needed"
            )));
        }
        let most = self.geometry.segments_max();
        if segments > most as u64 {
            let most_bytes = most as u64 * segment_bytes;
            return Err(EngineError::Settings(format!(
                "flash size too large: {bytes} bytes, at most {most_bytes} can be addressed"
            )));
        }
        Ok(segments as usize)
    }

    /// See `Engine::reset`. A segment that is being filled goes on, with what it holds already as
    /// dead bytes; one that is being collected is freed by its collector, who finds nothing alive.
    pub(crate) fn reset(&self) {
        for (index, segment) in self.table.iter() {
            if !matches!(segment.state(), State::Free | State::Retired) {
                let forgotten = segment.clear_live();
                self.live_bytes.fetch_sub(u64::from(forgotten), Ordering::Relaxed);
                self.note_if_empty(index);
            }
        }
        self.settle();
    }

    /// Gives the blocks of one segment that is free for long back to its filesystem. False when
    /// there is none.
    pub(crate) fn punch_one(&self) -> bool {
        let mut space = self.space.lock();
        let keep = (space.active() / KEEP_WRITTEN_SHARE).max(STREAMS.len() * self.workers);
        let Some(free) = space.take_to_punch(keep / self.drives.count()) else { return false };
        self.table.get(free.segment).set_state(State::Retired);
        self.publish(&space);
        drop(space);
        let extent = self.extent(free.segment, 0, self.geometry.segment_bytes() as usize);
        let punched = self.drives.punch(extent.file, extent.offset, extent.size as u64);
        if let Err(error) = &punched {
            tracing::warn!(%error, "flash space not given back");
        }
        let mut space = self.space.lock();
        if space.give_punched(free) {
            self.table.get(free.segment).set_state(State::Free);
        }
        self.publish(&space);
        true
    }
}
