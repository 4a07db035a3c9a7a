//! The result as JSON, in memtier's layout (format version 2), and all that is ours under one key,
//! `kelvin`. Latencies are in milliseconds.

use crate::arguments::Range;
use crate::hdr;
use crate::options::Options;
use crate::report::{Part, Report, Run, ms};
use crate::report_text::distribution;
use crate::stats::{Row, Second};
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The share of requests at or under this latency is told.
const SHORT_NS: u64 = 1_000_000;

impl Report {
    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("configuration".to_owned(), configuration(&self.options));
        let (limit, amount) = match self.requests {
            Some(requests) => ("Requests per client", json!(requests)),
            None => ("Seconds", json!(self.options.test_time)),
        };
        json.insert(
            "run information".to_owned(),
            json!({
                "Threads": self.options.threads,
                "Connections per thread": self.options.clients,
                limit: amount,
                "Format version": 2,
            }),
        );
        for part in self.parts() {
            json.insert(part.title.clone(), self.part_to_json(&part));
        }
        json.insert("kelvin".to_owned(), self.additions());
        Value::Object(json)
    }

    fn part_to_json(&self, part: &Part<'_>) -> Value {
        let mut json = Map::new();
        let start_ms = unix_ms(part.started);
        let duration_ms = (part.seconds * 1000.0).round() as u64;
        json.insert(
            "Runtime".to_owned(),
            json!({
                "Start time": start_ms,
                "Finish time": start_ms + duration_ms,
                "Total duration": duration_ms,
                "Time unit": "MILLISECONDS",
                "Interrupted": part.cut_short.to_string(),
            }),
        );
        for (label, row) in self.labels.iter().zip(&part.stats.rows) {
            json.insert(label.clone(), self.row_to_json(part, row));
        }
        let mut totals = self.row_to_json(part, &part.stats.totals());
        let lost = part.stats.connections_lost;
        totals["Connection Errors"] = json!(lost);
        totals["Connection Errors/sec"] = rounded(part.per_second(lost), 2);
        json.insert("Totals".to_owned(), totals);
        if !self.options.hide_histogram {
            for (index, row) in part.stats.rows.iter().enumerate() {
                let steps: Vec<Value> = distribution(row)
                    .map(|(latency_ms, percent)| {
                        json!({"<=msec": rounded(latency_ms, 3), "percent": rounded(percent, 3)})
                    })
                    .collect();
                json.insert(self.kind(index), Value::Array(steps));
            }
        }
        Value::Object(json)
    }

    fn row_to_json(&self, part: &Part<'_>, row: &Row) -> Value {
        let rate = |count| rounded(part.per_second(count), 2);
        let kib_rate = |bytes: u64| rounded(part.per_second(bytes) / 1024.0, 2);
        let mut json = json!({
            "Count": row.count(),
            "Ops/sec": rate(row.count()),
            "Hits/sec": rate(row.hits),
            "Misses/sec": rate(row.misses),
            "Connection Errors/sec": 0.0,
            "Connection Errors": 0,
            "Latency": latency(row.mean_ns()),
            "Average Latency": latency(row.mean_ns()),
            "Accumulated Latency": (row.latency_ns_sum / 1_000_000) as u64,
            "Min Latency": latency(row.min_ns() as f64),
            "Max Latency": latency(row.latency_ns_max as f64),
            "KB/sec": kib_rate(row.sent_bytes + row.received_bytes),
            "KB/sec RX/TX": kib_rate(row.sent_bytes + row.received_bytes),
            "KB/sec RX": kib_rate(row.received_bytes),
            "KB/sec TX": kib_rate(row.sent_bytes),
            "Time-Serie": time_series(row),
            "Percentile Latencies": self.percentiles(row),
        });
        if self.options.cluster_mode {
            json["MOVED/sec"] = rate(row.moved);
            json["ASK/sec"] = rate(row.asked);
        }
        json
    }

    fn percentiles(&self, row: &Row) -> Value {
        let mut json = Map::new();
        for percentile in &self.options.print_percentiles.0 {
            let value_ns = row.percentile_ns(*percentile);
            json.insert(format!("p{percentile:.2}"), latency(value_ns as f64));
        }
        if let Some(text) = hdr::compressed(row) {
            json.insert("Histogram log format".to_owned(), json!({"Compressed Histogram": text}));
        }
        Value::Object(json)
    }

    /// What memtier does not tell, over all runs.
    fn additions(&self) -> Value {
        let stats = self.stats();
        let cpu = self.cpu();
        json!({
            "seconds": self.seconds(),
            "errors": stats.errors,
            "wrong": stats.wrong,
            "missing": stats.misses(),
            "connections_lost": stats.connections_lost,
            "unsent": stats.unsent,
            "error_texts": stats.error_texts,
            "stall_ms_max": ms(stats.stall_ns_max as f64),
            "value_bytes_written": stats.value_bytes_written,
            "value_bytes_read": stats.value_bytes_read,
            "cpu_seconds_user": cpu.user,
            "cpu_seconds_system": cpu.system,
            "flawless": self.is_flawless(),
            "cut_short": self.cut_short(),
            "runs": self.runs.iter().map(run_to_json).collect::<Vec<Value>>(),
        })
    }
}

