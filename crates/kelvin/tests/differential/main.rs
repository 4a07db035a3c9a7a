//! Random commands, sent to a real redis-server and to Kelvin, must be answered alike, whatever is
//! on flash.
//!
//! Kelvin gets so little memory that values leave it by themselves, and between the commands it is
//! told to demote, promote and flush besides. Replies are compared byte by byte, but for what
//! depends on time or has no order (see `commands`). Now and then, and at the end, the digests of
//! the whole data sets must be the same (see `digest`).
//!
//! `KELVIN_DIFF_COMMANDS` says how many commands all tests together send, `KELVIN_DIFF_SEED` with
//! which seed. A failure prints its seed and the shortest run that shows it.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod compare;
mod digest;
mod generator;
mod grammar;
mod random;
mod runner;
mod shrink;
mod words;

use std::collections::BTreeSet;

use digest::DigestPair;
use generator::{Action, Generator, Scope, Step};
use random::Random;
use runner::Pair;
use support::Server;

/// Commands of all tests together when nobody says how many: enough to notice that something is
/// wrong, in a debug build too.
const COMMANDS_DEFAULT: usize = 40_000;
/// The tests that share them.
const TESTS: usize = 6;
/// Streams of the test that runs several at once.
const STREAMS: u8 = 4;
const SEED_DEFAULT: u64 = 20_260_000;
/// Runs shorter than this do not fill Kelvin's memory first.
const FILLED_MIN: usize = 100_000;
/// Commands between two comparisons of all data.
const DIGEST_EVERY: usize = 20_000;
/// What tests of both servers need.
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];
/// Steps before the difference that are shown when it does not show again.
const SHOWN_STEPS: usize = 60;

#[test]
fn one_worker() {
    check(1, &["--workers", "1"]);
}

#[test]
fn two_workers() {
    check(2, &["--workers", "2", "--tier-compression-min-bytes", "64"]);
}

#[test]
fn one_worker_with_promotion_on_access() {
    check(3, &["--workers", "1", "--tier-promotion", "access", "--flash-io", "threads"]);
}

#[test]
fn two_workers_with_promotion_on_access() {
    check(4, &["--workers", "2", "--tier-promotion", "access", "--tier-compression", "none"]);
}

/// What the journal has, which is begun anew now and then, is the same data again.
#[test]
fn two_workers_with_a_journal() {
    let grows = ["--auto-aof-rewrite-min-size", "256kb", "--auto-aof-rewrite-percentage", "8"];
    let options = [&["--workers", "2", "--appendonly", "yes"], &grows[..]].concat();
    let Pair { redis, mut kelvin } = check(6, &options);
    kelvin.connect().send(&["SHUTDOWN"]);
    assert!(kelvin.wait().success());
    let dir = kelvin.directory().to_str().expect("a path in UTF-8");
    let again = start_kelvin(&[&options[..], &["--dir", dir, "--flash-path", dir]].concat());
    let pair = Pair { redis, kelvin: again };
    for server in [&pair.redis, &pair.kelvin] {
        // Small sorted sets are packed as they are loaded from a snapshot, and have no -0 then, in Redis as well.
        assert_eq!(support::show(&server.connect().call(&["DEBUG", "RELOAD"])), "+OK");
    }
    let mut digests = DigestPair { redis: pair.redis.connect(), kelvin: pair.kelvin.connect() };
    if let Err(difference) = digests.compare_started_again() {
        panic!("{}", difference.kelvin);
    }
    let info = support::text(&pair.kelvin.connect().call(&["INFO", "persistence"]));
    assert!(info.contains("aof_enabled:1"), "{info}");
}

