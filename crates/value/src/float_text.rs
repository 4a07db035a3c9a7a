//! The spelling of floating point numbers in C, as `strtod` and `strtold` accept it, and the
//! rounding that both share.
//!
//! ```text
//! [+-] ( inf | infinity | digits [. digits] [e [+-] digits] | 0x digits [. digits] [p [+-] digits] )
//! ```
//! Either side of the point may be empty, but not both. Spaces in front, which C passes over, are
//! refused as Redis refuses them; so is anything behind the number. `nan` is no number to Redis.

/// Exponents are read up to here and stay here: a longer one has long been too large to matter,
/// and no text is long enough to bring it back with digits of its own.
const EXPONENT_MAX: i64 = 1 << 50;

/// A number as it was spelled.
#[derive(Debug)]
pub(crate) enum FloatText<'a> {
    /// `inf` or `infinity`.
    Infinite {
        /// Whether a minus stood in front.
        negative: bool,
    },
    /// A decimal number.
    Decimal(DecimalText<'a>),
    /// A hexadecimal number.
    Hexadecimal(HexadecimalText),
}

/// `0.whole fraction * 10^...`: the parts of a decimal number.
#[derive(Debug)]
pub(crate) struct DecimalText<'a> {
    pub(crate) negative: bool,
    /// All of it but the sign.
    pub(crate) text: &'a [u8],
    /// Digits before the point.
    pub(crate) whole: &'a [u8],
    /// Digits behind the point.
    pub(crate) fraction: &'a [u8],
    /// What follows the `e`, within `EXPONENT_MAX`.
    pub(crate) exponent: i64,
}

impl DecimalText<'_> {
    /// Whether all digits are zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.whole.iter().chain(self.fraction).all(|digit| *digit == b'0')
    }
}

/// A hexadecimal number, which is a binary one already.
#[derive(Debug)]
pub(crate) struct HexadecimalText {
    pub(crate) negative: bool,
    pub(crate) significand: Significand,
}

/// `mantissa * 2^exponent`, and a bit more than that when `inexact`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Significand {
    pub(crate) mantissa: u128,
    pub(crate) exponent: i64,
    /// Whether something other than zero lies behind the last bit. The mantissa has then at
    /// least two bits more than any precision that it is rounded to.
    pub(crate) inexact: bool,
}

/// `mantissa * 2^exponent` with as many bits as were asked for, or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounded {
    pub(crate) mantissa: u64,
    pub(crate) exponent: i64,
}

impl Significand {
    /// Rounds to `precision` bits (at most 64), of which the last may not stand below
    /// `exponent_min`; halves go to the even neighbour. `None`: it was not zero and became zero.
    pub(crate) fn round(&self, precision: u32, exponent_min: i64) -> Option<Rounded> {
        if self.mantissa == 0 && !self.inexact {
            return Some(Rounded { mantissa: 0, exponent: exponent_min });
        }
        let bits = i64::from(u128::BITS - self.mantissa.leading_zeros());
        let excess = (bits - i64::from(precision)).max(exponent_min - self.exponent);
        if excess <= 0 {
            // Shifted up as far as precision and exponent allow, so that equal numbers are equal.
            let mantissa = (self.mantissa << -excess) as u64;
            return Some(Rounded { mantissa, exponent: self.exponent + excess });
        }
        if excess > bits {
            // Less than half of the last bit.
            return None;
        }
        let exponent = self.exponent + excess;
        let half = 1u128 << (excess - 1);
        let kept = self.mantissa.checked_shr(excess as u32).unwrap_or(0);
        let rest = self.mantissa & (half | (half - 1));
        let above_half = rest > half || (rest == half && (self.inexact || kept & 1 == 1));
        let mantissa = kept + u128::from(above_half);
        match mantissa {
            0 => None,
            // The carry reached one bit too far; all others are zero.
            carried if carried >> precision == 1 => {
                Some(Rounded { mantissa: (carried >> 1) as u64, exponent: exponent + 1 })
            }
            mantissa => Some(Rounded { mantissa: mantissa as u64, exponent }),
        }
    }
}

