//! A snapshot's file is read into the databases: at the start, and for DEBUG RELOAD.
//!
//! Values go through the tier like those that clients write: they are demoted as memory fills, and what finds no
//! room ends it. A large collection comes in pieces, each of which is added to what the key holds; the leaves that
//! change may be on flash by then, and are fetched for it.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use command::collection::Walk;
use command::{Classes, ColdValue, CommandError, Cx, Effects, Waits};
use flash::{Checkpoints, JournalError, Location, RecordId, Recovery, record_size};
use keyspace::{DB_COUNT, Db, DetachedTable, Key, Noting, SLOT_COUNT, SlotState, Tally, WHOLE};
use rdb::file::FileError;
use thiserror::Error as ThisError;
use tier::{FetchedSet, VALUE_OVERHEAD_BYTES, Want, sort_wants};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::limits::{ATTEMPTS_MAX, DUMP_OVER_SHIFT, FLUSHED_TICKS_MAX, LOADED_OVER_SHIFT};
use crate::session::errand::save_in_turn;
use crate::session::journal::{cut_logging, journal_options};
use crate::session::load_brake::Brake;
use crate::session::load_file::{Batch, LoadedPiece, LoadedPlace, LoadedPlaces, start_reading};
use crate::session::load_memory::LoadMemory;
use crate::session::load_recent::RecentKeys;
use crate::session::load_room::make_room_for_load;
use crate::session::replay::load_journal;
use crate::session::save::{AtHand, snapshot_path};
use crate::session::taken_once::TakenOnce;
use crate::state::client_memory::request_bytes_max;
use crate::state::clock::unix_ms;
use crate::state::files::SavedFile;
use crate::state::saves::{LOADING_ERROR, Purpose};
use crate::state::server::Server;
use crate::state::snapshot::Failure;
use crate::state::worker::Worker;

/// Between two lines of the log.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Why a file is not loaded.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub(crate) enum NotLoaded {
    /// It cannot be opened.
    #[error("cannot open it: {0}")]
    Open(#[from] io::Error),
    /// It is damaged, or has something that is not supported.
    #[error(transparent)]
    File(#[from] FileError),
    /// The thread that reads it has ended before.
    #[error("nobody reads it any more")]
    Thread,
    /// A string or an element that may not be in memory.
    #[error(
        "at byte {offset}: the key {key} of database {db}: something in its value takes more than {bytes_max} bytes to \
         load, which is what one request may take: start with a larger maxmemory-clients (for instance 100%) to load it"
    )]
    TooLarge {
        /// Where that is.
        offset: u64,
        /// Which.
        key: String,
        /// Its database.
        db: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// A key that cannot be made.
    #[error("at byte {offset}: the key {key} of database {db}: {reason}")]
    Key {
        /// Where its value begins.
        offset: u64,
        /// Which.
        key: String,
        /// Its database.
        db: u64,
        /// Why.
        reason: Cow<'static, str>,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The values on flash that a snapshot refers to are not there.
    #[error("its values on flash: {0}")]
    Flash(String),
    /// The snapshot that it begins with.
    #[error("its snapshot {name}: {reason}")]
    Checkpoint {
        /// Which.
        name: String,
        /// Why.
        reason: Box<NotLoaded>,
    },
    /// There is a file of Redis where the journal is to be.
    #[error(
        "an append-only file of Redis is there, which Kelvin does not read: have Redis write a snapshot (SAVE) to start with"
    )]
    OfRedis,
    /// What was loaded could not be saved for the journal to begin with.
    #[error("no checkpoint could be saved to begin with")]
    NotSaved,
    /// A record that cannot be run again.
    #[error("the record that ends at position {position}: {reason}")]
    Record {
        /// Where it ends.
        position: u64,
        /// Why.
        reason: String,
    },
}

impl NotLoaded {
    /// Whether it is the journal that is not loaded.
    pub(crate) fn is_of_journal(&self) -> bool {
        matches!(
            self,
            NotLoaded::Journal(_)
                | NotLoaded::Checkpoint { .. }
                | NotLoaded::Record { .. }
                | NotLoaded::NotSaved
                | NotLoaded::OfRedis
        )
    }
}

/// What DEBUG RELOAD does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// It saves first.
    pub(crate) saves: bool,
    /// It flushes all databases in between.
    pub(crate) flushes: bool,
    /// Keys may be there already.
    pub(crate) merges: bool,
}

