//! A snapshot's file is read into the databases: at the start, and for DEBUG RELOAD.
//!
//! Values go through the tier like those that clients write: they are demoted as memory fills, and what finds no
//! room ends it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use command::saved::LoadedValue;
use command::{Classes, Cx, Effects, NothingFetched, Waits};
use flash::JournalError;
use keyspace::{DB_COUNT, DetachedTable, Key, Noting, SLOT_COUNT, Tally};
use rdb::Error;
use rdb::file::{FileError, FileReader, KeyPart, Part};
use thiserror::Error as ThisError;
use tier::Held;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::session::errand::save;
use crate::session::replay::load_journal;
use crate::session::save::snapshot_path;
use crate::state::client_memory::request_bytes_max;
use crate::state::clock::unix_ms;
use crate::state::saves::{LOADING_ERROR, Purpose};
use crate::state::server::Server;
use crate::state::snapshot::Failure;
use crate::state::worker::Worker;

/// Keys between two looks at memory and at the time.
const STEP_KEYS: u64 = 64;
/// Bytes of values likewise.
const STEP_BYTES: u64 = 64 << 10;
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
    /// A value that may not be in memory as a whole.
    #[error(
        "at byte {offset}: the key {key} of database {db}: its value takes more than {bytes_max} bytes to load, which \
         is what one request may take: start with a larger maxmemory-clients (for instance 100%) to load it"
    )]
    TooLarge {
        /// Where its value ends.
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
        /// Where its value ends.
        offset: u64,
        /// Which.
        key: String,
        /// Its database.
        db: u64,
        /// Why.
        reason: &'static str,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
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
        if self.saves && !save(worker, Purpose::Save).await {
            return Err("ERR".to_owned());
        }
        begin_loading(worker).await?;
        if self.flushes {
            flush(worker);
        }
        let merging = if self.merges { Merging::Over } else { Merging::Not };
        load_begun(worker, merging).await.map_err(|error| {
            tracing::error!(%error, "not loaded");
            "ERR Error trying to load the RDB dump, check server logs.".to_owned()
        })?;
        if worker.server.listening.is_logged() && !save(worker, Purpose::Checkpoint).await {
            return Err("ERR the journal could not be begun anew, check server logs.".to_owned());
        }
        Ok(())
    }
}

/// Has requests that need the data refused until [`load_at_start`] has loaded it.
pub(crate) fn refuse_until_loaded(server: &Server) {
    let refusing = Refusing::begin(server).expect("invariant: nothing is loaded yet");
    std::mem::forget(refusing);
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
    Ok(())
}

