//! Members of sets picked at random, and taken out or not: SPOP and SRANDMEMBER.

use keyspace::Key;
use resp::{Args, Reply};
use stdx::Random;
use value::parse_i64;

use crate::collection::Set;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::hash_all::parse_count;
use crate::family::room::{FRAME_BYTES, Room, check_room};
use crate::family::sample::{CHOICE_BYTES, sample};
use crate::family::set::check_all;
use crate::logged::Arg;
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const TAKEN: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE), Needs::Value)];
const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

/// If so many times what is left are taken out at once, Redis makes a new set of what is left, which its
/// encoding shows.
const RENEWED_MIN: u64 = 5;

const NOT_POSITIVE: CommandError = fixed("ERR value is out of range, must be positive");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "SPOP",
        arity: -2,
        flags: Flags::WRITE.and(Flags::FAST).and(Flags::REPLIES_VALUES),
        keys: TAKEN,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Removes members of a set picked at random, and returns them.",
            complexity: "O(N) for N members of the set",
            syntax: "key [count]",
        },
        run: spop,
    },
    Command {
        name: "SRANDMEMBER",
        arity: -2,
        flags: Flags::READONLY.and(Flags::REPLIES_VALUES),
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Set,
            since: "1.0.0",
            summary: "Returns members of a set picked at random.",
            complexity: "O(N) for N members that are asked for",
            syntax: "key [count]",
        },
        run: srandmember,
    },
];

fn spop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match args.len() {
        2 => pop_one(cx, reply),
        3 => {
            let count = parse_i64(&args[2]).and_then(|count| u64::try_from(count).ok());
            pop_some(cx, count.ok_or(NOT_POSITIVE)?, reply)
        }
        _ => Err(CommandError::SYNTAX),
    }
}

fn pop_one(cx: &mut Cx<'_, '_>, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let (key, reply_bytes_max, is_logged) = (cx.key(0), cx.reply_bytes_max, cx.is_logged());
    let Some(mut set) = cx.read_set(&key)? else {
        reply.null();
        return Ok(());
    };
    let position = random.below(set.len());
    let member = set.at(position)?;
    check_room(&key, member.len() as u64, reply_bytes_max, reply)?;
    reply.bulk(member);
    let logged = is_logged.then(|| member.to_vec());
    cx.edit_set_at(&key, &[position], |set| set.remove_all_at(&[position]))?;
    cx.report(&key, Event::SPOP, 1);
    cx.report_if_gone(&key);
    log_removed(cx, logged);
    Ok(())
}

/// Logs that members were taken out.
fn log_removed(cx: &mut Cx<'_, '_>, members: impl IntoIterator<Item = Vec<u8>>) {
    if cx.is_logged() {
        let members: Vec<Vec<u8>> = members.into_iter().collect();
        let mut args = vec![Arg::Bytes(b"SREM"), Arg::Sent(1)];
        args.extend(members.iter().map(|member| Arg::Bytes(member)));
        cx.log_as(&args);
    }
}

fn pop_some(cx: &mut Cx<'_, '_>, count: u64, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let (key, reply_bytes_max, is_logged) = (cx.key(0), cx.reply_bytes_max, cx.is_logged());
    let Some(mut set) = cx.read_set(&key)? else {
        reply.set(0);
        return Ok(());
    };
    let (len, taken) = (set.len(), count.min(set.len()));
    if taken == 0 {
        reply.set(0);
        return Ok(());
    }
    if taken == len {
        check_all(&key, &set, reply_bytes_max, reply)?;
        reply.set(len as usize);
        set.visit(|member| reply.bulk(member))?;
        // Not edited: it would be brought from flash for that.
        cx.db(&key).remove(&key);
        cx.report(&key, Event::SPOP, taken);
        cx.report_if_gone(&key);
        cx.log_as(&[Arg::Bytes(b"DEL"), Arg::Sent(1)]);
        return Ok(());
    }
    check_chosen(&key, &set, taken, reply_bytes_max, reply)?;
    let positions = sample(&mut random, len, taken);
    let is_renewed = (len - taken).saturating_mul(RENEWED_MIN) <= taken;
    match is_renewed {
        true => set.announce_all()?,
        false => set.announce_nth(&positions)?,
    }
    reply.set(positions.len());
    write_nth(&key, &mut set, &positions, reply_bytes_max, reply)?;
    let mut logged = Vec::new();
    if is_logged {
        for &position in &positions {
            logged.push(set.at(position)?.to_vec());
        }
    }
    cx.edit_set_at(&key, &positions, |set| set.remove_all_at(&positions))?;
    if is_renewed {
        cx.renew_set_kind(&key)?;
    }
    cx.report(&key, Event::SPOP, taken);
    log_removed(cx, logged);
    Ok(())
}

