//! Garbage collection: moves what lives out of a segment that is mostly dead, and frees it.
//!
//! One worker collects one victim at a time, in steps: the footer tells the blocks, whole blocks
//! are read (a few in flight, so that client reads are not held up), and each record that the
//! keyspace still points at is appended to the survivors' lane and relocated. Whole blocks, not
//! single records: a drive streams at a fraction of the cost of reading records one by one, and
//! liveness is known only to the owner, who needs the key. (A bit in RAM for each half KiB, set when
//! a record dies, would tell it too; to set it costs a cache miss, as much as it saves here.)
//!
//! Invariants:
//! 1. The victim is freed only when no live byte is left in it. What could not be read, or is
//!    damaged, stays where it is until the keyspace lets go of it.
//! 2. No memory is needed but the worker's buffers, and no free segment but the reserve. A large
//!    record takes its own size while it is moved, which has a bound over all workers (`moving`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::append::Appender;
use super::format::{
    Block, FOOTER_BYTES, Footer, SEGMENT_HEADER_BYTES, decode_segment_header, next_record,
};
use super::io::{Io, User};
use super::large_read::{LargeReads, RecordSize};
use super::lifetime::Stream;
use super::moving::{Moving, Place};
use super::segment::State;
use crate::device::buffer::IoBuffer;
use crate::engine::fetched::FetchedRecord;
use crate::engine::{GcProgress, Liveness, Owner};
use crate::error::{AppendError, EngineError};
use crate::limits::{EXPECTED_MAX, GC_READS_IN_FLIGHT_MAX};
use crate::location::Location;
use crate::record::{self, OwnedRecord, Record, RecordMeta};

/// One worker's gc.
#[derive(Default)]
pub(crate) struct Gc {
    active: Option<GcRun>,
    /// What was free and what lived when survivors could not be written, and whether the owner evicted:
    /// until one of it is different they cannot be again, and to read the victim for nothing would keep
    /// the drive busy for ever.
    given_up_at: Option<(u64, u64, bool)>,
}

/// A gc run under way.
struct GcRun {
    segment: u32,
    /// Blocks that the footer lists, without the ones that were dealt with or are being read.
    blocks: VecDeque<Block>,
    /// Blocks that were asked for.
    asked: Vec<Block>,
    /// Blocks that were read, by their numbers among those that were asked for; none: one could not be. They come in any order.
    read: BTreeMap<u32, Option<Walk>>,
    /// The number of the next to be dealt with: survivors keep their order.
    next: u32,
    large: Large,
    in_flight: usize,
    /// No more is read: survivors cannot be written.
    given_up: bool,
    relocated_bytes: u64,
    pending: PendingRecord,
    /// Whether the owner evicted when it began.
    evicts: bool,
}

/// What is known of a record that could not be moved yet.
#[derive(Default)]
struct PendingRecord {
    /// The owner said that it lives: to ask again could find it evicted, as each question counts as a turn without a
    /// use.
    found_live: Option<Location>,
    /// A large one waits for others to be moved.
    place: Option<Place>,
}

/// The large record that fills a block, or segments.
enum Large {
    None,
    /// It waits for others to be moved.
    Waiting(Location, RecordSize),
    Reading(Location, Moving),
    Read(Location, Arc<OwnedRecord>, Moving),
}

/// A block in memory and how far the walk has come.
struct Walk {
    block: Block,
    buffer: IoBuffer,
    at: usize,
    /// Up to where the owner was told what comes.
    announced: usize,
}

impl Walk {
    fn new(block: Block, buffer: IoBuffer) -> Walk {
        let at = block.first_record();
        Walk { block, buffer, at, announced: at }
    }

