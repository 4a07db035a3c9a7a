//! XGROUP: consumer groups and their consumers, made, moved and removed.

use keyspace::Key;
use resp::{Args, Reply};
use value::StreamId;
use value::leaf::stream_rows::keys_of_group;

use super::stream::{INVALID_ID, parse_id, parse_integer};
use super::stream_pending::Notes;
use crate::collection::GroupEdit;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed, shown};
use crate::spec::{Command, Docs, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs};

const GROW: Flags = Flags::WRITE.and(Flags::DENYOOM);

const INSERTED: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)];
const CHANGED: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];
const DELETED: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)];

const NO_KEY: CommandError = fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
);
const NOT_COUNTED: CommandError = fixed("ERR value for ENTRIESREAD must be positive or -1");
const BUSY: CommandError = fixed("BUSYGROUP Consumer Group name already exists");

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Make a consumer group that reads behind an ID. Options are:",
    "    * MKSTREAM",
    "      Make an empty stream if there is none.",
    "    * ENTRIESREAD entries_read",
    "      Say how many entries the group has read.",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Make a consumer in a group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove a consumer with what is pending with it.",
    "DESTROY <key> <groupname>",
    "    Remove a group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set behind which ID a group reads, and how many entries it has read.",
    "HELP",
    "    Print this help.",
];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XGROUP",
        arity: -2,
        flags: Flags::NONE,
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Makes, changes and removes consumer groups.",
            complexity: "Depends on the subcommand",
            syntax: "",
        },
        run: unknown,
    },
    Command {
        name: "XGROUP|CREATE",
        arity: -5,
        flags: GROW,
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Makes a consumer group.",
            complexity: "O(log N) for N groups",
            syntax: "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
        },
        run: create,
    },
    Command {
        name: "XGROUP|SETID",
        arity: -5,
        flags: Flags::WRITE,
        keys: CHANGED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Sets behind which ID a consumer group reads.",
            complexity: "O(log N) for N groups",
            syntax: "key group <id | $> [ENTRIESREAD entries-read]",
        },
        run: set_id,
    },
    of_consumer(
        "XGROUP|CREATECONSUMER",
        create_consumer,
        (GROW, INSERTED),
        "6.2.0",
        "Makes a consumer in a group.",
    ),
    of_consumer(
        "XGROUP|DELCONSUMER",
        delete_consumer,
        (Flags::WRITE, DELETED),
        "5.0.0",
        "Removes a consumer from a group, with what is pending with it.",
    ),
    Command {
        name: "XGROUP|DESTROY",
        arity: 4,
        flags: Flags::WRITE,
        keys: DELETED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Removes a consumer group.",
            complexity: "O(N) for N leaves of pending entries",
            syntax: "key group",
        },
        run: destroy,
    },
    Command {
        name: "XGROUP|HELP",
        arity: 2,
        flags: Flags::LOADING.and(Flags::STALE),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Lists the subcommands.",
            complexity: "O(1)",
            syntax: "",
        },
        run: help,
    },
];

const fn of_consumer(
    name: &'static str,
    run: Handler,
    (flags, keys): (Flags, &'static [KeySpec]),
    since: &'static str,
    summary: &'static str,
) -> Command {
    let complexity = "O(M log N) for M entries that are pending with it, of N";
    let docs =
        Docs { group: Group::Stream, since, summary, complexity, syntax: "key group consumer" };
    Command { name, arity: 5, flags, keys, locks: Locks::Keys, docs, run }
}

fn unknown(_cx: &mut Cx<'_, '_>, args: Args<'_>, _reply: &mut Reply) -> CommandResult {
    Err(CommandError::unknown_subcommand("XGROUP", &args[1]))
}

fn help(_cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.array(HELP.len());
    HELP.iter().for_each(|line| reply.simple(line));
    Ok(())
}

/// A subcommand of `container` with arguments that it does not take.
pub(super) fn wrong_arguments(container: &str, subcommand: &[u8]) -> CommandError {
    let subcommand = String::from_utf8_lossy(subcommand);
    CommandError::owned(format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {container} HELP."
    ))
}

