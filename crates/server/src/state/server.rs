//! What all workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use command::collection::{Encodings, PackedMax, StreamLeafMax};
use command::{Limits, Statistics};
use quanta::Clock;
use tier::Tier;
use tokio::sync::Notify;

use crate::config::Config;
use crate::limits::{REPLY_BYTES_FREE_MIN, REPLY_FREE_SHIFT};
use crate::state::client_memory::{ClientMemory, request_bytes_max};
use crate::state::clients::Clients;
use crate::state::clock::unix_ms;
use crate::state::files::Files;
use crate::state::flash::FlashChanges;
use crate::state::journaling::Journaling;
use crate::state::kept_memory::KeptMemory;
use crate::state::latency::LatencyMonitor;
use crate::state::listening::Listening;
use crate::state::monitor::Monitors;
use crate::state::pause::Pause;
use crate::state::post::Post;
use crate::state::pubsub::PubSub;
use crate::state::registry::Registry;
use crate::state::samples::Samples;
use crate::state::saves::Saves;
use crate::state::slices::Slices;
use crate::state::slowlog::SlowLog;
use crate::state::stats::{Totals, WorkerStats};
use crate::state::threads::Threads;
use crate::state::waiters::Waiters;

/// Version of Redis whose behaviour this server follows: clients choose their commands by it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";
/// Kelvin's own version.
pub(crate) const KELVIN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Options that CONFIG SET takes as long as they stay what they are.
pub(crate) const NEED_RESTART: &[&str] = &["bind", "port"];

/// The server: one for a process.
pub(crate) struct Server {
    pub(crate) config: Config,
    /// All commands.
    pub(crate) registry: &'static Registry,
    pub(crate) tier: Arc<Tier>,
    pub(crate) clients: Clients,
    pub(crate) client_memory: ClientMemory,
    pub(crate) kept_memory: KeptMemory,
    pub(crate) slices: Slices,
    pub(crate) monitors: Monitors,
    pub(crate) pubsub: PubSub,
    /// One for each worker.
    pub(crate) posts: Vec<Post>,
    pub(crate) pause: Pause,
    pub(crate) listening: Listening,
    pub(crate) waiters: Waiters,
    pub(crate) slowlog: SlowLog,
    pub(crate) latency: LatencyMonitor,
    pub(crate) saves: Saves,
    pub(crate) journaling: Journaling,
    pub(crate) flash_changes: FlashChanges,
    /// One for each worker.
    pub(crate) stats: Vec<Arc<WorkerStats>>,
    pub(crate) totals: Totals,
    pub(crate) samples: Samples,
    /// The clock of command durations.
    pub(crate) clock: Clock,
    pub(crate) started: Instant,
    /// 40 hexadecimal digits of this run.
    pub(crate) run_id: String,
    /// Where snapshots are kept.
    pub(crate) files: Files,
    /// Where work is done that takes long.
    pub(crate) threads: Threads,
    /// The address that clients connect to, once it is known (port 0 chooses one).
    pub(crate) tcp_port: AtomicU64,
    pub(crate) active_expire: AtomicBool,
    /// Whether what a command has worked on is demoted behind it.
    pub(crate) demotes_after_command: AtomicBool,
    /// Whether RESTORE looks at checksums.
    pub(crate) checks_sums: AtomicBool,
    pub(crate) rejected_connections: AtomicU64,
    /// What the options that need a restart were at the start.
    started_with: Vec<(&'static str, Vec<u8>)>,
    stopping: AtomicBool,
    stop: Notify,
}

impl Server {
    pub(crate) fn new(config: Config, registry: &'static Registry, tier: Arc<Tier>) -> Server {
        let fixed: Vec<&[u8]> = NEED_RESTART.iter().map(|name| name.as_bytes()).collect();
        let started_with = config.get(&fixed);
        let clients = Clients::new(tier.workers);
        let stats = |_| Arc::new(WorkerStats::new(registry.entries.len()));
        let stats = (0..tier.workers).map(stats).collect();
        let posts = (0..tier.workers).map(|_| Post::default()).collect();
        Server {
            config,
            registry,
            tier,
            clients,
            client_memory: ClientMemory::new(),
            kept_memory: KeptMemory::default(),
            slices: Slices::default(),
            monitors: Monitors::default(),
            pubsub: PubSub::default(),
            posts,
            pause: Pause::default(),
            listening: Listening::default(),
            waiters: Waiters::default(),
            slowlog: SlowLog::default(),
            latency: LatencyMonitor::default(),
            saves: Saves::new(unix_ms() / 1000),
            journaling: Journaling::default(),
            flash_changes: FlashChanges::default(),
            stats,
            totals: Totals::default(),
            samples: Samples::default(),
            clock: Clock::new(),
            started: Instant::now(),
            run_id: random_hex(40),
            files: Files::default(),
            threads: Threads::default(),
            tcp_port: AtomicU64::new(0),
            active_expire: AtomicBool::new(true),
            demotes_after_command: AtomicBool::new(false),
            checks_sums: AtomicBool::new(true),
            rejected_connections: AtomicU64::new(0),
            started_with,
            stopping: AtomicBool::new(false),
            stop: Notify::new(),
        }
    }

