//! Eviction: keys go for good, with their values, wherever those are.
//!
//! The hand of eviction is a CLOCK as that of demotion is ([`SlotState::pass_hand`]), over keys
//! rather than values: it lowers the frequency of every key that may go and removes those met at 0.
//! Policies that do not go by use take one key of a few ([`SlotState::evict_sampled`]).

use smallvec::SmallVec;

use crate::db::Gone;
use crate::key::Key;
use crate::record::Stored;
use crate::slot::{DB_COUNT, EntryPosition, PassLimit, SlotState};
use crate::table::{IDLE_MAX, Idle, Position};
use crate::tally::Tally;
use stdx::prefetch::prefetch;

/// Places that a sample looks at, at most.
const SAMPLE_PLACES_MAX: usize = 256;
/// Keys of a sample, at most.
const SAMPLES_MAX: usize = 64;

/// Which keys may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evictable {
    /// All of them.
    All,
    /// Those with an expiry.
    Volatile,
}

impl Evictable {
    #[inline]
    pub(crate) fn allows(self, entry: crate::entry::Entry) -> bool {
        !entry.is_empty() && (self == Evictable::All || entry.is_volatile())
    }
}

/// What eviction did.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Places of tables that it looked at.
    pub passed: u64,
    /// Keys that went.
    pub keys: u64,
}

impl SlotState {
    /// Whether a key of this slot may be one that may go. Cost: none of its entries is looked at.
    fn has_evictable(&self, which: Evictable) -> bool {
        which == Evictable::All || self.may_have_volatile()
    }

    /// Passes the hand of eviction over the slot from `from` on, which then is where it stopped: the
    /// default again at the end of the slot. `key_bytes` is what a key frees, about: so many are
    /// taken together as should be enough. What large collections free later counts as freed.
    pub fn pass_eviction_hand(
        &mut self,
        from: &mut EntryPosition,
        which: Evictable,
        limit: PassLimit,
        key_bytes: i64,
        tally: &mut Tally,
    ) -> Evicted {
        let mut done = Evicted::default();
        let sum = |tally: &Tally| tally.detached_bytes() - tally.ram_bytes();
        let before = sum(tally);
        while self.has_evictable(which)
            && let Some(at) = self.entries_from(*from, DB_COUNT.min(self.tables()))
        {
            *from = at;
            while (from.index as usize) < self.capacity_at(at) {
                let freed = sum(tally) - before;
                if done.passed >= limit.places_max || freed >= limit.bytes_max {
                    return done;
                }
                let missing = (limit.bytes_max - freed) / key_bytes.max(1);
                let keys = missing.clamp(1, IDLE_MAX as i64) as usize;
                self.evict_idle(from, which, keys, tally, &mut done);
            }
            *from = EntryPosition { segment: at.segment + 1, index: 0, ..at };
        }
        *from = EntryPosition::default();
        done
    }

    /// Evicts the next idle keys of a segment.
    fn evict_idle(
        &mut self,
        from: &mut EntryPosition,
        which: Evictable,
        keys: usize,
        tally: &mut Tally,
        done: &mut Evicted,
    ) {
        let mut index = from.index as usize;
        let idle = self.table_mut(from.table).age_evictable(from.segment, which, keys, &mut index);
        done.passed += (index - from.index as usize) as u64;
        let next = self.table_mut(from.table).next_entry(from.segment, index);
        for entry in idle {
            // Each removal moves entries behind it, and may make the array anew.
            let at = self.table_mut(from.table).position_of(from.segment, entry);
            self.remove_at(from.table, at, tally, Gone::Evicted);
            done.keys += 1;
        }
        from.index = match next {
            Some(next) => self.table_mut(from.table).position_of(from.segment, next).index(),
            None => u32::MAX,
        };
    }

    fn capacity_at(&self, at: EntryPosition) -> usize {
        self.table(at.table).map_or(0, |entries| entries.segment(at.segment).capacity())
    }

