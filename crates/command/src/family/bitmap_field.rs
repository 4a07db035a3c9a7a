//! BITFIELD and BITFIELD_RO: integers of any width at any bit of a string.
//!
//! A request is a list of operations that run in order, each on what the ones before it left. The
//! string grows for the furthest write before the first of them runs, even if none writes in the
//! end because of `OVERFLOW FAIL`.

use keyspace::{Expiry, Key};
use resp::{Args, Reply};
use smallvec::SmallVec;
use value::bitfield::{
    self, INVALID_OFFSET, INVALID_TYPE, IntegerType, Overflow, bytes_needed, parse_offset,
};
use value::parse_i64;

use super::room::check_lengthened;
use super::string_range::{RAW, lengthen, peek_string, set_raw};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::logged::Arg;
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "BITFIELD",
        arity: -2,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(
            1,
            KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE).and(KeyFlags::VARIABLE_FLAGS),
            Needs::Value,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "3.2.0",
            summary: "Reads, sets and adds to integers of any width at any bit of a string value.",
            complexity: "O(1) for each operation",
            syntax: "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]]",
        },
        run: run_bitfield,
    },
    Command {
        name: "BITFIELD_RO",
        arity: -2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "6.0.0",
            summary: "Reads integers of any width at any bit of a string value.",
            complexity: "O(1) for each operation",
            syntax: "key [GET encoding offset [GET encoding offset ...]]",
        },
        run: run_bitfield_ro,
    },
];

const INVALID_OVERFLOW: CommandError = fixed("ERR Invalid OVERFLOW type specified");
const READS_ONLY: CommandError = fixed("ERR BITFIELD_RO only supports the GET subcommand");

/// Operations that a request can have without an allocation.
const OPERATIONS_INLINE: usize = 4;

type Operations = SmallVec<[Operation; OPERATIONS_INLINE]>;

#[derive(Clone, Copy, Debug)]
struct Operation {
    integer: IntegerType,
    /// Its first bit.
    offset: u64,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64, Overflow),
    IncrBy(i64, Overflow),
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// None: the number would overflow and is told not to.
    answer: Option<i64>,
    /// What the field holds before.
    old: i64,
    /// What it holds after.
    new: i64,
}

impl Outcome {
    fn answer_to(self, reply: &mut Reply) {
        match self.answer {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    }
}

impl Operation {
    /// Works out the operation. Bits beyond the end of the string are zeros.
    fn run(&self, bytes: &[u8]) -> Outcome {
        let old = bitfield::get(bytes, self.offset, self.integer);
        let (answer, new) = match self.action {
            Action::Get => (Some(old), Some(old)),
            Action::Set(value, overflow) => {
                let new = self.integer.fit(value, overflow);
                (new.map(|_| old), new)
            }
            Action::IncrBy(by, overflow) => {
                let new = self.integer.add(old, by, overflow);
                (new, new)
            }
        };
        Outcome { answer, old, new: new.unwrap_or(old) }
    }

    /// Bytes that a string needs to hold the field; 0 when the operation only reads.
    fn len_min(&self) -> u64 {
        match self.action {
            Action::Get => 0,
            _ => bytes_needed(self.integer, self.offset),
        }
    }
}

fn run_bitfield(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let operations = parse(args, cx.limits.string_bytes_max())?;
    match operations.iter().map(Operation::len_min).max() {
        None | Some(0) => read(cx, &operations, reply),
        Some(len) => write(cx, &operations, len, reply),
    }
}

fn run_bitfield_ro(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let operations = parse(args, cx.limits.string_bytes_max())?;
    if !operations.iter().all(|operation| matches!(operation.action, Action::Get)) {
        return Err(READS_ONLY);
    }
    read(cx, &operations, reply)
}

fn parse(args: Args<'_>, string_bytes_max: usize) -> Result<Operations, CommandError> {
    let mut operations = Operations::new();
    let mut overflow = Overflow::Wrap;
    let mut rest = args.from(2);
    while let Some(name) = rest.get(0) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let len = match rest.len() {
            2.. if is("OVERFLOW") => {
                overflow = parse_overflow(&rest[1])?;
                rest = rest.from(2);
                continue;
            }
            3.. if is("GET") => 3,
            4.. if is("SET") || is("INCRBY") => 4,
            _ => return Err(CommandError::SYNTAX),
        };
        let integer = IntegerType::parse(&rest[1]).ok_or(fixed(INVALID_TYPE))?;
        let offset = parse_offset(&rest[2], Some(integer), string_bytes_max as u64)
            .ok_or(fixed(INVALID_OFFSET))?;
        let action = match rest.get(3).filter(|_| len == 4) {
            None => Action::Get,
            Some(text) => {
                let number = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
                let make = if is("SET") { Action::Set } else { Action::IncrBy };
                make(number, overflow)
            }
        };
        operations.push(Operation { integer, offset, action });
        rest = rest.from(len);
    }
    Ok(operations)
}

