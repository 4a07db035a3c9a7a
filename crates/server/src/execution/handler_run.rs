//! A run of a handler on keys, with their slots locked.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use command::collection::{ColdLeaves, LeafAt, Walk};
use command::{
    Classes, ColdValue, CommandError, CommandResult, Cx, Effects, Fetched, Handler, Record, Waits,
};
use flash::RecordId;
use keyspace::{FIRST_USE, FlashRef, Key, Locked, SlotState, Tally};
use resp::{Args, Reply};
use smallvec::SmallVec;
use tier::{FetchedSet, TierWorker};

use crate::execution::dispatch::wants_of;
use crate::execution::effects::take_effects;
use crate::execution::need::{args_bytes, value_bytes};
use crate::limits::{
    PROMOTED_AT_ONCE_MAX, PROMOTED_OF_MANY_MAX, PROMOTED_OF_PIECE_MAX, SAVED_HELD_SHIFT,
};
use crate::session::Session;
use crate::state::client_memory::request_bytes_max;
use crate::state::saves::LOADING_ERROR;
use crate::state::snapshot::{Failure, Reading, Saved, lacks, unreadable};
use crate::state::worker::Worker;

const SHUTTING_DOWN: CommandError = command::fixed("ERR the server is shutting down");

/// On whose behalf a handler runs, and where.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) db: u8,
    /// Unix milliseconds.
    pub(crate) now_ms: u64,
    /// Reads are no uses of keys.
    pub(crate) no_touch: bool,
    pub(crate) random: u64,
    /// Where large leaves that were read from flash are noted, to be moved into RAM after the run. None: they stay
    /// on flash.
    pub(crate) large_leaves: Option<&'a RefCell<ColdLeaves>>,
}

impl<'a> Caller<'a> {
    #[inline]
    pub(crate) fn of(session: &'a Session) -> Caller<'a> {
        let Session { worker, db, now_ms, no_touch, random, .. } = session;
        let (db, now_ms, no_touch, random) = (*db, *now_ms, *no_touch, *random);
        let large_leaves = Some(&session.large_leaves);
        Caller { worker, db, now_ms, no_touch, random, large_leaves }
    }
}

/// A handler with what it works on.
pub(crate) struct HandlerRun<'a, 'r> {
    pub(crate) handler: Handler,
    pub(crate) keys: &'a [Key<'a>],
    pub(crate) part: Part,
    pub(crate) args: Args<'r>,
    pub(crate) fetched: &'a FetchedSet,
    /// Bytes of the reply up to which there is memory for it.
    pub(crate) reply_bytes_max: usize,
    /// Whether fetched values are copied into the reply later.
    pub(crate) leaves_gaps: bool,
    /// Whether large fetched values are copied into RAM, too: nobody moves them after the run.
    pub(crate) copies_large: bool,
    /// A buffer for the large value that the command makes.
    pub(crate) spare: &'a mut Vec<u8>,
    /// Whether the command may change something.
    pub(crate) is_write: bool,
    pub(crate) waits: Waits,
    /// How far a walk over a large collection goes.
    pub(crate) walk: Walk<'a>,
    /// What was read for a snapshot with the slots held, of a run that holds them before and after: in a
    /// transaction, or for a client that has waited.
    pub(crate) saved_bytes: Option<u64>,
    /// The record of the transaction under way, if writes are journaled.
    pub(crate) record: Option<&'a mut Record<'r>>,
}

/// Which keys of its request a run is on, or which windows of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All.
    Whole,
    /// The first few, of so many in all.
    First(usize),
    /// A few that follow those of an earlier run.
    Later,
    /// All, to see what it takes. It has no effects, and never succeeds: one that comes to its end answers
    /// [`CommandError::ReplyTooLong`] with the length of the reply and the leaves that it has read.
    Rehearsal,
}

