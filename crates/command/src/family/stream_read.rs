//! Reading what is new in streams: XREAD and XREADGROUP.
//!
//! Who waits (BLOCK) is answered as soon as the last ID of a stream is beyond the one that it waits for, with what
//! there is behind that, be it nothing any more.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use keyspace::Key;
use resp::{Args, Protocol, Reply};
use value::{Kind, StreamId};

use super::stream::{parse_id, parse_integer};
use super::stream_pending::Notes;
use super::stream_range::EntryWriter;
use crate::collection::{Delivery, GroupEdit, IdRange, Stream, Visit};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed, shown};
use crate::logged::Arg;
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, KeyFlags, KeySpec, Locks, Needs};
use crate::wait::{Deadline, Wait};

const BLOCKING: Flags = Flags::BLOCKING.and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES);
const OPTIONS: &[(&str, usize)] = &[("BLOCK", 1), ("COUNT", 1), ("GROUP", 2), ("NOACK", 0)];

/// Behind this ID nothing is pending.
const BEHIND_ALL: &[u8] = b"18446744073709551615-18446744073709551614";
/// Entries of a stream at most for who has waited and names no number.
const COUNT_WAITED: u64 = 1_000;

const UNBALANCED: CommandError = fixed(
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
);
const GROUP_IN_XREAD: CommandError =
    fixed("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
const NOACK_IN_XREAD: CommandError =
    fixed("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
const NO_GROUP_OPTION: CommandError = fixed("ERR Missing GROUP option for XREADGROUP");
const NEW_IN_XREAD: CommandError = fixed(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);
const LAST_IN_XREADGROUP: CommandError = fixed(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
);

const fn keys(from: isize) -> KeySpec {
    KeySpec {
        flags: KeyFlags::RO.and(KeyFlags::ACCESS),
        needs: Needs::Value,
        begin: Begin::Option("STREAMS", from, OPTIONS),
        find: Find::Half,
    }
}

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XREAD",
        arity: -4,
        flags: Flags::READONLY.and(BLOCKING),
        keys: &[keys(1)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Returns the entries behind given IDs of several streams, and waits for some if asked to.",
            complexity: "O(K log N + M) for K streams of N entries of which M are returned",
            syntax: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
        },
        run: xread,
    },
    Command {
        name: "XREADGROUP",
        arity: -7,
        flags: Flags::WRITE.and(BLOCKING),
        keys: &[keys(4)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Returns what no consumer of a group has had yet, or what one has not acknowledged.",
            complexity: "O(K log N + M log P) for K streams of N entries, of which M are returned, and P pending ones",
            syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
        },
        run: xreadgroup,
    },
];

const STREAM_LOST: CommandError = fixed("UNBLOCKED the stream key no longer exists");
const GROUP_LOST: CommandError =
    fixed("NOGROUP the consumer group this client was blocked on no longer exists");

/// What XREAD and XREADGROUP are asked for.
struct ReadOptions<'a> {
    /// Until when to wait if there is nothing. None: not at all.
    block: Option<Deadline>,
    /// The group and the consumer, of XREADGROUP.
    group: Option<(&'a [u8], &'a [u8])>,
    /// Entries of a stream at most.
    count_max: u64,
    no_ack: bool,
    /// The IDs, one for each key.
    ids: Args<'a>,
}

/// From where on a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Behind this ID, or of XREADGROUP what is pending with the consumer behind it.
    Behind(StreamId),
    /// What no consumer of the group has had yet.
    New,
}

