//! Snapshots are taken: a thread of its own walks over all slots (`state/snapshot.rs` says how that is of one
//! moment).

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use command::{ColdValue, Fetched};
use keyspace::{DB_COUNT, FlashRef, Key, SLOT_COUNT, ScanPosition, SlotState};
use rdb::file::FileWriter;
use rdb::payload::{VERSION_7_0, VERSION_7_4};
use smallvec::SmallVec;
use tier::{FetchedSet, Tier, TierWorker, Want};
use tokio::sync::oneshot;

use crate::limits::{ATTEMPTS_MAX, SAVED_BYTES_MAX, SAVED_KEYS_MAX};
use crate::state::clock::unix_ms;
use crate::state::saves::Purpose;
use crate::state::server::{REDIS_VERSION, Server};
use crate::state::snapshot::{Failure, Reading, Saved, Snapshot, unreadable};
use crate::state::snapshot_file::{FilePipe, SnapshotFile};

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
    let mut begun = Begun { server: server.clone(), purpose, changes: None };
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

/// A snapshot under way. It is over when this is dropped, however that came.
struct Begun {
    server: Arc<Server>,
    purpose: Purpose,
    /// Those that it has, if there is a file.
    changes: Option<u64>,
}

impl Begun {
    /// Takes it, on this thread.
    fn save(&mut self) -> bool {
        let (server, purpose) = (&*self.server, self.purpose);
        let start = Instant::now();
        tracing::info!(?purpose, "saving");
        let mut result = Err(Failure::Overtaken);
        for _ in 0..BEGUN_MAX {
            result = Saving { server, purpose }.save();
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
            Err(Failure::Failed(reason)) => tracing::error!(reason, "not saved"),
        }
        self.changes = result.ok().map(|saved| saved.changes);
        self.changes.is_some()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let saves = &self.server.saves;
        let is_last = self.purpose == Purpose::Shutdown && self.changes.is_some();
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
        saves.end(self.changes);
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

/// Begins a snapshot if one is scheduled, or a save point asks for it.
pub(crate) fn save_if_due(server: &Arc<Server>) {
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

/// Where snapshots are kept.
pub(crate) fn snapshot_path(server: &Server) -> (PathBuf, PathBuf) {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    (path(&server.config.dir.load()), path(&server.config.dbfilename.load()))
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
}

struct Done {
    keys: u64,
    bytes: u64,
    /// Changes before it.
    changes: u64,
}

impl Saving<'_> {
    fn save(&self) -> Result<Done, Failure> {
        let (dir, name) = snapshot_path(self.server);
        let failed = |what: &str, error: std::io::Error| {
            let (dir, name) = (dir.display(), name.display());
            Failure::Failed(format!("{what} {name} (in {dir}): {error}"))
        };
        let reader = TierWorker::new(self.server.tier.clone(), 0)
            .map_err(|error| Failure::Failed(format!("cannot read flash: {error}")))?;
        let (file, pipe) = SnapshotFile::create(&dir)
            .map_err(|error| failed("Failed opening the temp RDB file for", error))?;
        let version = self.version();
        let has_checksum = self.server.config.rdbchecksum.load();
        let (snapshot, changes) = self.begin(FileWriter::new(pipe, version, has_checksum));
        let walked = self.walk(&snapshot, &reader, &file);
        let writer = self.end(&snapshot);
        let result = walked.and_then(|()| snapshot.failure().map_or(Ok(()), Err));
        let keys = snapshot.keys.load(Ordering::Relaxed);
        let bytes = writer.bytes();
        let result = result.and_then(|()| {
            let finished = writer.finish().map(drop);
            finished.map_err(|error| Failure::Failed(error.to_string()))
        });
        match result {
            Ok(()) => file
                .put(&name)
                .map(|()| Done { keys, bytes, changes })
                .map_err(|error| failed("Error moving temp DB file on the final", error)),
            Err(failure) => match file.remove() {
                Some(error) => Err(failed("Write error saving DB on disk:", error)),
                None => Err(failure),
            },
        }
    }

    /// Redis 7.0 knows no fields that expire, and says so at once.
    fn version(&self) -> u16 {
        if self.server.tier.counters.has_timers() { VERSION_7_4 } else { VERSION_7_0 }
    }

    /// Begins the snapshot: this is its moment. Returns the changes before it as well.
    fn begin(&self, file: FileWriter<FilePipe>) -> (Arc<Snapshot>, u64) {
        let server = self.server;
        let compresses = server.config.rdbcompression.load();
        let names_bytes_max = match server.config.maxmemory.load() {
            0 => NAMES_BYTES_MAX,
            bytes => bytes >> NAMES_SHIFT,
        };
        let all = server.tier.keyspace.lock_all();
        let snapshot = Arc::new(Snapshot::new(&server.tier, file, compresses, names_bytes_max));
        server.saves.set_snapshot(Some(snapshot.clone()));
        let is_ending = self.purpose == Purpose::Shutdown;
        server.saves.is_ending.store(is_ending, Ordering::Relaxed);
        server.listening.set_saving(true);
        let changes = server.changes();
        drop(all);
        (snapshot, changes)
    }

    /// Ends it: nobody saves for it any more. Behind the last one nothing is written.
    fn end(&self, snapshot: &Snapshot) -> FileWriter<FilePipe> {
        let all = self.server.tier.keyspace.lock_all();
        self.server.saves.set_snapshot(None);
        self.server.listening.set_saving(self.purpose == Purpose::Shutdown);
        let file = snapshot.take_file();
        drop(all);
        file.expect("invariant: it is taken once")
    }

    fn walk(
        &self,
        snapshot: &Snapshot,
        reader: &TierWorker,
        file: &SnapshotFile,
    ) -> Result<(), Failure> {
        let describe = |file: &mut FileWriter<_>| self.describe(file);
        snapshot.describe(describe).map_err(|error| Failure::Failed(error.to_string()))?;
        let is_over = || snapshot.has_failed() || self.server.is_stopping();
        for slot in 0..SLOT_COUNT as u16 {
            while file.is_behind() && !is_over() {
                std::thread::sleep(BEHIND);
            }
            if is_over() {
                break;
            }
            self.walk_slot(snapshot, reader, slot)?;
        }
        match self.server.is_stopping() {
            true => Err(Failure::Failed("the server is stopping".to_owned())),
            false => Ok(()),
        }
    }

    fn describe<W: std::io::Write>(&self, file: &mut FileWriter<W>) -> std::io::Result<()> {
        let tier = &self.server.tier;
        file.aux("redis-ver", REDIS_VERSION)?;
        file.aux("redis-bits", "64")?;
        file.aux("ctime", &(unix_ms() / 1_000).to_string())?;
        file.aux("used-mem", &tier.counters.ram_bytes().max(0).to_string())?;
        file.aux("aof-base", "0")?;
        for db in 0..DB_COUNT as u8 {
            let counts = tier.counters.table(tier.keyspace.table_of(db));
            if counts.keys > 0 {
                file.size(db.into(), counts.keys, counts.volatile)?;
            }
        }
        Ok(())
    }

    fn walk_slot(
        &self,
        snapshot: &Snapshot,
        reader: &TierWorker,
        slot: u16,
    ) -> Result<(), Failure> {
        let keyspace = &self.server.tier.keyspace;
        for table in 0..DB_COUNT as u8 {
            let mut next = Some(ScanPosition::default());
            while let Some(position) = next {
                let mut cold: Vec<Sought> = Vec::new();
                let (mut keys, mut bytes) = (0, 0);
                let state = keyspace.lock(slot);
                let nothing = FetchedSet::default();
                let nothing = AtHand { tier: &self.server.tier, set: &nothing };
                let reading = reading(reader, &nothing);
                next = state.scan(table, position, |view| {
                    keys += 1;
                    bytes += view.value_len();
                    let key = Key::in_slot(view.key, slot);
                    if let Saved::Lacks(values) = snapshot.save(&state, &key, &reading) {
                        cold.push(Sought::new(&self.server.tier, view.key.into(), &values));
                    }
                    keys >= SAVED_KEYS_MAX || bytes >= SAVED_BYTES_MAX
                });
                drop(state);
                self.save_cold(snapshot, reader, slot, cold)?;
            }
        }
        let state = keyspace.lock(slot);
        snapshot.take_slot(slot);
        drop(state);
        Ok(())
    }

    /// Saves keys whose values were on flash.
    fn save_cold(
        &self,
        snapshot: &Snapshot,
        reader: &TierWorker,
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
                cold = self.save_fetched(snapshot, reader, (slot, state), cold, &nothing)?;
            }
            let wants = cold.iter().flat_map(|sought| sought.wants.iter().copied()).collect();
            let fetched = reader.fetch_now(sorted(wants));
            let state = held.unwrap_or_else(|| keyspace.lock(slot));
            cold = self.save_fetched(snapshot, reader, (slot, &state), cold, &fetched)?;
            attempts += 1;
        }
        Ok(())
    }

