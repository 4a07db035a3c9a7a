//! Hashes: the fields of one leaf, or of a tree of leaves by the hashes of their fields.

use std::ops::ControlFlow;

use keyspace::{Changed, Key};
use value::Kind;
use value::leaf::fields::{Fields, FieldsMut, SHAPE};

use crate::collection::form::{HASH, order};
use crate::collection::reader::TreeReader;
use crate::collection::tree::Tree;
use crate::collection::{Found, PackedMax};
use crate::cx::Cx;
use crate::error::{ColdValue, CommandError, CommandResult};

/// A hash to be read.
pub enum Hash<'a> {
    /// In one leaf.
    Leaf(Fields<'a>),
    /// In many.
    Tree(TreeReader<'a>),
}

impl Hash<'_> {
    /// How many fields.
    #[expect(clippy::len_without_is_empty, reason = "an empty hash is a key that does not exist")]
    pub fn len(&self) -> u64 {
        match self {
            Hash::Leaf(fields) => fields.len() as u64,
            Hash::Tree(tree) => tree.elements(),
        }
    }

    /// Bytes that all of it takes, about.
    pub fn byte_len(&self) -> u64 {
        match self {
            Hash::Leaf(fields) => fields.byte_len() as u64,
            Hash::Tree(tree) => tree.leaf_bytes(),
        }
    }

    /// Looks for the leaves of fields that are asked for next, so that all that are on flash are read
    /// together.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce<'f>(&mut self, fields: impl Iterator<Item = &'f [u8]>) -> CommandResult {
        match self {
            Hash::Leaf(_) => Ok(()),
            Hash::Tree(tree) => tree.announce(fields.map(order)),
        }
    }

    /// The value of a field.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    pub fn get(&mut self, field: &[u8]) -> Result<Option<&[u8]>, CommandError> {
        match self {
            Hash::Leaf(fields) => Ok(fields.get(field)),
            Hash::Tree(tree) => Ok(Fields::new(tree.leaf(&order(field))?).get(field)),
        }
    }

    /// The leaf that holds a field, if it is one of many and on flash alone.
    pub fn cold_leaf(&self, field: &[u8]) -> Option<ColdValue> {
        match self {
            Hash::Leaf(_) => None,
            Hash::Tree(tree) => tree.cold_leaf(&order(field)),
        }
    }

    /// A field, by its position, and its value. Panics: there is none.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn at(&mut self, position: u64) -> Result<(&[u8], &[u8]), CommandError> {
        match self {
            Hash::Leaf(fields) => Ok(fields.at(position as usize)),
            Hash::Tree(tree) => {
                let (leaf, position) = tree.leaf_of_nth(position)?;
                Ok(Fields::new(leaf).at(position))
            }
        }
    }

    /// Visits all fields and their values.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit(
        &mut self,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> CommandResult {
        let mut visit_leaf =
            |fields: Fields<'_>| fields.iter().try_for_each(|(field, value)| visit(field, value));
        match self {
            Hash::Leaf(fields) => {
                let _ = visit_leaf(*fields);
                Ok(())
            }
            Hash::Tree(tree) => tree.visit(|leaf| visit_leaf(Fields::new(leaf))),
        }
    }

    /// Looks for the leaves of fields by their positions, as [`Hash::announce`] does.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_nth(&mut self, positions: &[u64]) -> CommandResult {
        match self {
            Hash::Leaf(_) => Ok(()),
            Hash::Tree(tree) => tree.announce_nth(positions.iter().copied()),
        }
    }

    /// Visits the fields from a cursor on, about `count` of them and at least one leaf. Returns the next
    /// cursor, 0 at the end. One that is there from the first call to the last is visited, whatever
    /// changes meanwhile.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, CommandError> {
        match self {
            Hash::Leaf(fields) => {
                fields.iter().for_each(|(field, value)| visit(field, value));
                Ok(0)
            }
            Hash::Tree(tree) => tree.scan(cursor, count, |leaf| {
                let fields = Fields::new(leaf);
                fields.iter().for_each(|(field, value)| visit(field, value));
            }),
        }
    }
}

