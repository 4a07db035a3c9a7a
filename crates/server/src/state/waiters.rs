//! Clients that wait for keys (BLPOP and the like), in the order of their arrival.
//!
//! A key that somebody waits for has a queue, found by its hash. Clients are added with the slots of all their
//! keys held, so none misses what is brought. Whoever brings something to such a key, or removes a stream, marks
//! the key as *ready*, with its slot held, and serves its clients when it lets go of the slot
//! (`execution::serve`). Whoever else locks the slot in between sees the mark and serves them first: as in Redis,
//! nobody finds an element that somebody waits for, on whatever worker.
//!
//! Locks are taken in this order: slots, the state of one client, a part of the queues, the list of ready keys, a
//! worker's counts of errors.

use std::collections::VecDeque;
use std::collections::btree_map::{self, BTreeMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use command::Wait;
use keyspace::Key;
use parking_lot::Mutex;
use rapidhash::RapidHashMap;
use rapidhash::fast::RandomState;
use resp::{ArgRange, Args, Protocol};
use smallvec::SmallVec;

use crate::state::clients::Client;
use crate::state::registry::Entry;
use crate::state::server::Server;

/// Parts of the queues that are locked each for itself.
const PARTS: usize = 64;
/// Memory of a client's place in the queue of a key besides the key's bytes: a map's bucket, which may be half of
/// those that there are, the queue with a node of a tree for one entry, and the name of the queue, twice.
const PLACE_BYTES: usize = 512;

/// What a client is told whose wait CLIENT UNBLOCK ends with an error.
pub(crate) const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// A database's number and a key behind it, to look for its queue.
type WaitedKey = SmallVec<[u8; 64]>;

/// A client that waits, with the request that is to be run for it. Any worker may serve it.
pub(crate) struct Waiter {
    /// Those who came later have a larger one.
    number: u64,
    pub(crate) client: Arc<Client>,
    pub(crate) entry: &'static Entry,
    pub(crate) db: u8,
    pub(crate) protocol: Protocol,
    pub(crate) no_touch: bool,
    /// The group of consumers that it reads streams for: it is told, too, that a key is no stream any more.
    pub(crate) group: Option<Box<[u8]>>,
    request: Box<[u8]>,
    ranges: Box<[ArgRange]>,
    state: Mutex<WaiterState>,
}

/// What has become of it.
pub(crate) enum WaiterState {
    Waiting,
    /// It was answered.
    Served(Served),
    /// CLIENT UNBLOCK has ended its wait: as if its time were over, or with an error.
    Unblocked {
        is_error: bool,
    },
    /// It waits no longer: its time is over, or it is gone.
    Left,
}

/// The answer to a request that has waited.
pub(crate) struct Served {
    /// In the protocol of its client.
    pub(crate) reply: Vec<u8>,
    /// How long the run took, in ticks of the server's clock.
    pub(crate) ticks: u64,
}

/// The queues of all keys.
pub(crate) struct Waiters {
    next_number: AtomicU64,
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
    ready: Mutex<VecDeque<ReadyKey>>,
    /// How many keys are ready.
    ready_count: AtomicUsize,
    /// Clients that give up at some time.
    pub(crate) with_deadline: AtomicU64,
}

/// Names and queues are boxed: a map that grows has its buckets twice for a moment, and as many keys may be waited
/// for as memory for clients allows.
type Part = RapidHashMap<Box<[u8]>, Box<Queue>>;

/// Who waits for a key, by their numbers, and which of a client's keys it is.
#[derive(Default)]
struct Queue {
    waiters: BTreeMap<u64, (Arc<Waiter>, usize)>,
    /// How many of them read for a group.
    of_groups: usize,
    is_ready: bool,
    /// How often it was marked as ready.
    marks: u64,
}

/// A key that may hold something for those who wait for it, or has lost what it held.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ReadyKey {
    pub(crate) db: u8,
    pub(crate) key: Box<[u8]>,
    slot: u16,
}

/// How ready a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// How often it was marked: more than before when something came to it since.
    pub(crate) marks: u64,
    /// Whether anybody is to be told that it is no stream any more.
    pub(crate) has_groups: bool,
}

impl Waiter {
    /// The request to be run for it.
    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.request, &self.ranges)
    }

    /// Its state, which stays what it is while it is locked.
    pub(crate) fn state(&self) -> parking_lot::MutexGuard<'_, WaiterState> {
        self.state.lock()
    }

    /// Ends the wait, and counts it before its client can be answered. False: it had ended.
    pub(crate) fn end(&self, to: WaiterState, count: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        let is_waiting = matches!(*state, WaiterState::Waiting);
        if is_waiting {
            count();
            *state = to;
        }
        is_waiting
    }
}

