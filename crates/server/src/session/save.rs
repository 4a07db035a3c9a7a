//! Snapshots are taken: a thread of its own walks over all slots (`state/snapshot.rs` says how that is of one
//! moment).

mod large;
mod recent;
mod referred;
mod turns;
mod window;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use command::{ColdValue, Fetched};
use flash::{Checkpoints, Engine, Journal, Position};
use keyspace::{DB_COUNT, FlashRef, Key, SLOT_COUNT, ScanPosition, SlotState};
use rdb::file::FileWriter;
use rdb::payload::{VERSION_7_0, VERSION_7_4};
use smallvec::SmallVec;
use tier::{Background, Copier, FetchedSet, Tier, TierWorker, Want};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::limits::{ATTEMPTS_MAX, SAVED_FIXED_BYTES, SAVED_GAP_BYTES, SAVED_READS_MAX};
use crate::session::journal::{begin_logging, end_cut, take_due_rewrite, tell_of_room_to_come};
use crate::session::load_room::give_room_of_load_back;
use crate::state::clock::unix_ms;
use crate::state::saves::Purpose;
use crate::state::server::{REDIS_VERSION, Server};
use crate::state::snapshot::{
    BegunName, Failure, Reading, References, Saved, Snapshot, Turn, WalkedTo, unreadable, unwritten,
};
use crate::state::snapshot_file::{FilePipe, SnapshotFile};

pub(crate) use recent::set_values;
pub(crate) use referred::forget_references;

use recent::Gathering;
use referred::{Referred, engine_to_refer_to};
use turns::Turns;
use window::Window;

/// What a checkpoint says of itself that refers to values on flash: which table each database has, and its number.
pub(crate) const AUX_TABLES: &str = "kelvin-tables";
pub(crate) const AUX_CHECKPOINT: &str = "kelvin-checkpoint";
/// Keys were taken out of it since their value is lost.
pub(crate) const AUX_LOST: &str = "kelvin-lost";

/// How often a snapshot is begun again.
const BEGUN_MAX: u32 = 16;
/// How long the walk waits for the drive at a time.
const BEHIND: Duration = Duration::from_millis(1);
/// Bytes that the names of keys may take which are written before the walk comes to them: a part of `maxmemory`,
/// or so many without one.
const NAMES_SHIFT: u32 = 4;
const NAMES_BYTES_MAX: u64 = 1 << 30;

/// Takes a snapshot on a thread of its own and tells `done` whether there is a file. False: one is under
/// way, or the server is stopping, or a file is being loaded, or one was not loaded as a whole.
///
/// Errors: there is no thread.
pub(crate) fn start_save(
    server: &Arc<Server>,
    purpose: Purpose,
    done: impl FnOnce(bool) + Send + 'static,
) -> std::io::Result<bool> {
    if !server.saves.begin(purpose) {
        return Ok(false);
    }
    let mut begun = Begun::new(server, purpose);
    if server.is_stopping() {
        // Behind the last one writes are refused until the process ends.
        return Ok(false);
    }
    let save = move || {
        let is_saved = begun.save();
        // Before another can begin.
        drop(begun);
        done(is_saved);
    };
    server.threads.start("save", Box::new(save)).map(|()| true)
}

/// Takes a checkpoint of the journal on this thread, which may wait: for the snapshot that is under way, and for its
/// own. False: there is none.
pub(super) fn take_checkpoint(server: &Arc<Server>) -> bool {
    let purpose = Purpose::Checkpoint;
    while !server.saves.begin(purpose) {
        if server.is_stopping() || server.saves.is_half_loaded() {
            return false;
        }
        stdx::waiting::sleep(BEHIND);
    }
    Begun::new(server, purpose).save()
}

/// A snapshot under way. It is over when this is dropped, however that came.
pub(super) struct Begun {
    server: Arc<Server>,
    purpose: Purpose,
    /// What is in the file, if there is one.
    done: Option<Done>,
    /// Whether there is none because it could not be written.
    is_unwritten: bool,
}

