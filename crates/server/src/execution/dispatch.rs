//! From a request to its run: what the client may do, which values must be fetched, which slots
//! locked.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use command::{ColdValue, CommandError, Flags, Handler, Locks, Needs, Wait, Waits};
use keyspace::{Key, Keyspace, Locked};
use resp::{Args, Reply};
use tier::{FetchedSet, Tier, Want};

use crate::execution::batch::Batch;
use crate::execution::call::{count, note};
use crate::execution::gather::wants_many;
use crate::execution::handler_run::{Caller, HandlerRun, Part, promote_large, run_locked};
use crate::execution::keys::{Keys, keys_with_needs};
use crate::execution::need::{NeededOf, TooMuch, args_bytes};
use crate::execution::outcome::{Lacked, Needed, Outcome};
use crate::execution::read_windows::first_walk;
use crate::execution::refusal::{
    not_between_messages, unknown_command, unknown_subcommand, wrong_arity,
};
use crate::execution::serve::{serve_locked, serve_ready};
use crate::execution::transaction;
use crate::execution::watched_read::WatchedRead;
use crate::family::HANDLERS;
use crate::limits::{ATTEMPTS_MAX, CLAIM_BYTES_MIN, TRANSACTION_BYTES_MAX};
use crate::session::cold::all_cold;
use crate::session::save::save_points;
use crate::session::{ReplyMode, Session};
use crate::state::batch_lists::Request;
use crate::state::client_memory::{refusal, request_bytes_max};
use crate::state::registry::{Entry, Run, Verb};
use crate::state::saves::LOADING_ERROR;
use crate::state::waiters::{WaitFor, line_up};

/// The error of what would write while data that was loaded is in no checkpoint.
const JOURNAL_CUT: &str = concat!(
    "MISCONF Data was loaded, and the AOF has to be rewritten before anything is written. BGREWRITEAOF does that, or, ",
    "if not all of the file could be loaded, SAVE first: that keeps what there is of it",
);
/// The error of Redis for what would write after a snapshot has failed.
const SNAPSHOT_FAILED: &str = concat!(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that ",
    "may modify the data set are disabled, because this instance is configured to report errors during writes if RDB ",
    "snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB ",
    "error."
);

/// The requests of a connection that have arrived, and what a run of the next needs of it. One is made for each run, which
/// changes it.
pub(crate) struct Pipeline<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) batch: &'a Batch,
    /// What the batch was parsed from.
    pub(crate) input: &'a [u8],
    pub(crate) reply: &'a mut Reply,
    /// Values fetched for the batch.
    pub(crate) fetched: &'a mut FetchedSet,
    /// A buffer for the large value that the request under way makes.
    pub(crate) spare: &'a mut Vec<u8>,
    /// The reply of the request under way that was read in windows.
    pub(crate) watched_read: &'a mut Option<Box<WatchedRead>>,
    /// What its next run has to go by.
    pub(crate) attempt: Attempt,
    /// Whether the request under way, having waited for memory, may run.
    pub(crate) memory_granted: Option<bool>,
    /// What the request under way needed, when there was no memory for it. In one word: it is set anew before each run, and
    /// a load of two behind a store of one would wait for it.
    pub(crate) refused_bytes: Option<NonZeroU64>,
}

/// One of the runs of a request.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    /// How often it had to be run again.
    pub(crate) number: u32,
    /// Bytes up to which there is memory for its reply.
    pub(crate) reply_bytes_max: usize,
    /// Those among them that it was granted.
    pub(crate) reply_granted: usize,
    /// Whether the reply is so large that fetched values are copied into it later, in turns with other
    /// clients.
    pub(crate) leaves_gaps: bool,
    /// Whether it may be run in windows.
    pub(crate) may_be_cut: bool,
}

