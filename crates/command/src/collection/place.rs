//! Where the nodes of a large collection stand, and the ways to its leaves.

use keyspace::{FlashRef, Key, SlotState, Stored, node_table};
use smallvec::SmallVec;
use value::leaf::branch::{Branch, Child, Root};

use crate::collection::list::End;

/// Bytes of a leaf beyond which it is divided.
pub(crate) const LEAF_BYTES_MAX: usize = 2_048;
/// Children of a branch beyond which it is divided.
pub(crate) const CHILDREN_MAX: usize = 128;
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
    pub(crate) leaf: Child,
}

impl Path {
    pub(crate) fn name(&self) -> NodeName {
        NodeName::new(self.id, self.leaf.node)
    }

    /// Whether the leaf is the first of all.
    pub(crate) fn is_first(&self) -> bool {
        self.steps.iter().all(|&(_, at)| at == 0)
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
}

impl<'a> Place<'a> {
    /// The index of the collection: another tree over the same elements, in another order.
    pub(crate) fn of_index(&self, slot: &SlotState) -> Place<'a> {
        Place { index: Some(self.root(slot).id() | INDEX_BIT), ..*self }
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
        let view = match self.root_name() {
            None => slot.view(self.table, &self.key),
            Some(name) => slot.view(node_table(self.table), &name.key(self.key.slot)),
        };
        match view?.stored {
            Stored::Hot(root) => Some(Root::new(root)),
            _ => panic!("a root stays in RAM"),
        }
    }

    pub(crate) fn branch<'s>(&self, slot: &'s SlotState, id: u64, node: u32) -> Branch<'s> {
        if node == ROOT {
            return self.root(slot).branch();
        }
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

    /// The way to the first leaf or to the last.
    pub(crate) fn at_end(&self, slot: &SlotState, end: End) -> Path {
        self.descend(slot, |branch| match end {
            End::Left => 0,
            End::Right => branch.len() - 1,
        })
    }

    /// How many elements stand in front of the leaf at the end of a path.
    pub(crate) fn elements_before(&self, slot: &SlotState, path: &Path) -> u64 {
        let steps = path.steps.iter();
        steps.map(|&(node, at)| self.branch(slot, path.id, node).elements_before(at)).sum()
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
        let mut steps = path.steps.clone();
        while let Some((node, at)) = steps.pop() {
            let branch = self.branch(slot, path.id, node);
            let beside = match side {
                End::Left => at.checked_sub(1),
                End::Right => (at + 1 < branch.len()).then_some(at + 1),
            };
            let Some(beside) = beside else { continue };
            steps.push((node, beside));
            let mut leaf = branch.child(beside);
            while steps.len() < path.steps.len() {
                let branch = self.branch(slot, path.id, leaf.node);
                let at = if side == End::Left { branch.len() - 1 } else { 0 };
                steps.push((leaf.node, at));
                leaf = branch.child(at);
            }
            return Some(Path { id: path.id, steps, leaf });
        }
        None
    }

    /// The bound of the leaf behind that at the end of a path. None: it is the last.
    pub(crate) fn next_bound(&self, slot: &SlotState, path: &Path) -> Option<Vec<u8>> {
        path.steps.iter().rev().find_map(|&(node, at)| {
            let branch = self.branch(slot, path.id, node);
            (at + 1 < branch.len()).then(|| branch.bound(at + 1).to_vec())
        })
    }

    /// The names of all leaves in their order.
    pub(crate) fn leaves(&self, slot: &SlotState) -> Vec<NodeName> {
        self.levels(slot).pop().expect("invariant: a tree has leaves")
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
        (self.index.is_none() && is_there).then_some(Place { index: Some(id), ..*self })
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
