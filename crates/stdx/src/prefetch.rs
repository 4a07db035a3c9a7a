//! Hints to the CPU that memory will be wanted soon: a pipeline's cache misses then overlap.

/// Bytes of a cache line.
pub const CACHE_LINE_BYTES: usize = 64;

/// Asks for the cache line that holds `address`. Any address is allowed, mapped or not.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and has no effect that a program can observe.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the lines of some bytes, so many at most; the CPU itself follows a longer copy.
#[inline]
pub fn prefetch_lines(bytes: &[u8], lines: usize) {
    let in_first = bytes.len().min(bytes.as_ptr().align_offset(CACHE_LINE_BYTES));
    let (first, rest) = bytes.split_at(in_first);
    let first = (in_first > 0).then_some(first);
    for line in first.into_iter().chain(rest.chunks(CACHE_LINE_BYTES)).take(lines) {
        prefetch(line.as_ptr());
    }
}
