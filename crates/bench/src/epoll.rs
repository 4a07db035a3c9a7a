//! Waiting for many sockets at once: Linux's epoll, level-triggered. Waits are exact to the
//! nanosecond (a load on schedule waits for less than a millisecond), which needs Linux 5.11.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most events that one wait reports; the rest come with the next.
const EVENTS_MAX: usize = 256;

/// A set of sockets, each known by a token.
pub struct Epoll {
    fd: OwnedFd,
    /// What the last wait found.
    ready: Vec<Ready>,
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

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Read => EventFlags::IN,
            Interest::ReadWrite => EventFlags::IN | EventFlags::OUT,
        }
    }
}

impl Epoll {
    /// An empty set. Errors: the system's, such as too many open files.
    pub fn new() -> io::Result<Self> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { fd, ready: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Adds a socket. It leaves the set when it is closed.
    pub fn add(&self, socket: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token as u64);
        Ok(epoll::add(&self.fd, socket, data, interest.flags())?)
    }

    /// Changes what to wait for on a socket of the set.
    pub fn modify(
        &self,
        socket: BorrowedFd<'_>,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        let data = EventData::new_u64(token as u64);
        Ok(epoll::modify(&self.fd, socket, data, interest.flags())?)
    }

    /// Waits until a socket is ready or `timeout` is over; none are ready after a signal.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        self.ready.clear();
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.fd, &mut events, Some(&timeout)) {
            Ok((events, _)) => self.ready.extend(events.iter().copied().map(Ready::from)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// How many sockets the last wait found ready.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Socket `index` of those that the last wait found ready.
    pub fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }
}

impl From<Event> for Ready {
    fn from(event: Event) -> Ready {
        let Event { flags, data, .. } = event;
        // Hang-ups and errors are learnt by reading.
        let readable = EventFlags::IN | EventFlags::HUP | EventFlags::ERR;
        Ready {
            token: data.u64() as usize,
            readable: flags.intersects(readable),
            writable: flags.contains(EventFlags::OUT),
        }
    }
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
