//! Random operations on a slot against a model that is too simple to be wrong.
//!
//! After every operation: each key is as the model says, the sum of all tallies equals a recount,
//! every flash copy is either named by exactly one record or was released exactly once, and exactly
//! the watchers of the keys that changed were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::db::{account, stays_in_ram};
use crate::{
    Db, Expiry, FlashRef, Judge, Key, SlotState, Stored, TREE_KIND_BITS, Tally, Verdict, View,
    WatchFlag,
};

const KEYS: u8 = 10;
const TABLES: u8 = 2;
/// Kinds of values, a quarter of them roots.
const KINDS: u8 = 32;
const START_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Op {
    Put {
        len: usize,
        expiry: Expiry,
    },
    PutVec {
        len: usize,
        expiry: Expiry,
    },
    /// One of the length that is there.
    PutOver {
        expiry: Expiry,
    },
    Update {
        len: usize,
    },
    Fill,
    SetKind,
    SetExpiry {
        expire_at_ms: u64,
    },
    Remove,
    MoveTo {
        other: u8,
    },
    Read,
    Demote,
    Promote,
    Relocate,
    ForgetCopy,
    Restore,
    Hand {
        stop_after: u8,
    },
    Expire,
    Clear,
    Wait {
        ms: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    kind: u8,
    value: Vec<u8>,
    expire_at_ms: u64,
    in_ram: bool,
    copy: Option<u64>,
}

type Id = (u8, u8);

struct World {
    slot: SlotState,
    sum: Tally,
    now_ms: u64,
    items: BTreeMap<Id, Item>,
    /// Flash copies that are not released.
    copies: BTreeMap<u64, FlashRef>,
    copies_made: u64,
    fill: u8,
    /// Keys that the operation changed, as the model has it.
    changed: BTreeSet<Id>,
}

fn name(number: u8) -> Vec<u8> {
    // One of them too long for the short form of a key length.
    let len = if number == 3 { 300 } else { 3 };
    let mut name = vec![b'k'; len];
    name.push(b'0' + number);
    name
}

/// Demotes what it is asked about, and notes it: some values by their bytes, some handed over, and some of
/// these handed back.
struct ModelJudge<'a> {
    items: &'a BTreeMap<Id, Item>,
    copies: &'a mut BTreeMap<u64, FlashRef>,
    copies_made: &'a mut u64,
    stop_after: usize,
    seen: Vec<(Id, u64)>,
}

impl ModelJudge<'_> {
    fn make_copy(&mut self, id: Id, len: usize) -> FlashRef {
        *self.copies_made += 1;
        let units = *self.copies_made;
        let at = FlashRef { units, stored_len: len as u32, compressed: false };
        self.copies.insert(units, at);
        self.seen.push((id, units));
        at
    }
}

fn id_of(view: &View<'_>, table: u8) -> Id {
    (table, view.key.last().expect("named") - b'0')
}

impl Judge for ModelJudge<'_> {
    fn judge(&mut self, view: View<'_>, table: u8) -> Verdict {
        if self.seen.len() == self.stop_after {
            return Verdict::Stop;
        }
        let id = id_of(&view, table);
        let item = &self.items[&id];
        assert!(item.in_ram && item.value.len() >= crate::DEMOTE_BYTES_MIN);
        assert!(!stays_in_ram(item.kind), "a root stays in RAM");
        if let Stored::Clean(_, at) = view.stored {
            self.seen.push((id, at.units));
            return Verdict::Demote(at);
        }
        let stands_apart = item.value.len() > crate::record::INLINE_BYTES_MAX;
        if stands_apart && id.1.is_multiple_of(2) {
            return Verdict::HandOver;
        }
        Verdict::Demote(self.make_copy(id, item.value.len()))
    }

    fn take_over(
        &mut self,
        view: View<'_>,
        table: u8,
        value: Box<[u8]>,
    ) -> Result<FlashRef, (Box<[u8]>, Verdict)> {
        let id = id_of(&view, table);
        let item = &self.items[&id];
        assert_eq!((&*value, view.expire_at_ms), (&*item.value, item.expire_at_ms));
        assert!(matches!(view.stored, Stored::Cold(_, len) if len as usize == value.len()));
        if value[0].is_multiple_of(3) {
            return Err((value, Verdict::Keep));
        }
        Ok(self.make_copy(id, value.len()))
    }
}