/// A client's place in the queues of its keys, which it leaves when this is dropped.
pub(crate) struct Place {
    server: Arc<Server>,
    pub(crate) waiter: Arc<Waiter>,
    keys: Box<[Box<[u8]>]>,
    /// Unix milliseconds; 0 for never.
    pub(crate) deadline_ms: u64,
    pub(crate) memory_bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The client is gone: nobody is answered.
        self.waiter.end(WaiterState::Left, || {});
        self.server.kept_memory.change(self.memory_bytes as u64, 0);
        let waiters = &self.server.waiters;
        for key in &self.keys {
            waiters.remove(key, self.waiter.number);
        }
        if self.deadline_ms != 0 {
            waiters.with_deadline.fetch_sub(1, Ordering::Relaxed);
        }
        *self.waiter.client.waiter.lock() = None;
        self.server.listening.stop_waiting();
    }
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters {
            next_number: AtomicU64::default(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            ready: Mutex::default(),
            ready_count: AtomicUsize::default(),
            with_deadline: AtomicU64::default(),
        }
    }
}

/// On whose behalf a request waits.
pub(crate) struct WaitFor<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) entry: &'static Entry,
    pub(crate) args: Args<'a>,
    pub(crate) keys: &'a [Key<'a>],
    pub(crate) db: u8,
    pub(crate) protocol: Protocol,
    pub(crate) no_touch: bool,
    pub(crate) wait: &'a Wait,
    /// How long ago the time of the run was that found nothing: requests in front of it may have taken long.
    pub(crate) late_ms: u64,
}

impl WaitFor<'_> {
    /// Memory that its client's place in the queues takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The request, and its keys as the names of queues, twice.
        let request: usize =
            self.args.iter().map(|arg| 3 * arg.len() + size_of::<ArgRange>()).sum();
        let group = self.wait.group.as_ref().map_or(0, |group| group.len());
        size_of::<Waiter>() + request + group + self.keys.len() * PLACE_BYTES
    }
}

/// Lines a client up for its keys, behind those who wait for them. The slots of all are held by the caller.
/// Cost: a copy of the request, a look-up for each key.
pub(crate) fn line_up(server: &Arc<Server>, of: WaitFor<'_>) -> Place {
    let waiters = &server.waiters;
    let mut request = Vec::new();
    let mut ranges = Vec::with_capacity(of.args.len());
    let mut replaced = of.wait.replaced.iter().peekable();
    for (number, arg) in of.args.iter().enumerate() {
        let other = replaced.next_if(|(at, _)| *at == number);
        let arg = other.map_or(arg, |(_, text)| text.as_bytes());
        ranges.push(ArgRange { start: request.len() as u32, len: arg.len() as u32 });
        request.extend_from_slice(arg);
    }
    let waiter = Arc::new(Waiter {
        number: waiters.next_number.fetch_add(1, Ordering::Relaxed),
        client: of.client.clone(),
        entry: of.entry,
        db: of.db,
        protocol: of.protocol,
        no_touch: of.no_touch,
        group: of.wait.group.clone(),
        request: request.into(),
        ranges: ranges.into(),
        state: Mutex::new(WaiterState::Waiting),
    });
    let mut keys: Vec<Box<[u8]>> = Vec::with_capacity(of.keys.len());
    for (index, key) in waited_keys(&of).enumerate() {
        // One that is named twice stands for the first.
        if waiters.add(&key, &waiter, index) {
            keys.push((&*key).into());
        }
    }
    let deadline_ms = match of.wait.deadline.at_ms {
        0 => 0,
        at_ms => at_ms.saturating_add(of.late_ms),
    };
    if deadline_ms != 0 {
        waiters.with_deadline.fetch_add(1, Ordering::Relaxed);
    }
    *of.client.waiter.lock() = Some(waiter.clone());
    server.listening.start_waiting();
    let memory_bytes = of.memory_bytes();
    server.kept_memory.change(0, memory_bytes as u64);
    Place { server: server.clone(), waiter, keys: keys.into(), deadline_ms, memory_bytes }
}

/// The keys that it waits for: those that something is taken from, and not those that it inserts into.
fn waited_keys<'a>(of: &'a WaitFor<'_>) -> impl Iterator<Item = WaitedKey> + 'a {
    let mut found = SmallVec::new();
    command::find_keys(of.entry.spec.keys, of.args, &mut found);
    let inserts = command::KeyFlags::INSERT;
    let count = found.iter().take_while(|at| !at.flags.has(inserts)).count();
    of.keys[..count].iter().map(|key| waited_key(of.db, key.bytes))
}

fn waited_key(db: u8, key: &[u8]) -> WaitedKey {
    let mut name = WaitedKey::with_capacity(1 + key.len());
    name.push(db);
    name.extend_from_slice(key);
    name
}

