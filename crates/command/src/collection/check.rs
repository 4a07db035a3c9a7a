//! A recount of large collections, for tests and fuzz targets.

use keyspace::{
    DB_COUNT, FlashRef, Key, ScanPosition, SlotState, Stored, Timer, WHOLE, node_table,
};
use value::Kind;
use value::leaf::Rows;
use value::leaf::branch::Child;
use value::leaf::fields::Fields;

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

/// Compares the timers of a slot with the leaves of its hashes.
pub(crate) fn check_timers<'f>(
    slot: &SlotState,
    slot_number: u16,
    flash: &impl Fn(FlashRef) -> &'f [u8],
) {
    let mut expected: Vec<Timer> = Vec::new();
    for table in 0..DB_COUNT as u8 {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        slot.scan(table, ScanPosition::default(), |view| {
            if Kind::from_bits(view.kind).is_hash() {
                keys.push(view.key.into());
            }
            false
        });
        for name in keys {
            let key = Key::in_slot(&name, slot_number);
            let kind = Kind::from_bits(slot.view(table, &key).expect("it was scanned").kind);
            let place = Place::new(key, table);
            let leaves = match kind.is_tree() {
                false => vec![(WHOLE, table, name.clone())],
                true => place
                    .leaves(slot)
                    .iter()
                    .map(|leaf| {
                        (leaf.node(), node_table(table), leaf.key(slot_number).bytes.into())
                    })
                    .collect(),
            };
            for (leaf, leaf_table, leaf_name) in leaves {
                let view = slot.view(leaf_table, &Key::in_slot(&leaf_name, slot_number));
                let bytes = match view.expect("a leaf").stored {
                    Stored::Hot(leaf) | Stored::Clean(leaf, _) => leaf,
                    Stored::Cold(at, _) => flash(at),
                };
                let at_ms = Fields::new(bytes).first_expiry();
                if at_ms > 0 {
                    expected.push(Timer { at_ms, table, key: name.clone(), leaf });
                }
            }
        }
    }
    let mut timers = slot.due_timers(u64::MAX, usize::MAX);
    timers.sort();
    expected.sort();
    assert_eq!(timers, expected, "timers of slot {slot_number}");
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
