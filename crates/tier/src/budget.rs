//! The memory budget: `maxmemory` bounds what the process takes from the machine.
//!
//! What the program allocates is known exactly and at once (`tracked`); what the machine gives for
//! it (`resident`: rounding to pages, allocator slack, code, stacks) is measured fifty times a
//! second. Their ratio moves slowly, so the bound on resident memory is turned into a bound on
//! tracked memory, which the workers keep to the byte:
//!
//! ```text
//! watermark = (maxmemory - margin - holes to come - base) / ratio
//! ratio     = (resident - base) / tracked
//! limit     = watermark + 1/64
//! ```
//!
//! Demotion keeps `tracked` at the watermark; the limit is where writers wait. The ratio is held
//! while what is resident lies within half the margin above its target: pages that lose some of
//! their values stay, so to demote for a small excess would mostly make holes, which look like more
//! overhead to demote for. For the same reason it is held below `maxmemory` itself while what is
//! resident does not rise: an idle server would give up value after value for pages that do not
//! come free. While less is resident than that, it rises only near the peak of
//! `tracked`: memory that was freed a moment ago is still resident, yet free to be used again, and
//! must not be taken for overhead. Whatever the ratio is, there is room to grow while less is
//! resident than may be.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::controller::Resident;
use crate::environment::ResidentSource;
use crate::limits::WRITE_BYTES;
use crate::process_memory::ResidentSet;

/// What is kept free of the data set for reads while it can make no room for them: this part of `maxmemory`, 1/16.
const READS_SHIFT: u32 = 4;
/// Clients hold little when they hold less than this part of `maxmemory`, a 64th.
const FEW_CLIENTS_SHIFT: u32 = 6;
/// Part of `maxmemory` that is kept free for what grows between two measurements: 1/32. With 1/64 a
/// fill at full speed was resident at 1.026 times `maxmemory` for a moment.
const MARGIN_SHIFT: u32 = 5;
/// `maxmemory` is overrun when this part of it is resident besides: 1/64.
const OVERRUN_SHIFT: u32 = 6;
/// Demotion begins this part of the limit below it: 1/64.
const WATERMARK_SHIFT: u32 = 6;
/// Below this many tracked bytes the ratio says nothing.
const RATIO_BYTES_MIN: i64 = 32 << 20;
/// Below this many, sparse pages are too few to be worth moving what is in them.
const LOOSE_BYTES_MIN: i64 = 8 << 20;
/// The ratio in units of 1/65536.
const RATIO_ONE: i64 = 1 << 16;
const RATIO_MAX: i64 = 4 * RATIO_ONE;
/// The ratio at the start: what a data set that grows at full speed turns out to need. It is
/// measured before the limit matters, but a small budget can be full before it has moved.
const RATIO_FIRST: i64 = RATIO_ONE + RATIO_ONE / 4;
/// The ratio moves by at most this part of itself at each measurement of a large budget: 1/1024,
/// which is 5 % a second. A jump would make every writer wait until the difference has been demoted.
const RATIO_STEP_SHIFT: u32 = 10;
/// The same while more is resident than `maxmemory` and half the margin: writers had better wait a
/// little than the bound be broken.
const RATIO_STEP_SHIFT_OVER: u32 = 9;
/// An excess is met at the rate that would end it in so many measurements: a quarter of a second. At
/// full speed from the start, what is resident swings about the target, and each swing leaves holes:
/// a fill of 1 GiB ended with 7.3 % of its values in RAM, and ends with 8.9 % this way.
const EXCESS_MEASURES: i64 = 12;
/// Measurements in a row after which full is full: five seconds. A small budget that is filled at
/// full speed may have `maxmemory` resident for a second, though values have gone.
const FULL_MEASURES: u32 = 250;
/// Pages take much more than what is in them beyond this part of that: an eighth.
const LOOSE_SHIFT: u32 = 3;
/// What is kept free of a data set without holes: 1/16 of `maxmemory`, about what holes come to.
const HOLES_SHIFT: u32 = 4;
/// Measurements whose average tells whether what is resident rises: half a second.
const LEVEL_MEASURES: i64 = 25;
/// Measurements for which what defragmentation moved may have pages come free: a fifth of a second.
const PACKED_MEASURES: u32 = 10;
/// Measurements for which blocks that were read ahead, and have gone, may have pages come free: a fifth of a second.
const READ_AHEAD_MEASURES: u32 = 10;
/// Less than this part of `maxmemory` above that average is no rise, and below it no fall.
const LEVEL_SHIFT: u32 = 12;
/// What the peak of tracked bytes loses at each measurement: 1/2048, so that it follows a data set
/// that shrinks within a minute.
const PEAK_DECAY_SHIFT: u32 = 11;
/// Below this `maxmemory` both steps are larger in proportion, up to `SPEED_MAX` times: what writers
/// change in a moment is a larger part of a small budget.
const LARGE_BUDGET_BYTES: i64 = 1 << 30;
const SPEED_MAX: i64 = 4;

