//! Hashes as a whole: HGETALL and its halves, HSCAN, HRANDFIELD.

use std::ops::ControlFlow;

use keyspace::Key;
use resp::{Args, Protocol, Reply};
use stdx::Random;
use value::parse_i64;

use crate::collection::Hash;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::room::{FRAME_BYTES, Room, check_room};
use crate::family::sample::{CHOICE_BYTES, sample};
use crate::family::scan::{ElementFilter, INVALID_CURSOR, parse_cursor};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const FLAGS: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES);
/// Of those that reply with all there is.
const FLAGS_OF_ALL: Flags = FLAGS.and(Flags::IN_WINDOWS);
const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

/// Fields that are drawn again when one has expired, before all are looked through.
const DRAWN_AGAIN: i64 = 15;

const OUT_OF_RANGE: CommandError = fixed("ERR value is out of range");
const NOT_NEGATABLE: CommandError = fixed(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "HGETALL",
        arity: 2,
        flags: FLAGS_OF_ALL,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Returns all fields of a hash and their values.",
            complexity: "O(N) for N fields",
            syntax: "key",
        },
        run: hgetall,
    },
    Command {
        name: "HKEYS",
        arity: 2,
        flags: FLAGS_OF_ALL,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Returns all fields of a hash.",
            complexity: "O(N) for N fields",
            syntax: "key",
        },
        run: hkeys,
    },
    Command {
        name: "HVALS",
        arity: 2,
        flags: FLAGS_OF_ALL,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Returns all values of a hash.",
            complexity: "O(N) for N fields",
            syntax: "key",
        },
        run: hvals,
    },
    Command {
        name: "HSCAN",
        arity: -3,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.8.0",
            summary: "Lists fields of a hash and their values a few at a time; a cursor says where to go on.",
            complexity: "O(1) for a call with a given COUNT, O(N) for a whole walk over N fields",
            syntax: "key cursor [MATCH pattern] [COUNT count]",
        },
        run: hscan,
    },
    Command {
        name: "HRANDFIELD",
        arity: -2,
        flags: FLAGS,
        keys: KEYS,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "6.2.0",
            summary: "Returns fields of a hash picked at random.",
            complexity: "O(N) for N fields that are asked for",
            syntax: "key [count [WITHVALUES]]",
        },
        run: hrandfield,
    },
];

fn hgetall(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max, begins) = (cx.key(0), cx.reply_bytes_max, cx.begins_reply());
    let Some(mut hash) = cx.read_hash(&key)? else {
        reply.map(0);
        return Ok(());
    };
    if begins {
        check_reply(&key, reply, &hash, reply_bytes_max)?;
        reply.map(hash.live_len()? as usize);
    }
    hash.visit(|field, value| {
        reply.bulk(field);
        reply.bulk(value);
        ControlFlow::Continue(())
    })
}

/// Whether there is memory for a reply with all of a hash.
///
/// Errors: [`CommandError::ReplyTooLong`].
fn check_reply(
    key: &Key<'_>,
    reply: &Reply,
    hash: &Hash<'_>,
    reply_bytes_max: usize,
) -> CommandResult {
    check_room(key, hash.byte_len() + 2 * FRAME_BYTES * hash.len(), reply_bytes_max, reply)
}

fn hkeys(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply_each(cx, reply, |(field, _)| field)
}

fn hvals(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply_each(cx, reply, |(_, value)| value)
}

fn reply_each(
    cx: &mut Cx<'_, '_>,
    reply: &mut Reply,
    choose: impl for<'a> Fn((&'a [u8], &'a [u8])) -> &'a [u8],
) -> CommandResult {
    let (key, reply_bytes_max, begins) = (cx.key(0), cx.reply_bytes_max, cx.begins_reply());
    let Some(mut hash) = cx.read_hash(&key)? else {
        reply.array(0);
        return Ok(());
    };
    if begins {
        check_reply(&key, reply, &hash, reply_bytes_max)?;
        reply.array(hash.live_len()? as usize);
    }
    hash.visit(|field, value| {
        reply.bulk(choose((field, value)));
        ControlFlow::Continue(())
    })
}

