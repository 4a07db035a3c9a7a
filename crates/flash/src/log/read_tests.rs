//! Reads that follow each other, and reads of one turn: what they cost, and that they bring nothing wrong.

use std::sync::Arc;

use proptest::prelude::*;
use stdx::Random;

use super::config::LogConfig;
use super::open_sim;
use super::shared::Shared;
use super::tests::{append, config, settle};
use crate::device::sim::{SimDisk, SimFaults};
use crate::engine::conformance::{Mix, Rig};
use crate::engine::{Completion, Engine, EngineWorker, ReadStart};
use crate::error::EngineError;
use crate::location::{Location, RecordId};
use crate::record::{RECORD_MAGIC, record_size};

const LEN: usize = 500;
const SIZE: usize = record_size(4, LEN);

/// A log with records on flash, in the order of their numbers.
struct Records {
    disk: SimDisk,
    engine: Arc<dyn Engine>,
    worker: Box<dyn EngineWorker>,
    places: Vec<Location>,
}

fn value(number: u32) -> Vec<u8> {
    let mut random = Random::new(u64::from(number));
    (0..LEN).map(|_| random.next_u64() as u8).collect()
}

impl Records {
    fn new(seed: u64, count: u32) -> Records {
        Records::with_pool(seed, count, None)
    }

    /// The same with so many chunks of buffers and bytes beside them.
    fn with_pool(seed: u64, count: u32, pool: Option<(usize, usize)>) -> Records {
        let segments =
            LogConfig { flash_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..config(64, 1) };
        let disk = SimDisk::new(seed, 1, if seed.is_multiple_of(2) { 512 } else { 4096 });
        if let Some((chunks, heap_bytes)) = pool {
            disk.set_read_pool(chunks, heap_bytes);
        }
        let engine = open_sim(&disk, &segments).expect("opens");
        let mut worker = engine.worker().expect("a worker");
        let put = |number: u32| append(&mut *worker, &number.to_le_bytes(), &value(number));
        let places = (0..count).map(put).collect();
        worker.flush();
        settle(&mut *worker);
        Records { disk, engine, worker, places }
    }

    fn start(&mut self, number: u32) -> ReadStart {
        let record = self.engine.identify(self.places[number as usize]);
        self.worker.read(record, SIZE, u64::from(number))
    }

    /// Reads some in one turn; the numbers of those that failed.
    fn read_all(&mut self, numbers: &[u32]) -> Vec<u32> {
        self.read_all_of(numbers, numbers.len())
    }

    /// The same, when with those that were started before so many end.
    fn read_all_of(&mut self, numbers: &[u32], count: usize) -> Vec<u32> {
        let (mut failed, mut ended) = (Vec::new(), 0);
        for &number in numbers {
            match self.start(number) {
                ReadStart::Ready(record) => {
                    assert_eq!(record.payload(), value(number));
                    ended += 1;
                }
                ReadStart::Pending => {}
                other => panic!("{number}: {other:?}"),
            }
        }
        for completion in settle(&mut *self.worker) {
            let Completion::Read { token, result } = completion else { panic!("{completion:?}") };
            match result {
                Ok(record) => assert_eq!(record.payload(), value(token as u32)),
                Err(_) => failed.push(token as u32),
            }
            ended += 1;
        }
        assert_eq!(ended, count, "each read ends once");
        failed
    }

    /// The same one after another.
    fn read_in_order(&mut self, numbers: impl Iterator<Item = u32>) -> Vec<u32> {
        numbers.flat_map(|number| self.read_all(&[number])).collect()
    }
}

#[test]
fn reads_in_order_take_few_device_reads() {
    for seed in [2, 3] {
        let mut records = Records::new(seed, 6000);
        for backwards in [false, true] {
            let (before, stats) = (records.disk.operations(), records.engine.stats());
            let failed = match backwards {
                false => records.read_in_order(0..6000),
                true => records.read_in_order((0..6000).rev()),
            };
            assert_eq!(failed, []);
            let operations = records.disk.operations() - before;
            // 3.2 MB in four segments, each of which is found anew.
            assert!(operations < 200, "{operations}");
            let after = records.engine.stats();
            assert_eq!(after.device_reads - stats.device_reads, operations);
            assert!(after.block_cache_hits - stats.block_cache_hits > 5000, "{after:?}");
            assert!(after.read_ahead_used_bytes > after.read_ahead_bytes / 2, "{after:?}");
            assert!((1..=1 << 20).contains(&after.block_cache_bytes), "{after:?}");
            let more_bytes = after.buffer_bytes - stats.buffer_bytes;
            assert_eq!(
                more_bytes,
                after.block_cache_bytes - stats.block_cache_bytes,
                "it is counted"
            );
        }
    }
}

