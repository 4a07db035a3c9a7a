//! Values that are on flash alone.

use keyspace::{Key, SlotState};
use tier::{Tier, Want};

/// What to fetch for a key whose value is on flash alone.
#[inline]
pub(crate) fn cold(tier: &Tier, slot: &SlotState, table: u8, key: &Key<'_>) -> Option<Want> {
    let (at, value_len) = slot.cold(table, key)?;
    Some(tier.want(key, at, value_len))
}
