//! The bytes of a connection: over TCP, a Unix socket, or TLS. A stream blocks while it is opened
//! and greets the server, and never afterwards.

use crate::target::Address;
use crate::tls::{Tls, TlsStream};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a connection, and each step of its greeting, may take.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// A connection as bytes.
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP, encrypted.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Connects; the stream blocks, for a bounded time.
    ///
    /// Errors: the system's.
    pub fn connect(tls: Option<&Tls>, address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                let socket = connect_tcp(host, *port)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(OPEN_TIME_MAX))?;
                socket.set_write_timeout(Some(OPEN_TIME_MAX))?;
                match tls {
                    Some(tls) => Ok(Self::Tls(Box::new(tls.connect(socket, host)?))),
                    None => Ok(Self::Tcp(socket)),
                }
            }
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(OPEN_TIME_MAX))?;
                socket.set_write_timeout(Some(OPEN_TIME_MAX))?;
                Ok(Self::Unix(socket))
            }
        }
    }

    /// From now on it does not block.
    ///
    /// Errors: the system's.
    pub fn unblock(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_nonblocking(true),
            Self::Unix(socket) => socket.set_nonblocking(true),
            Self::Tls(stream) => stream.socket().set_nonblocking(true),
        }
    }

    /// Whether bytes that were written wait for the socket to take them.
    pub fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_unsent())
    }
}

/// Tries the addresses of the host one after the other.
fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    for address in (host, port).to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, OPEN_TIME_MAX);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(bytes),
            Self::Unix(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
