//! A large collection that is read: its leaves, wherever they are.

use std::ops::{ControlFlow, Range};

use keyspace::{Db, FlashRef, Key, Position, SlotState, Stored, Tally, node_table};
use smallvec::SmallVec;

use crate::collection::place::{NodeName, Path, Place};
use crate::collection::walk::{Walk, Window};
use crate::cx::Fetched;
use crate::error::{ColdValue, CommandError, CommandResult, NotResident};

/// A large collection to be read. Each leaf that is read counts as an access to it.
pub struct TreeReader<'a> {
    pub(super) place: Place<'a>,
    pub(super) slot: &'a mut SlotState,
    pub(super) tally: &'a mut Tally,
    pub(super) fetched: &'a dyn Fetched,
    pub(super) now_ms: u64,
    pub(super) no_touch: bool,
    pub(super) cold_leaves: &'a mut ColdLeaves,
    pub(super) walk: Walk<'a>,
}

impl TreeReader<'_> {
    /// Elements of the collection.
    pub fn elements(&self) -> u64 {
        self.place.elements(self.slot)
    }

    /// Bytes of all leaves together.
    pub fn leaf_bytes(&self) -> u64 {
        self.place.leaf_bytes(self.slot)
    }

    /// The encoding that OBJECT ENCODING tells.
    pub(super) fn encoding(&self) -> u8 {
        self.place.root(self.slot).encoding()
    }

    /// Reads the index of the collection.
    pub(super) fn in_index<R>(&mut self, read: impl FnOnce(&mut Self) -> R) -> R {
        let place = self.place;
        self.place = place.of_index(self.slot);
        let result = read(self);
        self.place = place;
        result
    }

    /// Looks for the leaves that hold what stands at some places, which are asked for next.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce<O: AsRef<[u8]>>(
        &self,
        orders: impl Iterator<Item = O>,
    ) -> CommandResult {
        let mut lack = Lack::default();
        for order in orders {
            let path = self.place.find(self.slot, order.as_ref());
            lack.add_found(self.place, self.slot, self.fetched, &path);
        }
        lack.result(&self.place.key, self.cold_leaves)
    }

    /// The same, and returns the ways there.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn ways<O: AsRef<[u8]>>(
        &self,
        orders: impl Iterator<Item = O>,
    ) -> Result<Vec<Path>, CommandError> {
        let (mut lack, mut ways) = (Lack::default(), Vec::with_capacity(orders.size_hint().0));
        for order in orders {
            let path = self.place.find(self.slot, order.as_ref());
            lack.add_found(self.place, self.slot, self.fetched, &path);
            ways.push(path);
        }
        lack.result(&self.place.key, self.cold_leaves)?;
        Ok(ways)
    }

    /// The leaf that holds what stands at `order`.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn leaf(&mut self, order: &[u8]) -> Result<&[u8], CommandError> {
        let path = self.place.find(self.slot, order);
        self.read_at(&path.name(), path.leaf_seen_at())
    }

    /// The leaf that holds what stands at `order`, if it is on flash alone.
    pub(super) fn cold_leaf(&self, order: &[u8]) -> Option<ColdValue> {
        let name = self.place.find(self.slot, order).name();
        let (at, value_len) = self.place.cold(self.slot, &name)?;
        Some(cold_value(&name, at, value_len))
    }

    /// The leaf that holds the `element`-th, and which of its elements that is. Panics: there are fewer.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn leaf_of_nth(&mut self, element: u64) -> Result<(&[u8], usize), CommandError> {
        let (path, element): (Path, usize) = self.place.find_nth(self.slot, element);
        Ok((self.read_at(&path.name(), path.leaf_seen_at())?, element))
    }

    /// How many elements stand in front of `order`. `count` says how many of a leaf.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn elements_below(
        &mut self,
        order: &[u8],
        count: impl FnOnce(&[u8]) -> usize,
    ) -> Result<u64, CommandError> {
        let path = self.place.find(self.slot, order);
        self.elements_within(&path, count)
    }

    /// How many elements stand in front of the leaf at the end of a path that was found just now, and within it as
    /// many as `count` says.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn elements_within(
        &mut self,
        path: &Path,
        count: impl FnOnce(&[u8]) -> usize,
    ) -> Result<u64, CommandError> {
        let before = self.place.elements_before(self.slot, path);
        Ok(before + count(self.read_at(&path.name(), path.leaf_seen_at())?) as u64)
    }

    /// Looks for the leaves that hold the elements at ranges of positions, which are asked for next.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce_ranges(&self, ranges: &[Range<u64>]) -> CommandResult {
        let leaves = ranges.iter().flat_map(|range| self.leaves_of(range.clone()));
        let names: Vec<NodeName> = leaves.map(|(name, _)| name).collect();
        self.look_for(&names)
    }

    /// The leaves that hold the elements at some positions, each with the positions of all its elements.
    fn leaves_of(&self, elements: Range<u64>) -> Vec<(NodeName, Range<u64>)> {
        let mut leaves: Vec<(NodeName, Range<u64>)> = Vec::new();
        let mut at = elements.start;
        while at < elements.end {
            let (path, within) = self.place.find_nth(self.slot, at);
            let start = at - within as u64;
            let end = start + u64::from(path.leaf.elements);
            leaves.push((path.name(), start..end));
            at = end;
        }
        leaves
    }

    /// The same of those in a window of the walk over them, from the last one back if so asked.
    fn leaves_in(
        &self,
        window: &Window,
        elements: Range<u64>,
        is_backward: bool,
    ) -> Vec<(NodeName, Range<u64>)> {
        let len = elements.end - elements.start;
        let (mut leaves, mut visited, mut bytes) = (Vec::new(), window.from().min(len), 0);
        while visited < len && bytes < window.bytes_max() {
            let at = match is_backward {
                true => elements.end - 1 - visited,
                false => elements.start + visited,
            };
            let (path, within) = self.place.find_nth(self.slot, at);
            let start = at - within as u64;
            let end = start + u64::from(path.leaf.elements);
            visited = match is_backward {
                true => elements.end - start.max(elements.start),
                false => end.min(elements.end) - elements.start,
            };
            bytes += self.leaf_len(&path.name());
            leaves.push((path.name(), start..end));
        }
        window.end_at((visited < len).then_some(visited));
        leaves
    }

    /// Ends a run that would walk over more bytes than it may: so many of all elements.
    ///
    /// Errors: [`CommandError::LongWalk`].
    #[inline]
    fn check_walk(&self, elements: u64) -> CommandResult {
        let Walk::UpTo(bytes_max) = self.walk else { return Ok(()) };
        let average = self.leaf_bytes() / self.elements().max(1);
        // Fields that expire are no change that anybody hears of before they are removed.
        match elements.saturating_mul(average) > bytes_max && !self.has_timers() {
            true => Err(CommandError::LongWalk),
            false => Ok(()),
        }
    }

    /// Visits all leaves in their order, or those in the window of this run.
    ///
    /// Errors: [`CommandError::NotResident`], before the first; [`CommandError::LongWalk`].
    pub(super) fn visit(
        &mut self,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> CommandResult {
        self.check_walk(self.elements())?;
        let names = match self.walk {
            Walk::Window(window) => {
                let leaves = self.leaves_in(window, 0..self.elements(), false);
                leaves.into_iter().map(|(name, _)| name).collect()
            }
            Walk::Whole | Walk::UpTo(_) => self.place.leaves(self.slot),
        };
        self.look_for(&names)?;
        for name in &names {
            if visit(self.read(name)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Looks for all leaves, which are read next.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce_all(&self) -> CommandResult {
        self.look_for(&self.place.leaves(self.slot))
    }

    /// The same with the leaves of its index, if it has one.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce_with_index(&self) -> CommandResult {
        self.look_for(&self.place.all_leaves(self.slot))
    }

    /// Visits those of all leaves that stand at some positions among them, as far as there are so many.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub(super) fn visit_some(
        &mut self,
        leaves: Range<usize>,
        mut visit: impl FnMut(&[u8]),
    ) -> CommandResult {
        let names = self.place.leaves(self.slot);
        let names = &names[leaves.start.min(names.len())..leaves.end.min(names.len())];
        self.look_for(names)?;
        for name in names {
            visit(self.read(name)?);
        }
        Ok(())
    }

    /// Visits the leaves that hold the elements at some positions, backwards if so asked, each with the
    /// positions of all its elements; or those of them in the window of this run.
    ///
    /// Errors: [`CommandError::NotResident`], before the first; [`CommandError::LongWalk`].
    pub(super) fn visit_range(
        &mut self,
        elements: Range<u64>,
        is_backward: bool,
        mut visit: impl FnMut(&[u8], Range<u64>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, CommandError> {
        self.check_walk(elements.end - elements.start)?;
        let leaves = match self.walk {
            Walk::Window(window) => self.leaves_in(window, elements, is_backward),
            Walk::Whole | Walk::UpTo(_) => {
                let mut leaves = self.leaves_of(elements);
                if is_backward {
                    leaves.reverse();
                }
                leaves
            }
        };
        let names: Vec<NodeName> = leaves.iter().map(|(name, _)| *name).collect();
        self.look_for(&names)?;
        for (name, positions) in leaves {
            if visit(self.read(&name)?, positions).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether elements of the collection expire.
    pub(super) fn has_timers(&self) -> bool {
        self.slot.has_timers(self.place.table, &self.place.key)
    }

    /// Visits all leaves, which are read afterwards: it is no access.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub(super) fn visit_ahead(&self, mut visit: impl FnMut(&[u8])) -> CommandResult {
        let names = self.place.leaves(self.slot);
        self.look_for(&names)?;
        for name in names {
            let leaf = name.key(self.place.key.slot);
            let view = self.slot.view(node_table(self.place.table), &leaf);
            match view.expect("invariant: a leaf that a branch names is there").stored {
                Stored::Hot(bytes) | Stored::Clean(bytes, _) => visit(bytes),
                Stored::Cold(at, _) => {
                    visit(self.fetched.value(at).expect("invariant: it was looked for"));
                }
            }
        }
        Ok(())
    }

    fn look_for(&self, names: &[NodeName]) -> CommandResult {
        self.not_fetched(names.iter().copied()).map_err(|error| match error {
            CommandError::NotResident(mut missing) => {
                missing.reply_bytes = names.iter().map(|name| self.leaf_len(name)).sum();
                CommandError::NotResident(missing)
            }
            other => other,
        })
    }

    fn not_fetched(&self, names: impl Iterator<Item = NodeName>) -> CommandResult {
        let mut lack = Lack::default();
        lack.add(self.place, self.slot, self.fetched, names);
        lack.result(&self.place.key, self.cold_leaves)
    }

    /// Bytes of a leaf, wherever it is.
    fn leaf_len(&self, name: &NodeName) -> u64 {
        let table = node_table(self.place.table);
        let view = self.slot.view(table, &name.key(self.place.key.slot));
        view.expect("invariant: a leaf that a branch names is there").value_len() as u64
    }

    /// Looks for the leaves of elements by their positions, each leaf once if the positions ascend.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce_nth(&self, elements: impl Iterator<Item = u64>) -> CommandResult {
        let mut last: Option<(NodeName, Range<u64>)> = None;
        let names = elements.filter_map(|element| {
            if last.as_ref().is_some_and(|(_, held)| held.contains(&element)) {
                return None;
            }
            let (path, within) = self.place.find_nth(self.slot, element);
            let start = element - within as u64;
            last = Some((path.name(), start..start + u64::from(path.leaf.elements)));
            Some(path.name())
        });
        self.not_fetched(names)
    }

    /// Visits leaves of a collection that is ordered by hashes, from a cursor on, until they have `count`
    /// elements, or [`SCANNED_BYTES`]. Returns the next cursor, 0 at the end.
    ///
    /// A cursor is the place where the next leaf begins, its first 48 bits: what is visited is all between
    /// two places, so it does not matter how leaves are divided and joined meanwhile. Leaves that begin in
    /// the same place as far as a cursor tells are visited together.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub(super) fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<u64, CommandError> {
        if cursor >> CURSOR_BITS != 0 {
            // No call can have given it.
            return Ok(0);
        }
        let mut names: SmallVec<[NodeName; 8]> = SmallVec::new();
        let (mut next, mut elements, mut bytes) = (Some(cursor), 0, 0);
        while elements < count
            && bytes < SCANNED_BYTES
            && let Some(cursor) = next
        {
            let mut path = self.place.find(self.slot, &place_of(cursor));
            loop {
                if names.last() != Some(&path.name()) {
                    names.push(path.name());
                    elements += path.leaf.elements as usize;
                    bytes += self.leaf_len(&path.name());
                }
                let Some(bound) = self.place.next_bound(self.slot, &path) else {
                    next = None;
                    break;
                };
                let here = cursor_of(&bound);
                path = self.place.find(self.slot, &bound);
                if here > cursor {
                    next = Some(here);
                    break;
                }
            }
        }
        self.not_fetched(names.iter().copied())?;
        for name in &names {
            visit(self.read(name)?);
        }
        Ok(next.unwrap_or(0))
    }

    /// Looks for leaves that may be asked for next, and takes note of those that were fetched.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce_named(&mut self, names: &[NodeName]) -> CommandResult {
        self.not_fetched(names.iter().copied())?;
        let (slot, table) = (self.place.key.slot, node_table(self.place.table));
        for name in names {
            if let Some((at, len)) = self.place.cold(self.slot, name) {
                let leaf = LeafAt { slot, table, name: *name };
                self.cold_leaves.push((leaf, cold_value(name, at, len)));
            }
        }
        Ok(())
    }

    /// A leaf by its name. Errors: [`CommandError::NotResident`].
    pub(super) fn read(&mut self, name: &NodeName) -> Result<&[u8], CommandError> {
        self.read_at(name, self.place.find_node(self.slot, name))
    }

    /// The same of a leaf that was found and has not moved since.
    fn read_at(&mut self, name: &NodeName, stands_at: Position) -> Result<&[u8], CommandError> {
        let (place, fetched) = (self.place, self.fetched);
        let table = node_table(place.table);
        if let Stored::Cold(..) = self.slot.view_at(table, stands_at).stored {
            // Before it counts as an access: it will be read again.
            self.not_fetched([*name].into_iter())?;
        }
        let mut db = Db::new(self.slot, table, self.now_ms, self.tally);
        if !self.no_touch {
            db.touch_at(stands_at);
        }
        let (view, tally) = db.into_counted_view_at(stands_at);
        match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => {
                tally.read_ram += 1;
                Ok(bytes)
            }
            Stored::Cold(at, len) => {
                tally.read_flash += 1;
                let leaf = LeafAt { slot: place.key.slot, table, name: *name };
                if self.cold_leaves.last().is_none_or(|(last, _)| *last != leaf) {
                    self.cold_leaves.push((leaf, cold_value(name, at, len)));
                }
                Ok(fetched.value(at).expect("invariant: it was looked for"))
            }
        }
    }
}

