//! Rows of a stream: reading them, and what a command changes of them.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;

use keyspace::{Key, SlotState};
use smallvec::SmallVec;
use value::leaf::stream::{Packed, pack};
use value::leaf::stream_rows::{self, KeyRange, SHAPE, rows_below};
use value::leaf::{Rows, RowsMut};

use super::{Form, Stream, in_ram};
use crate::collection::form::STREAM_ROWS;
use crate::collection::place::{NodeName, Path, Place};
use crate::collection::tree::Tree;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};

/// Rows that are looked for at least, when those that seemed enough were not.
const NEXT_ROWS_MIN: u64 = 256;
/// Edits of a leaf before it is divided: each moves the rows behind it.
const EDITS_MAX: usize = 64;

impl Stream<'_> {
    /// What the row of a key holds. Errors: [`CommandError::NotResident`].
    pub(super) fn row(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, CommandError> {
        let found = |leaf: &[u8]| stream_rows::find(&Rows::new(leaf), key).map(<[u8]>::to_vec);
        match &mut self.form {
            Form::Packed(packed) => Ok(packed.rows().and_then(found)),
            Form::Tree(tree) => {
                let Some(place) = tree.place.existing_index(tree.slot) else { return Ok(None) };
                let name = place.find(tree.slot, key).name();
                Ok(found(tree.read(&name)?))
            }
        }
    }

    /// Looks for the leaves of rows that are asked for next. Errors: [`CommandError::NotResident`].
    pub(super) fn announce_rows(&mut self, keys: impl Iterator<Item = Vec<u8>>) -> CommandResult {
        let Form::Tree(tree) = &mut self.form else { return Ok(()) };
        let Some(place) = tree.place.existing_index(tree.slot) else { return Ok(()) };
        let mut names: Vec<NodeName> = Vec::new();
        for key in keys {
            let name = place.find(tree.slot, &key).name();
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        tree.announce_named(&names)
    }

    /// Looks for the leaves of ranges that are visited next, each as far as so many of its rows may stand.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn announce_ranges(
        &mut self,
        ranges: impl Iterator<Item = (KeyRange, u64)>,
    ) -> CommandResult {
        let Form::Tree(tree) = &mut self.form else { return Ok(()) };
        let Some(place) = tree.place.existing_index(tree.slot) else { return Ok(()) };
        let mut names: Vec<NodeName> = Vec::new();
        for ((from, to), count_max) in ranges {
            let path = place.find(tree.slot, &from);
            let (of_range, _) = leaves_of(place, tree.slot, path, (&to, count_max));
            let is_known = of_range.first() == names.last();
            names.extend(&of_range[usize::from(is_known)..]);
        }
        tree.announce_named(&names)
    }

    /// Visits the rows of a range, of which about `count_max` are wanted: leaves are looked for as far as
    /// these may stand, and then in windows that grow.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn visit_rows(
        &mut self,
        (from, to): &KeyRange,
        count_max: u64,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> CommandResult {
        let mut visit_leaf = |leaf: &[u8]| {
            let rows = Rows::new(leaf);
            let mut found = rows.iter_from(rows_below(&rows, from));
            found.try_for_each(|row| {
                if row.first >= &to[..] {
                    ControlFlow::Break(())
                } else {
                    each(row.first, row.second)
                }
            })
        };
        match &mut self.form {
            Form::Packed(packed) => {
                let _ = packed.rows().map(visit_leaf);
            }
            Form::Tree(tree) => {
                let Some(place) = tree.place.existing_index(tree.slot) else { return Ok(()) };
                let (mut next, mut wanted) = (Some(place.find(tree.slot, from)), count_max);
                while let Some(path) = next {
                    let names;
                    (names, next) = leaves_of(place, tree.slot, path, (to, wanted));
                    tree.announce_named(&names)?;
                    for name in &names {
                        if visit_leaf(tree.read(name)?).is_break() {
                            return Ok(());
                        }
                    }
                    wanted = wanted.saturating_mul(2).max(NEXT_ROWS_MIN);
                }
            }
        }
        Ok(())
    }

    /// The key of the last row of a range. Errors: [`CommandError::NotResident`].
    pub(super) fn last_row(
        &mut self,
        (from, to): &KeyRange,
    ) -> Result<Option<Vec<u8>>, CommandError> {
        let last_of = |leaf: &[u8]| {
            let rows = Rows::new(leaf);
            let below = rows_below(&rows, to);
            below.checked_sub(1).map(|at| rows.first(at).to_vec())
        };
        let last = match &mut self.form {
            Form::Packed(packed) => packed.rows().and_then(last_of),
            Form::Tree(tree) => {
                let Some(place) = tree.place.existing_index(tree.slot) else { return Ok(None) };
                let path = place.find(tree.slot, to);
                match last_of(tree.read(&path.name())?) {
                    Some(key) => Some(key),
                    // All rows of this leaf stand behind.
                    None => match place.previous(tree.slot, &path) {
                        Some(before) => last_of(tree.read(&before.name())?),
                        None => None,
                    },
                }
            }
        };
        Ok(last.filter(|key| key >= from))
    }
}

