//! Values that are elsewhere: what a checkpoint of the journal has in their place. A string of a type that no other program
//! reads ([`rdb::file::own_value`]), of numbers as [`crate::varint`] has them. Of a value that is on flash:
//!
//! | number | |
//! |--------|-|
//! | head | bits 0 to 4: kind, type and encoding; bit 5: compressed; bit 6: fields expire; bits 7, 8: how often the key was used lately |
//! | place | where the record lies, in units of 16 bytes |
//! | start, count | the upper and the lower half of the generation of the segment there |
//! | stored | bytes of the value as it is stored |
//! | saved | if it is compressed: how many bytes fewer these are than the value has |
//! | expiry | if fields expire: when the first one does, Unix milliseconds |
//!
//! Of a string that a record of the journal has, in front of the checkpoint:
//!
//! | number | |
//! |--------|-|
//! | head | 31, which is no kind |
//! | back | from where the record begins to the checkpoint, in bytes of the journal |
//! | bytes | of the value |

use keyspace::{FlashRef, KEY_BYTES_MAX};
use rdb::file::own_value;
use value::{KIND_BITS, Kind};

use crate::varint;

/// The type of these values in a file, which Redis and Valkey have none of.
pub const PLACED_TYPE: u8 = 200;

const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const COMPRESSED: u64 = 1 << KIND_BITS;
const EXPIRES: u64 = 1 << (KIND_BITS + 1);
const FREQUENCY_SHIFT: u32 = KIND_BITS + 2;
const FREQUENCY_MAX: u64 = 3;
/// Places have so many bits.
const UNITS_BITS: u32 = 40;
/// Values are no longer than keys may be, and what is stored no longer than they are.
const VALUE_BYTES_MAX: u64 = KEY_BYTES_MAX as u64 + (1 << 20);

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// On flash.
    Placed(Placed),
    /// In the journal.
    Journaled(Journaled),
}

impl Reference {
    /// Reads what was written so, without what stands in front of it in a file. None: it is none.
    pub fn read(bytes: &[u8]) -> Option<Reference> {
        let journaled = || Journaled::read(bytes).map(Reference::Journaled);
        Placed::read(bytes).map(Reference::Placed).or_else(journaled)
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Reference::Placed(placed) => placed.bytes(),
            Reference::Journaled(journaled) => journaled.bytes(),
        }
    }
}

/// A string that a record of the journal has: its key is set to it by the last command there that sets the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journaled {
    /// From where the record begins to the checkpoint: bytes of the journal.
    pub back: u64,
    /// Bytes of the value.
    pub value_len: u32,
}

