//! Ranges of sorted sets, by rank, by score and by member: ZRANGE, what it took the place of, ZRANGESTORE
//! and the counts.

use std::ops::{ControlFlow, Range};

use resp::{Args, Reply};
use value::parse_i64;
use value::range::{MemberRange, ScoreRange};

use super::room::check_stored;
use super::sorted_set::MemberList;
use super::sorted_set_operation::HELD_BYTES;
use crate::collection::{Copies, Made, SortedSet};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const RANGE: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES).and(Flags::IN_WINDOWS);
const COUNT: Flags = Flags::READONLY.and(Flags::FAST);
const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

const NOT_SCORES: CommandError = fixed("ERR min or max is not a float");
const NOT_MEMBERS: CommandError = fixed("ERR min or max not valid string range item");
const LIMIT_OF_RANKS: CommandError =
    fixed("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
const SCORES_OF_MEMBERS: CommandError =
    fixed("ERR syntax error, WITHSCORES not supported in combination with BYLEX");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    range_command(
        "ZRANGE",
        "1.2.0",
        "Returns the members in a range of ranks, scores or members.",
        "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        zrange,
    ),
    range_command(
        "ZREVRANGE",
        "1.2.0",
        "Returns the members in a range of ranks, which count from the highest score on.",
        "key start stop [WITHSCORES]",
        zrevrange,
    ),
    range_command(
        "ZRANGEBYSCORE",
        "1.0.5",
        "Returns the members in a range of scores.",
        "key min max [WITHSCORES] [LIMIT offset count]",
        zrangebyscore,
    ),
    range_command(
        "ZREVRANGEBYSCORE",
        "2.2.0",
        "Returns the members in a range of scores, from the highest on.",
        "key max min [WITHSCORES] [LIMIT offset count]",
        zrevrangebyscore,
    ),
    range_command(
        "ZRANGEBYLEX",
        "2.8.9",
        "Returns the members in a range of members.",
        "key min max [LIMIT offset count]",
        zrangebylex,
    ),
    range_command(
        "ZREVRANGEBYLEX",
        "2.8.9",
        "Returns the members in a range of members, from the last one on.",
        "key max min [LIMIT offset count]",
        zrevrangebylex,
    ),
    Command {
        name: "ZRANGESTORE",
        arity: -5,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[
            KeySpec::at(1, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly),
            KeySpec::at(2, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value),
        ],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "6.2.0",
            summary: "Sets a key to the members of a sorted set in a range.",
            complexity: "O(log(N)+M*log(M)) for M members of N",
            syntax: "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        },
        run: zrangestore,
    },
    Command {
        name: "ZCOUNT",
        arity: 4,
        flags: COUNT,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "2.0.0",
            summary: "Counts the members in a range of scores.",
            complexity: "O(log(N)) for N members",
            syntax: "key min max",
        },
        run: zcount,
    },
    Command {
        name: "ZLEXCOUNT",
        arity: 4,
        flags: COUNT,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "2.8.9",
            summary: "Counts the members in a range of members.",
            complexity: "O(log(N)) for N members",
            syntax: "key min max",
        },
        run: zlexcount,
    },
];

const fn range_command(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
    run: crate::spec::Handler,
) -> Command {
    let complexity = "O(log(N)+M) for M members of N";
    let docs = Docs { group: Group::SortedSet, since, summary, complexity, syntax };
    Command { name, arity: -4, flags: RANGE, keys: ANSWERED, locks: Locks::Keys, docs, run }
}

/// By what a range is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// What a command is for, as its name says.
#[derive(Clone, Copy)]
struct Form {
    /// None: options say.
    by: Option<By>,
    /// None: options say.
    backwards: Option<bool>,
    is_store: bool,
}

impl Form {
    const ANY: Form = Form { by: None, backwards: None, is_store: false };
    const STORE: Form = Form { is_store: true, ..Form::ANY };

    const fn of(by: By, backwards: bool) -> Form {
        Form { by: Some(by), backwards: Some(backwards), is_store: false }
    }
}

/// A range as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked<'a> {
    /// The first and the last rank; negative ones count from the end.
    Ranks(i64, i64),
    /// Scores.
    Scores(ScoreRange),
    /// Members.
    Members(MemberRange<'a>),
}