fn hscan(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let cursor = parse_cursor(&args[2]).ok_or(INVALID_CURSOR)?;
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut hash) = cx.read_hash(&key)? else {
        // Redis does not look at the options where there is nothing to list.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let filter = ElementFilter::parse(args.from(3))?;
    if let Hash::Leaf(_) = hash {
        check_reply(&key, reply, &hash, reply_bytes_max)?;
    }
    let mut listed = Reply::new(reply.protocol());
    let mut count = 0;
    let next = hash.scan(cursor, filter.count, |field, value| {
        if filter.lists(field) {
            listed.bulk(field);
            listed.bulk(value);
            count += 2;
        }
    })?;
    check_room(&key, listed.len() as u64, reply_bytes_max, reply)?;
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(count);
    reply.raw(listed.as_slice());
    Ok(())
}

fn hrandfield(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let Some(count) = args.get(2) else { return one_field(cx, &mut random, reply) };
    let count = parse_count(count)?;
    let with_values = match args.from(3).len() {
        0 => false,
        1 if args[3].eq_ignore_ascii_case(b"WITHVALUES") => {
            if count.unsigned_abs() > i64::MAX as u64 / 2 {
                return Err(OUT_OF_RANGE);
            }
            true
        }
        _ => return Err(CommandError::SYNTAX),
    };
    some_fields(cx, &mut random, count, with_values, reply)
}

/// As many as C's `long` can be negated.
pub(super) fn parse_count(text: &[u8]) -> Result<i64, CommandError> {
    match parse_i64(text) {
        Some(count) if count != i64::MIN => Ok(count),
        Some(_) => Err(NOT_NEGATABLE),
        None => Err(CommandError::NOT_INTEGER),
    }
}

fn one_field(cx: &mut Cx<'_, '_>, random: &mut Random, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let memory_bytes_max = cx.limits.memory_bytes_max() as u64;
    let Some(mut hash) = cx.read_hash(&key)? else {
        reply.null();
        return Ok(());
    };
    let position = random.below(hash.len());
    if let Some((field, _)) = hash.at(position)? {
        return write_field(&key, field, reply_bytes_max, reply);
    }
    // What has expired is removed soon, so it hardly ever takes more than these.
    let others = choose(random, -DRAWN_AGAIN, hash.len());
    announce(&mut hash, &others)?;
    for position in others {
        if let Some((field, _)) = hash.at(position)? {
            return write_field(&key, field, reply_bytes_max, reply);
        }
    }
    let live = live_positions(&hash, memory_bytes_max)?;
    let Some(&at) = choose(random, 1, live.len() as u64).first() else {
        reply.null();
        return Ok(());
    };
    let (field, _) = hash.at(live[at as usize])?.expect("invariant: it has not expired");
    write_field(&key, field, reply_bytes_max, reply)
}

fn write_field(
    key: &Key<'_>,
    field: &[u8],
    reply_bytes_max: usize,
    reply: &mut Reply,
) -> CommandResult {
    check_room(key, field.len() as u64, reply_bytes_max, reply)?;
    reply.bulk(field);
    Ok(())
}

/// Looks for the leaves of fields at some positions, which are asked for next.
///
/// Errors: [`CommandError::NotResident`].
fn announce(hash: &mut Hash<'_>, positions: &[u64]) -> CommandResult {
    if let Hash::Leaf(_) = hash {
        return Ok(());
    }
    let mut ascending = positions.to_vec();
    ascending.sort_unstable();
    hash.announce_nth(&ascending)
}

