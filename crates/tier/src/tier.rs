//! What all workers share: keyspace, engine, budget, counters, settings.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use flash::{EXPECTED_MAX, Engine, FreeSpace, Location, RecordId, RecordMeta, record_size};
use keyspace::{
    DeadCopy, DetachedTree, FlashRef, Heap, Hint, Key, Keyspace, Noting, TABLE_COUNT, Tally,
};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::budget::Budget;
use crate::checkpoints::NextCheckpoint;
use crate::controller::{Figures, Resident, has_little_garbage};
use crate::counters::Counters;
use crate::environment::{Clock, Environment, Listener};
use crate::fetch::Want;
use crate::flash_switch::FlashSwitch;
use crate::hand::IdleRounds;
use crate::policy::{Promotion, Settings};
use crate::regions::Regions;
use crate::upkeep::READ_AHEAD_BYTES_MIN;
use crate::wait::HeldByWaiting;

/// See [`Tier::has_free_memory`].
const FREE_MEMORY_SHIFT: u32 = 4;
/// What clients hold that do not wait is worth waiting for beyond this part of the limit: a 64th.
const BUFFERS_SHIFT: u32 = 6;
/// Keys fill RAM when they take all but this part, an eighth, of what they share with values and clients.
const KEYS_FILL_SHIFT: u32 = 3;
/// Flash is short of free segments when less than this part of `maxmemory` is free, a quarter.
const SHORT_SHIFT: u32 = 2;
/// Values in RAM that take less than this part of the data are few: an eighth.
const FEW_VALUES_SHIFT: u32 = 3;

/// How urgently memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// There is memory.
    None,
    /// Demotion should run, nobody need wait.
    Demote,
    /// Writers must wait until there is some.
    Wait,
}

/// Why a write cannot have memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// Neither RAM nor flash has room, and the policy lets nothing go.
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
}

/// The shared side of the tier.
pub struct Tier {
    /// The data set.
    pub keyspace: Arc<Keyspace>,
    /// The store on flash; none: all values stay in RAM.
    pub(crate) flash: FlashSwitch,
    /// The allocator, where it can tell how full its pages are.
    pub heap: Option<Box<dyn Heap>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    /// Longer values are large ([`Environment::large_value_bytes`]).
    pub large_value_bytes: usize,
    /// The memory budget.
    pub budget: Budget,
    /// Counters.
    pub counters: Counters,
    /// Settings that can change while running.
    pub settings: Settings,
    pub(crate) regions: Regions,
    /// What the hand of each worker has found lately.
    pub(crate) rounds: Box<[IdleRounds]>,
    /// Workers whose writes wait for memory that only the hands of others may be able to free.
    pub(crate) asking_workers: AtomicUsize,
    /// What the others are to demote for these, in bytes, as one of them has said last or, of several, the
    /// most; at most 0 when that is done.
    pub(crate) asked_bytes: AtomicI64,
    /// Workers that are writing large values, which are in RAM until they are on flash.
    pub(crate) writing_workers: AtomicUsize,
    /// Whether room on flash comes with the next checkpoint.
    pub(crate) next_checkpoint: NextCheckpoint,
    /// What clients whose requests wait for memory, on all workers, hold of client memory.
    pub(crate) held_by_waiting: HeldByWaiting,
    /// Large collections whose nodes are to be freed.
    detached_trees: Mutex<Vec<DetachedTree>>,
    /// Bytes of their leaves, of one that is being freed, too.
    detached_bytes: AtomicI64,
    /// Who hears of keys that expire and are evicted.
    listener: OnceLock<Box<dyn Listener>>,
    /// Worker threads: each passes its hand over its share of the slots.
    pub workers: usize,
}

/// What was flushed is being freed until this is dropped: no write is refused meanwhile.
pub struct Freeing(Arc<Tier>);

impl Freeing {
    /// From now on.
    pub fn new(tier: &Arc<Tier>) -> Freeing {
        tier.budget.add_freeing(1);
        Freeing(tier.clone())
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.0.budget.add_freeing(-1);
    }
}

