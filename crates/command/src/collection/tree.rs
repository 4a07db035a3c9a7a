//! A large collection: leaves below a counted tree of branches, the root of which is the key's value, or a
//! node if the collection is the index of another.
//!
//! Leaves and branches are nodes: values in a table of their own beside the keys of the slot, named by
//! the collection's id and a number. To everything that knows no types a leaf is a value like any other,
//! demoted, fetched, promoted and moved by itself; branches and the root, under a hundredth of the data,
//! stay in RAM, so that every leaf is found without a read.
//!
//! Invariants:
//! 1. A branch has a child, and so has the root, but while the last leaf is taken out.
//! 2. The elements that a branch names for a child are those below it.
//! 3. A leaf has an element, and no more than [`LEAF_BYTES_MAX`] unless it cannot be divided.
//! 4. A leaf with elements that expire has a timer for the first of them, and no other has one.

mod apart;
mod build;
mod cut_off;
mod divide;
mod join;
mod replace;

use keyspace::{Changed, Db, Expiry, SlotState, Stored, Tally, node_table};
use value::Kind;
use value::leaf::branch::{RootMut, add_in_place};

use crate::collection::form::Form;
use crate::collection::place::{KnownPaths, LEAF_BYTES_MAX, NodeName, Path, Place, ROOT};
pub(crate) use crate::collection::tree::apart::LONG_BYTES;

/// Bytes of a leaf below which it is joined with a neighbour, if both are in RAM and fit well.
const LEAF_BYTES_MIN: usize = LEAF_BYTES_MAX / 4;
const JOINED_BYTES_MAX: usize = LEAF_BYTES_MAX * 3 / 4;
/// Bytes beyond which a collection in one leaf is divided, and below which a tree becomes one again.
pub(crate) const SINGLE_BYTES_MAX: usize = 4_096;
const SINGLE_AGAIN_BYTES: u64 = 1_024;

/// A large collection to be changed. The leaves that are changed are in RAM.
pub(crate) struct Tree<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) slot: &'a mut SlotState,
    pub(crate) tally: &'a mut Tally,
    pub(crate) now_ms: u64,
    pub(crate) form: &'static Form,
    /// Ways that were found before.
    pub(crate) known: KnownPaths,
}

