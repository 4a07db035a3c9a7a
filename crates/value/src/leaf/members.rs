//! The leaf of a set: members in the order in which they were added.

use crate::leaf::fingerprint;
use crate::leaf::rows::{Damaged, Rows, RowsMut, Shape};

/// The rows of a set: a member.
pub const SHAPE: Shape = Shape { parts: 1, fingerprints: true, ..Shape::NOTHING };

/// So many members are put into a leaf, or taken out, one by one; more would cost a pass over the leaf
/// each.
const SINGLY_MAX: usize = 64;

/// A set to be read.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a>(Rows<'a>);

impl<'a> Members<'a> {
    /// The set in a leaf. Panics, there or later: the bytes are none.
    #[inline]
    pub fn new(leaf: &'a [u8]) -> Members<'a> {
        Members(Rows::new(leaf))
    }

    /// The set in bytes from elsewhere. Cost: linear in its members.
    ///
    /// Errors: they are none.
    pub fn check(bytes: &'a [u8]) -> Result<Members<'a>, Damaged> {
        let rows = Rows::check(bytes)?;
        if rows.shape() == SHAPE { Ok(Members(rows)) } else { Err(Damaged) }
    }

    /// How many members.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty set is a key that does not exist")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The leaf.
    pub fn bytes(&self) -> &'a [u8] {
        self.0.bytes()
    }

    /// Bytes that all of it takes.
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// Whether it has a member.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.0.find(fingerprint(member), member).is_some()
    }

    /// A member by its position. Panics: there is none.
    pub fn at(&self, position: usize) -> &'a [u8] {
        self.0.first(position)
    }

    /// All members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.0.iter().map(|row| row.first)
    }
}

/// A set to be changed.
pub struct MembersMut<'a>(RowsMut<'a>);

impl<'a> MembersMut<'a> {
    /// The set in a leaf. Panics, there or later: the bytes are none.
    pub fn new(leaf: &'a mut Vec<u8>) -> MembersMut<'a> {
        MembersMut(RowsMut::new(leaf))
    }

    /// The set to be read.
    pub fn members(&self) -> Members<'_> {
        Members(self.0.rows())
    }

    /// Adds a member. Returns whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let fingerprint = fingerprint(member);
        let is_new = self.0.rows().find(fingerprint, member).is_none();
        if is_new {
            self.0.push(fingerprint, 0, &[member]);
        }
        is_new
    }

    /// Adds a member that the set is known not to have.
    pub fn push_new(&mut self, member: &[u8]) {
        self.0.push(fingerprint(member), 0, &[member]);
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let row = self.0.rows().find(fingerprint(member), member);
        if let Some(row) = row {
            self.remove_at(row);
        }
        row.is_some()
    }

    /// Removes the member at a position. Panics: there is none.
    pub fn remove_at(&mut self, position: usize) {
        self.0.remove(position..position + 1);
    }

    /// Removes the members at positions, which ascend. Panics: there are fewer members.
    pub fn remove_all_at(&mut self, positions: &[usize]) {
        if positions.len() <= SINGLY_MAX {
            // From the last one on, so that the others stay where they are.
            return positions.iter().rev().for_each(|&position| self.remove_at(position));
        }
        let count = self.members().len();
        let mut removed = positions.iter().copied().peekable();
        let is_kept = |(position, _): &(usize, &[u8])| removed.next_if_eq(position).is_none();
        let kept = self.members().iter().enumerate().filter(is_kept).map(|(_, member)| member);
        let kept = leaf_of(&kept.collect::<Vec<_>>());
        assert_eq!(Rows::new(&kept).len(), count - positions.len(), "positions of the set");
        self.0.remove(0..count);
        self.0.append(Rows::new(&kept));
    }
}

/// The leaf of members that are all different. Cost: a few passes over them.
pub fn leaf_of(members: &[&[u8]]) -> Vec<u8> {
    if members.len() > SINGLY_MAX {
        let (front, back) = members.split_at(members.len() / 2);
        let (mut leaf, back) = (leaf_of(front), leaf_of(back));
        RowsMut::new(&mut leaf).append(Rows::new(&back));
        return leaf;
    }
    let mut leaf = SHAPE.empty().to_vec();
    let mut set = MembersMut::new(&mut leaf);
    members.iter().for_each(|member| set.push_new(member));
    leaf
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Vec<u8> {
        // Some are so long that a byte does not tell their length.
        format!("m{number}{}", "-".repeat(if number % 50 == 7 { 300 } else { number % 9 })).into()
    }

    fn assert_members(leaf: &[u8], expected: impl Iterator<Item = usize>) {
        let set = Members::check(leaf).expect("a set");
        let expected: Vec<Vec<u8>> = expected.map(name).collect();
        assert_eq!(set.len(), expected.len());
        assert_eq!(set.byte_len(), leaf.len());
        assert!(set.iter().eq(expected.iter().map(Vec::as_slice)));
        for (position, member) in expected.iter().enumerate() {
            assert_eq!(set.at(position), member);
            assert!(set.contains(member));
        }
    }

    #[test]
    fn members_are_added_and_removed_and_keep_their_order() {
        let mut leaf = SHAPE.empty().to_vec();
        let mut set = MembersMut::new(&mut leaf);
        for number in 0..300 {
            assert!(set.add(&name(number)));
            assert!(!set.add(&name(number)));
        }
        assert!(set.remove(&name(7)) && !set.remove(&name(7)) && !set.remove(b"none"));
        set.remove_at(0);
        set.push_new(&name(300));
        assert!(!set.members().contains(&name(0)) && set.members().contains(&name(300)));
        assert_members(&leaf, (1..=300).filter(|&number| number != 7));
    }

    #[test]
    fn a_leaf_is_made_of_any_number_of_members() {
        for count in [0, 1, SINGLY_MAX, SINGLY_MAX + 1, 1_000] {
            let names: Vec<Vec<u8>> = (0..count).map(name).collect();
            let leaf = leaf_of(&names.iter().map(Vec::as_slice).collect::<Vec<_>>());
            assert_members(&leaf, 0..count);
        }
    }

    #[test]
    fn any_number_of_members_is_removed_at_once() {
        let names: Vec<Vec<u8>> = (0..500).map(name).collect();
        let leaf = leaf_of(&names.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for step in [1, 2, 7, 8, 400] {
            let mut leaf = leaf.clone();
            let positions: Vec<usize> = (0..500).step_by(step).collect();
            MembersMut::new(&mut leaf).remove_all_at(&positions);
            assert_members(&leaf, (0..500).filter(|number| number % step != 0));
        }
    }

    #[test]
    fn leaves_of_other_types_are_no_sets() {
        for shape in [Shape { parts: 2, ..SHAPE }, Shape { numbers: true, ..SHAPE }] {
            assert!(Members::check(&shape.empty()).is_err());
        }
        assert!(Members::check(&SHAPE.empty()).is_ok());
        assert!(Members::check(b"").is_err());
    }
}
