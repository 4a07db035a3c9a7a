//! Fields of hashes whose time has come: removed in each round of upkeep from leaves in RAM, and by a task that
//! reads them from leaves on flash alone.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use command::collection::{ColdLeaf, expire_fetched, expire_fields};
use flash::RecordId;
use keyspace::{SlotState, Tally};
use tier::{Want, sort_wants};

use crate::state::server::Server;
use crate::state::worker::Worker;

/// Leaves of a slot from which fields are removed in one go: some hundred microseconds with the slot held.
const LEAVES_MAX: usize = 32;
/// Leaves that are read together, and their bytes, but for those of a first one that is larger.
const READ_LEAVES_MAX: usize = 32;
const READ_BYTES_MAX: u64 = 256 << 10;

/// Whether what has expired is removed now. Not while data is loaded: records of the journal tell what had expired when,
/// and a hash whose first fields have expired would be gone before its last come.
pub(super) fn is_on(server: &Server, now_ms: u64) -> bool {
    let is_loading = server.pause.is_loading() || server.saves.is_loading();
    server.active_expire.load(Ordering::Relaxed)
        && !server.pause.is_on(now_ms)
        && !is_loading
        && server.journaling.takes_writes()
}

/// Whether what has expired stays in a slot, which is held: a snapshot is writing a large collection of it, and has
/// said how many elements there are.
#[inline]
pub(super) fn is_held_up(server: &Server, slot: u16) -> bool {
    server.listening.split().1
        && server.saves.snapshot().is_some_and(|snapshot| snapshot.is_writing_in(slot))
}

/// Removes fields from some leaves of a slot. Returns whether to go on with this slot: more may be due in RAM.
pub(super) fn expire_in(
    worker: &Worker,
    slot: &mut SlotState,
    number: u16,
    now_ms: u64,
    tally: &mut Tally,
) -> bool {
    let expired = expire_fields(slot, number, now_ms, tally, LEAVES_MAX);
    worker.cold_fields.add(expired.cold);
    expired.leaves == LEAVES_MAX
}

/// Reads the leaves that upkeep has met on flash and removes fields from them, for as long as the worker runs.
pub(crate) async fn expire_cold_fields(worker: Rc<Worker>) {
    loop {
        let mut leaves = worker.cold_fields.next().await;
        while !leaves.is_empty() {
            leaves = expire_cold(&worker, leaves).await;
        }
    }
}

/// Removes fields from leaves on flash alone. Returns those that are due in the same slots by then.
async fn expire_cold(worker: &Worker, mut leaves: Vec<ColdLeaf>) -> Vec<ColdLeaf> {
    let slots: BTreeSet<u16> = leaves.iter().map(|leaf| leaf.slot).collect();
    let mut is_any = false;
    while !leaves.is_empty() {
        let group = next_group(&mut leaves);
        is_any |= expire_group(worker, &group).await;
    }
    let now_ms = worker.server.tier.clock().unix_ms();
    // What could not be read now is met again by upkeep.
    if !is_any || !is_on(&worker.server, now_ms) {
        return Vec::new();
    }
    slots.into_iter().flat_map(|slot| look_again(worker, slot, now_ms)).collect()
}

/// Takes leaves that are read together.
fn next_group(leaves: &mut Vec<ColdLeaf>) -> Vec<ColdLeaf> {
    let mut bytes = 0;
    let fits = |leaf: &&ColdLeaf| {
        bytes += u64::from(leaf.value_len);
        bytes <= READ_BYTES_MAX
    };
    let count = leaves.iter().take(READ_LEAVES_MAX).take_while(fits).count().max(1);
    leaves.drain(..count).collect()
}

fn look_again(worker: &Worker, number: u16, now_ms: u64) -> Vec<ColdLeaf> {
    let tier = &worker.server.tier;
    let mut tally = Tally::default();
    let expired = {
        let mut slot = tier.keyspace.lock(number);
        if is_held_up(&worker.server, number) {
            return Vec::new();
        }
        tally.noting = tier.noting();
        let expired = expire_fields(&mut slot, number, now_ms, &mut tally, LEAVES_MAX);
        tier.tell(&mut tally);
        expired
    };
    tier.add_tally(&mut tally);
    expired.cold
}

/// Reads leaves and removes fields from them. Returns whether anything came of it.
async fn expire_group(worker: &Worker, group: &[ColdLeaf]) -> bool {
    let tier = &worker.server.tier;
    let bytes: i64 = group.iter().map(|leaf| i64::from(leaf.value_len)).sum();
    if !tier.may_promote(bytes) {
        return false;
    }
    let wants: Vec<Option<Want>> = group.iter().map(|leaf| want(worker, leaf)).collect();
    let mut reads: Vec<Want> = wants.iter().flatten().copied().collect();
    sort_wants(&mut reads);
    let fetched = worker.tier.fetch(reads).await;
    let now_ms = tier.clock().unix_ms();
    let mut is_any = false;
    for (leaf, want) in group.iter().zip(wants) {
        let Some(Want { record, .. }) = want else { continue };
        if let Some(failure) = fetched.failure(record) {
            tracing::warn!(failure, "cannot read a part of a hash whose fields expire");
        } else if fetched.value(record).is_none() {
            // It has moved.
            continue;
        }
        is_any = true;
        expire_read(worker, leaf, (record, fetched.value(record)), now_ms);
    }
    is_any
}

/// What to read for a leaf, if it is still where it was.
fn want(worker: &Worker, leaf: &ColdLeaf) -> Option<Want> {
    let tier = &worker.server.tier;
    let slot = tier.keyspace.lock(leaf.slot);
    leaf.is_in(&slot).then(|| tier.want(&leaf.key(), leaf.at, leaf.value_len))
}

fn expire_read(
    worker: &Worker,
    leaf: &ColdLeaf,
    (record, bytes): (RecordId, Option<&[u8]>),
    now_ms: u64,
) {
    let tier = &worker.server.tier;
    let mut tally = Tally::default();
    {
        let mut slot = tier.keyspace.lock(leaf.slot);
        tally.noting = tier.noting();
        // Another record may lie there by now.
        let is_same = leaf.is_in(&slot) && tier.record_id(leaf.at) == record;
        if is_same && !is_held_up(&worker.server, leaf.slot) {
            expire_fetched(&mut slot, leaf, bytes, now_ms, &mut tally);
        }
        tier.tell(&mut tally);
    }
    tier.add_tally(&mut tally);
}