impl<'a> ReadOptions<'a> {
    /// Reads the options of XREAD or XREADGROUP. Errors: as Redis words them.
    fn parse(
        cx: &Cx<'_, '_>,
        args: Args<'a>,
        of_group: bool,
    ) -> Result<ReadOptions<'a>, CommandError> {
        let count_default = if cx.has_waited() { COUNT_WAITED } else { u64::MAX };
        let (mut block, mut group, mut count_max, mut no_ack) = (None, None, count_default, false);
        let mut at = 1;
        while at < args.len() {
            let (option, follow) = (&args[at], args.len() - at - 1);
            if option.eq_ignore_ascii_case(b"BLOCK") && follow > 0 {
                block = Some(Deadline::after_ms(&args[at + 1], cx.now_ms)?);
                at += 1;
            } else if option.eq_ignore_ascii_case(b"COUNT") && follow > 0 {
                count_max = match parse_integer(&args[at + 1])? {
                    ..=0 => count_default,
                    count => count as u64,
                };
                at += 1;
            } else if option.eq_ignore_ascii_case(b"STREAMS") && follow > 0 {
                if !follow.is_multiple_of(2) {
                    return Err(UNBALANCED);
                }
                if of_group && group.is_none() {
                    return Err(NO_GROUP_OPTION);
                }
                let ids = args.from(at + 1 + follow / 2);
                return Ok(ReadOptions { block, group, count_max, no_ack, ids });
            } else if option.eq_ignore_ascii_case(b"GROUP") && follow >= 2 {
                if !of_group {
                    return Err(GROUP_IN_XREAD);
                }
                group = args.get(at + 1).zip(args.get(at + 2));
                at += 2;
            } else if option.eq_ignore_ascii_case(b"NOACK") {
                if !of_group {
                    return Err(NOACK_IN_XREAD);
                }
                no_ack = true;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        Err(CommandError::SYNTAX)
    }
}

fn xread(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = ReadOptions::parse(cx, args, false)?;
    let from = places(cx, &options)?;
    if read(cx, &options, &from, reply)? {
        return Ok(());
    }
    let Some(deadline) = options.block else {
        reply.null_array();
        return Ok(());
    };
    // `$` stands for the last ID of now.
    let first = args.len() - options.ids.len();
    let last = options.ids.iter().zip(&from).enumerate().filter(|(_, (id, _))| *id == b"$");
    let replaced = last.map(|(index, (_, from))| (first + index, from.to_string())).collect();
    cx.wait(Wait { replaced, ..Wait::until(deadline) }, reply, Reply::null_array)
}

/// From where on XREAD reads each of the keys that it looks at: `$` is behind what there is now.
///
/// Errors: a key or an ID that is none, [`CommandError::NotResident`].
fn places(cx: &mut Cx<'_, '_>, options: &ReadOptions<'_>) -> Result<Vec<StreamId>, CommandError> {
    let (keys, first) = (cx.candidate_keys(), cx.candidates().start);
    let of_key = |(key, id): (&Key<'_>, &[u8])| {
        let stream = cx.read_stream(key)?;
        match id {
            b"$" => Ok(stream.map_or(StreamId::MIN, |stream| stream.head().last)),
            b">" => Err(NEW_IN_XREAD),
            id => parse_id(id),
        }
    };
    keys.iter().zip(options.ids.iter().skip(first)).map(of_key).collect()
}

/// Writes what stands behind IDs in the streams of the keys that are looked at. False: nothing does, and nothing
/// was written.
///
/// Errors: a key of another type, [`CommandError::NotResident`], [`CommandError::ReplyTooLong`].
fn read(
    cx: &mut Cx<'_, '_>,
    options: &ReadOptions<'_>,
    from: &[StreamId],
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let (has_waited, reply_bytes_max) = (cx.has_waited(), cx.reply_bytes_max);
    let (begin, mut served) = (reply.len(), 0);
    for (key, &id) in cx.candidate_keys().iter().zip(from) {
        let Some(range) = IdRange::behind(id) else { continue };
        let Some(mut stream) = cx.read_stream(key)? else { continue };
        if stream.head().last <= id {
            continue;
        }
        let of_key = reply.len();
        begin_stream(key, reply);
        let start = reply.len();
        let mut writer = EntryWriter::new(reply, reply_bytes_max);
        let visit = Visit { range, reverse: false, count_max: options.count_max };
        stream.visit(visit, |entry| writer.write(entry))?;
        if writer.written == 0 && !has_waited {
            reply.truncate(of_key);
            continue;
        }
        writer.end_array(start, key)?;
        served += 1;
    }
    end_streams(begin, served, reply);
    Ok(served > 0)
}

/// Begins what is answered of a stream: a pair of an array, or of a map in RESP3.
fn begin_stream(key: &Key<'_>, reply: &mut Reply) {
    if reply.protocol() == Protocol::Resp2 {
        reply.array(2);
    }
    reply.bulk(key.bytes);
}

fn end_streams(begin: usize, served: usize, reply: &mut Reply) {
    match reply.protocol() {
        _ if served == 0 => {}
        Protocol::Resp2 => reply.array_from(begin, served),
        Protocol::Resp3 => reply.map_from(begin, served),
    }
}

fn xreadgroup(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = ReadOptions::parse(cx, args, true)?;
    if read_group(cx, &options, reply)? {
        return Ok(());
    }
    let Some(deadline) = options.block else {
        reply.null_array();
        return Ok(());
    };
    let group = options.group.map(|(group, _)| group.into());
    cx.wait(Wait { group, ..Wait::until(deadline) }, reply, Reply::null_array)
}

/// What is done to the stream of a key, in the order of keys.
struct Reading<'k> {
    key: Key<'k>,
    group: GroupEdit,
    /// Times that it was served, and whether the consumer is new.
    served: u64,
    creates: bool,
    /// Entries that were delivered for the first time.
    delivered: usize,
}

