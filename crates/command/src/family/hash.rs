//! Hashes, field by field.

use resp::{Args, Reply};
use value::long_double::{self, FloatError, LongDouble};
use value::{Kind, parse_i64};

use crate::collection::{Hash, HashMut, LONG_BYTES};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::logged::Arg;
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const READ_VALUES: Flags = READ.and(Flags::REPLIES_VALUES);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const GROW: Flags = WRITE.and(Flags::DENYOOM);

const LOOKED_AT: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO, Needs::Value)];
const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];
const SET: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];
const INSERTED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::INSERT), Needs::Value)];
const DELETED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::DELETE), Needs::Value)];
const ADDED_TO: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE), Needs::Value)];

/// Pairs that HSET adds to a hash in one leaf before it looks whether that is to be divided.
const PAIRS_AT_ONCE: usize = 64;

const NOT_INTEGER: CommandError = fixed("ERR hash value is not an integer");
const NOT_FLOAT: CommandError = fixed("ERR hash value is not a float");
const NOT_FINITE_INCREMENT: CommandError = fixed("ERR value is NaN or Infinity");
const NOT_FINITE: CommandError = fixed("ERR increment would produce NaN or Infinity");
const OVERFLOW: CommandError = fixed("ERR increment or decrement would overflow");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "HGET",
        arity: 3,
        flags: READ_VALUES,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Returns the value of a field of a hash.",
            complexity: "O(1)",
            syntax: "key field",
        },
        run: hget,
    },
    Command {
        name: "HMGET",
        arity: -3,
        flags: READ_VALUES,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Returns the values of several fields of a hash.",
            complexity: "O(N) for N fields",
            syntax: "key field [field ...]",
        },
        run: hmget,
    },
    Command {
        name: "HEXISTS",
        arity: 3,
        flags: READ,
        keys: LOOKED_AT,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Tells whether a hash has a field.",
            complexity: "O(1)",
            syntax: "key field",
        },
        run: hexists,
    },
    Command {
        name: "HSTRLEN",
        arity: 3,
        flags: READ,
        keys: LOOKED_AT,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "3.2.0",
            summary: "Returns the length of the value of a field of a hash.",
            complexity: "O(1)",
            syntax: "key field",
        },
        run: hstrlen,
    },
    Command {
        name: "HLEN",
        arity: 2,
        flags: READ,
        keys: LOOKED_AT,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Counts the fields of a hash.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: hlen,
    },
    Command {
        name: "HSET",
        arity: -4,
        flags: GROW,
        keys: SET,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Sets fields of a hash, which is made if there is none.",
            complexity: "O(N) for N fields",
            syntax: "key field value [field value ...]",
        },
        run: hset,
    },
    Command {
        name: "HMSET",
        arity: -4,
        flags: GROW,
        keys: SET,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Sets fields of a hash, as HSET does, and replies OK.",
            complexity: "O(N) for N fields",
            syntax: "key field value [field value ...]",
        },
        run: hmset,
    },
    Command {
        name: "HSETNX",
        arity: 4,
        flags: GROW,
        keys: INSERTED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Sets a field of a hash that does not have it yet.",
            complexity: "O(1)",
            syntax: "key field value",
        },
        run: hsetnx,
    },
    Command {
        name: "HDEL",
        arity: -3,
        flags: WRITE,
        keys: DELETED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Removes fields of a hash; one without fields is no key.",
            complexity: "O(N) for N fields",
            syntax: "key field [field ...]",
        },
        run: hdel,
    },
    Command {
        name: "HINCRBY",
        arity: 4,
        flags: GROW,
        keys: ADDED_TO,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.0.0",
            summary: "Adds a number to the integer value of a field; a missing one counts as 0.",
            complexity: "O(1)",
            syntax: "key field increment",
        },
        run: hincrby,
    },
    Command {
        name: "HINCRBYFLOAT",
        arity: 4,
        flags: GROW,
        keys: ADDED_TO,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "2.6.0",
            summary: "Adds a number to the floating point value of a field; a missing one counts as 0.",
            complexity: "O(1)",
            syntax: "key field increment",
        },
        run: hincrbyfloat,
    },
];

