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
    fn is_sparse(self, free_shift: u32) -> bool {
        self.free_regions > self.regions >> free_shift
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
    fn find_sparse(&self, blocks: &[*const u8], free_shift: u32, sparse: &mut [bool]) {
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
        for (sparse, found) in sparse.iter_mut().zip(found) {
            *sparse = failed == 0 && found.is_sparse(free_shift);
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
        let mut sparse = vec![false; blocks.len()];
        heap.find_sparse(&addresses, 2, &mut sparse);
        sparse
    }

    fn count(heap: &Jemalloc, blocks: &[Block]) -> usize {
        let parts = blocks.chunks(HEAP_BLOCKS_MAX).map(|blocks| find(heap, blocks));
        parts.flatten().filter(|sparse| *sparse).count()
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
