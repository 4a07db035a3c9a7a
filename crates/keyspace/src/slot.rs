//! A slot: the tables of its databases, who watches its keys, and the sweep that expires and
//! demotes.

use crate::db::{Gone, account, account_gone};
use crate::detached::DetachedTable;
use crate::entry::Entry;
use crate::key::{Hint, Key, VALUE_LINES};
use crate::record::{FlashRef, NewState, Record, Stored, View};
use crate::region::Region;
use crate::table::{Position, Table};
use crate::tally::Tally;
use crate::timers::Timers;
use crate::watch::{WatchFlag, Watchers};
use std::sync::Arc;
use stdx::prefetch::prefetch;

/// Databases of a server (`SELECT 0` to `SELECT 15`).
pub const DB_COUNT: usize = 16;

/// Tables of a slot: of the keys of each database, then of the nodes of their large collections.
pub const TABLE_COUNT: usize = 2 * DB_COUNT;

/// The table of the nodes of the collections in a table of keys.
#[inline]
pub const fn node_table(table: u8) -> u8 {
    table + DB_COUNT as u8
}

/// Whether a table is one of keys, not of nodes.
#[inline]
pub(crate) const fn holds_keys(table: u8) -> bool {
    (table as usize) < DB_COUNT
}

/// Entries that expiry looks ahead, so that records are on their way when it gets there.
const SWEEP_AHEAD: usize = 8;

/// A table for each database.
#[derive(Default)]
struct Tables {
    first: Table,
    /// Tables 1 to 15, made when first used: most servers have one database.
    others: Option<Box<[Table; DB_COUNT - 1]>>,
}

/// The tables, and what else, that most slots do not have, made when first used.
#[derive(Default)]
pub(crate) struct Others {
    /// Keys of the databases 1 to 15.
    keys: Option<Box<[Table; DB_COUNT - 1]>>,
    /// Nodes of large collections.
    nodes: Option<Box<Tables>>,
    /// When elements of collections expire.
    pub(crate) timers: Option<Box<Timers>>,
}

/// What a slot's mutex guards.
#[derive(Default)]
pub struct SlotState {
    /// Keys of database 0.
    first: Table,
    pub(crate) others: Option<Box<Others>>,
    watchers: Option<Box<Watchers>>,
    /// No key of this slot expires before this time (Unix milliseconds); 0: none expires at all.
    expiry_hint_ms: u64,
}

/// What is to be done with a value that nobody has used for a while.
pub enum Verdict {
    /// It now has this copy on flash: take the value out of RAM.
    Demote(FlashRef),
    /// It is large and in RAM alone: hand it over rather than have it copied ([`Judge::take_over`]).
    HandOver,
    /// Leave it.
    Keep,
    /// Leave it, and end the sweep of this slot: the flash takes no more for now.
    Stop,
}

/// Who decides about values that nobody has used for a while. A closure does that never takes one over.
pub trait Judge {
    /// What is to be done with the value of a record in a table.
    fn judge(&mut self, view: View<'_>, table: u8) -> Verdict;

    /// Takes over the value of a record, for which it said [`Verdict::HandOver`]; tells where its copy on
    /// flash will be, uncompressed. `view` is the record's, without the value.
    ///
    /// Errors: with the value handed back, and what is to be done then.
    fn take_over(
        &mut self,
        view: View<'_>,
        table: u8,
        value: Box<[u8]>,
    ) -> Result<FlashRef, (Box<[u8]>, Verdict)>;
}

impl<F: FnMut(View<'_>, u8) -> Verdict> Judge for F {
    fn judge(&mut self, view: View<'_>, table: u8) -> Verdict {
        self(view, table)
    }

    fn take_over(
        &mut self,
        _view: View<'_>,
        _table: u8,
        value: Box<[u8]>,
    ) -> Result<FlashRef, (Box<[u8]>, Verdict)> {
        Err((value, Verdict::Keep))
    }
}

/// Where a hand is in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryPosition {
    pub(crate) table: u8,
    pub(crate) segment: u32,
    pub(crate) index: u32,
}

/// How far a hand goes in one call: up to where one of the two is reached, and a few entries more.
#[derive(Clone, Copy, Debug)]
pub struct PassLimit {
    /// RAM that is wanted.
    pub bytes_max: i64,
    /// Places of tables to look at.
    pub places_max: u64,
}

/// What a sweep did.
#[derive(Default, Clone, Copy, Debug)]
pub struct Swept {
    /// Entries looked at.
    pub visited: u64,
    /// Places of tables that a hand passed, those outside its region and empty ones included.
    pub passed: u64,
    /// Keys whose time had come.
    pub expired: u64,
    /// Whether the judge said [`Verdict::Stop`].
    pub stopped: bool,
}

