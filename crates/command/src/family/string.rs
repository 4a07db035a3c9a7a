//! Strings, one value at a time: GET and SET with their relatives.
//!
//! SET and GETEX share the options that give a key its end: a request names at most one of them,
//! and its number is looked at only after all option names have been.

use keyspace::{Expiry, Key};
use resp::{Args, Reply};
use value::parse_i64;

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult};
use crate::logged::Arg;
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE_DENYOOM: Flags = Flags::WRITE.and(Flags::DENYOOM);
const WRITE_DENYOOM_FAST: Flags = WRITE_DENYOOM.and(Flags::FAST);

/// Keys whose old value is answered, then replaced.
const ACCESS_AND_UPDATE: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE);
/// Keys whose old value does not matter.
const OVERWRITE: KeyFlags = KeyFlags::OW.and(KeyFlags::UPDATE);

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "GET",
        arity: 2,
        flags: READ_FAST.and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Returns the string value of a key.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: get,
    },
    Command {
        name: "SET",
        arity: -3,
        flags: WRITE_DENYOOM,
        keys: &[KeySpec::at(
            1,
            ACCESS_AND_UPDATE.and(KeyFlags::VARIABLE_FLAGS),
            // Only the GET option wants the value.
            Needs::KeyOnly,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Sets the string value of a key, whatever it held.",
            complexity: "O(1)",
            syntax: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        },
        run: set,
    },
    Command {
        name: "GETEX",
        arity: -2,
        flags: Flags::WRITE.and(Flags::FAST).and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(1, ACCESS_AND_UPDATE, Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "6.2.0",
            summary: "Returns the string value of a key, and sets or ends its expiry.",
            complexity: "O(1)",
            syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        },
        run: getex,
    },
    Command {
        name: "GETDEL",
        arity: 2,
        flags: Flags::WRITE.and(Flags::FAST).and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(
            1,
            KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE),
            Needs::Value,
        )],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "6.2.0",
            summary: "Returns the string value of a key and removes the key.",
            complexity: "O(1)",
            syntax: "key",
        },
        run: getdel,
    },
    Command {
        name: "GETSET",
        arity: 3,
        flags: WRITE_DENYOOM_FAST.and(Flags::REPLIES_VALUES),
        keys: &[KeySpec::at(1, ACCESS_AND_UPDATE, Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Sets the string value of a key and returns the one it had.",
            complexity: "O(1)",
            syntax: "key value",
        },
        run: getset,
    },
    Command {
        name: "SETNX",
        arity: 3,
        flags: WRITE_DENYOOM_FAST,
        keys: &[KeySpec::at(1, KeyFlags::OW.and(KeyFlags::INSERT), Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "1.0.0",
            summary: "Sets the string value of a key that does not exist yet.",
            complexity: "O(1)",
            syntax: "key value",
        },
        run: setnx,
    },
    Command {
        name: "SETEX",
        arity: 4,
        flags: WRITE_DENYOOM,
        keys: &[KeySpec::at(1, OVERWRITE, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.0.0",
            summary: "Sets the string value of a key for a number of seconds.",
            complexity: "O(1)",
            syntax: "key seconds value",
        },
        run: setex,
    },
    Command {
        name: "PSETEX",
        arity: 4,
        flags: WRITE_DENYOOM,
        keys: &[KeySpec::at(1, OVERWRITE, Needs::KeyOnly)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::String,
            since: "2.6.0",
            summary: "Sets the string value of a key for a number of milliseconds.",
            complexity: "O(1)",
            syntax: "key milliseconds value",
        },
        run: psetex,
    },
];

/// How an option gives a time: which unit, counted from when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeForm {
    Ex,
    Px,
    ExAt,
    PxAt,
}

impl TimeForm {
    fn named(option: &[u8]) -> Option<TimeForm> {
        const NAMES: [(&str, TimeForm); 4] = [
            ("EX", TimeForm::Ex),
            ("PX", TimeForm::Px),
            ("EXAT", TimeForm::ExAt),
            ("PXAT", TimeForm::PxAt),
        ];
        let named = NAMES.iter().find(|(name, _)| is(option, name));
        named.map(|(_, form)| *form)
    }

    fn is_absolute(self) -> bool {
        matches!(self, TimeForm::ExAt | TimeForm::PxAt)
    }

    /// The Unix milliseconds that `number` stands for. `command` is named in the error.
    fn at_ms(self, number: &[u8], now_ms: u64, command: &str) -> Result<u64, CommandError> {
        let number = parse_i64(number).ok_or(CommandError::NOT_INTEGER)?;
        let unit_ms = if let TimeForm::Ex | TimeForm::ExAt = self { 1000 } else { 1 };
        let origin_ms = if self.is_absolute() { 0 } else { now_ms as i64 };
        let at_ms = number.checked_mul(unit_ms).and_then(|ms| ms.checked_add(origin_ms));
        match at_ms {
            Some(at_ms) if number > 0 => Ok(at_ms as u64),
            _ => {
                Err(CommandError::owned(format!("ERR invalid expire time in '{command}' command")))
            }
        }
    }
}

/// What the options say about the end of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Nothing.
    Unsaid,
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Never,
    /// A time, whose number is at this argument.
    Time(TimeForm, usize),
}