/// Runs a handler on locked slots, and brings fetched values back into RAM where the promotion
/// policy wants them.
#[inline(always)]
pub(crate) fn run_locked(
    caller: Caller<'_>,
    locked: &mut Locked<'_>,
    run: HandlerRun<'_, '_>,
    reply: &mut Reply,
) -> CommandResult {
    let worker = caller.worker;
    let mut tally = worker.tally.borrow_mut();
    let server = &worker.server;
    let leaves_gaps = run.leaves_gaps;
    let fetched = FetchedValues { set: run.fetched, tier: &worker.tier, leaves_gaps };
    let reads = Reads::of(&tally);
    let first_cold_reads = tally.first_cold_reads;
    // With the slots held, so that it says who waits for their keys.
    let (listened, is_saving) = server.listening.split();
    if is_saving && run.is_write {
        save_before(worker, locked, &run)?;
    }
    tally.noting = listened.noting();
    let mut cx = Cx {
        locked,
        keys: run.keys,
        array_len: match run.part {
            Part::Whole | Part::Rehearsal => Some(run.keys.len()),
            Part::First(of) => Some(of),
            Part::Later => None,
        },
        db: caller.db,
        now_ms: caller.now_ms,
        tally: &mut tally,
        fetched: &fetched,
        statistics: &**server,
        encodings: &**server,
        limits: &**server,
        no_touch: caller.no_touch,
        detached: Vec::new(),
        reply_bytes_max: run.reply_bytes_max,
        spare: run.spare,
        cold_leaves: Vec::new(),
        random: caller.random,
        waits: run.waits,
        walk: run.walk,
        effects: Effects::new(listened, run.is_write),
    };
    let mut result = (run.handler)(&mut cx, run.args, reply);
    if run.part == Part::Rehearsal && result.is_ok() {
        result = Err(CommandError::too_long_of(&run.keys[0], reply.full_len() as u64));
    }
    if listened != Classes::NONE && !(cx.effects.are_none() && cx.tally.notes.is_empty()) {
        let is_over = is_over(&result) && run.part != Part::Rehearsal;
        take_effects(worker, &mut cx, (run.args, run.record), is_over);
    }
    let (changes, detached, cold_leaves) = (cx.effects.into_changes(), cx.detached, cx.cold_leaves);
    match &mut result {
        Err(CommandError::NotResident(missing)) => {
            reads.take_back(caller, locked, (run.keys, &missing.key), &mut tally);
        }
        Err(CommandError::ReplyTooLong(long)) => {
            long.leaves.extend(cold_leaves.iter().map(|(_, value)| *value));
            reads.take_back(caller, locked, (run.keys, &long.key), &mut tally);
        }
        Err(CommandError::LongWalk) => {
            reads.take_back(caller, locked, (run.keys, run.keys[0].bytes), &mut tally);
        }
        Err(_) if run.part == Part::Rehearsal => {
            reads.take_back(caller, locked, (run.keys, &[]), &mut tally);
        }
        _ => {}
    }
    // The value of a single key that was not used lately stays on flash: it need not be looked up again for that. If the run
    // has read others, as SORT does, the first cold read may have been of one of them.
    let stays = || {
        let values_read = Reads::of(&tally).minus(reads).values();
        let is_first = tally.first_cold_reads > first_cold_reads;
        run.keys.len() == 1 && values_read == 1 && is_first && !server.tier.promotes_at_once()
    };
    if !run.fetched.is_empty() && !stays() {
        // Of very many keys, some by chance.
        let count = match run.part {
            Part::Whole if run.keys.len() <= PROMOTED_AT_ONCE_MAX => PROMOTED_AT_ONCE_MAX,
            Part::Whole => PROMOTED_OF_MANY_MAX,
            Part::First(_) | Part::Later => PROMOTED_OF_PIECE_MAX,
            Part::Rehearsal => 0,
        };
        let first = worker.tier.next_random() as usize % run.keys.len().max(1);
        for key in run.keys[first..].iter().chain(&run.keys[..first]).take(count) {
            promote(caller, locked, key, (run.fetched, run.copies_large), &mut tally);
        }
    }
    // In a transaction many would take the room of the commands behind.
    let is_many = run.saved_bytes.is_some() && cold_leaves.len() > PROMOTED_AT_ONCE_MAX;
    if !cold_leaves.is_empty() && result.is_ok() && !is_many {
        let is_piece = matches!(run.part, Part::First(_) | Part::Later);
        let leaves = (&cold_leaves[..], is_piece);
        promote_leaves(caller, locked, leaves, (run.fetched, run.copies_large), &mut tally);
    }
    if changes > 0 {
        worker.stats.changes.add(changes);
    }
    if run.part == Part::Whole {
        Reads::of(&tally).minus(reads).count(caller);
    }
    if !detached.is_empty() {
        worker.free_later(detached);
    }
    if worker.demotes_after_command() && is_over(&result) {
        worker.demote_later(run.keys.iter().map(|key| key.slot));
    }
    server.tier.tell(&mut tally);
    result
}

