//! INFO tiering and TIER STATS: which values are where, and what it costs to keep them there.
//!
//! One row of [`GROUPS`] is a field with its meaning; both commands and `docs/info-tiering.md` come
//! from the rows.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use flash::EngineStats;
use tier::{Counters, MemoryUse, Pressure, Promotion};

use crate::state::flash::DrainEnd;
use crate::state::samples::RateCounts;
use crate::state::server::Server;

use super::text::{Text, ratio};

/// A field.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// What it says, for people.
    #[cfg_attr(not(test), allow(dead_code, reason = "docs/info-tiering.md is made from it"))]
    meaning: &'static str,
    value: fn(&Figures<'_>) -> Value,
}

/// A value with its way to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// A number of things, bytes or units of time.
    Count(u64),
    /// A quotient.
    Ratio(f64),
    /// A word.
    Word(&'static str),
}

use Value::{Count, Ratio, Word};

/// All figures at one time.
pub(crate) struct Figures<'a> {
    counters: &'a Counters,
    memory: MemoryUse,
    base_bytes: u64,
    max_bytes: u64,
    /// Since the start or the last CONFIG RESETSTAT.
    flash: EngineStats,
    has_flash: bool,
    flash_state: &'static str,
    last_drain: &'static str,
    rates: RateCounts,
    pressure: Pressure,
    promotion: Promotion,
    /// Values that the last load found on flash.
    loaded_cold: u64,
    loaded_recent: u64,
}

/// A heading of the documentation and its fields.
type Group = (&'static str, &'static [Field]);

/// All fields, in the order of the answer.
const GROUPS: &[Group] = &[
    ("Values", VALUES),
    ("Memory", MEMORY),
    ("Hits", HITS),
    ("Moves between the tiers", MOVES),
    ("Space on flash", SPACE),
    ("Reads and writes of flash", TRAFFIC),
    ("Endurance", ENDURANCE),
    ("Garbage collection", GC),
];

