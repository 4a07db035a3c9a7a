//! Streams: adding entries, removing them, and the last ID.

use resp::{Args, Reply};
use value::{NewId, StreamId, parse_i64};

use super::stream_range::write_id;
use crate::collection::{NewEntry, Trim, TrimTo};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::logged::Arg;
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

const COUNTED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO, Needs::Value)];
const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];
const DELETED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)];

/// Entries that `~` trims at most when nobody says, in leaves.
const LEAVES_TRIMMED_MAX: u64 = 100;
const TRIMMED_DEFAULT: u64 = 10_000;
const TRIMMED_MAX: u64 = 1_000_000;
/// Most bytes of an entry's fields and values.
const ENTRY_BYTES_MAX: usize = 1 << 30;

pub(super) const INVALID_ID: CommandError =
    fixed("ERR Invalid stream ID specified as stream command argument");
const EXHAUSTED: CommandError =
    fixed("ERR The stream has exhausted the last possible ID, unable to add more items");
const NOT_GREATER: CommandError =
    fixed("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const NOT_ABOVE_ZERO: CommandError = fixed("ERR The ID specified in XADD must be greater than 0-0");
const TOO_LARGE: CommandError = fixed("ERR Elements are too large to be stored");
const BOTH_STRATEGIES: CommandError =
    fixed("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
const NEGATIVE_MAXLEN: CommandError = fixed("ERR The MAXLEN argument must be >= 0.");
const NEGATIVE_LIMIT: CommandError = fixed("ERR The LIMIT argument must be >= 0.");
const LIMIT_ALONE: CommandError =
    fixed("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
const LIMIT_EXACT: CommandError =
    fixed("ERR syntax error, LIMIT cannot be used without the special ~ option");
const NO_STRATEGY: CommandError =
    fixed("ERR syntax error, XTRIM must be called with a trimming strategy");
const BELOW_TOP: CommandError =
    fixed("ERR The ID specified in XSETID is smaller than the target stream top item");
const FEWER_ADDED: CommandError =
    fixed("ERR The entries_added specified in XSETID is smaller than the target stream length");
const NEGATIVE_ADDED: CommandError = fixed("ERR entries_added must be positive");
const BELOW_DELETED: CommandError =
    fixed("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "XADD",
        arity: -5,
        flags: WRITE.and(Flags::DENYOOM),
        keys: CHANGED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Adds an entry to a stream, which is made if there is none, and trims it if asked to.",
            complexity: "O(log N) for N entries, and O(M) for M leaves that are trimmed",
            syntax: "key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
        },
        run: xadd,
    },
    Command {
        name: "XLEN",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: COUNTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Counts the entries of a stream.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: xlen,
    },
    Command {
        name: "XDEL",
        arity: -3,
        flags: WRITE,
        keys: DELETED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Removes entries of a stream by their IDs and answers how many there were.",
            complexity: "O(M log N) for M IDs and N entries",
            syntax: "key id [id ...]",
        },
        run: xdel,
    },
    Command {
        name: "XTRIM",
        arity: -4,
        flags: Flags::WRITE,
        keys: DELETED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Removes the oldest entries of a stream and answers how many.",
            complexity: "O(M) for M leaves that are removed",
            syntax: "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count]",
        },
        run: xtrim,
    },
    Command {
        name: "XSETID",
        arity: -3,
        flags: WRITE.and(Flags::DENYOOM),
        keys: CHANGED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Stream,
            since: "5.0.0",
            summary: "Sets the last ID that a stream has given.",
            complexity: "O(1)",
            syntax: "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        },
        run: xsetid,
    },
];

/// An ID that is no `-` or `+`.
pub(super) fn parse_id(text: &[u8]) -> Result<StreamId, CommandError> {
    StreamId::parse_strict(text, 0).ok_or(INVALID_ID)
}

pub(super) fn parse_integer(text: &[u8]) -> Result<i64, CommandError> {
    parse_i64(text).ok_or(CommandError::NOT_INTEGER)
}

