//! The command line, as a person writes it; names and meanings are memtier_benchmark's where it has
//! them, so that published command lines can be replayed.
//!
//! Parsing has no effects. Checks that need more than one option are in [`crate::plan`].

use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// What to do to which server.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Host of the server.
    #[arg(short = 's', long = "server", default_value = "127.0.0.1")]
    pub server: String,
    /// Port of the server.
    #[arg(short = 'p', long = "port", default_value_t = 6379)]
    pub port: u16,
    /// Unix socket to use in place of host and port.
    #[arg(short = 'S', long)]
    pub unix_socket: Option<PathBuf>,
    /// Connections a thread.
    #[arg(short = 'c', long = "clients", default_value_t = 50)]
    pub clients: usize,
    /// Threads.
    #[arg(short = 't', long = "threads", default_value_t = 1)]
    pub threads: usize,
    /// Requests in flight on a connection.
    #[arg(long, default_value_t = 1)]
    pub pipeline: usize,
    /// Send again only when all replies of a pipeline are in (as redis-benchmark does), rather than
    /// after each read (as memtier does).
    #[arg(long)]
    pub batch: bool,
    /// Requests a connection, or `allkeys` to visit the key range once.
    #[arg(short = 'n', long = "requests")]
    pub requests: Option<Requests>,
    /// Run for so many seconds.
    #[arg(long, conflicts_with = "requests")]
    pub test_time: Option<f64>,
    /// SETs to GETs.
    #[arg(long, default_value = "1:10")]
    pub ratio: Ratio,
    /// Size of a value in bytes.
    #[arg(short = 'd', long, default_value_t = 32)]
    pub data_size: usize,
    /// Sizes of values, `MIN-MAX`, uniform; a key always has the same size.
    #[arg(long, conflicts_with = "data_size")]
    pub data_size_range: Option<SizeRange>,
    /// What stands before the number in a key.
    #[arg(long, default_value = "memtier-")]
    pub key_prefix: String,
    /// Smallest number in a key.
    #[arg(long, default_value_t = 0)]
    pub key_minimum: u64,
    /// Largest number in a key.
    #[arg(long, default_value_t = 10_000_000)]
    pub key_maximum: u64,
    /// How SETs and GETs choose keys: R random, S sequential, P sequential with the range divided
    /// among the connections, G Gaussian, Z Zipf.
    #[arg(long, default_value = "R:R")]
    pub key_pattern: Patterns,
    /// Standard deviation of pattern G; by default a sixth of the range.
    #[arg(long)]
    pub key_stddev: Option<f64>,
    /// Centre of pattern G; by default the middle of the range.
    #[arg(long)]
    pub key_median: Option<f64>,
    /// Exponent of pattern Z.
    #[arg(long, default_value_t = 1.0)]
    pub key_zipf_exp: f64,
    /// Spread the keys that patterns R, G and Z choose over the range by a fixed permutation, so
    /// that popular keys are not neighbours.
    #[arg(long)]
    pub key_scatter: bool,
    /// Give each key that is set so many seconds to live.
    #[arg(long)]
    pub expiry: Option<u32>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Which of the values of a key to write and to expect: two runs that differ here overwrite
    /// each other's values with different ones.
    #[arg(long, default_value_t = 0)]
    pub value_version: u32,
    /// Check length and content of every value that is read; a missing key is then an error too.
    #[arg(long)]
    pub verify: bool,
    /// With --verify: values of older versions are right as well.
    #[arg(long, requires = "verify")]
    pub accept_older: bool,
    /// With --verify: keys may be missing.
    #[arg(long, requires = "verify")]
    pub allow_misses: bool,
    /// Send so many requests a second in all, on schedule whether or not replies come; latency
    /// counts from the scheduled time.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Write the result as JSON to this file.
    #[arg(long)]
    pub json_out_file: Option<PathBuf>,
}

/// How many requests a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// So many.
    Count(u64),
    /// The key range once, divided among the connections.
    AllKeys,
}

impl FromStr for Requests {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "allkeys" {
            return Ok(Self::AllKeys);
        }
        text.parse().map(Self::Count).map_err(|_| format!("'{text}' is not a count or 'allkeys'"))
    }
}

/// So many SETs for so many GETs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// SETs of a round; they come first.
    pub sets: u32,
    /// GETs of a round.
    pub gets: u32,
}

impl FromStr for Ratio {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (sets, gets) = text.split_once(':')?;
            Some(Self { sets: sets.parse().ok()?, gets: gets.parse().ok()? })
        };
        parse()
            .filter(|ratio| ratio.sets > 0 || ratio.gets > 0)
            .ok_or_else(|| format!("'{text}' is not SETS:GETS"))
    }
}

/// Sizes from `min` to `max` bytes, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeRange {
    /// Smallest size in bytes.
    pub min: usize,
    /// Largest size in bytes.
    pub max: usize,
}

impl FromStr for SizeRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (min, max) = text.split_once('-')?;
            Some(Self { min: min.parse().ok()?, max: max.parse().ok()? })
        };
        parse()
            .filter(|range| range.min <= range.max)
            .ok_or_else(|| format!("'{text}' is not MIN-MAX"))
    }
}

/// How keys are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Uniform over the range.
    Random,
    /// One after the other; each connection walks the whole range.
    Sequential,
    /// One after the other; each connection walks its part of the range.
    Parallel,
    /// Normally distributed around a centre.
    Gaussian,
    /// The n-th key is chosen in proportion to 1 / n^exponent.
    Zipf,
}

/// The patterns of SETs and of GETs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patterns {
    /// For SETs.
    pub set: Pattern,
    /// For GETs.
    pub get: Pattern,
}

impl FromStr for Patterns {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = |letter: &str| match letter {
            "R" => Some(Pattern::Random),
            "S" => Some(Pattern::Sequential),
            "P" => Some(Pattern::Parallel),
            "G" => Some(Pattern::Gaussian),
            "Z" => Some(Pattern::Zipf),
            _ => None,
        };
        text.split_once(':')
            .and_then(|(set, get)| Some(Self { set: pattern(set)?, get: pattern(get)? }))
            .ok_or_else(|| format!("'{text}' is not two of R, S, P, G, Z, as in R:R"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_values_parse_or_say_what_is_wrong() {
        assert_eq!("allkeys".parse(), Ok(Requests::AllKeys));
        assert_eq!("10".parse(), Ok(Requests::Count(10)));
        assert_eq!("3:7".parse(), Ok(Ratio { sets: 3, gets: 7 }));
        assert_eq!("4-4".parse(), Ok(SizeRange { min: 4, max: 4 }));
        let patterns = Patterns { set: Pattern::Gaussian, get: Pattern::Zipf };
        assert_eq!("G:Z".parse(), Ok(patterns));
        for text in ["", "0:0", "1", "1:", "-1:1", "1:2:3"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        for text in ["", "9-1", "1-", "a-b"] {
            assert!(text.parse::<SizeRange>().is_err(), "{text}");
        }
        for text in ["", "R", "R:X", "RR:R", "r:r"] {
            assert!(text.parse::<Patterns>().is_err(), "{text}");
        }
        assert!("some".parse::<Requests>().is_err());
    }
}
