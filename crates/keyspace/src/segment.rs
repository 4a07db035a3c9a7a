//! A segment: one contiguous array of entries, sorted by tag, with linear probing.
//!
//! An entry's home is `tag * homes / 65536`, so the order of homes is the order of tags and the
//! whole array is sorted. From that follow the properties it was chosen for:
//! - a miss ends at the first larger tag, so the array may be 90 % full (8.9 to 10.6 bytes a key);
//! - growing or shrinking is one sequential pass that never touches a record, so it can be done
//!   in small steps (a quarter at a time) for about 1 ns an entry;
//! - a scan cursor is simply the next tag, valid whatever was resized in between.
//!
//! Invariants:
//! 1. Entries are sorted by tag; none lies before its home.
//! 2. No empty place lies between an entry's home and the entry.
//! 3. `homes` is smaller than the array by the overflow zone, so that probing never wraps.

use crate::entry::Entry;
use stdx::size_class;

/// Entries at which the table splits a segment: bounds the time of one resize (about 5 us) and
/// the chance of two equal tags side by side (3 %).
pub(crate) const SEGMENT_ENTRIES_MAX: usize = 2048;

const CAPACITY_MIN: usize = 4;

/// Entries of one hash prefix.
#[derive(Default)]
pub(crate) struct Segment {
    entries: Box<[Entry]>,
    len: u32,
}

impl Segment {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn ram_bytes(&self) -> usize {
        size_class(self.entries.len() * size_of::<Entry>())
    }

    /// The array itself, for prefetching.
    #[inline]
    pub(crate) fn home_address(&self, tag: u16) -> *const Entry {
        self.entries.as_ptr().wrapping_add(home(tag, homes(self.entries.len())))
    }

    /// The first entry with `tag` that `is_match` accepts.
    #[inline]
    pub(crate) fn find(&self, tag: u16, mut is_match: impl FnMut(Entry) -> bool) -> Option<usize> {
        let start = home(tag, homes(self.entries.len()));
        for (index, &entry) in self.entries.get(start..)?.iter().enumerate() {
            if entry.is_empty() || entry.tag() > tag {
                return None;
            }
            if entry.tag() == tag && is_match(entry) {
                return Some(start + index);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Entry {
        self.entries[index]
    }

    /// The entry at `index`, empty beyond the end.
    #[inline]
    pub(crate) fn peek(&self, index: usize) -> Entry {
        self.entries.get(index).copied().unwrap_or(Entry::EMPTY)
    }

    /// Replaces the entry at `index` by one with the same tag.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, entry: Entry) {
        assert!(entry.tag() == self.entries[index].tag());
        self.entries[index] = entry;
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, index: usize) -> &mut Entry {
        &mut self.entries[index]
    }

    /// Adds an entry, and tells where. Cost: moves the rest of its cluster; now and then a resize.
    pub(crate) fn insert(&mut self, entry: Entry) -> usize {
        assert!(!entry.is_empty());
        if (self.len() + 1) * 10 > self.entries.len() * 9 {
            self.resize(grown(self.entries.len()));
        }
        self.len += 1;
        loop {
            if let Some(index) = place(&mut self.entries, entry) {
                return index;
            }
            self.resize(grown(self.entries.len()));
        }
    }

    /// Makes room for so many entries more. Those that come in the order of their tags would all lie in one cluster
    /// otherwise, at the end of which each is put.
    pub(crate) fn reserve(&mut self, entries: usize) {
        let capacity = ((self.len() + entries) * 10).div_ceil(9);
        if entries > 0 && capacity > self.entries.len() {
            let bytes = size_class(capacity * size_of::<Entry>());
            self.resize((bytes / size_of::<Entry>()).max(CAPACITY_MIN));
        }
    }

    /// Takes out the entry at `index`, closing the gap.
    pub(crate) fn remove(&mut self, index: usize) -> Entry {
        let removed = self.entries[index];
        assert!(!removed.is_empty());
        let homes = homes(self.entries.len());
        let mut gap = index;
        while gap + 1 < self.entries.len() {
            let next = self.entries[gap + 1];
            if next.is_empty() || home(next.tag(), homes) > gap {
                break;
            }
            self.entries[gap] = next;
            gap += 1;
        }
        self.entries[gap] = Entry::EMPTY;
        self.len -= 1;
        if self.entries.len() > CAPACITY_MIN && self.len() * 2 < self.entries.len() {
            self.resize((self.len() * 4 / 3).max(CAPACITY_MIN));
        }
        removed
    }

    /// The entries in tag order, from the first whose tag is at least `tag`.
    pub(crate) fn iter_from(&self, tag: u16) -> impl Iterator<Item = Entry> + Clone {
        let start = home(tag, homes(self.entries.len()));
        let entries = self.entries.get(start..).unwrap_or_default();
        entries.iter().copied().filter(move |entry| !entry.is_empty() && entry.tag() >= tag)
    }

    /// Places of the array, empty ones included.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Where the array lies; none is there before the first entry.
    pub(crate) fn array_address(&self) -> Option<*const u8> {
        (!self.entries.is_empty()).then(|| self.entries.as_ptr().cast())
    }

    /// Copies the array to another allocation, and hands out the old one, whose entries are to be forgotten.
    pub(crate) fn relocate_array(&mut self) -> Box<[Entry]> {
        let copy = self.entries.clone();
        std::mem::replace(&mut self.entries, copy)
    }

    /// The places from `from` on, empty ones included.
    pub(crate) fn places(&self, from: usize) -> &[Entry] {
        &self.entries[from..]
    }

    /// The same, to be changed; whoever changes an entry keeps its tag.
    pub(crate) fn places_mut(&mut self, from: usize) -> &mut [Entry] {
        &mut self.entries[from..]
    }

    /// Empties the segment, handing out its entries.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Entry> + use<> {
        self.len = 0;
        std::mem::take(&mut self.entries).into_iter().filter(|entry| !entry.is_empty())
    }

    /// Rebuilds the array with at least `capacity` places, more if a cluster would run off its end.
    fn resize(&mut self, mut capacity: usize) {
        loop {
            let mut entries = vec![Entry::EMPTY; capacity].into_boxed_slice();
            let homes = homes(capacity);
            let mut next = 0;
            let mut fits = true;
            for &entry in self.entries.iter().filter(|entry| !entry.is_empty()) {
                next = next.max(home(entry.tag(), homes));
                if next == capacity {
                    fits = false;
                    break;
                }
                entries[next] = entry;
                next += 1;
            }
            if fits {
                self.entries = entries;
                return;
            }
            capacity = grown(capacity);
        }
    }
}

/// Puts `entry` where the order wants it, and tells where; none when its cluster would run off the end.
fn place(entries: &mut [Entry], entry: Entry) -> Option<usize> {
    let mut index = home(entry.tag(), homes(entries.len()));
    while index < entries.len() && !entries[index].is_empty() && entries[index].tag() <= entry.tag()
    {
        index += 1;
    }
    let gap = entries[index..].iter().position(|place| place.is_empty())?;
    entries.copy_within(index..index + gap, index + 1);
    entries[index] = entry;
    Some(index)
}

/// Home places of an array: all but the overflow zone at its end.
#[inline]
fn homes(capacity: usize) -> usize {
    capacity - capacity / 32 - (capacity / 4).min(8)
}

#[inline]
fn home(tag: u16, homes: usize) -> usize {
    (tag as usize * homes) >> 16
}

/// The next larger array: the allocator's next size class, so that no rounding is lost.
fn grown(capacity: usize) -> usize {
    if capacity == 0 {
        return CAPACITY_MIN;
    }
    size_class(capacity * size_of::<Entry>() + 1) / size_of::<Entry>()
}

#[cfg(test)]
#[allow(unsafe_code, reason = "what owns the records of a segment is its table")]
mod tests {
    use super::*;
    use crate::record::{NewState, Record};
    use proptest::prelude::*;

