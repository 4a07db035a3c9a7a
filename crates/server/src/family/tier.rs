//! TIER: where values are, and moving them by hand; for people and tests.
//!
//! These commands lock slots themselves, so they are refused in transactions, whose slots are
//! locked already.

use std::sync::atomic::Ordering;

use command::collection::{LeafAt, all_leaves};
use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use keyspace::{Db, FlashRef, Key, Stored};
use resp::{Args, Reply};
use tier::StopReason;
use value::Kind;

use super::help::write_help;
use super::info::tiering;
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::Session;
use crate::session::cold::cold;
use crate::session::errand::Errand;

pub(crate) const NO_FLASH: CommandError =
    command::fixed("ERR there is no flash: CONFIG SET flash-path and flash-size make it");

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("TIER", Group::Server, "7.0.0", "Tells where values are, and moves them."),
    row(
        "TIER|LOCATE",
        3,
        "Tells where the value of a key is.",
        "O(1); flash is not read",
        "key",
        locate,
    ),
    row(
        "TIER|DEMOTE",
        3,
        "Takes the value of a key, or all values, out of RAM.",
        "O(1) for a key, O(N) for all",
        "key | ALL",
        demote,
    ),
    row("TIER|PROMOTE", 3, "Brings the value of a key back to RAM.", "O(1)", "key", promote),
    row("TIER|FLUSH", 2, "Starts to write what stands in write buffers.", "O(1)", "", flush),
    row("TIER|STATS", 2, "Answers the figures of INFO tiering.", "O(1)", "", stats),
    row("TIER|HELP", 2, "Explains the subcommands.", "O(1)", "", help),
];

const fn row(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since: "7.0.0", summary, complexity, syntax };
    let flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI);
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

const HELP: &[&str] = &[
    "TIER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LOCATE <key>",
    "    Tell whether the value of <key> is hot (in RAM), clean (in RAM and on flash), cold",
    "    (on flash) or missing, and where on flash it lies; of a large collection, how many of",
    "    its leaves are.",
    "DEMOTE <key>",
    "    Take the value of <key> out of RAM. Answers 1 when it was there and is not now.",
    "DEMOTE ALL",
    "    Take every value out of RAM that can go. Answers how many went. For a key of that name,",
    "    write it in lower case.",
    "PROMOTE <key>",
    "    Bring the value of <key> back to RAM. Answers 1 when it was on flash alone.",
    "FLUSH",
    "    Start to write what stands in write buffers.",
    "STATS",
    "    Answer the figures of INFO tiering.",
    "HELP",
    "    Print this help.",
];

/// What LOCATE tells of a key.
struct Place {
    state: &'static str,
    value_bytes: usize,
    frequency: u8,
    flash: Option<FlashRef>,
}

/// The leaves of a large collection: none of another value.
fn leaves_of(session: &Session, key: &Key<'_>) -> Option<Vec<LeafAt>> {
    let tier = &session.server().tier;
    let slot = tier.keyspace.lock(key.slot);
    let table = tier.keyspace.table_of(session.db);
    let view = slot.view(table, key)?;
    let is_gone = view.expire_at_ms != 0 && view.expire_at_ms <= session.now_ms;
    let is_large = Kind::from_bits(view.kind).is_tree() && !is_gone;
    is_large.then(|| all_leaves(&slot, table, key))
}

/// How many leaves are hot, clean and cold, and the bytes of all.
fn write_leaves(session: &Session, key: &Key<'_>, leaves: &[LeafAt], reply: &mut Reply) {
    let slot = session.server().tier.keyspace.lock(key.slot);
    let (mut hot, mut clean, mut cold, mut bytes) = (0, 0, 0, 0);
    for view in leaves.iter().filter_map(|leaf| slot.view(leaf.table(), &leaf.key())) {
        bytes += view.value_len() as u64;
        match view.stored {
            Stored::Hot(_) => hot += 1,
            Stored::Clean(..) => clean += 1,
            Stored::Cold(..) => cold += 1,
        }
    }
    drop(slot);
    reply.map(6);
    reply.bulk(b"state");
    reply.bulk(b"leaves");
    write_count("value-bytes", bytes, reply);
    let frequency = find(session, key).map_or(0, |place| place.frequency);
    write_count("frequency", frequency.into(), reply);
    write_count("leaves-hot", hot, reply);
    write_count("leaves-clean", clean, reply);
    write_count("leaves-cold", cold, reply);
}

fn locate(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = Key::new(&args[2]);
    if let Some(leaves) = leaves_of(session, &key) {
        write_leaves(session, &key, &leaves, reply);
        return Ok(());
    }
    let Some(place) = find(session, &Key::new(&args[2])) else {
        reply.map(1);
        reply.bulk(b"state");
        reply.bulk(b"missing");
        return Ok(());
    };
    reply.map(if place.flash.is_some() { 7 } else { 3 });
    reply.bulk(b"state");
    reply.bulk(place.state.as_bytes());
    write_count("value-bytes", place.value_bytes as u64, reply);
    write_count("frequency", place.frequency.into(), reply);
    let Some(flash) = place.flash else { return Ok(()) };
    let engine = session.server().tier.engine();
    let segment_bytes = engine.map_or(1, |engine| engine.stats().segment_bytes.max(1));
    let position = flash::Location::from_units(flash.units).bytes();
    write_count("stored-bytes", flash.stored_len.into(), reply);
    write_count("compressed", flash.compressed.into(), reply);
    write_count("segment", position / segment_bytes, reply);
    write_count("offset", position % segment_bytes, reply);
    Ok(())
}

