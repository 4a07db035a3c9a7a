//! Compression of values on their way to flash.
//!
//! LZ4 (block format) for values from a configured length on, kept only where it pays. Data that
//! does not compress is recognised by its neighbours: each failure doubles the number of values
//! that are not even tried, up to a limit.

/// A compressed value must be at least this part smaller: 1/8.
const GAIN_SHIFT: u32 = 3;
const SKIP_MAX: u32 = 256;

/// A worker's compressor with its buffer.
#[derive(Default)]
pub(crate) struct Compressor {
    buffer: Vec<u8>,
    skip: u32,
    skip_next: u32,
}

impl Compressor {
    /// The compressed form of `value`, if there is one worth storing.
    pub(crate) fn compress(&mut self, value: &[u8], bytes_min: u32) -> Option<&[u8]> {
        if value.len() < bytes_min as usize {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.buffer.resize(lz4_flex::block::get_maximum_output_size(value.len()), 0);
        let len = lz4_flex::block::compress_into(value, &mut self.buffer).ok()?;
        if len > value.len() - (value.len() >> GAIN_SHIFT) {
            self.skip_next = (self.skip_next * 2).clamp(1, SKIP_MAX);
            self.skip = self.skip_next;
            return None;
        }
        self.skip_next = 0;
        Some(&self.buffer[..len])
    }
}

/// Undoes [`Compressor::compress`]. None: the bytes are not what a compressor made of a value of
/// this length.
pub(crate) fn decompress(stored: &[u8], value_len: usize) -> Option<Vec<u8>> {
    let value = lz4_flex::block::decompress(stored, value_len).ok()?;
    (value.len() == value_len).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compresses_comes_back_and_what_does_not_is_left_alone() {
        let mut compressor = Compressor::default();
        let text = b"all keys in RAM, cold values on flash; ".repeat(20);
        let stored = compressor.compress(&text, 64).expect("repetitive text").to_vec();
        assert!(stored.len() < text.len() / 4);
        assert_eq!(decompress(&stored, text.len()).as_deref(), Some(&text[..]));
        assert_eq!(decompress(&stored, text.len() - 1), None);
        assert_eq!(decompress(&stored[1..], text.len()), None);
        assert!(compressor.compress(b"short", 64).is_none());
        let mut seed = 1u64;
        let noise: Vec<u8> = (0..512)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        assert!(compressor.compress(&noise, 64).is_none());
        assert!(compressor.compress(&text, 64).is_none(), "skipped after a failure");
        assert!(compressor.compress(&text, 64).is_some());
    }
}
