//! One database as a command sees it: the operations on keys of a locked slot.
//!
//! Every change goes through here, so that no caller can forget the counters ([`Tally`]), the
//! watchers of a key, or the release of a flash copy that a change made worthless.

use smallvec::SmallVec;

use crate::entry::{Entry, FIRST_USE};
use crate::key::{Hint, Key};
use crate::record::{FlashRef, INLINE_BYTES_MAX, NewState, Record, Stored, View};
use crate::slot::{Judge, SlotState, Verdict, holds_keys};
use crate::table::{Position, Table};
use crate::tally::{DeadCopy, DetachedTree, Noted, Tally};
use stdx::{key_slot, size_class};

/// Values shorter than this are not demoted: their place on flash would take nearly as much RAM.
pub const DEMOTE_BYTES_MIN: usize = 32;

/// A kind with all these bits is that of a root or a branch of a large collection, which stays in RAM.
/// Everything else about kinds is left to others.
pub const TREE_KIND_BITS: u8 = 0b1_1000;

/// A key copied to the stack while its record is rebuilt.
type KeyCopy = SmallVec<[u8; 64]>;

/// What a write does with the key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Leaves it.
    Keep,
    /// Ends it.
    Clear,
    /// Sets it: Unix milliseconds, not 0.
    At(u64),
}

/// What a change of a value comes to: whether it is another one now, and what the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed<R> {
    /// It is another one.
    Yes(R),
    /// It is as it was, its kind, too.
    No(R),
}

/// Why a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// A command removed it.
    Removed,
    /// Its time had come.
    Expired,
    /// Memory was short.
    Evicted,
    /// Its value goes on under another key.
    Taken,
}

/// A value with all that belongs to it, on its way to another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Type and encoding.
    pub kind: u8,
    /// Unix milliseconds, 0 for none.
    pub expire_at_ms: u64,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// A database of a locked slot.
pub struct Db<'a> {
    slot: &'a mut SlotState,
    table: u8,
    now_ms: u64,
    tally: &'a mut Tally,
}

impl<'a> Db<'a> {
    /// `table` is the physical table behind the selected database; `now_ms` the time that decides
    /// what has expired.
    pub fn new(slot: &'a mut SlotState, table: u8, now_ms: u64, tally: &'a mut Tally) -> Self {
        Db { slot, table, now_ms, tally }
    }

    #[inline]
    fn entries(&mut self) -> &mut Table {
        self.slot.table_mut(self.table)
    }

    /// Finds a key, removing it when its time has come.
    #[inline]
    fn locate(&mut self, key: &Key<'_>) -> Option<Position> {
        let at = self.slot.table(self.table)?.find(key.hash, key.bytes)?;
        if self.entries().get(at).is_volatile() {
            return self.locate_volatile(at);
        }
        Some(at)
    }

    #[cold]
    fn locate_volatile(&mut self, at: Position) -> Option<Position> {
        let now_ms = self.now_ms;
        if !crate::slot::is_expired(self.entries(), at, now_ms) {
            return Some(at);
        }
        self.slot.remove_at(self.table, at, self.tally, Gone::Expired);
        None
    }

    /// What is known of a key, without counting as an access. Never needs flash.
    #[inline]
    pub fn peek(&mut self, key: &Key<'_>) -> Option<View<'_>> {
        let at = self.locate(key)?;
        Some(self.entries().view(at))
    }

    /// Where a key stands, for what is done to it without another look-up. It is no access.
    #[inline]
    pub fn find(&mut self, key: &Key<'_>) -> Option<Position> {
        self.locate(key)
    }

    /// What is known of a key that was found.
    #[inline]
    pub fn view_at(&mut self, at: Position) -> View<'_> {
        self.entries().view(at)
    }

    /// The same for as long as the slot is borrowed, with the counters for the caller to say where the value
    /// was found.
    #[inline]
    pub fn into_counted_view_at(self, at: Position) -> (View<'a>, &'a mut Tally) {
        (self.slot.table_mut(self.table).view(at), self.tally)
    }

