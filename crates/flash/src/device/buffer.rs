//! The memory that devices read into and write from.
//!
//! Owns: `AlignedBuffer`, page-aligned heap memory, and `ReadPool`, one arena of them cut into
//! slots.
//!
//! Invariants:
//! 1. A buffer is owned by exactly one of: the log, the device (while an operation is in flight),
//!    the tier (as part of a fetched record). So the kernel never writes to memory that anybody
//!    else can see.
//! 2. A slot returns to its pool when its `IoBuffer` is dropped; the arena lives as long as any
//!    slot of it.
//!
//! The pool is a slab allocator: the arena is cut into chunks of 64 KiB, a chunk is cut into slots
//! of one size class when the first is needed, and goes back when its last slot is freed. Bit masks
//! find a free slot in a few instructions. One arena, and not a buffer for each read, because one
//! registration with the ring then covers all: the kernel need not look up and pin the pages of
//! each read.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

#[cfg(target_arch = "x86_64")]
use stdx::prefetch::CACHE_LINE_BYTES;

use crate::limits::{READ_HEAP_BYTES_MAX, READ_POOL_BYTES};

/// Alignment of all I/O memory: a page, which satisfies every drive and filesystem.
pub(crate) const MEMORY_ALIGN: usize = 4096;

/// Bytes that `expect_write` asks for at most; the CPU itself follows a longer copy.
#[cfg(target_arch = "x86_64")]
const EXPECTED_WRITE_MAX: usize = 16 * CACHE_LINE_BYTES;

/// Page-aligned, zeroed heap memory of a fixed size.
pub(crate) struct AlignedBuffer {
    memory: NonNull<u8>,
    size: usize,
}

// SAFETY: the buffer owns its memory as a `Box<[u8]>` does; there is no interior mutability.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    pub(crate) fn new(size: usize) -> Self {
        assert!(size > 0);
        let layout = Self::layout(size);
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, size }
    }

    /// Asks for the cache lines that will be written next, some bytes from `start` on: a write that
    /// has to wait for its line holds up the checksum, which reads what was written, and the next
    /// atomic. Beyond the end is allowed.
    #[inline]
    pub(crate) fn expect_write(&self, start: usize, len: usize) {
        #[cfg(target_arch = "x86_64")]
        for offset in (start..start + len.min(EXPECTED_WRITE_MAX)).step_by(CACHE_LINE_BYTES) {
            use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let line = self.memory.as_ptr().wrapping_add(offset).cast::<i8>();
            // SAFETY: a prefetch never faults and has no effect that a program can observe.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(line) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, len);
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, MEMORY_ALIGN).expect("invariant: buffer sizes are bounded")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.size)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `size` initialised bytes are owned by this buffer.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.size) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.size) }
    }
}

const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS: usize = READ_POOL_BYTES / CHUNK_BYTES;
const _: () = assert!(CHUNKS <= 64);

/// Slot sizes. A record of a 4 KiB value covers up to 10 sectors of 512 bytes, hence 5 KiB and its
/// multiples.
const CLASSES: [usize; 6] = [1 << 10, 2 << 10, 5 << 10, 10 << 10, 21 << 10, 64 << 10];

/// Where read buffers come from. Cloning it is cheap and gives the same pool.
#[derive(Clone)]
pub(crate) struct ReadPool(Rc<PoolInner>);

struct PoolInner {
    arena: RefCell<AlignedBuffer>,
    slabs: RefCell<Slabs>,
    heap_bytes: Cell<usize>,
    heap_bytes_max: usize,
}

/// Which slots are free, as bit masks.
struct Slabs {
    chunks_free: u64,
    /// For each class, the chunks of it that have a free slot.
    chunks_partial: [u64; CLASSES.len()],
    /// For each chunk, its free slots.
    slots_free: [u64; CHUNKS],
}

impl ReadPool {
    pub(crate) fn new() -> Self {
        Self::bounded(CHUNKS, READ_HEAP_BYTES_MAX)
    }