/// What is ours of one run.
fn run_to_json(run: &Run) -> Value {
    let totals = run.stats.totals();
    let seconds =
        |value: fn(&Second) -> Value| -> Vec<Value> { totals.seconds.iter().map(value).collect() };
    json!({
        "seconds": run.seconds,
        "count": totals.count(),
        "share_under_1_ms": share_under(&totals, SHORT_NS),
        "latency_ms": exact_latencies(&totals),
        "replies_by_second": seconds(|second| json!(second.replies)),
        "latency_ms_max_by_second": seconds(|second| latency(second.latency_ns_max as f64)),
        "cut_short": run.cut_short,
    })
}

/// Latencies of all requests in milliseconds, to the nanosecond.
fn exact_latencies(row: &Row) -> Value {
    let at = |percentile| ms(row.percentile_ns(percentile) as f64);
    json!({
        "min": ms(row.min_ns() as f64),
        "mean": ms(row.mean_ns()),
        "p50": at(50.0),
        "p90": at(90.0),
        "p99": at(99.0),
        "p99.9": at(99.9),
        "p99.99": at(99.99),
        "max": ms(row.latency_ns_max as f64),
    })
}

/// The share of replies that took no longer than `latency_ns`; none without replies.
fn share_under(row: &Row, latency_ns: u64) -> Option<f64> {
    (row.count() > 0).then(|| row.latency_ns.percentile_below(latency_ns) / 100.0)
}

fn time_series(row: &Row) -> Value {
    let second = |(index, second): (usize, &Second)| {
        let mut json = json!({
            "Bytes RX": second.received_bytes,
            "Bytes TX": second.sent_bytes,
            "Count": second.replies,
        });
        if second.replies > 0 {
            let mean_ns = second.latency_ns_sum as f64 / second.replies as f64;
            json["Average Latency"] = latency(mean_ns);
            json["Accumulated Latency"] = json!(second.latency_ns_sum / 1_000_000);
            json["Min Latency"] = latency(second.latency_ns_min as f64);
            json["Max Latency"] = latency(second.latency_ns_max as f64);
        }
        (index.to_string(), json)
    };
    Value::Object(row.seconds.iter().enumerate().map(second).collect())
}