/// A group that there is not.
pub(super) fn no_group_for(key: &Key<'_>, group: &[u8]) -> CommandError {
    let (key, group) = (shown(key.bytes), shown(group));
    CommandError::owned(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The options behind the ID of CREATE and SETID.
struct Options {
    makes_stream: bool,
    /// None: not known.
    read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>, is_create: bool) -> Result<Options, CommandError> {
        let mut options = Options { makes_stream: false, read: None };
        let mut rest = args.from(5).iter();
        while let Some(option) = rest.next() {
            if is_create && option.eq_ignore_ascii_case(b"MKSTREAM") {
                options.makes_stream = true;
            } else if option.eq_ignore_ascii_case(b"ENTRIESREAD") && rest.len() > 0 {
                let read = parse_integer(rest.next().expect("there is one"))?;
                if read < -1 {
                    return Err(NOT_COUNTED);
                }
                options.read = u64::try_from(read).ok();
            } else {
                return Err(wrong_arguments("XGROUP", &args[1]));
            }
        }
        Ok(options)
    }
}

fn create(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = Options::parse(args, true)?;
    let (key, name) = (cx.key(0), &args[3]);
    let stream = cx.read_stream(&key)?;
    if stream.is_none() && !options.makes_stream {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        return Err(wrong_arguments("XGROUP", &args[1]));
    }
    let last = match &args[4] {
        b"$" => stream.as_ref().map_or(StreamId::MIN, |stream| stream.head().last),
        id => parse_id(id)?,
    };
    let Some(mut stream) = stream else {
        cx.make_stream(&key);
        let mut stream = cx.read_stream(&key)?.expect("invariant: it was made");
        let edits = GroupEdit::create(&mut stream, name, (last, options.read))?;
        cx.edit_rows(&key, &edits);
        cx.report(&key, Event::XGROUP_CREATE, 1);
        reply.ok();
        return Ok(());
    };
    if stream.group(name)?.is_some() {
        return Err(BUSY);
    }
    let edits = GroupEdit::create(&mut stream, name, (last, options.read))?;
    cx.prepare_rows(&key, &edits)?;
    cx.edit_rows(&key, &edits);
    cx.report(&key, Event::XGROUP_CREATE, 1);
    reply.ok();
    Ok(())
}

fn set_id(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = Options::parse(args, false)?;
    let (key, name) = (cx.key(0), &args[3]);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(NO_KEY) };
    let Some(mut group) = GroupEdit::open(&mut stream, name)? else {
        return Err(no_group_for(&key, name));
    };
    if !matches!(args.len(), 5 | 7) {
        return Err(wrong_arguments("XGROUP", &args[1]));
    }
    let last = match &args[4] {
        b"$" => stream.head().last,
        id => StreamId::parse(id, 0).ok_or(INVALID_ID)?,
    };
    group.set_last(last, options.read);
    let edits = group.finish();
    cx.prepare_rows(&key, &edits)?;
    cx.edit_rows(&key, &edits);
    cx.report(&key, Event::XGROUP_SETID, 1);
    reply.ok();
    Ok(())
}

fn create_consumer(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, now_ms) = (cx.key(0), cx.now_ms);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(NO_KEY) };
    let Some(mut group) = GroupEdit::open(&mut stream, &args[3])? else {
        return Err(no_group_for(&key, &args[3]));
    };
    let is_new = group.find(&mut stream, &args[4])?.is_none();
    if is_new {
        group.create_consumer(&args[4], now_ms)?;
        let edits = group.finish();
        cx.prepare_rows(&key, &edits)?;
        cx.edit_rows(&key, &edits);
        cx.report(&key, Event::XGROUP_CREATECONSUMER, 1);
    }
    reply.integer(is_new.into());
    Ok(())
}

fn delete_consumer(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, mut notes) = (cx.key(0), Notes::new(cx));
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(NO_KEY) };
    let Some(mut group) = GroupEdit::open(&mut stream, &args[3])? else {
        return Err(no_group_for(&key, &args[3]));
    };
    let mut pending = 0;
    if let Some(at) = group.find(&mut stream, &args[4])? {
        notes.take(&key, group.consumer(at).pending, reply)?;
        pending = group.delete_consumer(&mut stream, at)?;
        let edits = group.finish();
        cx.prepare_rows(&key, &edits)?;
        cx.edit_rows(&key, &edits);
        cx.report(&key, Event::XGROUP_DELCONSUMER, 1);
    }
    reply.integer(pending as i64);
    Ok(())
}

