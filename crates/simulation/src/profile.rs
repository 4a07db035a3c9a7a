//! What one run is like: every choice follows from its seed. Each run has a few things in plenty and
//! many not at all, which finds more than a little of everything in each ("swarm testing", Groce et
//! al. 2012).

use flash::SimFaults;
use server::simulation::Slices;
use stdx::Random;

use crate::command::STRINGS;
use crate::journal::JournalProfile;

/// Bytes of a segment of the flash log.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

/// How much there is of each thing. Weights are relative to each other.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) workers: usize,
    pub(crate) clients: usize,
    /// Clients that listen to what others publish.
    pub(crate) listeners: usize,
    /// Operations of one client.
    pub(crate) operations: u64,
    /// Keys that hold strings, from the first on.
    pub(crate) keys: u64,
    pub(crate) values: ValueSizes,
    pub(crate) weights: Weights,
    /// Clients work in pairs, step by step: both look at some keys, then each writes one of them.
    pub(crate) pairs: bool,
    /// Of a thousand sendings, those that hold several operations.
    pub(crate) pipelines: u64,
    /// Of a thousand clients' turns, those in which the connection is cut.
    pub(crate) cuts: u64,
    /// A fiber is stopped at one of so many points; 0: at none.
    pub(crate) preempted_one_in: u64,
    /// Of a thousand fibers that were stopped, those that stay so for long.
    pub(crate) parked: u64,
    pub(crate) device: Device,
    /// Bytes that values may take in RAM; none: there is no `maxmemory`.
    pub(crate) room_bytes: Option<u64>,
    /// None: there is no flash.
    pub(crate) flash_segments: Option<u64>,
    pub(crate) policy: &'static str,
    pub(crate) promotion: &'static str,
    pub(crate) promote_neighbours: &'static str,
    pub(crate) compression: &'static str,
    /// Requests are served in small slices, and values are large from a few KiB on.
    pub(crate) is_sliced: bool,
    /// None: there is no journal.
    pub(crate) journal: Option<JournalProfile>,
}

/// Lengths of values that clients write.
#[derive(Clone, Debug)]
pub(crate) struct ValueSizes {
    pub(crate) small: u64,
    pub(crate) large: u64,
    /// Large ones, of a thousand.
    pub(crate) large_share: u64,
    pub(crate) compress: bool,
}

/// How the drives behave.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// How soon it answers: its weight in the choice of what happens next.
    pub(crate) weight: u64,
    pub(crate) faults: SimFaults,
    /// Chunks of its pool of read buffers, and bytes beside them; none: as many as usual.
    pub(crate) read_pool: Option<(usize, usize)>,
}

/// How often clients ask for what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weights {
    pub(crate) read: u64,
    pub(crate) write: u64,
    /// SET, and to flash with it at once.
    pub(crate) rewrite: u64,
    pub(crate) read_many: u64,
    pub(crate) write_many: u64,
    pub(crate) count: u64,
    pub(crate) collect: u64,
    pub(crate) delete: u64,
    pub(crate) rename: u64,
    pub(crate) expire: u64,
    /// SET with a time that comes soon. Shape: not beside `swap` and `flush`, which may or may not
    /// count a key whose time has come as changed.
    pub(crate) lapse: u64,
    /// Fields of hashes with such a time. Shape: as `lapse`.
    pub(crate) lapse_fields: u64,
    /// Fields of hashes with a time that does not come.
    pub(crate) time_fields: u64,
    /// Entries of streams that consumers of a group read.
    pub(crate) deliver: u64,
    pub(crate) transaction: u64,
    pub(crate) watch: u64,
    pub(crate) select: u64,
    pub(crate) swap: u64,
    pub(crate) flush: u64,
    pub(crate) demote: u64,
    pub(crate) demote_all: u64,
    pub(crate) no_touch: u64,
    pub(crate) configure: u64,
    pub(crate) kill: u64,
    pub(crate) publish: u64,
    /// Checkpoints of the journal.
    pub(crate) rewrite_journal: u64,
}

impl Profile {
    /// The profile of a seed: anything, or one of the mixtures that certain faults need.
    pub(crate) fn draw(random: &mut Random) -> Profile {
        let mut profile = Profile::draw_any(random);
        match random.below(13) {
            0 => profile.churn(random),
            1 => profile.squeeze(random),
            2 => profile.contend(random),
            3 => profile.starve(random),
            4 => profile.evict(random),
            5 => profile.pair(random),
            6 => profile.lapse(random),
            7 => profile.collect(random),
            _ => {}
        }
        profile.is_sliced = random.below(2) == 0;
        profile.listeners = pick(random, &[0, 0, 1, 3]);
        if profile.listeners > 0 {
            profile.weights.publish = pick(random, &[3, 10, 30]);
        }
        profile
    }

