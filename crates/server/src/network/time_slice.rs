//! The time slice that the kernel's scheduler gives a thread.

use std::io;
use std::mem::MaybeUninit;

/// The shortest slice that Linux knows, in nanoseconds.
const SHORTEST_NANOS: u64 = 100_000;
/// Threads that this one starts have the usual slice; and the usual priority, if this one has a higher.
const RESET_ON_FORK: u64 = 1;

/// Asks for the shortest slice for this thread: when it is woken while a thread of the background (a snapshot's, the
/// device's) has the core, it goes first, where it would wait for the rest of that one's slice otherwise, and have it wait
/// as long. It has no larger share of the core for it. Threads that this one starts have the usual slice, but for a server
/// of a higher priority than usual (`nice` below 0): there they keep both. Since Linux 6.12; before, nothing changes.
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
    if attributes.sched_nice >= 0 {
        attributes.sched_flags |= RESET_ON_FORK;
    }
    attributes.size = size_of::<libc::sched_attr>() as u32;
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
        let is_usual = usual.sched_policy == libc::SCHED_OTHER as u32 && usual.sched_nice >= 0;
        if !is_usual || usual.sched_runtime == 0 {
            return eprintln!(
                "not tested: {usual:?}: another policy or priority, or Linux before 6.12"
            );
        }
        let threads = std::thread::spawn(|| {
            let asked = ask_for_shortest();
            let started = std::thread::spawn(attributes).join().expect("ends");
            asked.map(|()| [attributes(), started].map(|each| each.expect("known")))
        });
        let Ok([own, started]) = threads.join().expect("ends") else {
            return eprintln!("not tested: the kernel refuses it");
        };
        assert_eq!(own.sched_runtime, SHORTEST_NANOS);
        assert_eq!(started.sched_runtime, usual.sched_runtime);
        for other in [own, started] {
            let of = |one: &libc::sched_attr| (one.sched_nice, one.sched_policy);
            assert_eq!(of(&other), of(&usual));
        }
    }
}
