//! What keys and values take in RAM and on flash, derived from Kelvin's own layouts.
//!
//! Sources, which this file follows and tests hold it to:
//!
//! | what | where |
//! | --- | --- |
//! | record of a key; inline up to 128 bytes; size classes | `crates/keyspace/src/record.rs` |
//! | table: 8-byte entries, at most 90 % full, segments of 2,048 | `segment.rs`, `table.rs` there |
//! | values that are never demoted: below 32 bytes | `crates/keyspace/src/db.rs` |
//! | record on flash: 32-byte header, multiples of 16 | `crates/flash/src/record.rs` |
//! | buffers of a worker, table of segments | `crates/flash/src/limits.rs`, `log/table.rs` |
//! | the part of `maxmemory` that is kept free: 1/32 | `crates/tier/src/budget.rs` |
//!
//! To what is allocated come two things that only resident memory has: jemalloc keeps 128 bytes
//! for each slab and 8 for each page (an allocation of 512 bytes shares a 4 KiB slab with seven
//! others, so it pays 17; one of 640 bytes pays 5), and a server that demotes has holes where
//! values left. The constants named `MEASURED_*` were read off servers that held from 130 MiB to
//! 1.2 GiB; `crates/kelvin/tests/plan.rs` compares with real ones again.
//!
//! Invariant: all functions are pure, and monotone in keys and values.

use std::ops::{Add, Mul};

use stdx::size_class;

/// Slots of a server, each with a table of its own.
const SLOTS: f64 = 16_384.0;
/// The table of a slot, in place.
const SLOT_BYTES: f64 = 64.0;
/// Entries at which a segment of a table is split.
const SEGMENT_ENTRIES_MAX: usize = 2_048;
const ENTRY_BYTES: u64 = 8;
/// Smallest array of entries.
const CAPACITY_MIN: u64 = 4;
/// A directory's share for each segment: its leaf, its index, what their vectors have in reserve.
const LEAF_BYTES: f64 = 64.0;

/// Values up to this length stand in their record.
const INLINE_BYTES_MAX: u64 = 128;
/// Shorter values stay in RAM.
const DEMOTE_BYTES_MIN: u64 = 32;
const EXPIRY_BYTES: u64 = 6;
const PLACE_BYTES: u64 = 5;
const ADDRESS_BYTES: u64 = 8;

const FLASH_HEADER_BYTES: u64 = 32;
const FLASH_ALIGN: u64 = 16;
/// Headers, footers and ends of blocks that are filled up to a sector, for each byte of records:
/// servers wrote 1.001 to 1.002, and had segments that were not full yet.
const FLASH_PADDING: f64 = 1.005;
/// Values are compressed from this length on (`tier-compression-min-bytes`), up to this one, and
/// only where that takes off an eighth.
const COMPRESS_BYTES: std::ops::RangeInclusive<u64> = 1_024..=1 << 20;
const COMPRESS_GAIN_MIN: f64 = 1.0 / 8.0;

const PAGE_BYTES: u64 = 4_096;
/// Largest size class that shares slabs; larger ones have pages of their own.
const SLAB_CLASS_MAX: u64 = 14_336;
/// jemalloc's head of a slab or of pages of their own.
const EXTENT_BYTES: f64 = 128.0;
/// jemalloc's map from addresses to these.
const MAP_BYTES_A_PAGE: f64 = 8.0;

