//! The simulated journal: a folder, and the thread that writes it, which is stopped before each change of a file.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use flash::{Journal, SimJournal, SimJournalSizes, SimWriter};
use stdx::Random;

use crate::fiber::{Fiber, Pause, pause};
use crate::profile::{Profile, pick};

/// Of how many seeds one has a journal.
const JOURNALED_ONE_IN: u64 = 3;

/// Bytes of a journal from which on it grows.
const GROWTH_BYTES_MIN: u64 = 1_000;

/// What a run with a journal is like.
#[derive(Clone, Debug)]
pub(crate) struct JournalProfile {
    pub(crate) appendfsync: &'static str,
    /// How soon its drive answers: its weight in the choice of what happens next.
    weight: u64,
    sizes: SimJournalSizes,
    /// Changes of files that fail, of a thousand.
    pub(crate) failing: u64,
    /// How often the server crashes.
    pub(crate) crashes: u64,
    /// By how many percent it grows before a checkpoint is taken; 0: none is but for clients.
    growth_percent: u64,
    /// Checkpoints refer to values on flash, which a start finds there.
    pub(crate) keeps_flash: bool,
}

impl JournalProfile {
    /// Gives some seeds a journal.
    pub(crate) fn draw(random: &mut Random, profile: &mut Profile) {
        if random.below(JOURNALED_ONE_IN) > 0 {
            return;
        }
        let sync_bytes = pick(random, &[500, 5_000, 50_000]);
        let mut journal = JournalProfile {
            appendfsync: pick(random, &["always", "always", "everysec", "no"]),
            weight: pick(random, &[1, 4, 20]),
            sizes: SimJournalSizes {
                segment_bytes: pick(random, &[2_000, 30_000, 1 << 20]),
                sync_bytes,
                // No less than twice as much: who waits for room waits for a sync.
                held_bytes_max: sync_bytes * pick(random, &[2, 10, 100]),
                chunk_bytes: pick(random, &[1_600, 32 << 10]),
                part_bytes_max: pick(random, &[900, 20_000, 1 << 20]),
            },
            failing: pick(random, &[0, 0, 0, 0, 20, 100]),
            crashes: pick(random, &[1, 1, 2]),
            // A moment behind the last checkpoint four times as much is asked for.
            growth_percent: pick(random, &[0, 12, 25, 100]),
            keeps_flash: profile.flash_segments.is_some() && random.below(2) == 0,
        };
        profile.weights.rewrite_journal = pick(random, &[1, 3, 6]);
        if journal.keeps_flash {
            profile.weights.rewrite += 10;
            profile.weights.demote += 10;
        }
        if profile.weights.lapse > 0 {
            // What is lost may have seen a key whose time has come when it is looked for after the crash.
            (journal.appendfsync, journal.failing) = ("always", 0);
        }
        // What keys hold besides values is found again as well.
        profile.weights.time_fields = pick(random, &[0, 0, 4]);
        profile.weights.deliver = pick(random, &[0, 0, 4]);
        // What they have not been told when the server crashes they are never told.
        profile.listeners = 0;
        profile.journal = Some(journal);
    }

    /// Whether all that an answer tells of is durable. A read is answered as well while the journal cannot be written.
    pub(crate) fn is_durable_when_answered(&self) -> bool {
        self.appendfsync == "always" && self.failing == 0
    }

    /// For the server's command line.
    pub(crate) fn options(&self) -> [(&'static str, String); 7] {
        [
            ("--appendonly", "yes".to_owned()),
            ("--appendfsync", self.appendfsync.to_owned()),
            ("--auto-aof-rewrite-percentage", self.growth_percent.to_string()),
            ("--auto-aof-rewrite-min-size", GROWTH_BYTES_MIN.to_string()),
            ("--tier-persistence", if self.keeps_flash { "yes" } else { "no" }.to_owned()),
            // There is none.
            ("--appenddirname", "simulated-journal".to_owned()),
            ("--dbfilename", "simulated.rdb".to_owned()),
        ]
    }
}

/// The journal of a server, with its writer.
pub(crate) struct JournalThread {
    pub(crate) folder: SimJournal,
    /// None: the server has not opened it yet.
    writer: Option<Writer>,
    weight: u64,
    /// When the journal had come how far, from the last time on at which it had come no further than it is durable.
    appended: VecDeque<(u64, u64)>,
    /// Where the last checkpoint is, and how many there were.
    checkpoints: (u64, u64),
}

struct Writer {
    writer: Rc<RefCell<SimWriter>>,
    fiber: Fiber,
    /// Whether it was stopped before a change.
    is_in_step: bool,
    is_ending: Rc<Cell<bool>>,
}

impl JournalThread {
    pub(crate) fn new(seed: u64, profile: &JournalProfile) -> JournalThread {
        let folder = SimJournal::new(seed, profile.sizes, || pause(Pause::Preempted));
        JournalThread::on(folder, profile.weight)
    }

