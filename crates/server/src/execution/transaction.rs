//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC locks the slots of all its keys, watched ones included, in ascending order, and holds them
//! until its last command has run: no other client sees a part of it, whatever slots and workers are
//! involved, and none changes a watched key between the look at the watch and the last write. Values
//! that its commands need are fetched before anything is locked for good; one that turns out cold
//! in the middle (a command that names its keys in its arguments' values) is read with the locks
//! held, because what ran before cannot be undone.

use std::sync::atomic::Ordering;

use command::collection::Walk;
use command::{CommandError, Flags, NotResident, Record, Waits};
use keyspace::{Keyspace, Locked};
use resp::{Args, Reply};
use smallvec::SmallVec;
use tier::FetchedSet;

use crate::execution::call::count;
use crate::execution::dispatch::{Attempt, wants_of};
use crate::execution::gather::{chosen_db, transaction_wants_many};
use crate::execution::handler_run::{Caller, HandlerRun, Part, run_locked};
use crate::execution::journal::{begin_record, end_record};
use crate::execution::keys::{Keys, keys_with_needs};
use crate::execution::need::{NeededOf, value_bytes};
use crate::execution::outcome::{Lacked, Needed, Outcome};
use crate::execution::rehearse::rehearse;
use crate::execution::serve::{serve_locked, serve_ready};
use crate::family::HANDLERS;
use crate::limits::{ATTEMPTS_MAX, REPLY_BYTES_FREE, SMALL_REPLY_BYTES, UNRESERVED_SHIFT};
use crate::session::Session;
use crate::session::cold::all_cold;
use crate::session::transaction::{Queued, Transaction, watched_key_bytes};
use crate::state::client_memory::{refusal, request_bytes_max};
use crate::state::registry::{Run, Verb};

/// Carries out a command of the transaction machinery.
pub(crate) fn run(
    verb: Verb,
    session: &mut Session,
    args: Args<'_>,
    fetched: &mut FetchedSet,
    attempt: Attempt,
    reply: &mut Reply,
) -> Result<Outcome, &'static str> {
    match verb {
        Verb::Exec => return exec(session, fetched, attempt, reply),
        // As with Redis, the transaction goes on.
        Verb::Multi if session.transaction.is_open => {
            return Err("ERR MULTI calls can not be nested");
        }
        Verb::Multi => {
            session.transaction.is_open = true;
            session.client.queued.store(0, Ordering::Relaxed);
            reply.ok();
        }
        Verb::Discard if !session.transaction.is_open => return Err("ERR DISCARD without MULTI"),
        Verb::Discard => {
            session.discard();
            reply.ok();
        }
        Verb::Watch if session.transaction.is_open => {
            return Err("ERR WATCH inside MULTI is not allowed");
        }
        Verb::Watch => {
            if let Some(needed) = needed_to_watch(session, args, attempt, reply) {
                return Ok(Outcome::Fetch(needed));
            }
            session.worker.count_changes();
            for key in args.iter().skip(1) {
                session.watch(key);
            }
            reply.ok();
        }
        Verb::Unwatch => {
            session.unwatch();
            reply.ok();
        }
    }
    Ok(Outcome::Done)
}

/// The memory that a request asks for which watches very many keys. None: it has it, or needs little.
fn needed_to_watch(
    session: &mut Session,
    args: Args<'_>,
    attempt: Attempt,
    reply: &Reply,
) -> Option<Needed> {
    let bytes: usize = args.iter().skip(1).map(watched_key_bytes).sum();
    Needed::to_keep(bytes, reply.full_len(), attempt, session)
}

