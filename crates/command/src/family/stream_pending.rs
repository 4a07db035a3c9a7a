//! What consumers have not acknowledged: XACK and XPENDING.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use keyspace::Key;
use resp::{Args, Reply};
use value::StreamId;
use value::leaf::stream_rows::{Group as GroupRow, Nack};

use super::room::Gathering;
use super::stream::{parse_id, parse_integer};
use super::stream_range::{parse_end, parse_start, write_id};
use crate::collection::{GroupEdit, IdRange, Stream};
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, shown};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];
const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];

/// Bytes of a line of XPENDING, and of one of its summary, beside the consumer's name, at most.
const LINE_BYTES: usize = 112;
const SUMMARY_LINE_BYTES: usize = 64;
/// IDs of a consumer that are looked at together, at least and at most, when only those are listed that have been
/// pending for long.
const IDS_MIN: u64 = 256;
const IDS_MAX: u64 = 1 << 16;

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
    let (key, group) = (shown(key.bytes), shown(group));
    CommandError::owned(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

fn xack(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, mut notes) = (cx.key(0), Notes::new(cx));
    cx.count_read(&key);
    let mut stream = cx.read_stream(&key)?;
    let group = match &mut stream {
        Some(stream) => GroupEdit::open(stream, &args[2])?,
        None => None,
    };
    let (Some(mut stream), Some(mut group)) = (stream, group) else {
        reply.integer(0);
        return Ok(());
    };
    let mut ids = args.from(3).iter().map(parse_id).collect::<Result<Vec<StreamId>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    notes.take(&key, ids.len() as u64, reply)?;
    let nacks = group.nacks(&mut stream, &ids)?;
    let mut acknowledged = 0;
    for (id, nack) in ids.into_iter().zip(nacks) {
        if let Some(nack) = nack {
            group.acknowledge(&mut stream, id, nack)?;
            acknowledged += 1;
        }
    }
    apply(cx, &key, group, acknowledged)?;
    reply.integer(acknowledged as i64);
    Ok(())
}

/// Memory for what becomes of pending entries, which a command notes before it changes any.
pub(super) struct Notes {
    entries: u64,
    reply_bytes_max: usize,
    memory_bytes_max: u64,
}

impl Notes {
    /// So many entries are noted without asking: to run twice costs more than that.
    pub(super) const FREE: u64 = 1_000;
    /// A reply that is written in memory granted for notes grows, and is there more than once meanwhile.
    const REPLY_TIMES: u64 = 3;

    pub(super) fn new(cx: &Cx<'_, '_>) -> Notes {
        let memory_bytes_max = cx.limits.memory_bytes_max() as u64;
        Notes { entries: 0, reply_bytes_max: cx.reply_bytes_max, memory_bytes_max }
    }

    /// How many entries more there may ever be room for.
    pub(super) fn entries_left(&self) -> u64 {
        (self.memory_bytes_max / GroupEdit::NOTED_BYTES as u64).saturating_sub(self.entries)
    }

    /// Counts so many entries more of a key, beside what the reply has so far.
    ///
    /// Errors: [`CommandError::OUT_OF_MEMORY`], if there is never room for them; [`CommandError::ReplyTooLong`].
    pub(super) fn take(&mut self, key: &Key<'_>, entries: u64, reply: &Reply) -> CommandResult {
        if entries > self.entries_left() {
            return Err(CommandError::OUT_OF_MEMORY);
        }
        self.entries += entries;
        self.check(key, reply)
    }

    /// Whether there is memory for them beside what the reply has now. Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn check(&self, key: &Key<'_>, reply: &Reply) -> CommandResult {
        if self.entries <= Notes::FREE {
            return Ok(());
        }
        let of_reply = reply.full_len() as u64 * Notes::REPLY_TIMES;
        let bytes = self.entries * GroupEdit::NOTED_BYTES as u64 + of_reply;
        match bytes > self.reply_bytes_max as u64 {
            true => Err(CommandError::too_long_of(key, bytes).of_copies()),
            false => Ok(()),
        }
    }
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
    let (key, now_ms) = (cx.key(0), cx.now_ms);
    let room = Gathering::new(&key, cx.reply_bytes_max, reply);
    let mut stream = cx.read_stream(&key)?;
    let group = match &mut stream {
        Some(stream) => stream.group(&args[2])?,
        None => None,
    };
    let (Some(mut stream), Some(group)) = (stream, group) else {
        return Err(no_group(&key, &args[2]));
    };
    match listed {
        None => write_summary(&mut stream, &group, room, reply),
        Some(listed) => write_listed(&mut stream, (&group, &listed, now_ms), room, reply),
    }
}

