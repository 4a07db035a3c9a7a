//! The buffers of a connection, which it borrows from its worker: made ready to read into, kept in memory of their
//! size where many connections have some, and given back.

use super::Connection;
use super::wait::{prefault_in_turns, with_ticks};
use crate::limits::{
    INPUT_GROWTH, OUTPUT_BUFFER_BYTES, OUTPUT_WAIT_MAX, PROGRESS_BYTES, READ_BUFFER_BYTES,
    WRITE_EARLY_BYTES,
};
use crate::network::stream::Transport;

impl<T: Transport> Connection<T> {
    /// Makes room for what is read next: a buffer of the worker's, or for a long argument as much as
    /// is announced, a few times what has arrived at most.
    pub(super) fn grow_input(&mut self) {
        let (len, capacity) = (self.input.len(), self.input.capacity());
        let spare = capacity - len;
        let wanted = self.batch.bytes_wanted();
        // What was kept in memory of its size may have a little to spare: a read would bring no more.
        if capacity >= READ_BUFFER_BYTES && spare > 0 && spare >= wanted {
            return;
        }
        if len + wanted > READ_BUFFER_BYTES {
            let trusted = (len * (INPUT_GROWTH - 1)).max(READ_BUFFER_BYTES);
            match wanted {
                0 => self.input.reserve(READ_BUFFER_BYTES),
                _ => self.input.reserve_exact((wanted + READ_BUFFER_BYTES).min(trusted)),
            }
        } else if len <= READ_BUFFER_BYTES / 2 {
            let mut buffer = self.worker.take_buffer();
            buffer.extend_from_slice(&self.input);
            self.worker.give_buffer(std::mem::replace(&mut self.input, buffer));
        } else {
            self.input.reserve(READ_BUFFER_BYTES);
        }
    }

    /// Keeps the start of a request, in memory of its size when many connections have one.
    #[cold]
    pub(super) fn keep_input(&mut self) {
        let capacity = self.input.capacity();
        let is_scarce = capacity >= READ_BUFFER_BYTES && self.worker.lacks_buffers();
        if is_scarce || capacity > 2 * READ_BUFFER_BYTES {
            self.shrink_input();
        }
        // Of one in a larger buffer it is noted as it is read.
        if capacity <= READ_BUFFER_BYTES {
            let arrived = self.input.len().saturating_sub(self.kept_bytes);
            let has_begun = self.kept_bytes == 0;
            self.note_moved(if has_begun { PROGRESS_BYTES } else { arrived });
        }
        self.kept_bytes = self.input.len();
        self.note_memory();
    }

    /// Moves what there is of the input to memory of its size, if it is small.
    fn shrink_input(&mut self) {
        let len = self.input.len();
        if len <= READ_BUFFER_BYTES / 2 && self.input.capacity() > len {
            let kept = self.input.as_slice().to_vec();
            self.worker.give_buffer(std::mem::replace(&mut self.input, kept));
        }
        self.has_grown_input = false;
    }

    /// Forgets the input that has been run. The batch must be used up.
    pub(super) fn drop_input(&mut self) {
        let parsed = std::mem::take(&mut self.batch.parsed_bytes);
        if self.batch.has_lists() {
            self.worker.give_batch_lists(self.batch.take_lists());
        }
        if parsed > 0 {
            // What follows asks anew, behind others: a client that sends without end is not the oldest
            // for ever.
            self.counted.release_input(&self.worker.server, &self.session.client);
            self.kept_bytes = 0;
        }
        self.has_grown_input &= parsed == 0;
        if parsed == self.input.len() {
            if self.input.capacity() > 0 {
                self.worker.give_buffer(std::mem::take(&mut self.input));
            }
        } else if parsed > 0 {
            self.input.drain(..parsed);
        }
    }

