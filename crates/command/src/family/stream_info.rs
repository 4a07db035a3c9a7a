//! XINFO: what is known of a stream, its groups and their consumers.

use std::collections::HashMap;
use std::ops::ControlFlow;

use resp::{Args, Reply};
use value::StreamId;
use value::leaf::stream_rows::{Consumer, Group as GroupRow, Nack};

use super::room::Gathering;
use super::stream::parse_integer;
use super::stream_group::{no_group_for, wrong_arguments};
use super::stream_range::{EntryWriter, write_id};
use crate::collection::{IdRange, Stream, Visit, WholeGroup};
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Command, Docs, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs};

const ANSWERED: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

/// Entries and pending ones that FULL lists when nobody says how many.
const LISTED_DEFAULT: u64 = 10;

/// Bytes of a reply beside names, at most: of a group, of a consumer, of either in FULL without what is listed of
/// it, and of a pending entry there.
const GROUP_BYTES: usize = 256;
const CONSUMER_BYTES: usize = 128;
const FULL_GROUP_BYTES: usize = 288;
const FULL_CONSUMER_BYTES: usize = 160;
const LINE_BYTES: usize = 112;

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    List the consumers of a group.",
    "GROUPS <key>",
    "    List the consumer groups of a stream.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Tell what is known of a stream.",
    "HELP",
    "    Print this help.",
];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XINFO",
        arity: -2,
        flags: Flags::NONE,
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Tells what is known of a stream.",
            complexity: "Depends on the subcommand",
            syntax: "",
        },
        run: unknown,
    },
    about(
        ("XINFO|STREAM", -3, stream),
        "Tells what is known of a stream.",
        "O(N) for N entries and pending ones that are listed",
        "key [FULL [COUNT count]]",
    ),
    about(
        ("XINFO|GROUPS", 3, groups),
        "Lists the consumer groups of a stream.",
        "O(N) for N groups",
        "key",
    ),
    about(
        ("XINFO|CONSUMERS", 4, consumers),
        "Lists the consumers of a group.",
        "O(N) for N consumers",
        "key group",
    ),
    Command {
        name: "XINFO|HELP",
        arity: 2,
        flags: Flags::LOADING.and(Flags::STALE),
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Lists the subcommands.",
            complexity: "O(1)",
            syntax: "",
        },
        run: help,
    },
];

