//! When fields of hashes expire.
//!
//! As in Redis 7.4, which brought this: a field whose time has come is not there for any command, but HLEN
//! counts it, and the key exists, until it is removed, which a timer sees to.

use resp::{Args, Reply};
use value::parse_i64;

use crate::collection::{ExpiryChange, ExpiryCondition};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs};

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const GROW: Flags = WRITE.and(Flags::DENYOOM);

const LOOKED_AT: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];
const CHANGED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)];

/// The latest time at which a field may expire, in Unix milliseconds: Redis keeps it in 46 bits.
const LATEST_MS: i64 = (1 << 46) - 1;

const NO_FIELDS: CommandError =
    fixed("ERR Mandatory argument FIELDS is missing or not at the right position");
pub(super) const NO_COUNT: CommandError = fixed("ERR Number of fields must be a positive integer");
const NO_COUNT_TO_EXPIRE: CommandError =
    fixed("ERR Parameter `numFields` should be greater than 0");
const OTHER_COUNT: CommandError =
    fixed("ERR The `numfields` parameter must match the number of arguments");
const NEGATIVE: CommandError = fixed("ERR invalid expire time, must be >= 0");

const EXPIRE_SYNTAX: &str = "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]";
const PEXPIRE_SYNTAX: &str =
    "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]";
const EXPIREAT_SYNTAX: &str =
    "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]";
const PEXPIREAT_SYNTAX: &str =
    "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]";
const FIELDS_SYNTAX: &str = "key FIELDS numfields field [field ...]";

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    row(
        ("HEXPIRE", -6, GROW),
        ("Lets fields of a hash expire in some seconds.", EXPIRE_SYNTAX),
        |cx, args, reply| expire(cx, (args, Time::Seconds), reply),
    ),
    row(
        ("HPEXPIRE", -6, GROW),
        ("Lets fields of a hash expire in some milliseconds.", PEXPIRE_SYNTAX),
        |cx, args, reply| expire(cx, (args, Time::Milliseconds), reply),
    ),
    row(
        ("HEXPIREAT", -6, GROW),
        ("Lets fields of a hash expire at a time in seconds.", EXPIREAT_SYNTAX),
        |cx, args, reply| expire(cx, (args, Time::UnixSeconds), reply),
    ),
    row(
        ("HPEXPIREAT", -6, GROW),
        ("Lets fields of a hash expire at a time in milliseconds.", PEXPIREAT_SYNTAX),
        |cx, args, reply| expire(cx, (args, Time::UnixMilliseconds), reply),
    ),
    row(("HPERSIST", -5, WRITE), ("Lets fields of a hash never expire.", FIELDS_SYNTAX), persist),
    row(
        ("HTTL", -5, READ),
        ("Tells in how many seconds fields of a hash expire.", FIELDS_SYNTAX),
        |cx, args, reply| tell(cx, (args, Time::Seconds), reply),
    ),
    row(
        ("HPTTL", -5, READ),
        ("Tells in how many milliseconds fields of a hash expire.", FIELDS_SYNTAX),
        |cx, args, reply| tell(cx, (args, Time::Milliseconds), reply),
    ),
    row(
        ("HEXPIRETIME", -5, READ),
        ("Tells when fields of a hash expire, in seconds.", FIELDS_SYNTAX),
        |cx, args, reply| tell(cx, (args, Time::UnixSeconds), reply),
    ),
    row(
        ("HPEXPIRETIME", -5, READ),
        ("Tells when fields of a hash expire, in milliseconds.", FIELDS_SYNTAX),
        |cx, args, reply| tell(cx, (args, Time::UnixMilliseconds), reply),
    ),
];

const fn row(
    (name, arity, flags): (&'static str, i32, Flags),
    (summary, syntax): (&'static str, &'static str),
    run: Handler,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: if flags.has(Flags::WRITE) { CHANGED } else { LOOKED_AT },
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Hash,
            since: "7.4.0",
            summary,
            complexity: "O(N) for N fields",
            syntax,
        },
        run,
    }
}

/// How a command counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// From now on.
    Seconds,
    /// From now on.
    Milliseconds,
    /// Since 1970.
    UnixSeconds,
    /// Since 1970.
    UnixMilliseconds,
}

impl Time {
    fn unit_ms(self) -> i64 {
        match self {
            Time::Seconds | Time::UnixSeconds => 1_000,
            Time::Milliseconds | Time::UnixMilliseconds => 1,
        }
    }

