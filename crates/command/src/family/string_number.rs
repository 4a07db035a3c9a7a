//! Strings as numbers: INCR and its relatives.

use keyspace::Expiry;
use resp::{Args, Reply};
use value::parse_i64;

use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const FLAGS: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const KEYS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE), Needs::Value)];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "INCR",
        arity: 2,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Adds one to the integer value of a key; a missing key counts as 0.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: incr,
    },
    Command {
        name: "DECR",
        arity: 2,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Takes one from the integer value of a key; a missing key counts as 0.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: decr,
    },
    Command {
        name: "INCRBY",
        arity: 3,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Adds a number to the integer value of a key; a missing key counts as 0.",
            complexity: "O(1)",
            syntax: "key increment",
        },
        run: incrby,
    },
    Command {
        name: "DECRBY",
        arity: 3,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Takes a number from the integer value of a key; a missing key counts as 0.",
            complexity: "O(1)",
            syntax: "key decrement",
        },
        run: decrby,
    },
];

const OVERFLOW: CommandError = fixed("ERR increment or decrement would overflow");
const NEGATION_OVERFLOW: CommandError = fixed("ERR decrement would overflow");

fn incr(cx: &mut Cx<'_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    add(cx, 1, reply)
}

fn decr(cx: &mut Cx<'_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    add(cx, -1, reply)
}

fn incrby(cx: &mut Cx<'_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let increment = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    add(cx, increment, reply)
}

fn decrby(cx: &mut Cx<'_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let decrement = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    add(cx, decrement.checked_neg().ok_or(NEGATION_OVERFLOW)?, reply)
}

fn add(cx: &mut Cx<'_>, increment: i64, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let old = match cx.read_string(&key)? {
        Some(bytes) => parse_i64(bytes).ok_or(CommandError::NOT_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(increment).ok_or(OVERFLOW)?;
    cx.set_string(&key, itoa::Buffer::new().format(new).as_bytes(), Expiry::Keep);
    reply.integer(new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn counting() {
        check(&[
            ("INCR k", ":1"),
            ("INCR k", ":2"),
            ("DECR k", ":1"),
            ("DECRBY k 10", ":-9"),
            ("INCRBY k 109", ":100"),
            ("INCRBY k -100", ":0"),
            ("DECRBY k -9223372036854775807", ":9223372036854775807"),
            ("GET k", "$19 9223372036854775807"),
            ("INCR k", "-ERR increment or decrement would overflow"),
            ("GET k", "$19 9223372036854775807"),
            ("SET k -9223372036854775808", "+OK"),
            ("DECR k", "-ERR increment or decrement would overflow"),
            ("INCRBY k 9223372036854775807", ":-1"),
            ("DECRBY k -9223372036854775808", "-ERR decrement would overflow"),
            ("DECRBY new -9223372036854775808", "-ERR decrement would overflow"),
            ("DECR new", ":-1"),
        ]);
    }

    #[test]
    fn values_and_increments_that_are_no_integers() {
        let error = "-ERR value is not an integer or out of range";
        for text in ["''", "x", "1.0", "' 1'", "'1 '", "+1", "01", "-0", "9223372036854775808"] {
            check(&[
                (&format!("SET k {text}"), "+OK"),
                ("INCR k", error),
                ("DECRBY k 5", error),
                (&format!("INCRBY n {text}"), error),
                (&format!("DECRBY n {text}"), error),
                ("GET n", "_"),
            ]);
        }
        check(&[
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("INCR k", error),
            ("GET k", "$40 0123456789012345678901234567890123456789"),
        ]);
    }

    #[test]
    fn counting_keeps_the_expiry() {
        let mut server = Harness::new(true);
        server.run("SET k 1 EX 10");
        server.run("INCR k");
        server.run("DECRBY k 1000");
        server.now_ms += 10_000;
        assert_eq!(server.run("INCR k"), ":1");
    }
}
