//! Eviction: keys that go for good when neither RAM nor flash has room, by `maxmemory-policy`.
//!
//! Redis samples a few keys and evicts the best of them by access time or frequency. Here the two
//! bits of frequency that the demotion hand keeps stand for both: the lowest of the sample goes,
//! and among equals one that is in RAM, because it frees more.

use std::sync::atomic::Ordering;

use keyspace::{Db, Key, SLOT_COUNT, ScanPosition, SlotState, Stored, Tally};

use crate::policy::EvictionPolicy;
use crate::worker::TierWorker;

/// Samples of one slice that find nothing before it gives up: with few volatile keys in a large
/// data set, most samples miss.
const MISSES_MAX: usize = 2 * SLOT_COUNT;

/// A key of a sample.
struct Candidate {
    table: u8,
    key: Vec<u8>,
    /// Lower goes first.
    rank: u64,
}

impl TierWorker {
    /// Evicts keys until about `wanted` bytes of RAM are free. Returns how many keys went: none
    /// under `noeviction`, or when no key may go.
    pub(crate) fn evict(&self, wanted: i64) -> u64 {
        let policy = self.tier.settings.policy();
        if policy == EvictionPolicy::NoEviction {
            return 0;
        }
        let (mut freed, mut evicted, mut misses) = (0, 0, 0);
        while freed < wanted && misses < MISSES_MAX {
            match self.evict_one(policy) {
                Some(bytes) => {
                    freed += bytes;
                    evicted += 1;
                    misses = 0;
                }
                None => misses += 1,
            }
        }
        self.tier.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        evicted
    }

    fn evict_one(&self, policy: EvictionPolicy) -> Option<i64> {
        let slot = (self.next_random() % SLOT_COUNT as u64) as u16;
        let mut state = self.tier.keyspace.try_lock(slot)?;
        let samples = match policy {
            EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => 1,
            _ => self.tier.settings.samples(),
        };
        let candidate = self.sample(&mut state, policy, samples)?;
        let mut tally = Tally::default();
        let key = Key::new(&candidate.key);
        Db::new(&mut state, candidate.table, 0, &mut tally).remove(&key);
        drop(state);
        let freed = -tally.ram_bytes();
        self.tier.publish(&mut tally);
        Some(freed)
    }

    /// The key of this slot that should go first, among `samples` from a random place on.
    fn sample(
        &self,
        state: &mut SlotState,
        policy: EvictionPolicy,
        samples: u32,
    ) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for table in 0..keyspace::DB_COUNT as u8 {
            if state.len(table) == 0 {
                continue;
            }
            let from = ScanPosition::unpack(self.next_random());
            let mut left = samples;
            let mut consider = |view: keyspace::View<'_>, frequency: u8| {
                if policy.is_volatile() && view.expire_at_ms == 0 {
                    return false;
                }
                let rank = match policy {
                    EvictionPolicy::VolatileTtl => view.expire_at_ms,
                    _ => {
                        let cold = matches!(view.stored, Stored::Cold(..));
                        u64::from(frequency) * 2 + u64::from(cold)
                    }
                };
                if best.as_ref().is_none_or(|best| rank < best.rank) {
                    best = Some(Candidate { table, key: view.key.to_vec(), rank });
                }
                // The slot may end with the last of them, and is then begun again for one more.
                left = left.saturating_sub(1);
                left == 0
            };
            if state.scan_ranked(table, from, &mut consider).is_none() {
                state.scan_ranked(table, ScanPosition::default(), &mut consider);
            }
        }
        best
    }
}