fn exec(
    session: &mut Session,
    fetched: &mut FetchedSet,
    attempt: Attempt,
    reply: &mut Reply,
) -> Result<Outcome, &'static str> {
    if !session.transaction.is_open {
        return Err("ERR EXEC without MULTI");
    }
    if session.transaction.has_failed {
        session.discard();
        return Err("EXECABORT Transaction discarded because of previous errors.");
    }
    if attempt.number == 0 {
        session.random = session.worker.tier.next_random();
    }
    let is_first = attempt.number == 0 && !session.transaction.has_changed_keys();
    if is_first && transaction_wants_many(session.server(), &session.transaction) {
        return Ok(Outcome::Gather(Lacked::default()));
    }
    let server = session.worker.server.clone();
    let keyspace = &*server.tier.keyspace;
    let lock = || lock(keyspace, &session.transaction);
    let mut locked = lock();
    serve_locked(&session.worker, &mut locked, lock);
    let is_disturbed = {
        let tally = &mut session.worker.tally.borrow_mut();
        tally.noting = server.tier.noting();
        let is_disturbed =
            session.transaction.is_disturbed(&mut locked, session.expiry_ms(), tally);
        server.tier.tell(tally);
        is_disturbed
    };
    if is_disturbed {
        drop(locked);
        session.discard();
        reply.null_array();
        return Ok(Outcome::Done);
    }
    if server.listening.split().1
        && let Some(name) = waits_for_snapshot(session, &mut locked)
    {
        return Ok(Outcome::Saving(name));
    }
    let mut needs = needs(session, &mut locked, fetched);
    if needs.names_large {
        rehearse(session, &mut locked, (fetched, attempt), &mut needs, reply);
    }
    needs.are_too_much();
    let mut needed = needs.needed;
    // What it has been granted it will need again.
    let granted = (attempt.reply_granted as u64).saturating_sub(needed.copy_bytes);
    needed.reply_bytes = needed.reply_bytes.max(granted);
    needed.named = needed.wants.len();
    let has_values = needed.wants.iter().all(|want| fetched.has(want.record));
    fetched.rewind();
    let made_bytes = needed.reply_bytes + needed.copy_bytes;
    let has_room = made_bytes <= attempt.reply_bytes_max as u64;
    if !(has_values && has_room) && attempt.number < ATTEMPTS_MAX {
        return Ok(Outcome::Fetch(needed));
    }
    let transaction = std::mem::take(&mut session.transaction);
    reply.array(transaction.queued.len());
    let mut room = Room::new(session, reply, attempt.leaves_gaps);
    let is_logged = server.listening.is_logged();
    let mut record = is_logged.then(|| begin_record(&session.worker, session.now_ms));
    for (index, queued) in transaction.queued.iter().enumerate() {
        reply.set_protocol(session.protocol);
        let of_all = (&mut room, &mut record);
        run_queued(session, (queued, index), &mut locked, fetched, of_all, reply);
    }
    if let Some(record) = record {
        end_record(&session.worker, record);
    }
    drop(locked);
    serve_ready(&session.worker);
    session.transaction.flag = transaction.flag;
    session.transaction.watched = transaction.watched;
    session.discard();
    Ok(Outcome::Done)
}

/// Locks what the queued commands work on and what is watched.
fn lock<'k>(keyspace: &'k Keyspace, transaction: &Transaction) -> Locked<'k> {
    if transaction.queued.iter().any(|queued| queued.entry.wants_all_slots(queued.args())) {
        return keyspace.lock_all();
    }
    let mut slots: SmallVec<[u16; 8]> = SmallVec::new();
    for queued in &transaction.queued {
        slots.extend(keys_with_needs(queued.entry, queued.args()).map(|(key, _)| key.slot));
    }
    slots.extend(transaction.watched_slots());
    keyspace.lock_many(slots)
}

/// A name that the walk of a snapshot has to come to before the queued commands change it, since its values are large,
/// or as many names are kept as may be: in their midst the commands could not wait for it.
#[cold]
fn waits_for_snapshot(session: &Session, locked: &mut Locked<'_>) -> Option<Box<[u8]>> {
    let snapshot = session.server().saves.snapshot()?;
    let mut waits_for = None;
    for queued in &session.transaction.queued {
        if !queued.entry.spec.flags.has(Flags::WRITE) {
            continue;
        }
        for (key, _) in keys_with_needs(queued.entry, queued.args()) {
            if locked.holds(key.slot) && snapshot.must_wait_for(locked.slot(key.slot), &key) {
                snapshot.want(&key);
                waits_for = Some(key.bytes.into());
            }
        }
    }
    waits_for
}