    /// Saves those of some keys whose values are at hand. Returns the others.
    fn save_fetched(
        &self,
        snapshot: &Snapshot,
        reader: &TierWorker,
        (slot, state): (u16, &SlotState),
        cold: Vec<Sought>,
        fetched: &FetchedSet,
    ) -> Result<Vec<Sought>, Failure> {
        let tier = &*self.server.tier;
        let at_hand = AtHand { tier, set: fetched };
        let reading = reading(reader, &at_hand);
        let mut rest = Vec::new();
        for sought in cold {
            let key = Key::in_slot(&sought.key, slot);
            let Saved::Lacks(values) = snapshot.save(state, &key, &reading) else { continue };
            let sought = Sought::new(tier, sought.key, &values);
            let failures = sought.wants.iter().map(|want| fetched.failure(want.record));
            if let Some(failure) = failures.flatten().next() {
                return Err(unreadable(failure));
            }
            rest.push(sought);
        }
        Ok(rest)
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

/// What was fetched, for who holds the slot.
pub(crate) struct AtHand<'a> {
    pub(crate) tier: &'a Tier,
    pub(crate) set: &'a FetchedSet,
}

impl Fetched for AtHand<'_> {
    fn value(&self, at: FlashRef) -> Option<&[u8]> {
        self.set.value(self.tier.want_at(at, 0, 0).record)
    }
}

fn reading<'a>(reader: &'a TierWorker, fetched: &'a AtHand<'a>) -> Reading<'a> {
    let read_held = |reader: &TierWorker, wants| reader.fetch_now(sorted(wants));
    Reading { tier: reader, fetched, read_held, is_walk: true }
}

fn sorted(mut wants: Vec<Want>) -> Vec<Want> {
    tier::sort_wants(&mut wants);
    wants
}