/// Refuses a write while a file is being loaded, or has a snapshot save what a run may change. Those of its keys
/// whose slots it does not hold stay as they are.
///
/// Errors: [`CommandError::NotResident`]; a file is being loaded; the server is about to end.
#[cold]
fn save_before(
    worker: &Worker,
    locked: &mut Locked<'_>,
    run: &HandlerRun<'_, '_>,
) -> CommandResult {
    let saves = &worker.server.saves;
    if worker.server.pause.is_loading() {
        return Err(command::fixed(LOADING_ERROR));
    }
    if saves.is_ending.load(Ordering::Relaxed) {
        return Err(SHUTTING_DOWN);
    }
    let Some(snapshot) = saves.snapshot() else { return Ok(()) };
    if run.keys.is_empty() {
        // It changes databases as a whole.
        snapshot.fail(Failure::Overtaken);
        return Ok(());
    }
    let tier = &*worker.server.tier;
    let fetched = FetchedValues { set: run.fetched, tier: &worker.tier, leaves_gaps: false };
    let read_held = TierWorker::fetch_blocking;
    // It holds its slots before and after, or is a part of a request.
    let at_once = run.saved_bytes.is_some() || run.part != Part::Whole;
    let (tier_worker, is_walk) = (&worker.tier, false);
    let reading = Reading { tier: tier_worker, fetched: &fetched, read_held, is_walk, at_once };
    let (mut lacked, mut lacking, mut waits_for) = (SmallVec::new(), Vec::new(), None);
    for key in run.keys {
        if !locked.holds(key.slot) {
            continue;
        }
        let values = match snapshot.save(locked.slot(key.slot), key, &reading) {
            Saved::Yes => continue,
            Saved::Lacks(values) => values,
            Saved::Later => {
                snapshot.want(key);
                waits_for = Some(key);
                continue;
            }
        };
        let failures = values.iter().map(|value| run.fetched.failure(tier.record_id(value.at)));
        match failures.flatten().next() {
            // The write need not wait for what is lost.
            Some(failure) => snapshot.fail(unreadable(failure)),
            None => {
                lacked.extend(values);
                lacking.push(key);
            }
        }
    }
    if let Some(key) = waits_for {
        return Err(CommandError::NotResident(lacks(key, SmallVec::new())));
    }
    let Some(&key) = lacking.first() else { return Ok(()) };
    let bytes: u64 = wants_of(tier, &lacked).iter().map(value_bytes).sum();
    let request_bytes_max = request_bytes_max(&worker.server);
    let bytes_max = match run.saved_bytes {
        None => request_bytes_max.saturating_sub(args_bytes(run.args)),
        // Beside all that it may read itself.
        Some(saved) => (request_bytes_max >> SAVED_HELD_SHIFT).saturating_sub(saved),
    };
    if bytes > bytes_max && !at_once {
        // The walk reads them one after another.
        lacking.iter().for_each(|key| snapshot.want(key));
        return Err(CommandError::NotResident(lacks(key, SmallVec::new())));
    }
    if bytes > bytes_max {
        // A client's write is worth more: the snapshot can be taken again.
        let text =
            "a write came upon values larger than a request may read to have them saved first";
        snapshot.fail(Failure::Failed(text.to_owned()));
        return Ok(());
    }
    Err(CommandError::NotResident(lacks(key, lacked)))
}

