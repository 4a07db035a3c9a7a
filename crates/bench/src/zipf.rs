//! Zipf-distributed ranks in constant memory, by rejection-inversion (Hörmann and Derflinger,
//! "Rejection-inversion to generate variates from monotone discrete distributions", 1996).
//!
//! The density x^-s over the reals is integrated and inverted; a candidate is rounded to a rank and
//! kept when it falls under the histogram. About one candidate in ten is thrown away at worst.

use stdx::Random;

/// Draws ranks from 1 to `count`, rank n in proportion to 1 / n^exponent.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// Integral at the left edge of the histogram.
    left: f64,
    /// Integral at the right edge of the histogram.
    right: f64,
    /// A candidate closer to its rank than this is kept without the second test.
    sure: f64,
}

impl Zipf {
    /// Prepares ranks from 1 to `count`.
    ///
    /// Panics: when `count` is 0 or `exponent` not above 0.
    pub fn new(count: u64, exponent: f64) -> Self {
        assert!(count > 0);
        assert!(exponent > 0.0);
        let mut zipf = Self { count: count as f64, exponent, left: 0.0, right: 0.0, sure: 0.0 };
        zipf.left = zipf.integral(1.5) - 1.0;
        zipf.right = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// The next rank.
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.right + random.fraction() * (self.left - self.right);
            let x = self.integral_inverse(area);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Integral of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        power_ratio((1.0 - self.exponent) * log) * log
    }

    fn integral_inverse(&self, area: f64) -> f64 {
        // Rounding can push the argument under the pole at -1.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (log_ratio(scaled) * area).exp()
    }
}

/// (e^x - 1) / x, with its limit at 0: an exponent of 1 makes the integral a logarithm.
fn power_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, with its limit at 0.
fn log_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_follow_the_law() {
        const DRAWS: usize = 400_000;
        for (count, exponent) in [(1, 1.0), (10, 0.5), (100, 0.99), (100, 1.0), (1000, 2.5)] {
            let zipf = Zipf::new(count, exponent);
            let mut random = Random::new(7);
            let mut seen = vec![0_usize; count as usize + 1];
            for _ in 0..DRAWS {
                seen[zipf.sample(&mut random) as usize] += 1;
            }
            assert_eq!(seen[0], 0);
            let norm: f64 = (1..=count).map(|rank| (rank as f64).powf(-exponent)).sum();
            for rank in 1..=count.min(20) {
                let expected = DRAWS as f64 * (rank as f64).powf(-exponent) / norm;
                let deviation = (seen[rank as usize] as f64 - expected).abs();
                assert!(deviation < 5.0 * expected.sqrt() + 5.0, "{count} {exponent} {rank}");
            }
        }
    }

    #[test]
    fn ranks_stay_in_range_at_the_extremes() {
        let mut random = Random::new(8);
        for count in [1, 2, 3, 6_000_000_000] {
            for exponent in [0.01, 0.99, 1.0, 1.000_000_001, 5.0] {
                let zipf = Zipf::new(count, exponent);
                for _ in 0..1000 {
                    assert!((1..=count).contains(&zipf.sample(&mut random)));
                }
            }
        }
    }
}
