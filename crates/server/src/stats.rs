//! Counters of a worker: written by it alone, read by any.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::table::TABLE;

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
    pub(crate) changes: Counter,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
}

impl Default for WorkerStats {
    fn default() -> Self {
        let latency = || Some(Box::new(std::array::from_fn(|_| Counter::default())));
        let commands = TABLE.entries.iter();
        WorkerStats {
            commands: commands
                .map(|_| CommandStats { latency: latency(), ..CommandStats::default() })
                .collect(),
            net_input_bytes: Counter::default(),
            net_output_bytes: Counter::default(),
            connections: Counter::default(),
            keyspace_hits: Counter::default(),
            keyspace_misses: Counter::default(),
            error_replies: Counter::default(),
            changes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
        }
    }
}

impl CommandStats {
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