    /// What it counts from.
    fn base_ms(self, now_ms: u64) -> i64 {
        match self {
            Time::Seconds | Time::Milliseconds => now_ms as i64,
            Time::UnixSeconds | Time::UnixMilliseconds => 0,
        }
    }

    /// The moment that an argument of a command names, in Unix milliseconds.
    pub(super) fn parse(
        self,
        text: &[u8],
        now_ms: u64,
        command: &[u8],
    ) -> Result<u64, CommandError> {
        let number = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
        if number < 0 {
            return Err(NEGATIVE);
        }
        let base_ms = self.base_ms(now_ms);
        let at_ms = number.checked_mul(self.unit_ms()).and_then(|ms| ms.checked_add(base_ms));
        match at_ms {
            Some(at_ms) if at_ms <= LATEST_MS => Ok(at_ms as u64),
            _ => {
                let command = String::from_utf8_lossy(command).to_ascii_lowercase();
                let text = format!("ERR invalid expire time in '{command}' command");
                Err(CommandError::owned(text))
            }
        }
    }
}

/// What is answered of a field.
const NO_FIELD: i64 = -2;
const NEVER: i64 = -1;

/// Whether a key holds a hash. Errors: [`CommandError::WRONG_TYPE`]. Redis looks at that before it looks at
/// the arguments.
pub(super) fn is_there(cx: &mut Cx<'_, '_>) -> Result<bool, CommandError> {
    let key = cx.key(0);
    match cx.peek(&key).map(|view| value::Kind::from_bits(view.kind)) {
        Some(kind) if !kind.is_hash() => Err(CommandError::WRONG_TYPE),
        found => Ok(found.is_some()),
    }
}

/// The fields behind `FIELDS` and their number, which are all that is left.
pub(super) fn parse_fields(
    args: Args<'_>,
    no_count: CommandError,
) -> Result<Args<'_>, CommandError> {
    if !args.get(0).is_some_and(|word| word.eq_ignore_ascii_case(b"FIELDS")) {
        return Err(NO_FIELDS);
    }
    let count = args.get(1).and_then(parse_i64).filter(|&count| count > 0).ok_or(no_count)?;
    let fields = args.from(2);
    if count as u64 == fields.len() as u64 { Ok(fields) } else { Err(OTHER_COUNT) }
}

fn parse_condition(word: &[u8]) -> Option<ExpiryCondition> {
    let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    match () {
        () if is("NX") => Some(ExpiryCondition::IfNone),
        () if is("XX") => Some(ExpiryCondition::IfSome),
        () if is("GT") => Some(ExpiryCondition::IfLater),
        () if is("LT") => Some(ExpiryCondition::IfEarlier),
        () => None,
    }
}

