//! Values as files keep them: written while their slot is held, a large collection leaf by leaf, so that no more
//! of it is in memory than a leaf takes; and read in pieces.

mod append;
mod load;
mod load_stream;
mod placed;
mod stream;

pub use load::{Piece, PieceMax, read_pieces};
pub use placed::{Journaled, PLACED_TYPE, Placed, Reference};

use keyspace::{Key, SlotState, Stored};
use rdb::write::{
    self, HashWriter, ListWriter, PACKED_COLLECTION_BYTES_MAX, SetWriter, SortedSetWriter,
};
use value::leaf::branch::Root;
use value::leaf::elements::Elements;
use value::leaf::fields::Fields;
use value::leaf::members::Members;
use value::leaf::scored::Scored;
use value::leaf::stream::{Head, Packed};
use value::{Kind, parse_i64};

use crate::collection::{End, LeafAt, Path, Place};
use stream::SavedStream;

/// Writes a value that is no root of a large collection, its type in front. `compresses`: a string, if that is
/// shorter.
pub fn save_value(out: &mut Vec<u8>, kind: Kind, value: &[u8], compresses: bool) {
    assert!(!kind.is_tree());
    if kind.is_string() {
        write::string(out, value, compresses);
    } else if kind.is_list() {
        let mut writer = ListWriter::new(out);
        Elements::new(value).iter().for_each(|element| writer.push(element));
        writer.finish();
    } else if kind.is_set() {
        save_set(out, kind, &Members::new(value));
    } else if kind.is_hash() {
        save_hash(out, kind, &Fields::new(value));
    } else if kind.is_sorted_set() {
        let members = Scored::new(value);
        let is_packed =
            kind == Kind::SORTED_SET_PACKED && value.len() <= PACKED_COLLECTION_BYTES_MAX;
        let mut writer = match is_packed {
            true => SortedSetWriter::packed(out),
            false => SortedSetWriter::plain(out, members.len() as u64),
        };
        members.iter().for_each(|(member, score)| writer.push(member, score));
        writer.finish();
    } else {
        let packed = Packed::new(value);
        let nodes = u64::from(packed.entries().is_some());
        let mut stream = SavedStream::begin(out, packed.head(), nodes);
        packed.leaves().for_each(|leaf| stream.add(out, leaf));
        stream.finish(out);
    }
}

/// Begins a string of a length, whose bytes are to follow as they are.
pub fn begin_string(out: &mut Vec<u8>, len: usize) {
    write::begin_string(out, len as u64);
}

fn save_set(out: &mut Vec<u8>, kind: Kind, members: &Members<'_>) {
    if kind != Kind::SET_INTEGERS {
        let mut writer = SetWriter::new(out, members.len() as u64);
        return members.iter().for_each(|member| writer.push(member));
    }
    let integer = |member| parse_i64(member).expect("invariant: the set has had integers alone");
    let mut integers: Vec<i64> = members.iter().map(integer).collect();
    integers.sort_unstable();
    write::integers(out, &integers);
}

fn save_hash(out: &mut Vec<u8>, kind: Kind, fields: &Fields<'_>) {
    let first_ms = fields.first_expiry();
    let is_packed = kind == Kind::HASH_PACKED && fields.byte_len() <= PACKED_COLLECTION_BYTES_MAX;
    let mut writer = match first_ms {
        0 if is_packed => HashWriter::packed(out),
        0 => HashWriter::plain(out, fields.len() as u64),
        first_ms => HashWriter::expiring(out, fields.len() as u64, first_ms),
    };
    for (field, value, at_ms) in fields.iter_with_expiry() {
        writer.push(field, value, at_ms);
    }
    writer.finish();
}

/// Bytes of the leaves of a key's large collection that are saved.
pub fn tree_bytes(slot: &SlotState, table: u8, key: &Key<'_>) -> u64 {
    let place = Place::new(*key, table);
    let view = slot.view(table, key).expect("invariant: the key is there");
    let of_rows = match Kind::from_bits(view.kind).is_stream() {
        true => place.existing_index(slot).map_or(0, |rows| rows.leaf_bytes(slot)),
        false => 0,
    };
    place.leaf_bytes(slot) + of_rows
}

