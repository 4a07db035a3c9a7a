//! What defragmentation asks of jemalloc.
//!
//! jemalloc fills its oldest slabs first, so a copy that is made when nothing is kept aside for this
//! thread lies in an older slab than most of what is sparse.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use keyspace::HEAP_BLOCKS_MAX;
use tikv_jemalloc_sys::{mallctlbymib, mallctlnametomib};

/// Parts of the names below.
const NAME_PARTS: usize = 3;

/// The allocator of the program, as [`crate::allocator::Allocator`] makes it.
pub struct Jemalloc {
    query: [usize; NAME_PARTS],
    flush: [usize; NAME_PARTS],
    purge: [usize; NAME_PARTS],
}

/// What jemalloc tells of the pages around a block.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Utilization {
    free_regions: usize,
    regions: usize,
    bytes: usize,
}

impl Utilization {
    /// See [`keyspace::Heap::find_sparse`].
    fn gain(self, free_shift: u32) -> u32 {
        if self.free_regions <= self.regions >> free_shift {
            return 0;
        }
        let used = self.regions.saturating_sub(self.free_regions).max(1);
        let free_bytes = self.bytes / self.regions * self.free_regions;
        u32::try_from(free_bytes / used).unwrap_or(u32::MAX).max(1)
    }
}

impl Jemalloc {
    /// None: this jemalloc does not know what is asked.
    pub fn new() -> Option<Jemalloc> {
        Some(Jemalloc {
            query: look_up(c"experimental.utilization.batch_query")?,
            flush: look_up(c"thread.tcache.flush")?,
            // 4096 stands for all arenas (jemalloc(3), MALLCTL_ARENAS_ALL).
            purge: look_up(c"arena.4096.purge")?,
        })
    }
}

impl keyspace::Heap for Jemalloc {
    fn find_sparse(&self, blocks: &[*const u8], free_shift: u32, gains: &mut [u32]) {
        let mut found = [Utilization::default(); HEAP_BLOCKS_MAX];
        let found = &mut found[..blocks.len()];
        let mut found_bytes = size_of_val(found);
        // SAFETY: jemalloc reads the array of blocks, all of which it has handed out and which stay
        // allocated meanwhile, and writes a `Utilization` for each.
        let failed = unsafe {
            mallctlbymib(
                self.query.as_ptr(),
                NAME_PARTS,
                found.as_mut_ptr().cast(),
                &mut found_bytes,
                blocks.as_ptr().cast_mut().cast::<c_void>(),
                size_of_val(blocks),
            )
        };
        for (gain, found) in gains.iter_mut().zip(found) {
            *gain = if failed == 0 { found.gain(free_shift) } else { 0 };
        }
    }

    fn flush_thread(&self) {
        call(&self.flush);
    }

    fn purge(&self) {
        call(&self.purge);
    }
}

fn look_up(name: &CStr) -> Option<[usize; NAME_PARTS]> {
    let mut parts = [0; NAME_PARTS];
    let mut len = NAME_PARTS;
    // SAFETY: the name ends in 0; at most `len` parts are written.
    let failed = unsafe { mallctlnametomib(name.as_ptr(), parts.as_mut_ptr(), &mut len) };
    (failed == 0 && len == NAME_PARTS).then_some(parts)
}

/// Calls what takes and gives nothing.
fn call(parts: &[usize; NAME_PARTS]) {
    // SAFETY: nothing is read or written.
    let failed =
        unsafe { mallctlbymib(parts.as_ptr(), NAME_PARTS, null_mut(), null_mut(), null_mut(), 0) };
    debug_assert_eq!(failed, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyspace::Heap;

    type Block = Box<[u8; 1000]>;

    fn find(heap: &Jemalloc, blocks: &[Block]) -> Vec<bool> {
        let addresses: Vec<*const u8> = blocks.iter().map(|block| block.as_ptr()).collect();
        let mut gains = vec![0; blocks.len()];
        heap.find_sparse(&addresses, 2, &mut gains);
        gains.iter().map(|&gain| gain > 0).collect()
    }

    fn count(heap: &Jemalloc, blocks: &[Block]) -> usize {
        let parts = blocks.chunks(HEAP_BLOCKS_MAX).map(|blocks| find(heap, blocks));
        parts.flatten().filter(|sparse| *sparse).count()
    }

    #[test]
    fn a_block_gains_what_is_free_for_each_that_is_not() {
        let slab = |free_regions| Utilization { free_regions, regions: 64, bytes: 4096 };
        assert_eq!([0, 16, 17, 32, 63].map(|free| slab(free).gain(2)), [0, 0, 23, 64, 4032]);
        assert_eq!(Utilization { free_regions: 0, regions: 1, bytes: 16 << 10 }.gain(3), 0);
        assert_eq!(Utilization::default().gain(3), 0);
    }

    #[test]
    fn blocks_that_are_left_alone_lie_in_sparse_pages_until_they_are_moved() {
        let heap = Jemalloc::new().expect("what is asked");
        heap.flush_thread();
        let mut blocks: Vec<Block> = (0..40_000).map(|_| Box::new([1; 1000])).collect();
        heap.flush_thread();
        assert!(count(&heap, &blocks) < 400, "but for the last");
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 4 == 0
        });
        heap.flush_thread();
        assert!(count(&heap, &blocks) > 9_900);
        for _ in 0..3 {
            for blocks in blocks.chunks_mut(HEAP_BLOCKS_MAX) {
                let (mut detached, sparse) = (Vec::new(), find(&heap, blocks));
                for (block, sparse) in blocks.iter_mut().zip(sparse) {
                    if sparse {
                        let copy = block.clone();
                        detached.push(std::mem::replace(block, copy));
                    }
                }
                drop(detached);
                heap.flush_thread();
            }
        }
        assert!(count(&heap, &blocks) < 400, "{}", count(&heap, &blocks));
        heap.purge();
    }
}
