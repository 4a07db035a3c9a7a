//! What a snapshot has saved of a slot.
//!
//! Until the walk comes to the slot these are the names that were saved early. While it is there they are those that its scan
//! has passed, too, but for the ones that were not saved as they were met. Behind the walk all are saved but those that wait for
//! their reads, which are noted in place of all others.

use std::collections::BTreeMap;

use keyspace::{Key, ScanPosition, Scanned, SlotState};
use rapidhash::RapidHashSet;

/// What a name takes beside its bytes while it is kept.
const NAME_BYTES: u64 = 64;
/// The same while it waits: its place in the list, what the allocator adds, and the walk's note of where its value lies.
const WAITING_BYTES: u64 = 48;

#[derive(Default)]
pub(super) struct SlotSaved {
    /// All of it.
    is_taken: bool,
    names: RapidHashSet<Box<[u8]>>,
    /// While the walk is here, and needs more than a turn.
    walk: Option<Box<Walk>>,
    /// Sorted by name. Unless it is empty, all else of the slot is saved.
    waiting: Vec<WaitingName>,
    /// The name of which the walk writes large values.
    pub(super) under_way: Option<Box<[u8]>>,
    /// What the names take.
    names_bytes: NamesBytes,
}

/// How far the walk has come in a slot.
#[derive(Default)]
struct Walk {
    /// The table that `scanned` is of: that in which the walk went while the slot had keys in no other.
    table: Option<u8>,
    scanned: Scanned,
    /// Names that it has met and not saved, each with the place of a value on flash that it lacks.
    unsaved: BTreeMap<Box<[u8]>, u64>,
}

/// What names take that are kept until their slot is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NamesBytes {
    /// Of those that were saved before the walk came: they count against a bound.
    pub(super) early: u64,
    /// Of those that the walk has met where a name may be in several tables.
    pub(super) of_slot: u64,
}

/// A name whose values are to be read from flash.
struct WaitingName {
    name: Box<[u8]>,
    is_saved: bool,
}

/// When a name is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As the walk takes its slot.
    OfSlot,
    /// Before: unless the walk has passed it, the name is kept until then, and counts against the bound.
    Early,
}

impl SlotSaved {
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whether the walk has been here, and left some names to be read.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether what a name holds was saved.
    pub(super) fn has(&self, key: &Key<'_>) -> bool {
        if self.has_waiting() {
            return self.find_waiting(key.bytes).is_none_or(|at| self.waiting[at].is_saved);
        }
        self.is_taken || self.walk_has(key) || self.names.contains(key.bytes)
    }

    fn walk_has(&self, key: &Key<'_>) -> bool {
        let has = |walk: &Walk| walk.scanned.has(key) && !walk.unsaved.contains_key(key.bytes);
        self.walk.as_deref().is_some_and(has)
    }

    /// Notes that what a name holds was saved. Returns the bytes by which the names that are kept have grown.
    pub(super) fn note(&mut self, key: &Key<'_>, turn: Turn) -> u64 {
        if self.has_waiting() {
            if let Some(at) = self.find_waiting(key.bytes) {
                self.waiting[at].is_saved = true;
            }
            return 0;
        }
        self.walk.as_mut().and_then(|walk| walk.unsaved.remove(key.bytes));
        if self.walk_has(key) {
            return 0;
        }
        self.names.insert(key.bytes.into());
        let bytes = key.bytes.len() as u64 + NAME_BYTES;
        *match turn {
            Turn::OfSlot => &mut self.names_bytes.of_slot,
            Turn::Early => &mut self.names_bytes.early,
        } += bytes;
        bytes
    }

    /// Notes that the walk has met a name and not saved it, with the place of a value on flash that it lacks.
    pub(super) fn note_unsaved(&mut self, key: &Key<'_>, place: u64) {
        self.walk.get_or_insert_default().unsaved.insert(key.bytes.into(), place);
    }

    /// Notes that a name was saved where the scan meets it again: it was left, its segment has split, and its value has come to
    /// RAM.
    pub(super) fn note_met(&mut self, key: &Key<'_>) {
        if let Some(walk) = &mut self.walk {
            walk.unsaved.remove(key.bytes);
        }
    }

    /// Whether the walk has left some names that it has met.
    pub(super) fn has_unsaved(&self) -> bool {
        self.walk.as_deref().is_some_and(|walk| !walk.unsaved.is_empty())
    }

    /// Whether the walk has come to a position without names: what stands in front of it was met in this table alone.
    pub(super) fn has_walked_to(&self, table: u8, from: ScanPosition) -> bool {
        match &self.walk {
            None => from == ScanPosition::default(),
            Some(walk) => walk.table == Some(table) && walk.scanned.next() == Some(from),
        }
    }

    /// Notes that the walk has met all up to a position of the only table of the slot, or its end, from where it had come to.
    pub(super) fn note_walked(&mut self, slot: &SlotState, table: u8, next: Option<ScanPosition>) {
        let walk = self.walk.get_or_insert_default();
        assert_eq!(*walk.table.get_or_insert(table), table, "invariant: it has walked to there");
        walk.scanned.advance(slot, table, next);
    }

