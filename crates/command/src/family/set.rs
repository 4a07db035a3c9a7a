//! Sets, member by member and as a whole.

use std::iter::once;

use keyspace::Key;
use resp::{Args, Reply};
use value::Kind;

use crate::collection::{LONG_BYTES, Set, has_long};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::CommandResult;
use crate::family::room::{FRAME_BYTES, check_room};
use crate::family::scan::{ElementFilter, INVALID_CURSOR, parse_cursor};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const READ_ALL: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

const LOOKED_AT: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO, Needs::Value)];
const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];
const INSERTED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)];
const DELETED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)];
const MOVED: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE), Needs::Value),
    KeySpec::at(2, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value),
];

/// Members that a command adds to a set before that may be divided.
const MEMBERS_AT_ONCE: usize = 64;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "SADD",
        arity: -3,
        flags: WRITE.and(Flags::DENYOOM),
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Adds members to a set, which is made if there is none.",
            complexity: "O(N) for N members",
            syntax: "key member [member ...]",
        },
        run: sadd,
    },
    Command {
        name: "SREM",
        arity: -3,
        flags: WRITE,
        keys: DELETED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Removes members of a set; one without members is no key.",
            complexity: "O(N) for N members",
            syntax: "key member [member ...]",
        },
        run: srem,
    },
    Command {
        name: "SMOVE",
        arity: 4,
        flags: WRITE,
        keys: MOVED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Moves a member from one set to another, which is made if there is none.",
            complexity: "O(1)",
            syntax: "source destination member",
        },
        run: smove,
    },
    Command {
        name: "SISMEMBER",
        arity: 3,
        flags: READ,
        keys: LOOKED_AT,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Tells whether a set has a member.",
            complexity: "O(1)",
            syntax: "key member",
        },
        run: sismember,
    },
    Command {
        name: "SMISMEMBER",
        arity: -3,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "6.2.0",
            summary: "Tells of each of several members whether a set has it.",
            complexity: "O(N) for N members",
            syntax: "key member [member ...]",
        },
        run: smismember,
    },
    Command {
        name: "SCARD",
        arity: 2,
        flags: READ,
        keys: LOOKED_AT,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Counts the members of a set.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: scard,
    },
    Command {
        name: "SMEMBERS",
        arity: 2,
        flags: READ_ALL.and(Flags::IN_WINDOWS),
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Returns all members of a set.",
            complexity: "O(N) for N members",
            syntax: "key",
        },
        run: smembers,
    },
    Command {
        name: "SSCAN",
        arity: -3,
        flags: READ_ALL,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "2.8.0",
            summary: "Lists members of a set a few at a time; a cursor says where to go on.",
            complexity: "O(1) for a call with a given COUNT, O(N) for a whole walk over N members",
            syntax: "key cursor [MATCH pattern] [COUNT count]",
        },
        run: sscan,
    },
];

fn sadd(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, members) = (cx.key(0), args.from(2));
    // A set in one leaf must not grow long before it is divided; and nothing is changed before all leaves
    // are there, which the first round looks for.
    if members.have_long(LONG_BYTES) {
        cx.spread(&key, Kind::is_set)?;
    }
    let (mut added, mut first) = (0, 0);
    while first < members.len() {
        let end = members.len().min(first + MEMBERS_AT_ONCE);
        let announced = if first == 0 { 0..members.len() } else { first..end };
        let announced = announced.map(|at| &members[at]);
        added += cx.edit_set(&key, announced, |set| {
            (first..end).filter(|&at| set.add(&members[at])).count()
        })?;
        first = end;
    }
    if added > 0 {
        cx.report(&key, Event::SADD, added as u64);
    }
    reply.integer(added as i64);
    Ok(())
}

fn srem(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, members) = (cx.key(0), args.from(2));
    let removed = cx.edit_set(&key, members.iter(), |set| {
        members.iter().filter(|member| set.remove(member)).count()
    })?;
    if removed > 0 {
        cx.report(&key, Event::SREM, removed as u64);
        cx.report_if_gone(&key);
    }
    reply.integer(removed as i64);
    Ok(())
}