    /// A pool of so many chunks, and so many bytes beside it. Bounds: 1 to `CHUNKS` chunks.
    pub(crate) fn bounded(chunks: usize, heap_bytes_max: usize) -> Self {
        assert!((1..=CHUNKS).contains(&chunks));
        let slabs = Slabs {
            chunks_free: low_bits(chunks),
            chunks_partial: [0; CLASSES.len()],
            slots_free: [0; CHUNKS],
        };
        Self(Rc::new(PoolInner {
            arena: RefCell::new(AlignedBuffer::new(READ_POOL_BYTES)),
            slabs: RefCell::new(slabs),
            heap_bytes: Cell::new(0),
            heap_bytes_max,
        }))
    }

    /// The whole arena, for registration with a ring.
    pub(crate) fn arena_address(&self) -> (*mut u8, usize) {
        let arena = self.0.arena.borrow();
        (arena.memory.as_ptr(), arena.size)
    }

    /// RAM held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        READ_POOL_BYTES + self.0.heap_bytes.get()
    }

    /// A buffer of at least `size` bytes; `None` when the bounds are reached.
    pub(crate) fn take(&self, size: usize) -> Option<IoBuffer> {
        if let Some(buffer) = self.take_slot(size) {
            return Some(buffer);
        }
        let heap_bytes = self.0.heap_bytes.get();
        let has_room = heap_bytes == 0 || heap_bytes + size <= self.0.heap_bytes_max;
        has_room.then(|| self.take_heap(size))
    }

    /// The same of the arena alone.
    pub(crate) fn take_slot(&self, size: usize) -> Option<IoBuffer> {
        let class = CLASSES.iter().position(|&class_bytes| class_bytes >= size)?;
        let slot = self.0.slabs.borrow_mut().take(class)?;
        Some(IoBuffer { pool: self.0.clone(), memory: Memory::Slot(slot), size })
    }

    /// A buffer of at least `size` bytes, whatever the bounds: for a caller who waits and takes one
    /// at a time.
    pub(crate) fn take_beyond(&self, size: usize) -> IoBuffer {
        self.take(size).unwrap_or_else(|| self.take_heap(size))
    }

    /// A buffer of `size` bytes that is not the pool's: who takes it bounds and counts it.
    pub(crate) fn take_apart(&self, size: usize) -> IoBuffer {
        let memory = Memory::Apart(AlignedBuffer::new(size));
        IoBuffer { pool: self.0.clone(), memory, size }
    }

    fn take_heap(&self, size: usize) -> IoBuffer {
        self.0.heap_bytes.set(self.0.heap_bytes.get() + size);
        let memory = Memory::Heap(AlignedBuffer::new(size));
        IoBuffer { pool: self.0.clone(), memory, size }
    }
}

#[derive(Copy, Clone)]
struct Slot {
    class: u8,
    chunk: u8,
    index: u8,
}

impl Slot {
    fn offset(self) -> usize {
        usize::from(self.chunk) * CHUNK_BYTES
            + usize::from(self.index) * CLASSES[usize::from(self.class)]
    }
}

impl Slabs {
    fn take(&mut self, class: usize) -> Option<Slot> {
        if self.chunks_partial[class] == 0 {
            if self.chunks_free == 0 {
                return None;
            }
            let chunk = self.chunks_free.trailing_zeros() as usize;
            self.chunks_free &= !(1 << chunk);
            self.slots_free[chunk] = low_bits(CHUNK_BYTES / CLASSES[class]);
            self.chunks_partial[class] |= 1 << chunk;
        }
        let chunk = self.chunks_partial[class].trailing_zeros() as usize;
        let index = self.slots_free[chunk].trailing_zeros();
        self.slots_free[chunk] &= !(1 << index);
        if self.slots_free[chunk] == 0 {
            self.chunks_partial[class] &= !(1 << chunk);
        }
        Some(Slot { class: class as u8, chunk: chunk as u8, index: index as u8 })
    }

