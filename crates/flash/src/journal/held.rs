//! What the writer has taken and is not durable: kept until it is, for it may have to be written anew.

use std::collections::VecDeque;

/// Bytes of the journal from one position to another.
pub(crate) struct Held {
    chunks: VecDeque<Chunk>,
    end: u64,
    /// Memory of the chunks.
    memory_bytes: usize,
}

struct Chunk {
    from: u64,
    bytes: Vec<u8>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

impl Held {
    pub(crate) fn new(from: u64) -> Self {
        Self { chunks: VecDeque::new(), end: from, memory_bytes: 0 }
    }

    /// Up to where it reaches.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Adds the next bytes. What the last chunk has room for is copied there, and the chunk comes back: so chunks with
    /// little in them do not pile up between two syncs.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let from = self.end;
        self.end += bytes.len() as u64;
        match self.chunks.back_mut() {
            Some(last) if last.bytes.capacity() - last.bytes.len() >= bytes.len() => {
                last.bytes.extend_from_slice(&bytes);
                Some(bytes)
            }
            _ => {
                self.memory_bytes += bytes.capacity();
                self.chunks.push_back(Chunk { from, bytes });
                None
            }
        }
    }

    /// Bytes from one position on, up to another at most: as many as lie together.
    ///
    /// Shape: `from` is held, and in front of `to`.
    pub(crate) fn slice(&self, from: u64, to: u64) -> &[u8] {
        let at = self.chunks.partition_point(|chunk| chunk.end() <= from);
        let chunk = &self.chunks[at];
        let end = chunk.end().min(to);
        &chunk.bytes[(from - chunk.from) as usize..(end - chunk.from) as usize]
    }

    /// Moves the chunks that end up to `position` to `freed`.
    pub(crate) fn release(&mut self, position: u64, freed: &mut Vec<Vec<u8>>) {
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= position) {
            let Some(chunk) = self.chunks.pop_front() else { break };
            self.memory_bytes -= chunk.bytes.capacity();
            freed.push(chunk.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_by_their_position_however_chunks_were_joined() {
        let mut held = Held::new(100);
        let chunk = |bytes: &[u8]| {
            let mut chunk = Vec::with_capacity(8);
            chunk.extend_from_slice(bytes);
            chunk
        };
        assert!(held.push(chunk(b"abcde")).is_none());
        assert!(held.push(chunk(b"fgh")).is_some(), "copied");
        assert!(held.push(chunk(b"ijk")).is_none());
        assert_eq!((held.end(), held.memory_bytes()), (111, 16));
        assert_eq!(held.slice(100, 111), b"abcdefgh");
        assert_eq!(held.slice(103, 106), b"def");
        assert_eq!(held.slice(108, 111), b"ijk");
        let mut freed = Vec::new();
        held.release(107, &mut freed);
        assert!(freed.is_empty());
        held.release(108, &mut freed);
        assert_eq!(freed, [b"abcdefgh"]);
        assert_eq!(held.slice(109, 111), b"jk");
        assert_eq!(held.memory_bytes(), 8);
    }
}
