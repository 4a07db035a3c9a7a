//! The leaf of a sorted set: members with their scores, in the order of the scores and, where these are
//! equal, of the members. A score stands there as a number that is small where the score is a small integer
//! ([`number_of`]), and takes as few bytes as the scores of its leaf need.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;

use crate::leaf::divide::{Cut, Split, divide_by_position, split_by_position};
use crate::leaf::fingerprint;
use crate::leaf::rows::{Damaged, Row, Rows, RowsBuilder, RowsMut, Shape};
use crate::range::{MemberRange, ScoreRange};

/// The rows of a sorted set: a member, with its score for a number.
pub const SHAPE: Shape = Shape { parts: 1, fingerprints: true, numbers: true, narrow: true };

/// The number that stands for a score, and the other way round: the bits of a score are exchanged for twice it, or
/// less than twice its negative by one, where it is an integer of at most 32 bits with its sign; and bits that are as
/// small themselves, of scores next to zero, for those of that integer. So every score has a number of its own.
#[inline]
fn number_of(score: f64) -> u64 {
    exchanged(score.to_bits())
}

#[inline]
fn score_of(number: u64) -> f64 {
    f64::from_bits(exchanged(number))
}

#[inline]
fn exchanged(bits: u64) -> u64 {
    if let Ok(small) = u32::try_from(bits) {
        let integer = (small >> 1) as i32 ^ -((small & 1) as i32);
        return f64::from(integer).to_bits();
    }
    let integer = f64::from_bits(bits) as i32;
    // Not so for a fraction, a score beyond, and the negative zero.
    let is_it = f64::from(integer).to_bits() == bits;
    if is_it { u64::from((integer << 1 ^ integer >> (i32::BITS - 1)) as u32) } else { bits }
}

/// The order of members with their scores. Panics: a score is no number.
#[inline]
pub fn compare(one: (f64, &[u8]), two: (f64, &[u8])) -> Ordering {
    let scores = one.0.partial_cmp(&two.0).expect("invariant: a score is a number");
    scores.then_with(|| one.1.cmp(two.1))
}

/// Where the members with a score begin, in bytes that are compared from the first on.
#[inline]
pub fn order_of_score(score: f64) -> [u8; 8] {
    // Zeros of both signs are one.
    let bits = (score + 0.0).to_bits();
    let is_negative = bits >> (u64::BITS - 1) == 1;
    (if is_negative { !bits } else { bits | 1 << (u64::BITS - 1) }).to_be_bytes()
}

/// Where the members behind those with a score begin.
pub fn order_behind_score(score: f64) -> [u8; 8] {
    (u64::from_be_bytes(order_of_score(score)) + 1).to_be_bytes()
}

/// Where a member with a score stands.
#[inline]
pub fn order_of(score: f64, member: &[u8]) -> SmallVec<[u8; 36]> {
    let mut order = SmallVec::from_slice(&order_of_score(score));
    order.extend_from_slice(member);
    order
}

/// Divides a leaf into parts of at most `bytes_max`, or of one member, each behind its bound: the fewest
/// bytes that tell its first member from the last one in front of it. That of the first part is empty.
pub fn divide_in_order(leaf: &[u8], bytes_max: usize, cut: Cut) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = divide_by_position(leaf, bytes_max, cut);
    for at in 1..parts.len() {
        let (before, part) = (Scored::new(&parts[at - 1].1), Scored::new(&parts[at].1));
        let ((last, last_score), (first, score)) = (before.at(before.len() - 1), part.at(0));
        parts[at].0 = bound_between((last_score, last), (score, first));
    }
    parts
}

/// The bound of what begins with the second of two members with their scores, the fewest bytes that tell it from
/// the first, which stands in front of it.
fn bound_between(last: (f64, &[u8]), first: (f64, &[u8])) -> Vec<u8> {
    let (last_score, first_score) = (order_of_score(last.0), order_of_score(first.0));
    let last = last_score.iter().chain(last.1);
    let first = || first_score.iter().chain(first.1);
    let same = last.zip(first()).take_while(|(one, two)| one == two).count();
    first().take(same + 1).copied().collect()
}

/// Where a leaf of a member with a score, which is not there, belongs among the members of another. Cost: a pass,
/// and a copy if it is between.
pub fn split_at(leaf: &[u8], score: f64, member: &[u8]) -> Split {
    let set = Scored::new(leaf);
    let rank = set.rank_of_place(score, member);
    let new = (score, member);
    let other = |rank: usize| {
        let (member, score) = set.at(rank);
        (score, member)
    };
    match split_by_position(leaf, rank) {
        Split::Front(_) => Split::Front(bound_between(new, other(rank))),
        Split::Behind(_) => Split::Behind(bound_between(other(rank - 1), new)),
        Split::Between { left, right, .. } => {
            let bound = bound_between(other(rank - 1), new);
            Split::Between { left, bound, right, right_bound: bound_between(new, other(rank)) }
        }
    }
}

