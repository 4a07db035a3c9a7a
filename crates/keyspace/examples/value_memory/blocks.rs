//! A block of the allocator a value. Demotion passes a hand over the keys in the order of their
//! hashes; with regions each round takes the values of one region of addresses, so that whole pages
//! come free.

use keyspace::Heap;

use crate::Values;
use crate::heap::Jemalloc;
use crate::index::Index;

/// Regions of addresses that take turns.
pub(crate) const REGIONS: usize = 64;
/// Pieces of 256 KiB take turns to belong to a region.
const REGION_SHIFT: u32 = 18;
/// Resident memory is looked at after growth by this part of the budget.
const LOOK_SHIFT: u32 = 8;
/// Bytes that one slice demotes.
const SLICE_BYTES: usize = 64 << 10;
/// Rounds after which every frequency is 0 and every region had its turn.
const ROUNDS_MAX: usize = 4 * REGIONS;

pub(crate) struct Blocks {
    index: Index,
    values: Vec<Option<Box<[u8]>>>,
    heap: Jemalloc,
    regions: usize,
    hand: usize,
    round: usize,
    unseen: usize,
    due: usize,
    is_full: bool,
}

impl Blocks {
    pub(crate) fn new(index: Index, regions: usize) -> Blocks {
        let values = (0..index.len()).map(|_| None).collect();
        let index = index.begin();
        let heap = Jemalloc::new().expect("the allocator tells how full its pages are");
        Blocks {
            index,
            values,
            heap,
            regions,
            hand: 0,
            round: 0,
            unseen: 0,
            due: 0,
            is_full: false,
        }
    }

    /// Demotes twice what was brought while the budget is resident.
    fn settle(&mut self, grown: usize) {
        self.unseen += grown;
        if self.unseen >= self.index.budget >> LOOK_SHIFT {
            self.unseen = 0;
            self.is_full = self.index.resident() >= self.index.budget;
            if self.is_full {
                self.heap.purge();
                self.is_full = self.index.resident() >= self.index.budget;
            }
        }
        self.due += if self.is_full { 2 * grown } else { 0 };
        if self.due >= SLICE_BYTES {
            let wanted = std::mem::take(&mut self.due);
            self.demote(wanted);
        }
    }

    fn demote(&mut self, wanted: usize) {
        let start = std::time::Instant::now();
        let before = self.index.value_bytes;
        for _ in 0..ROUNDS_MAX * self.values.len() {
            if before - self.index.value_bytes >= wanted {
                break;
            }
            let key = self.hand;
            self.hand = (self.hand + 1) % self.values.len();
            self.round += usize::from(self.hand == 0);
            let Some(value) = &self.values[key] else { continue };
            let region = value.as_ptr() as usize >> REGION_SHIFT;
            if region % self.regions == self.round % self.regions && self.index.age(key) {
                self.index.demote(value);
                self.values[key] = None;
            }
        }
        if self.regions > 1 {
            self.heap.flush_thread();
        }
        self.index.slice_max = self.index.slice_max.max(start.elapsed());
    }
}

impl Values for Blocks {
    fn set(&mut self, key: usize, value: &[u8]) {
        let mut grown = self.index.add(key);
        match &mut self.values[key] {
            Some(old) if old.len() == value.len() => {
                old.copy_from_slice(value);
                self.index.touch(key);
            }
            old => {
                if let Some(old) = old.take() {
                    self.index.count_out(old.len());
                    self.index.touch(key);
                }
                *old = Some(value.into());
                self.index.count_in(value.len());
                grown += value.len();
            }
        }
        self.settle(grown);
    }

    fn get(&mut self, key: usize) -> bool {
        let found = self.values[key].is_some();
        if found {
            self.index.touch(key);
        }
        found
    }

    fn index(&self) -> &Index {
        &self.index
    }
}
