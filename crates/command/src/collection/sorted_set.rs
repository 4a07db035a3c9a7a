//! Sorted sets: the members of one leaf, or of a tree of leaves by score and member.
//!
//! A tree has an index by the hashes of members, which tells their scores and so where they stand.
//!
//! Every range of members, whatever it is given by, is a range of ranks: handlers ask which, and then for
//! the members of these ranks, forwards or backwards.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use keyspace::Key;
use smallvec::SmallVec;
use value::Kind;
use value::leaf::score_index::{MemberHash, ScoreIndex};
use value::leaf::scored::{Scored, order_behind_score, order_of, order_of_score};
use value::range::{MemberEnd, MemberRange, ScoreRange};

use crate::collection::Found;
use crate::collection::place::Path;
use crate::collection::reader::TreeReader;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};

/// Members with the same scores that a step of a walk looks at to find one of them; and as many as these for
/// nothing.
const SCANNED_PER_MEMBER: u64 = 64;
const SCANNED_FREE: u64 = 4_096;

/// A sorted set to be read.
pub enum SortedSet<'a> {
    /// In one leaf.
    Leaf {
        /// Its members.
        members: Scored<'a>,
        /// Whether Redis would keep it in a listpack.
        is_packed: bool,
    },
    /// In many.
    Tree(TreeReader<'a>),
}