impl<'a> Asked<'a> {
    /// Two ranks.
    pub(super) fn ranks(first: &[u8], last: &[u8]) -> Result<Asked<'a>, CommandError> {
        let rank = |text| parse_i64(text).ok_or(CommandError::NOT_INTEGER);
        Ok(Asked::Ranks(rank(first)?, rank(last)?))
    }

    /// The two ends of a range of scores.
    pub(super) fn scores(min: &[u8], max: &[u8]) -> Result<Asked<'a>, CommandError> {
        ScoreRange::parse(min, max).map(Asked::Scores).ok_or(NOT_SCORES)
    }

    /// The two ends of a range of members.
    pub(super) fn members(min: &'a [u8], max: &'a [u8]) -> Result<Asked<'a>, CommandError> {
        MemberRange::parse(min, max).map(Asked::Members).ok_or(NOT_MEMBERS)
    }

    /// The ranks, counted from the lowest score on, of the members in it; `backwards`, ranks that are
    /// asked for count from the highest on.
    ///
    /// Errors: [`CommandError::NotResident`].
    pub(super) fn find(
        &self,
        set: &mut SortedSet<'_>,
        backwards: bool,
    ) -> Result<Range<u64>, CommandError> {
        match self {
            Asked::Scores(range) => set.ranks_by_score(range),
            Asked::Members(range) => set.ranks_by_member(range, backwards),
            Asked::Ranks(first, last) => {
                let len = set.len();
                let ranks = absolute_ranks(*first, *last, len);
                match backwards {
                    true => Ok(len - ranks.end..len - ranks.start),
                    false => Ok(ranks),
                }
            }
        }
    }
}

fn absolute_ranks(first: i64, last: i64, len: u64) -> Range<u64> {
    let from_end = |rank: i64| len.checked_sub(rank.unsigned_abs());
    let first = if first < 0 { from_end(first).unwrap_or(0) } else { first as u64 };
    let last = if last < 0 { from_end(last) } else { Some(last as u64) };
    match last {
        Some(last) if first <= last && first < len => first..(last.min(len - 1) + 1),
        _ => 0..0,
    }
}

/// What is asked for behind the keys.
struct Query<'a> {
    asked: Asked<'a>,
    backwards: bool,
    /// Offset and count; negative ones have a meaning of their own.
    limit: (i64, i64),
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// Reads the two ends and the options behind them.
    fn parse(args: Args<'a>, form: Form) -> Result<Query<'a>, CommandError> {
        let Form { mut by, mut backwards, is_store } = form;
        let (mut limit, mut with_scores) = ((0, -1), false);
        let options = args.from(2);
        let mut index = 0;
        while let Some(option) = options.get(index) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if !is_store && is("WITHSCORES") {
                with_scores = true;
            } else if is("LIMIT") && index + 2 < options.len() {
                let number = |index| parse_i64(&options[index]).ok_or(CommandError::NOT_INTEGER);
                limit = (number(index + 1)?, number(index + 2)?);
                index += 2;
            } else if backwards.is_none() && is("REV") {
                backwards = Some(true);
            } else if by.is_none() && is("BYLEX") {
                by = Some(By::Member);
            } else if by.is_none() && is("BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::SYNTAX);
            }
            index += 1;
        }
        let (by, backwards) = (by.unwrap_or(By::Rank), backwards.unwrap_or(false));
        if limit.1 != -1 && by == By::Rank {
            return Err(LIMIT_OF_RANKS);
        }
        if with_scores && by == By::Member {
            return Err(SCORES_OF_MEMBERS);
        }
        // Ranges of scores and members that are asked for backwards begin with their upper end.
        let (first, last) =
            args.get(0).zip(args.get(1)).expect("invariant: the arity asks for both");
        let (min, max) = if backwards { (last, first) } else { (first, last) };
        let asked = match by {
            By::Rank => Asked::ranks(first, last)?,
            By::Score => Asked::scores(min, max)?,
            By::Member => Asked::members(min, max)?,
        };
        Ok(Query { asked, backwards, limit, with_scores })
    }

    /// The ranks that are asked for.
    fn ranks(&self, set: &mut SortedSet<'_>) -> Result<Range<u64>, CommandError> {
        let Range { start, end } = self.asked.find(set, self.backwards)?;
        if let Asked::Ranks(..) = self.asked {
            // Redis takes an offset, and does not look at it.
            return Ok(start..end);
        }
        let (offset, count) = self.limit;
        let Ok(offset) = u64::try_from(offset) else { return Ok(start..start) };
        let offset = offset.min(end - start);
        // A negative count is none.
        let count = u64::try_from(count).unwrap_or(u64::MAX).min(end - start - offset);
        match self.backwards {
            true => Ok(end - offset - count..end - offset),
            false => Ok(start + offset..start + offset + count),
        }
    }
}

fn zrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, args, Form::ANY, reply)
}

fn zrevrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, args, Form::of(By::Rank, true), reply)
}