/// Each client has databases of its own, so that its replies do not depend on the others.
#[test]
fn several_clients_at_once_on_two_workers() {
    let settings = Settings::from_environment(5);
    let pair = start(&["--workers", "2"]);
    let run = |stream: u8| {
        let seed = settings.seed + 1000 * u64::from(stream);
        let commands = settings.commands / usize::from(STREAMS);
        Run { seed, scope: Scope::FourFrom(4 * stream), commands, fill: Vec::new() }
    };
    let runs: Vec<Run> = (0..STREAMS).map(run).collect();
    let results: Vec<Result<usize, Failure>> = std::thread::scope(|scope| {
        let drive = |run| drive(&pair, run);
        let threads: Vec<_> = runs.iter().map(|run| scope.spawn(move || drive(run))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a result")).collect()
    });
    for (run, result) in runs.iter().zip(results) {
        match result {
            Ok(sent) => eprintln!("seed {}: {sent} commands answered alike", run.seed),
            Err(failure) => fail(&pair, run, failure),
        }
    }
    if let Err(difference) = pair.connect().run(&[Step::digest()]) {
        panic!("the data sets differ: {} {}", difference.redis, difference.kelvin);
    }
    eprintln!("  {}", check_moves(&pair.kelvin));
}

#[test]
fn every_command_on_keys_is_sent() {
    let sent = commands::COMMANDS.iter().chain(commands::SWEEPING).chain(commands::TRANSACTION);
    let sent: BTreeSet<&str> = sent.map(|command| command.name).collect();
    for row in command::family::FAMILIES.iter().copied().flatten() {
        let container = row.name.split('|').next().expect("a name");
        let is_left_out = commands::LEFT_OUT.iter().any(|(name, _)| *name == row.name);
        assert!(sent.contains(container) || is_left_out, "{} is never sent", row.name);
    }
}

/// What the environment says, for one test.
struct Settings {
    seed: u64,
    commands: usize,
}

impl Settings {
    fn from_environment(test: u64) -> Settings {
        let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
        let commands = number("KELVIN_DIFF_COMMANDS").map_or(COMMANDS_DEFAULT, |count: u64| {
            usize::try_from(count).expect("a number of commands")
        });
        let seed = number("KELVIN_DIFF_SEED").unwrap_or(SEED_DEFAULT) + test;
        Settings { seed, commands: commands / TESTS }
    }
}

/// A stream of commands and where it goes.
struct Run {
    seed: u64,
    scope: Scope,
    commands: usize,
    /// What is sent first.
    fill: Vec<Step>,
}

/// What was sent, and the difference at its last step.
struct Failure {
    steps: Vec<Step>,
    difference: runner::Difference,
}

/// Both servers, Kelvin with little of everything.
fn start(options: &[&str]) -> Pair {
    Pair { redis: Server::redis(&DEBUG), kelvin: start_kelvin(options) }
}

fn start_kelvin(options: &[&str]) -> Server {
    let all = ["--maxmemory", "48mb", "--flash-segment-size", "1mb"];
    Server::kelvin_with_flash("72mb", &[&DEBUG[..], &all, options].concat())
}

/// Sends this test's share of the commands. Returns the servers.
fn check(test: u64, options: &[&str]) -> Pair {
    let Settings { seed, commands } = Settings::from_environment(test);
    let pair = start(options);
    let fill = if commands < FILLED_MIN { Vec::new() } else { fill(seed) };
    let run = Run { seed, scope: Scope::All, commands, fill };
    match drive(&pair, &run) {
        Ok(sent) => eprintln!("seed {seed}: {sent} commands answered alike with {options:?}"),
        Err(failure) => fail(&pair, &run, failure),
    }
    eprintln!("  {}", check_moves(&pair.kelvin));
    pair
}

/// Sends a stream. Returns how many commands were answered alike.
fn drive(pair: &Pair, run: &Run) -> Result<usize, Failure> {
    let mut runner = pair.connect();
    runner.run(&run.fill).expect("SET is answered alike");
    let mut generator = Generator::new(run.seed, run.scope);
    let mut sent = 0;
    while sent < run.commands {
        let mut turn = generator.turn();
        let after = sent + turn.len();
        let is_due = sent / DIGEST_EVERY < after / DIGEST_EVERY || after >= run.commands;
        // Other streams may be writing.
        if is_due && run.scope == Scope::All {
            turn.push(Step::digest());
        }
        if let Err(difference) = runner.run(&turn) {
            let mut steps = run.fill.clone();
            steps.extend(replay(run, sent));
            steps.extend_from_slice(&turn[..=difference.step]);
            return Err(Failure { steps, difference });
        }
        sent = after;
    }
    Ok(sent)
}

/// Checks that values have been on flash, and answers how often.
fn check_moves(kelvin: &Server) -> String {
    let info = support::text(&kelvin.connect().call(&["INFO", "tiering"]));
    let count = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in INFO")).parse::<u64>().expect("a number")
    };
    let names = [
        "tier_demoted_dirty",
        "tier_demoted_clean",
        "tier_promoted",
        "tier_read_ram",
        "tier_read_flash",
        "flash_device_reads",
        "flash_device_writes",
        "flash_gc_segments",
        "flash_gc_relocated",
        "tier_pressure_waits",
        "tier_nodes",
    ];
    for name in &names[..5] {
        assert!(count(name) > 0, "{name} is 0: the test does not reach flash");
    }
    names.map(|name| format!("{name} {}", count(name))).join(", ")
}

/// Sets all wide keys.
fn fill(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let set = |index| {
        let value = words::wide_value(&mut random);
        let words = vec![b"SET".to_vec(), words::wide_key(index), value];
        Step {
            connection: 0,
            turn: index / 100,
            action: Action::Both(words, commands::Rule::Exact),
        }
    };
    (0..words::WIDE_KEYS).map(set).collect()
}

/// The first `count` steps of a run again.
fn replay(run: &Run, count: usize) -> Vec<Step> {
    let mut generator = Generator::new(run.seed, run.scope);
    let mut steps = Vec::new();
    while steps.len() < count {
        steps.extend(generator.turn());
    }
    steps
}

/// Shows as little as it takes to bring a difference about. The servers must be at rest.
fn fail(pair: &Pair, run: &Run, failure: Failure) -> ! {
    let Failure { steps, difference: first } = failure;
    let (note, steps, difference) = match shrink::shrink(pair, &steps) {
        Some(shrunk) => ("shortened to", shrunk.steps, shrunk.difference),
        None => {
            let tail = steps[steps.len().saturating_sub(SHOWN_STEPS)..].to_vec();
            ("which did not show again; the last steps were", tail, first.clone())
        }
    };
    panic!(
        "seed {} (that of the test, which adds its number to KELVIN_DIFF_SEED): the servers \
         differ\n  redis   {}\n  kelvin  {}\n{note}\n{}\n  redis   {}\n  kelvin  {}\n",
        run.seed,
        first.redis,
        first.kelvin,
        shrink::show(&steps),
        difference.redis,
        difference.kelvin,
    );
}
