//! Large requests that are arriving: what their buffers may take of client memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rapidhash::RapidHashSet;

use crate::limits::{INPUTS_SHARE_SHIFT, READ_BUFFER_BYTES};
use crate::state::client_eviction::{close_idle, close_waiting, is_idle, living_bytes};
use crate::state::client_memory::{Size, limit_bytes};
use crate::state::clients::Client;
use crate::state::reservation_queue::{Look, ReservationQueue};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// A request that is arriving and has not got on for so long leaves its share to others.
const STALLED_FOR: Duration = Duration::from_millis(200);

/// A request that is arriving.
#[derive(Clone, Copy)]
pub(crate) struct Arriving {
    /// What its buffer is to take now.
    pub(crate) bytes: u64,
    /// How long it will be, about, as far as that is known.
    pub(crate) expected_bytes: u64,
}

/// Those of one size: all together take buffers within a share of what clients may take,
/// but for that of the oldest, so that one always gets on.
#[derive(Default)]
pub(super) struct ArrivingRequests {
    bytes: AtomicI64,
    holders: Mutex<Holders>,
    queue: ReservationQueue,
}

/// Clients that have a large request which is arriving, the oldest first.
#[derive(Default)]
struct Holders {
    active: VecDeque<Holder>,
    /// Those that did not get on when the first of the queue looked. They leave the share to others, who go on
    /// within the limit of all clients.
    stalled: VecDeque<Holder>,
}

/// A client, the bytes of the share that it has, and those that it waits to have.
#[derive(Clone, Copy)]
struct Holder {
    id: u64,
    bytes: u64,
    wanted_bytes: u64,
}

impl Holders {
    fn remove(&mut self, id: u64) {
        self.active.retain(|holder| holder.id != id);
        self.stalled.retain(|holder| holder.id != id);
    }

    /// Sets what a client has; a new one is the last.
    fn set(&mut self, id: u64, bytes: u64) {
        let mut holders = self.active.iter_mut().chain(&mut self.stalled);
        match holders.find(|holder| holder.id == id) {
            Some(holder) => (holder.bytes, holder.wanted_bytes) = (bytes, bytes),
            None => self.active.push_back(Holder { id, bytes, wanted_bytes: bytes }),
        }
    }

    /// Notes what a client waits to have, if it has some.
    fn note_wanted(&mut self, id: u64, bytes: u64) {
        let mut holders = self.active.iter_mut().chain(&mut self.stalled);
        if let Some(holder) = holders.find(|holder| holder.id == id) {
            holder.wanted_bytes = bytes.max(holder.bytes);
        }
    }

    /// Whether nobody else gets on, or came before this.
    fn is_oldest(&self, id: u64) -> bool {
        self.active.front().is_none_or(|oldest| oldest.id == id)
    }

    fn stalled_bytes(&self, but: u64) -> u64 {
        self.stalled.iter().filter(|holder| holder.id != but).map(|holder| holder.bytes).sum()
    }
}

impl ArrivingRequests {
    /// Looks which of them get on. Cost: linear in the clients.
    fn look(&self, server: &Server) {
        let mut idle = server.clients.all();
        idle.retain(|client| is_idle(server, client, STALLED_FOR));
        let idle: RapidHashSet<u64> = idle.iter().map(|client| client.id).collect();
        let mut holders = self.holders.lock();
        let Holders { active, stalled } = std::mem::take(&mut *holders);
        (holders.stalled, holders.active) =
            active.into_iter().chain(stalled).partition(|holder| idle.contains(&holder.id));
    }

    /// The clients that wait, in the order of their arrival, but for the first, and the oldest of those that have some.
    pub(super) fn waiting(&self) -> Vec<u64> {
        let oldest = self.holders.lock().active.front().map(|oldest| oldest.id);
        let mut waiting = self.queue.behind_first();
        waiting.retain(|&id| Some(id) != oldest);
        waiting
    }

