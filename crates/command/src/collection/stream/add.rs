//! Adding entries.

use keyspace::{Expiry, Key};
use value::leaf::entries::{self, Entries, EntriesMut, Pairs};
use value::leaf::stream::{Head, Packed, change_last_leaf, pack};
use value::{Kind, StreamId};

use super::{StreamLeafMax, Trim, bound_of, in_ram};
use crate::collection::form::ENTRIES;
use crate::collection::place::{LEAF_BYTES_MAX, Place};
use crate::collection::tree::{LONG_BYTES, SINGLE_BYTES_MAX};
use crate::collection::{End, Found};
use crate::cx::Cx;
use crate::error::CommandError;

/// Bytes of an entry's ID and the lengths of its parts, about.
const ENTRY_EXTRA_BYTES: usize = 8;

/// What is added.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<P> {
    /// Its fields and values.
    pub pairs: P,
    /// Bytes of these together.
    pub bytes: usize,
}

impl StreamLeafMax {
    /// Whether a leaf has no room for another entry of so many bytes.
    pub(crate) fn is_full(&self, leaf: &[u8], bytes: usize) -> bool {
        let bytes_max = match self.bytes {
            0 => LEAF_BYTES_MAX,
            max => usize::try_from(max).unwrap_or(usize::MAX).min(LEAF_BYTES_MAX),
        };
        leaf.len() + bytes + ENTRY_EXTRA_BYTES > bytes_max
            || (self.entries > 0 && u64::from(Entries::new(leaf).ever()) >= self.entries)
    }
}

impl Cx<'_, '_> {
    /// Adds an entry to the stream of a key, which is made if there is none, unless `creates` says not to.
    /// `id_behind` gives its ID, which is greater than the last. None: there is no stream. All that trimming
    /// needs next is in RAM then.
    ///
    /// Errors: those of `id_behind`, [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`]; nothing is
    /// changed then.
    pub fn add_entry<'p>(
        &mut self,
        key: &Key<'_>,
        entry: NewEntry<impl Pairs<'p>>,
        creates: bool,
        trim: Option<&Trim>,
        id_behind: impl FnOnce(StreamId) -> Result<StreamId, CommandError>,
    ) -> Result<Option<StreamId>, CommandError> {
        let found = self.find_to_edit(key, Kind::is_stream)?;
        let Some(mut head) = self.head_of(key, found) else {
            if !creates {
                return Ok(None);
            }
            let id = id_behind(StreamId::MIN)?;
            let head = Head { length: 1, added: 1, last: id, max_deleted: StreamId::MIN };
            let leaf = entries::leaf_of(id, entry.pairs);
            if leaf.len() >= LONG_BYTES {
                // Packed it would be there twice.
                self.make_stream(key);
                self.make_tree(key, head, vec![leaf]);
            } else {
                let value = pack(head, [&leaf[..]]);
                self.db(key).put_vec(key, Kind::STREAM.bits(), value, Expiry::Clear);
            }
            return Ok(Some(id));
        };
        let id = id_behind(head.last)?;
        assert!(id > head.last);
        head =
            Head { length: head.length + 1, added: head.added.wrapping_add(1), last: id, ..head };
        match found {
            Found::Tree(at) => self.add_to_tree(self.place_at(key, at), (id, entry), head, trim)?,
            _ => self.add_to_value(key, (id, entry), head),
        }
        Ok(Some(id))
    }

    /// Adds to a stream in one value, which is in RAM.
    fn add_to_value<'p>(
        &mut self,
        key: &Key<'_>,
        (id, entry): (StreamId, NewEntry<impl Pairs<'p>>),
        head: Head,
    ) {
        let max = self.encodings.stream_leaf();
        let view = self.peek(key).expect("invariant: the stream exists");
        let packed = Packed::new(in_ram(&view));
        let is_full = packed.entries().is_some_and(|leaf| max.is_full(leaf, entry.bytes));
        if is_full || packed.byte_len() + entry.bytes + ENTRY_EXTRA_BYTES > SINGLE_BYTES_MAX {
            let mut leaves: Vec<Vec<u8>> = packed.leaves().map(<[u8]>::to_vec).collect();
            match leaves.first_mut().filter(|leaf| entries::is_entries(leaf) && !is_full) {
                Some(leaf) => EntriesMut::new(leaf).push(id, entry.pairs),
                None => {
                    let at = usize::from(packed.entries().is_some());
                    leaves.insert(at, entries::leaf_of(id, entry.pairs));
                }
            }
            self.make_tree(key, head, leaves);
            return self.db(key).tell_watchers(key);
        }
        let is_alone = packed.entries().is_some() && packed.rows().is_none();
        let updated = self.db(key).update(key, |_, value| {
            if is_alone {
                change_last_leaf(value, |leaf| EntriesMut::new(leaf).push(id, entry.pairs));
                let head = head.to_bytes();
                return value[..head.len()].copy_from_slice(&head);
            }
            let packed = Packed::new(value);
            let leaf = match packed.entries() {
                None => entries::leaf_of(id, entry.pairs),
                Some(leaf) => {
                    let mut leaf = leaf.to_vec();
                    EntriesMut::new(&mut leaf).push(id, entry.pairs);
                    leaf
                }
            };
            *value = pack(head, [&leaf[..]].into_iter().chain(packed.rows()));
        });
        updated.expect("invariant: the stream was made resident");
    }

    fn add_to_tree<'p>(
        &mut self,
        place: Place<'_>,
        (id, entry): (StreamId, NewEntry<impl Pairs<'p>>),
        head: Head,
        trim: Option<&Trim>,
    ) -> Result<(), CommandError> {
        let slot = &*self.locked.slot(place.key.slot);
        let path = place.at_end(slot, End::Right);
        match trim.and_then(|trim| trim.leaf_to_read(place, slot, head)) {
            None => self.promote_leaf(place, &path)?,
            Some(trimmed) => self.promote_named(place, vec![path.name(), trimmed])?,
        }
        let max = self.encodings.stream_leaf();
        let mut tree = self.edit_tree_of(place, &ENTRIES);
        let leaf = tree.leaf_in_ram(&path);
        let leaf = leaf.expect("invariant: it was promoted");
        if *leaf == entries::EMPTY {
            tree.replace_leaf(path, entries::leaf_of(id, entry.pairs));
        } else if max.is_full(leaf, entry.bytes) {
            tree.insert_leaf_behind(&path, (bound_of(id), entries::leaf_of(id, entry.pairs)));
        } else {
            tree.change_leaf(path, |leaf| EntriesMut::new(leaf).push(id, entry.pairs));
        }
        tree.set_extra(&head.to_bytes());
        Ok(())
    }
}
