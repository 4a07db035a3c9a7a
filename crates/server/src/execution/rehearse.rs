//! What the commands of a transaction need of large collections, looked for before any of them runs: leaves on
//! flash, and memory for long replies and copies. What has run cannot be undone, so a command in its midst could not
//! wait for either.
//!
//! Those that only read are run, and what comes of it is dropped. The commands in front of them may change what they
//! find, so that is an estimate; where one writes to a key, those behind it that read the key are left out. A command that makes something of a collection, such as COPY, is taken to need thrice its
//! bytes: for leaves that it reads, for copies, and for what it makes.

use command::{CommandError, Flags, KeyFlags, Waits};
use keyspace::{Key, Locked, Stored};
use rapidhash::RapidHashSet;
use resp::Reply;
use smallvec::SmallVec;
use tier::FetchedSet;
use value::Kind;
use value::leaf::branch::Root;

use crate::execution::dispatch::{Attempt, wants_of};
use crate::execution::gather::chosen_db;
use crate::execution::handler_run::{Caller, HandlerRun, Part, run_locked};
use crate::execution::keys::keys_with_needs;
use crate::execution::need::NeededOf;
use crate::session::Session;
use crate::session::transaction::Queued;
use crate::state::registry::Run;

/// What a command takes that makes something of a collection, of the collection's bytes.
const COPIED_TIMES: u64 = 3;

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
    for (index, queued) in session.transaction.queued.iter().enumerate() {
        if needs.are_too_much() {
            break;
        }
        db = chosen_db(queued.entry, queued.args()).unwrap_or(db);
        let flags = queued.entry.spec.flags;
        let mut keys: SmallVec<[Key<'_>; 4]> = SmallVec::new();
        let (mut has_large, mut made_of) = (false, 0);
        for (key, at) in keys_with_needs(queued.entry, queued.args()) {
            if let Some(bytes) = large_bytes(session, locked, (db, &key), fetched) {
                has_large |= !written.contains(&(db, key.hash));
                made_of += if at.flags.has(KeyFlags::RO) { bytes } else { 0 };
            }
            keys.push(key);
        }
        if flags.has(Flags::WRITE) {
            if flags.has(Flags::DENYOOM) {
                needs.add_copies(made_of.saturating_mul(COPIED_TIMES));
            }
            written.extend(keys.iter().map(|key| (db, key.hash)));
        } else if has_large && flags.has(Flags::READONLY) {
            let random = session.random_of(index);
            let caller = Caller { db, random, no_touch: true, ..Caller::of(session) };
            rehearse_one(caller, (queued, &keys), locked, (fetched, attempt), needs, reply);
        }
    }
}

/// Bytes of a collection in many leaves, none while its root is on flash alone. None: a key has something else.
fn large_bytes(
    session: &Session,
    locked: &mut Locked<'_>,
    (db, key): (u8, &Key<'_>),
    fetched: &FetchedSet,
) -> Option<u64> {
    let table = locked.keyspace().table_of(db);
    let view = locked.slot(key.slot).view(table, key)?;
    if !Kind::from_bits(view.kind).is_tree() {
        return None;
    }
    let root = match view.stored {
        Stored::Hot(root) | Stored::Clean(root, _) => Some(root),
        Stored::Cold(at, _) => fetched.value(session.server().tier.record_id(at)),
    };
    Some(root.map_or(0, |root| Root::new(root).leaf_bytes()))
}

fn rehearse_one(
    caller: Caller<'_>,
    (queued, keys): (&Queued, &[Key<'_>]),
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
    wants_of(&caller.worker.server.tier, leaves).into_iter().for_each(|want| needs.add_want(want));
}
