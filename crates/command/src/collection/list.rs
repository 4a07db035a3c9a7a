//! Lists: the elements of one leaf, or of a tree of leaves by position.

use std::iter::once;
use std::ops::{ControlFlow, Range};

use keyspace::{Changed, Expiry, Key, Stored};
use value::Kind;
use value::leaf::elements::{Elements, ElementsMut, SHAPE};
use value::leaf::{Rows, split_by_position};

use crate::collection::form::LIST;
use crate::collection::place::{LEAF_BYTES_MAX, Path, Place};
use crate::collection::reader::TreeReader;
use crate::collection::tree::{LONG_BYTES, SINGLE_BYTES_MAX, Tree};
use crate::collection::{Found, has_long};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};

/// Leaves that a search looks at first; then so many times more.
const SEARCHED_LEAVES: u64 = 32;
const WIDENED_BY: u64 = 4;

/// Elements that go into a leaf at an end of a list before that is divided.
const PUT_AT_ONCE: usize = 1_024;

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

    /// The positions of the `count` elements at this end of `len`, or of all if there are not so many.
    pub fn positions(self, count: u64, len: u64) -> Range<u64> {
        let count = count.min(len);
        match self {
            End::Left => 0..count,
            End::Right => len - count..len,
        }
    }
}

/// A list to be read.
pub enum List<'a> {
    /// In one leaf.
    Leaf(Elements<'a>),
    /// In many.
    Tree(TreeReader<'a>),
}

impl List<'_> {
    /// How many elements.
    #[expect(clippy::len_without_is_empty, reason = "an empty list is a key that does not exist")]
    pub fn len(&self) -> u64 {
        match self {
            List::Leaf(elements) => elements.len() as u64,
            List::Tree(tree) => tree.elements(),
        }
    }

    /// Bytes that all of it takes, about.
    pub fn byte_len(&self) -> u64 {
        match self {
            List::Leaf(elements) => elements.byte_len() as u64,
            List::Tree(tree) => tree.leaf_bytes(),
        }
    }

    /// An element by its position. Panics: there is none.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    pub fn at(&mut self, position: u64) -> Result<&[u8], CommandError> {
        match self {
            List::Leaf(elements) => Ok(elements.at(position as usize)),
            List::Tree(tree) => {
                let (leaf, position) = tree.leaf_of_nth(position)?;
                Ok(Elements::new(leaf).at(position))
            }
        }
    }

    /// Visits the elements at some positions, from the tail on if so asked. Panics: there are fewer. Of those
    /// on flash, all are looked for at once.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit(
        &mut self,
        positions: Range<u64>,
        is_backward: bool,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, CommandError> {
        match self {
            List::Leaf(elements) => {
                let all = 0..elements.len() as u64;
                Ok(visit_leaf((*elements, all), &positions, is_backward, &mut visit))
            }
            List::Tree(tree) => tree.visit_range(positions.clone(), is_backward, |leaf, all| {
                visit_leaf((Elements::new(leaf), all), &positions, is_backward, &mut visit)
            }),
        }
    }

    /// The same where few may be enough: of those on flash, some are looked for, then more.
    ///
    /// Errors: [`CommandError::NotResident`]: what has been visited is visited again.
    pub fn search(
        &mut self,
        mut positions: Range<u64>,
        is_backward: bool,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> CommandResult {
        let leaves = self.byte_len().div_ceil(LEAF_BYTES_MAX as u64);
        let mut window = self.len() / leaves * SEARCHED_LEAVES + 1;
        while !positions.is_empty() {
            let some = if is_backward {
                let first = positions.end.saturating_sub(window).max(positions.start);
                first..std::mem::replace(&mut positions.end, first)
            } else {
                let end = positions.start.saturating_add(window).min(positions.end);
                std::mem::replace(&mut positions.start, end)..end
            };
            if self.visit(some, is_backward, &mut visit)?.is_break() {
                break;
            }
            window = window.saturating_mul(WIDENED_BY);
        }
        Ok(())
    }
}