fn write_summary(
    stream: &mut Stream<'_>,
    group: &GroupRow,
    mut room: Gathering<'_>,
    reply: &mut Reply,
) -> CommandResult {
    let mut first = None;
    stream.pending(group, (StreamId::MIN, 1), |id, _| {
        first = Some(id);
        ControlFlow::Break(())
    })?;
    let (first, last) = (first, stream.last_pending(group)?);
    let owning = match first {
        None => Vec::new(),
        Some(_) => stream.consumers(group, |name, consumer| {
            consumer.pending > 0 && room.take(SUMMARY_LINE_BYTES + name.len())
        })?,
    };
    room.check()?;
    reply.array(4);
    reply.integer(group.pending as i64);
    let (Some(first), Some(last)) = (first, last) else {
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    };
    write_id(first, reply);
    write_id(last, reply);
    reply.array(owning.len());
    for (name, consumer) in &owning {
        reply.array(2);
        reply.bulk(name);
        reply.bulk_integer(consumer.pending as i64);
    }
    Ok(())
}

type Pending = Vec<(StreamId, Nack)>;

fn write_listed(
    stream: &mut Stream<'_>,
    (group, listed, now_ms): (&GroupRow, &Listed<'_>, u64),
    mut room: Gathering<'_>,
    reply: &mut Reply,
) -> CommandResult {
    let mut found = Pending::new();
    let mut count = 0;
    // Those that there is no memory for are counted.
    let mut find = |id, nack: Nack| {
        if is_idle(&nack, listed.idle_ms, now_ms) {
            count += 1;
            if room.take(LINE_BYTES) {
                found.push((id, nack));
            }
        }
        if count < listed.count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    match listed.consumer {
        _ if listed.count == 0 => {}
        None => stream.pending(group, (listed.range.first, listed.count), |id, nack| {
            if id > listed.range.last { ControlFlow::Break(()) } else { find(id, nack) }
        })?,
        Some(name) => visit_owned(stream, (group, listed, name), &mut find)?,
    }
    let owners: BTreeSet<u32> = found.iter().map(|(_, nack)| nack.consumer).collect();
    let names = stream.consumer_names(group, &owners)?;
    room.take(found.iter().map(|(_, nack)| names[&nack.consumer].len()).sum());
    room.check()?;
    reply.array(found.len());
    for (id, nack) in &found {
        reply.array(4);
        write_id(*id, reply);
        reply.bulk(&names[&nack.consumer]);
        reply.integer(now_ms.saturating_sub(nack.delivered_ms) as i64);
        reply.integer(nack.deliveries as i64);
    }
    Ok(())
}

/// Visits what is pending with a consumer in the range that is listed, some entries at a time.
fn visit_owned(
    stream: &mut Stream<'_>,
    (group, listed, name): (&GroupRow, &Listed<'_>, &[u8]),
    each: &mut impl FnMut(StreamId, Nack) -> ControlFlow<()>,
) -> CommandResult {
    let Some(consumer) = stream.consumer(group, name)? else { return Ok(()) };
    let (mut from, mut wanted) = (Some(listed.range.first), listed.count.clamp(IDS_MIN, IDS_MAX));
    if listed.idle_ms == 0 {
        wanted = wanted.min(listed.count);
    }
    while let Some(first) = from {
        let mut ids = stream.owned((group, &consumer), first, wanted)?;
        let is_end = (ids.len() as u64) < wanted;
        from = ids.last().filter(|_| !is_end).and_then(|last| last.next());
        ids.retain(|id| *id <= listed.range.last);
        stream.announce_pending(group, &ids)?;
        for id in ids {
            let nack = stream.nack(group, id)?.expect("invariant: it is pending with somebody");
            if each(id, nack).is_break() {
                return Ok(());
            }
        }
        from = from.filter(|next| *next <= listed.range.last);
        wanted = wanted.saturating_mul(2).min(IDS_MAX);
    }
    Ok(())
}

/// Whether an entry has been pending for so long since it was last delivered.
pub(super) fn is_idle(nack: &Nack, idle_ms: i64, now_ms: u64) -> bool {
    idle_ms == 0 || (now_ms as i64).wrapping_sub(nack.delivered_ms as i64) >= idle_ms
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

    #[test]
    fn what_has_been_pending_for_long_is_found_some_at_a_time() {
        let mut server = Harness::new(true);
        for id in 1..=5_000 {
            server.run(&format!("XADD s {id}-0 a 1"));
        }
        server.run("XGROUP CREATE s g 0");
        server.run("XREADGROUP GROUP g alice STREAMS s >");
        server.now_ms += 1_000;
        server.run("XREADGROUP GROUP g alice COUNT 2000 STREAMS s 0");
        server.now_ms += 1_000;
        assert_eq!(
            server.run("XPENDING s g IDLE 500 - + 1 alice"),
            "[[$3 1-0, $5 alice, :1000, :2]]"
        );
        assert!(server.fetched() < 30, "{} leaves", server.fetched());
        for (line, first, count) in [
            ("XPENDING s g IDLE 1500 - + 1 alice", "2001-0", 1),
            ("XPENDING s g IDLE 1500 - + 2900 alice", "2001-0", 2_900),
            ("XPENDING s g IDLE 1500 - + 9999 alice", "2001-0", 3_000),
            ("XPENDING s g IDLE 1500 - + 9999", "2001-0", 3_000),
            ("XPENDING s g IDLE 1500 3000 (4000-0 9999 alice", "3000-0", 1_000),
            ("XPENDING s g 3000 (4000-0 300 alice", "3000-0", 300),
            ("XPENDING s g 3000 (4000-0 9999 alice", "3000-0", 1_000),
        ] {
            let reply = server.run(line);
            assert!(reply.starts_with(&format!("[[$6 {first}, ")), "{line}: {reply:.50}");
            assert_eq!(reply.matches("alice").count(), count, "{line}");
        }
    }

    #[test]
    fn nothing_that_is_pending_is_an_answer_behind_a_long_reply() {
        let mut server = delivered(false);
        (server.follows, server.reply_bytes_free) = (true, 0);
        for line in ["XPENDING s g - + 10 nobody", "XPENDING s g - + 0", "XPENDING s g 9 + 10"] {
            assert_eq!((&*server.run(line), server.runs), ("[]", 1), "{line}");
        }
    }

    #[test]
    fn many_consumers_are_told_apart() {
        const CONSUMERS: usize = 40_000;
        let mut server = Harness::new(false);
        server.run("XGROUP CREATE s g 0 MKSTREAM");
        let mut ids = String::new();
        for number in 1..=CONSUMERS {
            server.run(&format!("XADD s {number}-0 a 1"));
            server.run(&format!("XREADGROUP GROUP g c{number} STREAMS s >"));
            ids += &format!(" {number}");
        }
        let listed = server.run(&format!("XPENDING s g - + {CONSUMERS}"));
        assert_eq!(listed.matches("-0, ").count(), CONSUMERS);
        assert!(listed.ends_with(&format!("[$7 {CONSUMERS}-0, $6 c{CONSUMERS}, :0, :1]]")));
        let full = server.run("XINFO STREAM s FULL COUNT 0");
        assert_eq!(full.matches("$9 pel-count: :1,").count(), CONSUMERS);
        assert_eq!(server.run(&format!("XACK s g{ids}")), format!(":{CONSUMERS}"));
        assert_eq!(server.run("XPENDING s g"), "[:0, _, _, _]");
    }

    #[test]
    fn leaves_of_consumers_are_looked_for_together() {
        const CONSUMERS: usize = 300;
        let name = |number: usize| format!("consumer-{number:04}-{}", "x".repeat(100));
        let mut server = Harness::new(true);
        server.run("XGROUP CREATE s g 0 MKSTREAM");
        let mut ids = String::new();
        for number in 1..=CONSUMERS {
            server.run(&format!("XADD s {number}-0 a 1"));
            server.run(&format!("XREADGROUP GROUP g {} STREAMS s >", name(number)));
            ids += &format!(" {number}");
        }
        assert!(server.nodes() > 60, "{}", server.nodes());
        for (line, runs) in [
            ("XPENDING s g - + 1000".to_owned(), 4),
            ("XINFO STREAM s FULL COUNT 1".to_owned(), 8),
            ("XINFO STREAM s FULL".to_owned(), 8),
            ("XINFO STREAM s FULL COUNT 0".to_owned(), 8),
            (format!("XCLAIM s g {} 0{ids} JUSTID", name(1)), 8),
            ("XGROUP SETID s g 0".to_owned(), 3),
            (format!("XREADGROUP GROUP g {} STREAMS s >", name(2)), 8),
            (format!("XAUTOCLAIM s g {} 0 0 COUNT 1000", name(3)), 8),
            (format!("XACK s g{ids}"), 6),
        ] {
            server.run(&line);
            assert!(server.runs <= runs, "{line:.60}: {} runs", server.runs);
        }
        assert_eq!(server.run("XPENDING s g"), "[:0, _, _, _]");
    }
}