const fn field(
    name: &'static str,
    meaning: &'static str,
    value: fn(&Figures<'_>) -> Value,
) -> Field {
    Field { name, meaning, value }
}

const VALUES: &[Field] = &[
    field("tier_values_hot", "Values in RAM alone.", |f| gauge(&f.counters.hot_count)),
    field("tier_values_hot_bytes", "Their bytes, as clients count them.", |f| {
        gauge(&f.counters.hot_bytes)
    }),
    field("tier_values_clean", "Values in RAM with an identical copy on flash.", |f| {
        gauge(&f.counters.clean_count)
    }),
    field("tier_values_clean_bytes", "Their bytes.", |f| gauge(&f.counters.clean_bytes)),
    field("tier_values_cold", "Values on flash alone.", |f| gauge(&f.counters.cold_count)),
    field("tier_values_cold_bytes", "Their bytes, before compression.", |f| {
        gauge(&f.counters.cold_bytes)
    }),
    field(
        "tier_nodes",
        "Leaves and branches of large collections, which count as values, too.",
        |f| gauge(&f.counters.nodes),
    ),
    field("tier_values_in_ram", "Values in RAM, hot and clean ones.", |f| Count(f.values_in_ram())),
    field("tier_values_in_ram_percent", "Part of all values that is in RAM.", |f| {
        let cold = positive(&f.counters.cold_count);
        Ratio(share(f.values_in_ram(), cold) * 100.0)
    }),
];

const MEMORY: &[Field] = &[
    field("tier_ram_limit_bytes", "`maxmemory`: the bound on resident memory; 0 is none.", |f| {
        Count(f.max_bytes)
    }),
    field("tier_ram_resident_bytes", "Memory that the machine gives the process.", |f| {
        Count(f.memory.resident_bytes)
    }),
    field("tier_ram_resident_peak_bytes", "The most that it gave.", |f| {
        Count(f.memory.resident_peak_bytes)
    }),
    field("tier_ram_base_bytes", "What was resident before there was any data.", |f| {
        Count(f.base_bytes)
    }),
    field(
        "tier_ram_keys_bytes",
        "Allocated for tables and records: keys, expiries, places on flash, and values so short \
         that they stand in their record.",
        |f| gauge(&f.counters.index_bytes),
    ),
    field("tier_ram_values_bytes", "Allocated for values outside their records.", |f| {
        gauge(&f.counters.value_bytes)
    }),
    field("tier_ram_clients_bytes", "Held by the buffers of connections.", |f| {
        Count(f.memory.client_bytes.max(0) as u64)
    }),
    field("tier_ram_engine_bytes", "Held by the flash engine: buffers and tables.", |f| {
        Count(f.memory.engine_bytes.max(0) as u64)
    }),
    field("tier_ram_tracked_bytes", "The sum of the four above.", |f| Count(f.tracked_bytes())),
    field(
        "tier_ram_tracked_limit_bytes",
        "The bound on that sum which keeps resident memory within `maxmemory`; 0 is none.",
        |f| match f.memory.limit_bytes {
            i64::MAX => Count(0),
            limit => Count(limit.max(0) as u64),
        },
    ),
];

const HITS: &[Field] = &[
    field(
        "tier_ram_hit_ratio",
        "Reads, writes and deletions of values in RAM as part of all; 1 before the first.",
        |f| {
            let [read, write, delete] = f.hits();
            Ratio(share(read.0 + write.0 + delete.0, read.1 + write.1 + delete.1))
        },
    ),
    field("tier_read_ram", "Reads that found their value in RAM.", |f| Count(f.hits()[0].0)),
    field("tier_read_flash", "Reads whose value came from flash.", |f| Count(f.hits()[0].1)),
    field("tier_read_ram_hit_ratio", "Reads from RAM as part of all reads.", |f| {
        Ratio(share(f.hits()[0].0, f.hits()[0].1))
    }),
    field("tier_write_ram", "Writes to new keys, or over values in RAM.", |f| Count(f.hits()[1].0)),
    field(
        "tier_write_flash",
        "Writes over values on flash alone. None of them reads flash, unless it needs the old \
         value, which then counts as a read too.",
        |f| Count(f.hits()[1].1),
    ),
    field("tier_write_ram_hit_ratio", "Writes in RAM as part of all writes.", |f| {
        Ratio(share(f.hits()[1].0, f.hits()[1].1))
    }),
    field("tier_delete_ram", "Deletions of values in RAM.", |f| Count(f.hits()[2].0)),
    field(
        "tier_delete_flash",
        "Deletions of values on flash alone; they do not read flash.",
        |f| Count(f.hits()[2].1),
    ),
    field("tier_delete_ram_hit_ratio", "Deletions in RAM as part of all deletions.", |f| {
        Ratio(share(f.hits()[2].0, f.hits()[2].1))
    }),
];

const MOVES: &[Field] = &[
    field("tier_promotion", "When values come back to RAM: `tier-promotion`.", |f| {
        Word(match f.promotion {
            Promotion::Access => "access",
            Promotion::SecondTouch => "second-touch",
        })
    }),
    field("tier_promoted", "Values that came back to RAM to stay.", |f| {
        total(&f.counters.promoted)
    }),
    field("tier_demoted_dirty", "Values that left RAM and were written to flash for it.", |f| {
        total(&f.counters.demoted_dirty)
    }),
    field("tier_demoted_clean", "Values that left RAM and were on flash already.", |f| {
        total(&f.counters.demoted_clean)
    }),
    field(
        "tier_copied",
        "Values that were copied to flash for a checkpoint and stayed in RAM: `tier-persistence`.",
        |f| total(&f.counters.copied),
    ),
    field(
        "tier_loaded_cold",
        "Values that the last load found on flash, where they stay: `tier-persistence`.",
        |f| Count(f.loaded_cold),
    ),
    field(
        "tier_loaded_recent",
        "Values that the last load found in the journal, where a checkpoint refers to them, and brought to RAM.",
        |f| Count(f.loaded_recent),
    ),
    field(
        "tier_read_back",
        "Of the values that came back to RAM, those that were read behind the last start because of their use before it: \
         `tier-read-back`.",
        |f| total(&f.counters.read_back),
    ),
    field(
        "tier_brought_along",
        "Of the values that came back to RAM, those that nobody had asked for, but for what lies beside them on flash: \
         `tier-promote-neighbours`.",
        |f| total(&f.counters.brought_along),
    ),
    field(
        "tier_restored",
        "Values that came back to RAM because their copy could not be written.",
        |f| total(&f.counters.restored),
    ),
    field(
        "tier_compressed_away_bytes",
        "Bytes that compression took off values on their way to flash.",
        |f| total(&f.counters.compressed_away_bytes),
    ),
    field(
        "tier_pressure",
        "How short memory is: `none`, `demote` (values leave RAM, nobody waits), `wait` (writers \
         wait).",
        |f| {
            Word(match f.pressure {
                Pressure::None => "none",
                Pressure::Demote => "demote",
                Pressure::Wait => "wait",
            })
        },
    ),
    field("tier_pressure_waits", "Writes that waited for memory.", |f| {
        total(&f.counters.pressure_waits)
    }),
    field("tier_pressure_us", "Time that they waited, together, in microseconds.", |f| {
        total(&f.counters.pressure_us)
    }),
];

const SPACE: &[Field] = &[
    field("flash_enabled", "1 when there is flash.", |f| Count(u64::from(f.has_flash))),
    field(
        "flash_state",
        "`on`, `off`, or `draining`: `flash-path` was emptied, all values come back to RAM (`tier_values_cold` are left), and \
         flash is closed then.",
        |f| Word(f.flash_state),
    ),
    field(
        "flash_last_drain",
        "How the last such drain has ended: `none`, `done`, `called-off` by a new `flash-path`, or with flash as it was: \
         `no-memory`, `no-progress` (as many values leave RAM as come back), `unreadable` (a value), `no-checkpoint` (of the journal, without references to flash).",
        |f| Word(f.last_drain),
    ),
    field("flash_backend", "How flash is read and written: `io_uring` or `threads`.", |f| {
        Word(if f.has_flash { f.flash.backend } else { "none" })
    }),
    field(
        "flash_capacity_bytes",
        "Bytes that may be filled: `flash-size` in whole segments.",
        |f| Count(f.flash.capacity_bytes),
    ),
    field("flash_used_bytes", "Bytes of segments that are not free.", |f| {
        Count(f.flash.used_bytes)
    }),
    field("flash_free_bytes", "Bytes of free segments.", |f| Count(f.flash.free_bytes)),
    field("flash_live_bytes", "Bytes of records that are in use.", |f| Count(f.flash.live_bytes)),
    field("flash_dead_bytes", "Bytes that garbage collection could give back.", |f| {
        Count(f.flash.dead_bytes)
    }),
    field("flash_fragmentation_percent", "Dead bytes as part of the used ones.", |f| {
        Ratio(ratio(f.flash.dead_bytes, f.flash.used_bytes) * 100.0)
    }),
    field("flash_segment_bytes", "Bytes of a segment.", |f| Count(f.flash.segment_bytes)),
    field("flash_segments_free", "Segments that are free.", |f| Count(f.flash.segments_free)),
    field("flash_segments_open", "Segments that are being filled.", |f| {
        Count(f.flash.segments_open)
    }),
    field("flash_segments_sealed", "Segments that are full.", |f| Count(f.flash.segments_sealed)),
    field("flash_segments_in_gc", "Segments that are being collected.", |f| {
        Count(f.flash.segments_in_gc)
    }),
    field("flash_segments_emptied", "Collected segments that wait for their last readers.", |f| {
        Count(f.flash.segments_emptied)
    }),
    field(
        "flash_segments_held",
        "Segments that come free with the next checkpoint of the journal: the last refers to what they had. They count as used.",
        |f| Count(f.flash.segments_held),
    ),
    field("flash_paths", "Paths on the list: `flash-path`.", |f| Count(f.flash.paths)),
    field(
        "flash_paths_draining",
        "Paths that were taken off the list and still hold values; the file of each is removed \
         when they are moved.",
        |f| Count(f.flash.paths_leaving),
    ),
    field("flash_draining_bytes", "Bytes of segments in use on these paths.", |f| {
        Count(f.flash.leaving_bytes)
    }),
    field("flash_paths_failed", "Paths that take no writes any more.", |f| {
        Count(f.flash.paths_failed)
    }),
];

const TRAFFIC: &[Field] = &[
    field("flash_reads", "Values read, those still in write buffers included.", |f| {
        Count(f.flash.reads)
    }),
    field("flash_reads_buffered", "Of these, values that a write buffer still held.", |f| {
        Count(f.flash.reads_buffered)
    }),
    field("flash_reads_merged", "Of these, values that shared another's device read.", |f| {
        Count(f.flash.reads_merged)
    }),
    field("flash_device_reads", "Reads of the device on behalf of clients.", |f| {
        Count(f.flash.device_reads)
    }),
    field("flash_device_read_bytes", "Their bytes.", |f| Count(f.flash.device_read_bytes)),
    field(
        "flash_values_per_device_read",
        "Values that came from the device, for each read of it; 0 before the first.",
        |f| Ratio(f.flash.values_per_device_read()),
    ),
    field(
        "flash_read_ahead_bytes",
        "Bytes that were read beside those asked for, where reads follow the order of writing: `tier-read-ahead`.",
        |f| Count(f.flash.read_ahead_bytes),
    ),
    field(
        "flash_read_ahead_used_bytes",
        "Bytes of values, with their keys, that were served from what was read so.",
        |f| Count(f.flash.read_ahead_used_bytes),
    ),
    field(
        "flash_block_cache_hits",
        "Values read that were found in blocks that had been read ahead.",
        |f| Count(f.flash.block_cache_hits),
    ),
    field(
        "flash_block_cache_bytes",
        "Memory that such blocks take, of all workers: a 16th of maxmemory, and 32 MiB of each worker, at most.",
        |f| Count(f.flash.block_cache_bytes),
    ),
    field("flash_device_reads_per_sec", "Their rate over the last seconds.", |f| {
        Count(f.rates.flash_reads)
    }),
    field("flash_device_read_bytes_per_sec", "The rate of their bytes.", |f| {
        Count(f.rates.flash_read_bytes)
    }),
    field("flash_device_writes", "Writes of the device, garbage collection included.", |f| {
        Count(f.flash.device_writes)
    }),
    field("flash_device_write_bytes", "Their bytes.", |f| Count(f.flash.device_write_bytes)),
    field("flash_device_writes_per_sec", "Their rate.", |f| Count(f.rates.flash_writes)),
    field("flash_device_write_bytes_per_sec", "The rate of their bytes.", |f| {
        Count(f.rates.flash_write_bytes)
    }),
    field("flash_read_us_p50", "Median time of a read of flash, in microseconds.", |f| {
        Count(f.flash.read_latency.us_p50)
    }),
    field("flash_read_us_p99", "The 99th percentile.", |f| Count(f.flash.read_latency.us_p99)),
    field("flash_read_us_p999", "The 99.9th percentile.", |f| Count(f.flash.read_latency.us_p999)),
    field("flash_read_us_max", "The longest.", |f| Count(f.flash.read_latency.us_max)),
    field("flash_read_errors", "Device reads that failed.", |f| Count(f.flash.read_errors)),
    field("flash_write_errors", "Device writes that failed.", |f| Count(f.flash.write_errors)),
    field(
        "flash_checksum_failures",
        "Records whose bytes were not what had been written; none is ever served.",
        |f| Count(f.flash.checksum_failures),
    ),
];

const ENDURANCE: &[Field] = &[
    field("tier_user_written_bytes", "Bytes of keys and values that clients wrote.", |f| {
        total(&f.counters.written_bytes)
    }),
    field("flash_appends", "Records written to flash, garbage collection apart.", |f| {
        Count(f.flash.appends)
    }),
    field("flash_append_bytes", "Their bytes.", |f| Count(f.flash.append_bytes)),
    field(
        "flash_write_amplification",
        "Bytes written to the device for each byte that clients wrote.",
        |f| {
            let user = f.counters.written_bytes.load(Ordering::Relaxed);
            Ratio(ratio(f.flash.device_write_bytes, user))
        },
    ),
    field(
        "flash_log_write_amplification",
        "Bytes written to the device for each byte of records written: what garbage collection, \
         padding and footers add.",
        |f| Ratio(ratio(f.flash.device_write_bytes, f.flash.append_bytes)),
    ),
];

const GC: &[Field] = &[
    field("flash_gc_segments", "Segments that garbage collection freed.", |f| {
        Count(f.flash.gc_segments)
    }),
    field("flash_gc_segments_unread", "Of these, segments in which nothing lived.", |f| {
        Count(f.flash.gc_segments_unread)
    }),
    field("flash_gc_read_bytes", "Bytes that it read.", |f| Count(f.flash.gc_read_bytes)),
    field("flash_gc_relocated", "Records that it moved.", |f| Count(f.flash.gc_relocated)),
    field("flash_gc_relocated_bytes", "Their bytes.", |f| Count(f.flash.gc_relocated_bytes)),
    field("flash_gc_dropped", "Records that it left behind: dead, or in RAM too.", |f| {
        Count(f.flash.gc_dropped)
    }),
];

impl<'a> Figures<'a> {
    fn collect(server: &'a Server) -> Figures<'a> {
        let tier = &server.tier;
        let engine = tier.engine();
        let base = server.totals.flash_base.lock();
        Figures {
            counters: &tier.counters,
            memory: tier.budget.memory_use(),
            base_bytes: tier.budget.base_bytes(),
            max_bytes: tier.budget.max_bytes(),
            flash: engine.as_ref().map(|engine| since(engine.stats(), &base)).unwrap_or_default(),
            has_flash: engine.is_some(),
            flash_state: match (&engine, server.flash_changes.drain()) {
                (None, None) => "off",
                (Some(_), None) => "on",
                (_, Some(_)) => "draining",
            },
            last_drain: server.flash_changes.last_end().map_or("none", DrainEnd::word),
            rates: server.samples.rates(),
            pressure: tier.pressure(),
            promotion: tier.settings.promotion(),
            loaded_cold: server.saves.loaded_places.load(Ordering::Relaxed),
            loaded_recent: server.saves.loaded_recent.load(Ordering::Relaxed),
        }
    }

    fn values_in_ram(&self) -> u64 {
        positive(&self.counters.hot_count) + positive(&self.counters.clean_count)
    }

    fn tracked_bytes(&self) -> u64 {
        let MemoryUse { data_bytes, client_bytes, engine_bytes, .. } = self.memory;
        (data_bytes + client_bytes + engine_bytes).max(0) as u64
    }

    /// Accesses in RAM and on flash: of reads, writes, deletions.
    fn hits(&self) -> [(u64, u64); 3] {
        let counters = self.counters;
        let pairs = [
            (&counters.read_ram, &counters.read_flash),
            (&counters.write_ram, &counters.write_flash),
            (&counters.delete_ram, &counters.delete_flash),
        ];
        pairs.map(|(ram, flash)| (ram.load(Ordering::Relaxed), flash.load(Ordering::Relaxed)))
    }
}

/// What the engine has counted since `base`; what it holds stays as it is.
fn since(now: EngineStats, base: &EngineStats) -> EngineStats {
    EngineStats {
        reads: now.reads - base.reads,
        reads_buffered: now.reads_buffered - base.reads_buffered,
        reads_merged: now.reads_merged - base.reads_merged,
        device_reads: now.device_reads - base.device_reads,
        device_read_bytes: now.device_read_bytes - base.device_read_bytes,
        read_ahead_bytes: now.read_ahead_bytes - base.read_ahead_bytes,
        read_ahead_used_bytes: now.read_ahead_used_bytes - base.read_ahead_used_bytes,
        block_cache_hits: now.block_cache_hits - base.block_cache_hits,
        device_writes: now.device_writes - base.device_writes,
        device_write_bytes: now.device_write_bytes - base.device_write_bytes,
        appends: now.appends - base.appends,
        append_bytes: now.append_bytes - base.append_bytes,
        gc_segments: now.gc_segments - base.gc_segments,
        gc_segments_unread: now.gc_segments_unread - base.gc_segments_unread,
        gc_read_bytes: now.gc_read_bytes - base.gc_read_bytes,
        gc_relocated: now.gc_relocated - base.gc_relocated,
        gc_relocated_bytes: now.gc_relocated_bytes - base.gc_relocated_bytes,
        gc_dropped: now.gc_dropped - base.gc_dropped,
        read_errors: now.read_errors - base.read_errors,
        write_errors: now.write_errors - base.write_errors,
        checksum_failures: now.checksum_failures - base.checksum_failures,
        ..now
    }
}

fn positive(gauge: &AtomicI64) -> u64 {
    gauge.load(Ordering::Relaxed).max(0) as u64
}

fn gauge(gauge: &AtomicI64) -> Value {
    Count(positive(gauge))
}

fn total(counter: &AtomicU64) -> Value {
    Count(counter.load(Ordering::Relaxed))
}

/// `part / (part + rest)`, 1 when both are 0: nothing has missed.
fn share(part: u64, rest: u64) -> f64 {
    if part + rest == 0 { 1.0 } else { ratio(part, part + rest) }
}

/// All fields with their values at this time.
pub(crate) fn values(server: &Server) -> Vec<(&'static Field, Value)> {
    let figures = Figures::collect(server);
    let fields = GROUPS.iter().flat_map(|(_, fields)| fields.iter());
    fields.map(|field| (field, (field.value)(&figures))).collect()
}

/// INFO tiering.
pub(super) fn tiering(server: &Server, text: &mut Text) {
    for (field, value) in values(server) {
        match value {
            Count(count) => text.field(field.name, count),
            Ratio(ratio) => text.field(field.name, format_args!("{ratio:.4}")),
            Word(word) => text.field(field.name, word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page in `docs/`, which this test keeps true.
    fn page() -> String {
        let mut page = String::from(
            "# INFO tiering\n\n\
             `INFO tiering` tells which values are in RAM and which on flash, and what it costs to\n\
             keep them there. `TIER STATS` answers the same fields as a map. Counts run from the\n\
             start of the server or the last `CONFIG RESETSTAT`.\n\n\
             This page is made from the table in `crates/server/src/family/info/tiering.rs`; a\n\
             test keeps it so (`KELVIN_WRITE_DOCS=1 cargo test -p server` writes it anew).\n",
        );
        for (heading, fields) in GROUPS {
            page.push_str(&format!("\n## {heading}\n\n| Field | Meaning |\n| --- | --- |\n"));
            for field in *fields {
                page.push_str(&format!("| `{}` | {} |\n", field.name, field.meaning));
            }
        }
        page
    }

    #[test]
    fn the_page_in_docs_is_the_table() {
        let path = "../../docs/info-tiering.md";
        if std::env::var_os("KELVIN_WRITE_DOCS").is_some() {
            std::fs::write(path, page()).expect("docs/ can be written");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(written, page(), "run KELVIN_WRITE_DOCS=1 cargo test -p server");
    }

    #[test]
    fn names_are_told_apart_and_meanings_are_sentences() {
        let mut names = std::collections::BTreeSet::new();
        for field in GROUPS.iter().flat_map(|(_, fields)| fields.iter()) {
            assert!(names.insert(field.name), "{} twice", field.name);
            assert!(field.meaning.ends_with('.') && !field.meaning.contains('|'), "{}", field.name);
        }
    }

    #[test]
    fn counts_start_again_and_holdings_do_not() {
        let base = EngineStats { reads: 5, live_bytes: 70, ..EngineStats::default() };
        let now = EngineStats { reads: 7, live_bytes: 60, ..EngineStats::default() };
        let shown = since(now, &base);
        assert_eq!((shown.reads, shown.live_bytes), (2, 60));
    }

    #[test]
    fn nothing_has_missed_before_the_first_access() {
        assert_eq!(share(0, 0), 1.0);
        assert_eq!(share(1, 3), 0.25);
    }
}
