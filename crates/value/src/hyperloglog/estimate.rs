//! From the values of registers to a cardinality, after Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (arXiv:1702.01284).
//!
//! The order of the operations is Redis's, so that the result is the same to the last bit.

use super::{REGISTERS, RUN_MAX};

/// How many registers have each value. Six bits can say more than a hash ever asks for.
pub(super) struct Histogram([u64; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([0; 64])
    }
}

impl Histogram {
    /// Counts so many registers of a value.
    pub(super) fn add(&mut self, value: u8, registers: usize) {
        self.0[value as usize] += registers as u64;
    }

    /// The estimate.
    pub(super) fn cardinality(&self) -> u64 {
        /// 0.5 / ln 2.
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let registers = REGISTERS as f64;
        let full = self.0[RUN_MAX as usize] as f64;
        let mut sum = registers * tau((registers - full) / registers);
        for &count in self.0[1..RUN_MAX as usize].iter().rev() {
            sum += count as f64;
            sum *= 0.5;
        }
        sum += registers * sigma(self.0[0] as f64 / registers);
        let estimate = ALPHA * registers * registers / sum;
        // All registers beyond what hashes ask for: they were not made by adding elements.
        if estimate.is_infinite() { 1 << 63 } else { estimate.round() as u64 }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}
