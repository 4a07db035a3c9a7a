//! What a load measured, from the JSON that `kelvin bench run` leaves.

use serde::Deserialize;

use crate::results::Latency;

/// The figures of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Length in seconds.
    pub seconds: f64,
    /// Requests a second.
    pub ops_per_second: f64,
    /// Of all requests.
    pub latency: Latency,
    /// Share of requests under 1 ms.
    pub share_under_1_ms: Option<f64>,
    /// CPU of the load, user and system, in seconds.
    pub cpu_seconds: f64,
    /// Error replies, wrong and missing values, lost connections.
    pub errors: u64,
    /// The first reason, if anything was wrong.
    pub reason: Option<String>,
}

#[derive(Deserialize)]
struct File {
    kelvin: Additions,
}

#[derive(Deserialize)]
struct Additions {
    errors: u64,
    wrong: u64,
    missing: u64,
    connections_lost: u64,
    cpu_seconds_user: f64,
    cpu_seconds_system: f64,
    error_texts: Vec<String>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    seconds: f64,
    count: u64,
    share_under_1_ms: Option<f64>,
    latency_ms: RunLatency,
}

#[derive(Deserialize)]
struct RunLatency {
    mean: f64,
    p50: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    max: f64,
}

impl Outcome {
    /// Reads the file's text. All keys of a data set are there, so a missing value is a wrong one.
    ///
    /// Errors: not such a file, or one without a run.
    pub fn parse(json: &[u8]) -> Result<Outcome, String> {
        let File { kelvin } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let run = kelvin.runs.first().ok_or("no run")?;
        let latency = Latency {
            average_ms: run.latency_ms.mean,
            p50_ms: run.latency_ms.p50,
            p99_ms: run.latency_ms.p99,
            p99_9_ms: run.latency_ms.p99_9,
            max_ms: run.latency_ms.max,
        };
        Ok(Outcome {
            seconds: run.seconds,
            ops_per_second: run.count as f64 / run.seconds.max(f64::MIN_POSITIVE),
            latency,
            share_under_1_ms: run.share_under_1_ms,
            cpu_seconds: kelvin.cpu_seconds_user + kelvin.cpu_seconds_system,
            errors: kelvin.errors + kelvin.wrong + kelvin.missing + kelvin.connections_lost,
            reason: kelvin.reason(),
        })
    }
}

impl Additions {
    fn reason(&self) -> Option<String> {
        let counts = [
            (self.errors, "error replies"),
            (self.wrong, "wrong values"),
            (self.missing, "missing values"),
            (self.connections_lost, "lost connections"),
        ];
        let (count, what) = counts.into_iter().find(|(count, _)| *count > 0)?;
        let text = self.error_texts.first().map_or(String::new(), |text| format!(": {text}"));
        Some(format!("{count} {what}{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(counts: &str, runs: &str) -> String {
        format!(
            r#"{{"ALL STATS": {{}}, "kelvin": {{{counts}, "error_texts": [], "cpu_seconds_user": 0.5,
                "cpu_seconds_system": 1.0, "runs": {runs}}}}}"#
        )
    }

    const RUN: &str = r#"[{"seconds": 2.0, "count": 500, "share_under_1_ms": 0.75,
        "latency_ms": {"min": 0.1, "mean": 0.5, "p50": 0.4, "p90": 0.6, "p99": 1.5, "p99.9": 2.5,
        "p99.99": 3.0, "max": 9.0}, "cut_short": null}]"#;
    const RIGHT: &str = r#""errors": 0, "wrong": 0, "missing": 0, "connections_lost": 0"#;

    #[test]
    fn the_figures_are_read() {
        let outcome = Outcome::parse(json(RIGHT, RUN).as_bytes()).expect("an outcome");
        let latency =
            Latency { average_ms: 0.5, p50_ms: 0.4, p99_ms: 1.5, p99_9_ms: 2.5, max_ms: 9.0 };
        let expected = Outcome {
            seconds: 2.0,
            ops_per_second: 250.0,
            latency,
            share_under_1_ms: Some(0.75),
            cpu_seconds: 1.5,
            errors: 0,
            reason: None,
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn what_is_wrong_has_its_reason() {
        let wrong = r#""errors": 0, "wrong": 2, "missing": 3, "connections_lost": 0"#;
        let outcome = Outcome::parse(json(wrong, RUN).as_bytes()).expect("an outcome");
        assert_eq!((outcome.errors, outcome.reason.as_deref()), (5, Some("2 wrong values")));
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["", "{}", "[]", &json(RIGHT, "[]")] {
            assert!(Outcome::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
