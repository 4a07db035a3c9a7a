//! A worker thread's side of the tier: its reads from flash, its share of demotion, gc and
//! eviction.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use flash::{
    Completion, EngineError, EngineWorker, FetchedRecord, Location, OwnedRecord, ReadStart,
    RecordId, record_size,
};
use keyspace::{Db, EntryPosition, FlashRef, Key, Stored, Tally};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::compress::{Compressor, decompress};
use crate::defrag::DefragHand;
use crate::evict::EvictionHand;
use crate::fetch::{FetchedSet, Group, GroupDone, Want, sort_wants};
use crate::flash_switch::FlashChange;
use crate::hand::Hand;
use crate::limits::READS_STARTED_MAX;
use crate::neighbours::NeighbourUse;
use crate::probation::Probation;
use crate::tier::Tier;
use crate::upkeep::{READ_AHEAD_BYTES_MIN, write_buffers_share};
use crate::wait::WaitQueue;

/// So many reads in flight are few. Where few clients read, a pipeline's are handed to the kernel at once while there are no
/// more.
const FEW_READS_MAX: usize = 64;
/// Few clients read where at most one in so many of their batches has waited for reads.
const BATCHES_OF_READER_MIN: usize = 4;
/// Batches after which that is judged, those before counting half, and so on: as many as end in a turn or two.
const JUDGED_BATCHES: usize = 64;
/// Of the record of a value that is asked for ahead, so much is the key: its length is not known yet.
const PREFETCHED_KEY_BYTES: usize = 32;
/// How long a thread that waits for the device sleeps at most.
const DEVICE_POLL_NANOS: i64 = 10_000_000;

/// The worker's side; not shared between threads.
pub struct TierWorker {
    /// The shared side.
    pub tier: Arc<Tier>,
    /// Which worker it is.
    pub(crate) index: usize,
    /// Its side of the engine.
    pub(crate) engine: RefCell<Option<Box<dyn EngineWorker>>>,
    /// Of which engine: [`Tier::engine_number`].
    engine_number: Cell<u64>,
    /// Whether it appends anything.
    appends: bool,
    /// See [`TierWorker::fetches_over_gaps`].
    gap_bytes: Cell<u32>,
    pub(crate) compressor: RefCell<Compressor>,
    /// The demotion hand.
    pub(crate) hand: Hand,
    /// Slots that it passed since anything could be demoted.
    pub(crate) idle_slots: Cell<usize>,
    /// The slots that it passes next without keeping values that expire soon.
    pub(crate) expiring_slots: Cell<usize>,
    /// The measurement of memory at which it last found nothing in all rounds.
    pub(crate) spent_at: Cell<u32>,
    pub(crate) defrag: DefragHand,
    pub(crate) eviction_hand: EvictionHand,
    /// Where the demotion hand is in its slot.
    pub(crate) hand_at: Cell<EntryPosition>,
    /// Whether the gc run under way evicts what it meets.
    pub(crate) gc_evicts: Cell<bool>,
    pub(crate) waiting: WaitQueue,
    pub(crate) neighbour_use: RefCell<NeighbourUse>,
    /// Whether to bring neighbours along pays, by what was read lately.
    pub(crate) neighbours_pay: Cell<bool>,
    pub(crate) probation: RefCell<Probation>,
    /// What blocks that are read ahead may take, and the measurement of memory when that was last said.
    pub(crate) read_ahead_bytes: Cell<usize>,
    pub(crate) read_ahead_at: Cell<u32>,
    /// What writers have yet to have demoted, less than `DUE_BYTES_MIN`.
    pub(crate) demotion_due_bytes: Cell<i64>,
    /// What was brought since resident memory was last looked at.
    pub(crate) unseen_bytes: Cell<i64>,
    pub(crate) random: Cell<u64>,
    reads: RefCell<Reads>,
    done: RefCell<Vec<Completion>>,
    /// Whether it writes large values, as `Tier::writing_workers` has it.
    is_writing: Cell<bool>,
    /// Batches of clients that have ended, and those of them that have waited for reads.
    batches: Cell<usize>,
    batches_of_readers: Cell<usize>,
    has_few_readers: Cell<bool>,
    submitter: Cell<Option<Waker>>,
    unsubmitted: Cell<bool>,
    pub(crate) reaped: RefCell<Vec<Waker>>,
}

