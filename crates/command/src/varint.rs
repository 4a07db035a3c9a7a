//! Numbers of as many bytes as they need: seven bits a byte, the lowest first; the highest bit of each byte but the last
//! is set (LEB128, as DWARF has it).

/// Bytes of the largest number.
const BYTES_MAX: usize = u64::BITS.div_ceil(7) as usize;

/// Bytes that are no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadVarint {
    /// It has more than 64 bits.
    TooLarge,
    /// The bytes end before it does.
    Unended,
}

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the number that bytes begin with, and how many of them it takes.
pub(crate) fn read(bytes: &[u8]) -> Result<(u64, usize), BadVarint> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate() {
        let bits = u64::from(byte & 0x7F);
        let shift = 7 * index as u32;
        if index >= BYTES_MAX || bits << shift >> shift != bits {
            return Err(BadVarint::TooLarge);
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(BadVarint::Unended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_as_many_bytes_as_they_need() {
        for (value, len) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), len, "{value}");
            assert_eq!(read(&[&bytes[..], b"more"].concat()), Ok((value, len)));
            assert_eq!(read(&bytes[..len - 1]), Err(BadVarint::Unended));
        }
    }

    #[test]
    fn more_than_64_bits_are_refused() {
        let mut bytes = [0xFF; 10];
        bytes[9] = 2;
        assert_eq!(read(&bytes), Err(BadVarint::TooLarge));
        assert_eq!(read(&[0x80; 11]), Err(BadVarint::TooLarge));
    }
}
