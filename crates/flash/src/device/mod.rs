//! The seam between the log and the drives: queued reads and writes of whole sectors.
//!
//! Each worker owns one `Device`. Operations are queued, handed over together by `submit`, and come
//! back through `reap` with the buffer that they were given. A device never blocks, except in
//! `read_now` and when it is dropped: then it waits for what is in flight, because the memory must
//! outlive the operation.
//!
//! Invariants:
//! 1. Each queued operation comes back exactly once.
//! 2. `wake_fd` becomes readable after a completion that `reap` has not seen.
//! 3. A write that comes back without an error was accepted whole; a read without an error filled
//!    the whole length.

#[allow(unsafe_code, reason = "memory that the kernel reads and writes")]
pub(crate) mod buffer;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod label;

pub(crate) mod sim;
#[allow(unsafe_code, reason = "buffers handed to other threads by address")]
pub(crate) mod threads;
#[allow(unsafe_code, reason = "the ring takes addresses")]
pub(crate) mod uring;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use crate::error::EngineError;
use buffer::{AlignedBuffer, IoBuffer};
use label::Label;

/// Which of the data files, one a path: below `PATHS_MAX`, and given again once a file was removed.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct FileIndex(pub(crate) u16);

/// A range of whole sectors in a data file.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) file: FileIndex,
    /// Bytes from the start of the file.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: usize,
}

/// An errno.
pub(crate) type Errno = i32;

/// An operation that has ended.
pub(crate) enum Done {
    /// A read; the buffer is filled when the result is `Ok`.
    Read { user: u64, buffer: IoBuffer, result: Result<(), Errno> },
    /// A write.
    Write { user: u64, buffer: Arc<AlignedBuffer>, result: Result<(), Errno> },
}

/// One worker's queue to the drives.
pub(crate) trait Device {
    /// Queues a read of `extent` into the start of `buffer`. `user` comes back with it.
    fn read(&mut self, extent: Extent, buffer: IoBuffer, user: u64);

    /// Queues a write of the start of `buffer`. Nobody changes the buffer until it comes back.
    fn write(&mut self, extent: Extent, buffer: Arc<AlignedBuffer>, user: u64);

    /// Hands over what is queued.
    fn submit(&mut self);

    /// Moves what has ended to `done`, and makes `wake_fd` unreadable.
    fn reap(&mut self, done: &mut Vec<Done>);

    /// Whether `reap` would find something, as far as that is known without a system call.
    fn has_ended(&mut self) -> bool {
        false
    }

    /// Reads at once and waits for it.
    fn read_now(&mut self, extent: Extent, buffer: &mut IoBuffer) -> Result<(), Errno>;

    /// The same of several, side by side where the device can. The results are in the order of `reads`.
    fn read_all_now(&mut self, reads: Vec<(Extent, &mut IoBuffer)>) -> Vec<Result<(), Errno>> {
        reads.into_iter().map(|(extent, buffer)| self.read_now(extent, buffer)).collect()
    }

    /// Readable when `reap` has something to report.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Operations queued or handed over that `reap` has not reported.
    fn in_flight(&self) -> usize;

    /// Where the buffers of reads come from.
    fn pool(&self) -> &buffer::ReadPool;
}

/// The drives behind a log: what is done to whole files, and where workers get their devices.
pub(crate) trait Drives: Send + Sync {
    /// A device for the calling thread.
    fn device(&self) -> Result<Box<dyn Device>, EngineError>;

    /// The name of the backend, for people.
    fn backend(&self) -> &'static str;

    /// The data files that are open, one a path, in the order of the paths at the start.
    fn files(&self) -> Vec<FileIndex>;

    /// The data file in a directory.
    fn find(&self, directory: &Path) -> Option<FileIndex>;

