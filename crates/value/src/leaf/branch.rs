//! The nodes above the leaves of a large collection: which leaf begins where, and how many elements
//! each part has.
//!
//! ```text
//! root:   offset 0  id of the collection, 8 bytes
//!                8  elements, 8 bytes
//!               16  bytes of all leaves, 8 bytes
//!               24  number of the next node, 4 bytes
//!               28  height, 1 byte: 1 if its children are leaves; 0: nodes that were cut off
//!               29  encoding that OBJECT ENCODING tells, 1 byte
//!               30  length of what the type keeps here besides, 1 byte
//!               31  what the type keeps here besides: the head of a stream
//!                .  branch
//! branch: rows (`rows.rs`) of a bound, with a number: the child (bits 0-31), its elements (bits 32-63)
//!         prefixes of the bounds, 8 bytes a row
//! ```
//!
//! A child holds what is not below its bound and below that of the next; bounds are compared byte by
//! byte, and the first of a branch is not looked at. A prefix is the first 8 bytes of a bound, filled up with
//! zeros, as a number: where two differ, so do their bounds, in the same way, and a search compares numbers
//! that stand side by side.

use std::ops::Range;

use smallvec::SmallVec;

use crate::leaf::rows::{HEAD_BYTES, Rows, RowsMut, Shape};

/// The rows of a branch.
const SHAPE: Shape = Shape { parts: 1, numbers: true, ..Shape::NOTHING };

const ELEMENTS_AT: usize = 8;
const LEAF_BYTES_AT: usize = 16;
const NEXT_NODE_AT: usize = 24;
const HEIGHT_AT: usize = 28;
const ENCODING_AT: usize = 29;
const EXTRA_LEN_AT: usize = 30;
const EXTRA_AT: usize = 31;
const COUNT_SHIFT: u32 = 32;
const PREFIX_BYTES: usize = 8;
const CHILD_BYTES: usize = 8;

/// The height of what is no root, but names nodes that were cut off a collection.
pub const PART_HEIGHT: u8 = 0;

/// A node as its branch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its number within the collection.
    pub node: u32,
    /// Elements below it.
    pub elements: u32,
}

impl Child {
    fn from_number(number: u64) -> Child {
        Child { node: number as u32, elements: (number >> COUNT_SHIFT) as u32 }
    }

    fn number(self) -> u64 {
        u64::from(self.node) | u64::from(self.elements) << COUNT_SHIFT
    }
}

/// The first bytes of a bound, or of a place, in the order of the whole.
#[inline]
fn prefix_of(order: &[u8]) -> u64 {
    if let Some(first) = order.first_chunk::<PREFIX_BYTES>() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; PREFIX_BYTES];
    first[..order.len()].copy_from_slice(order);
    u64::from_be_bytes(first)
}

/// Where the prefixes of a branch begin.
#[inline]
fn prefixes_start(branch: &[u8]) -> usize {
    branch.len() - PREFIX_BYTES * Rows::count(branch)
}

/// A branch to be read.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    bytes: &'a [u8],
    rows: Rows<'a>,
}