/// Whether a run has come to its end: it is not to be made again with more.
#[cold]
fn is_over(result: &CommandResult) -> bool {
    use CommandError::{LongWalk, NotResident, ReplyTooLong};
    !matches!(result, Err(NotResident(_) | ReplyTooLong(_) | LongWalk))
}

/// Reads that a tally has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    /// Of values and leaves.
    ram: u64,
    flash: u64,
    /// Of keys.
    found: u64,
    missed: u64,
}

impl Reads {
    #[inline]
    pub(super) fn of(tally: &Tally) -> Reads {
        let (ram, flash) = (tally.read_ram, tally.read_flash);
        Reads { ram, flash, found: tally.found, missed: tally.missed }
    }

    /// How many values and leaves.
    #[inline]
    fn values(self) -> u64 {
        self.ram + self.flash
    }

    #[inline]
    fn put_into(self, tally: &mut Tally) {
        (tally.read_ram, tally.read_flash) = (self.ram, self.flash);
        (tally.found, tally.missed) = (self.found, self.missed);
    }

    #[inline]
    fn plus(self, more: Reads) -> Reads {
        Reads {
            ram: self.ram + more.ram,
            flash: self.flash + more.flash,
            found: self.found + more.found,
            missed: self.missed + more.missed,
        }
    }

    #[inline]
    fn minus(self, before: Reads) -> Reads {
        Reads {
            ram: self.ram - before.ram,
            flash: self.flash - before.flash,
            found: self.found - before.found,
            missed: self.missed - before.missed,
        }
    }

    /// Leaves one read of keys of several that were of the same one.
    pub(super) fn count_key_once(&mut self) {
        self.found = self.found.min(1);
    }

    /// Takes those that a tally has counted since `before` out of it, and adds them to these.
    pub(super) fn take_from(&mut self, tally: &mut Tally, before: Reads) {
        *self = self.plus(Reads::of(tally).minus(before));
        before.put_into(tally);
    }

    /// Adds them to a tally, and counts them for INFO.
    pub(super) fn give_to(self, caller: Caller<'_>, tally: &mut Tally) {
        Reads::of(tally).plus(self).put_into(tally);
        self.count(caller);
    }

    /// Counts them for INFO.
    #[inline]
    fn count(self, caller: Caller<'_>) {
        let stats = &caller.worker.stats;
        stats.keyspace_hits.add(self.found);
        stats.keyspace_misses.add(self.missed);
    }

