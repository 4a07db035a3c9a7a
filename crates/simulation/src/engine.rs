//! The flash engine as the simulated workers see it: the log itself on simulated drives, with a
//! point before each call at which the caller may be stopped.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use flash::{
    AppendError, CollectProgress, Completion, Engine, EngineError, EngineStats, EngineWorker,
    FetchedRecord, FreeSpace, Lane, Location, OwnedRecord, Owner, ReadStart, Record, RecordId,
};

use crate::fiber::point;

/// An engine whose callers may be stopped.
pub(crate) struct PointedEngine(pub(crate) Arc<dyn Engine>);

impl Engine for PointedEngine {
    fn worker(&self) -> Result<Box<dyn EngineWorker>, EngineError> {
        Ok(Box::new(PointedWorker(self.0.worker()?)))
    }

    fn release(&self, at: Location, size: usize) -> Lane {
        point();
        self.0.release(at, size)
    }

    fn identify(&self, at: Location) -> RecordId {
        self.0.identify(at)
    }

    fn stats(&self) -> EngineStats {
        self.0.stats()
    }

    fn free_space(&self) -> FreeSpace {
        self.0.free_space()
    }

    fn resize(&self, bytes: u64) -> Result<(), EngineError> {
        self.0.resize(bytes)
    }

    fn set_paths(&self, paths: &[PathBuf]) -> Result<(), EngineError> {
        self.0.set_paths(paths)
    }

    fn reset(&self) {
        point();
        self.0.reset();
    }

    fn give_space_back(&self) -> bool {
        self.0.give_space_back()
    }
}

struct PointedWorker(Box<dyn EngineWorker>);

impl EngineWorker for PointedWorker {
    fn append(&mut self, lane: Lane, record: &Record<'_>) -> Result<Location, AppendError> {
        point();
        self.0.append(lane, record)
    }

    fn append_owned(
        &mut self,
        lane: Lane,
        record: OwnedRecord,
    ) -> Result<Location, (AppendError, OwnedRecord)> {
        point();
        self.0.append_owned(lane, record)
    }

    fn read(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart {
        point();
        self.0.read(record, size, token)
    }

    fn submit(&mut self) {
        point();
        self.0.submit();
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        point();
        self.0.reap(done);
        point();
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.0.wake_fd()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn read_blocking(&mut self, at: Location, size: usize) -> Result<FetchedRecord, EngineError> {
        point();
        self.0.read_blocking(at, size)
    }

    fn flush(&mut self) {
        point();
        self.0.flush();
    }

    fn collect(&mut self, owner: &dyn Owner, budget_bytes: usize) -> CollectProgress {
        self.0.collect(owner, budget_bytes)
    }
}
