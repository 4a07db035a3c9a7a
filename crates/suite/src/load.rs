//! A load: `kelvin bench run` with a published command line, as a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::child::Process;
use crate::command_line::CommandLine;
use crate::cores::Cores;
use crate::error::SuiteError;
use crate::outcome::Outcome;
use crate::results::Sample;
use crate::sampler::{Sampler, Samples, Target};
use crate::servers::last_lines;

/// A load that was told to end has this long to write what it has.
const END_SECONDS_MAX: u64 = 10;
/// A server that has answered nothing for so long will not any more.
const STALL_SECONDS_MAX: u64 = 60;
/// The suite's own INFO is less than this.
const STALL_OPS_PER_SECOND: f64 = 10.0;
/// Longer than any load.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 4);

/// How loads are started.
pub struct Loader {
    /// The program: `kelvin`.
    pub program: PathBuf,
    /// Cores of the load.
    pub cores: Option<Cores>,
    /// Where outputs go.
    pub raw_folder: PathBuf,
}

/// How a load ended.
pub struct Loaded {
    /// What it measured, when it could say.
    pub outcome: Result<Outcome, String>,
    /// What went on in the server meanwhile.
    pub samples: Samples,
    /// Whether somebody stopped it.
    pub stopped: bool,
}

/// The first words of every load.
const WORDS: [&str; 2] = ["bench", "run"];

impl Loader {
    /// The command line as a person would write it.
    pub fn shown(&self, line: &CommandLine, address: &str) -> String {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
        format!("kelvin {} -s {host} -p {port} {line}", WORDS.join(" "))
    }

    /// Runs a load to its end, or until `stop`; `show` gets each sample.
    ///
    /// Errors: it cannot be started, or the server cannot be asked.
    pub fn run(
        &self,
        line: &CommandLine,
        target: Target,
        name: &str,
        stop: &AtomicBool,
        show: impl Fn(&Sample),
    ) -> Result<Loaded, SuiteError> {
        let json = self.raw_folder.join(format!("{name}.json"));
        let log = self.raw_folder.join(format!("{name}.txt"));
        // An earlier run's outcome must not pass for this one's.
        let _ = fs::remove_file(&json);
        let (host, port) = target.address.rsplit_once(':').unwrap_or((&target.address, "6379"));
        let mut command = Command::new(&self.program);
        command.args(WORDS).args(["-s", host, "-p", port]).args(line.words());
        command.arg("--json-out-file").arg(&json);
        let sampler = Sampler::start(target)?;
        let mut process = Process::start(command, self.cores.as_ref(), &log)?;
        let mut watch = Watch::new();
        let ended = process.wait(FOREVER, || {
            if let Some(sample) = sampler.latest() {
                watch.see(&sample);
                show(&sample);
            }
            stop.load(Ordering::Relaxed) || watch.has_stalled()
        });
        let samples = sampler.stop();
        let status =
            ended.or_else(|| process.end(Signal::INT, Duration::from_secs(END_SECONDS_MAX)));
        let stopped = ended.is_none() && !watch.has_stalled();
        let outcome = if watch.has_stalled() {
            Err(format!("the server answered nothing for {STALL_SECONDS_MAX} s"))
        } else {
            let flawless = stopped || status.is_some_and(|status| status.success());
            read_outcome(&json, &log, flawless)
        };
        Ok(Loaded { outcome, samples, stopped })
    }
}

/// The outcome, with a reason wherever the load did not end well.
fn read_outcome(json: &Path, log: &Path, flawless: bool) -> Result<Outcome, String> {
    let said = || format!("the load failed: {}", last_lines(log, 1));
    let text = fs::read(json).map_err(|_| said())?;
    let mut outcome = Outcome::parse(&text).map_err(|error| format!("{}: {error}", said()))?;
    if !flawless && outcome.reason.is_none() {
        outcome.reason = Some(said());
    }
    Ok(outcome)
}

/// Sees when a server has answered nothing for long.
struct Watch {
    alive: Instant,
    second: f64,
}

impl Watch {
    fn new() -> Watch {
        Watch { alive: Instant::now(), second: 0.0 }
    }

    fn see(&mut self, sample: &Sample) {
        if sample.second > self.second && sample.ops_per_second > STALL_OPS_PER_SECOND {
            self.second = sample.second;
            self.alive = Instant::now();
        }
    }

    fn has_stalled(&self) -> bool {
        self.alive.elapsed() > Duration::from_secs(STALL_SECONDS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_leaves_nothing_says_why() {
        let log = std::env::temp_dir().join(format!("suite-load-{}", std::process::id()));
        fs::write(&log, "usage\nkelvin bench run: connection refused\n").expect("a file");
        let error = read_outcome(Path::new("/nonexistent"), &log, false).expect_err("no outcome");
        assert_eq!(error, "the load failed: kelvin bench run: connection refused");
        fs::remove_file(&log).expect("it is there");
    }
}
