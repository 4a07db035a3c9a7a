//! Messages that answer no request: on their way to the connection of one client, from any worker.
//!
//! A message goes into the client's queue, and its connection takes it from there between two replies.
//! It is counted as the client's from the moment it is given, whoever's turn it is: in the client's own
//! memory, in that of all clients, and in what `client-output-buffer-limit` bounds. Each client is charged
//! for all of a message, though the bytes are held once, so what is counted is never less than what is held.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use resp::{Protocol, Reply};
use smallvec::SmallVec;

use crate::limits::{PUSH_OVERHEAD_BYTES, PUSHES_KEPT_MAX, PUSHES_UNCHECKED_BYTES_MAX};
use crate::state::client_eviction::check_pushed;
use crate::state::clients::Client;
use crate::state::output_limit::close_if_over;
use crate::state::server::Server;

/// A message. Clones share its bytes.
#[derive(Clone)]
pub(crate) struct Push {
    head: Head,
    body: Arc<[u8]>,
}

/// What stands in front of the bytes that are shared.
#[derive(Clone)]
pub(crate) enum Head {
    /// Nothing: the body is what the client gets.
    None,
    /// The length of a push, and its first elements. Its marker depends on the client's protocol.
    Fixed(&'static [u8]),
    /// The same, of memory of its own.
    Shared(Arc<[u8]>),
}

/// Messages that a client's connection has not taken yet. Bounds: `client-output-buffer-limit` and
/// `maxmemory-clients`, in bytes, of which each message has some besides its own.
#[derive(Default)]
pub(crate) struct PushQueue {
    bytes: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    pushes: VecDeque<Push>,
    /// Whether the connection has been told since it last took all.
    is_announced: bool,
    /// The connection has ended.
    is_closed: bool,
}

/// What a client was given.
struct Given {
    /// What waits for it now.
    bytes: u64,
    must_announce: bool,
}

impl Push {
    pub(crate) fn new(head: Head, body: Arc<[u8]>) -> Push {
        Push { head, body }
    }

    /// A message that is encoded already, in the protocol of its client.
    pub(crate) fn encoded(bytes: &[u8]) -> Push {
        Push { head: Head::None, body: bytes.into() }
    }

    fn len(&self) -> usize {
        self.head.bytes().len() + self.body.len()
    }

    /// What it counts for.
    pub(crate) fn bytes(&self) -> u64 {
        counted_bytes(self.head.bytes().len(), self.body.len())
    }

    fn write(&self, reply: &mut Reply) {
        if !matches!(self.head, Head::None) {
            let marker = if reply.protocol() == Protocol::Resp3 { b">" } else { b"*" };
            reply.raw(marker);
        }
        reply.raw(self.head.bytes());
        reply.raw(&self.body);
    }
}

impl Head {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Head::None => b"",
            Head::Fixed(bytes) => bytes,
            Head::Shared(bytes) => bytes,
        }
    }
}

/// What a message of such parts counts for.
pub(crate) fn counted_bytes(head_len: usize, body_len: usize) -> u64 {
    (head_len + body_len) as u64 + PUSH_OVERHEAD_BYTES
}

impl PushQueue {
    /// What waits counts for so many bytes. Cost: a load.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().pushes.len()
    }

    /// None: the connection has ended.
    fn give(&self, push: Push) -> Option<Given> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return None;
        }
        let bytes = self.bytes.load(Ordering::Relaxed) + push.bytes();
        self.bytes.store(bytes, Ordering::Relaxed);
        waiting.pushes.push_back(push);
        let must_announce = !std::mem::replace(&mut waiting.is_announced, true);
        Some(Given { bytes, must_announce })
    }

    /// Moves messages behind what has been replied until that is longer than `len_max`, and says what
    /// they counted for. Who gives messages meanwhile does not wait for them to be copied.
    fn take(&self, reply: &mut Reply, len_max: usize) -> u64 {
        let mut waiting = self.waiting.lock();
        let mut len = reply.len();
        let fits = |push: &&Push| {
            let has_room = len < len_max;
            len += push.len();
            has_room
        };
        let taken = waiting.pushes.iter().take_while(fits).count();
        let pushes: SmallVec<[Push; 8]> = waiting.pushes.drain(..taken).collect();
        if waiting.pushes.is_empty() {
            waiting.is_announced = false;
            if waiting.pushes.capacity() > PUSHES_KEPT_MAX {
                waiting.pushes = VecDeque::new();
            }
        }
        let bytes = pushes.iter().map(Push::bytes).sum::<u64>();
        self.bytes.store(self.bytes.load(Ordering::Relaxed) - bytes, Ordering::Relaxed);
        drop(waiting);
        pushes.iter().for_each(|push| push.write(reply));
        bytes
    }

    /// Takes no more, and forgets what waits.
    fn close(&self) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let pushes = std::mem::take(&mut waiting.pushes);
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        drop(waiting);
        drop(pushes);
        bytes
    }
}

