//! Changes of sorted sets.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use keyspace::{Changed, Expiry, Key, Stored};
use smallvec::SmallVec;
use value::Kind;
use value::leaf::branch::RootMut;
use value::leaf::rows::ROWS_MAX;
use value::leaf::score_index::{MemberHash, ScoreIndex, ScoreIndexMut, leaves_of};
use value::leaf::scored::{SHAPE, Scored, ScoredMut, compare, leaf_of, order_of, split_at};

use crate::collection::form::{SCORE_INDEX, SORTED_SET};
use crate::collection::place::{KnownPaths, LEAF_BYTES_MAX, NodeName, Path, Place};
use crate::collection::tree::{LONG_BYTES, SINGLE_BYTES_MAX, Tree};
use crate::collection::{Found, PackedMax, has_long};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};

/// So many changes are made in a leaf one by one; more would cost a pass over the leaf each.
const SINGLY_MAX: usize = 64;

/// Bytes that the change of a member takes beside the member: itself, its hash, the names of leaves.
const CHANGE_BYTES: u64 = 176;

/// What becomes of a member of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreChange<'m> {
    /// The member.
    pub member: &'m [u8],
    /// Its score so far. None: it is not there.
    pub old: Option<f64>,
    /// Its score afterwards. None: it is removed.
    pub new: Option<f64>,
    /// How many of the changes had been begun when it got that score: it may have had another one before.
    pub begun: usize,
}

impl<'m> ScoreChange<'m> {
    /// A member that has that score is removed.
    pub fn removal(member: &'m [u8], score: f64) -> ScoreChange<'m> {
        ScoreChange { member, old: Some(score), new: None, begun: 0 }
    }
}

/// How Redis would keep a sorted set that is made or changed.
struct Packing {
    is_packed: bool,
    packed_max: PackedMax,
    /// Members so far.
    len: u64,
}

impl Packing {
    /// Takes a member in, new or not. One that does not fit makes a skiplist of a listpack.
    fn take(&mut self, member: &[u8], is_new: bool) {
        let PackedMax { entries, element_bytes } = self.packed_max;
        self.len += u64::from(is_new);
        self.is_packed &= self.len <= entries && member.len() as u64 <= element_bytes;
    }

    /// Takes all changes in. Returns them with the scores that are stored: a listpack has no negative zero.
    fn take_all<'m>(&mut self, changes: &[ScoreChange<'m>]) -> SmallVec<[ScoreChange<'m>; 1]> {
        let mut packed = 0;
        for change in changes {
            if change.new.is_some() {
                self.take(change.member, change.old.is_none());
            } else {
                self.len -= 1;
            }
            packed += usize::from(self.is_packed);
        }
        let store = |change: &ScoreChange<'m>| {
            let is_packed = change.begun <= packed;
            let new = if is_packed { change.new.map(without_negative_zero) } else { change.new };
            ScoreChange { new, ..*change }
        };
        changes.iter().map(store).collect()
    }

    fn kind(&self) -> Kind {
        if self.is_packed { Kind::SORTED_SET_PACKED } else { Kind::SORTED_SET }
    }
}

fn without_negative_zero(score: f64) -> f64 {
    // The sum of zeros of both signs is positive.
    score + 0.0
}

/// In which order Redis makes a sorted set from members, which decides about negative zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Member by member, a listpack as long as they fit.
    OneByOne,
    /// A skiplist, which becomes a listpack in the end if its members fit.
    AtOnce,
    /// A listpack as a whole, which it stays if it has few members, however long they are.
    Packed,
}

