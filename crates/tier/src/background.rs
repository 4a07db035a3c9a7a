//! Memory for work in the background, which has a thread of its own and no client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{BACKGROUND_LOOKS_FEW, BACKGROUND_LOOKS_MAX, LARGE_WRITE_BYTES};
use crate::tier::Tier;
use crate::wait::{Claim, Held, WaitingHeld};

/// Between two looks at memory.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Memory that such work holds until this is dropped. It counts in the budget, and not as the clients'.
pub struct Background {
    tier: Arc<Tier>,
    bytes: u64,
    /// Held for its drop alone.
    claim: Option<Claim>,
}

impl Background {
    /// Reserves memory that is there already or soon will be, without a wait: for what has a small bound of its own.
    pub fn small(tier: &Arc<Tier>, bytes: u64) -> Background {
        tier.budget.add_background(bytes as i64);
        Background { tier: tier.clone(), bytes, claim: None }
    }

    /// The same, with a wait of the thread of a tenth of a second at most while that much is not free: workers demote
    /// for it.
    pub fn soon(tier: &Arc<Tier>, bytes: u64) -> Background {
        let mut sought = Sought::new(tier, bytes);
        for _ in 0..BACKGROUND_LOOKS_FEW {
            if sought.is_there() {
                break;
            }
            stdx::waiting::sleep(LOOK_EVERY);
        }
        sought.memory
    }

    /// Whether it is free, and claimed.
    pub fn has_claim(&self) -> bool {
        self.claim.is_some()
    }

    /// Says that it is resident, so that others need not leave room for it.
    pub fn end_claim(&mut self) {
        self.claim = None;
    }

    /// Reserves memory, and waits until that much is free; `pause` waits between two looks. Workers demote for it.
    /// None: it cannot be had.
    pub(crate) async fn in_turns(
        tier: &Arc<Tier>,
        bytes: u64,
        pause: &impl AsyncFn(),
    ) -> Option<Background> {
        let mut sought = Sought::new(tier, bytes);
        while !sought.is_there() {
            if sought.is_in_vain() {
                return None;
            }
            pause().await;
        }
        Some(sought.memory)
    }

    /// Reserves memory, and waits with the thread until that much is free, if it is much. Workers demote for it.
    /// None: it cannot be had, or `goes_on` says that it is no longer wanted.
    pub fn wait(tier: &Arc<Tier>, bytes: u64, goes_on: impl Fn() -> bool) -> Option<Background> {
        if bytes < LARGE_WRITE_BYTES {
            return Some(Background::small(tier, bytes));
        }
        let mut sought = Sought::new(tier, bytes);
        while !sought.is_there() {
            if sought.is_in_vain() || !goes_on() {
                return None;
            }
            stdx::waiting::sleep(LOOK_EVERY);
        }
        Some(sought.memory)
    }
}

/// Memory that grows and shrinks piece by piece, as others work for what is in the background. It counts in the budget
/// until this is dropped, so that values leave RAM for it.
pub struct Counted {
    tier: Arc<Tier>,
    bytes: AtomicU64,
}

impl Counted {
    /// None yet.
    pub fn new(tier: Arc<Tier>) -> Counted {
        Counted { tier, bytes: AtomicU64::new(0) }
    }

    /// How much there is, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds to it.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.tier.budget.add_background(bytes as i64);
    }

    /// Takes away what was added before.
    pub fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.tier.budget.add_background(-(bytes as i64));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.subtract(self.bytes());
    }
}

/// Memory that is reserved and may not be free yet.
struct Sought<'a> {
    memory: Background,
    asking: Asking<'a>,
    /// Since when.
    since: Duration,
}

impl Sought<'_> {
    fn new(tier: &Arc<Tier>, bytes: u64) -> Sought<'_> {
        let memory = Background::small(tier, bytes);
        Sought { memory, asking: Asking::new(tier, bytes), since: tier.clock.now() }
    }

    /// Looks whether it is free, and claims it; asks for it otherwise.
    fn is_there(&mut self) -> bool {
        let Background { tier, bytes, claim } = &mut self.memory;
        *claim = Claim::if_it_fits(tier, *bytes);
        if claim.is_none() {
            self.asking.ask(*bytes);
        }
        claim.is_some()
    }

    fn is_in_vain(&self) -> bool {
        let Tier { clock, .. } = &*self.memory.tier;
        clock.now() - self.since >= LOOK_EVERY * BACKGROUND_LOOKS_MAX
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tier.budget.add_background(-(self.bytes as i64));
    }
}

/// Has workers demote until this is dropped. Nobody waits meanwhile for what was reserved to be given back, for that waits
/// itself.
struct Asking<'a> {
    tier: &'a Tier,
    _held: WaitingHeld<'a>,
}

impl Asking<'_> {
    fn new(tier: &Tier, reserved_bytes: u64) -> Asking<'_> {
        if tier.asking_workers.fetch_add(1, Ordering::Relaxed) == 0 {
            // What the last that asked has left is for nobody.
            tier.asked_bytes.store(0, Ordering::Relaxed);
        }
        let held = Held { buffer_bytes: 0, reserved_bytes };
        Asking { tier, _held: tier.note_waiting(held) }
    }

    /// Asks for what is missing, once what was asked for before is on flash: until then it is in RAM.
    fn ask(&self, bytes: u64) {
        let Tier { asked_bytes, writing_workers, budget, .. } = self.tier;
        if asked_bytes.load(Ordering::Relaxed) <= 0 && writing_workers.load(Ordering::Relaxed) == 0
        {
            let missing = budget.missing_bytes(bytes, 0) + budget.claimed_bytes();
            asked_bytes.fetch_max(missing, Ordering::Relaxed);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.tier.asking_workers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use keyspace::Keyspace;

    use super::*;
    use crate::{Budget, Environment};

    fn tier() -> Arc<Tier> {
        let budget = Budget::new(0).expect("resident memory can be read");
        let environment = Environment::of_machine(None);
        Arc::new(Tier::new(Arc::new(Keyspace::default()), None, environment, budget, 1))
    }

    #[test]
    fn what_is_reserved_counts_and_not_as_the_clients() {
        let tier = tier();
        let counted = || (tier.budget.over_limit(), tier.budget.client_bytes());
        let (before, clients) = counted();
        let memory = Background::small(&tier, 1000);
        assert_eq!(counted(), (before + 1000, clients));
        drop(memory);
        assert_eq!(counted(), (before, clients));
    }

    #[test]
    fn what_grows_counts_until_it_is_dropped() {
        let tier = tier();
        let counted = || (tier.budget.background_bytes(), tier.budget.client_bytes());
        let memory = Counted::new(tier.clone());
        memory.add(1000);
        memory.add(50);
        memory.subtract(1000);
        assert_eq!((memory.bytes(), counted()), (50, (50, 0)));
        drop(memory);
        assert_eq!(counted(), (0, 0));
    }

    #[test]
    fn the_first_who_asks_asks_for_what_is_missing_now() {
        let tier = tier();
        // As the last has left it, who was refused.
        tier.asked_bytes.store(1 << 40, Ordering::Relaxed);
        let first = Asking::new(&tier, 0);
        assert_eq!(tier.asked_bytes.load(Ordering::Relaxed), 0);
        tier.asked_bytes.store(5000, Ordering::Relaxed);
        let second = Asking::new(&tier, 0);
        assert_eq!(tier.asked_bytes.load(Ordering::Relaxed), 5000);
        drop((first, second));
    }
}