    /// Evicts one key of those that stand behind a random place: of `samples` keys the one whose time
    /// comes first, or that with an equal time that stands first.
    pub fn evict_sampled(
        &mut self,
        random: u64,
        which: Evictable,
        samples: usize,
        tally: &mut Tally,
    ) -> Evicted {
        let mut done = Evicted::default();
        if !self.has_evictable(which) {
            return done;
        }
        let first = random as usize % DB_COUNT;
        let tables = (0..DB_COUNT).map(|step| ((first + step) % DB_COUNT) as u8);
        for table in tables.filter(|&table| self.len(table) > 0).collect::<SmallVec<[u8; 16]>>() {
            let found = self.sample(table, random, which, samples, &mut done);
            let expiry = |at: &&Position| {
                let entries = self.table(table).expect("invariant: it has keys");
                match entries.get(**at).is_volatile() {
                    true => entries.view(**at).expire_at_ms,
                    false => u64::MAX,
                }
            };
            if let Some(&at) = found.iter().min_by_key(expiry) {
                self.remove_at(table, at, tally, Gone::Evicted);
                done.keys += 1;
                break;
            }
        }
        done
    }

    fn sample(
        &self,
        table: u8,
        random: u64,
        which: Evictable,
        samples: usize,
        done: &mut Evicted,
    ) -> Idle {
        let mut found = Idle::new();
        let entries = self.table(table).expect("invariant: it has keys");
        let segment = (random >> 8) as u32 % entries.segment_count();
        let places = entries.segment(segment).places(0);
        let start = (random >> 32) as usize % places.len().max(1);
        for step in 0..places.len().min(SAMPLE_PLACES_MAX) {
            let index = (start + step) % places.len();
            done.passed += 1;
            if which.allows(places[index]) {
                prefetch(places[index].address() as *const u8);
                found.push(Position::new(segment, index));
                if found.len() == samples.clamp(1, SAMPLES_MAX) {
                    break;
                }
            }
        }
        found
    }

    /// Evicts a key whose value lies at `units` of the flash and nowhere else, unless it may not go
    /// or, when frequencies count, was used: then its frequency is lowered. The caller accounts for
    /// the copy.
    pub fn evict_cold(
        &mut self,
        table: u8,
        key: &Key<'_>,
        units: u64,
        which: Evictable,
        by_frequency: bool,
        tally: &mut Tally,
    ) -> bool {
        let entries = self.table_mut(table);
        let Some(at) = entries.find(key.hash, key.bytes) else { return false };
        let entry = entries.get(at);
        let is_there =
            matches!(entries.view(at).stored, Stored::Cold(place, _) if place.units == units);
        if !is_there || !which.allows(entry) {
            return false;
        }
        if by_frequency && entry.frequency() > 0 {
            entries.entry_mut(at).age();
            return false;
        }
        self.remove_at(table, at, tally, Gone::Evicted);
        let copy = tally.dead.pop();
        assert!(copy.is_some_and(|copy| copy.at.units == units), "a cold key has one copy");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Expiry};
    use crate::record::FlashRef;
    use std::collections::BTreeSet;

    const EVERYTHING: PassLimit = PassLimit { bytes_max: i64::MAX, places_max: u64::MAX };

    fn put(slot: &mut SlotState, name: &str, expiry: Expiry) {
        let mut tally = Tally::default();
        let key = Key::new(name.as_bytes());
        Db::new(slot, 0, 1, &mut tally).put(&key, 0, &[b'v'; 100], expiry);
    }

    fn use_once(slot: &mut SlotState, name: &str) {
        let mut tally = Tally::default();
        let read =
            Db::new(slot, 0, 1, &mut tally).into_read(&Key::new(name.as_bytes()), true).is_some();
        assert!(read);
    }

