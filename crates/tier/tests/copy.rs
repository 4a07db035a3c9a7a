//! Values in RAM that are copied to flash for a checkpoint, on a simulated drive.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flash::{Backend, Engine, LogConfig, SimDisk, SimFaults, open_sim};
use keyspace::{Db, Expiry, Key, Keyspace, SLOT_COUNT, Stored, Tally, View};
use tier::{Budget, Copier, Environment, Tier, TierWorker};

const SEGMENT_BYTES: u64 = 64 << 10;
const NOW_MS: u64 = 1_700_000_000_000;
/// Bytes of a value that is copied.
const LEN: usize = 1_000;
/// Values that are worth copying, together.
const ENOUGH: usize = 400;

struct Rig {
    disk: SimDisk,
    engine: Arc<dyn Engine>,
    tier: Arc<Tier>,
}

impl Rig {
    fn new(segments: u64) -> Rig {
        let config = LogConfig {
            paths: Vec::new(),
            flash_bytes: segments * SEGMENT_BYTES,
            workers: 1,
            segment_bytes: Some(SEGMENT_BYTES),
            backend: Backend::Auto,
        };
        let disk = SimDisk::new(3, 1, 512);
        let engine = open_sim(&disk, &config).expect("opens");
        let budget = Budget::new(0).expect("memory can be measured");
        let environment = Environment::of_machine(None);
        let keyspace = Arc::new(Keyspace::default());
        let tier = Arc::new(Tier::new(keyspace, Some(Arc::clone(&engine)), environment, budget, 1));
        Rig { disk, engine, tier }
    }

    fn change<R>(&self, name: &str, change: impl FnOnce(&mut Db<'_>, &Key<'_>) -> R) -> R {
        let key = Key::new(name.as_bytes());
        let mut tally = Tally::default();
        let mut slot = self.tier.keyspace.lock(key.slot);
        let result = change(&mut Db::new(&mut slot, 0, 0, &mut tally), &key);
        drop(slot);
        self.tier.add_tally(&mut tally);
        result
    }

    fn put(&self, name: &str, len: usize, expiry: Expiry) {
        self.change(name, |db, key| db.put(key, 0, &value(name, len), expiry));
    }

    /// Puts so many values that are copied, and returns their names.
    fn fill(&self, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
        names.iter().for_each(|name| self.put(name, LEN, Expiry::Clear));
        names
    }

