//! What the commands of a transaction need of large collections, looked for before any of them runs: leaves on
//! flash, and memory for long replies and copies. What has run cannot be undone, so a command in its midst could not
//! wait for either.
//!
//! Those that only read are run, and what comes of it is dropped. The commands in front of
//! them may change what they find, so that is an estimate; where one writes to a key, those behind it that read the
//! key are left out. What a command takes that copies a collection is not known before it runs: it has all
//! that a request may take.

use command::{CommandError, Flags, KeyFlags, Waits};
use keyspace::{Key, Locked};
use rapidhash::RapidHashSet;
use resp::Reply;
use smallvec::SmallVec;
use tier::FetchedSet;
use value::Kind;

use crate::execution::dispatch::{Attempt, wants_of};
use crate::execution::gather::chosen_db;
use crate::execution::handler_run::{Caller, HandlerRun, Part, run_locked};
use crate::execution::keys::keys_with_needs;
use crate::execution::need::NeededOf;
use crate::session::Session;
use crate::session::transaction::Queued;
use crate::state::registry::Run;

/// Adds to `needs` what the queued commands need of large collections. The slots of all their keys are locked.
/// `reply` is as it was afterwards. Cost: a look at each key, and a run of each command that only reads a large
/// collection.
pub(super) fn rehearse(
    session: &Session,
    locked: &mut Locked<'_>,
    (fetched, attempt): (&FetchedSet, Attempt),
    needs: &mut NeededOf<'_>,
    reply: &mut Reply,
) {
    let mut db = session.db;
    let mut written = RapidHashSet::default();
    let mut copies = false;
    for queued in &session.transaction.queued {
        if needs.are_too_much() {
            break;
        }
        db = chosen_db(queued.entry, queued.args()).unwrap_or(db);
        let flags = queued.entry.spec.flags;
        let mut keys: SmallVec<[Key<'_>; 4]> = SmallVec::new();
        let mut has_large = false;
        for (key, at) in keys_with_needs(queued.entry, queued.args()) {
            let is_large = is_large(locked, db, &key);
            has_large |= is_large && !written.contains(&(db, key.hash));
            copies |= is_large && flags.has(Flags::WRITE) && at.flags.has(KeyFlags::RO);
            keys.push(key);
        }
        if flags.has(Flags::WRITE) {
            written.extend(keys.iter().map(|key| (db, key.hash)));
        } else if has_large && flags.has(Flags::READONLY) {
            rehearse_one(session, (queued, &keys, db), locked, (fetched, attempt), needs, reply);
        }
    }
    if copies {
        needs.add_copies_max();
    }
}

/// Whether a key has a collection in many leaves.
fn is_large(locked: &mut Locked<'_>, db: u8, key: &Key<'_>) -> bool {
    let table = locked.keyspace().table_of(db);
    let view = locked.slot(key.slot).view(table, key);
    view.is_some_and(|view| Kind::from_bits(view.kind).is_tree())
}

fn rehearse_one(
    session: &Session,
    (queued, keys, db): (&Queued, &[Key<'_>], u8),
    locked: &mut Locked<'_>,
    (fetched, attempt): (&FetchedSet, Attempt),
    needs: &mut NeededOf<'_>,
    reply: &mut Reply,
) {
    let Run::Keys(handler) = queued.entry.run else { return };
    let (length, full_length) = (reply.len(), reply.full_len() as u64);
    let run = HandlerRun {
        handler,
        keys,
        part: Part::Rehearsal,
        args: queued.args(),
        fetched,
        reply_bytes_max: attempt.reply_bytes_max.saturating_sub(needs.needed.reply_bytes as usize),
        leaves_gaps: false,
        copies_large: false,
        spare: &mut Vec::new(),
        is_write: false,
        waits: Waits::Never,
        saved_bytes: None,
    };
    let caller = Caller { db, no_touch: true, ..Caller::of(session) };
    let result = run_locked(caller, locked, run, reply);
    let reply_bytes = match &result {
        Err(CommandError::NotResident(missing)) => missing.reply_bytes,
        Err(CommandError::ReplyTooLong(long)) => long.bytes.saturating_sub(full_length),
        Ok(()) | Err(CommandError::Reply(_) | CommandError::Wait(_)) => 0,
    };
    reply.truncate(length);
    needs.needed.reply_bytes += reply_bytes;
    let leaves = match &result {
        Err(CommandError::NotResident(missing)) => &missing.values[..],
        Err(CommandError::ReplyTooLong(long)) => &long.leaves[..],
        _ => &[],
    };
    wants_of(&session.server().tier, leaves).into_iter().for_each(|want| needs.add_want(want));
}