impl Tree<'_> {
    fn keys(&mut self) -> Db<'_> {
        Db::new(self.slot, self.place.table, self.now_ms, self.tally)
    }

    fn nodes(&mut self) -> Db<'_> {
        Db::new(self.slot, node_table(self.place.table), self.now_ms, self.tally)
    }

    fn branch_kind(&self) -> u8 {
        self.form.kind.as_tree().bits()
    }

    /// Elements of the collection.
    pub(crate) fn elements(&self) -> u64 {
        self.place.elements(self.slot)
    }

    /// Whether its key, or the index, has gone with the last element.
    pub(crate) fn is_gone(&self) -> bool {
        let Place { key, table, .. } = self.place;
        match self.place.root_name() {
            None => self.slot.view(table, &key).is_none(),
            Some(name) => self.slot.view(node_table(table), &name.key(key.slot)).is_none(),
        }
    }

    /// The kind that the collection would have in one leaf.
    pub(crate) fn kind(&self) -> Kind {
        self.form.kind.with_encoding(self.place.root(self.slot).encoding())
    }

    /// The leaf at the end of a path, if it is in RAM.
    pub(crate) fn leaf_in_ram(&self, path: &Path) -> Option<&[u8]> {
        self.place.leaf_in_ram(self.slot, path)
    }

    /// The way to the leaf that holds what stands at `order`.
    pub(crate) fn find(&mut self, order: &[u8]) -> Path {
        self.known.take(order).unwrap_or_else(|| self.place.find(self.slot, order))
    }

    /// The leaf of a number, if it is in RAM. Panics: there is none.
    pub(crate) fn leaf_numbered(&self, leaf: u32) -> Option<&[u8]> {
        self.node_in_ram(self.place.root(self.slot).id(), leaf)
    }

    /// Sets the encoding that OBJECT ENCODING tells.
    pub(crate) fn set_encoding(&mut self, encoding: u8) {
        if self.place.root(self.slot).encoding() != encoding {
            self.with_root(|root| root.set_encoding(encoding));
        }
    }

    /// Changes the leaf that holds what stands at `order`, and the tree as it takes.
    pub(crate) fn change_leaf_at<R>(
        &mut self,
        order: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let path = self.find(order);
        self.change_leaf(path, change)
    }

    /// Changes the leaf at the end of a path, and the tree as it takes: other paths are none afterwards.
    pub(crate) fn change_leaf<R>(
        &mut self,
        mut path: Path,
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        self.place.seen_at = path.seen_at.first().copied();
        let (name, slot, count) = (path.name(), self.place.key.slot, self.form.count);
        let form = self.form;
        let (mut before, mut after, mut elements, mut first_ms) = (0, 0, 0, (0, 0));
        let stands_at = self.place.find_leaf(self.slot, &path);
        let changed = self.nodes().update_at(&name.key(slot), stands_at, |_, leaf| {
            (before, first_ms.0) = (leaf.len(), form.first_expiry_of(leaf));
            let changed = change(leaf);
            (after, elements) = (leaf.len(), count(leaf));
            first_ms.1 = form.first_expiry_of(leaf);
            Changed::Yes(changed)
        });
        let result = changed.expect("invariant: the leaf was made resident");
        if first_ms.0 != first_ms.1 {
            self.set_timer(path.leaf.node, first_ms.1);
        }
        let added = elements as i64 - i64::from(path.leaf.elements);
        self.add(&path, added, after as i64 - before as i64);
        path.leaf.elements = elements as u32;
        self.known.forget(path.leaf.node);
        if elements == 0 {
            self.remove_leaf(&path);
        } else if after > LEAF_BYTES_MAX && elements > 1 {
            self.divide_leaf(path);
        } else if after < LEAF_BYTES_MIN && after < before {
            self.join_leaf(&path);
        } else {
            return result;
        }
        self.known = KnownPaths::default();
        result
    }

    /// Writes over bytes of the leaf at the end of a path. It has the same elements afterwards, of the same
    /// length, which expire when they did.
    pub(crate) fn write(&mut self, path: &Path, start: usize, bytes: &[u8]) {
        let (name, slot) = (path.name(), self.place.key.slot);
        let stands_at = self.place.find_leaf(self.slot, path);
        self.nodes().touch_at(stands_at);
        let leaf = self.nodes().into_value_mut_at(&name.key(slot), stands_at);
        let leaf = leaf.expect("invariant: the leaf was made resident");
        leaf[start..start + bytes.len()].copy_from_slice(bytes);
        let key = self.place.key;
        self.keys().tell_watchers(&key);
    }

    fn with_root<R>(&mut self, change: impl FnOnce(&mut RootMut<'_>) -> R) -> R {
        let (key, at) = (self.place.key, self.place.find_root(self.slot));
        let root = at.and_then(|at| match self.place.root_name() {
            None => self.keys().into_value_mut_at(&key, at),
            Some(name) => self.nodes().into_value_mut_at(&name.key(key.slot), at),
        });
        change(&mut RootMut::new(root.expect("invariant: the collection exists")))
    }

    /// Adds to what the branches of a path, and the root, count.
    fn add(&mut self, path: &Path, elements: i64, leaf_bytes: i64) {
        let slot = self.place.key.slot;
        for (step, &(node, at)) in path.steps.iter().enumerate() {
            if node == ROOT {
                self.with_root(|root| root.add(at, elements, leaf_bytes));
            } else if elements != 0 {
                let name = NodeName::new(path.id, node);
                let stands_at = self.place.find_branch(self.slot, path, step);
                let branch = self.nodes().into_value_mut_at(&name.key(slot), stands_at);
                add_in_place(branch.expect("invariant: a branch stays in RAM"), at, elements);
            }
        }
    }

    /// Adds to the bytes of all leaves.
    fn add_leaf_bytes(&mut self, leaf_bytes: i64) {
        self.with_root(|root| root.add(0, 0, leaf_bytes));
    }

    /// The number of a new node. They begin again when all have been used, which a queue comes to.
    fn take_node(&mut self) -> u32 {
        let id = self.place.root(self.slot).id();
        loop {
            let node = self.with_root(|root| root.take_node());
            let name = NodeName::new(id, node);
            let table = node_table(self.place.table);
            let is_free = self.slot.view(table, &name.key(self.place.key.slot)).is_none();
            if node != ROOT && is_free {
                return node;
            }
        }
    }

    fn put_node(&mut self, id: u64, node: u32, kind: u8, bytes: Vec<u8>) {
        if kind == self.form.kind.bits() {
            self.set_timer(node, self.form.first_expiry_of(&bytes));
        }
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        self.nodes().put_vec(&name.key(slot), kind, bytes, Expiry::Clear);
    }

    /// Sets when the first element of a leaf expires, 0 for never.
    fn set_timer(&mut self, leaf: u32, at_ms: u64) {
        if self.form.first_expiry.is_some() {
            let Place { key, table, .. } = self.place;
            self.slot.set_timer((table, &key), leaf, at_ms, self.tally);
        }
    }

    fn remove_node(&mut self, id: u64, node: u32) {
        self.set_timer(node, 0);
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        assert!(self.nodes().remove(&name.key(slot)), "a node that a branch names is there");
    }

    /// The bytes of a node, if it is in RAM.
    fn node_in_ram(&self, id: u64, node: u32) -> Option<&[u8]> {
        let name = NodeName::new(id, node);
        let view = self.slot.view(node_table(self.place.table), &name.key(self.place.key.slot));
        in_ram(view.expect("invariant: a node that a branch names is there").stored)
    }
}