/// The options of XADD and XTRIM.
#[derive(Default)]
struct Options {
    to: Option<TrimTo>,
    by_leaf: bool,
    limit: Option<u64>,
    no_stream: bool,
    /// Of XADD. None: the next one.
    id: Option<NewId>,
}

impl Options {
    /// Reads them from the second argument on. Returns what the first of the others is.
    fn parse(args: Args<'_>, is_add: bool) -> Result<(Options, usize), CommandError> {
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() {
            let option = &args[at];
            let follows = at + 1 < args.len();
            if is_add && option == b"*" {
                return Ok((options, at + 1));
            } else if option.eq_ignore_ascii_case(b"MAXLEN") && follows {
                at = options.parse_strategy(args, at + 1, |text| match parse_integer(text)? {
                    ..0 => Err(NEGATIVE_MAXLEN),
                    length => Ok(TrimTo::Length(length as u64)),
                })?;
            } else if option.eq_ignore_ascii_case(b"MINID") && follows {
                at = options.parse_strategy(args, at + 1, |text| parse_id(text).map(TrimTo::Id))?;
            } else if option.eq_ignore_ascii_case(b"LIMIT") && follows {
                at += 1;
                let limit = parse_integer(&args[at])?;
                options.limit = Some(u64::try_from(limit).map_err(|_| NEGATIVE_LIMIT)?);
            } else if is_add && option.eq_ignore_ascii_case(b"NOMKSTREAM") {
                options.no_stream = true;
            } else if is_add && !matches!(option, b"-" | b"+") {
                options.id = Some(NewId::parse(option, 0).ok_or(INVALID_ID)?);
                return Ok((options, at + 1));
            } else {
                return Err(if is_add { INVALID_ID } else { CommandError::SYNTAX });
            }
            at += 1;
        }
        Ok((options, at + 1))
    }

    /// Reads what is to be kept. Returns which argument that was.
    fn parse_strategy(
        &mut self,
        args: Args<'_>,
        at: usize,
        parse: impl FnOnce(&[u8]) -> Result<TrimTo, CommandError>,
    ) -> Result<usize, CommandError> {
        if self.to.is_some() {
            return Err(BOTH_STRATEGIES);
        }
        let has_sign = at + 1 < args.len() && matches!(&args[at], b"~" | b"=");
        self.by_leaf = has_sign && &args[at] == b"~";
        let at = at + usize::from(has_sign);
        self.to = Some(parse(&args[at])?);
        Ok(at)
    }

    /// How the stream is to be trimmed.
    fn trim(&self, cx: &Cx<'_, '_>) -> Result<Option<Trim>, CommandError> {
        let Some(to) = self.to else {
            return match self.limit {
                Some(1..) => Err(LIMIT_ALONE),
                Some(0) => Err(LIMIT_EXACT),
                None => Ok(None),
            };
        };
        let limit = match (self.by_leaf, self.limit) {
            (false, Some(_)) => return Err(LIMIT_EXACT),
            (false, None) => 0,
            (true, Some(limit)) => limit,
            (true, None) => match cx.encodings.stream_leaf().entries {
                0 => TRIMMED_DEFAULT,
                entries => entries.saturating_mul(LEAVES_TRIMMED_MAX).min(TRIMMED_MAX),
            },
        };
        Ok(Some(Trim { to, by_leaf: self.by_leaf, limit }))
    }
}