    /// Tells the worker how many of its buffers the connection has: whatever has the size of one. Cost: two
    /// comparisons.
    #[inline]
    pub(super) fn note_buffers(&mut self) {
        let has = |capacity: usize| u8::from(capacity >= READ_BUFFER_BYTES);
        let count = has(self.input.capacity()) + has(self.reply.capacity());
        if count != self.buffers_noted {
            self.worker.note_lent(i32::from(count) - i32::from(self.buffers_noted));
            self.buffers_noted = count;
        }
    }

    /// Keeps no more than it must while a request waits, when many connections of the worker have buffers: unless it
    /// was let have a buffer for its reply, which is about to be filled.
    pub(super) fn shrink_scarce_buffers(&mut self) {
        if self.reply_granted == 0 && self.worker.lacks_waiting_buffers() {
            self.shrink_buffers();
        }
    }

    /// Keeps the requests that have not run, and the replies that are not written, in memory of their size, if they
    /// are small. Cost: some allocations, and a copy of both.
    #[cold]
    pub(super) fn shrink_buffers(&mut self) {
        // A buffer that was asked for stays until it has been read into: the request would ask again, and where that has
        // it wait, and be shrunk, it would do so without end.
        if !self.has_grown_input {
            self.shrink_input();
        }
        if self.batch.has_loose_lists() {
            self.worker.give_batch_lists(self.batch.shrink_lists());
        }
        self.shrink_reply();
        self.note_memory();
    }

    /// Whether the client leaves replies unread, and the requests that it has sent may fill what room there is for more.
    #[inline]
    pub(super) fn must_add_output(&self) -> bool {
        let (len, capacity) = (self.reply.len(), self.reply.capacity());
        !self.batch.is_done()
            && len - self.written > WRITE_EARLY_BYTES
            && capacity - len < WRITE_EARLY_BYTES
    }

    /// Puts the buffer of replies that the client leaves unread by, and takes another once there is memory for it. The
    /// client goes on without, too, after a while: it may send all of its requests before it reads.
    pub(super) async fn add_output(&mut self) {
        self.wait_for_output().await;
        // It may have been read meanwhile.
        if self.must_add_output() {
            let mut buffer = Vec::with_capacity(OUTPUT_BUFFER_BYTES);
            prefault_in_turns(&self.worker, buffer.spare_capacity_mut()).await;
            let full = self.reply.take();
            self.backlog.push(full, std::mem::take(&mut self.written));
            self.reply.give(buffer);
        }
        // It is resident from here on, which the next to claim memory has to see.
        self.worker.server.tier.measure_resident();
        self.counted.keep_claim(None);
        self.note_memory();
    }

    /// Where no values can leave RAM, memory that is full stays so, and nobody waits for it.
    async fn wait_for_output(&mut self) {
        // One of an earlier request would be in its own way.
        self.counted.keep_claim(None);
        let worker = self.worker.clone();
        let (tier, clock) = (&worker.tier, worker.server.tier.clock());
        let until = clock.now() + OUTPUT_WAIT_MAX;
        let bytes = OUTPUT_BUFFER_BYTES as u64;
        loop {
            let mut claim = tier.claim(bytes);
            if claim.is_none() {
                let wait = tier.wait_for_memory(bytes, self.counted.held());
                let in_time = || clock.now() < until;
                claim = self.writing(with_ticks(&worker, wait, in_time)).await.and_then(Result::ok);
            }
            let is_granted = claim.is_some();
            self.counted.keep_claim(claim);
            let waits = self.must_add_output() && worker.server.tier.has_flash();
            if is_granted || !waits || clock.now() >= until {
                return;
            }
            self.writing(worker.upkeep_tick.notified()).await;
        }
    }

    /// Moves replies that are not written yet to memory of their size, if they are small.
    fn shrink_reply(&mut self) {
        let (len, capacity) = (self.reply.len(), self.reply.capacity());
        if len <= READ_BUFFER_BYTES / 2 && capacity > len && !self.reply.has_gaps() {
            let buffer = self.reply.take();
            // Places in it are kept, such as where what is written ends.
            self.reply.restore(buffer[..len].to_vec());
            self.worker.give_buffer(buffer);
        }
    }
}
