//! Members taken from an end of a sorted set: ZPOPMIN, ZPOPMAX and ZMPOP.

use std::ops::{ControlFlow, Range};

use keyspace::Key;
use resp::{Args, Protocol, Reply};
use value::parse_i64;

use super::room::{FRAME_BYTES, Room, check_room, check_stored};
use super::sorted_set::SCORED_FRAME_BYTES;
use crate::collection::{Copies, LONG_BYTES, ScoreChange};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::logged::Arg;
use crate::spec::{
    Begin, Command, Docs, Find, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs,
};

pub(super) const POPPED: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE);
const TAKEN: &[KeySpec] = &[KeySpec::at(1, POPPED, Needs::Value)];

const NOT_POSITIVE: CommandError = fixed("ERR value is out of range, must be positive");
const NO_KEYS: CommandError = fixed("ERR numkeys should be greater than 0");
const NO_COUNT: CommandError = fixed("ERR count should be greater than 0");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    pop_command(
        "ZPOPMIN",
        "Removes the members with the lowest scores, and returns them.",
        zpopmin,
    ),
    pop_command(
        "ZPOPMAX",
        "Removes the members with the highest scores, and returns them.",
        zpopmax,
    ),
    Command {
        name: "ZMPOP",
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
            group: Group::SortedSet,
            since: "7.0.0",
            summary: "Returns members from an end of the first sorted set that there is, with its key, and removes them.",
            complexity: "O(K+M*log(N)) for K keys and M members of N that are returned",
            syntax: "numkeys key [key ...] <MIN | MAX> [COUNT count]",
        },
        run: zmpop,
    },
];

const fn pop_command(name: &'static str, summary: &'static str, run: Handler) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::WRITE.and(Flags::FAST).and(Flags::REPLIES_VALUES),
        keys: TAKEN,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "5.0.0",
            summary,
            complexity: "O(M*log(N)) for M members of N that are returned",
            syntax: "key [count]",
        },
        run,
    }
}

/// An end of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Where the lowest score is.
    Min,
    /// Where the highest is.
    Max,
}

impl End {
    /// The end that an argument names.
    pub(super) fn parse(text: &[u8]) -> Option<End> {
        if text.eq_ignore_ascii_case(b"MIN") {
            Some(End::Min)
        } else if text.eq_ignore_ascii_case(b"MAX") {
            Some(End::Max)
        } else {
            None
        }
    }

    fn popped(self) -> Event {
        match self {
            End::Min => Event::ZPOPMIN,
            End::Max => Event::ZPOPMAX,
        }
    }

    /// The ranks of the `count` members at this end of `len`, or of all if there are not so many.
    fn ranks(self, count: u64, len: u64) -> Range<u64> {
        let count = count.min(len);
        match self {
            End::Min => 0..count,
            End::Max => len - count..len,
        }
    }
}

/// How popped members are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array of members and scores.
    Flat,
    /// An array of pairs.
    Pairs,
    /// An array of the key, members and scores.
    KeyAndFlat,
    /// The key and an array of pairs.
    KeyAndPairs,
}

impl Form {
    fn begin(self, key: &Key<'_>, members: usize, reply: &mut Reply) {
        match self {
            Form::Flat => reply.array(2 * members),
            Form::Pairs => reply.array(members),
            Form::KeyAndFlat => {
                reply.array(1 + 2 * members);
                reply.bulk(key.bytes);
            }
            Form::KeyAndPairs => {
                reply.array(2);
                reply.bulk(key.bytes);
                reply.array(members);
            }
        }
    }
}

fn zpopmin(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop(cx, args, End::Min, reply)
}

fn zpopmax(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    pop(cx, args, End::Max, reply)
}

fn pop(cx: &mut Cx<'_, '_>, args: Args<'_>, end: End, reply: &mut Reply) -> CommandResult {
    if args.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let (count, form) = match args.get(2) {
        None => (1, Form::Flat),
        Some(text) => {
            let count = parse_i64(text).and_then(|count| u64::try_from(count).ok());
            let is_paired = reply.protocol() == Protocol::Resp3;
            (count.ok_or(NOT_POSITIVE)?, if is_paired { Form::Pairs } else { Form::Flat })
        }
    };
    if !pop_from_first(cx, cx.keys, (end, count), form, reply)? {
        reply.array(0);
    }
    Ok(())
}

fn zmpop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let popped = parse_pop_of_first(args)?;
    if !pop_from_first(cx, cx.keys, popped, Form::KeyAndPairs, reply)? {
        reply.null_array();
    }
    Ok(())
}

