//! What a checkpoint says of the log, so that a start finds its records where they are. Little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | magic "KelvFlSt" |
//! | 8      | 4     | CRC32C of bytes 12 to the end |
//! | 12     | 4     | version, 2: of these bytes, of segments and records, of references to them, and of the values in these |
//! | 16     | 8     | flash: drawn when it was first kept, in the labels of all its files |
//! | 24     | 8     | number of the checkpoint |
//! | 32     | 8     | the next sequence number |
//! | 40     | 8     | bytes of a segment |
//! | 48     | 4     | bytes of a sector |
//! | 52     | 4     | segments |
//! | 56     | 64    | what the hashes in values are keyed with: 8 numbers |
//! | 120    | 8     | journal, as in its files |
//! | 128    | 8     | the position in it of the checkpoint |
//! | 136    |       | each segment, in the order of their indexes |
//!
//! A segment is 28 bytes, and its list behind it if it has one:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 8     | generation |
//! | 8      | 4     | its place in its file, in segments |
//! | 12     | 2     | its file |
//! | 14     | 1     | 0 unused with old data, 1 unused and never written, 2 unused without space, 3 out of use with old data, 4 and 5 likewise, 6 without a file; 7 with records and a footer, 8 with records and a list of blocks; 9 with the beginning of one record, which goes on in the segments of a list; 10 with more of such a record |
//! | 15     | 1     | stream, of 7 and 8 |
//! | 16     | 4     | bytes up to the end of the last block, of 7 and 8 |
//! | 20     | 4     | bytes of records that the checkpoint refers to, of 7 to 9: of a record as a whole |
//! | 24     | 4     | how many follow, of 8: blocks, offset and bytes of each, 4 bytes each; of 9: indexes of segments, 4 bytes each |

use stdx::HashSecrets;

use super::format::{BLOCKS_MAX, Block};
use super::geometry::Geometry;
use super::lifetime::STREAMS;
use super::space::Blocks;
use super::table::Home;
use crate::device::FileIndex;
use crate::limits::{PATHS_MAX, RECORD_ALIGN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MAX};
use crate::location::Location;

/// The version that is written, and the one that is read.
const VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"KelvFlSt";
const CHECKSUM_AT: usize = 8;
const CHECKSUMMED_FROM: usize = 12;
const HEAD_BYTES: usize = 136;
const SEGMENT_ENTRY_BYTES: usize = 28;
const BLOCK_ENTRY_BYTES: usize = 8;
const INDEX_BYTES: usize = 4;

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
    pub(crate) journal: u64,
    pub(crate) position: u64,
    pub(crate) segments: Vec<SegmentState>,
}

/// A segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SegmentState {
    pub(crate) home: Home,
    pub(crate) generation: u64,
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
    /// The beginning of one record that is longer than a segment: its bytes, and the other segments of it.
    Long { bytes: u32, rest: Vec<u32> },
    /// More of such a record.
    LongRest,
}

