//! RESTORE: a key of a value that DUMP has given, here or at any Redis or Valkey.
//!
//! A payload may be anything: it is passed over first, then read for what it takes, and only when there is memory
//! for that is anything made of it. The key is changed when all of it has been read.

use keyspace::Key;
use rdb::payload::Payload;
use rdb::{Error, ObjectType, measure};
use resp::{Args, Reply};
use value::parse_i64;

use super::generic::report_replaced;
use super::object::{FREQUENCY_SCALE, IDLE_SECONDS};
use super::restored::{Restored, needed_bytes};
use super::room::check_stored;
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const BUSY_KEY: CommandError = fixed("BUSYKEY Target key name already exists.");
const INVALID_TTL: CommandError = fixed("ERR Invalid TTL value, must be >= 0");
const INVALID_IDLE_TIME: CommandError = fixed("ERR Invalid IDLETIME value, must be >= 0");
const INVALID_FREQUENCY: CommandError = fixed("ERR Invalid FREQ value, must be >= 0 and <= 255");
const WRONG_PAYLOAD: CommandError = fixed("ERR DUMP payload version or checksum are wrong");
const BAD_FORMAT: CommandError = fixed("ERR Bad data format");

/// What is made of an object takes at most this: values are shorter than 4 GiB until they are divided.
const NEEDED_BYTES_MAX: u64 = u32::MAX as u64;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[Command {
    name: "RESTORE",
    arity: -4,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::at(1, KeyFlags::OW.and(KeyFlags::UPDATE), Needs::KeyOnly)],
    locks: Locks::Keys,
    docs: Docs {
        group: Group::Generic,
        since: "2.6.0",
        summary: "Makes a key of a value that DUMP has given.",
        complexity: "O(N*log(N)) for a value of N elements",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
    },
    run: restore,
}];

/// The options of a request.
#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    idle_seconds: Option<i64>,
    frequency: Option<i64>,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let mut at = 4;
        while let Some(name) = args.get(at) {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            let number = |text: &[u8]| parse_i64(text).ok_or(CommandError::NOT_INTEGER);
            at += 1;
            if is("REPLACE") {
                options.replaces = true;
            } else if is("ABSTTL") {
                options.is_absolute = true;
            } else if let (true, None, Some(text)) =
                (is("IDLETIME"), options.frequency, args.get(at))
            {
                let seconds = number(text)?;
                if seconds < 0 {
                    return Err(INVALID_IDLE_TIME);
                }
                options.idle_seconds = Some(seconds);
                at += 1;
            } else if let (true, None, Some(text)) =
                (is("FREQ"), options.idle_seconds, args.get(at))
            {
                let frequency = number(text)?;
                if !(0..=255).contains(&frequency) {
                    return Err(INVALID_FREQUENCY);
                }
                options.frequency = Some(frequency);
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(options)
    }

    /// How often the key was used lately, if the request tells.
    fn uses(&self) -> Option<u8> {
        uses(self.idle_seconds, self.frequency)
    }
}

/// How often a key was used lately, by the seconds for which it was not, or by its frequency, up to 255.
pub(crate) fn uses(idle_seconds: Option<i64>, frequency: Option<i64>) -> Option<u8> {
    let of_idle = idle_seconds.filter(|&seconds| seconds >= IDLE_SECONDS).map(|_| 0);
    let of_frequency =
        frequency.map(|frequency| ((frequency + FREQUENCY_SCALE / 2) / FREQUENCY_SCALE) as u8);
    of_frequency.or(of_idle)
}

fn restore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let options = Options::parse(args)?;
    let key = cx.key(0);
    let is_taken = cx.exists(&key);
    if is_taken && !options.replaces {
        return Err(BUSY_KEY);
    }
    let ttl = parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let ttl = u64::try_from(ttl).map_err(|_| INVALID_TTL)?;
    let payload = match cx.limits.checks_sums() {
        true => Payload::check(&args[3]),
        false => Payload::without_check(&args[3]),
    };
    let payload = payload.map_err(|_| WRONG_PAYLOAD)?;
    let object = payload.object().map_err(|_| BAD_FORMAT)?;
    reserve(cx, &key, object, reply)?;
    let (object_type, mut bytes) = object;
    let restored = Restored::read(cx.encodings, object_type, &mut bytes, u64::MAX);
    let (restored, _) = restored.map_err(|_| BAD_FORMAT)?;
    let expire_at_ms = match ttl {
        0 => 0,
        at_ms if options.is_absolute => at_ms,
        after_ms => cx.now_ms.saturating_add(after_ms),
    };
    if expire_at_ms > 0 && expire_at_ms <= cx.now_ms {
        cx.remove(&key);
        reply.ok();
        return Ok(());
    }
    restored.store(cx, &key)?;
    if expire_at_ms > 0 {
        cx.db(&key).set_expiry(&key, expire_at_ms);
    }
    if let Some(uses) = options.uses() {
        cx.db(&key).set_frequency(&key, uses);
    }
    report_replaced(cx, (cx.db, &key), is_taken);
    cx.report(&key, Event::RESTORE, 1);
    reply.ok();
    Ok(())
}

/// Looks whether there is memory for what is made of an object, all of which can be read then.
///
/// Errors: it is none; [`CommandError::OUT_OF_MEMORY`], [`CommandError::ReplyTooLong`].
fn reserve(
    cx: &Cx<'_, '_>,
    key: &Key<'_>,
    (object_type, bytes): (ObjectType, &[u8]),
    reply: &Reply,
) -> CommandResult {
    let bytes_max = cx.limits.memory_bytes_max() as u64;
    let claims = measure(&mut &bytes[..], object_type).map_err(|_| BAD_FORMAT)?;
    let is_too_long = claims.unpacked_bytes > cx.limits.string_bytes_max() as u64;
    if is_too_long || claims.bytes > bytes_max {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    check_stored(key, 2 * claims.unpacked_bytes, cx.reply_bytes_max, reply)?;
    let needed = needed_bytes((object_type, bytes), bytes_max).map_err(|error| match error {
        Error::Stopped => CommandError::OUT_OF_MEMORY,
        _ => BAD_FORMAT,
    })?;
    if needed > NEEDED_BYTES_MAX {
        return Err(CommandError::OUT_OF_MEMORY);
    }
    check_stored(key, needed, cx.reply_bytes_max, reply)
}
