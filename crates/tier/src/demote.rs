//! Demotion: values that were not used for a while leave RAM.
//!
//! A CLOCK whose hand passes over the slots. An entry's frequency (0 to 3) is raised by use and
//! lowered by the hand; a value met at 0 goes. Since keys stay in RAM, the frequency of a cold key
//! is its history: what other caches keep a ghost list for. Each worker's hand covers its own
//! share of the slots.
//!
//! While the data set grows the hand takes values from one region of addresses after another
//! (`regions.rs`): a round over the slots empties one, so whole pages come free, and the allocator,
//! which fills its oldest pages first, finds no new holes elsewhere.
//!
//! Cold writes do not wait for the hand. A value that was written to a cold key which nobody had
//! used lately is treated as one that was read: unless a first use is enough
//! (`Tier::promotes_at_once`) it goes to flash at the end of its batch, while it is in the CPU's
//! cache. A second use within a turn of the hand finds the frequency raised, and the value stays. So
//! a stream of writes over cold data neither washes out what is hot nor pays for the hand (S3-FIFO's
//! small queue, Yang et al. 2023, with the write buffer for the queue). New values have a queue of their own
//! (`probation.rs`).

use std::sync::atomic::Ordering;

use flash::{AppendError, EngineWorker, Lane, OwnedRecord, Record, RecordMeta, record_size};
use keyspace::{
    Copying, EntryPosition, FlashRef, Hint, Judge, Key, PassLimit, Region, SLOT_COUNT, SlotGuard,
    Stored, Tally, Verdict, View,
};

use crate::compress::Compressor;
use crate::counters::Counters;
use crate::hand::{IdleRounds, PASSES_MAX};
use crate::limits::{SLICE_BYTES_MAX, SLICE_PLACES_MAX, SLICE_SLOTS_MAX};
use crate::tier::Tier;
use crate::wait::yield_once;
use crate::worker::TierWorker;

/// Values that expire within this time stay, as long as others can be demoted that were not just used:
/// they free their RAM without a write.
const EXPIRES_SOON_MS: u64 = 5_000;
/// Values that expire within this time share segments, which then die together. New ones are left to the hand: before it
/// comes many of them are gone, without a write.
const SHORT_LIVED_MS: u64 = 10 * 60_000;
/// How the value of a key was written, which may leave RAM ahead of the hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// To a cold key that nobody had used lately. The write counts as a use of it.
    Cold,
    /// To a key that did not exist. It counts as no use.
    New,
}

/// Turns of the device without progress after which demoting everything gives up.
const IDLE_TURNS_MAX: usize = 10_000;

/// Why demotion stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Every write buffer is on its way to the device.
    Busy,
    /// Flash has no free segment.
    Full,
    /// Every value that may go is gone.
    Spent,
    /// The device takes no writes, or there is none.
    Failed,
}

/// What a slice of demotion did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demoted {
    /// RAM given back, as allocated.
    pub freed_bytes: i64,
    /// Values that left RAM.
    pub values: u64,
    /// Values that got a copy on flash and stayed in RAM.
    pub(crate) copied: u64,
    /// Bytes of them that had to be written.
    pub written_bytes: u64,
    /// Places of tables that the hand passed.
    passed: u64,
    /// Why it stopped before it had freed what was wanted.
    pub stopped: Option<StopReason>,
}

impl Demoted {
    /// Adds what another slice did behind it, and why that stopped.
    pub(crate) fn add_last(&mut self, other: Demoted) {
        self.add(other);
        self.stopped = other.stopped;
    }

    /// Adds what another slice did, but not why it stopped.
    fn add(&mut self, other: Demoted) {
        self.freed_bytes += other.freed_bytes;
        self.values += other.values;
        self.copied += other.copied;
        self.written_bytes += other.written_bytes;
        self.passed += other.passed;
    }
}

