//! The writer: takes what was appended, brings it to the drive, and says up to where it is durable.
//!
//! It is driven step by step with the time handed in, by the journal's thread or by a test.
//!
//! ```text
//! first of segment        durable          written             held.end        appended
//!        |  on the drive     |  in the file   |  taken, to be written |  in the buffer |
//!                            |<------------- held in memory --------->|
//! ```

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::SyncPolicy;
use super::error::JournalError;
use super::header::{HEADER_BYTES, Header, Kind};
use super::held::Held;
use super::names::{self, SEGMENT_NEW};
use super::queue::{Cut, Wait};
use super::shared::Shared;
use super::storage::{Storage, StoredFile};
use crate::limits::{JOURNAL_GATHER, JOURNAL_RETRY, JOURNAL_SYNC_EVERY};

pub(crate) struct Writer {
    shared: Arc<Shared>,
    storage: Arc<dyn Storage>,
    /// What headers say, but for number and position.
    identity: Header,
    /// The number of the next segment.
    number: u64,
    /// The one that is written; none is begun before there is something to write, or a checkpoint that it begins with.
    segment: Option<Segment>,
    held: Held,
    written: u64,
    /// Since when something taken is not durable.
    behind_since: Option<Instant>,
    /// So long what comes may gather.
    gathers_until: Instant,
    /// When everything became durable.
    synced_at: Instant,
    /// When chunks that nobody needed were last freed.
    freed_at: Instant,
    /// When it tries again; none: the last attempt worked.
    retries_at: Option<Instant>,
    /// Chunks on their way from and to the buffer.
    chunks: Vec<Vec<u8>>,
}

struct Segment {
    file: Box<dyn StoredFile>,
    name: String,
    /// The position at which it begins.
    from: u64,
}

/// What is to be done besides writing.
#[derive(Clone, Copy)]
struct Request {
    /// Where a segment is to begin.
    cut: Option<u64>,
    /// All is to be synced now.
    syncs: bool,
    is_closing: bool,
}

/// What the writer's thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(Wait),
    End,
}

/// What went wrong, and whether it is for lack of space in a write.
struct Failure {
    error: JournalError,
    lacks_space: bool,
}

impl Failure {
    fn new(path: String, operation: &'static str, error: &io::Error) -> Self {
        Self { error: JournalError::io(path, operation, error), lacks_space: false }
    }
}

impl Writer {
    /// The writer of a journal; its next segment has that number.
    pub(crate) fn new(
        shared: Arc<Shared>,
        storage: Arc<dyn Storage>,
        identity: Header,
        number: u64,
        now: Instant,
    ) -> Self {
        let from = shared.durable();
        Self {
            shared,
            storage,
            identity,
            number,
            segment: None,
            held: Held::new(from),
            written: from,
            behind_since: None,
            gathers_until: now,
            synced_at: now,
            freed_at: now,
            retries_at: None,
            chunks: Vec::new(),
        }
    }

    /// Does what there is to do.
    pub(crate) fn step(&mut self, now: Instant) -> Next {
        if self.retries_at.is_some_and(|at| now < at) && !self.shared.queue.lock().is_closing {
            return Next::Wait(self.wait());
        }
        let request = self.take(now);
        let brought = self.bring(request, now);
        let is_ended = request.is_closing && (brought.is_err() || !self.mark_if_lacking());
        match brought {
            Ok(()) => self.succeed(),
            Err(failure) => self.fail(failure, now),
        }
        if is_ended { Next::End } else { Next::Wait(self.wait()) }
    }

    /// Takes what was appended, if it is time to.
    fn take(&mut self, now: Instant) -> Request {
        let durable = self.shared.durable();
        if self.is_idle() && now >= self.synced_at + JOURNAL_SYNC_EVERY && self.mark_if_lacking() {
            let spare = self.shared.queue.lock().buffer.take_spare();
            drop(spare);
        }
        if now >= self.freed_at + JOURNAL_SYNC_EVERY {
            self.freed_at = now;
            let unused = self.shared.queue.lock().buffer.take_unused();
            drop(unused);
        }
        let mut queue = self.shared.queue.lock();
        if self.retries_at.is_some() || queue.is_due(now, self.gathers_until, durable) {
            if queue.buffer.bytes() > 0 && durable > queue.marked {
                queue.buffer.append_mark(durable);
                queue.marked = durable;
                self.shared.set_appended(queue.buffer.end());
            }
            queue.buffer.take(&mut self.chunks);
        }
        let syncs = queue.wanted() > durable || queue.is_closing;
        let request = Request { cut: queue.cut(), syncs, is_closing: queue.is_closing };
        drop(queue);
        self.hold(now);
        request
    }

