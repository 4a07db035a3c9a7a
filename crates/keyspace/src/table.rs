//! The table of one slot and database: a segment, or a directory of segments once it has grown
//! large (extendible hashing, Fagin et al. 1979), so that no resize ever touches more than one
//! segment.

use crate::borrowed::{Borrowed, BorrowedMut, own};
use crate::entry::Entry;
use crate::evict::Evictable;
use crate::key::{self, VALUE_LINES};
use crate::record::{DetachedBlock, Record, Stored, View};
use crate::region::Region;
use crate::segment::{SEGMENT_ENTRIES_MAX, Segment};
use smallvec::SmallVec;
use stdx::prefetch::{CACHE_LINE_BYTES, prefetch, prefetch_lines};
use stdx::size_class;

const TAG_SHIFT: u32 = 48;
/// Hash bits below the tag that a directory may use.
const DEPTH_MAX: u32 = 20;

/// Records that a scan prefetches, two cache lines of each: as many misses as a core has under way.
const SCANNED_AHEAD: usize = 8;

/// A place in the order in which a scan visits a table: segments by hash prefix, then tags. It
/// stays valid through resizes and splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition {
    /// The hash bits that choose the segment, left-aligned in `DEPTH_MAX` bits.
    pub prefix: u32,
    /// The next tag.
    pub tag: u16,
}

impl ScanPosition {
    /// Bits of a packed position.
    pub const BITS: u32 = DEPTH_MAX + 16;

    /// Behind all that there can be.
    pub(crate) const END: ScanPosition = ScanPosition { prefix: 1 << DEPTH_MAX, tag: 0 };

    /// Where a key with such a hash stands if its segment has but one prefix.
    pub(crate) fn of(hash: u64) -> ScanPosition {
        ScanPosition { prefix: prefix(hash), tag: tag(hash) }
    }

    /// The position as an integer below `1 << BITS`.
    pub fn packed(self) -> u64 {
        u64::from(self.prefix) << 16 | u64::from(self.tag)
    }

    /// The position in the low `BITS` bits of `packed`.
    pub fn unpack(packed: u64) -> ScanPosition {
        ScanPosition { prefix: (packed >> 16) as u32 & ((1 << DEPTH_MAX) - 1), tag: packed as u16 }
    }
}

/// Where an entry is. Valid until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    segment: u32,
    index: u32,
}

impl Position {
    pub(crate) fn new(segment: u32, index: usize) -> Position {
        Position { segment, index: index as u32 }
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

/// Values that the demotion hand takes together: enough for their cache misses to overlap, few
/// enough to stay in the cache.
pub(crate) const IDLE_MAX: usize = 16;

/// Entries that nobody has used since the hand last passed.
pub(crate) type Idle = SmallVec<[Position; IDLE_MAX]>;

#[derive(Default)]
pub(crate) struct Table {
    /// The only segment while `directory` is none.
    root: Segment,
    directory: Option<Box<Directory>>,
}

struct Directory {
    depth: u32,
    /// For each hash prefix of `depth` bits, which segment holds it.
    index: Vec<u32>,
    segments: Vec<Leaf>,
}

struct Leaf {
    depth: u32,
    segment: Segment,
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash >> TAG_SHIFT) as u16
}

/// The top `DEPTH_MAX` bits below the tag.
#[inline]
fn prefix(hash: u64) -> u32 {
    (hash >> (TAG_SHIFT - DEPTH_MAX)) as u32 & ((1 << DEPTH_MAX) - 1)
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        match &self.directory {
            None => self.root.len(),
            Some(directory) => directory.segments.iter().map(|leaf| leaf.segment.len()).sum(),
        }
    }

    /// RAM of the table itself, without its records. Cost: linear in the segments of a directory;
    /// insertion and removal report differences instead.
    pub(crate) fn ram_bytes(&self) -> usize {
        match &self.directory {
            None => self.root.ram_bytes(),
            Some(directory) => directory.ram_bytes(),
        }
    }

    #[inline]
    fn segment_index(&self, hash: u64) -> u32 {
        match &self.directory {
            None => 0,
            Some(directory) => directory.lookup(prefix(hash)),
        }
    }