impl Begun {
    /// Notes that it is under way, which it is.
    pub(super) fn new(server: &Arc<Server>, purpose: Purpose) -> Begun {
        if purpose == Purpose::Checkpoint {
            server.journaling.begin_rewrite(unix_seconds(server));
        }
        Begun { server: server.clone(), purpose, done: None, is_unwritten: false }
    }

    /// Takes it, on this thread.
    fn save(&mut self) -> bool {
        let (server, purpose) = (&*self.server, self.purpose);
        let start = Instant::now();
        tracing::info!(?purpose, "saving");
        let mut result = Err(Failure::Overtaken);
        for _ in 0..BEGUN_MAX {
            result = take(server, purpose);
            if !matches!(result, Err(Failure::Overtaken)) {
                break;
            }
        }
        match &result {
            Ok(saved) => {
                let (keys, bytes, seconds) =
                    (saved.keys, saved.bytes, start.elapsed().as_secs_f64());
                tracing::info!(keys, bytes, seconds, "DB saved on disk");
            }
            Err(Failure::Overtaken) => {
                tracing::error!("not saved: databases were flushed again and again")
            }
            Err(Failure::Failed(reason) | Failure::Unwritten(reason)) => {
                tracing::error!(reason, "not saved");
            }
        }
        self.is_unwritten = matches!(result, Err(Failure::Unwritten(_)));
        self.done = result.ok();
        self.done.is_some()
    }
}

fn unix_seconds(server: &Server) -> u64 {
    server.tier.clock().unix_ms() / 1_000
}

impl Drop for Begun {
    fn drop(&mut self) {
        let saves = &self.server.saves;
        let is_last = self.purpose == Purpose::Shutdown && self.done.is_some();
        if is_last {
            self.server.shut_down();
        }
        let is_left = saves.snapshot().is_some() || self.purpose == Purpose::Shutdown;
        if is_left && !is_last && !self.server.is_stopping() {
            let all = self.server.tier.keyspace.lock_all();
            saves.set_snapshot(None);
            saves.is_ending.store(false, Ordering::Relaxed);
            self.server.listening.set_saving(false);
            drop(all);
        }
        if self.purpose == Purpose::Checkpoint {
            // Also where there was no thread for it: it is not tried again at once.
            let compressed_away = self.done.as_ref().map(|done| done.compressed_away);
            self.server.journaling.end_rewrite(compressed_away, unix_seconds(&self.server));
            self.server.tier.forget_lack_of_room();
        }
        saves.end(self.done.as_ref().map(|done| done.changes), self.is_unwritten);
    }
}

/// Takes the last snapshot, and ends the server with it. One that is under way is called off.
///
/// Errors: there is none, and the server goes on.
pub(crate) async fn save_and_shut_down(
    server: &Arc<Server>,
    turn: impl AsyncFn(),
) -> Result<(), ()> {
    loop {
        let (sender, receiver) = oneshot::channel();
        let done = move |is_saved| {
            // Whoever asked may have gone.
            let _ = sender.send(is_saved);
        };
        match start_save(server, Purpose::Shutdown, done) {
            Ok(true) => {
                return receiver.await.ok().filter(|is_saved| *is_saved).map(drop).ok_or(());
            }
            Ok(false) if server.is_stopping() => return Ok(()),
            Ok(false) if server.saves.purpose() == Some(Purpose::Shutdown) => return Err(()),
            Ok(false) if server.saves.is_half_loaded() && !server.saves.is_loading() => {
                tracing::error!("not saved: the file that is there could not be loaded as a whole");
                return Err(());
            }
            Ok(false) => {
                if let Some(snapshot) = server.saves.snapshot() {
                    snapshot.fail(Failure::Failed("the server shuts down".to_owned()));
                }
                turn().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot start a thread to save");
                return Err(());
            }
        }
    }
}

