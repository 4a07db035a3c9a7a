//! A model of walks over keys behind random overwrites: how many device reads a GET takes, by the order in which values leave
//! RAM and by what collection merges. It knows neither time nor RAM: every value is on flash, and a read brings a page that is
//! kept until it is the one that was not used for longest.
//!
//! `cargo run --release -p flash --example walks_after_overwrites`

use std::collections::BTreeMap;

use stdx::Random;

/// As many as behind 256 MiB, and behind 1 GiB in `kelvin bench suite`.
const KEYS: u32 = 3_000_000;
const SUITE_KEYS: u32 = 12_000_000;
/// Of 512 bytes, with what a record has beside them.
const VALUES_PER_MIB: usize = (1 << 20) / 576;
const VALUES_PER_PAGE: u32 = 7;
/// An eighth of that RAM in pages of 4 KiB.
const KEYS_PER_KEPT_PAGE: u32 = 366;
const LIVE_SHARE: f64 = 0.69;
const OVERWRITES_PER_KEY: u32 = 8;
const WALKERS: u32 = 64;
const PIPELINE: u32 = 8;
/// Free segments that collection keeps beside those that are merged.
const FREE_KEPT: usize = 12;
/// Part of the best victim's score from which another is as good.
const NEARLY_BEST: f64 = 0.8;

/// What is modelled.
#[derive(Clone, Copy)]
struct Setup {
    keys: u32,
    /// Values that leave RAM together, ordered by key.
    batch: usize,
    segment_mib: usize,
    /// Victims that are merged, and whether the next by key joins of those that are nearly as good as the best.
    merged: usize,
    takes_next_by_key: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Free,
    Open,
    Full,
    Victim,
}

struct Segment {
    keys: Vec<u32>,
    live: usize,
    filled_at: u64,
    state: State,
}

struct Model {
    setup: Setup,
    segments: Vec<Segment>,
    free: Vec<usize>,
    /// Where the value of each key is: the segment, and its number in that.
    places: Vec<(u32, u32)>,
    /// The segments that fill: of values that leave RAM, and of survivors.
    open: [Option<usize>; 2],
    /// Victims, and how far each was dealt with.
    victims: Vec<(usize, usize)>,
    swept_to: u32,
    clock: u64,
    moved: u64,
}

impl Model {
    fn new(setup: Setup) -> Model {
        let per_segment = setup.segment_mib * VALUES_PER_MIB;
        // Beyond the flash size what is being merged.
        let spare = 2 * setup.merged + FREE_KEPT;
        let count = (f64::from(setup.keys) / LIVE_SHARE) as usize / per_segment + spare;
        let segment = |_| Segment { keys: Vec::new(), live: 0, filled_at: 0, state: State::Free };
        Model {
            setup,
            segments: (0..count).map(segment).collect(),
            free: (0..count).collect(),
            places: vec![(u32::MAX, 0); setup.keys as usize],
            open: [None; 2],
            victims: Vec::new(),
            swept_to: 0,
            clock: 0,
            moved: 0,
        }
    }

    fn per_segment(&self) -> usize {
        self.setup.segment_mib * VALUES_PER_MIB
    }

    fn append(&mut self, key: u32, stream: usize) {
        let per_segment = self.per_segment();
        let full = self.open[stream].filter(|&at| self.segments[at].keys.len() == per_segment);
        if let Some(full) = full {
            (self.segments[full].state, self.segments[full].filled_at) = (State::Full, self.clock);
            self.open[stream] = None;
        }
        let at = *self.open[stream].get_or_insert_with(|| {
            let at = self.free.pop().expect("collection keeps some free");
            self.segments[at] =
                Segment { keys: Vec::new(), live: 0, filled_at: 0, state: State::Open };
            at
        });
        let segment = &mut self.segments[at];
        self.places[key as usize] = (at as u32, segment.keys.len() as u32);
        segment.keys.push(key);
        segment.live += 1;
    }

    fn overwrite(&mut self, key: u32) {
        let (segment, _) = self.places[key as usize];
        self.segments[segment as usize].live -= 1;
        self.append(key, 0);
        while self.free.len() < self.setup.merged + FREE_KEPT {
            self.collect_one();
        }
    }

    /// Cost-benefit, as in the log.
    fn score(&self, segment: &Segment) -> Option<f64> {
        let live = segment.live as f64 / self.per_segment() as f64;
        let age = (self.clock - segment.filled_at) as f64 + 1.0;
        (segment.state == State::Full).then_some((1.0 - live) / (1.0 + live) * age)
    }

    fn take_victim(&mut self) {
        let scored: Vec<(f64, usize)> = (0..self.segments.len())
            .filter_map(|at| Some((self.score(&self.segments[at])?, at)))
            .collect();
        let best = scored.iter().max_by(|one, two| one.0.total_cmp(&two.0)).expect("some are full");
        let distance = |at: usize| self.distance(self.segments[at].keys[0]);
        let near = scored.iter().filter(|(score, _)| *score >= NEARLY_BEST * best.0);
        let next = near.min_by_key(|(_, at)| distance(*at)).expect("the best is one");
        let (_, at) = if self.setup.takes_next_by_key { *next } else { *best };
        self.segments[at].state = State::Victim;
        self.victims.push((at, 0));
    }

