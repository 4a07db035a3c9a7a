//! Sorted sets made of other sets, sorted or not: unions, intersections and differences.
//!
//! Only one value can be borrowed at a time, so the sets that the result's members come from are copied
//! (of an intersection the smallest, of a difference the first, of a union all), and members of the others
//! are looked up.

use std::collections::HashMap;
use std::ops::ControlFlow;

use keyspace::Key;
use resp::{Args, Reply};
use value::leaf::scored::{SHAPE, compare};
use value::number::parse_f64;
use value::{Kind, parse_i64};

use super::room::{check_copies, check_stored};
use super::sorted_set::MemberList;
use crate::collection::{Copies, Made, Set, SortedSet};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{
    Begin, Command, Docs, Find, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs,
};

const ANSWERED: KeyFlags = KeyFlags::RO.and(KeyFlags::ACCESS);
const SETS: &[KeySpec] = &[counted_sets(1)];
const TARGET_AND_SETS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly), counted_sets(2)];

const fn counted_sets(at: usize) -> KeySpec {
    KeySpec {
        flags: ANSWERED,
        needs: Needs::Value,
        begin: Begin::Index(at),
        find: Find::Count { at: 0, first: 1, step: 1 },
    }
}

const NOT_A_WEIGHT: CommandError = fixed("ERR weight value is not a float");
const NEGATIVE_LIMIT: CommandError = fixed("ERR LIMIT can't be negative");

/// The score of a member of a set that is not sorted.
const SET_SCORE: f64 = 1.0;

/// Bytes that a copied member takes in the tables of an operation.
pub(super) const HELD_BYTES: u64 = 128;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    answer_command(
        "ZUNION",
        "Returns the members of all of several sorted sets, with their scores put together.",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        zunion,
    ),
    answer_command(
        "ZINTER",
        "Returns the members that several sorted sets have in common, with their scores put together.",
        "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        zinter,
    ),
    answer_command(
        "ZDIFF",
        "Returns the members of a sorted set that no other of several sets has.",
        "numkeys key [key ...] [WITHSCORES]",
        zdiff,
    ),
    store_command(
        "ZUNIONSTORE",
        "2.0.0",
        "Sets a key to the members of all of several sorted sets, with their scores put together.",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        zunionstore,
    ),
    store_command(
        "ZINTERSTORE",
        "2.0.0",
        "Sets a key to the members that several sorted sets have in common, with their scores put together.",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]",
        zinterstore,
    ),
    store_command(
        "ZDIFFSTORE",
        "6.2.0",
        "Sets a key to the members of a sorted set that no other of several sets has.",
        "destination numkeys key [key ...]",
        zdiffstore,
    ),
    Command {
        name: "ZINTERCARD",
        arity: -3,
        flags: Flags::READONLY.and(Flags::MOVABLEKEYS),
        keys: SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "7.0.0",
            summary: "Counts the members that several sorted sets have in common, up to a limit.",
            complexity: "O(N*K*log(M)) for N members of the smallest of K sets, the largest having M",
            syntax: "numkeys key [key ...] [LIMIT limit]",
        },
        run: zintercard,
    },
];

const fn answer_command(
    name: &'static str,
    summary: &'static str,
    syntax: &'static str,
    run: Handler,
) -> Command {
    Command {
        name,
        arity: -3,
        flags: Flags::READONLY.and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES),
        keys: SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since: "6.2.0",
            summary,
            complexity: "O(N*log(N)) for N members of all sets together",
            syntax,
        },
        run,
    }
}

const fn store_command(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
    run: Handler,
) -> Command {
    Command {
        name,
        arity: -4,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
        keys: TARGET_AND_SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::SortedSet,
            since,
            summary,
            complexity: "O(N*log(N)) for N members of all sets together",
            syntax,
        },
        run,
    }
}

fn zunion(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, Operation::Union, args, reply)
}

fn zinter(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, Operation::Intersection, args, reply)
}

fn zdiff(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, Operation::Difference, args, reply)
}

fn zunionstore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    store(cx, Operation::Union, args, reply)
}

fn zinterstore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    store(cx, Operation::Intersection, args, reply)
}