/// Begins a snapshot if one is scheduled, or a save point asks for it; or a checkpoint of the journal likewise.
pub(crate) fn save_if_due(server: &Arc<Server>) {
    tell_of_room_to_come(server);
    let rewrites = take_due_rewrite(server);
    if server.tier.is_checkpoint_waited_for() && server.saves.purpose() == Some(Purpose::Background)
    {
        call_off_for_checkpoint(server);
    }
    if rewrites && let Err(error) = start_save(server, Purpose::Checkpoint, drop) {
        tracing::error!(%error, "Can't rewrite append only file in background");
    }
    let is_due = server.saves.is_scheduled.load(Ordering::Relaxed)
        || match server.saves.due(&save_points(server), server.changes()) {
            Some((seconds, changes)) if server.saves.purpose().is_none() => {
                tracing::info!("{changes} changes in {seconds} seconds. Saving...");
                true
            }
            _ => false,
        };
    if is_due && let Err(error) = start_save(server, Purpose::Background, drop) {
        tracing::error!(%error, "Can't save in background");
    }
}

/// Calls off the snapshot under way, which takes as long as there are values: writes wait for a checkpoint, which cannot be
/// taken beside it.
fn call_off_for_checkpoint(server: &Server) {
    let Some(snapshot) = server.saves.snapshot() else { return };
    let reason =
        "flash is short of free segments, and the journal's checkpoint that frees some goes first";
    snapshot.fail(Failure::Failed(reason.to_owned()));
}

/// Where snapshots are kept.
pub(crate) fn snapshot_path(config: &Config) -> (PathBuf, PathBuf) {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    (path(&config.dir.load()), path(&config.dbfilename.load()))
}

/// The save points: seconds, and changes.
pub(crate) fn save_points(server: &Server) -> Vec<(u64, u64)> {
    let words = server.config.save.load();
    let number = |word: &Vec<u8>| value::number::parse_u64(word);
    let point = |pair: &[Vec<u8>]| Some((number(pair.first()?)?, number(pair.get(1)?)?));
    words.chunks(2).filter_map(point).collect()
}

struct Saving<'a> {
    server: &'a Server,
    purpose: Purpose,
    /// Where values stay.
    engine: Option<Arc<dyn Engine>>,
    dir: PathBuf,
    reader: TierWorker,
    /// Copies values in RAM to flash while the walk goes on, for a checkpoint that refers to them.
    copier: RefCell<Option<Copier>>,
    file: SnapshotFile<'a>,
    /// What others save while a large value is written, if there was one.
    beside: OnceCell<SnapshotFile<'a>>,
    /// There was no memory for a large value.
    is_short: Cell<bool>,
    turns: Turns,
    window: Window,
}

struct Done {
    keys: u64,
    bytes: u64,
    /// Bytes that values and references have and the file has not, since they are compressed in it.
    compressed_away: u64,
    /// Changes before it.
    changes: u64,
}

/// The moment of a snapshot.
struct Moment {
    snapshot: Arc<Snapshot>,
    /// The engine's checkpoint, if values stay on flash.
    referred: Option<Referred>,
    /// Changes before it.
    changes: u64,
    /// Of a checkpoint, where the journal was.
    position: Option<Position>,
}

