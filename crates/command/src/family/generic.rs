//! Keys whatever they hold: whether they exist, their type, their removal and their move to
//! another name or database.
//!
//! What moves or is copied leaves its place on flash behind: a record there carries the key and
//! the table that it belongs to, so a value under a new name is new to the log.

use keyspace::{DB_COUNT, Key};
use resp::{Args, Reply};
use value::{Kind, parse_i64};

use super::room::check_copies;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);

const REMOVED: KeyFlags = KeyFlags::RM.and(KeyFlags::DELETE);
/// A key whose value moves away.
const MOVED: KeySpec =
    KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE), Needs::Value);

const SAME_OBJECT: CommandError = fixed("ERR source and destination objects are the same");
const DB_OUT_OF_RANGE: CommandError = fixed("ERR DB index is out of range");
const NOT_AN_INT: CommandError =
    fixed("ERR value is out of range, value must between -2147483648 and 2147483647");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "DEL",
        arity: -2,
        flags: Flags::WRITE,
        keys: &[KeySpec::from(1, 1, REMOVED, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Removes keys and answers how many there were.",
            complexity: "O(N) for N keys; flash is not read",
            syntax: "key [key ...]",
        },
        run: remove,
    },
    Command {
        name: "UNLINK",
        arity: -2,
        flags: WRITE_FAST,
        keys: &[KeySpec::from(1, 1, REMOVED, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "4.0.0",
            summary: "Removes keys and answers how many there were.",
            complexity: "O(N) for N keys; flash is not read",
            syntax: "key [key ...]",
        },
        run: remove,
    },
    Command {
        name: "EXISTS",
        arity: -2,
        flags: READ_FAST,
        keys: &[KeySpec::from(1, 1, KeyFlags::RO, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Counts the named keys that exist; one that is named twice counts twice.",
            complexity: "O(N) for N keys; flash is not read",
            syntax: "key [key ...]",
        },
        run: exists,
    },
    Command {
        name: "TYPE",
        arity: 2,
        flags: READ_FAST,
        keys: &[KeySpec::at(1, KeyFlags::RO, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Names the type of a key's value.",
            complexity: "O(1); flash is not read",
            syntax: "key",
        },
        run: type_of,
    },
    Command {
        name: "TOUCH",
        arity: -2,
        flags: READ_FAST,
        keys: &[KeySpec::from(1, 1, KeyFlags::RO, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "3.2.1",
            summary: "Counts an access to each key and answers how many of them exist.",
            complexity: "O(N) for N keys; flash is not read",
            syntax: "key [key ...]",
        },
        run: touch,
    },
    Command {
        name: "COPY",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[
            KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value),
            KeySpec::at(2, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly),
        ],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "6.2.0",
            summary: "Copies a value with its expiry to another key, if need be in another database.",
            complexity: "O(N) for a value of N bytes",
            syntax: "source destination [DB destination-db] [REPLACE]",
        },
        run: copy,
    },
    Command {
        name: "MOVE",
        arity: 3,
        flags: WRITE_FAST,
        keys: &[KeySpec::at(
            1,
            KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE),
            Needs::Value,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Moves a key to another database, unless that has the key already.",
            complexity: "O(1), and one read when the value is on flash",
            syntax: "key db",
        },
        run: move_to_db,
    },
    Command {
        name: "RENAME",
        arity: 3,
        flags: Flags::WRITE,
        keys: &[MOVED, KeySpec::at(2, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Gives a key another name, in the place of what had that name.",
            complexity: "O(1), and one read when the value is on flash",
            syntax: "key newkey",
        },
        run: rename,
    },
    Command {
        name: "RENAMENX",
        arity: 3,
        flags: WRITE_FAST,
        keys: &[MOVED, KeySpec::at(2, KeyFlags::OW.and(KeyFlags::INSERT), Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Gives a key another name unless that name is taken.",
            complexity: "O(1), and one read when the value is on flash",
            syntax: "key newkey",
        },
        run: rename_to_new,
    },
];

fn remove(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(cx, reply, Cx::remove)
}

fn exists(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(cx, reply, |cx, key| {
        let exists = cx.exists(key);
        cx.count_lookup(key, exists);
        exists
    })
}

fn touch(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(cx, reply, |cx, key| {
        let exists = cx.db(key).into_read(key, false).is_some();
        cx.count_lookup(key, exists);
        exists
    })
}

/// Answers for how many of the command's keys `holds` is true.
fn count<'a, 'k>(
    cx: &mut Cx<'a, 'k>,
    reply: &mut Reply,
    mut holds: impl FnMut(&mut Cx<'a, 'k>, &Key<'_>) -> bool,
) -> CommandResult {
    let keys = cx.keys;
    let count = keys.iter().filter(|key| holds(cx, key)).count();
    reply.integer(count as i64);
    Ok(())
}

fn type_of(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let kind = cx.peek(&key).map(|view| Kind::from_bits(view.kind));
    cx.count_lookup(&key, kind.is_some());
    let name = kind.map_or("none", |kind| kind.type_name());
    reply.simple(name);
    Ok(())
}

/// The options of COPY.
struct CopyOptions {
    db: u8,
    replace: bool,
}

impl CopyOptions {
    fn parse(args: Args<'_>, selected: u8) -> Result<CopyOptions, CommandError> {
        let mut options = CopyOptions { db: selected, replace: false };
        let mut rest = args.from(3).iter();
        while let Some(option) = rest.next() {
            if option.eq_ignore_ascii_case(b"REPLACE") {
                options.replace = true;
            } else if option.eq_ignore_ascii_case(b"DB") {
                options.db = db_index(rest.next().ok_or(CommandError::SYNTAX)?)?;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(options)
    }
}

fn copy(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = CopyOptions::parse(args, cx.db)?;
    let (source, target) = (cx.key(0), cx.key(1));
    if options.db == cx.db && source.bytes == target.bytes {
        return Err(SAME_OBJECT);
    }
    let exists = cx.exists(&source);
    cx.count_lookup(&source, exists);
    if !exists {
        reply.integer(0);
        return Ok(());
    }
    let is_taken = cx.db_at(options.db, &target).peek(&target).is_some();
    let copied = options.replace || !is_taken;
    if copied {
        let bytes = cx.copied_bytes(&source);
        check_copies(cx, &source, bytes, reply)?;
        cx.copy_value(&source, options.db, &target)?;
        report_replaced(cx, (options.db, &target), is_taken);
        cx.report_in(options.db, &target, Event::COPY_TO, 1);
    }
    reply.integer(copied.into());
    Ok(())
}

fn move_to_db(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let db = db_index(&args[2])?;
    let key = cx.key(0);
    if db == cx.db {
        return Err(SAME_OBJECT);
    }
    let moved = cx.exists(&key) && cx.db_at(db, &key).peek(&key).is_none();
    if moved {
        let bytes = cx.moved_bytes(&key, db, &key);
        check_copies(cx, &key, bytes, reply)?;
        cx.move_value(&key, db, &key)?;
        cx.report(&key, Event::MOVE_FROM, 0);
        cx.report_in(db, &key, Event::MOVE_TO, 1);
    }
    reply.integer(moved.into());
    Ok(())
}

fn rename(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (source, target) = (cx.key(0), cx.key(1));
    if !cx.exists(&source) {
        return Err(CommandError::NO_SUCH_KEY);
    }
    if source.bytes != target.bytes {
        move_to_key(cx, &source, &target, reply)?;
    }
    reply.ok();
    Ok(())
}

fn rename_to_new(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (source, target) = (cx.key(0), cx.key(1));
    if !cx.exists(&source) {
        return Err(CommandError::NO_SUCH_KEY);
    }
    let renamed = !cx.exists(&target);
    if renamed {
        move_to_key(cx, &source, &target, reply)?;
    }
    reply.integer(renamed.into());
    Ok(())
}

/// Moves a value that exists to another key, over what that holds.
fn move_to_key(
    cx: &mut Cx<'_, '_>,
    source: &Key<'_>,
    target: &Key<'_>,
    reply: &Reply,
) -> CommandResult {
    let bytes = cx.moved_bytes(source, cx.db, target);
    check_copies(cx, source, bytes, reply)?;
    let is_taken = cx.exists(target);
    cx.move_value(source, cx.db, target)?;
    report_replaced(cx, (cx.db, target), is_taken);
    cx.report(source, Event::RENAME_FROM, 0);
    cx.report(target, Event::RENAME_TO, 1);
    Ok(())
}

/// Redis removes what a key holds before it gets another value, if it `is_taken`: it is new then.
pub(super) fn report_replaced(cx: &mut Cx<'_, '_>, (db, key): (u8, &Key<'_>), is_taken: bool) {
    if is_taken {
        cx.report_in(db, key, Event::NEW, 0);
    }
}

/// A database named by an argument.
fn db_index(text: &[u8]) -> Result<u8, CommandError> {
    let number = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
    let number = i32::try_from(number).map_err(|_| NOT_AN_INT)?;
    u8::try_from(number).ok().filter(|&db| usize::from(db) < DB_COUNT).ok_or(DB_OUT_OF_RANGE)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn removing_counting_and_touching() {
        check(&[
            ("MSET a 1 b 2 c 3 d 4", "+OK"),
            ("EXISTS a a b missing", ":3"),
            ("TOUCH a b a missing", ":3"),
            ("DEL a a missing", ":1"),
            ("UNLINK b c", ":2"),
            ("EXISTS a b c d", ":1"),
            ("DEL", "-ERR wrong number of arguments for 'del' command"),
            ("TYPE d", "+string"),
            ("TYPE a", "+none"),
        ]);
    }

    #[test]
    fn copying() {
        check(&[
            ("SET a 0123456789012345678901234567890123456789 PX 5000", "+OK"),
            ("SET b 2", "+OK"),
            ("COPY a b", ":0"),
            ("COPY missing b", ":0"),
            ("COPY missing b REPLACE", ":0"),
            ("COPY a c", ":1"),
            ("GET c", "$40 0123456789012345678901234567890123456789"),
            ("PTTL c", ":5000"),
            ("COPY b a REPLACE", ":1"),
            ("GET a", "$1 2"),
            ("PTTL a", ":-1"),
            ("COPY c c DB 3", ":1"),
            ("COPY c c DB 3", ":0"),
            ("COPY a c DB 3 replace", ":1"),
            ("COPY b c db 1 DB 2", ":1"),
            ("SELECT 3", "+OK"),
            ("GET c", "$1 2"),
            ("SELECT 2", "+OK"),
            ("GET c", "$1 2"),
            ("SELECT 1", "+OK"),
            ("EXISTS c", ":0"),
        ]);
    }

    #[test]
    fn copies_refused() {
        let same = "-ERR source and destination objects are the same";
        check(&[
            ("SET a 1", "+OK"),
            ("COPY a a", same),
            ("COPY missing missing", same),
            ("COPY a a DB 0 REPLACE", same),
            ("COPY a b DB", "-ERR syntax error"),
            ("COPY a b FOO", "-ERR syntax error"),
            ("COPY a b DB x", "-ERR value is not an integer or out of range"),
            ("COPY a b DB 16", "-ERR DB index is out of range"),
            ("COPY a b DB -1", "-ERR DB index is out of range"),
            ("COPY a b DB 256", "-ERR DB index is out of range"),
            ("COPY a a DB 1", ":1"),
        ]);
    }

    #[test]
    fn moving_to_another_database() {
        let same = "-ERR source and destination objects are the same";
        let range = "-ERR value is out of range, value must between -2147483648 and 2147483647";
        check(&[
            ("SET a 0123456789012345678901234567890123456789 PX 5000", "+OK"),
            ("MOVE a 0", same),
            ("MOVE missing 0", same),
            ("MOVE a x", "-ERR value is not an integer or out of range"),
            ("MOVE a 16", "-ERR DB index is out of range"),
            ("MOVE a 99999999999", range),
            ("MOVE missing 9", ":0"),
            ("MOVE a 9", ":1"),
            ("EXISTS a", ":0"),
            ("MOVE a 9", ":0"),
            ("SET a new", "+OK"),
            ("MOVE a 9", ":0"),
            ("GET a", "$3 new"),
            ("SELECT 9", "+OK"),
            ("GET a", "$40 0123456789012345678901234567890123456789"),
            ("PTTL a", ":5000"),
        ]);
    }

    #[test]
    fn renaming() {
        check(&[
            ("SET a 0123456789012345678901234567890123456789 PX 5000", "+OK"),
            ("RENAME a a", "+OK"),
            ("RENAMENX a a", ":0"),
            ("RENAME missing a", "-ERR no such key"),
            ("RENAMENX missing missing", "-ERR no such key"),
            ("RENAME a b", "+OK"),
            ("EXISTS a", ":0"),
            ("GET b", "$40 0123456789012345678901234567890123456789"),
            ("PTTL b", ":5000"),
            ("SET c 0000000000000000000000000000000000000000000000000", "+OK"),
            ("RENAMENX b c", ":0"),
            ("RENAME c b", "+OK"),
            ("PTTL b", ":-1"),
            ("GET b", "$49 0000000000000000000000000000000000000000000000000"),
            ("RENAMENX b c", ":1"),
            ("EXISTS b", ":0"),
        ]);
    }

    #[test]
    fn expired_keys_are_missing() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for key in ["a", "b", "c", "d", "e", "f", "g", "target"] {
                server.run(&format!("SET {key} {LONG} PX 10"));
            }
            server.run("SET other 1");
            server.now_ms += 10;
            for (line, expected) in [
                ("DEL a", ":0"),
                ("EXISTS b", ":0"),
                ("TOUCH c", ":0"),
                ("TYPE d", "+none"),
                ("COPY e other REPLACE", ":0"),
                ("MOVE f 1", ":0"),
                ("RENAME g other", "-ERR no such key"),
                ("RENAMENX other target", ":1"),
                ("GET target", "$1 1"),
            ] {
                assert_eq!(server.run(line), expected, "{line}");
            }
        }
    }

    #[test]
    fn changes_are_counted() {
        let mut server = Harness::new(true);
        server.run("MSET a 1 b 2 c 3 d 4");
        for (line, changes) in [
            ("DEL a b missing", 2),
            ("EXISTS c d", 0),
            ("COPY c e", 1),
            ("COPY c e", 0),
            ("MOVE e 1", 1),
            ("RENAME c d", 1),
            ("RENAME d d", 0),
            ("RENAMENX d c", 1),
        ] {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }
}
