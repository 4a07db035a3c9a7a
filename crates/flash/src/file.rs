//! What is done with every file in the same way: it is locked for this process, and read.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Tries to lock a file, and the pause between them: two seconds, in which a server that was told to end may do so.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Locks a file for this process. False: another one has it.
///
/// The kernel takes its time to clear away the ring of a process that was killed, and the ring holds the file: a server
/// that is started again at once has to wait for that.
pub(crate) fn lock(file: &impl AsFd) -> Result<bool, Errno> {
    for attempt in 0..LOCK_TRIES {
        if attempt > 0 {
            std::thread::sleep(LOCK_PAUSE);
        }
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// Reads from an offset on until `target` is full, or the file ends. Returns how many bytes.
pub(crate) fn read_at(file: &impl AsFd, offset: u64, target: &mut [u8]) -> Result<usize, Errno> {
    let mut read = 0;
    while read < target.len() {
        match rustix::io::pread(file, &mut target[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(read)
}