fn hget(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let mut hash = cx.read_hash(&key)?;
    match get(&mut hash, &args[2])? {
        Some(value) if reply.full_len() + value.len() > reply_bytes_max => {
            return Err(CommandError::too_long_of(&key, value.len() as u64));
        }
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
    Ok(())
}

/// The value of a field of a hash that may not exist.
fn get<'h>(hash: &'h mut Option<Hash<'_>>, field: &[u8]) -> Result<Option<&'h [u8]>, CommandError> {
    match hash {
        Some(hash) => hash.get(field),
        None => Ok(None),
    }
}

fn hmget(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let mut hash = cx.read_hash(&key)?;
    if let Some(hash) = &mut hash {
        hash.announce(args.from(2).iter())?;
    }
    reply.array(args.len() - 2);
    let mut left_out = 0;
    for field in args.from(2).iter() {
        match get(&mut hash, field)? {
            Some(value) if reply.full_len() + value.len() > reply_bytes_max => {
                left_out += value.len();
            }
            Some(value) => reply.bulk(value),
            None => reply.null(),
        }
    }
    match left_out {
        0 => Ok(()),
        _ => Err(CommandError::too_long_of(&key, (reply.full_len() + left_out) as u64)),
    }
}

fn hexists(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let exists = get(&mut cx.read_hash(&key)?, &args[2])?.is_some();
    reply.integer(i64::from(exists));
    Ok(())
}

fn hstrlen(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let len = get(&mut cx.read_hash(&key)?, &args[2])?.map_or(0, <[u8]>::len);
    reply.integer(len as i64);
    Ok(())
}

fn hlen(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let len = cx.read_hash(&key)?.map_or(0, |hash| hash.len());
    reply.integer(len as i64);
    Ok(())
}

fn hset(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let created = set_all(cx, args, "hset")?;
    reply.integer(created);
    Ok(())
}

fn hmset(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set_all(cx, args, "hmset")?;
    reply.ok();
    Ok(())
}

/// Sets the fields that the arguments name. Returns how many are new.
fn set_all(cx: &mut Cx<'_, '_>, args: Args<'_>, command: &str) -> Result<i64, CommandError> {
    if args.len() % 2 == 1 {
        let text = format!("ERR wrong number of arguments for '{command}' command");
        return Err(CommandError::owned(text));
    }
    let key = cx.key(0);
    let created = set_pairs(cx, args.from(2), |hash, field, value| hash.set(field, value))?;
    cx.report(&key, Event::HSET, args.len() as u64 / 2 - 1);
    Ok(created as i64)
}

/// Sets fields, each with its value behind it, with `set`, which says whether a field is new. Returns how many
/// are.
pub(super) fn set_pairs(
    cx: &mut Cx<'_, '_>,
    args: Args<'_>,
    mut set: impl FnMut(&mut HashMut<'_, '_>, &[u8], &[u8]) -> bool,
) -> Result<usize, CommandError> {
    let (key, pairs) = (cx.key(0), args.len() / 2);
    // A hash in one leaf must not grow long before it is divided; and nothing is changed before all
    // leaves are there, which the first round looks for.
    if args.have_long(LONG_BYTES) {
        cx.spread(&key, Kind::is_hash)?;
    }
    let mut created = 0;
    let mut first = 0;
    while first < pairs {
        let end = pairs.min(first + PAIRS_AT_ONCE);
        let announced = if first == 0 { 0..pairs } else { first..end };
        let fields = announced.map(|pair| &args[2 * pair]);
        created += cx.edit_hash(&key, fields, |hash| {
            let set = |pair: &usize| set(hash, &args[2 * pair], &args[2 * pair + 1]);
            (first..end).filter(set).count()
        })?;
        first = end;
    }
    Ok(created)
}

fn hsetnx(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let exists = get(&mut cx.read_hash(&key)?, &args[2])?.is_some();
    if !exists {
        if args.from(2).have_long(LONG_BYTES) {
            cx.spread(&key, Kind::is_hash)?;
        }
        cx.edit_hash(&key, args.from(2).iter().take(1), |hash| hash.set(&args[2], &args[3]))?;
        cx.report(&key, Event::HSET, 1);
    }
    reply.integer(i64::from(!exists));
    Ok(())
}

fn hdel(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (key, fields) = (cx.key(0), args.from(2));
    let removed = cx.edit_hash(&key, fields.iter(), |hash| {
        fields.iter().filter(|field| hash.remove(field)).count()
    })?;
    if removed > 0 {
        cx.report(&key, Event::HDEL, removed as u64);
        cx.report_if_gone(&key);
    }
    reply.integer(removed as i64);
    Ok(())
}

fn hincrby(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let increment = parse_i64(&args[3]).ok_or(CommandError::NOT_INTEGER)?;
    let key = cx.key(0);
    let new = cx.change_field(&key, &args[2], |old, new| {
        let old = old.map_or(Some(0), parse_i64).ok_or(NOT_INTEGER)?;
        let sum = old.checked_add(increment).ok_or(OVERFLOW)?;
        new.extend_from_slice(itoa::Buffer::new().format(sum).as_bytes());
        Ok(sum)
    })?;
    cx.report(&key, Event::HINCRBY, 1);
    reply.integer(new);
    Ok(())
}

fn hincrbyfloat(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let increment = LongDouble::parse(&args[3]).ok_or(CommandError::NOT_FLOAT)?;
    if !increment.is_finite() {
        return Err(NOT_FINITE_INCREMENT);
    }
    let key = cx.key(0);
    let new = cx.change_field(&key, &args[2], |old, new| {
        let sum =
            long_double::increment(old.unwrap_or(b"0"), &args[3]).map_err(|error| match error {
                FloatError::NotAFloat => NOT_FLOAT,
                FloatError::NotFinite => NOT_FINITE,
            })?;
        new.extend_from_slice(sum.as_bytes());
        Ok(sum)
    })?;
    cx.report(&key, Event::HINCRBYFLOAT, 1);
    // Unlike HSET, it leaves the field's expiry.
    let [set, keep, fields] = [&b"HSETEX"[..], b"KEEPTTL", b"FIELDS"].map(Arg::Bytes);
    let (field, sum) = (Arg::Sent(2), Arg::Bytes(new.as_bytes()));
    cx.log_as(&[set, Arg::Sent(1), keep, fields, Arg::Number(1), field, sum]);
    reply.bulk(new.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";

    #[test]
    fn fields_are_set_read_and_removed() {
        check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HSET h b 3 c 4 c 5", ":1"),
            ("HGET h b", "$1 3"),
            ("HGET h c", "$1 5"),
            ("HGET h d", "_"),
            ("HGET missing d", "_"),
            ("HMGET h a d c", "[$1 1, _, $1 5]"),
            ("HMGET missing a b", "[_, _]"),
            ("HLEN h", ":3"),
            ("HLEN missing", ":0"),
            ("HEXISTS h a", ":1"),
            ("HEXISTS h d", ":0"),
            ("HSTRLEN h a", ":1"),
            ("HSTRLEN h d", ":0"),
            ("HSETNX h a 9", ":0"),
            ("HSETNX h d ''", ":1"),
            ("HGET h d", "$0"),
            ("HMSET h a 7", "+OK"),
            ("HDEL h x", ":0"),
            ("HDEL h a x a b", ":2"),
            ("TYPE h", "+hash"),
            ("HDEL h c d", ":2"),
            ("EXISTS h", ":0"),
            ("HDEL h c", ":0"),
            ("TYPE h", "+none"),
        ]);
    }

    #[test]
    fn long_values_leave_ram_and_come_back() {
        let set = format!("HSET h f {LONG} g {LONG}x");
        let value = format!("$70 {LONG}");
        check(&[
            (&set, ":2"),
            ("HGET h f", &value),
            ("HSET h new 1", ":1"),
            ("HMGET h f new", &format!("[{value}, $1 1]")),
            ("HDEL h f", ":1"),
            ("HSTRLEN h g", ":71"),
            ("HLEN h", ":2"),
        ]);
    }

    #[test]
    fn numbers_are_added_to() {
        check(&[
            ("HINCRBY h n 5", ":5"),
            ("HINCRBY h n -7", ":-2"),
            ("HINCRBY h n 9223372036854775807", ":9223372036854775805"),
            ("HINCRBY h n 3", "-ERR increment or decrement would overflow"),
            ("HINCRBY h n x", "-ERR value is not an integer or out of range"),
            ("HSET h s text f 10.50", ":2"),
            ("HINCRBY h s 1", "-ERR hash value is not an integer"),
            ("HINCRBYFLOAT h s 1", "-ERR hash value is not a float"),
            ("HINCRBYFLOAT h f 0.1", "$4 10.6"),
            ("HINCRBYFLOAT h new 3.0e3", "$4 3000"),
            ("HINCRBYFLOAT h f x", "-ERR value is not a valid float"),
            ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
        ]);
    }

    #[test]
    fn other_types_and_wrong_arguments_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SET s text", "+OK"),
            ("HSET h f v", ":1"),
            ("HGET s f", wrong),
            ("HSET s f v", wrong),
            ("HDEL s f", wrong),
            ("HINCRBY s f 1", wrong),
            ("GET h", wrong),
            ("APPEND h x", wrong),
            ("INCR h", wrong),
            ("GETRANGE h 0 1", wrong),
            ("STRLEN h", wrong),
            ("SETBIT h 0 1", wrong),
            ("MGET h s", "[_, $4 text]"),
            ("HSET h f", "-ERR wrong number of arguments for 'hset' command"),
            ("HSET h f v g", "-ERR wrong number of arguments for 'hset' command"),
            ("HMSET h f v g", "-ERR wrong number of arguments for 'hmset' command"),
            ("SET h text", "+OK"),
            ("TYPE h", "+string"),
        ]);
    }

    #[test]
    fn encodings_follow_from_the_limits() {
        let many: String = (0..513).map(|number| format!(" f{number} v")).collect();
        let set_many = format!("HSET many{many}");
        check(&[
            ("HSET h f v", ":1"),
            ("OBJECT ENCODING h", "$8 listpack"),
            (&format!("HSET h g {}", &LONG[..64]), ":1"),
            ("OBJECT ENCODING h", "$8 listpack"),
            (&format!("HSET h g {}", &LONG[..65]), ":0"),
            ("OBJECT ENCODING h", "$9 hashtable"),
            ("HDEL h g", ":1"),
            ("OBJECT ENCODING h", "$9 hashtable"),
            (&set_many, ":513"),
            ("OBJECT ENCODING many", "$9 hashtable"),
        ]);
    }

    #[test]
    fn keys_of_hashes_are_carried_and_expire_as_others() {
        let mut server = Harness::new(true);
        for (line, expected) in [
            ("HSET h f v", ":1"),
            ("EXPIRE h 100", ":1"),
            ("HSET h g w", ":1"),
            ("TTL h", ":100"),
            ("COPY h copy", ":1"),
            ("RENAME h other", "+OK"),
            ("HGET other g", "$1 w"),
            ("HGET copy f", "$1 v"),
        ] {
            assert_eq!(server.run(line), expected, "{line}");
        }
        server.now_ms += 100_000;
        assert_eq!(server.run("EXISTS other copy"), ":0");
    }

    /// A hash of many leaves, made in steps that divide leaves and branches, and unmade again.
    #[test]
    fn large_hashes_do_what_small_ones_do() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            let fields = if demote { 2_000 } else { 20_000 };
            for first in (0..fields).step_by(100) {
                let pairs: String = (first..first + 100)
                    .map(|number| format!(" f{number} v{number}-{LONG}"))
                    .collect();
                assert_eq!(server.run(&format!("HSET h{pairs}")), ":100");
            }
            assert_eq!(server.run("HLEN h"), format!(":{fields}"));
            assert_eq!(server.run("OBJECT ENCODING h"), "$9 hashtable");
            assert!(server.nodes() > fields / 40, "{} nodes", server.nodes());
            for number in (0..fields).step_by(37) {
                let value = format!("v{number}-{LONG}");
                let expected = format!("${} {value}", value.len());
                assert_eq!(server.run(&format!("HGET h f{number}")), expected);
            }
            assert_eq!(server.run("HGET h none"), "_");
            assert_eq!(server.run("HMGET h f1 none f2"), {
                let value = |number: u32| format!("$73 v{number}-{LONG}");
                format!("[{}, _, {}]", value(1), value(2))
            });
            assert_eq!(server.run("HINCRBY h counter 5"), ":5");
            assert_eq!(server.run("HINCRBY h counter 5"), ":10");
            // Written over where it stands, and in a leaf with an expiry not.
            assert_eq!(server.run("HINCRBY h counter 5"), ":15");
            assert_eq!(server.run("HGET h counter"), "$2 15");
            assert_eq!(server.run("HINCRBY h f1 1"), "-ERR hash value is not an integer");
            assert_eq!(server.run("HPEXPIRE h 10000 FIELDS 1 counter"), "[:1]");
            assert_eq!(server.run("HINCRBYFLOAT h counter 1"), "$2 16");
            assert_eq!(server.run("HPTTL h FIELDS 1 counter"), "[:10000]");
            assert_eq!(server.run("HDEL h counter none f0"), ":2");
            assert_eq!(server.run("COPY h copy"), ":1");
            assert_eq!(server.run("RENAME h other"), "+OK");
            assert_eq!(server.run("HLEN copy"), format!(":{}", fields - 1));
            assert_eq!(server.run("DEL copy"), ":1");
            for number in 1..fields {
                assert_eq!(server.run(&format!("HDEL other f{number}")), ":1", "f{number}");
            }
            assert_eq!(server.run("EXISTS h other copy"), ":0");
            assert_eq!(server.nodes(), 0);
            server.check_counts();
        }
    }

    /// Long values among short ones: a leaf falls into several parts, now and then when its branch is full.
    #[test]
    fn branches_count_right_when_a_leaf_falls_into_many_parts() {
        let mut server = Harness::new(false);
        let long = LONG.repeat(70);
        for number in 0..6_000 {
            server.run(&format!("HSET h f{number} {LONG}"));
            if number % 10 == 0 {
                server.run(&format!("HSET h long{number} {long}"));
            }
        }
        // Picks by position what branches count.
        let shown = server.run("HRANDFIELD h 10000");
        assert_eq!(shown.matches(", ").count(), 6_600 - 1);
        for number in 0..6_000 {
            assert_eq!(server.run(&format!("HDEL h f{number} long{number}")).len(), 2);
        }
        assert_eq!((server.run("EXISTS h"), server.nodes()), (":0".to_owned(), 0));
    }

    /// Of two fields named, one was the last of its leaf, and the other is not there: it falls to a
    /// neighbour on flash.
    #[test]
    fn fields_named_twice_are_removed_once_wherever_their_neighbours_are() {
        let mut server = Harness::new(true);
        let mut fields: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
        for field in &fields {
            server.run(&format!("HSET h {field} {LONG}"));
        }
        // Leaf by leaf, so that the others stay as they are.
        fields.sort_unstable_by_key(|field| value::leaf::element_hash(field.as_bytes()));
        for field in &fields {
            assert_eq!(server.run(&format!("HDEL h {field} {field}")), ":1", "{field}");
        }
        assert_eq!(server.nodes(), 0);
    }

    #[test]
    fn a_large_hash_that_is_overwritten_or_expires_leaves_no_node() {
        let pairs: String = (0..500).map(|number| format!(" f{number} {LONG}")).collect();
        let mut server = Harness::new(true);
        for end in ["SET h v", "DEL h", "EXPIRE h 1", "FLUSHALL", "GETDEL h", "RENAME s h"] {
            server.run("DEL h");
            server.run("SET s v");
            server.run(&format!("HSET h{pairs}"));
            assert!(server.nodes() > 10, "{end}");
            let is_wrong_type = server.run(end).starts_with("-WRONGTYPE");
            server.now_ms += 2_000;
            server.run("GET h");
            assert_eq!(server.nodes() == 0, !is_wrong_type, "{end}");
        }
    }
}
