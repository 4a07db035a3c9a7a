//! CLIENT: what a connection tells of itself and wants, and what one may do to others.

use std::sync::atomic::Ordering;

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use super::client_list::{Filter, Line, Show};
use super::help::write_help;
use super::refusal::{quoted, wrong_subcommand};
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::{Closing, ReplyMode, Session};
use crate::state::pause::Paused;
use crate::state::waiters::{UNBLOCKED, WaiterState};

/// Flags of subcommands about the connection itself.
const OWN: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);
/// Flags of subcommands that concern other connections too.
const ADMIN: Flags = OWN.and(Flags::ADMIN);

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("CLIENT", Group::Connection, "2.4.0", "Inspects and controls connections."),
    row(("CLIENT|ID", 2, OWN, "5.0.0"), "Answers the number of the connection.", "O(1)", "", id),
    row(
        ("CLIENT|GETNAME", 2, OWN, "2.6.9"),
        "Answers the name of the connection.",
        "O(1)",
        "",
        get_name,
    ),
    row(
        ("CLIENT|SETNAME", 3, OWN, "2.6.9"),
        "Names the connection.",
        "O(1)",
        "connection-name",
        set_name,
    ),
    row(
        ("CLIENT|SETINFO", 4, OWN, "7.2.0"),
        "Names the library that the client uses, or its version.",
        "O(1)",
        "<LIB-NAME libname | LIB-VER libver>",
        set_info,
    ),
    row(
        ("CLIENT|INFO", 2, OWN, "6.2.0"),
        "Tells what is known of the connection.",
        "O(1)",
        "",
        info,
    ),
    row(
        ("CLIENT|LIST", -2, ADMIN, "2.4.0"),
        "Lists connections.",
        "O(N) for N connections",
        "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
        list,
    ),
    row(
        ("CLIENT|KILL", -3, ADMIN, "2.4.0"),
        "Closes connections.",
        "O(N) for N connections",
        "<ip:port | <[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | \
         [USER username] | [ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>] | \
         [MAXAGE maxage] [[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | \
         [USER username] | [ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>] | \
         [MAXAGE maxage] ...]>>",
        kill,
    ),
    row(
        ("CLIENT|PAUSE", -3, ADMIN, "2.9.50"),
        "Lets the commands of all clients wait.",
        "O(1)",
        "timeout [WRITE | ALL]",
        pause,
    ),
    row(
        ("CLIENT|UNPAUSE", 2, ADMIN, "6.2.0"),
        "Lets clients go on that wait because of a pause.",
        "O(1)",
        "",
        unpause,
    ),
    row(
        ("CLIENT|UNBLOCK", -3, ADMIN, "5.0.0"),
        "Ends the wait of a client for keys.",
        "O(log N) for N connections",
        "client-id [TIMEOUT | ERROR]",
        unblock,
    ),
    row(
        ("CLIENT|REPLY", 3, OWN, "3.2.0"),
        "Says whether the server answers.",
        "O(1)",
        "<ON | OFF | SKIP>",
        reply_mode,
    ),
    row(
        ("CLIENT|NO-EVICT", 3, ADMIN, "7.0.0"),
        "Keeps the connection from being closed for its memory.",
        "O(1)",
        "<ON | OFF>",
        no_evict,
    ),
    row(
        ("CLIENT|NO-TOUCH", 3, OWN, "7.2.0"),
        "Says whether the connection's reads count as uses of keys.",
        "O(1)",
        "<ON | OFF>",
        no_touch,
    ),
    row(
        ("CLIENT|HELP", 2, Flags::LOADING.and(Flags::STALE), "5.0.0"),
        "Lists the subcommands.",
        "O(1)",
        "",
        help,
    ),
];

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Answer the name of this connection.",
    "ID",
    "    Answer the number of this connection.",
    "INFO",
    "    Tell what is known of this connection.",
    "KILL <ip:port>",
    "    Close the connection from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections to which all options apply:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Come from this address.",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Were made to this address.",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Are of this type.",
    "    * USER <username>",
    "      Belong to this user.",
    "    * ID <client-id>",
    "      Have this number.",
    "    * MAXAGE <seconds>",
    "      Are at least so old.",
    "    * SKIPME (YES|NO)",
    "      Leave this connection out (default: yes).",
    "LIST [options ...]",
    "    List connections. Options are:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Only those of this type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Only those with these numbers.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Let commands, or those that write, wait for <timeout> milliseconds.",
    "UNPAUSE",
    "    End a pause.",
    "UNBLOCK <client-id> [TIMEOUT|ERROR]",
    "    End the wait of a client for keys, as if its time were over or with an error.",
    "REPLY (ON|OFF|SKIP)",
    "    Say whether this connection wants replies.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Name the library of this client, or its version.",
    "SETNAME <name>",
    "    Name this connection.",
    "NO-EVICT (ON|OFF)",
    "    Do not close this connection for its memory.",
    "NO-TOUCH (ON|OFF)",
    "    Do not count reads of this connection as uses of keys.",
    "HELP",
    "    Print this help.",
];