/// Reads in flight, by token, and those that wait for a place.
#[derive(Default)]
struct Reads {
    waiting: Vec<Option<ValueRead>>,
    free: Vec<usize>,
    /// Groups with reads that have not begun, from the first of these on. Bounds: a connection waits for
    /// its group before it asks for more, so this holds at most one of each.
    queue: VecDeque<ValueRead>,
    /// Reads that were started since the kernel was last told of any.
    started: usize,
}

impl Reads {
    /// Whether any are in flight, or wait.
    fn are_any(&self) -> bool {
        !self.queue.is_empty() || self.in_flight() > 0
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() - self.free.len()
    }

    /// Whether some were started that the kernel is to be told of, and few are in flight.
    fn are_few(&self) -> bool {
        self.started > 0 && self.in_flight() <= FEW_READS_MAX
    }
}

/// One read of a group.
#[derive(Clone)]
struct ValueRead {
    group: Rc<Group>,
    /// Which of the group's.
    index: u32,
}

impl ValueRead {
    fn want(&self) -> Want {
        self.group.wants()[self.index as usize]
    }

    fn complete(&self, result: Result<FetchedRecord, EngineError>) {
        self.group.complete(self.index, result);
    }
}

impl TierWorker {
    /// The side of worker `index`. Errors: the engine's ring or threads could not be made.
    pub fn new(tier: Arc<Tier>, index: usize) -> Result<TierWorker, EngineError> {
        TierWorker::with_side(tier, index, true)
    }

    /// A side that reads values from flash and sends none there. Errors: as [`TierWorker::new`].
    pub fn reader(tier: Arc<Tier>) -> Result<TierWorker, EngineError> {
        TierWorker::with_side(tier, 0, false)
    }

    fn with_side(tier: Arc<Tier>, index: usize, appends: bool) -> Result<TierWorker, EngineError> {
        let worker = TierWorker::without_side(tier, index, appends);
        // A thread that reads takes it with the first value; one begun while flash goes would keep its files.
        if worker.tier.has_flash() {
            worker.engine.replace(worker.new_side()?);
        }
        Ok(worker)
    }

    fn without_side(tier: Arc<Tier>, index: usize, appends: bool) -> TierWorker {
        let engine_number = Cell::new(tier.engine_number());
        let seed = tier.seed ^ 0x9E37_79B9_7F4A_7C15 ^ index as u64;
        let hand = Hand::new(index, tier.workers);
        let defrag = DefragHand::new(index, tier.workers);
        let eviction_hand = EvictionHand::new(index, tier.workers);
        TierWorker {
            tier,
            index,
            engine: RefCell::default(),
            engine_number,
            appends,
            gap_bytes: Cell::new(0),
            compressor: RefCell::default(),
            hand,
            idle_slots: Cell::new(0),
            expiring_slots: Cell::new(0),
            spent_at: Cell::new(0),
            eviction_hand,
            hand_at: Cell::default(),
            gc_evicts: Cell::new(false),
            waiting: WaitQueue::default(),
            neighbour_use: RefCell::default(),
            neighbours_pay: Cell::new(false),
            probation: RefCell::default(),
            read_ahead_bytes: Cell::new(READ_AHEAD_BYTES_MIN),
            read_ahead_at: Cell::new(0),
            defrag,
            demotion_due_bytes: Cell::new(0),
            unseen_bytes: Cell::new(0),
            random: Cell::new(seed),
            reads: RefCell::default(),
            done: RefCell::default(),
            is_writing: Cell::new(false),
            batches: Cell::new(0),
            batches_of_readers: Cell::new(0),
            has_few_readers: Cell::new(false),
            submitter: Cell::new(None),
            unsubmitted: Cell::new(false),
            reaped: RefCell::default(),
        }
    }

    /// A side of the engine, if there is one, with the bounds that hold here.
    fn new_side(&self) -> Result<Option<Box<dyn EngineWorker>>, EngineError> {
        let mut side = self.tier.side()?;
        if let Some(engine) = &mut side {
            engine.bound_write_buffers(self.write_buffers_max());
            engine.merge_reads_over(self.gap_bytes.get());
            if !self.appends {
                // Nobody measures what it keeps, or has it give that up while others wait for memory.
                engine.bound_block_cache(0, 0);
            }
        }
        Ok(side)
    }

    /// How many write buffers the side may have.
    pub(crate) fn write_buffers_max(&self) -> usize {
        let budget = &self.tier.budget;
        if self.appends { write_buffers_share(budget.max_bytes(), self.tier.workers) } else { 0 }
    }