impl SortedSet<'_> {
    /// How many members.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty sorted set is a key that does not exist"
    )]
    pub fn len(&self) -> u64 {
        match self {
            SortedSet::Leaf { members, .. } => members.len() as u64,
            SortedSet::Tree(tree) => tree.elements(),
        }
    }

    /// Bytes that all of it takes at most if each score takes 8, as it does where it is copied.
    pub fn byte_len(&self) -> u64 {
        match self {
            SortedSet::Leaf { members, .. } => members.byte_len_max() as u64,
            SortedSet::Tree(tree) => {
                // Which bytes the scores of a leaf take is known there alone: one at least.
                tree.leaf_bytes() + (size_of::<f64>() as u64 - 1) * tree.elements()
            }
        }
    }

    /// Bytes that so many of its members take, about.
    pub fn bytes_of(&self, members: u64) -> u64 {
        (self.byte_len() / self.len()).saturating_mul(members)
    }

    /// Whether it is in many leaves.
    pub fn is_tree(&self) -> bool {
        matches!(self, SortedSet::Tree(_))
    }

    /// Whether Redis would keep it in a listpack.
    pub fn is_packed(&self) -> bool {
        match self {
            SortedSet::Leaf { is_packed, .. } => *is_packed,
            SortedSet::Tree(tree) => tree.encoding() == Kind::SORTED_SET_PACKED.encoding(),
        }
    }

    /// Looks for the leaves of members that are asked for next, so that all that are on flash are read
    /// together.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce<'m>(
        &mut self,
        members: impl ExactSizeIterator<Item = &'m [u8]>,
    ) -> CommandResult {
        let SortedSet::Tree(tree) = self else { return Ok(()) };
        // One is found without it.
        if members.len() < 2 {
            return Ok(());
        }
        let hashed = members.map(|member| (MemberHash::of(member), member));
        let hashed: Vec<(MemberHash, &[u8])> = hashed.collect();
        let mut orders = Vec::new();
        tree.in_index(|index| -> CommandResult {
            index.announce(hashed.iter().map(|(hash, _)| hash.order()))?;
            for (hash, member) in &hashed {
                let scores = ScoreIndex::new(index.leaf(&hash.order())?).scores(hash);
                orders.extend(scores.map(|score| order_of(score, member)));
            }
            Ok(())
        })?;
        tree.announce(orders.iter())
    }

    /// The score of a member.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    pub fn score(&mut self, member: &[u8]) -> Result<Option<f64>, CommandError> {
        match self {
            SortedSet::Leaf { members, .. } => Ok(members.find(member).map(|(_, score)| score)),
            SortedSet::Tree(tree) => {
                let hash = MemberHash::of(member);
                for score in scores_in_index(tree, &hash)? {
                    let leaf = Scored::new(tree.leaf(&order_of(score, member))?);
                    if let Some((_, score)) = leaf.find_by(hash.fingerprint(), member) {
                        return Ok(Some(score));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The rank of a member, counted from the lowest score on, and its score.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    pub fn rank(&mut self, member: &[u8]) -> Result<Option<(u64, f64)>, CommandError> {
        match self {
            SortedSet::Leaf { members, .. } => {
                Ok(members.find(member).map(|(rank, score)| (rank as u64, score)))
            }
            SortedSet::Tree(tree) => {
                let hash = MemberHash::of(member);
                for score in scores_in_index(tree, &hash)? {
                    let mut found = None;
                    let rank = tree.elements_below(&order_of(score, member), |leaf| {
                        found = Scored::new(leaf).find_by(hash.fingerprint(), member);
                        found.map_or(0, |(rank, _)| rank)
                    })?;
                    if let Some((_, score)) = found {
                        return Ok(Some((rank, score)));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The member of a rank and its score. Panics: there is none.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn at(&mut self, rank: u64) -> Result<(&[u8], f64), CommandError> {
        match self {
            SortedSet::Leaf { members, .. } => Ok(members.at(rank as usize)),
            SortedSet::Tree(tree) => {
                let (leaf, rank) = tree.leaf_of_nth(rank)?;
                Ok(Scored::new(leaf).at(rank))
            }
        }
    }

    /// Looks for the leaves of members by their ranks, as [`SortedSet::announce`] does.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_ranks(&mut self, ranks: &[u64]) -> CommandResult {
        match self {
            SortedSet::Leaf { .. } => Ok(()),
            SortedSet::Tree(tree) => {
                let mut ascending = ranks.to_vec();
                ascending.sort_unstable();
                tree.announce_nth(ascending.into_iter())
            }
        }
    }

    /// The ranks of the members whose scores are in a range.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn ranks_by_score(&mut self, range: &ScoreRange) -> Result<Range<u64>, CommandError> {
        match self {
            SortedSet::Leaf { members, .. } => {
                let Range { start, end } = members.ranks_by_score(range);
                Ok(start as u64..end as u64)
            }
            SortedSet::Tree(tree) => ranks_by_score(tree, range),
        }
    }

    /// Looks for the leaves of the members in several ranges of scores, which are asked for next. Returns
    /// their ranks.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_scores(
        &mut self,
        ranges: &[ScoreRange],
    ) -> Result<Vec<Range<u64>>, CommandError> {
        let SortedSet::Tree(tree) = self else {
            return ranges.iter().map(|range| self.ranks_by_score(range)).collect();
        };
        let ways = tree.ways(ranges.iter().flat_map(ends))?;
        let ranks = ranges.iter().zip(ways.as_chunks().0);
        let ranks = ranks.map(|(range, ways)| ranks_between(tree, range, ways));
        let ranks = ranks.collect::<Result<Vec<Range<u64>>, CommandError>>()?;
        tree.announce_ranges(&ranks)?;
        Ok(ranks)
    }

    /// The ranks of the members in a range of members. Where scores differ, those that Redis finds when it
    /// goes forwards or `backwards` in a listpack; in a large set, those with the lowest score.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn ranks_by_member(
        &mut self,
        range: &MemberRange<'_>,
        backwards: bool,
    ) -> Result<Range<u64>, CommandError> {
        match self {
            SortedSet::Leaf { members, .. } => {
                let Range { start, end } = members.ranks_by_member(range, backwards);
                Ok(start as u64..end as u64)
            }
            SortedSet::Tree(tree) => ranks_by_member(tree, range),
        }
    }

    /// Visits the members of some ranks, from the first on or from the last one back.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit(
        &mut self,
        ranks: Range<u64>,
        backwards: bool,
        visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> CommandResult {
        match self {
            SortedSet::Leaf { members, .. } => {
                let ranks = ranks.start as usize..ranks.end as usize;
                let _ = members.visit(ranks, backwards, visit);
                Ok(())
            }
            SortedSet::Tree(tree) => visit_ranks(tree, ranks, backwards, visit),
        }
    }

    /// Visits members from a cursor on, about `count` of them and at least one leaf of the index. Returns the
    /// next cursor, 0 at the end. One that is there from the first call to the last is visited, whatever
    /// changes meanwhile.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], f64),
    ) -> Result<u64, CommandError> {
        match self {
            SortedSet::Leaf { members, .. } => {
                members.iter().for_each(|(member, score)| visit(member, score));
                Ok(0)
            }
            SortedSet::Tree(tree) => scan(tree, cursor, count, visit),
        }
    }
}

fn visit_ranks(
    tree: &mut TreeReader<'_>,
    ranks: Range<u64>,
    backwards: bool,
    mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
) -> CommandResult {
    if ranks.end - ranks.start == 1 {
        // Without a list of leaves.
        let (leaf, rank) = tree.leaf_of_nth(ranks.start)?;
        let (member, score) = Scored::new(leaf).at(rank);
        let _ = visit(member, score);
        return Ok(());
    }
    let visited = tree.visit_range(ranks.clone(), backwards, |leaf, of_leaf| {
        let first = ranks.start.max(of_leaf.start) - of_leaf.start;
        let end = ranks.end.min(of_leaf.end) - of_leaf.start;
        Scored::new(leaf).visit(first as usize..end as usize, backwards, &mut visit)
    });
    visited.map(|_| ())
}

/// The scores that a member of a hash may have, by the index: none if it is not there.
#[inline]
fn scores_in_index(
    tree: &mut TreeReader<'_>,
    hash: &MemberHash,
) -> Result<SmallVec<[f64; 2]>, CommandError> {
    tree.in_index(|index| {
        let leaf = index.leaf(&hash.order())?;
        Ok(ScoreIndex::new(leaf).scores(hash).collect())
    })
}

/// Where a range of scores begins and where it ends.
fn ends(range: &ScoreRange) -> [[u8; 8]; 2] {
    let order = |score, is_behind| match is_behind {
        true => order_behind_score(score),
        false => order_of_score(score),
    };
    [order(range.min, range.excludes_min), order(range.max, !range.excludes_max)]
}

fn ranks_by_score(
    tree: &mut TreeReader<'_>,
    range: &ScoreRange,
) -> Result<Range<u64>, CommandError> {
    let [first, last] = ends(range);
    if range.max == f64::INFINITY && !range.excludes_max {
        // It ends with the set: no look for where.
        let start = tree.elements_below(&first, |leaf| {
            Scored::new(leaf).ranks_below(range.min, range.excludes_min)
        })?;
        return Ok(start..tree.elements());
    }
    let ways = tree.ways([first, last].iter())?;
    ranks_between(tree, range, &ways.as_chunks().0[0])
}

/// The same where the ways to both ends are known.
fn ranks_between(
    tree: &mut TreeReader<'_>,
    range: &ScoreRange,
    [first, last]: &[Path; 2],
) -> Result<Range<u64>, CommandError> {
    let start = tree.elements_within(first, |leaf| {
        Scored::new(leaf).ranks_below(range.min, range.excludes_min)
    })?;
    let end = tree.elements_within(last, |leaf| {
        Scored::new(leaf).ranks_below(range.max, !range.excludes_max)
    })?;
    Ok(start..end.max(start))
}

fn ranks_by_member(
    tree: &mut TreeReader<'_>,
    range: &MemberRange<'_>,
) -> Result<Range<u64>, CommandError> {
    let (leaf, first) = tree.leaf_of_nth(0)?;
    let score = Scored::new(leaf).score_at(first);
    let mut below = |end: MemberEnd<'_>, with_equal: bool| -> Result<u64, CommandError> {
        let (member, is_behind) = match end {
            MemberEnd::Lowest => return Ok(0),
            MemberEnd::Highest => return Ok(tree.elements()),
            MemberEnd::Included(member) => (member, with_equal),
            MemberEnd::Excluded(member) => (member, !with_equal),
        };
        tree.elements_below(&order_of(score, member), |leaf| {
            let leaf = Scored::new(leaf);
            let is_there =
                is_behind && leaf.find(member).is_some_and(|(_, its_score)| its_score == score);
            leaf.rank_of_place(score, member) + usize::from(is_there)
        })
    };
    let (start, end) = (below(range.min, false)?, below(range.max, true)?);
    Ok(start..end.max(start))
}

/// Takes leaves of the index from a cursor on, and looks for their members among those with the same scores.
/// Where so many have the same that it takes long, more leaves are taken at once.
fn scan(
    tree: &mut TreeReader<'_>,
    cursor: u64,
    mut count: usize,
    mut visit: impl FnMut(&[u8], f64),
) -> Result<u64, CommandError> {
    let mut wanted_before = 0;
    loop {
        let mut wanted: HashSet<(MemberHash, [u8; 8])> = HashSet::new();
        let next = tree.in_index(|index| {
            index.scan(cursor, count, |leaf| {
                let rows = ScoreIndex::new(leaf).iter();
                wanted.extend(rows.map(|(hash, score)| (hash, order_of_score(score))));
            })
        })?;
        let runs = runs_of(tree, wanted.iter().map(|(_, order)| *order))?;
        let scanned: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let scanned_max = wanted.len() as u64 * SCANNED_PER_MEMBER + SCANNED_FREE;
        // One call takes no more than so many bytes of the index.
        if next != 0 && scanned > scanned_max && wanted.len() > wanted_before {
            wanted_before = wanted.len();
            count = count.max(wanted.len()).saturating_mul(4);
            continue;
        }
        tree.announce_ranges(&runs)?;
        for run in runs {
            visit_ranks(tree, run, false, |member, score| {
                if wanted.contains(&(MemberHash::of(member), order_of_score(score))) {
                    visit(member, score);
                }
                ControlFlow::Continue(())
            })?;
        }
        return Ok(next);
    }
}

/// The ranks of all members with some scores, given by their orders.
fn runs_of(
    tree: &mut TreeReader<'_>,
    orders: impl Iterator<Item = [u8; 8]>,
) -> Result<Vec<Range<u64>>, CommandError> {
    let mut orders: Vec<[u8; 8]> = orders.collect();
    orders.sort_unstable();
    orders.dedup();
    let behind = |order: &[u8; 8]| (u64::from_be_bytes(*order) + 1).to_be_bytes();
    tree.announce(orders.iter().flat_map(|order| [*order, behind(order)]))?;
    let mut below = |place: &[u8; 8]| {
        tree.elements_below(place, |leaf| {
            let members = Scored::new(leaf).iter();
            members.take_while(|(_, score)| order_of_score(*score) < *place).count()
        })
    };
    orders.iter().map(|order| Ok(below(order)?..below(&behind(order))?)).collect()
}

impl Cx<'_, '_> {
    /// The sorted set of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_sorted_set<'s>(
        &'s mut self,
        key: &'s Key<'_>,
    ) -> Result<Option<SortedSet<'s>>, CommandError> {
        match self.find_to_read(key, Kind::is_sorted_set)? {
            Found::Missing => Ok(None),
            Found::Tree(at) => Ok(Some(SortedSet::Tree(self.read_tree_of(self.place_at(key, at))))),
            Found::Leaf(at) => {
                let kind = Kind::from_bits(self.db(key).view_at(at).kind);
                let members = Scored::new(self.read_leaf(key, at)?);
                Ok(Some(SortedSet::Leaf { members, is_packed: kind == Kind::SORTED_SET_PACKED }))
            }
        }
    }
}
