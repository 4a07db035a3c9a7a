//! What Kelvin's demotion makes of a law of popularity: the hit ratio in RAM, and how much goes to
//! flash.
//!
//! The rules, from `crates/tier/src/demote.rs`, `crates/keyspace/src/slot.rs` and
//! `crates/server/src/dispatch.rs`: an access raises a key's frequency, up to 3. The hand lowers it
//! as it passes; a value that it meets at 0 leaves RAM, and is written if it was changed since it
//! was last on flash. A write brings a value into RAM; a read does when the key was used before
//! ("second touch": its frequency is then above 1).
//!
//! So a key is a Markov chain of 12 states (frequency, and cold, clean or dirty) with a step for
//! each pass of the hand, between which its accesses are a Poisson process. The time between two
//! passes is the one at which as many values are in RAM as have room.

use crate::popularity::Group;

const FREQUENCIES: usize = 4;
const STATES: usize = 3 * FREQUENCIES;
const COLD: usize = 0;
const CLEAN: usize = FREQUENCIES;
const DIRTY: usize = 2 * FREQUENCIES;

/// A key used more often between two passes never leaves RAM: the chance is below 1e-9.
const ACCESSES_MAX: f64 = 32.0;
/// Steps after which a chain has forgotten where it began.
const STEPS_MAX: usize = 256;
const SETTLED: f64 = 1e-10;
/// Halvings of the interval that the time between passes is sought in.
const HALVINGS: usize = 60;

type State = [f64; STATES];

/// What becomes of the accesses, in a steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Share of accesses whose value is in RAM.
    pub hit_ratio: f64,
    /// Values written to flash for each access, reads and writes alike.
    pub demotions_dirty: f64,
}

/// The steady state. `in_ram` is the share of values that has room, `writes` the share of accesses
/// that are writes.
pub fn steady_state(groups: &[Group], in_ram: f64, writes: f64) -> Outcome {
    if in_ram >= 1.0 {
        return Outcome { hit_ratio: 1.0, demotions_dirty: 0.0 };
    }
    // Accesses between two passes, for each key on average: by powers, from hardly any to so many
    // that all values but unused ones stay.
    let (mut low, mut high) = (-18.0f64, 60.0f64);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match at(groups, middle.exp(), writes).1 > in_ram {
            true => high = middle,
            false => low = middle,
        }
    }
    at(groups, low.exp(), writes).0
}

/// The outcome when a key sees `accesses` between two passes on average, and the share of values
/// that is then in RAM.
fn at(groups: &[Group], accesses: f64, writes: f64) -> (Outcome, f64) {
    let (mut hits, mut dirty, mut in_ram) = (0.0, 0.0, 0.0);
    for group in groups {
        let key = settle(accesses * group.accesses / group.keys, writes);
        hits += key.in_ram * group.accesses;
        in_ram += key.in_ram * group.keys;
        dirty += key.written * group.keys;
    }
    (Outcome { hit_ratio: hits, demotions_dirty: dirty / accesses }, in_ram)
}

/// One key, in its steady state.
struct KeyOutcome {
    /// Share of time that its value is in RAM.
    in_ram: f64,
    /// Times that it is written to flash, a pass.
    written: f64,
}

fn settle(accesses: f64, writes: f64) -> KeyOutcome {
    if accesses > ACCESSES_MAX {
        return KeyOutcome { in_ram: 1.0, written: 0.0 };
    }
    let mut state = State::default();
    state[COLD] = 1.0;
    let mut outcome = KeyOutcome { in_ram: 0.0, written: 0.0 };
    for _ in 0..STEPS_MAX {
        let (before_pass, in_ram) = between_passes(&state, accesses, writes);
        let next = pass(&before_pass);
        let moved: f64 = next.iter().zip(&state).map(|(new, old)| (new - old).abs()).sum();
        outcome = KeyOutcome { in_ram, written: before_pass[DIRTY] };
        state = next;
        if moved < SETTLED {
            break;
        }
    }
    outcome
}

