//! The integers of BITFIELD: of any width up to 64 bits, at any bit of a string.
//!
//! An integer's highest bit comes first. Bits beyond the end of the string are zero.

use std::ops::RangeInclusive;

use crate::number::{parse_i64, parse_u64};

/// Redis's reply to a type that is none.
pub const INVALID_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that \
                                u64 is not supported but i64 is.";

/// Redis's reply to an offset that is none, here and in SETBIT and GETBIT.
pub const INVALID_OFFSET: &str = "ERR bit offset is not an integer or out of range";

/// A type of integers: `i1` to `i64`, `u1` to `u63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerType {
    signed: bool,
    bits: u8,
}

/// What to do with a number that its type cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Keep its lowest bits.
    #[default]
    Wrap,
    /// Take the nearest number that fits.
    Saturate,
    /// Change nothing.
    Fail,
}

impl IntegerType {
    /// Reads a type. `None`: reply [`INVALID_TYPE`].
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (signed, bits) = match text {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return None,
        };
        let bits = parse_i64(bits)?;
        let bits_max = if signed { 64 } else { 63 };
        (1..=bits_max).contains(&bits).then_some(Self { signed, bits: bits as u8 })
    }

    /// How many bits an integer of the type has.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The integers of the type.
    fn range(self) -> RangeInclusive<i128> {
        if self.signed {
            let half = 1i128 << (self.bits - 1);
            -half..=half - 1
        } else {
            0..=(1i128 << self.bits) - 1
        }
    }

    /// `number` as the type holds it, for SET. `None`: it does not fit, and overflow fails.
    /// A negative number is a large one to an unsigned type.
    pub fn fit(self, number: i64, overflow: Overflow) -> Option<i64> {
        let number =
            if self.signed { i128::from(number) } else { i128::from(number.cast_unsigned()) };
        let range = self.range();
        let is_far_below = number < *range.start() && range.end() - number > i128::from(i64::MAX);
        if is_far_below && overflow == Overflow::Saturate {
            // Redis computes the difference in 64 bits, where it wraps, and takes it for above.
            return Some(*range.end() as i64);
        }
        self.fit_wide(number, overflow)
    }

    /// `number + increment` as the type holds it, for INCRBY. `number` is one of the type.
    /// `None`: it does not fit, and overflow fails.
    pub fn add(self, number: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        self.fit_wide(i128::from(number) + i128::from(increment), overflow)
    }

    fn fit_wide(self, number: i128, overflow: Overflow) -> Option<i64> {
        let range = self.range();
        if range.contains(&number) {
            return Some(number as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.interpret(number as u64)),
            Overflow::Saturate => Some(number.clamp(*range.start(), *range.end()) as i64),
            Overflow::Fail => None,
        }
    }

    /// The integer whose bits are the lowest of `bits`.
    fn interpret(self, bits: u64) -> i64 {
        let unused = u32::from(64 - self.bits);
        let high = bits << unused;
        if self.signed { high.cast_signed() >> unused } else { (high >> unused).cast_signed() }
    }
}

/// Reads an offset in bits; `#3` is three times the width of the type, where there is one.
///
/// Bounds: the bit must lie within `bytes_max` bytes (`proto-max-bulk-len`).
/// `None`: reply [`INVALID_OFFSET`].
pub fn parse_offset(text: &[u8], integer: Option<IntegerType>, bytes_max: u64) -> Option<u64> {
    let offset = match (text, integer) {
        ([b'#', index @ ..], Some(integer)) => {
            parse_index(index)?.checked_mul(u64::from(integer.bits))?
        }
        _ => parse_index(text)?,
    };
    // Redis counts in signed integers.
    (offset <= i64::MAX as u64 && offset / 8 < bytes_max).then_some(offset)
}

fn parse_index(text: &[u8]) -> Option<u64> {
    parse_u64(text).filter(|index| *index <= i64::MAX as u64)
}

/// How many bytes a string needs to hold an integer of the type at `offset`.
pub fn bytes_needed(integer: IntegerType, offset: u64) -> u64 {
    (offset + u64::from(integer.bits) - 1) / 8 + 1
}

/// The integer at `offset`.
pub fn get(bytes: &[u8], offset: u64, integer: IntegerType) -> i64 {
    let (window, shift) = read_window(bytes, offset, integer);
    integer.interpret((window >> shift) as u64)
}

/// Puts the integer at `offset`.
///
/// Panics: if the bytes do not reach that far, see [`bytes_needed`]. The caller has grown them.
pub fn set(bytes: &mut [u8], offset: u64, integer: IntegerType, number: i64) {
    let (window, shift) = read_window(bytes, offset, integer);
    let mask = (u128::from(u64::MAX) >> (64 - integer.bits)) << shift;
    let number = (u128::from(number.cast_unsigned()) << shift) & mask;
    let window = (window & !mask | number).to_be_bytes();
    let first = (offset / 8) as usize;
    let count = bytes_needed(integer, offset) as usize - first;
    bytes[first..first + count].copy_from_slice(&window[..count]);
}

