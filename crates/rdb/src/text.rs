//! Strings.
//!
//! ```text
//! length, bytes                            as they are
//! 11000000, 1 byte                         the text of an integer with a sign
//! 11000001, 2 bytes; 11000010, 4 bytes     likewise, the low byte first
//! 11000011, length of what follows, length of the string, bytes      compressed (`lzf.rs`)
//! ```

use value::parse_i64;

use crate::error::Error;
use crate::length::{self, Length};
use crate::lzf;
use crate::source::{Source, array, byte};

const SPECIAL: u8 = 0b1100_0000;
const INT8: u8 = 0;
const INT16: u8 = 1;
const INT32: u8 = 2;
const COMPRESSED: u8 = 3;

/// Shorter strings are not worth it.
const COMPRESSED_BYTES_MIN: usize = 21;
/// Longer texts are no integers of 32 bits.
const INT32_BYTES_MAX: usize = 11;

/// Reads a string: as it stands in the source, or made in `scratch`.
pub(crate) fn read<'s>(
    source: &'s mut impl Source,
    scratch: &'s mut Vec<u8>,
) -> Result<&'s [u8], Error> {
    let number = match length::read_any(source)? {
        Length::Plain(len) => return source.bytes(bounded(source, len)?),
        Length::Special(INT8) => i64::from(byte(source)? as i8),
        Length::Special(INT16) => i64::from(i16::from_le_bytes(array(source)?)),
        Length::Special(INT32) => i64::from(i32::from_le_bytes(array(source)?)),
        Length::Special(COMPRESSED) => {
            let (compressed, len) = read_compressed(source)?;
            scratch.clear();
            lzf::decompress(source.bytes(compressed)?, len, scratch)?;
            return Ok(scratch);
        }
        Length::Special(_) => return Err(Error::Malformed("string")),
    };
    scratch.clear();
    scratch.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    Ok(scratch)
}

/// The lengths of a compressed string, before and after.
fn read_compressed(source: &mut impl Source) -> Result<(u64, usize), Error> {
    let (compressed, len) = (length::read(source)?, length::read(source)?);
    if len > lzf::bytes_max(compressed) {
        return Err(Error::Malformed("compressed string"));
    }
    let len = bounded(source, len)?;
    Ok((compressed, usize::try_from(len).map_err(|_| Error::Malformed("compressed string"))?))
}

/// The length of a string. Errors: no string is that long.
#[inline]
fn bounded(source: &impl Source, len: u64) -> Result<u64, Error> {
    match len > source.string_bytes_max() {
        true => Err(Error::Unsupported("string of a length of", len)),
        false => Ok(len),
    }
}

/// Passes over a string. Returns its length, and whether it has to be made in a buffer of that.
pub(crate) fn skip(source: &mut impl Source) -> Result<(u64, bool), Error> {
    let stored = match length::read_any(source)? {
        Length::Plain(len) => bounded(source, len)?,
        Length::Special(special @ INT8..=INT32) => 1 << special,
        Length::Special(COMPRESSED) => {
            let (compressed, len) = read_compressed(source)?;
            source.bytes(compressed)?;
            return Ok((len as u64, true));
        }
        Length::Special(_) => return Err(Error::Malformed("string")),
    };
    let len = source.bytes(stored)?.len();
    Ok((len.max(INT32_BYTES_MAX) as u64, false))
}

