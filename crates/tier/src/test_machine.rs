//! Workers under a limit on memory, with a log on simulated drives or without, driven as the server
//! drives them: batches, upkeep, completions and measurements in turn.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flash::{Backend, LogConfig, SimDisk, open_sim};
use keyspace::{Db, Expiry, Key, Keyspace, SLOT_COUNT, Stored, Tally};

use crate::{
    Budget, Claim, Clock, Environment, EvictionPolicy, Held, ResidentSource, Tier, TierError,
    TierWorker,
};

pub(crate) const MIB: u64 = 1 << 20;
/// Batches between two rounds of upkeep, and rounds between two measurements.
const BATCHES: u64 = 64;
pub(crate) const ROUNDS: u64 = 4;
/// Rounds of upkeep after which a write has waited for ever.
const WAIT_ROUNDS_MAX: u64 = 20_000;

#[derive(Debug, Default)]
pub(crate) struct TestClock(pub(crate) AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn unix_ms(&self) -> u64 {
        1_700_000_000_000 + self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct TestResident(Arc<AtomicU64>);

impl ResidentSource for TestResident {
    fn resident_bytes(&mut self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed))
    }
}

/// One worker, or several of which one has all the clients, and the machine around them.
pub(crate) struct Machine {
    pub(crate) worker: TierWorker,
    pub(crate) others: Vec<TierWorker>,
    pub(crate) resident: Arc<AtomicU64>,
    pub(crate) clock: Arc<TestClock>,
    /// Resident beside what is allocated; none: pages that come free slowly.
    pub(crate) overhead: Cell<Option<u64>>,
    batches: Cell<u64>,
    rounds: Cell<u64>,
    /// Rounds that writes have waited for, in all.
    pub(crate) waited: Cell<u64>,
    /// Keys that went in one step, at most.
    pub(crate) evicted_most: Cell<u64>,
    /// Until then the drives complete nothing, by the clock.
    pub(crate) drives_stand_until: Cell<Duration>,
}

impl Machine {
    pub(crate) fn new(max_bytes: u64, flash_bytes: u64, policy: EvictionPolicy) -> Machine {
        Machine::of_workers(1, max_bytes, flash_bytes, policy)
    }

    pub(crate) fn of_workers(
        workers: usize,
        max_bytes: u64,
        flash_bytes: u64,
        policy: EvictionPolicy,
    ) -> Machine {
        let resident = Arc::new(AtomicU64::new(0));
        let budget = Budget::with_source(max_bytes, Box::new(TestResident(resident.clone())));
        let clock = Arc::new(TestClock::default());
        let environment =
            Environment { clock: clock.clone(), seed: 1, ..Environment::of_machine(None) };
        let engine = (flash_bytes > 0).then(|| {
            let config = LogConfig {
                paths: Vec::new(),
                flash_bytes,
                workers,
                segment_bytes: Some(256 << 10),
                backend: Backend::Auto,
            };
            open_sim(&SimDisk::new(1, 1, 4096), &config).expect("opens")
        });
        let tier = Tier::new(Arc::new(Keyspace::default()), engine, environment, budget, workers);
        tier.settings.set_policy(policy);
        let tier = Arc::new(tier);
        let worker = |index| TierWorker::new(Arc::clone(&tier), index).expect("a worker");
        let (worker, others) = (worker(0), (1..workers).map(worker).collect());
        let [batches, rounds, waited, evicted_most] = [const { Cell::new(0) }; 4];
        let overhead = Cell::new(None);
        let drives_stand_until = Cell::default();
        Machine {
            worker,
            others,
            resident,
            overhead,
            clock,
            batches,
            rounds,
            waited,
            evicted_most,
            drives_stand_until,
        }
    }

    pub(crate) fn tier(&self) -> &Tier {
        &self.worker.tier
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.tier().counters.evicted.load(Ordering::Relaxed)
    }

    pub(crate) fn keys(&self) -> u64 {
        self.tier().key_count(0)
    }

    pub(crate) fn used(&self) -> u64 {
        self.tier().counters.ram_bytes().max(0) as u64
    }

    /// Pages come free slowly, unless there is a fixed overhead.
    pub(crate) fn measure(&self) {
        let used = self.used() * 9 / 8;
        let resident = self.resident.load(Ordering::Relaxed);
        let slowly = if used > resident { used } else { resident - (resident - used) / 16 };
        let now = self.overhead.get().map_or(slowly, |overhead| self.used() + overhead);
        self.resident.store(now, Ordering::Relaxed);
        self.tier().measure();
    }

