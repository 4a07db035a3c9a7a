//! The leaf of a list: its elements in order.

use std::ops::Range;

use crate::leaf::rows::{Damaged, Iter, Row, Rows, RowsMut, Shape};

/// The rows of a list: an element.
pub const SHAPE: Shape = Shape { parts: 1, ..Shape::NOTHING };

/// Elements that a walk backwards goes through at a time.
const BLOCK: usize = 128;

/// A list to be read.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a>(Rows<'a>);

impl<'a> Elements<'a> {
    /// The list in a leaf. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(leaf: &'a [u8]) -> Elements<'a> {
        Elements(Rows::new(leaf))
    }

    /// The list in bytes from elsewhere. Cost: linear in its elements.
    ///
    /// Errors: they are none.
    pub fn check(bytes: &'a [u8]) -> Result<Elements<'a>, Damaged> {
        let rows = Rows::check(bytes)?;
        if rows.shape() == SHAPE { Ok(Elements(rows)) } else { Err(Damaged) }
    }

    /// How many elements.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty list is a key that does not exist")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes that all of it takes.
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// An element by its position. Panics: there is none.
    #[inline]
    pub fn at(&self, position: usize) -> &'a [u8] {
        self.0.first(position)
    }

    /// All elements.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.iter_from(0)
    }

    /// The elements from a position on.
    pub fn iter_from(&self, position: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.0.iter_from(position).map(first)
    }

    /// The elements from the last one back to that at a position.
    ///
    /// Where an element begins is known from those in front of it alone. So they are gone through
    /// forwards first, to find where each block of them begins, and then block by block.
    pub fn iter_back_to(&self, position: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut blocks: Vec<Iter<'a>> = Vec::new();
        let mut rest = self.0.iter_from(position);
        loop {
            let block = rest.clone();
            if rest.next().is_none() {
                break;
            }
            blocks.push(block);
            rest.by_ref().take(BLOCK - 1).for_each(drop);
        }
        blocks.into_iter().rev().flat_map(|block| {
            let elements: Vec<&'a [u8]> = block.take(BLOCK).map(first).collect();
            elements.into_iter().rev()
        })
    }
}

fn first<'a>(row: Row<'a>) -> &'a [u8] {
    row.first
}

/// A list to be changed. Cost of every change: one pass over what lies behind it.
pub struct ElementsMut<'a>(RowsMut<'a>);

impl<'a> ElementsMut<'a> {
    /// The list in a leaf. Panics, there or later: the bytes are none.
    pub fn new(leaf: &'a mut Vec<u8>) -> ElementsMut<'a> {
        ElementsMut(RowsMut::new(leaf))
    }

    /// The list to be read.
    pub fn elements(&self) -> Elements<'_> {
        Elements(self.0.rows())
    }

    /// Puts elements in front of the one at a position, or behind all others. Panics: there are fewer
    /// elements, or more than a leaf can have.
    pub fn insert<'e>(
        &mut self,
        position: usize,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) {
        self.0.insert_all(position, elements);
    }

    /// Puts another element where there is one. Panics: there is none.
    pub fn set(&mut self, position: usize, element: &[u8]) {
        self.0.set_first(position, element);
    }

    /// Removes elements. Panics: there are not so many.
    pub fn remove(&mut self, range: Range<usize>) {
        self.0.remove(range);
    }

    /// Removes the elements of which `keeps` does not say so.
    pub fn retain(&mut self, keeps: impl FnMut(&[u8]) -> bool) {
        self.0.retain(keeps);
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    /// Elements of all lengths that make a difference to the leaf.
    fn samples(count: usize) -> Vec<Vec<u8>> {
        let len = |number: usize| if number % 7 == 3 { 250 + number % 10 } else { number % 20 };
        (0..count).map(|number| vec![number as u8; len(number)]).collect()
    }

    fn assert_same(leaf: &[u8], model: &[Vec<u8>]) {
        let elements = Elements::check(leaf).expect("a list");
        assert_eq!(elements.len(), model.len());
        assert_eq!(elements.byte_len(), leaf.len());
        assert!(elements.iter().eq(model.iter().map(Vec::as_slice)));
        for position in [0, 1, model.len() / 2, model.len().saturating_sub(1), model.len()] {
            let expected = model.iter().skip(position).map(Vec::as_slice);
            assert!(elements.iter_from(position).eq(expected.clone()), "from {position}");
            assert!(elements.iter_back_to(position).eq(expected.rev()), "back to {position}");
            if let Some(element) = model.get(position) {
                assert_eq!(elements.at(position), element);
            }
        }
    }

    #[test]
    fn elements_are_put_and_removed_anywhere() {
        for count in [1, 5, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let samples = samples(count);
            let mut leaf = SHAPE.empty().to_vec();
            let mut model: Vec<Vec<u8>> = Vec::new();
            let mut list = ElementsMut::new(&mut leaf);
            let all = || samples.iter().map(Vec::as_slice);
            list.insert(0, all());
            list.insert(0, all().rev());
            list.insert(count, all());
            list.insert(3 * count, once(&b"last"[..]));
            list.insert(1, std::iter::empty());
            model.extend(samples.iter().rev().cloned());
            model.extend(samples.iter().cloned());
            model.extend(samples.iter().cloned());
            model.push(b"last".to_vec());
            list.set(1, b"short");
            model[1] = b"short".to_vec();
            list.set(0, &[7; 300]);
            model[0] = vec![7; 300];
            list.remove(2..count.max(2));
            model.drain(2..count.max(2));
            assert_same(&leaf, &model);
            let mut list = ElementsMut::new(&mut leaf);
            let mut number = 0;
            list.retain(|element| {
                number += 1;
                element.len() != 2 && number % 3 > 0
            });
            let mut number = 0;
            model.retain(|element| {
                number += 1;
                element.len() != 2 && number % 3 > 0
            });
            assert_same(&leaf, &model);
            ElementsMut::new(&mut leaf).retain(|_| false);
            assert_same(&leaf, &[]);
            assert_eq!(leaf.len(), SHAPE.empty().len());
        }
    }

    #[test]
    fn other_leaves_are_no_list() {
        assert!(Elements::check(&SHAPE.empty()).is_ok());
        assert!(Elements::check(&Shape { parts: 2, ..SHAPE }.empty()).is_err());
        assert!(Elements::check(&Shape { numbers: true, ..SHAPE }.empty()).is_err());
        assert!(Elements::check(b"").is_err());
    }
}