fn parse_overflow(name: &[u8]) -> Result<Overflow, CommandError> {
    const NAMES: [(&str, Overflow); 3] =
        [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
    let named = NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    named.map(|(_, overflow)| *overflow).ok_or(INVALID_OVERFLOW)
}

fn read(cx: &mut Cx<'_, '_>, operations: &[Operation], reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    cx.count_read(&key);
    let bytes = cx.read_string(&key)?.unwrap_or_default();
    reply.array(operations.len());
    for operation in operations {
        reply.integer(operation.run(bytes).old);
    }
    Ok(())
}

/// Runs operations of which some write, on a string that then has at least `len` bytes.
fn write(
    cx: &mut Cx<'_, '_>,
    operations: &[Operation],
    len: u64,
    reply: &mut Reply,
) -> CommandResult {
    let (key, len) = (cx.key(0), len as usize);
    let old = peek_string(cx, &key)?;
    check_lengthened(cx, &key, (old.map_or(0, |(old_len, _)| old_len), len), reply)?;
    let written = match old {
        None => {
            let mut bytes = vec![0; len];
            let written = run_all(&mut bytes, operations, reply);
            cx.set_string_vec(&key, RAW, bytes, Expiry::Clear);
            written.fields
        }
        Some((old_len, _)) if old_len < len => {
            let written = lengthen(cx, &key, len, |bytes| run_all(bytes, operations, reply))?;
            written.fields
        }
        Some((_, kind)) => {
            let written = write_in_place(cx, &key, operations, reply)?;
            set_raw(cx, &key, kind);
            written.changed
        }
    };
    if written > 0 {
        cx.report(&key, Event::SETBIT, written);
    } else if old.is_none_or(|(old_len, _)| old_len < len) {
        // It is longer, though nothing was written.
        cx.log_as(&[Arg::SentFrom(0)]);
    }
    Ok(())
}

/// Runs operations on a string that is long enough. If none of them changes anything, the value
/// stays untouched, and with it its copy on flash.
fn write_in_place(
    cx: &mut Cx<'_, '_>,
    key: &Key<'_>,
    operations: &[Operation],
    reply: &mut Reply,
) -> Result<Written, CommandError> {
    let bytes = cx.read_string(key)?.unwrap_or_default();
    // Up to the first change, each operation meets the string as it is now.
    let is_change = |outcome: Outcome| outcome.old != outcome.new;
    if operations.iter().any(|operation| is_change(operation.run(bytes))) {
        return Ok(run_all(cx.value_mut(key)?, operations, reply));
    }
    reply.array(operations.len());
    operations.iter().for_each(|operation| operation.run(bytes).answer_to(reply));
    Ok(Written::default())
}

/// What the operations of a request did.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// Fields that were written.
    fields: u64,
    /// Those that have another value now.
    changed: u64,
}