impl TierWorker {
    /// Frees about `wanted` bytes, passing at most `slots_max` slots.
    pub(crate) fn demote(&self, wanted: i64, slots_max: usize) -> Demoted {
        let mut total = Demoted::default();
        if !self.tier.has_flash() {
            total.stopped = Some(StopReason::Failed);
            return total;
        }
        let regions = match self.waiting.wanted_bytes() {
            0 => self.tier.regions.count(),
            _ => self.tier.regions.of_pages(),
        };
        total.add_last(self.demote_over_share(wanted));
        if total.values > 0 {
            self.idle_slots.set(0);
            self.rounds().reset();
        }
        for _ in 0..slots_max {
            let is_done = total.freed_bytes >= wanted || total.passed >= SLICE_PLACES_MAX;
            if is_done || total.stopped.is_some() {
                break;
            }
            if self.idle_slots.get() > PASSES_MAX * self.hand.slots() {
                // Look again, for one round, after memory was measured anew.
                if self.spent_at.replace(self.tier.budget.measures()) != self.tier.budget.measures()
                {
                    self.idle_slots.set((PASSES_MAX - 1) * self.hand.slots());
                }
                self.expiring_slots.set(0);
                total.stopped = Some(StopReason::Spent);
                break;
            }
            // What is not found in one region is looked for in all.
            let of = if self.idle_slots.get() < SLICE_SLOTS_MAX { regions } else { 1 };
            let limit = PassLimit {
                bytes_max: wanted - total.freed_bytes,
                places_max: SLICE_PLACES_MAX - total.passed,
            };
            let part = self.demote_slot(self.hand.region(of), limit);
            if part.values > 0 {
                self.idle_slots.set(0);
                self.rounds().reset();
            }
            if self.hand_at.get() == EntryPosition::default() {
                let idle = if part.values > 0 { 0 } else { self.idle_slots.get() + 1 };
                self.idle_slots.set(idle);
                self.pass_expiring(idle);
                if self.hand.advance() {
                    let grown_bytes = self.tier.budget.grown_bytes();
                    self.rounds().end_round(grown_bytes, idle >= self.hand.slots());
                }
            }
            total.add(part);
            total.stopped = part.stopped;
        }
        self.want_submit();
        if regions > 1
            && let Some(heap) = &self.tier.heap
        {
            // Else what comes next would take the places that this thread has just freed, one by
            // one, and no page would come free.
            heap.flush_thread();
        }
        total
    }

    /// When the hand has found nothing in all rounds but one, which lower the frequency of every value,
    /// values that expire soon go until it has passed all slots once more.
    fn pass_expiring(&self, idle_slots: usize) {
        let slots = self.hand.slots();
        let left = self.expiring_slots.get().saturating_sub(1);
        self.expiring_slots.set(if idle_slots >= (PASSES_MAX - 1) * slots { slots } else { left });
    }

    /// What this worker's hand has found lately.
    fn rounds(&self) -> &IdleRounds {
        &self.tier.rounds[self.index]
    }

    /// Demotes the values that were written to these keys last, in this order, but those that were used since.
    pub(crate) fn demote_unused(&self, keys: &[Hint], written: Written) -> Demoted {
        let (frequency_max, keeps_expiring_ms) = match written {
            Written::Cold => (1, EXPIRES_SOON_MS),
            Written::New => (0, SHORT_LIVED_MS),
        };
        self.with_demoter(|demoter, tally| {
            demoter.keeps_expiring_ms = keeps_expiring_ms;
            for &key in keys {
                let Some(mut state) = self.tier.keyspace.try_lock(key.slot) else { continue };
                demoter.slot = key.slot;
                if !state.demote_unused(key, frequency_max, tally, demoter) {
                    break;
                }
            }
        })
    }

    /// Passes the hand over its slot, or what is left of it.
    fn demote_slot(&self, region: Region, limit: PassLimit) -> Demoted {
        let slot = self.hand.slot();
        // Where another worker holds it, its turn comes in the next round; in the middle of it, soon.
        let Some(state) = self.tier.keyspace.try_lock(slot) else { return Demoted::default() };
        let mut at = self.hand_at.get();
        let part = self.demote_locked((slot, &mut at), region, limit, state);
        self.hand_at.set(at);
        part
    }