impl<'a> Branch<'a> {
    /// The branch in a node. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(node: &'a [u8]) -> Branch<'a> {
        Branch { bytes: node, rows: Rows::new(&node[..prefixes_start(node)]) }
    }

    /// The bytes of the node.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn prefixes(&self) -> &'a [[u8; PREFIX_BYTES]] {
        self.bytes[self.rows.byte_len()..].as_chunks().0
    }

    /// How many children.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a branch has a child")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// A child by its position. Panics: there is none.
    #[inline]
    pub fn child(&self, at: usize) -> Child {
        child_at(self.bytes, at)
    }

    /// Where a child begins. Panics: there is no such child.
    pub fn bound(&self, at: usize) -> &'a [u8] {
        self.rows.first(at)
    }

    /// The position of the child that holds what stands at `order`.
    #[inline]
    pub fn find(&self, order: &[u8]) -> usize {
        let (prefix, prefixes) = (prefix_of(order), self.prefixes());
        let at = last_at_most(prefixes, prefix);
        if u64::from_le_bytes(prefixes[at]) == prefix { self.find_same(order, at) } else { at }
    }

    /// The same where prefixes up to that at `last` do not tell.
    #[cold]
    fn find_same(&self, order: &[u8], last: usize) -> usize {
        let below = prefix_of(order).checked_sub(1);
        let first = below.map_or(0, |below| last_at_most(self.prefixes(), below));
        self.rows.find_last_at_most(order, first..last + 1)
    }

    /// The position of the child that holds the `element`-th, and how many stand before it in that child.
    /// None: there are fewer.
    pub fn find_nth(&self, mut element: u64) -> Option<(usize, u64)> {
        for (at, number) in self.rows.numbers().enumerate() {
            let elements = number >> COUNT_SHIFT;
            if element < elements {
                return Some((at, element));
            }
            element -= elements;
        }
        None
    }

    /// Elements of the children in front of one.
    pub fn elements_before(&self, at: usize) -> u64 {
        self.rows.numbers().take(at).map(|number| number >> COUNT_SHIFT).sum()
    }

    /// Elements of all children.
    pub fn elements(&self) -> u64 {
        self.elements_before(self.len())
    }

    /// All children.
    pub fn children(&self) -> impl Iterator<Item = Child> + use<'a> {
        self.rows.numbers().map(Child::from_number)
    }
}

/// The last of the prefixes, which stand in order, that is `prefix` or less; the first counts as less. Cost: as
/// many steps whatever is found, with no branch for the CPU to guess.
#[inline]
fn last_at_most(prefixes: &[[u8; PREFIX_BYTES]], prefix: u64) -> usize {
    let (mut first, mut len) = (0, prefixes.len());
    while len > 1 {
        let half = len / 2;
        let is_behind = u64::from_le_bytes(prefixes[first + half]) > prefix;
        first = if is_behind { first } else { first + half };
        len -= half;
    }
    first
}

/// A branch to be changed.
pub struct BranchMut<'a>(&'a mut Vec<u8>);

impl<'a> BranchMut<'a> {
    /// The branch in a node. Panics, there or later: the bytes are none.
    pub fn new(node: &'a mut Vec<u8>) -> BranchMut<'a> {
        BranchMut(node)
    }

    /// A branch of these children.
    pub fn of(children: impl IntoIterator<Item = (Vec<u8>, Child)>) -> Vec<u8> {
        let mut node = SHAPE.empty().to_vec();
        let mut rows = RowsMut::new(&mut node);
        for (bound, child) in children {
            rows.push(0, child.number(), &[&bound]);
        }
        with_prefixes(node)
    }

    /// The branch to be read.
    pub fn branch(&self) -> Branch<'_> {
        Branch::new(self.0)
    }

    /// Changes the rows of the branch, and then the prefixes as they were.
    fn change<R>(
        &mut self,
        change: impl FnOnce(&mut RowsMut<'_>) -> R,
        change_prefixes: impl FnOnce(&mut Prefixes),
    ) -> R {
        let mut prefixes = Prefixes::from_slice(self.branch().prefixes());
        self.0.truncate(prefixes_start(self.0));
        let result = change(&mut RowsMut::new(self.0));
        change_prefixes(&mut prefixes);
        self.0.reserve_exact(PREFIX_BYTES * prefixes.len());
        self.0.extend_from_slice(prefixes.as_flattened());
        result
    }

    /// Puts a child in front of the `at`-th.
    pub fn insert(&mut self, at: usize, bound: &[u8], child: Child) {
        let prefix = prefix_of(bound).to_le_bytes();
        self.change(
            |rows| rows.insert(at, 0, child.number(), &[bound]),
            |prefixes| prefixes.insert(at, prefix),
        );
    }

    /// Lets another child stand at a position, with the same bound.
    pub fn set(&mut self, at: usize, child: Child) {
        set_in_place(self.0, at, child);
    }

    /// Adds to the elements of a child. Panics: fewer than none are left.
    pub fn add(&mut self, at: usize, elements: i64) {
        add_in_place(self.0, at, elements);
    }

    /// Takes a child out.
    pub fn remove(&mut self, at: usize) {
        self.change(
            |rows| rows.remove(at..at + 1),
            |prefixes| {
                prefixes.remove(at);
            },
        );
    }

    /// Takes the children from `at` on into a branch of their own; returns it with its bound.
    pub fn split_off(&mut self, at: usize) -> (Vec<u8>, Vec<u8>) {
        let bound = self.branch().bound(at).to_vec();
        let right = self.change(|rows| rows.split_off(at), |prefixes| prefixes.truncate(at));
        (bound, with_prefixes(right))
    }
}

type Prefixes = SmallVec<[[u8; PREFIX_BYTES]; 256]>;

/// The branch of these rows.
fn with_prefixes(mut rows: Vec<u8>) -> Vec<u8> {
    let prefixes: Prefixes =
        Rows::new(&rows).iter().map(|row| prefix_of(row.first).to_le_bytes()).collect();
    rows.reserve_exact(PREFIX_BYTES * prefixes.len());
    rows.extend_from_slice(prefixes.as_flattened());
    rows
}

/// The root of a large collection, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a>(&'a [u8]);

impl<'a> Root<'a> {
    /// The root in a value. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(value: &'a [u8]) -> Root<'a> {
        Root(value)
    }