    #[inline]
    pub(crate) fn segment(&self, index: u32) -> &Segment {
        match &self.directory {
            None => &self.root,
            Some(directory) => &directory.segments[index as usize].segment,
        }
    }

    #[inline]
    pub(crate) fn segment_mut(&mut self, index: u32) -> &mut Segment {
        match &mut self.directory {
            None => &mut self.root,
            Some(directory) => &mut directory.segments[index as usize].segment,
        }
    }

    /// Lowers frequencies of what lies in a region, in a segment from place `from` on, adding to
    /// `visited`, and gathers entries that were at 0 already and may be demoted, until there are
    /// [`IDLE_MAX`] or the segment ends. Leaves `from` where to go on. Their records are on their
    /// way to the cache.
    pub(crate) fn age(
        &mut self,
        segment: u32,
        region: Region,
        from: &mut usize,
        visited: &mut u64,
    ) -> Idle {
        let mut idle = Idle::new();
        for entry in self.segment_mut(segment).places_mut(*from) {
            let index = *from;
            *from += 1;
            if !region.holds(entry.address()) {
                continue;
            }
            *visited += u64::from(!entry.is_empty());
            if entry.frequency() > 0 {
                entry.age();
            } else if entry.is_demotable() {
                prefetch(entry.address() as *const u8);
                idle.push(Position::new(segment, index));
                if idle.len() == IDLE_MAX {
                    break;
                }
            }
        }
        idle
    }

    /// Gathers entries of a segment from place `from` on that may be demoted, used or not, until there are [`IDLE_MAX`]
    /// or the segment ends. Leaves `from` where to go on. Their records are on their way to the cache.
    pub(crate) fn demotable(&self, segment: u32, from: &mut usize) -> Idle {
        let mut found = Idle::new();
        for entry in self.segment(segment).places(*from) {
            if entry.is_demotable() {
                prefetch(entry.address() as *const u8);
                found.push(Position::new(segment, *from));
            }
            *from += 1;
            if found.len() == IDLE_MAX {
                break;
            }
        }
        found
    }

    /// As [`Table::age`] for eviction: lowers the frequencies of keys that may go, wherever their values are,
    /// and gathers those at 0 already, `keys` at most.
    pub(crate) fn age_evictable(
        &mut self,
        segment: u32,
        which: Evictable,
        keys: usize,
        from: &mut usize,
    ) -> SmallVec<[Entry; IDLE_MAX]> {
        let mut idle = SmallVec::new();
        for entry in self.segment_mut(segment).places_mut(*from) {
            *from += 1;
            if !which.allows(*entry) {
                continue;
            }
            if entry.frequency() > 0 {
                entry.age();
            } else {
                prefetch(entry.address() as *const u8);
                idle.push(*entry);
                if idle.len() == keys {
                    break;
                }
            }
        }
        idle
    }

    /// The first entry of a segment at place `from` or behind it.
    pub(crate) fn next_entry(&self, segment: u32, from: usize) -> Option<Entry> {
        self.segment(segment).places(from).iter().find(|entry| !entry.is_empty()).copied()
    }

    /// Where an entry of a segment is.
    pub(crate) fn position_of(&self, segment: u32, entry: Entry) -> Position {
        let index = self.segment(segment).find(entry.tag(), |other| other == entry);
        Position::new(segment, index.expect("invariant: the entry is still there"))
    }

    pub(crate) fn segment_count(&self) -> u32 {
        self.directory.as_ref().map_or(1, |directory| directory.segments.len() as u32)
    }

    /// Where the entry of `key` would be looked for first.
    #[inline]
    pub(crate) fn home_address(&self, hash: u64) -> *const Entry {
        self.segment(self.segment_index(hash)).home_address(tag(hash))
    }

    /// The first entry whose tag fits, not compared by key: a guess, for prefetching and the like.
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> Option<Position> {
        let segment = self.segment_index(hash);
        let index = self.segment(segment).find(tag(hash), |_| true)?;
        Some(Position { segment, index: index as u32 })
    }

