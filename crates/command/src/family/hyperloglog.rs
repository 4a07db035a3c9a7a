//! HyperLogLogs: how many different elements were added, estimated.

use keyspace::Expiry;
use resp::{Args, Reply};
use value::Kind;
use value::hyperloglog::{self as hll, Corrupted, Encoding, REGISTERS, Union, Wish};

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed, quoted};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const ADDED_TO: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)];
/// What was estimated is kept with the value.
const COUNTED: &[KeySpec] =
    &[KeySpec::from(1, 1, KeyFlags::RW.and(KeyFlags::ACCESS), Needs::Value)];
const MERGED: &[KeySpec] = &[
    KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::INSERT), Needs::Value),
    KeySpec::from(2, 1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value),
];
const INSPECTED: &[KeySpec] = &[KeySpec::at(2, KeyFlags::RW.and(KeyFlags::ACCESS), Needs::Value)];

const RAW: Kind = Kind::string(value::string::Encoding::Raw);

const NOT_ONE: CommandError = fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPTED: CommandError = fixed("INVALIDOBJ Corrupted HLL object detected");
const NO_KEY: CommandError = fixed("ERR The specified key does not exist");
const NOT_SPARSE: CommandError = fixed("ERR HLL encoding is not sparse");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "PFADD",
        arity: -2,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: ADDED_TO,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::HyperLogLog,
            since: "2.8.9",
            summary: "Adds elements to a HyperLogLog, which is made if there is none.",
            complexity: "O(1) an element",
            syntax: "key [element [element ...]]",
        },
        run: pfadd,
    },
    Command {
        name: "PFCOUNT",
        arity: -2,
        flags: Flags::READONLY,
        keys: COUNTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::HyperLogLog,
            since: "2.8.9",
            summary: "Estimates how many different elements HyperLogLogs have, together.",
            complexity: "O(1) for a key whose estimate is kept, else O(N) for N keys",
            syntax: "key [key ...]",
        },
        run: pfcount,
    },
    Command {
        name: "PFMERGE",
        arity: -2,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: MERGED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::HyperLogLog,
            since: "2.8.9",
            summary: "Adds the elements of HyperLogLogs to another.",
            complexity: "O(N) for N keys",
            syntax: "destkey sourcekey [sourcekey ...]",
        },
        run: pfmerge,
    },
    Command {
        name: "PFDEBUG",
        arity: 3,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::ADMIN),
        keys: INSPECTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::HyperLogLog,
            since: "2.8.9",
            summary: "Shows how a HyperLogLog is kept (GETREG, DECODE, ENCODING), or makes it dense (TODENSE).",
            complexity: "O(1)",
            syntax: "subcommand key",
        },
        run: pfdebug,
    },
    Command {
        name: "PFSELFTEST",
        arity: 1,
        flags: Flags::ADMIN,
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::HyperLogLog,
            since: "2.8.9",
            summary: "Checks that estimates are near what was added, in both encodings.",
            complexity: "O(1)",
            syntax: "",
        },
        run: pfselftest,
    },
];

impl From<Corrupted> for CommandError {
    fn from(_: Corrupted) -> Self {
        CORRUPTED
    }
}

/// The bytes of a HyperLogLog, and its encoding.
fn read<'c>(
    cx: &'c mut Cx<'_, '_>,
    index: usize,
) -> Result<Option<(&'c [u8], Encoding)>, CommandError> {
    let key = cx.key(index);
    let Some(bytes) = cx.read_string(&key)? else { return Ok(None) };
    Ok(Some((bytes, hll::encoding(bytes).ok_or(NOT_ONE)?)))
}

/// The bytes of a sparse one, to be changed. Errors: it is so long that it cannot be sound.
fn copy_sparse(bytes: &[u8]) -> Result<Vec<u8>, CommandError> {
    if bytes.len() > hll::SPARSE_BYTES_MAX {
        return Err(CORRUPTED);
    }
    // With room for an element.
    let mut copy = Vec::with_capacity(bytes.len() + hll::RAISED_BYTES_MAX);
    copy.extend_from_slice(bytes);
    Ok(copy)
}