/// The bytes of a value that is in RAM.
fn in_ram(stored: Stored<'_>) -> Option<&[u8]> {
    match stored {
        Stored::Hot(bytes) | Stored::Clean(bytes, _) => Some(bytes),
        Stored::Cold(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keyspace::{FlashRef, Key, Keyspace, WatchFlag};
    use value::leaf::fields::{Fields, FieldsMut, SHAPE};

    use value::leaf::Cut;

    use super::*;
    use crate::collection::detached::DetachedNodes;
    use crate::collection::form::HASH;

    /// In RAM alone, and with a copy on flash, which is worthless then.
    #[test]
    fn what_is_written_over_is_counted_and_seen_by_who_watches() {
        let keyspace = Keyspace::default();
        let (mut tally, key) = (Tally::default(), Key::new(b"k"));
        let mut slot = keyspace.lock(key.slot);
        let mut leaf = SHAPE.empty().to_vec();
        (0..200).for_each(|number| {
            FieldsMut::new(&mut leaf).set(format!("field {number}").as_bytes(), b"old");
        });
        Db::new(&mut slot, 0, 0, &mut tally).put(&key, Kind::HASH.bits(), &leaf, Expiry::Clear);
        let (place, known) = (Place::new(key, 0), KnownPaths::default());
        let (now_ms, form) = (0, &HASH);
        let mut tree = Tree { place, slot: &mut slot, tally: &mut tally, now_ms, form, known };
        tree.grow(7, 2);
        let order = value::leaf::element_hash(b"field 9").to_be_bytes();
        let start = |tree: &mut Tree<'_>, path: &Path| {
            let leaf = tree.leaf_in_ram(path).expect("in RAM");
            Fields::new(leaf).lasting_value(b"field 9").expect("it is there").start
        };
        for new in [b"new", b"yet"] {
            let (flag, path) = (Arc::new(WatchFlag::default()), tree.find(&order));
            tree.slot.watch(0, b"k", &flag);
            let start = start(&mut tree, &path);
            tree.write(&path, start, new);
            assert!(flag.is_raised());
            let fields = Fields::new(tree.leaf_in_ram(&path).expect("in RAM"));
            assert_eq!(fields.get(b"field 9"), Some(&new[..]));
            assert_eq!(fields.get(b"field 8").unwrap_or(b"old"), b"old");
            let (name, bytes) = (path.name(), tree.leaf_in_ram(&path).expect("in RAM").to_vec());
            let copy = FlashRef { units: 3, stored_len: bytes.len() as u32, compressed: false };
            let dead = tree.tally.dead.len();
            assert!(tree.nodes().demote(&name.key(key.slot), copy));
            assert!(tree.leaf_in_ram(&path).is_none());
            assert!(tree.nodes().promote(&name.key(key.slot), copy, bytes.into()));
            assert_eq!((tree.tally.dead.len(), tree.tally.clean_count), (dead, 1));
        }
        let path = tree.find(&order);
        let start = start(&mut tree, &path);
        tree.write(&path, start, b"end");
        assert_eq!((tree.tally.clean_count, tree.tally.cold_count), (0, 0));
        assert_eq!(tree.tally.dead.len(), 2);
    }

    /// A tree and, over as many elements, its index, whose root is a node.
    #[test]
    fn an_index_is_a_tree_of_its_own_that_goes_with_its_key() {
        const FIELDS: usize = 60_000;
        let keyspace = Keyspace::default();
        let (mut tally, key) = (Tally::default(), Key::new(b"k"));
        let mut slot = keyspace.lock(key.slot);
        let mut leaf = SHAPE.empty().to_vec();
        let name = |number: usize| format!("field {number}").into_bytes();
        let order = |name: &[u8]| value::leaf::element_hash(name).to_be_bytes();
        (0..200).for_each(|number| {
            FieldsMut::new(&mut leaf).set(&name(number), b"");
        });
        Db::new(&mut slot, 0, 0, &mut tally).put(&key, Kind::HASH.bits(), &leaf, Expiry::Clear);
        let place = Place::new(key, 0);
        let mut tree = Tree {
            place,
            slot: &mut slot,
            tally: &mut tally,
            now_ms: 0,
            form: &HASH,
            known: KnownPaths::default(),
        };
        tree.grow(7, 2);
        let parts = (HASH.divide)(leaf, Cut::Evenly);
        tree.put_index(&HASH, parts.into_iter());
        for place in [place, place.of_index(tree.slot)] {
            tree.place = place;
            for number in 200..FIELDS {
                let field = name(number);
                tree.change_leaf_at(&order(&field), |leaf| FieldsMut::new(leaf).set(&field, b""));
            }
            assert_eq!(tree.elements(), FIELDS as u64);
            assert!(place.root(tree.slot).height() > 1);
            assert_eq!(place.leaf_count(tree.slot), place.leaves(tree.slot).len() as u64);
        }
        let index = place.of_index(tree.slot);
        for number in (0..FIELDS).step_by(97) {
            let field = name(number);
            let leaf = index.find(tree.slot, &order(&field)).leaf.node;
            let leaf = tree.node_in_ram(index.index.expect("an index"), leaf).expect("in RAM");
            assert_eq!(Fields::new(leaf).get(&field), Some(&b""[..]));
        }
        assert_eq!(place.nodes(tree.slot).len(), tree.slot.len(node_table(0)));
        assert_eq!(place.all_leaves(tree.slot).len(), 2 * place.leaves(tree.slot).len());
        tree.place = index;
        for number in 0..FIELDS {
            let field = name(number);
            tree.change_leaf_at(&order(&field), |leaf| FieldsMut::new(leaf).remove(&field));
        }
        assert_eq!(place.nodes(tree.slot).len(), tree.slot.len(node_table(0)), "no index is left");
        let leaf_bytes = place.leaf_bytes(tree.slot);
        Db::new(&mut slot, 0, 0, &mut tally).remove(&key);
        let detached = tally.trees.pop().expect("a tree");
        assert_eq!(detached.leaf_bytes(), leaf_bytes);
        let mut nodes = DetachedNodes::of_detached(&detached);
        assert!(nodes.free_some(&mut slot, (key.slot, 0), 0, &mut tally, usize::MAX));
        assert_eq!((slot.len(node_table(0)), tally.nodes), (0, 0));
        assert_eq!((tally.value_bytes, tally.hot_count), (0, 0));
    }
}
