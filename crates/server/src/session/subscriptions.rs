//! What a client listens to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::limits::SUBSCRIPTION_OVERHEAD_BYTES;
use crate::session::Session;
use crate::state::pubsub::Topic;

/// Names of channels, patterns and shard channels.
#[derive(Default)]
pub(crate) struct Subscriptions([BTreeSet<Arc<[u8]>>; Topic::ALL.len()]);

impl Subscriptions {
    /// Whether there are none.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }

    /// What a confirmation counts: channels with patterns, or shard channels.
    pub(crate) fn count(&self, topic: Topic) -> usize {
        let len = |topic: Topic| self.0[topic as usize].len();
        match topic {
            Topic::Channel | Topic::Pattern => len(Topic::Channel) + len(Topic::Pattern),
            Topic::ShardChannel => len(Topic::ShardChannel),
        }
    }

    /// The names of a kind.
    pub(crate) fn names(&self, topic: Topic) -> Vec<Arc<[u8]>> {
        self.0[topic as usize].iter().cloned().collect()
    }
}

impl Session {
    /// Has the client listen. Nothing happens when it does.
    pub(crate) fn subscribe(&mut self, topic: Topic, name: &[u8]) {
        let names = &mut self.subscriptions.0[topic as usize];
        if names.contains(name) {
            return;
        }
        let name: Arc<[u8]> = name.into();
        names.insert(name.clone());
        let client = &self.client;
        client.subscriptions[topic as usize].fetch_add(1, Ordering::Relaxed);
        client.subscription_bytes.fetch_add(bytes(&name), Ordering::Relaxed);
        self.worker.server.pubsub.add(topic, &name, client);
    }

    /// Has the client listen no more. Nothing happens when it does not.
    pub(crate) fn unsubscribe(&mut self, topic: Topic, name: &[u8]) {
        if self.subscriptions.0[topic as usize].remove(name) {
            self.forget(topic, name);
        }
    }

    /// Has the client listen to nothing.
    pub(crate) fn unsubscribe_all(&mut self) {
        for topic in Topic::ALL {
            for name in std::mem::take(&mut self.subscriptions.0[topic as usize]) {
                self.forget(topic, &name);
            }
        }
    }

    fn forget(&self, topic: Topic, name: &[u8]) {
        let client = &self.client;
        self.worker.server.pubsub.remove(topic, name, client);
        client.subscriptions[topic as usize].fetch_sub(1, Ordering::Relaxed);
        client.subscription_bytes.fetch_sub(bytes(name), Ordering::Relaxed);
    }
}

fn bytes(name: &[u8]) -> u64 {
    name.len() as u64 + SUBSCRIPTION_OVERHEAD_BYTES
}
