//! INFO: what the server knows of itself, in sections.
//!
//! Sections, names and order are those of Redis 7.0, so that what reads them from a Redis reads
//! them here; lines about features that do not exist here hold what a Redis without them says. The
//! section `Tiering` is ours and comes last.

mod activity;
pub(super) mod commands;
mod keyspace;
pub(super) mod memory;
mod persistence;
mod process;
pub(super) mod text;
pub(crate) mod tiering;
mod unused;

use command::{CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use crate::family::row::SessionCommand;
use crate::session::Session;
use crate::state::server::Server;
use text::Text;

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[Row {
    name: "INFO",
    arity: -1,
    flags: Flags::LOADING.and(Flags::STALE),
    keys: &[],
    locks: Locks::None,
    docs: Docs {
        group: Group::Server,
        since: "1.0.0",
        summary: "Tells what the server knows of itself.",
        complexity: "O(1)",
        syntax: "[section [section ...]]",
    },
    run: info,
}];

/// A section.
struct Section {
    /// As one asks for it.
    names: &'static [&'static str],
    title: &'static str,
    /// Whether one gets it without asking.
    is_default: bool,
    write: fn(&Server, &mut Text),
}

/// All sections, in the order of the answer.
const SECTIONS: &[Section] = &[
    section(&["server"], "Server", process::server),
    section(&["clients"], "Clients", activity::clients),
    section(&["memory"], "Memory", memory::memory),
    section(&["persistence"], "Persistence", persistence::persistence),
    section(&["stats"], "Stats", activity::stats),
    section(&["replication"], "Replication", unused::replication),
    section(&["cpu"], "CPU", process::cpu),
    section(&["modules", "module_list"], "Modules", |_, _| {}),
    on_demand(&["commandstats"], "Commandstats", commands::command_stats),
    section(&["errorstats"], "Errorstats", commands::error_stats),
    on_demand(&["latencystats"], "Latencystats", commands::latency_stats),
    section(&["cluster"], "Cluster", |_, text| text.field("cluster_enabled", 0)),
    section(&["keyspace"], "Keyspace", keyspace::keyspace),
    section(&["tiering"], "Tiering", tiering::tiering),
];

const fn section(
    names: &'static [&'static str],
    title: &'static str,
    write: fn(&Server, &mut Text),
) -> Section {
    Section { names, title, is_default: true, write }
}

const fn on_demand(
    names: &'static [&'static str],
    title: &'static str,
    write: fn(&Server, &mut Text),
) -> Section {
    Section { names, title, is_default: false, write }
}

impl Section {
    fn is_asked_for(&self, word: &[u8]) -> bool {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        is("all")
            || is("everything")
            || (is("default") && self.is_default)
            || self.names.iter().any(|name| is(name))
    }
}

fn info(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut text = Text::default();
    for section in SECTIONS {
        let is_wanted = match args.len() {
            1 => section.is_default,
            _ => args.iter().skip(1).any(|word| section.is_asked_for(word)),
        };
        if is_wanted {
            text.section(section.title);
            (section.write)(session.server(), &mut text);
        }
    }
    reply.verbatim("txt", text.as_str());
    Ok(())
}
