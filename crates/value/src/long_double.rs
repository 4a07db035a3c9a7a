//! The arithmetic of INCRBYFLOAT and HINCRBYFLOAT.
//!
//! Redis computes in C's `long double`, which on x86-64 has a sign, 15 bits of exponent and a
//! mantissa of 64 bits, and prints with seventeen decimals. The replies are part of the protocol,
//! so we compute the same: reading, adding and printing are exact and then rounded once, halves to
//! the even neighbour.
//!
//! Invariant: a finite number is `mantissa * 2^exponent` with `exponent >= EXPONENT_MIN`, and its
//! highest bit is worth at most `2^HIGH_BIT_MAX`.

use thiserror::Error;

use crate::big::Natural;
use crate::float_text::{DecimalText, FloatText, Significand, scan};

/// Bits of the mantissa.
const PRECISION: u32 = 64;

/// The exponent of the last bit of the smallest numbers.
const EXPONENT_MIN: i64 = -16_445;

/// The exponent of the first bit of the largest numbers.
const HIGH_BIT_MAX: i64 = 16_383;

/// Decimals that are printed.
const DECIMALS: usize = 17;

/// Bytes of text that are read, as Redis's buffer has it.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// Decimal exponents beyond which a number of `TEXT_BYTES_MAX` digits is too large or too small.
const DECIMAL_EXPONENT_MAX: i64 = 12_000;

/// Digits of a number of ordinary length: they fit into 64 bits.
const SHORT_DIGITS_MAX: usize = 19;

/// Decimals of a number of ordinary length. 128 bits over a divisor of 57 leave 71.
const SHORT_DECIMALS_MAX: i64 = 17;

/// Why a number could not be incremented. `Display` is Redis's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FloatError {
    /// The value or the increment is no number.
    #[error("ERR value is not a valid float")]
    NotAFloat,
    /// The sum cannot be represented.
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
}

/// A number of x87's extended precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Finite { mantissa: u64, exponent: i64 },
    Infinite,
}

/// Adds two numbers that are written as text and prints the sum, as INCRBYFLOAT does.
///
/// Errors: [`FloatError`]. Cost: about 0.3 us for numbers of ordinary length; both are bounded
/// by 5 KiB.
pub fn increment(value: &[u8], increment: &[u8]) -> Result<String, FloatError> {
    let value = LongDouble::parse(value).ok_or(FloatError::NotAFloat)?;
    let increment = LongDouble::parse(increment).ok_or(FloatError::NotAFloat)?;
    Ok(value.checked_add(increment).ok_or(FloatError::NotFinite)?.print())
}

impl LongDouble {
    /// Zero.
    pub const ZERO: Self = Self {
        negative: false,
        magnitude: Magnitude::Finite { mantissa: 0, exponent: EXPONENT_MIN },
    };

    /// Reads all of `text` as C's `strtold` does, see [`crate::number::parse_f64`] for the syntax.
    /// Infinity is a number here; that no sum may be is the business of [`Self::checked_add`].
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        match scan(text)? {
            FloatText::Infinite { negative } => {
                Some(Self { negative, magnitude: Magnitude::Infinite })
            }
            FloatText::Hexadecimal(number) => Self::round(number.negative, number.significand),
            FloatText::Decimal(number) => Self::round(number.negative, binary(&number)?),
        }
    }

    /// Whether it is not infinite.
    pub fn is_finite(self) -> bool {
        self.magnitude != Magnitude::Infinite
    }

    /// The sum, unless it is infinite or not a number.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let Magnitude::Finite { mantissa: left, exponent: left_exponent } = self.magnitude else {
            return None;
        };
        let Magnitude::Finite { mantissa: right, exponent: right_exponent } = other.magnitude
        else {
            return None;
        };
        if left == 0 || right == 0 {
            let sum = if left == 0 { other } else { self };
            let negative = sum.negative && (left != right || self.negative == other.negative);
            return Some(Self { negative, ..sum });
        }
        // The larger exponent is that of the larger number, or both have the least.
        let (large, large_exponent, small, small_exponent) = if left_exponent >= right_exponent {
            (left, left_exponent, right, right_exponent)
        } else {
            (right, right_exponent, left, left_exponent)
        };
        let (large, small) = (u128::from(large) << 63, u128::from(small) << 63);
        let distance = u32::try_from(large_exponent - small_exponent).unwrap_or(u32::MAX);
        let aligned = small.checked_shr(distance).unwrap_or(0);
        let inexact = aligned.checked_shl(distance).unwrap_or(0) != small;
        let exponent = large_exponent - 63;
        if self.negative == other.negative {
            let significand = Significand { mantissa: large + aligned, exponent, inexact };
            return Self::round(self.negative, significand);
        }
        let large_is_left = left_exponent >= right_exponent;
        let (large_negative, small_negative) = if large_is_left {
            (self.negative, other.negative)
        } else {
            (other.negative, self.negative)
        };
        // What was shifted out takes one more, and leaves a bit of it.
        let (mantissa, negative) = match large.checked_sub(aligned + u128::from(inexact)) {
            Some(difference) => (difference, large_negative),
            None => (aligned - large, small_negative),
        };
        if mantissa == 0 && !inexact {
            return Some(Self::ZERO);
        }
        Self::round(negative, Significand { mantissa, exponent, inexact })
    }

    /// Prints as `%.17Lf` without trailing zeros, and without a minus before zero.
    pub fn print(self) -> String {
        let Magnitude::Finite { mantissa, exponent } = self.magnitude else {
            return if self.negative { "-inf".to_owned() } else { "inf".to_owned() };
        };
        let mut digits = scaled_digits(mantissa, exponent);
        if digits.len() <= DECIMALS {
            digits.insert_str(0, &"0".repeat(DECIMALS + 1 - digits.len()));
        }
        digits.insert(digits.len() - DECIMALS, '.');
        let text = digits.trim_end_matches('0').trim_end_matches('.');
        if self.negative && text != "0" { format!("-{text}") } else { text.to_owned() }
    }

    /// Rounds to the precision. Nothing if it is too large, or too small to be anything but zero.
    fn round(negative: bool, significand: Significand) -> Option<Self> {
        let rounded = significand.round(PRECISION, EXPONENT_MIN)?;
        let bits = i64::from(u64::BITS - rounded.mantissa.leading_zeros());
        if bits > 0 && rounded.exponent + bits - 1 > HIGH_BIT_MAX {
            return None;
        }
        let (mantissa, exponent) = (rounded.mantissa, rounded.exponent);
        Some(Self { negative, magnitude: Magnitude::Finite { mantissa, exponent } })
    }
}

