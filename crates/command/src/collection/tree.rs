//! A large collection: leaves below a counted tree of branches, the root of which is the key's value.
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

use keyspace::{Db, DetachedTree, Expiry, FlashRef, Key, SlotState, Stored, Tally, node_table};
use smallvec::SmallVec;
use value::Kind;
use value::leaf::branch::{Branch, BranchMut, Child, Root, RootMut, RootParts, add_in_place};
use value::leaf::{Rows, RowsMut};

/// Bytes of a leaf beyond which it is divided.
pub(crate) const LEAF_BYTES_MAX: usize = 2_048;
/// Bytes of a leaf below which it is joined with a neighbour, if both are in RAM and fit well.
const LEAF_BYTES_MIN: usize = LEAF_BYTES_MAX / 4;
const JOINED_BYTES_MAX: usize = LEAF_BYTES_MAX * 3 / 4;
/// Children of a branch beyond which it is divided.
const CHILDREN_MAX: usize = 128;
/// Children that a branch is made with, when many are made at once.
const CHILDREN_MADE: usize = 96;
/// Bytes beyond which a collection in one leaf is divided, and below which a tree becomes one again.
pub(crate) const SINGLE_BYTES_MAX: usize = 4_096;
const SINGLE_AGAIN_BYTES: u64 = 1_024;
/// What names the root among the nodes on a path.
const ROOT: u32 = u32::MAX;

/// How a type divides a leaf: its left half, its right half, and the bound of the right one.
pub(crate) type Divide = fn(&[u8]) -> Option<(Vec<u8>, Vec<u8>, Vec<u8>)>;

/// The name of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeName([u8; 12]);

impl NodeName {
    pub(crate) fn new(id: u64, node: u32) -> NodeName {
        let mut name = [0; 12];
        name[..8].copy_from_slice(&id.to_be_bytes());
        name[8..].copy_from_slice(&node.to_be_bytes());
        NodeName(name)
    }

    pub(crate) fn key(&self, slot: u16) -> Key<'_> {
        Key::in_slot(&self.0, slot)
    }
}

/// The way from the root to a leaf.
pub(crate) struct Path {
    id: u64,
    /// A branch, or [`ROOT`], and the position of the child in it.
    steps: SmallVec<[(u32, usize); 4]>,
    pub(crate) leaf: Child,
}

impl Path {
    pub(crate) fn name(&self) -> NodeName {
        NodeName::new(self.id, self.leaf.node)
    }
}

/// Where a collection stands.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) key: Key<'a>,
    /// The physical table of the key.
    pub(crate) table: u8,
}