/// Memory in use, by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    /// Allocated for the data set.
    pub data_bytes: i64,
    /// Allocated for connections and their buffers, and for work in the background.
    pub client_bytes: i64,
    /// Held by the flash engine.
    pub engine_bytes: i64,
    /// The limit on the sum of the three.
    pub limit_bytes: i64,
    /// Resident memory of the process at the last measurement.
    pub resident_bytes: u64,
    /// The highest such measurement.
    pub resident_peak_bytes: u64,
}

/// The budget, shared by all workers.
#[derive(Debug)]
pub struct Budget {
    max_bytes: AtomicU64,
    data_bytes: AtomicI64,
    /// Those who free what was flushed.
    freeing: AtomicI64,
    /// What the data set took when memory was measured last.
    data_at_measure: AtomicI64,
    /// Whether it took less then than at the measurement before.
    had_shrunk: AtomicBool,
    /// What batches that made the data set larger have added, in all.
    grown_bytes: AtomicU64,
    /// What connections take by themselves.
    connection_bytes: AtomicI64,
    buffer_bytes: AtomicI64,
    reserved_bytes: AtomicI64,
    /// What work in the background has reserved.
    background_bytes: AtomicI64,
    /// Of both and of arguments, what large requests were let have and may not be resident yet.
    claimed_bytes: AtomicI64,
    /// What the data set is to leave to reads.
    room_for_reads: AtomicI64,
    /// What keys take that stay in RAM, `i64::MIN` where any may go.
    keys_that_stay: AtomicI64,
    /// What they leave to all else, `i64::MAX` where any may go.
    room_beside_keys: AtomicI64,
    /// What the data set took when writes were last refused, `i64::MIN` before.
    data_at_refusal: AtomicI64,
    engine_bytes: AtomicI64,
    /// What it will take besides when it writes.
    engine_bytes_to_come: AtomicI64,
    /// What blocks that were read ahead take beyond the least that they may, and the measurement that found less of it than
    /// the one before.
    read_ahead_spare_bytes: AtomicU64,
    read_ahead_fell_at: AtomicU32,
    limit_bytes: AtomicI64,
    resident_bytes: AtomicU64,
    resident_peak_bytes: AtomicU64,
    /// Measurements in a row that found `maxmemory` resident.
    full_measures: AtomicU32,
    /// The same beside what is left to reads.
    full_beside_measures: AtomicU32,
    /// All measurements, modulo 2^32.
    measures: AtomicU32,
    /// Whether pages take much more than what is in them, and `maxmemory` is nearly resident.
    is_loose: AtomicBool,
    /// The last measurement at which defragmentation moved something.
    packed_at: AtomicU32,
    meter: Mutex<Meter>,
}

#[derive(Debug)]
struct Meter {
    resident: Box<dyn ResidentSource>,
    base_bytes: i64,
    peak_bytes: i64,
    /// What was resident lately: an average that a measurement moves by 1/`LEVEL_MEASURES`.
    level_bytes: i64,
    ratio: i64,
    /// Whether there is flash for values to go to.
    demotes: bool,
    fixed: Fixed,
}

/// What is resident beside the data set and what clients hold: code, buffers of the engine, and what pages have beside
/// what is in them. While clients hold much, most of that may not be resident, and for a moment after that what they
/// held is resident still: so it is the least of the last [`LEVEL_MEASURES`] or more that found them holding little.
#[derive(Debug, Default)]
struct Fixed {
    measures: i64,
    least: Option<i64>,
    least_before: Option<i64>,
}

impl Fixed {
    fn note(&mut self, bytes: i64) {
        self.least = Some(self.least.map_or(bytes, |least| least.min(bytes)));
        self.measures += 1;
        if self.measures == LEVEL_MEASURES {
            *self = Fixed { least_before: self.least, ..Fixed::default() };
        }
    }

    /// 0 before the first measurement.
    fn bytes(&self) -> i64 {
        self.least.into_iter().chain(self.least_before).min().unwrap_or(0)
    }
}

impl Budget {
    /// A budget of `max_bytes`, 0 for none. Call before anything large is allocated: what is
    /// resident now is the base. Errors: `/proc` is not mounted.
    pub fn new(max_bytes: u64) -> std::io::Result<Budget> {
        Ok(Budget::with_source(max_bytes, Box::new(ResidentSet::open()?)))
    }

