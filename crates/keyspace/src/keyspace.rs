//! All slots, and the ways to lock them: one, several in ascending order, or all.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::SLOT_COUNT;
use crate::key::{Hint, Key, PREFETCH_KEYS, VALUE_LINES};
use crate::slot::{DB_COUNT, SlotState};
use stdx::prefetch::prefetch;

/// A locked slot.
pub type SlotGuard<'k> = MutexGuard<'k, SlotState>;

#[cfg(feature = "simulation")]
use crate::schedule::{lock, try_lock};

#[cfg(not(feature = "simulation"))]
#[inline(always)]
fn lock<T>(mutex: &Mutex<T>, _slot: u16) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(not(feature = "simulation"))]
#[inline(always)]
fn try_lock<T>(mutex: &Mutex<T>, _slot: u16) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

/// Bits of the packed table map that each database takes.
const TABLE_BITS: u32 = 4;
/// Who wants more slots than these locks all: to find one among thousands costs more.
const SORTED_SLOTS_MAX: usize = 4096;
const _: () = assert!(DB_COUNT == 1 << TABLE_BITS);

/// One cache line a slot, so that two workers on neighbouring slots do not disturb each other.
#[repr(align(64))]
#[derive(Default)]
struct Slot(Mutex<SlotState>);

const _: () = assert!(size_of::<Slot>() == 64);

/// The data set: every key of every database.
pub struct Keyspace {
    slots: Box<[Slot]>,
    /// The physical table of each database, four bits each: SWAPDB exchanges numbers here instead
    /// of tables, so that records on flash, which carry the table, stay true.
    tables: AtomicU64,
    /// The id of the next large collection.
    next_collection: AtomicU64,
}

impl Default for Keyspace {
    fn default() -> Self {
        let identity = (0..DB_COUNT as u64).map(|db| db << (db as u32 * TABLE_BITS)).sum();
        let slots = (0..SLOT_COUNT).map(|_| Slot::default()).collect();
        Keyspace { slots, tables: AtomicU64::new(identity), next_collection: AtomicU64::new(1) }
    }
}

impl Keyspace {
    /// The physical table of a database.
    #[inline]
    pub fn table_of(&self, db: u8) -> u8 {
        assert!((db as usize) < DB_COUNT);
        let tables = self.tables.load(Ordering::Relaxed);
        #[cfg(feature = "simulation")]
        crate::schedule::shared();
        (tables >> (u32::from(db) * TABLE_BITS)) as u8 & 0xf
    }

    /// The database of a physical table.
    pub fn db_of(&self, table: u8) -> u8 {
        let is_its = |&db: &u8| self.table_of(db) == table;
        (0..DB_COUNT as u8).find(is_its).expect("invariant: a table belongs to a database")
    }

    /// The id of a new large collection, which no other has had.
    pub fn take_collection_id(&self) -> u64 {
        self.next_collection.fetch_add(1, Ordering::Relaxed)
    }

    /// Exchanges two databases. All slots must be held by the caller, who proves it.
    pub fn swap_tables(&self, _all: &Locked<'_>, one: u8, two: u8) {
        assert!(_all.all);
        let (first, second) = (u64::from(self.table_of(one)), u64::from(self.table_of(two)));
        let difference = first ^ second;
        let flip = difference << (u32::from(one) * TABLE_BITS)
            ^ difference << (u32::from(two) * TABLE_BITS);
        self.tables.fetch_xor(flip, Ordering::Relaxed);
    }

    /// The physical tables of all databases.
    pub fn tables(&self) -> [u8; DB_COUNT] {
        std::array::from_fn(|db| self.table_of(db as u8))
    }

    /// Has each database have the table that it had when this was told by [`Keyspace::tables`]. All slots must be held, and
    /// are empty. False: each is to have a table of its own.
    pub fn set_tables(&self, all: &Locked<'_>, tables: [u8; DB_COUNT]) -> bool {
        let has = |table| tables.contains(&table);
        if !(0..DB_COUNT as u8).all(has) {
            return false;
        }
        for db in 0..DB_COUNT as u8 {
            self.swap_tables(all, db, self.db_of(tables[usize::from(db)]));
        }
        true
    }

