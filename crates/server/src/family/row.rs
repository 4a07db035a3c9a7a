//! A row of the registry for a command that runs on a session.

use command::{CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use crate::session::Session;

/// A handler that needs the connection or the server.
pub(crate) type SessionHandler = fn(&mut Session, Args<'_>, &mut Reply) -> CommandResult;

/// A row of such a command.
pub(crate) type SessionCommand = Row<SessionHandler>;

/// The row of a command that only has subcommands.
pub(crate) const fn container(
    name: &'static str,
    group: Group,
    since: &'static str,
    summary: &'static str,
) -> SessionCommand {
    let docs = Docs { group, since, summary, complexity: "Depends on the subcommand", syntax: "" };
    Row { name, arity: -2, flags: Flags::NONE, keys: &[], locks: Locks::None, docs, run: never }
}

/// The registry runs containers through their subcommands alone.
fn never(_session: &mut Session, args: Args<'_>, _reply: &mut Reply) -> CommandResult {
    unreachable!("{args:?} is a container")
}
