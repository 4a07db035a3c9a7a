//! When keys end: setting, asking for and taking back their expiry.
//!
//! Times are Unix milliseconds inside. A time that has come removes the key at once, so that no
//! record ever carries a time before the one at which it was set.

use resp::{Args, Reply};
use value::parse_i64;

use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs};

/// Milliseconds in the unit of an argument or reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// What a time is counted from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Now,
    Epoch,
}

const NX_AND_OTHERS: CommandError =
    fixed("ERR NX and XX, GT or LT options at the same time are not compatible");
const GT_AND_LT: CommandError = fixed("ERR GT and LT options at the same time are not compatible");

/// The reply of TTL and its relatives for a key that is not there.
const NO_KEY: i64 = -2;
/// Their reply for a key without an expiry.
const NO_EXPIRY: i64 = -1;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    setter(
        "EXPIRE",
        expire,
        SetterText {
            since: "1.0.0",
            summary: "Ends a key so many seconds from now.",
            syntax: "key seconds [NX | XX | GT | LT]",
        },
    ),
    setter(
        "PEXPIRE",
        pexpire,
        SetterText {
            since: "2.6.0",
            summary: "Ends a key so many milliseconds from now.",
            syntax: "key milliseconds [NX | XX | GT | LT]",
        },
    ),
    setter(
        "EXPIREAT",
        expireat,
        SetterText {
            since: "1.2.0",
            summary: "Ends a key at a Unix time in seconds.",
            syntax: "key unix-time-seconds [NX | XX | GT | LT]",
        },
    ),
    setter(
        "PEXPIREAT",
        pexpireat,
        SetterText {
            since: "2.6.0",
            summary: "Ends a key at a Unix time in milliseconds.",
            syntax: "key unix-time-milliseconds [NX | XX | GT | LT]",
        },
    ),
    getter("TTL", ttl, "1.0.0", "Tells how many seconds a key has left."),
    getter("PTTL", pttl, "2.6.0", "Tells how many milliseconds a key has left."),
    getter("EXPIRETIME", expiretime, "7.0.0", "Tells at which Unix time in seconds a key ends."),
    getter(
        "PEXPIRETIME",
        pexpiretime,
        "7.0.0",
        "Tells at which Unix time in milliseconds a key ends.",
    ),
    Command {
        name: "PERSIST",
        arity: 2,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: UPDATED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Generic,
            since: "2.2.0",
            summary: "Takes the expiry of a key away.",
            complexity: "O(1); flash is not read",
            syntax: "key",
        },
        run: persist,
    },
];

const UPDATED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::KeyOnly)];
const ASKED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::KeyOnly)];

struct SetterText {
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
}

const fn setter(name: &'static str, run: Handler, text: SetterText) -> Command {
    let SetterText { since, summary, syntax } = text;
    let complexity = "O(1); flash is not read";
    Command {
        name,
        arity: -3,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: UPDATED,
        locks: Locks::Keys,
        docs: Docs { group: Group::Generic, since, summary, complexity, syntax },
        run,
    }
}

const fn getter(
    name: &'static str,
    run: Handler,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let complexity = "O(1); flash is not read";
    Command {
        name,
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: ASKED,
        locks: Locks::Keys,
        docs: Docs { group: Group::Generic, since, summary, complexity, syntax: "key" },
        run,
    }
}

fn expire(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set(cx, args, reply, Unit::Seconds, Origin::Now)
}

fn pexpire(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set(cx, args, reply, Unit::Milliseconds, Origin::Now)
}

fn expireat(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set(cx, args, reply, Unit::Seconds, Origin::Epoch)
}

fn pexpireat(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    set(cx, args, reply, Unit::Milliseconds, Origin::Epoch)
}

fn set(
    cx: &mut Cx<'_, '_>,
    args: Args<'_>,
    reply: &mut Reply,
    unit: Unit,
    origin: Origin,
) -> CommandResult {
    let condition = Condition::parse(args)?;
    let at_ms = absolute_ms(&args[2], unit, origin, cx.now_ms)?
        .ok_or_else(|| invalid_expire_time(&args[0]))?;
    let key = cx.key(0);
    let Some(current_ms) = cx.peek(&key).map(|view| view.expire_at_ms) else {
        reply.integer(0);
        return Ok(());
    };
    if !condition.allows(current_ms, at_ms) {
        reply.integer(0);
        return Ok(());
    }
    match u64::try_from(at_ms) {
        Ok(at_ms) if at_ms > cx.now_ms => {
            cx.db(&key).set_expiry(&key, at_ms);
            cx.report(&key, Event::EXPIRE, 1);
        }
        _ => {
            cx.remove(&key);
        }
    }
    reply.integer(1);
    Ok(())
}