    /// Locks one slot. Cost: about 10 ns when nobody else holds it.
    #[inline]
    pub fn lock(&self, slot: u16) -> SlotGuard<'_> {
        lock(&self.slots[slot as usize].0, slot)
    }

    /// Locks a slot unless somebody holds it.
    #[inline]
    pub fn try_lock(&self, slot: u16) -> Option<SlotGuard<'_>> {
        try_lock(&self.slots[slot as usize].0, slot)
    }

    /// Asks for a slot before it is locked.
    #[inline]
    pub fn prefetch(&self, slot: u16) {
        prefetch(&raw const self.slots[slot as usize]);
    }

    /// Brings near what look-ups of these keys will wait for behind their slots ([`Keyspace::prefetch`]):
    /// table entry, record, and so many lines of the value at most. One key alone waits for
    /// each in turn; here each step is taken for all keys before the next, so that their cache
    /// misses overlap. Cost: a lock of each key's slot for each step; of keys that share slots
    /// [`FreeSlots::prefetch_keys`] takes fewer.
    #[inline]
    pub fn prefetch_keys(&self, keys: &mut [Hint], value_lines: usize) {
        self.each(keys, SlotState::prefetch_entry);
        self.each(keys, SlotState::prefetch_record);
        if value_lines > 0 {
            self.each(keys, |slot, key| slot.prefetch_value(key, value_lines));
        }
    }

    /// Slots that somebody holds are passed over: who holds one brings its lines near.
    #[inline]
    fn each(&self, keys: &mut [Hint], step: impl Fn(&SlotState, &mut Hint)) {
        for key in keys {
            if let Some(slot) = self.try_lock(key.slot) {
                step(&slot, key);
            }
        }
    }

    /// Slots to be looked into one after another, unless somebody holds them.
    #[inline]
    pub fn free_slots(&self) -> FreeSlots<'_> {
        FreeSlots { keyspace: self, held: None }
    }

    /// Nothing locked: walks lock one slot at a time.
    pub fn unlocked(&self) -> Locked<'_> {
        Locked { keyspace: self, guards: SmallVec::new(), all: false }
    }

    /// Locks one slot, as a set of one.
    #[inline]
    pub fn lock_one(&self, slot: u16) -> Locked<'_> {
        let mut guards = SmallVec::new();
        guards.push((slot, self.lock(slot)));
        Locked { keyspace: self, guards, all: false }
    }

    /// Locks several slots, in ascending order whatever order they come in.
    pub fn lock_many(&self, mut slots: SmallVec<[u16; 8]>) -> Locked<'_> {
        if slots.len() > SORTED_SLOTS_MAX {
            return Locked { all: false, ..self.lock_all() };
        }
        slots.sort_unstable();
        slots.dedup();
        let guards = slots.into_iter().map(|slot| (slot, self.lock(slot))).collect();
        Locked { keyspace: self, guards, all: false }
    }

    /// Locks every slot. Cost: about 200 us; for what must be atomic against everything.
    pub fn lock_all(&self) -> Locked<'_> {
        let guards = (0..SLOT_COUNT as u16).map(|slot| (slot, self.lock(slot))).collect();
        Locked { keyspace: self, guards, all: true }
    }
}

/// Slots that are looked into one after another. One stays locked until another is asked for or this is dropped: no other
/// may be waited for meanwhile.
pub struct FreeSlots<'k> {
    keyspace: &'k Keyspace,
    held: Option<(u16, SlotGuard<'k>)>,
}

impl FreeSlots<'_> {
    /// A slot. None: somebody holds it, who brings its lines near.
    #[inline]
    pub fn get(&mut self, slot: u16) -> Option<&SlotState> {
        if self.held.as_ref().is_none_or(|(held, _)| *held != slot) {
            // One at a time.
            self.held = None;
            self.held = self.keyspace.try_lock(slot).map(|guard| (slot, guard));
        }
        self.held.as_ref().map(|(_, guard)| &**guard)
    }

    /// What [`Keyspace::prefetch_keys`] does, for keys many of which follow one of the same slot: those of one hash tag,
    /// the nodes of a collection. `value_lines` is not 0. Cost: a lock where the slot changes, for each step.
    pub fn prefetch_keys<K: AsMut<Hint>>(&mut self, keys: &mut [K], value_lines: usize) {
        self.each(keys, SlotState::prefetch_entry);
        self.each(keys, SlotState::prefetch_record);
        self.each(keys, |slot, key| slot.prefetch_value(key, value_lines));
    }

    #[inline]
    fn each<K: AsMut<Hint>>(&mut self, keys: &mut [K], step: impl Fn(&SlotState, &mut Hint)) {
        for key in keys {
            let key = key.as_mut();
            if let Some(slot) = self.get(key.slot) {
                step(slot, key);
            }
        }
    }
}

