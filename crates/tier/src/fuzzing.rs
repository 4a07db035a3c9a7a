//! What the fuzz target `compression` runs: values come back from their compressed form, and bytes that are none are
//! told. Compiled with the feature `fuzzing` only.

use crate::compress::{Compressor, decompress};

/// Bytes that a value of an input may claim.
const CLAIMED_BYTES_MAX: usize = 1 << 20;

/// One input of the fuzzer: a length that is claimed, and bytes that may be compressed; or a value, as pieces that are
/// repeated.
pub fn compression(input: &[u8]) {
    let Some((&[choice, low, middle, high], bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    if choice % 2 == 0 {
        let claimed = u32::from_le_bytes([low, middle, high, 0]) as usize % CLAIMED_BYTES_MAX;
        if let Some(value) = decompress(bytes, claimed) {
            assert_eq!(value.len(), claimed);
        }
        return;
    }
    let mut value = Vec::new();
    for piece in bytes.chunks(usize::from(low % 64) + 1) {
        let times = 1 + usize::from(piece[0]) * usize::from(middle) / 256;
        (0..times).for_each(|_| value.extend_from_slice(piece));
    }
    let mut compressor = Compressor::default();
    if let Some(stored) = compressor.compress(&value, 0) {
        assert!(stored.len() < value.len());
        assert!(decompress(stored, value.len()) == Some(value.clone()));
        // One of another length is not taken for it.
        assert_eq!(decompress(stored, value.len() - 1), None);
        assert_eq!(decompress(stored, value.len() + 1), None);
        assert_eq!(decompress(&stored[..stored.len() - 1], value.len()), None);
    }
}
