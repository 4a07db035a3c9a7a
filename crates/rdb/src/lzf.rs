//! What a compressed string is (LZF): pieces, each behind a byte that says what it is.
//!
//! ```text
//! 000lllll                        l + 1 bytes follow as they are
//! llloooooo oooooooo              l + 2 bytes (l from 1 to 6) are those o + 1 back; o has 13 bits, the high ones first
//! 111ooooo llllllll oooooooo      l + 9 bytes are those o + 1 back
//! ```
//!
//! A copy may reach into what it makes itself.

use crate::error::Error;

const MALFORMED: Error = Error::Malformed("compressed string");

const LITERALS_MAX: usize = 32;
const OFFSET_HIGH_BITS: u8 = 0b1_1111;
const LENGTH_SHIFT: u32 = 5;
const LONG: usize = 7;
/// Bytes of the longest copy, and of what stands for it.
const COPY_BYTES_MAX: u64 = 255 + 9;
const COPY_CODE_BYTES: u64 = 3;

/// Most bytes that compressed ones can come to.
pub(crate) fn bytes_max(compressed: u64) -> u64 {
    (compressed / COPY_CODE_BYTES + 1).saturating_mul(COPY_BYTES_MAX)
}

/// Makes the `len` bytes that compressed ones stand for behind what `out` holds.
///
/// Errors: they do not come to that.
pub(crate) fn decompress(mut input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    let end = start + len;
    out.reserve(len);
    while let Some((&first, rest)) = input.split_first() {
        input = rest;
        if usize::from(first) < LITERALS_MAX {
            let (literals, rest) =
                input.split_at_checked(usize::from(first) + 1).ok_or(MALFORMED)?;
            if out.len() + literals.len() > end {
                return Err(MALFORMED);
            }
            out.extend_from_slice(literals);
            input = rest;
            continue;
        }
        let mut next = || {
            let (&byte, rest) = input.split_first().ok_or(MALFORMED)?;
            input = rest;
            Ok(usize::from(byte))
        };
        let mut count = usize::from(first >> LENGTH_SHIFT);
        if count == LONG {
            count += next()?;
        }
        let back = (usize::from(first & OFFSET_HIGH_BITS) << 8 | next()?) + 1;
        let count = count + 2;
        if back > out.len() - start || out.len() + count > end {
            return Err(MALFORMED);
        }
        copy_within(out, back, count);
    }
    if out.len() == end { Ok(()) } else { Err(MALFORMED) }
}

/// Appends `count` bytes, of which the first is that so far `back`.
fn copy_within(out: &mut Vec<u8>, back: usize, count: usize) {
    let from = out.len() - back;
    let mut left = count;
    while left > 0 {
        // What was copied can be copied again: each step takes twice as much.
        let step = left.min(out.len() - from);
        out.extend_from_within(from..from + step);
        left -= step;
    }
}

/// Sequences that were met are found by three bytes, in a table of so many places: as many as the input has bytes,
/// within bounds, since to clear a large table takes longer than a short input.
const TABLE_BITS_MIN: u32 = 8;
const TABLE_BITS_MAX: u32 = 14;
const OFFSET_MAX: usize = 1 << 13;
const COPY_MAX: usize = COPY_BYTES_MAX as usize;
/// Where nothing was found so many times in a row, 64, it is looked for at every second byte, then at every third, and so on up
/// to every 16th. So what has no copies is passed over quickly, as in LZ4, and what has some loses few. (It was 59 % of the CPU
/// of a BGSAVE of random values of 2 KiB, and is 23 %.)
const MISSES_SHIFT: u32 = 6;
const STEP_MAX: usize = 16;

