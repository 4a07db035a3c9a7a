//! Probation: new values leave RAM about in the order in which they were written, unless they are used.
//!
//! What is written together is asked for together: imports, time series, sessions, a walk over keys in the order of a
//! fill. The hand meets values in the order of their slots, which is that of hashes, so each page of flash that it fills
//! holds what has nothing in common. So a new value first stands in a queue of its worker, which holds a 32nd of
//! `maxmemory`, and while memory is short leaves RAM at its end, if it was not used meanwhile. Then pages of flash hold
//! what one worker was given within a moment, and those whose keys are numbered one after another side by side (`queue`).
//! Left to the hand are values that were used (the queue is the small one of S3-FIFO, Yang et al. 2023), large ones, which
//! would take the place of many, and those that expire within minutes, many of which are gone before it comes. Values that nobody used thus do not wash out what is hot, and they
//! leave pages in the order in which these were filled, so that whole pages come free.
//!
//! While memory is free none leaves and the queue grows. It stays as long when memory becomes short, and each new value
//! ends the probation of an older one; other demotion takes from it ahead of the hand until it holds its share.

mod queue;

use keyspace::{Hint, NewValue, PREFETCH_KEYS, VALUE_LINES};

use self::queue::Queue;
use crate::demote::{Demoted, Written};
use crate::worker::TierWorker;

/// The part of `maxmemory` that values on probation may take, on all workers: 1/32.
const PROBATION_SHIFT: u32 = 5;
/// The part of it that the queues themselves may take, 1/256: small values are many.
const QUEUES_SHIFT: u32 = 8;
/// The same for queues that have grown while memory was free: 1/32, enough for values of 512 bytes that fill it.
const GROWN_QUEUES_SHIFT: u32 = 5;
/// A value of more than this part of what a worker may have on probation has none: 1/8.
const LARGE_SHIFT: u32 = 3;
/// A chunk of the queue is at most this part of a worker's share: half. So a value leaves when at least half of the share was
/// written behind it.
const CHUNK_SHIFT: u32 = 1;
/// Bytes of values that are too many before any of them leave: to demote takes something of its own each time.
const TAKEN_BYTES_MIN: usize = 16 << 10;

/// Batches of values that are taken from the queue at once, at most: a queue that has grown holds millions, and those that
/// were used or deleted since free nothing. More than a batch of requests adds, so that it does come down.
const TAKEN_BATCHES_MAX: usize = 64;
const TAKEN_VALUES_MAX: usize = TAKEN_BATCHES_MAX * PREFETCH_KEYS;

/// New values of one worker, about the oldest first.
#[derive(Default)]
pub(crate) struct Probation {
    values: Queue,
    bytes: usize,
    /// How long it may be while memory is short, if that is more than its share: as it was when that began.
    kept: Limit,
}

/// How much a worker's values on probation may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limit {
    bytes: usize,
    values: usize,
}

impl Limit {
    /// The share of a worker.
    fn of(maxmemory: u64, workers: usize) -> Limit {
        let share = |shift: u32| (maxmemory >> shift) as usize / workers;
        Limit { bytes: share(PROBATION_SHIFT), values: share(QUEUES_SHIFT) / size_of::<NewValue>() }
    }

    /// The same while memory is free.
    fn of_free(maxmemory: u64, workers: usize) -> Limit {
        let queue_bytes = (maxmemory >> GROWN_QUEUES_SHIFT) as usize / workers;
        Limit { bytes: usize::MAX - TAKEN_BYTES_MIN, values: queue_bytes / size_of::<NewValue>() }
    }

    /// That of a chunk.
    fn chunk(self) -> Limit {
        Limit { bytes: self.bytes >> CHUNK_SHIFT, values: self.values >> CHUNK_SHIFT }
    }

    fn max(self, other: Limit) -> Limit {
        Limit { bytes: self.bytes.max(other.bytes), values: self.values.max(other.values) }
    }
}

impl Probation {
    /// Adds new values, but for those that would take the place of many: they are left to the hand.
    fn add(&mut self, new: &mut Vec<NewValue>, share: Limit) {
        for value in new.drain(..).filter(|value| value.bytes() <= share.bytes >> LARGE_SHIFT) {
            self.bytes += value.bytes();
            self.values.push(value, share.chunk());
        }
    }

    fn length(&self) -> Limit {
        Limit { bytes: self.bytes, values: self.values.len() }
    }

    /// Whether there are so many more than may be that it is worth to end the probation of some.
    fn is_over(&self, limit: Limit) -> bool {
        self.bytes > limit.bytes + TAKEN_BYTES_MIN
            || self.values.len() > limit.values + PREFETCH_KEYS
    }

    fn pop_over(
        &mut self,
        limit: Limit,
        pop: impl FnOnce(&mut Queue) -> Option<NewValue>,
    ) -> Option<NewValue> {
        if self.bytes <= limit.bytes && self.values.len() <= limit.values {
            return None;
        }
        let value = pop(&mut self.values)?;
        self.bytes -= value.bytes();
        Some(value)
    }

    /// Takes the oldest while there are more than may be, a few of them. None: there are no more.
    fn take(&mut self, limit: Limit) -> Option<Vec<NewValue>> {
        let old: Vec<NewValue> =
            std::iter::from_fn(|| self.pop_over(limit, Queue::pop)).take(PREFETCH_KEYS).collect();
        (!old.is_empty()).then_some(old)
    }

