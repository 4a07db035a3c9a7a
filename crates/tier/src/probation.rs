//! Probation: new values leave RAM in the order in which they were written, unless they are used.
//!
//! What is written together is asked for together: imports, time series, sessions, a walk over keys in the order of a
//! fill. The hand meets values in the order of their slots, which is that of hashes, so each page of flash that it fills
//! holds what has nothing in common. So a new value first stands in a queue of its worker, which holds a 32nd of
//! `maxmemory`, and while memory is short leaves RAM at its end, if it was not used meanwhile. Then pages of flash hold
//! what one worker was given within a moment, in that order. Left to the hand are values that were used (the queue is the
//! small one of S3-FIFO, Yang et al. 2023), large ones, which would take the place of many, and those that expire within
//! minutes, many of which are gone before it comes. Values that nobody used thus do not wash out what is hot, and they
//! leave pages in the order in which these were filled, so that whole pages come free.

use std::collections::VecDeque;

use keyspace::{Hint, NewValue, PREFETCH_KEYS, VALUE_LINES};

use crate::demote::{Demoted, Written};
use crate::worker::TierWorker;

/// The part of `maxmemory` that values on probation may take, on all workers: 1/32.
const PROBATION_SHIFT: u32 = 5;
/// The part of it that the queues themselves may take, 1/256: small values are many.
const QUEUES_SHIFT: u32 = 8;
/// A value of more than this part of what a worker may have on probation has none: 1/8.
const LARGE_SHIFT: u32 = 3;
/// Bytes of values that are too many before any of them leave: to demote takes something of its own each time.
const TAKEN_BYTES_MIN: usize = 16 << 10;

/// New values of one worker, the oldest first.
#[derive(Default)]
pub(crate) struct Probation {
    values: VecDeque<NewValue>,
    bytes: usize,
}

/// How much a worker's values on probation may be.
#[derive(Clone, Copy, Debug)]
struct Limit {
    bytes: usize,
    values: usize,
}

impl Limit {
    fn of(maxmemory: u64, workers: usize) -> Limit {
        let share = |shift: u32| (maxmemory >> shift) as usize / workers;
        Limit { bytes: share(PROBATION_SHIFT), values: share(QUEUES_SHIFT) / size_of::<NewValue>() }
    }
}

impl Probation {
    /// Adds new values, but for those that would take the place of many: they are left to the hand.
    fn add(&mut self, new: &mut Vec<NewValue>, limit: Limit) {
        new.retain(|value| value.bytes() <= limit.bytes >> LARGE_SHIFT);
        self.bytes += new.iter().map(NewValue::bytes).sum::<usize>();
        self.values.extend(new.drain(..));
    }

    /// Whether there are so many more than may be that it is worth to end the probation of some.
    fn is_over(&self, limit: Limit) -> bool {
        self.bytes > limit.bytes + TAKEN_BYTES_MIN
            || self.values.len() > limit.values + PREFETCH_KEYS
    }

    /// Takes the oldest while there are more than may be, a few of them. None: there are no more.
    fn take(&mut self, limit: Limit) -> Option<Vec<NewValue>> {
        let mut old = Vec::new();
        while old.len() < PREFETCH_KEYS
            && (self.bytes > limit.bytes || self.values.len() > limit.values)
        {
            let Some(value) = self.values.pop_front() else { break };
            self.bytes -= value.bytes();
            old.push(value);
        }
        (!old.is_empty()).then_some(old)
    }

    /// Forgets the oldest while there are more than may be: the hand meets their values. Gives memory back that is not
    /// needed any more.
    fn trim(&mut self, limit: Limit) {
        while self.bytes > limit.bytes || self.values.len() > limit.values {
            let Some(value) = self.values.pop_front() else { break };
            self.bytes -= value.bytes();
        }
        self.values.shrink_to(2 * (limit.values + PREFETCH_KEYS));
    }
}

impl TierWorker {
    /// Puts the new values of a batch on probation and ends that of the oldest, which leave RAM while it is short. Returns
    /// what was demoted. Cost: a few values are demoted together, and not more than there are write buffers for.
    pub(crate) fn pass_probation(&self, new: &mut Vec<NewValue>) -> Demoted {
        let mut probation = self.probation.borrow_mut();
        let mut gone = Demoted::default();
        if !self.tier.has_flash() {
            new.clear();
            *probation = Probation::default();
            return gone;
        }
        let limit = Limit::of(self.tier.budget.max_bytes(), self.tier.workers);
        probation.add(new, limit);
        if !probation.is_over(limit) {
            return gone;
        }
        let leave = !self.tier.has_free_memory() && !self.tier.drains();
        // Where no write buffer is free the hand meets the rest later.
        while leave && gone.stopped.is_none() {
            let Some(old) = probation.take(limit) else { break };
            gone.add_last(self.end_probation(&old));
        }
        probation.trim(limit);
        gone
    }

    fn end_probation(&self, old: &[NewValue]) -> Demoted {
        let mut keys: Vec<Hint> = old.iter().map(NewValue::hint).collect();
        self.tier.keyspace.prefetch_keys(&mut keys, VALUE_LINES);
        self.demote_unused(&keys, Written::New)
    }
}

#[cfg(test)]
mod tests {
    use keyspace::{Db, Expiry, Key, SlotState, Tally};

    use super::*;

    fn new_values(count: usize) -> Vec<NewValue> {
        let (mut slot, mut tally) = (SlotState::default(), Tally::default());
        for number in 0..count {
            let key = format!("key:{number}");
            Db::new(&mut slot, 0, 1_000, &mut tally).put(
                &Key::new(key.as_bytes()),
                1,
                &[b'v'; 100],
                Expiry::Clear,
            );
        }
        tally.new_values
    }

    #[test]
    fn the_oldest_leave_first_and_only_what_is_too_much() {
        let all = new_values(300);
        let mut probation = Probation::default();
        let limit = Limit { bytes: 10_000, values: 1_000 };
        probation.add(&mut all.clone(), limit);
        assert!(probation.is_over(limit));
        let mut gone = Vec::new();
        while let Some(old) = probation.take(limit) {
            assert!(old.len() <= PREFETCH_KEYS);
            gone.extend(old);
        }
        assert_eq!(gone, all[..200]);
        assert_eq!((probation.values.len(), probation.bytes), (100, 10_000));
    }

    #[test]
    fn small_values_are_bounded_by_their_number() {
        let mut probation = Probation::default();
        let limit = Limit { bytes: 1 << 20, values: 50 };
        probation.add(&mut new_values(300), limit);
        assert!(probation.is_over(limit));
        probation.trim(limit);
        assert_eq!((probation.values.len(), probation.bytes), (50, 5_000));
        assert!(!probation.is_over(limit));
        probation.add(&mut new_values(PREFETCH_KEYS), limit);
        assert!(!probation.is_over(limit), "not worth it yet");
    }

    #[test]
    fn a_value_that_would_take_the_place_of_many_has_no_probation() {
        let mut probation = Probation::default();
        probation.add(&mut new_values(10), Limit { bytes: 799, values: 50 });
        assert_eq!(probation.values.len(), 0);
        probation.add(&mut new_values(10), Limit { bytes: 800, values: 50 });
        assert_eq!(probation.values.len(), 10);
    }

    #[test]
    fn a_limit_is_a_share_of_memory_for_each_worker() {
        let limit = Limit::of(64 << 20, 4);
        assert_eq!((limit.bytes, limit.values), (512 << 10, 4096));
    }
}