fn srandmember(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match args.len() {
        2 => one_member(cx, reply),
        3 => match parse_count(&args[2])? {
            count @ ..0 => any_members(cx, count.unsigned_abs(), reply),
            count => different_members(cx, count.unsigned_abs(), reply),
        },
        _ => Err(CommandError::SYNTAX),
    }
}

fn one_member(cx: &mut Cx<'_, '_>, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut set) = cx.read_set(&key)? else {
        reply.null();
        return Ok(());
    };
    let position = random.below(set.len());
    let member = set.at(position)?;
    check_room(&key, member.len() as u64, reply_bytes_max, reply)?;
    reply.bulk(member);
    Ok(())
}

/// So many members, or as many as there are.
fn different_members(cx: &mut Cx<'_, '_>, count: u64, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut set) = cx.read_set(&key)? else {
        reply.array(0);
        return Ok(());
    };
    let (len, count) = (set.len(), count.min(set.len()));
    if count == len {
        check_all(&key, &set, reply_bytes_max, reply)?;
        reply.array(len as usize);
        return set.visit(|member| reply.bulk(member));
    }
    check_chosen(&key, &set, count, reply_bytes_max, reply)?;
    let positions = sample(&mut random, len, count);
    set.announce_nth(&positions)?;
    reply.array(positions.len());
    write_nth(&key, &mut set, &positions, reply_bytes_max, reply)
}

