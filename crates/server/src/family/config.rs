//! CONFIG: options, shown and changed while the server runs.

use std::sync::Arc;

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};
use value::glob;

use super::help::write_help;
use super::row::{SessionCommand, SessionHandler, container};
use crate::config::{ConfigError, ProtectedAction, ProtectedOptions, WaitForChange};
use crate::session::Session;
use crate::session::errand::{Change, Errand};
use crate::state::server::Server;

const IN_TRANSACTION: CommandError =
    command::fixed("ERR appendonly, flash-path and flash-size cannot be changed in a transaction");

/// Flags of all subcommands but HELP.
const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("CONFIG", Group::Server, "2.0.0", "Shows and changes the server's options."),
    row(
        ("CONFIG|GET", -3, ADMIN, "2.0.0"),
        "Answers options with their values.",
        "O(N) for N options",
        "parameter [parameter ...]",
        get,
    ),
    row(
        ("CONFIG|SET", -4, ADMIN, "2.0.0"),
        "Changes options, all or none of them.",
        "O(N) for N options",
        "parameter value [parameter value ...]",
        set,
    ),
    row(
        ("CONFIG|REWRITE", 2, ADMIN, "2.8.0"),
        "Writes the options to the file they came from.",
        "O(N) for N options",
        "",
        rewrite,
    ),
    row(
        ("CONFIG|RESETSTAT", 2, ADMIN, "2.0.0"),
        "Lets the statistics of INFO begin again.",
        "O(1)",
        "",
        reset_stat,
    ),
    row(
        ("CONFIG|HELP", 2, Flags::LOADING.and(Flags::STALE), "5.0.0"),
        "Lists the subcommands.",
        "O(1)",
        "",
        help,
    ),
];

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Answer the options that match a glob-like <pattern>, with their values.",
    "SET <option> <value> [<option> <value> ...]",
    "    Change options.",
    "RESETSTAT",
    "    Let the statistics of INFO begin again.",
    "REWRITE",
    "    Write the options to the configuration file.",
    "HELP",
    "    Print this help.",
];

const fn row(
    (name, arity, flags, since): (&'static str, i32, Flags, &'static str),
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since, summary, complexity, syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

fn get(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let patterns: Vec<&[u8]> = args.from(2).iter().collect();
    let found = session.server().config.get(&patterns);
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name_as_asked(name, &patterns));
        reply.bulk(&value);
    }
    Ok(())
}

/// The name of an option in the case in which the client wrote it, if it wrote it out.
fn name_as_asked<'a>(name: &'a str, patterns: &[&'a [u8]]) -> &'a [u8] {
    let name = name.as_bytes();
    let matches = |pattern: &&&[u8]| glob::matches(pattern, name, glob::Case::Insensitive);
    let first = patterns.iter().find(matches);
    first.filter(|pattern| pattern.eq_ignore_ascii_case(name)).unwrap_or(&name)
}

fn set(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let allowed = session.is_allowed(session.server().config.enable_protected_configs.load());
    let protected = if allowed { ProtectedOptions::Allowed } else { ProtectedOptions::Refused };
    let words: Vec<Vec<u8>> = args.from(2).iter().map(<[u8]>::to_vec).collect();
    if session.is_in_exec() && words.iter().step_by(2).any(|name| takes_all(name)) {
        // The transaction holds some.
        return Err(IN_TRANSACTION);
    }
    let wait = wait_for_change(session);
    let change = move |server: &Arc<Server>| {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        server.config.set(&words, protected, wait, &mut |rows| {
            crate::state::settings::apply(server, rows)?;
            crate::session::flash::apply(server, rows)?;
            crate::session::journal::apply(server, rows)
        })
    };
    change_options(session, Box::new(change), reply)
}

/// Whether a change of this option may take every slot, or wait for other workers.
fn takes_all(name: &[u8]) -> bool {
    let names: [&[u8]; 3] = [b"appendonly", b"flash-path", b"flash-size"];
    names.iter().any(|option| name.eq_ignore_ascii_case(option))
}

fn rewrite(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let wait = wait_for_change(session);
    let change = move |server: &Arc<Server>| {
        let written = server.config.rewrite(wait);
        match &written {
            Ok(()) => tracing::info!("CONFIG REWRITE: the configuration file is up to date"),
            Err(error) => tracing::warn!(%error, "CONFIG REWRITE failed"),
        }
        written
    };
    change_options(session, Box::new(change), reply)
}

/// A transaction, which holds slots, waits for nobody.
fn wait_for_change(session: &Session) -> WaitForChange {
    if session.is_in_exec() { WaitForChange::No } else { WaitForChange::Yes }
}

/// Called twice: the first time it asks for the change, the second time it finds it made. A
/// transaction cannot wait, and makes it itself.
fn change_options(session: &mut Session, change: Change, reply: &mut Reply) -> CommandResult {
    let changed = match session.errand.take() {
        Errand::Changed(changed) => changed,
        _ if session.is_in_exec() => change(&session.worker.server),
        _ => {
            session.errand = Errand::Change(change);
            return Ok(());
        }
    };
    changed.map_err(refusal)?;
    reply.ok();
    Ok(())
}

fn refusal(error: ConfigError) -> CommandError {
    CommandError::owned(error.to_string())
}

fn reset_stat(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.server().reset_stats();
    reply.ok();
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}

impl Session {
    /// Whether this client may do what `action` permits: it may be meant for clients of this
    /// machine only.
    pub(super) fn is_allowed(&self, action: ProtectedAction) -> bool {
        match action {
            ProtectedAction::No => false,
            ProtectedAction::Yes => true,
            ProtectedAction::Local => self.client.is_local(),
        }
    }
}
