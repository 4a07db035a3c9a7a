//! The loop of one thread: waits for its clients, counts what they bring, keeps them busy.
//!
//! In a closed loop a client sends again when replies come. On schedule (`--rate`) requests fall due
//! whether or not replies come; a request that finds no room waits, and its latency counts from when
//! it was due.

use crate::LoadError;
use crate::client::{Client, Schedule, parties};
use crate::control::Control;
use crate::cpu::CpuSeconds;
use crate::epoll::Ready;
use crate::link::{Kit, Lost};
use crate::live::INTERVAL;
use crate::plan::{Plan, Until};
use crate::stats::{Stats, latency_histogram};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant, SystemTime};

/// Longest wait before the clock is looked at again.
const TICK: Duration = Duration::from_millis(50);
/// A connection is given up when no reply has come for so long.
const REPLY_NS_MAX: u64 = 120_000_000_000;
/// After an interrupt replies that are still to come are waited for so long.
const INTERRUPT_NS_MAX: u64 = 1_000_000_000;

/// What one thread has to tell at its end.
pub struct Outcome {
    /// What it counted.
    pub stats: Stats,
    /// When counting began, and the CPU time of the process then.
    pub began: (Instant, SystemTime, CpuSeconds),
}

/// A thread and its clients.
pub struct Worker<'a> {
    kit: Kit<'a>,
    control: &'a Control,
    /// None when it is done or lost.
    clients: Vec<Option<Client>>,
    alive: usize,
    pace: Option<Pace>,
    stopped: bool,
    began: (Instant, SystemTime, CpuSeconds),
    live: Option<Live>,
}

/// A schedule and how far it has been kept.
struct Pace {
    step_ns: f64,
    sent: u64,
    /// The client that is next in turn.
    turn: usize,
}

/// When what is to be done, in nanoseconds from the start; `u64::MAX` for never, or done.
struct Times {
    begin_ns: u64,
    end_ns: u64,
    /// The end of patience after an interrupt.
    give_up_ns: u64,
    tick_ns: u64,
}

/// What the live line has been told.
struct Live {
    told: Histogram<u64>,
    told_ns: u64,
}

impl<'a> Worker<'a> {
    /// Connects the clients of thread `thread`.
    ///
    /// Errors: when a connection cannot be made, or the system refuses to wait for one.
    pub fn new(plan: &'a Plan, control: &'a Control, thread: usize) -> Result<Self, LoadError> {
        let refused = |source| LoadError::System { what: "epoll", source };
        let kit = Kit::new(plan).map_err(refused)?;
        let mut clients = Vec::with_capacity(plan.clients);
        for place in 0..plan.clients {
            let index = (thread * plan.clients + place) as u64;
            let client = Client::open(&kit, index, place).map_err(|lost| match lost {
                Lost::Open { address, source } => LoadError::Connect { address, source },
                Lost::System(source) => refused(source),
                other => LoadError::System {
                    what: "connection",
                    source: std::io::Error::other(other.to_string()),
                },
            })?;
            clients.push(Some(client));
        }
        let step_ns = plan.rate.map(|rate| 1e9 * plan.threads as f64 / rate);
        Ok(Self {
            kit,
            control,
            alive: clients.len(),
            clients,
            pace: step_ns.map(|step_ns| Pace { step_ns, sent: 0, turn: 0 }),
            stopped: false,
            began: (Instant::now(), SystemTime::now(), CpuSeconds::now()),
            live: control.live.is_some().then(|| Live { told: latency_histogram(), told_ns: 0 }),
        })
    }

