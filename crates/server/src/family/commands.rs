//! COMMAND: what commands there are, and which of a request's words are keys.

use command::{
    CommandError, CommandResult, Docs, Flags, Group, KeyAt, KeyFlags, Locks, Row, find_keys,
};
use resp::{Args, Reply};
use smallvec::SmallVec;
use value::glob;

use super::command_docs::write_docs;
use super::command_info::{categories, write_info, write_key_flags};
use super::help::write_help;
use super::row::{SessionCommand, SessionHandler};
use crate::session::Session;
use crate::state::registry::{Entry, Registry};

/// Flags that all rows of this family have.
const FLAGS: Flags = Flags::LOADING.and(Flags::STALE);

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    row(
        ("COMMAND", -1, "2.8.13"),
        "Tells what is known of all commands.",
        "O(N) for N commands",
        "",
        all,
    ),
    row(("COMMAND|COUNT", 2, "2.8.13"), "Counts the commands.", "O(1)", "", count),
    row(
        ("COMMAND|LIST", -2, "7.0.0"),
        "Lists the names of commands.",
        "O(N) for N commands",
        "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
        list,
    ),
    row(
        ("COMMAND|INFO", -2, "2.8.13"),
        "Tells what is known of commands.",
        "O(N) for N commands",
        "[command-name [command-name ...]]",
        info,
    ),
    row(
        ("COMMAND|DOCS", -2, "7.0.0"),
        "Explains commands.",
        "O(N) for N commands",
        "[command-name [command-name ...]]",
        docs,
    ),
    row(
        ("COMMAND|GETKEYS", -4, "2.8.13"),
        "Tells which words of a request are keys.",
        "O(N) for N words",
        "command [arg [arg ...]]",
        get_keys,
    ),
    row(
        ("COMMAND|GETKEYSANDFLAGS", -4, "7.0.0"),
        "Tells which words of a request are keys, and what happens to them.",
        "O(N) for N words",
        "command [arg [arg ...]]",
        get_keys_and_flags,
    ),
    row(("COMMAND|HELP", 2, "5.0.0"), "Lists the subcommands.", "O(1)", "", help),
];

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Tell what is known of all commands.",
    "COUNT",
    "    Count the commands.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    List the names of commands.",
    "INFO [<command-name> ...]",
    "    Tell what is known of some commands, or of all.",
    "DOCS [<command-name> ...]",
    "    Explain some commands, or all.",
    "GETKEYS <full-command>",
    "    Tell which words of a request are keys.",
    "GETKEYSANDFLAGS <full-command>",
    "    The same, with what happens to each key.",
    "HELP",
    "    Print this help.",
];

const fn row(
    (name, arity, since): (&'static str, i32, &'static str),
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since, summary, complexity, syntax };
    Row { name, arity, flags: FLAGS, keys: &[], locks: Locks::None, docs, run }
}

fn all(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match args.get(1) {
        Some(name) => Err(CommandError::unknown_subcommand("COMMAND", name)),
        None => {
            write_all(session.server().registry, reply);
            Ok(())
        }
    }
}

fn write_all(registry: &Registry, reply: &mut Reply) {
    reply.array(registry.commands.len());
    registry.commands.iter().for_each(|entry| write_info(entry, reply));
}

fn count(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(session.server().registry.commands.len() as i64);
    Ok(())
}