/// The state at the next pass, and the share of the time until then that the value is in RAM.
fn between_passes(state: &State, accesses: f64, writes: f64) -> (State, f64) {
    let mut after = State::default();
    let mut in_ram = 0.0;
    // The chance of n accesses, and of more than n: the latter over the mean is how long, as a
    // share of the time, a key has seen exactly n.
    let (mut chance, mut more) = ((-accesses).exp(), 1.0);
    let mut seen = *state;
    let mut n = 0.0;
    loop {
        more -= chance;
        let share = if accesses > 1e-9 { (more / accesses).max(0.0) } else { f64::from(n == 0.0) };
        in_ram += share * seen[CLEAN..].iter().sum::<f64>();
        for (sum, part) in after.iter_mut().zip(&seen) {
            *sum += chance * part;
        }
        if more < 1e-12 {
            return (after, in_ram.min(1.0));
        }
        seen = access(&seen, writes);
        n += 1.0;
        chance *= accesses / n;
    }
}

/// One access.
fn access(state: &State, writes: f64) -> State {
    let mut next = State::default();
    for frequency in 0..FREQUENCIES {
        let raised = (frequency + 1).min(FREQUENCIES - 1);
        let (cold, clean, dirty) =
            (state[COLD + frequency], state[CLEAN + frequency], state[DIRTY + frequency]);
        let read_to = if raised > 1 { CLEAN } else { COLD };
        next[read_to + raised] += cold * (1.0 - writes);
        next[CLEAN + raised] += clean * (1.0 - writes);
        next[DIRTY + raised] += dirty + (cold + clean) * writes;
    }
    next
}

/// The hand passes.
fn pass(state: &State) -> State {
    let mut next = State::default();
    for place in [COLD, CLEAN, DIRTY] {
        for frequency in 1..FREQUENCIES {
            next[place + frequency - 1] += state[place + frequency];
        }
        next[COLD] += state[place];
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::popularity::{Law, at_best};
    use proptest::prelude::*;

    #[test]
    fn hit_ratios_are_those_that_servers_had() {
        // Law, keys, share in RAM, and what a `kelvin server` then measured over 2 M GETs.
        let cases = [(Law::Zipf(0.99), 1e6, 0.141, 0.840), (Law::Zipf(0.99), 4e6, 0.06, 0.797)];
        for (law, keys, in_ram, measured) in cases {
            let outcome = steady_state(&law.groups(keys), in_ram, 0.0);
            let best = at_best(&law.groups(keys), in_ram);
            println!("{law:?}: {:.4}, at best {best:.4}, measured {measured}", outcome.hit_ratio);
            assert!((outcome.hit_ratio - measured).abs() < 0.015, "{law:?}: {outcome:?}");
        }
    }

    #[test]
    fn uniform_accesses_hit_what_is_there() {
        for in_ram in [0.01, 0.1, 0.5, 0.9] {
            let outcome = steady_state(&Law::Uniform.groups(1e6), in_ram, 0.3);
            assert!((outcome.hit_ratio - in_ram).abs() < 1e-6, "{outcome:?}");
        }
    }

    #[test]
    fn reads_alone_write_nothing_and_uniform_writes_all_they_miss() {
        let groups = Law::Uniform.groups(1e6);
        assert_eq!(steady_state(&groups, 0.1, 0.0).demotions_dirty, 0.0);
        let outcome = steady_state(&groups, 0.1, 1.0);
        // Each write that does not find its value in RAM makes another leave.
        assert!((outcome.demotions_dirty - 0.9).abs() < 0.01, "{outcome:?}");
    }

    fn any_law() -> impl Strategy<Value = Law> {
        prop_oneof![
            Just(Law::Uniform),
            (0.3..1.5f64).prop_map(Law::Zipf),
            (0.01..0.5f64).prop_map(Law::Gaussian),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn more_ram_never_hits_less(
            law in any_law(), in_ram in 0.01..0.9f64, more in 1.0..3.0f64, writes in 0.0..1.0f64
        ) {
            let groups = law.groups(1e7);
            let less = steady_state(&groups, in_ram, writes);
            let larger = steady_state(&groups, (in_ram * more).min(1.0), writes);
            prop_assert!(larger.hit_ratio >= less.hit_ratio - 1e-6, "{:?} {:?}", less, larger);
            prop_assert!(less.hit_ratio <= at_best(&groups, in_ram) + 1e-3);
            prop_assert!(less.demotions_dirty <= writes + 1e-6);
        }
    }
}
