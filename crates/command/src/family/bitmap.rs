//! Bitmaps: strings as rows of bits, the first of them the most significant bit of the first byte.

use keyspace::{Expiry, Key};
use resp::{Args, Reply};
use value::bitfield::{INVALID_OFFSET, parse_offset};
use value::bits::{self, Operation};
use value::parse_i64;

use super::room::check_lengthened;
use super::string_range::{RAW, lengthen, peek_string, set_raw};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "SETBIT",
        arity: 4,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(
            1,
            KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE),
            Needs::Value,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "2.2.0",
            summary: "Sets or clears a bit of a string value, which grows with zeros where needed.",
            complexity: "O(1)",
            syntax: "key offset value",
        },
        run: setbit,
    },
    Command {
        name: "GETBIT",
        arity: 3,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: READ,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "2.2.0",
            summary: "Returns a bit of a string value.",
            complexity: "O(1)",
            syntax: "key offset",
        },
        run: getbit,
    },
    Command {
        name: "BITCOUNT",
        arity: -2,
        flags: Flags::READONLY,
        keys: READ,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "2.6.0",
            summary: "Counts the bits that are set in a string value or in a part of it.",
            complexity: "O(N), N being the length of the part",
            syntax: "key [start end [BYTE | BIT]]",
        },
        run: bitcount,
    },
    Command {
        name: "BITPOS",
        arity: -3,
        flags: Flags::READONLY,
        keys: READ,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "2.8.7",
            summary: "Finds the first bit that is set, or clear, in a string value or in a part of it.",
            complexity: "O(N), N being the length of the part",
            syntax: "key bit [start [end [BYTE | BIT]]]",
        },
        run: bitpos,
    },
    Command {
        name: "BITOP",
        arity: -4,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[
            KeySpec::at(2, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly),
            KeySpec::from(3, 1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value),
        ],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Bitmap,
            since: "2.6.0",
            summary: "Combines the bits of string values into a new one.",
            complexity: "O(N), N being the length of all values together",
            syntax: "<AND | OR | XOR | NOT> destkey key [key ...]",
        },
        run: bitop,
    },
];

const BIT_OUT_OF_RANGE: CommandError = fixed("ERR bit is not an integer or out of range");
const BIT_NOT_BINARY: CommandError = fixed("ERR The bit argument must be 1 or 0.");
const NOT_OF_MANY: CommandError = fixed("ERR BITOP NOT must be called with a single source key.");

/// The offset of a single bit. No byte beyond the longest string has one.
fn parse_bit_offset(cx: &Cx<'_, '_>, text: &[u8]) -> Result<u64, CommandError> {
    parse_offset(text, None, cx.limits.string_bytes_max() as u64).ok_or(fixed(INVALID_OFFSET))
}

fn setbit(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let offset = parse_bit_offset(cx, &args[2])?;
    let bit = match parse_i64(&args[3]) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(BIT_OUT_OF_RANGE),
    };
    let len = (offset / 8) as usize + 1;
    let mut old_bit = false;
    let old = peek_string(cx, &key)?;
    check_lengthened(cx, &key, (old.map_or(0, |(old_len, _)| old_len), len), reply)?;
    let mut is_changed = true;
    match old {
        None => {
            let mut bytes = vec![0; len];
            bits::set_bit(&mut bytes, offset, bit);
            cx.set_string_vec(&key, RAW, bytes, Expiry::Clear);
        }
        Some((old_len, kind)) if len <= old_len => {
            old_bit = bits::get_bit(cx.read_string(&key)?.unwrap_or_default(), offset);
            is_changed = old_bit != bit;
            if is_changed {
                bits::set_bit(cx.value_mut(&key)?, offset, bit);
            }
            set_raw(cx, &key, kind);
        }
        Some(_) => {
            lengthen(cx, &key, len, |bytes| bits::set_bit(bytes, offset, bit))?;
        }
    }
    if is_changed {
        cx.report(&key, Event::SETBIT, 1);
    }
    reply.integer(i64::from(old_bit));
    Ok(())
}

