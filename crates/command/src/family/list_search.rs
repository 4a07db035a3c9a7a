//! Lists by what their elements are: LINSERT, LREM and LPOS.

use std::ops::ControlFlow;

use resp::{Args, Reply};
use value::parse_i64;

use crate::collection::List;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// Bytes that the reply of LPOS takes for a position, at most.
const POSITION_BYTES: usize = 11;

const RANK_ZERO: CommandError = fixed(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
);
const COUNT_NEGATIVE: CommandError = fixed("ERR COUNT can't be negative");
const MAXLEN_NEGATIVE: CommandError = fixed("ERR MAXLEN can't be negative");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "LINSERT",
        arity: 5,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "2.2.0",
            summary: "Puts an element before or after the first that equals another one.",
            complexity: "O(N) for N elements",
            syntax: "key <BEFORE | AFTER> pivot element",
        },
        run: linsert,
    },
    Command {
        name: "LREM",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "1.0.0",
            summary: "Removes elements of a list that equal one: all, or some from the head or the tail.",
            complexity: "O(N) for N elements",
            syntax: "key count element",
        },
        run: lrem,
    },
    Command {
        name: "LPOS",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::List,
            since: "6.0.6",
            summary: "Finds the positions of elements of a list that equal one.",
            complexity: "O(N) for N elements that are looked at",
            syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        },
        run: lpos,
    },
];

