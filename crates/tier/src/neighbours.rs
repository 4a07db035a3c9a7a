//! Values that a read brings along: what lies beside a value that is read from flash comes to RAM with it, while that
//! saves reads.
//!
//! A drive gives nearly as many reads of two pages as of a sector, and two pages have fourteen values of 512 bytes. Those
//! are neighbours whose keys differ in their last two bytes alone: what else lies there was written in the same moment by
//! others, and is used no more than any other value. A worker reads around records only while neighbours are asked for
//! soon, which it learns from a sample: of one page in 64 it brings nothing along, but counts how many neighbours are
//! read, and over how many reads of the device it has waited for that: their rate. Neighbours come to RAM when they are
//! read several times as often as any other value on flash, and by that rate an eighth of them is used while it is likely
//! to stay, about where a read that is saved costs as much as they do. All of that while memory is free: where it is not,
//! a value has to be used to come to RAM, and a larger read would bring little. (A hot set that moved into a full
//! RAM was there as late when those came along that were used once.) A use is not noted of what is brought: if it was for
//! nothing, it is the first to be demoted.

use std::sync::atomic::Ordering;

use flash::{AROUND_BYTES, Neighbours, Record, RecordId};
use keyspace::{Db, Hint, Key, Stored, Tally};
use smallvec::SmallVec;

use crate::compress::decompress;
use crate::policy::PromoteNeighbours;
use crate::worker::TierWorker;

/// One page in so many is sampled, as a power of two.
const SAMPLE_SHIFT: u32 = 6;
/// Sampled pages that are remembered, each until another takes its place.
const SAMPLED_PAGES: usize = 1024;
/// Neighbours times reads of the device after which what was counted before counts half: so many of each page for a tenth
/// of a second of a busy drive, and longer while there are fewer pages.
const WAITED_MAX: u64 = (SAMPLED_PAGES as u64) << 15;
/// Uses by neighbours before their rate means anything.
const USED_MIN: u32 = 8;
/// Uses of a neighbour for each read of the device that are worth bringing it: an eighth of all is used within two
/// seconds of a busy drive.
const RATE_MIN: f32 = 1.0 / (8.0 * 131_072.0);
/// How many times as often as any other value on flash: else what was read in no order would be brought along in vain.
const LOCALITY_MIN: f32 = 4.0;
/// Around larger records lies hardly a neighbour.
const RECORD_BYTES_MAX: usize = AROUND_BYTES as usize / 2;
/// Units of a page: one that is sampled is so as a whole.
const UNITS_OF_PAGE: u64 = 4096 / flash::RECORD_ALIGN as u64;
/// Bytes at the end of a key in which neighbours may differ: a hundred numbers in decimal.
const OWN_KEY_BYTES: usize = 2;
/// Parts of a page that are told apart, so that a value that is read again is not counted twice.
const PARTS_OF_PAGE: u64 = 16;

/// How often the neighbours of what a worker reads are read.
#[derive(Default)]
pub(crate) struct NeighbourUse {
    /// The sampled pages, each where its hash says. Empty until the first.
    pages: Box<[SampledPage]>,
    /// Neighbours in them that have not been read.
    left: u64,
    /// Reads of the device, and where they stood when `left` was counted last.
    reads: u32,
    counted_at: u32,
    /// Reads of the device that went by, each for all neighbours that were left, and how many of these were read: both are
    /// halved now and then.
    waited: u64,
    used: u32,
}

/// A page of which nothing is brought along.
#[derive(Clone, Copy, Default)]
struct SampledPage {
    number: u64,
    /// A hash of what the keys of neighbours have in common with the first that was read.
    stem: u32,
    /// Which parts of it were read, a bit each.
    parts: u16,
    /// Neighbours that have not been read.
    left: u16,
}

/// A record of a sampled page that was asked for.
#[derive(Clone, Copy)]
struct SampledRead {
    units: u64,
    stem: u32,
    /// Its neighbours in the page that are on flash alone.
    neighbours: u16,
}

/// Whether a page is one of those that are sampled, and where it is remembered.
fn sampled_place(page: u64) -> Option<usize> {
    // Fibonacci hashing: neighbouring pages differ in the high bits.
    let hash = page.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let is_sampled = hash >> (u64::BITS - SAMPLE_SHIFT) == 0;
    let place =
        hash >> (u64::BITS - SAMPLE_SHIFT - SAMPLED_PAGES.ilog2()) & (SAMPLED_PAGES as u64 - 1);
    is_sampled.then_some(place as usize)
}

/// What the key of a record has in common with those of its neighbours.
fn stem<'r>(record: &Record<'r>) -> (u8, usize, &'r [u8]) {
    let shared = record.key.len().saturating_sub(OWN_KEY_BYTES);
    (record.meta.db, record.key.len(), &record.key[..shared])
}

