//! A simulated connection: bytes that arrive in pieces, and replies that the client may be slow to
//! take.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use server::simulation::Transport;

use crate::machine::{START_MS, SimClock};
use crate::reply::{self, Reply};

/// The server's end.
pub(crate) struct ServerEnd(Rc<RefCell<Wire>>);

/// The client's end.
#[derive(Clone)]
pub(crate) struct ClientEnd(Rc<RefCell<Wire>>);

/// A reply with the time at which it was written, and when the task went on that ran the connection's last
/// transaction before.
pub(crate) struct Answer {
    /// What it takes on the wire.
    pub(crate) bytes: usize,
    pub(crate) written_us: u64,
    pub(crate) began_ms: u64,
    pub(crate) reply: Reply,
}

#[derive(Default)]
struct Wire {
    /// On the way to the server.
    sent: Vec<u8>,
    /// At the server.
    arrived: Vec<u8>,
    /// What the server wrote and does not make a whole reply yet.
    answered: Vec<u8>,
    replies: VecDeque<Answer>,
    /// The polls of the connection's task.
    polls: Polls,
    /// When the task went on that ran the transaction of what is not written whole, Unix ms.
    began_ms: Option<u64>,
    clock: Arc<SimClock>,
    /// Bytes that the server may write before it must wait for the client.
    window: usize,
    is_closed_by_client: bool,
    is_closed_by_server: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    garbage: Option<String>,
}

/// In which poll of its task a connection ran its last transaction: others run between that and the one
/// in which the reply is written, which may be many.
#[derive(Default)]
struct Polls {
    /// How many transactions the connection's worker has run; none: nobody counts.
    transactions: Option<Box<dyn Fn() -> u64>>,
    /// As many when that was last looked at.
    counted: u64,
    /// When the task last went on.
    began_us: u64,
    /// The same of the poll in which a transaction ran.
    run_us: u64,
}

impl Polls {
    fn count(&self) -> u64 {
        self.transactions.as_ref().map_or(0, |count| count())
    }

    /// The task goes on. Those that ran since it last did are others'.
    fn begin(&mut self, now_us: u64) {
        self.began_us = now_us;
        self.counted = self.count();
    }

    /// When the task went on in which the last transaction ran, the present poll included.
    fn run_us(&mut self) -> u64 {
        let count = self.count();
        if count != self.counted {
            self.counted = count;
            self.run_us = self.began_us;
        }
        self.run_us
    }
}

/// Both ends of a new connection.
pub(crate) fn connect(clock: Arc<SimClock>) -> (ServerEnd, ClientEnd) {
    let wire = Rc::new(RefCell::new(Wire { clock, ..Wire::default() }));
    (ServerEnd(wire.clone()), ClientEnd(wire))
}

impl ClientEnd {
    /// The server's task for the connection, with the times noted at which it goes on. `transactions` tells
    /// how many its worker has run.
    pub(crate) fn timed<S: Future<Output = ()>>(
        &self,
        serving: S,
        transactions: Box<dyn Fn() -> u64>,
    ) -> impl Future<Output = ()> + use<S> {
        let (wire, clock) = (self.0.clone(), self.0.borrow().clock.clone());
        wire.borrow_mut().polls.transactions = Some(transactions);
        async move {
            let mut serving = pin!(serving);
            poll_fn(|cx| {
                let now_us = clock.now_us();
                wire.borrow_mut().polls.begin(now_us);
                let polled = serving.as_mut().poll(cx);
                wire.borrow_mut().polls.run_us();
                clock.note_poll(now_us);
                polled
            })
            .await;
        }
    }