const fn row(
    (name, arity, flags, since): (&'static str, i32, Flags, &'static str),
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Connection, since, summary, complexity, syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

fn id(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(session.client.id as i64);
    Ok(())
}

fn get_name(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let labels = session.client.labels.lock();
    match labels.name.as_str() {
        "" => reply.null(),
        name => reply.bulk(name.as_bytes()),
    }
    Ok(())
}

fn set_name(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.set_name(&args[2])?;
    reply.ok();
    Ok(())
}

fn set_info(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (attribute, value) = (&args[2], &args[3]);
    let is_name = attribute.eq_ignore_ascii_case(b"LIB-NAME");
    let attribute = quoted(attribute);
    if !is_name && !attribute.eq_ignore_ascii_case("LIB-VER") {
        return Err(CommandError::owned(format!("ERR Unrecognized option '{attribute}'")));
    }
    let value = std::str::from_utf8(value).ok();
    let Some(value) = value.filter(|value| value.bytes().all(|byte| byte.is_ascii_graphic()))
    else {
        return Err(CommandError::owned(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        )));
    };
    session.client.change_labels(|labels| {
        let label = if is_name { &mut labels.library_name } else { &mut labels.library_version };
        *label = value.to_owned();
    });
    reply.ok();
    Ok(())
}

fn info(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    note_command(session, args);
    let line = Line {
        registry: session.server().registry,
        client: &session.client,
        now_ms: session.now_ms,
    };
    reply.verbatim("txt", format!("{line}\n"));
    Ok(())
}

fn list(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let show = Show::parse(args)?;
    note_command(session, args);
    let mut text = String::new();
    for client in session.server().clients.all() {
        if show.wants(&client) {
            let line = Line {
                registry: session.server().registry,
                client: &client,
                now_ms: session.now_ms,
            };
            text.push_str(&format!("{line}\n"));
        }
    }
    reply.verbatim("txt", text);
    Ok(())
}

/// Makes the command under way the one that the connection's own line names.
fn note_command(session: &Session, args: Args<'_>) {
    let container = session.server().registry.get(&args[0]);
    if let Some(entry) = container.and_then(|entry| entry.subcommand(&args[1])) {
        session.client.last_command.store(entry.index as u32 + 1, Ordering::Relaxed);
    }
}

fn kill(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let filter = Filter::parse(args)?;
    let mut killed = 0;
    for client in session.server().clients.all() {
        if !filter.matches(&client, session.client.id, session.now_ms) {
            continue;
        }
        killed += 1;
        if client.id == session.client.id {
            session.closing = Closing::AfterReplies;
        } else {
            client.kill();
        }
    }
    match (filter.is_old_form, killed) {
        (true, 0) => return Err(command::fixed("ERR No such client")),
        (true, _) => reply.ok(),
        (false, _) => reply.integer(killed),
    }
    Ok(())
}

fn pause(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let what = match args.get(3) {
        None => Paused::All,
        Some(_) if args.len() > 4 => return Err(wrong_subcommand("CLIENT", &args[1])),
        Some(mode) if mode.eq_ignore_ascii_case(b"ALL") => Paused::All,
        Some(mode) if mode.eq_ignore_ascii_case(b"WRITE") => Paused::Writes,
        Some(_) => return Err(command::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let Some(timeout_ms) = value::parse_i64(&args[2]) else {
        return Err(command::fixed("ERR timeout is not an integer or out of range"));
    };
    let Ok(timeout_ms) = u64::try_from(timeout_ms) else {
        return Err(command::fixed("ERR timeout is negative"));
    };
    session.server().pause.start(what, session.now_ms.saturating_add(timeout_ms));
    reply.ok();
    Ok(())
}

fn unpause(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.server().pause.end();
    reply.ok();
    Ok(())
}

fn unblock(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let is_error = match args.get(3) {
        _ if args.len() > 4 => return Err(wrong_subcommand("CLIENT", &args[1])),
        None => false,
        Some(reason) if reason.eq_ignore_ascii_case(b"TIMEOUT") => false,
        Some(reason) if reason.eq_ignore_ascii_case(b"ERROR") => true,
        Some(_) => {
            return Err(command::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = value::parse_i64(&args[2]).ok_or(CommandError::NOT_INTEGER)?;
    let client = u64::try_from(id).ok().and_then(|id| session.server().clients.get(id));
    let client = client.filter(|client| !client.is_killed());
    let waiter = client.and_then(|client| client.waiter.lock().clone());
    let error = is_error.then_some(UNBLOCKED.as_bytes());
    let unblocked = waiter.filter(|waiter| {
        let count = || session.worker.stats.count_wait(waiter.entry, 0, error);
        waiter.end(WaiterState::Unblocked { is_error }, count)
    });
    if let Some(waiter) = &unblocked {
        session.worker.tell(&waiter.client);
    }
    reply.integer(unblocked.is_some().into());
    Ok(())
}

fn reply_mode(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mode = &args[2];
    let is_on = mode.eq_ignore_ascii_case(b"ON");
    let is_off = mode.eq_ignore_ascii_case(b"OFF");
    if !is_on && !is_off && !mode.eq_ignore_ascii_case(b"SKIP") {
        return Err(CommandError::SYNTAX);
    }
    if !is_on && session.is_in_exec() {
        // The array of EXEC's replies has been announced: one that is left out would shift all
        // that follow it.
        return Err(command::fixed("ERR replies cannot be turned off in a transaction"));
    }
    if is_on {
        session.reply_mode = ReplyMode::On;
        reply.ok();
    } else if is_off {
        session.reply_mode = ReplyMode::Off;
    } else if session.reply_mode != ReplyMode::Off {
        session.reply_mode = ReplyMode::SkipNext;
    }
    Ok(())
}

fn no_evict(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.client.no_evict.store(parse_switch(&args[2])?, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn no_touch(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.set_no_touch(parse_switch(&args[2])?);
    reply.ok();
    Ok(())
}

fn parse_switch(word: &[u8]) -> Result<bool, CommandError> {
    match word {
        word if word.eq_ignore_ascii_case(b"ON") => Ok(true),
        word if word.eq_ignore_ascii_case(b"OFF") => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
