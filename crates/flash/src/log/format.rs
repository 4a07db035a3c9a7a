//! The bytes of a segment around its records, and the walk over the records of a block.
//!
//! ```text
//! segment  | header | block 0 ............... | block 1 ... | ... unused ... | footer |
//!          0        64                                               size - 4096   size
//! block    | record | record | ... | zeros up to a sector |
//! ```
//! A block is what one write brought to flash. Blocks begin and end on sectors and records do not
//! cross them, so a block can be read and checked alone. The header shares the first block's write.
//! The footer is written when the segment is full; it lists the blocks, so that a reader needs no
//! guess where records are, and it says how many records there must be.
//!
//! Header, 64 bytes, little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic "KelvSeg1" |
//! | 8      | 4     | CRC32C of bytes 12 to 64 |
//! | 12     | 8     | generation: the number of the start in the upper half; the lower counts how often the segment was opened |
//! | 20     | 4     | segment |
//! | 24     | 4     | the first segment of the record that goes on here, or the segment itself |
//! | 28     | 4     | the number of this part of that record, or 0 |
//! | 32     | 32    | zero |
//!
//! Footer, 4,096 bytes, little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic "KelvFtr1" |
//! | 8      | 4     | CRC32C of bytes 12 to the end of the last block entry |
//! | 12     | 8     | generation |
//! | 20     | 4     | segment |
//! | 24     | 4     | blocks |
//! | 28     | 4     | records |
//! | 32     | 8     | lowest sequence number |
//! | 40     | 8     | highest sequence number |
//! | 48     | 8 each | blocks: offset in the segment, bytes; both multiples of the sector |

use crate::record::Header;

/// Bytes of the header in front of the first record.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;

/// Bytes at the end of a segment that no record uses.
pub(crate) const FOOTER_BYTES: usize = 4096;

/// Blocks that a footer can list; a segment with that many is full.
pub(crate) const BLOCKS_MAX: usize = (FOOTER_BYTES - FOOTER_ENTRIES_AT) / FOOTER_ENTRY_BYTES;

const HEADER_MAGIC: &[u8; 8] = b"KelvSeg1";
const FOOTER_MAGIC: &[u8; 8] = b"KelvFtr1";
const FOOTER_ENTRIES_AT: usize = 48;
const FOOTER_ENTRY_BYTES: usize = 8;
const CHECKSUM_AT: usize = 8;
const CHECKSUMMED_FROM: usize = 12;

/// Which segment some bytes belong to.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct SegmentId {
    pub(crate) segment: u32,
    pub(crate) generation: u64,
}

/// Which part of a record a segment begins with, when the record is larger than a segment.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    /// The first segment of the record; the segment itself for all others.
    pub(crate) first: u32,
    /// 0 for the first.
    pub(crate) number: u32,
}

/// Writes a segment header to the start of `target`.
pub(crate) fn encode_segment_header(id: SegmentId, part: Part, target: &mut [u8]) {
    let target = &mut target[..SEGMENT_HEADER_BYTES];
    target.fill(0);
    target[..8].copy_from_slice(HEADER_MAGIC);
    put_long(target, 12, id.generation);
    put(target, 20, id.segment);
    put(target, 24, part.first);
    put(target, 28, part.number);
    let checksum = crc_fast::crc32_iscsi(&target[CHECKSUMMED_FROM..]);
    put(target, CHECKSUM_AT, checksum);
}

/// Reads a segment header. Errors: what is wrong with it.
pub(crate) fn decode_segment_header(bytes: &[u8]) -> Result<(SegmentId, Part), &'static str> {
    let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
        return Err("segment header cut off");
    };
    if &bytes[..8] != HEADER_MAGIC {
        return Err("no segment header");
    }
    if crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]) != get(bytes, CHECKSUM_AT) {
        return Err("segment header checksum");
    }
    let id = SegmentId { segment: get(bytes, 20), generation: get_long(bytes, 12) };
    Ok((id, Part { first: get(bytes, 24), number: get(bytes, 28) }))
}

/// A run of records that one write brought to flash.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Block {
    /// Bytes from the start of the segment.
    pub(crate) offset: u32,
    /// Bytes, up to the sector.
    pub(crate) size: u32,
}

impl Block {
    /// Bytes from the start of the block to its first record.
    pub(crate) fn first_record(&self) -> usize {
        if self.offset == 0 { SEGMENT_HEADER_BYTES } else { 0 }
    }
}

/// What a full segment says of itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Footer {
    pub(crate) blocks: Vec<Block>,
    pub(crate) records: u32,
    pub(crate) sequence_min: u64,
    pub(crate) sequence_max: u64,
}

impl Footer {
    /// Counts a record.
    pub(crate) fn add_record(&mut self, sequence: u64) {
        if self.records == 0 {
            self.sequence_min = sequence;
        }
        self.records += 1;
        self.sequence_max = self.sequence_max.max(sequence);
    }

    /// Writes the footer to the start of `target`.
    pub(crate) fn encode(&self, id: SegmentId, target: &mut [u8]) {
        assert!(self.blocks.len() <= BLOCKS_MAX);
        let target = &mut target[..FOOTER_BYTES];
        target.fill(0);
        target[..8].copy_from_slice(FOOTER_MAGIC);
        put_long(target, 12, id.generation);
        put(target, 20, id.segment);
        put(target, 24, self.blocks.len() as u32);
        put(target, 28, self.records);
        put_long(target, 32, self.sequence_min);
        put_long(target, 40, self.sequence_max);
        for (index, block) in self.blocks.iter().enumerate() {
            let at = FOOTER_ENTRIES_AT + index * FOOTER_ENTRY_BYTES;
            put(target, at, block.offset);
            put(target, at + 4, block.size);
        }
        let end = FOOTER_ENTRIES_AT + self.blocks.len() * FOOTER_ENTRY_BYTES;
        let checksum = crc_fast::crc32_iscsi(&target[CHECKSUMMED_FROM..end]);
        put(target, CHECKSUM_AT, checksum);
    }

