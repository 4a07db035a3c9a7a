//! The io_uring device: one ring for each worker, files and the read arena registered with it.
//!
//! Only the worker's thread uses the ring, and completions are run when that thread enters the
//! kernel, not by an interrupt of it. An eventfd tells the event loop that there is something to
//! reap.
//!
//! Files come and go while the ring lives: all `PATHS_MAX` slots are registered, empty where there
//! is no file, and written anew before the first operation that is queued after a change.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::event::EventfdFlags;

use super::buffer::{AlignedBuffer, IoBuffer, ReadPool};
use super::file::FileSet;
use super::{Device, Done, Errno, Extent, FileIndex, Operation, OperationTable};
use crate::limits::{PATHS_MAX, READS_IN_FLIGHT_MAX};

/// Submissions that the ring holds between two `submit`s; more are handed over early.
const SUBMISSIONS: u32 = 256;

/// Completions that the ring holds: all reads and writes that the log may have in flight.
const COMPLETIONS: u32 = 2 * READS_IN_FLIGHT_MAX as u32;

/// The arena is the only registered buffer.
const ARENA: u16 = 0;

pub(crate) struct UringDevice {
    ring: IoUring,
    wake: OwnedFd,
    files: Arc<FileSet>,
    /// `FileSet::changes` as of what is registered; `None` when nothing is.
    registered: Option<u64>,
    /// Whether the kernel took the arena; it counts as locked memory, which may be scarce.
    arena_registered: bool,
    operations: OperationTable,
    pool: ReadPool,
    queued: bool,
}

impl UringDevice {
    /// Errors: the errno with which the kernel or a sandbox refuses io_uring.
    pub(crate) fn new(files: Arc<FileSet>) -> Result<Self, Errno> {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let ring = build_ring().map_err(errno)?;
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = rustix::event::eventfd(0, flags).map_err(|errno| errno.raw_os_error())?;
        ring.submitter().register_eventfd(wake.as_raw_fd()).map_err(errno)?;
        let pool = ReadPool::new();
        let (base, size) = pool.arena_address();
        let arena = libc::iovec { iov_base: base.cast(), iov_len: size };
        // SAFETY: the arena outlives the ring: `pool` is dropped after `ring`, and slots keep the
        // arena alive.
        let arena_registered = unsafe { ring.submitter().register_buffers(&[arena]) }.is_ok();
        let mut device = Self {
            ring,
            wake,
            files,
            registered: None,
            arena_registered,
            operations: OperationTable::new(),
            pool,
            queued: false,
        };
        device.register_files().map_err(errno)?;
        Ok(device)
    }

    /// Tells the ring of the files as they are now.
    fn register_files(&mut self) -> std::io::Result<()> {
        // Asked first: a change in between is then seen by the next check.
        let changes = self.files.changes();
        let files = self.files.all();
        let mut fds: [RawFd; PATHS_MAX] = [-1; PATHS_MAX];
        files.iter().for_each(|(index, file)| fds[usize::from(index.0)] = file.raw_fd());
        let submitter = self.ring.submitter();
        match self.registered {
            None => submitter.register_files(&fds)?,
            Some(_) => drop(submitter.register_files_update(0, &fds)?),
        }
        self.registered = Some(changes);
        Ok(())
    }

    /// Tells the ring of files that came or went. Cost: an atomic load when there are none.
    fn follow_files(&mut self) {
        if self.registered == Some(self.files.changes()) {
            return;
        }
        // What is queued stays right: a file with operations keeps its slot.
        if let Err(error) = self.register_files() {
            // Better no file at all than one that is not the one meant: operations fail.
            tracing::error!(%error, "flash files not registered");
            if self.registered.take().is_some()
                && let Err(error) = self.ring.submitter().unregister_files()
            {
                tracing::error!(%error, "flash files not unregistered");
            }
        }
    }