impl World {
    fn new() -> World {
        World {
            slot: SlotState::default(),
            sum: Tally::default(),
            now_ms: START_MS,
            items: BTreeMap::new(),
            copies: BTreeMap::new(),
            copies_made: 0,
            fill: 0,
            changed: BTreeSet::new(),
        }
    }

    fn with_db<R>(&mut self, id: Id, run: impl FnOnce(&mut Db<'_>, &Key<'_>) -> R) -> R {
        let name = name(id.1);
        run(&mut Db::new(&mut self.slot, id.0, self.now_ms, &mut self.sum), &Key::new(&name))
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        self.fill = self.fill.wrapping_add(1);
        vec![self.fill; len]
    }

    /// A copy as the log would have written it; every third is compressed.
    fn copy_of(&mut self, len: usize) -> FlashRef {
        self.copies_made += 1;
        let units = self.copies_made;
        let compressed = units.is_multiple_of(3);
        let stored_len = if compressed { len / 2 } else { len } as u32;
        let at = FlashRef { units, stored_len, compressed };
        self.copies.insert(units, at);
        at
    }

    /// The model's item as an operation finds it: gone when its time has come.
    fn find(&mut self, id: Id) -> Option<Item> {
        let item = self.items.get(&id)?;
        if item.expire_at_ms != 0 && item.expire_at_ms <= self.now_ms {
            self.items.remove(&id);
            self.changed.insert(id);
            return None;
        }
        Some(item.clone())
    }

    fn store(&mut self, id: Id, item: Item) {
        self.items.insert(id, item);
        self.changed.insert(id);
    }

    fn step(&mut self, id: Id, op: Op) {
        self.changed.clear();
        let flags = self.watch_all();
        match op {
            Op::Put { len, expiry } | Op::PutVec { len, expiry } => self.put(id, op, len, expiry),
            Op::PutOver { expiry } => {
                let len = self.items.get(&id).map_or(31, |item| item.value.len());
                self.put(id, op, len, expiry);
            }
            Op::Update { .. } | Op::Fill | Op::SetKind => self.edit(id, op),
            Op::SetExpiry { .. } | Op::Remove | Op::MoveTo { .. } | Op::Read => self.touch(id, op),
            Op::Demote | Op::Promote => self.change_place(id, op),
            Op::Relocate | Op::ForgetCopy | Op::Restore => self.change_copy(id, op),
            Op::Hand { stop_after } => self.hand(stop_after),
            Op::Expire => self.expire(),
            Op::Clear => self.clear(id.0),
            Op::Wait { ms } => self.now_ms += ms,
        }
        for (id, flag) in flags {
            assert_eq!(flag.is_raised(), self.changed.contains(&id), "watchers of {id:?}");
            self.slot.unwatch_all(&flag);
        }
        self.release_dead();
        self.check_items();
        self.check_tally();
    }

    fn put(&mut self, id: Id, op: Op, len: usize, expiry: Expiry) {
        let old = self.find(id);
        let value = self.value(len);
        // A quarter are roots, as COPY and RENAME put them over values of other kinds.
        let kind = self.fill % KINDS;
        let bytes = value.clone();
        self.with_db(id, |db, key| match op {
            Op::PutVec { .. } => db.put_vec(key, kind, bytes, expiry),
            _ => db.put(key, kind, &bytes, expiry),
        });
        let expire_at_ms = match expiry {
            Expiry::Keep => old.map_or(0, |old| old.expire_at_ms),
            Expiry::Clear => 0,
            Expiry::At(at_ms) => at_ms,
        };
        self.store(id, Item { kind, value, expire_at_ms, in_ram: true, copy: None });
    }

