//! From a request to its run: what the client may do, which values must be fetched, which slots
//! locked.

use std::sync::atomic::Ordering;

use command::{
    CommandError, CommandResult, Cx, Fetched, Flags, Handler, KeyAt, Locks, Needs, find_keys,
};
use keyspace::{FlashRef, Key, Locked, SlotState, Tally};
use resp::{Args, Reply};
use smallvec::SmallVec;
use tier::{FetchedSet, Pressure, Want};

use crate::batch::Request;
use crate::connection::{Connection, Parts};
use crate::limits::{ATTEMPTS_MAX, FETCH_BYTES_MAX};
use crate::secrets::{REDACTED, secret_args};
use crate::session::{Closing, ReplyMode, Session};
use crate::slowlog::{SlowCommand, trimmed};
use crate::table::{Entry, Run, SessionHandler, Verb};

/// What became of a request.
pub(crate) enum Outcome {
    /// It was answered.
    Done,
    /// It was answered without having run: queued, or refused.
    NotRun,
    /// It needs these values; then it is to be run again.
    Fetch(Vec<Want>),
    /// It must wait for memory, then it is to be run again.
    Room,
    /// It must wait for the end of a pause.
    Paused,
    /// It must wait for the session's errand, then it is to be run again.
    Errand,
}

/// Bytes of a client's own words that an error repeats.
const QUOTED_BYTES_MAX: usize = 128;

/// Keys of one request.
pub(crate) type Keys<'a> = SmallVec<[Key<'a>; 4]>;

impl Connection {
    /// Runs one request, unless it must wait for something.
    pub(crate) fn dispatch(&mut self, request: &Request) -> Outcome {
        let start_ticks = self.session.server().clock.raw();
        let parts = self.parts();
        let args = parts.batch.args(request, parts.input);
        let length = parts.reply.len();
        let Some(entry) = request.entry else {
            unknown_command(parts.session, args, parts.reply);
            finish_reply(parts.session, parts.reply, length);
            return Outcome::Done;
        };
        let mut run = Runner {
            session: parts.session,
            entry,
            args,
            key: request.key(args),
            fetched: parts.fetched,
            attempts: parts.attempts,
            room: parts.room,
        };
        let outcome = run.admit_and_run(parts.reply);
        match outcome {
            Outcome::Done => {
                finish_reply(parts.session, parts.reply, length);
                count(parts.session, entry, args, start_ticks);
                Outcome::Done
            }
            Outcome::NotRun => {
                finish_reply(parts.session, parts.reply, length);
                Outcome::NotRun
            }
            Outcome::Fetch(wants) => {
                parts.reply.truncate(length);
                Outcome::Fetch(self.wants_of_batch(wants))
            }
            outcome => {
                parts.reply.truncate(length);
                outcome
            }
        }
    }

