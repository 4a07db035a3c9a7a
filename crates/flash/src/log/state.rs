//! What a checkpoint says of the log, so that a start finds its records where they are. Little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic "KelvFlSt" |
//! | 8      | 4     | CRC32C of bytes 12 to the end |
//! | 12     | 4     | version, 1: of these bytes, of segments and records, and of the values in these |
//! | 16     | 8     | flash: drawn when it was first kept, in the labels of all its files |
//! | 24     | 8     | number of the checkpoint |
//! | 32     | 8     | the next sequence number |
//! | 40     | 8     | bytes of a segment |
//! | 48     | 4     | bytes of a sector |
//! | 52     | 4     | segments |
//! | 56     | 64    | what the hashes in values are keyed with: 8 numbers |
//! | 120    |       | each segment, in the order of their indexes |
//!
//! A segment is 24 bytes, and its blocks behind it if they are listed:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 4     | generation |
//! | 4      | 4     | its place in its file, in segments |
//! | 8      | 2     | its file |
//! | 10     | 1     | 0 unused with old data, 1 unused and never written, 2 unused without space, 3 out of use with old data, 4 and 5 likewise, 6 without a file; 7 with records and a footer, 8 with records and a list |
//! | 11     | 1     | stream |
//! | 12     | 4     | bytes up to the end of the last block |
//! | 16     | 4     | bytes of records that the checkpoint refers to; 0 up to 6 |
//! | 20     | 4     | blocks that follow, 0 up to 7: offset and bytes of each, 4 bytes each |

use stdx::HashSecrets;

use super::format::{BLOCKS_MAX, Block};
use super::lifetime::STREAMS;
use super::space::Blocks;
use super::table::Home;
use crate::device::FileIndex;
use crate::limits::{PATHS_MAX, RECORD_ALIGN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MAX};
use crate::location::Location;

/// The version that is written, and the one that is read.
const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"KelvFlSt";
const CHECKSUM_AT: usize = 8;
const CHECKSUMMED_FROM: usize = 12;
const HEAD_BYTES: usize = 120;
const SEGMENT_ENTRY_BYTES: usize = 24;
const BLOCK_ENTRY_BYTES: usize = 8;

/// Sectors of 512 bytes to a page.
const SECTOR_BYTES_MAX: u32 = 4096;

/// The log as a checkpoint refers to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LogState {
    pub(crate) flash: u64,
    pub(crate) number: u64,
    pub(crate) sequence: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) sector_bytes: u32,
    pub(crate) secrets: HashSecrets,
    pub(crate) segments: Vec<SegmentState>,
}

/// A segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SegmentState {
    pub(crate) home: Home,
    pub(crate) generation: u32,
    pub(crate) holds: Holds,
}

/// What a segment holds that the checkpoint needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Holds {
    /// Nothing; it can be written.
    Unused(Blocks),
    /// Nothing; it does not count.
    Retired(Blocks),
    /// Nothing, and its file is gone.
    Homeless,
    /// Records.
    Records(Referred),
}

/// The records of a segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Referred {
    /// A number of [`STREAMS`].
    pub(crate) stream: u8,
    pub(crate) used_bytes: u32,
    pub(crate) referred_bytes: u32,
    /// Its blocks, if no footer lists them.
    pub(crate) blocks: Option<Vec<Block>>,
}

fn blocks_byte(blocks: Blocks) -> u8 {
    match blocks {
        Blocks::Written => 0,
        Blocks::Reserved => 1,
        Blocks::Punched => 2,
    }
}

fn blocks_of(byte: u8) -> Option<Blocks> {
    [Blocks::Written, Blocks::Reserved, Blocks::Punched].get(usize::from(byte)).copied()
}

const RETIRED: u8 = 3;
const HOMELESS: u8 = 6;
const WITH_FOOTER: u8 = 7;
const WITH_LIST: u8 = 8;