impl Cx<'_, '_> {
    /// Changes members of the sorted set of a key, an empty one if the key does not exist; it does not exist
    /// afterwards if no member is left. The members are all different, and what is said of their scores holds.
    ///
    /// Errors: as [`Cx::read_sorted_set`], [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn change_sorted_set(
        &mut self,
        key: &Key<'_>,
        changes: &[ScoreChange<'_>],
    ) -> CommandResult {
        let added = changes.iter().filter(|change| change.old.is_none() && change.new.is_some());
        if has_long(added.map(|change| change.member)) {
            self.spread(key, Kind::is_sorted_set)?;
        }
        let found = self.find_to_edit(key, Kind::is_sorted_set)?;
        if let Found::Tree(at) = found {
            return self.change_tree(self.place_at(key, at), changes);
        }
        let (packed_max, bytes_max) = (self.encodings.sorted_set(), self.limits.memory_bytes_max());
        let empty = (Kind::SORTED_SET_PACKED, &SHAPE.empty()[..]);
        self.edit_leaf((key, found), empty, &SORTED_SET, |kind, leaf| {
            if let Err(error) = check_room(leaf, changes, bytes_max) {
                return Changed::No(Err(error));
            }
            let is_packed = *kind == Kind::SORTED_SET_PACKED;
            let len = Scored::new(leaf).len() as u64;
            let mut packing = Packing { is_packed, packed_max, len };
            let changes = packing.take_all(changes);
            if changes.len() <= SINGLY_MAX {
                change_singly(leaf, &changes);
            } else {
                change_all(leaf, &changes);
            }
            *kind = packing.kind();
            Changed::Yes(Ok(()))
        })
    }

