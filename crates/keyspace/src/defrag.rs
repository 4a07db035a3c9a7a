//! Defragmentation: records, values and the arrays of tables leave pages that are sparsely used, so that
//! those go back to the machine.
//!
//! Values are demoted in no order of address, so what they leave behind is a hole here and there:
//! room for other values of their size, and for nothing else. Arrays grow from size class to size class,
//! and leave holes that nobody asks for when all are larger. The blocks that were moved from are
//! freed later ([`DetachedBlocks`]): a block that is free again at once is the first that the
//! allocator would hand out. A pass moves the blocks of one [`Region`].

use crate::entry::Entry;
use crate::record::{DetachedBlock, Record};
use crate::region::Region;
use crate::segment::Segment;
use crate::slot::{SlotState, TABLE_COUNT};
use crate::table::{Position, Table};
use smallvec::SmallVec;
use stdx::prefetch::prefetch;

/// Blocks that are asked about together, so that cache misses overlap.
pub const HEAP_BLOCKS_MAX: usize = 64;

/// What defragmentation asks of the allocator.
pub trait Heap: Send + Sync {
    /// Sets `gains[i]` where `blocks[i]` lies in pages of which more than a `2^free_shift`th is
    /// free: what is free there for each block that is not, in bytes. Else 0. At most [`HEAP_BLOCKS_MAX`], all allocated
    /// and the caller's.
    fn find_sparse(&self, blocks: &[*const u8], free_shift: u32, gains: &mut [u32]);

    /// Takes back what this thread keeps for its next allocations, which may lie in sparse pages.
    fn flush_thread(&self);

    /// Gives pages in which nothing is allocated back to the machine at once.
    fn purge(&self);
}

/// What defragmentation looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Values in RAM, which leave holes as they are demoted. A cold key costs next to nothing.
    #[default]
    Values,
    /// Records too, which leave holes as keys are deleted or change their size.
    All,
    /// The arrays of entries alone, of which there are few.
    Arrays,
}

/// How to go about it.
#[derive(Clone, Copy)]
pub struct Defrag<'a> {
    /// The allocator.
    pub heap: &'a dyn Heap,
    /// What to look at.
    pub scope: Scope,
    /// Where to look.
    pub region: Region,
    /// What moves: see [`Heap::find_sparse`].
    pub free_shift: u32,
}

/// What moves left behind, still allocated.
#[derive(Default)]
pub struct DetachedBlocks {
    blocks: Vec<DetachedBlock>,
    arrays: Vec<Box<[Entry]>>,
}

impl DetachedBlocks {
    /// Frees all of it.
    pub fn free(&mut self) {
        self.blocks.clear();
        self.arrays.clear();
    }
}

/// A segment of a slot's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentPosition {
    table: u8,
    segment: u32,
}

/// What a slice of defragmentation did.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragged {
    /// Keys looked at. An array that moves counts for an eighth of its places, which is what it takes to copy them.
    pub visited: u64,
    /// Records, values and arrays of the region that the allocator was asked about.
    pub asked: u64,
    /// Those of them that moved.
    pub moved: u64,
    /// What comes free by that once all of their pages are empty, in bytes.
    pub gained_bytes: u64,
}

impl std::ops::Add for Defragged {
    type Output = Defragged;

    fn add(self, other: Defragged) -> Defragged {
        Defragged {
            visited: self.visited + other.visited,
            asked: self.asked + other.asked,
            moved: self.moved + other.moved,
            gained_bytes: self.gained_bytes + other.gained_bytes,
        }
    }
}

/// Blocks of some entries, and whose they are.
#[derive(Default)]
struct Blocks {
    addresses: SmallVec<[*const u8; HEAP_BLOCKS_MAX]>,
    owners: SmallVec<[(Position, bool); HEAP_BLOCKS_MAX]>,
}

impl Blocks {
    fn add(&mut self, at: Position, record: &Record, how: Defrag<'_>) {
        let (record, value) = record.blocks();
        if how.scope == Scope::All || value.is_none() {
            self.push(record, at, false, how.region);
        }
        if let Some(value) = value {
            self.push(value, at, true, how.region);
        }
    }

    fn push(&mut self, address: *const u8, at: Position, is_value: bool, region: Region) {
        if region.holds(address.addr() as u64) {
            self.addresses.push(address);
            self.owners.push((at, is_value));
        }
    }
}

impl SlotState {
    /// Moves what lies in sparse pages elsewhere, in one segment of one table; `from` goes on to the
    /// next, and is the default again at the end of the slot. Cost: bounded by the size of a
    /// segment; two cache misses a block that is looked at, four one that moves, and for an array its copy.
    pub fn defrag(
        &mut self,
        from: &mut SegmentPosition,
        how: Defrag<'_>,
        detached: &mut DetachedBlocks,
    ) -> Defragged {
        let mut done = Defragged::default();
        while (from.table as usize) < TABLE_COUNT {
            let SegmentPosition { table, segment } = *from;
            if self.table(table).is_some_and(|entries| segment < entries.segment_count()) {
                from.segment += 1;
                let entries = self.table_mut(table);
                if how.scope == Scope::Arrays {
                    defrag_array(entries.segment_mut(segment), how, detached, &mut done);
                    return done;
                }
                if entries.segment(segment).len() > 0 {
                    defrag_segment(entries, segment, how, detached, &mut done);
                    return done;
                }
            } else {
                *from = SegmentPosition { table: table + 1, segment: 0 };
            }
        }
        *from = SegmentPosition::default();
        done
    }
}

