//! Which key comes next.
//!
//! Invariants: every number that is chosen lies in the range; a picker is a function of its seed
//! and of how often it was asked.

use crate::arguments::Pattern;
use crate::zipf::Zipf;
use stdx::Random;

/// Widest range of keys: numbers up to here are exact in the floating point of the distributions.
pub const KEY_COUNT_MAX: u64 = 1 << 53;
/// Rounds of the permutation behind `--key-scatter`.
const SCATTER_ROUNDS: u32 = 4;

/// Numbers of keys, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRange {
    first: u64,
    last: u64,
}

impl KeyRange {
    /// The range from `first` to `last`; none when it is empty or wider than [`KEY_COUNT_MAX`].
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (first <= last && last - first < KEY_COUNT_MAX).then_some(Self { first, last })
    }

    /// How many keys it has, at least 1.
    pub fn count(&self) -> u64 {
        self.last - self.first + 1
    }

    /// The point between both ends.
    pub fn middle(&self) -> f64 {
        self.first as f64 + (self.last - self.first) as f64 / 2.0
    }

    /// Whether `point` lies between the ends.
    pub fn holds(&self, point: f64) -> bool {
        point >= self.first as f64 && point <= self.last as f64
    }

    /// Part `index` of `parts` nearly equal ones that together are the range.
    ///
    /// Panics: when there are fewer keys than parts, or no such part.
    pub fn part(&self, index: u64, parts: u64) -> Self {
        assert!(index < parts);
        assert!(parts <= self.count());
        let edge = |index: u64| {
            let offset = u128::from(self.count()) * u128::from(index) / u128::from(parts);
            self.first + offset as u64
        };
        Self { first: edge(index), last: edge(index + 1) - 1 }
    }
}

/// Parameters of the distributions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyShape {
    /// Centre of the Gaussian, a key number.
    pub median: f64,
    /// Standard deviation of the Gaussian, in keys.
    pub stddev: f64,
    /// Exponent of the Zipf law.
    pub zipf_exponent: f64,
    /// Whether to permute what the random patterns choose.
    pub scatter: bool,
}

/// Chooses the keys of one kind of request on one connection.
#[derive(Debug, Clone)]
pub struct KeyPicker {
    range: KeyRange,
    choice: Choice,
    scatter: Option<Scatter>,
    random: Random,
}

#[derive(Debug, Clone)]
enum Choice {
    Uniform,
    Walk { next: u64 },
    Gaussian { median: f64, stddev: f64, spare: Option<f64> },
    Zipf(Zipf),
}

impl KeyPicker {
    /// A picker over `range`; for [`Pattern::Parallel`] that is the part of this connection.
    pub fn new(pattern: Pattern, range: KeyRange, shape: &KeyShape, seed: u64) -> Self {
        let choice = match pattern {
            Pattern::Random => Choice::Uniform,
            Pattern::Sequential | Pattern::Parallel => Choice::Walk { next: range.first },
            Pattern::Gaussian => {
                Choice::Gaussian { median: shape.median, stddev: shape.stddev, spare: None }
            }
            Pattern::Zipf => Choice::Zipf(Zipf::new(range.count(), shape.zipf_exponent)),
        };
        let walks = matches!(choice, Choice::Walk { .. });
        Self {
            range,
            choice,
            scatter: (shape.scatter && !walks).then(|| Scatter::new(range.count())),
            random: Random::new(seed),
        }
    }

    /// The number of the next key.
    pub fn pick(&mut self) -> u64 {
        let KeyRange { first, last } = self.range;
        let key = match &mut self.choice {
            Choice::Uniform => self.random.between(first, last),
            Choice::Walk { next } => {
                let key = *next;
                *next = if key == last { first } else { key + 1 };
                key
            }
            Choice::Gaussian { median, stddev, spare } => {
                pick_gaussian(&mut self.random, self.range, *median, *stddev, spare)
            }
            Choice::Zipf(zipf) => first + zipf.sample(&mut self.random) - 1,
        };
        debug_assert!((first..=last).contains(&key));
        match &self.scatter {
            Some(scatter) => first + scatter.place(key - first),
            None => key,
        }
    }
}

/// A normally distributed key; what falls outside the range is drawn again.
///
/// Marsaglia's polar method gives two independent numbers at a time: one is kept in `spare`.
fn pick_gaussian(
    random: &mut Random,
    range: KeyRange,
    median: f64,
    stddev: f64,
    spare: &mut Option<f64>,
) -> u64 {
    loop {
        let normal = spare.take().unwrap_or_else(|| {
            loop {
                let x = random.fraction() * 2.0 - 1.0;
                let y = random.fraction() * 2.0 - 1.0;
                let square = x * x + y * y;
                if square > 0.0 && square < 1.0 {
                    let scale = (-2.0 * square.ln() / square).sqrt();
                    *spare = Some(y * scale);
                    return x * scale;
                }
            }
        });
        let key = (median + normal * stddev).round();
        if key >= range.first as f64 && key <= range.last as f64 {
            return (key as u64).clamp(range.first, range.last);
        }
    }
}

