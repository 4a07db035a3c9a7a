//! What runs beside the listener: measuring memory and rates, closing clients that say nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tier::AllocatorStats;

use crate::state::client_memory::keep_within_limit;
use crate::state::clock::unix_ms;
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
    let (mut sampled, mut clients_due) = (None, Instant::now());
    loop {
        server.tier.measure();
        if sampled.is_none_or(|at: Instant| at.elapsed() >= SAMPLE_EVERY) {
            sampled = Some(Instant::now());
            server.samples.update_slow_ticks(&server.config, &server.clock);
            server.totals.note_used(AllocatorStats::read().allocated);
            sample(&server);
        }
        if clients_due.elapsed() >= CLIENTS_EVERY {
            clients_due = Instant::now();
            close_idle(&server);
            keep_within_limit(&server);
        }
        tokio::time::sleep(MEASURE_EVERY).await;
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
