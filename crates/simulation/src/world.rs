//! One run: a server of several workers, its drives and its clients, and the scheduler that says
//! what happens next.

mod crash;
mod process;
mod waits;

use std::fmt;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flash::{SimDisk, SimFaults};
use server::simulation::{SimServer, SimWorker};
use stdx::Random;
use tier::Tier;

use crate::checker::{self, Event, Tolerance, Verdict};
use crate::client::{Author, Client, weighted};
use crate::collection::Action;
use crate::command::{Command, HASHES, KEYS, Key, Operation};
use crate::fiber::Preemption;
use crate::jobs::Jobs;
use crate::journal::{JournalProfile, JournalThread};
use crate::limits::{ANSWERED_WITHIN_US, BROUGHT_MAX, PARKED_STEPS_MAX, STEPS_MAX};
use crate::listener::{self, Listener};
use crate::machine::{BASE_BYTES, SimClock};
use crate::memory::MemoryBound;
use crate::model::State;
use crate::outcome::Outcome;
use crate::profile::Profile;
use crate::reply::Reply;
use crate::tasks::{Signal, Thread, either};
use crate::value::Value;
use crate::wire::{self, ClientEnd};
use process::{Left, Machine};

/// Between two rounds of a worker's upkeep.
const UPKEEP_EVERY_US: u64 = 5_000;
/// Between two measurements of memory.
const MEASURE_EVERY_US: u64 = 20_000;
/// A step takes at most so long.
const STEP_US_MAX: u64 = 20;
/// Bytes of replies that a client lets the server write at a time.
const WINDOW_BYTES: u64 = 256 << 10;
/// The same of one that listens, whose messages are short: it is often behind.
const LISTENER_WINDOW_BYTES: u64 = 400;
/// Of what is brought to those who wait.
const BROUGHT_BYTES: usize = 40;
/// Simulated time for which the server has nothing to do before it counts as at rest.
const REST_US: u64 = 500_000;
/// What the flash engine of one worker may take besides the values.
const ENGINE_BYTES: u64 = 4 << 20;

/// Why a run failed.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A worker with what the scheduler needs of it.
struct SimThread {
    thread: Thread,
    worker: SimWorker,
    /// The step before which it does not go on, unless nothing else happens.
    parked_until: u64,
    upkeep_due_us: u64,
    upkeep: Rc<Signal>,
    device: Rc<Signal>,
}

struct World {
    profile: Profile,
    random: Random,
    clock: Arc<SimClock>,
    disk: SimDisk,
    tier: Arc<Tier>,
    server: SimServer,
    threads: Vec<SimThread>,
    jobs: Jobs,
    journal: Option<JournalThread>,
    crashes: Crashes,
    clients: Vec<Client>,
    /// Brings something to those who wait without end.
    helper: Option<Client>,
    /// How often it has since a client was last answered.
    brought: u64,
    /// Whether something was brought when last nothing else could happen.
    brought_last: bool,
    listeners: Vec<Listener>,
    /// Histories of connections that have ended.
    ended: Vec<Vec<Event>>,
    measure_due_us: u64,
    /// When a job was last under way.
    worked_us: Option<u64>,
    /// When a client was last answered.
    progress_us: u64,
    steps: u64,
    values: u64,
    max_memory: Vec<u64>,
    memory_bound: MemoryBound,
}

/// The crashes of a run.
struct Crashes {
    /// Those that are still to come.
    left: u64,
    /// The next comes when clients have so many operations left to make up, and so many steps later.
    due: (u64, u64),
    /// Only steps count in which a checkpoint is under way, if one comes.
    is_amid: bool,
    /// The data with which the histories begin.
    begin: State,
    /// What has been counted up to the last.
    counted: Outcome,
}

/// What may happen in a step.
#[derive(Clone, Copy)]
enum Move {
    Run(usize),
    Device(usize),
    Deliver(usize),
    Read(usize),
    Send(usize),
    DeliverToListener(usize),
    ReadAsListener(usize),
    /// A piece of work begins.
    Job,
    /// One that has begun goes on.
    GoOn(usize),
    Journal,
}

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Result<Outcome, Failure> {
    stdx::fix_hash_seed(0x5EED);
    waits::set_hooks();
    let mut random = Random::new(seed);
    let mut profile = Profile::draw(&mut random);
    // Of its own, so that the other seeds stay as they are.
    JournalProfile::draw(&mut Random::new(!seed), &mut profile);
    // What is in the middle of something when a run fails cannot be taken apart.
    let mut world = ManuallyDrop::new(World::new(profile, random));
    let result = world.play();
    Preemption::never().install();
    match result {
        Ok(outcome) => {
            ManuallyDrop::into_inner(world).end();
            Ok(outcome)
        }
        Err(failure) => Err(Failure(format!("{failure}\n{:?}", world.profile))),
    }
}

