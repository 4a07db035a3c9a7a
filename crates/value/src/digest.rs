//! Digests by which two data sets can be told apart, as DEBUG DIGEST defines them: equal keys with
//! equal values give equal digests, in whatever order they are kept.

use std::fmt;
use std::ops::BitXorAssign;

use sha1::{Digest as _, Sha1};

const DIGEST_BYTES: usize = 20;
/// What stands for the type of strings.
const TYPE_STRING: u32 = 0;
/// What stands for an expiry, whatever its time.
const EXPIRES: &[u8] = b"!!expire!!";

/// A digest under way or done. It begins with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// Adds one of several things that have no order.
    pub fn add(&mut self, bytes: &[u8]) {
        *self ^= Digest(Sha1::digest(bytes).into());
    }

    /// Adds the next of several things that have an order.
    pub fn chain(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    /// Adds a string value, and whether its key expires.
    pub fn chain_string(&mut self, value: &[u8], expires: bool) {
        self.chain(&TYPE_STRING.to_be_bytes());
        self.chain(value);
        if expires {
            self.add(EXPIRES);
        }
    }

    /// The digest as bytes, to be added to another.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Joins the sums of two collections that have no order.
impl BitXorAssign for Digest {
    fn bitxor_assign(&mut self, other: Digest) {
        self.0.iter_mut().zip(other.0).for_each(|(byte, other)| *byte ^= other);
    }
}

/// In hexadecimal digits, 40 of them.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
