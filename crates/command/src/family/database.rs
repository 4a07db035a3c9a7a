//! Whole databases: their size, emptying them, exchanging two of them.
//!
//! What empties or exchanges holds every slot, so that no command sees half of it. Records are
//! freed after the slots are unlocked ([`Cx::detached`]), whether the client asks for SYNC or
//! ASYNC: to free them under the locks would gain nobody anything.

use keyspace::{DB_COUNT, Key, SLOT_COUNT};
use resp::{Args, Reply};
use value::parse_i64;

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, Locks};

const FIRST_INVALID: CommandError = fixed("ERR invalid first DB index");
const SECOND_INVALID: CommandError = fixed("ERR invalid second DB index");
const DB_OUT_OF_RANGE: CommandError = fixed("ERR DB index is out of range");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "DBSIZE",
        arity: 1,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Server,
            since: "1.0.0",
            summary: "Tells how many keys the database has.",
            complexity: "O(1)",
            syntax: "",
        },
        run: dbsize,
    },
    Command {
        name: "FLUSHDB",
        arity: -1,
        flags: Flags::WRITE,
        keys: &[],
        locks: Locks::All,
        docs: Docs {
            group: Group::Server,
            since: "1.0.0",
            summary: "Removes all keys of the database.",
            complexity: "O(N) for N keys; their memory is freed while others go on",
            syntax: "[ASYNC | SYNC]",
        },
        run: flushdb,
    },
    Command {
        name: "FLUSHALL",
        arity: -1,
        flags: Flags::WRITE,
        keys: &[],
        locks: Locks::All,
        docs: Docs {
            group: Group::Server,
            since: "1.0.0",
            summary: "Removes all keys of all databases.",
            complexity: "O(N) for N keys; their memory is freed while others go on",
            syntax: "[ASYNC | SYNC]",
        },
        run: flushall,
    },
    Command {
        name: "SWAPDB",
        arity: 3,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[],
        locks: Locks::All,
        docs: Docs {
            group: Group::Server,
            since: "4.0.0",
            summary: "Exchanges two databases.",
            complexity: "O(N) for N watched keys",
            syntax: "index1 index2",
        },
        run: swapdb,
    },
];

fn dbsize(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(cx.key_count(cx.db) as i64);
    Ok(())
}

fn flushdb(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    check_flush_options(args)?;
    flush(cx, cx.db..cx.db + 1);
    reply.ok();
    Ok(())
}

fn flushall(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    check_flush_options(args)?;
    flush(cx, 0..DB_COUNT as u8);
    reply.ok();
    Ok(())
}

fn check_flush_options(args: Args<'_>) -> CommandResult {
    let mode = match args.len() {
        1 => return Ok(()),
        2 => &args[1],
        _ => return Err(CommandError::SYNTAX),
    };
    if mode.eq_ignore_ascii_case(b"ASYNC") || mode.eq_ignore_ascii_case(b"SYNC") {
        return Ok(());
    }
    Err(CommandError::SYNTAX)
}

fn flush(cx: &mut Cx<'_, '_>, dbs: std::ops::Range<u8>) {
    assert!(cx.locked.holds_all());
    let tables: Vec<u8> = dbs.clone().map(|db| cx.keyspace().table_of(db)).collect();
    for slot in 0..SLOT_COUNT as u16 {
        let state = cx.locked.slot(slot);
        for &table in &tables {
            state.changed_all(table, None, cx.now_ms);
            if let Some(detached) = state.clear(table, cx.tally) {
                cx.effects.changes += detached.len() as u64;
                cx.detached.push(detached);
            }
        }
    }
    for db in dbs {
        cx.report_in(db, &Key::new(b""), Event::FLUSHED, 0);
    }
}

fn swapdb(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let first = parse_index(&args[1]).ok_or(FIRST_INVALID)?;
    let second = parse_index(&args[2]).ok_or(SECOND_INVALID)?;
    let db = |index: i32| {
        u8::try_from(index).ok().filter(|&db| usize::from(db) < DB_COUNT).ok_or(DB_OUT_OF_RANGE)
    };
    let (first, second) = (db(first)?, db(second)?);
    if first != second {
        swap(cx, first, second);
    }
    // No event tells of it.
    cx.effects.changes += 1;
    reply.ok();
    Ok(())
}

