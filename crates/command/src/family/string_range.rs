//! Strings in parts: APPEND, SETRANGE, GETRANGE, SUBSTR, and STRLEN, which needs no bytes at all.
//!
//! A change within a string's length happens where the bytes stand; only growth moves them. Either
//! leaves the `raw` encoding, as in Redis.

use keyspace::{Expiry, Key, Stored};
use resp::{Args, Reply};
use value::bits::clamp_range;
use value::string::Encoding;
use value::{Kind, parse_i64};

use super::room::check_lengthened;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "APPEND",
        arity: 3,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.0.0",
            summary: "Puts bytes behind the string value of a key; a missing key counts as empty.",
            complexity: "O(N), N being the length of the addition, amortized over many",
            syntax: "key value",
        },
        run: append,
    },
    Command {
        name: "STRLEN",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RO, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.2.0",
            summary: "Returns the length of a string value.",
            complexity: "O(1), and never a read from flash",
            syntax: "key",
        },
        run: strlen,
    },
    Command {
        name: "GETRANGE",
        arity: 4,
        flags: Flags::READONLY,
        keys: READ,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.4.0",
            summary: "Returns the part of a string value between two offsets, both included.",
            complexity: "O(N), N being the length of the answer",
            syntax: "key start end",
        },
        run: getrange,
    },
    Command {
        name: "SUBSTR",
        arity: 4,
        flags: Flags::READONLY,
        keys: READ,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Returns the part of a string value between two offsets: GETRANGE's old name.",
            complexity: "O(N), N being the length of the answer",
            syntax: "key start end",
        },
        run: getrange,
    },
    Command {
        name: "SETRANGE",
        arity: 4,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.2.0",
            summary: "Overwrites a part of a string value, which grows with zeros where needed.",
            complexity: "O(N), N being the length of the part and of the growth",
            syntax: "key offset value",
        },
        run: setrange,
    },
];

/// What a change of some bytes leaves.
pub(super) const RAW: Kind = Kind::string(Encoding::Raw);

/// A string that would become longer than [`Cx::string_bytes_max`].
pub(super) const TOO_LONG: CommandError =
    fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

const OFFSET_OUT_OF_RANGE: CommandError = fixed("ERR offset is out of range");

/// The length and kind of a string, which need no flash. None: there is no such key.
///
/// Errors: [`CommandError::WRONG_TYPE`].
pub(super) fn peek_string(
    cx: &mut Cx<'_, '_>,
    key: &Key<'_>,
) -> Result<Option<(usize, Kind)>, CommandError> {
    let Some(view) = cx.peek(key) else { return Ok(None) };
    let kind = Kind::from_bits(view.kind);
    if kind.is_string() {
        Ok(Some((view.value_len(), kind)))
    } else {
        Err(CommandError::WRONG_TYPE)
    }
}

/// Gives a key the raw encoding that every change of some bytes leaves.
pub(super) fn set_raw(cx: &mut Cx<'_, '_>, key: &Key<'_>, kind: Kind) {
    if kind != RAW {
        cx.db(key).set_kind(key, RAW.bits());
    }
}

fn append(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, suffix) = (cx.key(0), &args[2]);
    let Some((old_len, _)) = peek_string(cx, &key)? else {
        cx.set_string(&key, suffix, Expiry::Clear);
        cx.report(&key, Event::APPEND, 1);
        reply.integer(suffix.len() as i64);
        return Ok(());
    };
    let len = old_len + suffix.len();
    if len > cx.limits.string_bytes_max() {
        return Err(TOO_LONG);
    }
    check_lengthened(cx, &key, (old_len, len), reply)?;
    lengthen(cx, &key, len, |bytes| bytes[old_len..].copy_from_slice(suffix))?;
    cx.report(&key, Event::APPEND, 1);
    reply.integer(len as i64);
    Ok(())
}

fn strlen(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let exists = cx.exists(&key);
    cx.count_lookup(&key, exists);
    let found = peek_string(cx, &key)?;
    let len = found.map_or(0, |(len, _)| len);
    reply.integer(len as i64);
    Ok(())
}

fn getrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let start = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let end = parse_i64(&args[3]).ok_or(CommandError::NOT_INTEGER)?;
    let (key, room) = (cx.key(0), cx.reply_bytes_max);
    let bytes = cx.read_string(&key)?.unwrap_or_default();
    let range = clamp_range(start, end, bytes.len() as u64);
    let len = range.map_or(0, |(first, last)| (last - first) as usize + 1);
    if reply.full_len() + len > room {
        return Err(CommandError::too_long(&key));
    }
    reply.bulk(range.map_or(&[], |(first, last)| &bytes[first as usize..=last as usize]));
    Ok(())
}

