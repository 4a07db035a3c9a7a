//! Ziplists, which listpacks have replaced.
//!
//! ```text
//! bytes of all of it (4), where the last value begins (4), values (2; 65535: more than that says), values, 11111111
//! value: bytes of the value in front (1, or 254 and 4 bytes), encoding
//! encoding:
//! 00llllll, bytes                      a string of up to 63
//! 01llllll llllllll, bytes             a string of up to 16,383, the high bits of the length first
//! 10000000, 4 bytes, bytes             a string, behind its length, the high byte first
//! 11000000 11010000 11100000           an integer of 2, 4 or 8 bytes that follow
//! 11110000 11111110                    an integer of 3 bytes, or of 1
//! 11110001 to 11111101                 an integer from 0 to 12
//! ```
//!
//! The low byte comes first unless something else is said.

use crate::error::Error;
use crate::packed::{Value, signed};

const MALFORMED: Error = Error::Malformed("ziplist");

const HEAD_BYTES: usize = 10;
const LAST_AT: usize = 4;
const COUNT_AT: usize = 8;
const COUNT_UNKNOWN: u16 = u16::MAX;
const END: u8 = 0xff;
const LONG_BEFORE: u8 = 254;

/// A ziplist to be read from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Ziplist<'a> {
    /// What is left, with the byte at the end.
    rest: &'a [u8],
    /// Bytes of the value that was read last, 0 before the first.
    before: usize,
    /// Bytes of the last value, as the head says.
    last: usize,
    /// Values that are to come, if that is known.
    left: Option<u16>,
}

impl<'a> Ziplist<'a> {
    /// Errors: the head does not fit.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Ziplist<'a>, Error> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(MALFORMED)?;
        let number = |at: usize| signed(&head[at..at + 4]) as u32 as usize;
        let (len, last_at) = (number(0), number(LAST_AT));
        let count = u16::from_le_bytes([head[COUNT_AT], head[COUNT_AT + 1]]);
        if len != bytes.len() || rest.is_empty() {
            return Err(MALFORMED);
        }
        let last = (len - 1).checked_sub(last_at).ok_or(MALFORMED)?;
        Ok(Ziplist { rest, before: 0, last, left: (count != COUNT_UNKNOWN).then_some(count) })
    }

    /// The next value. None: the end.
    pub(crate) fn next(&mut self) -> Result<Option<Value<'a>>, Error> {
        let (&first, behind) = self.rest.split_first().ok_or(MALFORMED)?;
        if first == END {
            // An empty one says anything of its last value.
            let is_whole = behind.is_empty()
                && self.left.is_none_or(|left| left == 0)
                && (self.before == 0 || self.before == self.last);
            return if is_whole { Ok(None) } else { Err(MALFORMED) };
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(MALFORMED)?;
        }
        let (before, head_bytes) = match first {
            LONG_BEFORE => (signed(behind.get(..4).ok_or(MALFORMED)?) as u32 as usize, 5),
            short => (usize::from(short), 1),
        };
        if before != self.before {
            return Err(MALFORMED);
        }
        let (value, len) = decode(&self.rest[head_bytes..])?;
        self.before = head_bytes + len;
        self.rest = &self.rest[self.before..];
        Ok(Some(value))
    }
}