fn zdiffstore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    store(cx, Operation::Difference, args, reply)
}

fn zintercard(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let numkeys = parse_numkeys(&args[1], args.len() - 2, "zintercard")?;
    let keys = cx.keys;
    let sources = Source::find_all(cx, keys)?;
    let limit = parse_limit(args.from(2 + numkeys))?;
    let plan = Plan::new(Operation::Intersection, sources, Options::of(numkeys));
    check_copies(cx, &keys[0], plan.copied_bytes_max(), reply)?;
    let copies = plan.copy(cx)?;
    let count = plan.members(cx, &copies)?.len() as u64;
    reply.integer(if limit == 0 { count } else { count.min(limit) } as i64);
    Ok(())
}

/// How many keys there are, of `words` behind their number.
fn parse_numkeys(text: &[u8], words: usize, name: &str) -> Result<usize, CommandError> {
    let count = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
    if count < 1 {
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(CommandError::owned(text));
    }
    let count = usize::try_from(count).ok().filter(|&count| count <= words);
    count.ok_or(CommandError::SYNTAX)
}

fn parse_limit(options: Args<'_>) -> Result<u64, CommandError> {
    let mut limit = 0;
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let value = rest.next().filter(|_| option.eq_ignore_ascii_case(b"LIMIT"));
        let number = parse_i64(value.ok_or(CommandError::SYNTAX)?);
        limit = number.and_then(|number| u64::try_from(number).ok()).ok_or(NEGATIVE_LIMIT)?;
    }
    Ok(limit)
}

/// Replies with the result on all keys.
fn answer(
    cx: &mut Cx<'_, '_>,
    operation: Operation,
    args: Args<'_>,
    reply: &mut Reply,
) -> CommandResult {
    let numkeys = parse_numkeys(&args[1], args.len() - 2, operation.name(false))?;
    let (keys, reply_bytes_max) = (cx.keys, cx.reply_bytes_max);
    let sources = Source::find_all(cx, keys)?;
    let mut options = Options::of(numkeys);
    options.parse(args.from(2 + numkeys), operation, false)?;
    let with_scores = options.with_scores;
    let plan = Plan::new(operation, sources, options);
    let last = keys.last().expect("invariant: there is a key");
    let bytes = plan.copied_bytes_max() + plan.answered_bytes_max(with_scores);
    check_stored(last, bytes, reply_bytes_max, reply)?;
    let copies = plan.copy(cx)?;
    let mut members = plan.members(cx, &copies)?;
    members.sort_unstable_by(|one, two| compare(*one, *two));
    let row_bytes = members.iter().map(|(_, member)| SHAPE.row_bytes(&[member]) as u64);
    let size = (members.len() as u64, row_bytes.sum());
    let mut list = MemberList::new(last, size, with_scores, reply_bytes_max, reply)?;
    for (score, member) in members {
        list.push(member, score);
    }
    list.end()
}

/// Stores the result on all keys but the first in that one.
fn store(
    cx: &mut Cx<'_, '_>,
    operation: Operation,
    args: Args<'_>,
    reply: &mut Reply,
) -> CommandResult {
    let numkeys = parse_numkeys(&args[2], args.len() - 3, operation.name(true))?;
    let (target, keys) = cx.keys.split_first().expect("invariant: the first is one");
    let sources = Source::find_all(cx, keys)?;
    let mut options = Options::of(numkeys);
    options.parse(args.from(3 + numkeys), operation, true)?;
    let plan = Plan::new(operation, sources, options);
    check_copies(cx, target, plan.copied_bytes_max() + plan.stored_bytes_max(), reply)?;
    let copies = plan.copy(cx)?;
    let mut members = plan.members(cx, &copies)?;
    cx.store_sorted_set(target, &mut members, Made::AtOnce)?;
    let count = members.len();
    drop(members);
    drop(copies);
    cx.end_stored_sorted_set(target, (operation.event(), 1));
    reply.integer(count as i64);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// Of all sets.
    Union,
    /// Of all sets.
    Intersection,
    /// Of the first set and the union of the others.
    Difference,
}

