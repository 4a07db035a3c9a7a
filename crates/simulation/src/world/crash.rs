//! The server crashes: its process is killed, or the power is lost. Another one starts on what is left of the journal,
//! and what it has must be the data of a prefix of the one order, with all that was promised to be durable.

use std::cell::RefCell;
use std::rc::Rc;

use flash::SimDisk;

use super::process::{Left, Machine};
use super::{Crashes, Move, World};
use crate::checker::{self, Event, Verdict};
use crate::client::Client;
use crate::collection::{Action, FIELDS};
use crate::command::{Command, HASHES, KEYS, KEYS_OF_TYPE, Key, Operation, STREAMS};
use crate::fiber::Preemption;
use crate::journal::{JournalProfile, JournalThread};
use crate::limits::WIND_DOWN_STEPS_MAX;
use crate::model::State;
use crate::outcome::Outcome;
use crate::profile::pick;
use crate::reply::Reply;
use crate::stream::{GROUPS, GroupAction, StreamAction};

/// Steps between the operation that a crash comes with and the crash.
const DELAY_STEPS_MAX: u64 = 100;
/// The same of those that come with a checkpoint, which may have ended by then.
const AMID_STEPS_MAX: u64 = 2_000;

impl Default for Crashes {
    fn default() -> Crashes {
        let (begin, counted) = (State::new(0), Outcome::default());
        Crashes { left: 0, due: (0, 0), is_amid: false, begin, counted }
    }
}

