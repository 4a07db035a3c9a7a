//! Listpacks.
//!
//! ```text
//! bytes of all of it (4), values (2; 65535: more than that says), values, 11111111
//! value: encoding, bytes of the encoding with what belongs to it (1 to 5 bytes)
//! encoding:
//! 0xxxxxxx                           an integer up to 127
//! 110xxxxx xxxxxxxx                  an integer of 13 bits with a sign, the high bits first
//! 11110001 to 11110100               an integer of 2, 3, 4 or 8 bytes that follow
//! 10llllll, bytes                    a string of up to 63
//! 1110llll llllllll, bytes           a string of up to 4,095, the high bits of the length first
//! 11110000, 4 bytes, bytes           a string, behind its length
//! ```
//!
//! The low byte comes first unless something else is said. The bytes of an encoding are told in 7 bits a byte,
//! the high ones first, the high bit set in all but the first: they are read from the end.

use value::parse_i64;

use crate::error::Error;
use crate::length;
use crate::packed::{Value, signed};

const MALFORMED: Error = Error::Malformed("listpack");

const HEAD_BYTES: usize = 6;
const COUNT_AT: usize = 4;
const COUNT_UNKNOWN: u16 = u16::MAX;
const END: u8 = 0xff;
/// Texts from this length on have it in 4 bytes.
const LONG_TEXT_BYTES: usize = 4_096;

const INT13: u8 = 0b1100_0000;
const STRING_6_BITS: u8 = 0b1000_0000;
const STRING_12_BITS: u8 = 0b1110_0000;
const STRING_32_BITS: u8 = 0b1111_0000;
const INT16: u8 = 0xf1;
const INT24: u8 = 0xf2;
const INT32: u8 = 0xf3;
const INT64: u8 = 0xf4;

/// From how many bytes on an encoding's length takes a byte more.
const BACK_LIMITS: [usize; 4] = [128, 16_383, 2_097_151, 268_435_455];
const BACK_BYTES_MAX: usize = 5;

/// A listpack to be read from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Listpack<'a> {
    /// What is left, with the byte at the end.
    rest: &'a [u8],
    /// Values that are to come, if that is known.
    left: Option<u16>,
}

impl<'a> Listpack<'a> {
    /// Errors: the head does not fit.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Listpack<'a>, Error> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(MALFORMED)?;
        let len = signed(&head[..COUNT_AT]) as u32;
        let count = u16::from_le_bytes([head[COUNT_AT], head[COUNT_AT + 1]]);
        if len as usize != bytes.len() || rest.is_empty() {
            return Err(MALFORMED);
        }
        Ok(Listpack { rest, left: (count != COUNT_UNKNOWN).then_some(count) })
    }

    /// The next value. None: the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Value<'a>>, Error> {
        let (&first, behind) = self.rest.split_first().ok_or(MALFORMED)?;
        if first == END {
            let is_whole = behind.is_empty() && self.left.is_none_or(|left| left == 0);
            return if is_whole { Ok(None) } else { Err(MALFORMED) };
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(MALFORMED)?;
        }
        let (value, len) = decode(first, behind)?;
        let (back, back_bytes) = back_of(len);
        let after = &self.rest[len..];
        if !after.starts_with(&back[..back_bytes]) {
            return Err(MALFORMED);
        }
        self.rest = &after[back_bytes..];
        Ok(Some(value))
    }
}