impl Pipeline<'_> {
    /// Runs one request, unless it must wait for something.
    pub(crate) fn dispatch(&mut self, request: &Request) -> Outcome {
        let start_ticks = self.session.server().clock.raw();
        let args = self.batch.args(request, self.input);
        if let (Some(read), Some(entry)) = (self.watched_read.take(), request.entry) {
            return self.finish_read(&read, entry, args);
        }
        let length = self.reply.len();
        let Some(entry) = request.entry else {
            if let Some(bytes) = request.refused_bytes() {
                return self.refuse_for_memory(None, bytes);
            }
            unknown_command(self.session, args, self.reply);
            finish_reply(self.session, self.reply, length);
            return Outcome::Done;
        };
        if let Some(bytes) = self.refused_bytes {
            return self.refuse_for_memory(Some(entry), bytes.get());
        }
        self.fetched.rewind();
        let bytes_max = &mut self.attempt.reply_bytes_max;
        *bytes_max = bytes_max.saturating_add(length);
        let mut run = Runner {
            session: self.session,
            entry,
            args,
            key: request.key(args),
            fetched: self.fetched,
            spare: self.spare,
            attempt: &mut self.attempt,
            memory_granted: self.memory_granted,
            is_large: self.input.len() as u64 > CLAIM_BYTES_MIN
                && args_bytes(args) > CLAIM_BYTES_MIN,
        };
        let outcome = run.admit_and_run(self.reply);
        match outcome {
            Outcome::Done => {
                finish_reply(self.session, self.reply, length);
                count(self.session, entry, args, start_ticks);
                Outcome::Done
            }
            Outcome::NotRun => {
                finish_reply(self.session, self.reply, length);
                Outcome::NotRun
            }
            Outcome::Fetch(needed) => {
                self.reply.truncate(length);
                let outcome = match self.needs_of_batch(needed) {
                    Ok(needed) => Outcome::Fetch(needed),
                    Err(TooMuch(bytes)) => self.refuse_for_memory(Some(entry), bytes.get()),
                };
                self.count_turn(start_ticks);
                outcome
            }
            outcome => {
                self.reply.truncate(length);
                self.count_turn(start_ticks);
                outcome
            }
        }
    }

    /// Answers what was read in windows. It has run: nothing can refuse it any more.
    #[cold]
    fn finish_read(
        &mut self,
        read: &WatchedRead,
        entry: &'static Entry,
        args: Args<'_>,
    ) -> Outcome {
        read.count_reads(self.session);
        finish_reply(self.session, self.reply, read.reply_from());
        let turn = &self.session.worker.turn;
        let used = turn.used();
        count(self.session, entry, args, self.session.server().clock.raw() - read.ticks());
        // The windows were counted one by one.
        turn.take_back(used);
        Outcome::Done
    }

    /// Ends the request under way, which has waited, is counted, and has its answer from `length` on.
    #[cold]
    pub(crate) fn finish_wait(&mut self, length: usize, ticks: u64) {
        let request = self.batch.current().expect("invariant: a request waits");
        let entry = request.entry.expect("invariant: it has run");
        finish_reply(self.session, self.reply, length);
        note(self.session, entry, self.batch.args(&request, self.input), ticks);
    }

    /// Moves large values that were fetched for the request, which has run, into RAM.
    #[cold]
    pub(crate) fn promote_large(&mut self) {
        let Some(request) = self.batch.current() else { return };
        let Some(entry) = request.entry else { return };
        let keys = keys_with_needs(entry, self.batch.args(&request, self.input));
        promote_large(Caller::of(self.session), keys.map(|(key, _)| key), self.fetched);
    }

    /// Counts the time since as a part of the worker's turn.
    pub(crate) fn count_turn(&self, start_ticks: u64) {
        let ticks = self.session.server().clock.raw() - start_ticks;
        self.session.worker.turn.add_ticks(ticks);
    }
}

/// One request on its way through the checks.
struct Runner<'a> {
    session: &'a mut Session,
    entry: &'static Entry,
    args: Args<'a>,
    /// Its key, hashed, when it has exactly one.
    key: Option<Key<'a>>,
    fetched: &'a mut FetchedSet,
    spare: &'a mut Vec<u8>,
    attempt: &'a mut Attempt,
    memory_granted: Option<bool>,
    /// Whether memory is to be made before its arguments become part of the data set.
    is_large: bool,
}