    fn demote_locked(
        &self,
        (slot, at): (u16, &mut EntryPosition),
        region: Region,
        limit: PassLimit,
        mut state: SlotGuard<'_>,
    ) -> Demoted {
        let mut passed = 0;
        let mut demoted = self.with_demoter(|demoter, tally| {
            demoter.slot = slot;
            passed = state.pass_hand(at, limit, region, tally, demoter).passed;
            drop(state);
        });
        demoted.passed = passed;
        demoted
    }

    /// Lets `run` write values to flash, and counts what came of it.
    pub(crate) fn with_demoter(&self, run: impl FnOnce(&mut Demoter<'_>, &mut Tally)) -> Demoted {
        let mut side = self.engine.borrow_mut();
        let Some(engine) = &mut *side else { return Demoted::default() };
        let mut tally = Tally::default();
        let unwritten_bytes = engine.unwritten_bytes();
        let mut compressor = self.compressor.borrow_mut();
        let mut demoter = Demoter {
            tier: &self.tier,
            engine: &mut **engine,
            compressor: &mut compressor,
            compress_bytes_min: self.tier.settings.compress_bytes_min(),
            value_bytes_min: self.tier.settings.value_bytes_min(),
            large_value_bytes: self.tier.large_value_bytes,
            now_ms: self.tier.clock.unix_ms(),
            keeps_expiring_ms: if self.expiring_slots.get() == 0 { EXPIRES_SOON_MS } else { 0 },
            slot: 0,
            clean: 0,
            dirty: 0,
            copied: 0,
            written_bytes: 0,
            compressed_away: 0,
            stopped: None,
        };
        run(&mut demoter, &mut tally);
        let demoted = Demoted {
            freed_bytes: -tally.ram_bytes(),
            values: demoter.clean + demoter.dirty,
            copied: demoter.copied,
            written_bytes: demoter.written_bytes,
            passed: 0,
            stopped: demoter.stopped,
        };
        if demoted.values + demoted.copied > 0 {
            demoter.count(&self.tier.counters);
        }
        self.count_unwritten(&**engine, unwritten_bytes);
        self.tier.add_tally(&mut tally);
        demoted
    }

    /// Demotes every value that can be, in this worker's share of the slots or not, and starts to
    /// write all of it: for tests and measurements. Takes as long as the drive needs. After every
    /// slot it awaits `others`, which gives other tasks their turn; what they bring to RAM behind
    /// the hand stays there.
    pub async fn demote_all(&self, others: impl AsyncFn()) -> Demoted {
        let mut total = Demoted::default();
        if !self.tier.has_flash() {
            total.stopped = Some(StopReason::Failed);
            return total;
        }
        for slot in 0..SLOT_COUNT as u16 {
            self.demote_whole_slot(slot, &mut total).await;
            if total.stopped.is_some() {
                break;
            }
            self.want_submit();
            others().await;
        }
        self.flush();
        total
    }

    async fn demote_whole_slot(&self, slot: u16, total: &mut Demoted) {
        let (mut passes, mut idle_turns) = (0, 0);
        let limit = PassLimit { bytes_max: SLICE_BYTES_MAX, places_max: SLICE_PLACES_MAX };
        let mut at = EntryPosition::default();
        while passes < PASSES_MAX {
            let state = self.tier.keyspace.lock(slot);
            let part = self.demote_locked((slot, &mut at), Region::ALL, limit, state);
            total.add(part);
            idle_turns = if part.values > 0 { 0 } else { idle_turns + 1 };
            match part.stopped {
                None if at != EntryPosition::default() => yield_once().await,
                None => passes += 1,
                Some(StopReason::Failed | StopReason::Spent) => {
                    return total.stopped = part.stopped;
                }
                Some(_) if idle_turns > IDLE_TURNS_MAX => return total.stopped = part.stopped,
                Some(StopReason::Busy) => self.device_turn().await,
                Some(StopReason::Full) if self.gc() => self.device_turn().await,
                Some(StopReason::Full) => return total.stopped = part.stopped,
            }
        }
    }

    /// Demotes every value of some slots that can be, used or soon expired or not, so that tests meet cold
    /// values. Takes as long as the drive needs.
    pub async fn demote_slots(&self, slots: impl Iterator<Item = u16>) -> Demoted {
        let mut total = Demoted::default();
        if self.tier.drains() {
            return total;
        }
        for slot in slots {
            let mut idle_turns = 0;
            loop {
                let part = self.with_demoter(|demoter, tally| {
                    (demoter.slot, demoter.keeps_expiring_ms, demoter.value_bytes_min) =
                        (slot, 0, 0);
                    self.tier.keyspace.lock(slot).demote_each(tally, demoter);
                });
                total.add(part);
                total.stopped = part.stopped;
                idle_turns = if part.values > 0 { 0 } else { idle_turns + 1 };
                match part.stopped {
                    None => break,
                    Some(_) if idle_turns > IDLE_TURNS_MAX => return total,
                    Some(StopReason::Busy) => self.device_turn().await,
                    Some(StopReason::Full) if self.gc() => self.device_turn().await,
                    Some(_) => return total,
                }
            }
        }
        self.want_submit();
        total
    }

    /// Demotes one key. False: it does not exist, is cold already, or is too short to gain by it.
    ///
    /// Errors: the engine takes no more for now.
    pub fn demote_key(&self, db: u8, key: &Key<'_>, now_ms: u64) -> Result<bool, StopReason> {
        self.demote_in_table(self.tier.keyspace.table_of(db), key, now_ms)
    }

    /// The same for a key, or a leaf, of a physical table.
    ///
    /// Errors: the engine takes no more for now.
    pub fn demote_in_table(
        &self,
        table: u8,
        key: &Key<'_>,
        now_ms: u64,
    ) -> Result<bool, StopReason> {
        if !self.tier.has_flash() {
            return Err(StopReason::Failed);
        }
        let mut verdict = Verdict::Keep;
        let demoted = self.with_demoter(|demoter, tally| {
            demoter.slot = key.slot;
            demoter.keeps_expiring_ms = 0;
            let mut state = self.tier.keyspace.lock(key.slot);
            tally.noting = self.tier.noting();
            let mut db = keyspace::Db::new(&mut state, table, now_ms, tally);
            verdict = db.demote_by(key, demoter).unwrap_or(Verdict::Keep);
            self.tier.tell(tally);
        });
        self.want_submit();
        match verdict {
            Verdict::Demote(_) => Ok(true),
            Verdict::Keep | Verdict::HandOver => Ok(false),
            Verdict::Stop => Err(demoted.stopped.unwrap_or(StopReason::Failed)),
        }
    }
}

/// Writes values to flash as the hand meets them.
pub(crate) struct Demoter<'a> {
    tier: &'a Tier,
    engine: &'a mut dyn EngineWorker,
    compressor: &'a mut Compressor,
    compress_bytes_min: u32,
    value_bytes_min: usize,
    large_value_bytes: usize,
    now_ms: u64,
    /// Values that expire within this time stay; 0: none do.
    keeps_expiring_ms: u64,
    slot: u16,
    clean: u64,
    dirty: u64,
    copied: u64,
    written_bytes: u64,
    compressed_away: u64,
    stopped: Option<StopReason>,
}