/// Has a connection take what waits for it until its reply is longer than `len_max`.
pub(crate) fn take_pushes(server: &Server, client: &Client, reply: &mut Reply, len_max: usize) {
    let taken = client.pushes.take(reply, len_max);
    server.tier.budget.add_buffers(-(taken as i64));
}

/// A connection has ended: nothing goes to it any more.
pub(crate) fn close_pushes(server: &Server, client: &Client) {
    let left = client.pushes.close();
    server.tier.budget.add_buffers(-(left as i64));
}

/// Messages that are given to clients one after the other. Whether clients take too much is looked at, and
/// connections of other workers are told, when this is dropped: not while anything is locked.
pub(crate) struct Delivery<'a> {
    server: &'a Server,
    /// The worker that gives them; none: another thread.
    from: Option<usize>,
    /// The most that all clients held when one was given a message.
    total_max: i64,
    /// Other workers whose connections are to be told.
    told: SmallVec<[usize; 4]>,
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(server: &'a Server, from: Option<usize>) -> Delivery<'a> {
        Delivery { server, from, total_max: 0, told: SmallVec::new() }
    }

    /// Gives a client the message that `make` makes, which counts for `bytes`. A client that would have
    /// more unread than it may is closed instead.
    pub(crate) fn give(&mut self, client: &Arc<Client>, bytes: u64, make: impl FnOnce() -> Push) {
        if client.is_killed() {
            return;
        }
        let unread = client.pushes.bytes() + bytes + client.output_bytes.load(Ordering::Relaxed);
        if unread > PUSHES_UNCHECKED_BYTES_MAX && close_if_over(self.server, client, unread) {
            return;
        }
        let push = make();
        assert_eq!(push.bytes(), bytes);
        // Before its connection can take it, and count it as gone.
        let total = self.server.tier.budget.add_buffers(bytes as i64);
        let Some(given) = client.pushes.give(push) else {
            self.server.tier.budget.add_buffers(-(bytes as i64));
            return;
        };
        assert!(given.bytes >= bytes);
        self.total_max = self.total_max.max(total);
        if given.must_announce {
            self.announce(client);
        }
    }

    fn announce(&mut self, client: &Arc<Client>) {
        if self.from == Some(client.worker) {
            return client.wake();
        }
        self.server.posts[client.worker].add(client.clone());
        if !self.told.contains(&client.worker) {
            self.told.push(client.worker);
        }
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        #[cfg(feature = "simulation")]
        keyspace::schedule::shared();
        for &worker in &self.told {
            self.server.posts[worker].tell();
        }
        if self.total_max > 0 {
            check_pushed(self.server, self.total_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(text: &'static [u8]) -> Push {
        Push::new(Head::Fixed(text), b":1\r\n".as_slice().into())
    }

    #[test]
    fn messages_come_in_their_order_and_in_the_protocol_of_the_client() {
        let queue = PushQueue::default();
        let given = queue.give(push(b"2\r\n+a\r\n")).expect("it is open");
        assert!(given.must_announce);
        let given = queue.give(Push::encoded(b"+as it is\r\n")).expect("it is open");
        assert!(!given.must_announce, "the connection knows");
        assert_eq!(given.bytes, queue.bytes());
        let mut reply = Reply::new(Protocol::Resp3);
        let first = queue.take(&mut reply, 1);
        assert_eq!(reply.as_slice(), b">2\r\n+a\r\n:1\r\n", "one is enough");
        assert!(!queue.give(push(b"1\r\n")).expect("it is open").must_announce, "more is left");
        reply.set_protocol(Protocol::Resp2);
        let rest = queue.take(&mut reply, usize::MAX);
        assert_eq!(reply.as_slice(), b">2\r\n+a\r\n:1\r\n+as it is\r\n*1\r\n:1\r\n");
        assert_eq!(queue.bytes(), 0);
        assert_eq!(first + rest, counted_bytes(7, 4) + counted_bytes(0, 11) + counted_bytes(3, 4));
        assert!(queue.give(push(b"1\r\n")).expect("it is open").must_announce, "it took all");
    }

    #[test]
    fn a_queue_that_is_closed_takes_nothing() {
        let queue = PushQueue::default();
        let bytes = queue.give(push(b"1\r\n")).expect("it is open").bytes;
        assert_eq!(queue.close(), bytes);
        assert!(queue.give(push(b"1\r\n")).is_none());
        assert_eq!((queue.bytes(), queue.len()), (0, 0));
    }
}
