//! Where the nodes of a large collection stand, and the ways to its leaves.

use keyspace::{FlashRef, Key, Position, SlotState, View, node_table};
use smallvec::{SmallVec, smallvec};
use value::leaf::branch::{Branch, Child, Root};

use crate::collection::list::End;

/// Bytes of a leaf beyond which it is divided.
pub(crate) const LEAF_BYTES_MAX: usize = 2_048;
/// Children of a branch beyond which it is divided.
pub(crate) const CHILDREN_MAX: usize = 256;
/// What names the root among the nodes on a path, and is the number of a root that is a node.
pub(crate) const ROOT: u32 = u32::MAX;
/// Tells the id of a collection's index from its own.
const INDEX_BIT: u64 = 1 << 63;

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

    /// Bytes of a name.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The same node of another collection, or of its index if this one is of an index.
    pub(crate) fn of_other(&self, id: u64) -> NodeName {
        let mut name = self.0;
        name[..8].copy_from_slice(&(id | self.id() & INDEX_BIT).to_be_bytes());
        NodeName(name)
    }

    /// The collection's id, with the bit of an index.
    pub(crate) fn id(&self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("invariant: 8 bytes"))
    }

    /// The root of the index of a collection.
    pub(crate) fn of_index_root(id: u64) -> NodeName {
        NodeName::new(id | INDEX_BIT, ROOT)
    }

    /// Another node of the same collection.
    pub(crate) fn sibling(&self, node: u32) -> NodeName {
        let mut name = self.0;
        name[8..].copy_from_slice(&node.to_be_bytes());
        NodeName(name)
    }

    /// Its number.
    pub(crate) fn node(&self) -> u32 {
        u32::from_be_bytes(self.0[8..].try_into().expect("invariant: 4 bytes"))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0[8..] == ROOT.to_be_bytes()
    }

    pub(crate) fn key(&self, slot: u16) -> Key<'_> {
        Key::in_slot(&self.0, slot)
    }
}

/// The way from the root to a leaf.
#[derive(Clone)]
pub(crate) struct Path {
    pub(super) id: u64,
    /// A branch, or [`ROOT`], and the position of the child in it.
    pub(super) steps: SmallVec<[(u32, usize); 4]>,
    /// Where these branches were among the nodes of the slot, and the leaf behind them. They may have moved
    /// since, if nodes were put or removed.
    pub(super) seen_at: SmallVec<[Position; 4]>,
    pub(crate) leaf: Child,
}

impl Path {
    pub(crate) fn name(&self) -> NodeName {
        NodeName::new(self.id, self.leaf.node)
    }

    /// Where the leaf was seen.
    pub(super) fn leaf_seen_at(&self) -> Position {
        *self.seen_at.last().expect("invariant: a path ends with a leaf")
    }

    /// Whether the leaf is the first of all.
    pub(crate) fn is_first(&self) -> bool {
        self.steps.iter().all(|&(_, at)| at == 0)
    }
}

/// Ways to the leaves that hold what stands at some places, each kept for who asks for it next. They hold until
/// a leaf is put in, taken out or divided.
#[derive(Default)]
pub(crate) struct KnownPaths(SmallVec<[(SmallVec<[u8; 32]>, Path); 2]>);

impl KnownPaths {
    pub(crate) fn push(&mut self, order: &[u8], path: Path) {
        self.0.push((SmallVec::from_slice(order), path));
    }

    /// The way to the leaf for a place, which is not known from then on.
    pub(crate) fn take(&mut self, order: &[u8]) -> Option<Path> {
        let at = self.0.iter().position(|(known, _)| known[..] == *order)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Forgets the ways to a leaf, since it has other elements now.
    pub(crate) fn forget(&mut self, leaf: u32) {
        self.0.retain(|(_, path)| path.leaf.node != leaf);
    }
}

/// Where a collection stands.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) key: Key<'a>,
    /// The physical table of the key.
    pub(crate) table: u8,
    /// None: the root is the key's value. Else it is a node of the collection with this id: the index of the
    /// key's collection, which goes with it.
    pub(crate) index: Option<u64>,
    /// Where the root was seen, if it was.
    pub(crate) seen_at: Option<Position>,
}

/// The position of the first child of a branch or of the last.
pub(super) fn end_of(branch: &Branch<'_>, end: End) -> usize {
    match end {
        End::Left => 0,
        End::Right => branch.len() - 1,
    }
}

impl<'a> Place<'a> {
    /// Where the collection of a key stands. `table` is the physical table of the key.
    pub(crate) fn new(key: Key<'a>, table: u8) -> Place<'a> {
        Place { key, table, index: None, seen_at: None }
    }

    /// The index of the collection: another tree over the same elements, in another order.
    pub(crate) fn of_index(&self, slot: &SlotState) -> Place<'a> {
        Place { index: Some(self.root(slot).id() | INDEX_BIT), seen_at: None, ..*self }
    }

    /// The name of a root that is a node.
    pub(crate) fn root_name(&self) -> Option<NodeName> {
        self.index.map(|id| NodeName::new(id, ROOT))
    }

