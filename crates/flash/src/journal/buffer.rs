//! What was appended and is not on its way to the drive yet: records one behind the other, in chunks, none of which
//! begins or ends within a record.

use super::record::{self, MARK_BYTES, Part, Place, RECORD_HEADER_BYTES, Unplaced};
use super::tuning::Tuning;
use crate::limits::{JOURNAL_SPARE_CHUNKS_MAX, JOURNAL_SPARE_CHUNKS_MIN};

use stdx::prefetch::{CACHE_LINE_BYTES, prefetch};

/// Cache lines of the next record that are prefetched. Most records have no more, and the CPU itself follows a longer
/// copy.
const PREFETCHED_LINES: usize = 4;

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
    /// As many as are kept.
    spare_max: usize,
    /// The fewest that there were since those that nobody needs were last taken.
    spare_least: usize,
}

impl Buffer {
    pub(crate) fn new(run: u64, from: u64, tuning: &Tuning) -> Self {
        let chunk_bytes = tuning.chunk_bytes;
        Self {
            run,
            chunk_bytes,
            chunks: Vec::new(),
            bytes: 0,
            end: from,
            records_end: from,
            spare: Vec::new(),
            spare_max: JOURNAL_SPARE_CHUNKS_MAX,
            spare_least: 0,
        }
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

    /// Appends a record, which fits into a chunk, and prefetches the memory of the next one: a chunk comes back when it
    /// is durable, out of the CPU's cache by then, and the unlock would wait for its lines.
    pub(crate) fn append(&mut self, header: Unplaced, payload: &[&[u8]], payload_bytes: usize) {
        let header = header.place(self.place());
        let chunk = self.chunk_with_room(RECORD_HEADER_BYTES + payload_bytes);
        chunk.extend_from_slice(&header);
        for piece in payload {
            chunk.extend_from_slice(piece);
        }
        for line in chunk.spare_capacity_mut().chunks(CACHE_LINE_BYTES).take(PREFETCHED_LINES) {
            prefetch(line.as_ptr());
        }
        self.grow(RECORD_HEADER_BYTES + payload_bytes);
        self.records_end = self.end;
    }

    /// Appends a record that is a chunk of its own, with room for its header. Where memory is little it goes into the
    /// chunk before if that has room: else small records and large ones in turns would take a whole chunk for each two.
    pub(crate) fn append_chunk(&mut self, header: Unplaced, mut chunk: Vec<u8>) {
        chunk[..RECORD_HEADER_BYTES].copy_from_slice(&header.place(self.place()));
        self.grow(chunk.len());
        self.records_end = self.end;
        let is_tight = self.spare_max < JOURNAL_SPARE_CHUNKS_MAX;
        match self.chunks.last_mut() {
            Some(last) if is_tight && has_room(last, chunk.len()) => last.extend_from_slice(&chunk),
            _ => self.chunks.push(chunk),
        }
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
            let is_kept = chunk.capacity() == self.chunk_bytes && self.spare.len() < self.spare_max;
            if is_kept {
                chunk.clear();
                self.spare.push(std::mem::take(chunk));
            }
            !is_kept
        });
    }

    /// Hands over the chunks that it keeps for later, to be freed without the lock.
    pub(crate) fn take_spare(&mut self) -> Vec<Vec<u8>> {
        self.spare_least = 0;
        std::mem::take(&mut self.spare)
    }

    /// The same of those that nobody has needed since it was last called.
    pub(crate) fn take_unused(&mut self) -> Vec<Vec<u8>> {
        // The last are used first.
        let unused = self.spare.drain(..self.spare_least).collect();
        self.spare_least = self.spare.len();
        unused
    }

    /// Says how much memory chunks that are kept for later may take, within bounds, and hands over those beyond it, to
    /// be freed without the lock.
    pub(crate) fn bound_spare(&mut self, bytes: u64) -> Vec<Vec<u8>> {
        let chunks = (bytes / self.chunk_bytes as u64).min(JOURNAL_SPARE_CHUNKS_MAX as u64);
        self.spare_max = JOURNAL_SPARE_CHUNKS_MIN.max(chunks as usize);
        self.spare_least = self.spare_least.min(self.spare_max);
        self.spare.split_off(self.spare.len().min(self.spare_max))
    }

    /// Memory of all chunks, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.iter().chain(&self.spare).map(Vec::capacity).sum()
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
        if !self.chunks.last().is_some_and(|chunk| has_room(chunk, bytes)) {
            let chunk = self.spare.pop();
            self.spare_least = self.spare_least.min(self.spare.len());
            self.chunks.push(chunk.unwrap_or_else(|| Vec::with_capacity(self.chunk_bytes)));
        }
        self.chunks.last_mut().expect("invariant: it was pushed")
    }
}

fn has_room(chunk: &Vec<u8>, bytes: usize) -> bool {
    chunk.capacity() - chunk.len() >= bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: usize = 1024;

    fn buffer() -> Buffer {
        Buffer::new(1, 0, &Tuning { chunk_bytes: CHUNK_BYTES, ..Tuning::new() })
    }

    /// Appends small records that fill so many chunks, and has them written.
    fn fill(buffer: &mut Buffer, chunks: usize) {
        let payload = [0; CHUNK_BYTES - RECORD_HEADER_BYTES];
        (0..chunks).for_each(|_| buffer.append_any(&payload, Part::Last));
        let mut taken = Vec::new();
        buffer.take(&mut taken);
        assert_eq!(taken.len(), chunks);
        buffer.take_back(&mut taken);
    }

    #[test]
    fn chunks_are_kept_for_a_share_of_memory_within_bounds() {
        for (bytes, kept) in [
            (0, JOURNAL_SPARE_CHUNKS_MIN),
            (6 * CHUNK_BYTES as u64, 6),
            (u64::MAX, JOURNAL_SPARE_CHUNKS_MAX),
        ] {
            let mut buffer = buffer();
            assert!(buffer.bound_spare(bytes).is_empty());
            fill(&mut buffer, 2 * JOURNAL_SPARE_CHUNKS_MAX);
            assert_eq!(buffer.memory_bytes(), kept * CHUNK_BYTES, "{bytes}");
        }
        let mut buffer = buffer();
        fill(&mut buffer, 20);
        assert_eq!(buffer.bound_spare(6 * CHUNK_BYTES as u64).len(), 14);
        assert_eq!(buffer.memory_bytes(), 6 * CHUNK_BYTES);
    }

    #[test]
    fn chunks_that_nobody_needs_go_while_records_come() {
        let mut buffer = buffer();
        fill(&mut buffer, 20);
        assert!(buffer.take_unused().is_empty(), "all were needed lately");
        fill(&mut buffer, 3);
        assert_eq!(buffer.take_unused().len(), 17);
        fill(&mut buffer, 3);
        assert!(buffer.take_unused().is_empty());
        assert_eq!(buffer.memory_bytes(), 3 * CHUNK_BYTES);
    }

    #[test]
    fn small_records_and_large_ones_in_turns_take_little_more_than_their_bytes_where_memory_is_little()
     {
        let mut buffer = buffer();
        buffer.bound_spare(0);
        for _ in 0..100 {
            buffer.append_any(&[0; 8], Part::Last);
            let chunk = vec![0; CHUNK_BYTES / 7];
            buffer.append_chunk(Unplaced::new(&[&chunk[RECORD_HEADER_BYTES..]], Part::Last), chunk);
        }
        assert!(buffer.memory_bytes() <= 2 * buffer.bytes(), "{}", buffer.memory_bytes());
    }
}
