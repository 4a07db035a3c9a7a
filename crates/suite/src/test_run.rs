//! Runs one test: brings the server into the state that it begins with, warms it, measures.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::catalogue::{Begin, Line, TestPlan};
use crate::command_line::Length;
use crate::load::{Loaded, Loader};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::results::{Round, State, Test};
use crate::sampler::Samples;
use crate::scale::Scale;
use crate::servers::Servers;
use crate::{SuiteError, catalogue::Connections};

/// The load's own first seed; further rounds count on from it, so that each has its own keys.
const FIRST_SEED: u64 = 1;
/// The seed of what is not measured.
const WARM_SEED: u64 = 0;

/// What a test needs.
pub struct TestRun<'a> {
    /// What is run.
    pub plan: &'a TestPlan,
    /// At which scale.
    pub scale: &'a Scale,
    /// How often it is measured.
    pub rounds: u32,
    /// What starts loads.
    pub loader: &'a Loader,
    /// Whether somebody wants the run to end.
    pub stop: &'a AtomicBool,
    /// Where it is shown.
    pub progress: &'a Progress,
}

/// Why a test did not run to its end.
enum Cut {
    Stopped,
    Failed(String),
}

impl From<SuiteError> for Cut {
    fn from(error: SuiteError) -> Cut {
        Cut::Failed(error.to_string())
    }
}

impl TestRun<'_> {
    /// Runs it; `test` gets its command lines, rounds and state. The server is known to hold the
    /// data set afterwards only if nothing went wrong.
    pub fn run(&self, servers: &mut Servers, test: &mut Test) {
        test.commands.clear();
        test.rounds.clear();
        test.state = match self.steps(servers, test) {
            Ok(()) => State::Done,
            Err(Cut::Stopped) => State::Partial,
            Err(Cut::Failed(reason)) => State::Failed(reason),
        };
        if test.state != State::Done {
            servers.holds = None;
        }
    }

    fn steps(&self, servers: &mut Servers, test: &mut Test) -> Result<(), Cut> {
        self.prepare(servers, test)?;
        for line in &self.plan.warm {
            self.unmeasured("warm-up", line, servers, test)?;
        }
        for round in 0..self.rounds {
            if round > 0 && self.plan.begin == Begin::Empty {
                servers.empty(self.plan.data.tiers)?;
            }
            let what = format!("round {}/{}", round + 1, self.rounds);
            let name = format!("{}-{}", self.plan.id, round + 1);
            let seed = FIRST_SEED + u64::from(round);
            let loaded = self.load(&what, &name, (&self.plan.load, seed), servers, test)?;
            if loaded.stopped {
                // What it measured until then, if it had begun.
                let outcome = loaded.outcome.ok();
                test.rounds.extend(outcome.map(|outcome| to_round(outcome, loaded.samples)));
                return Err(Cut::Stopped);
            }
            let outcome = loaded.outcome.map_err(|error| self.failed(servers, error))?;
            let reason = outcome.reason.clone();
            let round = to_round(outcome, loaded.samples);
            self.warn_of_others(&round);
            test.rounds.push(round);
            if let Some(reason) = reason {
                return Err(self.failed(servers, reason));
            }
        }
        servers.holds = Some(self.plan.data.name);
        Ok(())
    }

    /// Brings the server into the state that the test begins with.
    fn prepare(&self, servers: &mut Servers, test: &mut Test) -> Result<(), Cut> {
        let data = self.plan.data;
        match self.plan.begin {
            Begin::Empty => servers.empty(data.tiers)?,
            Begin::Filled if servers.holds == Some(data.name) && !servers.has_died() => {}
            Begin::Filled => {
                servers.empty(data.tiers)?;
                let fill = Line {
                    published: data.fill.to_owned(),
                    length: Length::AllKeys,
                    connections: Connections::AsPublished,
                };
                self.unmeasured("fill", &fill, servers, test)?;
            }
        }
        Ok(())
    }

    fn unmeasured(
        &self,
        what: &str,
        line: &Line,
        servers: &mut Servers,
        test: &mut Test,
    ) -> Result<(), Cut> {
        let name = format!("{}-{what}", self.plan.id);
        let loaded = self.load(what, &name, (line, WARM_SEED), servers, test)?;
        match loaded.outcome {
            _ if loaded.stopped => Err(Cut::Stopped),
            Ok(Outcome { reason: None, .. }) => Ok(()),
            Ok(Outcome { reason: Some(reason), .. }) | Err(reason) => {
                Err(self.failed(servers, format!("{what}: {reason}")))
            }
        }
    }

    fn load(
        &self,
        what: &str,
        name: &str,
        (line, seed): (&Line, u64),
        servers: &Servers,
        test: &mut Test,
    ) -> Result<Loaded, Cut> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Cut::Stopped);
        }
        let mut line = self.scale.line(line, self.plan.data);
        if seed != FIRST_SEED {
            line = line.seeded(seed);
        }
        // Further rounds are the last command again, but for their seed.
        if test.rounds.is_empty() {
            test.commands.push(self.loader.shown(&line, servers.address()));
        }
        let text = format!("{} {what}", self.plan.id);
        self.progress.step(&text);
        let show = |sample: &_| self.progress.sample(&text, sample);
        Ok(self.loader.run(&line, servers.target(), name, self.stop, show)?)
    }

    /// A machine that does something else meanwhile gives figures that mean little.
    fn warn_of_others(&self, round: &Round) {
        if let Some(others) = round.others_cpu_seconds.filter(|_| round.is_disturbed()) {
            self.progress.line(&format!(
                "{:<14} WARNING: other processes used {others:.1} s of CPU in {:.1} s",
                self.plan.id, round.seconds
            ));
        }
    }

    fn failed(&self, servers: &mut Servers, reason: String) -> Cut {
        if servers.has_died() {
            return Cut::Failed(format!("the server died: {}", servers.log_end()));
        }
        Cut::Failed(reason)
    }
}

fn to_round(outcome: Outcome, samples: Samples) -> Round {
    let both = samples.machine_cpu_seconds.zip(samples.server_cpu_seconds);
    Round {
        seconds: outcome.seconds,
        ops_per_second: outcome.ops_per_second,
        latency: outcome.latency,
        share_under_1_ms: outcome.share_under_1_ms,
        ram_hit_ratio: samples.ram_hit_ratio,
        write_ram_hit_ratio: samples.write_ram_hit_ratio,
        server_cpu_seconds: samples.server_cpu_seconds,
        // The counters are read one after the other: a quiet machine may come out below nothing.
        others_cpu_seconds: both
            .map(|(machine, server)| (machine - server - outcome.cpu_seconds).max(0.0)),
        errors: outcome.errors,
        samples: samples.samples,
    }
}