/// Takes a snapshot, on this thread.
fn take(server: &Server, purpose: Purpose) -> Result<Done, Failure> {
    let journal = journal_of(server, purpose);
    let (dir, name) = match journal {
        None => snapshot_path(&server.config),
        Some(journal) => (journal.folder().to_owned(), PathBuf::from("checkpoint")),
    };
    let failed = |what: &str, error: io::Error| {
        let (dir, name) = (dir.display(), name.display());
        Failure::Unwritten(format!("{what} {name} (in {dir}): {error}"))
    };
    // Behind a demotion of much, pages that came free are resident still, and are not this thread's.
    let mut memory = Background::soon(&server.tier, SAVED_FIXED_BYTES);
    let reader = TierWorker::reader(server.tier.clone())
        .map_err(|error| Failure::Failed(format!("cannot read flash: {error}")))?;
    reader.fetches_over_gaps(SAVED_GAP_BYTES);
    let (file, pipe) = SnapshotFile::create(server, &dir, "")
        .map_err(|error| failed("Failed opening the temp RDB file for", error))?;
    let beside = OnceCell::new();
    // Files are not marked as kept for one that will not be taken.
    let is_on = server.listening.is_logged() || server.config.appendonly.load();
    let engine = journal.filter(|_| is_on).and_then(|journal| engine_to_refer_to(server, journal));
    let window = Window::new(server, engine.is_none());
    let copier = RefCell::new(engine.as_ref().and_then(|_| start_copying(server)));
    let is_short = Cell::new(false);
    let saving = Saving {
        server,
        purpose,
        engine,
        dir: dir.clone(),
        reader,
        copier,
        file,
        beside,
        is_short,
        turns: Turns::new(),
        window,
    };
    // Records on flash are checked by themselves, and what refers to them is by this alone.
    let has_checksum = server.config.rdbchecksum.load() || saving.engine.is_some();
    if saving.engine.is_some() && server.config.rdbcompression.load() {
        // Redis reads no file that refers to flash, packed or not.
        pipe.pack();
    }
    let copies = saving.copier.borrow().is_some();
    // A start need not read what is copied.
    let recent = journal.zip(saving.engine.clone()).filter(|_| !copies);
    let recent = recent.and_then(|(journal, engine)| Gathering::begin(server, journal, engine));
    let writer = FileWriter::new(pipe, saving.version(), has_checksum);
    let Moment { snapshot, mut referred, changes, position } = match saving.begin(writer) {
        Ok(moment) => moment,
        Err(failure) => {
            saving.file.remove();
            return Err(failure);
        }
    };
    memory.end_claim();
    let checkpoint = journal.zip(position);
    let first_kept = recent.zip(checkpoint).and_then(|(recent, checkpoint)| {
        let first_kept = recent.first();
        recent.end(server, checkpoint, &snapshot);
        first_kept
    });
    let walked = saving.walk(&snapshot);
    let [writer, part] = saving.end(&snapshot);
    let result = walked.and_then(|()| snapshot.failure().map_or(Ok(()), Err));
    let keys = snapshot.keys.load(Ordering::Relaxed);
    let compressed_away = snapshot.compressed_away.load(Ordering::Relaxed);
    if let Some(referred) = &referred {
        let stay_on_flash = snapshot.referred.load(Ordering::Relaxed);
        let journaled = snapshot.journaled.load(Ordering::Relaxed);
        let checkpoint = referred.number;
        tracing::info!(checkpoint, keys, stay_on_flash, journaled, "values stay where they are");
    }
    let Saving { file, mut beside, .. } = saving;
    let first_kept = first_kept.filter(|_| snapshot.journaled.load(Ordering::Relaxed) > 0);
    let finished = finish((writer, part), beside.take(), result);
    let closed =
        finished.and_then(|bytes| Ok((bytes, close(server, checkpoint, referred.as_ref())?)));
    match closed {
        Ok((bytes, state)) => {
            put(server, file, &name, (checkpoint, first_kept), (&mut referred, state))
                .map(|in_file| {
                    let compressed_away = compressed_away + bytes.saturating_sub(in_file);
                    Done { keys, bytes: in_file, compressed_away, changes }
                })
                .map_err(|error| failed("Error moving temp DB file on the final", error))
        }
        Err(failure) => match file.remove() {
            Some(error) => Err(failed("Write error saving DB on disk:", error)),
            None => Err(failure),
        },
    }
}

/// The journal that a snapshot is a checkpoint of.
fn journal_of(server: &Server, purpose: Purpose) -> Option<&Journal> {
    server.journaling.journal().filter(|_| purpose == Purpose::Checkpoint)
}

/// Has the journal come to a checkpoint, and all become durable on flash that this refers to. Returns what is to be kept of
/// the flash with it.
fn close(
    server: &Server,
    checkpoint: Option<(&Journal, Position)>,
    referred: Option<&Referred>,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some((journal, position)) = checkpoint else { return Ok(None) };
    // Before labels name the journal, and a snapshot belongs to it.
    let awaited = journal.await_checkpoint_segment(position);
    awaited
        .map_err(|error| Failure::Failed(format!("the journal takes no checkpoint: {error}")))?;
    let Some(referred) = referred else { return Ok(None) };
    referred.close(server, position).map(Some).map_err(|error| {
        Failure::Failed(format!("the checkpoint cannot refer to values on flash: {error}"))
    })
}