impl Operation {
    fn name(self, is_store: bool) -> &'static str {
        match (self, is_store) {
            (Operation::Union, false) => "zunion",
            (Operation::Union, true) => "zunionstore",
            (Operation::Intersection, false) => "zinter",
            (Operation::Intersection, true) => "zinterstore",
            (Operation::Difference, false) => "zdiff",
            (Operation::Difference, true) => "zdiffstore",
        }
    }

    fn event(self) -> Event {
        match self {
            Operation::Union => Event::ZUNIONSTORE,
            Operation::Intersection => Event::ZINTERSTORE,
            Operation::Difference => Event::ZDIFFSTORE,
        }
    }
}

/// How the scores that a member has in several sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn parse(text: &[u8]) -> Option<Aggregate> {
        match text.to_ascii_uppercase().as_slice() {
            b"SUM" => Some(Aggregate::Sum),
            b"MIN" => Some(Aggregate::Min),
            b"MAX" => Some(Aggregate::Max),
            _ => None,
        }
    }

    /// Infinities of both signs are 0 together.
    fn join(self, one: f64, two: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(one + two),
            Aggregate::Min => {
                if two < one {
                    two
                } else {
                    one
                }
            }
            Aggregate::Max => {
                if two > one {
                    two
                } else {
                    one
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What is asked for behind the keys.
struct Options {
    /// Of each key.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Options {
    /// Those of a command that says nothing.
    fn of(numkeys: usize) -> Options {
        let weights = vec![1.0; numkeys];
        Options { weights, aggregate: Aggregate::Sum, with_scores: false }
    }

    fn parse(&mut self, args: Args<'_>, operation: Operation, is_store: bool) -> CommandResult {
        let has_scores = operation != Operation::Difference;
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if has_scores && is("WEIGHTS") && rest.len() >= self.weights.len() {
                for (weight, text) in self.weights.iter_mut().zip(rest.by_ref()) {
                    *weight = parse_f64(text).ok_or(NOT_A_WEIGHT)?;
                }
            } else if has_scores && is("AGGREGATE") && rest.len() > 0 {
                let aggregate = rest.next().and_then(Aggregate::parse);
                self.aggregate = aggregate.ok_or(CommandError::SYNTAX)?;
            } else if !is_store && is("WITHSCORES") {
                self.with_scores = true;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(())
    }
}

/// Members with scores: a sorted set, or a set.
enum Scores<'a> {
    Sorted(SortedSet<'a>),
    Set(Set<'a>),
}

impl<'s> Scores<'s> {
    /// Those of a key, counting as an access.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    fn read(cx: &'s mut Cx<'_, '_>, key: &'s Key<'_>) -> Result<Option<Scores<'s>>, CommandError> {
        let is_set = cx.peek(key).is_some_and(|view| Kind::from_bits(view.kind).is_set());
        if is_set {
            return Ok(cx.read_set(key)?.map(Scores::Set));
        }
        Ok(cx.read_sorted_set(key)?.map(Scores::Sorted))
    }

    fn len(&self) -> u64 {
        match self {
            Scores::Sorted(set) => set.len(),
            Scores::Set(set) => set.len(),
        }
    }

    fn byte_len(&self) -> u64 {
        match self {
            Scores::Sorted(set) => set.byte_len(),
            Scores::Set(set) => set.byte_len(),
        }
    }

    fn announce<'m>(&mut self, members: impl ExactSizeIterator<Item = &'m [u8]>) -> CommandResult {
        match self {
            Scores::Sorted(set) => set.announce(members),
            Scores::Set(set) => set.announce(members),
        }
    }

    fn score(&mut self, member: &[u8]) -> Result<Option<f64>, CommandError> {
        match self {
            Scores::Sorted(set) => set.score(member),
            Scores::Set(set) => Ok(set.contains(member)?.then_some(SET_SCORE)),
        }
    }

    fn visit(&mut self, mut visit: impl FnMut(&[u8], f64)) -> CommandResult {
        match self {
            Scores::Sorted(set) => set.visit(0..set.len(), false, |member, score| {
                visit(member, score);
                ControlFlow::Continue(())
            }),
            Scores::Set(set) => set.visit(|member| visit(member, SET_SCORE)),
        }
    }
}

/// A set as it was found; without members if there is no key.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    key: Key<'a>,
    len: u64,
    byte_len: u64,
    weight: f64,
}

impl<'a> Source<'a> {
    /// Looks up the sets of all keys.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    fn find_all(cx: &mut Cx<'_, '_>, keys: &'a [Key<'a>]) -> Result<Vec<Source<'a>>, CommandError> {
        let find = |key: &Key<'a>| {
            cx.count_read(key);
            let found = Scores::read(cx, key)?;
            let (len, byte_len) = found.map_or((0, 0), |set| (set.len(), set.byte_len()));
            Ok(Source { key: *key, len, byte_len, weight: 1.0 })
        };
        keys.iter().map(find).collect()
    }

    /// The set again, which is no further access. Panics: it has no members.
    fn read_again<'s>(&'s self, cx: &'s mut Cx<'_, '_>) -> Result<Scores<'s>, CommandError> {
        cx.end_counting_reads();
        let found = Scores::read(cx, &self.key)?;
        Ok(found.expect("invariant: the set was found in the same run"))
    }
}