fn parse_index(text: &[u8]) -> Option<i32> {
    parse_i64(text).and_then(|number| i32::try_from(number).ok())
}

fn swap(cx: &mut Cx<'_, '_>, first: u8, second: u8) {
    assert!(cx.locked.holds_all());
    let keyspace = cx.keyspace();
    let (one, two) = (keyspace.table_of(first), keyspace.table_of(second));
    for slot in 0..SLOT_COUNT as u16 {
        let state = cx.locked.slot(slot);
        state.expire_watched(one, two, cx.now_ms, cx.tally);
        state.changed_all(one, Some(two), cx.now_ms);
        state.changed_all(two, Some(one), cx.now_ms);
        state.swap_watchers(one, two);
    }
    keyspace.swap_tables(cx.locked, first, second);
    for db in [first, second] {
        cx.report_in(db, &Key::new(b""), Event::SWAPDB, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn counting() {
        check(&[
            ("DBSIZE", ":0"),
            ("MSET a 1 b 2 c 3", "+OK"),
            ("DBSIZE", ":3"),
            ("DEL a", ":1"),
            ("SET b 0123456789012345678901234567890123456789", "+OK"),
            ("DBSIZE", ":2"),
            ("SELECT 5", "+OK"),
            ("DBSIZE", ":0"),
            ("SET a 1", "+OK"),
            ("DBSIZE", ":1"),
        ]);
    }

    #[test]
    fn flushing() {
        let long = "SET a 0123456789012345678901234567890123456789";
        check(&[
            (long, "+OK"),
            ("SET b 1 PX 1000", "+OK"),
            ("SELECT 1", "+OK"),
            (long, "+OK"),
            ("SELECT 2", "+OK"),
            (long, "+OK"),
            ("FLUSHDB FOO", "-ERR syntax error"),
            ("FLUSHALL SYNC ASYNC", "-ERR syntax error"),
            ("FLUSHDB", "+OK"),
            ("DBSIZE", ":0"),
            ("SELECT 1", "+OK"),
            ("DBSIZE", ":1"),
            ("FLUSHDB async", "+OK"),
            ("GET a", "_"),
            ("SELECT 0", "+OK"),
            ("DBSIZE", ":2"),
            ("GET a", "$40 0123456789012345678901234567890123456789"),
            ("FLUSHALL SYNC", "+OK"),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
            (long, "+OK"),
            ("DBSIZE", ":1"),
        ]);
    }

    #[test]
    fn swapping() {
        check(&[
            ("SET a 0123456789012345678901234567890123456789", "+OK"),
            ("SELECT 1", "+OK"),
            ("MSET b 1 c 2", "+OK"),
            ("SWAPDB 0 1", "+OK"),
            ("DBSIZE", ":1"),
            ("GET a", "$40 0123456789012345678901234567890123456789"),
            ("SELECT 0", "+OK"),
            ("DBSIZE", ":2"),
            ("GET b", "$1 1"),
            ("SET d 3", "+OK"),
            ("SWAPDB 1 15", "+OK"),
            ("SWAPDB 1 1", "+OK"),
            ("SELECT 1", "+OK"),
            ("DBSIZE", ":0"),
            ("SELECT 15", "+OK"),
            ("KEYS *", "[$1 a]"),
            ("SWAPDB 0 15", "+OK"),
            ("SCAN 0", "[$1 0, [$1 b, $1 c, $1 d]]"),
            ("FLUSHDB", "+OK"),
            ("SELECT 0", "+OK"),
            ("KEYS *", "[$1 a]"),
            ("SWAPDB x 0", "-ERR invalid first DB index"),
            ("SWAPDB x x", "-ERR invalid first DB index"),
            ("SWAPDB 16 x", "-ERR invalid second DB index"),
            ("SWAPDB 99999999999 0", "-ERR invalid first DB index"),
            ("SWAPDB 0 16", "-ERR DB index is out of range"),
            ("SWAPDB -1 0", "-ERR DB index is out of range"),
        ]);
    }

    #[test]
    fn changes_are_counted() {
        let mut server = Harness::new(true);
        server.run("MSET a 1 b 2 c 3");
        for (line, changes) in
            [("SWAPDB 0 1", 1), ("FLUSHDB", 0), ("FLUSHALL", 3), ("FLUSHALL", 0), ("SWAPDB 1 1", 1)]
        {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }
}