    /// Runs a step, noting how many keys it evicts.
    pub(crate) fn step<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = self.evicted();
        let result = run();
        self.evicted_most.set(self.evicted_most.get().max(self.evicted() - before));
        result
    }

    /// A round of upkeep.
    pub(crate) fn round(&self) {
        for worker in std::iter::once(&self.worker).chain(&self.others) {
            self.step(|| worker.upkeep());
            worker.submit();
            if self.clock.now() >= self.drives_stand_until.get() {
                self.step(|| worker.reap());
            }
        }
        self.rounds.set(self.rounds.get() + 1);
        self.clock.0.fetch_add(5, Ordering::Relaxed);
        if self.rounds.get().is_multiple_of(ROUNDS) {
            self.measure();
        }
    }

    pub(crate) fn put(&self, name: &str, value: &[u8], expiry: Expiry) {
        let key = Key::new(name.as_bytes());
        let mut tally = Tally::default();
        let mut slot = self.tier().keyspace.lock(key.slot);
        Db::new(&mut slot, 0, 1, &mut tally).put(&key, 0, value, expiry);
        drop(slot);
        self.step(|| self.worker.after_batch(&mut tally));
        self.batches.set(self.batches.get() + 1);
        if self.batches.get().is_multiple_of(BATCHES) {
            self.round();
        }
    }

    /// Writes a key when there is memory for it.
    pub(crate) fn write(&self, name: &str, value: &[u8], expiry: Expiry) -> Result<(), TierError> {
        if self.worker.must_wait() {
            self.wait()?;
        }
        self.put(name, value, expiry);
        Ok(())
    }

    pub(crate) fn wait(&self) -> Result<(), TierError> {
        self.wait_until(self.worker.wait_for_data(0, reserved(0)))
    }

    pub(crate) fn wait_for(&self, bytes: u64) -> Result<(), TierError> {
        self.wait_until(self.worker.wait_for_memory(bytes, reserved(bytes)))
    }

    pub(crate) fn wait_until(
        &self,
        wait: impl Future<Output = Result<Claim, TierError>>,
    ) -> Result<(), TierError> {
        let mut wait = pin!(wait);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..WAIT_ROUNDS_MAX {
            if let Poll::Ready(result) = self.step(|| wait.as_mut().poll(&mut cx)) {
                return result.map(drop);
            }
            self.waited.set(self.waited.get() + 1);
            // Five seconds are over soon.
            self.clock.0.fetch_add(45, Ordering::Relaxed);
            self.round();
        }
        panic!("a write waits for ever");
    }

    /// The same with the clock as upkeep moves it. Returns how long it took as well.
    pub(crate) fn wait_in_real_time(&self, bytes: u64) -> (Result<(), TierError>, Duration) {
        self.in_real_time(self.worker.wait_for_memory(bytes, reserved(bytes)))
    }

    pub(crate) fn in_real_time(
        &self,
        wait: impl Future<Output = Result<Claim, TierError>>,
    ) -> (Result<(), TierError>, Duration) {
        let start = self.clock.now();
        let mut wait = pin!(wait);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..WAIT_ROUNDS_MAX {
            if let Poll::Ready(result) = wait.as_mut().poll(&mut cx) {
                return (result.map(drop), self.clock.now() - start);
            }
            self.round();
        }
        panic!("a write waits for ever");
    }

    pub(crate) fn remove(&self, name: &str) {
        let key = Key::new(name.as_bytes());
        let mut tally = Tally::default();
        let mut slot = self.tier().keyspace.lock(key.slot);
        Db::new(&mut slot, 0, 1, &mut tally).remove(&key);
        drop(slot);
        self.worker.after_batch(&mut tally);
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        let key = Key::new(name.as_bytes());
        let mut slot = self.tier().keyspace.lock(key.slot);
        Db::new(&mut slot, 0, 1, &mut Tally::default()).peek(&key).is_some()
    }

    /// Uses a key, if it is there.
    pub(crate) fn touch(&self, name: &str) {
        let key = Key::new(name.as_bytes());
        let mut slot = self.tier().keyspace.lock(key.slot);
        let mut tally = Tally::default();
        let _ = Db::new(&mut slot, 0, 1, &mut tally).into_read(&key, true);
    }

    /// Whether a read of a key has to wait for flash.
    pub(crate) fn is_cold(&self, name: &str) -> bool {
        let key = Key::new(name.as_bytes());
        let mut slot = self.tier().keyspace.lock(key.slot);
        let mut tally = Tally::default();
        let mut db = Db::new(&mut slot, 0, 1, &mut tally);
        db.peek(&key).is_some_and(|view| matches!(view.stored, Stored::Cold(..)))
    }

    pub(crate) fn check_counts(&self) {
        let keyspace = &self.tier().keyspace;
        let keys: usize = (0..SLOT_COUNT as u16).map(|slot| keyspace.lock(slot).len(0)).sum();
        assert_eq!(self.keys(), keys as u64);
    }
}

pub(crate) fn reserved(bytes: u64) -> Held {
    Held { reserved_bytes: bytes, ..Held::default() }
}
