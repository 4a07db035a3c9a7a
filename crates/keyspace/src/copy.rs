//! Values in RAM get a copy on flash, and stay in RAM beside it.

use crate::db::change_record;
use crate::key::VALUE_LINES;
use crate::record::{FlashRef, Stored, View};
use crate::slot::{DB_COUNT, EntryPosition, SlotState};
use crate::table::{Position, Table};
use crate::tally::Tally;

/// What is to be done with a value that is in RAM alone.
pub enum Copying {
    /// It now has this copy on flash.
    Copied(FlashRef),
    /// Leave it.
    Leave,
    /// Leave it, and look at no other.
    Stop,
}

impl SlotState {
    /// Asks `copy` about values of keys that are in RAM alone, used or not, from `from` on, which then is where it stopped:
    /// the default again at the end of the slot. It looks at `places_max` places of tables, and a few more. Frequencies
    /// stay, and so does what watchers know.
    ///
    /// Values that stand in their records are passed over: they would have to leave them.
    pub fn copy_each(
        &mut self,
        from: &mut EntryPosition,
        places_max: usize,
        tally: &mut Tally,
        copy: &mut impl FnMut(View<'_>, u8) -> Copying,
    ) {
        let mut passed = 0;
        while let Some(at) = self.entries_from(*from, self.tables().min(DB_COUNT)) {
            *from = at;
            let entries = self.table_mut(at.table);
            let places = entries.segment(at.segment).capacity();
            while (from.index as usize) < places {
                if passed >= places_max {
                    return;
                }
                let mut next = from.index as usize;
                let found = entries.demotable(at.segment, &mut next);
                for &place in &found {
                    entries.record(place).prefetch_value(VALUE_LINES);
                }
                for &place in &found {
                    if !copy_one(entries, place, at.table, tally, copy) {
                        from.index = place.index();
                        return;
                    }
                }
                passed += next - from.index as usize;
                from.index = next as u32;
            }
            *from = EntryPosition { segment: at.segment + 1, index: 0, ..at };
        }
        *from = EntryPosition::default();
    }
}

/// False: no other is to be looked at.
fn copy_one(
    entries: &mut Table,
    at: Position,
    table: u8,
    tally: &mut Tally,
    copy: &mut impl FnMut(View<'_>, u8) -> Copying,
) -> bool {
    let record = entries.record(at);
    if record.is_inline() || !matches!(record.view().stored, Stored::Hot(_)) {
        return true;
    }
    match copy(entries.view(at), table) {
        Copying::Copied(place) => {
            change_record(entries, at, table, tally, |old| (old.with_copy(place), None));
            true
        }
        Copying::Leave => true,
        Copying::Stop => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Expiry};
    use crate::key::Key;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn place(units: u64, len: usize) -> FlashRef {
        FlashRef { units, stored_len: len as u32, compressed: false }
    }

    /// Keys by number, of two databases, with values of so many bytes.
    fn filled(lens: impl Iterator<Item = usize>) -> (SlotState, Tally) {
        let (mut slot, mut tally) = (SlotState::default(), Tally::default());
        for (number, len) in lens.enumerate() {
            let expiry = if number % 3 == 0 { Expiry::At(NOW_MS + 5) } else { Expiry::Clear };
            let name = number.to_string();
            let mut db = Db::new(&mut slot, (number % 2) as u8, NOW_MS, &mut tally);
            db.put(&Key::new(name.as_bytes()), 0, &vec![number as u8; len], expiry);
        }
        (slot, tally)
    }

    #[test]
    fn values_that_stand_apart_get_a_copy_and_are_as_they_were() {
        let lens = [10, 128, 129, 300, 5_000, 300, 128, 70_000];
        let (mut slot, mut tally) = filled(lens.into_iter());
        let key = Key::new(b"5");
        Db::new(&mut slot, 1, NOW_MS, &mut tally).demote(&key, place(77, 300));
        let hot = tally.hot_count;
        let mut units = 0;
        let mut copy = |view: View<'_>, _: u8| {
            units += 1;
            Copying::Copied(place(units, view.value_len()))
        };
        let mut from = EntryPosition::default();
        slot.copy_each(&mut from, usize::MAX, &mut tally, &mut copy);
        assert_eq!(from, EntryPosition::default());
        assert_eq!((tally.clean_count, tally.hot_count, tally.cold_count), (4, hot - 4, 1));
        for (number, len) in lens.into_iter().enumerate() {
            let name = number.to_string();
            let view =
                slot.view((number % 2) as u8, &Key::new(name.as_bytes())).expect("it is there");
            let expires = if number % 3 == 0 { NOW_MS + 5 } else { 0 };
            assert_eq!(view.expire_at_ms, expires, "{number}");
            match view.stored {
                Stored::Hot(value) => assert!(len <= 128 && value == vec![number as u8; len]),
                Stored::Clean(value, at) => {
                    assert!(len > 128 && value == vec![number as u8; len], "{number}");
                    assert_eq!(at.stored_len as usize, len);
                }
                Stored::Cold(at, _) => assert_eq!((number, at), (5, place(77, 300))),
            }
        }
        // None is asked about twice.
        slot.copy_each(&mut from, usize::MAX, &mut tally, &mut |_: View<'_>, _: u8| {
            panic!("it has a copy, or is to have none")
        });
        assert!(tally.dead.is_empty());
    }

    #[test]
    fn what_was_stopped_goes_on_at_the_same_value() {
        let (mut slot, mut tally) = filled((0..500).map(|_| 200));
        let (mut from, mut copied, mut rounds) = (EntryPosition::default(), 0, 0);
        loop {
            let mut left = 7;
            let mut copy = |view: View<'_>, _: u8| {
                left -= 1;
                if left == 0 {
                    return Copying::Stop;
                }
                copied += 1;
                Copying::Copied(place(copied, view.value_len()))
            };
            slot.copy_each(&mut from, 100, &mut tally, &mut copy);
            rounds += 1;
            if from == EntryPosition::default() {
                break;
            }
        }
        assert_eq!((copied, tally.clean_count, tally.hot_count), (500, 500, 0));
        assert!(rounds > 500 / 7, "{rounds}");
    }

    #[test]
    fn a_copy_of_a_value_that_changes_is_dead() {
        let (mut slot, mut tally) = filled([400, 400].into_iter());
        let mut copy = |view: View<'_>, _: u8| Copying::Copied(place(9, view.value_len()));
        slot.copy_each(&mut EntryPosition::default(), usize::MAX, &mut tally, &mut copy);
        let mut db = Db::new(&mut slot, 0, NOW_MS, &mut tally);
        db.put(&Key::new(b"0"), 0, b"new", Expiry::Clear);
        assert_eq!((tally.dead.len(), tally.clean_count, tally.hot_count), (1, 1, 1));
    }
}
