//! Seeds that must run clean, and the promise that each runs the same way every time.

use simulation::{Outcome, Seeds, run_seed, run_seeds};

/// Seeds of a test run; `make simulate` runs many more.
const SEEDS: u64 = 2_000;

#[test]
fn seeds_run_clean() {
    let summary = run_seeds(Seeds { first: 0, count: SEEDS, threads: 0 });
    println!("{summary}");
    assert!(summary.failures.is_empty(), "{summary}");
    // Every line of a worker's turn is gone through.
    let Outcome { light, overtaken, heavy, passed, behind, .. } = summary.total;
    assert!([light, overtaken, heavy, passed, behind].iter().all(|count| *count > 0), "{summary}");
    // Servers crash, and lose of what was answered where they may.
    let Outcome { crashes, lost, checkpoints, kept, recent, .. } = summary.total;
    assert!(crashes * 4 > SEEDS && lost > 0, "{summary}");
    // Checkpoints are taken, and refer to values that starts find on flash.
    assert!(checkpoints * 5 > SEEDS && kept * 20 > SEEDS, "{summary}");
    assert!(recent * 200 > SEEDS, "{summary}");
    // Fields have times then, and groups what they have not acknowledged.
    let Outcome { timed_fields, pending, .. } = summary.total;
    assert!(timed_fields * 2 > SEEDS && pending * 4 > SEEDS, "{summary}");
    // A history that is too wide to check is no failure, but must stay rare.
    assert!(summary.total.unchecked * 50 <= SEEDS, "{summary}");
}

#[test]
fn a_seed_runs_the_same_way_every_time() {
    for seed in 0..20 {
        let outcome = run_seed(seed).map_err(|failure| failure.to_string());
        assert_eq!(outcome, run_seed(seed).map_err(|failure| failure.to_string()), "{seed}");
    }
}
