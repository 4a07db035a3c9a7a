//! Sets made of other sets: intersections, unions and differences.
//!
//! Only one value can be borrowed at a time, so the sets that the result's members come from are copied
//! (of an intersection the smallest, of a difference the first, of a union all), and the others are
//! looked at one after the other.

use std::collections::HashSet;

use keyspace::Key;
use resp::{Args, Reply};
use value::leaf::members::Members;
use value::{Kind, parse_i64};

use crate::collection::Set;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::room::{FRAME_BYTES, check_copies, check_stored};
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES);
const STORE: Flags = Flags::WRITE.and(Flags::DENYOOM);

const ANSWERED: KeyFlags = KeyFlags::RO.and(KeyFlags::ACCESS);
const SETS: &[KeySpec] = &[KeySpec::from(1, 1, ANSWERED, Needs::Value)];
const COUNTED_SETS: &[KeySpec] = &[KeySpec {
    flags: ANSWERED,
    needs: Needs::Value,
    begin: Begin::Index(1),
    find: Find::Count { at: 0, first: 1, step: 1 },
}];
const TARGET_AND_SETS: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly),
    KeySpec::from(2, 1, ANSWERED, Needs::Value),
];

/// The same, as Redis tells it of one command alone.
const UPDATED_AND_SETS: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::KeyOnly),
    KeySpec::from(2, 1, ANSWERED, Needs::Value),
];

const NO_KEYS: CommandError = fixed("ERR numkeys should be greater than 0");
const TOO_MANY_KEYS: CommandError =
    fixed("ERR Number of keys can't be greater than number of args");
const NEGATIVE_LIMIT: CommandError = fixed("ERR LIMIT can't be negative");

/// A pass over a set, with a look-up of each member in a hash table, takes as long as to look for so many
/// members in it, whatever its size (measured, from 100 members to 200,000).
const LOOKED_FOR_MAX: u64 = 100;
/// To look for a member in a large set takes as long as to go through so many of its members.
const LOOK_UP_MEMBERS: u64 = 8;
/// Bytes that a member takes in the tables by which members are looked up.
const LOOKED_UP_BYTES: u64 = 48;
/// Bytes that a member takes besides its own while the result is made into leaves: its hash, where it is, and
/// what the size classes of leaves leave over.
const ORDERED_BYTES: u64 = 32;
/// Leaves of a large set that SINTERCARD with a limit looks at first; then so many times more.
const FIRST_LEAVES: usize = 32;
const WIDENED_BY: usize = 4;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "SINTER",
        arity: -2,
        flags: READ,
        keys: SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Returns the members that several sets have in common.",
            complexity: "O(N) for N members of all sets together",
            syntax: "key [key ...]",
        },
        run: sinter,
    },
    Command {
        name: "SINTERCARD",
        arity: -3,
        flags: Flags::READONLY.and(Flags::MOVABLEKEYS),
        keys: COUNTED_SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "7.0.0",
            summary: "Counts the members that several sets have in common, up to a limit.",
            complexity: "O(N) for N members of all sets together",
            syntax: "numkeys key [key ...] [LIMIT limit]",
        },
        run: sintercard,
    },
    Command {
        name: "SINTERSTORE",
        arity: -3,
        flags: STORE,
        keys: UPDATED_AND_SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Sets a key to the members that several sets have in common.",
            complexity: "O(N) for N members of all sets together",
            syntax: "destination key [key ...]",
        },
        run: sinterstore,
    },
    Command {
        name: "SUNION",
        arity: -2,
        flags: READ,
        keys: SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Returns the members of all of several sets.",
            complexity: "O(N) for N members of all sets together",
            syntax: "key [key ...]",
        },
        run: sunion,
    },
    Command {
        name: "SUNIONSTORE",
        arity: -3,
        flags: STORE,
        keys: TARGET_AND_SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Sets a key to the members of all of several sets.",
            complexity: "O(N) for N members of all sets together",
            syntax: "destination key [key ...]",
        },
        run: sunionstore,
    },
    Command {
        name: "SDIFF",
        arity: -2,
        flags: READ,
        keys: SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Returns the members of a set that no other of several sets has.",
            complexity: "O(N) for N members of all sets together",
            syntax: "key [key ...]",
        },
        run: sdiff,
    },
    Command {
        name: "SDIFFSTORE",
        arity: -3,
        flags: STORE,
        keys: TARGET_AND_SETS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Sets a key to the members of a set that no other of several sets has.",
            complexity: "O(N) for N members of all sets together",
            syntax: "destination key [key ...]",
        },
        run: sdiffstore,
    },
];

