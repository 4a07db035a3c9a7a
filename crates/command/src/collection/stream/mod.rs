//! Streams: entries by their IDs, and beside them the rows of consumer groups (`value::leaf::stream_rows`).
//!
//! A small stream is one value. A larger one is a tree of entries, which has the stream's head in its root,
//! and a tree of rows, its index. So what a stream is at its tail is known without a look at its leaves, old
//! entries go to flash leaf by leaf, and whole leaves are trimmed without being read.
//!
//! A command of groups first reads all that it needs and puts down in [`RowEdits`] what changes; then it has
//! the leaves of those put into RAM, for all its keys; then it changes them.

mod add;
mod group;
mod group_edit;
mod load;
#[cfg(test)]
mod model;
mod remove;
mod rows;

pub use add::NewEntry;
pub use group::{WholeGroup, distance_from_first_ever};
pub use group_edit::{Delivery, GroupEdit};
pub(crate) use load::{NOBODY, NewRows};
pub use remove::{Trim, TrimTo};
pub use rows::RowEdits;

use std::ops::ControlFlow;

use keyspace::{Expiry, Key};
use smallvec::SmallVec;
use value::leaf::branch::{Root, RootMut, RootParts};
use value::leaf::entries::{Entries, Entry};
use value::leaf::stream::{HEAD_BYTES, Head, Packed, pack};
use value::leaf::{entries, stream_rows};
use value::{Kind, StreamId};

use crate::collection::Found;
use crate::collection::form::{ENTRIES, Part, STREAM_ROWS};
use crate::collection::place::{LEAF_BYTES_MAX, NodeName, Path, Place};
use crate::collection::reader::TreeReader;
use crate::collection::tree::SINGLE_BYTES_MAX;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};

/// Up to which size a leaf takes another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLeafMax {
    /// Entries that it has ever had; 0: as many as fit.
    pub entries: u64,
    /// Bytes; 0: as many as a leaf has at most.
    pub bytes: u64,
}

/// IDs from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first.
    pub first: StreamId,
    /// The last. No ID belongs to a range whose last is below the first.
    pub last: StreamId,
}

impl IdRange {
    /// All IDs.
    pub const ALL: IdRange = IdRange { first: StreamId::MIN, last: StreamId::MAX };

    /// One ID.
    pub fn one(id: StreamId) -> IdRange {
        IdRange { first: id, last: id }
    }

    /// The IDs behind one. None: it is the greatest.
    pub fn behind(id: StreamId) -> Option<IdRange> {
        Some(IdRange { first: id.next()?, last: StreamId::MAX })
    }
}

/// Which entries of a range are visited, and how many at most.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The range.
    pub range: IdRange,
    /// Whether from its last ID on to the first.
    pub reverse: bool,
    /// How many at most.
    pub count_max: u64,
}

/// A stream to be read.
pub struct Stream<'a> {
    head: Head,
    form: Form<'a>,
}

