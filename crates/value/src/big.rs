//! Natural numbers of any size, for numbers whose exact value has thousands of digits before it
//! is rounded to 64 bits.
//!
//! Only what that takes: no general division, since a quotient of interest has at most 128 bits.
//!
//! Invariant: the most significant limb is not zero; zero has no limbs.

use std::cmp::Ordering;

/// Bits of a limb.
const LIMB_BITS: u32 = u64::BITS;

/// The largest power of ten in a limb.
const LIMB_TEN: u64 = 10_000_000_000_000_000_000;

/// The exponent of `LIMB_TEN`.
const LIMB_TEN_DIGITS: usize = 19;

/// A natural number, least significant limb first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Natural {
    limbs: Vec<u64>,
}

impl Natural {
    /// A number of up to 128 bits.
    pub(crate) fn new(number: u128) -> Self {
        let mut natural = Self { limbs: vec![number as u64, (number >> LIMB_BITS) as u64] };
        natural.trim();
        natural
    }

    /// Reads decimal digits. Cost: quadratic in their number.
    pub(crate) fn from_digits(digits: impl Iterator<Item = u8>) -> Self {
        let mut number = Self { limbs: Vec::new() };
        let (mut chunk, mut scale) = (0, 1);
        for digit in digits {
            chunk = chunk * 10 + u64::from(digit - b'0');
            scale *= 10;
            if scale == LIMB_TEN {
                number.multiply_add(scale, chunk);
                (chunk, scale) = (0, 1);
            }
        }
        number.multiply_add(scale, chunk);
        number
    }

    /// Multiplies by `10^exponent`.
    pub(crate) fn multiply_power_of_ten(&mut self, exponent: usize) {
        for _ in 0..exponent / LIMB_TEN_DIGITS {
            self.multiply_add(LIMB_TEN, 0);
        }
        self.multiply_add(10u64.pow((exponent % LIMB_TEN_DIGITS) as u32), 0);
    }

    /// How many bits it has; zero has none.
    pub(crate) fn bits(&self) -> usize {
        match self.limbs.last() {
            None => 0,
            Some(high) => self.limbs.len() * LIMB_BITS as usize - high.leading_zeros() as usize,
        }
    }

    /// `self * 2^count`.
    pub(crate) fn shifted_left(&self, count: usize) -> Self {
        let (whole, part) = (count / LIMB_BITS as usize, count as u32 % LIMB_BITS);
        let mut limbs = vec![0; whole];
        let mut carry = 0;
        for limb in &self.limbs {
            let wide = u128::from(*limb) << part;
            limbs.push(wide as u64 | carry);
            carry = (wide >> LIMB_BITS) as u64;
        }
        limbs.push(carry);
        let mut shifted = Self { limbs };
        shifted.trim();
        shifted
    }

    /// The 128 highest bits, how many bits are below them, and whether any of those is one. A
    /// number of fewer bits comes as it is.
    pub(crate) fn high_bits(&self) -> (u128, usize, bool) {
        let below = self.bits().saturating_sub(u128::BITS as usize);
        let (whole, part) = (below / LIMB_BITS as usize, below as u32 % LIMB_BITS);
        let limb = |index: usize| u128::from(self.limbs.get(whole + index).copied().unwrap_or(0));
        let mut high = (limb(0) | limb(1) << LIMB_BITS) >> part;
        if part > 0 {
            high |= limb(2) << (2 * LIMB_BITS - part);
        }
        let lost = self.limbs[..whole].iter().any(|limb| *limb != 0)
            || (limb(0) as u64) & ((1u64 << part) - 1) != 0;
        (high, below, lost)
    }

    /// Divides by a number that is not zero, one bit of the quotient after the other. Returns the
    /// quotient, which must fit, and whether there is a remainder.
    pub(crate) fn divide(&self, divisor: &Self) -> (u128, bool) {
        assert!(divisor.bits() > 0);
        let mut quotient = 0u128;
        let mut rest = self.clone();
        let excess = self.bits().saturating_sub(divisor.bits());
        assert!(excess < u128::BITS as usize);
        for shift in (0..=excess).rev() {
            let shifted = divisor.shifted_left(shift);
            quotient <<= 1;
            if rest.compare(&shifted) != Ordering::Less {
                rest.subtract(&shifted);
                quotient |= 1;
            }
        }
        (quotient, rest.bits() > 0)
    }

    /// Decimal digits, none for zero.
    pub(crate) fn to_digits(&self) -> String {
        let mut number = self.clone();
        let mut chunks = Vec::new();
        while number.bits() > 0 {
            chunks.push(number.divide_small(LIMB_TEN));
        }
        let mut digits = String::new();
        if let Some((first, rest)) = chunks.split_last() {
            digits.push_str(&first.to_string());
            rest.iter().rev().for_each(|chunk| digits.push_str(&format!("{chunk:019}")));
        }
        digits
    }

    fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = u128::from(summand);
        for limb in &mut self.limbs {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = carry as u64;
            carry >>= LIMB_BITS;
        }
        self.limbs.push(carry as u64);
        self.trim();
    }

    fn divide_small(&mut self, divisor: u64) -> u64 {
        let mut rest = 0u128;
        for limb in self.limbs.iter_mut().rev() {
            rest = rest << LIMB_BITS | u128::from(*limb);
            *limb = (rest / u128::from(divisor)) as u64;
            rest %= u128::from(divisor);
        }
        self.trim();
        rest as u64
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (index, limb) in self.limbs.iter_mut().enumerate() {
            let subtrahend = other.limbs.get(index).copied().unwrap_or(0);
            let (once, first) = limb.overflowing_sub(subtrahend);
            let (twice, second) = once.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (twice, first || second);
        }
        assert!(!borrow);
        self.trim();
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn natural(digits: &str) -> Natural {
        Natural::from_digits(digits.bytes())
    }

    #[test]
    fn digits_read_back() {
        for digits in
            ["", "1", "9999999999999999999", "10000000000000000000", &"1234567890".repeat(30)]
        {
            assert_eq!(natural(digits).to_digits(), digits);
        }
        assert_eq!(natural("000").to_digits(), "");
        let mut number = natural("12");
        number.multiply_power_of_ten(40);
        assert_eq!(number.to_digits(), "12".to_owned() + &"0".repeat(40));
    }

    #[test]
    fn high_bits_tell_what_is_lost() {
        let number = Natural::new(u128::MAX).shifted_left(70);
        assert_eq!(number.high_bits(), (u128::MAX, 70, false));
        let mut number = number;
        number.multiply_add(1, 1);
        assert_eq!(number.high_bits(), (u128::MAX, 70, true));
        assert_eq!(Natural::new(5).high_bits(), (5, 0, false));
        assert_eq!(Natural::new(1).shifted_left(64).high_bits(), (1 << 64, 0, false));
    }

    proptest! {
        #[test]
        fn agrees_with_machine_integers(left: u128, right in 1u128.., shift in 0usize..200) {
            let (quotient, inexact) = Natural::new(left).divide(&Natural::new(right));
            prop_assert_eq!(quotient, left / right);
            prop_assert_eq!(inexact, left % right != 0);
            let (wide, exact) = (Natural::new(left).shifted_left(shift), Natural::new(right).shifted_left(shift));
            prop_assert_eq!(wide.divide(&exact), (quotient, inexact));
            prop_assert_eq!(natural(&left.to_string()), Natural::new(left));
            let (high, below, lost) = wide.high_bits();
            prop_assert!(!lost);
            prop_assert_eq!(Natural::new(high).shifted_left(below), wide);
        }
    }
}
