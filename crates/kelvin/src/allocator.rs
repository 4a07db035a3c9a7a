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

/// Blocks up to here have the class that `size_class` says.
const CLASSED_BYTES_MAX: usize = 4 << 10;

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

/// Whether a block has room for another size and none too much. jemalloc would say so as well, but has to look up what it
/// noted of the block, which is in no cache (4 % of the time of a ZADD that changes a score).
fn keeps_class(layout: Layout, new_size: usize) -> bool {
    let (size, align) = (layout.size(), layout.align());
    align <= GRANTED_ALIGN
        && size.max(new_size) <= CLASSED_BYTES_MAX
        && size_class(size) == size_class(new_size)
}

// SAFETY: all is jemalloc's; a block is freed and resized by the layout that it was asked for by,
// and it is never smaller than what the caller wanted.
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
        // SAFETY: the block was allocated by the widened layout.
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
        // SAFETY: the block was allocated by the widened layout; the new size is above 0.
        unsafe { Jemalloc.realloc(block, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_allocator() {
        for size in 1..=CLASSED_BYTES_MAX {
            // SAFETY: the size is not 0.
            let class = unsafe { tikv_jemalloc_sys::nallocx(size, 0) };
            assert_eq!(class, size_class(size), "{size}");
        }
    }

    #[test]
    fn a_block_stays_where_it_is_while_its_class_does() {
        let layout = Layout::from_size_align(65, 1).expect("a layout");
        // SAFETY: the size is not 0.
        let block = unsafe { Allocator.alloc(layout) };
        // SAFETY: the block is of the layout of its last size.
        let same = unsafe { Allocator.realloc(block, layout, 80) };
        assert_eq!(same, block);
        let layout = Layout::from_size_align(80, 1).expect("a layout");
        // SAFETY: as above.
        let other = unsafe { Allocator.realloc(block, layout, 81) };
        assert_ne!(other, block, "a block of 80 bytes has no room for 81");
        let layout = Layout::from_size_align(81, 1).expect("a layout");
        // SAFETY: as above, and it is not used afterwards.
        unsafe { Allocator.dealloc(other, layout) };
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
