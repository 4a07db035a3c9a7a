//! Commands of snapshots and of the journal: SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF.

use std::sync::atomic::Ordering;

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use crate::family::row::{SessionCommand, SessionHandler};
use crate::session::Session;
use crate::session::errand::Errand;
use crate::session::journal::is_begun;
use crate::session::save::start_save;
use crate::state::saves::Purpose;

const IN_PROGRESS: CommandError = command::fixed("ERR Background save already in progress");
const HALF_LOADED: CommandError = command::fixed(
    "ERR the file could not be loaded as a whole: SAVE says that it is to be replaced",
);
/// Redis has a process write each, and speaks of those.
const REWRITING: CommandError = command::fixed(
    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a \
     BGSAVE whenever possible.",
);
const REWRITE_IN_PROGRESS: CommandError =
    command::fixed("ERR Background append only file rewriting already in progress");
const NO_JOURNAL: CommandError =
    command::fixed("ERR there is no journal to rewrite: CONFIG SET appendonly yes begins one");
const REWRITE_FAILED: CommandError = command::fixed(
    "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.",
);
/// Redis's error without a text: the log says why.
const FAILED: CommandError = command::fixed("ERR");

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    row(
        ("SAVE", 1, ADMIN.and(Flags::NO_MULTI), "1.0.0"),
        ("Saves all databases to the snapshot's file, and waits for that.", "O(N) for N keys", ""),
        save,
    ),
    row(
        ("BGSAVE", -1, ADMIN, "1.0.0"),
        ("Begins to save all databases to the snapshot's file.", "O(1)", "[SCHEDULE]"),
        bgsave,
    ),
    row(
        ("LASTSAVE", 1, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), "1.0.0"),
        ("Tells when the last snapshot was done: Unix seconds.", "O(1)", ""),
        lastsave,
    ),
    row(
        ("BGREWRITEAOF", 1, ADMIN, "1.0.0"),
        ("Begins the journal of `appendonly` anew, with a snapshot of all databases.", "O(1)", ""),
        bgrewriteaof,
    ),
];

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING);

const fn row(
    (name, arity, flags, since): (&'static str, i32, Flags, &'static str),
    (summary, complexity, syntax): (&'static str, &'static str, &'static str),
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since, summary, complexity, syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

/// Called twice: the first time it asks for the snapshot, the second time it finds it done.
fn save(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match session.errand.take() {
        Errand::Saved(true) => reply.ok(),
        Errand::Saved(false) => return Err(FAILED),
        _ if session.server().saves.purpose().is_some() => return Err(IN_PROGRESS),
        _ => session.errand = Errand::Save(Purpose::Save),
    }
    Ok(())
}

fn bgsave(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let is_word = args.get(1).is_none_or(|word| word.eq_ignore_ascii_case(b"SCHEDULE"));
    if args.len() > 2 || !is_word {
        return Err(CommandError::SYNTAX);
    }
    let server = session.worker.server.clone();
    let is_rewriting = match server.saves.purpose() {
        None => false,
        Some(Purpose::Checkpoint) => true,
        Some(_) => return Err(IN_PROGRESS),
    };
    if server.saves.is_half_loaded() {
        return Err(HALF_LOADED);
    }
    if is_rewriting && args.len() == 1 {
        return Err(REWRITING);
    }
    if is_rewriting || session.is_in_exec() {
        // It begins with every slot held, and the transaction holds some.
        server.saves.is_scheduled.store(true, Ordering::Relaxed);
        reply.simple("Background saving scheduled");
        return Ok(());
    }
    match start_save(&server, Purpose::Background, drop) {
        Ok(true) => reply.simple("Background saving started"),
        Ok(false) => return Err(IN_PROGRESS),
        Err(error) => {
            tracing::error!(%error, "Can't save in background");
            return Err(FAILED);
        }
    }
    Ok(())
}

fn bgrewriteaof(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.worker.server.clone();
    if !is_begun(&server) {
        return Err(NO_JOURNAL);
    }
    match server.saves.purpose() {
        Some(Purpose::Checkpoint) => return Err(REWRITE_IN_PROGRESS),
        None if !session.is_in_exec() => {}
        // That ends first; or the transaction does, which holds slots.
        _ => {
            server.journaling.is_scheduled.store(true, Ordering::Relaxed);
            reply.simple("Background append only file rewriting scheduled");
            return Ok(());
        }
    }
    match start_save(&server, Purpose::Checkpoint, drop) {
        Ok(true) => reply.simple("Background append only file rewriting started"),
        Ok(false) => return Err(REWRITE_FAILED),
        Err(error) => {
            tracing::error!(%error, "Can't rewrite append only file in background");
            return Err(REWRITE_FAILED);
        }
    }
    Ok(())
}

fn lastsave(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(session.server().saves.last_unix() as i64);
    Ok(())
}
