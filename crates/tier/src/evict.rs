//! Eviction: keys that go for good when neither RAM nor flash has room, by `maxmemory-policy`.
//!
//! Redis samples a few keys and evicts the best of them by access time or frequency. Here the two
//! bits of frequency that the demotion hand keeps stand for both: a second hand passes over the
//! slots, as in CLOCK, lowers frequencies and evicts the keys met at 0, wherever their values are.
//! `*-random` and `volatile-ttl` take keys of random slots.
//!
//! When flash is short of room, its garbage collection evicts as well (`gc.rs`): the records
//! that it meets in the oldest segment are gone without a copy, and the segment is free.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use keyspace::{EntryPosition, Evictable, PassLimit, SLOT_COUNT, Tally};

use crate::controller::EvictedKeys;
use crate::hand::Hand;
use crate::limits::{SAMPLE_MISSES_MAX, SAMPLED_SLOTS, SLICE_PLACES_MAX, SLICE_SLOTS_MAX};
use crate::policy::EvictionPolicy;
use crate::tier::Tier;
use crate::worker::TierWorker;

/// Rounds after which every frequency was 0 when the hand passed.
const ROUNDS_MAX: usize = 5;
/// What a key frees is averaged over about so many slices.
const AVERAGE_SLICES: i64 = 8;

/// A worker's hand of eviction. It passes over all slots, not over the worker's share alone: where
/// few slots hold all keys, each worker can make room.
pub(crate) struct EvictionHand {
    hand: Hand,
    at: Cell<EntryPosition>,
    /// Slots passed since the last key that went.
    idle_slots: Cell<usize>,
    /// The measurement of memory at which it last found nothing in all rounds.
    spent_at: Cell<u32>,
    /// What a key frees, about.
    key_bytes: Cell<i64>,
}

impl EvictionHand {
    pub(crate) fn new(worker: usize, workers: usize) -> EvictionHand {
        EvictionHand {
            hand: Hand::over_all(worker * SLOT_COUNT / workers),
            at: Cell::default(),
            idle_slots: Cell::new(0),
            spent_at: Cell::new(0),
            key_bytes: Cell::new(1),
        }
    }

    /// Whether no key was found in all rounds. Looks again, for one round, after each measurement.
    fn is_spent(&self, measures: u32) -> bool {
        if self.idle_slots.get() <= ROUNDS_MAX * SLOT_COUNT {
            return false;
        }
        if self.spent_at.replace(measures) != measures {
            self.idle_slots.set((ROUNDS_MAX - 1) * SLOT_COUNT);
        }
        true
    }

    fn note(&self, evicted: EvictedKeys) {
        if evicted.keys > 0 {
            let average = self.key_bytes.get();
            let bytes = evicted.sum() / evicted.keys as i64;
            self.key_bytes.set((average + (bytes - average) / AVERAGE_SLICES).max(1));
        }
    }
}

impl EvictedKeys {
    /// Bytes that are free or are about to be.
    pub(crate) fn sum(&self) -> i64 {
        self.freed_bytes + self.detached_bytes
    }

    fn add(&mut self, tally: &Tally) {
        self.freed_bytes -= tally.ram_bytes();
        self.detached_bytes += tally.detached_bytes();
    }
}

impl Tier {
    /// Which keys a policy lets go; none when there are none.
    pub(crate) fn evictable(&self, policy: EvictionPolicy) -> Option<Evictable> {
        match policy {
            EvictionPolicy::NoEviction => None,
            policy if !policy.is_volatile() => Some(Evictable::All),
            _ => self.counters.has_volatile().then_some(Evictable::Volatile),
        }
    }
}

