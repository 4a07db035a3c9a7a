//! What the buffers of all clients take, and who goes when it is too much.
//!
//! Every connection reports its buffers when they have grown or shrunk by a step, so that many
//! clients that do not read their replies are stopped within a few steps, not at the next look at
//! all of them.

use std::sync::atomic::Ordering;

use crate::config::MemoryShare;
use crate::limits::{CLIENT_STEP_BYTES, CLIENTS_SHARE_SHIFT};
use crate::state::server::Server;

/// Ticks of upkeep for which a connection with large buffers waits for others to be closed: a tenth
/// of a second when upkeep is idle. Not for ever, as clients that may not be closed can be what takes
/// too much.
const WAIT_TICKS_MAX: u32 = 20;

/// Bytes of one connection's buffers that are counted in the budget.
#[derive(Default)]
pub(crate) struct CountedBuffers {
    bytes: u64,
    /// Ticks waited for room.
    waited: u32,
}

impl CountedBuffers {
    /// Tells what the buffers take now; closes the largest clients when all together take too much.
    /// Cost: a comparison, unless the difference is a step.
    #[inline]
    pub(crate) fn update(&mut self, server: &Server, bytes: usize) {
        if self.bytes.abs_diff(bytes as u64) >= CLIENT_STEP_BYTES {
            self.count(server, bytes as u64);
        }
    }

    #[cold]
    fn count(&mut self, server: &Server, bytes: u64) {
        let grown = bytes as i64 - self.bytes as i64;
        self.bytes = bytes;
        let total = server.tier.budget.add_clients(grown);
        if grown > 0 && limit_bytes(server).is_some_and(|limit| total > limit as i64) {
            keep_within_limit(server);
        }
    }

    /// Whether the connection must not fill its buffers further for a tick: all together take too
    /// much, and the clients that were closed for it have not let go of theirs yet. Cost: a
    /// comparison for a connection whose buffers are small.
    #[inline]
    pub(crate) fn must_wait(&mut self, server: &Server) -> bool {
        self.bytes > 0 && self.is_crowded(server)
    }

    #[cold]
    fn is_crowded(&mut self, server: &Server) -> bool {
        let total = server.tier.budget.add_clients(0);
        let crowded = limit_bytes(server).is_some_and(|limit| total > limit as i64);
        self.waited = if crowded { self.waited + 1 } else { 0 };
        crowded && self.waited <= WAIT_TICKS_MAX
    }

    /// The connection ends.
    pub(crate) fn end(&mut self, server: &Server) {
        server.tier.budget.add_clients(-(std::mem::take(&mut self.bytes) as i64));
    }
}

/// `maxmemory-clients` in bytes; none: there is no bound.
fn limit_bytes(server: &Server) -> Option<u64> {
    let max_memory = server.config.maxmemory.load();
    match server.config.maxmemory_clients.load() {
        MemoryShare::Bytes(0) if max_memory == 0 => None,
        MemoryShare::Bytes(0) => Some(max_memory >> CLIENTS_SHARE_SHIFT),
        MemoryShare::Bytes(bytes) => Some(bytes),
        MemoryShare::Percent(percent) => Some(max_memory / 100 * u64::from(percent)),
    }
}

/// Counts the buffers of all clients anew, tells the budget, and closes the largest while they
/// exceed `maxmemory-clients`. Cost: linear in the clients.
pub(crate) fn keep_within_limit(server: &Server) {
    let mut clients = server.clients.all();
    let total: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    server.tier.budget.set_clients(total as i64);
    let Some(limit) = limit_bytes(server) else { return };
    // What those take who are on their way out is as good as free.
    clients.retain(|client| !client.is_killed());
    let staying: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    let mut excess = staying.saturating_sub(limit);
    if excess == 0 {
        return;
    }
    clients.sort_unstable_by_key(|client| std::cmp::Reverse(client.memory_bytes()));
    for client in clients {
        if excess == 0 || client.memory_bytes() == 0 {
            break;
        }
        if !client.no_evict.load(Ordering::Relaxed) {
            tracing::warn!(client = client.id, "closing the largest client: maxmemory-clients");
            excess = excess.saturating_sub(client.memory_bytes());
            client.kill();
            server.totals.evicted_clients.fetch_add(1, Ordering::Relaxed);
        }
    }
}
