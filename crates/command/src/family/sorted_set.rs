//! Sorted sets, one member after another: ZADD, ZINCRBY, ZREM, and what asks for members by name.

use std::collections::HashMap;

use keyspace::Key;
use resp::{Args, Protocol, Reply};
use smallvec::SmallVec;
use value::number::parse_f64;

use super::room::{FRAME_BYTES, Room, check_room};
use crate::collection::{ScoreChange, SortedSet};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

const NX_AND_XX: CommandError = fixed("ERR XX and NX options at the same time are not compatible");
const GT_LT_AND_NX: CommandError =
    fixed("ERR GT, LT, and/or NX options at the same time are not compatible");
const MANY_INCREMENTS: CommandError =
    fixed("ERR INCR option supports a single increment-element pair");
const NOT_A_NUMBER: CommandError = fixed("ERR resulting score is not a number (NaN)");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "ZADD",
        arity: -4,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "1.2.0",
            summary: "Adds members to a sorted set, or gives them other scores.",
            complexity: "O(log(N)) for each member of N, and a move of those behind it in its leaf",
            syntax: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        },
        run: zadd,
    },
    Command {
        name: "ZINCRBY",
        arity: 4,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::at(
            1,
            KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE),
            Needs::Value,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "1.2.0",
            summary: "Adds a number to the score of a member; a missing one counts as 0.",
            complexity: "O(log(N)) for N members",
            syntax: "key increment member",
        },
        run: zincrby,
    },
    Command {
        name: "ZREM",
        arity: -3,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "1.2.0",
            summary: "Removes members from a sorted set; the key goes with the last.",
            complexity: "O(M*log(N)) for M members of N",
            syntax: "key member [member ...]",
        },
        run: zrem,
    },
    Command {
        name: "ZCARD",
        arity: 2,
        flags: READ,
        keys: &[KeySpec::at(1, KeyFlags::RO, Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "1.2.0",
            summary: "Tells how many members a sorted set has.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: zcard,
    },
    Command {
        name: "ZSCORE",
        arity: 3,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "1.2.0",
            summary: "Returns the score of a member.",
            complexity: "O(log(N)) for N members",
            syntax: "key member",
        },
        run: zscore,
    },
    Command {
        name: "ZMSCORE",
        arity: -3,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "6.2.0",
            summary: "Returns the scores of several members.",
            complexity: "O(M*log(N)) for M members of N",
            syntax: "key member [member ...]",
        },
        run: zmscore,
    },
    Command {
        name: "ZRANK",
        arity: -3,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "2.0.0",
            summary: "Tells how many members stand in front of one, and its score if so asked.",
            complexity: "O(log(N)) for N members",
            syntax: "key member [WITHSCORE]",
        },
        run: zrank,
    },
    Command {
        name: "ZREVRANK",
        arity: -3,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "2.0.0",
            summary: "Tells how many members stand behind one, and its score if so asked.",
            complexity: "O(log(N)) for N members",
            syntax: "key member [WITHSCORE]",
        },
        run: zrevrank,
    },
];

/// Which members ZADD adds and changes, and what it answers.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl Options {
    /// Reads NX, XX and CH in front of places and members. Returns how many there are, too. None: NX and XX
    /// stand together.
    pub(super) fn parse_few(args: Args<'_>) -> Option<(Options, usize)> {
        let mut options = Options::default();
        let is_one = |word: &&[u8]| {
            [b"NX", b"XX", b"CH"].iter().any(|name| word.eq_ignore_ascii_case(*name))
        };
        let count = args.iter().take_while(is_one).filter(|word| options.set(word)).count();
        (!(options.nx && options.xx)).then_some((options, count))
    }

    /// Reads the options in front of the scores and members. Returns how many there are, too.
    fn parse(args: Args<'_>, incr: bool) -> (Options, usize) {
        let mut options = Options { incr, ..Options::default() };
        let count = args.iter().take_while(|word| options.set(word)).count();
        (options, count)
    }

    fn set(&mut self, word: &[u8]) -> bool {
        let option = match word.to_ascii_uppercase().as_slice() {
            b"NX" => &mut self.nx,
            b"XX" => &mut self.xx,
            b"GT" => &mut self.gt,
            b"LT" => &mut self.lt,
            b"CH" => &mut self.ch,
            b"INCR" => &mut self.incr,
            _ => return false,
        };
        *option = true;
        true
    }

    fn check(self, pairs: usize) -> CommandResult {
        if self.nx && self.xx {
            return Err(NX_AND_XX);
        }
        if (self.gt || self.lt) && self.nx || (self.gt && self.lt) {
            return Err(GT_LT_AND_NX);
        }
        if self.incr && pairs > 1 {
            return Err(MANY_INCREMENTS);
        }
        Ok(())
    }

    /// The score of a member afterwards. None: it stays as it is.
    ///
    /// Errors: it would be no number.
    fn new_score(self, old: Option<f64>, given: f64) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else { return Ok((!self.xx).then_some(given)) };
        if self.nx {
            return Ok(None);
        }
        let new = if self.incr { old + given } else { given };
        if new.is_nan() {
            return Err(NOT_A_NUMBER);
        }
        let is_kept = (self.lt && new >= old) || (self.gt && new <= old);
        Ok((!is_kept).then_some(new))
    }
}

