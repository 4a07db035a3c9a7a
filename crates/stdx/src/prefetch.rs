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
    if bytes.is_empty() {
        return;
    }
    let in_front = bytes.as_ptr().addr() % CACHE_LINE_BYTES;
    let count = (in_front + bytes.len()).div_ceil(CACHE_LINE_BYTES).min(lines);
    let first = bytes.as_ptr().wrapping_sub(in_front);
    for line in 0..count {
        prefetch(first.wrapping_add(line * CACHE_LINE_BYTES));
    }
}
