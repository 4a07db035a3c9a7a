//! A hand that passes over a worker's share of the slots, round after round.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use keyspace::{Region, SLOT_COUNT};

use crate::limits::VALUES_BYTES_MIN;

/// Passes after which every frequency is down to 0.
pub(crate) const PASSES_MAX: usize = 4;
/// Measurements of memory for which a hand that could not write what it met counts as stuck.
const STUCK_MEASURES: u32 = 2;

/// Rounds, one after another until now, in which a worker's hand met no value that it could demote.
#[derive(Debug, Default)]
pub(crate) struct IdleRounds {
    count: AtomicU32,
    /// How much the data set had grown by when each of the last ones began ([`crate::Budget::grown_bytes`]).
    grown_at: [AtomicU64; PASSES_MAX],
    /// The same when the last round ended.
    grown_last: AtomicU64,
    /// The measurement of memory at which values could not be written last, 0 before.
    stuck_at: AtomicU32,
    /// Whether garbage collection found nothing to do last.
    has_no_garbage: AtomicBool,
}

impl IdleRounds {
    /// A round has ended.
    pub(crate) fn end_round(&self, grown_bytes: u64, is_idle: bool) {
        let began_at = self.grown_last.swap(grown_bytes, Ordering::Relaxed);
        if !is_idle {
            return self.reset();
        }
        let count = self.count.load(Ordering::Relaxed);
        self.grown_at[count as usize % PASSES_MAX].store(began_at, Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// The hand has met a value.
    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// The hand has met values that flash does not take.
    pub(crate) fn note_stuck(&self, measures: u32) {
        self.stuck_at.store(measures.max(1), Ordering::Relaxed);
    }

    /// Says whether garbage collection has nothing to do.
    pub(crate) fn note_garbage(&self, has_none: bool) {
        self.has_no_garbage.store(has_none, Ordering::Relaxed);
    }

    pub(crate) fn has_no_garbage(&self) -> bool {
        self.has_no_garbage.load(Ordering::Relaxed)
    }

    /// Whether the hand may yet find a value to demote, and write it.
    pub(crate) fn may_find(&self, grown_bytes: u64, measures: u32) -> bool {
        let stuck_at = self.stuck_at.load(Ordering::Relaxed);
        let is_stuck = stuck_at > 0 && measures.wrapping_sub(stuck_at) <= STUCK_MEASURES;
        !is_stuck && !self.are_enough(grown_bytes)
    }

    /// Whether there is nothing to demote: as many rounds as a value stays that was used found none, and
    /// hardly anything has come since the first of these began.
    fn are_enough(&self, grown_bytes: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let began_at = self.grown_at[count % PASSES_MAX].load(Ordering::Relaxed);
        count >= PASSES_MAX && grown_bytes.saturating_sub(began_at) <= VALUES_BYTES_MIN as u64
    }
}

/// Where a hand is.
#[derive(Debug)]
pub(crate) struct Hand {
    slot: Cell<usize>,
    round: Cell<usize>,
    first: usize,
    step: usize,
}

impl Hand {
    /// The hand of worker `worker`, at its first slot.
    pub(crate) fn new(worker: usize, workers: usize) -> Hand {
        Hand { slot: Cell::new(worker), round: Cell::new(0), first: worker, step: workers }
    }

    /// A hand over all slots, at slot `from`.
    pub(crate) fn over_all(from: usize) -> Hand {
        Hand { slot: Cell::new(from), round: Cell::new(0), first: 0, step: 1 }
    }

    /// The slot that the hand is at.
    pub(crate) fn slot(&self) -> u16 {
        self.slot.get() as u16
    }

    /// The slot that comes next, unless the round ends.
    pub(crate) fn next_slot(&self) -> u16 {
        (self.slot.get() + self.step).min(SLOT_COUNT - 1) as u16
    }

    /// The region, of so many, whose turn it is in this round.
    pub(crate) fn region(&self, of: usize) -> Region {
        Region::nth(self.round.get(), of)
    }

    /// Goes on to the next slot. True: a new round begins.
    pub(crate) fn advance(&self) -> bool {
        let next = self.slot.get() + self.step;
        let is_round = next >= SLOT_COUNT;
        self.slot.set(if is_round { self.first } else { next });
        if is_round {
            self.round.set(self.round.get().wrapping_add(1));
        }
        is_round
    }

    /// Slots of a round.
    pub(crate) fn slots(&self) -> usize {
        SLOT_COUNT.div_ceil(self.step)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn idle_rounds_tell_of_what_was_there_when_they_began() {
        const MUCH: u64 = VALUES_BYTES_MIN as u64 + 1;
        let rounds = IdleRounds::default();
        let idle = |count: usize, grown| (0..count).for_each(|_| rounds.end_round(grown, true));
        idle(PASSES_MAX - 1, 0);
        assert!(!rounds.are_enough(0));
        idle(1, 0);
        assert!(rounds.are_enough(MUCH - 1));
        assert!(!rounds.are_enough(MUCH), "they have not looked for that");
        idle(PASSES_MAX, MUCH);
        assert!(!rounds.are_enough(MUCH), "the first of them began before");
        idle(1, MUCH);
        assert!(rounds.are_enough(MUCH));
        rounds.reset();
        idle(PASSES_MAX - 1, MUCH);
        assert!(!rounds.are_enough(MUCH));
        idle(1, MUCH);
        assert!(rounds.are_enough(MUCH));
        rounds.end_round(MUCH, false);
        assert!(!rounds.are_enough(MUCH));
    }

    #[test]
    fn a_hand_that_cannot_write_finds_nothing_for_a_while() {
        let rounds = IdleRounds::default();
        assert!(rounds.may_find(0, 0));
        rounds.note_stuck(7);
        assert_eq!([7, 9, 10].map(|measures| rounds.may_find(0, measures)), [false, false, true]);
    }

    #[test]
    fn the_hands_of_all_workers_pass_every_slot_once_a_round() {
        for workers in [1, 2, 3, 7] {
            let mut passed = BTreeSet::new();
            for worker in 0..workers {
                let hand = Hand::new(worker, workers);
                loop {
                    assert!(passed.insert(hand.slot()), "twice");
                    if hand.advance() {
                        break;
                    }
                }
                assert!(hand.slot() as usize == worker && hand.slots() * workers >= SLOT_COUNT);
            }
            assert_eq!(passed.len(), SLOT_COUNT);
        }
    }
}
