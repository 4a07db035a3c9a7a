//! Ranges of sorted sets that are removed: ZREMRANGEBYRANK, ZREMRANGEBYSCORE and ZREMRANGEBYLEX.

use resp::{Args, Reply};

use super::sorted_set_range::Asked;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::CommandResult;
use crate::spec::{Command, Docs, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs};

const REMOVED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    command(
        "ZREMRANGEBYRANK",
        "2.0.0",
        "Removes the members of a sorted set in a range of ranks.",
        "key start stop",
        zremrangebyrank,
    ),
    command(
        "ZREMRANGEBYSCORE",
        "1.2.0",
        "Removes the members of a sorted set in a range of scores.",
        "key min max",
        zremrangebyscore,
    ),
    command(
        "ZREMRANGEBYLEX",
        "2.8.9",
        "Removes the members of a sorted set in a range of members.",
        "key min max",
        zremrangebylex,
    ),
];

const fn command(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
    run: Handler,
) -> Command {
    let complexity = "O(log(N)+M*log(N)) for M members of N that are removed";
    Command {
        name,
        arity: 4,
        flags: Flags::WRITE,
        keys: REMOVED,
        locks: Locks::Keys,
        docs: Docs { group: Group::SortedSet, since, summary, complexity, syntax },
        run,
    }
}

fn zremrangebyrank(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    remove(cx, Asked::ranks(&args[2], &args[3])?, Event::ZREMRANGEBYRANK, reply)
}

fn zremrangebyscore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    remove(cx, Asked::scores(&args[2], &args[3])?, Event::ZREMRANGEBYSCORE, reply)
}

fn zremrangebylex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    remove(cx, Asked::members(&args[2], &args[3])?, Event::ZREMRANGEBYLEX, reply)
}

fn remove(cx: &mut Cx<'_, '_>, asked: Asked<'_>, event: Event, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let ranks = match cx.read_sorted_set(&key)? {
        Some(mut set) => asked.find(&mut set, false)?,
        None => 0..0,
    };
    let removed = ranks.end - ranks.start;
    if removed > 0 {
        cx.remove_ranks(&key, ranks)?;
        cx.report(&key, event, removed);
        cx.report_if_gone(&key);
    }
    reply.integer(removed as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn ranges_are_removed() {
        check(&[
            ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", ":6"),
            ("ZREMRANGEBYRANK z 1 2", ":2"),
            ("ZRANGE z 0 -1", "[$1 a, $1 d, $1 e, $1 f]"),
            ("ZREMRANGEBYSCORE z (1 5", ":2"),
            ("ZRANGE z 0 -1", "[$1 a, $1 f]"),
            ("ZREMRANGEBYRANK z 5 9", ":0"),
            ("ZREMRANGEBYSCORE z 2 3", ":0"),
            ("ZREMRANGEBYRANK z -1 -1", ":1"),
            ("ZREMRANGEBYRANK z 0 -1", ":1"),
            ("EXISTS z", ":0"),
            ("ZADD l 0 a 0 b 0 c", ":3"),
            ("ZREMRANGEBYLEX l (a [b", ":1"),
            ("ZREMRANGEBYLEX l [x +", ":0"),
            ("ZREMRANGEBYLEX l - +", ":2"),
            ("EXISTS l", ":0"),
            ("ZREMRANGEBYLEX l - +", ":0"),
        ]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SET s text", "+OK"),
            ("ZREMRANGEBYRANK s 0 1", wrong),
            ("ZREMRANGEBYRANK s 0 x", "-ERR value is not an integer or out of range"),
            ("ZREMRANGEBYSCORE s 0 1", wrong),
            ("ZREMRANGEBYSCORE s 0 x", "-ERR min or max is not a float"),
            ("ZREMRANGEBYLEX s - +", wrong),
            ("ZREMRANGEBYLEX s - x", "-ERR min or max not valid string range item"),
        ]);
    }

    #[test]
    fn every_member_removed_is_a_change() {
        let mut server = Harness::new(true);
        server.run("ZADD z 1 a 2 b 3 c");
        server.changes = 0;
        server.run("ZREMRANGEBYSCORE z 2 9");
        assert_eq!(server.changes, 2);
    }
    /// Of a large set members are copied, and what becomes of each is written down.
    #[test]
    fn what_is_removed_takes_memory() {
        let mut server = Harness::new(false);
        let pairs: String = (0..1_000).map(|number| format!(" {number} {number}")).collect();
        server.run(&format!("ZADD z{pairs}"));
        server.memory_bytes_max = 100_000;
        assert_eq!(
            server.run("ZREMRANGEBYRANK z 0 799"),
            "-OOM command not allowed when used memory > 'maxmemory'."
        );
        assert_eq!(server.run("ZREMRANGEBYRANK z 0 99"), ":100");
        assert_eq!(server.run("ZREMRANGEBYRANK z 0 -1"), ":900");
    }
}
