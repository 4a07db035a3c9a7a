//! The controller in a closed loop with models of the allocator and of the drive.

use super::*;

const KEY: i64 = 64;
const VALUE: i64 = 512;
/// Records that the drive takes at a time.
const BUFFERED_MAX: i64 = 64;
/// Slices after which a write has waited too long.
const OVERDUE: usize = 5_000;

/// A server as the controller sees it. All keys have a value of the same size.
struct World {
    max: i64,
    has_flash: bool,
    may_evict: bool,
    keys: i64,
    /// Values in RAM.
    hot: i64,
    resident: i64,
    full_measures: usize,
    /// Records that flash holds at most, that may still be written, and that live.
    flash: [i64; 3],
    buffered: i64,
    due: i64,
    deficit: i64,
    evicted: i64,
    refused: u64,
    slices: usize,
    resident_peak: i64,
}

impl World {
    fn new(max: i64, flash_records: i64, may_evict: bool) -> World {
        World {
            max,
            has_flash: flash_records > 0,
            may_evict,
            keys: 0,
            hot: 0,
            resident: 0,
            full_measures: 0,
            flash: [flash_records, flash_records, 0],
            buffered: 0,
            due: 0,
            deficit: i64::MAX,
            evicted: 0,
            refused: 0,
            slices: 0,
            resident_peak: 0,
        }
    }

    fn allocated(&self) -> i64 {
        self.keys * KEY + self.hot * VALUE
    }

    fn limit(&self) -> i64 {
        (self.max - self.max / 32) * 8 / 9
    }

    fn figures(&self) -> Figures {
        let limit = self.limit();
        let resident = if self.resident < self.max - self.max / 32 {
            Resident::NotFull
        } else if self.resident < self.max {
            Resident::NearlyFull
        } else if self.full_measures < 250 && self.allocated() < self.max {
            Resident::FullForNow
        } else {
            Resident::Full
        };
        Figures {
            over_limit: self.allocated() - limit,
            over_watermark: self.allocated() - (limit - limit / 64),
            limit_bytes: limit,
            resident,
            is_overrun: self.resident > self.max + self.max / 64,
            is_overrun_by_claims: false,
            may_empty_pages: false,
            has_flash: self.has_flash,
            may_evict: self.may_evict && self.keys > 0,
            data_bytes: self.keys * KEY + self.hot * VALUE,
            values_bytes: self.hot * VALUE,
            fits_without_values: self.keys * KEY < self.max,
            may_defrag: false,
            own_hand_may_find: true,
            other_hands_may_find: false,
            is_large: false,
            owed_bytes: 0,
            missing_bytes: self.resident - self.max,
            is_held_up: false,
            bears_alone: false,
            shrinks: false,
            read_ahead_shrinks: false,
            freed_since_refusal: 0,
        }
    }

    /// The allocator gives pages back slowly: values leave holes.
    fn measure(&mut self) {
        let used = self.allocated() * 9 / 8;
        let step =
            if used > self.resident { used - self.resident } else { (used - self.resident) / 8 };
        self.resident += step;
        self.resident_peak = self.resident_peak.max(self.resident);
        self.full_measures = if self.resident >= self.max { self.full_measures + 1 } else { 0 };
    }

    fn demote(&mut self, bytes: i64, done: &mut Done) {
        while done.demoted_bytes < bytes {
            done.stopped = match () {
                () if self.hot == 0 => Some(StopReason::Spent),
                () if self.buffered == BUFFERED_MAX => Some(StopReason::Busy),
                () if self.flash[1] == 0 => Some(StopReason::Full),
                () => None,
            };
            if done.stopped.is_some() {
                break;
            }
            self.hot -= 1;
            self.buffered += 1;
            self.flash[1] -= 1;
            self.flash[2] += 1;
            done.demoted_bytes += VALUE;
        }
    }