    /// Makes an empty data file in a directory. Every device can use it at once. `flash`: as in the labels, if there are any: a
    /// file of it that is there and not open is needed no more.
    ///
    /// Errors: with a text for the operator.
    fn add(&self, directory: &Path, flash: Option<u64>) -> Result<FileIndex, EngineError>;

    /// Closes and removes a data file. Shape: no operation on it is queued or in flight.
    fn remove(&self, file: FileIndex);

    /// The name of a data file, for people.
    fn name(&self, file: FileIndex) -> String;

    /// Offsets and sizes of all operations are multiples of this.
    fn sector_bytes(&self) -> u32;

    /// Makes a range of a file writable without running out of space.
    fn reserve(&self, file: FileIndex, from: u64, to: u64) -> Result<(), EngineError>;

    /// The same, without a look at what is free before: for a range that has its space, as far as is known, and that nothing
    /// is in. False: there is no space for it, and it has none.
    fn reserve_again(&self, file: FileIndex, from: u64, to: u64) -> Result<bool, EngineError>;

    /// Gives the space of a range back. What was in it is gone.
    fn punch(&self, file: FileIndex, offset: u64, size: u64) -> Result<(), EngineError>;

    /// Has all writes to a file that have ended become durable. After an error any part of them may be lost, although it
    /// can be read, and whatever later syncs say.
    fn sync(&self, file: FileIndex) -> Result<(), EngineError>;

    /// The label of a file, if it has one. Errors: it cannot be read, or is damaged.
    fn label(&self, file: FileIndex) -> Result<Option<Label>, EngineError>;

    /// Puts a label on a file in place of the one that it has; it is durable when this returns. Files that are needed by
    /// their labels ([`Label::is_needed`]) stay when the log is closed.
    fn set_label(&self, file: FileIndex, label: &Label) -> Result<(), EngineError>;

    /// Takes the label off a file, which is durable when this returns.
    fn remove_label(&self, file: FileIndex) -> Result<(), EngineError>;

    /// Bytes of a file.
    fn file_bytes(&self, file: FileIndex) -> Result<u64, EngineError>;

    /// Gives the space of a file back that lies behind so many bytes. What was there is gone.
    fn shorten(&self, file: FileIndex, bytes: u64) -> Result<(), EngineError>;
}

/// What an operation holds on to while it is in flight.
pub(crate) enum Operation {
    Read { user: u64, buffer: IoBuffer, size: usize },
    Write { user: u64, buffer: Arc<AlignedBuffer>, size: usize },
}

impl Operation {
    /// Ends the operation with what the kernel answered: a byte count, or a negated errno.
    pub(crate) fn end(self, answer: i32) -> Done {
        let result = |size: usize, short: Errno| match answer {
            errno if errno < 0 => Err(-errno),
            bytes if bytes as usize == size => Ok(()),
            _ => Err(short),
        };
        match self {
            // The files are as long as their segments, so a read that ends early is a broken file.
            Self::Read { user, buffer, size } => {
                Done::Read { user, buffer, result: result(size, libc::EIO) }
            }
            // A write ends early where the space does.
            Self::Write { user, buffer, size } => {
                Done::Write { user, buffer, result: result(size, libc::ENOSPC) }
            }
        }
    }
}

/// Operations in flight, found by a small number that fits a ring's user data. Numbers are reused.
pub(crate) struct OperationTable {
    operations: Vec<Option<Operation>>,
    free: Vec<u32>,
}

impl OperationTable {
    pub(crate) fn new() -> Self {
        Self { operations: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, operation: Operation) -> u32 {
        if let Some(index) = self.free.pop() {
            self.operations[index as usize] = Some(operation);
            return index;
        }
        self.operations.push(Some(operation));
        u32::try_from(self.operations.len() - 1).expect("invariant: operations are bounded")
    }

    pub(crate) fn remove(&mut self, index: u32) -> Operation {
        self.free.push(index);
        self.operations[index as usize].take().expect("invariant: each operation ends once")
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.len() - self.free.len()
    }
}
