//! Dividing leaves that have become too large.

use crate::leaf::element_hash;
use crate::leaf::rows::Rows;

/// Which parts of a divided leaf should have room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All alike.
    Evenly,
    /// The first: more is to come in front of it.
    Front,
    /// The last: more is to come behind it.
    Back,
}

/// Halves a leaf with `halve` until no part has more than `bytes_max`, or it gives none: the left half,
/// the right half and its bound. Each part comes behind its bound; that of the first is empty.
pub fn halves(
    leaf: Vec<u8>,
    bytes_max: usize,
    halve: impl Fn(&[u8]) -> Option<(Vec<u8>, Vec<u8>, Vec<u8>)>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let mut rest = vec![(Vec::new(), leaf)];
    while let Some((bound, leaf)) = rest.pop() {
        let divided = if leaf.len() > bytes_max { halve(&leaf) } else { None };
        match divided {
            None => parts.push((bound, leaf)),
            Some((left, right, middle)) => {
                rest.push((middle, right));
                rest.push((bound, left));
            }
        }
    }
    parts
}

/// Divides a leaf of rows that have no order but their own into parts of at most `bytes_max`, or of one row.
/// Bounds are empty. Cost: two passes.
pub fn divide_by_position(leaf: &[u8], bytes_max: usize, cut: Cut) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = Rows::new(leaf);
    let shape = rows.shape();
    let bytes_of: Vec<usize> = rows.iter().map(|row| rows.row_bytes(&row)).collect();
    let room = bytes_max - shape.empty().len();
    let all: usize = bytes_of.iter().sum();
    let part_bytes = match cut {
        Cut::Evenly => all.div_ceil(all.div_ceil(room).max(1)),
        Cut::Front | Cut::Back => room,
    };
    let mut ends = Vec::new();
    let mut bytes = 0;
    let mut close = |at: usize| {
        let is_full = bytes > 0 && bytes + bytes_of[at] > room;
        if is_full || bytes >= part_bytes {
            ends.push(at);
            bytes = 0;
        }
        bytes += bytes_of[at];
    };
    match cut {
        Cut::Evenly | Cut::Back => (0..rows.len()).for_each(&mut close),
        Cut::Front => {
            (0..rows.len()).rev().for_each(&mut close);
            // From the back, a part ends where the one in front of it was closed.
            ends.iter_mut().for_each(|end| *end += 1);
            ends.reverse();
        }
    }
    ends.push(rows.len());
    let starts = [0].into_iter().chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| (Vec::new(), rows.slice(start..end))).collect()
}

/// Divides a leaf in two halves by the order of its elements' hashes; the right one comes with its
/// bound, the fewest bytes that tell it from the left one. None: all have the same hash.
pub fn divide_by_hash(leaf: &[u8]) -> Option<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let rows = Rows::new(leaf);
    let hashes: Vec<u64> = rows.iter().map(|row| element_hash(row.first)).collect();
    let mut sorted = hashes.clone();
    sorted.sort_unstable();
    // The place nearest to the middle where two neighbours differ.
    let middle = sorted.len() / 2;
    let differs = |at: &usize| sorted[*at - 1] != sorted[*at];
    let above = (middle.max(1)..sorted.len()).find(differs);
    let below = (1..middle).rev().find(differs);
    let at = match (above, below) {
        (Some(above), Some(below)) if middle - below < above - middle => below,
        (above, below) => above.or(below)?,
    };
    let left = rows.select(|row| hashes[row] < sorted[at]);
    let right = rows.select(|row| hashes[row] >= sorted[at]);
    Some((left, right, bound_between(sorted[at - 1], sorted[at])))
}

/// Where a new leaf belongs among the rows of another: what that one becomes.
#[derive(Debug, PartialEq, Eq)]
pub enum Split {
    /// It stays as it is, and begins at this bound, behind the new one.
    Front(Vec<u8>),
    /// It stays as it is, in front of the new one, which begins at this bound.
    Behind(Vec<u8>),
    /// Two parts of it stand around the new one.
    Between {
        /// The part in front.
        left: Vec<u8>,
        /// Where the new one begins.
        bound: Vec<u8>,
        /// The part behind.
        right: Vec<u8>,
        /// Where that begins.
        right_bound: Vec<u8>,
    },
}

/// Where a leaf of elements with a hash belongs among rows that are divided by the hashes of their first parts.
/// None: a row has this hash, or there is none. Cost: a pass over the first parts, and a copy if it is between.
pub fn split_by_hash(leaf: &[u8], hash: u64) -> Option<Split> {
    let rows = Rows::new(leaf);
    let hashes: Vec<u64> = rows.iter().map(|row| element_hash(row.first)).collect();
    let last = hashes.iter().copied().filter(|&other| other <= hash).max();
    let first = hashes.iter().copied().filter(|&other| other >= hash).min();
    match (last, first) {
        (None, first) => Some(Split::Front(bound_between(hash, first?))),
        (Some(last), _) if last == hash => None,
        (Some(last), None) => Some(Split::Behind(bound_between(last, hash))),
        (Some(last), Some(first)) => Some(Split::Between {
            left: rows.select(|row| hashes[row] < hash),
            bound: bound_between(last, hash),
            right: rows.select(|row| hashes[row] > hash),
            right_bound: bound_between(hash, first),
        }),
    }
}