/// A client that walks in batches over runs of records that those of others lie between.
#[test]
fn runs_of_records_take_few_device_reads_and_little_more_than_their_bytes() {
    const RUN: u32 = 120;
    for seed in [2, 3] {
        let mut records = Records::new(seed, 40_000);
        let mut walk = |runs: std::ops::Range<u32>| {
            let before = records.engine.stats();
            for first in runs.clone().map(|run| run * 1_000) {
                for batch in 0..RUN / 8 {
                    let from = first + batch * 8;
                    assert_eq!(records.read_all(&Vec::from_iter(from..from + 8)), []);
                }
            }
            let after = records.engine.stats();
            let bytes = after.device_read_bytes - before.device_read_bytes;
            let runs = runs.len() as u64;
            (
                (after.device_reads - before.device_reads) / runs,
                bytes * 10 / (runs * u64::from(RUN) * SIZE as u64),
            )
        };
        walk(0..20);
        let (reads, tenths) = walk(20..40);
        assert!(reads <= 5, "{reads} device reads a run");
        assert!(tenths <= 23, "{tenths} tenths of its bytes");
    }
}

#[test]
fn reads_in_order_go_on_from_segment_to_segment() {
    for seed in [2, 3] {
        let mut records = Records::new(seed, 12_000);
        let reads_of = |records: &mut Records, numbers: &[u32]| {
            let before = records.disk.operations();
            assert_eq!(records.read_in_order(numbers.iter().copied()), []);
            records.disk.operations() - before
        };
        // 6.6 MB in seven segments. With 4 lone reads and windows that grow at the beginning of each, it were over 160.
        let upwards = Vec::from_iter(0..12_000);
        let blocks = 12_000 * SIZE as u64 / 65_536;
        let operations = reads_of(&mut records, &upwards);
        assert!(operations < blocks + 20, "{operations} of {blocks}");
        let downwards = Vec::from_iter((0..12_000).rev());
        let operations = reads_of(&mut records, &downwards);
        assert!(operations < blocks + 20, "{operations} of {blocks}");
    }
}

#[test]
fn a_long_window_is_read_ahead_in_parts() {
    let mut records = Records::new(2, 12_000);
    records.worker.bound_block_cache(32 << 20, 32 << 20);
    let (mut turns, mut blocks) = (0, 0);
    for number in 0..12_000 {
        let before = records.disk.operations();
        assert_eq!(records.read_in_order(number..number + 1), []);
        let begun = records.disk.operations() - before;
        // By then the window is as long as it gets.
        if number > 6_000 {
            turns += u64::from(begun > 0);
            blocks += begun;
        }
    }
    assert!(blocks >= 40 && turns * 3 <= blocks * 2, "{blocks} blocks in {turns} turns");
}

#[test]
fn switched_off_each_record_is_a_read_of_its_sectors() {
    let mut records = Records::new(2, 1000);
    assert_eq!(records.read_in_order(0..500), []);
    assert!(records.engine.stats().block_cache_bytes > 0);
    records.engine.set_read_ahead(false);
    records.worker.submit();
    assert_eq!(records.engine.stats().block_cache_bytes, 0, "what was kept goes");
    let before = records.disk.operations();
    assert_eq!(records.read_in_order(0..500), []);
    assert_eq!(records.disk.operations() - before, 500);
    records.engine.set_read_ahead(true);
    assert_eq!(records.read_in_order(0..500), []);
    assert!(records.disk.operations() - before < 600);
}

