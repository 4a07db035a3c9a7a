//! The checksum of payloads and files: CRC-64 with the polynomial 0xad93d23594c935a9, bits reflected, beginning
//! with 0 and not inverted (the catalogue of CRCs calls it CRC-64/REDIS).

use crc_fast::{CrcAlgorithm, Digest};

/// A checksum of bytes that come piece by piece.
#[derive(Clone, Debug)]
pub struct Checksum(Digest);

impl Default for Checksum {
    fn default() -> Checksum {
        Checksum(Digest::new(CrcAlgorithm::Crc64Redis))
    }
}

impl Checksum {
    /// That of bytes at hand.
    pub fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(CrcAlgorithm::Crc64Redis, bytes)
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// That of all bytes so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_redis() {
        assert_eq!(Checksum::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(Checksum::of(b""), 0);
        let mut pieces = Checksum::default();
        b"123456789".chunks(4).for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.value(), 0xe9c6_d914_c4b8_d9ca);
    }
}
