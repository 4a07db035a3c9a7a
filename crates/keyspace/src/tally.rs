//! What a batch of keyspace changes did to the counters: summed without atomics while slots are
//! locked, then published once by whoever ran the batch.

use crate::key::{Hint, Key};
use crate::new_value::NewValue;
use crate::record::FlashRef;
use crate::slot::{DB_COUNT, holds_keys};

/// A flash copy that nothing points at any more; its space is to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadCopy {
    /// Where it lay.
    pub at: FlashRef,
    /// Length of the key stored beside it, which its size on flash depends on.
    pub key_len: u32,
}

/// A large collection that has no key any more: its nodes are still to be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachedTree {
    /// The slot where its nodes are.
    pub slot: u16,
    /// The table of the key that it had.
    pub table: u8,
    /// Its root.
    pub root: Box<[u8]>,
}

/// What is noted of keys: nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noting {
    /// That they are new.
    pub new: bool,
    /// That they, or elements of theirs, have expired, or that they were evicted.
    pub gone: bool,
    /// Which elements have expired.
    pub elements: bool,
    /// That values of these kinds, a bit for each, end, whatever ends them.
    pub ends_of: u32,
}

/// Something that becomes of a key beside what the keyspace is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The table of the key.
    pub table: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// What has become of it.
    pub noted: Noted,
}

/// What a [`Note`] tells of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It did not exist before.
    New,
    /// It was removed because its time had come.
    Expired {
        /// Which: Unix milliseconds.
        at_ms: u64,
    },
    /// It was removed because memory was short.
    Evicted,
    /// Elements of it were removed because their time had come: these, if somebody wants to know.
    ElementsExpired(Vec<Box<[u8]>>),
    /// It was removed with the last of them.
    Emptied,
    /// Its value has ended: the key is gone, or holds one of a kind whose end is not noted.
    Ended,
}

/// Where the root of a large collection says how many bytes its leaves have, in 8 bytes.
const TREE_BYTES_AT: usize = 16;

impl DetachedTree {
    /// Bytes of its leaves, in RAM or on flash.
    pub fn leaf_bytes(&self) -> u64 {
        let bytes = &self.root[TREE_BYTES_AT..TREE_BYTES_AT + 8];
        u64::from_le_bytes(bytes.try_into().expect("invariant: 8 bytes"))
    }
}

/// Cold writes that a tally remembers; what is beyond stays in RAM until the hand comes by.
const COLD_WRITES_MAX: usize = 256;
/// New values that a tally remembers, likewise.
const NEW_VALUES_MAX: usize = 1024;

/// Changes since the last publication. Every field is a difference, so batches can be summed.
#[derive(Default, Debug)]
pub struct Tally {
    /// Keys per logical table (see [`crate::Keyspace::table_of`]).
    pub keys: [i64; DB_COUNT],
    /// Keys with an expiry, likewise.
    pub volatile: [i64; DB_COUNT],
    /// Nodes of large collections.
    pub nodes: i64,
    /// Leaves of collections with elements that expire.
    pub timers: i64,
    /// Bytes of records, tables and timers, allocator rounding included.
    pub index_bytes: i64,
    /// Bytes of values outside their records, allocator rounding included.
    pub value_bytes: i64,
    /// Values held in RAM alone (inline ones included).
    pub hot_count: i64,
    /// Their bytes, as the client counts them.
    pub hot_bytes: i64,
    /// Values held in RAM and on flash.
    pub clean_count: i64,
    /// Their bytes.
    pub clean_bytes: i64,
    /// Values held on flash alone.
    pub cold_count: i64,
    /// Their bytes before compression.
    pub cold_bytes: i64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Reads that found their value in RAM.
    pub read_ram: u64,
    /// Reads that needed flash.
    pub read_flash: u64,
    /// Reads of values on flash alone whose keys were not used lately, also those that are made again once the value is
    /// fetched. It is never reset: who wants to know how many a run has made looks before and behind it.
    pub first_cold_reads: u64,
    /// Reads of keys that exist, however many leaves of them are read.
    pub found: u64,
    /// Reads of keys that do not exist.
    pub missed: u64,
    /// Writes to a key that is new or whose value was in RAM.
    pub write_ram: u64,
    /// Writes to a key whose value was on flash alone.
    pub write_flash: u64,
    /// Deletions of a key whose value was in RAM.
    pub delete_ram: u64,
    /// Deletions of a key whose value was on flash alone.
    pub delete_flash: u64,
    /// Bytes of keys and values that writes brought.
    pub written_bytes: u64,
    /// Large collections whose nodes are to be freed.
    pub trees: Vec<DetachedTree>,
    /// Flash copies to release.
    pub dead: Vec<DeadCopy>,
    /// Which notes are taken: those that somebody listens to. Whoever has them taken empties the list while the
    /// slots are held, so that they stand in the order of what happens to a key.
    pub noting: Noting,
    /// What has become of keys.
    pub notes: Vec<Note>,
    /// Cold keys that a write has given a value though nobody had used them lately: the first that
    /// may leave RAM again.
    pub cold_writes: Vec<Hint>,
    /// Values of keys that are new, in the order in which they came, unless they are too short to be demoted, or too long to be
    /// noted.
    pub new_values: Vec<NewValue>,
}

