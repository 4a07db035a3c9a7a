//! Long elements, each of which gets a leaf of its own at once. A leaf that they were put in would be divided
//! behind that, for which they and their long neighbours are copied again and again: eight times an element of
//! 3 MB was resident while it was set.

use value::leaf::Split;
use value::leaf::branch::Child;

use super::Tree;
use crate::collection::place::{KnownPaths, Path};

/// An element of so many bytes is long, and so is a leaf. Unit tests come to it with elements of 3 KB.
pub(crate) const LONG_BYTES: usize = if cfg!(test) { 2 << 10 } else { 64 << 10 };

impl Tree<'_> {
    /// Puts a leaf beside the one at the end of a path, which is in RAM, or between two parts of it: `split` says where.
    /// Other paths are none afterwards.
    pub(crate) fn put_apart(&mut self, path: Path, split: Split, new: Vec<u8>) {
        match split {
            Split::Front(bound) => self.insert_leaf_in_front(&path, &bound, new),
            Split::Behind(bound) => self.insert_leaf_behind(&path, (bound, new)),
            Split::Between { left, bound, right, right_bound } => {
                let path = self.replace_leaf(path, left);
                let elements = u64::from(path.leaf.elements);
                let last = self.place.elements_before(self.slot, &path) + elements - 1;
                self.insert_leaf_behind(&path, (right_bound, right));
                // The branch may have been divided.
                let path = self.place.find_nth(self.slot, last).0;
                self.insert_leaf_behind(&path, (bound, new));
            }
        }
        self.place.seen_at = None;
        self.known = KnownPaths::default();
    }

    /// Puts a leaf in front of the one at the end of a path, which begins at `bound` from then on.
    fn insert_leaf_in_front(&mut self, path: &Path, bound: &[u8], leaf: Vec<u8>) {
        let elements = (self.form.count)(&leaf) as u32;
        self.add(path, i64::from(elements), leaf.len() as i64);
        let left = Child { node: self.take_node(), elements };
        self.put_node(path.id, left.node, self.form.kind.bits(), leaf);
        self.insert_child(path.id, &path.steps, left, bound, path.leaf);
    }
}
