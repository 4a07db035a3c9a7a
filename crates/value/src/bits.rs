//! Strings as arrays of bits, the first bit being the highest of the first byte.
//!
//! Bytes are taken eight at a time, as words that keep the order of bits: big-endian ones.

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// The bit at `offset`; beyond the end all bits are zero.
pub fn get_bit(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|index| bytes.get(index));
    byte.is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

/// Sets the bit at `offset` and returns what it was.
///
/// Panics: if the bytes do not reach that far. The caller has grown them.
pub fn set_bit(bytes: &mut [u8], offset: u64, bit: bool) -> bool {
    let byte = &mut bytes[(offset / 8) as usize];
    let mask = 1 << (7 - offset % 8);
    let before = *byte & mask != 0;
    *byte = if bit { *byte | mask } else { *byte & !mask };
    before
}

/// The range that `start` and `end` stand for in something of length `len`, as GETRANGE and
/// BITCOUNT have it: both ends belong to it, negative ones count from the end, and it is cut to
/// what there is. `None` if nothing is left.
pub fn clamp_range(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    clamp_range_of_bitpos(start, end, len)
}

/// As [`clamp_range`], for BITPOS: two ends before the first position meet there, even if they
/// are the wrong way round.
pub fn clamp_range_of_bitpos(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    let from_start = |position: i64| match u64::try_from(position) {
        Ok(position) => position,
        Err(_) => len.saturating_sub(position.unsigned_abs()),
    };
    let (first, last) = (from_start(start), from_start(end).min(len.checked_sub(1)?));
    (first <= last).then_some((first, last))
}

/// How many bits are set.
pub fn count(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    // Four sums, so that one addition need not wait for the one before.
    let (quads, words) = words.as_chunks::<4>();
    let mut sums = [0u64; 4];
    for quad in quads {
        for (sum, word) in sums.iter_mut().zip(quad) {
            *sum += u64::from(u64::from_ne_bytes(*word).count_ones());
        }
    }
    let words: u64 =
        words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    sums.iter().sum::<u64>() + words + rest
}

/// How many bits are set from bit `first` to bit `last`, both included.
///
/// Panics: if the bytes do not reach that far.
pub fn count_range(bytes: &[u8], first: u64, last: u64) -> u64 {
    let (head, body, tail) = split_range(bytes, first, last);
    count(body) + u64::from(head.bits.count_ones()) + u64::from(tail.bits.count_ones())
}

/// Where the first bit that equals `bit` is, from bit `first` to bit `last`, both included.
///
/// Panics: if the bytes do not reach that far.
pub fn find(bytes: &[u8], bit: bool, first: u64, last: u64) -> Option<u64> {
    let (head, body, tail) = split_range(bytes, first, last);
    if let Some(found) = head.find(bit) {
        return Some(found);
    }
    let body_start = (first / 8 + u64::from(head.mask != 0)) * 8;
    find_whole(body, bit).map(|found| body_start + found).or_else(|| tail.find(bit))
}

/// The bits of one byte that belong to a range.
struct Edge {
    /// Offset of the byte's first bit.
    offset: u64,
    /// Which bits belong to the range; zero if the edge is on a byte's bound.
    mask: u8,
    /// Those bits, the others being zero.
    bits: u8,
}

impl Edge {
    fn new(bytes: &[u8], index: u64, mask: u8) -> Self {
        Self { offset: index * 8, mask, bits: bytes[index as usize] & mask }
    }

    const NONE: Self = Self { offset: 0, mask: 0, bits: 0 };

    fn find(&self, bit: bool) -> Option<u64> {
        let found = if bit { self.bits } else { !self.bits & self.mask };
        (found != 0).then(|| self.offset + u64::from(found.leading_zeros()))
    }
}

/// Cuts a range of bits into a part of a byte, whole bytes, and a part of a byte.
fn split_range(bytes: &[u8], first: u64, last: u64) -> (Edge, &[u8], Edge) {
    assert!(first <= last);
    let (first_byte, last_byte) = (first / 8, last / 8);
    let (head_mask, tail_mask) = (0xffu8 >> (first % 8), 0xffu8 << (7 - last % 8));
    if first_byte == last_byte && head_mask & tail_mask != 0xff {
        return (Edge::new(bytes, first_byte, head_mask & tail_mask), &[], Edge::NONE);
    }
    let head = match head_mask {
        0xff => Edge::NONE,
        mask => Edge::new(bytes, first_byte, mask),
    };
    let tail = match tail_mask {
        0xff => Edge::NONE,
        mask => Edge::new(bytes, last_byte, mask),
    };
    let body_start = first_byte + u64::from(head.mask != 0);
    let body_end = last_byte + u64::from(tail.mask == 0);
    (head, &bytes[body_start as usize..body_end as usize], tail)
}

fn find_whole(bytes: &[u8], bit: bool) -> Option<u64> {
    let flip = if bit { 0 } else { u64::MAX };
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let passed = words.iter().take_while(|word| u64::from_ne_bytes(**word) == flip).count();
    if let Some(word) = words.get(passed) {
        let zeros = (u64::from_be_bytes(*word) ^ flip).leading_zeros();
        return Some((passed * WORD_BYTES) as u64 * 8 + u64::from(zeros));
    }
    let flip = flip as u8;
    let index = rest.iter().position(|byte| *byte != flip)?;
    let zeros = (rest[index] ^ flip).leading_zeros();
    Some((words.len() * WORD_BYTES + index) as u64 * 8 + u64::from(zeros))
}