/// The value that begins with a byte, behind which others stand; and the bytes of its encoding.
#[inline]
fn decode(first: u8, behind: &[u8]) -> Result<(Value<'_>, usize), Error> {
    let bytes = |from: usize, len: usize| -> Result<(Value<'_>, usize), Error> {
        let end = from.checked_add(len).ok_or(MALFORMED)?;
        Ok((Value::Bytes(behind.get(from..end).ok_or(MALFORMED)?), 1 + end))
    };
    let integer = |len: usize| -> Result<(Value<'_>, usize), Error> {
        let number = signed(behind.get(..len).ok_or(MALFORMED)?);
        Ok((Value::Integer(number), 1 + len))
    };
    let second = || behind.first().copied().ok_or(MALFORMED);
    match first {
        0..=0x7f => Ok((Value::Integer(first.into()), 1)),
        STRING_6_BITS..INT13 => bytes(0, usize::from(first & 0x3f)),
        INT13..STRING_12_BITS => {
            let number = i64::from(first & 0x1f) << 8 | i64::from(second()?);
            let number = if number >= 1 << 12 { number - (1 << 13) } else { number };
            Ok((Value::Integer(number), 2))
        }
        STRING_12_BITS..STRING_32_BITS => {
            bytes(1, usize::from(first & 0x0f) << 8 | usize::from(second()?))
        }
        STRING_32_BITS => {
            let len = signed(behind.get(..4).ok_or(MALFORMED)?) as u32;
            bytes(4, len as usize)
        }
        INT16 => integer(2),
        INT24 => integer(3),
        INT32 => integer(4),
        INT64 => integer(8),
        _ => Err(MALFORMED),
    }
}

/// What stands behind an encoding of so many bytes, and how many bytes that is.
#[inline]
fn back_of(len: usize) -> ([u8; BACK_BYTES_MAX], usize) {
    let bytes = 1 + BACK_LIMITS.iter().filter(|&&limit| len >= limit).count();
    let mut back = [0; BACK_BYTES_MAX];
    for (at, byte) in back[..bytes].iter_mut().enumerate() {
        let high = if at == 0 { 0 } else { 0x80 };
        *byte = (len >> (7 * (bytes - 1 - at)) & 0x7f) as u8 | high;
    }
    (back, bytes)
}

/// A listpack that is made value by value.
#[derive(Clone, Debug)]
pub(crate) struct ListpackBuilder {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for ListpackBuilder {
    fn default() -> ListpackBuilder {
        ListpackBuilder { bytes: vec![0; HEAD_BYTES], count: 0 }
    }
}

impl ListpackBuilder {
    /// Bytes so far, with the one at the end.
    pub(crate) fn byte_len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Most bytes that a text takes.
    pub(crate) fn value_bytes(text: &[u8]) -> usize {
        1 + size_of::<u32>() + text.len() + BACK_BYTES_MAX
    }

