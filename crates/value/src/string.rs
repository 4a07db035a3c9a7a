//! The encodings that OBJECT ENCODING reports for strings.
//!
//! Kelvin keeps strings in its own way; the names are what clients and their tests expect of a
//! string with these bytes, freshly set.

use crate::number::{INTEGER_BYTES_MAX, parse_i64};

/// Bytes of the longest string that Redis allocates together with its object.
pub const EMBSTR_BYTES_MAX: usize = 44;

/// How Redis would store a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As a 64-bit integer.
    Int,
    /// Together with its object.
    Embstr,
    /// In an allocation of its own.
    Raw,
}

impl Encoding {
    /// The name that OBJECT ENCODING answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
        }
    }
}

/// How Redis would store a string of these bytes.
pub fn encoding_of(bytes: &[u8]) -> Encoding {
    if bytes.len() <= INTEGER_BYTES_MAX && parse_i64(bytes).is_some() {
        Encoding::Int
    } else if bytes.len() <= EMBSTR_BYTES_MAX {
        Encoding::Embstr
    } else {
        Encoding::Raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_as_redis_does() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "embstr"),
            (b"0", "int"),
            (b"-9223372036854775808", "int"),
            (b"9223372036854775808", "embstr"),
            (b"007", "embstr"),
            (b"3.0", "embstr"),
            (&[b'a'; 44], "embstr"),
            (&[b'a'; 45], "raw"),
            (&[b'1'; 45], "raw"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(encoding_of(bytes).name(), *expected, "{}", bytes.escape_ascii());
        }
    }
}