/// A large collection on its way to a file. Nothing of it changes from the first to the last of it, but that leaves
/// go to flash and come from there.
pub struct SavedTree {
    kind: Kind,
    /// Tells it from another that the key may hold later.
    id: u64,
    /// When the first field of a hash expires.
    first_ms: u64,
    stream: Option<SavedStream>,
    /// The next leaf, and whether it is one of the rows of a stream.
    next: Option<(bool, Path)>,
}

impl SavedTree {
    /// Begins to write the collection of a key, its type in front. None: the key holds none.
    pub fn begin(
        out: &mut Vec<u8>,
        slot: &SlotState,
        table: u8,
        key: &Key<'_>,
    ) -> Option<SavedTree> {
        let (kind, root) = tree_of(slot, table, key)?;
        let place = Place::new(*key, table);
        let (mut first_ms, mut stream) = (0, None);
        if kind.is_list() {
            write::begin_list(out, root.elements());
        } else if kind.is_set() {
            write::begin_set(out, root.elements());
        } else if kind.is_sorted_set() {
            write::begin_sorted_set(out, root.elements());
        } else if kind.is_hash() {
            first_ms = slot.first_timer(table, key);
            write::begin_hash(out, root.elements(), first_ms);
        } else {
            let head = Head::from_bytes(root.extra());
            // Its only leaf is empty when the stream is.
            let nodes = if head.length == 0 { 0 } else { place.leaf_count(slot) };
            stream = Some(SavedStream::begin(out, head, nodes));
        }
        let next = Some((false, place.at_end(slot, End::Left)));
        Some(SavedTree { kind, id: root.id(), first_ms, stream, next })
    }

    /// Whether the key still holds it.
    pub fn is_there(&self, slot: &SlotState, table: u8, key: &Key<'_>) -> bool {
        tree_of(slot, table, key).is_some_and(|(_, root)| root.id() == self.id)
    }

    /// The next leaves, which are to be added in this order: so many, or the last. None are left when there are
    /// fewer.
    pub fn next_leaves(
        &mut self,
        slot: &SlotState,
        table: u8,
        key: &Key<'_>,
        count: usize,
    ) -> Vec<LeafAt> {
        let place = Place::new(*key, table);
        let mut leaves = Vec::new();
        while leaves.len() < count
            && let Some((is_row, path)) = self.next.take()
        {
            leaves.push(LeafAt::new(key.slot, table, path.name()));
            let place = if is_row { place.of_index(slot) } else { place };
            self.next = match place.next(slot, &path) {
                Some(next) => Some((is_row, next)),
                None if is_row || self.stream.is_none() => None,
                None => {
                    let rows = place.existing_index(slot);
                    rows.map(|rows| (true, rows.at_end(slot, End::Left)))
                }
            };
        }
        leaves
    }

    /// Adds a leaf.
    pub fn add(&mut self, out: &mut Vec<u8>, leaf: &[u8]) {
        if let Some(stream) = &mut self.stream {
            stream.add(out, leaf);
        } else if self.kind.is_list() {
            Elements::new(leaf).iter().for_each(|element| write::element(out, element));
        } else if self.kind.is_set() {
            Members::new(leaf).iter().for_each(|member| write::element(out, member));
        } else if self.kind.is_hash() {
            for (field, value, at_ms) in Fields::new(leaf).iter_with_expiry() {
                write::field(out, (field, value), at_ms, self.first_ms);
            }
        } else {
            for (member, score) in Scored::new(leaf).iter() {
                write::scored(out, member, score);
            }
        }
    }

    /// Ends the collection, of which all leaves have been added.
    pub fn finish(self, out: &mut Vec<u8>) {
        if let Some(stream) = self.stream {
            stream.finish(out);
        }
    }
}

/// The large collection of a key: its kind, and its root.
fn tree_of<'s>(slot: &'s SlotState, table: u8, key: &Key<'_>) -> Option<(Kind, Root<'s>)> {
    let view = slot.view(table, key)?;
    let kind = Kind::from_bits(view.kind);
    if !kind.is_tree() {
        return None;
    }
    let Stored::Hot(root) = view.stored else { panic!("a root stays in RAM") };
    Some((kind, Root::new(root)))
}