fn smove(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (source, target, member) = (cx.key(0), cx.key(1), &args[3]);
    let Some(mut set) = cx.read_set(&source)? else {
        // Redis does not look at the type of the other key then.
        reply.integer(0);
        return Ok(());
    };
    let is_there = set.contains(member)?;
    let is_new = match cx.read_set(&target)? {
        Some(mut set) => !set.contains(member)?,
        None => true,
    };
    if is_there && source.bytes != target.bytes {
        if is_new && has_long(once(member)) {
            cx.spread(&target, Kind::is_set)?;
        }
        cx.edit_set(&source, once(member), |set| set.remove(member))?;
        cx.report(&source, Event::SREM, 1);
        cx.report_if_gone(&source);
        if is_new {
            cx.edit_set(&target, once(member), |set| set.add(member))?;
            cx.report(&target, Event::SADD, 1);
        }
    }
    reply.integer(i64::from(is_there));
    Ok(())
}

fn sismember(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let is_member = match cx.read_set(&key)? {
        Some(mut set) => set.contains(&args[2])?,
        None => false,
    };
    reply.integer(i64::from(is_member));
    Ok(())
}

fn smismember(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, members) = (cx.key(0), args.from(2));
    let mut found = cx.read_set(&key)?;
    if let Some(set) = &found {
        set.announce(members.iter())?;
    }
    reply.array(members.len());
    for member in members.iter() {
        let is_member = match &mut found {
            Some(set) => set.contains(member)?,
            None => false,
        };
        reply.integer(i64::from(is_member));
    }
    Ok(())
}

fn scard(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let len = cx.read_set(&key)?.map_or(0, |set| set.len());
    reply.integer(len as i64);
    Ok(())
}

fn smembers(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max, begins) = (cx.key(0), cx.reply_bytes_max, cx.begins_reply());
    let Some(mut set) = cx.read_set(&key)? else {
        reply.set(0);
        return Ok(());
    };
    if begins {
        check_all(&key, &set, reply_bytes_max, reply)?;
        reply.set(set.len() as usize);
    }
    set.visit(|member| reply.bulk(member))
}

/// Whether there is memory for a reply with all of a set.
///
/// Errors: [`CommandError::ReplyTooLong`].
pub(super) fn check_all(
    key: &Key<'_>,
    set: &Set<'_>,
    reply_bytes_max: usize,
    reply: &Reply,
) -> CommandResult {
    check_room(key, set.byte_len() + FRAME_BYTES * set.len(), reply_bytes_max, reply)
}