    /// Puts back the oldest, which had to stay. Those of them that left RAM are found cold the next time.
    fn put_back(&mut self, old: Vec<NewValue>) {
        self.bytes += old.iter().map(NewValue::bytes).sum::<usize>();
        self.values.put_back(old);
    }

    /// Forgets the oldest while there are more than may be, as many as are taken at once: the hand meets their values.
    fn trim(&mut self, limit: Limit) {
        (0..TAKEN_VALUES_MAX).find(|_| self.pop_over(limit, Queue::pop_oldest).is_none());
    }
}

impl TierWorker {
    /// Puts the new values of a batch on probation and ends that of the oldest, which leave RAM while it is short. Returns
    /// what was demoted. Cost: a few values are demoted together, and not more than there are write buffers for.
    pub(crate) fn pass_probation(&self, new: &mut Vec<NewValue>) -> Demoted {
        let mut probation = self.probation.borrow_mut();
        if !self.tier.has_flash() {
            new.clear();
            *probation = Probation::default();
            return Demoted::default();
        }
        let (max_bytes, workers) = (self.tier.budget.max_bytes(), self.tier.workers);
        let (share, free) = (Limit::of(max_bytes, workers), Limit::of_free(max_bytes, workers));
        probation.add(new, share);
        probation.trim(free);
        if self.tier.has_free_memory() {
            probation.kept = probation.length();
            return Demoted::default();
        }
        if self.tier.drains() {
            probation.trim(share);
            return Demoted::default();
        }
        let limit = share.max(probation.kept);
        if !probation.is_over(limit) {
            return Demoted::default();
        }
        self.demote_over(&mut probation, limit, i64::MAX)
    }

    /// Demotes what the queue holds beyond its share, the oldest first, until about `wanted` bytes are free. It comes
    /// ahead of the hand, which frees the rest.
    pub(crate) fn demote_over_share(&self, wanted: i64) -> Demoted {
        let mut probation = self.probation.borrow_mut();
        let share = Limit::of(self.tier.budget.max_bytes(), self.tier.workers);
        let gone = self.demote_over(&mut probation, share, wanted);
        probation.kept = probation.length();
        gone
    }

    fn demote_over(&self, probation: &mut Probation, limit: Limit, wanted: i64) -> Demoted {
        let mut gone = Demoted::default();
        for _ in 0..TAKEN_BATCHES_MAX {
            if gone.freed_bytes >= wanted {
                break;
            }
            let Some(old) = probation.take(limit) else { break };
            gone.add_last(self.end_probation(&old));
            if gone.stopped.is_some() {
                probation.put_back(old);
                break;
            }
        }
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

    /// New values of 100 bytes each, of one group.
    fn new_values(count: usize) -> Vec<NewValue> {
        new_values_of(count, 1)
    }

    /// The same of some groups, which take turns.
    fn new_values_of(count: usize, groups: usize) -> Vec<NewValue> {
        let (mut slot, mut tally) = (SlotState::default(), Tally::default());
        for number in 0..count {
            let key = format!("{}:{number}", number % groups);
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
    fn what_was_written_last_leaves_last_be_values_bounded_by_bytes_or_by_number() {
        for limit in
            [Limit { bytes: 100_000, values: 100 }, Limit { bytes: 10_000, values: 100_000 }]
        {
            let mut probation = Probation::default();
            let all = new_values_of(1_000, 7);
            for (number, value) in all.iter().enumerate() {
                probation.add(&mut vec![*value], limit);
                let Some(gone) = probation.is_over(limit).then(|| probation.take(limit)) else {
                    continue;
                };
                let last_half = &all[number - 45..=number];
                let gone = gone.expect("more than may be");
                assert!(gone.iter().all(|value| !last_half.contains(value)), "{number}");
            }
        }
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
    fn values_that_had_to_stay_are_the_oldest_again() {
        let all = new_values(200);
        let mut probation = Probation::default();
        let (share, limit) =
            (Limit { bytes: 10_000, values: 1_000 }, Limit { bytes: 5_000, values: 1_000 });
        probation.add(&mut all.clone(), share);
        let old = probation.take(limit).expect("more than may be");
        probation.put_back(old);
        assert_eq!(probation.length(), Limit { bytes: 20_000, values: 200 });
        let gone: Vec<NewValue> = std::iter::from_fn(|| probation.values.pop()).collect();
        assert_eq!(gone, all);
    }

    #[test]
    fn no_more_are_forgotten_at_once_than_may_be_taken() {
        let all = new_values(1_000);
        let mut probation = Probation::default();
        let none = Limit::default();
        for _ in 0..6 {
            probation.add(&mut all.clone(), Limit { bytes: 10_000, values: 0 });
        }
        let count = probation.values.len();
        assert!(count > TAKEN_VALUES_MAX);
        probation.trim(none);
        assert_eq!(probation.values.len(), count - TAKEN_VALUES_MAX);
        probation.trim(none);
        assert_eq!(probation.length(), none);
    }

    #[test]
    fn a_limit_is_a_share_of_memory_for_each_worker() {
        let limit = Limit::of(64 << 20, 4);
        assert_eq!((limit.bytes, limit.values), (512 << 10, 4096));
        let free = Limit::of_free(64 << 20, 4);
        assert_eq!(free.values, 32_768);
        assert_eq!(limit.max(free), free);
    }
}
