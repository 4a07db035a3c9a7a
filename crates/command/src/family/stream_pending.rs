//! What consumers have not acknowledged: XACK and XPENDING.

use std::ops::ControlFlow;

use keyspace::Key;
use resp::{Args, Reply};
use value::StreamId;
use value::leaf::stream_rows::{Group as GroupRow, Nack};

use super::stream::{parse_id, parse_integer};
use super::stream_range::{parse_end, parse_start, write_id};
use crate::collection::{GroupEdit, IdRange, Stream};
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];
const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];

/// Bytes of a line of XPENDING beside the consumer's name, about.
const LINE_BYTES: usize = 96;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XACK",
        arity: -4,
        flags: WRITE,
        keys: CHANGED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Acknowledges entries, so that they are pending no more, and answers how many were.",
            complexity: "O(M log N) for M IDs and N pending entries",
            syntax: "key group id [id ...]",
        },
        run: xack,
    },
    Command {
        name: "XPENDING",
        arity: -3,
        flags: Flags::READONLY,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Tells what is pending in a consumer group, with whom, and since when.",
            complexity: "O(log N + M) for N pending entries of which M are looked at",
            syntax: "key group [[IDLE milliseconds] start end count [consumer]]",
        },
        run: xpending,
    },
];

pub(super) fn no_group(key: &Key<'_>, group: &[u8]) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key.bytes), String::from_utf8_lossy(group));
    CommandError::owned(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

fn xack(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    cx.report_missed_read(&key);
    let mut stream = cx.read_stream(&key)?;
    let group = match &mut stream {
        Some(stream) => GroupEdit::open(stream, &args[2])?,
        None => None,
    };
    let (Some(mut stream), Some(mut group)) = (stream, group) else {
        reply.integer(0);
        return Ok(());
    };
    let ids = args.from(3).iter().map(parse_id).collect::<Result<Vec<StreamId>, _>>()?;
    stream.announce_pending(group.group(), &ids)?;
    let mut acknowledged = 0;
    for id in ids {
        if let Some(nack) = group.nack(&mut stream, id)? {
            group.acknowledge(&mut stream, id, nack)?;
            acknowledged += 1;
        }
    }
    apply(cx, &key, group, acknowledged)?;
    reply.integer(acknowledged as i64);
    Ok(())
}

/// Changes a group, which counts as so many changes.
pub(super) fn apply(
    cx: &mut Cx<'_, '_>,
    key: &Key<'_>,
    group: GroupEdit,
    changes: u64,
) -> CommandResult {
    let edits = group.finish();
    cx.prepare_rows(key, &edits)?;
    cx.edit_rows(key, &edits);
    cx.effects.changes += changes;
    Ok(())
}

/// Which pending entries XPENDING lists.
struct Listed<'a> {
    idle_ms: i64,
    range: IdRange,
    count: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Listed<'a> {
    /// None: none of them, but what they come to.
    fn parse(args: Args<'a>) -> Result<Option<Listed<'a>>, CommandError> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(CommandError::SYNTAX);
        }
        let (mut idle_ms, mut at) = (0, 3);
        if args[3].eq_ignore_ascii_case(b"IDLE") {
            idle_ms = parse_integer(&args[4])?;
            if args.len() < 8 {
                return Err(CommandError::SYNTAX);
            }
            at = 5;
        }
        let count = parse_integer(&args[at + 2])?.max(0) as u64;
        let range = IdRange { first: parse_start(&args[at])?, last: parse_end(&args[at + 1])? };
        Ok(Some(Listed { idle_ms, range, count, consumer: args.get(at + 3) }))
    }
}

fn xpending(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let listed = Listed::parse(args)?;
    let (key, now_ms, reply_bytes_max) = (cx.key(0), cx.now_ms, cx.reply_bytes_max);
    let mut stream = cx.read_stream(&key)?;
    let group = match &mut stream {
        Some(stream) => stream.group(&args[2])?,
        None => None,
    };
    let (Some(mut stream), Some(group)) = (stream, group) else {
        return Err(no_group(&key, &args[2]));
    };
    match listed {
        None => write_summary(&mut stream, &group, reply),
        Some(listed) => {
            let bytes =
                write_listed(&mut stream, (&group, &listed), (now_ms, reply_bytes_max), reply)?;
            if bytes > 0 { Err(CommandError::too_long_of(&key, bytes)) } else { Ok(()) }
        }
    }
}

fn write_summary(stream: &mut Stream<'_>, group: &GroupRow, reply: &mut Reply) -> CommandResult {
    reply.array(4);
    reply.integer(group.pending as i64);
    let mut first = None;
    stream.pending(group, (StreamId::MIN, 1), |id, _| {
        first = Some(id);
        ControlFlow::Break(())
    })?;
    let (Some(first), Some(last)) = (first, stream.last_pending(group)?) else {
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    };
    write_id(first, reply);
    write_id(last, reply);
    let consumers = stream.consumers(group)?;
    let owning = consumers.iter().filter(|(_, consumer)| consumer.pending > 0);
    reply.array(owning.clone().count());
    for (name, consumer) in owning {
        reply.array(2);
        reply.bulk(name);
        reply.bulk_integer(consumer.pending as i64);
    }
    Ok(())
}

