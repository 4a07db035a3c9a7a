//! Two runs side by side: is the second faster, and could that be chance?
//!
//! The n-th rounds of a test in both runs are a pair. If nothing had changed, each run would have
//! the better figure of a pair as often as the other: the sign test counts how often one has, and
//! asks nothing of how figures are distributed. It is exact, and honest about few rounds: below
//! [`ROUNDS_MIN`] pairs not even the same sign in all of them would be rare enough.

use serde::Serialize;

use crate::results::{Results, Round, Setting, State, Test};
use crate::rounds::median;

/// Pairs below which the sign test cannot reach [`CHANCE_MAX`]: all of 6 agree by chance in 3.1 %
/// of cases, all of 5 in 6.3 %.
pub const ROUNDS_MIN: usize = 6;
/// Probability of so clear a difference by chance, above which it is not called significant.
pub const CHANCE_MAX: f64 = 0.05;

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What differs between machines, settings and states of the runs, and what else makes their
    /// figures mean less, a line each.
    pub mismatches: Vec<String>,
    /// Each figure of each test that either run has, in the order of the first.
    pub rows: Vec<Row>,
}

/// A figure of a test in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Id of the test.
    pub test: String,
    /// Which figure, with its unit.
    pub figure: &'static str,
    /// Median over the rounds of the first run.
    pub a: Option<f64>,
    /// Median over the rounds of the second run.
    pub b: Option<f64>,
    /// Rounds of the first run.
    pub a_rounds: usize,
    /// Rounds of the second run.
    pub b_rounds: usize,
    /// The second median by the first.
    pub ratio: Option<f64>,
    /// Probability of so clear a difference by chance; of fewer than [`ROUNDS_MIN`] pairs none.
    pub chance: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

/// What a comparison of one figure says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second run is better, and hardly by chance.
    Better,
    /// The second run is worse, and hardly by chance.
    Worse,
    /// What difference there is may be chance.
    NoDifferenceShown,
    /// There are too few rounds to tell.
    TooFewRounds,
    /// One of the runs does not have it.
    Missing,
}

impl Row {
    /// Rounds that both runs have.
    pub fn pairs(&self) -> usize {
        self.a_rounds.min(self.b_rounds)
    }
}

impl Verdict {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Better => "b is better",
            Self::Worse => "b is worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::TooFewRounds => "too few rounds",
            Self::Missing => "missing",
        }
    }
}

/// How the verdicts come about, for people; a line a thought.
pub fn rule() -> String {
    format!(
        "Figures are medians over the rounds; the n-th rounds of a and b are a pair.\n\
         chance: how often so clear a difference would come up if nothing had changed\n\
         (exact two-sided sign test). Above {} % no difference is shown;\n\
         below {ROUNDS_MIN} pairs of rounds significance cannot be told: measure with --rounds {ROUNDS_MIN}.",
        CHANCE_MAX * 100.0
    )
}

/// A figure that is compared.
struct Figure {
    name: &'static str,
    more_is_better: bool,
    of: fn(&Round) -> Option<f64>,
}

const FIGURES: &[Figure] = &[
    Figure { name: "ops/s", more_is_better: true, of: |round| Some(round.ops_per_second) },
    Figure {
        name: "average ms",
        more_is_better: false,
        of: |round| Some(round.latency.average_ms),
    },
    Figure { name: "p99 ms", more_is_better: false, of: |round| Some(round.latency.p99_ms) },
    Figure {
        name: "server CPU us/op",
        more_is_better: false,
        of: |round| Some(round.server_cpu_seconds? * 1e6 / (round.ops_per_second * round.seconds)),
    },
];