/// When SET sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    IfMissing,
    IfExists,
}

/// The options of SET.
#[derive(Clone, Copy, Debug)]
struct SetOptions {
    condition: Condition,
    ending: Ending,
    get: bool,
}

impl SetOptions {
    fn parse(args: Args<'_>) -> Result<SetOptions, CommandError> {
        let mut options =
            SetOptions { condition: Condition::Always, ending: Ending::Unsaid, get: false };
        let mut index = 3;
        while let Some(option) = args.get(index) {
            if is(option, "NX") && options.condition != Condition::IfExists {
                options.condition = Condition::IfMissing;
            } else if is(option, "XX") && options.condition != Condition::IfMissing {
                options.condition = Condition::IfExists;
            } else if is(option, "GET") {
                options.get = true;
            } else if is(option, "KEEPTTL")
                && matches!(options.ending, Ending::Unsaid | Ending::Keep)
            {
                options.ending = Ending::Keep;
            } else {
                options.ending = parse_time(args, index, options.ending)?;
                index += 1;
            }
            index += 1;
        }
        Ok(options)
    }

    fn expiry(&self, args: Args<'_>, now_ms: u64) -> Result<Expiry, CommandError> {
        match self.ending {
            Ending::Unsaid | Ending::Never => Ok(Expiry::Clear),
            Ending::Keep => Ok(Expiry::Keep),
            Ending::Time(form, at) => Ok(Expiry::At(form.at_ms(&args[at], now_ms, "set")?)),
        }
    }
}

/// The time option at `index`, whose number must follow. An option may be repeated, the last one
/// counts, but not follow a different one (`before`).
fn parse_time(args: Args<'_>, index: usize, before: Ending) -> Result<Ending, CommandError> {
    let form = TimeForm::named(&args[index]).ok_or(CommandError::SYNTAX)?;
    let fits = match before {
        Ending::Unsaid => true,
        Ending::Time(other, _) => other == form,
        Ending::Keep | Ending::Never => false,
    };
    if !fits || index + 1 >= args.len() {
        return Err(CommandError::SYNTAX);
    }
    Ok(Ending::Time(form, index + 1))
}

fn is(option: &[u8], name: &str) -> bool {
    option.eq_ignore_ascii_case(name.as_bytes())
}

fn get(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply_value(cx, &cx.key(0), reply)?;
    Ok(())
}

/// Replies with the string value of a key, or with null. Says whether the key exists.
#[inline(always)]
fn reply_value(
    cx: &mut Cx<'_, '_>,
    key: &Key<'_>,
    reply: &mut Reply,
) -> Result<bool, CommandError> {
    let room = cx.reply_bytes_max;
    match cx.read(key)? {
        Some(value) if !value.kind.is_string() => Err(CommandError::WRONG_TYPE),
        Some(value) => value.write(key, room, reply).map(|()| true),
        None => {
            reply.null();
            Ok(false)
        }
    }
}

/// [`reply_value`] for a command that also writes.
fn get_old(cx: &mut Cx<'_, '_>, key: &Key<'_>, reply: &mut Reply) -> Result<bool, CommandError> {
    cx.count_read(key);
    reply_value(cx, key, reply)
}

fn set(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if args.len() > 3 {
        return set_with_options(cx, args, reply);
    }
    let key = cx.key(0);
    cx.set_string(&key, &args[2], Expiry::Clear);
    cx.report(&key, Event::SET, 1);
    reply.ok();
    Ok(())
}