    /// Takes back what a run has counted that will be made again, once the value of `missing` is
    /// there: its reads, and its uses of the keys in front of that one, which handlers read in their
    /// order.
    #[cold]
    fn take_back(
        &self,
        caller: Caller<'_>,
        locked: &mut Locked<'_>,
        (keys, missing): (&[Key<'_>], &[u8]),
        tally: &mut Tally,
    ) {
        let since = Reads::of(tally).minus(*self);
        self.put_into(tally);
        let count = since.found + since.missed;
        let Some(last) = keys.iter().position(|key| key.bytes == missing) else { return };
        if caller.no_touch {
            return;
        }
        let table = locked.keyspace().table_of(caller.db);
        // It is counted itself, but by commands that write.
        let before = (count as usize).saturating_sub(1);
        for key in &keys[last.saturating_sub(before)..=last] {
            if locked.holds(key.slot) {
                let slot = locked.slot(key.slot);
                keyspace::Db::new(slot, table, 0, tally).take_back_access(key);
            }
        }
    }
}

/// Copies a fetched value into RAM, a large one only if so asked.
fn promote(
    caller: Caller<'_>,
    locked: &mut Locked<'_>,
    key: &Key<'_>,
    (fetched, copies_large): (&FetchedSet, bool),
    tally: &mut Tally,
) {
    let large_bytes = caller.worker.server.tier.large_value_bytes;
    let is_copied = |value: &&[u8]| copies_large || value.len() <= large_bytes;
    if locked.holds(key.slot) {
        let at_once = fetched.len() <= PROMOTED_AT_ONCE_MAX;
        let table = locked.keyspace().table_of(caller.db);
        promote_in_table(caller, (locked.slot(key.slot), table, key), at_once, tally, |record| {
            fetched.value(record).filter(is_copied).map(Box::from)
        });
    }
}

/// Copies leaves that were read from flash into RAM, of very many or of a piece of them the first; large ones only if
/// so asked, else they are noted, if they are few, to be moved after the run.
#[cold]
fn promote_leaves(
    caller: Caller<'_>,
    locked: &mut Locked<'_>,
    (leaves, is_piece): (&[(LeafAt, ColdValue)], bool),
    (fetched, copies_large): (&FetchedSet, bool),
    tally: &mut Tally,
) {
    let at_once = !is_piece && leaves.len() <= PROMOTED_AT_ONCE_MAX;
    let count = match at_once {
        true => PROMOTED_AT_ONCE_MAX,
        false if is_piece => PROMOTED_OF_PIECE_MAX,
        false => PROMOTED_OF_MANY_MAX,
    };
    for (leaf, value) in leaves.iter().take(count) {
        let key = leaf.key();
        if !copies_large && value.value_len as usize > caller.worker.server.tier.large_value_bytes {
            if let Some(large) = caller.large_leaves.filter(|_| at_once) {
                large.borrow_mut().push((*leaf, *value));
            }
            continue;
        }
        let at = (locked.slot(key.slot), leaf.table(), &key);
        promote_in_table(caller, at, at_once, tally, |record| fetched.value(record).map(Box::from));
    }
}

/// Moves large values and leaves that were fetched for a request, which has run, into RAM: they are not copied with
/// slots held, and take no memory twice.
#[cold]
pub(crate) fn promote_large<'a>(
    caller: Caller<'_>,
    keys: impl Iterator<Item = Key<'a>>,
    fetched: &mut FetchedSet,
) {
    let worker = caller.worker;
    let (keyspace, large_bytes) =
        (&worker.server.tier.keyspace, worker.server.tier.large_value_bytes);
    let mut tally = worker.tally.borrow_mut();
    let mut promote = |table: u8, key: &Key<'_>| {
        let mut slot = keyspace.lock(key.slot);
        promote_in_table(caller, (&mut slot, table, key), true, &mut tally, |record| {
            fetched.take_longer(record, large_bytes).map(Vec::into_boxed_slice)
        });
        worker.server.tier.tell(&mut tally);
    };
    for key in keys.take(PROMOTED_AT_ONCE_MAX) {
        promote(keyspace.table_of(caller.db), &key);
    }
    let leaves = caller.large_leaves.map(RefCell::take).unwrap_or_default();
    for (leaf, _) in &leaves {
        promote(leaf.table(), &leaf.key());
    }
}

fn promote_in_table(
    caller: Caller<'_>,
    (slot, table, key): (&mut SlotState, u8, &Key<'_>),
    at_once: bool,
    tally: &mut Tally,
    value: impl FnOnce(RecordId) -> Option<Box<[u8]>>,
) {
    let tier = &caller.worker.server.tier;
    if !tier.may_promote(tally.ram_bytes()) {
        return;
    }
    let mut db = keyspace::Db::new(slot, table, caller.now_ms, tally);
    let at_once = at_once && tier.promotes_at_once();
    let promoted = db.promote_with(key, |at, frequency| {
        // The frequency counts this access, too.
        let wanted = at_once || frequency > FIRST_USE;
        wanted.then(|| value(caller.worker.tier.record_id(at))).flatten()
    });
    if promoted {
        tier.counters.promoted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Fetched values as handlers ask for them.
struct FetchedValues<'a> {
    set: &'a FetchedSet,
    tier: &'a TierWorker,
    leaves_gaps: bool,
}

impl Fetched for FetchedValues<'_> {
    fn value(&self, at: FlashRef) -> Option<&[u8]> {
        if self.set.is_empty() { None } else { self.set.value(self.tier.record_id(at)) }
    }

    fn value_for_reply(&self, at: FlashRef) -> Option<(&[u8], Option<u32>)> {
        if !self.leaves_gaps {
            return self.value(at).map(|value| (value, None));
        }
        let position = self.set.position(self.tier.record_id(at))?;
        Some((self.set.value_at(position)?, Some(position)))
    }
}
