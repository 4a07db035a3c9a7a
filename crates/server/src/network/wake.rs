//! Watching descriptors from the event loop: sockets, the flash engine's eventfd, a timer. The
//! crate's only `unsafe` line.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the current runtime. Errors: the runtime cannot watch it.
#[allow(unsafe_code, reason = "tokio cannot check that a descriptor stays open")]
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, always answers the same descriptor, and is owned by the
    // `AsyncFd` for as long as that lives.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(|error| error.into_parts().1)
}