    fn edit(&mut self, id: Id, op: Op) {
        let item = self.find(id);
        let len = if let Op::Update { len } = op { len } else { 0 };
        let fresh = self.value(len);
        let fill = self.fill;
        let is_root = item.as_ref().is_some_and(|item| stays_in_ram(item.kind));
        let kind = if is_root { TREE_KIND_BITS } else { fill % TREE_KIND_BITS };
        let done = self.with_db(id, |db, key| match op {
            Op::Update { .. } => {
                let change = |bits: &mut u8, value: &mut Vec<u8>| {
                    *bits = kind;
                    *value = fresh.clone();
                };
                db.update(key, change).is_some()
            }
            _ => true,
        });
        let filled = match op {
            Op::Fill => {
                let name = name(id.1);
                let db = Db::new(&mut self.slot, id.0, self.now_ms, &mut self.sum);
                db.into_value_mut(&Key::new(&name)).map(|value| value.fill(fill)).is_some()
            }
            Op::SetKind => {
                self.with_db(id, |db, key| db.set_kind(key, kind));
                return item.into_iter().for_each(|item| {
                    self.items.insert(id, Item { kind, ..item });
                });
            }
            _ => done,
        };
        let Some(item) = item.filter(|item| item.in_ram) else { return assert!(!filled) };
        assert!(filled);
        let item = match op {
            Op::Fill => Item { value: vec![fill; item.value.len()], copy: None, ..item },
            _ => Item { value: fresh, kind, copy: None, ..item },
        };
        self.store(id, item);
    }

    fn touch(&mut self, id: Id, op: Op) {
        let item = self.find(id);
        match op {
            Op::SetExpiry { expire_at_ms } => {
                let done = self.with_db(id, |db, key| db.set_expiry(key, expire_at_ms));
                assert_eq!(done, item.is_some());
                if let Some(item) = item {
                    self.store(id, Item { expire_at_ms, ..item });
                }
            }
            Op::Remove => {
                assert_eq!(self.with_db(id, |db, key| db.remove(key)), item.is_some());
                if self.items.remove(&id).is_some() {
                    self.changed.insert(id);
                }
            }
            Op::MoveTo { other } => self.move_to(id, other, item),
            _ => {
                let name = name(id.1);
                let db = Db::new(&mut self.slot, id.0, self.now_ms, &mut self.sum);
                assert_eq!(db.into_read(&Key::new(&name), true).is_some(), item.is_some());
            }
        }
    }

    fn move_to(&mut self, id: Id, other: u8, item: Option<Item>) {
        let taken = self.with_db(id, |db, key| db.take(key));
        assert_eq!(taken.is_some(), item.as_ref().is_some_and(|item| item.in_ram));
        let (Some(carried), Some(item)) = (taken, item) else { return };
        assert_eq!(carried.value, item.value);
        self.items.remove(&id);
        self.changed.insert(id);
        let target = (id.0, other);
        self.find(target);
        self.with_db(target, |db, key| db.put_carried(key, carried));
        self.store(target, Item { copy: None, ..item });
    }

    fn change_place(&mut self, id: Id, op: Op) {
        let item = self.find(id);
        match (op, item) {
            (Op::Demote, Some(item)) => {
                // A clean value is demoted to its copy, or now and then to another one.
                let at = match item.copy {
                    Some(copy) if !self.copies_made.is_multiple_of(5) => self.copies[&copy],
                    _ => self.copy_of(item.value.len()),
                };
                let done = self.with_db(id, |db, key| db.demote(key, at));
                let is_long = item.value.len() >= crate::DEMOTE_BYTES_MIN;
                assert_eq!(done, item.in_ram && is_long && !stays_in_ram(item.kind));
                if done {
                    self.items.insert(id, Item { in_ram: false, copy: Some(at.units), ..item });
                } else if item.copy != Some(at.units) {
                    self.copies.remove(&at.units);
                }
            }
            (Op::Promote, Some(item)) => {
                let at = item.copy.map_or(self.stale(), |copy| self.copies[&copy]);
                let value = item.value.clone().into_boxed_slice();
                let done = self.with_db(id, |db, key| db.promote(key, at, value));
                assert_eq!(done, !item.in_ram);
                self.items.insert(id, Item { in_ram: true, ..item });
            }
            _ => assert!(!self.with_db(id, |db, key| db.peek(key).is_some())),
        }
    }

    /// A place where nothing of this world lies.
    fn stale(&self) -> FlashRef {
        FlashRef { units: 1 << 39, stored_len: 40, compressed: false }
    }

