//! How workers tell each other's connections that there is something for them.
//!
//! To wake a task of another thread costs a system call. So the clients of one worker are put on a list, and
//! the worker is woken once for all of them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::state::clients::Client;

/// Clients of one worker that others have something for.
#[derive(Default)]
pub(crate) struct Post {
    clients: Mutex<Vec<Arc<Client>>>,
    has_come: Notify,
}

impl Post {
    /// Adds a client, to be woken when the worker is told. Bounds: what calls this tells a client once until
    /// its connection has looked.
    pub(crate) fn add(&self, client: Arc<Client>) {
        self.clients.lock().push(client);
    }

    /// Tells the worker.
    pub(crate) fn tell(&self) {
        self.has_come.notify_one();
    }

    /// Wakes the clients that are added, for as long as the worker runs.
    pub(crate) async fn run(&self) {
        loop {
            self.has_come.notified().await;
            let clients = std::mem::take(&mut *self.clients.lock());
            #[cfg(feature = "simulation")]
            keyspace::schedule::shared();
            clients.iter().for_each(|client| client.wake());
        }
    }
}