fn getbit(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let offset = parse_bit_offset(cx, &args[2])?;
    let bytes = cx.read_string(&cx.key(0))?.unwrap_or_default();
    reply.integer(i64::from(bits::get_bit(bytes, offset)));
    Ok(())
}

/// A part of a string as BITCOUNT and BITPOS take it: `[start [end [BYTE | BIT]]]`. Redis looks at
/// these arguments only when the key exists, so a handler reads the key first.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: i64,
    end: Option<i64>,
    unit_bits: u64,
}

impl Part {
    /// The part that BITCOUNT counts: its start comes with its end, and both are read before the
    /// unit.
    fn of_bitcount(args: Args<'_>) -> Result<Part, CommandError> {
        if !matches!(args.len(), 2 | 4 | 5) {
            return Err(CommandError::SYNTAX);
        }
        let start = parse_bound(args, 2)?.unwrap_or(0);
        let end = parse_bound(args, 3)?;
        Ok(Part { start, end, unit_bits: parse_unit(args, 4)? })
    }

    /// The part that BITPOS searches: the unit is read before the end.
    fn of_bitpos(args: Args<'_>) -> Result<Part, CommandError> {
        if args.len() > 6 {
            return Err(CommandError::SYNTAX);
        }
        let start = parse_bound(args, 3)?.unwrap_or(0);
        let unit_bits = parse_unit(args, 5)?;
        Ok(Part { start, end: parse_bound(args, 4)?, unit_bits })
    }

    /// The first and the last bit of the part, in a string of `len` bytes. None: it is empty.
    fn bits(&self, len: usize) -> Option<(u64, u64)> {
        let units = len as u64 * 8 / self.unit_bits;
        let (first, last) = bits::clamp_range(self.start, self.end.unwrap_or(-1), units)?;
        Some((first * self.unit_bits, (last + 1) * self.unit_bits - 1))
    }

    /// The same part of a string of `len` bytes, with no end before the string's start. BITPOS
    /// cuts first and compares the ends then: of three bytes, -5 to -9 is the first one.
    fn cut(self, len: usize) -> Part {
        let first = -((len as u64 * 8 / self.unit_bits) as i64);
        Part { start: self.start.max(first), end: self.end.map(|end| end.max(first)), ..self }
    }
}

fn parse_bound(args: Args<'_>, index: usize) -> Result<Option<i64>, CommandError> {
    let number = |text: &[u8]| parse_i64(text).ok_or(CommandError::NOT_INTEGER);
    args.get(index).map(number).transpose()
}

fn parse_unit(args: Args<'_>, index: usize) -> Result<u64, CommandError> {
    match args.get(index) {
        Some(unit) if unit.eq_ignore_ascii_case(b"BIT") => Ok(1),
        Some(unit) if !unit.eq_ignore_ascii_case(b"BYTE") => Err(CommandError::SYNTAX),
        _ => Ok(8),
    }
}

fn bitcount(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let count = match cx.read_string(&cx.key(0))? {
        None => 0,
        Some(bytes) => {
            let range = Part::of_bitcount(args)?.bits(bytes.len());
            range.map_or(0, |(first, last)| bits::count_range(bytes, first, last))
        }
    };
    reply.integer(count as i64);
    Ok(())
}

fn bitpos(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let bit = match parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)? {
        bit @ 0..=1 => bit == 1,
        _ => return Err(BIT_NOT_BINARY),
    };
    let found = match cx.read_string(&cx.key(0))? {
        // A missing key is an endless row of zeros.
        None => (!bit).then_some(0),
        Some(bytes) => {
            let part = Part::of_bitpos(args)?;
            part.cut(bytes.len()).bits(bytes.len()).and_then(|(first, last)| {
                // So is what follows a string, unless the part has an end of its own.
                let beyond = (!bit && part.end.is_none()).then_some(last + 1);
                bits::find(bytes, bit, first, last).or(beyond)
            })
        }
    };
    reply.integer(found.map_or(-1, |found| found as i64));
    Ok(())
}

