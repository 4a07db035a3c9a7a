use std::sync::Arc;

use proptest::prelude::*;

use crate::device::FileIndex;
use crate::device::label::Label;
use crate::device::sim::{SimDisk, SimFaults};
use crate::engine::conformance::{Mix, Rig};
use crate::engine::{CheckpointEnd, Engine};
use crate::error::AppendError;
use crate::log::shared::Shared;
use crate::log::{Backend, LogConfig, open_sim, reopen_sim};
use crate::record::{Lane, Record, RecordMeta};

const SEGMENT_BYTES: u64 = 64 << 10;

fn config(segments: u64, workers: usize) -> LogConfig {
    LogConfig {
        paths: Vec::new(),
        flash_bytes: segments * SEGMENT_BYTES,
        workers,
        segment_bytes: None,
        backend: Backend::Auto,
    }
}

fn sim(seed: u64, paths: usize, segments: u64, workers: usize) -> (SimDisk, Arc<dyn Engine>) {
    let sector = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let disk = SimDisk::new(seed, paths, sector);
    let config = LogConfig { segment_bytes: Some(SEGMENT_BYTES), ..config(segments, workers) };
    let engine = open_sim(&disk, &config).expect("opens");
    disk.expect_power_loss();
    (disk, engine)
}

/// Sizes for segments of 64 KiB: small, large, larger than a segment.
const MIX: Mix =
    Mix { keys: 300, steps: 600, lens: [2000, 40_000, 100_000], resets: true, may_fail: false };
/// What happens beside a checkpoint, between two times that some keys are saved.
const BESIDE: Mix = Mix { steps: 30, resets: false, ..MIX };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_checkpoint_refers_to_is_there_after_each_loss_of_power(
        seed: u64, paths in 1usize..4, workers in 1usize..3, extra in 2u64..30,
    ) {
        let segments = Shared::segments_min(workers) as u64 + extra;
        let (mut disk, engine) = sim(seed, paths, segments, workers);
        let mut rig = Rig::new(engine, workers, seed);
        let mut references = 0;
        for life in 0..6 {
            let ends = [CheckpointEnd::InPlace, CheckpointEnd::Failed, CheckpointEnd::Unknown];
            for (turn, end) in ends.into_iter().cycle().skip(seed as usize % 3).take(4).enumerate() {
                rig.run(&Mix { steps: MIX.steps * (turn % 2), ..MIX });
                rig.take_beside(&BESIDE, end).expect("nothing fails");
            }
            rig.run(&MIX);
            let kept = rig.kept.clone().expect("one is in place");
            references += kept.references();
            disk = disk.after_power_loss();
            disk.expect_power_loss();
            let engine = reopen_sim(&disk, &config(segments, workers), &kept.state);
            rig = Rig::reopened(engine.expect("opens"), workers, seed ^ life, &kept);
            rig.check_all();
        }
        prop_assert!(references > 100, "{references}");
        rig.engine.checkpoints().expect("it keeps records").forget().expect("nothing fails");
        rig.check_all_space_comes_back();
    }
}

#[test]
fn records_that_are_longer_than_a_segment_stay_where_they_are() {
    let (mut disk, engine) = sim(2, 2, 64, 1);
    let mut rig = Rig::new(engine, 1, 2);
    for life in 0..3 {
        rig.run(&Mix { resets: false, ..MIX });
        rig.take_checkpoint();
        let kept = rig.kept.clone().expect("one is in place");
        assert!(kept.references_to_longer(SEGMENT_BYTES) > 0);
        disk = disk.after_power_loss();
        disk.expect_power_loss();
        let engine = reopen_sim(&disk, &config(64, 1), &kept.state).expect("opens");
        rig = Rig::reopened(engine, 1, life, &kept);
        rig.check_all();
    }
}

#[test]
fn the_power_may_go_before_anything_is_written_behind_the_start() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let mut disk = disk;
    for life in 0..3 {
        disk = disk.after_power_loss();
        let engine = reopen_sim(&disk, &config(24, 1), &kept.state).expect("opens");
        Rig::reopened(engine, 1, life, &kept).check_all();
    }
}