    /// Whether a start finds the values that a checkpoint refers to on flash.
    pub(crate) fn keeps_flash(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.keeps_flash)
    }

    pub(crate) fn slices(&self) -> Slices {
        // The simulated server's clock stands still: a turn that has a length would never end.
        let own_turn_nanos_max = 0;
        if self.is_sliced {
            Slices {
                reply_bytes_free: 3000,
                gathered_keys_max: 2,
                filled_bytes_max: 1000,
                // A leaf.
                walked_bytes_max: 1,
                own_turn_nanos_max,
                // Two that are ready are a crowd.
                turn_bytes_max: 4 << 10,
                read_cost_bytes: 64,
                waiting_buffers_max: 2,
                granted_at_once_max: 1,
            }
        } else {
            Slices { own_turn_nanos_max, ..Slices::default() }
        }
    }

    pub(crate) fn large_value_bytes(&self) -> usize {
        if self.is_sliced { 3000 } else { 1 << 20 }
    }

    /// Places on flash are used again and again while reads are under way.
    fn churn(&mut self, random: &mut Random) {
        self.workers = 1;
        self.clients = 3 + random.below(3) as usize;
        self.keys = 3 + random.below(4);
        self.flash_segments = Some(14);
        self.operations = 80 + random.below(80);
        self.room_bytes = None;
        self.policy = "noeviction";
        self.promotion = "second-touch";
        // Few records to a segment, all of a size: soon one takes the place of another.
        let small = pick(random, &[8_000, 15_000]);
        let large = pick(random, &[20_000, 50_000]);
        let large_share = pick(random, &[0, 50, 1_000]);
        self.values = ValueSizes { small, large, large_share, compress: false };
        self.weights = Weights {
            read_many: 10,
            rewrite: 30,
            write: random.below(5),
            write_many: random.below(3),
            demote_all: random.below(2),
            ..Weights::default()
        };
        self.pipelines = pick(random, &[300, 700]);
        self.cuts = 0;
        self.preempted_one_in = 0;
        self.device.weight = pick(random, &[4, 20]);
        self.device.faults =
            SimFaults { held_reads: 200, held_reaps_max: 300, ..SimFaults::default() };
    }

    /// Read buffers are few, and many values are read at a time.
    fn starve(&mut self, random: &mut Random) {
        let small = pick(random, &[4_000, 9_000, 15_000]);
        let large = pick(random, &[20_000, 70_000, 200_000]);
        self.values = ValueSizes { small, large, large_share: 200, compress: false };
        self.keys = 4 + random.below(4);
        self.promotion = "second-touch";
        self.device.read_pool = Some((1 + random.below(2) as usize, pick(random, &[0, 8 << 10])));
        self.device.faults.held = 0;
        self.weights = Weights {
            read: 10,
            read_many: 30,
            rewrite: 20,
            transaction: random.below(10),
            demote_all: random.below(3),
            ..Weights::default()
        };
        self.pipelines = pick(random, &[300, 700]);
    }

    /// Keys must go.
    fn evict(&mut self, random: &mut Random) {
        let policies =
            ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu"];
        self.policy = match random.below(8) {
            5 | 6 => "volatile-random",
            7 => "volatile-ttl",
            nth => policies[nth as usize],
        };
        self.room_bytes = Some(pick(random, &[128 << 10, 256 << 10, 512 << 10]));
        let large = pick(random, &[20_000, 70_000]);
        self.values = ValueSizes { small: 4_000, large, large_share: 500, compress: false };
        self.keys = 4 + random.below(4);
        if random.below(3) > 0 {
            self.flash_segments = None;
        }
        self.weights.write += 20;
        self.weights.expire += 5;
        self.weights.flush = 0;
        self.weights.demote = 0;
        self.operations += 20;
    }

    /// Values find no room in RAM, and reads leave them where they are.
    fn squeeze(&mut self, random: &mut Random) {
        self.room_bytes = Some(pick(random, &[64 << 10, 256 << 10]));
        self.policy = "noeviction";
        self.promotion = "second-touch";
        self.keys = 3 + random.below(3);
        self.weights = Weights {
            no_touch: 5,
            transaction: 20,
            read_many: 15,
            write: 10,
            demote: 30,
            demote_all: random.below(2),
            ..Weights::default()
        };
    }

    /// Several workers watch and write the same few keys.
    fn contend(&mut self, random: &mut Random) {
        self.workers = 2 + random.below(2) as usize;
        self.flash_segments = Some(12 * self.workers as u64 + 16);
        self.keys = 2 + random.below(3);
        self.preempted_one_in = pick(random, &[2, 4, 10]);
        self.parked = pick(random, &[100, 300]);
        self.weights = Weights {
            read: random.below(3),
            write: random.below(10),
            read_many: random.below(5),
            transaction: random.below(5),
            watch: 20,
            swap: random.below(2),
            select: random.below(3),
            ..Weights::default()
        };
    }

    /// Two workers decide at the same time by what both have read.
    fn pair(&mut self, random: &mut Random) {
        self.contend(random);
        self.workers = 2;
        self.clients = pick(random, &[2, 2, 4]);
        self.pairs = true;
        self.pipelines = 0;
        self.cuts = 0;
        self.parked = pick(random, &[0, 100]);
        self.room_bytes = None;
        self.policy = "noeviction";
    }

    /// Keys come to the end of their time while requests wait for slow reads.
    fn lapse(&mut self, random: &mut Random) {
        self.clients = 4 + random.below(3) as usize;
        self.keys = 3 + random.below(4);
        self.operations = 30 + random.below(40);
        self.room_bytes = None;
        self.policy = "noeviction";
        // Soon written to the drives, from which they must be read then.
        let small = pick(random, &[4_000, 8_000]);
        self.values = ValueSizes { small, large: 20_000, large_share: 50, compress: false };
        self.pipelines = 700;
        self.cuts = 0;
        // Without it, requests run at the very time that they take for the present.
        self.preempted_one_in = 0;
        self.device.weight = 1;
        let held_reaps_max = pick(random, &[500, 2_000]);
        self.device.faults = SimFaults { held_reads: 150, held_reaps_max, ..SimFaults::default() };
        self.weights = Weights {
            read: 5,
            read_many: 5,
            write: 10,
            rewrite: 20,
            lapse: 20,
            lapse_fields: pick(random, &[0, 15, 40]),
            delete: random.below(3),
            rename: random.below(5),
            transaction: 5,
            watch: random.below(10),
            demote: 10,
            ..Weights::default()
        };
    }

    /// Large collections, of which leaves come and go.
    fn collect(&mut self, random: &mut Random) {
        let small = pick(random, &[60, 200, 500]);
        let large = pick(random, &[1_500, 5_000, 20_000]);
        self.values = ValueSizes { small, large, large_share: 30, compress: false };
        self.operations += 40;
        self.keys = 2;
        self.weights = Weights {
            collect: 40,
            demote: 5 + random.below(20),
            demote_all: random.below(3),
            delete: random.below(3),
            rename: random.below(3),
            transaction: random.below(15),
            watch: random.below(5),
            swap: random.below(2),
            flush: random.below(2),
            expire: random.below(2),
            no_touch: random.below(2),
            ..Weights::default()
        };
    }

    fn draw_any(random: &mut Random) -> Profile {
        let workers = 1 + random.below(3) as usize;
        let has_pressure = random.below(3) == 0;
        let evicts = has_pressure && random.below(3) == 0;
        Profile {
            workers,
            clients: 2 + random.below(4) as usize,
            listeners: 0,
            operations: 10 + random.below(30),
            keys: 2 + random.below(STRINGS - 1),
            values: ValueSizes::draw(random),
            weights: Weights::draw(random),
            pairs: false,
            pipelines: pick(random, &[0, 300, 700]),
            cuts: pick(random, &[0, 0, 0, 20]),
            preempted_one_in: pick(random, &[0, 4, 20, 100, 500]),
            parked: 0,
            device: Device::draw(random),
            room_bytes: has_pressure.then(|| pick(random, &[128 << 10, 512 << 10, 2 << 20])),
            flash_segments: Some(12 * workers as u64 + pick(random, &[4, 16, 64])),
            policy: if evicts {
                pick(random, &["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru"])
            } else {
                "noeviction"
            },
            promotion: pick(random, &["second-touch", "access"]),
            compression: pick(random, &["lz4", "none"]),
            is_sliced: false,
            journal: None,
            promote_neighbours: pick(random, &["always", "auto"]),
        }
    }
}

