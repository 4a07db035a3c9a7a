//! The order in which collection leaves what it moves.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stdx::Random;

use super::config::LogConfig;
use super::open_sim;
use super::tests::{append, config, settle};
use crate::device::sim::SimDisk;
use crate::engine::{Engine, EngineWorker, GcProgress, Liveness, Owner};
use crate::location::Location;
use crate::record::{Record, record_size};

const LEN: usize = 1000;
/// So many records of each thousand are released before segments are collected.
const RELEASED: u64 = 600;

/// Where each record lives, and the numbers of those that were moved.
#[derive(Default)]
struct Places {
    of: Mutex<HashMap<u32, Location>>,
    moved: Mutex<Vec<u32>>,
}

fn number_of(record: &Record<'_>) -> u32 {
    u32::from_be_bytes(record.key.try_into().expect("a number"))
}

impl Owner for Places {
    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness {
        let lives = self.of.lock().get(&number_of(record)) == Some(&at);
        if lives { Liveness::Live } else { Liveness::Dead }
    }

    fn relocate(&self, record: &Record<'_>, _: Location, to: Location) -> bool {
        self.of.lock().insert(number_of(record), to);
        self.moved.lock().push(number_of(record));
        true
    }
}

/// A log, its worker, and where its records are.
struct Log {
    engine: Arc<dyn Engine>,
    worker: Box<dyn EngineWorker>,
    places: Places,
}

impl Log {
    fn new(seed: u64) -> Log {
        let disk = SimDisk::new(seed, 1, 512);
        let segments =
            LogConfig { flash_bytes: 24 << 20, segment_bytes: Some(1 << 20), ..config(24, 1) };
        let engine = open_sim(&disk, &segments).expect("opens");
        let worker = engine.worker().expect("a worker");
        Log { engine, worker, places: Places::default() }
    }

    /// Writes a record, unless collection has to make room first.
    fn has_put(&mut self, number: u32) -> bool {
        let space = self.engine.free_space();
        if space.free_bytes < space.gc_below_bytes {
            return false;
        }
        let at = append(&mut *self.worker, &number.to_be_bytes(), &[7; LEN]);
        self.places.of.lock().insert(number, at);
        true
    }

    fn collect(&mut self) {
        self.worker.flush();
        settle(&mut *self.worker);
        while self.worker.gc(&self.places, 1 << 20) != GcProgress::Idle {
            settle(&mut *self.worker);
        }
    }

    /// Releases some of the records.
    fn release_some(&self) {
        let mut random = Random::new(9);
        self.places.of.lock().retain(|_, at| {
            let lives = random.below(1000) >= RELEASED;
            if !lives {
                self.engine.release(*at, record_size(4, LEN));
            }
            lives
        });
    }
}

#[test]
fn survivors_of_a_segment_keep_their_order() {
    for seed in 1..4 {
        let mut log = Log::new(seed);
        let filled = (0..).take_while(|&number| log.has_put(number)).count() as u32;
        log.release_some();
        for number in filled..filled + 8_000 {
            while !log.has_put(number) {
                log.collect();
            }
        }
        let moved = log.places.moved.lock().clone();
        assert!(moved.len() > 2_000, "{} were moved", moved.len());
        // A victim has about a thousand, written in the order of their numbers. Behind it one that was written earlier
        // may be collected, further down than this.
        let within_victim = |pair: &&[u32]| pair[1] < pair[0] && pair[0] - pair[1] < 800;
        let descents = moved.windows(2).filter(within_victim).count();
        assert_eq!(descents, 0, "of {} with seed {seed}", moved.len());
    }
}
