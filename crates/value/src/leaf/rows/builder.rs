//! A leaf of rows that is made from its first row to its last.

use super::{
    HEAD_BYTES, LONG, LONG_BIT, NARROW_MASK, NARROW_SHIFT, NUMBER_BYTES, ROWS_MAX, Shape,
    narrow_for, narrow_of,
};

/// A leaf that is made of rows in their order. Cost: a push for each.
pub struct RowsBuilder {
    shape: Shape,
    count: usize,
    fingerprints: Vec<u8>,
    numbers: Vec<u8>,
    /// How far the bytes of numbers are shifted right.
    narrow: u8,
    lengths: Vec<u8>,
    parts: Vec<u8>,
}

impl RowsBuilder {
    /// A leaf without rows.
    pub fn new(shape: Shape) -> RowsBuilder {
        let (fingerprints, numbers, lengths, parts) = Default::default();
        let narrow = narrow_of(shape.bits());
        RowsBuilder { shape, count: 0, fingerprints, numbers, narrow, lengths, parts }
    }

    /// The same with room for a leaf of so many bytes in all: it is not there twice while it is made.
    pub fn with_room(shape: Shape, bytes: usize) -> RowsBuilder {
        RowsBuilder { parts: Vec::with_capacity(bytes), ..RowsBuilder::new(shape) }
    }

    /// Puts a row behind all others. What the shape has no column for is left out. Panics: the parts are
    /// not those of the shape.
    pub fn push(&mut self, fingerprint: u8, number: u64, parts: &[&[u8]]) {
        assert!(parts.len() == self.shape.parts);
        self.count += 1;
        if self.shape.fingerprints {
            self.fingerprints.push(fingerprint);
        }
        if self.shape.numbers {
            self.narrow = self.narrow.min(narrow_for(number));
            self.numbers.extend_from_slice(&number.to_le_bytes());
        }
        for part in parts {
            self.lengths.push(part.len().min(usize::from(LONG)) as u8);
            if part.len() >= usize::from(LONG) {
                let len =
                    u32::try_from(part.len()).expect("invariant: a string is at most 512 MiB");
                self.parts.extend_from_slice(&len.to_le_bytes());
            }
            self.parts.extend_from_slice(part);
        }
    }

    /// The leaf. Panics: it has more than [`ROWS_MAX`] rows.
    pub fn into_leaf(mut self) -> Vec<u8> {
        assert!(self.count <= ROWS_MAX, "more rows than a leaf has numbers for");
        let mut head = self.shape.empty().to_vec();
        head[0] = head[0] & !NARROW_MASK | self.narrow << NARROW_SHIFT;
        self.narrow_numbers();
        head[1..HEAD_BYTES].copy_from_slice(&(self.count as u32).to_le_bytes()[..3]);
        if self.lengths.contains(&LONG) {
            head[0] |= LONG_BIT;
        }
        let columns = [head, self.fingerprints, self.numbers, self.lengths];
        let mut leaf = self.parts;
        let (parts_len, front) = (leaf.len(), columns.iter().map(Vec::len).sum::<usize>());
        if leaf.capacity() - parts_len < front {
            return [columns.concat(), leaf].concat();
        }
        leaf.resize(parts_len + front, 0);
        leaf.copy_within(..parts_len, front);
        let mut rest = &mut leaf[..front];
        for column in &columns {
            let (place, behind) = rest.split_at_mut(column.len());
            place.copy_from_slice(column);
            rest = behind;
        }
        leaf
    }

    /// Moves the bytes of numbers that they need together.
    fn narrow_numbers(&mut self) {
        let width = NUMBER_BYTES >> self.narrow;
        if width < NUMBER_BYTES {
            for row in 0..self.numbers.len() / NUMBER_BYTES {
                let number = row * NUMBER_BYTES..row * NUMBER_BYTES + width;
                self.numbers.copy_within(number, row * width);
            }
            self.numbers.truncate(self.numbers.len() >> self.narrow);
        }
    }
}