    /// The same, with another account of resident memory.
    pub fn with_source(max_bytes: u64, mut resident: Box<dyn ResidentSource>) -> Budget {
        let base_bytes = resident.resident_bytes().unwrap_or(0) as i64;
        let meter = Meter {
            resident,
            base_bytes,
            peak_bytes: 0,
            level_bytes: 0,
            ratio: RATIO_FIRST,
            demotes: false,
            fixed: Fixed::default(),
        };
        let budget = Budget {
            max_bytes: AtomicU64::new(max_bytes),
            data_bytes: AtomicI64::new(0),
            freeing: AtomicI64::new(0),
            data_at_measure: AtomicI64::new(0),
            had_shrunk: AtomicBool::new(false),
            grown_bytes: AtomicU64::new(0),
            connection_bytes: AtomicI64::new(0),
            buffer_bytes: AtomicI64::new(0),
            reserved_bytes: AtomicI64::new(0),
            background_bytes: AtomicI64::new(0),
            room_for_reads: AtomicI64::new(0),
            keys_that_stay: AtomicI64::new(i64::MIN),
            room_beside_keys: AtomicI64::new(i64::MAX),
            data_at_refusal: AtomicI64::new(i64::MIN),
            claimed_bytes: AtomicI64::new(0),
            engine_bytes: AtomicI64::new(0),
            engine_bytes_to_come: AtomicI64::new(0),
            read_ahead_spare_bytes: AtomicU64::new(0),
            read_ahead_fell_at: AtomicU32::new(0u32.wrapping_sub(READ_AHEAD_MEASURES)),
            limit_bytes: AtomicI64::new(i64::MAX),
            resident_bytes: AtomicU64::new(base_bytes as u64),
            resident_peak_bytes: AtomicU64::new(base_bytes as u64),
            full_measures: AtomicU32::new(0),
            full_beside_measures: AtomicU32::new(0),
            measures: AtomicU32::new(0),
            is_loose: AtomicBool::new(false),
            packed_at: AtomicU32::new(0u32.wrapping_sub(PACKED_MEASURES)),
            meter: Mutex::new(meter),
        };
        budget.measure();
        budget
    }

