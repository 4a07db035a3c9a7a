//! The loop of one thread: waits for its connections, counts what they bring, keeps them busy.
//!
//! In a closed loop a connection sends again when replies come. On schedule (`--rate`) requests
//! fall due whether or not replies come; a request that finds no room waits, and its latency counts
//! from when it was due.

use crate::LoadError;
use crate::connection::{Connection, Kit, Lost, Schedule};
use crate::cpu::CpuSeconds;
use crate::epoll::{Epoll, Interest, Ready};
use crate::plan::{Address, Plan, Until};
use crate::report::Run;
use crate::stats::Stats;
use std::time::{Duration, Instant, SystemTime};

/// Longest wait before the clock is looked at again.
const TICK: Duration = Duration::from_millis(50);
/// A connection is given up when no reply has come for so long.
const REPLY_NS_MAX: u64 = 120_000_000_000;

/// Runs `plan` on all its threads; returns what they counted and how many seconds it took.
///
/// Errors: when a connection cannot be made, or the system refuses to wait for one.
pub fn run_all(plan: &Plan) -> Result<Run, LoadError> {
    let mut workers = Vec::new();
    for thread in 0..plan.threads {
        workers.push(Worker::new(plan, thread)?);
    }
    let (started, cpu) = (SystemTime::now(), CpuSeconds::now());
    let start = Instant::now();
    let outcomes: Vec<Result<Stats, LoadError>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.run(start))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut stats = Stats::new(plan.labels().len());
    for outcome in outcomes {
        stats.add(&outcome?);
    }
    let cpu = CpuSeconds::now().since(cpu);
    Ok(Run { stats, started, seconds, cpu, cut_short: None })
}

/// A thread and its connections.
struct Worker<'a> {
    kit: Kit<'a>,
    epoll: Epoll,
    /// None when it is done or lost.
    connections: Vec<Option<Connection>>,
    alive: usize,
    /// Whether the socket of a connection is watched for room to write.
    watched: Vec<bool>,
    pace: Option<Pace>,
    stopped: bool,
}

