//! A snapshot under way: all databases as they were at one moment, on their way to a file while others write.
//!
//! It begins with every slot held. From then on a walk takes slot by slot, and whoever is about to change a key of a
//! slot that was not taken writes what the key held to the file first, its slot being held ([`Snapshot::save`]).
//!
//! 1. What a name holds in all databases is written once: names that were written are kept, those that held nothing
//!    as well, until their slot is taken. What the walk itself has met needs no names while a slot has keys in one database:
//!    the place where its scan stands tells that, and the names that it met and could not save are noted.
//! 2. It is written at once, with the slot held, but for large values: large collections and long strings. These the
//!    walk alone writes, a part at a time, and whoever is about to change one waits until it has
//!    ([`Snapshot::want`]). What others write meanwhile goes into a second file, which is appended in the end. Where
//!    the names that are kept come to their bound, whoever is about to change another waits until the walk has taken
//!    its slot, which comes before others then.
//! 3. Keys that expire or are evicted meanwhile may be missing: they could have gone a moment before. A large
//!    value that goes while it is written ends the snapshot; it is begun again.
//! 4. What writes without a key (FLUSHALL, FLUSHDB, SWAPDB) does the same.
//! 5. A checkpoint of the journal refers to values that are on flash and stay there ([`References`]): they are not read. Large
//!    collections are written all the same. It refers to strings in RAM as well that recent records of the journal have.
//! 6. Locks are taken in this order: a slot, what was saved of it, the file.

mod slot_saved;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use command::collection::LeafAt;
use command::saved::{Journaled, Placed, SavedTree, save_value, tree_bytes};
use command::{ColdValue, Fetched, NotResident};
use flash::{Checkpoints, Engine, Location, Position, record_size};
use keyspace::{DB_COUNT, FlashRef, Key, SLOT_COUNT, ScanPosition, SlotState, Stored, View};
use parking_lot::{Mutex, MutexGuard};
use rapidhash::RapidHashSet;
use rdb::file::FileWriter;
use smallvec::SmallVec;
use tier::{Counted, FetchedSet, Tier, TierWorker, Want};
use value::Kind;

use crate::limits::{
    RECENT_VALUE_BYTES_MIN, SAVED_AT_ONCE_BYTES_MAX, SAVED_KEYS_MAX, SAVED_LEAVES_MAX,
    SAVED_STRING_BYTES_MAX, SAVED_STRING_BYTES_MIN, SAVED_STRING_SHIFT, SAVED_TURN_BYTES_MAX,
    SAVED_WANTED_MAX,
};
use crate::state::recent_values::RecentValues;
use crate::state::snapshot_file::FilePipe;
use crate::state::threads::lock;

use slot_saved::SlotSaved;
pub(crate) use slot_saved::Turn;

/// A snapshot.
pub(crate) struct Snapshot {
    slots: Box<[Mutex<SlotSaved>]>,
    files: Mutex<Files>,
    wanted: Mutex<Wanted>,
    /// The database of each table.
    databases: [u8; DB_COUNT],
    compresses: bool,
    /// What names take that are kept and count against the bound.
    names: Counted,
    names_bytes_max: u64,
    /// What those take that the walk keeps of slots with keys in several databases: if these were bounded, one of very many
    /// keys could never be saved.
    met_names: Counted,
    /// What names take that wait for their reads. The walk has memory for them.
    waiting_bytes: AtomicU64,
    /// Longer strings are large.
    string_bytes_max: usize,
    /// None: values on flash are written.
    references: Option<References>,
    /// Keys that were saved.
    pub(crate) keys: AtomicU64,
    /// Those of them whose values stay on flash.
    pub(crate) referred: AtomicU64,
    /// Those whose values recent records of the journal have.
    pub(crate) journaled: AtomicU64,
    /// Bytes that values have and the file has not, since they are compressed in it, or in the journal.
    pub(crate) compressed_away: AtomicU64,
    /// Keys when it began.
    pub(crate) keys_at_first: u64,
    /// Why there will be no file.
    failure: Mutex<Option<Failure>>,
    has_failed: AtomicBool,
}