/// Appends the compressed form of bytes to `out`, unless it is longer than `bytes_max`: then `out` is as it was.
/// Returns whether it did.
pub(crate) fn compress(input: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let bits = (input.len() + 1).ilog2().clamp(TABLE_BITS_MIN, TABLE_BITS_MAX);
    let mut table = vec![u32::MAX; 1 << bits];
    let (mut at, mut literals_from, mut misses) = (0, 0, 0);
    while at + 2 < input.len() {
        let place = place_of(&input[at..at + 3], bits);
        let before = std::mem::replace(&mut table[place], at as u32) as usize;
        let is_match = before < at
            && at - before <= OFFSET_MAX
            && input[before..before + 3] == input[at..at + 3];
        if !is_match {
            at += (1 + (misses >> MISSES_SHIFT)).min(STEP_MAX);
            misses += 1;
            if out.len() - start > bytes_max {
                break;
            }
            continue;
        }
        let longest = (input.len() - at).min(COPY_MAX);
        let same = (3..longest).take_while(|&more| input[before + more] == input[at + more]);
        let count = 3 + same.count();
        put_literals(&input[literals_from..at], out);
        put_copy(at - before - 1, count, out);
        at += count;
        (literals_from, misses) = (at, 0);
    }
    put_literals(&input[literals_from..], out);
    let fits = out.len() - start <= bytes_max;
    if !fits {
        out.truncate(start);
    }
    fits
}

fn place_of(three: &[u8], bits: u32) -> usize {
    let number = u32::from_be_bytes([0, three[0], three[1], three[2]]);
    (number.wrapping_mul(0x9E37_79B1) >> (u32::BITS - bits)) as usize
}

fn put_literals(literals: &[u8], out: &mut Vec<u8>) {
    for piece in literals.chunks(LITERALS_MAX) {
        out.push(piece.len() as u8 - 1);
        out.extend_from_slice(piece);
    }
}

fn put_copy(offset: usize, count: usize, out: &mut Vec<u8>) {
    let (high, low) = ((offset >> 8) as u8, offset as u8);
    match count - 2 {
        short if short < LONG => out.extend([(short as u8) << LENGTH_SHIFT | high, low]),
        long => out.extend([(LONG as u8) << LENGTH_SHIFT | high, (long - LONG) as u8, low]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decompressed(input: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        let mut out = b"before".to_vec();
        decompress(input, len, &mut out)?;
        assert!(out.starts_with(b"before"));
        Ok(out.split_off(6))
    }

    #[test]
    fn literals_and_copies() {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"", b""),
            (b"\x02abc", b"abc"),
            (b"\x02abc\x20\x02", b"abcabc"),
            // A copy of what it makes itself.
            (b"\x00a\xe0\x01\x00", b"aaaaaaaaaaa"),
            (b"\x01ab\x40\x01\x00c", b"abababc"),
        ];
        for (input, expected) in cases {
            assert_eq!(decompressed(input, expected.len()).as_deref(), Ok(expected));
            for wrong in [expected.len() + 1, expected.len().wrapping_sub(1)] {
                assert!(wrong > 100 || decompressed(input, wrong).is_err(), "{input:?} {wrong}");
            }
        }
        // In front of the beginning, and cut off.
        for input in [&b"\x00a\x20\x01"[..], b"\x05ab", b"\x00a\xe0\x01", b"\x00a\xe0", b"\x20"] {
            assert_eq!(decompressed(input, 100), Err(MALFORMED), "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            pieces in prop::collection::vec((prop::collection::vec(0u8..4, 1..20), 1usize..40), 0..40),
        ) {
            let input: Vec<u8> =
                pieces.iter().flat_map(|(piece, times)| piece.repeat(*times)).collect();
            let mut out = Vec::new();
            prop_assert!(compress(&input, usize::MAX, &mut out));
            prop_assert!(input.len() as u64 <= bytes_max(out.len() as u64));
            prop_assert_eq!(decompressed(&out, input.len()), Ok(input.clone()));
            let mut none = vec![1];
            prop_assert!(!compress(&input, out.len().wrapping_sub(1), &mut none) || out.is_empty());
            prop_assert!(out.is_empty() || none == [1]);
        }

        #[test]
        fn anything_is_read_or_refused(input: Vec<u8>, len in 0usize..1_000) {
            if let Ok(bytes) = decompressed(&input, len) {
                prop_assert_eq!(bytes.len(), len);
            }
        }
    }
}
