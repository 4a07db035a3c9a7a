//! Fetched values belong to the record that was wanted, whatever lies at its place by then.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flash::{Backend, Engine, LogConfig, SimDisk, SimFaults, open_sim};
use keyspace::{Db, Expiry, FlashRef, Key, Keyspace, Stored, Tally};
use tier::{Budget, Environment, FetchedSet, Tier, TierWorker, Want, sort_wants};

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 24;
/// Keys that are written until a place is used again, at most.
const KEYS_MAX: usize = 2000;
/// Keys that are read together, more than begin in one go.
const KEYS_OF_MANY: usize = 300;
/// A value that is read in pieces, and segments for so many of them.
const LARGE_LEN: usize = 17_000;
const SEGMENTS_OF_MANY: u64 = 160;
/// Reads that a worker may start before others have their turn: about a millisecond.
const IN_ONE_GO_MAX: usize = 100;
/// Turns after which something that should end hangs.
const TURNS_MAX: usize = 100_000;

/// One worker on a simulated drive.
struct Rig {
    disk: SimDisk,
    engine: Arc<dyn Engine>,
    tier: Arc<Tier>,
    worker: TierWorker,
}

impl Rig {
    fn new() -> Rig {
        Rig::with_segments(SEGMENTS)
    }

    fn with_segments(segments: u64) -> Rig {
        let config = LogConfig {
            paths: Vec::new(),
            flash_bytes: segments * SEGMENT_BYTES,
            workers: 1,
            segment_bytes: Some(SEGMENT_BYTES),
            backend: Backend::Auto,
        };
        let disk = SimDisk::new(2, 1, 512);
        let engine = open_sim(&disk, &config).expect("opens");
        let budget = Budget::new(0).expect("memory can be measured");
        let keyspace = Arc::new(Keyspace::default());
        let environment = Environment::of_machine(None);
        let tier = Arc::new(Tier::new(keyspace, Some(Arc::clone(&engine)), environment, budget, 1));
        let worker = TierWorker::new(Arc::clone(&tier), 0).expect("a worker");
        Rig { disk, engine, tier, worker }
    }

    fn change<R>(&self, key: &str, change: impl FnOnce(Db<'_>, &Key<'_>) -> R) -> R {
        let key = Key::new(key.as_bytes());
        let mut tally = Tally::default();
        let mut slot = self.tier.keyspace.lock(key.slot);
        let result = change(Db::new(&mut slot, 0, 0, &mut tally), &key);
        drop(slot);
        self.tier.add_tally(&mut tally);
        result
    }

    /// Sets a key and sends its value to flash. Returns the place.
    fn set_cold(&self, key: &str, value: &[u8]) -> FlashRef {
        self.change(key, |mut db, key| db.put(key, 0, value, Expiry::Clear));
        assert_eq!(self.worker.demote_key(0, &Key::new(key.as_bytes()), 0), Ok(true));
        self.worker.flush();
        self.settle();
        self.want(key).at
    }

    fn want(&self, key: &str) -> Want {
        self.change(key, |mut db, key| match db.peek(key).map(|view| view.stored) {
            Some(Stored::Cold(at, len)) => self.tier.want(key, at, len),
            _ => panic!("{:?} is not on flash alone", key.bytes),
        })
    }

    fn remove(&self, key: &str) {
        assert!(self.change(key, |mut db, key| db.remove(key)));
    }

    fn settle(&self) {
        self.run(async {
            while self.worker.in_flight() > 0 {
                self.worker.device_turn().await;
            }
        });
    }

    fn fetch(&self, mut wants: Vec<Want>) -> FetchedSet {
        sort_wants(&mut wants);
        self.run(self.worker.fetch(wants))
    }

    fn run<R>(&self, future: impl Future<Output = R>) -> R {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut future, mut submitter) = (pin!(future), pin!(self.worker.submitter()));
        for _ in 0..TURNS_MAX {
            if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
                return result;
            }
            let _ = submitter.as_mut().poll(&mut cx);
            self.worker.reap();
        }
        panic!("it hangs");
    }

    /// Writes keys, each removed before the next, until one lies at `at`. Returns that one.
    fn set_at(&self, at: FlashRef, value: &[u8]) -> String {
        for number in 0..KEYS_MAX {
            let key = format!("k{number:05}");
            if self.set_cold(&key, value).units == at.units {
                return key;
            }
            self.remove(&key);
        }
        panic!("the place is not used again");
    }
}