/// Sixteen bytes from the one with the first bit on, and by how much the integer is shifted in
/// them. It has at most nine bytes.
fn read_window(bytes: &[u8], offset: u64, integer: IntegerType) -> (u128, u32) {
    let mut window = [0; size_of::<u128>()];
    let first = usize::try_from(offset / 8).unwrap_or(usize::MAX);
    if let Some(present) = bytes.get(first..) {
        let count = present.len().min(window.len());
        window[..count].copy_from_slice(&present[..count]);
    }
    let shift = u128::BITS - (offset % 8) as u32 - u32::from(integer.bits);
    (u128::from_be_bytes(window), shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bits::get_bit;

    fn integer(text: &str) -> IntegerType {
        IntegerType::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn reads_types() {
        assert_eq!(integer("i8"), IntegerType { signed: true, bits: 8 });
        assert_eq!(integer("u63"), IntegerType { signed: false, bits: 63 });
        assert_eq!(integer("i64").bits(), 64);
        for text in ["", "i", "u", "i0", "u0", "i65", "u64", "x8", "8", "i08", "i8 ", "I8", "i-1"] {
            assert_eq!(IntegerType::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn reads_offsets() {
        let bytes_max = 512 << 20;
        for (text, expected) in [
            ("0", Some(0)),
            ("4294967295", Some(4_294_967_295)),
            ("4294967296", None),
            ("#3", Some(24)),
            ("#536870911", Some(4_294_967_288)),
            ("#536870912", None),
            ("#9223372036854775807", None),
            ("-1", None),
            ("#-1", None),
            ("##1", None),
            ("#", None),
            ("1.0", None),
            ("18446744073709551615", None),
        ] {
            let offset = parse_offset(text.as_bytes(), Some(integer("i8")), bytes_max);
            assert_eq!(offset, expected, "{text}");
        }
        assert_eq!(parse_offset(b"#1", None, bytes_max), None);
    }

    #[test]
    fn overflows_as_redis_does() {
        use Overflow::{Fail, Saturate, Wrap};
        for (kind, number, increment, overflow, expected) in [
            ("u8", 250, 10, Wrap, Some(4)),
            ("u8", 250, 10, Saturate, Some(255)),
            ("u8", 250, 10, Fail, None),
            ("u8", 5, -10, Wrap, Some(251)),
            ("u8", 5, -10, Saturate, Some(0)),
            ("u8", 245, 10, Fail, Some(255)),
            ("i8", 120, 10, Wrap, Some(-126)),
            ("i8", 120, 10, Saturate, Some(127)),
            ("i8", -120, -10, Wrap, Some(126)),
            ("i8", -120, -10, Saturate, Some(-128)),
            ("i8", -120, -10, Fail, None),
            ("i64", i64::MAX, 1, Wrap, Some(i64::MIN)),
            ("i64", i64::MAX, 1, Saturate, Some(i64::MAX)),
            ("i64", i64::MIN, -1, Saturate, Some(i64::MIN)),
            ("u63", i64::MAX, 1, Wrap, Some(0)),
            ("u63", i64::MAX, i64::MAX, Saturate, Some(i64::MAX)),
            ("i1", 0, 1, Wrap, Some(-1)),
            ("u1", 0, i64::MIN, Wrap, Some(0)),
        ] {
            let sum = integer(kind).add(number, increment, overflow);
            assert_eq!(sum, expected, "{kind} {number} {increment} {overflow:?}");
        }
        // To SET, a negative number is a large one where there are no negative ones.
        assert_eq!(integer("u8").fit(-1, Saturate), Some(255));
        assert_eq!(integer("u8").fit(-1, Wrap), Some(255));
        assert_eq!(integer("u8").fit(-1, Fail), None);
        assert_eq!(integer("i8").fit(-129, Saturate), Some(-128));
        assert_eq!(integer("i8").fit(128, Wrap), Some(-128));
        assert_eq!(integer("i8").fit(i64::MIN + 128, Saturate), Some(-128));
        assert_eq!(integer("i8").fit(i64::MIN + 127, Saturate), Some(127));
        assert_eq!(integer("i64").fit(i64::MIN, Saturate), Some(i64::MIN));
    }

    proptest! {
        #[test]
        fn what_is_set_is_there_and_nothing_else_changes(
            before in proptest::collection::vec(any::<u8>(), 20..40),
            offset in 0u64..90, signed: bool, bits in 1u8..=63, number: i64,
        ) {
            let integer = IntegerType { signed, bits };
            let number = integer.fit(number, Overflow::Wrap).unwrap();
            let mut after = before.clone();
            set(&mut after, offset, integer, number);
            prop_assert_eq!(get(&after, offset, integer), number);
            for position in 0..before.len() as u64 * 8 {
                if !(offset..offset + u64::from(bits)).contains(&position) {
                    prop_assert_eq!(get_bit(&after, position), get_bit(&before, position));
                }
            }
        }

        #[test]
        fn reads_bit_by_bit(
            bytes in proptest::collection::vec(any::<u8>(), 0..12),
            offset in 0u64..120, signed: bool, bits in 1u8..=63,
        ) {
            let expected = (offset..offset + u64::from(bits))
                .fold(0i128, |number, position| number * 2 + i128::from(get_bit(&bytes, position)));
            let negative = signed && get_bit(&bytes, offset);
            let expected = if negative { expected - (1 << bits) } else { expected };
            let number = get(&bytes, offset, IntegerType { signed, bits });
            prop_assert_eq!(i128::from(number), expected);
        }

        #[test]
        fn the_needed_bytes_are_enough(offset in 0u64..100, bits in 1u8..=63) {
            let integer = IntegerType { signed: false, bits };
            let mut bytes = vec![0; bytes_needed(integer, offset) as usize];
            set(&mut bytes, offset, integer, i64::MAX >> (63 - bits));
            prop_assert_eq!(crate::bits::count(&bytes), u64::from(bits));
            prop_assert_ne!(bytes.last(), Some(&0));
        }
    }
}
