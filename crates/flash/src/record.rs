//! One record: what is stored for a key, and its bytes on flash.
//!
//! Format, little endian, 16-byte aligned, zero padded to a multiple of 16 bytes:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 4     | CRC32C of all bytes from offset 4 to the payload's end, XOR the place's mark |
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
//! The place (location and generation of the segment) is part of the checksum though it is not
//! stored: a write that the drive misdirected or lost leaves bytes behind that were valid elsewhere
//! or before, and these must not pass. Its mark comes in by XOR, so that a record in memory is
//! checked in one pass, which is what wide instructions are fast at.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use crate::limits::{RECORD_ALIGN, RECORD_BYTES_MAX};
use crate::location::Location;

/// Bytes of the header in front of the key.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

/// Magic and version of the format.
pub(crate) const RECORD_MAGIC: u8 = 0xA1;

const SLOT_MASK: u16 = (1 << 14) - 1;
const COMPRESSED: u16 = 1 << 14;
const CHECKSUMMED_FROM: usize = 4;
const SEQUENCE_BITS: u32 = 56;
/// Odd, so that it spreads starts over all bits and joins no two.
const START_FACTOR: u64 = 0xC2B2_AE3D_27D4_EB4F;

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

impl Record<'_> {
    /// Its size on flash, in bytes.
    pub(crate) fn size(&self) -> usize {
        record_size(self.key.len(), self.payload.len())
    }

    /// A copy of it.
    pub(crate) fn to_owned_record(self) -> OwnedRecord {
        OwnedRecord { meta: self.meta, key: self.key.to_vec(), payload: self.payload.to_vec() }
    }
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

/// How long a record is expected to live: records of one lane share segments, so that they die
/// together.
///
/// `Engine::release` tells the lane that suits a key's next record. Large records have segments of
/// their own whatever lane they are given, and so have records that a gc run keeps.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Lane {
    /// Values demoted from RAM of which nothing is known, or which change seldom.
    #[default]
    Demote,
    /// Values that change now and then.
    MidLived,
    /// Values that change often, or have a short time to live.
    ShortLived,
}

/// Bytes that a record takes on flash, header and rounding to 16 bytes included.
pub const fn record_size(key_len: usize, payload_len: usize) -> usize {
    (RECORD_HEADER_BYTES + key_len + payload_len).next_multiple_of(RECORD_ALIGN)
}

/// Where a record is written: what its checksum starts from.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) at: Location,
    /// Of the segment.
    pub(crate) generation: u64,
}

impl Place {
    /// 32 bits that differ between places: the upper half of a product with the golden ratio
    /// (Knuth, "The Art of Computer Programming", 6.4).
    fn mark(self) -> u32 {
        let (start, count) = (self.generation >> 32, self.generation & u64::from(u32::MAX));
        let mixed = self.at.units() ^ count.rotate_right(24) ^ start.wrapping_mul(START_FACTOR);
        (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }
}

/// A record's header, as read and found plausible. Only the checksum says that it is right.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) meta: RecordMeta,
    pub(crate) sequence: u64,
    pub(crate) key_len: usize,
    pub(crate) payload_len: usize,
    checksum: u32,
}

impl Header {
    pub(crate) fn record_size(&self) -> usize {
        record_size(self.key_len, self.payload_len)
    }

    /// Where the key lies in the record.
    pub(crate) fn key(&self) -> Range<usize> {
        RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + self.key_len
    }

    /// Where the payload lies in the record.
    pub(crate) fn payload(&self) -> Range<usize> {
        let start = RECORD_HEADER_BYTES + self.key_len;
        start..start + self.payload_len
    }

    /// Bytes without the padding.
    pub(crate) fn bytes_len(&self) -> usize {
        RECORD_HEADER_BYTES + self.key_len + self.payload_len
    }

