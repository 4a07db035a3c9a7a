//! What a batch of keyspace changes did to the counters: summed without atomics while slots are
//! locked, then published once by whoever ran the batch.

use crate::key::Hint;
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

/// Something that the keyspace does to a key by itself, beside what it is asked for.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It did not exist before.
    New,
    /// It was removed because its time had come.
    Expired,
    /// It was removed because memory was short.
    Evicted,
    /// Elements of it were removed because their time had come.
    ElementsExpired,
    /// It was removed with the last of them.
    Emptied,
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
    /// Whether notes are taken: somebody listens. Whoever has them taken empties the list while the slots are
    /// held, so that they stand in the order of what happens to a key.
    pub takes_notes: bool,
    /// What has become of keys.
    pub notes: Vec<Note>,
    /// Cold keys that a write has given a value though nobody had used them lately: the first that
    /// may leave RAM again.
    pub cold_writes: Vec<Hint>,
}

impl Tally {
    /// RAM that the keyspace took (or gave back, when negative).
    pub fn ram_bytes(&self) -> i64 {
        self.index_bytes + self.value_bytes
    }

    /// Takes note of what becomes of a key, if somebody listens.
    #[inline]
    pub fn note(&mut self, table: u8, key: &[u8], noted: Noted) {
        if self.takes_notes && holds_keys(table) {
            self.push_note(table, key, noted);
        }
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
}
