//! A connection whose client waits for keys (BLPOP and the like): until another client brings something, its
//! time is over, or it goes.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::Connection;
use crate::network::stream::Transport;
use crate::state::deadlines::DueAt;
use crate::state::waiters::{UNBLOCKED, Waiter, WaiterState};

impl<T: Transport> Connection<T> {
    /// Waits, and ends the request under way with what came of it. What the client sends behind it stays in
    /// its input. Whoever drops this has the client leave the queues when it drops the session.
    pub(super) async fn wait_for_keys(&mut self) {
        let (worker, client) = (self.worker.clone(), self.session.client.clone());
        let place = self.session.place.as_ref().expect("invariant: it has a place");
        let (waiter, deadline_ms) = (place.waiter.clone(), place.deadline_ms);
        // A client that does not read or write meanwhile is idle.
        client.is_served.store(false, Ordering::Relaxed);
        client.is_blocked.store(true, Ordering::Relaxed);
        self.shrink_buffers();
        let due = (deadline_ms != 0).then(|| worker.deadlines.add(deadline_ms, &client));
        poll_fn(|cx| self.poll_keys(cx, &waiter, due.as_ref())).await;
        drop(due);
        // Its time is over, unless somebody has ended it meanwhile.
        waiter.end(WaiterState::Left, || worker.stats.count_wait(waiter.entry, 0, None));
        let state = std::mem::replace(&mut *waiter.state(), WaiterState::Left);
        self.session.place = None;
        self.answer_wait(state);
        client.is_blocked.store(false, Ordering::Relaxed);
    }

    /// Ready when the client has been served, or is to be told that there was nothing for it.
    fn poll_keys(
        &mut self,
        cx: &mut Context<'_>,
        waiter: &Arc<Waiter>,
        due: Option<&DueAt<'_>>,
    ) -> Poll<()> {
        let has_ended = !matches!(*waiter.state(), WaiterState::Waiting);
        if has_ended || due.is_some_and(DueAt::has_come) {
            return Poll::Ready(());
        }
        self.take_pushes();
        if self.unwritten() > 0 {
            self.write_meanwhile(cx);
            // Whether it reads or not, nothing of it waits for the server.
            self.session.client.is_served.store(false, Ordering::Relaxed);
        }
        if let Poll::Ready(Err(_)) = self.poll_input_behind(cx) {
            self.session.client.kill();
        }
        Poll::Pending
    }

    /// Takes what arrives behind the request under way, and notices when the client goes.
    fn poll_input_behind(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = self.worker.take_buffer();
        let polled = self.transport.poll_read(cx, &mut buffer);
        let result = match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(Ok(count)) => {
                self.input.extend_from_slice(&buffer);
                // There may be more, when others have had their turn.
                cx.waker().wake_by_ref();
                match self.note_input(count) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
        };
        self.worker.give_buffer(buffer);
        result
    }

    fn note_input(&mut self, count: usize) -> io::Result<()> {
        self.take_read(count);
        self.note_memory();
        let bytes_max = self.worker.server.config.client_query_buffer_limit.load();
        if self.input.len() as u64 > bytes_max {
            let client = self.session.client.id;
            tracing::warn!(client, "closing a client that exceeds the query buffer limit");
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    fn answer_wait(&mut self, state: WaiterState) {
        if self.reply.capacity() == 0 {
            self.reply.give(self.worker.take_buffer());
        }
        let length = self.reply.len();
        // Whoever served it may have written for it.
        self.gate.has_written = true;
        self.reply.set_protocol(self.session.protocol);
        let mut ticks = 0;
        match state {
            WaiterState::Served(served) => {
                self.reply.raw(&served.reply);
                ticks = served.ticks;
            }
            WaiterState::Unblocked { is_error: true } => self.reply.error(UNBLOCKED),
            // Whatever the command: as in Redis.
            _ => self.reply.null_array(),
        }
        self.pipeline().finish_wait(length, ticks);
        self.note_memory();
        self.end_request();
        if self.batch.is_done() {
            self.finish_batch();
        }
    }
}
