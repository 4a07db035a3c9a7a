//! Zipmaps: small hashes before Redis 2.6.
//!
//! ```text
//! fields (1; 254 and more: more than that says), fields with their values, 11111111
//! field with its value: length, bytes, length of the value, unused bytes (1), bytes of the value, what is unused
//! length: 1 byte up to 253, or 254 and 4 bytes, the low one first
//! ```

use crate::error::Error;

const MALFORMED: Error = Error::Malformed("zipmap");

const END: u8 = 255;
const LONG: u8 = 254;

/// A field and its value.
type Field<'a> = (&'a [u8], &'a [u8]);

/// A zipmap to be read from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Zipmap<'a> {
    rest: &'a [u8],
    left: Option<u8>,
}

impl<'a> Zipmap<'a> {
    /// Errors: there is nothing.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Zipmap<'a>, Error> {
        let (&count, rest) = bytes.split_first().ok_or(MALFORMED)?;
        Ok(Zipmap { rest, left: (count < LONG).then_some(count) })
    }

    /// The next field and its value. None: the end.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, Error> {
        if *self.rest == [END] && self.left.is_none_or(|left| left == 0) {
            return Ok(None);
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(MALFORMED)?;
        }
        let len = self.length()?;
        let field = self.take(len)?;
        let len = self.length()?;
        let unused = self.take(1)?[0];
        let value = self.take(len)?;
        self.take(unused.into())?;
        Ok(Some((field, value)))
    }

    fn length(&mut self) -> Result<usize, Error> {
        match self.take(1)?[0] {
            END => Err(MALFORMED),
            LONG => {
                let bytes = self.take(4)?;
                Ok(bytes.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte)))
            }
            short => Ok(short.into()),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(MALFORMED)?;
        self.rest = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Fields<'a> = Vec<Field<'a>>;

    fn fields(bytes: &[u8]) -> Result<Fields<'_>, Error> {
        let mut zipmap = Zipmap::new(bytes)?;
        let mut fields = Vec::new();
        while let Some(field) = zipmap.next()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_are_read() {
        let bytes = b"\x02\x03foo\x03\x02bar..\x05hello\xfe\x05\0\0\0\x00world\xff";
        let expected: Fields<'_> = vec![(b"foo", b"bar"), (b"hello", b"world")];
        assert_eq!(fields(bytes), Ok(expected.clone()));
        let uncounted = [&[LONG], &bytes[1..]].concat();
        assert_eq!(fields(&uncounted), Ok(expected));
        for at in 0..bytes.len() {
            assert_eq!(fields(&bytes[..at]), Err(MALFORMED));
        }
        for wrong in [&b"\x01\xff"[..], b"\x00\x00\x00\x00\xff", b"\x00\xff\xff"] {
            assert_eq!(fields(wrong), Err(MALFORMED));
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(bytes: Vec<u8>) {
            if let Ok(fields) = fields(&bytes) {
                prop_assert!(fields.len() <= bytes.len());
            }
        }
    }
}
