//! Values on their way to another key: COPY, MOVE and RENAME.
//!
//! A large collection goes node by node. Within its slot and table its nodes stay where they are, and the root
//! alone moves.

use keyspace::{Carried, Db, Expiry, Key, KeyTimers, SlotState, Stored, WHOLE, node_table};
use value::Kind;
use value::leaf::branch::RootMut;
use value::leaf::fields::Fields;

use crate::collection::place::{NodeName, Place};
use crate::cx::{Cx, Fetched};
use crate::error::{CommandError, CommandResult};

/// What nodes take beside what is in them, their places and the bounds in branches among it, as a part of that:
/// a quarter.
const NODES_SHIFT: u32 = 2;

impl Cx<'_, '_> {
    /// Bytes that a copy of the value of a key takes, about.
    pub fn copied_bytes(&mut self, key: &Key<'_>) -> u64 {
        let Some(view) = self.peek(key) else { return 0 };
        if Kind::from_bits(view.kind).is_tree() {
            let place = self.place(key);
            let slot = &*self.locked.slot(key.slot);
            let of_index = place.existing_index(slot).map_or(0, |index| index.leaf_bytes(slot));
            let bytes = place.leaf_bytes(slot) + of_index;
            return bytes + (bytes >> NODES_SHIFT);
        }
        match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => bytes.len() as u64,
            Stored::Cold(_, len) => u64::from(len),
        }
    }

    /// Bytes that a value takes on its way to another key besides what it takes in RAM, about: the leaves of a large
    /// collection that are on flash are put anew.
    pub fn moved_bytes(&mut self, source: &Key<'_>, db: u8, target: &Key<'_>) -> u64 {
        let stays = db == self.db && source.slot == target.slot;
        if stays || !self.holds_tree(source) {
            return 0;
        }
        let place = self.place(source);
        let slot = &*self.locked.slot(source.slot);
        let leaves = place.all_leaves(slot);
        let lens = leaves.iter().filter_map(|name| place.cold(slot, name));
        lens.map(|(_, len)| u64::from(len)).sum()
    }

    /// Copies the value of a key that exists, with its expiry, to a key of a database, over what that holds.
    ///
    /// Errors: [`crate::CommandError::NotResident`], [`crate::CommandError::OUT_OF_MEMORY`]; nothing is changed
    /// then.
    pub fn copy_value(&mut self, source: &Key<'_>, db: u8, target: &Key<'_>) -> CommandResult {
        if self.holds_tree(source) {
            return self.copy_tree(source, db, target);
        }
        self.make_resident(source)?;
        let carried = self.db(source).carry(source).expect("invariant: the key exists");
        self.put_carried(db, target, carried, CarriedTimers::default());
        Ok(())
    }

    /// Moves the value of a key that exists, with its expiry, to another key or database, over what is there.
    ///
    /// Errors: [`crate::CommandError::NotResident`]; nothing is changed then.
    pub fn move_value(&mut self, source: &Key<'_>, db: u8, target: &Key<'_>) -> CommandResult {
        let mut timers = CarriedTimers::default();
        if !self.holds_tree(source) {
            self.make_resident(source)?;
        } else if db != self.db || source.slot != target.slot {
            timers.of_leaves = self.move_nodes(source, db, target)?;
        } else {
            let table = self.keyspace().table_of(db);
            let slot = self.locked.slot(source.slot);
            timers.of_key = slot.take_timers(table, source.bytes, self.tally);
        }
        let carried = self.db(source).take(source).expect("invariant: the key exists");
        self.put_carried(db, target, carried, timers);
        Ok(())
    }

    fn holds_tree(&mut self, key: &Key<'_>) -> bool {
        self.peek(key).is_some_and(|view| Kind::from_bits(view.kind).is_tree())
    }

    fn copy_tree(&mut self, source: &Key<'_>, db: u8, target: &Key<'_>) -> CommandResult {
        self.read_tree(source).announce_with_index()?;
        let place = self.place(source);
        let slot = &*self.locked.slot(source.slot);
        let (names, bytes) = (place.nodes(slot), place.leaf_bytes(slot) as usize);
        self.check_memory(bytes)?;
        let id = self.keyspace().take_collection_id();
        let mut timers = CarriedTimers::default();
        for name in names {
            let fetched = self.fetched;
            let (kind, mut bytes) = copy_node(place, self.locked.slot(source.slot), &name, fetched);
            let name = name.of_other(id);
            if name.is_root() {
                RootMut::new(&mut bytes).set_id(name.id());
            }
            timers.add(&name, kind, &bytes);
            self.put_node(db, target, &name, kind, bytes);
        }
        let mut root = self.db(source).carry(source).expect("invariant: the key exists");
        RootMut::new(&mut root.value).set_id(id);
        self.put_carried(db, target, root, timers);
        Ok(())
    }

    /// Moves the nodes of a tree to the slot and table of another key. Returns when elements of its leaves
    /// expire.
    fn move_nodes(
        &mut self,
        source: &Key<'_>,
        db: u8,
        target: &Key<'_>,
    ) -> Result<Vec<(u32, u64)>, CommandError> {
        let mut timers = CarriedTimers::default();
        self.read_tree(source).announce_with_index()?;
        let place = self.place(source);
        let names = place.nodes(self.locked.slot(source.slot));
        for name in names {
            let (slot, fetched) = (self.locked.slot(source.slot), self.fetched);
            let cold = place.cold(slot, &name).map(|_| copy_node(place, slot, &name, fetched));
            let node = name.key(source.slot);
            let mut nodes = Db::new(slot, node_table(place.table), self.now_ms, self.tally);
            let (kind, bytes) = match cold {
                Some(copy) => {
                    nodes.remove(&node);
                    copy
                }
                None => {
                    let taken = nodes.take(&node);
                    let taken = taken.expect("invariant: a node that a branch names is there");
                    (taken.kind, taken.value)
                }
            };
            timers.add(&name, kind, &bytes);
            self.put_node(db, target, &name, kind, bytes);
        }
        Ok(timers.of_leaves)
    }

    /// Puts the value of a key, and its timers, over what is there.
    fn put_carried(
        &mut self,
        db: u8,
        target: &Key<'_>,
        carried: Carried,
        mut timers: CarriedTimers,
    ) {
        timers.add_leaf(WHOLE, carried.kind, &carried.value);
        self.db_at(db, target).put_carried(target, carried);
        let to = (self.keyspace().table_of(db), target);
        let slot = self.locked.slot(target.slot);
        if let Some(of_key) = timers.of_key {
            slot.put_timers(to, of_key, self.tally);
        }
        for (leaf, at_ms) in timers.of_leaves {
            slot.set_timer(to, leaf, at_ms, self.tally);
        }
    }

    fn put_node(&mut self, db: u8, target: &Key<'_>, name: &NodeName, kind: u8, bytes: Vec<u8>) {
        let table = node_table(self.keyspace().table_of(db));
        let slot = self.locked.slot(target.slot);
        let mut nodes = Db::new(slot, table, self.now_ms, self.tally);
        nodes.put_vec(&name.key(target.slot), kind, bytes, Expiry::Clear);
    }
}