/// Resident before there is data: code, stacks, the allocator's first pages.
const MEASURED_BASE_BYTES: f64 = 7.0 * 1_048_576.0;
/// Allocated besides the data: the slots, clients, configuration.
const MEASURED_STARTUP_BYTES: f64 = 1.6 * 1_048_576.0;
/// Resident besides these: thread caches, pages that are begun.
const MEASURED_SLACK_BYTES: f64 = 4.0 * 1_048_576.0;
/// What a server that demotes has of holes when it has settled, for each byte allocated: 0.052 with a
/// `maxmemory` of 128 MiB, 0.056 with 512 MiB.
const MEASURED_HOLES: f64 = 0.05;
/// Buffers of a worker for flash: 12 of 256 KiB for writes, 3 MiB for reads.
const WORKER_FLASH_BYTES: f64 = 6.0 * 1_048_576.0;
/// The table of flash segments: its heads, and entries in chunks of 256.
const FLASH_TABLE_BYTES: f64 = 1_024.0 * 24.0;
const FLASH_CHUNK_SEGMENTS: f64 = 256.0;
const FLASH_CHUNK_BYTES: f64 = 65_536.0;
/// Bytes of a segment where the flash is large; smaller ones divide it into 1,024.
const FLASH_SEGMENT_BYTES: f64 = 67_108_864.0;
const FLASH_SEGMENTS_WANTED: f64 = 1_024.0;
const FLASH_SEGMENT_BYTES_MIN: f64 = 4_194_304.0;
/// Part of `maxmemory` that is kept free.
const MARGIN: f64 = 1.0 / 32.0;

/// Bytes of flash that one server can address: 40 bits of 16-byte units.
pub const SERVER_FLASH_BYTES_MAX: f64 = (1u64 << 44) as f64;

/// RAM: what is allocated, rounding included, and what the allocator keeps besides for it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ram {
    /// Bytes allocated, rounded up to size classes.
    pub allocated: f64,
    /// Bytes that jemalloc keeps about them.
    pub metadata: f64,
}

impl Ram {
    /// One allocation of so many bytes.
    fn of(bytes: u64) -> Self {
        let class = size_class(bytes as usize) as u64;
        Self { allocated: class as f64, metadata: metadata_bytes(class) }
    }

    /// Both together, in bytes.
    pub fn resident(self) -> f64 {
        self.allocated + self.metadata
    }
}

impl Add for Ram {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            allocated: self.allocated + other.allocated,
            metadata: self.metadata + other.metadata,
        }
    }
}

impl Mul<f64> for Ram {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self { allocated: self.allocated * factor, metadata: self.metadata * factor }
    }
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In RAM alone.
    Hot,
    /// In RAM, with a copy on flash: what was read back from there.
    Clean,
    /// On flash alone.
    Cold,
}

/// What a data set's records look like.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Bytes of a key.
    pub key_bytes: u64,
    /// Sizes of values in bytes, and the share of keys that has each.
    pub values: Vec<(u64, f64)>,
    /// Whether keys have a time to live.
    pub expires: bool,
    /// Stored bytes of a value for each of its own after compression; 1 where nothing is gained.
    pub compressed_to: f64,
}

impl Shape {
    /// Values of one size that do not compress.
    pub fn plain(key_bytes: u64, value_bytes: u64) -> Self {
        Self { key_bytes, values: vec![(value_bytes, 1.0)], expires: false, compressed_to: 1.0 }
    }

    /// Mean bytes of a value.
    pub fn value_bytes(&self) -> f64 {
        self.mean(|value| value as f64)
    }

    /// RAM of a key and its value, without its table entry: the mean over the sizes.
    pub fn ram(&self, place: Place) -> Ram {
        self.values
            .iter()
            .map(|&(value, share)| self.ram_of(value, place) * share)
            .fold(Ram::default(), Add::add)
    }

    /// Bytes of a record on flash: the mean over the values that go there.
    pub fn flash_bytes(&self) -> f64 {
        self.mean(|value| self.flash_bytes_of(value))
    }

    /// Share of values that can leave RAM.
    pub fn demotable_share(&self) -> f64 {
        self.mean(|value| f64::from(u8::from(value >= DEMOTE_BYTES_MIN)))
    }

    fn mean(&self, of: impl Fn(u64) -> f64) -> f64 {
        self.values.iter().map(|&(value, share)| of(value) * share).sum()
    }