fn pfadd(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let sparse_bytes_max = cx.encodings.hyperloglog_sparse_bytes_max();
    let mut wishes = args.from(2).iter().map(Wish::of);
    let (mut bytes, is_new) = match read(cx, 0)? {
        None => (hll::empty(), true),
        Some((bytes, Encoding::Sparse)) => (copy_sparse(bytes)?, false),
        Some((bytes, Encoding::Dense)) => {
            // Most elements change nothing, and the value may have a copy on flash that stays true.
            let first = wishes.find(|wish| hll::dense_lacks(bytes, *wish));
            if let Some(first) = first {
                let bytes = cx.value_mut(&key)?;
                let raised = [first].into_iter().chain(wishes);
                let raised = raised.filter(|wish| hll::raise_dense(bytes, *wish)).count();
                hll::forget_cardinality(bytes);
                cx.report(&key, Event::PFADD, raised as u64);
            }
            reply.integer(i64::from(first.is_some()));
            return Ok(());
        }
    };
    let mut raised = usize::from(is_new);
    for wish in wishes {
        raised += usize::from(hll::raise(&mut bytes, wish, sparse_bytes_max)?);
    }
    if raised > 0 {
        hll::forget_cardinality(&mut bytes);
        cx.set_string_vec(&key, RAW, bytes, Expiry::Keep);
        cx.report(&key, Event::PFADD, raised as u64);
    }
    reply.integer(i64::from(raised > 0));
    Ok(())
}

fn pfcount(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let cardinality = match cx.keys {
        [_] => count_one(cx)?,
        _ => unite(cx)?.0.cardinality(),
    };
    reply.integer(cardinality as i64);
    Ok(())
}

/// The cardinality of the only key, kept from an earlier time or from now on.
fn count_one(cx: &mut Cx<'_, '_>) -> Result<u64, CommandError> {
    let key = cx.key(0);
    let Some((bytes, _)) = read(cx, 0)? else { return Ok(0) };
    if let Some(cached) = hll::cached_cardinality(bytes) {
        return Ok(cached);
    }
    let cardinality = hll::cardinality(bytes)?;
    hll::cache_cardinality(cx.value_mut(&key)?, cardinality);
    cx.effects.changes += 1;
    Ok(cardinality)
}

/// The registers of all keys together, and whether one is dense.
fn unite(cx: &mut Cx<'_, '_>) -> Result<(Union, bool), CommandError> {
    let (mut union, mut is_dense) = (Union::default(), false);
    for index in 0..cx.keys.len() {
        cx.count_read(&cx.key(index));
        if let Some((bytes, encoding)) = read(cx, index)? {
            is_dense |= encoding == Encoding::Dense;
            union.add(bytes)?;
        }
    }
    Ok((union, is_dense))
}

fn pfmerge(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let (union, is_dense) = unite(cx)?;
    let mut bytes = read(cx, 0)?.map_or_else(hll::empty, |(bytes, _)| bytes.to_vec());
    if is_dense {
        hll::make_dense(&mut bytes)?;
    }
    let sparse_bytes_max = cx.encodings.hyperloglog_sparse_bytes_max();
    for wish in union.wishes() {
        hll::raise(&mut bytes, wish, sparse_bytes_max)?;
    }
    hll::forget_cardinality(&mut bytes);
    cx.set_string_vec(&key, RAW, bytes, Expiry::Keep);
    cx.report(&key, Event::PFADD, 1);
    reply.ok();
    Ok(())
}

fn pfdebug(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let (bytes, encoding) = read(cx, 0)?.ok_or(NO_KEY)?;
    let is = |name: &str| args[1].eq_ignore_ascii_case(name.as_bytes());
    if is("GETREG") || is("TODENSE") {
        let made = match encoding {
            Encoding::Sparse => Some(hll::dense_of(bytes)?),
            Encoding::Dense => None,
        };
        if is("TODENSE") {
            reply.integer(i64::from(encoding == Encoding::Sparse));
        } else {
            reply.array(REGISTERS);
            let registers = hll::dense_registers(made.as_deref().unwrap_or(bytes));
            registers.for_each(|value| reply.integer(i64::from(value)));
        }
        if let Some(made) = made {
            cx.set_string_vec(&key, RAW, made, Expiry::Keep);
            cx.effects.changes += 1;
        }
    } else if is("DECODE") {
        if encoding != Encoding::Sparse {
            return Err(NOT_SPARSE);
        }
        reply.bulk(decoded(bytes).as_bytes());
    } else if is("ENCODING") {
        let names = match encoding {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        };
        reply.simple(names);
    } else {
        return Err(CommandError::owned(format!(
            "ERR Unknown PFDEBUG subcommand '{}'",
            quoted(&args[1])
        )));
    }
    Ok(())
}

