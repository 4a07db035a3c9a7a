//! Many seeds on all cores.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::world::{self, Failure};

/// Bytes of the stack of a thread that runs seeds: the checker goes as deep as a history is long.
const STACK_BYTES: usize = 64 << 20;
/// Failures that are kept; then no more seeds are begun.
const FAILURES_MAX: usize = 10;
/// Between two lines that say how far a long run has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(20);

/// Which seeds, and on how many threads.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Threads; 0: one a core.
    pub threads: usize,
}

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// Runs that ended well.
    pub clean: u64,
    /// Their outcomes added up.
    pub total: Outcome,
    /// The seeds whose histories were too wide to be checked, in no order.
    pub unchecked: Vec<u64>,
    /// The seeds that failed, and why, in their order.
    pub failures: Vec<(u64, Failure)>,
}

thread_local! {
    /// The seed that this thread runs.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// Has a panic, which may end the process, name the seed that it came from.
pub fn name_seed_of_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = SEED.get();
        eprintln!("seed {seed} failed: a panic\nagain: make simulate FIRST={seed} SEEDS=1");
        hook(info);
    }));
}

/// Runs one seed. It may leave memory behind when it fails.
///
/// Errors: what was wrong.
pub fn run_seed(seed: u64) -> Result<Outcome, Failure> {
    SEED.set(seed);
    catch_unwind(AssertUnwindSafe(|| world::run(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failure(format!("a panic: {}", text.unwrap_or_default())))
    })
}

/// Runs all of `seeds`, unless too many fail.
pub fn run_seeds(seeds: Seeds) -> Summary {
    let threads = match seeds.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        threads => threads,
    };
    let next = AtomicU64::new(seeds.first);
    let state = Mutex::new((Summary::default(), Progress::new(seeds)));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            let work = || run_some(&next, seeds.first + seeds.count, &state);
            builder.spawn_scoped(scope, work).expect("a thread");
        }
    });
    let (mut summary, _) = state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary
}

fn run_some(next: &AtomicU64, end: u64, state: &Mutex<(Summary, Progress)>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let result = run_seed(seed);
        if let Err(failure) = &result {
            eprintln!("{}", FailedSeed(seed, failure));
        }
        let mut state = state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (summary, progress) = &mut *state;
        match result {
            Ok(outcome) => {
                summary.clean += 1;
                if outcome.unchecked > 0 {
                    summary.unchecked.push(seed);
                }
                summary.total.add(outcome);
            }
            Err(failure) => summary.failures.push((seed, failure)),
        }
        progress.show(summary);
        if summary.failures.len() >= FAILURES_MAX {
            return;
        }
    }
}

/// Says from time to time how far a run has come.
struct Progress {
    seeds: Seeds,
    began: Instant,
    shown: Instant,
}

impl Progress {
    fn new(seeds: Seeds) -> Progress {
        let began = Instant::now();
        Progress { seeds, began, shown: began }
    }

    fn show(&mut self, summary: &Summary) {
        if self.shown.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.shown = Instant::now();
        let (count, failed) = (self.seeds.count, summary.failures.len() as u64);
        let (done, seconds) = (summary.clean + failed, self.began.elapsed().as_secs());
        eprintln!("{done} of {count} seeds in {seconds} s, {failed} failed");
    }
}

/// A seed that failed, for people.
struct FailedSeed<'a>(u64, &'a Failure);

impl fmt::Display for FailedSeed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedSeed(seed, Failure(text)) = self;
        writeln!(out, "seed {seed} failed: {text}")?;
        writeln!(out, "again: make simulate FIRST={seed} SEEDS=1")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (seed, failure) in &self.failures {
            writeln!(out, "{}", FailedSeed(*seed, failure))?;
        }
        let (clean, failed) = (self.clean, self.failures.len());
        if !self.unchecked.is_empty() {
            writeln!(out, "too wide to check: {:?}", self.unchecked)?;
        }
        write!(out, "{clean} seeds clean, {failed} failed\n{}", self.total)
    }
}
