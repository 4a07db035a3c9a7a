//! The counters of the data set and its tier: every worker adds its batches' tallies.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use keyspace::{DB_COUNT, Tally};

/// Counters shared by all workers. Gauges may be read torn between two fields by one batch.
#[derive(Default, Debug)]
#[allow(missing_docs, reason = "the fields of `keyspace::Tally`, and what the names say")]
pub struct Counters {
    keys: [AtomicI64; DB_COUNT],
    volatile: [AtomicI64; DB_COUNT],
    pub nodes: AtomicI64,
    pub timers: AtomicI64,
    pub index_bytes: AtomicI64,
    pub value_bytes: AtomicI64,
    pub hot_count: AtomicI64,
    pub hot_bytes: AtomicI64,
    pub clean_count: AtomicI64,
    pub clean_bytes: AtomicI64,
    pub cold_count: AtomicI64,
    pub cold_bytes: AtomicI64,
    pub expired: AtomicU64,
    pub evicted: AtomicU64,
    pub read_ram: AtomicU64,
    pub read_flash: AtomicU64,
    pub write_ram: AtomicU64,
    pub write_flash: AtomicU64,
    pub delete_ram: AtomicU64,
    pub delete_flash: AtomicU64,
    /// Bytes of keys and values that clients wrote: what write amplification is measured against.
    pub written_bytes: AtomicU64,
    pub demoted_clean: AtomicU64,
    pub demoted_dirty: AtomicU64,
    /// Values that got a copy on flash for a checkpoint and stayed in RAM.
    pub copied: AtomicU64,
    pub promoted: AtomicU64,
    /// Those of them that were read behind a start because of their use before it.
    pub read_back: AtomicU64,
    /// Those of them that a read of their neighbours has brought along.
    pub brought_along: AtomicU64,
    /// Records, values and arrays of tables that defragmentation moved.
    pub defrag_moved: AtomicU64,
    /// Those that it looked at and left where they were.
    pub defrag_left: AtomicU64,
    /// Values that came back to RAM because their copy could not be written.
    pub restored: AtomicU64,
    /// Time that writers waited for memory, in microseconds.
    pub pressure_us: AtomicU64,
    /// Writers that waited.
    pub pressure_waits: AtomicU64,
    /// Bytes that compression took off demoted values.
    pub compressed_away_bytes: AtomicU64,
}

/// The gauges of one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyspaceCounts {
    /// Keys, expired ones that were not met yet included.
    pub keys: u64,
    /// Keys with an expiry.
    pub volatile: u64,
}

impl Counters {
    /// Adds a batch and resets the tally, but for its dead copies and detached trees, which are the
    /// caller's to release, and for what counts first cold reads.
    pub(crate) fn add(&self, tally: &mut Tally) {
        add_all(&self.keys, &mut tally.keys);
        add_all(&self.volatile, &mut tally.volatile);
        add(&self.nodes, &mut tally.nodes);
        add(&self.timers, &mut tally.timers);
        add(&self.index_bytes, &mut tally.index_bytes);
        add(&self.value_bytes, &mut tally.value_bytes);
        add(&self.hot_count, &mut tally.hot_count);
        add(&self.hot_bytes, &mut tally.hot_bytes);
        add(&self.clean_count, &mut tally.clean_count);
        add(&self.clean_bytes, &mut tally.clean_bytes);
        add(&self.cold_count, &mut tally.cold_count);
        add(&self.cold_bytes, &mut tally.cold_bytes);
        count(&self.expired, &mut tally.expired);
        count(&self.read_ram, &mut tally.read_ram);
        count(&self.read_flash, &mut tally.read_flash);
        (tally.found, tally.missed) = (0, 0);
        count(&self.write_ram, &mut tally.write_ram);
        count(&self.write_flash, &mut tally.write_flash);
        count(&self.delete_ram, &mut tally.delete_ram);
        count(&self.delete_flash, &mut tally.delete_flash);
        count(&self.written_bytes, &mut tally.written_bytes);
    }

    /// The gauges of a physical table (see [`keyspace::Keyspace::table_of`]).
    pub fn table(&self, table: u8) -> KeyspaceCounts {
        let gauge = |gauge: &AtomicI64| gauge.load(Ordering::Relaxed).max(0) as u64;
        KeyspaceCounts {
            keys: gauge(&self.keys[table as usize]),
            volatile: gauge(&self.volatile[table as usize]),
        }
    }

    /// Whether any key has an expiry.
    pub fn has_volatile(&self) -> bool {
        self.volatile.iter().any(|keys| keys.load(Ordering::Relaxed) > 0)
    }

    /// Whether elements of any collection expire.
    pub fn has_timers(&self) -> bool {
        self.timers.load(Ordering::Relaxed) > 0
    }

    /// Whether most keys have an expiry.
    pub(crate) fn is_mostly_volatile(&self) -> bool {
        let sum = |gauges: &[AtomicI64; DB_COUNT]| -> i64 {
            gauges.iter().map(|gauge| gauge.load(Ordering::Relaxed)).sum()
        };
        2 * sum(&self.volatile) > sum(&self.keys)
    }

    /// Values that have a copy on flash.
    pub fn flash_count(&self) -> i64 {
        self.clean_count.load(Ordering::Relaxed) + self.cold_count.load(Ordering::Relaxed)
    }

    /// RAM of the data set, as allocated.
    pub fn ram_bytes(&self) -> i64 {
        self.index_bytes.load(Ordering::Relaxed) + self.value_bytes.load(Ordering::Relaxed)
    }

    /// Starts the statistics (not the gauges) again from 0, for `CONFIG RESETSTAT`.
    pub fn reset_statistics(&self) {
        let statistics = [
            &self.expired,
            &self.evicted,
            &self.read_ram,
            &self.read_flash,
            &self.write_ram,
            &self.write_flash,
            &self.delete_ram,
            &self.delete_flash,
            &self.written_bytes,
            &self.demoted_clean,
            &self.demoted_dirty,
            &self.copied,
            &self.promoted,
            &self.read_back,
            &self.brought_along,
            &self.defrag_moved,
            &self.defrag_left,
            &self.restored,
            &self.pressure_us,
            &self.pressure_waits,
            &self.compressed_away_bytes,
        ];
        for statistic in statistics {
            statistic.store(0, Ordering::Relaxed);
        }
    }
}

#[inline]
fn add(total: &AtomicI64, part: &mut i64) {
    if *part != 0 {
        total.fetch_add(*part, Ordering::Relaxed);
        *part = 0;
    }
}

/// Those of all tables: of most batches all are zero, which is seen at one look.
#[inline]
fn add_all<const N: usize>(totals: &[AtomicI64; N], parts: &mut [i64; N]) {
    if *parts != [0; N] {
        for (total, part) in totals.iter().zip(parts) {
            add(total, part);
        }
    }
}

#[inline]
fn count(total: &AtomicU64, part: &mut u64) {
    if *part != 0 {
        total.fetch_add(*part, Ordering::Relaxed);
        *part = 0;
    }
}