    /// Copies what there is in all slots. False: nothing is worth it, or there is no room.
    fn copy_all(&self, wanted: impl Fn(&Key<'_>) -> bool) -> bool {
        let copier = Copier::new(&self.tier).expect("a worker");
        let Some(mut copier) = copier else { return false };
        (0..SLOT_COUNT as u16).for_each(|slot| copier.copy_slot(slot, &wanted));
        true
    }

    /// Where the value of a key is, which is the one that was put.
    fn state_of(&self, name: &str, len: usize) -> State {
        self.change(name, |db, key| {
            let View { stored, .. } = db.peek(key).expect("it is there");
            match stored {
                Stored::Hot(found) | Stored::Clean(found, _) => assert_eq!(found, value(name, len)),
                Stored::Cold(_, found) => assert_eq!(found as usize, len),
            }
            match stored {
                Stored::Hot(_) => State::Hot,
                Stored::Clean(..) => State::Clean,
                Stored::Cold(..) => State::Cold,
            }
        })
    }

    fn count(&self, names: &[String], state: State) -> usize {
        names.iter().filter(|name| self.state_of(name, LEN) == state).count()
    }

    fn copied(&self) -> u64 {
        self.tier.counters.copied.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hot,
    Clean,
    Cold,
}

fn value(name: &str, len: usize) -> Vec<u8> {
    name.bytes().cycle().take(len).collect()
}

#[test]
fn what_is_worth_it_is_copied_and_stays() {
    let rig = Rig::new(128);
    rig.fill(ENOUGH);
    let never = Expiry::Clear;
    let now_ms = rig.tier.clock().unix_ms();
    let cases = [
        ("short", 100, never, State::Hot),
        ("small", 255, never, State::Hot),
        ("long-enough", 256, never, State::Clean),
        ("longer-than-a-buffer", 300_000, never, State::Clean),
        ("handed-over", (1 << 20) + 1, never, State::Hot),
        ("expires-soon", LEN, Expiry::At(now_ms + 60_000), State::Hot),
        ("expires-late", LEN, Expiry::At(now_ms + 3_600_000), State::Clean),
        ("unwanted", LEN, never, State::Hot),
    ];
    for (name, len, expiry, _) in cases {
        rig.put(name, len, expiry);
    }
    assert!(rig.copy_all(|key| key.bytes != b"unwanted"));
    for (name, len, _, state) in cases {
        assert_eq!(rig.state_of(name, len), state, "{name}");
    }
    assert_eq!(rig.copied() as usize, ENOUGH + 3);
    let live_bytes = rig.engine.stats().live_bytes;
    assert!(live_bytes > (ENOUGH * LEN) as u64, "{live_bytes}");
}

#[test]
fn a_value_is_written_once() {
    let rig = Rig::new(128);
    let names = rig.fill(ENOUGH);
    assert!(rig.copy_all(|_| true));
    let appends = rig.engine.stats().appends;
    assert_eq!(appends as usize, ENOUGH);
    assert!(!rig.copy_all(|_| true), "there is nothing that is in RAM alone");
    // What is new is copied when there is enough of it; what was copied is not written again.
    let more = (0..ENOUGH).map(|number| format!("more:{number}")).collect::<Vec<_>>();
    more.iter().for_each(|name| rig.put(name, LEN, Expiry::Clear));
    assert!(rig.copy_all(|_| true));
    assert_eq!(rig.engine.stats().appends, 2 * appends);
    let worker = TierWorker::new(Arc::clone(&rig.tier), 0).expect("a worker");
    for name in &names {
        assert_eq!(worker.demote_key(0, &Key::new(name.as_bytes()), NOW_MS), Ok(true));
    }
    assert_eq!(rig.count(&names, State::Cold), ENOUGH);
    assert_eq!(rig.engine.stats().appends, 2 * appends, "demotion writes nothing");
}

#[test]
fn a_copy_that_cannot_be_written_is_none() {
    let rig = Rig::new(128);
    let names = rig.fill(ENOUGH);
    let faults = SimFaults { failed_writes: 1000, ..SimFaults::default() };
    rig.disk.set_faults(faults);
    assert!(rig.copy_all(|_| true));
    let (hot, restored) = (rig.count(&names, State::Hot), rig.tier.restored());
    assert!(hot > 0 && restored > 0, "{hot} {restored}");
    assert_eq!(hot + rig.count(&names, State::Clean), ENOUGH);
}

#[test]
fn flash_that_is_short_of_room_takes_no_copies() {
    // More than a quarter stays free of what lives.
    let segments = 24;
    let rig = Rig::new(segments);
    let count = (segments * SEGMENT_BYTES) as usize / LEN;
    let names = rig.fill(count);
    assert!(rig.copy_all(|_| true));
    let clean = rig.count(&names, State::Clean);
    assert!((count / 4..count * 3 / 4).contains(&clean), "{clean} of {count}");
    assert_eq!(rig.count(&names, State::Hot), count - clean);
    assert!(!rig.copy_all(|_| true), "there is no more room");
    assert_eq!(rig.count(&names, State::Clean), clean);
}

#[test]
fn few_values_are_not_worth_it() {
    let rig = Rig::new(128);
    let names = rig.fill(SEGMENT_BYTES as usize * 3 / LEN);
    assert!(!rig.copy_all(|_| true));
    assert_eq!(rig.count(&names, State::Hot), names.len());
    assert_eq!(rig.engine.stats().appends, 0);
}
