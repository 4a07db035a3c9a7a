//! What collections are made of: a small collection is one leaf, a large one many.

pub mod branch;
mod divide;
pub mod elements;
pub mod entries;
pub mod fields;
mod gaps;
pub mod members;
pub mod rows;
pub mod score_index;
pub mod scored;
pub mod stream;
pub mod stream_rows;

pub use divide::{
    Cut, Split, bound_between, divide_by_hash, divide_by_position, halves, split_by_hash,
    split_by_position,
};
pub use rows::{Row, Rows, RowsMut, Shape};

use std::hash::{BuildHasher, Hasher};

use rapidhash::quality::SeedableState;
use stdx::{HashSecrets, hash_secrets};

/// The hash of an element: what orders it among leaves, from the highest bit on, and its fingerprint, the
/// lowest byte. It is another in the next run of the server, so that nobody can choose elements that stand in
/// the same place, of which a leaf could not be divided.
#[inline]
pub fn element_hash(element: &[u8]) -> u64 {
    let HashSecrets { seed, secrets } = hash_secrets();
    let mut hasher = SeedableState::custom(*seed, secrets).build_hasher();
    hasher.write(element);
    hasher.finish()
}

/// A byte by which an element is looked for in its leaf, before it is compared.
#[inline]
pub fn fingerprint(element: &[u8]) -> u8 {
    element_hash(element) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the constants that rapidhash has by default these agree, whatever the seed; and a constant seed
    /// could be tried out.
    #[test]
    fn elements_chosen_to_collide_do_not() {
        let hash_of = |number: u64| {
            element_hash(&[0x2d35_8dcc_aa6c_78a5, number].map(u64::to_le_bytes).concat())
        };
        let hashes: std::collections::BTreeSet<u64> = (0..100).map(hash_of).collect();
        assert_eq!(hashes.len(), 100);
        let mut constant = rapidhash::quality::RapidHasher::new(0);
        constant.write(b"element");
        assert_ne!(element_hash(b"element"), constant.finish());
    }
}
