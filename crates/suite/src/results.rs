//! What a run of the suite leaves behind, as `results.json`: the only thing that the report, the
//! CSV and a comparison read.
//!
//! Invariants:
//!
//! 1. Only figures that were measured are here; one that could not be is `None`, never zero.
//! 2. The file is complete after every test, so that a run that is stopped keeps what it has.
//! 3. Units are in the names: bytes, seconds, milliseconds; a share is from 0 to 1.

use serde::{Deserialize, Serialize};

/// Version of this format; a reader refuses others.
pub const FORMAT: u32 = 2;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Whether all tests asked for were run.
    pub state: State,
    /// Where it ran.
    pub machine: Machine,
    /// What it ran against, and at which scale.
    pub setting: Setting,
    /// What the drive can do, measured in the same run.
    pub drive_limit: Option<DriveLimit>,
    /// In the order they ran.
    pub tests: Vec<Test>,
    /// Our figures beside the published ones.
    pub comparisons: Vec<Comparison>,
}

/// How far a run, or a test, came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// To its end.
    Done,
    /// Stopped before its end: what is there is right, but not all.
    Partial,
    /// Not begun yet.
    Pending,
    /// It could not be run, or its replies were wrong: why.
    Failed(String),
}

/// The hardware and software of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// As the kernel names it.
    pub cpu: String,
    /// Usable by this process.
    pub cores: usize,
    /// Memory in bytes.
    pub ram_bytes: u64,
    /// Model of the drive under the flash folder, or its device name.
    pub drive: String,
    /// File system of the flash folder.
    pub file_system: String,
    /// As `uname -sr` says.
    pub kernel: String,
    /// Of the server and of the load generator.
    pub versions: Vec<Version>,
}

/// A program and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its name.
    pub program: String,
    /// As it says itself.
    pub version: String,
}

/// The server and the scale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Command line of the server if the suite started it, else its address.
    pub server: String,
    /// `maxmemory` of the server.
    pub ram_bytes: u64,
    /// Flash that it may use, in bytes.
    pub flash_bytes: u64,
    /// Keys of the data set of 512-byte values at this scale (6 billion there).
    pub keys: u64,
    /// Whether figures mean nothing: a smoke run with tiny tests.
    pub smoke: bool,
}

/// Limits of the drive, from a probe of random reads and sequential writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveLimit {
    /// What measured it: `fio 3.33`, or `own probe`.
    pub probe: String,
    /// Size of a read in bytes.
    pub block_bytes: u32,
    /// Reads in flight.
    pub depth: u32,
    /// Random reads a second.
    pub reads_per_second: f64,
    /// Sequential writes in bytes a second.
    pub write_bytes_per_second: f64,
}

/// One test: a published command line, run one or several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Unique in a run and stable between runs: `fill`, `get-max`, `sigma-10`, `small-uniform`.
    pub id: String,
    /// For people.
    pub title: String,
    /// The publication it comes from: its title and year.
    pub publication: String,
    /// How far it came.
    pub state: State,
    /// Command lines of the load, in the order they ran.
    pub commands: Vec<String>,
    /// The measured runs of the last command; one unless the suite was asked for more.
    pub rounds: Vec<Round>,
}

/// One run of the load, and what the server and the drive did meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Length in seconds.
    pub seconds: f64,
    /// Of SETs and GETs together.
    pub ops_per_second: f64,
    /// Latency of a request in milliseconds.
    pub latency: Latency,
    /// Share of requests under 1 ms.
    pub share_under_1_ms: Option<f64>,
    /// Share of reads that were served from RAM, by the server's counters over this round.
    pub ram_hit_ratio: Option<f64>,
    /// Share of writes to new keys or over values in RAM, by the same counters: what there is of
    /// hits in a test that only writes.
    #[serde(default)]
    pub write_ram_hit_ratio: Option<f64>,
    /// CPU of the server, user and system, in seconds.
    pub server_cpu_seconds: Option<f64>,
    /// CPU of processes that are neither the server nor the load, in seconds.
    #[serde(default)]
    pub others_cpu_seconds: Option<f64>,
    /// Error replies, wrong values, lost connections.
    pub errors: u64,
    /// Once a second.
    pub samples: Vec<Sample>,
}

/// Of a core: what the suite and a quiet machine use is a hundredth.
const OTHERS_SHARE_MAX: f64 = 0.1;

impl Round {
    /// Whether other processes used so much CPU meanwhile that the figures mean little.
    pub fn is_disturbed(&self) -> bool {
        self.others_cpu_seconds.is_some_and(|others| others > OTHERS_SHARE_MAX * self.seconds)
    }
}

/// Latency in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub average_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p99_9_ms: f64,
    /// Longest.
    pub max_ms: f64,
}

/// A look at the server and the drive. Rates are over the time since the sample before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the start of the round.
    pub second: f64,
    /// By the server's count.
    pub ops_per_second: f64,
    /// Resident memory of the server in bytes.
    pub resident_bytes: Option<u64>,
    /// RAM of keys and index, in bytes.
    pub index_bytes: Option<u64>,
    /// RAM of values, in bytes.
    pub value_bytes: Option<u64>,
    /// RAM of buffers, in bytes.
    pub buffer_bytes: Option<u64>,
    /// Keys in all.
    pub keys: Option<u64>,
    /// Values in RAM, with or without a copy in flash.
    pub values_in_ram: Option<u64>,
    /// Values in flash alone.
    pub values_in_flash: Option<u64>,
    /// Share of reads served from RAM since the sample before.
    pub ram_hit_ratio: Option<f64>,
    /// Flash in use, in bytes.
    pub flash_used_bytes: Option<u64>,
    /// Read from the drive, by the kernel's counters of the drive.
    pub drive_read_bytes_per_second: Option<f64>,
    /// Written to the drive, by the kernel's counters of the drive.
    pub drive_write_bytes_per_second: Option<f64>,
    /// Reads of the drive.
    pub drive_reads_per_second: Option<f64>,
}

/// A figure of ours beside the published one.
///
/// Hardware differs, so only `*_share` can be compared: each is a ratio within its own run
/// (flash against RAM, part of what the drive can do).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The publication: its title and year.
    pub publication: String,
    /// Where it is published: `Table 1`, `Figure 11`.
    pub place: String,
    /// What it is: `GET, flash against RAM`.
    pub name: String,
    /// Unit of the figures: `ops/s`, `ms`, `% of values`.
    pub unit: String,
    /// Ours.
    pub ours: Option<f64>,
    /// Theirs.
    pub published: Option<f64>,
    /// Our ratio within our run.
    pub our_share: Option<f64>,
    /// Their ratio within their run.
    pub published_share: Option<f64>,
    /// Whether more is better.
    pub more_is_better: bool,
}
