//! Sockets of clients that have gone. To close one costs more than to answer a request, and thousands
//! may go at once, so they are closed a few at a time between the turns of the clients that stay.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::limits::{CLOSED_AT_ONCE_MIN, CLOSED_SHIFT, CLOSING_MAX};

/// A worker's sockets that are to be closed.
#[derive(Default)]
pub(crate) struct Closing {
    sockets: RefCell<VecDeque<AsyncFd<OwnedFd>>>,
    is_wanted: Notify,
}

impl Closing {
    /// Has a socket closed soon; at once when very many are waiting.
    pub(crate) fn push(&self, socket: AsyncFd<OwnedFd>) {
        let mut sockets = self.sockets.borrow_mut();
        if sockets.len() < CLOSING_MAX {
            sockets.push_back(socket);
            self.is_wanted.notify_one();
        }
    }

    /// Closes them, for as long as the worker runs.
    pub(crate) async fn run(&self) {
        loop {
            self.is_wanted.notified().await;
            while self.close_some() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Closes a few. Whether there are more.
    fn close_some(&self) -> bool {
        let mut sockets = self.sockets.borrow_mut();
        // The more there are, the more at once: each is a file that a new client may lack.
        let count = (sockets.len() >> CLOSED_SHIFT).max(CLOSED_AT_ONCE_MIN).min(sockets.len());
        drop(sockets.drain(..count));
        !sockets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use tokio::io::Interest;

    use super::*;
    use crate::network::wake::watch;

    #[test]
    fn all_are_closed_and_a_few_at_a_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let closing = Rc::new(Closing::default());
            let mut clients = Vec::new();
            for _ in 0..3 * CLOSED_AT_ONCE_MIN {
                let (client, socket) = UnixStream::pair().expect("a pair of sockets");
                socket.set_nonblocking(true).expect("a socket that does not block");
                closing.push(watch(socket.into(), Interest::READABLE).expect("it is watched"));
                clients.push(client);
            }
            let run = closing.run();
            let turns = async {
                for turn in 1..=3 {
                    tokio::task::yield_now().await;
                    let left = (3 - turn) * CLOSED_AT_ONCE_MIN;
                    assert_eq!(closing.sockets.borrow().len(), left);
                }
            };
            tokio::select! { biased; () = turns => {}, () = run => unreachable!("it goes on") }
            for mut client in clients {
                assert_eq!(client.read(&mut [0]).expect("the end"), 0);
            }
        });
    }
}