enum Form<'a> {
    Packed(Packed<'a>),
    Tree(TreeReader<'a>),
}

impl Stream<'_> {
    /// What is known of it without a look at its entries.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Visits entries.
    ///
    /// Errors: [`CommandError::NotResident`]. Entries may have been visited before.
    pub fn visit(&mut self, visit: Visit, mut each: impl FnMut(&Entry<'_>)) -> CommandResult {
        let Visit { range, mut count_max, reverse } = visit;
        if self.head.length == 0 || range.first > range.last || count_max == 0 {
            return Ok(());
        }
        match &mut self.form {
            Form::Packed(packed) => {
                if let Some(leaf) = packed.entries() {
                    visit_leaf(leaf, (range, reverse), &mut count_max, &mut each);
                }
            }
            Form::Tree(tree) => {
                let begin = if reverse { range.last } else { range.first };
                let mut next = Some(tree.place.find(tree.slot, &begin.to_bytes()));
                while let Some(path) = next.filter(|_| count_max > 0) {
                    let names;
                    (names, next) = leaves_of(tree, path, (range, reverse), count_max);
                    let bytes = 2 * (names.len() * LEAF_BYTES_MAX) as u64;
                    tree.announce_named(&names).map_err(|error| with_reply_bytes(error, bytes))?;
                    for name in &names {
                        if count_max > 0 {
                            let leaf = tree.read(name)?;
                            visit_leaf(leaf, (range, reverse), &mut count_max, &mut each);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks for all leaves, those of rows as well, which are read next. Errors: [`CommandError::NotResident`].
    pub fn announce_all(&self) -> CommandResult {
        match &self.form {
            Form::Packed(_) => Ok(()),
            Form::Tree(tree) => tree.announce_with_index(),
        }
    }

    /// Bytes that all of it takes, about, its groups as well.
    pub fn byte_len(&mut self) -> u64 {
        match &mut self.form {
            Form::Packed(packed) => packed.byte_len() as u64,
            Form::Tree(tree) => {
                let index = tree.place.existing_index(tree.slot);
                let of_rows = index.map_or(0, |index| index.leaf_bytes(tree.slot));
                tree.leaf_bytes() + of_rows
            }
        }
    }

    /// Visits all leaves of entries in their order, but those that have none.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub fn visit_leaves(&mut self, mut visit: impl FnMut(Entries<'_>)) -> CommandResult {
        let mut visit_leaf = |leaf: &[u8]| {
            if *leaf != entries::EMPTY {
                visit(Entries::new(leaf));
            }
            ControlFlow::Continue(())
        };
        match &mut self.form {
            Form::Tree(tree) => tree.visit(visit_leaf),
            Form::Packed(packed) => {
                if let Some(leaf) = packed.entries() {
                    let _ = visit_leaf(leaf);
                }
                Ok(())
            }
        }
    }

    /// The ID of the first entry, the smallest ID if there is none. Errors: [`CommandError::NotResident`].
    pub fn first_id(&mut self) -> Result<StreamId, CommandError> {
        self.edge(false)
    }

    /// The ID of the last entry, the smallest ID if there is none. Errors: [`CommandError::NotResident`].
    pub fn last_id(&mut self) -> Result<StreamId, CommandError> {
        self.edge(true)
    }

    fn edge(&mut self, reverse: bool) -> Result<StreamId, CommandError> {
        let mut id = StreamId::MIN;
        let visit = Visit { range: IdRange::ALL, reverse, count_max: 1 };
        self.visit(visit, |entry| id = entry.id)?;
        Ok(id)
    }

    /// Whether there is an entry of this ID. Errors: [`CommandError::NotResident`].
    pub fn contains(&mut self, id: StreamId) -> Result<bool, CommandError> {
        let mut is_there = false;
        let visit = Visit { range: IdRange::one(id), reverse: false, count_max: 1 };
        self.visit(visit, |_| is_there = true)?;
        Ok(is_there)
    }

    /// Looks for the leaves of entries that are asked for next, so that all that are on flash are read
    /// together. Errors: [`CommandError::NotResident`].
    pub fn announce(&mut self, ids: impl Iterator<Item = StreamId>) -> CommandResult {
        let Form::Tree(tree) = &mut self.form else { return Ok(()) };
        let name = |id: StreamId| tree.place.find(tree.slot, &id.to_bytes()).name();
        let names: Vec<NodeName> = ids.map(name).collect();
        tree.announce_named(&names)
    }

    /// Leaves of entries. Cost: linear in the branches.
    pub fn leaf_count(&self) -> u64 {
        match &self.form {
            Form::Packed(packed) => packed.entries().is_some().into(),
            Form::Tree(_) if self.head.length == 0 => 0,
            Form::Tree(tree) => tree.place.leaf_count(tree.slot),
        }
    }
}

/// Says what a reply takes in bytes, about, for which a value is missing.
fn with_reply_bytes(error: CommandError, reply_bytes: u64) -> CommandError {
    match error {
        CommandError::NotResident(mut missing) => {
            missing.reply_bytes = reply_bytes;
            CommandError::NotResident(missing)
        }
        other => other,
    }
}

/// The leaves from one on that have `count_max` entries together, as far as they belong to a range, and the way
/// to the next one that does.
fn leaves_of(
    tree: &TreeReader<'_>,
    mut path: Path,
    (range, reverse): (IdRange, bool),
    count_max: u64,
) -> (SmallVec<[NodeName; 2]>, Option<Path>) {
    let (place, slot) = (tree.place, &*tree.slot);
    let (first, last) = (range.first.to_bytes(), range.last.to_bytes());
    let mut names = SmallVec::new();
    let mut elements = 0;
    loop {
        names.push(path.name());
        elements += u64::from(path.leaf.elements);
        let next = if reverse {
            let is_last = path.name() == place.find(slot, &first).name();
            if is_last { None } else { place.previous(slot, &path) }
        } else {
            let bound = place.next_bound(slot, &path);
            bound.filter(|bound| bound[..] <= last[..]).and_then(|_| place.next(slot, &path))
        };
        match next {
            Some(next) if elements < count_max => path = next,
            next => return (names, next),
        }
    }
}

fn visit_leaf(
    leaf: &[u8],
    (IdRange { first, last }, reverse): (IdRange, bool),
    left: &mut u64,
    each: &mut impl FnMut(&Entry<'_>),
) {
    let entries = Entries::new(leaf);
    let found = entries.iter_from(first).take_while(|entry| entry.id <= last);
    let count = usize::try_from(*left).unwrap_or(usize::MAX);
    let mut step = |entry: &Entry<'_>| {
        *left -= 1;
        each(entry);
    };
    if reverse {
        let found: SmallVec<[Entry<'_>; 16]> = found.collect();
        found.iter().rev().take(count).for_each(&mut step);
    } else {
        found.take(count).for_each(|entry| step(&entry));
    }
}

/// The bound of a leaf whose first entry has this ID.
fn bound_of(id: StreamId) -> Vec<u8> {
    id.to_bytes().to_vec()
}

impl Cx<'_, '_> {
    /// The stream of a key, counting as an access. None: the key does not exist.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    pub fn read_stream<'s>(
        &'s mut self,
        key: &'s Key<'_>,
    ) -> Result<Option<Stream<'s>>, CommandError> {
        let at = match self.find_to_read(key, Kind::is_stream)? {
            Found::Missing => return Ok(None),
            Found::Leaf(at) => at,
            Found::Tree(_) => {
                let tree = self.read_tree(key);
                let head = Head::from_bytes(tree.place.root(tree.slot).extra());
                return Ok(Some(Stream { head, form: Form::Tree(tree) }));
            }
        };
        let packed = Packed::new(self.read_leaf(key, at)?);
        Ok(Some(Stream { head: packed.head(), form: Form::Packed(packed) }))
    }

    /// What is known of the stream of a key without a look at its entries. No access. None: the key does not
    /// exist.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    fn stream_head(&mut self, key: &Key<'_>) -> Result<Option<Head>, CommandError> {
        let found = self.find_to_edit(key, Kind::is_stream)?;
        Ok(self.head_of(key, found))
    }

    /// The same of what [`Cx::find_to_edit`] has found.
    fn head_of(&mut self, key: &Key<'_>, found: Found) -> Option<Head> {
        match found {
            Found::Missing => None,
            Found::Tree(at) => {
                let place = self.place_at(key, at);
                Some(Head::from_bytes(place.root(self.locked.slot(key.slot)).extra()))
            }
            Found::Leaf(at) => Some(Packed::new(in_ram(&self.db(key).view_at(at))).head()),
        }
    }

    /// How many entries the stream of a key has, which is no access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    pub(crate) fn stream_length(&mut self, key: &Key<'_>) -> Result<u64, CommandError> {
        Ok(self.stream_head(key)?.map_or(0, |head| head.length))
    }

    /// Whether the stream of a key is a tree, and else puts it into RAM.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    fn is_stream_tree(&mut self, key: &Key<'_>) -> Result<bool, CommandError> {
        Ok(matches!(self.find_to_edit(key, Kind::is_stream)?, Found::Tree(_)))
    }

    /// Sets the head of a stream that exists, and is in RAM if it is one value. Who watches the key is not
    /// told.
    pub fn set_stream_head(&mut self, key: &Key<'_>, head: Head) {
        let set = self.db(key).update_unwatched(key, |kind, value| {
            match Kind::from_bits(*kind).is_tree() {
                true => RootMut::new(value).set_extra(&head.to_bytes()),
                false => value[..HEAD_BYTES].copy_from_slice(&head.to_bytes()),
            }
        });
        set.expect("invariant: the stream was made resident");
    }

    /// Makes an empty stream.
    pub fn make_stream(&mut self, key: &Key<'_>) {
        let value = pack(Head::default(), []);
        self.db(key).put_vec(key, Kind::STREAM.bits(), value, Expiry::Clear);
    }

    /// Sets a key to a stream of these leaves, those of entries in front in the order of IDs, those of rows behind
    /// them in the order of keys, whatever the key held. It does not expire.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub fn store_stream(
        &mut self,
        key: &Key<'_>,
        head: Head,
        leaves: Vec<Vec<u8>>,
    ) -> CommandResult {
        let bytes: usize = leaves.iter().map(Vec::len).sum();
        self.check_memory(bytes)?;
        let of_entries = leaves.iter().filter(|leaf| entries::is_entries(leaf)).count();
        if bytes <= SINGLE_BYTES_MAX / 2 && of_entries <= 1 && leaves.len() - of_entries <= 1 {
            let value = pack(head, leaves.iter().map(Vec::as_slice));
            self.db(key).put_vec(key, Kind::STREAM.bits(), value, Expiry::Clear);
        } else {
            self.make_stream(key);
            self.make_tree(key, head, leaves);
        }
        Ok(())
    }

    /// The tree of rows, to be read or made.
    fn rows_place<'p>(&mut self, key: &Key<'p>) -> Place<'p> {
        let place = self.place(key);
        place.of_index(self.locked.slot(key.slot))
    }

    /// Makes a tree of a stream in one value if that has become too large, or has several leaves of entries.
    fn grow_stream(&mut self, key: &Key<'_>) {
        let Some(view) = self.peek(key) else { return };
        if Kind::from_bits(view.kind).is_tree() {
            return;
        }
        let packed = Packed::new(in_ram(&view));
        let entry_leaves = packed.leaves().filter(|leaf| entries::is_entries(leaf)).count();
        if packed.byte_len() <= SINGLE_BYTES_MAX && entry_leaves <= 1 {
            return;
        }
        let head = packed.head();
        let leaves: Vec<Vec<u8>> = packed.leaves().map(<[u8]>::to_vec).collect();
        self.make_tree(key, head, leaves);
    }

    /// Makes a tree of these leaves, those of entries in front. Who watches the key is not told.
    fn make_tree(&mut self, key: &Key<'_>, head: Head, leaves: Vec<Vec<u8>>) {
        let id = self.keyspace().take_collection_id();
        let (mut of_entries, of_rows): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            leaves.into_iter().partition(|leaf| entries::is_entries(leaf));
        if of_entries.is_empty() {
            of_entries.push(entries::EMPTY.to_vec());
        }
        let parts = of_entries.into_iter().enumerate().map(|(at, leaf)| {
            let bound =
                if at == 0 { Vec::new() } else { bound_of(Entries::new(&leaf).first_ever()) };
            (bound, leaf)
        });
        let mut tree = self.edit_tree(key, &ENTRIES);
        let root = tree.build(id, 0, parts);
        let extra = head.to_bytes().to_vec();
        let root = RootParts { extra, ..RootParts::of(Root::new(&root)) }.into_value();
        let kind = Kind::STREAM.as_tree().bits();
        let put = self.db(key).update_unwatched(key, |bits, bytes| (*bits, *bytes) = (kind, root));
        put.expect("invariant: the stream was made resident");
        self.make_rows(key, of_rows);
    }

    /// Makes the tree of rows of these leaves, which may be large, of a stream that has none.
    fn make_rows(&mut self, key: &Key<'_>, leaves: Vec<Vec<u8>>) {
        let bound = |leaf: &[u8]| value::leaf::Rows::new(leaf).first(0).to_vec();
        let leaves = leaves.into_iter().filter(|leaf| !value::leaf::Rows::new(leaf).is_empty());
        let mut parts: Vec<Part> = Vec::new();
        for leaf in leaves {
            let first = if parts.is_empty() { Vec::new() } else { bound(&leaf) };
            let divided = stream_rows::divide(leaf, LEAF_BYTES_MAX).into_iter().enumerate();
            parts.extend(divided.map(|(at, (bound, part))| match at {
                0 => (first.clone(), part),
                _ => (bound, part),
            }));
        }
        if parts.is_empty() {
            return;
        }
        self.edit_tree(key, &ENTRIES).put_index(&STREAM_ROWS, parts.into_iter());
    }
}

/// The bytes of a value that is in RAM.
fn in_ram<'v>(view: &keyspace::View<'v>) -> &'v [u8] {
    match view.stored {
        keyspace::Stored::Hot(bytes) | keyspace::Stored::Clean(bytes, _) => bytes,
        keyspace::Stored::Cold(..) => panic!("a value that was made resident"),
    }
}
