//! Waiting for memory: a queue of writes in the order in which they came.
//!
//! No write frees memory by itself. Upkeep runs one slice after another for all that wait, with
//! turns of other clients between them, and does with the queue what the controller says
//! (`controller.rs`). It is woken when a write comes to wait, by completions of the device and, like
//! everything, by the upkeep timer, behind every measurement.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::controller::{Done, Figures, Next, Resident};
use crate::demote::StopReason;
use crate::limits::{
    DEFRAG_WAIT_MAX, DRIVE_WAIT_MAX, FULL_SLICE_BYTES, LARGE_WRITE_BYTES, PASSED_BYTES_MAX,
    SLICE_BYTES_MAX, WAIT_MAX, WRITE_BYTES,
};
use crate::tier::{Pressure, Tier, TierError};
use crate::worker::TierWorker;

/// Writes of one worker that wait for memory.
#[derive(Default)]
pub(crate) struct WaitQueue {
    /// Bounds: one for each connection of the worker.
    writes: RefCell<VecDeque<Rc<WaitingWrite>>>,
    /// What was over the limit when a write was last let go on; none since there was memory.
    deficit: Cell<Option<i64>>,
    /// The measurement of memory after which writes were refused.
    refused_at: Cell<Option<u32>>,
    /// The same of those that leave room to reads, where there was no more than that.
    refused_data_at: Cell<Option<u32>>,
    /// What was over the limit then. While it is not less, defragmentation is not waited for again.
    refused_over: Cell<Option<i64>>,
    /// What was missing for a large write, beside what others had claimed, that was refused after it had waited
    /// for as long as it may, and until when others do not wait as long for as much.
    refused_large: Cell<Option<(i64, Duration)>>,
    /// The measurement of memory, and what was resident then, at which all writes were let go on
    /// though more is allocated than the limit: it is an estimate, and nothing more can be freed.
    admitted_at: Cell<Option<(u32, Resident)>>,
    /// What smaller writes may still take while a large one waits before them, in bytes.
    allowance: Cell<i64>,
    /// The measurement of memory at which that was last raised.
    allowed_at: Cell<u32>,
    /// Whether the other workers are to demote for these writes.
    asks_others: Cell<bool>,
    /// Whether a slice is due before the next round of upkeep.
    is_due: Cell<bool>,
    upkeep: Cell<Option<Waker>>,
}

/// What a client holds of client memory, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Buffers.
    pub buffer_bytes: u64,
    /// What the request under way has reserved: what it is about to take, above all.
    pub reserved_bytes: u64,
}

/// The same of all clients whose requests wait.
#[derive(Default)]
pub(crate) struct HeldByWaiting {
    buffer_bytes: AtomicU64,
    reserved_bytes: AtomicU64,
}

impl HeldByWaiting {
    fn add(&self, held: Held) {
        self.buffer_bytes.fetch_add(held.buffer_bytes, Ordering::Relaxed);
        self.reserved_bytes.fetch_add(held.reserved_bytes, Ordering::Relaxed);
    }