/// Moves the array, not the records that its entries name.
fn defrag_array(
    segment: &mut Segment,
    how: Defrag<'_>,
    detached: &mut DetachedBlocks,
    done: &mut Defragged,
) {
    let Some(array) = segment.array_address() else { return };
    if !how.region.holds(array.addr() as u64) {
        return;
    }
    let mut gains = [0];
    how.heap.find_sparse(&[array], how.free_shift, &mut gains);
    done.asked += 1;
    done.visited += 1;
    if gains[0] > 0 {
        done.visited += (segment.capacity() / 8) as u64;
        detached.arrays.push(segment.relocate_array());
        done.moved += 1;
        done.gained_bytes += u64::from(gains[0]);
    }
}

fn defrag_segment(
    entries: &mut Table,
    segment: u32,
    how: Defrag<'_>,
    detached: &mut DetachedBlocks,
    done: &mut Defragged,
) {
    let mut from = 0;
    while from < entries.segment(segment).capacity() {
        let here = next_places(entries, segment, how.scope, &mut from);
        done.visited += here.len() as u64;
        let mut blocks = Blocks::default();
        for at in here {
            blocks.add(at, &entries.record(at), how);
        }
        move_sparse(entries, &blocks, how, detached, done);
    }
}

/// The next entries from place `from` on that the scope asks for, whose records are on their way to
/// the cache. Each has at most two blocks.
fn next_places(
    entries: &Table,
    segment: u32,
    scope: Scope,
    from: &mut usize,
) -> SmallVec<[Position; HEAP_BLOCKS_MAX / 2]> {
    let mut places = SmallVec::new();
    for &entry in entries.segment(segment).places(*from) {
        let at = Position::new(segment, *from);
        *from += 1;
        let is_wanted = match scope {
            Scope::Values => entry.is_demotable(),
            Scope::All => !entry.is_empty(),
            Scope::Arrays => false,
        };
        if is_wanted {
            prefetch(entry.address() as *const u8);
            places.push(at);
            if places.len() == HEAP_BLOCKS_MAX / 2 {
                break;
            }
        }
    }
    places
}

