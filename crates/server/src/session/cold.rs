//! Values that are on flash alone, and what values take.

use keyspace::{Key, Locked, SlotState};
use tier::{FetchedSet, Tier, Want};

/// What to fetch for a key whose value is on flash alone.
#[inline]
pub(crate) fn cold(tier: &Tier, slot: &SlotState, table: u8, key: &Key<'_>) -> Option<Want> {
    let (at, value_len) = slot.cold(table, key)?;
    Some(tier.want(key, at, value_len))
}

/// What to fetch for those of `keys` whose values are on flash alone and were not fetched.
pub(crate) fn all_cold(
    tier: &Tier,
    locked: &mut Locked<'_>,
    table: u8,
    keys: &[Key<'_>],
    fetched: &FetchedSet,
) -> Vec<Want> {
    let wants = keys.iter().filter_map(|key| cold(tier, locked.slot(key.slot), table, key));
    wants.filter(|want| !fetched.has(want.record)).collect()
}

/// The length of a key's value, and what to fetch for it if it is on flash alone.
#[inline]
pub(crate) fn extent(
    tier: &Tier,
    slot: &SlotState,
    table: u8,
    key: &Key<'_>,
) -> Option<(Option<Want>, u64)> {
    let (place, value_len) = slot.extent(table, key)?;
    Some((place.map(|at| tier.want(key, at, value_len)), u64::from(value_len)))
}