    /// Counts an access to a key that was found.
    #[inline]
    pub fn touch_at(&mut self, at: Position) {
        self.entries().entry_mut(at).touch();
    }

    /// [`Db::peek`] for as long as the slot is borrowed.
    #[inline]
    pub fn into_view(mut self, key: &Key<'_>) -> Option<View<'a>> {
        let at = self.locate(key)?;
        Some(self.slot.table_mut(self.table).view(at))
    }

    /// The same, counting as an access, with the counters for the caller to say where the value
    /// was found. Whether there is such a key is counted if it `counts`.
    #[inline(always)]
    pub fn into_read(mut self, key: &Key<'_>, counts: bool) -> Option<(View<'a>, &'a mut Tally)> {
        let Some(at) = self.locate(key) else {
            self.tally.missed += u64::from(counts);
            return None;
        };
        self.tally.found += u64::from(counts);
        let entries = self.slot.table_mut(self.table);
        entries.entry_mut(at).touch();
        if entries.record(at).is_cold() {
            self.tally.first_cold_reads += u64::from(entries.get(at).frequency() == FIRST_USE);
        }
        Some((entries.view(at), self.tally))
    }

    /// The same without being an access: for clients that watch and do not use.
    pub fn into_quiet_read(
        mut self,
        key: &Key<'_>,
        counts: bool,
    ) -> Option<(View<'a>, &'a mut Tally)> {
        let Some(at) = self.locate(key) else {
            self.tally.missed += u64::from(counts);
            return None;
        };
        self.tally.found += u64::from(counts);
        Some((self.slot.table_mut(self.table).view(at), self.tally))
    }

    /// Takes an access back that will be made again, once the value is there.
    pub fn take_back_access(&mut self, key: &Key<'_>) {
        if let Some(at) = self.locate(key) {
            self.entries().entry_mut(at).age();
        }
    }

    /// How often a key was used lately, 0 to 3.
    pub fn frequency(&mut self, key: &Key<'_>) -> Option<u8> {
        let at = self.locate(key)?;
        Some(self.entries().get(at).frequency())
    }

    /// Sets how often a key was used lately, 0 to 3. Nothing happens if it does not exist.
    pub fn set_frequency(&mut self, key: &Key<'_>, frequency: u8) {
        let Some(at) = self.locate(key) else { return };
        let mut entry = self.entries().get(at);
        while entry.frequency() > frequency {
            entry.age();
        }
        (entry.frequency()..frequency).for_each(|_| entry.touch());
        *self.entries().entry_mut(at) = entry;
    }

    /// RAM that a key takes with its value, allocator rounding and table entry included. Never needs
    /// flash. Units: bytes.
    pub fn ram_bytes(&mut self, key: &Key<'_>) -> Option<usize> {
        let at = self.locate(key)?;
        let (_, record_bytes, value_bytes) = self.entries().record(at).measure();
        Some(size_of::<Entry>() + record_bytes + value_bytes)
    }

    /// Sets a key, whether it exists or not.
    #[inline]
    pub fn put(&mut self, key: &Key<'_>, kind: u8, value: &[u8], expiry: Expiry) {
        self.tally.written_bytes += (key.bytes.len() + value.len()) as u64;
        let Some(at) = self.locate(key) else { return self.put_new(key, kind, value, expiry) };
        self.slot.forget_timers(self.table, key.bytes, self.tally);
        if !self.put_in_place(at, kind, value, expiry) {
            let state = state_of(value);
            self.put_over(key, at, kind, state, expiry);
        }
        self.slot.changed(self.table, key.bytes);
    }

    /// Sets a key from a buffer that it takes over: no copy when the value is long.
    pub fn put_vec(&mut self, key: &Key<'_>, kind: u8, value: Vec<u8>, expiry: Expiry) {
        if value.len() <= INLINE_BYTES_MAX {
            return self.put(key, kind, &value, expiry);
        }
        self.tally.written_bytes += (key.bytes.len() + value.len()) as u64;
        let state = NewState::Hot(value.into_boxed_slice());
        match self.locate(key) {
            None => self.insert(key, kind, state, expiry),
            Some(at) => {
                self.slot.forget_timers(self.table, key.bytes, self.tally);
                self.put_over(key, at, kind, state, expiry);
                self.slot.changed(self.table, key.bytes);
            }
        }
    }

    /// Makes room in the table for so many keys more.
    pub fn reserve(&mut self, keys: usize) {
        let entries = self.slot.table_mut(self.table);
        entries.reserve(keys, &mut self.tally.index_bytes);
    }

    /// Makes a key whose value is on flash alone, and which expires at a time, Unix milliseconds, 0 for never. False: there is
    /// one of the name.
    pub fn put_cold(
        &mut self,
        key: &Key<'_>,
        kind: u8,
        (at, value_len): (FlashRef, u32),
        expire_at_ms: u64,
    ) -> bool {
        assert!(!stays_in_ram(kind));
        if self.find(key).is_some() {
            return false;
        }
        let expiry = if expire_at_ms == 0 { Expiry::Clear } else { Expiry::At(expire_at_ms) };
        self.insert(key, kind, NewState::Cold(at, value_len), expiry);
        true
    }

    fn put_new(&mut self, key: &Key<'_>, kind: u8, value: &[u8], expiry: Expiry) {
        self.insert(key, kind, state_of(value), expiry);
    }

    /// Overwrites a value of the same length where it stands: no allocation, no bookkeeping.
    #[inline]
    fn put_in_place(&mut self, at: Position, kind: u8, value: &[u8], expiry: Expiry) -> bool {
        let entries = self.slot.table_mut(self.table);
        let entry = entries.get(at);
        if expiry != Expiry::Keep && (entry.is_volatile() || expiry != Expiry::Clear) {
            return false;
        }
        let mut record = entries.record_mut(at);
        // A root that is overwritten leaves a tree to free, and one that comes must not be demoted, as the old value may be.
        if record.is_cold() || stays_in_ram(record.view().kind) || stays_in_ram(kind) {
            return false;
        }
        let fits = matches!(record.view().stored, Stored::Hot(old) if old.len() == value.len());
        if !fits {
            return false;
        }
        let old = record.view();
        self.tally.note_replaced(self.table, old.key, (old.kind, kind));
        record.set_kind(kind);
        record.into_value().expect("invariant: a hot value is in RAM").copy_from_slice(value);
        entries.entry_mut(at).touch();
        self.tally.write_ram += 1;
        true
    }

    fn put_over(
        &mut self,
        key: &Key<'_>,
        at: Position,
        kind: u8,
        state: NewState<'_>,
        expiry: Expiry,
    ) {
        let entries = self.slot.table_mut(self.table);
        let (entry, old) = (entries.get(at), entries.view(at));
        match old.stored {
            Stored::Cold(..) => self.tally.write_flash += 1,
            _ => self.tally.write_ram += 1,
        }
        if matches!(old.stored, Stored::Cold(..)) && entry.frequency() == 0 {
            self.tally.add_cold_write(Hint::new(self.table, key));
        }
        let expire_at_ms = match expiry {
            Expiry::Keep => old.expire_at_ms,
            Expiry::Clear => 0,
            Expiry::At(at_ms) => at_ms,
        };
        push_dead(&old, self.tally);
        push_tree(&old, self.table, self.tally);
        self.tally.note_replaced(self.table, key.bytes, (old.kind, kind));
        self.exchange(at, kind, expire_at_ms, state);
        self.entries().entry_mut(at).touch();
    }

    fn insert(&mut self, key: &Key<'_>, kind: u8, state: NewState<'_>, expiry: Expiry) {
        self.tally.write_ram += 1;
        self.tally.note_new(self.table, key.bytes);
        let expire_at_ms = if let Expiry::At(at_ms) = expiry { at_ms } else { 0 };
        let record = Record::new(kind, expire_at_ms, key.bytes, state);
        if expire_at_ms != 0 {
            self.slot.expires_at(expire_at_ms);
        }
        let view = account(&record, self.table, 1, self.tally);
        let demotable = is_demotable(&view);
        if demotable {
            let bytes = view.value_len();
            self.tally.add_new_value(self.table, key, bytes);
        }
        let entries = self.slot.table_mut(self.table);
        let at = entries.insert(key.hash, record, &mut self.tally.index_bytes);
        entries.entry_mut(at).set_demotable(demotable);
        self.slot.changed(self.table, key.bytes);
    }

    fn exchange(&mut self, at: Position, kind: u8, expire_at_ms: u64, state: NewState<'_>) {
        if expire_at_ms != 0 {
            self.slot.expires_at(expire_at_ms);
        }
        let entries = self.slot.table_mut(self.table);
        change_record(entries, at, self.table, self.tally, |old| {
            old.change(kind, expire_at_ms, state)
        });
    }

    /// Removes a key. False: it did not exist.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        self.slot.remove_at(self.table, at, self.tally, Gone::Removed);
        true
    }

