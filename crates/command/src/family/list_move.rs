//! Lists of several keys: LMOVE, RPOPLPUSH and LMPOP.

use std::iter::once;

use resp::{Args, Reply};
use value::parse_i64;

use super::list::{remove_popped, write_elements};
use crate::collection::End;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::room::check_room;
use crate::logged::Arg;
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

pub(super) const POPPED: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE);
const INSERTED: KeyFlags = KeyFlags::RW.and(KeyFlags::INSERT);

const MOVE: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::REPLIES_VALUES);
pub(super) const SOURCE_AND_TARGET: &[KeySpec] =
    &[KeySpec::at(1, POPPED, Needs::Value), KeySpec::at(2, INSERTED, Needs::Value)];

const NO_KEYS: CommandError = fixed("ERR numkeys should be greater than 0");
const NO_COUNT: CommandError = fixed("ERR count should be greater than 0");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "LMOVE",
        arity: 5,
        flags: MOVE,
        keys: SOURCE_AND_TARGET,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "6.2.0",
            summary: "Takes an element from an end of a list, puts it at an end of another one and returns it.",
            complexity: "O(1)",
            syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        },
        run: lmove,
    },
    Command {
        name: "RPOPLPUSH",
        arity: 3,
        flags: MOVE,
        keys: SOURCE_AND_TARGET,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.2.0",
            summary: "Takes an element from the tail of a list, puts it at the head of another one and returns it.",
            complexity: "O(1)",
            syntax: "source destination",
        },
        run: rpoplpush,
    },
    Command {
        name: "LMPOP",
        arity: -4,
        flags: Flags::WRITE.and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES),
        keys: &[KeySpec {
            flags: POPPED,
            needs: Needs::Value,
            begin: Begin::Index(1),
            find: Find::Count { at: 0, first: 1, step: 1 },
        }],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "7.0.0",
            summary: "Returns elements from an end of the first list that there is, with its key, and removes them.",
            complexity: "O(N+M) for N keys and M elements that are returned",
            syntax: "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        },
        run: lmpop,
    },
];

fn lmove(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let ends = parse_ends(args)?;
    move_or_null(cx, ends, reply)
}

/// From where an element is taken, and where it goes.
pub(super) fn parse_ends(args: Args<'_>) -> Result<(End, End), CommandError> {
    let end = |index| End::parse(&args[index]).ok_or(CommandError::SYNTAX);
    Ok((end(3)?, end(4)?))
}

fn rpoplpush(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    move_or_null(cx, (End::Right, End::Left), reply)
}

fn move_or_null(cx: &mut Cx<'_, '_>, ends: (End, End), reply: &mut Reply) -> CommandResult {
    if !move_one(cx, ends, reply)? {
        reply.null();
    }
    Ok(())
}

/// Moves an element and answers it. False: there is none, and nothing was answered.
pub(super) fn move_one(
    cx: &mut Cx<'_, '_>,
    (from, to): (End, End),
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let (source, target, reply_bytes_max) = (cx.key(0), cx.key(1), cx.reply_bytes_max);
    let Some(mut list) = cx.read_list(&source)? else { return Ok(false) };
    let len = list.len();
    let taken = from.positions(1, len);
    let element = list.at(taken.start)?;
    check_room(&source, element.len() as u64, reply_bytes_max, reply)?;
    let element = element.to_vec();
    if source.bytes == target.bytes {
        cx.rotate_elements(&source, (from, to), &element)?;
        cx.report(&source, to.pushed(), 0);
        cx.report(&source, from.popped(), 1);
    } else {
        cx.prepare_removal(&source, &taken)?;
        cx.push_elements(&target, to, once(&element[..]))?;
        cx.report(&target, to.pushed(), 0);
        remove_popped(cx, &source, (from, taken, len))?;
    }
    reply.bulk(&element);
    Ok(true)
}

fn lmpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = parse_pop_of_first(args)?;
    if !pop_of_first(cx, options, reply)? {
        reply.null_array();
    }
    Ok(())
}

