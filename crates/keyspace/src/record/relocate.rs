//! Records and values that move to another allocation, for defragmentation.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::{ADDRESS_BYTES, Record, Stored, layout, value_address};

/// The allocation of what lives on elsewhere; freed when dropped.
pub(crate) struct DetachedBlock {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain owned memory that nothing else names.
unsafe impl Send for DetachedBlock {}

impl Drop for DetachedBlock {
    fn drop(&mut self) {
        // SAFETY: whoever detached the block gave it up, with the layout it was made by.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Record {
    /// Copies the record to another allocation, which owns its value from now on.
    pub(crate) fn relocate(self) -> (Record, DetachedBlock) {
        let (_, size) = self.parse();
        let layout = layout(size);
        // SAFETY: a record is at least two bytes.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: both are allocations of at least `size` bytes, and the new one is nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), start.as_ptr(), size) };
        (Record(start), DetachedBlock { start: self.0, layout })
    }

    /// Copies the value that stands outside the record to another allocation; none: it has no such
    /// value.
    pub(crate) fn relocate_value(&mut self) -> Option<DetachedBlock> {
        let (view, size) = self.parse();
        let old = NonNull::new(self.boxed_value(&view)?.cast())?;
        let (Stored::Hot(bytes) | Stored::Clean(bytes, _)) = view.stored else { return None };
        let layout = Layout::for_value(bytes);
        let copy = value_address(bytes.into());
        self.pen(size - ADDRESS_BYTES, ADDRESS_BYTES).put(&copy.to_le_bytes());
        Some(DetachedBlock { start: old, layout })
    }

    /// Where the record lies, and its value when that stands outside it.
    pub(crate) fn blocks(&self) -> (*const u8, Option<*const u8>) {
        let (view, _) = self.parse();
        (self.0.as_ptr(), self.boxed_value(&view).map(|value| value.cast_const().cast()))
    }
}
