//! Pending entries that another consumer takes over: XCLAIM and XAUTOCLAIM.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use resp::{Args, Reply};
use value::leaf::stream_rows::Nack;
use value::{StreamId, parse_i64};

use super::room::Gathering;
use super::stream::parse_id;
use super::stream_pending::{Notes, apply, is_idle, no_group};
use super::stream_range::{EntryWriter, ID_REPLY_BYTES, parse_start, write_id};
use crate::collection::{Delivery, GroupEdit, IdRange, Stream, Visit};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];
const DELETED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)];

/// Entries that XAUTOCLAIM claims when nobody says, and how many it looks at for each.
const CLAIMED_DEFAULT: u64 = 100;
const ATTEMPTS_FACTOR: u64 = 10;
const CLAIMED_MAX: i64 = i64::MAX / 16;

/// What XAUTOCLAIM claims is there more than once before it is answered: a reply that grows takes as much again
/// as room to grow into, and half of that where it was.
const CLAIMED_TIMES: usize = 3;

const NO_COUNT: CommandError = fixed("ERR COUNT must be > 0");
const COUNT_TOO_HIGH: CommandError =
    fixed("ERR Insufficient memory, failed allocating transient memory, COUNT too high.");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XCLAIM",
        arity: -6,
        flags: WRITE,
        keys: CHANGED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Lets pending entries be pending with another consumer, and returns them.",
            complexity: "O(M log N) for M IDs and N pending entries",
            syntax: "key group consumer min-idle-time id [id ...] [IDLE milliseconds] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID last-id]",
        },
        run: xclaim,
    },
    Command {
        name: "XAUTOCLAIM",
        arity: -6,
        flags: WRITE,
        keys: DELETED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "6.2.0",
            summary: "Lets entries that have been pending for long be pending with another consumer, and returns them.",
            complexity: "O(M log N) for M entries that are looked at, of N pending ones",
            syntax: "key group consumer min-idle-time start [COUNT count] [JUSTID]",
        },
        run: xautoclaim,
    },
];

/// The options of XCLAIM.
struct Claim {
    ids: Vec<StreamId>,
    delivered_ms: u64,
    /// None: one more than before.
    deliveries: Option<u64>,
    forces: bool,
    just_ids: bool,
    last: StreamId,
}

impl Claim {
    fn parse(args: Args<'_>, now_ms: u64) -> Result<Claim, CommandError> {
        let ids: Vec<StreamId> =
            args.from(5).iter().map_while(|text| StreamId::parse_strict(text, 0)).collect();
        let mut rest = args.from(5 + ids.len()).iter();
        let (mut forces, mut just_ids, mut last) = (false, false, StreamId::MIN);
        let (mut delivered, mut deliveries) = (now_ms as i64, None);
        while let Some(option) = rest.next() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("FORCE") {
                forces = true;
                continue;
            } else if is("JUSTID") {
                just_ids = true;
                continue;
            }
            let is_known = is("IDLE") || is("TIME") || is("RETRYCOUNT") || is("LASTID");
            let Some(argument) = rest.next().filter(|_| is_known) else {
                let option = String::from_utf8_lossy(option);
                return Err(CommandError::owned(format!(
                    "ERR Unrecognized XCLAIM option '{option}'"
                )));
            };
            let number = |name: &str| {
                let error = || format!("ERR Invalid {name} option argument for XCLAIM");
                parse_i64(argument).ok_or_else(|| CommandError::owned(error()))
            };
            if is("IDLE") {
                delivered = (now_ms as i64).wrapping_sub(number("IDLE")?);
            } else if is("TIME") {
                delivered = number("TIME")?;
            } else if is("RETRYCOUNT") {
                deliveries = Some(number("RETRYCOUNT")?);
            } else {
                last = parse_id(argument)?;
            }
        }
        let delivered_ms = u64::try_from(delivered)
            .map_or(now_ms, |delivered| if delivered > now_ms { now_ms } else { delivered });
        let deliveries = deliveries.and_then(|count| u64::try_from(count).ok());
        Ok(Claim { ids, delivered_ms, deliveries, forces, just_ids, last })
    }
}

fn parse_idle(text: &[u8], command: &str) -> Result<i64, CommandError> {
    let error = || format!("ERR Invalid min-idle-time argument for {command}");
    Ok(parse_i64(text).ok_or_else(|| CommandError::owned(error()))?.max(0))
}

/// Writes what a consumer claims: the entry, or its ID alone.
fn write_claimed(
    stream: &mut Stream<'_>,
    (id, just_ids): (StreamId, bool),
    writer: &mut EntryWriter<'_>,
) -> CommandResult {
    if just_ids {
        writer.write_id(id);
        return Ok(());
    }
    let visit = Visit { range: IdRange::one(id), reverse: false, count_max: 1 };
    stream.visit(visit, |entry| writer.write(entry))
}

