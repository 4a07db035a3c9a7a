//! Collections as handlers see them: read as a whole, changed through [`Cx::edit`].

mod carry;
#[cfg(any(test, feature = "fuzzing"))]
mod check;
mod detached;
mod field_expiry;
mod form;
mod hash;
mod list;
mod place;
mod prefetch;
mod reader;
mod set;
mod sorted_set;
mod sorted_set_edit;
mod stream;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use check::{check_timers, check_tree};
pub use detached::DetachedNodes;
pub use field_expiry::{ColdLeaf, Expired, expire_fetched, expire_fields};
pub use hash::{ExpiryChange, ExpiryCondition, Hash, HashMut, NewField, NewValue};
pub use list::{End, List};
pub use prefetch::{Element, ElementOf, LookUp};
pub(crate) use reader::leaves_not_resident;
pub use reader::{ColdLeaves, LeafAt, TreeReader, all_leaves, leaves};
pub use set::{KindOfSet, Set, SetMut};
pub use sorted_set::SortedSet;
pub use sorted_set_edit::{Copies, Made, ScoreChange};
pub use stream::{
    Delivery, GroupEdit, IdRange, NewEntry, RowEdits, Stream, StreamLeafMax, Trim, TrimTo, Visit,
    WholeGroup, distance_from_first_ever,
};
pub(crate) use stream::{NOBODY, NewRows};
pub use walk::{Walk, Window};

use keyspace::{Changed, Db, Expiry, Key, Position, Stored, WHOLE, node_table};
use value::Kind;

use crate::collection::form::{Form, HASH, LIST, SET, SORTED_SET};
use crate::collection::place::{KnownPaths, NodeName};
pub(crate) use crate::collection::place::{Path, Place};
use crate::collection::reader::Lack;
pub(crate) use crate::collection::tree::LONG_BYTES;
use crate::collection::tree::{SINGLE_BYTES_MAX, Tree};
use crate::cx::{Cx, SPARE_BYTES_MIN, not_resident as not_resident_value};
use crate::error::{CommandError, CommandResult};

/// Up to which size Redis keeps a collection in one packed block, which OBJECT ENCODING tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedMax {
    /// Elements.
    pub entries: u64,
    /// Bytes of an element.
    pub element_bytes: u64,
}

impl PackedMax {
    /// Whether a collection of so many entries, the longest of so many bytes, is kept so.
    #[inline]
    pub(crate) fn holds(&self, entries: u64, longest: usize) -> bool {
        entries <= self.entries && longest as u64 <= self.element_bytes
    }
}

/// The limits of encodings, as they are configured.
pub trait Encodings {
    /// Of hashes: `hash-max-listpack-entries` and `hash-max-listpack-value`.
    fn hash(&self) -> PackedMax;

    /// Of sets: `set-max-intset-entries`, members of a set of integers.
    fn intset_entries_max(&self) -> u64;

    /// Of sparse HyperLogLogs: `hll-sparse-max-bytes`.
    fn hyperloglog_sparse_bytes_max(&self) -> usize;

    /// Of sorted sets: `zset-max-listpack-entries` and `zset-max-listpack-value`.
    fn sorted_set(&self) -> PackedMax;

    /// Of the leaves of streams: `stream-node-max-entries` and `stream-node-max-bytes`.
    fn stream_leaf(&self) -> StreamLeafMax;
}

/// Whether one of some elements is long ([`LONG_BYTES`]).
pub(crate) fn has_long<'e>(mut elements: impl Iterator<Item = &'e [u8]>) -> bool {
    elements.any(|element| element.len() >= LONG_BYTES)
}

/// What a key holds, as a command on one type of collection finds it.
#[derive(Clone, Copy)]
enum Found {
    /// Nothing.
    Missing,
    /// A collection in one leaf.
    Leaf(Position),
    /// A collection in many, below the root that stands there.
    Tree(Position),
}

impl Cx<'_, '_> {
    /// What a key holds for a command that reads a collection, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`].
    #[inline]
    fn find_to_read(
        &mut self,
        key: &Key<'_>,
        is_wanted: impl Fn(Kind) -> bool,
    ) -> Result<Found, CommandError> {
        let (no_touch, counts) = (self.no_touch, self.effects.counts_reads);
        let mut db = self.db(key);
        let Some(at) = db.find(key) else {
            if counts {
                self.count_lookup(key, false);
            }
            return Ok(Found::Missing);
        };
        db.tally().found += u64::from(counts);
        if !no_touch {
            db.touch_at(at);
        }
        match Kind::from_bits(db.view_at(at).kind) {
            kind if !is_wanted(kind) => {
                db.tally().read_ram += 1;
                Err(CommandError::WRONG_TYPE)
            }
            kind if kind.is_tree() => Ok(Found::Tree(at)),
            _ => Ok(Found::Leaf(at)),
        }
    }

