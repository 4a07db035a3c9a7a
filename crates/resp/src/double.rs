//! Doubles as text, the way Redis 7.0 prints them: C's `%.17g`.
//!
//! Seventeen significant digits, correctly rounded, trailing zeros dropped, an exponent of at
//! least two digits below 1e-4 and from 1e17 on: `3`, `0.10000000000000001`, `1e+100`, `-0`,
//! `inf`. (Redis 7.2 went over to the shortest digits that read back; 7.0 is what we match.)

use std::fmt::Write;

/// Significant digits.
const PRECISION: usize = 17;

/// `-0.0000` and seventeen digits, or `-d.dddddddddddddddde-308`: both are shorter.
const TEXT_BYTES_MAX: usize = 32;

/// From here on a number is printed with an exponent.
const WHOLE_MAX: f64 = 1e17;

/// The integer that a number is, if it is printed as one: no digits are searched for then. A negative zero is none.
fn whole_number(number: f64) -> Option<i64> {
    let whole = number as i64;
    let is_whole = number.abs() < WHOLE_MAX && whole as f64 == number;
    (is_whole && (whole != 0 || number.is_sign_positive())).then_some(whole)
}

/// A double as text, on the stack.
#[derive(Clone, Copy)]
pub struct DoubleText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl DoubleText {
    /// Prints `number`.
    pub fn new(number: f64) -> Self {
        let mut text = Self { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        if number.is_nan() {
            text.push(b"nan");
        } else if number.is_infinite() {
            text.push(if number > 0.0 { b"inf" } else { b"-inf" });
        } else if let Some(whole) = whole_number(number) {
            text.push(itoa::Buffer::new().format(whole).as_bytes());
        } else {
            text.push_finite(number);
        }
        text
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push_finite(&mut self, number: f64) {
        // `-d.dddddddddddddddde-308`: all that remains is to choose the form.
        let mut scientific = Self { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        write!(scientific, "{:.*e}", PRECISION - 1, number).expect("invariant: the text fits");
        let (mantissa, exponent) = scientific.parts();
        if number.is_sign_negative() {
            self.push(b"-");
        }
        let mut digits = [0; PRECISION];
        digits[0] = mantissa[0];
        digits[1..].copy_from_slice(&mantissa[2..]);
        let significant =
            PRECISION - digits.iter().rev().take_while(|digit| **digit == b'0').count();
        let digits = &digits[..significant.max(1)];
        if exponent < -4 || exponent >= PRECISION as i32 {
            self.push_scientific(digits, exponent);
        } else {
            self.push_fixed(digits, exponent);
        }
    }

    /// Mantissa without sign, and the exponent, of Rust's scientific form.
    fn parts(&self) -> (&[u8], i32) {
        let text = std::str::from_utf8(self.as_bytes()).expect("invariant: digits are ASCII");
        let (mantissa, exponent) =
            text.trim_start_matches('-').split_once('e').expect("invariant: has an exponent");
        (mantissa.as_bytes(), exponent.parse().expect("invariant: the exponent is a number"))
    }

    fn push_scientific(&mut self, digits: &[u8], exponent: i32) {
        self.push(&digits[..1]);
        if digits.len() > 1 {
            self.push(b".");
            self.push(&digits[1..]);
        }
        write!(self, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
            .expect("invariant: the text fits");
    }

    fn push_fixed(&mut self, digits: &[u8], exponent: i32) {
        if exponent < 0 {
            self.push(b"0.");
            self.push(&b"000"[..(-exponent - 1) as usize]);
            self.push(digits);
            return;
        }
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            self.push(digits);
            self.push(&[b'0'; PRECISION][..whole - digits.len()]);
            return;
        }
        self.push(&digits[..whole]);
        self.push(b".");
        self.push(&digits[whole..]);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl Write for DoubleText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if text.len() > TEXT_BYTES_MAX - self.len {
            return Err(std::fmt::Error);
        }
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(number: f64) -> String {
        String::from_utf8(DoubleText::new(number).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn prints_as_redis_does() {
        // Taken from redis-server 7.0.15 and from C's printf.
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.1, "0.10000000000000001"),
            (2.625, "2.625"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e16, "10000000000000000"),
            (12345678901234567.0, "12345678901234568"),
            (-99999999999999984.0, "-99999999999999984"),
            (-1e17, "-1e+17"),
            (1e17, "1e+17"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (1e21, "1e+21"),
            (1e100, "1e+100"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN, "-1.7976931348623157e+308"),
            // Ties at the last digit go to the even one.
            (0.5f64.powi(25), "2.9802322387695312e-08"),
            (3.0 * 0.5f64.powi(25), "8.9406967163085938e-08"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, expected) in cases {
            assert_eq!(text(number), expected);
        }
    }

    proptest! {
        #[test]
        fn reads_back_as_the_same_number(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(!number.is_nan());
            prop_assert_eq!(text(number).parse::<f64>().unwrap().to_bits(), bits);
        }

        #[test]
        fn integers_have_no_point(number in -100_000_000_000_000_000i64 + 1..100_000_000_000_000_000) {
            prop_assert_eq!(text(number as f64), (number as f64 as i64).to_string());
        }
    }
}
