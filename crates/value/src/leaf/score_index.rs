//! The leaf of the index of a large sorted set: the scores of members, by the hashes of these.
//!
//! A row is 4 bytes of a member's hash, a fingerprint, which is another byte of it, and the score: 14 bytes.
//! The members themselves stand in the leaves of the sorted set alone, where a score that is found here leads
//! to; two members whose hashes agree in 40 bits are told apart there.

use crate::leaf::divide::halves;
use crate::leaf::element_hash;
use crate::leaf::rows::{Rows, RowsBuilder, RowsMut, Shape};

/// The rows of an index: bytes of a hash, with a score for a number.
pub const SHAPE: Shape = Shape { parts: 1, fingerprints: true, numbers: true, narrow: false };

/// Bytes of a hash that a row has, the highest ones, by which leaves are ordered.
const PREFIX_BYTES: usize = 4;

/// The hash of a member, as an index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberHash {
    prefix: [u8; PREFIX_BYTES],
    fingerprint: u8,
}

impl MemberHash {
    /// Bytes of [`MemberHash::order`], the first of the hash.
    pub const ORDER_BYTES: usize = PREFIX_BYTES;

    /// That of a member.
    #[inline]
    pub fn of(member: &[u8]) -> MemberHash {
        MemberHash::from_hash(element_hash(member))
    }

    /// The same by [`element_hash`].
    #[inline]
    pub fn from_hash(hash: u64) -> MemberHash {
        let [one, two, three, four, .., fingerprint] = hash.to_be_bytes();
        MemberHash { prefix: [one, two, three, four], fingerprint }
    }

    /// The member's fingerprint.
    #[inline]
    pub fn fingerprint(&self) -> u8 {
        self.fingerprint
    }

    /// Where a member with this hash stands among the leaves.
    #[inline]
    pub fn order(&self) -> [u8; PREFIX_BYTES] {
        self.prefix
    }
}

/// An index to be read.
#[derive(Clone, Copy, Debug)]
pub struct ScoreIndex<'a>(Rows<'a>);

impl<'a> ScoreIndex<'a> {
    /// The index in a leaf. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(leaf: &'a [u8]) -> ScoreIndex<'a> {
        ScoreIndex(Rows::new(leaf))
    }

    /// The index in the rows of a leaf.
    #[inline]
    pub fn of(rows: Rows<'a>) -> ScoreIndex<'a> {
        ScoreIndex(rows)
    }

    /// The scores of members with a hash.
    #[inline]
    pub fn scores(self, hash: &MemberHash) -> impl Iterator<Item = f64> + use<'a> {
        let rows = self.0;
        let found = rows.find_all_short(hash.fingerprint, hash.prefix);
        found.map(move |row| f64::from_bits(rows.number(row)))
    }

    /// Where in the leaf the score of a member stands, and what it is to be overwritten with for a new one.
    /// Panics: there is none with the old one.
    pub fn place_of(&self, hash: &MemberHash, old: f64, new: f64) -> (usize, [u8; 8]) {
        (self.0.number_start(self.find(hash, old)), new.to_bits().to_le_bytes())
    }

    fn find(&self, hash: &MemberHash, score: f64) -> usize {
        let rows = self.0;
        let has_score = |row: &usize| f64::from_bits(rows.number(*row)) == score;
        let found = rows.find_all_short(hash.fingerprint, hash.prefix).find(has_score);
        found.expect("a member that is there")
    }

    /// All hashes and scores.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (MemberHash, f64)> + use<'a> {
        let rows = self.0;
        rows.iter().enumerate().map(move |(at, row)| {
            let prefix = row.first.try_into().expect("invariant: a row has so many bytes");
            let hash = MemberHash { prefix, fingerprint: rows.fingerprint(at) };
            (hash, f64::from_bits(row.number))
        })
    }
}

/// An index to be changed.
pub struct ScoreIndexMut<'a>(RowsMut<'a>);