/// The positions of the fields that have not expired.
///
/// Errors: [`CommandError::OUT_OF_MEMORY`], [`CommandError::NotResident`].
fn live_positions(hash: &Hash<'_>, memory_bytes_max: u64) -> Result<Vec<u64>, CommandError> {
    if hash.len().saturating_mul(size_of::<u64>() as u64) > memory_bytes_max {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    hash.live_positions()
}

/// `count` different fields, or as many as there are; with a negative count, that many, of which one
/// may come more than once.
fn some_fields(
    cx: &mut Cx<'_, '_>,
    random: &mut Random,
    count: i64,
    with_values: bool,
    reply: &mut Reply,
) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let memory_bytes_max = cx.limits.memory_bytes_max() as u64;
    let Some(mut hash) = cx.read_hash(&key)? else {
        reply.array(0);
        return Ok(());
    };
    let fields = hash.len();
    let field_bytes = hash.byte_len() / fields + CHOICE_BYTES;
    if count < 0 && count.unsigned_abs().saturating_mul(field_bytes) > memory_bytes_max {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    let chosen = if count < 0 { count.unsigned_abs() } else { fields.min(count as u64) };
    check_room(&key, chosen.saturating_mul(field_bytes), reply_bytes_max, reply)?;
    let length = reply.len();
    let positions = choose(random, count, fields);
    if write_fields((&key, &mut hash), &positions, with_values, reply_bytes_max, reply)? {
        return Ok(());
    }
    reply.truncate(length);
    let live = live_positions(&hash, memory_bytes_max)?;
    let mut positions = choose(random, count, live.len() as u64);
    positions.iter_mut().for_each(|position| *position = live[*position as usize]);
    let is_done = write_fields((&key, &mut hash), &positions, with_values, reply_bytes_max, reply)?;
    assert!(is_done, "none of these has expired");
    Ok(())
}

/// Positions among so many, for a count as HRANDFIELD takes it.
fn choose(random: &mut Random, count: i64, fields: u64) -> Vec<u64> {
    match count {
        _ if fields == 0 => Vec::new(),
        ..0 => (0..count.unsigned_abs()).map(|_| random.below(fields)).collect(),
        _ => sample(random, fields, fields.min(count as u64)),
    }
}

/// Writes the fields at some positions. False: one of them has expired, and it is given up.
///
/// Errors: [`CommandError::ReplyTooLong`], [`CommandError::NotResident`].
fn write_fields(
    (key, hash): (&Key<'_>, &mut Hash<'_>),
    positions: &[u64],
    with_values: bool,
    reply_bytes_max: usize,
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    announce(hash, positions)?;
    let mut list = FieldList::new(reply, positions.len(), with_values, reply_bytes_max);
    for &position in positions {
        let Some(field) = hash.at(position)? else { return Ok(false) };
        list.push(field);
    }
    list.room.end(key, list.reply)?;
    Ok(true)
}

/// An array of fields, with their values if so asked: beside them in RESP2, in pairs in RESP3.
struct FieldList<'a> {
    reply: &'a mut Reply,
    with_values: bool,
    room: Room,
}