    fn change_tree(&mut self, place: Place<'_>, changes: &[ScoreChange<'_>]) -> CommandResult {
        let hashes: SmallVec<[MemberHash; 1]> =
            changes.iter().map(|change| MemberHash::of(change.member)).collect();
        let [of_index, of_members] = self.promote_changed(place, changes, &hashes)?;
        let packed_max = self.encodings.sorted_set();
        let mut tree = self.edit_tree_of(place, &SORTED_SET);
        let is_packed = tree.kind() == Kind::SORTED_SET_PACKED;
        let mut packing = Packing { is_packed, packed_max, len: tree.elements() };
        let changes = packing.take_all(changes);
        tree.set_encoding(packing.kind().encoding());
        tree.in_index(&SCORE_INDEX, |index| {
            index.known = of_index;
            change_index(index, &changes, &hashes);
        });
        tree.known = of_members;
        change_members(&mut tree, &changes);
        tree.settle();
        Ok(())
    }

    /// Puts the leaves into RAM that changes need: those of the index, and those where the members stand or
    /// will stand. Returns the ways to them if there is one change.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn promote_changed(
        &mut self,
        place: Place<'_>,
        changes: &[ScoreChange<'_>],
        hashes: &[MemberHash],
    ) -> Result<[KnownPaths; 2], CommandError> {
        let slot = &*self.locked.slot(place.key.slot);
        let index = place.of_index(slot);
        let mut names: SmallVec<[NodeName; 3]> = SmallVec::new();
        let mut known = [KnownPaths::default(), KnownPaths::default()];
        let mut add = |place: &Place<'_>, order: &[u8], known: &mut KnownPaths| {
            let path = place.find(slot, order);
            if let Stored::Cold(..) = place.view_found(slot, &path).stored {
                names.push(path.name());
            }
            if changes.len() == 1 {
                known.push(order, path);
            }
        };
        for hash in hashes {
            add(&index, &hash.order(), &mut known[0]);
        }
        for &ScoreChange { member, old, new, .. } in changes {
            // The order in which they are changed.
            for score in new.into_iter().chain(old) {
                add(&place, &order_of(score, member), &mut known[1]);
            }
        }
        if !names.is_empty() {
            self.promote_named(place, names.into_vec())?;
        }
        Ok(known)
    }

    /// Removes the members of some ranks from the sorted set of a key.
    ///
    /// Errors: as [`Cx::read_sorted_set`], [`CommandError::OUT_OF_MEMORY`] if so many are removed from a large
    /// one that memory has no room for their names; nothing is changed then.
    pub fn remove_ranks(&mut self, key: &Key<'_>, ranks: Range<u64>) -> CommandResult {
        let found = self.find_to_edit(key, Kind::is_sorted_set)?;
        if let Found::Tree(_) = found {
            return self.remove_ranks_of_tree(key, ranks);
        }
        let empty = (Kind::SORTED_SET_PACKED, &SHAPE.empty()[..]);
        self.edit_leaf((key, found), empty, &SORTED_SET, |_kind, leaf| {
            ScoredMut::new(leaf).remove_ranks(ranks.start as usize..ranks.end as usize);
            Changed::Yes(())
        });
        Ok(())
    }

    fn remove_ranks_of_tree(&mut self, key: &Key<'_>, ranks: Range<u64>) -> CommandResult {
        let bytes_max = self.limits.memory_bytes_max() as u64;
        let mut copies = Copies::default();
        if let Some(mut set) = self.read_sorted_set(key)? {
            if ranks == (0..set.len()) {
                self.db(key).remove(key);
                return Ok(());
            }
            let removed = ranks.end - ranks.start;
            let bytes = set.bytes_of(removed);
            if bytes + removed * CHANGE_BYTES > bytes_max {
                return Err(CommandError::OUT_OF_MEMORY);
            }
            copies.reserve(removed as usize, bytes as usize);
            set.visit(ranks, false, |member, score| {
                copies.push(member, score);
                ControlFlow::Continue(())
            })?;
        }
        let removed = |(score, member)| ScoreChange::removal(member, score);
        let changes: Vec<ScoreChange<'_>> = copies.members().into_iter().map(removed).collect();
        self.change_tree(self.place(key), &changes)
    }

    /// Sets a key to a sorted set of members that are all different, whatever the key held; without members
    /// the key is removed. It does not expire. However large it is, it is in one leaf until
    /// [`Cx::end_stored_sorted_set`], so that the caller may let go of what it has made the members of before.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn store_sorted_set(
        &mut self,
        key: &Key<'_>,
        members: &mut [(f64, &[u8])],
        made: Made,
    ) -> CommandResult {
        if members.is_empty() {
            self.remove(key);
            return Ok(());
        }
        self.put_sorted_set(key, members, made)
    }

    /// Makes a tree of a sorted set that was stored, if it is large, and reports `event` for so many changes,
    /// unless it has no members.
    pub fn end_stored_sorted_set(&mut self, key: &Key<'_>, (event, changes): (Event, u64)) {
        if self.exists(key) {
            self.settle_sorted_set(key);
            self.report(key, event, changes);
        }
    }

    /// The same of one member at least. [`Cx::settle_sorted_set`] ends it.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn put_sorted_set(
        &mut self,
        key: &Key<'_>,
        members: &mut [(f64, &[u8])],
        made: Made,
    ) -> CommandResult {
        let rows_bytes: usize = members.iter().map(|(_, member)| SHAPE.row_bytes(&[member])).sum();
        self.check_memory(SHAPE.empty().len() + rows_bytes)?;
        if members.len() > ROWS_MAX {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        let mut packed_max = self.encodings.sorted_set();
        if made == Made::Packed {
            packed_max.element_bytes = u64::MAX;
        }
        let mut packing = Packing { is_packed: true, packed_max, len: 0 };
        for (score, member) in members.iter_mut() {
            packing.take(member, true);
            if made == Made::OneByOne && packing.is_packed {
                *score = without_negative_zero(*score);
            }
        }
        if packing.is_packed {
            members.iter_mut().for_each(|(score, _)| *score = without_negative_zero(*score));
        }
        members.sort_unstable_by(|one, two| compare(*one, *two));
        let leaf = leaf_of(members.iter().copied());
        self.db(key).put_vec(key, packing.kind().bits(), leaf, Expiry::Clear);
        Ok(())
    }

    /// Makes a tree of a sorted set that was put as one leaf, if that is large.
    pub fn settle_sorted_set(&mut self, key: &Key<'_>) {
        if self.peek(key).is_some_and(|view| view.value_len() > SINGLE_BYTES_MAX) {
            self.grow_sorted_set(key, 2);
        }
    }

    /// Lets the sorted set of a key, which exists, be one that Redis would keep in a skiplist.
    pub fn unpack_sorted_set(&mut self, key: &Key<'_>) {
        let Some(view) = self.peek(key) else { return };
        match Kind::from_bits(view.kind) {
            Kind::SORTED_SET_PACKED => self.db(key).set_kind(key, Kind::SORTED_SET.bits()),
            // Nobody who watches the key is told: it holds what it held.
            kind if kind.is_tree() => {
                self.db(key).update_unwatched(key, |_, root| {
                    RootMut::new(root).set_encoding(Kind::SORTED_SET.encoding());
                });
            }
            _ => {}
        }
    }

    /// Makes a tree, and its index, of a sorted set in one leaf that is in RAM, if it can be divided into so many
    /// leaves.
    pub(super) fn grow_sorted_set(&mut self, key: &Key<'_>, leaves_min: usize) {
        let id = self.keyspace().take_collection_id();
        let view = self.peek(key).expect("invariant: it is large");
        let (Stored::Hot(leaf) | Stored::Clean(leaf, _)) = view.stored else {
            panic!("a value that was just changed is in RAM")
        };
        let members = Scored::new(leaf).iter();
        let mut hashes: Vec<(MemberHash, f64)> =
            members.map(|(member, score)| (MemberHash::of(member), score)).collect();
        hashes.sort_unstable_by_key(|(hash, _)| *hash);
        self.edit_tree(key, &SORTED_SET).grow(id, leaves_min);
        // A leaf of one member cannot be divided.
        let is_tree = self.peek(key).is_some_and(|view| Kind::from_bits(view.kind).is_tree());
        if is_tree {
            let leaves = leaves_of(hashes.into_iter(), LEAF_BYTES_MAX);
            self.edit_tree(key, &SORTED_SET).put_index(&SCORE_INDEX, leaves.into_iter());
        }
    }
}