/// Small, large, larger than a segment.
const LENS: [usize; 3] = [1500, 40_000, 100_000];

#[test]
fn a_fetched_value_is_not_that_of_the_next_record_at_its_place() {
    for (len, resets) in LENS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
        let rig = Rig::new();
        let at = rig.set_cold("first0", &vec![1; len]);
        let old = rig.want("first0");
        let fetched = rig.fetch(vec![old]);
        assert_eq!(fetched.value(old.record), Some(&vec![1; len][..]));
        rig.remove("first0");
        if resets {
            rig.engine.reset();
        }
        let key = rig.set_at(at, &vec![2; len]);
        let new = rig.want(&key);
        assert_eq!(new.at, at);
        assert!(!fetched.has(new.record), "{len} bytes");
        let fetched = rig.fetch(vec![new, old]);
        assert_eq!(fetched.value(new.record), Some(&vec![2; len][..]));
        assert!(!fetched.has(old.record));
    }
}

#[test]
fn a_record_that_is_gone_is_neither_read_nor_damaged_whatever_lies_there_now() {
    for (old_len, new_len) in [(1500, 1500), (1500, 900), (40_000, 40_000), (40_000, 30_000)] {
        let rig = Rig::new();
        let at = rig.set_cold("first0", &vec![1; old_len]);
        let old = rig.want("first0");
        rig.remove("first0");
        let key = rig.set_at(at, &vec![2; new_len]);
        let fetched = rig.fetch(vec![old]);
        assert!(!fetched.has(old.record), "{old_len} and {new_len} bytes");
        assert!(!fetched.has(rig.want(&key).record));
        assert_eq!(rig.engine.stats().checksum_failures, 0);
    }
}

#[test]
fn a_failure_is_not_that_of_the_next_record_at_its_place() {
    let rig = Rig::new();
    let at = rig.set_cold("first0", &[1; 1500]);
    let old = rig.want("first0");
    rig.disk.set_faults(SimFaults { failed_reads: 1000, ..SimFaults::default() });
    let fetched = rig.fetch(vec![old]);
    rig.disk.set_faults(SimFaults::default());
    assert!(fetched.failure(old.record).is_some());
    rig.remove("first0");
    let key = rig.set_at(at, &[2; 1500]);
    assert!(fetched.failure(rig.want(&key).record).is_none());
}

#[test]
fn what_a_command_keeps_is_there_beside_what_it_fetches_next() {
    let rig = Rig::new();
    let keys = ["a", "b", "c"];
    for (key, fill) in keys.iter().zip(1..) {
        rig.set_cold(key, &[fill; 1500]);
    }
    let [a, b, c] = keys.map(|key| rig.want(key));
    let mut fetched = rig.fetch(vec![a, b]);
    fetched.keep(&[a]);
    assert!(!fetched.has(b.record), "nobody needs it any more");
    fetched.extend(rig.fetch(vec![c]));
    assert_eq!(fetched.value(a.record), Some(&[1; 1500][..]));
    assert_eq!(fetched.value(c.record), Some(&[3; 1500][..]));
    // One that could be read only later.
    rig.disk.set_faults(SimFaults { failed_reads: 1000, ..SimFaults::default() });
    fetched.extend(rig.fetch(vec![b]));
    assert!(fetched.failure(b.record).is_some());
    rig.disk.set_faults(SimFaults::default());
    fetched.extend(rig.fetch(vec![b]));
    assert_eq!(fetched.value(b.record), Some(&[2; 1500][..]));
    assert!(fetched.value(a.record).is_some());
}

