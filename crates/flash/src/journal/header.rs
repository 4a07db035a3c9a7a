//! The first bytes of a segment, and the manifest, which are alike: 64 bytes, little endian.
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic: "KelvJrnS" of a segment, "KelvJrnM" of the manifest |
//! | 8      | 4     | CRC32C of bytes 12 to 64, whatever the version |
//! | 12     | 4     | version of the format, 1 |
//! | 16     | 8     | journal: drawn when it was made, the same in all its files |
//! | 24     | 8     | run: drawn when it was opened, a part of the checksum of each record; in the manifest the number of the first segment that the snapshot refers to, 0 for none |
//! | 32     | 8     | number of the segment, or of the first one behind the checkpoint |
//! | 40     | 8     | position at which it begins, or that of the checkpoint |
//! | 48     | 4     | life: how often it was begun anew |
//! | 52     | 12    | zero |

use super::Position;

/// Bytes of it.
pub(crate) const HEADER_BYTES: usize = 64;

/// The version that is written, and the one that is read.
pub(crate) const VERSION: u32 = 1;

/// Positions and numbers of segments stay below: no journal gets there, and sums of what is read do not overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;

const LIFE_MAX: u32 = 1 << 31;
const CHECKSUM_AT: usize = 8;
const CHECKSUMMED_FROM: usize = 12;

/// What a header belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Segment,
    Manifest,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Segment => b"KelvJrnS",
            Self::Manifest => b"KelvJrnM",
        }
    }
}

/// What it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) journal: u64,
    pub(crate) run: u64,
    pub(crate) number: u64,
    pub(crate) position: u64,
    pub(crate) life: u32,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    Bad(&'static str),
    Version(u32),
}

impl Header {
    /// Where the segment begins, or the checkpoint is.
    pub(crate) fn position(&self) -> Position {
        Position(self.position)
    }

    /// Of a manifest: the number of the first segment that stays with the checkpoint.
    pub(crate) fn first_kept(&self) -> u64 {
        match self.run {
            0 => self.number,
            first => first,
        }
    }

    pub(crate) fn encode(&self, kind: Kind) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(kind.magic());
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.journal.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.run.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.position.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.life.to_le_bytes());
        let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]);
        bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], kind: Kind) -> Result<Self, NoHeader> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        if &bytes[..8] != kind.magic() {
            return Err(NoHeader::Bad("no header"));
        }
        if crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]) != word(CHECKSUM_AT) {
            return Err(NoHeader::Bad("header checksum"));
        }
        if word(12) != VERSION {
            return Err(NoHeader::Version(word(12)));
        }
        let (journal, run, number, position) = (long(16), long(24), long(32), long(40));
        let life = word(48);
        // A manifest keeps segments in front of the checkpoint alone.
        let is_kept_behind = kind == Kind::Manifest && run > number;
        if number > NUMBER_MAX || position > NUMBER_MAX || life > LIFE_MAX || is_kept_behind {
            return Err(NoHeader::Bad("impossible header"));
        }
        Ok(Self { journal, run, number, position, life })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        journal: 0x0102_0304_0506_0708,
        run: 0x1112_1314_1516_1718,
        number: 5,
        position: 0x0022_2324_2526_2728,
        life: 3,
    };

    #[test]
    fn the_format_does_not_change() {
        let mut golden =
            b"KelvJrnSHR\x2D\x5D\x01\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x18\x17\x16\x15\
            \x14\x13\x12\x11\x05\0\0\0\0\0\0\0\x28\x27\x26\x25\x24\x23\x22\0\x03\0\0\0"
                .to_vec();
        golden.resize(HEADER_BYTES, 0);
        assert_eq!(HEADER.encode(Kind::Segment).to_vec(), golden);
    }

    #[test]
    fn a_header_comes_back_and_damage_is_seen() {
        for kind in [Kind::Segment, Kind::Manifest] {
            let header = Header { run: 4, ..HEADER };
            let mut bytes = header.encode(kind);
            assert_eq!(Header::decode(&bytes, kind), Ok(header));
            for byte in 0..HEADER_BYTES {
                bytes[byte] ^= 1;
                assert!(Header::decode(&bytes, kind).is_err(), "byte {byte}");
                bytes[byte] ^= 1;
            }
        }
        let manifest = HEADER.encode(Kind::Manifest);
        assert_eq!(Header::decode(&manifest, Kind::Segment), Err(NoHeader::Bad("no header")));
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let headers = [
            Header { number: NUMBER_MAX + 1, ..HEADER },
            Header { position: u64::MAX, ..HEADER },
            Header { life: u32::MAX, ..HEADER },
        ];
        let kept_behind = Header { run: 6, ..HEADER };
        let segments = headers.map(|header| (header, Kind::Segment));
        for (header, kind) in segments.into_iter().chain([(kept_behind, Kind::Manifest)]) {
            let decoded = Header::decode(&header.encode(kind), kind);
            assert_eq!(decoded, Err(NoHeader::Bad("impossible header")));
        }
    }

    #[test]
    fn a_version_to_come_is_told_from_damage() {
        let mut bytes = HEADER.encode(Kind::Segment);
        bytes[12] = 2;
        assert_eq!(Header::decode(&bytes, Kind::Segment), Err(NoHeader::Bad("header checksum")));
        let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]);
        bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes, Kind::Segment), Err(NoHeader::Version(2)));
    }
}