/// The time that an argument means, in Unix milliseconds; none when it overflows. Negative times
/// are as good as any other in the past.
fn absolute_ms(
    text: &[u8],
    unit: Unit,
    origin: Origin,
    now_ms: u64,
) -> Result<Option<i64>, CommandError> {
    let number = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
    let ms = match unit {
        Unit::Seconds => number.checked_mul(1000),
        Unit::Milliseconds => Some(number),
    };
    let origin_ms = match origin {
        Origin::Now => now_ms as i64,
        Origin::Epoch => 0,
    };
    Ok(ms.and_then(|ms| ms.checked_add(origin_ms)))
}

#[cold]
fn invalid_expire_time(command: &[u8]) -> CommandError {
    let command = String::from_utf8_lossy(command).to_ascii_lowercase();
    CommandError::owned(format!("ERR invalid expire time in '{command}' command"))
}

/// On which expiry that a key has already a new one depends.
#[derive(Clone, Copy, Default)]
struct Condition {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Condition {
    fn parse(args: Args<'_>) -> Result<Condition, CommandError> {
        let mut condition = Condition::default();
        for option in args.from(3).iter() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("NX") {
                condition.nx = true;
            } else if is("XX") {
                condition.xx = true;
            } else if is("GT") {
                condition.gt = true;
            } else if is("LT") {
                condition.lt = true;
            } else {
                let option = String::from_utf8_lossy(option);
                return Err(CommandError::owned(format!("ERR Unsupported option {option}")));
            }
        }
        if condition.nx && (condition.xx || condition.gt || condition.lt) {
            return Err(NX_AND_OTHERS);
        }
        if condition.gt && condition.lt {
            return Err(GT_AND_LT);
        }
        Ok(condition)
    }

    /// No expiry (0) counts as one that never comes.
    fn allows(self, current_ms: u64, at_ms: i64) -> bool {
        let has = current_ms != 0;
        let current_ms = i64::try_from(current_ms).unwrap_or(i64::MAX);
        let refused = (self.nx && has)
            || (self.xx && !has)
            || (self.gt && (!has || at_ms <= current_ms))
            || (self.lt && has && at_ms >= current_ms);
        !refused
    }
}

fn ttl(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    get(cx, reply, Unit::Seconds, Origin::Now)
}

fn pttl(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    get(cx, reply, Unit::Milliseconds, Origin::Now)
}

fn expiretime(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    get(cx, reply, Unit::Seconds, Origin::Epoch)
}

fn pexpiretime(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    get(cx, reply, Unit::Milliseconds, Origin::Epoch)
}

fn get(cx: &mut Cx<'_, '_>, reply: &mut Reply, unit: Unit, origin: Origin) -> CommandResult {
    let key = cx.key(0);
    let expire_at_ms = cx.peek(&key).map(|view| view.expire_at_ms);
    cx.count_lookup(&key, expire_at_ms.is_some());
    let number = match expire_at_ms {
        None => NO_KEY,
        Some(0) => NO_EXPIRY,
        Some(at_ms) => {
            let ms = match origin {
                Origin::Now => at_ms.saturating_sub(cx.now_ms),
                Origin::Epoch => at_ms,
            };
            match unit {
                Unit::Seconds => ((ms + 500) / 1000) as i64,
                Unit::Milliseconds => ms as i64,
            }
        }
    };
    reply.integer(number);
    Ok(())
}

