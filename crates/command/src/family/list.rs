//! Lists at their ends and by position.

use std::ops::{ControlFlow, Range};

use keyspace::Key;
use resp::{Args, Reply};
use value::parse_i64;

use crate::collection::{End, List};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::room::{FRAME_BYTES, Room, check_room};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const PUSH: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);
const POP: Flags = Flags::WRITE.and(Flags::FAST).and(Flags::REPLIES_VALUES);

const INSERTED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)];
const POPPED: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE), Needs::Value)];

const NEGATIVE: CommandError = fixed("ERR value is out of range, must be positive");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "LPUSH",
        arity: -3,
        flags: PUSH,
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Puts elements at the head of a list, one after another; it is made if there is none.",
            complexity: "O(N) for N elements",
            syntax: "key element [element ...]",
        },
        run: lpush,
    },
    Command {
        name: "RPUSH",
        arity: -3,
        flags: PUSH,
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Puts elements at the tail of a list, which is made if there is none.",
            complexity: "O(N) for N elements",
            syntax: "key element [element ...]",
        },
        run: rpush,
    },
    Command {
        name: "LPUSHX",
        arity: -3,
        flags: PUSH,
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "2.2.0",
            summary: "Puts elements at the head of a list, if there is one.",
            complexity: "O(N) for N elements",
            syntax: "key element [element ...]",
        },
        run: lpushx,
    },
    Command {
        name: "RPUSHX",
        arity: -3,
        flags: PUSH,
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "2.2.0",
            summary: "Puts elements at the tail of a list, if there is one.",
            complexity: "O(N) for N elements",
            syntax: "key element [element ...]",
        },
        run: rpushx,
    },
    Command {
        name: "LPOP",
        arity: -2,
        flags: POP,
        keys: POPPED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Returns elements from the head of a list and removes them; a list without elements is no key.",
            complexity: "O(N) for N elements that are returned",
            syntax: "key [count]",
        },
        run: lpop,
    },
    Command {
        name: "RPOP",
        arity: -2,
        flags: POP,
        keys: POPPED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Returns elements from the tail of a list, the last one first, and removes them.",
            complexity: "O(N) for N elements that are returned",
            syntax: "key [count]",
        },
        run: rpop,
    },
    Command {
        name: "LLEN",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RO, Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Counts the elements of a list.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: llen,
    },
    Command {
        name: "LINDEX",
        arity: 3,
        flags: Flags::READONLY.and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Returns the element at a position of a list; negative ones count from the tail.",
            complexity: "O(log N) for N elements of the list",
            syntax: "key index",
        },
        run: lindex,
    },
    Command {
        name: "LSET",
        arity: 4,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Puts another element at a position of a list.",
            complexity: "O(log N) for N elements of the list",
            syntax: "key index element",
        },
        run: lset,
    },
];

fn lpush(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    push(cx, args, End::Left, reply)
}

fn rpush(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    push(cx, args, End::Right, reply)
}

fn lpushx(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    push_to_existing(cx, args, End::Left, reply)
}

fn rpushx(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    push_to_existing(cx, args, End::Right, reply)
}

fn push(cx: &mut Cx<'_, '_>, args: Args<'_>, end: End, reply: &mut Reply) -> CommandResult {
    let (key, elements) = (cx.key(0), (2..args.len()).map(|at| &args[at]));
    let len = cx.push_elements(&key, end, elements.clone())?;
    cx.report(&key, end.pushed(), elements.len() as u64);
    reply.integer(len as i64);
    Ok(())
}

fn push_to_existing(
    cx: &mut Cx<'_, '_>,
    args: Args<'_>,
    end: End,
    reply: &mut Reply,
) -> CommandResult {
    if cx.exists(&cx.key(0)) {
        return push(cx, args, end, reply);
    }
    reply.integer(0);
    Ok(())
}

fn lpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop(cx, args, (End::Left, "lpop"), reply)
}

fn rpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop(cx, args, (End::Right, "rpop"), reply)
}

