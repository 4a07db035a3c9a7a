//! A run of a handler on keys, with their slots locked.

use std::sync::atomic::Ordering;

use command::{CommandResult, Cx, Fetched, Handler};
use keyspace::{FlashRef, Key, Locked, Tally};
use resp::{Args, Reply};
use tier::{FetchedSet, Pressure, Tier};

use crate::session::Session;

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
    let fetched = FetchedValues { set: run.fetched, tier: &server.tier };
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
        wanted.then(|| fetched.value(tier.record_id(at))).flatten().map(Box::from)
    });
    if promoted {
        tier.counters.promoted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Fetched values as handlers ask for them.
struct FetchedValues<'a> {
    set: &'a FetchedSet,
    tier: &'a Tier,
}

impl Fetched for FetchedValues<'_> {
    fn value(&self, at: FlashRef) -> Option<&[u8]> {
        if self.set.is_empty() { None } else { self.set.value(self.tier.record_id(at)) }
    }
}
