//! A region of addresses: what lies in it is handled together, so that whole pages come free.
//!
//! Slots are in the order of hashes, so a pass over them meets the blocks of a page far apart, and
//! what it frees is a hole here and a hole there until it ends. A pass that handles one region of
//! several alone leaves whole pages behind, and much sooner.

/// Addresses of a region lie together in this many bits: 256 KiB, so that few slabs are in two.
const REGION_SHIFT: u32 = 18;

/// Some part of all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    mask: u64,
    bits: u64,
}

impl Region {
    /// Every address.
    pub const ALL: Region = Region { mask: 0, bits: 0 };

    /// Region `index` (modulo their number) of so many, a power of two, that hold every address
    /// between them.
    pub fn nth(index: usize, of: usize) -> Region {
        assert!(of.is_power_of_two());
        let mask = of as u64 - 1;
        Region { mask: mask << REGION_SHIFT, bits: (index as u64 & mask) << REGION_SHIFT }
    }

    /// Whether an address lies in it.
    #[inline]
    pub(crate) fn holds(self, address: u64) -> bool {
        address & self.mask == self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_in_one_region_and_in_all() {
        for address in (0..64).map(|shift| u64::MAX >> shift).chain([0, 1 << 18, 7 << 18, 8 << 18])
        {
            for of in [1, 2, 8, 64] {
                let holds = |&index: &usize| Region::nth(index, of).holds(address);
                assert_eq!((0..of).filter(holds).count(), 1);
            }
            assert!(Region::ALL.holds(address));
        }
        assert_eq!(Region::nth(5, 1), Region::ALL);
        assert_eq!(Region::nth(9, 8), Region::nth(1, 8));
        assert!(Region::nth(0, 8).holds((1 << 18) - 8) && Region::nth(1, 8).holds(1 << 18));
    }
}
