//! Measures the write amplification of the log: random overwrites of data that fills a share of a
//! simulated flash.
//!
//! ```text
//! cargo run --release -p flash --example write_amplification -- 70
//!     argument: percent of the flash that the data fills
//! ```
//! Deterministic: the same figures on every machine; takes a gigabyte of RAM. The textbook value
//! for uniform overwrites at 70 % is 1.88, with nothing in reserve.

use std::cell::RefCell;

use flash::{
    AppendError, Engine, EngineWorker, GcProgress, Liveness, Location, LogConfig, Owner, Record,
    RecordMeta, SimDisk, open_sim, record_size,
};
use stdx::Random;

const PAYLOAD_BYTES: usize = 4000;
const KEY_BYTES: usize = 8;

/// What to measure.
pub struct Setup {
    /// Segments of the log.
    pub segments: u64,
    /// Bytes of each.
    pub segment_bytes: u64,
    /// Percent of the flash that the data fills.
    pub fill_percent: u64,
    /// 0 for uniform overwrites.
    pub zipf_exponent: f64,
    /// Whether records go to the lane that `release` tells.
    pub hints: bool,
    /// Overwrites of as many records as there are, before the measurement and again in it.
    pub rounds: usize,
}

/// Where each key's record is.
struct Keyspace(RefCell<Vec<Option<Location>>>);

fn key_of(record: &Record<'_>) -> usize {
    u64::from_le_bytes(record.key.try_into().expect("keys have 8 bytes")) as usize
}

impl Owner for Keyspace {
    fn is_live(&self, record: &Record<'_>, at: Location) -> Liveness {
        match self.0.borrow()[key_of(record)] == Some(at) {
            true => Liveness::Live,
            false => Liveness::Dead,
        }
    }

    fn relocate(&self, record: &Record<'_>, from: Location, to: Location) -> bool {
        let place = &mut self.0.borrow_mut()[key_of(record)];
        let is_current = *place == Some(from);
        if is_current {
            *place = Some(to);
        }
        is_current
    }
}

/// Chooses keys: the rank by the distribution's cumulated weights, the key by a fixed shuffle of
/// the ranks.
struct Keys {
    cumulated: Vec<f64>,
    shuffled: Vec<usize>,
}

impl Keys {
    fn zipf(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=count).map(|rank| (rank as f64).powf(-exponent));
        let cumulated = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        let mut random = Random::new(5);
        let mut shuffled: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            shuffled.swap(last, random.below(last as u64 + 1) as usize);
        }
        Self { cumulated, shuffled }
    }

    fn next(&self, random: &mut Random) -> usize {
        let total = self.cumulated[self.cumulated.len() - 1];
        let target = random.fraction() * total;
        self.shuffled[self.cumulated.partition_point(|&sum| sum <= target)]
    }
}

struct Rig {
    engine: std::sync::Arc<dyn Engine>,
    worker: Box<dyn EngineWorker>,
    keyspace: Keyspace,
    /// Whether records go to the lane that `release` tells.
    hints: bool,
}

impl Rig {
    fn put(&mut self, key: usize) {
        let bytes = (key as u64).to_le_bytes();
        let payload = [7; PAYLOAD_BYTES];
        let record = Record { meta: RecordMeta::default(), key: &bytes, payload: &payload };
        let size = record_size(KEY_BYTES, PAYLOAD_BYTES);
        let old = self.keyspace.0.borrow_mut()[key].take();
        let hint = old.map(|old| self.engine.release(old, size));
        let lane = hint.filter(|_| self.hints).unwrap_or_default();
        loop {
            match self.worker.append(lane, &record) {
                Ok(at) => {
                    self.keyspace.0.borrow_mut()[key] = Some(at);
                    return;
                }
                Err(AppendError::Busy) => self.turn(),
                Err(AppendError::Full) => self.gc_once(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn turn(&mut self) {
        self.worker.submit();
        self.worker.reap(&mut Vec::new());
    }

    /// Collects one segment, if that is needed.
    fn gc_once(&mut self) {
        while self.worker.gc(&self.keyspace, 1 << 20) == GcProgress::Working {
            self.turn();
        }
    }
}

/// Bytes written to the drive for each byte appended.
pub fn measure(setup: &Setup) -> f64 {
    let config = LogConfig {
        paths: Vec::new(),
        flash_bytes: setup.segments * setup.segment_bytes,
        workers: 1,
        segment_bytes: Some(setup.segment_bytes),
        backend: flash::Backend::Auto,
    };
    let engine = open_sim(&SimDisk::new(1, 1, 512), &config).expect("opens");
    let worker = engine.worker().expect("a worker");
    let size = record_size(KEY_BYTES, PAYLOAD_BYTES) as u64;
    let count = (config.flash_bytes * setup.fill_percent / 100 / size) as usize;
    let keyspace = Keyspace(RefCell::new(vec![None; count]));
    let mut rig = Rig { engine, worker, keyspace, hints: setup.hints };
    let keys = Keys::zipf(count, setup.zipf_exponent);
    let mut random = Random::new(3);
    (0..count).for_each(|key| rig.put(key));
    let mut before = rig.engine.stats();
    for round in 0..2 * setup.rounds {
        if round == setup.rounds {
            before = rig.engine.stats();
        }
        for _ in 0..count {
            rig.put(keys.next(&mut random));
            let space = rig.engine.free_space();
            if space.free_bytes < space.gc_below_bytes {
                rig.gc_once();
            }
        }
    }
    let after = rig.engine.stats();
    let written = after.device_write_bytes - before.device_write_bytes;
    written as f64 / (after.append_bytes - before.append_bytes) as f64
}

fn main() {
    let fill_percent = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(70);
    for (name, zipf_exponent) in [("uniform", 0.0), ("zipf 0.99", 0.99)] {
        for hints in [false, true] {
            let setup = Setup {
                segments: 1024,
                segment_bytes: 1 << 20,
                fill_percent,
                zipf_exponent,
                hints,
                rounds: 6,
            };
            let amplification = measure(&setup);
            let lanes = if hints { "lanes by release" } else { "one lane" };
            println!("{name}, {lanes}: write amplification {amplification:.3} at {fill_percent} %");
        }
    }
}