/// A fixed permutation of `0..count`: a Feistel network over the next even power of two, walked
/// until it lands inside.
#[derive(Debug, Clone)]
struct Scatter {
    count: u64,
    half_bits: u32,
}

impl Scatter {
    fn new(count: u64) -> Self {
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        Self { count, half_bits: bits.div_ceil(2) }
    }

    fn place(&self, index: u64) -> u64 {
        debug_assert!(index < self.count);
        let mut place = index;
        loop {
            place = self.permute(place);
            if place < self.count {
                return place;
            }
        }
    }

    fn permute(&self, index: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (index >> self.half_bits, index & mask);
        for round in 0..SCATTER_ROUNDS {
            let mixed = (right + u64::from(round) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (left, right) = (right, left ^ ((mixed >> 32) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(range: KeyRange) -> KeyShape {
        KeyShape {
            median: range.middle(),
            stddev: range.count() as f64 / 6.0,
            zipf_exponent: 0.99,
            scatter: false,
        }
    }

    #[test]
    fn parts_cover_the_range_once() {
        for (first, last, parts) in [(0, 9, 3), (5, 5, 1), (1, 12_000_000, 64), (7, 14, 8)] {
            let range = KeyRange::new(first, last).expect("a range");
            let mut next = first;
            for index in 0..parts {
                let part = range.part(index, parts);
                assert_eq!(part.first, next);
                assert!(part.last >= part.first);
                next = part.last + 1;
            }
            assert_eq!(next, last + 1);
        }
    }

    #[test]
    fn every_pattern_stays_in_range_and_repeats_from_its_seed() {
        let patterns = [
            Pattern::Random,
            Pattern::Sequential,
            Pattern::Parallel,
            Pattern::Gaussian,
            Pattern::Zipf,
        ];
        for pattern in patterns {
            for (first, last) in [(0, 0), (10, 11), (100, 355), (1, 5_999_999_999)] {
                let range = KeyRange::new(first, last).expect("a range");
                for scatter in [false, true] {
                    let shape = KeyShape { scatter, ..shape(range) };
                    let mut one = KeyPicker::new(pattern, range, &shape, 3);
                    let mut two = one.clone();
                    for _ in 0..1000 {
                        let key = one.pick();
                        assert!((first..=last).contains(&key), "{pattern:?} {key}");
                        assert_eq!(key, two.pick());
                    }
                }
            }
        }
    }

    #[test]
    fn walks_visit_each_key_and_begin_again() {
        let range = KeyRange::new(3, 5).expect("a range");
        let mut picker = KeyPicker::new(Pattern::Sequential, range, &shape(range), 1);
        let keys: Vec<u64> = (0..7).map(|_| picker.pick()).collect();
        assert_eq!(keys, [3, 4, 5, 3, 4, 5, 3]);
    }

    #[test]
    fn gaussian_has_its_centre_and_its_width() {
        let range = KeyRange::new(0, 59_999).expect("a range");
        let mut picker = KeyPicker::new(Pattern::Gaussian, range, &shape(range), 1);
        let keys: Vec<f64> = (0..100_000).map(|_| picker.pick() as f64).collect();
        let mean = keys.iter().sum::<f64>() / keys.len() as f64;
        let within = keys.iter().filter(|key| (*key - 30_000.0).abs() < 10_000.0).count();
        assert!((mean - 30_000.0).abs() < 150.0, "{mean}");
        // 68.3 % of a normal distribution lie within one deviation; cut at three, 68.5 %.
        assert!((68_000..69_000).contains(&within), "{within}");
    }

    #[test]
    fn scatter_is_a_permutation() {
        for count in [1_u64, 2, 3, 4, 5, 100, 1000, 4096, 10_001] {
            let scatter = Scatter::new(count);
            let mut seen = vec![false; count as usize];
            for index in 0..count {
                let place = scatter.place(index) as usize;
                assert!(!std::mem::replace(&mut seen[place], true), "{count} {index}");
            }
        }
    }

    #[test]
    fn scatter_parts_neighbours() {
        let scatter = Scatter::new(1_000_000);
        let near = (0..1000)
            .filter(|index| scatter.place(*index).abs_diff(scatter.place(index + 1)) < 1000);
        assert!(near.count() < 20);
    }
}