/// The slots that a command or a transaction holds.
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    /// Sorted by slot.
    guards: SmallVec<[(u16, SlotGuard<'k>); 1]>,
    all: bool,
}

impl<'k> Locked<'k> {
    /// The keyspace whose slots these are.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// A slot that is held. Panics: if it is not, which is a wrong key specification.
    #[inline]
    pub fn slot(&mut self, slot: u16) -> &mut SlotState {
        let at = match self.guards.len() {
            1 if self.guards[0].0 == slot => 0,
            _ => self.position(slot).expect("invariant: a command locks the slots of its keys"),
        };
        &mut self.guards[at].1
    }

    fn position(&self, slot: u16) -> Option<usize> {
        if self.guards.len() == SLOT_COUNT {
            return Some(slot as usize);
        }
        self.guards.binary_search_by_key(&slot, |guard| guard.0).ok()
    }

    /// Brings near what look-ups of these keys and their values will wait for, as [`Keyspace::prefetch_keys`]
    /// does, in slots that are held.
    pub fn prefetch_keys(&self, table: u8, keys: &[Key<'_>]) {
        let hints = keys.iter().map(|key| Hint::new(table, key));
        let hints = &mut hints.collect::<SmallVec<[Hint; PREFETCH_KEYS]>>();
        self.each(hints, SlotState::prefetch_entry);
        self.each(hints, SlotState::prefetch_record);
        self.each(hints, |slot, key| slot.prefetch_value(key, VALUE_LINES));
    }

    #[inline]
    fn each(&self, keys: &mut [Hint], step: impl Fn(&SlotState, &mut Hint)) {
        for key in keys {
            if let Some(at) = self.position(key.slot) {
                step(&self.guards[at].1, key);
            }
        }
    }

    /// Lets go of all slots.
    pub fn unlock(&mut self) {
        self.guards.clear();
        self.all = false;
    }

    /// Whether `slot` is held.
    pub fn holds(&self, slot: u16) -> bool {
        self.position(slot).is_some()
    }

    /// Whether every slot is held.
    pub fn holds_all(&self) -> bool {
        self.all
    }

    /// Runs `visit` on a slot, which is locked for it unless it is held already.
    ///
    /// To lock a slot while holding a higher one could deadlock, so a set that holds slots must
    /// hold the visited one too.
    pub fn visit<R>(&mut self, slot: u16, visit: impl FnOnce(&mut SlotState) -> R) -> R {
        if self.guards.is_empty() {
            return visit(&mut self.keyspace.lock(slot));
        }
        visit(self.slot(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Expiry, Tally};

    #[test]
    fn slots_that_were_let_go_of_are_free() {
        let keyspace = Keyspace::default();
        for all in [true, false] {
            let mut locked = if all { keyspace.lock_all() } else { keyspace.lock_one(7) };
            assert!(locked.holds(7) && keyspace.try_lock(7).is_none());
            locked.unlock();
            assert!(!locked.holds(7) && !locked.holds_all());
            assert!(keyspace.try_lock(7).is_some());
        }
    }

    #[test]
    fn keys_of_free_slots_are_prefetched_whichever_slots_they_share() {
        let keyspace = Keyspace::default();
        let names = ["{a}1", "{a}2", "{b}1", "{a}3", "{b}2"];
        let keys = names.map(|name| Key::new(name.as_bytes()));
        for key in &keys {
            let (mut slot, mut tally) = (keyspace.lock(key.slot), Tally::default());
            Db::new(&mut slot, 0, 1_000, &mut tally).put(key, 3, &[b'v'; 200], Expiry::Clear);
        }
        let kinds_where = |held: Option<u16>| {
            let _held = held.map(|slot| keyspace.lock(slot));
            let (mut one, mut other) =
                ([(); 2]).map(|()| keys.map(|key| Hint::new(0, &key))).into();
            keyspace.prefetch_keys(&mut one, VALUE_LINES);
            let mut slots = keyspace.free_slots();
            slots.prefetch_keys(&mut other, VALUE_LINES);
            assert_eq!(one.map(|key| key.kind), other.map(|key| key.kind));
            one.map(|key| key.kind)
        };
        assert_eq!(kinds_where(None), [Some(3); 5]);
        let held = kinds_where(Some(keys[0].slot));
        assert_eq!(
            held,
            [None, None, Some(3), None, Some(3)],
            "who holds a slot brings its lines near"
        );
        assert!(keyspace.try_lock(keys[4].slot).is_some(), "none is kept");
    }
}