impl SlotState {
    #[inline]
    pub(crate) fn table(&self, table: u8) -> Option<&Table> {
        if table == 0 { Some(&self.first) } else { self.other_table(table) }
    }

    fn other_table(&self, table: u8) -> Option<&Table> {
        let others = self.others.as_ref()?;
        if holds_keys(table) {
            return others.keys.as_ref().map(|keys| &keys[table as usize - 1]);
        }
        let nodes = others.nodes.as_ref()?;
        match table as usize - DB_COUNT {
            0 => Some(&nodes.first),
            index => nodes.others.as_ref().map(|others| &others[index - 1]),
        }
    }

    #[inline]
    pub(crate) fn table_mut(&mut self, table: u8) -> &mut Table {
        if table == 0 { &mut self.first } else { self.other_table_mut(table) }
    }

    fn other_table_mut(&mut self, table: u8) -> &mut Table {
        let others = self.others.get_or_insert_default();
        if holds_keys(table) {
            return &mut others.keys.get_or_insert_default()[table as usize - 1];
        }
        let nodes = others.nodes.get_or_insert_default();
        match table as usize - DB_COUNT {
            0 => &mut nodes.first,
            index => &mut nodes.others.get_or_insert_default()[index - 1],
        }
    }

    /// What is known of a key or node, whether its time has come or not, and without being an access.
    #[inline]
    pub fn view(&self, table: u8, key: &Key<'_>) -> Option<View<'_>> {
        let entries = self.table(table)?;
        Some(entries.view(entries.find(key.hash, key.bytes)?))
    }

    /// The same, and how often it was used lately, 0 to 3.
    pub fn view_used(&self, table: u8, key: &Key<'_>) -> Option<(View<'_>, u8)> {
        let entries = self.table(table)?;
        let at = entries.find(key.hash, key.bytes)?;
        Some((entries.view(at), entries.get(at).frequency()))
    }

    /// Where a key or node stands, whether its time has come or not.
    #[inline]
    pub fn find(&self, table: u8, key: &Key<'_>) -> Option<Position> {
        self.table(table)?.find(key.hash, key.bytes)
    }

    /// The same for one that was seen at `hint`, from where it may have gone. Cost: no look-up, and no hash, if it
    /// is there.
    #[inline]
    pub fn find_from(&self, table: u8, key: &[u8], hint: Position) -> Option<Position> {
        self.table(table)?.find_from(hint, key)
    }

    /// What is known of a key or node that was found, and not moved since. Panics: there is none.
    #[inline]
    pub fn view_at(&self, table: u8, at: Position) -> View<'_> {
        self.table(table).expect("a key was found in the table").view(at)
    }

    /// The bytes of such a value, if it is in RAM. Cost: less than [`SlotState::view_at`]. Panics: there is none.
    #[inline]
    pub fn bytes_at(&self, table: u8, at: Position) -> Option<&[u8]> {
        self.table(table).expect("a key was found in the table").bytes(at)
    }

    pub(crate) fn expires_at(&mut self, at_ms: u64) {
        if self.expiry_hint_ms == 0 || at_ms < self.expiry_hint_ms {
            self.expiry_hint_ms = at_ms;
        }
    }

    /// Whether a key of this slot may have expired by `now_ms`.
    pub fn may_have_expired(&self, now_ms: u64) -> bool {
        self.expiry_hint_ms != 0 && self.expiry_hint_ms <= now_ms
    }

    /// Where the value of a key lies, and its length, when it is on flash alone. Whether its time
    /// has come is not looked at, and it is no access.
    #[inline]
    pub fn cold(&self, table: u8, key: &Key<'_>) -> Option<(FlashRef, u32)> {
        let Stored::Cold(place, value_len) = self.view(table, key)?.stored else { return None };
        Some((place, value_len))
    }