fn pop(
    cx: &mut Cx<'_, '_>,
    args: Args<'_>,
    (end, command): (End, &str),
    reply: &mut Reply,
) -> CommandResult {
    let count = match args.len() {
        2 => None,
        3 => Some(parse_count(&args[2])?),
        _ => {
            let text = format!("ERR wrong number of arguments for '{command}' command");
            return Err(CommandError::owned(text));
        }
    };
    match count {
        None => pop_one(cx, end, reply),
        Some(count) => pop_some(cx, end, count, reply),
    }
}

fn pop_one(cx: &mut Cx<'_, '_>, end: End, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let is_popped = cx.pop_element(&key, end, |element| {
        check_room(&key, element.len() as u64, reply_bytes_max, reply)?;
        reply.bulk(element);
        Ok(())
    })?;
    if is_popped {
        cx.report(&key, end.popped(), 1);
        cx.report_if_gone(&key);
    } else {
        reply.null();
    }
    Ok(())
}

fn pop_some(cx: &mut Cx<'_, '_>, end: End, count: u64, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut list) = cx.read_list(&key)? else {
        reply.null_array();
        return Ok(());
    };
    let len = list.len();
    let popped = end.positions(count, len);
    reply.array((popped.end - popped.start) as usize);
    let of = (&key, reply_bytes_max);
    write_elements(&mut list, popped.clone(), end == End::Right, of, reply)?;
    remove_popped(cx, &key, (end, popped, len))
}

/// As many as cannot be fewer than none.
fn parse_count(text: &[u8]) -> Result<u64, CommandError> {
    let count = parse_i64(text).ok_or(NEGATIVE)?;
    u64::try_from(count).map_err(|_| NEGATIVE)
}

/// Removes what has been written from a list of `len`.
pub(super) fn remove_popped(
    cx: &mut Cx<'_, '_>,
    key: &Key<'_>,
    (end, popped, len): (End, Range<u64>, u64),
) -> CommandResult {
    let count = popped.end - popped.start;
    if count == 0 {
        return Ok(());
    }
    if count == len {
        // Not edited: it would be brought from flash for that.
        cx.db(key).remove(key);
    } else {
        cx.remove_elements(key, popped)?;
    }
    cx.report(key, end.popped(), count);
    cx.report_if_gone(key);
    Ok(())
}

/// Writes the elements at some positions of a key's list, from the tail on if so asked, into a reply that may
/// come to `bytes_max`.
///
/// Errors: [`CommandError::ReplyTooLong`], [`CommandError::NotResident`].
pub(super) fn write_elements(
    list: &mut List<'_>,
    positions: Range<u64>,
    is_backward: bool,
    (key, bytes_max): (&Key<'_>, usize),
    reply: &mut Reply,
) -> CommandResult {
    let count = positions.end - positions.start;
    let average = list.byte_len() / list.len() + FRAME_BYTES;
    if let List::Tree(_) = list {
        // These may be shorter than others.
        check_room(key, count * average / 2, bytes_max, reply)
            .map_err(|_| CommandError::too_long_of(key, count * average))?;
    }
    let mut room = Room::new(bytes_max);
    let _ = list.visit(positions, is_backward, |_, element| {
        if room.takes(element.len() as u64 + FRAME_BYTES, reply) {
            reply.bulk(element);
        }
        ControlFlow::Continue(())
    })?;
    room.end(key, reply)
}

fn llen(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let len = cx.read_list(&key)?.map_or(0, |list| list.len());
    reply.integer(len as i64);
    Ok(())
}

fn lindex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    // Redis does not look at the index where there is nothing to look for.
    let Some(mut list) = cx.read_list(&key)? else {
        reply.null();
        return Ok(());
    };
    match position(&args[2], list.len())? {
        Some(position) => {
            let element = list.at(position)?;
            check_room(&key, element.len() as u64, reply_bytes_max, reply)?;
            reply.bulk(element);
        }
        None => reply.null(),
    }
    Ok(())
}

