//! The published figures that a run is held against, by the id of the test that repeats them.
//!
//! Invariant: a figure that its document does not give is `None`; nothing is read off a picture.

/// What a document gives for one test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// Id of the test, as in [`crate::results::Test::id`].
    pub test: &'static str,
    /// The publication: its title and year.
    pub publication: &'static str,
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
    (publication, place): (&'static str, &'static str),
    test: &'static str,
    ops_per_second: f64,
    average_ms: f64,
) -> Published {
    Published {
        test,
        publication,
        place,
        ops_per_second,
        average_ms: Some(average_ms),
        p99_ms: None,
        share_under_1_ms: None,
    }
}

/// 512-byte values on a cluster with 1 TB of RAM, by Supermicro and ScaleFlux.
pub const FATTWIN: &str = "Redis on Flash on X12 FatTwin with CSD 2000 Drives (2021)";
/// 100-byte values, a tenth of them in RAM, by Intel and Redis Labs.
pub const P3700: &str = "Redis on Flash with Intel P3700 NVMe SSDs (undated)";
/// 100-byte values in DRAM, and 2.1 times as many with persistent memory as the second tier.
pub const OPTANE: &str =
    "Redis Enterprise Operator on OpenShift with Optane Persistent Memory (undated)";
/// 500-byte values, half reads and half writes, by Redis Labs.
pub const HOW_FAST: &str = "How Fast Is Flash? (2017)";

const TABLE_1: (&str, &str) = (FATTWIN, "Table 1");
const GROWTH: (&str, &str) = (OPTANE, "Table");

/// All that is published as a figure, in the order of the publications.
pub const FIGURES: &[Published] = &[
    figure(TABLE_1, "get-max", 1_500_000.0, 0.26),
    figure(TABLE_1, "get-min", 842_000.0, 0.54),
    figure(TABLE_1, "set-max", 1_170_000.0, 0.32),
    figure(TABLE_1, "set-min", 359_000.0, 0.88),
    figure(TABLE_1, "mix-max", 1_630_000.0, 0.25),
    figure(TABLE_1, "mix-min", 706_000.0, 0.58),
    Published {
        share_under_1_ms: Some(0.9999),
        ..figure((P3700, "Result"), "small-uniform", 3_250_000.0, 0.92)
    },
    Published { p99_ms: Some(0.94), ..figure(GROWTH, "growth-ram", 1_167_032.0, 0.30) },
    Published { p99_ms: Some(0.96), ..figure(GROWTH, "growth-1x", 1_135_246.0, 0.31) },
    Published { p99_ms: Some(0.99), ..figure(GROWTH, "growth-2x", 1_071_621.0, 0.33) },
    Published { average_ms: None, ..figure((HOW_FAST, "Result"), "centre-mix", 115_000.0, 0.0) },
];

/// Values in RAM after the fill of [`FATTWIN`].
pub const FILL_VALUES_IN_RAM_SHARE: f64 = 0.0656;
/// RAM in use after it, as a share of the limit.
pub const FILL_RAM_USED_SHARE: f64 = 0.999;
/// RAM of the index after it, as a share of the limit: "over" this.
pub const FILL_INDEX_SHARE: f64 = 0.6;
/// Limit of the flash array of [`FATTWIN`], in bytes a second of reads.
pub const ARRAY_READ_BYTES_PER_SECOND: f64 = 6.0 * (1u64 << 30) as f64;

/// The published figures for a test.
pub fn of(test: &str) -> Option<&'static Published> {
    FIGURES.iter().find(|figure| figure.test == test)
}