    fn subtract(&self, held: Held) {
        self.buffer_bytes.fetch_sub(held.buffer_bytes, Ordering::Relaxed);
        self.reserved_bytes.fetch_sub(held.reserved_bytes, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> Held {
        Held {
            buffer_bytes: self.buffer_bytes.load(Ordering::Relaxed),
            reserved_bytes: self.reserved_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Counts what a client holds whose request waits, until this is dropped: others do not wait for that.
pub struct WaitingHeld<'a> {
    tier: &'a Tier,
    held: Held,
}

impl<'a> WaitingHeld<'a> {
    fn new(tier: &'a Tier, held: Held) -> WaitingHeld<'a> {
        tier.held_by_waiting.add(held);
        WaitingHeld { tier, held }
    }
}

impl Drop for WaitingHeld<'_> {
    fn drop(&mut self) {
        self.tier.held_by_waiting.subtract(self.held);
    }
}

#[derive(Default)]
struct WaitingWrite {
    since: Duration,
    /// What it is about to take.
    bytes: u64,
    /// Whether the data set grows by that: it leaves room to reads then.
    is_data: bool,
    /// Bytes of keys that are still to go for it, once it is the first and waits for pages.
    owed_bytes: Cell<Option<i64>>,
    answer: Cell<Option<Result<Claim, ()>>>,
    is_answered: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// Memory that a large request was let have, until this is dropped: while it may not be resident yet,
/// others must not be let have it as well.
pub struct Claim {
    tier: Arc<Tier>,
    bytes: u64,
}

impl Claim {
    fn new(tier: &Arc<Tier>, bytes: u64) -> Claim {
        let bytes = large(bytes);
        tier.budget.add_claimed(bytes as i64);
        Claim { tier: tier.clone(), bytes }
    }

    /// The same if they fit, with what is resident now. Of two workers that see room for one large write,
    /// one gets it: without that, both took it.
    pub(crate) fn if_it_fits(tier: &Arc<Tier>, bytes: u64) -> Option<Claim> {
        let bytes = large(bytes);
        loop {
            let claimed = tier.budget.claimed_bytes();
            tier.look_for_memory(bytes);
            if tier.budget.is_full_with(bytes) {
                return None;
            }
            if tier.budget.add_claimed_to(claimed, bytes) {
                return Some(Claim { tier: tier.clone(), bytes });
            }
        }
    }

    /// Claims them with what is resident now, the margin included, if nobody else has claimed anything.
    fn if_it_goes_alone(tier: &Arc<Tier>, bytes: u64) -> Option<Claim> {
        let bytes = large(bytes);
        // Measured anew: what another took that went alone is resident since its claim has gone.
        tier.look_for_memory(bytes);
        let is_alone = tier.budget.bears_alone(bytes) && tier.budget.add_claimed_to(0, bytes);
        is_alone.then(|| Claim { tier: tier.clone(), bytes })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.tier.budget.add_claimed(-(self.bytes as i64));
    }
}

/// `bytes` when they are many, else none.
fn large(bytes: u64) -> u64 {
    if bytes >= LARGE_WRITE_BYTES { bytes } else { 0 }
}

/// A write's place in the queue, which it leaves when this is dropped.
struct Place<'a> {
    /// What its client holds already; no buffers when it takes little.
    _held: WaitingHeld<'a>,
    queue: &'a WaitQueue,
    write: Rc<WaitingWrite>,
}

impl WaitingWrite {
    fn end(&self, answer: Result<Claim, ()>) {
        self.answer.set(Some(answer));
        self.is_answered.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.borrow().is_empty()
    }

    fn len(&self) -> usize {
        self.writes.borrow().len()
    }

    fn join<'a>(&'a self, tier: &'a Tier, bytes: u64, is_data: bool, mut held: Held) -> Place<'a> {
        let since = tier.clock.now();
        if large(bytes) == 0 {
            held.buffer_bytes = 0;
        }
        let write = WaitingWrite { since, bytes, is_data, ..WaitingWrite::default() };
        let write = Rc::new(write);
        self.writes.borrow_mut().push_back(write.clone());
        Place { _held: tier.note_waiting(held), queue: self, write }
    }

    /// Lets a large write, which is the first, go on if it was let have its memory. False: it was not.
    fn admit_large(&self, claim: Option<Claim>) -> bool {
        let Some(claim) = claim else { return false };
        self.refused_large.set(None);
        if let Some(write) = self.writes.borrow_mut().pop_front() {
            write.end(Ok(claim));
        }
        true
    }

    /// Lets the first so many writes go on.
    fn admit(&self, count: usize, tier: &Arc<Tier>) {
        self.answer(count, |write| Ok(Claim::new(tier, write.bytes)));
    }

    fn refuse(&self, count: usize) {
        self.answer(count, |_| Err(()));
    }

    fn answer(&self, count: usize, answer: impl Fn(&WaitingWrite) -> Result<Claim, ()>) {
        let mut writes = self.writes.borrow_mut();
        let count = count.min(writes.len());
        for write in writes.drain(..count) {
            write.end(answer(&write));
        }
    }

    /// Refuses those that leave room to reads.
    fn refuse_data(&self) {
        self.writes.borrow_mut().retain(|write| {
            if write.is_data {
                write.end(Err(()));
            }
            !write.is_data
        });
    }

    /// Refuses the write that has reserved most, if that is much, or of those alone that leave room to reads. False: it
    /// is not.
    fn refuse_largest(&self, of_data: bool) -> bool {
        let mut writes = self.writes.borrow_mut();
        let may_go = |write: &WaitingWrite| write.is_data || !of_data;
        let largest = writes.iter().enumerate().filter(|(_, write)| may_go(write));
        let largest = largest.max_by_key(|(_, write)| write.bytes);
        let Some((index, _)) = largest.filter(|(_, write)| large(write.bytes) > 0) else {
            return false;
        };
        if let Some(write) = writes.remove(index) {
            write.end(Err(()));
        }
        true
    }

    /// Lets smaller writes go on ahead of a large one that is the first, as far as they are allowed to: small
    /// ones, and others that fit.
    fn admit_smaller(&self, tier: &Arc<Tier>) {
        let mut allowance = self.allowance.get();
        let first_bytes = self.wanted_bytes();
        self.writes.borrow_mut().retain(|write| {
            let bytes = write.bytes;
            let claim = match large(bytes) {
                _ if allowance <= 0 || write.is_data && tier.room_is_for_reads() => None,
                0 => Some(Claim::new(tier, bytes)),
                // A look at resident memory is dear: not for each that does not fit as it is known to be.
                _ if bytes >= first_bytes || tier.budget.is_full_with(bytes) => None,
                _ => Claim::if_it_fits(tier, bytes),
            };
            let passes = claim.is_some();
            if let Some(claim) = claim {
                allowance -= (bytes as i64).clamp(WRITE_BYTES, PASSED_BYTES_MAX);
                write.end(Ok(claim));
            }
            !passes
        });
        self.allowance.set(allowance);
    }

    /// Lets those go on that may have what is left to reads, and fit.
    fn admit_reads(&self, tier: &Arc<Tier>) {
        self.writes.borrow_mut().retain(|write| {
            let fits = !write.is_data && !tier.budget.is_full_with(large(write.bytes));
            let claim = fits.then(|| Claim::if_it_fits(tier, write.bytes)).flatten();
            let goes_on = claim.is_some();
            if let Some(claim) = claim {
                write.end(Ok(claim));
            }
            !goes_on
        });
    }

    /// Allows smaller writes half of what was freed for a large one, so that it gets on as well, and some
    /// with each measurement of memory: a little where it is scarce.
    fn allow_smaller(&self, freed_bytes: i64, measures: u32, is_scarce: bool) {
        let is_new = self.allowed_at.replace(measures) != measures;
        let least = if is_scarce { FULL_SLICE_BYTES } else { SLICE_BYTES_MAX };
        let more = freed_bytes / 2 + if is_new { least } else { 0 };
        self.allowance.set((self.allowance.get() + more).min(SLICE_BYTES_MAX));
    }

    /// What the first write is about to take, if that is much.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.writes.borrow().front().map_or(0, |write| large(write.bytes))
    }

    /// Whether the first leaves room to reads.
    fn is_data(&self) -> bool {
        self.writes.borrow().front().is_some_and(|write| write.is_data)
    }

    /// Bytes of keys that are to go for the first write: `missing_bytes` when it became the first, less what has
    /// gone for it since.
    fn owed_bytes(&self, missing_bytes: i64) -> i64 {
        let writes = self.writes.borrow();
        let owed = writes.front().map(|write| {
            let owed = write.owed_bytes.get().unwrap_or(missing_bytes);
            write.owed_bytes.set(Some(owed));
            owed
        });
        owed.unwrap_or(0)
    }

    /// Keys have gone, for the first write if it was owed some.
    fn note_evicted(&self, bytes: i64) {
        if let Some(write) = self.writes.borrow().front()
            && let Some(owed) = write.owed_bytes.get()
        {
            write.owed_bytes.set(Some(owed - bytes));
        }
    }

    /// How many go on when there is memory: a large one, for which it was measured, alone.
    fn admissible(&self) -> usize {
        let writes = self.writes.borrow();
        let is_small = |write: &Rc<WaitingWrite>| large(write.bytes) == 0;
        writes.iter().take_while(|write| is_small(write)).count().max(1)
    }

    /// The same when there is memory for so many bytes: at least one goes on.
    fn fitting(&self, mut bytes: i64) -> usize {
        let writes = self.writes.borrow();
        let fits = |write: &&Rc<WaitingWrite>| {
            bytes -= (write.bytes as i64).max(WRITE_BYTES);
            bytes >= 0
        };
        writes.iter().take_while(fits).count().clamp(1, self.admissible())
    }

    /// Has upkeep run a slice soon.
    pub(crate) fn set_due(&self) {
        self.is_due.set(true);
        if let Some(waker) = self.upkeep.take() {
            waker.wake();
        }
    }
}

impl Future for Place<'_> {
    type Output = Result<Claim, ()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Claim, ()>> {
        match self.write.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.write.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.write.is_answered.get() {
            self.queue.writes.borrow_mut().retain(|write| !Rc::ptr_eq(write, &self.write));
        }
    }
}

impl Tier {
    /// Counts what a client holds that waits for others to let go of theirs: those that wait for memory do not wait for
    /// that client meanwhile.
    pub fn note_waiting(&self, held: Held) -> WaitingHeld<'_> {
        WaitingHeld::new(self, held)
    }

    /// Whether what is free is left to reads, since no value can leave RAM for them. Cost: a load where values can.
    #[inline]
    fn room_is_for_reads(&self) -> bool {
        let left_bytes = self.budget.room_for_reads();
        left_bytes > 0 && self.pressure_beside(left_bytes) == Pressure::Wait
    }
}

impl TierWorker {
    /// Whether a write that the data set grows by has to wait for memory: there is none, or others wait.
    #[inline]
    pub fn must_wait(&self) -> bool {
        self.is_waited() || self.tier.room_is_for_reads()
    }

