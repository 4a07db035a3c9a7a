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

use keyspace::{Db, Expiry, SlotState, Stored, Tally, node_table};
use value::Kind;
use value::leaf::Cut;
use value::leaf::branch::{Branch, BranchMut, Child, RootMut, RootParts, add_in_place};

use crate::collection::detached::DetachedNodes;
use crate::collection::form::{Form, Part};
use crate::collection::place::{CHILDREN_MAX, LEAF_BYTES_MAX, NodeName, Path, Place, ROOT};

/// Bytes of a leaf below which it is joined with a neighbour, if both are in RAM and fit well.
const LEAF_BYTES_MIN: usize = LEAF_BYTES_MAX / 4;
const JOINED_BYTES_MAX: usize = LEAF_BYTES_MAX * 3 / 4;
/// Children that a branch is made with, when many are made at once.
const CHILDREN_MADE: usize = 96;
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

    /// Whether its key has gone, with the last element.
    pub(crate) fn is_gone(&self) -> bool {
        self.slot.view(self.place.table, &self.place.key).is_none()
    }

    /// Whether the leaf that holds what stands at `order` is on flash alone.
    pub(crate) fn is_cold(&self, order: &[u8]) -> bool {
        let path = self.place.find(self.slot, order);
        self.place.cold(self.slot, &path.name()).is_some()
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
        let path = self.place.find(self.slot, order);
        self.change_leaf(path, change)
    }

    /// Changes the leaf at the end of a path, and the tree as it takes: other paths are none afterwards.
    pub(crate) fn change_leaf<R>(
        &mut self,
        mut path: Path,
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let (name, slot, count) = (path.name(), self.place.key.slot, self.form.count);
        let (mut before, mut after, mut elements) = (0, 0, 0);
        let changed = self.nodes().update(&name.key(slot), |_, leaf| {
            before = leaf.len();
            let changed = change(leaf);
            (after, elements) = (leaf.len(), count(leaf));
            changed
        });
        let result = changed.expect("invariant: the leaf was made resident");
        let added = elements as i64 - i64::from(path.leaf.elements);
        self.add(&path, added, after as i64 - before as i64);
        path.leaf.elements = elements as u32;
        if elements == 0 {
            self.remove_leaf(&path);
        } else if after > LEAF_BYTES_MAX {
            self.divide_leaf(path);
        } else if after < LEAF_BYTES_MIN && after < before {
            self.join_leaf(&path);
        }
        result
    }

    fn with_root<R>(&mut self, change: impl FnOnce(&mut RootMut<'_>) -> R) -> R {
        let key = self.place.key;
        let root = match self.place.root_name() {
            None => self.keys().into_value_mut(&key),
            Some(name) => self.nodes().into_value_mut(&name.key(key.slot)),
        };
        change(&mut RootMut::new(root.expect("invariant: the collection exists")))
    }

    /// Adds to what the branches of a path, and the root, count.
    fn add(&mut self, path: &Path, elements: i64, leaf_bytes: i64) {
        let slot = self.place.key.slot;
        for &(node, at) in &path.steps {
            if node == ROOT {
                self.with_root(|root| root.add(at, elements, leaf_bytes));
            } else if elements != 0 {
                let name = NodeName::new(path.id, node);
                let branch = self.nodes().into_value_mut(&name.key(slot));
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
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        self.nodes().put_vec(&name.key(slot), kind, bytes, Expiry::Clear);
    }

    fn remove_node(&mut self, id: u64, node: u32) {
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        assert!(self.nodes().remove(&name.key(slot)), "a node that a branch names is there");
    }

    /// The bytes of a leaf, if it is in RAM.
    fn leaf_in_ram(&self, id: u64, node: u32) -> Option<&[u8]> {
        let name = NodeName::new(id, node);
        let view = self.slot.view(node_table(self.place.table), &name.key(self.place.key.slot));
        in_ram(view.expect("invariant: a node that a branch names is there").stored)
    }

    /// Divides a leaf until no part is too large or can be divided.
    fn divide_leaf(&mut self, path: Path) {
        let leaf = self.leaf_in_ram(path.id, path.leaf.node).expect("invariant: it was changed");
        let whole = leaf.len() as i64;
        let mut parts = (self.form.divide)(leaf.to_vec(), self.cut(&path)).into_iter();
        let (_, first) = parts.next().expect("invariant: a leaf has a part");
        if parts.len() == 0 {
            return;
        }
        let (kind, count) = (self.form.kind.bits(), self.form.count);
        let mut bytes = first.len() as i64 - whole;
        let mut left = Child { elements: count(&first) as u32, ..path.leaf };
        let mut rest = path.leaf.elements - left.elements;
        let mut before = self.place.elements_before(self.slot, &path);
        self.put_node(path.id, left.node, kind, first);
        let mut steps = path.steps;
        for (bound, part) in parts {
            bytes += part.len() as i64;
            let elements = count(&part) as u32;
            // It counts as all parts that are still to come, so that branches are right whenever one of
            // them is divided.
            let right = Child { node: self.take_node(), elements: rest };
            self.put_node(path.id, right.node, kind, part);
            self.insert_child(path.id, &steps, left, &bound, right);
            before += u64::from(left.elements);
            // The branch may have been divided.
            steps = self.place.find_nth(self.slot, before).0.steps;
            left = Child { elements, ..right };
            rest -= elements;
        }
        self.add_leaf_bytes(bytes);
    }

    /// Where parts of a leaf should have room left: at the ends it is likely that more comes.
    fn cut(&self, path: &Path) -> Cut {
        let is_last = self.place.next(self.slot, path).is_none();
        match (path.is_first(), is_last) {
            (false, true) => Cut::Back,
            (true, false) => Cut::Front,
            _ => Cut::Evenly,
        }
    }

    /// Lets the child at the end of a path be `left`, and puts `right` behind it.
    fn insert_child(
        &mut self,
        id: u64,
        steps: &[(u32, usize)],
        left: Child,
        bound: &[u8],
        right: Child,
    ) {
        let (&(node, at), above) = steps.split_last().expect("invariant: a path has a step");
        if node == ROOT {
            return self.insert_below_root(at, left, bound, right);
        }
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        let mut divided = None;
        let mut elements = 0;
        self.nodes().update(&name.key(slot), |_, bytes| {
            let mut branch = BranchMut::new(bytes);
            branch.set(at, left);
            branch.insert(at + 1, bound, right);
            if branch.branch().len() > CHILDREN_MAX {
                divided = Some(branch.split_off(CHILDREN_MAX / 2));
            }
            elements = branch.branch().elements();
        });
        let Some((bound, branch)) = divided else { return };
        let more = Branch::new(&branch).elements();
        let (left, right) = (
            Child { node, elements: elements as u32 },
            Child { node: self.take_node(), elements: more as u32 },
        );
        let kind = self.branch_kind();
        self.put_node(id, right.node, kind, branch);
        self.insert_child(id, above, left, &bound, right);
    }

    fn insert_below_root(&mut self, at: usize, left: Child, bound: &[u8], right: Child) {
        let mut root = RootParts::of(self.place.root(self.slot));
        let mut branch = BranchMut::new(&mut root.branch);
        branch.set(at, left);
        branch.insert(at + 1, bound, right);
        if branch.branch().len() > CHILDREN_MAX {
            let (bound, right) = branch.split_off(CHILDREN_MAX / 2);
            self.raise(root, bound, right);
        } else {
            self.put_root(root);
        }
    }

    /// Makes a tree one branch higher, the root's own branch being the left child.
    fn raise(&mut self, root: RootParts, bound: Vec<u8>, right: Vec<u8>) {
        let kind = self.branch_kind();
        let mut children = Vec::new();
        for (bound, branch) in [(Vec::new(), root.branch), (bound, right)] {
            let elements = Branch::new(&branch).elements() as u32;
            let child = Child { node: self.take_node(), elements };
            self.put_node(root.id, child.node, kind, branch);
            children.push((bound, child));
        }
        let next_node = self.place.root(self.slot).next_node();
        let (branch, height) = (BranchMut::of(children), root.height + 1);
        self.put_root(RootParts { next_node, branch, height, ..root });
    }

    fn put_root(&mut self, root: RootParts) {
        let key = self.place.key;
        let value = root.into_value();
        let put = match self.place.root_name() {
            None => self.keys().update(&key, |_, bytes| *bytes = value),
            Some(name) => self.nodes().update(&name.key(key.slot), |_, bytes| *bytes = value),
        };
        put.expect("invariant: a root is in RAM");
    }

    /// Takes out an empty leaf, and the branches that it leaves empty. The key, or the index, goes with the
    /// last.
    fn remove_leaf(&mut self, path: &Path) {
        let bytes = self.leaf_in_ram(path.id, path.leaf.node).map_or(0, <[u8]>::len);
        self.remove_node(path.id, path.leaf.node);
        self.add_leaf_bytes(-(bytes as i64));
        self.remove_child(path.id, &path.steps);
    }

    fn remove_child(&mut self, id: u64, steps: &[(u32, usize)]) {
        let (&(node, at), above) = steps.split_last().expect("invariant: a path has a step");
        if node == ROOT {
            return self.remove_below_root(at);
        }
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        let mut is_empty = false;
        self.nodes().update(&name.key(slot), |_, bytes| {
            let mut branch = BranchMut::new(bytes);
            branch.remove(at);
            is_empty = branch.branch().len() == 0;
        });
        if is_empty {
            self.remove_node(id, node);
            self.remove_child(id, above);
        }
    }

    fn remove_below_root(&mut self, at: usize) {
        let mut root = RootParts::of(self.place.root(self.slot));
        BranchMut::new(&mut root.branch).remove(at);
        if Branch::new(&root.branch).len() == 0 {
            let key = self.place.key;
            match self.place.root_name() {
                Some(name) => self.nodes().remove(&name.key(key.slot)),
                None => {
                    self.put_root(root);
                    self.keys().remove(&key)
                }
            };
            return;
        }
        self.lower(&mut root);
        self.put_root(root);
    }

    /// Takes branches with a single child away from below the root.
    fn lower(&mut self, root: &mut RootParts) {
        while root.height > 1 && Branch::new(&root.branch).len() == 1 {
            let child = Branch::new(&root.branch).child(0);
            root.branch = self.place.branch(self.slot, root.id, child.node).bytes().to_vec();
            root.height -= 1;
            self.remove_node(root.id, child.node);
        }
    }

    /// Joins a leaf that has become small with a neighbour below the same branch, if that is in RAM and
    /// both together are no large leaf.
    fn join_leaf(&mut self, path: &Path) {
        let &(node, at) = path.steps.last().expect("invariant: a path has a step");
        let branch = self.place.branch(self.slot, path.id, node);
        let neighbours = [at.checked_sub(1), (at + 1 < branch.len()).then_some(at + 1)];
        let own = self.leaf_in_ram(path.id, path.leaf.node).map_or(usize::MAX, <[u8]>::len);
        let fitting = neighbours.into_iter().flatten().find(|&other| {
            let other = self.leaf_in_ram(path.id, branch.child(other).node);
            other.is_some_and(|leaf| leaf.len().saturating_add(own) <= JOINED_BYTES_MAX)
        });
        let Some(other) = fitting else { return };
        let (left_at, right_at) = (at.min(other), at.max(other));
        let (left, right) = (branch.child(left_at), branch.child(right_at));
        self.join(path, (left_at, left), right);
    }

    fn join(&mut self, path: &Path, (left_at, left): (usize, Child), right: Child) {
        let leaf = |node| self.leaf_in_ram(path.id, node).expect("invariant: both are in RAM");
        let (of_left, of_right) = (leaf(left.node), leaf(right.node));
        let before = (of_left.len() + of_right.len()) as i64;
        let joined = (self.form.join)(&[of_left, of_right]);
        let after = joined.len() as i64;
        self.put_node(path.id, left.node, self.form.kind.bits(), joined);
        self.remove_node(path.id, right.node);
        self.add_leaf_bytes(after - before);
        let mut steps = path.steps.clone();
        let last = steps.last_mut().expect("invariant: a path has a step");
        // The elements move from one child to the other below the same branch: none above changes.
        let moved = i64::from(right.elements);
        self.move_elements(path.id, last.0, left_at, moved);
        last.1 = left_at + 1;
        self.remove_child(path.id, &steps);
    }

    /// Lets `elements` more be below the child at a position, and fewer below the next.
    fn move_elements(&mut self, id: u64, node: u32, at: usize, elements: i64) {
        if node == ROOT {
            self.with_root(|root| {
                root.add(at, elements, 0);
                root.add(at + 1, -elements, 0);
            });
            return;
        }
        let (name, slot) = (NodeName::new(id, node), self.place.key.slot);
        let branch = self.nodes().into_value_mut(&name.key(slot));
        let branch = branch.expect("invariant: a branch stays in RAM");
        add_in_place(branch, at, elements);
        add_in_place(branch, at + 1, -elements);
    }

    /// Makes the collection, and its index, one leaf again when it has become small and is all in RAM.
    pub(crate) fn settle(&mut self) {
        let key = self.place.key;
        if self.is_gone() {
            return;
        }
        let root = self.place.root(self.slot);
        if root.leaf_bytes() > SINGLE_AGAIN_BYTES {
            return;
        }
        let kind = self.form.kind.with_encoding(root.encoding()).bits();
        let names = self.place.leaves(self.slot);
        let leaf_of = |name: &NodeName| {
            let view = self.slot.view(node_table(self.place.table), &name.key(key.slot));
            in_ram(view.expect("invariant: a node that a branch names is there").stored)
        };
        let Some(leaves) = names.iter().map(leaf_of).collect::<Option<Vec<_>>>() else { return };
        let whole = (self.form.join)(&leaves);
        let mut detached = DetachedNodes::of(self.place.root(self.slot));
        let at = (key.slot, self.place.table);
        assert!(detached.free_some(self.slot, at, self.now_ms, self.tally, usize::MAX));
        self.keys().update(&key, |bits, bytes| (*bits, *bytes) = (kind, whole));
    }

    /// Makes a tree of a collection in one leaf, the value of an existing key in RAM. Nothing happens if
    /// the leaf cannot be divided.
    pub(crate) fn grow(&mut self, id: u64) {
        let key = self.place.key;
        let view = self.slot.view(self.place.table, &key).expect("invariant: the key exists");
        let leaf = in_ram(view.stored).expect("invariant: a value that was just changed is in RAM");
        if (self.form.count)(leaf) < 2 {
            return;
        }
        let encoding = Kind::from_bits(view.kind).encoding();
        let parts = (self.form.divide)(leaf.to_vec(), Cut::Evenly);
        if parts.len() > 1 {
            let root = self.build(id, encoding, parts.into_iter());
            let kind = self.branch_kind();
            self.keys().update(&key, |bits, bytes| (*bits, *bytes) = (kind, root));
        }
    }

    /// Puts the nodes of a new collection with these leaves. Returns its root, which the caller puts. Panics:
    /// there is no leaf.
    pub(crate) fn build(
        &mut self,
        id: u64,
        encoding: u8,
        parts: impl Iterator<Item = Part>,
    ) -> Vec<u8> {
        let mut root = RootParts {
            id,
            elements: 0,
            leaf_bytes: 0,
            next_node: 0,
            height: 1,
            encoding,
            branch: Vec::new(),
        };
        let mut children = Vec::new();
        for (bound, leaf) in parts {
            let elements = (self.form.count)(&leaf) as u32;
            root.elements += u64::from(elements);
            root.leaf_bytes += leaf.len() as u64;
            let child = Child { node: root.take_node(), elements };
            self.put_node(id, child.node, self.form.kind.bits(), leaf);
            children.push((bound, child));
        }
        while children.len() > CHILDREN_MAX {
            children = self.put_branches(&mut root, children);
        }
        assert!(!children.is_empty(), "a collection has a leaf");
        root.branch = BranchMut::of(children);
        root.into_value()
    }

    /// Puts children below branches of their own, and returns those.
    fn put_branches(
        &mut self,
        root: &mut RootParts,
        children: Vec<(Vec<u8>, Child)>,
    ) -> Vec<(Vec<u8>, Child)> {
        root.height += 1;
        let mut branches = Vec::new();
        let mut children = children.into_iter().peekable();
        while let Some((bound, _)) = children.peek() {
            let bound = bound.clone();
            let branch = BranchMut::of(children.by_ref().take(CHILDREN_MADE));
            let elements = Branch::new(&branch).elements() as u32;
            let child = Child { node: root.take_node(), elements };
            let kind = self.branch_kind();
            self.put_node(root.id, child.node, kind, branch);
            branches.push((bound, child));
        }
        branches
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
    use keyspace::{Key, Keyspace};
    use value::leaf::fields::{Fields, FieldsMut, SHAPE};

    use super::*;
    use crate::collection::form::HASH;

    /// A tree and, over as many elements, its index, whose root is a node.
    #[test]
    fn an_index_is_a_tree_of_its_own_that_goes_with_its_key() {
        const FIELDS: usize = 20_000;
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
        let place = Place { key, table: 0, index: None };
        let mut tree = Tree { place, slot: &mut slot, tally: &mut tally, now_ms: 0, form: &HASH };
        tree.grow(7);
        tree.place = place.of_index(tree.slot);
        let parts = (HASH.divide)(leaf, Cut::Evenly);
        let root = tree.build(tree.place.index.expect("an index"), 0, parts.into_iter());
        let kind = tree.branch_kind();
        tree.put_node(tree.place.index.expect("an index"), ROOT, kind, root);
        for place in [place, place.of_index(tree.slot)] {
            tree.place = place;
            for number in 200..FIELDS {
                let field = name(number);
                tree.change_leaf_at(&order(&field), |leaf| FieldsMut::new(leaf).set(&field, b""));
            }
            assert_eq!(tree.elements(), FIELDS as u64);
            assert!(place.root(tree.slot).height() > 1);
        }
        let index = place.of_index(tree.slot);
        for number in (0..FIELDS).step_by(97) {
            let field = name(number);
            let leaf = index.find(tree.slot, &order(&field)).leaf.node;
            let leaf = tree.leaf_in_ram(index.index.expect("an index"), leaf).expect("in RAM");
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
        Db::new(&mut slot, 0, 0, &mut tally).remove(&key);
        let mut nodes = DetachedNodes::of_detached(&tally.trees.pop().expect("a tree"));
        assert!(nodes.free_some(&mut slot, (key.slot, 0), 0, &mut tally, usize::MAX));
        assert_eq!((slot.len(node_table(0)), tally.nodes), (0, 0));
        assert_eq!((tally.value_bytes, tally.hot_count), (0, 0));
    }
}
