//! A hand that passes over a worker's share of the slots, round after round.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use keyspace::{Region, SLOT_COUNT};

/// Passes after which every frequency is down to 0.
pub(crate) const PASSES_MAX: usize = 4;
/// Rounds follow each other when one ends within so many measurements of memory of the last: half a
/// second.
const FOLLOWS_WITHIN: u32 = 25;

/// Rounds, one after another until now, in which a worker's hand met no value that it could demote.
#[derive(Debug, Default)]
pub(crate) struct IdleRounds {
    count: AtomicU32,
    /// The measurement of memory at which the last one ended.
    ended_at: AtomicU32,
}

impl IdleRounds {
    /// Another one has ended at this measurement. After a rest the count begins anew: much may have been
    /// written meanwhile.
    pub(crate) fn add(&self, measure: u32) {
        let before = if self.follow(measure) { self.count.load(Ordering::Relaxed) } else { 0 };
        self.count.store(before.saturating_add(1), Ordering::Relaxed);
        self.ended_at.store(measure, Ordering::Relaxed);
    }

    /// The hand has met a value.
    pub(crate) fn end_with_a_value(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Whether they were as many, just before this measurement, as a value stays that was used.
    pub(crate) fn are_enough(&self, measure: u32) -> bool {
        self.follow(measure) && self.count.load(Ordering::Relaxed) as usize >= PASSES_MAX
    }

    fn follow(&self, measure: u32) -> bool {
        measure.wrapping_sub(self.ended_at.load(Ordering::Relaxed)) <= FOLLOWS_WITHIN
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
    use super::*;

    #[test]
    fn idle_rounds_count_while_they_follow_each_other() {
        let rounds = IdleRounds::default();
        let add = |count: usize, measure: u32| (0..count).for_each(|_| rounds.add(measure));
        add(PASSES_MAX - 1, 7);
        assert!(!rounds.are_enough(7));
        add(1, 7 + FOLLOWS_WITHIN);
        assert!(rounds.are_enough(7 + 2 * FOLLOWS_WITHIN));
        assert!(!rounds.are_enough(8 + 2 * FOLLOWS_WITHIN), "nobody has looked since");
        add(1, 8 + 2 * FOLLOWS_WITHIN);
        assert!(!rounds.are_enough(8 + 2 * FOLLOWS_WITHIN), "the first one after a rest");
        add(PASSES_MAX, 9 + 2 * FOLLOWS_WITHIN);
        rounds.end_with_a_value();
        assert!(!rounds.are_enough(9 + 2 * FOLLOWS_WITHIN));
    }
    use std::collections::BTreeSet;

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