/// The value at the beginning of some bytes, and the bytes of its encoding.
fn decode(bytes: &[u8]) -> Result<(Value<'_>, usize), Error> {
    let (&first, behind) = bytes.split_first().ok_or(MALFORMED)?;
    let string = |from: usize, len: usize| -> Result<(Value<'_>, usize), Error> {
        let end = from.checked_add(len).ok_or(MALFORMED)?;
        Ok((Value::Bytes(behind.get(from..end).ok_or(MALFORMED)?), 1 + end))
    };
    let integer = |len: usize| -> Result<(Value<'_>, usize), Error> {
        Ok((Value::Integer(signed(behind.get(..len).ok_or(MALFORMED)?)), 1 + len))
    };
    match first {
        0..0x40 => string(0, usize::from(first)),
        0x40..0x80 => {
            let low = *behind.first().ok_or(MALFORMED)?;
            string(1, usize::from(first & 0x3f) << 8 | usize::from(low))
        }
        0x80 => {
            let len = behind.first_chunk::<4>().ok_or(MALFORMED)?;
            string(4, u32::from_be_bytes(*len) as usize)
        }
        0xc0 => integer(2),
        0xd0 => integer(4),
        0xe0 => integer(8),
        0xf0 => integer(3),
        0xfe => integer(1),
        0xf1..=0xfd => Ok((Value::Integer(i64::from(first & 0x0f) - 1), 1)),
        _ => Err(MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(bytes: &[u8]) -> Result<Vec<Value<'_>>, Error> {
        let mut ziplist = Ziplist::new(bytes)?;
        let mut values = Vec::new();
        while let Some(value) = ziplist.next()? {
            values.push(value);
        }
        Ok(values)
    }

    /// A ziplist of these encodings.
    fn ziplist_of(encodings: &[&[u8]]) -> Vec<u8> {
        let (mut body, mut before) = (Vec::new(), 0);
        for encoding in encodings {
            let start = body.len();
            match before {
                0..254 => body.push(before as u8),
                _ => body.extend([&[LONG_BEFORE][..], &(before as u32).to_le_bytes()].concat()),
            }
            body.extend_from_slice(encoding);
            before = body.len() - start;
        }
        let len = (HEAD_BYTES + body.len() + 1) as u32;
        let count = encodings.len() as u16;
        let last = len - 1 - before as u32;
        let head = [len.to_le_bytes(), last.to_le_bytes()].concat();
        let head = [&head[..], &count.to_le_bytes()].concat();
        [&head[..], &body, &[END]].concat()
    }

    #[test]
    fn values_of_every_encoding_are_read() {
        let (middle, long) = (vec![b'm'; 300], vec![b'l'; 20_000]);
        let bytes = ziplist_of(&[
            b"\x03abc",
            &[b"\x41\x2c", &middle[..]].concat(),
            &[b"\x80\x00\x00\x4e\x20", &long[..]].concat(),
            b"\xc0\xff\xff",
            b"\xd0\x00\x00\x01\x00",
            b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
            b"\xf0\x00\x00\x80",
            b"\xfe\x80",
            b"\xf1",
            b"\xfd",
        ]);
        let expected = [
            Value::Bytes(b"abc"),
            Value::Bytes(&middle),
            Value::Bytes(&long),
            Value::Integer(-1),
            Value::Integer(65_536),
            Value::Integer(i64::MIN),
            Value::Integer(-(1 << 23)),
            Value::Integer(-128),
            Value::Integer(0),
            Value::Integer(12),
        ];
        assert_eq!(values(&bytes).as_deref(), Ok(&expected[..]));
        // The example of Redis's own description.
        let bytes = b"\x0f\0\0\0\x0c\0\0\0\x02\0\x00\xf3\x02\xf6\xff";
        assert_eq!(values(bytes), Ok(vec![Value::Integer(2), Value::Integer(5)]));
        for at in 0..bytes.len() {
            assert!(values(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn where_the_last_value_begins_is_as_the_head_says() {
        let mut bytes = ziplist_of(&[b"\xf1", b"\xf2"]);
        assert!(values(&bytes).is_ok());
        for last in [0, 2, 10, 11, 13, 14, 15, u32::MAX] {
            bytes[4..8].copy_from_slice(&last.to_le_bytes());
            assert_eq!(values(&bytes), Err(MALFORMED), "{last}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(encodings: Vec<Vec<u8>>, at: usize, byte: u8) {
            let encodings: Vec<&[u8]> = encodings.iter().map(Vec::as_slice).collect();
            let mut bytes = ziplist_of(&encodings);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(values) = values(&bytes) {
                prop_assert!(values.len() <= bytes.len());
            }
        }
    }
}
