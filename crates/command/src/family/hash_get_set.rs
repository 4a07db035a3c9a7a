//! HGETDEL, HGETEX, HSETEX: fields of hashes answered or set, and what becomes of them then.
//!
//! As in Redis 8.0, which brought them.

use std::collections::HashSet;

use resp::{Args, Reply};

use super::hash::set_pairs;
use super::hash_expiry::{NO_COUNT, Time, is_there, parse_fields};
use crate::collection::{ExpiryChange, ExpiryCondition, HashMut};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed, quoted};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const ACCESS: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS);

const ONE_EXPIRY: CommandError =
    fixed("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified");
const ONE_CONDITION: CommandError = fixed("ERR Only one of FXX or FNX arguments can be specified");
const NO_TIME: CommandError = fixed("ERR missing expire time");
const NO_FIELDS: CommandError = fixed("ERR missing FIELDS argument");
const SECOND_FIELDS: CommandError = fixed("ERR FIELDS keyword specified multiple times");
const BAD_COUNT: CommandError = fixed("ERR invalid number of fields");
const WRONG_COUNT: CommandError = fixed("ERR wrong number of arguments for 'hsetex' command");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "HGETDEL",
        arity: -5,
        flags: WRITE.and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(1, ACCESS.and(KeyFlags::DELETE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "8.0.0",
            summary: "Returns the values of fields of a hash and removes them.",
            complexity: "O(N) for N fields",
            syntax: "key FIELDS numfields field [field ...]",
        },
        run: hgetdel,
    },
    Command {
        name: "HGETEX",
        arity: -5,
        flags: WRITE.and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(1, ACCESS.and(KeyFlags::UPDATE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "8.0.0",
            summary: "Returns the values of fields of a hash and sets when they expire.",
            complexity: "O(N) for N fields",
            syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] FIELDS numfields field [field ...]",
        },
        run: hgetex,
    },
    Command {
        name: "HSETEX",
        arity: -6,
        flags: WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "8.0.0",
            summary: "Sets fields of a hash and when they expire.",
            complexity: "O(N) for N fields",
            syntax: "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
        },
        run: hsetex,
    },
];

/// What becomes of the expiry of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// It is taken away where the field is set, else left.
    None,
    /// It stays.
    Keep,
    /// It is taken away.
    Persist,
    /// Unix milliseconds.
    At(u64),
}

/// How an option counts the time that stands behind it.
fn time_of(option: &[u8]) -> Option<Time> {
    let is = |other: &str| option.eq_ignore_ascii_case(other.as_bytes());
    match () {
        () if is("EX") => Some(Time::Seconds),
        () if is("PX") => Some(Time::Milliseconds),
        () if is("EXAT") => Some(Time::UnixSeconds),
        () if is("PXAT") => Some(Time::UnixMilliseconds),
        () => None,
    }
}

/// Replies with the values of fields, of those that are to be removed each once. Returns whether any is there.
///
/// Errors: [`CommandError::ReplyTooLong`], those of [`Cx::read_hash`].
fn write_values(
    cx: &mut Cx<'_, '_>,
    (fields, are_removed): (Args<'_>, bool),
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let (key, reply_bytes_max) = (cx.key(0), cx.reply_bytes_max);
    let mut hash = cx.read_hash(&key)?;
    if let Some(hash) = &mut hash {
        hash.announce(fields.iter())?;
    }
    let (mut removed, mut left_out, mut is_any) = (HashSet::new(), 0, false);
    reply.array(fields.len());
    for field in fields.iter() {
        let value = hash.as_mut().map_or(Ok(None), |hash| hash.get(field))?;
        match value.filter(|_| !are_removed || removed.insert(field)) {
            Some(value) if reply.full_len() + value.len() > reply_bytes_max => {
                left_out += value.len();
            }
            Some(value) => reply.bulk(value),
            None => reply.null(),
        }
        is_any |= value.is_some();
    }
    match left_out {
        0 => Ok(is_any),
        _ => Err(CommandError::too_long_of(&key, (reply.full_len() + left_out) as u64)),
    }
}

fn hgetdel(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    is_there(cx)?;
    let fields = parse_fields(args.from(2), NO_COUNT)?;
    if write_values(cx, (fields, true), reply)? {
        remove(cx, (0..fields.len()).map(|at| &fields[at]))?;
    }
    Ok(())
}

/// Removes fields, and reports that.
fn remove<'f>(
    cx: &mut Cx<'_, '_>,
    fields: impl Iterator<Item = &'f [u8]> + Clone,
) -> CommandResult {
    let key = cx.key(0);
    let removed = cx.edit_hash(&key, fields.clone(), |hash| {
        fields.filter(|field| hash.remove(field)).count()
    })?;
    if removed > 0 {
        cx.report(&key, Event::HDEL, removed as u64);
        cx.report_if_gone(&key);
    }
    Ok(())
}