impl Journaled {
    /// Writes it as the value of a key, the type in front.
    pub fn save(&self, out: &mut Vec<u8>) {
        own_value(out, PLACED_TYPE, &self.bytes());
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        let numbers = [KIND_MASK, self.back, self.value_len.into()];
        numbers.into_iter().for_each(|number| varint::put(&mut bytes, number));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Journaled> {
        let mut numbers = Numbers(bytes);
        let (head, back, value_len) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let is_one = head == KIND_MASK && value_len <= VALUE_BYTES_MAX && numbers.0.is_empty();
        is_one.then_some(Journaled { back, value_len: value_len as u32 })
    }
}

/// Numbers that are read one after another.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    /// None: there is none.
    fn next(&mut self) -> Option<u64> {
        let (number, len) = varint::read(self.0).ok()?;
        // The last byte of a number that ends in zeros was not needed.
        let is_shortest = len == 1 || self.0[len - 1] != 0;
        self.0 = &self.0[len..];
        is_shortest.then_some(number)
    }
}

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
        own_value(out, PLACED_TYPE, &self.bytes());
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let FlashRef { units, stored_len, compressed } = self.at;
        let head = u64::from(self.kind)
            | if compressed { COMPRESSED } else { 0 }
            | if self.first_expiry_ms > 0 { EXPIRES } else { 0 }
            | u64::from(self.frequency) << FREQUENCY_SHIFT;
        let mut bytes = Vec::with_capacity(24);
        let numbers = [head, units, self.generation >> 32, self.generation & 0xFFFF_FFFF];
        numbers.into_iter().for_each(|number| varint::put(&mut bytes, number));
        varint::put(&mut bytes, stored_len.into());
        if compressed {
            varint::put(&mut bytes, (self.value_len - stored_len).into());
        }
        if self.first_expiry_ms > 0 {
            varint::put(&mut bytes, self.first_expiry_ms);
        }
        bytes
    }

    /// Reads what was written so, without what stands in front of it in a file. None: it is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Placed> {
        let mut numbers = Numbers(bytes);
        let mut next = || numbers.next();
        let (head, units, start, count) = (next()?, next()?, next()?, next()?);
        let kind = (head & KIND_MASK) as u8;
        let (compressed, expires) = (head & COMPRESSED != 0, head & EXPIRES != 0);
        let frequency = head >> FREQUENCY_SHIFT;
        let stored_len = next()?;
        let saved = if compressed { next()? } else { 0 };
        let first_expiry_ms = if expires { next()? } else { 0 };
        let value_len = stored_len.checked_add(saved).filter(|&len| len <= VALUE_BYTES_MAX)?;
        let is_one = numbers.0.is_empty()
            && units >> UNITS_BITS == 0
            && start.max(count) >> 32 == 0
            && frequency <= FREQUENCY_MAX
            && expires == (first_expiry_ms > 0)
            && (!expires || Kind::from_bits(kind).is_hash());
        Kind::of_whole(kind).filter(|_| is_one)?;
        let at = FlashRef { units, stored_len: stored_len as u32, compressed };
        let (generation, value_len) = (start << 32 | count, value_len as u32);
        let frequency = frequency as u8;
        Some(Placed { kind, at, generation, value_len, first_expiry_ms, frequency })
    }
}

#[cfg(test)]
mod tests {
    use rdb::file::{FileReader, FileWriter, Part};

    use super::*;

    const TOO_LONG: u32 = VALUE_BYTES_MAX as u32 + 1;

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
            reader.take_own(PLACED_TYPE);
            let Ok(Part::Own(part)) = reader.next_part() else { panic!("it is of that type") };
            assert_eq!(Placed::read(&part.value), Some(placed));
            for len in 0..part.value.len() {
                assert_eq!(Placed::read(&part.value[..len]), None);
            }
            // A tree, no kind, a byte behind the end, and a number with a byte that it does not need.
            let of_kind = |kind| Placed { kind, ..placed }.bytes();
            let last = part.value.len() - 1;
            let padded = [&part.value[..last], &[part.value[last] | 0x80, 0]].concat();
            for wrong in [
                of_kind(Kind::HASH.as_tree().bits()),
                of_kind(KIND_MASK as u8),
                [&part.value[..], &[0]].concat(),
                padded,
                Placed { at: FlashRef { units: 1 << UNITS_BITS, ..at }, ..placed }.bytes(),
                Placed {
                    at: FlashRef { stored_len: TOO_LONG, ..at },
                    value_len: TOO_LONG,
                    ..placed
                }
                .bytes(),
            ] {
                assert_eq!(Placed::read(&wrong), None, "{wrong:?}");
            }
            // Hashes alone have fields that expire.
            let list = Placed { kind: Kind::LIST.bits(), ..placed };
            let is_possible = first_expiry_ms == 0;
            assert_eq!(Placed::read(&list.bytes()).is_some(), is_possible);
        }
    }

    #[test]
    fn a_record_of_the_journal_comes_back_and_is_no_place() {
        for (back, value_len) in [(1, 0), (300, 128), (1 << 60, VALUE_BYTES_MAX as u32)] {
            let journaled = Journaled { back, value_len };
            let bytes = journaled.bytes();
            assert_eq!(Reference::read(&bytes), Some(Reference::Journaled(journaled)));
            assert_eq!(Placed::read(&bytes), None);
            for len in 0..bytes.len() {
                assert_eq!(Reference::read(&bytes[..len]), None);
            }
            assert_eq!(Reference::read(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Reference::read(&Journaled { back: 1, value_len: TOO_LONG }.bytes()), None);
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
            if let Some(reference) = Reference::read(&bytes) {
                assert_eq!(reference.bytes(), bytes);
                read += 1;
            }
        }
        assert!(read > 10, "{read}");
    }
}