#[test]
fn neighbours_of_one_turn_are_one_device_read() {
    let mut records = Records::new(2, 1000);
    records.engine.set_read_ahead(false);
    for numbers in [[5, 3, 4, 6, 7], [907, 3, 905, 4, 906]] {
        let (before, stats) = (records.disk.operations(), records.engine.stats());
        assert_eq!(records.read_all(&numbers), []);
        let runs = 1 + u64::from(numbers[0] == 907);
        assert_eq!(records.disk.operations() - before, runs, "{numbers:?}");
        let merged = records.engine.stats().reads_merged - stats.reads_merged;
        assert_eq!(merged, 5 - runs);
    }
    // Who comes while it is in flight joins it, wherever it lies.
    let before = records.disk.operations();
    for number in [203, 204, 205, 206] {
        assert!(matches!(records.start(number), ReadStart::Pending));
    }
    records.worker.submit();
    assert_eq!(records.read_all_of(&[205, 206], 6), []);
    assert_eq!(records.disk.operations() - before, 1);
    // No read is longer than 64 KiB.
    let (before, bytes) = (records.disk.operations(), records.engine.stats().device_read_bytes);
    let numbers: Vec<u32> = (0..480).collect();
    assert_eq!(records.read_all(&numbers), []);
    let operations = records.disk.operations() - before;
    // 261,120 bytes, and the sectors in which one ends and the next begins.
    assert_eq!(operations, 5);
    assert!(records.engine.stats().device_read_bytes - bytes < (480 * SIZE + 6 * 1024) as u64);
}

#[test]
fn over_gaps_that_are_allowed_reads_become_one() {
    let mut records = Records::new(1, 2_000);
    records.engine.set_read_ahead(false);
    let device_reads = |records: &Records| records.engine.stats().device_reads;
    let numbers: Vec<u32> = (0..40).map(|number| 100 + number * 40).collect();
    let mut read = |gap_bytes, numbers: &[u32]| {
        let before = device_reads(&records);
        records.worker.merge_reads_over(gap_bytes);
        assert_eq!(records.read_all(numbers), [0; 0]);
        device_reads(&records) - before
    };
    assert_eq!(read(0, &numbers), 40);
    assert_eq!(read(8 << 10, &numbers), 40, "they lie 21 KiB apart");
    // Three of them in 64 KiB.
    let over_gaps = read(32 << 10, &numbers);
    assert!((11..=17).contains(&over_gaps), "{over_gaps}");
    assert_eq!(read(0, &numbers), 40);
}

#[test]
fn a_neighbour_that_cannot_be_read_fails_no_other() {
    let mut records = Records::new(2, 1000);
    records.engine.set_read_ahead(false);
    let fail_operation = Some(records.disk.operations());
    records.disk.set_faults(SimFaults { fail_operation, ..SimFaults::default() });
    assert_eq!(records.read_all(&[5, 3, 4, 4]), [], "each is read by itself");
    assert_eq!(records.engine.stats().read_errors, 1);
    // When these fail as well there is nothing more to try.
    records.disk.set_faults(SimFaults { failed_reads: 1000, ..SimFaults::default() });
    let mut failed = records.read_all(&[5, 3, 4, 4, 700]);
    failed.sort_unstable();
    assert_eq!(failed, [3, 4, 4, 5, 700]);
    records.disk.set_faults(SimFaults::default());
    assert_eq!(records.read_all(&[5, 3, 4, 4, 700]), []);
}

#[test]
fn a_block_that_cannot_be_read_fails_no_record() {
    const COUNT: u32 = 600;
    // What is read without a fault, and which of these reads are of one record.
    for turn in [1, 7] {
        let mut blocks_failed = 0;
        for nth in 0.. {
            let mut records = Records::new(2, COUNT);
            let first = records.disk.operations();
            let fail_operation = Some(first + nth);
            records.disk.set_faults(SimFaults { fail_operation, ..SimFaults::default() });
            let numbers: Vec<u32> = (0..COUNT).collect();
            let failed: Vec<u32> =
                numbers.chunks(turn).flat_map(|some| records.read_all(some)).collect();
            let stats = records.engine.stats();
            if records.disk.failures() == 0 {
                break;
            }
            assert_eq!(stats.read_errors, 1, "{nth}");
            // A record whose own read failed is told so, as ever; it and those of the same sectors.
            let own = failed.len();
            assert!(own <= 1, "{nth}: {failed:?}");
            blocks_failed += u64::from(own == 0);
        }
        assert!(blocks_failed > 3, "{turn}: {blocks_failed}");
    }
}

