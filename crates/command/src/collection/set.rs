//! Sets: the members of one leaf, or of a tree of leaves by the hashes of members.

use std::ops::{ControlFlow, Range};

use keyspace::{Changed, Expiry, Key};
use value::leaf::members::{Members, MembersMut, SHAPE, leaf_of};
use value::leaf::{element_hash, split_by_hash};
use value::{Kind, parse_i64};

use crate::collection::Found;
use crate::collection::form::{Part, SET, order};
use crate::collection::place::{KnownPaths, LEAF_BYTES_MAX, NodeName};
use crate::collection::reader::TreeReader;
use crate::collection::tree::{LONG_BYTES, SINGLE_BYTES_MAX, Tree};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};

/// Bytes of the leaves that a large set is made of, so that they have room for more.
const MADE_BYTES: usize = LEAF_BYTES_MAX * 3 / 4;

/// A set to be read.
pub enum Set<'a> {
    /// In one leaf.
    Leaf(Members<'a>),
    /// In many.
    Tree(TreeReader<'a>),
}

impl Set<'_> {
    /// How many members.
    #[expect(clippy::len_without_is_empty, reason = "an empty set is a key that does not exist")]
    pub fn len(&self) -> u64 {
        match self {
            Set::Leaf(members) => members.len() as u64,
            Set::Tree(tree) => tree.elements(),
        }
    }

    /// Bytes that all of it takes, about.
    pub fn byte_len(&self) -> u64 {
        match self {
            Set::Leaf(members) => members.byte_len() as u64,
            Set::Tree(tree) => tree.leaf_bytes(),
        }
    }

    /// Looks for the leaves of members that are asked for next, so that all that are on flash are read
    /// together.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce<'m>(&self, members: impl Iterator<Item = &'m [u8]>) -> CommandResult {
        match self {
            Set::Leaf(_) => Ok(()),
            Set::Tree(tree) => tree.announce(members.map(order)),
        }
    }

    /// The same by their positions.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_nth(&self, positions: &[u64]) -> CommandResult {
        match self {
            Set::Leaf(_) => Ok(()),
            Set::Tree(tree) => tree.announce_nth(positions.iter().copied()),
        }
    }

    /// The same of all members.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn announce_all(&self) -> CommandResult {
        match self {
            Set::Leaf(_) => Ok(()),
            Set::Tree(tree) => tree.announce_all(),
        }
    }

    /// Whether it has a member.
    ///
    /// Errors: [`CommandError::NotResident`].
    #[inline]
    pub fn contains(&mut self, member: &[u8]) -> Result<bool, CommandError> {
        match self {
            Set::Leaf(members) => Ok(members.contains(member)),
            Set::Tree(tree) => Ok(Members::new(tree.leaf(&order(member))?).contains(member)),
        }
    }

    /// A member by its position. Panics: there is none.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn at(&mut self, position: u64) -> Result<&[u8], CommandError> {
        match self {
            Set::Leaf(members) => Ok(members.at(position as usize)),
            Set::Tree(tree) => {
                let (leaf, position) = tree.leaf_of_nth(position)?;
                Ok(Members::new(leaf).at(position))
            }
        }
    }

    /// Visits all members.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8])) -> CommandResult {
        match self {
            Set::Leaf(members) => members.iter().for_each(visit),
            Set::Tree(tree) => tree.visit(|leaf| {
                Members::new(leaf).iter().for_each(&mut visit);
                ControlFlow::Continue(())
            })?,
        }
        Ok(())
    }

    /// Visits the members from a cursor on, about `count` of them and at least one leaf. Returns the next
    /// cursor, 0 at the end. One that is there from the first call to the last is visited, whatever
    /// changes meanwhile.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<u64, CommandError> {
        match self {
            Set::Leaf(members) => {
                members.iter().for_each(visit);
                Ok(0)
            }
            Set::Tree(tree) => {
                tree.scan(cursor, count, |leaf| Members::new(leaf).iter().for_each(&mut visit))
            }
        }
    }
}

/// A set to be changed.
pub struct SetMut<'a, 't> {
    form: FormMut<'a, 't>,
    integers_max: u64,
    is_changed: bool,
}

