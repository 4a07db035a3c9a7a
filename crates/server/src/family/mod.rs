//! The families of commands that need the session or the server: one line each.

mod acl;
mod client;
mod client_list;
mod command_docs;
mod command_info;
mod commands;
#[cfg(test)]
mod compatibility;
mod config;
mod connection;
mod debug;
mod help;
mod info;
mod latency;
mod lolwut;
mod memory;
mod persistence;
mod pubsub;
mod refusal;
mod row;
mod server;
mod slowlog;
mod syntax;
mod tier;
mod transaction;

use std::sync::LazyLock;

use command::{Command, Row, Spec, names_are_short_enough};

use self::row::{SessionCommand, SessionHandler};
use crate::state::registry::{Registry, Run};

/// Every command of this crate that runs on a session; those of `transaction` the dispatcher
/// carries out itself.
const FAMILIES: &[&[SessionCommand]] = &[
    connection::COMMANDS,
    client::COMMANDS,
    config::COMMANDS,
    commands::COMMANDS,
    server::COMMANDS,
    persistence::COMMANDS,
    debug::COMMANDS,
    acl::COMMANDS,
    info::COMMANDS,
    tier::COMMANDS,
    memory::COMMANDS,
    slowlog::COMMANDS,
    latency::COMMANDS,
    pubsub::COMMANDS,
];

const _: () = assert!(names_are_short_enough(FAMILIES), "a command's name is too long");
const _: () = assert!(names_are_short_enough(&[transaction::COMMANDS]));

/// The one registry: the commands on keys, of the `command` crate, and those of this crate.
pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let keys = command::family::FAMILIES.iter().copied().flatten();
    let mut rows: Vec<(Spec, Run)> = Vec::new();
    rows.extend(keys.map(|row: &Command| (row.spec(), Run::Keys(row.run))));
    rows.extend(session_rows().enumerate().map(|(at, row)| (row.spec(), Run::Session(at))));
    rows.extend(transaction::COMMANDS.iter().map(|row| (row.spec(), Run::Transaction(row.run))));
    Registry::new(rows)
});

/// The handlers of the commands on sessions, by the places that [`Run::Session`] holds.
pub(crate) static HANDLERS: LazyLock<Vec<SessionHandler>> =
    LazyLock::new(|| session_rows().map(|row| row.run).collect());

fn session_rows() -> impl Iterator<Item = &'static Row<SessionHandler>> {
    FAMILIES.iter().copied().flatten()
}
