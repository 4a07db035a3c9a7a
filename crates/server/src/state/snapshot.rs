//! A snapshot under way: all databases as they were at one moment, on their way to a file while others write.
//!
//! It begins with every slot held. From then on a walk takes slot by slot, and whoever is about to change a key of a
//! slot that was not taken writes what the key held to the file first, its slot being held ([`Snapshot::save`]).
//!
//! 1. What a name holds in all databases is written at once, and once: names that were written are kept, those that
//!    held nothing as well, until their slot is taken.
//! 2. Keys that expire or are evicted meanwhile may be missing: they could have gone a moment before.
//! 3. What writes without a key (FLUSHALL, FLUSHDB, SWAPDB) ends the snapshot; it is begun again.
//! 4. Locks are taken in this order: a slot, what was saved of it, the file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use command::saved::{SavedTree, save_value};
use command::{ColdValue, Fetched, NotResident};
use keyspace::{DB_COUNT, Key, SLOT_COUNT, SlotState, Stored};
use parking_lot::Mutex;
use rapidhash::RapidHashSet;
use rdb::file::FileWriter;
use smallvec::SmallVec;
use tier::{FetchedSet, Tier, TierWorker, Want};
use value::Kind;

use crate::limits::{SAVED_LEAVES_MAX, SAVED_PIECE_BYTES};
use crate::state::snapshot_file::FilePipe;

/// What a name takes beside its bytes while it is kept.
const NAME_BYTES: u64 = 64;

/// A snapshot.
pub(crate) struct Snapshot {
    slots: Box<[Mutex<SlotSaved>]>,
    /// None once it was taken.
    file: Mutex<Option<FileWriter<FilePipe>>>,
    /// The database of each table.
    databases: [u8; DB_COUNT],
    compresses: bool,
    names_bytes: AtomicU64,
    names_bytes_max: u64,
    /// Keys that were saved.
    pub(crate) keys: AtomicU64,
    /// Keys when it began.
    pub(crate) keys_at_first: u64,
    /// Why there will be no file.
    failure: Mutex<Option<Failure>>,
    has_failed: AtomicBool,
}

/// Why a snapshot came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// All keys of a database have changed: it is to be begun again.
    Overtaken,
    /// Told by a text.
    Failed(String),
}

/// What was saved of a slot.
#[derive(Default)]
struct SlotSaved {
    /// All of it.
    is_taken: bool,
    names: RapidHashSet<Box<[u8]>>,
    /// What of the names counts against the bound.
    names_bytes: u64,
}

/// What comes of a wish to save a key.
pub(crate) enum Saved {
    /// It is done, or was before.
    Yes,
    /// These values are on flash alone and are needed first.
    Lacks(SmallVec<[ColdValue; 1]>),
}

/// What saving takes besides the snapshot: where values on flash come from.
pub(crate) struct Reading<'a> {
    pub(crate) tier: &'a TierWorker,
    /// What was read before.
    pub(crate) fetched: &'a dyn Fetched,
    /// Reads leaves while their slot is held.
    pub(crate) read_held: fn(&TierWorker, Vec<Want>) -> FetchedSet,
    /// Whether it is the walk that saves.
    pub(crate) is_walk: bool,
}