fn set_with_options(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = SetOptions::parse(args)?;
    let expiry = options.expiry(args, cx.now_ms)?;
    let key = cx.key(0);
    let exists = if options.get { get_old(cx, &key, reply)? } else { cx.exists(&key) };
    let sets = match options.condition {
        Condition::Always => true,
        Condition::IfMissing => !exists,
        Condition::IfExists => exists,
    };
    if sets {
        set_until(cx, &key, &args[2], expiry);
        if options.get && cx.effects.changes > 0 {
            log_set(cx, expiry);
        }
    }
    match (options.get, sets) {
        (true, _) => {}
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
    Ok(())
}

/// Logs a SET without the options that read what was there.
fn log_set(cx: &mut Cx<'_, '_>, expiry: Expiry) {
    let [set, del, keep, until] = [&b"SET"[..], b"DEL", b"KEEPTTL", b"PXAT"].map(Arg::Bytes);
    let (key, value) = (Arg::Sent(1), Arg::Sent(2));
    match expiry {
        Expiry::Clear => cx.log_as(&[set, key, value]),
        Expiry::Keep => cx.log_as(&[set, key, value, keep]),
        Expiry::At(at_ms) if at_ms <= cx.now_ms => cx.log_as(&[del, key]),
        Expiry::At(at_ms) => cx.log_as(&[set, key, value, until, Arg::Number(at_ms as i64)]),
    }
}

/// Sets a string. One whose time has come already is not stored only to expire: the key goes.
fn set_until(cx: &mut Cx<'_, '_>, key: &Key<'_>, bytes: &[u8], expiry: Expiry) {
    let is_over = matches!(expiry, Expiry::At(at_ms) if at_ms <= cx.now_ms);
    let existed = is_over && cx.db(key).remove(key);
    if !is_over {
        cx.set_string(key, bytes, expiry);
    } else if !existed {
        cx.report(key, Event::NEW, 0);
    }
    cx.report(key, Event::SET, u64::from(existed || !is_over));
    if let Expiry::At(_) = expiry {
        cx.report(key, Event::EXPIRE, 0);
    }
    if is_over {
        cx.report(key, Event::EXPIRED, 0);
    }
}

fn getex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let ending = parse_getex(args)?;
    let (key, now_ms, room) = (cx.key(0), cx.now_ms, cx.reply_bytes_max);
    cx.count_read(&key);
    let Some(value) = cx.read(&key)? else {
        reply.null();
        return Ok(());
    };
    if !value.kind.is_string() {
        return Err(CommandError::WRONG_TYPE);
    }
    let is_volatile = value.expire_at_ms != 0;
    let expire_at_ms = match ending {
        Ending::Time(form, at) => form.at_ms(&args[at], now_ms, "getex")?,
        _ => 0,
    };
    value.write(&key, room, reply)?;
    match ending {
        Ending::Time(form, _) if form.is_absolute() && expire_at_ms <= now_ms => {
            cx.remove(&key);
            cx.log_as(&[Arg::Bytes(b"DEL"), Arg::Sent(1)]);
        }
        Ending::Time(..) => {
            set_expiry(cx, &key, expire_at_ms);
            let at_ms = Arg::Number(expire_at_ms as i64);
            cx.log_as(&[Arg::Bytes(b"PEXPIREAT"), Arg::Sent(1), at_ms]);
        }
        Ending::Never if is_volatile => {
            set_expiry(cx, &key, 0);
            cx.log_as(&[Arg::Bytes(b"PERSIST"), Arg::Sent(1)]);
        }
        _ => {}
    }
    Ok(())
}

fn parse_getex(args: Args<'_>) -> Result<Ending, CommandError> {
    let mut ending = Ending::Unsaid;
    let mut index = 2;
    while let Some(option) = args.get(index) {
        if is(option, "PERSIST") && matches!(ending, Ending::Unsaid | Ending::Never) {
            ending = Ending::Never;
            index += 1;
        } else {
            ending = parse_time(args, index, ending)?;
            index += 2;
        }
    }
    Ok(ending)
}

fn set_expiry(cx: &mut Cx<'_, '_>, key: &Key<'_>, expire_at_ms: u64) {
    let found = cx.db(key).set_expiry(key, expire_at_ms);
    assert!(found, "the slot is locked, so the key that was read is still there");
    let event = if expire_at_ms == 0 { Event::PERSIST } else { Event::EXPIRE };
    cx.report(key, event, 1);
}

fn getdel(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    if get_old(cx, &key, reply)? {
        cx.remove(&key);
        cx.log_as(&[Arg::Bytes(b"DEL"), Arg::Sent(1)]);
    }
    Ok(())
}

