//! A large collection that is read: its leaves, wherever they are.

use std::ops::ControlFlow;

use keyspace::{Db, Key, SlotState, Stored, Tally, node_table};
use smallvec::SmallVec;

use crate::collection::place::{NodeName, Path, Place};
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
    pub(super) cold_leaves: &'a mut Vec<LeafAt>,
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

    /// Looks for the leaves that hold what stands at some places, which are asked for next.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce<O: AsRef<[u8]>>(
        &self,
        orders: impl Iterator<Item = O>,
    ) -> CommandResult {
        let names = orders.map(|order| self.place.find(self.slot, order.as_ref()).name());
        not_fetched(self.place, self.slot, self.fetched, names)
    }

    /// The leaf that holds what stands at `order`.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn leaf(&mut self, order: &[u8]) -> Result<&[u8], CommandError> {
        let path = self.place.find(self.slot, order);
        self.read(&path.name())
    }

    /// The leaf that holds the `element`-th, and which of its elements that is. Panics: there are fewer.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn leaf_of_nth(&mut self, element: u64) -> Result<(&[u8], usize), CommandError> {
        let (path, element): (Path, usize) = self.place.find_nth(self.slot, element);
        Ok((self.read(&path.name())?, element))
    }

    /// Visits all leaves in their order.
    ///
    /// Errors: [`CommandError::NotResident`], before the first.
    pub(super) fn visit(
        &mut self,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> CommandResult {
        let leaves = self.place.leaves(self.slot);
        let all = leaves.iter().copied();
        not_fetched(self.place, self.slot, self.fetched, all).map_err(|error| match error {
            CommandError::NotResident(mut missing) => {
                missing.reply_bytes = self.leaf_bytes();
                CommandError::NotResident(missing)
            }
            other => other,
        })?;
        for name in &leaves {
            if visit(self.read(name)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The same by the positions of elements.
    ///
    /// Errors: [`CommandError::NotResident`], with all that are on flash alone.
    pub(super) fn announce_nth(&self, elements: impl Iterator<Item = u64>) -> CommandResult {
        let names = elements.map(|element| self.place.find_nth(self.slot, element).0.name());
        not_fetched(self.place, self.slot, self.fetched, names)
    }

    /// Visits leaves of a collection that is ordered by hashes, from a cursor on, until they have `count`
    /// elements. Returns the next cursor, 0 at the end.
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
        let (mut next, mut elements) = (Some(cursor), 0);
        while elements < count
            && let Some(cursor) = next
        {
            let mut path = self.place.find(self.slot, &place_of(cursor));
            loop {
                if names.last() != Some(&path.name()) {
                    names.push(path.name());
                    elements += path.leaf.elements as usize;
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
        not_fetched(self.place, self.slot, self.fetched, names.iter().copied())?;
        for name in &names {
            visit(self.read(name)?);
        }
        Ok(next.unwrap_or(0))
    }

    fn read(&mut self, name: &NodeName) -> Result<&[u8], CommandError> {
        let (place, fetched) = (self.place, self.fetched);
        // Before it counts as an access: it will be read again.
        not_fetched(place, self.slot, fetched, [*name].into_iter())?;
        let leaf = name.key(place.key.slot);
        let table = node_table(place.table);
        let db = Db::new(self.slot, table, self.now_ms, self.tally);
        let found = if self.no_touch { db.into_quiet_read(&leaf) } else { db.into_read(&leaf) };
        let (view, tally) = found.expect("invariant: a leaf that a branch names is there");
        match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => {
                tally.read_ram += 1;
                Ok(bytes)
            }
            Stored::Cold(at, _) => {
                tally.read_flash += 1;
                self.cold_leaves.push(LeafAt { slot: place.key.slot, table, name: *name });
                Ok(fetched.value(at).expect("invariant: it was looked for"))
            }
        }
    }
}

/// Which leaf of which collection.
#[derive(Clone, Copy)]
pub struct LeafAt {
    slot: u16,
    table: u8,
    name: NodeName,
}

impl LeafAt {
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
    let names = Place { key: *key, table, index: None }.leaves(slot);
    leaves_at(key.slot, table, names)
}

/// The same with those of its index, if it has one.
pub fn all_leaves(slot: &SlotState, table: u8, key: &Key<'_>) -> Vec<LeafAt> {
    let names = Place { key: *key, table, index: None }.all_leaves(slot);
    leaves_at(key.slot, table, names)
}

fn leaves_at(slot: u16, table: u8, names: Vec<NodeName>) -> Vec<LeafAt> {
    names.into_iter().map(|name| LeafAt { slot, table: node_table(table), name }).collect()
}

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

/// Whether all leaves of these names are in RAM or were fetched.
///
/// Errors: [`CommandError::NotResident`], with all that are on flash alone.
pub(super) fn not_fetched(
    place: Place<'_>,
    slot: &SlotState,
    fetched: &dyn Fetched,
    names: impl Iterator<Item = NodeName>,
) -> CommandResult {
    let mut values: SmallVec<[ColdValue; 1]> = SmallVec::new();
    let mut lacks = false;
    for name in names {
        let Some((at, value_len)) = place.cold(slot, &name) else { continue };
        let key_len = name.key(place.key.slot).bytes.len() as u32;
        values.push(ColdValue { at, key_len, value_len });
        lacks |= fetched.value(at).is_none();
    }
    if lacks { Err(not_resident(&place.key, values)) } else { Ok(()) }
}

#[cold]
fn not_resident(key: &Key<'_>, values: SmallVec<[ColdValue; 1]>) -> CommandError {
    let key = key.bytes.into();
    CommandError::NotResident(Box::new(NotResident { key, values, reply_bytes: 0 }))
}
