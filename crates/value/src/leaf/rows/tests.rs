use proptest::prelude::*;

use super::*;

const SHAPES: [Shape; 7] = [
    PART_ALONE,
    Shape { fingerprints: true, ..PART_ALONE },
    Shape { numbers: true, ..PART_ALONE },
    Shape { parts: 2, fingerprints: true, ..Shape::NOTHING },
    Shape { parts: 2, fingerprints: true, numbers: true, narrow: false },
    Shape { parts: 1, fingerprints: true, numbers: true, narrow: true },
    Shape { parts: 2, fingerprints: false, numbers: true, narrow: true },
];

type Model = Vec<(Vec<u8>, Vec<u8>, u64)>;

fn fingerprint(part: &[u8]) -> u8 {
    part.iter().fold(7, |sum: u8, &byte| sum.wrapping_mul(31) ^ byte) % 5
}

fn part() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![6 => 0..20usize, 1 => 250..260usize, 1 => 1000..1001usize];
    (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

#[derive(Clone, Debug)]
enum Change {
    Insert(u16, Vec<u8>, Vec<u8>, u64),
    InsertAll(u16, Vec<Vec<u8>>),
    Remove(u16, u16),
    Retain(usize),
    SetSecond(u16, Vec<u8>),
    SetFirst(u16, Vec<u8>),
    SetNumber(u16, u64),
    SplitAndAppend(u16),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (any::<u16>(), part(), part(), any::<u64>())
            .prop_map(|(at, one, two, number)| Change::Insert(at, one, two, number)),
        2 => (any::<u16>(), prop::collection::vec(part(), 0..5))
            .prop_map(|(at, parts)| Change::InsertAll(at, parts)),
        2 => (any::<u16>(), 0..4u16).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (2..5usize).prop_map(Change::Retain),
        2 => (any::<u16>(), part()).prop_map(|(at, part)| Change::SetSecond(at, part)),
        2 => (any::<u16>(), part()).prop_map(|(at, part)| Change::SetFirst(at, part)),
        1 => (any::<u16>(), any::<u64>()).prop_map(|(at, number)| Change::SetNumber(at, number)),
        1 => any::<u16>().prop_map(Change::SplitAndAppend),
    ]
}

fn apply(change: Change, bytes: &mut Vec<u8>, model: &mut Model) {
    let mut leaf = RowsMut::new(bytes);
    let shape = leaf.rows().shape();
    let index = |at: u16| usize::from(at) % model.len().max(1);
    match change {
        Change::Insert(at, one, two, number) => {
            let at = usize::from(at) % (model.len() + 1);
            let parts: &[&[u8]] = if shape.parts == 1 { &[&one] } else { &[&one, &two] };
            leaf.insert(at, fingerprint(&one), number, parts);
            let two = if shape.parts == 2 { two } else { Vec::new() };
            model.insert(at, (one, two, if shape.numbers { number } else { 0 }));
        }
        Change::Remove(at, count) => {
            let from = index(at);
            let to = (from + usize::from(count)).min(model.len());
            leaf.remove(from.min(to)..to);
            model.drain(from.min(to)..to);
        }
        Change::InsertAll(at, parts) if shape == PART_ALONE => {
            let at = usize::from(at) % (model.len() + 1);
            leaf.insert_all(at, parts.iter().map(Vec::as_slice));
            model.splice(at..at, parts.into_iter().map(|part| (part, Vec::new(), 0)));
        }
        Change::Retain(modulus) if shape == PART_ALONE => {
            let keeps = |part: &[u8]| !part.len().is_multiple_of(modulus);
            leaf.retain(keeps);
            model.retain(|row| keeps(&row.0));
        }
        Change::SetSecond(at, part) if shape.parts == 2 && !model.is_empty() => {
            leaf.set_second(index(at), &part);
            let at = index(at);
            model[at].1 = part;
        }
        Change::SetFirst(at, part) if !shape.fingerprints && !model.is_empty() => {
            leaf.set_first(index(at), &part);
            let at = index(at);
            model[at].0 = part;
        }
        Change::SetNumber(at, number) if shape.numbers && !model.is_empty() => {
            leaf.set_number(index(at), number);
            let at = index(at);
            model[at].2 = number;
        }
        Change::SplitAndAppend(at) if at % 2 == 0 => {
            let wanted = |row: usize| (usize::from(at) >> (row % 16)) & 1 == 0;
            *leaf.bytes = leaf.rows().select(wanted);
            let mut row = 0;
            model.retain(|_| {
                row += 1;
                wanted(row - 1)
            });
        }
        Change::SplitAndAppend(at) => {
            let whole = leaf.bytes.clone();
            let right = leaf.split_off(index(at).min(model.len()));
            let empty = shape.empty();
            let parts = [leaf.rows(), Rows::new(&right), Rows::new(&empty)].into_iter();
            assert_eq!(
                Rows::concat(parts).map(|leaf| leaf[1..].to_vec()),
                Some(whole[1..].to_vec())
            );
            assert_eq!(Rows::new(&right).len(), model.len() - index(at).min(model.len()));
            leaf.append(Rows::new(&right));
        }
        _ => {}
    }
}