    /// Whether an entry of this tag is still where one was seen.
    #[inline]
    pub(crate) fn fits(&self, at: Position, hash: u64) -> bool {
        if at.segment >= self.segment_count() {
            return false;
        }
        let entry = self.segment(at.segment).peek(at.index as usize);
        !entry.is_empty() && entry.tag() == tag(hash)
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<Position> {
        let segment = self.segment_index(hash);
        let index = self.segment(segment).find(tag(hash), |entry| {
            // SAFETY: the table is borrowed, so the entry stays while its key is compared.
            let record = unsafe { Borrowed::new(entry) };
            key::is_same(record.key(), key)
        })?;
        Some(Position { segment, index: index as u32 })
    }

    /// The same for a key that was seen at `hint`, from where it may have gone. Cost: if it is there, a look at its
    /// record; it is not hashed.
    #[inline]
    pub(crate) fn find_from(&self, hint: Position, key: &[u8]) -> Option<Position> {
        if self.holds(hint, key) { Some(hint) } else { self.find_gone(key) }
    }

    #[cold]
    fn find_gone(&self, key: &[u8]) -> Option<Position> {
        self.find(key::hash(key), key)
    }

    /// Whether a key stands at a place, which may be none any more.
    #[inline]
    fn holds(&self, at: Position, key: &[u8]) -> bool {
        let segment = match &self.directory {
            None => (at.segment == 0).then_some(&self.root),
            Some(directory) => {
                directory.segments.get(at.segment as usize).map(|leaf| &leaf.segment)
            }
        };
        let Some(segment) = segment else { return false };
        let entry = segment.peek(at.index as usize);
        if entry.is_empty() {
            return false;
        }
        // SAFETY: the table is borrowed, so the entry stays while its key is compared.
        let record = unsafe { Borrowed::new(entry) };
        key::is_same(record.key(), key)
    }

    #[inline]
    pub(crate) fn get(&self, at: Position) -> Entry {
        self.segment(at.segment).get(at.index as usize)
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, at: Position) -> &mut Entry {
        self.segment_mut(at.segment).entry_mut(at.index as usize)
    }

    /// The record at a place. Panics: there is none.
    #[inline]
    pub(crate) fn record(&self, at: Position) -> Borrowed<'_> {
        // SAFETY: the entry is in this table, which is borrowed for as long as the record.
        unsafe { Borrowed::new(self.get(at)) }
    }

