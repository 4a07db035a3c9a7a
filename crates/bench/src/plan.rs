//! The options, resolved: every default filled in and every contradiction refused, so that the
//! threads only read it.

use crate::LoadError;
use crate::arguments::{Pattern, Patterns, Range, Ratio, Requests};
use crate::keys::{KeyRange, KeyShape};
use crate::options::Options;
use crate::values::VALUE_BYTES_MAX;
use std::path::PathBuf;
use std::time::Duration;

/// Most connections of one load.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Most requests in flight on a connection.
pub const PIPELINE_MAX: usize = 65_536;
/// Most versions of a value that are told apart when older ones are right too.
pub const VERSIONS_MAX: u32 = 64;
/// Longest prefix of a key in bytes.
pub const PREFIX_BYTES_MAX: usize = 1024;

/// Requests of a connection when nothing says when to stop.
const REQUESTS_DEFAULT: u64 = 10_000;

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// When a connection has sent enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Until {
    /// After so many requests on each connection.
    Requests(u64),
    /// After its share of the key range.
    AllKeys,
    /// After so long.
    Time(Duration),
}

/// How hard replies are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checking {
    /// Only whether they are errors.
    Nothing,
    /// Length and content of values, down to this version of them.
    Values {
        /// The oldest version that is right.
        version_min: u32,
        /// Whether a missing key is a failure.
        misses_fail: bool,
    },
}

/// What every thread of a load does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server.
    pub address: Address,
    /// Threads.
    pub threads: usize,
    /// Connections a thread.
    pub clients: usize,
    /// Requests in flight on a connection, at most.
    pub pipeline: usize,
    /// Whether a pipeline is sent again only when it has drained.
    pub batch: bool,
    /// The end.
    pub until: Until,
    /// SETs to GETs.
    pub ratio: Ratio,
    /// Sizes of values in bytes.
    pub sizes: Range,
    /// Text before the number in a key.
    pub key_prefix: String,
    /// Numbers of keys.
    pub keys: KeyRange,
    /// How SETs and GETs choose keys.
    pub patterns: Patterns,
    /// Parameters of the distributions.
    pub shape: KeyShape,
    /// Seconds to live of what is set.
    pub expiry: Option<usize>,
    /// Seed of everything random.
    pub seed: u64,
    /// Version of the values that are written.
    pub value_version: u32,
    /// How hard replies are looked at.
    pub checking: Checking,
    /// Requests a second in all, if on schedule.
    pub rate: Option<f64>,
}

impl Plan {
    /// Checks `options` and fills in what they leave open.
    ///
    /// Errors: [`LoadError::Options`] with the option at fault.
    pub fn new(options: &Options) -> Result<Self, LoadError> {
        let keys = KeyRange::new(options.key_minimum, options.key_maximum)
            .ok_or_else(|| refuse("--key-maximum is below --key-minimum, or the range too wide"))?;
        let plan = Self {
            address: match &options.unix_socket {
                Some(path) => Address::Unix(path.clone()),
                None => Address::Tcp(options.server.clone(), options.port),
            },
            threads: options.threads,
            clients: options.clients,
            pipeline: options.pipeline,
            batch: options.batch,
            until: plan_until(options)?,
            ratio: options.ratio,
            sizes: options.data_size_range.unwrap_or(Range::only(options.data_size)),
            key_prefix: options.key_prefix.clone(),
            keys,
            patterns: options.key_pattern,
            shape: KeyShape {
                median: options.key_median.unwrap_or_else(|| keys.middle()),
                stddev: options.key_stddev.unwrap_or(keys.count() as f64 / 6.0),
                zipf_exponent: options.key_zipf_exp,
                scatter: options.key_scatter,
            },
            expiry: options.expiry,
            seed: options.seed,
            value_version: options.value_version,
            checking: plan_checking(options),
            rate: options.rate,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Connections of all threads.
    pub fn connections(&self) -> usize {
        self.threads * self.clients
    }

    /// Labels of the rows of the result.
    pub fn labels(&self) -> Vec<String> {
        ["Sets", "Gets", "Waits"].map(str::to_owned).to_vec()
    }

    /// Requests of a connection, when they are counted.
    pub fn requests(&self) -> Option<u64> {
        match self.until {
            Until::Time(_) => None,
            Until::Requests(count) => Some(count),
            Until::AllKeys => Some(self.keys.count().div_ceil(self.connections() as u64)),
        }
    }

    fn check(&self) -> Result<(), LoadError> {
        let limits = [
            (self.threads == 0 || self.clients == 0, "-t and -c must be at least 1"),
            (
                self.threads.saturating_mul(self.clients) > CONNECTIONS_MAX,
                "too many connections: -t times -c is at most 65536",
            ),
            (
                self.pipeline == 0 || self.pipeline > PIPELINE_MAX,
                "--pipeline must be from 1 to 65536",
            ),
            (self.sizes.max > VALUE_BYTES_MAX, "values are at most 512 MB"),
            (self.key_prefix.len() > PREFIX_BYTES_MAX, "--key-prefix is at most 1024 bytes"),
            (self.expiry == Some(0), "--expiry must be at least 1"),
            (
                self.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)),
                "--rate must be above 0",
            ),
            (
                self.versions() > VERSIONS_MAX,
                "--accept-older tells 64 versions apart: --value-version is at most 63",
            ),
            (self.rate.is_some() && self.batch, "--rate and --batch exclude each other"),
            (
                !(self.shape.zipf_exponent > 0.0 && self.shape.zipf_exponent <= 5.0),
                "--key-zipf-exp must be above 0 and at most 5",
            ),
            (
                !(self.shape.stddev.is_finite() && self.shape.stddev > 0.0),
                "--key-stddev must be above 0",
            ),
            (
                !self.keys.holds(self.shape.median),
                "--key-median must be between --key-minimum and --key-maximum",
            ),
            (
                self.keys.count() < self.connections() as u64 && self.has(Pattern::Parallel),
                "pattern P needs at least one key a connection",
            ),
        ];
        match limits.iter().find(|(broken, _)| *broken) {
            Some((_, text)) => Err(refuse(text)),
            None => Ok(()),
        }
    }

