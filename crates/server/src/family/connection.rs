//! Commands on the connection itself: PING, ECHO, HELLO, AUTH, SELECT, QUIT, RESET.

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Protocol, Reply};

use crate::family::row::SessionCommand;
use crate::session::{Closing, Session};
use crate::state::server::REDIS_VERSION;

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    row("PING", -1, Flags::FAST, "1.0.0", "Answers that the server is alive.", "[message]", ping),
    row(
        "ECHO",
        2,
        Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
        "1.0.0",
        "Returns the given string.",
        "message",
        echo,
    ),
    row(
        "AUTH",
        -2,
        UNAUTHENTICATED,
        "1.0.0",
        "Authenticates the connection.",
        "[username] password",
        auth,
    ),
    row(
        "HELLO",
        -1,
        UNAUTHENTICATED,
        "6.0.0",
        "Handshakes with the server and chooses the protocol version.",
        "[protover [AUTH username password] [SETNAME clientname]]",
        hello,
    ),
    row(
        "SELECT",
        2,
        Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
        "1.0.0",
        "Changes the selected database.",
        "index",
        select,
    ),
    row("QUIT", -1, UNAUTHENTICATED, "1.0.0", "Closes the connection.", "", quit),
    row("RESET", 1, UNAUTHENTICATED, "6.2.0", "Resets the connection.", "", reset),
];

/// Commands that must work before authentication.
const UNAUTHENTICATED: Flags = Flags::NOSCRIPT
    .and(Flags::LOADING)
    .and(Flags::STALE)
    .and(Flags::FAST)
    .and(Flags::NO_AUTH)
    .and(Flags::ALLOW_BUSY);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
    run: crate::family::row::SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Connection, since, summary, complexity: "O(1)", syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

fn ping(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match args.len() {
        1 | 2 if session.takes_messages_only() => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(args.get(1).unwrap_or_default());
        }
        1 => reply.simple("PONG"),
        2 => reply.bulk(&args[1]),
        _ => {
            return Err(command::fixed("ERR wrong number of arguments for 'ping' command"));
        }
    }
    Ok(())
}

fn echo(_session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.bulk(&args[1]);
    Ok(())
}

const WRONG_PASSWORD: CommandError =
    command::fixed("WRONGPASS invalid username-password pair or user is disabled.");

fn auth(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    match args.len() {
        2 => {
            if session.server().config.requirepass.load().is_empty() {
                return Err(command::fixed(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            authenticate(session, b"default", &args[1])?;
        }
        3 => authenticate(session, &args[1], &args[2])?,
        _ => return Err(CommandError::SYNTAX),
    }
    reply.ok();
    Ok(())
}

/// Checks a user and a password. There is one user, `default`.
fn authenticate(session: &mut Session, user: &[u8], password: &[u8]) -> CommandResult {
    let expected = session.server().config.requirepass.load();
    let matches = expected.is_empty() || is_equal(&expected, password);
    if user != b"default" || !matches {
        return Err(WRONG_PASSWORD);
    }
    session.set_authenticated(true);
    Ok(())
}

/// Compares in a time that does not tell where the difference is.
fn is_equal(expected: &[u8], given: &[u8]) -> bool {
    let differences = expected.iter().zip(given).fold(0, |all, (one, two)| all | (one ^ two));
    expected.len() == given.len() && differences == 0
}

fn hello(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut protocol = session.protocol;
    if let Some(version) = args.get(1) {
        protocol = match value::parse_i64(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(command::fixed("NOPROTO unsupported protocol version")),
            None => {
                return Err(command::fixed(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    let mut name = None;
    let mut index = 2;
    while index < args.len() {
        let left = args.len() - index - 1;
        if args[index].eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            authenticate(session, &args[index + 1], &args[index + 2])?;
            index += 3;
        } else if args[index].eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            name = Some(index + 1);
            index += 2;
        } else {
            let option = String::from_utf8_lossy(&args[index]).into_owned();
            return Err(CommandError::owned(format!(
                "ERR Syntax error in HELLO option '{option}'"
            )));
        }
    }
    if !session.authenticated {
        return Err(command::fixed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(index) = name {
        session.set_name(&args[index])?;
    }
    session.set_protocol(protocol);
    reply.set_protocol(protocol);
    write_hello(session, reply);
    Ok(())
}

fn write_hello(session: &Session, reply: &mut Reply) {
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(if session.protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(session.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

fn select(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let index = value::parse_i64(&args[1]).ok_or(CommandError::NOT_INTEGER)?;
    if i32::try_from(index).is_err() {
        return Err(command::fixed(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let databases = session.server().config.databases.load();
    if !(0..databases.min(keyspace::DB_COUNT as i64)).contains(&index) {
        return Err(command::fixed("ERR DB index is out of range"));
    }
    session.select(index as u8);
    reply.ok();
    Ok(())
}

fn quit(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    session.closing = Closing::AfterReplies;
    reply.ok();
    Ok(())
}

fn reset(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    // What was on its way comes first, in the protocol that it was meant for.
    session.unsubscribe_all();
    session.take_pushes(reply, usize::MAX);
    session.reset();
    reply.set_protocol(session.protocol);
    reply.simple("RESET");
    Ok(())
}