    /// Closes clients that do nothing, or else some of those that wait, for the first that waits or for the oldest of
    /// those that have some, whichever wants more: it may be the oldest, behind others, for which these wait. Returns the
    /// bytes that they had.
    fn close(&self, server: &Server, size: Size, look: &Look) -> u64 {
        self.look(server);
        // What either has is among what all have.
        let oldest = {
            let holders = self.holders.lock();
            holders.active.front().map_or(0, |oldest| oldest.wanted_bytes - oldest.bytes)
        };
        let first = look.first_bytes.saturating_sub(READ_BUFFER_BYTES as u64);
        let closed =
            close_idle(server, &Look { first_bytes: look.first_bytes.max(oldest), ..*look });
        let Some(limit) = limit_bytes(server).filter(|_| closed == 0) else { return closed };
        let reserved = match size {
            Size::Small => 0,
            Size::Large => server.tier.budget.reserved_bytes().max(0) as u64,
        };
        let needed = living_bytes(server) + reserved + first.max(oldest);
        close_waiting(server, needed.saturating_sub(limit))
    }

    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        let holders = self.holders.lock();
        holders.active.len() + holders.stalled.len() > 0
    }
}

/// What one connection has of that.
#[derive(Default)]
pub(super) struct ArrivingShare {
    bytes: u64,
    /// As a request of which size.
    size: Option<Size>,
}

impl ArrivingShare {
    /// Waits until the buffer of a client's request may grow: behind those that asked before, and while other
    /// clients leave it the memory. Its connection takes `held_bytes` already. It grows in the end, and the largest
    /// clients are closed. One that becomes larger than was expected keeps its part of the share of small ones while
    /// it waits: many that do so would take much else. Cost: some loads and locks when there is memory.
    pub(super) async fn wait(
        &mut self,
        worker: &Worker,
        client: &Client,
        arriving: Arriving,
        held_bytes: u64,
    ) {
        let server = &*worker.server;
        let size = self.size_of(server, arriving);
        if !self.may_grow(server, client, arriving, held_bytes) {
            let inputs = &server.client_memory.inputs[size as usize];
            let mut place = inputs.queue.join(client.id, arriving.bytes);
            inputs.holders.lock().note_wanted(client.id, arriving.bytes);
            let close = |server: &Server, look: Look| inputs.close(server, size, &look);
            while !self.may_grow(server, client, arriving, held_bytes)
                && place.wait(worker, close).await
            {}
            inputs.queue.begin_anew(arriving.bytes);
        }
        self.set(server, client, arriving);
    }

    /// One that was large stays so until it is let go of.
    fn size_of(&self, server: &Server, arriving: Arriving) -> Size {
        let bytes = arriving.bytes.max(arriving.expected_bytes);
        match (self.size, limit_bytes(server)) {
            (Some(Size::Large), _) => Size::Large,
            (_, Some(limit)) => Size::of_input(limit, bytes),
            (_, None) => Size::Small,
        }
    }

    /// Whether the buffer may grow at once.
    pub(super) fn may_grow(
        &self,
        server: &Server,
        client: &Client,
        arriving: Arriving,
        held_bytes: u64,
    ) -> bool {
        let Some(limit) = limit_bytes(server) else { return true };
        let (size, bytes) = (self.size_of(server, arriving), arriving.bytes);
        let inputs = &server.client_memory.inputs[size as usize];
        let own = if self.size == Some(size) { self.bytes as i64 } else { 0 };
        let (is_oldest, stalled_bytes) = {
            let holders = inputs.holders.lock();
            (holders.is_oldest(client.id), holders.stalled_bytes(client.id) as i64)
        };
        let of_others = inputs.bytes.load(Ordering::Relaxed) - own - stalled_bytes;
        let fits_share = of_others + bytes as i64 <= (limit >> INPUTS_SHARE_SHIFT) as i64;
        // The end of one that takes all it may is followed by a little.
        let bytes = bytes.min(limit) as i64;
        let budget = &server.tier.budget;
        let held = match size {
            // What large requests have reserved is not in its way.
            Size::Small => budget.buffer_bytes(),
            Size::Large => budget.client_bytes(),
        };
        let may_go = if own > 0 && is_oldest {
            true
        } else if inputs.queue.is_behind(client.id) {
            false
        } else {
            fits_share || is_oldest
        };
        may_go && held - held_bytes as i64 + bytes <= limit as i64
    }

    /// The buffer has been let go of. Cost: a comparison when there was none.
    #[inline]
    pub(super) fn release(&mut self, server: &Server, client: &Client) {
        if self.bytes > 0 {
            self.leave(server, client);
        }
    }

    #[cold]
    fn leave(&mut self, server: &Server, client: &Client) {
        let Some(size) = self.size.take() else { return };
        let inputs = &server.client_memory.inputs[size as usize];
        let mut holders = inputs.holders.lock();
        holders.remove(client.id);
        inputs.bytes.fetch_sub(std::mem::take(&mut self.bytes) as i64, Ordering::Relaxed);
    }

