//! Pages for a buffer before it is filled.

use std::mem::MaybeUninit;

use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 4096;

/// Has the kernel give all pages of a buffer at once, for a third of what it costs to meet them one by
/// one. What it holds stays. Where the kernel cannot do so (before Linux 5.14) nothing happens.
pub(crate) fn prefault(buffer: &mut [MaybeUninit<u8>]) {
    let skipped = buffer.as_ptr().align_offset(PAGE_BYTES);
    let Some(pages) = buffer.get_mut(skipped..) else { return };
    let bytes = pages.len() / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: the pages lie in a buffer that the caller has for itself, and keep what is in them.
    #[expect(unsafe_code)]
    let _may_be_unknown =
        unsafe { madvise(pages.as_mut_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code)]
    fn buffers_of_every_size_keep_what_they_hold() {
        for bytes in [0, 1, PAGE_BYTES - 1, 3 * PAGE_BYTES, 1 << 20] {
            let mut buffer: Vec<MaybeUninit<u8>> =
                (0..bytes).map(|_| MaybeUninit::new(7)).collect();
            for start in [0, 1, 5000] {
                prefault(buffer.get_mut(start..).unwrap_or_default());
            }
            // SAFETY: every byte was written.
            assert!(buffer.iter().all(|byte| unsafe { byte.assume_init() } == 7));
        }
    }
}
