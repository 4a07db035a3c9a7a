//! Commands about the server as a whole: SHUTDOWN, TIME, ROLE, MONITOR, LOLWUT.

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use super::lolwut;
use crate::family::row::{SessionCommand, SessionHandler};
use crate::session::Session;
use crate::session::errand::Errand;
use crate::session::last_checkpoint::is_journal_long;
use crate::session::save::save_points;
use crate::state::clock::unix_us;
use crate::state::saves::Purpose;
use crate::state::server::REDIS_VERSION;

const SHUTDOWN_FAILED: CommandError = command::fixed("ERR Errors trying to SHUTDOWN. Check logs.");

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    row(
        ("SHUTDOWN", -1, ADMIN.and(Flags::NO_MULTI).and(Flags::ALLOW_BUSY), "1.0.0"),
        "Ends the server.",
        "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        shutdown,
    ),
    row(
        ("TIME", 1, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), "2.6.0"),
        "Answers the time: Unix seconds, and microseconds.",
        "",
        time,
    ),
    row(
        (
            "ROLE",
            1,
            Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
            "2.8.12",
        ),
        "Tells the part that the server has in replication.",
        "",
        role,
    ),
    row(("MONITOR", 1, ADMIN, "1.0.0"), "Shows every request that the server runs.", "", monitor),
    row(
        ("LOLWUT", -1, Flags::READONLY.and(Flags::FAST), "5.0.0"),
        "Draws a picture, and tells the version.",
        "[VERSION version]",
        lolwut,
    ),
];

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

const fn row(
    (name, arity, flags, since): (&'static str, i32, Flags, &'static str),
    summary: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since, summary, complexity: "O(1)", syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

/// What the options of SHUTDOWN ask for.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Shutdown {
    save: bool,
    no_save: bool,
    now: bool,
    force: bool,
    abort: bool,
}

impl Shutdown {
    fn parse(args: Args<'_>) -> Result<Shutdown, CommandError> {
        let mut asked = Shutdown::default();
        for option in args.from(1).iter() {
            match option.to_ascii_uppercase().as_slice() {
                b"SAVE" => asked.save = true,
                b"NOSAVE" => asked.no_save = true,
                b"NOW" => asked.now = true,
                b"FORCE" => asked.force = true,
                b"ABORT" => asked.abort = true,
                _ => return Err(CommandError::SYNTAX),
            }
        }
        let more_than_abort = asked.save || asked.no_save || asked.now || asked.force;
        if (asked.abort && more_than_abort) || (asked.save && asked.no_save) {
            return Err(CommandError::SYNTAX);
        }
        Ok(asked)
    }
}

/// Ends the server. Nothing is waited for but a snapshot, during which nothing is written, so there is nothing to abort;
/// and, without NOW or NOSAVE, a checkpoint of a long journal.
fn shutdown(session: &mut Session, args: Args<'_>, _reply: &mut Reply) -> CommandResult {
    let asked = Shutdown::parse(args)?;
    if asked.abort {
        return Err(command::fixed("ERR No shutdown in progress."));
    }
    let wants_saved = asked.save || !asked.no_save && !save_points(session.server()).is_empty();
    // As in Redis: what is there is a part of the file.
    let saves = wants_saved && !session.server().saves.is_loading();
    match session.errand.take() {
        Errand::Saved(true) => {}
        Errand::Saved(false) if asked.force => {
            tracing::warn!("SHUTDOWN FORCE: stopping without a snapshot");
        }
        Errand::Saved(false) => return Err(SHUTDOWN_FAILED),
        Errand::None if !asked.now && !asked.no_save && is_journal_long(session.server()) => {
            session.errand = Errand::LastCheckpoint;
            return Ok(());
        }
        _ if saves => {
            session.errand = Errand::Save(Purpose::Shutdown);
            return Ok(());
        }
        _ => {}
    }
    tracing::info!(client = session.client.id, "SHUTDOWN: stopping");
    session.server().shut_down();
    Ok(())
}

fn time(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let now_us = unix_us();
    reply.array(2);
    reply.bulk((now_us / 1_000_000).to_string().as_bytes());
    reply.bulk((now_us % 1_000_000).to_string().as_bytes());
    Ok(())
}

/// The server is always a primary, without replicas and without a stream for them.
fn role(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

fn monitor(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if session.is_in_exec() {
        return Err(command::fixed("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    // A second MONITOR is not answered, by Redis either.
    if !session.is_monitor {
        session.is_monitor = true;
        session.server().monitors.add(&session.client);
        reply.ok();
    }
    Ok(())
}

/// Arguments besides VERSION are for pictures of other versions.
fn lolwut(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let names_version = args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"VERSION"));
    if names_version && let Some(version) = args.get(2) {
        value::parse_i64(version).ok_or(CommandError::NOT_INTEGER)?;
    }
    let mut text = lolwut::snow_crystal(session.worker.tier.next_random());
    text.push_str("\nSnow, well above 0 K.\n");
    text.push_str(&format!("Redis ver. {REDIS_VERSION}\n"));
    reply.verbatim("txt", text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shutdown_takes_options_that_agree() {
        let asked = Shutdown::default();
        let cases: [(&str, Option<Shutdown>); 9] = [
            ("SHUTDOWN", Some(asked)),
            ("SHUTDOWN nosave", Some(Shutdown { no_save: true, ..asked })),
            ("SHUTDOWN SAVE FORCE", Some(Shutdown { save: true, force: true, ..asked })),
            ("SHUTDOWN now now", Some(Shutdown { now: true, ..asked })),
            ("SHUTDOWN abort", Some(Shutdown { abort: true, ..asked })),
            ("SHUTDOWN ABORT NOW", None),
            ("SHUTDOWN ABORT NOSAVE", None),
            ("SHUTDOWN SAVE NOSAVE", None),
            ("SHUTDOWN soon", None),
        ];
        for (line, expected) in cases {
            let mut buffer = line.as_bytes().to_vec();
            let mut ranges = Vec::new();
            resp::split_words(&mut buffer, &mut ranges).expect("balanced quotes");
            assert_eq!(Shutdown::parse(Args::new(&buffer, &ranges)).ok(), expected, "{line}");
        }
    }
}