/// Puts the file where it belongs; the journal that it is a checkpoint of begins with it. Returns its bytes.
fn put(
    server: &Server,
    file: SnapshotFile<'_>,
    name: &Path,
    (checkpoint, first_kept): (Option<(&Journal, Position)>, Option<u64>),
    (referred, state): (&mut Option<Referred>, Option<Vec<u8>>),
) -> io::Result<u64> {
    let Some((journal, position)) = checkpoint else { return file.put(name) };
    // First, since it is small, and a snapshot that has its name stays where the rest fails.
    if let Some(state) = state
        && let Err(error) = journal.put_flash_state(position, &state)
    {
        file.remove();
        return Err(io::Error::other(error));
    }
    let bytes = file.put(Path::new(&Journal::snapshot_name(position)))?;
    let ended = journal.end_checkpoint(position, first_kept).map_err(io::Error::other);
    match referred.take() {
        Some(referred) => referred.end(ended.is_ok()),
        None if ended.is_ok() => forget_references(server),
        None => {}
    }
    ended?;
    end_cut(server);
    give_room_of_load_back(server);
    Ok(bytes)
}

/// Ends the files, and appends the second one to the first if all went well. Returns the bytes that there are.
fn finish(
    (writer, part): (Option<FileWriter<FilePipe>>, Option<FileWriter<FilePipe>>),
    beside: Option<SnapshotFile<'_>>,
    result: Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut writer = writer.ok_or_else(|| Failure::Failed("its file is gone".to_owned()))?;
    if let (Some(part), Some(beside)) = (part, beside) {
        let appended = part.finish_part().map(drop).and_then(|()| beside.into_bytes());
        let appended = match &result {
            Ok(()) => appended.and_then(|mut bytes| writer.append(&mut bytes)),
            Err(_) => appended.map(drop),
        };
        result?;
        appended.map_err(unwritten)?;
    } else {
        result?;
    }
    let bytes = writer.bytes();
    writer.finish().map_err(unwritten)?;
    Ok(bytes)
}

/// What has a checkpoint refer to values in RAM as well, if that is worth it.
fn start_copying(server: &Server) -> Option<Copier> {
    Copier::new(&server.tier).unwrap_or_else(|error| {
        tracing::warn!(%error, "values in RAM are not copied to flash for the checkpoint");
        None
    })
}

impl<'a> Saving<'a> {
    /// Redis 7.0 knows no fields that expire, and says so at once.
    fn version(&self) -> u16 {
        if self.server.tier.counters.has_timers() { VERSION_7_4 } else { VERSION_7_0 }
    }

    /// Begins the snapshot: this is its moment. From that of a checkpoint on, changes are journaled.
    ///
    /// Errors: it is a checkpoint, and the journal was switched off meanwhile.
    fn begin(&self, mut file: FileWriter<FilePipe>) -> Result<Moment, Failure> {
        let server = self.server;
        let compresses = server.config.rdbcompression.load();
        let names_bytes_max = match server.config.maxmemory.load() {
            0 => NAMES_BYTES_MAX,
            bytes => bytes >> NAMES_SHIFT,
        };
        let all = server.tier.keyspace.lock_all();
        let is_checkpoint = self.purpose == Purpose::Checkpoint;
        if is_checkpoint && !server.listening.is_logged() && !server.config.appendonly.load() {
            return Err(Failure::Failed("appendonly was switched off".to_owned()));
        }
        let number = self.checkpoints().map(Checkpoints::begin);
        let referred = self.engine.clone().zip(number);
        let referred = referred.map(|(engine, number)| Referred::new(engine, number));
        if let Some(number) = number {
            self.describe_references(&mut file, number).map_err(unwritten)?;
        }
        let references = self.engine.clone().zip(number);
        let references = references.map(|(engine, number)| References::new(engine, number));
        let snapshot = Snapshot::new(&server.tier, file, compresses, names_bytes_max, references);
        let snapshot = Arc::new(snapshot);
        server.saves.set_snapshot(Some(snapshot.clone()));
        let is_ending = self.purpose == Purpose::Shutdown;
        server.saves.is_ending.store(is_ending, Ordering::Relaxed);
        server.listening.set_saving(true);
        let position = journal_of(server, self.purpose).map(|journal| {
            begin_logging(server, journal);
            journal.begin_checkpoint()
        });
        let changes = server.changes();
        drop(all);
        Ok(Moment { snapshot, referred, changes, position })
    }

