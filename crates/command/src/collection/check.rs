//! A recount of large collections, for tests.

use keyspace::{FlashRef, Key, SlotState, Stored, node_table};
use value::leaf::Rows;
use value::leaf::branch::Child;

use crate::collection::place::{CHILDREN_MAX, LEAF_BYTES_MAX, NodeName, Place};

/// What there is below a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    elements: u64,
    leaf_bytes: u64,
    nodes: usize,
}

/// Compares a large collection of rows with what its branches say. Returns its nodes. `flash` gives the bytes
/// that lie at a place.
pub(crate) fn check_tree<'f>(
    slot: &SlotState,
    (table, key): (u8, &Key<'_>),
    flash: &impl Fn(FlashRef) -> &'f [u8],
) -> usize {
    let place = Place::new(*key, table);
    let root = place.root(slot);
    let branch = root.branch();
    assert!((1..=CHILDREN_MAX).contains(&branch.len()));
    let mut all = Sum::default();
    for child in branch.children() {
        let below = sum_below((slot, place, root.id()), child, root.height() - 1, flash);
        assert_eq!(below.elements, u64::from(child.elements));
        all = add(all, below);
    }
    assert_eq!((root.elements(), root.leaf_bytes()), (all.elements, all.leaf_bytes));
    all.nodes
}

fn add(one: Sum, two: Sum) -> Sum {
    Sum {
        elements: one.elements + two.elements,
        leaf_bytes: one.leaf_bytes + two.leaf_bytes,
        nodes: one.nodes + two.nodes,
    }
}

fn sum_below<'f>(
    at: (&SlotState, Place<'_>, u64),
    child: Child,
    height: u8,
    flash: &impl Fn(FlashRef) -> &'f [u8],
) -> Sum {
    let (slot, place, id) = at;
    if height > 0 {
        let branch = place.branch(slot, id, child.node);
        assert!((1..=CHILDREN_MAX).contains(&branch.len()));
        let mut all = Sum { nodes: 1, ..Sum::default() };
        for child in branch.children() {
            let below = sum_below(at, child, height - 1, flash);
            assert_eq!(below.elements, u64::from(child.elements));
            all = add(all, below);
        }
        return all;
    }
    let name = NodeName::new(id, child.node);
    let view = slot.view(node_table(place.table), &name.key(place.key.slot)).expect("a leaf");
    let leaf = match view.stored {
        Stored::Hot(leaf) | Stored::Clean(leaf, _) => leaf,
        Stored::Cold(at, _) => flash(at),
    };
    let rows = Rows::check(leaf).expect("rows");
    assert!(leaf.len() <= LEAF_BYTES_MAX || rows.len() == 1, "{} bytes", leaf.len());
    assert!(!rows.is_empty());
    Sum { elements: rows.len() as u64, leaf_bytes: leaf.len() as u64, nodes: 1 }
}