    /// Reads a header. Errors: what cannot be.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(bytes) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err("header cut off");
        };
        let word = |offset: usize| {
            u32::from_le_bytes([
                bytes[offset],
                bytes[offset + 1],
                bytes[offset + 2],
                bytes[offset + 3],
            ])
        };
        if bytes[4] != RECORD_MAGIC {
            return Err("no record here");
        }
        let slot_and_flags = u16::from_le_bytes([bytes[6], bytes[7]]);
        if slot_and_flags & !(SLOT_MASK | COMPRESSED) != 0 {
            return Err("unknown flags");
        }
        let (key_len, payload_len) = (word(8) as usize, word(12) as usize);
        if key_len.saturating_add(payload_len) > RECORD_BYTES_MAX {
            return Err("length beyond the limit");
        }
        let long = |offset: usize| u64::from(word(offset)) | u64::from(word(offset + 4)) << 32;
        let meta = RecordMeta {
            slot: slot_and_flags & SLOT_MASK,
            db: bytes[31],
            kind: bytes[5],
            compressed: slot_and_flags & COMPRESSED != 0,
            expire_at_ms: long(16) as i64,
        };
        let sequence = long(24) & ((1 << SEQUENCE_BITS) - 1);
        Ok(Self { meta, sequence, key_len, payload_len, checksum: word(0) })
    }
}

/// The header's bytes, without the checksum.
fn encode_header(
    meta: RecordMeta,
    (key_len, payload_len): (usize, usize),
    sequence: u64,
) -> [u8; RECORD_HEADER_BYTES] {
    assert!(meta.slot <= SLOT_MASK, "slots have 14 bits");
    assert!(key_len + payload_len <= RECORD_BYTES_MAX, "the caller bounds records");
    debug_assert!(sequence < 1 << SEQUENCE_BITS);
    let flags = if meta.compressed { COMPRESSED } else { 0 };
    let mut bytes = [0; RECORD_HEADER_BYTES];
    bytes[4] = RECORD_MAGIC;
    bytes[5] = meta.kind;
    bytes[6..8].copy_from_slice(&(meta.slot | flags).to_le_bytes());
    bytes[8..12].copy_from_slice(&(key_len as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&(payload_len as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&meta.expire_at_ms.to_le_bytes());
    bytes[24..32].copy_from_slice(&sequence.to_le_bytes());
    bytes[31] = meta.db;
    bytes
}

/// A running CRC32C.
fn digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc32Iscsi)
}

/// The header of a record whose key and payload come in pieces.
pub(crate) struct HeaderBytes {
    bytes: [u8; RECORD_HEADER_BYTES],
    digest: Digest,
    mark: u32,
}

impl HeaderBytes {
    pub(crate) fn new(
        meta: RecordMeta,
        lengths: (usize, usize),
        sequence: u64,
        place: Place,
    ) -> Self {
        let bytes = encode_header(meta, lengths, sequence);
        let mut digest = digest();
        digest.update(&bytes[CHECKSUMMED_FROM..]);
        Self { bytes, digest, mark: place.mark() }
    }