fn bitop(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let operation = parse_operation(&args[1])?;
    let keys = cx.keys;
    let (target, sources) = keys.split_first().expect("invariant: the arity asks for keys");
    if operation == Operation::Not && sources.len() != 1 {
        return Err(NOT_OF_MANY);
    }
    let len = longest(cx, sources);
    // The result is new, whatever the target holds.
    check_lengthened(cx, target, (0, len), reply)?;
    let result = combine(cx, operation, sources, len)?;
    reply.integer(result.len() as i64);
    if result.is_empty() {
        cx.remove(target);
    } else {
        cx.set_string_vec(target, RAW, result, Expiry::Clear);
        cx.report(target, Event::SET, 1);
    }
    Ok(())
}

/// The length of the longest of the strings among these. What is none is refused when it is read, in its turn.
fn longest(cx: &mut Cx<'_, '_>, keys: &[Key<'_>]) -> usize {
    let len_of = |key| peek_string(cx, key).ok().flatten().map_or(0, |(len, _)| len);
    keys.iter().map(len_of).max().unwrap_or_default()
}

/// Combines strings, of which the longest has `len` bytes, into one that is as long. It has its place from the
/// start: to grow it later would take what it has once more.
fn combine(
    cx: &mut Cx<'_, '_>,
    operation: Operation,
    sources: &[Key<'_>],
    len: usize,
) -> Result<Vec<u8>, CommandError> {
    let mut result = cx.take_room(len);
    for (index, source) in sources.iter().enumerate() {
        cx.count_read(source);
        let bytes = cx.read_string(source)?.unwrap_or_default();
        match index {
            0 => result.extend_from_slice(bytes),
            _ => bits::combine_with(operation, &mut result, bytes),
        }
    }
    if operation == Operation::Not {
        bits::invert(&mut result);
    }
    Ok(result)
}

fn parse_operation(name: &[u8]) -> Result<Operation, CommandError> {
    const NAMES: [(&str, Operation); 4] = [
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
    ];
    let named = NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    named.map(|(_, operation)| *operation).ok_or(CommandError::SYNTAX)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn single_bits() {
        check(&[
            ("GETBIT k 0", ":0"),
            ("SETBIT k 1 1", ":0"),
            ("GET k", "$1 @"),
            ("SETBIT k 1 1", ":1"),
            ("SETBIT k 7 1", ":0"),
            ("SETBIT k 1 0", ":1"),
            ("GET k", "$1 \\x01"),
            ("SETBIT k 17 0", ":0"),
            ("GET k", "$3 \\x01\\x00\\x00"),
            ("GETBIT k 7", ":1"),
            ("GETBIT k 8", ":0"),
            ("GETBIT k 4294967295", ":0"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("GETBIT k 312", ":0"),
            ("GETBIT k 319", ":1"),
            ("SETBIT k 312 1", ":0"),
            ("SETBIT k 319 1", ":1"),
            ("SETBIT k 320 1", ":0"),
            ("GETRANGE k 38 -1", "$3 8\\xb9\\x80"),
        ]);
    }

    #[test]
    fn bits_that_are_none() {
        let bad_offset = "-ERR bit offset is not an integer or out of range";
        let bad_bit = "-ERR bit is not an integer or out of range";
        for offset in ["-1", "x", "''", "#1", "4294967296", "9223372036854775807"] {
            check(&[
                (&format!("SETBIT k {offset} 1"), bad_offset),
                (&format!("GETBIT k {offset}"), bad_offset),
            ]);
        }
        for bit in ["2", "-1", "10", "x", "''"] {
            check(&[(&format!("SETBIT k 0 {bit}"), bad_bit), ("GET k", "_")]);
        }
        check(&[("SETBIT k -1 2", bad_offset)]);
    }

    #[test]
    fn a_bit_set_anew_is_no_change() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for (line, changes) in [
                ("SETBIT k 0 0", 1),
                ("SETBIT k 0 0", 0),
                ("SETBIT k 0 1", 1),
                ("SETBIT k 0 1", 0),
                ("SETBIT k 400 0", 1),
                ("SETBIT k 400 0", 0),
                ("SETBIT k 400 1", 1),
            ] {
                let before = server.changes;
                server.run(line);
                assert_eq!(server.changes - before, changes, "{line}");
            }
        }
    }

    #[test]
    fn counting() {
        for (arguments, expected) in [
            ("", ":26"),
            ("1", "-ERR syntax error"),
            ("x", "-ERR syntax error"),
            ("0 -1", ":26"),
            ("0 0", ":4"),
            ("1 1", ":6"),
            ("1 -2", ":18"),
            ("-2 1", ":0"),
            ("0 1000", ":26"),
            ("-1000 0", ":4"),
            ("-9223372036854775808 9223372036854775807", ":26"),
            ("-20 -30", ":0"),
            ("-30 -20 byte", ":4"),
            ("5 30 BIT", ":17"),
            ("10 14 bit", ":4"),
            ("-1000 14 BIT", ":9"),
            ("0 -1 BIT", ":26"),
            ("48 100 BIT", ":0"),
            ("-60 -70 BIT", ":0"),
            ("0 0 BITS", "-ERR syntax error"),
            ("0 0 BIT 0", "-ERR syntax error"),
            ("0 x", "-ERR value is not an integer or out of range"),
            ("x 0 BITS", "-ERR value is not an integer or out of range"),
            ("0 x BITS", "-ERR value is not an integer or out of range"),
        ] {
            check(&[
                (&format!("BITCOUNT missing {arguments}"), ":0"),
                ("SET k foobar", "+OK"),
                (&format!("BITCOUNT k {arguments}"), expected),
            ]);
        }
        check(&[
            ("SET k __PPxxxxxxxxxxxxxxxxRR__PPPPPPPPPPPPPPPPPPPPPPPPPP", "+OK"),
            ("BITCOUNT k 2 21", ":74"),
        ]);
    }

    #[test]
    fn finding_the_first() {
        for (value, arguments, expected) in [
            ("\\xff\\xf0\\x00", "0", ":12"),
            ("\\x00\\x0f\\x00", "1", ":12"),
            ("\\x00\\x0f\\xff", "1 2", ":16"),
            ("\\x00\\xff\\x00", "0 0 -1", ":0"),
            ("\\x00\\xff\\x00", "0 1 -1", ":16"),
            ("\\x00\\xff\\x00", "0 2 200", ":16"),
            ("\\x00\\xff\\x00", "0 1 1", ":-1"),
            ("\\x00\\xff\\x00", "1 2 -1", ":-1"),
            ("\\x00\\xff\\x00", "1 1 1", ":8"),
            ("\\x00\\xff\\x00", "1 9 12 BIT", ":9"),
            ("\\x00\\xff\\x00", "0 8 8 BIT", ":-1"),
            ("\\x00\\xff\\x00", "0 8 -1 bit", ":16"),
            ("\\x00\\xff\\x00", "0 3 200 BIT", ":3"),
            ("\\x00\\xff\\x00", "1 -30 -40 BIT", ":-1"),
            ("\\x80\\xff\\x00", "1 -30 -40 BIT", ":0"),
            ("\\xff\\xff\\xff", "0", ":24"),
            ("\\xff\\xff\\xff", "0 1", ":24"),
            ("\\xff\\xff\\xff", "0 -1", ":24"),
            ("\\xff\\xff\\xff", "0 0 -1", ":-1"),
            ("\\xff\\xff\\xff", "0 3", ":-1"),
            ("\\x00\\x00", "1", ":-1"),
            ("", "0", ":-1"),
            ("", "1", ":-1"),
            ("1", "2", "-ERR The bit argument must be 1 or 0."),
            ("1", "x", "-ERR value is not an integer or out of range"),
            ("1", "0 x", "-ERR value is not an integer or out of range"),
            ("1", "0 0 x", "-ERR value is not an integer or out of range"),
            ("1", "0 0 x BITS", "-ERR syntax error"),
            ("1", "0 0 0 BITS", "-ERR syntax error"),
            ("1", "0 0 0 BIT 0", "-ERR syntax error"),
        ] {
            let missing = match arguments.as_bytes()[0] {
                b'0' => ":0",
                b'1' => ":-1",
                _ => expected,
            };
            check(&[
                (&format!("BITPOS missing {arguments}"), missing),
                (&format!("SET k \"{value}\""), "+OK"),
                (&format!("BITPOS k {arguments}"), expected),
            ]);
        }
        check(&[
            ("SETBIT k 400 1", ":0"),
            ("BITPOS k 1", ":400"),
            ("BITPOS k 1 401 -1 BIT", ":-1"),
            ("BITPOS k 0 400 -1 BIT", ":401"),
        ]);
    }

    #[test]
    fn combining() {
        check(&[
            ("SET a \"\\x01\\x02\\xff\\xff\"", "+OK"),
            ("SET b \"\\x01\\x03\\xff\"", "+OK"),
            ("BITOP AND d a b", ":4"),
            ("GET d", "$4 \\x01\\x02\\xff\\x00"),
            ("BITOP or d a b", ":4"),
            ("GET d", "$4 \\x01\\x03\\xff\\xff"),
            ("BITOP XOR d b a", ":4"),
            ("GET d", "$4 \\x00\\x01\\x00\\xff"),
            ("BITOP not a a", ":4"),
            ("GET a", "$4 \\xfe\\xfd\\x00\\x00"),
            ("BITOP AND d missing a", ":4"),
            ("GET d", "$4 \\x00\\x00\\x00\\x00"),
            ("BITOP AND d b", ":3"),
            ("GET d", "$3 \\x01\\x03\\xff"),
            ("BITOP XOR d b b b missing", ":3"),
            ("GET d", "$3 \\x01\\x03\\xff"),
            ("BITOP OR d missing other", ":0"),
            ("GET d", "_"),
            ("BITOP NOT d missing", ":0"),
            ("SET a 0123456789012345678901234567890123456789", "+OK"),
            ("SET b 9876543210987654321098765432109876543210!", "+OK"),
            ("BITOP XOR d a b", ":41"),
            ("BITOP XOR d d b", ":41"),
            ("GET d", "$41 0123456789012345678901234567890123456789\\x00"),
        ]);
    }

    #[test]
    fn what_there_is_no_memory_for_is_not_combined() {
        let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("SETBIT long 8191 1");
            server.run("SETBIT short 7 1");
            server.memory_bytes_max = 1_023;
            for (line, expected) in [
                ("BITOP NOT to long", oom),
                ("BITOP OR to short long", oom),
                ("BITOP XOR to long short", oom),
                ("EXISTS to", ":0"),
                ("BITOP OR to short short", ":1"),
            ] {
                assert_eq!(server.run(line), expected, "{line}");
            }
        }
    }

    #[test]
    fn memory_for_a_large_combination_is_asked_for_once() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("SETBIT long 2400000 1");
            server.run("SETBIT short 7 1");
            server.run("SADD set a");
            server.reply_bytes_free = 256;
            for (line, expected) in [
                ("BITOP NOT to long", ":300001"),
                ("BITOP OR to short long", ":300001"),
                ("BITOP AND to long short", ":300001"),
            ] {
                assert_eq!(server.run(line), expected, "{line}");
                assert!(server.runs >= 2, "{line}: it has not asked");
                assert!(server.runs <= if demote { 4 } else { 2 }, "{line}: {}", server.runs);
            }
            assert_eq!(server.run("BITOP OR to short short"), ":1");
            assert!(server.runs <= if demote { 3 } else { 1 }, "{}", server.runs);
            assert!(server.run("BITOP OR to long set").starts_with("-WRONGTYPE"));
        }
    }

    #[test]
    fn combinations_that_make_no_sense() {
        let not_of_many = "-ERR BITOP NOT must be called with a single source key.";
        check(&[
            ("BITOP NAND d a", "-ERR syntax error"),
            ("BITOP NOT d a b", not_of_many),
            ("BITOP NOT d", "-ERR wrong number of arguments for 'bitop' command"),
        ]);
    }

    #[test]
    fn encodings() {
        for (line, expected) in [
            ("SETBIT k 0 0", "$3 raw"),
            ("SETBIT k 0 1", "$3 raw"),
            ("SETBIT k 100 1", "$3 raw"),
            ("GETBIT k 0", "$3 int"),
            ("BITOP AND k k", "$3 raw"),
        ] {
            let mut server = Harness::new(false);
            server.run("SET k 1234");
            server.run(line);
            assert_eq!(server.run("OBJECT ENCODING k"), expected, "{line}");
        }
    }
}
