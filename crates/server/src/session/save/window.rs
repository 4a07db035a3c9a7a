//! Values on flash are read in the order in which they lie there, not in that of their keys, which is none: so one read brings
//! many. The walk leaves the names of cold keys waiting over many slots, a *window*, which is bounded by the memory of these
//! names; then it reads what the window lacks, place by place, and takes its slots.
//!
//! (617,000 values of 2 KiB behind 128 MB, quiet: 31 s and 620,000 reads of the drive in the order of slots, 16 s and 185,000
//! in windows; a part of the time is that of compression, see `rdb/src/lzf.rs`.)

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use keyspace::Key;
use tier::{Background, FetchedSet, Want};

use super::{AtHand, Saving, Sought, sorted};
use crate::limits::{
    SAVED_BYTES_MAX, SAVED_PIECES_MAX, SAVED_SLOT_NAMES_BYTES_MAX, SAVED_TOGETHER_MAX,
    SAVED_WINDOW_NAMES_BYTES_MAX, SAVED_WINDOW_NAMES_BYTES_MIN,
};
use crate::state::server::Server;
use crate::state::snapshot::{Failure, Saved, Snapshot, Turn};

/// Bytes that the names of a window may take: a part of `maxmemory`, 1/32, within bounds.
const WINDOW_SHIFT: u32 = 5;
/// The part of that which names of one slot may take, 1/4, within a bound: what it has beyond is read at once.
const OF_SLOT_SHIFT: u32 = 2;
/// What a name takes in all, of a usual length, with room for lists to grow.
const NAME_BYTES: u64 = 96;
/// What it takes beside its bytes while its slot is walked over, in a tree of names whose nodes may be half empty.
const LEFT_OUT_BYTES: u64 = 64;
/// Values whose places differ in no higher bit of these units of 16 bytes lie in one piece: 64 KiB.
const PIECE_UNITS_SHIFT: u32 = 12;

/// Slots that were walked over, and what they still lack.
pub(super) struct Window {
    slots: RefCell<Vec<u16>>,
    lacked: RefCell<Vec<Lacked>>,
    /// Bytes that names may take.
    bytes_max: u64,
    /// Where there are more than the least.
    memory: RefCell<Option<Background>>,
}

impl Window {
    /// With memory for names that is kept until the snapshot is over: where it came and went with each window, values left RAM
    /// for each anew (48 MB, 60,000 values of up to 1.5 kB: 1.15 times that resident). Waits a tenth of a second at most until
    /// it is free. Where it is not, or values on flash stay there, windows are small.
    pub(super) fn new(server: &Server, reads_flash: bool) -> Window {
        let cold = server.tier.counters.cold_count.load(Ordering::Relaxed).max(0) as u64;
        let bytes_max = match server.config.maxmemory.load() {
            0 => SAVED_WINDOW_NAMES_BYTES_MAX,
            bytes => (bytes >> WINDOW_SHIFT).min(SAVED_WINDOW_NAMES_BYTES_MAX),
        };
        let bytes = (cold * NAME_BYTES).min(bytes_max);
        let mut window = Window {
            slots: RefCell::default(),
            lacked: RefCell::default(),
            bytes_max: SAVED_WINDOW_NAMES_BYTES_MIN,
            memory: RefCell::default(),
        };
        if reads_flash && bytes > SAVED_WINDOW_NAMES_BYTES_MIN {
            let memory = Background::soon(&server.tier, bytes);
            if memory.has_claim() {
                window.bytes_max = bytes;
                window.memory = RefCell::new(Some(memory));
            }
        }
        window
    }

    /// Says that its memory is resident.
    fn end_claim(&self) {
        self.memory.borrow_mut().iter_mut().for_each(Background::end_claim);
    }
}

/// A name that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lacked {
    /// Where its value was when the walk met it, in units of 16 bytes.
    place: u64,
    slot: u16,
    number: u32,
}

/// Names of a slot that is being walked over, which wait for the reads of the window: what they take.
pub(super) struct LeftOut {
    bytes: u64,
    bytes_max: u64,
}

impl LeftOut {
    /// Leaves names that were met unsaved while there is room, and keeps the others.
    pub(super) fn leave_out(&mut self, met: &mut Vec<Sought>) {
        met.retain(|sought| {
            let bytes = sought.key.len() as u64 + LEFT_OUT_BYTES;
            let has_room = self.bytes + bytes <= self.bytes_max;
            self.bytes += if has_room { bytes } else { 0 };
            !has_room
        });
    }
}

/// Names that are read together.
#[derive(Default)]
struct Together {
    names: Vec<(u16, Sought)>,
    wants: usize,
    bytes: usize,
    pieces: usize,
    last_piece: Option<u64>,
}