/// An operation on sets that were looked up.
struct Plan<'a> {
    operation: Operation,
    /// In the order in which they are gone through, which decides about what is rounded.
    sources: Vec<Source<'a>>,
    aggregate: Aggregate,
}

impl<'a> Plan<'a> {
    fn new(operation: Operation, mut sources: Vec<Source<'a>>, options: Options) -> Plan<'a> {
        for (source, weight) in sources.iter_mut().zip(&options.weights) {
            source.weight = *weight;
        }
        if operation != Operation::Difference {
            sources.sort_by_key(|source| source.len);
        }
        Plan { operation, sources, aggregate: options.aggregate }
    }

    /// The sets that the result's members come from.
    fn copied(&self) -> &[Source<'a>] {
        match self.operation {
            Operation::Union => &self.sources,
            Operation::Intersection | Operation::Difference => &self.sources[..1],
        }
    }

    /// Bytes that the copies take, with what members are joined and looked up by.
    fn copied_bytes_max(&self) -> u64 {
        let bytes = |source: &Source<'_>| source.byte_len + source.len * HELD_BYTES;
        self.copied().iter().map(bytes).sum()
    }

    /// Bytes of a reply of all that is copied.
    fn answered_bytes_max(&self, with_scores: bool) -> u64 {
        let bytes =
            |source: &Source<'_>| MemberList::bytes((source.len, source.byte_len), with_scores);
        self.copied().iter().map(bytes).sum()
    }

    /// Bytes that the result takes at most.
    fn stored_bytes_max(&self) -> u64 {
        self.copied().iter().map(|source| source.byte_len).sum()
    }

    /// Copies of the sets that the result's members come from. Scores of a union have their weight.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn copy(&self, cx: &mut Cx<'_, '_>) -> Result<Copies, CommandError> {
        let no_touch = std::mem::replace(&mut cx.no_touch, true);
        let mut copies = Copies::default();
        let sum = |of: fn(&Source<'_>) -> u64| self.copied().iter().map(of).sum::<u64>() as usize;
        copies.reserve(sum(|source| source.len), sum(|source| source.byte_len));
        let mut copy_all = || {
            for source in self.copied().iter().filter(|source| source.len > 0) {
                let is_weighted = self.operation == Operation::Union;
                source.read_again(cx)?.visit(|member, score| {
                    let weighted = number_or_zero(source.weight * score);
                    copies.push(member, if is_weighted { weighted } else { score });
                })?;
            }
            Ok(())
        };
        let copied = copy_all();
        cx.no_touch = no_touch;
        copied.map(|()| copies)
    }

    /// The members of the result, all different, in any order.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn members<'c>(
        &self,
        cx: &mut Cx<'_, '_>,
        copies: &'c Copies,
    ) -> Result<Vec<(f64, &'c [u8])>, CommandError> {
        let members = copies.members();
        if self.operation == Operation::Union {
            return Ok(self.join(members));
        }
        let no_touch = std::mem::replace(&mut cx.no_touch, true);
        let result = match self.operation {
            Operation::Difference => self.subtract(cx, members),
            _ => self.intersect(cx, members),
        };
        cx.no_touch = no_touch;
        result
    }