    fn submit_queued(&mut self) {
        if !self.queued {
            return;
        }
        // An error (the kernel is short of memory, a signal came) leaves the rest queued: the next
        // turn tries again.
        if self.ring.submit().is_ok() {
            self.queued = !self.ring.submission().is_empty();
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        self.queued = true;
        loop {
            // SAFETY: the memory that the entry points to is kept in `operations` until its
            // completion was reaped.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.submit_queued();
        }
    }

    /// Runs the completions that wait for this thread to enter the kernel for them.
    fn run_completions(&mut self) {
        let flags = EnterFlags::GETEVENTS.bits();
        let queued = self.ring.submission().len() as u32;
        // SAFETY: no signal mask is handed over. What it submits is kept in `operations`.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) };
        // An error (a signal came) leaves them for the next turn.
        if entered.is_ok() {
            self.queued = !self.ring.submission().is_empty();
        }
    }

    /// Moves completions out of the ring.
    fn take_completions(&mut self, done: &mut Vec<Done>) {
        for completion in self.ring.completion() {
            let operation = self.operations.remove(completion.user_data() as u32);
            done.push(operation.end(completion.result()));
        }
    }
}

/// The file's number in the ring.
fn file_number(index: FileIndex) -> types::Fixed {
    types::Fixed(u32::from(index.0))
}

/// A ring with what this kernel knows to make it cheap.
fn build_ring() -> std::io::Result<IoUring> {
    let modern = IoUring::builder()
        .setup_cqsize(COMPLETIONS)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(SUBMISSIONS);
    match modern {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(COMPLETIONS).build(SUBMISSIONS)
        }
        built => built,
    }
}

impl Device for UringDevice {
    fn read(&mut self, extent: Extent, mut buffer: IoBuffer, user: u64) {
        self.follow_files();
        let file = file_number(extent.file);
        let (address, in_arena) = buffer.address();
        assert!(buffer.bytes().len() >= extent.size);
        let size = extent.size;
        let index = self.operations.insert(Operation::Read { user, buffer, size });
        let entry = if in_arena && self.arena_registered {
            opcode::ReadFixed::new(file, address, size as u32, ARENA).offset(extent.offset).build()
        } else {
            opcode::Read::new(file, address, size as u32).offset(extent.offset).build()
        };
        self.push(&entry.user_data(u64::from(index)));
    }

    fn write(&mut self, extent: Extent, buffer: Arc<AlignedBuffer>, user: u64) {
        self.follow_files();
        let file = file_number(extent.file);
        assert!(buffer.len() >= extent.size);
        let size = extent.size;
        let entry = opcode::Write::new(file, buffer.as_ptr(), size as u32).offset(extent.offset);
        let index = self.operations.insert(Operation::Write { user, buffer, size });
        self.push(&entry.build().user_data(u64::from(index)));
    }

    fn submit(&mut self) {
        // A worker that has nothing to do lets go of removed files too.
        self.follow_files();
        self.submit_queued();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let mut count = [0; 8];
        // The count does not matter; EAGAIN when nothing was signalled.
        let _ = rustix::io::read(&self.wake, &mut count);
        let pending = {
            let submission = self.ring.submission();
            submission.taskrun() || submission.cq_overflow()
        };
        if pending {
            self.run_completions();
        }
        self.take_completions(done);
    }

    fn has_ended(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    fn read_now(&mut self, extent: Extent, buffer: &mut IoBuffer) -> Result<(), Errno> {
        self.files.read_now(extent, buffer.bytes_mut())
    }

    fn read_all_now(&mut self, reads: Vec<(Extent, &mut IoBuffer)>) -> Vec<Result<(), Errno>> {
        self.files.read_all_now(reads)
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.operations.len()
    }

    fn pool(&self) -> &ReadPool {
        &self.pool
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.operations.len() > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.take_completions(&mut done),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => {
                    // The memory may still be written to: leak it rather than free it.
                    tracing::error!(%error, "flash ring not drained");
                    std::mem::forget(std::mem::replace(
                        &mut self.operations,
                        OperationTable::new(),
                    ));
                }
            }
            done.clear();
        }
    }
}