/// The leaves from one on that have `count_max` rows together, as far as they have some below the key `to`, and
/// the way to the next one that does.
fn leaves_of(
    place: Place<'_>,
    slot: &SlotState,
    mut path: Path,
    (to, count_max): (&[u8], u64),
) -> (SmallVec<[NodeName; 4]>, Option<Path>) {
    let (mut names, mut rows) = (SmallVec::new(), 0);
    loop {
        names.push(path.name());
        rows += u64::from(path.leaf.elements);
        let bound = place.next_bound(slot, &path).filter(|bound| bound[..] < *to);
        match bound.and_then(|_| place.next(slot, &path)) {
            Some(next) if rows < count_max => path = next,
            next => return (names, next),
        }
    }
}

/// What a command changes of the rows of a stream: what each row holds afterwards, or that it goes.
#[derive(Debug, Default)]
pub struct RowEdits(BTreeMap<Box<[u8]>, Option<Box<[u8]>>>);

impl RowEdits {
    /// Sets a row.
    pub(super) fn set(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.0.insert(key.into(), Some(value.into()));
    }

    /// Removes a row that there is.
    pub(super) fn remove(&mut self, key: Vec<u8>) {
        self.0.insert(key.into(), None);
    }

    /// The rows of a range that are set, or go.
    pub(super) fn of(&self, (from, to): &KeyRange) -> impl Iterator<Item = (&[u8], bool)> {
        let of_range = self.0.range::<[u8], _>((Included(&from[..]), Excluded(&to[..])));
        of_range.map(|(key, value)| (&key[..], value.is_some()))
    }

    /// What a row holds afterwards, if it is one of these: None if it goes.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.0.get(key).map(Option::as_deref)
    }
}

impl Cx<'_, '_> {
    /// Puts the leaves into RAM that a stream's edits change, so that [`Cx::edit_rows`] can.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn prepare_rows(&mut self, key: &Key<'_>, edits: &RowEdits) -> CommandResult {
        if !self.is_stream_tree(key)? {
            return Ok(());
        }
        let place = self.place(key);
        let slot = &*self.locked.slot(key.slot);
        let Some(place) = place.existing_index(slot) else { return Ok(()) };
        let mut names: Vec<NodeName> = Vec::new();
        for key in edits.0.keys() {
            let name = place.find(slot, key).name();
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        self.promote_named(place, names)
    }

    /// Changes rows of a stream that exists and was prepared for it. Who watches the key is not told: what a
    /// stream's readers have read is no change of the stream.
    pub fn edit_rows(&mut self, key: &Key<'_>, edits: &RowEdits) {
        let mut edits = edits.0.iter();
        while edits.len() > 0 && !self.is_stream_tree(key).expect("invariant: it was prepared") {
            self.edit_packed_rows(key, edits.by_ref().take(EDITS_MAX));
            self.grow_stream(key);
        }
        if edits.len() == 0 {
            return;
        }
        let place = self.place(key);
        if place.existing_index(self.locked.slot(key.slot)).is_none() {
            let mut leaf = SHAPE.empty().to_vec();
            set_all(&mut leaf, edits);
            return self.make_rows(key, vec![leaf]);
        }
        let place = self.rows_place(key);
        let mut tree = self.edit_tree(key, &STREAM_ROWS);
        tree.place = place;
        // What is removed goes last: leaves that it leaves empty go with it, and what is set would fall to
        // neighbours, which may be on flash.
        edit_tree_rows(&mut tree, edits.clone().filter(|(_, value)| value.is_some()));
        edit_tree_rows(&mut tree, edits.filter(|(_, value)| value.is_none()));
    }

