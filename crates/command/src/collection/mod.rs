//! Collections as handlers see them: read as a whole, changed through [`Cx::edit`].

mod detached;
mod form;
mod hash;
mod list;
mod place;
mod reader;
mod set;
mod tree;

pub use detached::DetachedNodes;
pub use hash::{Hash, HashMut};
pub use list::{End, ListMut};
pub use reader::{LeafAt, TreeReader, all_leaves, leaves};
pub use set::SetMut;

use keyspace::{Carried, Expiry, Key, Stored, node_table};
use value::Kind;
use value::leaf::Rows;

use crate::collection::form::{Form, HASH};
use crate::collection::place::{NodeName, Place};
use crate::collection::reader::not_fetched;
use crate::collection::tree::{SINGLE_BYTES_MAX, Tree};
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

    /// Of sets: `set-max-intset-entries`, members of a set of integers.
    fn intset_entries_max(&self) -> u64;
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

    /// Whether a key holds a collection in many leaves. No access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`].
    #[inline]
    fn is_tree(
        &mut self,
        key: &Key<'_>,
        is_wanted: impl Fn(Kind) -> bool,
    ) -> Result<bool, CommandError> {
        match self.peek(key).map(|view| Kind::from_bits(view.kind)) {
            Some(kind) if !is_wanted(kind) => Err(CommandError::WRONG_TYPE),
            Some(kind) => Ok(kind.is_tree()),
            None => Ok(false),
        }
    }

    fn place<'p>(&self, key: &Key<'p>) -> Place<'p> {
        Place { key: *key, table: self.keyspace().table_of(self.db), index: None }
    }

    /// The large collection of a key, which counts as an access to the key.
    fn read_tree<'s>(&'s mut self, key: &'s Key<'_>) -> TreeReader<'s> {
        if !self.no_touch {
            let _ = self.db(key).into_read(key);
        }
        TreeReader {
            place: self.place(key),
            slot: self.locked.slot(key.slot),
            tally: self.tally,
            fetched: self.fetched,
            now_ms: self.now_ms,
            no_touch: self.no_touch,
            cold_leaves: &mut self.cold_leaves,
        }
    }

    /// Puts the leaves that hold what stands at some places into RAM, so that they can be changed.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn promote_leaves<O: AsRef<[u8]>>(
        &mut self,
        key: &Key<'_>,
        orders: impl Iterator<Item = O>,
    ) -> Result<(), CommandError> {
        let (place, fetched) = (self.place(key), self.fetched);
        let slot = &*self.locked.slot(key.slot);
        let names: Vec<NodeName> =
            orders.map(|order| place.find(slot, order.as_ref()).name()).collect();
        not_fetched(place, slot, fetched, names.iter().copied())?;
        for name in names {
            let slot = self.locked.slot(key.slot);
            let Some((at, _)) = place.cold(slot, &name) else { continue };
            let bytes = fetched.value(at).expect("invariant: all have been looked for");
            let leaf = name.key(key.slot);
            let mut nodes =
                keyspace::Db::new(slot, node_table(place.table), self.now_ms, self.tally);
            assert!(nodes.promote(&leaf, at, bytes.into()), "the slot is locked");
            self.tally.read_flash += 1;
        }
        Ok(())
    }

    fn edit_tree<'s>(&'s mut self, key: &Key<'s>, form: &'static Form) -> Tree<'s> {
        let place = self.place(key);
        Tree {
            place,
            slot: self.locked.slot(key.slot),
            tally: self.tally,
            now_ms: self.now_ms,
            form,
        }
    }

    /// Makes a tree of a collection in one leaf that has become large.
    fn grow(&mut self, key: &Key<'_>, form: &'static Form) {
        let is_large = self.peek(key).is_some_and(|view| {
            !Kind::from_bits(view.kind).is_tree() && view.value_len() > SINGLE_BYTES_MAX
        });
        if is_large {
            let id = self.keyspace().take_collection_id();
            self.edit_tree(key, form).grow(id);
        }
    }

    /// RAM that a key takes with its value, allocator rounding and table entries included. Units: bytes.
    /// Cost: linear in the nodes of a large collection; flash is not read.
    pub fn ram_bytes(&mut self, key: &Key<'_>) -> Option<usize> {
        let mut bytes = self.db(key).ram_bytes(key)?;
        if self.peek(key).is_some_and(|view| Kind::from_bits(view.kind).is_tree()) {
            let place = self.place(key);
            let names = place.nodes(self.locked.slot(key.slot));
            for name in names {
                let slot = self.locked.slot(key.slot);
                let table = node_table(place.table);
                let mut nodes = keyspace::Db::new(slot, table, self.now_ms, self.tally);
                let node = nodes.ram_bytes(&name.key(key.slot));
                bytes += node.expect("invariant: a node that a branch names is there");
            }
        }
        Some(bytes)
    }

    /// The whole of a large collection as one leaf, in the order of its leaves. None: the key does not
    /// exist or holds something else.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn flatten(&mut self, key: &Key<'_>) -> Result<Option<Carried>, CommandError> {
        let Some(view) = self.peek(key) else { return Ok(None) };
        let (kind, expire_at_ms) = (Kind::from_bits(view.kind), view.expire_at_ms);
        let Stored::Hot(root) = view.stored else { return Ok(None) };
        if !kind.is_tree() {
            return Ok(None);
        }
        let encoding = value::leaf::branch::Root::new(root).encoding();
        let mut leaves: Vec<Vec<u8>> = Vec::new();
        self.read_tree(key).visit(|leaf| {
            leaves.push(leaf.to_vec());
            std::ops::ControlFlow::Continue(())
        })?;
        // No leaf holds more rows than it has numbers for.
        let whole = Rows::concat(leaves.iter().map(|leaf| Rows::new(leaf)));
        let value = whole.ok_or(CommandError::OUT_OF_MEMORY)?;
        Ok(Some(Carried { kind: kind.with_encoding(encoding).bits(), expire_at_ms, value }))
    }

    /// A copy of a value with its expiry, for another key.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn carry(&mut self, key: &Key<'_>) -> Result<Option<Carried>, CommandError> {
        if let Some(carried) = self.flatten(key)? {
            return Ok(Some(carried));
        }
        self.make_resident(key)?;
        Ok(self.db(key).carry(key))
    }

    /// Takes a value with its expiry away from its key, for another one. The change is the caller's
    /// to count.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn take(&mut self, key: &Key<'_>) -> Result<Option<Carried>, CommandError> {
        if let Some(carried) = self.flatten(key)? {
            self.db(key).remove(key);
            return Ok(Some(carried));
        }
        self.make_resident(key)?;
        Ok(self.db(key).take(key))
    }

    /// Sets a key of a database to a value that came from another one.
    pub fn put_carried(&mut self, db: u8, key: &Key<'_>, carried: Carried) {
        let kind = Kind::from_bits(carried.kind);
        self.db_at(db, key).put_carried(key, carried);
        if kind.is_hash() {
            let selected = std::mem::replace(&mut self.db, db);
            self.grow(key, &HASH);
            self.db = selected;
        }
    }
}
