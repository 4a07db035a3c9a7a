//! Who listens to which channels and patterns, and how a message gets to them.
//!
//! Whoever publishes gives a message to all its receivers while the channel is locked: they all see the
//! messages of a channel in the same order, and none comes to a client after it has been told that it
//! listens no more. Channels are spread over parts with a lock each, so publishers of different channels
//! hardly ever meet; patterns have a lock that publishers share. While nobody listens, a message costs a load.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use rapidhash::RapidHashMap;
use rapidhash::fast::RandomState;
use value::glob;

use crate::state::clients::Client;
use crate::state::push::{Delivery, Head, Push, counted_bytes};
use crate::state::server::Server;

/// Parts of the channels that are locked each for itself.
const PARTS: usize = 64;

/// What clients listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Channel,
    Pattern,
    /// A channel of one slot, which has names of its own.
    ShardChannel,
}

/// Everything that clients listen to.
#[derive(Default)]
pub(crate) struct PubSub {
    /// Of channels and patterns together.
    subscriptions: AtomicUsize,
    channels: Channels,
    patterns: Patterns,
    shard_subscriptions: AtomicUsize,
    shard_channels: Channels,
}

struct Channels {
    parts: Box<[Part]>,
    hasher: RandomState,
}

type Part = Mutex<RapidHashMap<Arc<[u8]>, Subscribers>>;

#[derive(Default)]
struct Patterns {
    by_name: RwLock<BTreeMap<Arc<[u8]>, Pattern>>,
}

struct Pattern {
    /// What stands in front of the channel in its messages.
    head: Arc<[u8]>,
    subscribers: Subscribers,
}

/// Clients by their ids.
#[derive(Default)]
struct Subscribers(Vec<(u64, Arc<Client>)>);

impl Topic {
    /// All of them, in the order in which CLIENT LIST counts them.
    pub(crate) const ALL: [Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::ShardChannel];
}

impl PubSub {
    /// Has a client, which does not yet, listen. Cost: a lock and a look-up.
    pub(crate) fn add(&self, topic: Topic, name: &Arc<[u8]>, client: &Arc<Client>) {
        match topic {
            Topic::Channel => self.channels.add(name, client),
            Topic::Pattern => self.patterns.add(name, client),
            Topic::ShardChannel => self.shard_channels.add(name, client),
        }
        #[cfg(feature = "simulation")]
        keyspace::schedule::shared();
        self.count(topic).fetch_add(1, Ordering::Relaxed);
    }

    /// Has a client, which did, listen no more: from here on it is given nothing.
    pub(crate) fn remove(&self, topic: Topic, name: &[u8], client: &Client) {
        let removed = match topic {
            Topic::Channel => self.channels.remove(name, client),
            Topic::Pattern => self.patterns.remove(name, client),
            Topic::ShardChannel => self.shard_channels.remove(name, client),
        };
        assert!(removed, "invariant: a session knows what its client listens to");
        self.count(topic).fetch_sub(1, Ordering::Relaxed);
    }

    fn count(&self, topic: Topic) -> &AtomicUsize {
        match topic {
            Topic::Channel | Topic::Pattern => &self.subscriptions,
            Topic::ShardChannel => &self.shard_subscriptions,
        }
    }

    /// Whether anybody listens to a channel or a pattern. Cost: a load.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.subscriptions.load(Ordering::Relaxed) > 0
    }

    /// Gives a message to all who listen to its channel or to a pattern that matches it, on behalf of worker
    /// `from`. Never waits for a client: who has too much unread is closed. Returns how many it was for.
    /// Cost: a load when nobody listens to anything.
    #[inline]
    pub(crate) fn publish(
        &self,
        server: &Server,
        from: Option<usize>,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let subscriptions = self.subscriptions.load(Ordering::Relaxed);
        #[cfg(feature = "simulation")]
        keyspace::schedule::shared();
        match subscriptions {
            0 => 0,
            _ => self.give(server, from, channel, message),
        }
    }

    fn give(&self, server: &Server, from: Option<usize>, channel: &[u8], message: &[u8]) -> usize {
        let mut message = Message::new(channel, message);
        let mut delivery = Delivery::new(server, from);
        let part = self.channels.part(channel).lock();
        if let Some(subscribers) = part.get(channel) {
            message.give(&Head::Fixed(b"3\r\n$7\r\nmessage\r\n"), subscribers, &mut delivery);
        }
        // With the channel locked, so that the order is the same for those who listen to patterns.
        let patterns = self.patterns.by_name.read();
        for (name, pattern) in &*patterns {
            if glob::matches(name, channel, glob::Case::Sensitive) {
                let head = Head::Shared(pattern.head.clone());
                message.give(&head, &pattern.subscribers, &mut delivery);
            }
        }
        drop(patterns);
        drop(part);
        message.receivers
    }

    /// The same for those who listen to a shard channel.
    pub(crate) fn publish_to_shard(
        &self,
        server: &Server,
        from: Option<usize>,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        if self.shard_subscriptions.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut message = Message::new(channel, message);
        let mut delivery = Delivery::new(server, from);
        let part = self.shard_channels.part(channel).lock();
        if let Some(subscribers) = part.get(channel) {
            message.give(&Head::Fixed(b"3\r\n$8\r\nsmessage\r\n"), subscribers, &mut delivery);
        }
        drop(part);
        message.receivers
    }

    /// Names of channels to which somebody listens. Cost: linear in the channels.
    pub(crate) fn names(&self, topic: Topic) -> Vec<Arc<[u8]>> {
        match topic {
            Topic::Channel => self.channels.names(),
            Topic::Pattern => self.patterns.by_name.read().keys().cloned().collect(),
            Topic::ShardChannel => self.shard_channels.names(),
        }
    }

    /// How many channels, or patterns, somebody listens to.
    pub(crate) fn len(&self, topic: Topic) -> usize {
        match topic {
            Topic::Channel => self.channels.len(),
            Topic::Pattern => self.patterns.by_name.read().len(),
            Topic::ShardChannel => self.shard_channels.len(),
        }
    }

    /// How many clients listen to a channel.
    pub(crate) fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        let count =
            |channels: &Channels| channels.part(name).lock().get(name).map_or(0, |s| s.0.len());
        match topic {
            Topic::Channel => count(&self.channels),
            Topic::Pattern => {
                self.patterns.by_name.read().get(name).map_or(0, |one| one.subscribers.0.len())
            }
            Topic::ShardChannel => count(&self.shard_channels),
        }
    }
}

