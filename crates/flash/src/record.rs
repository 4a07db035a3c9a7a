//! One record: what is stored for a key, and its bytes on flash.
//!
//! Format, little endian, 16-byte aligned, zero padded to a multiple of 16 bytes:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 4     | CRC32C of the place (location, segment generation) and of everything from offset 4 to the end of the payload |
//! | 4      | 1     | magic and version, 0xA1 |
//! | 5      | 1     | kind: type and encoding, opaque to this crate |
//! | 6      | 2     | slot (14 bits), bit 14 compressed, bit 15 zero |
//! | 8      | 4     | key length in bytes |
//! | 12     | 4     | payload length in bytes |
//! | 16     | 8     | expiry, milliseconds since 1970, 0 for none |
//! | 24     | 7     | sequence number |
//! | 31     | 1     | database |
//! | 32     | key length | key |
//! | 32 + key length | payload length | payload |
//!
//! The place is part of the checksum though it is not stored: a write that the drive misdirected or lost leaves
//! bytes behind that were valid elsewhere or before, and these must not pass.

use crate::limits::RECORD_ALIGN;

/// Bytes of the header in front of the key.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

/// What is stored with a record besides its key and its payload.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct RecordMeta {
    /// The cluster slot of the key. Bounds: below 16,384.
    pub slot: u16,
    /// The database of the key.
    pub db: u8,
    /// Type and encoding of the value, opaque to this crate.
    pub kind: u8,
    /// Whether the tier compressed the payload; opaque to this crate.
    pub compressed: bool,
    /// When the key expires, in milliseconds since 1970; 0 for never.
    pub expire_at_ms: i64,
}

/// A record to be written, or a view of one that was read.
#[derive(Copy, Clone, Debug)]
pub struct Record<'a> {
    /// What is stored besides key and payload.
    pub meta: RecordMeta,
    /// The key.
    pub key: &'a [u8],
    /// The value's bytes, as the tier encoded them.
    pub payload: &'a [u8],
}

/// A record that owns its bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OwnedRecord {
    /// What is stored besides key and payload.
    pub meta: RecordMeta,
    /// The key.
    pub key: Vec<u8>,
    /// The value's bytes, as the tier encoded them.
    pub payload: Vec<u8>,
}

impl OwnedRecord {
    /// The record as a view.
    pub fn as_record(&self) -> Record<'_> {
        Record { meta: self.meta, key: &self.key, payload: &self.payload }
    }
}

/// How long a record is expected to live: records of one lane share segments, so that they die together.
///
/// Records too large for a write buffer have segments of their own whatever lane they are given.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Lane {
    /// Values demoted from RAM.
    Demote,
    /// Values that a collection kept: older, and likely to stay. The collector uses it.
    Survivor,
    /// Values with a short time to live.
    ShortLived,
}

/// Bytes that a record takes on flash, header and rounding to 16 bytes included.
pub const fn record_size(key_len: usize, payload_len: usize) -> usize {
    (RECORD_HEADER_BYTES + key_len + payload_len).next_multiple_of(RECORD_ALIGN)
}