    /// Readable when [`TierWorker::reap`] has something to do; none without flash. A duplicate, to
    /// be registered with the event loop. Errors: no more file descriptors.
    pub fn wake_fd(&self) -> std::io::Result<Option<OwnedFd>> {
        let side = self.engine.borrow();
        side.as_ref().map(|engine| engine.wake_fd().try_clone_to_owned()).transpose()
    }

    /// Whether the engine has come since, or is to go: see [`TierWorker::follow_engine`].
    pub fn is_engine_changed(&self) -> bool {
        self.tier.change_to_follow(self.index).is_some()
    }

    /// Takes its side of an engine that has come, or lets go of that of one that is to go. Returns the change that it has
    /// followed, for [`TierWorker::note_followed`]; none: there is no change, or something is still in flight on its side, or in
    /// its queue. Called by the thread that drives it; what [`TierWorker::wake_fd`] has answered before is of no more use then.
    ///
    /// Errors: the ring or the threads behind it could not be made.
    pub fn follow_engine(&self) -> Result<Option<FlashChange>, EngineError> {
        let Some(change) = self.tier.change_to_follow(self.index) else { return Ok(None) };
        if change.has_engine {
            // A fetch may have taken it before.
            if self.engine.borrow().is_none() || self.engine_number.get() != change.number {
                self.engine.replace(self.new_side()?);
                self.engine_number.set(change.number);
            }
        } else {
            // Nothing on it lives, but who lets go of it waits for what is in its write buffers.
            self.flush();
            self.reap();
            if self.in_flight() > 0 || self.reads.borrow().are_any() {
                return Ok(None);
            }
            self.engine.take();
            // A worker that is given no new values would keep its queue.
            self.probation.take();
            self.note_writing();
        }
        Ok(Some(change))
    }

    /// Says that it is ready for a change that it has followed. There may be a later one.
    pub fn note_followed(&self, change: FlashChange) {
        self.tier.note_followed(self.index, change);
    }

    /// Reads values from flash, all at once. `wants` names each record once, in ascending order.
    pub fn fetch(&self, wants: Vec<Want>) -> impl Future<Output = FetchedSet> {
        self.fetch_group(wants, false)
    }

    /// The same for a client, to which values beside them may matter soon: those may come to RAM as well.
    pub fn fetch_for_client(&self, wants: Vec<Want>) -> impl Future<Output = FetchedSet> {
        self.fetch_group(wants, true)
    }

    // The group is made in here: it would else take its place in the future of each connection twice.
    async fn fetch_group(&self, wants: Vec<Want>, may_bring: bool) -> FetchedSet {
        if wants.is_empty() {
            return FetchedSet::default();
        }
        let group = Rc::new(Group::new(wants, may_bring));
        let is_first = {
            let mut reads = self.reads.borrow_mut();
            reads.queue.push_back(ValueRead { group: group.clone(), index: 0 });
            reads.queue.len() == 1
        };
        if is_first {
            self.start_queued();
        }
        let has_waited = group.is_waiting();
        if self.has_few_readers() && self.reads.borrow().are_few() {
            self.submit();
        }
        self.want_submit();
        let mut fetched = GroupDone { group, worker: self }.await;
        fetched.has_waited = has_waited;
        fetched
    }

    /// Which record lies at the place of a key's value, as [`Tier::record_id`], by its own side of the engine where it has one.
    #[inline]
    pub fn record_id(&self, at: FlashRef) -> RecordId {
        let side = self.engine.borrow();
        match side.as_ref() {
            Some(engine) if self.engine_number.get() == self.tier.engine_number() => {
                engine.identify(Location::from_units(at.units))
            }
            _ => self.tier.record_id(at),
        }
    }

    /// What to fetch for a key whose value is on flash alone. The key's slot is locked.
    #[inline]
    pub fn want(&self, key: &Key<'_>, at: FlashRef, value_len: u32) -> Want {
        Want { at, record: self.record_id(at), key_len: key.bytes.len() as u32, value_len }
    }

    /// Asks the CPU for the lines of values on flash that will be fetched, of those that have been read ahead.
    pub fn prefetch(&self, values: impl Iterator<Item = FlashRef>) {
        let side = self.engine.borrow();
        if let Some(engine) = side.as_ref().filter(|engine| engine.block_cache_bytes() > 0) {
            values.for_each(|at| {
                engine.prefetch(
                    Location::from_units(at.units),
                    record_size(PREFETCHED_KEY_BYTES, at.stored_len as usize),
                );
            });
        }
    }