    fn distance(&self, key: u32) -> u32 {
        (key + self.setup.keys - self.swept_to) % self.setup.keys
    }

    /// Moves the value that comes next by key of all victims, or frees one of which none is left.
    fn collect_one(&mut self) {
        while self.victims.len() < self.setup.merged {
            self.take_victim();
        }
        let mut next: Option<(u32, usize)> = None;
        for index in 0..self.victims.len() {
            let (at, mut passed) = self.victims[index];
            let keys = &self.segments[at].keys;
            let lives =
                |passed: usize| self.places[keys[passed] as usize] == (at as u32, passed as u32);
            while passed < keys.len() && !lives(passed) {
                passed += 1;
            }
            if passed == keys.len() {
                self.victims.remove(index);
                self.segments[at].state = State::Free;
                return self.free.push(at);
            }
            let distance = self.distance(keys[passed]);
            self.victims[index].1 = passed;
            if next.is_none_or(|(least, _)| distance < least) {
                next = Some((distance, index));
            }
        }
        let (_, index) = next.expect("there is a victim");
        let (at, passed) = self.victims[index];
        let key = self.segments[at].keys[passed];
        self.victims[index].1 += 1;
        (self.swept_to, self.segments[at].live) = (key, self.segments[at].live - 1);
        self.append(key, 1);
        self.moved += 1;
    }

    /// Device reads a GET of walkers side by side, each over its part of the keys.
    fn reads_per_get(&self) -> f64 {
        let (mut kept, mut by_use) = (BTreeMap::new(), BTreeMap::new());
        let (keys, kept_max) = (self.setup.keys, self.setup.keys / KEYS_PER_KEPT_PAGE);
        let (mut reads, mut gets) = (0_u64, 0_u64);
        for from in (0..keys / WALKERS).step_by(PIPELINE as usize) {
            for key in (0..WALKERS).flat_map(|walker| {
                (0..PIPELINE).map(move |at| walker * (keys / WALKERS) + from + at)
            }) {
                let (segment, number) = self.places[key.min(keys - 1) as usize];
                let page = (segment, number / VALUES_PER_PAGE);
                gets += 1;
                match kept.insert(page, gets) {
                    Some(before) => drop(by_use.remove(&before)),
                    None => reads += 1,
                }
                by_use.insert(gets, page);
                if by_use.len() > kept_max as usize
                    && let Some((_, oldest)) = by_use.pop_first()
                {
                    kept.remove(&oldest);
                }
            }
        }
        reads as f64 / gets as f64
    }
}

fn run(setup: Setup) {
    let mut model = Model::new(setup);
    let keys = setup.keys;
    let part = keys / WALKERS;
    (0..keys).for_each(|number| model.append(number % WALKERS * part + number / WALKERS, 0));
    let mut random = Random::new(7);
    let mut batch = Vec::new();
    let overwrites = u64::from(OVERWRITES_PER_KEY) * u64::from(keys);
    let mut written = 0_u64;
    for clock in 0..overwrites {
        model.clock = clock;
        batch.push(random.below(keys.into()) as u32);
        if batch.len() == setup.batch {
            batch.sort_unstable();
            batch.dedup();
            written += batch.len() as u64;
            batch.drain(..).for_each(|key| model.overwrite(key));
        }
    }
    println!(
        "{} million keys, batches of {:>5.1} MiB by key, segments of {} MiB, {} merged{}: {:.2} device reads a GET, {:.2} bytes written for one",
        keys / 1_000_000,
        setup.batch as f64 / VALUES_PER_MIB as f64,
        setup.segment_mib,
        setup.merged,
        if setup.takes_next_by_key { ", the next by key" } else { "" },
        model.reads_per_get(),
        1.0 + model.moved as f64 / written as f64
    );
}

fn main() {
    let mib = VALUES_PER_MIB;
    for (keys, batch, segment_mib, merged, takes_next_by_key) in [
        (KEYS, 1, 4, 1, false),
        (KEYS, 4 * mib, 4, 1, false),
        (KEYS, 16 * mib, 4, 1, false),
        (KEYS, 16 * mib, 4, 8, false),
        (KEYS, 16 * mib, 4, 4, true),
        (KEYS, 8 * mib, 4, 8, true),
        (KEYS, 16 * mib, 4, 8, true),
        (KEYS, 16 * mib, 8, 8, true),
        (SUITE_KEYS, 1, 8, 1, false),
        (SUITE_KEYS, 64 * mib, 8, 1, false),
        (SUITE_KEYS, 64 * mib, 8, 4, true),
    ] {
        run(Setup { keys, batch, segment_mib, merged, takes_next_by_key });
    }
}
