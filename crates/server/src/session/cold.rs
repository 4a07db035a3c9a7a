//! Values that are on flash alone.

use keyspace::{Key, SlotState};
use tier::Want;

/// What to fetch for a key whose value is on flash alone.
#[inline]
pub(crate) fn cold(slot: &SlotState, table: u8, key: &Key<'_>) -> Option<Want> {
    let (at, value_len) = slot.cold(table, key)?;
    Some(Want { at, key_len: key.bytes.len() as u32, value_len })
}
