//! INFO commandstats, errorstats and latencystats: what is counted of each command.

use std::collections::BTreeMap;

use crate::state::registry::Entry;
use crate::state::server::Server;
use crate::state::stats::LATENCY_BUCKETS;

use super::text::{Text, ratio};

/// A command's counters, of all workers together.
struct Totals {
    calls: u64,
    nanos: u64,
    rejected: u64,
    failed: u64,
}

impl Totals {
    fn of(server: &Server, entry: &Entry) -> Totals {
        let index = entry.index;
        Totals {
            calls: server.sum(|stats| stats.commands[index].calls.get()),
            nanos: {
                let ticks = server.sum(|stats| stats.commands[index].ticks.get());
                server.clock.delta_as_nanos(0, ticks)
            },
            rejected: server.sum(|stats| stats.commands[index].rejected.get()),
            failed: server.sum(|stats| stats.commands[index].failed.get()),
        }
    }
}

/// INFO commandstats.
pub(super) fn command_stats(server: &Server, text: &mut Text) {
    for entry in &server.registry.entries {
        let Totals { calls, nanos, rejected, failed } = Totals::of(server, entry);
        if calls + rejected + failed == 0 {
            continue;
        }
        let usec_per_call = ratio(nanos, calls) / 1000.0;
        text.field(
            &format!("cmdstat_{}", entry.lower),
            format_args!(
                "calls={calls},usec={},usec_per_call={usec_per_call:.2},rejected_calls={rejected},\
                 failed_calls={failed}",
                nanos / 1000
            ),
        );
    }
}

/// INFO errorstats.
pub(super) fn error_stats(server: &Server, text: &mut Text) {
    let mut total = BTreeMap::new();
    for stats in &server.stats {
        stats.add_errors(&mut total);
    }
    for (code, count) in total {
        text.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// INFO latencystats.
pub(super) fn latency_stats(server: &Server, text: &mut Text) {
    if !server.config.latency_tracking.load() {
        return;
    }
    let percentiles = server.config.latency_tracking_info_percentiles.load();
    for entry in &server.registry.entries {
        let counts = latency_counts(server, entry);
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let values = percentiles.iter().map(|percentile| {
            let us = percentile_us(server, &counts, *percentile);
            format!("p{percentile}={us:.3}")
        });
        let values: Vec<String> = values.collect();
        text.field(&format!("latency_percentiles_usec_{}", entry.lower), values.join(","));
    }
}

/// How many calls of a command fell into each bucket (see `stats`).
pub(crate) fn latency_counts(server: &Server, entry: &Entry) -> [u64; LATENCY_BUCKETS] {
    let mut counts = [0; LATENCY_BUCKETS];
    for stats in &server.stats {
        let Some(latency) = &stats.commands[entry.index].latency else { continue };
        for (count, part) in counts.iter_mut().zip(latency.iter()) {
            *count += part.get();
        }
    }
    counts
}

/// A percentile of a command's latency, in microseconds: the duration is taken to be evenly spread
/// within its bucket, which is a power of two wide.
pub(crate) fn percentile_us(
    server: &Server,
    counts: &[u64; LATENCY_BUCKETS],
    percentile: f64,
) -> f64 {
    let ticks = percentile_ticks(counts, percentile);
    server.clock.delta_as_nanos(0, ticks) as f64 / 1000.0
}

fn percentile_ticks(counts: &[u64; LATENCY_BUCKETS], percentile: f64) -> u64 {
    let total: u64 = counts.iter().sum();
    let rank = (total as f64 * percentile / 100.0).ceil().clamp(1.0, total.max(1) as f64);
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate() {
        if (below + count) as f64 >= rank {
            let from = 1u64 << bucket;
            let part = (rank - below as f64) / *count as f64;
            return from + (from as f64 * part) as u64;
        }
        below += count;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_within_the_bucket_of_their_rank() {
        let mut counts = [0; LATENCY_BUCKETS];
        assert_eq!(percentile_ticks(&counts, 50.0), 0);
        counts[10] = 90;
        counts[20] = 10;
        for (percentile, bucket) in [(0.0, 10), (50.0, 10), (90.0, 10), (91.0, 20), (100.0, 20)] {
            let ticks = percentile_ticks(&counts, percentile);
            assert!((1 << bucket..=2 << bucket).contains(&ticks), "p{percentile}: {ticks}");
        }
        assert!(percentile_ticks(&counts, 10.0) < percentile_ticks(&counts, 80.0));
    }
}
