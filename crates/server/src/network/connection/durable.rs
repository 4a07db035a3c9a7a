//! Replies leave once what they tell of is durable, where `appendfsync always` says so: the writes that they answer,
//! and those of others that they have seen.

use std::io;
use std::task::{Context, Poll};

use flash::Position;

use super::Connection;
use crate::network::stream::Transport;

/// How much may leave of the replies that are unwritten: counted from the first byte that is, in whichever buffer.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// So many bytes.
    open: usize,
    awaited: Option<Awaited>,
    /// Whether requests whose replies are not open have written to the journal.
    pub(super) has_written: bool,
}

/// What the next replies wait for.
#[derive(Debug)]
struct Awaited {
    /// Where the journal is to come.
    position: Position,
    /// How many bytes may leave then.
    len: usize,
}

impl Gate {
    /// So many bytes of the replies have left.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.open = self.open.saturating_sub(bytes);
        if let Some(awaited) = &mut self.awaited {
            awaited.len = awaited.len.saturating_sub(bytes);
        }
    }

    /// Opens for what was waited for, of replies of `len` bytes.
    fn open(&mut self, len: usize) {
        self.open = self.awaited.take().map_or(self.open, |awaited| awaited.len);
        self.has_written &= self.open < len;
    }
}

impl<T: Transport> Connection<T> {
    /// How many of the unwritten bytes of replies may leave. Pending while none may. Cost: a load where replies do not
    /// wait for the journal.
    ///
    /// Errors: the journal has failed, and nobody knows what has become of a write of this client.
    #[inline]
    pub(super) fn poll_durable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.worker.server.journaling.waits_for_sync() {
            false => Poll::Ready(Ok(self.unwritten())),
            true => self.poll_gate(cx),
        }
    }

    #[cold]
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (len, gate) = (self.unwritten(), &mut self.gate);
        let Some(journal) = self.worker.server.journaling.journal() else {
            return Poll::Ready(Ok(len));
        };
        while gate.open < len {
            // What the replies tell of was appended before they were made.
            let begin = || Awaited { position: journal.appended(), len };
            let position = gate.awaited.get_or_insert_with(begin).position;
            if journal.durable() < position {
                if !journal.is_failing() {
                    journal.wake_when_durable(position, cx.waker());
                    break;
                }
                if gate.has_written {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                // Reads go on.
            }
            gate.open(len);
        }
        match gate.open {
            0 => Poll::Pending,
            open => Poll::Ready(Ok(open.min(len))),
        }
    }
}
