//! How a tree grows: leaves and branches that are divided, leaves that are put at an end.

use value::leaf::Cut;
use value::leaf::branch::{Branch, BranchMut, Child, RootParts};

use super::Tree;
use crate::collection::list::End;
use crate::collection::place::{CHILDREN_MAX, NodeName, Path, ROOT};

impl Tree<'_> {
    /// Puts a leaf in front of all others, or behind them, in as many parts as it takes. For leaves that are
    /// ordered by position.
    pub(crate) fn push_leaf(&mut self, end: End, leaf: Vec<u8>) {
        let cut = if end == End::Left { Cut::Front } else { Cut::Back };
        let mut parts = (self.form.divide)(leaf, cut);
        if end == End::Left {
            parts.reverse();
        }
        for (bound, part) in parts {
            let path = self.place.at_end(self.slot, end);
            let elements = (self.form.count)(&part) as u32;
            let new = Child { node: self.take_node(), elements };
            self.add(&path, i64::from(elements), part.len() as i64);
            self.put_node(path.id, new.node, self.form.kind.bits(), part);
            let (left, right) = match end {
                End::Left => (new, path.leaf),
                End::Right => (path.leaf, new),
            };
            self.insert_child(path.id, &path.steps, left, &bound, right);
        }
    }

    /// Divides a leaf until no part is too large or can be divided.
    pub(super) fn divide_leaf(&mut self, path: Path) {
        let leaf = self.leaf_in_ram(&path).expect("invariant: it was changed");
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
    pub(super) fn cut(&self, path: &Path) -> Cut {
        let is_last = self.place.next_bound(self.slot, path).is_none();
        match (path.is_first(), is_last) {
            (false, true) => Cut::Back,
            (true, false) => Cut::Front,
            _ => Cut::Evenly,
        }
    }

    /// Lets the child at the end of a path be `left`, and puts `right` behind it.
    pub(super) fn insert_child(
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

    pub(super) fn insert_below_root(&mut self, at: usize, left: Child, bound: &[u8], right: Child) {
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
    pub(super) fn raise(&mut self, root: RootParts, bound: Vec<u8>, right: Vec<u8>) {
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

    pub(super) fn put_root(&mut self, root: RootParts) {
        let key = self.place.key;
        let value = root.into_value();
        let put = match self.place.root_name() {
            None => self.keys().update(&key, |_, bytes| *bytes = value),
            Some(name) => self.nodes().update(&name.key(key.slot), |_, bytes| *bytes = value),
        };
        put.expect("invariant: a root is in RAM");
    }
}