    /// The parts of the record at a place. Panics: there is none.
    #[inline]
    pub(crate) fn view(&self, at: Position) -> View<'_> {
        self.record(at).into_view()
    }

    /// The bytes of the value at a place, if it is in RAM. Panics: there is no record.
    #[inline]
    pub(crate) fn bytes(&self, at: Position) -> Option<&[u8]> {
        self.record(at).into_bytes()
    }

    /// The record at a place, to be changed there. Panics: there is none.
    #[inline]
    pub(crate) fn record_mut(&mut self, at: Position) -> BorrowedMut<'_> {
        // SAFETY: the entry is in this table, which is borrowed mutably for as long as the record,
        // and no other entry names it.
        unsafe { BorrowedMut::new(self.get(at)) }
    }

    /// Puts what `change` makes of the record at a place there. Panics: there is none.
    #[inline]
    pub(crate) fn change(&mut self, at: Position, change: impl FnOnce(Record) -> Record) {
        let segment = self.segment_mut(at.segment);
        let old = segment.get(at.index as usize);
        // SAFETY: the table is borrowed mutably, and the entry is overwritten before anything can
        // look at it again.
        let record = change(unsafe { own(old) });
        segment.set(at.index as usize, Entry::new(old.tag(), record, old.frequency()));
    }

    /// Copies the record at a place elsewhere; the old place is freed with what is returned.
    pub(crate) fn relocate(&mut self, at: Position) -> DetachedBlock {
        let entry = self.entry_mut(at);
        // SAFETY: the table is borrowed mutably, and the entry names the new place before anything
        // can look at it again.
        let (moved, old) = unsafe { own(*entry) }.relocate();
        entry.set_address(moved);
        old
    }

    /// Adds a record whose key the table does not hold. `ram_bytes` takes what the table grew by.
    pub(crate) fn insert(&mut self, hash: u64, record: Record, ram_bytes: &mut i64) -> Position {
        let mut index = self.segment_index(hash);
        if self.segment(index).len() >= SEGMENT_ENTRIES_MAX {
            let before = self.ram_bytes();
            while self.segment(index).len() >= SEGMENT_ENTRIES_MAX && self.split(index) {
                index = self.segment_index(hash);
            }
            *ram_bytes += self.ram_bytes() as i64 - before as i64;
        }
        let entry = Entry::new(tag(hash), record, 0);
        let segment = self.segment_mut(index);
        let before = segment.ram_bytes();
        let at = segment.insert(entry);
        *ram_bytes += (segment.ram_bytes() - before) as i64;
        Position { segment: index, index: at as u32 }
    }

    /// Makes room for so many records more, unless there are many: a directory grows by itself. `ram_bytes` takes what
    /// the table grew by.
    pub(crate) fn reserve(&mut self, records: usize, ram_bytes: &mut i64) {
        if self.directory.is_none() {
            let before = self.root.ram_bytes();
            self.root.reserve(records.min(SEGMENT_ENTRIES_MAX.saturating_sub(self.root.len())));
            *ram_bytes += self.root.ram_bytes() as i64 - before as i64;
        }
    }

    /// Takes out the record at a place. `ram_bytes` takes what the table shrank by.
    pub(crate) fn remove(&mut self, at: Position, ram_bytes: &mut i64) -> Record {
        let segment = self.segment_mut(at.segment);
        let before = segment.ram_bytes();
        let entry = segment.remove(at.index as usize);
        *ram_bytes -= (before - segment.ram_bytes()) as i64;
        // SAFETY: the entry has left the table and is dropped here, so the record is the caller's.
        unsafe { own(entry) }
    }

    /// Divides a full segment by one more hash bit; false when the bits are used up, which only
    /// a hash function that broke down could bring about: the segment then grows instead.
    fn split(&mut self, index: u32) -> bool {
        let directory = self.directory.get_or_insert_with(|| {
            let root = Leaf { depth: 0, segment: std::mem::take(&mut self.root) };
            Box::new(Directory { depth: 0, index: vec![0], segments: vec![root] })
        });
        directory.split(index)
    }

    /// All entries, in scan order within a segment.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        (0..self.segment_count()).flat_map(|index| self.segment(index).iter_from(0))
    }

    /// All records, in the order of [`Table::iter`].
    #[cfg(test)]
    pub(crate) fn records(&self) -> impl Iterator<Item = Borrowed<'_>> {
        // SAFETY: the entries are in this table, which is borrowed for as long as the records.
        self.iter().map(|entry| unsafe { Borrowed::new(entry) })
    }

    /// The parts of the `nth` record in the order of [`Table::iter`].
    pub(crate) fn nth(&self, mut nth: usize) -> Option<View<'_>> {
        for index in 0..self.segment_count() {
            let segment = self.segment(index);
            if nth < segment.len() {
                let entry = segment.iter_from(0).nth(nth)?;
                // SAFETY: the entry is in this table, which is borrowed for as long as the view.
                return Some(unsafe { Borrowed::new(entry) }.into_view());
            }
            nth -= segment.len();
        }
        None
    }

    /// Empties the table, handing out its records.
    pub(crate) fn drain(&mut self) -> Vec<Record> {
        let mut segments = vec![std::mem::take(&mut self.root)];
        if let Some(directory) = self.directory.take() {
            segments.extend(directory.segments.into_iter().map(|leaf| leaf.segment));
        }
        let entries = segments.into_iter().flat_map(|mut segment| segment.drain());
        // SAFETY: the entries have left the table and are dropped here.
        entries.map(|entry| unsafe { own(entry) }).collect()
    }

    /// Visits entries and their records in scan order from `from`, in whole runs of one tag, until `visit` says that it
    /// was enough. Returns where to go on, or none at the end of the table. Records that are `wanted` are prefetched;
    /// the others are not touched before they are visited.
    pub(crate) fn scan(
        &self,
        from: ScanPosition,
        wanted: impl Fn(Entry) -> bool,
        visit: impl FnMut(Entry, &Record) -> bool,
    ) -> Option<ScanPosition> {
        let entries = |index, tag| prefetched(self.segment(index).iter_from(tag), &wanted);
        self.scan_entries(from, entries, visit)
    }

    /// The end of the hash prefixes that stand in one segment with a position.
    pub(crate) fn segment_end(&self, at: ScanPosition) -> u32 {
        match &self.directory {
            None => ScanPosition::END.prefix,
            Some(directory) => {
                let (_, first, width) = directory.leaf_of(at.prefix);
                first + width
            }
        }
    }

    /// [`Table::scan`] for a visitor that reads values: they are prefetched, too, if they are in RAM alone. A copy of
    /// those that are on flash as well is rarely read.
    pub(crate) fn scan_values(
        &self,
        from: ScanPosition,
        visit: impl FnMut(Entry, &Record) -> bool,
    ) -> Option<ScanPosition> {
        let entries = |index, tag| self.prefetched_with_values(index, tag);
        self.scan_entries(from, entries, visit)
    }

    /// Visits the `entries` of each segment from a tag on.
    fn scan_entries<I: Iterator<Item = Entry>>(
        &self,
        from: ScanPosition,
        entries: impl Fn(u32, u16) -> I,
        mut visit: impl FnMut(Entry, &Record) -> bool,
    ) -> Option<ScanPosition> {
        let mut position = from;
        let mut enough = false;
        loop {
            let (index, prefix, width) = match &self.directory {
                None => (0, 0, 1 << DEPTH_MAX),
                Some(directory) => directory.leaf_of(position.prefix),
            };
            // A cursor in the middle of a segment that has split since: this half starts at the
            // same tag, the other halves are visited whole (some keys come twice, none is missed).
            let mut last: Option<u16> = None;
            for entry in entries(index, position.tag) {
                if enough && last.is_some_and(|tag| tag != entry.tag()) {
                    return Some(ScanPosition { prefix: position.prefix, tag: entry.tag() });
                }
                last = Some(entry.tag());
                // SAFETY: the entry is in this table, which is borrowed while it is visited.
                let record = unsafe { Borrowed::new(entry) };
                enough = visit(entry, &record);
            }
            let next = prefix + width;
            if next >= 1 << DEPTH_MAX {
                return None;
            }
            position = ScanPosition { prefix: next, tag: 0 };
            if enough {
                return Some(position);
            }
        }
    }

    /// Entries of a segment from a tag on. Values are prefetched ahead of the visitor, and their records, which say
    /// where they are, as far ahead of them.
    fn prefetched_with_values(&self, index: u32, tag: u16) -> impl Iterator<Item = Entry> {
        let entries = || self.segment(index).iter_from(tag);
        let mut ahead = prefetched(entries(), |_| true);
        let ask = |entry: Entry| {
            // SAFETY: the entry is in this table, which is borrowed while it is looked at.
            let record = unsafe { Borrowed::new(entry) };
            if let Stored::Hot(value) = record.view().stored {
                prefetch_lines(value, VALUE_LINES);
            }
        };
        ahead.by_ref().take(SCANNED_AHEAD).for_each(ask);
        entries().inspect(move |_| ahead.next().into_iter().for_each(ask))
    }
}