fn zadd(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    add(cx, args, false, reply)
}

fn zincrby(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    add(cx, args, true, reply)
}

fn add(
    cx: &mut Cx<'_, '_>,
    args: Args<'_>,
    is_increment: bool,
    reply: &mut Reply,
) -> CommandResult {
    let (options, count) = Options::parse(args.from(2), is_increment);
    let pairs = args.from(2 + count);
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(CommandError::SYNTAX);
    }
    options.check(pairs.len() / 2)?;
    let mut given: SmallVec<[(f64, &[u8]); 4]> = SmallVec::new();
    for (score, member) in pairs.iter().step_by(2).zip(pairs.iter().skip(1).step_by(2)) {
        given.push((parse_f64(score).ok_or(CommandError::NOT_FLOAT)?, member));
    }
    add_all(cx, options, &given, reply)
}

/// Adds members with their scores to the sorted set of the first key.
pub(super) fn add_all(
    cx: &mut Cx<'_, '_>,
    options: Options,
    given: &[(f64, &[u8])],
    reply: &mut Reply,
) -> CommandResult {
    let key = cx.key(0);
    let set = cx.read_sorted_set(&key)?;
    let Additions { changes, added, updated, last } = Additions::new(set, options, given)?;
    if !changes.is_empty() {
        cx.change_sorted_set(&key, &changes)?;
        let event = if options.incr { Event::ZINCR } else { Event::ZADD };
        cx.report(&key, event, added + updated);
    }
    match (options.incr, last) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.integer(if options.ch { added + updated } else { added } as i64),
    }
    Ok(())
}

/// What ZADD does.
struct Additions<'m> {
    changes: SmallVec<[ScoreChange<'m>; 1]>,
    added: u64,
    updated: u64,
    /// The score that the last member has then, unless it stays as it is.
    last: Option<f64>,
}

