//! Keys: the slot that a key belongs to and the hash that finds it there.
//!
//! The slot is Redis Cluster's ([`key_slot`]). The hash is keyed with secrets drawn at start, so that
//! nobody can choose keys that collide.

use std::hash::{BuildHasher, Hasher};

use rapidhash::quality::SeedableState;
use stdx::{HashSecrets, hash_secrets, key_slot};

use crate::record::FlashRef;
use crate::table::Position;

/// A key with its slot and hash worked out.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The name as the client sent it.
    pub bytes: &'a [u8],
    /// The slot it lives in, below [`stdx::SLOT_COUNT`].
    pub slot: u16,
    /// Keyed 64-bit hash of `bytes`.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes `bytes`. Cost: about 10 ns for a key of 16 bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Key { bytes, slot: key_slot(bytes), hash: hash(bytes) }
    }

    /// The same for a key whose slot is known. A wrong one finds nothing, or breaks what is written
    /// there: it must come from the key itself. Cost: about 4 ns.
    #[inline]
    pub fn in_slot(bytes: &'a [u8], slot: u16) -> Self {
        Key { bytes, slot, hash: hash(bytes) }
    }
}

/// Whether two keys are the same. Those of 8 to 16 bytes, as most keys and all nodes of collections have, are
/// compared as two words each: a call of `memcmp` costs more than the rest of a look-up in the cache.
#[inline]
pub(crate) fn is_same(one: &[u8], two: &[u8]) -> bool {
    if one.len() != two.len() {
        return false;
    }
    if one.len() > 2 * WORD_BYTES {
        return one == two;
    }
    let ends = |key: &[u8]| {
        let (first, last) = (key.first_chunk::<WORD_BYTES>()?, key.last_chunk::<WORD_BYTES>()?);
        Some((u64::from_ne_bytes(*first), u64::from_ne_bytes(*last)))
    };
    match (ends(one), ends(two)) {
        (Some(one), Some(two)) => one == two,
        _ => one == two,
    }
}

const WORD_BYTES: usize = 8;

/// Keys whose look-ups wait for memory together: their lines are still near when they are used.
pub const PREFETCH_KEYS: usize = 64;

/// Lines of a value that are asked for ahead; the CPU itself follows a longer copy.
pub const VALUE_LINES: usize = 8;

/// A key by its hash alone: enough to guess where it is, whatever happened to the table since.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// Physical table.
    pub table: u8,
    /// Slot of the key.
    pub slot: u16,
    /// Hash of the key.
    pub hash: u64,
    /// Where the key probably stands.
    pub(crate) guess: Option<Position>,
    /// The kind of the value there, once that is prefetched.
    pub kind: Option<u8>,
    /// Where the value is, if on flash alone, once that is prefetched.
    pub cold: Option<FlashRef>,
}

impl Hint {
    /// The hint to a key of a physical table.
    #[inline]
    pub fn new(table: u8, key: &Key<'_>) -> Hint {
        Hint { table, slot: key.slot, hash: key.hash, guess: None, kind: None, cold: None }
    }

    /// Whether another one is to the same key, as far as is known.
    #[inline]
    pub fn is_of_same_key(&self, other: &Hint) -> bool {
        self.hash == other.hash && self.table == other.table
    }
}

impl AsMut<Hint> for Hint {
    #[inline]
    fn as_mut(&mut self) -> &mut Hint {
        self
    }
}

/// The keyed hash of a key.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = KeyHashes.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Hashes of names in maps, keyed as those of keys are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHashes;

impl BuildHasher for KeyHashes {
    type Hasher = <SeedableState<'static> as BuildHasher>::Hasher;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        let HashSecrets { seed, secrets } = hash_secrets();
        SeedableState::custom(*seed, secrets).build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_if_all_their_bytes_are() {
        for len in 0..40 {
            let key: Vec<u8> = (0..len).collect();
            assert!(is_same(&key, &key.clone()));
            assert!(!is_same(&key, &[&key[..], b"-"].concat()));
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 1;
                assert!(!is_same(&key, &other), "{len} {at}");
            }
        }
    }

    /// With the constants that rapidhash has by default these agree, whatever the seed.
    #[test]
    fn keys_chosen_to_collide_do_not() {
        let hash_of = |number: u64| {
            let key = [0x2d35_8dcc_aa6c_78a5, number].map(u64::to_le_bytes).concat();
            hash(&key)
        };
        let hashes: std::collections::BTreeSet<u64> = (0..100).map(hash_of).collect();
        assert_eq!(hashes.len(), 100);
    }
}