impl Place<'_> {
    fn root<'s>(&self, slot: &'s SlotState) -> Root<'s> {
        let view = slot.view(self.table, &self.key).expect("invariant: the collection exists");
        let Stored::Hot(root) = view.stored else { panic!("a root stays in RAM") };
        Root::new(root)
    }

    fn branch<'s>(&self, slot: &'s SlotState, id: u64, node: u32) -> Branch<'s> {
        let name = NodeName::new(id, node);
        let view = slot.view(node_table(self.table), &name.key(self.key.slot));
        let Some(Stored::Hot(branch)) = view.map(|view| view.stored) else {
            panic!("a branch stays in RAM")
        };
        Branch::new(branch)
    }

    /// The way to a leaf, taking in each branch the child that `choose` says.
    pub(crate) fn descend(
        &self,
        slot: &SlotState,
        mut choose: impl FnMut(&Branch<'_>) -> usize,
    ) -> Path {
        let root = self.root(slot);
        let (id, mut branch, mut node) = (root.id(), root.branch(), ROOT);
        let mut steps = SmallVec::new();
        for level in (0..root.height()).rev() {
            let at = choose(&branch);
            steps.push((node, at));
            let child = branch.child(at);
            if level == 0 {
                return Path { id, steps, leaf: child };
            }
            node = child.node;
            branch = self.branch(slot, id, node);
        }
        unreachable!("a tree is at least one branch high")
    }

    /// The way to the leaf that holds what stands at `order`.
    pub(crate) fn find(&self, slot: &SlotState, order: &[u8]) -> Path {
        self.descend(slot, |branch| branch.find(order))
    }

    /// The way to the leaf that holds the `element`-th, and which of its elements that is. Panics: there
    /// are fewer.
    pub(crate) fn find_nth(&self, slot: &SlotState, mut element: u64) -> (Path, usize) {
        let path = self.descend(slot, |branch| {
            let (at, rest) = branch.find_nth(element).expect("invariant: there are so many");
            element = rest;
            at
        });
        (path, element as usize)
    }

    /// The bound of the leaf behind that at the end of a path. None: it is the last.
    pub(crate) fn next_bound(&self, slot: &SlotState, path: &Path) -> Option<Vec<u8>> {
        path.steps.iter().rev().find_map(|&(node, at)| {
            let branch = match node {
                ROOT => self.root(slot).branch(),
                node => self.branch(slot, path.id, node),
            };
            (at + 1 < branch.len()).then(|| branch.bound(at + 1).to_vec())
        })
    }

    /// The names of all leaves in their order.
    pub(crate) fn leaves(&self, slot: &SlotState) -> Vec<NodeName> {
        self.levels(slot).pop().expect("invariant: a tree has leaves")
    }

    /// The names of all nodes but the root.
    pub(crate) fn nodes(&self, slot: &SlotState) -> Vec<NodeName> {
        self.levels(slot).concat()
    }

    /// The names of the nodes of each level below the root.
    fn levels(&self, slot: &SlotState) -> Vec<Vec<NodeName>> {
        let root = self.root(slot);
        let below = |branch: Branch<'_>| {
            let nodes = branch.children().map(|child| child.node);
            nodes.collect::<SmallVec<[u32; CHILDREN_MAX]>>()
        };
        let mut level = below(root.branch()).into_vec();
        let mut levels = Vec::new();
        for height in (0..root.height()).rev() {
            levels.push(level.iter().map(|&node| NodeName::new(root.id(), node)).collect());
            if height > 0 {
                let branches = level.iter().map(|&node| self.branch(slot, root.id(), node));
                let children: Vec<u32> = branches.flat_map(below).collect();
                level = children;
            }
        }
        levels
    }

    /// Where a leaf lies that is on flash alone, and its length.
    pub(crate) fn cold(&self, slot: &SlotState, name: &NodeName) -> Option<(FlashRef, u32)> {
        slot.cold(node_table(self.table), &name.key(self.key.slot))
    }

    pub(crate) fn elements(&self, slot: &SlotState) -> u64 {
        self.root(slot).elements()
    }

    pub(crate) fn leaf_bytes(&self, slot: &SlotState) -> u64 {
        self.root(slot).leaf_bytes()
    }
}

/// A large collection to be changed. The leaves that are changed are in RAM.
pub(crate) struct Tree<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) slot: &'a mut SlotState,
    pub(crate) tally: &'a mut Tally,
    pub(crate) now_ms: u64,
    /// The kind of its leaves.
    pub(crate) kind: Kind,
    pub(crate) divide: Divide,
}