    fn join<'c>(&self, members: Vec<(f64, &'c [u8])>) -> Vec<(f64, &'c [u8])> {
        if self.sources.iter().filter(|source| source.len > 0).count() == 1 {
            return members;
        }
        let mut joined: HashMap<&[u8], f64> = HashMap::with_capacity(members.len());
        for (score, member) in members {
            let sum = joined.get(member).map(|before| self.aggregate.join(*before, score));
            joined.insert(member, sum.unwrap_or(score));
        }
        joined.into_iter().map(|(member, score)| (score, member)).collect()
    }

    fn subtract<'c>(
        &self,
        cx: &mut Cx<'_, '_>,
        mut members: Vec<(f64, &'c [u8])>,
    ) -> Result<Vec<(f64, &'c [u8])>, CommandError> {
        for other in self.sources[1..].iter().filter(|source| source.len > 0) {
            if members.is_empty() || other.key.bytes == self.sources[0].key.bytes {
                return Ok(Vec::new());
            }
            let mut set = other.read_again(cx)?;
            set.announce(members.iter().map(|(_, member)| *member))?;
            let mut kept = Vec::new();
            for (score, member) in members {
                if set.score(member)?.is_none() {
                    kept.push((score, member));
                }
            }
            members = kept;
        }
        Ok(members)
    }

    fn intersect<'c>(
        &self,
        cx: &mut Cx<'_, '_>,
        members: Vec<(f64, &'c [u8])>,
    ) -> Result<Vec<(f64, &'c [u8])>, CommandError> {
        let first = &self.sources[0];
        // The score so far, and that in the first set.
        let begin = |(score, member)| (number_or_zero(first.weight * score), score, member);
        let mut common: Vec<(f64, f64, &[u8])> = members.into_iter().map(begin).collect();
        for other in &self.sources[1..] {
            if common.is_empty() {
                break;
            }
            let mut kept = Vec::new();
            if other.key.bytes == first.key.bytes {
                let join = |(sum, score, member)| {
                    (self.aggregate.join(sum, score * other.weight), score, member)
                };
                common = common.into_iter().map(join).collect();
                continue;
            }
            let mut set = other.read_again(cx)?;
            set.announce(common.iter().map(|(.., member)| *member))?;
            for (sum, score, member) in common {
                if let Some(found) = set.score(member)? {
                    kept.push((self.aggregate.join(sum, found * other.weight), score, member));
                }
            }
            common = kept;
        }
        Ok(common.into_iter().map(|(sum, _, member)| (sum, member)).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn unions() {
        check(&[
            ("ZADD z 1 a 2 b 5 d", ":3"),
            ("ZADD y 1 a inf i", ":2"),
            ("SADD s a b c", ":3"),
            ("ZUNION 2 z y", "[$1 a, $1 b, $1 d, $1 i]"),
            (
                "ZUNION 3 s z y WITHSCORES",
                "[[$1 c, ,1], [$1 a, ,3], [$1 b, ,3], [$1 d, ,5], [$1 i, ,inf]]",
            ),
            (
                "ZUNION 2 z y WEIGHTS 2 -inf WITHSCORES",
                "[[$1 a, ,-inf], [$1 i, ,-inf], [$1 b, ,4], [$1 d, ,10]]",
            ),
            (
                "ZUNION 2 z y WEIGHTS 1 2 weights 3 4 WITHSCORES",
                "[[$1 b, ,6], [$1 a, ,7], [$1 d, ,15], [$1 i, ,inf]]",
            ),
            ("ZUNION 2 y y WEIGHTS 1 -1 WITHSCORES", "[[$1 a, ,0], [$1 i, ,0]]"),
            ("ZUNION 1 y WEIGHTS 0 WITHSCORES", "[[$1 a, ,0], [$1 i, ,0]]"),
            ("ZUNION 2 z s AGGREGATE MIN WITHSCORES LIMIT 1", "-ERR syntax error"),
            (
                "ZUNION 2 z s AGGREGATE MIN WITHSCORES",
                "[[$1 a, ,1], [$1 b, ,1], [$1 c, ,1], [$1 d, ,5]]",
            ),
            (
                "ZUNION 2 z s AGGREGATE max WITHSCORES",
                "[[$1 a, ,1], [$1 c, ,1], [$1 b, ,2], [$1 d, ,5]]",
            ),
            ("ZUNION 2 missing none WITHSCORES", "[]"),
            ("ZUNION 3 z z z WITHSCORES", "[[$1 a, ,3], [$1 b, ,6], [$1 d, ,15]]"),
            ("ZUNIONSTORE to 2 z y AGGREGATE MIN", ":4"),
            ("ZRANGE to 0 -1", "[$1 a, $1 b, $1 d, $1 i]"),
            ("ZUNIONSTORE z 2 z s", ":4"),
            ("ZSCORE z a", ",2"),
            ("ZUNIONSTORE z 2 missing none", ":0"),
            ("EXISTS z", ":0"),
        ]);
    }

    #[test]
    fn intersections() {
        check(&[
            ("ZADD z 1 a 2 b 5 d", ":3"),
            ("ZADD y 1 a inf i 4 d 3 x", ":4"),
            ("SADD s a b c", ":3"),
            ("ZINTER 2 z y WITHSCORES", "[[$1 a, ,2], [$1 d, ,9]]"),
            ("ZINTER 3 y z s WITHSCORES WEIGHTS 2 3 4", "[[$1 a, ,9]]"),
            ("ZINTER 2 z s AGGREGATE MAX WITHSCORES", "[[$1 a, ,1], [$1 b, ,2]]"),
            ("ZINTER 2 z s AGGREGATE MIN WITHSCORES", "[[$1 a, ,1], [$1 b, ,1]]"),
            ("ZINTER 2 z z WEIGHTS 2 3 WITHSCORES", "[[$1 a, ,5], [$1 b, ,10], [$1 d, ,25]]"),
            ("ZINTER 2 z missing", "[]"),
            ("ZINTER 1 s WITHSCORES", "[[$1 a, ,1], [$1 b, ,1], [$1 c, ,1]]"),
            ("ZINTERSTORE to 2 z y", ":2"),
            ("ZRANGE to 0 -1 WITHSCORES", "[[$1 a, ,2], [$1 d, ,9]]"),
            ("ZINTERSTORE z 2 z y", ":2"),
            ("ZINTERSTORE to 2 z missing", ":0"),
            ("EXISTS to", ":0"),
            ("ZINTERCARD 2 z y", ":2"),
            ("ZINTERCARD 2 z y LIMIT 1", ":1"),
            ("ZINTERCARD 2 z y LIMIT 0", ":2"),
            ("ZINTERCARD 2 z y LIMIT 1 LIMIT 9", ":2"),
            ("ZINTERCARD 1 missing", ":0"),
        ]);
    }

    #[test]
    fn differences() {
        check(&[
            ("ZADD z 1 a 2 b 5 d", ":3"),
            ("ZADD y 1 a inf i", ":2"),
            ("SADD s a b c", ":3"),
            ("ZDIFF 1 z WITHSCORES", "[[$1 a, ,1], [$1 b, ,2], [$1 d, ,5]]"),
            ("ZDIFF 2 z y WITHSCORES", "[[$1 b, ,2], [$1 d, ,5]]"),
            ("ZDIFF 3 z y s", "[$1 d]"),
            ("ZDIFF 3 z missing s", "[$1 d]"),
            ("ZDIFF 2 s z WITHSCORES", "[[$1 c, ,1]]"),
            ("ZDIFF 2 z z", "[]"),
            ("ZDIFF 2 missing z", "[]"),
            ("ZDIFFSTORE z 2 z y", ":2"),
            ("ZRANGE z 0 -1", "[$1 b, $1 d]"),
            ("ZDIFFSTORE to 2 z z", ":0"),
        ]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let syntax = "-ERR syntax error";
        let integer = "-ERR value is not an integer or out of range";
        let none = |name: &str| format!("-ERR at least 1 input key is needed for '{name}' command");
        check(&[
            ("SET text x", "+OK"),
            ("ZADD z 1 a", ":1"),
            ("ZUNION 0 z", &none("zunion")),
            ("ZINTER -1 z", &none("zinter")),
            ("ZDIFFSTORE to 0 z", &none("zdiffstore")),
            ("ZINTERCARD 0 z", &none("zintercard")),
            ("ZUNION x z", integer),
            ("ZUNION 2 z", syntax),
            ("ZUNION 9223372036854775807 z", syntax),
            ("ZUNION 2 z text WEIGHTS", WRONG),
            ("ZDIFF 2 text z x", WRONG),
            ("ZUNIONSTORE to 1 text x", WRONG),
            ("ZUNIONSTORE to 1 z WITHSCORES", syntax),
            ("ZUNION 1 z WEIGHTS", syntax),
            ("ZUNION 2 z z WEIGHTS 1", syntax),
            ("ZUNION 1 z WEIGHTS x", "-ERR weight value is not a float"),
            ("ZUNION 1 z WEIGHTS nan", "-ERR weight value is not a float"),
            ("ZUNION 1 z AGGREGATE", syntax),
            ("ZUNION 1 z AGGREGATE avg", syntax),
            ("ZDIFF 1 z WEIGHTS 1", syntax),
            ("ZDIFF 1 z AGGREGATE SUM", syntax),
            ("ZINTERCARD 1 z WITHSCORES", syntax),
            ("ZINTERCARD 1 z LIMIT", syntax),
            ("ZINTERCARD 1 z LIMIT -1", "-ERR LIMIT can't be negative"),
            ("ZINTERCARD 1 z LIMIT x", "-ERR LIMIT can't be negative"),
            ("ZUNION 1", "-ERR wrong number of arguments for 'zunion' command"),
        ]);
    }

    #[test]
    fn large_sets() {
        let mut server = Harness::new(true);
        let pairs = |step: u32| -> String {
            (0..3_000).step_by(step as usize).map(|number| format!(" {number} m{number}")).collect()
        };
        server.run(&format!("ZADD a{}", pairs(2)));
        server.run(&format!("ZADD b{}", pairs(3)));
        let members: String = (0..3_000).step_by(5).map(|number| format!(" m{number}")).collect();
        server.run(&format!("SADD s{members}"));
        for (line, expected) in [
            ("ZINTERSTORE to 3 a b s", ":100"),
            ("ZSCORE to m30", ",61"),
            ("ZINTERCARD 2 a b LIMIT 501", ":500"),
            ("ZUNIONSTORE to 3 a b s", ":2200"),
            ("ZSCORE to m30", ",61"),
            ("ZSCORE to m25", ",1"),
            ("ZDIFFSTORE to 3 a b s", ":800"),
            ("ZSCORE to m4", ",4"),
            ("OBJECT ENCODING to", "$8 skiplist"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
    }

    #[test]
    fn a_result_that_memory_has_no_room_for_is_refused() {
        let mut server = Harness::new(false);
        server.run("ZADD a 1 0123456789");
        server.run(&format!("ZADD b 1 {}", "x".repeat(1_000)));
        server.memory_bytes_max = 500;
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(server.run("ZUNIONSTORE to 2 a b"), refused);
        assert_eq!(server.run("ZRANGESTORE to b 0 -1"), refused);
        assert_eq!(server.run("ZUNIONSTORE to 1 a"), ":1");
        assert_eq!(server.run("ZINTERSTORE to 2 a b"), ":0");
    }
    #[test]
    fn what_members_take_in_tables_counts() {
        let mut server = Harness::new(false);
        let pairs: String = (0..1_000).map(|number| format!(" {number} {number}")).collect();
        server.run(&format!("ZADD z{pairs}"));
        let lines = [
            "ZUNIONSTORE to 1 z",
            "ZINTERSTORE to 1 z",
            "ZDIFFSTORE to 1 z",
            "ZINTERCARD 1 z",
            "ZRANGESTORE to z 0 -1",
        ];
        for line in lines {
            server.memory_bytes_max = 100_000;
            assert_eq!(
                server.run(line),
                "-OOM command not allowed when used memory > 'maxmemory'.",
                "{line}"
            );
            server.memory_bytes_max = 200_000;
            assert_eq!(server.run(line), ":1000", "{line}");
        }
    }
}
