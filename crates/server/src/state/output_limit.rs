//! `client-output-buffer-limit`: how much a client may leave unread, and for how long.

use std::sync::atomic::Ordering;

use crate::config::ClientClass;
use crate::state::clients::Client;
use crate::state::server::Server;

/// Closes a client that leaves `unread` bytes of replies and messages, when that is more than the limits of
/// its class allow. Returns whether it is closed. Cost: a lock that is hardly ever waited for.
pub(crate) fn close_if_over(server: &Server, client: &Client, unread: u64) -> bool {
    if client.is_killed() {
        return true;
    }
    let class = if client.is_subscriber() { ClientClass::Pubsub } else { ClientClass::Normal };
    let limit = server.config.client_output_buffer_limit.load().of(class);
    let is_hard = limit.hard_bytes != 0 && unread > limit.hard_bytes;
    let is_soft = limit.soft_bytes != 0 && unread > limit.soft_bytes;
    if !is_soft {
        client.soft_since_ms.store(0, Ordering::Relaxed);
    }
    if !(is_hard || is_soft && is_too_long(server, client, limit.soft_seconds)) {
        return false;
    }
    tracing::warn!(
        client = client.id,
        address = client.address,
        unread,
        "closing a client that exceeds the output buffer limit"
    );
    client.kill();
    true
}

/// Whether it has been over the soft limit for more than so many seconds.
fn is_too_long(server: &Server, client: &Client, seconds: u64) -> bool {
    let now_ms = server.tier.clock().unix_ms();
    let first =
        client.soft_since_ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
    first.is_err_and(|since_ms| now_ms > since_ms + 1000 * seconds)
}

/// Closes the clients that have been over their soft limit for too long, though neither they nor anybody
/// who writes to them has looked since. Cost: linear in the clients.
pub(crate) fn close_slow(server: &Server) {
    for client in server.clients.all() {
        if client.soft_since_ms.load(Ordering::Relaxed) > 0 {
            let unread = client.output_bytes.load(Ordering::Relaxed) + client.pushes.bytes();
            close_if_over(server, &client, unread);
        }
    }
}
