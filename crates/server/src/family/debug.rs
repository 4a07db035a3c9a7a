//! DEBUG: what test suites of Redis and its clients use. Off unless `enable-debug-command` allows it.
//!
//! What changes nothing here is accepted where tests only set it, and refused where they would
//! count on what it does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use command::family::object::encoding_name;
use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use keyspace::{Db, Expiry, Key, Stored, Tally};
use resp::{Args, Protocol, Reply};
use tier::Pressure;
use value::Kind;
use value::digest::Digest;

use super::help::write_help;
use super::refusal::wrong_subcommand;
use super::tier::NO_FLASH;
use crate::family::row::SessionCommand;
use crate::session::Session;
use crate::session::digest::DigestOf;
use crate::session::errand::Errand;
use crate::session::load::{Load, fail_snapshot};
use crate::state::saves::LOADING_ERROR;

/// The longest DEBUG SLEEP.
const SLEEP_SECONDS_MAX: f64 = 3600.0;
/// Keys that DEBUG POPULATE makes between two looks at memory.
const POPULATE_STEP: u64 = 1024;
/// How long it waits for the journal at a time.
const JOURNAL_PAUSE: Duration = Duration::from_millis(1);
/// The longest value that it makes.
const POPULATE_BYTES_MAX: u64 = 512 << 20;

const NOT_ALLOWED: CommandError = command::fixed(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
     can run it from a local connection, otherwise you need to set this option in the \
     configuration file, and then restart the server.",
);
const IN_TRANSACTION: CommandError =
    command::fixed("ERR this subcommand of DEBUG is not allowed in a transaction");
const NO_LOADAOF: CommandError =
    command::fixed("ERR the journal is read when the server starts, and not by DEBUG LOADAOF");
const NOT_POSITIVE: CommandError = command::fixed("ERR value is out of range, must be positive");

/// Settings of Redis's insides that there is nothing like here: name, words of the request.
const WITHOUT_EFFECT: &[(&str, usize)] = &[
    ("CHANGE-REPL-ID", 2),
    ("DICT-RESIZING", 3),
    ("PAUSE-CRON", 3),
    ("QUICKLIST-PACKED-THRESHOLD", 3),
    ("REPLYBUFFER", 4),
    ("SET-DISABLE-DENY-SCRIPTS", 3),
];

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[Row {
    name: "DEBUG",
    arity: -2,
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    keys: &[],
    locks: Locks::None,
    docs: Docs {
        group: Group::Server,
        since: "1.0.0",
        summary: "Does what tests need.",
        complexity: "Depends on the subcommand",
        syntax: "",
    },
    run: debug,
}];

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DEMOTE-AFTER-COMMAND <0|1>",
    "    Demote the values of the keys of every command behind it, so that the next one finds them",
    "    on flash (1), or when memory is short only (0).",
    "DIGEST",
    "    Answer a digest of all databases.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Answer a digest of the value of each <key>.",
    "ERROR <string>",
    "    Answer an error with this text.",
    "HTSTATS <dbid>",
    "    Tell how many keys a database has.",
    "LOG <message>",
    "    Write <message> to the server's log.",
    "OBJECT <key>",
    "    Tell how the value of <key> is kept.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Make <count> strings named <prefix>:<number>, those that do not exist.",
    "PROTOCOL <type>",
    "    Answer a value of the type: string, integer, double, bignum, null, array, set, map,",
    "    attrib, push, verbatim, true, false.",
    "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
    "    Save the databases to the snapshot's file, flush them and load the file. Others are served",
    "    meanwhile.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Remove expired keys when they are used only (0), or by and by (1).",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Have RESTORE take payloads whose checksum is another (1), or refuse them (0).",
    "SLEEP <seconds>",
    "    Stop the worker of this connection for <seconds>. Decimals allowed.",
    "CHANGE-REPL-ID, DICT-RESIZING <0|1>, PAUSE-CRON <0|1>, QUICKLIST-PACKED-THRESHOLD <size>,",
    "REPLYBUFFER <option> <value>, SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Accepted, without effect.",
    "HELP",
    "    Print this help.",
];