impl<'m> Additions<'m> {
    fn new(
        mut set: Option<SortedSet<'_>>,
        options: Options,
        pairs: &[(f64, &'m [u8])],
    ) -> Result<Additions<'m>, CommandError> {
        if let Some(set) = &mut set {
            set.announce(pairs.iter().map(|(_, member)| *member))?;
        }
        // Which change is that of a member, for those that are named again.
        let mut changed: HashMap<&[u8], usize> = HashMap::new();
        let mut additions =
            Additions { changes: SmallVec::new(), added: 0, updated: 0, last: None };
        for &(score, member) in pairs {
            let before = changed.get(member).copied();
            let old = match (before, &mut set) {
                (Some(at), _) => additions.changes[at].new,
                (None, Some(set)) => set.score(member)?,
                (None, None) => None,
            };
            additions.last = options.new_score(old, score)?;
            let Some(new) = additions.last else { continue };
            match old {
                None => additions.added += 1,
                Some(old) if old != new => additions.updated += 1,
                Some(_) => continue,
            }
            let begun = additions.changes.len();
            match before {
                Some(at) => {
                    let change = &mut additions.changes[at];
                    (change.new, change.begun) = (Some(new), begun);
                }
                None => {
                    if pairs.len() > 1 {
                        changed.insert(member, begun);
                    }
                    let (new, begun) = (Some(new), begun + 1);
                    additions.changes.push(ScoreChange { member, old, new, begun });
                }
            }
        }
        Ok(additions)
    }
}

fn zrem(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let members = args.from(2);
    let mut found: HashMap<&[u8], f64> = HashMap::new();
    if let Some(mut set) = cx.read_sorted_set(&key)? {
        set.announce(members.iter())?;
        for member in members.iter() {
            if let Some(score) = set.score(member)? {
                found.insert(member, score);
            }
        }
    }
    let removed = |(member, score)| ScoreChange::removal(member, score);
    let changes: SmallVec<[ScoreChange<'_>; 4]> = found.into_iter().map(removed).collect();
    if !changes.is_empty() {
        cx.change_sorted_set(&key, &changes)?;
        cx.report(&key, Event::ZREM, changes.len() as u64);
        cx.report_if_gone(&key);
    }
    reply.integer(changes.len() as i64);
    Ok(())
}

fn zcard(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let len = cx.read_sorted_set(&cx.key(0))?.map_or(0, |set| set.len());
    reply.integer(len as i64);
    Ok(())
}

fn zscore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let score = match cx.read_sorted_set(&cx.key(0))? {
        Some(mut set) => set.score(&args[2])?,
        None => None,
    };
    write_score(score, reply);
    Ok(())
}

fn write_score(score: Option<f64>, reply: &mut Reply) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zmscore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let members = args.from(2);
    let key = cx.key(0);
    let mut set = cx.read_sorted_set(&key)?;
    if let Some(set) = &mut set {
        set.announce(members.iter())?;
    }
    reply.array(members.len());
    for member in members.iter() {
        let score = match &mut set {
            Some(set) => set.score(member)?,
            None => None,
        };
        write_score(score, reply);
    }
    Ok(())
}

fn zrank(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    rank(cx, args, false, reply)
}

fn zrevrank(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    rank(cx, args, true, reply)
}

fn rank(cx: &mut Cx<'_, '_>, args: Args<'_>, backwards: bool, reply: &mut Reply) -> CommandResult {
    let with_score = match args.len() {
        3 => false,
        4 if args[3].eq_ignore_ascii_case(b"WITHSCORE") => true,
        4 => return Err(CommandError::SYNTAX),
        _ => return Err(wrong_arity(&args[0])),
    };
    let found = match cx.read_sorted_set(&cx.key(0))? {
        Some(mut set) => {
            let len = set.len();
            set.rank(&args[2])?.map(|(rank, score)| match backwards {
                true => (len - 1 - rank, score),
                false => (rank, score),
            })
        }
        None => None,
    };
    match found {
        None if with_score => reply.null_array(),
        None => reply.null(),
        Some((rank, score)) => {
            if with_score {
                reply.array(2);
            }
            reply.integer(rank as i64);
            if with_score {
                reply.double(score);
            }
        }
    }
    Ok(())
}

