//! What those who append, those who wait and the writer share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::SyncPolicy;
use super::error::JournalError;
use super::queue::Queue;
use super::status::Facts;
use super::tuning::Tuning;
use super::waiters::Waiters;

pub(crate) struct Shared {
    pub(super) tuning: Tuning,
    pub(super) queue: Queue,
    pub(super) waiters: Waiters,
    pub(super) facts: Mutex<Facts>,
    appended: AtomicU64,
    durable: AtomicU64,
    /// Memory of what the writer has taken and holds.
    held_memory: AtomicUsize,
    sync: AtomicU8,
    is_failing: AtomicBool,
    is_syncing: AtomicBool,
    started: Instant,
    /// Milliseconds from `started` to when the writer took the first of what is not durable; none: `u64::MAX`.
    behind_since_ms: AtomicU64,
}

const NOT_BEHIND: u64 = u64::MAX;

impl Shared {
    pub(super) fn new(
        queue: Queue,
        sync: SyncPolicy,
        tuning: Tuning,
        facts: Facts,
        now: Instant,
    ) -> Self {
        let (durable, appended) = {
            let buffer = &queue.lock().buffer;
            (buffer.start(), buffer.end())
        };
        let shared = Self {
            tuning,
            queue,
            waiters: Waiters::default(),
            facts: Mutex::new(facts),
            appended: AtomicU64::new(appended),
            durable: AtomicU64::new(durable),
            held_memory: AtomicUsize::new(0),
            sync: AtomicU8::new(0),
            is_failing: AtomicBool::new(false),
            is_syncing: AtomicBool::new(false),
            started: now,
            behind_since_ms: AtomicU64::new(NOT_BEHIND),
        };
        shared.set_sync_policy(sync);
        shared
    }

    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Shape: the queue is locked.
    pub(super) fn set_appended(&self, position: u64) {
        self.appended.store(position, Ordering::Release);
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn has_room(&self) -> bool {
        // In this order: what is durable was appended.
        let durable = self.durable();
        self.appended() - durable < self.tuning.held_bytes_max
    }

    /// Memory of all that is not durable, and of chunks that are kept for later, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.queue.lock().buffer.memory_bytes() + self.held_memory.load(Ordering::Relaxed)
    }

    pub(super) fn set_held_memory(&self, bytes: usize) {
        self.held_memory.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Acquire)
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.is_syncing.load(Ordering::Relaxed)
    }

    pub(super) fn set_syncing(&self, is_syncing: bool) {
        self.is_syncing.store(is_syncing, Ordering::Relaxed);
    }

    pub(super) fn sync_policy(&self) -> SyncPolicy {
        match self.sync.load(Ordering::Relaxed) {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::EverySecond,
            _ => SyncPolicy::Never,
        }
    }

    /// Changes it. What was written before is synced, so that nobody waits for what the policy before promised.
    pub(super) fn set_sync_policy(&self, sync: SyncPolicy) {
        let number = match sync {
            SyncPolicy::Always => 0,
            SyncPolicy::EverySecond => 1,
            SyncPolicy::Never => 2,
        };
        self.sync.store(number, Ordering::Relaxed);
        self.want_durable(self.appended());
    }

    pub(super) fn want_durable(&self, position: u64) {
        self.queue.want(position);
    }

    pub(super) fn behind(&self, now: Instant) -> Duration {
        match self.behind_since_ms.load(Ordering::Relaxed) {
            NOT_BEHIND => Duration::ZERO,
            since => (now - self.started).saturating_sub(Duration::from_millis(since)),
        }
    }

    /// Since when there is something that is not durable.
    pub(super) fn set_behind_since(&self, since: Option<Instant>) {
        let ms = since.map_or(NOT_BEHIND, |since| (since - self.started).as_millis() as u64);
        self.behind_since_ms.store(ms, Ordering::Relaxed);
    }

    /// Everything in front of `position` is durable.
    pub(super) fn publish(&self, position: u64) {
        debug_assert!(position >= self.durable());
        self.durable.store(position, Ordering::Release);
        self.waiters.wake(self);
    }

    /// Nothing becomes durable, for now.
    pub(super) fn fail(&self, error: JournalError) {
        self.facts.lock().error = Some(error);
        self.is_failing.store(true, Ordering::Release);
        self.queue.recheck_cut();
        self.waiters.wake(self);
    }

    /// The writer has got on again.
    pub(super) fn recover(&self) {
        self.is_failing.store(false, Ordering::Release);
        self.facts.lock().error = None;
    }

    /// Errors: why nothing becomes durable.
    pub(super) fn outcome(&self) -> Result<(), JournalError> {
        match self.facts.lock().error.clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub(super) fn close(&self) {
        self.queue.close();
    }

    /// The writer has ended when what this returns is dropped, however that came.
    pub(super) fn ends(&self) -> Ends<'_> {
        Ends(self)
    }
}

pub(super) struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let shared = self.0;
        // What was lost before is the better reason.
        let error = shared.facts.lock().error.clone().unwrap_or(JournalError::Closed);
        shared.fail(error);
    }
}