impl Snapshot {
    /// Begins with every slot held.
    pub(crate) fn new(
        tier: &Tier,
        file: FileWriter<FilePipe>,
        compresses: bool,
        names_bytes_max: u64,
    ) -> Snapshot {
        let mut databases = [0; DB_COUNT];
        for db in 0..DB_COUNT as u8 {
            databases[usize::from(tier.keyspace.table_of(db))] = db;
        }
        Snapshot {
            slots: (0..SLOT_COUNT).map(|_| Mutex::default()).collect(),
            file: Mutex::new(Some(file)),
            databases,
            compresses,
            names_bytes: AtomicU64::new(0),
            names_bytes_max,
            keys: AtomicU64::new(0),
            keys_at_first: (0..DB_COUNT as u8).map(|table| tier.counters.table(table).keys).sum(),
            failure: Mutex::new(None),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Ends it without a file.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether it will come to nothing.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.lock().clone()
    }

    /// Takes the file out. Every slot is held, and nobody finds the snapshot any more: others may know of it, but
    /// save nothing.
    pub(crate) fn take_file(&self) -> Option<FileWriter<FilePipe>> {
        self.file.lock().take()
    }

    /// Writes something about all keys. Errors: it cannot be written.
    pub(crate) fn describe(
        &self,
        write: impl FnOnce(&mut FileWriter<FilePipe>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        write(self.file.lock().as_mut().ok_or_else(taken)?)
    }

    /// Says that all of a slot was saved, which is held.
    pub(crate) fn take_slot(&self, slot: u16) {
        let mut saved = self.slots[usize::from(slot)].lock();
        let SlotSaved { names, names_bytes: bytes, .. } = std::mem::take(&mut *saved);
        saved.is_taken = true;
        drop(saved);
        drop(names);
        self.names_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Saves what a name holds in all databases, unless that was done. Its slot is held.
    pub(crate) fn save(&self, slot: &SlotState, key: &Key<'_>, reading: &Reading<'_>) -> Saved {
        if self.has_failed() {
            return Saved::Yes;
        }
        let mut saved = self.slots[usize::from(key.slot)].lock();
        if saved.is_taken || saved.names.contains(key.bytes) {
            return Saved::Yes;
        }
        let tables = || (0..DB_COUNT as u8).filter(|&table| slot.len(table) > 0);
        let mut lacked = SmallVec::new();
        for table in tables() {
            if let Some((at, value_len)) = slot.cold(table, key)
                && reading.fetched.value(at).is_none()
            {
                let key_len = key.bytes.len() as u32;
                lacked.push(ColdValue { at, key_len, value_len });
            }
        }
        if !lacked.is_empty() {
            return Saved::Lacks(lacked);
        }
        for table in tables() {
            if let Err(failure) = self.save_in(slot, table, key, reading) {
                self.fail(failure);
                return Saved::Yes;
            }
        }
        saved.names.insert(key.bytes.into());
        if reading.is_walk {
            // A slot of very many keys could never be saved if these were bounded.
            return Saved::Yes;
        }
        let bytes = key.bytes.len() as u64 + NAME_BYTES;
        saved.names_bytes += bytes;
        if self.names_bytes.fetch_add(bytes, Ordering::Relaxed) > self.names_bytes_max {
            let text = "too many keys were written before the snapshot came to them";
            self.fail(Failure::Failed(text.to_owned()));
        }
        Saved::Yes
    }

    fn save_in(
        &self,
        slot: &SlotState,
        table: u8,
        key: &Key<'_>,
        reading: &Reading<'_>,
    ) -> Result<(), Failure> {
        let Some(view) = slot.view(table, key) else { return Ok(()) };
        let db = self.databases[usize::from(table)].into();
        let kind = Kind::from_bits(view.kind);
        self.keys.fetch_add(1, Ordering::Relaxed);
        if kind.is_tree() {
            return self.save_tree(slot, (table, key), (db, view.expire_at_ms), reading);
        }
        let value = match view.stored {
            Stored::Hot(value) | Stored::Clean(value, _) => value,
            Stored::Cold(at, _) => reading.fetched.value(at).expect("invariant: it was fetched"),
        };
        let mut object = Vec::with_capacity(value.len() + 16);
        save_value(&mut object, kind, value, self.compresses);
        let mut file = self.file.lock();
        let file = file.as_mut().ok_or_else(taken).map_err(unwritten)?;
        file.key(db, key.bytes, view.expire_at_ms, &object).map_err(unwritten)
    }

    /// A large collection, of which no more is in memory than a few leaves.
    fn save_tree(
        &self,
        slot: &SlotState,
        (table, key): (u8, &Key<'_>),
        (db, expire_at_ms): (u64, u64),
        reading: &Reading<'_>,
    ) -> Result<(), Failure> {
        let mut out = Vec::new();
        let (mut tree, leaves) = SavedTree::begin(&mut out, slot, table, key);
        let mut file = self.file.lock();
        let file = file.as_mut().ok_or_else(taken).map_err(unwritten)?;
        file.key(db, key.bytes, expire_at_ms, &out).map_err(unwritten)?;
        out.clear();
        for some in leaves.chunks(SAVED_LEAVES_MAX) {
            let views = some.iter().map(|leaf| {
                let view = slot.view(leaf.table(), &leaf.key());
                view.expect("invariant: a leaf that a branch names is there").stored
            });
            let views: Vec<Stored<'_>> = views.collect();
            let want = |leaf: &command::collection::LeafAt, stored: &Stored<'_>| match *stored {
                Stored::Cold(at, len) => Some(reading.tier.tier.want(&leaf.key(), at, len)),
                _ => None,
            };
            let wants: Vec<Option<Want>> =
                some.iter().zip(&views).map(|(leaf, stored)| want(leaf, stored)).collect();
            let cold: Vec<Want> = wants.iter().flatten().copied().collect();
            let fetched = match cold.is_empty() {
                true => FetchedSet::default(),
                false => (reading.read_held)(reading.tier, cold),
            };
            for (stored, want) in views.iter().zip(&wants) {
                match (*stored, want) {
                    (Stored::Hot(leaf) | Stored::Clean(leaf, _), _) => tree.add(&mut out, leaf),
                    (Stored::Cold(..), Some(want)) => {
                        let leaf = fetched.value(want.record).ok_or_else(|| {
                            unreadable(fetched.failure(want.record).unwrap_or("it is gone"))
                        })?;
                        tree.add(&mut out, leaf);
                    }
                    (Stored::Cold(..), None) => unreachable!("it is wanted"),
                }
                if out.len() > SAVED_PIECE_BYTES {
                    file.more(&out).map_err(unwritten)?;
                    out.clear();
                }
            }
        }
        tree.finish(&mut out);
        file.more(&out).map_err(unwritten)
    }
}

fn taken() -> std::io::Error {
    std::io::Error::other("the snapshot is over")
}

fn unwritten(error: std::io::Error) -> Failure {
    Failure::Failed(format!("Write error saving DB on disk: {error}"))
}

/// A value on flash is lost.
pub(crate) fn unreadable(reason: &str) -> Failure {
    Failure::Failed(format!("cannot read the value of a key: {reason}"))
}

/// What a run lacks to save a key before it changes it.
pub(crate) fn lacks(key: &Key<'_>, values: SmallVec<[ColdValue; 1]>) -> Box<NotResident> {
    Box::new(NotResident { key: key.bytes.into(), values, reply_bytes: 0, is_to_save: true })
}
