//! Active defragmentation: what lies in sparse pages moves, so that they go back to the machine.
//!
//! `maxmemory` bounds what is resident, and values leave RAM in no order of address: in pages of
//! small values a hole follows a value, and while a data set grows by keys the room that its values
//! gave up does not come free. So a second hand passes over the slots while pages take more than an
//! eighth above what is in them and `maxmemory` is nearly resident. Writers pay for it in step with
//! what they bring, as they do for demotion.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use keyspace::{Defrag, Defragged, DetachedBlocks, Heap, Scope, SegmentPosition};

use crate::hand::Hand;
use crate::worker::TierWorker;

/// Regions of addresses, each the matter of one round: pages come free an eighth of them sooner, and
/// a round looks at every key in RAM.
const REGIONS: usize = 8;
/// Keys that a slice looks at, at most: about 200 us.
const SLICE_KEYS_MAX: u64 = 8192;
/// Pages of which more than this part is free are sparse: a quarter. Three bytes move then for one
/// that comes free, at most.
const SPARSE_SHIFT: u32 = 2;
/// The same while `maxmemory` is resident: an eighth.
const SPARSE_SHIFT_FULL: u32 = 3;
/// Bytes that writers bring for each key that is looked at. The sparser pages are, the more moves.
const BYTES_PER_KEY: i64 = 32;
/// The same while more than the target is resident.
const BYTES_PER_KEY_TIGHT: i64 = 8;
/// Slots that a slice passes, at most.
const SLICE_SLOTS_MAX: usize = 256;
/// A round in which less than this part of the region's blocks moved was not worth its time: 1/64.
/// When none was over the values of all regions, records are looked at too, and then comes a rest.
const GAIN_SHIFT: u32 = 6;
/// How many measurements of memory the hand rests: a fifth of a second.
const REST_MEASURES: u32 = 10;

/// A worker's defragmentation.
pub(crate) struct DefragHand {
    hand: Hand,
    at: Cell<SegmentPosition>,
    scope: Cell<Scope>,
    /// What this round did so far.
    round: Cell<Defragged>,
    /// Rounds since the last that was worth its time.
    idle_rounds: Cell<usize>,
    /// The measurement at which the hand goes on after those.
    rests_until: Cell<Option<u32>>,
    /// What writers have brought since the last slice, less than makes one.
    due_bytes: Cell<i64>,
    detached: RefCell<DetachedBlocks>,
}

impl DefragHand {
    pub(crate) fn new(worker: usize, workers: usize) -> DefragHand {
        DefragHand {
            hand: Hand::new(worker, workers),
            at: Cell::default(),
            scope: Cell::default(),
            round: Cell::default(),
            idle_rounds: Cell::new(0),
            rests_until: Cell::new(None),
            due_bytes: Cell::new(0),
            detached: RefCell::default(),
        }
    }

    /// Whether the last rounds moved next to nothing, a short while ago.
    fn rests(&self, measures: u32) -> bool {
        let Some(until) = self.rests_until.get() else { return false };
        let rests = until.wrapping_sub(measures) as i32 > 0;
        if !rests {
            self.rests_until.set(None);
        }
        rests
    }

    fn end_round(&self, measures: u32) {
        let round = self.round.take();
        let was_worth_it = round.moved > round.asked >> GAIN_SHIFT;
        let idle = if was_worth_it { 0 } else { self.idle_rounds.get() + 1 };
        self.idle_rounds.set(idle % REGIONS);
        if idle == REGIONS && self.scope.get() == Scope::All {
            self.rests_until.set(Some(measures.wrapping_add(REST_MEASURES)));
            self.scope.set(Scope::Values);
        } else if idle == REGIONS {
            self.scope.set(Scope::All);
        }
    }
}

impl TierWorker {
    /// Defragments in step with what writers bring, a slice at a time.
    pub(crate) fn defrag_for(&self, grown_bytes: i64) {
        let due = self.defrag.due_bytes.get() + grown_bytes.max(0);
        let is_tight = self.tier.budget.is_nearly_full();
        let pace = if is_tight { BYTES_PER_KEY_TIGHT } else { BYTES_PER_KEY };
        let slice = SLICE_KEYS_MAX as i64 * pace;
        self.defrag.due_bytes.set(due % slice);
        if due >= slice {
            self.defrag();
        }
    }

    /// Moves what a slice finds in sparse pages, if pages take much more than what is in them and
    /// the hand does not rest. Cost: bounded by `SLICE_KEYS_MAX`.
    pub(crate) fn defrag(&self) -> Defragged {
        match &self.tier.heap {
            Some(heap) if self.may_defrag() => self.defrag_slice(&**heap),
            _ => Defragged::default(),
        }
    }

    /// Whether pages would come free by it.
    pub(crate) fn may_defrag(&self) -> bool {
        let budget = &self.tier.budget;
        self.tier.heap.is_some()
            && self.tier.settings.defrags()
            && (budget.is_loose() || !self.tier.has_flash() && budget.is_overrun())
            && !self.defrag.rests(budget.measures())
    }

    fn defrag_slice(&self, heap: &dyn Heap) -> Defragged {
        let defrag = &self.defrag;
        let mut done = Defragged::default();
        let (region, scope) = (defrag.hand.region(REGIONS), defrag.scope.get());
        let is_full = self.tier.budget.is_full();
        // Writers wait while `maxmemory` is resident, though with flash not for a round over all keys.
        let scope = if is_full && self.tier.has_flash() { Scope::Values } else { scope };
        let free_shift = if is_full { SPARSE_SHIFT_FULL } else { SPARSE_SHIFT };
        let how = Defrag { heap, scope, region, free_shift };
        let mut detached = defrag.detached.borrow_mut();
        heap.flush_thread();
        for _ in 0..SLICE_SLOTS_MAX {
            if done.visited >= SLICE_KEYS_MAX {
                break;
            }
            let mut at = defrag.at.get();
            let mut part = Defragged::default();
            if let Some(mut state) = self.tier.keyspace.try_lock(defrag.hand.slot()) {
                part = state.defrag(&mut at, how, &mut detached);
            }
            defrag.at.set(at);
            defrag.round.set(defrag.round.get() + part);
            done = done + part;
            if at == SegmentPosition::default() && defrag.hand.advance() {
                defrag.end_round(self.tier.budget.measures());
                break;
            }
        }
        detached.free();
        heap.flush_thread();
        if done.moved > 0 {
            self.tier.budget.note_packed();
        }
        let counters = &self.tier.counters;
        counters.defrag_moved.fetch_add(done.moved, Ordering::Relaxed);
        counters.defrag_left.fetch_add(done.asked - done.moved, Ordering::Relaxed);
        done
    }
}