    #[inline]
    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("invariant: 8 bytes"))
    }

    /// What its nodes are named by.
    #[inline]
    pub fn id(&self) -> u64 {
        self.u64_at(0)
    }

    /// Elements of the collection.
    #[inline]
    pub fn elements(&self) -> u64 {
        self.u64_at(ELEMENTS_AT)
    }

    /// Bytes of all leaves together.
    #[inline]
    pub fn leaf_bytes(&self) -> u64 {
        self.u64_at(LEAF_BYTES_AT)
    }

    /// The number of the next node that is made.
    pub fn next_node(&self) -> u32 {
        let bytes = &self.0[NEXT_NODE_AT..NEXT_NODE_AT + 4];
        u32::from_le_bytes(bytes.try_into().expect("invariant: 4 bytes"))
    }

    /// How many branches are on the way to a leaf, this one included.
    #[inline]
    pub fn height(&self) -> u8 {
        self.0[HEIGHT_AT]
    }

    /// The encoding that OBJECT ENCODING tells.
    pub fn encoding(&self) -> u8 {
        self.0[ENCODING_AT]
    }

    /// Whether it is none, but names nodes that were cut off a collection, which goes on without them.
    pub fn is_part(&self) -> bool {
        self.height() == PART_HEIGHT
    }

    #[inline]
    fn branch_start(&self) -> usize {
        EXTRA_AT + usize::from(self.0[EXTRA_LEN_AT])
    }

    /// What the type keeps here besides.
    #[inline]
    pub fn extra(&self) -> &'a [u8] {
        &self.0[EXTRA_AT..self.branch_start()]
    }

    /// Its children.
    #[inline]
    pub fn branch(&self) -> Branch<'a> {
        Branch::new(&self.0[self.branch_start()..])
    }
}

/// The root of a large collection in parts, to be changed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootParts {
    /// What its nodes are named by.
    pub id: u64,
    /// Elements of the collection.
    pub elements: u64,
    /// Bytes of all leaves together.
    pub leaf_bytes: u64,
    /// The number of the next node that is made.
    pub next_node: u32,
    /// How many branches are on the way to a leaf, this one included.
    pub height: u8,
    /// The encoding that OBJECT ENCODING tells.
    pub encoding: u8,
    /// What the type keeps here besides.
    pub extra: Vec<u8>,
    /// Its branch.
    pub branch: Vec<u8>,
}

impl RootParts {
    /// Takes a root apart.
    pub fn of(root: Root<'_>) -> RootParts {
        RootParts {
            id: root.id(),
            elements: root.elements(),
            leaf_bytes: root.leaf_bytes(),
            next_node: root.next_node(),
            height: root.height(),
            encoding: root.encoding(),
            extra: root.extra().to_vec(),
            branch: root.branch().bytes().to_vec(),
        }
    }

    /// The number of a new node of a collection that is being made.
    pub fn take_node(&mut self) -> u32 {
        let node = self.next_node;
        self.next_node = node.checked_add(1).expect("a collection is not made of 2^32 nodes");
        node
    }