    /// Lets the names that the walk has left wait for their reads, and notes that all else is saved. Returns the places of their
    /// values, by the number of the name, and the names that are no longer kept, which are to be freed when the slot is let go of.
    pub(super) fn let_wait(&mut self) -> (Vec<u64>, RapidHashSet<Box<[u8]>>) {
        assert!(!self.is_taken && !self.has_waiting(), "the walk comes once");
        self.names_bytes = NamesBytes::default();
        let unsaved = self.walk.take().unwrap_or_default().unsaved;
        let wait = |(name, place)| (WaitingName { name, is_saved: false }, place);
        let places;
        (self.waiting, places) = unsaved.into_iter().map(wait).unzip();
        (places, std::mem::take(&mut self.names))
    }

    /// The name with a number, unless it was saved meanwhile.
    pub(super) fn waiting_name(&self, number: usize) -> Option<&[u8]> {
        let waiting = self.waiting.get(number).filter(|waiting| !waiting.is_saved)?;
        Some(&waiting.name)
    }

    /// Bytes of names that are kept.
    pub(super) fn names_bytes(&self) -> NamesBytes {
        self.names_bytes
    }

    /// Bytes of names that wait.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.name.len() as u64 + WAITING_BYTES).sum()
    }

    /// Notes that all of the slot was saved.
    pub(super) fn take(&mut self) {
        *self = SlotSaved { is_taken: true, ..SlotSaved::default() };
    }

    fn find_waiting(&self, name: &[u8]) -> Option<usize> {
        self.waiting.binary_search_by(|waiting| (*waiting.name).cmp(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    use keyspace::Keyspace;

    use super::*;

    fn has(saved: &SlotSaved, name: &str) -> bool {
        saved.has(&Key::new(name.as_bytes()))
    }

    fn note(saved: &mut SlotSaved, name: &str, turn: Turn) -> u64 {
        saved.note(&Key::new(name.as_bytes()), turn)
    }

    #[test]
    fn behind_the_walk_all_is_saved_but_what_waits() {
        let mut saved = SlotSaved::default();
        let early = note(&mut saved, "early", Turn::Early);
        let of_slot = note(&mut saved, "met", Turn::OfSlot);
        assert_eq!(saved.names_bytes(), NamesBytes { early, of_slot });
        assert!(early > of_slot && of_slot > 0);
        assert!(has(&saved, "early") && has(&saved, "met") && !has(&saved, "later"));
        for (place, name) in ["c", "a", "saved", "b"].into_iter().enumerate() {
            saved.note_unsaved(&Key::new(name.as_bytes()), place as u64);
        }
        assert!(saved.has_unsaved() && !has(&saved, "a"));
        // One is saved before the walk has come to the end.
        assert!(note(&mut saved, "saved", Turn::Early) > 0);
        let (places, kept) = saved.let_wait();
        assert_eq!((places.as_slice(), kept.len()), (&[1, 3, 0][..], 3));
        assert_eq!(saved.names_bytes(), NamesBytes::default());
        let waiting = [0, 1, 2, 3].map(|number| saved.waiting_name(number));
        assert_eq!(waiting, [Some(&b"a"[..]), Some(b"b"), Some(b"c"), None]);
        assert!(!has(&saved, "a") && has(&saved, "early") && has(&saved, "met"));
        assert!(has(&saved, "later"), "it is met by the walk, or newer than the snapshot");
        assert_eq!(note(&mut saved, "b", Turn::Early), 0);
        assert!(has(&saved, "b") && saved.waiting_name(1).is_none() && !has(&saved, "c"));
        assert_eq!(saved.waiting_bytes(), 3 * (1 + WAITING_BYTES));
        saved.take();
        assert!(has(&saved, "c") && saved.is_taken() && saved.waiting_bytes() == 0);
    }

    #[test]
    fn what_the_scan_has_passed_is_saved_without_its_name_but_for_what_it_left() {
        let (mut saved, keyspace) = (SlotSaved::default(), Keyspace::default());
        let slot = keyspace.lock(0);
        assert!(saved.has_walked_to(0, ScanPosition::default()));
        saved.note_unsaved(&Key::new(b"left"), 7);
        saved.note_walked(&slot, 0, None);
        assert!(has(&saved, "met") && !has(&saved, "left"));
        assert!((0..2).all(|table| !saved.has_walked_to(table, ScanPosition::default())));
        assert_eq!(note(&mut saved, "left", Turn::Early), 0);
        assert!(has(&saved, "left") && !saved.has_unsaved());
        assert_eq!(saved.names_bytes(), NamesBytes::default());
    }

    #[test]
    fn behind_names_of_several_tables_the_walk_keeps_names() {
        let mut saved = SlotSaved::default();
        saved.note_unsaved(&Key::new(b"left"), 7);
        assert!((0..2).all(|table| !saved.has_walked_to(table, ScanPosition::default())));
    }

    #[test]
    fn a_slot_of_which_nothing_waits_is_to_be_taken() {
        let mut saved = SlotSaved::default();
        saved.note_unsaved(&Key::new(b"a"), 0);
        note(&mut saved, "a", Turn::Early);
        assert_eq!(saved.let_wait().0, [0; 0]);
        assert!(!saved.has_waiting());
    }
}