fn debug(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if !session.is_allowed(session.server().config.enable_debug_command.load()) {
        return Err(NOT_ALLOWED);
    }
    let name = args[1].to_ascii_uppercase();
    match (name.as_slice(), args.len()) {
        (b"ERROR", 3) => {
            return Err(CommandError::owned(String::from_utf8_lossy(&args[2]).into_owned()));
        }
        (b"DIGEST", 2) => return digest(session, reply),
        (b"DIGEST-VALUE", _) => return digest_values(session, args, reply),
        (b"HELP", 2) => return write_help(HELP, reply),
        (b"HTSTATS", 3) => return table_stats(session, &args[2], reply),
        (b"LOADAOF", _) => return Err(NO_LOADAOF),
        (b"RELOAD", _) => return reload(session, args, reply),
        (b"LOG", 3) => tracing::warn!("DEBUG LOG: {}", args[2].escape_ascii()),
        (b"OBJECT", 3) => return object(session, &args[2], reply),
        (b"POPULATE", 3..=5) => populate(session, args)?,
        (b"DEMOTE-AFTER-COMMAND", 3) => {
            let is_on = parse_switch(&args[2]);
            let tier = &session.server().tier;
            if is_on && (!tier.has_flash() || tier.drains()) {
                return Err(NO_FLASH);
            }
            session.server().demotes_after_command.store(is_on, Ordering::Relaxed);
        }
        (b"PROTOCOL", 3) => return protocol(session, &args[2], reply),
        (b"SET-ACTIVE-EXPIRE", 3) => {
            session.server().active_expire.store(parse_switch(&args[2]), Ordering::Relaxed);
        }
        (b"SET-SKIP-CHECKSUM-VALIDATION", 3) => {
            session.server().checks_sums.store(!parse_switch(&args[2]), Ordering::Relaxed);
        }
        (b"SLEEP", 3) => sleep(&args[2]),
        (name, words) if is_without_effect(name, words) => {}
        _ => return Err(wrong_subcommand("DEBUG", &args[1])),
    }
    reply.ok();
    Ok(())
}