/// From which end how many elements are popped. The number of keys is argument 1.
pub(super) fn parse_pop_of_first(args: Args<'_>) -> Result<(End, u64), CommandError> {
    let numkeys = parse_positive(&args[1]).ok_or(NO_KEYS)?;
    // The name and this number are in front of the keys.
    let options = (numkeys as usize).saturating_add(2);
    let end = args.get(options).and_then(End::parse).ok_or(CommandError::SYNTAX)?;
    let count = match args.from(options + 1).len() {
        0 => 1,
        2.. if args[options + 1].eq_ignore_ascii_case(b"COUNT") => {
            parse_positive(&args[options + 2]).ok_or(NO_COUNT)?
        }
        _ => return Err(CommandError::SYNTAX),
    };
    if args.len() > options + 3 {
        return Err(CommandError::SYNTAX);
    }
    Ok((end, count))
}

/// Pops elements of the first list that there is, and answers its key and them. False: there is none, and
/// nothing was answered.
pub(super) fn pop_of_first(
    cx: &mut Cx<'_, '_>,
    (end, count): (End, u64),
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let reply_bytes_max = cx.reply_bytes_max;
    for key in cx.candidate_keys() {
        let Some(mut list) = cx.read_list(key)? else { continue };
        let len = list.len();
        let popped = end.positions(count, len);
        reply.array(2);
        reply.bulk(key.bytes);
        reply.array((popped.end - popped.start) as usize);
        let of = (key, reply_bytes_max);
        write_elements(&mut list, popped.clone(), end == End::Right, of, reply)?;
        let count = popped.end - popped.start;
        remove_popped(cx, key, (end, popped, len))?;
        let name = end.popped().name.as_bytes();
        cx.log_as(&[Arg::Bytes(name), Arg::Bytes(key.bytes), Arg::Number(count as i64)]);
        return Ok(true);
    }
    Ok(false)
}

