//! Client eviction: which clients are closed when all together take more memory than they may, or when others wait
//! for what those hold that do nothing.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rapidhash::RapidHashMap;

use crate::limits::{READ_BUFFER_BYTES, RECOUNT_SHIFT, STRANGERS_BYTES_MAX};
use crate::state::client_memory::limit_bytes;
use crate::state::clients::Client;
use crate::state::clock::unix_ms;
use crate::state::reservation_queue::{GRACE_MIN, Look};
use crate::state::server::Server;

/// Between two counts of all clients while nothing is read from any.
const RECOUNT_EVERY_MS: u64 = 20;
/// Between two lines of the log about clients that were closed.
const LOG_EVERY_MS: u64 = 1000;

/// When all clients were counted, and which closed ones the log has yet to tell of.
#[derive(Default)]
pub(super) struct Evictions {
    /// The sum at which all clients were counted last because they took too much.
    recounted_at: AtomicI64,
    /// Held by whoever counts them.
    recount: Mutex<()>,
    /// When all were counted last, in milliseconds of the tier's clock.
    recounted_ms: AtomicU64,
    /// When clients that wait for buffers were closed last for requests that wait for memory.
    waiting_closed_ms: AtomicU64,
    /// Clients closed since the log said so.
    unlogged: AtomicU64,
    logged_ms: AtomicU64,
}

/// Closes the largest clients if `total`, which all held when some were given messages, is too much. Cost: a
/// comparison.
#[inline]
pub(crate) fn check_pushed(server: &Server, total: i64) {
    if limit_bytes(server).is_some_and(|limit| total > limit as i64) {
        recount(server, total);
    }
}

/// Counts all clients anew, unless somebody does, or has since they took a step less, or has just now: where many
/// come and are closed, each would count them.
pub(super) fn recount(server: &Server, total: i64) {
    let evictions = &server.client_memory.evictions;
    let step = limit_bytes(server).unwrap_or(0) as i64 >> RECOUNT_SHIFT;
    let last = evictions.recounted_at.load(Ordering::Relaxed);
    let is_recent = || {
        let last_ms = evictions.recounted_ms.load(Ordering::Relaxed);
        now_ms(server) < last_ms + RECOUNT_EVERY_MS
    };
    if (last..last + step).contains(&total) || total < last && is_recent() {
        return;
    }
    if let Some(_alone) = evictions.recount.try_lock() {
        keep_within_limit(server);
    }
}

/// Milliseconds of the tier's clock, which never goes back.
fn now_ms(server: &Server) -> u64 {
    server.tier.clock().now().as_millis() as u64
}

/// Counts all clients anew if that was some time ago. While they were counted last some may have changed, and where
/// nobody is read nobody grows so that they would be counted again.
pub(super) fn recount_again(server: &Server) {
    let evictions = &server.client_memory.evictions;
    let last_ms = evictions.recounted_ms.load(Ordering::Relaxed);
    if now_ms(server) >= last_ms + RECOUNT_EVERY_MS
        && let Some(_alone) = evictions.recount.try_lock()
    {
        keep_within_limit(server);
    }
}

/// Counts the buffers of all clients anew, tells the budget, and closes the largest while they
/// exceed `maxmemory-clients`, or the bound of those who have not authenticated: strangers first, then those that do
/// nothing for what they hold, then others. Cost: linear in the clients.
pub(crate) fn keep_within_limit(server: &Server) {
    let mut clients = server.clients.all();
    let total: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    let evictions = &server.client_memory.evictions;
    evictions.recounted_ms.store(now_ms(server), Ordering::Relaxed);
    evictions.recounted_at.store(total as i64, Ordering::Relaxed);
    server.tier.budget.set_buffers(total as i64);
    // What those take who are on their way out is as good as free.
    clients.retain(|client| !client.is_killed());
    let sum = |clients: &[Arc<Client>]| -> u64 {
        clients.iter().map(|client| client.memory_bytes()).sum()
    };
    let (mut strangers, others): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|client| client.is_stranger.load(Ordering::Relaxed));
    let strange = sum(&strangers);
    let all = strange + sum(&others);
    let over = limit_bytes(server).map_or(0, |limit| all.saturating_sub(limit));
    let strangers_over = strange.saturating_sub(STRANGERS_BYTES_MAX);
    let mut closed = close_largest(&mut strangers, over.max(strangers_over));
    // Those that get on last: they are the largest where others have filled memory with a little each.
    let (mut stalled, mut active): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|client| is_stalled(server, client, GRACE_MIN));
    for clients in [&mut stalled, &mut active] {
        closed.add(close_largest(clients, over.saturating_sub(closed.bytes)));
    }
    let count = closed.count;
    server.totals.evicted_clients.fetch_add(count, Ordering::Relaxed);
    log_closed(server, count);
}

