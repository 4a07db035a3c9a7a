//! A table that was detached: its keys are gone for everybody, its memory is not yet free.
//!
//! To clear a table takes two steps, so that the slot is unlocked again before any record is
//! touched (millions of them, each a cache miss):
//! 1. under the lock, the table leaves its slot and the keys leave the counters;
//! 2. after it, [`DetachedTable::free`] takes the values out of the counters, lists the flash copies that
//!    died, and frees the records.
//!
//! Invariant: a detached table is freed with a [`Tally`]. Dropping it instead would lose flash space
//! for good, so that is left to the end of the process.

use crate::db::{account_keys, account_values, push_dead};
use crate::slot::node_table;
use crate::table::Table;
use crate::tally::Tally;

/// A table that has left its slot.
#[must_use = "its records and flash copies are still to be freed"]
pub struct DetachedTable {
    keys: Table,
    /// The nodes of their collections.
    nodes: Option<Table>,
}

impl DetachedTable {
    /// Takes the keys of a table, and the nodes of their collections, out of the counters.
    pub(crate) fn new(
        keys: Table,
        nodes: Option<Table>,
        table: u8,
        tally: &mut Tally,
    ) -> DetachedTable {
        tally.index_bytes -= keys.ram_bytes() as i64;
        let volatile = keys.iter().filter(|entry| entry.is_volatile()).count();
        account_keys(table, -(keys.len() as i64), -(volatile as i64), tally);
        if let Some(nodes) = &nodes {
            tally.index_bytes -= nodes.ram_bytes() as i64;
            account_keys(node_table(table), -(nodes.len() as i64), 0, tally);
        }
        DetachedTable { keys, nodes }
    }

    /// How many keys there were.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees the records and counts what goes with them. Cost: a cache miss or two a record; no
    /// lock is needed.
    pub fn free(mut self, tally: &mut Tally) {
        let mut nodes = self.nodes.take();
        let nodes = nodes.iter_mut().flat_map(Table::drain);
        for record in self.keys.drain().into_iter().chain(nodes) {
            account_values(&record, -1, tally);
            push_dead(&record.view(), tally);
            record.free();
        }
    }
}