fn xadd(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (options, fields_at) = Options::parse(args, true)?;
    let trim = options.trim(cx)?;
    let fields = args.from(fields_at);
    if fields.len() < 2 || !fields.len().is_multiple_of(2) {
        return Err(fixed("ERR wrong number of arguments for 'xadd' command"));
    }
    if options.id == Some(NewId::Whole(StreamId::MIN)) {
        return Err(NOT_ABOVE_ZERO);
    }
    let bytes: usize = fields.iter().map(<[u8]>::len).sum();
    let (key, now_ms) = (cx.key(0), cx.now_ms);
    let entry = NewEntry {
        pairs: (0..fields.len() / 2).map(|at| (&fields[2 * at], &fields[2 * at + 1])),
        bytes,
    };
    cx.check_memory(bytes)?;
    let added = cx.add_entry(&key, entry, !options.no_stream, trim.as_ref(), |last| {
        let id = next_id(options.id, last, now_ms)?;
        if bytes > ENTRY_BYTES_MAX { Err(TOO_LARGE) } else { Ok(id) }
    })?;
    let Some(id) = added else {
        reply.null();
        return Ok(());
    };
    cx.report(&key, Event::XADD, 1);
    if let Some(trim) = trim {
        if cx.trim_stream(&key, &trim)? > 0 {
            cx.report(&key, Event::XTRIM, 0);
        }
        if trim.by_leaf && cx.is_logged() {
            let [name, to, exactly] = [&b"XADD"[..], b"MAXLEN", b"="].map(Arg::Bytes);
            let length = Arg::Number(cx.stream_length(&key)? as i64);
            // Its ID stands in front of its fields.
            let entry = Arg::SentFrom(fields_at - 1);
            cx.log_as(&[name, Arg::Sent(1), to, exactly, length, entry]);
        }
    }
    write_id(id, reply);
    Ok(())
}

/// The ID of a new entry.
fn next_id(asked: Option<NewId>, last: StreamId, now_ms: u64) -> Result<StreamId, CommandError> {
    let following = last.next().ok_or(EXHAUSTED)?;
    let id = match asked {
        Some(NewId::Whole(id)) => id,
        Some(NewId::Time(ms)) if ms == last.ms => {
            StreamId::new(ms, last.seq.checked_add(1).ok_or(NOT_GREATER)?)
        }
        Some(NewId::Time(ms)) => StreamId::new(ms, 0),
        None if now_ms > last.ms => StreamId::new(now_ms, 0),
        None => following,
    };
    if id > last { Ok(id) } else { Err(NOT_GREATER) }
}

fn xlen(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let length = cx.read_stream(&key)?.map_or(0, |stream| stream.head().length);
    reply.integer(length as i64);
    Ok(())
}

fn xdel(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    if cx.read_stream(&key)?.is_none() {
        reply.integer(0);
        return Ok(());
    }
    let ids = args.from(2).iter().map(parse_id).collect::<Result<Vec<StreamId>, _>>()?;
    let removed = cx.remove_entries(&key, &ids)?;
    if removed > 0 {
        cx.report(&key, Event::XDEL, removed);
    }
    reply.integer(removed as i64);
    Ok(())
}

fn xtrim(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (options, _) = Options::parse(args, false)?;
    if options.to.is_none() && options.limit.is_none_or(|limit| limit == 0) {
        return Err(NO_STRATEGY);
    }
    let trim = options.trim(cx)?.ok_or(NO_STRATEGY)?;
    let key = cx.key(0);
    let removed = cx.trim_stream(&key, &trim)?;
    if removed > 0 {
        cx.report(&key, Event::XTRIM, removed);
        if trim.by_leaf && cx.is_logged() {
            let [name, to, exactly] = [&b"XTRIM"[..], b"MAXLEN", b"="].map(Arg::Bytes);
            let length = Arg::Number(cx.stream_length(&key)? as i64);
            cx.log_as(&[name, Arg::Sent(1), to, exactly, length]);
        }
    }
    reply.integer(removed as i64);
    Ok(())
}