fn run_all(bytes: &mut [u8], operations: &[Operation], reply: &mut Reply) -> Written {
    let mut written = Written::default();
    reply.array(operations.len());
    for operation in operations {
        let outcome = operation.run(bytes);
        outcome.answer_to(reply);
        if operation.len_min() > 0 && outcome.answer.is_some() {
            bitfield::set(bytes, operation.offset, operation.integer, outcome.new);
            written.fields += 1;
            written.changed += u64::from(outcome.old != outcome.new);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn reading_and_writing() {
        check(&[
            ("BITFIELD k", "[]"),
            ("BITFIELD k GET u8 0 GET i64 1000", "[:0, :0]"),
            ("BITFIELD k SET u8 #0 65 set u8 #1 66 SET u8 #2 67", "[:0, :0, :0]"),
            ("GET k", "$3 ABC"),
            ("BITFIELD k INCRBY u8 8 -1 get i4 0 GET u8 16 GET u8 20", "[:65, :4, :67, :48]"),
            ("GET k", "$3 AAC"),
            ("BITFIELD k SET i8 0 255 SET i8 0 100 GET i8 0", "[:65, :-1, :100]"),
            ("BITFIELD k SET i64 #1 -1", "[:0]"),
            ("GET k", "$16 dAC\\x00\\x00\\x00\\x00\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff"),
            ("BITFIELD k SET u5 316 31", "[:0]"),
            ("STRLEN k", ":41"),
            ("BITFIELD k INCRBY u5 316 -1 GET u8 #39 GET u8 #40", "[:30, :15, :0]"),
            ("BITFIELD_RO k GET u63 64 GET i5 316", "[:9223372036854775807, :-2]"),
            ("BITFIELD_RO k", "[]"),
            ("BITFIELD_RO missing GET u1 0", "[:0]"),
        ]);
    }

    #[test]
    fn overflow() {
        check(&[
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("BITFIELD k SET u8 0 250 SET i8 8 120", "[:48, :49]"),
            ("BITFIELD k INCRBY u8 0 10 INCRBY i8 8 10", "[:4, :-126]"),
            ("BITFIELD k OVERFLOW SAT INCRBY u8 0 1000 INCRBY i8 8 -100", "[:255, :-128]"),
            ("BITFIELD k OVERFLOW FAIL INCRBY u8 0 1 INCRBY i8 8 -1", "[_, _]"),
            (
                "BITFIELD k OVERFLOW fail SET u8 0 256 SET i8 8 128 OVERFLOW wrap SET u8 0 257",
                "[_, _, :255]",
            ),
            ("BITFIELD k GET u8 0 GET i8 8", "[:1, :-128]"),
            ("BITFIELD k OVERFLOW SAT SET u8 0 -1", "[:1]"),
            ("BITFIELD k GET u8 0", "[:255]"),
            ("BITFIELD new OVERFLOW FAIL INCRBY u2 8 5", "[_]"),
            ("GET new", "$2 \\x00\\x00"),
        ]);
    }

    #[test]
    fn requests_that_make_no_sense() {
        let bad_type = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        let bad_offset = "-ERR bit offset is not an integer or out of range";
        let cases = [
            ("GET", "-ERR syntax error"),
            ("GET u8", "-ERR syntax error"),
            ("SET u8 0", "-ERR syntax error"),
            ("INCRBY u8 0", "-ERR syntax error"),
            ("OVERFLOW", "-ERR syntax error"),
            ("GET u8 0 OVERFLOW", "-ERR syntax error"),
            ("OVERFLOW none", "-ERR Invalid OVERFLOW type specified"),
            ("GET u64 0", bad_type),
            ("GET i65 0", bad_type),
            ("GET u0 0", bad_type),
            ("GET i08 0", bad_type),
            ("GET U8 0", bad_type),
            ("GET '' 0", bad_type),
            ("GET u8 x", bad_offset),
            ("GET u8 -1", bad_offset),
            ("GET u8 #-1", bad_offset),
            ("GET u8 #", bad_offset),
            ("GET u8 4294967296", bad_offset),
            ("GET u8 #536870912", bad_offset),
            ("GET u8 #9223372036854775807", bad_offset),
            ("SET u8 0 x", "-ERR value is not an integer or out of range"),
            ("INCRBY u8 0 1.0", "-ERR value is not an integer or out of range"),
        ];
        for (arguments, error) in cases {
            for command in ["BITFIELD", "BITFIELD_RO"] {
                check(&[(&format!("{command} k GET i8 0 {arguments}"), error), ("GET k", "_")]);
            }
        }
        let reads_only = "-ERR BITFIELD_RO only supports the GET subcommand";
        check(&[
            ("BITFIELD_RO k GET u8 0 SET u8 0 1", reads_only),
            ("BITFIELD_RO k INCRBY u8 0 0", reads_only),
            ("BITFIELD_RO k OVERFLOW SAT GET u8 0", "[:0]"),
        ]);
    }

    #[test]
    fn the_longest_string() {
        let mut server = Harness::new(true);
        server.string_bytes_max = 64;
        let bad_offset = "-ERR bit offset is not an integer or out of range";
        assert_eq!(server.run("BITFIELD k SET u8 504 1"), "[:0]");
        assert_eq!(server.run("BITFIELD k SET u8 512 1"), bad_offset);
        assert_eq!(server.run("STRLEN k"), ":64");
        // Only the first bit of a field is bound by the limit.
        assert_eq!(server.run("BITFIELD k INCRBY u8 505 1"), "[:3]");
        assert_eq!(server.run("BITFIELD k GET u8 505"), "[:3]");
        assert_eq!(server.run("STRLEN k"), ":65");
    }

    #[test]
    fn only_what_changes_counts() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for (line, changes) in [
                ("BITFIELD k SET i5 0 0 SET i5 5 0", 2),
                ("BITFIELD k SET i5 0 0", 0),
                ("BITFIELD k SET i5 0 1 SET i5 0 1 SET i5 0 2", 2),
                ("BITFIELD k INCRBY i5 0 1 GET i5 0", 1),
                ("BITFIELD k SET i5 400 0", 1),
                ("BITFIELD k SET i5 400 0", 0),
                ("BITFIELD k OVERFLOW FAIL INCRBY i5 400 100", 0),
                ("BITFIELD k INCRBY i5 400 -1", 1),
            ] {
                let before = server.changes;
                server.run(line);
                assert_eq!(server.changes - before, changes, "{line}");
            }
        }
    }

    #[test]
    fn a_write_leaves_the_raw_encoding() {
        for (line, expected) in [
            ("BITFIELD k GET u8 0", "$3 int"),
            ("BITFIELD k OVERFLOW FAIL SET u8 0 256", "$3 raw"),
            ("BITFIELD k SET u8 0 49", "$3 raw"),
            ("BITFIELD k SET u8 100 49", "$3 raw"),
        ] {
            let mut server = Harness::new(false);
            server.run("SET k 1234");
            server.run(line);
            assert_eq!(server.run("OBJECT ENCODING k"), expected, "{line}");
        }
    }
}
