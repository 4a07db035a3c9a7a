//! Branches and roots of large collections under their own operations: they have what a vector has, and find what a
//! pass over all bounds finds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use value::leaf::branch::{Branch, BranchMut, Child, Root, RootMut, RootParts};

type Model = Vec<(Vec<u8>, Child)>;

fuzz_target!(|input: &[u8]| {
    let Some((&extra, mut bytes)) = input.split_first() else { return };
    let mut node = BranchMut::of([(Vec::new(), Child { node: 0, elements: 1 })]);
    let mut model: Model = vec![(Vec::new(), Child { node: 0, elements: 1 })];
    while let Some((&[operation, number, len], rest)) = bytes.split_first_chunk::<3>() {
        let (bound, rest) = rest.split_at(usize::from(len % 16).min(rest.len()));
        bytes = rest;
        change(&mut node, &mut model, (operation, number), bound);
        compare(Branch::new(&node), &model, bound);
    }
    root(node, &model, usize::from(extra));
});

fn change(node: &mut Vec<u8>, model: &mut Model, (operation, number): (u8, u8), bound: &[u8]) {
    let mut branch = BranchMut::new(node);
    let at = usize::from(number) % model.len();
    let child = Child { node: u32::from(number) << 20, elements: u32::from(operation) };
    match operation % 8 {
        0..4 => {
            // Bounds stand in their order, all different.
            let at = model.iter().skip(1).take_while(|(other, _)| &other[..] < bound).count() + 1;
            if bound.is_empty() || model.get(at).is_some_and(|(other, _)| other == bound) {
                return;
            }
            branch.insert(at, bound, child);
            model.insert(at, (bound.to_vec(), child));
        }
        4 => {
            branch.set(at, child);
            model[at].1 = child;
        }
        5 => {
            branch.add(at, i64::from(number));
            model[at].1.elements += u32::from(number);
        }
        6 if at > 0 => {
            branch.remove(at);
            model.remove(at);
        }
        7 if at > 0 => {
            let (bound, right) = branch.split_off(at);
            let behind = model.split_off(at);
            assert_eq!(bound, behind[0].0);
            compare(Branch::new(&right), &behind, &bound);
        }
        _ => {}
    }
}

fn compare(branch: Branch<'_>, model: &Model, order: &[u8]) {
    assert_eq!(branch.len(), model.len());
    for (at, (bound, child)) in model.iter().enumerate() {
        assert_eq!((branch.bound(at), branch.child(at)), (&bound[..], *child));
    }
    let orders = model.iter().map(|(bound, _)| &bound[..]).chain([order, b"", &[255; 20]]);
    for order in orders {
        let expected = model.iter().skip(1).take_while(|(bound, _)| &bound[..] <= order).count();
        assert_eq!(branch.find(order), expected);
    }
    let sum: u64 = model.iter().map(|(_, child)| u64::from(child.elements)).sum();
    assert_eq!(branch.elements(), sum);
    assert_eq!(branch.find_nth(sum), None);
    if let Some(last) = sum.checked_sub(1) {
        let (at, within) = branch.find_nth(last).expect("an element");
        assert_eq!(branch.elements_before(at) + within, last);
    }
}

fn root(branch: Vec<u8>, model: &Model, extra: usize) {
    let elements = model.iter().map(|(_, child)| u64::from(child.elements)).sum();
    let parts = RootParts {
        id: 7,
        elements,
        leaf_bytes: 99,
        next_node: 5,
        height: 1,
        encoding: 2,
        extra: vec![3; extra],
        branch,
    };
    let mut value = parts.clone().into_value();
    assert_eq!(RootParts::of(Root::new(&value)), parts);
    RootMut::new(&mut value).add(0, 2, 10);
    let root = Root::new(&value);
    assert_eq!((root.elements(), root.leaf_bytes()), (elements + 2, 109));
    assert_eq!(root.branch().elements(), elements + 2);
    assert_eq!(root.extra().len(), extra);
}
