//! The device of last resort: a few threads for each worker, with `pread` and `pwrite`.
//!
//! For kernels and sandboxes that refuse io_uring. The operation's memory stays in the worker's
//! table; a thread gets the address. That is what the kernel does with a ring, and it holds for the
//! same reason: the table keeps the buffer until the operation is reaped, and the device waits for
//! its operations before it goes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;

use super::buffer::{AlignedBuffer, IoBuffer, ReadPool};
use super::file::FileSet;
use super::{Device, Done, Errno, Extent, Operation, OperationTable};
use crate::limits::POOL_THREADS;

pub(crate) struct ThreadDevice {
    files: Arc<FileSet>,
    operations: OperationTable,
    /// Queued until the next `submit`, as with a ring.
    queued: Vec<Job>,
    /// `None` once the device is being dropped: tells the threads to end.
    jobs: Option<Sender<Job>>,
    answers: Receiver<(u32, i32)>,
    threads: Vec<JoinHandle<()>>,
    wake: Arc<OwnedFd>,
    pool: ReadPool,
}

/// What a thread is to do.
struct Job {
    operation: u32,
    extent: Extent,
    target: Target,
}

enum Target {
    Read(*mut u8),
    Write(Arc<AlignedBuffer>),
}

// SAFETY: the address is of a buffer that only this job touches until its answer was reaped.
unsafe impl Send for Job {}

impl ThreadDevice {
    /// Errors: no thread or eventfd could be made.
    pub(crate) fn new(files: Arc<FileSet>) -> Result<Self, Errno> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = rustix::event::eventfd(0, flags).map_err(|errno| errno.raw_os_error())?;
        let wake = Arc::new(wake);
        let (jobs, job_queue) = channel();
        let (answer, answers) = channel();
        let job_queue = Arc::new(Mutex::new(job_queue));
        let mut threads = Vec::new();
        for _ in 0..POOL_THREADS {
            let (files, job_queue) = (Arc::clone(&files), Arc::clone(&job_queue));
            let (answer, wake) = (answer.clone(), Arc::clone(&wake));
            let thread = std::thread::Builder::new()
                .name("flash-io".into())
                .spawn(move || serve(&files, &job_queue, &answer, &wake))
                .map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
            threads.push(thread);
        }
        Ok(Self {
            files,
            operations: OperationTable::new(),
            queued: Vec::new(),
            jobs: Some(jobs),
            answers,
            threads,
            wake,
            pool: ReadPool::new(),
        })
    }
}

/// A thread's life: jobs until the sender is gone.
fn serve(
    files: &FileSet,
    jobs: &Mutex<Receiver<Job>>,
    answers: &Sender<(u32, i32)>,
    wake: &OwnedFd,
) {
    loop {
        // The lock is held while waiting: the others wait for the lock instead.
        let Ok(job) = jobs.lock().recv() else { return };
        let size = job.extent.size;
        let file = files.get(job.extent.file).ok_or(libc::EBADF);
        let result = file.and_then(|file| match &job.target {
            Target::Read(start) => {
                // SAFETY: see `Job`; the buffer is at least `size` long, which `read` checked.
                let bytes = unsafe { std::slice::from_raw_parts_mut(*start, size) };
                file.read_now(job.extent.offset, bytes)
            }
            Target::Write(buffer) => file.write_now(job.extent.offset, &buffer[..size]),
        });
        let answer = match result {
            Ok(()) => size as i32,
            Err(errno) => -errno,
        };
        // The buffer's second owner goes first: the worker takes the buffer back when the answer
        // comes.
        let operation = job.operation;
        drop(job);
        if answers.send((operation, answer)).is_err() {
            return;
        }
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

impl Device for ThreadDevice {
    fn read(&mut self, extent: Extent, mut buffer: IoBuffer, user: u64) {
        assert!(buffer.bytes().len() >= extent.size);
        let (address, _) = buffer.address();
        let size = extent.size;
        let operation = self.operations.insert(Operation::Read { user, buffer, size });
        self.queued.push(Job { operation, extent, target: Target::Read(address) });
    }

    fn write(&mut self, extent: Extent, buffer: Arc<AlignedBuffer>, user: u64) {
        assert!(buffer.len() >= extent.size);
        let target = Target::Write(Arc::clone(&buffer));
        let size = extent.size;
        let operation = self.operations.insert(Operation::Write { user, buffer, size });
        self.queued.push(Job { operation, extent, target });
    }

    fn submit(&mut self) {
        let jobs = self.jobs.as_ref().expect("invariant: only a drop takes the sender");
        for job in self.queued.drain(..) {
            jobs.send(job).expect("invariant: threads outlive the sender");
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let mut count = [0; 8];
        // EAGAIN when nothing was signalled.
        let _ = rustix::io::read(&*self.wake, &mut count);
        while let Ok((operation, answer)) = self.answers.try_recv() {
            done.push(self.operations.remove(operation).end(answer));
        }
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

impl Drop for ThreadDevice {
    fn drop(&mut self) {
        // Jobs that were not handed over are dropped with the rest; the threads finish theirs and
        // end.
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a flash I/O thread panicked");
            }
        }
    }
}