/// A sorted set to be read.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a>(Rows<'a>);

impl<'a> Scored<'a> {
    /// The sorted set in a leaf. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(leaf: &'a [u8]) -> Scored<'a> {
        Scored(Rows::new(leaf))
    }

    /// The sorted set in bytes from elsewhere. Cost: linear in its members.
    ///
    /// Errors: they are none.
    pub fn check(bytes: &'a [u8]) -> Result<Scored<'a>, Damaged> {
        let set = Scored(Rows::check(bytes)?);
        let has_scores = set.0.shape() == SHAPE && set.iter().all(|(_, score)| !score.is_nan());
        let is_sorted = |one: (&[u8], f64), two: (&[u8], f64)| {
            compare((one.1, one.0), (two.1, two.0)) == Ordering::Less
        };
        let is_one = has_scores && set.iter().is_sorted_by(|one, two| is_sorted(*one, *two));
        if is_one { Ok(set) } else { Err(Damaged) }
    }

    /// How many members.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty sorted set is a key that does not exist"
    )]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes that all of it takes.
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// Bytes that it takes at most, whatever its scores.
    pub fn byte_len_max(&self) -> usize {
        self.0.byte_len_max()
    }

    /// The rank of a member and its score.
    #[inline]
    pub fn find(&self, member: &[u8]) -> Option<(usize, f64)> {
        self.find_by(fingerprint(member), member)
    }

    /// The same by the member's fingerprint.
    #[inline]
    pub fn find_by(&self, fingerprint: u8, member: &[u8]) -> Option<(usize, f64)> {
        let rank = self.0.find(fingerprint, member)?;
        Some((rank, self.score_at(rank)))
    }

    /// The score of the member of a rank. Panics: there is none.
    #[inline]
    pub fn score_at(&self, rank: usize) -> f64 {
        score_of(self.0.number(rank))
    }

    /// The member of a rank and its score. Panics: there is none.
    pub fn at(&self, rank: usize) -> (&'a [u8], f64) {
        pair(self.0.row(rank))
    }

    /// How many members stand in front of the first of which the score is not `is_before`; those of which
    /// it is stand in front of all others.
    #[inline]
    fn partition(&self, is_before: impl Fn(f64) -> bool) -> usize {
        self.0.partition_by_number(|number| is_before(score_of(number)))
    }

    /// How many members stand in front of the place of a member with a score. Cost: logarithmic, and a
    /// pass over the members with the same score.
    pub fn rank_of_place(&self, score: f64, member: &[u8]) -> usize {
        let first = self.partition(|other| other < score);
        let same = self.0.iter_from(first).map(pair);
        let before = same.take_while(|&(other, its)| its == score && other < member);
        first + before.count()
    }

    /// How many members have lower scores, or the same where `with_same`.
    pub fn ranks_below(&self, score: f64, with_same: bool) -> usize {
        self.partition(|other| other < score || (with_same && other == score))
    }

    /// The ranks of the members whose scores are in a range.
    pub fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        let first = self.partition(|score| range.is_above(score));
        first..self.partition(|score| !range.is_below(score)).max(first)
    }

    /// The ranks of the members in a range of members, which all have the same score. Where they have not,
    /// what is found is what Redis finds, from the first member on or `backwards` from the last.
    pub fn ranks_by_member(&self, range: &MemberRange<'_>, backwards: bool) -> Range<usize> {
        let len = self.len();
        let is_none = range.is_empty()
            || len == 0
            || range.is_above(self.0.first(len - 1))
            || range.is_below(self.0.first(0));
        if is_none {
            return 0..0;
        }
        let (mut first, mut end) = (0, 0);
        if backwards {
            // What is asked from the last one back is told by the last of those in front of the range, and
            // of those not above it.
            for (rank, (member, _)) in self.iter().enumerate() {
                if !range.is_below(member) {
                    end = rank + 1;
                }
            }
            for (rank, (member, _)) in self.iter().enumerate().take(end) {
                if range.is_above(member) {
                    first = rank + 1;
                }
            }
            return first..end;
        }
        let mut members =
            self.iter().enumerate().skip_while(|(_, (member, _))| range.is_above(member));
        let Some((rank, (member, _))) = members.next() else { return 0..0 };
        first = rank;
        if range.is_below(member) {
            return first..first;
        }
        first..first + 1 + members.take_while(|(_, (member, _))| !range.is_below(member)).count()
    }

    /// All members and their scores.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], f64)> + use<'a> {
        self.iter_from(0)
    }

    /// The members from a rank on, and their scores.
    pub fn iter_from(
        &self,
        rank: usize,
    ) -> impl ExactSizeIterator<Item = (&'a [u8], f64)> + use<'a> {
        self.0.iter_from(rank).map(pair)
    }

    /// Visits the members of some ranks, from the first on or from the last one back.
    pub fn visit(
        &self,
        ranks: Range<usize>,
        backwards: bool,
        mut visit: impl FnMut(&'a [u8], f64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut members = self.iter_from(ranks.start).take(ranks.len());
        if !backwards {
            return members.try_for_each(|(member, score)| visit(member, score));
        }
        // Where a member begins is known from those in front of it alone.
        let members: Vec<(&[u8], f64)> = members.collect();
        members.into_iter().rev().try_for_each(|(member, score)| visit(member, score))
    }
}

fn pair<'a>(row: Row<'a>) -> (&'a [u8], f64) {
    (row.first, score_of(row.number))
}

