//! Removing entries: some by their IDs, and the oldest.

use keyspace::{Key, SlotState};
use value::StreamId;
use value::leaf::entries::{self, Entries, EntriesMut};
use value::leaf::stream::{Head, Packed, pack};

use super::in_ram;
use crate::collection::End;
use crate::collection::form::ENTRIES;
use crate::collection::place::{NodeName, Path, Place};
use crate::collection::tree::Tree;
use crate::cx::Cx;
use crate::error::CommandError;

/// Which entries a stream is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// The last so many.
    Length(u64),
    /// Those from this ID on.
    Id(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// What it is to keep.
    pub to: TrimTo,
    /// Whether only whole leaves are removed.
    pub by_leaf: bool,
    /// How many entries are removed at most; 0: all that it takes.
    pub limit: u64,
}

/// What is to be done with the first leaf of a stream.
enum First {
    /// It goes.
    Drop,
    /// The oldest of its entries go.
    Cut,
    /// Its last ID decides.
    Read,
    /// It stays as it is.
    Keep,
}

impl Trim {
    /// What is to be done with a leaf of so many entries, when so many leaves' entries have been removed in front of
    /// it. `end` is where the next leaf begins.
    fn of_leaf(&self, length: u64, removed: u64, entries: u64, end: Option<&[u8]>) -> First {
        if matches!(self.to, TrimTo::Length(max) if length <= max)
            || (self.limit > 0 && removed + entries > self.limit)
        {
            return First::Keep;
        }
        match self.to {
            TrimTo::Length(max) if length - entries >= max => First::Drop,
            TrimTo::Length(_) if self.by_leaf => First::Keep,
            TrimTo::Length(_) => First::Cut,
            TrimTo::Id(id) if end.is_some_and(|end| *end <= id.to_bytes()[..]) => First::Drop,
            TrimTo::Id(_) => First::Read,
        }
    }

    /// The leaf of a large stream that must be read to trim it, if one must.
    pub(super) fn leaf_to_read(
        &self,
        place: Place<'_>,
        slot: &SlotState,
        head: Head,
    ) -> Option<NodeName> {
        let (mut length, mut removed) = (head.length, 0);
        let mut path = place.at_end(slot, End::Left);
        loop {
            let (end, entries) = (place.next_bound(slot, &path), u64::from(path.leaf.elements));
            match self.of_leaf(length, removed, entries, end.as_deref()) {
                First::Drop => {}
                First::Cut | First::Read => return Some(path.name()),
                First::Keep => return None,
            }
            length = length.saturating_sub(entries);
            removed += entries;
            path = place.next(slot, &path)?;
        }
    }

    /// How many of a leaf's first entries go.
    fn cut(&self, length: u64, leaf: &Entries<'_>) -> u32 {
        match self.to {
            TrimTo::Length(max) => u32::try_from(length - max).expect("invariant: fewer than all"),
            TrimTo::Id(id) => leaf.iter().take_while(|entry| entry.id < id).count() as u32,
        }
    }
}

impl Cx<'_, '_> {
    /// Trims a stream. Returns how many entries are removed. Leaves that go as a whole are not read.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`]; nothing is changed then.
    pub fn trim_stream(&mut self, key: &Key<'_>, trim: &Trim) -> Result<u64, CommandError> {
        let Some(head) = self.stream_head(key)? else { return Ok(0) };
        if head.length == 0 {
            return Ok(0);
        }
        let removed = if self.is_stream_tree(key)? {
            let place = self.place(key);
            let read = trim.leaf_to_read(place, self.locked.slot(key.slot), head);
            self.promote_named(place, read.into_iter().collect())?;
            trim_tree(&mut self.edit_tree(key, &ENTRIES), head, trim)
        } else {
            self.trim_value(key, head, trim)
        };
        Ok(removed)
    }

    fn trim_value(&mut self, key: &Key<'_>, head: Head, trim: &Trim) -> u64 {
        let view = self.peek(key).expect("invariant: the stream exists");
        let leaf = Packed::new(in_ram(&view)).entries().expect("invariant: it has entries");
        let leaf = Entries::new(leaf);
        let removed = match trim.of_leaf(head.length, 0, head.length, None) {
            First::Drop => leaf.len(),
            First::Cut => trim.cut(head.length, &leaf),
            First::Read => trim_by_id(trim, head.length, &leaf),
            First::Keep => 0,
        };
        if removed > 0 {
            let head = Head { length: head.length - u64::from(removed), ..head };
            self.change_packed_entries(key, head, |leaf| leaf.remove_front(removed));
        }
        u64::from(removed)
    }

