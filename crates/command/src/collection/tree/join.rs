//! How a tree shrinks: leaves and branches that are taken out, leaves that are joined.

use value::leaf::branch::{Branch, BranchMut, Child, RootParts, add_in_place};

use super::{JOINED_BYTES_MAX, Tree};
use crate::collection::place::{LEAF_BYTES_MAX, NodeName, Path, ROOT};

impl Tree<'_> {
    /// Takes out an empty leaf, and the branches that it leaves empty. The key, or the index, goes with the
    /// last.
    pub(super) fn remove_leaf(&mut self, path: &Path) {
        let bytes = self.leaf_in_ram(path).map_or(0, <[u8]>::len);
        self.remove_node(path.id, path.leaf.node);
        self.add_leaf_bytes(-(bytes as i64));
        self.remove_child(path.id, &path.steps);
    }

    pub(super) fn remove_child(&mut self, id: u64, steps: &[(u32, usize)]) {
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

    pub(super) fn remove_below_root(&mut self, at: usize) {
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
    pub(super) fn lower(&mut self, root: &mut RootParts) {
        while root.height > 1 && Branch::new(&root.branch).len() == 1 {
            let child = Branch::new(&root.branch).child(0);
            root.branch = self.place.branch(self.slot, root.id, child.node).bytes().to_vec();
            root.height -= 1;
            self.remove_node(root.id, child.node);
        }
    }

    /// Joins a leaf that has become small with a neighbour below the same branch, if that is in RAM and
    /// both together are no large leaf.
    pub(super) fn join_leaf(&mut self, path: &Path) {
        if self.form.join.is_none() {
            return;
        }
        let &(node, at) = path.steps.last().expect("invariant: a path has a step");
        let branch = self.place.branch(self.slot, path.id, node);
        let neighbours = [at.checked_sub(1), (at + 1 < branch.len()).then_some(at + 1)];
        let own = self.leaf_in_ram(path).map_or(usize::MAX, <[u8]>::len);
        let fitting = neighbours.into_iter().flatten().find(|&other| {
            let other = self.node_in_ram(path.id, branch.child(other).node);
            other.is_some_and(|leaf| leaf.len().saturating_add(own) <= JOINED_BYTES_MAX)
        });
        let Some(other) = fitting else { return };
        let (left_at, right_at) = (at.min(other), at.max(other));
        let (left, right) = (branch.child(left_at), branch.child(right_at));
        self.join(path, (left_at, left), right);
    }

    pub(super) fn join(&mut self, path: &Path, (left_at, left): (usize, Child), right: Child) {
        let leaf = |node| self.node_in_ram(path.id, node).expect("invariant: both are in RAM");
        let (of_left, of_right) = (leaf(left.node), leaf(right.node));
        let before = (of_left.len() + of_right.len()) as i64;
        let join = self.form.join.expect("invariant: leaves of the form are joined");
        let joined = join(&[of_left, of_right]);
        if joined.len() > LEAF_BYTES_MAX {
            // Scores take as many bytes in all rows of a leaf as the widest needs.
            return;
        }
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
    pub(super) fn move_elements(&mut self, id: u64, node: u32, at: usize, elements: i64) {
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
}
