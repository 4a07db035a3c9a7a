//! What Kelvin's demotion makes of a law of popularity: the hit ratio in RAM, and how much goes to
//! flash.
//!
//! The rules, from `crates/tier/src/demote.rs`, `crates/keyspace/src/slot.rs` and
//! `crates/server/src/execution/handler_run.rs`: an access raises a key's frequency, up to 3. The
//! hand lowers it as it passes; a value that it meets at 0 leaves RAM, and is written if it was
//! changed since it was last on flash. A write brings a value into RAM; a read does when the key
//! was used before ("second touch": its frequency is then above 1).
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
const STEPS_MAX: usize = 128;
const SETTLED: f64 = 1e-9;
/// Halvings of the interval that the time between passes is sought in.
const HALVINGS: usize = 38;

type State = [f64; STATES];

/// What becomes of the accesses, in a steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Share of values that are in RAM.
    pub in_ram: f64,
    /// Share of accesses whose value is in RAM.
    pub hit_ratio: f64,
    /// Values written to flash for each access, reads and writes alike.
    pub demotions_dirty: f64,
}

impl Outcome {
    /// When every value has room.
    pub const ALL_IN_RAM: Self = Self { in_ram: 1.0, hit_ratio: 1.0, demotions_dirty: 0.0 };
}

/// The steady state when a share of the values has room in RAM. `writes` is the share of accesses
/// that are writes.
pub fn with_share(groups: &[Group], in_ram: f64, writes: f64) -> Outcome {
    seek(groups, writes, |outcome| outcome.in_ram >= in_ram)
}

/// The steady state that serves a share of the accesses from RAM.
pub fn with_hit_ratio(groups: &[Group], hit_ratio: f64, writes: f64) -> Outcome {
    seek(groups, writes, |outcome| outcome.hit_ratio >= hit_ratio)
}

/// The one with the least in RAM that is enough.
fn seek(groups: &[Group], writes: f64, is_enough: impl Fn(&Outcome) -> bool) -> Outcome {
    // Accesses between two passes, for each key on average: by powers, from hardly any to so many
    // that all values but unused ones stay.
    let (mut low, mut high) = (-40.0f64, 60.0f64);
    let mut best = Outcome::ALL_IN_RAM;
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        let outcome = at(groups, middle.exp(), writes);
        if is_enough(&outcome) {
            (best, high) = (outcome, middle);
        } else {
            low = middle;
        }
    }
    best
}

/// The outcome when a key sees `accesses` between two passes on average.
fn at(groups: &[Group], accesses: f64, writes: f64) -> Outcome {
    let mut outcome = Outcome { in_ram: 0.0, hit_ratio: 0.0, demotions_dirty: 0.0 };
    for group in groups {
        let key = settle(accesses * group.accesses / group.keys, writes);
        outcome.hit_ratio += key.in_ram * group.accesses;
        outcome.in_ram += key.in_ram * group.keys;
        outcome.demotions_dirty += key.written * group.keys / accesses;
    }
    outcome
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
    fn outcomes_are_those_that_servers_had() {
        // Zipf's law with exponent 0.99. Keys, share of writes, share in RAM, and what a
        // `kelvin server` then had over two million requests: hits, dirty demotions a request.
        let cases = [
            (1e6, 0.0, 0.141, 0.840, 0.0),
            (4e6, 0.0, 0.06, 0.797, 0.0),
            (1e6, 0.5, 0.142, 0.8205, 0.0928),
            (1e6, 1.0, 0.142, 0.8085, 0.1915),
        ];
        for (keys, writes, in_ram, hits, dirty) in cases {
            let groups = Law::Zipf(0.99).groups(keys);
            let outcome = with_share(&groups, in_ram, writes);
            println!("at best {:.4}, {outcome:?}, measured {hits}", at_best(&groups, in_ram));
            assert!((outcome.hit_ratio - hits).abs() < 0.005, "{outcome:?} {hits}");
            assert!((outcome.demotions_dirty - dirty).abs() < 0.005, "{outcome:?} {dirty}");
        }
    }

    #[test]
    fn a_share_and_a_hit_ratio_lead_to_the_same_state() {
        let groups = Law::Gaussian(0.1).groups(1e8);
        let by_share = with_share(&groups, 0.3, 0.2);
        let by_hits = with_hit_ratio(&groups, by_share.hit_ratio, 0.2);
        assert!((by_hits.in_ram - 0.3).abs() < 1e-6, "{by_hits:?}");
        assert_eq!(with_share(&groups, 1.0, 0.2), Outcome::ALL_IN_RAM);
        assert!(with_hit_ratio(&groups, 1.0, 0.2).in_ram > 0.999);
    }

    #[test]
    fn uniform_accesses_hit_what_is_there() {
        for in_ram in [0.01, 0.1, 0.5, 0.9] {
            let outcome = with_share(&Law::Uniform.groups(1e6), in_ram, 0.3);
            assert!((outcome.hit_ratio - in_ram).abs() < 1e-6, "{outcome:?}");
        }
    }

    #[test]
    fn reads_alone_write_nothing_and_uniform_writes_all_they_miss() {
        let groups = Law::Uniform.groups(1e6);
        assert_eq!(with_share(&groups, 0.1, 0.0).demotions_dirty, 0.0);
        let outcome = with_share(&groups, 0.1, 1.0);
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
            let less = with_share(&groups, in_ram, writes);
            let larger = with_share(&groups, (in_ram * more).min(1.0), writes);
            prop_assert!(larger.hit_ratio >= less.hit_ratio - 1e-6, "{:?} {:?}", less, larger);
            prop_assert!(less.hit_ratio <= at_best(&groups, in_ram) + 1e-3);
            prop_assert!(less.demotions_dirty <= writes + 1e-6);
        }
    }
}