    /// Keeps what was taken.
    fn hold(&mut self, now: Instant) {
        if self.chunks.is_empty() {
            return;
        }
        let mut taken = std::mem::take(&mut self.chunks);
        self.chunks.extend(taken.drain(..).filter_map(|chunk| self.held.push(chunk)));
        self.shared.set_held_memory(self.held.memory_bytes());
        self.gathers_until = now + JOURNAL_GATHER;
        if self.behind_since.is_none() {
            self.behind_since = Some(now);
            self.shared.set_behind_since(self.behind_since);
        }
        self.give_back();
    }

    /// Gives chunks to the buffer, to be used again, as many as it takes.
    fn give_back(&mut self) {
        if !self.chunks.is_empty() {
            self.shared.queue.lock().buffer.take_back(&mut self.chunks);
            self.chunks.clear();
        }
    }

    /// Nothing is on its way to the drive.
    fn is_idle(&self) -> bool {
        self.shared.durable() == self.shared.appended()
    }

    /// Appends a mark if none says that the last record is durable, which it is. False: there was no need, or it is not.
    fn mark_if_lacking(&self) -> bool {
        let durable = self.shared.durable();
        let mut queue = self.shared.queue.lock();
        let is_lacking = queue.marked < queue.buffer.records_end();
        if !is_lacking || queue.buffer.records_end() > durable {
            return false;
        }
        queue.buffer.append_mark(durable);
        queue.marked = durable;
        self.shared.set_appended(queue.buffer.end());
        true
    }

    /// Writes what is held, and syncs it if it is time to.
    fn bring(&mut self, request: Request, now: Instant) -> Result<(), Failure> {
        if let Some(position) = request.cut {
            self.write(position, now)?;
            self.sync(now)?;
            let number = self.number;
            self.begin_segment(position, now)?;
            self.shared.queue.end_cut(Cut { position, number });
        }
        self.write(self.held.end(), now)?;
        let is_full = self.is_segment_full();
        if is_full || self.is_sync_due(request, now) {
            self.sync(now)?;
        }
        if is_full {
            self.segment = None;
        }
        Ok(())
    }

    fn is_segment_full(&self) -> bool {
        let bytes = |segment: &Segment| self.written - segment.from;
        self.segment
            .as_ref()
            .is_some_and(|segment| bytes(segment) >= self.shared.tuning.segment_bytes)
    }

    fn is_sync_due(&self, request: Request, now: Instant) -> bool {
        let is_old = || self.behind_since.is_some_and(|since| now >= since + JOURNAL_SYNC_EVERY);
        request.syncs
            || self.retries_at.is_some()
            || self.written - self.shared.durable() >= self.shared.tuning.sync_bytes
            || match self.shared.sync_policy() {
                SyncPolicy::Always => true,
                SyncPolicy::EverySecond => is_old(),
                SyncPolicy::Never => false,
            }
    }

