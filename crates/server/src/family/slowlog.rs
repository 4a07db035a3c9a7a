//! SLOWLOG: the latest slow commands.

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use super::help::write_help;
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::Session;

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("SLOWLOG", Group::Server, "2.2.12", "A container for slow log commands."),
    row("SLOWLOG|GET", -2, "Returns the latest slow commands.", "[count]", get),
    row("SLOWLOG|LEN", 2, "Returns the number of entries in the slow log.", "", len),
    row("SLOWLOG|RESET", 2, "Clears the slow log.", "", reset),
    Row {
        flags: Flags::LOADING.and(Flags::STALE),
        docs: Docs { since: "6.2.0", ..HELP_ROW.docs },
        ..HELP_ROW
    },
];

const HELP_ROW: SessionCommand = row("SLOWLOG|HELP", 2, "Explains the subcommands.", "", help);

const fn row(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since: "2.2.12", summary, complexity: "O(N)", syntax };
    let flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE);
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

/// Entries that GET answers when it is not told how many.
const COUNT_DEFAULT: usize = 10;

const HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return the latest <count> slow commands (10 by default, -1 for all). An entry is its id,",
    "    the time (Unix seconds), the duration in microseconds, the arguments, the address and",
    "    the name of the client.",
    "LEN",
    "    Return the number of entries in the slow log.",
    "RESET",
    "    Clear the slow log.",
    "HELP",
    "    Print this help.",
];

fn get(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let count = match args.len() {
        2 => COUNT_DEFAULT,
        3 => match value::parse_i64(&args[2]) {
            Some(-1) => usize::MAX,
            Some(count) if count >= 0 => count as usize,
            _ => {
                return Err(command::fixed("ERR count should be greater than or equal to -1"));
            }
        },
        _ => {
            let given = String::from_utf8_lossy(&args[1]);
            return Err(CommandError::owned(format!(
                "ERR unknown subcommand or wrong number of arguments for '{given}'. Try SLOWLOG \
                 HELP."
            )));
        }
    };
    let commands = session.server().slowlog.latest(count);
    reply.array(commands.len());
    for command in commands {
        reply.array(6);
        reply.integer(command.id as i64);
        reply.integer(command.at_seconds as i64);
        reply.integer(command.duration_us as i64);
        reply.array(command.args.len());
        command.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(command.address.as_bytes());
        reply.bulk(command.client_name.as_bytes());
    }
    Ok(())
}

fn len(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(session.server().slowlog.len() as i64);
    Ok(())
}

fn reset(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.server().slowlog.clear();
    reply.ok();
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
