//! Memory for work in the background, which has a thread of its own and no client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::limits::BACKGROUND_LOOKS_MAX;
use crate::tier::Tier;
use crate::wait::Claim;

/// Between two looks at memory.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Memory that such work holds until this is dropped. It counts in the budget like what clients reserve.
pub struct Background {
    tier: Arc<Tier>,
    bytes: u64,
    /// Held for its drop alone.
    claim: Option<Claim>,
}

impl Background {
    /// Reserves memory that is there already or soon will be, without a wait: for what has a small bound of its own.
    pub fn small(tier: &Arc<Tier>, bytes: u64) -> Background {
        tier.budget.add_reserved(bytes as i64);
        Background { tier: tier.clone(), bytes, claim: None }
    }

    /// The same with what was claimed of it.
    pub(crate) fn with(mut self, claim: Claim) -> Background {
        self.claim = Some(claim);
        self
    }

    /// Reserves memory, and waits until that much is free, with turns of `others`. Workers demote for it. None: it
    /// cannot be had.
    pub(crate) async fn in_turns(
        tier: &Arc<Tier>,
        bytes: u64,
        others: &impl AsyncFn(),
    ) -> Option<Background> {
        let reserved = Background::small(tier, bytes);
        let asking = Asking::new(tier);
        for _ in 0..BACKGROUND_LOOKS_MAX {
            if let Some(claim) = Claim::if_it_fits(tier, bytes) {
                return Some(reserved.with(claim));
            }
            asking.ask(bytes);
            let looked = tier.clock.now();
            while tier.clock.now() - looked < LOOK_EVERY {
                others().await;
            }
        }
        None
    }

    /// Reserves memory, and waits with the thread until that much is free, if it is much. Workers demote for it.
    /// None: it cannot be had, or `goes_on` says that it is no longer wanted.
    pub fn wait(tier: &Arc<Tier>, bytes: u64, goes_on: impl Fn() -> bool) -> Option<Background> {
        let reserved = Background::small(tier, bytes);
        if tier.budget.large(bytes) == 0 {
            return Some(reserved);
        }
        let asking = Asking::new(tier);
        for _ in 0..BACKGROUND_LOOKS_MAX {
            if let Some(claim) = Claim::if_it_fits(tier, bytes) {
                return Some(reserved.with(claim));
            }
            if !goes_on() {
                return None;
            }
            asking.ask(bytes);
            std::thread::sleep(LOOK_EVERY);
        }
        None
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tier.budget.add_reserved(-(self.bytes as i64));
    }
}

/// Has workers demote until this is dropped.
struct Asking<'a>(&'a Tier);

impl Asking<'_> {
    fn new(tier: &Tier) -> Asking<'_> {
        tier.asking_workers.fetch_add(1, Ordering::Relaxed);
        Asking(tier)
    }

    /// Asks for what is missing, once what was asked for before is on flash: until then it is in RAM.
    fn ask(&self, bytes: u64) {
        let Tier { asked_bytes, writing_workers, budget, .. } = self.0;
        if asked_bytes.load(Ordering::Relaxed) <= 0 && writing_workers.load(Ordering::Relaxed) == 0
        {
            let missing = budget.missing_bytes(bytes) + budget.claimed_bytes();
            asked_bytes.fetch_max(missing, Ordering::Relaxed);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking_workers.fetch_sub(1, Ordering::Relaxed);
    }
}
