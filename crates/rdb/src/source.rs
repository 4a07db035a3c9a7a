//! Where bytes are read from.

use crate::error::Error;

/// Longer strings are not read: Redis has none, and nothing keeps a key that is longer.
pub const STRING_BYTES_MAX: u64 = 512 << 20;

/// Bytes in their order.
pub trait Source {
    /// The next `len` bytes. None of them are lost if there are fewer.
    ///
    /// Errors: [`Error::Short`]. Cost: a source that has them elsewhere must not allocate for more than there
    /// are.
    fn bytes(&mut self, len: u64) -> Result<&[u8], Error>;

    /// How long a string may be, as it is once it is read.
    fn string_bytes_max(&self) -> u64 {
        STRING_BYTES_MAX
    }
}

/// What is in memory already.
impl Source for &[u8] {
    #[inline]
    fn bytes(&mut self, len: u64) -> Result<&[u8], Error> {
        let len = usize::try_from(len).map_err(|_| Error::Short)?;
        let (bytes, rest) = self.split_at_checked(len).ok_or(Error::Short)?;
        *self = rest;
        Ok(bytes)
    }
}

/// The next byte.
#[inline]
pub(crate) fn byte(source: &mut impl Source) -> Result<u8, Error> {
    Ok(source.bytes(1)?[0])
}

/// The next `N` bytes.
#[inline]
pub(crate) fn array<const N: usize>(source: &mut impl Source) -> Result<[u8; N], Error> {
    let mut array = [0; N];
    array.copy_from_slice(source.bytes(N as u64)?);
    Ok(array)
}

/// The next 8 bytes as an integer, the lowest byte first.
pub(crate) fn i64_le(source: &mut impl Source) -> Result<i64, Error> {
    Ok(i64::from_le_bytes(array(source)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_and_not_beyond_the_end() {
        let mut source = &b"abcdefghijkl"[..];
        assert_eq!(byte(&mut source), Ok(b'a'));
        assert_eq!(array(&mut source), Ok(*b"bc"));
        for len in [10, u64::MAX] {
            assert_eq!(source.bytes(len), Err(Error::Short));
        }
        assert_eq!(i64_le(&mut source), Ok(i64::from_le_bytes(*b"defghijk")));
        assert_eq!(source.bytes(1), Ok(&b"l"[..]));
        assert_eq!((byte(&mut source), source.bytes(0)), (Err(Error::Short), Ok(&b""[..])));
    }
}
