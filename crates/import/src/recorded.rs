//! Bytes of an object as they stand in the file, kept while they are read.

use rdb::{Error, Source};

/// A source of which the bytes are kept, unless there are too many.
pub(crate) struct Recorded<'s, S> {
    source: &'s mut S,
    bytes_max: usize,
    /// None: there were too many.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl<'s, S: Source> Recorded<'s, S> {
    /// Begins with `first`, which does not come from the source.
    pub(crate) fn new(source: &'s mut S, first: u8, bytes_max: usize) -> Recorded<'s, S> {
        Recorded { source, bytes_max, bytes: Some(vec![first]) }
    }
}

impl<S: Source> Source for Recorded<'_, S> {
    fn bytes(&mut self, len: u64) -> Result<&[u8], Error> {
        let bytes = self.source.bytes(len)?;
        let fits = |kept: &Vec<u8>| kept.len() + bytes.len() <= self.bytes_max;
        self.bytes = self.bytes.take().filter(fits);
        if let Some(kept) = &mut self.bytes {
            kept.extend_from_slice(bytes);
        }
        Ok(bytes)
    }

    fn string_bytes_max(&self) -> u64 {
        self.source.string_bytes_max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_until_there_are_too_many() {
        let mut source = &b"abcdef"[..];
        let mut recorded = Recorded::new(&mut source, b'-', 5);
        assert_eq!(recorded.bytes(2), Ok(&b"ab"[..]));
        assert_eq!(recorded.bytes(7), Err(Error::Short));
        assert_eq!(recorded.bytes(2), Ok(&b"cd"[..]));
        assert_eq!(recorded.bytes.as_deref(), Some(&b"-abcd"[..]));
        assert_eq!(recorded.bytes(1), Ok(&b"e"[..]));
        assert_eq!(recorded.bytes, None);
        assert_eq!(recorded.bytes(1), Ok(&b"f"[..]));
        assert_eq!(recorded.bytes, None);
    }
}