    fn ram_of(&self, value: u64, place: Place) -> Ram {
        let expiry = if self.expires { EXPIRY_BYTES } else { 0 };
        let head = 1 + key_length_bytes(self.key_bytes) + self.key_bytes + expiry;
        let (stored, is_compressed) = self.stored(value);
        let at_flash = PLACE_BYTES
            + varint_bytes(stored << 1)
            + if is_compressed { varint_bytes(value) } else { 0 };
        match place {
            _ if value < DEMOTE_BYTES_MIN => Ram::of(head + varint_bytes(value) + value),
            Place::Cold => Ram::of(head + at_flash),
            Place::Clean => Ram::of(head + at_flash + ADDRESS_BYTES) + Ram::of(value),
            Place::Hot if value <= INLINE_BYTES_MAX => Ram::of(head + varint_bytes(value) + value),
            Place::Hot => Ram::of(head + varint_bytes(value) + ADDRESS_BYTES) + Ram::of(value),
        }
    }

    fn flash_bytes_of(&self, value: u64) -> f64 {
        if value < DEMOTE_BYTES_MIN {
            return 0.0;
        }
        let bytes = FLASH_HEADER_BYTES + self.key_bytes + self.stored(value).0;
        bytes.next_multiple_of(FLASH_ALIGN) as f64
    }

    /// Bytes that a value is stored in on flash, and whether it is compressed there.
    fn stored(&self, value: u64) -> (u64, bool) {
        let pays = self.compressed_to <= 1.0 - COMPRESS_GAIN_MIN;
        if pays && COMPRESS_BYTES.contains(&value) {
            return ((value as f64 * self.compressed_to).ceil() as u64, true);
        }
        (value, false)
    }
}

/// A `kelvin server`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server {
    /// Threads that serve clients.
    pub workers: f64,
    /// `flash-size` in bytes; 0 for none.
    pub flash_bytes: f64,
}

impl Server {
    /// What it has allocated with this data, in bytes: `used_memory` of INFO.
    pub fn used_bytes(&self, data: Ram) -> f64 {
        data.allocated + MEASURED_STARTUP_BYTES + self.engine_bytes()
    }

    /// What the machine gives it for this data, in bytes: `used_memory_rss` of INFO. `holes` says
    /// whether it demotes.
    pub fn resident_bytes(&self, data: Ram, holes: bool) -> f64 {
        let holes = if holes { data.allocated * MEASURED_HOLES } else { 0.0 };
        data.resident() + holes + self.fixed_bytes()
    }

    /// `maxmemory` at which that fits, in bytes.
    pub fn max_memory_bytes(&self, data: Ram, holes: bool) -> f64 {
        self.resident_bytes(data, holes) / (1.0 - MARGIN)
    }

    /// Share of the values that are in RAM when `maxmemory` is full, from 0 to 1; none when not
    /// even the keys fit.
    pub fn share_in_ram(
        &self,
        max_memory_bytes: f64,
        all_cold: Ram,
        all_in_ram: Ram,
    ) -> Option<f64> {
        let target = max_memory_bytes * (1.0 - MARGIN);
        let least = self.resident_bytes(all_cold, true);
        let most = self.resident_bytes(all_in_ram, true);
        match target {
            _ if target < least => None,
            _ if target >= most => Some(1.0),
            _ => Some((target - least) / (most - least)),
        }
    }

    fn engine_bytes(&self) -> f64 {
        if self.flash_bytes == 0.0 {
            return 0.0;
        }
        let segment = (self.flash_bytes / FLASH_SEGMENTS_WANTED)
            .clamp(FLASH_SEGMENT_BYTES_MIN, FLASH_SEGMENT_BYTES);
        let chunks = (self.flash_bytes / segment / FLASH_CHUNK_SEGMENTS).ceil();
        self.workers * WORKER_FLASH_BYTES + FLASH_TABLE_BYTES + chunks * FLASH_CHUNK_BYTES
    }