fn xclaim(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, now_ms, reply_bytes_max) = (cx.key(0), cx.now_ms, cx.reply_bytes_max);
    let mut notes = Notes::new(cx);
    cx.count_read(&key);
    let mut stream = cx.read_stream(&key)?;
    let group = match &mut stream {
        Some(stream) => GroupEdit::open(stream, &args[2])?,
        None => None,
    };
    let (Some(mut stream), Some(mut group)) = (stream, group) else {
        return Err(no_group(&key, &args[2]));
    };
    let idle_ms = parse_idle(&args[4], "XCLAIM")?;
    let claim = Claim::parse(args, now_ms)?;
    let moves_last = claim.last > group.group().last;
    if moves_last {
        let read = group.group().read;
        group.set_last(claim.last, read);
    }
    notes.take(&key, claim.ids.len() as u64, reply)?;
    group.nacks(&mut stream, &claim.ids)?;
    stream.announce(claim.ids.iter().copied())?;
    let (mut to, mut changes, mut creates) = (None, 0, false);
    let start = reply.len();
    let mut writer = EntryWriter::new(reply, reply_bytes_max);
    for &id in &claim.ids {
        let nack = group.nack(&mut stream, id)?;
        if !stream.contains(id)? {
            if let Some(nack) = nack {
                group.acknowledge(&mut stream, id, nack)?;
                changes += 1;
            }
            continue;
        }
        let deliveries = match nack {
            Some(nack) if !is_idle(&nack, idle_ms, now_ms) => continue,
            Some(nack) => nack.deliveries,
            None if claim.forces => 1,
            None => continue,
        };
        let at = match to {
            Some(at) => at,
            None => {
                let (at, is_new) = group.see(&mut stream, &args[3], now_ms)?;
                creates = is_new;
                *to.insert(at)
            }
        };
        let more = u64::from(!claim.just_ids);
        let count = claim.deliveries.unwrap_or(deliveries.wrapping_add(more));
        let delivery = Delivery { at_ms: claim.delivered_ms, count };
        group.assign(&mut stream, id, (nack, at), delivery)?;
        write_claimed(&mut stream, (id, claim.just_ids), &mut writer)?;
        changes += 1;
    }
    writer.end_array(start, &key)?;
    notes.check(&key, reply)?;
    if changes == 0 && moves_last {
        changes = 1;
    }
    apply(cx, &key, group, changes)?;
    if creates {
        cx.report(&key, Event::XGROUP_CREATECONSUMER, 1);
    }
    Ok(())
}

