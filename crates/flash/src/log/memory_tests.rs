//! What a log takes of RAM: write buffers, and large records that are written, moved and read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::config::LogConfig;
use super::open_sim;
use super::tests::{Keeper, LEAVE_TIME_MAX, MIX, append, config, settle, sim_paths};
use crate::device::sim::{SimDisk, SimFaults};
use crate::engine::conformance::{Mix, Rig};
use crate::engine::{Completion, Engine, EngineWorker, ReadStart};
use crate::error::AppendError;
use crate::limits::{GC_LARGE_BYTES_MAX, WRITE_BUFFER_BYTES, WRITE_BUFFERS, WRITE_BUFFERS_MIN};
use crate::location::Location;
use crate::record::{Lane, OwnedRecord, Record, RecordMeta, record_size};

#[test]
fn buffers_stay_within_eight_mebibytes_a_worker() {
    let config = LogConfig { flash_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..config(64, 1) };
    let disk = SimDisk::new(1, 1, 512);
    let engine = open_sim(&disk, &config).expect("opens");
    let table_bytes = engine.stats().buffer_bytes;
    let mut rig = Rig::new(Arc::clone(&engine), 1, 1);
    rig.run(&Mix { keys: 2000, steps: 10_000, lens: [20_000, 200_000, 200_000], ..MIX });
    let bytes = engine.stats().buffer_bytes - table_bytes;
    assert!(bytes <= 8 << 20, "{bytes}");
}

#[test]
fn memory_counts_before_it_is_taken_or_as_it_is() {
    const LARGE: usize = 1 << 20;
    let config = LogConfig { flash_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..config(64, 1) };
    let engine = open_sim(&SimDisk::new(1, 1, 512), &config).expect("opens");
    let table_bytes = engine.stats().buffer_bytes;
    let mut worker = engine.worker().expect("a worker");
    let counted_bytes = || {
        let stats = engine.stats();
        (stats.buffer_bytes - table_bytes + stats.unmade_bytes) as usize
    };
    let bytes = counted_bytes();
    let payload = vec![1; LARGE];
    let owned = OwnedRecord { payload, key: b"k".to_vec(), ..OwnedRecord::default() };
    let small = Record { payload: &[1; 100], ..owned.as_record() };
    worker.append(Lane::Demote, &small).expect("there is room");
    assert_eq!(counted_bytes(), bytes, "a write buffer was made");
    worker.append_owned(Lane::Demote, owned).expect("there is room");
    assert!(worker.unwritten_bytes() >= LARGE);
    assert_eq!(counted_bytes(), bytes + worker.unwritten_bytes());
    settle(&mut *worker);
    assert_eq!((worker.unwritten_bytes(), counted_bytes()), (0, bytes));
}

#[test]
fn a_worker_has_as_many_write_buffers_as_it_is_let_have() {
    let config = LogConfig { flash_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..config(64, 1) };
    let engine = open_sim(&SimDisk::new(1, 1, 512), &config).expect("opens");
    let mut worker = engine.worker().expect("a worker");
    let buffer_bytes = engine.stats().unmade_bytes / WRITE_BUFFERS as u64;
    let fill = |worker: &mut dyn EngineWorker| {
        let record = Record { meta: RecordMeta::default(), key: b"k", payload: &[7; 1000] };
        let appended =
            (0..1 << 20).try_for_each(|_| worker.append(Lane::Demote, &record).map(drop));
        assert!(matches!(appended, Err(AppendError::Busy)), "{appended:?}");
    };
    let made_and_not = || {
        let stats = engine.stats();
        (stats.buffer_bytes, stats.unmade_bytes / buffer_bytes)
    };
    let without = made_and_not().0;
    fill(&mut *worker);
    assert_eq!(made_and_not(), (without + WRITE_BUFFERS as u64 * buffer_bytes, 0));
    worker.bound_write_buffers(WRITE_BUFFERS_MIN);
    assert_eq!(made_and_not().0, without + WRITE_BUFFERS as u64 * buffer_bytes, "all are in use");
    settle(&mut *worker);
    assert_eq!(made_and_not(), (without + WRITE_BUFFERS_MIN as u64 * buffer_bytes, 0));
    fill(&mut *worker);
    assert_eq!(made_and_not(), (without + WRITE_BUFFERS_MIN as u64 * buffer_bytes, 0));
    worker.bound_write_buffers(WRITE_BUFFERS);
    assert_eq!(made_and_not().1, (WRITE_BUFFERS - WRITE_BUFFERS_MIN) as u64);
    drop(worker);
    let mut reader = engine.worker().expect("a side that appends nothing");
    reader.bound_write_buffers(0);
    assert_eq!(made_and_not(), (without, 0));
}

/// Workers of a log whose records are moved off a path, all of which live.
struct Leaving {
    engine: Arc<dyn Engine>,
    workers: Vec<Box<dyn EngineWorker>>,
    keeper: Keeper,
    of_before: HashSet<Location>,
    moving_max: usize,
}

impl Leaving {
    const WORKERS: usize = 4;

