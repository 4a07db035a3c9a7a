//! Rates per second, and the length of a slow command in ticks of the clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use quanta::Clock;

use crate::config::Config;

/// Measurements that a rate is the mean of.
const RATE_SAMPLES: usize = 16;

/// Rates over the last `RATE_SAMPLES` measurements, and what the workers read on their hot path.
#[derive(Default)]
pub(crate) struct Samples {
    slow_ticks: AtomicU64,
    rates: Mutex<Rates>,
}

/// Counters that INFO shows as rates per second.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RateCounts {
    pub(crate) commands: u64,
    pub(crate) net_input_bytes: u64,
    pub(crate) net_output_bytes: u64,
    pub(crate) flash_reads: u64,
    pub(crate) flash_writes: u64,
    pub(crate) flash_read_bytes: u64,
    pub(crate) flash_write_bytes: u64,
}

#[derive(Default)]
struct Rates {
    history: VecDeque<(Instant, RateCounts)>,
}

impl Samples {
    /// Durations above this many clock ticks are looked at by the slow log and the latency monitor.
    #[inline]
    pub(crate) fn slow_ticks(&self) -> u64 {
        self.slow_ticks.load(Ordering::Relaxed)
    }

    /// The rates per second.
    pub(crate) fn rates(&self) -> RateCounts {
        let rates = self.rates.lock();
        let (Some((from, old)), Some((to, new))) = (rates.history.front(), rates.history.back())
        else {
            return RateCounts::default();
        };
        let seconds = to.duration_since(*from).as_secs_f64();
        let rate = |new: u64, old: u64| match seconds > 0.0 {
            true => (new.saturating_sub(old) as f64 / seconds) as u64,
            false => 0,
        };
        RateCounts {
            commands: rate(new.commands, old.commands),
            net_input_bytes: rate(new.net_input_bytes, old.net_input_bytes),
            net_output_bytes: rate(new.net_output_bytes, old.net_output_bytes),
            flash_reads: rate(new.flash_reads, old.flash_reads),
            flash_writes: rate(new.flash_writes, old.flash_writes),
            flash_read_bytes: rate(new.flash_read_bytes, old.flash_read_bytes),
            flash_write_bytes: rate(new.flash_write_bytes, old.flash_write_bytes),
        }
    }

    /// Sets the threshold of slow commands anew from the options.
    pub(crate) fn update_slow_ticks(&self, config: &Config, clock: &Clock) {
        let slower_than = config.slowlog_log_slower_than.load();
        let threshold_ms = config.latency_monitor_threshold.load();
        let mut nanos = u64::MAX;
        if slower_than >= 0 {
            nanos = slower_than as u64 * 1000;
        }
        if threshold_ms > 0 {
            nanos = nanos.min(threshold_ms as u64 * 1_000_000);
        }
        // Ticks are found by their length in nanoseconds, measured over a long stretch.
        const STRETCH: u64 = 1 << 32;
        let stretch_nanos = clock.delta_as_nanos(0, STRETCH).max(1);
        let ticks = u128::from(nanos) * u128::from(STRETCH) / u128::from(stretch_nanos);
        self.slow_ticks.store(ticks.min(u128::from(u64::MAX)) as u64, Ordering::Relaxed);
    }

    /// Adds the counters as they are now.
    pub(crate) fn add(&self, counts: RateCounts) {
        let mut rates = self.rates.lock();
        rates.history.push_back((Instant::now(), counts));
        if rates.history.len() > RATE_SAMPLES {
            rates.history.pop_front();
        }
    }
}
