//! What runs by itself: measuring memory, upkeep of the tier, expiry, idle clients.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyspace::{SLOT_COUNT, Tally};
use parking_lot::Mutex;
use tier::AllocatorStats;

use crate::pulse::Pulse;
use crate::server::{Server, unix_ms};
use crate::worker::Worker;

/// Between two measurements of memory.
const MEASURE_EVERY: Duration = Duration::from_millis(20);
/// Between two measurements of rates.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Between two rounds of upkeep on a worker that has nothing urgent.
pub(crate) const UPKEEP_EVERY: Duration = Duration::from_millis(5);
/// Between two looks at idle clients.
const CLIENTS_EVERY: Duration = Duration::from_millis(500);
/// One round of expiry takes at most this long, every `UPKEEP_EVERY`: 5 % of a core.
const EXPIRE_SLICE: Duration = Duration::from_micros(250);
/// Slots that one round of expiry looks at: all of them within 80 ms.
const EXPIRE_SLOTS: usize = SLOT_COUNT / 16;
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
    pub(crate) fn update_slow_ticks(&self, server: &Server) {
        let slower_than = server.config.slowlog_log_slower_than.load();
        let threshold_ms = server.config.latency_monitor_threshold.load();
        let mut nanos = u64::MAX;
        if slower_than >= 0 {
            nanos = slower_than as u64 * 1000;
        }
        if threshold_ms > 0 {
            nanos = nanos.min(threshold_ms as u64 * 1_000_000);
        }
        // Ticks are found by their length in nanoseconds, measured over a long stretch.
        const STRETCH: u64 = 1 << 32;
        let stretch_nanos = server.clock.delta_as_nanos(0, STRETCH).max(1);
        let ticks = u128::from(nanos) * u128::from(STRETCH) / u128::from(stretch_nanos);
        self.slow_ticks.store(ticks.min(u128::from(u64::MAX)) as u64, Ordering::Relaxed);
    }
}

/// Measures memory and rates; runs beside the listener.
pub(crate) async fn measure(server: Arc<Server>) {
    let (mut sampled, mut clients_due) = (None, Instant::now());
    loop {
        server.tier.measure();
        if sampled.is_none_or(|at: Instant| at.elapsed() >= SAMPLE_EVERY) {
            sampled = Some(Instant::now());
            server.samples.update_slow_ticks(&server);
            server.totals.note_used(AllocatorStats::read().allocated);
            sample(&server);
        }
        if clients_due.elapsed() >= CLIENTS_EVERY {
            clients_due = Instant::now();
            close_idle(&server);
            crate::client_memory::keep_within_limit(&server);
        }
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}

fn sample(server: &Server) {
    let flash = server.tier.engine.as_ref().map(|engine| engine.stats()).unwrap_or_default();
    let counts = RateCounts {
        commands: server.sum(|stats| stats.commands.iter().map(|one| one.calls.get()).sum()),
        net_input_bytes: server.sum(|stats| stats.net_input_bytes.get()),
        net_output_bytes: server.sum(|stats| stats.net_output_bytes.get()),
        flash_reads: flash.device_reads,
        flash_writes: flash.device_writes,
        flash_read_bytes: flash.device_read_bytes,
        flash_write_bytes: flash.device_write_bytes,
    };
    let mut rates = server.samples.rates.lock();
    rates.history.push_back((Instant::now(), counts));
    if rates.history.len() > RATE_SAMPLES {
        rates.history.pop_front();
    }
}

/// Closes clients that said nothing for `timeout` seconds.
fn close_idle(server: &Server) {
    let timeout = server.config.timeout.load() as u64;
    if timeout == 0 {
        return;
    }
    let now_ms = unix_ms();
    for client in server.clients.all() {
        let seen_ms = client.last_seen_ms.load(Ordering::Relaxed).max(client.created_ms);
        let exempt =
            client.is_monitor.load(Ordering::Relaxed) || client.is_blocked.load(Ordering::Relaxed);
        if !exempt && now_ms.saturating_sub(seen_ms) > timeout * 1000 {
            client.kill();
        }
    }
}

/// A worker's share of upkeep: tier and expiry.
pub(crate) async fn upkeep(worker: Rc<Worker>, pulse: Pulse) {
    let mut slot = worker.index;
    loop {
        let more = worker.tier.upkeep();
        expire(&worker, &mut slot);
        worker.beat.notify_waiters();
        if more {
            tokio::task::yield_now().await;
        } else if let Err(error) = pulse.beat().await {
            tracing::error!(%error, "lost the timer; stopping");
            return worker.server.shut_down();
        }
    }
}

/// Removes keys whose time has come from this worker's slots, for a bounded time.
fn expire(worker: &Worker, slot: &mut usize) {
    let server = &worker.server;
    let now_ms = unix_ms();
    let is_on = server.active_expire.load(Ordering::Relaxed) && !server.pause.is_on(now_ms);
    if !is_on || !server.tier.counters.has_volatile() {
        return;
    }
    let start = Instant::now();
    let mut tally = Tally::default();
    for _ in 0..EXPIRE_SLOTS {
        if let Some(mut state) = server.tier.keyspace.try_lock(*slot as u16)
            && state.may_have_expired(now_ms)
        {
            state.expire(now_ms, &mut tally);
            drop(state);
            server.tier.publish(&mut tally);
            if start.elapsed() > EXPIRE_SLICE {
                worker.stats.expire_cut_short.add(1);
                break;
            }
        }
        *slot += server.tier.workers;
        if *slot >= SLOT_COUNT {
            *slot = worker.index;
        }
    }
    worker.stats.expire_us.add(start.elapsed().as_micros() as u64);
}
