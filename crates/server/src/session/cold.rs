//! Values that are on flash alone, and what values take.

use keyspace::{Key, Locked, SlotState, Stored};
use tier::{FetchedSet, TierWorker, Want};
use value::Kind;

/// What to fetch for a key whose value is on flash alone.
#[inline]
pub(crate) fn cold(tier: &TierWorker, slot: &SlotState, table: u8, key: &Key<'_>) -> Option<Want> {
    let (at, value_len) = slot.cold(table, key)?;
    Some(tier.want(key, at, value_len))
}

/// What to fetch for those of `keys` whose values are on flash alone and were not fetched.
pub(crate) fn all_cold(
    tier: &TierWorker,
    locked: &mut Locked<'_>,
    table: u8,
    keys: &[Key<'_>],
    fetched: &FetchedSet,
) -> Vec<Want> {
    let wants = keys.iter().filter_map(|key| cold(tier, locked.slot(key.slot), table, key));
    wants.filter(|want| !fetched.has(want.record)).collect()
}

/// What a key's value takes.
pub(crate) struct Extent {
    /// Bytes; of a collection in many leaves, of its root alone.
    pub(crate) len: u64,
    pub(crate) is_tree: bool,
    /// What to fetch for it if it is on flash alone.
    pub(crate) want: Option<Want>,
}

/// What the value of a key takes, if it exists.
#[inline]
pub(crate) fn extent(
    tier: &TierWorker,
    slot: &SlotState,
    table: u8,
    key: &Key<'_>,
) -> Option<Extent> {
    let view = slot.view(table, key)?;
    let (len, want) = match view.stored {
        Stored::Cold(at, len) => (len, Some(tier.want(key, at, len))),
        Stored::Hot(value) | Stored::Clean(value, _) => (value.len() as u32, None),
    };
    let is_tree = Kind::from_bits(view.kind).is_tree();
    Some(Extent { len: u64::from(len), is_tree, want })
}