/// What the queued commands need. No more is looked for than a request may take. SELECT inside a
/// transaction moves the commands behind it to another database.
fn needs<'a>(session: &'a Session, locked: &mut Locked<'_>, fetched: &FetchedSet) -> NeededOf<'a> {
    let mut db = session.db;
    let mut needs = NeededOf::new(&session.worker);
    for queued in &session.transaction.queued {
        if needs.are_too_much() {
            break;
        }
        let args = queued.args();
        db = chosen_db(queued.entry, args).unwrap_or(db);
        let table = locked.keyspace().table_of(db);
        let replies = queued.entry.spec.flags.has(Flags::REPLIES_VALUES);
        for (key, at) in keys_with_needs(queued.entry, args) {
            needs.add(locked.slot(key.slot), table, (&key, at.needs, replies), fetched);
        }
    }
    needs
}

/// What a transaction may take as it runs: its replies, what it brings into RAM, and what it reads then since it
/// could not be told before. What has been reserved is within it.
struct Room {
    bytes_max: u64,
    /// Length of the reply before it.
    reply_start: usize,
    /// What its worker had brought into RAM before it, in this batch.
    grown_before: i64,
    /// What was read with the slots held.
    read_bytes: u64,
    /// The same for a snapshot.
    saved_bytes: u64,
    /// What commands without keys have replied, for which nothing is reserved.
    unreserved_bytes: u64,
    /// Whether fetched values are copied into the replies later.
    leaves_gaps: bool,
}

impl Room {
    fn new(session: &Session, reply: &Reply, leaves_gaps: bool) -> Room {
        Room {
            bytes_max: request_bytes_max(session.server()),
            reply_start: reply.full_len(),
            grown_before: session.worker.tally.borrow().ram_bytes(),
            read_bytes: 0,
            saved_bytes: 0,
            unreserved_bytes: 0,
            leaves_gaps,
        }
    }

    /// What it has taken besides its replies.
    fn held_bytes(&self, session: &Session) -> u64 {
        let grown = session.worker.tally.borrow().ram_bytes() - self.grown_before;
        self.read_bytes + grown.max(0) as u64
    }

    /// Bytes that the whole reply may come to with that of the next command, which has a little in any case.
    fn reply_bytes_max(&self, session: &Session, reply: &Reply) -> usize {
        let left = self.bytes_max.saturating_sub(self.held_bytes(session)) as usize;
        let of_all = self.reply_start.saturating_add(left);
        of_all.max(reply.full_len().saturating_add(REPLY_BYTES_FREE))
    }

