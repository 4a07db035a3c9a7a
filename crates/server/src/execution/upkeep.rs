//! A worker's upkeep: its share of demotion, gc, defragmentation and expiry, in short
//! rounds between the requests of its clients.

use std::rc::Rc;
use std::time::Duration;

use command::collection::DetachedNodes;
use keyspace::{DetachedTree, SLOT_COUNT, Tally};
use tier::Freeing;

use crate::execution::field_expiry;
use crate::execution::serve::serve_ready;
use crate::session::save::save_if_due;
use crate::state::worker::Worker;

/// Between two rounds on a worker that has nothing urgent.
pub(crate) const UPKEEP_EVERY: Duration = Duration::from_millis(5);
/// One round of expiry takes at most this long: 5 % of a core while rounds come every `UPKEEP_EVERY`.
const EXPIRE_SLICE: Duration = Duration::from_micros(250);
/// Nodes that one round frees: some tens of microseconds, with their slot locked.
const FREED_NODES_MAX: usize = 256;
/// Collections that one round frees.
const FREED_TREES_MAX: usize = 16;
/// Slots that one round of expiry looks at: all of them within 80 ms.
const EXPIRE_SLOTS: usize = SLOT_COUNT / 16;

/// Between two looks whether a snapshot is due: 100 ms where nothing is urgent.
const SAVE_ROUNDS: u32 = 20;

/// The upkeep of one worker.
pub(crate) struct Upkeep {
    worker: Rc<Worker>,
    /// The slot that expiry looks at next.
    slot: usize,
    /// A large collection without a key, of which some nodes have been freed.
    detached: Option<Detached>,
    rounds: u32,
}

struct Detached {
    tree: DetachedTree,
    nodes: DetachedNodes,
    /// Writes wait meanwhile rather than be refused.
    _freeing: Freeing,
}

impl Upkeep {
    pub(crate) fn new(worker: Rc<Worker>) -> Upkeep {
        Upkeep { slot: worker.index, worker, detached: None, rounds: 0 }
    }

    /// One round. True: more is urgent, and the next should follow when the clients that are ready
    /// have had their turn.
    pub(crate) fn round(&mut self) -> bool {
        let more = self.worker.tier.upkeep() | self.free_trees();
        expire(&self.worker, &mut self.slot);
        // Where no timer does it, as in the simulation.
        if self.worker.deadlines.first_ms().is_some() {
            let now_ms = self.worker.server.tier.clock().unix_ms();
            self.worker.deadlines.wake_due(now_ms);
        }
        self.worker.fit_buffers();
        self.rounds = self.rounds.wrapping_add(1);
        if self.worker.index == 0 && self.rounds.is_multiple_of(SAVE_ROUNDS) {
            save_if_due(&self.worker.server);
        }
        // Keys that were evicted or have expired. No batch follows that would count what was taken.
        serve_ready(&self.worker);
        self.worker.count_changes();
        self.worker.upkeep_tick.notify_waiters();
        more
    }
}

impl Upkeep {
    /// Frees nodes of large collections that have no key any more, some of a very large one or all of
    /// several. Returns whether there may be others.
    fn free_trees(&mut self) -> bool {
        for _ in 0..FREED_TREES_MAX {
            if !self.free_nodes() {
                return false;
            }
            if self.detached.is_some() {
                break;
            }
        }
        true
    }

    /// Frees some nodes of one. False: there is none.
    fn free_nodes(&mut self) -> bool {
        let tier = &self.worker.server.tier;
        let detached = match self.detached.take() {
            Some(detached) => detached,
            None => {
                let Some(tree) = tier.take_detached_tree() else { return false };
                let nodes = DetachedNodes::of_detached(&tree);
                Detached { tree, nodes, _freeing: Freeing::new(tier) }
            }
        };
        let Detached { tree, mut nodes, _freeing } = detached;
        let mut tally = Tally::default();
        let is_done = {
            let mut slot = tier.keyspace.lock(tree.slot);
            nodes.free_some(&mut slot, (tree.slot, tree.table), 0, &mut tally, FREED_NODES_MAX)
        };
        tier.add_tally(&mut tally);
        match is_done {
            true => tier.note_freed_tree(&tree),
            false => self.detached = Some(Detached { tree, nodes, _freeing }),
        }
        true
    }
}

/// Removes keys, and fields of hashes, whose time has come from this worker's slots, for a bounded time.
fn expire(worker: &Worker, slot: &mut usize) {
    let server = &worker.server;
    let clock = server.tier.clock();
    let now_ms = clock.unix_ms();
    let counters = &server.tier.counters;
    let may_expire = counters.has_volatile() || counters.has_timers();
    if !may_expire || !field_expiry::is_on(server, now_ms) {
        return;
    }
    let start = clock.now();
    let mut tally = Tally::default();
    for _ in 0..EXPIRE_SLOTS {
        let due = expire_in_slot(worker, *slot as u16, now_ms, &mut tally);
        if due != Due::More {
            *slot += server.tier.workers;
            if *slot >= SLOT_COUNT {
                *slot = worker.index;
            }
        }
        if due != Due::Nothing && clock.now() - start > EXPIRE_SLICE {
            worker.stats.expire_cut_short.add(1);
            break;
        }
    }
    worker.stats.expire_us.add((clock.now() - start).as_micros() as u64);
}

/// What was due in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Nothing, or somebody holds the slot.
    Nothing,
    /// Something, which is done.
    Done,
    /// More than was done.
    More,
}

fn expire_in_slot(worker: &Worker, number: u16, now_ms: u64, tally: &mut Tally) -> Due {
    let tier = &worker.server.tier;
    let Some(mut state) = tier.keyspace.try_lock(number) else { return Due::Nothing };
    if field_expiry::is_held_up(&worker.server, number) {
        return Due::Nothing;
    }
    let keys = state.may_have_expired(now_ms);
    let fields = tier.counters.has_timers() && state.has_due_timers(now_ms);
    if !keys && !fields {
        return Due::Nothing;
    }
    tally.noting = tier.noting();
    if keys {
        state.expire(now_ms, tally);
    }
    let has_more = fields && field_expiry::expire_in(worker, &mut state, number, now_ms, tally);
    tier.tell(tally);
    drop(state);
    tier.add_tally(tally);
    if has_more { Due::More } else { Due::Done }
}
