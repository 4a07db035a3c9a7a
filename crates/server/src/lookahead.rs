//! The keys that a worker's connections are about to look up, so that their cache misses overlap:
//! those of one pipeline, and those of all the clients that were ready in one turn of the event
//! loop.
//!
//! A look-up waits for memory four times: for the slot, the table entry, the record and the value.
//! One key alone waits for each in turn; here each step is taken for all keys before the next.

use std::cell::RefCell;

use keyspace::{Key, Keyspace, SlotState};

/// Keys gathered at most; their lines must still be near when the commands run.
const KEYS_MAX: usize = 64;
/// Keys that are worth the steps: one gains nothing.
const KEYS_MIN: usize = 2;

/// See the module.
#[derive(Default)]
pub(crate) struct Lookahead(RefCell<Vec<Upcoming>>);

#[derive(Clone, Copy)]
struct Upcoming {
    table: u8,
    slot: u16,
    hash: u64,
}

impl Lookahead {
    /// Adds a key, and asks for its slot. False: there is no place for more before
    /// [`Lookahead::run`].
    #[inline]
    pub(crate) fn add(&self, keyspace: &Keyspace, table: u8, key: &Key<'_>) -> bool {
        keyspace.prefetch(key.slot);
        let mut keys = self.0.borrow_mut();
        if keys.len() < KEYS_MAX {
            keys.push(Upcoming { table, slot: key.slot, hash: key.hash });
        }
        keys.len() < KEYS_MAX
    }

    /// Brings near what the gathered keys need, and forgets them.
    #[inline]
    pub(crate) fn run(&self, keyspace: &Keyspace) {
        let mut keys = self.0.borrow_mut();
        if keys.len() >= KEYS_MIN {
            step(keyspace, &keys, SlotState::prefetch_entry);
            step(keyspace, &keys, SlotState::prefetch_record);
            step(keyspace, &keys, SlotState::prefetch_value);
        }
        keys.clear();
    }
}

fn step(keyspace: &Keyspace, keys: &[Upcoming], prefetch: impl Fn(&SlotState, u8, u64)) {
    for key in keys {
        // Whoever holds the slot brings its lines near.
        if let Some(slot) = keyspace.try_lock(key.slot) {
            prefetch(&slot, key.table, key.hash);
        }
    }
}