    /// Says whether there is flash, so that values are demoted and leave holes in their pages.
    pub(crate) fn set_demotes(&self, demotes: bool) {
        self.meter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).demotes = demotes;
        self.data_at_refusal.store(i64::MIN, Ordering::Relaxed);
    }

    /// The limit on what is tracked; `i64::MAX` without `maxmemory`.
    #[inline]
    pub(crate) fn limit_bytes(&self) -> i64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// `maxmemory`, 0 for none.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
    }

    /// Adds to what connections' buffers take, until [`Budget::set_buffers`] counts them anew; the
    /// sum, in bytes.
    pub fn add_buffers(&self, bytes: i64) -> i64 {
        self.buffer_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Adds to what requests under way have reserved beside their buffers.
    pub fn add_reserved(&self, bytes: i64) {
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to what work in the background has reserved, which counts as nobody's.
    pub(crate) fn add_background(&self, bytes: i64) {
        self.background_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What it has, in bytes.
    pub fn background_bytes(&self) -> i64 {
        self.background_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_claimed(&self, bytes: i64) {
        self.claimed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What large requests were let have and may not be resident yet, in bytes.
    pub(crate) fn claimed_bytes(&self) -> i64 {
        self.claimed_bytes.load(Ordering::Relaxed)
    }

    /// Adds to that, unless it is no longer `seen`: others have claimed meanwhile, or what they had
    /// claimed is resident by now.
    pub(crate) fn add_claimed_to(&self, seen: i64, bytes: u64) -> bool {
        let sum = seen + bytes as i64;
        let claimed = &self.claimed_bytes;
        claimed.compare_exchange(seen, sum, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Says that writes were refused: what the data set takes is all that fits.
    pub(crate) fn note_refusal(&self) {
        let data_bytes = self.data_bytes.load(Ordering::Relaxed);
        self.data_at_refusal.store(data_bytes, Ordering::Relaxed);
    }

    /// What the data set takes, in bytes.
    pub(crate) fn data_bytes(&self) -> i64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the data set takes less than then; negative when it takes more.
    pub(crate) fn freed_since_refusal(&self) -> i64 {
        let data_bytes = self.data_bytes.load(Ordering::Relaxed);
        self.data_at_refusal.load(Ordering::Relaxed).saturating_sub(data_bytes)
    }

    /// What keys, values and clients share of the limit: all but the buffers of the engine and connections.
    pub(crate) fn shared_bytes(&self) -> i64 {
        self.limit_bytes()
            - self.engine_bytes.load(Ordering::Relaxed)
            - self.engine_bytes_to_come.load(Ordering::Relaxed)
            - self.connection_bytes.load(Ordering::Relaxed)
    }

    /// Says whether the data set is to leave room to reads: it can make none for them by demotion.
    pub(crate) fn set_leaves_room(&self, leaves_room: bool) {
        let room = if leaves_room { self.reads_bytes() } else { 0 };
        self.room_for_reads.store(room, Ordering::Relaxed);
    }

    /// What is left to reads where it is, in bytes.
    pub(crate) fn reads_bytes(&self) -> i64 {
        (self.max_bytes() >> READS_SHIFT) as i64
    }

    /// Says how many bytes keys take that stay in RAM; none: any may go.
    pub(crate) fn set_keys_that_stay(&self, keys_bytes: Option<i64>) {
        self.keys_that_stay.store(keys_bytes.unwrap_or(i64::MIN), Ordering::Relaxed);
    }

    /// What such keys leave of `maxmemory` to clients and values, in bytes: no less than what is left to reads,
    /// `i64::MAX` where any may go, or there is no `maxmemory`.
    #[inline]
    pub fn room_beside_keys(&self) -> u64 {
        self.room_beside_keys.load(Ordering::Relaxed) as u64
    }

    /// Measures that room. Cost: some loads.
    fn measure_room(&self, meter: &mut Meter, resident: i64) {
        let max = self.max_bytes() as i64;
        let clients_bytes = self.client_bytes();
        if clients_bytes < max >> FEW_CLIENTS_SHIFT {
            let data_bytes = self.data_bytes.load(Ordering::Relaxed);
            meter.fixed.note(resident - data_bytes - clients_bytes);
        }
        let room = match self.keys_that_stay.load(Ordering::Relaxed) {
            _ if max == 0 => i64::MAX,
            i64::MIN => i64::MAX,
            keys_bytes => (max - keys_bytes - meter.fixed.bytes()).max(max >> READS_SHIFT),
        };
        self.room_beside_keys.store(room, Ordering::Relaxed);
    }

    /// What the data set is to leave to reads, in bytes: 0 unless it can make no room for them.
    #[inline]
    pub(crate) fn room_for_reads(&self) -> i64 {
        self.room_for_reads.load(Ordering::Relaxed)
    }

    /// Adds to the number of those who free what was flushed.
    pub(crate) fn add_freeing(&self, count: i64) {
        self.freeing.fetch_add(count, Ordering::Relaxed);
    }

    /// Whether somebody frees what was flushed.
    pub(crate) fn is_freeing(&self) -> bool {
        self.freeing.load(Ordering::Relaxed) > 0
    }

    /// Whether the data set gets smaller: what was flushed is being freed, or it took less at the last
    /// measurement than before, or takes less since.
    pub(crate) fn shrinks(&self) -> bool {
        self.is_freeing() || self.had_shrunk.load(Ordering::Relaxed) || self.has_shrunk()
    }

    fn has_shrunk(&self) -> bool {
        let data_bytes = self.data_bytes.load(Ordering::Relaxed);
        self.data_at_measure.load(Ordering::Relaxed) - data_bytes >= WRITE_BYTES
    }

    /// Whether large requests were let have memory that may not be resident yet.
    pub fn has_claims(&self) -> bool {
        self.claimed_bytes.load(Ordering::Relaxed) > 0
    }

    /// What connections' buffers take, in bytes.
    pub fn buffer_bytes(&self) -> i64 {
        self.buffer_bytes.load(Ordering::Relaxed)
    }

    /// What requests under way have reserved beside their buffers, in bytes.
    pub fn reserved_bytes(&self) -> i64 {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// What clients take besides their connections by themselves: buffers, and what their requests have reserved,
    /// in bytes.
    pub fn client_bytes(&self) -> i64 {
        self.buffer_bytes() + self.reserved_bytes()
    }

    /// Changes `maxmemory`; in force at once.
    pub fn set_max_bytes(&self, bytes: u64) {
        self.max_bytes.store(bytes, Ordering::Relaxed);
        self.data_at_refusal.store(i64::MIN, Ordering::Relaxed);
        self.measure();
    }

    /// Adds what the data set grew (or shrank) by.
    #[inline]
    pub(crate) fn add_data(&self, bytes: i64) {
        if bytes != 0 {
            self.data_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if bytes > 0 {
            self.grown_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// What batches that made the data set larger have added, in all, in bytes.
    pub(crate) fn grown_bytes(&self) -> u64 {
        self.grown_bytes.load(Ordering::Relaxed)
    }

    /// Says what connections take by themselves, and the journal.
    pub fn set_connections(&self, bytes: i64) {
        self.connection_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says what connections' buffers take.
    pub fn set_buffers(&self, bytes: i64) {
        self.buffer_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts what the engine takes more or less, until all is measured. A measurement beside it may count that twice, or
    /// not at all, until the next one.
    pub(crate) fn add_engine(&self, bytes: i64) {
        self.engine_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says what the engine takes, and what it will take besides when it writes.
    pub(crate) fn set_engine(&self, bytes: u64, bytes_to_come: u64) {
        self.engine_bytes.store(bytes as i64, Ordering::Relaxed);
        self.engine_bytes_to_come.store(bytes_to_come as i64, Ordering::Relaxed);
    }

    /// Says what blocks that were read ahead take beyond the least that they may: they go while memory is short.
    pub(crate) fn set_read_ahead_spare(&self, bytes: u64) {
        if self.read_ahead_spare_bytes.swap(bytes, Ordering::Relaxed) > bytes {
            self.read_ahead_fell_at.store(self.measures(), Ordering::Relaxed);
        }
    }

    /// Whether some of them are to go, or went so lately that their pages may be on their way.
    pub(crate) fn read_ahead_shrinks(&self) -> bool {
        let since = self.measures().wrapping_sub(self.read_ahead_fell_at.load(Ordering::Relaxed));
        self.read_ahead_spare_bytes.load(Ordering::Relaxed) > 0 || since < READ_AHEAD_MEASURES
    }

    /// All that is counted. What clients hold is counted anew now and then while they change it, so that
    /// for a moment it may seem to be less than nothing.
    #[inline]
    fn tracked(&self) -> i64 {
        let counted = self.data_bytes.load(Ordering::Relaxed)
            + self.connection_bytes.load(Ordering::Relaxed)
            + self.client_bytes()
            + self.background_bytes()
            + self.engine_bytes.load(Ordering::Relaxed)
            + self.engine_bytes_to_come.load(Ordering::Relaxed);
        counted.max(0)
    }

    /// Bytes over the limit, at most 0 when there is room.
    #[inline]
    pub fn over_limit(&self) -> i64 {
        self.tracked() - self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Whether `maxmemory` was resident at the last measurement. The limit is an estimate of what
    /// comes to that: a write is refused for the fact alone.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full_with(0)
    }

    /// Whether it would be with so many bytes more, beside what others have claimed.
    #[inline]
    pub(crate) fn is_full_with(&self, wanted_bytes: u64) -> bool {
        self.is_full_beside(wanted_bytes, 0)
    }

    /// The same where `left_bytes` are to be left to reads.
    #[inline]
    pub(crate) fn is_full_beside(&self, wanted_bytes: u64, left_bytes: i64) -> bool {
        let claimed = match wanted_bytes {
            0 => 0,
            _ => self.claimed_bytes.load(Ordering::Relaxed).max(0),
        };
        self.max_bytes() != 0 && self.missing_bytes(wanted_bytes, left_bytes) + claimed >= 0
    }

    /// What would be resident beyond `maxmemory` with so many bytes more, what others have claimed and is
    /// not resident yet left out. Large requests leave the margin free for what grows meanwhile, and so do those that are
    /// to leave `left_bytes` to reads, which are large.
    #[inline]
    pub(crate) fn missing_bytes(&self, wanted_bytes: u64, left_bytes: i64) -> i64 {
        let max = self.max_bytes() as i64;
        let margin = if wanted_bytes > 0 || left_bytes > 0 { max >> MARGIN_SHIFT } else { 0 };
        let resident = self.resident_bytes.load(Ordering::Relaxed) as i64;
        resident + wanted_bytes as i64 + margin + left_bytes - max
    }

    /// How much of `maxmemory` was resident at the last measurement, together with `wanted_bytes`
    /// that are reserved and soon will be, and `left_bytes` that are left to reads.
    pub(crate) fn resident(&self, wanted_bytes: u64, left_bytes: i64) -> Resident {
        if self.is_full_beside(wanted_bytes, left_bytes) {
            let measures =
                if left_bytes > 0 { &self.full_beside_measures } else { &self.full_measures };
            let lasts = measures.load(Ordering::Relaxed) >= FULL_MEASURES;
            let for_now = !lasts && self.may_fit(-left_bytes);
            if for_now { Resident::FullForNow } else { Resident::Full }
        } else if self.is_nearly_full() {
            Resident::NearlyFull
        } else {
            Resident::NotFull
        }
    }

    /// Whether `maxmemory` was overrun by half of the margin at the last measurement.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        let max = self.max_bytes();
        max != 0 && self.resident_bytes.load(Ordering::Relaxed) > max + (max >> OVERRUN_SHIFT)
    }

    /// Whether it would be with so many bytes more and what others have claimed, if they have claimed anything.
    pub(crate) fn is_overrun_by_claims(&self, wanted_bytes: u64) -> bool {
        let max = self.max_bytes();
        let claimed = self.claimed_bytes().max(0) as u64;
        let resident = self.resident_bytes.load(Ordering::Relaxed) + claimed + wanted_bytes;
        max != 0 && claimed > 0 && resident > max + (max >> OVERRUN_SHIFT)
    }

    /// Whether that is so but for the margin.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let max = self.max_bytes();
        max != 0 && self.resident_bytes.load(Ordering::Relaxed) >= max - (max >> MARGIN_SHIFT)
    }

    /// Whether `maxmemory` would not be overrun with so many bytes more, and nobody has claimed anything.
    pub(crate) fn bears_alone(&self, wanted_bytes: u64) -> bool {
        let max = self.max_bytes();
        let resident = self.resident_bytes.load(Ordering::Relaxed);
        self.claimed_bytes() == 0 && resident + wanted_bytes <= max + (max >> OVERRUN_SHIFT)
    }

    /// Whether what is allocated would fit, so many bytes less.
    pub(crate) fn may_fit(&self, less_bytes: i64) -> bool {
        let needed = self.base_bytes() as i64 + self.tracked() - less_bytes;
        needed < self.max_bytes() as i64
    }

    /// Measurements so far, modulo 2^32.
    pub fn measures(&self) -> u32 {
        self.measures.load(Ordering::Relaxed)
    }

    /// Says that defragmentation has moved something.
    pub(crate) fn note_packed(&self) {
        self.packed_at.store(self.measures(), Ordering::Relaxed);
    }

    /// Whether it has lately.
    fn is_packing(&self) -> bool {
        let since = self.measures().wrapping_sub(self.packed_at.load(Ordering::Relaxed));
        since < PACKED_MEASURES
    }

    /// Whether `maxmemory` is nearly resident, but for what is left to reads, and much of that is pages' and not of what
    /// is in them.
    #[inline]
    pub fn is_loose(&self) -> bool {
        self.is_loose.load(Ordering::Relaxed)
    }

    /// Bytes over the mark at which demotion begins, at most 0 when there is nothing to do.
    #[inline]
    pub fn over_watermark(&self) -> i64 {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        self.tracked() + self.room_for_reads() - (limit - (limit >> WATERMARK_SHIFT))
    }

    /// Measures resident memory, and leaves the limit as it is. Cost: about 3 us.
    pub(crate) fn measure_resident(&self) -> Option<u64> {
        let mut meter = self.meter.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.read_resident(&mut meter)
    }

    fn read_resident(&self, meter: &mut Meter) -> Option<u64> {
        let resident = meter.resident.resident_bytes()?;
        self.resident_bytes.store(resident, Ordering::Relaxed);
        self.resident_peak_bytes.fetch_max(resident, Ordering::Relaxed);
        Some(resident)
    }

    /// Measures resident memory and sets the limit anew. Cost: about 3 us; fifty times a second.
    pub fn measure(&self) {
        let mut meter = self.meter.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(resident) = self.read_resident(&mut meter) else { return };
        self.measures.fetch_add(1, Ordering::Relaxed);
        self.had_shrunk.store(self.has_shrunk(), Ordering::Relaxed);
        self.data_at_measure.store(self.data_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        let left_bytes = self.room_for_reads();
        for (measures, left_bytes) in
            [(&self.full_measures, 0), (&self.full_beside_measures, left_bytes)]
        {
            match self.is_full_beside(0, left_bytes) {
                true => drop(measures.fetch_add(1, Ordering::Relaxed)),
                false => measures.store(0, Ordering::Relaxed),
            }
        }
        self.measure_room(&mut meter, resident as i64);
        let limit = match self.max_bytes() {
            0 => i64::MAX,
            max => meter.limit(max as i64, resident as i64, self.tracked(), self.is_packing()),
        };
        let max = self.max_bytes() as i64;
        let full = if max == 0 { 0 } else { max - left_bytes };
        let is_loose = meter.is_loose(full, resident as i64, self.tracked());
        self.is_loose.store(is_loose, Ordering::Relaxed);
        self.limit_bytes.store(limit, Ordering::Relaxed);
    }

    /// What is in use.
    pub fn memory_use(&self) -> MemoryUse {
        MemoryUse {
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            client_bytes: self.connection_bytes.load(Ordering::Relaxed)
                + self.client_bytes()
                + self.background_bytes(),
            engine_bytes: self.engine_bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
            resident_bytes: self.resident_bytes.load(Ordering::Relaxed),
            resident_peak_bytes: self.resident_peak_bytes.load(Ordering::Relaxed),
        }
    }

    /// What is resident before any data is.
    pub fn base_bytes(&self) -> u64 {
        self.meter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).base_bytes as u64
    }
}

impl Meter {
    fn is_loose(&self, max_bytes: i64, resident: i64, tracked: i64) -> bool {
        let overhead = resident - self.base_bytes - tracked;
        max_bytes != 0
            && resident >= max_bytes - 2 * (max_bytes >> MARGIN_SHIFT)
            && tracked >= LOOSE_BYTES_MIN
            && overhead > tracked >> LOOSE_SHIFT
    }

    fn limit(&mut self, max_bytes: i64, resident: i64, tracked: i64, is_packing: bool) -> i64 {
        let margin = max_bytes >> MARGIN_SHIFT;
        let target = max_bytes - margin - self.holes_to_come(max_bytes, resident, tracked);
        self.peak_bytes = tracked.max(self.peak_bytes - (self.peak_bytes >> PEAK_DECAY_SHIFT));
        if tracked >= RATIO_BYTES_MIN {
            let measured = (resident - self.base_bytes) * RATIO_ONE / tracked;
            let far_from_peak = tracked < self.peak_bytes - self.peak_bytes / 16;
            let high = target + margin / 2;
            let falls = self.level_bytes - resident > max_bytes >> LEVEL_SHIFT;
            let rises = resident - self.level_bytes > max_bytes >> LEVEL_SHIFT;
            self.level_bytes += (resident - self.level_bytes) / LEVEL_MEASURES;
            let bearable = resident <= high || resident < max_bytes && !rises;
            // Without flash what goes are keys, and what is resident falls as pages empty: keys that
            // went a moment ago must not make others go, unless `maxmemory` stays resident. While what is left is
            // packed, it may be by a little: each key that goes leaves a hole, which would look like more overhead.
            let is_overrun = resident > max_bytes + (max_bytes >> OVERRUN_SHIFT);
            let settles = !self.demotes
                && (is_packing && !is_overrun || far_from_peak && (falls || resident < max_bytes));
            let holds = bearable && (resident >= target || far_from_peak) || settles;
            let wanted = if holds { measured.min(self.ratio) } else { measured };
            self.follow(wanted, max_bytes, resident - high);
        }
        let room = (target - self.base_bytes).max(0);
        let free = (target - resident) * RATIO_ONE / RATIO_FIRST;
        if free > 0 && room * RATIO_ONE / self.ratio < tracked + free {
            // What is not resident yet is free. The ratio learns of it at once: else the limit would
            // fall to what it says when the target is reached, and every writer wait.
            self.ratio = (room * RATIO_ONE / (tracked + free)).max(RATIO_ONE);
        }
        let watermark = room * RATIO_ONE / self.ratio;
        watermark + (watermark >> WATERMARK_SHIFT)
    }

    /// What a data set needs besides that is denser than it will be once values leave it, less the
    /// more holes there are. Filled to the brim at full speed, it would have to lose a part of its
    /// values at once for each page that new keys need: the ratio learns too late that what goes
    /// leaves a hole.
    fn holes_to_come(&self, max_bytes: i64, resident: i64, tracked: i64) -> i64 {
        if !self.demotes {
            return 0;
        }
        let usual = tracked >> LOOSE_SHIFT;
        let missing = usual - (resident - self.base_bytes - tracked);
        let part = missing.clamp(0, usual) * RATIO_ONE / usual.max(1);
        (max_bytes >> HOLES_SHIFT) * part / RATIO_ONE
    }

    /// Moves the ratio a step towards `wanted`: while more is resident than may be (`excess` above
    /// 0), in proportion to the excess.
    fn follow(&mut self, wanted: i64, max_bytes: i64, excess: i64) {
        let speed = speed(max_bytes);
        let step_max = if excess > max_bytes >> MARGIN_SHIFT {
            self.ratio >> RATIO_STEP_SHIFT_OVER
        } else {
            self.ratio >> RATIO_STEP_SHIFT
        };
        let step_up = match excess {
            1.. => step_max.min(self.ratio * excess / max_bytes / EXCESS_MEASURES),
            _ => step_max,
        };
        self.ratio = wanted.clamp(self.ratio - step_max * speed, self.ratio + step_up * speed);
        self.ratio = self.ratio.clamp(RATIO_ONE, RATIO_MAX);
    }
}

/// How much larger a part of this budget changes in a moment than of a large one.
fn speed(max_bytes: i64) -> i64 {
    (LARGE_BUDGET_BYTES / max_bytes.max(1)).clamp(1, SPEED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> Meter {
        let resident = Box::new(ResidentSet::open().expect("/proc"));
        Meter {
            resident,
            base_bytes: 10 << 20,
            peak_bytes: 0,
            level_bytes: 0,
            ratio: RATIO_ONE,
            demotes: true,
            fixed: Fixed::default(),
        }
    }

    #[test]
    fn what_is_allocated_decides_whether_full_is_for_now_and_time_that_it_is_not() {
        let _alone = crate::process_memory::tests::alone();
        let budget = Budget::new(1).expect("a budget");
        assert_eq!(budget.resident(0, 0), Resident::Full, "the base alone is more");
        budget.set_max_bytes(budget.base_bytes() + (16 << 20));
        // Resident, though the budget knows nothing of it: as pages that values have left are.
        let pages = vec![1u8; 64 << 20];
        budget.measure();
        assert_eq!(budget.resident(0, 0), Resident::FullForNow);
        budget.add_data(16 << 20);
        assert_eq!(budget.resident(0, 0), Resident::Full, "it would not fit");
        budget.add_data(-(16 << 20));
        (0..FULL_MEASURES).for_each(|_| budget.measure());
        assert_eq!(budget.resident(0, 0), Resident::Full);
        assert_eq!(pages[1 << 20], 1);
    }

    #[test]
    fn what_others_were_let_have_counts_as_resident_only_where_there_is_any() {
        let budget = Budget::new(4 << 30).expect("a budget");
        assert!(!budget.is_overrun_by_claims(8 << 30));
        budget.add_claimed(1 << 30);
        let left = (4 << 30) + (4 << 30 >> OVERRUN_SHIFT) - (1 << 30);
        let left = left - budget.memory_use().resident_bytes;
        assert!(budget.is_overrun_by_claims(left + 1));
        budget.add_claimed(-1);
        assert!(!budget.is_overrun_by_claims(left + 1));
    }

    #[test]
    fn a_large_request_may_take_the_margin_alone() {
        let max = 4 << 30;
        let budget = Budget::new(max).expect("a budget");
        let left = max + (max >> OVERRUN_SHIFT) - budget.memory_use().resident_bytes;
        assert!(budget.is_full_with(left) && budget.bears_alone(left));
        assert!(!budget.bears_alone(left + 1), "it would overrun `maxmemory`");
        budget.add_claimed(1);
        assert!(!budget.bears_alone(0), "it would not be alone");
    }

    #[test]
    fn the_limit_leaves_room_for_what_the_allocator_adds() {
        let mut meter = meter();
        let max = 1 << 30;
        let tracked = 500 << 20;
        let mut measure = || meter.limit(max, (10 << 20) + tracked + tracked / 10, tracked, false);
        let first = measure();
        let limit = (0..400).map(|_| measure()).last().expect("measured");
        assert!(first > limit, "the limit moves in steps");
        // A tenth is overhead; an eighth is to be expected.
        let holes_to_come = (max >> HOLES_SHIFT) / 5;
        let watermark = (max - (max >> MARGIN_SHIFT) - holes_to_come - (10 << 20)) * 10 / 11;
        let expected = watermark + (watermark >> WATERMARK_SHIFT);
        assert!((limit - expected).abs() < expected / 500, "{limit} {expected}");
    }

    #[test]
    fn freed_memory_that_is_still_resident_is_not_taken_for_overhead() {
        // Without flash: with it, the limit rises by what is kept for holes to come.
        let mut meter = Meter { demotes: false, ..meter() };
        let before = meter.limit(1 << 30, (10 << 20) + (500 << 20), 500 << 20, false);
        let after = meter.limit(1 << 30, (10 << 20) + (500 << 20), 200 << 20, false);
        assert_eq!(before, after);
    }

    #[test]
    fn what_seems_to_be_less_than_nothing_for_a_moment_is_nothing() {
        let budget = Budget::new(64 << 20).expect("memory can be measured");
        budget.add_buffers(-(100 << 20));
        assert_eq!(budget.tracked(), 0);
        budget.measure();
        assert!(budget.over_limit() < 0);
    }

    #[test]
    fn a_dense_data_set_keeps_room_for_holes_and_one_with_holes_does_not() {
        let (max, tracked) = (1 << 30, 800 << 20);
        let room = |overhead| meter().holes_to_come(max, (10 << 20) + tracked + overhead, tracked);
        assert_eq!(room(0), max >> HOLES_SHIFT);
        assert_eq!(room(tracked >> (LOOSE_SHIFT + 1)), max >> (HOLES_SHIFT + 1));
        assert_eq!([room(tracked >> LOOSE_SHIFT), room(tracked)], [0, 0]);
        let loose =
            |resident, overhead| meter().is_loose(max, resident, resident - (10 << 20) - overhead);
        let full = max - (max >> MARGIN_SHIFT);
        assert!(loose(full, 150 << 20) && !loose(full, 80 << 20) && !loose(full / 2, 150 << 20));
    }

    #[test]
    fn a_small_excess_is_borne_and_a_larger_one_is_not() {
        let max = 1 << 30;
        let margin = max >> MARGIN_SHIFT;
        for (excess, is_borne) in [(margin / 4, true), (margin, false)] {
            let mut meter = meter();
            let tracked = 800 << 20;
            let mut measure = || meter.limit(max, max - margin + excess, tracked, false);
            let first = measure();
            let last = (0..2_000).map(|_| measure()).last().expect("measured");
            assert_eq!(last >= first, is_borne, "{first} {last}");
            assert_eq!(last - (last >> WATERMARK_SHIFT) < tracked, !is_borne);
        }
    }

    #[test]
    fn an_excess_that_does_not_rise_costs_no_values() {
        let max = 1 << 30;
        let margin = max >> MARGIN_SHIFT;
        for (excess, is_borne) in [(margin * 3 / 4, true), (margin * 5 / 4, false)] {
            let (mut meter, mut tracked) = (meter(), 800 << 20);
            for _ in 0..10_000 {
                // Pages do not come free, however many values leave them.
                let limit = meter.limit(max, max - margin + excess, tracked, false);
                tracked = tracked.min(limit - (limit >> WATERMARK_SHIFT));
            }
            assert_eq!(tracked > 700 << 20, is_borne, "{tracked}");
        }
    }

    #[test]
    fn without_flash_keys_do_not_go_for_holes_that_are_being_filled_unless_memory_is_overrun() {
        let max = 64 << 20;
        for (excess, is_packing, is_borne) in
            [(max >> 8, true, true), (max >> 8, false, false), (max >> 5, true, false)]
        {
            let mut meter = Meter { demotes: false, ..meter() };
            let tracked = 47 << 20;
            let mut measure = || meter.limit(max, max + excess, tracked, is_packing);
            let first = measure();
            let last = (0..500).map(|_| measure()).last().expect("measured");
            assert_eq!(last >= first, is_borne, "{first} {last} {excess} {is_packing}");
        }
    }

    #[test]
    fn there_is_room_while_less_is_resident_than_may_be() {
        let mut meter = meter();
        meter.ratio = 3 * RATIO_ONE;
        let limit = meter.limit(1 << 30, 500 << 20, 200 << 20, false);
        assert!(limit > 500 << 20, "{limit}");
        let at_target = (1 << 30) - ((1 << 30) >> MARGIN_SHIFT);
        let later = meter.limit(1 << 30, at_target, limit, false);
        assert!(later > limit - limit / 50, "{later}: it must not fall at once");
    }

    #[test]
    fn no_budget_is_no_limit() {
        let budget = Budget::new(0).expect("/proc");
        assert!(budget.over_watermark() < 0);
        budget.set_max_bytes(1 << 20);
        budget.add_data(2 << 20);
        assert!(budget.over_limit() > 0, "a budget below the base leaves no room at all");
    }
}