fn zrangebyscore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, args, Form::of(By::Score, false), reply)
}

fn zrevrangebyscore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, args, Form::of(By::Score, true), reply)
}

fn zrangebylex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, args, Form::of(By::Member, false), reply)
}

fn zrevrangebylex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, args, Form::of(By::Member, true), reply)
}

fn answer(cx: &mut Cx<'_, '_>, args: Args<'_>, form: Form, reply: &mut Reply) -> CommandResult {
    let query = Query::parse(args.from(2), form)?;
    let (key, reply_bytes_max, begins) = (cx.key(0), cx.reply_bytes_max, cx.begins_reply());
    let Some(mut set) = cx.read_sorted_set(&key)? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = query.ranks(&mut set)?;
    let bytes = set.bytes_of(ranks.end - ranks.start);
    let members = (ranks.end - ranks.start, bytes);
    let mut list = match begins {
        true => MemberList::new(&key, members, query.with_scores, reply_bytes_max, reply)?,
        false => MemberList::begun(&key, query.with_scores, reply_bytes_max, reply),
    };
    set.visit(ranks, query.backwards, |member, score| {
        list.push(member, score);
        ControlFlow::Continue(())
    })?;
    list.end()
}

fn zrangestore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let query = Query::parse(args.from(3), Form::STORE)?;
    let (target, source, reply_bytes_max) = (cx.key(0), cx.key(1), cx.reply_bytes_max);
    let bytes_max = cx.limits.memory_bytes_max() as u64;
    let mut copies = Copies::default();
    cx.count_read(&source);
    if let Some(mut set) = cx.read_sorted_set(&source)? {
        let ranks = query.ranks(&mut set)?;
        let members = ranks.end - ranks.start;
        // A copy of each, and what is stored.
        let bytes = set.bytes_of(members).saturating_mul(2).saturating_add(members * HELD_BYTES);
        if bytes > bytes_max {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        check_stored(&source, bytes, reply_bytes_max, reply)?;
        copies.reserve(members as usize, set.bytes_of(members) as usize);
        set.visit(ranks, query.backwards, |member, score| {
            copies.push(member, score);
            ControlFlow::Continue(())
        })?;
    }
    let mut members = copies.members();
    // Of ranks alone Redis knows how many come.
    let comes_large = members.len() as u64 > cx.encodings.sorted_set().entries;
    let made = match query.asked {
        Asked::Ranks(..) if comes_large => Made::AtOnce,
        _ => Made::OneByOne,
    };
    cx.store_sorted_set(&target, &mut members, made)?;
    let count = members.len();
    drop(members);
    drop(copies);
    cx.end_stored_sorted_set(&target, (Event::ZRANGESTORE, 1));
    reply.integer(count as i64);
    Ok(())
}

fn zcount(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(cx, Asked::scores(&args[2], &args[3])?, reply)
}

fn zlexcount(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(cx, Asked::members(&args[2], &args[3])?, reply)
}