    /// Whether there is no memory, or others wait.
    #[inline]
    fn is_waited(&self) -> bool {
        self.tier.pressure() == Pressure::Wait || !self.waiting.is_empty()
    }

    /// Whether one has to wait that is about to take `bytes`, which count in the budget already: a large one
    /// waits, too, until as much less than `maxmemory` is resident. Cost: a measurement if it is large.
    pub fn must_wait_for(&self, bytes: u64) -> bool {
        self.is_waited() || self.lacks(large(bytes))
    }

    /// Memory for a request that is about to take `bytes`, which are reserved in the budget already, unless
    /// it has to wait for it in [`TierWorker::wait_for_memory`]. What is left to reads is not waited for behind others.
    pub fn claim(&self, bytes: u64) -> Option<Claim> {
        let waits = match self.tier.budget.room_for_reads() {
            0 => self.is_waited(),
            _ => self.tier.budget.is_full(),
        };
        match large(bytes) {
            _ if waits => None,
            0 => Some(Claim::new(&self.tier, bytes)),
            _ => {
                let claim = Claim::if_it_fits(&self.tier, bytes);
                if claim.is_some() {
                    self.waiting.refused_large.set(None);
                }
                claim
            }
        }
    }

    /// The same for one that the data set grows by, which leaves room to reads.
    pub fn claim_for_data(&self, bytes: u64) -> Option<Claim> {
        if self.must_wait() {
            return None;
        }
        let left_bytes = self.tier.budget.room_for_reads();
        let is_short = left_bytes > 0 && self.tier.budget.is_full_beside(bytes, left_bytes);
        if is_short { None } else { self.claim(bytes) }
    }

