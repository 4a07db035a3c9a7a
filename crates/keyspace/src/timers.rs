//! When elements of the collections of a slot expire: a timer for each leaf with such elements, set to the time
//! of the first of them.
//!
//! Invariants:
//! 1. A timer goes with its key: what removes a key, or gives it another value, takes its timers away. So there
//!    is at most one for each leaf.
//! 2. Whoever changes a leaf sets its timer. So a timer is right, wherever the leaf is, and whoever looks for
//!    what has expired reads no leaf in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::key::Key;
use crate::slot::{Others, SlotState, holds_keys};
use crate::tally::Tally;

/// Names the leaf of a collection in one leaf; those of large ones are named by the numbers of their nodes.
pub const WHOLE: u32 = u32::MAX;

/// What a key takes in both orders, allocator rounding and half-empty tree nodes included.
const KEY_BYTES: usize = 112;
/// What a leaf of a collection with several timers takes likewise.
const LEAF_BYTES: usize = 48;

/// A timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// Unix milliseconds.
    pub at_ms: u64,
    /// The table of the key.
    pub table: u8,
    /// The key.
    pub key: Box<[u8]>,
    /// Which leaf of its collection, or [`WHOLE`].
    pub leaf: u32,
}

/// The timers of one key, on their way to another.
#[derive(Debug)]
pub struct KeyTimers(Leaves);

/// A key by its table and its bytes.
type Name = Arc<[u8]>;

/// All timers of a slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    keys: BTreeMap<Name, Leaves>,
    /// Keys by the first time of each.
    due: BTreeSet<(u64, Name)>,
    leaves: usize,
    bytes: usize,
}

/// The timers of a key. Most have one.
#[derive(Debug)]
enum Leaves {
    One(u32, u64),
    Many(Box<Many>),
}

#[derive(Debug, Default)]
struct Many {
    at_ms: BTreeMap<u32, u64>,
    due: BTreeSet<(u64, u32)>,
}

impl Leaves {
    /// The first time of all; 0: there is no timer.
    fn first_ms(&self) -> u64 {
        match self {
            Leaves::One(_, at_ms) => *at_ms,
            Leaves::Many(many) => many.due.first().map_or(0, |(at_ms, _)| *at_ms),
        }
    }

    fn len(&self) -> usize {
        match self {
            Leaves::One(..) => 1,
            Leaves::Many(many) => many.due.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Leaves::One(..) => 0,
            Leaves::Many(many) => size_of::<Many>() + LEAF_BYTES * many.due.len(),
        }
    }

    fn set(&mut self, leaf: u32, at_ms: u64) {
        match self {
            Leaves::One(one, one_ms) if *one == leaf => *one_ms = at_ms,
            Leaves::One(..) if at_ms == 0 => {}
            Leaves::One(one, one_ms) => {
                let mut many = Box::<Many>::default();
                many.set(*one, *one_ms);
                many.set(leaf, at_ms);
                *self = Leaves::Many(many);
            }
            Leaves::Many(many) => many.set(leaf, at_ms),
        }
    }

