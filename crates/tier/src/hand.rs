//! A hand that passes over a worker's share of the slots, round after round.

use std::cell::Cell;

use keyspace::{Region, SLOT_COUNT};

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