fn expire(cx: &mut Cx<'_, '_>, (args, time): (Args<'_>, Time), reply: &mut Reply) -> CommandResult {
    is_there(cx)?;
    let at_ms = time.parse(&args[2], cx.now_ms, &args[0])?;
    let condition = parse_condition(&args[3]);
    let fields_at = if condition.is_some() { 4 } else { 3 };
    let fields = parse_fields(args.from(fields_at), NO_COUNT_TO_EXPIRE)?;
    let condition = condition.unwrap_or(ExpiryCondition::Always);
    let changes = change(
        cx,
        fields,
        |old_ms| condition.is_met(old_ms, at_ms),
        |hash, field| hash.expire(field, at_ms, condition),
    )?;
    let count = |change: ExpiryChange| changes.iter().filter(|one| **one == change).count() as u64;
    let (changed, removed) = (count(ExpiryChange::Changed), count(ExpiryChange::Removed));
    let key = cx.key(0);
    if changed > 0 {
        cx.report(&key, Event::HEXPIRE, changed);
    }
    if removed > 0 {
        cx.report(&key, Event::HDEL, removed);
        cx.report_if_gone(&key);
    }
    reply.array(changes.len());
    for change in changes {
        reply.integer(match change {
            ExpiryChange::NoField => NO_FIELD,
            ExpiryChange::NotMet => 0,
            ExpiryChange::Changed => 1,
            ExpiryChange::Removed => 2,
        });
    }
    Ok(())
}

/// Changes the expiry of fields, in their order. `may_change` says whether a field with this expiry (0 for none)
/// would be changed; where none would, nothing is written.
fn change(
    cx: &mut Cx<'_, '_>,
    fields: Args<'_>,
    may_change: impl Fn(u64) -> bool,
    mut change: impl FnMut(&mut crate::collection::HashMut<'_, '_>, &[u8]) -> ExpiryChange,
) -> Result<Vec<ExpiryChange>, CommandError> {
    let key = cx.key(0);
    let mut seen = Vec::with_capacity(fields.len());
    let mut changes = false;
    {
        let mut hash = cx.read_hash(&key)?;
        if let Some(hash) = &mut hash {
            hash.announce(fields.iter())?;
        }
        for field in fields.iter() {
            let expiry = hash.as_mut().map_or(Ok(None), |hash| hash.expiry(field))?;
            changes |= expiry.is_some_and(&may_change);
            seen.push(expiry.map_or(ExpiryChange::NoField, |_| ExpiryChange::NotMet));
        }
    }
    if !changes {
        return Ok(seen);
    }
    cx.edit_hash(&key, fields.iter(), |hash| {
        fields.iter().map(|field| change(hash, field)).collect()
    })
}

fn persist(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    is_there(cx)?;
    let fields = parse_fields(args.from(2), NO_COUNT)?;
    let changes = change(cx, fields, |old_ms| old_ms > 0, |hash, field| hash.persist(field))?;
    let changed = changes.iter().filter(|change| **change == ExpiryChange::Changed).count();
    if changed > 0 {
        cx.report(&cx.key(0), Event::HPERSIST, changed as u64);
    }
    reply.array(changes.len());
    for change in changes {
        reply.integer(match change {
            ExpiryChange::NoField | ExpiryChange::Removed => NO_FIELD,
            ExpiryChange::NotMet => NEVER,
            ExpiryChange::Changed => 1,
        });
    }
    Ok(())
}

fn tell(cx: &mut Cx<'_, '_>, (args, time): (Args<'_>, Time), reply: &mut Reply) -> CommandResult {
    is_there(cx)?;
    let fields = parse_fields(args.from(2), NO_COUNT)?;
    let (key, now_ms) = (cx.key(0), cx.now_ms);
    let mut hash = cx.read_hash(&key)?;
    if let Some(hash) = &mut hash {
        hash.announce(fields.iter())?;
    }
    reply.array(fields.len());
    for field in fields.iter() {
        let expiry = hash.as_mut().map_or(Ok(None), |hash| hash.expiry(field))?;
        reply.integer(match expiry {
            None => NO_FIELD,
            Some(0) => NEVER,
            // Rounded up.
            Some(at_ms) => {
                let unit_ms = time.unit_ms();
                (at_ms as i64 - time.base_ms(now_ms) + unit_ms - 1) / unit_ms
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stdx::Random;

    use crate::harness::{Harness, check, check_events};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn fields_expire_when_they_are_told_to() {
        check(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HTTL h FIELDS 2 a none", "[:-1, :-2]"),
            ("HTTL missing FIELDS 2 a b", "[:-2, :-2]"),
            ("HEXPIRE missing 10 FIELDS 2 a b", "[:-2, :-2]"),
            ("HPERSIST missing FIELDS 1 a", "[:-2]"),
            ("EXISTS missing", ":0"),
            ("HEXPIRE h 100 FIELDS 3 a none b", "[:1, :-2, :1]"),
            ("HTTL h FIELDS 3 a b c", "[:100, :100, :-1]"),
            ("HPTTL h fields 1 a", "[:100000]"),
            ("HEXPIRETIME h FIELDS 1 a", "[:1700000100]"),
            ("HPEXPIRETIME h FIELDS 1 a", "[:1700000100000]"),
            ("HPEXPIRE h 1 FIELDS 1 a", "[:1]"),
            ("HTTL h FIELDS 1 a", "[:1]"),
            ("HEXPIRETIME h FIELDS 1 a", "[:1700000001]"),
            ("HEXPIREAT h 1700000200 FIELDS 1 a", "[:1]"),
            ("HTTL h FIELDS 1 a", "[:200]"),
            ("HPEXPIREAT h 1700000300000 FIELDS 1 a", "[:1]"),
            ("HTTL h FIELDS 1 a", "[:300]"),
            ("HPERSIST h FIELDS 3 a c none", "[:1, :-1, :-2]"),
            ("HTTL h FIELDS 1 a", "[:-1]"),
            ("HEXPIRE h 0 FIELDS 3 a a none", "[:2, :-2, :-2]"),
            ("HGETALL h", "{$1 b: $1 2, $1 c: $1 3}"),
            ("HEXPIREAT h 1 FIELDS 2 b c", "[:2, :2]"),
            ("EXISTS h", ":0"),
        ]);
    }

    #[test]
    fn conditions_are_kept() {
        check(&[
            ("HSET h a 1 b 2", ":2"),
            ("HEXPIRE h 100 XX FIELDS 2 a b", "[:0, :0]"),
            ("HEXPIRE h 100 GT FIELDS 1 a", "[:0]"),
            ("HEXPIRE h 100 NX FIELDS 1 a", "[:1]"),
            ("HEXPIRE h 200 NX FIELDS 2 a b", "[:0, :1]"),
            ("HEXPIRE h 150 GT FIELDS 2 a b", "[:1, :0]"),
            ("HEXPIRE h 150 GT FIELDS 1 a", "[:0]"),
            ("HEXPIRE h 120 LT FIELDS 2 a b", "[:1, :1]"),
            ("HPERSIST h FIELDS 1 a", "[:1]"),
            ("HEXPIRE h 900 LT FIELDS 2 a b", "[:1, :0]"),
            ("HEXPIRE h 300 xx FIELDS 2 a b", "[:1, :1]"),
            ("HEXPIRE h 0 GT FIELDS 1 a", "[:0]"),
            ("HEXPIRE h 0 LT FIELDS 1 a", "[:2]"),
        ]);
    }

    #[test]
    fn writes_keep_or_clear_the_expiry() {
        check(&[
            ("HSET h a 1 b 2 c 3 d 4", ":4"),
            ("HEXPIRE h 100 FIELDS 4 a b c d", "[:1, :1, :1, :1]"),
            ("HSET h a 5", ":0"),
            ("HINCRBY h b 5", ":7"),
            ("HINCRBYFLOAT h c 0.5", "$3 3.5"),
            ("HSETNX h d 7", ":0"),
            ("HTTL h FIELDS 4 a b c d", "[:-1, :100, :100, :100]"),
            ("RENAME h other", "+OK"),
            ("COPY other copy", ":1"),
            ("MOVE copy 2", ":1"),
            ("HTTL other FIELDS 2 a b", "[:-1, :100]"),
            ("SELECT 2", "*"),
            ("HTTL copy FIELDS 2 a b", "[:-1, :100]"),
            ("OBJECT ENCODING copy", "$10 listpackex"),
            ("HPERSIST copy FIELDS 3 b c d", "[:1, :1, :1]"),
            ("OBJECT ENCODING copy", "$8 listpack"),
        ]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let integer = "-ERR value is not an integer or out of range";
        let fields = "-ERR Mandatory argument FIELDS is missing or not at the right position";
        let count = "-ERR Parameter `numFields` should be greater than 0";
        let other = "-ERR The `numfields` parameter must match the number of arguments";
        check(&[
            ("SET s x", "+OK"),
            ("HEXPIRE s x y z u v", WRONG),
            ("HTTL s x y z", WRONG),
            ("HPERSIST s x y z", WRONG),
            ("HEXPIRE h x FIELDS 1 a", integer),
            ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
            ("HEXPIRE h 70368744178 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command"),
            (
                "hpexpire h 70368744177663 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpire' command",
            ),
            (
                "HPEXPIREAT h 70368744177664 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpireat' command",
            ),
            ("HPEXPIREAT h 70368744177663 FIELDS 1 a", "[:-2]"),
            (
                "HEXPIREAT h 9223372036854775807 FIELDS 1 a",
                "-ERR invalid expire time in 'hexpireat' command",
            ),
            ("HEXPIRE h 1 FIELD 1 a", fields),
            ("HEXPIRE h 1 NX XX FIELDS 1 a", fields),
            ("HEXPIRE h 1 NX FIELDS 0 a", count),
            ("HEXPIRE h 1 FIELDS x a", count),
            ("HEXPIRE h 1 FIELDS 2 a", other),
            ("HEXPIRE h 1 FIELDS 1 a b", other),
            ("HTTL h FIELD 1 a", fields),
            ("HTTL h FIELDS -1 a", "-ERR Number of fields must be a positive integer"),
            ("HPERSIST h FIELDS x a", "-ERR Number of fields must be a positive integer"),
            ("HTTL h FIELDS 2 a", other),
            ("HPERSIST h FIELDS 2 a", other),
            ("HEXPIRE h 1 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
        ]);
    }

    #[test]
    fn changes_are_told() {
        check_events(&[
            ("HSET h a 1 b 2 c 3", "new h, hset h"),
            ("HEXPIRE h 10 FIELDS 2 a x", "hexpire h"),
            ("HEXPIRE h 10 NX FIELDS 2 a x", ""),
            ("HPERSIST h FIELDS 2 a x", "hpersist h"),
            ("HPERSIST h FIELDS 2 a x", ""),
            ("HTTL h FIELDS 1 a", ""),
            ("HTTL x FIELDS 1 a", "keymiss x"),
            ("HEXPIRE h 0 FIELDS 2 a b", "hdel h"),
            ("HEXPIRE h 0 FIELDS 1 c", "hdel h, del h"),
        ]);
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("HSET h a 1 b 2");
            server.run("HPEXPIRE h 10 FIELDS 2 a b");
            server.now_ms += 10;
            server.events.clear();
            server.run("HSET h c 3");
            assert_eq!(server.events.join(", "), "hexpired h, hset h");
            server.run("HPEXPIRE h 10 FIELDS 1 c");
            server.now_ms += 10;
            server.events.clear();
            server.expire_fields();
            assert_eq!(server.events.join(", "), "hexpired h, del h");
            assert_eq!(server.run("EXISTS h"), ":0");
            server.check_counts();
        }
    }

    /// Nobody sees a field whose time has come, and timers remove it.
    #[test]
    fn expired_fields_are_gone() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("HSET h a 1 b 2 c 3 d 4");
            server.run("HPEXPIRE h 100 FIELDS 2 a b");
            server.run("HPEXPIRE h 200 FIELDS 1 c");
            server.now_ms += 100;
            for (line, expected) in [
                ("HGET h a", "_"),
                ("HMGET h a c", "[_, $1 3]"),
                ("HGETALL h", "{$1 c: $1 3, $1 d: $1 4}"),
                ("HKEYS h", "[$1 c, $1 d]"),
                ("HVALS h", "[$1 3, $1 4]"),
                ("HSCAN h 0", "[$1 0, [$1 c, $1 3, $1 d, $1 4]]"),
                ("HEXISTS h b", ":0"),
                ("HSTRLEN h b", ":0"),
                ("HRANDFIELD h 9", "[$1 c, $1 d]"),
                ("HTTL h FIELDS 2 a c", "[:-2, :1]"),
                ("HPERSIST h FIELDS 1 a", "[:-2]"),
                ("HEXPIRE h 9 FIELDS 1 a", "[:-2]"),
                ("HLEN h", ":4"),
                ("OBJECT ENCODING h", "$10 listpackex"),
                ("COPY h g", ":1"),
                ("HDEL g a", ":0"),
                ("HLEN g", ":2"),
                ("DEL g", ":1"),
            ] {
                assert_eq!(server.run(line), expected, "{line} {demote}");
            }
            server.expire_fields();
            assert_eq!(server.run("HLEN h"), ":2");
            assert_eq!(server.run("HINCRBY h a 1"), ":1");
            server.now_ms += 100;
            assert_eq!(server.run("HSETNX h c 1"), ":1");
            assert_eq!(server.run("HPEXPIRE h 1 FIELDS 3 a c d"), "[:1, :1, :1]");
            server.now_ms += 1;
            assert_eq!(server.run("HGETALL h"), "{}");
            assert_eq!(server.run("HRANDFIELD h"), "_");
            assert_eq!(server.run("HRANDFIELD h -5"), "[]");
            assert_eq!(server.run("EXISTS h"), ":1");
            server.expire_fields();
            assert_eq!(server.run("EXISTS h"), ":0");
            server.check_counts();
        }
    }

    /// Against a map, small and large, in RAM and on flash, with the clock going on and fields that are removed
    /// late.
    #[test]
    fn hashes_do_what_a_map_does() {
        for (demote, fields, steps) in
            [(false, 8, 4_000), (true, 8, 1_500), (false, 900, 12_000), (true, 900, 2_500)]
        {
            let mut hash = Modelled::new(demote, fields);
            for step in 0..steps {
                hash.change();
                if step % 97 == 0 {
                    hash.check();
                }
                if step % 211 == 0 {
                    hash.carry();
                }
            }
            hash.empty();
        }
    }

    /// The hash `h` of a server and what it should hold: values, and when they expire, 0 for never.
    struct Modelled {
        server: Harness,
        model: BTreeMap<String, (String, u64)>,
        random: Random,
        fields: u64,
    }

    impl Modelled {
        fn new(demote: bool, fields: u64) -> Modelled {
            let random = Random::new(fields + u64::from(demote));
            Modelled { server: Harness::new(demote), model: BTreeMap::new(), random, fields }
        }

        fn expect(&mut self, line: &str, expected: &str) {
            assert_eq!(self.server.run(line), expected, "{line}");
        }

        fn change(&mut self) {
            self.server.now_ms += self.random.below(4);
            let now_ms = self.server.now_ms;
            self.model.retain(|_, (_, at_ms)| *at_ms == 0 || *at_ms > now_ms);
            let field = format!("field-with-a-long-name-{}", self.random.below(self.fields));
            let found = self.model.get(&field).cloned();
            let shown = found
                .as_ref()
                .map_or("_".to_owned(), |(value, _)| format!("${} {value}", value.len()));
            let is_new = u8::from(found.is_none());
            let value = self.random.below(1_000).to_string();
            let ms = 1 + self.random.below(3 * self.fields);
            match self.random.below(13) {
                0..=3 => {
                    self.model.insert(field.clone(), (value.clone(), 0));
                    self.expect(&format!("HSET h {field} {value}"), &format!(":{is_new}"));
                }
                4 => {
                    self.model.remove(&field);
                    self.expect(&format!("HDEL h {field}"), &format!(":{}", 1 - is_new));
                }
                5 => {
                    let expected = match found {
                        None => "[:-2]",
                        Some((_, 0)) => "[:-1]",
                        Some(_) => "[:1]",
                    };
                    self.model.entry(field.clone()).and_modify(|found| found.1 = 0);
                    self.expect(&format!("HPERSIST h FIELDS 1 {field}"), expected);
                }
                6 => self.expect(&format!("HGET h {field}"), &shown),
                7 => {
                    let at_ms = found.map_or(0, |(_, at_ms)| at_ms);
                    self.model.insert(field.clone(), (value.clone(), at_ms));
                    self.expect(&format!("HSETEX h KEEPTTL FIELDS 1 {field} {value}"), ":1");
                }
                8 => {
                    self.model.insert(field.clone(), (value.clone(), now_ms + ms));
                    self.expect(&format!("HSETEX h PX {ms} FIELDS 1 {field} {value}"), ":1");
                }
                9 => {
                    self.model.entry(field.clone()).and_modify(|found| found.1 = now_ms + ms);
                    let line = format!("HGETEX h PX {ms} FIELDS 1 {field}");
                    self.expect(&line, &format!("[{shown}]"));
                }
                10 => {
                    self.model.remove(&field);
                    self.expect(&format!("HGETDEL h FIELDS 1 {field}"), &format!("[{shown}]"));
                }
                _ => {
                    self.model.entry(field.clone()).and_modify(|found| found.1 = now_ms + ms);
                    let expected = if found.is_some() { "[:1]" } else { "[:-2]" };
                    self.expect(&format!("HPEXPIRE h {ms} FIELDS 1 {field}"), expected);
                }
            }
        }

        fn check(&mut self) {
            let shown = self.server.run("HGETALL h");
            assert_eq!(shown.matches(": ").count(), self.model.len(), "{shown}");
            self.server.expire_fields();
            let len = format!(":{}", self.model.len());
            self.expect("HLEN h", &len);
            self.server.check_counts();
            if !self.model.is_empty() {
                self.server.check_tree("h");
            }
        }

        /// To another key of its slot, of another one, and back; and beside a copy.
        fn carry(&mut self) {
            if self.model.is_empty() {
                return;
            }
            self.server.run("HSETEX {h}to EX 1000 FIELDS 1 a 1");
            for line in ["RENAME h {h}to", "RENAME {h}to other", "RENAME other h"] {
                self.expect(line, "+OK");
                self.server.check_counts();
            }
            self.expect("COPY h copy", ":1");
            self.server.check_counts();
            let len = self.server.run("HLEN h");
            self.expect("HLEN copy", &len);
            self.expect("DEL copy", ":1");
        }

        fn empty(mut self) {
            self.model.retain(|_, (_, at_ms)| *at_ms == 0);
            self.server.now_ms += 1_000_000;
            self.server.expire_fields();
            let len = format!(":{}", self.model.len());
            self.expect("HLEN h", &len);
            for field in std::mem::take(&mut self.model).into_keys() {
                self.expect(&format!("HDEL h {field}"), ":1");
            }
            self.expect("EXISTS h", ":0");
            assert!(self.server.timers().is_empty());
            self.server.check_empty();
        }
    }
}