/// The digits of `mantissa * 2^exponent * 10^DECIMALS`, rounded to an integer.
fn scaled_digits(mantissa: u64, exponent: i64) -> String {
    // 64 bits times 10^17, which has 57.
    let scaled = u128::from(mantissa) * 10u128.pow(DECIMALS as u32);
    if exponent >= 0 {
        return Natural::new(scaled).shifted_left(exponent as usize).to_digits();
    }
    let shift = exponent.unsigned_abs() as u32;
    if shift >= u128::BITS {
        // 121 bits at most: less than a half.
        return String::new();
    }
    let (kept, half) = (scaled >> shift, 1u128 << (shift - 1));
    let rest = scaled & ((half - 1) | half);
    let up = rest > half || (rest == half && kept & 1 == 1);
    (kept + u128::from(up)).to_string()
}

/// A decimal number in binary, with more bits than the precision.
fn binary(number: &DecimalText<'_>) -> Option<Significand> {
    let exponent = number.exponent - number.fraction.len() as i64;
    if number.is_zero() {
        return Some(Significand { mantissa: 0, exponent: 0, inexact: false });
    }
    if let Some(significand) = binary_of_short(number, exponent) {
        return Some(significand);
    }
    if exponent.abs() > DECIMAL_EXPONENT_MAX {
        return None;
    }
    let digits = Natural::from_digits(number.whole.iter().chain(number.fraction).copied());
    if exponent >= 0 {
        let mut scaled = digits;
        scaled.multiply_power_of_ten(exponent as usize);
        let (mantissa, below, inexact) = scaled.high_bits();
        return Some(Significand { mantissa, exponent: below as i64, inexact });
    }
    let mut divisor = Natural::new(1);
    divisor.multiply_power_of_ten(exponent.unsigned_abs() as usize);
    // A quotient of 67 or 68 bits: more than the precision needs, and few steps.
    let wanted = divisor.bits() + PRECISION as usize + 3;
    let shift = wanted.saturating_sub(digits.bits());
    if shift > 0 {
        let (mantissa, inexact) = digits.shifted_left(shift).divide(&divisor);
        return Some(Significand { mantissa, exponent: -(shift as i64), inexact });
    }
    // So many digits that the divisor is the one to be shifted.
    let shift = digits.bits() - wanted;
    let (mantissa, inexact) = digits.divide(&divisor.shifted_left(shift));
    Some(Significand { mantissa, exponent: shift as i64, inexact })
}

