//! A table entry: 64 bits that name a record and carry what the demotion hand asks about it, so
//! that neither a miss nor the hand touches the record.
//!
//! ```text
//! bits 63-48  tag: the top bits of the key's hash
//!      47-4   address of the record / 8
//!      3      the key has an expiry
//!      2      the value may be demoted: it is in RAM, and long enough to gain by it
//!      1-0    frequency, 0 to 3: raised by an access, lowered by the hand, for cold values too:
//!             that is how a second access within one turn of the hand is told from a first
//! ```

use crate::record::{RECORD_ALIGN, Record};

const TAG_SHIFT: u32 = 48;
const ADDRESS_SHIFT: u32 = 4;
const ADDRESS_BITS: u32 = TAG_SHIFT - ADDRESS_SHIFT;
const ADDRESS_MASK: u64 = ((1 << ADDRESS_BITS) - 1) << ADDRESS_SHIFT;
const VOLATILE_BIT: u64 = 1 << 3;
const DEMOTABLE_BIT: u64 = 1 << 2;
const FREQUENCY_MASK: u64 = 3;

/// Highest frequency an entry counts to.
pub(crate) const FREQUENCY_MAX: u8 = FREQUENCY_MASK as u8;
/// Frequency of a key that was not used lately, with the access under way.
pub const FIRST_USE: u8 = 1;

/// One place of a table: empty, or a tagged record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    pub(crate) const EMPTY: Entry = Entry(0);

    /// Takes over `record`. Panics: if the allocator hands out addresses beyond 47 bits.
    pub(crate) fn new(tag: u16, record: Record, frequency: u8) -> Entry {
        let volatile = record.is_volatile();
        let mut bits = u64::from(tag) << TAG_SHIFT | address_bits(record);
        bits |= u64::from(frequency.min(FREQUENCY_MAX));
        if volatile {
            bits |= VOLATILE_BIT;
        }
        Entry(bits)
    }

    /// Lets the entry name `record`, which is what the old one was, elsewhere. Panics: as
    /// [`Entry::new`].
    pub(crate) fn set_address(&mut self, record: Record) {
        self.0 = self.0 & !ADDRESS_MASK | address_bits(record);
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16
    }

    #[inline]
    pub(crate) fn address(self) -> u64 {
        (self.0 & ADDRESS_MASK) >> ADDRESS_SHIFT << 3
    }

    /// Whether the key has an expiry.
    #[inline]
    pub(crate) fn is_volatile(self) -> bool {
        self.0 & VOLATILE_BIT != 0
    }

    /// Whether the demotion hand may take the value out of RAM.
    #[inline]
    pub(crate) fn is_demotable(self) -> bool {
        self.0 & DEMOTABLE_BIT != 0
    }

    #[inline]
    pub(crate) fn frequency(self) -> u8 {
        (self.0 & FREQUENCY_MASK) as u8
    }

    /// Counts an access. Cost: no write once the maximum is reached.
    #[inline]
    pub(crate) fn touch(&mut self) {
        if self.0 & FREQUENCY_MASK != FREQUENCY_MASK {
            self.0 += 1;
        }
    }

    /// Lowers the frequency as the hand passes.
    #[inline]
    pub(crate) fn age(&mut self) {
        if self.0 & FREQUENCY_MASK != 0 {
            self.0 -= 1;
        }
    }

    pub(crate) fn set_demotable(&mut self, demotable: bool) {
        self.0 = if demotable { self.0 | DEMOTABLE_BIT } else { self.0 & !DEMOTABLE_BIT };
    }
}

/// Bits of the addresses that an entry can hold.
pub const ADDRESS_BITS_MAX: u32 = ADDRESS_BITS + RECORD_ALIGN.ilog2();

/// Whether an entry can hold `address`. A process on x86-64 has no other addresses; one on arm64 may
/// have addresses of 48 bits, or of 52.
pub fn can_hold_address(address: usize) -> bool {
    address as u64 >> ADDRESS_BITS_MAX == 0
}

/// The bits that name a record, which the entry takes over.
fn address_bits(record: Record) -> u64 {
    let address = record.into_address();
    assert!(address.is_multiple_of(RECORD_ALIGN as u64));
    assert!(can_hold_address(address as usize));
    (address >> 3) << ADDRESS_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_47_bits_fit() {
        assert_eq!(ADDRESS_BITS_MAX, 47);
        for (address, fits) in
            [(8, true), ((1 << 47) - 8, true), (1 << 47, false), (1 << 51, false)]
        {
            assert_eq!(can_hold_address(address), fits, "{address:#x}");
        }
    }
}