    /// Tells the owner of the next records once it has been asked about the last ones.
    fn announce(&mut self, owner: &dyn Owner) {
        if self.at < self.announced {
            return;
        }
        let bytes = self.buffer.bytes();
        let mut records: SmallVec<[(RecordMeta, &[u8]); EXPECTED_MAX]> = SmallVec::new();
        self.announced = self.at;
        while records.len() < EXPECTED_MAX
            && let Some((start, header)) = next_record(bytes, self.announced)
        {
            records.push((header.meta, &bytes[start..][header.key()]));
            self.announced = start + header.record_size();
        }
        owner.expect(&records);
    }
}

/// Why a step has to end early.
enum Stop {
    /// The write buffers are in flight, too much is on its way already, or the budget is spent.
    Later,
    /// Survivors cannot be written.
    GiveUp,
}

impl Gc {
    /// See `EngineWorker::gc`.
    pub(crate) fn step(
        &mut self,
        io: &mut Io,
        (appender, large): (&mut Appender, &mut LargeReads),
        owner: &dyn Owner,
        budget_bytes: usize,
    ) -> GcProgress {
        io.shared.settle();
        let has_left = appender.leave_paths(io);
        let Some(active) = &mut self.active else {
            return match self.begin(io, large, owner.evicts()) {
                // What was closed just now can be moved soon.
                GcProgress::Idle if has_left => GcProgress::Working,
                progress => progress,
            };
        };
        let stop = active.work(io, appender, owner, budget_bytes);
        if let Err(Stop::GiveUp) = stop {
            active.give_up();
        }
        active.ask(io, large, budget_bytes);
        if active.is_done() {
            return self.end(io);
        }
        GcProgress::Working
    }

    /// Chooses a victim and asks for its footer, or for its record if it has one alone.
    fn begin(&mut self, io: &mut Io, large: &mut LargeReads, evicts: bool) -> GcProgress {
        let space = io.shared.free_space();
        if self.given_up_at == Some((space.free_bytes, space.live_bytes, evicts)) {
            return GcProgress::Idle;
        }
        let Some(segment) = io.shared.take_victim(evicts) else { return GcProgress::Idle };
        let is_span = io.shared.span(segment).is_some();
        let active = self.active.insert(GcRun {
            segment,
            blocks: VecDeque::new(),
            asked: Vec::new(),
            read: BTreeMap::new(),
            next: 0,
            large: Large::None,
            in_flight: 0,
            given_up: false,
            relocated_bytes: 0,
            pending: PendingRecord::default(),
            evicts,
        });
        if is_span {
            active.ask_span(io, large);
            return GcProgress::Working;
        }
        let written = io.shared.table.get(segment).pending.lock().written.clone();
        if let Some(blocks) = written {
            active.blocks = blocks.into();
            return GcProgress::Working;
        }
        active.in_flight += 1;
        let buffer = io.device.pool().take_beyond(FOOTER_BYTES);
        io.counters.gc_read_bytes.add(FOOTER_BYTES as u64);
        io.read(segment, io.shared.geometry.data_end(), buffer, User::GcFooter);
        GcProgress::Working
    }

    /// The victim's footer was read, or not.
    pub(crate) fn finish_footer(&mut self, io: &Io, buffer: &IoBuffer, result: Result<(), i32>) {
        let active = self.active.as_mut().expect("invariant: a gc run waits for its footer");
        active.in_flight -= 1;
        if active.given_up {
            return;
        }
        let segment_bytes = io.shared.geometry.segment_bytes();
        let id = io.shared.id(active.segment);
        let what = match result {
            Ok(()) => match Footer::decode(buffer.bytes(), id, segment_bytes) {
                Ok(footer) => {
                    active.blocks = footer.blocks.into();
                    return;
                }
                Err(what) => what,
            },
            Err(_) => "footer not readable",
        };
        active.report(io, io.shared.geometry.data_end(), what);
    }

