//! Every bound of this crate, with its unit and the reason for its size.

/// Records start at multiples of this many bytes, so that 40 bits address 16 TiB.
pub const RECORD_ALIGN: usize = 16;

/// The largest key plus payload of one record, in bytes: Redis's 512 MiB string, its key and a little slack
/// for the encoding that the tier puts around it.
pub const RECORD_BYTES_MAX: usize = (512 << 20) + (1 << 20);

/// Reads that one worker may have in flight; more answer `Busy`. An NVMe drive is saturated well below this.
pub const READS_IN_FLIGHT_MAX: usize = 1024;

/// Bytes of one write buffer: the size of the ordinary device write.
pub const WRITE_BUFFER_BYTES: usize = 256 << 10;