/// Returns how many bytes the reply takes, about, if that is too much.
fn write_listed(
    stream: &mut Stream<'_>,
    (group, listed): (&GroupRow, &Listed<'_>),
    (now_ms, reply_bytes_max): (u64, usize),
    reply: &mut Reply,
) -> Result<u64, CommandError> {
    let found = match listed.consumer {
        _ if listed.count == 0 => Vec::new(),
        None => find_pending(stream, (group, listed), now_ms)?,
        Some(name) => match stream.consumer(group, name)? {
            None => Vec::new(),
            Some(consumer) => {
                let of_all = |limit| stream.owned((group, &consumer), listed.range.first, limit);
                let ids = { of_all }(if listed.idle_ms > 0 { u64::MAX } else { listed.count })?;
                find_owned(stream, (group, listed), ids, now_ms)?
            }
        },
    };
    let mut names: Vec<(u32, Vec<u8>)> = Vec::new();
    for (_, nack) in &found {
        if names.iter().all(|(number, _)| *number != nack.consumer) {
            names.push((nack.consumer, stream.consumer_name(group, nack.consumer)?));
        }
    }
    let longest = names.iter().map(|(_, name)| name.len()).max().unwrap_or(0);
    let bytes = found.len() * (LINE_BYTES + longest);
    if reply.full_len() + bytes > reply_bytes_max {
        return Ok(bytes as u64);
    }
    reply.array(found.len());
    for (id, nack) in &found {
        let name = names.iter().find(|(number, _)| *number == nack.consumer);
        reply.array(4);
        write_id(*id, reply);
        reply.bulk(&name.expect("invariant: all were looked for").1);
        reply.integer(now_ms.saturating_sub(nack.delivered_ms) as i64);
        reply.integer(nack.deliveries as i64);
    }
    Ok(0)
}

/// Whether an entry has been pending for so long since it was last delivered.
pub(super) fn is_idle(nack: &Nack, idle_ms: i64, now_ms: u64) -> bool {
    idle_ms == 0 || (now_ms as i64).wrapping_sub(nack.delivered_ms as i64) >= idle_ms
}

fn find_pending(
    stream: &mut Stream<'_>,
    (group, listed): (&GroupRow, &Listed<'_>),
    now_ms: u64,
) -> Result<Vec<(StreamId, Nack)>, CommandError> {
    let mut found = Vec::new();
    stream.pending(group, (listed.range.first, listed.count), |id, nack| {
        if id > listed.range.last {
            return ControlFlow::Break(());
        }
        if is_idle(&nack, listed.idle_ms, now_ms) {
            found.push((id, nack));
        }
        if (found.len() as u64) < listed.count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(found)
}

fn find_owned(
    stream: &mut Stream<'_>,
    (group, listed): (&GroupRow, &Listed<'_>),
    mut ids: Vec<StreamId>,
    now_ms: u64,
) -> Result<Vec<(StreamId, Nack)>, CommandError> {
    ids.retain(|id| *id <= listed.range.last);
    stream.announce_pending(group, &ids)?;
    let mut found = Vec::new();
    for id in ids {
        let nack = stream.nack(group, id)?.expect("invariant: it is pending with somebody");
        if is_idle(&nack, listed.idle_ms, now_ms) {
            found.push((id, nack));
        }
        if found.len() as u64 == listed.count {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
pub(super) mod tests {
    use crate::harness::{Harness, check};

    fn delivered(demote: bool) -> Harness {
        let mut server = Harness::new(demote);
        for id in 1..=4 {
            server.run(&format!("XADD s {id}-0 a {id}"));
        }
        server.run("XGROUP CREATE s g 0");
        server.run("XREADGROUP GROUP g alice COUNT 3 STREAMS s >");
        server.now_ms += 1_000;
        server
    }

    /// Runs cases with three of four entries delivered to a consumer a second before.
    pub(in crate::family) fn check_delivered(cases: &[(&str, &str)]) {
        for demote in [false, true] {
            let mut server = delivered(demote);
            for (line, expected) in cases {
                assert_eq!(server.run(line), *expected, "{line} (on flash: {demote})");
            }
            server.check_counts();
        }
    }

    #[test]
    fn pending_entries_are_listed() {
        check_delivered(&[
            (
                "XPENDING s g - + 2",
                "[[$3 1-0, $5 alice, :1000, :1], [$3 2-0, $5 alice, :1000, :1]]",
            ),
            ("XPENDING s g (1-0 (3-0 10", "[[$3 2-0, $5 alice, :1000, :1]]"),
            ("XPENDING s g - + 0", "[]"),
            ("XPENDING s g - + -1", "[]"),
            ("XPENDING s g IDLE 1000 - + 1 alice", "[[$3 1-0, $5 alice, :1000, :1]]"),
            ("XPENDING s g IDLE 1001 - + 10", "[]"),
            ("XPENDING s g IDLE 1001 - + 10 alice", "[]"),
            ("XPENDING s g - + 10 nobody", "[]"),
            ("XPENDING s none", "-NOGROUP No such key 's' or consumer group 'none'"),
            ("XPENDING none g - + 10", "-NOGROUP No such key 'none' or consumer group 'g'"),
        ]);
    }

    #[test]
    fn arguments_refused() {
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        let number = "-ERR value is not an integer or out of range";
        let syntax = "-ERR syntax error";
        check(&[
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XACK s g x", invalid),
            ("XACK s none x", ":0"),
            ("XACK none g x", ":0"),
            ("XPENDING s g -", syntax),
            ("XPENDING s g - + x", number),
            ("XPENDING s g - x 1", invalid),
            ("XPENDING s g IDLE x - + 1", number),
            ("XPENDING s g IDLE 1 - +", syntax),
            ("XPENDING s g - + 1 c d e f", syntax),
        ]);
    }
}