/// Leaves that a run has read from flash.
pub type ColdLeaves = Vec<(LeafAt, ColdValue)>;

/// Which leaf of which collection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LeafAt {
    slot: u16,
    table: u8,
    name: NodeName,
}

impl LeafAt {
    /// A leaf of the collection of a key in a table.
    pub(crate) fn new(slot: u16, table: u8, name: NodeName) -> LeafAt {
        LeafAt { slot, table: node_table(table), name }
    }

    /// Its name among the values of its slot.
    pub fn key(&self) -> Key<'_> {
        self.name.key(self.slot)
    }

    /// The table of nodes that it is in.
    pub fn table(&self) -> u8 {
        self.table
    }
}

/// The leaves of a large collection in their order.
pub fn leaves(slot: &SlotState, table: u8, key: &Key<'_>) -> Vec<LeafAt> {
    let names = Place::new(*key, table).leaves(slot);
    leaves_at(key.slot, table, names)
}

/// The same with those of its index, if it has one.
pub fn all_leaves(slot: &SlotState, table: u8, key: &Key<'_>) -> Vec<LeafAt> {
    let names = Place::new(*key, table).all_leaves(slot);
    leaves_at(key.slot, table, names)
}

fn leaves_at(slot: u16, table: u8, names: Vec<NodeName>) -> Vec<LeafAt> {
    names.into_iter().map(|name| LeafAt::new(slot, table, name)).collect()
}

