//! Which keys of a table a scan has passed.
//!
//! A scan visits segments by hash prefix, and the keys of a segment by tag, so the hash of a key tells whether it was
//! passed: the place where the scan stands is enough, and no names need be kept. Where the scan stops in the midst of a
//! segment that then splits, keys with lower tags were passed in both halves, though the scan visits those of the upper
//! half again. So for each segment in which it stopped the end is kept, and the tag, as a *band*, until the scan has come
//! to that end. Bands stand one within the other, so there are no more than a prefix has bits.
//!
//! This rests on segments that split and never merge. A table that is flushed and filled anew has other keys: whoever cares
//! for those that were there is told of the flush.

use smallvec::SmallVec;

use crate::key::Key;
use crate::slot::SlotState;
use crate::table::ScanPosition;

/// How far a scan of a table has come.
#[derive(Debug)]
pub struct Scanned {
    /// None: all was passed.
    next: Option<ScanPosition>,
    /// From the prefix of `next` on: ends rise, and tags fall.
    bands: SmallVec<[Band; 1]>,
}

/// Prefixes up to an end of which the keys with lower tags were passed.
#[derive(Clone, Copy, Debug)]
struct Band {
    end: u32,
    tag: u16,
}

impl Default for Scanned {
    /// Nothing was passed.
    fn default() -> Scanned {
        Scanned { next: Some(ScanPosition::default()), bands: SmallVec::new() }
    }
}

impl Scanned {
    /// Where the scan goes on, or none at the end of the table.
    pub fn next(&self) -> Option<ScanPosition> {
        self.next
    }

    /// Whether the scan has passed the place of a key, be it in the table or not.
    pub fn has(&self, key: &Key<'_>) -> bool {
        let Some(next) = self.next else { return true };
        let at = ScanPosition::of(key.hash);
        let band = self.bands.iter().find(|band| at.prefix < band.end);
        at.prefix < next.prefix || band.is_some_and(|band| at.tag < band.tag)
    }

    /// Notes that all of a table was visited from [`Scanned::next`] to a place at which a scan of it has stopped, or its end.
    /// The slot was held meanwhile, and still is.
    pub fn advance(&mut self, slot: &SlotState, table: u8, next: Option<ScanPosition>) {
        assert!(self.next.is_some() && self.next <= next.or(Some(ScanPosition::END)), "it goes on");
        self.next = next;
        let Some(next) = next else { return self.bands.clear() };
        let end = slot.segment_end(table, next);
        self.bands.retain(|band| band.end > next.prefix);
        let tag = self.bands.first().map_or(next.tag, |outer| outer.tag.max(next.tag));
        self.bands.retain(|band| band.end > end);
        self.bands.insert(0, Band { end, tag });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::db::Db;
    use crate::{Expiry, Tally};

    const SLOT: u16 = 0;

    fn insert(slot: &mut SlotState, name: &str) {
        let mut tally = Tally::default();
        let key = Key::in_slot(name.as_bytes(), SLOT);
        Db::new(slot, 0, 0, &mut tally).put(&key, 0, b"v", Expiry::Clear);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Segments split between the turns of a scan, several times where many keys come at once.
        #[test]
        fn what_was_passed_is_what_was_visited_and_nothing_comes_as_new_twice(
            turns in prop::collection::vec((1usize..600, 0usize..1_500), 1..40),
        ) {
            let keyspace = crate::Keyspace::default();
            let mut slot = keyspace.lock(SLOT);
            let name = |number: usize| format!("key:{number}");
            (0..2_000).for_each(|number| insert(&mut slot, &name(number)));
            let (mut scanned, mut visited, mut count) = (Scanned::default(), HashSet::new(), 2_000);
            // The last turn takes all that is left.
            for (keys, added) in turns.into_iter().chain([(usize::MAX, 0)]) {
                let Some(from) = scanned.next() else { break };
                // A stop is behind all keys of one tag, so some more may come.
                let mut left = keys;
                let next = slot.scan(0, from, |view| {
                    let key = Key::in_slot(view.key, SLOT);
                    let is_new = !scanned.has(&key);
                    assert_eq!(is_new, visited.insert(view.key.to_vec()), "{:?}", view.key);
                    left = left.saturating_sub(1);
                    left == 0
                });
                scanned.advance(&slot, 0, next);
                // Those that come behind the scan are as good as visited.
                for number in count..count + added {
                    let name = name(number);
                    if scanned.has(&Key::in_slot(name.as_bytes(), SLOT)) {
                        visited.insert(name.clone().into_bytes());
                    }
                    insert(&mut slot, &name);
                }
                count += added;
                for number in 0..count {
                    let name = name(number);
                    let key = Key::in_slot(name.as_bytes(), SLOT);
                    prop_assert_eq!(scanned.has(&key), visited.contains(name.as_bytes()), "{}", name);
                }
            }
            prop_assert_eq!((scanned.next(), visited.len()), (None, count));
        }
    }
}