fn sscan(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let cursor = parse_cursor(&args[2]).ok_or(INVALID_CURSOR)?;
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut set) = cx.read_set(&key)? else {
        // Redis does not look at the options where there is nothing to list.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let filter = ElementFilter::parse(args.from(3))?;
    if let Set::Leaf(_) = set {
        check_all(&key, &set, reply_bytes_max, reply)?;
    }
    let mut listed = Reply::new(reply.protocol());
    let mut count = 0;
    let next = set.scan(cursor, filter.count, |member| {
        if filter.lists(member) {
            listed.bulk(member);
            count += 1;
        }
    })?;
    check_room(&key, listed.len() as u64, reply_bytes_max, reply)?;
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(count);
    reply.raw(listed.as_slice());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";

    #[test]
    fn members_are_added_asked_for_and_removed() {
        check(&[
            ("SADD s a b", ":2"),
            ("SADD s b c c", ":1"),
            ("SADD s a b c", ":0"),
            ("SCARD s", ":3"),
            ("SCARD missing", ":0"),
            ("SISMEMBER s b", ":1"),
            ("SISMEMBER s d", ":0"),
            ("SISMEMBER missing d", ":0"),
            ("SMISMEMBER s a d c a", "[:1, :0, :1, :1]"),
            ("SMISMEMBER missing a b", "[:0, :0]"),
            ("SMEMBERS s", "~[$1 a, $1 b, $1 c]"),
            ("SMEMBERS missing", "~[]"),
            ("SADD s ''", ":1"),
            ("SISMEMBER s ''", ":1"),
            ("SREM s x", ":0"),
            ("SREM s a x a b", ":2"),
            ("TYPE s", "+set"),
            ("SREM s c ''", ":2"),
            ("EXISTS s", ":0"),
            ("SREM s c", ":0"),
            ("TYPE s", "+none"),
        ]);
    }

    #[test]
    fn sets_leave_ram_and_come_back() {
        let add = format!("SADD s {LONG} {LONG}x 7");
        check(&[
            (&add, ":3"),
            (&format!("SISMEMBER s {LONG}"), ":1"),
            ("SADD s new 7", ":1"),
            (&format!("SREM s {LONG}"), ":1"),
            ("SMEMBERS s", &format!("~[$71 {LONG}x, $1 7, $3 new]")),
            (&format!("SMOVE s other {LONG}x"), ":1"),
            (&format!("SMOVE s other {LONG}x"), ":0"),
            ("SCARD s", ":2"),
            ("SCARD other", ":1"),
        ]);
    }

    #[test]
    fn members_are_moved() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SADD s a b 1", ":3"),
            ("SADD t b", ":1"),
            ("SET string v", "+OK"),
            ("SMOVE s t x", ":0"),
            ("SMOVE s t a", ":1"),
            ("SMOVE s t b", ":1"),
            ("SMEMBERS s", "~[$1 1]"),
            ("SMEMBERS t", "~[$1 b, $1 a]"),
            ("SMOVE missing t a", ":0"),
            ("SMOVE missing string a", ":0"),
            ("SMOVE missing missing a", ":0"),
            ("SMOVE s string 1", wrong),
            ("SMOVE s string none", wrong),
            ("SMOVE string t a", wrong),
            ("SMOVE string string a", wrong),
            ("SMOVE s s 1", ":1"),
            ("SMOVE s s x", ":0"),
            ("SMEMBERS s", "~[$1 1]"),
            ("SMOVE s new 1", ":1"),
            ("EXISTS s", ":0"),
            ("OBJECT ENCODING new", "$6 intset"),
            ("SMOVE t new a", ":1"),
            ("OBJECT ENCODING new", "$9 hashtable"),
            ("SMOVE t t2 b", ":1"),
            ("OBJECT ENCODING t2", "$9 hashtable"),
        ]);
    }

    #[test]
    fn members_are_listed() {
        check(&[
            ("SADD s a b 12", ":3"),
            ("SSCAN s 0", "[$1 0, [$1 a, $1 b, $2 12]]"),
            ("SSCAN s 0 MATCH [b-z] COUNT 1", "[$1 0, [$1 b]]"),
            ("SSCAN s 7 MATCH *", "[$1 0, [$1 a, $1 b, $2 12]]"),
            ("SSCAN missing 0", "[$1 0, []]"),
            ("SSCAN missing 0 COUNT", "[$1 0, []]"),
            ("SSCAN missing x", "-ERR invalid cursor"),
            ("SSCAN s x", "-ERR invalid cursor"),
            ("SSCAN s 0 COUNT 0", "-ERR syntax error"),
            ("SSCAN s 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("SSCAN s 0 TYPE set", "-ERR syntax error"),
            ("SSCAN s 0 MATCH", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn other_types_and_wrong_arguments_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SET string text", "+OK"),
            ("HSET h f v", ":1"),
            ("SADD s a", ":1"),
            ("SADD string a", wrong),
            ("SADD h a", wrong),
            ("SREM string a", wrong),
            ("SISMEMBER string a", wrong),
            ("SMISMEMBER h a", wrong),
            ("SCARD string", wrong),
            ("SMEMBERS h", wrong),
            ("SSCAN string 0", wrong),
            ("SSCAN string x", "-ERR invalid cursor"),
            ("SSCAN string 0 COUNT x", wrong),
            ("GET s", wrong),
            ("APPEND s x", wrong),
            ("HGET s f", wrong),
            ("HSET s f v", wrong),
            ("MGET s string", "[_, $4 text]"),
            ("SADD s", "-ERR wrong number of arguments for 'sadd' command"),
            ("SMISMEMBER s", "-ERR wrong number of arguments for 'smismember' command"),
            ("SMOVE s t", "-ERR wrong number of arguments for 'smove' command"),
            ("SET s text", "+OK"),
            ("TYPE s", "+string"),
        ]);
    }

    #[test]
    fn encodings_follow_from_members_and_the_limit() {
        let numbers = |range: std::ops::Range<i32>| -> String {
            range.map(|number| format!(" {number}")).collect()
        };
        check(&[
            ("SADD s 1 -5 9223372036854775807 -9223372036854775808", ":4"),
            ("OBJECT ENCODING s", "$6 intset"),
            ("SREM s x", ":0"),
            ("SISMEMBER s x", ":0"),
            ("OBJECT ENCODING s", "$6 intset"),
            ("SADD s 9223372036854775808", ":1"),
            ("OBJECT ENCODING s", "$9 hashtable"),
            ("SREM s 9223372036854775808", ":1"),
            ("OBJECT ENCODING s", "$9 hashtable"),
            ("SADD zeros 007", ":1"),
            ("OBJECT ENCODING zeros", "$9 hashtable"),
            ("SADD sign 1 +1", ":2"),
            ("OBJECT ENCODING sign", "$9 hashtable"),
            ("SADD minus 0 -0", ":2"),
            ("OBJECT ENCODING minus", "$9 hashtable"),
            (&format!("SADD many{}", numbers(0..512)), ":512"),
            ("OBJECT ENCODING many", "$6 intset"),
            ("SADD many 0 511", ":0"),
            ("OBJECT ENCODING many", "$6 intset"),
            ("SADD many 512", ":1"),
            ("OBJECT ENCODING many", "$9 hashtable"),
            (&format!("SREM many{}", numbers(1..513)), ":512"),
            ("OBJECT ENCODING many", "$9 hashtable"),
            ("SREM many 0", ":1"),
            ("SADD many 0", ":1"),
            ("OBJECT ENCODING many", "$6 intset"),
        ]);
    }

    #[test]
    fn only_what_changes_is_counted() {
        let mut server = Harness::new(true);
        for (line, changes) in [
            ("SADD s a b c", 3),
            ("SADD s a b d", 1),
            ("SADD s a", 0),
            ("SREM s x", 0),
            ("SREM s a x", 1),
            ("SMOVE s t b", 2),
            ("SADD s b", 1),
            ("SMOVE s t b", 1),
            ("SMOVE s s c", 0),
            ("SMOVE s t x", 0),
            ("SMEMBERS s", 0),
        ] {
            server.changes = 0;
            server.run(line);
            assert_eq!(server.changes, changes, "{line}");
        }
    }

    #[test]
    fn keys_of_sets_are_carried_and_expire_as_others() {
        let mut server = Harness::new(true);
        for (line, expected) in [
            ("SADD s a", ":1"),
            ("EXPIRE s 100", ":1"),
            ("SADD s b", ":1"),
            ("TTL s", ":100"),
            ("COPY s copy", ":1"),
            ("RENAME s other", "+OK"),
            ("SMEMBERS other", "~[$1 a, $1 b]"),
            ("SCARD copy", ":2"),
            ("SCAN 0 TYPE set COUNT 100", "[$1 0, [$4 copy, $5 other]]"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
        server.now_ms += 100_000;
        assert_eq!(server.run("EXISTS other copy"), ":0");
    }
}