impl Load {
    /// Errors: with the text of the reply.
    pub(super) async fn run(self, worker: &Rc<Worker>) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        let loading = worker.clone();
        // A client that goes must not leave it half done.
        spawn_local(async move {
            let _ = sender.send(self.run_whole(&loading).await);
        });
        receiver.await.unwrap_or_else(|_| Err("ERR the server is stopping".to_owned()))
    }

    async fn run_whole(self, worker: &Worker) -> Result<(), String> {
        let _refusing = Refusing::begin(&worker.server).ok_or(LOADING_ERROR)?;
        if self.saves && !save_in_turn(worker, Purpose::Save).await {
            return Err("ERR".to_owned());
        }
        begin_loading(worker).await?;
        cut_logging(&worker.server);
        if self.flushes {
            flush(worker);
            // What is loaded would come on top of what is still being freed.
            for _ in 0..FLUSHED_TICKS_MAX {
                if !worker.server.tier.is_freeing() {
                    break;
                }
                worker.upkeep_tick.notified().await;
            }
        }
        let merging = if self.merges { Merging::Over } else { Merging::Not };
        load_begun(worker, merging).await.map_err(|error| {
            tracing::error!(%error, "not loaded");
            "ERR Error trying to load the RDB dump, check server logs.".to_owned()
        })?;
        if worker.server.journaling.is_cut() && !save_in_turn(worker, Purpose::Checkpoint).await {
            return Err("ERR the journal could not be begun anew, check server logs.".to_owned());
        }
        Ok(())
    }
}

/// While it is there, others' requests that need the data are refused, those that are under way as well.
struct Refusing<'a>(&'a Server);

impl Refusing<'_> {
    /// None: another load refuses them.
    fn begin(server: &Server) -> Option<Refusing<'_>> {
        if !server.pause.start_loading() {
            return None;
        }
        let all = server.tier.keyspace.lock_all();
        server.listening.set_loading(true);
        drop(all);
        Some(Refusing(server))
    }
}

impl Drop for Refusing<'_> {
    fn drop(&mut self) {
        let all = self.0.tier.keyspace.lock_all();
        self.0.listening.set_loading(false);
        drop(all);
        self.0.pause.end_loading();
    }
}

/// Begins to load, which calls off a snapshot that is under way. Errors: it is the last.
async fn begin_loading(worker: &Worker) -> Result<(), String> {
    let saves = &worker.server.saves;
    while !saves.begin_loading() {
        if saves.purpose() == Some(Purpose::Shutdown) {
            return Err("ERR the server is shutting down".to_owned());
        }
        if let Some(snapshot) = saves.snapshot() {
            snapshot.fail(Failure::Failed("the file is to be loaded".to_owned()));
        }
        worker.upkeep_tick.notified().await;
    }
    make_room_for_load(&worker.server);
    Ok(())
}

/// Has all that needs the data refused until [`load_at_start`] has ended. Before anybody is served.
pub(crate) fn begin_at_start(server: &Server) {
    assert!(server.pause.start_loading(), "invariant: nothing is being loaded yet");
    server.listening.set_loading(true);
    assert!(server.saves.begin_loading(), "invariant: nobody saves yet");
    make_room_for_load(server);
}

/// Loads the journal, or else the snapshot's file, if there is one, after [`begin_at_start`].
///
/// Errors: not all of it could be loaded. Nobody is served what there is of it.
pub(crate) async fn load_at_start(worker: &Worker) -> Result<(), NotLoaded> {
    if worker.server.config.appendonly.load() {
        return load_opened(worker, Recovery::open(journal_options(&worker.server))).await;
    }
    load_begun(worker, Merging::Not).await?;
    drop(Refusing(&worker.server));
    Ok(())
}

/// The same of a journal that was opened.
pub(crate) async fn load_opened(
    worker: &Worker,
    opened: Result<Recovery, JournalError>,
) -> Result<(), NotLoaded> {
    load_journal(worker, opened).await?;
    drop(Refusing(&worker.server));
    Ok(())
}

/// Loads the snapshot's file, if there is one, and ends that.
async fn load_begun(worker: &Worker, merging: Merging) -> Result<(), NotLoaded> {
    let loaded = load_saved(worker, merging).await;
    end_loading(worker, loaded.is_ok());
    loaded.map(drop)
}

