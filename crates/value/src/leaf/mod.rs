//! What collections are made of: a small collection is one leaf, a large one many.

pub mod branch;
pub mod elements;
pub mod fields;
mod gaps;
pub mod members;
pub mod rows;

pub use rows::{Row, Rows, RowsMut, Shape};

use std::hash::Hasher;

use rapidhash::quality::RapidHasher;

/// Never to be changed: it decides about bytes that are stored.
const ELEMENT_SEED: u64 = 0;

/// The hash of an element: what orders it among leaves, from the highest bit on, and its fingerprint, the
/// lowest byte.
#[inline]
pub fn element_hash(element: &[u8]) -> u64 {
    let mut hasher = RapidHasher::new(ELEMENT_SEED);
    hasher.write(element);
    hasher.finish()
}

/// A byte by which an element is looked for in its leaf, before it is compared.
#[inline]
pub fn fingerprint(element: &[u8]) -> u8 {
    element_hash(element) as u8
}

/// Divides a leaf in two halves by the order of its elements' hashes; the right one comes with its
/// bound, the fewest bytes that tell it from the left one. None: all have the same hash.
pub fn divide_by_hash(leaf: &[u8]) -> Option<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let rows = Rows::new(leaf);
    let hashes: Vec<u64> = rows.iter().map(|row| element_hash(row.first)).collect();
    let mut sorted = hashes.clone();
    sorted.sort_unstable();
    // The place nearest to the middle where two neighbours differ.
    let middle = sorted.len() / 2;
    let differs = |at: &usize| sorted[*at - 1] != sorted[*at];
    let above = (middle.max(1)..sorted.len()).find(differs);
    let below = (1..middle).rev().find(differs);
    let at = match (above, below) {
        (Some(above), Some(below)) if middle - below < above - middle => below,
        (above, below) => above.or(below)?,
    };
    let (last, first) = (sorted[at - 1].to_be_bytes(), sorted[at].to_be_bytes());
    let same = last.iter().zip(first).take_while(|(one, two)| **one == *two).count();
    let left = rows.select(|row| hashes[row] < sorted[at]);
    let right = rows.select(|row| hashes[row] >= sorted[at]);
    Some((left, right, first[..=same].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_divided_by_the_hashes_of_its_elements() {
        let shape = Shape { parts: 1, fingerprints: true, numbers: false };
        let mut leaf = shape.empty().to_vec();
        for number in 0..100u32 {
            let member = number.to_string();
            RowsMut::new(&mut leaf).push(fingerprint(member.as_bytes()), 0, &[member.as_bytes()]);
        }
        let (left, right, bound) = divide_by_hash(&leaf).expect("elements of many hashes");
        let (left, right) = (Rows::new(&left), Rows::new(&right));
        assert_eq!((left.len(), right.len()), (50, 50));
        let order = |member: &[u8]| element_hash(member).to_be_bytes();
        assert!(left.iter().all(|row| order(row.first)[..] < bound[..]));
        assert!(right.iter().all(|row| order(row.first)[..] >= bound[..]));
        assert!(right.iter().all(|row| right.find(fingerprint(row.first), row.first).is_some()));
        assert!(bound.len() <= 2, "{bound:?}");
        let mut same = shape.empty().to_vec();
        (0..3).for_each(|_| RowsMut::new(&mut same).push(0, 0, &[b"one"]));
        assert!(divide_by_hash(&same).is_none());
        assert!(divide_by_hash(&shape.empty()).is_none());
    }
}