/// A sorted set to be changed. Cost of every change: one pass over what lies behind it.
pub struct ScoredMut<'a>(RowsMut<'a>);

impl<'a> ScoredMut<'a> {
    /// The sorted set in a leaf. Panics, there or later: the bytes are none.
    pub fn new(leaf: &'a mut Vec<u8>) -> ScoredMut<'a> {
        ScoredMut(RowsMut::new(leaf))
    }

    /// The sorted set to be read.
    pub fn scored(&self) -> Scored<'_> {
        Scored(self.0.rows())
    }

    /// Adds a member that is not there.
    pub fn insert(&mut self, member: &[u8], score: f64) {
        let rank = self.scored().rank_of_place(score, member);
        self.0.insert(rank, fingerprint(member), number_of(score), &[member]);
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let found = self.scored().find(member);
        if let Some((rank, _)) = found {
            self.0.remove(rank..rank + 1);
        }
        found.is_some()
    }

    /// Removes a member that has a score: it may be there with another one as well. Panics: it is not there.
    pub fn remove_scored(&mut self, member: &[u8], score: f64) {
        let scored = self.scored();
        let mut rows = scored.0.find_all(fingerprint(member), member);
        let row = rows.find(|&row| scored.score_at(row) == score).expect("a member that is there");
        drop(rows);
        self.0.remove(row..row + 1);
    }

    /// Removes the members of some ranks. Panics: there are not so many.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) {
        self.0.remove(ranks);
    }

    /// Gives a member another score. Panics: it is not there.
    pub fn set_score(&mut self, member: &[u8], score: f64) {
        let (rank, _) = self.scored().find(member).expect("a member that is there");
        let scored = self.scored();
        let stays_behind = rank == 0 || scored.score_at(rank - 1) < score;
        let stays_before = rank + 1 == scored.len() || score < scored.score_at(rank + 1);
        if stays_behind && stays_before {
            return self.0.set_number(rank, number_of(score));
        }
        self.0.remove(rank..rank + 1);
        self.insert(member, score);
    }
}