    /// A block of the victim was read, or not.
    pub(crate) fn finish_block(
        &mut self,
        io: &Io,
        index: u32,
        buffer: IoBuffer,
        result: Result<(), i32>,
    ) {
        let active = self.active.as_mut().expect("invariant: a gc run waits for its blocks");
        active.in_flight -= 1;
        if active.given_up {
            return;
        }
        let block = active.asked[index as usize];
        match result {
            Ok(()) => {
                if block.offset == 0
                    && let Err(what) = decode_segment_header(buffer.bytes())
                {
                    active.report(io, block.offset, what);
                }
                active.read.insert(index, Some(Walk::new(block, buffer)));
            }
            Err(_) => {
                io.counters.read_errors.add(1);
                active.report(io, block.offset, "block not readable");
                active.read.insert(index, None);
            }
        }
    }

    /// The large record that a gc run waits for was read, or not.
    pub(crate) fn finish_large(&mut self, result: Result<FetchedRecord, EngineError>) {
        let active = self.active.as_mut().expect("invariant: a gc run waits for its record");
        active.in_flight -= 1;
        let Large::Reading(at, moving) = std::mem::replace(&mut active.large, Large::None) else {
            // The run was given up.
            return;
        };
        match result {
            Ok(fetched) => active.large = Large::Read(at, fetched.into_large(), moving),
            Err(error) => tracing::error!(%error, "flash segment not collected as a whole"),
        }
    }

    /// RAM of the large record that is moved, from its read on until it is appended, in bytes.
    pub(crate) fn moving_bytes(&self) -> usize {
        match self.active.as_ref().map(|active| &active.large) {
            Some(Large::Reading(_, moving) | Large::Read(_, _, moving)) => moving.bytes,
            _ => 0,
        }
    }

    /// The same once it was read: what is being read is counted where that is done.
    pub(crate) fn read_bytes(&self) -> usize {
        match self.active.as_ref().map(|active| &active.large) {
            Some(Large::Read(_, _, moving)) => moving.bytes,
            _ => 0,
        }
    }

    /// Leaves the victim, if there is one, to another worker. Nothing of it is in flight.
    pub(crate) fn leave(&mut self, io: &Io) {
        if let Some(active) = self.active.take() {
            io.shared.give_up_victim(active.segment);
        }
    }

    /// The last record of the victim was dealt with.
    fn end(&mut self, io: &Io) -> GcProgress {
        let active = self.active.take().expect("invariant: a gc run ends once");
        if active.given_up {
            io.shared.give_up_victim(active.segment);
            let space = io.shared.free_space();
            self.given_up_at = Some((space.free_bytes, space.live_bytes, active.evicts));
            return GcProgress::Idle;
        }
        let freed_bytes = match io.shared.table.get(active.segment).live_bytes() {
            0 => io.shared.geometry.segment_bytes(),
            _ => 0,
        };
        io.shared.seal(active.segment, State::Emptied);
        io.shared.settle();
        io.counters.gc_segments.add(1);
        GcProgress::Done { relocated_bytes: active.relocated_bytes, freed_bytes }
    }
}

impl GcRun {
    fn give_up(&mut self) {
        self.given_up = true;
        self.blocks.clear();
        self.read.clear();
        self.large = Large::None;
        self.pending = PendingRecord::default();
    }

    fn is_done(&self) -> bool {
        self.in_flight == 0
            && self.blocks.is_empty()
            && self.read.is_empty()
            && matches!(self.large, Large::None)
    }

    /// Tells the operator of damage. What is damaged keeps the segment from being freed while it
    /// lives.
    fn report(&self, io: &Io, offset: u32, what: &'static str) {
        let at = io.shared.geometry.join(self.segment, offset);
        let error = io.shared.corrupted(at, what);
        tracing::error!(%error, "flash segment not collected as a whole");
    }