const fn about(
    (name, arity, run): (&'static str, i32, Handler),
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
) -> Command {
    let docs = Docs { group: Group::Stream, since: "5.0.0", summary, complexity, syntax };
    Command { name, arity, flags: Flags::READONLY, keys: ANSWERED, locks: Locks::Keys, docs, run }
}

fn unknown(_cx: &mut Cx<'_, '_>, args: Args<'_>, _reply: &mut Reply) -> CommandResult {
    Err(CommandError::unknown_subcommand("XINFO", &args[1]))
}

fn help(_cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.array(HELP.len());
    HELP.iter().for_each(|line| reply.simple(line));
    Ok(())
}

fn write_id_of(name: &str, id: StreamId, reply: &mut Reply) {
    reply.bulk(name.as_bytes());
    write_id(id, reply);
}

fn write_number(name: &str, number: u64, reply: &mut Reply) {
    reply.bulk(name.as_bytes());
    reply.integer(number as i64);
}

fn write_known(name: &str, number: Option<i64>, reply: &mut Reply) {
    reply.bulk(name.as_bytes());
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

/// How many entries and pending ones FULL lists. None: without FULL.
fn parse_full(args: Args<'_>) -> Result<Option<u64>, CommandError> {
    let options = args.from(3);
    let is_full = |at: usize, name: &str| options[at].eq_ignore_ascii_case(name.as_bytes());
    match options.len() {
        0 => Ok(None),
        1 if is_full(0, "FULL") => Ok(Some(LISTED_DEFAULT)),
        3 if is_full(0, "FULL") && is_full(1, "COUNT") => match parse_integer(&options[2])? {
            ..0 => Ok(Some(LISTED_DEFAULT)),
            0 => Ok(Some(u64::MAX)),
            count => Ok(Some(count as u64)),
        },
        _ => Err(wrong_arguments("XINFO", &args[1])),
    }
}

fn stream(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let room = Gathering::new(&key, reply_bytes_max, reply);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(CommandError::NO_SUCH_KEY) };
    let full = parse_full(args)?;
    let begin = reply.len();
    reply.map(if full.is_some() { 9 } else { 10 });
    let (head, leaves) = (stream.head(), stream.leaf_count());
    write_number("length", head.length, reply);
    write_number("radix-tree-keys", leaves, reply);
    // As if each leaf hung below a root.
    write_number("radix-tree-nodes", leaves + 1, reply);
    write_id_of("last-generated-id", head.last, reply);
    write_id_of("max-deleted-entry-id", head.max_deleted, reply);
    write_number("entries-added", head.added, reply);
    write_id_of("recorded-first-entry-id", stream.first_id()?, reply);
    let Some(listed) = full else {
        write_number("groups", stream.group_count()?, reply);
        for (name, reverse) in [("first-entry", false), ("last-entry", true)] {
            reply.bulk(name.as_bytes());
            let mut writer = EntryWriter::new(reply, reply_bytes_max);
            let visit = Visit { range: IdRange::ALL, reverse, count_max: 1 };
            stream.visit(visit, |entry| writer.write(entry))?;
            if writer.written == 0 {
                reply.null();
            } else {
                writer.check(begin, &key)?;
            }
        }
        return Ok(());
    };
    reply.bulk(b"entries");
    let start = reply.len();
    let mut writer = EntryWriter::new(reply, reply_bytes_max);
    let visit = Visit { range: IdRange::ALL, reverse: false, count_max: listed };
    stream.visit(visit, |entry| writer.write(entry))?;
    writer.end_array(start, &key)?;
    let groups = whole_groups(&mut stream, listed, (room, reply.len() - begin))?;
    reply.bulk(b"groups");
    reply.array(groups.len());
    let mut writer = EntryWriter::new(reply, reply_bytes_max);
    for group in &groups {
        write_full_group(&mut stream, group, listed, &mut writer)?;
    }
    writer.check(begin, &key)
}

/// The groups of a stream with all consumers. All that is listed of them has been looked for, and there is memory
/// for it in a reply of so many bytes, but for the names of the consumers that entries are pending with.
fn whole_groups(
    stream: &mut Stream<'_>,
    listed: u64,
    (mut room, written): (Gathering<'_>, usize),
) -> Result<Vec<WholeGroup>, CommandError> {
    let lines = |pending: u64| pending.min(listed).saturating_mul(LINE_BYTES as u64) as usize;
    room.take(written);
    let groups = stream.groups(|name, group| {
        room.take((FULL_GROUP_BYTES + name.len()).saturating_add(lines(group.pending)))
    })?;
    room.check()?;
    stream.announce_consumers(&groups)?;
    let mut whole = Vec::new();
    for (name, group) in groups {
        let consumers = stream.consumers(&group, |name, consumer| {
            room.take((FULL_CONSUMER_BYTES + name.len()).saturating_add(lines(consumer.pending)))
        })?;
        whole.push(WholeGroup { name, group, consumers });
    }
    room.check()?;
    stream.announce_listed(&whole, listed)?;
    Ok(whole)
}

fn write_full_group(
    stream: &mut Stream<'_>,
    WholeGroup { name, group, consumers }: &WholeGroup,
    listed: u64,
    writer: &mut EntryWriter<'_>,
) -> CommandResult {
    let mut pending = Vec::new();
    stream.pending(group, (StreamId::MIN, listed), |id, nack| {
        pending.push((id, nack));
        if (pending.len() as u64) < listed {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    let lag = stream.lag(group)?;
    let reply = &mut *writer.reply;
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(name);
    write_id_of("last-delivered-id", group.last, reply);
    write_known("entries-read", group.read.map(|read| read as i64), reply);
    write_known("lag", lag, reply);
    write_number("pel-count", group.pending, reply);
    reply.bulk(b"pending");
    reply.array(pending.len());
    let names: HashMap<u32, &[u8]> =
        consumers.iter().map(|(name, consumer)| (consumer.number, &name[..])).collect();
    for (id, nack) in pending {
        let owner = names[&nack.consumer];
        if writer.has_room(LINE_BYTES + owner.len()) {
            writer.reply.array(4);
            write_id(id, writer.reply);
            writer.reply.bulk(owner);
            write_delivery(&nack, writer.reply);
        }
    }
    writer.reply.bulk(b"consumers");
    writer.reply.array(consumers.len());
    for (name, consumer) in consumers {
        write_full_consumer(stream, group, (name, consumer), listed, writer.reply)?;
    }
    Ok(())
}

fn write_delivery(nack: &Nack, reply: &mut Reply) {
    reply.integer(nack.delivered_ms as i64);
    reply.integer(nack.deliveries as i64);
}

fn write_full_consumer(
    stream: &mut Stream<'_>,
    group: &GroupRow,
    (name, consumer): (&[u8], &Consumer),
    listed: u64,
    reply: &mut Reply,
) -> CommandResult {
    let ids = stream.owned((group, consumer), StreamId::MIN, listed)?;
    reply.map(4);
    reply.bulk(b"name");
    reply.bulk(name);
    write_number("seen-time", consumer.seen_ms, reply);
    write_number("pel-count", consumer.pending, reply);
    reply.bulk(b"pending");
    reply.array(ids.len());
    for id in ids {
        let nack = stream.nack(group, id)?.expect("invariant: it is pending with somebody");
        reply.array(3);
        write_id(id, reply);
        write_delivery(&nack, reply);
    }
    Ok(())
}

fn groups(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let mut room = Gathering::new(&key, cx.reply_bytes_max, reply);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(CommandError::NO_SUCH_KEY) };
    let groups = stream.groups(|name, _| room.take(GROUP_BYTES + name.len()))?;
    room.check()?;
    reply.array(groups.len());
    for (name, group) in &groups {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        write_number("consumers", group.consumers, reply);
        write_number("pending", group.pending, reply);
        write_id_of("last-delivered-id", group.last, reply);
        write_known("entries-read", group.read.map(|read| read as i64), reply);
        write_known("lag", stream.lag(group)?, reply);
    }
    Ok(())
}

fn consumers(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, now_ms) = (cx.key(0), cx.now_ms);
    let mut room = Gathering::new(&key, cx.reply_bytes_max, reply);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(CommandError::NO_SUCH_KEY) };
    let Some(group) = stream.group(&args[3])? else { return Err(no_group_for(&key, &args[3])) };
    let consumers = stream.consumers(&group, |name, _| room.take(CONSUMER_BYTES + name.len()))?;
    room.check()?;
    reply.array(consumers.len());
    for (name, consumer) in &consumers {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(name);
        write_number("pending", consumer.pending, reply);
        write_number("idle", now_ms.saturating_sub(consumer.seen_ms), reply);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn what_is_known_of_a_stream() {
        check(&[
            ("XINFO STREAM s", "-ERR no such key"),
            ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
            (
                "XINFO STREAM s",
                "{$6 length: :0, $15 radix-tree-keys: :0, $16 radix-tree-nodes: :1, $17 last-generated-id: $3 0-0, $20 max-deleted-entry-id: $3 0-0, $13 entries-added: :0, $23 recorded-first-entry-id: $3 0-0, $6 groups: :1, $11 first-entry: _, $10 last-entry: _}",
            ),
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("XADD s 2-0 b 2", "$3 2-0"),
            ("XADD s 3-0 c 3", "$3 3-0"),
            ("XDEL s 1-0", ":1"),
            (
                "XINFO STREAM s",
                "{$6 length: :2, $15 radix-tree-keys: :1, $16 radix-tree-nodes: :2, $17 last-generated-id: $3 3-0, $20 max-deleted-entry-id: $3 1-0, $13 entries-added: :3, $23 recorded-first-entry-id: $3 2-0, $6 groups: :1, $11 first-entry: [$3 2-0, [$1 b, $1 2]], $10 last-entry: [$3 3-0, [$1 c, $1 3]]}",
            ),
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", "{$1 s: [[$3 2-0, [$1 b, $1 2]]]}"),
            (
                "XINFO STREAM s FULL COUNT 1",
                "{$6 length: :2, $15 radix-tree-keys: :1, $16 radix-tree-nodes: :2, $17 last-generated-id: $3 3-0, $20 max-deleted-entry-id: $3 1-0, $13 entries-added: :3, $23 recorded-first-entry-id: $3 2-0, $7 entries: [[$3 2-0, [$1 b, $1 2]]], $6 groups: [{$4 name: $1 g, $17 last-delivered-id: $3 2-0, $12 entries-read: :2, $3 lag: :1, $9 pel-count: :1, $7 pending: [[$3 2-0, $1 c, :1700000000000, :1]], $9 consumers: [{$4 name: $1 c, $9 seen-time: :1700000000000, $9 pel-count: :1, $7 pending: [[$3 2-0, :1700000000000, :1]]}]}]}",
            ),
            (
                "XINFO GROUPS s",
                "[{$4 name: $1 g, $9 consumers: :1, $7 pending: :1, $17 last-delivered-id: $3 2-0, $12 entries-read: :2, $3 lag: :1}]",
            ),
            ("XINFO CONSUMERS s g", "[{$4 name: $1 c, $7 pending: :1, $4 idle: :0}]"),
            ("XDEL s 3-0", ":1"),
            (
                "XINFO GROUPS s",
                "[{$4 name: $1 g, $9 consumers: :1, $7 pending: :1, $17 last-delivered-id: $3 2-0, $12 entries-read: :2, $3 lag: _}]",
            ),
        ]);
    }

    #[test]
    fn arguments_refused() {
        let wrong =
            "-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.";
        check(&[
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("SET string 1", "+OK"),
            ("XINFO STREAM s FOO", wrong),
            ("XINFO STREAM s FULL COUNT", wrong),
            ("XINFO STREAM s FULL FOO 1", wrong),
            ("XINFO STREAM s FULL COUNT x", "-ERR value is not an integer or out of range"),
            (
                "XINFO STREAM string",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("XINFO GROUPS none", "-ERR no such key"),
            ("XINFO CONSUMERS none g", "-ERR no such key"),
            ("XINFO CONSUMERS s g", "-NOGROUP No such consumer group 'g' for key name 's'"),
            ("XINFO FOO s", "-ERR unknown subcommand 'FOO'. Try XINFO HELP."),
        ]);
        let shown = Harness::new(false).run("XINFO HELP");
        assert!(shown.starts_with("[+XINFO <subcommand>"), "{shown}");
    }
}
