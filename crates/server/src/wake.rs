//! Watching the flash engine's eventfd from the event loop. One of the crate's few `unsafe` lines.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers an eventfd with the current runtime. Errors: the runtime cannot watch it.
#[allow(unsafe_code, reason = "tokio cannot check that a descriptor stays open")]
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, always answers the same descriptor, and is owned by the
    // `AsyncFd` for as long as that lives.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
