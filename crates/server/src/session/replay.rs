//! The journal is read at the start: the snapshot of its checkpoint, then its records, whose commands are run again as
//! they ran, at their time.
//!
//! Nothing expires by itself meanwhile: records tell what had gone when. What is evicted since there is less memory than
//! there was is in no record, so the journal is begun anew with a checkpoint before anybody is served.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use command::collection::Walk;
use command::{
    BadRecord, CommandError, CommandResult, Commands, Cx, Effects, Flags, Handler, KeyAt, Locks,
    LoggedCommand, Waits, find_keys,
};
use flash::{Journal, JournalError, JournalRecord, Recovery};
use keyspace::{Key, Keyspace, Locked, Noting};
use resp::{Args, Protocol, Reply};
use smallvec::SmallVec;
use tier::{Claim, FetchedSet, Want};

use crate::limits::LOADED_OVER_SHIFT;
use crate::session::errand::save_in_turn;
use crate::session::journal::{GAP, apply_sync, journal_folder, resume_logging};
use crate::session::load::{Merging, NotLoaded, end_loading, load_file, load_saved};
use crate::session::load_brake::Brake;
use crate::session::load_memory::LoadMemory;
use crate::session::load_recent::load_recent;
use crate::session::save::AtHand;
use crate::session::taken_once::TakenOnce;
use crate::state::registry::Run;
use crate::state::saves::Purpose;
use crate::state::server::Server;
use crate::state::worker::Worker;

/// Between two lines of the log.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Commands between two looks at memory and at the time.
const STEP_COMMANDS: u64 = 64;
/// Bytes of their arguments likewise.
const STEP_BYTES: u64 = 64 << 10;

/// Loads the journal that was opened, or what was saved when there was none, and has changes go to it from then on.
///
/// Errors: it was not opened, or not all that it has could be loaded.
pub(super) async fn load_journal(
    worker: &Worker,
    opened: Result<Recovery, JournalError>,
) -> Result<(), NotLoaded> {
    let server = &*worker.server;
    let evicted_before = server.tier.counters.evicted.load(Ordering::Relaxed);
    let read = read_journal(worker, opened, evicted_before).await;
    let (journal, needs_checkpoint) = read.inspect_err(|_| {
        end_loading(worker, false);
    })?;
    server.journaling.set_journal(journal);
    let compressed_away = server.saves.loading.compressed_away.load(Ordering::Relaxed);
    server.journaling.note_base(compressed_away);
    let is_resumed = !needs_checkpoint && resume_logging(server, evicted_before);
    end_loading(worker, true);
    if !is_resumed && !save_in_turn(worker, Purpose::Checkpoint).await {
        return Err(NotLoaded::NotSaved);
    }
    apply_sync(server);
    Ok(())
}

/// Loads what the journal has. Returns it, and whether a checkpoint is to be taken before anything is appended.
async fn read_journal(
    worker: &Worker,
    opened: Result<Recovery, JournalError>,
    evicted_before: u64,
) -> Result<(Journal, bool), NotLoaded> {
    let mut recovery = opened?;
    let snapshot = recovery.snapshot();
    if let Some(path) = &snapshot {
        let loaded = load_checkpoint(worker, path, &recovery).await;
        loaded.map_err(|reason| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            let name = name.to_string_lossy().into_owned();
            NotLoaded::Checkpoint { name, reason: Box::new(reason) }
        })?;
    }
    let (reply, step) = (Reply::new(Protocol::Resp2), Step::default());
    let (brake, memory) = (Brake::default(), LoadMemory::new(LOADED_OVER_SHIFT));
    let mut replay = Replay { worker, reply, step, commands: 0, evicted_before, brake, memory };
    let has_gap = replay.run_all(&mut recovery).await?;
    worker.after_batch();
    let is_new = snapshot.is_none() && replay.commands == 0;
    if is_new && has_files_of_redis(&worker.server) {
        return Err(NotLoaded::OfRedis);
    }
    let was_saved = is_new && load_saved(worker, Merging::Not).await?;
    let needs_checkpoint = has_gap || was_saved;
    // What stands behind a gap counts for nothing.
    let journal = if has_gap { recovery.start_anew()? } else { recovery.start()? };
    Ok((journal, needs_checkpoint))
}

/// Loads the snapshot of a checkpoint, and what it refers to in the journal.
async fn load_checkpoint(
    worker: &Worker,
    path: &Path,
    recovery: &Recovery,
) -> Result<(), NotLoaded> {
    let recent = load_file(worker, path, Merging::Before).await?;
    load_recent(worker, recent, recovery).await
}

/// Whether an append-only file of Redis is where the journal is to be. To pass over it would be to lose what it has.
fn has_files_of_redis(server: &Server) -> bool {
    let Ok(entries) = std::fs::read_dir(journal_folder(&server.config)) else { return false };
    let is_of_redis = |name: &OsStr| {
        [".aof", ".manifest"].iter().any(|end| name.as_bytes().ends_with(end.as_bytes()))
    };
    entries.flatten().any(|entry| is_of_redis(&entry.file_name()))
}