fn sinter(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, Operation::Intersection, reply)
}

fn sunion(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, Operation::Union, reply)
}

fn sdiff(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    answer(cx, Operation::Difference, reply)
}

fn sinterstore(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    store(cx, Operation::Intersection, reply)
}

fn sunionstore(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    store(cx, Operation::Union, reply)
}

fn sdiffstore(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    store(cx, Operation::Difference, reply)
}

fn sintercard(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let limit = parse_limit(args)?;
    let keys = cx.keys;
    let plan = Plan::new(cx, Operation::Intersection, keys)?;
    check_copies(cx, &keys[0], plan.copied_bytes_max(), reply)?;
    let mut count = 0;
    match limit {
        None => {
            let copies = plan.copy(cx)?;
            count = plan.members(cx, &copies)?.len() as u64;
        }
        // Of a large set some leaves, then more, until the limit is reached.
        Some(limit) => {
            let mut leaves = 0..FIRST_LEAVES;
            while let Some(source) = plan.copied.first().filter(|_| count < limit) {
                let copies = cx.copy_set(&source.key, leaves.clone())?;
                if copies.is_empty() {
                    break;
                }
                count += plan.members(cx, &copies)?.len() as u64;
                if !source.is_tree {
                    break;
                }
                leaves = leaves.end..leaves.end * WIDENED_BY;
            }
        }
    }
    reply.integer(limit.map_or(count, |limit| count.min(limit)) as i64);
    Ok(())
}

/// The limit of SINTERCARD, whose arguments are checked with it. None: there is no limit.
fn parse_limit(args: Args<'_>) -> Result<Option<u64>, CommandError> {
    let count = parse_i64(&args[1]).filter(|&count| count > 0).ok_or(NO_KEYS)? as usize;
    if count > args.len() - 2 {
        return Err(TOO_MANY_KEYS);
    }
    let mut limit = 0;
    let mut rest = args.from(2 + count).iter();
    while let Some(option) = rest.next() {
        let value = rest.next().filter(|_| option.eq_ignore_ascii_case(b"LIMIT"));
        let number = parse_i64(value.ok_or(CommandError::SYNTAX)?);
        limit = number.and_then(|number| u64::try_from(number).ok()).ok_or(NEGATIVE_LIMIT)?;
    }
    Ok((limit > 0).then_some(limit))
}

/// Replies with the result on all keys.
fn answer(cx: &mut Cx<'_, '_>, operation: Operation, reply: &mut Reply) -> CommandResult {
    let keys = cx.keys;
    let plan = Plan::new(cx, operation, keys)?;
    let last = keys.last().expect("invariant: the arity asks for one");
    let bytes = plan.copied_bytes_max() + plan.answered_bytes_max();
    check_stored(last, bytes, cx.reply_bytes_max, reply)?;
    let copies = plan.copy(cx)?;
    let members = plan.members(cx, &copies)?;
    reply.reserve(members.iter().map(|member| member.len() + FRAME_BYTES as usize).sum());
    reply.set(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

/// Stores the result on all keys but the first in that one.
fn store(cx: &mut Cx<'_, '_>, operation: Operation, reply: &mut Reply) -> CommandResult {
    let (target, keys) = cx.keys.split_first().expect("invariant: the arity asks for keys");
    let plan = Plan::new(cx, operation, keys)?;
    check_copies(cx, target, plan.copied_bytes_max() + plan.stored_bytes_max(), reply)?;
    let copies = plan.copy(cx)?;
    let members = plan.members(cx, &copies)?;
    let kind = match plan.fills_before_it_removes() {
        true => kind_of(cx, &copies.iter().flat_map(|leaf| members_of(leaf)).collect::<Vec<_>>()),
        false => kind_of(cx, &members),
    };
    let event = match operation {
        Operation::Intersection => Event::SINTERSTORE,
        Operation::Union => Event::SUNIONSTORE,
        Operation::Difference => Event::SDIFFSTORE,
    };
    cx.store_set(target, kind, &members, event)?;
    reply.integer(members.len() as i64);
    Ok(())
}

/// The kind of a new set with these members.
fn kind_of(cx: &Cx<'_, '_>, members: &[&[u8]]) -> Kind {
    let mut kind = cx.kind_of_set(members.len() as u64);
    members.iter().for_each(|member| kind.add(member));
    kind.kind()
}

fn members_of(leaf: &[u8]) -> impl Iterator<Item = &[u8]> {
    Members::new(leaf).iter()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// Of all sets.
    Intersection,
    /// Of all sets.
    Union,
    /// Of the first set and the union of the others.
    Difference,
}

/// A set as it was found.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    key: Key<'a>,
    len: u64,
    byte_len: u64,
    is_tree: bool,
}

/// An operation on sets that were looked up.
struct Plan<'a> {
    operation: Operation,
    /// The set of each key; none where there is no key.
    sources: Vec<Option<Source<'a>>>,
    /// The sets, all different, that the result's members come from.
    copied: Vec<Source<'a>>,
}

