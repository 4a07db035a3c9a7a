//! An engine comes and goes: threads that began before read by the one that there is, and no value is left on one that goes.

use std::cell::Cell;
use std::sync::Arc;

use flash::{Backend, Engine, LogConfig, SimDisk, open_sim};
use keyspace::{Db, Expiry, Key, Stored, Tally};
use tier::{Budget, Copier, Environment, FetchedSet, StopReason, Tier, TierWorker, Want};

const SEGMENT_BYTES: u64 = 64 << 10;
const KEYS: usize = 20;
const TURNS_MAX: usize = 100_000;

fn open(disk: &SimDisk) -> Arc<dyn Engine> {
    let config = LogConfig {
        paths: Vec::new(),
        flash_bytes: 48 * SEGMENT_BYTES,
        workers: 2,
        segment_bytes: Some(SEGMENT_BYTES),
        backend: Backend::Auto,
    };
    open_sim(disk, &config).expect("opens")
}

struct Rig {
    tier: Arc<Tier>,
    worker: TierWorker,
}

impl Rig {
    /// One without flash.
    fn new() -> Rig {
        Rig::with_workers(1)
    }

    /// One without flash, of several workers of which it has the first.
    fn with_workers(workers: usize) -> Rig {
        let budget = Budget::new(0).expect("memory can be measured");
        let environment = Environment::of_machine(None);
        let tier = Arc::new(Tier::new(Arc::default(), None, environment, budget, workers));
        let worker = TierWorker::new(Arc::clone(&tier), 0).expect("a worker");
        Rig { tier, worker }
    }

    fn change<R>(&self, key: &Key<'_>, change: impl FnOnce(Db<'_>) -> R) -> R {
        let mut tally = Tally::default();
        let mut slot = self.tier.keyspace.lock(key.slot);
        let result = change(Db::new(&mut slot, 0, 0, &mut tally));
        drop(slot);
        self.tier.add_tally(&mut tally);
        result
    }

    fn follow(&self) {
        follow(&self.worker);
        assert!(self.tier.have_workers_followed());
    }

    fn switch_on(&self, engine: Arc<dyn Engine>) {
        self.tier.offer_engine(engine);
        assert!(!self.tier.has_flash() && !self.tier.have_workers_followed());
        self.follow();
        self.tier.begin_demoting();
    }

    fn switch_off(&self) {
        let none: Result<(), String> = Ok(());
        for slot in 0..keyspace::SLOT_COUNT as u16 {
            let drained = self.worker.drain_slot(slot, &|_| none.clone(), str::to_owned);
            assert_eq!(drained, none);
        }
        assert!(self.tier.end_demoting(&self.tier.keyspace.lock_all()));
        self.tier.recall_engine();
        self.follow();
        let engine = self.tier.take_engine().expect("there was one");
        assert_eq!(Arc::strong_count(&engine), 1, "nobody has it any more");
    }

    /// What to fetch for a key whose value is on flash alone.
    fn want(&self, key: &Key<'_>) -> Want {
        self.change(key, |mut db| match db.peek(key).map(|view| view.stored) {
            Some(Stored::Cold(at, len)) => self.tier.want(key, at, len),
            _ => panic!("{:?} is not on flash alone", key.bytes),
        })
    }
}

fn follow(worker: &TierWorker) {
    while worker.is_engine_changed() {
        let followed = (0..TURNS_MAX).find_map(|_| worker.follow_engine().expect("a side"));
        worker.note_followed(followed.expect("it ends"));
    }
}

/// A value that the first worker has on a second engine is there for both.
fn check_second(rig: &Rig, other: &TierWorker) {
    let disk = SimDisk::new(2, 1, 512);
    rig.tier.offer_engine(open(&disk));
    [&rig.worker, other].into_iter().for_each(follow);
    rig.tier.begin_demoting();
    let key = Key::new(b"key");
    rig.change(&key, |mut db| db.put(&key, 0, &value(0, 7), Expiry::Clear));
    assert_eq!(rig.worker.demote_key(0, &key, 0), Ok(true));
    let want = rig.want(&key);
    for worker in [&rig.worker, other] {
        assert_eq!(worker.fetch_now(vec![want]).value(want.record), Some(&*value(0, 7)));
    }
    let live_bytes = rig.tier.engine().map(|engine| engine.free_space().live_bytes);
    assert_ne!(live_bytes, Some(0));
}

fn name(index: usize) -> String {
    format!("key{index:02}")
}

/// A value of some hundred or some ten thousand bytes, or one that is demoted without a copy.
fn value(index: usize, round: u8) -> Vec<u8> {
    vec![round ^ index as u8; [300, 20_000, 70][index % 3]]
}