enum FormMut<'a, 't> {
    Leaf(&'a mut Kind, MembersMut<'a>),
    Tree(&'a mut Tree<'t>),
}

impl SetMut<'_, '_> {
    fn len(&self) -> u64 {
        match &self.form {
            FormMut::Leaf(_, members) => members.members().len() as u64,
            FormMut::Tree(tree) => tree.elements(),
        }
    }

    /// Adds a member. Returns whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let (is_new, kind) = match &mut self.form {
            FormMut::Leaf(kind, members) => (members.add(member), **kind),
            FormMut::Tree(tree) => {
                let is_new = change_unless(tree, member, true);
                (is_new, if is_new { tree.kind() } else { Kind::SET })
            }
        };
        self.is_changed |= is_new;
        if is_new && kind == Kind::SET_INTEGERS {
            let are_few = self.len() <= self.integers_max;
            if !are_few || parse_i64(member).is_none() {
                self.set_kind(Kind::SET);
            }
        }
        is_new
    }

    /// Removes a member. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let is_removed = match &mut self.form {
            FormMut::Leaf(_, members) => members.remove(member),
            FormMut::Tree(tree) => !tree.is_gone() && change_unless(tree, member, false),
        };
        self.is_changed |= is_removed;
        is_removed
    }

    fn set_kind(&mut self, new: Kind) {
        match &mut self.form {
            FormMut::Leaf(kind, _) => **kind = new,
            FormMut::Tree(tree) if tree.is_gone() => {}
            FormMut::Tree(tree) => tree.set_encoding(new.encoding()),
        }
    }

    /// Removes the members at positions, which ascend. Panics: there are fewer members.
    pub fn remove_all_at(&mut self, positions: &[u64]) {
        self.is_changed |= !positions.is_empty();
        match &mut self.form {
            FormMut::Leaf(_, members) => {
                let positions: Vec<usize> = positions.iter().map(|&at| at as usize).collect();
                members.remove_all_at(&positions);
            }
            FormMut::Tree(tree) => {
                // From the last leaf on, so that the others stay where they are.
                let mut rest = positions;
                while let Some(&last) = rest.last() {
                    let (path, at) = tree.place.find_nth(tree.slot, last);
                    let start = last - at as u64;
                    let first = rest.partition_point(|&position| position < start);
                    let of_leaf = rest[first..].iter().map(|position| (position - start) as usize);
                    let of_leaf: Vec<usize> = of_leaf.collect();
                    tree.change_leaf(path, |leaf| MembersMut::new(leaf).remove_all_at(&of_leaf));
                    rest = &rest[..first];
                }
            }
        }
    }
}

/// Adds a member to a tree if it has none, or removes it if it has it. Returns whether that was so.
fn change_unless(tree: &mut Tree<'_>, member: &[u8], adds: bool) -> bool {
    let path = tree.find(&order(member));
    let leaf = match tree.leaf_in_ram(&path) {
        Some(leaf) if Members::new(leaf).contains(member) == adds => return false,
        Some(leaf) => leaf,
        // The leaf where it stood was removed with its last member, and it falls to a neighbour now.
        None if !adds => return false,
        None => unreachable!("the leaf was made resident"),
    };
    if adds
        && leaf.len() + member.len() >= LONG_BYTES
        && let Some(split) = split_by_hash(leaf, element_hash(member))
    {
        tree.put_apart(path, split, leaf_of(&[member]));
        return true;
    }
    tree.change_leaf(path, |leaf| match adds {
        true => MembersMut::new(leaf).push_new(member),
        false => assert!(MembersMut::new(leaf).remove(member), "it was there"),
    });
    true
}