    /// Keys go, those with values on flash first, which free next to nothing.
    fn evict(&mut self, bytes: i64) -> EvictedKeys {
        let mut evicted = EvictedKeys::default();
        while evicted.freed_bytes < bytes && self.keys > 0 {
            let is_cold = self.keys > self.hot;
            self.hot -= i64::from(!is_cold);
            self.flash[2] -= i64::from(is_cold);
            self.keys -= 1;
            evicted.keys += 1;
            evicted.freed_bytes += if is_cold { KEY } else { KEY + VALUE };
        }
        evicted.is_spent = evicted.keys == 0;
        self.evicted += evicted.keys as i64;
        evicted
    }

    fn gc(&mut self) -> bool {
        let [capacity, free, live] = self.flash;
        let below = capacity / 64;
        let bytes = |records: i64| records as u64 * VALUE as u64;
        let space = flash::FreeSpace {
            held_bytes: 0,
            coming_bytes: 0,
            is_held_up: false,
            free_bytes: bytes(free),
            gc_below_bytes: bytes(below),
            short_below_bytes: bytes(below),
            capacity_bytes: bytes(capacity),
            live_bytes: bytes(live),
        };
        if free >= below {
            return false;
        }
        let garbage = capacity - free - live;
        if evicts_from_flash(&space) && self.may_evict {
            self.keys -= below;
            self.evicted += below;
            self.flash = [capacity, free + below, live - below];
            return true;
        }
        self.flash[1] += garbage.min(below);
        garbage > 0
    }

    fn run(&mut self, slice: Slice) -> Done {
        assert!(slice.demote_bytes <= SLICE_BYTES_MAX && slice.evict_bytes <= SLICE_BYTES_MAX);
        self.slices += 1;
        let mut done = Done::default();
        if slice.demote_bytes > 0 {
            self.demote(slice.demote_bytes, &mut done);
            done.gc_frees = done.stopped == Some(StopReason::Full) && self.gc();
        } else if self.has_flash {
            done.stopped = Some(StopReason::Spent);
        }
        let left = self.figures().left_to_evict(slice, &done);
        if left > 0 {
            done.evicted = Some(self.evict(left));
        }
        done
    }

    /// A new key, as a client writes it. False: it is refused.
    fn write(&mut self) -> bool {
        if self.figures().pressure() == Pressure::Wait && !self.wait() {
            self.refused += 1;
            return false;
        }
        self.keys += 1;
        self.hot += 1;
        self.after_batch(KEY + VALUE);
        true
    }

    fn after_batch(&mut self, grown: i64) {
        self.due += 2 * grown;
        if self.figures().pressure() != Pressure::None && self.due >= 64 << 10 {
            let due = std::mem::take(&mut self.due);
            let figures = self.figures();
            self.run(figures.slice(due.min(figures.over_watermark)));
        }
        if self.keys % 64 == 0 {
            self.buffered = 0;
            self.gc();
            self.measure();
        }
    }

    fn wait(&mut self) -> bool {
        for step in 0..2 * OVERDUE {
            if step % 16 == 15 {
                self.measure();
            }
            let figures = self.figures();
            let mut done = self.run(figures.slice_for_waiting(1, 0, 0));
            done.is_overdue = step > OVERDUE;
            let mut next = self.figures().judge(&done, self.deficit);
            if let Next::Evict(bytes) = next {
                done.evicted = Some(self.evict(bytes));
                next = self.figures().judge(&done, self.deficit);
                assert!(!matches!(next, Next::Evict(_)), "it is tried once a slice");
            }
            match next {
                Next::AdmitAll | Next::Admit(_) | Next::AdmitAlone | Next::AdmitBeyondLimit => {
                    assert_ne!(next, Next::Admit(0));
                    let over = self.figures().over_limit;
                    self.deficit = if over > 0 { over } else { i64::MAX };
                    return true;
                }
                Next::Continue | Next::Evict(_) => {}
                Next::AwaitDevice => {
                    self.buffered = 0;
                    self.gc();
                }
                Next::AwaitMeasure | Next::AwaitOthers => self.measure(),
                Next::Refuse => return false,
            }
        }
        panic!("a write waits for ever: {:?}", self.figures());
    }
}

