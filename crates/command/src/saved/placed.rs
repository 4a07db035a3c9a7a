//! Values that stay on flash: what a checkpoint of the journal has in their place. A string of a module (`rdb::file`),
//! little endian:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 1     | kind: type and encoding |
//! | 1      | 1     | bit 0: compressed; bit 1: fields expire; bits 2, 3: how often the key was used lately |
//! | 2      | 5     | where the record lies, in units of 16 bytes |
//! | 7      | 8     | generation of the segment there |
//! | 15     | 4     | bytes of the value as it is stored |
//! | 19     | 4     | bytes of the value |
//! | 23     | 8     | with bit 1: when the first field expires, Unix milliseconds |

use keyspace::{FlashRef, KEY_BYTES_MAX};
use rdb::file::{module_id, module_value};
use value::Kind;

/// The module whose values these are.
pub const PLACED_MODULE: u64 = module_id(b"kelvinref", 1);

const BYTES: usize = 23;
const COMPRESSED: u8 = 1;
const EXPIRES: u8 = 2;
const FREQUENCY_SHIFT: u32 = 2;
const FREQUENCY_MASK: u8 = 3 << FREQUENCY_SHIFT;
/// Values are no longer than keys may be, and what is stored no longer than they are.
const VALUE_BYTES_MAX: u32 = KEY_BYTES_MAX as u32 + (1 << 20);

/// A value that is on flash, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Type and encoding.
    pub kind: u8,
    /// Where it lies.
    pub at: FlashRef,
    /// Of the segment there.
    pub generation: u64,
    /// Bytes of it.
    pub value_len: u32,
    /// When the first field of a hash expires: Unix milliseconds, 0 for never.
    pub first_expiry_ms: u64,
    /// How often the key was used lately, 0 to 3; 1 at least if the value was in RAM, too.
    pub frequency: u8,
}

impl Placed {
    /// Writes it as the value of a key, the type in front.
    pub fn save(&self, out: &mut Vec<u8>) {
        module_value(out, PLACED_MODULE, &self.bytes());
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES + 8);
        let compressed = if self.at.compressed { COMPRESSED } else { 0 };
        let expires = if self.first_expiry_ms > 0 { EXPIRES } else { 0 };
        let frequency = self.frequency << FREQUENCY_SHIFT & FREQUENCY_MASK;
        bytes.extend_from_slice(&[self.kind, compressed | expires | frequency]);
        bytes.extend_from_slice(&self.at.units.to_le_bytes()[..5]);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        for word in [self.at.stored_len, self.value_len] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        if self.first_expiry_ms > 0 {
            bytes.extend_from_slice(&self.first_expiry_ms.to_le_bytes());
        }
        bytes
    }

    /// Reads what was written so, without what stands in front of it in a file. None: it is none.
    pub fn read(bytes: &[u8]) -> Option<Placed> {
        let (head, rest) = bytes.split_first_chunk::<BYTES>()?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| head[at + index]));
        let units = u64::from(word(2)) | u64::from(head[6]) << 32;
        let generation = u64::from(word(7)) | u64::from(word(11)) << 32;
        let (stored_len, value_len) = (word(15), word(19));
        let (kind, compressed) = (head[0], head[1] & COMPRESSED != 0);
        let (first_expiry_ms, is_whole) = match head[1] & EXPIRES {
            0 => (0, rest.is_empty()),
            _ => (u64::from_le_bytes(*rest.first_chunk()?), rest.len() == 8),
        };
        let is_whole = is_whole && (head[1] & EXPIRES == 0) == (first_expiry_ms == 0);
        let are_lens = stored_len <= value_len
            && value_len <= VALUE_BYTES_MAX
            && (compressed || stored_len == value_len);
        let whole = Kind::of_whole(kind)?;
        let is_one = head[1] & !(COMPRESSED | EXPIRES | FREQUENCY_MASK) == 0
            && is_whole
            && are_lens
            && (first_expiry_ms == 0 || whole.is_hash());
        let at = FlashRef { units, stored_len, compressed };
        let frequency = (head[1] & FREQUENCY_MASK) >> FREQUENCY_SHIFT;
        is_one.then_some(Placed { kind, at, generation, value_len, first_expiry_ms, frequency })
    }
}

#[cfg(test)]
mod tests {
    use rdb::file::{FileReader, FileWriter, Part};
    use value::KIND_BITS;

    use super::*;

    #[test]
    fn a_place_comes_back_and_what_cannot_be_is_refused() {
        let hash = Kind::HASH_PACKED.bits();
        for (compressed, stored_len, first_expiry_ms, frequency) in
            [(false, 300, 0, 0), (true, 100, 0, 3), (true, 300, 9_999_999_999_999, 2)]
        {
            let at = FlashRef { units: (1 << 40) - 2, stored_len, compressed };
            let (kind, generation, value_len) = (hash, 7 << 32 | 3, 300);
            let placed = Placed { kind, at, generation, value_len, first_expiry_ms, frequency };
            let mut object = Vec::new();
            placed.save(&mut object);
            let mut writer = FileWriter::new(Vec::new(), 10, true);
            writer.key(0, b"key", 0, &object).expect("a buffer");
            let file = writer.finish().expect("a buffer");
            let mut reader = FileReader::new(&file[..], 1 << 20).expect("a file");
            reader.take_module(PLACED_MODULE);
            let Ok(Part::OfModule(part)) = reader.next_part() else {
                panic!("it is of the module")
            };
            assert_eq!(Placed::read(&part.value), Some(placed));
            for len in 0..part.value.len() {
                assert_eq!(Placed::read(&part.value[..len]), None);
            }
            for (at, byte) in
                [(0, 0xff), (0, Kind::HASH.as_tree().bits()), (0, 5), (1, 16), (22, 0xff), (18, 9)]
            {
                let mut wrong = part.value.clone();
                wrong[at] = byte;
                assert_eq!(Placed::read(&wrong), None, "byte {at}: {byte}");
            }
            // Hashes alone have fields that expire.
            let list = Placed { kind: Kind::LIST.bits(), ..placed };
            let is_possible = first_expiry_ms == 0;
            assert_eq!(Placed::read(&list.bytes()).is_some(), is_possible);
        }
    }

    #[test]
    fn only_hashes_have_fields_that_expire() {
        for kind in 0..1 << KIND_BITS {
            let at = FlashRef { units: 5, stored_len: 300, compressed: false };
            let place = |first_expiry_ms| Placed {
                kind,
                at,
                generation: 1,
                value_len: 300,
                first_expiry_ms,
                frequency: 0,
            };
            let is_read = |place: Placed| Placed::read(&place.bytes()) == Some(place);
            let (is_whole, is_hash) =
                (Kind::of_whole(kind).is_some(), Kind::from_bits(kind).is_hash());
            assert_eq!(is_read(place(0)), is_whole, "{kind}");
            assert_eq!(is_read(place(1)), is_whole && is_hash, "{kind}");
        }
    }

    #[test]
    fn other_bytes_are_refused_or_are_what_would_be_written() {
        let mut random = stdx::Random::new(1);
        let mut read = 0;
        for _ in 0..200_000 {
            let mut bytes = vec![0; random.below(34) as usize];
            for byte in &mut bytes {
                // Few bits, so that lengths are in order now and then.
                *byte = random.below(256) as u8 & random.below(256) as u8 & random.below(256) as u8;
            }
            if let Some(placed) = Placed::read(&bytes) {
                assert_eq!(placed.bytes(), bytes);
                read += 1;
            }
        }
        assert!(read > 10, "{read}");
    }
}
