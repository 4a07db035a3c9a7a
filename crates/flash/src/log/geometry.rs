//! How the address space is cut: segments, sectors, write buffers, and the pieces of a large
//! record.

use std::ops::Range;

use super::format::{FOOTER_BYTES, SEGMENT_HEADER_BYTES};
use crate::limits::{
    RECORD_ALIGN, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MAX,
    WRITE_BUFFER_BYTES,
};
use crate::location::Location;

/// A small flash gets smaller segments, so that it has at least this many: the more there are to
/// choose from, and the smaller a share of the flash is open or in reserve, the less has to be
/// copied (a write amplification of 1.48 where 256 segments have 1.56).
const SEGMENTS_WANTED: u64 = 1024;

/// The smallest segment that is chosen where nobody asks for one.
const SEGMENT_BYTES_CHOSEN_MIN: u64 = 4 << 20;

/// The sizes that everything else follows from.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Geometry {
    segment_bytes: u64,
    sector_bytes: u64,
}

impl Geometry {
    /// Shape: `segment_bytes` is a power of two within the limits, `sector_bytes` a power of two up
    /// to a page.
    pub(crate) fn new(segment_bytes: u64, sector_bytes: u32) -> Self {
        assert!(segment_bytes.is_power_of_two());
        assert!((SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes));
        assert!(sector_bytes.is_power_of_two() && sector_bytes as usize <= FOOTER_BYTES);
        Self { segment_bytes, sector_bytes: u64::from(sector_bytes) }
    }

    /// The segment size for a flash of that size.
    pub(crate) fn segment_bytes_for(flash_bytes: u64) -> u64 {
        let wanted = (flash_bytes / SEGMENTS_WANTED).max(1);
        let power = 1 << wanted.ilog2();
        power.clamp(SEGMENT_BYTES_CHOSEN_MIN, SEGMENT_BYTES_DEFAULT)
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Segments that locations can address.
    pub(crate) fn segments_max(&self) -> usize {
        let addressable = (RECORD_ALIGN as u64) << Location::BITS;
        usize::try_from(addressable / self.segment_bytes)
            .map_or(SEGMENTS_MAX, |most| most.min(SEGMENTS_MAX))
    }

    /// Bytes of one write buffer.
    pub(crate) fn write_buffer_bytes(&self) -> usize {
        WRITE_BUFFER_BYTES.min(self.segment_bytes as usize / 4)
    }

    /// The largest record that is written from a write buffer; larger ones are large records.
    pub(crate) fn small_record_max(&self) -> usize {
        self.write_buffer_bytes() - SEGMENT_HEADER_BYTES
    }

    /// The largest record that shares a segment; larger ones have several segments to themselves.
    pub(crate) fn segment_record_max(&self) -> usize {
        self.data_end() as usize - SEGMENT_HEADER_BYTES
    }

    /// Where the footer begins and records end, in bytes from the start of a segment.
    pub(crate) fn data_end(&self) -> u32 {
        (self.segment_bytes - FOOTER_BYTES as u64) as u32
    }

    /// Segments that a record of this size needs when it does not share one.
    pub(crate) fn span_segments(&self, record_size: usize) -> usize {
        record_size.div_ceil(self.segment_record_max())
    }

    /// The segment of a location and the bytes in front of it there.
    pub(crate) fn split(&self, at: Location) -> (u32, u32) {
        let bytes = at.bytes();
        ((bytes / self.segment_bytes) as u32, (bytes % self.segment_bytes) as u32)
    }

    pub(crate) fn join(&self, segment: u32, offset: u32) -> Location {
        Location::from_bytes(u64::from(segment) * self.segment_bytes + u64::from(offset))
    }

    /// The whole sectors around a range of a segment.
    pub(crate) fn sectors(&self, offset: u32, size: usize) -> Range<u32> {
        let start = self.sector_down(u64::from(offset));
        let end = self.sector_up(u64::from(offset) + size as u64);
        start as u32..end as u32
    }

    pub(crate) fn sector_up(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.sector_bytes)
    }

    pub(crate) fn sector_down(&self, bytes: u64) -> u64 {
        bytes - bytes % self.sector_bytes
    }

    /// The device operations that a large record takes, in the order of its bytes.
    ///
    /// Shape: `segments` has one segment, where the record begins at `offset`, or all segments that
    /// a record larger than a segment has, of which it fills all but the last.
    pub(crate) fn pieces(&self, segments: &[u32], offset: u32, record_size: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut done = 0;
        for (number, &segment) in segments.iter().enumerate() {
            let mut at = if number == 0 { offset } else { SEGMENT_HEADER_BYTES as u32 };
            while done < record_size && at < self.data_end() {
                let start = self.sector_down(u64::from(at)) as u32;
                let room = (start + self.write_buffer_bytes() as u32).min(self.data_end()) - at;
                let stream = done..record_size.min(done + room as usize);
                let end = self.sector_up(u64::from(at) + stream.len() as u64) as u32;
                at += stream.len() as u32;
                done = stream.end;
                let number = number as u32;
                let skip = at - stream.len() as u32 - start;
                pieces.push(Piece {
                    segment,
                    number,
                    offset: start,
                    size: end - start,
                    skip,
                    stream,
                });
            }
        }
        assert_eq!(done, record_size, "the segments hold the record");
        pieces
    }
}

/// One device operation of a large record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    pub(crate) segment: u32,
    /// Which of the record's segments that is.
    pub(crate) number: u32,
    /// Where the operation starts in the segment, in bytes; a multiple of the sector.
    pub(crate) offset: u32,
    /// Bytes of the operation; a multiple of the sector.
    pub(crate) size: u32,
    /// Bytes of the operation in front of the record's.
    pub(crate) skip: u32,
    /// Which bytes of the record it carries.
    pub(crate) stream: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn segment_size_follows_the_flash() {
        let cases = [
            (1 << 20, 4 << 20),
            (1 << 30, 4 << 20),
            (4 << 30, 4 << 20),
            (16 << 30, 16 << 20),
            (64 << 30, 64 << 20),
            (1 << 40, 64 << 20),
        ];
        for (flash_bytes, segment_bytes) in cases {
            assert_eq!(Geometry::segment_bytes_for(flash_bytes), segment_bytes, "{flash_bytes}");
        }
    }

    proptest! {
        #[test]
        fn pieces_cover_a_record_once_and_in_order(
            size in 1usize..1_000_000,
            shared: bool,
            start in 0u32..100,
            sector in prop::sample::select(vec![512u32, 4096]),
        ) {
            let geometry = Geometry::new(1 << 17, sector);
            let size = size % if shared { 60_000 } else { 1_000_000 };
            let size = size.next_multiple_of(RECORD_ALIGN).max(48);
            let (segments, offset) = if shared {
                (vec![9], (start * sector).min(geometry.data_end() - 64 * 1024).max(64))
            } else {
                ((0..geometry.span_segments(size) as u32).collect(), 64)
            };
            let pieces = geometry.pieces(&segments, offset, size);
            let mut next = 0;
            for piece in &pieces {
                prop_assert_eq!(piece.stream.start, next);
                prop_assert!(!piece.stream.is_empty());
                prop_assert_eq!(piece.offset % sector, 0);
                prop_assert_eq!(piece.size % sector, 0);
                prop_assert!(piece.size as usize <= geometry.write_buffer_bytes());
                prop_assert!(piece.offset + piece.size <= geometry.data_end());
                prop_assert!(piece.skip as usize + piece.stream.len() <= piece.size as usize);
                next = piece.stream.end;
            }
            prop_assert_eq!(next, size);
        }
    }
}
