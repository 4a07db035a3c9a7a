//! Sorted sets that are waited for: BZPOPMIN, BZPOPMAX and BZMPOP.

use resp::{Args, Reply};

use super::sorted_set_pop::{End, Form, POPPED, parse_pop_of_first, pop_from_first};
use crate::cx::Cx;
use crate::error::CommandResult;
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, Handler, KeySpec, Locks, Needs};
use crate::wait::{Deadline, Wait};

const POP: Flags = Flags::WRITE.and(Flags::BLOCKING).and(Flags::REPLIES_VALUES);

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    pop_command(
        "BZPOPMIN",
        "Removes the member with the lowest score of the first sorted set that there is, and returns it, waiting for one if there is none.",
        bzpopmin,
    ),
    pop_command(
        "BZPOPMAX",
        "Removes the member with the highest score of the first sorted set that there is, and returns it, waiting for one if there is none.",
        bzpopmax,
    ),
    Command {
        name: "BZMPOP",
        arity: -5,
        flags: POP.and(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: POPPED,
            needs: Needs::Value,
            begin: Begin::Index(2),
            find: Find::Count { at: 0, first: 1, step: 1 },
        }],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "7.0.0",
            summary: "Returns members from an end of the first sorted set that there is, with its key, and removes them, waiting for one if there is none.",
            complexity: "O(K+M*log(N)) for K keys and M members of N that are returned",
            syntax: "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
        },
        run: bzmpop,
    },
];

const fn pop_command(name: &'static str, summary: &'static str, run: Handler) -> Command {
    Command {
        name,
        arity: -3,
        flags: POP.and(Flags::NOSCRIPT).and(Flags::FAST),
        keys: &[KeySpec {
            flags: POPPED,
            needs: Needs::Value,
            begin: Begin::Index(1),
            find: Find::Range { last: -2, step: 1 },
        }],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "5.0.0",
            summary,
            complexity: "O(K+log(N)) for K keys and N members",
            syntax: "key [key ...] timeout",
        },
        run,
    }
}

fn bzpopmin(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop_one(cx, args, End::Min, reply)
}

fn bzpopmax(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop_one(cx, args, End::Max, reply)
}

fn pop_one(cx: &mut Cx<'_, '_>, args: Args<'_>, end: End, reply: &mut Reply) -> CommandResult {
    let deadline = Deadline::after_seconds(&args[args.len() - 1], cx.now_ms)?;
    pop_or_wait(cx, (end, 1), Form::KeyAndFlat, deadline, reply)
}

fn bzmpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let popped = parse_pop_of_first(args.from(1))?;
    let deadline = Deadline::after_seconds(&args[1], cx.now_ms)?;
    pop_or_wait(cx, popped, Form::KeyAndPairs, deadline, reply)
}

fn pop_or_wait(
    cx: &mut Cx<'_, '_>,
    popped: (End, u64),
    form: Form,
    deadline: Deadline,
    reply: &mut Reply,
) -> CommandResult {
    match pop_from_first(cx, cx.candidate_keys(), popped, form, reply)? {
        true => Ok(()),
        false => cx.wait(Wait::until(deadline), reply, Reply::null_array),
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check, check_events};
    use crate::wait::Waits;

    /// What the harness shows of a command that waits.
    const WAITS: &str = "+waits";

    #[test]
    fn what_is_there_is_taken_at_once() {
        check(&[
            ("ZADD a 1 m1 2 m2 3 m3 4 m4 5 m5", ":5"),
            ("ZADD b 1.5 x", ":1"),
            ("BZPOPMIN missing a b 0", "[$1 a, $2 m1, ,1]"),
            ("BZPOPMAX missing a b 1.5", "[$1 a, $2 m5, ,5]"),
            ("BZPOPMAX b a 0", "[$1 b, $1 x, ,1.5]"),
            ("BZMPOP 0 2 missing a MIN", "[$1 a, [[$2 m2, ,2]]]"),
            ("BZMPOP 0 2 b a max COUNT 9", "[$1 a, [[$2 m4, ,4], [$2 m3, ,3]]]"),
            ("EXISTS a b", ":0"),
        ]);
    }

    #[test]
    fn what_is_not_there_is_waited_for() {
        check(&[
            ("BZPOPMIN a 0", WAITS),
            ("BZPOPMAX a b 0.1", WAITS),
            ("BZMPOP 0 1 a MIN", WAITS),
            ("BZMPOP 0.5 2 a b MAX COUNT 3", WAITS),
        ]);
    }

    #[test]
    fn who_has_waited_looks_at_one_key() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("ZADD a 1 m");
            server.run("ZADD b 2 n 3 o");
            server.waits = Waits::For(1);
            assert_eq!(server.run("BZPOPMIN a b 0"), "[$1 b, $1 n, ,2]");
            assert_eq!(server.run("BZMPOP 0 2 a b MIN COUNT 5"), "[$1 b, [[$1 o, ,3]]]");
            assert_eq!(server.run("BZPOPMAX a b 0"), WAITS);
            server.waits = Waits::Never;
            assert_eq!(server.run("BZPOPMAX b b 0"), "_");
            assert_eq!(server.run("BZMPOP 0 1 b MIN"), "_");
        }
    }

    #[test]
    fn arguments_that_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        let no_float = "-ERR timeout is not a float or out of range";
        let syntax = "-ERR syntax error";
        check(&[
            ("SET s v", "+OK"),
            ("ZADD z 1 m", ":1"),
            ("BZPOPMIN missing s z 0", wrong),
            ("BZPOPMAX s 0", wrong),
            ("BZMPOP 0 2 missing s MIN", wrong),
            ("BZPOPMIN z x", no_float),
            ("BZPOPMIN s x", no_float),
            ("BZPOPMAX z -1", "-ERR timeout is negative"),
            ("BZPOPMAX z", "-ERR wrong number of arguments for 'bzpopmax' command"),
            ("BZMPOP x 1 z MIN", no_float),
            ("BZMPOP x 0 z MIN", "-ERR numkeys should be greater than 0"),
            ("BZMPOP x 1 z MIN COUNT 0", "-ERR count should be greater than 0"),
            ("BZMPOP x 1 z LEFT", syntax),
            ("BZMPOP 0 2 z MIN", syntax),
            ("BZMPOP 0 1 z MIN COUNT 1 COUNT 1", syntax),
            ("BZMPOP -1 1 z MIN", "-ERR timeout is negative"),
            ("ZCARD z", ":1"),
        ]);
    }

    #[test]
    fn events() {
        check_events(&[
            ("ZADD z 1 a 2 b 3 c", "new z, zadd z"),
            ("BZPOPMIN x z 0", "zpopmin z"),
            ("BZMPOP 0 1 z MAX", "zpopmax z"),
            ("BZPOPMAX z 0", "zpopmax z, del z"),
            ("BZPOPMAX z 0", ""),
        ]);
    }
}