/// The options of XAUTOCLAIM.
fn parse_auto_claim(args: Args<'_>) -> Result<(u64, bool), CommandError> {
    let (mut count, mut just_ids) = (CLAIMED_DEFAULT, false);
    let mut rest = args.from(6).iter();
    while let Some(option) = rest.next() {
        if option.eq_ignore_ascii_case(b"COUNT") && rest.len() > 0 {
            let given = parse_i64(rest.next().expect("there is one"));
            let given = given.filter(|given| (1..=CLAIMED_MAX).contains(given));
            count = given.ok_or(NO_COUNT)? as u64;
        } else if option.eq_ignore_ascii_case(b"JUSTID") {
            just_ids = true;
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    Ok((count, just_ids))
}

/// The pending entries of a group, read some at a time.
struct PendingFrom {
    /// Where the next ones begin. None: there are no others.
    from: Option<StreamId>,
    read: VecDeque<(StreamId, Nack)>,
}

impl PendingFrom {
    /// The next one, behind which so many may be wanted.
    fn next(
        &mut self,
        stream: &mut Stream<'_>,
        group: &mut GroupEdit,
        more: u64,
    ) -> Result<Option<(StreamId, Nack)>, CommandError> {
        if self.read.is_empty()
            && let Some(from) = self.from
        {
            let wanted = more.saturating_add(1);
            stream.pending(group.group(), (from, wanted), |id, nack| {
                self.read.push_back((id, nack));
                let is_enough = self.read.len() as u64 == wanted;
                if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            let last = self.read.back().filter(|_| self.read.len() as u64 == wanted);
            self.from = last.and_then(|(id, _)| id.next());
            if more > 0 {
                stream.announce(self.read.iter().map(|(id, _)| *id))?;
                group.meet_owners(stream, self.read.iter().map(|(_, nack)| nack))?;
            }
        }
        Ok(self.read.pop_front())
    }
}

fn xautoclaim(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let idle_ms = parse_idle(&args[4], "XAUTOCLAIM")?;
    let from = parse_start(&args[5])?;
    let (mut count, just_ids) = parse_auto_claim(args)?;
    let (key, now_ms, reply_bytes_max) = (cx.key(0), cx.now_ms, cx.reply_bytes_max);
    let notes = Notes::new(cx);
    cx.count_read(&key);
    let mut stream = cx.read_stream(&key)?;
    let group = match &mut stream {
        Some(stream) => GroupEdit::open(stream, &args[2])?,
        None => None,
    };
    let (Some(mut stream), Some(mut group)) = (stream, group) else {
        return Err(no_group(&key, &args[2]));
    };
    let mut attempts = count.saturating_mul(ATTEMPTS_FACTOR);
    let noted = count.min(group.group().pending);
    if noted > notes.entries_left() {
        return Err(COUNT_TOO_HIGH);
    }
    let mut memory = Gathering::new(&key, reply_bytes_max, reply).of_copies();
    if noted > Notes::FREE {
        memory.take(noted as usize * GroupEdit::NOTED_BYTES);
        memory.check()?;
    }
    let mut pending = PendingFrom { from: Some(from), read: VecDeque::new() };
    let (mut to, mut changes, mut creates, mut deleted) = (None, 0, false, Vec::new());
    let mut claimed = Reply::new(reply.protocol());
    let mut writer = EntryWriter::new(&mut claimed, memory.bytes_left() as usize / CLAIMED_TIMES);
    while attempts > 0 && count > 0 {
        attempts -= 1;
        let next = pending.next(&mut stream, &mut group, count.min(attempts))?;
        let Some((id, nack)) = next else { break };
        if !stream.contains(id)? {
            group.acknowledge(&mut stream, id, nack)?;
            deleted.push(id);
            (changes, count) = (changes + 1, count - 1);
            continue;
        }
        if !is_idle(&nack, idle_ms, now_ms) {
            continue;
        }
        let at = match to {
            Some(at) => at,
            None => {
                let (at, is_new) = group.see(&mut stream, &args[3], now_ms)?;
                creates = is_new;
                *to.insert(at)
            }
        };
        let more = u64::from(!just_ids);
        let delivery = Delivery { at_ms: now_ms, count: nack.deliveries.wrapping_add(more) };
        group.assign(&mut stream, id, (Some(nack), at), delivery)?;
        write_claimed(&mut stream, (id, just_ids), &mut writer)?;
        (changes, count) = (changes + 1, count - 1);
    }
    let next = pending.next(&mut stream, &mut group, 0)?;
    writer.has_room(deleted.len() * ID_REPLY_BYTES);
    memory.take(writer.bytes(0) as usize * CLAIMED_TIMES);
    memory.check()?;
    writer.end_array(0, &key)?;
    apply(cx, &key, group, changes)?;
    if creates {
        cx.report(&key, Event::XGROUP_CREATECONSUMER, 1);
    }
    reply.array(3);
    write_id(next.map_or(StreamId::MIN, |(id, _)| id), reply);
    reply.raw(claimed.as_slice());
    reply.array(deleted.len());
    deleted.into_iter().for_each(|id| write_id(id, reply));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::family::stream_pending::tests::check_delivered;
    use crate::harness::{Harness, check};

    const E1: &str = "[$3 1-0, [$1 a, $1 1]]";
    const E2: &str = "[$3 2-0, [$1 a, $1 2]]";

    #[test]
    fn entries_are_claimed() {
        check_delivered(&[
            ("XCLAIM s g bob 2000 1-0", "[]"),
            (
                "XINFO GROUPS s",
                "[{$4 name: $1 g, $9 consumers: :1, $7 pending: :3, $17 last-delivered-id: $3 3-0, $12 entries-read: :3, $3 lag: :1}]",
            ),
            ("XCLAIM s g bob 1000 1-0 4-0 9-9", &format!("[{E1}]")),
            ("XPENDING s g", "[:3, $3 1-0, $3 3-0, [[$5 alice, $1 2], [$3 bob, $1 1]]]"),
            ("XPENDING s g - + 10 bob", "[[$3 1-0, $3 bob, :0, :2]]"),
            ("XCLAIM s g bob 0 1-0 2-0 JUSTID IDLE 500", "[$3 1-0, $3 2-0]"),
            ("XPENDING s g - + 10 bob", "[[$3 1-0, $3 bob, :500, :2], [$3 2-0, $3 bob, :500, :1]]"),
            ("XCLAIM s g bob 0 2-0 RETRYCOUNT 9 TIME 1700000000900", &format!("[{E2}]")),
            ("XPENDING s g - + 10 bob", "[[$3 1-0, $3 bob, :500, :2], [$3 2-0, $3 bob, :100, :9]]"),
            ("XCLAIM s g carol 0 4-0 FORCE JUSTID LASTID 4-0", "[$3 4-0]"),
            ("XPENDING s g 4 + 10", "[[$3 4-0, $5 carol, :0, :1]]"),
            ("XREADGROUP GROUP g bob STREAMS s >", "_"),
            ("XDEL s 2-0", ":1"),
            ("XCLAIM s g carol 0 2-0", "[]"),
            (
                "XPENDING s g",
                "[:3, $3 1-0, $3 4-0, [[$5 alice, $1 1], [$3 bob, $1 1], [$5 carol, $1 1]]]",
            ),
        ]);
    }

    #[test]
    fn entries_are_claimed_by_the_time_they_have_been_pending() {
        check_delivered(&[
            ("XAUTOCLAIM s g bob 2000 0", "[$3 0-0, [], []]"),
            ("XAUTOCLAIM s g bob 1000 0 COUNT 1", &format!("[$3 2-0, [{E1}], []]")),
            ("XAUTOCLAIM s g bob 0 2-0 COUNT 1 JUSTID", "[$3 3-0, [$3 2-0], []]"),
            (
                "XPENDING s g - + 10",
                "[[$3 1-0, $3 bob, :0, :2], [$3 2-0, $3 bob, :0, :1], [$3 3-0, $5 alice, :1000, :1]]",
            ),
            ("XDEL s 2-0", ":1"),
            ("XAUTOCLAIM s g carol 0 - JUSTID", "[$3 0-0, [$3 1-0, $3 3-0], [$3 2-0]]"),
            ("XAUTOCLAIM s g carol 0 (1-0 JUSTID", "[$3 0-0, [$3 3-0], []]"),
            ("XPENDING s g", "[:2, $3 1-0, $3 3-0, [[$5 carol, $1 2]]]"),
        ]);
    }

    #[test]
    fn arguments_refused() {
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        let syntax = "-ERR syntax error";
        check(&[
            ("XADD s 1-0 a 1", "$3 1-0"),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XCLAIM s none c x 1-0", "-NOGROUP No such key 's' or consumer group 'none'"),
            ("XCLAIM s g c x 1-0", "-ERR Invalid min-idle-time argument for XCLAIM"),
            ("XCLAIM s g c 0 1-0 IDLE x", "-ERR Invalid IDLE option argument for XCLAIM"),
            ("XCLAIM s g c 0 1-0 TIME x", "-ERR Invalid TIME option argument for XCLAIM"),
            (
                "XCLAIM s g c 0 1-0 RETRYCOUNT x",
                "-ERR Invalid RETRYCOUNT option argument for XCLAIM",
            ),
            ("XCLAIM s g c 0 1-0 LASTID x", invalid),
            ("XCLAIM s g c 0 1-0 IDLE", "-ERR Unrecognized XCLAIM option 'IDLE'"),
            ("XCLAIM s g c 0 1-0 FORCE 2-0", "-ERR Unrecognized XCLAIM option '2-0'"),
            ("XAUTOCLAIM s g c x 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM"),
            ("XAUTOCLAIM s g c 0 x", invalid),
            ("XAUTOCLAIM s g c 0 0 COUNT 0", "-ERR COUNT must be > 0"),
            ("XAUTOCLAIM s g c 0 0 COUNT", syntax),
            ("XAUTOCLAIM s g c 0 0 FOO", syntax),
            ("XAUTOCLAIM none g c 0 0", "-NOGROUP No such key 'none' or consumer group 'g'"),
        ]);
    }

    #[test]
    fn many_entries_change_hands() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for number in 0..600 {
                server.run(&format!("XADD s {number}-1 n {number}"));
            }
            server.run("XGROUP CREATE s g 0");
            server.run("XREADGROUP GROUP g a STREAMS s >");
            let mut cursor = "0-0".to_owned();
            for _ in 0..6 {
                let reply = server.run(&format!("XAUTOCLAIM s g b 0 {cursor} COUNT 100 JUSTID"));
                let next = reply.split([' ', ',']).nth(1).expect("a cursor");
                cursor = next.to_owned();
            }
            assert_eq!(cursor, "0-0");
            assert_eq!(server.run("XPENDING s g"), "[:600, $3 0-1, $5 599-1, [[$1 b, $3 600]]]");
            server.run("XTRIM s MAXLEN 100");
            let reply = server.run("XAUTOCLAIM s g c 0 0 COUNT 550 JUSTID");
            assert!(reply.starts_with("[$5 550-1, ["), "{reply}");
            assert_eq!(
                server.run("XPENDING s g"),
                "[:100, $5 500-1, $5 599-1, [[$1 b, $2 50], [$1 c, $2 50]]]"
            );
            server.check_counts();
        }
    }
}
