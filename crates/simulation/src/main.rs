//! `simulation [first [count [threads]]]`: runs seeds, and says of each that fails how to run it
//! again.

use std::process::ExitCode;

use simulation::{Seeds, name_seed_of_panics, run_seeds};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |usual| match numbers.next() {
        None => Some(usual),
        Some(number) => number.ok(),
    };
    let (Some(first), Some(count), Some(threads)) = (next(0), next(1), next(0)) else {
        eprintln!("usage: simulation [first seed [count [threads]]]");
        return ExitCode::from(2);
    };
    name_seed_of_panics();
    let summary = run_seeds(Seeds { first, count, threads: threads as usize });
    println!("{summary}");
    if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
