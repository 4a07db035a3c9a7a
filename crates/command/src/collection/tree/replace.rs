//! Leaves that are put, replaced and taken out whole, wherever they are.

use value::leaf::branch::Child;

use super::Tree;
use crate::collection::form::Part;
use crate::collection::place::Path;

impl Tree<'_> {
    /// Puts a leaf behind the one at the end of a path. Other paths are none afterwards.
    pub(crate) fn insert_leaf_behind(&mut self, path: &Path, (bound, leaf): Part) {
        let elements = (self.form.count)(&leaf) as u32;
        self.add(path, i64::from(elements), leaf.len() as i64);
        let right = Child { node: self.take_node(), elements };
        self.put_node(path.id, right.node, self.form.kind.bits(), leaf);
        self.insert_child(path.id, &path.steps, path.leaf, &bound, right);
    }

    /// Puts another leaf in the place of the one at the end of a path, which may be on flash. Returns the way to it.
    pub(crate) fn replace_leaf(&mut self, mut path: Path, leaf: Vec<u8>) -> Path {
        let before = self.leaf_bytes_below(path.id, path.leaf, 1) as i64;
        let elements = (self.form.count)(&leaf) as u32;
        let added = i64::from(elements) - i64::from(path.leaf.elements);
        self.add(&path, added, leaf.len() as i64 - before);
        self.put_node(path.id, path.leaf.node, self.form.kind.bits(), leaf);
        path.leaf.elements = elements;
        path
    }

    /// Takes out the leaf at the end of a path, which may be on flash. It is not the only one.
    pub(crate) fn drop_leaf(&mut self, path: &Path) {
        let bytes = self.leaf_bytes_below(path.id, path.leaf, 1) as i64;
        self.add(path, -i64::from(path.leaf.elements), -bytes);
        self.remove_node(path.id, path.leaf.node);
        self.remove_child(path.id, &path.steps);
    }

    /// Sets what the type keeps in the root besides.
    pub(crate) fn set_extra(&mut self, extra: &[u8]) {
        self.with_root(|root| root.set_extra(extra));
    }
}
