//! Every bound of this crate, with its unit and the reason for its size.

use std::time::Duration;

/// Records start at multiples of this many bytes, so that 40 bits address 16 TiB.
pub const RECORD_ALIGN: usize = 16;

/// The largest key plus payload of one record, in bytes: Redis's 512 MiB string, its key and a
/// little slack for the encoding that the tier puts around it.
pub const RECORD_BYTES_MAX: usize = (512 << 20) + (1 << 20);

/// Bytes that a read around a record brings from either side of it: as much as what one client wrote at a time takes, mostly.
/// With them it is two pages, of which a drive gives four fifths as many as of sectors (56,000 and 68,000 a second).
pub const AROUND_BYTES: u32 = 3584;

/// Reads that one worker may have in flight; more answer `Busy`. An NVMe drive is saturated well
/// below this.
pub const READS_IN_FLIGHT_MAX: usize = 1024;

/// Bytes of one write buffer: the size of the ordinary device write. Large enough that a drive
/// streams, small enough that a write does not stand in front of a read for long (50 us at 5 GB/s).
pub const WRITE_BUFFER_BYTES: usize = 256 << 10;

/// Write buffers of one worker: one open for each stream and the rest in flight.
pub const WRITE_BUFFERS: usize = 12;

/// Streams that have a buffer open at most: all but that of large records.
pub const OPEN_BUFFERS_MAX: usize = 5;

/// Write buffers with which a worker that writes gets on: one open for each stream, one for a piece of a large record,
/// and one for the next of a stream.
pub const WRITE_BUFFERS_MIN: usize = OPEN_BUFFERS_MAX + 2;

/// Bytes of the pool of read buffers of one worker, registered with the ring where that is allowed.
pub const READ_POOL_BYTES: usize = 3 << 20;

/// Bytes of read buffers of one worker beside the pool, when it is used up; then reads answer
/// `Busy`.
pub const READ_HEAP_BYTES_MAX: usize = 1 << 20;

/// Bytes of large records that one worker reads at the same time; a single larger one is read
/// alone.
pub const LARGE_READ_BYTES_MAX: usize = 32 << 20;

/// Bytes of large records that one worker keeps until they are written; a single larger one is
/// written alone.
pub const LARGE_WRITE_BYTES_MAX: usize = 32 << 20;

/// Bytes of large records that gc runs of all workers move at the same time; a single larger one is moved alone. They
/// are in memory from the read to the end of the write.
pub const GC_LARGE_BYTES_MAX: usize = 4 << 20;

/// Device reads or writes that one large record has in flight.
pub const LARGE_PIECES_IN_FLIGHT_MAX: usize = 4;

/// Block reads that one gc run has in flight: enough to keep it busy, few beside the reads of
/// clients.
pub const GC_READS_IN_FLIGHT_MAX: usize = 4;

/// Records that the owner is told of before a gc run asks about them: enough for its cache
/// misses to overlap, few enough for what it brings near to stay there.
pub const EXPECTED_MAX: usize = 32;

/// Bytes of the largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Bytes of the smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Bytes of a segment where the flash is large enough for it.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// Segments of one log: 16 TiB of 64 MiB.
pub const SEGMENTS_MAX: usize = 1 << 18;

/// Bytes that a checkpoint says of the flash: a list of its segments, each with the blocks that a footer could list, at most.
pub const FLASH_STATE_BYTES_MAX: u64 = (SEGMENTS_MAX as u64) << 12;

/// Threads that read what is kept on flash when it is checked, each with a buffer of the size of a write buffer.
pub const CHECK_THREADS: usize = 16;

/// Bytes between two records that are read with them when both are checked: to ask the drive again takes longer.
pub const CHECK_GAP_BYTES: u32 = 16 << 10;

/// Paths of one log.
pub const PATHS_MAX: usize = 64;

/// Threads of the thread-pool backend for each worker.
pub const POOL_THREADS: usize = 8;

/// Bytes of the journal that wait to become durable, beyond which nothing is to be appended. They are in memory. As much
/// as a drive of 250 MB/s takes in a quarter of a second.
pub const JOURNAL_HELD_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the journal that are written and not synced, beyond which they are synced whatever the policy: so that what
/// may have to be written anew is in memory still, and no sync takes long.
pub const JOURNAL_SYNC_BYTES: u64 = 16 << 20;

/// Bytes from which on a segment of the journal is left for the next. To begin one takes three syncs; what a checkpoint
/// makes needless is removed segment by segment.
pub const JOURNAL_SEGMENT_BYTES: u64 = 64 << 20;

/// Bytes of a piece of the journal's buffer.
pub const JOURNAL_CHUNK_BYTES: usize = 256 << 10;

/// Such pieces that are kept for later while records come: what one sync writes at full speed. New memory for each costs
/// as much as the copies into it.
pub const JOURNAL_SPARE_CHUNKS_MAX: usize = JOURNAL_SYNC_BYTES as usize / JOURNAL_CHUNK_BYTES;

/// The same whatever memory there is: what two writes take that do not wait for more to gather, and what comes meanwhile.
pub const JOURNAL_SPARE_CHUNKS_MIN: usize = 4;

/// For so long records gather for one write while nobody waits for them: 200 writes a second cost little, and a process
/// that is killed loses no more than that.
pub const JOURNAL_GATHER: Duration = Duration::from_millis(5);

/// Bytes that are written without such a wait.
pub const JOURNAL_GATHER_BYTES: usize = 256 << 10;

/// When `EverySecond` syncs.
pub const JOURNAL_SYNC_EVERY: Duration = Duration::from_secs(1);

/// When a write or a sync of the journal that failed is tried again.
pub const JOURNAL_RETRY: Duration = Duration::from_millis(250);

/// Bytes that are read of a journal at a time, or a record if it is longer.
pub const JOURNAL_READ_BYTES: usize = 1 << 20;

/// Segments in front of a checkpoint that stay with it: each checkpoint begins one, however short.
pub const RECENT_SEGMENTS_MAX: usize = 64;

/// Bytes of a record in them that is read while the journal goes on: it is in memory as a whole.
pub const RECENT_RECORD_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(2 * JOURNAL_SYNC_BYTES <= JOURNAL_HELD_BYTES_MAX);

// Each stream may have one open while a large record is written; one more must be left.
const _: () = assert!(WRITE_BUFFERS > OPEN_BUFFERS_MAX + LARGE_PIECES_IN_FLIGHT_MAX);
const _: () = assert!(RECORD_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(SEGMENT_BYTES_MAX < u32::MAX as u64);
const _: () = assert!(
    WRITE_BUFFERS * WRITE_BUFFER_BYTES
        + READ_POOL_BYTES
        + READ_HEAP_BYTES_MAX
        + GC_READS_IN_FLIGHT_MAX * WRITE_BUFFER_BYTES
        <= 8 << 20
);