#[test]
fn damage_in_a_block_is_that_of_its_record_alone() {
    for turn in [1, 16] {
        let mut records = Records::new(2, 1000);
        let at = records.places[500].bytes() as usize;
        records.disk.overwrite(0, at + 100, b"damage");
        let numbers: Vec<u32> = (0..1000).collect();
        let failed: Vec<u32> =
            numbers.chunks(turn).flat_map(|some| records.read_all(some)).collect();
        assert_eq!(failed, [500], "{turn}");
        let stats = records.engine.stats();
        assert_eq!((stats.checksum_failures, stats.read_errors), (1, 0));
        assert!(stats.block_cache_hits + stats.reads_merged > 800, "{stats:?}");
        // Asked for again, it is told again.
        let failed = records.read_in_order(490..510);
        assert_eq!(failed, [500]);
    }
}

#[test]
fn a_record_that_came_damaged_in_a_block_is_read_again() {
    let mut records = Records::new(2, 1000);
    assert_eq!(records.read_in_order(0..100), []);
    records.disk.set_faults(SimFaults { flipped_bits: 1000, ..SimFaults::default() });
    // These bring blocks with a flipped bit each.
    records.read_in_order(100..600);
    records.disk.set_faults(SimFaults::default());
    assert_eq!(records.read_in_order((0..1000).chain(0..1000)), []);
}

