//! Room in a reply.

use keyspace::Key;
use resp::Reply;

use crate::error::{CommandError, CommandResult};

/// Whether a reply of what a key holds, which may come to `reply_bytes_max`, may have so many bytes more.
///
/// Errors: [`CommandError::ReplyTooLong`].
pub(super) fn check_room(
    key: &Key<'_>,
    bytes: u64,
    reply_bytes_max: usize,
    reply: &Reply,
) -> CommandResult {
    match (reply.full_len() as u64).saturating_add(bytes) > reply_bytes_max as u64 {
        true => Err(CommandError::too_long_of(key, bytes)),
        false => Ok(()),
    }
}