impl Runner<'_> {
    #[inline]
    fn admit_and_run(&mut self, reply: &mut Reply) -> Outcome {
        reply.set_protocol(self.session.protocol);
        let spec = &self.entry.spec;
        if !spec.takes(self.args.len()) {
            return self.refuse(reply, wrong_arity(self.entry));
        }
        if let Run::Container = self.entry.run {
            return self.refuse_subcommand(reply);
        }
        if !self.session.authenticated && !spec.flags.has(Flags::NO_AUTH) {
            return self.refuse(reply, "NOAUTH Authentication required.");
        }
        if self.session.takes_messages_only() && !self.is_allowed_between_messages() {
            return self.refuse(reply, not_between_messages(self.entry));
        }
        if self.session.server().pause.is_set()
            && let Some(outcome) = self.hold_up(reply)
        {
            return outcome;
        }
        let needs_memory = spec.flags.has(Flags::DENYOOM) || self.is_exec_that_grows();
        let is_large = self.is_large
            || self.is_exec_that_grows()
                && self.session.transaction.bytes() as u64 > CLAIM_BYTES_MIN;
        let must_ask = is_large && self.memory_granted.is_none();
        if needs_memory && (must_ask || self.session.worker.tier.must_wait()) {
            match self.memory_granted {
                None => return Outcome::Memory,
                Some(true) => {}
                Some(false) => {
                    let text = "OOM command not allowed when used memory > 'maxmemory'.";
                    return self.refuse(reply, text);
                }
            }
        }
        if self.session.server().saves.is_unwritten() && self.is_refused_for_snapshot() {
            return self.refuse(reply, SNAPSHOT_FAILED);
        }
        let uses_data = spec.flags.has(Flags::READONLY | Flags::WRITE);
        if self.session.is_monitor && uses_data {
            return self.refuse(reply, "ERR Replica can't interact with the keyspace");
        }
        if self.session.transaction.is_open() && self.is_queued() {
            return self.queue(reply);
        }
        self.run(reply)
    }

    /// Has it wait for the end of a pause or for the journal, or refuses it because a file is being loaded or the
    /// journal takes nothing.
    #[cold]
    fn hold_up(&mut self, reply: &mut Reply) -> Option<Outcome> {
        let (session, flags) = (&*self.session, self.entry.spec.flags);
        let is_exec = matches!(self.entry.run, Run::Transaction(Verb::Exec));
        let needs_data =
            !flags.has(Flags::LOADING) || is_exec && session.transaction.is_refused_while_loading();
        let pause = &session.server().pause;
        if pause.is_loading() && needs_data {
            return Some(self.refuse(reply, LOADING_ERROR));
        }
        let writes = flags.has(Flags::WRITE) || self.is_exec_with_writes();
        let is_stopped = pause.stops(writes, session.now_ms) && !self.passes_pause();
        if is_stopped {
            return Some(Outcome::Paused);
        }
        // Who watches whether the server is well hears of it, too, as in Redis.
        let asks_journal = writes || self.entry.spec.name == "PING";
        if !asks_journal || !pause.is_journaled() {
            return None;
        }
        let journaling = &session.server().journaling;
        if let Some(text) = journaling.refusal() {
            return Some(self.refuse(reply, text));
        }
        if writes && journaling.is_cut() {
            return Some(self.refuse(reply, JOURNAL_CUT));
        }
        (writes && !journaling.takes_writes()).then_some(Outcome::Paused)
    }

    fn run(&mut self, reply: &mut Reply) -> Outcome {
        match self.entry.run {
            Run::Keys(handler) => {
                let outcome = self.run_keys(handler, reply);
                serve_ready(&self.session.worker);
                outcome
            }
            Run::Session(at) => self.run_session(at, reply),
            Run::Transaction(verb) => self.run_transaction(verb, reply),
            Run::Container => unreachable!("refused before"),
        }
    }

    /// Answers an error without running the command; a transaction will not run either.
    fn refuse(&mut self, reply: &mut Reply, text: impl AsRef<[u8]>) -> Outcome {
        if matches!(self.entry.run, Run::Transaction(Verb::Exec)) {
            return self.refuse_exec(reply, text.as_ref());
        }
        self.session.transaction.fail();
        self.write_refusal(reply, text.as_ref())
    }

    /// An unknown subcommand counts as an error, and as a call of nothing.
    #[cold]
    fn refuse_subcommand(&mut self, reply: &mut Reply) -> Outcome {
        self.session.transaction.fail();
        let text = unknown_subcommand(self.entry, self.args);
        self.session.worker.stats.count_error(&text);
        reply.error(text);
        Outcome::NotRun
    }

    /// A refused EXEC ends the transaction, and says why.
    fn refuse_exec(&mut self, reply: &mut Reply, text: &[u8]) -> Outcome {
        self.session.discard();
        let reason = text.strip_prefix(b"ERR ").unwrap_or(text);
        let begin = b"EXECABORT Transaction discarded because of: ";
        self.write_refusal(reply, &[begin, reason].concat())
    }

    fn write_refusal(&self, reply: &mut Reply, text: &[u8]) -> Outcome {
        let stats = &self.session.worker.stats;
        stats.commands[self.entry.index].rejected.add(1);
        stats.count_error(text);
        reply.error(text);
        Outcome::NotRun
    }

    /// Answers an error instead of what was written from `length` on.
    #[cold]
    fn fail(&self, reply: &mut Reply, length: usize, text: &str) -> Outcome {
        reply.truncate(length);
        reply.error(text);
        let stats = &self.session.worker.stats;
        stats.commands[self.entry.index].failed.add(1);
        stats.count_error(text.as_bytes());
        Outcome::Done
    }

    /// Whether a client may run it that takes messages only.
    #[cold]
    fn is_allowed_between_messages(&self) -> bool {
        const ALLOWED: [&str; 9] = [
            "SUBSCRIBE",
            "UNSUBSCRIBE",
            "PSUBSCRIBE",
            "PUNSUBSCRIBE",
            "SSUBSCRIBE",
            "SUNSUBSCRIBE",
            "PING",
            "QUIT",
            "RESET",
        ];
        ALLOWED.contains(&self.entry.spec.name)
    }

    /// Commands that a pause never stops: those that end it, and those that inspect.
    fn passes_pause(&self) -> bool {
        let name = self.entry.spec.name;
        name.starts_with("CLIENT|") || matches!(name, "INFO" | "AUTH" | "HELLO" | "QUIT" | "RESET")
    }

    /// Whether it is refused because the last snapshot in the background has failed. PING tells of it, too.
    #[cold]
    fn is_refused_for_snapshot(&self) -> bool {
        let (server, spec) = (self.session.server(), &self.entry.spec);
        let is_told =
            spec.flags.has(Flags::WRITE) || self.is_exec_with_writes() || spec.name == "PING";
        is_told
            && server.config.stop_writes_on_bgsave_error.load()
            && !save_points(server).is_empty()
    }

    fn is_exec_with_writes(&self) -> bool {
        matches!(self.entry.run, Run::Transaction(Verb::Exec))
            && self.session.transaction.has_flag(Flags::WRITE)
    }

    fn is_exec_that_grows(&self) -> bool {
        matches!(self.entry.run, Run::Transaction(Verb::Exec))
            && self.session.transaction.has_flag(Flags::DENYOOM)
    }

    /// Whether an open transaction queues this command instead of running it.
    fn is_queued(&self) -> bool {
        match self.entry.run {
            Run::Transaction(verb) => verb == Verb::Unwatch,
            _ => !matches!(self.entry.spec.name, "QUIT" | "RESET"),
        }
    }

    fn queue(&mut self, reply: &mut Reply) -> Outcome {
        if self.entry.spec.flags.has(Flags::NO_MULTI) {
            return self.refuse(reply, "ERR Command not allowed inside a transaction");
        }
        let bytes_max = request_bytes_max(self.session.server());
        let bytes_max = bytes_max.min(TRANSACTION_BYTES_MAX as u64);
        if self.session.transaction.queue(self.entry, self.args, bytes_max as usize).is_err() {
            let text = match bytes_max < TRANSACTION_BYTES_MAX as u64 {
                true => refusal(self.session.server(), bytes_max),
                false => "ERR transaction is too large".to_owned(),
            };
            return self.refuse(reply, text);
        }
        let client = &self.session.client;
        client.queued.store(self.session.transaction.len() as i64, Ordering::Relaxed);
        client.queued_bytes.store(self.session.transaction.bytes() as u64, Ordering::Relaxed);
        reply.queued();
        Outcome::NotRun
    }

    #[inline]
    fn run_keys(&mut self, handler: Handler, reply: &mut Reply) -> Outcome {
        if self.attempt.number == 0 {
            self.session.random = self.session.worker.tier.next_random();
        }
        if self.attempt.number == 0 && wants_many(self.session.server(), self.entry, self.args) {
            return Outcome::Gather(Lacked::default());
        }
        let found: Keys<'_>;
        let single = self.key;
        let keys = match &single {
            Some(key) => std::slice::from_ref(key),
            None => {
                found = keys_with_needs(self.entry, self.args).map(|(key, _)| key).collect();
                &found[..]
            }
        };
        let worker = self.session.worker.clone();
        let keyspace = &*worker.server.tier.keyspace;
        let length = reply.len();
        let locks = self.entry.spec.locks.of_request(self.args);
        let mut locked = lock_slots(keyspace, locks, keys);
        serve_locked(&worker, &mut locked, || lock_slots(keyspace, locks, keys));
        // Ends: with the slots held values stay where they are, so each turn reads another one.
        loop {
            let run = HandlerRun {
                handler,
                keys,
                part: Part::Whole,
                args: self.args,
                fetched: self.fetched,
                reply_bytes_max: self.attempt.reply_bytes_max,
                leaves_gaps: self.attempt.leaves_gaps,
                copies_large: false,
                spare: self.spare,
                is_write: self.entry.spec.flags.has(Flags::WRITE),
                waits: Waits::May,
                walk: first_walk(&worker.server.slices, self.entry.spec.flags, *self.attempt),
                saved_bytes: None,
                record: None,
            };
            match run_locked(Caller::of(self.session), &mut locked, run, reply) {
                Ok(()) => return Outcome::Done,
                Err(CommandError::LongWalk) => return Outcome::InWindows,
                Err(CommandError::Wait(wait)) => {
                    reply.truncate(length);
                    return self.wait(keys, &wait, length);
                }
                Err(CommandError::Reply(text)) => return self.fail(reply, length, &text),
                Err(CommandError::NotResident(missing)) => {
                    reply.truncate(length);
                    if missing.values.is_empty() {
                        return Outcome::Saving(missing.key);
                    }
                    let lacked = wants_of(&worker.server.tier, &missing.values);
                    let failures = lacked.iter().map(|want| self.fetched.failure(want.record));
                    if let Some(failure) = failures.flatten().next() {
                        let text = format!("ERR cannot read the value of a key: {failure}");
                        return self.fail(reply, length, &text);
                    }
                    if self.attempt.number < ATTEMPTS_MAX {
                        let lacked = Lacked {
                            wants: lacked,
                            reply_bytes: missing.reply_bytes,
                            is_for_copies: false,
                        };
                        let replies = self.entry.spec.flags.has(Flags::REPLIES_VALUES);
                        return self.needs(&mut locked, keys, lacked, replies);
                    }
                    // Values went cold again and again: read them while nobody can move them.
                    let (tier, fetched) = (&worker.tier, &*self.fetched);
                    let is_held = locked.holds(Key::new(&missing.key).slot);
                    let held = if is_held { keys } else { &[] };
                    let table = keyspace.table_of(self.session.db);
                    let mut wants = all_cold(tier, &mut locked, table, held, fetched);
                    let lacked_now = wants.len();
                    wants.extend(lacked.into_iter().filter(|want| !fetched.has(want.record)));
                    assert!(wants.len() > lacked_now, "a value that is there is found");
                    self.fetched.extend(worker.tier.fetch_blocking(wants));
                }
                Err(CommandError::ReplyTooLong(long)) if self.attempt.number < ATTEMPTS_MAX => {
                    let wants = wants_of(&worker.server.tier, &long.leaves);
                    let lacked = Lacked {
                        wants,
                        reply_bytes: long.bytes,
                        is_for_copies: long.is_for_copies,
                    };
                    return self.needs(&mut locked, keys, lacked, true);
                }
                Err(CommandError::ReplyTooLong(_)) => {
                    reply.truncate(length);
                    self.attempt.reply_bytes_max = usize::MAX;
                }
            }
        }
    }

    /// Has the client wait for its keys, of which the slots are still locked, once there is memory for its place
    /// in their queues. `length` is that of the replies before it.
    #[cold]
    fn wait(&mut self, keys: &[Key<'_>], wait: &Wait, length: usize) -> Outcome {
        let session = &mut *self.session;
        let now_ms = session.server().tier.clock().unix_ms();
        let client = session.client.clone();
        let of = WaitFor {
            client: &client,
            entry: self.entry,
            args: self.args,
            keys,
            db: session.db,
            protocol: session.protocol,
            no_touch: session.no_touch,
            wait,
            late_ms: now_ms.saturating_sub(session.now_ms),
        };
        let bytes = of.memory_bytes();
        if let Some(needed) = Needed::to_keep(bytes, length, *self.attempt, session) {
            return Outcome::Fetch(needed);
        }
        client.last_command.store(self.entry.index as u32 + 1, Ordering::Relaxed);
        session.place = Some(line_up(&session.worker.server, of));
        session.end_asking();
        Outcome::Waits
    }

    /// What a command of one key needs: what its run lacked, and its values that were fetched; memory for what
    /// is made of them, `replies` says whether a reply. What one of several needs is looked for with nothing
    /// locked.
    #[cold]
    fn needs(
        &self,
        locked: &mut Locked<'_>,
        keys: &[Key<'_>],
        mut lacked: Lacked,
        replies: bool,
    ) -> Outcome {
        let copy_bytes = lacked.copy_bytes(Some(self.entry));
        lacked.reply_bytes = match replies {
            // What it has been granted it will need again.
            true => {
                let granted = self.attempt.reply_granted as u64;
                lacked.reply_bytes.max(granted.saturating_sub(copy_bytes))
            }
            false => 0,
        };
        let [key] = keys else { return Outcome::Gather(lacked) };
        if !locked.holds(key.slot) {
            return Outcome::Gather(lacked);
        }
        let server = self.session.server();
        let table = server.tier.keyspace.table_of(self.session.db);
        let mut needs = NeededOf::new(&self.session.worker);
        let Lacked { wants, reply_bytes, is_for_copies } = lacked;
        let lacked_bytes = wants.iter().map(|want| u64::from(want.value_len)).sum();
        needs.needed.named = wants.len();
        needs.needed.is_for_copies = is_for_copies;
        wants.into_iter().for_each(|want| needs.add_want(want));
        needs.add(locked.slot(key.slot), table, (key, Needs::Value, replies), self.fetched);
        let needed = &mut needs.needed;
        match replies {
            true => needed.reply_bytes = needed.reply_bytes.max(reply_bytes).max(lacked_bytes),
            false => needed.copy_bytes = needed.copy_bytes.max(lacked_bytes),
        }
        needed.copy_bytes = needed.copy_bytes.max(copy_bytes);
        Outcome::Fetch(needs.needed)
    }

    fn run_session(&mut self, at: usize, reply: &mut Reply) -> Outcome {
        let length = reply.len();
        self.session.worker.count_changes();
        match HANDLERS[at](self.session, self.args, reply) {
            Err(CommandError::Reply(text)) => self.fail(reply, length, &text),
            _ if self.session.errand.is_wanted() => Outcome::Errand,
            _ => Outcome::Done,
        }
    }

    fn run_transaction(&mut self, verb: Verb, reply: &mut Reply) -> Outcome {
        let length = reply.len();
        let (session, fetched) = (&mut *self.session, &mut *self.fetched);
        match transaction::run(verb, session, self.args, fetched, *self.attempt, reply) {
            Ok(outcome) => outcome,
            Err(text) => self.fail(reply, length, text),
        }
    }
}

/// Locks the slots of a request, `keys` being those that it names.
#[inline(always)]
fn lock_slots<'k>(keyspace: &'k Keyspace, locks: Locks, keys: &[Key<'_>]) -> Locked<'k> {
    match (locks, keys) {
        (Locks::Keys, [key]) => keyspace.lock_one(key.slot),
        (Locks::Keys | Locks::Patterns, keys) => {
            keyspace.lock_many(keys.iter().map(|key| key.slot).collect())
        }
        (Locks::None, _) => keyspace.unlocked(),
        (Locks::All, _) => keyspace.lock_all(),
    }
}

/// What to fetch for a run that has named values. The slot of their key is still locked.
pub(super) fn wants_of(tier: &Tier, values: &[ColdValue]) -> Vec<Want> {
    let want = |value: &ColdValue| tier.want_at(value.at, value.key_len, value.value_len);
    values.iter().map(want).collect()
}

/// Drops the reply when the client does not want it.
#[inline]
pub(super) fn finish_reply(session: &mut Session, reply: &mut Reply, length: usize) {
    if session.reply_mode != ReplyMode::On {
        drop_reply(session, reply, length);
    }
}

#[cold]
fn drop_reply(session: &mut Session, reply: &mut Reply, length: usize) {
    match session.reply_mode {
        ReplyMode::On => {}
        ReplyMode::Off => reply.truncate(length),
        ReplyMode::SkipNext => session.reply_mode = ReplyMode::SkipThis,
        ReplyMode::SkipThis => {
            reply.truncate(length);
            session.reply_mode = ReplyMode::On;
        }
    }
}
