//! Values that follow from their keys.
//!
//! A value is a slice of a pool of random bytes, chosen by a hash of key and version and XORed with
//! a word of that hash. That costs little more than the copy into the request, looks random to any
//! compressor (no two values share bytes, a long one does not repeat), and lets any part of a value
//! be checked as it arrives, with nothing remembered.

use crate::arguments::{Range, SizeList};
use crate::buffer::Writer;
use stdx::Random;

/// Largest value in bytes, as Redis has it by default.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// Bytes of the pool; it stays in the second-level cache.
const POOL_BYTES: usize = 64 << 10;
/// The pool is the same in every process, so that one can check what another wrote.
const POOL_SEED: u64 = 0x6B65_6C76_696E;
/// XOR and compare go by words of so many bytes.
const WORD_BYTES: usize = size_of::<u64>();
/// Values are written by blocks of so many words, a cache line: a loop over words alone would spend
/// as much on counting as on copying.
const BLOCK_WORDS: usize = 8;

const _: () = assert!(POOL_BYTES.is_power_of_two());

/// Sizes of values in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// Uniform over a range.
    Range(Range),
    /// Each of a list as often as its weight says.
    List(SizeList),
}

impl Sizes {
    /// The one size, if there is only one.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Self::Range(range) => (range.min == range.max).then_some(range.min),
            Self::List(SizeList(list)) => {
                let (first, _) = list[0];
                list.iter().all(|(size, _)| *size == first).then_some(first)
            }
        }
    }

    /// The largest.
    pub fn max(&self) -> usize {
        match self {
            Self::Range(range) => range.max,
            Self::List(SizeList(list)) => list.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    /// The size that belongs to `hash`.
    #[inline]
    fn of(&self, hash: u64) -> usize {
        // The high half of a product maps a hash to a range without a division.
        let place = |count: u64| ((u128::from(hash) * u128::from(count)) >> u64::BITS) as u64;
        match self {
            Self::Range(range) => range.min + place((range.max - range.min) as u64 + 1) as usize,
            Self::List(SizeList(list)) => {
                let mut left = place(list.iter().map(|(_, weight)| u64::from(*weight)).sum());
                for (size, weight) in list {
                    match left.checked_sub(u64::from(*weight)) {
                        Some(rest) => left = rest,
                        None => return *size,
                    }
                }
                unreachable!("the place is below the sum of the weights")
            }
        }
    }
}

/// Makes and checks values.
#[derive(Debug, Clone)]
pub struct Values {
    pool: Box<[u8]>,
    sizes: Sizes,
    /// Share of a value, at its end, that is one repeated byte.
    compressible: f64,
}

/// One value, not yet written out: what it begins with in the pool, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    hash: u64,
    size: usize,
}

impl Value {
    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The byte that the compressible end repeats.
    fn filler(&self) -> u8 {
        (self.hash >> 56) as u8
    }
}

impl Values {
    /// Values of these sizes, of which a share from 0 to 1 compresses away. Cost: fills a pool of
    /// 64 KiB.
    pub fn new(sizes: Sizes, compressible: f64) -> Self {
        let mut pool = vec![0; POOL_BYTES].into_boxed_slice();
        Random::new(POOL_SEED).fill(&mut pool);
        Self { pool, sizes, compressible }
    }

    /// The value of `key` in its `version`. The size depends on the key alone.
    #[inline]
    pub fn of(&self, key: u64, version: u32) -> Value {
        let key_hash = hash(key);
        let hash = hash(key_hash ^ (u64::from(version) << 1 | 1));
        Value { hash, size: self.sizes.of(key_hash) }
    }

    /// Writes all of `value`.
    #[inline(always)]
    pub fn write(&self, value: Value, output: &mut Writer<'_>) {
        let mut offset = 0;
        let end = self.random_size(value);
        while offset < end {
            let (pooled, word) = self.stretch(value, offset, end - offset);
            xor(pooled, word, output.room(pooled.len()));
            offset += pooled.len();
        }
        if end < value.size {
            output.room(value.size - end).fill(value.filler());
        }
    }

    /// Whether `bytes` are those at `offset` of `value`.
    pub fn matches(&self, value: Value, mut offset: usize, bytes: &[u8]) -> bool {
        if offset + bytes.len() > value.size {
            return false;
        }
        let random = self.random_size(value).saturating_sub(offset).min(bytes.len());
        let (mut bytes, filled) = bytes.split_at(random);
        if filled.iter().any(|byte| *byte != value.filler()) {
            return false;
        }
        while !bytes.is_empty() {
            let (pooled, word) = self.stretch(value, offset, bytes.len());
            let (head, rest) = bytes.split_at(pooled.len());
            if !same(pooled, head, word) {
                return false;
            }
            offset += head.len();
            bytes = rest;
        }
        true
    }

    /// How many bytes at the front of `value` are random.
    fn random_size(&self, value: Value) -> usize {
        if self.compressible == 0.0 {
            return value.size;
        }
        value.size - (value.size as f64 * self.compressible) as usize
    }

    /// The pool's bytes for `offset` of `value`, at most `size_max` and not past the end of the
    /// pool, and the word to XOR them with, turned so that it begins with them.
    fn stretch(&self, value: Value, offset: usize, size_max: usize) -> (&[u8], u64) {
        let position = (value.hash as usize & (POOL_BYTES - 1)) + offset;
        let (round, start) = (position / POOL_BYTES, position % POOL_BYTES);
        let end = POOL_BYTES.min(start + size_max);
        let word = hash(value.hash ^ round as u64);
        let phase = (position % WORD_BYTES * 8) as u32;
        (&self.pool[start..end], word.rotate_right(phase))
    }
}