impl Together {
    fn push(&mut self, slot: u16, sought: Sought) {
        for want in &sought.wants {
            let piece = Some(want.at.units >> PIECE_UNITS_SHIFT);
            self.pieces += usize::from(self.last_piece != piece);
            self.last_piece = piece;
            self.bytes += want.value_len as usize;
        }
        self.wants += sought.wants.len();
        self.names.push((slot, sought));
    }

    fn is_enough(&self) -> bool {
        self.pieces >= SAVED_PIECES_MAX
            || self.wants >= SAVED_TOGETHER_MAX
            || self.bytes >= SAVED_BYTES_MAX
    }

    fn wants(&self) -> Vec<Want> {
        sorted(self.names.iter().flat_map(|(_, sought)| sought.wants.iter().copied()).collect())
    }
}

impl Saving<'_> {
    /// Nothing yet, of a slot that is walked over next.
    pub(super) fn left_out(&self) -> LeftOut {
        let bytes_max = (self.window.bytes_max >> OF_SLOT_SHIFT).min(SAVED_SLOT_NAMES_BYTES_MAX);
        LeftOut { bytes: 0, bytes_max }
    }

    /// Adds a slot that was walked over, with what was left unsaved.
    pub(super) fn add_to_window(&self, snapshot: &Snapshot, slot: u16) {
        let state = self.server.tier.keyspace.lock(slot);
        let (places, no_longer_kept) = snapshot.let_wait(slot);
        drop(state);
        drop(no_longer_kept);
        if places.is_empty() {
            return;
        }
        self.window.slots.borrow_mut().push(slot);
        let lack = |(number, place)| Lacked { place, slot, number };
        self.window.lacked.borrow_mut().extend((0..).zip(places).map(lack));
    }

    /// Whether the window is to be saved before more slots come.
    pub(super) fn is_window_full(&self, snapshot: &Snapshot) -> bool {
        let bytes_max = self.window.bytes_max;
        snapshot.waiting_bytes() >= bytes_max - (bytes_max >> OF_SLOT_SHIFT)
    }

    /// Whether not even slots that others wait for may come: a window is being saved, and they would be another.
    pub(super) fn has_window_no_room(&self, snapshot: &Snapshot) -> bool {
        snapshot.waiting_bytes() >= 2 * self.window.bytes_max
    }

    /// Saves what the window lacks, and takes its slots. Those that are walked over meanwhile are of the next window.
    pub(super) fn save_window(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.window.end_claim();
        let (slots, mut lacked) = (self.window.slots.take(), self.window.lacked.take());
        lacked.sort_unstable();
        let mut lacked = lacked.into_iter();
        while !lacked.as_slice().is_empty() {
            self.walk_wanted(snapshot)?;
            self.save_wanted(snapshot)?;
            self.wait_for_drive(snapshot);
            if self.is_over(snapshot) {
                return Ok(());
            }
            let mut together = Together::default();
            while !together.is_enough()
                && let Some(lacked) = lacked.next()
            {
                if let Some(sought) = self.seek_waiting(snapshot, lacked)? {
                    together.push(lacked.slot, sought);
                }
                self.turns.give_way();
            }
            self.save_together(snapshot, together)?;
        }
        for slot in slots {
            let state = self.server.tier.keyspace.lock(slot);
            snapshot.take_slot(slot);
            drop(state);
        }
        Ok(())
    }

    /// What a name that waits needs to be saved. None: it is saved, or is now, as its values came to RAM.
    fn seek_waiting(
        &self,
        snapshot: &Snapshot,
        Lacked { slot, number, .. }: Lacked,
    ) -> Result<Option<Sought>, Failure> {
        let Some(name) = snapshot.waiting_name(slot, number as usize) else { return Ok(None) };
        let tier = &*self.server.tier;
        let nothing = FetchedSet::default();
        let at_hand = AtHand { tier, set: &nothing };
        let state = tier.keyspace.lock(slot);
        let saved = snapshot.save(&state, &Key::in_slot(&name, slot), &self.reading(&at_hand));
        match saved {
            Saved::Yes => Ok(None),
            Saved::Lacks(values) => Ok(Some(Sought::new(tier, name, &values))),
            Saved::Later => {
                drop(state);
                self.save_large(snapshot, (slot, &name), Turn::Early).map(|()| None)
            }
        }
    }

    fn save_together(&self, snapshot: &Snapshot, together: Together) -> Result<(), Failure> {
        let fetched = self.reader.fetch_now(together.wants());
        for (slot, sought) in together.names {
            let state = self.server.tier.keyspace.lock(slot);
            let rest = self.save_fetched(snapshot, (slot, &state), vec![sought], &fetched)?;
            drop(state);
            self.turns.give_way();
            // It has moved meanwhile.
            self.save_cold(snapshot, slot, rest)?;
        }
        Ok(())
    }
}