    fn names(slot: &SlotState) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        slot.scan(0, crate::ScanPosition::default(), |view| {
            names.insert(String::from_utf8_lossy(view.key).into_owned());
            false
        });
        names
    }

    #[test]
    fn the_hand_evicts_what_nobody_used_and_counts_what_goes() {
        let mut slot = SlotState::default();
        (0..5_000).for_each(|number| put(&mut slot, &number.to_string(), Expiry::Clear));
        (0..5_000).step_by(5).for_each(|number| use_once(&mut slot, &number.to_string()));
        let mut tally = Tally::default();
        let mut from = EntryPosition::default();
        let mut evicted = 0;
        let done = slot.pass_eviction_hand(&mut from, Evictable::All, EVERYTHING, 1, &mut tally);
        evicted += done.keys;
        assert_eq!(from, EntryPosition::default());
        assert_eq!(evicted, 4_000);
        let left = names(&slot);
        assert!((0..5_000).step_by(5).all(|number| left.contains(&number.to_string())));
        while evicted < 5_000 {
            let all = Evictable::All;
            let done = slot.pass_eviction_hand(&mut from, all, EVERYTHING, 1, &mut tally);
            evicted += done.keys;
        }
        assert_eq!((slot.len(0), tally.keys[0], tally.hot_count), (0, -5_000, -5_000));
        assert_eq!((tally.delete_ram, tally.expired), (0, 0), "no client deleted it");
    }

    #[test]
    fn the_hand_takes_no_more_than_is_wanted_and_goes_on_where_it_stopped() {
        let mut slot = SlotState::default();
        (0..20_000).for_each(|number| put(&mut slot, &number.to_string(), Expiry::Clear));
        let (mut from, mut evicted) = (EntryPosition::default(), 0);
        for step in 0..50 {
            let mut tally = Tally::default();
            let limit = PassLimit { bytes_max: 1_000, places_max: u64::MAX };
            let done = slot.pass_eviction_hand(&mut from, Evictable::All, limit, 120, &mut tally);
            let freed = -tally.ram_bytes();
            assert!((1_000..6_000).contains(&freed), "{freed} in step {step}");
            assert!(done.passed <= 64, "{} places for {} keys", done.passed, done.keys);
            evicted += done.keys;
        }
        assert_eq!(slot.len(0) as u64, 20_000 - evicted);
        let limit = PassLimit { bytes_max: i64::MAX, places_max: 100 };
        let mut tally = Tally::default();
        let done = slot.pass_eviction_hand(&mut from, Evictable::All, limit, 120, &mut tally);
        assert!(done.passed < 100 + 2_048, "a million keys in a slot make no long slice");
    }

    #[test]
    fn only_keys_with_an_expiry_go_where_only_those_may() {
        let mut slot = SlotState::default();
        (0..1_000).for_each(|number| put(&mut slot, &number.to_string(), Expiry::Clear));
        let mut tally = Tally::default();
        let mut from = EntryPosition::default();
        let volatile = Evictable::Volatile;
        let done = slot.pass_eviction_hand(&mut from, volatile, EVERYTHING, 1, &mut tally);
        assert_eq!(done, Evicted::default(), "no entry of it is looked at");
        assert_eq!(slot.evict_sampled(7, volatile, 5, &mut tally), Evicted::default());
        (0..10).for_each(|number| put(&mut slot, &format!("v{number}"), Expiry::At(10 + number)));
        for _ in 0..3 {
            slot.pass_eviction_hand(&mut from, volatile, EVERYTHING, 1, &mut tally);
        }
        assert_eq!(slot.len(0), 1_000);
        assert!(names(&slot).iter().all(|name| !name.starts_with('v')));
    }

    #[test]
    fn of_a_sample_the_key_whose_time_comes_first_goes() {
        let mut slot = SlotState::default();
        (0..40).for_each(|number| put(&mut slot, &format!("v{number}"), Expiry::At(100 + number)));
        for random in 0..10 {
            let mut tally = Tally::default();
            let done = slot.evict_sampled(random << 40, Evictable::Volatile, 64, &mut tally);
            assert_eq!(done.keys, 1);
            assert!(!names(&slot).contains(&format!("v{random}")), "all are looked at");
        }
        assert_eq!(slot.len(0), 30);
    }

    #[test]
    fn a_cold_key_goes_with_its_copy_unless_it_was_used() {
        let mut slot = SlotState::default();
        put(&mut slot, "k", Expiry::Clear);
        let key = Key::new(b"k");
        let mut tally = Tally::default();
        let flash = FlashRef { units: 9, stored_len: 100, compressed: false };
        assert!(Db::new(&mut slot, 0, 1, &mut tally).demote(&key, flash));
        use_once(&mut slot, "k");
        let mut evict = |units, which| slot.evict_cold(0, &key, units, which, true, &mut tally);
        assert!(!evict(8, Evictable::All), "its value lies elsewhere");
        assert!(!evict(9, Evictable::Volatile));
        assert!(!evict(9, Evictable::All), "it was used");
        assert!(evict(9, Evictable::All));
        assert!(!evict(9, Evictable::All));
        assert!(tally.dead.is_empty(), "gc accounts for the copy");
        assert_eq!(slot.len(0), 0);
    }
}
