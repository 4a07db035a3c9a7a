//! Which record of the journal has a value.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use flash::Position;
use keyspace::Key;
use rapidhash::RapidHashMap;
use rapidhash::quality::RandomState;
use tier::{Counted, Tier};

/// Values by their keys, each as the last record that sets the key has it.
pub(crate) struct RecentValues {
    /// By the hash of the key.
    found: RapidHashMap<u64, Found>,
    state: RandomState,
    bytes: u64,
    /// Records in front of this do not stay.
    kept_from: Position,
    memory: Counted,
}

struct Found {
    /// A hash of the value, drawn at random for these.
    check: u64,
    /// Where the record begins.
    position: Position,
    value_len: u32,
}

impl RecentValues {
    /// Bytes that one takes: an entry of 33, and as much again that is free in the table.
    pub(crate) const VALUE_BYTES: u64 = 64;

    pub(crate) fn new(tier: &Arc<Tier>) -> RecentValues {
        let (found, memory) = (RapidHashMap::default(), Counted::new(tier.clone()));
        RecentValues { found, state: RandomState::new(), bytes: 0, kept_from: Position(0), memory }
    }

    pub(crate) fn len(&self) -> u64 {
        self.found.len() as u64
    }

    /// Bytes of the values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says from where on records stay: those in front are not referred to.
    pub(crate) fn keep_from(&mut self, position: Position) {
        self.kept_from = position;
    }

    /// Whether a record that sets a key, and begins there, is the last one by now. What an earlier command of it sets the
    /// key to is forgotten.
    pub(crate) fn is_to_be_noted(&mut self, key: &Key<'_>, position: Position) -> bool {
        let Some(found) = self.found.get(&key.hash) else { return true };
        if found.position == position {
            self.forget(key);
            return true;
        }
        found.position < position
    }

    fn forget(&mut self, key: &Key<'_>) {
        if let Some(found) = self.found.remove(&key.hash) {
            self.memory.subtract(Self::VALUE_BYTES);
            self.bytes -= u64::from(found.value_len);
        }
    }

    /// Notes that a record sets a key to a value.
    pub(crate) fn note(&mut self, key: &Key<'_>, value: &[u8], position: Position) {
        self.forget(key);
        let (check, value_len) = (self.check(value), value.len() as u32);
        self.found.insert(key.hash, Found { check, position, value_len });
        self.memory.add(Self::VALUE_BYTES);
        self.bytes += u64::from(value_len);
    }

    /// Where the record begins that sets a key to this value, and nothing behind it that was noted sets it to another.
    pub(crate) fn find(&self, key: &Key<'_>, value: &[u8]) -> Option<Position> {
        let found = self.found.get(&key.hash)?;
        let is_kept = found.position >= self.kept_from;
        let is_it = || found.value_len as usize == value.len() && found.check == self.check(value);
        (is_kept && is_it()).then_some(found.position)
    }

    fn check(&self, value: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(value);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::client_memory::tests::server;

    #[test]
    fn the_last_record_that_sets_a_key_counts_in_whatever_order_they_are_read() {
        let tier = server().tier;
        let before = tier.budget.background_bytes();
        let (key, other) = (Key::new(b"key"), Key::new(b"other"));
        for order in [[5, 7, 9], [9, 5, 7], [7, 9, 5]] {
            let mut values = RecentValues::new(&tier);
            for position in order {
                if values.is_to_be_noted(&key, Position(position)) {
                    values.note(&key, format!("{position}").as_bytes(), Position(position));
                }
            }
            assert_eq!(values.find(&key, b"9"), Some(Position(9)), "{order:?}");
            assert_eq!(values.find(&key, b"7"), None);
            assert_eq!(values.find(&other, b"9"), None);
            assert_eq!((values.len(), values.bytes()), (1, 1));
            let counted = tier.budget.background_bytes() - before;
            assert_eq!(counted, RecentValues::VALUE_BYTES as i64);
        }
        assert_eq!(tier.budget.background_bytes(), before);
    }

    #[test]
    fn of_a_record_that_sets_a_key_twice_the_first_value_is_forgotten() {
        let (tier, key, position) = (server().tier, Key::new(b"key"), Position(3));
        let mut values = RecentValues::new(&tier);
        assert!(values.is_to_be_noted(&key, position));
        values.note(&key, b"first", position);
        values.keep_from(Position(4));
        assert_eq!(values.find(&key, b"first"), None, "it does not stay");
        values.keep_from(position);
        assert_eq!(values.find(&key, b"first"), Some(position));
        // The second is not worth a note.
        assert!(values.is_to_be_noted(&key, position));
        assert_eq!(values.find(&key, b"first"), None);
        assert_eq!((values.len(), values.bytes()), (0, 0));
    }
}
