//! The bytes of a record, little endian, without padding:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 4     | CRC32C of bytes 4 to the end, XOR the mark of its place |
//! | 4      | 4     | bits 0 to 29: bytes of the payload, at least 1; bit 30: it goes on in the next record; bit 31: a mark |
//! | 8      | ...   | payload; of a mark: the position, 8 bytes, up to which the journal was durable |
//!
//! The place, which is the run and the position at which the record begins, is a part of the checksum though it is not
//! stored: bytes that were valid elsewhere or in an earlier run must not pass. It comes in by XOR, so that most of the
//! checksum is worked out before the place is known.

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes in front of the payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 8;

/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = RECORD_HEADER_BYTES + 8;

const CHECKSUMMED_FROM: usize = 4;
const LENGTH_BITS: u32 = (1 << 30) - 1;
const GOES_ON: u32 = 1 << 30;
const MARK: u32 = 1 << 31;
const MARK_WORD: u32 = MARK | 8;

/// The longest payload of one record.
pub(crate) const PAYLOAD_BYTES_MAX: usize = LENGTH_BITS as usize;

/// Where a record begins, and in which run: what its checksum is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) run: u64,
    pub(crate) position: u64,
}

impl Place {
    /// 32 bits that differ between places.
    fn mark(self) -> u32 {
        (stdx::mix(self.run ^ self.position) >> 32) as u32
    }
}

/// Whether the record is all of what was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The rest is in the next record.
    GoesOn,
    /// It ends here.
    Last,
}

/// The header of a record whose place is not known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unplaced {
    checksum: u32,
    word: u32,
}

impl Unplaced {
    /// Cost: a pass over the payload.
    pub(crate) fn new(payload: &[&[u8]], part: Part) -> Self {
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        assert!(bytes > 0, "a record has a payload");
        assert!(bytes <= PAYLOAD_BYTES_MAX);
        let flag = if part == Part::GoesOn { GOES_ON } else { 0 };
        Self::with_word(bytes as u32 | flag, payload)
    }

    fn with_word(word: u32, payload: &[&[u8]]) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&word.to_le_bytes());
        for piece in payload {
            digest.update(piece);
        }
        Self { checksum: digest.finalize() as u32, word }
    }

    /// The header's bytes in a place.
    pub(crate) fn place(self, place: Place) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let checksum = self.checksum ^ place.mark();
        bytes[..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes[CHECKSUMMED_FROM..].copy_from_slice(&self.word.to_le_bytes());
        bytes
    }
}

/// A mark: up to `durable` the journal was durable when it was made.
pub(crate) fn encode_mark(durable: u64, place: Place) -> [u8; MARK_BYTES] {
    let payload = durable.to_le_bytes();
    let header = Unplaced::with_word(MARK_WORD, &[&payload]).place(place);
    let mut bytes = [0; MARK_BYTES];
    bytes[..RECORD_HEADER_BYTES].copy_from_slice(&header);
    bytes[RECORD_HEADER_BYTES..].copy_from_slice(&payload);
    bytes
}

/// What a header claims the record to be. Only the checksum says that it is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Mark,
    Payload { bytes: usize, part: Part },
}

impl Claim {
    /// Errors: what no record's header is.
    pub(crate) fn decode(header: &[u8; RECORD_HEADER_BYTES]) -> Result<Self, &'static str> {
        let word = word_of(header);
        if word == MARK_WORD {
            return Ok(Self::Mark);
        }
        let part = if word & GOES_ON != 0 { Part::GoesOn } else { Part::Last };
        match word & LENGTH_BITS {
            _ if word & MARK != 0 => Err("mark of an impossible length"),
            0 => Err("record without a payload"),
            bytes => Ok(Self::Payload { bytes: bytes as usize, part }),
        }
    }

    /// Bytes of the whole record.
    pub(crate) fn record_bytes(self) -> usize {
        match self {
            Self::Mark => MARK_BYTES,
            Self::Payload { bytes, .. } => RECORD_HEADER_BYTES + bytes,
        }
    }
}

/// Whether `record`, which is as long as its header claims, is the one of that place.
pub(crate) fn is_valid(record: &[u8], place: Place) -> bool {
    let Some((header, _)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else { return false };
    let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    crc_fast::crc32_iscsi(&record[CHECKSUMMED_FROM..]) ^ place.mark() == stored
}

/// What the mark at the start of `bytes` claims to be durable, if there is one of that place.
pub(crate) fn decode_mark(bytes: &[u8], place: Place) -> Option<u64> {
    let mark = bytes.first_chunk::<MARK_BYTES>()?;
    let (header, payload) = mark.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let durable = u64::from_le_bytes(payload.try_into().ok()?);
    (word_of(header) == MARK_WORD && is_valid(mark, place)).then_some(durable)
}

fn word_of(header: &[u8; RECORD_HEADER_BYTES]) -> u32 {
    u32::from_le_bytes([header[4], header[5], header[6], header[7]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: Place = Place { run: 7, position: 1000 };

    fn encode(payload: &[u8], part: Part, place: Place) -> Vec<u8> {
        [&Unplaced::new(&[payload], part).place(place)[..], payload].concat()
    }

    #[test]
    fn the_format_does_not_change() {
        assert_eq!(encode(b"payload", Part::Last, PLACE), b"\x65\x69\xED\x8D\x07\0\0\0payload");
        assert_eq!(encode(b"part", Part::GoesOn, PLACE), b"\x04\xEE\x7D\x20\x04\0\0\x40part");
        assert_eq!(
            encode_mark(0x0102, PLACE),
            *b"\x95\x31\x91\x7B\x08\0\0\x80\x02\x01\0\0\0\0\0\0"
        );
    }

    #[test]
    fn a_record_is_valid_in_its_place_only() {
        let record = encode(b"payload", Part::Last, PLACE);
        assert!(is_valid(&record, PLACE));
        assert!(!is_valid(&record, Place { position: 1001, ..PLACE }));
        assert!(!is_valid(&record, Place { run: 8, ..PLACE }));
        let mark = encode_mark(99, PLACE);
        assert_eq!(decode_mark(&mark, PLACE), Some(99));
        assert_eq!(decode_mark(&mark, Place { position: 1001, ..PLACE }), None);
        assert_eq!(decode_mark(&mark[..15], PLACE), None);
    }

    #[test]
    fn zeros_are_no_record() {
        assert!(Claim::decode(&[0; 8]).is_err());
    }

    proptest! {
        #[test]
        fn a_record_comes_back_and_a_flipped_bit_is_seen(
            payload in prop::collection::vec(any::<u8>(), 1..300),
            cut: prop::sample::Index, flip: prop::sample::Index,
            run: u64, position: u64, goes_on: bool,
        ) {
            let part = if goes_on { Part::GoesOn } else { Part::Last };
            let place = Place { run, position };
            let mut record = encode(&payload, part, place);
            let (front, back) = payload.split_at(cut.index(payload.len()));
            let pieces = Unplaced::new(&[front, back], part).place(place);
            prop_assert_eq!(&record[..8], &pieces[..]);
            let claim = Claim::decode(&pieces);
            prop_assert_eq!(claim, Ok(Claim::Payload { bytes: payload.len(), part }));
            prop_assert!(is_valid(&record, place));
            let bit = flip.index(record.len() * 8);
            record[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_valid(&record, place));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode_mark(&bytes, PLACE);
            let _ = is_valid(&bytes, PLACE);
            if let Some(header) = bytes.first_chunk() {
                let _ = Claim::decode(header);
            }
        }
    }
}