/// A schedule and how far it has been kept.
struct Pace {
    step_ns: f64,
    sent: u64,
    /// The connection that is next in turn.
    turn: usize,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, thread: usize) -> Result<Self, LoadError> {
        let refused = |source| LoadError::System { what: "epoll", source };
        let epoll = Epoll::new().map_err(refused)?;
        let mut connections = Vec::with_capacity(plan.clients);
        for token in 0..plan.clients {
            let index = (thread * plan.clients + token) as u64;
            let connection = Connection::new(plan, index).map_err(|source| {
                let address = match &plan.address {
                    Address::Tcp(host, port) => format!("{host}:{port}"),
                    Address::Unix(path) => path.display().to_string(),
                };
                LoadError::Connect { address, source }
            })?;
            epoll.add(connection.socket(), token, Interest::Read).map_err(refused)?;
            connections.push(Some(connection));
        }
        let step_ns = plan.rate.map(|rate| 1e9 * plan.threads as f64 / rate);
        Ok(Self {
            kit: Kit::new(plan),
            epoll,
            alive: connections.len(),
            watched: vec![false; connections.len()],
            connections,
            pace: step_ns.map(|step_ns| Pace { step_ns, sent: 0, turn: 0 }),
            stopped: false,
        })
    }

    fn run(mut self, start: Instant) -> Result<Stats, LoadError> {
        let clock = || start.elapsed().as_nanos() as u64;
        let end_ns = match self.kit.plan.until {
            Until::Time(time) => time.as_nanos() as u64,
            Until::Requests(_) | Until::AllKeys => u64::MAX,
        };
        for token in 0..self.connections.len() {
            self.attend(token, None, clock);
        }
        let mut tick_ns = 0;
        while self.alive > 0 {
            let now_ns = clock();
            if now_ns >= end_ns && !self.stopped {
                self.stop(end_ns);
            }
            let room = self.send_due(now_ns);
            if now_ns >= tick_ns {
                self.give_up_silent(now_ns);
                tick_ns = now_ns + TICK.as_nanos() as u64;
            }
            let now_ns = clock();
            let end = Duration::from_nanos(end_ns.saturating_sub(now_ns));
            let timeout = if self.stopped { TICK } else { self.timeout(room, now_ns).min(end) };
            self.epoll
                .wait(timeout)
                .map_err(|source| LoadError::System { what: "epoll_pwait2", source })?;
            for index in 0..self.epoll.ready_count() {
                let ready = self.epoll.ready(index);
                self.attend(ready.token, Some(ready), clock);
            }
        }
        Ok(self.kit.stats)
    }

    /// Takes what a connection has brought, if it is ready, and in a closed loop sends again.
    fn attend(&mut self, token: usize, ready: Option<Ready>, clock: impl Fn() -> u64) {
        let Some(connection) = self.connections[token].as_mut() else { return };
        let kit = &mut self.kit;
        let closed_loop = self.pace.is_none();
        let outcome = (|| {
            let now_ns = match ready {
                Some(ready) if ready.readable => connection.receive(kit, &clock)?,
                _ => clock(),
            };
            if connection.is_pending() && ready.is_some_and(|ready| ready.writable) {
                connection.flush()?;
            }
            if closed_loop {
                let schedule = Schedule { first_ns: now_ns as f64, step_ns: 0.0 };
                connection.issue(kit, usize::MAX, schedule, now_ns)?;
            }
            Ok(())
        })();
        self.settle(token, outcome);
    }

    /// Sends the requests that are due by the schedule, in turn on all connections with room.
    /// Returns whether there was room for all.
    fn send_due(&mut self, now_ns: u64) -> bool {
        let Some(mut pace) = self.pace.take() else { return true };
        let clients = self.connections.len();
        let mut due = pace.due(now_ns).saturating_sub(pace.sent);
        let mut full = 0;
        while due > 0 && full < clients && !self.stopped {
            let token = pace.turn;
            pace.turn = (pace.turn + 1) % clients;
            full += 1;
            let Some(connection) = self.connections[token].as_mut() else { continue };
            let share = (due / clients as u64).max(1) as usize;
            let first_ns = pace.sent as f64 * pace.step_ns;
            let schedule = Schedule { first_ns, step_ns: pace.step_ns };
            let outcome = connection.issue(&mut self.kit, share, schedule, now_ns);
            if let Ok(sent @ 1..) = outcome {
                pace.sent += sent as u64;
                due -= sent as u64;
                full = 0;
            }
            self.settle(token, outcome.map(|_| ()));
        }
        self.pace = Some(pace);
        due == 0
    }

    /// How long to wait for sockets at `now_ns`: on schedule until the next request is due, unless
    /// there is no room for it before a reply has come.
    fn timeout(&self, room: bool, now_ns: u64) -> Duration {
        match &self.pace {
            Some(pace) if room => {
                let next_ns = pace.sent as f64 * pace.step_ns;
                Duration::from_nanos((next_ns - now_ns as f64).max(0.0) as u64).min(TICK)
            }
            _ => TICK,
        }
    }

    fn stop(&mut self, end_ns: u64) {
        self.stopped = true;
        if let Some(pace) = &self.pace {
            self.kit.stats.unsent += pace.due(end_ns).saturating_sub(pace.sent);
        }
        for token in 0..self.connections.len() {
            if let Some(connection) = self.connections[token].as_mut() {
                connection.stop();
                self.settle(token, Ok(()));
            }
        }
    }

    /// Gives up connections that have waited too long for a reply.
    fn give_up_silent(&mut self, now_ns: u64) {
        for token in 0..self.connections.len() {
            let Some(connection) = &self.connections[token] else { continue };
            let waited_ns = connection.waited_ns(now_ns);
            if waited_ns > REPLY_NS_MAX {
                self.kit.stats.stall_ns_max = self.kit.stats.stall_ns_max.max(waited_ns);
                self.settle(token, Err(Lost::Silent));
            }
        }
    }

    /// Drops a connection that is done or lost, and else watches it for what it waits for.
    fn settle(&mut self, token: usize, outcome: Result<(), Lost>) {
        let Some(connection) = &self.connections[token] else { return };
        let outcome = outcome.and_then(|()| {
            let pending = connection.is_pending();
            if pending != self.watched[token] {
                let interest = if pending { Interest::ReadWrite } else { Interest::Read };
                self.epoll.modify(connection.socket(), token, interest)?;
                self.watched[token] = pending;
            }
            Ok(())
        });
        if let Err(lost) = &outcome {
            self.kit.stats.connections_lost += 1;
            self.kit.stats.note_error(&lost.to_string());
        }
        if outcome.is_err() || connection.is_done() {
            self.connections[token] = None;
            self.alive -= 1;
        }
    }
}

impl Pace {
    /// How many requests are due by `now_ns`; the first at once.
    fn due(&self, now_ns: u64) -> u64 {
        (now_ns as f64 / self.step_ns) as u64 + 1
    }
}