/// What BITOP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Set where all are set.
    And,
    /// Set where any is set.
    Or,
    /// Set where an odd number is set.
    Xor,
    /// Set where the only source is not.
    Not,
}

/// Flips every bit.
pub fn invert(bytes: &mut [u8]) {
    // A byte at a time here too: the compiler makes vectors of it.
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

/// Combines a result with another source, in place: it is as long as the longer of both then, the
/// shorter one being followed by zeros. Cost: one pass.
///
/// Panics: for `Not`, which has one source.
pub fn combine_with(operation: Operation, result: &mut Vec<u8>, source: &[u8]) {
    if result.len() < source.len() {
        result.reserve_exact(source.len() - result.len());
        result.resize(source.len(), 0);
    }
    match operation {
        Operation::And => {
            combine_into(result, source, |left, right| left & right);
            result[source.len()..].fill(0);
        }
        Operation::Or => combine_into(result, source, |left, right| left | right),
        Operation::Xor => combine_into(result, source, |left, right| left ^ right),
        Operation::Not => unreachable!("invariant: NOT has one source"),
    }
}

/// The loop is over bytes because the compiler turns it into one over vectors.
#[inline(always)]
fn combine_into(result: &mut [u8], source: &[u8], operation: impl Fn(u8, u8) -> u8) {
    for (left, right) in result.iter_mut().zip(source) {
        *left = operation(*left, *right);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_cut_as_redis_does() {
        for (start, end, len, expected) in [
            (0, -1, 5, Some((0, 4))),
            (0, 100, 5, Some((0, 4))),
            (-3, -2, 5, Some((2, 3))),
            (-100, 1, 5, Some((0, 1))),
            (-100, -50, 5, Some((0, 0))),
            (3, 2, 5, None),
            (-1, -2, 5, None),
            (5, 5, 5, None),
            (0, 0, 0, None),
            (0, -1, 0, None),
            (i64::MIN, i64::MAX, 5, Some((0, 4))),
            (i64::MIN, i64::MIN, 5, Some((0, 0))),
        ] {
            assert_eq!(clamp_range(start, end, len), expected, "{start} {end} {len}");
        }
        assert_eq!(clamp_range(-50, -100, 5), None);
        assert_eq!(clamp_range_of_bitpos(-50, -100, 5), Some((0, 0)));
        assert_eq!(clamp_range_of_bitpos(-1, -2, 5), None);
    }

    /// What BITOP makes of the sources.
    fn combine(operation: Operation, sources: &[&[u8]]) -> Vec<u8> {
        let (first, rest) = sources.split_first().expect("invariant: BITOP has a source");
        let mut result = first.to_vec();
        if operation == Operation::Not {
            assert!(rest.is_empty());
            invert(&mut result);
        }
        rest.iter().for_each(|source| combine_with(operation, &mut result, source));
        result
    }

    #[test]
    fn combines_strings_of_different_lengths() {
        let long = b"\xff\x0f\xf0\x3c\xaa\x55\x00\xff\x81";
        let short = b"\x0f\xff";
        for (operation, sources, expected) in [
            (Operation::And, &[&long[..], short][..], &b"\x0f\x0f\0\0\0\0\0\0\0"[..]),
            (Operation::Or, &[short, long], b"\xff\xff\xf0\x3c\xaa\x55\x00\xff\x81"),
            (Operation::Xor, &[short, long], b"\xf0\xf0\xf0\x3c\xaa\x55\x00\xff\x81"),
            (Operation::Xor, &[long, long], &[0; 9]),
            (Operation::Not, &[short], b"\xf0\x00"),
            (Operation::And, &[long], long),
            (Operation::And, &[b"", long], &[0; 9]),
            (Operation::Or, &[b""], b""),
        ] {
            assert_eq!(combine(operation, sources), expected, "{operation:?} {sources:?}");
        }
    }

    #[test]
    fn bits_beyond_the_end_are_zero() {
        assert!(get_bit(b"\x01", 7));
        assert!(!get_bit(b"\x01", 8));
        assert!(!get_bit(b"", u64::MAX));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => Just(0u8), 3 => Just(0xff), 1 => any::<u8>()];
        proptest::collection::vec(byte, 1..80)
    }

    proptest! {
        #[test]
        fn ranges_agree_with_single_bits(
            bytes in bytes(), bit: bool, ends: (prop::sample::Index, prop::sample::Index),
        ) {
            let bits = bytes.len() * 8;
            let (one, other) = (ends.0.index(bits) as u64, ends.1.index(bits) as u64);
            let (first, last) = (one.min(other), one.max(other));
            let mut range = first..=last;
            let expected = range.clone().filter(|offset| get_bit(&bytes, *offset)).count() as u64;
            prop_assert_eq!(count_range(&bytes, first, last), expected);
            let expected = range.find(|offset| get_bit(&bytes, *offset) == bit);
            prop_assert_eq!(find(&bytes, bit, first, last), expected);
            let whole: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
            prop_assert_eq!(count(&bytes), whole);
        }

        #[test]
        fn a_bit_that_was_set_is_there(mut bytes in bytes(), at: prop::sample::Index, bit: bool) {
            let offset = at.index(bytes.len() * 8) as u64;
            let before = bytes.clone();
            prop_assert_eq!(set_bit(&mut bytes, offset, bit), get_bit(&before, offset));
            prop_assert_eq!(get_bit(&bytes, offset), bit);
            let changed: u64 =
                before.iter().zip(&bytes).map(|(old, new)| u64::from((old ^ new).count_ones())).sum();
            prop_assert_eq!(changed, u64::from(get_bit(&before, offset) != bit));
        }
    }
}