impl Tier {
    /// Joins a keyspace to an engine.
    pub fn new(
        keyspace: Arc<Keyspace>,
        engine: Option<Arc<dyn Engine>>,
        environment: Environment,
        budget: Budget,
        workers: usize,
    ) -> Tier {
        assert!(workers > 0);
        if engine.is_some() {
            budget.set_demotes(true);
        }
        Tier {
            keyspace,
            flash: FlashSwitch::new(engine, workers),
            heap: environment.heap,
            clock: environment.clock,
            seed: environment.seed,
            large_value_bytes: environment.large_value_bytes,
            budget,
            counters: Counters::default(),
            settings: Settings::default(),
            regions: Regions::default(),
            rounds: (0..workers).map(|_| IdleRounds::default()).collect(),
            asking_workers: AtomicUsize::new(0),
            asked_bytes: AtomicI64::new(0),
            writing_workers: AtomicUsize::new(0),
            next_checkpoint: NextCheckpoint::default(),
            held_by_waiting: HeldByWaiting::default(),
            detached_trees: Mutex::default(),
            detached_bytes: AtomicI64::new(0),
            listener: OnceLock::new(),
            workers,
        }
    }

    /// What time it is.
    #[inline]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Adds what a batch changed to counters and memory, and releases the flash copies that died. The
    /// tally is empty afterwards. Cost: a few atomic additions; nothing for a batch that changed nothing.
    #[inline]
    pub fn add_tally(&self, tally: &mut Tally) {
        self.budget.add_data(tally.ram_bytes());
        self.counters.add(tally);
        if !tally.dead.is_empty() {
            self.release(&mut tally.dead);
        }
        if !tally.trees.is_empty() {
            self.detached_bytes.fetch_add(tally.detached_bytes(), Ordering::Relaxed);
            self.detached_trees.lock().append(&mut tally.trees);
        }
        // Of what a look at a key has found expired, with its slot let go since.
        self.tell(tally);
    }

    /// Has somebody hear of keys that expire and are evicted. Called once.
    pub fn set_listener(&self, listener: Box<dyn Listener>) {
        let is_first = self.listener.set(listener).is_ok();
        assert!(is_first, "a tier has one listener");
    }

    /// What is to be noted of keys whose slots are held.
    pub fn noting(&self) -> Noting {
        self.listener.get().map(|listener| listener.noting()).unwrap_or_default()
    }

    /// An empty tally for a change of keys that no client asks for, with their slots held.
    pub fn tally(&self) -> Tally {
        Tally { noting: self.noting(), ..Tally::default() }
    }

    /// Tells what has become of keys, whose slots are held.
    #[inline]
    pub fn tell(&self, tally: &mut Tally) {
        if !tally.notes.is_empty() {
            self.tell_notes(tally);
        }
    }

    #[cold]
    fn tell_notes(&self, tally: &mut Tally) {
        if let Some(listener) = self.listener.get() {
            listener.hear(&mut tally.notes);
        }
        tally.notes.clear();
    }

    /// Measures resident memory, beside upkeep. Cost: about 3 us.
    pub fn measure_resident(&self) {
        self.budget.measure_resident();
    }

    /// Whether something that has no key any more is still being freed: what was flushed, or large collections.
    pub fn is_freeing(&self) -> bool {
        self.budget.is_freeing() || self.detached_bytes.load(Ordering::Relaxed) > 0
    }

    /// A large collection whose nodes are to be freed; [`Tier::note_freed_tree`] says when they are.
    pub fn take_detached_tree(&self) -> Option<DetachedTree> {
        self.detached_trees.lock().pop()
    }

    /// All nodes of a large collection have been freed.
    pub fn note_freed_tree(&self, tree: &DetachedTree) {
        self.detached_bytes.fetch_sub(tree.leaf_bytes() as i64, Ordering::Relaxed);
    }

    /// Bytes of large collections that have gone and whose nodes are still to be freed, on flash or in RAM.
    pub(crate) fn detached_bytes(&self) -> i64 {
        self.detached_bytes.load(Ordering::Relaxed)
    }