/// How a checkpoint of the journal refers to values on flash rather than have them.
pub(crate) struct References {
    engine: Arc<dyn Engine>,
    number: u64,
    /// Values that the journal has in front of the checkpoint, and where that is. None: not yet, or it has none.
    recent: OnceLock<(RecentValues, Position)>,
}

impl References {
    /// Those of the checkpoint of the engine with this number.
    pub(crate) fn new(engine: Arc<dyn Engine>, number: u64) -> References {
        References { engine, number, recent: OnceLock::new() }
    }

    fn checkpoints(&self) -> &dyn Checkpoints {
        self.engine.checkpoints().expect("invariant: it takes one")
    }

    /// Whether the value of a key may stay where it is.
    fn may_refer(&self, view: &View<'_>) -> bool {
        let at = place_of(view);
        at.is_some_and(|at| self.checkpoints().may_refer(location(at), size_of(view, at)))
    }

    /// Refers to the value of a key. None: it is to be written.
    fn refer(&self, view: &View<'_>, frequency: u8, first_expiry_ms: u64) -> Option<Placed> {
        let at = place_of(view)?;
        let record = self.checkpoints().refer(self.number, location(at), size_of(view, at))?;
        let (kind, value_len) = (view.kind, view.value_len() as u32);
        let frequency = match view.stored {
            Stored::Cold(..) => frequency,
            // What is in RAM is worth more than what is not.
            Stored::Hot(_) | Stored::Clean(..) => frequency.max(1),
        };
        let generation = record.generation;
        Some(Placed { kind, at, generation, value_len, first_expiry_ms, frequency })
    }

    /// Refers to a string in RAM that the journal has. None: it is to be written.
    fn refer_to_journal(&self, key: &Key<'_>, view: &View<'_>) -> Option<Journaled> {
        let Stored::Hot(value) = view.stored else { return None };
        let (recent, checkpoint) = self.recent.get()?;
        if !Kind::from_bits(view.kind).is_string() || value.len() < RECENT_VALUE_BYTES_MIN {
            return None;
        }
        let position = recent.find(key, value)?;
        let back = checkpoint.0.checked_sub(position.0)?;
        Some(Journaled { back, value_len: value.len() as u32 })
    }
}

fn place_of(view: &View<'_>) -> Option<FlashRef> {
    match view.stored {
        Stored::Clean(_, at) | Stored::Cold(at, _) => Some(at),
        Stored::Hot(_) => None,
    }
}

fn location(at: FlashRef) -> Location {
    Location::from_units(at.units)
}

fn size_of(view: &View<'_>, at: FlashRef) -> usize {
    record_size(view.key.len(), at.stored_len as usize)
}

/// Why a snapshot came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// All keys of a database have changed: it is to be begun again.
    Overtaken,
    /// Told by a text.
    Failed(String),
    /// Its file could not be written.
    Unwritten(String),
}

/// What somebody waits for.
#[derive(Default)]
struct Wanted {
    /// Names, and their slots.
    names: RapidHashSet<(u16, Box<[u8]>)>,
    slots: RapidHashSet<u16>,
}

/// Where values are written to.
struct Files {
    /// None while the walk writes a large value to it, and in the end.
    main: Option<FileWriter<FilePipe>>,
    /// For what others write meanwhile.
    beside: Option<FileWriter<FilePipe>>,
}

impl Files {
    fn current(&mut self) -> Result<&mut FileWriter<FilePipe>, Failure> {
        let file = self.main.as_mut().or(self.beside.as_mut());
        file.ok_or_else(|| unwritten(std::io::Error::other("the snapshot is over")))
    }
}

/// What comes of a wish to save a key.
pub(crate) enum Saved {
    /// It is done, or was before.
    Yes,
    /// These values are on flash alone and are needed first.
    Lacks(SmallVec<[ColdValue; 1]>),
    /// The walk does it: it has a large value, or too many names are kept.
    Later,
}

