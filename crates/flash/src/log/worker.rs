//! One worker's side of the log: hands calls to the parts, and completions back to the part that
//! waits for them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::append::Appender;
use super::flush::WorkerFlush;
use super::gc::Gc;
use super::io::{Io, User};
use super::large_read::{LargeResult, ReadFor};
use super::read::{Kind, Reader};
use super::shared::Shared;
use crate::device::Done;
use crate::engine::fetched::FetchedRecord;
use crate::engine::{Completion, EngineWorker, GcProgress, Owner, ReadStart};
use crate::error::{AppendError, EngineError};
use crate::limits::RECORD_ALIGN;
use crate::location::{Location, RecordId};
use crate::record::{Lane, OwnedRecord, Record, record_size};

pub(crate) struct LogWorker {
    io: Io,
    appender: Appender,
    reader: Reader,
    gc: Gc,
    /// Where it says that it has flushed; none before it has appended anything.
    flush: Option<Arc<WorkerFlush>>,
    /// Ended device operations, between the device and the parts.
    done: Vec<Done>,
}

impl LogWorker {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Self, EngineError> {
        let device = shared.drives.device()?;
        let counters = shared.add_worker();
        let appender = Appender::new(shared.geometry.write_buffer_bytes());
        let io = Io { turn: None, shared, device, counters };
        let worker = Self {
            io,
            appender,
            reader: Reader::new(),
            gc: Gc::default(),
            flush: None,
            done: Vec::new(),
        };
        worker.count_buffers();
        Ok(worker)
    }

    fn count_append(&mut self, size: usize) {
        self.join_flushes();
        self.io.counters.appends.add(1);
        self.io.counters.append_bytes.add(size as u64);
        self.count_buffers();
    }

    /// Has others wait for it when they want what was appended on flash.
    fn join_flushes(&mut self) {
        assert!(self.appender.buffers.are_any(), "a side without write buffers appends nothing");
        self.flush.get_or_insert_with(|| self.io.shared.flushes.join());
    }

    /// Flushes if somebody wants that. Cost: an atomic load.
    fn flush_if_wanted(&mut self) {
        let Some(flush) = &self.flush else { return };
        if let Some(wanted) = self.io.shared.flushes.wanted_of(flush) {
            self.appender.flush(&mut self.io);
            flush.set_done(wanted, self.appender.fill_marks(&self.io));
        }
    }

    fn count_buffers(&self) {
        let buffers = self.io.device.pool().bytes() + self.appender.buffers.bytes();
        let large = self.appender.large.bytes() + self.reader.large.bytes() + self.gc.read_bytes();
        let bytes = buffers + large + self.reader.blocks.bytes();
        self.io.counters.buffer_bytes.set(bytes as u64);
        self.io.counters.unmade_bytes.set(self.appender.buffers.unmade_bytes() as u64);
    }

    /// Hands an ended operation to the part that waits for it.
    fn finish(&mut self, ended: Done, now: Instant, completions: &mut Vec<Completion>) {
        let io = &mut self.io;
        match ended {
            Done::Read { user, buffer, result } => match User::unpack(user) {
                User::Read { index } => {
                    self.reader.finish(io, index, (buffer, result), now, completions);
                }
                User::LargeRead { index, piece } => {
                    let large = &mut self.reader.large;
                    if let Some(ended) = large.finish_piece(io, (index, piece), buffer, result) {
                        self.finish_large_read(ended, completions);
                    }
                }
                User::GcFooter => self.gc.finish_footer(io, &buffer, result),
                User::GcBlock { index } => {
                    self.gc.finish_block(io, index, buffer, result);
                }
                user => unreachable!("invariant: {user:?} does not read"),
            },
            Done::Write { user, buffer, result } => {
                completions.extend(match User::unpack(user) {
                    User::LargeWrite { piece } => {
                        self.appender.finish_large_piece(io, piece, buffer, result)
                    }
                    user => self.appender.finish_write(io, user, buffer, result),
                });
            }
        }
    }

    fn finish_large_read(&mut self, ended: LargeResult, completions: &mut Vec<Completion>) {
        match ended.read_for {
            ReadFor::Client(token) => {
                completions.push(Completion::Read { token, result: ended.result });
            }
            ReadFor::Gc => self.gc.finish_large(ended.result),
        }
    }
}

impl EngineWorker for LogWorker {
    fn append(&mut self, lane: Lane, record: &Record<'_>) -> Result<Location, AppendError> {
        let at = self.appender.append(&mut self.io, lane.into(), record)?;
        self.count_append(record_size(record.key.len(), record.payload.len()));
        Ok(at)
    }