/// The options under memtier's names.
fn configuration(options: &Options) -> Value {
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    };
    let range = |range: Option<Range>| {
        let range = range.unwrap_or(Range::only(0));
        format!("{}:{}", range.min, range.max)
    };
    let ratio = |ratio: crate::arguments::Ratio| format!("{}:{}", ratio.sets, ratio.others);
    json!({
        "server": options.server,
        "port": options.port,
        "unix socket": path(&options.unix_socket),
        "protocol": format!("{:?}", options.protocol).to_lowercase(),
        "out_file": path(&options.out_file),
        "tls": options.tls.to_string(),
        "cert": path(&options.cert),
        "key": path(&options.key),
        "cacert": path(&options.cacert),
        "tls_skip_verify": options.tls_skip_verify.to_string(),
        "sni": options.sni,
        "run_count": options.run_count,
        "rate_limit": options.rate_limiting,
        "clients": options.clients,
        "threads": options.threads,
        "test_time": options.test_time,
        "ratio": ratio(options.ratio),
        "pipeline": options.pipeline,
        "data_size": options.data_size,
        "random_data": "true",
        "data_size_range": range(options.data_size_range),
        "data_size_list": options.data_size_list.as_ref().map(|list| &list.0),
        "expiry_range": range(options.expiry_range),
        "key_prefix": options.key_prefix,
        "key_minimum": options.key_minimum,
        "key_maximum": options.key_maximum,
        "key_pattern": pattern_text(options),
        "key_stddev": options.key_stddev,
        "key_median": options.key_median,
        "key_zipf_exp": options.key_zipf_exp,
        "reconnect_interval": options.reconnect_interval,
        "multi_key_get": options.multi_key_get,
        "select-db": options.select_db,
        "wait-ratio": options.wait_ratio.map(ratio),
        "num-slaves": range(Some(options.num_slaves)),
        "wait-timeout": range(Some(options.wait_timeout)),
        "cluster_mode": options.cluster_mode.to_string(),
        "commands": options.commands.iter().map(|command| &command.text).collect::<Vec<_>>(),
        "kelvin_rate": options.rate,
        "kelvin_seed": options.seed,
    })
}

fn pattern_text(options: &Options) -> String {
    format!("{}:{}", options.key_pattern.set.letter(), options.key_pattern.get.letter())
}

fn latency(ns: f64) -> Value {
    rounded(ms(ns), 3)
}

/// A number with so many digits behind the point.
fn rounded(number: f64, digits: i32) -> Value {
    let scale = 10_f64.powi(digits);
    json!((number * scale).round() / scale)
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use crate::stats::{Replies, Stats};

    #[test]
    fn json_has_memtiers_figures_and_ours() {
        let mut stats = Stats::new(3);
        let replies = Replies { count: 10, latency_ns: 2_000_000, received_bytes: 2048 };
        stats.rows[1].received(replies, 0);
        stats.rows[1].hits = 10;
        stats.note_error("ERR \"a\"\n");
        let json = report("--test-time 2", stats).to_json();
        let gets = &json["ALL STATS"]["Gets"];
        assert_eq!(gets["Count"], 10);
        assert_eq!(gets["Ops/sec"], 5.0);
        assert_eq!(gets["Hits/sec"], 5.0);
        assert_eq!(gets["KB/sec RX"], 1.0);
        assert_eq!(gets["Percentile Latencies"]["p99.90"], 2.0);
        assert_eq!(gets["Time-Serie"]["0"]["Count"], 10);
        assert_eq!(json["ALL STATS"]["Totals"]["Max Latency"], 2.0);
        assert_eq!(json["ALL STATS"]["Runtime"]["Total duration"], 2000);
        assert_eq!(json["run information"]["Seconds"], 2.0);
        assert_eq!(json["kelvin"]["error_texts"][0], "ERR \"a\"\n");
        assert_eq!(json["kelvin"]["runs"][0]["replies_by_second"], json!([10]));
        assert_eq!(json["kelvin"]["runs"][0]["share_under_1_ms"], 0.0);
        assert_eq!(json["kelvin"]["cpu_seconds_user"], 0.5);
        assert_eq!(json["kelvin"]["flawless"], true);
    }
}