fn setrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, part) = (cx.key(0), &args[3]);
    let offset = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| OFFSET_OUT_OF_RANGE)?;
    let old = peek_string(cx, &key)?;
    let old_len = old.map_or(0, |(len, _)| len);
    if part.is_empty() {
        reply.integer(old_len as i64);
        return Ok(());
    }
    let end = offset.saturating_add(part.len() as u64);
    if end > cx.limits.string_bytes_max() as u64 {
        return Err(TOO_LONG);
    }
    let range = offset as usize..end as usize;
    let len = old_len.max(range.end);
    check_lengthened(cx, &key, (old_len, len), reply)?;
    match old {
        None => {
            let mut bytes = vec![0; len];
            bytes[range].copy_from_slice(part);
            cx.set_string_vec(&key, RAW, bytes, Expiry::Clear);
        }
        Some((_, kind)) if range.end <= old_len => {
            cx.value_mut(&key)?[range].copy_from_slice(part);
            set_raw(cx, &key, kind);
        }
        Some(_) => lengthen(cx, &key, len, |bytes| bytes[range].copy_from_slice(part))?,
    }
    cx.report(&key, Event::SETRANGE, 1);
    reply.integer(len as i64);
    Ok(())
}

/// Lengthens a string that exists with zeros, to exactly `len`, for it will not often grow again, and
/// changes it.
///
/// Errors: [`CommandError::NotResident`].
pub(super) fn lengthen<R>(
    cx: &mut Cx<'_, '_>,
    key: &Key<'_>,
    len: usize,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R, CommandError> {
    let is_cold = cx.peek(key).is_some_and(|view| matches!(view.stored, Stored::Cold(..)));
    if !is_cold {
        return cx.update(key, |kind, bytes| {
            *kind = RAW;
            bytes.reserve_exact(len - bytes.len());
            bytes.resize(len, 0);
            change(bytes)
        });
    }
    // What was fetched goes to its longer place at once. To bring it to RAM as it is and lengthen it there
    // would take its old length once more, for which no memory was asked.
    let mut bytes = cx.take_room(len);
    let old = cx.read_string(key)?.unwrap_or_default();
    bytes.extend_from_slice(old);
    bytes.resize(len, 0);
    let result = change(&mut bytes);
    cx.set_string_vec(key, RAW, bytes, Expiry::Keep);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn appending() {
        check(&[
            ("APPEND k 12", ":2"),
            ("APPEND k 3", ":3"),
            ("GET k", "$3 123"),
            ("APPEND k ''", ":3"),
            ("INCR k", ":124"),
            ("APPEND k 0123456789012345678901234567890123456789", ":43"),
            ("APPEND k x", ":44"),
            ("GET k", "$44 1240123456789012345678901234567890123456789x"),
            ("APPEND empty ''", ":0"),
            ("GET empty", "$0"),
        ]);
    }

    #[test]
    fn strings_that_memory_has_no_room_for() {
        let mut server = Harness::new(false);
        server.run("SET k 0123456789");
        server.memory_bytes_max = 10;
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        for line in [
            "APPEND k x",
            "SETRANGE k 10 x",
            "SETRANGE new 10 x",
            "SETBIT k 80 0",
            "SETBIT new 80 1",
            "BITFIELD k SET u8 80 1",
            "BITFIELD new SET u8 80 1",
        ] {
            assert_eq!(server.run(line), refused, "{line}");
        }
        assert_eq!(server.run("SETRANGE k 9 x"), ":10");
        assert_eq!(server.run("SETBIT k 79 0"), ":0");
        assert_eq!(server.run("EXISTS new"), ":0");
    }

    #[test]
    fn appending_past_the_length_of_an_inlined_value() {
        let part = "0123456789".repeat(10);
        let mut expected = String::new();
        for demote in [false, true] {
            expected.clear();
            let mut server = Harness::new(demote);
            for _ in 0..30 {
                expected.push_str(&part);
                assert_eq!(server.run(&format!("APPEND k {part}")), format!(":{}", expected.len()));
                assert_eq!(server.run("GET k"), format!("${} {expected}", expected.len()));
            }
        }
    }

    #[test]
    fn a_string_that_is_lengthened_keeps_its_expiry() {
        let text = "0123456789".repeat(20);
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for (line, expected) in [
                ("SETRANGE k 200 x", format!("$201 {text}x")),
                ("SETBIT k 1607 1", format!("$201 {text}\\x01")),
                ("APPEND k x", format!("$201 {text}x")),
                ("BITFIELD k SET u8 1600 120", format!("$201 {text}x")),
            ] {
                server.run(&format!("SET k {text} EX 100"));
                server.run(line);
                assert_eq!(server.run("TTL k"), ":100", "{line}");
                assert_eq!(server.run("GET k"), expected, "{line}");
                server.check_counts();
            }
        }
    }

    #[test]
    fn lengths() {
        check(&[
            ("STRLEN missing", ":0"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("STRLEN k", ":40"),
            ("SET k -555", "+OK"),
            ("STRLEN k", ":4"),
            ("SET k ''", "+OK"),
            ("STRLEN k", ":0"),
        ]);
    }

    #[test]
    fn ranges() {
        for (start, end, expected) in [
            ("0", "3", "$4 This"),
            ("-3", "-1", "$3 ing"),
            ("0", "-1", "$36 This is a string of some length, ing"),
            ("10", "5", "$0"),
            ("-1", "-3", "$0"),
            ("-100", "3", "$4 This"),
            ("-100", "-99", "$1 T"),
            ("-99", "-100", "$0"),
            ("0", "0", "$1 T"),
            ("35", "35", "$1 g"),
            ("36", "100", "$0"),
            ("33", "9223372036854775807", "$3 ing"),
            (
                "-9223372036854775808",
                "9223372036854775807",
                "$36 This is a string of some length, ing",
            ),
            ("9223372036854775807", "9223372036854775807", "$0"),
            ("x", "1", "-ERR value is not an integer or out of range"),
            ("1", "1.0", "-ERR value is not an integer or out of range"),
        ] {
            for command in ["GETRANGE", "SUBSTR"] {
                check(&[
                    ("SET k 'This is a string of some length, ing'", "+OK"),
                    (&format!("{command} k {start} {end}"), expected),
                ]);
            }
        }
        check(&[("GETRANGE missing 0 -1", "$0"), ("SET k ''", "+OK"), ("GETRANGE k 0 -1", "$0")]);
    }

    #[test]
    fn overwriting_a_part() {
        check(&[
            ("SETRANGE k 0 ''", ":0"),
            ("SETRANGE k 5 ''", ":0"),
            ("GET k", "_"),
            ("SETRANGE k 2 foo", ":5"),
            ("GET k", "$5 \\x00\\x00foo"),
            ("SETRANGE k 0 ab", ":5"),
            ("SETRANGE k 4 xyz", ":7"),
            ("GET k", "$7 abfoxyz"),
            ("SETRANGE k 1000 ''", ":7"),
            ("SETRANGE k 8 1", ":9"),
            ("GET k", "$9 abfoxyz\\x001"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("SETRANGE k 5 xyz", ":40"),
            ("GETRANGE k 0 9", "$10 01234xyz89"),
            ("SETRANGE k 39 xyz", ":42"),
            ("GET k", "$42 01234xyz8901234567890123456789012345678xyz"),
        ]);
    }

    #[test]
    fn overwriting_keeps_the_expiry() {
        let mut server = Harness::new(true);
        server.run("SET k 0123456789012345678901234567890123456789 EX 10");
        server.run("SETRANGE k 1 x");
        server.run("SETRANGE k 50 x");
        server.run("APPEND k x");
        server.now_ms += 10_000;
        assert_eq!(server.run("GET k"), "_");
    }

    #[test]
    fn offsets_out_of_range() {
        let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        for setup in ["STRLEN k", "SET k 1", "SET k 0123456789012345678901234567890123456789"] {
            check(&[
                (setup, "*"),
                ("SETRANGE k -1 x", "-ERR offset is out of range"),
                ("SETRANGE k -1 ''", "-ERR offset is out of range"),
                ("SETRANGE k x x", "-ERR value is not an integer or out of range"),
                ("SETRANGE k 536870908 world", too_long),
                ("SETRANGE k 9223372036854775807 x", too_long),
                ("SETRANGE k 9223372036854775807 ''", "*"),
            ]);
        }
    }

    #[test]
    fn strings_grow_up_to_the_limit_and_not_beyond() {
        let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        let mut server = Harness::new(true);
        server.string_bytes_max = 64;
        assert_eq!(server.run("SETRANGE k 60 abcd"), ":64");
        assert_eq!(server.run("SETRANGE k 61 abcd"), too_long);
        assert_eq!(server.run("SETRANGE new 61 abcd"), too_long);
        assert_eq!(server.run("APPEND k x"), too_long);
        assert_eq!(server.run("APPEND k ''"), ":64");
        assert_eq!(server.run("STRLEN k"), ":64");
        assert_eq!(server.run("STRLEN new"), ":0");
    }

    #[test]
    fn a_change_of_some_bytes_leaves_the_raw_encoding() {
        for (line, expected) in [
            ("APPEND k 1", "$3 raw"),
            ("APPEND k ''", "$3 raw"),
            ("SETRANGE k 0 1", "$3 raw"),
            ("SETRANGE k 5 1", "$3 raw"),
            ("SETRANGE k 5 ''", "$3 int"),
            ("APPEND new 12", "$3 int"),
            ("APPEND new x", "$6 embstr"),
            ("SETRANGE new 1 1", "$3 raw"),
        ] {
            let mut server = Harness::new(false);
            server.run("SET k 1234");
            server.run(line);
            let key = line.split(' ').nth(1).expect("a key");
            assert_eq!(server.run(&format!("OBJECT ENCODING {key}")), expected, "{line}");
        }
    }
}
