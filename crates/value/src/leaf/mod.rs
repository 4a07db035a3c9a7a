//! What collections are made of: a small collection is one leaf, a large one many.

pub mod fields;
mod gaps;
pub mod rows;

use std::hash::Hasher;

use rapidhash::quality::RapidHasher;

/// Never to be changed: it decides about bytes that are stored.
const ELEMENT_SEED: u64 = 0;

/// A byte by which an element is looked for in its leaf, before it is compared.
#[inline]
pub fn fingerprint(element: &[u8]) -> u8 {
    let mut hasher = RapidHasher::new(ELEMENT_SEED);
    hasher.write(element);
    hasher.finish() as u8
}
