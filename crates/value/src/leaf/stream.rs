//! What is kept of a stream beside its leaves, and a stream as one value.
//!
//! ```text
//! head:   offset 0  entries, 8 bytes
//!                8  entries that were ever added, 8 bytes
//!               16  last ID that was given, 16 bytes: milliseconds, sequence number
//!               32  greatest ID that was deleted, 16 bytes
//! value:  offset 0  head
//!               48  leaves, each with its length in 4 bytes in front: those of entries in the order of their
//!                   IDs, then those of rows (`stream_rows.rs`) in their order
//! ```
//!
//! A small stream is such a value, with at most one leaf of each sort. A larger one is taken from place to
//! place as such a value, and is a tree where it stays.

use crate::leaf::entries::{Entries, is_entries};
use crate::leaf::rows::{Damaged, Rows};
use crate::stream_id::StreamId;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 48;
const LEN_BYTES: usize = 4;

/// What is known of a stream without a look at its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Entries that it has.
    pub length: u64,
    /// Entries that were ever added, as XSETID may have set it.
    pub added: u64,
    /// The last ID that was given.
    pub last: StreamId,
    /// The greatest ID of an entry that was deleted, the smallest one if none was.
    pub max_deleted: StreamId,
}

impl Head {
    /// The head in the first bytes of a value. Panics: there are fewer.
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Head {
        let number = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("invariant: 8 bytes"))
        };
        Head {
            length: number(0),
            added: number(8),
            last: StreamId::new(number(16), number(24)),
            max_deleted: StreamId::new(number(32), number(40)),
        }
    }

    /// As bytes.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let numbers = [
            self.length,
            self.added,
            self.last.ms,
            self.last.seq,
            self.max_deleted.ms,
            self.max_deleted.seq,
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[8 * at..8 * (at + 1)].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// A stream in one value, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    /// A value that this process has made. Panics, there or later: it is none.
    #[inline]
    pub fn new(value: &'a [u8]) -> Packed<'a> {
        debug_assert!(Packed::check(value).is_ok(), "{}", value.escape_ascii());
        Packed(value)
    }

    /// A value from elsewhere. Cost: linear in its entries and rows.
    ///
    /// Errors: it is none.
    pub fn check(value: &'a [u8]) -> Result<Packed<'a>, Damaged> {
        let mut rest = value.get(HEAD_BYTES..).ok_or(Damaged)?;
        let (mut length, mut has_rows) = (0, false);
        while !rest.is_empty() {
            let (len, behind) = rest.split_first_chunk::<LEN_BYTES>().ok_or(Damaged)?;
            let len = u32::from_le_bytes(*len) as usize;
            let leaf = behind.get(..len).filter(|leaf| !leaf.is_empty()).ok_or(Damaged)?;
            if is_entries(leaf) {
                length += u64::from(Entries::check(leaf)?.len());
            } else {
                Rows::check(leaf)?;
            }
            if has_rows && is_entries(leaf) {
                return Err(Damaged);
            }
            has_rows = !is_entries(leaf);
            rest = &behind[len..];
        }
        let is_right = length == Head::from_bytes(value).length;
        if is_right { Ok(Packed(value)) } else { Err(Damaged) }
    }

    /// What is known of the stream.
    #[inline]
    pub fn head(&self) -> Head {
        Head::from_bytes(self.0)
    }

    /// Bytes of the value.
    pub fn byte_len(&self) -> usize {
        self.0.len()
    }

    /// All leaves, those of entries in front.
    #[inline]
    pub fn leaves(&self) -> Leaves<'a> {
        Leaves(&self.0[HEAD_BYTES..])
    }

    /// The leaf of entries of a small stream. None: it has no entries.
    #[inline]
    pub fn entries(&self) -> Option<&'a [u8]> {
        self.leaves().next().filter(|leaf| is_entries(leaf))
    }

    /// The leaf of rows of a small stream. None: it has no rows.
    pub fn rows(&self) -> Option<&'a [u8]> {
        self.leaves().last().filter(|leaf| !is_entries(leaf))
    }
}