fn lset(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let mut list = cx.read_list(&key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    let position = position(&args[2], list.len())?.ok_or(CommandError::OUT_OF_RANGE)?;
    let old_len = list.at(position)?.len();
    cx.set_element(&key, position, old_len, &args[3])?;
    cx.report(&key, Event::LSET, 1);
    reply.ok();
    Ok(())
}

/// The position in a list of `len` that an argument stands for; negative ones count from the tail. None:
/// there is no such one.
fn position(text: &[u8], len: u64) -> Result<Option<u64>, CommandError> {
    let index = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
    let position = if index < 0 { index + len as i64 } else { index };
    Ok(u64::try_from(position).ok().filter(|&position| position < len))
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";

    #[test]
    fn elements_are_pushed_and_popped_at_both_ends() {
        check(&[
            ("RPUSH l a b c", ":3"),
            ("LPUSH l x y z", ":6"),
            ("LRANGE l 0 -1", "[$1 z, $1 y, $1 x, $1 a, $1 b, $1 c]"),
            ("LLEN l", ":6"),
            ("TYPE l", "+list"),
            ("OBJECT ENCODING l", "$9 quicklist"),
            ("LPOP l", "$1 z"),
            ("RPOP l", "$1 c"),
            ("RPUSH l ''", ":5"),
            ("RPOP l", "$0"),
            ("LPOP l 2", "[$1 y, $1 x]"),
            ("RPUSH l c d", ":4"),
            ("RPOP l 3", "[$1 d, $1 c, $1 b]"),
            ("RPOP l 3", "[$1 a]"),
            ("EXISTS l", ":0"),
            ("LLEN l", ":0"),
            ("LPUSHX l a b", ":0"),
            ("RPUSHX l a", ":0"),
            ("EXISTS l", ":0"),
            ("LPUSH l m", ":1"),
            ("LPUSHX l a b", ":3"),
            ("RPUSHX l c d", ":5"),
            ("LRANGE l 0 -1", "[$1 b, $1 a, $1 m, $1 c, $1 d]"),
            ("LPOP l 9223372036854775807", "[$1 b, $1 a, $1 m, $1 c, $1 d]"),
            ("TYPE l", "+none"),
        ]);
    }

    #[test]
    fn counts_of_pops() {
        let negative = "-ERR value is out of range, must be positive";
        check(&[
            ("LPOP missing", "_"),
            ("RPOP missing", "_"),
            ("LPOP missing 1", "_"),
            ("RPOP missing 0", "_"),
            ("LPOP missing -1", negative),
            ("RPUSH l a b", ":2"),
            ("LPOP l 0", "[]"),
            ("RPOP l 0", "[]"),
            ("LPOP l -1", negative),
            ("RPOP l x", negative),
            ("LPOP l 1.0", negative),
            ("RPOP l 9223372036854775808", negative),
            ("LPOP l 1 2", "-ERR wrong number of arguments for 'lpop' command"),
            ("RPOP l x y", "-ERR wrong number of arguments for 'rpop' command"),
            ("LPOP", "-ERR wrong number of arguments for 'lpop' command"),
            ("LLEN l", ":2"),
        ]);
    }

    #[test]
    fn positions_count_from_either_end() {
        check(&[
            ("RPUSH l a b c", ":3"),
            ("LINDEX l 0", "$1 a"),
            ("LINDEX l 2", "$1 c"),
            ("LINDEX l 3", "_"),
            ("LINDEX l -1", "$1 c"),
            ("LINDEX l -3", "$1 a"),
            ("LINDEX l -4", "_"),
            ("LINDEX l -9223372036854775808", "_"),
            ("LINDEX l x", "-ERR value is not an integer or out of range"),
            ("LINDEX missing 0", "_"),
            ("LINDEX missing x", "_"),
            ("LSET l 0 A", "+OK"),
            ("LSET l -1 longer", "+OK"),
            ("LSET l 1 ''", "+OK"),
            ("LRANGE l 0 -1", "[$1 A, $0, $6 longer]"),
            ("LSET l 3 x", "-ERR index out of range"),
            ("LSET l -4 x", "-ERR index out of range"),
            ("LSET l x x", "-ERR value is not an integer or out of range"),
            ("LSET missing x x", "-ERR no such key"),
        ]);
    }

    #[test]
    fn long_elements_leave_ram_and_come_back() {
        let longest = LONG.repeat(4);
        check(&[
            (&format!("RPUSH l {LONG} {longest} {LONG}x"), ":3"),
            ("LINDEX l 1", &format!("$280 {longest}")),
            (&format!("LSET l 0 {longest}y"), "+OK"),
            ("LPUSH l a", ":4"),
            ("RPUSH l z", ":5"),
            ("LPOP l 2", &format!("[$1 a, $281 {longest}y]")),
            ("RPOP l 2", &format!("[$1 z, $71 {LONG}x]")),
            ("LLEN l", ":1"),
            ("LSET l -1 short", "+OK"),
            ("RPOP l", "$5 short"),
            ("EXISTS l", ":0"),
        ]);
    }

    #[test]
    fn other_types_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SET s text", "+OK"),
            ("RPUSH l a", ":1"),
            ("LPUSH s a", wrong),
            ("RPUSH s a", wrong),
            ("LPUSHX s a", wrong),
            ("RPUSHX s a", wrong),
            ("LPOP s", wrong),
            ("RPOP s 0", wrong),
            ("RPOP s x", "-ERR value is out of range, must be positive"),
            ("LLEN s", wrong),
            ("LINDEX s x", wrong),
            ("LSET s x x", wrong),
            ("GET l", wrong),
            ("APPEND l x", wrong),
            ("HSET l f v", wrong),
            ("HGET l f", wrong),
            ("MGET l s", "[_, $4 text]"),
            ("SET l text", "+OK"),
            ("TYPE l", "+string"),
        ]);
    }

    #[test]
    fn changes_are_counted_by_elements() {
        let mut server = Harness::new(true);
        for (line, changes) in [
            ("RPUSH l a b c d e", 5),
            ("LPUSHX l x", 1),
            ("LPUSHX missing x", 0),
            ("LPOP l 0", 0),
            ("RPOP l", 1),
            ("LPOP l 3", 3),
            ("LSET l 0 y", 1),
            ("LINDEX l 0", 0),
            ("LPOP l 100", 2),
            ("LPOP l 100", 0),
        ] {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }

    #[test]
    fn lists_that_memory_has_no_room_for() {
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run(&format!("RPUSH l {LONG}"));
            // The head, and a byte for the length of the element.
            server.memory_bytes_max = 4 + 1 + LONG.len() + 3;
            let cases: &[(&str, &str)] = &[
                ("RPUSH l abc", refused),
                ("LPUSH new a b", ":2"),
                ("LINSERT l BEFORE x abc", ":-1"),
                (&format!("LINSERT l BEFORE {LONG} abc"), refused),
                (&format!("LSET l 0 {LONG}abcd"), refused),
                ("LMOVE new l LEFT LEFT", "$1 b"),
                ("LMOVE new l LEFT LEFT", refused),
                ("LLEN new", ":1"),
                ("LLEN l", ":2"),
                (&format!("RPUSH other {LONG}abcd"), refused),
                ("EXISTS other", ":0"),
            ];
            for (line, expected) in cases {
                assert_eq!(server.run(line), *expected, "{line}");
            }
            server.memory_bytes_max = 10;
            for (line, expected) in [
                ("LMOVE l l RIGHT LEFT", format!("$70 {LONG}")),
                ("LSET l 0 short", "+OK".into()),
                ("LRANGE l 0 -1", "[$5 short, $1 b]".into()),
            ] {
                assert_eq!(server.run(line), expected, "{line}");
            }
        }
    }

    #[test]
    fn keys_of_lists_are_carried_and_expire_as_others() {
        let mut server = Harness::new(true);
        for (line, expected) in [
            ("RPUSH l a b", ":2"),
            ("EXPIRE l 100", ":1"),
            ("RPUSH l c", ":3"),
            ("LPOP l", "$1 a"),
            ("TTL l", ":100"),
            ("COPY l copy", ":1"),
            ("RENAME l other", "+OK"),
            ("LRANGE other 0 -1", "[$1 b, $1 c]"),
            ("LPOP copy", "$1 b"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
        server.now_ms += 100_000;
        assert_eq!(server.run("EXISTS other copy"), ":0");
        assert_eq!(server.run("RPUSH other a"), ":1");
        assert_eq!(server.run("TTL other"), ":-1");
    }
}