    /// So many records of that size.
    fn new(disk: &SimDisk, count: usize, size: usize) -> Leaving {
        let (flash_bytes, segment_bytes) = (128 << 20, Some(1 << 20));
        let config = LogConfig { flash_bytes, segment_bytes, ..config(64, Self::WORKERS) };
        let engine = open_sim(disk, &config).expect("opens");
        let worker = |_| engine.worker().expect("a worker");
        let mut workers: Vec<_> = (0..Self::WORKERS).map(worker).collect();
        let keeper = Keeper::default();
        for number in 0..count {
            let worker = &mut *workers[number % Self::WORKERS];
            let payload = vec![number as u8; size - record_size(8, 0)];
            let at = append(worker, &number.to_le_bytes(), &payload);
            keeper.0.lock().insert(at);
            settle(worker);
        }
        let of_before = keeper.0.lock().clone();
        engine.set_paths(&sim_paths(&[1])).expect("there is room");
        Leaving { engine, workers, keeper, of_before, moving_max: 0 }
    }

    /// One step of gc and a turn of each worker.
    fn step(&mut self) {
        for worker in &mut self.workers {
            worker.gc(&self.keeper, 1 << 20);
            worker.submit();
            worker.reap(&mut Vec::new());
        }
        let moving = self.workers.iter().map(|worker| worker.unwritten_bytes()).sum();
        self.moving_max = self.moving_max.max(moving);
        self.engine.give_space_back();
    }

    fn finish(&mut self) {
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        while self.engine.stats().paths_leaving > 0 {
            assert!(Instant::now() < deadline, "{:?}", self.engine.stats());
            self.step();
        }
    }

    /// Records that have not moved.
    fn left(&self) -> Vec<Location> {
        self.keeper.0.lock().intersection(&self.of_before).copied().collect()
    }
}

#[test]
fn few_large_records_are_moved_at_a_time_by_all_workers() {
    // The last fill blocks as large as those of small records.
    for (count, size) in [(16, 3 << 20), (8, 5 << 20), (200, WRITE_BUFFER_BYTES - 16)] {
        let mut leaving = Leaving::new(&SimDisk::new(1, 1, 512), count, size);
        leaving.finish();
        assert!(leaving.left().is_empty() && leaving.keeper.0.lock().len() == count);
        let (least, most) = (size, GC_LARGE_BYTES_MAX.max(size));
        assert!((least..=most).contains(&leaving.moving_max), "{size}: {}", leaving.moving_max);
    }
}

#[test]
fn what_is_no_longer_moved_holds_nobody_up() {
    // Larger than what is moved at a time, so that each waits for all others.
    const SIZE: usize = 5 << 20;
    let disk = SimDisk::new(1, 1, 512);
    let mut leaving = Leaving::new(&disk, 8, SIZE);
    for number in 0..Leaving::WORKERS {
        (0..3).for_each(|_| leaving.step());
        leaving.workers[number] = leaving.engine.worker().expect("a worker");
    }
    disk.set_faults(SimFaults { failed_reads: 1000, ..SimFaults::default() });
    (0..50).for_each(|_| leaving.step());
    disk.set_faults(SimFaults::default());
    let damaged = leaving.left();
    assert!(!damaged.is_empty(), "some were not readable");
    for at in damaged {
        leaving.keeper.0.lock().remove(&at);
        leaving.engine.release(at, SIZE);
    }
    leaving.finish();
}

#[test]
fn a_large_record_takes_its_own_memory_and_little_more() {
    const LEN: usize = 40 << 20;
    let config = LogConfig { flash_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..config(64, 1) };
    let engine = open_sim(&SimDisk::new(1, 1, 512), &config).expect("opens");
    let mut worker = engine.worker().expect("a worker");
    let mut bytes_max = 0;
    let mut settle_watching = |worker: &mut dyn EngineWorker| {
        let mut done = Vec::new();
        while worker.in_flight() > 0 {
            worker.submit();
            worker.reap(&mut done);
            bytes_max = bytes_max.max(engine.stats().buffer_bytes);
        }
        done
    };
    let payload: Vec<u8> = (0..LEN).map(|at| (at / 1000) as u8).collect();
    let owned = OwnedRecord { payload, key: b"k".to_vec(), ..OwnedRecord::default() };
    let size = record_size(1, LEN);
    let at = worker.append_owned(Lane::Demote, owned).expect("there is room");
    let ReadStart::Ready(read) = worker.read(engine.identify(at), size, 1) else {
        panic!("it is in RAM")
    };
    assert_eq!(read.payload().len(), LEN);
    drop(read);
    settle_watching(&mut *worker);
    assert!(matches!(worker.read(engine.identify(at), size, 2), ReadStart::Pending));
    let mut done = settle_watching(&mut *worker);
    let Some(Completion::Read { result: Ok(read), .. }) = done.pop() else { panic!("{done:?}") };
    let address = read.payload().as_ptr();
    let payload = read.into_payload();
    assert_eq!(payload.as_ptr(), address, "handed over without a copy");
    assert!(payload.iter().enumerate().all(|(at, &byte)| byte == (at / 1000) as u8));
    assert!(bytes_max <= (LEN + (9 << 20)) as u64, "{bytes_max}");
}
