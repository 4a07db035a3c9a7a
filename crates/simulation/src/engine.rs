//! The flash engine as the simulated workers see it: the log itself on simulated drives, with a
//! point before each call at which the caller may be stopped.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use flash::{
    AppendError, CheckpointEnd, Checkpoints, Completion, Engine, EngineError, EngineStats,
    EngineWorker, FetchedRecord, FreeSpace, GcProgress, Lane, Location, OwnedRecord, Owner,
    Position, ReadStart, Record, RecordId,
};

use crate::fiber::point;
use crate::limits::BLOCKING_READS_MAX;

/// An engine whose callers may be stopped.
pub(crate) struct PointedEngine(pub(crate) Arc<dyn Engine>);

impl Engine for PointedEngine {
    fn worker(&self) -> Result<Box<dyn EngineWorker>, EngineError> {
        Ok(Box::new(PointedWorker { inner: self.0.worker()?, blocking_reads: 0 }))
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

    fn set_read_ahead(&self, is_on: bool) {
        self.0.set_read_ahead(is_on);
    }

    fn reset(&self) {
        point();
        self.0.reset();
    }

    fn give_space_back(&self) -> bool {
        self.0.give_space_back()
    }

    fn checkpoints(&self) -> Option<&dyn Checkpoints> {
        self.0.checkpoints().map(|_| self as &dyn Checkpoints)
    }
}

impl PointedEngine {
    fn inner(&self) -> &dyn Checkpoints {
        self.0.checkpoints().expect("whoever calls was told that there are some")
    }
}

impl Checkpoints for PointedEngine {
    fn keep_room(&self) {
        self.inner().keep_room();
    }

    fn release_room(&self) {
        self.inner().release_room();
    }

    fn prepare(&self, journal: u64) -> Result<(), EngineError> {
        point();
        self.inner().prepare(journal)
    }

    fn begin(&self) -> u64 {
        point();
        self.inner().begin()
    }

    fn set_progress(&self, done: u32, of: u32) {
        self.inner().set_progress(done, of);
    }

    fn opened_by(&self) -> Option<u64> {
        self.inner().opened_by()
    }

    fn may_refer(&self, at: Location, size: usize) -> bool {
        self.inner().may_refer(at, size)
    }

    fn refer(&self, number: u64, at: Location, size: usize) -> Option<RecordId> {
        point();
        self.inner().refer(number, at, size)
    }

    fn close(
        &self,
        number: u64,
        position: Position,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, EngineError> {
        point();
        let closed = self.inner().close(number, position, goes_on);
        point();
        closed
    }

    fn set_comes(&self, comes: bool) {
        self.inner().set_comes(comes);
    }

    fn end(&self, number: u64, end: CheckpointEnd) {
        point();
        self.inner().end(number, end);
    }

    fn forget(&self) -> Result<(), EngineError> {
        point();
        self.inner().forget()
    }

    fn claim(&self, record: RecordId, size: usize) -> bool {
        self.inner().claim(record, size)
    }

    fn end_claims(&self) -> Result<(), EngineError> {
        self.inner().end_claims()
    }
}

struct PointedWorker {
    inner: Box<dyn EngineWorker>,
    /// Values that were read with slots held since the last turn.
    blocking_reads: usize,
}

impl EngineWorker for PointedWorker {
    fn append(&mut self, lane: Lane, record: &Record<'_>) -> Result<Location, AppendError> {
        point();
        self.inner.append(lane, record)
    }

    fn append_owned(
        &mut self,
        lane: Lane,
        record: OwnedRecord,
    ) -> Result<Location, (AppendError, OwnedRecord)> {
        point();
        self.inner.append_owned(lane, record)
    }

    fn read(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart {
        point();
        self.inner.read(record, size, token)
    }

    fn read_around(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart {
        point();
        self.inner.read_around(record, size, token)
    }

    fn prefetch(&self, at: Location, bytes: usize) {
        self.inner.prefetch(at, bytes);
    }

    fn submit(&mut self) {
        point();
        self.blocking_reads = 0;
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        point();
        self.blocking_reads = 0;
        self.inner.reap(done);
        point();
    }

    fn identify(&self, at: Location) -> RecordId {
        self.inner.identify(at)
    }

    fn has_ended(&mut self) -> bool {
        self.inner.has_ended()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake_fd()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn unwritten_bytes(&self) -> usize {
        self.inner.unwritten_bytes()
    }

    fn bound_write_buffers(&mut self, count: usize) {
        self.inner.bound_write_buffers(count);
    }

    fn block_cache_bytes(&self) -> usize {
        self.inner.block_cache_bytes()
    }

    fn bound_block_cache(&mut self, bytes: usize, share: usize) {
        self.inner.bound_block_cache(bytes, share);
    }

    fn merge_reads_over(&mut self, gap_bytes: u32) {
        self.inner.merge_reads_over(gap_bytes);
    }

    fn read_blocking(&mut self, at: Location, size: usize) -> Result<FetchedRecord, EngineError> {
        point();
        self.blocking_reads += 1;
        assert!(self.blocking_reads < BLOCKING_READS_MAX, "a livelock of reads with slots held");
        self.inner.read_blocking(at, size)
    }

    fn flush(&mut self) {
        point();
        self.inner.flush();
    }

    fn gc(&mut self, owner: &dyn Owner, budget_bytes: usize) -> GcProgress {
        self.inner.gc(owner, budget_bytes)
    }
}