    /// Takes the reads of a group that nobody awaits any more off the queue; those in flight end by
    /// themselves. Its buffers have been let go.
    pub(crate) fn forget_queued(&self, group: &Rc<Group>) {
        self.reads.borrow_mut().queue.retain(|read| !Rc::ptr_eq(&read.group, group));
        self.buffers_released();
    }

    /// Starts reads that waited for a place, in their order: a connection holds no buffers while
    /// it waits, so the oldest group always ends. After as many as are handed to the kernel in one go,
    /// completions of these start more.
    fn start_queued(&self) {
        let mut reads = self.reads.borrow_mut();
        while reads.started < READS_STARTED_MAX
            && let Some(next) = reads.queue.front_mut()
        {
            let read = next.clone();
            next.index += 1;
            let was_last = next.index as usize == next.group.wants().len();
            if !self.try_read(&mut reads, read) {
                reads.queue[0].index -= 1;
                break;
            }
            if was_last {
                reads.queue.pop_front();
            }
        }
    }

    /// False: the engine takes no more reads for now.
    fn try_read(&self, reads: &mut Reads, read: ValueRead) -> bool {
        let mut side = self.engine.borrow_mut();
        let engine = match self.side_for_reads(&mut side, &read.want()) {
            Ok(engine) => engine,
            Err(error) => {
                read.complete(Err(error));
                return true;
            }
        };
        let token = reads.free.pop().unwrap_or_else(|| {
            reads.waiting.push(None);
            reads.waiting.len() - 1
        });
        let want = read.want();
        let (record, size) = (want.record, size_of(&want));
        let brings = read.group.may_bring && self.brings_neighbours(want.at.units, size);
        let started = match brings {
            true => engine.read_around(record, size, token as u64),
            false => engine.read(record, size, token as u64),
        };
        match started {
            ReadStart::Pending => {
                if read.group.may_bring {
                    self.note_device_read();
                }
                reads.waiting[token] = Some(read);
                reads.started += 1;
                return true;
            }
            ReadStart::Ready(record) => read.complete(Ok(record)),
            ReadStart::Failed(error) => read.complete(Err(error)),
            ReadStart::Busy => {
                reads.free.push(token);
                return false;
            }
        }
        reads.free.push(token);
        true
    }