/// Entries whose records are prefetched ahead of the visitor, if they are `wanted`.
fn prefetched(
    entries: impl Iterator<Item = Entry> + Clone,
    wanted: impl Fn(Entry) -> bool,
) -> impl Iterator<Item = Entry> {
    let mut ahead = entries.clone();
    let ask = move |entry: Entry| {
        if wanted(entry) {
            let record = entry.address() as *const u8;
            prefetch(record);
            prefetch(record.wrapping_add(CACHE_LINE_BYTES));
        }
    };
    ahead.by_ref().take(SCANNED_AHEAD).for_each(&ask);
    entries.inspect(move |_| ahead.next().into_iter().for_each(&ask))
}

impl Directory {
    fn ram_bytes(&self) -> usize {
        size_class(self.index.capacity() * size_of::<u32>())
            + size_class(self.segments.capacity() * size_of::<Leaf>())
            + self.segments.iter().map(|leaf| leaf.segment.ram_bytes()).sum::<usize>()
    }

    #[inline]
    fn lookup(&self, prefix: u32) -> u32 {
        self.index[(prefix >> (DEPTH_MAX - self.depth)) as usize]
    }

    /// The segment that holds `prefix`, the first prefix it holds, and how many.
    fn leaf_of(&self, prefix: u32) -> (u32, u32, u32) {
        let index = self.lookup(prefix);
        let width = 1 << (DEPTH_MAX - self.segments[index as usize].depth);
        (index, prefix & !(width - 1), width)
    }