/// Whether a leaf may become as large as changes make it.
///
/// Errors: [`CommandError::OUT_OF_MEMORY`].
fn check_room(leaf: &[u8], changes: &[ScoreChange<'_>], bytes_max: usize) -> CommandResult {
    let members = Scored::new(leaf);
    let (mut rows, mut bytes) = (members.len(), members.byte_len_max());
    for change in changes {
        if change.old.is_none() && change.new.is_some() {
            rows += 1;
            bytes += SHAPE.row_bytes(&[change.member]);
        }
    }
    if rows > ROWS_MAX || (bytes > bytes_max && bytes > members.byte_len_max()) {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    Ok(())
}

fn change_singly(leaf: &mut Vec<u8>, changes: &[ScoreChange<'_>]) {
    let mut set = ScoredMut::new(leaf);
    for &ScoreChange { member, old, new, .. } in changes {
        match (old, new) {
            (None, Some(score)) => set.insert(member, score),
            (Some(_), Some(score)) => set.set_score(member, score),
            (Some(score), None) => set.remove_scored(member, score),
            (None, None) => {}
        }
    }
}

/// Makes the leaf anew, with one pass for all changes.
fn change_all(leaf: &mut Vec<u8>, changes: &[ScoreChange<'_>]) {
    let old = std::mem::take(leaf);
    let mut members: HashMap<&[u8], f64> = Scored::new(&old).iter().collect();
    for change in changes {
        match change.new {
            Some(score) => members.insert(change.member, score),
            None => members.remove(change.member),
        };
    }
    let mut members: Vec<(f64, &[u8])> =
        members.into_iter().map(|(member, score)| (score, member)).collect();
    members.sort_unstable_by(|one, two| compare(*one, *two));
    *leaf = leaf_of(members.iter().copied());
}

/// Changes the index of a tree. What is removed goes last: a leaf that becomes empty goes with it, and its
/// neighbour, to which its places fall, may be on flash.
fn change_index(index: &mut Tree<'_>, changes: &[ScoreChange<'_>], hashes: &[MemberHash]) {
    let hashed = || changes.iter().zip(hashes);
    for (change, hash) in hashed() {
        let Some(new) = change.new else { continue };
        let path = index.find(&hash.order());
        if let Some(old) = change.old {
            let leaf = index.leaf_in_ram(&path).expect("invariant: the leaf was made resident");
            let (start, score) = ScoreIndex::new(leaf).place_of(hash, old, new);
            index.write(&path, start, &score);
        } else {
            index.change_leaf(path, |leaf| ScoreIndexMut::new(leaf).add(hash, new));
        }
    }
    for (change, hash) in hashed().filter(|(change, _)| change.new.is_none()) {
        if let Some(old) = change.old {
            index.change_leaf_at(&hash.order(), |leaf| ScoreIndexMut::new(leaf).remove(hash, old));
        }
    }
}

/// Changes the leaves of a tree, in the same order. A member that moves from a leaf to another is in both
/// meanwhile.
fn change_members(tree: &mut Tree<'_>, changes: &[ScoreChange<'_>]) {
    let mut removed: SmallVec<[(f64, &[u8]); 1]> = SmallVec::new();
    for &ScoreChange { member, old, new, .. } in changes {
        let Some(new) = new else {
            removed.extend(old.map(|score| (score, member)));
            continue;
        };
        let to = tree.find(&order_of(new, member));
        if let Some(old) = old {
            let order = order_of(old, member);
            let from = tree.find(&order);
            if from.leaf.node == to.leaf.node {
                tree.change_leaf(to, |leaf| ScoredMut::new(leaf).set_score(member, new));
                continue;
            }
            if removed.is_empty() {
                tree.known.push(&order, from);
            }
            removed.push((old, member));
        }
        insert(tree, to, (new, member));
    }
    for (score, member) in removed {
        tree.change_leaf_at(&order_of(score, member), |leaf| {
            ScoredMut::new(leaf).remove_scored(member, score);
        });
    }
}

/// Inserts a member into the leaf at the end of a path, or, if it or that is long, into one of its own beside it.
fn insert(tree: &mut Tree<'_>, path: Path, (score, member): (f64, &[u8])) {
    let leaf = tree.leaf_in_ram(&path).expect("invariant: the leaf was made resident");
    if leaf.len() + member.len() < LONG_BYTES {
        return tree.change_leaf(path, |leaf| ScoredMut::new(leaf).insert(member, score));
    }
    let split = split_at(leaf, score, member);
    tree.put_apart(path, split, leaf_of([(score, member)].into_iter()));
}

/// Copies of members with their scores.
#[derive(Default)]
pub struct Copies {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<(f64, usize)>,
}

impl Copies {
    /// Adds a member.
    pub fn push(&mut self, member: &[u8], score: f64) {
        self.bytes.extend_from_slice(member);
        self.ends.push((score, self.bytes.len()));
    }

    /// Makes room for so many members that take so many bytes.
    pub fn reserve(&mut self, members: usize, bytes: usize) {
        self.ends.reserve_exact(members);
        self.bytes.reserve_exact(bytes);
    }

    /// The `index`-th that was added.
    pub fn member(&self, index: usize) -> (f64, &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (score, end) = self.ends[index];
        (score, &self.bytes[start..end])
    }

    /// All of them, in the order in which they were added.
    pub fn members(&self) -> Vec<(f64, &[u8])> {
        let mut start = 0;
        let member = |&(score, end)| (score, &self.bytes[std::mem::replace(&mut start, end)..end]);
        self.ends.iter().map(member).collect()
    }
}
