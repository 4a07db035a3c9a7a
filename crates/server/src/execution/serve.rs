//! Clients that wait for keys are served: their requests are run by whoever brought something, or met a key
//! that is ready before that.
//!
//! For each key that is ready, the clients that wait for it are served in the order of their arrival until the
//! key holds nothing more, each with the slots of its own request locked: that of the key, and that of the key
//! that it inserts into. In between the key stays marked, so whoever else locks its slot goes on with the work.
//! Elements of lists and sorted sets are there for one client each, entries of streams for all: those who read
//! a stream are all looked at, and once more when it was marked again meanwhile. Where there is nothing for one of
//! a group of consumers, the others of it are passed over; and they are told, too, when the stream is gone.

use std::sync::Arc;

use command::collection::Walk;
use command::{CommandError, Group, Waits};
use keyspace::{Db, Key, Locked};
use resp::Reply;
use smallvec::SmallVec;
use tier::FetchedSet;
use value::Kind;

use crate::execution::dispatch::wants_of;
use crate::execution::handler_run::{Caller, HandlerRun, Part, run_locked};
use crate::execution::keys::{Keys, keys_with_needs};
use crate::state::client_memory::{refusal, request_bytes_max};
use crate::state::registry::Run;
use crate::state::waiters::{ReadyKey, Served, Waiter, WaiterState};
use crate::state::worker::Worker;

/// Serves all who wait for keys that are ready. No slot may be held. Cost: a load when there are none.
#[inline]
pub(super) fn serve_ready(worker: &Worker) {
    if worker.server.waiters.has_ready() {
        serve_all(worker);
    }
}

#[cold]
fn serve_all(worker: &Worker) {
    while let Some(ready) = worker.server.waiters.first_ready(|_| true) {
        serve_key(worker, &ready);
    }
}

/// Serves clients until nobody waits for what the `locked` slots hold. In between they are let go of, and `lock` locks
/// them again. Cost: a load when nobody waits.
#[inline(always)]
pub(super) fn serve_locked<'k>(
    worker: &Worker,
    locked: &mut Locked<'k>,
    lock: impl Fn() -> Locked<'k>,
) {
    if worker.server.waiters.has_ready() {
        serve_all_locked(worker, locked, lock);
    }
}

#[cold]
fn serve_all_locked<'k>(worker: &Worker, locked: &mut Locked<'k>, lock: impl Fn() -> Locked<'k>) {
    let waiters = &worker.server.waiters;
    while let Some(ready) = waiters.first_ready(|slot| locked.holds(slot)) {
        locked.unlock();
        serve_key(worker, &ready);
        *locked = lock();
    }
}

/// Serves those who wait for a key, until it holds nothing for any of them.
fn serve_key(worker: &Worker, ready: &ReadyKey) {
    let server = &worker.server;
    let (waiters, keyspace) = (&server.waiters, &*server.tier.keyspace);
    let key = Key::new(&ready.key);
    let (mut number, mut marks) = (0, None);
    // One of each group for which there is nothing.
    let mut in_vain: Vec<Arc<Waiter>> = Vec::new();
    loop {
        let is_meant = |waiter: &Waiter| in_vain.iter().all(|other| other.group != waiter.group);
        let next = waiters.next(ready, number, is_meant);
        let mut slots: SmallVec<[u16; 8]> = SmallVec::from_slice(&[key.slot]);
        if let Some((_, waiter, _)) = &next {
            slots.extend(inserted_slots(waiter));
        }
        let mut locked = keyspace.lock_many(slots);
        let Some(readiness) = waiters.readiness(ready) else { return };
        if *marks.get_or_insert(readiness.marks) != readiness.marks {
            // What has come since may be for those, too, for whom there was nothing before.
            (number, marks) = (0, None);
            in_vain.clear();
            continue;
        }
        let now_ms = server.tier.clock().unix_ms();
        let kind = kind_of(worker, &mut locked, ready.db, &key, now_ms);
        let is_for_any = kind.is_some() || readiness.has_groups;
        match next {
            Some((at, waiter, index)) if is_for_any => {
                number = at + 1;
                if !is_for(&waiter, kind) {
                    continue;
                }
                if serve(worker, &mut locked, (&waiter, index), now_ms) {
                    waiters.leave(ready, at);
                } else if waiter.group.is_some() {
                    in_vain.push(waiter);
                }
            }
            // One may have come since.
            None if is_for_any && waiters.next(ready, number, is_meant).is_some() => {}
            _ => {
                waiters.unmark_ready(ready, readiness.marks);
                return;
            }
        }
    }
}

fn kind_of(
    worker: &Worker,
    locked: &mut Locked<'_>,
    db: u8,
    key: &Key<'_>,
    now_ms: u64,
) -> Option<Kind> {
    let table = locked.keyspace().table_of(db);
    let tally = &mut worker.tally.borrow_mut();
    tally.noting = worker.server.tier.noting();
    let view = Db::new(locked.slot(key.slot), table, now_ms, tally).into_view(key);
    let kind = view.map(|view| Kind::from_bits(view.kind));
    worker.server.tier.tell(tally);
    kind
}