impl<'a> Plan<'a> {
    /// Looks up all sets.
    ///
    /// Errors: [`CommandError::WRONG_TYPE`], [`CommandError::NotResident`].
    fn new(
        cx: &mut Cx<'_, '_>,
        operation: Operation,
        keys: &'a [Key<'a>],
    ) -> Result<Plan<'a>, CommandError> {
        let look_up = |key: &'a Key<'a>| -> Result<Option<Source<'a>>, CommandError> {
            cx.count_read(key);
            let found = cx.read_set(key)?;
            Ok(found.map(|set| Source {
                key: *key,
                len: set.len(),
                byte_len: set.byte_len(),
                is_tree: matches!(set, Set::Tree(_)),
            }))
        };
        let sources = keys.iter().map(look_up).collect::<Result<Vec<_>, CommandError>>()?;
        let existing = || sources.iter().flatten().copied();
        let copied = match operation {
            Operation::Intersection if sources.iter().any(Option::is_none) => Vec::new(),
            Operation::Intersection => {
                existing().min_by_key(|source| source.len).into_iter().collect()
            }
            Operation::Difference => sources.first().copied().flatten().into_iter().collect(),
            Operation::Union => {
                let mut seen = HashSet::new();
                existing().filter(|source| seen.insert(source.key.bytes)).collect()
            }
        };
        Ok(Plan { operation, sources, copied })
    }

    /// Bytes that the copies take, with what members are looked up by.
    fn copied_bytes_max(&self) -> u64 {
        let bytes = |source: &Source<'_>| source.byte_len + source.len * LOOKED_UP_BYTES;
        self.copied.iter().map(bytes).sum()
    }

    /// Bytes of a reply of all that is copied.
    fn answered_bytes_max(&self) -> u64 {
        let bytes = |source: &Source<'_>| source.byte_len + source.len * FRAME_BYTES;
        self.copied.iter().map(bytes).sum()
    }

    /// Bytes that the result takes at most, while its leaves are put in order and then put into the tree.
    fn stored_bytes_max(&self) -> u64 {
        let bytes = |source: &Source<'_>| 2 * source.byte_len + source.len * ORDERED_BYTES;
        self.copied.iter().map(bytes).sum()
    }

    /// Copies of the leaves of the sets that the result's members come from.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn copy(&self, cx: &mut Cx<'_, '_>) -> Result<Vec<Vec<u8>>, CommandError> {
        let (others, wanted) = (self.others(), self.copied.iter().map(|source| source.len).sum());
        let visited = others.iter().filter(|other| is_visited(wanted, other.len));
        cx.announce_sets(self.copied.iter().chain(visited).map(|source| &source.key))?;
        let mut copies = Vec::new();
        for source in &self.copied {
            copies.append(&mut cx.copy_set(&source.key, 0..usize::MAX)?);
        }
        Ok(copies)
    }

    /// The members of the result that come from these leaves, all different.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn members<'c>(
        &self,
        cx: &mut Cx<'_, '_>,
        copies: &'c [Vec<u8>],
    ) -> Result<Vec<&'c [u8]>, CommandError> {
        let leaves = || copies.iter().map(|leaf| Members::new(leaf));
        // As large as it will be: one that grew would take three times as much for a moment.
        let mut members: Vec<&[u8]> = Vec::with_capacity(leaves().map(|leaf| leaf.len()).sum());
        members.extend(leaves().flat_map(|leaf| leaf.iter()));
        if self.copied.len() > 1 {
            let mut seen = HashSet::with_capacity(members.len());
            members.retain(|member| seen.insert(*member));
        }
        for other in self.others() {
            if members.is_empty() {
                break;
            }
            if let Some(set) = cx.set_again(&other.key) {
                keep(&mut members, set, self.operation == Operation::Intersection)?;
            }
        }
        Ok(members)
    }

    /// The sets that decide which members stay, in the order in which they are asked.
    fn others(&self) -> Vec<Source<'a>> {
        match self.operation {
            Operation::Union => Vec::new(),
            Operation::Difference => self.sources.iter().skip(1).flatten().copied().collect(),
            Operation::Intersection => {
                let is_other = |source: &&Source<'a>| {
                    self.copied.iter().all(|one| one.key.bytes != source.key.bytes)
                };
                let others = self.sources.iter().flatten().filter(is_other);
                let mut others: Vec<Source<'a>> = others.copied().collect();
                others.sort_unstable_by_key(|source| source.len);
                others
            }
        }
    }

    /// Whether Redis has all members of the first set in the result of a difference before it removes those
    /// of the others, so that they decide about its encoding.
    fn fills_before_it_removes(&self) -> bool {
        let (Operation::Difference, Some(first)) = (self.operation, self.copied.first()) else {
            return false;
        };
        let lens = || self.sources.iter().flatten().map(|source| source.len);
        lens().count() as u64 * first.len / 2 > lens().sum::<u64>()
    }
}

