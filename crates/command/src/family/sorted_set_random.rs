//! Sorted sets as a whole: ZSCAN, and ZRANDMEMBER.

use resp::{Args, DoubleText, Reply};
use stdx::Random;

use super::hash_all::parse_count;
use super::room::check_room;
use super::sample::{CHOICE_BYTES, sample};
use super::sorted_set::MemberList;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::scan::{ElementFilter, INVALID_CURSOR, parse_cursor};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const FLAGS: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES);
const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

/// Up to which magnitude a listpack keeps scores without a fraction as integers, which ZSCAN shows.
const PACKED_INTEGER_MAX: f64 = (i64::MAX / 2) as f64;

const OUT_OF_RANGE: CommandError = fixed("ERR value is out of range");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "ZSCAN",
        arity: -3,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "2.8.0",
            summary: "Lists members of a sorted set and their scores a few at a time; a cursor says where to go on.",
            complexity: "O(1) for a call with a given COUNT, O(N) for a whole walk over N members",
            syntax: "key cursor [MATCH pattern] [COUNT count]",
        },
        run: zscan,
    },
    Command {
        name: "ZRANDMEMBER",
        arity: -2,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "6.2.0",
            summary: "Returns members of a sorted set picked at random.",
            complexity: "O(M*log(N)) for M members of N that are asked for",
            syntax: "key [count [WITHSCORES]]",
        },
        run: zrandmember,
    },
];

fn zscan(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let cursor = parse_cursor(&args[2]).ok_or(INVALID_CURSOR)?;
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut set) = cx.read_sorted_set(&key)? else {
        // Redis does not look at the options where there is nothing to list.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let filter = ElementFilter::parse(args.from(3))?;
    let mut listed = Reply::new(reply.protocol());
    let (mut count, is_packed) = (0, set.is_packed());
    let next = set.scan(cursor, filter.count, |member, score| {
        if filter.lists(member) {
            listed.bulk(member);
            if is_packed && score.fract() == 0.0 && score.abs() <= PACKED_INTEGER_MAX {
                listed.bulk_integer(score as i64);
            } else {
                listed.bulk(DoubleText::new(score).as_bytes());
            }
            count += 2;
        }
    })?;
    if reply.full_len() + listed.len() > reply_bytes_max {
        return Err(CommandError::too_long_of(&key, listed.len() as u64));
    }
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(count);
    reply.raw(listed.as_slice());
    Ok(())
}

fn zrandmember(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let Some(count) = args.get(2) else { return one_member(cx, &mut random, reply) };
    let count = parse_count(count)?;
    let with_scores = match args.from(3).len() {
        0 => false,
        1 if args[3].eq_ignore_ascii_case(b"WITHSCORES") => {
            if count.unsigned_abs() > i64::MAX as u64 / 2 {
                return Err(OUT_OF_RANGE);
            }
            true
        }
        _ => return Err(CommandError::SYNTAX),
    };
    some_members(cx, &mut random, count, with_scores, reply)
}

fn one_member(cx: &mut Cx<'_, '_>, random: &mut Random, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut set) = cx.read_sorted_set(&key)? else {
        reply.null();
        return Ok(());
    };
    let rank = random.below(set.len());
    let member = set.at(rank)?.0;
    check_room(&key, member.len() as u64, reply_bytes_max, reply)?;
    reply.bulk(member);
    Ok(())
}