#[test]
fn without_a_policy_no_key_goes_and_writes_are_refused_only_when_all_is_full() {
    for flash_records in [0, 20_000, 1_000_000] {
        let mut world = World::new(16 << 20, flash_records, false);
        let written = (0..300_000).filter(|_| world.write()).count() as i64;
        assert_eq!((world.evicted, world.keys), (0, written));
        assert!(world.refused > 0, "flash {flash_records}");
        let [capacity, free, _] = world.flash;
        let is_full = world.resident >= world.max - world.max / 32;
        assert!(is_full && (free == 0 || world.hot < 2_000 || capacity == 0), "{:?}", world.flash);
        assert!(world.resident_peak <= world.max * 21 / 20);
    }
}

#[test]
fn with_a_policy_no_write_is_refused_and_no_more_goes_than_must() {
    for flash_records in [0, 20_000, 100_000] {
        let mut world = World::new(16 << 20, flash_records, true);
        let (mut kept_most, writes) = (0, 400_000);
        for _ in 0..writes {
            assert!(world.write());
            kept_most = kept_most.max(world.keys);
        }
        assert_eq!(world.keys + world.evicted, writes);
        assert!(world.evicted <= (writes - kept_most) * 21 / 20, "{} {kept_most}", world.evicted);
        assert!(world.slices as i64 <= writes / 10, "{} slices", world.slices);
        assert!(world.resident_peak <= world.max * 21 / 20);
    }
}

#[test]
fn a_limit_that_falls_is_reached_while_writes_go_on() {
    let mut world = World::new(64 << 20, 0, true);
    (0..200_000).for_each(|_| assert!(world.write()));
    let before = world.evicted;
    world.max = 48 << 20;
    let should_go = (world.allocated() - world.limit()) / (KEY + VALUE);
    let mut slices_most = 0;
    for _ in 0..20_000 {
        let slices = world.slices;
        assert!(world.write());
        slices_most = slices_most.max(world.slices - slices);
    }
    assert!(slices_most <= 2, "a write waited for {slices_most} slices");
    assert!(world.figures().over_limit <= 0);
    let gone = world.evicted - before;
    assert!(gone <= (should_go + 20_000) * 21 / 20, "{gone} {should_go}");
}

#[test]
fn each_write_that_goes_on_beyond_the_limit_leaves_less_beyond_it() {
    let mut world = World::new(64 << 20, 0, true);
    (0..200_000).for_each(|_| assert!(world.write()));
    world.max = 48 << 20;
    let done = Done {
        evicted: Some(EvictedKeys { keys: 9, freed_bytes: 9 * WRITE_BYTES, ..Default::default() }),
        ..Done::default()
    };
    let over = world.figures().over_limit;
    assert_eq!(world.figures().judge(&done, over + 1), Next::Admit(9));
    assert_eq!(world.figures().judge(&done, over), Next::Continue);
}

#[test]
fn keys_alone_that_fill_memory_are_not_searched_and_defragmentation_is_not_waited_for_long() {
    let world = World::new(16 << 20, 50_000, false);
    let figures = Figures {
        over_limit: 1,
        over_watermark: 1,
        resident: Resident::NearlyFull,
        data_bytes: 12 << 20,
        values_bytes: VALUES_BYTES_MIN - 1,
        may_defrag: true,
        own_hand_may_find: true,
        other_hands_may_find: true,
        is_held_up: false,
        ..world.figures()
    };
    let slice = figures.slice_for_waiting(1, 0, 0);
    assert_eq!(slice, Slice::default(), "too few values to pass over every key for them");
    let mut done = Done { stopped: Some(StopReason::Spent), ..Done::default() };
    assert_eq!(figures.judge(&done, i64::MAX), Next::Continue);
    done.moved = 100;
    assert_eq!(figures.judge(&done, i64::MAX), Next::Continue);
    done.is_late = true;
    assert_eq!(figures.judge(&done, i64::MAX), Next::Refuse);
}