    /// Sets or ends the expiry of a key. False: it does not exist.
    pub fn set_expiry(&mut self, key: &Key<'_>, expire_at_ms: u64) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let entry = self.entries().get(at);
        if expire_at_ms != 0 && self.entries().record_mut(at).set_expiry_in_place(expire_at_ms) {
            self.slot.expires_at(expire_at_ms);
        } else if entry.is_volatile() || expire_at_ms != 0 {
            self.rebuild(at, |carried| carried.expire_at_ms = expire_at_ms);
        }
        self.slot.changed(self.table, key.bytes);
        true
    }

    /// Tells those who watch a key that it was written, though it is as it was.
    pub fn tell_watchers(&mut self, key: &Key<'_>) {
        self.slot.changed(self.table, key.bytes);
    }

    /// Changes the kind of a key (its encoding) without touching its value. Panics: one of both is a root, the other not.
    pub fn set_kind(&mut self, key: &Key<'_>, kind: u8) {
        if let Some(at) = self.locate(key) {
            let mut record = self.entries().record_mut(at);
            assert_eq!(stays_in_ram(record.view().kind), stays_in_ram(kind));
            record.set_kind(kind);
        }
    }

    /// The bytes of a resident value, to be changed in place. Its flash copy, if any, is dead from
    /// here on. None: no such key, or its value is on flash.
    pub fn into_value_mut(mut self, key: &Key<'_>) -> Option<&'a mut [u8]> {
        let at = self.locate(key)?;
        self.into_value_mut_at(key, at)
    }

    /// The same for a key that was found.
    #[inline]
    pub fn into_value_mut_at(mut self, key: &Key<'_>, at: Position) -> Option<&'a mut [u8]> {
        let record = self.slot.table_mut(self.table).record(at);
        if record.is_cold() {
            return None;
        }
        if record.is_clean() {
            push_dead(&record.view(), self.tally);
            self.rebuild(at, |carried| carried.flash = None);
        }
        self.tally.write_ram += 1;
        self.slot.changed(self.table, key.bytes);
        let record = self.slot.table_mut(self.table).record_mut(at);
        Some(record.into_value().expect("invariant: the value is in RAM"))
    }

    /// Takes a resident value out for a change and puts the result back. None: no such key, or its
    /// value is on flash. The kind may change with it. Cost: no copy of a long value.
    pub fn update<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut u8, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        let at = self.locate(key)?;
        self.update_at(key, at, |kind, value| Changed::Yes(change(kind, value)))
    }

    /// The same for what those who watch the key need not know.
    pub fn update_unwatched<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut u8, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        let at = self.locate(key)?;
        match self.change_at(key, at, |kind, value| Changed::Yes(change(kind, value)))? {
            Changed::Yes(result) | Changed::No(result) => Some(result),
        }
    }