/// What has been run since others had their turn.
#[derive(Default)]
struct Step {
    commands: u64,
    bytes: u64,
}

impl Step {
    fn add(&mut self, bytes: u64) {
        self.commands += 1;
        self.bytes += bytes;
    }

    fn is_over(&self) -> bool {
        self.commands >= STEP_COMMANDS || self.bytes >= STEP_BYTES
    }
}

/// Runs commands of records again.
struct Replay<'a> {
    worker: &'a Worker,
    /// What is answered is dropped.
    reply: Reply,
    step: Step,
    commands: u64,
    /// Keys that were evicted before.
    evicted_before: u64,
    brake: Brake,
    memory: LoadMemory,
}

/// Why a command was not run.
struct NotRun {
    reason: String,
    /// Whether it is what a client would be answered, by what the keys hold.
    is_answer: bool,
}

impl NotRun {
    fn at_all(reason: impl Into<String>) -> NotRun {
        NotRun { reason: reason.into(), is_answer: false }
    }
}

impl Replay<'_> {
    /// Runs all records again, up to the end or to a gap. Whether there is one.
    async fn run_all(&mut self, recovery: &mut Recovery) -> Result<bool, NotLoaded> {
        let (start, bytes) = (Instant::now(), recovery.bytes());
        let (from, mut done, mut logged) = (recovery.checkpoint().0, 0, start);
        let worker = self.worker;
        let progress = &worker.server.saves.loading;
        progress.begin_file(bytes);
        while let Some(JournalRecord { position, payload }) = recovery.read()? {
            if payload == GAP {
                tracing::warn!(position = position.0, "the journal was off from here on");
                return Ok(true);
            }
            let ran = self.run_record(payload).await;
            ran.map_err(|reason| NotLoaded::Record { position: position.0, reason })?;
            let before = std::mem::replace(&mut done, position.0 - from);
            progress.note_read(done - before);
            if logged.elapsed() > PROGRESS_EVERY {
                logged = Instant::now();
                tracing::info!(done, bytes, commands = self.commands, "replaying the journal");
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(bytes, commands = self.commands, seconds, "the journal was replayed");
        Ok(false)
    }

    /// Runs the commands of a record.
    async fn run_record(&mut self, payload: &[u8]) -> Result<(), String> {
        let bad = |error: BadRecord| error.to_string();
        let mut commands = Commands::read(payload).map_err(bad)?;
        while let Some(command) = commands.read_next().map_err(bad)? {
            let _claim = self.give_way(command.args).await?;
            if let Err(NotRun { reason, is_answer }) = self.run(command) {
                let name = command.args[0].escape_ascii();
                let reason = format!("{name}: {reason}");
                // A key that was taken out is missing, and nothing else.
                let is_of_lost_keys = is_answer && self.has_lost_keys();
                if !is_of_lost_keys && !self.has_evicted() {
                    return Err(reason);
                }
                tracing::warn!(reason, "a command was not run again, since keys are missing");
            }
            self.commands += 1;
        }
        Ok(())
    }

    /// Whether keys were evicted.
    fn has_evicted(&self) -> bool {
        let evicted = self.worker.server.tier.counters.evicted.load(Ordering::Relaxed);
        evicted > self.evicted_before
    }

    /// Whether keys were taken out of the snapshot, since their values are lost.
    fn has_lost_keys(&self) -> bool {
        self.worker.server.journaling.lacks_keys.load(Ordering::Relaxed)
    }

    /// Waits until there is memory for a command, which has it until it has run. Errors: there is none.
    async fn give_way(&mut self, args: Args<'_>) -> Result<Option<Claim>, String> {
        let tier = &self.worker.tier;
        let bytes = args.iter().map(|arg| arg.len() as u64).sum();
        self.step.add(bytes);
        if self.step.is_over() {
            self.step = Step::default();
            self.worker.after_batch();
            tokio::task::yield_now().await;
        }
        // As for clients: what frees memory does not wait for any.
        let entry = self.worker.server.registry.find(args);
        let needs_memory = entry.is_some_and(|entry| entry.spec.flags.has(Flags::DENYOOM));
        if !needs_memory {
            return Ok(None);
        }
        self.brake.wait(self.worker, bytes).await;
        if !tier.must_wait_for(bytes) {
            return Ok(None);
        }
        let claim = self.memory.wait(self.worker, bytes).await;
        claim.map_err(|_| "there is no memory for it within maxmemory".to_owned())
    }

    fn run(&mut self, command: LoggedCommand<'_>) -> Result<(), NotRun> {
        let (server, args) = (&*self.worker.server, command.args);
        let entry = server.registry.find(args).filter(|entry| entry.spec.takes(args.len()));
        let Some((entry, Run::Keys(handler))) = entry.map(|entry| (entry, entry.run)) else {
            return Err(NotRun::at_all("there is no such command on keys"));
        };
        let mut found: SmallVec<[KeyAt; 4]> = SmallVec::new();
        find_keys(entry.spec.keys, args, &mut found);
        let keys = found.iter().filter_map(|at| args.get(at.index)).map(Key::new);
        let keys: SmallVec<[Key<'_>; 4]> = keys.collect();
        let mut locked = lock(&server.tier.keyspace, entry.spec.locks.of_request(args), &keys);
        let mut fetched = FetchedSet::default();
        // Ends: with the slots held values stay where they are, so each turn reads another one.
        loop {
            self.reply.clear();
            match self.run_once(handler, command, (&mut locked, &keys), &fetched) {
                Ok(()) => return Ok(()),
                Err(CommandError::NotResident(missing)) => {
                    let want = |value: &command::ColdValue| {
                        server.tier.want_at(value.at, value.key_len, value.value_len)
                    };
                    let mut wants: Vec<Want> = missing.values.iter().map(want).collect();
                    let failures = wants.iter().map(|want| fetched.failure(want.record));
                    if let Some(failure) = failures.flatten().next() {
                        let reason = format!("cannot read the value of a key: {failure}");
                        return Err(NotRun::at_all(reason));
                    }
                    wants.retain(|want| !fetched.has(want.record));
                    assert!(!wants.is_empty(), "a value that is there is found");
                    fetched.extend(self.worker.tier.fetch_blocking(wants));
                }
                Err(CommandError::Reply(text)) => {
                    return Err(NotRun { reason: text.into_owned(), is_answer: true });
                }
                Err(CommandError::ReplyTooLong(_)) => {
                    return Err(NotRun::at_all("there is no memory for it"));
                }
                Err(CommandError::Wait(_) | CommandError::LongWalk) => {
                    return Err(NotRun::at_all("it waits, or would be cut"));
                }
            }
        }
    }

    fn run_once(
        &mut self,
        handler: Handler,
        LoggedCommand { db, now_ms, args }: LoggedCommand<'_>,
        (locked, keys): (&mut Locked<'_>, &[Key<'_>]),
        fetched: &FetchedSet,
    ) -> CommandResult {
        let server = &*self.worker.server;
        let mut tally = self.worker.tally.borrow_mut();
        tally.noting = Noting::default();
        let mut cx = Cx {
            locked,
            keys,
            array_len: Some(keys.len()),
            db,
            now_ms,
            tally: &mut tally,
            fetched: &AtHand { tier: &server.tier, set: fetched },
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
            effects: Effects::of_replay(),
        };
        let result = handler(&mut cx, args, &mut self.reply);
        let detached = cx.detached;
        if !detached.is_empty() {
            self.worker.free_later(detached);
        }
        result
    }
}

fn lock<'k>(keyspace: &'k Keyspace, locks: Locks, keys: &[Key<'_>]) -> Locked<'k> {
    match (locks, keys) {
        (Locks::All, _) => keyspace.lock_all(),
        (_, [key]) => keyspace.lock_one(key.slot),
        (_, keys) => keyspace.lock_many(keys.iter().map(|key| key.slot).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use command::Record;
    use tier::{Budget, Environment, Tier};

    use super::*;
    use crate::config::Config;
    use crate::state::registry::tests::KEY_COMMANDS;

    #[test]
    fn what_frees_memory_is_run_again_where_there_is_none() {
        // More than the tests beside it have resident.
        let budget = Budget::new(400 << 20).expect("resident memory can be read");
        let tier = Tier::new(Arc::default(), None, Environment::of_machine(None), budget, 1);
        let server = Server::new(Config::default(), &KEY_COMMANDS, Arc::new(tier));
        let worker = Worker::new(Arc::new(server), 0).expect("a worker without flash");
        let (reply, step) = (Reply::new(Protocol::Resp2), Step::default());
        let (brake, memory) = (Brake::default(), LoadMemory::new(LOADED_OVER_SHIFT));
        let (worker, evicted_before) = (&*worker, 0);
        let mut replay = Replay { worker, reply, step, commands: 0, evicted_before, brake, memory };
        let mut run = |words: &[&[u8]]| {
            let mut record = Record::new(Vec::new(), 1);
            record.add(0, words.iter().copied());
            let payload = record.pieces().concat();
            let ran = pin!(replay.run_record(&payload));
            let polled = ran.poll(&mut Context::from_waker(Waker::noop()));
            worker.tier.after_batch(&mut worker.tally.borrow_mut());
            (polled, worker.server.tier.key_count(0))
        };
        // As a command that is not known to take so much before it runs.
        assert_eq!(run(&[b"SETRANGE", b"k", b"500000000", b"v"]), (Poll::Ready(Ok(())), 1));
        assert!(worker.tier.must_wait());
        assert_eq!(run(&[b"SET", b"l", b"v"]), (Poll::Pending, 1));
        assert!(worker.tier.must_wait());
        assert_eq!(run(&[b"DEL", b"k"]), (Poll::Ready(Ok(())), 0));
    }
}