    /// Changes the entries of a stream in one value that has some.
    fn change_packed_entries(
        &mut self,
        key: &Key<'_>,
        head: Head,
        change: impl FnOnce(&mut EntriesMut<'_>),
    ) {
        let updated = self.db(key).update(key, |_, value| {
            let packed = Packed::new(value);
            let leaf = (head.length > 0).then(|| {
                let mut leaf = packed.entries().expect("invariant: it has entries").to_vec();
                change(&mut EntriesMut::new(&mut leaf));
                leaf
            });
            *value = pack(head, leaf.as_deref().into_iter().chain(packed.rows()));
        });
        updated.expect("invariant: the stream was made resident");
    }

    /// Removes the entries of these IDs. Returns how many there were.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`]; nothing is changed then.
    pub fn remove_entries(&mut self, key: &Key<'_>, ids: &[StreamId]) -> Result<u64, CommandError> {
        let Some(mut head) = self.stream_head(key)? else { return Ok(0) };
        if head.length == 0 {
            return Ok(0);
        }
        let before = head.length;
        if self.is_stream_tree(key)? {
            self.promote_leaves(self.place(key), ids.iter().map(|id| id.to_bytes()))?;
            let mut tree = self.edit_tree(key, &ENTRIES);
            for &id in ids {
                if remove_from_tree(&mut tree, id) {
                    count_removed(&mut head, id);
                }
            }
            if head.length < before {
                tree.set_extra(&head.to_bytes());
            }
            return Ok(before - head.length);
        }
        let view = self.peek(key).expect("invariant: the stream exists");
        let leaf = Packed::new(in_ram(&view)).entries().expect("invariant: it has entries");
        let mut removed: Vec<StreamId> = Vec::new();
        for &id in ids {
            if !removed.contains(&id) && Entries::new(leaf).find(id).is_some() {
                removed.push(id);
                count_removed(&mut head, id);
            }
        }
        if !removed.is_empty() {
            self.change_packed_entries(key, head, |leaf| {
                removed.iter().for_each(|&id| assert!(leaf.remove(id), "it was found"));
            });
        }
        Ok(before - head.length)
    }
}

fn count_removed(head: &mut Head, id: StreamId) {
    head.length -= 1;
    head.max_deleted = head.max_deleted.max(id);
}

/// How many of the first entries of a leaf go, all if its last ID is below what is kept.
fn trim_by_id(trim: &Trim, length: u64, leaf: &Entries<'_>) -> u32 {
    let TrimTo::Id(id) = trim.to else { unreachable!("lengths need no look at a leaf") };
    if leaf.last_ever() < id {
        leaf.len()
    } else if trim.by_leaf {
        0
    } else {
        trim.cut(length, leaf)
    }
}

fn trim_tree(tree: &mut Tree<'_>, mut head: Head, trim: &Trim) -> u64 {
    let before = head.length;
    while head.length > 0 {
        let path = tree.place.at_end(tree.slot, End::Left);
        let end = tree.place.next_bound(tree.slot, &path);
        let entries = u64::from(path.leaf.elements);
        let step = trim.of_leaf(head.length, before - head.length, entries, end.as_deref());
        let leaf = || {
            let leaf = tree.leaf_in_ram(&path);
            Entries::new(leaf.expect("invariant: it was promoted"))
        };
        let removed = match step {
            First::Drop => path.leaf.elements,
            First::Cut => trim.cut(head.length, &leaf()),
            First::Read => trim_by_id(trim, head.length, &leaf()),
            First::Keep => break,
        };
        if removed > 0 {
            remove_first(tree, &path, removed);
            head.length -= u64::from(removed);
        }
        if !matches!(step, First::Drop) {
            break;
        }
    }
    if head.length < before {
        tree.set_extra(&head.to_bytes());
    }
    before - head.length
}

/// Removes the first entries of the first leaf.
fn remove_first(tree: &mut Tree<'_>, path: &Path, count: u32) {
    if count < path.leaf.elements {
        return tree.change_leaf(path.clone(), |leaf| EntriesMut::new(leaf).remove_front(count));
    }
    drop_or_empty(tree, path);
}

/// Takes a leaf out, or its entries if it is the only one.
fn drop_or_empty(tree: &mut Tree<'_>, path: &Path) {
    let is_only = path.is_first() && tree.place.next_bound(tree.slot, path).is_none();
    if is_only {
        tree.replace_leaf(path.clone(), entries::EMPTY.to_vec());
    } else {
        tree.drop_leaf(path);
    }
}

/// Removes an entry, if it is there. Where its leaf has gone, its place may fall to one on flash.
fn remove_from_tree(tree: &mut Tree<'_>, id: StreamId) -> bool {
    let path = tree.place.find(tree.slot, &id.to_bytes());
    let Some(leaf) = tree.leaf_in_ram(&path) else { return false };
    if *leaf == entries::EMPTY || Entries::new(leaf).find(id).is_none() {
        return false;
    }
    if path.leaf.elements == 1 {
        drop_or_empty(tree, &path);
        return true;
    }
    tree.change_leaf(path, |leaf| EntriesMut::new(leaf).remove(id))
}