fn info(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let names = args.from(2);
    if names.is_empty() {
        write_all(session.server().registry, reply);
        return Ok(());
    }
    reply.array(names.len());
    for name in names.iter() {
        match find(session.server().registry, name) {
            Some(entry) => write_info(entry, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

fn docs(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let registry = session.server().registry;
    let names = args.from(2);
    let entries: Vec<&Entry> = match names.is_empty() {
        true => registry.commands.to_vec(),
        false => names.iter().filter_map(|name| find(registry, name)).collect(),
    };
    reply.map(entries.len());
    for entry in entries {
        reply.bulk(entry.lower.as_bytes());
        write_docs(entry, reply);
    }
    Ok(())
}

/// The command of a name; `container|subcommand` names a subcommand.
fn find(registry: &Registry, name: &[u8]) -> Option<&'static Entry> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let entry = registry.get(parts.next()?)?;
    match parts.next() {
        Some(subcommand) => entry.subcommand(subcommand),
        None => Some(entry),
    }
}

fn list(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let registry = session.server().registry;
    let mut names: Vec<&str> = Vec::new();
    if args.len() == 2 {
        names.extend(registry.in_order().map(|entry| entry.lower.as_str()));
    } else {
        if args.len() != 5 || !args[2].eq_ignore_ascii_case(b"FILTERBY") {
            return Err(CommandError::SYNTAX);
        }
        let wanted = &args[4];
        let is_wanted: &dyn Fn(&Entry) -> bool = match args[3].to_ascii_uppercase().as_slice() {
            b"MODULE" => &|_| false,
            b"ACLCAT" => {
                &|entry| categories(entry).any(|name| name.as_bytes().eq_ignore_ascii_case(wanted))
            }
            b"PATTERN" => {
                &|entry| glob::matches(wanted, entry.lower.as_bytes(), glob::Case::Insensitive)
            }
            _ => return Err(CommandError::SYNTAX),
        };
        let found = registry.in_order().filter(|entry| is_wanted(entry));
        names.extend(found.map(|entry| entry.lower.as_str()));
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

fn get_keys(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let words = args.from(2);
    let (_, keys) = keys_of(session.server().registry, words)?;
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(&words[key.index]));
    Ok(())
}

fn get_keys_and_flags(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let words = args.from(2);
    let (entry, keys) = keys_of(session.server().registry, words)?;
    reply.array(keys.len());
    for key in &keys {
        reply.array(2);
        reply.bulk(&words[key.index]);
        write_key_flags(actual_flags(entry, words, key.flags), reply);
    }
    Ok(())
}

type Keys = SmallVec<[KeyAt; 4]>;

fn keys_of(registry: &Registry, words: Args<'_>) -> Result<(&'static Entry, Keys), CommandError> {
    let mut entry =
        registry.get(&words[0]).ok_or(command::fixed("ERR Invalid command specified"))?;
    if !entry.subcommands.is_empty() && words.len() > 1 {
        let subcommand = entry.subcommand(&words[1]);
        entry = subcommand.ok_or(command::fixed("ERR Invalid command specified"))?;
    }
    if entry.spec.keys.iter().all(|keys| keys.flags.has(KeyFlags::NOT_KEY)) {
        return Err(command::fixed("ERR The command has no key arguments"));
    }
    if !entry.spec.takes(words.len()) {
        return Err(command::fixed("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Keys::new();
    find_keys(entry.spec.keys, words, &mut keys);
    if keys.is_empty() {
        return Err(command::fixed("ERR Invalid arguments specified for command"));
    }
    Ok((entry, keys))
}

/// What happens to a key where it depends on the options: SET reads the old value with GET, and
/// BITFIELD may only read.
fn actual_flags(entry: &Entry, words: Args<'_>, flags: KeyFlags) -> KeyFlags {
    if !flags.has(KeyFlags::VARIABLE_FLAGS) {
        return flags;
    }
    let has = |word: &[u8]| words.from(2).iter().any(|arg| arg.eq_ignore_ascii_case(word));
    match entry.spec.name {
        "SET" if !words.from(3).iter().any(|arg| arg.eq_ignore_ascii_case(b"GET")) => {
            KeyFlags::OW.and(KeyFlags::UPDATE)
        }
        "BITFIELD" if !has(b"SET") && !has(b"INCRBY") => KeyFlags::RO.and(KeyFlags::ACCESS),
        _ => KeyFlags(flags.0 & !KeyFlags::VARIABLE_FLAGS.0),
    }
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