fn parse_positive(text: &[u8]) -> Option<u64> {
    u64::try_from(parse_i64(text)?).ok().filter(|&number| number > 0)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn elements_move_between_lists() {
        check(&[
            ("RPUSH a 1 2 3", ":3"),
            ("RPOPLPUSH a b", "$1 3"),
            ("RPOPLPUSH a b", "$1 2"),
            ("LRANGE b 0 -1", "[$1 2, $1 3]"),
            ("LMOVE b a LEFT RIGHT", "$1 2"),
            ("LMOVE b a right left", "$1 3"),
            ("EXISTS b", ":0"),
            ("LRANGE a 0 -1", "[$1 3, $1 1, $1 2]"),
            ("LMOVE a c LEFT LEFT", "$1 3"),
            ("LMOVE a c RIGHT RIGHT", "$1 2"),
            ("LRANGE c 0 -1", "[$1 3, $1 2]"),
            ("LMOVE missing c LEFT LEFT", "_"),
            ("RPOPLPUSH missing missing", "_"),
            ("EXISTS missing", ":0"),
        ]);
    }

    #[test]
    fn one_list_may_be_both() {
        check(&[
            ("RPUSH a 1 2 3", ":3"),
            ("RPOPLPUSH a a", "$1 3"),
            ("LRANGE a 0 -1", "[$1 3, $1 1, $1 2]"),
            ("LMOVE a a LEFT RIGHT", "$1 3"),
            ("LMOVE a a LEFT LEFT", "$1 1"),
            ("LMOVE a a RIGHT RIGHT", "$1 3"),
            ("LRANGE a 0 -1", "[$1 1, $1 2, $1 3]"),
            ("RPUSH one 1", ":1"),
            ("EXPIRE one 100", ":1"),
            ("RPOPLPUSH one one", "$1 1"),
            ("LRANGE one 0 -1", "[$1 1]"),
            ("TTL one", ":100"),
        ]);
    }

    #[test]
    fn long_elements_move_from_flash_to_flash() {
        let element = format!("$70 {LONG}");
        check(&[
            (&format!("RPUSH a {LONG} {LONG}"), ":2"),
            (&format!("RPUSH b {LONG}"), ":1"),
            ("RPOPLPUSH a b", &element),
            ("LMOVE b b LEFT RIGHT", &element),
            ("LMPOP 3 missing b a LEFT", &format!("[$1 b, [{element}]]")),
            ("LMOVE a b LEFT LEFT", &element),
            ("LLEN b", ":2"),
            ("EXISTS a", ":0"),
        ]);
    }

    #[test]
    fn the_target_is_looked_at_only_if_there_is_something_to_move() {
        let syntax = "-ERR syntax error";
        check(&[
            ("SET s text", "+OK"),
            (&format!("RPUSH a {LONG}"), ":1"),
            ("RPOPLPUSH missing s", "_"),
            ("RPOPLPUSH a s", WRONG),
            ("RPOPLPUSH s a", WRONG),
            ("LMOVE a s LEFT LEFT", WRONG),
            ("LMOVE s s LEFT LEFT", WRONG),
            ("LLEN a", ":1"),
            ("LMOVE s a LEFT UP", syntax),
            ("LMOVE missing a '' LEFT", syntax),
            ("LMOVE a a LEFT", "-ERR wrong number of arguments for 'lmove' command"),
        ]);
    }

    #[test]
    fn the_first_list_that_there_is_loses_elements() {
        check(&[
            ("LMPOP 1 a LEFT", "_"),
            ("LMPOP 2 a b RIGHT COUNT 5", "_"),
            ("RPUSH a 1 2 3 4", ":4"),
            ("RPUSH b x y", ":2"),
            ("LMPOP 1 a LEFT", "[$1 a, [$1 1]]"),
            ("LMPOP 3 missing a b right count 2", "[$1 a, [$1 4, $1 3]]"),
            ("LMPOP 2 a b LEFT COUNT 9223372036854775807", "[$1 a, [$1 2]]"),
            ("EXISTS a", ":0"),
            ("LMPOP 2 a b LEFT COUNT 10", "[$1 b, [$1 x, $1 y]]"),
            ("EXISTS b", ":0"),
            ("SET s text", "+OK"),
            ("RPUSH a 1", ":1"),
            ("LMPOP 2 s a LEFT", WRONG),
            ("LMPOP 2 missing s LEFT", WRONG),
            ("LMPOP 2 a s LEFT", "[$1 a, [$1 1]]"),
        ]);
    }

    #[test]
    fn arguments_of_lmpop_refused() {
        let (no_keys, no_count) =
            ("-ERR numkeys should be greater than 0", "-ERR count should be greater than 0");
        let syntax = "-ERR syntax error";
        check(&[
            ("SET s text", "+OK"),
            ("LMPOP 0 s LEFT", no_keys),
            ("LMPOP -1 s LEFT", no_keys),
            ("LMPOP x s LEFT", no_keys),
            ("LMPOP 2 s LEFT", syntax),
            ("LMPOP 1 s UP", syntax),
            ("LMPOP 1 s t LEFT", syntax),
            ("LMPOP 9223372036854775807 s LEFT", syntax),
            ("LMPOP 4294967296 s LEFT", syntax),
            ("LMPOP 1 s LEFT COUNT", syntax),
            ("LMPOP 1 s LEFT COUNT 0", no_count),
            ("LMPOP 1 s LEFT COUNT -1", no_count),
            ("LMPOP 1 s LEFT COUNT x", no_count),
            ("LMPOP 1 s LEFT COUNT x y", no_count),
            ("LMPOP 1 s LEFT COUNT 1 y", syntax),
            ("LMPOP 1 s LEFT COUNT 1 COUNT 2", syntax),
            ("LMPOP 1 s LEFT FIRST 1", syntax),
            ("LMPOP 1 s LEFT COUNT 1", WRONG),
            ("LMPOP 1 s", "-ERR wrong number of arguments for 'lmpop' command"),
        ]);
    }

    #[test]
    fn what_moves_counts_once_and_what_is_popped_by_elements() {
        let mut server = Harness::new(true);
        server.run("RPUSH a 1 2 3 4");
        for (line, changes) in [
            ("RPOPLPUSH a b", 1),
            ("LMOVE a a LEFT LEFT", 1),
            ("LMOVE missing a LEFT LEFT", 0),
            ("LMPOP 2 missing a LEFT COUNT 2", 2),
            ("LMPOP 1 missing LEFT", 0),
        ] {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }
}
