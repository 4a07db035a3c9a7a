//! The arguments of one request, as ranges of the buffer they arrived in.
//!
//! Invariant: ranges come from [`crate::RequestParser`] and are shown over the buffer that was
//! handed to it, so every range lies inside the buffer. A range outside it is a programmer's
//! error and panics.

use std::ops::Index;

/// Where one argument lies in the buffer that was handed to the parser.
///
/// Units: bytes. Bounds: a request is shorter than 4 GiB, so 32 bits suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgRange {
    /// Offset of the argument's first byte.
    pub start: u32,
    /// Length of the argument.
    pub len: u32,
}

/// The arguments of one request, the command's name first. A view: copying it is free.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    ranges: &'a [ArgRange],
}

impl<'a> Args<'a> {
    /// Shows `ranges` over the buffer that the parser filled them from.
    pub fn new(buffer: &'a [u8], ranges: &'a [ArgRange]) -> Self {
        Self { buffer, ranges }
    }

    /// How many arguments there are, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no argument at all, as after an empty line.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The argument at `index`, if there are so many.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| cut(self.buffer, *range))
    }

    /// All arguments in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        let buffer = self.buffer;
        self.ranges.iter().map(move |range| cut(buffer, *range))
    }

    /// Whether one of them is as long as `bytes`, or longer. Cost: a comparison where all that was handed to the parser
    /// is shorter.
    #[inline]
    pub fn have_long(&self, bytes: usize) -> bool {
        self.buffer.len() >= bytes && self.ranges.iter().any(|range| range.len as usize >= bytes)
    }

    /// The arguments from `index` on; none when there are not so many.
    #[inline]
    pub fn from(&self, index: usize) -> Args<'a> {
        Args { buffer: self.buffer, ranges: self.ranges.get(index..).unwrap_or(&[]) }
    }

    /// The first so many arguments. Panics: there are fewer.
    pub fn first(&self, count: usize) -> Args<'a> {
        Args { ranges: &self.ranges[..count], ..*self }
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    /// Panics: when there is no such argument. Handlers check arity first.
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        cut(self.buffer, self.ranges[index])
    }
}

impl std::fmt::Debug for Args<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_list()
            .entries(self.iter().map(|arg| arg.escape_ascii().to_string()))
            .finish()
    }
}

#[inline]
fn cut(buffer: &[u8], range: ArgRange) -> &[u8] {
    &buffer[range.start as usize..range.start as usize + range.len as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: [ArgRange; 3] = [
        ArgRange { start: 0, len: 3 },
        ArgRange { start: 4, len: 0 },
        ArgRange { start: 4, len: 5 },
    ];

    #[test]
    fn shows_ranges_of_the_buffer() {
        let args = Args::new(b"SET value", &RANGES);
        assert_eq!(args.len(), 3);
        assert_eq!(&args[0], b"SET");
        assert_eq!(&args[1], b"");
        assert_eq!(args.get(2), Some(&b"value"[..]));
        assert_eq!(args.get(3), None);
        assert_eq!(args.iter().next_back(), Some(&b"value"[..]));
        assert_eq!(format!("{args:?}"), r#"["SET", "", "value"]"#);
    }

    #[test]
    fn tail_starts_where_asked_and_may_be_empty() {
        let args = Args::new(b"SET value", &RANGES);
        assert_eq!(args.from(2).iter().collect::<Vec<_>>(), [b"value"]);
        assert!(args.from(3).is_empty());
        assert!(args.have_long(5) && !args.have_long(6) && !args.from(3).have_long(0));
        assert!(!args.first(2).have_long(4));
        assert!(args.from(9).is_empty());
    }
}
