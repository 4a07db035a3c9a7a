//! Writes objects as Redis 7.0 does (`object.rs` tells of their types), each with its type in front.
//!
//! Elements are added one by one. What stands in front of them and is known last is written behind: a buffer holds
//! an object whole.

use crate::intset;
use crate::length;
use crate::list::PACKED_NODE;
use crate::list::PLAIN_NODE;
use crate::listpack::{self, ListpackBuilder};
pub use crate::stream_write::{StreamWriter, begin_stream};
use crate::text;

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
const SORTED_SET: u8 = 5;
const SET_INTSET: u8 = 11;
const HASH_LISTPACK: u8 = 16;
const SORTED_SET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const HASH_EXPIRING: u8 = 24;

/// Bytes of a node of a list, as `list-max-listpack-size` is by default. A longer element has one for itself.
const NODE_BYTES_MAX: usize = 8 << 10;
/// Longer elements are nodes as they are: a listpack tells its length in 32 bits.
const PACKED_BYTES_MAX: usize = 1 << 30;
/// Bytes of a listpack that is a whole collection. What is larger is written plain, which Redis packs if it may.
pub const PACKED_COLLECTION_BYTES_MAX: usize = 1 << 20;

/// Writes a string. `compresses`: if that is shorter.
pub fn string(out: &mut Vec<u8>, bytes: &[u8], compresses: bool) {
    out.push(STRING);
    match compresses {
        true => text::write_compressed(out, bytes),
        false => text::write(out, bytes),
    }
}

/// Begins a string of a length, which is to follow as it is.
pub fn begin_string(out: &mut Vec<u8>, len: u64) {
    out.push(STRING);
    length::write(out, len);
}

/// Writes a list.
pub struct ListWriter<'o> {
    out: &'o mut Vec<u8>,
    nodes_at: usize,
    nodes: u32,
    node: ListpackBuilder,
}

impl<'o> ListWriter<'o> {
    /// Begins a list.
    pub fn new(out: &'o mut Vec<u8>) -> ListWriter<'o> {
        out.push(LIST_QUICKLIST_2);
        let nodes_at = length::write_later(out);
        ListWriter { out, nodes_at, nodes: 0, node: ListpackBuilder::default() }
    }

    /// Adds an element at the tail.
    pub fn push(&mut self, element: &[u8]) {
        if element.len() >= PACKED_BYTES_MAX {
            self.end_node();
            length::write(self.out, PLAIN_NODE);
            text::write_raw(self.out, element);
            self.nodes += 1;
            return;
        }
        let bytes = ListpackBuilder::value_bytes(element);
        if bytes > NODE_BYTES_MAX {
            self.end_node();
            length::write(self.out, PACKED_NODE);
            listpack::write_alone(self.out, element);
            self.nodes += 1;
            return;
        }
        if self.node.byte_len() + bytes > NODE_BYTES_MAX {
            self.end_node();
        }
        self.node.push(element);
    }

    fn end_node(&mut self) {
        if self.node.len() == 0 {
            return;
        }
        length::write(self.out, PACKED_NODE);
        text::write_raw(self.out, self.node.finish());
        self.node = ListpackBuilder::default();
        self.nodes += 1;
    }

    /// Ends the list.
    pub fn finish(mut self) {
        self.end_node();
        length::write_at(self.out, self.nodes_at, self.nodes);
    }
}

/// Writes a set of integers in ascending order, less than 2^32 of them.
pub fn integers(out: &mut Vec<u8>, integers: &[i64]) {
    out.push(SET_INTSET);
    length::write(out, intset::byte_len(integers) as u64);
    intset::write(out, integers);
}

/// Writes a set of so many members.
pub struct SetWriter<'o>(&'o mut Vec<u8>);

