//! What the process takes from the machine, and what its allocator says about it.

use std::io::{Read, Seek};

use crate::environment::ResidentSource;

/// Reads the resident set of this process. Cost: one read of a small kernel file, about 2 us.
#[derive(Debug)]
pub(crate) struct ResidentSet {
    statm: std::fs::File,
    page_bytes: u64,
}

impl ResidentSet {
    /// Opens the kernel's account. Errors: `/proc` is not mounted.
    pub(crate) fn open() -> std::io::Result<ResidentSet> {
        let statm = std::fs::File::open("/proc/self/statm")?;
        Ok(ResidentSet { statm, page_bytes: rustix::param::page_size() as u64 })
    }
}

impl ResidentSource for ResidentSet {
    fn resident_bytes(&mut self) -> Option<u64> {
        let mut text = [0u8; 128];
        self.statm.rewind().ok()?;
        let len = self.statm.read(&mut text).ok()?;
        let mut fields = std::str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace();
        let pages: u64 = fields.nth(1)?.parse().ok()?;
        Some(pages * self.page_bytes)
    }
}

/// The allocator's own account, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocatorStats {
    /// Handed out to the program, rounding included.
    pub allocated: u64,
    /// In pages that hold at least one allocation.
    pub active: u64,
    /// In pages that the kernel backs with memory.
    pub resident: u64,
    /// For the allocator's own tables.
    pub metadata: u64,
    /// Given back but kept mapped.
    pub retained: u64,
}

impl AllocatorStats {
    /// Reads the account; zeros when the program does not run on jemalloc. Cost: about 20 us.
    pub fn read() -> AllocatorStats {
        use tikv_jemalloc_ctl::{epoch, stats};
        if epoch::advance().is_err() {
            return AllocatorStats::default();
        }
        let bytes = |result: Result<usize, _>| result.map_or(0, |bytes| bytes as u64);
        AllocatorStats {
            allocated: bytes(stats::allocated::read()),
            active: bytes(stats::active::read()),
            resident: bytes(stats::resident::read()),
            metadata: bytes(stats::metadata::read()),
            retained: bytes(stats::retained::read()),
        }
    }

    /// The allocator's report for people to read, about 30 KB: every size class with its pages and how full they are,
    /// of all arenas together. Ends early where no memory is left for the text. Cost: milliseconds.
    pub fn report() -> Vec<u8> {
        use tikv_jemalloc_ctl::stats_print::{Options, stats_print};
        let mut options = Options::default();
        options.skip_per_arena = true;
        let mut text = Vec::new();
        // A vector takes all that is written.
        let _ = stats_print(&mut text, options);
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held by tests that look at what the process takes: no other may take or free much meanwhile.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_touched_allocation_becomes_resident() {
        let _alone = alone();
        let mut resident = ResidentSet::open().expect("/proc");
        // Another test may let go of a simulated drive of the same size meanwhile, but not each time.
        let sees_it = (0..20).any(|_| {
            let before = resident.resident_bytes().expect("statm");
            let block = std::hint::black_box(vec![1u8; 64 << 20]);
            let after = resident.resident_bytes().expect("statm");
            drop(block);
            after >= before + (60 << 20)
        });
        assert!(sees_it);
    }
}
