//! Keys whose value is lost, gathered for a repair.

use std::collections::BTreeSet;

use crate::limits::LOST_KEYS_BYTES_MAX;

/// Some bytes that a key takes in the set besides its own.
const KEY_OVERHEAD_BYTES: usize = 32;

/// Keys by the table of their database, which stays with them when databases are swapped.
#[derive(Clone, Default)]
pub(super) struct Lost {
    keys: BTreeSet<Box<[u8]>>,
    bytes: usize,
    is_over: bool,
}

/// A key, with the number of its table in front.
fn name(table: u8, key: &[u8]) -> Box<[u8]> {
    [&[table], key].concat().into()
}

impl Lost {
    /// Adds a key; beyond [`LOST_KEYS_BYTES_MAX`] it is only noted that there are more.
    pub(super) fn add(&mut self, table: u8, key: &[u8]) {
        let bytes = key.len() + KEY_OVERHEAD_BYTES;
        if self.bytes + bytes > LOST_KEYS_BYTES_MAX {
            self.is_over = true;
        } else if self.keys.insert(name(table, key)) {
            self.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, table: u8, key: &[u8]) {
        if self.keys.remove(&name(table, key)) {
            self.bytes -= key.len() + KEY_OVERHEAD_BYTES;
        }
    }

    /// Removes all keys of a table.
    pub(super) fn remove_all(&mut self, table: u8) {
        self.keys.retain(|name| name[0] != table);
        self.bytes = self.keys.iter().map(|name| name.len() - 1 + KEY_OVERHEAD_BYTES).sum();
    }

    pub(super) fn has(&self, table: u8, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.contains(&name(table, key))
    }

    /// Whether there were more than can be kept.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// All of them, each with its table.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.keys.iter().filter_map(|name| name.split_first()).map(|(table, key)| (*table, key))
    }
}