impl Holds {
    /// Whether the checkpoint refers to something in it.
    pub(crate) fn is_referred(&self) -> bool {
        matches!(self, Holds::Records(_) | Holds::Long { .. } | Holds::LongRest)
    }
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
const LONG: u8 = 9;
const LONG_REST: u8 = 10;

impl LogState {
    /// Whether the checkpoint refers to something in the file with this index.
    pub(crate) fn refers_to_file(&self, file: u32) -> bool {
        let is_in_it = |one: &SegmentState| u32::from(one.home.file.0) == file;
        self.segments.iter().any(|one| one.holds.is_referred() && is_in_it(one))
    }

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
        for long in self.secrets.secrets.into_iter().chain([self.journal, self.position]) {
            bytes.extend_from_slice(&long.to_le_bytes());
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
        let (journal, position) = (head.long(), head.long());
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
        if !are_long_records_whole(&segments, Geometry::new(segment_bytes, sector_bytes)) {
            return damaged("a record lacks a segment");
        }
        let mut homes: Vec<Home> = segments
            .iter()
            .filter(|one| one.holds != Holds::Homeless)
            .map(|one| one.home)
            .collect();
        homes.sort_unstable_by_key(|home| (home.file.0, home.number));
        if homes.windows(2).any(|two| two[0] == two[1]) {
            return damaged("two segments are in one place");
        }
        Ok(LogState {
            flash,
            number,
            sequence,
            segment_bytes,
            sector_bytes,
            secrets,
            journal,
            position,
            segments,
        })
    }
}

/// Whether each record that is longer than a segment has the segments that it takes, and no two have one.
fn are_long_records_whole(segments: &[SegmentState], geometry: Geometry) -> bool {
    let mut is_named = vec![false; segments.len()];
    for one in segments {
        let Holds::Long { bytes, rest } = &one.holds else { continue };
        let bytes = *bytes as usize;
        if bytes <= geometry.segment_record_max() || geometry.span_segments(bytes) != rest.len() + 1
        {
            return false;
        }
        for &index in rest {
            match is_named.get_mut(index as usize) {
                Some(named) if !*named => *named = true,
                _ => return false,
            }
        }
    }
    segments.iter().zip(is_named).all(|(one, named)| named == (one.holds == Holds::LongRest))
}

#[derive(Copy, Clone)]
struct Bounds {
    segment_bytes: u32,
    sector_bytes: u32,
}

impl SegmentState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (mut stream, mut used_bytes, mut referred_bytes) = (0, 0, 0);
        let (mut blocks, mut indexes): (&[Block], &[u32]) = (&[], &[]);
        let kind = match &self.holds {
            Holds::Unused(blocks) => blocks_byte(*blocks),
            Holds::Retired(blocks) => RETIRED + blocks_byte(*blocks),
            Holds::Homeless => HOMELESS,
            Holds::Records(referred) => {
                (stream, used_bytes) = (referred.stream, referred.used_bytes);
                referred_bytes = referred.referred_bytes;
                blocks = referred.blocks.as_deref().unwrap_or_default();
                if referred.blocks.is_none() { WITH_FOOTER } else { WITH_LIST }
            }
            Holds::Long { bytes, rest } => {
                (referred_bytes, indexes) = (*bytes, rest);
                LONG
            }
            Holds::LongRest => LONG_REST,
        };
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.home.number.to_le_bytes());
        bytes.extend_from_slice(&self.home.file.0.to_le_bytes());
        bytes.extend_from_slice(&[kind, stream]);
        let count = (blocks.len() + indexes.len()) as u32;
        let words = [used_bytes, referred_bytes, count].into_iter();
        let listed = blocks.iter().flat_map(|block| [block.offset, block.size]);
        for word in words.chain(listed).chain(indexes.iter().copied()) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn decode(bytes: &mut Reader<'_>, bounds: Bounds) -> Option<SegmentState> {
        let mut entry = Reader(bytes.take(SEGMENT_ENTRY_BYTES)?);
        let (generation, number) = (entry.long(), entry.word());
        let (file, kind, stream) = (entry.half(), entry.byte(), entry.byte());
        let (used_bytes, referred_bytes, count) = (entry.word(), entry.word(), entry.word());
        let home = Home { file: FileIndex(file), number };
        let has_no_blocks = (used_bytes, stream) == (0, 0);
        let is_empty = has_no_blocks && (referred_bytes | count) == 0;
        let is_to_be_empty = kind <= HOMELESS || kind == LONG_REST;
        let is_possible = usize::from(file) < PATHS_MAX
            && (number as usize) < SEGMENTS_MAX
            && (is_empty || !is_to_be_empty)
            && (has_no_blocks || kind != LONG)
            && (referred_bytes as usize).is_multiple_of(RECORD_ALIGN);
        if !is_possible {
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
                    && count as usize <= BLOCKS_MAX
                    && (kind == WITH_LIST || count == 0);
                let blocks = (kind == WITH_LIST).then_some(blocks);
                let referred = Referred { stream, used_bytes, referred_bytes, blocks };
                is_possible.then_some(Holds::Records(referred))?
            }
            LONG => {
                let mut listed = Reader(bytes.take(INDEX_BYTES.checked_mul(count as usize)?)?);
                let rest = (0..count).map(|_| listed.word()).collect();
                Holds::Long { bytes: referred_bytes, rest }
            }
            LONG_REST => Holds::LongRest,
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
        SegmentState { home, generation: 3 << 32 | u64::from(number), holds }
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
            Holds::LongRest,
            Holds::Long { bytes: 150_000, rest: vec![10, 8] },
            Holds::LongRest,
        ];
        LogState {
            flash: 0x0102_0304_0506_0708,
            number: 9,
            sequence: 77,
            segment_bytes: 64 << 10,
            sector_bytes: 512,
            secrets: HashSecrets { seed: 1, secrets: [2, 3, 4, 5, 6, 7, 8] },
            journal: u64::MAX - 1,
            position: 1 << 40,
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
        bytes[12] = 3;
        let error = LogState::decode(&with_checksum(bytes)).expect_err("another version");
        assert!(error.contains("version 3"), "{error}");
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
        let with_rest = |rest: Vec<u32>| {
            let mut state = state();
            state.segments[9].holds = Holds::Long { bytes: 150_000, rest };
            state
        };
        let lists = [vec![8], vec![8, 8], vec![8, 7], vec![8, 11], vec![8, 10, 10]];
        let [lacking, repeated, crossing, beyond, more] = lists.map(with_rest);
        let mut nobodys = state();
        nobodys.segments[0].holds = Holds::LongRest;
        let mut short = state();
        short.segments[9].holds = Holds::Long { bytes: 48, rest: Vec::new() };
        for state in
            [twice, none, crossed, lacking, repeated, crossing, beyond, more, nobodys, short]
        {
            assert!(LogState::decode(&state.encode()).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 12usize..480, byte: u8, len in 0usize..480) {
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
