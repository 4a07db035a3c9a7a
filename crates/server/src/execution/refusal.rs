//! Errors of requests that do not get as far as their handler.

use resp::{Args, Reply};

use crate::session::{Closing, Session};
use crate::state::registry::Entry;

/// Bytes of a client's own words that an error repeats.
const QUOTED_BYTES_MAX: usize = 128;

/// Answers a request whose command does not exist.
pub(super) fn unknown_command(session: &mut Session, args: Args<'_>, reply: &mut Reply) {
    reply.set_protocol(session.protocol);
    if matches!(args[0].to_ascii_lowercase().as_slice(), b"post" | b"host:") {
        // A browser was tricked into speaking to us: let it say no more.
        tracing::warn!("possible cross-protocol attack: HTTP on the Redis port; closing");
        session.closing = Closing::Now;
        return;
    }
    session.transaction.fail();
    session.worker.stats.count_error(b"ERR");
    let mut shown = Vec::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let part = quoted(arg, QUOTED_BYTES_MAX - shown.len());
        shown.extend_from_slice(&[b"'", part, b"' "].concat());
    }
    let name = quoted(&args[0], QUOTED_BYTES_MAX);
    let begin = [b"ERR unknown command '", name, b"', with args beginning with: "].concat();
    reply.error([begin, shown].concat());
}

/// The error of a subcommand that does not exist.
pub(super) fn unknown_subcommand(entry: &Entry, args: Args<'_>) -> Vec<u8> {
    let name = quoted(&args[1], QUOTED_BYTES_MAX);
    let container = entry.spec.name.as_bytes();
    [b"ERR unknown subcommand '", name, b"'. Try ", container, b" HELP."].concat()
}

/// As much of an argument as an error repeats: Redis prints it as a C string.
fn quoted(arg: &[u8], bytes_max: usize) -> &[u8] {
    let end = arg.iter().position(|byte| *byte == 0).unwrap_or(arg.len());
    &arg[..end.min(bytes_max)]
}

/// The error of a request with too few or too many arguments.
pub(super) fn wrong_arity(entry: &Entry) -> String {
    format!("ERR wrong number of arguments for '{}' command", entry.lower)
}

/// The error of a command that a client may not run which listens to channels.
pub(super) fn not_between_messages(entry: &Entry) -> String {
    format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
        entry.lower
    )
}
