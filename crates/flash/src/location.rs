//! Where a record lies on flash, in the 40 bits that the keyspace can spare for it, and which of the
//! records that lie there over time it is.

use crate::limits::RECORD_ALIGN;

/// The place of a record: a count of 16-byte units in one address space over all segments and
/// paths.
///
/// Bounds: 40 bits, 16 TiB. Segment sizes are powers of two, so the segment's index and the offset
/// in it are shifts.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Ord, PartialOrd, Debug)]
pub struct Location(u64);

impl Location {
    /// Bits that a location needs.
    pub const BITS: u32 = 40;

    /// The location that lies `units` 16-byte units into the address space.
    ///
    /// Panics: when `units` needs more than 40 bits.
    pub fn from_units(units: u64) -> Self {
        assert!(units < 1 << Self::BITS, "location beyond 40 bits");
        Self(units)
    }

    /// The 16-byte units in front of it: what the keyspace stores. Bounds: below 2^40.
    pub fn units(self) -> u64 {
        self.0
    }

    /// The location of a byte offset in the address space, which is a multiple of the unit.
    pub(crate) fn from_bytes(offset: u64) -> Self {
        debug_assert_eq!(offset % RECORD_ALIGN as u64, 0);
        Self::from_units(offset / RECORD_ALIGN as u64)
    }

    /// The byte offset in the address space.
    pub fn bytes(self) -> u64 {
        self.0 * RECORD_ALIGN as u64
    }
}

/// The name of one record. A place is written again once its segment was freed, and then names
/// another record; together with the segment's generation it names one for ever, because within a
/// generation a segment only grows.
///
/// A generation has the number of the start in its upper half, and counts in its lower half, so that none comes again.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Ord, PartialOrd, Debug)]
pub struct RecordId {
    /// Where it lies.
    pub at: Location,
    /// How often its segment, the first of a record with several, had been opened.
    pub generation: u64,
}