#[test]
fn an_engine_comes_and_goes_and_comes_again() {
    let rig = Rig::new();
    // It has no side when the first engine comes, and then that of the one before.
    let reader = TierWorker::reader(Arc::clone(&rig.tier)).expect("a reader");
    for round in 1..=3 {
        let disk = SimDisk::new(u64::from(round), 1, 512);
        for index in 0..KEYS {
            let name = name(index);
            let key = Key::new(name.as_bytes());
            rig.change(&key, |mut db| db.put(&key, 0, &value(index, round), Expiry::Clear));
        }
        let first = name(0);
        let first = Key::new(first.as_bytes());
        assert_eq!(rig.worker.demote_key(0, &first, 0), Err(StopReason::Failed), "no flash");
        rig.switch_on(open(&disk));
        for index in 0..KEYS {
            let name = name(index);
            let key = Key::new(name.as_bytes());
            assert_eq!(rig.worker.demote_key(0, &key, 0), Ok(true));
        }
        for index in 0..KEYS {
            let name = name(index);
            let want = rig.want(&Key::new(name.as_bytes()));
            let fetched: FetchedSet = reader.fetch_now(vec![want]);
            assert_eq!(fetched.value(want.record), Some(&*value(index, round)), "{index} {round}");
        }
        assert!(!rig.tier.end_demoting(&rig.tier.keyspace.lock_all()), "values are there");
        rig.switch_off();
        for index in 0..KEYS {
            let name = name(index);
            let key = Key::new(name.as_bytes());
            let stored = rig.change(&key, |mut db| match db.peek(&key).map(|view| view.stored) {
                Some(Stored::Hot(found)) => found.to_vec(),
                _ => panic!("{name} is not in RAM alone"),
            });
            assert_eq!(stored, value(index, round));
        }
        assert_eq!(rig.tier.engine().map(drop), None);
    }
}

#[test]
fn an_engine_that_is_recalled_before_all_have_it_is_let_go_of_by_those_who_have() {
    let rig = Rig::with_workers(2);
    let other = TierWorker::new(Arc::clone(&rig.tier), 1).expect("a worker");
    let disk = SimDisk::new(1, 1, 512);
    rig.tier.offer_engine(open(&disk));
    let taken = rig.worker.follow_engine().expect("a side").expect("one was offered");
    // The other has failed to take its side.
    rig.tier.recall_engine();
    rig.worker.note_followed(taken);
    follow(&other);
    assert!(!rig.tier.have_workers_followed(), "the first has its side still");
    follow(&rig.worker);
    let engine = rig.tier.take_engine().expect("there was one");
    assert_eq!(Arc::strong_count(&engine), 1);
    check_second(&rig, &other);
}

#[test]
fn a_read_behind_a_recall_takes_no_side() {
    let rig = Rig::with_workers(2);
    let other = TierWorker::new(Arc::clone(&rig.tier), 1).expect("a worker");
    let disk = SimDisk::new(1, 1, 512);
    rig.tier.offer_engine(open(&disk));
    [&rig.worker, &other].into_iter().for_each(follow);
    rig.tier.begin_demoting();
    let key = Key::new(b"waits");
    rig.change(&key, |mut db| db.put(&key, 0, &value(0, 1), Expiry::Clear));
    assert_eq!(rig.worker.demote_key(0, &key, 0), Ok(true));
    let want = rig.want(&key);
    for slot in 0..keyspace::SLOT_COUNT as u16 {
        other.drain_slot(slot, &|_| Ok(()), str::to_owned).expect("it is read");
    }
    assert!(rig.tier.end_demoting(&rig.tier.keyspace.lock_all()));
    rig.tier.recall_engine();
    follow(&rig.worker);
    // The reader of a value that has come back meanwhile, for which it had to wait.
    assert_eq!(rig.worker.fetch_now(vec![want]).value(want.record), None);
    follow(&other);
    rig.tier.take_engine().expect("there was one");
    check_second(&rig, &other);
}

#[test]
fn copies_for_a_checkpoint_end_where_flash_is_to_go() {
    let rig = Rig::new();
    let disk = SimDisk::new(1, 1, 512);
    rig.switch_on(open(&disk));
    let names: Vec<String> = (0..KEYS).map(|index| format!("{{slot}}{index}")).collect();
    for name in &names {
        let key = Key::new(name.as_bytes());
        rig.change(&key, |mut db| db.put(&key, 0, &value(1, 1), Expiry::Clear));
    }
    let mut copier = Copier::new(&rig.tier).expect("a side").expect("there is much to copy");
    let seen = Cell::new(0);
    copier.copy_slot(Key::new(names[0].as_bytes()).slot, |_| {
        seen.set(seen.get() + 1);
        if seen.get() == KEYS / 2 {
            rig.tier.set_drains(true);
        }
        assert!(seen.get() <= KEYS, "it goes on and on");
        true
    });
    assert_eq!(seen.get(), KEYS / 2);
    drop(copier);
    rig.tier.set_drains(false);
    rig.switch_off();
}
