//! How many regions of addresses demotion empties, one after another ([`keyspace::Region`]).
//!
//! A data set that grows by keys needs whole pages for them, so values leave page by page. One whose
//! keys are written again needs room of the sizes that leave: where holes are does not matter then,
//! and to look for the values of one region among the entries of all keys would be for nothing. While
//! `maxmemory` is resident, and for a moment after, whole pages are needed in any case: a value that leaves in the
//! order of the slots frees no page, and its key, which is shorter then, takes a place in another. (Values of 1 to
//! 100 bytes at 64 MB beside a rewrite of the journal: 275,000 of them left RAM within 0.2 s so, while more
//! became resident; at most 1.05 to 1.09 times `maxmemory` in five runs before; with regions 1.02 to
//! 1.05 in seven of eight, and 1.08 once.)

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crate::counters::Counters;

/// Entries that demotion looks at for each value that it takes, about: a cache line holds eight, and
/// they are read in their order.
const ENTRIES_PER_VICTIM: i64 = 64;
/// With fewer, what one round leaves behind is no better than holes everywhere.
const REGIONS_MIN: usize = 4;
/// A region has at least this part of `maxmemory`.
const REGION_BYTES_MIN: u64 = 2 << 20;
/// A data set grows while there is a new key for every so many values that leave, at least.
const VALUES_PER_NEW_KEY: i64 = 4;
/// Measurements over which both are averaged, about: a sixth of a second.
const MEASURES: i64 = 8;

/// The number of regions, as last measured.
#[derive(Debug)]
pub(crate) struct Regions {
    count: AtomicUsize,
    /// The same as for a data set that grows.
    of_pages: AtomicUsize,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    keys: i64,
    demoted: i64,
    /// New keys between two measurements, times `MEASURES`, on average; the same of values that left.
    new_keys: i64,
    left: i64,
    /// Measurements for which values still leave by region behind one that found `maxmemory` resident.
    full_for: i64,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions {
            count: AtomicUsize::new(1),
            of_pages: AtomicUsize::new(1),
            past: Mutex::default(),
        }
    }
}

impl Regions {
    /// A power of two; 1: values leave in the order of the slots.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The same for a large request, which needs whole pages whatever happens to keys. Small values that left all
    /// over memory would free none, while their places on flash take new ones.
    pub(crate) fn of_pages(&self) -> usize {
        self.of_pages.load(Ordering::Relaxed)
    }

    /// Sees how the data set changes; fifty times a second. `is_full`: `maxmemory` is resident.
    pub(crate) fn measure(&self, counters: &Counters, max_bytes: u64, is_full: bool) {
        let load = |counter: &AtomicI64| counter.load(Ordering::Relaxed).max(0);
        let in_ram = load(&counters.hot_count) + load(&counters.clean_count);
        let keys = in_ram + load(&counters.cold_count);
        let [dirty, clean] = [&counters.demoted_dirty, &counters.demoted_clean];
        let demoted = (dirty.load(Ordering::Relaxed) + clean.load(Ordering::Relaxed)) as i64;
        let mut past = self.past.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let of_pages = regions(in_ram, keys, max_bytes);
        let (grows, was_full) = (past.grows(keys, demoted), past.was_full(is_full));
        let count = if grows || was_full { of_pages } else { 1 };
        self.of_pages.store(of_pages, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
}

impl Past {
    fn grows(&mut self, keys: i64, demoted: i64) -> bool {
        self.new_keys += keys - self.keys - self.new_keys / MEASURES;
        self.left += demoted - self.demoted - self.left / MEASURES;
        (self.keys, self.demoted) = (keys, demoted);
        self.new_keys > 0 && self.new_keys >= self.left / VALUES_PER_NEW_KEY
    }

    fn was_full(&mut self, is_full: bool) -> bool {
        self.full_for = if is_full { MEASURES } else { (self.full_for - 1).max(0) };
        self.full_for > 0
    }
}

/// The fewer values are in RAM, the fewer regions: their values are looked for among all entries.
fn regions(in_ram: i64, keys: i64, max_bytes: u64) -> usize {
    let by_entries = in_ram * ENTRIES_PER_VICTIM / keys.max(1);
    let by_size = (max_bytes / REGION_BYTES_MIN).min(ENTRIES_PER_VICTIM as u64) as i64;
    let regions = 1 << by_entries.min(by_size).max(1).ilog2();
    if regions < REGIONS_MIN { 1 } else { regions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_victim_costs_about_so_many_entries_and_small_budgets_have_few_regions() {
        for (in_ram, keys, max_mib, expected) in [
            (1_000, 1_000, 1024, 64),
            (999, 1_000, 1024, 32),
            (250, 1_000, 1024, 16),
            (70, 1_000, 1024, 4),
            (60, 1_000, 1024, 1),
            (1_000, 1_000, 100, 32),
            (1_000, 1_000, 4, 1),
            (1_000, 1_000, 0, 1),
            (0, 0, 1024, 1),
        ] {
            assert_eq!(regions(in_ram, keys, max_mib << 20), expected, "{in_ram} {max_mib}");
        }
    }

    #[test]
    fn new_keys_make_regions_and_values_written_again_do_not() {
        let counters = Counters::default();
        let regions = Regions::default();
        let step = |new_keys: i64, demoted: u64, times: usize| {
            for _ in 0..times {
                counters.hot_count.fetch_add(new_keys, Ordering::Relaxed);
                counters.demoted_dirty.fetch_add(demoted, Ordering::Relaxed);
                regions.measure(&counters, 1 << 30, false);
            }
            regions.count()
        };
        assert_eq!(step(0, 0, 1), 1, "nothing has happened");
        assert_eq!(step(10_000, 0, 1), 64, "a fill, before RAM is full");
        assert_eq!(step(10_000, 14_000, 50), 64, "and after");
        assert_eq!(step(0, 14_000, 1), 64, "a moment's rest");
        assert_eq!(step(0, 8_000, 50), 1, "values written again");
        assert_eq!(step(100, 8_000, 50), 1, "and a key now and then");
        assert_eq!(step(-10_000, 0, 20), 1, "deletions");
        assert_eq!(step(10_000, 14_000, 50), 64);
    }

    #[test]
    fn where_maxmemory_is_resident_values_leave_page_by_page() {
        let counters = Counters::default();
        let regions = Regions::default();
        counters.hot_count.store(1_000_000, Ordering::Relaxed);
        let count = |is_full| {
            for _ in 0..100 {
                // Values leave, and no key comes.
                counters.demoted_dirty.fetch_add(10_000, Ordering::Relaxed);
                regions.measure(&counters, 1 << 30, is_full);
            }
            regions.count()
        };
        assert_eq!([count(false), count(true), count(false)], [1, 64, 1]);
    }
}