/// Visits those elements of a leaf, of which all have the given positions, that are among some.
fn visit_leaf(
    (elements, all): (Elements<'_>, Range<u64>),
    positions: &Range<u64>,
    is_backward: bool,
    visit: &mut impl FnMut(u64, &[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let visited = all.start.max(positions.start)..all.end.min(positions.end);
    let first = (visited.start - all.start) as usize;
    if is_backward {
        let back = elements.iter_back_to(first).skip((all.end - visited.end) as usize);
        return visited
            .rev()
            .zip(back)
            .try_for_each(|(position, element)| visit(position, element));
    }
    visited.zip(elements.iter_from(first)).try_for_each(|(at, element)| visit(at, element))
}

impl Cx<'_, '_> {
    /// The list of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_list<'s>(&'s mut self, key: &'s Key<'_>) -> Result<Option<List<'s>>, CommandError> {
        match self.find_to_read(key, Kind::is_list)? {
            Found::Missing => Ok(None),
            Found::Leaf(at) => Ok(Some(List::Leaf(Elements::new(self.read_leaf(key, at)?)))),
            Found::Tree(at) => Ok(Some(List::Tree(self.read_tree_of(self.place_at(key, at))))),
        }
    }

    /// Puts elements at an end of the list of a key, one after another; it is made if there is none. Returns
    /// how many there are now. Of a large list, no other leaf than that at the end is looked at, and not
    /// even that if it is on flash and there is not much room in it.
    ///
    /// Errors: as [`Cx::read_list`], [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn push_elements<'e>(
        &mut self,
        key: &Key<'_>,
        end: End,
        elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
    ) -> Result<u64, CommandError> {
        let mut found = self.find_to_edit(key, Kind::is_list)?;
        let (mut count, mut bytes) = (0, 0);
        for element in elements.clone() {
            count += 1;
            bytes += SHAPE.row_bytes(&[element]);
        }
        self.check_memory(bytes)?;
        let is_long = bytes >= LONG_BYTES && has_long(elements.clone());
        if is_long {
            self.spread(key, Kind::is_list)?;
            found = self.find_to_edit(key, Kind::is_list)?;
        }
        if count <= PUT_AT_ONCE {
            return self.push_some((key, found), end, elements, (bytes, is_long));
        }
        let mut rest = elements;
        let mut next = || rest.by_ref().take(PUT_AT_ONCE).collect::<Vec<&[u8]>>();
        let some = next().into_iter();
        let mut len = self.push_some((key, found), end, some, (bytes, is_long))?;
        loop {
            let some = next();
            if some.is_empty() {
                return Ok(len);
            }
            // There is room for all, and the leaf at the end is in RAM now.
            let found = self.find_to_edit(key, Kind::is_list)?;
            len = self.push_some((key, found), end, some.into_iter(), (0, is_long))?;
        }
    }

    /// The same of few elements, some of them long or not, where a list in one leaf may grow by `bytes`.
    fn push_some<'e>(
        &mut self,
        (key, found): (&Key<'_>, Found),
        end: End,
        elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
        (bytes, is_long): (usize, bool),
    ) -> Result<u64, CommandError> {
        let Found::Tree(at) = found else {
            let bytes_max = self.limits.memory_bytes_max();
            return self.edit_list_leaf((key, found), |list| {
                if bytes > 0 && list.elements().byte_len() + bytes > bytes_max {
                    return Changed::No(Err(CommandError::OUT_OF_MEMORY));
                }
                put_at(list, end, elements);
                Changed::Yes(Ok(list.elements().len() as u64))
            });
        };
        let place = self.place_at(key, at);
        let path = place.at_end(self.locked.slot(key.slot), end);
        let has_room = !is_long && self.promote_small(place, &path)?;
        let mut tree = self.edit_tree_of(place, &LIST);
        push_to_tree(&mut tree, (path, end), elements, has_room);
        Ok(tree.elements())
    }

    /// Puts the leaf at the end of a path, found just now, into RAM if it is on flash alone and has much room.
    /// Returns whether it is in RAM, and not long.
    fn promote_small(&mut self, place: Place<'_>, path: &Path) -> Result<bool, CommandError> {
        let slot = self.locked.slot(place.key.slot);
        if let Some(leaf) = place.found_in_ram(slot, path) {
            return Ok(leaf.len() < LONG_BYTES);
        }
        match place.view_found(slot, path).stored {
            Stored::Cold(_, len) if len as usize <= LEAF_BYTES_MAX / 2 => {
                self.promote_named(place, vec![path.name()])?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Sets a key to a list of these elements, one at least, whatever the key held. It does not expire.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn store_list<'e>(
        &mut self,
        key: &Key<'_>,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> CommandResult {
        let rows_bytes: usize = elements.clone().map(|element| SHAPE.row_bytes(&[element])).sum();
        self.check_memory(SHAPE.empty().len() + rows_bytes)?;
        let mut leaf = SHAPE.empty().to_vec();
        ElementsMut::new(&mut leaf).insert(0, elements.clone().take(PUT_AT_ONCE));
        let is_large = leaf.len() > SINGLE_BYTES_MAX;
        self.db(key).put_vec(key, Kind::LIST.bits(), leaf, Expiry::Clear);
        if is_large {
            self.grow(key, &LIST);
        }
        let mut rest = elements.skip(PUT_AT_ONCE).peekable();
        while rest.peek().is_some() {
            let some: Vec<&[u8]> = rest.by_ref().take(PUT_AT_ONCE).collect();
            self.push_elements(key, End::Right, some.into_iter())?;
        }
        Ok(())
    }

    fn edit_list_leaf<R>(
        &mut self,
        at: (&Key<'_>, Found),
        change: impl FnOnce(&mut ElementsMut<'_>) -> Changed<R>,
    ) -> R {
        let empty = (Kind::LIST, &SHAPE.empty()[..]);
        self.edit_leaf(at, empty, &LIST, |_kind, leaf| change(&mut ElementsMut::new(leaf)))
    }

    /// Puts an element where one stands at a position, or beside it, with so many bytes more. Panics: there is none.
    ///
    /// Errors: as [`Cx::read_list`], [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    fn put_element(
        &mut self,
        key: &Key<'_>,
        (position, side): (u64, Side),
        bytes: usize,
        element: &[u8],
    ) -> CommandResult {
        self.check_memory(bytes)?;
        if has_long(once(element)) {
            self.spread(key, Kind::is_list)?;
        }
        let found = self.find_to_edit(key, Kind::is_list)?;
        let bytes_max = self.limits.memory_bytes_max();
        let Found::Tree(at) = found else {
            return self.edit_list_leaf((key, found), |list| {
                if bytes > 0 && list.elements().byte_len() + bytes > bytes_max {
                    return Changed::No(Err(CommandError::OUT_OF_MEMORY));
                }
                side.put(list, position as usize, element);
                Changed::Yes(Ok(()))
            });
        };
        let place = self.place_at(key, at);
        let (path, within) = place.find_nth(self.locked.slot(key.slot), position);
        self.promote_leaf(place, &path)?;
        let mut tree = self.edit_tree_of(place, &LIST);
        let leaf = tree.leaf_in_ram(&path).expect("invariant: it was made resident");
        let is_alone = side == Side::Over && path.leaf.elements == 1;
        if is_alone || leaf.len() + bytes < LONG_BYTES {
            tree.change_leaf(path, |leaf| side.put(&mut ElementsMut::new(leaf), within, element));
            tree.settle();
        } else {
            put_apart(&mut tree, path, (within, side), element);
        }
        Ok(())
    }

    /// Puts an element in front of the one at a position, or behind it. Panics: there is none.
    ///
    /// Errors: as [`Cx::read_list`], [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn insert_element(
        &mut self,
        key: &Key<'_>,
        pivot: u64,
        is_behind: bool,
        element: &[u8],
    ) -> CommandResult {
        let side = if is_behind { Side::Behind } else { Side::InFront };
        self.put_element(key, (pivot, side), SHAPE.row_bytes(&[element]), element)
    }

    /// Puts another element where there is one, of `old_len`. Panics: there is none.
    ///
    /// Errors: as [`Cx::read_list`], [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn set_element(
        &mut self,
        key: &Key<'_>,
        position: u64,
        old_len: usize,
        element: &[u8],
    ) -> CommandResult {
        let bytes = element.len().saturating_sub(old_len);
        self.put_element(key, (position, Side::Over), bytes, element)
    }

    /// Takes the element from an end of the list of a key, once `take` has had a look at it. False: there is no
    /// list.
    ///
    /// Errors: as [`Cx::read_list`], and those of `take`; nothing is changed then.
    pub fn pop_element(
        &mut self,
        key: &Key<'_>,
        end: End,
        take: impl FnOnce(&[u8]) -> CommandResult,
    ) -> Result<bool, CommandError> {
        let found = self.find_to_edit(key, Kind::is_list)?;
        let pop = |list: &mut ElementsMut<'_>| {
            let at = end.positions(1, list.elements().len() as u64).start as usize;
            take(list.elements().at(at))?;
            list.remove(at..at + 1);
            Ok(true)
        };
        match found {
            Found::Missing => Ok(false),
            Found::Leaf(_) => self.edit_list_leaf((key, found), |list| match pop(list) {
                Ok(popped) => Changed::Yes(Ok(popped)),
                Err(error) => Changed::No(Err(error)),
            }),
            Found::Tree(at) => {
                let place = self.place_at(key, at);
                let path = place.at_end(self.locked.slot(key.slot), end);
                self.promote_leaf(place, &path)?;
                let mut tree = self.edit_tree_of(place, &LIST);
                let popped = tree.change_leaf(path, |leaf| pop(&mut ElementsMut::new(leaf)))?;
                tree.settle();
                Ok(popped)
            }
        }
    }

    /// Makes sure that the elements at some positions, not all of the list, can be removed: the leaves that
    /// lose a part of their elements are in RAM now. Others are not looked at.
    ///
    /// Errors: as [`Cx::read_list`].
    pub fn prepare_removal(&mut self, key: &Key<'_>, positions: &Range<u64>) -> CommandResult {
        match self.find_to_edit(key, Kind::is_list)? {
            Found::Tree(_) => self.promote_edges(key, positions),
            _ => Ok(()),
        }
    }

    fn promote_edges(&mut self, key: &Key<'_>, positions: &Range<u64>) -> CommandResult {
        let place = self.place(key);
        let slot = &*self.locked.slot(key.slot);
        let ends = [positions.start, positions.end - 1];
        let partly = ends.into_iter().filter_map(|position| {
            let (path, within) = place.find_nth(slot, position);
            let start = position - within as u64;
            let end = start + u64::from(path.leaf.elements);
            (start < positions.start || end > positions.end).then(|| path.name())
        });
        let names = partly.collect();
        self.promote_named(place, names)
    }

    /// Removes the elements at some positions, which are not all.
    ///
    /// Errors: as [`Cx::read_list`]; nothing is changed then.
    pub fn remove_elements(&mut self, key: &Key<'_>, positions: Range<u64>) -> CommandResult {
        if positions.is_empty() {
            return Ok(());
        }
        let found = self.find_to_edit(key, Kind::is_list)?;
        let Found::Tree(_) = found else {
            self.edit_list_leaf((key, found), |list| {
                list.remove(positions.start as usize..positions.end as usize);
                Changed::Yes(())
            });
            return Ok(());
        };
        self.promote_edges(key, &positions)?;
        let mut tree = self.edit_tree(key, &LIST);
        tree.remove_range(positions, |leaf, within| ElementsMut::new(leaf).remove(within));
        tree.settle();
        Ok(())
    }

    /// Takes the element from an end, which it was read from, and puts it at an end.
    ///
    /// Errors: as [`Cx::read_list`]; nothing is changed then.
    pub fn rotate_elements(
        &mut self,
        key: &Key<'_>,
        (from, to): (End, End),
        element: &[u8],
    ) -> CommandResult {
        let found = self.find_to_edit(key, Kind::is_list)?;
        let Found::Tree(_) = found else {
            self.edit_list_leaf((key, found), |list| {
                let len = list.elements().len() as u64;
                let taken = from.positions(1, len);
                if from != to {
                    list.remove(taken.start as usize..taken.end as usize);
                    put_at(list, to, once(element));
                }
                Changed::Yes(())
            });
            return Ok(());
        };
        let place = self.place(key);
        let slot = &*self.locked.slot(key.slot);
        let len = place.elements(slot);
        if from == to || len == 1 {
            self.db(key).tell_watchers(key);
            return Ok(());
        }
        let taken = from.positions(1, len);
        let (from_leaf, to_leaf) = (place.at_end(slot, from), place.at_end(slot, to));
        self.promote_named(place, vec![from_leaf.name()])?;
        self.promote_small(place, &to_leaf)?;
        let mut tree = self.edit_tree(key, &LIST);
        tree.remove_range(taken, |leaf, within| ElementsMut::new(leaf).remove(within));
        let path = tree.place.at_end(tree.slot, to);
        let has_room = |leaf: &[u8]| leaf.len() < LONG_BYTES;
        let has_room = element.len() < LONG_BYTES && tree.leaf_in_ram(&path).is_some_and(has_room);
        push_to_tree(&mut tree, (path, to), once(element), has_room);
        tree.settle();
        Ok(())
    }

    /// Removes elements that equal one: all, or so many from the head, or, if negative, from the tail.
    /// Returns how many. An empty list is no key.
    ///
    /// Errors: as [`Cx::read_list`]; nothing is changed then.
    pub fn remove_equal(
        &mut self,
        key: &Key<'_>,
        count: i64,
        element: &[u8],
    ) -> Result<u64, CommandError> {
        let found = self.find_to_edit(key, Kind::is_list)?;
        match found {
            Found::Missing => Ok(0),
            Found::Leaf(_) => Ok(self.edit_list_leaf((key, found), |list| {
                let matches = removed_matches(count_equal(list.elements(), element), count);
                if matches.is_empty() {
                    return Changed::No(0);
                }
                let removed = matches.end - matches.start;
                remove_matches(list, element, matches);
                Changed::Yes(removed)
            })),
            Found::Tree(_) => self.remove_equal_in_tree(key, count, element),
        }
    }

    fn remove_equal_in_tree(
        &mut self,
        key: &Key<'_>,
        count: i64,
        element: &[u8],
    ) -> Result<u64, CommandError> {
        let mut reader = self.read_tree(key);
        // How many elements each leaf has, and how many of them match.
        let mut leaves: Vec<(u32, u32)> = Vec::new();
        reader.visit(|leaf| {
            let elements = Elements::new(leaf);
            leaves.push((elements.len() as u32, count_equal(elements, element) as u32));
            ControlFlow::Continue(())
        })?;
        let all = leaves.iter().map(|&(_, matches)| u64::from(matches)).sum();
        let removed = removed_matches(all, count);
        // From where on a leaf stands, and which of its matches go.
        let mut changed: Vec<(u64, Range<u64>)> = Vec::new();
        let (mut start, mut seen) = (0, 0);
        for (len, matches) in leaves {
            let end = seen + u64::from(matches);
            let of_leaf = removed.start.max(seen)..removed.end.min(end);
            if !of_leaf.is_empty() {
                changed.push((start, of_leaf.start - seen..of_leaf.end - seen));
            }
            (start, seen) = (start + u64::from(len), end);
        }
        let place = self.place(key);
        let slot = &*self.locked.slot(key.slot);
        let names = changed.iter().map(|&(start, _)| place.find_nth(slot, start).0.name());
        let names = names.collect();
        self.promote_named(place, names)?;
        let mut tree = self.edit_tree(key, &LIST);
        // From the tail on, so that the others stay where they are. One that was joined to its neighbour in
        // front stands behind the elements of that.
        for (start, matches) in changed.into_iter().rev() {
            let path = tree.place.find_nth(tree.slot, start).0;
            tree.change_leaf(path, |leaf| {
                remove_matches(&mut ElementsMut::new(leaf), element, matches);
            });
        }
        tree.settle();
        Ok(removed.end - removed.start)
    }
}

/// Where an element is put, seen from another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    InFront,
    Behind,
    Over,
}