/// Writes what XREADGROUP asks for, and notes what it delivers. False: there is nothing, and nothing was
/// written.
///
/// Errors: a key of another type, or without the group; an ID that is none; [`CommandError::NotResident`],
/// [`CommandError::ReplyTooLong`]; nothing is changed then.
fn read_group(
    cx: &mut Cx<'_, '_>,
    options: &ReadOptions<'_>,
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let (keys, first) = (cx.candidate_keys(), cx.candidates().start);
    let (group, _) = options.group.expect("invariant: XREADGROUP has a group");
    let (mut readings, mut from): (Vec<Reading<'_>>, Vec<From>) = (Vec::new(), Vec::new());
    let mut at_of: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (key, id) in keys.iter().zip(options.ids.iter().skip(first)) {
        let edit = open_group(cx, key, group)?;
        from.push(match id {
            b"$" => return Err(LAST_IN_XREADGROUP),
            b">" => From::New,
            id => match parse_id(id)? {
                StreamId::MAX => From::New,
                id => From::Behind(id),
            },
        });
        if let Entry::Vacant(at) = at_of.entry(key.bytes) {
            at.insert(readings.len());
            readings.push(Reading {
                key: *key,
                group: edit,
                served: 0,
                creates: false,
                delivered: 0,
            });
        }
    }
    let (begin, mut served, mut notes) = (reply.len(), 0, Notes::new(cx));
    for (key, &from) in keys.iter().zip(&from) {
        let reading = &mut readings[at_of[key.bytes]];
        let was_served = match from {
            From::New => deliver(cx, options, (reading, &mut notes), reply)?,
            From::Behind(id) => deliver_again(cx, options, (reading, id, &mut notes), reply)?,
        };
        reading.served += u64::from(was_served);
        served += usize::from(was_served);
    }
    end_streams(begin, served, reply);
    let delivered = readings.first().map_or(0, |reading| reading.delivered);
    apply(cx, readings)?;
    if served > 0 && cx.has_waited() && cx.is_logged() {
        log_waited(cx, options, delivered);
    }
    Ok(served > 0)
}

/// Logs what was delivered to who has waited for a key, as if it had been there at once. Where it was gone again, a
/// read of what the consumer has had behind all of that, by which it has been seen.
fn log_waited(cx: &mut Cx<'_, '_>, options: &ReadOptions<'_>, delivered: usize) {
    let (group, consumer) = options.group.expect("invariant: XREADGROUP has a group");
    let words = [&b"XREADGROUP"[..], b"GROUP", group, consumer, b"COUNT", b"STREAMS", b"NOACK"];
    let [read, of_group, group, consumer, at_most, streams, no_ack] = words.map(Arg::Bytes);
    let key = Arg::Bytes(cx.candidate_keys()[0].bytes);
    let from = Arg::Bytes(if delivered == 0 { BEHIND_ALL } else { b">" });
    let mut args = vec![read, of_group, group, consumer, at_most];
    args.push(Arg::Number(delivered.max(1) as i64));
    args.extend(options.no_ack.then_some(no_ack));
    args.extend([streams, key, from]);
    cx.log_as(&args);
}

/// The group of a key's stream. Who has waited for it is told that it has lost it.
fn open_group(cx: &mut Cx<'_, '_>, key: &Key<'_>, group: &[u8]) -> Result<GroupEdit, CommandError> {
    let has_waited = cx.has_waited();
    if !has_waited {
        cx.count_read(key);
    } else if !cx.peek(key).is_some_and(|view| Kind::from_bits(view.kind).is_stream()) {
        return Err(STREAM_LOST);
    }
    let edit = match cx.read_stream(key)? {
        Some(mut stream) => GroupEdit::open(&mut stream, group)?,
        None => None,
    };
    if edit.is_some() && !has_waited {
        // Redis looks for its group first, and then up the stream again.
        cx.count_read(key);
    }
    edit.ok_or_else(|| if has_waited { GROUP_LOST } else { no_group(key, group) })
}

/// Has all that is changed in RAM, and then changes it.
fn apply(cx: &mut Cx<'_, '_>, readings: Vec<Reading<'_>>) -> CommandResult {
    let readings: Vec<_> = readings
        .into_iter()
        .filter(|reading| reading.served > 0)
        .map(|Reading { key, group, served, creates, .. }| (key, group.finish(), served, creates))
        .collect();
    for (key, edits, ..) in &readings {
        cx.prepare_rows(key, edits)?;
    }
    for (key, edits, served, creates) in &readings {
        cx.edit_rows(key, edits);
        if *creates {
            cx.report(key, Event::XGROUP_CREATECONSUMER, 1);
        }
        // As in Redis, which counts none that has waited.
        cx.effects.changes += if cx.has_waited() { 0 } else { *served };
    }
    Ok(())
}

fn no_group(key: &Key<'_>, group: &[u8]) -> CommandError {
    let (key, group) = (shown(key.bytes), shown(group));
    CommandError::owned(format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    ))
}