/// How far the walk has come in a slot.
pub(crate) enum WalkedTo {
    /// Where it goes on in the table.
    Position(ScanPosition),
    /// There is no more in the table.
    EndOfTable,
    /// All of the slot is saved, and taken.
    EndOfSlot,
}

/// What comes of the walk's wish to save a name that has large values.
pub(crate) enum BegunName {
    /// It was saved before.
    Done,
    /// As [`Saved::Lacks`].
    Lacks(SmallVec<[ColdValue; 1]>),
    /// All else is saved. What it has in these tables is to be written now, while nobody changes it.
    Large(SmallVec<[u8; 1]>),
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
    /// Whether it is in the midst of something, and cannot wait for the walk.
    pub(crate) at_once: bool,
}

impl Snapshot {
    /// Begins with every slot held.
    pub(crate) fn new(
        tier: &Arc<Tier>,
        file: FileWriter<FilePipe>,
        compresses: bool,
        names_bytes_max: u64,
        references: Option<References>,
    ) -> Snapshot {
        let mut databases = [0; DB_COUNT];
        for db in 0..DB_COUNT as u8 {
            databases[usize::from(tier.keyspace.table_of(db))] = db;
        }
        Snapshot {
            slots: (0..SLOT_COUNT).map(|_| Mutex::default()).collect(),
            files: Mutex::new(Files { main: Some(file), beside: None }),
            wanted: Mutex::default(),
            databases,
            compresses,
            names: Counted::new(tier.clone()),
            names_bytes_max,
            met_names: Counted::new(tier.clone()),
            waiting_bytes: AtomicU64::new(0),
            string_bytes_max: string_bytes_max(tier.budget.max_bytes()),
            references,
            keys: AtomicU64::new(0),
            referred: AtomicU64::new(0),
            journaled: AtomicU64::new(0),
            compressed_away: AtomicU64::new(0),
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

    /// Takes the files out. Every slot is held, and nobody finds the snapshot any more: others may know of it, but
    /// save nothing.
    pub(crate) fn take_files(&self) -> [Option<FileWriter<FilePipe>>; 2] {
        let mut files = lock(&self.files);
        [files.main.take(), files.beside.take()]
    }

    /// Takes the file out to write a large value. What others save goes beside it until it is back; `beside`
    /// makes a file for that, once. Errors: it cannot be made.
    pub(crate) fn open_file(
        &self,
        beside: impl FnOnce() -> Result<FileWriter<FilePipe>, Failure>,
    ) -> Result<FileWriter<FilePipe>, Failure> {
        let has_none = lock(&self.files).beside.is_none();
        let made = if has_none { Some(beside()?) } else { None };
        let mut files = lock(&self.files);
        files.beside = files.beside.take().or(made);
        Ok(files.main.take().expect("invariant: the walk alone takes it, and puts it back"))
    }

    /// Puts it back.
    pub(crate) fn close_file(&self, file: FileWriter<FilePipe>) {
        lock(&self.files).main = Some(file);
    }

    /// Writes something about all keys. Errors: it cannot be written.
    pub(crate) fn describe(
        &self,
        write: impl FnOnce(&mut FileWriter<FilePipe>) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        write(lock(&self.files).current()?).map_err(unwritten)
    }

    /// Has the walk save a name before others: somebody waits for it. Where no more names may be kept, it walks over the
    /// whole slot.
    pub(crate) fn want(&self, key: &Key<'_>) {
        let keeps_name = !self.has_waiting(key.slot);
        let mut wanted = self.wanted.lock();
        if keeps_name && self.has_many_names() {
            wanted.slots.insert(key.slot);
        } else if wanted.names.len() < SAVED_WANTED_MAX {
            // Beyond, those who wait ask again, and the walk comes to all in the end.
            wanted.names.insert((key.slot, key.bytes.into()));
        }
    }

    /// The names that are wanted so.
    pub(crate) fn take_wanted(&self) -> RapidHashSet<(u16, Box<[u8]>)> {
        std::mem::take(&mut self.wanted.lock().names)
    }

    /// The slots that are.
    pub(crate) fn take_wanted_slots(&self) -> RapidHashSet<u16> {
        std::mem::take(&mut self.wanted.lock().slots)
    }

    /// Whether all of a slot was saved.
    pub(crate) fn is_taken(&self, slot: u16) -> bool {
        lock(&self.slots[usize::from(slot)]).is_taken()
    }

    /// Whether all of a slot was saved but what waits for its reads, which is something.
    pub(crate) fn has_waiting(&self, slot: u16) -> bool {
        lock(&self.slots[usize::from(slot)]).has_waiting()
    }

    /// Lets the names of a slot, which is held, wait for their reads that the walk has met and not saved. All else that the slot
    /// had was saved. Returns the places of their values on flash, by their number, or none, then the slot is taken; and what is
    /// to be dropped when the slot is let go of, since that takes long.
    pub(crate) fn let_wait(&self, slot: u16) -> (Vec<u64>, impl Sized + use<>) {
        let mut saved = lock(&self.slots[usize::from(slot)]);
        self.forget_names(&saved);
        let (places, kept) = saved.let_wait();
        self.waiting_bytes.fetch_add(saved.waiting_bytes(), Ordering::Relaxed);
        if places.is_empty() {
            saved.take();
        }
        (places, kept)
    }

    /// The names of a slot are no longer kept.
    fn forget_names(&self, saved: &SlotSaved) {
        let bytes = saved.names_bytes();
        self.names.subtract(bytes.early);
        self.met_names.subtract(bytes.of_slot);
    }

    /// The name of a slot that waits with a number. None: it was saved meanwhile.
    pub(crate) fn waiting_name(&self, slot: u16, number: usize) -> Option<Box<[u8]>> {
        lock(&self.slots[usize::from(slot)]).waiting_name(number).map(Box::from)
    }

    /// What names take that wait, in bytes.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Whether large values of a slot are being written, which is held: no element of them may go, not even
    /// because it has expired.
    pub(crate) fn is_writing_in(&self, slot: u16) -> bool {
        lock(&self.slots[usize::from(slot)]).under_way.is_some()
    }

    /// Says that all of a slot was saved, which is held.
    pub(crate) fn take_slot(&self, slot: u16) {
        self.take(&mut lock(&self.slots[usize::from(slot)]));
    }

    fn take(&self, saved: &mut SlotSaved) {
        self.forget_names(saved);
        self.waiting_bytes.fetch_sub(saved.waiting_bytes(), Ordering::Relaxed);
        saved.take();
    }

    /// Saves what a name holds in all databases, unless that was done. Its slot is held.
    pub(crate) fn save(&self, slot: &SlotState, key: &Key<'_>, reading: &Reading<'_>) -> Saved {
        let mut saved = lock(&self.slots[usize::from(key.slot)]);
        self.save_with(&mut saved, slot, key, reading)
    }

    fn save_with(
        &self,
        saved: &mut SlotSaved,
        slot: &SlotState,
        key: &Key<'_>,
        reading: &Reading<'_>,
    ) -> Saved {
        if self.has_failed() || saved.has(key) {
            return Saved::Yes;
        }
        let is_under_way = saved.under_way.as_deref() == Some(key.bytes);
        if is_under_way && reading.at_once {
            self.fail(Failure::Overtaken);
            return Saved::Yes;
        }
        let must_wait = || {
            let keeps_name = !reading.is_walk && !saved.has_waiting();
            self.has_large(slot, key) || keeps_name && self.has_many_names()
        };
        if is_under_way || !reading.at_once && must_wait() {
            return Saved::Later;
        }
        let lacked = self.lacked(slot, key, tables(slot), reading);
        if !lacked.is_empty() {
            return Saved::Lacks(lacked);
        }
        for table in tables(slot) {
            if let Err(failure) = self.save_in(slot, table, key, reading) {
                self.fail(failure);
                return Saved::Yes;
            }
        }
        let turn = if reading.is_walk { Turn::OfSlot } else { Turn::Early };
        self.note_saved(saved, key, turn);
        Saved::Yes
    }

    /// Saves what the names hold that the walk meets in a table of a slot, which is held, from a position on, until that is
    /// enough for a turn. `met` is told of those that are not saved so. Where all is saved and nothing was left the slot is
    /// taken. Cost: about 100 ns a small value, also where it is not in the CPU's cache.
    pub(crate) fn save_some(
        &self,
        (slot, state): (u16, &SlotState),
        (table, from): (u8, ScanPosition),
        reading: &Reading<'_>,
        mut met: impl FnMut(&Key<'_>, Saved),
    ) -> WalkedTo {
        let mut saved = lock(&self.slots[usize::from(slot)]);
        let saved = &mut *saved;
        // Where the slot has keys in one database, and had while the walk came here, the place of the walk tells what was saved,
        // and no name is looked up in others. What others have later is newer than the snapshot: whoever put it there had saved
        // first what its name held.
        let is_only_table = tables(state).all(|other| other == table);
        let keeps_names = !is_only_table || !saved.has_walked_to(table, from);
        let (mut keys, mut bytes) = (0, 0);
        let next = state.scan_ranked(table, from, |view, frequency| {
            let key = Key::in_slot(view.key, slot);
            bytes += self.bytes_of(state, (table, &key), &view);
            let of_key = match keeps_names {
                true => self.save_with(saved, state, &key, reading),
                false => self.save_met(saved, (state, table, &key), (&view, frequency), reading),
            };
            if let Some(place) = unsaved_place(&of_key) {
                saved.note_unsaved(&key, place);
                met(&key, of_key);
            }
            keys += 1;
            keys >= SAVED_KEYS_MAX || bytes >= SAVED_TURN_BYTES_MAX
        });
        if is_only_table && next.is_none() && !saved.has_unsaved() {
            self.take(saved);
            return WalkedTo::EndOfSlot;
        }
        if !keeps_names {
            saved.note_walked(state, table, next);
        }
        next.map_or(WalkedTo::EndOfTable, WalkedTo::Position)
    }

    /// What is to be written of a key: of a large collection all leaves, which are read if need be.
    fn bytes_of(&self, slot: &SlotState, (table, key): (u8, &Key<'_>), view: &View<'_>) -> usize {
        match Kind::from_bits(view.kind).is_tree() {
            true => tree_bytes(slot, table, key) as usize,
            false if self.may_refer(view) => 0,
            false => view.value_len(),
        }
    }

    /// Saves a key that the walk meets, of a slot that has no other table, and does not keep its name.
    fn save_met(
        &self,
        saved: &mut SlotSaved,
        (slot, table, key): (&SlotState, u8, &Key<'_>),
        (view, frequency): (&View<'_>, u8),
        reading: &Reading<'_>,
    ) -> Saved {
        if self.has_failed() || saved.has(key) {
            return Saved::Yes;
        }
        if self.is_large_view(slot, (table, key), view) {
            return Saved::Later;
        }
        if let Some(lacked) = self.lacked_view(key, view, reading) {
            return Saved::Lacks(SmallVec::from_elem(lacked, 1));
        }
        if let Err(failure) = self.save_view(slot, (table, key), (view, frequency), reading) {
            self.fail(failure);
        }
        saved.note_met(key);
        Saved::Yes
    }

    /// Whether nobody has to save what a name holds any more.
    pub(crate) fn has_saved(&self, key: &Key<'_>) -> bool {
        self.has_failed() || lock(&self.slots[usize::from(key.slot)]).has(key)
    }

    /// Whether who waits for a name to be saved may go on: it is, or it may save it by itself, now that the walk has been at its
    /// slot.
    pub(crate) fn has_come_to(&self, key: &Key<'_>) -> bool {
        self.has_saved(key) || self.has_waiting(key.slot)
    }

    /// Whether who is about to change what a name holds has to wait for the walk to save it. Its slot is held.
    pub(crate) fn must_wait_for(&self, slot: &SlotState, key: &Key<'_>) -> bool {
        let keeps_name = || self.has_many_names() && !self.has_waiting(key.slot);
        !self.has_saved(key) && (keeps_name() || self.has_large(slot, key))
    }

    /// Whether the names that are kept have come to their bound. What cannot wait goes beyond it.
    fn has_many_names(&self) -> bool {
        self.names.bytes() >= self.names_bytes_max
    }

    /// Begins to save a name that has large values, for the walk. Its slot is held.
    pub(crate) fn begin_large(
        &self,
        slot: &SlotState,
        key: &Key<'_>,
        reading: &Reading<'_>,
    ) -> BegunName {
        let mut saved = lock(&self.slots[usize::from(key.slot)]);
        if self.has_failed() || saved.has(key) {
            return BegunName::Done;
        }
        let (large, small): (SmallVec<[u8; 1]>, SmallVec<[u8; 1]>) =
            tables(slot).partition(|&table| self.is_large(slot, table, key));
        let lacked = self.lacked(slot, key, small.iter().copied(), reading);
        if !lacked.is_empty() {
            return BegunName::Lacks(lacked);
        }
        for table in small {
            if let Err(failure) = self.save_in(slot, table, key, reading) {
                self.fail(failure);
                return BegunName::Done;
            }
        }
        saved.under_way = Some(key.bytes.into());
        BegunName::Large(large)
    }

    /// Ends that: others may change what the name holds. Its slot is held.
    pub(crate) fn end_large(&self, key: &Key<'_>, turn: Turn) {
        let mut saved = lock(&self.slots[usize::from(key.slot)]);
        saved.under_way = None;
        self.note_saved(&mut saved, key, turn);
    }

    fn note_saved(&self, saved: &mut SlotSaved, key: &Key<'_>, turn: Turn) {
        let bytes = saved.note(key, turn);
        if bytes > 0 {
            match turn {
                Turn::Early => self.names.add(bytes),
                Turn::OfSlot => self.met_names.add(bytes),
            }
        }
    }

    fn save_in(
        &self,
        slot: &SlotState,
        table: u8,
        key: &Key<'_>,
        reading: &Reading<'_>,
    ) -> Result<(), Failure> {
        match slot.view_used(table, key) {
            Some((view, frequency)) => {
                self.save_view(slot, (table, key), (&view, frequency), reading)
            }
            None => Ok(()),
        }
    }

    fn save_view(
        &self,
        slot: &SlotState,
        (table, key): (u8, &Key<'_>),
        (view, frequency): (&View<'_>, u8),
        reading: &Reading<'_>,
    ) -> Result<(), Failure> {
        let kind = Kind::from_bits(view.kind);
        self.keys.fetch_add(1, Ordering::Relaxed);
        if kind.is_tree() {
            return self.save_tree(slot, (table, key), view.expire_at_ms, reading);
        }
        let mut object = Vec::new();
        let refer = |references: &References| {
            references.refer(view, frequency, slot.first_timer(table, key))
        };
        if let Some(placed) = self.references.as_ref().and_then(refer) {
            placed.save(&mut object);
            self.referred.fetch_add(1, Ordering::Relaxed);
        } else if let Some(journaled) = self.refer_to_journal(key, view) {
            journaled.save(&mut object);
            self.journaled.fetch_add(1, Ordering::Relaxed);
            self.compressed_away.fetch_add(journaled.value_len.into(), Ordering::Relaxed);
        } else {
            let value = match view.stored {
                Stored::Hot(value) | Stored::Clean(value, _) => value,
                Stored::Cold(at, _) => {
                    let fetched = reading.fetched.value(at);
                    // A moment ago it was to stay where it is.
                    fetched.ok_or_else(|| unreadable("it could not be written to flash"))?
                }
            };
            object.reserve(value.len() + 16);
            save_value(&mut object, kind, value, self.compresses);
            if self.compresses && kind.is_string() {
                let saved = value.len().saturating_sub(object.len()) as u64;
                self.compressed_away.fetch_add(saved, Ordering::Relaxed);
            }
        }
        let mut files = lock(&self.files);
        let file = files.current()?;
        file.key(self.database(table), key.bytes, view.expire_at_ms, &object).map_err(unwritten)
    }

    fn refer_to_journal(&self, key: &Key<'_>, view: &View<'_>) -> Option<Journaled> {
        // A longer one is written by the walk alone.
        let references = self.references.as_ref()?;
        (view.value_len() <= self.string_bytes_max)
            .then(|| references.refer_to_journal(key, view))?
    }

    /// Has values referred to from now on that the journal has in front of the checkpoint, at this position; once.
    pub(crate) fn set_recent(&self, values: RecentValues, checkpoint: Position) {
        if let Some(references) = &self.references {
            let set = references.recent.set((values, checkpoint));
            assert!(set.is_ok(), "records are gathered once for a checkpoint");
        }
    }

    /// Whether something that a name holds is not saved at once. Its slot is held.
    fn has_large(&self, slot: &SlotState, key: &Key<'_>) -> bool {
        tables(slot).any(|table| self.is_large(slot, table, key))
    }

    /// Whether what a key has is not saved at once.
    fn is_large(&self, slot: &SlotState, table: u8, key: &Key<'_>) -> bool {
        slot.view(table, key).is_some_and(|view| self.is_large_view(slot, (table, key), &view))
    }

    fn is_large_view(
        &self,
        slot: &SlotState,
        (table, key): (u8, &Key<'_>),
        view: &View<'_>,
    ) -> bool {
        let kind = Kind::from_bits(view.kind);
        kind.is_string() && view.value_len() > self.string_bytes_max && !self.may_refer(view)
            || kind.is_tree() && tree_bytes(slot, table, key) > SAVED_AT_ONCE_BYTES_MAX
    }

    /// Whether the value of a key may stay on flash.
    fn may_refer(&self, view: &View<'_>) -> bool {
        self.references.as_ref().is_some_and(|references| references.may_refer(view))
    }

    /// Values of a name in some tables that are on flash alone, do not stay there, and are not at hand.
    fn lacked(
        &self,
        slot: &SlotState,
        key: &Key<'_>,
        tables: impl Iterator<Item = u8>,
        reading: &Reading<'_>,
    ) -> SmallVec<[ColdValue; 1]> {
        let lacked = |table| self.lacked_view(key, &slot.view(table, key)?, reading);
        tables.filter_map(lacked).collect()
    }

    fn lacked_view(
        &self,
        key: &Key<'_>,
        view: &View<'_>,
        reading: &Reading<'_>,
    ) -> Option<ColdValue> {
        let Stored::Cold(at, value_len) = view.stored else { return None };
        let is_lacked = reading.fetched.value(at).is_none() && !self.may_refer(view);
        is_lacked.then_some(ColdValue { at, key_len: key.bytes.len() as u32, value_len })
    }

    /// The database of a table.
    pub(crate) fn database(&self, table: u8) -> u64 {
        self.databases[usize::from(table)].into()
    }

    /// A collection of several leaves, with its slot held from the first to the last.
    fn save_tree(
        &self,
        slot: &SlotState,
        (table, key): (u8, &Key<'_>),
        expire_at_ms: u64,
        reading: &Reading<'_>,
    ) -> Result<(), Failure> {
        let mut out = Vec::new();
        let tree = SavedTree::begin(&mut out, slot, table, key);
        let mut tree = tree.expect("invariant: it is a large collection");
        let mut files: Option<MutexGuard<'_, Files>> = None;
        loop {
            let leaves = tree.next_leaves(slot, table, key, SAVED_LEAVES_MAX);
            if leaves.is_empty() {
                break;
            }
            let wants = wants_of(slot, reading.tier, &leaves);
            let fetched = match wants.is_empty() {
                true => FetchedSet::default(),
                false => (reading.read_held)(reading.tier, wants),
            };
            add_leaves(slot, (&mut tree, &leaves), (reading.tier, &fetched), &mut out)?;
            // The first are read before, so that others need not wait for the file.
            match &mut files {
                Some(files) => files.current()?.more(&out).map_err(unwritten)?,
                None => {
                    let (db, mut locked) = (self.database(table), lock(&self.files));
                    let key = locked.current()?.key(db, key.bytes, expire_at_ms, &out);
                    key.map_err(unwritten)?;
                    files = Some(locked);
                }
            }
            out.clear();
        }
        tree.finish(&mut out);
        let mut files = files.expect("invariant: a collection has a leaf");
        files.current()?.more(&out).map_err(unwritten)
    }
}

/// Of a key that is not saved, the place of the first value that it lacks, or 0.
fn unsaved_place(of_key: &Saved) -> Option<u64> {
    match of_key {
        Saved::Yes => None,
        Saved::Lacks(values) => Some(values.first().map_or(0, |value| value.at.units)),
        Saved::Later => Some(0),
    }
}

/// The tables in which a slot has keys.
fn tables(slot: &SlotState) -> impl Iterator<Item = u8> {
    (0..DB_COUNT as u8).filter(|&table| slot.len(table) > 0)
}

/// The length beyond which a string is large, with such a `maxmemory`.
fn string_bytes_max(maxmemory: u64) -> usize {
    let bytes = match maxmemory {
        0 => SAVED_STRING_BYTES_MAX,
        bytes => bytes >> SAVED_STRING_SHIFT,
    };
    bytes.clamp(SAVED_STRING_BYTES_MIN, SAVED_STRING_BYTES_MAX) as usize
}

/// What is to be read of leaves. Their slot is held.
pub(crate) fn wants_of(slot: &SlotState, reader: &TierWorker, leaves: &[LeafAt]) -> Vec<Want> {
    let want = |leaf: &LeafAt| match stored(slot, leaf) {
        Stored::Cold(at, len) => Some(reader.tier.want(&leaf.key(), at, len)),
        Stored::Hot(_) | Stored::Clean(..) => None,
    };
    leaves.iter().filter_map(want).collect()
}

/// The first of some leaves that come to so many bytes at most, or one, and what they come to. Their slot is held.
pub(crate) fn leaves_of_window<'l>(
    slot: &SlotState,
    leaves: &'l [LeafAt],
    bytes_max: usize,
) -> (&'l [LeafAt], usize) {
    let (mut count, mut bytes) = (0, 0);
    for leaf in leaves {
        let view = slot.view(leaf.table(), &leaf.key());
        let len = view.expect("invariant: a leaf that a branch names is there").value_len();
        if count > 0 && bytes + len > bytes_max {
            break;
        }
        (count, bytes) = (count + 1, bytes + len);
    }
    (&leaves[..count], bytes)
}

/// Writes leaves, all of which are at hand. Their slot is held. Errors: one could not be read.
pub(crate) fn add_leaves(
    slot: &SlotState,
    (tree, leaves): (&mut SavedTree, &[LeafAt]),
    (reader, fetched): (&TierWorker, &FetchedSet),
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    for leaf in leaves {
        match stored(slot, leaf) {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => tree.add(out, bytes),
            Stored::Cold(at, len) => {
                let record = reader.tier.want(&leaf.key(), at, len).record;
                let failure = || unreadable(fetched.failure(record).unwrap_or("it is gone"));
                tree.add(out, fetched.value(record).ok_or_else(failure)?);
            }
        }
    }
    Ok(())
}

fn stored<'s>(slot: &'s SlotState, leaf: &LeafAt) -> Stored<'s> {
    let view = slot.view(leaf.table(), &leaf.key());
    view.expect("invariant: a leaf that a branch names is there").stored
}

pub(crate) fn unwritten(error: std::io::Error) -> Failure {
    Failure::Unwritten(format!("Write error saving DB on disk: {error}"))
}

/// A value on flash is lost.
pub(crate) fn unreadable(reason: &str) -> Failure {
    Failure::Failed(format!("cannot read the value of a key: {reason}"))
}

/// What a run lacks to save a key before it changes it: values, or none if the walk is to save it.
pub(crate) fn lacks(key: &Key<'_>, values: SmallVec<[ColdValue; 1]>) -> Box<NotResident> {
    Box::new(NotResident { key: key.bytes.into(), values, reply_bytes: 0, is_to_save: true })
}
