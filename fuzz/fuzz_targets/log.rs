//! An append-only log of several files, as `kelvin import` reads it: anything in its manifest, its base and what was
//! added since is sent as well-formed requests, or told in a line, in memory that goes with the bytes of the files.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;

/// Memory for an input besides what goes with its bytes: buffers, and a piece of a value.
const MEMORY_BYTES_MAX: usize = 4 << 20;
/// Memory for each byte of it. LZF packs 88 bytes into one; they are unpacked, kept, and written.
const BYTES_OF_BYTE_MAX: usize = 88 * 8;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(allocated, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(bytes, layout) }
    }
}

fuzz_target!(|input: &[u8]| {
    let before = ALLOCATED.load(Relaxed);
    PEAK.store(before, Relaxed);
    import::fuzzing::log(input);
    let taken = PEAK.load(Relaxed) - before;
    assert!(taken <= MEMORY_BYTES_MAX + BYTES_OF_BYTE_MAX * input.len(), "{taken} bytes");
});
