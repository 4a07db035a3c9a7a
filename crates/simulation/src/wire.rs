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

use crate::machine::SimClock;
use crate::reply::{self, Reply};

/// The server's end.
pub(crate) struct ServerEnd(Rc<RefCell<Wire>>);

/// The client's end.
#[derive(Clone)]
pub(crate) struct ClientEnd(Rc<RefCell<Wire>>);

/// A reply with the time at which it was written, and when the task went on that ran its request: the time
/// before the one that first tried to write it, since others run between the two.
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
    /// When the connection's task went on for the last time but one, and for the last time.
    polled_us: [u64; 2],
    /// When the task went on that ran the request of what is not written whole, Unix ms.
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

/// Both ends of a new connection.
pub(crate) fn connect(clock: Arc<SimClock>) -> (ServerEnd, ClientEnd) {
    let wire = Rc::new(RefCell::new(Wire { clock, ..Wire::default() }));
    (ServerEnd(wire.clone()), ClientEnd(wire))
}

impl ClientEnd {
    /// The server's task for the connection, with the times noted at which it goes on.
    pub(crate) fn timed<S: Future<Output = ()>>(
        &self,
        serving: S,
    ) -> impl Future<Output = ()> + use<S> {
        let wire = self.0.clone();
        async move {
            let mut serving = pin!(serving);
            poll_fn(|cx| {
                {
                    let mut wire = wire.borrow_mut();
                    wire.polled_us = [wire.polled_us[1], wire.clock.now_us()];
                }
                serving.as_mut().poll(cx)
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
        let began_ms = wire.clock.answer_began_ms(wire.polled_us[0]);
        let began_ms = *wire.began_ms.get_or_insert(began_ms);
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
