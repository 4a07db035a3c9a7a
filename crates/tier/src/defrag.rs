//! Active defragmentation: what lies in sparse pages moves, so that they go back to the machine.
//!
//! `maxmemory` bounds what is resident, and values leave RAM in no order of address: in pages of
//! small values a hole follows a value, and while a data set grows by keys the room that its values
//! gave up does not come free. So a second hand passes over the slots while pages take more than an
//! eighth above what is in them and `maxmemory` is nearly resident. Writers pay for it in step with
//! what they bring, as they do for demotion.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use keyspace::{Defrag, Defragged, DetachedBlocks, Heap, Region, Scope, SegmentPosition};

use crate::hand::Hand;
use crate::worker::TierWorker;

/// Regions of addresses, each the matter of one round: pages come free an eighth of them sooner, and
/// a round looks at every key whose value is in RAM.
const REGIONS: usize = 8;
/// Before each round over all regions there is one over the arrays of tables, which are few: wherever they lie.
const ROUNDS: usize = 1 + REGIONS;
/// Keys that a slice looks at, at most: 200 to 700 us.
const SLICE_KEYS_MAX: u64 = 8192;
/// The same where nobody brings anything and little moves, for others may read.
const IDLE_SLICE_KEYS_MAX: u64 = 2048;
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
/// A round that gained less than this for each block that was asked about was not worth its time, in bytes: to ask takes some
/// 100 ns. How many move says less: where keys were deleted, one in 300 that is left alone may hold a quarter of RAM.
/// When no round over the values of all regions was worth it, records are looked at too, and then comes a rest. Rounds over
/// arrays say nothing of either.
const GAIN_BYTES_MIN: u64 = 4;
/// Blocks of which it is known whether a round is worth its time, which else ends there: slots are hashes, so those of some
/// tell of all keys. But for a large collection, whose leaves all stand in one: it is found when the hand comes there, as each
/// round begins where the last ended, and then that round goes on.
const SAMPLE_BLOCKS: u64 = 4096;
/// Rounds in which more than this part of the blocks moves are worth haste: 1/8. Else a worker that nobody brings anything
/// looks at one small slice a measurement, a hundredth of its time: what comes free is little, and others may read.
const HASTE_SHIFT: u32 = 3;
/// How many measurements of memory the hand rests: a fifth of a second.
const REST_MEASURES: u32 = 10;
/// While nobody brings anything the hand rests longer, twice as long each time, up to 3.2 s: pages change little then.
const IDLE_REST_MEASURES_MAX: u32 = 16 * REST_MEASURES;