fn xsetid(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let id = parse_id(&args[2])?;
    let (mut added, mut max_deleted) = (None, StreamId::MIN);
    let mut rest = args.from(3).iter();
    while let Some(option) = rest.next() {
        let Some(argument) = rest.next() else { return Err(CommandError::SYNTAX) };
        if option.eq_ignore_ascii_case(b"ENTRIESADDED") {
            added = Some(u64::try_from(parse_integer(argument)?).map_err(|_| NEGATIVE_ADDED)?);
        } else if option.eq_ignore_ascii_case(b"MAXDELETEDID") {
            max_deleted = parse_id(argument)?;
            if id < max_deleted {
                return Err(BELOW_DELETED);
            }
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    let key = cx.key(0);
    let Some(mut stream) = cx.read_stream(&key)? else { return Err(CommandError::NO_SUCH_KEY) };
    let mut head = stream.head();
    if head.length > 0 && id < head.last && id < stream.last_id()? {
        return Err(BELOW_TOP);
    }
    if head.length > 0 && added.is_some_and(|added| added < head.length) {
        return Err(FEWER_ADDED);
    }
    head.last = id;
    head.added = added.unwrap_or(head.added);
    if max_deleted != StreamId::MIN {
        head.max_deleted = max_deleted;
    }
    cx.make_resident(&key)?;
    cx.set_stream_head(&key, head);
    cx.report(&key, Event::XSETID, 1);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check, check_events};

    #[test]
    fn entries_are_added() {
        let small =
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item";
        let full = "-ERR The stream has exhausted the last possible ID, unable to add more items";
        check(&[
            ("XADD s * a 1", "$15 1700000000000-0"),
            ("XADD s * a 1 b 2", "$15 1700000000000-1"),
            ("XADD s 1700000000000-* a 1", "$15 1700000000000-2"),
            ("XADD s 1700000000005 a 1", "$15 1700000000005-0"),
            ("XADD s * a 1", "$15 1700000000005-1"),
            ("XADD s 1-1 a 1", small),
            ("XADD s 1-* a 1", small),
            ("XADD s 0-0 a 1", "-ERR The ID specified in XADD must be greater than 0-0"),
            ("XADD new 0-* a 1", "$3 0-1"),
            ("XADD none NOMKSTREAM * a 1", "_"),
            ("EXISTS none", ":0"),
            ("XLEN s", ":5"),
            ("XLEN none", ":0"),
            ("TYPE s", "+stream"),
            ("OBJECT ENCODING s", "$6 stream"),
            (
                "XADD m 18446744073709551615-18446744073709551615 a 1",
                "$41 18446744073709551615-18446744073709551615",
            ),
            ("XADD m * a 1", full),
            ("XADD m 1-1 a 1", full),
            ("XADD e 5-18446744073709551615 a 1", "$22 5-18446744073709551615"),
            ("XADD e 5-* a 1", small),
            ("SET string 1", "+OK"),
            (
                "XADD string * a 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("XLEN string", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn arguments_of_xadd_and_xtrim_refused() {
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        let number = "-ERR value is not an integer or out of range";
        let exact = "-ERR syntax error, LIMIT cannot be used without the special ~ option";
        let alone =
            "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
        let both =
            "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
        let arity = "-ERR wrong number of arguments for 'xadd' command";
        check(&[
            ("XADD s * a 1 b", arity),
            ("XADD s MAXLEN 5 NOMKSTREAM", arity),
            ("XADD s MAXLEN 5 NOMKSTREAM *", arity),
            ("XADD s x a 1", invalid),
            ("XADD s - a 1", invalid),
            ("XADD s MAXLEN x * a 1", number),
            ("XADD s MAXLEN ~ x * a 1", number),
            ("XADD s MAXLEN -1 * a 1", "-ERR The MAXLEN argument must be >= 0."),
            ("XADD s MINID x * a 1", invalid),
            ("XADD s MAXLEN ~ 1 LIMIT -1 * a 1", "-ERR The LIMIT argument must be >= 0."),
            ("XADD s MAXLEN 1 LIMIT 1 * a 1", exact),
            ("XADD s LIMIT 1 * a 1", alone),
            ("XADD s LIMIT 0 * a 1", exact),
            ("XADD s MAXLEN 1 MINID 1 * a 1", both),
            ("EXISTS s", ":0"),
            ("XTRIM s MAXLEN 1 FOO", "-ERR syntax error"),
            ("XTRIM s LIMIT 1", alone),
            ("XTRIM s LIMIT 0", "-ERR syntax error, XTRIM must be called with a trimming strategy"),
            ("XTRIM s MAXLEN = 5", ":0"),
            ("SET string 1", "+OK"),
            (
                "XTRIM string MAXLEN 5",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
    }

    fn fill(server: &mut Harness, count: usize) {
        for number in 1..=count {
            server.run(&format!("XADD s {number}-0 item {number}"));
        }
    }

    #[test]
    fn streams_are_trimmed_by_leaf_and_exactly() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            fill(&mut server, 1_000);
            for (line, expected) in [
                ("XTRIM s MAXLEN ~ 950", ":0"),
                ("XTRIM s MAXLEN ~ 555", ":400"),
                ("XLEN s", ":600"),
                ("XTRIM s MAXLEN ~ 100 LIMIT 199", ":100"),
                ("XTRIM s MINID ~ 620-0", ":100"),
                ("XTRIM s MINID 650-0", ":49"),
                ("XRANGE s - + COUNT 1", "[[$5 650-0, [$4 item, $3 650]]]"),
                ("XTRIM s MAXLEN = 101", ":250"),
                ("XRANGE s - + COUNT 1", "[[$5 900-0, [$4 item, $3 900]]]"),
                ("XADD s MAXLEN 2 2000-0 item x", "$6 2000-0"),
                ("XRANGE s - +", "[[$6 1000-0, [$4 item, $4 1000]], [$6 2000-0, [$4 item, $1 x]]]"),
                ("XADD s MINID 3000-0 2500-0 item y", "$6 2500-0"),
                ("XRANGE s - +", "[]"),
                ("XLEN s", ":0"),
                ("EXISTS s", ":1"),
                ("XADD s MAXLEN 0 3000-0 item z", "$6 3000-0"),
                ("XLEN s", ":0"),
                ("XADD s 3001-0 item z", "$6 3001-0"),
                ("XRANGE s - +", "[[$6 3001-0, [$4 item, $1 z]]]"),
                ("DEL s", ":1"),
            ] {
                assert_eq!(server.run(line), expected, "{line} (on flash: {demote})");
            }
            assert_eq!(server.nodes(), 0);
            server.check_counts();
        }
    }

    #[test]
    fn entries_are_removed_by_id() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            fill(&mut server, 350);
            for number in (1..=350).filter(|number| number % 3 != 0) {
                assert_eq!(server.run(&format!("XDEL s {number}-0 9999-0")), ":1");
                assert_eq!(server.run(&format!("XDEL s {number}-0")), ":0");
            }
            assert_eq!(server.run("XLEN s"), ":116");
            assert_eq!(
                server.run("XREVRANGE s + - COUNT 2"),
                "[[$5 348-0, [$4 item, $3 348]], [$5 345-0, [$4 item, $3 345]]]"
            );
            for number in (3..=350).step_by(3) {
                assert_eq!(server.run(&format!("XDEL s {number}-0 {number}-0")), ":1");
            }
            assert_eq!(server.run("XLEN s"), ":0");
            assert_eq!(
                server.run("XADD s 350-0 a 1"),
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item"
            );
            assert_eq!(server.run("XADD s 351-0 a 1"), "$5 351-0");
            assert_eq!(
                server.run("XDEL s x"),
                "-ERR Invalid stream ID specified as stream command argument"
            );
            assert_eq!(server.run("XDEL none x"), ":0");
        }
    }

    #[test]
    fn the_last_id_is_set() {
        check(&[
            ("XADD s 5-5 a 1", "$3 5-5"),
            (
                "XSETID s 5-4",
                "-ERR The ID specified in XSETID is smaller than the target stream top item",
            ),
            (
                "XSETID s 7-7 ENTRIESADDED 0",
                "-ERR The entries_added specified in XSETID is smaller than the target stream length",
            ),
            ("XSETID s 7-7 ENTRIESADDED -1", "-ERR entries_added must be positive"),
            (
                "XSETID s 7-7 MAXDELETEDID 8-0",
                "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
            ),
            ("XSETID s 7-7 MAXDELETEDID", "-ERR syntax error"),
            ("XSETID s 7-7 FOO 1", "-ERR syntax error"),
            ("XSETID s x", "-ERR Invalid stream ID specified as stream command argument"),
            ("XSETID none 7-7", "-ERR no such key"),
            ("XSETID s 7-7 ENTRIESADDED 9 MAXDELETEDID 3-3", "+OK"),
            (
                "XADD s 7-7 a 1",
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ),
            ("XSETID s 6-0", "+OK"),
            ("XADD s 6-1 a 1", "$3 6-1"),
        ]);
    }

    #[test]
    fn the_last_id_is_taken_back_behind_removed_entries() {
        check(&[
            ("XADD s 5-5 a 1", "$3 5-5"),
            ("XADD s 7-7 a 1", "$3 7-7"),
            ("XADD s 8-8 a 1", "$3 8-8"),
            ("XDEL s 7-7 8-8", ":2"),
            ("XSETID s 6-0", "+OK"),
            ("XADD s 6-1 a 2", "$3 6-1"),
            ("XADD s 7-7 a 3", "$3 7-7"),
            (
                "XRANGE s - +",
                "[[$3 5-5, [$1 a, $1 1]], [$3 6-1, [$1 a, $1 2]], [$3 7-7, [$1 a, $1 3]]]",
            ),
        ]);
        // The last leaf has room in the first case, and has had all entries that it may have in the second.
        for (count, demote) in [(250, false), (250, true), (300, false), (300, true)] {
            let mut server = Harness::new(demote);
            fill(&mut server, count);
            let last = format!("{}-7", count - 1);
            assert_eq!(server.run(&format!("XDEL s {count}-0")), ":1");
            assert_eq!(server.run(&format!("XSETID s {}-6", count - 1)), "+OK");
            assert_eq!(server.run(&format!("XADD s {last} item x")), format!("$5 {last}"));
            assert_eq!(
                server.run("XREVRANGE s + - COUNT 1"),
                format!("[[$5 {last}, [$4 item, $1 x]]]")
            );
            let leaves = server.run("XINFO STREAM s");
            let expected = if count == 250 { 3 } else { 4 };
            assert!(leaves.contains(&format!("$15 radix-tree-keys: :{expected},")), "{leaves}");
            assert_eq!(server.run("XTRIM s MAXLEN 1"), format!(":{}", count - 1));
            assert_eq!(server.run("XRANGE s - +"), format!("[[$5 {last}, [$4 item, $1 x]]]"));
            server.check_counts();
        }
    }

    #[test]
    fn large_streams_are_copied_moved_and_renamed() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            fill(&mut server, 300);
            server.run("XGROUP CREATE s g 0");
            server.run("XREADGROUP GROUP g c COUNT 150 STREAMS s >");
            let full = server.run("XINFO STREAM s FULL COUNT 0");
            assert_eq!(server.run("COPY s t"), ":1");
            assert_eq!(server.run("XINFO STREAM t FULL COUNT 0"), full);
            assert_eq!(server.run("RENAME t u"), "+OK");
            assert_eq!(server.run("MOVE u 1"), ":1");
            assert_eq!(server.run("DEL s"), ":1");
            server.run("SELECT 1");
            assert_eq!(server.run("XINFO STREAM u FULL COUNT 0"), full);
            assert_eq!(server.run("XACK u g 1-0 150-0 151-0"), ":2");
            assert_eq!(server.run("XDEL u 300-0"), ":1");
            assert_eq!(server.run("DEL u"), ":1");
            assert_eq!(server.nodes(), 0);
            server.check_counts();
        }
    }

    #[test]
    fn changes_are_counted_and_reported() {
        check_events(&[
            ("XADD s 1-0 a 1", "new s, xadd s"),
            ("XADD s MAXLEN 1 2-0 a 1", "xadd s, xtrim s"),
            ("XTRIM s MAXLEN 1", ""),
            ("XTRIM s MAXLEN 0", "xtrim s"),
            ("XADD s 3-0 a 1", "xadd s"),
            ("XDEL s 3-0 3-0", "xdel s"),
            ("XDEL s 3-0", ""),
            ("XSETID s 9-9", "xsetid s"),
        ]);
    }
}
