//! The bytes of requests that are not sent yet.
//!
//! A vector can only be extended by what exists already; here room is given out first, so that a
//! value is made where it will be sent from, in one pass. Memory is kept and never cleared.

/// Bytes, put together piece by piece.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Zeroes, and what was there before, beyond `size`.
    bytes: Vec<u8>,
    size: usize,
}

impl Buffer {
    /// An empty one with room for so many bytes before it has to grow.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity], size: 0 }
    }

    /// How many bytes are there.
    #[inline]
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// What is there.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    /// Forgets what is there.
    pub fn clear(&mut self) {
        self.size = 0;
    }

    /// Appends room for so many bytes, to be overwritten.
    #[inline]
    pub fn room(&mut self, size: usize) -> &mut [u8] {
        let start = self.size;
        self.size += size;
        if self.size > self.bytes.len() {
            self.grow();
        }
        &mut self.bytes[start..self.size]
    }

    /// Appends these bytes.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    #[cold]
    fn grow(&mut self) {
        self.bytes.resize(self.size.next_power_of_two(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_memory_is_used_again() {
        let mut buffer = Buffer::with_capacity(4);
        buffer.extend(b"abc");
        buffer.room(5).fill(b'x');
        buffer.extend(b"");
        assert_eq!((buffer.as_slice(), buffer.len()), (&b"abcxxxxx"[..], 8));
        buffer.clear();
        assert!(buffer.is_empty());
        buffer.extend(b"d");
        assert_eq!(buffer.as_slice(), b"d");
    }
}
