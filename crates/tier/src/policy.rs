//! The settings that decide what stays in RAM, changeable while running.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use keyspace::DEMOTE_BYTES_MIN;

/// When a value that was read from flash comes back to RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// At once.
    Access,
    /// When it was used before within the last passes of the demotion hand, so that a scan or a
    /// stray read does not push out what is in use; at once while memory is free.
    SecondTouch,
}

/// Whether a read of flash brings what lies beside its value to RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromoteNeighbours {
    /// While it saves reads.
    Auto,
    /// Whenever the value may come to RAM.
    Always,
    /// Not at all.
    Never,
}

impl PromoteNeighbours {
    const ALL: [PromoteNeighbours; 3] =
        [PromoteNeighbours::Auto, PromoteNeighbours::Always, PromoteNeighbours::Never];
}

/// What goes when neither RAM nor flash has room: Redis's `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Redis's")]
pub enum EvictionPolicy {
    NoEviction,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

impl EvictionPolicy {
    /// All policies with the names that `CONFIG` knows them by.
    pub const NAMES: [(EvictionPolicy, &'static str); 8] = [
        (EvictionPolicy::NoEviction, "noeviction"),
        (EvictionPolicy::AllKeysLru, "allkeys-lru"),
        (EvictionPolicy::AllKeysLfu, "allkeys-lfu"),
        (EvictionPolicy::AllKeysRandom, "allkeys-random"),
        (EvictionPolicy::VolatileLru, "volatile-lru"),
        (EvictionPolicy::VolatileLfu, "volatile-lfu"),
        (EvictionPolicy::VolatileRandom, "volatile-random"),
        (EvictionPolicy::VolatileTtl, "volatile-ttl"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        EvictionPolicy::NAMES[self as usize].1
    }

    /// Whether only keys with an expiry may go.
    pub fn is_volatile(self) -> bool {
        self as u8 >= EvictionPolicy::VolatileLru as u8
    }

    /// Whether it spares keys that were used lately.
    pub(crate) fn is_by_use(self) -> bool {
        !matches!(
            self,
            EvictionPolicy::AllKeysRandom
                | EvictionPolicy::VolatileRandom
                | EvictionPolicy::VolatileTtl
        )
    }

    /// How many keys to choose one from, for a policy that goes by chance or by expiry; none for one
    /// that goes by use.
    pub(crate) fn samples(self, settings: &Settings) -> Option<usize> {
        match self {
            EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => Some(1),
            EvictionPolicy::VolatileTtl => Some(settings.samples() as usize),
            _ => None,
        }
    }

    /// Whether it goes by frequency (`OBJECT FREQ` is allowed).
    pub fn is_lfu(self) -> bool {
        matches!(self, EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu)
    }
}

/// The settings, as every worker reads them.
#[derive(Debug)]
pub struct Settings {
    second_touch: AtomicBool,
    promote_neighbours: AtomicU8,
    policy: AtomicU8,
    samples: AtomicU32,
    compress_bytes_min: AtomicU32,
    defrags: AtomicBool,
    value_bytes_min: AtomicU32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            second_touch: AtomicBool::new(true),
            promote_neighbours: AtomicU8::new(PromoteNeighbours::Auto as u8),
            policy: AtomicU8::new(0),
            samples: AtomicU32::new(5),
            compress_bytes_min: AtomicU32::new(u32::MAX),
            defrags: AtomicBool::new(true),
            value_bytes_min: AtomicU32::new(DEMOTE_BYTES_MIN as u32),
        }
    }
}

impl Settings {
    /// When a value comes back to RAM.
    #[inline]
    pub fn promotion(&self) -> Promotion {
        match self.second_touch.load(Ordering::Relaxed) {
            true => Promotion::SecondTouch,
            false => Promotion::Access,
        }
    }

    /// Sets when a value comes back to RAM.
    pub fn set_promotion(&self, promotion: Promotion) {
        self.second_touch.store(promotion == Promotion::SecondTouch, Ordering::Relaxed);
    }

    /// Whether a read of flash brings what lies beside its value to RAM.
    #[inline]
    pub fn promote_neighbours(&self) -> PromoteNeighbours {
        PromoteNeighbours::ALL[self.promote_neighbours.load(Ordering::Relaxed) as usize]
    }

    /// Sets whether a read of flash brings what lies beside its value to RAM.
    pub fn set_promote_neighbours(&self, promote: PromoteNeighbours) {
        self.promote_neighbours.store(promote as u8, Ordering::Relaxed);
    }

    /// What goes when nothing has room.
    pub fn policy(&self) -> EvictionPolicy {
        EvictionPolicy::NAMES[self.policy.load(Ordering::Relaxed) as usize].0
    }

    /// Sets what goes when nothing has room.
    pub fn set_policy(&self, policy: EvictionPolicy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// Keys looked at for one eviction (`maxmemory-samples`).
    pub fn samples(&self) -> u32 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Sets how many keys are looked at for one eviction.
    pub fn set_samples(&self, samples: u32) {
        self.samples.store(samples.max(1), Ordering::Relaxed);
    }

    /// Whether what lies in sparse pages may be moved (`activedefrag`).
    pub fn defrags(&self) -> bool {
        self.defrags.load(Ordering::Relaxed)
    }

    /// Sets whether what lies in sparse pages may be moved.
    pub fn set_defrags(&self, defrags: bool) {
        self.defrags.store(defrags, Ordering::Relaxed);
    }

    /// Shorter values are not demoted.
    pub fn value_bytes_min(&self) -> usize {
        self.value_bytes_min.load(Ordering::Relaxed) as usize
    }

    /// Sets the length from which values are demoted; `DEMOTE_BYTES_MIN` is the least.
    pub fn set_value_bytes_min(&self, bytes: u32) {
        self.value_bytes_min.store(bytes.max(DEMOTE_BYTES_MIN as u32), Ordering::Relaxed);
    }

    /// Values from this length on are compressed on their way to flash; `u32::MAX`: none is.
    pub fn compress_bytes_min(&self) -> u32 {
        self.compress_bytes_min.load(Ordering::Relaxed)
    }

    /// Sets the length from which values are compressed.
    pub fn set_compress_bytes_min(&self, bytes: u32) {
        self.compress_bytes_min.store(bytes, Ordering::Relaxed);
    }
}