impl Tree<'_> {
    fn keys(&mut self) -> Db<'_> {
        Db::new(self.slot, self.place.table, self.now_ms, self.tally)
    }

    fn nodes(&mut self) -> Db<'_> {
        Db::new(self.slot, node_table(self.place.table), self.now_ms, self.tally)
    }

    fn branch_kind(&self) -> u8 {
        self.kind.as_tree().bits()
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
    ///
    /// `change` says by how many the elements of the leaf are more afterwards.
    pub(crate) fn change_leaf<R>(
        &mut self,
        order: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> (R, i64),
    ) -> R {
        let path = self.place.find(self.slot, order);
        let (name, slot) = (path.name(), self.place.key.slot);
        let (mut before, mut after) = (0, 0);
        let changed = self.nodes().update(&name.key(slot), |_, leaf| {
            before = leaf.len();
            let changed = change(leaf);
            after = leaf.len();
            changed
        });
        let (result, added) = changed.expect("invariant: the leaf was made resident");
        self.add(&path, added, after as i64 - before as i64);
        if i64::from(path.leaf.elements) + added == 0 {
            self.remove_leaf(&path);
        } else if after > LEAF_BYTES_MAX {
            self.divide_leaf(path);
        } else if after < LEAF_BYTES_MIN && after < before {
            self.join_leaf(&path);
        }
        result
    }

    fn with_root(&mut self, change: impl FnOnce(&mut RootMut<'_>)) {
        let key = self.place.key;
        let root = self.keys().into_value_mut(&key).expect("invariant: the collection exists");
        change(&mut RootMut::new(root));
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

    fn take_node(&mut self) -> u32 {
        let mut node = 0;
        self.with_root(|root| node = root.take_node());
        node
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
        match view.expect("invariant: a node that a branch names is there").stored {
            Stored::Hot(leaf) | Stored::Clean(leaf, _) => Some(leaf),
            Stored::Cold(..) => None,
        }
    }

    /// Divides a leaf until no part is too large or can be divided.
    fn divide_leaf(&mut self, path: Path) {
        let leaf = self.leaf_in_ram(path.id, path.leaf.node).expect("invariant: it was changed");
        let whole = leaf.len() as i64;
        let parts = divide_all(leaf.to_vec(), self.divide);
        if parts.len() == 1 {
            return;
        }
        let kind = self.kind.bits();
        let (mut bytes, mut left, mut rest) = (-whole, path.leaf, 0);
        left.elements = parts.iter().map(|(_, part)| Rows::new(part).len() as u32).sum();
        let mut order: Option<Vec<u8>> = None;
        for (bound, part) in parts {
            bytes += part.len() as i64;
            let elements = Rows::new(&part).len() as u32;
            let Some(before) = &order else {
                rest = left.elements - elements;
                left.elements = elements;
                self.put_node(path.id, left.node, kind, part);
                order = Some(bound);
                continue;
            };
            // It counts as all parts that are still to come, so that branches are right whenever one of
            // them is divided.
            let right = Child { node: self.take_node(), elements: rest };
            self.put_node(path.id, right.node, kind, part);
            // The branch may have been divided for the part before.
            let steps = match before.is_empty() {
                true => path.steps.clone(),
                false => self.place.find(self.slot, before).steps,
            };
            self.insert_child(path.id, &steps, left, &bound, right);
            (left, order) = (Child { elements, ..right }, Some(bound));
            rest -= elements;
        }
        self.add_leaf_bytes(bytes);
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
            self.raise(&mut root, bound, right);
        }
        self.put_root(root);
    }

    /// Makes a tree one branch higher, the root's own branch being the left child.
    fn raise(&mut self, root: &mut RootParts, bound: Vec<u8>, right: Vec<u8>) {
        let kind = self.branch_kind();
        let left = std::mem::take(&mut root.branch);
        let mut children = Vec::new();
        for (bound, branch) in [(Vec::new(), left), (bound, right)] {
            let elements = Branch::new(&branch).elements() as u32;
            let child = Child { node: root.take_node(), elements };
            self.put_node(root.id, child.node, kind, branch);
            children.push((bound, child));
        }
        root.branch = BranchMut::of(children);
        root.height += 1;
    }

    fn put_root(&mut self, root: RootParts) {
        let key = self.place.key;
        let value = root.into_value();
        self.keys().update(&key, |_, bytes| *bytes = value).expect("invariant: a root is in RAM");
    }

    /// Takes out an empty leaf, and the branches that it leaves empty. The key goes with the last.
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
            self.put_root(root);
            self.keys().remove(&key);
            return;
        }
        self.lower(&mut root);
        self.put_root(root);
    }

    /// Takes branches with a single child away from below the root.
    fn lower(&mut self, root: &mut RootParts) {
        while root.height > 1 && Branch::new(&root.branch).len() == 1 {
            let child = Branch::new(&root.branch).child(0);
            let name = NodeName::new(root.id, child.node);
            let slot = self.place.key.slot;
            let view = self.slot.view(node_table(self.place.table), &name.key(slot));
            let Some(Stored::Hot(branch)) = view.map(|view| view.stored) else {
                panic!("a branch stays in RAM")
            };
            root.branch = branch.to_vec();
            root.height -= 1;
            self.remove_node(root.id, child.node);
        }
    }

    /// Joins a leaf that has become small with a neighbour below the same branch, if that is in RAM and
    /// both together are no large leaf.
    fn join_leaf(&mut self, path: &Path) {
        let &(node, at) = path.steps.last().expect("invariant: a path has a step");
        let branch = match node {
            ROOT => self.place.root(self.slot).branch(),
            node => self.place.branch(self.slot, path.id, node),
        };
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
        let of_right = self.leaf_in_ram(path.id, right.node).expect("invariant: both are in RAM");
        let of_right = of_right.to_vec();
        let (name, slot) = (NodeName::new(path.id, left.node), self.place.key.slot);
        let (mut before, mut after) = (0, 0);
        self.nodes().update(&name.key(slot), |_, leaf| {
            before = leaf.len();
            RowsMut::new(leaf).append(Rows::new(&of_right));
            after = leaf.len();
        });
        self.remove_node(path.id, right.node);
        self.add_leaf_bytes(after as i64 - before as i64 - of_right.len() as i64);
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

    /// Makes the collection one leaf again when it has become small and is all in RAM. `kind_of` gives the
    /// kind of a value with the encoding of the tree.
    pub(crate) fn settle(&mut self) {
        let key = self.place.key;
        if self.is_gone() {
            return;
        }
        let root = self.place.root(self.slot);
        if root.leaf_bytes() > SINGLE_AGAIN_BYTES {
            return;
        }
        let encoding = root.encoding();
        let mut whole: Option<Vec<u8>> = None;
        for name in self.place.leaves(self.slot) {
            let view = self.slot.view(node_table(self.place.table), &name.key(key.slot));
            let stored = view.expect("invariant: a node that a branch names is there").stored;
            let (Stored::Hot(leaf) | Stored::Clean(leaf, _)) = stored else { return };
            match &mut whole {
                None => whole = Some(leaf.to_vec()),
                Some(whole) => RowsMut::new(whole).append(Rows::new(leaf)),
            }
        }
        let mut detached = DetachedNodes::of(self.place.root(self.slot));
        let at = (key.slot, self.place.table);
        assert!(detached.free_some(self.slot, at, self.now_ms, self.tally, usize::MAX));
        let whole = whole.expect("invariant: a collection has a leaf");
        let kind = self.kind.with_encoding(encoding).bits();
        self.keys().update(&key, |bits, bytes| (*bits, *bytes) = (kind, whole));
    }

    /// Makes a tree of a collection in one leaf, the value of an existing key in RAM. Nothing happens if
    /// the leaf cannot be divided.
    pub(crate) fn grow(&mut self, id: u64) {
        let key = self.place.key;
        let view = self.slot.view(self.place.table, &key).expect("invariant: the key exists");
        let (Stored::Hot(leaf) | Stored::Clean(leaf, _)) = view.stored else {
            panic!("a value that was just changed is in RAM")
        };
        if Rows::new(leaf).len() < 2 {
            return;
        }
        let encoding = Kind::from_bits(view.kind).encoding();
        let parts = divide_all(leaf.to_vec(), self.divide);
        if parts.len() == 1 {
            return;
        }
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
            let elements = Rows::new(&leaf).len() as u32;
            root.elements += u64::from(elements);
            root.leaf_bytes += leaf.len() as u64;
            let child = Child { node: root.take_node(), elements };
            self.put_node(id, child.node, self.kind.bits(), leaf);
            children.push((bound, child));
        }
        while children.len() > CHILDREN_MAX {
            children = self.put_branches(&mut root, children);
        }
        root.branch = BranchMut::of(children);
        let (kind, value) = (self.branch_kind(), root.into_value());
        self.keys().update(&key, |bits, bytes| (*bits, *bytes) = (kind, value));
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

/// The parts of a leaf, none of them too large that can be divided, each with its bound.
fn divide_all(leaf: Vec<u8>, divide: Divide) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let mut rest = vec![(Vec::new(), leaf)];
    while let Some((bound, leaf)) = rest.pop() {
        let divided = if leaf.len() > LEAF_BYTES_MAX { divide(&leaf) } else { None };
        match divided {
            None => parts.push((bound, leaf)),
            Some((left, right, middle)) => {
                rest.push((middle, right));
                rest.push((bound, left));
            }
        }
    }
    parts
}

