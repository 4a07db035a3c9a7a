//! A worker thread's side of the tier: its reads from flash, its share of demotion, collection and
//! eviction.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use flash::{
    Completion, EngineError, EngineWorker, FetchedRecord, Location, OwnedRecord, ReadStart,
    record_size,
};
use keyspace::{Db, Hint, Key, Stored, Tally};

use crate::compress::{Compressor, decompress};
use crate::defrag::DefragHand;
use crate::demote::StopReason;
use crate::fetch::{FetchedSet, Group, GroupDone, Want};
use crate::hand::Hand;
use crate::tier::{Pressure, Tier, TierError};

/// How long a write waits for room before it is refused, while the drive still makes some.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// Bytes that it frees at least while `maxmemory` is resident.
const FULL_SLICE_BYTES: i64 = 64 << 10;
/// Pages are dense when at most this part of what defragmentation asked about moved: an eighth.
const DENSE_SHIFT: u32 = 3;
/// While memory is short, resident memory is looked at after growth by this part of `maxmemory`:
/// 1/256.
const LOOK_SHIFT: u32 = 8;
/// Bytes that a batch of writes is to have demoted, at least.
const BATCH_BYTES_MIN: i64 = 16 << 10;
/// Bytes that writers have demoted at once, at least: a slice costs something of its own.
const DUE_BYTES_MIN: i64 = 64 << 10;
/// Bytes that one slice of demotion frees at most before others get their turn.
pub(crate) const SLICE_BYTES_MAX: i64 = 1 << 20;

/// The worker's side; not shared between threads.
pub struct TierWorker {
    /// The shared side.
    pub tier: Arc<Tier>,
    pub(crate) engine: Option<RefCell<Box<dyn EngineWorker>>>,
    pub(crate) compressor: RefCell<Compressor>,
    /// The demotion hand.
    pub(crate) hand: Hand,
    /// Slots that it passed since anything could be demoted.
    pub(crate) idle_slots: Cell<usize>,
    /// The measurement of memory at which it last found nothing in all rounds.
    pub(crate) spent_at: Cell<u32>,
    pub(crate) defrag: DefragHand,
    /// The measurement of memory after which a write was refused.
    refused_at: Cell<Option<u32>>,
    /// What writers have yet to have demoted, less than [`DUE_BYTES_MIN`].
    demotion_due_bytes: Cell<i64>,
    /// What was brought since resident memory was last looked at.
    unseen_bytes: Cell<i64>,
    pub(crate) random: Cell<u64>,
    reads: RefCell<Reads>,
    done: RefCell<Vec<Completion>>,
    submitter: Cell<Option<Waker>>,
    unsubmitted: Cell<bool>,
    reaped: RefCell<Vec<Waker>>,
    /// Who waits for upkeep: at most one waker a connection.
    idle: RefCell<Vec<Waker>>,
}

/// Reads in flight, by token, and those that wait for a place.
#[derive(Default)]
struct Reads {
    waiting: Vec<Option<ValueRead>>,
    free: Vec<usize>,
    /// Bounds: a connection waits for its group before it asks for more, so this holds at most one
    /// batch of each connection.
    queue: VecDeque<ValueRead>,
}

/// One read of a group.
struct ValueRead {
    want: Want,
    group: Rc<Group>,
    /// Which of the group's.
    index: u32,
}

impl ValueRead {
    fn complete(&self, result: Result<FetchedRecord, EngineError>) {
        self.group.complete(self.index, &self.want, result);
    }
}

impl TierWorker {
    /// The side of worker `index`. Errors: the engine's ring or threads could not be made.
    pub fn new(tier: Arc<Tier>, index: usize) -> Result<TierWorker, EngineError> {
        let engine = match &tier.engine {
            Some(engine) => Some(RefCell::new(engine.worker()?)),
            None => None,
        };
        let hand = Hand::new(index, tier.workers);
        let defrag = DefragHand::new(index, tier.workers);
        Ok(TierWorker {
            tier,
            engine,
            compressor: RefCell::default(),
            hand,
            idle_slots: Cell::new(0),
            spent_at: Cell::new(0),
            refused_at: Cell::new(None),
            defrag,
            demotion_due_bytes: Cell::new(0),
            unseen_bytes: Cell::new(0),
            random: Cell::new(0x9E37_79B9_7F4A_7C15 ^ index as u64),
            reads: RefCell::default(),
            done: RefCell::default(),
            submitter: Cell::new(None),
            unsubmitted: Cell::new(false),
            reaped: RefCell::default(),
            idle: RefCell::default(),
        })
    }

