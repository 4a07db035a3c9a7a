//! The outcome of a load: what each run measured, and whether it was flawless. How it is shown is
//! told in [`crate::report_text`] and [`crate::json`].

use crate::cpu::CpuSeconds;
use crate::options::Options;
use crate::plan::{Checking, Plan};
use crate::stats::Stats;
use std::time::SystemTime;

/// What one run of a load measured.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was counted.
    pub stats: Stats,
    /// When counting began.
    pub started: SystemTime,
    /// How long it went on.
    pub seconds: f64,
    /// CPU time of the load.
    pub cpu: CpuSeconds,
    /// Why it ended before its end, if it did.
    pub cut_short: Option<String>,
}

/// What a load measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// As the load was asked for.
    pub options: Options,
    /// Labels of the rows of the stats.
    pub labels: Vec<String>,
    /// Requests of a connection, when the load counts them.
    pub requests: Option<u64>,
    /// In the order they ran, at least one.
    pub runs: Vec<Run>,
    misses_fail: bool,
}

/// A part of a report: a run, or all together.
pub struct Part<'a> {
    /// What it is called.
    pub title: String,
    /// What was counted.
    pub stats: std::borrow::Cow<'a, Stats>,
    /// Over how many seconds.
    pub seconds: f64,
    /// When it began.
    pub started: SystemTime,
    /// Whether it was cut short.
    pub cut_short: bool,
}

impl Report {
    /// The report of the runs of a plan.
    ///
    /// Panics: when there is none.
    pub fn new(options: &Options, plan: &Plan, runs: Vec<Run>) -> Self {
        assert!(!runs.is_empty());
        let misses_fail = matches!(plan.checking, Checking::Values { misses_fail: true, .. });
        Self {
            options: options.clone(),
            labels: plan.labels.clone(),
            requests: plan.requests(0),
            runs,
            misses_fail,
        }
    }

    /// What all runs counted together.
    pub fn stats(&self) -> Stats {
        let mut stats = self.runs[0].stats.clone();
        for run in &self.runs[1..] {
            stats.add(&run.stats);
        }
        stats
    }

    /// Seconds of all runs.
    pub fn seconds(&self) -> f64 {
        self.runs.iter().map(|run| run.seconds).sum()
    }

    /// CPU time of all runs.
    pub fn cpu(&self) -> CpuSeconds {
        self.runs.iter().fold(CpuSeconds::default(), |sum, run| sum.plus(run.cpu))
    }

    /// Why the load ended before its end, if it did.
    pub fn cut_short(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.cut_short.as_deref())
    }

    /// Whether it ran to its end, no reply was an error or wrong, and no connection was lost.
    pub fn is_flawless(&self) -> bool {
        let stats = self.stats();
        let failures = stats.errors + stats.wrong + stats.connections_lost;
        let missing = self.misses_fail && stats.misses() > 0;
        failures == 0 && !missing && self.cut_short().is_none()
    }

    /// What to show, by memtier's titles: the only run, or the best, the worst, and the average.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let speed = |run: &Run| run.stats.totals().count() as f64 / run.seconds.max(1e-9);
        if let [run] = &self.runs[..] {
            return vec![Part::of(run, "ALL STATS")];
        }
        let mut parts = Vec::new();
        if self.options.print_all_runs {
            for (index, run) in self.runs.iter().enumerate() {
                parts.push(Part::of(run, &format!("RUN #{} RESULTS", index + 1)));
            }
        }
        let by_speed = |one: &&Run, two: &&Run| speed(one).total_cmp(&speed(two));
        let ends = [
            (self.runs.iter().max_by(by_speed), "BEST RUN RESULTS"),
            (self.runs.iter().min_by(by_speed), "WORST RUN RESULTS"),
        ];
        parts.extend(ends.iter().filter_map(|(run, title)| Some(Part::of((*run)?, title))));
        parts.push(Part {
            title: format!("AGGREGATED AVERAGE RESULTS ({} runs)", self.runs.len()),
            stats: std::borrow::Cow::Owned(self.stats()),
            seconds: self.seconds(),
            started: self.runs[0].started,
            cut_short: self.cut_short().is_some(),
        });
        parts
    }
}

impl<'a> Part<'a> {
    fn of(run: &'a Run, title: &str) -> Self {
        Self {
            title: title.to_owned(),
            stats: std::borrow::Cow::Borrowed(&run.stats),
            seconds: run.seconds,
            started: run.started,
            cut_short: run.cut_short.is_some(),
        }
    }

    /// `count` over the seconds of the part.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// Nanoseconds as milliseconds.
pub fn ms(ns: f64) -> f64 {
    ns / 1e6
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report of one run of two seconds that counted `stats`.
    pub fn report(line: &str, stats: Stats) -> Report {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let options = Options::parse(words).expect("options");
        let plan = Plan::new(&options).expect("a plan");
        let run = Run {
            stats,
            started: SystemTime::UNIX_EPOCH,
            seconds: 2.0,
            cpu: CpuSeconds { user: 0.5, system: 0.25 },
            cut_short: None,
        };
        Report::new(&options, &plan, vec![run])
    }

    #[test]
    fn a_flaw_is_an_error_a_wrong_value_a_lost_connection_or_an_early_end() {
        let flaw = |change: fn(&mut Stats), line| {
            let mut stats = Stats::new(3);
            change(&mut stats);
            !report(line, stats).is_flawless()
        };
        assert!(!flaw(|_| {}, "--verify"));
        assert!(flaw(|stats| stats.errors = 1, ""));
        assert!(flaw(|stats| stats.wrong = 1, ""));
        assert!(flaw(|stats| stats.connections_lost = 1, ""));
        assert!(!flaw(|stats| stats.rows[1].misses = 1, ""));
        assert!(!flaw(|stats| stats.rows[1].misses = 1, "--verify --allow-misses"));
        assert!(flaw(|stats| stats.rows[1].misses = 1, "--verify"));
        let mut cut = report("", Stats::new(3));
        cut.runs[0].cut_short = Some("interrupted".to_owned());
        assert!(!cut.is_flawless());
    }

    #[test]
    fn several_runs_show_best_worst_and_average() {
        let mut report = report("-x 3 --print-all-runs", Stats::new(3));
        report.runs = (1..=3)
            .map(|count| {
                let mut run = report.runs[0].clone();
                let replies = crate::stats::Replies { count, latency_ns: 1, received_bytes: 0 };
                run.stats.rows[0].received(replies, 0);
                run
            })
            .collect();
        let shown: Vec<(String, u64, f64)> = report
            .parts()
            .into_iter()
            .map(|part| (part.title.clone(), part.stats.totals().count(), part.seconds))
            .collect();
        let expected = [
            ("RUN #1 RESULTS", 1, 2.0),
            ("RUN #2 RESULTS", 2, 2.0),
            ("RUN #3 RESULTS", 3, 2.0),
            ("BEST RUN RESULTS", 3, 2.0),
            ("WORST RUN RESULTS", 1, 2.0),
            ("AGGREGATED AVERAGE RESULTS (3 runs)", 6, 6.0),
        ];
        assert_eq!(shown, expected.map(|(title, count, s)| (title.to_owned(), count, s)));
    }
}
