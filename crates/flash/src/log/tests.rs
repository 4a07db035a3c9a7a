//! The log under the conformance suite: on simulated drives with and without faults, and on files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::config::{Backend, LogConfig};
use super::shared::Shared;
use super::{open_log, open_sim};
use crate::device::sim::{SimDisk, SimFaults};
use crate::engine::Engine;
use crate::engine::conformance::{Mix, Rig};

const SEGMENT_BYTES: u64 = 64 << 10;

fn config(segments: u64, workers: usize) -> LogConfig {
    LogConfig {
        paths: Vec::new(),
        flash_bytes: segments * SEGMENT_BYTES,
        workers,
        segment_bytes: Some(SEGMENT_BYTES),
        backend: Backend::Auto,
    }
}

/// Sizes for segments of 64 KiB: small, large, larger than a segment.
const MIX: Mix =
    Mix { keys: 300, steps: 4000, lens: [2000, 40_000, 200_000], resets: true, may_fail: false };

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kelvin-flash-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
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
    let mut rig = Rig::new(open_log(&config).expect("opens"), 2, 11);
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