/// From which end how many members are popped. The number of keys is argument 1.
pub(super) fn parse_pop_of_first(args: Args<'_>) -> Result<(End, u64), CommandError> {
    let numkeys = parse_positive(&args[1]).ok_or(NO_KEYS)?;
    // The name and this number are in front of the keys.
    let options = usize::try_from(numkeys).unwrap_or(usize::MAX).saturating_add(2);
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

fn parse_positive(text: &[u8]) -> Option<u64> {
    u64::try_from(parse_i64(text)?).ok().filter(|&number| number > 0)
}

/// Takes so many members from an end of the first sorted set among some keys, and answers them. False:
/// there is none, and nothing is answered.
///
/// Errors: [`CommandError::WRONG_TYPE`] if a key in front of it, or the first, is something else,
/// [`CommandError::NotResident`], [`CommandError::ReplyTooLong`]; nothing is changed then.
pub(super) fn pop_from_first(
    cx: &mut Cx<'_, '_>,
    keys: &[Key<'_>],
    (end, count): (End, u64),
    form: Form,
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let reply_bytes_max = cx.reply_bytes_max;
    for key in keys {
        let Some(mut set) = cx.read_sorted_set(key)? else { continue };
        let ranks = end.ranks(count, set.len());
        let popped = ranks.end - ranks.start;
        let average = set.bytes_of(1) + SCORED_FRAME_BYTES;
        let bytes = popped.saturating_mul(average);
        match average < LONG_BYTES as u64 {
            true => check_room(key, bytes, reply_bytes_max, reply)?,
            // They are copied to be removed.
            false => check_stored(key, bytes.saturating_mul(2), reply_bytes_max, reply)?,
        }
        form.begin(key, popped as usize, reply);
        let mut room = Room::new(reply_bytes_max);
        let (is_one_of_many, mut copies) =
            (popped == 1 && set.len() > 1 && set.is_tree(), Copies::default());
        set.visit(ranks.clone(), end == End::Max, |member, score| {
            let bytes = member.len() as u64 + FRAME_BYTES + SCORED_FRAME_BYTES;
            if room.takes(bytes, reply) {
                if matches!(form, Form::Pairs | Form::KeyAndPairs) {
                    reply.array(2);
                }
                reply.bulk(member);
                reply.double(score);
                if is_one_of_many {
                    copies.push(member, score);
                }
            }
            ControlFlow::Continue(())
        })?;
        room.end(key, reply)?;
        if is_one_of_many {
            // It is looked for by its rank once only.
            let (score, member) = copies.member(0);
            cx.change_sorted_set(key, &[ScoreChange::removal(member, score)])?;
        } else if popped > 0 {
            cx.remove_ranks(key, ranks)?;
        }
        if popped > 0 {
            cx.report(key, end.popped(), popped);
            cx.report_if_gone(key);
        }
        if popped > 0 && matches!(form, Form::KeyAndFlat | Form::KeyAndPairs) {
            let name = Arg::Bytes(end.popped().name.as_bytes());
            cx.log_as(&[name, Arg::Bytes(key.bytes), Arg::Number(popped as i64)]);
        }
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn members_are_taken_from_both_ends() {
        check(&[
            ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5"),
            ("ZPOPMIN z", "[$1 a, ,1]"),
            ("ZPOPMAX z", "[$1 e, ,5]"),
            ("ZPOPMAX z 2", "[[$1 d, ,4], [$1 c, ,3]]"),
            ("ZPOPMIN z 0", "[]"),
            ("ZPOPMIN z 9223372036854775807", "[[$1 b, ,2]]"),
            ("EXISTS z", ":0"),
            ("ZPOPMIN z", "[]"),
            ("ZPOPMAX z 3", "[]"),
        ]);
    }

    #[test]
    fn members_are_taken_from_the_first_sorted_set_there_is() {
        check(&[
            ("ZMPOP 1 z MIN", "_"),
            ("ZADD z 1 a 2 b 3 c", ":3"),
            ("ZADD y 5 x", ":1"),
            ("ZMPOP 3 missing z y min", "[$1 z, [[$1 a, ,1]]]"),
            ("ZMPOP 2 z y MAX COUNT 5", "[$1 z, [[$1 c, ,3], [$1 b, ,2]]]"),
            ("ZMPOP 2 z y MAX count 1", "[$1 y, [[$1 x, ,5]]]"),
            ("EXISTS z y", ":0"),
            ("SET s text", "+OK"),
            ("ZADD z 1 a", ":1"),
            ("ZMPOP 2 s z MIN", WRONG),
            ("ZMPOP 2 missing s MIN", WRONG),
            ("ZMPOP 2 z s MIN", "[$1 z, [[$1 a, ,1]]]"),
        ]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let syntax = "-ERR syntax error";
        let positive = "-ERR value is out of range, must be positive";
        let no_keys = "-ERR numkeys should be greater than 0";
        let no_count = "-ERR count should be greater than 0";
        check(&[
            ("SET s text", "+OK"),
            ("ZPOPMIN s", WRONG),
            ("ZPOPMIN s 0", WRONG),
            ("ZPOPMAX s -1", positive),
            ("ZPOPMAX s x", positive),
            ("ZPOPMAX s 1 2", syntax),
            ("ZMPOP 0 s MIN", no_keys),
            ("ZMPOP x s MIN", no_keys),
            ("ZMPOP 2 s MIN", syntax),
            ("ZMPOP 1 s LEFT", syntax),
            ("ZMPOP 1 s MIN COUNT", syntax),
            ("ZMPOP 1 s MIN COUNT 0", no_count),
            ("ZMPOP 1 s MIN COUNT x", no_count),
            ("ZMPOP 1 s MIN COUNT 1 COUNT 1", syntax),
            ("ZMPOP 9223372036854775807 s MIN", syntax),
            ("ZMPOP 1 s MIN COUNT 1", WRONG),
        ]);
    }

    #[test]
    fn every_member_popped_is_a_change() {
        let mut server = Harness::new(true);
        server.run("ZADD z 1 a 2 b 3 c 4 d");
        for (line, changes) in
            [("ZPOPMIN z", 1), ("ZPOPMAX z 0", 0), ("ZMPOP 1 z MIN COUNT 2", 2), ("ZPOPMIN no", 0)]
        {
            server.changes = 0;
            server.run(line);
            assert_eq!(server.changes, changes, "{line}");
        }
    }
}