impl Waiters {
    fn part(&self, key: &[u8]) -> &Mutex<Part> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    /// False: it waits for the key already.
    fn add(&self, key: &[u8], waiter: &Arc<Waiter>, index: usize) -> bool {
        let mut part = self.part(key).lock();
        let queue = match part.get_mut(key) {
            Some(queue) => queue,
            None => part.entry(key.into()).or_default(),
        };
        let btree_map::Entry::Vacant(place) = queue.waiters.entry(waiter.number) else {
            return false;
        };
        place.insert((waiter.clone(), index));
        queue.of_groups += usize::from(waiter.group.is_some());
        true
    }

    fn remove(&self, key: &[u8], number: u64) {
        let mut part = self.part(key).lock();
        let Some(queue) = part.get_mut(key) else { return };
        if let Some((waiter, _)) = queue.waiters.remove(&number) {
            queue.of_groups -= usize::from(waiter.group.is_some());
        }
        if queue.waiters.is_empty() {
            let was_ready = queue.is_ready;
            part.remove(key);
            if part.len() < part.capacity() / 8 {
                part.shrink_to_fit();
            }
            drop(part);
            if was_ready {
                self.forget_ready(key);
            }
        }
    }

    /// Marks a key as ready if somebody waits for it. Its slot is held by the caller. Cost: a look-up.
    pub(crate) fn mark_ready(&self, db: u8, key: &[u8]) {
        let name = waited_key(db, key);
        let mut part = self.part(&name).lock();
        let Some(queue) = part.get_mut(&*name) else { return };
        queue.marks += 1;
        if !std::mem::replace(&mut queue.is_ready, true) {
            let slot = Key::new(key).slot;
            self.ready.lock().push_back(ReadyKey { db, key: key.into(), slot });
            self.ready_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Marks all keys of a database that somebody waits for. All slots are held by the caller.
    pub(crate) fn mark_all_ready(&self, db: u8) {
        let mut marked: Vec<(u64, Box<[u8]>)> = Vec::new();
        for part in &self.parts {
            let part = part.lock();
            let of_db = part.iter().filter(|(key, _)| key[0] == db);
            marked.extend(of_db.map(|(key, queue)| {
                let first = queue.waiters.keys().next();
                (first.copied().unwrap_or_default(), key.clone())
            }));
        }
        // Who came first is served first.
        marked.sort_unstable();
        marked.iter().for_each(|(_, key)| self.mark_ready(db, &key[1..]));
    }

    /// Whether any key is ready. Cost: a load. Whoever holds a slot sees whether keys of it are.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.ready_count.load(Ordering::Relaxed) > 0
    }

    /// The first key that is ready of those in some slots.
    pub(crate) fn first_ready(&self, is_in: impl Fn(u16) -> bool) -> Option<ReadyKey> {
        self.ready.lock().iter().find(|key| is_in(key.slot)).cloned()
    }

    /// What is to be known of a key that is still ready. None: it is not any more.
    pub(crate) fn readiness(&self, ready: &ReadyKey) -> Option<Readiness> {
        let name = waited_key(ready.db, &ready.key);
        let part = self.part(&name).lock();
        let queue = part.get(&*name).filter(|queue| queue.is_ready)?;
        Some(Readiness { marks: queue.marks, has_groups: queue.of_groups > 0 })
    }

    /// There is nothing for those who wait for a key any more, unless it was marked again since `marks`.
    pub(crate) fn unmark_ready(&self, ready: &ReadyKey, marks: u64) {
        let name = waited_key(ready.db, &ready.key);
        let mut part = self.part(&name).lock();
        let Some(queue) = part.get_mut(&*name) else { return };
        if queue.marks == marks && std::mem::replace(&mut queue.is_ready, false) {
            drop(part);
            self.forget_ready(&name);
        }
    }

    fn forget_ready(&self, name: &[u8]) {
        let mut ready = self.ready.lock();
        let is_it = |one: &ReadyKey| one.db == name[0] && *one.key == name[1..];
        if let Some(place) = ready.iter().position(is_it) {
            ready.remove(place);
            self.ready_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A client that was served leaves the queue of the key at once; those of its others when it is told.
    pub(crate) fn leave(&self, ready: &ReadyKey, number: u64) {
        self.remove(&waited_key(ready.db, &ready.key), number);
    }

    /// The first who waits for a key of those that came from `number` on and are meant: its number, and which of
    /// its keys it is.
    pub(crate) fn next(
        &self,
        ready: &ReadyKey,
        number: u64,
        is_meant: impl Fn(&Waiter) -> bool,
    ) -> Option<(u64, Arc<Waiter>, usize)> {
        let name = waited_key(ready.db, &ready.key);
        let part = self.part(&name).lock();
        let mut later = part.get(&*name)?.waiters.range(number..);
        let (number, (waiter, index)) = later.find(|(_, (waiter, _))| is_meant(waiter))?;
        Some((*number, waiter.clone(), *index))
    }
}