#[test]
fn what_was_written_since_in_the_same_place_is_not_answered_from_an_old_block() {
    let mut records = Records::new(2, 3000);
    assert_eq!(records.read_in_order(0..3000), []);
    let old: Vec<RecordId> = records.places.iter().map(|&at| records.engine.identify(at)).collect();
    records.engine.reset();
    // The same places again, with other values behind the same keys.
    let mut places = Vec::new();
    while places.len() < 3000 * 20 {
        let number = places.len() as u32 + 5000;
        places.push(append(&mut *records.worker, &number.to_le_bytes(), &value(number)));
    }
    records.worker.flush();
    settle(&mut *records.worker);
    let again = places.iter().filter(|at| records.places.contains(at)).count();
    assert!(again > 1000, "{again} places have come again");
    let mut gone = 0;
    for (number, record) in old.into_iter().enumerate() {
        match records.worker.read(record, SIZE, number as u64) {
            ReadStart::Failed(EngineError::Gone { .. }) => gone += 1,
            // Of the segment that was open, which goes on as it was.
            ReadStart::Ready(record) => assert_eq!(record.payload(), value(number as u32)),
            ReadStart::Pending => match &settle(&mut *records.worker)[..] {
                [Completion::Read { result: Ok(record), .. }] => {
                    assert_eq!(record.payload(), value(number as u32));
                }
                other => panic!("{number}: {other:?}"),
            },
            other => panic!("{number}: {other:?}"),
        }
    }
    assert!(gone > 1000, "{gone}");
    records.places = places;
    for number in 0..records.places.len() as u32 {
        match records.start(number) {
            ReadStart::Ready(record) => assert_eq!(record.payload(), value(number + 5000)),
            ReadStart::Pending => match &settle(&mut *records.worker)[..] {
                [Completion::Read { result: Ok(record), .. }] => {
                    assert_eq!(record.payload(), value(number + 5000));
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn blocks_take_no_buffer_of_reads_of_records() {
    // All buffers that there are.
    let mut records = Records::with_pool(2, 60_000, Some((4, 0)));
    assert_eq!(records.read_in_order(0..1000), []);
    let kept_bytes = records.engine.stats().block_cache_bytes;
    assert!(kept_bytes >= 1 << 16);
    // Three of a region, so that nothing is read ahead; they are held.
    let mut held = 0;
    for number in (2000..60_000).step_by(160) {
        match records.start(number) {
            ReadStart::Pending => held += 1,
            ReadStart::Busy => break,
            other => panic!("{other:?}"),
        }
    }
    let done = settle(&mut *records.worker);
    assert_eq!(done.len(), held);
    assert!(held >= 4 * 32, "{held}");
    assert!(done.iter().all(|one| matches!(one, Completion::Read { result: Ok(_), .. })));
    assert_eq!(records.engine.stats().block_cache_bytes, kept_bytes);
    // And there are reads while these are held.
    assert_eq!(records.read_in_order(0..100), []);
}

#[test]
fn blocks_go_when_their_memory_is_wanted_back() {
    let mut records = Records::new(2, 1000);
    assert_eq!(records.read_in_order(0..700), []);
    assert!(records.worker.block_cache_bytes() > 0);
    records.worker.bound_block_cache(0, 0);
    assert_eq!(records.worker.block_cache_bytes(), 0);
    let before = records.disk.operations();
    assert_eq!(records.read_in_order(700..800), []);
    assert_eq!(records.disk.operations() - before, 100, "no more are read");
}

/// Reads around records in one turn; the numbers of the records that were asked for, and those of what came beside.
fn read_arounds(records: &mut Records, numbers: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (mut asked, mut beside) = (Vec::new(), Vec::new());
    for &number in numbers {
        let record = records.engine.identify(records.places[number as usize]);
        let started = records.worker.read_around(record, SIZE, u64::from(number));
        assert!(matches!(started, ReadStart::Pending), "{number}: {started:?}");
    }
    for completion in settle(&mut *records.worker) {
        match completion {
            Completion::Read { token, result } => {
                assert_eq!(result.expect("it is read").payload(), value(token as u32));
                asked.push(token as u32);
            }
            Completion::Neighbours(brought) => {
                for (id, record, is_asked) in brought.records() {
                    let number = u32::from_le_bytes(record.key.try_into().expect("four bytes"));
                    assert_eq!(id, records.engine.identify(records.places[number as usize]));
                    assert_eq!(record.payload, value(number));
                    assert_eq!(is_asked, numbers.contains(&number));
                    beside.extend((!is_asked).then_some(number));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    (asked, beside)
}

#[test]
fn a_read_around_a_record_brings_those_beside() {
    for seed in [2, 3] {
        let mut records = Records::new(seed, 6000);
        let before = records.disk.operations();
        let (asked, beside) = read_arounds(&mut records, &[2000]);
        assert_eq!((asked, records.disk.operations() - before), (vec![2000], 1));
        // Six of 544 bytes on either side, and some of the rest of their sectors.
        assert!((12..=26).contains(&beside.len()), "{beside:?}");
        assert!(beside.iter().all(|&number| number.abs_diff(2000) <= 13 && number != 2000));
        // Those that touch are one read, and what was asked for is not told twice.
        let before = records.disk.operations();
        let (mut asked, beside) = read_arounds(&mut records, &[4000, 4002, 3000]);
        asked.sort_unstable();
        assert_eq!(asked, [3000, 4000, 4002]);
        assert!(records.disk.operations() - before <= 2);
        assert!(beside.contains(&4001) && !beside.contains(&4000) && !beside.contains(&4002));
    }
}

#[test]
fn what_is_around_is_read_as_far_as_it_is_on_flash() {
    let mut records = Records::new(2, 21);
    let next = append(&mut *records.worker, &21u32.to_le_bytes(), &value(21));
    records.places.push(next);
    let (asked, beside) = read_arounds(&mut records, &[20]);
    assert_eq!(asked, [20]);
    assert!(beside.contains(&19) && !beside.contains(&21), "{beside:?}");
}

#[test]
fn a_larger_read_that_fails_costs_no_record() {
    let mut records = Records::new(2, 6000);
    records.disk.set_faults(SimFaults { failed_reads: 500, ..SimFaults::default() });
    let (mut whole, mut failed) = (0, 0);
    for number in (0..6000).step_by(37) {
        let record = records.engine.identify(records.places[number]);
        records.worker.read_around(record, SIZE, number as u64);
        for completion in settle(&mut *records.worker) {
            match completion {
                Completion::Read { result: Ok(record), .. } => {
                    assert_eq!(record.payload(), value(number as u32));
                    whole += 1;
                }
                Completion::Read { result: Err(_), .. } => failed += 1,
                Completion::Neighbours(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    // A half of the larger reads, and then a half of the records by themselves.
    assert_eq!(whole + failed, 163);
    assert!(whole > 100 && failed > 10, "{whole} {failed}");
}

#[test]
fn values_that_look_like_records_end_the_search_for_more() {
    let mut records = Records::new(2, 0);
    // A header in each 16 bytes of the record, whose payload begins at 36: magic, no flags, lengths that fit.
    let mut unit = [0; 16];
    (unit[0], unit[4], unit[8]) = (RECORD_MAGIC, 1, 1);
    // So long that what is read begins within a value.
    let forged = unit.repeat(200);
    let put = |number: u32| append(&mut *records.worker, &number.to_le_bytes(), &forged);
    let places: Vec<Location> = (0..6).map(put).collect();
    records.worker.flush();
    settle(&mut *records.worker);
    let record = records.engine.identify(places[4]);
    records.worker.read_around(record, record_size(4, forged.len()), 4);
    let done = settle(&mut *records.worker);
    let [Completion::Read { result: Ok(read), .. }, Completion::Neighbours(neighbours)] = &done[..]
    else {
        panic!("{done:?}")
    };
    assert_eq!(read.payload(), forged);
    assert_eq!(neighbours.records().count(), 0, "it goes on behind none of them");
}

#[test]
fn reads_around_records_in_order_read_ahead_as_others_do() {
    for seed in [2, 3] {
        let mut records = Records::new(seed, 6000);
        let before = records.disk.operations();
        for number in 0..6000 {
            let record = records.engine.identify(records.places[number]);
            match records.worker.read_around(record, SIZE, number as u64) {
                ReadStart::Ready(read) => assert_eq!(read.payload(), value(number as u32)),
                ReadStart::Pending => drop(settle(&mut *records.worker)),
                other => panic!("{number}: {other:?}"),
            }
        }
        let operations = records.disk.operations() - before;
        assert!(operations < 200, "{operations}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_of_reads_among_overwrites_and_gc_bring_nothing_wrong(
        seed: u64,
        workers in 1usize..3,
        fault in 0usize..6,
        small_pool: bool,
    ) {
        let segments = Shared::segments_min(workers) as u64 + 12;
        let disk = SimDisk::new(seed, 1, if seed.is_multiple_of(2) { 512 } else { 4096 });
        if small_pool {
            disk.set_read_pool(2, 8 << 10);
        }
        let config = LogConfig { flash_bytes: segments << 18, segment_bytes: Some(1 << 18), ..config(1, workers) };
        let mut rig = Rig::new(open_sim(&disk, &config).expect("opens"), workers, seed);
        let held = SimFaults { held: 200, held_reaps_max: 20, ..SimFaults::default() };
        let faults = [
            SimFaults::default(),
            held.clone(),
            SimFaults { eager_reads: 300, ..held.clone() },
            SimFaults { failed_reads: 50, ..held.clone() },
            SimFaults { flipped_bits: 50, ..held.clone() },
            SimFaults { torn_writes: 50, failed_reads: 20, ..held },
        ];
        disk.set_faults(faults[fault].clone());
        let mix = Mix {
            keys: 2000, steps: 300, lens: [600, 3000, 100_000], resets: false, may_fail: fault > 2,
        };
        (0..2000).for_each(|key| rig.put(key as usize % workers, key, 400));
        rig.flush_all();
        let mut random = Random::new(seed ^ 3);
        for _ in 0..20 {
            rig.run_unchecked(&mix);
            let from = random.below(1500) as u32;
            let turn = 1 + random.below(20) as u32;
            for key in from..from + 500 {
                rig.read(0, key);
                if key % turn == 0 {
                    rig.turn(0);
                }
            }
        }
        let hits = rig.engine.stats().block_cache_hits + rig.engine.stats().reads_merged;
        prop_assert!(hits > 500, "{hits}");
        prop_assert!(rig.neighbours > 100, "{}", rig.neighbours);
        rig.check_all();
        disk.set_faults(SimFaults::default());
        rig.check_all_space_comes_back();
    }
}
