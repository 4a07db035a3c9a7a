//! Ranges of elements that are removed: leaves of which all go are cut off unread.

use std::ops::Range;

use keyspace::{DetachedTree, node_table};
use value::leaf::branch::{Branch, BranchMut, Child, PART_HEIGHT, RootParts};

use super::Tree;
use crate::collection::place::NodeName;

impl Tree<'_> {
    /// Removes the elements at some positions, which are not all; `remove` takes some out of a leaf. Leaves all
    /// of whose elements go are not looked at: upkeep frees them.
    pub(crate) fn remove_range(
        &mut self,
        mut elements: Range<u64>,
        remove: impl Fn(&mut Vec<u8>, Range<usize>),
    ) {
        let whole = self.whole_leaves(&elements);
        if !whole.is_empty() {
            elements.end -= whole.end - whole.start;
            self.cut_off(whole);
        }
        while !elements.is_empty() {
            let last = elements.end - 1;
            let (path, within) = self.place.find_nth(self.slot, last);
            let first = elements.start.max(last - within as u64);
            let within = within + 1 - (elements.end - first) as usize..within + 1;
            self.change_leaf(path, |leaf| remove(leaf, within));
            elements.end = first;
        }
    }

    /// The positions of those leaves all of whose elements have some positions.
    pub(super) fn whole_leaves(&self, elements: &Range<u64>) -> Range<u64> {
        let (path, within) = self.place.find_nth(self.slot, elements.start);
        let first = match within {
            0 => elements.start,
            within => elements.start - within as u64 + u64::from(path.leaf.elements),
        };
        let end = match elements.end == self.elements() {
            true => elements.end,
            false => elements.end - self.place.find_nth(self.slot, elements.end).1 as u64,
        };
        first..end.max(first)
    }

    /// Cuts off leaves, which have the elements at some positions, not all.
    pub(super) fn cut_off(&mut self, elements: Range<u64>) {
        let mut root = RootParts::of(self.place.root(self.slot));
        let mut cut: Vec<(Child, u8)> = Vec::new();
        let branch = std::mem::take(&mut root.branch);
        root.branch = self.cut_branch((root.id, root.height, branch), &elements, &mut cut);
        let gone = elements.end - elements.start;
        root.elements -= gone;
        let bytes = |nodes: &[(Child, u8)]| -> u64 {
            nodes.iter().map(|&(child, height)| self.leaf_bytes_below(root.id, child, height)).sum()
        };
        let before = root.leaf_bytes;
        // Whichever are fewer are gone through.
        root.leaf_bytes = match gone <= root.elements {
            true => before - bytes(&cut),
            false => {
                let kept = Branch::new(&root.branch).children();
                bytes(&kept.map(|child| (child, root.height)).collect::<Vec<_>>())
            }
        };
        let part = RootParts {
            id: root.id,
            elements: gone,
            leaf_bytes: before - root.leaf_bytes,
            next_node: 0,
            height: PART_HEIGHT,
            encoding: 0,
            extra: Vec::new(),
            branch: BranchMut::of(cut.into_iter().map(|(child, _)| (Vec::new(), child))),
        };
        let (slot, table) = (self.place.key.slot, self.place.table);
        let part = part.into_value().into_boxed_slice();
        self.tally.trees.push(DetachedTree { slot, table, root: part });
        self.lower(&mut root);
        self.put_root(root);
    }

    /// Takes the children out of a branch that have the elements at some positions in it, with their heights.
    /// Branches that have other elements, too, stay.
    pub(super) fn cut_branch(
        &mut self,
        (id, height, mut node): (u64, u8, Vec<u8>),
        elements: &Range<u64>,
        cut: &mut Vec<(Child, u8)>,
    ) -> Vec<u8> {
        let mut branch = BranchMut::new(&mut node);
        let (mut at, mut start) = (0, 0);
        while at < branch.branch().len() {
            let child = branch.branch().child(at);
            let end = start + u64::from(child.elements);
            let of_child = elements.start.max(start)..elements.end.min(end);
            if of_child == (start..end) {
                cut.push((child, height));
                branch.remove(at);
            } else {
                if !of_child.is_empty() {
                    let below = self.place.branch(self.slot, id, child.node).bytes().to_vec();
                    let within = of_child.start - start..of_child.end - start;
                    let below = self.cut_branch((id, height - 1, below), &within, cut);
                    let name = NodeName::new(id, child.node);
                    let slot = self.place.key.slot;
                    self.nodes().update(&name.key(slot), |_, bytes| *bytes = below);
                    let elements = child.elements - (within.end - within.start) as u32;
                    branch.set(at, Child { elements, ..child });
                }
                at += 1;
            }
            start = end;
        }
        node
    }

    /// Bytes of the leaves below a child of a branch that is so high.
    pub(super) fn leaf_bytes_below(&self, id: u64, child: Child, height: u8) -> u64 {
        if height > 1 {
            let below = self.place.branch(self.slot, id, child.node).children();
            return below.map(|child| self.leaf_bytes_below(id, child, height - 1)).sum();
        }
        let name = NodeName::new(id, child.node);
        let view = self.slot.view(node_table(self.place.table), &name.key(self.place.key.slot));
        view.expect("invariant: a node that a branch names is there").value_len() as u64
    }
}
