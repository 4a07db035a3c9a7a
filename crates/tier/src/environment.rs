//! What the tier learns from outside: time, randomness, resident memory and the allocator. They are
//! handed in, so that a simulation can give its own.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyspace::{Heap, Note, Noting};

/// What time it is.
pub trait Clock: Send + Sync + Debug {
    /// Time since some moment before the tier was made; it never goes back.
    fn now(&self) -> Duration;

    /// The time of day, Unix milliseconds.
    fn unix_ms(&self) -> u64;
}

/// Who wants to hear what becomes of keys without a client's doing.
pub trait Listener: Send + Sync {
    /// What it wants to hear of now, of keys whose slots are held. Cost: a load.
    fn noting(&self) -> Noting;

    /// What has become of keys, while their slots are held: it may not lock any. It empties the list.
    fn hear(&self, notes: &mut Vec<Note>);
}

/// How much memory the process has from the machine.
pub trait ResidentSource: Send + Debug {
    /// Resident bytes; none when they cannot be told now. Asked at each measurement, and by fast
    /// writers more often: it should cost some microseconds at most.
    fn resident_bytes(&mut self) -> Option<u64>;
}

/// All of it but resident memory, which is the budget's ([`crate::Budget::with_source`]).
pub struct Environment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where the workers' generators begin.
    pub seed: u64,
    /// The allocator, where it can tell how full its pages are.
    pub heap: Option<Box<dyn Heap>>,
    /// A value that is longer is large: it is stored as it is, and moves to flash and back without a copy.
    pub large_value_bytes: usize,
}

/// What is a large value to a server: compressing or copying one would stall a worker.
const LARGE_VALUE_BYTES: usize = 1 << 20;

impl Environment {
    /// That of a server: the machine's clocks, and the allocator that the program runs on.
    pub fn of_machine(heap: Option<Box<dyn Heap>>) -> Environment {
        Environment {
            clock: Arc::new(MachineClock(Instant::now())),
            seed: 0,
            heap,
            large_value_bytes: LARGE_VALUE_BYTES,
        }
    }
}

#[derive(Debug)]
struct MachineClock(Instant);

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
