//! HyperLogLogs: strings that estimate how many different elements were added to them.
//!
//! An element's hash chooses one of 16,384 registers, which keeps the longest run of zeros, plus one, in
//! the rest of the hashes that chose it. Many registers are zero at first: they are kept as runs (`sparse`),
//! and in six bits each (`dense`) once that is shorter.
//!
//! Format: `HYLL`, a byte for the encoding (0 dense, 1 sparse), three of zeros, the cardinality as it was
//! estimated last in eight bytes, little-endian, the highest bit of which says that it no longer holds;
//! then the registers. The bytes are those of Redis, which shows them to GET and SETRANGE.

mod dense;
mod estimate;
mod sparse;

pub use sparse::{Opcode, RAISED_BYTES_MAX, opcodes};

/// Registers of each.
pub const REGISTERS: usize = 16_384;
/// Bits of a hash that choose the register.
const REGISTER_BITS: u32 = REGISTERS.trailing_zeros();
/// The greatest value of a register: all other bits are zero.
const RUN_MAX: u32 = 64 - REGISTER_BITS + 1;

/// Bytes in front of the registers.
const HEADER_BYTES: usize = 16;
/// Bytes of a dense one.
pub const DENSE_BYTES: usize = HEADER_BYTES + dense::BYTES;
/// Bytes of a sparse one at most: each of its opcodes is of a register at least.
pub const SPARSE_BYTES_MAX: usize = HEADER_BYTES + REGISTERS * sparse::OPCODE_BYTES_MAX;
const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const CARDINALITY_AT: usize = 8;
/// Of the last byte of the cardinality.
const STALE_BIT: u8 = 0x80;

/// How the registers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits each.
    Dense,
    /// Runs of equal ones.
    Sparse,
}

/// The registers are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// What an element asks for: that a register has a value at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    register: usize,
    value: u8,
}

impl Wish {
    /// What this element asks for.
    pub fn of(element: &[u8]) -> Wish {
        let hash = murmur_hash(element, HASH_SEED);
        // The bit in front of the highest bounds the run.
        let rest = hash >> REGISTER_BITS | 1 << (RUN_MAX - 1);
        let value = rest.trailing_zeros() as u8 + 1;
        Wish { register: hash as usize % REGISTERS, value }
    }
}

/// One without elements.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING_AT] = Encoding::Sparse as u8;
    sparse::push_run(&mut bytes, 0, REGISTERS);
    bytes
}

