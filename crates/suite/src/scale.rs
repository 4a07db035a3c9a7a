//! How long tests are and how much of a machine they get, from the options.

use crate::catalogue::{Connections, Line};
use crate::command_line::{CommandLine, Scaling};
use crate::data_set::DataSet;

/// RAM of a smoke run: the least with which no test fails. The 100 B values are filled
/// faster than a smaller server gets below `maxmemory` again, and it answers some with OOM.
pub const SMOKE_RAM_BYTES: u64 = 128 << 20;
/// RAM when none is asked for.
pub const RAM_BYTES: u64 = 1 << 30;
/// Flash and memory need room for more than a handful of segments.
pub const RAM_BYTES_MIN: u64 = 32 << 20;

/// A test runs this long for each [`SECONDS_RAM_BYTES`] of RAM: larger data sets need longer until
/// RAM holds what is hot.
const SECONDS: f64 = 15.0;
const SECONDS_RAM_BYTES: f64 = (256 << 20) as f64;
/// Shorter tests see too few of the server's pauses, longer ones tell nothing new.
const SECONDS_MIN: f64 = 15.0;
const SECONDS_MAX: f64 = 300.0;
const SMOKE_SECONDS: f64 = 1.0;

/// The scale of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// `maxmemory` of the server.
    pub ram_bytes: u64,
    /// Flash of the server.
    pub flash_bytes: u64,
    /// Whether it is a smoke run.
    pub smoke: bool,
    /// Threads of the load.
    pub load_threads: usize,
    /// Cores of the server.
    pub server_cores: usize,
}

impl Scale {
    /// Usual length of a test.
    pub fn seconds(&self) -> f64 {
        if self.smoke {
            return SMOKE_SECONDS;
        }
        let seconds = SECONDS * self.ram_bytes as f64 / SECONDS_RAM_BYTES;
        seconds.clamp(SECONDS_MIN, SECONDS_MAX)
    }

    /// A published line at this scale.
    pub fn line(&self, line: &Line, data: &DataSet) -> CommandLine {
        let scaling = Scaling {
            published_keys: data.published_keys,
            keys: data.keys(self.ram_bytes),
            seconds: self.seconds(),
            threads: self.load_threads,
            connections_factor: match line.connections {
                Connections::AsPublished => 1,
                Connections::PerServerCore => self.server_cores,
            },
        };
        CommandLine::parse(&line.published).scaled(&scaling, line.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests;

    fn scale(ram_bytes: u64, smoke: bool) -> Scale {
        Scale { ram_bytes, flash_bytes: ram_bytes * 10, smoke, load_threads: 1, server_cores: 1 }
    }

    #[test]
    fn lengths_follow_the_ram() {
        for (mib, seconds) in [(64, 15.0), (256, 15.0), (1024, 60.0), (1 << 20, 300.0)] {
            assert_eq!(scale(mib << 20, false).seconds(), seconds, "{mib} MiB");
        }
        assert_eq!(scale(1 << 30, true).seconds(), 1.0);
    }

    #[test]
    fn all_tests_with_256_mib_are_timed_to_end_within_15_minutes() {
        // Of a core that serves 150,000 requests a second, half of what was measured for the
        // slowest, a pass over cold values.
        const OPS_PER_SECOND: f64 = 150_000.0;
        let scale = scale(256 << 20, false);
        let mut filled = "";
        let mut seconds = 0.0;
        let mut add = |line: &CommandLine, data: &DataSet| {
            let time = line.value("--test-time").flatten().and_then(|time| time.parse().ok());
            seconds += time.unwrap_or(data.keys(scale.ram_bytes) as f64 / OPS_PER_SECOND);
        };
        for test in tests() {
            if filled != test.data.name && test.begin == crate::catalogue::Begin::Filled {
                add(&CommandLine::parse(test.data.fill), test.data);
            }
            filled = test.data.name;
            for line in test.warm.iter().chain([&test.load]) {
                add(&scale.line(line, test.data), test.data);
            }
        }
        assert!((300.0..800.0).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn small_values_have_connections_for_each_core() {
        let scale = Scale { server_cores: 4, load_threads: 2, ..scale(1 << 30, false) };
        let tests = tests();
        let test = tests.iter().find(|test| test.id == "small-uniform").expect("it is there");
        let line = scale.line(&test.load, test.data).to_string();
        assert!(line.contains("-c 8 -t 2 "), "{line}");
    }
}