    /// The same for a key that was found. A value that was not changed stays as it is, and nobody hears of it.
    pub fn update_at<R>(
        &mut self,
        key: &Key<'_>,
        at: Position,
        change: impl FnOnce(&mut u8, &mut Vec<u8>) -> Changed<R>,
    ) -> Option<R> {
        match self.change_at(key, at, change)? {
            Changed::No(result) => Some(result),
            Changed::Yes(result) => {
                self.slot.changed(self.table, key.bytes);
                Some(result)
            }
        }
    }

    fn change_at<R>(
        &mut self,
        key: &Key<'_>,
        at: Position,
        change: impl FnOnce(&mut u8, &mut Vec<u8>) -> Changed<R>,
    ) -> Option<Changed<R>> {
        let mut record = self.slot.table_mut(self.table).record_mut(at);
        let (result, copy) = match record.take_hot() {
            Some(taken) => (self.change_hot(at, taken, change), None),
            None => self.change_stored(at, change)?,
        };
        self.entries().entry_mut(at).touch();
        if let Changed::Yes(_) = result {
            if let Some(at) = copy {
                let key_len = key.bytes.len() as u32;
                self.tally.dead.push(DeadCopy { at, key_len });
            }
            self.tally.write_ram += 1;
            self.tally.written_bytes += key.bytes.len() as u64;
        }
        Some(result)
    }