    /// Puts requests on the way.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.0.borrow_mut().sent.extend_from_slice(bytes);
    }

    /// Bytes on the way.
    pub(crate) fn in_transit(&self) -> usize {
        self.0.borrow().sent.len()
    }

    /// Bytes that the server has not read.
    pub(crate) fn unread(&self) -> usize {
        let wire = self.0.borrow();
        wire.sent.len() + wire.arrived.len()
    }

    /// Lets so many bytes arrive.
    pub(crate) fn deliver(&self, bytes: usize) {
        let mut wire = self.0.borrow_mut();
        let bytes = bytes.min(wire.sent.len());
        let Wire { sent, arrived, .. } = &mut *wire;
        arrived.extend_from_slice(&sent[..bytes]);
        sent.drain(..bytes);
        wake(&mut wire.reader);
    }

    /// Lets the server write so much more.
    pub(crate) fn open_window(&self, bytes: usize) {
        let mut wire = self.0.borrow_mut();
        wire.window += bytes;
        wake(&mut wire.writer);
    }

    /// Whether the server waits for the client to read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0.borrow().writer.is_some()
    }

    /// The next reply.
    ///
    /// Errors: what came is no reply.
    pub(crate) fn receive(&self) -> Result<Option<Answer>, String> {
        let mut wire = self.0.borrow_mut();
        match wire.garbage.take() {
            Some(garbage) => Err(garbage),
            None => Ok(wire.replies.pop_front()),
        }
    }

    /// Ends the connection from the client's side. What is on the way is lost.
    pub(crate) fn close(&self) {
        let mut wire = self.0.borrow_mut();
        wire.is_closed_by_client = true;
        wake(&mut wire.reader);
        wake(&mut wire.writer);
    }

    /// Whether the server has ended the connection, and every reply was received.
    pub(crate) fn is_over(&self) -> bool {
        let wire = self.0.borrow();
        wire.is_closed_by_server && wire.replies.is_empty()
    }
}

impl Transport for ServerEnd {
    fn has_hung_up(&self) -> bool {
        let wire = self.0.borrow();
        wire.is_closed_by_client && wire.arrived.is_empty()
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        let room = buffer.capacity() - buffer.len();
        assert!(room > 0);
        let count = room.min(wire.arrived.len());
        if count == 0 && !wire.is_closed_by_client {
            wire.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        buffer.extend_from_slice(&wire.arrived[..count]);
        wire.arrived.drain(..count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        if wire.is_closed_by_client {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let run_ms = START_MS + wire.polls.run_us() / 1000;
        let began_ms = *wire.began_ms.get_or_insert(run_ms);
        let count = bytes.len().min(wire.window);
        if count == 0 {
            wire.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        wire.window -= count;
        wire.answered.extend_from_slice(&bytes[..count]);
        loop {
            let bytes = wire.answered.len();
            match reply::take(&mut wire.answered) {
                Ok(Some(reply)) => {
                    let written_us = wire.clock.now_us();
                    let bytes = bytes - wire.answered.len();
                    wire.replies.push_back(Answer { bytes, written_us, began_ms, reply });
                }
                Ok(None) => break,
                Err(garbage) => {
                    wire.garbage = Some(garbage);
                    break;
                }
            }
        }
        if count == bytes.len() {
            wire.began_ms = None;
        }
        Poll::Ready(Ok(count))
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.0.borrow_mut().is_closed_by_server = true;
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Polls once.
    fn poll(task: &mut (impl Future<Output = ()> + Unpin)) -> Poll<()> {
        std::pin::Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// How long after its task first went on the transaction ran whose reply is written last, in ms. `polls`
    /// say how many transactions run in each poll before, 10 ms apart; others' run between them.
    fn began_ms(clock: &Arc<SimClock>, polls: &'static [u64]) -> u64 {
        let (server, client) = connect(clock.clone());
        client.open_window(100);
        let count = Rc::new(Cell::new(0));
        let (ran, mut polls) = (count.clone(), polls.iter());
        let serving = poll_fn(move |cx| match polls.next() {
            Some(more) => {
                ran.set(ran.get() + more);
                Poll::Pending
            }
            None => server.poll_write(cx, b"+OK\r\n").map(drop),
        });
        let others = count.clone();
        let mut task = Box::pin(client.timed(serving, Box::new(move || count.get())));
        let began_us = clock.now_us();
        while poll(&mut task).is_pending() {
            others.set(others.get() + 1);
            clock.advance(10_000);
        }
        client.receive().expect("a reply").expect("it is there").began_ms
            - START_MS
            - began_us / 1000
    }

    #[test]
    fn a_transaction_is_timed_by_the_poll_that_ran_it() {
        let clock = Arc::new(SimClock::default());
        assert_eq!(began_ms(&clock, &[1, 0, 0]), 0);
        assert_eq!(began_ms(&clock, &[0, 1, 0]), 10);
        assert_eq!(began_ms(&clock, &[1, 0, 2]), 20);
        // However long a task waits: nobody takes a time before that for the present.
        assert_eq!(clock.longest_poll_us(), 0);
    }

    #[test]
    fn the_longest_poll_is_known() {
        let clock = Arc::new(SimClock::default());
        let (_, client) = connect(clock.clone());
        let stopped = clock.clone();
        let serving = async move { stopped.advance(7) };
        assert!(poll(&mut Box::pin(client.timed(serving, Box::new(|| 0)))).is_ready());
        assert_eq!(clock.longest_poll_us(), 7);
    }
}
