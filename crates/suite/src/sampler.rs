//! A thread that looks at the server and the drive once a second while a load runs.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::drive::Drive;
use crate::error::SuiteError;
use crate::info::Client;
use crate::results::Sample;
use crate::snapshot::Snapshot;

const INTERVAL: Duration = Duration::from_secs(1);
/// A look sooner than this after the one before it takes its place: its rates would be noise.
const SECONDS_MIN: f64 = 0.5;

/// Where to look.
#[derive(Debug, Clone)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// The server's process, if it runs on this machine.
    pub pid: Option<u32>,
    /// The drive under its flash.
    pub drive: Option<Drive>,
}

/// What the looks said.
#[derive(Debug)]
pub struct Samples {
    /// Once a second.
    pub samples: Vec<Sample>,
    /// Share of reads served from RAM.
    pub ram_hit_ratio: Option<f64>,
    /// Share of writes in RAM.
    pub write_ram_hit_ratio: Option<f64>,
    /// CPU of the server in seconds.
    pub server_cpu_seconds: Option<f64>,
    /// CPU of all processes of this machine in seconds.
    pub machine_cpu_seconds: Option<f64>,
}

/// A running sampler.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Snapshot>>,
    latest: Arc<Mutex<Option<Sample>>>,
}

impl Sampler {
    /// Looks once, and then once a second.
    ///
    /// Errors: the server cannot be asked.
    pub fn start(target: Target) -> Result<Sampler, SuiteError> {
        let mut client = Client::connect(&target.address)?;
        let first = Snapshot::take(&client.info()?, target.pid, target.drive.as_ref());
        let (stop, stopped) = channel();
        let latest = Arc::new(Mutex::new(None));
        let shown = latest.clone();
        let thread = std::thread::spawn(move || look(&target, client, first, &stopped, &shown));
        Ok(Sampler { stop, thread, latest })
    }

    /// The last sample so far.
    pub fn latest(&self) -> Option<Sample> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks a last time and ends.
    pub fn stop(self) -> Samples {
        // The thread is there until it hears this.
        let _ = self.stop.send(());
        summarise(&self.thread.join().unwrap_or_default())
    }
}

/// A server that does not answer any more has no more looks: the load says what is wrong.
fn look(
    target: &Target,
    mut client: Client,
    first: Snapshot,
    stopped: &Receiver<()>,
    latest: &Mutex<Option<Sample>>,
) -> Vec<Snapshot> {
    let mut next = Instant::now() + INTERVAL;
    let mut snapshots = vec![first];
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        let ended = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        next += INTERVAL;
        let Ok(info) = client.info() else { return snapshots };
        snapshots.push(Snapshot::take(&info, target.pid, target.drive.as_ref()));
        if ended {
            return snapshots;
        }
        let (before, now) = (&snapshots[snapshots.len() - 2], &snapshots[snapshots.len() - 1]);
        let sample = now.sample(before, &snapshots[0]);
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }
}

fn summarise(snapshots: &[Snapshot]) -> Samples {
    let mut samples: Vec<Sample> = Vec::new();
    let start = snapshots.first();
    let mut before = start;
    for (index, now) in snapshots.iter().enumerate().skip(1) {
        let Some((start, earlier)) = start.zip(before) else { break };
        let is_last = index + 1 == snapshots.len();
        if is_last && now.seconds_since(earlier) < SECONDS_MIN && index > 1 {
            samples.pop();
            samples.push(now.sample(&snapshots[index - 2], start));
        } else {
            samples.push(now.sample(earlier, start));
        }
        before = Some(now);
    }
    let ends = start.zip(snapshots.last());
    Samples {
        samples,
        ram_hit_ratio: ends.and_then(|(start, end)| end.read_hit_ratio_since(start)),
        write_ram_hit_ratio: ends.and_then(|(start, end)| end.write_hit_ratio_since(start)),
        server_cpu_seconds: ends.and_then(|(start, end)| end.cpu_seconds_since(start)),
        machine_cpu_seconds: ends.and_then(|(start, end)| end.machine_cpu_seconds_since(start)),
    }
}
