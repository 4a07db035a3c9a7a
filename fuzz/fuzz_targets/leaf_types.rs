//! Leaves of lists, sets, hashes with fields that expire, sorted sets and groups of streams: bytes that may be one can
//! be read and changed, and one that is changed by its own operations has what a collection of Rust has.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use value::leaf::elements::{Elements, ElementsMut};
use value::leaf::fields::{Fields, FieldsMut};
use value::leaf::members::{Members, MembersMut};
use value::leaf::scored::{Scored, ScoredMut};
use value::leaf::stream_rows;
use value::leaf::{Cut, Rows, RowsMut, divide_by_hash, divide_by_position, elements, fields};
use value::leaf::{members, scored};

fuzz_target!(|input: &[u8]| {
    stdx::fix_hash_seed(1);
    let Some((&choice, bytes)) = input.split_first() else { return };
    match choice % 8 {
        0..3 => anything(bytes),
        3 => list(bytes),
        4 => set(bytes),
        5 => hash(bytes),
        6 => sorted_set(bytes),
        _ => group_rows(bytes),
    }
});

/// Bytes that may be a leaf.
fn anything(bytes: &[u8]) {
    if let Ok(list) = Elements::check(bytes) {
        let all: Vec<&[u8]> = list.iter().collect();
        assert!(list.iter_back_to(0).eq(all.iter().rev().copied()));
        divided(bytes, divide_by_position(bytes, 64, Cut::Evenly));
        divided(bytes, divide_by_position(bytes, 64, Cut::Front));
        divided(bytes, divide_by_position(bytes, 64, Cut::Back));
        let mut changed = bytes.to_vec();
        ElementsMut::new(&mut changed).retain(|element| element.len() % 2 == 0);
        let even = all.iter().copied().filter(|element| element.len() % 2 == 0);
        assert!(Elements::check(&changed).expect("a list").iter().eq(even));
    }
    if let Ok(set) = Members::check(bytes) {
        for member in set.iter() {
            let _ = set.contains(member);
        }
        if let Some((left, right, _)) = divide_by_hash(bytes) {
            let (left, right) = (Members::check(&left), Members::check(&right));
            assert_eq!(left.expect("a set").len() + right.expect("a set").len(), set.len());
        }
    }
    if let Ok(hash) = Fields::check(bytes) {
        assert_eq!(hash.iter_with_expiry().count(), hash.len());
        let mut changed = bytes.to_vec();
        let removed = FieldsMut::at_time(&mut changed, u64::MAX).remove_expired();
        assert_eq!(Fields::check(&changed).expect("a hash").len() + removed, hash.len());
    }
    if let Ok(set) = Scored::check(bytes) {
        for (rank, (member, score)) in set.iter().enumerate() {
            assert_eq!(set.at(rank).0, member);
            assert!(set.ranks_below(score, true) > rank && set.ranks_below(score, false) <= rank);
            assert_eq!(set.rank_of_place(score, member), rank);
        }
        divided(bytes, scored::divide_in_order(bytes, 64, Cut::Evenly));
    }
}

/// The parts have all rows, in their order.
fn divided(leaf: &[u8], parts: Vec<(Vec<u8>, Vec<u8>)>) {
    let parts = parts.iter().map(|(_, part)| Rows::check(part).expect("a leaf"));
    let rows = Rows::new(leaf);
    let count: usize = parts.clone().map(|part| part.len()).sum();
    assert_eq!(count, rows.len());
    assert!(parts.flat_map(|part| part.iter()).eq(rows.iter()));
}

/// Operations: a byte for which, one for where, one for how long the text is, and the text.
fn operations(mut bytes: &[u8]) -> impl Iterator<Item = (u8, u8, Vec<u8>)> {
    std::iter::from_fn(move || {
        let (&[operation, at, len], rest) = bytes.split_first_chunk::<3>()?;
        let (text, rest) = rest.split_at(usize::from(len % 8).min(rest.len()));
        bytes = rest;
        // Some are so long that a byte does not tell their length.
        let text = if len >= 250 { text.repeat(200) } else { text.to_vec() };
        Some((operation, at, text))
    })
}

fn list(bytes: &[u8]) {
    let (mut leaf, mut model) = (elements::SHAPE.empty().to_vec(), Vec::<Vec<u8>>::new());
    for (operation, at, text) in operations(bytes) {
        let mut list = ElementsMut::new(&mut leaf);
        let at = usize::from(at) % (model.len() + 1);
        match operation % 4 {
            0 | 1 => {
                list.insert(at, [&text[..], b"x"].into_iter());
                model.splice(at..at, [text, b"x".to_vec()]);
            }
            2 if at < model.len() => {
                list.set(at, &text);
                model[at] = text;
            }
            _ => {
                let end = (at + text.len()).min(model.len());
                list.remove(at..end);
                model.drain(at..end);
            }
        }
        let list = Elements::check(&leaf).expect("a list");
        assert!(list.iter().eq(model.iter().map(Vec::as_slice)));
    }
}

fn set(bytes: &[u8]) {
    let (mut leaf, mut model) = (members::SHAPE.empty().to_vec(), Vec::<Vec<u8>>::new());
    for (operation, _, text) in operations(bytes) {
        let mut set = MembersMut::new(&mut leaf);
        let at = model.iter().position(|member| *member == text);
        if operation % 3 > 0 {
            assert_eq!(set.add(&text), at.is_none());
            model.extend(at.is_none().then_some(text));
        } else {
            assert_eq!(set.remove(&text), at.is_some());
            at.map(|at| model.remove(at));
        }
        let set = Members::check(&leaf).expect("a set");
        assert!(set.iter().eq(model.iter().map(Vec::as_slice)));
        assert!(model.iter().all(|member| set.contains(member)));
    }
}