impl Judge for Demoter<'_> {
    fn judge(&mut self, view: View<'_>, table: u8) -> Verdict {
        if !self.tier.has_flash() {
            return self.stop(StopReason::Failed);
        }
        if view.value_len() < self.value_bytes_min {
            return Verdict::Keep;
        }
        if self.keeps_expiring_ms > 0 && self.expires_within(&view, self.keeps_expiring_ms) {
            return Verdict::Keep;
        }
        match view.stored {
            Stored::Clean(_, at) => {
                self.clean += 1;
                Verdict::Demote(at)
            }
            Stored::Hot(value) if value.len() > self.large_value_bytes => Verdict::HandOver,
            Stored::Hot(value) => match self.write(&view, table, value) {
                Ok(at) => {
                    self.dirty += 1;
                    Verdict::Demote(at)
                }
                Err(verdict) => verdict,
            },
            Stored::Cold(..) => Verdict::Keep,
        }
    }

    fn take_over(
        &mut self,
        view: View<'_>,
        table: u8,
        value: Box<[u8]>,
    ) -> Result<FlashRef, (Box<[u8]>, Verdict)> {
        let stored_len = value.len() as u32;
        let lane = self.lane(&view);
        let (slot, kind, expire_at_ms) = (self.slot, view.kind, view.expire_at_ms as i64);
        let meta = RecordMeta { slot, db: table, kind, compressed: false, expire_at_ms };
        let record = OwnedRecord { meta, key: view.key.to_vec(), payload: value.into_vec() };
        match self.engine.append_owned(lane, record) {
            Ok(at) => {
                self.dirty += 1;
                self.written_bytes += record_size(view.key.len(), stored_len as usize) as u64;
                Ok(FlashRef { units: at.units(), stored_len, compressed: false })
            }
            Err((error, record)) => Err((record.payload.into(), self.refused(error))),
        }
    }
}

