//! Replies that the client leaves unread, in front of those in the connection's buffer.
//!
//! They stay in the buffers in which they were written: in one that grows, all would be copied again and again, and
//! each time be in memory twice.

use std::collections::VecDeque;

/// Full buffers, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    buffers: VecDeque<Vec<u8>>,
    /// Bytes of the first that the client has.
    written: usize,
    /// Bytes of all that it does not have.
    unwritten: usize,
    capacity: usize,
}

impl Backlog {
    /// Adds a buffer of which so many bytes are written. Panics: if that is all of it, or others are in front of it.
    pub(super) fn push(&mut self, buffer: Vec<u8>, written: usize) {
        assert!(written < buffer.len(), "a buffer has something to write");
        assert!(written == 0 || self.buffers.is_empty(), "replies are written in their order");
        self.written += written;
        self.unwritten += buffer.len() - written;
        self.capacity += buffer.capacity();
        self.buffers.push_back(buffer);
    }

    /// What is to be written next; none: all is written.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.buffers.front().map(|buffer| &buffer[self.written..])
    }

    /// Notes that so many bytes of the front are written, and frees a buffer that is written whole.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        self.unwritten -= bytes;
        if let Some(buffer) = self.buffers.pop_front_if(|buffer| buffer.len() == self.written) {
            self.capacity -= buffer.capacity();
            self.written = 0;
        }
    }

    /// Bytes that are not written.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// Bytes that its buffers take.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_written_in_their_order_and_freed_when_they_are() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.front(), None);
        backlog.push(b"one".to_vec(), 1);
        backlog.push(Vec::from("two!"), 0);
        let capacity = backlog.capacity();
        assert_eq!((backlog.front(), backlog.unwritten()), (Some(&b"ne"[..]), 6));
        backlog.advance(1);
        assert_eq!((backlog.front(), backlog.capacity()), (Some(&b"e"[..]), capacity));
        backlog.advance(1);
        assert_eq!((backlog.front(), backlog.unwritten()), (Some(&b"two!"[..]), 4));
        assert!(backlog.capacity() < capacity);
        backlog.advance(4);
        assert_eq!((backlog.front(), backlog.unwritten(), backlog.capacity()), (None, 0, 0));
    }
}
