//! The log under the conformance suite: on simulated drives with and without faults, and on files.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::config::{Backend, LogConfig};
use super::shared::Shared;
use super::{open_log, open_sim};
use crate::device::sim::{SimDisk, SimFaults};
use crate::engine::conformance::{Mix, Rig};
use crate::engine::fetched::FetchedRecord;
use crate::engine::{Completion, Engine, EngineWorker, GcProgress, Liveness, Owner, ReadStart};
use crate::error::{AppendError, EngineError};
use crate::limits::{READ_HEAP_BYTES_MAX, READ_POOL_BYTES, READS_IN_FLIGHT_MAX, RECORD_BYTES_MAX};
use crate::location::Location;
use crate::record::{Lane, OwnedRecord, Record, RecordMeta, record_size};

const SEGMENT_BYTES: u64 = 64 << 10;
/// How long it may take until a path is left.
pub(super) const LEAVE_TIME_MAX: Duration = Duration::from_secs(60);

pub(super) fn config(segments: u64, workers: usize) -> LogConfig {
    LogConfig {
        paths: Vec::new(),
        flash_bytes: segments * SEGMENT_BYTES,
        workers,
        segment_bytes: Some(SEGMENT_BYTES),
        backend: Backend::Auto,
    }
}

/// Sizes for segments of 64 KiB: small, large, larger than a segment.
pub(super) const MIX: Mix =
    Mix { keys: 300, steps: 4000, lens: [2000, 40_000, 200_000], resets: true, may_fail: false };

/// A directory of its own, removed at the end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kelvin-flash-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A run that was killed may have left one of the same number.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sim(seed: u64, paths: usize, segments: u64, workers: usize) -> (SimDisk, Arc<dyn Engine>) {
    let sector = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let disk = SimDisk::new(seed, paths, sector);
    let engine = open_sim(&disk, &config(segments, workers)).expect("opens");
    (disk, engine)
}

fn run_on_files(backend: Backend, paths: usize) {
    let directories: Vec<Directory> = (0..paths).map(|_| Directory::new()).collect();
    let paths = directories.iter().map(|directory| directory.0.clone()).collect();
    let config = LogConfig { paths, backend, ..config(64, 2) };
    let mut rig = Rig::new(open_log(&config, None).expect("opens"), 2, 11);
    rig.run(&MIX);
    rig.check_all_space_comes_back();
    drop(rig);
    for directory in &directories {
        let left = std::fs::read_dir(&directory.0).expect("the directory").count();
        assert_eq!(left, 0, "files are removed");
    }
}

#[test]
fn conformance_on_files_with_the_best_backend() {
    run_on_files(Backend::Auto, 1);
    run_on_files(Backend::Auto, 3);
}