fn wrong_arity(name: &[u8]) -> CommandError {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    CommandError::owned(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Bytes that a member and its score take in a reply, beyond those that they take in a leaf.
pub(super) const SCORED_FRAME_BYTES: u64 = 32;

/// An array of members, with their scores if so asked: beside them in RESP2, in pairs in RESP3.
pub(super) struct MemberList<'a> {
    key: &'a Key<'a>,
    reply: &'a mut Reply,
    with_scores: bool,
    is_paired: bool,
    room: Room,
}

impl<'a> MemberList<'a> {
    /// Bytes of an array of so many members, which take `bytes` in the value of their key.
    pub(super) fn bytes((members, bytes): (u64, u64), with_scores: bool) -> u64 {
        let frame = if with_scores { SCORED_FRAME_BYTES } else { 0 };
        bytes.saturating_add(members.saturating_mul(frame))
    }

    /// Begins the array of so many members of `key`, which take `bytes` in its value, about, in a reply of up
    /// to `bytes_max` bytes.
    ///
    /// Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn new(
        key: &'a Key<'a>,
        (members, bytes): (u64, u64),
        with_scores: bool,
        bytes_max: usize,
        reply: &'a mut Reply,
    ) -> Result<MemberList<'a>, CommandError> {
        let bytes = MemberList::bytes((members, bytes), with_scores);
        check_room(key, bytes, bytes_max, reply)?;
        reply.reserve(bytes as usize);
        let is_flat = with_scores && reply.protocol() == Protocol::Resp2;
        reply.array(if is_flat { 2 * members } else { members } as usize);
        Ok(MemberList::begun(key, with_scores, bytes_max, reply))
    }

    /// Goes on with an array that an earlier run has begun.
    pub(super) fn begun(
        key: &'a Key<'a>,
        with_scores: bool,
        bytes_max: usize,
        reply: &'a mut Reply,
    ) -> MemberList<'a> {
        let is_paired = with_scores && reply.protocol() == Protocol::Resp3;
        MemberList { key, reply, with_scores, is_paired, room: Room::new(bytes_max) }
    }

    /// Adds a member, if there is room for it.
    pub(super) fn push(&mut self, member: &[u8], score: f64) {
        let frame = FRAME_BYTES + if self.with_scores { SCORED_FRAME_BYTES } else { 0 };
        if !self.room.takes(member.len() as u64 + frame, self.reply) {
            return;
        }
        if self.is_paired {
            self.reply.array(2);
        }
        self.reply.bulk(member);
        if self.with_scores {
            self.reply.double(score);
        }
    }

    /// Ends the array.
    ///
    /// Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn end(self) -> CommandResult {
        self.room.end(self.key, self.reply)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stdx::Random;

    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn members_are_added_asked_for_and_removed() {
        check(&[
            ("ZADD z 1 a 2 b", ":2"),
            ("ZADD z 3 b 0.5 c 0.25 c", ":1"),
            ("ZSCORE z b", ",3"),
            ("ZSCORE z c", ",0.25"),
            ("ZSCORE z none", "_"),
            ("ZSCORE missing a", "_"),
            ("ZMSCORE z a none b", "[,1, _, ,3]"),
            ("ZMSCORE missing a b", "[_, _]"),
            ("ZCARD z", ":3"),
            ("ZCARD missing", ":0"),
            ("ZRANGE z 0 -1", "[$1 c, $1 a, $1 b]"),
            ("ZRANK z c", ":0"),
            ("ZRANK z b", ":2"),
            ("ZREVRANK z b", ":0"),
            ("ZREVRANK z c withscore", "[:2, ,0.25]"),
            ("ZRANK z none", "_"),
            ("ZRANK z none WITHSCORE", "_"),
            ("ZREVRANK missing a", "_"),
            ("TYPE z", "+zset"),
            ("ZREM z a x a b", ":2"),
            ("ZREM z x", ":0"),
            ("ZREM z c", ":1"),
            ("EXISTS z", ":0"),
            ("ZREM z c", ":0"),
        ]);
    }

    #[test]
    fn options_say_which_members_change() {
        check(&[
            ("ZADD z XX 1 a", ":0"),
            ("EXISTS z", ":0"),
            ("ZADD z XX INCR 1 a", "_"),
            ("ZADD z NX 1 a 2 a 2 b", ":2"),
            ("ZMSCORE z a b", "[,1, ,2]"),
            ("ZADD z XX CH 5 a 5 c", ":1"),
            ("ZADD z GT CH 4 a 6 b 7 c", ":2"),
            ("ZMSCORE z a b c", "[,5, ,6, ,7]"),
            ("ZADD z LT CH 4 a 6 b 8 c 1 d", ":2"),
            ("ZADD z GT XX CH 9 e", ":0"),
            ("ZADD z ch 4 a", ":0"),
            ("ZADD z INCR 2 a", ",6"),
            ("ZADD z INCR NX 2 a", "_"),
            ("ZADD z GT INCR -2 a", "_"),
            ("ZADD z LT INCR -2 a", ",4"),
            ("ZADD z LT XX INCR -2 none", "_"),
            ("ZADD z incr ch 2 new", ",2"),
            ("ZADD z nx incr 2 newer", ",2"),
        ]);
    }

    #[test]
    fn scores_are_added_to() {
        check(&[
            ("ZINCRBY z 1.5 a", ",1.5"),
            ("ZINCRBY z -2 a", ",-0.5"),
            ("ZINCRBY z 1e17 a", ",1e+17"),
            ("ZINCRBY z inf a", ",inf"),
            ("ZINCRBY z -inf a", "-ERR resulting score is not a number (NaN)"),
            ("ZINCRBY z x a", "-ERR value is not a valid float"),
            ("ZINCRBY z nan a", "-ERR value is not a valid float"),
            ("ZINCRBY z nx a", "-ERR syntax error"),
            ("ZINCRBY z ch nx", "-ERR syntax error"),
            ("ZINCRBY z 0.1 b", ",0.10000000000000001"),
            ("ZINCRBY z 0.2 b", ",0.30000000000000004"),
        ]);
    }

    /// What redis-server 7.0 answers.
    #[test]
    fn a_listpack_has_no_negative_zero() {
        check(&[
            ("ZADD z INCR -0 a", ",-0"),
            ("ZSCORE z a", ",0"),
            (&format!("ZADD z 1 {LONG}"), ":1"),
            ("ZADD z -0 b", ":1"),
            ("ZSCORE z a", ",0"),
            ("ZSCORE z b", ",-0"),
            ("ZADD z CH 0 b", ":0"),
            ("ZSCORE z b", ",-0"),
            ("ZRANGE z 0 -1", &format!("[$1 a, $1 b, $70 {LONG}]")),
            ("ZADD s -0 a -0 b", ":2"),
            ("ZMSCORE s a b", "[,0, ,0]"),
            ("ZUNION 1 z WITHSCORES", &format!("[[$1 a, ,0], [$1 b, ,-0], [$70 {LONG}, ,1]]")),
            ("ZUNION 1 s WITHSCORES WEIGHTS -1", "[[$1 a, ,-0], [$1 b, ,-0]]"),
            // What a member had before in the same command was in a listpack still.
            (&format!("ZADD again 19 a -5 {LONG} -0 a"), ":2"),
            ("ZSCORE again a", ",-0"),
            (&format!("ZADD twice 19 a -0 a -5 {LONG}"), ":2"),
            ("ZSCORE twice a", ",0"),
        ]);
    }

    /// Some are in a leaf twice meanwhile, with both scores: when leaves they moved between are joined.
    #[test]
    fn many_members_of_a_large_set_move_at_once() {
        let mut server = Harness::new(false);
        const MEMBERS: usize = 800;
        let mut check = |of_member: fn(usize) -> usize| {
            let pairs: String =
                (0..MEMBERS).map(|at| format!(" {} {at:03}", of_member(at))).collect();
            server.run(&format!("ZADD z{pairs}"));
            let mut expected: Vec<(usize, usize)> =
                (0..MEMBERS).map(|at| (of_member(at), at)).collect();
            expected.sort_unstable();
            let members: Vec<String> =
                expected.iter().map(|(_, at)| format!("$3 {at:03}")).collect();
            assert_eq!(server.run("ZRANGE z 0 -1"), format!("[{}]", members.join(", ")));
        };
        check(|at| at % 50 * 2);
        check(|at| at % 50);
        check(|at| (at * 7) % 100);
        check(|at| at % 3);
        check(|at| MEMBERS - at);
    }

    #[test]
    fn sorted_sets_leave_ram_and_come_back() {
        check(&[
            (&format!("ZADD z 1 {LONG} 2 {LONG}x"), ":2"),
            (&format!("ZSCORE z {LONG}"), ",1"),
            ("ZADD z 3 new", ":1"),
            ("ZMSCORE z new none", "[,3, _]"),
            (&format!("ZREM z {LONG}"), ":1"),
            (&format!("ZRANK z {LONG}x"), ":0"),
            ("ZCARD z", ":2"),
        ]);
    }

    #[test]
    fn other_types_and_wrong_arguments_are_refused() {
        let syntax = "-ERR syntax error";
        let float = "-ERR value is not a valid float";
        check(&[
            ("SET s text", "+OK"),
            ("ZADD z 1 a", ":1"),
            ("ZADD s 1 a", WRONG),
            ("ZADD s XX 1 a", WRONG),
            ("ZADD s x a", float),
            ("ZINCRBY s 1 a", WRONG),
            ("ZREM s a", WRONG),
            ("ZCARD s", WRONG),
            ("ZSCORE s a", WRONG),
            ("ZMSCORE s a", WRONG),
            ("ZRANK s a", WRONG),
            ("ZREVRANK s a WITHSCORE", WRONG),
            ("GET z", WRONG),
            ("HGET z a", WRONG),
            ("SADD z a", WRONG),
            ("LPUSH z a", WRONG),
            ("ZADD z 1 a 2", syntax),
            ("ZADD z 1 a x b", float),
            ("ZADD z 1 a '' b", float),
            ("ZADD z ' 1' b 1 c", float),
            ("ZADD z 1e400 b", float),
            ("ZADD z NX XX", syntax),
            ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
            (
                "ZADD z NX GT 1 a",
                "-ERR GT, LT, and/or NX options at the same time are not compatible",
            ),
            (
                "ZADD z LT GT 1 a",
                "-ERR GT, LT, and/or NX options at the same time are not compatible",
            ),
            ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
            ("ZADD z 1", "-ERR wrong number of arguments for 'zadd' command"),
            ("ZRANK z a WITH", syntax),
            ("ZRANK z a WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command"),
            ("ZRANK z", "-ERR wrong number of arguments for 'zrank' command"),
            ("ZRANGE z 0 -1 WITHSCORES", "[[$1 a, ,1]]"),
        ]);
    }

    #[test]
    fn encodings_follow_from_members_and_the_limits() {
        let many: String = (0..128).map(|number| format!(" {number} m{number}")).collect();
        check(&[
            (&format!("ZADD z{many}"), ":128"),
            ("OBJECT ENCODING z", "$8 listpack"),
            ("ZADD z 9 m1", ":0"),
            ("OBJECT ENCODING z", "$8 listpack"),
            ("ZADD z 1 one-more", ":1"),
            ("OBJECT ENCODING z", "$8 skiplist"),
            ("ZREM z one-more", ":1"),
            ("OBJECT ENCODING z", "$8 skiplist"),
            (&format!("ZADD long 1 {}", &LONG[..64]), ":1"),
            ("OBJECT ENCODING long", "$8 listpack"),
            (&format!("ZADD long 1 {}", &LONG[..65]), ":1"),
            ("OBJECT ENCODING long", "$8 skiplist"),
            ("ZUNIONSTORE to 1 z", ":128"),
            ("OBJECT ENCODING to", "$8 listpack"),
            ("ZUNIONSTORE to 1 long", ":2"),
            ("OBJECT ENCODING to", "$8 skiplist"),
        ]);
    }

    #[test]
    fn many_changes_at_once_are_those_one_after_another() {
        let mut server = Harness::new(true);
        let pairs = |range: std::ops::Range<u32>, step: u32| -> String {
            range.map(|number| format!(" {} m{number}", number * step % 50)).collect()
        };
        assert_eq!(server.run(&format!("ZADD all{}", pairs(0..300, 7))), ":300");
        assert_eq!(server.run(&format!("ZADD all CH{}", pairs(100..400, 3))), ":292");
        for first in (0..300).step_by(20) {
            server.run(&format!("ZADD singly{}", pairs(first..first + 20, 7)));
        }
        for first in (100..400).step_by(20) {
            server.run(&format!("ZADD singly{}", pairs(first..first + 20, 3)));
        }
        let shown = server.run("ZRANGE all 0 -1 WITHSCORES");
        assert_eq!(shown, server.run("ZRANGE singly 0 -1 WITHSCORES"));
        let names: String = (0..390).map(|number| format!(" m{number}")).collect();
        assert_eq!(server.run(&format!("ZREM all{names} none")), ":390");
        assert_eq!(server.run("ZCARD all"), ":10");
        assert_eq!(server.run(&format!("ZREM singly{names} m390 m391 m392")), ":393");
        assert_eq!(server.run("ZRANGE singly 0 -1"), server.run("ZRANGE all 3 -1"));
    }

    #[test]
    fn only_what_changes_is_counted() {
        let mut server = Harness::new(true);
        for (line, changes) in [
            ("ZADD z 1 a 2 b 3 a", 3),
            ("ZADD z 3 a 2 b", 0),
            ("ZADD z NX 5 a", 0),
            ("ZADD z INCR 1 a", 1),
            ("ZINCRBY z 0 a", 0),
            ("ZREM z a a none", 1),
            ("ZREM z none", 0),
        ] {
            server.changes = 0;
            server.run(line);
            assert_eq!(server.changes, changes, "{line}");
        }
    }

    #[test]
    fn keys_of_sorted_sets_are_carried_and_expire_as_others() {
        let mut server = Harness::new(true);
        for (line, expected) in [
            ("ZADD z 1 a", ":1"),
            ("EXPIRE z 100", ":1"),
            ("ZADD z 2 b", ":1"),
            ("TTL z", ":100"),
            ("COPY z copy", ":1"),
            ("RENAME z other", "+OK"),
            ("MOVE copy 1", ":1"),
            ("ZSCORE other b", ",2"),
            ("SCAN 0 TYPE zset COUNT 1000", "[$1 0, [$5 other]]"),
            ("SELECT 1", "+OK"),
            ("ZSCORE copy a", ",1"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
        server.now_ms += 100_000;
        assert_eq!(server.run("EXISTS copy"), ":0");
    }

    /// A sorted set of many leaves, made in steps that divide leaves and branches, and unmade again, beside a
    /// model.
    #[test]
    fn large_sorted_sets_do_what_small_ones_do() {
        for (demote, count) in [(false, 12_000), (true, 1_500)] {
            let mut server = Harness::new(demote);
            let mut model: BTreeMap<String, f64> = BTreeMap::new();
            let mut random = Random::new(7);
            let name = |number: u64| format!("member-{number:07}-{}", number % 10);
            for step in 0..count / 50 {
                let mut line = "ZADD z".to_owned();
                for _ in 0..50 {
                    let member = name(random.below(count));
                    // Some scores are those of many.
                    let score = match step % 3 {
                        0 => random.below(20) as f64,
                        1 => step as f64,
                        _ => random.below(1_000_000) as f64 / 8.0,
                    };
                    line.push_str(&format!(" {score} {member}"));
                    model.insert(member, score);
                }
                assert!(server.run(&line).starts_with(':'));
                if step % 5 == 0 {
                    let member = name(random.below(count));
                    let removed = model.remove(&member).is_some();
                    assert_eq!(
                        server.run(&format!("ZREM z {member}")),
                        format!(":{}", u8::from(removed))
                    );
                }
            }
            assert!(server.nodes() > model.len() / 40, "{} nodes", server.nodes());
            assert_same(&mut server, &model, &mut random);
            assert_eq!(server.run("COPY z copy"), ":1");
            assert_eq!(server.run("RENAME z other"), "+OK");
            assert_eq!(server.run("RENAME other z"), "+OK");
            assert_eq!(server.run("DEL copy"), ":1");
            assert_same(&mut server, &model, &mut random);
            while !model.is_empty() {
                let mut line = "ZREM z none".to_owned();
                let members: Vec<String> = model.keys().step_by(3).take(60).cloned().collect();
                members.iter().for_each(|member| line.push_str(&format!(" {member}")));
                assert_eq!(server.run(&line), format!(":{}", members.len()));
                members.iter().for_each(|member| {
                    model.remove(member);
                });
            }
            assert_eq!((server.run("EXISTS z"), server.nodes()), (":0".to_owned(), 0));
            server.check_counts();
        }
    }

    fn in_order(model: &BTreeMap<String, f64>) -> Vec<(&str, f64)> {
        let mut members: Vec<(&str, f64)> =
            model.iter().map(|(member, score)| (member.as_str(), *score)).collect();
        members.sort_by(|one, two| one.1.total_cmp(&two.1).then(one.0.cmp(two.0)));
        members
    }

    fn show_members<'m>(members: impl Iterator<Item = &'m (&'m str, f64)>) -> String {
        let pairs: Vec<String> = members
            .map(|(member, score)| format!("[${} {member}, ,{score}]", member.len()))
            .collect();
        format!("[{}]", pairs.join(", "))
    }

    fn assert_same(server: &mut Harness, model: &BTreeMap<String, f64>, random: &mut Random) {
        let members = in_order(model);
        let len = members.len();
        assert_eq!(server.run("ZCARD z"), format!(":{len}"));
        assert_eq!(server.run("OBJECT ENCODING z"), "$8 skiplist");
        assert_eq!(server.run("ZRANGE z 0 -1 WITHSCORES"), show_members(members.iter()));
        assert_eq!(server.run("ZREVRANGE z 0 -1 WITHSCORES"), show_members(members.iter().rev()));
        for _ in 0..200 {
            let at = random.below(len as u64) as usize;
            let (member, score) = members[at];
            assert_eq!(server.run(&format!("ZSCORE z {member}")), format!(",{score}"));
            assert_eq!(
                server.run(&format!("ZRANK z {member} WITHSCORE")),
                format!("[:{at}, ,{score}]")
            );
            let count = 1 + random.below(100) as usize;
            let range = &members[at..(at + count).min(len)];
            let line = format!("ZRANGE z {at} {} WITHSCORES", at as i64 + count as i64 - 1);
            assert_eq!(server.run(&line), show_members(range.iter()));
            let (min, max) = (random.below(25) as f64, random.below(200) as f64);
            let is_in = |one: &&(&str, f64)| one.1 > min && one.1 <= max;
            let expected = members.iter().filter(is_in).count();
            assert_eq!(server.run(&format!("ZCOUNT z ({min} {max}")), format!(":{expected}"));
            let line = format!("ZREVRANGEBYSCORE z {max} ({min} WITHSCORES LIMIT 3 5");
            let expected = members.iter().rev().filter(is_in).skip(3).take(5);
            assert_eq!(server.run(&line), show_members(expected));
        }
        let names: String =
            members.iter().step_by(7).map(|(member, _)| format!(" {member}")).collect();
        let scores: Vec<String> =
            members.iter().step_by(7).map(|one| format!(",{}", one.1)).collect();
        assert_eq!(
            server.run(&format!("ZMSCORE z{names} none")),
            format!("[{}, _]", scores.join(", "))
        );
        assert_eq!(server.run("ZSCORE z none"), "_");
        assert_eq!(server.run("ZRANK z none"), "_");
    }

    /// Members whose scores are all equal, so that ranges of members are told and every walk looks at all.
    #[test]
    fn large_sorted_sets_of_one_score() {
        let mut server = Harness::new(true);
        let name = |number: usize| format!("m{number:05}");
        for first in (0..3_000).step_by(100) {
            let pairs: String = (first..first + 100).map(|at| format!(" 5 {}", name(at))).collect();
            assert_eq!(server.run(&format!("ZADD z{pairs}")), ":100");
        }
        for (line, expected) in [
            ("ZRANGEBYLEX z [m00100 (m00103", "[$6 m00100, $6 m00101, $6 m00102]"),
            ("ZREVRANGEBYLEX z [m00103 (m00100 LIMIT 1 1", "[$6 m00102]"),
            ("ZLEXCOUNT z - +", ":3000"),
            ("ZLEXCOUNT z (m00500 [m01500", ":1000"),
            ("ZLEXCOUNT z [m005005 (m01500", ":999"),
            ("ZCOUNT z 5 5", ":3000"),
            ("ZCOUNT z (5 6", ":0"),
            ("ZCOUNT z -inf (5", ":0"),
            ("ZREMRANGEBYLEX z [m01000 [m01999", ":1000"),
            ("ZCARD z", ":2000"),
            ("ZPOPMIN z 2", "[[$6 m00000, ,5], [$6 m00001, ,5]]"),
            ("ZPOPMAX z", "[$6 m02999, ,5]"),
            ("ZINCRBY z 1 m00500", ",6"),
            ("ZREVRANK z m00500", ":0"),
            ("ZREMRANGEBYRANK z 10 -11", ":1977"),
            ("ZRANGE z 9 10", "[$6 m00011, $6 m02990]"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
        assert_eq!(server.run("ZREMRANGEBYSCORE z -inf inf"), ":20");
        assert_eq!(server.run("EXISTS z"), ":0");
    }

    #[test]
    fn what_memory_has_no_room_for_is_refused() {
        let mut server = Harness::new(false);
        server.run("ZADD z 1 a");
        server.memory_bytes_max = 200;
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(server.run(&format!("ZADD z 1 {}", LONG.repeat(3))), refused);
        assert_eq!(server.run(&format!("ZADD new 1 {}", LONG.repeat(3))), refused);
        assert_eq!(server.run("ZADD z 1 b"), ":1");
        assert_eq!(server.run("EXISTS new"), ":0");
    }
}