    /// Reads the footer of a segment of `segment_bytes`. Errors: what is wrong with it.
    pub(crate) fn decode(
        bytes: &[u8],
        id: SegmentId,
        segment_bytes: u64,
    ) -> Result<Self, &'static str> {
        let Some(bytes) = bytes.first_chunk::<FOOTER_BYTES>() else {
            return Err("footer cut off");
        };
        if &bytes[..8] != FOOTER_MAGIC {
            return Err("no footer");
        }
        let count = get(bytes, 24) as usize;
        if count > BLOCKS_MAX {
            return Err("footer lists too many blocks");
        }
        let end = FOOTER_ENTRIES_AT + count * FOOTER_ENTRY_BYTES;
        if crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..end]) != get(bytes, CHECKSUM_AT) {
            return Err("footer checksum");
        }
        if (get_long(bytes, 12), get(bytes, 20)) != (id.generation, id.segment) {
            return Err("footer of another segment or time");
        }
        let block = |index: usize| {
            let at = FOOTER_ENTRIES_AT + index * FOOTER_ENTRY_BYTES;
            Block { offset: get(bytes, at), size: get(bytes, at + 4) }
        };
        let blocks: Vec<Block> = (0..count).map(block).collect();
        let mut free_from = 0;
        for block in &blocks {
            let end = u64::from(block.offset) + u64::from(block.size);
            if u64::from(block.offset) < free_from || end > segment_bytes - FOOTER_BYTES as u64 {
                return Err("footer lists an impossible block");
            }
            free_from = end;
        }
        let (sequence_min, sequence_max) = (get_long(bytes, 32), get_long(bytes, 40));
        Ok(Self { blocks, records: get(bytes, 28), sequence_min, sequence_max })
    }
}

fn put(target: &mut [u8], at: usize, value: u32) {
    target[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_long(target: &mut [u8], at: usize, value: u64) {
    target[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get_long(bytes: &[u8], at: usize) -> u64 {
    u64::from(get(bytes, at)) | u64::from(get(bytes, at + 4)) << 32
}

/// The next record of a block at or after `from`: where it starts, and its header, not yet
/// verified.
///
/// Where no header can be, the walk goes on in steps of the record alignment: behind damage, or up
/// to the end of the block. Only the checksum tells a record from bytes that look like one.
pub(crate) fn next_record(block: &[u8], from: usize) -> Option<(usize, Header)> {
    let step = crate::limits::RECORD_ALIGN;
    (from..block.len()).step_by(step).find_map(|at| {
        let header = Header::decode(&block[at..]).ok()?;
        (header.record_size() <= block.len() - at).then_some((at, header))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: SegmentId = SegmentId { segment: 7, generation: 3 };

    #[test]
    fn a_segment_header_comes_back_and_damage_is_seen() {
        let mut bytes = [0xFF; 80];
        let part = Part { first: 5, number: 2 };
        encode_segment_header(ID, part, &mut bytes);
        assert_eq!(decode_segment_header(&bytes), Ok((ID, part)));
        for byte in 0..SEGMENT_HEADER_BYTES {
            bytes[byte] ^= 1;
            assert!(decode_segment_header(&bytes).is_err(), "byte {byte}");
            bytes[byte] ^= 1;
        }
    }

    #[test]
    fn a_footer_of_another_generation_is_refused() {
        let mut bytes = vec![0; FOOTER_BYTES];
        Footer::default().encode(ID, &mut bytes);
        assert!(Footer::decode(&bytes, ID, 1 << 20).is_ok());
        for generation in [4, 1 << 32 | ID.generation] {
            let other = SegmentId { generation, ..ID };
            assert!(Footer::decode(&bytes, other, 1 << 20).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_footer_comes_back(
            sizes in prop::collection::vec(1u32..100, 0..BLOCKS_MAX),
            flip in 12usize..48,
        ) {
            let mut footer = Footer::default();
            let mut offset = 0;
            for size in sizes {
                footer.blocks.push(Block { offset, size: size * 512 });
                footer.add_record(u64::from(offset) + 9);
                offset += size * 512;
            }
            let segment_bytes = u64::from(offset) + FOOTER_BYTES as u64;
            let mut bytes = vec![0; FOOTER_BYTES];
            footer.encode(ID, &mut bytes);
            prop_assert_eq!(Footer::decode(&bytes, ID, segment_bytes), Ok(footer.clone()));
            if offset > 0 {
                prop_assert!(Footer::decode(&bytes, ID, segment_bytes - 512).is_err());
            }
            bytes[flip] ^= 1;
            prop_assert!(Footer::decode(&bytes, ID, segment_bytes).is_err());
        }

        #[test]
        fn garbage_never_panics(mut bytes in prop::collection::vec(any::<u8>(), FOOTER_BYTES)) {
            let _ = decode_segment_header(&bytes);
            bytes[..8].copy_from_slice(FOOTER_MAGIC);
            let _ = Footer::decode(&bytes, ID, 1 << 20);
            let mut from = 0;
            while let Some((at, header)) = next_record(&bytes, from) {
                from = at + header.record_size();
            }
        }
    }
}