fn hgetex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    is_there(cx)?;
    let (expiry, fields_at) = match time_of(&args[2]) {
        Some(time) => (Expiry::At(time.parse(&args[3], cx.now_ms, &args[0])?), 4),
        None if args[2].eq_ignore_ascii_case(b"PERSIST") => (Expiry::Persist, 3),
        None => (Expiry::None, 2),
    };
    let fields = parse_fields(args.from(fields_at), NO_COUNT)?;
    let is_past = matches!(expiry, Expiry::At(at_ms) if at_ms <= cx.now_ms);
    let is_any = write_values(cx, (fields, is_past), reply)?;
    match expiry {
        _ if !is_any => Ok(()),
        Expiry::At(_) if is_past => remove(cx, (0..fields.len()).map(|at| &fields[at])),
        Expiry::At(at_ms) => change(cx, fields, Event::HEXPIRE, |hash, field| {
            hash.expire(field, at_ms, ExpiryCondition::Always)
        }),
        Expiry::Persist => {
            if !any_expires(cx, fields)? {
                return Ok(());
            }
            change(cx, fields, Event::HPERSIST, |hash, field| hash.persist(field))
        }
        Expiry::None | Expiry::Keep => Ok(()),
    }
}

/// Whether any of some fields expires.
fn any_expires(cx: &mut Cx<'_, '_>, fields: Args<'_>) -> Result<bool, CommandError> {
    let key = cx.key(0);
    let Some(mut hash) = cx.read_hash(&key)? else { return Ok(false) };
    for field in fields.iter() {
        if hash.expiry(field)?.is_some_and(|at_ms| at_ms > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Changes the expiry of fields, and reports it.
fn change(
    cx: &mut Cx<'_, '_>,
    fields: Args<'_>,
    event: Event,
    mut change: impl FnMut(&mut HashMut<'_, '_>, &[u8]) -> ExpiryChange,
) -> CommandResult {
    let key = cx.key(0);
    let changed = cx.edit_hash(&key, fields.iter(), |hash| {
        fields.iter().filter(|field| change(hash, field) == ExpiryChange::Changed).count()
    })?;
    if changed > 0 {
        cx.report(&key, event, changed as u64);
    }
    Ok(())
}

/// The options of HSETEX.
struct Setting<'a> {
    /// Whether all fields must be there, or none.
    must_be: Option<bool>,
    expiry: Expiry,
    /// Fields, each with its value behind it.
    pairs: Args<'a>,
}

impl<'a> Setting<'a> {
    fn parse(args: Args<'a>, now_ms: u64) -> Result<Setting<'a>, CommandError> {
        let (mut must_be, mut expiry, mut pairs) = (None, Expiry::None, None);
        let mut at = 2;
        while let Some(option) = args.get(at) {
            let is = |other: &str| option.eq_ignore_ascii_case(other.as_bytes());
            at += 1;
            if is("FIELDS") {
                if pairs.is_some() {
                    return Err(SECOND_FIELDS);
                }
                let count = args.get(at).and_then(value::parse_i64).filter(|&count| count > 0);
                let count = count.ok_or(BAD_COUNT)? as u64;
                at += 1;
                if (args.len() - at) as u64 / 2 < count {
                    return Err(WRONG_COUNT);
                }
                let words = 2 * count as usize;
                pairs = Some(args.from(at).first(words));
                at += words;
            } else if let Some(time) = time_of(option) {
                if expiry != Expiry::None {
                    return Err(ONE_EXPIRY);
                }
                let text = args.get(at).ok_or(NO_TIME)?;
                expiry = Expiry::At(time.parse(text, now_ms, &args[0])?);
                at += 1;
            } else if is("KEEPTTL") {
                if expiry != Expiry::None {
                    return Err(ONE_EXPIRY);
                }
                expiry = Expiry::Keep;
            } else if is("FXX") || is("FNX") {
                if must_be.is_some() {
                    return Err(ONE_CONDITION);
                }
                must_be = Some(is("FXX"));
            } else {
                return Err(CommandError::owned(format!(
                    "ERR unknown argument: {}",
                    quoted(option)
                )));
            }
        }
        Ok(Setting { must_be, expiry, pairs: pairs.ok_or(NO_FIELDS)? })
    }
}

fn hsetex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let Setting { must_be, expiry, pairs } = Setting::parse(args, cx.now_ms)?;
    is_there(cx)?;
    let fields = (0..pairs.len()).step_by(2).map(|at| &pairs[at]);
    if !meets(cx, fields.clone(), must_be)? {
        reply.integer(0);
        return Ok(());
    }
    let key = cx.key(0);
    let count = (pairs.len() / 2) as u64;
    match expiry {
        Expiry::At(at_ms) if at_ms <= cx.now_ms => {
            if !meets(cx, fields.clone(), Some(false))? {
                remove(cx, fields)?;
            }
        }
        Expiry::At(at_ms) => {
            set_pairs(cx, pairs, |hash, field, value| {
                let is_new = hash.set(field, value);
                hash.expire(field, at_ms, ExpiryCondition::Always);
                is_new
            })?;
            cx.report(&key, Event::HSET, count);
            cx.report(&key, Event::HEXPIRE, 0);
        }
        Expiry::Keep => {
            set_pairs(cx, pairs, |hash, field, value| hash.set_value(field, value))?;
            cx.report(&key, Event::HSET, count);
        }
        Expiry::None | Expiry::Persist => {
            set_pairs(cx, pairs, |hash, field, value| hash.set(field, value))?;
            cx.report(&key, Event::HSET, count);
        }
    }
    reply.integer(1);
    Ok(())
}

/// Whether all fields are there, or none, as they must be.
///
/// Errors: [`CommandError::NotResident`].
fn meets<'f>(
    cx: &mut Cx<'_, '_>,
    mut fields: impl Iterator<Item = &'f [u8]> + Clone,
    must_be: Option<bool>,
) -> Result<bool, CommandError> {
    let (Some(must_be), key) = (must_be, cx.key(0)) else { return Ok(true) };
    let Some(mut hash) = cx.read_hash(&key)? else { return Ok(!must_be) };
    hash.announce(fields.clone())?;
    let mut meets = true;
    fields.try_for_each(|field| -> CommandResult {
        meets &= hash.get(field)?.is_some() == must_be;
        Ok(())
    })?;
    Ok(meets)
}

#[cfg(test)]
mod tests {
    use crate::harness::{check, check_events};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn values_are_returned_and_removed() {
        check(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HGETDEL h FIELDS 3 a missing a", "[$1 1, _, _]"),
            ("HGETALL h", "{$1 b: $1 2, $1 c: $1 3}"),
            ("HGETDEL missing FIELDS 1 a", "[_]"),
            ("HGETDEL h FIELDS 2 b c", "[$1 2, $1 3]"),
            ("EXISTS h missing", ":0"),
        ]);
    }

    #[test]
    fn values_are_returned_and_expire() {
        check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HGETEX h FIELDS 2 a missing", "[$1 1, _]"),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HGETEX h EX 100 FIELDS 2 a missing", "[$1 1, _]"),
            ("HTTL h FIELDS 2 a b", "[:100, :-1]"),
            ("HGETEX h FIELDS 1 a", "[$1 1]"),
            ("HTTL h FIELDS 1 a", "[:100]"),
            ("HGETEX h persist FIELDS 2 a b", "[$1 1, $1 2]"),
            ("HTTL h FIELDS 2 a b", "[:-1, :-1]"),
            ("HGETEX h PXAT 1700000300000 FIELDS 1 b", "[$1 2]"),
            ("HTTL h FIELDS 1 b", "[:300]"),
            ("HGETEX h EXAT 1 FIELDS 2 b b", "[$1 2, _]"),
            ("HGETALL h", "{$1 a: $1 1}"),
            ("HGETEX h PX 0 FIELDS 1 a", "[$1 1]"),
            ("EXISTS h", ":0"),
            ("HGETEX h EX 1 FIELDS 1 a", "[_]"),
        ]);
    }

    #[test]
    fn fields_are_set_with_an_expiry() {
        check(&[
            ("HSETEX h FIELDS 2 a 1 b 2", ":1"),
            ("HSETEX h EX 100 FIELDS 1 a 3", ":1"),
            ("HTTL h FIELDS 2 a b", "[:100, :-1]"),
            ("HSETEX h KEEPTTL FIELDS 2 a 4 b 5", ":1"),
            ("HTTL h FIELDS 2 a b", "[:100, :-1]"),
            ("HSETEX h FIELDS 1 a 6", ":1"),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HSETEX h FNX FIELDS 2 c 1 a 1", ":0"),
            ("HSETEX h FNX PX 5000 FIELDS 2 c 1 d 1", ":1"),
            ("HSETEX h FIELDS 2 c 7 e 1 FXX", ":0"),
            ("HSETEX h fxx FIELDS 2 c 7 d 8 EX 9", ":1"),
            ("HTTL h FIELDS 2 c d", "[:9, :9]"),
            ("HSETEX missing FXX FIELDS 1 a 1", ":0"),
            ("HSETEX missing EXAT 1 FIELDS 1 a 1", ":1"),
            ("EXISTS missing", ":0"),
            ("HSETEX h PX 0 FIELDS 2 c 1 x 1", ":1"),
            ("HMGET h a b c d x", "[$1 6, $1 5, _, $1 8, _]"),
        ]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let expiry = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
        let count = "-ERR wrong number of arguments for 'hsetex' command";
        let fields = "-ERR Mandatory argument FIELDS is missing or not at the right position";
        let positive = "-ERR Number of fields must be a positive integer";
        check(&[
            ("SET s x", "+OK"),
            ("HGETDEL s x y z", WRONG),
            ("HGETEX s x y z", WRONG),
            ("HSETEX s FIELDS 1 a 1", WRONG),
            ("HGETDEL h FIELD 1 a", fields),
            ("HGETDEL h FIELDS x a", positive),
            (
                "HGETDEL h FIELDS 2 a",
                "-ERR The `numfields` parameter must match the number of arguments",
            ),
            ("HGETEX h EX 1 PERSIST FIELDS 1 a", fields),
            ("HGETEX h KEEPTTL FIELDS 1 a", fields),
            ("HGETEX h FIELDS 0 a", positive),
            ("HGETEX h EX x FIELDS 1 a", "-ERR value is not an integer or out of range"),
            ("HGETEX h EX -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
            ("HSETEX h BOGUS FIELDS 1 a 1", "-ERR unknown argument: BOGUS"),
            (
                "HSETEX h FNX FXX FIELDS 1 a 1",
                "-ERR Only one of FXX or FNX arguments can be specified",
            ),
            ("HSETEX h EX 1 KEEPTTL FIELDS 1 a 1", expiry),
            ("HSETEX h KEEPTTL PX 1 FIELDS 1 a 1", expiry),
            ("HSETEX h FIELDS x a 1", "-ERR invalid number of fields"),
            ("HSETEX h FIELDS 2 a 1", count),
            ("HSETEX h FIELDS 9223372036854775807 a 1", count),
            ("HSETEX h FIELDS 1 a 1 EX", "-ERR missing expire time"),
            ("HSETEX h FIELDS 1 a 1 FIELDS 1 a 1", "-ERR FIELDS keyword specified multiple times"),
            ("HSETEX h EX 1 FXX KEEP", "-ERR unknown argument: KEEP"),
            ("HSETEX h EX 1 FXX", "-ERR wrong number of arguments for 'hsetex' command"),
        ]);
    }

    #[test]
    fn changes_are_told() {
        check_events(&[
            ("HSETEX h EX 9 FIELDS 2 a 1 b 2", "new h, hset h, hexpire h"),
            ("HSETEX h KEEPTTL FIELDS 1 a 1", "hset h"),
            ("HGETEX h FIELDS 1 a", ""),
            ("HGETEX h PX 99999 FIELDS 1 a", "hexpire h"),
            ("HGETEX h PERSIST FIELDS 1 a", "hpersist h"),
            ("HGETEX h PERSIST FIELDS 1 a", ""),
            ("HGETDEL h FIELDS 2 a x", "hdel h"),
            ("HGETEX h EX 0 FIELDS 1 b", "hdel h, del h"),
        ]);
    }
}