    /// Its side of the engine. A thread that began before there was flash takes it with the first value that it reads.
    ///
    /// Errors: it could not be made, or the flash has gone since, and the value is in RAM.
    fn side_for_reads<'s>(
        &self,
        side: &'s mut Option<Box<dyn EngineWorker>>,
        want: &Want,
    ) -> Result<&'s mut Box<dyn EngineWorker>, EngineError> {
        let number = self.tier.engine_number();
        if side.is_none() || self.engine_number.get() != number && self.tier.has_flash() {
            *side = self.new_side()?;
            self.engine_number.set(number);
        }
        side.as_mut().ok_or(EngineError::Gone { units: want.at.units })
    }

    /// Reads values and waits for them with the thread, their slots being held: for what a transaction learns too
    /// late.
    pub fn fetch_blocking(&self, mut wants: Vec<Want>) -> FetchedSet {
        sort_wants(&mut wants);
        FetchedSet::of_held(&wants, |wants| {
            let mut side = self.engine.borrow_mut();
            let reads: Vec<_> = wants.iter().map(|want| (want.record.at, size_of(want))).collect();
            match wants.first().map(|first| self.side_for_reads(&mut side, first)) {
                None => Vec::new(),
                Some(Ok(engine)) => engine.read_all_blocking(&reads),
                Some(Err(error)) => wants.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }

    /// Says that what is fetched together lies close together, for a walk over flash in order: over gaps of so many bytes the
    /// drive is asked for all in one.
    pub fn fetches_over_gaps(&self, gap_bytes: u32) {
        self.gap_bytes.set(gap_bytes);
        if let Some(engine) = &mut *self.engine.borrow_mut() {
            engine.merge_reads_over(gap_bytes);
        }
    }

    /// Reads values from flash, all at once, and waits for them with the thread, which serves nobody: no event loop
    /// runs on it, and nothing is written from it. `wants` names each record once, in ascending order.
    pub fn fetch_now(&self, wants: Vec<Want>) -> FetchedSet {
        let mut fetch = std::pin::pin!(self.fetch(wants));
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(fetched) = fetch.as_mut().poll(&mut cx) {
                return fetched;
            }
            self.unsubmitted.take();
            self.submit();
            if self.in_flight() > 0 {
                self.wait_for_device();
            }
            self.reap();
        }
    }

    /// Waits with the thread until the device has something to tell, or for a moment.
    pub(crate) fn wait_for_device(&self) {
        if stdx::waiting::let_others_run() {
            return;
        }
        let side = self.engine.borrow();
        let Some(engine) = side.as_ref() else { return };
        let wake_fd = engine.wake_fd();
        let mut fds = [PollFd::new(&wake_fd, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: DEVICE_POLL_NANOS };
        // Interrupted, or failed: whoever waits looks again.
        let _ = poll(&mut fds, Some(&timeout));
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
    ///
    /// Where few clients read they do not wait for the end of a turn, nor for that of the next for what they read to be noticed
    /// ([`TierWorker::notice_reads`]): one among many others who find their values in RAM, or read ahead, would take three turns
    /// for each of its pipelines, and fall behind them.
    pub async fn submitter(&self) {
        std::future::poll_fn(|cx| {
            // Once more when reads are left that no completion would start.
            while self.unsubmitted.take() {
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

    pub(crate) fn submit(&self) {
        self.start_queued();
        if let Some(engine) = &mut *self.engine.borrow_mut() {
            engine.submit();
        }
        self.note_writing();
        let started = std::mem::take(&mut self.reads.borrow_mut().started);
        if started >= READS_STARTED_MAX && self.in_flight() == 0 {
            // All have completed before: no completion will start those behind them.
            self.want_submit();
        }
    }

    /// Says whether large values are on their way to flash, for whoever waits for their memory.
    fn note_writing(&self) {
        let is_writing =
            self.engine.borrow().as_ref().is_some_and(|engine| engine.unwritten_bytes() > 0);
        match (self.is_writing.replace(is_writing), is_writing) {
            (false, true) => drop(self.tier.writing_workers.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.tier.writing_workers.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Notes that the batch of a client has ended, and whether it has waited for reads.
    #[inline]
    pub fn end_batch(&self, has_waited: bool) {
        let batches = self.batches.get() + 1;
        let of_readers = self.batches_of_readers.get() + usize::from(has_waited);
        let is_judged = batches >= JUDGED_BATCHES;
        if is_judged {
            self.has_few_readers.set(of_readers * BATCHES_OF_READER_MIN <= batches);
        }
        self.batches.set(batches >> u32::from(is_judged));
        self.batches_of_readers.set(of_readers >> u32::from(is_judged));
    }

    /// Whether hardly a client reads from flash, of those whose batches have ended lately.
    pub fn has_few_readers(&self) -> bool {
        self.has_few_readers.get()
    }

    /// Takes what the device has finished, where few clients read and few reads are in flight: to be called between clients.
    /// Cost: a look at the ring.
    #[inline]
    pub fn notice_reads(&self) {
        if !self.has_few_readers() {
            return;
        }
        let are_few = (1..=FEW_READS_MAX).contains(&self.reads.borrow().in_flight());
        if are_few && self.engine.borrow_mut().as_mut().is_some_and(|engine| engine.has_ended()) {
            self.reap();
        }
    }

    /// Takes what the device has finished: wakes the connections whose values are there, starts
    /// reads that waited for a place, and puts back into RAM what could not be written.
    pub fn reap(&self) {
        let mut done = self.done.take();
        match &mut *self.engine.borrow_mut() {
            Some(engine) => {
                let unwritten_bytes = engine.unwritten_bytes();
                engine.reap(&mut done);
                self.count_unwritten(&**engine, unwritten_bytes);
            }
            None => return,
        }
        let mut reads = self.reads.borrow_mut();
        let (mut failed, mut brought) = (Vec::new(), Vec::new());
        for completion in done.drain(..) {
            match completion {
                Completion::Read { token, result } => {
                    let token = token as usize;
                    let read =
                        reads.waiting[token].take().expect("invariant: each token completes once");
                    reads.free.push(token);
                    read.complete(result);
                }
                Completion::Neighbours(neighbours) => brought.push(neighbours),
                Completion::WriteFailed { records, error } => failed.push((records, error)),
            }
        }
        drop(reads);
        self.done.replace(done);
        // They hold read buffers, which others may wait for.
        brought.drain(..).for_each(|neighbours| self.promote_neighbours(&neighbours));
        self.note_writing();
        self.start_queued();
        for (records, error) in failed {
            self.restore(records, &error);
        }
        for waker in self.reaped.borrow_mut().drain(..) {
            waker.wake();
        }
        if !self.waiting.is_empty() {
            self.waiting.set_due();
        }
        self.want_submit();
    }

    /// Counts at once what large records on their way to flash take more or less than before: the data set no longer
    /// counts them, and they come and go faster than memory is measured.
    pub(crate) fn count_unwritten(&self, engine: &dyn EngineWorker, before: usize) {
        let bytes = engine.unwritten_bytes() as i64 - before as i64;
        if bytes != 0 {
            self.tier.budget.add_engine(bytes);
        }
    }

    /// Puts values back into RAM whose write failed. Values that do not unpack cannot exist: they
    /// come from memory, not from the device.
    ///
    /// Other workers read each record until it is dropped here, which is after its key points
    /// elsewhere.
    fn restore(&self, records: Vec<(Location, Arc<OwnedRecord>)>, error: &EngineError) {
        tracing::error!(%error, records = records.len(), "flash write failed; values stay in RAM");
        let engine = self.tier.engine().expect("invariant: an engine reported this");
        let mut tally = Tally::default();
        for (at, record) in records {
            // A leaf stands in the slot of its collection's key.
            let key = Key::in_slot(&record.key, record.meta.slot);
            let mut slot = self.tier.keyspace.lock(key.slot);
            let mut db = Db::new(&mut slot, record.meta.db, 0, &mut tally);
            if restore_one(&mut db, &key, at, &record) {
                engine.release(at, record_size(record.key.len(), record.payload.len()));
                self.tier.counters.restored.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.tier.add_tally(&mut tally);
    }

    /// Starts to write what stands in write buffers, for tests and a clean stop.
    pub fn flush(&self) {
        if let Some(engine) = &mut *self.engine.borrow_mut() {
            engine.flush();
        }
        self.submit();
    }

    /// Reads and writes in flight.
    pub fn in_flight(&self) -> usize {
        self.engine.borrow().as_ref().map_or(0, |engine| engine.in_flight())
    }

    /// The next number of the worker's generator.
    pub fn next_random(&self) -> u64 {
        let mut random = stdx::Random::new(self.random.get());
        let next = random.next_u64();
        self.random.set(random.state());
        next
    }
}

/// The size of a value's record.
fn size_of(want: &Want) -> usize {
    record_size(want.key_len as usize, want.at.stored_len as usize)
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

#[cfg(test)]
mod tests {
    use flash::RecordId;
    use keyspace::{FlashRef, Keyspace};

    use super::*;
    use crate::budget::Budget;
    use crate::environment::Environment;

    fn want(units: u64) -> Want {
        let at = FlashRef { units, stored_len: 100, compressed: false };
        let record = RecordId { at: Location::from_units(units), generation: 1 };
        Want { at, record, key_len: 1, value_len: 100 }
    }

    #[test]
    fn reads_that_nobody_awaits_leave_the_queue_and_bring_nothing() {
        let budget = Budget::new(0).expect("memory can be measured");
        let environment = Environment::of_machine(None);
        let tier = Tier::new(Arc::new(Keyspace::default()), None, environment, budget, 1);
        let worker = TierWorker::new(Arc::new(tier), 0).expect("no engine, no failure");
        let wants = [want(1), want(2), want(3)];
        let groups = [(); 2].map(|()| Rc::new(Group::new(wants.to_vec(), false)));
        // The first read of each is in flight, the others wait for a place.
        for group in &groups {
            let rest = ValueRead { group: group.clone(), index: 1 };
            worker.reads.borrow_mut().queue.push_back(rest);
        }
        drop(GroupDone { group: groups[0].clone(), worker: &worker });
        let reads = worker.reads.borrow();
        assert_eq!(reads.queue.len(), 1);
        assert!(reads.queue.iter().all(|read| Rc::ptr_eq(&read.group, &groups[1])));
        // What was in flight ends, and finds nobody.
        let lost = ValueRead { group: groups[0].clone(), index: 0 };
        lost.complete(Err(EngineError::Gone { units: 1 }));
        drop(lost);
        assert_eq!(Rc::strong_count(&groups[0]), 1, "nothing else remembers it");
    }
}