    /// Changes a value that was taken out of its record, and puts it back. Cost: the record is written over where
    /// its length allows; only what differs is counted.
    #[inline]
    fn change_hot<R>(
        &mut self,
        at: Position,
        (mut kind, mut value): (u8, Vec<u8>),
        change: impl FnOnce(&mut u8, &mut Vec<u8>) -> Changed<R>,
    ) -> Changed<R> {
        let old_len = value.len();
        let result = change(&mut kind, &mut value);
        let len = value.len();
        // The record, which may be counted below, has an empty value.
        self.tally.value_bytes -= size_class(old_len) as i64;
        self.tally.hot_bytes -= old_len as i64;
        let entries = self.slot.table_mut(self.table);
        match entries.record_mut(at).put_hot(kind, value) {
            Ok(()) => {
                self.tally.value_bytes += size_class(len) as i64;
                self.tally.hot_bytes += len as i64;
                const { assert!(INLINE_BYTES_MAX >= DEMOTE_BYTES_MIN) };
                entries.entry_mut(at).set_demotable(!stays_in_ram(kind));
            }
            Err(value) => change_record(entries, at, self.table, self.tally, |old| {
                let expire_at_ms = old.view().expire_at_ms;
                let state = match value.len() <= INLINE_BYTES_MAX {
                    true => NewState::Inline(&value),
                    false => NewState::Hot(value.into_boxed_slice()),
                };
                old.change(kind, expire_at_ms, state)
            }),
        }
        result
    }

    /// Changes a value that stands in its record, or that has a copy on flash, the place of which is returned.
    fn change_stored<R>(
        &mut self,
        at: Position,
        change: impl FnOnce(&mut u8, &mut Vec<u8>) -> Changed<R>,
    ) -> Option<(Changed<R>, Option<FlashRef>)> {
        let entries = self.slot.table_mut(self.table);
        let View { mut kind, expire_at_ms, stored, .. } = entries.view(at);
        let copy = match stored {
            Stored::Cold(..) => return None,
            Stored::Hot(_) => None,
            Stored::Clean(_, place) => Some(place),
        };
        let mut result = None;
        change_record(entries, at, self.table, self.tally, |old| {
            // An empty box leaves the record as long as it was.
            let (old, mut value) = if old.is_inline() {
                let Stored::Hot(bytes) = old.view().stored else {
                    unreachable!("an inline value is hot")
                };
                let value = bytes.to_vec();
                (old, value)
            } else {
                let (old, boxed) = old.change(kind, expire_at_ms, NewState::Hot(Box::default()));
                (old, boxed.expect("invariant: a value in RAM").into_vec())
            };
            let changed = result.insert(change(&mut kind, &mut value));
            let state = match (copy, &changed) {
                (Some(place), Changed::No(_)) => NewState::Clean(value.into_boxed_slice(), place),
                _ if value.len() <= INLINE_BYTES_MAX => NewState::Inline(&value),
                _ => NewState::Hot(value.into_boxed_slice()),
            };
            (old.change(kind, expire_at_ms, state).0, None)
        });
        Some((result.expect("invariant: the record was changed"), copy))
    }