    fn change_copy(&mut self, id: Id, op: Op) {
        let item = self.find(id);
        let copy = item.as_ref().and_then(|item| item.copy);
        let from = copy.map_or(self.stale(), |copy| self.copies[&copy]);
        let (done, to) = match op {
            Op::Relocate => {
                let to = FlashRef { units: self.copy_of(0).units, ..from };
                self.copies.insert(to.units, to);
                (self.with_db(id, |db, key| db.relocate(key, from.units, to.units)), Some(to.units))
            }
            Op::ForgetCopy => (self.with_db(id, |db, key| db.forget_copy(key, from)), None),
            _ => {
                let value = item.clone().map(|item| item.value).unwrap_or_default();
                (self.with_db(id, |db, key| db.restore(key, from, &value)), None)
            }
        };
        let is_clean = item.as_ref().is_some_and(|item| item.in_ram) && copy.is_some();
        assert_eq!(done, if let Op::ForgetCopy = op { is_clean } else { copy.is_some() });
        // The log accounts for what it moved or took back itself.
        let gone = if done { copy } else { to };
        self.copies.remove(&gone.unwrap_or_default());
        if done && let Some(item) = item {
            let in_ram = item.in_ram || matches!(op, Op::Restore);
            self.items.insert(id, Item { in_ram, copy: to, ..item });
        }
    }

    fn hand(&mut self, stop_after: u8) {
        let limit = crate::PassLimit { bytes_max: i64::MAX, places_max: u64::MAX };
        let (mut from, all) = (crate::EntryPosition::default(), crate::Region::ALL);
        let mut judge = ModelJudge {
            items: &self.items,
            copies: &mut self.copies,
            copies_made: &mut self.copies_made,
            stop_after: stop_after as usize,
            seen: Vec::new(),
        };
        let swept = self.slot.pass_hand(&mut from, limit, all, &mut self.sum, &mut judge);
        let seen = judge.seen;
        assert!(swept.stopped || swept.visited == self.items.len() as u64);
        for (id, copy) in seen {
            let item = self.items.get_mut(&id).expect("judged");
            (item.in_ram, item.copy) = (false, Some(copy));
        }
    }

    fn expire(&mut self) {
        let now_ms = self.now_ms;
        let due = |item: &Item| item.expire_at_ms != 0 && item.expire_at_ms <= now_ms;
        let due: Vec<Id> =
            self.items.iter().filter(|(_, item)| due(item)).map(|(id, _)| *id).collect();
        assert!(due.is_empty() || self.slot.may_have_expired(now_ms));
        let swept = self.slot.expire(now_ms, &mut self.sum);
        assert_eq!(swept.expired, due.len() as u64);
        assert!(!self.slot.may_have_expired(now_ms));
        for id in due {
            self.items.remove(&id);
            self.changed.insert(id);
        }
    }

    fn clear(&mut self, table: u8) {
        self.slot.changed_all(table, None, self.now_ms);
        let detached = self.slot.clear(table, &mut self.sum);
        assert_eq!(self.slot.len(table), 0);
        assert_eq!(self.sum.keys[table as usize], 0, "at once, not only when it is freed");
        let ids: Vec<Id> = self.items.keys().copied().filter(|id| id.0 == table).collect();
        assert_eq!(detached.as_ref().map_or(0, |detached| detached.len()), ids.len());
        if let Some(detached) = detached {
            detached.free(&mut self.sum);
        }
        for id in ids {
            self.items.remove(&id);
            self.changed.insert(id);
        }
    }

    fn watch_all(&mut self) -> Vec<(Id, Arc<WatchFlag>)> {
        let ids = (0..TABLES).flat_map(|table| (0..KEYS).map(move |number| (table, number)));
        ids.map(|id| {
            let flag = Arc::new(WatchFlag::default());
            self.slot.watch(id.0, &name(id.1), &flag);
            (id, flag)
        })
        .collect()
    }

    fn release_dead(&mut self) {
        for dead in std::mem::take(&mut self.sum.dead) {
            let copy = self.copies.remove(&dead.at.units);
            assert_eq!(copy, Some(dead.at), "released twice, or never written");
        }
        let named: Vec<u64> = self.items.values().filter_map(|item| item.copy).collect();
        let live: Vec<u64> = self.copies.keys().copied().collect();
        assert_eq!(named.iter().collect::<BTreeSet<_>>(), live.iter().collect::<BTreeSet<_>>());
    }

