//! From a difference somewhere in a million requests to the few that bring it about.

use super::generator::{Action, Step};
use super::runner::{Difference, Pair, shorten};

/// Steps that all trials together may run.
const TRIAL_STEPS_MAX: usize = 2_000_000;
/// The first trial takes this many steps before the difference.
const TAIL_STEPS_MIN: usize = 32;

/// A shorter run that shows a difference, and the difference.
pub struct Shrunk {
    pub steps: Vec<Step>,
    pub difference: Difference,
}

/// Shortens `steps`, whose last shows a difference. None: it does not show again, because it
/// depends on timing.
pub fn shrink(pair: &Pair, steps: &[Step]) -> Option<Shrunk> {
    let mut budget = TRIAL_STEPS_MAX;
    let mut shrunk = find_tail(pair, steps, &mut budget)?;
    let mut chunk = shrunk.steps.len() / 2;
    while chunk > 0 && budget > 0 {
        let mut start = 0;
        while start < shrunk.steps.len() && budget > 0 {
            let end = (start + chunk).min(shrunk.steps.len());
            let mut without = shrunk.steps.clone();
            without.drain(start..end);
            match trial(pair, without, &mut budget) {
                Some(shorter) => shrunk = shorter,
                None => start = end,
            }
        }
        chunk /= 2;
    }
    Some(shrunk)
}

/// The shortest tail, in powers of two, that shows a difference.
fn find_tail(pair: &Pair, steps: &[Step], budget: &mut usize) -> Option<Shrunk> {
    let mut len = TAIL_STEPS_MIN;
    loop {
        let start = steps.len().saturating_sub(len);
        if let Some(shrunk) = trial(pair, steps[start..].to_vec(), budget) {
            return Some(shrunk);
        }
        if start == 0 || *budget == 0 {
            return None;
        }
        len *= 4;
    }
}

fn trial(pair: &Pair, mut steps: Vec<Step>, budget: &mut usize) -> Option<Shrunk> {
    *budget = budget.saturating_sub(steps.len());
    pair.flush();
    let difference = pair.connect().run(&steps).err()?;
    steps.truncate(difference.step + 1);
    Some(Shrunk { steps, difference })
}

/// Steps as lines that one can type.
pub fn show(steps: &[Step]) -> String {
    let line = |step: &Step| {
        let (words, who) = match &step.action {
            Action::Both(words, _) => (words.as_slice(), "both  "),
            Action::Kelvin(words) => (words.as_slice(), "kelvin"),
            Action::Scan(words) => (words.as_slice(), "scan  "),
            Action::Digest => (&[][..], "digest"),
        };
        let words: Vec<String> =
            words.iter().map(|word| format!("\"{}\"", shorten(word))).collect();
        format!("  turn {} connection {} {who} {}", step.turn, step.connection, words.join(" "))
    };
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}