#[test]
fn a_large_request_for_which_nothing_can_be_freed_goes_on_alone_if_memory_bears_it() {
    let world = World::new(16 << 20, 50_000, false);
    let figures = Figures {
        resident: Resident::Full,
        is_large: true,
        bears_alone: true,
        values_bytes: 8 << 20,
        may_defrag: true,
        ..world.figures()
    };
    let spent = Done { stopped: Some(StopReason::Spent), ..Done::default() };
    assert_eq!(figures.judge(&spent, i64::MAX), Next::AdmitAlone);
    let others = Figures { other_hands_may_find: true, fits_without_values: true, ..figures };
    assert_ne!(others.judge(&spent, i64::MAX), Next::AdmitAlone, "others have values to demote");
    let overdue = Done { is_overdue: true, is_late: true, ..spent };
    assert_eq!(others.judge(&overdue, i64::MAX), Next::AdmitAlone, "which they do not");
    let failed = Done { stopped: Some(StopReason::Failed), ..overdue };
    assert_eq!(figures.judge(&failed, i64::MAX), Next::AdmitAlone);
    let demoted = Done { demoted_bytes: 1, ..spent };
    assert_eq!(figures.judge(&demoted, i64::MAX), Next::Continue);
    let awaited = Done { stopped: Some(StopReason::Busy), ..Done::default() };
    assert_eq!(figures.judge(&awaited, i64::MAX), Next::AwaitDevice);
    let overrun =
        Figures { bears_alone: false, may_defrag: false, own_hand_may_find: false, ..figures };
    assert_eq!(overrun.judge(&spent, i64::MAX), Next::Refuse);
}

#[test]
fn no_key_is_evicted_while_the_slots_of_other_workers_hold_values() {
    let world = World::new(16 << 20, 50_000, true);
    let figures = |other_hands_may_find, values_bytes| Figures {
        over_limit: 1,
        over_watermark: 1,
        resident: Resident::NearlyFull,
        may_evict: true,
        values_bytes,
        fits_without_values: true,
        other_hands_may_find,
        ..world.figures()
    };
    let done = Done { stopped: Some(StopReason::Spent), ..Done::default() };
    for (others, values_bytes, evicts) in
        [(true, 8 << 20, false), (false, 8 << 20, true), (true, 128 << 10, true)]
    {
        let figures = Figures { data_bytes: 12 << 20, ..figures(others, values_bytes) };
        let left = figures.left_to_evict(figures.slice(64 << 10), &done);
        assert_eq!(left > 0, evicts, "{others} {values_bytes}");
        let next = figures.judge(&done, i64::MAX);
        assert_eq!(next == Next::AwaitOthers, !evicts);
        assert_eq!(matches!(next, Next::Evict(_)), evicts, "{next:?}");
        let overdue = Done { is_overdue: true, ..done };
        assert!(matches!(figures.judge(&overdue, i64::MAX), Next::Evict(_)));
    }
}

#[test]
fn no_key_is_evicted_for_buffers_that_fill_memory_until_a_write_has_waited_for_long() {
    let world = World::new(16 << 20, 50_000, true);
    // All values have been demoted, and some are on their way to flash.
    for (data_bytes, evicts) in [(12 << 20, true), (1 << 20, false)] {
        let figures = Figures {
            over_limit: 1 << 20,
            over_watermark: 1 << 20,
            resident: Resident::Full,
            may_evict: true,
            data_bytes,
            ..world.figures()
        };
        assert_eq!(figures.slice(64 << 10).evict_bytes > 0, evicts);
        let mut done = Done { stopped: Some(StopReason::Spent), ..Done::default() };
        let slice = Slice { demote_bytes: 64 << 10, evict_bytes: 0 };
        assert_eq!(figures.left_to_evict(slice, &done) > 0, evicts);
        let next = figures.judge(&done, i64::MAX);
        assert_eq!(matches!(next, Next::Evict(_)), evicts, "{next:?}");
        assert_eq!(next == Next::AwaitMeasure, !evicts);
        done.is_overdue = true;
        assert!(matches!(figures.judge(&done, i64::MAX), Next::Evict(_)));
        // Values that flash does not take stay, whatever they come to: keys go for them.
        done.stopped = Some(StopReason::Full);
        assert!(figures.left_to_evict(slice, &done) > 0);
    }
}