#[test]
fn a_checkpoint_fails_with_a_write_and_refers_to_what_is_there_in_the_end() {
    for seed in 0..20 {
        let (disk, engine) = sim(seed, 1, 64, 1);
        let mut rig = Rig::new(engine, 1, seed);
        rig.run(&Mix { resets: false, ..MIX });
        disk.set_faults(SimFaults { full: true, ..SimFaults::default() });
        let beside = Mix { may_fail: true, ..BESIDE };
        rig.run(&Mix { steps: 0, ..beside });
        rig.take_beside(&beside, CheckpointEnd::InPlace).expect_err("writes fail");
        disk.set_faults(SimFaults::default());
        // A large record of which a piece has failed says so when its last piece has ended.
        rig.flush_all();
        // Records that were lost are not referred to, though the segments that they were in are.
        rig.take_beside(&beside, CheckpointEnd::InPlace).expect("nothing fails any more");
        let kept = rig.kept.clone().expect("one is in place");
        let disk = disk.after_power_loss();
        let engine = reopen_sim(&disk, &config(64, 1), &kept.state).expect("opens");
        let mut rig = Rig::reopened(engine, 1, seed, &kept);
        rig.check_all();
        rig.run(&MIX);
    }
}

#[test]
fn behind_a_sync_that_failed_no_checkpoint_refers_to_anything() {
    let (disk, engine) = sim(3, 2, 24, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 3);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    disk.set_faults(SimFaults { failed_syncs: true, ..SimFaults::default() });
    rig.take_beside(&BESIDE, CheckpointEnd::InPlace).expect_err("a sync fails");
    disk.set_faults(SimFaults::default());
    let checkpoints = engine.checkpoints().expect("it keeps records");
    checkpoints.prepare(1).expect_err("whatever the next sync would say");
    // What the one in place refers to is there.
    let kept = rig.kept.clone().expect("one is in place");
    let lost = disk.after_power_loss();
    let reopened = reopen_sim(&lost, &config(24, 1), &kept.state).expect("opens");
    Rig::reopened(reopened, 1, 3, &kept).check_all();
    checkpoints.forget().expect("labels can be removed");
    assert_eq!(engine.stats().segments_held, 0);
}

/// Some of the files have none then, and others still have theirs.
#[test]
fn labels_that_could_not_be_taken_off_are_put_on_anew() {
    for failing in 0..2 {
        let (disk, engine) = sim(3, 2, 24, 1);
        let mut rig = Rig::new(Arc::clone(&engine), 1, 3);
        rig.run(&Mix { resets: false, ..MIX });
        rig.take_checkpoint();
        let checkpoints = engine.checkpoints().expect("it keeps records");
        disk.set_faults(SimFaults { failed_labels_of: Some(failing), ..SimFaults::default() });
        checkpoints.forget().expect_err("a label stays");
        assert!(!engine.give_space_back(), "it stays still");
        let number = checkpoints.prepare(1).map(|()| checkpoints.begin());
        number.expect_err("none of the files may be without a label");
        disk.set_faults(SimFaults::default());
        rig.take_checkpoint();
        let kept = rig.kept.clone().expect("one is in place");
        let lost = disk.after_power_loss();
        let reopened = reopen_sim(&lost, &config(24, 1), &kept.state).expect("opens");
        Rig::reopened(reopened, 1, 3, &kept).check_all();
    }
}

#[test]
fn a_label_that_cannot_be_put_on_makes_a_checkpoint_fail() {
    let (disk, engine) = sim(3, 2, 24, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 3);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    disk.set_faults(SimFaults { failed_labels_of: Some(1), ..SimFaults::default() });
    rig.take_beside(&BESIDE, CheckpointEnd::InPlace).expect_err("a label is not there");
    let kept = rig.kept.clone().expect("the one before is in place");
    let lost = disk.after_power_loss();
    let reopened = reopen_sim(&lost, &config(24, 1), &kept.state).expect("opens");
    Rig::reopened(reopened, 1, 3, &kept).check_all();
    disk.set_faults(SimFaults::default());
    rig.take_checkpoint();
    rig.check_all();
}

#[test]
fn what_is_held_comes_free_when_a_label_can_be_taken_off() {
    let (disk, engine) = sim(3, 2, 24, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 3);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    let mut is_held = || {
        rig.gc_all();
        engine.stats().segments_held > 0
    };
    engine.reset();
    assert!(is_held());
    let checkpoints = engine.checkpoints().expect("it keeps records");
    disk.set_faults(SimFaults { failed_labels_of: Some(1), ..SimFaults::default() });
    checkpoints.forget().expect_err("a label stays");
    assert!(!engine.give_space_back() && is_held());
    disk.set_faults(SimFaults::default());
    while engine.give_space_back() {}
    assert!(!is_held());
}