/// Whether a client waits for values of this kind, or is to be told that it is none of those.
fn is_for(waiter: &Waiter, kind: Option<Kind>) -> bool {
    let is_awaited = kind.is_some_and(|kind| match waiter.entry.spec.docs.group {
        Group::List => kind.is_list(),
        Group::SortedSet => kind.is_sorted_set(),
        Group::Stream => kind.is_stream(),
        _ => unreachable!("invariant: nobody waits for other values"),
    });
    is_awaited || waiter.group.is_some()
}

/// Slots of the keys that a request inserts what it takes into.
fn inserted_slots(waiter: &Waiter) -> impl Iterator<Item = u16> {
    let keys = keys_with_needs(waiter.entry, waiter.args());
    keys.filter(|(_, at)| at.flags.has(command::KeyFlags::INSERT)).map(|(key, _)| key.slot)
}

/// Runs the request of a client for one of its keys, and answers it. False: there is nothing for it.
fn serve(
    worker: &Worker,
    locked: &mut Locked<'_>,
    (waiter, index): (&Waiter, usize),
    now_ms: u64,
) -> bool {
    // Nobody else serves it, and it does not go, before it is clear what it gets.
    let mut state = waiter.state();
    if !matches!(*state, WaiterState::Waiting) {
        return true;
    }
    // Its connection has not got round to leave the queue: what it took would be lost.
    if waiter.client.is_killed() {
        *state = WaiterState::Left;
        return true;
    }
    let start_ticks = worker.server.clock.raw();
    let mut reply = Reply::new(waiter.protocol);
    let has_failed = match run(worker, locked, (waiter, index), now_ms, &mut reply) {
        Ok(()) => false,
        Err(CommandError::Reply(text)) => {
            reply.clear();
            reply.error(text.as_bytes());
            true
        }
        Err(CommandError::Wait(_)) => return false,
        // Nothing has been taken yet.
        Err(CommandError::ReplyTooLong(long)) => {
            reply.clear();
            reply.error(refusal(&worker.server, long.bytes).as_bytes());
            true
        }
        Err(CommandError::NotResident(_) | CommandError::LongWalk) => {
            unreachable!("values are fetched, and walks whole")
        }
    };
    let ticks = worker.server.clock.raw() - start_ticks;
    let error = has_failed.then(|| reply.as_slice()[1..].trim_ascii_end());
    worker.stats.count_wait(waiter.entry, ticks, error);
    *state = WaiterState::Served(Served { reply: reply.take(), ticks });
    drop(state);
    worker.tell(&waiter.client);
    true
}

/// Runs a request. Values on flash are read with its slots held: its key is new, so its value is in RAM nearly
/// always.
fn run(
    worker: &Worker,
    locked: &mut Locked<'_>,
    (waiter, index): (&Waiter, usize),
    now_ms: u64,
    reply: &mut Reply,
) -> command::CommandResult {
    let Run::Keys(handler) = waiter.entry.run else {
        unreachable!("invariant: a request that waits works on keys")
    };
    let args = waiter.args();
    let keys: Keys<'_> = keys_with_needs(waiter.entry, args).map(|(key, _)| key).collect();
    let caller = Caller {
        worker,
        db: waiter.db,
        now_ms,
        no_touch: waiter.no_touch,
        random: worker.tier.next_random(),
        large_leaves: None,
    };
    let bytes_max = request_bytes_max(&worker.server);
    let mut fetched = FetchedSet::default();
    let (mut fetched_bytes, mut saved_bytes) = (0, 0);
    loop {
        let run = HandlerRun {
            handler,
            keys: &keys,
            part: Part::Whole,
            args,
            fetched: &fetched,
            reply_bytes_max: bytes_max as usize,
            leaves_gaps: false,
            copies_large: true,
            spare: &mut Vec::new(),
            is_write: waiter.entry.spec.flags.has(command::Flags::WRITE),
            waits: Waits::For(index),
            walk: Walk::Whole,
            saved_bytes: Some(saved_bytes),
            record: None,
        };
        let result = run_locked(caller, locked, run, reply);
        let Err(CommandError::NotResident(missing)) = result else { return result };
        reply.clear();
        let mut wants = wants_of(&worker.server.tier, &missing.values);
        let failures = wants.iter().map(|want| fetched.failure(want.record));
        if let Some(failure) = failures.flatten().next() {
            let text = format!("ERR cannot read the value of a key: {failure}");
            return Err(CommandError::owned(text));
        }
        // Those that were read before are at hand.
        wants.retain(|want| !fetched.has(want.record));
        let bytes: u64 = wants.iter().map(|want| u64::from(want.value_len)).sum();
        match missing.is_to_save {
            true => saved_bytes += bytes,
            false => fetched_bytes += bytes,
        }
        if fetched_bytes > bytes_max {
            return Err(CommandError::owned(refusal(&worker.server, fetched_bytes)));
        }
        fetched.extend(worker.tier.fetch_blocking(wants));
    }
}