/// Writes a string: one that is the text of an integer of up to 32 bits as that.
pub(crate) fn write(out: &mut Vec<u8>, text: &[u8]) {
    let number = if text.len() <= INT32_BYTES_MAX { parse_i64(text) } else { None };
    let number = number.and_then(|number| i32::try_from(number).ok());
    let Some(number) = number else { return write_raw(out, text) };
    if let Ok(number) = i8::try_from(number) {
        out.push(SPECIAL | INT8);
        out.extend(number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(SPECIAL | INT16);
        out.extend(number.to_le_bytes());
    } else {
        out.push(SPECIAL | INT32);
        out.extend(number.to_le_bytes());
    }
}

/// Writes a string as it is.
pub(crate) fn write_raw(out: &mut Vec<u8>, text: &[u8]) {
    length::write(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Writes a string, compressed if that is shorter. Cost: a table of up to 64 KiB while it lasts.
pub(crate) fn write_compressed(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() < COMPRESSED_BYTES_MIN || u32::try_from(text.len()).is_err() {
        return write(out, text);
    }
    let start = out.len();
    out.push(SPECIAL | COMPRESSED);
    let len_at = length::write_later(out);
    length::write(out, text.len() as u64);
    let from = out.len();
    if !lzf::compress(text, text.len() - COMPRESSED_BYTES_MIN / 2, out) {
        out.truncate(start);
        return write_raw(out, text);
    }
    let compressed = (out.len() - from) as u32;
    length::write_at(out, len_at, compressed);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, text);
        out
    }

    #[test]
    fn integers_take_few_bytes() {
        let cases: [(&str, &[u8]); 10] = [
            ("0", b"\xc0\x00"),
            ("-128", b"\xc0\x80"),
            ("128", b"\xc1\x80\x00"),
            ("-32768", b"\xc1\x00\x80"),
            ("2147483647", b"\xc2\xff\xff\xff\x7f"),
            ("-2147483648", b"\xc2\x00\x00\x00\x80"),
            ("2147483648", b"\x0a2147483648"),
            ("007", b"\x03007"),
            ("-0", b"\x02-0"),
            ("", b"\x00"),
        ];
        for (text, bytes) in cases {
            assert_eq!(written(text.as_bytes()), bytes, "{text}");
            let mut scratch = Vec::new();
            assert_eq!(read(&mut &bytes[..], &mut scratch), Ok(text.as_bytes()));
            let (len, _) = skip(&mut &bytes[..]).expect("a string");
            assert!(len >= text.len() as u64);
        }
    }

    #[test]
    fn a_length_that_nothing_stands_behind_allocates_nothing() {
        let mut scratch = Vec::new();
        let huge = [&b"\x81"[..], &u64::MAX.to_be_bytes(), b"abc"].concat();
        let too_long = Err(Error::Unsupported("string of a length of", u64::MAX));
        assert_eq!(read(&mut &huge[..], &mut scratch), too_long);
        let long = |len: u64| [&b"\x81"[..], &len.to_be_bytes(), b"abc"].concat();
        assert_eq!(read(&mut &long(512 << 20)[..], &mut scratch), Err(Error::Short));
        let too_long = Error::Unsupported("string of a length of", (512 << 20) + 1);
        assert_eq!(read(&mut &long((512 << 20) + 1)[..], &mut scratch), Err(too_long));
        assert_eq!(skip(&mut &long((512 << 20) + 1)[..]), Err(too_long));
        let compressed = [&b"\xc3\x03\x81"[..], &(1u64 << 40).to_be_bytes(), b"\x02ab"].concat();
        let malformed = Err(Error::Malformed("compressed string"));
        assert_eq!(read(&mut &compressed[..], &mut scratch), malformed);
        assert_eq!(scratch.capacity(), 0);
        assert_eq!(skip(&mut &compressed[..]).map(|_| &b""[..]), malformed);
        assert_eq!(read(&mut &b"\xc4\x01"[..], &mut scratch), Err(Error::Malformed("string")));
    }

    proptest! {
        #[test]
        fn strings_come_back(piece: Vec<u8>, times in 0usize..50) {
            let text = piece.repeat(times);
            let mut compressed = Vec::new();
            write_compressed(&mut compressed, &text);
            prop_assert!(compressed.len() <= text.len() + 9);
            for bytes in [written(&text), compressed] {
                let mut scratch = Vec::new();
                let mut source = &bytes[..];
                prop_assert_eq!(read(&mut source, &mut scratch), Ok(&text[..]));
                prop_assert!(source.is_empty());
                let mut source = &bytes[..];
                prop_assert!(skip(&mut source)?.0 >= text.len() as u64);
                prop_assert!(source.is_empty());
            }
        }
    }
}