/// The leaves in a value.
#[derive(Clone, Debug)]
pub struct Leaves<'a>(&'a [u8]);

impl<'a> Iterator for Leaves<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, behind) = self.0.split_first_chunk::<LEN_BYTES>()?;
        let (leaf, rest) = behind.split_at(u32::from_le_bytes(*len) as usize);
        self.0 = rest;
        Some(leaf)
    }
}

/// A value of these leaves, in their order. Panics: a leaf is longer than 4 GiB.
pub fn pack<'l>(
    head: Head,
    leaves: impl IntoIterator<Item = &'l [u8], IntoIter: Clone>,
) -> Vec<u8> {
    let leaves = leaves.into_iter();
    let bytes: usize = leaves.clone().map(|leaf| LEN_BYTES + leaf.len()).sum();
    let mut value = Vec::with_capacity(HEAD_BYTES + bytes);
    value.extend_from_slice(&head.to_bytes());
    for leaf in leaves {
        let len = u32::try_from(leaf.len()).expect("invariant: a leaf is no longer than a request");
        value.extend_from_slice(&len.to_le_bytes());
        value.extend_from_slice(leaf);
    }
    value
}

/// Changes the leaf of entries of a small stream, the last of its leaves, where it stands. Panics: it is not.
pub fn change_last_leaf<R>(value: &mut Vec<u8>, change: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let start = HEAD_BYTES + LEN_BYTES;
    let mut leaf = value.split_off(start);
    let result = change(&mut leaf);
    value[HEAD_BYTES..].copy_from_slice(&(leaf.len() as u32).to_le_bytes());
    value.append(&mut leaf);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::entries::{EMPTY, EntriesMut, leaf_of};
    use crate::leaf::rows::Shape;

    fn entry(ms: u64) -> Vec<u8> {
        leaf_of(StreamId::new(ms, 1), [(&b"f"[..], &b"v"[..])].into_iter())
    }

    #[test]
    fn a_stream_is_put_into_a_value_and_taken_out_again() {
        let rows = Shape { parts: 2, ..Shape::NOTHING }.empty();
        let (one, two) = (entry(1), entry(2));
        let head = Head {
            length: 2,
            added: 7,
            last: StreamId::new(3, 4),
            max_deleted: StreamId::new(0, u64::MAX),
        };
        let value = pack(head, [&one[..], &two, &rows]);
        let packed = Packed::check(&value).expect("a value");
        assert_eq!(packed.head(), head);
        assert_eq!((packed.entries(), packed.rows()), (Some(&one[..]), Some(&rows[..])));
        assert!(packed.leaves().eq([&one[..], &two, &rows]));
        let none = pack(Head::default(), []);
        let none = Packed::check(&none).expect("a value");
        assert_eq!((none.entries(), none.rows(), none.byte_len()), (None, None, HEAD_BYTES));
        let without_rows = value.len() - LEN_BYTES - rows.len();
        for len in (0..value.len()).filter(|&len| len != without_rows) {
            assert!(Packed::check(&value[..len]).is_err(), "{len} bytes");
        }
        assert!(Packed::check(&pack(head, [&one[..], &rows, &two])).is_err());
        assert!(Packed::check(&pack(head, [&one[..]])).is_err());
        assert!(Packed::check(&pack(Head::default(), [&EMPTY[..]])).is_ok());
    }

    #[test]
    fn the_last_leaf_is_changed_in_place() {
        let mut value = pack(Head { length: 1, ..Head::default() }, [&entry(1)[..]]);
        change_last_leaf(&mut value, |leaf| {
            EntriesMut::new(leaf).push(StreamId::new(2, 0), [(&b"f"[..], &b"w"[..])].into_iter());
        });
        let leaf = Packed(&value).entries().expect("a leaf");
        assert_eq!(Entries::check(leaf).map(|entries| entries.len()), Ok(2));
    }
}
