//! One segment as all workers see it: its state, its counters, and what of it is not on flash yet.
//!
//! ```text
//!          open              seal               gc takes it
//!   Free ---------> Open -----------> Sealed ------------> Victim
//!    ^              |  |               |                       |
//!    |              |  | large record  | nothing lives         | survivors moved
//!    |              |  +---> Span      |                       v
//!    |              |         |        |                    Emptied
//!    |              |         |        |                       ^   |
//!    |              |         |        |                           | nothing lives
//!    |              |         v        v                           |
//!    +-------------------- Draining <--+---------------------------+
//!    |  no read in flight     |
//!    |                        +--> Retired (path failed, left; size lower) --> Free (size raised)
//!    |                        v        ^
//!    +--------------------- Held ------+
//!      no checkpoint refers to it
//! ```
//! - Free -> Open: `Space`, for one worker, who alone appends. The generation goes up.
//! - Open -> Sealed / Span: that worker, when the last write has ended. The other segments of a
//!   record that is larger than a segment are SpanPart, and freed with the first. A segment in which
//!   a write failed is sealed without a footer: what of it is on flash can still be collected.
//! - Sealed -> Victim: by one gc run. Back to Sealed when it gives up. On a path that is being
//!   left also Span -> Victim, and back.
//! - Emptied: nothing more to collect; free as soon as the last live byte is released. A segment
//!   with a damaged record stays here as long as the keyspace points at the record, so that it is
//!   reported and not replaced by whatever would be written there next.
//! - Draining: free but for reads in flight.
//! - Held: free but for a checkpoint that a start may find and that may refer to what is in it (`epochs`).
//!
//! Invariants:
//! 1. A segment is used again only when nothing in it lives and no read of it is in flight: a
//!    reader counts itself in `readers` first and looks at the state then, who frees it changes the
//!    state first and looks at `readers` then, both sequentially consistent.
//! 2. Bytes below `flushed` are on flash. Bytes above are in `pending`, or on flash, or lost (and
//!    listed as lost, with their records for as long as the tier has them in hand).

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::format::Block;
use super::lifetime::{STREAMS, Stream};
use super::state::Referred;
use crate::device::buffer::AlignedBuffer;
use crate::record::OwnedRecord;

/// See the file's header.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum State {
    Free,
    Open,
    Sealed,
    Victim,
    Emptied,
    /// The first segment of a record that is larger than a segment.
    Span,
    /// The others.
    SpanPart,
    Draining,
    Retired,
    Held,
}

pub(crate) const STATES: [State; 10] = [
    State::Free,
    State::Open,
    State::Sealed,
    State::Victim,
    State::Emptied,
    State::Span,
    State::SpanPart,
    State::Draining,
    State::Retired,
    State::Held,
];

/// One segment. A cache line or two of its own, as reads of neighbours count themselves all the
/// time.
#[repr(align(64))]
pub(crate) struct Segment {
    state: AtomicU8,
    /// Reads in flight.
    readers: AtomicU32,
    /// The number of a start in its upper half; the lower counts how often it was opened.
    generation: AtomicU64,
    /// Bytes of records that were appended and not released.
    live_bytes: AtomicU32,
    /// Bytes from the start that are on flash.
    flushed: AtomicU32,
    /// Bytes from the start that blocks were written to, once it is sealed.
    used_bytes: AtomicU32,
    /// The log's clock when it was opened, and when it was sealed.
    opened_at: AtomicU64,
    sealed_at: AtomicU64,
    stream: AtomicU8,
    /// What `Epochs` had it remember when it was opened.
    opened_in: AtomicU64,
    /// The number of a checkpoint, its low half, and the bytes of records that it refers to.
    referred: AtomicU64,
    /// Bytes of records that a checkpoint refers to and that the keyspace does not point at yet.
    unclaimed: AtomicU32,
    /// What is not on flash yet.
    pub(crate) pending: Mutex<Pending>,
}