/// Bytes of leaves that one call of a scan visits, but for the last of them, whatever its COUNT says.
const SCANNED_BYTES: u64 = 256 << 10;

/// Bits of a cursor: few enough that doubles hold it exactly.
const CURSOR_BITS: u32 = 48;

/// The cursor that stands for a bound: a place at it or a little before.
fn cursor_of(bound: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = bound.len().min(bytes.len());
    bytes[..len].copy_from_slice(&bound[..len]);
    u64::from_be_bytes(bytes) >> (u64::BITS - CURSOR_BITS)
}

/// The first place that a cursor stands for.
fn place_of(cursor: u64) -> [u8; 8] {
    (cursor << (u64::BITS - CURSOR_BITS)).to_be_bytes()
}

/// Leaves on flash alone that a command needs.
#[derive(Default)]
pub(super) struct Lack {
    values: SmallVec<[ColdValue; 1]>,
    /// Whether one of them was not fetched.
    is_any: bool,
}

impl Lack {
    /// Adds those of these names.
    pub(super) fn add(
        &mut self,
        place: Place<'_>,
        slot: &SlotState,
        fetched: &dyn Fetched,
        names: impl Iterator<Item = NodeName>,
    ) {
        for name in names {
            let Some((at, value_len)) = place.cold(slot, &name) else { continue };
            self.add_cold(&name, (at, value_len), fetched);
        }
    }

