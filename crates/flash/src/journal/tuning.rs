//! What the journal's sizes are: small in tests, so that a short history meets all that a long one does.

use std::hash::BuildHasher;

use super::record::PAYLOAD_BYTES_MAX;
use crate::limits::{
    JOURNAL_CHUNK_BYTES, JOURNAL_HELD_BYTES_MAX, JOURNAL_SEGMENT_BYTES, JOURNAL_SYNC_BYTES,
};

/// See the constants of `limits`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// What the names of journals and runs are drawn from.
    pub(crate) seed: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) sync_bytes: u64,
    pub(crate) held_bytes_max: u64,
    pub(crate) chunk_bytes: usize,
    pub(crate) part_bytes_max: usize,
}

impl Tuning {
    /// As a server has it.
    pub(crate) fn new() -> Self {
        Self {
            seed: std::collections::hash_map::RandomState::new().hash_one(0),
            segment_bytes: JOURNAL_SEGMENT_BYTES,
            sync_bytes: JOURNAL_SYNC_BYTES,
            held_bytes_max: JOURNAL_HELD_BYTES_MAX,
            chunk_bytes: JOURNAL_CHUNK_BYTES,
            part_bytes_max: PAYLOAD_BYTES_MAX,
        }
    }

    /// Records that are at most as long share chunks: so an eighth of one at most is left unused.
    pub(crate) fn small_record_bytes_max(&self) -> usize {
        self.chunk_bytes / 8
    }
}