    /// The time and the leaf of each, the first in front.
    fn in_order(&self) -> impl Iterator<Item = (u64, u32)> {
        let (one, many) = match self {
            Leaves::One(leaf, at_ms) => (Some((*at_ms, *leaf)), None),
            Leaves::Many(many) => (None, Some(&many.due)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}

impl Many {
    fn set(&mut self, leaf: u32, at_ms: u64) {
        let before = match at_ms {
            0 => self.at_ms.remove(&leaf),
            _ => self.at_ms.insert(leaf, at_ms),
        };
        if let Some(before) = before {
            self.due.remove(&(before, leaf));
        }
        if at_ms > 0 {
            self.due.insert((at_ms, leaf));
        }
    }
}

/// The name of a key.
fn name_of(table: u8, key: &[u8]) -> SmallVec<[u8; 64]> {
    let mut name = SmallVec::with_capacity(1 + key.len());
    name.push(table);
    name.extend_from_slice(key);
    name
}

impl Timers {
    fn set(&mut self, table: u8, key: &[u8], leaf: u32, at_ms: u64) {
        let name = name_of(table, key);
        match self.take(&name) {
            Some((name, mut leaves)) => {
                leaves.set(leaf, at_ms);
                if leaves.first_ms() > 0 {
                    self.put(name, leaves);
                }
            }
            None if at_ms > 0 => self.put(Name::from(&name[..]), Leaves::One(leaf, at_ms)),
            None => {}
        }
    }

    fn take(&mut self, name: &[u8]) -> Option<(Name, Leaves)> {
        let (name, leaves) = self.keys.remove_entry(name)?;
        self.leaves -= leaves.len();
        self.bytes -= KEY_BYTES + name.len() + leaves.bytes();
        let due = (leaves.first_ms(), name);
        self.due.remove(&due);
        Some((due.1, leaves))
    }

    fn put(&mut self, name: Name, leaves: Leaves) {
        self.leaves += leaves.len();
        self.bytes += KEY_BYTES + name.len() + leaves.bytes();
        self.due.insert((leaves.first_ms(), name.clone()));
        let before = self.keys.insert(name, leaves);
        assert!(before.is_none(), "a key's timers are taken first");
    }

    fn take_table(&mut self, table: u8) {
        let names = self.keys.keys().filter(|name| name[0] == table);
        let names: Vec<Name> = names.cloned().collect();
        for name in names {
            self.take(&name);
        }
    }

    fn due(&self, now_ms: u64, count_max: usize) -> Vec<Timer> {
        let keys = self.due.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        let leaves = keys.flat_map(|(_, name)| {
            let leaves = self.keys[name].in_order();
            leaves.take_while(|(at_ms, _)| *at_ms <= now_ms).map(move |leaf| (name, leaf))
        });
        let timer = |(name, (at_ms, leaf)): (&Name, (u64, u32))| Timer {
            at_ms,
            table: name[0],
            key: name[1..].into(),
            leaf,
        };
        leaves.take(count_max).map(timer).collect()
    }
}

impl SlotState {
    fn timers(&self) -> Option<&Timers> {
        self.others.as_ref()?.timers.as_deref()
    }

    /// Changes the timers, which are made if there are none.
    fn change_timers<R>(&mut self, tally: &mut Tally, change: impl FnOnce(&mut Timers) -> R) -> R {
        let place: &mut Others = self.others.get_or_insert_default();
        let timers = place.timers.get_or_insert_default();
        let (leaves, bytes) = (timers.leaves as i64, timers.bytes as i64);
        let result = change(timers);
        tally.timers += timers.leaves as i64 - leaves;
        tally.index_bytes += timers.bytes as i64 - bytes;
        if timers.leaves == 0 {
            place.timers = None;
        }
        result
    }

    /// Sets when the first element of a leaf of a collection expires: Unix milliseconds, 0 for never. Cost:
    /// next to nothing where there is no timer and none is set.
    #[inline]
    pub fn set_timer(
        &mut self,
        (table, key): (u8, &Key<'_>),
        leaf: u32,
        at_ms: u64,
        tally: &mut Tally,
    ) {
        assert!(holds_keys(table));
        if at_ms > 0 || self.timers().is_some() {
            self.change_timers(tally, |timers| timers.set(table, key.bytes, leaf, at_ms));
        }
    }

    /// Takes the timers of a key away, if it has any.
    #[inline]
    pub fn take_timers(&mut self, table: u8, key: &[u8], tally: &mut Tally) -> Option<KeyTimers> {
        self.timers()?;
        let name = name_of(table, key);
        let taken = self.change_timers(tally, |timers| timers.take(&name));
        taken.map(|(_, leaves)| KeyTimers(leaves))
    }

    /// Gives a key the timers of another one of this slot, whose collection it has now.
    pub fn put_timers(
        &mut self,
        (table, key): (u8, &Key<'_>),
        timers: KeyTimers,
        tally: &mut Tally,
    ) {
        let name = Name::from(&name_of(table, key.bytes)[..]);
        self.change_timers(tally, |all| all.put(name, timers.0));
    }

    /// Takes the timers away of a key that goes, or gets another value.
    #[inline]
    pub(crate) fn forget_timers(&mut self, table: u8, key: &[u8], tally: &mut Tally) {
        if self.timers().is_some() && holds_keys(table) {
            self.take_timers(table, key, tally);
        }
    }

    /// The same of all keys of a table.
    pub(crate) fn forget_timers_of_table(&mut self, table: u8, tally: &mut Tally) {
        if self.timers().is_some() {
            self.change_timers(tally, |timers| timers.take_table(table));
        }
    }

    /// Whether elements of a key's collection expire.
    pub fn has_timers(&self, table: u8, key: &Key<'_>) -> bool {
        let name = || name_of(table, key.bytes);
        self.timers().is_some_and(|timers| timers.keys.contains_key(&name()[..]))
    }

    /// When the first element of a key's collection expires, 0 for never. Cost: linear in its leaves that have
    /// elements that expire.
    pub fn first_timer(&self, table: u8, key: &Key<'_>) -> u64 {
        let name = name_of(table, key.bytes);
        let leaves = self.timers().and_then(|timers| timers.keys.get(&name[..]));
        leaves.map_or(0, Leaves::first_ms)
    }

    /// Whether a timer is due.
    #[inline]
    pub fn has_due_timers(&self, now_ms: u64) -> bool {
        let first = self.timers().and_then(|timers| timers.due.first());
        first.is_some_and(|(at_ms, _)| *at_ms <= now_ms)
    }

    /// Timers that are due, so many at most.
    pub fn due_timers(&self, now_ms: u64, count_max: usize) -> Vec<Timer> {
        self.timers().map_or_else(Vec::new, |timers| timers.due(now_ms, count_max))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::Db;
    use crate::db::Expiry;

    type Model = BTreeMap<(u8, Vec<u8>), BTreeMap<u32, u64>>;

    #[derive(Clone, Debug)]
    enum Change {
        Set(u8, u8, u32, u64),
        Remove(u8, u8),
        Overwrite(u8, u8),
        Clear(u8),
        Move(u8, u8, u8),
    }

    fn change() -> impl Strategy<Value = Change> {
        let (table, key) = (0..3u8, 0..4u8);
        prop_oneof![
            8 => (table.clone(), key.clone(), 0..4u32, 0..50u64)
                .prop_map(|(table, key, leaf, at_ms)| Change::Set(table, key, leaf, at_ms)),
            1 => (table.clone(), key.clone()).prop_map(|(table, key)| Change::Remove(table, key)),
            1 => (table.clone(), key.clone()).prop_map(|(table, key)| Change::Overwrite(table, key)),
            1 => table.clone().prop_map(Change::Clear),
            1 => (table, key.clone(), key).prop_map(|(table, from, to)| Change::Move(table, from, to)),
        ]
    }

    fn all(model: &Model, now_ms: u64) -> Vec<Timer> {
        let timers = model.iter().flat_map(|((table, key), leaves)| {
            leaves.iter().map(|(leaf, at_ms)| Timer {
                at_ms: *at_ms,
                table: *table,
                key: key[..].into(),
                leaf: *leaf,
            })
        });
        let mut timers: Vec<Timer> = timers.filter(|timer| timer.at_ms <= now_ms).collect();
        timers.sort();
        timers
    }

    proptest! {
        #[test]
        fn timers_go_with_their_keys(changes in prop::collection::vec(change(), 0..120)) {
            let (mut slot, mut tally, mut model) =
                (SlotState::default(), Tally::default(), Model::new());
            for change in changes {
                let name = |key: u8| vec![b'k', key];
                match change {
                    Change::Set(table, key, leaf, at_ms) => {
                        let name = name(key);
                        let key = Key::in_slot(&name, 0);
                        if slot.view(table, &key).is_none() {
                            let mut db = Db::new(&mut slot, table, 0, &mut tally);
                            db.put(&key, 0, b"v", Expiry::Keep);
                        }
                        slot.set_timer((table, &key), leaf, at_ms, &mut tally);
                        let leaves = model.entry((table, name)).or_default();
                        let _before = match at_ms {
                            0 => leaves.remove(&leaf),
                            _ => leaves.insert(leaf, at_ms),
                        };
                    }
                    Change::Remove(table, key) => {
                        let name = name(key);
                        Db::new(&mut slot, table, 0, &mut tally).remove(&Key::in_slot(&name, 0));
                        model.remove(&(table, name));
                    }
                    Change::Overwrite(table, key) => {
                        let (name, value) = (name(key), vec![b'v'; usize::from(key) * 100]);
                        let mut db = Db::new(&mut slot, table, 0, &mut tally);
                        db.put(&Key::in_slot(&name, 0), 0, &value, Expiry::Keep);
                        model.remove(&(table, name));
                    }
                    Change::Clear(table) => {
                        if let Some(cleared) = slot.clear(table, &mut tally) {
                            cleared.free(&mut tally);
                        }
                        model.retain(|(of, _), _| *of != table);
                    }
                    Change::Move(table, from, to) => {
                        let (from, to) = (name(from), name(to));
                        let timers = slot.take_timers(table, &from, &mut tally);
                        let mut db = Db::new(&mut slot, table, 0, &mut tally);
                        db.remove(&Key::in_slot(&from, 0));
                        db.put(&Key::in_slot(&to, 0), 0, b"v", Expiry::Keep);
                        if let Some(timers) = timers {
                            slot.put_timers((table, &Key::in_slot(&to, 0)), timers, &mut tally);
                        }
                        let moved = model.remove(&(table, from));
                        model.remove(&(table, to.clone()));
                        model.extend(moved.map(|leaves| ((table, to), leaves)));
                    }
                }
                for now_ms in [0, 10, 30, u64::MAX] {
                    let mut due = slot.due_timers(now_ms, usize::MAX);
                    due.sort();
                    let expected = all(&model, now_ms);
                    prop_assert_eq!(slot.has_due_timers(now_ms), !expected.is_empty());
                    prop_assert_eq!(due, expected);
                }
                prop_assert!(slot.due_timers(u64::MAX, 3).len() <= 3);
                prop_assert_eq!(tally.timers, all(&model, u64::MAX).len() as i64);
                for table in 0..3 {
                    for key in 0..4 {
                        let name = name(key);
                        let has = model.get(&(table, name.clone())).is_some_and(|one| !one.is_empty());
                        prop_assert_eq!(slot.has_timers(table, &Key::in_slot(&name, 0)), has);
                    }
                }
            }
            for table in 0..3 {
                if let Some(cleared) = slot.clear(table, &mut tally) {
                    cleared.free(&mut tally);
                }
            }
            prop_assert_eq!((tally.timers, tally.index_bytes), (0, 0));
        }
    }
}