impl<'o> SetWriter<'o> {
    /// Begins a set.
    pub fn new(out: &'o mut Vec<u8>, members: u64) -> SetWriter<'o> {
        out.push(SET);
        length::write(out, members);
        SetWriter(out)
    }

    /// Adds a member.
    pub fn push(&mut self, member: &[u8]) {
        text::write(self.0, member);
    }
}

/// Begins a list, a set, a sorted set or a hash of so many elements, which [`element`], [`scored`] and [`field`] add.
/// Nothing of it is written later than it is added, so that a large one need not be in memory as a whole.
pub fn begin_list(out: &mut Vec<u8>, elements: u64) {
    out.push(LIST);
    length::write(out, elements);
}

/// See [`begin_list`].
pub fn begin_set(out: &mut Vec<u8>, members: u64) {
    out.push(SET);
    length::write(out, members);
}

/// See [`begin_list`].
pub fn begin_sorted_set(out: &mut Vec<u8>, members: u64) {
    out.push(SORTED_SET);
    length::write(out, members);
}

/// See [`begin_list`]. Fields expire no earlier than at `first_ms`, 0 for never.
pub fn begin_hash(out: &mut Vec<u8>, fields: u64, first_ms: u64) {
    match first_ms {
        0 => out.push(HASH),
        first_ms => {
            out.push(HASH_EXPIRING);
            out.extend(first_ms.to_le_bytes());
        }
    }
    length::write(out, fields);
}

/// Adds an element of a list, or a member of a set.
pub fn element(out: &mut Vec<u8>, text: &[u8]) {
    text::write(out, text);
}

/// Adds a member of a sorted set.
pub fn scored(out: &mut Vec<u8>, member: &[u8], score: f64) {
    text::write(out, member);
    out.extend(score.to_le_bytes());
}

/// Adds a field of a hash that was begun with the same `first_ms`.
pub fn field(out: &mut Vec<u8>, (field, value): (&[u8], &[u8]), expire_at_ms: u64, first_ms: u64) {
    match (first_ms, expire_at_ms) {
        (0, _) => {}
        (_, 0) => length::write(out, 0),
        (first_ms, at_ms) => length::write(out, at_ms - first_ms + 1),
    }
    text::write(out, field);
    text::write(out, value);
}

/// How a hash or a sorted set is kept.
enum Form {
    Plain,
    Packed(ListpackBuilder),
    /// The first expiry.
    Expiring(u64),
}

/// Writes a hash.
pub struct HashWriter<'o> {
    out: &'o mut Vec<u8>,
    form: Form,
}

impl<'o> HashWriter<'o> {
    /// A hash of so many fields.
    pub fn plain(out: &'o mut Vec<u8>, fields: u64) -> HashWriter<'o> {
        out.push(HASH);
        length::write(out, fields);
        HashWriter { out, form: Form::Plain }
    }

    /// A hash of few short fields.
    pub fn packed(out: &'o mut Vec<u8>) -> HashWriter<'o> {
        out.push(HASH_LISTPACK);
        HashWriter { out, form: Form::Packed(ListpackBuilder::default()) }
    }

    /// A hash of so many fields, of which the first expires at a time, Unix milliseconds. Redis 7.0 does not know
    /// it.
    pub fn expiring(out: &'o mut Vec<u8>, fields: u64, first_ms: u64) -> HashWriter<'o> {
        out.push(HASH_EXPIRING);
        out.extend(first_ms.to_le_bytes());
        length::write(out, fields);
        HashWriter { out, form: Form::Expiring(first_ms) }
    }

    /// Adds a field, which expires at a time, 0 for never. Panics: it does, and the hash is another one.
    pub fn push(&mut self, field: &[u8], value: &[u8], expire_at_ms: u64) {
        assert!(expire_at_ms == 0 || matches!(self.form, Form::Expiring(_)));
        match &mut self.form {
            Form::Packed(listpack) => {
                listpack.push(field);
                return listpack.push(value);
            }
            Form::Expiring(_) if expire_at_ms == 0 => length::write(self.out, 0),
            Form::Expiring(first_ms) => length::write(self.out, expire_at_ms - *first_ms + 1),
            Form::Plain => {}
        }
        text::write(self.out, field);
        text::write(self.out, value);
    }

    /// Ends the hash.
    pub fn finish(self) {
        if let Form::Packed(mut listpack) = self.form {
            text::write_raw(self.out, listpack.finish());
        }
    }
}

/// Writes a sorted set.
pub struct SortedSetWriter<'o> {
    out: &'o mut Vec<u8>,
    form: Form,
}

impl<'o> SortedSetWriter<'o> {
    /// A sorted set of so many members.
    pub fn plain(out: &'o mut Vec<u8>, members: u64) -> SortedSetWriter<'o> {
        out.push(SORTED_SET);
        length::write(out, members);
        SortedSetWriter { out, form: Form::Plain }
    }

    /// A sorted set of few short members, which come in their order.
    pub fn packed(out: &'o mut Vec<u8>) -> SortedSetWriter<'o> {
        out.push(SORTED_SET_LISTPACK);
        SortedSetWriter { out, form: Form::Packed(ListpackBuilder::default()) }
    }

    /// Adds a member.
    pub fn push(&mut self, member: &[u8], score: f64) {
        let Form::Packed(listpack) = &mut self.form else {
            text::write(self.out, member);
            return self.out.extend(score.to_le_bytes());
        };
        listpack.push(member);
        match whole(score) {
            Some(score) => listpack.push_integer(score),
            None if score.is_infinite() => {
                listpack.push(if score > 0.0 { b"inf" } else { b"-inf" });
            }
            None => listpack.push(format!("{score:e}").as_bytes()),
        }
    }

    /// Ends the sorted set.
    pub fn finish(self) {
        if let Form::Packed(mut listpack) = self.form {
            text::write_raw(self.out, listpack.finish());
        }
    }
}

/// Up to here every integer is a double.
const WHOLE_MAX: f64 = (1u64 << 52) as f64;

fn whole(score: f64) -> Option<i64> {
    let is_whole = score.abs() <= WHOLE_MAX
        && score.trunc() == score
        && !(score == 0.0 && score.is_sign_negative());
    is_whole.then_some(score as i64)
}