/// Reads all of `text` as a number. `None` if it is not spelled as one, or is `nan`.
pub(crate) fn scan(text: &[u8]) -> Option<FloatText<'_>> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(FloatText::Infinite { negative });
    }
    if let [b'0', b'x' | b'X', digits @ ..] = text {
        let significand = scan_hexadecimal(digits)?;
        return Some(FloatText::Hexadecimal(HexadecimalText { negative, significand }));
    }
    let (whole, rest) = take_digits(text, u8::is_ascii_digit);
    let (fraction, rest) = take_fraction(rest, u8::is_ascii_digit);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = scan_exponent(rest, b'e')?;
    Some(FloatText::Decimal(DecimalText { negative, text, whole, fraction, exponent }))
}

fn scan_hexadecimal(text: &[u8]) -> Option<Significand> {
    let (whole, rest) = take_digits(text, u8::is_ascii_hexdigit);
    let (fraction, rest) = take_fraction(rest, u8::is_ascii_hexdigit);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut exponent = scan_exponent(rest, b'p')?;
    let mut mantissa: u128 = 0;
    let mut inexact = false;
    for (index, digit) in whole.iter().chain(fraction).enumerate() {
        let value = char::from(*digit).to_digit(16).expect("invariant: a hexadecimal digit");
        let is_fraction = index >= whole.len();
        if mantissa >> 124 == 0 {
            mantissa = mantissa << 4 | u128::from(value);
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            inexact |= value != 0;
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    Some(Significand { mantissa, exponent, inexact })
}

fn take_digits(text: &[u8], is_digit: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let count = text.iter().take_while(|byte| is_digit(byte)).count();
    text.split_at(count)
}

fn take_fraction(text: &[u8], is_digit: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    match text {
        [b'.', rest @ ..] => take_digits(rest, is_digit),
        rest => (&[], rest),
    }
}

/// Reads the end of a number: nothing, or `marker` and an exponent.
fn scan_exponent(text: &[u8], marker: u8) -> Option<i64> {
    let [first, rest @ ..] = text else {
        return Some(0);
    };
    if first.to_ascii_lowercase() != marker {
        return None;
    }
    let (negative, digits) = match rest {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0, |exponent: i64, digit| {
        (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX)
    });
    Some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_halves_to_even() {
        // (mantissa, inexact, exponent_min) to three bits.
        type Case = (u128, bool, i64, Option<(u64, i64)>);
        let cases: &[Case] = &[
            (0b101, false, -9, Some((0b101, 0))),
            (0b1, false, -9, Some((0b100, -2))),
            (0b1, false, -1, Some((0b10, -1))),
            (0b10110, false, 0, Some((0b110, 2))),
            (0b10010, false, 0, Some((0b100, 2))),
            (0b10010, true, 0, Some((0b101, 2))),
            (0b10011, false, 0, Some((0b101, 2))),
            (0b11110, false, 0, Some((0b100, 3))),
            (0b11101, true, 0, Some((0b111, 2))),
            // The least exponent leaves fewer bits.
            (0b10110, false, 3, Some((0b11, 3))),
            (0b10000, false, 5, None),
            (0b10000, true, 5, Some((1, 5))),
            (0b10001, false, 5, Some((1, 5))),
            (0b11111, false, 6, None),
            (0b11111, false, 99, None),
            (0, false, 5, Some((0, 5))),
            (1 << 127, false, 128, None),
            ((1 << 127) + 1, false, 128, Some((1, 128))),
            (u128::MAX, true, 129, None),
            (u128::MAX, true, 0, Some((0b100, 126))),
        ];
        for (mantissa, inexact, exponent_min, expected) in cases {
            let significand = Significand { mantissa: *mantissa, exponent: 0, inexact: *inexact };
            let rounded = significand.round(3, *exponent_min);
            let expected = expected.map(|(mantissa, exponent)| Rounded { mantissa, exponent });
            assert_eq!(rounded, expected, "{mantissa:b} {inexact} {exponent_min}");
        }
    }
}