    /// Adds the leaf at the end of a path that was found just now, if it is one of them.
    #[inline]
    fn add_found(
        &mut self,
        place: Place<'_>,
        slot: &SlotState,
        fetched: &dyn Fetched,
        path: &Path,
    ) {
        if let Stored::Cold(at, value_len) = place.view_found(slot, path).stored {
            self.add_cold(&path.name(), (at, value_len), fetched);
        }
    }

    #[cold]
    fn add_cold(
        &mut self,
        name: &NodeName,
        (at, value_len): (FlashRef, u32),
        fetched: &dyn Fetched,
    ) {
        self.values.push(cold_value(name, at, value_len));
        self.is_any |= fetched.value(at).is_none();
    }

    /// Errors: [`CommandError::NotResident`], of `key`, with what was read from flash before: the next run
    /// will read it again.
    pub(super) fn result(self, key: &Key<'_>, cold_leaves: &ColdLeaves) -> CommandResult {
        if self.is_any { Err(leaves_not_resident(key, self.values, cold_leaves)) } else { Ok(()) }
    }
}

fn cold_value(name: &NodeName, at: FlashRef, value_len: u32) -> ColdValue {
    ColdValue { at, key_len: name.len() as u32, value_len }
}

/// The wish of a command on `key` for values, and for the leaves that its run has read from flash: what is
/// not named is not kept for the next run.
#[cold]
pub(crate) fn leaves_not_resident(
    key: &Key<'_>,
    mut values: SmallVec<[ColdValue; 1]>,
    cold_leaves: &ColdLeaves,
) -> CommandError {
    values.extend(cold_leaves.iter().map(|(_, value)| *value));
    values.sort_unstable_by_key(|value| value.at.units);
    values.dedup_by_key(|value| value.at.units);
    let key = key.bytes.into();
    CommandError::NotResident(Box::new(NotResident {
        key,
        values,
        reply_bytes: 0,
        is_to_save: false,
    }))
}
