//! Large records that gc runs move: they are in memory from the read to the end of the write, and all workers may collect at
//! once, as when a path is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::GC_LARGE_BYTES_MAX;

/// Bytes of large records that gc runs of all workers move.
#[derive(Clone, Default)]
pub(crate) struct MovingBytes(Arc<AtomicUsize>);

impl MovingBytes {
    /// Lets a record of so many bytes be moved. None: too much is being moved; ask again later.
    pub(crate) fn admit(&self, bytes: usize) -> Option<Moving> {
        let added = |moving: usize| {
            let sum = moving + bytes;
            (moving == 0 || sum <= GC_LARGE_BYTES_MAX).then_some(sum)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).ok()?;
        Some(Moving { bytes, of: self.clone() })
    }
}

/// A large record that is being moved, until this is dropped.
pub(crate) struct Moving {
    pub(crate) bytes: usize,
    of: MovingBytes,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_moved_up_to_the_bound_and_a_larger_one_alone() {
        let all = MovingBytes::default();
        let half = all.admit(GC_LARGE_BYTES_MAX / 2).expect("nothing is moved");
        let rest = all.admit(GC_LARGE_BYTES_MAX / 2).expect("there is room");
        assert!(all.admit(1).is_none(), "beyond the bound");
        drop(half);
        assert!(all.admit(GC_LARGE_BYTES_MAX).is_none(), "another is moved");
        drop(rest);
        let larger = all.admit(2 * GC_LARGE_BYTES_MAX).expect("nothing else is moved");
        assert!(all.admit(1).is_none(), "beside a larger one");
        drop(larger);
        assert!(all.admit(1).is_some());
    }
}