impl LogState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.segments.len() * SEGMENT_ENTRY_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for long in [self.flash, self.number, self.sequence, self.segment_bytes] {
            bytes.extend_from_slice(&long.to_le_bytes());
        }
        bytes.extend_from_slice(&self.sector_bytes.to_le_bytes());
        bytes.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.secrets.seed.to_le_bytes());
        for secret in self.secrets.secrets {
            bytes.extend_from_slice(&secret.to_le_bytes());
        }
        self.segments.iter().for_each(|segment| segment.encode(&mut bytes));
        let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]);
        bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Errors: what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<LogState, String> {
        let damaged = |what: &str| Err(what.to_owned());
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return damaged("it is cut off") };
        if &head[..8] != MAGIC {
            return damaged("it does not begin as one");
        }
        let mut head = Reader(&head[CHECKSUM_AT..]);
        let (checksum, version) = (head.word(), head.word());
        if crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]) != checksum {
            return damaged("its checksum does not match");
        }
        if version != VERSION {
            return Err(format!("it is of version {version}, and this Kelvin reads {VERSION}"));
        }
        let [flash, number, sequence, segment_bytes] = std::array::from_fn(|_| head.long());
        let (sector_bytes, count) = (head.word(), head.word() as usize);
        let secrets =
            HashSecrets { seed: head.long(), secrets: std::array::from_fn(|_| head.long()) };
        let is_geometry = segment_bytes.is_power_of_two()
            && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
            && sector_bytes.is_power_of_two()
            && (512..=SECTOR_BYTES_MAX).contains(&sector_bytes)
            && count <= SEGMENTS_MAX
            && count as u64 * segment_bytes <= (RECORD_ALIGN as u64) << Location::BITS;
        if !is_geometry {
            return damaged("it has impossible sizes");
        }
        let mut rest = Reader(&bytes[HEAD_BYTES..]);
        let bounds = Bounds { segment_bytes: segment_bytes as u32, sector_bytes };
        let segments: Option<Vec<SegmentState>> =
            (0..count).map(|_| SegmentState::decode(&mut rest, bounds)).collect();
        let Some(segments) = segments.filter(|_| rest.0.is_empty()) else {
            return damaged("it has an impossible segment");
        };
        let mut homes: Vec<Home> = segments
            .iter()
            .filter(|one| one.holds != Holds::Homeless)
            .map(|one| one.home)
            .collect();
        homes.sort_unstable_by_key(|home| (home.file.0, home.number));
        if homes.windows(2).any(|two| two[0] == two[1]) {
            return damaged("two segments are in one place");
        }
        Ok(LogState { flash, number, sequence, segment_bytes, sector_bytes, secrets, segments })
    }
}

#[derive(Copy, Clone)]
struct Bounds {
    segment_bytes: u32,
    sector_bytes: u32,
}

impl SegmentState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let none = Referred { stream: 0, used_bytes: 0, referred_bytes: 0, blocks: None };
        let (kind, referred) = match &self.holds {
            Holds::Unused(blocks) => (blocks_byte(*blocks), &none),
            Holds::Retired(blocks) => (RETIRED + blocks_byte(*blocks), &none),
            Holds::Homeless => (HOMELESS, &none),
            Holds::Records(referred) if referred.blocks.is_none() => (WITH_FOOTER, referred),
            Holds::Records(referred) => (WITH_LIST, referred),
        };
        let blocks = referred.blocks.as_deref().unwrap_or_default();
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.home.number.to_le_bytes());
        bytes.extend_from_slice(&self.home.file.0.to_le_bytes());
        bytes.extend_from_slice(&[kind, referred.stream]);
        for word in [referred.used_bytes, referred.referred_bytes, blocks.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for block in blocks {
            bytes.extend_from_slice(&block.offset.to_le_bytes());
            bytes.extend_from_slice(&block.size.to_le_bytes());
        }
    }

    fn decode(bytes: &mut Reader<'_>, bounds: Bounds) -> Option<SegmentState> {
        let mut entry = Reader(bytes.take(SEGMENT_ENTRY_BYTES)?);
        let (generation, number) = (entry.word(), entry.word());
        let (file, kind, stream) = (entry.half(), entry.byte(), entry.byte());
        let (used_bytes, referred_bytes, count) = (entry.word(), entry.word(), entry.word());
        let home = Home { file: FileIndex(file), number };
        let is_empty = (used_bytes | referred_bytes | count, stream) == (0, 0);
        if usize::from(file) >= PATHS_MAX
            || number as usize >= SEGMENTS_MAX
            || kind <= HOMELESS && !is_empty
        {
            return None;
        }
        let holds = match kind {
            0..RETIRED => Holds::Unused(blocks_of(kind)?),
            RETIRED..HOMELESS => Holds::Retired(blocks_of(kind - RETIRED)?),
            HOMELESS => Holds::Homeless,
            WITH_FOOTER | WITH_LIST => {
                let listed = Reader(bytes.take(BLOCK_ENTRY_BYTES.checked_mul(count as usize)?)?);
                let blocks = read_blocks(listed, bounds)?;
                let is_possible = usize::from(stream) < STREAMS.len()
                    && used_bytes <= bounds.segment_bytes
                    && (1..=bounds.segment_bytes).contains(&referred_bytes)
                    && (referred_bytes as usize).is_multiple_of(RECORD_ALIGN)
                    && count as usize <= BLOCKS_MAX
                    && (kind == WITH_LIST || count == 0);
                let blocks = (kind == WITH_LIST).then_some(blocks);
                let referred = Referred { stream, used_bytes, referred_bytes, blocks };
                is_possible.then_some(Holds::Records(referred))?
            }
            _ => return None,
        };
        Some(SegmentState { home, generation, holds })
    }
}