    fn fixed_bytes(&self) -> f64 {
        MEASURED_BASE_BYTES + MEASURED_STARTUP_BYTES + MEASURED_SLACK_BYTES + self.engine_bytes()
    }
}

/// RAM of the tables of one server with so many keys. Besides it, the slots themselves.
pub fn tables(keys: f64) -> Ram {
    assert!(keys >= 0.0);
    segments(keys / SLOTS, 0) * SLOTS
}

/// RAM of the slots, with or without keys. Units: bytes.
pub fn slots_bytes() -> f64 {
    SLOTS * SLOT_BYTES
}

/// Bytes of flash that records of so many bytes take in segments, padding included.
pub fn flash_in_segments(record_bytes: f64) -> f64 {
    record_bytes * FLASH_PADDING
}

/// The arrays of a table whose number of keys is spread around `mean` as hashing spreads it
/// (Poisson): as it is while it fits a segment, else those of its two halves.
fn segments(mean: f64, depth: u32) -> Ram {
    if mean > 4.0 * SEGMENT_ENTRIES_MAX as f64 {
        return segments(mean / 2.0, depth + 1) * 2.0;
    }
    let (mut whole, mut split) = (Ram::default(), 0.0);
    for (keys, probability) in poisson(mean) {
        if keys <= SEGMENT_ENTRIES_MAX {
            whole = whole + array(keys) * probability;
        } else {
            split += probability;
        }
    }
    if depth > 0 {
        whole.allocated += LEAF_BYTES * (1.0 - split);
    }
    if split > 1e-6 { whole + segments(mean / 2.0, depth + 1) * (2.0 * split) } else { whole }
}

/// The array of a segment that grew to `keys`.
fn array(keys: usize) -> Ram {
    if keys == 0 {
        return Ram::default();
    }
    let least = (keys as u64 * 10).div_ceil(9).max(CAPACITY_MIN);
    Ram::of(least * ENTRY_BYTES)
}

/// The numbers around `mean` with their probabilities, which sum to 1.
fn poisson(mean: f64) -> Vec<(usize, f64)> {
    let reach = 8.0 * mean.sqrt() + 8.0;
    let (first, last) = ((mean - reach).max(0.0) as usize, (mean + reach) as usize);
    // From the middle outwards nothing overflows; what is left out is below 1e-12.
    let middle = mean as usize;
    let mut weights = vec![1.0; last - first + 1];
    for keys in (first..middle).rev() {
        weights[keys - first] = weights[keys + 1 - first] * (keys + 1) as f64 / mean;
    }
    for keys in middle + 1..=last {
        weights[keys - first] = weights[keys - 1 - first] * mean / keys as f64;
    }
    let total: f64 = weights.iter().sum();
    weights.into_iter().enumerate().map(|(at, weight)| (first + at, weight / total)).collect()
}

/// What jemalloc keeps about an allocation of this size class: its part of the head of its slab,
/// which is the smallest number of pages that the class divides, and of the map of pages.
fn metadata_bytes(class: u64) -> f64 {
    if class == 0 {
        return 0.0;
    }
    let extent = match class {
        0..=SLAB_CLASS_MAX => least_common_multiple(class, PAGE_BYTES),
        _ => class,
    };
    let part = class as f64 / extent as f64;
    EXTENT_BYTES * part + MAP_BYTES_A_PAGE * class as f64 / PAGE_BYTES as f64
}

fn least_common_multiple(one: u64, two: u64) -> u64 {
    let (mut a, mut b) = (one, two);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    one / a * two
}

/// Bytes of a key's length in its record.
fn key_length_bytes(key: u64) -> u64 {
    match key {
        0..=252 => 1,
        253..=0xffff => 3,
        _ => 5,
    }
}

fn varint_bytes(value: u64) -> u64 {
    u64::from(value.max(1).ilog2() / 7 + 1)
}

#[cfg(test)]
#[path = "memory_model_tests.rs"]
mod tests;
