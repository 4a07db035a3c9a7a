//! The keys that a worker's connections are about to look up, so that their cache misses overlap:
//! those of one pipeline, and those of all the clients that were ready in one turn of the event
//! loop.

use std::cell::RefCell;

use command::collection::Element;
use keyspace::{Hint, Key, Keyspace, PREFETCH_KEYS};

/// Keys that are worth the steps: one gains nothing.
const KEYS_MIN: usize = 2;

/// What is gathered so far.
#[derive(Default)]
pub(crate) struct PrefetchQueue(RefCell<Gathered>);

#[derive(Default)]
struct Gathered {
    keys: Vec<Hint>,
    /// Elements that are looked up, each in the collection of one of the keys.
    elements: Vec<(usize, Element)>,
    /// The leaves of those that are large.
    leaves: Vec<Hint>,
}

impl PrefetchQueue {
    /// Adds a key, and an element of its collection, and asks for its slot. False: there is no place for more
    /// before [`PrefetchQueue::run`].
    #[inline]
    pub(crate) fn add(
        &self,
        keyspace: &Keyspace,
        table: u8,
        key: &Key<'_>,
        element: impl FnOnce() -> Option<Element>,
    ) -> bool {
        keyspace.prefetch(key.slot);
        let Gathered { keys, elements, .. } = &mut *self.0.borrow_mut();
        if keys.len() < PREFETCH_KEYS {
            elements.extend(element().map(|element| (keys.len(), element)));
            keys.push(Hint::new(table, key));
        }
        keys.len() < PREFETCH_KEYS
    }

    /// Prefetches what the gathered keys and elements need, and forgets them.
    #[inline]
    pub(crate) fn run(&self, keyspace: &Keyspace) {
        let Gathered { keys, elements, leaves } = &mut *self.0.borrow_mut();
        if keys.len() >= KEYS_MIN {
            keyspace.prefetch_keys(keys, true);
            for (at, element) in elements.iter() {
                // Who holds the slot brings its lines near.
                let Some(slot) = keyspace.try_lock(keys[*at].slot) else { continue };
                leaves.extend(element.leaf(&slot, &keys[*at]));
            }
            keyspace.prefetch_keys(leaves, true);
            leaves.clear();
        }
        elements.clear();
        keys.clear();
    }
}