/// The generations of segments that nothing refers to, and of those that were made since.
fn generations(engine: &Arc<dyn Engine>, segments: std::ops::Range<u64>) -> Vec<u64> {
    let units = segments.map(|segment| segment * SEGMENT_BYTES / 16);
    units.map(|at| engine.identify(crate::Location::from_units(at)).generation).collect()
}

/// Of two starts on one checkpoint the second knows nothing of the first, which may have made them and written to them.
#[test]
fn segments_that_a_start_makes_count_on_from_its_number() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let mut disk = disk;
    for start in 1..3 {
        disk = disk.after_power_loss();
        let engine = reopen_sim(&disk, &config(24, 1), &kept.state).expect("opens");
        engine.resize(40 * SEGMENT_BYTES).expect("there is room");
        assert_eq!(generations(&engine, 24..40), [start << 32; 16]);
    }
}

/// The process was killed before the next checkpoint.
#[test]
fn space_that_the_checkpoint_does_not_know_goes_back_to_the_drive() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    rig.run(&Mix { steps: 10, resets: false, ..MIX });
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let bytes = || disk.drives().file_bytes(FileIndex(0)).expect("there is a file");
    for _ in 0..2 {
        let engine = reopen_sim(&disk, &config(24, 1), &kept.state).expect("opens");
        assert_eq!(bytes(), 24 * SEGMENT_BYTES);
        engine.resize(40 * SEGMENT_BYTES).expect("there is room");
        assert_eq!(bytes(), 40 * SEGMENT_BYTES);
        Rig::reopened(engine, 1, 3, &kept).check_all();
    }
}

/// Without a checkpoint to come what is held is no room, and what was written since the last one is all that can be collected.
#[test]
fn garbage_that_no_checkpoint_needs_is_collected_while_none_comes() {
    let (_disk, engine) = sim(2, 1, 64, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    // A third of the flash lives.
    let mix = Mix { keys: 600, lens: [2000, 2200, 2400], resets: false, ..MIX };
    rig.run(&Mix { steps: 700, ..mix });
    rig.take_checkpoint();
    let checkpoints = engine.checkpoints().expect("it keeps records");
    checkpoints.set_comes(false);
    let before = rig.kept.as_ref().map(|kept| kept.state.clone());
    // All is held that was there, and what takes its place is written over again and again.
    rig.run(&Mix { steps: 6_000, ..mix });
    assert!(before == rig.kept.as_ref().map(|kept| kept.state.clone()), "none was taken");
    rig.check_all();
}

#[test]
fn no_generation_comes_again_after_many_starts() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let (file, drives) = (FileIndex(0), disk.drives());
    for starts in [4_095, 4_096, u32::MAX - 1] {
        let label = drives.label(file).expect("it can be read").expect("there is one");
        drives.set_label(file, &Label { starts, ..label }).expect("nothing fails");
        let engine = reopen_sim(&disk, &config(24, 1), &kept.state).expect("opens");
        assert_eq!(generations(&engine, 0..24), [(u64::from(starts) + 1) << 32; 24]);
    }
}