impl World {
    fn new(profile: Profile, mut random: Random) -> World {
        let clock = Arc::new(SimClock::default());
        let engine_bytes = profile.flash_segments.map_or(0, |_| ENGINE_BYTES);
        let fixed = BASE_BYTES + profile.workers as u64 * engine_bytes;
        let max_memory = profile.room_bytes.map_or(0, |room| fixed + room);
        let journal = profile.journal.as_ref().map(|journal| {
            let seed = random.next_u64();
            JournalThread::new(seed, journal)
        });
        let left = Left { journal: journal.as_ref(), disk: None };
        let machine = Machine::new(&profile, &mut random, &clock, max_memory, left);
        let Machine { disk, tier, server } = machine.expect("nothing is left of another");
        let mut world = World {
            threads: Vec::new(),
            jobs: Jobs::default(),
            journal,
            crashes: Crashes::default(),
            clients: Vec::new(),
            helper: None,
            brought: 0,
            brought_last: false,
            listeners: Vec::new(),
            ended: Vec::new(),
            measure_due_us: 0,
            worked_us: None,
            progress_us: 0,
            steps: 0,
            values: 0,
            memory_bound: MemoryBound::default(),
            max_memory: match profile.room_bytes {
                Some(room) => vec![fixed + room, fixed + room / 2, fixed + 2 * room],
                None => Vec::new(),
            },
            profile,
            random,
            clock,
            disk,
            tier,
            server,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.start_threads();
        for place in 0..self.profile.listeners {
            let index = self.random.below(self.threads.len() as u64) as usize;
            let (_, wire) = self.connect_to(index, false);
            self.listeners.push(Listener::new(wire, place));
        }
        self.begin_stopping();
    }

    fn start_threads(&mut self) {
        for index in 0..self.profile.workers {
            let random = Random::new(self.random.next_u64());
            let started = SimThread::start(self.server.worker(index), random);
            self.threads.push(started);
        }
    }

    /// Has threads be stopped as the profile says.
    fn begin_stopping(&mut self) {
        let random = Random::new(self.random.next_u64());
        Preemption::new(random, self.profile.preempted_one_in).install();
    }

    /// Has drives fail as the profile says.
    fn begin_failing(&mut self) {
        self.disk.set_faults(self.profile.device.faults.clone());
        if let (Some(journal), Some(profile)) = (&self.journal, &self.profile.journal) {
            journal.folder.set_failing(profile.failing);
        }
    }

    fn end_failing(&mut self) {
        self.disk.set_faults(SimFaults::default());
        if let Some(journal) = &self.journal {
            journal.folder.set_failing(0);
        }
    }

    /// A new connection on some worker.
    fn connect(&mut self, operations: u64) {
        let index = match self.profile.pairs {
            // Those of a pair are on two.
            true => self.clients.len() % self.threads.len(),
            false => self.random.below(self.threads.len() as u64) as usize,
        };
        let (id, wire) = self.connect_to(index, true);
        wire.open_window(WINDOW_BYTES as usize);
        self.clients.push(Client::new(wire, id, operations));
    }

    /// A new connection on a worker: its number, and the client's end of it. One that only listens is not
    /// timed: what it is sent tells nothing of when it was made.
    fn connect_to(&self, index: usize, is_timed: bool) -> (u64, ClientEnd) {
        let (server_end, client_end) = wire::connect(self.clock.clone());
        let thread = &self.threads[index];
        let (id, connection) = thread.worker.connect(server_end);
        match is_timed {
            true => {
                let worker = thread.worker.clone();
                let transactions = Box::new(move || worker.transactions());
                thread.thread.spawn(client_end.timed(connection, transactions))
            }
            false => thread.thread.spawn(connection),
        }
        (id, client_end)
    }

    /// Lets the clients do their work, then looks at everything.
    fn play(&mut self) -> Result<Outcome, String> {
        self.load()?;
        self.begin_failing();
        // Before anybody publishes.
        while !self.listeners.iter().all(Listener::is_confirmed) {
            self.step()?;
        }
        for _ in 0..self.profile.clients {
            self.connect(self.profile.operations);
        }
        self.plan_crashes();
        self.settle()?;
        while self.crashes.left > 0 {
            if !self.crash()? {
                self.wind_down()?;
                return Ok(self.crashes.counted);
            }
            self.settle()?;
        }
        self.end_failing();
        Preemption::never().install();
        // Once while memory is short, once when it is not any more.
        self.rest()?;
        self.read_everything()?;
        self.rest()?;
        self.check()
    }

    /// Goes on until all is asked and answered, or a crash is due.
    fn settle(&mut self) -> Result<(), String> {
        self.progress_us = self.clock.now_us();
        while !self.is_crash_due()
            && self.clients.iter().any(|client| client.is_waiting() || client.may_send())
        {
            self.step()?;
            let is_late = self.clock.now_us() > self.progress_us + ANSWERED_WITHIN_US;
            if is_late || self.brought > BROUGHT_MAX {
                return Err(format!("nobody is answered any more\n{}", self.waits()));
            }
        }
        Ok(())
    }

    /// Asks for every key of both databases.
    fn read_everything(&mut self) -> Result<(), String> {
        self.connect(0);
        // Nothing may be refused.
        let mut operations = vec![Command::other(&["CONFIG", "SET", "maxmemory", "0"])];
        for db in [0, 1] {
            operations.extend([Command::Select(db), Command::MGet((0..HASHES).map(Key).collect())]);
            let collections = (HASHES..KEYS.len() as u8).map(Key);
            operations.extend(collections.map(|key| Command::On(key, Action::read_all(key))));
        }
        operations.push(Command::Select(0));
        self.clock.advance(1);
        let reader = self.clients.last_mut().expect("just connected");
        reader.ask(self.clock.now_us(), operations.into_iter().map(Operation::Single).collect());
        self.settle()?;
        let reader = self.clients.last().expect("it stays");
        let failed = reader.events.iter().find(|event| {
            event.answered.as_ref().is_none_or(|(_, reply)| matches!(reply, Reply::Error(_)))
        });
        failed.map_or(Ok(()), |event| Err(format!("at rest: {}", checker::show(event))))
    }

    /// Waits until nothing is under way, the device included.
    fn rest(&mut self) -> Result<(), String> {
        let mut quiet_since_us = self.clock.now_us();
        let is_writing = |journal: &JournalThread| journal.is_in_step();
        while self.clock.now_us() < quiet_since_us + REST_US
            || self.journal.as_ref().is_some_and(is_writing)
        {
            let busy = self
                .threads
                .iter()
                .any(|one| one.thread.is_in_task() || one.worker.tier().in_flight() > 0);
            if busy || self.has_job() {
                quiet_since_us = self.clock.now_us();
            }
            self.step()?;
        }
        Ok(())
    }

    fn next_step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    /// One thing happens.
    fn step(&mut self) -> Result<(), String> {
        let now = self.next_step();
        if now > STEPS_MAX {
            return Err(format!("no end after {STEPS_MAX} steps\n{}", self.waits()));
        }
        self.clock.advance(1 + self.random.below(STEP_US_MAX));
        if let Some(journal) = &self.journal {
            journal.folder.set_now(self.clock.now_us());
        }
        self.ring_timers();
        let moves = match self.moves(now) {
            moves if moves.is_empty() => self.moves(u64::MAX),
            moves => moves,
        };
        if moves.is_empty() {
            // An answer may wait for the journal's writer, which gathers records for some milliseconds.
            let lets_time_pass = self.brought_last && self.is_journal_behind();
            self.brought_last = !lets_time_pass && self.bring_something();
            if !self.brought_last {
                self.skip_to_next_timer();
            }
            return Ok(());
        }
        match weighted(&mut self.random, &moves) {
            Move::Run(index) => self.run(index, now),
            Move::Device(index) => self.threads[index].device.give(),
            Move::Job => self.start_job(),
            Move::GoOn(index) => self.go_on(index),
            Move::Journal => self.run_journal(),
            Move::Deliver(index) => self.deliver(index),
            Move::Read(index) => {
                let bytes = 1 + self.random.below(WINDOW_BYTES);
                self.clients[index].wire.open_window(bytes as usize);
            }
            Move::Send(index) => self.send(index),
            Move::DeliverToListener(index) => {
                let wire = &self.listeners[index].wire;
                wire.deliver(wire.in_transit());
            }
            Move::ReadAsListener(index) => {
                let bytes = 1 + self.random.below(LISTENER_WINDOW_BYTES);
                self.listeners[index].wire.open_window(bytes as usize);
            }
        }
        self.note_journal();
        let engine_bytes_max = self.engine_bytes_max();
        self.memory_bound.check(&self.tier.budget, engine_bytes_max)?;
        self.receive()
    }

    /// What counts of the engine: what its workers have, if a checkpoint has been taken since memory was measured.
    fn engine_bytes_max(&mut self) -> i64 {
        let now_us = self.clock.now_us();
        if self.jobs.busy().next().is_some() {
            self.worked_us = Some(now_us);
        }
        match self.worked_us {
            Some(at) if now_us <= at + MEASURE_EVERY_US => {
                (self.profile.workers as u64 * ENGINE_BYTES) as i64
            }
            _ => i64::MAX,
        }
    }

    fn ring_timers(&mut self) {
        let now_us = self.clock.now_us();
        for thread in &mut self.threads {
            if thread.upkeep_due_us <= now_us {
                thread.upkeep_due_us = now_us + UPKEEP_EVERY_US;
                thread.upkeep.give();
            }
        }
        if self.measure_due_us <= now_us {
            self.measure_due_us = now_us + MEASURE_EVERY_US;
            self.server.measure();
        }
    }

    fn skip_to_next_timer(&mut self) {
        let timers = self.threads.iter().map(|thread| thread.upkeep_due_us);
        let timers = timers.chain([self.measure_due_us]).chain(self.jobs.next_due_us());
        let next_us = timers.min().unwrap_or(0);
        self.clock.advance(next_us.saturating_sub(self.clock.now_us()));
    }

    fn is_journal_behind(&self) -> bool {
        self.server.journal().is_some_and(|journal| journal.durable() != journal.appended())
    }

    /// Since nothing else happens: has something pushed to the key that a client waits for without end, so
    /// that it is answered by and by. False: nobody waits so, or it is under way.
    fn bring_something(&mut self) -> bool {
        let Some(key) = self.clients.iter().find_map(Client::waited_key) else { return false };
        if self.helper.is_none() {
            let index = self.random.below(self.threads.len() as u64) as usize;
            let (id, wire) = self.connect_to(index, true);
            wire.open_window(WINDOW_BYTES as usize);
            self.helper = Some(Client::new(wire, id, 0));
        }
        let Some(helper) = self.helper.as_mut().filter(|helper| !helper.is_waiting()) else {
            return false;
        };
        let mut bring = |db| {
            self.values += 1;
            let value = Value::unique(self.values, BROUGHT_BYTES, false);
            [Command::Select(db), Command::On(key, Action::add_to(key, value))]
        };
        let commands = [0, 1].map(&mut bring).into_iter().flatten();
        helper.ask(self.clock.now_us(), commands.map(Operation::Single).collect());
        helper.wire.deliver(usize::MAX);
        self.brought += 1;
        // It is never behind.
        helper.wire.open_window(WINDOW_BYTES as usize);
        true
    }

    /// What may happen in step `now`, with weights.
    fn moves(&self, now: u64) -> Vec<(u64, Move)> {
        let mut moves = Vec::new();
        for (index, thread) in self.threads.iter().enumerate() {
            if thread.thread.is_ready() && thread.parked_until <= now {
                moves.push((if thread.thread.is_blocked() { 2 } else { 10 }, Move::Run(index)));
            }
            // While it is in a task its side of the engine may be in use; it could not answer.
            if !thread.thread.is_in_task() && thread.worker.tier().in_flight() > 0 {
                moves.push((self.profile.device.weight, Move::Device(index)));
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            if client.wire.in_transit() > 0 {
                moves.push((5, Move::Deliver(index)));
            }
            if client.wire.is_stuck() {
                moves.push((2, Move::Read(index)));
            }
            if client.may_send() && self.is_in_step(index) {
                moves.push((3, Move::Send(index)));
            }
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            if listener.wire.in_transit() > 0 {
                moves.push((5, Move::DeliverToListener(index)));
            }
            if listener.wire.is_stuck() {
                moves.push((2, Move::ReadAsListener(index)));
            }
        }
        if self.server.has_job() {
            moves.push((5, Move::Job));
        }
        for index in self.jobs.busy() {
            let (is_awake, is_blocked) = self.jobs.is_awake(index, self.clock.now_us());
            if is_awake {
                moves.push((if is_blocked { 2 } else { 5 }, Move::GoOn(index)));
            }
        }
        if let Some(journal) = self.journal.as_ref().filter(|journal| journal.is_due()) {
            moves.push((journal.weight(), Move::Journal));
        }
        moves
    }

    fn start_job(&mut self) {
        let job = self.server.take_job().expect("there is one");
        self.jobs.start(job, self.clock.now_us());
    }

    fn go_on(&mut self, index: usize) {
        self.jobs.run(index, self.clock.now_us());
        if let (Some(thread), Some(journal)) = (&mut self.journal, self.server.journal()) {
            thread.note_checkpoint(journal);
        }
    }

    /// Whether a piece of work is to begin, or under way.
    fn has_job(&self) -> bool {
        self.server.has_job() || self.jobs.busy().next().is_some()
    }

    fn run(&mut self, index: usize, now: u64) {
        let one = &mut self.threads[index];
        one.thread.run();
        let is_parked = one.thread.is_preempted()
            && self.profile.parked > 0
            && self.random.below(1000) < self.profile.parked;
        one.parked_until = if is_parked { now + self.random.below(PARKED_STEPS_MAX) } else { 0 };
    }

    fn deliver(&mut self, index: usize) {
        let wire = self.clients[index].wire.clone();
        let whole = wire.in_transit() as u64;
        let bytes = match self.random.below(4) {
            0 => 1 + self.random.below(whole),
            _ => whole,
        };
        wire.deliver(bytes as usize);
    }

    /// Whether a client need not wait for the one that it works with.
    fn is_in_step(&self, index: usize) -> bool {
        let other = self.clients.get(index ^ 1).filter(|_| self.profile.pairs);
        other.is_none_or(|other| self.clients[index].is_in_step_with(other))
    }

    fn send(&mut self, index: usize) {
        if self.random.below(1000) < self.profile.cuts {
            return self.clients[index].wire.close();
        }
        let ids: Vec<u64> = self.clients.iter().map(|client| client.id).collect();
        let mut author = Author {
            random: &mut self.random,
            profile: &self.profile,
            values: &mut self.values,
            ids: &ids,
            max_memory: &self.max_memory,
            now_ms: self.clock.now_us() / 1000,
        };
        let other = index ^ 1;
        let is_pair = self.profile.pairs && other < self.clients.len();
        if is_pair && self.clients[index].is_idle() && self.clients[other].is_idle() {
            let [one, two] = author.pair();
            self.clients[index].set_script(one);
            self.clients[other].set_script(two);
        }
        self.clients[index].send(self.clock.now_us(), &mut author);
    }

    /// Takes what the server has answered; who lost the connection makes a new one.
    fn receive(&mut self) -> Result<(), String> {
        for listener in &mut self.listeners {
            listener.receive()?;
        }
        let bytes_max = self.profile.slices().reply_bytes_free;
        if let Some(helper) = &mut self.helper {
            // That is no progress.
            helper.receive(bytes_max)?;
        }
        for index in (0..self.clients.len()).rev() {
            if self.clients[index].receive(bytes_max)? {
                (self.progress_us, self.brought) = (self.clock.now_us(), 0);
            }
            if self.clients[index].wire.is_over() {
                let client = self.clients.swap_remove(index);
                let operations = client.operations_left();
                self.ended.push(client.events);
                self.connect(operations);
            }
        }
        Ok(())
    }

    /// Who waits for what.
    fn waits(&self) -> String {
        let shown = self.clients.iter().filter_map(|client| {
            let event = client.first_wait()?;
            Some(format!("  connection {}: {}\n", client.id, checker::show(event)))
        });
        let mut text: String = shown.collect();
        for (index, one) in self.threads.iter().enumerate() {
            let (thread, worker) = (&one.thread, &one.worker);
            let state = match (thread.is_blocked(), thread.is_in_task()) {
                (true, _) => "waits for a slot".to_owned(),
                (_, true) => "is in a task".to_owned(),
                _ => format!("is in none, {} in flight", worker.tier().in_flight()),
            };
            text.push_str(&format!("  worker {index} {state}\n"));
        }
        self.jobs.busy().for_each(|index| text.push_str(&format!("  job {index} is under way\n")));
        let stats = self.tier.engine().map(|engine| (engine.stats(), engine.free_space()));
        text.push_str(&format!(
            "  budget {:?}\n  flash {stats:?}\n",
            self.tier.budget.memory_use()
        ));
        text
    }

    fn check(&mut self) -> Result<Outcome, String> {
        crate::audit::check(&self.tier)?;
        let (histories, tolerance) = (self.take_histories(), self.tolerance()?);
        let (verdict, _) = checker::check_from(&self.crashes.begin, &histories, tolerance, None);
        let mut outcome = self.count(&histories);
        outcome.heard = listener::check(&self.listeners, &histories)?;
        outcome.mix(self.random.next_u64() ^ self.disk.operations() << 32);
        outcome.add(self.crashes.counted);
        match verdict {
            Verdict::Serializable => Ok(outcome),
            Verdict::Broken(text) => Err(text),
            Verdict::Unknown => {
                outcome.unchecked = 1;
                Ok(outcome)
            }
        }
    }

    /// The histories of all connections so far.
    fn take_histories(&mut self) -> Vec<Vec<Event>> {
        let mut histories = std::mem::take(&mut self.ended);
        let clients = self.clients.iter_mut().chain(&mut self.helper);
        histories.extend(clients.map(|client| std::mem::take(&mut client.events)));
        histories
    }

    /// What the server may have done besides what the model does.
    fn tolerance(&self) -> Result<Tolerance, String> {
        let faults = &self.profile.device.faults;
        let tolerance = Tolerance {
            refusals: self.profile.room_bytes.is_some(),
            evictions: self.tier.counters.evicted.load(Ordering::Relaxed) > 0,
            volatile_alone: self.profile.policy.starts_with("volatile-"),
            unreadable: faults.failed_reads + faults.flipped_bits > 0,
            unwritable: self.profile.journal.as_ref().is_some_and(|journal| journal.failing > 0),
            late_ms: self.clock.longest_poll_us().div_ceil(1000),
        };
        // Whoever saves values for a checkpoint may wait for the file.
        let has_checkpoints = self.profile.journal.is_some();
        if self.profile.preempted_one_in == 0 && tolerance.late_ms > 0 && !has_checkpoints {
            return Err(format!("nobody was stopped, yet {tolerance:?}"));
        }
        Ok(tolerance)
    }

    /// What this server has done.
    fn count(&self, histories: &[Vec<Event>]) -> Outcome {
        let mut outcome = Outcome::new(self.steps - self.crashes.counted.steps, &self.tier);
        self.threads.iter().for_each(|one| outcome.add_turns(one.worker.turn_counts()));
        outcome.checkpoints = self.journal.as_ref().map_or(0, JournalThread::checkpoints);
        outcome.kept = self.server.loaded_places();
        outcome.recent = self.server.loaded_recent();
        histories.iter().flatten().for_each(|event| outcome.add_event(event));
        outcome
    }

    /// Takes everything apart.
    fn end(mut self) {
        self.jobs.end();
        if let Some(journal) = self.journal.take() {
            journal.end();
        }
        for thread in self.threads.drain(..) {
            thread.thread.end();
        }
    }
}

impl SimThread {
    fn start(worker: SimWorker, random: Random) -> SimThread {
        let thread = Thread::new(random);
        let (upkeep, device) = (Rc::<Signal>::default(), Rc::<Signal>::default());
        let (beat, mut round) = (upkeep.clone(), worker.upkeep());
        let waited = worker.clone();
        thread.spawn(async move {
            loop {
                while round() {
                    tier::yield_once().await;
                }
                either(beat.taken(), waited.tier().upkeep_due()).await;
            }
        });
        let (answers, reaping) = (device.clone(), worker.clone());
        thread.spawn(async move {
            loop {
                answers.taken().await;
                reaping.tier().reap();
            }
        });
        thread.spawn(worker.post());
        let submitting = worker.clone();
        thread.spawn(async move { submitting.tier().submitter().await });
        SimThread { thread, worker, parked_until: 0, upkeep_due_us: 0, upkeep, device }
    }
}