impl Demoter<'_> {
    fn lane(&self, view: &View<'_>) -> Lane {
        if self.expires_within(view, SHORT_LIVED_MS) { Lane::ShortLived } else { Lane::Demote }
    }

    fn expires_within(&self, view: &View<'_>, ms: u64) -> bool {
        view.expire_at_ms != 0 && view.expire_at_ms <= self.now_ms + ms
    }

    /// Errors: what is to be done with the value then.
    fn write(&mut self, view: &View<'_>, table: u8, value: &[u8]) -> Result<FlashRef, Verdict> {
        let lane = self.lane(view);
        let (slot, kind, expire_at_ms) = (self.slot, view.kind, view.expire_at_ms as i64);
        let packed = self.compressor.compress(value, self.compress_bytes_min);
        let payload = packed.unwrap_or(value);
        let compressed = packed.is_some();
        let meta = RecordMeta { slot, db: table, kind, compressed, expire_at_ms };
        match self.engine.append(lane, &Record { meta, key: view.key, payload }) {
            Ok(at) => {
                self.written_bytes += record_size(view.key.len(), payload.len()) as u64;
                self.compressed_away += (value.len() - payload.len()) as u64;
                let stored_len = payload.len() as u32;
                Ok(FlashRef { units: at.units(), stored_len, compressed })
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Writes a copy of a value that stays in RAM. Those that soon expire, or would be handed over, are left.
    pub(crate) fn copy(&mut self, slot: u16, view: &View<'_>, table: u8) -> Copying {
        let Stored::Hot(value) = view.stored else { return Copying::Leave };
        if !self.tier.has_flash() || self.tier.drains() {
            self.stopped = Some(StopReason::Failed);
            return Copying::Stop;
        }
        let is_left = value.len() > self.large_value_bytes
            || value.len() < self.value_bytes_min
            || self.expires_within(view, SHORT_LIVED_MS);
        if is_left {
            return Copying::Leave;
        }
        self.slot = slot;
        match self.write(view, table, value) {
            Ok(at) => {
                self.copied += 1;
                Copying::Copied(at)
            }
            Err(Verdict::Stop) => Copying::Stop,
            Err(_) => Copying::Leave,
        }
    }

    fn refused(&mut self, error: AppendError) -> Verdict {
        match error {
            AppendError::TooLarge => Verdict::Keep,
            AppendError::Busy => self.stop(StopReason::Busy),
            AppendError::Full => self.stop(StopReason::Full),
            _ => self.stop(StopReason::Failed),
        }
    }

    fn count(&self, counters: &Counters) {
        counters.demoted_clean.fetch_add(self.clean, Ordering::Relaxed);
        counters.demoted_dirty.fetch_add(self.dirty, Ordering::Relaxed);
        counters.copied.fetch_add(self.copied, Ordering::Relaxed);
        counters.compressed_away_bytes.fetch_add(self.compressed_away, Ordering::Relaxed);
    }

    fn stop(&mut self, reason: StopReason) -> Verdict {
        self.stopped = Some(reason);
        Verdict::Stop
    }
}