/// Whether a set of `len` is gone through to find out which of so many members it has, rather than that each
/// is looked for in it.
fn is_visited(members: u64, len: u64) -> bool {
    members >= LOOKED_FOR_MAX && members * LOOK_UP_MEMBERS >= len
}

/// Keeps the members that a set has, or those that it has not.
///
/// Errors: [`CommandError::NotResident`].
fn keep(members: &mut Vec<&[u8]>, mut set: Set<'_>, had: bool) -> CommandResult {
    let is_visited = match set {
        // A look-up goes through the leaf.
        Set::Leaf(_) => members.len() as u64 >= LOOKED_FOR_MAX,
        Set::Tree(_) => is_visited(members.len() as u64, set.len()),
    };
    if is_visited {
        let mut lacked: HashSet<&[u8]> = members.iter().copied().collect();
        set.visit(|member| {
            lacked.remove(member);
        })?;
        members.retain(|member| lacked.contains(member) != had);
        return Ok(());
    }
    set.announce(members.iter().copied())?;
    let mut result = Ok(());
    members.retain(|member| {
        set.contains(member).map_or_else(
            |error| {
                result = Err(error);
                true
            },
            |is_there| is_there == had,
        )
    });
    result
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn intersections() {
        check(&[
            ("SADD a 1 2 3 x y", ":5"),
            ("SADD b 3 2 y z", ":4"),
            ("SADD c y 2 q r s t", ":6"),
            ("SINTER a", "~[$1 1, $1 2, $1 3, $1 x, $1 y]"),
            ("SINTER a b", "~[$1 3, $1 2, $1 y]"),
            ("SINTER c a b", "~[$1 2, $1 y]"),
            ("SINTER a a b b a", "~[$1 3, $1 2, $1 y]"),
            ("SINTER a missing b", "~[]"),
            ("SINTER missing", "~[]"),
            ("SINTERSTORE to a b c", ":2"),
            ("SMEMBERS to", "~[$1 2, $1 y]"),
            ("SINTERSTORE a a b", ":3"),
            ("SMEMBERS a", "~[$1 3, $1 2, $1 y]"),
            ("SINTERSTORE to a missing", ":0"),
            ("EXISTS to", ":0"),
            ("SINTERSTORE to a missing", ":0"),
            ("SADD d none", ":1"),
            ("SINTER a d", "~[]"),
            ("SINTERSTORE b a d", ":0"),
            ("EXISTS b", ":0"),
        ]);
    }

    #[test]
    fn unions() {
        check(&[
            ("SADD a 1 x", ":2"),
            ("SADD b x 2", ":2"),
            ("SUNION a", "~[$1 1, $1 x]"),
            ("SUNION a b", "~[$1 1, $1 x, $1 2]"),
            ("SUNION missing b a b a", "~[$1 x, $1 2, $1 1]"),
            ("SUNION missing", "~[]"),
            ("SUNIONSTORE a b a", ":3"),
            ("SMEMBERS a", "~[$1 x, $1 2, $1 1]"),
            ("SUNIONSTORE to missing gone", ":0"),
            ("EXISTS to", ":0"),
            ("SUNIONSTORE a missing", ":0"),
            ("EXISTS a", ":0"),
        ]);
    }

    #[test]
    fn differences() {
        check(&[
            ("SADD a 1 2 3 x y", ":5"),
            ("SADD b 3 z", ":2"),
            ("SADD c x", ":1"),
            ("SDIFF a", "~[$1 1, $1 2, $1 3, $1 x, $1 y]"),
            ("SDIFF a b c", "~[$1 1, $1 2, $1 y]"),
            ("SDIFF a missing b", "~[$1 1, $1 2, $1 x, $1 y]"),
            ("SDIFF missing a", "~[]"),
            ("SDIFF a b a", "~[]"),
            ("SDIFFSTORE to a b c", ":3"),
            ("SMEMBERS to", "~[$1 1, $1 2, $1 y]"),
            ("SDIFFSTORE a a to", ":2"),
            ("SMEMBERS a", "~[$1 3, $1 x]"),
            ("SDIFFSTORE a missing b", ":0"),
            ("EXISTS a", ":0"),
        ]);
    }

    #[test]
    fn counting_what_is_common() {
        let no_keys = "-ERR numkeys should be greater than 0";
        let too_many = "-ERR Number of keys can't be greater than number of args";
        let negative = "-ERR LIMIT can't be negative";
        let syntax = "-ERR syntax error";
        check(&[
            ("SADD a 1 2 3", ":3"),
            ("SADD b 2 3 4", ":3"),
            ("SINTERCARD 1 a", ":3"),
            ("SINTERCARD 2 a b", ":2"),
            ("SINTERCARD 3 a b a LIMIT 0", ":2"),
            ("SINTERCARD 2 a b LIMIT 1", ":1"),
            ("SINTERCARD 2 a b limit 10", ":2"),
            ("SINTERCARD 2 a b LIMIT 1 LIMIT 0", ":2"),
            ("SINTERCARD 2 a missing", ":0"),
            ("SINTERCARD 2 a", too_many),
            ("SINTERCARD 0 a", no_keys),
            ("SINTERCARD -1 a", no_keys),
            ("SINTERCARD x a", no_keys),
            ("SINTERCARD 9223372036854775807 a", too_many),
            ("SINTERCARD 9223372036854775808 a", no_keys),
            ("SINTERCARD 1 a b", syntax),
            ("SINTERCARD 1 a LIMIT", syntax),
            ("SINTERCARD 1 a LIMIT 1 2", syntax),
            ("SINTERCARD 1 a LIMIT -1", negative),
            ("SINTERCARD 1 a LIMIT x", negative),
            ("SINTERCARD 1", "-ERR wrong number of arguments for 'sintercard' command"),
            ("SET string v", "+OK"),
            ("SINTERCARD 2 missing string", WRONG),
            ("SINTERCARD 1 string LIMIT x", negative),
        ]);
    }

    #[test]
    fn other_types_are_refused_wherever_they_stand() {
        check(&[
            ("SADD a 1", ":1"),
            ("SET string v", "+OK"),
            ("SINTER missing string", WRONG),
            ("SINTER string", WRONG),
            ("SUNION a string", WRONG),
            ("SDIFF missing string", WRONG),
            ("SDIFF a string", WRONG),
            ("SINTERSTORE a missing string", WRONG),
            ("SUNIONSTORE a string", WRONG),
            ("SDIFFSTORE a missing string", WRONG),
            ("SMEMBERS a", "~[$1 1]"),
            ("SINTERSTORE string a a", ":1"),
            ("TYPE string", "+set"),
            ("SINTER", "-ERR wrong number of arguments for 'sinter' command"),
            ("SINTERSTORE a", "-ERR wrong number of arguments for 'sinterstore' command"),
        ]);
    }

    #[test]
    fn a_stored_result_takes_the_place_of_anything() {
        let mut server = Harness::new(true);
        server.run("SADD a 1 2");
        for (line, expected, changes) in [
            ("SET to text EX 100", "+OK", 1),
            ("SUNIONSTORE to a", ":2", 1),
            ("TTL to", ":-1", 0),
            ("SINTERSTORE to a missing", ":0", 1),
            ("SINTERSTORE to a missing", ":0", 0),
            ("SDIFFSTORE to a a", ":0", 0),
            ("SUNIONSTORE a a", ":2", 1),
        ] {
            server.changes = 0;
            assert_eq!(server.run(line), expected, "{line}");
            assert_eq!(server.changes, changes, "{line}");
        }
    }

    /// What redis-server 7.0 answers.
    #[test]
    fn encodings_of_results() {
        let numbers = |range: std::ops::Range<i32>| -> String {
            range.map(|number| format!(" {number}")).collect()
        };
        check(&[
            ("SADD words 1 2 x", ":3"),
            ("SREM words x", ":1"),
            ("OBJECT ENCODING words", "$9 hashtable"),
            ("SUNIONSTORE to words", ":2"),
            ("OBJECT ENCODING to", "$6 intset"),
            (&format!("SADD low{}", numbers(0..300)), ":300"),
            (&format!("SADD high{}", numbers(212..512)), ":300"),
            ("SUNIONSTORE to low high", ":512"),
            ("OBJECT ENCODING to", "$6 intset"),
            ("SADD high 512", ":1"),
            ("SUNIONSTORE to low high", ":513"),
            ("OBJECT ENCODING to", "$9 hashtable"),
            ("SINTERSTORE to low high", ":88"),
            ("OBJECT ENCODING to", "$6 intset"),
            // Of three sets, the first of which is large, Redis removes from a copy of the first.
            ("SADD first 1 2 3 4 5 6 7 8 9 x", ":10"),
            ("SADD x x", ":1"),
            ("SDIFFSTORE to first x", ":9"),
            ("OBJECT ENCODING to", "$6 intset"),
            ("SDIFFSTORE to first x x", ":9"),
            ("OBJECT ENCODING to", "$9 hashtable"),
            ("SADD xs x a b c", ":4"),
            ("SDIFFSTORE to first xs x", ":9"),
            ("OBJECT ENCODING to", "$6 intset"),
        ]);
    }

    #[test]
    fn large_sets_are_compared_in_one_pass() {
        let mut server = Harness::new(true);
        let members = |numbers: &mut dyn Iterator<Item = u32>| -> String {
            numbers.map(|number| format!(" m{number}")).collect()
        };
        server.run(&format!("SADD a{}", members(&mut (0..2_000))));
        server.run(&format!("SADD b{}", members(&mut (0..3_000).step_by(2))));
        server.run(&format!("SADD c{}", members(&mut (0..3_000).step_by(3))));
        for (line, expected) in [
            ("SINTERSTORE to a b", ":1000"),
            ("SINTERCARD 3 b a c", ":334"),
            ("SDIFFSTORE to a b", ":1000"),
            ("SDIFFSTORE to a b c", ":667"),
            ("SISMEMBER to m5", ":1"),
            ("SISMEMBER to m4", ":0"),
            ("SISMEMBER to m9", ":0"),
            ("SUNIONSTORE to a b c", ":2667"),
            ("SCARD to", ":2667"),
            ("SMISMEMBER to m1 m2003 m2002 m2997", "[:1, :0, :1, :1]"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
    }

    #[test]
    fn a_result_that_memory_has_no_room_for_is_refused() {
        let mut server = Harness::new(false);
        server.run("SADD a 0123456789");
        server.run(&format!("SADD b {}", "x".repeat(1_000)));
        server.memory_bytes_max = 500;
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(server.run("SUNIONSTORE to a b"), refused);
        assert_eq!(server.run("SUNIONSTORE to a"), ":1");
        assert_eq!(server.run("SINTERSTORE to a b"), ":0");
    }
}