/// Writes `pooled` XOR `word` to `bytes`, which are as many.
fn xor(pooled: &[u8], word: u64, bytes: &mut [u8]) {
    debug_assert_eq!(pooled.len(), bytes.len());
    let (pooled_words, pooled_tail) = pooled.as_chunks::<WORD_BYTES>();
    let (words, tail) = bytes.as_chunks_mut::<WORD_BYTES>();
    let (pooled_blocks, pooled_words) = pooled_words.as_chunks::<BLOCK_WORDS>();
    let (blocks, words) = words.as_chunks_mut::<BLOCK_WORDS>();
    let mask = |pooled: &[u8; WORD_BYTES]| (u64::from_le_bytes(*pooled) ^ word).to_le_bytes();
    for (pooled, block) in pooled_blocks.iter().zip(blocks) {
        *block = pooled.each_ref().map(mask);
    }
    for (pooled, word) in pooled_words.iter().zip(words) {
        *word = mask(pooled);
    }
    for ((pooled, byte), mask) in pooled_tail.iter().zip(tail).zip(word.to_le_bytes()) {
        *byte = pooled ^ mask;
    }
}

fn same(pooled: &[u8], bytes: &[u8], word: u64) -> bool {
    debug_assert_eq!(pooled.len(), bytes.len());
    let (pooled_words, pooled_tail) = pooled.as_chunks::<WORD_BYTES>();
    let (words, tail) = bytes.as_chunks::<WORD_BYTES>();
    // Differences are collected rather than branched on, so that the loop is vector code.
    let mut difference = 0;
    for (pooled, word_read) in pooled_words.iter().zip(words) {
        difference |= u64::from_le_bytes(*pooled) ^ u64::from_le_bytes(*word_read) ^ word;
    }
    let mut difference_tail = 0;
    for ((pooled, byte), mask) in pooled_tail.iter().zip(tail).zip(word.to_le_bytes()) {
        difference_tail |= pooled ^ byte ^ mask;
    }
    difference == 0 && difference_tail == 0
}

/// A hash of `word`.
#[inline]
fn hash(word: u64) -> u64 {
    Random::new(word).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use proptest::prelude::*;

    fn values(min: usize, max: usize) -> Values {
        Values::new(Sizes::Range(Range { min, max }), 0.0)
    }

    fn bytes_of(values: &Values, key: u64, version: u32) -> Vec<u8> {
        let mut bytes = Buffer::default();
        bytes.append(|output| values.write(values.of(key, version), output));
        bytes.as_slice().to_vec()
    }

    proptest! {
        #[test]
        fn a_value_matches_itself_in_any_pieces(
            key: u64, version: u32, size in 0_usize..200_000, cuts: [prop::sample::Index; 3],
            compressible in prop::sample::select(vec![0.0, 0.3, 1.0]),
        ) {
            let values = Values::new(Sizes::Range(Range::only(size)), compressible);
            let value = values.of(key, version);
            let bytes = bytes_of(&values, key, version);
            prop_assert_eq!(bytes.len(), size);
            let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index(size + 1)).collect();
            edges.extend([0, size]);
            edges.sort_unstable();
            for pair in edges.windows(2) {
                prop_assert!(values.matches(value, pair[0], &bytes[pair[0]..pair[1]]));
            }
        }

        #[test]
        fn one_wrong_bit_is_seen(
            key: u64, size in 1_usize..70_000, place: prop::sample::Index, bit in 0_u32..8,
        ) {
            let values = values(size, size);
            let mut bytes = bytes_of(&values, key, 0);
            bytes[place.index(size)] ^= 1 << bit;
            prop_assert!(!values.matches(values.of(key, 0), 0, &bytes));
        }
    }

    #[test]
    fn keys_and_versions_differ_and_too_long_is_wrong() {
        let values = values(64, 64);
        assert_ne!(bytes_of(&values, 1, 0), bytes_of(&values, 2, 0));
        assert_ne!(bytes_of(&values, 1, 0), bytes_of(&values, 1, 1));
        assert!(!values.matches(values.of(1, 0), 0, &[0; 65]));
    }

    #[test]
    fn sizes_cover_the_range_and_belong_to_the_key() {
        let values = values(10, 19);
        let mut seen = [0; 10];
        for key in 0..10_000 {
            let size = values.of(key, 0).size();
            assert_eq!(size, values.of(key, 9).size());
            seen[size - 10] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }

    #[test]
    fn sizes_of_a_list_follow_their_weights() {
        let list: SizeList = "10:1,20:3".parse().expect("a list");
        let values = Values::new(Sizes::List(list), 0.0);
        let long = (0..10_000).filter(|key| values.of(*key, 0).size() == 20).count();
        assert!((7300..7700).contains(&long), "{long}");
        assert!((0..10_000).all(|key| [10, 20].contains(&values.of(key, 0).size())));
    }

    #[test]
    fn the_compressible_share_is_one_repeated_byte() {
        let values = Values::new(Sizes::Range(Range::only(1000)), 0.25);
        let bytes = bytes_of(&values, 3, 0);
        assert!(bytes[750..].iter().all(|byte| *byte == bytes[750]));
        assert!(bytes[..750].iter().any(|byte| *byte != bytes[0]));
        let mut wrong = bytes.clone();
        wrong[999] ^= 1;
        assert!(values.matches(values.of(3, 0), 0, &bytes));
        assert!(!values.matches(values.of(3, 0), 0, &wrong));
    }

    #[test]
    fn long_values_do_not_repeat() {
        let values = values(POOL_BYTES * 2, POOL_BYTES * 2);
        let bytes = bytes_of(&values, 5, 0);
        let equal = bytes.iter().zip(&bytes[POOL_BYTES..]).filter(|(a, b)| a == b).count();
        assert!(equal < POOL_BYTES / 16, "{equal}");
    }
}