impl Tally {
    /// RAM that the keyspace took (or gave back, when negative).
    pub fn ram_bytes(&self) -> i64 {
        self.index_bytes + self.value_bytes
    }

    /// Takes note that a key is gone, or elements of it are, if somebody listens.
    #[inline]
    pub fn note_gone(&mut self, table: u8, key: &[u8], noted: Noted) {
        if self.noting.gone && holds_keys(table) {
            self.push_note(table, key, noted);
        }
    }

    /// Takes note that a key is new, likewise.
    #[inline]
    pub(crate) fn note_new(&mut self, table: u8, key: &[u8]) {
        if self.noting.new && holds_keys(table) {
            self.push_note(table, key, Noted::New);
        }
    }

    /// Notes that a value of some kind ends with its key.
    #[inline]
    pub(crate) fn note_end(&mut self, table: u8, key: &[u8], kind: u8) {
        if self.notes_end_of(kind) && holds_keys(table) {
            self.push_note(table, key, Noted::Ended);
        }
    }

    /// Notes that a value of another kind takes the place of one.
    #[inline]
    pub(crate) fn note_replaced(&mut self, table: u8, key: &[u8], (old, new): (u8, u8)) {
        if self.notes_end_of(old) && !self.notes_end_of(new) {
            self.note_end(table, key, old);
        }
    }

    #[inline]
    fn notes_end_of(&self, kind: u8) -> bool {
        (self.noting.ends_of >> kind) & 1 == 1
    }

    #[cold]
    fn push_note(&mut self, table: u8, key: &[u8], noted: Noted) {
        self.notes.push(Note { table, key: key.into(), noted });
    }

    /// Bytes of the large collections whose nodes are to be freed.
    pub fn detached_bytes(&self) -> i64 {
        self.trees.iter().map(|tree| tree.leaf_bytes() as i64).sum()
    }

    pub(crate) fn add_cold_write(&mut self, key: Hint) {
        if self.cold_writes.len() < COLD_WRITES_MAX {
            self.cold_writes.push(key);
        }
    }

    #[inline]
    pub(crate) fn add_new_value(&mut self, table: u8, key: &Key<'_>, bytes: usize) {
        if self.new_values.len() < NEW_VALUES_MAX {
            self.new_values.extend(NewValue::new(table, key, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Expiry};
    use crate::key::Key;
    use crate::slot::SlotState;

    /// Kinds whose end is noted.
    const ENDING: [u8; 2] = [6, 30];
    const OTHER: u8 = 1;

    /// How many ends are noted when a value has met with `change`.
    fn ends(value: &[u8], change: impl FnOnce(&mut Db<'_>, &Key<'_>)) -> usize {
        let ends_of = ENDING.map(|kind| 1 << kind).iter().sum();
        let noting = Noting { ends_of, ..Noting::default() };
        let (mut slot, mut tally) = (SlotState::default(), Tally { noting, ..Tally::default() });
        let (key, other) = (Key::new(b"key"), Key::new(b"other"));
        let mut db = Db::new(&mut slot, 0, 1_000, &mut tally);
        db.put(&key, ENDING[0], value, Expiry::Clear);
        db.put(&other, OTHER, value, Expiry::Clear);
        assert!(db.remove(&other));
        change(&mut db, &key);
        let end = Note { table: 0, key: (*b"key").into(), noted: Noted::Ended };
        assert!(tally.notes.iter().all(|note| *note == end), "{:?}", tally.notes);
        tally.notes.len()
    }

    #[test]
    fn ends_of_values_are_noted_whatever_brings_them() {
        for value in [&b"short"[..], &[b'v'; 500]] {
            let longer = [value, b"!"].concat();
            assert_eq!(ends(value, |db, key| db.put(key, OTHER, value, Expiry::Clear)), 1);
            assert_eq!(ends(value, |db, key| db.put(key, OTHER, &longer, Expiry::Keep)), 1);
            assert_eq!(
                ends(value, |db, key| db.put_vec(key, OTHER, longer.clone(), Expiry::Keep)),
                1
            );
            assert_eq!(ends(value, |db, key| assert!(db.remove(key))), 1);
            assert_eq!(ends(value, |db, key| assert!(db.take(key).is_some())), 1);
            assert_eq!(
                ends(value, |db, key| {
                    db.set_expiry(key, 1);
                    assert!(db.peek(key).is_none());
                }),
                1
            );
        }
    }

    #[test]
    fn a_value_that_stays_of_these_kinds_has_not_ended() {
        for value in [&b"short"[..], &[b'v'; 500]] {
            let longer = [value, b"!"].concat();
            for kind in ENDING {
                assert_eq!(ends(value, |db, key| db.put(key, kind, value, Expiry::Clear)), 0);
                assert_eq!(ends(value, |db, key| db.put(key, kind, &longer, Expiry::Clear)), 0);
            }
            let update = |db: &mut Db<'_>, key: &Key<'_>| {
                db.update(key, |_, value| value.push(1)).expect("it is there");
            };
            assert_eq!(ends(value, update), 0);
        }
    }
}