/// Loads the snapshot's file. False: there is none.
pub(super) async fn load_saved(worker: &Worker, merging: Merging) -> Result<bool, NotLoaded> {
    let (dir, name) = snapshot_path(&worker.server.config);
    match load_file(worker, &dir.join(name), merging).await {
        Ok(_) => Ok(true),
        Err(NotLoaded::Open(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends what [`begin_loading`] has begun.
pub(super) fn end_loading(worker: &Worker, is_whole: bool) {
    let changes = is_whole.then(|| worker.server.changes());
    worker.server.saves.end_loading(changes);
}

/// Loads a file. Returns the keys whose values are in the journal.
pub(super) async fn load_file(
    worker: &Worker,
    path: &Path,
    merging: Merging,
) -> Result<RecentKeys, NotLoaded> {
    let file = worker.server.files.open(path)?;
    let loaded = Loading::new(worker, merging).load(path, file).await;
    worker.tier.after_batch(&mut worker.tally.borrow_mut());
    loaded
}

/// How the keys of a file go together with what is there, or comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// They are all that is there.
    Not,
    /// Keys may be there already.
    Over,
    /// Records of the journal follow, which tell when keys went: none is passed over because its time has come.
    Before,
}

pub(super) struct Loading<'a> {
    pub(super) worker: &'a Worker,
    merging: Merging,
    start: Instant,
    brake: Brake,
    memory: LoadMemory,
}

/// Bytes that an element, a string or what Redis has packed may take on its way: one that a client may have sent
/// is there twice.
fn item_bytes_max(server: &Server) -> u64 {
    request_bytes_max(server).saturating_mul(2)
}

impl<'a> Loading<'a> {
    pub(super) fn new(worker: &'a Worker, merging: Merging) -> Loading<'a> {
        let memory = LoadMemory::new(match merging {
            Merging::Before => LOADED_OVER_SHIFT,
            Merging::Not | Merging::Over => DUMP_OVER_SHIFT,
        });
        Loading { worker, merging, start: Instant::now(), brake: Brake::default(), memory }
    }

    async fn load(&self, path: &Path, file: SavedFile) -> Result<RecentKeys, NotLoaded> {
        let server = &self.worker.server;
        let file_bytes = file.size()?;
        tracing::info!(path = %path.display(), file_bytes, "loading");
        server.saves.loading.begin_file(file_bytes);
        let refers = self.merging == Merging::Before;
        let mut batches = start_reading(server, file, item_bytes_max(server), refers)?;
        let (mut putting, mut logged) = (Putting::default(), self.start);
        let mut recent = RecentKeys::new(&server.tier);
        loop {
            let batch = batches.recv().await.ok_or(NotLoaded::Thread)??;
            if batch.is_empty() {
                break;
            }
            let Batch { pieces, places, recent: more, put, .. } = batch;
            more.into_iter().for_each(|key| recent.add(key));
            for piece in pieces {
                self.put(&mut putting, piece).await?;
            }
            for places in &places {
                self.put_places(places).await?;
            }
            if let Some(put) = put {
                // The thread may have ended.
                let _ = put.send(());
            }
            self.worker.tier.after_batch(&mut self.worker.tally.borrow_mut());
            tokio::task::yield_now().await;
            if logged.elapsed() > PROGRESS_EVERY {
                logged = Instant::now();
                let read = server.saves.loading.done_bytes.load(Ordering::Relaxed);
                let keys = server.saves.loaded_keys.load(Ordering::Relaxed);
                tracing::info!(read, file_bytes, keys, "loading");
            }
        }
        let keys = server.saves.loaded_keys.load(Ordering::Relaxed);
        let expired = server.saves.loaded_expired.load(Ordering::Relaxed);
        let seconds = self.start.elapsed().as_secs_f64();
        let on_flash = server.saves.loaded_places.load(Ordering::Relaxed);
        tracing::info!(keys, on_flash, expired, seconds, "DB loaded from disk");
        let engine = server.tier.engine();
        match engine.as_ref().and_then(|engine| engine.checkpoints()) {
            Some(checkpoints) if refers => {
                let ended = checkpoints.end_claims();
                ended.map_err(|error| NotLoaded::Flash(error.to_string()))?;
            }
            _ => {}
        }
        Ok(recent)
    }

    /// Makes keys of one slot whose values stay on flash.
    async fn put_places(&self, loaded: &LoadedPlaces) -> Result<(), NotLoaded> {
        let (worker, server) = (self.worker, &*self.worker.server);
        let Some(first) = loaded.places.first() else { return Ok(()) };
        self.brake.wait(worker, loaded.bytes).await;
        let _claim = match worker.tier.must_wait_for(loaded.bytes) {
            false => None,
            true => self.memory.wait(worker, loaded.bytes).await.map_err(|_| {
                first.refused(loaded.db, "there is no memory for it within maxmemory")
            })?,
        };
        let db = u8::try_from(loaded.db).ok().filter(|&db| usize::from(db) < DB_COUNT);
        let db = db.ok_or_else(|| first.refused(loaded.db, "there are fewer databases"))?;
        let table = server.tier.keyspace.table_of(db);
        let engine = server.tier.engine();
        let checkpoints = engine.as_ref().and_then(|engine| engine.checkpoints());
        let mut slot = server.tier.keyspace.lock(loaded.slot);
        let mut tally = worker.tally.borrow_mut();
        tally.noting = Noting::default();
        Db::new(&mut slot, table, 0, &mut tally).reserve(loaded.places.len());
        for place in &loaded.places {
            put_place(checkpoints, (&mut slot, loaded.slot, table), place, &mut tally)
                .map_err(|reason| place.refused(loaded.db, reason))?;
        }
        let count = loaded.places.len() as u64;
        server.saves.loaded_keys.fetch_add(count, Ordering::Relaxed);
        server.saves.loaded_places.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a key of a piece, or adds it to that, with the leaves at hand that it needs.
    pub(super) async fn put(
        &self,
        putting: &mut Putting,
        mut piece: LoadedPiece,
    ) -> Result<(), NotLoaded> {
        let LoadedPiece { part, piece: value, .. } = &piece;
        if value.is_first() {
            let is_over = part.expire_at_ms > 0 && part.expire_at_ms <= unix_ms();
            putting.has_expired = is_over && self.merging != Merging::Before;
            let saves = &self.worker.server.saves;
            let loaded =
                if putting.has_expired { &saves.loaded_expired } else { &saves.loaded_keys };
            loaded.fetch_add(1, Ordering::Relaxed);
        }
        if putting.has_expired {
            return Ok(());
        }
        let tier = &self.worker.tier;
        let mut bytes = value.bytes();
        self.brake.wait(self.worker, bytes).await;
        let (mut fetched, mut wants) = (FetchedSet::default(), Vec::new());
        for attempt in 0.. {
            // It is the piece's until the key has it.
            let _claim = match tier.must_wait_for(bytes) {
                false => None,
                true => self
                    .memory
                    .wait(self.worker, bytes)
                    .await
                    .map_err(|_| piece.refused("there is no memory for it within maxmemory"))?,
            };
            if !wants.is_empty() {
                fetched.extend(tier.fetch(std::mem::take(&mut wants)).await);
            }
            wants = self.put_now(&mut piece, &mut fetched, attempt >= ATTEMPTS_MAX)?;
            if wants.is_empty() {
                break;
            }
            fetched.keep(&wants);
            wants.retain(|want| !fetched.has(want.record));
            // A leaf is there twice for a moment.
            let of_wants = |want: &Want| 2 * want.value_len as usize + VALUE_OVERHEAD_BYTES;
            bytes += wants.iter().map(of_wants).sum::<usize>() as u64;
        }
        if !fetched.is_empty() {
            // What was changed came from flash, and may go back there.
            tier.after_batch(&mut self.worker.tally.borrow_mut());
        }
        Ok(())
    }

    /// Puts a piece. Returns what it lacks; if that moves again and again, `is_held` has it read with the slot held.
    fn put_now(
        &self,
        loaded: &mut LoadedPiece,
        fetched: &mut FetchedSet,
        is_held: bool,
    ) -> Result<Vec<Want>, NotLoaded> {
        let (worker, server) = (self.worker, &*self.worker.server);
        let part = loaded.part.clone();
        let db = u8::try_from(part.db).ok().filter(|&db| usize::from(db) < DB_COUNT);
        let db = db.ok_or_else(|| loaded.refused("there are fewer databases"))?;
        let key = Key::new(&part.key);
        let mut locked = server.tier.keyspace.lock_one(key.slot);
        loop {
            let at_hand = AtHand { tier: &server.tier, set: fetched };
            let mut tally = worker.tally.borrow_mut();
            tally.noting = Noting::default();
            let mut cx = Cx {
                locked: &mut locked,
                keys: &[key],
                array_len: None,
                db,
                now_ms: if self.merging == Merging::Before { 0 } else { unix_ms() },
                tally: &mut tally,
                fetched: &at_hand,
                statistics: server,
                encodings: server,
                limits: &TakenOnce::of(server),
                no_touch: true,
                detached: Vec::new(),
                reply_bytes_max: usize::MAX,
                spare: &mut Vec::new(),
                cold_leaves: Vec::new(),
                random: 0,
                waits: Waits::Never,
                walk: Walk::Whole,
                effects: Effects::new(Classes::NONE, true),
            };
            if loaded.piece.is_first() && self.merging != Merging::Over && cx.exists(&key) {
                return Err(loaded.refused("it is there twice"));
            }
            let missing = match loaded.piece.put(&mut cx, &part) {
                Ok(()) => return Ok(Vec::new()),
                Err(CommandError::NotResident(missing)) => missing,
                Err(error) => return Err(loaded.refused(reason_of(&error))),
            };
            drop(tally);
            // With the slot held, so that the records are those that are meant.
            let want =
                |value: &ColdValue| server.tier.want_at(value.at, value.key_len, value.value_len);
            let mut wants: Vec<Want> = missing.values.iter().map(want).collect();
            sort_wants(&mut wants);
            if let Some(failure) = wants.iter().find_map(|want| fetched.failure(want.record)) {
                return Err(
                    loaded.refused(format!("cannot read a part of it from flash: {failure}"))
                );
            }
            if !is_held {
                return Ok(wants);
            }
            wants.retain(|want| !fetched.has(want.record));
            fetched.extend(worker.tier.fetch_blocking(wants));
        }
    }
}

/// What is known of the key that is being put.
#[derive(Default)]
pub(super) struct Putting {
    /// It is passed over.
    has_expired: bool,
}

impl LoadedPlace {
    fn refused(&self, db: u64, reason: &'static str) -> NotLoaded {
        let key = self.key.escape_ascii().to_string();
        NotLoaded::Key { offset: self.offset, key, db, reason: reason.into() }
    }
}

/// Makes a key whose value stays on flash, in a table of a slot. Errors: why it cannot be.
fn put_place(
    checkpoints: Option<&dyn Checkpoints>,
    (state, slot, table): (&mut SlotState, u16, u8),
    loaded: &LoadedPlace,
    tally: &mut Tally,
) -> Result<(), &'static str> {
    let LoadedPlace { ref key, hash, expire_at_ms, placed, .. } = *loaded;
    let key = Key { bytes: key, slot, hash };
    let at = Location::from_units(placed.at.units);
    let record = RecordId { at, generation: placed.generation };
    let size = record_size(key.bytes.len(), placed.at.stored_len as usize);
    let place = (placed.at, placed.value_len);
    let mut db = Db::new(state, table, 0, tally);
    if !db.put_cold(&key, placed.kind, place, expire_at_ms) {
        return Err("it is there twice");
    }
    if placed.frequency > 0 {
        db.set_frequency(&key, placed.frequency);
    }
    if !checkpoints.is_some_and(|checkpoints| checkpoints.claim(record, size)) {
        return Err("it refers to a value that is not on flash");
    }
    state.set_timer((table, &key), WHOLE, placed.first_expiry_ms, tally);
    Ok(())
}

impl LoadedPiece {
    pub(super) fn refused(&self, reason: impl Into<Cow<'static, str>>) -> NotLoaded {
        let LoadedPiece { part, offset, .. } = self;
        let key = part.key.escape_ascii().to_string();
        NotLoaded::Key { offset: *offset, key, db: part.db, reason: reason.into() }
    }
}

fn reason_of(error: &CommandError) -> Cow<'static, str> {
    match error {
        CommandError::Reply(text) if *error != CommandError::OUT_OF_MEMORY => {
            text.strip_prefix("ERR ").unwrap_or(text).to_owned().into()
        }
        _ => "there is no memory for it".into(),
    }
}

/// What comes without saving what was there first ends a snapshot that is being taken: it is begun again. A slot
/// must be held.
pub(crate) fn fail_snapshot(worker: &Worker) {
    let server = &worker.server;
    if server.listening.split().1
        && let Some(snapshot) = server.saves.snapshot()
    {
        snapshot.fail(Failure::Overtaken);
    }
}

/// Removes all keys.
fn flush(worker: &Worker) {
    let keyspace = &worker.server.tier.keyspace;
    let mut tally = Tally::default();
    let mut detached: Vec<DetachedTable> = Vec::new();
    let mut all = keyspace.lock_all();
    for slot in 0..SLOT_COUNT as u16 {
        let state = all.slot(slot);
        for table in 0..DB_COUNT as u8 {
            state.changed_all(table, None, unix_ms());
            detached.extend(state.clear(table, &mut tally));
        }
    }
    drop(all);
    worker.server.tier.add_tally(&mut tally);
    worker.free_later(detached);
    worker.after_batch();
}