fn hash(bytes: &[u8]) {
    let (mut leaf, mut now_ms) = (fields::SHAPE.empty().to_vec(), 1u64);
    let mut model = BTreeMap::<Vec<u8>, (Vec<u8>, u64)>::new();
    for (operation, at, text) in operations(bytes) {
        let mut hash = FieldsMut::at_time(&mut leaf, now_ms);
        let field = text[..text.len().min(1)].to_vec();
        let live = model.get(&field).filter(|(_, at_ms)| *at_ms == 0 || *at_ms > now_ms).cloned();
        match operation % 6 {
            0 => {
                assert_eq!(hash.set(&field, &text), live.is_none());
                model.insert(field, (text, 0));
            }
            1 => {
                assert_eq!(hash.set_value(&field, &text), live.is_none());
                model.insert(field, (text, live.map_or(0, |(_, at_ms)| at_ms)));
            }
            2 => {
                let at_ms = if at == 0 { 0 } else { now_ms + u64::from(at) };
                hash.set_expiry(&field, at_ms);
                live.map(|(value, _)| model.insert(field, (value, at_ms)));
            }
            3 => {
                assert_eq!(hash.remove(&field), live.is_some());
                if live.is_some() {
                    model.remove(&field);
                }
            }
            4 => {
                let before = model.len();
                model.retain(|_, (_, at_ms)| *at_ms == 0 || *at_ms > now_ms);
                assert_eq!(hash.remove_expired(), before - model.len());
            }
            _ => now_ms += u64::from(at),
        }
        Fields::check(&leaf).expect("a hash");
        let hash = Fields::at_time(&leaf, now_ms);
        let mut found: Vec<(Vec<u8>, Vec<u8>, u64)> = hash
            .iter_with_expiry()
            .map(|(field, value, at_ms)| (field.to_vec(), value.to_vec(), at_ms))
            .collect();
        found.sort();
        let live = model.iter().filter(|(_, (_, at_ms))| *at_ms == 0 || *at_ms > now_ms);
        let expected: Vec<(Vec<u8>, Vec<u8>, u64)> =
            live.map(|(field, (value, at_ms))| (field.clone(), value.clone(), *at_ms)).collect();
        assert_eq!(found, expected);
        assert_eq!(hash.live_len(), expected.len());
        for (field, value, at_ms) in &expected {
            assert_eq!(hash.get(field), Some(&value[..]));
            assert_eq!(hash.expiry(field), Some(*at_ms));
        }
    }
}

fn sorted_set(bytes: &[u8]) {
    const SCORES: [f64; 9] =
        [0.0, -0.0, 1.0, -1.0, 1.5, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY];
    let (mut leaf, mut model) = (scored::SHAPE.empty().to_vec(), BTreeMap::<Vec<u8>, f64>::new());
    for (operation, at, text) in operations(bytes) {
        let mut set = ScoredMut::new(&mut leaf);
        let score = SCORES.get(usize::from(at)).copied().unwrap_or(f64::from(at) - 100.0);
        match (operation % 4, model.contains_key(&text)) {
            (0 | 1, false) => {
                set.insert(&text, score);
                model.insert(text, score);
            }
            (0 | 1, true) => {
                set.set_score(&text, score);
                model.insert(text, score);
            }
            (2, is_there) => {
                assert_eq!(set.remove(&text), is_there);
                model.remove(&text);
            }
            _ => {
                let from = usize::from(at) % (model.len() + 1);
                let to = (from + 2).min(model.len());
                let gone: Vec<Vec<u8>> =
                    (from..to).map(|rank| set.scored().at(rank).0.to_vec()).collect();
                set.remove_ranks(from..to);
                model.retain(|member, _| !gone.contains(member));
            }
        }
        let set = Scored::check(&leaf).expect("a sorted set");
        let mut expected: Vec<(f64, &[u8])> =
            model.iter().map(|(member, score)| (*score, &member[..])).collect();
        expected.sort_by(|one, two| scored::compare(*one, *two));
        assert!(set.iter().eq(expected.iter().map(|(score, member)| (*member, *score))));
        for (rank, (score, member)) in expected.iter().enumerate() {
            assert_eq!(set.find(member), Some((rank, *score)));
        }
    }
}

fn group_rows(bytes: &[u8]) {
    let mut leaf = stream_rows::SHAPE.empty().to_vec();
    let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for (operation, at, text) in operations(bytes) {
        let key = match operation % 4 {
            0 => stream_rows::group_key(&text),
            1 => stream_rows::consumer_key(u32::from(at), &text),
            2 => stream_rows::consumer_name_key(u32::from(at), u32::from(operation)),
            _ => {
                let id = value::StreamId::new(u64::from(at), text.len() as u64);
                stream_rows::owned_key(3, u32::from(operation), id)
            }
        };
        let _ = stream_rows::name_of_key(&key);
        let value = (operation < 200).then_some(&text[..]);
        stream_rows::set(&mut RowsMut::new(&mut leaf), &key, value);
        match value {
            Some(value) => drop(model.insert(key, value.to_vec())),
            None => drop(model.remove(&key)),
        }
        let rows = Rows::check(&leaf).expect("rows");
        let found = rows.iter().map(|row| (row.first, row.second));
        assert!(found.eq(model.iter().map(|(key, value)| (&key[..], &value[..]))));
        for (key, value) in &model {
            assert_eq!(stream_rows::find(&rows, key), Some(&value[..]));
        }
    }
    let parts = stream_rows::divide(leaf.clone(), 100);
    divided(&leaf, parts);
}
