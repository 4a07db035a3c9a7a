//! Defragmentation: records, values and the arrays of tables leave pages that are sparsely used, so that those go back to
//! the machine.
//!
//! Values are demoted in no order of address, so what they leave behind is a hole here and there:
//! room for other values of their size, and for nothing else. Arrays grow from class to class, and leave holes that none
//! asks for once all tables are larger. The blocks that were moved from are
//! freed later ([`DetachedBlocks`]): a block that is free again at once is the first that the
//! allocator would hand out. A pass moves the blocks of one [`Region`].

use crate::entry::Entry;
use crate::record::{DetachedBlock, Record};
use crate::region::Region;
use crate::slot::{SlotState, TABLE_COUNT};
use crate::table::{Position, Table};
use smallvec::SmallVec;
use stdx::prefetch::prefetch;

/// Blocks that are asked about together, so that cache misses overlap.
pub const HEAP_BLOCKS_MAX: usize = 64;

/// What defragmentation asks of the allocator.
pub trait Heap: Send + Sync {
    /// Sets `sparse[i]` where `blocks[i]` lies in pages of which more than a `2^free_shift`th is
    /// free. At most [`HEAP_BLOCKS_MAX`], all allocated and the caller's.
    fn find_sparse(&self, blocks: &[*const u8], free_shift: u32, sparse: &mut [bool]);

    /// Takes back what this thread keeps for its next allocations, which may lie in sparse pages.
    fn flush_thread(&self);

    /// Gives pages in which nothing is allocated back to the machine at once.
    fn purge(&self);
}

/// What defragmentation looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Values in RAM, which leave holes as they are demoted, and arrays of tables. A cold key costs next to nothing.
    #[default]
    Values,
    /// Records too, which leave holes as keys are deleted or change their size.
    All,
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
    /// Keys looked at.
    pub visited: u64,
    /// Records, values and arrays of the region that the allocator was asked about.
    pub asked: u64,
    /// Those of them that moved.
    pub moved: u64,
}

impl std::ops::Add for Defragged {
    type Output = Defragged;

    fn add(self, other: Defragged) -> Defragged {
        Defragged {
            visited: self.visited + other.visited,
            asked: self.asked + other.asked,
            moved: self.moved + other.moved,
        }
    }
}

/// Whose a block is.
#[derive(Clone, Copy)]
enum Owner {
    /// The record of an entry itself.
    Record(Position),
    /// The record of an entry, whose value it is.
    Value(Position),
    /// The array of the segment.
    Segment,
}

/// Blocks of a segment, and whose they are.
#[derive(Default)]
struct Blocks {
    addresses: SmallVec<[*const u8; HEAP_BLOCKS_MAX]>,
    owners: SmallVec<[Owner; HEAP_BLOCKS_MAX]>,
}

impl Blocks {
    fn add(&mut self, at: Position, record: &Record, how: Defrag<'_>) {
        let (record, value) = record.blocks();
        if how.scope == Scope::All || value.is_none() {
            self.push(record, Owner::Record(at), how.region);
        }
        if let Some(value) = value {
            self.push(value, Owner::Value(at), how.region);
        }
    }

    fn push(&mut self, address: *const u8, owner: Owner, region: Region) {
        if region.holds(address.addr() as u64) {
            self.addresses.push(address);
            self.owners.push(owner);
        }
    }
}

impl SlotState {
    /// Moves what lies in sparse pages elsewhere, in one segment of one table; `from` goes on to the
    /// next, and is the default again at the end of the slot. Cost: bounded by the size of a
    /// segment; two cache misses a block that is looked at, four one that moves.
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

fn defrag_segment(
    entries: &mut Table,
    segment: u32,
    how: Defrag<'_>,
    detached: &mut DetachedBlocks,
    done: &mut Defragged,
) {
    let mut from = 0;
    let mut blocks = Blocks::default();
    if let Some(array) = entries.segment(segment).array_address() {
        blocks.push(array, Owner::Segment, how.region);
    }
    while from < entries.segment(segment).capacity() {
        let here = next_places(entries, segment, how.scope, &mut from);
        done.visited += here.len() as u64;
        for at in here {
            blocks.add(at, &entries.record(at), how);
        }
        move_sparse(entries, segment, std::mem::take(&mut blocks), how, detached, done);
    }
}

/// Entries whose blocks are asked about together: two each, beside the array of their segment.
const PLACES_MAX: usize = (HEAP_BLOCKS_MAX - 1) / 2;

/// The next entries from place `from` on that the scope asks for, whose records are on their way to
/// the cache.
fn next_places(
    entries: &Table,
    segment: u32,
    scope: Scope,
    from: &mut usize,
) -> SmallVec<[Position; PLACES_MAX]> {
    let mut places = SmallVec::new();
    for &entry in entries.segment(segment).places(*from) {
        let at = Position::new(segment, *from);
        *from += 1;
        let is_wanted = match scope {
            Scope::Values => entry.is_demotable(),
            Scope::All => !entry.is_empty(),
        };
        if is_wanted {
            prefetch(entry.address() as *const u8);
            places.push(at);
            if places.len() == PLACES_MAX {
                break;
            }
        }
    }
    places
}

fn move_sparse(
    entries: &mut Table,
    segment: u32,
    blocks: Blocks,
    how: Defrag<'_>,
    detached: &mut DetachedBlocks,
    done: &mut Defragged,
) {
    let mut sparse = [false; HEAP_BLOCKS_MAX];
    let sparse = &mut sparse[..blocks.addresses.len()];
    if sparse.is_empty() {
        return;
    }
    how.heap.find_sparse(&blocks.addresses, how.free_shift, sparse);
    done.asked += sparse.len() as u64;
    let owners = blocks.owners.iter().zip(sparse).filter(|(_, sparse)| **sparse);
    for (&owner, _) in owners {
        match owner {
            Owner::Record(at) => detached.blocks.push(entries.relocate(at)),
            Owner::Value(at) => {
                let old = entries.record_mut(at).relocate_value();
                detached.blocks.push(old.expect("invariant: it had one a moment ago"));
            }
            Owner::Segment => detached.arrays.push(entries.segment_mut(segment).relocate_array()),
        }
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

    /// Calls every `nth` block sparse.
    struct Every {
        nth: usize,
        asked: AtomicUsize,
    }

    impl Heap for Every {
        fn find_sparse(&self, blocks: &[*const u8], _free_shift: u32, sparse: &mut [bool]) {
            assert!(blocks.len() == sparse.len() && blocks.len() <= HEAP_BLOCKS_MAX);
            for sparse in sparse {
                *sparse = (self.asked.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.nth);
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
        let mut done = Defragged::default();
        for region in (0..REGIONS).map(|index| Region::nth(index, REGIONS)) {
            let mut at = SegmentPosition::default();
            loop {
                let how = Defrag { heap, scope, region, free_shift: 0 };
                done = done + slot.defrag(&mut at, how, detached);
                if at == SegmentPosition::default() {
                    break;
                }
            }
        }
        done
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
            assert_eq!((detached.blocks.len() + detached.arrays.len()) as u64, done.moved);
            assert!(nth > 1 || detached.arrays.len() > 1, "arrays of both databases");
            detached.free();
            assert_eq!(contents(&slot), before);
            let mut tally = Tally::default();
            for table in 0..2 {
                slot.clear(table, &mut tally).expect("keys").free(&mut tally);
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