/// So many members, of which one may come more than once.
fn any_members(cx: &mut Cx<'_, '_>, count: u64, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let memory_bytes_max = cx.limits.memory_bytes_max() as u64;
    let Some(mut set) = cx.read_set(&key)? else {
        reply.array(0);
        return Ok(());
    };
    let len = set.len();
    if count.saturating_mul(set.byte_len() / len + CHOICE_BYTES) > memory_bytes_max {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    check_chosen(&key, &set, count, reply_bytes_max, reply)?;
    let positions: Vec<u64> = (0..count).map(|_| random.below(len)).collect();
    if let Set::Tree(_) = set {
        let mut ascending = positions.clone();
        ascending.sort_unstable();
        set.announce_nth(&ascending)?;
    }
    reply.array(positions.len());
    write_nth(&key, &mut set, &positions, reply_bytes_max, reply)
}

/// Whether there is memory for so many members of a set, if they are as long as all on average, and for
/// their choice.
///
/// Errors: [`CommandError::ReplyTooLong`].
fn check_chosen(
    key: &Key<'_>,
    set: &Set<'_>,
    count: u64,
    reply_bytes_max: usize,
    reply: &Reply,
) -> CommandResult {
    let bytes = count.saturating_mul(set.byte_len() / set.len() + CHOICE_BYTES);
    check_room(key, bytes, reply_bytes_max, reply)
}

/// Writes the members at positions.
///
/// Errors: [`CommandError::ReplyTooLong`]; [`CommandError::NotResident`].
fn write_nth(
    key: &Key<'_>,
    set: &mut Set<'_>,
    positions: &[u64],
    reply_bytes_max: usize,
    reply: &mut Reply,
) -> CommandResult {
    let mut room = Room::new(reply_bytes_max);
    for &position in positions {
        let member = set.at(position)?;
        if room.takes(member.len() as u64 + FRAME_BYTES, reply) {
            reply.bulk(member);
        }
    }
    room.end(key, reply)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn members_are_taken_out() {
        let not_positive = "-ERR value is out of range, must be positive";
        check(&[
            ("SPOP missing", "_"),
            ("SPOP missing 3", "~[]"),
            ("SPOP missing 0", "~[]"),
            ("SADD s a", ":1"),
            ("SPOP s 0", "~[]"),
            ("SPOP s -1", not_positive),
            ("SPOP s x", not_positive),
            ("SPOP s 9223372036854775808", not_positive),
            ("SPOP missing x", not_positive),
            ("SPOP s 1 2", "-ERR syntax error"),
            ("SPOP", "-ERR wrong number of arguments for 'spop' command"),
            ("SPOP s", "$1 a"),
            ("EXISTS s", ":0"),
            ("SADD s a b", ":2"),
            ("SPOP s 2", "~[$1 a, $1 b]"),
            ("EXISTS s", ":0"),
            ("SADD s 1 2 3", ":3"),
            ("SPOP s 9223372036854775807", "~[$1 1, $1 2, $1 3]"),
            ("EXISTS s", ":0"),
            ("SADD s 1 2 3", ":3"),
            ("SPOP s", "*"),
            ("SPOP s 1", "*"),
            ("SCARD s", ":1"),
            ("OBJECT ENCODING s", "$6 intset"),
            ("SET string v", "+OK"),
            ("SPOP string", WRONG),
            ("SPOP string 1", WRONG),
            ("SPOP string 0", WRONG),
            ("SPOP string x", not_positive),
        ]);
    }

    /// What redis-server 7.0 answers.
    #[test]
    fn a_set_of_which_little_is_left_is_a_new_one() {
        for (count, encoding) in [(9, "$9 hashtable"), (10, "$6 intset"), (11, "$6 intset")] {
            check(&[
                ("SADD s 1 2 3 4 5 6 7 8 9 10 11 12 x", ":13"),
                ("SREM s x", ":1"),
                (&format!("SPOP s {count}"), "*"),
                ("SCARD s", &format!(":{}", 12 - count)),
                ("OBJECT ENCODING s", encoding),
            ]);
        }
    }

    #[test]
    fn members_are_picked() {
        check(&[
            ("SRANDMEMBER missing", "_"),
            ("SRANDMEMBER missing 3", "[]"),
            ("SRANDMEMBER missing -3", "[]"),
            ("SADD s a", ":1"),
            ("SRANDMEMBER s", "$1 a"),
            ("SRANDMEMBER s 0", "[]"),
            ("SRANDMEMBER s 5", "[$1 a]"),
            ("SRANDMEMBER s 9223372036854775807", "[$1 a]"),
            ("SRANDMEMBER s -3", "[$1 a, $1 a, $1 a]"),
            ("SRANDMEMBER s x", "-ERR value is not an integer or out of range"),
            (
                "SRANDMEMBER s -9223372036854775808",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
            ("SRANDMEMBER s 1 2", "-ERR syntax error"),
            ("SET string v", "+OK"),
            ("SRANDMEMBER string", WRONG),
            ("SRANDMEMBER string 1", WRONG),
            ("SRANDMEMBER string x", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn more_members_than_memory_has_room_for_are_refused() {
        let mut server = Harness::new(false);
        server.memory_bytes_max = 1 << 20;
        server.run("SADD s a");
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(server.run("SRANDMEMBER s -9223372036854775807"), refused);
        assert_eq!(server.run("SRANDMEMBER s -1000000"), refused);
        assert_eq!(server.run("SRANDMEMBER s -3"), "[$1 a, $1 a, $1 a]");
    }

    fn items(shown: &str) -> Vec<&str> {
        shown.trim_start_matches('~').trim_matches(['[', ']']).split(", ").collect()
    }

    #[test]
    fn what_is_taken_out_is_gone_and_the_rest_stays() {
        for (demote, count) in [(false, 5), (true, 5), (false, 150), (true, 150)] {
            let mut server = Harness::new(demote);
            server.random = count;
            let all: String = (0..200).map(|number| format!(" m{number}")).collect();
            server.run(&format!("SADD s{all}"));
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            server.changes = 0;
            let (popped, left) = (server.run(&format!("SPOP s {count}")), server.run("SMEMBERS s"));
            assert_eq!(server.changes, count);
            assert_eq!(items(&popped).len() as u64, count);
            items(&popped).into_iter().chain(items(&left)).for_each(|item| {
                *seen.entry(item.into()).or_default() += 1;
            });
            assert!(seen.len() == 200 && seen.values().all(|&times| times == 1), "{seen:?}");
        }
    }

    #[test]
    fn each_member_is_as_likely_and_no_member_comes_twice() {
        let mut server = Harness::new(false);
        server.random = 0;
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..2_000 {
            server.run("SADD s a b c d e");
            for (line, count) in [
                ("SRANDMEMBER s", 1),
                ("SRANDMEMBER s 2", 2),
                ("SRANDMEMBER s -2", 2),
                ("SPOP s 2", 2),
            ] {
                server.random += 1;
                let shown = server.run(line);
                let items = items(&shown);
                assert_eq!(items.len(), count, "{line}: {shown}");
                assert!(
                    count == 1 || line.contains('-') || items[0] != items[1],
                    "{line}: {shown}"
                );
                items.into_iter().for_each(|item| *seen.entry(item.into()).or_default() += 1);
            }
            server.run("SADD s a b c d e");
            server.random += 1;
            *seen.entry(server.run("SPOP s")).or_default() += 1;
        }
        assert_eq!(seen.len(), 5);
        // 3,200 of each expected, and 47 is the standard deviation.
        assert!(seen.values().all(|count| (3_000..3_400).contains(count)), "{seen:?}");
    }
}
