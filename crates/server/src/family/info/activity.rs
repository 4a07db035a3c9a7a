//! INFO clients and stats: who is connected, and what has been done.

use std::sync::atomic::Ordering;

use crate::state::pubsub::Topic;
use crate::state::server::Server;

use super::text::Text;

/// Bytes a second in a kilobit a second, as Redis counts them: kibibytes.
const RATE_UNIT: f64 = 1024.0;

/// INFO clients.
pub(super) fn clients(server: &Server, text: &mut Text) {
    let clients = server.clients.all();
    let most = |bytes: fn(&crate::state::clients::Client) -> u64| {
        clients.iter().map(|client| bytes(client)).max().unwrap_or(0)
    };
    let blocked = clients.iter().filter(|client| client.is_blocked.load(Ordering::Relaxed));
    text.field("connected_clients", clients.len());
    text.field("cluster_connections", 0);
    text.field("maxclients", server.config.maxclients.load());
    text.field(
        "client_recent_max_input_buffer",
        most(|client| client.input_capacity.load(Ordering::Relaxed)),
    );
    text.field(
        "client_recent_max_output_buffer",
        most(|client| client.output_capacity.load(Ordering::Relaxed) + client.pushes.bytes()),
    );
    text.field("blocked_clients", blocked.count());
    text.field("tracking_clients", 0);
    let with_deadline = server.waiters.with_deadline.load(Ordering::Relaxed);
    text.field("clients_in_timeout_table", with_deadline);
}

/// INFO stats.
pub(super) fn stats(server: &Server, text: &mut Text) {
    let counters = &server.tier.counters;
    traffic(server, text);
    keys(server, text);
    text.field("pubsub_channels", server.pubsub.len(Topic::Channel));
    text.field("pubsub_patterns", server.pubsub.len(Topic::Pattern));
    text.field("pubsubshard_channels", server.pubsub.len(Topic::ShardChannel));
    text.fields(&["latest_fork_usec", "total_forks", "migrate_cached_sockets"], 0);
    text.field("slave_expires_tracked_keys", 0);
    text.field("active_defrag_hits", counters.defrag_moved.load(Ordering::Relaxed));
    text.field("active_defrag_misses", counters.defrag_left.load(Ordering::Relaxed));
    text.fields(&["active_defrag_key_hits", "active_defrag_key_misses"], 0);
    text.fields(&["total_active_defrag_time", "current_active_defrag_time"], 0);
    text.fields(&["tracking_total_keys", "tracking_total_items", "tracking_total_prefixes"], 0);
    text.field("unexpected_error_replies", 0);
    text.field("total_error_replies", server.sum(|stats| stats.error_replies.get()));
    text.field("dump_payload_sanitizations", 0);
    text.field("total_reads_processed", server.sum(|stats| stats.reads.get()));
    text.field("total_writes_processed", server.sum(|stats| stats.writes.get()));
    text.fields(&["io_threaded_reads_processed", "io_threaded_writes_processed"], 0);
    text.fields(&["reply_buffer_shrinks", "reply_buffer_expands"], 0);
}

fn traffic(server: &Server, text: &mut Text) {
    let rates = server.samples.rates();
    let calls = server.sum(|stats| stats.commands.iter().map(|one| one.calls.get()).sum());
    let rate = |bytes: u64| format!("{:.2}", bytes as f64 / RATE_UNIT);
    text.field("total_connections_received", server.sum(|stats| stats.connections.get()));
    text.field("total_commands_processed", calls);
    text.field("instantaneous_ops_per_sec", rates.commands);
    text.field("total_net_input_bytes", server.sum(|stats| stats.net_input_bytes.get()));
    text.field("total_net_output_bytes", server.sum(|stats| stats.net_output_bytes.get()));
    text.fields(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"], 0);
    text.field("instantaneous_input_kbps", rate(rates.net_input_bytes));
    text.field("instantaneous_output_kbps", rate(rates.net_output_bytes));
    text.fields(&["instantaneous_input_repl_kbps", "instantaneous_output_repl_kbps"], "0.00");
    text.field("rejected_connections", server.rejected_connections.load(Ordering::Relaxed));
    text.fields(&["sync_full", "sync_partial_ok", "sync_partial_err"], 0);
}

fn keys(server: &Server, text: &mut Text) {
    let counters = &server.tier.counters;
    let expire_us = server.sum(|stats| stats.expire_us.get());
    text.field("expired_keys", counters.expired.load(Ordering::Relaxed));
    text.field("expired_stale_perc", "0.00");
    text.field("expired_time_cap_reached_count", server.sum(|stats| stats.expire_cut_short.get()));
    text.field("expire_cycle_cpu_milliseconds", expire_us / 1000);
    text.field("evicted_keys", counters.evicted.load(Ordering::Relaxed));
    text.field("evicted_clients", server.totals.evicted_clients.load(Ordering::Relaxed));
    text.fields(&["total_eviction_exceeded_time", "current_eviction_exceeded_time"], 0);
    text.field("keyspace_hits", server.sum(|stats| stats.keyspace_hits.get()));
    text.field("keyspace_misses", server.sum(|stats| stats.keyspace_misses.get()));
}