#[test]
fn conformance_on_files_with_threads() {
    run_on_files(Backend::Threads, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn conformance_on_simulated_drives(
        seed: u64, paths in 1usize..4, workers in 1usize..4, extra in 0u64..16,
    ) {
        let segments = Shared::segments_min(workers) as u64 + extra;
        let (_disk, engine) = sim(seed, paths, segments, workers);
        let mut rig = Rig::new(engine, workers, seed);
        rig.run(&MIX);
        rig.check_all_space_comes_back();
    }

    #[test]
    fn nothing_wrong_is_served_by_drives_that_lie(seed: u64) {
        let (disk, engine) = sim(seed, 2, 64, 2);
        let faults = [
            SimFaults { lost_writes: 50, ..SimFaults::default() },
            SimFaults { torn_writes: 50, ..SimFaults::default() },
            SimFaults { misdirected_writes: 50, ..SimFaults::default() },
            SimFaults { flipped_bits: 50, ..SimFaults::default() },
            SimFaults { failed_reads: 50, ..SimFaults::default() },
        ];
        disk.set_faults(faults[(seed % 5) as usize].clone());
        let mut rig = Rig::new(engine, 2, seed);
        rig.run(&Mix { may_fail: true, ..MIX });
        prop_assert!(disk.failures() > 0);
        // Damage takes no space for ever: what is deleted comes back.
        disk.set_faults(SimFaults::default());
        rig.check_all_space_comes_back();
    }
}

/// The run of the fault loop: short, as it is run once for each of its operations.
const FAULT_MIX: Mix = Mix { keys: 60, steps: 400, may_fail: true, resets: false, ..MIX };

#[test]
fn the_nth_operation_fails_for_every_n() {
    for (number, paths) in (0u64..).zip([1, 1, 2].into_iter().cycle()) {
        let disk = SimDisk::new(7, paths, 512);
        disk.set_faults(SimFaults { fail_operation: Some(number), ..SimFaults::default() });
        let engine = open_sim(&disk, &config(24, 1)).expect("opens");
        let mut rig = Rig::new(engine, 1, 7);
        rig.run(&FAULT_MIX);
        let operations = disk.operations();
        disk.set_faults(SimFaults::default());
        // A read that failed once succeeds now, and a record that was not written is in RAM.
        let failed_before = rig.failed_reads;
        rig.check_all();
        assert_eq!(rig.failed_reads, failed_before, "operation {number}");
        if disk.failures() == 0 {
            assert!(number > 100, "the run does something");
            assert!(operations <= number);
            return;
        }
    }
}

#[test]
fn a_full_filesystem_stops_appends_to_new_blocks_only() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    let mix = Mix { steps: 500, resets: false, may_fail: true, ..MIX };
    rig.run(&mix);
    disk.set_faults(SimFaults { full: true, ..SimFaults::default() });
    rig.run(&Mix { steps: 50, ..mix });
    assert!(rig.records_returned > 0);
    disk.set_faults(SimFaults::default());
    assert_eq!(rig.engine.stats().paths_failed, 0);
    let failed_before = rig.failed_reads;
    rig.run(&mix);
    assert_eq!(rig.failed_reads, failed_before);
    assert!(rig.keys_on_flash() > 0, "blocks that are there are used");
}

// Single behaviours, on simulated drives.

fn record<'a>(key: &'a [u8], payload: &'a [u8]) -> Record<'a> {
    Record { meta: RecordMeta::default(), key, payload }
}