impl Default for Channels {
    fn default() -> Channels {
        let parts = (0..PARTS).map(|_| Part::default()).collect();
        Channels { parts, hasher: RandomState::default() }
    }
}

impl Channels {
    fn part(&self, name: &[u8]) -> &Part {
        &self.parts[self.hasher.hash_one(name) as usize % PARTS]
    }

    fn add(&self, name: &Arc<[u8]>, client: &Arc<Client>) {
        self.part(name).lock().entry(name.clone()).or_default().add(client);
    }

    fn remove(&self, name: &[u8], client: &Client) -> bool {
        let mut part = self.part(name).lock();
        let Some(subscribers) = part.get_mut(name) else { return false };
        let removed = subscribers.remove(client);
        if subscribers.0.is_empty() {
            part.remove(name);
            if part.len() < part.capacity() / 8 {
                part.shrink_to_fit();
            }
        }
        removed
    }

    fn names(&self) -> Vec<Arc<[u8]>> {
        let mut names = Vec::new();
        for part in &self.parts {
            names.extend(part.lock().keys().cloned());
        }
        names
    }

    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}

impl Patterns {
    fn add(&self, name: &Arc<[u8]>, client: &Arc<Client>) {
        let mut by_name = self.by_name.write();
        let pattern = by_name.entry(name.clone()).or_insert_with(|| {
            let mut head = b"4\r\n$8\r\npmessage\r\n".to_vec();
            write_bulk(name, &mut head).expect("invariant: memory takes all");
            Pattern { head: head.into(), subscribers: Subscribers::default() }
        });
        pattern.subscribers.add(client);
    }

    fn remove(&self, name: &[u8], client: &Client) -> bool {
        let mut by_name = self.by_name.write();
        let Some(pattern) = by_name.get_mut(name) else { return false };
        let removed = pattern.subscribers.remove(client);
        if pattern.subscribers.0.is_empty() {
            by_name.remove(name);
        }
        removed
    }
}

impl Subscribers {
    fn place(&self, client: &Client) -> Result<usize, usize> {
        self.0.binary_search_by_key(&client.id, |(id, _)| *id)
    }

    fn add(&mut self, client: &Arc<Client>) {
        match self.place(client) {
            Ok(_) => unreachable!("invariant: a session knows what its client listens to"),
            Err(place) => self.0.insert(place, (client.id, client.clone())),
        }
    }

    fn remove(&mut self, client: &Client) -> bool {
        let place = self.place(client);
        if let Ok(place) = place {
            self.0.remove(place);
            if self.0.len() < self.0.capacity() / 4 {
                self.0.shrink_to_fit();
            }
        }
        place.is_ok()
    }
}

/// A message on its way. It is encoded for the first client that may have it, once for all.
struct Message<'a> {
    channel: &'a [u8],
    message: &'a [u8],
    body_len: usize,
    body: Option<Arc<[u8]>>,
    receivers: usize,
}

impl Message<'_> {
    fn new<'a>(channel: &'a [u8], message: &'a [u8]) -> Message<'a> {
        let body_len = bulk_len(channel) + bulk_len(message);
        Message { channel, message, body_len, body: None, receivers: 0 }
    }

    fn give(&mut self, head: &Head, subscribers: &Subscribers, delivery: &mut Delivery<'_>) {
        let bytes = counted_bytes(head.bytes().len(), self.body_len);
        for (_, client) in &subscribers.0 {
            delivery.give(client, bytes, || Push::new(head.clone(), self.body()));
        }
        self.receivers += subscribers.0.len();
    }

    fn body(&mut self) -> Arc<[u8]> {
        let body = self.body.get_or_insert_with(|| {
            // In its place at once: a long one is not copied twice.
            let mut body: Arc<[u8]> = std::iter::repeat_n(0, self.body_len).collect();
            let mut rest = Arc::get_mut(&mut body).expect("invariant: nobody else has it yet");
            for bytes in [self.channel, self.message] {
                write_bulk(bytes, &mut rest).expect("invariant: its length was worked out");
            }
            assert!(rest.is_empty());
            body
        });
        body.clone()
    }
}

/// Writes a bulk as both versions of the protocol have it.
fn write_bulk(bytes: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    out.write_all(b"$")?;
    out.write_all(itoa::Buffer::new().format(bytes.len()).as_bytes())?;
    out.write_all(b"\r\n")?;
    out.write_all(bytes)?;
    out.write_all(b"\r\n")
}

fn bulk_len(bytes: &[u8]) -> usize {
    let digits = bytes.len().checked_ilog10().unwrap_or(0) as usize + 1;
    1 + digits + 2 + bytes.len() + 2
}