impl Side {
    fn put(self, list: &mut ElementsMut<'_>, at: usize, element: &[u8]) {
        match self {
            Side::InFront => list.insert(at, once(element)),
            Side::Behind => list.insert(at + 1, once(element)),
            Side::Over => list.set(at, element),
        }
    }
}

/// Puts an element into a leaf of its own, where one stands in the leaf at the end of a path, or beside it.
fn put_apart(tree: &mut Tree<'_>, path: Path, (at, side): (usize, Side), element: &[u8]) {
    let leaf = tree.leaf_in_ram(&path).expect("invariant: it was made resident");
    let (path, split) = match side {
        Side::InFront => (path, split_by_position(leaf, at)),
        Side::Behind => (path, split_by_position(leaf, at + 1)),
        Side::Over => {
            let rest = Rows::new(leaf).select(|row| row != at);
            let split = split_by_position(&rest, at);
            (tree.replace_leaf(path, rest), split)
        }
    };
    let mut new = SHAPE.empty().to_vec();
    ElementsMut::new(&mut new).insert(0, once(element));
    tree.put_apart(path, split, new);
}

fn put_at<'e>(
    list: &mut ElementsMut<'_>,
    end: End,
    elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
) {
    let len = list.elements().len();
    match end {
        End::Left => list.insert(0, elements.rev()),
        End::Right => list.insert(len, elements),
    }
}