    /// How many versions of a value are right.
    fn versions(&self) -> u32 {
        match self.checking {
            Checking::Nothing => 1,
            Checking::Values { version_min, .. } => {
                (self.value_version - version_min).saturating_add(1)
            }
        }
    }

    fn has(&self, pattern: Pattern) -> bool {
        (self.ratio.sets > 0 && self.patterns.set == pattern)
            || (self.ratio.others > 0 && self.patterns.get == pattern)
    }
}

fn plan_until(options: &Options) -> Result<Until, LoadError> {
    match (options.requests, options.test_time) {
        (Some(Requests::AllKeys), _) => Ok(Until::AllKeys),
        (Some(Requests::Count(count)), _) => Ok(Until::Requests(count)),
        (None, Some(seconds)) => Duration::try_from_secs_f64(seconds)
            .map(Until::Time)
            .map_err(|_| refuse("--test-time is not a time")),
        (None, None) => Ok(Until::Requests(REQUESTS_DEFAULT)),
    }
}

fn plan_checking(options: &Options) -> Checking {
    if !options.verify {
        return Checking::Nothing;
    }
    Checking::Values {
        version_min: if options.accept_older { 0 } else { options.value_version },
        misses_fail: !options.allow_misses,
    }
}

fn refuse(text: &str) -> LoadError {
    LoadError::Options(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let options = Options::parse(words).map_err(|error| error.to_string())?;
        Plan::new(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn memtier_defaults_are_filled_in() {
        let plan = plan("-n allkeys --key-minimum 100 --key-maximum 699").expect("a plan");
        assert_eq!(plan.shape.stddev, 100.0);
        assert_eq!(plan.shape.median, 399.5);
        assert_eq!(plan.checking, Checking::Nothing);
        assert_eq!(plan.connections(), 200);
    }

    #[test]
    fn what_contradicts_is_refused() {
        let lines = [
            "-n 1 --test-time 1",
            "-n 1 --key-minimum 5 --key-maximum 4",
            "-n 1 -t 0",
            "-n 1 --pipeline 0",
            "-n 1 --rate 0",
            "-n 1 --rate 10 --batch",
            "-n 1 --key-zipf-exp 0",
            "-n 1 --key-pattern P:P --key-maximum 10",
            "-n 1 -d 10 --data-size-range 1-2",
            "-n 1 -d 600000000",
            "-n 1 --key-median 5 --key-minimum 6",
            "-n 1 --accept-older",
            "--test-time -1",
        ];
        for line in lines {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
