//! Fields of hashes whose time has come, removed by upkeep.

use keyspace::{Db, FlashRef, Key, Noted, SlotState, Stored, Tally, Timer, WHOLE, node_table};
use value::Kind;
use value::leaf::Rows;
use value::leaf::fields::{Fields, FieldsMut};

use crate::collection::form::{HASH, order};
use crate::collection::place::{KnownPaths, NodeName, Place};
use crate::collection::tree::Tree;

/// Timers that are looked at for a leaf that fields are removed from: others may name leaves on flash.
const LOOKED_AT: usize = 4;
/// When a leaf is looked at again that could not be read.
const UNREADABLE_FOR_MS: u64 = 60_000;

/// A leaf on flash alone, to be read so that fields can be removed from it.
#[derive(Debug)]
pub struct ColdLeaf {
    timer: Timer,
    /// The slot.
    pub slot: u16,
    table: u8,
    name: Box<[u8]>,
    /// Where it lies.
    pub at: FlashRef,
    /// Its length.
    pub value_len: u32,
}

impl ColdLeaf {
    /// Its name in its table.
    pub fn key(&self) -> Key<'_> {
        Key::in_slot(&self.name, self.slot)
    }

    /// Whether it is still there, on flash alone.
    pub fn is_in(&self, slot: &SlotState) -> bool {
        slot.cold(self.table, &self.key()).is_some_and(|(at, _)| at == self.at)
    }
}

/// What [`expire_fields`] has come to.
#[derive(Debug, Default)]
pub struct Expired {
    /// Leaves from which fields were removed.
    pub leaves: usize,
    /// Leaves on flash alone, with fields to be removed.
    pub cold: Vec<ColdLeaf>,
}

/// Removes the fields of a slot's hashes whose time has come, and keys with the last of theirs, from so many
/// leaves at most; as many on flash are returned. Cost: some microseconds a leaf.
pub fn expire_fields(
    slot: &mut SlotState,
    slot_number: u16,
    now_ms: u64,
    tally: &mut Tally,
    leaves_max: usize,
) -> Expired {
    let mut expired = Expired::default();
    for timer in slot.due_timers(now_ms, leaves_max * LOOKED_AT) {
        if expired.leaves == leaves_max {
            break;
        }
        let key = Key::in_slot(&timer.key, slot_number);
        // A key whose own time has come goes whole.
        if Db::new(slot, timer.table, now_ms, tally).peek(&key).is_none() {
            continue;
        }
        // The leaf may have been joined with one that was looked at before.
        let Some((table, name)) = leaf_of(slot, &timer, &key) else { continue };
        let leaf = slot.view(table, &Key::in_slot(&name, slot_number));
        match leaf.map(|leaf| leaf.stored) {
            Some(Stored::Cold(..)) if expired.cold.len() == leaves_max => {}
            Some(Stored::Cold(at, value_len)) => {
                let slot = slot_number;
                expired.cold.push(ColdLeaf { timer, slot, table, name, at, value_len });
            }
            Some(Stored::Hot(leaf) | Stored::Clean(leaf, _))
                if (1..=now_ms).contains(&Fields::new(leaf).first_expiry()) =>
            {
                expire_leaf(slot, &timer, &key, now_ms, tally);
                expired.leaves += 1;
            }
            _ => {}
        }
    }
    expired
}

/// The same for a leaf that has been read from flash meanwhile; none: it cannot be read, and is looked at again
/// later.
pub fn expire_fetched(
    slot: &mut SlotState,
    leaf: &ColdLeaf,
    fetched: Option<&[u8]>,
    now_ms: u64,
    tally: &mut Tally,
) {
    let timer = &leaf.timer;
    let key = Key::in_slot(&timer.key, leaf.slot);
    if Db::new(slot, timer.table, now_ms, tally).peek(&key).is_none() {
        return;
    }
    let is_same = leaf_of(slot, timer, &key)
        .is_some_and(|(table, name)| table == leaf.table && name == leaf.name);
    if !is_same || !leaf.is_in(slot) {
        return;
    }
    let Some(bytes) = fetched else {
        let at_ms = now_ms + UNREADABLE_FOR_MS;
        return slot.set_timer((timer.table, &key), timer.leaf, at_ms, tally);
    };
    let mut db = Db::new(slot, leaf.table, now_ms, tally);
    if db.promote(&leaf.key(), leaf.at, bytes.into()) {
        expire_leaf(slot, timer, &key, now_ms, tally);
    }
}