    /// Adds the cold values of the requests that follow, so that all reads of a pipeline fly
    /// together.
    fn wants_of_batch(&mut self, mut wants: Vec<Want>) -> Vec<Want> {
        let Parts { worker, session, batch, input, .. } = self.parts();
        let keyspace = &*worker.server.tier.keyspace;
        let table = keyspace.table_of(session.db);
        let mut bytes: usize = wants.iter().map(|want| want.at.stored_len as usize).sum();
        wants.reserve(batch.rest().len());
        let mut add = |key: &Key<'_>| {
            let want = cold(&keyspace.lock(key.slot), table, key);
            wants.extend(want);
            want.map_or(0, |want| want.at.stored_len as usize)
        };
        for request in batch.rest() {
            let Some(entry) = request.entry else { continue };
            let args = batch.args(request, input);
            if bytes > FETCH_BYTES_MAX || !entry.spec.takes(args.len()) {
                break;
            }
            bytes += match request.key(args) {
                Some(key) if entry.spec.keys[0].needs == Needs::Value => add(&key),
                Some(_) => 0,
                None => keys_with_needs(entry, args)
                    .filter(|(_, at)| at.needs == Needs::Value)
                    .map(|(key, _)| add(&key))
                    .sum(),
            };
        }
        wants.sort_unstable_by_key(|want| want.at.units);
        wants.dedup_by_key(|want| want.at.units);
        wants
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
    attempts: u32,
    room: Option<bool>,
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
        let server = self.session.server();
        let writes = spec.flags.has(Flags::WRITE) || self.is_exec_with_writes();
        if server.pause.stops(writes, self.session.now_ms) && !self.passes_pause() {
            return Outcome::Paused;
        }
        let needs_room = spec.flags.has(Flags::DENYOOM) || self.is_exec_with_room();
        if needs_room && server.tier.pressure() == Pressure::Wait {
            match self.room {
                None => return Outcome::Room,
                Some(true) => {}
                Some(false) => {
                    let text = "OOM command not allowed when used memory > 'maxmemory'.";
                    return self.refuse(reply, text);
                }
            }
        }
        let uses_data = spec.flags.has(Flags::READONLY | Flags::WRITE);
        if self.session.feed.is_some() && uses_data {
            return self.refuse(reply, "ERR Replica can't interact with the keyspace");
        }
        if self.session.transaction.is_open() && self.is_queued() {
            return self.queue(reply);
        }
        self.run(reply)
    }

    fn run(&mut self, reply: &mut Reply) -> Outcome {
        match self.entry.run {
            Run::Keys(handler) => self.run_keys(handler, reply),
            Run::Session(handler) => self.run_session(handler, reply),
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

    /// Commands that a pause never stops: those that end it, and those that inspect.
    fn passes_pause(&self) -> bool {
        let name = self.entry.spec.name;
        name.starts_with("CLIENT|") || matches!(name, "INFO" | "AUTH" | "HELLO" | "QUIT" | "RESET")
    }

    fn is_exec_with_writes(&self) -> bool {
        matches!(self.entry.run, Run::Transaction(Verb::Exec))
            && self.session.transaction.has_flag(Flags::WRITE)
    }

    fn is_exec_with_room(&self) -> bool {
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
        if self.session.transaction.queue(self.entry, self.args).is_err() {
            return self.refuse(reply, "ERR transaction is too large");
        }
        let client = &self.session.client;
        client.queued.store(self.session.transaction.len() as i64, Ordering::Relaxed);
        client.queued_bytes.store(self.session.transaction.bytes() as u64, Ordering::Relaxed);
        reply.queued();
        Outcome::NotRun
    }

    #[inline]
    fn run_keys(&mut self, handler: Handler, reply: &mut Reply) -> Outcome {
        let keys: Keys<'_> = match self.key {
            Some(key) => SmallVec::from_slice(&[key]),
            None => keys_with_needs(self.entry, self.args).map(|(key, _)| key).collect(),
        };
        let worker = self.session.worker.clone();
        let keyspace = &*worker.server.tier.keyspace;
        let length = reply.len();
        let mut locked = match (self.entry.spec.locks, keys.as_slice()) {
            (Locks::Keys, [key]) => keyspace.lock_one(key.slot),
            (Locks::Keys, keys) => keyspace.lock_many(keys.iter().map(|key| key.slot).collect()),
            (Locks::None, _) => keyspace.unlocked(),
            (Locks::All, _) => keyspace.lock_all(),
        };
        loop {
            let run = HandlerRun { handler, keys: &keys, args: self.args, fetched: self.fetched };
            match run_locked(self.session, &mut locked, run, reply) {
                Ok(()) => return Outcome::Done,
                Err(CommandError::Reply(text)) => return self.fail(reply, length, &text),
                Err(CommandError::NotResident(missing)) => {
                    reply.truncate(length);
                    if let Some(failure) = self.fetched.failure(missing.at) {
                        let text = format!("ERR cannot read the value of a key: {failure}");
                        return self.fail(reply, length, &text);
                    }
                    let key = Key::new(&missing.key);
                    let table = keyspace.table_of(self.session.db);
                    let want = want_at(&mut locked, table, &key, missing.at);
                    take_back_access(self.session, &mut locked, &key);
                    if self.attempts < ATTEMPTS_MAX {
                        return Outcome::Fetch(vec![want]);
                    }
                    // The value went cold again and again: read it while nobody can move it.
                    *self.fetched = self.session.worker.tier.fetch_blocking(want);
                }
            }
        }
    }

    fn run_session(&mut self, handler: SessionHandler, reply: &mut Reply) -> Outcome {
        let length = reply.len();
        publish(self.session);
        match handler(self.session, self.args, reply) {
            Err(CommandError::Reply(text)) => self.fail(reply, length, &text),
            _ if self.session.errand.is_wanted() => Outcome::Errand,
            _ => Outcome::Done,
        }
    }

    fn run_transaction(&mut self, verb: Verb, reply: &mut Reply) -> Outcome {
        let length = reply.len();
        let (session, fetched) = (&mut *self.session, &mut *self.fetched);
        match crate::transaction::run(verb, session, self.args, fetched, self.attempts, reply) {
            Ok(outcome) => outcome,
            Err(text) => self.fail(reply, length, text),
        }
    }
}

