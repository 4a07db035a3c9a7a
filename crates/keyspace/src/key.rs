//! Keys: the slot that a key belongs to and the hash that finds it there.
//!
//! The slot is Redis Cluster's ([`key_slot`]). The hash is keyed with a seed drawn at start, so that
//! nobody can choose keys that collide.

use std::hash::Hasher;
use std::sync::OnceLock;

use rapidhash::quality::RapidHasher;
use stdx::key_slot;

static HASH_SEED: OnceLock<u64> = OnceLock::new();

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

/// A key by its hash alone: enough to guess where it is, whatever happened to the table since.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// Physical table.
    pub table: u8,
    /// Slot of the key.
    pub slot: u16,
    /// Hash of the key.
    pub hash: u64,
}

impl Hint {
    /// The hint to a key of a physical table.
    #[inline]
    pub fn new(table: u8, key: &Key<'_>) -> Hint {
        Hint { table, slot: key.slot, hash: key.hash }
    }
}

/// The keyed hash of a key.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = RapidHasher::new(*HASH_SEED.get_or_init(random_seed));
    hasher.write(bytes);
    hasher.finish()
}

/// Has keys hashed alike in every run; later than the first look-up it does nothing.
#[cfg(feature = "simulation")]
pub fn fix_hash_seed(seed: u64) {
    HASH_SEED.get_or_init(|| seed);
}

/// A seed from the operating system's randomness, by way of the standard library's hasher keys.
fn random_seed() -> u64 {
    use std::hash::BuildHasher;
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