/// The table and the name of the leaf that a timer stands for. None: its hash has no such leaf any more.
fn leaf_of(slot: &SlotState, timer: &Timer, key: &Key<'_>) -> Option<(u8, Box<[u8]>)> {
    let kind = Kind::from_bits(slot.view(timer.table, key)?.kind);
    match kind.is_tree() {
        _ if !kind.is_hash() => None,
        false => (timer.leaf == WHOLE).then(|| (timer.table, timer.key.clone())),
        true => {
            let place = Place::new(*key, timer.table);
            let name = NodeName::new(place.root(slot).id(), timer.leaf);
            let table = node_table(timer.table);
            let name = name.key(key.slot).bytes;
            slot.view(table, &Key::in_slot(name, key.slot))?;
            Some((table, name.into()))
        }
    }
}

/// Removes what has expired from a leaf in RAM.
fn expire_leaf(slot: &mut SlotState, timer: &Timer, key: &Key<'_>, now_ms: u64, tally: &mut Tally) {
    let place = Place::new(*key, timer.table);
    let removed = match timer.leaf {
        WHOLE => expire_whole(place, slot, now_ms, tally),
        leaf => expire_in_tree(place, slot, leaf, now_ms, tally),
    };
    tally.note_gone(timer.table, key.bytes, Noted::ElementsExpired(removed));
    if slot.view(timer.table, key).is_none() {
        tally.note_gone(timer.table, key.bytes, Noted::Emptied);
    }
}

/// Returns the fields that it has removed, if somebody wants to know, as does [`expire_in_tree`].
fn expire_whole(
    place: Place<'_>,
    slot: &mut SlotState,
    now_ms: u64,
    tally: &mut Tally,
) -> Vec<Box<[u8]>> {
    let Place { key, table, .. } = place;
    let is_asked = tally.noting.elements;
    let mut db = Db::new(slot, table, now_ms, tally);
    let left = db.update(&key, |_, leaf| {
        let removed = remove_expired(leaf, now_ms, is_asked);
        let fields = Fields::new(leaf);
        (removed, fields.len(), fields.first_expiry())
    });
    let (removed, len, first_ms) = left.expect("invariant: the leaf is in RAM");
    if len == 0 {
        db.remove(&key);
    } else {
        slot.set_timer((table, &key), WHOLE, first_ms, tally);
    }
    removed
}

fn expire_in_tree(
    place: Place<'_>,
    slot: &mut SlotState,
    leaf: u32,
    now_ms: u64,
    tally: &mut Tally,
) -> Vec<Box<[u8]>> {
    let is_asked = tally.noting.elements;
    let mut tree = Tree { place, slot, tally, now_ms, form: &HASH, known: KnownPaths::default() };
    let fields = tree.leaf_numbered(leaf).expect("invariant: the leaf is in RAM");
    let path = place.find(tree.slot, &order(Rows::new(fields).first(0)));
    assert!(path.leaf.node == leaf, "its fields lead to a leaf");
    let removed = tree.change_leaf(path, |leaf| remove_expired(leaf, now_ms, is_asked));
    tree.settle();
    removed
}

fn remove_expired(leaf: &mut Vec<u8>, now_ms: u64, is_asked: bool) -> Vec<Box<[u8]>> {
    let removed = if is_asked { expired(leaf, now_ms) } else { Vec::new() };
    FieldsMut::at_time(leaf, now_ms).remove_expired();
    removed
}

/// The fields of a leaf that have expired.
fn expired(leaf: &[u8], now_ms: u64) -> Vec<Box<[u8]>> {
    Fields::at_time(leaf, now_ms).expired().map(Box::from).collect()
}
