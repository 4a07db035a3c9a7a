//! What runs beside the listener: measuring memory and rates, closing clients that say nothing, or do not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tier::AllocatorStats;

use crate::state::client_memory::keep_within_limit;
use crate::state::output_limit::close_slow;
use crate::state::samples::RateCounts;
use crate::state::server::Server;

/// Between two measurements of memory.
const MEASURE_EVERY: Duration = Duration::from_millis(20);
/// Between two measurements of rates.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at idle clients.
const CLIENTS_EVERY: Duration = Duration::from_millis(500);

/// Measures memory and rates; runs beside the listener.
pub(crate) async fn measure(server: Arc<Server>) {
    let mut measurement = Measurement::new(server);
    loop {
        measurement.round();
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}

/// What is measured, and when next.
pub(crate) struct Measurement {
    server: Arc<Server>,
    /// By the tier's clock, as the other.
    sample_due: Duration,
    clients_due: Duration,
}

impl Measurement {
    pub(crate) fn new(server: Arc<Server>) -> Measurement {
        let now = server.tier.clock().now();
        Measurement { sample_due: now, clients_due: now + CLIENTS_EVERY, server }
    }

    /// One round.
    pub(crate) fn round(&mut self) {
        let server = &self.server;
        server.tier.measure();
        let now = server.tier.clock().now();
        if now >= self.sample_due {
            self.sample_due = now + SAMPLE_EVERY;
            server.samples.update_slow_ticks(&server.config, &server.clock);
            server.totals.note_used(AllocatorStats::read().allocated);
            sample(server);
        }
        if now >= self.clients_due {
            self.clients_due = now + CLIENTS_EVERY;
            close_idle(server);
            close_slow(server);
            keep_within_limit(server);
        }
    }
}

fn sample(server: &Server) {
    let flash = server.tier.engine.as_ref().map(|engine| engine.stats()).unwrap_or_default();
    server.samples.add(RateCounts {
        commands: server.sum(|stats| stats.commands.iter().map(|one| one.calls.get()).sum()),
        net_input_bytes: server.sum(|stats| stats.net_input_bytes.get()),
        net_output_bytes: server.sum(|stats| stats.net_output_bytes.get()),
        flash_reads: flash.device_reads,
        flash_writes: flash.device_writes,
        flash_read_bytes: flash.device_read_bytes,
        flash_write_bytes: flash.device_write_bytes,
    });
}

/// Closes clients that said nothing for `timeout` seconds.
fn close_idle(server: &Server) {
    let timeout = server.config.timeout.load() as u64;
    if timeout == 0 {
        return;
    }
    let now_ms = server.tier.clock().unix_ms();
    for client in server.clients.all() {
        let seen_ms = client.last_seen_ms.load(Ordering::Relaxed).max(client.created_ms);
        let exempt = client.is_monitor.load(Ordering::Relaxed)
            || client.is_blocked.load(Ordering::Relaxed)
            || client.is_subscriber();
        if !exempt && now_ms.saturating_sub(seen_ms) > timeout * 1000 {
            client.kill();
        }
    }
}
