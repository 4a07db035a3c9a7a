//! The engine comes and goes while the server runs.
//!
//! *On*: the engine is offered, each worker takes its side of it, and when all have, values go to flash. *Off*: all
//! values come back to RAM (`drain.rs`), while some may still leave it where memory is short; once none is on flash,
//! with every slot held, no value goes there any more; the workers let go of their sides, and the engine goes, with
//! its files.
//!
//! Invariant: where a value is on flash, every worker has its side of the engine that has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use flash::{Engine, EngineWorker, FreeSpace};
use keyspace::Locked;

use crate::tier::Tier;

/// Whether there is an engine, and what it is for.
pub(crate) struct FlashSwitch {
    /// Behind a second pointer, for the swap moves a thin one.
    engine: ArcSwapOption<Arc<dyn Engine>>,
    /// Whether values go to flash. Cleared with all slots held: who demotes looks with a slot held.
    demotes: AtomicBool,
    /// Whether values are coming back to RAM, so that none goes that need not.
    drains: AtomicBool,
    /// How often the engine came, or was to go: odd while there is one for the workers.
    changes: AtomicU64,
    /// The change that each worker has followed last.
    followed: Box<[AtomicU64]>,
}

impl FlashSwitch {
    pub(crate) fn new(engine: Option<Arc<dyn Engine>>, workers: usize) -> FlashSwitch {
        let has_engine = engine.is_some();
        FlashSwitch {
            engine: ArcSwapOption::new(engine.map(Arc::new)),
            demotes: AtomicBool::new(has_engine),
            drains: AtomicBool::new(false),
            changes: AtomicU64::new(u64::from(has_engine)),
            followed: (0..workers).map(|_| AtomicU64::new(u64::from(has_engine))).collect(),
        }
    }

    /// The engine, for a moment. Cost: a few instructions, none of which other threads feel.
    #[inline]
    pub(crate) fn engine(&self) -> Guard<Option<Arc<Arc<dyn Engine>>>> {
        self.engine.load()
    }
}

impl Tier {
    /// The engine, where there is one.
    pub fn engine(&self) -> Option<Arc<dyn Engine>> {
        self.flash.engine().as_deref().cloned()
    }

    /// Whether values go to flash. Cost: a load.
    #[inline]
    pub fn has_flash(&self) -> bool {
        self.flash.demotes.load(Ordering::Relaxed)
    }

    /// Whether values come back from flash for good, so that none goes there but for memory that is needed at once.
    #[inline]
    pub fn drains(&self) -> bool {
        self.flash.drains.load(Ordering::Relaxed)
    }

    /// Says whether they do.
    pub fn set_drains(&self, drains: bool) {
        self.flash.drains.store(drains, Ordering::Relaxed);
    }

    /// Gives the workers an engine, where there is none.
    pub fn offer_engine(&self, engine: Arc<dyn Engine>) {
        let before = self.flash.engine.swap(Some(Arc::new(engine)));
        assert!(before.is_none(), "a tier has one engine");
        let was = self.flash.changes.fetch_add(1, Ordering::Release);
        assert!(was.is_multiple_of(2), "the workers have let go of the one before");
    }

    /// Asks the workers to let go of the engine. No value is on it, and none will be.
    pub fn recall_engine(&self) {
        assert!(!self.has_flash(), "values go to flash");
        let was = self.flash.changes.fetch_add(1, Ordering::Release);
        assert!(!was.is_multiple_of(2), "the workers were given one");
    }

    /// Takes the engine away, which the workers have let go of.
    pub fn take_engine(&self) -> Option<Arc<dyn Engine>> {
        assert!(self.have_workers_followed(), "a worker has its side of the engine");
        let engine = self.flash.engine.swap(None);
        self.budget.set_engine(0, 0);
        self.budget.set_read_ahead_spare(0);
        self.forget_checkpoints();
        engine.as_deref().cloned()
    }

    /// Whether all workers have taken their side of the engine that was offered, or let go of the one that was recalled.
    pub fn have_workers_followed(&self) -> bool {
        let changes = self.flash.changes.load(Ordering::Acquire);
        self.flash.followed.iter().all(|followed| followed.load(Ordering::Acquire) == changes)
    }

    /// Has values go to flash from now on. All workers have their sides.
    pub fn begin_demoting(&self) {
        assert!(self.engine().is_some() && self.have_workers_followed());
        self.budget.set_demotes(true);
        self.flash.demotes.store(true, Ordering::Relaxed);
        // What was sought in vain without flash is not there until memory is measured again.
        self.measure();
    }

    /// Has no more values go to flash, if none is there. False: some are.
    pub fn end_demoting(&self, all: &Locked<'_>) -> bool {
        assert!(all.holds_all());
        if !self.is_flash_empty() {
            return false;
        }
        self.flash.demotes.store(false, Ordering::Relaxed);
        self.budget.set_demotes(false);
        true
    }

    /// Whether no value is on flash, and all that has died there was released. What has come or gone a moment ago may not be
    /// counted yet, but the engine has it.
    pub fn is_flash_empty(&self) -> bool {
        let has_live = |space: FreeSpace| space.live_bytes > 0;
        self.counters.flash_count() == 0 && !self.free_space().is_some_and(has_live)
    }

    /// The change that worker `index` is to follow, if it has not: whether there is an engine for it.
    pub(crate) fn change_to_follow(&self, index: usize) -> Option<FlashChange> {
        let changes = self.flash.changes.load(Ordering::Acquire);
        if self.flash.followed[index].load(Ordering::Relaxed) == changes {
            return None;
        }
        Some(FlashChange { number: changes, has_engine: !changes.is_multiple_of(2) })
    }

    /// Notes that worker `index` has followed a change.
    pub(crate) fn note_followed(&self, index: usize, change: FlashChange) {
        self.flash.followed[index].store(change.number, Ordering::Release);
    }

    /// Which engine there is for the workers: another number for each.
    pub(crate) fn engine_number(&self) -> u64 {
        self.flash.changes.load(Ordering::Acquire)
    }

    /// A side of the engine, if there is one that is not to go. Errors: its ring or threads could not be made.
    pub(crate) fn side(&self) -> Result<Option<Box<dyn EngineWorker>>, flash::EngineError> {
        if self.engine_number().is_multiple_of(2) {
            return Ok(None);
        }
        self.engine().map(|engine| engine.worker()).transpose()
    }
}

/// The engine has come, or is to go.
#[derive(Clone, Copy, Debug)]
pub struct FlashChange {
    pub(crate) number: u64,
    pub(crate) has_engine: bool,
}
