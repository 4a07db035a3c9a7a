//! Counters of a worker: written by it alone, read by any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use flash::EngineStats;
use parking_lot::Mutex;
use tier::AllocatorStats;

use crate::limits::ERROR_CODES_MAX;
use crate::state::registry::Entry;

/// Buckets of the latency histograms: bucket `b` counts durations from 2^b to 2^(b+1) ticks.
pub(crate) const LATENCY_BUCKETS: usize = 48;

/// A counter with one writer: a plain addition, no locked instruction.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the worker that owns the counter may.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What is counted of each command.
#[derive(Default)]
pub(crate) struct CommandStats {
    pub(crate) calls: Counter,
    /// Time spent, in ticks of the worker's clock.
    pub(crate) ticks: Counter,
    /// Refused before it ran.
    pub(crate) rejected: Counter,
    /// Ran and answered an error.
    pub(crate) failed: Counter,
    pub(crate) latency: Option<Box<[Counter; LATENCY_BUCKETS]>>,
}

/// Everything that a worker counts.
pub(crate) struct WorkerStats {
    pub(crate) commands: Vec<CommandStats>,
    pub(crate) net_input_bytes: Counter,
    pub(crate) net_output_bytes: Counter,
    pub(crate) connections: Counter,
    pub(crate) keyspace_hits: Counter,
    pub(crate) keyspace_misses: Counter,
    pub(crate) error_replies: Counter,
    /// Error replies by code; the worker's own, so that its lock is never waited for.
    errors: Mutex<BTreeMap<Box<str>, u64>>,
    pub(crate) changes: Counter,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    /// Time spent on looking for keys whose time has come, in microseconds.
    pub(crate) expire_us: Counter,
    /// How often that was left for later because it took too long.
    pub(crate) expire_cut_short: Counter,
}

/// What is counted of the whole server.
#[derive(Debug)]
pub(crate) struct Totals {
    /// Allocated when the server started.
    pub(crate) startup_bytes: u64,
    /// The most that was allocated.
    pub(crate) used_peak_bytes: AtomicU64,
    /// Clients closed because all together held too much.
    pub(crate) evicted_clients: AtomicU64,
    /// The flash engine's figures at the last CONFIG RESETSTAT: it never resets them itself.
    pub(crate) flash_base: Mutex<EngineStats>,
}

impl Default for Totals {
    fn default() -> Self {
        let allocated = AllocatorStats::read().allocated;
        Totals {
            startup_bytes: allocated,
            used_peak_bytes: AtomicU64::new(allocated),
            evicted_clients: AtomicU64::new(0),
            flash_base: Mutex::default(),
        }
    }
}

impl WorkerStats {
    /// Counters for as many commands as there are.
    pub(crate) fn new(commands: usize) -> WorkerStats {
        let latency = || Some(Box::new(std::array::from_fn(|_| Counter::default())));
        WorkerStats {
            commands: (0..commands)
                .map(|_| CommandStats { latency: latency(), ..CommandStats::default() })
                .collect(),
            net_input_bytes: Counter::default(),
            net_output_bytes: Counter::default(),
            connections: Counter::default(),
            keyspace_hits: Counter::default(),
            keyspace_misses: Counter::default(),
            error_replies: Counter::default(),
            errors: Mutex::default(),
            changes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            expire_us: Counter::default(),
            expire_cut_short: Counter::default(),
        }
    }

    /// Counts an error reply by the code that its text begins with.
    #[cold]
    pub(crate) fn count_error(&self, text: &[u8]) {
        /// A longer first word is no code.
        const CODE_BYTES_MAX: usize = 32;
        self.error_replies.add(1);
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let code = std::str::from_utf8(code).ok().filter(|code| code.len() < CODE_BYTES_MAX);
        let code = code.unwrap_or("ERR");
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into(), 1);
        }
    }

    /// Counts the call of a client that has waited for keys. The worker that ends the wait counts it before it answers
    /// the client that ended it, as Redis does. `error`: the text of the error reply that the wait ends with.
    #[cold]
    pub(crate) fn count_wait(&self, entry: &Entry, ticks: u64, error: Option<&[u8]>) {
        let command = &self.commands[entry.index];
        command.count(ticks);
        if let Some(text) = error {
            command.failed.add(1);
            self.count_error(text);
        }
    }

    /// Adds the error replies by code to `total`.
    pub(crate) fn add_errors(&self, total: &mut BTreeMap<Box<str>, u64>) {
        for (code, count) in &*self.errors.lock() {
            *total.entry(code.clone()).or_default() += count;
        }
    }

    /// Starts again from 0, for CONFIG RESETSTAT. A count under way on the worker may survive.
    pub(crate) fn reset(&self) {
        let WorkerStats {
            commands,
            net_input_bytes,
            net_output_bytes,
            connections,
            keyspace_hits,
            keyspace_misses,
            error_replies,
            errors,
            changes: _,
            reads,
            writes,
            expire_us,
            expire_cut_short,
        } = self;
        let counters = [
            net_input_bytes,
            net_output_bytes,
            connections,
            keyspace_hits,
            keyspace_misses,
            error_replies,
            reads,
            writes,
            expire_us,
            expire_cut_short,
        ];
        counters.into_iter().for_each(Counter::reset);
        errors.lock().clear();
        for command in commands {
            for counter in [&command.calls, &command.ticks, &command.rejected, &command.failed] {
                counter.reset();
            }
            command.reset_latency();
        }
    }
}

impl CommandStats {
    /// Forgets how long calls took, for LATENCY RESET and CONFIG RESETSTAT.
    pub(crate) fn reset_latency(&self) {
        self.latency.iter().flat_map(|latency| latency.iter()).for_each(Counter::reset);
    }

    /// Counts one call of `ticks`.
    #[inline]
    pub(crate) fn count(&self, ticks: u64) {
        self.calls.add(1);
        self.ticks.add(ticks);
        if let Some(latency) = &self.latency {
            let bucket = (63 - (ticks | 1).leading_zeros()) as usize;
            latency[bucket.min(LATENCY_BUCKETS - 1)].add(1);
        }
    }
}