fn assert_same(bytes: &[u8], model: &Model) {
    let rows = Rows::check(bytes).expect("a leaf");
    let found: Model =
        rows.iter().map(|row| (row.first.into(), row.second.into(), row.number)).collect();
    assert_eq!(&found, model);
    let shape = rows.shape();
    for (index, (first, second, number)) in model.iter().enumerate() {
        assert_eq!(rows.first(index), first);
        assert_eq!(rows.number(index), *number);
        assert_eq!(rows.row(index).second, second);
        if shape.fingerprints {
            let expected = model.iter().position(|row| row.0 == *first);
            assert_eq!(rows.find(fingerprint(first), first), expected);
            if shape.parts == 2 {
                let (row, place) = rows.find_with_second(fingerprint(first), first).expect("a row");
                assert_eq!((Some(row), &bytes[place]), (expected, &model[row].1[..]));
            }
        }
    }
    let size: usize = model.iter().map(|row| row_size(shape, row)).sum();
    assert_eq!(bytes.len(), HEAD_BYTES + size);
}

fn row_size(shape: Shape, (one, two, _): &(Vec<u8>, Vec<u8>, u64)) -> usize {
    if shape.parts == 1 { shape.row_bytes(&[one]) } else { shape.row_bytes(&[one, two]) }
}

#[test]
fn sums_are_those_of_all_lengths() {
    for count in (0..40).chain([1_023, 1_024, 1_025, 3_000]) {
        let most = vec![u8::MAX; count];
        assert_eq!(sum(&most), count * 255);
        let lengths: Vec<u8> = (0..count).map(|at| (at * 7) as u8).collect();
        assert_eq!(sum(&lengths), lengths.iter().map(|&len| usize::from(len)).sum());
    }
}

proptest! {
    #[test]
    fn rows_do_what_a_vector_does(
        shape in 0..SHAPES.len(),
        changes in prop::collection::vec(change(), 1..60),
    ) {
        let mut bytes = SHAPES[shape].empty().to_vec();
        let mut model = Model::new();
        for change in changes {
            apply(change, &mut bytes, &mut model);
            assert_same(&bytes, &model);
        }
    }

    #[test]
    fn a_leaf_is_built_as_it_is_pushed(
        shape in 0..SHAPES.len(),
        rows in prop::collection::vec((part(), part(), any::<u64>()), 0..30),
    ) {
        let shape = SHAPES[shape];
        let (mut pushed, mut builder) = (shape.empty().to_vec(), RowsBuilder::new(shape));
        for (one, two, number) in &rows {
            let parts: &[&[u8]] = if shape.parts == 1 { &[one] } else { &[one, two] };
            RowsMut::new(&mut pushed).push(fingerprint(one), *number, parts);
            builder.push(fingerprint(one), *number, parts);
        }
        prop_assert_eq!(builder.into_leaf(), pushed);
    }

    #[test]
    fn any_bytes_are_a_leaf_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(rows) = Rows::check(&bytes) {
            for (index, row) in rows.iter().enumerate() {
                prop_assert_eq!(rows.first(index), row.first);
                prop_assert_eq!(rows.number(index), row.number);
            }
        }
    }

    #[test]
    fn a_leaf_cut_short_or_with_something_behind_it_is_an_error(
        parts in prop::collection::vec(part(), 1..20), cut in any::<u16>(),
    ) {
        let mut bytes = SHAPES[0].empty().to_vec();
        parts.iter().for_each(|part| RowsMut::new(&mut bytes).push(0, 0, &[part]));
        let cut = usize::from(cut) % bytes.len();
        prop_assert!(Rows::check(&bytes[..cut]).is_err());
        bytes.push(0);
        prop_assert!(Rows::check(&bytes).is_err());
    }
}

#[test]
fn a_row_takes_as_few_bytes_as_promised() {
    let element = [b'e'; 16];
    let mut list = SHAPES[0].empty().to_vec();
    for _ in 0..100 {
        RowsMut::new(&mut list).push(0, 0, &[&element]);
    }
    assert_eq!(list.len(), HEAD_BYTES + 100 * 17);
}