#[test]
fn no_write_is_refused_at_once_for_buffers_that_fill_memory_for_now() {
    let world = World::new(48 << 20, 50_000, false);
    let done = Done { stopped: Some(StopReason::Spent), is_late: true, ..Done::default() };
    // All values have been demoted. What is allocated is well within the limit, or beyond it.
    for (resident, data_bytes, over_limit, waits) in [
        (Resident::FullForNow, 1 << 20, -(10 << 20), true),
        (Resident::NearlyFull, 1 << 20, 1 << 20, true),
        (Resident::FullForNow, 40 << 20, 1 << 20, false),
        (Resident::NearlyFull, 40 << 20, 1 << 20, false),
        (Resident::Full, 1 << 20, -(10 << 20), false),
    ] {
        let figures = Figures {
            over_limit,
            over_watermark: over_limit,
            resident,
            data_bytes,
            values_bytes: 62 << 10,
            fits_without_values: true,
            ..world.figures()
        };
        let expected = if waits { Next::AwaitMeasure } else { Next::Refuse };
        assert_eq!(figures.judge(&done, i64::MAX), expected, "{resident:?} {data_bytes}");
        let overdue = Done { is_overdue: true, ..done };
        assert_eq!(figures.judge(&overdue, i64::MAX), Next::Refuse);
    }
}

#[test]
fn what_is_deleted_after_a_refusal_may_be_written_anew_unless_much_more_is_resident() {
    let world = World::new(16 << 20, 50_000, false);
    let judge = |(resident, is_overrun), freed_since_refusal, stopped| {
        let figures = Figures {
            over_limit: 1,
            over_watermark: 1,
            resident,
            is_overrun,
            data_bytes: 12 << 20,
            freed_since_refusal,
            ..world.figures()
        };
        let done = Done { stopped: Some(stopped), is_late: true, ..Done::default() };
        figures.judge(&done, i64::MAX)
    };
    let (nearly, spent) = ((Resident::NearlyFull, false), StopReason::Spent);
    assert_eq!(judge(nearly, 5 * WRITE_BYTES, spent), Next::Admit(5));
    assert_eq!(judge(nearly, WRITE_BYTES - 1, spent), Next::Refuse);
    let full = |is_overrun| judge((Resident::Full, is_overrun), 5 * WRITE_BYTES, spent);
    assert_eq!([full(false), full(true)], [Next::Admit(5), Next::Refuse]);
    assert_eq!(judge(nearly, 5 * WRITE_BYTES, StopReason::Busy), Next::AwaitDevice);
}

#[test]
fn without_flash_a_large_write_has_keys_go_once_and_waits_for_their_pages() {
    let world = World::new(16 << 20, 0, true);
    let figures = |owed_bytes, is_overrun| Figures {
        over_limit: -1,
        resident: Resident::Full,
        is_large: true,
        may_evict: true,
        may_empty_pages: true,
        owed_bytes,
        is_overrun,
        ..world.figures()
    };
    for (owed_bytes, evict_bytes) in [(-1, 0), (5, 5), (2 * SLICE_BYTES_MAX, SLICE_BYTES_MAX)] {
        let slice = figures(owed_bytes, true).slice_for_waiting(3, 0, 100);
        assert_eq!(slice, Slice { demote_bytes: 0, evict_bytes });
    }
    let evicted = Some(EvictedKeys { keys: 1, freed_bytes: 100, ..EvictedKeys::default() });
    let nothing = Done::default();
    let late = Done { is_late: true, ..nothing };
    let overdue = Done { is_late: true, is_overdue: true, ..nothing };
    for (done, is_overrun, next) in [
        (Done { evicted, ..nothing }, false, Next::Continue),
        (Done { moved: 1, ..nothing }, true, Next::Continue),
        (nothing, false, Next::AwaitMeasure),
        (late, false, Next::AdmitAll),
        (late, true, Next::AwaitMeasure),
        (Done { evicted, ..late }, true, Next::Continue),
        (overdue, false, Next::AdmitAll),
        (overdue, true, Next::Refuse),
    ] {
        assert_eq!(figures(0, is_overrun).judge(&done, i64::MAX), next, "{done:?} {is_overrun}");
    }
    // Those that come with it are let have memory one after another.
    let crowded = Figures { is_overrun_by_claims: true, ..figures(0, false) };
    assert_eq!(crowded.judge(&late, i64::MAX), Next::AwaitMeasure);
    assert_eq!(crowded.judge(&overdue, i64::MAX), Next::AdmitAll);
    // Pages that cannot be emptied are not waited for.
    let figures = Figures { may_empty_pages: false, ..figures(0, true) };
    assert_eq!(figures.judge(&late, i64::MAX), Next::AdmitAll);
}