/// A hash to be changed.
pub struct HashMut<'a> {
    form: FormMut<'a>,
    packed_max: PackedMax,
    is_changed: bool,
}

#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one command")]
enum FormMut<'a> {
    Leaf(&'a mut Kind, FieldsMut<'a>),
    Tree(Tree<'a>),
}

impl HashMut<'_> {
    /// Sets a field. Returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.is_changed = true;
        let (is_new, len) = match &mut self.form {
            FormMut::Leaf(_, fields) => (fields.set(field, value), fields.fields().len() as u64),
            FormMut::Tree(tree) => {
                let is_new = tree
                    .change_leaf_at(&order(field), |leaf| FieldsMut::new(leaf).set(field, value));
                (is_new, tree.elements())
            }
        };
        let longest = field.len().max(value.len()) as u64;
        if longest > self.packed_max.element_bytes || len > self.packed_max.entries {
            match &mut self.form {
                FormMut::Leaf(kind, _) => **kind = Kind::HASH,
                FormMut::Tree(tree) => tree.set_encoding(Kind::HASH.encoding()),
            }
        }
        is_new
    }

    /// Removes a field. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let is_removed = match &mut self.form {
            FormMut::Leaf(_, fields) => fields.remove(field),
            FormMut::Tree(tree) => !tree.is_gone() && remove_from_tree(tree, field),
        };
        self.is_changed |= is_removed;
        is_removed
    }
}

fn remove_from_tree(tree: &mut Tree<'_>, field: &[u8]) -> bool {
    let path = tree.find(&order(field));
    // The leaf where it stood may have been removed with its last field: it falls to a neighbour then, which
    // may be on flash.
    let leaf = tree.leaf_in_ram(&path);
    let is_there = leaf.is_some_and(|leaf| Fields::new(leaf).get(field).is_some());
    if is_there {
        tree.change_leaf(path, |leaf| FieldsMut::new(leaf).remove(field));
    }
    is_there
}

impl Cx<'_, '_> {
    /// The hash of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_hash<'s>(&'s mut self, key: &'s Key<'_>) -> Result<Option<Hash<'s>>, CommandError> {
        match self.find_to_read(key, Kind::is_hash)? {
            Found::Missing => Ok(None),
            Found::Leaf(at) => Ok(Some(Hash::Leaf(Fields::new(self.read_leaf(key, at)?)))),
            Found::Tree(at) => Ok(Some(Hash::Tree(self.read_tree_of(self.place_at(key, at))))),
        }
    }

    /// Changes the hash of a key, an empty one if the key does not exist; it does not afterwards if the
    /// hash is empty. No other fields than `fields` are looked at or changed.
    ///
    /// Errors: as [`Cx::read_hash`]; nothing is changed then.
    pub fn edit_hash<'f, R>(
        &mut self,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'f [u8]>,
        change: impl FnOnce(&mut HashMut<'_>) -> R,
    ) -> Result<R, CommandError> {
        let packed_max = self.encodings.hash();
        let found = self.find_to_edit(key, Kind::is_hash)?;
        let Found::Tree(at) = found else {
            let empty = (Kind::HASH_PACKED, &SHAPE.empty()[..]);
            return Ok(self.edit_leaf((key, found), empty, &HASH, |kind, leaf| {
                let form = FormMut::Leaf(kind, FieldsMut::new(leaf));
                let mut hash = HashMut { form, packed_max, is_changed: false };
                let result = change(&mut hash);
                if hash.is_changed { Changed::Yes(result) } else { Changed::No(result) }
            }));
        };
        let place = self.place_at(key, at);
        let known = self.promote_leaves(place, fields.map(order))?;
        let tree = Tree { known, ..self.edit_tree_of(place, &HASH) };
        let mut hash = HashMut { form: FormMut::Tree(tree), packed_max, is_changed: false };
        let result = change(&mut hash);
        let FormMut::Tree(mut tree) = hash.form else { unreachable!("it was made above") };
        tree.settle();
        Ok(result)
    }
}