    /// Ends it: nobody saves for it any more. Behind the last one nothing is written.
    fn end(&self, snapshot: &Snapshot) -> [Option<FileWriter<FilePipe>>; 2] {
        let all = self.server.tier.keyspace.lock_all();
        self.server.saves.set_snapshot(None);
        self.server.listening.set_saving(self.purpose == Purpose::Shutdown);
        let files = snapshot.take_files();
        drop(all);
        files
    }

    fn walk(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        snapshot.describe(|file| self.describe(file))?;
        let walked = self.walk_slots(snapshot);
        // Before the checkpoint waits for all who write to flash: this thread serves no other wish.
        drop(self.copier.take());
        walked
    }

    fn walk_slots(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let checkpoints = self.checkpoints();
        for slot in 0..SLOT_COUNT as u16 {
            self.walk_wanted(snapshot)?;
            self.walk_slot(snapshot, slot)?;
            if self.is_window_full(snapshot) {
                self.save_window(snapshot)?;
            }
            if let Some(checkpoints) = checkpoints {
                checkpoints.set_progress(u32::from(slot), SLOT_COUNT as u32);
            }
        }
        self.save_window(snapshot)?;
        match self.server.is_stopping() {
            true => Err(Failure::Failed("the server is stopping".to_owned())),
            false => Ok(()),
        }
    }

    fn checkpoints(&self) -> Option<&dyn Checkpoints> {
        self.engine.as_ref().and_then(|engine| engine.checkpoints())
    }

    fn is_over(&self, snapshot: &Snapshot) -> bool {
        snapshot.has_failed() || self.server.is_stopping()
    }

    /// Waits while much is on its way to the drive.
    fn wait_for_drive(&self, snapshot: &Snapshot) {
        let is_behind = || {
            let beside = self.beside.get();
            self.file.is_behind() || beside.is_some_and(SnapshotFile::is_behind)
        };
        while is_behind() && !self.is_over(snapshot) {
            stdx::waiting::sleep(BEHIND);
        }
    }

    /// Says in front of all keys what whoever reads references to flash has to know. All slots are held.
    fn describe_references<W: std::io::Write>(
        &self,
        file: &mut FileWriter<W>,
        number: u64,
    ) -> std::io::Result<()> {
        // What is on flash names the tables of its keys.
        let tables = self.server.tier.keyspace.tables().map(|table| table.to_string()).join(" ");
        file.aux(AUX_TABLES, &tables)?;
        file.aux(AUX_CHECKPOINT, &number.to_string())
    }

    fn describe<W: std::io::Write>(&self, file: &mut FileWriter<W>) -> std::io::Result<()> {
        let tier = &self.server.tier;
        file.aux("redis-ver", REDIS_VERSION)?;
        file.aux("redis-bits", "64")?;
        file.aux("ctime", &(unix_ms() / 1_000).to_string())?;
        file.aux("used-mem", &tier.counters.ram_bytes().max(0).to_string())?;
        let is_checkpoint = journal_of(self.server, self.purpose).is_some();
        file.aux("aof-base", if is_checkpoint { "1" } else { "0" })?;
        for db in 0..DB_COUNT as u8 {
            let counts = tier.counters.table(tier.keyspace.table_of(db));
            if counts.keys > 0 {
                file.size(db.into(), counts.keys, counts.volatile)?;
            }
        }
        Ok(())
    }

    /// Walks over the slots that others wait for, while their cold keys find room in a window: who waits asks again.
    fn walk_wanted(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        for slot in snapshot.take_wanted_slots() {
            if self.has_window_no_room(snapshot) {
                break;
            }
            self.walk_slot(snapshot, slot)?;
        }
        Ok(())
    }

