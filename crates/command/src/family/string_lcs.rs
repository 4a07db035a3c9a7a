//! LCS: the longest common subsequence of two strings, its length, or where its pieces lie.

use resp::{Args, Reply};
use value::lcs::{self, Match};
use value::parse_i64;

use super::room::check_stored;
use super::string_range::peek_string;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// The rows of this file.
pub const COMMANDS: &[Command] = &[Command {
    name: "LCS",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec {
        flags: KeyFlags::RO.and(KeyFlags::ACCESS),
        needs: Needs::Value,
        begin: Begin::Index(1),
        find: Find::Range { last: 1, step: 1 },
    }],
    locks: Locks::Keys,
    docs: Docs {
        group: Group::String,
        since: "7.0.0",
        summary: "Finds the longest common subsequence of two string values.",
        complexity: "O(N*M), N and M being the lengths of the values",
        syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    },
    run: run_lcs,
}];

/// Bytes of a reply for a run that both strings have, at most.
const MATCH_REPLY_BYTES: usize = 80;

const NOT_STRINGS: CommandError = fixed("ERR The specified keys must contain string values");
const LENGTH_AND_INDEXES: CommandError =
    fixed("ERR If you want both the length and indexes, please just use IDX.");

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    length: bool,
    indexes: bool,
    match_lengths: bool,
    /// Shorter runs are not listed. Negative: all are.
    match_len_min: i64,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let mut rest = args.from(3);
        while let Some(name) = rest.get(0) {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            if is("IDX") {
                options.indexes = true;
            } else if is("LEN") {
                options.length = true;
            } else if is("WITHMATCHLEN") {
                options.match_lengths = true;
            } else if is("MINMATCHLEN") && rest.len() > 1 {
                options.match_len_min = parse_i64(&rest[1]).ok_or(CommandError::NOT_INTEGER)?;
                rest = rest.from(1);
            } else {
                return Err(CommandError::SYNTAX);
            }
            rest = rest.from(1);
        }
        if options.length && options.indexes {
            return Err(LENGTH_AND_INDEXES);
        }
        Ok(options)
    }

    fn lists(&self, found: &Match) -> bool {
        i64::try_from(found.len).is_ok_and(|len| len >= self.match_len_min)
    }
}

fn run_lcs(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (left, right) = (cx.key(0), cx.key(1));
    // As in Redis of both, before anything is looked at.
    for key in [&left, &right] {
        let exists = cx.exists(key);
        cx.count_lookup(key, exists);
    }
    cx.end_counting_reads();
    let mut lens = [0; 2];
    for (key, len) in [&left, &right].into_iter().zip(&mut lens) {
        *len = peek_string(cx, key).map_err(|_| NOT_STRINGS)?.map_or(0, |(len, _)| len);
    }
    let options = Options::parse(args)?;
    let bytes_max = cx.limits.string_bytes_max() as u64;
    let refused = |error: lcs::LcsError| CommandError::owned(error.to_string());
    let bytes = memory_bytes(&options, lens.into(), bytes_max).map_err(refused)?;
    check_stored(&left, bytes, cx.reply_bytes_max, reply)?;
    let left = cx.read_string(&left)?.unwrap_or_default().to_vec();
    let right = cx.read_string(&right)?.unwrap_or_default();
    if options.length {
        let length = lcs::length(&left, right, bytes_max).map_err(refused)?;
        reply.integer(length as i64);
        return Ok(());
    }
    let found = lcs::find(&left, right, bytes_max).map_err(refused)?;
    if options.indexes {
        reply_indexes(&found, &options, reply);
    } else {
        reply.bulk(&found.text);
    }
    Ok(())
}

/// What LCS takes for strings so long: a copy of the first one, the table, and its reply.
///
/// Errors: the table would be too large.
fn memory_bytes(
    options: &Options,
    (left, right): (usize, usize),
    bytes_max: u64,
) -> Result<u64, lcs::LcsError> {
    let of_table = lcs::memory_bytes((left, right), bytes_max)?;
    let of_reply = match (options.length, options.indexes) {
        (true, _) => return Ok(2 * left as u64),
        (false, true) => MATCH_REPLY_BYTES,
        (false, false) => 1,
    };
    Ok(left as u64 + of_table + (left.min(right) * of_reply) as u64)
}

fn reply_indexes(found: &lcs::Lcs, options: &Options, reply: &mut Reply) {
    let listed = || found.matches.iter().filter(|found| options.lists(found));
    reply.map(2);
    reply.bulk(b"matches");
    let count = listed().count();
    // At once: while a reply grows it takes as much again.
    reply.reserve(count * MATCH_REPLY_BYTES);
    reply.array(count);
    for run in listed() {
        reply.array(2 + usize::from(options.match_lengths));
        for start in [run.left_start, run.right_start] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + run.len - 1) as i64);
        }
        if options.match_lengths {
            reply.integer(run.len as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(found.text.len() as i64);
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn subsequences() {
        check(&[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", "$6 mytext"),
            ("LCS a b LEN", ":6"),
            (
                "LCS a b IDX",
                "{$7 matches: [[[:4, :7], [:5, :8]], [[:2, :3], [:0, :1]]], $3 len: :6}",
            ),
            (
                "LCS a b idx minmatchlen 4 withmatchlen",
                "{$7 matches: [[[:4, :7], [:5, :8], :4]], $3 len: :6}",
            ),
            ("LCS a b IDX MINMATCHLEN 5", "{$7 matches: [], $3 len: :6}"),
            (
                "LCS a b IDX MINMATCHLEN -5",
                "{$7 matches: [[[:4, :7], [:5, :8]], [[:2, :3], [:0, :1]]], $3 len: :6}",
            ),
            ("LCS a a", "$8 ohmytext"),
            ("LCS a missing", "$0"),
            ("LCS missing a LEN", ":0"),
            ("LCS missing other IDX", "{$7 matches: [], $3 len: :0}"),
            ("SET c 0123456789abc0123456789012345678901234567", "+OK"),
            ("SET d 0123456789xy0123456789z012345678901234567", "+OK"),
            ("LCS c d", "$38 01234567890123456789012345678901234567"),
            ("LCS c d LEN MINMATCHLEN 100 WITHMATCHLEN", ":38"),
        ]);
    }

    #[test]
    fn options_that_make_no_sense() {
        check(&[
            (
                "LCS a b LEN IDX",
                "-ERR If you want both the length and indexes, please just use IDX.",
            ),
            ("LCS a b IDX LEN XX", "-ERR syntax error"),
            ("LCS a b MINMATCHLEN", "-ERR syntax error"),
            ("LCS a b c", "-ERR syntax error"),
            ("LCS a b MINMATCHLEN x", "-ERR value is not an integer or out of range"),
            ("LCS a", "-ERR wrong number of arguments for 'lcs' command"),
        ]);
    }

    #[test]
    fn a_table_beyond_the_limit() {
        let mut server = Harness::new(true);
        server.string_bytes_max = 64;
        server.run("MSET a 123 b 123 c 1234");
        assert_eq!(server.run("LCS a b"), "$3 123", "four times four cells of four bytes");
        let refusal =
            "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        for line in ["LCS a c", "LCS c a LEN", "LCS c c IDX"] {
            assert_eq!(server.run(line), refusal, "{line}");
        }
    }
}
