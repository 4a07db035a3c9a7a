//! A client's socket: TCP or Unix.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket on its way to the worker that will serve it, not yet tied to a runtime.
pub(crate) enum NewStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl NewStream {
    /// Writes a few bytes without waiting. Errors: they do not fit at once.
    pub(crate) fn write_now(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            NewStream::Tcp(stream) => stream.write_all(bytes),
            NewStream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Ties the socket to the current runtime. Errors: the runtime cannot watch it.
    pub(crate) fn into_stream(self) -> io::Result<Stream> {
        match self {
            NewStream::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            NewStream::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Stream {
    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }
}
