//! What a large collection must know of its leaves: how their elements are counted, divided and joined.
//!
//! Leaves stand in one of two orders. By byte string: each begins at a bound, and a path to one is found by
//! what an element stands at (`Place::find`). By position: bounds are empty and never looked at, and a path is
//! found by counting (`Place::find_nth`).

use value::Kind;
use value::leaf::entries::{EMPTY, Entries};
use value::leaf::fields::Fields;
use value::leaf::{
    Cut, Rows, divide_by_hash, divide_by_position, element_hash, halves, score_index, scored,
    stream_rows,
};

use crate::collection::place::LEAF_BYTES_MAX;

/// A leaf, or a part of one, behind the bound where it begins.
pub(crate) type Part = (Vec<u8>, Vec<u8>);

/// Makes one leaf of several that follow each other.
pub(crate) type Join = fn(leaves: &[&[u8]]) -> Vec<u8>;

/// The leaves of one type of collection.
pub(crate) struct Form {
    /// Their kind.
    pub(crate) kind: Kind,
    /// Counts the elements of a leaf.
    pub(crate) count: fn(leaf: &[u8]) -> usize,
    /// Divides a leaf into parts of at most [`LEAF_BYTES_MAX`], or larger ones that cannot be divided. The
    /// first has an empty bound. [`Cut`] says which parts should have room left.
    pub(crate) divide: fn(leaf: Vec<u8>, cut: Cut) -> Vec<Part>,
    /// None: leaves stay apart.
    pub(crate) join: Option<Join>,
    /// When the first element of a leaf expires: Unix milliseconds, 0 for never. None: elements do not expire.
    pub(crate) first_expiry: Option<fn(leaf: &[u8]) -> u64>,
}

impl Form {
    /// When the first element of a leaf expires: Unix milliseconds, 0 for never.
    #[inline]
    pub(crate) fn first_expiry_of(&self, leaf: &[u8]) -> u64 {
        self.first_expiry.map_or(0, |first_expiry| first_expiry(leaf))
    }
}

/// Leaves of a hash, by the hashes of fields.
pub(crate) static HASH: Form = Form {
    kind: Kind::HASH,
    count: count_rows,
    divide: divide_rows_by_hash,
    join: Some(join_rows),
    first_expiry: Some(|leaf| Fields::new(leaf).first_expiry()),
};

/// Leaves of a set, by the hashes of members.
pub(crate) static SET: Form = Form {
    kind: Kind::SET,
    count: count_rows,
    divide: divide_rows_by_hash,
    join: Some(join_rows),
    first_expiry: None,
};

/// Leaves of a list, by position.
pub(crate) static LIST: Form = Form {
    kind: Kind::LIST,
    count: count_rows,
    divide: divide_rows_by_position,
    join: Some(join_rows),
    first_expiry: None,
};

/// Leaves of the entries of a stream, by IDs. They are divided as they are added to, so that they are those
/// of Redis, and stay apart. The only one of a tree may be empty, and counts as if it had an entry.
pub(crate) static ENTRIES: Form = Form {
    kind: Kind::STREAM,
    count: count_entries,
    divide: |leaf, _cut| vec![(Vec::new(), leaf)],
    join: None,
    first_expiry: None,
};

/// Leaves of the rows of a stream, by keys.
pub(crate) static STREAM_ROWS: Form = Form {
    kind: Kind::STREAM,
    count: count_rows,
    divide: |leaf, _cut| stream_rows::divide(leaf, LEAF_BYTES_MAX),
    join: Some(join_rows),
    first_expiry: None,
};

fn count_entries(leaf: &[u8]) -> usize {
    if *leaf == EMPTY { 1 } else { Entries::new(leaf).len() as usize }
}

/// Leaves of a sorted set, by score and member.
pub(crate) static SORTED_SET: Form = Form {
    kind: Kind::SORTED_SET,
    count: count_rows,
    divide: |leaf, cut| match count_rows(&leaf) {
        // Without a copy.
        1 => vec![(Vec::new(), leaf)],
        _ => scored::divide_in_order(&leaf, LEAF_BYTES_MAX, cut),
    },
    join: Some(join_rows),
    first_expiry: None,
};

/// Leaves of its index, by the hashes of members.
pub(crate) static SCORE_INDEX: Form = Form {
    kind: Kind::SORTED_SET,
    count: count_rows,
    divide: |leaf, _cut| score_index::divide(leaf, LEAF_BYTES_MAX),
    join: Some(join_rows),
    first_expiry: None,
};

/// Where an element stands among leaves that are ordered by hashes.
pub(crate) fn order(element: &[u8]) -> [u8; 8] {
    element_hash(element).to_be_bytes()
}

/// Counts the rows of a leaf.
pub(crate) fn count_rows(leaf: &[u8]) -> usize {
    Rows::new(leaf).len()
}

/// Joins leaves of rows. Panics: they have more rows together than a leaf can have.
pub(crate) fn join_rows(leaves: &[&[u8]]) -> Vec<u8> {
    let whole = Rows::concat(leaves.iter().map(|leaf| Rows::new(leaf)));
    whole.expect("invariant: leaves that are joined are small")
}

/// Divides a leaf of rows that are ordered by the hashes of their first parts.
pub(crate) fn divide_rows_by_hash(leaf: Vec<u8>, _cut: Cut) -> Vec<Part> {
    halves(leaf, LEAF_BYTES_MAX, divide_by_hash)
}

/// Divides a leaf of rows that have no order but their own.
pub(crate) fn divide_rows_by_position(leaf: Vec<u8>, cut: Cut) -> Vec<Part> {
    match count_rows(&leaf) {
        // Without a copy.
        1 => vec![(Vec::new(), leaf)],
        _ => divide_by_position(&leaf, LEAF_BYTES_MAX, cut),
    }
}