/// Sets two runs side by side.
pub fn compare(a: &Results, b: &Results) -> Comparison {
    let only_b = b.tests.iter().filter(|test| a.test(&test.id).is_none());
    let tests: Vec<&Test> = a.tests.iter().chain(only_b).collect();
    let mut mismatches = mismatches(a, b);
    let pair = |test: &Test| (a.test(&test.id), b.test(&test.id));
    mismatches.extend(tests.iter().filter_map(|test| mismatch(&test.id, pair(test))));
    let rows = tests
        .iter()
        .flat_map(|test| FIGURES.iter().map(move |figure| row(&test.id, figure, pair(test))));
    // A figure that neither run has says nothing.
    let rows = rows.filter(|row| row.a.is_some() || row.b.is_some()).collect();
    Comparison { mismatches, rows }
}

fn row(id: &str, figure: &Figure, (a, b): (Option<&Test>, Option<&Test>)) -> Row {
    let figures = |test: Option<&Test>| -> Vec<f64> {
        let rounds = test.map_or(&[][..], |test| &test.rounds);
        rounds.iter().filter_map(figure.of).filter(|figure| figure.is_finite()).collect()
    };
    let (a, b) = (figures(a), figures(b));
    let (a_median, b_median) = (median(a.iter().copied()), median(b.iter().copied()));
    let ratio = a_median.zip(b_median).map(|(a, b)| b / a).filter(|ratio| ratio.is_finite());
    let pairs = || a.iter().copied().zip(b.iter().copied());
    let better = pairs().filter(|(a, b)| if figure.more_is_better { b > a } else { b < a }).count();
    let ties = pairs().filter(|(a, b)| a == b).count();
    let worse = pairs().count() - better - ties;
    let chance = (pairs().count() >= ROUNDS_MIN).then(|| sign_test(better, worse));
    let verdict = match (ratio, chance) {
        (None, _) => Verdict::Missing,
        (_, None) => Verdict::TooFewRounds,
        (_, Some(chance)) if chance > CHANCE_MAX => Verdict::NoDifferenceShown,
        _ if better > worse => Verdict::Better,
        _ => Verdict::Worse,
    };
    Row {
        test: id.to_owned(),
        figure: figure.name,
        a: a_median,
        b: b_median,
        a_rounds: a.len(),
        b_rounds: b.len(),
        ratio,
        chance,
        verdict,
    }
}

/// Probability that of `better + worse` fair coins at least as many agree: the two-sided exact
/// sign test. Ties were left out.
fn sign_test(better: usize, worse: usize) -> f64 {
    let coins = better + worse;
    // Binomial coefficients by 2^coins, one from the one before; both tails are alike.
    let mut term = 0.5f64.powi(coins as i32);
    let mut tail = 0.0;
    for heads in 0..=better.min(worse) {
        tail += term;
        term *= (coins - heads) as f64 / (heads + 1) as f64;
    }
    (2.0 * tail).min(1.0)
}

/// What differs between the runs as a whole.
fn mismatches(a: &Results, b: &Results) -> Vec<String> {
    let (a_setting, b_setting) = (&a.setting, &b.setting);
    let limit = |results: &Results| match &results.drive_limit {
        Some(limit) => format!("by {}", limit.probe),
        None => "not measured".to_owned(),
    };
    let pairs = [
        ("CPU", a.machine.cpu.clone(), b.machine.cpu.clone()),
        ("cores", a.machine.cores.to_string(), b.machine.cores.to_string()),
        ("memory in bytes", a.machine.ram_bytes.to_string(), b.machine.ram_bytes.to_string()),
        ("drive", a.machine.drive.clone(), b.machine.drive.clone()),
        ("file system", a.machine.file_system.clone(), b.machine.file_system.clone()),
        ("kernel", a.machine.kernel.clone(), b.machine.kernel.clone()),
        ("versions", versions(a), versions(b)),
        ("limits of the drive", limit(a), limit(b)),
        ("RAM in bytes", a_setting.ram_bytes.to_string(), b_setting.ram_bytes.to_string()),
        ("flash in bytes", a_setting.flash_bytes.to_string(), b_setting.flash_bytes.to_string()),
        ("keys", a_setting.keys.to_string(), b_setting.keys.to_string()),
        ("server", lasting(&a_setting.server), lasting(&b_setting.server)),
        ("kind of run", kind(a_setting), kind(b_setting)),
        ("state", state(&a.state), state(&b.state)),
    ];
    let differs =
        |(name, a, b): (&str, String, String)| (a != b).then(|| format!("{name}: a {a}, b {b}"));
    let mut lines: Vec<String> = pairs.into_iter().filter_map(differs).collect();
    if a_setting.smoke && b_setting.smoke {
        lines.push("kind of run: both are smoke runs, whose figures mean nothing".to_owned());
    }
    lines.extend([("a", a), ("b", b)].into_iter().filter_map(|(name, run)| disturbed(name, run)));
    lines
}

