//! What a person sees while the suite runs: a live line on a terminal, and a line for each test.

use std::cell::OnceCell;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::results::{Sample, State, Test};

/// How often the live line moves.
const TICK: Duration = Duration::from_millis(100);

/// The terminal.
pub struct Progress {
    bar: ProgressBar,
    /// Why the first line that was lost could not be written: no reason to end the run.
    failure: OnceCell<io::Error>,
}

impl Progress {
    /// For a run of so many tests. Without a terminal there are only the lines.
    pub fn new(tests: usize) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress { bar: ProgressBar::hidden(), failure: OnceCell::new() };
        }
        let style = ProgressStyle::with_template("{spinner} [{pos}/{len}] {bar:10} {wide_msg}")
            .expect("invariant: the template is well formed");
        let bar = ProgressBar::new(tests as u64).with_style(style);
        bar.enable_steady_tick(TICK);
        Progress { bar, failure: OnceCell::new() }
    }

    /// What is done now.
    pub fn step(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// What is done now, and what the last look said of it.
    pub fn sample(&self, text: &str, sample: &Sample) {
        let hits = sample
            .ram_hit_ratio
            .map_or(String::new(), |ratio| format!(", {:.0} % RAM hits", ratio * 100.0));
        let (second, ops) = (sample.second, sample.ops_per_second);
        self.bar.set_message(format!("{text}: {second:.0} s, {ops:.0} ops/s{hits}"));
    }

    /// A test is over.
    pub fn test_ended(&self, test: &Test) {
        self.bar.inc(1);
        self.line(&test_line(test));
    }

    /// A test was over before.
    pub fn skip(&self) {
        self.bar.inc(1);
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        let printed = self.bar.suspend(|| stdx::output::print(format!("{text}\n")));
        if let Err(error) = printed {
            let _ = self.failure.set(error);
        }
    }

    /// The run is over.
    ///
    /// Errors: a line could not be written.
    pub fn end(&mut self) -> io::Result<()> {
        self.bar.finish_and_clear();
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// At most 80 columns wide, unless something failed.
fn test_line(test: &Test) -> String {
    let outcome = match &test.state {
        State::Failed(reason) => return format!("{:<14} FAILED: {reason}", test.id),
        State::Partial => return format!("{:<14} stopped", test.id),
        State::Pending => return format!("{:<14} not run", test.id),
        State::Done => test.rounds.last(),
    };
    let Some(round) = outcome else { return format!("{:<14} done", test.id) };
    let reads = round.ram_hit_ratio.map(|share| (share, "GETs"));
    let hits = reads.or(round.write_ram_hit_ratio.map(|share| (share, "SETs")));
    let hits = hits
        .map_or(String::new(), |(share, of)| format!("  RAM hits {:>5.1} % {of}", share * 100.0));
    format!(
        "{:<14} {:>7.0} ops/s  avg {:>6.3}  p99 {:>6.3} ms{hits}",
        test.id, round.ops_per_second, round.latency.average_ms, round.latency.p99_ms,
    )
}