fn destroy(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, name) = (cx.key(0), &args[3]);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(NO_KEY) };
    let Some(group) = stream.group(name)? else {
        reply.integer(0);
        return Ok(());
    };
    let edits = GroupEdit::destroy(&mut stream, name)?;
    let rows = keys_of_group(group.number);
    cx.prepare_rows(&key, &edits)?;
    cx.prepare_rows_removal(&key, &rows)?;
    cx.remove_rows(&key, &rows);
    cx.edit_rows(&key, &edits);
    cx.report(&key, Event::XGROUP_DESTROY, 1);
    reply.integer(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check, check_events};

    #[test]
    fn groups_and_consumers_are_made_and_removed() {
        let key = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";
        let none = "-NOGROUP No such consumer group 'none' for key name 's'";
        check(&[
            ("XGROUP CREATE s g $", key),
            ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
            ("XGROUP CREATE s g $", "-BUSYGROUP Consumer Group name already exists"),
            ("TYPE s", "+stream"),
            ("XLEN s", ":0"),
            ("XGROUP CREATE s '' 5-5 ENTRIESREAD 3", "+OK"),
            ("XGROUP CREATECONSUMER s g alice", ":1"),
            ("XGROUP CREATECONSUMER s g alice", ":0"),
            ("XGROUP CREATECONSUMER s none alice", none),
            ("XGROUP CREATECONSUMER none g alice", key),
            ("XGROUP DELCONSUMER s g bob", ":0"),
            ("XGROUP DELCONSUMER s none bob", none),
            ("XGROUP DELCONSUMER s g alice", ":0"),
            ("XGROUP SETID s g 7-7 ENTRIESREAD 5", "+OK"),
            ("XGROUP SETID s none 7-7", none),
            ("XGROUP SETID none g 7-7", key),
            ("XGROUP SETID s g +", "+OK"),
            ("XGROUP SETID s g -", "+OK"),
            ("XGROUP DESTROY none g", key),
            ("XGROUP DESTROY s none", ":0"),
            ("XGROUP DESTROY s g", ":1"),
            (
                "XINFO GROUPS s",
                "[{$4 name: $0, $9 consumers: :0, $7 pending: :0, $17 last-delivered-id: $3 5-5, $12 entries-read: :3, $3 lag: :0}]",
            ),
            ("XGROUP DESTROY s ''", ":1"),
            ("XINFO GROUPS s", "[]"),
            ("XGROUP CREATE s g 0", "+OK"),
            ("DEL s", ":1"),
        ]);
    }

    #[test]
    fn arguments_refused() {
        let wrong = |name: &str| {
            format!(
                "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP."
            )
        };
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        check(&[
            ("XADD s 1-1 a 1", "$3 1-1"),
            ("SET string 1", "+OK"),
            ("XGROUP FOO", "-ERR unknown subcommand 'FOO'. Try XGROUP HELP."),
            ("XGROUP CREATE s g 0 FOO", &wrong("CREATE")),
            ("XGROUP CREATE s g 0 ENTRIESREAD", &wrong("CREATE")),
            ("XGROUP create s g 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM", &wrong("create")),
            (
                "XGROUP CREATE s g 0 ENTRIESREAD -2",
                "-ERR value for ENTRIESREAD must be positive or -1",
            ),
            ("XGROUP CREATE s g 0 ENTRIESREAD x", "-ERR value is not an integer or out of range"),
            ("XGROUP CREATE s g -", invalid),
            ("XGROUP CREATE s g x", invalid),
            (
                "XGROUP CREATE string g 0",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XGROUP SETID s g x", invalid),
            ("XGROUP SETID s g 0 MKSTREAM", &wrong("SETID")),
            ("XGROUP DESTROY s", "-ERR wrong number of arguments for 'xgroup|destroy' command"),
            ("XGROUP", "-ERR wrong number of arguments for 'xgroup' command"),
        ]);
        let shown = Harness::new(false).run("XGROUP HELP");
        assert!(shown.starts_with("[+XGROUP <subcommand>"), "{shown}");
    }

    #[test]
    fn groups_and_consumers_are_reported() {
        check_events(&[
            ("XGROUP CREATE s g $ MKSTREAM", "new s, xgroup-create s"),
            ("XGROUP CREATECONSUMER s g c", "xgroup-createconsumer s"),
            ("XGROUP CREATECONSUMER s g c", ""),
            ("XGROUP SETID s g 0", "xgroup-setid s"),
            ("XGROUP DELCONSUMER s g c", "xgroup-delconsumer s"),
            ("XGROUP DELCONSUMER s g c", ""),
            ("XGROUP DESTROY s g", "xgroup-destroy s"),
            ("XGROUP DESTROY s g", ""),
        ]);
    }
}
