//! The keys that a worker's connections are about to look up, so that their cache misses overlap:
//! those of one pipeline, and those of all the clients that were ready in one turn of the event
//! loop.

use std::cell::RefCell;

use keyspace::{Hint, Key, Keyspace, PREFETCH_KEYS};

/// Keys that are worth the steps: one gains nothing.
const KEYS_MIN: usize = 2;

/// Keys gathered so far.
#[derive(Default)]
pub(crate) struct PrefetchQueue(RefCell<Vec<Hint>>);

impl PrefetchQueue {
    /// Adds a key, and asks for its slot. False: there is no place for more before
    /// [`PrefetchQueue::run`].
    #[inline]
    pub(crate) fn add(&self, keyspace: &Keyspace, table: u8, key: &Key<'_>) -> bool {
        keyspace.prefetch(key.slot);
        let mut keys = self.0.borrow_mut();
        if keys.len() < PREFETCH_KEYS {
            keys.push(Hint::new(table, key));
        }
        keys.len() < PREFETCH_KEYS
    }

    /// Prefetches what the gathered keys need, and forgets them.
    #[inline]
    pub(crate) fn run(&self, keyspace: &Keyspace) {
        let mut keys = self.0.borrow_mut();
        if keys.len() >= KEYS_MIN {
            keyspace.prefetch_keys(&mut keys, true);
        }
        keys.clear();
    }
}
