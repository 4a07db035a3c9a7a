//! What a request of several keys needs, looked for in windows, between which other clients have their
//! turn: a request may name hundreds of thousands.
//!
//! Each slot is locked for one key at a time, so what was found may have changed when the request
//! runs; it looks for what it lacks then again.

use command::{Flags, KeyAt, Needs, find_keys};
use keyspace::{DB_COUNT, Hint, Key, PREFETCH_KEYS};
use resp::Args;
use smallvec::SmallVec;

use crate::execution::dispatch::Pipeline;
use crate::execution::need::{NeededOf, TooMuch};
use crate::execution::outcome::{Lacked, Needed};
use crate::session::transaction::Transaction;
use crate::state::registry::{Entry, Run, Verb};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// How far it has come.
pub(crate) struct Gathering<'a> {
    needs: NeededOf<'a>,
    /// The database that the command under way works on.
    db: u8,
    /// Which one that is of a transaction.
    command: usize,
    /// Its keys.
    keys: SmallVec<[KeyAt; 4]>,
    next_key: usize,
    lacked: Lacked,
}

impl<'a> Gathering<'a> {
    /// For a request on this database of which a run lacked this.
    pub(crate) fn new(worker: &'a Worker, db: u8, lacked: Lacked) -> Gathering<'a> {
        let (needs, keys) = (NeededOf::new(worker), SmallVec::new());
        Gathering { needs, db, command: 0, keys, next_key: 0, lacked }
    }
}

/// Whether a command is to be looked through before it runs for the first time: it names many keys, and
/// wants the values of some.
#[inline]
pub(super) fn wants_many(server: &Server, entry: &Entry, args: Args<'_>) -> bool {
    args.len() > server.slices.gathered_keys_max && wants_values(entry)
}

/// The same of a transaction.
pub(super) fn transaction_wants_many(server: &Server, transaction: &Transaction) -> bool {
    let wanting = transaction.queued.iter().filter(|queued| wants_values(queued.entry));
    let args: usize = wanting.map(|queued| queued.ranges.len()).sum();
    args > server.slices.gathered_keys_max
}

fn wants_values(entry: &Entry) -> bool {
    entry.spec.keys.iter().any(|key| key.needs == Needs::Value)
}

impl Pipeline<'_> {
    /// Looks through the next keys of the request under way. Whether it has come to the end.
    pub(crate) fn gather(&mut self, gathering: &mut Gathering<'_>) -> bool {
        let end = gathering.needs.keys_seen + self.session.server().slices.gathered_keys_max;
        while gathering.needs.keys_seen < end && !gathering.needs.are_too_much() {
            let Some((entry, args)) = self.command_at(gathering.command) else { return true };
            if gathering.next_key == 0 {
                gathering.db = chosen_db(entry, args).unwrap_or(gathering.db);
                gathering.keys.clear();
                if let Run::Keys(_) = entry.run {
                    find_keys(entry.spec.keys, args, &mut gathering.keys);
                }
            }
            if gathering.next_key == gathering.keys.len() {
                gathering.command += 1;
                gathering.next_key = 0;
                continue;
            }
            self.gather_window(gathering, entry, args);
        }
        gathering.needs.are_too_much()
    }

    /// Looks through keys of one command whose look-ups wait for memory together.
    fn gather_window(&self, gathering: &mut Gathering<'_>, entry: &Entry, args: Args<'_>) {
        let keyspace = &*self.session.server().tier.keyspace;
        let table = keyspace.table_of(gathering.db);
        let first = gathering.next_key;
        let end = gathering.keys.len().min(first + PREFETCH_KEYS);
        let window = &gathering.keys[first..end];
        let keys = window.iter().filter_map(|at| Some((Key::new(args.get(at.index)?), at.needs)));
        let keys: SmallVec<[(Key<'_>, Needs); PREFETCH_KEYS]> = keys.collect();
        let hints = keys.iter().map(|(key, _)| Hint::new(table, key));
        let mut hints: SmallVec<[Hint; PREFETCH_KEYS]> = hints.collect();
        keyspace.prefetch_keys(&mut hints, 0);
        let replies = entry.spec.flags.has(Flags::REPLIES_VALUES);
        for (key, needs) in &keys {
            let slot = keyspace.lock(key.slot);
            gathering.needs.add(&slot, table, (key, *needs, replies), self.fetched);
        }
        gathering.next_key = end;
    }

    /// The `index`-th command of the request under way: of a transaction that is to be executed, or
    /// itself alone.
    fn command_at(&self, index: usize) -> Option<(&'static Entry, Args<'_>)> {
        let request = self.batch.current()?;
        let entry = request.entry?;
        if let Run::Transaction(Verb::Exec) = entry.run {
            let queued = self.session.transaction.queued.get(index)?;
            return Some((queued.entry, queued.args()));
        }
        (index == 0).then(|| (entry, self.batch.args(&request, self.input)))
    }

    /// What was gathered, with what is fetched for the requests behind it. Errors: it is more than a
    /// request may take.
    pub(crate) fn gathered(&mut self, gathering: Gathering<'_>) -> Result<Needed, TooMuch> {
        let Gathering { mut needs, lacked, .. } = gathering;
        needs.needed.order = needs.needed.wants.iter().map(|want| want.record).collect();
        let entry = self.batch.current().and_then(|request| request.entry);
        needs.needed.copy_bytes = needs.needed.copy_bytes.max(lacked.copy_bytes(entry));
        lacked.wants.into_iter().for_each(|want| needs.add_want(want));
        needs.needed.reply_bytes = needs.needed.reply_bytes.max(lacked.reply_bytes);
        needs.needed.is_for_copies = lacked.is_for_copies;
        needs.are_too_much();
        // What a fetched value takes beside itself is counted generously, its watch included.
        let others = needs.keys_seen.saturating_sub(needs.needed.wants.len());
        if let Some(bytes) = self.watch_bytes(others) {
            needs.add_watches(bytes);
        }
        self.needs_of_batch(needs.needed)
    }
}

/// The database that SELECT inside a transaction chooses for the commands behind it.
pub(super) fn chosen_db(entry: &Entry, args: Args<'_>) -> Option<u8> {
    if entry.spec.name != "SELECT" {
        return None;
    }
    let chosen = value::parse_i64(args.get(1)?)?;
    (0..DB_COUNT as i64).contains(&chosen).then_some(chosen as u8)
}
