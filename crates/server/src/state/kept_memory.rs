//! What clients have the server keep between their requests: the keys that they watch, their places in the queues
//! of keys that they wait for.
//!
//! It counts as theirs like their buffers. But these are read and written by and by, while what is kept goes only
//! when the client says so, or when somebody brings what it waits for. So a request that would have much kept does
//! not wait for what others keep, which would hold up all who wait for memory behind it: it is refused when all
//! together would keep more than half of what clients may take.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::state::client_memory::limit_bytes;
use crate::state::clients::Client;
use crate::state::server::Server;

/// What all clients have the server keep, in bytes.
#[derive(Default)]
pub(crate) struct KeptMemory(AtomicU64);

impl KeptMemory {
    /// A client keeps `now` bytes in place of those that it kept before.
    pub(crate) fn change(&self, before: u64, now: u64) {
        self.0.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// Whether a client may have so many bytes more kept. One that is alone may take all that clients may. Cost: a few
/// loads.
pub(crate) fn may_keep(server: &Server, client: &Client, bytes: u64) -> bool {
    fits(server, client, bytes, server.kept_memory.0.load(Ordering::Relaxed))
}

/// Counts so many bytes more as kept for a client, if it may have them.
pub(crate) fn try_keep(server: &Server, client: &Client, bytes: u64) -> bool {
    let more = |kept| fits(server, client, bytes, kept).then_some(kept + bytes);
    server.kept_memory.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Whether so many bytes more fit when `kept` are kept for all clients, this one included.
fn fits(server: &Server, client: &Client, bytes: u64, kept: u64) -> bool {
    let Some(limit) = limit_bytes(server) else { return true };
    let own = client.watched_bytes.load(Ordering::Relaxed);
    let of_others = kept.saturating_sub(own);
    let own = own + bytes;
    own <= limit && (of_others == 0 || of_others + own <= limit / 2)
}
