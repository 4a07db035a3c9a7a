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
use crate::table::Table;
use crate::tally::Tally;

/// A table that has left its slot.
#[must_use = "its records and flash copies are still to be freed"]
pub struct DetachedTable(Table);

impl DetachedTable {
    /// Takes the keys of `entries` out of the counters.
    pub(crate) fn new(entries: Table, table: u8, tally: &mut Tally) -> DetachedTable {
        tally.index_bytes -= entries.ram_bytes() as i64;
        let volatile = entries.iter().filter(|entry| entry.is_volatile()).count();
        account_keys(table, -(entries.len() as i64), -(volatile as i64), tally);
        DetachedTable(entries)
    }

    /// How many keys there were.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees the records and counts what goes with them. Cost: a cache miss or two a record; no
    /// lock is needed.
    pub fn free(mut self, tally: &mut Tally) {
        for record in self.0.drain() {
            account_values(&record, -1, tally);
            push_dead(&record.view(), tally);
            record.free();
        }
    }
}
