//! Hashes.

use keyspace::Key;
use value::Kind;
use value::leaf::fields::{Fields, FieldsMut, SHAPE};

use crate::collection::PackedMax;
use crate::cx::Cx;
use crate::error::CommandError;

/// A hash to be changed.
pub struct HashMut<'a> {
    kind: &'a mut Kind,
    fields: FieldsMut<'a>,
    packed_max: PackedMax,
}

impl HashMut<'_> {
    /// The hash to be read.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// Sets a field. Returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let is_new = self.fields.set(field, value);
        let longest = field.len().max(value.len()) as u64;
        let is_packed = longest <= self.packed_max.element_bytes
            && self.fields().len() as u64 <= self.packed_max.entries;
        if !is_packed {
            *self.kind = Kind::HASH;
        }
        is_new
    }

    /// Removes a field. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.fields.remove(field)
    }
}

impl Cx<'_, '_> {
    /// The hash of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_hash(&mut self, key: &Key<'_>) -> Result<Option<Fields<'_>>, CommandError> {
        let found = self.read_collection(key, Kind::is_hash)?;
        Ok(found.map(|value| Fields::new(value.bytes)))
    }

    /// Changes the hash of a key, an empty one if the key does not exist; it does not afterwards if the
    /// hash is empty.
    ///
    /// Errors: as [`Cx::read_hash`]; nothing is changed then.
    pub fn edit_hash<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut HashMut<'_>) -> R,
    ) -> Result<R, CommandError> {
        let packed_max = self.encodings.hash();
        let empty = (Kind::HASH_PACKED, &SHAPE.empty()[..]);
        self.edit(key, Kind::is_hash, empty, |kind, leaf| {
            change(&mut HashMut { kind, fields: FieldsMut::new(leaf), packed_max })
        })
    }
}