    /// Loads until the end; `start` is when the clock of all threads began.
    ///
    /// Errors: when the system refuses to wait.
    pub fn run(mut self, start: Instant) -> Result<Outcome, LoadError> {
        // Zero stands for a request that was not sent yet: no time is zero.
        let clock = || start.elapsed().as_nanos() as u64 + 1;
        let mut times = Times::new(self.kit.plan);
        self.keep_times(&mut times, clock());
        for place in 0..self.clients.len() {
            self.send(place, clock());
        }
        while self.alive > 0 {
            let now_ns = clock();
            self.keep_times(&mut times, now_ns);
            if now_ns >= times.give_up_ns {
                break;
            }
            let room = self.send_due(now_ns);
            self.send_limited(now_ns);
            let now_ns = clock();
            let timeout = self.timeout(room, now_ns).min(times.next(now_ns));
            self.kit
                .epoll
                .wait(timeout)
                .map_err(|source| LoadError::System { what: "epoll_pwait2", source })?;
            // All that has come is read before anything is sent: no reply waits, with its clock
            // running, while requests of other clients are made.
            for index in 0..self.kit.epoll.ready_count() {
                self.receive(self.kit.epoll.ready(index), clock);
            }
            for index in 0..self.kit.epoll.ready_count() {
                self.send(parties(self.kit.epoll.ready(index).token).0, clock());
            }
        }
        Ok(Outcome { stats: self.kit.stats, began: self.began })
    }

    /// Does what is to be done at `now_ns`.
    fn keep_times(&mut self, times: &mut Times, now_ns: u64) {
        if now_ns >= times.begin_ns {
            times.begin_ns = u64::MAX;
            self.begin(now_ns);
        }
        if now_ns >= times.end_ns {
            self.stop(times.end_ns);
            times.end_ns = u64::MAX;
        }
        if times.give_up_ns == u64::MAX && self.control.is_interrupted() {
            times.give_up_ns = now_ns + INTERRUPT_NS_MAX;
            self.stop(now_ns);
        }
        if now_ns >= times.tick_ns {
            times.tick_ns = now_ns + TICK.as_nanos() as u64;
            self.give_up_silent(now_ns);
            self.tell_live(now_ns);
        }
    }

    /// From now on everything counts.
    fn begin(&mut self, now_ns: u64) {
        self.kit.stats = Stats::new(self.kit.plan.labels.len());
        self.kit.begin_ns = now_ns;
        self.began = (Instant::now(), SystemTime::now(), CpuSeconds::now());
        for client in self.clients.iter_mut().flatten() {
            client.begin(self.kit.plan);
        }
        if let Some(live) = &mut self.live {
            live.told.reset();
            live.told_ns = now_ns;
        }
    }

    /// Takes what a client has been brought.
    fn receive(&mut self, ready: Ready, clock: impl Fn() -> u64) {
        let (place, node) = parties(ready.token);
        let Some(client) = self.clients[place].as_mut() else { return };
        let outcome = client.receive(&mut self.kit, node, ready, &clock);
        if outcome.is_err() {
            self.settle(place, outcome.map(|_| ()));
        }
    }

    /// Lets a client send what it has room for: in a closed loop new requests; on schedule, where
    /// those are sent when they are due, only what was redirected.
    fn send(&mut self, place: usize, now_ns: u64) {
        let Some(client) = self.clients[place].as_mut() else { return };
        let count = if self.pace.is_some() { 0 } else { usize::MAX };
        let outcome = client.send(&mut self.kit, count, None, now_ns);
        self.settle(place, outcome.map(|_| ()));
    }

    /// Sends the requests that are due by the schedule, in turn by all clients with room. Returns
    /// whether there was room for all.
    fn send_due(&mut self, now_ns: u64) -> bool {
        let Some(mut pace) = self.pace.take() else { return true };
        let clients = self.clients.len();
        let mut due = pace.due(now_ns).saturating_sub(pace.sent);
        let mut full = 0;
        while due > 0 && full < clients && !self.stopped {
            let place = pace.turn;
            pace.turn = (pace.turn + 1) % clients;
            full += 1;
            let Some(client) = self.clients[place].as_mut() else { continue };
            let share = (due / clients as u64).max(1) as usize;
            let first_ns = pace.sent as f64 * pace.step_ns;
            let schedule = Schedule { first_ns, step_ns: pace.step_ns };
            let outcome = client.send(&mut self.kit, share, Some(schedule), now_ns);
            if let Ok(sent @ 1..) = outcome {
                pace.sent += sent as u64;
                due -= sent as u64;
                full = 0;
            }
            self.settle(place, outcome.map(|_| ()));
        }
        self.pace = Some(pace);
        due == 0
    }

