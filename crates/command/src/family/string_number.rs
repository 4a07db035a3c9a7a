//! Strings as numbers: INCR and its relatives, in integers and in fractions.

use keyspace::Expiry;
use resp::{Args, Reply};
use value::long_double::{self, FloatError};
use value::string::{EMBSTR_BYTES_MAX, Encoding};
use value::{Kind, parse_i64};

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::logged::Arg;
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
    Command {
        name: "INCRBYFLOAT",
        arity: 3,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.6.0",
            summary: "Adds a number to the floating point value of a key; a missing key counts as 0.",
            complexity: "O(1)",
            syntax: "key increment",
        },
        run: incrbyfloat,
    },
];

const OVERFLOW: CommandError = fixed("ERR increment or decrement would overflow");
const NEGATION_OVERFLOW: CommandError = fixed("ERR decrement would overflow");

fn incr(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    add(cx, 1, reply)
}

fn decr(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    add(cx, -1, reply)
}

fn incrby(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let increment = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    add(cx, increment, reply)
}

fn decrby(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let decrement = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    add(cx, decrement.checked_neg().ok_or(NEGATION_OVERFLOW)?, reply)
}

fn add(cx: &mut Cx<'_, '_>, increment: i64, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let old = match cx.read_string(&key)? {
        Some(bytes) => parse_i64(bytes).ok_or(CommandError::NOT_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(increment).ok_or(OVERFLOW)?;
    cx.set_string(&key, itoa::Buffer::new().format(new).as_bytes(), Expiry::Keep);
    cx.report(&key, Event::INCRBY, 1);
    reply.integer(new);
    Ok(())
}

fn incrbyfloat(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let old = cx.read_string(&key)?.unwrap_or(b"0");
    let new = long_double::increment(old, &args[2]).map_err(|error| {
        fixed(match error {
            FloatError::NotAFloat => "ERR value is not a valid float",
            FloatError::NotFinite => "ERR increment would produce NaN or Infinity",
        })
    })?;
    // Never `int`, even where the sum is one: Redis keeps it as the text that it printed.
    let encoding = if new.len() <= EMBSTR_BYTES_MAX { Encoding::Embstr } else { Encoding::Raw };
    reply.bulk(new.as_bytes());
    let sum = Arg::Bytes(new.as_bytes());
    cx.log_as(&[Arg::Bytes(b"SET"), Arg::Sent(1), sum, Arg::Bytes(b"KEEPTTL")]);
    cx.set_string_vec(&key, Kind::string(encoding), new.into_bytes(), Expiry::Keep);
    cx.report(&key, Event::INCRBYFLOAT, 1);
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
    fn counting_in_fractions() {
        check(&[
            ("INCRBYFLOAT k 10.50", "$4 10.5"),
            ("INCRBYFLOAT k 0.1", "$4 10.6"),
            ("INCRBYFLOAT k -5", "$3 5.6"),
            ("INCRBYFLOAT k 5.0e3", "$22 5005.60000000000000009"),
            ("SET k 3", "+OK"),
            ("INCRBYFLOAT k 1.0", "$1 4"),
            ("INCR k", ":5"),
            ("SET k 5.0e3", "+OK"),
            ("INCRBYFLOAT k 2.0e2", "$4 5200"),
            ("SET k 0000000000000000000000000000000000000001.5", "+OK"),
            ("INCRBYFLOAT k 1", "$3 2.5"),
            ("SET k 123456789012345678901234567890", "+OK"),
            ("INCRBYFLOAT k 0.1", "$30 123456789012345678899921813504"),
            ("SET k -0", "+OK"),
            ("INCRBYFLOAT k 0", "$1 0"),
            ("INCRBYFLOAT k inf", "-ERR increment would produce NaN or Infinity"),
            ("INCRBYFLOAT k -inf", "-ERR increment would produce NaN or Infinity"),
            ("GET k", "$1 0"),
        ]);
    }

    #[test]
    fn values_and_increments_that_are_no_numbers() {
        let error = "-ERR value is not a valid float";
        for text in ["''", "x", "nan", "' 1'", "'1 '", "1e", "1e5000", "1_0"] {
            check(&[
                (&format!("SET k {text}"), "+OK"),
                ("INCRBYFLOAT k 1", error),
                (&format!("INCRBYFLOAT n {text}"), error),
                ("GET n", "_"),
            ]);
        }
    }

    #[test]
    fn encodings() {
        for (setup, line, expected) in [
            ("APPEND k 12", "INCR k", "$3 int"),
            ("SET k 12", "INCRBYFLOAT k 1", "$6 embstr"),
            ("SET k 1e43", "INCRBYFLOAT k 0", "$6 embstr"),
            ("SET k 1e44", "INCRBYFLOAT k 0", "$3 raw"),
        ] {
            let mut server = Harness::new(false);
            server.run(setup);
            server.run(line);
            assert_eq!(server.run("OBJECT ENCODING k"), expected, "{setup}, {line}");
        }
    }

    #[test]
    fn counting_keeps_the_expiry() {
        let mut server = Harness::new(true);
        server.run("SET k 1 EX 10");
        server.run("INCR k");
        server.run("DECRBY k 1000");
        server.run("INCRBYFLOAT k 0.5");
        server.now_ms += 10_000;
        assert_eq!(server.run("INCR k"), ":1");
    }
}
