//! The server without sockets, threads and timers, for the simulation: who has one gives it a tier
//! with a clock and an engine of its own, polls the futures of connections, and says when time goes
//! on and when the device answers.

use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flash::{Journal, SimFiles, SimJournal};
use parking_lot::Mutex;
use tier::{Tier, TierWorker};

use crate::config::Config;
use crate::execution::effects::hear_keyspace;
use crate::execution::upkeep::Upkeep;
use crate::family::REGISTRY;
use crate::network::connection::Connection;
use crate::network::measure::Measurement;
pub use crate::network::stream::Transport;
use crate::session::journal::journal_options;
use crate::session::load::{begin_at_start, load_opened};
use crate::state::clients::Client;
use crate::state::files::Files;
use crate::state::server::Server;
pub use crate::state::slices::Slices;
pub use crate::state::threads::Job;
use crate::state::threads::Threads;
use crate::state::turn::COUNTS;
use crate::state::worker::Worker;

/// A server that nothing drives by itself.
pub struct SimServer {
    server: Arc<Server>,
    measurement: Measurement,
}

/// One of its workers. Clones are the same worker.
#[derive(Clone)]
pub struct SimWorker {
    worker: Rc<Worker>,
    /// Where EXEC stands among the commands.
    exec: usize,
}

impl SimServer {
    /// A server with the arguments of `kelvin server`. Panics: if they make no sense.
    /// Its snapshots are kept in a folder, if it has one.
    pub fn new(
        arguments: &[Vec<u8>],
        tier: Arc<Tier>,
        slices: Slices,
        files: Option<SimFiles>,
    ) -> SimServer {
        let config = Config::default();
        config.load_arguments(arguments).expect("arguments that make sense");
        let mut server = Server::new(config, &REGISTRY, tier);
        server.slices = slices;
        server.files = files.map(Files::Simulated).unwrap_or_default();
        server.threads = Threads::Simulated(Mutex::default());
        // How long a run takes must not decide who goes on.
        server.clock = quanta::Clock::mock().0;
        crate::state::settings::apply_all(&server);
        let server = Arc::new(server);
        hear_keyspace(&server);
        SimServer { measurement: Measurement::new(server.clone()), server }
    }

    /// Worker `index`.
    pub fn worker(&self, index: usize) -> SimWorker {
        let worker = Worker::new(self.server.clone(), index).expect("a side of the engine");
        let exec = self.server.registry.get(b"exec").expect("invariant: there is EXEC").index;
        SimWorker { worker, exec }
    }

    /// The journal, once it is loaded.
    pub fn journal(&self) -> Option<&Journal> {
        self.server.journaling.journal()
    }

    /// Measures memory, as is done fifty times a second.
    pub fn measure(&mut self) {
        self.measurement.round();
    }

    /// Whether work waits that the server has a thread for.
    pub fn has_job(&self) -> bool {
        !self.jobs(|jobs| jobs.is_empty())
    }

    /// The oldest piece of that work.
    pub fn take_job(&self) -> Option<Job> {
        self.jobs(VecDeque::pop_front)
    }

    /// Keys that were loaded with their values left on flash.
    pub fn loaded_places(&self) -> u64 {
        self.server.saves.loaded_places.load(Ordering::Relaxed)
    }

    /// Values that the last start found in the journal.
    pub fn loaded_recent(&self) -> u64 {
        self.server.saves.loaded_recent.load(Ordering::Relaxed)
    }

    /// Has what is under way come to an end, as that of a process does that is told to.
    pub fn stop(&self) {
        self.server.shut_down();
    }

    fn jobs<R>(&self, look: impl FnOnce(&mut VecDeque<Job>) -> R) -> R {
        let Threads::Simulated(jobs) = &self.server.threads else {
            unreachable!("invariant: the threads of a simulated server are simulated")
        };
        look(&mut jobs.lock())
    }
}

impl SimWorker {
    /// Opens the journal, runs its records again, and has changes go to it from then on, as a start does: before
    /// anybody is served.
    ///
    /// Errors: why it could not be opened, or not all of it be run.
    pub fn load(
        &self,
        journal: &mut SimJournal,
    ) -> impl Future<Output = Result<(), String>> + use<> {
        let worker = self.worker.clone();
        begin_at_start(&worker.server);
        let opened = journal.open(journal_options(&worker.server));
        async move { load_opened(&worker, opened).await.map_err(|error| error.to_string()) }
    }

    /// A new client of this worker: its id, and the future that serves it.
    pub fn connect(
        &self,
        transport: impl Transport + 'static,
    ) -> (u64, impl Future<Output = ()> + 'static) {
        let server = &self.worker.server;
        let id = server.clients.next_id();
        let worker = self.worker.index;
        let address = format!("127.0.0.1:{id}");
        let client = Client { id, address, worker, ..Client::default() };
        let client = Arc::new(client);
        server.clients.add(client.clone());
        (id, Connection::new(self.worker.clone(), transport, client).serve())
    }

    /// What does one round of upkeep, and ends the waits whose time has come; true: more is urgent.
    pub fn upkeep(&self) -> impl FnMut() -> bool + 'static {
        let (worker, mut upkeep) = (self.worker.clone(), Upkeep::new(self.worker.clone()));
        move || {
            worker.deadlines.wake_due(worker.server.tier.clock().unix_ms());
            upkeep.round()
        }
    }

    /// What wakes its connections for which other workers have something.
    pub fn post(&self) -> impl Future<Output = ()> + 'static {
        let worker = self.worker.clone();
        async move { worker.server.posts[worker.index].run().await }
    }

    /// How many clients it has let go from each line of its turn: light ones, overtaken ones and heavy ones;
    /// how many light ones were overtaken, and how many found the turn spent again.
    pub fn turn_counts(&self) -> [u64; COUNTS] {
        self.worker.turn.counts()
    }

    /// How many transactions it has run, refused ones included.
    pub fn transactions(&self) -> u64 {
        self.worker.stats.commands[self.exec].calls.get()
    }

    /// Its side of the tier.
    pub fn tier(&self) -> &TierWorker {
        &self.worker.tier
    }
}