impl Cx<'_, '_> {
    /// The set of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    #[inline]
    pub fn read_set<'s>(&'s mut self, key: &'s Key<'_>) -> Result<Option<Set<'s>>, CommandError> {
        match self.find_to_read(key, Kind::is_set)? {
            Found::Missing => Ok(None),
            Found::Leaf(at) => Ok(Some(Set::Leaf(Members::new(self.read_leaf(key, at)?)))),
            Found::Tree(at) => Ok(Some(Set::Tree(self.read_tree_of(self.place_at(key, at))))),
        }
    }

    /// The set of a key that [`Cx::read_set`] has found in the same run, which is no further access.
    pub fn set_again<'s>(&'s mut self, key: &'s Key<'_>) -> Option<Set<'s>> {
        let fetched = self.fetched;
        let is_tree = Kind::from_bits(self.peek(key)?.kind).is_tree();
        if is_tree {
            return Some(Set::Tree(self.read_tree(key)));
        }
        let bytes = match self.peek(key)?.stored {
            keyspace::Stored::Hot(bytes) | keyspace::Stored::Clean(bytes, _) => bytes,
            keyspace::Stored::Cold(at, _) => fetched.value(at)?,
        };
        Some(Set::Leaf(Members::new(bytes)))
    }

    /// Copies of the leaves of such a set, of a large one those at these positions.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn copy_set(
        &mut self,
        key: &Key<'_>,
        leaves: Range<usize>,
    ) -> Result<Vec<Vec<u8>>, CommandError> {
        match self.set_again(key) {
            None => Ok(Vec::new()),
            Some(Set::Leaf(members)) => Ok(vec![members.bytes().to_vec()]),
            Some(Set::Tree(mut tree)) => {
                let mut copies = Vec::new();
                tree.visit_some(leaves, |leaf| copies.push(leaf.to_vec()))?;
                Ok(copies)
            }
        }
    }

    /// Looks for all leaves of several sets, which are read next.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub fn announce_sets<'s>(&mut self, keys: impl Iterator<Item = &'s Key<'s>>) -> CommandResult {
        let trees = keys
            .filter(|key| self.peek(key).is_some_and(|view| Kind::from_bits(view.kind).is_tree()));
        let trees: Vec<Key<'_>> = trees.copied().collect();
        self.announce_trees(&trees)
    }

    /// Changes the set of a key, an empty one if the key does not exist; it does not afterwards if the
    /// set is empty. Of a large one, no other members than `members` are looked at or changed.
    ///
    /// Errors: as [`Cx::read_set`]; nothing is changed then.
    pub fn edit_set<'m, R>(
        &mut self,
        key: &Key<'_>,
        members: impl Iterator<Item = &'m [u8]>,
        change: impl FnOnce(&mut SetMut<'_, '_>) -> R,
    ) -> Result<R, CommandError> {
        let found = self.find_to_edit(key, Kind::is_set)?;
        let known = match found {
            Found::Tree(at) => self.promote_leaves(self.place_at(key, at), members.map(order))?,
            _ => KnownPaths::default(),
        };
        Ok(self.edit_found_set((key, found, known), change))
    }

    /// The same with the members at positions.
    ///
    /// Errors: as [`Cx::read_set`]; nothing is changed then.
    pub fn edit_set_at<R>(
        &mut self,
        key: &Key<'_>,
        positions: &[u64],
        change: impl FnOnce(&mut SetMut<'_, '_>) -> R,
    ) -> Result<R, CommandError> {
        let found = self.find_to_edit(key, Kind::is_set)?;
        if let Found::Tree(at) = found {
            let place = self.place_at(key, at);
            let slot = &*self.locked.slot(key.slot);
            let mut names: Vec<NodeName> = Vec::new();
            for &position in positions {
                let name = place.find_nth(slot, position).0.name();
                if names.last() != Some(&name) {
                    names.push(name);
                }
            }
            self.promote_named(place, names)?;
        }
        Ok(self.edit_found_set((key, found, KnownPaths::default()), change))
    }

    #[inline]
    fn edit_found_set<R>(
        &mut self,
        (key, found, known): (&Key<'_>, Found, KnownPaths),
        change: impl FnOnce(&mut SetMut<'_, '_>) -> R,
    ) -> R {
        let integers_max = self.encodings.intset_entries_max();
        let Found::Tree(at) = found else {
            let empty = (Kind::SET_INTEGERS, &SHAPE.empty()[..]);
            return self.edit_leaf((key, found), empty, &SET, |kind, leaf| {
                let form = FormMut::Leaf(kind, MembersMut::new(leaf));
                let mut set = SetMut { form, integers_max, is_changed: false };
                let result = change(&mut set);
                if set.is_changed { Changed::Yes(result) } else { Changed::No(result) }
            });
        };
        let place = self.place_at(key, at);
        let mut tree = self.edit_tree_of(place, &SET);
        tree.known = known;
        let form = FormMut::Tree(&mut tree);
        let mut set = SetMut { form, integers_max, is_changed: false };
        let result = change(&mut set);
        tree.settle();
        result
    }

    /// Gives a set, all of which is in RAM or was fetched, the kind of a new one with its members.
    pub fn renew_set_kind(&mut self, key: &Key<'_>) -> CommandResult {
        let integers_max = self.encodings.intset_entries_max();
        let Some(mut set) = self.set_again(key) else { return Ok(()) };
        let mut kind = KindOfSet::new(set.len(), integers_max);
        set.visit(|member| kind.add(member))?;
        self.edit_set_at(key, &[], |set| {
            set.is_changed = true;
            set.set_kind(kind.kind());
        })
    }

    /// Sets a key to a set of members that are all different, whatever the key held; without members the
    /// key is removed. It does not expire. `event` is reported where there are members.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn store_set(
        &mut self,
        key: &Key<'_>,
        kind: Kind,
        members: &[&[u8]],
        event: Event,
    ) -> CommandResult {
        if members.is_empty() {
            self.remove(key);
            return Ok(());
        }
        self.put_set(key, kind, members)?;
        self.report(key, event, 1);
        Ok(())
    }

    /// The same of one member at least, and nothing is reported.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn put_set(&mut self, key: &Key<'_>, kind: Kind, members: &[&[u8]]) -> CommandResult {
        let rows_bytes: usize = members.iter().map(|member| SHAPE.row_bytes(&[member])).sum();
        let bytes = SHAPE.empty().len() + rows_bytes;
        self.check_memory(bytes)?;
        let mut parts = if bytes > SINGLE_BYTES_MAX { parts_of(members) } else { Vec::new() };
        if parts.len() > 1 {
            let id = self.keyspace().take_collection_id();
            let root = self.edit_tree(key, &SET).build(id, kind.encoding(), parts.drain(..));
            self.db(key).put_vec(key, kind.as_tree().bits(), root, Expiry::Clear);
        } else {
            self.db(key).put_vec(key, kind.bits(), leaf_of(members), Expiry::Clear);
        }
        Ok(())
    }

    /// Limits of the encoding of a set.
    pub fn kind_of_set(&self, len: u64) -> KindOfSet {
        KindOfSet::new(len, self.encodings.intset_entries_max())
    }
}