    fn give(&mut self, slot: Slot) {
        let (class, chunk) = (usize::from(slot.class), usize::from(slot.chunk));
        assert_eq!(self.slots_free[chunk] & 1 << slot.index, 0);
        self.slots_free[chunk] |= 1 << slot.index;
        self.chunks_partial[class] |= 1 << chunk;
        if self.slots_free[chunk] == low_bits(CHUNK_BYTES / CLASSES[class]) {
            self.chunks_partial[class] &= !(1 << chunk);
            self.chunks_free |= 1 << chunk;
        }
    }
}

fn low_bits(count: usize) -> u64 {
    u64::MAX >> (64 - count)
}

/// Memory for one read. Returns to its pool when dropped.
pub(crate) struct IoBuffer {
    pool: Rc<PoolInner>,
    memory: Memory,
    size: usize,
}

enum Memory {
    Slot(Slot),
    Heap(AlignedBuffer),
    /// As `Heap`, but bounded and counted by whoever took it.
    Apart(AlignedBuffer),
}

impl IoBuffer {
    /// The address to hand to the kernel, and whether it lies in the arena.
    pub(crate) fn address(&mut self) -> (*mut u8, bool) {
        match &mut self.memory {
            // SAFETY: a slot lies within the arena.
            Memory::Slot(slot) => unsafe {
                (self.pool.arena.borrow().memory.as_ptr().add(slot.offset()), true)
            },
            Memory::Heap(buffer) | Memory::Apart(buffer) => (buffer.memory.as_ptr(), false),
        }
    }

    /// The bytes that were asked for.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: the slot is initialised memory within the arena, and it is this buffer's
            // alone until the buffer is dropped (invariant 1).
            Memory::Slot(slot) => unsafe {
                let start = self.pool.arena.borrow().memory.as_ptr().add(slot.offset());
                std::slice::from_raw_parts(start, self.size)
            },
            Memory::Heap(buffer) | Memory::Apart(buffer) => &buffer[..self.size],
        }
    }

    /// The bytes that were asked for, to be filled in.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let size = self.size;
        let (start, _) = self.address();
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, size) }
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        match self.memory {
            Memory::Slot(slot) => self.pool.slabs.borrow_mut().give(slot),
            Memory::Heap(_) => {
                self.pool.heap_bytes.set(self.pool.heap_bytes.get() - self.size);
            }
            Memory::Apart(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_hold_and_everything_comes_back() {
        let pool = ReadPool::new();
        let mut taken = Vec::new();
        while let Some(buffer) = pool.take(4608) {
            taken.push(buffer);
        }
        let slots = CHUNKS * (CHUNK_BYTES / (5 << 10));
        assert_eq!(taken.len(), slots + READ_HEAP_BYTES_MAX / 4608);
        taken.clear();
        assert_eq!(pool.bytes(), READ_POOL_BYTES);
        assert_eq!(pool.0.slabs.borrow().chunks_free, low_bits(CHUNKS));
    }

    #[test]
    fn one_buffer_beyond_the_heap_bound_is_always_given() {
        let pool = ReadPool::new();
        let large = pool.take(READ_HEAP_BYTES_MAX * 2).expect("first");
        assert!(pool.take(READ_HEAP_BYTES_MAX).is_none());
        drop(large);
        assert!(pool.take(READ_HEAP_BYTES_MAX).is_some());
    }

    proptest! {
        #[test]
        fn buffers_never_overlap(sizes in prop::collection::vec(1usize..70_000, 1..200)) {
            let pool = ReadPool::new();
            let mut held: Vec<(u8, IoBuffer)> = Vec::new();
            for (step, size) in sizes.into_iter().enumerate() {
                if size % 3 == 0 && !held.is_empty() {
                    held.swap_remove(size % held.len());
                }
                if let Some(mut buffer) = pool.take(size) {
                    buffer.bytes_mut().fill(step as u8);
                    held.push((step as u8, buffer));
                }
            }
            for (fill, buffer) in &held {
                prop_assert!(buffer.bytes().iter().all(|byte| byte == fill));
            }
        }
    }
}
