//! The outcome of a load: a table for people, JSON for scripts, and whether it was flawless.

use crate::plan::{Checking, Plan};
use crate::stats::{KindStats, Stats};
use std::fmt;
use std::fmt::Write;

/// Percentiles of latency that are shown.
const PERCENTILES: [(&str, f64); 4] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// What a load measured.
#[derive(Debug, Clone)]
pub struct Report {
    stats: Stats,
    seconds: f64,
    misses_fail: bool,
}

impl Report {
    /// The report of a load that took so many seconds.
    pub fn new(plan: &Plan, stats: Stats, seconds: f64) -> Self {
        let misses_fail = matches!(plan.checking, Checking::Values { misses_fail: true, .. });
        Self { stats, seconds, misses_fail }
    }

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether no reply was an error or wrong, and no connection was lost.
    pub fn is_flawless(&self) -> bool {
        let stats = &self.stats;
        let failures = stats.errors + stats.wrong + stats.connections_lost;
        failures == 0 && !(self.misses_fail && stats.misses > 0)
    }

    /// The report as one JSON object; latencies in milliseconds.
    pub fn to_json(&self) -> String {
        let stats = &self.stats;
        let mut json = String::from("{");
        let _ = write!(json, "\"seconds\":{:.6},", self.seconds);
        for (name, kind) in self.kinds() {
            let _ = write!(json, "\"{name}\":{},", self.kind_to_json(&kind));
        }
        let counts = [
            ("misses", stats.misses),
            ("wrong", stats.wrong),
            ("errors", stats.errors),
            ("connections_lost", stats.connections_lost),
            ("unsent", stats.unsent),
            ("value_bytes_written", stats.value_bytes_written),
            ("value_bytes_read", stats.value_bytes_read),
        ];
        for (name, count) in counts {
            let _ = write!(json, "\"{name}\":{count},");
        }
        let _ = write!(json, "\"stall_ms_max\":{:.6},", ms(stats.stall_ns_max as f64));
        let texts: Vec<String> = stats.error_texts.iter().map(|text| quote(text)).collect();
        let _ = write!(json, "\"error_texts\":[{}],", texts.join(","));
        let replies: Vec<String> =
            stats.seconds.iter().map(|second| second.replies.to_string()).collect();
        let latencies: Vec<String> = stats
            .seconds
            .iter()
            .map(|second| format!("{:.3}", ms(second.latency_ns_max as f64)))
            .collect();
        let _ = write!(json, "\"replies_by_second\":[{}],", replies.join(","));
        let _ = write!(json, "\"latency_ms_max_by_second\":[{}],", latencies.join(","));
        let _ = writeln!(json, "\"flawless\":{}}}", self.is_flawless());
        json
    }

    fn kinds(&self) -> [(&'static str, KindStats); 3] {
        let mut all = self.stats.set.clone();
        all.add(&self.stats.get);
        [("set", self.stats.set.clone()), ("get", self.stats.get.clone()), ("all", all)]
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    fn kind_to_json(&self, kind: &KindStats) -> String {
        let mut json = format!(
            "{{\"count\":{},\"per_second\":{:.1},\"latency_ms\":{{\"min\":{:.6},\"mean\":{:.6}",
            kind.count(),
            self.per_second(kind.count()),
            ms(latency_ns_min(kind)),
            ms(kind.mean_ns()),
        );
        for (name, percentile) in PERCENTILES {
            let _ = write!(json, ",\"{name}\":{:.6}", ms(latency_ns_at(kind, percentile)));
        }
        let _ = write!(json, ",\"max\":{:.6}}}}}", ms(kind.latency_ns_max as f64));
        json
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        write!(f, "{:<5}{:>12}{:>12}{:>9}{:>9}", "", "count", "ops/s", "min ms", "avg")?;
        for (name, _) in PERCENTILES {
            write!(f, "{name:>9}")?;
        }
        writeln!(f, "{:>10}", "max")?;
        for (name, kind) in self.kinds() {
            write!(f, "{name:<5}{:>12}{:>12.0}", kind.count(), self.per_second(kind.count()))?;
            write!(f, "{:>9.3}{:>9.3}", ms(latency_ns_min(&kind)), ms(kind.mean_ns()))?;
            for (_, percentile) in PERCENTILES {
                write!(f, "{:>9.3}", ms(latency_ns_at(&kind, percentile)))?;
            }
            writeln!(f, "{:>10.3}", ms(kind.latency_ns_max as f64))?;
        }
        let mb = |bytes: u64| bytes as f64 / 1e6 / self.seconds.max(f64::MIN_POSITIVE);
        writeln!(
            f,
            "values: {:.1} MB/s written, {:.1} MB/s read; {} misses, {} wrong",
            mb(stats.value_bytes_written),
            mb(stats.value_bytes_read),
            stats.misses,
            stats.wrong
        )?;
        writeln!(
            f,
            "{:.3} s; longest stall of a client {:.3} ms; {} errors, {} connections lost, {} unsent",
            self.seconds,
            ms(stats.stall_ns_max as f64),
            stats.errors,
            stats.connections_lost,
            stats.unsent
        )?;
        for text in &stats.error_texts {
            writeln!(f, "  error: {text}")?;
        }
        Ok(())
    }
}

fn ms(ns: f64) -> f64 {
    ns / 1e6
}

fn latency_ns_min(kind: &KindStats) -> f64 {
    if kind.count() == 0 { 0.0 } else { kind.latency_ns_min as f64 }
}

/// A percentile; the histogram rounds up, but not past the exact maximum.
fn latency_ns_at(kind: &KindStats, percentile: f64) -> f64 {
    kind.latency_ns.value_at_percentile(percentile).min(kind.latency_ns_max) as f64
}

fn quote(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            character => json.push(character),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;

    fn report(stats: Stats, misses_fail: bool) -> Report {
        Report { stats, seconds: 2.0, misses_fail }
    }

    #[test]
    fn a_flaw_is_an_error_a_wrong_value_or_a_lost_connection() {
        let flaw = |change: fn(&mut Stats), misses_fail| {
            let mut stats = Stats::default();
            change(&mut stats);
            !report(stats, misses_fail).is_flawless()
        };
        assert!(!flaw(|_| {}, true));
        assert!(flaw(|stats| stats.errors = 1, false));
        assert!(flaw(|stats| stats.wrong = 1, false));
        assert!(flaw(|stats| stats.connections_lost = 1, false));
        assert!(!flaw(|stats| stats.misses = 1, false));
        assert!(flaw(|stats| stats.misses = 1, true));
    }

    #[test]
    fn json_has_the_figures() {
        let mut stats = Stats::default();
        stats.record(Kind::Get, 2_000_000, 10, 0);
        stats.note_error("ERR \"a\"\n");
        let json = report(stats, false).to_json();
        for part in [
            "\"get\":{\"count\":10,\"per_second\":5.0,",
            "\"max\":2.000000",
            "\"p99\":2.000000",
            "\"error_texts\":[\"ERR \\\"a\\\"\\u000a\"]",
            "\"replies_by_second\":[10]",
            "\"flawless\":true",
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
    }
}
