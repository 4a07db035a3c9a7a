//! The register of connections: what CLIENT LIST shows, and how one is told to go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use crate::state::pubsub::Topic;
use crate::state::push::PushQueue;
use crate::state::waiters::Waiter;

/// What others may know of a connection, and do to it.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) id: u64,
    /// Peer address, as CLIENT LIST shows it.
    pub(crate) address: String,
    /// Own address of the connection.
    pub(crate) local_address: String,
    pub(crate) is_unix_socket: bool,
    /// File descriptor, for people only.
    pub(crate) fd: i32,
    pub(crate) created_ms: u64,
    /// The worker that serves it.
    pub(crate) worker: usize,
    pub(crate) last_seen_ms: AtomicU64,
    /// When a part of a large request or reply last passed, or the server last kept it waiting, Unix ms.
    pub(crate) moved_ms: AtomicU64,
    /// When enough of one had passed last that it gets on, or the server last kept it waiting, Unix ms.
    pub(crate) progressed_ms: AtomicU64,
    /// Whether a request of it waits for the server: for values, for memory, for a pause.
    pub(crate) is_served: AtomicBool,
    pub(crate) db: AtomicU8,
    pub(crate) protocol: AtomicU8,
    /// Commands queued by MULTI, -1 outside of one.
    pub(crate) queued: AtomicI64,
    pub(crate) watched: AtomicU32,
    /// What it takes to watch them.
    pub(crate) watched_bytes: AtomicU64,
    /// Bytes of requests that have arrived.
    pub(crate) input_bytes: AtomicU64,
    pub(crate) input_capacity: AtomicU64,
    /// Bytes of replies that the client has not taken yet.
    pub(crate) output_bytes: AtomicU64,
    pub(crate) output_capacity: AtomicU64,
    pub(crate) queued_bytes: AtomicU64,
    /// Messages on their way to it.
    pub(crate) pushes: PushQueue,
    /// When its output was first beyond the soft limit, Unix ms; 0: it is not.
    pub(crate) soft_since_ms: AtomicU64,
    /// How many channels, patterns and shard channels it listens to.
    pub(crate) subscriptions: [AtomicU32; Topic::ALL.len()],
    /// What their names take.
    pub(crate) subscription_bytes: AtomicU64,
    /// What the names take that it gave itself.
    pub(crate) label_bytes: AtomicU64,
    /// What the request under way has reserved beside its buffers.
    pub(crate) reserved_bytes: AtomicU64,
    /// Whether it has yet to authenticate.
    pub(crate) is_stranger: AtomicBool,
    pub(crate) is_monitor: AtomicBool,
    pub(crate) is_blocked: AtomicBool,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// Index of the last command in the table, plus one; 0 for none.
    pub(crate) last_command: AtomicU32,
    /// The request of it that waits for keys.
    pub(crate) waiter: Mutex<Option<Arc<Waiter>>>,
    pub(crate) labels: Mutex<Labels>,
    pub(crate) killed: AtomicBool,
    pub(crate) waker: OnceLock<Waker>,
}

/// Names that a client gave itself.
#[derive(Default, Clone)]
pub(crate) struct Labels {
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
}

impl Labels {
    fn memory_bytes(&self) -> u64 {
        let Labels { name, library_name, library_version } = self;
        (name.capacity() + library_name.capacity() + library_version.capacity()) as u64
    }
}

impl Client {
    /// Remembers how to wake the connection's task.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Lets the connection's task look around.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Changes the names that the client gave itself; they count as its memory.
    pub(crate) fn change_labels(&self, change: impl FnOnce(&mut Labels)) {
        let mut labels = self.labels.lock();
        change(&mut labels);
        self.label_bytes.store(labels.memory_bytes(), Ordering::Relaxed);
    }

    /// Whether it comes from this machine.
    pub(crate) fn is_local(&self) -> bool {
        let peer: Option<std::net::SocketAddr> = self.address.parse().ok();
        self.is_unix_socket || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Whether it listens to anything.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Tells the connection to end without another word.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Memory of the connection's buffers, of what it watches and listens to, of its names and of messages on their
    /// way to it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.input_capacity.load(Ordering::Relaxed)
            + self.output_capacity.load(Ordering::Relaxed)
            + self.queued_bytes.load(Ordering::Relaxed)
            + self.watched_bytes.load(Ordering::Relaxed)
            + self.subscription_bytes.load(Ordering::Relaxed)
            + self.label_bytes.load(Ordering::Relaxed)
            + self.pushes.bytes()
    }
}

/// All connections.
pub(crate) struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicU64,
    count: AtomicU64,
    /// How many each worker serves.
    counts: Box<[AtomicU64]>,
}

impl Clients {
    /// No connections yet, for so many workers.
    pub(crate) fn new(workers: usize) -> Clients {
        Clients {
            by_id: Mutex::default(),
            next_id: AtomicU64::default(),
            count: AtomicU64::default(),
            counts: (0..workers).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// The worker with the fewest connections; among several the one that comes first from
    /// `start` on. Cost: linear in the workers.
    pub(crate) fn least_loaded(&self, start: usize) -> usize {
        let workers = self.counts.len();
        let from_start = (0..workers).map(|step| (start + step) % workers);
        from_start
            .min_by_key(|&worker| self.counts[worker].load(Ordering::Relaxed))
            .expect("invariant: a server has workers")
    }

    /// An id that no connection had before.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn add(&self, client: Arc<Client>) {
        self.counts[client.worker].fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.by_id.lock().insert(client.id, client);
    }

    pub(crate) fn remove(&self, id: u64) {
        let removed = self.by_id.lock().remove(&id);
        if let Some(client) = removed {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.counts[client.worker].fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The connection of an id.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// Everyone, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Admits a connection as the listener does, and tells its id and its worker.
    fn admit(clients: &Clients) -> (u64, usize) {
        let id = clients.next_id();
        let worker = clients.least_loaded(id as usize);
        clients.add(Arc::new(Client { id, worker, ..Client::default() }));
        (id, worker)
    }

    #[test]
    fn a_connection_goes_to_the_worker_with_the_fewest() {
        let clients = Clients::new(3);
        let mut admitted: Vec<(u64, usize)> = (0..9).map(|_| admit(&clients)).collect();
        let of = |admitted: &[(u64, usize)], worker| {
            admitted.iter().filter(|(_, served_by)| *served_by == worker).count()
        };
        assert_eq!([0, 1, 2].map(|worker| of(&admitted, worker)), [3, 3, 3]);
        // Every client of worker 1 goes, and one is removed twice.
        for (id, _) in admitted.extract_if(.., |(_, worker)| *worker == 1) {
            clients.remove(id);
            clients.remove(id);
        }
        assert_eq!(clients.count(), 6);
        admitted.extend((0..4).map(|_| admit(&clients)));
        assert_eq!(of(&admitted, 1), 4, "the first three, and one of equals");
    }
}