    /// Takes a record apart, lets `change` edit the parts, and makes a new one of them.
    fn rebuild(&mut self, at: Position, change: impl FnOnce(&mut Parts)) {
        let mut expire_at_ms = 0;
        let entries = self.slot.table_mut(self.table);
        change_record(entries, at, self.table, self.tally, |old| {
            let mut parts = Parts::of(old);
            change(&mut parts);
            expire_at_ms = parts.expire_at_ms;
            (parts.into_record(), None)
        });
        if expire_at_ms != 0 {
            self.slot.expires_at(expire_at_ms);
        }
    }

    /// A copy of a resident value. None: no such key, or its value is on flash.
    pub fn carry(&mut self, key: &Key<'_>) -> Option<Carried> {
        let view = self.peek(key)?;
        match view.stored {
            Stored::Cold(..) => None,
            Stored::Hot(value) | Stored::Clean(value, _) => Some(Carried {
                kind: view.kind,
                expire_at_ms: view.expire_at_ms,
                value: value.to_vec(),
            }),
        }
    }

    /// Takes a resident value away from its key. None: no such key, or its value is on flash. Cost:
    /// no copy of a long value.
    pub fn take(&mut self, key: &Key<'_>) -> Option<Carried> {
        let at = self.locate(key)?;
        if let Stored::Cold(..) = self.entries().view(at).stored {
            return None;
        }
        let record = self.slot.detach_at(self.table, at, self.tally, Gone::Taken);
        let parts = Parts::of(record);
        let value = parts.boxed.map_or_else(|| parts.inline.into_vec(), <[u8]>::into_vec);
        Some(Carried { kind: parts.kind, expire_at_ms: parts.expire_at_ms, value })
    }

    /// Sets a key to a value that came from another one.
    pub fn put_carried(&mut self, key: &Key<'_>, carried: Carried) {
        let expiry = match carried.expire_at_ms {
            0 => Expiry::Clear,
            at_ms => Expiry::At(at_ms),
        };
        self.put_vec(key, carried.kind, carried.value, expiry);
    }

    /// Puts the value of a cold key back into RAM beside its flash copy. False: the key's value is
    /// no longer (only) at `from`.
    pub fn promote(&mut self, key: &Key<'_>, from: FlashRef, value: Box<[u8]>) -> bool {
        self.promote_with(key, |at, _| (at == from).then_some(value))
    }

