//! jemalloc with size classes 8 bytes apart, made safe for types aligned to 16 bytes.
//!
//! The binding to jemalloc asks for no alignment when 16 bytes are enough: with the usual classes,
//! 16 bytes apart, every block of 16 bytes and more has it. With ours (`.cargo/config.toml`) blocks
//! of 24, 40 or 56 bytes do not, and hash tables read their control bytes 16 at a time. So a layout
//! aligned to 16 is rounded up to a multiple of 16 bytes: blocks of those classes lie at multiples
//! of their size from the start of a page.

use std::alloc::{GlobalAlloc, Layout};

use stdx::size_class;
use tikv_jemallocator::Jemalloc;

/// The alignment that the binding takes for granted.
const GRANTED_ALIGN: usize = 16;

/// Blocks up to here stay without a question to jemalloc. It copies larger ones for longer than it looks them up.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// The allocator of the program.
pub struct Allocator;

/// The layout to ask jemalloc for in place of `layout`; the same for the same.
fn widen(layout: Layout) -> Layout {
    if layout.align() != GRANTED_ALIGN {
        return layout;
    }
    // Too large to round is too large to allocate: jemalloc will refuse it.
    layout
        .size()
        .checked_next_multiple_of(GRANTED_ALIGN)
        .map_or(layout, |size| Layout::from_size_align(size, GRANTED_ALIGN).unwrap_or(layout))
}

/// Whether both sizes are of one class, so that the block may stay where it is. jemalloc finds that out from its own
/// notes of the block, which are rarely cached: 3.8 % of the time of a ZADD that changes a score, 1.0 % with this.
fn keeps_class(layout: Layout, new_size: usize) -> bool {
    let (size, align) = (layout.size(), layout.align());
    align <= GRANTED_ALIGN
        && size.max(new_size) <= KEPT_BYTES_MAX
        && size_class(size) == size_class(new_size)
}

// SAFETY: all is jemalloc's. A block is freed and resized by a layout of the class that it was allocated in, and is
// never smaller than what the caller wanted. The manual of `sdallocx` asks for the size first requested or more; where
// a block shrinks within its class it is less. jemalloc 5.3 takes the class alone from it, unless it profiles the heap,
// which it is not built to do.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's; a size above 0 stays above 0.
        unsafe { Jemalloc.alloc(widen(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { Jemalloc.alloc_zeroed(widen(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is of the class of the widened layout.
        unsafe { Jemalloc.dealloc(block, widen(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let new_size = match Layout::from_size_align(new_size, layout.align()) {
            Ok(new) => widen(new).size(),
            Err(_) => new_size,
        };
        let layout = widen(layout);
        if keeps_class(layout, new_size) {
            return block;
        }
        // SAFETY: the block is of the class of the widened layout; the new size is above 0.
        unsafe { Jemalloc.realloc(block, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_allocator() {
        for size in 1..=KEPT_BYTES_MAX {
            // SAFETY: the size is not 0.
            let class = unsafe { tikv_jemalloc_sys::nallocx(size, 0) };
            assert_eq!(class, size_class(size), "{size}");
        }
    }

    #[test]
    fn blocks_stay_within_their_class_and_have_room() {
        let around = [8, 16, 64, 80, 96, 128, 1024, 3584, 4096, 5120];
        let sizes = || around.iter().flat_map(|&class| [class - 7, class - 1, class, class + 1]);
        for align in [1, 8, 16, 32] {
            for (old, new) in sizes().flat_map(|old| sizes().map(move |new| (old, new))) {
                resize(align, old, new);
            }
        }
    }

    /// A block of one size is made one of another, and freed.
    fn resize(align: usize, old: usize, new: usize) {
        let layout = |size| Layout::from_size_align(size, align).expect("a layout");
        let (widened, new_widened) = (widen(layout(old)), widen(layout(new)).size());
        let is_of_class = size_class(widened.size()) == size_class(new_widened);
        let is_small = old.max(new) <= KEPT_BYTES_MAX && align <= GRANTED_ALIGN;
        let stays = keeps_class(widened, new_widened);
        assert_eq!(stays, is_of_class && is_small, "{old} to {new}, {align}");
        let kept = old.min(new);
        // SAFETY: no size is 0, the block is of the layout of its last size, bytes are written and read within both
        // sizes, and it is not used after it was freed.
        unsafe {
            let block = Allocator.alloc(layout(old));
            block.write_bytes(0xA5, old);
            let resized = Allocator.realloc(block, layout(old), new);
            assert!(!stays || resized == block, "{old} to {new}, {align}");
            assert!(tikv_jemalloc_sys::sallocx(resized.cast(), 0) >= new);
            assert!(std::slice::from_raw_parts(resized, kept).iter().all(|&byte| byte == 0xA5));
            Allocator.dealloc(resized, layout(new));
        }
    }

    #[test]
    fn every_size_has_its_alignment() {
        for align in [1, 8, 16, 32, 64, 4096] {
            for size in 1..600 {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // Several at a time: the first block of a page is aligned whatever its class.
                let blocks: Vec<*mut u8> = (0..5)
                    .map(|_| {
                        // SAFETY: the size is not 0.
                        let block = unsafe { Allocator.alloc(layout) };
                        assert_eq!(block as usize % align, 0, "{layout:?}");
                        // SAFETY: the block is of this layout and is not used otherwise.
                        let block = unsafe { Allocator.realloc(block, layout, size + 40) };
                        assert_eq!(block as usize % align, 0, "{layout:?}");
                        block
                    })
                    .collect();
                let grown = Layout::from_size_align(size + 40, align).expect("a layout");
                for block in blocks {
                    // SAFETY: the block is of this layout and is not used afterwards.
                    unsafe { Allocator.dealloc(block, grown) };
                }
            }
        }
    }
}