fn move_sparse(
    entries: &mut Table,
    blocks: &Blocks,
    how: Defrag<'_>,
    detached: &mut DetachedBlocks,
    done: &mut Defragged,
) {
    let mut gains = [0; HEAP_BLOCKS_MAX];
    let gains = &mut gains[..blocks.addresses.len()];
    if gains.is_empty() {
        return;
    }
    how.heap.find_sparse(&blocks.addresses, how.free_shift, gains);
    done.asked += gains.len() as u64;
    let sparse = blocks.owners.iter().zip(gains).filter(|(_, gain)| **gain > 0);
    for (&(at, is_value), gain) in sparse {
        done.gained_bytes += u64::from(*gain);
        let old = if is_value {
            let old = entries.record_mut(at).relocate_value();
            old.expect("invariant: it had one a moment ago")
        } else {
            entries.relocate(at)
        };
        detached.blocks.push(old);
        done.moved += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Expiry};
    use crate::key::Key;
    use crate::record::FlashRef;
    use crate::tally::Tally;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NOW_MS: u64 = 1_700_000_000_000;
    const REGIONS: usize = 8;
    const GAIN: u32 = 100;

    /// Calls every `nth` block sparse.
    struct Every {
        nth: usize,
        asked: AtomicUsize,
    }

    impl Heap for Every {
        fn find_sparse(&self, blocks: &[*const u8], _free_shift: u32, gains: &mut [u32]) {
            assert!(blocks.len() == gains.len() && blocks.len() <= HEAP_BLOCKS_MAX);
            for gain in gains {
                let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
                *gain = if asked.is_multiple_of(self.nth) { GAIN } else { 0 };
            }
        }

        fn flush_thread(&self) {}

        fn purge(&self) {}
    }

    /// Keys of every length and state in two databases, some cold, some with an expiry.
    fn filled(tally: &mut Tally) -> SlotState {
        let mut slot = SlotState::default();
        for number in 0..3_000usize {
            let name = format!("{:0width$}", number, width = 1 + number % 300);
            let key = Key::new(name.as_bytes());
            let expiry = match number % 3 {
                0 => Expiry::At(NOW_MS + 1 + number as u64),
                _ => Expiry::Clear,
            };
            let mut db = Db::new(&mut slot, (number % 2) as u8, NOW_MS, tally);
            db.put(&key, (number % 7) as u8, &vec![number as u8; number % 700], expiry);
            if number % 5 == 0 && number % 700 >= 32 {
                let at = FlashRef { units: number as u64, stored_len: 700, compressed: true };
                assert!(db.demote(&key, at));
            }
        }
        slot
    }

    /// Everything that can be read of a slot.
    fn contents(slot: &SlotState) -> BTreeMap<(u8, Vec<u8>), String> {
        let mut all = BTreeMap::new();
        for table in 0..2 {
            slot.scan_ranked(table, crate::ScanPosition::default(), |view, frequency| {
                all.insert((table, view.key.to_vec()), format!("{view:?} {frequency}"));
                false
            });
        }
        all
    }

    fn whole_slot(
        slot: &mut SlotState,
        scope: Scope,
        heap: &dyn Heap,
        detached: &mut DetachedBlocks,
    ) -> Defragged {
        let regions = (0..REGIONS).map(|index| Region::nth(index, REGIONS));
        regions
            .map(|region| pass(slot, Defrag { heap, scope, region, free_shift: 0 }, detached))
            .fold(Defragged::default(), |all, part| all + part)
    }

    fn pass(slot: &mut SlotState, how: Defrag<'_>, detached: &mut DetachedBlocks) -> Defragged {
        let (mut done, mut at) = (Defragged::default(), SegmentPosition::default());
        loop {
            done = done + slot.defrag(&mut at, how, detached);
            if at == SegmentPosition::default() {
                return done;
            }
        }
    }

    #[test]
    fn what_moves_stays_what_it_was_and_where_a_lookup_finds_it() {
        for nth in [1, 2, 3, 64] {
            let mut tally = Tally::default();
            let mut slot = filled(&mut tally);
            let before = contents(&slot);
            let mut detached = DetachedBlocks::default();
            let heap = Every { nth, asked: AtomicUsize::new(0) };
            let done = whole_slot(&mut slot, Scope::All, &heap, &mut detached);
            assert!(done.asked > 4_500, "3,000 records, and values outside them");
            assert_eq!(done.moved, done.asked / nth as u64);
            assert_eq!(done.gained_bytes, done.moved * u64::from(GAIN));
            assert_eq!(detached.blocks.len() as u64, done.moved);
            detached.free();
            assert_eq!(contents(&slot), before);
            let mut tally = Tally::default();
            for table in 0..2 {
                slot.clear(table, &mut tally).expect("keys").free(&mut tally);
            }
        }
    }

    #[test]
    fn arrays_move_and_every_key_is_found_in_them() {
        let mut tally = Tally::default();
        let mut slot = SlotState::default();
        let name = |number: u32| format!("key:{number}");
        // Table 0 becomes a directory of segments, table 1 stays a single one, table 2 is empty again.
        for (table, keys) in [(0, 9_000), (1, 900), (2, 1)] {
            let mut db = Db::new(&mut slot, table, NOW_MS, &mut tally);
            for number in 0..keys {
                db.put(&Key::new(name(number).as_bytes()), 0, b"value", Expiry::Clear);
            }
        }
        Db::new(&mut slot, 2, NOW_MS, &mut tally).remove(&Key::new(name(0).as_bytes()));
        let (before, ram_bytes) = (contents(&slot), tally.ram_bytes());
        let mut detached = DetachedBlocks::default();
        let heap = &Every { nth: 1, asked: AtomicUsize::new(0) };
        let how = Defrag { heap, scope: Scope::Arrays, region: Region::ALL, free_shift: 0 };
        let done = pass(&mut slot, how, &mut detached);
        assert!(slot.table(0).is_some_and(|entries| entries.segment_count() > 4));
        assert_eq!(done.moved, u64::from(slot.table(0).unwrap().segment_count()) + 2);
        assert_eq!((detached.blocks.len(), detached.arrays.len() as u64), (0, done.moved));
        detached.free();
        assert_eq!((contents(&slot), tally.ram_bytes()), (before, ram_bytes));
        for (table, keys) in [(0, 9_000), (1, 900)] {
            let mut db = Db::new(&mut slot, table, NOW_MS, &mut tally);
            for number in 0..keys {
                assert!(db.remove(&Key::new(name(number).as_bytes())), "{number}");
            }
        }
    }

    #[test]
    fn values_alone_are_those_in_ram() {
        let mut tally = Tally::default();
        let mut slot = filled(&mut tally);
        let before = contents(&slot);
        let heap = Every { nth: 1, asked: AtomicUsize::new(0) };
        let done = whole_slot(&mut slot, Scope::Values, &heap, &mut DetachedBlocks::default());
        let short = (0..3_000).filter(|number| number % 700 < 32).count() as i64;
        let in_ram = tally.hot_count + tally.clean_count - short;
        assert!(done.moved as i64 >= in_ram, "each, wherever it stands");
        assert_eq!(done.visited as i64, in_ram * REGIONS as i64);
        assert_eq!(contents(&slot), before);
    }

    #[test]
    fn an_empty_slot_has_nothing_to_move() {
        let heap = Every { nth: 1, asked: AtomicUsize::new(0) };
        let done = whole_slot(
            &mut SlotState::default(),
            Scope::All,
            &heap,
            &mut DetachedBlocks::default(),
        );
        assert_eq!(done, Defragged::default());
    }
}
