//! The workspace's generator of random numbers. It is seeded, so that whatever is drawn can be
//! drawn again.

/// The step of the state: odd, and near 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64 (Steele, Lea and Flood 2014): 64 bits of state, a few instructions a number, and
/// equally distributed over a period of 2^64. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// What [`Random::new`] makes a generator of that goes on where this one is.
    pub fn state(&self) -> u64 {
        self.0
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`. A bound that is no power of two favours some numbers by one part in
    /// 2^64 divided by it. Panics: `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `first` to `last`. Panics: `last` is below `first`.
    #[inline]
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        assert!(first <= last);
        match (last - first).checked_add(1) {
            Some(count) => first + self.below(count),
            None => self.next_u64(),
        }
    }

    /// A number from 0 up to 1, without 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Spreads every bit of `word` over the whole word (the finaliser of SplitMix64).
#[inline]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // The first numbers of Vigna's splitmix64.c from the seed 1234567.
        let mut random = Random::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
        let mut further = Random::new(random.state());
        assert_eq!(further.next_u64(), random.next_u64());
    }

    #[test]
    fn ranges_are_kept_and_reached() {
        let mut random = Random::new(1);
        let mut seen = [false; 6];
        for _ in 0..200 {
            assert!(random.below(3) < 3);
            assert!((0.0..1.0).contains(&random.fraction()));
            seen[random.between(2, 5) as usize] = true;
        }
        assert_eq!(seen, [false, false, true, true, true, true]);
        assert_eq!(random.between(7, 7), 7);
        random.between(0, u64::MAX);
    }

    #[test]
    fn bytes_are_filled_to_the_last() {
        let (mut bytes, mut random) = ([0; 19], Random::new(2));
        random.fill(&mut bytes);
        assert!(bytes.chunks(5).all(|chunk| chunk.iter().any(|byte| *byte != 0)), "{bytes:?}");
    }
}
