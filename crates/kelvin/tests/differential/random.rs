//! A seeded generator of random numbers, so that a run can be repeated.

/// The workspace's generator, and what is drawn from it here.
#[derive(Clone, Debug)]
pub struct Random(stdx::Random);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(stdx::Random::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// A number from `first` to `last`.
    pub fn between(&mut self, first: i64, last: i64) -> i64 {
        first + self.below((last - first + 1) as usize) as i64
    }

    /// True `times` of `of` times.
    pub fn chance(&mut self, times: usize, of: usize) -> bool {
        self.below(of) < times
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// An index, the more often the larger its weight.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let total: u32 = weights.clone().sum();
        let mut left = self.below(total as usize) as u32;
        for (index, weight) in weights.enumerate() {
            if left < weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }
}