    /// Walks over a slot, unless that was done before, and takes it, or adds it to the window.
    fn walk_slot(&self, snapshot: &Snapshot, slot: u16) -> Result<(), Failure> {
        self.wait_for_drive(snapshot);
        if self.is_over(snapshot) || snapshot.is_taken(slot) || snapshot.has_waiting(slot) {
            return Ok(());
        }
        if let Some(copier) = &mut *self.copier.borrow_mut() {
            copier.copy_slot(slot, |key| !snapshot.has_saved(key));
        }
        let keyspace = &self.server.tier.keyspace;
        let mut left_out = self.left_out();
        for table in 0..DB_COUNT as u8 {
            let mut next = Some(ScanPosition::default());
            while let Some(position) = next {
                self.save_wanted(snapshot)?;
                let mut met = Met::default();
                let state = keyspace.lock(slot);
                let nothing = FetchedSet::default();
                let nothing = AtHand { tier: &self.server.tier, set: &nothing };
                let tell = |key: &Key<'_>, saved| met.add(&self.server.tier, key, saved);
                let (at, reading) = ((table, position), self.reading(&nothing));
                let walked = snapshot.save_some((slot, &state), at, &reading, tell);
                drop(state);
                self.turns.give_way();
                next = match walked {
                    WalkedTo::EndOfSlot => return Ok(()),
                    WalkedTo::EndOfTable => None,
                    WalkedTo::Position(position) => Some(position),
                };
                left_out.leave_out(&mut met.cold);
                self.save_cold(snapshot, slot, met.cold)?;
                for key in met.large {
                    self.save_large(snapshot, (slot, &key), Turn::OfSlot)?;
                }
            }
        }
        self.add_to_window(snapshot, slot);
        Ok(())
    }

    /// Saves keys whose values were on flash, a few at a time: reads of clients wait for no more.
    fn save_cold(
        &self,
        snapshot: &Snapshot,
        slot: u16,
        mut cold: Vec<Sought>,
    ) -> Result<(), Failure> {
        while !cold.is_empty() {
            let others = cold.split_off(few(&cold));
            self.save_few(snapshot, slot, cold)?;
            cold = others;
        }
        Ok(())
    }

    fn save_few(
        &self,
        snapshot: &Snapshot,
        slot: u16,
        mut cold: Vec<Sought>,
    ) -> Result<(), Failure> {
        let keyspace = &self.server.tier.keyspace;
        let mut attempts = 0;
        while !cold.is_empty() {
            // Values that move again and again are read while nobody can move them.
            let held = (attempts >= ATTEMPTS_MAX).then(|| keyspace.lock(slot));
            if let Some(state) = &held {
                let nothing = FetchedSet::default();
                cold = self.save_fetched(snapshot, (slot, state), cold, &nothing)?;
            }
            let wants = cold.iter().flat_map(|sought| sought.wants.iter().copied()).collect();
            let mut fetched = FetchedSet::default();
            for some in sorted(wants).chunks(SAVED_READS_MAX) {
                fetched.extend(self.reader.fetch_now(some.to_vec()));
            }
            let state = held.unwrap_or_else(|| keyspace.lock(slot));
            cold = self.save_fetched(snapshot, (slot, &state), cold, &fetched)?;
            drop(state);
            self.turns.give_way();
            attempts += 1;
        }
        Ok(())
    }

    /// Saves those of some keys whose values are at hand. Returns the others.
    fn save_fetched(
        &self,
        snapshot: &Snapshot,
        (slot, state): (u16, &SlotState),
        cold: Vec<Sought>,
        fetched: &FetchedSet,
    ) -> Result<Vec<Sought>, Failure> {
        let tier = &*self.server.tier;
        let at_hand = AtHand { tier, set: fetched };
        let reading = self.reading(&at_hand);
        let mut rest = Vec::new();
        for sought in cold {
            let key = Key::in_slot(&sought.key, slot);
            // None has become large: nobody has written to it.
            let Saved::Lacks(values) = snapshot.save(state, &key, &reading) else { continue };
            let sought = Sought::new(tier, sought.key, &values);
            check_read(&sought.wants, fetched)?;
            rest.push(sought);
        }
        Ok(rest)
    }