fn linsert(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let is_behind = if args[2].eq_ignore_ascii_case(b"AFTER") {
        true
    } else if args[2].eq_ignore_ascii_case(b"BEFORE") {
        false
    } else {
        return Err(CommandError::SYNTAX);
    };
    let key = cx.key(0);
    let Some(mut list) = cx.read_list(&key)? else {
        reply.integer(0);
        return Ok(());
    };
    let (len, mut pivot) = (list.len(), None);
    list.search(0..len, false, |position, element| {
        if *element == args[3] {
            pivot = Some(position);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let Some(pivot) = pivot else {
        reply.integer(-1);
        return Ok(());
    };
    cx.insert_element(&key, pivot, is_behind, &args[4])?;
    cx.report(&key, Event::LINSERT, 1);
    reply.integer(len as i64 + 1);
    Ok(())
}

fn lrem(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let count = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let key = cx.key(0);
    let removed = cx.remove_equal(&key, count, &args[3])?;
    if removed > 0 {
        cx.report(&key, Event::LREM, removed);
        cx.report_if_gone(&key);
    }
    reply.integer(removed as i64);
    Ok(())
}

fn lpos(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let search = Search::parse(args.from(3))?;
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let positions_max = reply_bytes_max.saturating_sub(reply.full_len()) / POSITION_BYTES;
    let found = match cx.read_list(&key)? {
        Some(mut list) => search.run(&mut list, &args[2], positions_max)?,
        None => Vec::new(),
    };
    if found.len() > positions_max {
        return Err(CommandError::too_long_of(&key, 2 * reply_bytes_max as u64));
    }
    if search.is_for_many {
        reply.array(found.len());
        found.iter().for_each(|position| reply.integer(*position as i64));
        return Ok(());
    }
    match found.first() {
        Some(position) => reply.integer(*position as i64),
        None => reply.null(),
    }
    Ok(())
}

/// Which matches LPOS wants.
struct Search {
    /// Whether it begins at the tail.
    is_backward: bool,
    /// Matches that are passed over first.
    passed_over: u64,
    /// Matches that are wanted at most.
    count_max: u64,
    /// Whether it replies with an array.
    is_for_many: bool,
    /// Elements that are looked at, at most.
    len_max: u64,
}

impl Search {
    fn parse(options: Args<'_>) -> Result<Search, CommandError> {
        let (mut rank, mut count, mut len_max) = (1, None, 0);
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or(CommandError::SYNTAX)?;
            if option.eq_ignore_ascii_case(b"RANK") {
                rank = parse_i64(value).ok_or(CommandError::NOT_INTEGER)?;
                if rank == 0 {
                    return Err(RANK_ZERO);
                }
            } else if option.eq_ignore_ascii_case(b"COUNT") {
                count = Some(parse_limit(value).ok_or(COUNT_NEGATIVE)?);
            } else if option.eq_ignore_ascii_case(b"MAXLEN") {
                len_max = parse_limit(value).ok_or(MAXLEN_NEGATIVE)?;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        let mut passed_over = rank.unsigned_abs() - 1;
        if rank == i64::MIN {
            // Redis 7.0 negates it and overflows: no match is passed over, and no count reached.
            passed_over = 0;
            count = count.map(|_| 0);
        }
        Ok(Search {
            is_backward: rank < 0,
            passed_over,
            count_max: count.map_or(1, or_all),
            is_for_many: count.is_some(),
            len_max: or_all(len_max),
        })
    }

    /// Positions of matches, in the order in which they are met. One more than `positions_max` says that there
    /// is no room for more.
    ///
    /// Errors: [`CommandError::NotResident`].
    fn run(
        &self,
        list: &mut List<'_>,
        element: &[u8],
        positions_max: usize,
    ) -> Result<Vec<u64>, CommandError> {
        let len = list.len();
        let looked_at = match self.is_backward {
            true => len.saturating_sub(self.len_max)..len,
            false => 0..len.min(self.len_max),
        };
        let (mut found, mut passed_over) = (Vec::new(), 0);
        list.search(looked_at, self.is_backward, |position, other| {
            if other == element {
                if passed_over < self.passed_over {
                    passed_over += 1;
                } else {
                    found.push(position);
                }
            }
            match found.len() as u64 >= self.count_max || found.len() > positions_max {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(found)
    }
}

fn parse_limit(text: &[u8]) -> Option<u64> {
    u64::try_from(parse_i64(text)?).ok()
}

/// A limit that LPOS was given, of which 0 is none.
fn or_all(limit: u64) -> u64 {
    if limit == 0 { u64::MAX } else { limit }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";

    #[test]
    fn elements_are_put_beside_others() {
        check(&[
            ("RPUSH l a b a", ":3"),
            ("LINSERT l BEFORE a x", ":4"),
            ("LINSERT l after b y", ":5"),
            ("LINSERT l AFTER a ''", ":6"),
            ("LRANGE l 0 -1", "[$1 x, $1 a, $0, $1 b, $1 y, $1 a]"),
            ("LINSERT l BEFORE none z", ":-1"),
            ("LINSERT l BEFORE '' z", ":7"),
            ("LINDEX l 2", "$1 z"),
            ("LINSERT missing BEFORE a b", ":0"),
            ("EXISTS missing", ":0"),
            ("LINSERT l BESIDE a b", "-ERR syntax error"),
            ("LINSERT missing '' a b", "-ERR syntax error"),
            ("SET s text", "+OK"),
            ("LINSERT s BESIDE a b", "-ERR syntax error"),
            ("LINSERT s AFTER a b", WRONG),
        ]);
    }

    #[test]
    fn equal_elements_are_removed_from_either_end() {
        let push = "RPUSH l a b a c a";
        check(&[
            (push, ":5"),
            ("LREM l 2 a", ":2"),
            ("LRANGE l 0 -1", "[$1 b, $1 c, $1 a]"),
            ("DEL l", ":1"),
            (push, ":5"),
            ("LREM l -2 a", ":2"),
            ("LRANGE l 0 -1", "[$1 a, $1 b, $1 c]"),
            ("LREM l -9 b", ":1"),
            ("LREM l 0 none", ":0"),
            ("LREM l 9223372036854775807 c", ":1"),
            (push, ":6"),
            ("LREM l 0 a", ":4"),
            ("LRANGE l 0 -1", "[$1 b, $1 c]"),
            ("LREM l -9223372036854775807 b", ":1"),
            ("LREM l 1 c", ":1"),
            ("EXISTS l", ":0"),
            ("LREM l 1 c", ":0"),
            ("LREM l x c", NOT_INTEGER),
            ("RPUSH l c c", ":2"),
            ("LREM l -9223372036854775808 c", ":2"),
            ("LREM l 9223372036854775808 c", NOT_INTEGER),
            ("SET s text", "+OK"),
            ("LREM s x c", NOT_INTEGER),
            ("LREM s 0 c", WRONG),
        ]);
    }

    #[test]
    fn positions_of_matches() {
        check(&[
            ("RPUSH l a b c 1 2 3 c c", ":8"),
            ("LPOS l a", ":0"),
            ("LPOS l c", ":2"),
            ("LPOS l none", "_"),
            ("LPOS l c RANK 1", ":2"),
            ("LPOS l c RANK 2", ":6"),
            ("LPOS l c RANK 4", "_"),
            ("LPOS l c RANK -1", ":7"),
            ("LPOS l c rank -3", ":2"),
            ("LPOS l c RANK -4", "_"),
            ("LPOS l c COUNT 0", "[:2, :6, :7]"),
            ("LPOS l c count 1", "[:2]"),
            ("LPOS l c COUNT 2", "[:2, :6]"),
            ("LPOS l c COUNT 9223372036854775807", "[:2, :6, :7]"),
            ("LPOS l c COUNT 0 RANK 2", "[:6, :7]"),
            ("LPOS l c COUNT 2 RANK -1", "[:7, :6]"),
            ("LPOS l c COUNT 0 RANK -2", "[:6, :2]"),
            ("LPOS l c COUNT 0 RANK -9223372036854775807", "[]"),
            ("LPOS l none COUNT 0", "[]"),
            ("LPOS l c MAXLEN 2", "_"),
            ("LPOS l c MAXLEN 3", ":2"),
            ("LPOS l c COUNT 0 MAXLEN 7", "[:2, :6]"),
            ("LPOS l c COUNT 0 RANK -1 MAXLEN 2", "[:7, :6]"),
            ("LPOS l c RANK -3 MAXLEN 5", "_"),
            ("LPOS l c RANK -3 MAXLEN 6", ":2"),
            ("LPOS l c RANK -3 MAXLEN 9223372036854775807", ":2"),
            ("LPOS l c MAXLEN 0 RANK 2 RANK 3", ":7"),
            ("LPOS l c RANK -9223372036854775808", ":7"),
            ("LPOS l c RANK -9223372036854775808 COUNT 1", "[:7, :6, :2]"),
            ("LPOS missing c", "_"),
            ("LPOS missing c COUNT 1", "[]"),
        ]);
    }

    #[test]
    fn options_of_lpos_refused() {
        let zero = "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list";
        let syntax = "-ERR syntax error";
        check(&[
            ("SET s text", "+OK"),
            ("LPOS s c", WRONG),
            ("LPOS s c COUNT 0", WRONG),
            ("LPOS s c RANK 0", zero),
            ("LPOS missing c RANK 0", zero),
            ("LPOS s c RANK x", NOT_INTEGER),
            ("LPOS s c COUNT -1", "-ERR COUNT can't be negative"),
            ("LPOS s c COUNT x", "-ERR COUNT can't be negative"),
            ("LPOS s c MAXLEN -1", "-ERR MAXLEN can't be negative"),
            ("LPOS s c MAXLEN x", "-ERR MAXLEN can't be negative"),
            ("LPOS s c RANK", syntax),
            ("LPOS s c COUNT 1 MAXLEN", syntax),
            ("LPOS s c FIRST 1", syntax),
            ("LPOS s c COUNT -1 FIRST", "-ERR COUNT can't be negative"),
            ("LPOS s c FIRST 1 COUNT -1", syntax),
        ]);
    }

    #[test]
    fn long_lists_are_searched_to_the_end() {
        let elements: String = (0..500).map(|number| format!(" e{}", number % 100)).collect();
        let push = format!("RPUSH l{elements}");
        check(&[
            (&push, ":500"),
            ("LPOS l e7 COUNT 0", "[:7, :107, :207, :307, :407]"),
            ("LPOS l e7 COUNT 0 RANK -2", "[:307, :207, :107, :7]"),
            ("LREM l -4 e7", ":4"),
            ("LREM l 0 e8", ":5"),
            ("LPOS l e9 COUNT 0 RANK -1", "[:400, :302, :204, :106, :8]"),
            ("RPOP l 3", "[$3 e99, $3 e98, $3 e97]"),
            ("LLEN l", ":488"),
        ]);
    }

    #[test]
    fn only_what_is_done_counts_as_a_change() {
        let mut server = Harness::new(true);
        for (line, changes) in [
            ("RPUSH l a b a c a", 5),
            ("LREM l 0 none", 0),
            ("LREM l -2 a", 2),
            ("LINSERT l AFTER none x", 0),
            ("LINSERT l AFTER a x", 1),
            ("LPOS l x", 0),
            ("LREM missing 0 a", 0),
            ("LINSERT missing AFTER a x", 0),
        ] {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }
}