fn persist(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let key = cx.key(0);
    let persisted = cx.peek(&key).is_some_and(|view| view.expire_at_ms != 0);
    if persisted {
        cx.db(&key).set_expiry(&key, 0);
        cx.report(&key, Event::PERSIST, 1);
    }
    reply.integer(persisted.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    /// The harness's clock at its start.
    const NOW: &str = "1700000000";

    #[test]
    fn setting_and_asking() {
        check(&[
            ("SET k 0123456789012345678901234567890123456789", "+OK"),
            ("TTL k", ":-1"),
            ("EXPIRETIME k", ":-1"),
            ("TTL missing", ":-2"),
            ("PEXPIRETIME missing", ":-2"),
            ("EXPIRE missing 10", ":0"),
            ("EXPIRE k 10", ":1"),
            ("TTL k", ":10"),
            ("PTTL k", ":10000"),
            ("EXPIRETIME k", ":1700000010"),
            ("PEXPIRETIME k", ":1700000010000"),
            ("PEXPIRE k 1499", ":1"),
            ("TTL k", ":1"),
            ("PEXPIRE k 1500", ":1"),
            ("TTL k", ":2"),
            ("EXPIREAT k 1700000020", ":1"),
            ("TTL k", ":20"),
            ("PEXPIREAT k 1700000000007", ":1"),
            ("PTTL k", ":7"),
            ("TTL k", ":0"),
            ("PERSIST k", ":1"),
            ("PERSIST k", ":0"),
            ("PERSIST missing", ":0"),
            ("TTL k", ":-1"),
            ("GET k", "$40 0123456789012345678901234567890123456789"),
        ]);
    }

    #[test]
    fn conditions() {
        check(&[
            ("SET k v", "+OK"),
            ("EXPIRE k 10 XX", ":0"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 10 XX LT", ":0"),
            ("EXPIRE k 10 XX GT", ":0"),
            ("EXPIRE k 10 LT", ":1"),
            ("EXPIRE k 5 NX nx", ":0"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 11 gt", ":1"),
            ("EXPIRE k 11 LT", ":0"),
            ("EXPIRE k 8 lt XX", ":1"),
            ("EXPIRE k 9 XX", ":1"),
            ("TTL k", ":9"),
            ("PERSIST k", ":1"),
            ("EXPIRE k 9 NX", ":1"),
            ("EXPIRE k 0 GT", ":0"),
            ("EXPIRE missing 10 NX", ":0"),
            ("EXPIRE k 0 LT", ":1"),
            ("EXISTS k", ":0"),
        ]);
    }

    #[test]
    fn times_that_have_come_remove_the_key() {
        let lines = ["EXPIRE k 0", "EXPIRE k -1", "PEXPIRE k -9223372036854775808", "EXPIREAT k 1"];
        let now = format!("EXPIREAT k {NOW}");
        for line in lines.into_iter().chain([now.as_str()]) {
            check(&[("SET k v", "+OK"), (line, ":1"), ("EXISTS k", ":0"), (line, ":0")]);
        }
    }

    #[test]
    fn numbers_out_of_range() {
        let expire = "-ERR invalid expire time in 'expire' command";
        check(&[
            ("SET k v", "+OK"),
            ("EXPIRE k x", "-ERR value is not an integer or out of range"),
            ("EXPIRE k x FOO", "-ERR Unsupported option FOO"),
            ("EXPIRE k 10 NX XX foo", "-ERR Unsupported option foo"),
            ("EXPIRE k 9223372036854775807", expire),
            ("expire k -9223372036854775808", expire),
            ("EXPIRE missing 9223372036854775807", expire),
            ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
            ("EXPIREAT k 9223372036854775807", "-ERR invalid expire time in 'expireat' command"),
            (
                "EXPIRE k 1 NX GT",
                "-ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            ("EXPIRE k 1 GT LT", "-ERR GT and LT options at the same time are not compatible"),
            ("PEXPIREAT k 9223372036854775807", ":1"),
            ("PEXPIRETIME k", ":9223372036854775807"),
            ("EXPIRETIME k", ":9223372036854776"),
            ("PTTL k", ":9223370336854775807"),
            ("PEXPIREAT k 281474976710655", ":1"),
            ("PEXPIRETIME k", ":281474976710655"),
            ("PEXPIREAT k 281474976710654 LT", ":1"),
            ("PEXPIRETIME k", ":281474976710654"),
        ]);
    }

    #[test]
    fn a_key_ends_when_its_time_comes() {
        for demote in [false, true] {
            let mut server = Harness::new(demote);
            server.run("SET k 0123456789012345678901234567890123456789");
            server.run("PEXPIRE k 100");
            server.now_ms += 99;
            assert_eq!(server.run("PTTL k"), ":1");
            assert_eq!(server.run("EXISTS k"), ":1");
            server.now_ms += 1;
            assert_eq!(server.run("PTTL k"), ":-2");
            assert_eq!(server.run("EXPIRE k 10"), ":0");
            assert_eq!(server.run("PERSIST k"), ":0");
            assert_eq!(server.run("GET k"), "_");
        }
    }

    #[test]
    fn changes_are_counted() {
        let mut server = Harness::new(true);
        server.run("SET k 0123456789012345678901234567890123456789");
        for (line, changes) in [
            ("EXPIRE missing 10", 0),
            ("EXPIRE k 10 XX", 0),
            ("EXPIRE k 10", 1),
            ("TTL k", 0),
            ("PERSIST k", 1),
            ("PERSIST k", 0),
            ("EXPIRE k -1", 1),
        ] {
            let before = server.changes;
            server.run(line);
            assert_eq!(server.changes - before, changes, "{line}");
        }
    }
}