    /// Saves what others wait for.
    fn save_wanted(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        for (slot, key) in snapshot.take_wanted() {
            self.save_large(snapshot, (slot, &key), Turn::Early)?;
        }
        Ok(())
    }

    /// Saves a name that has large values, which nobody changes meanwhile.
    fn save_large(
        &self,
        snapshot: &Snapshot,
        (slot, name): (u16, &[u8]),
        turn: Turn,
    ) -> Result<(), Failure> {
        let (keyspace, key) = (&self.server.tier.keyspace, Key::in_slot(name, slot));
        let mut fetched = FetchedSet::default();
        let tables = loop {
            let state = keyspace.lock(slot);
            let at_hand = AtHand { tier: &self.server.tier, set: &fetched };
            let wants = match snapshot.begin_large(&state, &key, &self.reading(&at_hand)) {
                BegunName::Done => return Ok(()),
                BegunName::Large(tables) => break tables,
                BegunName::Lacks(values) => {
                    Sought::new(&self.server.tier, name.into(), &values).wants
                }
            };
            drop(state);
            check_read(&wants, &fetched)?;
            fetched = self.reader.fetch_now(sorted(wants.into_vec()));
        };
        let mut result = Ok(());
        for table in tables {
            result = result.and_then(|()| self.save_apart(snapshot, table, &key));
        }
        let state = keyspace.lock(slot);
        snapshot.end_large(&key, turn);
        drop(state);
        result
    }

    /// How the walk reads.
    fn reading<'r>(&'r self, fetched: &'r AtHand<'r>) -> Reading<'r> {
        let read_held = |reader: &TierWorker, wants| reader.fetch_now(sorted(wants));
        Reading { tier: &self.reader, fetched, read_held, is_walk: true, at_once: false }
    }
}

/// Keys that the walk has met and not saved at once.
#[derive(Default)]
struct Met {
    /// With values on flash.
    cold: Vec<Sought>,
    /// With large values.
    large: Vec<Box<[u8]>>,
}

impl Met {
    fn add(&mut self, tier: &Tier, key: &Key<'_>, saved: Saved) {
        match saved {
            Saved::Yes => {}
            Saved::Lacks(values) => self.cold.push(Sought::new(tier, key.bytes.into(), &values)),
            Saved::Later => self.large.push(key.bytes.into()),
        }
    }
}

/// A key whose values are on flash.
struct Sought {
    key: Box<[u8]>,
    wants: SmallVec<[Want; 1]>,
}

impl Sought {
    /// With the slot held, so that the records are those that are meant.
    fn new(tier: &Tier, key: Box<[u8]>, values: &[ColdValue]) -> Sought {
        let want = |value: &ColdValue| tier.want_at(value.at, value.key_len, value.value_len);
        Sought { key, wants: values.iter().map(want).collect() }
    }
}

/// How many of the first keys have the values that are read together: one at least.
fn few(cold: &[Sought]) -> usize {
    let mut reads = 0;
    let fits = |sought: &&Sought| {
        reads += sought.wants.len();
        reads <= SAVED_READS_MAX
    };
    cold.iter().take_while(fits).count().max(1)
}

/// Errors: one of the values could not be read.
fn check_read(wants: &[Want], fetched: &FetchedSet) -> Result<(), Failure> {
    let failure = wants.iter().find_map(|want| fetched.failure(want.record));
    failure.map_or(Ok(()), |failure| Err(unreadable(failure)))
}

/// What was fetched, for who holds the slot.
pub(crate) struct AtHand<'a> {
    pub(crate) tier: &'a Tier,
    pub(crate) set: &'a FetchedSet,
}

impl Fetched for AtHand<'_> {
    fn value(&self, at: FlashRef) -> Option<&[u8]> {
        self.set.value(self.tier.record_id(at))
    }
}

fn sorted(mut wants: Vec<Want>) -> Vec<Want> {
    tier::sort_wants(&mut wants);
    wants
}

#[cfg(test)]
mod tests;