    fn edit_packed_rows<'e>(&mut self, key: &Key<'_>, edits: impl Iterator<Item = RowEdit<'e>>) {
        let changed = self.db(key).update_unwatched(key, |_, value| {
            let packed = Packed::new(value);
            let mut rows = packed.rows().map_or(SHAPE.empty().to_vec(), <[u8]>::to_vec);
            set_all(&mut rows, edits);
            let rows = (!Rows::new(&rows).is_empty()).then_some(&rows[..]);
            *value = pack(packed.head(), packed.entries().into_iter().chain(rows));
        });
        changed.expect("invariant: it was prepared");
    }

    /// Looks whether rows of a range can be removed ([`Cx::remove_rows`]).
    ///
    /// Errors: [`CommandError::NotResident`].
    pub fn prepare_rows_removal(&mut self, key: &Key<'_>, (from, to): &KeyRange) -> CommandResult {
        if !self.is_stream_tree(key)? {
            return Ok(());
        }
        let place = self.place(key);
        let slot = &*self.locked.slot(key.slot);
        let Some(place) = place.existing_index(slot) else { return Ok(()) };
        let names = vec![place.find(slot, from).name(), place.find(slot, to).name()];
        self.promote_named(place, names)
    }

    /// Removes all rows of a range. Leaves that have no other rows are not read. Cost: linear in the leaves.
    pub fn remove_rows(&mut self, key: &Key<'_>, range: &KeyRange) {
        if !self.is_stream_tree(key).expect("invariant: it was prepared") {
            let Some(view) = self.peek(key) else { return };
            let mut edits = RowEdits::default();
            for row in
                Packed::new(in_ram(&view)).rows().iter().flat_map(|rows| Rows::new(rows).iter())
            {
                if row.first >= &range.0[..] && row.first < &range.1[..] {
                    edits.remove(row.first.to_vec());
                }
            }
            return self.edit_packed_rows(key, edits.0.iter());
        }
        let place = self.place(key);
        let Some(place) = place.existing_index(self.locked.slot(key.slot)) else { return };
        let mut tree = self.edit_tree(key, &STREAM_ROWS);
        tree.place = place;
        remove_tree_rows(&mut tree, range);
    }
}

type RowEdit<'e> = (&'e Box<[u8]>, &'e Option<Box<[u8]>>);

fn set_all<'e>(leaf: &mut Vec<u8>, edits: impl Iterator<Item = RowEdit<'e>>) {
    let mut rows = RowsMut::new(leaf);
    edits.for_each(|(key, value)| stream_rows::set(&mut rows, key, value.as_deref()));
}

/// Changes rows leaf by leaf, some at a time, until no row is left.
fn edit_tree_rows<'e>(tree: &mut Tree<'_>, edits: impl Iterator<Item = RowEdit<'e>>) {
    let mut edits = edits.peekable();
    while let Some((key, _)) = edits.peek()
        && !tree.is_gone()
    {
        let path = tree.place.find(tree.slot, key);
        let bound = tree.place.next_bound(tree.slot, &path);
        let of_leaf: SmallVec<[RowEdit<'e>; 8]> = std::iter::from_fn(|| {
            edits.next_if(|(key, _)| bound.as_ref().is_none_or(|bound| key[..] < bound[..]))
        })
        .take(EDITS_MAX)
        .collect();
        // Where the leaf of a row has gone with the row, its place falls to a neighbour.
        if tree.place.cold(tree.slot, &path.name()).is_none() {
            tree.change_leaf(path, |leaf| set_all(leaf, of_leaf.into_iter()));
        }
    }
}

fn remove_tree_rows(tree: &mut Tree<'_>, range: &KeyRange) {
    let (from, to) = range;
    let place: Place<'_> = tree.place;
    // Leaves between those where the range begins and ends.
    loop {
        let path = place.find(tree.slot, from);
        let Some(next) = place.next(tree.slot, &path) else { break };
        if place.next_bound(tree.slot, &next).is_none_or(|bound| bound > *to) {
            break;
        }
        tree.drop_leaf(&next);
    }
    for order in [from, to] {
        if tree.is_gone() {
            return;
        }
        let path = place.find(tree.slot, order);
        if place.cold(tree.slot, &path.name()).is_none() {
            tree.change_leaf(path, |leaf| {
                let rows = Rows::new(leaf);
                let removed = rows_below(&rows, from)..rows_below(&rows, to);
                if !removed.is_empty() {
                    RowsMut::new(leaf).remove(removed);
                }
            });
        }
    }
}