pub(super) fn append(worker: &mut dyn EngineWorker, key: &[u8], payload: &[u8]) -> Location {
    loop {
        match worker.append(Lane::Demote, &record(key, payload)) {
            Ok(at) => return at,
            Err(AppendError::Busy) => drop(settle(worker)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Turns until nothing is in flight; returns what completed.
pub(super) fn settle(worker: &mut dyn EngineWorker) -> Vec<Completion> {
    let mut done = Vec::new();
    while worker.in_flight() > 0 {
        worker.submit();
        worker.reap(&mut done);
    }
    done
}

#[test]
fn a_path_that_was_full_is_used_again() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut worker = engine.worker().expect("a worker");
    let capacity = engine.stats().capacity_bytes;
    let full_of_records = |worker: &mut dyn EngineWorker| {
        let mut failures = 0;
        for number in 0..100u32 {
            let value = [7; 4096];
            match worker.append(Lane::Demote, &record(&number.to_le_bytes(), &value)) {
                Ok(_) | Err(AppendError::Busy | AppendError::Full) => {}
                Err(error) => panic!("{error}"),
            }
            let done = settle(worker);
            failures +=
                done.iter().filter(|one| matches!(one, Completion::WriteFailed { .. })).count();
        }
        failures
    };
    assert_eq!(full_of_records(&mut *worker), 0);
    worker.flush();
    settle(&mut *worker);
    engine.reset();
    while engine.give_space_back() {}
    disk.set_faults(SimFaults { full: true, ..SimFaults::default() });
    assert!(full_of_records(&mut *worker) > 0);
    while engine.give_space_back() {}
    assert!(engine.stats().capacity_bytes < capacity, "there is no room yet");
    disk.set_faults(SimFaults::default());
    while engine.give_space_back() {}
    assert_eq!(engine.stats().capacity_bytes, capacity);
    assert_eq!(full_of_records(&mut *worker), 0);
}

#[test]
fn a_record_is_served_from_the_write_buffer_to_every_worker() {
    let (disk, engine) = sim(2, 1, 64, 2);
    let mut one = engine.worker().expect("a worker");
    let mut two = engine.worker().expect("a worker");
    let at = append(&mut *one, b"key", b"payload");
    for worker in [&mut one, &mut two] {
        match worker.read(engine.identify(at), record_size(3, 7), 1) {
            ReadStart::Ready(record) => assert_eq!(record.payload(), b"payload"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(disk.operations(), 0);
    one.flush();
    settle(&mut *one);
    assert!(matches!(two.read(engine.identify(at), record_size(3, 7), 1), ReadStart::Pending));
}

#[test]
fn reads_of_the_same_sectors_share_one_device_read() {
    let (disk, engine) = sim(2, 1, 64, 1);
    let mut worker = engine.worker().expect("a worker");
    let first = append(&mut *worker, b"one", b"payload of one");
    let second = append(&mut *worker, b"two", b"payload of two");
    worker.flush();
    settle(&mut *worker);
    let before = disk.operations();
    for (token, at) in [(1, first), (2, second), (3, first)] {
        assert!(matches!(
            worker.read(engine.identify(at), record_size(3, 14), token),
            ReadStart::Pending
        ));
    }
    let done = settle(&mut *worker);
    assert_eq!(disk.operations() - before, 1);
    assert_eq!(engine.stats().reads_merged, 2);
    assert_eq!(done.len(), 3);
    for completion in done {
        let Completion::Read { token, result } = completion else { panic!("{completion:?}") };
        let key: &[u8] = if token == 2 { b"two" } else { b"one" };
        assert_eq!(result.expect("read").key(), key);
    }
}

#[test]
fn a_cold_read_is_one_device_read_of_its_sectors_only() {
    let (disk, engine) = sim(2, 1, 64, 1);
    // In order, as they are.
    engine.set_read_ahead(false);
    let mut worker = engine.worker().expect("a worker");
    let places: Vec<Location> =
        (0..100u32).map(|key| append(&mut *worker, &key.to_le_bytes(), &[7; 1000])).collect();
    worker.flush();
    settle(&mut *worker);
    let (before, stats) = (disk.operations(), engine.stats());
    for (token, &at) in places.iter().enumerate() {
        assert!(matches!(
            worker.read(engine.identify(at), record_size(4, 1000), token as u64),
            ReadStart::Pending
        ));
        settle(&mut *worker);
    }
    assert_eq!(disk.operations() - before, 100);
    let bytes = engine.stats().device_read_bytes - stats.device_read_bytes;
    // 1,040 bytes lie in three or four sectors of 512.
    assert!((100 * 3 * 512..=100 * 4 * 512).contains(&bytes), "{bytes}");
}

#[test]
fn reads_in_flight_are_bounded() {
    let (_disk, engine) = sim(2, 1, 64, 1);
    let mut worker = engine.worker().expect("a worker");
    // One record a sector, so that no two reads are merged.
    let places: Vec<Location> = (0..READS_IN_FLIGHT_MAX as u32 + 1)
        .map(|key| append(&mut *worker, &key.to_le_bytes(), &[7; 512 - 36]))
        .collect();
    worker.flush();
    settle(&mut *worker);
    let mut starts = places.iter().map(|&at| worker.read(engine.identify(at), 512, at.units()));
    assert!(
        starts.by_ref().take(READS_IN_FLIGHT_MAX).all(|start| matches!(start, ReadStart::Pending))
    );
    assert!(matches!(starts.next(), Some(ReadStart::Busy)));
    drop(starts);
    assert_eq!(settle(&mut *worker).len(), READS_IN_FLIGHT_MAX);
}

#[test]
fn a_record_beyond_the_limit_is_refused() {
    let (_disk, engine) = sim(2, 1, 64, 1);
    let mut worker = engine.worker().expect("a worker");
    let payload = vec![0; RECORD_BYTES_MAX];
    let owned = OwnedRecord { payload, key: b"k".to_vec(), ..OwnedRecord::default() };
    let refused = worker.append(Lane::Demote, &owned.as_record());
    assert!(matches!(refused, Err(AppendError::TooLarge)));
    let refused = worker.append_owned(Lane::Demote, owned);
    assert!(matches!(refused, Err((AppendError::TooLarge, _))));
}

#[test]
fn a_record_that_no_segment_run_can_hold_leaves_the_log_as_it_was() {
    let (_disk, engine) = sim(2, 1, 24, 1);
    let mut worker = engine.worker().expect("a worker");
    let refused = worker.append(Lane::Demote, &record(b"k", &vec![0; 30 * SEGMENT_BYTES as usize]));
    assert!(matches!(refused, Err(AppendError::Full)));
    assert_eq!(engine.stats().segments_free, 24);
    let at = append(&mut *worker, b"k", &vec![1; 10 * SEGMENT_BYTES as usize]);
    settle(&mut *worker);
    let size = record_size(1, 10 * SEGMENT_BYTES as usize);
    let read = worker.read_blocking(at, size).expect("read");
    assert!(read.payload().iter().all(|&byte| byte == 1));
    engine.release(at, size);
    assert!(matches!(
        worker.read(engine.identify(at), size, 1),
        ReadStart::Pending | ReadStart::Failed(_)
    ));
    settle(&mut *worker);
}

/// Reads small records until no buffer is left, and holds them.
fn hold_all_read_buffers(
    engine: &Arc<dyn Engine>,
    worker: &mut dyn EngineWorker,
    len: usize,
) -> Vec<FetchedRecord> {
    let (mut held, mut token) = (Vec::new(), 0);
    let mut places = Vec::new();
    for key in 0..2 * (READ_POOL_BYTES + READ_HEAP_BYTES_MAX) / len {
        places.push(append(worker, &(key as u32).to_le_bytes(), &vec![7; len]));
    }
    worker.flush();
    settle(worker);
    for at in places {
        token += 1;
        match worker.read(engine.identify(at), record_size(4, len), token) {
            ReadStart::Pending => {}
            ReadStart::Busy => break,
            other => panic!("{other:?}"),
        }
    }
    for completion in settle(worker) {
        let Completion::Read { result, .. } = completion else { panic!("{completion:?}") };
        held.push(result.expect("read"));
    }
    held
}

#[test]
fn large_reads_end_while_all_read_buffers_are_held() {
    const LEN: usize = 20_000;
    const LARGE: usize = 3 << 20;
    let config = LogConfig { flash_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..config(64, 1) };
    let engine = open_sim(&SimDisk::new(2, 1, 512), &config).expect("opens");
    let mut worker = engine.worker().expect("a worker");
    let places: Vec<Location> =
        (0..3u8).map(|key| append(&mut *worker, &[key], &vec![key; LARGE])).collect();
    settle(&mut *worker);
    let held = hold_all_read_buffers(&engine, &mut *worker, LEN);
    for (token, &at) in places.iter().enumerate() {
        let start = worker.read(engine.identify(at), record_size(1, LARGE), token as u64);
        assert!(matches!(start, ReadStart::Pending), "{start:?}");
    }
    let mut done = settle(&mut *worker);
    assert_eq!(done.len(), places.len(), "reads that have ended");
    done.sort_by_key(|completion| match completion {
        Completion::Read { token, .. } => *token,
        other => panic!("{other:?}"),
    });
    for (key, completion) in (0u8..).zip(done) {
        let Completion::Read { result, .. } = completion else { unreachable!("as above") };
        assert!(result.expect("read").payload().iter().all(|&byte| byte == key));
    }
    drop(held);
}

#[test]
fn a_location_that_was_never_given_is_refused_and_never_panics() {
    let (_disk, engine) = sim(2, 1, 24, 1);
    let mut worker = engine.worker().expect("a worker");
    let at = append(&mut *worker, b"key", b"payload");
    let first = at.units();
    for flushed in [false, true] {
        if flushed {
            worker.flush();
            settle(&mut *worker);
        }
        for units in [0, first - 1, first + 1, first + 5000, u64::from(u32::MAX), (1 << 40) - 1] {
            for size in [0, 16, 32, 48, 4096, 60_000, 1 << 20] {
                let at = Location::from_units(units);
                if (units, size) == (first, 48) {
                    continue;
                }
                match worker.read(engine.identify(at), size, 1) {
                    ReadStart::Failed(EngineError::Gone { .. }) => {}
                    ReadStart::Pending => {
                        let done = settle(&mut *worker);
                        let failed = matches!(done[..], [Completion::Read { result: Err(_), .. }]);
                        assert!(failed, "{units} {size}");
                    }
                    other => panic!("{units} {size}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn damage_is_reported_with_its_place() {
    let (disk, engine) = sim(2, 1, 64, 1);
    let mut worker = engine.worker().expect("a worker");
    let at = append(&mut *worker, b"key", b"payload");
    worker.flush();
    settle(&mut *worker);
    disk.overwrite(0, at.bytes() as usize + 36, b"!");
    match worker.read_blocking(at, record_size(3, 7)) {
        Err(EngineError::Corrupted { path, segment, offset, what }) => {
            assert_eq!((path.as_str(), segment, offset, what), ("sim0", 0, 64, "checksum"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.stats().checksum_failures, 1);
}

#[test]
fn a_failed_path_is_left_and_the_others_go_on() {
    let (disk, engine) = sim(4, 2, 64, 1);
    let mut rig = Rig::new(engine, 1, 4);
    let mix = Mix { steps: 300, resets: false, may_fail: true, ..MIX };
    rig.run(&mix);
    disk.set_faults(SimFaults { fail_operation: Some(disk.operations()), ..SimFaults::default() });
    while rig.engine.stats().paths_failed == 0 {
        // The operation with that number may be a read: the next one it is then.
        let fail_operation = Some(disk.operations());
        disk.set_faults(SimFaults { fail_operation, ..SimFaults::default() });
        rig.run(&Mix { steps: 20, ..mix });
    }
    disk.set_faults(SimFaults::default());
    let failed_before = rig.failed_reads;
    rig.run(&mix);
    assert_eq!(rig.failed_reads, failed_before, "what the failed path holds stays readable");
    assert_eq!(rig.engine.stats().paths_failed, 1);
    assert!(rig.keys_on_flash() > 0);
}

#[test]
fn when_all_paths_have_failed_appends_say_so_and_what_was_not_written_stays_readable() {
    let (disk, engine) = sim(2, 1, 64, 1);
    let mut worker = engine.worker().expect("a worker");
    let at = append(&mut *worker, b"key", b"payload");
    disk.set_faults(SimFaults { failed_writes: 1000, ..SimFaults::default() });
    worker.flush();
    let done = settle(&mut *worker);
    let [Completion::WriteFailed { records, error }] = &done[..] else { panic!("{done:?}") };
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].0, &records[0].1.key[..]), (at, &b"key"[..]));
    assert!(matches!(error, EngineError::Io { operation: "write", errno: libc::EIO, .. }));
    // Until the tier has put them back into RAM, all can read them.
    let mut other = engine.worker().expect("a worker");
    let read = other.read(engine.identify(at), record_size(3, 7), 1);
    let ReadStart::Ready(found) = read else { panic!("{read:?}") };
    assert_eq!(found.payload(), b"payload");
    drop((found, done));
    let read = worker.read(engine.identify(at), record_size(3, 7), 1);
    assert!(matches!(read, ReadStart::Failed(EngineError::Gone { .. })));
    let refused = worker.append(Lane::Demote, &record(b"key", b"payload"));
    assert!(matches!(refused, Err(AppendError::Failed(EngineError::Io { .. }))));
}

#[test]
fn the_flash_size_can_be_raised_and_lowered_under_load() {
    let (_disk, engine) = sim(6, 2, 40, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 6);
    let mix = Mix { steps: 3000, resets: false, ..MIX };
    for segments in [40, 80, 24, 60, 30] {
        engine.resize(segments * SEGMENT_BYTES).expect("resized");
        rig.run(&mix);
        rig.gc_all();
        let stats = engine.stats();
        assert_eq!(engine.free_space().capacity_bytes, segments * SEGMENT_BYTES);
        assert_eq!(stats.capacity_bytes, segments * SEGMENT_BYTES, "{stats:?}");
    }
    let refused = engine.resize(3 * SEGMENT_BYTES);
    assert!(matches!(refused, Err(EngineError::Settings(text)) if text.contains("too small")));
    rig.check_all_space_comes_back();
}

#[test]
fn space_that_is_free_for_long_goes_back_to_the_drive() {
    let (_disk, engine) = sim(2, 1, 64, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    (0..100).for_each(|key| rig.put(0, key, 20_000));
    rig.check_all_space_comes_back();
    let punched = std::iter::from_fn(|| engine.give_space_back().then_some(())).count();
    assert!(punched > 10, "{punched}");
    let stats = engine.stats();
    assert_eq!(stats.capacity_bytes, 64 * SEGMENT_BYTES);
    // What was given back is written again without harm.
    rig.run(&Mix { resets: false, ..MIX });
}

// Paths that come and go.

pub(super) fn sim_paths(numbers: &[u64]) -> Vec<PathBuf> {
    numbers.iter().map(|number| PathBuf::from(format!("sim{number}"))).collect()
}

/// Collects and gives space back until every path that is not listed is closed. Where the log is so
/// full that nothing can be moved, keys go, as by eviction.
fn leave_paths(rig: &mut Rig) {
    let mut keys = 0..MIX.keys as u32;
    let deadline = Instant::now() + LEAVE_TIME_MAX;
    loop {
        rig.gc_all();
        while rig.engine.give_space_back() {}
        if rig.engine.stats().paths_leaving == 0 {
            return;
        }
        // The janitor may have a segment in its hands, for as long as the drive takes.
        assert!(Instant::now() < deadline, "never left: {:?}", rig.engine.stats());
        if rig.engine.free_space().free_bytes < 8 * SEGMENT_BYTES
            && let Some(key) = keys.next()
        {
            rig.delete(key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn paths_come_and_go_under_load(
        seed: u64,
        workers in 1usize..3,
        changes in prop::collection::vec((1u64..16, prop::option::of(0u64..40), any::<bool>()), 1..8),
    ) {
        let segments = Shared::segments_min(workers) as u64 + 24;
        let (disk, engine) = sim(seed, 2, segments, workers);
        let mut rig = Rig::new(Arc::clone(&engine), workers, seed);
        let mix = Mix { steps: 500, ..MIX };
        rig.run(&mix);
        let mut paths = Vec::new();
        for (bits, size, waits) in changes {
            let numbers: Vec<u64> = (0..4).filter(|number| bits >> number & 1 == 1).collect();
            paths = sim_paths(&numbers);
            engine.set_paths(&paths).expect("there is room");
            prop_assert_eq!(engine.stats().paths, numbers.len() as u64);
            if let Some(more) = size {
                let segments = Shared::segments_min(workers) as u64 + more;
                engine.resize(segments * SEGMENT_BYTES).expect("there is room");
            }
            rig.run(&mix);
            if waits {
                leave_paths(&mut rig);
            }
        }
        leave_paths(&mut rig);
        let mut left = disk.directories();
        left.sort();
        prop_assert_eq!(left.iter().map(PathBuf::from).collect::<Vec<_>>(), paths);
        rig.check_all();
        rig.check_all_space_comes_back();
    }
}

#[test]
fn a_new_path_is_written_and_an_old_one_is_left_with_all_its_records() {
    let (disk, engine) = sim(2, 1, 64, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    // Of each size; the last are larger than a segment.
    (0..30).for_each(|key| rig.put(0, key, 20_000));
    (30..34).for_each(|key| rig.put(0, key, 150_000));
    rig.flush_all();
    engine.set_paths(&sim_paths(&[0, 1])).expect("there is room");
    assert_eq!(disk.directories(), ["sim0", "sim1"]);
    let stats = engine.stats();
    assert_eq!((stats.paths, stats.paths_leaving), (2, 0));
    assert_eq!(stats.capacity_bytes, 64 * SEGMENT_BYTES, "the flash size stays");
    engine.set_paths(&sim_paths(&[1])).expect("there is room");
    let stats = engine.stats();
    assert_eq!((stats.paths, stats.paths_leaving), (1, 1));
    assert!(stats.leaving_bytes >= 18 * SEGMENT_BYTES, "{stats:?}");
    rig.check_all();
    leave_paths(&mut rig);
    assert_eq!(disk.directories(), ["sim1"]);
    assert_eq!(engine.stats().leaving_bytes, 0);
    let before = disk.operations();
    rig.check_all();
    assert!(disk.operations() > before, "the records are read from the path that is left");
    // The model finds some of the values in RAM, or deleted.
    let moved = engine.stats().gc_relocated_bytes;
    assert!(moved > 30 * 20_000 + 150_000, "{moved}");
    rig.check_all_space_comes_back();
}

#[test]
fn paths_that_cannot_work_are_refused_and_nothing_changes() {
    let (disk, engine) = sim(2, 2, 64, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    rig.run(&Mix { steps: 500, ..MIX });
    disk.set_file_bytes_max(40 * SEGMENT_BYTES);
    let cases = [
        (vec![], "1 to 64 paths"),
        (sim_paths(&[0, 1, 1]), "sim1 is given twice"),
        (sim_paths(&[0]), "not enough space for flash: sim0"),
        (sim_paths(&[2]), "not enough space for flash: sim2"),
    ];
    let before = engine.stats();
    for (paths, reason) in cases {
        let text = engine.set_paths(&paths).expect_err("refused").to_string();
        assert!(text.contains(reason), "{text:?} does not say {reason:?}");
        assert_eq!(engine.stats(), before);
        assert_eq!(disk.directories(), ["sim0", "sim1"]);
    }
    // There is room when the flash is smaller.
    engine.resize(40 * SEGMENT_BYTES).expect("resized");
    engine.set_paths(&sim_paths(&[2])).expect("there is room");
    rig.run(&Mix { resets: false, ..MIX });
    leave_paths(&mut rig);
    assert_eq!(disk.directories(), ["sim2"]);
    rig.check_all_space_comes_back();
}

#[test]
fn a_path_that_failed_can_be_replaced() {
    let (disk, engine) = sim(2, 1, 64, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    (0..20).for_each(|key| rig.put(0, key, 20_000));
    rig.flush_all();
    let mix = Mix { keys: 300, steps: 50, may_fail: true, resets: false, ..MIX };
    disk.set_faults(SimFaults { failed_writes: 1000, ..SimFaults::default() });
    rig.run(&mix);
    disk.set_faults(SimFaults::default());
    assert_eq!(engine.stats().paths_failed, 1);
    assert!(rig.keys_on_flash() > 10, "what had been written before is there");
    engine.set_paths(&sim_paths(&[7])).expect("there is room");
    leave_paths(&mut rig);
    let stats = engine.stats();
    assert_eq!((stats.paths, stats.paths_failed), (1, 0));
    assert_eq!(disk.directories(), ["sim7"]);
    rig.check_all();
}

#[test]
fn a_victim_whose_survivors_have_no_place_is_read_once() {
    let (disk, engine) = sim(2, 1, 64, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    (1000..1020).for_each(|key| rig.put(0, key, 10_000));
    rig.flush_all();
    (1000..1020).filter(|key| key % 4 != 0).for_each(|key| rig.delete(key));
    disk.set_faults(SimFaults { failed_writes: 1000, ..SimFaults::default() });
    rig.run(&Mix { keys: 300, steps: 50, may_fail: true, resets: false, ..MIX });
    disk.set_faults(SimFaults::default());
    assert_eq!(engine.stats().paths_failed, 1);
    rig.gc_all();
    let read = engine.stats().gc_read_bytes;
    assert!(read > 0, "there is a victim");
    (0..5).for_each(|_| rig.gc_all());
    assert_eq!(engine.stats().gc_read_bytes, read, "nothing has changed since");
}

/// Says that all lives, and lets it move.
#[derive(Default)]
pub(super) struct Keeper(pub(super) Mutex<HashSet<Location>>);

impl Owner for Keeper {
    fn is_live(&self, _: &Record<'_>, at: Location) -> Liveness {
        if self.0.lock().contains(&at) { Liveness::Live } else { Liveness::Dead }
    }

    fn relocate(&self, _: &Record<'_>, from: Location, to: Location) -> bool {
        let mut places = self.0.lock();
        places.remove(&from) && places.insert(to)
    }
}

#[test]
fn segments_that_workers_leave_nearly_empty_are_collected() {
    const SEGMENTS: u64 = 24;
    let (_disk, engine) = sim(2, 1, SEGMENTS, 1);
    let mut collector = engine.worker().expect("a worker");
    let keeper = Keeper::default();
    for number in 0..5 * SEGMENTS as u32 {
        let mut worker = engine.worker().expect("a worker");
        let at = append(&mut *worker, &number.to_le_bytes(), &[7; 1000]);
        keeper.0.lock().insert(at);
        drop(worker);
        while collector.gc(&keeper, 1 << 20) != GcProgress::Idle {
            settle(&mut *collector);
        }
    }
    assert_eq!(keeper.0.lock().len(), 5 * SEGMENTS as usize);
}

fn change_paths_on_files(backend: Backend) {
    let [one, two, three] = [(); 3].map(|()| Directory::new());
    let listed = |directories: &[&Directory]| -> Vec<PathBuf> {
        directories.iter().map(|directory| directory.0.clone()).collect()
    };
    let files =
        |directory: &Directory| std::fs::read_dir(&directory.0).expect("it is there").count();
    let config = LogConfig { paths: listed(&[&one]), backend, ..config(64, 2) };
    let engine = open_log(&config, None).expect("opens");
    let mut rig = Rig::new(Arc::clone(&engine), 2, 5);
    let mix = Mix { steps: 2000, resets: false, ..MIX };
    rig.run(&mix);
    let missing = PathBuf::from("/nonexistent/flash");
    let refused = engine.set_paths(&[one.0.clone(), two.0.clone(), missing]);
    let text = refused.expect_err("refused").to_string();
    assert_eq!(text, "flash path /nonexistent/flash is not a directory");
    assert_eq!((files(&one), files(&two)), (1, 0), "a refusal leaves nothing behind");
    engine.set_paths(&listed(&[&one, &two])).expect("added");
    engine.set_paths(&listed(&[&one, &two])).expect("again");
    rig.run(&mix);
    let written = std::fs::read(two.0.join("kelvin.flash")).expect("the file");
    assert!(written.iter().any(|&byte| byte != 0), "the new path is used");
    engine.set_paths(&listed(&[&two])).expect("left");
    rig.run(&mix);
    leave_paths(&mut rig);
    assert_eq!((files(&one), files(&two)), (0, 1));
    // The index of the file that went is given to the new one.
    engine.set_paths(&listed(&[&three])).expect("moved");
    rig.run(&mix);
    leave_paths(&mut rig);
    assert_eq!((files(&two), files(&three)), (0, 1));
    rig.check_all();
    engine.set_paths(&listed(&[&one])).expect("back again");
    rig.run(&mix);
    rig.check_all_space_comes_back();
    drop((engine, rig));
    assert_eq!((files(&one), files(&two), files(&three)), (0, 0, 0));
}

#[test]
fn paths_change_on_files_with_the_best_backend() {
    change_paths_on_files(Backend::Auto);
}

#[test]
fn paths_change_on_files_with_threads() {
    change_paths_on_files(Backend::Threads);
}

// Errors that the operator meets, on files.

fn refusal(config: &LogConfig) -> String {
    match open_log(config, None) {
        Ok(_) => panic!("{config:?} cannot work"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_reason() {
    let directory = Directory::new();
    let file = directory.0.join("file");
    std::fs::write(&file, "text").expect("written");
    let at = |path: PathBuf| LogConfig { paths: vec![path], ..config(64, 1) };
    let here = at(directory.0.clone());
    let cases = [
        (LogConfig { paths: Vec::new(), ..here.clone() }, "1 to 64 paths"),
        (at("/nonexistent/flash".into()), "is not a directory"),
        (at(file), "is not a directory"),
        (at("/proc".into()), "open failed"),
        (LogConfig { flash_bytes: 1 << 16, ..here.clone() }, "flash size too small"),
        (LogConfig { segment_bytes: Some(100_000), ..here.clone() }, "not a power of two"),
        (LogConfig { flash_bytes: 1 << 60, ..here.clone() }, "flash size too large"),
        (LogConfig { flash_bytes: 1 << 44, segment_bytes: Some(1 << 26), ..here.clone() }, "space"),
    ];
    for (config, reason) in cases {
        let text = refusal(&config);
        assert!(text.contains(reason), "{text:?} does not say {reason:?}");
    }
    let left: Vec<_> = std::fs::read_dir(&directory.0).expect("the directory").flatten().collect();
    assert_eq!(left.len(), 1, "a refusal leaves nothing behind: {left:?}");
}

#[test]
fn a_path_has_one_server() {
    let directory = Directory::new();
    let config = LogConfig { paths: vec![directory.0.clone()], ..config(64, 1) };
    let engine = open_log(&config, None).expect("opens");
    assert!(refusal(&config).contains("in use by another server"));
    assert!(directory.0.join("kelvin.flash").exists(), "the refused one removes nothing");
    drop(engine);
    open_log(&config, None).expect("opens again");
}