    /// The value. Panics: what the type keeps is more than 255 bytes.
    pub fn into_value(self) -> Vec<u8> {
        let extra_len = u8::try_from(self.extra.len()).expect("invariant: types keep little here");
        let mut value = Vec::with_capacity(EXTRA_AT + self.extra.len() + self.branch.len());
        value.extend_from_slice(&self.id.to_le_bytes());
        value.extend_from_slice(&self.elements.to_le_bytes());
        value.extend_from_slice(&self.leaf_bytes.to_le_bytes());
        value.extend_from_slice(&self.next_node.to_le_bytes());
        value.extend_from_slice(&[self.height, self.encoding, extra_len]);
        value.extend_from_slice(&self.extra);
        value.extend_from_slice(&self.branch);
        value
    }
}

/// The root of a large collection, changed where it stands.
pub struct RootMut<'a>(&'a mut [u8]);

impl<'a> RootMut<'a> {
    /// The root in a value. Panics, there or later: the bytes are none.
    pub fn new(value: &'a mut [u8]) -> RootMut<'a> {
        RootMut(value)
    }

    /// Adds to the elements of a child, and so of the collection, and to the bytes of its leaves.
    pub fn add(&mut self, at: usize, elements: i64, leaf_bytes: i64) {
        let root = Root(self.0);
        let sum = |old: u64, added: i64| {
            old.checked_add_signed(added).expect("invariant: a collection has what was added to it")
        };
        let (all, bytes) = (sum(root.elements(), elements), sum(root.leaf_bytes(), leaf_bytes));
        self.0[ELEMENTS_AT..ELEMENTS_AT + 8].copy_from_slice(&all.to_le_bytes());
        self.0[LEAF_BYTES_AT..LEAF_BYTES_AT + 8].copy_from_slice(&bytes.to_le_bytes());
        let branch_start = Root(self.0).branch_start();
        add_in_place(&mut self.0[branch_start..], at, elements);
    }

    /// The number of a new node.
    ///
    /// All have been taken after 2^32: the caller looks whether one is in use.
    pub fn take_node(&mut self) -> u32 {
        let node = Root(self.0).next_node();
        let next = node.wrapping_add(1);
        self.0[NEXT_NODE_AT..NEXT_NODE_AT + 4].copy_from_slice(&next.to_le_bytes());
        node
    }

    /// Sets what its nodes are named by.
    pub fn set_id(&mut self, id: u64) {
        self.0[..ELEMENTS_AT].copy_from_slice(&id.to_le_bytes());
    }

    /// Sets what the type keeps here besides. Panics: its length changes.
    pub fn set_extra(&mut self, extra: &[u8]) {
        let end = Root(self.0).branch_start();
        self.0[EXTRA_AT..end].copy_from_slice(extra);
    }

    /// Sets the encoding that OBJECT ENCODING tells.
    pub fn set_encoding(&mut self, encoding: u8) {
        self.0[ENCODING_AT] = encoding;
    }
}

/// Adds to the elements of a branch's child where it stands. Panics: fewer than none are left.
pub fn add_in_place(branch: &mut [u8], at: usize, elements: i64) {
    let child = child_at(branch, at);
    let sum = i64::from(child.elements) + elements;
    let elements = u32::try_from(sum).expect("invariant: a child has what was added to it");
    set_in_place(branch, at, Child { elements, ..child });
}

fn set_in_place(branch: &mut [u8], at: usize, child: Child) {
    let place = place_of_child(branch, at);
    branch[place].copy_from_slice(&child.number().to_le_bytes());
}

#[inline]
fn child_at(branch: &[u8], at: usize) -> Child {
    let number = &branch[place_of_child(branch, at)];
    Child::from_number(u64::from_le_bytes(number.try_into().expect("invariant: 8 bytes")))
}

/// Where the number of a branch's child stands: in front of all else, since there are no fingerprints. Panics: there
/// is no such child.
#[inline]
fn place_of_child(branch: &[u8], at: usize) -> Range<usize> {
    assert!(at < Rows::count(branch));
    let start = HEAD_BYTES + CHILD_BYTES * at;
    start..start + CHILD_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn child(node: u32, elements: u32) -> Child {
        Child { node, elements }
    }

    fn branch() -> Vec<u8> {
        let bounds: [(&[u8], Child); 4] = [
            (b"", child(7, 10)),
            (b"\x20", child(8, 0)),
            (b"\x20\x01", child(9, 5)),
            (b"\xf0", child(3, 1)),
        ];
        BranchMut::of(bounds.map(|(bound, child)| (bound.to_vec(), child)))
    }

    #[test]
    fn children_are_found_by_order_and_by_position() {
        let bytes = branch();
        let branch = Branch::new(&bytes);
        let cases: [(&[u8], usize); 7] = [
            (b"", 0),
            (b"\x1f\xff", 0),
            (b"\x20", 1),
            (b"\x20\x00\xff", 1),
            (b"\x20\x01\x00", 2),
            (b"\xef", 2),
            (b"\xff", 3),
        ];
        for (order, expected) in cases {
            assert_eq!(branch.find(order), expected, "{order:?}");
        }
        let nth = [(0, Some((0, 0))), (9, Some((0, 9))), (10, Some((2, 0))), (15, Some((3, 0)))];
        for (element, expected) in nth {
            assert_eq!(branch.find_nth(element), expected);
        }
        assert_eq!(branch.find_nth(16), None);
        assert_eq!(branch.elements_before(3), 15);
    }

    proptest! {
        /// Bounds that agree in their first bytes, or are one the beginning of another.
        #[test]
        fn a_child_is_found_whatever_bounds_agree_in(
            bounds in prop::collection::btree_set(prop::collection::vec(0..3u8, 1..12), 0..60),
            orders in prop::collection::vec(prop::collection::vec(0..3u8, 0..14), 1..40),
            (removed, divided) in (any::<usize>(), any::<usize>()),
        ) {
            let mut bounds: Vec<Vec<u8>> = std::iter::once(Vec::new()).chain(bounds).collect();
            let mut node = BranchMut::of([(Vec::new(), child(0, 1))]);
            for (at, bound) in bounds.iter().enumerate().skip(1).rev() {
                BranchMut::new(&mut node).insert(1, bound, child(at as u32, 1));
            }
            let all = |bounds: &[Vec<u8>]| {
                BranchMut::of(bounds.iter().enumerate().map(|(at, bound)| (bound.clone(), child(at as u32, 1))))
            };
            prop_assert_eq!(&node, &all(&bounds));
            let assert_found = |node: &[u8], bounds: &[Vec<u8>]| {
                for order in orders.iter().chain(bounds) {
                    let expected = bounds.iter().skip(1).filter(|bound| *bound <= order).count();
                    assert_eq!(Branch::new(node).find(order), expected, "{:?}", order);
                }
            };
            assert_found(&node, &bounds);
            let at = divided % bounds.len();
            let mut left = node.clone();
            let (bound, right) = BranchMut::new(&mut left).split_off(at);
            prop_assert_eq!(&bound, &bounds[at]);
            assert_found(&right, &bounds[at..]);
            prop_assert_eq!(Branch::new(&left).len(), at);
            if at > 0 {
                assert_found(&left, &bounds[..at]);
            }
            let at = removed % bounds.len();
            BranchMut::new(&mut node).remove(at);
            bounds.remove(at);
            if !bounds.is_empty() {
                assert_found(&node, &bounds);
            }
        }
    }

    #[test]
    fn a_root_is_what_it_was_made_of() {
        let parts = RootParts {
            id: 0x0123_4567_89ab_cdef,
            elements: 16,
            leaf_bytes: 4_000,
            next_node: 10,
            height: 1,
            encoding: 1,
            extra: vec![7, 8],
            branch: branch(),
        };
        let mut value = parts.clone().into_value();
        RootMut::new(&mut value).set_extra(&[7, 9]);
        assert_eq!(Root::new(&value).extra(), [7, 9]);
        RootMut::new(&mut value).set_extra(&[7, 8]);
        assert_eq!(RootParts::of(Root::new(&value)), parts);
        RootMut::new(&mut value).add(2, -5, 70);
        RootMut::new(&mut value).set_encoding(0);
        let root = Root::new(&value);
        assert_eq!((root.elements(), root.leaf_bytes(), root.encoding()), (11, 4_070, 0));
        assert_eq!(root.branch().child(2), child(9, 0));
        assert_eq!(root.branch().children().count(), 4);
    }
}