    /// Asks the process to end.
    pub(crate) fn shut_down(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
        for client in self.clients.all() {
            client.kill();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Resolves when the process is to end.
    pub(crate) async fn stopped(&self) {
        let notified = self.stop.notified();
        if !self.is_stopping() {
            notified.await;
        }
    }

    /// Bytes of a reply that need not be asked for: of a small `maxmemory` fewer, for a hundred clients may each
    /// take them at a time.
    pub(crate) fn reply_bytes_free(&self) -> usize {
        let bytes_max = self.slices.reply_bytes_free;
        match self.tier.budget.max_bytes() {
            0 => bytes_max,
            max => bytes_max.min((max >> REPLY_FREE_SHIFT).max(REPLY_BYTES_FREE_MIN) as usize),
        }
    }

    /// The sum of a counter over all workers.
    pub(crate) fn sum(&self, count: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.stats.iter().map(|stats| count(stats)).sum()
    }

    /// Changes that commands have made.
    pub(crate) fn changes(&self) -> u64 {
        self.sum(|stats| stats.changes.get())
    }

    /// Whether an option that needs a restart is what it was at the start.
    pub(crate) fn is_as_started(&self, name: &str) -> bool {
        let now = self.config.get(&[name.as_bytes()]);
        let started_with = |value: &(&'static str, Vec<u8>)| self.started_with.contains(value);
        now.iter().all(started_with)
    }

    /// Lets every statistic begin again (CONFIG RESETSTAT).
    pub(crate) fn reset_stats(&self) {
        for stats in &self.stats {
            stats.reset();
        }
        self.tier.counters.reset_statistics();
        self.rejected_connections.store(0, Ordering::Relaxed);
        self.totals.evicted_clients.store(0, Ordering::Relaxed);
        if let Some(engine) = self.tier.engine() {
            *self.totals.flash_base.lock() = engine.stats();
        }
    }
}

impl Encodings for Server {
    fn hash(&self) -> PackedMax {
        PackedMax {
            entries: self.config.hash_max_listpack_entries.load() as u64,
            element_bytes: self.config.hash_max_listpack_value.load(),
        }
    }

    fn intset_entries_max(&self) -> u64 {
        self.config.set_max_intset_entries.load() as u64
    }

    fn hyperloglog_sparse_bytes_max(&self) -> usize {
        self.config.hll_sparse_max_bytes.load() as usize
    }

    fn sorted_set(&self) -> PackedMax {
        PackedMax {
            entries: self.config.zset_max_listpack_entries.load() as u64,
            element_bytes: self.config.zset_max_listpack_value.load(),
        }
    }

    fn stream_leaf(&self) -> StreamLeafMax {
        StreamLeafMax {
            entries: self.config.stream_node_max_entries.load() as u64,
            bytes: self.config.stream_node_max_bytes.load(),
        }
    }
}

impl Limits for Server {
    fn string_bytes_max(&self) -> usize {
        self.config.proto_max_bulk_len.load() as usize
    }

    fn memory_bytes_max(&self) -> usize {
        request_bytes_max(self) as usize
    }

    fn counts_uses(&self) -> bool {
        self.tier.settings.policy().is_lfu()
    }

    fn checks_sums(&self) -> bool {
        self.checks_sums.load(Ordering::Relaxed)
    }
}

impl Statistics for Server {
    fn keys(&self, table: u8) -> u64 {
        self.tier.counters.table(table).keys
    }
}

fn random_hex(digits: usize) -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut text = String::new();
    while text.len() < digits {
        let state = std::collections::hash_map::RandomState::new();
        text.push_str(&format!("{:016x}", state.build_hasher().finish()));
    }
    text.truncate(digits);
    text
}