    /// Asks for the next blocks. A block that is larger than a write buffer is one large record.
    fn ask(&mut self, io: &mut Io, large: &mut LargeReads, budget_bytes: usize) {
        self.ask_large(io, large);
        let mut bytes = 0;
        while self.in_flight + self.read.len() < GC_READS_IN_FLIGHT_MAX
            && matches!(self.large, Large::None)
            && (bytes == 0 || bytes < budget_bytes)
            && let Some(&block) = self.blocks.front()
        {
            if block.size as usize > io.shared.geometry.write_buffer_bytes() {
                if self.in_flight + self.read.len() == 0 {
                    self.blocks.pop_front();
                    let first = block.first_record() as u32;
                    let at = io.shared.geometry.join(self.segment, block.offset + first);
                    let size = (block.size - first) as usize;
                    self.large = Large::Waiting(at, RecordSize::Rounded(size));
                    self.ask_large(io, large);
                }
                return;
            }
            // Bounded by the reads in flight: client reads must not keep a full log from being
            // collected.
            let buffer = io.device.pool().take_beyond(block.size as usize);
            self.blocks.pop_front();
            let user = User::GcBlock { index: self.asked.len() as u32 };
            self.asked.push(block);
            self.in_flight += 1;
            bytes += block.size as usize;
            io.counters.gc_read_bytes.add(u64::from(block.size));
            io.read(self.segment, block.offset, buffer, user);
        }
    }

    /// Asks for a record that is larger than a segment.
    fn ask_span(&mut self, io: &mut Io, large: &mut LargeReads) {
        // Nothing else lives in its segments.
        let size = io.shared.table.get(self.segment).live_bytes();
        if size == 0 {
            return;
        }
        let at = io.shared.geometry.join(self.segment, SEGMENT_HEADER_BYTES as u32);
        self.large = Large::Waiting(at, RecordSize::Exact(size as usize));
        self.ask_large(io, large);
    }

    /// Asks for the large record that waits, unless others are to be moved first.
    fn ask_large(&mut self, io: &mut Io, large: &mut LargeReads) {
        let Large::Waiting(at, size) = self.large else { return };
        let place = &mut self.pending.place;
        let Some(moving) = io.shared.moving.admit(size.bytes(), place) else { return };
        // Always granted: a segment that is being collected is not free.
        let is_pinned = io.shared.table.get(self.segment).pin();
        assert!(is_pinned, "a victim is not free");
        if let Err(error) = large.start_for_gc(io, at, size) {
            io.shared.unpin(self.segment);
            tracing::error!(%error, "flash segment not collected as a whole");
            self.large = Large::None;
            return;
        }
        io.counters.gc_read_bytes.add(size.bytes() as u64);
        self.in_flight += 1;
        self.large = Large::Reading(at, moving);
    }

    /// Deals with what was read, up to about the budget.
    fn work(
        &mut self,
        io: &mut Io,
        appender: &mut Appender,
        owner: &dyn Owner,
        budget_bytes: usize,
    ) -> Result<(), Stop> {
        self.work_large(io, appender, owner)?;
        let mut left = budget_bytes.max(1);
        while let Some(walk) = self.read.get_mut(&self.next) {
            let found = walk.as_mut().and_then(|walk| {
                walk.announce(owner);
                let (start, header) = next_record(walk.buffer.bytes(), walk.at)?;
                Some((walk, start, header))
            });
            let Some((walk, start, header)) = found else {
                self.read.remove(&self.next);
                self.next += 1;
                continue;
            };
            let offset = walk.block.offset + start as u32;
            let place = io.shared.place(self.segment, offset);
            let size = header.record_size();
            let bytes = &walk.buffer.bytes()[start..start + size];
            match record::verify(bytes, place) {
                Ok(_) => {
                    let record = Record {
                        meta: header.meta,
                        key: &bytes[header.key()],
                        payload: &bytes[header.payload()],
                    };
                    let moved = self.pending.relocate(io, appender, owner, (&record, place.at))?;
                    self.relocated_bytes += moved as u64;
                    walk.at = start + size;
                }
                Err(what) => {
                    walk.at = start + crate::limits::RECORD_ALIGN;
                    io.counters.checksum_failures.add(1);
                    self.report(io, offset, what);
                }
            }
            left = left.saturating_sub(size);
            if left == 0 {
                return Err(Stop::Later);
            }
        }
        Ok(())
    }

