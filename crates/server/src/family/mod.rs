//! The families of commands that need the session or the server: one line each.

mod acl;
mod client;
mod client_list;
mod command_docs;
mod command_info;
mod commands;
mod config;
pub(crate) mod connection;
mod debug;
pub(crate) mod info;
mod latency;
mod lolwut;
mod memory;
mod server;
mod slowlog;
mod syntax;
pub(crate) mod tier;
pub(crate) mod transaction;

use command::{CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use crate::session::Session;
use crate::table::SessionCommand;

/// Every command of this crate that runs on a session; those of `transaction` the dispatcher
/// carries out itself.
pub(crate) const FAMILIES: &[&[SessionCommand]] = &[
    connection::COMMANDS,
    client::COMMANDS,
    config::COMMANDS,
    commands::COMMANDS,
    server::COMMANDS,
    debug::COMMANDS,
    acl::COMMANDS,
    info::COMMANDS,
    tier::COMMANDS,
    memory::COMMANDS,
    slowlog::COMMANDS,
    latency::COMMANDS,
];

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

/// The table runs containers through their subcommands alone (see `table`).
fn never(_session: &mut Session, args: Args<'_>, _reply: &mut Reply) -> CommandResult {
    unreachable!("{args:?} is a container")
}

/// Answers HELP.
pub(crate) fn write_help(lines: &[&str], reply: &mut Reply) -> CommandResult {
    reply.array(lines.len());
    for line in lines {
        reply.simple(line);
    }
    Ok(())
}

/// A client's word as an error repeats it: not all of a long one.
pub(crate) fn quoted(word: &[u8]) -> String {
    /// Bytes that are repeated.
    const QUOTED_BYTES_MAX: usize = 128;
    String::from_utf8_lossy(&word[..word.len().min(QUOTED_BYTES_MAX)]).into_owned()
}