#[test]
fn without_flash_a_small_write_waits_shortly_for_pages_while_memory_is_overrun() {
    let world = World::new(16 << 20, 0, true);
    let figures = |is_overrun, may_empty_pages| Figures {
        over_limit: -1,
        over_watermark: -1,
        resident: Resident::Full,
        is_overrun,
        may_empty_pages,
        ..world.figures()
    };
    let judge = |done: &Done| figures(true, true).judge(done, i64::MAX);
    assert_eq!(judge(&Done::default()), Next::AwaitMeasure);
    assert_eq!(judge(&Done { moved: 1, ..Done::default() }), Next::Continue);
    assert_eq!(judge(&Done { is_late: true, ..Done::default() }), Next::AdmitAll);
    for figures in [figures(false, true), figures(true, false)] {
        assert_eq!(figures.pressure(), Pressure::None);
    }
}

#[test]
fn gc_alone_makes_room_for_deletes_and_rewrites_on_a_full_flash() {
    let mut world = World::new(16 << 20, 50_000, true);
    while world.flash[1] > 1_000 {
        assert!(world.write());
    }
    for _ in 0..400_000 {
        if world.keys > world.hot {
            // A cold key is deleted: its record is garbage.
            world.keys -= 1;
            world.flash[2] -= 1;
        }
        assert!(world.write());
    }
    let kept = world.keys + world.evicted;
    assert!(world.evicted < kept / 4, "{} of {kept}", world.evicted);
}

#[test]
fn a_limit_that_moves_up_and_down_never_makes_a_write_wait_for_ever() {
    for (has_flash, may_evict) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = World::new(32 << 20, if has_flash { 80_000 } else { 0 }, may_evict);
        for step in 0..300_000 {
            if step % 30_000 == 0 {
                world.max = [32 << 20, 8 << 20, 64 << 20, 20 << 20][step / 30_000 % 4];
            }
            world.write();
        }
        assert_eq!(world.evicted > 0, may_evict);
        assert_eq!(world.refused > 0, !may_evict);
    }
}

#[test]
fn gc_that_works_ahead_of_a_checkpoint_evicts_only_where_flash_is_short() {
    for (free_bytes, coming_bytes, evicts) in
        [(20, 0, false), (12, 0, false), (9, 0, true), (5, 8, false), (0, 0, true)]
    {
        let space = flash::FreeSpace {
            free_bytes,
            coming_bytes,
            gc_below_bytes: 15,
            short_below_bytes: 10,
            capacity_bytes: 100,
            live_bytes: 90,
            ..flash::FreeSpace::default()
        };
        assert_eq!(evicts_from_flash(&space), evicts, "{space:?}");
    }
}

#[test]
fn other_workers_are_asked_for_what_they_have_read_ahead_while_a_large_request_waits_for_it() {
    let figures = World::new(64 << 20, 1_000_000, false).figures();
    let waiting = Figures { is_large: true, read_ahead_shrinks: true, ..figures };
    assert!(waiting.asks_others(Next::AwaitMeasure) > Some(0));
    assert_eq!(waiting.asks_others(Next::Refuse), Some(0));
    let small = Figures { is_large: false, ..waiting };
    assert_eq!(small.asks_others(Next::AwaitMeasure), Some(0));
    let nothing_left = Figures { read_ahead_shrinks: false, ..waiting };
    assert_eq!(nothing_left.asks_others(Next::AwaitMeasure), Some(0));
}
