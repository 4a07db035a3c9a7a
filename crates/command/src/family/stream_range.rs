//! Ranges of a stream: XRANGE and XREVRANGE, and how entries are written.

use keyspace::Key;
use resp::{Args, Reply};
use value::StreamId;
use value::leaf::entries::Entry;

use super::stream::{INVALID_ID, parse_integer};
use crate::collection::{IdRange, Visit};
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES);
const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

const INVALID_START: CommandError = fixed("ERR invalid start ID for the interval");
const INVALID_END: CommandError = fixed("ERR invalid end ID for the interval");

/// Bytes of a reply that are neither fields nor values: of an entry, and of each of its pairs, at most.
const ENTRY_REPLY_BYTES: usize = 96;
const PAIR_REPLY_BYTES: usize = 48;
/// Bytes of an ID in a reply, at most, and of one whose entry has gone.
pub(super) const ID_REPLY_BYTES: usize = 48;
const GONE_REPLY_BYTES: usize = 64;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XRANGE",
        arity: -4,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Returns the entries of a stream whose IDs are in a range.",
            complexity: "O(log N + M) for N entries of which M are returned",
            syntax: "key start end [COUNT count]",
        },
        run: xrange,
    },
    Command {
        name: "XREVRANGE",
        arity: -4,
        flags: READ,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Returns the entries of a stream whose IDs are in a range, from the last on.",
            complexity: "O(log N + M) for N entries of which M are returned",
            syntax: "key end start [COUNT count]",
        },
        run: xrevrange,
    },
];

/// An ID as clients read it.
pub(super) fn write_id(id: StreamId, reply: &mut Reply) {
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms), seq.format(id.seq));
    let text = reply.reserve_bulk(ms.len() + 1 + seq.len());
    text[..ms.len()].copy_from_slice(ms.as_bytes());
    text[ms.len()] = b'-';
    text[ms.len() + 1..].copy_from_slice(seq.as_bytes());
}

/// Writes entries into a reply that has memory for so many bytes, and counts those that it has none for.
pub(super) struct EntryWriter<'r> {
    pub(super) reply: &'r mut Reply,
    bytes_max: usize,
    pub(super) written: usize,
    bytes_lacking: u64,
}

impl EntryWriter<'_> {
    pub(super) fn new(reply: &mut Reply, bytes_max: usize) -> EntryWriter<'_> {
        EntryWriter { reply, bytes_max, written: 0, bytes_lacking: 0 }
    }

    /// Writes an entry: its ID, and its fields and values.
    pub(super) fn write(&mut self, entry: &Entry<'_>) {
        let content: usize = entry.iter().map(|(field, value)| field.len() + value.len()).sum();
        self.written += 1;
        if !self.has_room(content + ENTRY_REPLY_BYTES + PAIR_REPLY_BYTES * entry.pairs) {
            return;
        }
        self.reply.array(2);
        write_id(entry.id, self.reply);
        self.reply.array(2 * entry.pairs);
        for (field, value) in entry.iter() {
            self.reply.bulk(field);
            self.reply.bulk(value);
        }
    }

    /// Writes an ID alone.
    pub(super) fn write_id(&mut self, id: StreamId) {
        self.written += 1;
        if self.has_room(ID_REPLY_BYTES) {
            write_id(id, self.reply);
        }
    }

    /// Writes the ID of an entry that has gone, and nothing for what it was.
    pub(super) fn write_gone(&mut self, id: StreamId) {
        self.written += 1;
        if self.has_room(GONE_REPLY_BYTES) {
            self.reply.array(2);
            write_id(id, self.reply);
            self.reply.null_array();
        }
    }

    /// Whether there is memory for so many bytes more. If not, they count as lacking.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.reply.full_len() + bytes <= self.bytes_max;
        if !has_room {
            self.bytes_lacking += bytes as u64;
        }
        has_room
    }

    /// Whether all was written so far.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes_lacking == 0
    }

    /// Bytes of all that there is from `start` on.
    pub(super) fn bytes(&self, start: usize) -> u64 {
        (self.reply.len() - start) as u64 + self.bytes_lacking
    }

    /// Whether all that there is from `start` on was written. Errors: [`CommandError::ReplyTooLong`].
    pub(super) fn check(&self, start: usize, key: &Key<'_>) -> CommandResult {
        let error = || CommandError::too_long_of(key, self.bytes(start));
        if self.bytes_lacking > 0 { Err(error()) } else { Ok(()) }
    }

    /// Ends an array of what was written from `start` on. Errors: as [`EntryWriter::check`].
    pub(super) fn end_array(&mut self, start: usize, key: &Key<'_>) -> CommandResult {
        self.check(start, key)?;
        let written = std::mem::take(&mut self.written);
        self.reply.array_from(start, written);
        Ok(())
    }
}

/// The first or last ID of a range: `(` in front of it leaves it out.
///
/// Errors: it is no ID, or there is none beside it.
pub(super) fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let id = StreamId::parse_strict(id, 0).ok_or(INVALID_ID)?;
            id.next().ok_or(INVALID_START)
        }
        _ => StreamId::parse(text, 0).ok_or(INVALID_ID),
    }
}