    /// Takes the memory to read so many bytes more. False: there is none. What a snapshot wants does not count, for
    /// no command is refused because of one; it keeps to a bound of its own.
    fn take(&mut self, missing: &NotResident, bytes: u64, session: &Session) -> bool {
        if missing.is_to_save {
            self.saved_bytes += bytes;
            return true;
        }
        let fits = self.held_bytes(session).saturating_add(bytes) <= self.bytes_max;
        self.read_bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Counts a reply for which nothing was reserved. False: it is not to be given, since such replies would come to too
    /// much. A small one always fits.
    fn takes_unreserved(&mut self, bytes: u64) -> bool {
        let all = self.unreserved_bytes + bytes;
        let fits = bytes <= SMALL_REPLY_BYTES || all <= self.bytes_max >> UNRESERVED_SHIFT;
        self.unreserved_bytes = if fits { all } else { self.unreserved_bytes };
        fits
    }
}

/// Whether a command without keys changes what its connection hears or is, which it must be told. Replies of these are
/// bounded by their arguments, or by what it has subscribed to.
fn changes_connection(queued: &Queued) -> bool {
    let flags = queued.entry.spec.flags;
    flags.has(Flags::PUBSUB) && flags.has(Flags::NOSCRIPT) || flags.has(Flags::NO_AUTH)
}

fn run_queued<'r>(
    session: &mut Session,
    (queued, index): (&'r Queued, usize),
    locked: &mut Locked<'_>,
    fetched: &mut FetchedSet,
    (room, record): (&mut Room, &mut Option<Record<'r>>),
    reply: &mut Reply,
) {
    let args = queued.args();
    let mut length = reply.len();
    let start_ticks = session.server().clock.raw();
    let result = match queued.entry.run {
        Run::Keys(handler) => {
            let keys: Keys<'_> = keys_with_needs(queued.entry, args).map(|(key, _)| key).collect();
            let random = session.random_of(index);
            // Ends: with the slots held values stay where they are, so each turn reads another one,
            // and what was read before stays at hand.
            loop {
                let spare = &mut Vec::new();
                let run = HandlerRun {
                    handler,
                    keys: &keys,
                    part: Part::Whole,
                    args,
                    fetched,
                    reply_bytes_max: room.reply_bytes_max(session, reply),
                    leaves_gaps: room.leaves_gaps,
                    copies_large: true,
                    spare,
                    is_write: queued.entry.spec.flags.has(Flags::WRITE),
                    waits: Waits::Never,
                    walk: Walk::Whole,
                    saved_bytes: Some(room.saved_bytes),
                    record: record.as_mut(),
                };
                let caller = Caller { random, ..Caller::of(session) };
                let result = run_locked(caller, locked, run, reply);
                let missing = match result {
                    Err(CommandError::NotResident(missing)) => missing,
                    Err(CommandError::ReplyTooLong(_)) => {
                        reply.truncate(length);
                        break Err(CommandError::owned(refusal(session.server(), room.bytes_max)));
                    }
                    result => break result,
                };
                reply.truncate(length);
                let table = locked.keyspace().table_of(session.db);
                let mut lacked = wants_of(&session.server().tier, &missing.values);
                let failures = lacked.iter().map(|want| fetched.failure(want.record));
                if let Some(failure) = failures.flatten().next() {
                    let text = format!("ERR cannot read the value of a key: {failure}");
                    break Err(CommandError::owned(text));
                }
                lacked.retain(|want| !fetched.has(want.record));
                assert!(!lacked.is_empty(), "a value that is there is found");
                // Leaves of a large collection, which could not be told before it ran.
                if !room.take(&missing, lacked.iter().map(value_bytes).sum(), session) {
                    break Err(CommandError::owned(refusal(session.server(), room.bytes_max)));
                }
                // The gaps of commands in front go by the values' positions, which change.
                while reply.has_gaps() {
                    reply.fill(usize::MAX, |position| {
                        fetched.value_at(position).expect("invariant: the reply has a gap for it")
                    });
                }
                length = reply.len();
                let mut wants = all_cold(&session.worker.tier, locked, table, &keys, fetched);
                wants.extend(lacked);
                fetched.extend(session.worker.tier.fetch_blocking(wants));
            }
        }
        Run::Session(at) => {
            session.worker.count_changes();
            let before = reply.full_len();
            let result = HANDLERS[at](session, args, reply);
            let made_bytes = reply.full_len().saturating_sub(before) as u64;
            if changes_connection(queued) || room.takes_unreserved(made_bytes) {
                result
            } else {
                Err(CommandError::owned(refusal(session.server(), room.bytes_max)))
            }
        }
        Run::Transaction(_) => {
            reply.ok();
            Ok(())
        }
        Run::Container => unreachable!("never queued"),
    };
    if let Err(CommandError::Reply(text)) = result {
        reply.truncate(length);
        reply.error(text.as_bytes());
        session.worker.stats.commands[queued.entry.index].failed.add(1);
        session.worker.stats.count_error(text.as_bytes());
    }
    count(session, queued.entry, args, start_ticks);
}