    /// The same with the value that `choose` gives for the key's place and frequency; none leaves
    /// the key as it is.
    pub fn promote_with(
        &mut self,
        key: &Key<'_>,
        choose: impl FnOnce(FlashRef, u8) -> Option<Box<[u8]>>,
    ) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let frequency = self.entries().get(at).frequency();
        let View { kind, expire_at_ms, stored, .. } = self.entries().view(at);
        let Stored::Cold(place, _) = stored else { return false };
        let Some(value) = choose(place, frequency) else { return false };
        self.exchange(at, kind, expire_at_ms, NewState::Clean(value, place));
        true
    }

    /// Puts a value back into RAM whose flash copy turned out unwritable. The copy is not released:
    /// the log already knows. False: nothing pointed at `from`.
    pub fn restore(&mut self, key: &Key<'_>, from: FlashRef, value: &[u8]) -> bool {
        self.replace_cold(key, from, state_of(value)) || self.forget_copy(key, from)
    }

    /// Drops the flash copy of a value that is in RAM too; the log takes the space back itself.
    /// False: the key has no clean copy at `from`.
    pub fn forget_copy(&mut self, key: &Key<'_>, from: FlashRef) -> bool {
        let Some(at) = self.locate(key) else { return false };
        match self.entries().view(at).stored {
            Stored::Clean(_, place) if place.units == from.units => {
                self.rebuild(at, |parts| parts.flash = None);
                true
            }
            _ => false,
        }
    }

    /// Lets a key's flash copy be the identical one at `to` where it was the one at `from`. Units:
    /// as in [`FlashRef::units`]. False: it was not.
    pub fn relocate(&mut self, key: &Key<'_>, from: u64, to: u64) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let mut record = self.entries().record_mut(at);
        match record.view().stored {
            Stored::Clean(_, place) | Stored::Cold(place, _) if place.units == from => {
                record.set_place(to);
                true
            }
            _ => false,
        }
    }

    /// Takes a value out of RAM whose copy lies at `flash`: the demotion of one named key. False:
    /// no such key, or it is cold already.
    pub fn demote(&mut self, key: &Key<'_>, flash: FlashRef) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let table = self.table;
        let entries = self.slot.table_mut(table);
        if !entries.get(at).is_demotable() {
            return false;
        }
        crate::slot::demote_at(entries, at, table, flash, self.tally);
        true
    }

    /// Asks `judge` about the value of one named key, used or not, and does as is said. What came of it;
    /// none: no such key, or it is cold already.
    pub fn demote_by(&mut self, key: &Key<'_>, judge: &mut impl Judge) -> Option<Verdict> {
        let at = self.locate(key)?;
        let table = self.table;
        let entries = self.slot.table_mut(table);
        let is_demotable = entries.get(at).is_demotable();
        is_demotable.then(|| crate::slot::carry_out(entries, at, table, self.tally, judge))
    }

    fn replace_cold(&mut self, key: &Key<'_>, from: FlashRef, state: NewState<'_>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let View { kind, expire_at_ms, stored, .. } = self.entries().view(at);
        match stored {
            Stored::Cold(place, _) if place == from => {
                self.exchange(at, kind, expire_at_ms, state);
                true
            }
            _ => false,
        }
    }

    /// The counters that this batch of operations adds to.
    pub fn tally(&mut self) -> &mut Tally {
        self.tally
    }
}

/// A record taken apart, for a change of one of its parts.
struct Parts {
    kind: u8,
    expire_at_ms: u64,
    key: KeyCopy,
    inline: SmallVec<[u8; INLINE_BYTES_MAX]>,
    boxed: Option<Box<[u8]>>,
    flash: Option<FlashRef>,
    /// Length of a value that is on flash alone.
    cold_len: u32,
}

impl Parts {
    fn of(record: Record) -> Parts {
        let view = record.view();
        let mut parts = Parts {
            kind: view.kind,
            expire_at_ms: view.expire_at_ms,
            key: KeyCopy::from_slice(view.key),
            inline: SmallVec::new(),
            boxed: None,
            flash: None,
            cold_len: 0,
        };
        match view.stored {
            Stored::Hot(bytes) if record.is_inline() => parts.inline.extend_from_slice(bytes),
            Stored::Hot(_) => {}
            Stored::Clean(_, at) => parts.flash = Some(at),
            Stored::Cold(at, len) => (parts.flash, parts.cold_len) = (Some(at), len),
        }
        parts.boxed = record.free();
        parts
    }

    fn into_record(self) -> Record {
        let state = match (self.boxed, self.flash) {
            (Some(value), Some(at)) => NewState::Clean(value, at),
            (Some(value), None) if value.len() <= INLINE_BYTES_MAX => {
                let inline = SmallVec::<[u8; INLINE_BYTES_MAX]>::from_slice(&value);
                return Record::new(
                    self.kind,
                    self.expire_at_ms,
                    &self.key,
                    NewState::Inline(&inline),
                );
            }
            (Some(value), None) => NewState::Hot(value),
            (None, Some(at)) => NewState::Cold(at, self.cold_len),
            (None, None) => NewState::Inline(&self.inline),
        };
        Record::new(self.kind, self.expire_at_ms, &self.key, state)
    }
}

fn state_of(value: &[u8]) -> NewState<'_> {
    if value.len() <= INLINE_BYTES_MAX {
        NewState::Inline(value)
    } else {
        NewState::Hot(value.into())
    }
}