impl NeighbourUse {
    /// Notes that a record of a sampled page was read.
    fn note_read(&mut self, place: usize, read: SampledRead) {
        if self.pages.is_empty() {
            self.pages = vec![SampledPage::default(); SAMPLED_PAGES].into_boxed_slice();
        }
        self.waited += self.left * u64::from(self.reads.wrapping_sub(self.counted_at));
        self.counted_at = self.reads;
        if self.waited >= WAITED_MAX {
            (self.waited, self.used) = (self.waited / 2, self.used / 2);
        }
        let number = read.units / UNITS_OF_PAGE;
        let part = 1 << (read.units % UNITS_OF_PAGE / (UNITS_OF_PAGE / PARTS_OF_PAGE));
        let page = &mut self.pages[place];
        if page.number != number || page.parts == 0 {
            self.left = self.left - u64::from(page.left) + u64::from(read.neighbours);
            *page = SampledPage { number, stem: read.stem, parts: part, left: read.neighbours };
            return;
        }
        if page.parts & part == 0 && page.stem == read.stem && page.left > 0 {
            page.left -= 1;
            self.left -= 1;
            self.used += 1;
        }
        page.parts |= part;
    }

    /// Whether what is brought along is worth its cost, with so many values on flash alone.
    fn pays(&self, cold_values: i64) -> bool {
        let rate = self.used as f32 / self.waited.max(1) as f32;
        self.used >= USED_MIN && rate >= RATE_MIN && rate * cold_values as f32 >= LOCALITY_MIN
    }
}

impl TierWorker {
    /// Whether a record of so many bytes is to be read with what lies around it.
    pub(crate) fn brings_neighbours(&self, units: u64, bytes: usize) -> bool {
        let is_sampled = || sampled_place(units / UNITS_OF_PAGE).is_some();
        bytes <= RECORD_BYTES_MAX
            && self.tier.has_free_memory()
            && match self.tier.settings.promote_neighbours() {
                PromoteNeighbours::Never => false,
                PromoteNeighbours::Always => true,
                PromoteNeighbours::Auto => self.neighbours_pay.get() || is_sampled(),
            }
    }

    /// Notes that the device is read for a record.
    #[inline]
    pub(crate) fn note_device_read(&self) {
        let mut neighbours = self.neighbour_use.borrow_mut();
        neighbours.reads = neighbours.reads.wrapping_add(1);
    }

