use crate::device::sim::{SimDisk, SimFaults};
use crate::engine::conformance::{Mix, Rig};
use crate::engine::{Completion, Engine, EngineWorker};
use crate::error::AppendError;
use crate::log::{Backend, LogConfig, open_sim, reopen_sim};
use crate::record::{Lane, Record, RecordMeta, record_size};

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 40;

const MIX: Mix =
    Mix { keys: 300, steps: 2000, lens: [2000, 40_000, 40_000], resets: false, may_fail: false };

fn config() -> LogConfig {
    LogConfig {
        paths: Vec::new(),
        flash_bytes: SEGMENTS * SEGMENT_BYTES,
        workers: 1,
        segment_bytes: Some(SEGMENT_BYTES),
        backend: Backend::Auto,
    }
}

/// Appends records until there is no room. Returns how often a write failed.
fn fill(engine: &dyn Engine, worker: &mut dyn EngineWorker) -> usize {
    let (mut failures, mut done) = (0, Vec::new());
    for number in 0..SEGMENTS as u32 * 32 {
        let meta = RecordMeta::default();
        let record = Record { meta, key: &number.to_le_bytes(), payload: &[7; 4096] };
        match worker.append(Lane::Demote, &record) {
            Ok(_) | Err(AppendError::Busy) => {}
            Err(AppendError::Full) => return failures,
            Err(error) => panic!("{error}"),
        }
        while worker.in_flight() > 0 {
            worker.submit();
            worker.reap(&mut done);
        }
        for completion in done.drain(..) {
            let Completion::WriteFailed { records, .. } = completion else { continue };
            failures += 1;
            for (at, record) in records {
                engine.release(at, record_size(record.key.len(), record.payload.len()));
            }
        }
    }
    panic!("it is full by then, but for what fails: {failures}");
}

/// On a filesystem that is full.
#[test]
fn what_was_given_back_behind_the_checkpoint_is_not_written() {
    let disk = SimDisk::new(2, 1, 512);
    let mut rig = Rig::new(open_sim(&disk, &config()).expect("opens"), 1, 2);
    rig.run(&MIX);
    rig.reset();
    rig.gc_all();
    rig.take_checkpoint();
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    while rig.engine.give_space_back() {}
    let disk = disk.after_power_loss();
    disk.set_faults(SimFaults { full_where_punched: true, ..SimFaults::default() });
    let engine = reopen_sim(&disk, &config(), &kept.state).expect("opens");
    Rig::reopened(engine.clone(), 1, 3, &kept).check_all();
    let mut worker = engine.worker().expect("a worker");
    let failures: usize = (0..5)
        .map(|_| {
            let failures = fill(&*engine, &mut *worker);
            engine.reset();
            failures
        })
        .sum();
    // One shows that the filesystem is full.
    assert_eq!(failures, 1);
}

/// It had room when the log was made.
#[test]
fn a_log_on_a_filesystem_that_is_full_is_as_large_as_it_was() {
    let disk = SimDisk::new(2, 1, 512);
    let mut rig = Rig::new(open_sim(&disk, &config()).expect("opens"), 1, 2);
    rig.run(&MIX);
    rig.reset();
    rig.gc_all();
    while rig.engine.give_space_back() {}
    disk.set_faults(SimFaults { full_where_punched: true, ..SimFaults::default() });
    rig.run(&Mix { may_fail: true, ..MIX });
    rig.take_checkpoint();
    let capacity = rig.engine.stats().capacity_bytes;
    assert!(capacity < SEGMENTS * SEGMENT_BYTES, "{capacity}");
    let kept = rig.kept.clone().expect("one is in place");
    let engine = reopen_sim(&disk, &config(), &kept.state).expect("opens");
    assert_eq!(engine.stats().capacity_bytes, capacity);
    let mut rig = Rig::reopened(engine, 1, 3, &kept);
    rig.check_all();
    // With room again it grows.
    disk.set_faults(SimFaults::default());
    rig.engine.resize(SEGMENTS * SEGMENT_BYTES).expect("there is room");
    assert_eq!(rig.engine.stats().capacity_bytes, SEGMENTS * SEGMENT_BYTES);
}