    fn split(&mut self, index: u32) -> bool {
        let depth = self.segments[index as usize].depth;
        if depth == DEPTH_MAX {
            return false;
        }
        if depth == self.depth {
            self.index = self.index.iter().flat_map(|&segment| [segment, segment]).collect();
            self.depth += 1;
        }
        let other = self.segments.len() as u32;
        let old = &mut self.segments[index as usize];
        old.depth = depth + 1;
        let bit = 1u32 << (DEPTH_MAX - depth - 1);
        let (mut low, mut high) = (Segment::default(), Segment::default());
        let half = old.segment.len() / 2;
        [&mut low, &mut high].into_iter().for_each(|segment| segment.reserve(half));
        for entry in old.segment.drain() {
            // SAFETY: the entry is between two segments of this table, which is borrowed mutably.
            let record = unsafe { Borrowed::new(entry) };
            let upper = prefix(key::hash(record.key())) & bit != 0;
            if upper {
                high.insert(entry)
            } else {
                low.insert(entry)
            };
        }
        old.segment = low;
        self.segments.push(Leaf { depth: depth + 1, segment: high });
        let shift = DEPTH_MAX - self.depth;
        for (slot, segment) in self.index.iter_mut().enumerate() {
            if *segment == index && ((slot as u32) << shift) & bit != 0 {
                *segment = other;
            }
        }
        true
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.len() > 0 {
            for record in self.drain() {
                record.free();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NewState;
    use std::collections::HashSet;

    fn add(table: &mut Table, number: u32) {
        let name = number.to_string();
        let hash = key::hash(name.as_bytes());
        assert!(table.find(hash, name.as_bytes()).is_none());
        table.insert(hash, Record::new(0, 0, name.as_bytes(), NewState::Inline(b"v")), &mut 0);
    }

    fn remove(table: &mut Table, number: u32) {
        let name = number.to_string();
        let at = table.find(key::hash(name.as_bytes()), name.as_bytes()).expect("present");
        table.remove(at, &mut 0).free();
    }

    #[test]
    fn grows_into_a_directory_and_finds_every_key() {
        let mut table = Table::default();
        (0..20_000).for_each(|number| add(&mut table, number));
        assert_eq!(table.len(), 20_000);
        assert!(table.segment_count() > 8);
        (0..20_000).step_by(3).for_each(|number| remove(&mut table, number));
        for number in 0..20_000u32 {
            let name = number.to_string();
            let found = table.find(key::hash(name.as_bytes()), name.as_bytes()).is_some();
            assert_eq!(found, number % 3 != 0, "{number}");
        }
    }

    #[test]
    fn a_scan_sees_all_that_stays_while_the_table_changes() {
        let mut table = Table::default();
        (0..1_500).for_each(|number| add(&mut table, number));
        let mut seen = HashSet::new();
        let mut cursor = Some(ScanPosition::default());
        let mut extra = 1_500;
        while let Some(from) = cursor {
            let mut left = 10;
            cursor = table.scan(
                ScanPosition::unpack(from.packed()),
                |_| true,
                |_, record| {
                    seen.insert(String::from_utf8(record.view().key.to_vec()).expect("digits"));
                    left -= 1;
                    left <= 0
                },
            );
            // Splits segments under the scan's feet, and removes what it added.
            if extra < 12_000 {
                (extra..extra + 100).for_each(|number| add(&mut table, number));
                (extra..extra + 30).for_each(|number| remove(&mut table, number));
                extra += 100;
            }
        }
        for number in 0..1_500 {
            assert!(seen.contains(&number.to_string()), "{number} was missed");
        }
    }
}