    /// Asks for the line where the table would look for the key.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: &mut Hint) {
        if let Some(table) = self.table(key.table) {
            prefetch(table.home_address(key.hash));
        }
    }

    /// Asks for the record that is probably the key's.
    #[inline]
    pub(crate) fn prefetch_record(&self, key: &mut Hint) {
        let Some(entries) = self.table(key.table) else { return };
        key.guess = entries.guess(key.hash);
        if let Some(at) = key.guess {
            prefetch(entries.get(at).address() as *const u8);
        }
    }

    /// Asks for the value of that record, when it stands apart, and notes its kind, and where it is if that is on flash
    /// alone.
    #[inline(always)]
    pub(crate) fn prefetch_value(&self, key: &mut Hint, lines: usize) {
        if let (Some(entries), Some(at)) = (self.table(key.table), key.guess)
            && entries.fits(at, key.hash)
        {
            let (kind, cold) = entries.record(at).prefetch_value(lines);
            (key.kind, key.cold) = (Some(kind), cold);
        }
    }

    /// What stands where a key was guessed when it was prefetched: perhaps another of the same tag.
    #[inline]
    pub fn guessed(&self, key: &Hint) -> Option<(Position, View<'_>)> {
        let (entries, at) = (self.table(key.table)?, key.guess?);
        entries.fits(at, key.hash).then(|| (at, entries.view(at)))
    }

    /// Watches `key` for `flag`. False: it does already. The caller looks the key up first ([`crate::Db::peek`]), so
    /// that a key whose time has come counts as missing, and once more before the transaction runs, so that one whose
    /// time has come in between counts as changed.
    pub fn watch(&mut self, table: u8, key: &[u8], flag: &Arc<WatchFlag>) -> bool {
        self.watchers.get_or_insert_default().add(table, key, flag)
    }

    /// How many keys are watched here.
    pub fn watchers(&self) -> usize {
        self.watchers.as_ref().map_or(0, |watchers| watchers.len())
    }

    /// Ends what `flag` watches under the name of a key, in any table.
    pub fn unwatch(&mut self, key: &[u8], flag: &Arc<WatchFlag>) {
        if let Some(watchers) = &mut self.watchers {
            watchers.remove(key, flag);
            self.drop_watchers();
        }
    }

    /// Ends all that `flag` watches here. Cost: linear in all that is watched here.
    pub fn unwatch_all(&mut self, flag: &Arc<WatchFlag>) {
        if let Some(watchers) = &mut self.watchers {
            watchers.remove_all(flag);
            self.drop_watchers();
        }
    }

    fn drop_watchers(&mut self) {
        if self.watchers.as_ref().is_some_and(|watchers| watchers.is_empty()) {
            self.watchers = None;
        }
    }

    #[inline]
    pub(crate) fn changed(&self, table: u8, key: &[u8]) {
        if let Some(watchers) = &self.watchers {
            watchers.changed(table, key);
        }
    }

    /// Removes, from both tables, keys whose time has come and which somebody watches in either:
    /// before SWAPDB, so that a stale key is no key to whom it would come.
    pub fn expire_watched(&mut self, one: u8, two: u8, now_ms: u64, tally: &mut Tally) {
        let Some(watchers) = &self.watchers else { return };
        let watched: Vec<Box<[u8]>> = [one, two]
            .into_iter()
            .flat_map(|table| watchers.keys(table).map(|(key, _)| key.into()))
            .collect();
        for key in watched {
            let key = Key::new(&key);
            for table in [one, two] {
                crate::Db::new(self, table, now_ms, tally).peek(&key);
            }
        }
    }

    /// Whether a key of this slot may have an expiry.
    pub fn may_have_volatile(&self) -> bool {
        self.expiry_hint_ms != 0
    }

    /// Raises the flags of watched keys whose existence in `table` is about to change: those that
    /// exist now (also when their time has come, since they lived when the watch began), and, when
    /// the table is to be swapped with `other`, those that exist there.
    pub fn changed_all(&self, table: u8, other: Option<u8>, now_ms: u64) {
        let Some(watchers) = &self.watchers else { return };
        let find = |table: u8, key: &[u8]| {
            let entries = self.table(table)?;
            entries.find(crate::key::hash(key), key).map(|at| (entries, at))
        };
        for (key, flag) in watchers.keys(table) {
            let comes = |other| {
                find(other, key).is_some_and(|(entries, at)| !is_expired(entries, at, now_ms))
            };
            if find(table, key).is_some() || other.is_some_and(comes) {
                flag.raise();
            }
        }
    }

    /// Removes every key of `table` and hands the emptied-out table to the caller, who frees it
    /// after it has let go of the slot. None: there was nothing, not even an empty array. Cost: the
    /// table's entries are read once; no record is touched.
    pub fn clear(&mut self, table: u8, tally: &mut Tally) -> Option<DetachedTable> {
        let has_nodes = self.table(node_table(table)).is_some_and(|nodes| nodes.ram_bytes() > 0);
        if self.table(table)?.ram_bytes() == 0 && !has_nodes {
            return None;
        }
        self.forget_timers_of_table(table, tally);
        let entries = std::mem::take(self.table_mut(table));
        let nodes = has_nodes.then(|| std::mem::take(self.table_mut(node_table(table))));
        Some(DetachedTable::new(entries, nodes, table, tally))
    }

    /// Lets the watchers of two databases follow SWAPDB, which exchanges their tables: who watches
    /// a key of database 0 goes on watching database 0.
    pub fn swap_watchers(&mut self, one: u8, two: u8) {
        if let Some(watchers) = &mut self.watchers {
            watchers.swap_tables(one, two);
        }
    }

    /// Keys of `table`, expired ones included.
    pub fn len(&self, table: u8) -> usize {
        self.table(table).map_or(0, Table::len)
    }

    /// Visits the keys of `table` in scan order; see [`crate::ScanPosition`].
    pub fn scan(
        &self,
        table: u8,
        from: crate::ScanPosition,
        mut visit: impl FnMut(View<'_>) -> bool,
    ) -> Option<crate::ScanPosition> {
        self.table(table)?.scan(from, |_| true, |_, record| visit(record.view()))
    }

    /// The end of the hash prefixes that stand in one segment of `table` with a position.
    pub(crate) fn segment_end(&self, table: u8, at: crate::ScanPosition) -> u32 {
        self.table(table).map_or(crate::ScanPosition::END.prefix, |table| table.segment_end(at))
    }

    /// Visits keys of `table` whose values may be on flash and which were used `frequency` times lately, in scan order,
    /// until `visit` says that it was enough, or some more than `entries_max` entries were passed. Cost: a look at each
    /// entry, and at the records that are visited.
    pub fn scan_used(
        &self,
        table: u8,
        from: crate::ScanPosition,
        (frequency, entries_max): (u8, usize),
        mut visit: impl FnMut(View<'_>) -> bool,
    ) -> Option<crate::ScanPosition> {
        let mut passed = 0;
        let is_one = |entry: Entry| entry.frequency() == frequency && !entry.is_demotable();
        self.table(table)?.scan(from, is_one, |entry, record| {
            passed += 1;
            is_one(entry) && visit(record.view()) || passed >= entries_max
        })
    }

    /// [`SlotState::scan`] for a visitor that reads values in RAM; each key comes with its frequency.
    pub fn scan_ranked(
        &self,
        table: u8,
        from: crate::ScanPosition,
        mut visit: impl FnMut(View<'_>, u8) -> bool,
    ) -> Option<crate::ScanPosition> {
        self.table(table)?
            .scan_values(from, |entry, record| visit(record.view(), entry.frequency()))
    }

    /// The `nth` (modulo their number) key of `table`. Cost: at most one segment's entries.
    pub fn nth(&self, table: u8, nth: u64) -> Option<View<'_>> {
        let entries = self.table(table)?;
        let nth = nth.checked_rem(entries.len() as u64)? as usize;
        entries.nth(nth)
    }

    /// Removes the keys of all databases whose time has come.
    pub fn expire(&mut self, now_ms: u64, tally: &mut Tally) -> Swept {
        let mut swept = Swept::default();
        self.expiry_hint_ms = 0;
        for table in 0..DB_COUNT as u8 {
            self.expire_table(table, now_ms, tally, &mut swept);
        }
        swept
    }

    fn expire_table(&mut self, table: u8, now_ms: u64, tally: &mut Tally, swept: &mut Swept) {
        let segments = self.table(table).map_or(0, Table::segment_count);
        for segment in 0..segments {
            self.expire_segment(table, segment, now_ms, tally, swept);
        }
    }

    fn expire_segment(
        &mut self,
        table: u8,
        segment: u32,
        now_ms: u64,
        tally: &mut Tally,
        swept: &mut Swept,
    ) {
        let mut index = 0;
        loop {
            let records = &*self.table_mut(table);
            let entries = records.segment(segment);
            let capacity = entries.capacity();
            if index >= capacity {
                return;
            }
            let ahead = entries.peek(index + SWEEP_AHEAD);
            if ahead.is_volatile() {
                prefetch(ahead.address() as *const u8);
            }
            let entry = entries.get(index);
            let at = Position::new(segment, index);
            index += 1;
            if !entry.is_volatile() {
                continue;
            }
            swept.visited += 1;
            let expire_at_ms = records.view(at).expire_at_ms;
            if expire_at_ms > now_ms {
                self.expires_at(expire_at_ms);
                continue;
            }
            swept.expired += 1;
            self.remove_at(table, at, tally, Gone::Expired);
            // The gap was closed from behind: look at this place again. When the array shrank,
            // entries not yet seen may have moved in front of it: start over, which happens only
            // each time that a third of the entries has gone.
            let shrank = self.table_mut(table).segment(segment).capacity() != capacity;
            index = if shrank { 0 } else { index - 1 };
        }
    }

    /// The first place at or behind `from` whose segment has entries, in the first so many tables.
    pub(crate) fn entries_from(
        &self,
        mut from: EntryPosition,
        tables: usize,
    ) -> Option<EntryPosition> {
        while usize::from(from.table) < tables {
            let segments = self.table(from.table).map_or(0, Table::segment_count);
            while from.segment < segments {
                let entries = self.table(from.table).expect("invariant: it has segments");
                if entries.segment(from.segment).len() > 0 {
                    return Some(from);
                }
                from = EntryPosition { segment: from.segment + 1, index: 0, ..from };
            }
            from = EntryPosition { table: from.table + 1, segment: 0, index: 0 };
        }
        None
    }

    /// How many tables there may be: those of nodes only where there is a node.
    pub(crate) fn tables(&self) -> usize {
        match &self.others {
            None => 1,
            Some(others) if others.nodes.is_none() => DB_COUNT,
            Some(_) => TABLE_COUNT,
        }
    }

    /// Passes the demotion hand over the slot from `from` on, which then is where it stopped: the
    /// default again at the end of the slot. Lowers the frequency of every entry whose record lies
    /// in `region`, and asks `judge` about each value in RAM whose frequency was 0 already.
    pub fn pass_hand(
        &mut self,
        from: &mut EntryPosition,
        limit: PassLimit,
        region: Region,
        tally: &mut Tally,
        judge: &mut impl Judge,
    ) -> Swept {
        let mut swept = Swept::default();
        let before = tally.ram_bytes();
        while let Some(at) = self.entries_from(*from, self.tables()) {
            *from = at;
            let places = self.table_mut(at.table).segment(at.segment).capacity();
            while (from.index as usize) < places {
                let freed = before - tally.ram_bytes();
                let is_far = swept.passed >= limit.places_max || freed >= limit.bytes_max;
                if swept.stopped || is_far {
                    return swept;
                }
                self.pass_hand_idle(from, region, tally, judge, &mut swept);
            }
            *from = EntryPosition { segment: at.segment + 1, index: 0, ..at };
        }
        *from = EntryPosition::default();
        swept
    }

    /// Asks `judge` about every value in RAM that may be demoted, used or not, and leaves frequencies as
    /// they are. False: the judge said [`Verdict::Stop`].
    pub fn demote_each(&mut self, tally: &mut Tally, judge: &mut impl Judge) -> bool {
        let mut from = EntryPosition::default();
        while let Some(at) = self.entries_from(from, self.tables()) {
            let entries = self.table_mut(at.table);
            for index in 0..entries.segment(at.segment).capacity() {
                let place = Position::new(at.segment, index);
                if entries.get(place).is_demotable()
                    && let Verdict::Stop = carry_out(entries, place, at.table, tally, judge)
                {
                    return false;
                }
            }
            from = EntryPosition { segment: at.segment + 1, index: 0, ..at };
        }
        true
    }

    /// Asks `judge` about the value of a key, unless it was used more often than `frequency_max` says. A guess by its
    /// hash will do: another key of the same tag is as little used. False: the judge said [`Verdict::Stop`].
    pub fn demote_unused(
        &mut self,
        key: Hint,
        frequency_max: u8,
        tally: &mut Tally,
        judge: &mut impl Judge,
    ) -> bool {
        let entries = self.table_mut(key.table);
        let Some(at) = entries.guess(key.hash) else { return true };
        let entry = entries.get(at);
        if !entry.is_demotable() || entry.frequency() > frequency_max {
            return true;
        }
        !matches!(carry_out(entries, at, key.table, tally, judge), Verdict::Stop)
    }

    /// Deals with the next idle values of a segment.
    fn pass_hand_idle(
        &mut self,
        from: &mut EntryPosition,
        region: Region,
        tally: &mut Tally,
        judge: &mut impl Judge,
        swept: &mut Swept,
    ) {
        let table = from.table;
        let entries = self.table_mut(table);
        let mut index = from.index as usize;
        let idle = entries.age(from.segment, region, &mut index, &mut swept.visited);
        swept.passed += (index - from.index as usize) as u64;
        from.index = index as u32;
        for &at in &idle {
            entries.record(at).prefetch_value(VALUE_LINES);
        }
        for at in idle {
            if let Verdict::Stop = carry_out(entries, at, table, tally, judge) {
                swept.stopped = true;
                return;
            }
        }
    }

    pub(crate) fn remove_at(&mut self, table: u8, at: Position, tally: &mut Tally, gone: Gone) {
        self.detach_at(table, at, tally, gone).free();
    }

    /// Takes a record out of its table, the counters and the watchers' sight; the caller frees it.
    pub(crate) fn detach_at(
        &mut self,
        table: u8,
        at: Position,
        tally: &mut Tally,
        gone: Gone,
    ) -> Record {
        let record = self.table_mut(table).remove(at, &mut tally.index_bytes);
        account(&record, table, -1, tally);
        account_gone(&record, table, tally, gone);
        self.changed(table, record.key());
        self.forget_timers(table, record.key(), tally);
        record
    }
}

/// Asks about a value in RAM and does as is said. What came of it: never [`Verdict::HandOver`].
pub(crate) fn carry_out(
    entries: &mut Table,
    at: Position,
    table: u8,
    tally: &mut Tally,
    judge: &mut impl Judge,
) -> Verdict {
    let verdict = judge.judge(entries.view(at), table);
    match verdict {
        Verdict::Demote(flash) => demote_at(entries, at, table, flash, tally),
        Verdict::HandOver => return hand_over(entries, at, table, tally, judge),
        Verdict::Keep | Verdict::Stop => {}
    }
    verdict
}

/// Hands a value over to be written to flash: its record is one of a cold value while that is done, whose
/// place is known afterwards.
#[cold]
fn hand_over(
    entries: &mut Table,
    at: Position,
    table: u8,
    tally: &mut Tally,
    judge: &mut impl Judge,
) -> Verdict {
    let view = entries.view(at);
    assert!(matches!(view.stored, Stored::Hot(_)), "another has its copy on flash");
    let (kind, expire_at_ms, len) = (view.kind, view.expire_at_ms, view.value_len() as u32);
    let nowhere = FlashRef { units: 0, stored_len: len, compressed: false };
    let mut value = None;
    crate::db::change_record(entries, at, table, tally, |old| {
        let (record, taken) = old.change(kind, expire_at_ms, NewState::Cold(nowhere, len));
        value = taken;
        (record, None)
    });
    let value = value.expect("invariant: a large value stands apart from its record");
    match judge.take_over(entries.view(at), table, value) {
        Ok(flash) => {
            entries.record_mut(at).set_place(flash.units);
            Verdict::Demote(flash)
        }
        Err((value, verdict)) => {
            crate::db::change_record(entries, at, table, tally, |old| {
                old.change(kind, expire_at_ms, NewState::Hot(value))
            });
            verdict
        }
    }
}

/// Takes a value out of RAM whose copy lies at `flash`.
pub(crate) fn demote_at(
    entries: &mut Table,
    at: Position,
    table: u8,
    flash: FlashRef,
    tally: &mut Tally,
) {
    let view = entries.view(at);
    if !matches!(view.stored, Stored::Clean(_, copy) if copy == flash) {
        crate::db::push_dead(&view, tally);
    }
    let (kind, expire_at_ms) = (view.kind, view.expire_at_ms);
    let state = NewState::Cold(flash, view.value_len() as u32);
    crate::db::change_record(entries, at, table, tally, |old| {
        old.change(kind, expire_at_ms, state)
    });
}

pub(crate) fn is_expired(entries: &Table, at: Position, now_ms: u64) -> bool {
    entries.get(at).is_volatile() && entries.view(at).expire_at_ms <= now_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Expiry};
    use crate::watch::WatchFlag;
    use std::collections::BTreeSet;

    const NOW_MS: u64 = 1_700_000_000_000;
    const EVERYTHING: PassLimit = PassLimit { bytes_max: i64::MAX, places_max: u64::MAX };

    fn with_db<R>(slot: &mut SlotState, table: u8, run: impl FnOnce(&mut Db<'_>) -> R) -> R {
        run(&mut Db::new(slot, table, NOW_MS, &mut Tally::default()))
    }

    fn put(slot: &mut SlotState, table: u8, name: &str, len: usize, expiry: Expiry) {
        let key = Key::new(name.as_bytes());
        with_db(slot, table, |db| db.put(&key, 0, &vec![b'v'; len], expiry));
    }

    fn names(slot: &SlotState, table: u8) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        slot.scan(table, crate::ScanPosition::default(), |view| {
            names.insert(String::from_utf8_lossy(view.key).into_owned());
            false
        });
        names
    }

    #[test]
    fn a_sweep_finds_every_key_whose_time_has_come_however_arrays_shrink() {
        for live_every in [3, 7, 50] {
            let (mut slot, mut tally) = (SlotState::default(), Tally::default());
            for number in 0..5_000u64 {
                let expiry = match number % live_every {
                    0 => Expiry::Clear,
                    1 => Expiry::At(NOW_MS + 1 + number),
                    _ => Expiry::At(NOW_MS - number),
                };
                put(&mut slot, (number % 3) as u8, &format!("key-{number}"), 1, expiry);
            }
            assert!(slot.may_have_expired(NOW_MS));
            let swept = slot.expire(NOW_MS, &mut tally);
            let expected = (0..5_000u64).filter(|number| number % live_every > 1).count();
            assert_eq!(swept.expired, expected as u64);
            assert_eq!(tally.expired, expected as u64);
            let left: usize = (0..3).map(|table| slot.len(table)).sum();
            assert_eq!(left, 5_000 - expected);
            assert!(!slot.may_have_expired(NOW_MS + 1), "the next one is due at + 2");
            assert!(slot.may_have_expired(NOW_MS + 2));
            assert_eq!(slot.expire(NOW_MS + 10_000, &mut tally).expired as usize, {
                (0..5_000u64).filter(|number| number % live_every == 1).count()
            });
            assert!(!slot.may_have_expired(u64::MAX));
        }
    }

    /// Passes the hand, demoting whatever it asks about, and returns what it asked about.
    fn hand(slot: &mut SlotState) -> BTreeSet<String> {
        hand_in(slot, Region::ALL)
    }

    fn hand_in(slot: &mut SlotState, region: Region) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        let mut from = EntryPosition::default();
        slot.pass_hand(
            &mut from,
            EVERYTHING,
            region,
            &mut Tally::default(),
            &mut |view: View<'_>, _table: u8| {
                asked.insert(String::from_utf8_lossy(view.key).into_owned());
                let stored_len = view.value_len() as u32;
                Verdict::Demote(FlashRef { units: 7, stored_len, compressed: false })
            },
        );
        assert_eq!(from, EntryPosition::default(), "the slot has an end");
        asked
    }

    fn frequency(slot: &mut SlotState, name: &str) -> Option<u8> {
        with_db(slot, 0, |db| db.frequency(&Key::new(name.as_bytes())))
    }

    fn read(slot: &mut SlotState, name: &str) {
        let db = Db::new(slot, 0, NOW_MS, &mut Tally::default())
            .into_read(&Key::new(name.as_bytes()), true)
            .is_some();
        assert!(db);
    }

    #[test]
    fn the_hand_takes_what_nobody_used_since_it_last_came() {
        let mut slot = SlotState::default();
        for (name, len) in [("idle", 100), ("busy", 100), ("tiny", 31), ("rewritten", 100)] {
            put(&mut slot, 0, name, len, Expiry::Clear);
        }
        (0..9).for_each(|_| read(&mut slot, "busy"));
        put(&mut slot, 0, "rewritten", 100, Expiry::Clear);
        let frequencies = |slot: &mut SlotState| {
            ["idle", "busy", "tiny", "rewritten"].map(|name| frequency(slot, name).expect("there"))
        };
        assert_eq!(frequencies(&mut slot), [0, 3, 0, 1], "a write to an existing key counts");
        assert_eq!(hand(&mut slot), ["idle".to_owned()].into());
        assert_eq!(frequencies(&mut slot), [0, 2, 0, 0]);
        assert_eq!(hand(&mut slot), ["rewritten".to_owned()].into());
        assert_eq!(frequencies(&mut slot), [0, 1, 0, 0]);
        assert_eq!(hand(&mut slot), BTreeSet::new());
        assert_eq!(hand(&mut slot), ["busy".to_owned()].into());
        // Cold values keep a history: an access counts, the hand forgets it.
        read(&mut slot, "idle");
        assert_eq!(frequency(&mut slot, "idle"), Some(1));
        assert_eq!(hand(&mut slot), BTreeSet::new());
        assert_eq!(frequency(&mut slot, "idle"), Some(0));
        assert_eq!(frequency(&mut slot, "missing"), None);
    }

    #[test]
    fn the_hands_of_all_regions_take_what_one_hand_takes() {
        let name = |number: u32| format!("{number:0100}");
        let mut slot = SlotState::default();
        (0..20_000).for_each(|number| put(&mut slot, 0, &name(number), 100, Expiry::Clear));
        (0..20_000).step_by(3).for_each(|number| read(&mut slot, &name(number)));
        let mut asked = [BTreeSet::new(), BTreeSet::new()];
        for asked in &mut asked {
            for region in 0..4 {
                let taken = hand_in(&mut slot, Region::nth(region, 4));
                assert!(taken.len() < 20_000 / 2, "four megabytes are in all regions");
                assert!(taken.is_disjoint(asked));
                asked.extend(taken);
            }
        }
        let used = (0..20_000).step_by(3).map(name).collect::<BTreeSet<_>>();
        assert_eq!(asked[1], used);
        assert_eq!(asked[0].len() + used.len(), 20_000);
        assert!(asked[0].is_disjoint(&used));
    }

    #[test]
    fn the_hand_stops_when_told_and_leaves_what_is_kept() {
        let mut slot = SlotState::default();
        (0..100).for_each(|number| put(&mut slot, 0, &number.to_string(), 100, Expiry::Clear));
        let mut tally = Tally::default();
        let mut asked = 0;
        let mut from = EntryPosition::default();
        let swept = slot.pass_hand(
            &mut from,
            EVERYTHING,
            Region::ALL,
            &mut tally,
            &mut |_: View<'_>, _: u8| {
                asked += 1;
                if asked < 10 { Verdict::Keep } else { Verdict::Stop }
            },
        );
        assert!(swept.stopped);
        assert_eq!(asked, 10);
        assert_eq!(tally.cold_count, 0);
        assert_eq!(names(&slot, 0).len(), 100);
    }

    fn watch(slot: &mut SlotState, table: u8, name: &str) -> Arc<WatchFlag> {
        let flag = Arc::new(WatchFlag::default());
        slot.watch(table, name.as_bytes(), &flag);
        flag
    }

    #[test]
    fn watchers_of_a_swapped_database_follow_it() {
        let mut slot = SlotState::default();
        put(&mut slot, 0, "only-here", 1, Expiry::Clear);
        put(&mut slot, 1, "only-there", 1, Expiry::Clear);
        put(&mut slot, 1, "gone-there", 1, Expiry::At(NOW_MS));
        // Watched in the database that is table 0 now.
        let cases =
            [("only-here", true), ("only-there", true), ("gone-there", false), ("new", false)];
        let flags = cases.map(|(name, _)| watch(&mut slot, 0, name));
        slot.changed_all(0, Some(1), NOW_MS);
        slot.changed_all(1, Some(0), NOW_MS);
        slot.swap_watchers(0, 1);
        for ((name, raised), flag) in cases.iter().zip(&flags) {
            assert_eq!(flag.is_raised(), *raised, "{name}");
        }
        put(&mut slot, 0, "new", 1, Expiry::Clear);
        assert!(!flags[3].is_raised(), "table 0 is another database's now");
        put(&mut slot, 1, "new", 1, Expiry::Clear);
        assert!(flags[3].is_raised());
    }

    #[test]
    fn watchers_hear_of_a_write_that_leaves_the_key_as_it_was() {
        let mut slot = SlotState::default();
        ["written", "other"].iter().for_each(|name| put(&mut slot, 0, name, 1, Expiry::Clear));
        let flags = ["written", "other"].map(|name| watch(&mut slot, 0, name));
        let mut tally = Tally::default();
        Db::new(&mut slot, 0, NOW_MS, &mut tally).tell_watchers(&Key::new(b"written"));
        assert_eq!(flags.map(|flag| flag.is_raised()), [true, false]);
        assert_eq!(tally.written_bytes, 0);
    }

    #[test]
    fn to_clear_a_table_changes_the_keys_that_were_watched_alive() {
        let mut slot = SlotState::default();
        put(&mut slot, 0, "lives", 1, Expiry::Clear);
        put(&mut slot, 0, "expires", 1, Expiry::At(NOW_MS));
        let flags = ["lives", "expires", "missing"].map(|name| watch(&mut slot, 0, name));
        slot.changed_all(0, None, NOW_MS);
        let mut tally = Tally::default();
        slot.clear(0, &mut tally).expect("two keys").free(&mut tally);
        assert_eq!(flags.map(|flag| flag.is_raised()), [true, true, false]);
        assert_eq!(tally.keys[0], -2);
        assert_eq!(tally.hot_count, -2);
        assert!(slot.clear(0, &mut tally).is_none());
    }

    #[test]
    fn the_nth_key_is_every_key_once() {
        let mut slot = SlotState::default();
        (0..5_000).for_each(|number| put(&mut slot, 0, &number.to_string(), 1, Expiry::Clear));
        let nth = |nth| slot.nth(0, nth).map(|view| String::from_utf8_lossy(view.key).into_owned());
        let all: BTreeSet<String> = (0..5_000).filter_map(nth).collect();
        assert_eq!(all.len(), 5_000);
        assert_eq!(nth(5_003), nth(3));
        assert!(slot.nth(1, 3).is_none());
    }

    #[test]
    fn keys_used_so_often_are_found_and_those_in_ram_passed_over() {
        let mut slot = SlotState::default();
        let names: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        for (number, name) in names.iter().enumerate() {
            let key = Key::new(name.as_bytes());
            with_db(&mut slot, 0, |db| {
                if number % 2 == 0 {
                    let at = FlashRef { units: number as u64, stored_len: 300, compressed: false };
                    assert!(db.put_cold(&key, 0, (at, 300), 0));
                } else {
                    db.put(&key, 0, &[b'v'; 300], Expiry::Clear);
                }
                db.set_frequency(&key, (number % 4) as u8);
            });
        }
        for frequency in 0..4 {
            let (mut found, mut next, mut steps) = (Vec::new(), Some(Default::default()), 0);
            while let Some(from) = next {
                next = slot.scan_used(0, from, (frequency, 10), |view| {
                    found.push(String::from_utf8(view.key.to_vec()).expect("digits"));
                    false
                });
                steps += 1;
            }
            assert!(steps >= 15, "{steps}");
            let is_one =
                |number: usize| number.is_multiple_of(2) && number % 4 == usize::from(frequency);
            let mut expected: Vec<String> = (0..200)
                .filter(|&number| is_one(number))
                .map(|number| number.to_string())
                .collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{frequency}");
        }
    }
}