/// None: one is where none can be.
fn read_blocks(mut bytes: Reader<'_>, bounds: Bounds) -> Option<Vec<Block>> {
    let (mut blocks, mut end) = (Vec::new(), 0);
    while !bytes.0.is_empty() {
        let block = Block { offset: bytes.word(), size: bytes.word() };
        let next = block.offset.checked_add(block.size)?;
        let is_aligned = (block.offset | block.size).is_multiple_of(bounds.sector_bytes);
        let is_possible = block.offset >= end && block.size > 0 && next <= bounds.segment_bytes;
        if !is_aligned || !is_possible {
            return None;
        }
        blocks.push(block);
        end = next;
    }
    Some(blocks)
}

/// Bytes that are read from the front. Whoever reads has looked whether there are enough.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let front = self.0.first_chunk::<BYTES>().copied().unwrap_or([0; BYTES]);
        self.0 = self.0.get(BYTES..).unwrap_or_default();
        front
    }

    fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(number: u32, holds: Holds) -> SegmentState {
        let home = Home { file: FileIndex(1), number };
        SegmentState { home, generation: 3 << 20 | number, holds }
    }

    fn state() -> LogState {
        let blocks = vec![Block { offset: 0, size: 1024 }, Block { offset: 1024, size: 512 }];
        let listed =
            Referred { stream: 5, used_bytes: 1536, referred_bytes: 48, blocks: Some(blocks) };
        let footer = Referred { stream: 0, used_bytes: 4096, referred_bytes: 4096, blocks: None };
        let holds = [
            Holds::Unused(Blocks::Written),
            Holds::Unused(Blocks::Reserved),
            Holds::Unused(Blocks::Punched),
            Holds::Retired(Blocks::Written),
            Holds::Retired(Blocks::Punched),
            Holds::Homeless,
            Holds::Records(footer),
            Holds::Records(listed),
        ];
        LogState {
            flash: 0x0102_0304_0506_0708,
            number: 9,
            sequence: 77,
            segment_bytes: 64 << 10,
            sector_bytes: 512,
            secrets: HashSecrets { seed: 1, secrets: [2, 3, 4, 5, 6, 7, 8] },
            segments: (0..).zip(holds).map(|(number, holds)| segment(number, holds)).collect(),
        }
    }

    /// Gives bytes the checksum that they should have.
    fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.len() > CHECKSUMMED_FROM {
            let checksum = crc_fast::crc32_iscsi(&bytes[CHECKSUMMED_FROM..]);
            bytes[CHECKSUM_AT..CHECKSUMMED_FROM].copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_state_comes_back_and_damage_is_seen() {
        let bytes = state().encode();
        assert_eq!(LogState::decode(&bytes), Ok(state()));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(LogState::decode(&changed).is_err(), "byte {at}");
            assert!(LogState::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_version_to_come_is_told_from_damage() {
        let mut bytes = state().encode();
        bytes[12] = 2;
        let error = LogState::decode(&with_checksum(bytes)).expect_err("another version");
        assert!(error.contains("version 2"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused_whatever_its_checksum() {
        let mut twice = state();
        twice.segments[1].home = twice.segments[0].home;
        let mut none = state();
        let nothing = Referred { stream: 0, used_bytes: 0, referred_bytes: 0, blocks: None };
        none.segments[0].holds = Holds::Records(nothing);
        let mut crossed = state();
        let blocks = vec![Block { offset: 512, size: 512 }, Block { offset: 512, size: 512 }];
        let crossing =
            Referred { stream: 0, used_bytes: 0, referred_bytes: 16, blocks: Some(blocks) };
        crossed.segments[0].holds = Holds::Records(crossing);
        for state in [twice, none, crossed] {
            assert!(LogState::decode(&state.encode()).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 12usize..300, byte: u8, len in 0usize..400) {
            let mut bytes = state().encode();
            bytes.truncate(len);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let bytes = with_checksum(bytes);
            if let Ok(state) = LogState::decode(&bytes) {
                prop_assert_eq!(state.encode(), bytes);
            }
        }
    }
}
