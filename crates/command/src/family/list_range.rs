//! Ranges of lists: LRANGE and LTRIM.

use std::ops::Range;

use resp::{Args, Reply};
use value::parse_i64;

use super::list::write_elements;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "LRANGE",
        arity: 4,
        flags: Flags::READONLY.and(Flags::REPLIES_VALUES).and(Flags::IN_WINDOWS),
        keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Returns the elements of a list between two positions, both included.",
            complexity: "O(N) for N elements that are returned",
            syntax: "key start stop",
        },
        run: lrange,
    },
    Command {
        name: "LTRIM",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Removes the elements of a list that are not between two positions.",
            complexity: "O(N) for N elements",
            syntax: "key start stop",
        },
        run: ltrim,
    },
];

fn lrange(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let ends = parse_ends(args)?;
    let (key, reply_bytes_max, begins) = (cx.key(0), cx.reply_bytes_max, cx.begins_reply());
    let Some(mut list) = cx.read_list(&key)? else {
        reply.array(0);
        return Ok(());
    };
    let range = range_between(ends, list.len());
    if begins {
        reply.array((range.end - range.start) as usize);
    }
    write_elements(&mut list, range, false, (&key, reply_bytes_max), reply)
}

fn ltrim(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let ends = parse_ends(args)?;
    let key = cx.key(0);
    if let Some(list) = cx.read_list(&key)? {
        let len = list.len();
        let kept = range_between(ends, len);
        if kept.is_empty() {
            cx.db(&key).remove(&key);
        } else if kept != (0..len) {
            let (front, back) = (0..kept.start, kept.end..len);
            for removed in [&back, &front].into_iter().filter(|removed| !removed.is_empty()) {
                cx.prepare_removal(&key, removed)?;
            }
            cx.remove_elements(&key, back)?;
            cx.remove_elements(&key, front)?;
        } else {
            // As in Redis, who watches the key hears of it.
            cx.db(&key).tell_watchers(&key);
        }
        cx.report(&key, Event::LTRIM, len - (kept.end - kept.start));
        cx.report_if_gone(&key);
    }
    reply.ok();
    Ok(())
}

fn parse_ends(args: Args<'_>) -> Result<(i64, i64), CommandError> {
    let end = |index| parse_i64(&args[index]).ok_or(CommandError::NOT_INTEGER);
    Ok((end(2)?, end(3)?))
}

/// The positions between two ends in a list of `len`. Negative ends count from the tail. Unlike GETRANGE,
/// which moves it to the first position, an end in front of all others leaves nothing.
fn range_between((start, stop): (i64, i64), len: u64) -> Range<u64> {
    let len = len as i64;
    let from_head = |end: i64| if end < 0 { end + len } else { end };
    let (first, last) = (from_head(start).max(0), from_head(stop).min(len - 1));
    if first <= last { first as u64..last as u64 + 1 } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Harness, check};

    #[test]
    fn ends_may_lie_anywhere() {
        for ((start, stop), len, expected) in [
            ((0, -1), 5, 0..5),
            ((1, 1), 5, 1..2),
            ((-2, -1), 5, 3..5),
            ((-100, 100), 5, 0..5),
            ((4, 100), 5, 4..5),
            ((5, 100), 5, 0..0),
            ((3, 2), 5, 0..0),
            ((-1, -2), 5, 0..0),
            ((-100, -6), 5, 0..0),
            ((-100, -5), 5, 0..1),
            ((i64::MIN, i64::MAX), 5, 0..5),
            ((i64::MAX, i64::MIN), 5, 0..0),
        ] {
            assert_eq!(range_between((start, stop), len), expected, "{start} {stop} {len}");
        }
    }

    #[test]
    fn ranges_are_returned() {
        let not_integer = "-ERR value is not an integer or out of range";
        check(&[
            ("RPUSH l a b c d", ":4"),
            ("LRANGE l 0 -1", "[$1 a, $1 b, $1 c, $1 d]"),
            ("LRANGE l 1 2", "[$1 b, $1 c]"),
            ("LRANGE l -2 100", "[$1 c, $1 d]"),
            ("LRANGE l 2 1", "[]"),
            ("LRANGE l 4 9", "[]"),
            ("LRANGE l -9 -5", "[]"),
            ("LRANGE missing 0 -1", "[]"),
            ("LRANGE missing x 1", not_integer),
            ("LRANGE l 0 1.0", not_integer),
            ("SET s text", "+OK"),
            ("LRANGE s 0 x", not_integer),
            ("LRANGE s 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn what_is_outside_is_removed() {
        let not_integer = "-ERR value is not an integer or out of range";
        let push = "RPUSH l a b c d e";
        check(&[
            (push, ":5"),
            ("LTRIM l 0 -1", "+OK"),
            ("LTRIM l -100 100", "+OK"),
            ("LLEN l", ":5"),
            ("LTRIM l 1 -2", "+OK"),
            ("LRANGE l 0 -1", "[$1 b, $1 c, $1 d]"),
            ("LTRIM l 0 0", "+OK"),
            ("LRANGE l 0 -1", "[$1 b]"),
            ("LTRIM l 1 0", "+OK"),
            ("EXISTS l", ":0"),
            (push, ":5"),
            ("LTRIM l 5 9", "+OK"),
            ("EXISTS l", ":0"),
            ("LTRIM missing 0 1", "+OK"),
            ("LTRIM missing 0 x", not_integer),
            ("EXISTS missing", ":0"),
            ("SET s text", "+OK"),
            ("LTRIM s x 0", not_integer),
            ("LTRIM s 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ]);
    }

    #[test]
    fn removed_elements_are_counted_as_changes() {
        let mut server = Harness::new(true);
        server.run("RPUSH l a b c d e");
        for (line, changes) in
            [("LTRIM l 0 -1", 0), ("LTRIM l 1 3", 2), ("LTRIM l 9 9", 3), ("LTRIM l 0 1", 0)]
        {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }
}
