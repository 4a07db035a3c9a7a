//! Lists.

use std::iter::once;
use std::ops::Range;

use keyspace::Key;
use value::Kind;
use value::leaf::elements::{Elements, ElementsMut, SHAPE};
use value::leaf::rows::ROWS_MAX;

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head.
    Left,
    /// The tail.
    Right,
}

impl End {
    /// The end that an argument names.
    pub fn parse(text: &[u8]) -> Option<End> {
        if text.eq_ignore_ascii_case(b"LEFT") {
            Some(End::Left)
        } else if text.eq_ignore_ascii_case(b"RIGHT") {
            Some(End::Right)
        } else {
            None
        }
    }

    /// The positions of the `count` elements at this end of `len`, or of all if there are not so many.
    pub fn positions(self, count: usize, len: usize) -> Range<usize> {
        let count = count.min(len);
        match self {
            End::Left => 0..count,
            End::Right => len - count..len,
        }
    }

    /// The event of elements that were put at this end.
    pub fn pushed(self) -> Event {
        match self {
            End::Left => Event::LPUSH,
            End::Right => Event::RPUSH,
        }
    }

    /// The event of elements that were taken from this end.
    pub fn popped(self) -> Event {
        match self {
            End::Left => Event::LPOP,
            End::Right => Event::RPOP,
        }
    }

    /// In front of which position an element goes that is put at this end of `len`.
    fn gap(self, len: usize) -> usize {
        match self {
            End::Left => 0,
            End::Right => len,
        }
    }
}

/// A list to be changed.
pub struct ListMut<'a> {
    elements: ElementsMut<'a>,
    bytes_max: usize,
}

impl ListMut<'_> {
    /// The list to be read.
    pub fn elements(&self) -> Elements<'_> {
        self.elements.elements()
    }

    /// Puts elements at an end, one after another.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn push<'e>(
        &mut self,
        end: End,
        elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
    ) -> CommandResult {
        let position = end.gap(self.elements().len());
        match end {
            End::Left => self.insert(position, elements.rev()),
            End::Right => self.insert(position, elements),
        }
    }

    /// Puts elements in front of the one at a position, or behind all others.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn insert<'e>(
        &mut self,
        position: usize,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> CommandResult {
        let (mut rows, mut bytes) = (self.elements().len(), self.elements().byte_len());
        for element in elements.clone() {
            rows += 1;
            bytes += SHAPE.row_bytes(&[element]);
        }
        if rows > ROWS_MAX || bytes > self.bytes_max {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        self.elements.insert(position, elements);
        Ok(())
    }

    /// Puts another element where there is one.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn set(&mut self, position: usize, element: &[u8]) -> CommandResult {
        let old_len = self.elements().at(position).len();
        let grows = element.len() > old_len;
        if grows && self.elements().byte_len() + element.len() - old_len > self.bytes_max {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        self.elements.set(position, element);
        Ok(())
    }

    /// Takes an element from an end and puts it at an end.
    pub fn rotate(&mut self, from: End, to: End) {
        if from != to {
            let taken = from.positions(1, self.elements().len());
            let element = self.elements().at(taken.start).to_vec();
            self.elements.remove(taken);
            let gap = to.gap(self.elements().len());
            self.elements.insert(gap, once(&element[..]));
        }
    }

    /// Removes the elements at some positions.
    pub fn remove(&mut self, positions: Range<usize>) {
        self.elements.remove(positions);
    }

    /// Removes some of those elements that equal this one, counted from the head.
    pub fn remove_equal(&mut self, element: &[u8], matches: Range<usize>) {
        let mut seen = 0;
        self.elements.retain(|other| {
            let is_match = other == element;
            seen += usize::from(is_match);
            !(is_match && matches.contains(&(seen - 1)))
        });
    }
}

impl Cx<'_, '_> {
    /// The list of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_list(&mut self, key: &Key<'_>) -> Result<Option<Elements<'_>>, CommandError> {
        let found = self.read_collection(key, Kind::is_list)?;
        Ok(found.map(|value| Elements::new(value.bytes)))
    }

    /// Changes the list of a key, an empty one if the key does not exist; it does not afterwards if the
    /// list is empty.
    ///
    /// Errors: as [`Cx::read_list`]; nothing is changed then.
    pub fn edit_list<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut ListMut<'_>) -> R,
    ) -> Result<R, CommandError> {
        let bytes_max = self.memory_bytes_max;
        let empty = (Kind::LIST, &SHAPE.empty()[..]);
        self.edit(key, Kind::is_list, empty, |_kind, leaf| {
            change(&mut ListMut { elements: ElementsMut::new(leaf), bytes_max })
        })
    }
}