    /// Brings neighbours of what was asked for to RAM, or counts them where their page is sampled.
    pub(crate) fn promote_neighbours(&self, brought: &Neighbours) {
        let records: SmallVec<[_; flash::EXPECTED_MAX]> = brought.records().collect();
        let asked = || records.iter().filter(|(_, _, is_asked)| *is_asked);
        let is_auto = self.tier.settings.promote_neighbours() == PromoteNeighbours::Auto;
        let place_of =
            |id: &RecordId| sampled_place(id.at.units() / UNITS_OF_PAGE).filter(|_| is_auto);
        for (id, record, _) in asked() {
            if let Some(place) = place_of(id) {
                self.note_sampled(place, (*id, record), &records);
            }
        }
        if is_auto && !self.neighbours_pay.get() {
            return;
        }
        let mut stems: SmallVec<[_; 4]> = asked().map(|(_, record, _)| stem(record)).collect();
        stems.dedup();
        let near: SmallVec<[(RecordId, Record<'_>); flash::EXPECTED_MAX]> = records
            .iter()
            .filter(|(id, record, is_asked)| {
                !is_asked && place_of(id).is_none() && stems.contains(&stem(record))
            })
            .map(|(id, record, _)| (*id, *record))
            .collect();
        self.promote_all(&near);
    }

    /// Notes that a record of a sampled page was read, and what it has beside it.
    fn note_sampled(
        &self,
        place: usize,
        (id, record): (RecordId, &Record<'_>),
        records: &[(RecordId, Record<'_>, bool)],
    ) {
        let page = id.at.units() / UNITS_OF_PAGE;
        let stem_of = stem(record);
        let near: SmallVec<[(RecordId, Record<'_>); flash::EXPECTED_MAX]> = records
            .iter()
            .filter(|(other, near, is_asked)| {
                !is_asked && other.at.units() / UNITS_OF_PAGE == page && stem(near) == stem_of
            })
            .map(|(id, record, _)| (*id, *record))
            .collect();
        let cold = near
            .chunks(flash::EXPECTED_MAX)
            .map(|some| self.guess_cold(some).filter(|cold| *cold).count());
        let neighbours = cold.sum::<usize>() as u16;
        let stem = Key::in_slot(stem_of.2, u16::from(stem_of.0)).hash as u32 ^ stem_of.1 as u32;
        let mut use_of = self.neighbour_use.borrow_mut();
        use_of.note_read(place, SampledRead { units: id.at.units(), stem, neighbours });
        let cold_values = self.tier.counters.cold_count.load(Ordering::Relaxed);
        self.neighbours_pay.set(use_of.pays(cold_values));
    }

    /// Which of some records, at most [`flash::EXPECTED_MAX`], are values that are on flash alone: a guess, which spares a look
    /// at most of what is in RAM or dead.
    fn guess_cold(&self, records: &[(RecordId, Record<'_>)]) -> impl Iterator<Item = bool> {
        let keys = records.iter().map(|(_, record)| (record.meta, record.key));
        let hints = self.tier.hints_of(keys, 1);
        let is_cold = |((id, _), hint): (&(RecordId, Record<'_>), Hint)| {
            hint.cold.is_some_and(|at| at.units == id.at.units())
        };
        records.iter().zip(hints).map(is_cold)
    }

    fn promote_all(&self, records: &[(RecordId, Record<'_>)]) {
        let mut tally = Tally::default();
        let mut promoted = 0;
        for some in records.chunks(flash::EXPECTED_MAX) {
            if !self.tier.has_free_memory() {
                break;
            }
            for ((id, record), is_cold) in some.iter().zip(self.guess_cold(some)) {
                promoted += u64::from(is_cold && self.promote_neighbour(*id, record, &mut tally));
            }
            self.tier.add_tally(&mut tally);
        }
        if promoted > 0 {
            for counter in [&self.tier.counters.promoted, &self.tier.counters.brought_along] {
                counter.fetch_add(promoted, Ordering::Relaxed);
            }
        }
    }

    /// Brings a record to RAM if it is its key's value still. It stays where somebody else holds its slot.
    fn promote_neighbour(&self, id: RecordId, record: &Record<'_>, tally: &mut Tally) -> bool {
        if !self.tier.may_promote(tally.ram_bytes()) {
            return false;
        }
        let key = Key::in_slot(record.key, record.meta.slot);
        let Some(mut slot) = self.tier.keyspace.try_lock(key.slot) else { return false };
        // At the time 0 nothing has expired, and so nothing changes that had to be counted.
        let mut db = Db::new(&mut slot, record.meta.db, 0, tally);
        let Some(Stored::Cold(_, value_len)) = db.peek(&key).map(|view| view.stored) else {
            return false;
        };
        db.promote_with(&key, |at, _| match at.compressed {
            _ if self.record_id(at) != id => None,
            true => decompress(record.payload, value_len as usize).map(Vec::into_boxed_slice),
            false => Some(Box::from(record.payload)),
        })
    }
}

#[cfg(test)]
mod tests {
    use stdx::Random;

    use super::*;

    /// Pages of eight records, which are neighbours.
    const RECORDS_OF_PAGE: u64 = 8;

    /// Reads of so many records, by chance, of which each comes to RAM if it `stays`.
    fn read(neighbours: &mut NeighbourUse, records: u64, reads: usize, stays: bool) {
        let mut random = Random::new(records);
        let mut in_ram = vec![false; records as usize];
        for _ in 0..reads {
            let record = random.below(records);
            if !in_ram[record as usize] {
                in_ram[record as usize] = stays;
                read_one(neighbours, record);
            }
        }
    }

    fn read_one(neighbours: &mut NeighbourUse, record: u64) {
        neighbours.reads += 1;
        let page = record / RECORDS_OF_PAGE;
        if let Some(place) = sampled_place(page) {
            let units = record * UNITS_OF_PAGE / RECORDS_OF_PAGE;
            let read =
                SampledRead { units, stem: page as u32, neighbours: RECORDS_OF_PAGE as u16 - 1 };
            neighbours.note_read(place, read);
        }
    }

    #[test]
    fn neighbours_come_where_they_are_read_soon_and_more_than_others() {
        const COLD: i64 = 5_000_000;
        let mut neighbours = NeighbourUse::default();
        read(&mut neighbours, 50_000, 500, true);
        assert!(!neighbours.pays(COLD), "nothing is known yet");
        read(&mut neighbours, 50_000, 20_000, true);
        assert!(neighbours.pays(COLD));
        assert!(!neighbours.pays(50_000), "no more than any other value on flash");
        read(&mut neighbours, 5_000_000, 400_000, true);
        assert!(!neighbours.pays(COLD), "hardly one of them is read again while it counts");
        // Another set, though most of what is remembered is of the last.
        read(&mut neighbours, 45_000, 40_000, true);
        assert!(neighbours.pays(COLD));
    }

    #[test]
    fn the_same_value_read_again_is_no_neighbour() {
        let mut neighbours = NeighbourUse::default();
        // One record of each page.
        let mut random = Random::new(1);
        for _ in 0..400_000 {
            read_one(&mut neighbours, random.below(10_000) * RECORDS_OF_PAGE);
        }
        assert!(neighbours.waited > 1 << 20);
        assert_eq!(neighbours.used, 0);
        assert!(!neighbours.pays(1 << 30));
    }

    #[test]
    fn what_is_left_to_be_read_is_what_the_pages_have() {
        let mut neighbours = NeighbourUse::default();
        read(&mut neighbours, 3_000_000, 600_000, false);
        let left: u64 = neighbours.pages.iter().map(|page| u64::from(page.left)).sum();
        assert_eq!(neighbours.left, left);
        assert!(left > 0);
    }

    #[test]
    fn one_page_in_64_is_sampled() {
        let sampled = (0..64_000).filter_map(sampled_place).collect::<Vec<_>>();
        assert!((900..1100).contains(&sampled.len()), "{}", sampled.len());
        assert!(sampled.iter().all(|&place| place < SAMPLED_PAGES));
    }
}
