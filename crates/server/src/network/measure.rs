//! What runs beside the listener: measuring memory and rates, closing clients that say nothing, or do not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tier::AllocatorStats;

use crate::config::AppendFsync;
use crate::state::client_eviction::keep_within_limit;
use crate::state::client_memory::connections_bytes;
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
        let own_bytes = connections_bytes(server) + server.journaling.memory_bytes();
        server.tier.budget.set_connections(own_bytes as i64);
        server.tier.measure();
        let is_every_second = server.config.appendfsync.load() == AppendFsync::Everysec;
        server.journaling.look(is_every_second, server.config.maxmemory.load());
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
    let flash = server.tier.engine().map(|engine| engine.stats()).unwrap_or_default();
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

/// Closes clients that said nothing for `timeout` seconds, in which nothing of a reply passed to them either
/// and no request of theirs waited for the server.
fn close_idle(server: &Server) {
    let timeout = server.config.timeout.load() as u64;
    if timeout == 0 {
        return;
    }
    let now_ms = server.tier.clock().unix_ms();
    for client in server.clients.all() {
        let seen_ms = client.last_seen_ms.load(Ordering::Relaxed).max(client.created_ms);
        let seen_ms = seen_ms.max(client.moved_ms.load(Ordering::Relaxed));
        let exempt = client.is_monitor.load(Ordering::Relaxed)
            || client.is_served.load(Ordering::Relaxed)
            || client.is_blocked.load(Ordering::Relaxed)
            || client.is_subscriber();
        if !exempt && now_ms.saturating_sub(seen_ms) > timeout * 1000 {
            client.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use tier::{Budget, Environment, Tier};

    use super::*;
    use crate::config::Config;
    use crate::family::REGISTRY;
    use crate::state::clients::Client;

    #[test]
    fn only_clients_that_wait_for_nothing_are_idle() {
        let config = Config::default();
        config.load_arguments(&[b"--timeout".to_vec(), b"5".to_vec()]).expect("an option");
        let budget = Budget::new(0).expect("resident memory can be read");
        let environment = Environment::of_machine(None);
        let tier = Tier::new(Arc::default(), None, environment, budget, 1);
        let server = Server::new(config, &REGISTRY, Arc::new(tier));
        let now_ms = server.tier.clock().unix_ms();
        let client = |moved_ms: u64, is_served: bool| {
            let client = Client { id: server.clients.next_id(), ..Client::default() };
            client.last_seen_ms.store(now_ms - 60_000, Ordering::Relaxed);
            client.moved_ms.store(moved_ms, Ordering::Relaxed);
            client.is_served.store(is_served, Ordering::Relaxed);
            let client = Arc::new(client);
            server.clients.add(client.clone());
            client
        };
        let silent = client(0, false);
        let stuck = client(now_ms - 30_000, false);
        let reads_its_reply = client(now_ms - 1_000, false);
        let waits_for_the_server = client(0, true);
        close_idle(&server);
        assert!(silent.is_killed());
        assert!(stuck.is_killed());
        assert!(!reads_its_reply.is_killed());
        assert!(!waits_for_the_server.is_killed());
    }
}