impl<'a> ScoreIndexMut<'a> {
    /// The index in a leaf. Panics, there or later: the bytes are none.
    pub fn new(leaf: &'a mut Vec<u8>) -> ScoreIndexMut<'a> {
        ScoreIndexMut(RowsMut::new(leaf))
    }

    /// Adds a member.
    pub fn add(&mut self, hash: &MemberHash, score: f64) {
        self.0.push(hash.fingerprint, score.to_bits(), &[&hash.prefix]);
    }

    /// Removes a member. Panics: there is none with this score.
    pub fn remove(&mut self, hash: &MemberHash, score: f64) {
        let row = ScoreIndex(self.0.rows()).find(hash, score);
        self.0.remove(row..row + 1);
    }
}

/// The leaves of an index of at most `bytes_max`, each behind its bound, over members of which the hashes
/// stand in order; that of the first is empty.
pub fn leaves_of(
    members: impl Iterator<Item = (MemberHash, f64)>,
    bytes_max: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let row_bytes = SHAPE.row_bytes(&[&[0; PREFIX_BYTES]]);
    // A quarter is left free for members to come.
    let rows_max = bytes_max / row_bytes * 3 / 4;
    let mut leaves = Vec::new();
    let (mut leaf, mut rows) = (RowsBuilder::new(SHAPE), 0);
    let (mut bound, mut last) = (Vec::new(), None);
    for (hash, score) in members {
        if rows >= rows_max && last != Some(hash.prefix) {
            let full = std::mem::replace(&mut leaf, RowsBuilder::new(SHAPE));
            leaves.push((std::mem::replace(&mut bound, hash.prefix.to_vec()), full.into_leaf()));
            rows = 0;
        }
        leaf.push(hash.fingerprint, score.to_bits(), &[&hash.prefix]);
        (rows, last) = (rows + 1, Some(hash.prefix));
    }
    leaves.push((bound, leaf.into_leaf()));
    leaves
}

/// Divides a leaf into parts of at most `bytes_max`, or of one hash, each behind its bound; that of the first
/// is empty.
pub fn divide(leaf: Vec<u8>, bytes_max: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    halves(leaf, bytes_max, |leaf| {
        let rows = Rows::new(leaf);
        let mut sorted: Vec<&[u8]> = rows.iter().map(|row| row.first).collect();
        sorted.sort_unstable();
        // The place nearest behind the middle where two neighbours differ, or in front of it.
        let differs = |at: &usize| sorted[*at - 1] != sorted[*at];
        let middle = (sorted.len() / 2).max(1);
        let at = (middle..sorted.len()).find(differs).or((1..middle).rev().find(differs))?;
        let bound = sorted[at];
        let is_left: Vec<bool> = rows.iter().map(|row| row.first < bound).collect();
        let (left, right) = (rows.select(|row| is_left[row]), rows.select(|row| !is_left[row]));
        let same = sorted[at - 1].iter().zip(bound).take_while(|(one, two)| one == two).count();
        Some((left, right, bound[..=same].to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> MemberHash {
        MemberHash::of(number.to_string().as_bytes())
    }

    #[test]
    fn scores_are_found_changed_and_removed() {
        let mut leaf = SHAPE.empty().to_vec();
        let mut index = ScoreIndexMut::new(&mut leaf);
        (0..100).for_each(|number| index.add(&hash(number), f64::from(number)));
        // Two members that the index cannot tell apart.
        index.add(&hash(7), 50.5);
        let scores =
            |leaf: &[u8], number| ScoreIndex::new(leaf).scores(&hash(number)).collect::<Vec<f64>>();
        assert_eq!(scores(&leaf, 7), [7.0, 50.5]);
        let overwrite = |leaf: &mut Vec<u8>, number, old, new| {
            let (start, score) = ScoreIndex::new(leaf).place_of(&hash(number), old, new);
            leaf[start..start + score.len()].copy_from_slice(&score);
        };
        overwrite(&mut leaf, 7, 50.5, -1.0);
        overwrite(&mut leaf, 0, -0.0, 3.0);
        let mut index = ScoreIndexMut::new(&mut leaf);
        index.remove(&hash(7), 7.0);
        index.remove(&hash(8), 8.0);
        assert_eq!(scores(&leaf, 7), [-1.0]);
        assert_eq!(scores(&leaf, 8), []);
        assert_eq!(scores(&leaf, 0), [3.0]);
        assert_eq!(leaf.len(), SHAPE.empty().len() + 99 * 14);
    }

    #[test]
    fn leaves_are_made_and_divided_by_hashes() {
        let mut hashes: Vec<(MemberHash, f64)> =
            (0..2_000).map(|number| (hash(number), f64::from(number))).collect();
        hashes.sort_unstable_by_key(|(hash, _)| *hash);
        let mut whole = SHAPE.empty().to_vec();
        let mut index = ScoreIndexMut::new(&mut whole);
        hashes.iter().for_each(|(hash, score)| index.add(hash, *score));
        let made = leaves_of(hashes.iter().copied(), 2_048);
        for leaves in [made, divide(whole, 2_048)] {
            assert!(leaves.len() > 14 && leaves[0].0.is_empty(), "{}", leaves.len());
            assert!(leaves.iter().all(|(_, leaf)| leaf.len() <= 2_048));
            let mut all: Vec<(MemberHash, f64)> = Vec::new();
            for (at, (bound, leaf)) in leaves.iter().enumerate() {
                let index = ScoreIndex::new(leaf);
                let end = leaves.get(at + 1).map(|(bound, _)| bound);
                assert!(index.iter().all(|(hash, _)| hash.order()[..] >= bound[..]));
                assert!(
                    index.iter().all(|(hash, _)| end.is_none_or(|end| hash.order()[..] < end[..]))
                );
                all.extend(index.iter());
            }
            all.sort_unstable_by_key(|(hash, _)| *hash);
            assert_eq!(all, hashes);
        }
        let mut same = SHAPE.empty().to_vec();
        (0..500).for_each(|score| ScoreIndexMut::new(&mut same).add(&hash(1), f64::from(score)));
        assert_eq!(divide(same.clone(), 2_048), [(Vec::new(), same)]);
    }
}