/// When elements of a collection that is on its way to another key expire.
#[derive(Default)]
struct CarriedTimers {
    /// Of leaves that stay where they are.
    of_key: Option<KeyTimers>,
    /// Of leaves that are put anew: which, and Unix milliseconds.
    of_leaves: Vec<(u32, u64)>,
}

impl CarriedTimers {
    fn add(&mut self, name: &NodeName, kind: u8, bytes: &[u8]) {
        self.add_leaf(name.node(), kind, bytes);
    }

    /// Adds the timer of a leaf, if it is one of a hash in which fields expire.
    fn add_leaf(&mut self, leaf: u32, kind: u8, bytes: &[u8]) {
        let kind = Kind::from_bits(kind);
        if kind.is_hash() && !kind.is_tree() {
            let at_ms = Fields::new(bytes).first_expiry();
            self.of_leaves.extend((at_ms > 0).then_some((leaf, at_ms)));
        }
    }
}

/// The kind and a copy of a node, which is in RAM or was fetched.
fn copy_node(
    place: Place<'_>,
    slot: &SlotState,
    name: &NodeName,
    fetched: &dyn Fetched,
) -> (u8, Vec<u8>) {
    let view = slot.view(node_table(place.table), &name.key(place.key.slot));
    let view = view.expect("invariant: a node that a branch names is there");
    let bytes = match view.stored {
        Stored::Hot(bytes) | Stored::Clean(bytes, _) => bytes,
        Stored::Cold(at, _) => fetched.value(at).expect("invariant: all have been looked for"),
    };
    (view.kind, bytes.to_vec())
}
