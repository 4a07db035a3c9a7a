//! OBJECT: what is known of a value besides its bytes.
//!
//! None of the answers needs the value, so none reads flash, and asking is not an access.

use keyspace::{Stored, View};
use resp::{Args, Reply};
use value::leaf::branch::Root;
use value::string::Encoding;
use value::{Kind, parse_i64};

use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs};

/// Seconds that OBJECT IDLETIME answers for a value that left RAM and was not asked for since: no
/// time of access is kept, so this stands for "a while".
pub(super) const IDLE_SECONDS: i64 = 60;

/// What one count of a key's frequency is worth in the answer of OBJECT FREQ: the counts 0 to 3
/// spread over the 0 to 255 that clients know.
pub(super) const FREQUENCY_SCALE: i64 = 85;

/// Integers that Redis keeps ready and shares among keys, and the references it reports for them.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
const SHARED_REFERENCES: i64 = i32::MAX as i64;

const LFU_NOT_SELECTED: CommandError = fixed(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const LFU_SELECTED: CommandError = fixed(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Name the form that the value of <key> has inside.",
    "FREQ <key>",
    "    Tell how often <key> was used lately, from 0 to 255.",
    "IDLETIME <key>",
    "    Estimate for how many seconds nobody has used <key>.",
    "REFCOUNT <key>",
    "    Tell how many references the value of <key> has.",
    "HELP",
    "    Print this help.",
];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "OBJECT",
        arity: -2,
        flags: Flags::NONE,
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Generic,
            since: "2.2.3",
            summary: "Tells what is known of a value besides its bytes.",
            complexity: "Depends on the subcommand",
            syntax: "",
        },
        run: unknown,
    },
    about("OBJECT|ENCODING", encoding, "2.2.3", "Names the form that a key's value has inside."),
    about("OBJECT|FREQ", frequency, "4.0.0", "Tells how often a key was used lately, 0 to 255."),
    about(
        "OBJECT|IDLETIME",
        idle_time,
        "2.2.3",
        "Estimates for how many seconds nobody has used a key.",
    ),
    about("OBJECT|REFCOUNT", reference_count, "2.2.3", "Tells how many references a value has."),
    Command {
        name: "OBJECT|HELP",
        arity: 2,
        flags: Flags::LOADING.and(Flags::STALE),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Generic,
            since: "6.2.0",
            summary: "Lists the subcommands.",
            complexity: "O(1)",
            syntax: "",
        },
        run: help,
    },
];

const ASKED: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RO, Needs::KeyOnly)];

/// The row of a subcommand that asks about a key.
const fn about(
    name: &'static str,
    run: Handler,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let complexity = "O(1); flash is not read";
    Command {
        name,
        arity: 3,
        flags: Flags::READONLY,
        keys: ASKED,
        locks: Locks::Keys,
        docs: Docs { group: Group::Generic, since, summary, complexity, syntax: "key" },
        run,
    }
}

fn unknown(_cx: &mut Cx<'_, '_>, args: Args<'_>, _reply: &mut Reply) -> CommandResult {
    Err(CommandError::unknown_subcommand("OBJECT", &args[1]))
}

fn encoding(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let exists = cx.exists(&key);
    cx.count_quiet_lookup(exists);
    let Some(view) = cx.peek(&key) else {
        reply.null();
        return Ok(());
    };
    let (is_hash, name) = (Kind::from_bits(view.kind).is_hash(), encoding_name(&view));
    let expires = is_hash && name == "listpack" && cx.has_expiring_elements(&key);
    reply.bulk(if expires { b"listpackex" } else { name.as_bytes() });
    Ok(())
}