impl<'a> FieldList<'a> {
    fn new(
        reply: &'a mut Reply,
        fields: usize,
        with_values: bool,
        bytes_max: usize,
    ) -> FieldList<'a> {
        let is_flat = with_values && reply.protocol() == Protocol::Resp2;
        reply.array(if is_flat { 2 * fields } else { fields });
        FieldList { reply, with_values, room: Room::new(bytes_max) }
    }

    /// Adds a field, if there is room for it.
    fn push(&mut self, (field, value): (&[u8], &[u8])) {
        let value_len = if self.with_values { value.len() } else { 0 };
        let bytes = (field.len() + value_len) as u64 + 3 * FRAME_BYTES;
        if !self.room.takes(bytes, self.reply) {
            return;
        }
        if self.with_values && self.reply.protocol() == Protocol::Resp3 {
            self.reply.array(2);
        }
        self.reply.bulk(field);
        if self.with_values {
            self.reply.bulk(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use crate::harness::{Harness, check};

    #[test]
    fn everything_is_listed() {
        check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HGETALL h", "{$1 a: $1 1, $1 b: $1 2}"),
            ("HKEYS h", "[$1 a, $1 b]"),
            ("HVALS h", "[$1 1, $1 2]"),
            ("HSCAN h 0", "[$1 0, [$1 a, $1 1, $1 b, $1 2]]"),
            ("HSCAN h 0 MATCH [b-z] COUNT 1", "[$1 0, [$1 b, $1 2]]"),
            ("HGETALL missing", "{}"),
            ("HKEYS missing", "[]"),
            ("HVALS missing", "[]"),
            ("HSCAN missing 0", "[$1 0, []]"),
            ("HSCAN h x", "-ERR invalid cursor"),
            ("HSCAN h 0 COUNT 0", "-ERR syntax error"),
            ("HSCAN h 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("HSCAN h 0 TYPE hash", "-ERR syntax error"),
            ("HSCAN h 0 MATCH", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn random_fields_as_many_as_asked_for() {
        check(&[
            ("HRANDFIELD missing", "_"),
            ("HRANDFIELD missing 3", "[]"),
            ("HSET h a 1", ":1"),
            ("HRANDFIELD h", "$1 a"),
            ("HRANDFIELD h 0", "[]"),
            ("HRANDFIELD h 5", "[$1 a]"),
            ("HRANDFIELD h -3", "[$1 a, $1 a, $1 a]"),
            ("HRANDFIELD h -2 withvalues", "[[$1 a, $1 1], [$1 a, $1 1]]"),
            ("HRANDFIELD h 1 WITHVALUES", "[[$1 a, $1 1]]"),
            ("HRANDFIELD h 1 WITHSCORES", "-ERR syntax error"),
            ("HRANDFIELD h x", "-ERR value is not an integer or out of range"),
            (
                "HRANDFIELD h -9223372036854775808",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
            ("HRANDFIELD h 4611686018427387904 WITHVALUES", "-ERR value is out of range"),
        ]);
    }

    #[test]
    fn a_walk_over_a_large_hash_finds_all_that_stays_however_it_changes() {
        let mut server = Harness::new(true);
        let value = "0123456789012345678901234567890123456789";
        for number in 0..1_000 {
            server.run(&format!("HSET h stays{number} {value}"));
        }
        let mut found = BTreeSet::new();
        let (mut cursor, mut calls) = (String::from("0"), 0);
        loop {
            let shown = server.run(&format!("HSCAN h {cursor} COUNT 20"));
            let words = shown.split(['[', ']', ',', ' ']).filter(|word| !word.is_empty());
            let words: Vec<&str> = words.filter(|word| !word.starts_with('$')).collect();
            words[1..].chunks(2).for_each(|pair| {
                found.insert(pair[0].to_owned());
            });
            cursor = words[0].to_owned();
            if cursor == "0" {
                break;
            }
            calls += 1;
            for number in 0..20 {
                let name = calls * 20 + number;
                server.run(&format!("HSET h comes{name} {value}"));
                server.run(&format!("HDEL h comes{}", name / 2));
            }
        }
        assert!(calls > 20, "{calls}");
        for number in 0..1_000 {
            assert!(found.contains(&format!("stays{number}")), "stays{number} was not listed");
        }
    }

    #[test]
    fn more_fields_than_memory_has_room_for_are_refused() {
        let mut server = Harness::new(false);
        server.memory_bytes_max = 1 << 20;
        server.run("HSET h a 1");
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(server.run("HRANDFIELD h -9223372036854775807"), refused);
        assert_eq!(server.run("HRANDFIELD h -1000000 WITHVALUES"), refused);
        assert_eq!(server.run("HRANDFIELD h -3"), "[$1 a, $1 a, $1 a]");
    }

    #[test]
    fn each_field_is_as_likely_and_no_field_comes_twice() {
        let mut server = Harness::new(false);
        server.run("HSET h a 1 b 2 c 3 d 4 e 5");
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for seed in 0..2_000 {
            server.random = seed;
            let shown = server.run("HRANDFIELD h 2");
            let fields: Vec<&str> = shown.trim_matches(['[', ']']).split(", ").collect();
            assert!(fields.len() == 2 && fields[0] != fields[1], "{shown}");
            fields.iter().for_each(|field| *seen.entry((*field).into()).or_default() += 1);
            *seen.entry(server.run("HRANDFIELD h")).or_default() += 1;
            let shown = server.run("HRANDFIELD h -2");
            let fields = shown.trim_matches(['[', ']']).split(", ");
            fields.for_each(|field| *seen.entry(field.into()).or_default() += 1);
        }
        assert_eq!(seen.len(), 5);
        // 2,000 of each expected, and 40 is the standard deviation.
        assert!(seen.values().all(|count| (1_800..2_200).contains(count)), "{seen:?}");
    }
}
