//! What a snapshot has saved of a slot.
//!
//! Until the walk comes to the slot these are the names that were saved early. Behind the walk all are saved but those that
//! wait for their reads, which are noted in place of all others.

use keyspace::Key;
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
    /// Sorted by name. Unless it is empty, all else of the slot is saved.
    waiting: Vec<WaitingName>,
    /// The name of which the walk writes large values.
    pub(super) under_way: Option<Box<[u8]>>,
    /// What of the names counts against the bound.
    names_bytes: u64,
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
    /// Before: the name is kept until then, and counts against the bound.
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
        match self.has_waiting() {
            true => self.find_waiting(key.bytes).is_none_or(|at| self.waiting[at].is_saved),
            false => self.is_taken || self.names.contains(key.bytes),
        }
    }

    /// Notes that what a name holds was saved. Returns the bytes by which names that count have grown.
    pub(super) fn note(&mut self, name: &[u8], turn: Turn) -> u64 {
        if self.has_waiting() {
            if let Some(at) = self.find_waiting(name) {
                self.waiting[at].is_saved = true;
            }
            return 0;
        }
        self.names.insert(name.into());
        let bytes = match turn {
            // A slot of very many keys could never be saved if these were bounded.
            Turn::OfSlot => 0,
            Turn::Early => name.len() as u64 + NAME_BYTES,
        };
        self.names_bytes += bytes;
        bytes
    }

    /// Lets names wait for their reads, sorted, each with the place of its value, and notes that all else is saved. Those that
    /// were saved meanwhile need not wait. Returns the places of the others, by the number of the name, and the names that are
    /// no longer kept, which are to be freed when the slot is let go of.
    pub(super) fn let_wait(
        &mut self,
        mut names: Vec<(Box<[u8]>, u64)>,
    ) -> (Vec<u64>, RapidHashSet<Box<[u8]>>) {
        assert!(!self.is_taken && !self.has_waiting(), "the walk comes once");
        assert!(names.is_sorted_by(|one, two| one.0 < two.0), "each name once, in order");
        names.retain(|(name, _)| !self.names.contains(name));
        self.names_bytes = 0;
        let wait = |(name, place)| (WaitingName { name, is_saved: false }, place);
        let places;
        (self.waiting, places) = names.into_iter().map(wait).unzip();
        (places, std::mem::take(&mut self.names))
    }

    /// The name with a number, unless it was saved meanwhile.
    pub(super) fn waiting_name(&self, number: usize) -> Option<&[u8]> {
        let waiting = self.waiting.get(number).filter(|waiting| !waiting.is_saved)?;
        Some(&waiting.name)
    }

    /// Bytes of names that count against the bound.
    pub(super) fn names_bytes(&self) -> u64 {
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
    use super::*;

    fn names(names: &[&str]) -> Vec<(Box<[u8]>, u64)> {
        let with_place = |(place, name): (usize, &&str)| (name.as_bytes().into(), place as u64);
        names.iter().enumerate().map(with_place).collect()
    }

    fn has(saved: &SlotSaved, name: &str) -> bool {
        saved.has(&Key::new(name.as_bytes()))
    }

    #[test]
    fn behind_the_walk_all_is_saved_but_what_waits() {
        let mut saved = SlotSaved::default();
        assert!(saved.note(b"early", Turn::Early) > 0);
        assert_eq!(saved.note(b"met", Turn::OfSlot), 0);
        assert!(has(&saved, "early") && has(&saved, "met") && !has(&saved, "later"));
        // "early" was saved meanwhile.
        let (places, kept) = saved.let_wait(names(&["a", "b", "c", "early"]));
        assert_eq!((places.as_slice(), kept.len()), (&[0, 1, 2][..], 2));
        assert_eq!(saved.names_bytes(), 0);
        let waiting = [0, 1, 2, 3].map(|number| saved.waiting_name(number));
        assert_eq!(waiting, [Some(&b"a"[..]), Some(b"b"), Some(b"c"), None]);
        assert!(!has(&saved, "a") && has(&saved, "early") && has(&saved, "met"));
        assert!(has(&saved, "later"), "it is met by the walk, or newer than the snapshot");
        assert_eq!(saved.note(b"b", Turn::Early), 0);
        assert!(has(&saved, "b") && saved.waiting_name(1).is_none() && !has(&saved, "c"));
        assert_eq!(saved.waiting_bytes(), 3 * (1 + WAITING_BYTES));
        saved.take();
        assert!(has(&saved, "c") && saved.is_taken() && saved.waiting_bytes() == 0);
    }

    #[test]
    fn a_slot_of_which_nothing_waits_is_to_be_taken() {
        let mut saved = SlotSaved::default();
        saved.note(b"a", Turn::Early);
        assert_eq!(saved.let_wait(names(&["a"])).0, [0; 0]);
        assert!(!saved.has_waiting());
    }
}
