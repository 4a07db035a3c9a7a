//! What runs did: to see that they went where they were meant to go, and that a seed does the same
//! again.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use tier::Tier;

use crate::checker::Event;
use crate::collection::Action;
use crate::command::{Command, Operation};
use crate::reply::Reply;

/// Counts of one run, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Steps of the scheduler.
    pub steps: u64,
    /// Operations that were answered.
    pub answered: u64,
    /// Those that were refused for want of memory.
    pub refused: u64,
    /// Transactions that ran.
    pub committed: u64,
    /// Transactions that did not, since a watched key had changed.
    pub disturbed: u64,
    /// Reads of values that were on flash alone.
    pub cold_reads: u64,
    /// Values that left RAM.
    pub demoted: u64,
    /// Values that came back.
    pub promoted: u64,
    /// Values that could not be written and stayed.
    pub restored: u64,
    /// Keys that went.
    pub evicted: u64,
    /// Writes that waited for memory.
    pub waits: u64,
    /// Segments of the log that were collected.
    pub collected: u64,
    /// Messages that came to those who listen.
    pub heard: u64,
    /// Light clients that were let go by a look for new events.
    pub light: u64,
    /// Clients that newer ones had overtaken, let go.
    pub overtaken: u64,
    /// Heavy clients that were let go.
    pub heavy: u64,
    /// Light clients that newer ones have overtaken.
    pub passed: u64,
    /// Clients that were let go and found the turn spent again.
    pub behind: u64,
    /// Crashes of the server.
    pub crashes: u64,
    /// Checkpoints of the journal that took the place of what was in front of them.
    pub checkpoints: u64,
    /// Keys that a start has found with their values left on flash.
    pub kept: u64,
    /// Values that the last start found in the journal, where a checkpoint refers to them.
    pub recent: u64,
    /// Writes that were answered before a crash and lost by it.
    pub lost: u64,
    /// Fields with a time that were found behind crashes.
    pub timed_fields: u64,
    /// Entries that groups had not acknowledged, found likewise.
    pub pending: u64,
    /// Histories that were too wide to be checked: 0 or 1.
    pub unchecked: u64,
    /// A number that differs when anything went differently.
    pub fingerprint: u64,
}

impl Outcome {
    /// What the tier did in so many steps.
    pub(crate) fn new(steps: u64, tier: &Tier) -> Outcome {
        let counters = &tier.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Outcome {
            steps,
            cold_reads: count(&counters.read_flash),
            demoted: count(&counters.demoted_clean) + count(&counters.demoted_dirty),
            promoted: count(&counters.promoted),
            restored: count(&counters.restored),
            evicted: count(&counters.evicted),
            waits: count(&counters.pressure_waits),
            collected: tier.engine().map_or(0, |engine| engine.stats().gc_segments),
            ..Outcome::default()
        }
    }

    /// Counts an operation and how it was answered.
    pub(crate) fn add_event(&mut self, event: &Event) {
        let Some((at, reply)) = &event.answered else { return };
        self.answered += 1;
        self.refused += u64::from(reply.is_error("OOM") || reply.is_error("EXECABORT"));
        if let Operation::Transaction(_) = event.operation {
            self.committed += u64::from(matches!(reply, Reply::Array(_)));
            self.disturbed += u64::from(*reply == Reply::NullArray);
        }
        self.mix(*at);
    }

    /// Counts what a look behind a crash has found.
    pub(crate) fn add_look(&mut self, look: &Event) {
        let Some((_, Reply::Array(replies))) = &look.answered else { return };
        for (command, reply) in look.operation.commands().iter().zip(replies) {
            match (command, reply) {
                (Command::On(_, Action::HPExpireTime(_)), Reply::Array(times)) => {
                    let is_time = |time: &&Reply| matches!(time, Reply::Integer(1..));
                    self.timed_fields += times.iter().filter(is_time).count() as u64;
                }
                (Command::On(_, action), Reply::Array(entries)) if action.reads_pending() => {
                    self.pending += entries.len() as u64;
                }
                _ => {}
            }
        }
    }

    /// Counts what happened in the lines of a worker's turn.
    pub(crate) fn add_turns(&mut self, [light, overtaken, heavy, passed, behind]: [u64; 5]) {
        self.light += light;
        self.overtaken += overtaken;
        self.heavy += heavy;
        self.passed += passed;
        self.behind += behind;
    }

    /// Mixes something into the fingerprint.
    pub(crate) fn mix(&mut self, number: u64) {
        let mut hasher = DefaultHasher::new();
        (self.fingerprint, number).hash(&mut hasher);
        self.fingerprint = hasher.finish();
    }

    /// Adds another run.
    pub(crate) fn add(&mut self, other: Outcome) {
        self.steps += other.steps;
        self.answered += other.answered;
        self.refused += other.refused;
        self.committed += other.committed;
        self.disturbed += other.disturbed;
        self.cold_reads += other.cold_reads;
        self.demoted += other.demoted;
        self.promoted += other.promoted;
        self.restored += other.restored;
        self.evicted += other.evicted;
        self.waits += other.waits;
        self.collected += other.collected;
        self.heard += other.heard;
        let Outcome { light, overtaken, heavy, passed, behind, .. } = other;
        self.add_turns([light, overtaken, heavy, passed, behind]);
        self.crashes += other.crashes;
        self.checkpoints += other.checkpoints;
        self.kept += other.kept;
        self.recent += other.recent;
        self.lost += other.lost;
        self.timed_fields += other.timed_fields;
        self.pending += other.pending;
        self.unchecked += other.unchecked;
        // In whatever order the runs end.
        self.fingerprint ^= other.fingerprint;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { steps, answered, refused, committed, disturbed, .. } = self;
        let Outcome { cold_reads, demoted, promoted, restored, evicted, .. } = self;
        let Outcome { waits, collected, heard, unchecked, fingerprint, .. } = self;
        let Outcome { light, overtaken, heavy, passed, behind, .. } = self;
        let Outcome { crashes, lost, checkpoints, kept, recent, timed_fields, pending, .. } = self;
        writeln!(out, "{steps} steps, {answered} operations answered, {refused} refused")?;
        writeln!(out, "{committed} transactions committed, {disturbed} disturbed")?;
        writeln!(out, "values: {demoted} demoted, {promoted} promoted, {restored} restored")?;
        writeln!(out, "{cold_reads} cold reads, {collected} segments collected")?;
        writeln!(out, "{evicted} keys evicted, {waits} waits for memory, {heard} messages heard")?;
        writeln!(out, "turns: {light} light, {overtaken} overtaken, {heavy} heavy")?;
        writeln!(out, "{passed} times overtaken, {behind} times behind")?;
        writeln!(out, "{crashes} crashes, {lost} answered writes lost by them")?;
        writeln!(
            out,
            "{checkpoints} checkpoints, {kept} values found on flash by starts, {recent} in the journal"
        )?;
        writeln!(
            out,
            "{timed_fields} fields with times and {pending} pending entries found by them"
        )?;
        write!(out, "{unchecked} histories too wide to check; fingerprint {fingerprint:016x}")
    }
}
