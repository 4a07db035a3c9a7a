//! Trees that are made of one leaf, or of many, and become one again.

use keyspace::{WHOLE, node_table};
use value::Kind;
use value::leaf::Cut;
use value::leaf::branch::{Branch, BranchMut, Child, RootParts};

use super::{SINGLE_AGAIN_BYTES, Tree, in_ram};
use crate::collection::detached::DetachedNodes;
use crate::collection::form::{Form, Part};
use crate::collection::place::{CHILDREN_MAX, NodeName, ROOT};

/// Children that a branch is made with, when many are made at once.
const CHILDREN_MADE: usize = 192;

impl Tree<'_> {
    /// Makes the collection, and its index, one leaf again when it has become small and is all in RAM.
    pub(crate) fn settle(&mut self) {
        let key = self.place.key;
        let Some(root) = self.place.existing_root(self.slot) else { return };
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
        let join = self.form.join.expect("invariant: leaves of the form are joined");
        let whole = join(&leaves);
        let mut detached = DetachedNodes::of(self.place.root(self.slot));
        let at = (key.slot, self.place.table);
        assert!(detached.free_some(self.slot, at, self.now_ms, self.tally, usize::MAX));
        self.slot.take_timers(self.place.table, key.bytes, self.tally);
        self.set_timer(WHOLE, self.form.first_expiry_of(&whole));
        self.keys().update(&key, |bits, bytes| (*bits, *bytes) = (kind, whole));
    }

    /// Makes a tree of a collection in one leaf, the value of an existing key in RAM. Nothing happens if
    /// the leaf cannot be divided into so many. Nobody who watches the key is told: it holds what it held.
    pub(crate) fn grow(&mut self, id: u64, leaves_min: usize) {
        let key = self.place.key;
        let view = self.slot.view(self.place.table, &key).expect("invariant: the key exists");
        let leaf = in_ram(view.stored).expect("invariant: a value that was just changed is in RAM");
        if (self.form.count)(leaf) < leaves_min {
            return;
        }
        let encoding = Kind::from_bits(view.kind).encoding();
        // A copy would take as much once more.
        let leaf = self.keys().update_unwatched(&key, |_, bytes| std::mem::take(bytes));
        let leaf = leaf.expect("invariant: the key exists");
        let mut parts = (self.form.divide)(leaf, Cut::Evenly);
        if parts.len() >= leaves_min {
            let root = self.build(id, encoding, parts.into_iter());
            let kind = self.branch_kind();
            self.set_timer(WHOLE, 0);
            self.keys().update_unwatched(&key, |bits, bytes| (*bits, *bytes) = (kind, root));
        } else if let Some((_, leaf)) = parts.pop() {
            self.keys().update_unwatched(&key, |_, bytes| *bytes = leaf);
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
            extra: Vec::new(),
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

    /// Makes the index of the collection, of these leaves.
    pub(crate) fn put_index(&mut self, form: &'static Form, parts: impl Iterator<Item = Part>) {
        self.in_index(form, |index| {
            let id = index.place.index.expect("invariant: the place of an index");
            let root = index.build(id, 0, parts);
            let kind = index.branch_kind();
            index.put_node(id, ROOT, kind, root);
        });
    }

    /// Changes the index of the collection, the leaves of which have another form.
    pub(crate) fn in_index<R>(
        &mut self,
        form: &'static Form,
        change: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let collection = (self.place, self.form, std::mem::take(&mut self.known));
        (self.place, self.form) = (self.place.of_index(self.slot), form);
        let result = change(self);
        (self.place, self.form, self.known) = collection;
        result
    }

    /// Puts children below branches of their own, and returns those.
    pub(super) fn put_branches(
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