fn count(cx: &mut Cx<'_, '_>, asked: Asked<'_>, reply: &mut Reply) -> CommandResult {
    let ranks = match cx.read_sorted_set(&cx.key(0))? {
        Some(mut set) => asked.find(&mut set, false)?,
        None => 0..0,
    };
    reply.integer((ranks.end - ranks.start) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn ranges_of_ranks() {
        check(&[
            ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
            ("ZRANGE z 0 -1", "[$1 a, $1 b, $1 c, $1 d]"),
            ("ZRANGE z 1 2 WITHSCORES", "[[$1 b, ,2], [$1 c, ,3]]"),
            ("ZRANGE z -2 100", "[$1 c, $1 d]"),
            ("ZRANGE z -100 0", "[$1 a]"),
            ("ZRANGE z 3 2", "[]"),
            ("ZRANGE z 4 9", "[]"),
            ("ZRANGE z 0 -5", "[]"),
            ("ZRANGE z -9223372036854775808 9223372036854775807", "[$1 a, $1 b, $1 c, $1 d]"),
            ("ZRANGE z 0 1 REV", "[$1 d, $1 c]"),
            ("ZREVRANGE z 0 1 withscores", "[[$1 d, ,4], [$1 c, ,3]]"),
            ("ZREVRANGE z -1 -1", "[$1 a]"),
            ("ZREVRANGE z 9 -1", "[]"),
            ("ZRANGE z 0 1 LIMIT 0 -1", "[$1 a, $1 b]"),
            ("ZRANGE z 0 -1 LIMIT 2 -1", "[$1 a, $1 b, $1 c, $1 d]"),
            ("ZRANGE z 1 2 REV LIMIT -1 -1", "[$1 c, $1 b]"),
            ("ZREVRANGE z 0 1 LIMIT 1 -1", "[$1 d, $1 c]"),
            ("ZRANGESTORE to z 0 2 LIMIT 2 -1", ":3"),
            ("ZRANGE missing 0 -1", "[]"),
            ("ZRANGE z 0 0 WITHSCORES WITHSCORES", "[[$1 a, ,1]]"),
        ]);
    }

    /// What is infinite counts to a range that ends with it, and not to one that ends before it.
    #[test]
    fn ranges_of_a_large_set_end_with_it_or_before_the_infinite() {
        let mut server = Harness::new(false);
        let members: String = (0..2_000).map(|number| format!(" {number} m{number}")).collect();
        assert_eq!(server.run(&format!("ZADD z{members} inf a inf b -inf c")), ":2003");
        for (range, count) in [
            ("-inf +inf", ":2003"),
            ("(-inf +inf", ":2002"),
            ("-inf (+inf", ":2001"),
            ("1990 +inf", ":12"),
            ("1990 (+inf", ":10"),
            ("+inf +inf", ":2"),
            ("(+inf +inf", ":0"),
        ] {
            assert_eq!(server.run(&format!("ZCOUNT z {range}")), count, "{range}");
        }
        assert_eq!(server.run("ZRANGEBYSCORE z (1999 +inf"), "[$1 a, $1 b]");
    }

    #[test]
    fn ranges_of_scores() {
        check(&[
            ("ZADD z -inf low 1 a 2 b 2 c 3.5 d +inf high", ":6"),
            ("ZRANGEBYSCORE z -inf +inf", "[$3 low, $1 a, $1 b, $1 c, $1 d, $4 high]"),
            ("ZRANGEBYSCORE z (1 2 WITHSCORES", "[[$1 b, ,2], [$1 c, ,2]]"),
            ("ZRANGEBYSCORE z (2 (2", "[]"),
            ("ZRANGEBYSCORE z 2 2", "[$1 b, $1 c]"),
            ("ZRANGEBYSCORE z 3 1", "[]"),
            ("ZREVRANGEBYSCORE z 2 1", "[$1 c, $1 b, $1 a]"),
            ("ZREVRANGEBYSCORE z +inf (2 LIMIT 1 1 WITHSCORES", "[[$1 d, ,3.5]]"),
            ("ZRANGE z 1 3 BYSCORE LIMIT 1 5", "[$1 b, $1 c]"),
            ("ZRANGE z 3 1 BYSCORE REV LIMIT 0 2", "[$1 c, $1 b]"),
            ("ZRANGE z 1 3 REV BYSCORE", "[]"),
            ("ZRANGEBYSCORE z 1 3 LIMIT -1 2", "[]"),
            ("ZRANGEBYSCORE z 1 3 LIMIT 1 0", "[]"),
            ("ZRANGEBYSCORE z 1 3 LIMIT 1 -5", "[$1 b, $1 c]"),
            ("ZRANGEBYSCORE z 1 3 LIMIT 9 1", "[]"),
            ("ZRANGEBYSCORE z '' ' 1'", "[$1 a]"),
            ("ZRANGEBYSCORE missing 1 2", "[]"),
            ("ZCOUNT z -inf inf", ":6"),
            ("ZCOUNT z (1 3.5", ":3"),
            ("ZCOUNT z 5 1", ":0"),
            ("ZCOUNT missing 1 2", ":0"),
        ]);
    }

    #[test]
    fn ranges_of_members() {
        check(&[
            ("ZADD z 0 a 0 b 0 bb 0 c 0 d", ":5"),
            ("ZRANGEBYLEX z - +", "[$1 a, $1 b, $2 bb, $1 c, $1 d]"),
            ("ZRANGEBYLEX z [b (c", "[$1 b, $2 bb]"),
            ("ZRANGEBYLEX z (b [c LIMIT 1 1", "[$1 c]"),
            ("ZREVRANGEBYLEX z [c (b", "[$1 c, $2 bb]"),
            ("ZREVRANGEBYLEX z + - LIMIT 1 2", "[$1 c, $2 bb]"),
            ("ZREVRANGEBYLEX z - +", "[]"),
            ("ZRANGE z [a [b BYLEX", "[$1 a, $1 b]"),
            ("ZRANGE z [b [a BYLEX REV", "[$1 b, $1 a]"),
            ("ZRANGEBYLEX z + -", "[]"),
            ("ZRANGEBYLEX z (b (b", "[]"),
            ("ZRANGEBYLEX missing - +", "[]"),
            ("ZLEXCOUNT z - +", ":5"),
            ("ZLEXCOUNT z (a (c", ":2"),
            ("ZLEXCOUNT z [x +", ":0"),
            ("ZLEXCOUNT missing - +", ":0"),
            // Where scores differ, as redis-server 7.0 finds members of a listpack.
            ("ZADD m 1 c 2 a 3 d 4 b", ":4"),
            ("ZRANGEBYLEX m [a [b", "[]"),
            ("ZRANGEBYLEX m [a [c", "[$1 c, $1 a]"),
            ("ZREVRANGEBYLEX m [c [a", "[$1 b, $1 d, $1 a, $1 c]"),
            ("ZREVRANGEBYLEX m [c [b", "[$1 b, $1 d]"),
            ("ZRANGEBYLEX m [d +", "[]"),
            ("ZRANGEBYLEX m [b +", "[$1 c, $1 a, $1 d, $1 b]"),
            ("ZLEXCOUNT m - [c", ":2"),
        ]);
    }

    #[test]
    fn ranges_are_stored() {
        check(&[
            ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
            ("SET to text EX 100", "+OK"),
            ("ZRANGESTORE to z 1 -1", ":3"),
            ("ZRANGE to 0 -1 WITHSCORES", "[[$1 b, ,2], [$1 c, ,3], [$1 d, ,4]]"),
            ("TTL to", ":-1"),
            ("ZRANGESTORE to z 3 (1 BYSCORE REV LIMIT 0 1", ":1"),
            ("ZRANGE to 0 -1", "[$1 c]"),
            ("ZRANGESTORE z z [a [b BYLEX", ":2"),
            ("ZRANGE z 0 -1", "[$1 a, $1 b]"),
            ("ZRANGESTORE to z 5 6", ":0"),
            ("EXISTS to", ":0"),
            ("ZRANGESTORE z missing 0 -1", ":0"),
            ("EXISTS z", ":0"),
            ("SET s text", "+OK"),
            ("ZRANGESTORE to s 0 -1", WRONG),
            ("ZRANGESTORE to z 0 -1 WITHSCORES", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let syntax = "-ERR syntax error";
        let integer = "-ERR value is not an integer or out of range";
        let scores = "-ERR min or max is not a float";
        let members = "-ERR min or max not valid string range item";
        let limit = "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        let with_scores = "-ERR syntax error, WITHSCORES not supported in combination with BYLEX";
        check(&[
            ("SET s text", "+OK"),
            ("ZRANGE s 0 -1", WRONG),
            ("ZRANGE s x -1", integer),
            ("ZRANGE s 0 x", integer),
            ("ZRANGE s 0 1 BYLEX", members),
            ("ZRANGE s a b BYSCORE", scores),
            ("ZRANGE s 0 1 LIMIT 0 1", limit),
            ("ZREVRANGE s 0 1 LIMIT 0 1", limit),
            ("ZREVRANGE s 0 1 REV", syntax),
            ("ZREVRANGE s 0 1 BYSCORE", syntax),
            ("ZRANGE s 0 1 BYLEX BYSCORE", syntax),
            ("ZRANGE s 0 1 REV REV", syntax),
            ("ZRANGE s [a [b BYLEX WITHSCORES", with_scores),
            ("ZRANGEBYLEX s [a [b WITHSCORES", with_scores),
            ("ZRANGEBYSCORE s 0 1 LIMIT 0", syntax),
            ("ZRANGEBYSCORE s 0 1 LIMIT", syntax),
            ("ZRANGEBYSCORE s 0 1 LIMIT x 1", integer),
            ("ZRANGEBYSCORE s 0 1 LIMIT 0 x", integer),
            ("ZRANGEBYSCORE s nan 1", scores),
            ("ZRANGEBYSCORE s 0 1 STORE", syntax),
            ("ZRANGEBYLEX s a [b", members),
            ("ZCOUNT s 0 1", WRONG),
            ("ZCOUNT s x 1", scores),
            ("ZLEXCOUNT s - +", WRONG),
            ("ZLEXCOUNT s a b", members),
            ("ZRANGE s 0", "-ERR wrong number of arguments for 'zrange' command"),
        ]);
    }

    #[test]
    fn a_stored_range_is_one_change() {
        let mut server = Harness::new(true);
        server.run("ZADD z 1 a 2 b");
        for (line, changes) in
            [("ZRANGESTORE to z 0 -1", 1), ("ZRANGESTORE to z 5 6", 1), ("ZRANGESTORE to z 5 6", 0)]
        {
            server.changes = 0;
            server.run(line);
            assert_eq!(server.changes, changes, "{line}");
        }
    }
}
