//! ACL, as far as there is something to tell: one user, `default`, who may do everything.

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use super::command_info::{CATEGORIES, categories};
use super::help::write_help;
use super::refusal::{quoted, wrong_subcommand};
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::Session;

/// Flags that all subcommands but HELP have.
const FLAGS: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("ACL", Group::Server, "6.0.0", "Tells who may do what."),
    row(("ACL|WHOAMI", 2, FLAGS), "Answers the user of the connection.", "", who_am_i),
    row(("ACL|USERS", 2, FLAGS.and(Flags::ADMIN)), "Lists the users.", "", users),
    row(
        ("ACL|CAT", -2, FLAGS),
        "Lists the categories of commands, or the commands of one.",
        "[categoryname]",
        cat,
    ),
    row(("ACL|HELP", 2, Flags::LOADING.and(Flags::STALE)), "Lists the subcommands.", "", help),
];

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all categories of commands, or the commands of <category>.",
    "USERS",
    "    List all users.",
    "WHOAMI",
    "    Answer the user of this connection.",
    "HELP",
    "    Print this help.",
];

const fn row(
    (name, arity, flags): (&'static str, i32, Flags),
    summary: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since: "6.0.0", summary, complexity: "O(1)", syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

fn who_am_i(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.bulk(b"default");
    Ok(())
}

fn users(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.array(1);
    reply.bulk(b"default");
    Ok(())
}

fn cat(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let Some(wanted) = args.get(2) else {
        reply.array(CATEGORIES.len());
        for category in CATEGORIES {
            reply.bulk(category.as_bytes());
        }
        return Ok(());
    };
    if args.len() > 3 {
        return Err(wrong_subcommand("ACL", &args[1]));
    }
    let is_wanted = |category: &&str| category.as_bytes().eq_ignore_ascii_case(wanted);
    if !CATEGORIES.iter().any(is_wanted) {
        return Err(CommandError::owned(format!("ERR Unknown category '{}'", quoted(wanted))));
    }
    let entries = session.server().registry.in_order();
    let found: Vec<_> =
        entries.filter(|entry| categories(entry).any(|category| is_wanted(&category))).collect();
    reply.array(found.len());
    for entry in found {
        reply.bulk(entry.lower.as_bytes());
    }
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
