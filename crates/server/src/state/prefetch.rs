//! The keys that a worker's connections are about to look up, so that their cache misses overlap:
//! those of one pipeline, and those of all the clients that were ready in one turn of the event
//! loop.

use std::cell::RefCell;

use command::collection::{Element, LookUp};
use keyspace::{Hint, Key, Keyspace, PREFETCH_KEYS, VALUE_LINES};
use tier::TierWorker;

/// Keys, or elements of one, that are worth the steps: one gains nothing.
const LOOKUPS_MIN: usize = 2;

/// What is gathered so far.
#[derive(Default)]
pub(crate) struct PrefetchQueue(RefCell<Gathered>);

#[derive(Default)]
struct Gathered {
    keys: Vec<Hint>,
    /// Elements that are looked up, each in the collection of one of the keys.
    elements: Vec<(usize, Element)>,
    /// Those of large ones, on their way.
    look_ups: Vec<LookUp>,
}

impl Gathered {
    fn has_room(&self) -> bool {
        self.keys.len().max(self.elements.len()) < PREFETCH_KEYS
    }
}

impl PrefetchQueue {
    /// Adds a key, and an element of its collection, and asks for its slot: if there is room.
    #[inline]
    pub(crate) fn add(
        &self,
        keyspace: &Keyspace,
        table: u8,
        key: &Key<'_>,
        element: impl FnOnce() -> Option<Element>,
    ) {
        let gathered = &mut *self.0.borrow_mut();
        if !gathered.has_room() {
            return;
        }
        let Gathered { keys, elements, .. } = gathered;
        // A pipeline often works on one key, or on one element of it.
        let hint = Hint::new(table, key);
        if keys.last().is_none_or(|last| !last.is_of_same_key(&hint)) {
            keyspace.prefetch(key.slot);
            keys.push(hint);
        }
        if let Some(element) = element() {
            let at = keys.len() - 1;
            let element = match elements.last() {
                Some((last_at, last)) if *last_at == at => element.after(*last),
                _ => Some(element),
            };
            elements.extend(element.map(|element| (at, element)));
        }
    }

    /// Whether there is room for more before [`PrefetchQueue::run`].
    pub(crate) fn has_room(&self) -> bool {
        self.0.borrow().has_room()
    }

    /// Prefetches what the gathered keys and elements need, and forgets them.
    #[inline]
    pub(crate) fn run(&self, tier: &TierWorker) {
        let keyspace = &tier.tier.keyspace;
        let Gathered { keys, elements, look_ups } = &mut *self.0.borrow_mut();
        if keys.len().max(elements.len()) >= LOOKUPS_MIN {
            keyspace.prefetch_keys(keys, VALUE_LINES);
            tier.prefetch(keys.iter().filter_map(|key| key.cold));
            let mut slots = keyspace.free_slots();
            for (at, element) in elements.iter().filter(|(at, _)| Element::may_be_in(&keys[*at])) {
                if let Some(slot) = slots.get(keys[*at].slot) {
                    look_ups.extend(element.look_up(slot, &keys[*at]));
                    look_ups.extend(element.look_up_place(slot, &keys[*at]));
                }
            }
            LookUp::prefetch_all(look_ups, &mut slots);
        }
        elements.clear();
        keys.clear();
    }
}
