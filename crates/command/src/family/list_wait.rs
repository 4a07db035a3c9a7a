//! Lists that are waited for: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH and BLMPOP.

use resp::{Args, Reply};

use super::list_move::{
    POPPED, SOURCE_AND_TARGET, move_one, parse_ends, parse_pop_of_first, pop_of_first,
};
use crate::collection::End;
use crate::cx::Cx;
use crate::error::CommandResult;
use crate::family::room::check_room;
use crate::logged::Arg;
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, KeySpec, Locks, Needs};
use crate::wait::{Deadline, Wait};

const POP: Flags =
    Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING).and(Flags::REPLIES_VALUES);
const MOVE: Flags = POP.and(Flags::DENYOOM);
/// All arguments but the last.
const POPPED_KEYS: &[KeySpec] = &[KeySpec {
    flags: POPPED,
    needs: Needs::Value,
    begin: Begin::Index(1),
    find: Find::Range { last: -2, step: 1 },
}];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "BLPOP",
        arity: -3,
        flags: POP,
        keys: POPPED_KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "2.0.0",
            summary: "Takes the first element of the first list that there is, waiting for one if there is none.",
            complexity: "O(N) for N keys",
            syntax: "key [key ...] timeout",
        },
        run: blpop,
    },
    Command {
        name: "BRPOP",
        arity: -3,
        flags: POP,
        keys: POPPED_KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "2.0.0",
            summary: "Takes the last element of the first list that there is, waiting for one if there is none.",
            complexity: "O(N) for N keys",
            syntax: "key [key ...] timeout",
        },
        run: brpop,
    },
    Command {
        name: "BLMOVE",
        arity: 6,
        flags: MOVE,
        keys: SOURCE_AND_TARGET,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "6.2.0",
            summary: "Takes an element from an end of a list, waiting for one if there is none, puts it at an end of another one and returns it.",
            complexity: "O(N) for N elements of both lists",
            syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
        },
        run: blmove,
    },
    Command {
        name: "BRPOPLPUSH",
        arity: 4,
        flags: MOVE,
        keys: SOURCE_AND_TARGET,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "2.2.0",
            summary: "Takes the last element of a list, waiting for one if there is none, puts it at the head of another one and returns it.",
            complexity: "O(N) for N elements of both lists",
            syntax: "source destination timeout",
        },
        run: brpoplpush,
    },
    Command {
        name: "BLMPOP",
        arity: -5,
        flags: Flags::WRITE.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES),
        keys: &[KeySpec {
            flags: POPPED,
            needs: Needs::Value,
            begin: Begin::Index(2),
            find: Find::Count { at: 0, first: 1, step: 1 },
        }],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "7.0.0",
            summary: "Returns elements from an end of the first list that there is, with its key, and removes them, waiting for a list if there is none.",
            complexity: "O(N+M) for N keys and M elements that are returned, and a move of those behind",
            syntax: "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        },
        run: blmpop,
    },
];

fn blpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop(cx, args, End::Left, reply)
}

fn brpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop(cx, args, End::Right, reply)
}

fn pop(cx: &mut Cx<'_, '_>, args: Args<'_>, end: End, reply: &mut Reply) -> CommandResult {
    let deadline = Deadline::after_seconds(&args[args.len() - 1], cx.now_ms)?;
    let reply_bytes_max = cx.reply_bytes_max;
    for key in cx.candidate_keys() {
        let is_popped = cx.pop_element(key, end, |element| {
            check_room(key, (key.bytes.len() + element.len()) as u64, reply_bytes_max, reply)?;
            reply.array(2);
            reply.bulk(key.bytes);
            reply.bulk(element);
            Ok(())
        })?;
        if is_popped {
            cx.report(key, end.popped(), 1);
            cx.report_if_gone(key);
            cx.log_as(&[Arg::Bytes(end.popped().name.as_bytes()), Arg::Bytes(key.bytes)]);
            return Ok(());
        }
    }
    cx.wait(Wait::until(deadline), reply, Reply::null_array)
}

fn blmove(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let ends = parse_ends(args)?;
    let deadline = Deadline::after_seconds(&args[5], cx.now_ms)?;
    let [source, target, from, to] = [1, 2, 3, 4].map(Arg::Sent);
    let logged = [Arg::Bytes(b"LMOVE"), source, target, from, to];
    move_or_wait(cx, ends, (deadline, &logged), reply)
}