    #[cold]
    fn set(&mut self, server: &Server, client: &Client, arriving: Arriving) {
        let (size, bytes) = (self.size_of(server, arriving), arriving.bytes);
        if self.size != Some(size) {
            self.leave(server, client);
        }
        let inputs = &server.client_memory.inputs[size as usize];
        let mut holders = inputs.holders.lock();
        self.size = Some(size);
        holders.set(client.id, bytes);
        let grown = bytes as i64 - self.bytes as i64;
        self.bytes = bytes;
        inputs.bytes.fetch_add(grown, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::client_memory::tests::{MIB, client, server};

    #[test]
    fn the_oldest_of_the_requests_that_arrive_may_take_what_others_leave() {
        let server = server();
        let of = |bytes| Arriving { bytes, expected_bytes: 0 };
        let clients: Vec<_> = (0..3).map(|_| client(&server, 0)).collect();
        let mut shares: Vec<_> = (0..3).map(|_| ArrivingShare::default()).collect();
        for (share, client) in shares.iter_mut().zip(&clients).take(2) {
            assert!(share.may_grow(&server, client, of(MIB / 2), 0));
            share.set(&server, client, of(MIB / 2));
        }
        assert!(!shares[2].may_grow(&server, &clients[2], of(MIB / 2), 0), "the share is 1 MiB");
        assert!(!shares[1].may_grow(&server, &clients[1], of(MIB), 0));
        assert!(shares[0].may_grow(&server, &clients[0], of(8 * MIB), 0), "the oldest");

        let inputs = &server.client_memory.inputs[Size::Large as usize];
        let place = inputs.queue.join(clients[2].id, 0);
        assert!(shares[0].may_grow(&server, &clients[0], of(8 * MIB), 0), "it waits for nobody");
        let (small, mut share) = (client(&server, 0), ArrivingShare::default());
        let begun = Arriving { bytes: MIB / 8, expected_bytes: MIB / 2 };
        assert!(!share.may_grow(&server, &small, begun, 0), "it will be large");
        assert!(share.may_grow(&server, &small, of(MIB / 4), 0), "it is small");
        share.set(&server, &small, of(MIB / 4));
        assert!(!share.may_grow(&server, &small, of(MIB / 2), 0));
        share.set(&server, &small, of(MIB / 2));
        assert_eq!(inputs.bytes.load(Ordering::Relaxed), MIB as i64 * 3 / 2, "now it is large");
        share.release(&server, &small);
        shares[0].release(&server, &clients[0]);
        assert!(shares[1].may_grow(&server, &clients[1], of(8 * MIB), 0), "the next");
        drop(place);
        shares[1].release(&server, &clients[1]);
        assert_eq!(inputs.bytes.load(Ordering::Relaxed), 0);
    }

    /// What stands still leaves the share, but not the limit of all clients.
    #[test]
    fn who_does_not_get_on_leaves_the_share_to_others() {
        let server = server();
        let now_ms = server.tier.clock().unix_ms();
        let [stalled, active, next] = [0; 3].map(|_| client(&server, 0));
        let mut shares: [ArrivingShare; 3] = Default::default();
        let of = |bytes| Arriving { bytes, expected_bytes: 0 };
        active.progressed_ms.store(now_ms + 60_000, Ordering::Relaxed);
        for (share, client) in shares.iter_mut().zip([&stalled, &active]) {
            share.set(&server, client, of(MIB / 2));
        }
        assert!(!shares[2].may_grow(&server, &next, of(MIB / 2), 0));
        let requests = &server.client_memory.inputs[Size::Large as usize];
        requests.look(&server);
        assert!(shares[2].may_grow(&server, &next, of(MIB / 2), 0));
        assert!(!shares[2].may_grow(&server, &next, of(MIB), 0), "another takes half of the share");
        assert!(shares[1].may_grow(&server, &active, of(4 * MIB), 0), "it is the oldest now");
        server.tier.budget.add_buffers(8 << 20);
        assert!(!shares[2].may_grow(&server, &next, of(MIB / 2), 0), "clients may take no more");
        stalled.progressed_ms.store(now_ms + 60_000, Ordering::Relaxed);
        requests.look(&server);
        server.tier.budget.add_buffers(-8 << 20);
        assert!(!shares[2].may_grow(&server, &next, of(MIB / 2), 0), "it goes on");
    }
}