    /// Deals with the large record that was read.
    fn work_large(
        &mut self,
        io: &mut Io,
        appender: &mut Appender,
        owner: &dyn Owner,
    ) -> Result<(), Stop> {
        let (from, record, moving) = match std::mem::replace(&mut self.large, Large::None) {
            Large::Read(from, record, moving) => (from, record, moving),
            other => {
                self.large = other;
                return Ok(());
            }
        };
        if !self.pending.lives(io, owner, (&record.as_record(), from)) {
            return Ok(());
        }
        let mut moving = Some(moving);
        match appender.append_large(io, survivors_of(io, from).purpose(), &record, &mut moving) {
            Ok(to) => point_to(io, owner, &record.as_record(), (from, to)),
            Err(error) => {
                let moving = moving.expect("invariant: it is taken only with what is appended");
                self.large = Large::Read(from, record, moving);
                return Err(self.pending.stop(&error, from));
            }
        }
        self.relocated_bytes += record.as_record().size() as u64;
        Ok(())
    }
}

impl PendingRecord {
    /// Moves one record of a victim if it lives. Returns its size then, in bytes.
    fn relocate(
        &mut self,
        io: &mut Io,
        appender: &mut Appender,
        owner: &dyn Owner,
        (record, from): (&Record<'_>, Location),
    ) -> Result<usize, Stop> {
        if !self.lives(io, owner, (record, from)) {
            return Ok(0);
        }
        let stream = survivors_of(io, from);
        let appended = match record.size() > io.shared.geometry.small_record_max() {
            true => self.append_large(io, appender, stream, record),
            false => appender.append(io, stream, record),
        };
        let to = appended.map_err(|error| self.stop(&error, from))?;
        point_to(io, owner, record, (from, to));
        Ok(record.size())
    }

    /// Appends a large record that fills a block of the size of a write buffer, as small ones do.
    fn append_large(
        &mut self,
        io: &mut Io,
        appender: &mut Appender,
        stream: Stream,
        record: &Record<'_>,
    ) -> Result<Location, AppendError> {
        appender.large.check_room(record.size())?;
        let moving = io.shared.moving.admit(record.size(), &mut self.place);
        let mut moving = Some(moving.ok_or(AppendError::Busy)?);
        appender.append_large(
            io,
            stream.purpose(),
            &Arc::new(record.to_owned_record()),
            &mut moving,
        )
    }

    /// What becomes of the run when a record that lives could not be appended.
    fn stop(&mut self, error: &AppendError, from: Location) -> Stop {
        match error {
            AppendError::Busy => {
                self.found_live = Some(from);
                Stop::Later
            }
            _ => Stop::GiveUp,
        }
    }

    /// Whether a record of a victim is to be kept. One that is not is let go of.
    fn lives(&self, io: &Io, owner: &dyn Owner, (record, from): (&Record<'_>, Location)) -> bool {
        let liveness = match self.found_live == Some(from) {
            true => Liveness::Live,
            false => owner.is_live(record, from),
        };
        match liveness {
            Liveness::Live => return true,
            Liveness::Dead => {}
            Liveness::Dropped => drop(io.shared.release(from, record.size())),
        }
        io.counters.gc_dropped.add(1);
        false
    }
}

/// The stream for what is kept of a segment.
fn survivors_of(io: &Io, from: Location) -> Stream {
    io.shared.table.get(io.shared.geometry.split(from).0).stream().survivors()
}

/// Has the owner point to a record's copy, and releases the one of both that nothing points to.
fn point_to(io: &Io, owner: &dyn Owner, record: &Record<'_>, (from, to): (Location, Location)) {
    io.counters.gc_relocated.add(1);
    io.counters.gc_relocated_bytes.add(record.size() as u64);
    let is_current = owner.relocate(record, from, to);
    io.shared.release(if is_current { from } else { to }, record.size());
}
