//! The keyspace: 16,384 slots, each a small hash table behind its own mutex, with every key of the
//! data set in RAM and each value in RAM, on flash, or both.
//!
//! Invariants:
//! 1. No I/O happens here. A record only *names* the place of its value on flash.
//! 2. The slot mutex is the only lock; several slots are always locked in ascending order.
//! 3. Time, counters and the list of dead flash copies are handed in ([`Tally`]), so that every
//!    structure replays from a seed.
//! 4. `unsafe` lives in `record.rs`, `record/`, `borrowed.rs` and `table.rs` alone.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the one bridge from entries to the records they own")]
mod borrowed;
mod copy;
mod db;
mod defrag;
mod detached;
mod entry;
mod evict;
mod key;
mod key_group;
mod keyspace;
#[cfg(test)]
mod model;
mod new_value;
#[allow(unsafe_code, reason = "a record is bytes of one allocation, by address")]
mod record;
mod region;
mod scanned;
#[cfg(feature = "simulation")]
pub mod schedule;
mod segment;
mod slot;
#[allow(unsafe_code, reason = "it owns the records that its entries name")]
mod table;
mod tally;
mod timers;
mod watch;

pub use copy::Copying;
pub use db::{Carried, Changed, DEMOTE_BYTES_MIN, Db, Expiry, TREE_KIND_BITS};
pub use defrag::{
    Defrag, Defragged, DetachedBlocks, HEAP_BLOCKS_MAX, Heap, Scope, SegmentPosition,
};
pub use detached::DetachedTable;
pub use entry::{ADDRESS_BITS_MAX, FIRST_USE, can_hold_address};
pub use evict::{Evictable, Evicted};
pub use key::{Hint, Key, PREFETCH_KEYS, VALUE_LINES};
pub use keyspace::{FreeSlots, Keyspace, Locked, SlotGuard};
pub use new_value::NewValue;
pub use record::{FlashRef, KEY_BYTES_MAX, Stored, View};
pub use region::Region;
pub use scanned::Scanned;
pub use slot::{
    DB_COUNT, EntryPosition, Judge, PassLimit, SlotState, Swept, TABLE_COUNT, Verdict, node_table,
};
pub use stdx::SLOT_COUNT;
pub use table::{Position, ScanPosition};
pub use tally::{DeadCopy, DetachedTree, Note, Noted, Noting, Tally};
pub use timers::{KeyTimers, Timer, WHOLE};
pub use watch::WatchFlag;