/// `count` different members, or as many as there are; with a negative count, that many, of which one may
/// come more than once.
fn some_members(
    cx: &mut Cx<'_, '_>,
    random: &mut Random,
    count: i64,
    with_scores: bool,
    reply: &mut Reply,
) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let memory_bytes_max = cx.limits.memory_bytes_max() as u64;
    let Some(mut set) = cx.read_sorted_set(&key)? else {
        reply.array(0);
        return Ok(());
    };
    let members = set.len();
    let chosen = if count < 0 { count.unsigned_abs() } else { members.min(count as u64) };
    let bytes = set.bytes_of(chosen).saturating_add(chosen.saturating_mul(CHOICE_BYTES));
    if bytes > memory_bytes_max {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    let list_bytes = MemberList::bytes((chosen, bytes), with_scores);
    check_room(&key, list_bytes, reply_bytes_max, reply)?;
    let ranks = match count < 0 {
        true => (0..chosen).map(|_| random.below(members)).collect(),
        false => sample(random, members, chosen),
    };
    set.announce_ranks(&ranks)?;
    let mut list = MemberList::new(&key, (chosen, bytes), with_scores, reply_bytes_max, reply)?;
    for rank in ranks {
        let (member, score) = set.at(rank)?;
        list.push(member, score);
    }
    list.end()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";

    #[test]
    fn members_are_listed() {
        check(&[
            ("ZADD z 1 a 2.5 b 3 ab", ":3"),
            ("ZSCAN z 0", "[$1 0, [$1 a, $1 1, $1 b, $3 2.5, $2 ab, $1 3]]"),
            ("ZSCAN z 0 MATCH a* COUNT 1", "[$1 0, [$1 a, $1 1, $2 ab, $1 3]]"),
            ("ZSCAN missing 0", "[$1 0, []]"),
            ("ZSCAN missing 0 COUNT", "[$1 0, []]"),
            ("ZSCAN z x", "-ERR invalid cursor"),
            ("ZSCAN z 0 COUNT 0", "-ERR syntax error"),
            ("ZSCAN z 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("ZSCAN z 0 TYPE zset", "-ERR syntax error"),
            ("SET s text", "+OK"),
            ("ZSCAN s 0", WRONG),
        ]);
    }

    /// Every member is listed that is there all the time, whatever others do meanwhile.
    #[test]
    fn a_walk_over_a_large_set_finds_what_stays() {
        for (demote, equal) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut server = Harness::new(demote);
            let score = |number: usize| if equal { 1 } else { number };
            for first in (0..4_000).step_by(100) {
                let numbers = first..first + 100;
                let pairs: String =
                    numbers.map(|number| format!(" {} member{number}", score(number))).collect();
                server.run(&format!("ZADD z{pairs}"));
            }
            let mut found = std::collections::BTreeSet::new();
            let (mut cursor, mut calls) = ("0".to_owned(), 0);
            loop {
                let shown = server.run(&format!("ZSCAN z {cursor} COUNT 20"));
                let mut words =
                    shown.trim_start_matches('[').split([' ', ',']).filter(|word| !word.is_empty());
                cursor = words.nth(1).expect("a cursor").to_owned();
                found.extend(
                    words
                        .filter(|word| word.starts_with("member"))
                        .map(|word| word.trim_end_matches(']').to_owned()),
                );
                calls += 1;
                if cursor == "0" {
                    break;
                }
                // Others come and go, and scores change.
                server.run(&format!(
                    "ZADD z {} other{calls} {} member{}",
                    calls * 7,
                    calls,
                    calls * 3
                ));
                server.run(&format!("ZREM z other{}", calls / 2));
            }
            assert!(
                (0..4_000).all(|number| found.contains(&format!("member{number}"))),
                "{calls} calls"
            );
            assert!(calls > 3, "{calls} calls");
        }
    }

    /// What redis-server 7.0 answers.
    #[test]
    fn integers_are_shown_as_a_listpack_keeps_them() {
        check(&[
            ("ZADD z 1e17 a 4611686018427387904 b 4611686018427389000 c -1e17 d inf e", ":5"),
            (
                "ZSCAN z 0",
                "[$1 0, [$1 d, $19 -100000000000000000, $1 a, $18 100000000000000000, $1 b, \
                 $19 4611686018427387904, $1 c, $22 4.6116860184273889e+18, $1 e, $3 inf]]",
            ),
            (&format!("ZADD z 0 {LONG}"), ":1"),
            ("ZREM z b c d e", ":4"),
            ("ZSCAN z 0", &format!("[$1 0, [$70 {LONG}, $1 0, $1 a, $5 1e+17]]")),
        ]);
    }

    #[test]
    fn members_are_picked() {
        let range = "-ERR value is out of range";
        check(&[
            ("ZRANDMEMBER missing", "_"),
            ("ZRANDMEMBER missing 3", "[]"),
            ("ZADD z 1 a", ":1"),
            ("ZRANDMEMBER z", "$1 a"),
            ("ZRANDMEMBER z 5", "[$1 a]"),
            ("ZRANDMEMBER z 0", "[]"),
            ("ZRANDMEMBER z -3", "[$1 a, $1 a, $1 a]"),
            ("ZRANDMEMBER z -2 WITHSCORES", "[[$1 a, ,1], [$1 a, ,1]]"),
            ("ZADD z 2 b 3 c", ":2"),
            ("ZRANDMEMBER z 9 withscores", "[[$1 a, ,1], [$1 b, ,2], [$1 c, ,3]]"),
            ("ZRANDMEMBER z x", "-ERR value is not an integer or out of range"),
            ("ZRANDMEMBER z 1 x", "-ERR syntax error"),
            ("ZRANDMEMBER z 1 WITHSCORES x", "-ERR syntax error"),
            ("ZRANDMEMBER z 9223372036854775807 WITHSCORES", range),
            ("SET s text", "+OK"),
            ("ZRANDMEMBER s", WRONG),
            ("ZRANDMEMBER s 1", WRONG),
        ]);
    }

    #[test]
    fn every_member_is_picked_about_as_often() {
        let mut server = Harness::new(false);
        server.run("ZADD z 1 a 2 b 3 c 4 d");
        let mut picks: BTreeMap<String, u32> = BTreeMap::new();
        for random in 0..4_000 {
            server.random = random;
            *picks.entry(server.run("ZRANDMEMBER z 2")).or_default() += 1;
        }
        assert_eq!(picks.len(), 6, "{picks:?}");
        assert!(picks.values().all(|count| (550..800).contains(count)), "{picks:?}");
    }
}