impl TierWorker {
    /// Evicts keys until about `wanted` bytes of RAM are free or the slice has had its share of
    /// slots and places. Large collections that have gone count as free before their nodes are: upkeep
    /// frees these next.
    pub(crate) fn evict(&self, wanted: i64) -> EvictedKeys {
        let wanted = wanted - self.tier.detached_bytes();
        if wanted <= 0 {
            return EvictedKeys::default();
        }
        let policy = self.tier.settings.policy();
        let Some(which) = self.tier.evictable(policy) else {
            return EvictedKeys { is_spent: true, ..EvictedKeys::default() };
        };
        let mut evicted = EvictedKeys::default();
        let may_sample = match policy.samples(&self.tier.settings) {
            Some(samples) => self.evict_sampled(which, samples, wanted, &mut evicted),
            None => false,
        };
        if !may_sample {
            self.evict_by_hand(which, wanted, &mut evicted);
        }
        self.eviction_hand.note(evicted);
        evicted
    }

    /// Counts keys that have gone, with their slot held: who holds every slot knows of each.
    fn count_evicted(&self, keys: u64, evicted: &mut EvictedKeys) {
        if keys > 0 {
            evicted.keys += keys;
            self.tier.counters.evicted.fetch_add(keys, Ordering::Relaxed);
        }
    }

    fn evict_by_hand(&self, which: Evictable, wanted: i64, evicted: &mut EvictedKeys) {
        let EvictionHand { hand, at, idle_slots, .. } = &self.eviction_hand;
        let mut places = 0;
        for _ in 0..SLICE_SLOTS_MAX {
            if evicted.sum() >= wanted || places >= SLICE_PLACES_MAX {
                break;
            }
            if self.eviction_hand.is_spent(self.tier.budget.measures()) {
                evicted.is_spent = true;
                break;
            }
            let limit = PassLimit {
                bytes_max: wanted - evicted.sum(),
                places_max: SLICE_PLACES_MAX - places,
            };
            let mut from = at.get();
            evicted.slots += 1;
            self.tier.keyspace.prefetch(hand.next_slot());
            let Some(mut slot) = self.tier.keyspace.try_lock(hand.slot()) else {
                // Its turn comes again in the next round; in the middle of it, soon.
                if from == EntryPosition::default() {
                    hand.advance();
                }
                continue;
            };
            let mut tally = self.tier.tally();
            let key_bytes = self.eviction_hand.key_bytes.get();
            let done = slot.pass_eviction_hand(&mut from, which, limit, key_bytes, &mut tally);
            self.count_evicted(done.keys, evicted);
            self.tier.tell(&mut tally);
            drop(slot);
            at.set(from);
            places += done.passed;
            evicted.add(&tally);
            self.tier.add_tally(&mut tally);
            if done.keys > 0 {
                idle_slots.set(0);
            }
            if from == EntryPosition::default() {
                idle_slots.set(idle_slots.get() + 1);
                hand.advance();
            }
        }
    }

    /// Evicts keys of random slots. False: it met too few that may go, and the hand should look for
    /// them.
    fn evict_sampled(
        &self,
        which: Evictable,
        samples: usize,
        wanted: i64,
        evicted: &mut EvictedKeys,
    ) -> bool {
        let (mut misses, mut places) = (0, 0);
        while evicted.sum() < wanted && places < SLICE_PLACES_MAX {
            if misses >= SAMPLE_MISSES_MAX {
                return evicted.keys > 0;
            }
            let randoms: [u64; SAMPLED_SLOTS] = std::array::from_fn(|_| self.next_random());
            let slot_of = |random: u64| (random % SLOT_COUNT as u64) as u16;
            randoms.iter().for_each(|&random| self.tier.keyspace.prefetch(slot_of(random)));
            for random in randoms {
                if evicted.sum() >= wanted {
                    break;
                }
                places += 1;
                misses += 1;
                evicted.slots += 1;
                let Some(mut slot) = self.tier.keyspace.try_lock(slot_of(random)) else { continue };
                let mut tally = self.tier.tally();
                let done = slot.evict_sampled(random >> 14, which, samples, &mut tally);
                self.count_evicted(done.keys, evicted);
                self.tier.tell(&mut tally);
                drop(slot);
                places += done.passed;
                if done.keys > 0 {
                    misses = 0;
                    evicted.add(&tally);
                    self.tier.add_tally(&mut tally);
                }
            }
        }
        true
    }
}