/// Called twice: the first time it asks for the work, the second time it finds it done.
fn reload(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut load = Load { saves: true, flushes: true, merges: false };
    for word in args.from(2).iter() {
        match word.to_ascii_uppercase().as_slice() {
            b"MERGE" => load.merges = true,
            b"NOFLUSH" => load.flushes = false,
            b"NOSAVE" => load.saves = false,
            _ => {
                return Err(command::fixed(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    if session.is_in_exec() {
        return Err(IN_TRANSACTION);
    }
    match session.errand.take() {
        Errand::Loaded(Ok(())) => reply.ok(),
        Errand::Loaded(Err(text)) => return Err(CommandError::owned(text)),
        _ => session.errand = Errand::Load(load),
    }
    Ok(())
}

fn is_without_effect(name: &[u8], words: usize) -> bool {
    WITHOUT_EFFECT.iter().any(|(other, count)| other.as_bytes() == name && *count == words)
}

/// Stops the worker, as Redis stops the server: that is what tests use it for.
fn sleep(seconds: &[u8]) {
    let seconds: Option<f64> = std::str::from_utf8(seconds).ok().and_then(|text| text.parse().ok());
    // Redis takes what is no number for 0.
    let seconds = seconds.filter(|seconds| seconds.is_finite()).unwrap_or(0.0);
    std::thread::sleep(Duration::from_secs_f64(seconds.clamp(0.0, SLEEP_SECONDS_MAX)));
}

fn digest(session: &mut Session, reply: &mut Reply) -> CommandResult {
    if let Some(digests) = digested(session, |_| DigestOf::DataSet)? {
        digests.iter().for_each(|digest| reply.simple(&digest.to_string()));
    }
    Ok(())
}

fn digest_values(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let of_values = |db| {
        let keys = args.from(2).iter().map(Box::from).collect();
        DigestOf::Values { db, keys }
    };
    if let Some(digests) = digested(session, of_values)? {
        reply.array(digests.len());
        digests.iter().for_each(|digest| reply.simple(&digest.to_string()));
    }
    Ok(())
}

/// Called twice: the first time it asks for the work, the second time it finds it done. `what` is
/// given the selected database.
fn digested(
    session: &mut Session,
    what: impl FnOnce(u8) -> DigestOf,
) -> Result<Option<Vec<Digest>>, CommandError> {
    if session.is_in_exec() {
        return Err(IN_TRANSACTION);
    }
    match std::mem::take(&mut session.errand) {
        Errand::Digested(Ok(digests)) => Ok(Some(digests)),
        Errand::Digested(Err(error)) => Err(CommandError::owned(format!("ERR {error}"))),
        _ => {
            session.errand = Errand::Digest(what(session.db));
            Ok(None)
        }
    }
}

fn table_stats(session: &Session, db: &[u8], reply: &mut Reply) -> CommandResult {
    let db = value::parse_i64(db).ok_or(CommandError::NOT_INTEGER)?;
    let db = u8::try_from(db).ok().filter(|db| usize::from(*db) < keyspace::DB_COUNT);
    let db = db.ok_or(command::fixed("ERR Out of range database"))?;
    let tier = &session.server().tier;
    let counts = tier.counters.table(tier.keyspace.table_of(db));
    let text = format!(
        "[Dictionary HT]\nnumber of elements: {}\n[Expires HT]\nnumber of elements: {}\n",
        counts.keys, counts.volatile
    );
    reply.verbatim("txt", text);
    Ok(())
}

fn object(session: &Session, key: &[u8], reply: &mut Reply) -> CommandResult {
    if session.is_in_exec() {
        return Err(IN_TRANSACTION);
    }
    let key = Key::new(key);
    let tier = &session.server().tier;
    let mut slot = tier.keyspace.lock(key.slot);
    let mut tally = tier.tally();
    let table = tier.keyspace.table_of(session.db);
    let text = Db::new(&mut slot, table, session.expiry_ms(), &mut tally).into_view(&key).map(|view| {
        let address = match view.stored {
            Stored::Hot(bytes) | Stored::Clean(bytes, _) => bytes.as_ptr(),
            Stored::Cold(..) => std::ptr::null(),
        };
        let encoding = encoding_name(&view);
        let length = serialized_length(view.value_len());
        format!(
            "Value at:{address:p} refcount:1 encoding:{encoding} serializedlength:{length} lru:0 \
             lru_seconds_idle:0"
        )
    });
    tier.tell(&mut tally);
    drop(slot);
    tier.add_tally(&mut tally);
    reply.simple(&text.ok_or(CommandError::NO_SUCH_KEY)?);
    Ok(())
}

/// Bytes of a string in an RDB file, uncompressed: its length in one, two or five bytes, and it.
fn serialized_length(len: usize) -> usize {
    let header = match len {
        0..64 => 1,
        64..16_384 => 2,
        _ => 5,
    };
    header + len
}

fn populate(session: &Session, args: Args<'_>) -> CommandResult {
    if session.server().pause.is_loading() {
        return Err(command::fixed(LOADING_ERROR));
    }
    if session.is_in_exec() {
        return Err(IN_TRANSACTION);
    }
    let count = parse_positive(&args[2])?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = match args.get(4) {
        Some(size) => parse_positive(size)?.min(POPULATE_BYTES_MAX) as usize,
        None => 0,
    };
    let tier = &session.server().tier;
    let mut tally = Tally::default();
    for number in 0..count {
        let mut name = prefix.to_vec();
        name.extend_from_slice(format!(":{number}").as_bytes());
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size, 0);
        }
        let key = Key::new(&name);
        let mut slot = tier.keyspace.lock(key.slot);
        fail_snapshot(&session.worker);
        let table = tier.keyspace.table_of(session.db);
        let mut db = Db::new(&mut slot, table, session.now_ms, &mut tally);
        if db.peek(&key).is_none() {
            let kind = Kind::of_string(&value).bits();
            if session.server().listening.is_logged() {
                let words: [&[u8]; 3] = [b"SET", &name, &value];
                session.server().journaling.append_command(session.db, session.now_ms, &words);
            }
            db.put_vec(&key, kind, value, Expiry::Clear);
        }
        if session.worker.demotes_after_command() {
            session.worker.demote_later(std::iter::once(key.slot));
        }
        drop(slot);
        if number % POPULATE_STEP == 0 {
            while !session.server().journaling.takes_writes() {
                std::thread::sleep(JOURNAL_PAUSE);
            }
            let pressure = session.worker.tier.after_batch(&mut tally);
            if pressure == Pressure::Wait {
                return Err(command::fixed(
                    "OOM command not allowed when used memory > 'maxmemory'.",
                ));
            }
        }
    }
    tier.add_tally(&mut tally);
    Ok(())
}

fn parse_positive(word: &[u8]) -> Result<u64, CommandError> {
    value::parse_i64(word).and_then(|number| u64::try_from(number).ok()).ok_or(NOT_POSITIVE)
}

fn parse_switch(word: &[u8]) -> bool {
    value::parse_i64(word).is_some_and(|number| number != 0)
}

fn protocol(session: &Session, kind: &[u8], reply: &mut Reply) -> CommandResult {
    let has_all_types = session.protocol == Protocol::Resp3;
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(3141.0 / 1000.0),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.bool(number == 1);
            }
        }
        b"attrib" => {
            if has_all_types {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if !has_all_types => {
            return Err(command::fixed("ERR RESP2 is not supported by this command"));
        }
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim("txt", "This is a verbatim\nstring"),
        b"true" => reply.bool(true),
        b"false" => reply.bool(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => {
            return Err(command::fixed(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