impl Device {
    fn draw(random: &mut Random) -> Device {
        Device {
            weight: pick(random, &[1, 4, 20]),
            faults: draw_faults(random),
            read_pool: pick(random, &[None, None, Some((1, 16 << 10))]),
        }
    }
}

impl ValueSizes {
    fn draw(random: &mut Random) -> ValueSizes {
        ValueSizes {
            small: pick(random, &[40, 100, 500, 4_000]),
            large: pick(random, &[5_000, 20_000, 70_000, 200_000]),
            large_share: pick(random, &[0, 50, 300]),
            compress: random.below(2) == 0,
        }
    }
}

impl Weights {
    fn draw(random: &mut Random) -> Weights {
        let mut some = |weight: u64| pick(random, &[0, weight, weight, 3 * weight]);
        Weights {
            read: 1 + some(10),
            write: 1 + some(10),
            rewrite: some(5),
            read_many: some(8),
            write_many: some(5),
            count: some(5),
            collect: some(8),
            delete: some(3),
            rename: some(3),
            expire: some(1),
            lapse: 0,
            lapse_fields: 0,
            time_fields: 0,
            deliver: 0,
            transaction: some(8),
            watch: some(8),
            select: some(1),
            swap: some(1),
            flush: some(1),
            demote: some(10),
            demote_all: some(1) / 3,
            no_touch: some(1),
            configure: some(1),
            kill: some(1),
            publish: 0,
            rewrite_journal: 0,
        }
    }
}

fn draw_faults(random: &mut Random) -> SimFaults {
    let held = pick(random, &[0, 0, 50]);
    let mut faults = SimFaults { held, held_reaps_max: 100, ..SimFaults::default() };
    match random.below(8) {
        0 => faults.failed_reads = 30,
        1 => faults.failed_writes = 30,
        2 => faults.flipped_bits = 30,
        _ => {}
    }
    faults
}

/// One of `choices`.
pub(crate) fn pick<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}
