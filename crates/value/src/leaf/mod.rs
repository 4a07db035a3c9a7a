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

pub use divide::{Cut, bound_between, divide_by_hash, divide_by_position, halves};
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
