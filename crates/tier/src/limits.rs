//! Every bound on what one slice of work or one wait may take, with the reason for its size.

use std::time::Duration;

/// How long a write waits for memory before it is refused.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
/// The same while values are on their way to flash: a drive that is shared, or a busy kernel, takes two seconds for a
/// write now and then.
pub(crate) const DRIVE_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a write waits for pages that only defragmentation may empty. It goes on behind a refusal,
/// and later writes find what has come free.
pub(crate) const DEFRAG_WAIT_MAX: Duration = Duration::from_millis(40);
/// Bytes that one slice of demotion or eviction frees at most before others get their turn: a
/// millisecond or two of small values.
pub(crate) const SLICE_BYTES_MAX: i64 = 1 << 20;
/// Slots that one slice of demotion or eviction passes at most, and slots without a value in one region
/// of addresses after which all regions are looked at.
pub(crate) const SLICE_SLOTS_MAX: usize = 256;
/// The same of a slice of demotion for a large write that waits: 100 to 200 us where there are few keys.
/// Ahead of need it is too much: demotion would follow each swing of the limit.
pub(crate) const LARGE_SLICE_SLOTS_MAX: usize = 1024;
/// Places of tables that it passes at most, whatever there is in one slot: about 300 us.
pub(crate) const SLICE_PLACES_MAX: u64 = 64 << 10;
/// Values that take less in all are not worth a round of the hand over every key.
pub(crate) const VALUES_BYTES_MIN: i64 = 64 << 10;
/// Bytes that a slice frees at least while `maxmemory` is resident, and that others are asked for.
pub(crate) const FULL_SLICE_BYTES: i64 = 64 << 10;
/// Memory that is made for each write that waits, and counted when some are let go on while keys are
/// evicted: what such a write takes is known only afterwards.
pub(crate) const WRITE_BYTES: i64 = 4 << 10;
/// A write that takes as much waits until it fits beside what is resident, and is refused before
/// smaller ones.
pub(crate) const LARGE_WRITE_BYTES: u64 = 256 << 10;
/// How often work in the background looks for memory, a millisecond apart, before it does without the work.
pub(crate) const BACKGROUND_LOOKS_MAX: u32 = 10_000;
/// The same for what has a small bound of its own, and goes on without.
pub(crate) const BACKGROUND_LOOKS_FEW: u32 = 100;
/// A write that passes a large one counts as at most so much: others pass when it has been made up for.
pub(crate) const PASSED_BYTES_MAX: i64 = 4 * SLICE_BYTES_MAX;
/// Writes that a slice makes memory for.
pub(crate) const WRITES_MAX: i64 = 64;
/// Reads that are handed to the kernel in one go, of all connections: one takes about 10 us. With those
/// that are in flight already they keep a drive busy.
pub(crate) const READS_STARTED_MAX: usize = 64;
/// Random slots that eviction by sample asks for at a time, so that their cache misses overlap.
pub(crate) const SAMPLED_SLOTS: usize = 8;
/// Slots without a key that may go after which such a slice ends.
pub(crate) const SAMPLE_MISSES_MAX: usize = 256;
/// Places of tables of a slot at which values are looked at that may be copied to flash, before others have their turn with
/// the slot: values are copied with the slot held.
pub(crate) const COPY_PLACES_MAX: usize = 128;
/// Bytes of values that are copied so, and those of one value more.
pub(crate) const COPY_BYTES_MAX: usize = 256 << 10;
/// How often in a row who copies waits for the drive, 10 ms at most each, before values go into the checkpoint themselves.
pub(crate) const COPY_WAITS_MAX: u32 = 100;
/// Entries of tables of a slot that are looked at with the slot held, when all values come back to RAM.
pub(crate) const DRAIN_ENTRIES_MAX: usize = 1024;
/// Values that are read back at a time behind a start: so many reads of clients may wait for.
pub(crate) const READ_BACK_VALUES_MAX: usize = 32;
/// Their bytes, about. A longer value is not read back.
pub(crate) const READ_BACK_BYTES_MAX: u64 = 256 << 10;
/// How often it waits for memory to be free, a tick of upkeep each, before it ends.
pub(crate) const READ_BACK_PAUSES_MAX: u32 = 1000;
/// Entries of tables that are passed at a time in search of them, about: some 10 us, and a look at the record of each that
/// was used as often and has no value to demote, such as short ones.
pub(crate) const READ_BACK_ENTRIES_MAX: usize = 4096;