/// As OBJECT ENCODING names the form of a value.
pub fn encoding_name(view: &View<'_>) -> &'static str {
    let kind = Kind::from_bits(view.kind);
    match view.stored {
        Stored::Hot(root) if kind.is_tree() => {
            kind.with_encoding(Root::new(root).encoding()).encoding_name()
        }
        _ => kind.encoding_name(),
    }
}

fn frequency(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let frequency = cx.db(&key).frequency(&key);
    cx.count_quiet_lookup(frequency.is_some());
    match frequency {
        Some(_) if !cx.limits.counts_uses() => return Err(LFU_NOT_SELECTED),
        Some(frequency) => reply.integer(i64::from(frequency) * FREQUENCY_SCALE),
        None => reply.null(),
    }
    Ok(())
}

fn idle_time(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let frequency = cx.db(&key).frequency(&key);
    cx.count_quiet_lookup(frequency.is_some());
    let Some(frequency) = frequency else {
        reply.null();
        return Ok(());
    };
    if cx.limits.counts_uses() {
        return Err(LFU_SELECTED);
    }
    let is_cold = cx.peek(&key).is_some_and(|view| matches!(view.stored, Stored::Cold(..)));
    reply.integer(if is_cold && frequency == 0 { IDLE_SECONDS } else { 0 });
    Ok(())
}

fn reference_count(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, lfu) = (cx.key(0), cx.limits.counts_uses());
    let exists = cx.exists(&key);
    cx.count_quiet_lookup(exists);
    match cx.peek(&key) {
        Some(view) if !lfu && is_shared_integer(&view) => reply.integer(SHARED_REFERENCES),
        Some(_) => reply.integer(1),
        None => reply.null(),
    }
    Ok(())
}

/// Whether Redis would share this value. Such values are too short to be on flash.
fn is_shared_integer(view: &View<'_>) -> bool {
    let (Stored::Hot(bytes) | Stored::Clean(bytes, _)) = view.stored else { return false };
    Kind::from_bits(view.kind) == Kind::string(Encoding::Int)
        && parse_i64(bytes).is_some_and(|number| SHARED_INTEGERS.contains(&number))
}

fn help(_cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.array(HELP.len());
    HELP.iter().for_each(|line| reply.simple(line));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn encodings_and_references() {
        check(&[
            ("MSET int 12 short abc shared 9999 unshared 10000 negative -1", "+OK"),
            ("SET long 0123456789012345678901234567890123456789012345", "+OK"),
            ("OBJECT ENCODING int", "$3 int"),
            ("object encoding short", "$6 embstr"),
            ("OBJECT ENCODING long", "$3 raw"),
            ("OBJECT ENCODING missing", "_"),
            ("OBJECT REFCOUNT shared", ":2147483647"),
            ("OBJECT REFCOUNT unshared", ":1"),
            ("OBJECT REFCOUNT negative", ":1"),
            ("OBJECT REFCOUNT long", ":1"),
            ("OBJECT REFCOUNT missing", "_"),
            ("OBJECT FREQ missing", "_"),
            ("OBJECT IDLETIME missing", "_"),
            ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
            ("OBJECT", "-ERR wrong number of arguments for 'object' command"),
            ("OBJECT FOO bar", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
            ("OBJECT HELP x", "-ERR wrong number of arguments for 'object|help' command"),
        ]);
        let shown = Harness::new(false).run("OBJECT HELP");
        assert!(shown.starts_with("[+OBJECT <subcommand>"), "{shown}");
    }

    #[test]
    fn frequency_and_idle_time_each_under_their_policy() {
        let mut server = Harness::new(true);
        server.run("SET k 0123456789012345678901234567890123456789");
        assert!(server.run("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not"));
        assert_eq!(server.run("OBJECT IDLETIME k"), ":60");
        server.lfu = true;
        assert!(server.run("OBJECT IDLETIME k").starts_with("-ERR An LFU maxmemory policy is sel"));
        assert_eq!(server.run("OBJECT FREQ k"), ":0");
        let mut server = Harness::new(false);
        server.lfu = true;
        server.run("SET k v");
        for expected in [":85", ":170", ":255", ":255"] {
            server.run("TOUCH k");
            assert_eq!(server.run("OBJECT FREQ k"), expected);
        }
        server.lfu = false;
        assert_eq!(server.run("OBJECT IDLETIME k"), ":0");
    }

    #[test]
    fn reads_of_a_client_that_said_no_touch_leave_no_trace() {
        let mut server = Harness::new(false);
        server.lfu = true;
        server.run("SET k v");
        server.no_touch = true;
        server.run("GET k");
        assert_eq!(server.run("OBJECT FREQ k"), ":0");
        server.run("TOUCH k");
        assert_eq!(server.run("OBJECT FREQ k"), ":85");
        server.no_touch = false;
        server.run("GET k");
        assert_eq!(server.run("OBJECT FREQ k"), ":170");
    }
}