    fn on(folder: SimJournal, weight: u64) -> JournalThread {
        let appended = VecDeque::new();
        JournalThread { folder, writer: None, weight, appended, checkpoints: (0, 0) }
    }

    /// The folder as a crash leaves it now, for another server. This one goes on.
    pub(crate) fn crash(&mut self, loses_power: bool) -> JournalThread {
        JournalThread::on(self.folder.crash(loses_power), self.weight)
    }

    /// What its last checkpoint says of the flash. Errors: it cannot be read.
    pub(crate) fn flash_state(&self) -> Result<Option<Vec<u8>>, String> {
        let found = self.folder.find_flash_state();
        found.map_err(|error| format!("the journal was not found: {error}"))
    }

    /// The server has opened it.
    pub(crate) fn begin(&mut self) {
        let writer = self.folder.take_writer().expect("a journal that was started");
        self.writer = Some(Writer::new(writer));
    }

    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// Whether there is something to write.
    pub(crate) fn is_due(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::is_due)
    }

    /// Whether it is in the midst of it.
    pub(crate) fn is_in_step(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.is_in_step)
    }

    /// Has the writer go on up to the next change of a file, or until it waits.
    pub(crate) fn run(&mut self) {
        self.writer.as_mut().expect("it is due").run();
    }

    /// Notes how far it has come at the end of a step.
    pub(crate) fn note(&mut self, now_us: u64, journal: &Journal) {
        let appended = journal.appended().0;
        match self.appended.back_mut() {
            Some((at, last)) if *last == appended => *at = now_us,
            _ => self.appended.push_back((now_us, appended)),
        }
        let durable = journal.durable().0;
        while self.appended.get(1).is_some_and(|(_, position)| *position <= durable) {
            self.appended.pop_front();
        }
    }

    /// Counts a checkpoint that has ended.
    pub(crate) fn note_checkpoint(&mut self, journal: &Journal) {
        let (at, count) = &mut self.checkpoints;
        let last = journal.status().checkpoint.0;
        *count += u64::from(last > *at);
        *at = last;
    }

    /// How many checkpoints took the place of what was in front of them.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.checkpoints.1
    }

    /// The last time of which all that was appended by then is durable.
    pub(crate) fn durable_at_us(&self) -> u64 {
        self.appended.front().map_or(0, |(at, _)| *at)
    }

    /// Ends the writer. Shape: it is not in the midst of anything.
    pub(crate) fn end(self) {
        if let Some(writer) = self.writer {
            writer.end();
        }
    }
}

impl Writer {
    fn new(writer: SimWriter) -> Writer {
        let (writer, is_ending) = (Rc::new(RefCell::new(writer)), Rc::<Cell<bool>>::default());
        let (own, ends) = (writer.clone(), is_ending.clone());
        let body = move || {
            while !ends.get() {
                own.borrow_mut().step();
                pause(Pause::Turn);
            }
        };
        Writer { writer, fiber: Fiber::new(body), is_in_step: false, is_ending }
    }

    fn is_due(&self) -> bool {
        self.is_in_step || self.writer.borrow().is_due()
    }

    fn run(&mut self) {
        let paused = self.fiber.run().expect("it runs until it is ended");
        self.is_in_step = paused != Pause::Turn;
    }

    fn end(mut self) {
        assert!(!self.is_in_step);
        self.is_ending.set(true);
        assert_eq!(self.fiber.run(), None);
    }
}