    /// Writes what is held up to `end`.
    fn write(&mut self, end: u64, now: Instant) -> Result<(), Failure> {
        if self.written == end {
            return Ok(());
        }
        let Some(segment) = &self.segment else { return self.begin_segment(end, now) };
        while self.written < end {
            let bytes = self.held.slice(self.written, end);
            let offset = HEADER_BYTES as u64 + (self.written - segment.from);
            segment.file.write_at(offset, bytes).map_err(|error| {
                let lacks_space = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
                let path = self.storage.path(&segment.name);
                Failure { lacks_space, ..Failure::new(path, "write", &error) }
            })?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }

    /// Begins a segment where the journal is durable, with what is held up to `end`, which is durable when it returns.
    fn begin_segment(&mut self, end: u64, now: Instant) -> Result<(), Failure> {
        let from = self.shared.durable();
        assert_eq!(from, self.written, "a segment begins where all is durable");
        let number = self.number;
        self.number += 1;
        let name = names::segment(number);
        let header = Header { number, position: from, ..self.identity };
        let file = self.create_segment(&name, header, end).map_err(|(operation, error)| {
            // They may not even be there, and do no harm if they are.
            let _ = self.storage.remove(SEGMENT_NEW);
            let _ = self.storage.remove(&name);
            Failure::new(self.storage.path(&name), operation, &error)
        })?;
        self.shared.facts.lock().segments.insert(number);
        self.segment = Some(Segment { file, name, from });
        self.written = end;
        self.published(now);
        Ok(())
    }

    /// Makes the file of a segment with all that is held up to `end`. It gets its name in the end: for with that name,
    /// what was read of the segment before and appended again no longer counts there.
    fn create_segment(
        &self,
        name: &str,
        header: Header,
        end: u64,
    ) -> Result<Box<dyn StoredFile>, (&'static str, io::Error)> {
        let failed = |operation| move |error| (operation, error);
        let file = self.storage.create(SEGMENT_NEW).map_err(failed("creation"))?;
        file.write_at(0, &header.encode(Kind::Segment)).map_err(failed("write"))?;
        let (mut position, mut offset) = (header.position, HEADER_BYTES as u64);
        while position < end {
            let bytes = self.held.slice(position, end);
            file.write_at(offset, bytes).map_err(failed("write"))?;
            position += bytes.len() as u64;
            offset += bytes.len() as u64;
        }
        file.sync().map_err(failed("sync"))?;
        self.storage.rename(SEGMENT_NEW, name).map_err(failed("rename"))?;
        self.storage.sync_folder().map_err(failed("sync of the folder"))?;
        Ok(file)
    }

    /// Has all that is written become durable, and tells of it.
    fn sync(&mut self, now: Instant) -> Result<(), Failure> {
        if self.shared.durable() == self.written {
            return Ok(());
        }
        let segment =
            self.segment.as_ref().expect("invariant: what is not durable is in a segment");
        self.shared.set_syncing(true);
        let synced = segment.file.sync();
        self.shared.set_syncing(false);
        synced.map_err(|error| Failure::new(self.storage.path(&segment.name), "sync", &error))?;
        self.published(now);
        Ok(())
    }

    /// All that is written is durable: tells of it, and lets go of it.
    fn published(&mut self, now: Instant) {
        self.held.release(self.written, &mut self.chunks);
        self.shared.set_held_memory(self.held.memory_bytes());
        self.give_back();
        // What is left, behind a cut, was taken when the rest was.
        self.behind_since = self.behind_since.filter(|_| self.held.end() > self.written);
        self.shared.set_behind_since(self.behind_since);
        self.synced_at = now;
        self.shared.publish(self.written);
    }

    /// It worked.
    fn succeed(&mut self) {
        if self.retries_at.take().is_some() {
            let durable = self.shared.durable();
            tracing::info!(durable, "the journal is written again");
            self.shared.recover();
        }
    }

    /// It did not work. What was not durable is written anew: to the same place if that lacked space, else to another
    /// segment.
    fn fail(&mut self, Failure { error, lacks_space }: Failure, now: Instant) {
        if self.retries_at.is_none() {
            tracing::error!(%error, "the journal cannot be written");
        }
        self.retries_at = Some(now + JOURNAL_RETRY);
        self.shared.fail(error);
        if lacks_space {
            return;
        }
        // What it has in front of that stays there.
        self.segment = None;
        self.written = self.shared.durable();
    }

    /// What to wait for.
    fn wait(&self) -> Wait {
        let until = self.retries_at.or_else(|| self.due());
        let (gathers_until, is_failing) = (self.gathers_until, self.retries_at.is_some());
        Wait { until, gathers_until, is_failing }
    }

    /// When there is something to do though nothing comes.
    fn due(&self) -> Option<Instant> {
        match self.behind_since {
            Some(since) => (self.shared.sync_policy() == SyncPolicy::EverySecond)
                .then_some(since + JOURNAL_SYNC_EVERY),
            None => {
                let queue = self.shared.queue.lock();
                (queue.marked < queue.buffer.records_end())
                    .then_some(self.synced_at + JOURNAL_SYNC_EVERY)
            }
        }
    }
}
