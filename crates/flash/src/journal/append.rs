//! Records are appended.

use super::queue::State;
use super::record::{Part, RECORD_HEADER_BYTES, Unplaced};
use super::{Journal, Position};

impl Journal {
    /// Appends one record, given in pieces, and returns where it ends. After a loss of power it is there as a whole or
    /// not at all. Does no I/O, and takes as long as a copy of the bytes; that of a large record, and all checksums,
    /// are made before the lock is taken.
    ///
    /// Bounds: whoever appends has asked `has_room` before.
    /// Panics: the record is empty.
    pub fn append(&self, payload: &[&[u8]]) -> Position {
        let tuning = &self.shared.tuning;
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        if bytes <= tuning.small_record_bytes_max() {
            let header = Unplaced::new(payload, Part::Last);
            return self.append_with(|queue| queue.buffer.append(header, payload, bytes));
        }
        let parts = parts(payload, bytes, tuning.part_bytes_max);
        self.append_with(|queue| {
            for (header, chunk) in parts {
                queue.buffer.append_chunk(header, chunk);
            }
        })
    }

    fn append_with(&self, append: impl FnOnce(&mut State)) -> Position {
        let queue = &self.shared.queue;
        let mut state = queue.lock();
        append(&mut state);
        let end = state.buffer.end();
        self.shared.set_appended(end);
        queue.unlock_appended(state);
        Position(end)
    }
}

/// A large record as chunks of its own: one, unless it is longer than a record may be.
fn parts(payload: &[&[u8]], bytes: usize, part_bytes_max: usize) -> Vec<(Unplaced, Vec<u8>)> {
    let mut left = bytes;
    let mut parts = Vec::with_capacity(bytes.div_ceil(part_bytes_max));
    let mut pieces = payload.iter().copied();
    let mut piece: &[u8] = &[];
    while left > 0 {
        let part_bytes = left.min(part_bytes_max);
        let mut chunk = Vec::with_capacity(RECORD_HEADER_BYTES + part_bytes);
        chunk.resize(RECORD_HEADER_BYTES, 0);
        while chunk.len() < RECORD_HEADER_BYTES + part_bytes {
            if piece.is_empty() {
                piece = pieces.next().expect("invariant: the pieces come to that many bytes");
                continue;
            }
            let room = RECORD_HEADER_BYTES + part_bytes - chunk.len();
            let (front, back) = piece.split_at(piece.len().min(room));
            chunk.extend_from_slice(front);
            piece = back;
        }
        left -= part_bytes;
        let part = if left > 0 { Part::GoesOn } else { Part::Last };
        parts.push((Unplaced::new(&[&chunk[RECORD_HEADER_BYTES..]], part), chunk));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_record_is_cut_whatever_its_pieces_are() {
        type Pieces<'a> = &'a [&'a [u8]];
        let cases: &[(Pieces<'_>, Pieces<'_>)] = &[
            (&[b"abc"], &[b"abc"]),
            (&[b"abcd"], &[b"abcd"]),
            (&[b"abcde"], &[b"abcd", b"e"]),
            (&[b"a", b"", b"bcdefgh", b"i"], &[b"abcd", b"efgh", b"i"]),
            (&[b"ab", b"cd"], &[b"abcd"]),
        ];
        for (pieces, expected) in cases {
            let bytes = pieces.concat().len();
            let parts = parts(pieces, bytes, 4);
            let payloads: Vec<&[u8]> =
                parts.iter().map(|(_, chunk)| &chunk[RECORD_HEADER_BYTES..]).collect();
            assert_eq!(&payloads, expected);
        }
    }
}
