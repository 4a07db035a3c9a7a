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
    /// Whether one follows another of its slot, as those of a hash tag do.
    shares_slots: bool,
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
    /// Adds a key, and an element of its collection, and asks for its slot. Without room, does nothing.
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
        let Gathered { keys, shares_slots, elements, .. } = gathered;
        // A pipeline often works on one key, or on one element of it.
        let hint = Hint::new(table, key);
        let last = keys.last();
        *shares_slots |= last.is_some_and(|last| last.slot == hint.slot);
        if last.is_none_or(|last| !last.is_of_same_key(&hint)) {
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
        let Gathered { keys, shares_slots, elements, look_ups } = &mut *self.0.borrow_mut();
        if keys.len().max(elements.len()) >= LOOKUPS_MIN {
            let mut slots = keyspace.free_slots();
            match *shares_slots {
                true => slots.prefetch_keys(keys, VALUE_LINES),
                false => keyspace.prefetch_keys(keys, VALUE_LINES),
            }
            tier.prefetch(keys.iter().filter_map(|key| key.cold));
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
        *shares_slots = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gathered_is_bounded() {
        let (queue, keyspace) = (PrefetchQueue::default(), Keyspace::default());
        for number in 0..2 * PREFETCH_KEYS {
            assert_eq!(queue.has_room(), number < PREFETCH_KEYS, "{number}");
            queue.add(&keyspace, 0, &Key::new(number.to_string().as_bytes()), || None);
        }
        assert_eq!(queue.0.borrow().keys.len(), PREFETCH_KEYS);
        assert!(!queue.0.borrow().shares_slots);
    }

    #[test]
    fn keys_of_a_hash_tag_are_known_to_share_their_slot() {
        let (queue, keyspace) = (PrefetchQueue::default(), Keyspace::default());
        for (name, is_shared) in [("{tag}1", false), ("{tag}2", true), ("other", true)] {
            queue.add(&keyspace, 0, &Key::new(name.as_bytes()), || None);
            assert_eq!(queue.0.borrow().shares_slots, is_shared, "{name}");
        }
    }
}