    /// Adds bytes of the key and then of the payload, in order.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The header, after all bytes were added.
    pub(crate) fn finish(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = self.bytes;
        let checksum = self.digest.finalize() as u32 ^ self.mark;
        bytes[..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// Writes a record to the start of `target`, padding included.
///
/// Shape: `target` is at least `record_size` long.
pub(crate) fn encode(record: &Record<'_>, sequence: u64, place: Place, target: &mut [u8]) {
    let lengths = (record.key.len(), record.payload.len());
    let size = record_size(lengths.0, lengths.1);
    let key_end = RECORD_HEADER_BYTES + lengths.0;
    let end = key_end + lengths.1;
    target[..RECORD_HEADER_BYTES].copy_from_slice(&encode_header(record.meta, lengths, sequence));
    target[RECORD_HEADER_BYTES..key_end].copy_from_slice(record.key);
    target[key_end..end].copy_from_slice(record.payload);
    target[end..size].fill(0);
    let checksum = crc32_iscsi(&target[CHECKSUMMED_FROM..end]) ^ place.mark();
    target[..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that `bytes` begin with the record of that place. Errors: what is wrong.
pub(crate) fn verify(bytes: &[u8], place: Place) -> Result<Header, &'static str> {
    let header = Header::decode(bytes)?;
    if bytes.len() < header.record_size() {
        return Err("record cut off");
    }
    let checksummed = &bytes[CHECKSUMMED_FROM..header.bytes_len()];
    if crc32_iscsi(checksummed) ^ place.mark() != header.checksum {
        return Err("checksum");
    }
    Ok(header)
}

/// The check of a record that comes in pieces.
pub(crate) struct PieceChecker {
    header: Header,
    digest: Digest,
    mark: u32,
}

impl PieceChecker {
    /// Begins with the record's first bytes, the header at least.
    pub(crate) fn new(bytes: &[u8], place: Place) -> Result<Self, &'static str> {
        let header = Header::decode(bytes)?;
        let mut digest = digest();
        digest.update(&bytes[CHECKSUMMED_FROM..RECORD_HEADER_BYTES]);
        Ok(Self { header, digest, mark: place.mark() })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Adds bytes of the key and then of the payload, in order.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// Errors: when what was added is not the record.
    pub(crate) fn finish(&self) -> Result<(), &'static str> {
        let checksum = self.digest.finalize() as u32 ^ self.mark;
        if checksum == self.header.checksum { Ok(()) } else { Err("checksum") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(units: u64, generation: u64) -> Place {
        Place { at: Location::from_units(units), generation }
    }

    #[test]
    fn the_format_does_not_change() {
        let meta = RecordMeta {
            slot: 0x1234,
            db: 3,
            kind: 7,
            compressed: true,
            expire_at_ms: 0x0102_0304,
        };
        let record = Record { meta, key: b"key", payload: b"payload" };
        let mut bytes = [0xFF; 48];
        encode(&record, 0x0A0B0C, place(5, 2), &mut bytes);
        let golden: [u8; 48] = [
            0x0A, 0x71, 0x43, 0x16, 0xA1, 7, 0x34, 0x52, 3, 0, 0, 0, 7, 0, 0, 0, 4, 3, 2, 1, 0, 0,
            0, 0, 0x0C, 0x0B, 0x0A, 0, 0, 0, 0, 3, b'k', b'e', b'y', b'p', b'a', b'y', b'l', b'o',
            b'a', b'd', 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, golden);
    }

    #[test]
    fn a_record_is_valid_in_its_place_only() {
        let record = Record { meta: RecordMeta::default(), key: b"k", payload: b"v" };
        let mut bytes = [0; 48];
        encode(&record, 1, place(100, 7), &mut bytes);
        assert!(verify(&bytes, place(100, 7)).is_ok());
        assert_eq!(verify(&bytes, place(101, 7)), Err("checksum"));
        assert_eq!(verify(&bytes, place(100, 8)), Err("checksum"));
        for start in [1, 4_096, u64::from(u32::MAX)] {
            assert_eq!(verify(&bytes, place(100, start << 32 | 7)), Err("checksum"), "{start}");
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_verified_and_a_flipped_bit_is_not(
            key in prop::collection::vec(any::<u8>(), 0..100),
            payload in prop::collection::vec(any::<u8>(), 0..1000),
            slot in 0u16..16_384, db: u8, kind: u8, compressed: bool, expire_at_ms: i64,
            units in 0u64..1 << 40, generation: u64, flip: prop::sample::Index,
        ) {
            let meta = RecordMeta { slot, db, kind, compressed, expire_at_ms };
            let record = Record { meta, key: &key, payload: &payload };
            let mut bytes = vec![0; record_size(key.len(), payload.len())];
            encode(&record, 99, place(units, generation), &mut bytes);
            let header = verify(&bytes, place(units, generation)).expect("valid");
            prop_assert_eq!(header.meta, meta);
            prop_assert_eq!(header.sequence, 99);
            prop_assert_eq!(&bytes[header.key()], &key[..]);
            prop_assert_eq!(&bytes[header.payload()], &payload[..]);
            let bit = flip.index(header.bytes_len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify(&bytes, place(units, generation)).is_err());
        }

        #[test]
        fn pieces_check_as_the_whole_does(
            payload in prop::collection::vec(any::<u8>(), 0..1000),
            cut: prop::sample::Index,
        ) {
            let meta = RecordMeta::default();
            let record = Record { meta, key: b"some key", payload: &payload };
            let mut bytes = vec![0; record_size(8, payload.len())];
            encode(&record, 1, place(1, 1), &mut bytes);
            let mut checker = PieceChecker::new(&bytes, place(1, 1)).expect("header");
            let body = &bytes[RECORD_HEADER_BYTES..checker.header().bytes_len()];
            let (front, back) = body.split_at(cut.index(body.len()));
            checker.add(front);
            prop_assert_eq!(checker.finish().is_ok(), back.is_empty());
            checker.add(back);
            prop_assert!(checker.finish().is_ok());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = verify(&bytes, place(0, 0));
        }
    }
}