/// The encoding of these bytes. None: they are no HyperLogLog.
pub fn encoding(bytes: &[u8]) -> Option<Encoding> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    match bytes[ENCODING_AT] {
        0 => (bytes.len() == DENSE_BYTES).then_some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// The cardinality as it was estimated last, if it still holds.
pub fn cached_cardinality(bytes: &[u8]) -> Option<u64> {
    let cached = &bytes[CARDINALITY_AT..HEADER_BYTES];
    let cardinality = u64::from_le_bytes(cached.try_into().expect("eight bytes"));
    (cached[7] & STALE_BIT == 0).then_some(cardinality)
}

/// Keeps what was estimated.
pub fn cache_cardinality(bytes: &mut [u8], cardinality: u64) {
    bytes[CARDINALITY_AT..HEADER_BYTES].copy_from_slice(&cardinality.to_le_bytes());
}

/// Says that the cardinality must be estimated anew.
pub fn forget_cardinality(bytes: &mut [u8]) {
    bytes[HEADER_BYTES - 1] |= STALE_BIT;
}

/// Estimates the cardinality. Errors: [`Corrupted`]. Panics: if the bytes are no HyperLogLog.
pub fn cardinality(bytes: &[u8]) -> Result<u64, Corrupted> {
    let mut counts = estimate::Histogram::default();
    match encoding(bytes).expect("a HyperLogLog") {
        Encoding::Dense => {
            dense::values(&bytes[HEADER_BYTES..]).for_each(|value| counts.add(value, 1));
        }
        Encoding::Sparse => {
            let mut add = |_, value, registers| counts.add(value, registers);
            sparse::for_each_run(bytes, &mut add)?;
        }
    }
    Ok(counts.cardinality())
}

/// Whether a dense one would change if all of this were granted.
pub fn dense_lacks(bytes: &[u8], wish: Wish) -> bool {
    dense::get(&bytes[HEADER_BYTES..], wish.register) < wish.value
}

/// Grants a wish to a dense one. Whether it changed.
pub fn raise_dense(bytes: &mut [u8], wish: Wish) -> bool {
    let lacks = dense_lacks(bytes, wish);
    if lacks {
        dense::set(&mut bytes[HEADER_BYTES..], wish.register, wish.value);
    }
    lacks
}

/// Grants a wish, and makes a sparse one dense if that takes more than `sparse_bytes_max` in all, or if
/// runs cannot express it. Whether it changed.
///
/// Errors: [`Corrupted`]. Panics: if the bytes are no HyperLogLog.
pub fn raise(bytes: &mut Vec<u8>, wish: Wish, sparse_bytes_max: usize) -> Result<bool, Corrupted> {
    if encoding(bytes).expect("a HyperLogLog") == Encoding::Dense {
        return Ok(raise_dense(bytes, wish));
    }
    match sparse::raise(bytes, wish, sparse_bytes_max)? {
        sparse::Raised::No => Ok(false),
        sparse::Raised::Yes => {
            forget_cardinality(bytes);
            Ok(true)
        }
        sparse::Raised::TooLong => {
            make_dense(bytes)?;
            Ok(raise_dense(bytes, wish))
        }
    }
}

/// Makes a sparse one dense. Errors: [`Corrupted`]; it is as it was then.
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<(), Corrupted> {
    if encoding(bytes).expect("a HyperLogLog") == Encoding::Sparse {
        *bytes = dense_of(bytes)?;
    }
    Ok(())
}

/// What a sparse one is when it is dense. Errors: [`Corrupted`].
pub fn dense_of(bytes: &[u8]) -> Result<Vec<u8>, Corrupted> {
    let mut made = vec![0; DENSE_BYTES];
    made[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    made[ENCODING_AT] = Encoding::Dense as u8;
    let registers = &mut made[HEADER_BYTES..];
    sparse::for_each_run(bytes, &mut |first, value, count| {
        if value > 0 {
            (first..first + count).for_each(|register| dense::set(registers, register, value));
        }
    })?;
    Ok(made)
}

/// The registers of a dense one, in their order.
pub fn dense_registers(bytes: &[u8]) -> impl Iterator<Item = u8> {
    dense::values(&bytes[HEADER_BYTES..])
}

/// The registers of several together.
pub struct Union(Box<[u8; REGISTERS]>);

impl Default for Union {
    fn default() -> Self {
        Union(Box::new([0; REGISTERS]))
    }
}

impl Union {
    /// Adds the elements of one. Errors: [`Corrupted`]. Panics: if the bytes are no HyperLogLog.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Corrupted> {
        match encoding(bytes).expect("a HyperLogLog") {
            Encoding::Dense => {
                for (mine, value) in self.0.iter_mut().zip(dense_registers(bytes)) {
                    *mine = value.max(*mine);
                }
                Ok(())
            }
            Encoding::Sparse => sparse::for_each_run(bytes, &mut |first, value, count| {
                self.0[first..first + count].iter_mut().for_each(|mine| *mine = value.max(*mine));
            }),
        }
    }

    /// Estimates the cardinality of all.
    pub fn cardinality(&self) -> u64 {
        let mut counts = estimate::Histogram::default();
        self.0.iter().for_each(|&value| counts.add(value, 1));
        counts.cardinality()
    }

    /// What is to be granted to one so that it has all elements.
    pub fn wishes(&self) -> impl Iterator<Item = Wish> {
        let wishes = self.0.iter().enumerate();
        wishes.filter(|(_, value)| **value > 0).map(|(register, &value)| Wish { register, value })
    }
}

/// The seed with which Redis hashes elements.
const HASH_SEED: u64 = 0xadc8_3b19;

/// MurmurHash64A.
fn murmur_hash(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mix = |word: u64| word ^ word >> SHIFT;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = mix(u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER));
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    mix(mix(hash).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(numbers: std::ops::Range<u32>, sparse_bytes_max: usize) -> Vec<u8> {
        let mut bytes = empty();
        for number in numbers {
            let wish = Wish::of(number.to_string().as_bytes());
            raise(&mut bytes, wish, sparse_bytes_max).expect("sound");
        }
        bytes
    }

    #[test]
    fn both_encodings_hold_the_same() {
        for count in [0, 1, 2, 10, 100, 500, 3_000, 20_000] {
            let (sparse, dense) = (added(0..count, usize::MAX), added(0..count, 0));
            let mut made = sparse.clone();
            make_dense(&mut made).expect("sound");
            assert!(made[HEADER_BYTES..] == dense[HEADER_BYTES..] || count == 0);
            assert_eq!(encoding(&sparse), Some(Encoding::Sparse));
            let estimate = cardinality(&sparse).expect("sound");
            assert_eq!(estimate, cardinality(&dense).expect("sound"), "{count}");
            let error = estimate.abs_diff(u64::from(count)) as f64;
            assert!(error <= f64::from(count) * 0.03, "{estimate} for {count}");
        }
    }

    #[test]
    fn a_union_has_what_any_has() {
        let mut union = Union::default();
        for (range, sparse_bytes_max) in [(0..100, 3_000), (50..4_000, 3_000), (3_000..3_500, 0)] {
            union.add(&added(range, sparse_bytes_max)).expect("sound");
        }
        let all = added(0..4_000, usize::MAX);
        assert_eq!(union.cardinality(), cardinality(&all).expect("sound"));
        let mut made = empty();
        for wish in union.wishes() {
            raise(&mut made, wish, usize::MAX).expect("sound");
        }
        make_dense(&mut made).expect("sound");
        let mut all = all;
        make_dense(&mut all).expect("sound");
        assert!(made == all);
    }

    #[test]
    fn cached_cardinalities_hold_until_something_changes() {
        let mut bytes = added(0..5, 3_000);
        assert_eq!(cached_cardinality(&bytes), None);
        cache_cardinality(&mut bytes, 5);
        assert_eq!(cached_cardinality(&bytes), Some(5));
        assert!(!raise(&mut bytes, Wish::of(b"3"), 3_000).expect("sound"));
        assert_eq!(cached_cardinality(&bytes), Some(5));
        assert!(raise(&mut bytes, Wish::of(b"5"), 3_000).expect("sound"));
        assert_eq!(cached_cardinality(&bytes), None);
    }

    /// Whatever the bytes are: an answer or an error.
    #[test]
    fn corrupted_ones_are_told() {
        let sound = added(0..300, 3_000);
        let mut errors = 0;
        let mut seed = 1u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = sound.clone();
            for _ in 0..=next(3) {
                let at = HEADER_BYTES + next(bytes.len() - HEADER_BYTES);
                match next(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, next(256) as u8),
                    _ => bytes[at] = next(256) as u8,
                }
                bytes.resize(bytes.len().max(HEADER_BYTES + 1), 0x7f);
            }
            let verdict = cardinality(&bytes);
            assert_eq!(verdict.is_err(), make_dense(&mut bytes.clone()).is_err());
            assert_eq!(verdict.is_err(), Union::default().add(&bytes).is_err());
            errors += usize::from(verdict.is_err());
            let _ = raise(&mut bytes, Wish { register: next(REGISTERS), value: 40 }, 100);
            let _ = raise(&mut bytes, Wish { register: next(REGISTERS), value: 3 }, 100_000);
        }
        assert!(errors > 10_000, "{errors}");
    }

    #[test]
    fn other_strings_are_none() {
        for bytes in
            [&b""[..], b"HYLL", b"HYLL\x01\0\0\0\0\0\0\0\0\0\0", b"hYLL\x01\0\0\0\0\0\0\0\0\0\0\0"]
        {
            assert_eq!(encoding(bytes), None);
        }
        assert_eq!(encoding(&empty()[..HEADER_BYTES]), Some(Encoding::Sparse));
        let mut dense = empty();
        make_dense(&mut dense).expect("sound");
        assert_eq!(encoding(&dense), Some(Encoding::Dense));
        assert_eq!(encoding(&dense[1..]), None);
        assert_eq!(encoding(&dense[..DENSE_BYTES - 1]), None);
    }

    #[test]
    fn elements_hash_as_in_redis() {
        // As PFADD and PFDEBUG DECODE of redis-server 7.0 show them.
        let cases: &[(&[u8], usize, u8)] = &[
            (b"", 5_938, 2),
            (b"a", 12_711, 2),
            (b"b", 15_780, 1),
            (b"foo", 7_348, 5),
            (b"12345678", 10_579, 3),
            (b"hello world this is long", 265, 1),
        ];
        for &(element, register, value) in cases {
            assert_eq!(Wish::of(element), Wish { register, value }, "{}", element.escape_ascii());
        }
    }
}