/// The same for the last ID.
pub(super) fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let id = StreamId::parse_strict(id, u64::MAX).ok_or(INVALID_ID)?;
            id.previous().ok_or(INVALID_END)
        }
        _ => StreamId::parse(text, u64::MAX).ok_or(INVALID_ID),
    }
}

fn xrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    range(cx, args, (2, 3), reply)
}

fn xrevrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    range(cx, args, (3, 2), reply)
}

fn range(
    cx: &mut Cx<'_, '_>,
    args: Args<'_>,
    (start, end): (usize, usize),
    reply: &mut Reply,
) -> CommandResult {
    let range = IdRange { first: parse_start(&args[start])?, last: parse_end(&args[end])? };
    let mut count = None;
    let mut rest = args.from(4).iter();
    while let Some(option) = rest.next() {
        let argument = rest.next().filter(|_| option.eq_ignore_ascii_case(b"COUNT"));
        count = Some(parse_integer(argument.ok_or(CommandError::SYNTAX)?)?.max(0) as u64);
    }
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let Some(mut stream) = cx.read_stream(&key)? else {
        reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        reply.null_array();
        return Ok(());
    }
    let visit = Visit { range, reverse: start > end, count_max: count.unwrap_or(u64::MAX) };
    let begin = reply.len();
    let mut writer = EntryWriter::new(reply, reply_bytes_max);
    stream.visit(visit, |entry| writer.write(entry))?;
    writer.end_array(begin, &key)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn ranges_of_ids() {
        let one = "[$3 1-1, [$1 a, $1 1]]";
        let two = "[$3 1-2, [$1 b, $1 2, $1 c, $1 3]]";
        let three = "[$3 5-0, [$1 a, $0]]";
        check(&[
            ("XADD s 1-1 a 1", "$3 1-1"),
            ("XADD s 1-2 b 2 c 3", "$3 1-2"),
            ("XADD s 5-0 a ''", "$3 5-0"),
            ("XRANGE s - +", &format!("[{one}, {two}, {three}]")),
            ("XREVRANGE s + -", &format!("[{three}, {two}, {one}]")),
            ("XRANGE s 1 1", &format!("[{one}, {two}]")),
            ("XRANGE s (1-1 (5", &format!("[{two}, {three}]")),
            ("XRANGE s (1-1 (5-0", &format!("[{two}]")),
            ("XRANGE s 1-2 1-2", &format!("[{two}]")),
            ("XRANGE s 2 4", "[]"),
            ("XRANGE s + -", "[]"),
            ("XRANGE s - + COUNT 2", &format!("[{one}, {two}]")),
            ("XREVRANGE s + - COUNT 1 count 2", &format!("[{three}, {two}]")),
            ("XRANGE s - + COUNT 0", "_"),
            ("XRANGE s - + COUNT -5", "_"),
            ("XRANGE none - + COUNT 0", "[]"),
            ("XRANGE none - +", "[]"),
        ]);
    }

    #[test]
    fn arguments_refused() {
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        let max = "(18446744073709551615-18446744073709551615";
        check(&[
            ("XRANGE s x +", invalid),
            ("XRANGE s - x", invalid),
            ("XRANGE s (- +", invalid),
            ("XRANGE s ( +", invalid),
            ("XRANGE s - (+", invalid),
            (&format!("XRANGE s {max} +"), "-ERR invalid start ID for the interval"),
            ("XRANGE s - (0-0", "-ERR invalid end ID for the interval"),
            ("XREVRANGE s (0-0 -", "-ERR invalid end ID for the interval"),
            ("XRANGE s - + COUNT", "-ERR syntax error"),
            ("XRANGE s - + LIMIT 1", "-ERR syntax error"),
            ("XRANGE s - + COUNT x", "-ERR value is not an integer or out of range"),
            ("SET s 1", "+OK"),
            ("XRANGE s - +", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn ranges_of_large_streams() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for number in 0..500 {
                server.run(&format!("XADD s {number}-1 n {number}"));
            }
            for (first, last) in [(0, 499), (99, 101), (100, 100), (250, 420), (498, 600)] {
                let last = last.min(499);
                let ids = |reply: String| -> Vec<usize> {
                    let ids = reply.split("[[").last().unwrap_or_default().split("], [$");
                    ids.filter_map(|entry| {
                        entry
                            .split(' ')
                            .find(|word| word.contains("-1,"))?
                            .split('-')
                            .next()?
                            .parse()
                            .ok()
                    })
                    .collect()
                };
                let found = ids(server.run(&format!("XRANGE s {first} {last}")));
                assert!(found.into_iter().eq(first..=last));
                let found = ids(server.run(&format!("XREVRANGE s {last} {first} COUNT 150")));
                assert!(found.into_iter().eq((first..=last).rev().take(150)));
            }
        }
    }
}