/// The leaves of a large set with these members.
fn parts_of(members: &[&[u8]]) -> Vec<Part> {
    let mut by_hash: Vec<(u64, &[u8])> =
        members.iter().map(|member| (element_hash(member), *member)).collect();
    by_hash.sort_unstable_by_key(|&(hash, _)| hash);
    let mut parts: Vec<Part> = Vec::new();
    let (mut start, mut bytes, mut bound) = (0, 0, Vec::new());
    for at in 0..by_hash.len() {
        let row_bytes = SHAPE.row_bytes(&[by_hash[at].1]);
        let differs = at > start && by_hash[at - 1].0 != by_hash[at].0;
        if differs && bytes + row_bytes > MADE_BYTES {
            let leaf: Vec<&[u8]> = by_hash[start..at].iter().map(|&(_, member)| member).collect();
            let next = value::leaf::bound_between(by_hash[at - 1].0, by_hash[at].0);
            parts.push((std::mem::replace(&mut bound, next), leaf_of(&leaf)));
            (start, bytes) = (at, 0);
        }
        bytes += row_bytes;
    }
    let leaf: Vec<&[u8]> = by_hash[start..].iter().map(|&(_, member)| member).collect();
    parts.push((bound, leaf_of(&leaf)));
    parts
}

/// The kind of a new set, found out member by member.
pub struct KindOfSet(bool);

impl KindOfSet {
    fn new(len: u64, integers_max: u64) -> KindOfSet {
        KindOfSet(len <= integers_max)
    }

    /// Takes a member into account.
    pub fn add(&mut self, member: &[u8]) {
        self.0 = self.0 && parse_i64(member).is_some();
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        if self.0 { Kind::SET_INTEGERS } else { Kind::SET }
    }
}
