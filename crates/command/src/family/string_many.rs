//! Strings, many keys at a time: MGET, MSET and MSETNX.
//!
//! The slots of all keys are held while one of these runs, so what MGET reads is one moment of
//! all its keys, and what MSET writes becomes visible at once. Of very many keys MGET may be run on a few
//! at a time, by a caller who sees to it that they do not change in between.

use keyspace::{Expiry, PREFETCH_KEYS};
use resp::{Args, Reply};

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "MGET",
        arity: -2,
        flags: Flags::READONLY.and(Flags::FAST).and(Flags::REPLIES_VALUES).and(Flags::BY_KEY),
        keys: &[KeySpec::from(1, 1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Returns the string values of several keys, read at one moment.",
            complexity: "O(N), N being the number of keys",
            syntax: "key [key ...]",
        },
        run: mget,
    },
    Command {
        name: "MSET",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::from(1, 2, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.1",
            summary: "Sets the string values of several keys at once.",
            complexity: "O(N), N being the number of keys",
            syntax: "key value [key value ...]",
        },
        run: mset,
    },
    Command {
        name: "MSETNX",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::from(1, 2, KeyFlags::OW.and(KeyFlags::INSERT), Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.1",
            summary: "Sets the string values of several keys at once, if none of them exists.",
            complexity: "O(N), N being the number of keys",
            syntax: "key value [key value ...]",
        },
        run: msetnx,
    },
];

const MSET_ARITY: CommandError = fixed("ERR wrong number of arguments for 'mset' command");
const MSETNX_ARITY: CommandError = fixed("ERR wrong number of arguments for 'msetnx' command");

fn mget(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (keys, room) = (cx.keys, cx.reply_bytes_max);
    if let Some(len) = cx.array_len {
        reply.array(len);
    }
    for (index, key) in keys.iter().enumerate() {
        if index % PREFETCH_KEYS == 0 {
            cx.prefetch(&keys[index..keys.len().min(index + PREFETCH_KEYS)]);
        }
        match cx.read(key)? {
            // A key of another type has no string value, which is no error here.
            Some(value) if value.kind.is_string() => value.write(key, room, reply)?,
            _ => reply.null(),
        }
    }
    Ok(())
}

fn mset(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if !is_paired(args) {
        return Err(MSET_ARITY);
    }
    set_pairs(cx, args);
    reply.ok();
    Ok(())
}

fn msetnx(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if !is_paired(args) {
        return Err(MSETNX_ARITY);
    }
    let keys = cx.keys;
    let sets = !keys.iter().any(|key| cx.exists(key));
    if sets {
        set_pairs(cx, args);
    }
    reply.integer(i64::from(sets));
    Ok(())
}

/// Whether every key has a value behind it.
fn is_paired(args: Args<'_>) -> bool {
    args.len() % 2 == 1
}

/// Sets in the order of the arguments, so that of a key named twice the last value stays.
fn set_pairs(cx: &mut Cx<'_, '_>, args: Args<'_>) {
    let keys = cx.keys;
    for (pair, key) in keys.iter().enumerate() {
        cx.set_string(key, &args[2 * pair + 2], Expiry::Clear);
        cx.report(key, Event::SET, 1);
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn many_at_once() {
        check(&[
            ("MSET a 1 b 0123456789012345678901234567890123456789 c ''", "+OK"),
            (
                "MGET a missing b c a",
                "[$1 1, _, $40 0123456789012345678901234567890123456789, $0, $1 1]",
            ),
            ("MSET a x a y", "+OK"),
            ("MGET a", "[$1 y]"),
            ("MSETNX new 1 a 2", ":0"),
            ("MGET new a", "[_, $1 y]"),
            ("MSETNX new 1 new 2 other 3", ":1"),
            ("MGET new other", "[$1 2, $1 3]"),
            ("MSETNX new 1 new 3", ":0"),
        ]);
    }

    #[test]
    fn keys_without_a_value() {
        check(&[
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command"),
            ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
            ("MGET a b", "[_, _]"),
        ]);
    }

    #[test]
    fn setting_ends_the_expiry() {
        let mut server = Harness::new(true);
        server.run("SET a 1 EX 10");
        server.run("MSET a 2 b 3");
        server.now_ms += 10_000;
        assert_eq!(server.run("MGET a b"), "[$1 2, $1 3]");
        server.run("SET a 1 EX 10");
        server.now_ms += 10_000;
        assert_eq!(server.run("MSETNX a 2"), ":1", "an expired key does not exist");
    }
}
