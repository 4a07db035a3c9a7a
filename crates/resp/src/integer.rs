//! Integers in headers, as both sides of the protocol write them.

/// A decimal integer as Redis reads it: no sign but a minus, no leading zeros, no `-0`, in the
/// range of 64 bits.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits == b"0" && !negative {
        return Some(0);
    }
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    // Counted downwards, because the negative range is the longer one.
    let mut number: i64 = 0;
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(i64::from(value))?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_writes_and_nothing_else() {
        let cases: &[(&str, Option<i64>)] = &[
            ("0", Some(0)),
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1:", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_integer(text.as_bytes()), *expected, "{text:?}");
        }
    }
}