    fn entry(tag: u16, name: u8) -> Entry {
        Entry::new(tag, Record::new(0, 0, &[name], NewState::Inline(b"")), 0)
    }

    fn name(entry: Entry) -> u8 {
        // SAFETY: the tests free each record once, at their end.
        unsafe { Record::from_address(entry.address()) }.key()[0]
    }

    fn free(entry: Entry) {
        // SAFETY: as above.
        unsafe { Record::from_address(entry.address()) }.free();
    }

    fn check(segment: &Segment) {
        let homes = homes(segment.entries.len());
        let mut last = 0;
        for (index, entry) in segment.entries.iter().enumerate() {
            if entry.is_empty() {
                continue;
            }
            assert!(entry.tag() >= last);
            last = entry.tag();
            let home = home(entry.tag(), homes);
            assert!(home <= index);
            assert!(segment.entries[home..index].iter().all(|place| !place.is_empty()));
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_list(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0u16..40, any::<u16>(), 65500u16..], 0u8..8), 1..600)
        ) {
            let mut segment = Segment::default();
            let mut model: Vec<(u16, u8)> = Vec::new();
            for (add, tag, id) in steps {
                let found = segment.find(tag, |entry| name(entry) == id);
                prop_assert_eq!(found.is_some(), model.contains(&(tag, id)));
                match found {
                    None if add => {
                        segment.insert(entry(tag, id));
                        model.push((tag, id));
                    }
                    Some(index) if !add => {
                        free(segment.remove(index));
                        model.retain(|&pair| pair != (tag, id));
                    }
                    _ => {}
                }
                check(&segment);
                prop_assert_eq!(segment.len(), model.len());
            }
            let mut listed: Vec<(u16, u8)> =
                segment.iter_from(20).map(|entry| (entry.tag(), name(entry))).collect();
            listed.sort();
            model.retain(|pair| pair.0 >= 20);
            model.sort();
            prop_assert_eq!(listed, model);
            segment.drain().for_each(free);
        }
    }

    #[test]
    fn room_is_made_for_what_comes_in_order() {
        for count in [0, 1, 4, 5, 100, 610, 2_000] {
            let mut segment = Segment::default();
            segment.insert(entry(0, 1));
            segment.reserve(count);
            let capacity = segment.capacity();
            assert!(capacity * 9 <= (count + 1) * 10 * 5 / 4 + 40, "{count}: {capacity}");
            for number in 0..count {
                let tag = (number * 65_536 / count) as u16;
                let at = segment.insert(entry(tag, 0));
                assert_eq!(segment.get(at).tag(), tag);
            }
            check(&segment);
            assert_eq!((segment.len(), segment.capacity()), (count + 1, capacity), "{count}");
            segment.drain().for_each(free);
        }
    }

    #[test]
    fn stays_dense_as_it_grows() {
        let mut segment = Segment::default();
        for i in 0..600u32 {
            segment.insert(entry((i.wrapping_mul(2_654_435_761) >> 16) as u16, 0));
        }
        let bytes_per_entry = segment.ram_bytes() as f64 / 600.0;
        assert!(bytes_per_entry < 11.0, "{bytes_per_entry}");
        segment.drain().for_each(free);
    }
}