/// Puts elements into the leaf at an end, or, unless that is in RAM and neither it nor one of them is long, into new
/// ones beside it.
fn push_to_tree<'e>(
    tree: &mut Tree<'_>,
    (path, end): (Path, End),
    elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
    has_room: bool,
) {
    if has_room {
        tree.change_leaf(path, |leaf| put_at(&mut ElementsMut::new(leaf), end, elements));
        return;
    }
    let mut leaf = SHAPE.empty().to_vec();
    put_at(&mut ElementsMut::new(&mut leaf), end, elements);
    tree.push_leaf(end, leaf);
}

fn count_equal(elements: Elements<'_>, element: &[u8]) -> u64 {
    elements.iter().filter(|other| *other == element).count() as u64
}

/// Which of so many matches LREM removes, counted from the head.
fn removed_matches(matches: u64, count: i64) -> Range<u64> {
    let removed = if count == 0 { matches } else { matches.min(count.unsigned_abs()) };
    let first = if count < 0 { matches - removed } else { 0 };
    first..first + removed
}

/// Removes some of those elements that equal one, counted from the head.
fn remove_matches(list: &mut ElementsMut<'_>, element: &[u8], matches: Range<u64>) {
    let mut seen = 0;
    list.retain(|other| {
        let is_match = other == element;
        seen += u64::from(is_match);
        !(is_match && matches.contains(&(seen - 1)))
    });
}