    /// Sends what a limited rate has held back until now.
    fn send_limited(&mut self, now_ns: u64) {
        if self.kit.plan.rate_limit.is_none() || self.stopped {
            return;
        }
        for place in 0..self.clients.len() {
            let Some(client) = self.clients[place].as_mut() else { continue };
            if client.pause_ns(now_ns) == 0 {
                let outcome = client.send(&mut self.kit, usize::MAX, None, now_ns);
                self.settle(place, outcome.map(|_| ()));
            }
        }
    }

    /// How long to wait for sockets at `now_ns`: on schedule until the next request is due, unless
    /// there is no room for it before a reply has come; at a limited rate until a client may send.
    fn timeout(&self, room: bool, now_ns: u64) -> Duration {
        let limited = || {
            let pauses = self.clients.iter().flatten().map(|client| client.pause_ns(now_ns));
            // One that may send and did not has no room: a reply will wake it.
            pauses.filter(|pause_ns| *pause_ns > 0).min().map(Duration::from_nanos)
        };
        let wait = match &self.pace {
            _ if self.stopped => None,
            Some(pace) if room => {
                let next_ns = pace.sent as f64 * pace.step_ns;
                Some(Duration::from_nanos((next_ns - now_ns as f64).max(0.0) as u64))
            }
            Some(_) => None,
            None => self.kit.plan.rate_limit.and_then(|_| limited()),
        };
        wait.unwrap_or(TICK).min(TICK)
    }

    fn stop(&mut self, end_ns: u64) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        if let Some(pace) = &self.pace {
            self.kit.stats.unsent += pace.due(end_ns).saturating_sub(pace.sent);
        }
        for place in 0..self.clients.len() {
            if let Some(client) = self.clients[place].as_mut() {
                client.stop();
                self.settle(place, Ok(()));
            }
        }
    }

    /// Gives up clients that have waited too long for a reply.
    fn give_up_silent(&mut self, now_ns: u64) {
        for place in 0..self.clients.len() {
            let Some(client) = &self.clients[place] else { continue };
            let waited_ns = client.waited_ns(now_ns);
            if waited_ns > REPLY_NS_MAX {
                self.kit.stats.stall_ns_max = self.kit.stats.stall_ns_max.max(waited_ns);
                self.settle(place, Err(Lost::Silent));
            }
        }
    }

    /// Drops a client that is done or lost.
    fn settle(&mut self, place: usize, outcome: Result<(), Lost>) {
        let Some(client) = &self.clients[place] else { return };
        if let Err(lost) = &outcome {
            self.kit.stats.connections_lost += 1;
            self.kit.stats.note_error(&lost.to_string());
            self.kit.redirected.clear();
        }
        if outcome.is_err() || client.is_done() {
            self.clients[place] = None;
            self.alive -= 1;
        }
    }

    /// Tells the live line, if there is one, what has happened since it was last told.
    fn tell_live(&mut self, now_ns: u64) {
        let (Some(live), Some(line)) = (&mut self.live, &self.control.live) else { return };
        if now_ns < live.told_ns + INTERVAL.as_nanos() as u64 {
            return;
        }
        let seconds = (now_ns - live.told_ns) as f64 / 1e9;
        live.told_ns = now_ns;
        let now = self.kit.stats.totals().latency_ns;
        let mut news = now.clone();
        // Counts only grow: what was told is a part of what there is now.
        let _ = news.subtract(&live.told);
        live.told = now;
        line.tell(&news, seconds);
    }
}

impl Times {
    fn new(plan: &Plan) -> Self {
        let begin_ns = plan.warm_up.as_nanos() as u64;
        let end_ns = match plan.until {
            Until::Time(time) => begin_ns.saturating_add(time.as_nanos() as u64),
            Until::Requests(_) | Until::PartOfKeys => u64::MAX,
        };
        Self { begin_ns, end_ns, give_up_ns: u64::MAX, tick_ns: 0 }
    }

    /// How long until the first of those that are not done at every tick anyway.
    fn next(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.begin_ns.min(self.end_ns).saturating_sub(now_ns))
    }
}

impl Pace {
    /// How many requests are due by `now_ns`; the first at once.
    fn due(&self, now_ns: u64) -> u64 {
        (now_ns as f64 / self.step_ns) as u64 + 1
    }
}