    /// Readable when [`TierWorker::reap`] has something to do; none without flash. A duplicate, to
    /// be registered with the event loop. Errors: no more file descriptors.
    pub fn wake_fd(&self) -> std::io::Result<Option<OwnedFd>> {
        let Some(engine) = &self.engine else { return Ok(None) };
        engine.borrow().wake_fd().try_clone_to_owned().map(Some)
    }

    /// Reads values from flash, all at once. `wants` names each place once, in ascending order.
    pub async fn fetch(&self, wants: Vec<Want>) -> FetchedSet {
        if wants.is_empty() {
            return FetchedSet::default();
        }
        let group = Rc::new(Group::new(&wants));
        for (index, want) in wants.into_iter().enumerate() {
            self.start_read(ValueRead { want, group: group.clone(), index: index as u32 });
        }
        self.want_submit();
        GroupDone(group).await
    }

    fn start_read(&self, read: ValueRead) {
        let mut reads = self.reads.borrow_mut();
        if !reads.queue.is_empty() {
            return reads.queue.push_back(read);
        }
        if let Err(read) = self.try_read(&mut reads, read) {
            reads.queue.push_back(read);
        }
    }

    /// Starts the reads that waited for a place, in their order: a connection holds no buffers while
    /// it waits, so the oldest group always ends.
    fn start_queued(&self) {
        let mut reads = self.reads.borrow_mut();
        while let Some(read) = reads.queue.pop_front() {
            if let Err(read) = self.try_read(&mut reads, read) {
                reads.queue.push_front(read);
                break;
            }
        }
    }

    /// Errors: the engine takes no more reads for now; here it is back.
    fn try_read(&self, reads: &mut Reads, read: ValueRead) -> Result<(), ValueRead> {
        let engine = self.engine.as_ref().expect("invariant: cold values need an engine");
        let token = reads.free.pop().unwrap_or_else(|| {
            reads.waiting.push(None);
            reads.waiting.len() - 1
        });
        let (at, size) = place_of(&read.want);
        match engine.borrow_mut().read(at, size, token as u64) {
            ReadStart::Pending => {
                reads.waiting[token] = Some(read);
                return Ok(());
            }
            ReadStart::Ready(record) => read.complete(Ok(record)),
            ReadStart::Failed(error) => read.complete(Err(error)),
            ReadStart::Busy => {
                reads.free.push(token);
                return Err(read);
            }
        }
        reads.free.push(token);
        Ok(())
    }

    /// Reads one value and waits for it with the thread: for what a transaction learns too late.
    pub fn fetch_blocking(&self, want: Want) -> FetchedSet {
        let engine = self.engine.as_ref().expect("invariant: cold values need an engine");
        let (at, size) = place_of(&want);
        let result = engine.borrow_mut().read_blocking(at, size);
        FetchedSet::of_held(&want, result)
    }

    /// Makes the submitter run once the connections that are ready have had their turn, so that
    /// one system call starts all their reads.
    pub(crate) fn want_submit(&self) {
        if !self.unsubmitted.replace(true)
            && let Some(waker) = self.submitter.take()
        {
            waker.wake();
        }
    }

    /// Hands queued I/O to the kernel once a turn of the loop. Never ends; to be spawned once.
    pub async fn submitter(&self) {
        std::future::poll_fn(|cx| {
            if self.unsubmitted.take() {
                self.submit();
            }
            self.submitter.set(Some(cx.waker().clone()));
            Poll::<()>::Pending
        })
        .await;
    }

    /// Fetched values were let go: reads that wait for a buffer may find one.
    #[inline]
    pub fn buffers_released(&self) {
        if !self.reads.borrow().queue.is_empty() {
            self.want_submit();
        }
    }

    fn submit(&self) {
        self.start_queued();
        if let Some(engine) = &self.engine {
            engine.borrow_mut().submit();
        }
    }

    /// Takes what the device has finished: wakes the connections whose values are there, starts
    /// reads that waited for a place, and puts back into RAM what could not be written.
    pub fn reap(&self) {
        let Some(engine) = &self.engine else { return };
        let mut done = self.done.take();
        engine.borrow_mut().reap(&mut done);
        let mut reads = self.reads.borrow_mut();
        let mut failed = Vec::new();
        for completion in done.drain(..) {
            match completion {
                Completion::Read { token, result } => {
                    let token = token as usize;
                    let read =
                        reads.waiting[token].take().expect("invariant: each token completes once");
                    reads.free.push(token);
                    read.complete(result);
                }
                Completion::WriteFailed { records, error } => failed.push((records, error)),
            }
        }
        drop(reads);
        self.done.replace(done);
        self.start_queued();
        for (records, error) in failed {
            self.restore(records, &error);
        }
        for waker in self.reaped.borrow_mut().drain(..) {
            waker.wake();
        }
        self.want_submit();
    }

