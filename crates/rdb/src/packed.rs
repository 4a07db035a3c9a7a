//! Collections that stand in one string, read value by value.

use crate::error::Error;
use crate::listpack::Listpack;
use crate::ziplist::Ziplist;

/// A value of a packed collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Value<'a> {
    /// The text of the value, made in `buffer` if it is an integer.
    pub(crate) fn text<'t>(&self, buffer: &'t mut itoa::Buffer) -> &'t [u8]
    where
        'a: 't,
    {
        match *self {
            Value::Bytes(bytes) => bytes,
            Value::Integer(number) => buffer.format(number).as_bytes(),
        }
    }

    /// The integer that it is.
    pub(crate) fn integer(&self) -> Option<i64> {
        match *self {
            Value::Bytes(_) => None,
            Value::Integer(number) => Some(number),
        }
    }
}

/// A packed collection of either form.
#[derive(Clone, Debug)]
pub(crate) enum Packed<'a> {
    Listpack(Listpack<'a>),
    Ziplist(Ziplist<'a>),
}

impl<'a> Packed<'a> {
    /// The next value. None: the end, where everything is as the head says.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Value<'a>>, Error> {
        match self {
            Packed::Listpack(listpack) => listpack.next(),
            Packed::Ziplist(ziplist) => ziplist.next(),
        }
    }

    /// The value that stands behind one that was met.
    pub(crate) fn second(&mut self) -> Result<Value<'a>, Error> {
        self.next()?.ok_or(Error::Malformed("number of values"))
    }
}

/// Reads little-endian integers with a sign of up to 8 bytes.
pub(crate) fn signed(bytes: &[u8]) -> i64 {
    let mut wide = match bytes.last() {
        Some(high) if high & 0x80 != 0 => [0xff; 8],
        _ => [0; 8],
    };
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_width() {
        let cases: [(&[u8], i64); 5] = [
            (&[0xff], -1),
            (&[0x7f], 127),
            (&[0, 0, 0x80], -(1 << 23)),
            (&[1, 0, 0], 1),
            (&i64::MIN.to_le_bytes(), i64::MIN),
        ];
        for (bytes, expected) in cases {
            assert_eq!(signed(bytes), expected);
        }
    }
}