impl Segment {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(State::Free as u8),
            readers: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            live_bytes: AtomicU32::new(0),
            flushed: AtomicU32::new(0),
            used_bytes: AtomicU32::new(0),
            opened_at: AtomicU64::new(0),
            sealed_at: AtomicU64::new(0),
            stream: AtomicU8::new(0),
            opened_in: AtomicU64::new(0),
            referred: AtomicU64::new(0),
            unclaimed: AtomicU32::new(0),
            pending: Mutex::new(Pending::default()),
        }
    }

    pub(crate) fn state(&self) -> State {
        STATES[usize::from(self.state.load(Ordering::SeqCst))]
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// Goes from one state to another; false when it was in a third.
    pub(crate) fn change_state(&self, from: State, to: State) -> bool {
        let order = Ordering::SeqCst;
        self.state.compare_exchange(from as u8, to as u8, order, order).is_ok()
    }

    /// Makes an empty, open segment of a free one.
    pub(crate) fn open(&self, stream: Stream, clock: u64) {
        self.stream.store(stream as u8, Ordering::Relaxed);
        self.opened_at.store(clock, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.live_bytes.store(0, Ordering::Relaxed);
        self.flushed.store(0, Ordering::Relaxed);
        *self.pending.lock() = Pending::default();
        assert!(self.change_state(State::Free, State::Open), "only free segments are opened");
    }

    /// Makes a full segment of a free one, with records that a checkpoint refers to.
    pub(crate) fn recover(&self, records: Referred, state: State) {
        self.stream.store(records.stream, Ordering::Relaxed);
        self.live_bytes.store(records.referred_bytes, Ordering::Relaxed);
        self.unclaimed.store(records.referred_bytes, Ordering::Relaxed);
        self.used_bytes.store(records.used_bytes, Ordering::Relaxed);
        self.flushed.store(u32::MAX, Ordering::Relaxed);
        self.pending.lock().written = records.blocks;
        self.set_state(state);
    }

    /// Has a free segment count on from a generation.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// What `Epochs` had it remember.
    pub(crate) fn opened_in(&self) -> u64 {
        self.opened_in.load(Ordering::Relaxed)
    }

    pub(crate) fn set_opened_in(&self, number: u64) {
        self.opened_in.store(number, Ordering::Relaxed);
    }

    /// Counts a record to which a checkpoint refers.
    pub(crate) fn refer(&self, number: u64, bytes: u32) {
        let order = Ordering::Relaxed;
        let add = |referred| Some(number << 32 | u64::from(referred_by(referred, number) + bytes));
        self.referred.fetch_update(order, order, add).expect("invariant: it is always added");
    }

    /// Bytes of records to which a checkpoint refers.
    pub(crate) fn referred(&self, number: u64) -> u32 {
        referred_by(self.referred.load(Ordering::Relaxed), number)
    }

    /// Says that the keyspace points at a record to which its checkpoint refers. False: at more of them than there are.
    pub(crate) fn claim(&self, bytes: u32) -> bool {
        let order = Ordering::SeqCst;
        self.unclaimed.fetch_update(order, order, |unclaimed| unclaimed.checked_sub(bytes)).is_ok()
    }

    pub(crate) fn unclaimed(&self) -> u32 {
        self.unclaimed.load(Ordering::SeqCst)
    }

    /// Counts a read in; false when there is nothing to read. Each `true` takes an `unpin`.
    pub(crate) fn pin(&self) -> bool {
        self.readers.fetch_add(1, Ordering::SeqCst);
        match self.state() {
            State::Free | State::Draining | State::Retired | State::Held => {
                self.unpin();
                false
            }
            _ => true,
        }
    }

    /// Counts in one more read of a segment of which the caller has a pin.
    pub(crate) fn pin_again(&self) {
        let before = self.readers.fetch_add(1, Ordering::SeqCst);
        assert!(before > 0, "who pins again has a pin");
    }

    pub(crate) fn unpin(&self) {
        let before = self.readers.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a pin for each unpin");
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.readers.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn live_bytes(&self) -> u32 {
        self.live_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn add_live(&self, bytes: u32) {
        self.live_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Takes live bytes away; returns how many there were to take and how many are left. Never
    /// below zero: a gc run may release a record that a reset has forgotten already.
    pub(crate) fn sub_live(&self, bytes: u32) -> (u32, u32) {
        let order = Ordering::SeqCst;
        let subtract = |live: u32| Some(live.saturating_sub(bytes));
        let before =
            self.live_bytes.fetch_update(order, order, subtract).unwrap_or_else(|live| live);
        (before.min(bytes), before.saturating_sub(bytes))
    }

    /// Forgets all live bytes; returns how many there were.
    pub(crate) fn clear_live(&self) -> u32 {
        self.live_bytes.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn flushed(&self) -> u32 {
        self.flushed.load(Ordering::Acquire)
    }

    pub(crate) fn set_flushed(&self, offset: u32) {
        self.flushed.store(offset, Ordering::Release);
    }

    pub(crate) fn used_bytes(&self) -> u32 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_used_bytes(&self, bytes: u32) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn stream(&self) -> Stream {
        STREAMS[usize::from(self.stream.load(Ordering::Relaxed))]
    }

    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Relaxed)
    }

    pub(crate) fn sealed_at(&self) -> u64 {
        self.sealed_at.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sealed_at(&self, clock: u64) {
        self.sealed_at.store(clock, Ordering::Relaxed);
    }
}

/// The bytes that belong to a checkpoint, of what a segment counts of one.
fn referred_by(referred: u64, number: u64) -> u32 {
    if (referred >> 32) as u32 == number as u32 { referred as u32 } else { 0 }
}

/// What of an open segment is in RAM.
#[derive(Default)]
pub(crate) struct Pending {
    /// The write buffer that is being filled.
    pub(crate) open: Option<OpenBlock>,
    /// Write buffers on their way to flash.
    pub(crate) writing: Vec<WritingBlock>,
    /// Large records on their way.
    pub(crate) large: Vec<LargeRecord>,
    /// What did not reach flash.
    pub(crate) lost: Vec<LostRange>,
    /// The blocks that did, in a segment without a footer. At most as many as a footer lists.
    pub(crate) written: Option<Vec<Block>>,
}

/// A write buffer that is being filled.
pub(crate) struct OpenBlock {
    /// Where it will lie in the segment, in bytes.
    pub(crate) offset: u32,
    /// Bytes in use.
    pub(crate) len: u32,
    pub(crate) buffer: AlignedBuffer,
}

/// A write buffer on its way to flash.
pub(crate) struct WritingBlock {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) buffer: Arc<AlignedBuffer>,
}

/// A large record on its way to flash.
pub(crate) struct LargeRecord {
    pub(crate) offset: u32,
    pub(crate) record: Arc<OwnedRecord>,
}

/// A range that did not reach flash.
pub(crate) struct LostRange {
    pub(crate) range: Range<u32>,
    /// Its records with their offsets. The tier has them, until they are in RAM again.
    records: Vec<(u32, Weak<OwnedRecord>)>,
}

impl LostRange {
    pub(crate) fn new<'a>(
        range: Range<u32>,
        records: impl Iterator<Item = (u32, &'a Arc<OwnedRecord>)>,
    ) -> LostRange {
        let records = records.map(|(offset, record)| (offset, Arc::downgrade(record))).collect();
        LostRange { range, records }
    }

    fn find(&self, offset: u32) -> Found {
        let record = self.records.iter().find(|(at, _)| *at == offset);
        record.and_then(|(_, record)| record.upgrade()).map_or(Found::Lost, Found::Whole)
    }
}

/// Where the bytes of a record are.
pub(crate) enum Found {
    /// In a write buffer: a copy.
    Copied(Rc<[u8]>),
    /// In memory of its own.
    Whole(Arc<OwnedRecord>),
    /// Nowhere.
    Lost,
    /// Not in RAM, so on flash.
    OnFlash,
}

impl Pending {
    /// Looks for the record at `offset`.
    pub(crate) fn find(&self, offset: u32, size: u32) -> Found {
        let inside = |start: u32, len: u32| start <= offset && offset + size <= start + len;
        if let Some(open) = &self.open
            && inside(open.offset, open.len)
        {
            return Found::copy(&open.buffer, offset - open.offset, size);
        }
        if let Some(block) = self.writing.iter().find(|block| inside(block.offset, block.len)) {
            return Found::copy(&block.buffer, offset - block.offset, size);
        }
        if let Some(large) = self.large.iter().find(|large| large.offset == offset) {
            return Found::Whole(Arc::clone(&large.record));
        }
        if let Some(lost) = self.lost.iter().find(|lost| lost.range.contains(&offset)) {
            return lost.find(offset);
        }
        Found::OnFlash
    }

    /// Notes which of a segment's blocks are on flash, when no footer will tell.
    pub(crate) fn remember_written(&mut self, mut blocks: Vec<Block>) {
        // A lost large record may begin behind the segment's header, in the middle of its block.
        let overlaps = |lost: &Range<u32>, block: &Block| {
            lost.start < block.offset + block.size && block.offset < lost.end
        };
        blocks.retain(|block| !self.lost.iter().any(|lost| overlaps(&lost.range, block)));
        self.written = Some(blocks);
    }

    /// How far the segment is on flash without a gap, when appends have come to `next`.
    pub(crate) fn flushed(&self, next: u32) -> u32 {
        let open = self.open.iter().map(|open| open.offset);
        let writing = self.writing.iter().map(|block| block.offset);
        let large = self.large.iter().map(|large| large.offset);
        let lost = self.lost.iter().map(|lost| lost.range.start);
        open.chain(writing).chain(large).chain(lost).fold(next, u32::min)
    }
}

impl Found {
    fn copy(buffer: &AlignedBuffer, start: u32, size: u32) -> Self {
        Self::Copied(Rc::from(&buffer[start as usize..(start + size) as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_segment_is_known_to_be_pinned_and_a_free_one_is_not_pinned() {
        let segment = Segment::new();
        assert!(!segment.pin());
        segment.open(Stream::Demote, 0);
        assert!(segment.pin());
        assert!(segment.is_pinned());
        segment.unpin();
        assert!(!segment.is_pinned());
    }

    #[test]
    fn live_bytes_do_not_go_below_zero() {
        let segment = Segment::new();
        segment.open(Stream::Demote, 0);
        segment.add_live(100);
        assert_eq!(segment.sub_live(60), (60, 40));
        assert_eq!(segment.sub_live(60), (40, 0));
    }

    #[test]
    fn the_flushed_mark_stops_at_the_first_gap() {
        let mut pending = Pending::default();
        assert_eq!(pending.flushed(4096), 4096);
        let buffer = || AlignedBuffer::new(512);
        pending.open = Some(OpenBlock { offset: 3072, len: 10, buffer: buffer() });
        let block = WritingBlock { offset: 1024, len: 512, buffer: Arc::new(buffer()) };
        pending.writing.push(block);
        assert_eq!(pending.flushed(4096), 1024);
        assert!(matches!(pending.find(1024, 48), Found::Copied(_)));
        pending.writing.clear();
        assert_eq!(pending.flushed(4096), 3072);
        assert!(matches!(pending.find(1024, 48), Found::OnFlash));
        pending.lost.push(LostRange::new(512..1024, std::iter::empty()));
        assert_eq!(pending.flushed(4096), 512);
        assert!(matches!(pending.find(512, 48), Found::Lost));
    }
}