/// Loads the journal, or else the snapshot's file, if there is one. Behind [`refuse_until_loaded`].
///
/// Errors: not all of it could be loaded.
pub(crate) async fn load_at_start(worker: &Worker) -> Result<(), NotLoaded> {
    let has_begun = worker.server.saves.begin_loading();
    assert!(has_begun, "invariant: nobody saves yet");
    match worker.server.config.appendonly.load() {
        false => load_begun(worker, Merging::Not).await?,
        true => load_journal(worker).await?,
    }
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
    let (dir, name) = snapshot_path(&worker.server);
    match load_file(worker, &dir.join(name), merging).await {
        Ok(()) => Ok(true),
        Err(NotLoaded::Open(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends what [`begin_loading`] has begun.
pub(super) fn end_loading(worker: &Worker, is_whole: bool) {
    let changes = is_whole.then(|| worker.server.changes());
    worker.server.saves.end_loading(changes);
}

/// Loads a file.
pub(super) async fn load_file(
    worker: &Worker,
    path: &Path,
    merging: Merging,
) -> Result<(), NotLoaded> {
    let file = File::open(path)?;
    let loaded = Loading { worker, merging, start: Instant::now() }.load(path, file).await;
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

struct Loading<'a> {
    worker: &'a Worker,
    merging: Merging,
    start: Instant,
}

impl Loading<'_> {
    async fn load(&self, path: &Path, file: File) -> Result<(), NotLoaded> {
        let server = &*self.worker.server;
        let file_bytes = file.metadata()?.len();
        let bytes_max = request_bytes_max(server);
        server.saves.loading.begin_file(file_bytes);
        let mut reader = FileReader::new(file, bytes_max)?;
        tracing::info!(path = %path.display(), version = reader.version(), file_bytes, "loading");
        let (mut step, mut logged) = (Step::default(), self.start);
        loop {
            let part = match reader.next_part()? {
                Part::End => break,
                Part::Key(part) => part,
                Part::Skipped(what) => {
                    tracing::warn!(?what, offset = reader.offset(), "passed over: not supported");
                    continue;
                }
                Part::Aux { name, value } => {
                    let (name, value) = (name.escape_ascii(), value.escape_ascii());
                    tracing::debug!(%name, %value, "the file says");
                    continue;
                }
                Part::Size { .. } => continue,
            };
            let value = LoadedValue::read(&mut reader, &part, server, bytes_max);
            let (value, bytes) = value.map_err(|error| match error {
                Error::Stopped => NotLoaded::TooLarge {
                    offset: reader.offset(),
                    key: part.key.escape_ascii().to_string(),
                    db: part.db,
                    bytes_max,
                },
                error => reader.error(error).into(),
            })?;
            step.add(bytes);
            if step.is_over() {
                step = Step::default();
                self.worker.tier.after_batch(&mut self.worker.tally.borrow_mut());
                server.saves.loading.note(reader.offset());
                tokio::task::yield_now().await;
                if logged.elapsed() > PROGRESS_EVERY {
                    logged = Instant::now();
                    let (offset, keys) =
                        (reader.offset(), server.saves.loaded_keys.load(Ordering::Relaxed));
                    tracing::info!(offset, file_bytes, keys, "loading");
                }
            }
            // It is the value's until the key has it.
            let _claim = match self.worker.tier.must_wait_for(bytes) {
                false => None,
                true => {
                    Some(self.worker.tier.wait_for_memory(bytes, Held::default()).await.map_err(
                        |_| refused(&reader, &part, "there is no memory for it within maxmemory"),
                    )?)
                }
            };
            self.put(&part, value).map_err(|reason| refused(&reader, &part, reason))?;
        }
        let keys = server.saves.loaded_keys.load(Ordering::Relaxed);
        let expired = server.saves.loaded_expired.load(Ordering::Relaxed);
        let seconds = self.start.elapsed().as_secs_f64();
        tracing::info!(keys, expired, seconds, "DB loaded from disk");
        Ok(())
    }

    fn put(&self, part: &KeyPart, value: LoadedValue) -> Result<(), &'static str> {
        let (worker, server) = (self.worker, &*self.worker.server);
        let db = u8::try_from(part.db).ok().filter(|&db| usize::from(db) < DB_COUNT);
        let db = db.ok_or("there are fewer databases")?;
        let now_ms = unix_ms();
        let keeps_expired = self.merging == Merging::Before;
        if part.expire_at_ms > 0 && part.expire_at_ms <= now_ms && !keeps_expired {
            server.saves.loaded_expired.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let key = Key::new(&part.key);
        let mut locked = server.tier.keyspace.lock_one(key.slot);
        let mut tally = worker.tally.borrow_mut();
        tally.noting = Noting::default();
        let mut cx = Cx {
            locked: &mut locked,
            keys: &[key],
            array_len: None,
            db,
            now_ms: if keeps_expired { 0 } else { now_ms },
            tally: &mut tally,
            fetched: &NothingFetched,
            statistics: server,
            encodings: server,
            limits: server,
            no_touch: true,
            detached: Vec::new(),
            reply_bytes_max: usize::MAX,
            spare: &mut Vec::new(),
            cold_leaves: Vec::new(),
            random: 0,
            waits: Waits::Never,
            effects: Effects::new(Classes::NONE, true),
        };
        if self.merging != Merging::Over && cx.exists(&key) {
            return Err("it is there twice");
        }
        value.put(&mut cx, part).map_err(|_| "there is no memory for it")?;
        server.saves.loaded_keys.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// What was loaded since memory was looked at.
#[derive(Default)]
pub(super) struct Step {
    keys: u64,
    bytes: u64,
}

impl Step {
    pub(super) fn add(&mut self, bytes: u64) {
        self.keys += 1;
        self.bytes += bytes;
    }

    pub(super) fn is_over(&self) -> bool {
        self.keys >= STEP_KEYS || self.bytes >= STEP_BYTES
    }
}

fn refused<R: io::Read>(reader: &FileReader<R>, part: &KeyPart, reason: &'static str) -> NotLoaded {
    let key = part.key.escape_ascii().to_string();
    NotLoaded::Key { offset: reader.offset(), key, db: part.db, reason }
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