/// Writes what no consumer has had yet. False: there is nothing. Whom the stream's last ID has woken is answered
/// though what it stood for is gone.
fn deliver(
    cx: &mut Cx<'_, '_>,
    options: &ReadOptions<'_>,
    (reading, notes): (&mut Reading<'_>, &mut Notes),
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let (now_ms, reply_bytes_max) = (cx.now_ms, cx.reply_bytes_max);
    let has_waited = cx.has_waited();
    let (key, group) = (reading.key, &mut reading.group);
    let last = group.group().last;
    let Some(range) = IdRange::behind(last) else { return Ok(false) };
    let Some(mut stream) = cx.read_stream(&key)? else { return Ok(false) };
    if stream.head().last <= last {
        return Ok(false);
    }
    let of_key = reply.len();
    begin_stream(&key, reply);
    let (start, mut ids) = (reply.len(), Vec::new());
    let mut writer = EntryWriter::new(reply, reply_bytes_max);
    stream.visit(Visit { range, reverse: false, count_max: options.count_max }, |entry| {
        writer.write(entry);
        if writer.is_whole() {
            ids.push(entry.id);
        }
    })?;
    if writer.written == 0 && !has_waited {
        reply.truncate(of_key);
        return Ok(false);
    }
    writer.end_array(start, &key)?;
    if !options.no_ack {
        notes.take(&key, ids.len() as u64, reply)?;
    }
    let (_, consumer) = options.group.expect("invariant: XREADGROUP has a group");
    let (at, is_new) = group.see(&mut stream, consumer, now_ms)?;
    reading.creates |= is_new;
    reading.delivered = ids.len();
    for &id in &ids {
        let read = read_up_to(&mut stream, group, id)?;
        group.set_last(id, read);
    }
    if !options.no_ack {
        let nacks = group.nacks(&mut stream, &ids)?;
        for (&id, before) in ids.iter().zip(nacks) {
            group.assign(&mut stream, id, (before, at), Delivery { at_ms: now_ms, count: 1 })?;
        }
    }
    Ok(true)
}

/// How many entries a group has read with the one that it reads now.
fn read_up_to(
    stream: &mut Stream<'_>,
    group: &GroupEdit,
    id: StreamId,
) -> Result<Option<u64>, CommandError> {
    match group.group().read {
        Some(read) if !stream.has_deleted_from(id)? => Ok(Some(read.wrapping_add(1))),
        read if stream.head().added == 0 => Ok(read),
        _ => stream.distance_from_first_ever(id),
    }
}

/// Writes what is pending with a consumer behind an ID. Always true: no entries are an answer, too.
fn deliver_again(
    cx: &mut Cx<'_, '_>,
    options: &ReadOptions<'_>,
    (reading, behind, notes): (&mut Reading<'_>, StreamId, &mut Notes),
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let (now_ms, reply_bytes_max) = (cx.now_ms, cx.reply_bytes_max);
    let (key, group) = (reading.key, &mut reading.group);
    let Some(mut stream) = cx.read_stream(&key)? else { return Ok(false) };
    let (_, consumer) = options.group.expect("invariant: XREADGROUP has a group");
    let (at, is_new) = group.see(&mut stream, consumer, now_ms)?;
    reading.creates |= is_new;
    let first = behind.next().expect("invariant: the greatest ID stands for what is new");
    let count_max = options.count_max.min(notes.entries_left().saturating_add(1));
    let ids = group.owned(&mut stream, (at, first), count_max)?;
    notes.take(&key, ids.len() as u64, reply)?;
    begin_stream(&key, reply);
    stream.announce(ids.iter().copied())?;
    stream.announce_pending(group.group(), &ids)?;
    let start = reply.len();
    let mut writer = EntryWriter::new(reply, reply_bytes_max);
    for &id in &ids {
        let written = writer.written;
        let visit = Visit { range: IdRange::one(id), reverse: false, count_max: 1 };
        stream.visit(visit, |entry| writer.write(entry))?;
        if writer.written == written {
            writer.write_gone(id);
        } else if let Some(nack) = group.nack(&mut stream, id)? {
            let delivery = Delivery { at_ms: now_ms, count: nack.deliveries.wrapping_add(1) };
            group.assign(&mut stream, id, (Some(nack), at), delivery)?;
        }
    }
    writer.end_array(start, &key)?;
    notes.check(&key, reply)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use crate::collection::GroupEdit;
    use crate::harness::{Harness, check, check_events};
    use crate::wait::Waits;

    const E1: &str = "[$3 1-0, [$1 a, $1 1]]";
    const E2: &str = "[$3 2-0, [$1 b, $1 2]]";

    #[test]
    fn what_stands_behind_ids_is_read() {
        check(&[
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("XADD s 2-0 b 2", "$3 2-0"),
            ("XADD t 5-5 c 3", "$3 5-5"),
            ("XREAD STREAMS s 0", &format!("{{$1 s: [{E1}, {E2}]}}")),
            ("XREAD COUNT 1 STREAMS s 0", &format!("{{$1 s: [{E1}]}}")),
            ("XREAD COUNT -1 STREAMS s 1", &format!("{{$1 s: [{E2}]}}")),
            (
                "XREAD STREAMS s none t 1-0 0 0-1",
                &format!("{{$1 s: [{E2}], $1 t: [[$3 5-5, [$1 c, $1 3]]]}}"),
            ),
            ("XREAD STREAMS s t 2 5-5", "_"),
            ("XREAD BLOCK 100 STREAMS s 2", "+waits"),
            ("XREAD BLOCK 100 STREAMS s $", "+waits, 5 is 2-0"),
            ("XREAD BLOCK 0 STREAMS s none t s $ $ 5-5 $", "+waits, 8 is 2-0, 9 is 0-0, 11 is 2-0"),
            ("XREAD STREAMS s 18446744073709551615-18446744073709551615", "_"),
            ("XREAD BLOCK 0 COUNT 2 STREAMS none none $ 0", "+waits, 8 is 0-0"),
        ]);
    }

    #[test]
    fn who_has_waited_is_answered_with_one_stream() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("XADD s 1-0 a 1");
            server.run("XADD t 1-0 a 1");
            server.run("XADD t 2-0 b 2");
            server.waits = Waits::For(1);
            assert_eq!(server.run("XREAD BLOCK 0 STREAMS s t 0 1-0"), format!("{{$1 t: [{E2}]}}"));
            assert_eq!(server.run("XREAD BLOCK 0 STREAMS s t 0 2-0"), "+waits");
            server.run("XDEL t 2-0");
            assert_eq!(server.run("XREAD BLOCK 0 STREAMS s t 0 1-0"), "{$1 t: []}");
            server.waits = Waits::For(0);
            for number in 2..1100 {
                server.run(&format!("XADD s {number}-0 a 1"));
            }
            for (count, entries) in [("", 1000), ("COUNT 0 ", 1000), ("COUNT 1050 ", 1050)] {
                let reply = server.run(&format!("XREAD {count}BLOCK 0 STREAMS s t 0 0"));
                assert_eq!(reply.matches("-0, [").count(), entries, "{count}");
            }
            server.waits = Waits::Never;
            assert_eq!(server.run("XREAD BLOCK 0 STREAMS t $"), "_");
        }
    }

    #[test]
    fn who_waits_as_one_of_a_group_hears_that_it_is_gone() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            let line = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
            let gone = "-NOGROUP the consumer group this client was blocked on no longer exists";
            let lost = "-UNBLOCKED the stream key no longer exists";
            server.run("XGROUP CREATE s g $ MKSTREAM");
            assert_eq!(server.run(line), "+waits");
            assert_eq!(
                server.run("XREADGROUP GROUP g c BLOCK 0 STREAMS s 0"),
                "{$1 s: []}",
                "what is pending is answered at once"
            );
            server.waits = Waits::For(0);
            assert_eq!(server.run(line), "+waits");
            server.run("XADD s 1-0 a 1");
            server.changes = 0;
            assert_eq!(server.run(line), format!("{{$1 s: [{E1}]}}"));
            assert_eq!(server.changes, 0);
            assert_eq!(server.run(line), "+waits");
            assert_eq!(server.run("XPENDING s g - + 9"), "[[$3 1-0, $1 c, :0, :1]]");
            // What has woken it may be gone: it is a consumer for that all the same.
            server.run("XADD s 2-0 b 2");
            server.run("XDEL s 2-0");
            server.changes = 0;
            let reply = server.run("XREADGROUP GROUP g new BLOCK 0 STREAMS s >");
            assert_eq!(reply, "{$1 s: []}");
            assert_eq!(server.changes, 1, "the consumer");
            server.run("XGROUP DESTROY s g");
            assert_eq!(server.run(line), gone);
            server.run("SET s 1");
            assert_eq!(server.run(line), lost);
            server.run("DEL s");
            server.events.clear();
            assert_eq!(server.run(line), lost);
            assert_eq!(server.events.join(", "), "");
        }
    }

    #[test]
    fn arguments_refused() {
        let syntax = "-ERR syntax error";
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        check(&[
            ("SET string 1", "+OK"),
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("XGROUP CREATE s g 0", "+OK"),
            (
                "XREAD STREAMS string 0",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("XREAD STREAMS s +", invalid),
            ("XREAD STREAMS s -", invalid),
            (
                "XREAD STREAMS s >",
                "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            ),
            (
                "XREAD STREAMS s 0 0",
                "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
            ),
            ("XREAD COUNT STREAMS STREAMS s 0", "-ERR value is not an integer or out of range"),
            ("XREAD BLOCK x STREAMS s 0", "-ERR timeout is not an integer or out of range"),
            ("XREAD BLOCK -1 STREAMS s 0", "-ERR timeout is negative"),
            ("XREAD COUNT 1 s 0", syntax),
            ("XREAD COUNT 1 BLOCK 1", syntax),
            (
                "XREAD GROUP g c STREAMS s 0",
                "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
            ),
            (
                "XREAD NOACK STREAMS s 0",
                "-ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
            ),
            ("XREADGROUP COUNT 1 COUNT 1 STREAMS s 0", "-ERR Missing GROUP option for XREADGROUP"),
            ("XREADGROUP GROUP g c STREAMS s x", invalid),
            (
                "XREADGROUP GROUP none c STREAMS s >",
                "-NOGROUP No such key 's' or consumer group 'none' in XREADGROUP with GROUP option",
            ),
            (
                "XREADGROUP GROUP g c STREAMS none >",
                "-NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP option",
            ),
            ("XREADGROUP GROUP g STREAMS STREAMS s >", "{$1 s: [[$3 1-0, [$1 a, $1 1]]]}"),
        ]);
    }

    #[test]
    fn a_group_delivers_each_entry_once_and_again_what_is_pending() {
        check(&[
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("XADD s 2-0 b 2", "$3 2-0"),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XREADGROUP GROUP g alice COUNT 1 STREAMS s >", &format!("{{$1 s: [{E1}]}}")),
            ("XREADGROUP GROUP g bob STREAMS s >", &format!("{{$1 s: [{E2}]}}")),
            ("XREADGROUP GROUP g carol STREAMS s >", "_"),
            ("XREADGROUP GROUP g carol STREAMS s 0", "{$1 s: []}"),
            ("XREADGROUP GROUP g alice STREAMS s 0", &format!("{{$1 s: [{E1}]}}")),
            ("XREADGROUP GROUP g alice STREAMS s 1", "{$1 s: []}"),
            ("XPENDING s g", "[:2, $3 1-0, $3 2-0, [[$5 alice, $1 1], [$3 bob, $1 1]]]"),
            ("XPENDING s g - + 10", "[[$3 1-0, $5 alice, :0, :2], [$3 2-0, $3 bob, :0, :1]]"),
            ("XDEL s 1-0", ":1"),
            ("XREADGROUP GROUP g alice STREAMS s 0", "{$1 s: [[$3 1-0, _]]}"),
            (
                "XINFO CONSUMERS s g",
                "[{$4 name: $5 alice, $7 pending: :1, $4 idle: :0}, {$4 name: $3 bob, $7 pending: :1, $4 idle: :0}, {$4 name: $5 carol, $7 pending: :0, $4 idle: :0}]",
            ),
            ("XACK s g 1-0 1-0 2-0 9-9", ":2"),
            ("XPENDING s g", "[:0, _, _, _]"),
            ("XADD s 3-0 c 3", "$3 3-0"),
            ("XREADGROUP GROUP g bob NOACK STREAMS s >", "{$1 s: [[$3 3-0, [$1 c, $1 3]]]}"),
            ("XPENDING s g - + 10", "[]"),
            ("XGROUP SETID s g 0", "+OK"),
            (
                "XREADGROUP GROUP g bob COUNT 1 STREAMS s s > 0",
                "{$1 s: [[$3 2-0, [$1 b, $1 2]]], $1 s: [[$3 2-0, [$1 b, $1 2]]]}",
            ),
            ("XPENDING s g - + 10 bob", "[[$3 2-0, $3 bob, :0, :2]]"),
        ]);
    }

    #[test]
    fn many_entries_are_read_and_acknowledged() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("XGROUP CREATE s g $ MKSTREAM");
            for number in 0..1_000 {
                server.run(&format!("XADD s {number}-1 field value-{number}-of-some-length"));
            }
            for round in 0..10 {
                let reply =
                    server.run(&format!("XREADGROUP GROUP g c{} COUNT 100 STREAMS s >", round % 3));
                assert!(
                    reply.contains(&format!(
                        "${} {}-1,",
                        3 + usize::from(round > 0) * 2,
                        round * 100
                    )),
                    "{reply}"
                );
            }
            assert_eq!(server.run("XREADGROUP GROUP g c0 STREAMS s >"), "_");
            assert_eq!(
                server.run("XPENDING s g"),
                "[:1000, $3 0-1, $5 999-1, [[$2 c0, $3 400], [$2 c1, $3 300], [$2 c2, $3 300]]]"
            );
            assert!(server.nodes() > 40);
            for number in 0..900 {
                assert_eq!(server.run(&format!("XACK s g {number}-1")), ":1");
            }
            assert_eq!(server.run("XPENDING s g"), "[:100, $5 900-1, $5 999-1, [[$2 c0, $3 100]]]");
            assert_eq!(server.run("XGROUP DELCONSUMER s g c0"), ":100");
            assert_eq!(server.run("XGROUP DESTROY s g"), ":1");
            assert_eq!(server.run("DEL s"), ":1");
            assert_eq!(server.nodes(), 0);
            server.check_counts();
        }
    }

    #[test]
    fn changes_are_counted_and_consumers_reported() {
        check_events(&[
            ("XADD s 1-0 a 1", "new s, xadd s"),
            ("XADD s 2-0 a 1", "xadd s"),
            ("XGROUP CREATE s g 0", "xgroup-create s"),
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", "xgroup-createconsumer s"),
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", ""),
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", ""),
        ]);
        let mut server = Harness::new(true);
        for (line, changes) in [
            ("XADD s 1-0 a 1", 1),
            ("XGROUP CREATE s g 0", 1),
            ("XREADGROUP GROUP g c STREAMS s >", 2),
            ("XREADGROUP GROUP g c STREAMS s >", 0),
            ("XREADGROUP GROUP g c STREAMS s 0", 1),
            ("XREAD STREAMS s 0", 0),
        ] {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }

    #[test]
    fn many_entries_are_delivered_and_claimed_at_once() {
        const ENTRIES: usize = 30_000;
        let mut server = Harness::new(false);
        for number in 1..=ENTRIES {
            server.run(&format!("XADD s {number}-0 a 1"));
        }
        server.run("XGROUP CREATE s g 0");
        let reply = server.run("XREADGROUP GROUP g alice STREAMS s >");
        assert_eq!(reply.matches("[$1 a, $1 1]").count(), ENTRIES);
        let reply = server.run(&format!("XAUTOCLAIM s g bob 0 0 COUNT {ENTRIES} JUSTID"));
        assert_eq!(reply.matches("-0").count(), ENTRIES + 1);
        assert_eq!(
            server.run("XPENDING s g"),
            format!("[:{ENTRIES}, $3 1-0, $7 {ENTRIES}-0, [[$3 bob, $5 {ENTRIES}]]]")
        );
    }

    #[test]
    fn many_keys_are_read_at_once() {
        const KEYS: usize = 40_000;
        let prefix = "a-prefix-that-all-keys-have-".repeat(4);
        let mut server = Harness::new(false);
        let (mut keys, mut ids) = (String::new(), String::new());
        for number in 1..=KEYS {
            let key = format!("{prefix}{number:06}");
            server.run(&format!("XGROUP CREATE {key} g 0 MKSTREAM"));
            keys = keys + " " + &key;
            ids += " >";
        }
        server.run(&format!("XADD {prefix}{KEYS:06} 1-0 a 1"));
        let reply = server.run(&format!("XREADGROUP GROUP g c STREAMS{keys}{ids}"));
        assert_eq!(reply, format!("{{$118 {prefix}{KEYS:06}: [{E1}]}}"));
    }

    #[test]
    fn what_there_is_no_memory_for_is_not_delivered() {
        let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for number in 1..=20 {
                server.run(&format!("XADD s {number}-0 a 1"));
            }
            server.run("XGROUP CREATE s g 0");
            server.run("XREADGROUP GROUP g c COUNT 10 STREAMS s >");
            server.memory_bytes_max = 9 * GroupEdit::NOTED_BYTES;
            for (line, expected) in [
                ("XREADGROUP GROUP g c STREAMS s >", oom),
                ("XREADGROUP GROUP g c STREAMS s 0", oom),
                ("XREADGROUP GROUP g c COUNT 10 STREAMS s 0", oom),
                ("XGROUP DELCONSUMER s g c", oom),
                ("XACK s g 1-0", ":1"),
                ("XREADGROUP GROUP g c STREAMS s 0", "*"),
                ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", "*"),
                ("XREADGROUP GROUP g c STREAMS s 2-0", "*"),
                ("XPENDING s g", "[:10, $3 2-0, $4 11-0, [[$1 c, $2 10]]]"),
                ("XACK s g 2-0", ":1"),
                ("XGROUP DELCONSUMER s g c", ":9"),
            ] {
                let reply = server.run(line);
                let is_right =
                    if expected == "*" { !reply.starts_with('-') } else { reply == expected };
                assert!(is_right, "{line}: {reply}");
            }
        }
    }

    #[test]
    fn what_replies_of_groups_take_is_known_before() {
        let mut server = Harness::new(false);
        for number in 1..=200 {
            server.run(&format!("XADD s {number}-0 a 1"));
            server.run(&format!("XGROUP CREATE s group-{number} 0"));
        }
        for number in 1..=200 {
            let name = format!("consumer-{number}-{}", "x".repeat(number));
            server.run(&format!("XREADGROUP GROUP group-1 {name} COUNT 1 STREAMS s >"));
        }
        server.run("XREADGROUP GROUP group-2 c STREAMS s >");
        let all: Vec<String> = (1..=200).map(|number| number.to_string()).collect();
        server.run(&format!("XDEL s {}", all[..100].join(" ")));
        server.reply_bytes_free = 256;
        for line in [
            "XINFO STREAM s FULL",
            "XINFO STREAM s FULL COUNT 0",
            "XINFO GROUPS s",
            "XINFO CONSUMERS s group-1",
            "XPENDING s group-1",
            "XPENDING s group-1 - + 1000",
            "XPENDING s group-2 - + 1000 c",
            "XREADGROUP GROUP group-2 c COUNT 100 STREAMS s 0",
            &format!("XCLAIM s group-1 c 0 {} JUSTID", all[100..].join(" ")),
            "XAUTOCLAIM s group-2 d 0 0 COUNT 300 JUSTID",
        ] {
            // The harness sees to it that no reply is longer than was granted.
            let reply = server.run(line);
            assert!(reply.len() > 900, "{line:.40}: {reply}");
            // What FULL lists of entries, groups and consumers, and the names of owners, are known one after another.
            let runs_max = if line.contains("FULL") { 5 } else { 3 };
            assert!((2..=runs_max).contains(&server.runs), "{line:.40}: {} runs", server.runs);
        }
    }
}