/// The opcodes of a sparse one in words.
fn decoded(bytes: &[u8]) -> String {
    let words = hll::opcodes(bytes).map(|opcode| match (opcode.value, opcode.is_long) {
        (0, false) => format!("z:{}", opcode.registers),
        (0, true) => format!("Z:{}", opcode.registers),
        (value, _) => format!("v:{value},{}", opcode.registers),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Elements that the self-test adds: so few that nobody waits for it for long.
const SELF_TEST_ELEMENTS: u64 = 100_000;

fn pfselftest(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let failed = |what: String| CommandError::owned(format!("ERR TESTFAILED {what}"));
    let sparse_bytes_max = cx.encodings.hyperloglog_sparse_bytes_max();
    let (mut sparse, mut dense) = (hll::empty(), hll::empty());
    hll::make_dense(&mut dense)?;
    let mut checkpoint = 1;
    for number in 1..=SELF_TEST_ELEMENTS {
        let wish = Wish::of(&(number ^ cx.random).to_le_bytes());
        hll::raise_dense(&mut dense, wish);
        hll::raise(&mut sparse, wish, sparse_bytes_max)?;
        if number < checkpoint {
            continue;
        }
        let cardinality = hll::cardinality(&dense)?;
        if number < sparse_bytes_max as u64 / 4 && hll::encoding(&sparse) != Some(Encoding::Sparse)
        {
            return Err(failed("sparse encoding not used".to_owned()));
        }
        if cardinality != hll::cardinality(&sparse)? {
            return Err(failed("dense/sparse disagree".to_owned()));
        }
        // Six times the standard error. Two of ten elements may well ask for the same.
        let error_max = (checkpoint as f64 * 6.0 * 1.04 / (REGISTERS as f64).sqrt()).ceil() as u64;
        let error = cardinality.abs_diff(number);
        if error > error_max.max(1) {
            return Err(failed(format!("Too big error. card:{number} abserr:{error}")));
        }
        checkpoint *= 10;
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check, check_events};

    #[test]
    fn changes_are_told() {
        check_events(&[
            ("PFADD h a", "new h, pfadd h"),
            ("PFADD h a", ""),
            ("PFCOUNT h", ""),
            ("PFCOUNT x", "keymiss x"),
            ("PFDEBUG TODENSE h", ""),
            ("PFADD h b", "pfadd h"),
            ("PFMERGE o h x", "keymiss o, keymiss x, new o, pfadd o"),
        ]);
    }

    #[test]
    fn elements_are_counted_once() {
        check(&[
            ("PFADD h", ":1"),
            ("PFADD h", ":0"),
            ("PFCOUNT h", ":0"),
            ("PFADD h a b c", ":1"),
            ("PFADD h b a", ":0"),
            ("PFADD h ''", ":1"),
            ("PFCOUNT h", ":4"),
            ("PFCOUNT h", ":4"),
            ("TYPE h", "+string"),
            ("OBJECT ENCODING h", "$3 raw"),
            ("PFCOUNT missing", ":0"),
            ("PFCOUNT missing h other", ":4"),
            ("EXISTS missing other", ":0"),
            ("EXPIRE h 100", ":1"),
            ("PFADD h d", ":1"),
            ("TTL h", ":100"),
        ]);
    }

    #[test]
    fn bytes_are_those_of_redis() {
        check(&[
            ("PFADD h a b foo", ":1"),
            (
                "GET h",
                r"$27 HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\\\xb3\x90T\xf1\x84K\xfb\x80BZ",
            ),
            ("PFDEBUG DECODE h", "$44 Z:7348 v:5,1 Z:5362 v:2,1 Z:3068 v:1,1 Z:603"),
            ("PFCOUNT h", ":3"),
            ("GETRANGE h 8 15", r"$8 \x03\x00\x00\x00\x00\x00\x00\x00"),
            ("PFADD h a", ":0"),
            ("GETRANGE h 8 15", r"$8 \x03\x00\x00\x00\x00\x00\x00\x00"),
            ("PFADD h c", ":1"),
            ("GETRANGE h 8 15", r"$8 \x03\x00\x00\x00\x00\x00\x00\x80"),
        ]);
    }

    #[test]
    fn merging_keeps_what_each_has() {
        check(&[
            ("PFADD h1 a b c", ":1"),
            ("PFADD h2 b c d", ":1"),
            ("PFMERGE h h1 h2 missing", "+OK"),
            ("PFCOUNT h", ":4"),
            ("PFCOUNT h1 h2", ":4"),
            ("PFDEBUG ENCODING h", "+sparse"),
            ("PFDEBUG TODENSE h2", ":1"),
            ("PFDEBUG TODENSE h2", ":0"),
            ("PFADD h1 e", ":1"),
            ("PFMERGE h h1 h2", "+OK"),
            ("PFDEBUG ENCODING h", "+dense"),
            ("PFCOUNT h", ":5"),
            ("STRLEN h", ":12304"),
            ("PFADD h a b c d e", ":0"),
            ("PFADD h a f", ":1"),
            ("PFCOUNT h", ":6"),
            ("PFCOUNT h h1", ":6"),
            ("PFMERGE new", "+OK"),
            ("PFCOUNT new", ":0"),
            ("STRLEN new", ":18"),
        ]);
    }

    #[test]
    fn long_ones_become_dense() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            for first in (0..4_000).step_by(100) {
                let elements: String =
                    (first..first + 100).map(|number| format!(" {number}")).collect();
                assert_eq!(server.run(&format!("PFADD h{elements}")), ":1");
                let len: usize = server.run("STRLEN h")[1..].parse().expect("a number");
                let encoding = if len == 12_304 { "+dense" } else { "+sparse" };
                assert!(len <= 3_000 || len == 12_304);
                assert_eq!(server.run("PFDEBUG ENCODING h"), encoding);
            }
            assert_eq!(server.run("PFDEBUG ENCODING h"), "+dense");
            assert_eq!(server.run("PFDEBUG DECODE h"), "-ERR HLL encoding is not sparse");
            let count: i64 = server.run("PFCOUNT h")[1..].parse().expect("a number");
            assert!((count - 4_000).abs() < 80, "{count}");
            assert_eq!(server.run("PFDEBUG GETREG h").matches(',').count(), 16_383);
            assert_eq!(server.run("PFSELFTEST"), "+OK");
        }
    }

    #[test]
    fn other_values_are_refused() {
        let none = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        let corrupted = "-INVALIDOBJ Corrupted HLL object detected";
        check(&[
            ("SET s bar", "+OK"),
            ("HSET hash f v", ":1"),
            ("PFADD s 1", none),
            ("PFCOUNT s", none),
            ("PFMERGE new s", none),
            ("PFMERGE s new", none),
            ("PFADD hash 1", wrong),
            ("PFCOUNT s hash", none),
            ("PFDEBUG ENCODING hash", wrong),
            ("PFDEBUG ENCODING new", "-ERR The specified key does not exist"),
            ("EXISTS new", ":0"),
            ("PFADD h a b c", ":1"),
            ("PFDEBUG x h", "-ERR Unknown PFDEBUG subcommand 'x'"),
            ("APPEND h hello", "*"),
            ("PFCOUNT h", corrupted),
            ("PFCOUNT h h", corrupted),
            ("PFMERGE h", corrupted),
            ("PFDEBUG TODENSE h", corrupted),
            ("SETRANGE h 4 x", "*"),
            ("PFCOUNT h", none),
            (r"SETRANGE h 4 '\x00'", "*"),
            ("PFCOUNT h", none),
            ("PFADD", "-ERR wrong number of arguments for 'pfadd' command"),
        ]);
    }
}
