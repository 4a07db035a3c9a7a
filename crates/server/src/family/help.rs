//! Answers to HELP.

use command::CommandResult;
use resp::Reply;

/// Answers HELP.
pub(crate) fn write_help(lines: &[&str], reply: &mut Reply) -> CommandResult {
    reply.array(lines.len());
    for line in lines {
        reply.simple(line);
    }
    Ok(())
}