fn getset(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    get_old(cx, &key, reply)?;
    cx.set_string(&key, &args[2], Expiry::Clear);
    cx.report(&key, Event::SET, 1);
    log_set(cx, Expiry::Clear);
    Ok(())
}

fn setnx(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let sets = !cx.exists(&key);
    if sets {
        cx.set_string(&key, &args[2], Expiry::Clear);
        cx.report(&key, Event::SET, 1);
    }
    reply.integer(i64::from(sets));
    Ok(())
}

fn setex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set_for(cx, args, TimeForm::Ex, "setex")?;
    reply.ok();
    Ok(())
}

fn psetex(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set_for(cx, args, TimeForm::Px, "psetex")?;
    reply.ok();
    Ok(())
}

fn set_for(cx: &mut Cx<'_, '_>, args: Args<'_>, form: TimeForm, command: &str) -> CommandResult {
    let at_ms = form.at_ms(&args[2], cx.now_ms, command)?;
    let key = cx.key(0);
    cx.set_string(&key, &args[3], Expiry::At(at_ms));
    cx.report(&key, Event::SET, 1);
    cx.report(&key, Event::EXPIRE, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const LONG: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn set_and_get() {
        check(&[
            ("SET k value", "+OK"),
            ("GET k", "$5 value"),
            ("GET missing", "_"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("GET k", "$40 0123456789012345678901234567890123456789"),
            ("SET k ''", "+OK"),
            ("GET k", "$0"),
        ]);
    }

    #[test]
    fn set_conditions_and_get() {
        check(&[
            ("SET k 1 XX", "_"),
            ("SET k 1 nx", "+OK"),
            ("SET k 2 NX", "_"),
            ("GET k", "$1 1"),
            ("SET k 2 xx", "+OK"),
            ("SET k 3 GET", "$1 2"),
            ("SET k 4 NX GET", "$1 3"),
            ("SET k 4 XX GET", "$1 3"),
            ("GET k", "$1 4"),
            ("SET new 1 GET XX", "_"),
            ("GET new", "_"),
            ("SET new 1 GET NX", "_"),
            ("GET new", "$1 1"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("SET k 5 NX GET", "$40 0123456789012345678901234567890123456789"),
            ("SET k 5 GET GET", "$40 0123456789012345678901234567890123456789"),
            ("GET k", "$1 5"),
        ]);
    }

    #[test]
    fn set_refuses_options_that_contradict_each_other() {
        for options in [
            "NX XX",
            "XX NX",
            "EX",
            "PX",
            "EXAT",
            "PXAT",
            "EX 10 PX 10",
            "EX 10 EXAT 10",
            "PXAT 10 PX 10",
            "KEEPTTL EX 10",
            "EX 10 KEEPTTL",
            "PERSIST",
            "10",
            "EX 10 10",
            "EX nothing foo",
            "''",
        ] {
            let line = format!("SET k v {options}");
            check(&[(&line, "-ERR syntax error"), ("GET k", "_")]);
        }
        check(&[
            ("SET k v NX NX", "+OK"),
            ("SET k v XX XX KEEPTTL KEEPTTL", "+OK"),
            ("SET k v EX 10 ex 20", "+OK"),
            ("SET k v EX NX EX 20", "+OK"),
        ]);
    }

    #[test]
    fn times_that_are_none() {
        let cases = [
            ("0", "-ERR invalid expire time in '{}' command"),
            ("-1", "-ERR invalid expire time in '{}' command"),
            ("9223372036854775807", "-ERR invalid expire time in '{}' command"),
            ("9223372036854775808", "-ERR value is not an integer or out of range"),
            ("1.5", "-ERR value is not an integer or out of range"),
            ("''", "-ERR value is not an integer or out of range"),
        ];
        for (time, error) in cases {
            for (command, line) in [
                ("set", format!("SET k v EX {time}")),
                ("set", format!("SET k v PX {time}")),
                ("set", format!("SET k v GET EXAT {time}")),
                ("setex", format!("SETEX k {time} v")),
                ("psetex", format!("PSETEX k {time} v")),
                ("getex", format!("GETEX k EX {time}")),
                ("getex", format!("GETEX k PX {time}")),
            ] {
                let error = error.replace("{}", command);
                check(&[
                    (&format!("SET k {LONG}"), "+OK"),
                    (&line, &error),
                    ("GET k", &format!("$40 {LONG}")),
                ]);
            }
        }
        check(&[
            ("SET k v EX 9223372036854775", "-ERR invalid expire time in 'set' command"),
            ("SET k v EXAT 9223372036854776", "-ERR invalid expire time in 'set' command"),
            ("GETEX missing EX 0", "_"),
            ("GETEX missing EX x", "_"),
        ]);
    }

    #[test]
    fn expiries_end_keys() {
        let lines = [
            "SET k v EX 2",
            "SET k v PX 2000",
            "SET k v EXAT 1700000002",
            "SET k v PXAT 1700000002000",
            "SETEX k 2 v",
            "PSETEX k 2000 v",
            "GETEX k EX 2",
            "GETEX k PX 2000",
            "GETEX k EXAT 1700000002",
            "GETEX k PXAT 1700000002000",
        ];
        for (line, demote) in lines.iter().flat_map(|line| [(line, false), (line, true)]) {
            let mut server = Harness::new(demote);
            server.run(&format!("SET k {LONG}"));
            server.run(line);
            server.now_ms += 1_999;
            assert_ne!(server.run("GET k"), "_", "{line}");
            server.now_ms += 1;
            assert_eq!(server.run("GET k"), "_", "{line}");
        }
    }

    #[test]
    fn expiries_that_stay_and_that_go() {
        let cases = [
            ("SET k v KEEPTTL", "_"),
            ("SET k v", "$1 v"),
            ("GETSET k v", "$1 v"),
            ("GETEX k", "_"),
            ("GETEX k PERSIST", "*"),
            ("GETEX k PERSIST PERSIST", "*"),
            ("GETEX k EX 1 EX 100", "*"),
            ("SETNX k v", "_"),
        ];
        for ((line, expected), demote) in
            cases.iter().flat_map(|case| [(case, false), (case, true)])
        {
            let mut server = Harness::new(demote);
            server.run(&format!("SET k {LONG} EX 10"));
            server.run(line);
            server.now_ms += 10_000;
            let got = server.run("GET k");
            match *expected {
                "*" => assert_eq!(got, format!("$40 {LONG}"), "{line}"),
                expected => assert_eq!(got, expected, "{line}"),
            }
        }
    }

    #[test]
    fn a_time_that_has_come_removes_the_key() {
        check(&[
            ("SET k v", "+OK"),
            ("SET k w EXAT 1700000000", "+OK"),
            ("GET k", "_"),
            ("SET k v", "+OK"),
            ("SET k w PXAT 1 GET", "$1 v"),
            ("GET k", "_"),
            ("SET k v EXAT 1", "+OK"),
            ("GET k", "_"),
            ("SET k v", "+OK"),
            ("SET k w NX EXAT 1", "_"),
            ("GETEX k EXAT 1", "$1 v"),
            ("GET k", "_"),
        ]);
    }

    #[test]
    fn getex_refuses_options_that_contradict_each_other() {
        for options in
            ["EX", "PERSIST EX 10", "EX 10 PERSIST", "EX 10 PX 10", "KEEPTTL", "NX", "GET", "10"]
        {
            check(&[
                (&format!("GETEX missing {options}"), "-ERR syntax error"),
                ("SET k v", "+OK"),
                (&format!("GETEX k {options}"), "-ERR syntax error"),
            ]);
        }
    }

    #[test]
    fn get_and_change() {
        check(&[
            ("GETDEL k", "_"),
            ("GETSET k one", "_"),
            ("GETSET k 0123456789012345678901234567890123456789", "$3 one"),
            ("GETSET k two", "$40 0123456789012345678901234567890123456789"),
            ("GETDEL k", "$3 two"),
            ("GET k", "_"),
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("GETDEL k", "$40 0123456789012345678901234567890123456789"),
            ("GETDEL k", "_"),
            ("SETNX k 1", ":1"),
            ("SETNX k 2", ":0"),
            ("GET k", "$1 1"),
        ]);
    }

    #[test]
    fn numbers_of_arguments() {
        check(&[
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("GET a b", "-ERR wrong number of arguments for 'get' command"),
            ("SET a", "-ERR wrong number of arguments for 'set' command"),
            ("GETEX", "-ERR wrong number of arguments for 'getex' command"),
            ("SETEX k 1", "-ERR wrong number of arguments for 'setex' command"),
            ("SETNX k", "-ERR wrong number of arguments for 'setnx' command"),
        ]);
    }
}