/// Closes the largest of the clients that do nothing for what they hold ([`is_stalled`]), whoever waits included,
/// until what others wait for in a queue fits: the first of them, and the rest as far as half of what clients may
/// take goes. Returns the bytes that they had. Cost: linear in the clients.
pub(super) fn close_idle(server: &Server, look: &Look) -> u64 {
    let (Some(limit), Some(grace)) = (limit_bytes(server), look.grace) else { return 0 };
    let mut clients = server.clients.all();
    // What those take who are on their way out is as good as free.
    clients.retain(|client| !client.is_killed());
    let total: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    clients.retain(|client| is_stalled(server, client, grace));
    let bytes = look.bytes.min(limit / 2).max(look.first_bytes);
    let closed = close_largest(&mut clients, (total + bytes).saturating_sub(limit));
    server.totals.evicted_clients.fetch_add(closed.count, Ordering::Relaxed);
    log_closed(server, closed.count);
    closed.bytes
}

/// Buffers of all clients that are not on their way out, in bytes. Cost: linear in the clients.
pub(super) fn living_bytes(server: &Server) -> u64 {
    let clients = server.clients.all();
    clients.iter().filter(|client| !client.is_killed()).map(|client| client.memory_bytes()).sum()
}

/// Closes clients that wait for buffers of arriving requests, the last that came first, until `excess` bytes come free
/// or these hold less than half of what clients may take: what each of them holds of its request comes free only when
/// it gets on, for which others need memory first. Returns the bytes that they had. Cost: linear in the clients.
pub(super) fn close_waiting(server: &Server, excess: u64) -> u64 {
    let Some(limit) = limit_bytes(server) else { return 0 };
    let waiting = server.client_memory.waiting_inputs();
    if excess == 0 || waiting.is_empty() {
        return 0;
    }
    let places: RapidHashMap<u64, usize> =
        waiting.iter().enumerate().map(|(place, &id)| (id, place)).collect();
    let mut clients = server.clients.all();
    let may_go = |client: &Client| !client.is_killed() && !client.no_evict.load(Ordering::Relaxed);
    clients.retain(|client| may_go(client) && places.contains_key(&client.id));
    let held: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    clients.sort_by_key(|client| Reverse(places[&client.id]));
    let closed = close_in_order(&clients, excess.min(held.saturating_sub(limit / 2)));
    server.totals.evicted_clients.fetch_add(closed.count, Ordering::Relaxed);
    log_closed(server, closed.count);
    closed.bytes
}

/// The same for requests that have waited for memory, once in so much time for all of them.
pub(crate) fn close_waiting_for_memory(server: &Server, excess: u64, every: Duration) {
    let last = &server.client_memory.evictions.waiting_closed_ms;
    let (last_ms, now_ms) = (last.load(Ordering::Relaxed), now_ms(server));
    let is_due = now_ms >= last_ms + every.as_millis() as u64;
    if is_due
        && last.compare_exchange(last_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        close_waiting(server, excess);
    }
}

/// Whether a client has neither read nor sent much of anything large for so long, no batch of it has run, and none
/// waits or runs.
pub(super) fn is_idle(server: &Server, client: &Client, time: Duration) -> bool {
    let progressed_ms = client.progressed_ms.load(Ordering::Relaxed);
    let is_served =
        client.is_served.load(Ordering::Relaxed) || client.is_blocked.load(Ordering::Relaxed);
    let now_ms = server.tier.clock().unix_ms();
    !is_served && now_ms >= progressed_ms + time.as_millis() as u64
}

/// The same of one that is in the midst of a request or a reply, or holds more than a read buffer. Others are not
/// in the way of anybody: subscribers, who watches keys or waits for some.
fn is_stalled(server: &Server, client: &Client, time: Duration) -> bool {
    let is_in_midst = client.input_bytes.load(Ordering::Relaxed) > 0
        || client.output_bytes.load(Ordering::Relaxed) > 0;
    let holds_much = client.memory_bytes() > READ_BUFFER_BYTES as u64;
    (is_in_midst || holds_much) && is_idle(server, client, time)
}

struct Closed {
    count: u64,
    bytes: u64,
}

impl Closed {
    fn add(&mut self, more: Closed) {
        self.count += more.count;
        self.bytes += more.bytes;
    }
}

/// Closes the largest of these clients until `excess` bytes come free.
fn close_largest(clients: &mut [Arc<Client>], excess: u64) -> Closed {
    if excess > 0 {
        clients.sort_by_cached_key(|client| Reverse(client.memory_bytes()));
    }
    close_in_order(clients, excess)
}