/// A handler with what it works on.
pub(crate) struct HandlerRun<'a> {
    pub(crate) handler: Handler,
    pub(crate) keys: &'a [Key<'a>],
    pub(crate) args: Args<'a>,
    pub(crate) fetched: &'a FetchedSet,
}

/// Runs a handler on locked slots, and brings fetched values back into RAM where the promotion
/// policy wants them.
#[inline]
pub(crate) fn run_locked(
    session: &Session,
    locked: &mut Locked<'_>,
    run: HandlerRun<'_>,
    reply: &mut Reply,
) -> CommandResult {
    let worker = &session.worker;
    let mut tally = worker.tally.borrow_mut();
    let server = &worker.server;
    let fetched = FetchedValues(run.fetched);
    let (hits, misses) = (tally.read_ram + tally.read_flash, tally.missed);
    let mut cx = Cx {
        locked,
        keys: run.keys,
        db: session.db,
        now_ms: session.now_ms,
        tally: &mut tally,
        fetched: &fetched,
        statistics: &**server,
        lfu: server.tier.settings.policy().is_lfu(),
        no_touch: session.no_touch,
        cleared: Vec::new(),
        string_bytes_max: server.config.proto_max_bulk_len.load() as usize,
        random: worker.tier.next_random(),
        changes: 0,
    };
    let result = (run.handler)(&mut cx, run.args, reply);
    let (changes, cleared) = (cx.changes, cx.cleared);
    if !run.fetched.is_empty() {
        for key in run.keys {
            promote(session, locked, key, run.fetched, &mut tally);
        }
    }
    if changes > 0 {
        worker.stats.changes.add(changes);
    }
    worker.stats.keyspace_hits.add(tally.read_ram + tally.read_flash - hits);
    worker.stats.keyspace_misses.add(tally.missed - misses);
    if !cleared.is_empty() {
        worker.free_later(cleared);
    }
    result
}

fn promote(
    session: &Session,
    locked: &mut Locked<'_>,
    key: &Key<'_>,
    fetched: &FetchedSet,
    tally: &mut Tally,
) {
    let tier = &session.worker.server.tier;
    if tier.pressure() == Pressure::Wait || !locked.holds(key.slot) {
        return;
    }
    let table = tier.keyspace.table_of(session.db);
    let mut db = keyspace::Db::new(locked.slot(key.slot), table, session.now_ms, tally);
    let at_once = tier.promotes_at_once();
    let promoted = db.promote_with(key, |at, frequency| {
        // The frequency counts this access too: above 1 it was used before.
        let wanted = at_once || frequency > 1;
        wanted.then(|| fetched.value(at)).flatten().map(Box::from)
    });
    if promoted {
        tier.counters.promoted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Fetched values as handlers ask for them.
struct FetchedValues<'a>(&'a FetchedSet);

impl Fetched for FetchedValues<'_> {
    fn value(&self, at: FlashRef) -> Option<&[u8]> {
        self.0.value(at)
    }
}

/// The keys of a request with what the command wants of them.
pub(crate) fn keys_with_needs<'a>(
    entry: &Entry,
    args: Args<'a>,
) -> impl Iterator<Item = (Key<'a>, KeyAt)> {
    let mut found: SmallVec<[KeyAt; 4]> = SmallVec::new();
    if let Run::Keys(_) = entry.run {
        find_keys(entry.spec.keys, args, &mut found);
    }
    found.into_iter().filter_map(move |at| Some((Key::new(args.get(at.index)?), at)))
}

/// What to fetch for a key whose value is on flash alone.
#[inline]
pub(crate) fn cold(slot: &SlotState, table: u8, key: &Key<'_>) -> Option<Want> {
    let (at, value_len) = slot.cold(table, key)?;
    Some(Want { at, key_len: key.bytes.len() as u32, value_len })
}

fn want_at(locked: &mut Locked<'_>, table: u8, key: &Key<'_>, at: FlashRef) -> Want {
    let found = locked.holds(key.slot).then(|| cold(locked.slot(key.slot), table, key)).flatten();
    found.unwrap_or(Want { at, key_len: key.bytes.len() as u32, value_len: at.stored_len })
}

/// The handler will run again, and must not count as a second use of the value.
fn take_back_access(session: &Session, locked: &mut Locked<'_>, key: &Key<'_>) {
    if session.no_touch || !locked.holds(key.slot) {
        return;
    }
    let table = locked.keyspace().table_of(session.db);
    let mut tally = Tally::default();
    keyspace::Db::new(locked.slot(key.slot), table, 0, &mut tally).take_back_access(key);
}

