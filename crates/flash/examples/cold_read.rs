//! Measures cold reads through `EngineWorker`: reads a second, and CPU a read, as `fio` reports
//! them.
//!
//! ```text
//! cargo run --release -p flash --example cold_read -- /mnt/nvme0 4096 4 64 10 auto
//!     arguments: directory, payload bytes, GiB of data, reads in flight, seconds, backend
//! fio --name=cold --filename=/mnt/nvme0/fio --size=4g --rw=randread --bs=4k --direct=1 \
//!     --ioengine=io_uring --iodepth=64 --fixedbufs=1 --registerfiles=1 --time_based --runtime=10
//!     the file must have been written before: cpu = (usr% + sys%) * runtime / reads
//! ```
//! One thread that sleeps in `poll` on the worker's descriptor when nothing is left to reap, as a
//! runtime's event loop does. Latency is in the engine's own histogram.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use flash::{
    AppendError, Backend, Completion, EngineWorker, Lane, Location, LogConfig, ReadStart, Record,
    RecordId, RecordMeta, open_log, record_size,
};
use rustix::event::{PollFd, PollFlags};
use stdx::Random;

struct Arguments {
    directory: PathBuf,
    payload_bytes: usize,
    data_bytes: u64,
    depth: usize,
    duration: Duration,
    backend: Backend,
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    Some(Arguments {
        directory: words.next()?.into(),
        payload_bytes: words.next()?.parse().ok()?,
        data_bytes: words.next()?.parse::<u64>().ok()? << 30,
        depth: words.next()?.parse().ok()?,
        duration: Duration::from_secs(words.next()?.parse().ok()?),
        backend: match words.next()?.as_str() {
            "auto" => Backend::Auto,
            "uring" => Backend::Uring,
            "threads" => Backend::Threads,
            _ => return None,
        },
    })
}

fn main() {
    let Some(arguments) = arguments() else {
        eprintln!("usage: cold_read DIRECTORY PAYLOAD_BYTES GIB DEPTH SECONDS auto|uring|threads");
        std::process::exit(2);
    };
    let config = LogConfig {
        paths: vec![arguments.directory.clone()],
        flash_bytes: arguments.data_bytes + arguments.data_bytes / 8,
        workers: 1,
        segment_bytes: None,
        backend: arguments.backend,
    };
    let engine = open_log(&config, None).unwrap_or_else(|error| panic!("{error}"));
    let mut worker = engine.worker().unwrap_or_else(|error| panic!("{error}"));
    let started = Instant::now();
    let locations = fill(&mut *worker, &arguments);
    let records: Vec<RecordId> = locations.iter().map(|&at| engine.identify(at)).collect();
    let seconds = started.elapsed().as_secs_f64();
    let gigabytes = engine.stats().device_write_bytes as f64 / 1e9;
    println!("filled: {} records, {:.2} GB/s", locations.len(), gigabytes / seconds);

    let before = cpu_time();
    let started = Instant::now();
    let reads = read(&mut *worker, &records, &arguments);
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_time() - before;
    let stats = engine.stats();
    println!(
        "{}: {:.0} reads/s, {:.2} us CPU a read, {} device reads for {} reads, latency {:?}",
        stats.backend,
        reads as f64 / seconds,
        cpu.as_secs_f64() * 1e6 / reads as f64,
        stats.device_reads,
        stats.reads,
        stats.read_latency
    );
}

fn fill(worker: &mut dyn EngineWorker, arguments: &Arguments) -> Vec<Location> {
    let payload = vec![0x5A; arguments.payload_bytes];
    let size = record_size(16, payload.len());
    let mut locations = Vec::new();
    while (locations.len() * size) as u64 <= arguments.data_bytes {
        let key = format!("key-{:012}", locations.len());
        let record = Record { meta: RecordMeta::default(), key: key.as_bytes(), payload: &payload };
        match worker.append(Lane::Demote, &record) {
            Ok(at) => locations.push(at),
            Err(AppendError::Busy) => turn(worker, true, &mut Vec::new()),
            Err(error) => panic!("{error}"),
        }
    }
    worker.flush();
    while worker.in_flight() > 0 {
        turn(worker, true, &mut Vec::new());
    }
    locations
}

fn read(worker: &mut dyn EngineWorker, records: &[RecordId], arguments: &Arguments) -> u64 {
    let size = record_size(16, arguments.payload_bytes);
    let mut random = Random::new(1);
    let mut done = Vec::new();
    let (mut in_flight, mut reads) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < arguments.duration || in_flight > 0 {
        while in_flight < arguments.depth && started.elapsed() < arguments.duration {
            let record = records[random.below(records.len() as u64) as usize];
            match worker.read(record, size, record.at.units()) {
                ReadStart::Pending => in_flight += 1,
                ReadStart::Ready(_) => reads += 1,
                ReadStart::Busy => break,
                ReadStart::Failed(error) => panic!("{error}"),
            }
        }
        turn(worker, true, &mut done);
        for completion in done.drain(..) {
            let Completion::Read { token, result } = completion else { panic!("{completion:?}") };
            let record = result.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(record.location().units(), token);
            assert_eq!(record.payload().len(), arguments.payload_bytes);
            in_flight -= 1;
            reads += 1;
        }
    }
    reads
}

/// Hands over what is queued, sleeps until something has completed, takes it.
fn turn(worker: &mut dyn EngineWorker, sleep: bool, done: &mut Vec<Completion>) {
    worker.submit();
    if sleep {
        let wake = worker.wake_fd();
        rustix::event::poll(&mut [PollFd::new(&wake, PollFlags::IN)], None).unwrap_or_default();
    }
    worker.reap(done);
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    // Ticks would do for seconds of work; the scheduler's own count is in nanoseconds.
    let text = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = text.filter_map(|task| {
        let line = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        line.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}