    pub(crate) fn root<'s>(&self, slot: &'s SlotState) -> Root<'s> {
        self.existing_root(slot).expect("invariant: the collection exists")
    }

    /// The root, unless the collection has gone with its last element.
    pub(crate) fn existing_root<'s>(&self, slot: &'s SlotState) -> Option<Root<'s>> {
        self.find_root(slot).map(|at| self.root_at(slot, at))
    }

    /// Where the root stands.
    pub(crate) fn find_root(&self, slot: &SlotState) -> Option<Position> {
        match (self.root_name(), self.seen_at) {
            (None, Some(hint)) => slot.find_from(self.table, self.key.bytes, hint),
            (None, None) => slot.find(self.table, &self.key),
            (Some(name), Some(hint)) => slot.find_from(node_table(self.table), &name.0, hint),
            (Some(name), None) => slot.find(node_table(self.table), &name.key(self.key.slot)),
        }
    }

    fn root_at<'s>(&self, slot: &'s SlotState, at: Position) -> Root<'s> {
        let table = if self.index.is_none() { self.table } else { node_table(self.table) };
        Root::new(slot.bytes_at(table, at).expect("invariant: a root stays in RAM"))
    }

    /// Where a node stands that a branch names.
    pub(super) fn find_node(&self, slot: &SlotState, name: &NodeName) -> Position {
        let at = slot.find(node_table(self.table), &name.key(self.key.slot));
        at.expect("invariant: a node that a branch names is there")
    }

    /// The leaf at the end of a path that was found just now.
    pub(super) fn view_found<'s>(&self, slot: &'s SlotState, path: &Path) -> View<'s> {
        slot.view_at(node_table(self.table), path.leaf_seen_at())
    }

    /// The bytes of such a leaf, if it is in RAM.
    pub(super) fn found_in_ram<'s>(&self, slot: &'s SlotState, path: &Path) -> Option<&'s [u8]> {
        slot.bytes_at(node_table(self.table), path.leaf_seen_at())
    }

    /// The bytes of the leaf at the end of a path, if it is in RAM.
    pub(super) fn leaf_in_ram<'s>(&self, slot: &'s SlotState, path: &Path) -> Option<&'s [u8]> {
        slot.bytes_at(node_table(self.table), self.find_leaf(slot, path))
    }

    /// Where the leaf at the end of a path stands.
    pub(super) fn find_leaf(&self, slot: &SlotState, path: &Path) -> Position {
        let (table, name) = (node_table(self.table), path.name());
        let at = slot.find_from(table, &name.0, path.leaf_seen_at());
        at.expect("invariant: a node that a branch names is there")
    }

    pub(crate) fn branch<'s>(&self, slot: &'s SlotState, id: u64, node: u32) -> Branch<'s> {
        if node == ROOT {
            return self.root(slot).branch();
        }
        self.branch_at(slot, self.find_node(slot, &NodeName::new(id, node)))
    }

    fn branch_at<'s>(&self, slot: &'s SlotState, at: Position) -> Branch<'s> {
        let branch = slot.bytes_at(node_table(self.table), at);
        Branch::new(branch.expect("invariant: a branch stays in RAM"))
    }

    /// The branch of a step of a path.
    fn branch_of_step<'s>(&self, slot: &'s SlotState, path: &Path, step: usize) -> Branch<'s> {
        let (node, _) = path.steps[step];
        if node == ROOT {
            return self.root(slot).branch();
        }
        self.branch_at(slot, self.find_branch(slot, path, step))
    }

    /// Where the branch of a step of a path stands, which is not the root.
    pub(super) fn find_branch(&self, slot: &SlotState, path: &Path, step: usize) -> Position {
        let (table, name) = (node_table(self.table), NodeName::new(path.id, path.steps[step].0));
        let at = slot.find_from(table, &name.0, path.seen_at[step]);
        at.expect("invariant: a node that a branch names is there")
    }

    /// The way to a leaf, taking in each branch the child that `choose` says.
    pub(crate) fn descend(
        &self,
        slot: &SlotState,
        mut choose: impl FnMut(&Branch<'_>) -> usize,
    ) -> Path {
        let root_at = self.find_root(slot).expect("invariant: the collection exists");
        let root = self.root_at(slot, root_at);
        let (id, mut branch, mut node) = (root.id(), root.branch(), ROOT);
        let (mut steps, mut seen_at) = (SmallVec::new(), smallvec![root_at]);
        for level in (0..root.height()).rev() {
            let at = choose(&branch);
            steps.push((node, at));
            let child = branch.child(at);
            let stands_at = self.find_node(slot, &NodeName::new(id, child.node));
            seen_at.push(stands_at);
            if level == 0 {
                return Path { id, steps, seen_at, leaf: child };
            }
            node = child.node;
            branch = self.branch_at(slot, stands_at);
        }
        unreachable!("a tree is at least one branch high")
    }

    /// The way to the leaf that holds what stands at `order`.
    pub(crate) fn find(&self, slot: &SlotState, order: &[u8]) -> Path {
        self.descend(slot, |branch| branch.find(order))
    }

    /// The name of the leaf to which the children lead that `choose` says: [`Place::descend`] without a look at the
    /// leaf. None: the collection is not there.
    pub(crate) fn leaf_name(
        &self,
        slot: &SlotState,
        choose: impl Fn(&Branch<'_>) -> usize,
    ) -> Option<NodeName> {
        let root = self.existing_root(slot)?;
        let (id, mut branch) = (root.id(), root.branch());
        for _ in 1..root.height() {
            let name = NodeName::new(id, branch.child(choose(&branch)).node);
            branch = self.branch_at(slot, self.find_node(slot, &name));
        }
        Some(NodeName::new(id, branch.child(choose(&branch)).node))
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

    /// The way to the first leaf or to the last.
    pub(crate) fn at_end(&self, slot: &SlotState, end: End) -> Path {
        self.descend(slot, |branch| end_of(branch, end))
    }

    /// How many elements stand in front of the leaf at the end of a path.
    pub(crate) fn elements_before(&self, slot: &SlotState, path: &Path) -> u64 {
        let steps = path.steps.iter().enumerate();
        steps
            .map(|(step, &(_, at))| self.branch_of_step(slot, path, step).elements_before(at))
            .sum()
    }

    /// The way to the leaf behind that at the end of a path. None: it is the last.
    pub(crate) fn next(&self, slot: &SlotState, path: &Path) -> Option<Path> {
        self.neighbour(slot, path, End::Right)
    }

    /// The way to the leaf in front of that at the end of a path. None: it is the first.
    pub(crate) fn previous(&self, slot: &SlotState, path: &Path) -> Option<Path> {
        self.neighbour(slot, path, End::Left)
    }

    fn neighbour(&self, slot: &SlotState, path: &Path, side: End) -> Option<Path> {
        let (mut steps, mut seen_at) = (path.steps.clone(), path.seen_at.clone());
        while let Some((node, at)) = steps.pop() {
            seen_at.truncate(steps.len() + 1);
            let branch = self.branch_of_step(slot, path, steps.len());
            let beside = match side {
                End::Left => at.checked_sub(1),
                End::Right => (at + 1 < branch.len()).then_some(at + 1),
            };
            let Some(beside) = beside else { continue };
            steps.push((node, beside));
            let mut leaf = branch.child(beside);
            let find = |node| self.find_node(slot, &NodeName::new(path.id, node));
            seen_at.push(find(leaf.node));
            while steps.len() < path.steps.len() {
                let branch = self.branch_at(slot, seen_at[steps.len()]);
                let at = if side == End::Left { branch.len() - 1 } else { 0 };
                steps.push((leaf.node, at));
                leaf = branch.child(at);
                seen_at.push(find(leaf.node));
            }
            return Some(Path { id: path.id, steps, seen_at, leaf });
        }
        None
    }

    /// The bound of the leaf behind that at the end of a path. None: it is the last.
    pub(crate) fn next_bound(&self, slot: &SlotState, path: &Path) -> Option<Vec<u8>> {
        path.steps.iter().enumerate().rev().find_map(|(step, &(_, at))| {
            let branch = self.branch_of_step(slot, path, step);
            (at + 1 < branch.len()).then(|| branch.bound(at + 1).to_vec())
        })
    }

    /// The names of all leaves in their order.
    pub(crate) fn leaves(&self, slot: &SlotState) -> Vec<NodeName> {
        self.levels(slot).pop().expect("invariant: a tree has leaves")
    }

    /// How many leaves there are. Cost: linear in the branches.
    pub(crate) fn leaf_count(&self, slot: &SlotState) -> u64 {
        let root = self.root(slot);
        let mut branches: Vec<Branch<'_>> = vec![root.branch()];
        for _ in 1..root.height() {
            let children = branches.iter().flat_map(Branch::children);
            branches = children.map(|child| self.branch(slot, root.id(), child.node)).collect();
        }
        branches.iter().map(|branch| branch.len() as u64).sum()
    }

    /// The names of all nodes but a root that is the key's value, those of the index included.
    pub(crate) fn nodes(&self, slot: &SlotState) -> Vec<NodeName> {
        let mut names = self.levels(slot).concat();
        if let Some(index) = self.existing_index(slot) {
            names.extend(index.root_name());
            names.extend(index.levels(slot).concat());
        }
        names
    }

    /// The names of all leaves, those of the index included.
    pub(crate) fn all_leaves(&self, slot: &SlotState) -> Vec<NodeName> {
        let mut names = self.leaves(slot);
        names.extend(self.existing_index(slot).iter().flat_map(|index| index.leaves(slot)));
        names
    }

    pub(crate) fn existing_index(&self, slot: &SlotState) -> Option<Place<'a>> {
        let id = self.root(slot).id() | INDEX_BIT;
        let root = NodeName::new(id, ROOT);
        let is_there = slot.view(node_table(self.table), &root.key(self.key.slot)).is_some();
        (self.index.is_none() && is_there).then_some(Place {
            index: Some(id),
            seen_at: None,
            ..*self
        })
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