impl World {
    /// Opens the journal, if there is one, before anybody is served.
    pub(super) fn load(&mut self) -> Result<(), String> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.folder.set_now(self.clock.now_us());
        let loading = self.threads[0].worker.load(&mut journal.folder);
        let loaded = Rc::new(RefCell::new(None));
        let told = loaded.clone();
        self.threads[0].thread.spawn(async move { *told.borrow_mut() = Some(loading.await) });
        while loaded.borrow().is_none() {
            self.step()?;
        }
        let loaded = loaded.take().expect("it has ended");
        loaded.map_err(|error| format!("the journal was not loaded: {error}"))?;
        self.journal.as_mut().expect("it stays").begin();
        Ok(())
    }

    pub(super) fn run_journal(&mut self) {
        self.journal.as_mut().expect("it is due").run();
    }

    pub(super) fn note_journal(&mut self) {
        if let (Some(thread), Some(journal)) = (&mut self.journal, self.server.journal()) {
            thread.note(self.clock.now_us(), journal);
        }
    }

    pub(super) fn plan_crashes(&mut self) {
        self.crashes.left = self.profile.journal.as_ref().map_or(0, |journal| journal.crashes);
        self.plan_crash();
    }

    fn plan_crash(&mut self) {
        if self.crashes.left > 0 {
            let left = self.random.below(self.operations_left() + 1);
            self.crashes.is_amid = self.random.below(2) == 0;
            let delay_max = if self.crashes.is_amid { AMID_STEPS_MAX } else { DELAY_STEPS_MAX };
            self.crashes.due = (left, self.random.below(delay_max));
        }
    }

    fn operations_left(&self) -> u64 {
        self.clients.iter().map(Client::operations_left).sum()
    }

    /// Whether the server crashes now.
    pub(super) fn is_crash_due(&mut self) -> bool {
        let (left, delay) = self.crashes.due;
        if self.crashes.left == 0 || self.operations_left() > left {
            return false;
        }
        if self.crashes.is_amid && !self.has_job() {
            return false;
        }
        self.crashes.due = (left, delay.saturating_sub(1));
        delay == 0
    }

    /// Crashes, starts again, and looks at what is there. False: what was before was too wide to be checked.
    pub(super) fn crash(&mut self) -> Result<bool, String> {
        self.crashes.left -= 1;
        let (now_us, tolerance) = (self.clock.now_us(), self.tolerance()?);
        let loses_power = self.random.below(2) == 0;
        let journal = self.journal.as_mut().expect("what crashes has a journal");
        let left = journal.crash(loses_power);
        let disk = self.profile.keeps_flash().then(|| self.disk.after_crash(loses_power));
        let is_durable =
            self.profile.journal.as_ref().is_some_and(JournalProfile::is_durable_when_answered);
        let durable_at_us = if is_durable { now_us } else { journal.durable_at_us() };
        let operations: Vec<u64> = self.clients.iter().map(Client::operations_left).collect();
        self.clients.iter_mut().chain(&mut self.helper).for_each(Client::forget_unread);
        let mut histories = self.take_histories();
        let counted = self.count(&histories);
        self.crashes.counted.add(counted);
        self.wind_down()?;
        self.start_again(left, disk)?;
        // All that was answered before is in front of it, and of the rest a part.
        let look = self.look()?;
        self.crashes.counted.add_look(&look);
        histories.push(vec![Event { sent: durable_at_us + 1, ..look }]);
        let look = Some(histories.len() - 1);
        let (verdict, found) =
            checker::check_from(&self.crashes.begin, &histories, tolerance, look);
        let counted = &mut self.crashes.counted;
        counted.crashes += 1;
        match verdict {
            Verdict::Serializable => {}
            Verdict::Unknown => {
                counted.unchecked = 1;
                return Ok(false);
            }
            Verdict::Broken(text) => {
                let what = if loses_power { "a loss of power" } else { "a kill" };
                return Err(format!("behind {what} at {now_us}: {text}"));
            }
        }
        let found = found.expect("the look was answered");
        counted.lost += found.unseen;
        self.sync()?;
        self.crashes.begin = found.state;
        self.begin_failing();
        operations.into_iter().for_each(|operations| self.connect(operations));
        self.plan_crash();
        Ok(true)
    }

    /// Takes a server apart of which nothing is of interest any more: what is under way must come to an end.
    pub(super) fn wind_down(&mut self) -> Result<(), String> {
        Preemption::never().install();
        self.end_failing();
        self.clients.drain(..).chain(self.helper.take()).for_each(|client| client.wire.close());
        self.server.stop();
        for _ in 0..WIND_DOWN_STEPS_MAX {
            let Some(next) = self.unfinished() else {
                self.jobs.end();
                if let Some(journal) = self.journal.take() {
                    journal.end();
                }
                self.threads.drain(..).for_each(|one| one.thread.end());
                return Ok(());
            };
            self.clock.advance(1);
            match next {
                Move::Device(index) => {
                    self.threads[index].device.give();
                    self.threads[index].thread.run();
                }
                Move::Run(index) => self.threads[index].thread.run(),
                Move::Job => self.start_job(),
                Move::GoOn(index) => self.jobs.run(index, self.clock.now_us()),
                _ => self.run_journal(),
            }
        }
        Err(format!("the server does not come to an end\n{}", self.waits()))
    }

    /// Something that is under way, or what this may wait for.
    fn unfinished(&mut self) -> Option<Move> {
        let threads = self.threads.iter().enumerate();
        let mut moves: Vec<Move> = threads
            .filter_map(|(index, one)| match one.thread.is_in_task() {
                true => Some(Move::Run(index)),
                false => (one.worker.tier().in_flight() > 0).then_some(Move::Device(index)),
            })
            .collect();
        moves.extend(self.jobs.busy().map(Move::GoOn));
        moves.extend(self.server.has_job().then_some(Move::Job));
        let has_job = self.has_job();
        let is_unfinished =
            |journal: &JournalThread| journal.is_in_step() || has_job && journal.is_due();
        moves.extend(self.journal.as_ref().filter(|one| is_unfinished(one)).map(|_| Move::Journal));
        (!moves.is_empty()).then(|| pick(&mut self.random, &moves))
    }

    /// Starts another server on what is left of the journal and of the drives, with memory enough and drives that work.
    fn start_again(&mut self, journal: JournalThread, disk: Option<SimDisk>) -> Result<(), String> {
        let left = Left { journal: Some(&journal), disk };
        let machine = Machine::new(&self.profile, &mut self.random, &self.clock, 0, left)?;
        (self.disk, self.tier, self.server) = (machine.disk, machine.tier, machine.server);
        self.journal = Some(journal);
        self.max_memory.clear();
        self.start_threads();
        self.begin_stopping();
        self.load()
    }

    /// Has all be durable that was found: another crash must leave it, however soon it comes.
    fn sync(&mut self) -> Result<(), String> {
        let journal = self.server.journal().expect("it was loaded");
        let position = journal.appended();
        journal.sync_soon();
        while self.server.journal().is_some_and(|journal| journal.durable() < position) {
            self.step()?;
        }
        Ok(())
    }

    /// Looks at all data in one moment.
    fn look(&mut self) -> Result<Event, String> {
        self.connect(0);
        let client = self.clients.last_mut().expect("just connected");
        client.ask(self.clock.now_us(), vec![Operation::Transaction(look_at_all())]);
        while self.clients[0].is_waiting() {
            self.step()?;
        }
        let mut client = self.clients.pop().expect("it stays");
        client.wire.close();
        let event = client.events.pop().expect("it has asked");
        match &event.answered {
            Some((_, Reply::Array(_))) => Ok(event),
            _ => Err(format!("behind a crash: {}", checker::show(&event))),
        }
    }
}

/// What reads when the fields of a hash go.
fn look_at_times(key: Key) -> Command {
    Command::On(key, Action::HPExpireTime((0..FIELDS).collect()))
}

/// What reads of a stream what its entries do not tell.
fn look_at_stream(key: Key) -> impl Iterator<Item = Command> {
    let pending = (0..GROUPS).map(|group| StreamAction::Of(group, GroupAction::Pending));
    let actions = [StreamAction::Last, StreamAction::Groups].into_iter().chain(pending);
    actions.map(move |action| Command::On(key, Action::Stream(action)))
}

/// What reads all that the model knows of both databases.
fn look_at_all() -> Vec<Command> {
    let keys = || (0..KEYS.len() as u8).map(Key);
    let of_database = |db| {
        let collections = keys().skip(HASHES.into());
        [Command::Select(db), Command::MGet((0..HASHES).map(Key).collect())]
            .into_iter()
            .chain(collections.map(|key| Command::On(key, Action::read_all(key))))
            .chain(keys().skip(STREAMS.into()).flat_map(look_at_stream))
            .chain(keys().skip(HASHES.into()).take(KEYS_OF_TYPE.into()).map(look_at_times))
            .chain(keys().map(Command::PExpireTime))
    };
    [0, 1].into_iter().flat_map(of_database).chain([Command::Select(0)]).collect()
}