/// Lets `change` make another record of the one at `at`, and frees the value that it hands out.
#[inline]
pub(crate) fn change_record(
    entries: &mut Table,
    at: Position,
    table: u8,
    tally: &mut Tally,
    change: impl FnOnce(Record) -> (Record, Option<Box<[u8]>>),
) {
    let mut demotable = false;
    entries.change(at, |old| {
        account(&old, table, -1, tally);
        let (record, _value) = change(old);
        demotable = is_demotable(&account(&record, table, 1, tally));
        record
    });
    entries.entry_mut(at).set_demotable(demotable);
}

fn is_demotable(view: &View<'_>) -> bool {
    !matches!(view.stored, Stored::Cold(..))
        && view.value_len() >= DEMOTE_BYTES_MIN
        && !stays_in_ram(view.kind)
}

/// Whether a value is a root or a branch of a large collection.
pub(crate) const fn stays_in_ram(kind: u8) -> bool {
    kind & TREE_KIND_BITS == TREE_KIND_BITS
}

pub(crate) fn push_dead(view: &View<'_>, tally: &mut Tally) {
    if let Stored::Clean(_, at) | Stored::Cold(at, _) = view.stored {
        tally.dead.push(DeadCopy { at, key_len: view.key.len() as u32 });
    }
}

/// Lists a large collection whose key goes or gets another value: its nodes are freed later.
pub(crate) fn push_tree(view: &View<'_>, table: u8, tally: &mut Tally) {
    if holds_keys(table)
        && stays_in_ram(view.kind)
        && let Stored::Hot(root) = view.stored
    {
        tally.trees.push(DetachedTree { slot: key_slot(view.key), table, root: root.into() });
    }
}

/// Adds (`sign` 1) or takes away (-1) what a record counts for. Returns its view.
#[inline]
pub(crate) fn account<'a>(record: &'a Record, table: u8, sign: i64, tally: &mut Tally) -> View<'a> {
    account_keys(table, sign, sign * i64::from(record.is_volatile()), tally);
    account_values(record, sign, tally)
}

/// The part of [`account`] that belongs to keys: a difference in their number and in that of keys
/// with an expiry.
pub(crate) fn account_keys(table: u8, keys: i64, volatile: i64, tally: &mut Tally) {
    if !holds_keys(table) {
        tally.nodes += keys;
        return;
    }
    tally.keys[table as usize] += keys;
    tally.volatile[table as usize] += volatile;
}

/// The part of [`account`] that belongs to records and values.
#[inline]
pub(crate) fn account_values<'a>(record: &'a Record, sign: i64, tally: &mut Tally) -> View<'a> {
    let (view, record_bytes, value_bytes) = record.measure();
    tally.index_bytes += sign * record_bytes as i64;
    tally.value_bytes += sign * value_bytes as i64;
    let len = sign * view.value_len() as i64;
    match view.stored {
        Stored::Hot(_) => {
            tally.hot_count += sign;
            tally.hot_bytes += len;
        }
        Stored::Clean(..) => {
            tally.clean_count += sign;
            tally.clean_bytes += len;
        }
        Stored::Cold(..) => {
            tally.cold_count += sign;
            tally.cold_bytes += len;
        }
    }
    view
}

/// Releases the flash copy of a record that goes, and counts why it went.
pub(crate) fn account_gone(record: &Record, table: u8, tally: &mut Tally, gone: Gone) {
    let view = record.view();
    push_dead(&view, tally);
    if gone != Gone::Taken {
        push_tree(&view, table, tally);
    }
    if !holds_keys(table) {
        return;
    }
    tally.note_end(table, view.key, view.kind);
    match (gone, view.stored) {
        (Gone::Taken, Stored::Cold(..)) => tally.delete_flash += 1,
        (Gone::Taken, _) => tally.delete_ram += 1,
        (Gone::Removed, Stored::Cold(..)) => tally.delete_flash += 1,
        (Gone::Removed, _) => tally.delete_ram += 1,
        (Gone::Expired, _) => {
            tally.expired += 1;
            tally.note_gone(table, view.key, Noted::Expired { at_ms: view.expire_at_ms });
        }
        // Whoever evicts counts it.
        (Gone::Evicted, _) => tally.note_gone(table, view.key, Noted::Evicted),
    }
}