    /// What a key holds for a command that changes a collection: in one leaf, it is in RAM now.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    fn find_to_edit(
        &mut self,
        key: &Key<'_>,
        is_wanted: impl Fn(Kind) -> bool,
    ) -> Result<Found, CommandError> {
        let mut db = self.db(key);
        let Some(at) = db.find(key) else { return Ok(Found::Missing) };
        let view = db.view_at(at);
        match Kind::from_bits(view.kind) {
            kind if !is_wanted(kind) => return Err(CommandError::WRONG_TYPE),
            kind if kind.is_tree() => return Ok(Found::Tree(at)),
            _ => {}
        }
        if let Stored::Cold(..) = view.stored {
            self.make_resident(key)?;
        }
        Ok(Found::Leaf(at))
    }

    /// Changes a collection in one leaf that [`Cx::find_to_edit`] has found, made from `empty` if the key does
    /// not exist; one that `change` leaves empty is no key. The expiry stays. It becomes a tree if it has
    /// become large.
    #[inline]
    fn edit_leaf<R>(
        &mut self,
        (key, found): (&Key<'_>, Found),
        (empty_kind, empty): (Kind, &[u8]),
        form: &'static Form,
        change: impl FnOnce(&mut Kind, &mut Vec<u8>) -> Changed<R>,
    ) -> R {
        let Found::Leaf(at) = found else {
            let (mut kind, mut leaf) = (empty_kind, empty.to_vec());
            let (Changed::Yes(result) | Changed::No(result)) = change(&mut kind, &mut leaf);
            let (len, first_ms) = (leaf.len(), form.first_expiry_of(&leaf));
            if len > empty.len() {
                self.db(key).put_vec(key, kind.bits(), leaf, Expiry::Clear);
                self.set_timer(key, first_ms);
            }
            if len > SINGLE_BYTES_MAX {
                self.grow(key, form);
            }
            return result;
        };
        let (mut len, mut first_ms) = (0, (0, 0));
        let result = self.db(key).update_at(key, at, |bits, leaf| {
            first_ms.0 = form.first_expiry_of(leaf);
            let mut kind = Kind::from_bits(*bits);
            let result = change(&mut kind, leaf);
            *bits = kind.bits();
            (len, first_ms.1) = (leaf.len(), form.first_expiry_of(leaf));
            result
        });
        if first_ms.0 != first_ms.1 {
            self.set_timer(key, first_ms.1);
        }
        if len <= empty.len() {
            self.db(key).remove(key);
        } else if len > SINGLE_BYTES_MAX {
            self.grow(key, form);
        }
        result.expect("invariant: the value was made resident")
    }

    /// The leaf of a key that [`Cx::find_to_read`] has found.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    fn read_leaf(&mut self, key: &Key<'_>, at: Position) -> Result<&[u8], CommandError> {
        let fetched = self.fetched;
        let table = self.keyspace().table_of(self.db);
        let db = Db::new(self.locked.slot(key.slot), table, self.now_ms, self.tally);
        let (view, tally) = db.into_counted_view_at(at);
        match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => {
                tally.read_ram += 1;
                Ok(bytes)
            }
            Stored::Cold(place, len) => match fetched.value(place) {
                Some(bytes) => {
                    tally.read_flash += 1;
                    Ok(bytes)
                }
                None => Err(not_resident_value(key, place, len)),
            },
        }
    }

    fn place<'p>(&self, key: &Key<'p>) -> Place<'p> {
        Place::new(*key, self.keyspace().table_of(self.db))
    }

    /// The same for a key that was found.
    fn place_at<'p>(&self, key: &Key<'p>, at: Position) -> Place<'p> {
        Place { seen_at: Some(at), ..self.place(key) }
    }

    /// The large collection of a key.
    fn read_tree<'s>(&'s mut self, key: &'s Key<'_>) -> TreeReader<'s> {
        self.read_tree_of(self.place(key))
    }

    fn read_tree_of<'s>(&'s mut self, place: Place<'s>) -> TreeReader<'s> {
        TreeReader {
            place,
            slot: self.locked.slot(place.key.slot),
            tally: self.tally,
            fetched: self.fetched,
            now_ms: self.now_ms,
            no_touch: self.no_touch,
            cold_leaves: &mut self.cold_leaves,
            walk: self.walk,
        }
    }

    /// Puts the leaves that hold what stands at some places into RAM, so that they can be changed. Returns the
    /// way to the leaf if there is one place.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn promote_leaves<O: AsRef<[u8]>>(
        &mut self,
        place: Place<'_>,
        mut orders: impl Iterator<Item = O>,
    ) -> Result<KnownPaths, CommandError> {
        let mut known = KnownPaths::default();
        let Some(first) = orders.next() else { return Ok(known) };
        let slot = &*self.locked.slot(place.key.slot);
        let path = place.find(slot, first.as_ref());
        let Some(second) = orders.next() else {
            self.promote_leaf(place, &path)?;
            known.push(first.as_ref(), path);
            return Ok(known);
        };
        let find = |order: &O| place.find(slot, order.as_ref()).name();
        let mut names = vec![path.name(), find(&second)];
        names.extend(orders.map(|order| find(&order)));
        self.promote_named(place, names)?;
        Ok(known)
    }

    /// The same of the leaf at the end of a path that was found just now.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn promote_leaf(&mut self, place: Place<'_>, path: &Path) -> CommandResult {
        match place.found_in_ram(self.locked.slot(place.key.slot), path) {
            None => self.promote_named(place, vec![path.name()]),
            Some(_) => Ok(()),
        }
    }

    /// The same by their names.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn promote_named(&mut self, place: Place<'_>, names: Vec<NodeName>) -> CommandResult {
        let (key, fetched) = (place.key, self.fetched);
        let mut lack = Lack::default();
        lack.add(place, self.locked.slot(key.slot), fetched, names.iter().copied());
        lack.result(&key, &self.cold_leaves)?;
        for name in names {
            let slot = self.locked.slot(key.slot);
            let Some((at, _)) = place.cold(slot, &name) else { continue };
            let bytes = fetched.value(at).expect("invariant: all have been looked for");
            let leaf = name.key(key.slot);
            let copy = match bytes.len() >= SPARE_BYTES_MIN {
                true => self.copy(bytes).into_boxed_slice(),
                false => bytes.into(),
            };
            let slot = self.locked.slot(key.slot);
            let mut nodes = Db::new(slot, node_table(place.table), self.now_ms, self.tally);
            assert!(nodes.promote(&leaf, at, copy), "the slot is locked");
            self.tally.read_flash += 1;
        }
        Ok(())
    }

    /// Looks for all leaves of large collections, which are read next.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    fn announce_trees(&mut self, keys: &[Key<'_>]) -> CommandResult {
        let Some(last) = keys.last() else { return Ok(()) };
        let mut lack = Lack::default();
        for key in keys {
            let (place, fetched) = (self.place(key), self.fetched);
            let slot = &*self.locked.slot(key.slot);
            lack.add(place, slot, fetched, place.leaves(slot).into_iter());
        }
        lack.result(last, &self.cold_leaves)
    }

    /// Sets when the first element of a collection in one leaf expires, 0 for never.
    fn set_timer(&mut self, key: &Key<'_>, at_ms: u64) {
        let table = self.keyspace().table_of(self.db);
        self.locked.slot(key.slot).set_timer((table, key), WHOLE, at_ms, self.tally);
    }

    /// Whether elements of a key's collection expire. Flash is not read.
    pub fn has_expiring_elements(&mut self, key: &Key<'_>) -> bool {
        let table = self.keyspace().table_of(self.db);
        self.locked.slot(key.slot).has_timers(table, key)
    }

    fn edit_tree<'s>(&'s mut self, key: &Key<'s>, form: &'static Form) -> Tree<'s> {
        self.edit_tree_of(self.place(key), form)
    }

    fn edit_tree_of<'s>(&'s mut self, place: Place<'s>, form: &'static Form) -> Tree<'s> {
        Tree {
            place,
            slot: self.locked.slot(place.key.slot),
            tally: self.tally,
            now_ms: self.now_ms,
            form,
            known: KnownPaths::default(),
        }
    }

    /// Makes a tree of a collection in one leaf, to which a long element is to be added: it gets a leaf of its own
    /// then. Nothing happens where a key holds none, or something else than is wanted.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[cold]
    pub(crate) fn spread(
        &mut self,
        key: &Key<'_>,
        is_wanted: impl Fn(Kind) -> bool,
    ) -> CommandResult {
        let form = match self.peek(key).map(|view| Kind::from_bits(view.kind)) {
            Some(kind) if kind.is_tree() || !is_wanted(kind) => return Ok(()),
            Some(kind) if kind.is_hash() => &HASH,
            Some(kind) if kind.is_set() => &SET,
            Some(kind) if kind.is_list() => &LIST,
            Some(kind) if kind.is_sorted_set() => &SORTED_SET,
            _ => return Ok(()),
        };
        self.make_resident(key)?;
        self.grow_to(key, form, 1);
        Ok(())
    }

    /// Makes a tree of a collection in one leaf that has become large and is in RAM.
    #[cold]
    fn grow(&mut self, key: &Key<'_>, form: &'static Form) {
        self.grow_to(key, form, 2);
    }

    /// The same if it can be divided into so many leaves.
    fn grow_to(&mut self, key: &Key<'_>, form: &'static Form, leaves_min: usize) {
        if form.kind == Kind::SORTED_SET {
            return self.grow_sorted_set(key, leaves_min);
        }
        let id = self.keyspace().take_collection_id();
        self.edit_tree(key, form).grow(id, leaves_min);
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
                let mut nodes = Db::new(slot, table, self.now_ms, self.tally);
                let node = nodes.ram_bytes(&name.key(key.slot));
                bytes += node.expect("invariant: a node that a branch names is there");
            }
        }
        Some(bytes)
    }
}
