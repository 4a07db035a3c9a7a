//! One run of a load: its threads from their start to what they counted together.

use crate::LoadError;
use crate::control::Control;
use crate::cpu::CpuSeconds;
use crate::live::INTERVAL;
use crate::plan::{Plan, Until};
use crate::report::Run;
use crate::stats::Stats;
use crate::worker::{Outcome, Worker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `plan` on all its threads.
///
/// Errors: when a connection cannot be made, or the system refuses to wait for one.
pub fn run_all(plan: &Plan, control: &Control) -> Result<Run, LoadError> {
    let mut workers = Vec::new();
    for thread in 0..plan.threads {
        workers.push(Worker::new(plan, control, thread)?);
    }
    let start = Instant::now();
    let over = AtomicBool::new(false);
    let outcomes: Vec<Result<Outcome, LoadError>> = std::thread::scope(|scope| {
        let drawing = scope.spawn(|| draw_live(plan, control, start, &over));
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.run(start))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let outcomes = threads.into_iter().map(join).collect();
        over.store(true, Ordering::Relaxed);
        drawing.thread().unpark();
        outcomes
    });
    let (end, cpu) = (Instant::now(), CpuSeconds::now());
    let outcomes = outcomes.into_iter().collect::<Result<Vec<Outcome>, LoadError>>()?;
    let mut stats = Stats::new(plan.labels.len());
    for outcome in &outcomes {
        stats.add(&outcome.stats);
    }
    let (began, started, cpu_before) = outcomes[0].began;
    Ok(Run {
        cut_short: cut_short(plan, control, &stats),
        stats,
        started,
        seconds: (end - began).as_secs_f64(),
        cpu: cpu.since(cpu_before),
    })
}

/// Why the run did not come to its end, if it did not.
fn cut_short(plan: &Plan, control: &Control, stats: &Stats) -> Option<String> {
    if control.is_interrupted() {
        return Some("interrupted".to_owned());
    }
    let (lost, all) = (stats.connections_lost, plan.connections());
    let why = stats.error_texts.last().map_or("", String::as_str);
    (lost > 0).then(|| format!("{lost} of {all} connections were lost: {why}"))
}

/// Draws the live line until the run is over.
fn draw_live(plan: &Plan, control: &Control, start: Instant, over: &AtomicBool) {
    let Some(line) = &control.live else { return };
    line.begin();
    let requests: u64 =
        (0..plan.connections() as u64).filter_map(|index| plan.requests(index)).sum();
    let mut done = 0;
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(INTERVAL);
        let share = |done: u64| match plan.until {
            Until::Time(time) => {
                let elapsed = start.elapsed().saturating_sub(plan.warm_up);
                elapsed.as_secs_f64() / time.max(Duration::from_nanos(1)).as_secs_f64()
            }
            Until::Requests(_) | Until::PartOfKeys => done as f64 / requests.max(1) as f64,
        };
        done += line.draw(plan.threads, share(done));
    }
    line.clear();
}
