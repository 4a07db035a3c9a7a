//! The leaf of a hash: fields with their values, in the order in which they were added.

use crate::leaf::fingerprint;
use crate::leaf::rows::{Damaged, Row, Rows, RowsMut, Shape};

/// The rows of a hash: field and value.
pub const SHAPE: Shape = Shape { parts: 2, fingerprints: true, numbers: false };

/// A hash to be read.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(Rows<'a>);

impl<'a> Fields<'a> {
    /// The hash in a leaf. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(leaf: &'a [u8]) -> Fields<'a> {
        Fields(Rows::new(leaf))
    }

    /// The hash in bytes from elsewhere. Cost: linear in its fields.
    ///
    /// Errors: they are none.
    pub fn check(bytes: &'a [u8]) -> Result<Fields<'a>, Damaged> {
        let rows = Rows::check(bytes)?;
        let Shape { parts, fingerprints, .. } = rows.shape();
        if parts == SHAPE.parts && fingerprints { Ok(Fields(rows)) } else { Err(Damaged) }
    }

    /// How many fields.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty hash is a key that does not exist")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes that all of it takes.
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        let row = self.0.find(fingerprint(field), field)?;
        Some(self.0.second(row))
    }

    /// A field, by its position, and its value. Panics: there is none.
    pub fn at(&self, position: usize) -> (&'a [u8], &'a [u8]) {
        pair(self.0.row(position))
    }

    /// All fields and their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.0.iter().map(pair)
    }
}

fn pair<'a>(row: Row<'a>) -> (&'a [u8], &'a [u8]) {
    (row.first, row.second)
}

/// A hash to be changed.
pub struct FieldsMut<'a>(RowsMut<'a>);

impl<'a> FieldsMut<'a> {
    /// The hash in a leaf. Panics, there or later: the bytes are none.
    pub fn new(leaf: &'a mut Vec<u8>) -> FieldsMut<'a> {
        FieldsMut(RowsMut::new(leaf))
    }

    /// The hash to be read.
    pub fn fields(&self) -> Fields<'_> {
        Fields(self.0.rows())
    }

    /// Sets a field. Returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let fingerprint = fingerprint(field);
        match self.0.rows().find(fingerprint, field) {
            Some(row) => self.0.set_second(row, value),
            None => {
                self.0.push(fingerprint, 0, &[field, value]);
                return true;
            }
        }
        false
    }

    /// Removes a field. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let row = self.0.rows().find(fingerprint(field), field);
        if let Some(row) = row {
            self.0.remove(row..row + 1);
        }
        row.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_and_removed_and_keep_their_order() {
        let mut leaf = SHAPE.empty().to_vec();
        let mut fields = FieldsMut::new(&mut leaf);
        for number in 0..300 {
            assert!(fields.set(format!("f{number}").as_bytes(), b"v"));
            assert!(!fields.set(format!("f{number}").as_bytes(), format!("{number}").as_bytes()));
        }
        assert!(fields.remove(b"f7") && !fields.remove(b"f7") && !fields.remove(b"none"));
        let fields = Fields::check(&leaf).expect("a hash");
        assert_eq!(fields.len(), 299);
        assert_eq!(fields.get(b"f7"), None);
        let expected = (0..300).filter(|&number| number != 7);
        for ((field, value), number) in fields.iter().zip(expected) {
            assert_eq!(field, format!("f{number}").as_bytes());
            assert_eq!(value, format!("{number}").as_bytes());
            assert_eq!(fields.get(field), Some(value));
        }
        assert!(Fields::check(&Shape { parts: 1, ..SHAPE }.empty()).is_err());
    }
}