/// A worker's defragmentation.
pub(crate) struct DefragHand {
    hand: Hand,
    at: Cell<SegmentPosition>,
    scope: Cell<Scope>,
    /// Counts rounds, modulo `ROUNDS`.
    rounds: Cell<usize>,
    /// Slots that this round passed, and what it did so far.
    slots_passed: Cell<usize>,
    round: Cell<Defragged>,
    /// Rounds since the last that was worth its time.
    idle_rounds: Cell<usize>,
    /// The measurement at which the hand goes on after those.
    rests_until: Cell<Option<u32>>,
    /// The same where nobody brings anything.
    rests_idle_until: Cell<Option<u32>>,
    /// The measurement of the last slice where nobody brought anything, and whether the rounds are worth haste.
    slice_at: Cell<Option<u32>>,
    makes_haste: Cell<bool>,
    /// For how many measurements it rests then.
    idle_rest: Cell<u32>,
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
            rounds: Cell::new(0),
            slots_passed: Cell::new(0),
            round: Cell::default(),
            idle_rounds: Cell::new(0),
            rests_until: Cell::new(None),
            rests_idle_until: Cell::new(None),
            slice_at: Cell::new(None),
            makes_haste: Cell::new(false),
            idle_rest: Cell::new(REST_MEASURES),
            due_bytes: Cell::new(0),
            detached: RefCell::default(),
        }
    }

    /// Whether the last rounds moved next to nothing, a short while ago.
    fn rests(&self, measures: u32) -> bool {
        is_before(&self.rests_until, measures)
    }

    /// The same where nobody brings anything.
    fn rests_idle(&self, measures: u32) -> bool {
        is_before(&self.rests_idle_until, measures)
    }

    /// Whether it is time for a slice though nobody brings anything.
    fn is_idle_turn(&self, measures: u32) -> bool {
        if self.rests_idle(measures) {
            return false;
        }
        let was_before = self.slice_at.replace(Some(measures)) == Some(measures);
        !was_before || self.makes_haste.get()
    }

    /// Goes on to the next slot. True: the round ends with this one, having passed all, or found that it is not worth its
    /// time. The next begins where it ended, so that it has other slots to tell by.
    fn advance(&self) -> bool {
        self.hand.advance();
        self.slots_passed.set(self.slots_passed.get() + 1);
        let round = self.round.get();
        let is_sample = round.asked >= SAMPLE_BLOCKS;
        let is_in_vain = is_sample && !is_worth_it(round);
        if is_sample {
            self.makes_haste.set(is_worth_haste(round));
        }
        is_in_vain || self.slots_passed.get() == self.hand.slots()
    }

    /// What the round is over.
    fn scope(&self) -> (Scope, Region) {
        match self.rounds.get() {
            0 => (Scope::Arrays, Region::ALL),
            number => (self.scope.get(), Region::nth(number, REGIONS)),
        }
    }

    fn end_round(&self, measures: u32) {
        let (scope, _) = self.scope();
        self.rounds.set((self.rounds.get() + 1) % ROUNDS);
        self.slots_passed.set(0);
        let round = self.round.take();
        self.makes_haste.set(is_worth_haste(round));
        if scope == Scope::Arrays {
            return;
        }
        let was_worth_it = is_worth_it(round);
        let idle = if was_worth_it { 0 } else { self.idle_rounds.get() + 1 };
        self.idle_rounds.set(idle % REGIONS);
        if was_worth_it {
            self.idle_rest.set(REST_MEASURES);
        }
        if idle == REGIONS && self.scope.get() == Scope::All {
            let idle_rest = self.idle_rest.get();
            self.idle_rest.set((2 * idle_rest).min(IDLE_REST_MEASURES_MAX));
            self.rests_until.set(Some(measures.wrapping_add(REST_MEASURES)));
            self.rests_idle_until.set(Some(measures.wrapping_add(idle_rest)));
            self.scope.set(Scope::Values);
        } else if idle == REGIONS {
            self.scope.set(Scope::All);
        }
    }
}

fn is_worth_haste(round: Defragged) -> bool {
    round.moved > round.asked >> HASTE_SHIFT
}

fn is_worth_it(round: Defragged) -> bool {
    round.gained_bytes > round.asked * GAIN_BYTES_MIN
}