#[test]
fn segments_that_are_held_are_given_up_with_the_next_checkpoint() {
    let (_disk, engine) = sim(2, 1, 40, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    (0..MIX.keys as u32).for_each(|key| rig.delete(key));
    engine.resize(12 * SEGMENT_BYTES).expect("it is large enough");
    rig.gc_all();
    let space = engine.free_space();
    assert!(space.is_held_up && space.held_bytes > 0, "{space:?}");
    rig.take_checkpoint();
    let space = engine.free_space();
    assert!(!space.is_held_up && space.held_bytes == 0, "{space:?}");
}

/// A filesystem may have no space for them while the flash has all of it.
#[test]
fn without_labels_again_and_again_a_checkpoint_does_without_flash() {
    let (disk, engine) = sim(3, 1, 24, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 3);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    disk.set_faults(SimFaults { failed_labels_of: Some(0), ..SimFaults::default() });
    let nothing = Mix { steps: 0, ..BESIDE };
    for _ in 0..2 {
        rig.take_beside(&nothing, CheckpointEnd::InPlace).expect_err("a label is not there");
    }
    let checkpoints = engine.checkpoints().expect("it keeps records");
    checkpoints.prepare(1).expect_err("the next would fail, too");
    disk.set_faults(SimFaults::default());
    checkpoints.forget().expect("it is in place, and needs no label");
    rig.take_checkpoint();
    rig.check_all();
}

/// Records of a life before would be taken for those that were written behind the start.
#[test]
fn generations_go_on_where_labels_are_drawn_anew() {
    let (mut disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    let take = |rig: &mut Rig| {
        rig.run(&Mix { resets: false, ..MIX });
        rig.take_checkpoint();
        rig.kept.clone().expect("one is in place")
    };
    let mut last = 0;
    for life in 1..4 {
        let kept = take(&mut rig);
        disk = disk.after_power_loss();
        disk.expect_power_loss();
        let engine = reopen_sim(&disk, &config(24, 1), &kept.state).expect("opens");
        rig = Rig::reopened(Arc::clone(&engine), 1, life, &kept);
        take(&mut rig);
        let newest = generations(&engine, 0..24).into_iter().max().expect("segments");
        assert!(newest >> 32 > last, "life {life}: {newest:#x}");
        last = newest >> 32;
        engine.checkpoints().expect("it keeps records").forget().expect("nothing fails");
    }
}

#[test]
fn a_full_flash_waits_for_a_checkpoint_and_goes_on_with_it() {
    let (_disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    let mix = Mix { resets: false, ..MIX };
    rig.run(&mix);
    rig.take_checkpoint();
    let state_of = |rig: &Rig| rig.kept.as_ref().expect("one is in place").state.clone();
    for _ in 0..5 {
        // Everything is written over, without a checkpoint but where there is no other way.
        let before = state_of(&rig);
        rig.run(&Mix { steps: 3000, ..mix });
        assert!(before != state_of(&rig), "there was no other way");
    }
}

#[test]
fn what_is_free_is_handed_out_in_step_with_a_checkpoint() {
    let (_disk, engine) = sim(2, 1, 1024, 2);
    let checkpoints = engine.checkpoints().expect("it keeps records");
    // What the next one brings.
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    rig.run(&Mix { resets: false, ..MIX });
    rig.flush_all();
    rig.take_checkpoint();
    (0..MIX.keys as u32).for_each(|key| rig.delete(key));
    rig.gc_all();
    assert!(engine.free_space().held_bytes > 0);
    let mut worker = engine.worker().expect("a device");
    let meta = RecordMeta::default();
    let payload = vec![7; 15_000];
    let record = Record { meta, key: b"key", payload: &payload };
    // Records that find room before there is none, or so many.
    let mut append = |most: usize| {
        let (mut count, mut done) = (0, Vec::new());
        while count < most {
            match worker.append(Lane::Demote, &record) {
                Ok(_) => count += 1,
                Err(AppendError::Busy) => {
                    worker.submit();
                    worker.reap(&mut done);
                }
                Err(error) => return assert!(matches!(error, AppendError::Full), "{error}"),
            }
        }
    };
    append(4 * 100);
    let free = || engine.free_space().free_bytes / SEGMENT_BYTES;
    // Nobody waits for this one, which may fail as the last has.
    checkpoints.set_comes(false);
    let number = checkpoints.begin();
    let before = free();
    append(4 * 850);
    assert!(free() < before / 10, "{before} {}", free());
    checkpoints.end(number, CheckpointEnd::Failed);
    checkpoints.set_comes(true);
    let before = free();
    let number = checkpoints.begin();
    append(10_000);
    let at_first = free();
    assert!(at_first > 0 && at_first < before, "{before} {at_first}");
    checkpoints.set_progress(3, 4);
    append(10_000);
    assert!(free() > 0 && free() < at_first, "{at_first} {}", free());
    checkpoints.set_progress(4, 4);
    checkpoints.end(number, CheckpointEnd::Failed);
    append(10_000);
    assert_eq!(free(), 0);
}

#[test]
fn a_state_and_files_that_do_not_belong_together_are_refused() {
    let (disk, engine) = sim(2, 2, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    let old = rig.kept.clone().expect("one is in place");
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let copy = disk.after_power_loss();
    rig.take_checkpoint();
    let newer = rig.kept.clone().expect("one is in place");
    let refused = |disk: &SimDisk, config: &LogConfig, state: &[u8], reason: &str| {
        let error = reopen_sim(disk, config, state).err().expect("it is refused").to_string();
        assert!(error.contains(reason), "{error}");
    };
    let usual = config(24, 1);
    refused(&disk, &usual, &old.state, "written since the journal was copied");
    refused(&copy, &usual, &newer.state, "a copy that is older than the journal");
    refused(&disk, &config(4, 1), &newer.state, "flash size too small");
    let other_segments = LogConfig { segment_bytes: Some(128 << 10), ..usual.clone() };
    refused(&disk, &other_segments, &newer.state, "flash-segment-size 65536");
    refused(&disk, &usual, &newer.state[1..], "cannot be used");
    let (other, _engine) = sim(2, 2, 24, 1);
    refused(&other, &usual, &kept.state, "has no label");
    let mut foreign = Rig::new(_engine, 1, 2);
    foreign.take_checkpoint();
    refused(&other, &usual, &kept.state, "is not the one that the journal refers to");
    let (fewer, engine) = sim(2, 1, 24, 1);
    Rig::new(engine, 1, 2).take_checkpoint();
    refused(&fewer, &usual, &kept.state, "values are on 2 paths, and files of 1 of them are here");
}

#[test]
fn the_flash_size_may_change_from_start_to_start() {
    let (mut disk, engine) = sim(4, 2, 40, 1);
    let mut rig = Rig::new(engine, 1, 4);
    rig.run(&Mix { resets: false, ..MIX });
    for (life, segments) in [60, 24, 40].into_iter().enumerate() {
        rig.take_checkpoint();
        let kept = rig.kept.clone().expect("one is in place");
        disk = disk.after_power_loss();
        let engine = reopen_sim(&disk, &config(segments, 1), &kept.state).expect("opens");
        rig = Rig::reopened(engine, 1, life as u64, &kept);
        rig.run(&MIX);
        rig.take_checkpoint();
        rig.gc_all();
        rig.take_checkpoint();
        let stats = rig.engine.stats();
        assert_eq!(stats.capacity_bytes, segments * SEGMENT_BYTES, "{stats:?}");
    }
}

#[test]
fn a_log_that_is_nearly_full_opens_where_the_filesystem_has_no_room_for_more() {
    const SEGMENTS: u64 = 40;
    let (disk, engine) = sim(2, 1, SEGMENTS, 1);
    let mut rig = Rig::new(Arc::clone(&engine), 1, 2);
    let mut key = 0;
    while engine.free_space().free_bytes > 2 * SEGMENT_BYTES {
        rig.put(0, key, 2000);
        key += 1;
    }
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let disk = disk.after_power_loss();
    // Room for none, or for some, of the segments that collection would have beside those in use.
    for more in [0, 3] {
        disk.set_file_bytes_max((SEGMENTS + more) * SEGMENT_BYTES);
        let engine = reopen_sim(&disk, &config(SEGMENTS, 1), &kept.state).expect("opens");
        let mut rig = Rig::reopened(engine, 1, 3, &kept);
        assert_eq!(rig.keys_on_flash(), key as usize);
        rig.check_all();
        if more > 0 {
            rig.run(&Mix { resets: false, ..MIX });
        }
    }
}

#[test]
fn a_claim_of_what_nothing_refers_to_is_refused() {
    let (disk, engine) = sim(2, 1, 24, 1);
    let mut rig = Rig::new(engine, 1, 2);
    rig.run(&Mix { resets: false, ..MIX });
    rig.take_checkpoint();
    let kept = rig.kept.clone().expect("one is in place");
    let engine = reopen_sim(&disk, &config(24, 1), &kept.state).expect("opens");
    let checkpoints = engine.checkpoints().expect("it keeps records");
    checkpoints.end_claims().expect_err("nothing was claimed");
    for units in [0, 5, 4096, 1 << 30, (1 << 40) - 1] {
        let record = engine.identify(crate::Location::from_units(units));
        assert!(!checkpoints.claim(crate::RecordId { generation: 7 << 32, ..record }, 48));
        assert!(!checkpoints.claim(record, 1 << 30));
    }
}