    /// Whether `wanted_bytes` more would not fit, with what is resident now.
    fn lacks(&self, wanted_bytes: u64) -> bool {
        if wanted_bytes == 0 {
            return false;
        }
        self.tier.look_for_memory(wanted_bytes);
        self.tier.budget.is_full_with(wanted_bytes)
    }

    /// Waits until there is memory for a write that is about to take `bytes`, behind those that came before
    /// but for larger ones. Its client holds `held` meanwhile.
    ///
    /// Errors: [`TierError::OutOfMemory`] when none can be made. It may take longer than `DRIVE_WAIT_MAX` only
    /// while some is being made.
    pub async fn wait_for_memory(&self, bytes: u64, held: Held) -> Result<Claim, TierError> {
        self.wait(bytes, false, held).await
    }

    /// The same for one that the data set grows by, which leaves room to reads.
    ///
    /// Errors: the same.
    pub async fn wait_for_data(&self, bytes: u64, held: Held) -> Result<Claim, TierError> {
        self.wait(bytes, true, held).await
    }

    async fn wait(&self, bytes: u64, is_data: bool, held: Held) -> Result<Claim, TierError> {
        // What has just been sought in vain is not there until memory is measured again, or less
        // is allocated, and then nobody asks.
        let measured = Some(self.tier.budget.measures());
        let WaitQueue { refused_at, refused_data_at, .. } = &self.waiting;
        if refused_at.get() == measured || is_data && refused_data_at.get() == measured {
            return Err(TierError::OutOfMemory);
        }
        let is_admitted = self.waiting.admitted_at.get() == Some(self.seen(is_data));
        if is_admitted && self.waiting.is_empty() && large(bytes) == 0 {
            return Ok(Claim::new(&self.tier, bytes));
        }
        let place = self.waiting.join(&self.tier, bytes, is_data, held);
        let start = place.write.since;
        self.waiting.set_due();
        let result = place.await;
        let waited_us = (self.tier.clock.now() - start).as_micros() as u64;
        self.tier.counters.pressure_us.fetch_add(waited_us, Ordering::Relaxed);
        self.tier.counters.pressure_waits.fetch_add(1, Ordering::Relaxed);
        result.map_err(|()| TierError::OutOfMemory)
    }