/// Many keys on flash alone, and the fetch of them all, whose first reads have been started.
fn many_reads(rig: &Rig, len: usize) -> (Vec<Want>, Pin<Box<impl Future<Output = FetchedSet>>>) {
    let keys: Vec<String> = (0..KEYS_OF_MANY).map(|number| format!("k{number:05}")).collect();
    for key in &keys {
        rig.set_cold(key, &vec![1; len]);
    }
    let mut wants: Vec<Want> = keys.iter().map(|key| rig.want(key)).collect();
    sort_wants(&mut wants);
    let mut fetch = Box::pin(rig.worker.fetch(wants.clone()));
    assert!(fetch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    (wants, fetch)
}

#[test]
fn many_reads_are_not_handed_to_the_kernel_in_one_go() {
    let rig = Rig::new();
    let (wants, fetch) = many_reads(&rig, 1500);
    let _ = pin!(rig.worker.submitter()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(rig.worker.in_flight() <= IN_ONE_GO_MAX, "{}", rig.worker.in_flight());
    let fetched = rig.run(fetch);
    assert!(wants.iter().all(|want| fetched.has(want.record)), "those behind follow");
}

#[test]
fn reads_follow_those_that_completed_before_the_kernel_was_told() {
    let rig = Rig::with_segments(SEGMENTS_OF_MANY);
    // As when the ring is full of other operations. Reads of small values wait for the end of the turn.
    rig.disk.set_faults(SimFaults { eager_reads: 1000, ..SimFaults::default() });
    let (_, _fetch) = many_reads(&rig, LARGE_LEN);
    for _ in 0..TURNS_MAX {
        rig.worker.reap();
    }
    assert_eq!(rig.worker.in_flight(), 0);
    let _ = pin!(rig.worker.submitter()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(rig.worker.in_flight() > 0, "no completion would start them");
}

#[test]
fn few_reads_wait_neither_for_the_end_of_a_turn_nor_for_that_of_the_next() {
    let rig = Rig::with_segments(SEGMENTS_OF_MANY);
    rig.engine.set_read_ahead(false);
    let keys: Vec<String> = (0..80).map(|number| format!("k{number:05}")).collect();
    for key in &keys {
        rig.set_cold(key, &[1; 1500]);
    }
    let device_reads = || rig.engine.stats().device_reads;
    let mut cx = Context::from_waker(Waker::noop());
    let mut start = |keys: &[String]| {
        let mut wants: Vec<Want> = keys.iter().map(|key| rig.want(key)).collect();
        sort_wants(&mut wants);
        let mut fetch = Box::pin(rig.worker.fetch(wants));
        assert!(fetch.as_mut().poll(&mut cx).is_pending());
        fetch
    };
    let mut submitter = pin!(rig.worker.submitter());
    // So many batches have ended, some of which have waited for reads.
    let mut end_turn = |batches: usize, of_readers: usize| {
        (0..batches).for_each(|number| rig.worker.end_batch(number < of_readers));
        assert!(submitter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    end_turn(64, 0);
    let before = device_reads();
    let mut few = start(&keys[..8]);
    assert!(device_reads() > before, "the device was asked before the turn ended");
    let ends = |_| {
        rig.worker.notice_reads();
        few.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!((0..TURNS_MAX).any(ends), "and its answer was noticed");
    // A turn in which many begin to wait, then one in which they are answered, and others find what they read in RAM.
    let of_many: Vec<_> = keys[..72].chunks(8).map(&mut start).collect();
    let before = device_reads();
    end_turn(48, 0);
    assert!(device_reads() > before, "no more than are few");
    rig.run(async {
        for fetch in of_many {
            assert!(fetch.await.has_waited());
        }
    });
    end_turn(64, 32);
    let before = device_reads();
    let one = start(&keys[72..]);
    assert_eq!(device_reads(), before, "it waits for others of its turn");
    // Upkeep has the submitter run too: that says nothing of clients.
    end_turn(0, 0);
    assert!(device_reads() > before);
    rig.run(one);
    let before = device_reads();
    let one = start(&keys[72..]);
    assert_eq!(device_reads(), before);
    end_turn(256, 4);
    rig.run(one);
    let before = device_reads();
    let few = start(&keys[..8]);
    assert!(device_reads() > before, "few again");
    rig.run(few);
}