    fn check_items(&self) {
        let mut found = BTreeMap::new();
        for table in 0..TABLES {
            let end = self.slot.scan(table, Default::default(), |view| {
                let number = view.key.last().expect("named") - b'0';
                assert_eq!(view.key, name(number));
                let (value, copy) = match view.stored {
                    Stored::Hot(value) => (Some(value), None),
                    Stored::Clean(value, at) => (Some(value), Some(at)),
                    Stored::Cold(at, _) => (None, Some(at)),
                };
                assert_eq!(copy, copy.map(|at| self.copies[&at.units]));
                let model = &self.items[&(table, number)];
                assert_eq!(view.value_len(), model.value.len());
                let item = Item {
                    kind: view.kind,
                    value: value.map_or_else(|| model.value.clone(), <[u8]>::to_vec),
                    expire_at_ms: view.expire_at_ms,
                    in_ram: value.is_some(),
                    copy: copy.map(|at| at.units),
                };
                assert!(found.insert((table, number), item).is_none(), "listed twice");
                false
            });
            assert!(end.is_none());
        }
        assert_eq!(found, self.items);
    }

    fn check_tally(&self) {
        let mut count = Tally::default();
        for table in 0..TABLES {
            let Some(entries) = self.slot.table(table) else { continue };
            count.index_bytes += entries.ram_bytes() as i64;
            for record in entries.records() {
                account(&record, table, 1, &mut count);
            }
        }
        let figures = |tally: &Tally| {
            [
                tally.index_bytes,
                tally.value_bytes,
                tally.hot_count,
                tally.hot_bytes,
                tally.clean_count,
                tally.clean_bytes,
                tally.cold_count,
                tally.cold_bytes,
            ]
        };
        assert_eq!(figures(&self.sum), figures(&count));
        assert_eq!(self.sum.keys, count.keys);
        assert_eq!(self.sum.volatile, count.volatile);
    }
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(31), Just(32), Just(128), Just(129), 0usize..600]
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![
        START_MS..START_MS + 500,
        Just(START_MS + 1_000_000),
        Just((1 << 48) - 1),
        Just(u64::MAX >> 1)
    ]
}

fn expiries() -> impl Strategy<Value = Expiry> {
    prop_oneof![Just(Expiry::Keep), Just(Expiry::Clear), times().prop_map(Expiry::At)]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (lengths(), expiries()).prop_map(|(len, expiry)| Op::Put { len, expiry }),
        2 => (lengths(), expiries()).prop_map(|(len, expiry)| Op::PutVec { len, expiry }),
        4 => expiries().prop_map(|expiry| Op::PutOver { expiry }),
        2 => lengths().prop_map(|len| Op::Update { len }),
        2 => Just(Op::Fill),
        1 => Just(Op::SetKind),
        2 => prop_oneof![Just(0), times()].prop_map(|expire_at_ms| Op::SetExpiry { expire_at_ms }),
        2 => Just(Op::Remove),
        2 => (0..KEYS).prop_map(|other| Op::MoveTo { other }),
        2 => Just(Op::Read),
        6 => Just(Op::Demote),
        3 => Just(Op::Promote),
        2 => Just(Op::Relocate),
        1 => Just(Op::ForgetCopy),
        2 => Just(Op::Restore),
        1 => (0u8..5).prop_map(|stop_after| Op::Hand { stop_after }),
        1 => Just(Op::Expire),
        1 => Just(Op::Clear),
        2 => (1u64..100).prop_map(|ms| Op::Wait { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_slot_does_what_the_model_does(
        steps in prop::collection::vec((0..TABLES, 0..KEYS, ops()), 1..120)
    ) {
        let mut world = World::new();
        for (table, number, op) in steps {
            world.step((table, number), op);
        }
        for table in 0..TABLES {
            world.step((table, 0), Op::Clear);
        }
        assert!(world.copies.is_empty());
        assert_eq!(world.sum.ram_bytes(), 0);
    }
}
