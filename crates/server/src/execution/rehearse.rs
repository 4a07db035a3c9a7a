//! What the commands of a transaction need of large collections, and for what they make of large values, looked for
//! before any of them runs: leaves on flash, and memory for long replies and copies. What has run cannot be undone,
//! so a command in its midst could not wait for either.
//!
//! Those that only read are run, and what comes of it is dropped. The commands in front of them may change what they
//! find, so that is an estimate; where one writes to a key, those behind it that read the key are left out. A command that makes something of a large value, such as COPY, is taken to need thrice its
//! bytes: for what it reads, for copies, and for what it makes.

use command::collection::Walk;
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
use crate::limits::CLAIM_BYTES_MIN;
use crate::session::Session;
use crate::session::transaction::Queued;
use crate::state::registry::Run;

/// What a command takes that makes something of a large value, of the value's bytes.
const COPIED_TIMES: u64 = 3;

/// Adds to `needs` what the queued commands need of large values. The slots of all their keys are locked.
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
        let (mut has_tree, mut made_of) = (false, 0);
        for (key, at) in keys_with_needs(queued.entry, queued.args()) {
            if let Some(large) = large(session, locked, (db, &key), fetched) {
                has_tree |= large.is_tree && !written.contains(&(db, key.hash));
                made_of += if at.flags.has(KeyFlags::RO) { large.bytes } else { 0 };
            }
            keys.push(key);
        }
        if flags.has(Flags::WRITE) {
            if flags.has(Flags::DENYOOM) {
                needs.add_copies(made_of.saturating_mul(COPIED_TIMES));
            }
            written.extend(keys.iter().map(|key| (db, key.hash)));
        } else if has_tree && flags.has(Flags::READONLY) {
            let random = session.random_of(index);
            let caller = Caller { db, random, no_touch: true, ..Caller::of(session) };
            rehearse_one(caller, (queued, &keys), locked, (fetched, attempt), needs, reply);
        }
    }
}

/// A value that is large enough to be looked at.
struct Large {
    /// Whether it is a collection in many leaves.
    is_tree: bool,
    /// None of one whose root is on flash alone.
    bytes: u64,
}

/// What a key has, if it is large.
fn large(
    session: &Session,
    locked: &mut Locked<'_>,
    (db, key): (u8, &Key<'_>),
    fetched: &FetchedSet,
) -> Option<Large> {
    let table = locked.keyspace().table_of(db);
    let view = locked.slot(key.slot).view(table, key)?;
    if !Kind::from_bits(view.kind).is_tree() {
        let bytes = view.value_len() as u64;
        return (bytes > CLAIM_BYTES_MIN).then_some(Large { is_tree: false, bytes });
    }
    let root = match view.stored {
        Stored::Hot(root) | Stored::Clean(root, _) => Some(root),
        Stored::Cold(at, _) => fetched.value(session.server().tier.record_id(at)),
    };
    Some(Large { is_tree: true, bytes: root.map_or(0, |root| Root::new(root).leaf_bytes()) })
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
        walk: Walk::Whole,
        saved_bytes: None,
        record: None,
    };
    let result = run_locked(caller, locked, run, reply);
    reply.truncate(length);
    let replies = queued.entry.spec.flags.has(Flags::REPLIES_VALUES);
    let leaves = match &result {
        Err(CommandError::NotResident(missing)) => {
            needs.needed.reply_bytes += if replies { missing.reply_bytes } else { 0 };
            &missing.values[..]
        }
        Err(CommandError::ReplyTooLong(long)) => {
            let bytes = long.bytes.saturating_sub(full_length);
            match long.is_for_copies && !replies {
                // They go when the command has run.
                true => needs.needed.copy_bytes = needs.needed.copy_bytes.max(bytes),
                false => needs.needed.reply_bytes += bytes,
            }
            &long.leaves[..]
        }
        Ok(()) | Err(CommandError::Reply(_) | CommandError::Wait(_) | CommandError::LongWalk) => {
            &[]
        }
    };
    wants_of(&caller.worker.server.tier, leaves).into_iter().for_each(|want| needs.add_want(want));
}