/// [`binary`] for numbers of ordinary length, in machine integers.
fn binary_of_short(number: &DecimalText<'_>, exponent: i64) -> Option<Significand> {
    let digits = number.whole.iter().chain(number.fraction);
    let is_short = (-SHORT_DECIMALS_MAX..=0).contains(&exponent)
        && number.whole.len() + number.fraction.len() <= SHORT_DIGITS_MAX;
    if !is_short {
        return None;
    }
    let digits = digits.fold(0u128, |number, digit| number * 10 + u128::from(digit - b'0'));
    let shift = digits.leading_zeros();
    let (dividend, divisor) = (digits << shift, 10u128.pow(exponent.unsigned_abs() as u32));
    Some(Significand {
        mantissa: dividend / divisor,
        exponent: -i64::from(shift),
        inexact: dividend % divisor != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn increments_as_redis_does() {
        // From redis-server 7.0.15 on x86-64.
        for (value, step, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3.0", "1.1", "4.1"),
            ("0.1", "0.2", "0.3"),
            ("0", "0", "0"),
            ("-0", "-0", "0"),
            ("1", "-1", "0"),
            ("1.5", "-1.5", "0"),
            ("0", "1e-18", "0"),
            ("0", "-1e-18", "0"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "5e-18", "0"),
            ("0", "5.1e-18", "0.00000000000000001"),
            ("17179869184", "17179869184", "34359738368"),
            ("0x10", "0x.8", "16.5"),
            ("1e20", "1", "100000000000000000000"),
            ("1e19", "1", "10000000000000000001"),
        ] {
            assert_eq!(
                increment(value.as_bytes(), step.as_bytes()).as_deref(),
                Ok(expected),
                "{value} {step}"
            );
        }
    }

    #[test]
    fn refuses_what_redis_refuses() {
        for (value, step, expected) in [
            ("a", "1", FloatError::NotAFloat),
            ("1", " 1", FloatError::NotAFloat),
            ("1", "nan", FloatError::NotAFloat),
            ("1", "1e4933", FloatError::NotAFloat),
            ("1", "1e-4960", FloatError::NotAFloat),
            ("1", "1e99999999999", FloatError::NotAFloat),
            ("1", "inf", FloatError::NotFinite),
            ("-inf", "1", FloatError::NotFinite),
            ("1e4932", "1e4932", FloatError::NotFinite),
        ] {
            assert_eq!(
                increment(value.as_bytes(), step.as_bytes()),
                Err(expected),
                "{value} {step}"
            );
        }
        assert_eq!(
            FloatError::NotFinite.to_string(),
            "ERR increment would produce NaN or Infinity"
        );
        let long = "1".repeat(TEXT_BYTES_MAX - 1500);
        assert!(LongDouble::parse(("0.".to_owned() + &long).as_bytes()).is_some());
        assert!(LongDouble::parse("0".repeat(TEXT_BYTES_MAX + 1).as_bytes()).is_none());
    }

    /// Any finite number, by its bits.
    fn any_number() -> impl Strategy<Value = LongDouble> {
        (any::<bool>(), any::<u64>(), EXPONENT_MIN..=HIGH_BIT_MAX - 63).prop_map(
            |(negative, mantissa, exponent)| {
                let significand =
                    Significand { mantissa: mantissa.into(), exponent, inexact: false };
                LongDouble::round(negative, significand).unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn integers_are_exact(left: i64, right: i64) {
            let sum = i128::from(left) + i128::from(right);
            // All sums of two 64-bit integers have at most 65 bits; those of 64 are exact.
            prop_assume!(sum.unsigned_abs() <= u128::from(u64::MAX));
            prop_assert_eq!(
                increment(left.to_string().as_bytes(), right.to_string().as_bytes()),
                Ok(sum.to_string())
            );
        }

        #[test]
        fn addition_commutes_and_undoes(left in any_number(), right in any_number()) {
            prop_assert_eq!(left.checked_add(right), right.checked_add(left));
            let negated = LongDouble { negative: !left.negative, ..left };
            prop_assert_eq!(left.checked_add(negated), Some(LongDouble::ZERO));
        }

        #[test]
        fn large_numbers_read_back(mantissa: u64, exponent in -10i64..200) {
            let significand = Significand { mantissa: mantissa.into(), exponent, inexact: false };
            let number = LongDouble::round(false, significand).unwrap();
            prop_assert_eq!(LongDouble::parse(number.print().as_bytes()), Some(number));
        }

        #[test]
        fn decimals_agree_with_doubles(text in "[0-9]{1,12}\\.[0-9]{1,12}(e-?[0-9]{1,2})?") {
            // Rounded once more, to a double: may differ from rounding once only in the last bit.
            let number: f64 = text.parse().unwrap();
            if let Magnitude::Finite { mantissa, exponent } = LongDouble::parse(text.as_bytes()).unwrap().magnitude {
                let twice = mantissa as f64 * 2f64.powi(exponent as i32);
                prop_assert!((twice - number).abs() <= number * f64::EPSILON);
            }
        }

        #[test]
        fn short_numbers_are_those_of_the_long_way(text in "0{0,3}[1-9][0-9]{0,7}(\\.[0-9]{0,9})?(e-[0-8])?") {
            // More zeros than the short way takes change nothing else.
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let point = if mantissa.contains('.') { "" } else { "." };
            let long = format!("{mantissa}{point}{}e{exponent}", "0".repeat(SHORT_DIGITS_MAX));
            prop_assert_eq!(LongDouble::parse(text.as_bytes()), LongDouble::parse(long.as_bytes()));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eExXpPinfa]{0,30}") {
            let _ = increment(text.as_bytes(), b"1").map(|sum| increment(sum.as_bytes(), b"-1"));
        }
    }
}