/// Publishes what the batch has changed so far, for a command that reads the counters.
pub(crate) fn publish(session: &Session) {
    session.worker.server.tier.publish(&mut session.worker.tally.borrow_mut());
}

/// Drops the reply when the client does not want it.
#[inline]
fn finish_reply(session: &mut Session, reply: &mut Reply, length: usize) {
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

/// Counts a call, notes it when it was slow, and shows it to those who watch.
#[inline]
pub(crate) fn count(session: &Session, entry: &Entry, args: Args<'_>, start_ticks: u64) {
    let server = session.server();
    let ticks = server.clock.raw() - start_ticks;
    session.worker.stats.commands[entry.index].count(ticks);
    let client = &session.client;
    client.last_command.store(entry.index as u32 + 1, Ordering::Relaxed);
    if ticks > server.samples.slow_ticks() {
        note_slow(session, entry, args, ticks);
    }
    if server.monitors.are_watching() && !entry.spec.flags.has(Flags::SKIP_MONITOR | Flags::ADMIN) {
        server.monitors.show(session, args);
    }
}

#[cold]
fn note_slow(session: &Session, entry: &Entry, args: Args<'_>, ticks: u64) {
    let server = session.server();
    let duration_us = server.clock.delta_as_nanos(0, ticks) / 1000;
    let at_seconds = session.now_ms / 1000;
    let slower_than = server.config.slowlog_log_slower_than.load();
    let skips = entry.spec.flags.has(Flags::SKIP_SLOWLOG);
    if slower_than >= 0 && duration_us >= slower_than as u64 && !skips {
        let args = redacted(args);
        let command = SlowCommand {
            id: 0,
            at_seconds,
            duration_us,
            args,
            address: session.client.address.clone(),
            client_name: session.client.labels.lock().name.clone(),
        };
        server.slowlog.add(command, server.config.slowlog_max_len.load() as usize);
    }
    let threshold_ms = server.config.latency_monitor_threshold.load();
    if threshold_ms > 0 && duration_us / 1000 >= threshold_ms as u64 {
        let name = if entry.spec.flags.has(Flags::FAST) { "fast-command" } else { "command" };
        server.latency.add(name, at_seconds, duration_us / 1000);
    }
}

/// The arguments for the slow log, secrets left out.
fn redacted(args: Args<'_>) -> Vec<Vec<u8>> {
    let mut shown = trimmed(args);
    for index in secret_args(args) {
        if let Some(arg) = shown.get_mut(index) {
            *arg = REDACTED.to_vec();
        }
    }
    shown
}

fn unknown_command(session: &mut Session, args: Args<'_>, reply: &mut Reply) {
    reply.set_protocol(session.protocol);
    if !session.authenticated {
        session.transaction.fail();
        let text = "NOAUTH Authentication required.";
        session.worker.stats.count_error(text.as_bytes());
        return reply.error(text);
    }
    if matches!(args[0].to_ascii_lowercase().as_slice(), b"post" | b"host:") {
        // A browser was tricked into speaking to us: let it say no more.
        tracing::warn!("possible cross-protocol attack: HTTP on the Redis port; closing");
        session.closing = Closing::Now;
        return;
    }
    session.transaction.fail();
    session.worker.stats.count_error(b"ERR");
    let mut shown = Vec::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let part = quoted(arg, QUOTED_BYTES_MAX - shown.len());
        shown.extend_from_slice(&[b"'", part, b"' "].concat());
    }
    let name = quoted(&args[0], QUOTED_BYTES_MAX);
    let begin = [b"ERR unknown command '", name, b"', with args beginning with: "].concat();
    reply.error([begin, shown].concat());
}

fn unknown_subcommand(entry: &Entry, args: Args<'_>) -> Vec<u8> {
    let name = quoted(&args[1], QUOTED_BYTES_MAX);
    let container = entry.spec.name.as_bytes();
    [b"ERR unknown subcommand '", name, b"'. Try ", container, b" HELP."].concat()
}

/// As much of an argument as an error repeats: Redis prints it as a C string.
fn quoted(arg: &[u8], bytes_max: usize) -> &[u8] {
    let end = arg.iter().position(|byte| *byte == 0).unwrap_or(arg.len());
    &arg[..end.min(bytes_max)]
}

fn wrong_arity(entry: &Entry) -> String {
    format!("ERR wrong number of arguments for '{}' command", entry.lower)
}
