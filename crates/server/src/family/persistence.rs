//! Commands of snapshots: SAVE, BGSAVE, LASTSAVE.

use std::sync::atomic::Ordering;

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use crate::family::row::{SessionCommand, SessionHandler};
use crate::session::Session;
use crate::session::errand::Errand;
use crate::session::save::start_save;
use crate::state::saves::Purpose;

const IN_PROGRESS: CommandError = command::fixed("ERR Background save already in progress");
const HALF_LOADED: CommandError = command::fixed(
    "ERR the file could not be loaded as a whole: SAVE says that it is to be replaced",
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
    if server.saves.purpose().is_some() {
        return Err(IN_PROGRESS);
    }
    if server.saves.is_half_loaded() {
        return Err(HALF_LOADED);
    }
    if session.is_in_exec() {
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

fn lastsave(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(session.server().saves.last_unix() as i64);
    Ok(())
}
