//! The published figures that a run is held against, by the id of the test that repeats them.
//!
//! Invariant: a figure that its document does not give is `None`; nothing is read off a picture.

/// What a document gives for one test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// Id of the test, as in [`crate::results::Test::id`].
    pub test: &'static str,
    /// Brief it is from: `A` to `D`.
    pub brief: &'static str,
    /// Where it stands there.
    pub place: &'static str,
    /// Throughput.
    pub ops_per_second: f64,
    /// Mean latency in milliseconds.
    pub average_ms: Option<f64>,
    /// 99th percentile of the latency in milliseconds.
    pub p99_ms: Option<f64>,
    /// Share of requests under 1 ms.
    pub share_under_1_ms: Option<f64>,
}

const fn figure(
    (brief, place): (&'static str, &'static str),
    test: &'static str,
    ops_per_second: f64,
    average_ms: f64,
) -> Published {
    Published {
        test,
        brief,
        place,
        ops_per_second,
        average_ms: Some(average_ms),
        p99_ms: None,
        share_under_1_ms: None,
    }
}

const TABLE_1: (&str, &str) = ("A", "Table 1");
const BRIEF_C: (&str, &str) = ("C", "Table");

/// All that is published as a figure, in the order of the briefs.
pub const FIGURES: &[Published] = &[
    figure(TABLE_1, "get-max", 1_500_000.0, 0.26),
    figure(TABLE_1, "get-min", 842_000.0, 0.54),
    figure(TABLE_1, "set-max", 1_170_000.0, 0.32),
    figure(TABLE_1, "set-min", 359_000.0, 0.88),
    figure(TABLE_1, "mix-max", 1_630_000.0, 0.25),
    figure(TABLE_1, "mix-min", 706_000.0, 0.58),
    Published {
        share_under_1_ms: Some(0.9999),
        ..figure(("B", "Result"), "brief-b", 3_250_000.0, 0.92)
    },
    Published { p99_ms: Some(0.94), ..figure(BRIEF_C, "brief-c-ram", 1_167_032.0, 0.30) },
    Published { p99_ms: Some(0.96), ..figure(BRIEF_C, "brief-c-1x", 1_135_246.0, 0.31) },
    Published { p99_ms: Some(0.99), ..figure(BRIEF_C, "brief-c-2x", 1_071_621.0, 0.33) },
    Published { average_ms: None, ..figure(("D", "Result"), "brief-d", 115_000.0, 0.0) },
];

/// Values in RAM after the fill of brief A.
pub const FILL_VALUES_IN_RAM_SHARE: f64 = 0.0656;
/// RAM in use after it, as a share of the limit.
pub const FILL_RAM_USED_SHARE: f64 = 0.999;
/// RAM of the index after it, as a share of the limit: "over" this.
pub const FILL_INDEX_SHARE: f64 = 0.6;
/// Limit of the flash array of brief A, in bytes a second of reads.
pub const ARRAY_READ_BYTES_PER_SECOND: f64 = 6.0 * (1u64 << 30) as f64;

/// The published figures for a test.
pub fn of(test: &str) -> Option<&'static Published> {
    FIGURES.iter().find(|figure| figure.test == test)
}