/// That other processes used CPU while a run measured, if they did.
fn disturbed(name: &str, results: &Results) -> Option<String> {
    let rounds = || results.tests.iter().flat_map(|test| &test.rounds);
    let (all, disturbed) =
        (rounds().count(), rounds().filter(|round| round.is_disturbed()).count());
    let text = || format!("{name}: other processes used CPU in {disturbed} of {all} rounds");
    (disturbed > 0).then(text)
}

/// Options whose values change with every run and mean nothing to it: addresses and folders.
const PASSING: [&str; 5] = ["-s", "-p", "--port", "--bind", "--flash-path"];

/// A command line without them.
fn lasting(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if PASSING.contains(&word) {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

fn versions(results: &Results) -> String {
    let version =
        |version: &crate::results::Version| format!("{} {}", version.program, version.version);
    results.machine.versions.iter().map(version).collect::<Vec<String>>().join(" and ")
}

fn kind(setting: &Setting) -> String {
    if setting.smoke { "smoke, whose figures mean nothing" } else { "full" }.to_owned()
}

fn state(state: &State) -> String {
    match state {
        State::Done => "done".to_owned(),
        State::Partial => "partial".to_owned(),
        State::Pending => "pending".to_owned(),
        State::Failed(why) => format!("failed ({why})"),
    }
}

/// What differs between the runs of one test.
fn mismatch(id: &str, pair: (Option<&Test>, Option<&Test>)) -> Option<String> {
    let (Some(a), Some(b)) = pair else {
        let only = if pair.0.is_some() { "a" } else { "b" };
        return Some(format!("{id}: only in {only}"));
    };
    if a.state != State::Done || b.state != State::Done {
        return Some(format!("{id}: a {}, b {}", state(&a.state), state(&b.state)));
    }
    let lines = |test: &Test| test.commands.iter().map(|line| lasting(line)).collect::<Vec<_>>();
    if lines(a) != lines(b) {
        return Some(format!("{id}: other command lines"));
    }
    if a.rounds.len() != b.rounds.len() {
        let (a, b) = (a.rounds.len(), b.rounds.len());
        return Some(format!("{id}: a {a} rounds, b {b}; only the first {} are paired", a.min(b)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_test_is_exact() {
        let cases = [
            (0, 0, 1.0),
            (1, 0, 1.0),
            (5, 0, 0.0625),
            (0, 6, 0.03125),
            (7, 1, 18.0 / 256.0),
            (3, 3, 1.0),
            (9, 1, 22.0 / 1024.0),
        ];
        for (better, worse, expected) in cases {
            assert!((sign_test(better, worse) - expected).abs() < 1e-12, "{better} : {worse}");
        }
    }

    #[test]
    fn addresses_and_folders_make_no_difference() {
        let line = "kelvin bench run -s 127.0.0.1 -p 7001 -c 64 --ratio=0:1";
        assert_eq!(lasting(line), "kelvin bench run -c 64 --ratio=0:1");
        assert_eq!(lasting("kelvin server --port 1 --workers 1"), "kelvin server --workers 1");
        assert_eq!(lasting("127.0.0.1:6379 -p"), "127.0.0.1:6379");
    }

    #[test]
    fn as_many_rounds_as_it_takes_and_no_more() {
        assert!(sign_test(ROUNDS_MIN, 0) <= CHANCE_MAX);
        assert!(sign_test(ROUNDS_MIN - 1, 0) > CHANCE_MAX);
    }
}
