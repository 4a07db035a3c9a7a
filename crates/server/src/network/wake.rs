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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use quanta::Clock;
    use tokio::io::Interest;
    use tokio::runtime::LocalOptions;
    use tokio::task::spawn_local;

    use super::*;
    use crate::limits::TURN_BYTES_MAX;
    use crate::state::slices::Slices;
    use crate::state::turn::{Ticket, Turn};

    /// Heavy clients.
    const GREEDY: usize = 64;

    #[test]
    fn heavy_clients_do_not_all_go_before_a_light_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let answered = Rc::new(Cell::new(0));
        let turn = Rc::new(Turn::new(&Clock::new(), &Slices::default()));
        runtime.block_on(async {
            let (near, far) = UnixStream::pair().expect("a pair");
            near.set_nonblocking(true).expect("an option");
            let near = watch(near.into(), Interest::READABLE).expect("watched");
            for _ in 0..GREEDY {
                let (turn, answered) = (turn.clone(), answered.clone());
                spawn_local(async move {
                    for runs in 0.. {
                        let (is_heavy, mut ticket) = (runs > 0, Ticket::default());
                        let goes_alone = turn.is_over(is_heavy, &ticket)
                            && turn.end(is_heavy, &mut ticket).await;
                        answered.set(answered.get() + 1);
                        if !goes_alone {
                            turn.add(TURN_BYTES_MAX as usize + 1);
                        }
                        tier::yield_once().await;
                    }
                });
            }
            for round in 0..2 * GREEDY {
                tier::yield_once().await;
                rustix::io::write(&far, b"x").expect("sent");
                let before = answered.get();
                let mut ready = near.readable().await.expect("it has come");
                let mut byte = [0];
                rustix::io::read(near.get_ref(), &mut byte).expect("it is there");
                ready.clear_ready();
                drop(ready);
                if turn.is_spent() {
                    turn.end(false, &mut Ticket::default()).await;
                }
                let meanwhile = answered.get() - before;
                assert!(meanwhile <= 4, "{meanwhile} large replies went first in round {round}");
            }
            assert!(answered.get() >= GREEDY, "nobody is left out");
        });
    }
}