    fn release(&self, dead: &mut Vec<DeadCopy>) {
        let engine = self.flash.engine();
        let engine = engine.as_ref().expect("invariant: without flash there are no copies");
        for copy in dead.drain(..) {
            let size = record_size(copy.key_len as usize, copy.at.stored_len as usize);
            engine.release(Location::from_units(copy.at.units), size);
        }
        // One large deletion must not keep its list's memory for ever.
        dead.shrink_to(1024);
    }

    /// Which record lies at the place of a key's value. The key's slot is locked.
    #[inline]
    pub fn record_id(&self, at: FlashRef) -> RecordId {
        let engine = self.flash.engine();
        let engine = engine.as_ref().expect("invariant: without flash there are no copies");
        engine.identify(Location::from_units(at.units))
    }

    /// What to fetch for a key whose value is on flash alone. The key's slot is locked.
    #[inline]
    pub fn want(&self, key: &Key<'_>, at: FlashRef, value_len: u32) -> Want {
        self.want_at(at, key.bytes.len() as u32, value_len)
    }

    /// The same by the length of the key.
    pub fn want_at(&self, at: FlashRef, key_len: u32, value_len: u32) -> Want {
        Want { at, record: self.record_id(at), key_len, value_len }
    }

    /// How urgently memory is needed. With flash a write waits, too, while `maxmemory` is resident:
    /// the limit is an estimate of what comes to that. Cost: a few relaxed loads.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        self.pressure_beside(0)
    }

    /// The same for what is to leave `left_bytes` to reads.
    #[inline]
    pub(crate) fn pressure_beside(&self, left_bytes: i64) -> Pressure {
        let is_overrun_by_keys = || self.budget.is_overrun() && self.may_empty_pages();
        if self.has_flash() && self.budget.is_full_beside(0, left_bytes) || is_overrun_by_keys() {
            Pressure::Wait
        } else if self.budget.over_watermark() <= 0 {
            Pressure::None
        } else if self.budget.over_limit() + left_bytes <= 0 {
            Pressure::Demote
        } else {
            Pressure::Wait
        }
    }

    /// Whether pages that evicted keys have left can be emptied, without flash.
    fn may_empty_pages(&self) -> bool {
        !self.has_flash()
            && self.heap.is_some()
            && self.settings.defrags()
            && self.evictable(self.settings.policy()).is_some()
    }

    /// What is to be demoted, in bytes, for writes that wait on other workers; 0 when none do.
    #[inline]
    pub(crate) fn asked_bytes(&self) -> i64 {
        match self.asking_workers.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.asked_bytes.load(Ordering::Relaxed).max(0),
        }
    }

    /// Whether a value may be promoted, when the batch under way has grown the data by `grown_bytes`.
    #[inline]
    pub fn may_promote(&self, grown_bytes: i64) -> bool {
        let left_bytes = self.budget.room_for_reads();
        self.pressure_beside(left_bytes) != Pressure::Wait
            && self.budget.over_limit() + left_bytes + grown_bytes <= 0
    }

    /// Whether the value of a cold key comes to RAM at its first use, be it read or written: by the
    /// setting, or because memory is free.
    #[inline]
    pub fn promotes_at_once(&self) -> bool {
        self.settings.promotion() == Promotion::Access || self.has_free_memory()
    }

    /// Whether values may come to RAM without any being demoted for it soon: a sixteenth of the
    /// limit is free above where demotion begins.
    pub(crate) fn has_free_memory(&self) -> bool {
        self.budget.over_watermark() < -(self.budget.limit_bytes() >> FREE_MEMORY_SHIFT)
    }

    /// What the controller of memory wants to know for worker `index`, when `wanted_bytes` that are
    /// reserved are not resident yet, and `left_bytes` are left to reads. Whether there are sparse pages is the worker's to
    /// say.
    pub(crate) fn figures(&self, index: usize, wanted_bytes: u64, left_bytes: i64) -> Figures {
        let bytes = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let values_bytes = bytes(&self.counters.hot_bytes) + bytes(&self.counters.clean_bytes);
        let resident = self.budget.resident(wanted_bytes, left_bytes);
        let missing_bytes = self.budget.missing_bytes(wanted_bytes, left_bytes);
        // What large requests have reserved is not resident yet.
        let fits_without_values = match wanted_bytes {
            1.. if self.has_flash() => missing_bytes < values_bytes,
            _ => self.budget.may_fit(values_bytes),
        };
        let (grown, measures) = (self.budget.grown_bytes(), self.budget.measures());
        let may_find = |hand: &IdleRounds| hand.may_find(grown, measures);
        let mut others = self.rounds.iter().enumerate().filter(|(worker, _)| *worker != index);
        Figures {
            over_limit: self.budget.over_limit() + left_bytes,
            over_watermark: self.budget.over_watermark(),
            limit_bytes: self.budget.limit_bytes(),
            resident,
            is_overrun: self.budget.is_overrun(),
            is_overrun_by_claims: self.budget.is_overrun_by_claims(wanted_bytes),
            may_empty_pages: self.may_empty_pages(),
            is_large: wanted_bytes > 0,
            owed_bytes: 0,
            is_held_up: wanted_bytes > 0 && self.is_held_up(resident, missing_bytes),
            bears_alone: wanted_bytes > 0 && self.budget.bears_alone(wanted_bytes),
            has_flash: self.has_flash(),
            may_evict: self.evictable(self.settings.policy()).is_some(),
            data_bytes: self.budget.data_bytes(),
            values_bytes,
            fits_without_values,
            missing_bytes,
            may_defrag: false,
            own_hand_may_find: may_find(&self.rounds[index]),
            other_hands_may_find: others.any(|(_, hand)| may_find(hand)),
            shrinks: self.budget.shrinks(),
            read_ahead_shrinks: self.budget.read_ahead_shrinks(),
            freed_since_refusal: self.budget.freed_since_refusal(),
        }
    }

    /// Whether what is in the way of a large request may go by itself: what others have claimed, or have
    /// reserved and run with; and with flash, large values on their way there, and what clients hold that do
    /// not wait themselves.
    fn is_held_up(&self, resident: Resident, missing_bytes: i64) -> bool {
        let writes = || {
            let engine_bytes = self.budget.memory_use().engine_bytes;
            self.writing_workers.load(Ordering::Relaxed) > 0 && self.budget.may_fit(engine_bytes)
        };
        let waiting = self.held_by_waiting.load();
        let reserved_bytes = self.budget.reserved_bytes() + self.budget.background_bytes()
            - waiting.reserved_bytes as i64;
        let others_run = reserved_bytes > missing_bytes;
        let others_hold = || {
            let buffer_bytes = self.budget.buffer_bytes() - waiting.buffer_bytes as i64;
            let others_bytes = buffer_bytes + reserved_bytes;
            others_bytes > missing_bytes.max(self.budget.limit_bytes() >> BUFFERS_SHIFT)
        };
        let for_now = resident == Resident::FullForNow;
        self.budget.has_claims()
            || others_run
            || self.has_flash() && (writes() || for_now && others_hold())
    }

    /// Hints to the keys of records on flash, at most [`EXPECTED_MAX`], of which so many lines of the values are
    /// brought near as well.
    pub(crate) fn hints_of<'r>(
        &self,
        records: impl Iterator<Item = (RecordMeta, &'r [u8])>,
        value_lines: usize,
    ) -> SmallVec<[Hint; EXPECTED_MAX]> {
        let hint = |(meta, key): (RecordMeta, &[u8])| {
            self.keyspace.prefetch(meta.slot);
            Hint::new(meta.db % TABLE_COUNT as u8, &Key::in_slot(key, meta.slot))
        };
        let mut hints: SmallVec<[Hint; EXPECTED_MAX]> = records.map(hint).collect();
        self.keyspace.prefetch_keys(&mut hints, value_lines);
        hints
    }

    /// Keys of a database.
    pub fn key_count(&self, db: u8) -> u64 {
        self.counters.table(self.keyspace.table_of(db)).keys
    }

    /// Measures memory; fifty times a second.
    pub fn measure(&self) {
        let stats = self.flash.engine().as_ref().map(|engine| engine.stats()).unwrap_or_default();
        self.budget.set_engine(stats.buffer_bytes, stats.unmade_bytes);
        let read_ahead_bytes_min = (self.workers * READ_AHEAD_BYTES_MIN) as u64;
        let spare_bytes = stats.block_cache_bytes.saturating_sub(read_ahead_bytes_min);
        self.budget.set_read_ahead_spare(spare_bytes);
        self.look_for_memory(0);
        let keys_bytes = self.keys_that_stay();
        let keys_fill_ram = keys_bytes.is_some_and(|bytes| {
            let shared = self.budget.shared_bytes();
            // What is shared is an estimate, and holes may take of it: where hardly a value is left, RAM is full of keys
            // before they take all but that part. Where it is not full, leaving room holds nothing up.
            let are_left = bytes > shared >> 1 && self.values_bytes() < self.budget.reads_bytes();
            are_left || bytes > shared - (shared >> KEYS_FILL_SHIFT)
        });
        self.budget.set_leaves_room(keys_fill_ram || self.is_flash_full());
        self.budget.set_keys_that_stay(keys_bytes);
        self.budget.measure();
        if self.heap.is_some() {
            self.regions.measure(&self.counters, self.budget.max_bytes(), self.budget.is_full());
        }
    }

    /// Bytes of keys, where there is flash and none may go. All else that RAM has may leave it.
    fn keys_that_stay(&self) -> Option<i64> {
        let stay = self.has_flash() && self.evictable(self.settings.policy()).is_none();
        stay.then(|| self.budget.data_bytes() - self.values_bytes())
    }

    /// What values take that can be demoted, in bytes.
    fn values_bytes(&self) -> i64 {
        let Counters { hot_bytes, clean_bytes, .. } = &self.counters;
        hot_bytes.load(Ordering::Relaxed) + clean_bytes.load(Ordering::Relaxed)
    }

    /// Whether hardly a value is left in RAM that could leave it: few of all data.
    pub(crate) fn has_few_values(&self) -> bool {
        self.values_bytes() < self.budget.data_bytes() >> FEW_VALUES_SHIFT
    }

    /// Whether flash takes nothing more, or soon will not, and no key may go: it is short of free segments, and garbage
    /// collection brings none, or hardly any.
    fn is_flash_full(&self) -> bool {
        let Some(space) = self.flash.engine().as_ref().map(|engine| engine.free_space()) else {
            return false;
        };
        is_short_of_segments(&space, self.budget.max_bytes())
            && (has_little_garbage(&space) || self.rounds.iter().all(IdleRounds::has_no_garbage))
            && self.evictable(self.settings.policy()).is_none()
    }

    /// Sees whether `maxmemory` is resident, or would be with `wanted_bytes` more. If so, gives free pages
    /// back to the machine at once, which would go by themselves within a tenth of a second, and looks
    /// again.
    pub(crate) fn look_for_memory(&self, wanted_bytes: u64) {
        self.budget.measure_resident();
        if self.budget.is_full_with(wanted_bytes)
            && let Some(heap) = &self.heap
        {
            heap.purge();
            self.budget.measure_resident();
        }
    }

    /// Values that came back to RAM because they could not be written, so far.
    pub fn restored(&self) -> u64 {
        self.counters.restored.load(Ordering::Relaxed)
    }
}

/// Whether hardly a segment is free, and none will be behind the next checkpoint, for which values wait.
fn is_short_of_segments(space: &FreeSpace, max_memory: u64) -> bool {
    space.free_bytes + space.coming_bytes < space.short_below_bytes.min(max_memory >> SHORT_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_free_with_the_next_checkpoint_counts_as_free() {
        for (free_bytes, coming_bytes, max_memory, is_short) in [
            (9, 0, 400, true),
            (10, 0, 400, false),
            (0, 9, 400, true),
            (4, 5, 400, true),
            (0, 10, 400, false),
            (5, 5, 400, false),
            // Of so little memory.
            (4, 0, 20, true),
            (0, 5, 20, false),
        ] {
            let (gc_below_bytes, short_below_bytes, held_bytes) = (15, 10, 300);
            let space = FreeSpace {
                free_bytes,
                coming_bytes,
                gc_below_bytes,
                short_below_bytes,
                held_bytes,
                ..FreeSpace::default()
            };
            assert_eq!(is_short_of_segments(&space, max_memory), is_short, "{space:?}");
        }
    }
}