    fn append_owned(
        &mut self,
        lane: Lane,
        record: OwnedRecord,
    ) -> Result<Location, (AppendError, OwnedRecord)> {
        let lengths = (record.key.len(), record.payload.len());
        let at = self.appender.append_owned(&mut self.io, lane.into(), record)?;
        self.count_append(record_size(lengths.0, lengths.1));
        Ok(at)
    }

    fn read(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart {
        debug_assert_eq!(size % RECORD_ALIGN, 0);
        self.reader.read(&mut self.io, record, size, (token, Kind::Records))
    }

    fn read_around(&mut self, record: RecordId, size: usize, token: u64) -> ReadStart {
        debug_assert_eq!(size % RECORD_ALIGN, 0);
        self.reader.read(&mut self.io, record, size, (token, Kind::Around))
    }

    fn prefetch(&self, at: Location, bytes: usize) {
        let (segment, offset) = self.io.shared.geometry.split(at);
        self.reader.blocks.prefetch(segment, offset, bytes);
    }

    fn submit(&mut self) {
        self.flush_if_wanted();
        self.appender.continue_large(&mut self.io);
        self.reader.begin(&mut self.io);
        self.io.submit();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut done = std::mem::take(&mut self.done);
        self.io.device.reap(&mut done);
        if !done.is_empty() {
            let now = Instant::now();
            for ended in done.drain(..) {
                self.finish(ended, now, completions);
            }
            self.reader.large.continue_all(&mut self.io);
            self.count_buffers();
        }
        self.done = done;
    }

    fn identify(&self, at: Location) -> RecordId {
        self.io.shared.identify(at)
    }

    fn has_ended(&mut self) -> bool {
        self.io.device.has_ended()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.io.device.wake_fd()
    }

    fn in_flight(&self) -> usize {
        let gathered = self.reader.gathered();
        self.io.device.in_flight() + gathered + usize::from(!self.appender.is_idle())
    }

    fn unwritten_bytes(&self) -> usize {
        self.appender.large.bytes() + self.gc.moving_bytes()
    }

    fn bound_write_buffers(&mut self, count: usize) {
        if self.appender.buffers.bound(count) {
            self.count_buffers();
        }
    }

    fn block_cache_bytes(&self) -> usize {
        self.reader.blocks.bytes()
    }

    fn bound_block_cache(&mut self, bytes: usize, share: usize) {
        self.reader.bound_blocks(bytes, share);
        self.count_buffers();
    }

    fn merge_reads_over(&mut self, gap_bytes: u32) {
        self.reader.gap_bytes = gap_bytes;
    }

    fn read_blocking(&mut self, at: Location, size: usize) -> Result<FetchedRecord, EngineError> {
        let mut read = Reader::read_all_blocking(&mut self.io, &[(at, size)]);
        read.pop().expect("invariant: each read has a result")
    }

    fn read_all_blocking(
        &mut self,
        reads: &[(Location, usize)],
    ) -> Vec<Result<FetchedRecord, EngineError>> {
        Reader::read_all_blocking(&mut self.io, reads)
    }

    fn flush(&mut self) {
        self.appender.flush(&mut self.io);
    }

    fn gc(&mut self, owner: &dyn Owner, budget_bytes: usize) -> GcProgress {
        // A run may append what it keeps.
        self.join_flushes();
        let parts = (&mut self.appender, &mut self.reader.large);
        let progress = self.gc.step(&mut self.io, parts, owner, budget_bytes);
        self.count_buffers();
        progress
    }
}

impl Drop for LogWorker {
    /// Brings what was appended to flash, because other workers may still read it, and waits for
    /// what is in flight.
    fn drop(&mut self) {
        self.appender.close(&mut self.io);
        let mut completions = Vec::new();
        while self.in_flight() > 0 {
            self.submit();
            // An error (a signal) means another turn.
            let wake = self.wake_fd();
            let _ = rustix::event::poll(&mut [PollFd::new(&wake, PollFlags::IN)], None);
            self.reap(&mut completions);
            completions.clear();
        }
        self.gc.leave(&self.io);
        if let Some(flush) = &self.flush {
            self.io.shared.flushes.leave(flush);
        }
        self.io.counters.buffer_bytes.set(0);
        self.io.counters.unmade_bytes.set(0);
        self.io.counters.block_cache_bytes.set(0);
    }
}