    /// Resolves when [`TierWorker::upkeep`] should run before its time: somebody waits for memory.
    pub async fn upkeep_due(&self) {
        std::future::poll_fn(|cx| {
            if self.waiting.is_due.get() {
                return Poll::Ready(());
            }
            self.waiting.upkeep.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Runs a slice for the writes that wait. True: another should follow at once.
    pub(crate) fn serve_waiting(&self) -> bool {
        self.waiting.is_due.set(false);
        if self.waiting.is_empty() {
            self.waiting.deficit.set(None);
            self.ask_others(0);
            return false;
        }
        // What others free for these writes is not measured else.
        if self.waiting.wanted_bytes() > 0 || self.waiting.asks_others.get() {
            self.tier.look_for_memory(self.waiting.wanted_bytes());
        }
        let figures = self.waiting_figures();
        let (next, freed_bytes) = match figures.pressure() {
            Pressure::Wait => self.free_for_waiting(),
            _ => (figures.judge(&Done::default(), i64::MAX), 0),
        };
        if let Some(bytes) = self.waiting_figures().asks_others(next) {
            self.ask_others(bytes);
        }
        let queue = &self.waiting;
        if next.keeps_waiting() {
            self.let_smaller_pass(freed_bytes);
            if self.tier.budget.room_for_reads() > 0 {
                queue.admit_reads(&self.tier);
            }
        }
        match next {
            Next::AdmitAll => {
                queue.deficit.set(None);
                queue.refused_over.set(None);
                if queue.wanted_bytes() == 0 || !self.tier.has_flash() {
                    queue.admit(queue.admissible(), &self.tier);
                } else if !queue.admit_large(Claim::if_it_fits(&self.tier, queue.wanted_bytes())) {
                    // Another worker's write has claimed the memory that was seen.
                    return true;
                }
            }
            Next::Admit(count) => {
                let over = self.tier.budget.over_limit();
                queue.deficit.set((over > 0).then_some(over));
                queue.admit(queue.fitting(count as i64 * WRITE_BYTES), &self.tier);
            }
            Next::AdmitBeyondLimit => {
                queue.admitted_at.set(Some(self.seen(queue.is_data())));
                // A large one behind these would make `maxmemory` resident: it is looked at by itself.
                queue.admit(queue.admissible(), &self.tier);
            }
            Next::AdmitAlone => {
                let claim = Claim::if_it_goes_alone(&self.tier, queue.wanted_bytes());
                if !queue.admit_large(claim) {
                    // Another worker's has claimed memory meanwhile.
                    return true;
                }
            }
            // For a large one it is looked at before each slice.
            Next::Continue | Next::Evict(_) if queue.wanted_bytes() == 0 => {
                self.tier.look_for_memory(0);
            }
            Next::Continue | Next::Evict(_) => {}
            Next::AwaitDevice => {
                self.submit();
                return self.in_flight() == 0;
            }
            Next::AwaitMeasure | Next::AwaitOthers => return false,
            Next::Refuse => self.refuse_waiting(),
        }
        !queue.is_empty()
    }

    /// Lets smaller writes pass a large one, unless they would have to wait without it as well, or it has
    /// waited for as long as it may. What it has reserved is not resident, so that is not in their way.
    fn let_smaller_pass(&self, freed_bytes: i64) {
        let queue = &self.waiting;
        if queue.wanted_bytes() == 0 || self.waiting_for(DRIVE_WAIT_MAX) > 0 {
            return;
        }
        let budget = &self.tier.budget;
        // Without flash keys are evicted, and nobody waits for a lowered `maxmemory` to be kept.
        let gets_on = !self.tier.has_flash() && freed_bytes > 0;
        let is_scarce = budget.is_nearly_full()
            && (self.tier.has_flash() || budget.over_limit() > 0 || budget.is_overrun());
        if !is_scarce || gets_on || self.tier.pressure() != Pressure::Wait {
            queue.allow_smaller(freed_bytes, budget.measures(), is_scarce);
            queue.admit_smaller(&self.tier);
        }
    }

    /// Has the other workers demote so many bytes for the writes that wait here, or no longer any. Where
    /// several ask, what is demoted for one serves all: the most counts.
    fn ask_others(&self, bytes: i64) {
        let Tier { asking_workers, asked_bytes, .. } = &*self.tier;
        let asks = bytes > 0;
        match (self.waiting.asks_others.replace(asks), asks) {
            (false, true) => drop(asking_workers.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(asking_workers.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        if asks && asking_workers.load(Ordering::Relaxed) == 1 {
            asked_bytes.store(bytes, Ordering::Relaxed);
        } else if asks {
            asked_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Refuses the writes that have waited for as long as they may, or all when none has: then it is
    /// not for the time that nothing can be done for them.
    fn refuse_waiting(&self) {
        let overdue = self.waiting_for(WAIT_MAX);
        if overdue > 0 {
            if self.waiting.wanted_bytes() > 0 {
                let until = self.tier.clock.now() + WAIT_MAX;
                let missing_bytes = self.missing_beside_claims(&self.waiting_figures());
                self.waiting.refused_large.set(Some((missing_bytes, until)));
            }
            return self.waiting.refuse(overdue);
        }
        let of_data = self.left_bytes() > 0;
        if self.waiting.refuse_largest(of_data) {
            // What it had reserved is free soon, and may be enough for the others.
            return;
        }
        if of_data {
            self.waiting.refused_data_at.set(Some(self.tier.budget.measures()));
            self.tier.budget.note_refusal();
            return self.waiting.refuse_data();
        }
        self.waiting.refused_at.set(Some(self.tier.budget.measures()));
        self.waiting.refused_over.set(Some(self.tier.budget.over_limit()));
        self.tier.budget.note_refusal();
        self.waiting.refuse(usize::MAX);
    }

    /// The writes, the first of the queue, that have waited for so long.
    fn waiting_for(&self, time: Duration) -> usize {
        let now = self.tier.clock.now();
        let writes = self.waiting.writes.borrow();
        writes.iter().take_while(|write| now - write.since >= time).count()
    }

    /// Whether as much is over the limit as when writes were last refused.
    fn is_as_at_refusal(&self) -> bool {
        let over = self.tier.budget.over_limit();
        self.waiting.refused_over.get().is_some_and(|refused_over| over >= refused_over)
    }

    /// Whether as much is missing for a large write as when one was last refused that had waited long: a
    /// crowd of them waits together, not one after another.
    fn is_as_at_large_refusal(&self, figures: &Figures) -> bool {
        self.waiting.refused_large.get().is_some_and(|(missing_bytes, until)| {
            figures.is_large
                && self.missing_beside_claims(figures) >= missing_bytes
                && self.tier.clock.now() < until
        })
    }

    fn missing_beside_claims(&self, figures: &Figures) -> i64 {
        figures.missing_bytes + self.tier.budget.claimed_bytes()
    }

    /// What is known of resident memory: it decides whether what was found still holds for one that the data set grows by,
    /// or another.
    fn seen(&self, is_data: bool) -> (u32, Resident) {
        let budget = &self.tier.budget;
        let left_bytes = if is_data { budget.room_for_reads() } else { 0 };
        (budget.measures(), budget.resident(0, left_bytes))
    }

    /// What the first write leaves to reads.
    fn left_bytes(&self) -> i64 {
        if self.waiting.is_data() { self.tier.budget.room_for_reads() } else { 0 }
    }

    fn waiting_figures(&self) -> Figures {
        let mut figures = self.figures_beside(self.waiting.wanted_bytes(), self.left_bytes());
        // What the data set takes of the margin would be gone for good.
        figures.bears_alone &= !self.waiting.is_data();
        if figures.waits_for_pages() {
            // What keys that went for others have left is free, though their pages are resident still.
            figures.owed_bytes =
                self.waiting.owed_bytes(figures.missing_bytes + figures.over_limit);
        }
        figures
    }

    /// One slice: defragments, demotes, collects and evicts as the controller says. Returns what it freed
    /// as well, in bytes.
    fn free_for_waiting(&self) -> (Next, i64) {
        let packed = self.defrag();
        let slice = self.waiting_figures().slice_for_waiting(
            self.waiting.len(),
            packed.moved,
            packed.asked,
        );
        let mut done = self.run_slice(slice, self.waiting.wanted_bytes());
        done.moved = packed.moved;
        self.waiting.note_evicted(done.evicted.map_or(0, |evicted| evicted.sum()));
        let figures = self.waiting_figures();
        // A slice that met no value says nothing of what those before were in need of.
        let awaits_checkpoint = match done.stopped {
            None => self.tier.is_checkpoint_waited_for(),
            Some(_) => done.awaits_checkpoint,
        };
        let awaits_drive = done.stopped == Some(StopReason::Busy)
            || awaits_checkpoint
            || self.tier.writing_workers.load(Ordering::Relaxed) > 0;
        let wait_max = if awaits_drive { DRIVE_WAIT_MAX } else { WAIT_MAX };
        done.is_overdue = self.waiting_for(wait_max) > 0 || self.is_as_at_large_refusal(&figures);
        done.is_late = self.waiting_for(DEFRAG_WAIT_MAX) > 0 || self.is_as_at_refusal();
        let deficit = self.waiting.deficit.get().unwrap_or(i64::MAX);
        let mut next = figures.judge(&done, deficit);
        if let Next::Evict(bytes) = next {
            done.evicted = Some(self.evict(bytes));
            next = self.waiting_figures().judge(&done, deficit);
        }
        (next, done.demoted_bytes + done.evicted.map_or(0, |evicted| evicted.freed_bytes))
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
