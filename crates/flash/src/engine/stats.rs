//! The figures of an engine, as the operator sees them.

/// Everything that an engine counts. All byte figures are of the flash unless they say RAM.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EngineStats {
    /// The I/O backend in use: "io_uring", "threads", "io_uring and threads" where some workers got
    /// no ring, "sim", or "none" before the first worker.
    pub backend: &'static str,
    /// Bytes that the engine may fill: all segments in use or free.
    pub capacity_bytes: u64,
    /// Bytes of segments that are not free, dead space included.
    pub used_bytes: u64,
    /// Bytes of records that were appended and not released.
    pub live_bytes: u64,
    /// Bytes in used segments that a gc run could give back.
    pub dead_bytes: u64,
    /// Bytes of free segments, gc's reserve included.
    pub free_bytes: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments that are free.
    pub segments_free: u64,
    /// Segments that are free but for a checkpoint that may refer to what is in them; they count as used.
    pub segments_held: u64,
    /// Segments that are being filled.
    pub segments_open: u64,
    /// Segments that are full.
    pub segments_sealed: u64,
    /// Segments that are being collected.
    pub segments_in_gc: u64,
    /// Segments with nothing to collect that wait for the release of their last records (damaged
    /// ones, for example) or for the end of reads.
    pub segments_emptied: u64,
    /// Paths that are on the list.
    pub paths: u64,
    /// Paths that were taken off the list and still hold something.
    pub paths_leaving: u64,
    /// Bytes of segments in use on these.
    pub leaving_bytes: u64,
    /// Paths that take no writes any more after a write error.
    pub paths_failed: u64,
    /// Reads asked of the engine, those answered from write buffers included.
    pub reads: u64,
    /// Reads answered from a write buffer.
    pub reads_buffered: u64,
    /// Reads that shared another read's device access.
    pub reads_merged: u64,
    /// Reads that the device was asked for, on behalf of clients.
    pub device_reads: u64,
    /// Bytes of these.
    pub device_read_bytes: u64,
    /// Of these, bytes beside those of the records asked for, since what lies there is likely to be asked for next.
    pub read_ahead_bytes: u64,
    /// Bytes of records that were served from them.
    pub read_ahead_used_bytes: u64,
    /// Reads answered from blocks that were kept.
    pub block_cache_hits: u64,
    /// RAM that such blocks take, in bytes: part of `buffer_bytes`.
    pub block_cache_bytes: u64,
    /// Writes that the device was asked for.
    pub device_writes: u64,
    /// Bytes of these.
    pub device_write_bytes: u64,
    /// Records appended by the tier.
    pub appends: u64,
    /// Bytes of these on flash: the denominator of write amplification.
    pub append_bytes: u64,
    /// Segments that gc runs freed.
    pub gc_segments: u64,
    /// Of these, segments freed without a read because nothing in them lived.
    pub gc_segments_unread: u64,
    /// Bytes that gc runs read.
    pub gc_read_bytes: u64,
    /// Records that gc runs moved.
    pub gc_relocated: u64,
    /// Bytes of these.
    pub gc_relocated_bytes: u64,
    /// Records that gc runs found dead or also in RAM, and left behind.
    pub gc_dropped: u64,
    /// Device reads that failed.
    pub read_errors: u64,
    /// Device writes that failed.
    pub write_errors: u64,
    /// Records whose bytes on flash were not what was written.
    pub checksum_failures: u64,
    /// RAM that the engine holds for buffers and tables, in bytes.
    pub buffer_bytes: u64,
    /// The same for write buffers that are not made yet. All are within milliseconds where RAM is full, and there must
    /// be room for them.
    pub unmade_bytes: u64,
    /// Time from a read's start to its completion.
    pub read_latency: LatencySummary,
}

impl EngineStats {
    /// Values that came from the device for each read of it; 0 before the first.
    pub fn values_per_device_read(&self) -> f64 {
        if self.device_reads == 0 {
            return 0.0;
        }
        self.reads.saturating_sub(self.reads_buffered) as f64 / self.device_reads as f64
    }

    /// Bytes written to the device for each byte appended by the tier; 0 before the first append.
    pub fn write_amplification(&self) -> f64 {
        if self.append_bytes == 0 {
            return 0.0;
        }
        self.device_write_bytes as f64 / self.append_bytes as f64
    }
}

/// Percentiles of a latency. Units: microseconds, within 1/8 of the true value.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct LatencySummary {
    /// Samples counted.
    pub count: u64,
    /// Median.
    pub us_p50: u64,
    /// 99th percentile.
    pub us_p99: u64,
    /// 99.9th percentile.
    pub us_p999: u64,
    /// The largest.
    pub us_max: u64,
}