fn write_count(name: &str, count: u64, reply: &mut Reply) {
    reply.bulk(name.as_bytes());
    reply.integer(count as i64);
}

fn find(session: &Session, key: &Key<'_>) -> Option<Place> {
    with_db(session, key, |db| {
        let frequency = db.frequency(key)?;
        let view = db.peek(key)?;
        let (state, flash) = match view.stored {
            Stored::Hot(_) => ("hot", None),
            Stored::Clean(_, at) => ("clean", Some(at)),
            Stored::Cold(at, _) => ("cold", Some(at)),
        };
        Some(Place { state, value_bytes: view.value_len(), frequency, flash })
    })
}

/// Runs `act` on the selected database, in the slot of `key`.
fn with_db<R>(session: &Session, key: &Key<'_>, act: impl FnOnce(&mut Db<'_>) -> R) -> R {
    let tier = &session.server().tier;
    let mut slot = tier.keyspace.lock(key.slot);
    let mut tally = tier.tally();
    let table = tier.keyspace.table_of(session.db);
    let result = act(&mut Db::new(&mut slot, table, session.now_ms, &mut tally));
    tier.tell(&mut tally);
    drop(slot);
    tier.add_tally(&mut tally);
    result
}

fn demote(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let tier = &session.server().tier;
    if !tier.has_flash() || tier.drains() {
        return Err(NO_FLASH);
    }
    if &args[2] == b"ALL" {
        return demote_all(session, reply);
    }
    let key = Key::new(&args[2]);
    let tier = &session.worker.tier;
    let demoted = match leaves_of(session, &key) {
        None => tier.demote_key(session.db, &key, session.now_ms),
        Some(leaves) => leaves.iter().try_fold(false, |any, leaf| {
            let demoted = tier.demote_in_table(leaf.table(), &leaf.key(), session.now_ms)?;
            Ok(any || demoted)
        }),
    };
    match demoted {
        Ok(demoted) => reply.integer(demoted.into()),
        Err(StopReason::Busy) => session.errand = Errand::DeviceTurn,
        Err(reason) => return Err(refusal(reason)),
    }
    Ok(())
}

/// Called twice: the first time it asks for the work, the second time it finds it done.
fn demote_all(session: &mut Session, reply: &mut Reply) -> CommandResult {
    let Errand::Demoted(demoted) = session.errand.take() else {
        session.errand = Errand::DemoteAll;
        return Ok(());
    };
    match demoted.stopped {
        None => reply.integer(demoted.values as i64),
        Some(reason) => return Err(refusal(reason)),
    }
    Ok(())
}

fn refusal(reason: StopReason) -> CommandError {
    command::fixed(match reason {
        StopReason::Busy => "ERR flash does not take writes fast enough",
        StopReason::Full | StopReason::Spent => "ERR flash is full",
        StopReason::Failed => "ERR flash takes no writes",
    })
}

fn promote(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = Key::new(&args[2]);
    let table = session.server().tier.keyspace.table_of(session.db);
    let mut promoted = false;
    match leaves_of(session, &key) {
        None => promoted = promote_in_table(session, table, &key)?,
        Some(leaves) => {
            for leaf in &leaves {
                promoted |= promote_in_table(session, leaf.table(), &leaf.key())?;
            }
        }
    }
    reply.integer(promoted.into());
    Ok(())
}

/// Brings one value back to RAM. Returns whether it was on flash alone.
fn promote_in_table(session: &Session, table: u8, key: &Key<'_>) -> Result<bool, CommandError> {
    let tier = &session.server().tier;
    // Read while the slot is held, so that nobody can move the value meanwhile.
    let mut locked = tier.keyspace.lock_one(key.slot);
    let Some(want) = cold(&session.worker.tier, locked.slot(key.slot), table, key) else {
        return Ok(false);
    };
    let fetched = session.worker.tier.fetch_blocking(vec![want]);
    if let Some(failure) = fetched.failure(want.record) {
        return Err(CommandError::owned(format!("ERR cannot read the value of a key: {failure}")));
    }
    let value = fetched.value(want.record).expect("invariant: the slot is held, so it is there");
    let mut tally = tier.tally();
    let mut db = Db::new(locked.slot(key.slot), table, session.now_ms, &mut tally);
    let promoted = db.promote(key, want.at, value.into());
    tier.tell(&mut tally);
    drop(locked);
    tier.add_tally(&mut tally);
    tier.counters.promoted.fetch_add(promoted.into(), Ordering::Relaxed);
    Ok(promoted)
}

fn flush(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.worker.tier.flush();
    reply.ok();
    Ok(())
}

fn stats(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let values = tiering::values(session.server());
    reply.map(values.len());
    for (field, value) in values {
        reply.bulk(field.name.as_bytes());
        match value {
            tiering::Value::Count(count) => reply.integer(count as i64),
            tiering::Value::Ratio(ratio) => reply.double(ratio),
            tiering::Value::Word(word) => reply.bulk(word.as_bytes()),
        }
    }
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
