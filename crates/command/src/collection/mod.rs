//! Collections as handlers see them: read as a whole, changed through [`Cx::edit`].

mod hash;

pub use hash::HashMut;

use keyspace::{Expiry, Key};
use value::Kind;

use crate::cx::{Cx, Value};
use crate::error::CommandError;

/// Up to which size Redis keeps a collection in one packed block, which OBJECT ENCODING tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedMax {
    /// Elements.
    pub entries: u64,
    /// Bytes of an element.
    pub element_bytes: u64,
}

/// The limits of encodings, as they are configured.
pub trait Encodings {
    /// Of hashes: `hash-max-listpack-entries` and `hash-max-listpack-value`.
    fn hash(&self) -> PackedMax;
}

impl Cx<'_, '_> {
    /// A collection, counting as an access. None: the key does not exist.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    fn read_collection(
        &mut self,
        key: &Key<'_>,
        is_wanted: impl Fn(Kind) -> bool,
    ) -> Result<Option<Value<'_>>, CommandError> {
        match self.read(key)? {
            Some(value) if !is_wanted(value.kind) => Err(CommandError::WRONG_TYPE),
            found => Ok(found),
        }
    }

    /// Changes a collection, made from `empty` if the key does not exist; one that `change` leaves empty
    /// is no key. The expiry stays.
    ///
    /// Errors: those of [`Cx::read_collection`]; nothing is changed then.
    fn edit<R>(
        &mut self,
        key: &Key<'_>,
        is_wanted: impl Fn(Kind) -> bool,
        (empty_kind, empty): (Kind, &[u8]),
        change: impl FnOnce(&mut Kind, &mut Vec<u8>) -> R,
    ) -> Result<R, CommandError> {
        let Some(view) = self.peek(key) else {
            let (mut kind, mut leaf) = (empty_kind, empty.to_vec());
            let result = change(&mut kind, &mut leaf);
            if leaf.len() > empty.len() {
                self.db(key).put_vec(key, kind.bits(), leaf, Expiry::Clear);
            }
            return Ok(result);
        };
        if !is_wanted(Kind::from_bits(view.kind)) {
            return Err(CommandError::WRONG_TYPE);
        }
        self.make_resident(key)?;
        let mut is_empty = false;
        let result = self.db(key).update(key, |bits, leaf| {
            let mut kind = Kind::from_bits(*bits);
            let result = change(&mut kind, leaf);
            *bits = kind.bits();
            is_empty = leaf.len() <= empty.len();
            result
        });
        if is_empty {
            self.db(key).remove(key);
        }
        Ok(result.expect("invariant: the value was made resident"))
    }
}
