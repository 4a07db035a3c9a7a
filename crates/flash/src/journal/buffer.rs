//! What was appended and is not on its way to the drive yet: records one behind the other, in chunks, none of which
//! begins or ends within a record.

use super::record::{self, MARK_BYTES, Part, Place, RECORD_HEADER_BYTES, Unplaced};
use super::tuning::Tuning;
use crate::limits::JOURNAL_SPARE_CHUNKS_MAX;

pub(crate) struct Buffer {
    run: u64,
    chunk_bytes: usize,
    chunks: Vec<Vec<u8>>,
    /// Bytes in them.
    bytes: usize,
    /// Where the next record begins.
    end: u64,
    /// Where the last record ends that is no mark.
    records_end: u64,
    /// Chunks to be used again.
    spare: Vec<Vec<u8>>,
}

impl Buffer {
    pub(crate) fn new(run: u64, from: u64, tuning: &Tuning) -> Self {
        let chunk_bytes = tuning.chunk_bytes;
        let (chunks, spare) = (Vec::new(), Vec::new());
        Self { run, chunk_bytes, chunks, bytes: 0, end: from, records_end: from, spare }
    }

    /// Bytes that were not taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the first record begins that was not taken.
    pub(crate) fn start(&self) -> u64 {
        self.end - self.bytes as u64
    }

    /// Where the next record begins.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Where the last record ends that is no mark.
    pub(crate) fn records_end(&self) -> u64 {
        self.records_end
    }

    /// Appends a record, which fits into a chunk.
    pub(crate) fn append(&mut self, header: Unplaced, payload: &[&[u8]], payload_bytes: usize) {
        let header = header.place(self.place());
        let chunk = self.chunk_with_room(RECORD_HEADER_BYTES + payload_bytes);
        chunk.extend_from_slice(&header);
        for piece in payload {
            chunk.extend_from_slice(piece);
        }
        self.grow(RECORD_HEADER_BYTES + payload_bytes);
        self.records_end = self.end;
    }

    /// Appends a record that is a chunk of its own, with room for its header.
    pub(crate) fn append_chunk(&mut self, header: Unplaced, mut chunk: Vec<u8>) {
        chunk[..RECORD_HEADER_BYTES].copy_from_slice(&header.place(self.place()));
        self.grow(chunk.len());
        self.chunks.push(chunk);
        self.records_end = self.end;
    }

    /// Appends a record, however long, that is whole or a part.
    pub(crate) fn append_any(&mut self, payload: &[u8], part: Part) {
        let header = Unplaced::new(&[payload], part);
        if RECORD_HEADER_BYTES + payload.len() <= self.chunk_bytes {
            self.append(header, &[payload], payload.len());
        } else {
            self.append_chunk(header, [&[0; RECORD_HEADER_BYTES], payload].concat());
        }
    }

    /// Appends a mark.
    pub(crate) fn append_mark(&mut self, durable: u64) {
        let mark = record::encode_mark(durable, self.place());
        self.chunk_with_room(MARK_BYTES).extend_from_slice(&mark);
        self.grow(MARK_BYTES);
    }

    /// Moves all chunks to `taken`.
    pub(crate) fn take(&mut self, taken: &mut Vec<Vec<u8>>) {
        taken.append(&mut self.chunks);
        self.bytes = 0;
    }

    /// Takes back chunks to be used again, as many as it keeps. The others stay, to be freed without the lock.
    pub(crate) fn take_back(&mut self, chunks: &mut Vec<Vec<u8>>) {
        chunks.retain_mut(|chunk| {
            let is_kept =
                chunk.capacity() == self.chunk_bytes && self.spare.len() < JOURNAL_SPARE_CHUNKS_MAX;
            if is_kept {
                chunk.clear();
                self.spare.push(std::mem::take(chunk));
            }
            !is_kept
        });
    }

    /// Hands over the chunks that it keeps for later, to be freed without the lock.
    pub(crate) fn take_spare(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.spare)
    }

    fn place(&self) -> Place {
        Place { run: self.run, position: self.end }
    }

    fn grow(&mut self, bytes: usize) {
        self.end += bytes as u64;
        self.bytes += bytes;
    }

    /// The last chunk, or a new one where that has too little room.
    fn chunk_with_room(&mut self, bytes: usize) -> &mut Vec<u8> {
        debug_assert!(bytes <= self.chunk_bytes);
        // The chunk of a large record is full.
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes;
        if !self.chunks.last().is_some_and(has_room) {
            let chunk = self.spare.pop();
            self.chunks.push(chunk.unwrap_or_else(|| Vec::with_capacity(self.chunk_bytes)));
        }
        self.chunks.last_mut().expect("invariant: it was pushed")
    }
}