/// Nodes of a collection that are still to be freed.
pub struct DetachedNodes {
    id: u64,
    nodes: Vec<u32>,
}

impl DetachedNodes {
    fn of(root: Root<'_>) -> DetachedNodes {
        let nodes = root.branch().children().map(|child| child.node).collect();
        DetachedNodes { id: root.id(), nodes }
    }

    /// Those of a collection that has no key any more.
    pub fn of_detached(tree: &DetachedTree) -> DetachedNodes {
        DetachedNodes::of(Root::new(&tree.root))
    }

    /// Frees some nodes, `nodes_max` at most, in a slot and beside a table of keys. Returns whether all
    /// are gone.
    pub fn free_some(
        &mut self,
        slot: &mut SlotState,
        (slot_number, table): (u16, u8),
        now_ms: u64,
        tally: &mut Tally,
        nodes_max: usize,
    ) -> bool {
        for _ in 0..nodes_max {
            let Some(node) = self.nodes.pop() else { break };
            let name = NodeName::new(self.id, node);
            let key = name.key(slot_number);
            // A FLUSH may have taken it.
            let Some(view) = slot.view(node_table(table), &key) else { continue };
            if let Stored::Hot(bytes) = view.stored
                && Kind::from_bits(view.kind).is_tree()
            {
                self.nodes.extend(Branch::new(bytes).children().map(|child| child.node));
            }
            Db::new(slot, node_table(table), now_ms, tally).remove(&key);
        }
        self.nodes.is_empty()
    }
}
