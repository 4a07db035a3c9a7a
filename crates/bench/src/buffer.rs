//! The bytes of requests that are not sent yet.
//!
//! A vector can only be extended by what exists already; here room is given out first, so that a
//! value is made where it will be sent from, in one pass. Memory is kept and never cleared.

/// A text is copied as so many bytes at least.
const TEXT_BYTES: usize = 32;

/// A text that is appended often. It is copied with its padding, which what follows overwrites: a
/// copy of fixed size is two moves, one of any size a call.
#[derive(Debug, Clone, Default)]
pub struct Text {
    first: [u8; TEXT_BYTES],
    /// What does not fit into `first`.
    rest: Vec<u8>,
    size: usize,
}

impl Text {
    /// Appends these bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(TEXT_BYTES - self.first_size()));
        let place = self.first_size();
        self.first[place..place + first.len()].copy_from_slice(first);
        self.rest.extend_from_slice(rest);
        self.size += bytes.len();
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    fn first_size(&self) -> usize {
        self.size.min(TEXT_BYTES)
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        let mut text = Self::default();
        text.extend(bytes);
        text
    }
}

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

    /// Appends what `write` writes.
    #[inline]
    pub fn append<T>(&mut self, write: impl FnOnce(&mut Writer<'_>) -> T) -> T {
        let mut writer = Writer { bytes: &mut self.bytes, size: self.size };
        let outcome = write(&mut writer);
        self.size = writer.size;
        outcome
    }
}

/// The end of a [`Buffer`] while it is written. It knows the size by itself, so that the compiler
/// keeps it in a register from one piece to the next.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    size: usize,
}

impl Writer<'_> {
    /// Room for so many bytes, to be overwritten.
    #[inline(always)]
    pub fn room(&mut self, size: usize) -> &mut [u8] {
        let start = self.size;
        self.size += size;
        if self.size > self.bytes.len() {
            grow(self.bytes, self.size);
        }
        &mut self.bytes[start..self.size]
    }

    /// These bytes.
    #[inline(always)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// A text.
    #[inline(always)]
    pub fn text(&mut self, text: &Text) {
        let end = self.size + text.size;
        self.bytes(&text.first);
        if !text.rest.is_empty() {
            self.bytes(&text.rest);
        }
        self.size = end;
    }

    /// A number in decimal, which has so many digits: [`digit_count`].
    #[inline(always)]
    pub fn number(&mut self, mut number: u64, digits: usize) {
        for place in self.room(digits).iter_mut().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

#[cold]
fn grow(bytes: &mut Vec<u8>, size: usize) {
    bytes.resize(size.next_power_of_two(), 0);
}

/// How many decimal digits a number has.
#[inline]
pub fn digit_count(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buffer = Buffer::with_capacity(1);
        buffer.append(write);
        buffer.as_slice().to_vec()
    }

    #[test]
    fn pieces_follow_each_other_and_memory_is_used_again() {
        let mut buffer = Buffer::with_capacity(4);
        buffer.append(|writer| writer.bytes(b"abc"));
        buffer.append(|writer| {
            writer.room(5).fill(b'x');
            writer.bytes(b"");
        });
        assert_eq!((buffer.as_slice(), buffer.len()), (&b"abcxxxxx"[..], 8));
        buffer.clear();
        assert!(buffer.is_empty());
        buffer.append(|writer| writer.bytes(b"d"));
        assert_eq!(buffer.as_slice(), b"d");
    }

    #[test]
    fn texts_are_whole_whatever_their_size() {
        let long: Vec<u8> = (0..200).collect();
        for size in 0..long.len() {
            let (start, end) = long[..size].split_at(size / 3);
            let mut text = Text::from(start);
            text.extend(end);
            let bytes = written(|writer| {
                writer.bytes(b"<");
                writer.text(&text);
                writer.bytes(b">");
            });
            assert_eq!(bytes, [b"<", &long[..size], b">"].concat());
        }
    }

    #[test]
    fn numbers_have_all_their_digits() {
        for number in [0, 7, 10, 99_999, 100_000, u64::MAX - 1, u64::MAX] {
            let bytes = written(|writer| writer.number(number, digit_count(number)));
            assert_eq!(bytes, number.to_string().as_bytes());
        }
    }
}