/// Closes these clients one after another until `excess` bytes come free.
fn close_in_order(clients: &[Arc<Client>], excess: u64) -> Closed {
    let mut closed = Closed { count: 0, bytes: 0 };
    for client in clients {
        let bytes = client.memory_bytes();
        if closed.bytes >= excess {
            break;
        }
        if bytes > 0 && !client.no_evict.load(Ordering::Relaxed) {
            client.kill();
            closed.bytes += bytes;
            closed.count += 1;
        }
    }
    closed
}

/// Says how many clients were closed: one line a second, however many there are.
fn log_closed(server: &Server, count: u64) {
    let evictions = &server.client_memory.evictions;
    let unlogged = evictions.unlogged.fetch_add(count, Ordering::Relaxed) + count;
    let (now_ms, last_ms) = (unix_ms(), evictions.logged_ms.load(Ordering::Relaxed));
    if unlogged == 0 || now_ms < last_ms + LOG_EVERY_MS {
        return;
    }
    evictions.logged_ms.store(now_ms, Ordering::Relaxed);
    let closed = evictions.unlogged.swap(0, Ordering::Relaxed);
    tracing::warn!(closed, "closed the largest clients: maxmemory-clients");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::client_memory::tests::{MIB, client, server};

    #[test]
    fn strangers_go_first_and_have_a_bound_of_their_own() {
        let server = server();
        let known = client(&server, 5 * MIB);
        let strangers: Vec<_> = (1..=8).map(|bytes| client(&server, bytes * 100_000)).collect();
        for stranger in &strangers {
            stranger.is_stranger.store(true, Ordering::Relaxed);
        }
        keep_within_limit(&server);
        let stayed =
            |clients: &[Arc<Client>]| clients.iter().filter(|one| !one.is_killed()).count();
        assert!(!known.is_killed());
        assert_eq!(stayed(&strangers), 7, "3.6 MB and 5 MiB are more than 8 MiB: the largest goes");
        known.input_capacity.store(0, Ordering::Relaxed);
        let more: Vec<_> = (0..4).map(|_| client(&server, MIB)).collect();
        for stranger in &more {
            stranger.is_stranger.store(true, Ordering::Relaxed);
        }
        keep_within_limit(&server);
        assert_eq!(stayed(&more), 1, "strangers alone have less");
        assert_eq!(server.totals.evicted_clients.load(Ordering::Relaxed), 4);
    }

    /// Only those go that hold much and have done nothing for long enough.
    #[test]
    fn of_those_that_do_nothing_the_largest_go_and_small_ones_stay() {
        let server = server();
        let now_ms = server.tier.clock().unix_ms();
        let [idle, idle_too, active, blocked] = [4, 2, 3, 3].map(|mib| client(&server, mib * MIB));
        let small: Vec<_> = (0..50).map(|_| client(&server, READ_BUFFER_BYTES as u64)).collect();
        idle_too.progressed_ms.store(now_ms - 3_000, Ordering::Relaxed);
        active.progressed_ms.store(now_ms, Ordering::Relaxed);
        blocked.is_blocked.store(true, Ordering::Relaxed);
        let look = |grace: Option<u64>| Look {
            grace: grace.map(Duration::from_secs),
            first_bytes: MIB,
            bytes: 100 * MIB,
        };
        assert_eq!(close_idle(&server, &look(None)), 0, "not yet");
        assert_eq!(close_idle(&server, &look(Some(4))), 4 * MIB);
        assert!(idle.is_killed() && !idle_too.is_killed());
        assert_eq!(close_idle(&server, &look(Some(2))), 2 * MIB);
        assert_eq!(close_idle(&server, &look(Some(1))), 0);
        assert!(!active.is_killed() && !blocked.is_killed());
        assert!(small.iter().all(|client| !client.is_killed()));
    }

    /// Many that stand still with a little each, in the midst of a request, are closed for one that gets on.
    #[test]
    fn those_that_stand_still_go_before_the_largest() {
        let server = server();
        let active = client(&server, 5 * MIB);
        active.progressed_ms.store(server.tier.clock().unix_ms(), Ordering::Relaxed);
        let stalled: Vec<_> = (0..200).map(|_| client(&server, 30_000)).collect();
        stalled.iter().for_each(|client| client.input_bytes.store(30_000, Ordering::Relaxed));
        keep_within_limit(&server);
        assert!(!active.is_killed());
        let gone = stalled.iter().filter(|client| client.is_killed()).count();
        assert_eq!(gone, 96, "5.2 and 6 MB are more than 8 MiB");
        let look = Look { grace: Some(GRACE_MIN), first_bytes: MIB, bytes: MIB };
        assert!(close_idle(&server, &look) >= MIB - 30_000);
    }
}