/// The leaf of members with their scores, which stand in order. Cost: two passes.
pub fn leaf_of<'m>(members: impl Iterator<Item = (f64, &'m [u8])> + Clone) -> Vec<u8> {
    let rows_bytes: usize = members.clone().map(|(_, member)| SHAPE.row_bytes(&[member])).sum();
    let mut leaf = RowsBuilder::with_room(SHAPE, SHAPE.empty().len() + rows_bytes);
    members.for_each(|(score, member)| leaf.push(fingerprint(member), number_of(score), &[member]));
    leaf.into_leaf()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn member(number: u16) -> Vec<u8> {
        // Some are so long that a byte does not tell their length.
        let len = if number % 40 == 7 { 300 } else { usize::from(number % 3) };
        format!("m{}{}", number % 60, "-".repeat(len)).into()
    }

    #[derive(Clone, Debug)]
    enum Change {
        Set(u16, f64),
        Remove(u16),
        RemoveRanks(usize, usize),
    }

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-3..4i32).prop_map(f64::from),
            1 => Just(-0.0),
            1 => Just(f64::INFINITY),
            1 => Just(f64::NEG_INFINITY),
            1 => any::<i32>().prop_map(f64::from),
            1 => (0..9u64).prop_map(f64::from_bits),
            2 => any::<f64>().prop_map(|number| if number.is_nan() { 0.5 } else { number }),
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            6 => (any::<u16>(), score()).prop_map(|(member, score)| Change::Set(member, score)),
            2 => any::<u16>().prop_map(Change::Remove),
            1 => (0..50usize, 0..5usize).prop_map(|(first, count)| Change::RemoveRanks(first, count)),
        ]
    }

    type Model = BTreeMap<Vec<u8>, f64>;

    fn in_order(model: &Model) -> Vec<(Vec<u8>, f64)> {
        let mut members: Vec<(Vec<u8>, f64)> =
            model.iter().map(|(member, score)| (member.clone(), *score)).collect();
        members.sort_by(|one, two| compare((one.1, &one.0), (two.1, &two.0)));
        members
    }

    fn apply(change: Change, set: &mut ScoredMut<'_>, model: &mut Model) {
        match change {
            Change::Set(number, score) => {
                let member = member(number);
                match set.scored().find(&member) {
                    Some(_) => set.set_score(&member, score),
                    None => set.insert(&member, score),
                }
                model.insert(member, score);
            }
            Change::Remove(number) => {
                let member = member(number);
                assert_eq!(set.remove(&member), model.remove(&member).is_some());
            }
            Change::RemoveRanks(first, count) => {
                let members = in_order(model);
                let ranks = first.min(members.len())..(first + count).min(members.len());
                members[ranks.clone()].iter().for_each(|(member, _)| {
                    model.remove(member);
                });
                set.remove_ranks(ranks);
            }
        }
    }

    fn assert_same(leaf: &[u8], model: &Model) {
        let set = Scored::check(leaf).expect("a sorted set");
        let members = in_order(model);
        assert_eq!((set.len(), set.byte_len()), (members.len(), leaf.len()));
        assert!(set.iter().eq(members.iter().map(|(member, score)| (&member[..], *score))));
        for (rank, (member, score)) in members.iter().enumerate() {
            assert_eq!(set.find(member), Some((rank, *score)));
            assert_eq!(set.at(rank), (&member[..], *score));
            assert_eq!(set.rank_of_place(*score, member), rank);
        }
        for excludes in [false, true] {
            for (min, max) in [(-1.0, 2.0), (0.0, 0.0), (-9.0, f64::INFINITY), (1.0, -1.0)] {
                let range = ScoreRange { min, excludes_min: excludes, max, excludes_max: excludes };
                let is_in = |score: f64| !range.is_above(score) && !range.is_below(score);
                let found: Vec<&[u8]> =
                    set.iter().skip(set.ranks_by_score(&range).start).map(|one| one.0).collect();
                let found = &found[..set.ranks_by_score(&range).len()];
                let expected = members.iter().filter(|(_, score)| is_in(*score));
                assert!(found.iter().copied().eq(expected.map(|one| &one.0[..])), "{range:?}");
            }
        }
        let mut back = Vec::new();
        let _ = set.visit(0..set.len(), true, |member, _| {
            back.push(member.to_vec());
            ControlFlow::Continue(())
        });
        assert!(back.iter().rev().eq(members.iter().map(|one| &one.0)));
        let built = leaf_of(members.iter().map(|(member, score)| (*score, &member[..])));
        let (built, wide) = (Scored::check(&built).expect("a sorted set"), set.byte_len_max());
        assert!(built.iter().eq(set.iter()) && built.byte_len() <= leaf.len());
        assert!(leaf.len() <= wide && built.byte_len_max() == wide);
    }

    #[test]
    fn a_score_takes_as_few_bytes_as_those_of_its_leaf_need() {
        let bytes = |score: f64| {
            let leaf = leaf_of([(-1.0, &b"a"[..]), (score, b"b")].into_iter());
            (leaf.len() - SHAPE.empty().len()) / 2 - 3
        };
        let scores = [-1.0, 127.0, 128.0, 32_767.0, 32_768.0, 2_147_483_647.0, 2_147_483_648.0];
        assert_eq!(scores.map(bytes), [1, 1, 2, 2, 4, 4, 8]);
        assert_eq!([0.5, f64::INFINITY, 1e-310].map(bytes), [8; 3]);
        let mut leaf = leaf_of([(1.0, &b"a"[..])].into_iter());
        ScoredMut::new(&mut leaf).insert(b"b", 1e9);
        ScoredMut::new(&mut leaf).set_score(b"a", 0.5);
        assert_eq!(leaf, leaf_of([(0.5, &b"a"[..]), (1e9, b"b")].into_iter()));
    }

    proptest! {
        #[test]
        fn each_score_has_a_number_of_its_own(number in any::<u64>(), small in any::<u32>()) {
            for number in [number, small.into(), u64::from(small) << 20] {
                prop_assert_eq!(exchanged(exchanged(number)), number);
            }
            let integer = f64::from(small as i32);
            prop_assert!(number_of(integer) <= u32::MAX.into());
            prop_assert_eq!(score_of(number_of(integer)), integer);
        }

        #[test]
        fn members_stay_in_order(changes in prop::collection::vec(change(), 1..80)) {
            let mut leaf = SHAPE.empty().to_vec();
            let mut model = Model::new();
            for change in changes {
                apply(change, &mut ScoredMut::new(&mut leaf), &mut model);
                assert_same(&leaf, &model);
            }
        }

        /// With one score, a range of members is what is in it; both walks agree.
        #[test]
        fn ranges_of_members(
            numbers in prop::collection::btree_set(0..60u16, 1..30), min in 0..60u16, max in 0..60u16,
            excludes in any::<bool>(),
        ) {
            let members: std::collections::BTreeSet<Vec<u8>> = numbers.into_iter().map(member).collect();
            let leaf = leaf_of(members.iter().map(|member| (1.0, &member[..])));
            let (min, max) = (member(min), member(max));
            let (min, max) = if excludes {
                (crate::range::MemberEnd::Excluded(&min), crate::range::MemberEnd::Excluded(&max))
            } else {
                (crate::range::MemberEnd::Included(&min), crate::range::MemberEnd::Included(&max))
            };
            let range = MemberRange { min, max };
            let is_in = |member: &[u8]| !range.is_above(member) && !range.is_below(member);
            let expected = members.iter().filter(|member| is_in(member)).count();
            for backwards in [false, true] {
                let ranks = Scored::new(&leaf).ranks_by_member(&range, backwards);
                prop_assert_eq!(ranks.len(), expected);
                prop_assert!(ranks.clone().all(|rank| is_in(Scored::new(&leaf).at(rank).0)));
            }
        }
    }

    #[test]
    fn bytes_stand_in_the_order_of_scores() {
        let scores = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -1.0,
            -f64::MIN_POSITIVE,
            -5e-324,
            0.0,
            5e-324,
            0.1,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(order_of_score(pair[0]) < order_of_score(pair[1]), "{pair:?}");
            assert!(order_behind_score(pair[0]) <= order_of_score(pair[1]), "{pair:?}");
            assert!(order_of(pair[0], b"zzz")[..] < order_behind_score(pair[0])[..], "{pair:?}");
        }
        assert_eq!(order_of_score(-0.0), order_of_score(0.0));
    }

    #[test]
    fn a_leaf_is_divided_where_members_differ() {
        let name = |number: u32| format!("member {number:05}").into_bytes();
        let names: Vec<Vec<u8>> = (0..400).map(name).collect();
        for same in [1, 30, 1_000] {
            let score = |at: usize| (at / same) as f64;
            let leaf = leaf_of(names.iter().enumerate().map(|(at, name)| (score(at), &name[..])));
            for cut in [Cut::Evenly, Cut::Front, Cut::Back] {
                let parts = divide_in_order(&leaf, 700, cut);
                assert!(parts.len() > 8 && parts[0].0.is_empty());
                let whole = Rows::concat(parts.iter().map(|(_, part)| Rows::new(part)));
                assert_eq!(whole.as_ref(), Some(&leaf));
                for pair in parts.windows(2) {
                    let (left, bound) = (Scored::new(&pair[0].1), &pair[1].0);
                    let right = Scored::new(&pair[1].1);
                    assert!(left.iter().all(|(name, score)| order_of(score, name)[..] < bound[..]));
                    assert!(
                        right.iter().all(|(name, score)| order_of(score, name)[..] >= bound[..])
                    );
                }
            }
        }
    }

    #[test]
    fn other_leaves_are_no_sorted_sets() {
        assert!(Scored::check(&SHAPE.empty()).is_ok());
        assert!(Scored::check(&Shape { numbers: false, narrow: false, ..SHAPE }.empty()).is_err());
        let of =
            |members: &[(f64, &[u8])]| Scored::check(&leaf_of(members.iter().copied())).is_ok();
        assert!(of(&[(1.0, b"a"), (1.0, b"b"), (2.0, b"a")]));
        assert!(!of(&[(1.0, b"b"), (1.0, b"a")]));
        assert!(!of(&[(2.0, b"a"), (1.0, b"b")]));
        assert!(!of(&[(f64::NAN, b"a")]));
    }
}
