//! Waiting for many sockets at once: the three calls of Linux's epoll, level-triggered.
//!
//! This and `cpu.rs` are the only files of the crate with `unsafe`. `epoll_pwait2` is used for its nanoseconds (a
//! load on schedule waits for less than a millisecond); it needs Linux 5.11.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Most events that one wait reports; the rest come with the next.
const EVENTS_MAX: usize = 256;

/// A set of sockets, each known by a token.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// What a socket is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token that the socket was added with.
    pub token: usize,
    /// Whether a read would return bytes, the end, or an error.
    pub readable: bool,
    /// Whether a write would take bytes.
    pub writable: bool,
}

/// What to wait for on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read.
    Read,
    /// Bytes to read, or room to write.
    ReadWrite,
}

impl Epoll {
    /// An empty set. Errors: the system's, such as too many open files.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Adds a socket. It leaves the set when it is closed.
    pub fn add(&self, socket: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, token, interest)
    }

    /// Changes what to wait for on a socket of the set.
    pub fn modify(
        &self,
        socket: BorrowedFd<'_>,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, token, interest)
    }

    /// Waits until a socket is ready or `timeout` is over; none are ready after a signal.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        self.events.clear();
        // SAFETY: the kernel writes at most EVENTS_MAX events, which is the capacity of the vector;
        // the timeout outlives the call; a null signal mask is allowed.
        let count = check(unsafe {
            libc::epoll_pwait2(
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                &timeout,
                std::ptr::null(),
            )
        });
        match count {
            Ok(count) => {
                // SAFETY: the kernel has written so many events, and no more than the capacity.
                unsafe { self.events.set_len(count as usize) };
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// How many sockets the last wait found ready.
    pub fn ready_count(&self) -> usize {
        self.events.len()
    }

    /// Socket `index` of those that the last wait found ready.
    pub fn ready(&self, index: usize) -> Ready {
        let libc::epoll_event { events, u64: token } = self.events[index];
        // Hang-ups and errors are learnt by reading.
        let readable = libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR;
        Ready {
            token: token as usize,
            readable: events & readable as u32 != 0,
            writable: events & libc::EPOLLOUT as u32 != 0,
        }
    }

    fn control(
        &self,
        operation: libc::c_int,
        socket: BorrowedFd<'_>,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        let events = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events as u32, u64: token as u64 };
        // SAFETY: both descriptors are open, and the event outlives the call.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), operation, socket.as_raw_fd(), &mut event)
        })?;
        Ok(())
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn readiness_is_reported_by_token() {
        let (mut near, far) = UnixStream::pair().expect("a pair");
        let mut epoll = Epoll::new().expect("epoll");
        epoll.add(far.as_fd(), 7, Interest::Read).expect("add");
        epoll.wait(Duration::ZERO).expect("wait");
        assert_eq!(epoll.ready_count(), 0);
        near.write_all(b"x").expect("write");
        epoll.modify(far.as_fd(), 7, Interest::ReadWrite).expect("modify");
        epoll.wait(Duration::from_secs(5)).expect("wait");
        assert_eq!(epoll.ready_count(), 1);
        assert_eq!(epoll.ready(0), Ready { token: 7, readable: true, writable: true });
    }
}