    /// Puts values back into RAM whose write failed. Values that do not unpack cannot exist: they
    /// come from memory, not from the device.
    fn restore(&self, records: Vec<(Location, OwnedRecord)>, error: &EngineError) {
        tracing::error!(%error, records = records.len(), "flash write failed; values stay in RAM");
        let engine = self.tier.engine.as_ref().expect("invariant: an engine reported this");
        let mut tally = Tally::default();
        for (at, record) in records {
            let key = Key::new(&record.key);
            let mut slot = self.tier.keyspace.lock(key.slot);
            let mut db = Db::new(&mut slot, record.meta.db, 0, &mut tally);
            if restore_one(&mut db, &key, at, &record) {
                engine.release(at, record_size(record.key.len(), record.payload.len()));
                self.tier.counters.restored.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.tier.publish(&mut tally);
    }

    /// Ends a batch: publishes it, sends the newcomers among its values to flash unless a first use
    /// is enough to stay, and demotes a little when memory is short.
    #[inline]
    pub fn after_batch(&self, tally: &mut Tally) -> Pressure {
        let mut grown = tally.ram_bytes();
        self.tier.publish(tally);
        if !tally.newcomers.is_empty() {
            grown -= self.pass_newcomers(&tally.newcomers);
            tally.newcomers.clear();
        }
        let pressure = self.tier.pressure();
        if pressure == Pressure::None {
            return pressure;
        }
        self.relieve(grown)
    }

    /// Returns the bytes that came free.
    fn pass_newcomers(&self, newcomers: &[Hint]) -> i64 {
        if self.tier.promotes_at_once() {
            return 0;
        }
        let gone = self.demote_newcomers(newcomers);
        self.collect_for(gone.written_bytes);
        gone.freed_bytes
    }

    #[cold]
    fn relieve(&self, grown: i64) -> Pressure {
        // Twice what the batch brought: writers pay their own way and catch up a little.
        let due = self.demotion_due_bytes.get() + (2 * grown).max(BATCH_BYTES_MIN);
        self.demotion_due_bytes.set(due);
        if due >= DUE_BYTES_MIN {
            self.demotion_due_bytes.set(0);
            let over = self.tier.budget.over_watermark();
            let demoted = self.demote(due.min(SLICE_BYTES_MAX).min(over));
            self.collect_for(demoted.written_bytes);
        }
        self.defrag_for(grown);
        self.look_after(grown);
        self.tier.pressure()
    }

    /// Looks at resident memory after so much growth: a fast writer does not wait for the next
    /// measurement, which a busy machine may delay.
    fn look_after(&self, grown: i64) {
        let unseen = self.unseen_bytes.get() + grown.max(0);
        let step = self.tier.budget.max_bytes() >> LOOK_SHIFT;
        let is_due = unseen as u64 * self.tier.workers as u64 >= step;
        self.unseen_bytes.set(if is_due { 0 } else { unseen });
        if is_due {
            self.tier.look_for_room();
        }
    }

    /// Waits until there is room for a write.
    ///
    /// Errors: [`TierError::OutOfMemory`] when neither demotion nor eviction makes any within
    /// `ROOM_WAIT_MAX`.
    pub async fn room(&self) -> Result<(), TierError> {
        // What has just been sought in vain is not there until memory is measured again, or less
        // is allocated, and then nobody asks.
        let measures = Some(self.tier.budget.measures());
        if self.refused_at.get() == measures {
            return Err(TierError::OutOfMemory);
        }
        let start = Instant::now();
        let result = self.wait_for_room(start).await;
        if result.is_err() {
            self.refused_at.set(Some(self.tier.budget.measures()));
        }
        let waited_us = start.elapsed().as_micros() as u64;
        self.tier.counters.pressure_us.fetch_add(waited_us, Ordering::Relaxed);
        self.tier.counters.pressure_waits.fetch_add(1, Ordering::Relaxed);
        result
    }

    async fn wait_for_room(&self, start: Instant) -> Result<(), TierError> {
        let budget = &self.tier.budget;
        while self.tier.pressure() == Pressure::Wait {
            let over = budget.over_limit();
            let packed = self.defrag();
            // While `maxmemory` is resident, the limit was too high, whatever it says. But first
            // come pages that are sparse: what goes makes holes, and a cold key takes a little.
            let is_dense = packed.moved <= packed.asked >> DENSE_SHIFT;
            let wanted =
                if budget.is_full() && is_dense { over.max(FULL_SLICE_BYTES) } else { over };
            let demoted = self.demote(wanted.min(SLICE_BYTES_MAX));
            self.collect_for(demoted.written_bytes);
            let in_time = start.elapsed() < ROOM_WAIT_MAX;
            if demoted.freed_bytes > 0 || packed.moved > 0 && in_time {
                self.tier.look_for_room();
                yield_once().await;
                continue;
            }
            let evict = || self.evict(over.clamp(1, SLICE_BYTES_MAX)) > 0;
            match demoted.stopped {
                // The hand met nothing that may go yet: it goes on where it stopped.
                None if in_time => yield_once().await,
                Some(StopReason::Busy) if in_time => self.device_turn().await,
                Some(StopReason::Full) if in_time && self.collect() => self.device_turn().await,
                _ if in_time && self.may_defrag() => yield_once().await,
                Some(StopReason::Spent) if !budget.is_nearly_full() => return Ok(()),
                // The slots of other workers hold values: their hands will come to them.
                Some(StopReason::Spent) if in_time && self.tier.has_values_to_demote() => {
                    self.next_upkeep().await;
                }
                // Keys alone are left in RAM.
                Some(StopReason::Spent) if evict() => {}
                Some(StopReason::Spent) => return Err(TierError::OutOfMemory),
                // With flash keys are let go for the fact alone, never for the estimate.
                _ if self.engine.is_some() && !budget.is_full() => return Ok(()),
                _ if evict() => {}
                _ if !budget.is_full() => return Ok(()),
                // Values have gone to flash; their pages may be on their way.
                _ if self.engine.is_some() && in_time && budget.is_full_for_now() => {
                    self.next_upkeep().await;
                }
                _ => return Err(TierError::OutOfMemory),
            }
        }
        Ok(())
    }

    /// Waits for the next round of upkeep: a few milliseconds.
    async fn next_upkeep(&self) {
        wake_up_from(&self.idle).await;
    }

    /// Waits for the next completions of the device; when it has nothing to do, for others to have
    /// their turn.
    pub async fn device_turn(&self) {
        self.submit();
        if self.in_flight() == 0 {
            return yield_once().await;
        }
        wake_up_from(&self.reaped).await;
    }

    /// The worker's share of upkeep, to be called every few milliseconds: demotion ahead of need,
    /// defragmentation, collection. True: there is more to do at once.
    pub fn upkeep(&self) -> bool {
        let over = self.tier.budget.over_watermark();
        let mut more = false;
        if over > 0 {
            let demoted = self.demote(over.min(SLICE_BYTES_MAX));
            more = demoted.freed_bytes > 0 && demoted.freed_bytes < over;
        }
        self.defrag();
        self.collect();
        self.want_submit();
        for waker in self.idle.borrow_mut().drain(..) {
            waker.wake();
        }
        more
    }

    /// Starts to write what stands in write buffers, for tests and a clean stop.
    pub fn flush(&self) {
        if let Some(engine) = &self.engine {
            engine.borrow_mut().flush();
            self.submit();
        }
    }

    /// Reads and writes in flight.
    pub fn in_flight(&self) -> usize {
        self.engine.as_ref().map_or(0, |engine| engine.borrow().in_flight())
    }

    /// The next number of the worker's generator.
    pub fn next_random(&self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Where a value's record is, and its size there.
fn place_of(want: &Want) -> (Location, usize) {
    let size = record_size(want.key_len as usize, want.at.stored_len as usize);
    (Location::from_units(want.at.units), size)
}

/// Waits until those who sleep in `wakers` are woken.
async fn wake_up_from(wakers: &RefCell<Vec<Waker>>) {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        wakers.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

/// Lets every other task that is ready have its turn. Unlike the runtime's own, it does not look for
/// new events first.
pub async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Makes a key whose copy at `at` is lost live in RAM alone. False: it does not point there.
fn restore_one(db: &mut Db<'_>, key: &Key<'_>, at: Location, record: &OwnedRecord) -> bool {
    let Some(view) = db.peek(key) else { return false };
    match view.stored {
        Stored::Cold(place, len) if place.units == at.units() => {
            let unpacked = record.meta.compressed.then(|| {
                decompress(&record.payload, len as usize)
                    .expect("invariant: what was compressed in memory unpacks")
            });
            db.restore(key, place, unpacked.as_deref().unwrap_or(&record.payload))
        }
        Stored::Clean(_, place) if place.units == at.units() => db.forget_copy(key, place),
        _ => false,
    }
}