    /// Values so far.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a text, as an integer if it is one.
    pub(crate) fn push(&mut self, text: &[u8]) {
        if let Some(number) = parse_i64(text) {
            return self.push_integer(number);
        }
        let start = self.bytes.len();
        match text.len() {
            len @ 0..64 => self.bytes.push(STRING_6_BITS | len as u8),
            len @ 64..LONG_TEXT_BYTES => {
                self.bytes.extend([STRING_12_BITS | (len >> 8) as u8, len as u8])
            }
            len => {
                self.bytes.push(STRING_32_BITS);
                self.bytes.extend((len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end_value(start);
    }

    /// Adds an integer.
    pub(crate) fn push_integer(&mut self, number: i64) {
        let start = self.bytes.len();
        let bytes = number.to_le_bytes();
        let mut wide = |first: u8, len: usize| {
            self.bytes.push(first);
            self.bytes.extend_from_slice(&bytes[..len]);
        };
        match number {
            0..=0x7f => wide(number as u8, 0),
            -4_096..=4_095 => {
                let bits = number as u16 & 0x1fff;
                self.bytes.extend([INT13 | (bits >> 8) as u8, bits as u8]);
            }
            -0x8000..=0x7fff => wide(INT16, 2),
            -0x80_0000..=0x7f_ffff => wide(INT24, 3),
            -0x8000_0000..=0x7fff_ffff => wide(INT32, 4),
            _ => wide(INT64, 8),
        }
        self.end_value(start);
    }

    fn end_value(&mut self, start: usize) {
        let (back, bytes) = back_of(self.bytes.len() - start);
        self.bytes.extend_from_slice(&back[..bytes]);
        self.count += 1;
    }

    /// Adds the values of another one behind its own.
    pub(crate) fn append(&mut self, other: &ListpackBuilder) {
        self.bytes.extend_from_slice(&other.bytes[HEAD_BYTES..]);
        self.count += other.count;
    }

    /// The listpack, which is whole for as long as it is looked at.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.bytes.push(END);
        let len = self.bytes.len() as u32;
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.bytes[..COUNT_AT].copy_from_slice(&len.to_le_bytes());
        self.bytes[COUNT_AT..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        &self.bytes
    }

    /// Begins anew, in the memory that it has.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEAD_BYTES);
        self.count = 0;
    }
}

/// Writes a listpack of one text of [`LONG_TEXT_BYTES`] or more behind its length, as a builder would, without a copy of
/// the text in between.
pub(crate) fn write_alone(out: &mut Vec<u8>, text: &[u8]) {
    assert!(text.len() >= LONG_TEXT_BYTES);
    let value_len = 1 + size_of::<u32>() + text.len();
    let (back, back_len) = back_of(value_len);
    let len = HEAD_BYTES + value_len + back_len + 1;
    length::write(out, len as u64);
    out.extend((len as u32).to_le_bytes());
    out.extend(1u16.to_le_bytes());
    out.push(STRING_32_BITS);
    out.extend((text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(&back[..back_len]);
    out.push(END);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_written_alone_as_a_builder_writes_it() {
        for len in [LONG_TEXT_BYTES, 20_000, 3_000_000] {
            let text = vec![b'x'; len];
            let mut builder = ListpackBuilder::default();
            builder.push(&text);
            let (mut built, mut alone) = (Vec::new(), Vec::new());
            crate::text::write_raw(&mut built, builder.finish());
            write_alone(&mut alone, &text);
            assert!(built == alone, "{len}");
        }
    }

    fn texts(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut listpack = Listpack::new(bytes)?;
        let mut texts = Vec::new();
        while let Some(value) = listpack.next()? {
            texts.push(value.text(&mut itoa::Buffer::new()).to_vec());
        }
        Ok(texts)
    }

    fn listpack_of(texts: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = ListpackBuilder::default();
        for text in texts {
            let before = builder.byte_len();
            builder.push(text);
            assert!(builder.byte_len() <= before + ListpackBuilder::value_bytes(text));
        }
        builder.finish().to_vec()
    }

    #[test]
    fn values_of_every_encoding_come_back() {
        let limits = [0, 127, 4_095, 0x7fff, 0x7f_ffff, 0x7fff_ffff, i64::MAX];
        let numbers = limits.into_iter().flat_map(|limit| {
            [limit, limit.saturating_add(1), -limit, -limit - 1, (-limit).saturating_sub(2)]
        });
        let mut values: Vec<Vec<u8>> = numbers.map(|number| number.to_string().into()).collect();
        values.extend([0, 63, 64, 4_095, 4_096, 16_380, 16_381, 70_000].map(|len| vec![b'x'; len]));
        assert_eq!(texts(&listpack_of(&values)), Ok(values));
        let many = vec![b"1".to_vec(); 70_000];
        assert_eq!(texts(&listpack_of(&many)), Ok(many));
    }

    #[test]
    fn a_listpack_of_redis_is_read() {
        let bytes = b"\x12\x00\x00\x00\x03\x00\x81a\x02\xc1\x00\x02\x83-0x\x04\xff";
        let expected = [&b"a"[..], b"256", b"-0x"].map(<[u8]>::to_vec);
        assert_eq!(texts(bytes), Ok(expected.to_vec()));
        assert_eq!(listpack_of(&expected), bytes);
        for at in 0..bytes.len() {
            assert!(texts(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn the_length_of_an_encoding_is_told_as_redis_does() {
        assert_eq!(back_of(127), ([127, 0, 0, 0, 0], 1));
        assert_eq!(back_of(128), ([1, 128, 0, 0, 0], 2));
        assert_eq!(back_of(16_383), ([0, 255, 255, 0, 0], 3));
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(bytes: Vec<u8>, head: bool) {
            let mut bytes = bytes;
            if head && bytes.len() > HEAD_BYTES {
                let len = bytes.len() as u32;
                bytes[..4].copy_from_slice(&len.to_le_bytes());
                bytes[4..6].fill(0xff);
            }
            if let Ok(texts) = texts(&bytes) {
                prop_assert!(texts.len() <= bytes.len());
            }
        }

        #[test]
        fn what_is_written_is_read(values: Vec<Vec<u8>>) {
            prop_assert_eq!(texts(&listpack_of(&values)), Ok(values));
        }
    }
}
