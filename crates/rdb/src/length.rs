//! Lengths, and other numbers without a sign.
//!
//! ```text
//! 00xxxxxx                    up to 63
//! 01xxxxxx xxxxxxxx           up to 16,383, the high bits first
//! 10000000 and 4 bytes        up to 2^32 - 1, the high byte first
//! 10000001 and 8 bytes        up to 2^64 - 1, the high byte first
//! 11xxxxxx                    no length: a string in another form (`text.rs`)
//! ```
//!
//! A number may stand in more bytes than it needs.

use crate::error::Error;
use crate::source::{Source, array, byte};

const FORM_SHIFT: u32 = 6;
const LOW_BITS: u8 = (1 << FORM_SHIFT) - 1;
const IN_14_BITS: u8 = 1 << FORM_SHIFT;
const IN_32_BITS: u8 = 0x80;
const IN_64_BITS: u8 = 0x81;
const SPECIAL: u8 = 0b11;

/// A length, or the number of a string's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Plain(u64),
    Special(u8),
}

/// Reads a length or what stands in its place.
#[inline]
pub(crate) fn read_any(source: &mut impl Source) -> Result<Length, Error> {
    let first = byte(source)?;
    let low = first & LOW_BITS;
    Ok(match first >> FORM_SHIFT {
        0 => Length::Plain(low.into()),
        1 => Length::Plain(u64::from(low) << 8 | u64::from(byte(source)?)),
        SPECIAL => Length::Special(low),
        _ => Length::Plain(match first {
            IN_32_BITS => u32::from_be_bytes(array(source)?).into(),
            IN_64_BITS => u64::from_be_bytes(array(source)?),
            _ => return Err(Error::Malformed("length")),
        }),
    })
}

/// Reads a length.
pub(crate) fn read(source: &mut impl Source) -> Result<u64, Error> {
    match read_any(source)? {
        Length::Plain(len) => Ok(len),
        Length::Special(_) => Err(Error::Malformed("length")),
    }
}

/// Writes a length in as few bytes as it needs.
pub(crate) fn write(out: &mut Vec<u8>, len: u64) {
    match len {
        0..64 => out.push(len as u8),
        64..16_384 => out.extend([IN_14_BITS | (len >> 8) as u8, len as u8]),
        16_384..=0xffff_ffff => {
            out.push(IN_32_BITS);
            out.extend((len as u32).to_be_bytes());
        }
        _ => {
            out.push(IN_64_BITS);
            out.extend(len.to_be_bytes());
        }
    }
}

/// Bytes of a length that is known later.
const LATER_BYTES: usize = 1 + size_of::<u32>();

/// Leaves room for a length that is known later. Returns where.
pub(crate) fn write_later(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend([0; LATER_BYTES]);
    at
}

/// Writes a length into the room for it.
pub(crate) fn write_at(out: &mut [u8], at: usize, len: u32) {
    out[at] = IN_32_BITS;
    out[at + 1..at + LATER_BYTES].copy_from_slice(&len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back_in_as_few_bytes_as_they_need() {
        let cases = [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 5),
            (u32::MAX.into(), 5),
            (1 << 32, 9),
            (u64::MAX, 9),
        ];
        for (len, bytes) in cases {
            let mut out = Vec::new();
            write(&mut out, len);
            assert_eq!(out.len(), bytes, "{len}");
            assert_eq!(read(&mut &out[..]), Ok(len));
            for cut in 0..bytes {
                assert_eq!(read(&mut &out[..cut]), Err(Error::Short));
            }
        }
        assert_eq!(read(&mut &[0x40, 5][..]), Ok(5));
        assert_eq!(read(&mut &[0x82, 0, 0, 0, 0][..]), Err(Error::Malformed("length")));
        assert_eq!(read(&mut &[0xc0, 0][..]), Err(Error::Malformed("length")));
        let mut out = vec![7];
        let at = write_later(&mut out);
        write_at(&mut out, at, 9);
        assert_eq!((out[0], read(&mut &out[1..])), (7, Ok(9)));
    }
}
