//! How somebody who is no worker has everything that was appended brought to the drives: each worker flushes at its next
//! turn, and says how far it has filled segments; when the segments are on flash up to there, so is all that was appended
//! before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::format::{Block, SegmentId};
use super::segment::State;
use super::shared::Shared;
use crate::error::EngineError;

/// Between two looks whether the workers have flushed, and the drives have written.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How far a worker has filled a segment.
#[derive(Clone, Debug)]
pub(crate) struct FillMark {
    pub(crate) id: SegmentId,
    /// Bytes from its start.
    pub(crate) end: u32,
    /// Its blocks up to there; none if the segment is full: it is reached when the segment is sealed.
    pub(crate) blocks: Option<Vec<Block>>,
}

/// What is wanted of workers, and which there are that have appended anything.
#[derive(Default)]
pub(crate) struct Flushes {
    wanted: AtomicU64,
    workers: Mutex<Vec<Arc<WorkerFlush>>>,
}

/// What a worker says of its flushes.
#[derive(Default)]
pub(crate) struct WorkerFlush {
    done: AtomicU64,
    marks: Mutex<Vec<FillMark>>,
}

impl Flushes {
    /// One more worker.
    pub(crate) fn join(&self) -> Arc<WorkerFlush> {
        let flush = Arc::<WorkerFlush>::default();
        self.workers.lock().push(Arc::clone(&flush));
        flush
    }

    /// A worker ends: everything that it had is on flash.
    pub(crate) fn leave(&self, flush: &Arc<WorkerFlush>) {
        self.workers.lock().retain(|other| !Arc::ptr_eq(other, flush));
    }

    /// What is wanted of a worker that has not done it.
    pub(crate) fn wanted_of(&self, flush: &WorkerFlush) -> Option<u64> {
        let wanted = self.wanted.load(Ordering::Acquire);
        (wanted != flush.done.load(Ordering::Relaxed)).then_some(wanted)
    }

    /// Whether there are workers that have not done what is wanted.
    fn are_due(&self, wanted: u64) -> bool {
        self.workers.lock().iter().any(|worker| worker.done.load(Ordering::Acquire) < wanted)
    }
}

impl WorkerFlush {
    pub(crate) fn set_done(&self, wanted: u64, marks: Vec<FillMark>) {
        *self.marks.lock() = marks;
        self.done.store(wanted, Ordering::Release);
    }
}

impl Shared {
    /// Has all that was appended before written, and waits for it. Returns how far segments were filled then that have no
    /// footer yet. What could not be written counts as a failed write.
    ///
    /// Errors: `goes_on` said no.
    pub(super) fn flush_all(
        &self,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<FillMark>, EngineError> {
        let wanted = self.flushes.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        wait_while(goes_on, || self.flushes.are_due(wanted))?;
        let workers = self.flushes.workers.lock().clone();
        let marks: Vec<FillMark> =
            workers.iter().flat_map(|worker| std::mem::take(&mut *worker.marks.lock())).collect();
        for mark in &marks {
            wait_while(goes_on, || !self.is_reached(mark))?;
        }
        Ok(marks.into_iter().filter(|mark| mark.blocks.is_some()).collect())
    }

    fn is_reached(&self, mark: &FillMark) -> bool {
        let segment = self.table.get(mark.id.segment);
        segment.state() != State::Open
            || segment.generation() != mark.id.generation
            || mark.blocks.is_some() && segment.flushed() >= mark.end
    }
}

fn wait_while(goes_on: &dyn Fn() -> bool, waits: impl Fn() -> bool) -> Result<(), EngineError> {
    while waits() {
        if !goes_on() {
            return Err(EngineError::Settings("it was called off".to_owned()));
        }
        stdx::waiting::sleep(LOOK_EVERY);
    }
    Ok(())
}