/// The same of rows that have no order but their own, in front of the row at a position. Bounds are empty.
pub fn split_by_position(leaf: &[u8], at: usize) -> Split {
    let rows = Rows::new(leaf);
    if at == 0 {
        return Split::Front(Vec::new());
    }
    if at == rows.len() {
        return Split::Behind(Vec::new());
    }
    let (left, right) = (rows.slice(0..at), rows.slice(at..rows.len()));
    Split::Between { left, bound: Vec::new(), right, right_bound: Vec::new() }
}

/// The bound of what begins with the second of two hashes, the fewest bytes that tell it from the first, which
/// is smaller.
pub fn bound_between(last: u64, first: u64) -> Vec<u8> {
    let (last, first) = (last.to_be_bytes(), first.to_be_bytes());
    let same = last.iter().zip(first).take_while(|(one, two)| **one == *two).count();
    first[..=same].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::rows::{RowsMut, Shape};
    use crate::leaf::{element_hash, fingerprint};

    #[test]
    fn a_leaf_is_divided_by_the_hashes_of_its_elements() {
        let shape = Shape { parts: 1, fingerprints: true, ..Shape::NOTHING };
        let mut leaf = shape.empty().to_vec();
        for number in 0..100u32 {
            let member = number.to_string();
            RowsMut::new(&mut leaf).push(fingerprint(member.as_bytes()), 0, &[member.as_bytes()]);
        }
        let (left, right, bound) = divide_by_hash(&leaf).expect("elements of many hashes");
        let (left, right) = (Rows::new(&left), Rows::new(&right));
        assert_eq!((left.len(), right.len()), (50, 50));
        let order = |member: &[u8]| element_hash(member).to_be_bytes();
        assert!(left.iter().all(|row| order(row.first)[..] < bound[..]));
        assert!(right.iter().all(|row| order(row.first)[..] >= bound[..]));
        assert!(right.iter().all(|row| right.find(fingerprint(row.first), row.first).is_some()));
        assert!(bound.len() <= 3, "{bound:?}");
        let mut same = shape.empty().to_vec();
        (0..3).for_each(|_| RowsMut::new(&mut same).push(0, 0, &[b"one"]));
        assert!(divide_by_hash(&same).is_none());
        assert!(divide_by_hash(&shape.empty()).is_none());
    }

    #[test]
    fn a_new_leaf_stands_by_the_hash_of_its_elements() {
        let shape = Shape { parts: 1, fingerprints: true, ..Shape::NOTHING };
        let mut leaf = shape.empty().to_vec();
        assert_eq!(split_by_hash(&leaf, 7), None);
        let mut members: Vec<Vec<u8>> = (0..4u32).map(|n| n.to_string().into_bytes()).collect();
        members.sort_unstable_by_key(|member| element_hash(member));
        for member in [&members[2], &members[1]] {
            RowsMut::new(&mut leaf).push(fingerprint(member), 0, &[member]);
        }
        let hash = |at: usize| element_hash(&members[at]);
        let split = |hash: u64| split_by_hash(&leaf, hash);
        assert_eq!(split(hash(0)), Some(Split::Front(bound_between(hash(0), hash(1)))));
        assert_eq!(split(hash(3)), Some(Split::Behind(bound_between(hash(2), hash(3)))));
        assert_eq!([split(hash(1)), split(hash(2))], [None, None]);
        let between = hash(1) + 1;
        let rows = Rows::new(&leaf);
        let expected = Split::Between {
            left: rows.slice(1..2),
            bound: bound_between(hash(1), between),
            right: rows.slice(0..1),
            right_bound: bound_between(between, hash(2)),
        };
        assert_eq!(split(between), Some(expected));
    }

    #[test]
    fn a_leaf_is_divided_by_position_where_there_should_be_room() {
        let shape = Shape { parts: 1, ..Shape::NOTHING };
        let samples = [(1, 10, 0), (10, 9, 0), (500, 9, 0), (40, 200, 0), (40, 9, 5_000)];
        for ((count, len, long), cut) in samples
            .into_iter()
            .flat_map(|sample| [Cut::Evenly, Cut::Front, Cut::Back].map(|cut| (sample, cut)))
        {
            let mut leaf = shape.empty().to_vec();
            for number in 0..count {
                let len = if number % 7 == 3 && long > 0 { long } else { len };
                RowsMut::new(&mut leaf).push(0, 0, &[&vec![number as u8; len]]);
            }
            let parts = divide_by_position(&leaf, 1_000, cut);
            let whole = Rows::concat(parts.iter().map(|(_, part)| Rows::new(part)));
            assert_eq!(whole.as_ref(), Some(&leaf));
            for (bound, part) in &parts {
                let rows = Rows::check(part).expect("a leaf");
                assert!(!rows.is_empty() && bound.is_empty());
                assert!(part.len() <= 1_000 || rows.len() == 1, "{} bytes", part.len());
            }
            if count == 500 {
                let lens: Vec<usize> = parts.iter().map(|(_, part)| part.len()).collect();
                let (first, last) = (lens[0], lens[lens.len() - 1]);
                match cut {
                    Cut::Evenly => assert!(first.abs_diff(last) <= lens.len() * 11, "{lens:?}"),
                    Cut::Front => assert!(first < last && last > 980, "{lens:?}"),
                    Cut::Back => assert!(last < first && first > 980, "{lens:?}"),
                }
            }
        }
    }
}
