//! Integers and doubles written as text.
//!
//! Redis is strict about integers, because a string that is one is stored as one and must read
//! back byte for byte, and lenient about doubles, which it leaves to C's `strtod`.

use crate::float_text::{FloatText, scan};

/// Bytes of the longest integer: a minus and nineteen digits.
pub const INTEGER_BYTES_MAX: usize = 20;

/// Digits that fit into 64 bits whatever they are.
const SAFE_DIGITS_MAX: usize = 18;

/// The integer that `text` is the one and only spelling of: no plus, no leading zeros, no spaces,
/// no `-0`, in the range of 64 bits.
///
/// Cost: a few nanoseconds for text that is no integer, too, since the first byte or the length
/// usually tells.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > INTEGER_BYTES_MAX {
        return None;
    }
    if text[0] != b'-' {
        return i64::try_from(parse_u64(text)?).ok();
    }
    match parse_u64(&text[1..])? {
        0 => None,
        magnitude => 0i64.checked_sub_unsigned(magnitude),
    }
}

/// As [`parse_i64`], for numbers that have no sign.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > INTEGER_BYTES_MAX || (text[0] == b'0' && text.len() > 1) {
        return None;
    }
    let (safe, rest) = text.split_at(text.len().min(SAFE_DIGITS_MAX));
    let mut number = 0;
    for byte in safe {
        number = number * 10 + digit(*byte)?;
    }
    for byte in rest {
        number = number.checked_mul(10)?.checked_add(digit(*byte)?)?;
    }
    Some(number)
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    let value = byte.wrapping_sub(b'0');
    (value <= 9).then_some(u64::from(value))
}

/// The double that C's `strtod` reads `text` as: decimal or hexadecimal with an optional exponent,
/// or `inf` or `infinity` in any case. All of the text must belong to it. Refused besides: `nan`,
/// and what is not infinite or zero but too large or too small to be anything else.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let (number, is_exact) = read_f64(text)?;
    is_exact.then_some(number)
}

/// As [`parse_f64`], but what is too large is infinite and what is too small is 0.
pub fn parse_f64_of_any_size(text: &[u8]) -> Option<f64> {
    read_f64(text).map(|(number, _)| number)
}

/// The double, and whether it is neither infinite nor 0 but for a text that says so.
fn read_f64(text: &[u8]) -> Option<(f64, bool)> {
    let (negative, magnitude, fits) = match scan(text)? {
        FloatText::Infinite { negative } => (negative, f64::INFINITY, true),
        FloatText::Hexadecimal(number) => {
            let rounded = number.significand.round(f64::MANTISSA_DIGITS, F64_EXPONENT_MIN);
            let (magnitude, fits) = match rounded {
                None => (0.0, false),
                Some(rounded) => match scale(rounded.mantissa, rounded.exponent) {
                    None => (f64::INFINITY, false),
                    Some(magnitude) => (magnitude, true),
                },
            };
            (number.negative, magnitude, fits)
        }
        FloatText::Decimal(number) => {
            // Rust reads a subset of what C reads, and rounds as well as it does.
            let magnitude: f64 = std::str::from_utf8(number.text).ok()?.parse().ok()?;
            let fits = magnitude.is_finite() && (magnitude != 0.0 || number.is_zero());
            (number.negative, magnitude, fits)
        }
    };
    Some((if negative { -magnitude } else { magnitude }, fits))
}

/// The exponent of a double's last bit when it is smallest.
const F64_EXPONENT_MIN: i64 = -1074;

/// `mantissa * 2^exponent`, which a double can represent unless it is too large.
fn scale(mantissa: u64, exponent: i64) -> Option<f64> {
    if mantissa == 0 {
        return Some(0.0);
    }
    let high_bit = i64::from(mantissa.ilog2()) + exponent;
    if high_bit > i64::from(f64::MAX_EXP) - 1 {
        return None;
    }
    // Two exact steps: no single power of two spans the whole range.
    let first = exponent.clamp(-1000, 900);
    let power = |exponent: i64| 2f64.powi(exponent as i32);
    Some(mantissa as f64 * power(first) * power(exponent - first))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_integers_that_read_back() {
        let cases: &[(&str, Option<i64>)] = &[
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("10", Some(10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("18446744073709551615", None),
            ("99999999999999999999", None),
            ("123456789012345678901", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("1\0", None),
            ("--1", None),
            ("0x1", None),
            ("a", None),
            ("1234567890123456789a", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_i64(text.as_bytes()), *expected, "{text:?}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"-1"), None);
    }

    #[test]
    fn parses_doubles_as_c_does() {
        let cases: &[(&str, Option<f64>)] = &[
            ("0", Some(0.0)),
            ("1.5", Some(1.5)),
            ("+1.5", Some(1.5)),
            ("-1.5e3", Some(-1500.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("007", Some(7.0)),
            ("1E2", Some(100.0)),
            ("0x10", Some(16.0)),
            ("0X.8p1", Some(1.0)),
            ("-0x1.8p-1", Some(-0.75)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1p1024", None),
            ("0x1p-1076", None),
            ("0x1.00000000000008p0", Some(1.0)),
            ("0x1.000000000000081p0", Some(1.0 + f64::EPSILON)),
            ("0x0p99999999999999999999", Some(0.0)),
            ("5e-324", Some(5e-324)),
            ("inf", Some(f64::INFINITY)),
            ("-INFinity", Some(f64::NEG_INFINITY)),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("0.000e999999999999999999999", Some(0.0)),
            ("nan", None),
            ("", None),
            ("+", None),
            (".", None),
            ("1e", None),
            ("1e+", None),
            ("0x", None),
            ("0x.", None),
            ("0x1p", None),
            (" 1", None),
            ("1 ", None),
            ("1\0", None),
            ("1_0", None),
            ("infinit", None),
            ("--1", None),
            ("1d", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_f64(text.as_bytes()), *expected, "{text:?}");
        }
        assert!(parse_f64(b"-0").is_some_and(|zero| zero.is_sign_negative()));
    }

    proptest! {
        #[test]
        fn integers_read_back(number in any::<i64>()) {
            prop_assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn what_is_parsed_is_the_only_spelling(text in "[-+ 0-9]{0,22}") {
            if let Some(number) = parse_i64(text.as_bytes()) {
                prop_assert_eq!(number.to_string(), text);
            } else {
                // Nothing was refused that Rust would print this way.
                prop_assert!(!text.parse::<i64>().is_ok_and(|number| number.to_string() == text));
            }
        }

        #[test]
        fn hexadecimal_doubles_are_exact(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_normal());
            let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
            let sign = if number < 0.0 { "-" } else { "" };
            let text = format!("{sign}0x1.{:013x}p{exponent}", bits & ((1 << 52) - 1));
            prop_assert_eq!(parse_f64(text.as_bytes()), Some(number));
        }

        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_i64(&text), parse_u64(&text), parse_f64(&text));
        }
    }
}
