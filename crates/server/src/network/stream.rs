//! A client's socket, TCP or Unix: bytes in and out without waiting.
//!
//! The system calls are made directly. The C library's are cancellation points of threads, which
//! costs four locked instructions a request and is of no use here.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::network::closing::Closing;
use crate::network::wake::watch;

/// What a connection takes bytes from and gives bytes to: a socket, or a simulated client.
pub trait Transport {
    /// Reads what has arrived into the spare capacity of `buffer`, which must have some. Returns
    /// how many bytes came; 0 is the end.
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>>;

    /// Writes as much of `bytes` as is taken. Returns how much that was.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Whether the other side sends nothing more, and all that it sent was read. Cost: a system call.
    fn has_hung_up(&self) -> bool;
}

/// A connected socket in a worker's event loop.
pub(crate) struct Stream {
    /// None: it is to be closed.
    socket: Option<AsyncFd<OwnedFd>>,
    closing: Rc<Closing>,
}

impl Stream {
    /// Ties a socket that does not block to the current runtime. Errors: the runtime cannot watch
    /// it.
    pub(crate) fn new(socket: OwnedFd, closing: Rc<Closing>) -> io::Result<Stream> {
        let socket = watch(socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Stream { socket: Some(socket), closing })
    }

    #[inline]
    fn socket(&self) -> &AsyncFd<OwnedFd> {
        self.socket.as_ref().expect("invariant: it goes when the stream is dropped")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.socket.take().into_iter().for_each(|socket| self.closing.push(socket));
    }
}

impl Transport for Stream {
    #[inline]
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        assert!(room > 0);
        loop {
            let mut ready = ready!(self.socket().poll_read_ready(cx))?;
            match recv(self.socket(), spare_capacity(buffer), RecvFlags::empty()) {
                Ok((_, count)) => {
                    // There was less than room for it: nothing is left, so do not ask again.
                    if 0 < count && count < room {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    #[inline]
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket().poll_write_ready(cx))?;
            match send(self.socket(), bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    // It took less than there is: it is full.
                    if 0 < count && count < bytes.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(self.socket(), PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
            && ioctl_fionread(self.socket()).is_ok_and(|bytes| bytes == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_side_that_has_hung_up_is_told_once_all_was_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let tcp = std::net::TcpStream::connect(address).expect("connected");
            let (accepted, _) = listener.accept().expect("accepted");
            let (near, far) = UnixStream::pair().expect("a pair");
            let pairs: [(OwnedFd, OwnedFd); 2] =
                [(accepted.into(), tcp.into()), (near.into(), far.into())];
            for (near, far) in pairs {
                rustix::io::ioctl_fionbio(&near, true).expect("an option");
                let near = Stream::new(near, Rc::default()).expect("watched");
                assert!(!near.has_hung_up());
                rustix::io::write(&far, b"PING").expect("written");
                drop(far);
                poll_fn(|cx| near.socket().poll_read_ready(cx).map(|_| ())).await;
                assert!(!near.has_hung_up(), "something is left to be read");
                let mut received = Vec::with_capacity(64);
                let count = poll_fn(|cx| near.poll_read(cx, &mut received)).await;
                assert_eq!(count.expect("read"), 4);
                while !near.has_hung_up() {
                    std::thread::yield_now();
                }
            }
        });
    }

    #[test]
    fn bytes_pass_both_ways_and_the_end_is_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let (near, far) = UnixStream::pair().expect("a pair");
            near.set_nonblocking(true).expect("an option");
            far.set_nonblocking(true).expect("an option");
            let near = Stream::new(near.into(), Rc::default()).expect("watched");
            let far = Stream::new(far.into(), Rc::default()).expect("watched");
            // More than the sockets hold, so that both sides must wait for each other.
            let sent: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
            let write = async {
                let mut written = 0;
                while written < sent.len() {
                    let count = poll_fn(|cx| near.poll_write(cx, &sent[written..])).await;
                    written += count.expect("written");
                }
                drop(near);
            };
            let read = async {
                let mut received = Vec::new();
                loop {
                    received.reserve(4096);
                    if poll_fn(|cx| far.poll_read(cx, &mut received)).await.expect("read") == 0 {
                        return received;
                    }
                }
            };
            let ((), received) = tokio::join!(write, read);
            assert!(received == sent);
        });
    }
}