/// Whether a time is to come, by measurements modulo 2^32. One that has come is forgotten.
fn is_before(until: &Cell<Option<u32>>, measures: u32) -> bool {
    let is_to_come = until.get().is_some_and(|until| until.wrapping_sub(measures) as i32 > 0);
    if !is_to_come {
        until.set(None);
    }
    is_to_come
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

    /// Defragments though nobody brings anything, a slice at a time.
    pub(crate) fn defrag_idle(&self) {
        if self.defrag.is_idle_turn(self.tier.budget.measures()) {
            let makes_haste = self.defrag.makes_haste.get();
            self.defrag_keys(if makes_haste { SLICE_KEYS_MAX } else { IDLE_SLICE_KEYS_MAX });
        }
    }

    /// Moves what a slice finds in sparse pages, if pages take much more than what is in them and
    /// the hand does not rest. Cost: bounded by `SLICE_KEYS_MAX`.
    pub(crate) fn defrag(&self) -> Defragged {
        self.defrag_keys(SLICE_KEYS_MAX)
    }

    /// The same of a slice that looks at so many keys, at most.
    fn defrag_keys(&self, keys_max: u64) -> Defragged {
        match &self.tier.heap {
            Some(heap) if self.may_defrag() => self.defrag_slice(&**heap, keys_max),
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

    fn defrag_slice(&self, heap: &dyn Heap, keys_max: u64) -> Defragged {
        let defrag = &self.defrag;
        let mut done = Defragged::default();
        let (scope, region) = defrag.scope();
        let is_full = self.tier.budget.is_full();
        // While `maxmemory` is resident writers wait for values to leave, not for a round over all keys.
        let awaits_values = is_full && self.tier.has_flash() && !self.tier.has_few_values();
        let scope = if awaits_values && scope == Scope::All { Scope::Values } else { scope };
        let free_shift = if is_full { SPARSE_SHIFT_FULL } else { SPARSE_SHIFT };
        let how = Defrag { heap, scope, region, free_shift };
        let mut detached = defrag.detached.borrow_mut();
        heap.flush_thread();
        for _ in 0..SLICE_SLOTS_MAX {
            if done.visited >= keys_max {
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
            if at == SegmentPosition::default() && defrag.advance() {
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

#[cfg(test)]
mod tests {
    use keyspace::SLOT_COUNT;

    use super::*;

    /// Of so many blocks so many moved, each of which gained 250 bytes.
    fn part(asked: u64, moved: u64) -> Defragged {
        Defragged { asked, moved, gained_bytes: 250 * moved, ..Defragged::default() }
    }

    /// Rounds over all regions in which so much of 64 blocks moved, until the hand rests; of those over arrays all move.
    /// Returns for how many measurements it does, for writers and where nobody brings anything.
    fn rest_after(defrag: &DefragHand, moved: u64, measures: u32) -> (u32, u32) {
        for _ in 0..2 * ROUNDS {
            let moved = if defrag.scope().0 == Scope::Arrays { 64 } else { moved };
            defrag.round.set(part(64, moved));
            defrag.end_round(measures);
        }
        let rested =
            |rests: &dyn Fn(u32) -> bool| (measures..).take_while(|&at| rests(at)).count() as u32;
        (rested(&|at| defrag.rests(at)), rested(&|at| defrag.rests_idle(at)))
    }

    #[test]
    fn a_round_over_arrays_comes_before_those_over_the_regions() {
        let defrag = DefragHand::new(0, 1);
        let mut rounds = Vec::new();
        for _ in 0..3 * ROUNDS {
            rounds.push(defrag.scope());
            defrag.round.set(part(64, 0));
            defrag.end_round(0);
        }
        for (scopes, records) in
            rounds.chunks(ROUNDS).zip([Scope::Values, Scope::All, Scope::Values])
        {
            assert_eq!(scopes[0], (Scope::Arrays, Region::ALL));
            for index in 0..REGIONS {
                assert!(scopes.contains(&(records, Region::nth(index, REGIONS))), "{scopes:?}");
            }
        }
    }

    #[test]
    fn a_round_ends_early_where_a_sample_moves_next_to_nothing() {
        let slots_of_round = |moved: u64| {
            let defrag = DefragHand::new(1, 4);
            defrag.rounds.set(1);
            let slot = part(100, moved);
            let goes_on = |_: &usize| {
                defrag.round.set(defrag.round.get() + slot);
                !defrag.advance()
            };
            let slots = 1 + (0..).take_while(goes_on).count();
            defrag.end_round(0);
            assert_eq!((defrag.slots_passed.get(), defrag.rounds.get()), (0, 2));
            assert_eq!(defrag.idle_rounds.get(), usize::from(moved <= 1));
            (slots, usize::from(defrag.hand.slot()))
        };
        for moved in [0, 1] {
            assert_eq!(slots_of_round(moved), (41, 1 + 41 * 4), "4,100 blocks are a sample");
        }
        assert_eq!(slots_of_round(2), (SLOT_COUNT / 4, 1), "a 50th moves: all slots");
    }

    #[test]
    fn where_nobody_brings_anything_there_is_one_slice_a_measurement_unless_much_moves() {
        let defrag = DefragHand::new(0, 1);
        let slices = |measures: u32| (0..9).filter(|_| defrag.is_idle_turn(measures)).count();
        let note = |moved: u64| {
            defrag.round.set(part(SAMPLE_BLOCKS, moved));
            defrag.advance();
        };
        assert_eq!([7, 7, 8].map(slices), [1, 0, 1]);
        note(SAMPLE_BLOCKS / 8 + 1);
        assert_eq!(slices(8), 9);
        note(SAMPLE_BLOCKS / 8);
        assert_eq!([8, 9].map(slices), [0, 1]);
        // A round of few blocks tells as it ends, too.
        for (moved, expected) in [(8, 9), (0, 1)] {
            defrag.round.set(part(9, moved));
            defrag.end_round(10);
            defrag.slice_at.set(None);
            assert_eq!(slices(10), expected);
        }
    }

    #[test]
    fn rounds_that_move_nothing_are_followed_by_longer_rests_while_nobody_brings_anything() {
        let defrag = DefragHand::new(0, 1);
        let start = u32::MAX - 15;
        for expected in [10, 20, 40, 80, 160, 160] {
            assert_eq!(rest_after(&defrag, 0, start), (REST_MEASURES, expected));
        }
        assert_eq!(rest_after(&defrag, 2, start), (0, 0), "they were worth it");
        assert_eq!(rest_after(&defrag, 0, start), (REST_MEASURES, REST_MEASURES));
    }
}