fn brpoplpush(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let deadline = Deadline::after_seconds(&args[3], cx.now_ms)?;
    let logged = [Arg::Bytes(b"RPOPLPUSH"), Arg::Sent(1), Arg::Sent(2)];
    move_or_wait(cx, (End::Right, End::Left), (deadline, &logged), reply)
}

fn move_or_wait(
    cx: &mut Cx<'_, '_>,
    ends: (End, End),
    (deadline, logged): (Deadline, &[Arg<'_>]),
    reply: &mut Reply,
) -> CommandResult {
    if !move_one(cx, ends, reply)? {
        return cx.wait(Wait::until(deadline), reply, Reply::null);
    }
    cx.log_as(logged);
    Ok(())
}

fn blmpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (end, count) = parse_pop_of_first(args.from(1))?;
    let deadline = Deadline::after_seconds(&args[1], cx.now_ms)?;
    match pop_of_first(cx, (end, count), reply)? {
        true => Ok(()),
        false => cx.wait(Wait::until(deadline), reply, Reply::null_array),
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{check, check_events};

    /// What the harness shows of a command that waits.
    const WAITS: &str = "+waits";

    #[test]
    fn what_is_there_is_taken_at_once() {
        check(&[
            ("RPUSH a 1 2 3 4 5", ":5"),
            ("RPUSH b x", ":1"),
            ("BLPOP missing a b 0", "[$1 a, $1 1]"),
            ("BRPOP missing a b 1.5", "[$1 a, $1 5]"),
            ("BLPOP b a 0", "[$1 b, $1 x]"),
            ("BLMOVE a b LEFT RIGHT 0", "$1 2"),
            ("BRPOPLPUSH a b 0", "$1 4"),
            ("LRANGE b 0 -1", "[$1 4, $1 2]"),
            ("BLMPOP 0 2 missing b LEFT COUNT 5", "[$1 b, [$1 4, $1 2]]"),
            ("BLMPOP 0 2 b a right", "[$1 a, [$1 3]]"),
            ("EXISTS a b", ":0"),
        ]);
    }

    #[test]
    fn what_is_not_there_is_waited_for() {
        check(&[
            ("BLPOP a 0", WAITS),
            ("BRPOP a b 0.1", WAITS),
            ("BLMOVE a b LEFT RIGHT 0", WAITS),
            ("BRPOPLPUSH a b 0", WAITS),
            ("BLMPOP 0 1 a LEFT", WAITS),
        ]);
    }

    #[test]
    fn arguments_that_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        let no_float = "-ERR timeout is not a float or out of range";
        check(&[
            ("SET s v", "+OK"),
            ("RPUSH l 1", ":1"),
            ("BLPOP missing s l 0", wrong),
            ("BLMOVE s l LEFT LEFT 0", wrong),
            ("BLMOVE l s LEFT LEFT 0", wrong),
            ("BLMPOP 0 1 s LEFT", wrong),
            ("BLPOP l x", no_float),
            ("BLPOP l -1", "-ERR timeout is negative"),
            ("BLMOVE l l LEFT LEFT x", no_float),
            ("BLMOVE l l LEFT MIDDLE x", "-ERR syntax error"),
            ("BLMPOP x 1 l LEFT", no_float),
            ("BLMPOP x 0 l LEFT", "-ERR numkeys should be greater than 0"),
            ("BLMPOP x 1 l MIDDLE", "-ERR syntax error"),
            ("BLMPOP 0 0 l LEFT", "-ERR numkeys should be greater than 0"),
            ("BLMPOP 0 1 l LEFT COUNT 0", "-ERR count should be greater than 0"),
            ("BLMPOP 0 1 l MIDDLE", "-ERR syntax error"),
            ("LLEN l", ":1"),
        ]);
    }

    #[test]
    fn events() {
        check_events(&[
            ("RPUSH l 1 2", "new l, rpush l"),
            ("BLPOP x l 0", "lpop l"),
            ("BLMOVE l m LEFT LEFT 0", "new m, lpush m, lpop l, del l"),
            ("BLPOP l 0", ""),
        ]);
    }
}
