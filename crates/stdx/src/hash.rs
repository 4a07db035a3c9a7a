//! What hashes are keyed with.

use std::hash::BuildHasher;
use std::sync::OnceLock;

use crate::random::Random;

/// Random numbers with which a process keys its hashes: nobody who does not know them can choose bytes whose
/// hashes agree. A seed alone would not do, since there are bytes whose hashes agree with every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSecrets {
    /// What a hash begins with.
    pub seed: u64,
    /// What bytes are mixed with.
    pub secrets: [u64; 7],
}

static SECRETS: OnceLock<HashSecrets> = OnceLock::new();

impl HashSecrets {
    fn draw(mut draw: impl FnMut(u64) -> u64) -> HashSecrets {
        HashSecrets { seed: draw(0), secrets: std::array::from_fn(|index| draw(index as u64 + 1)) }
    }
}

/// Those of this process, which are drawn at the first call. Cost: a load.
#[inline]
pub fn hash_secrets() -> &'static HashSecrets {
    SECRETS.get_or_init(random)
}

/// From the operating system's randomness, by way of the standard library's hasher keys.
#[cold]
fn random() -> HashSecrets {
    let state = std::collections::hash_map::RandomState::new();
    HashSecrets::draw(|index| state.hash_one(index))
}

/// Has this process hash as every other with the same seed; behind the first hash it does nothing.
pub fn fix_hash_seed(seed: u64) {
    let mut random = Random::new(seed);
    SECRETS.get_or_init(|| HashSecrets::draw(|_| random.next_u64()));
}

/// Has this process hash as the one before did whose values it goes on with. False: it hashes otherwise already.
pub fn keep_hash_secrets(secrets: HashSecrets) -> bool {
    *SECRETS.get_or_init(|| secrets) == secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_all_different() {
        let HashSecrets { seed, secrets } = random();
        let mut all = [&[seed][..], &secrets].concat();
        all.sort_unstable();
        assert!(all.is_sorted_by(|one, two| one < two), "{all:?}");
        assert_ne!(random(), random());
        assert_eq!(hash_secrets(), hash_secrets());
        assert!(keep_hash_secrets(*hash_secrets()) && !keep_hash_secrets(random()));
    }
}
