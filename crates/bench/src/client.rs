//! A client of the load: where its requests come from, and over which of its connections they go.
//!
//! ```text
//! choose -> single server:                     link
//!        -> cluster: slot -> [backlog] of node -> link
//! ```
//! A client has one connection or, in a cluster, one to each node that it needed so far. Invariants:
//! a backlog holds at most `pipeline` fresh requests, and those that were redirected; while one is
//! full nothing new is chosen, so that the order of keys does not depend on how fast the nodes are.

use crate::arguments::Pattern;
use crate::epoll::Ready;
use crate::keys::KeyPicker;
use crate::link::{Flight, Kit, Link, Lost, Maker};
use crate::plan::Plan;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use stdx::Random;

/// Bits of a token that tell the node.
const NODE_BITS: u32 = 16;
/// Use of the seed for numbers; the lower ones are for the keys of commands.
const NUMBERS: u64 = 0xFFFF;
/// A client that was held up makes good for so long at most when its rate is limited.
const CATCH_UP_NS: f64 = 1e8;

/// When requests count as sent, in nanoseconds from the start: the first at `first_ns`, each next
/// one `step_ns` later.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// When the first was, or should have been, sent.
    pub first_ns: f64,
    /// Time between two.
    pub step_ns: f64,
}

/// The client and the node that a token stands for.
pub fn parties(token: usize) -> (usize, usize) {
    (token >> NODE_BITS, token & ((1 << NODE_BITS) - 1))
}

/// One client.
pub struct Client {
    /// Among all clients of the load.
    index: u64,
    /// Among those of its thread.
    place: usize,
    /// By node; a single server is node 0.
    nodes: Vec<Node>,
    chooser: Chooser,
    pickers: Vec<KeyPicker>,
    random: Random,
    /// Requests still to choose.
    left: u64,
    limiter: Option<Limiter>,
}

/// A node as one client sees it.
#[derive(Default)]
struct Node {
    link: Option<Link>,
    backlog: VecDeque<Flight>,
}

/// Keeps a client under its rate.
struct Limiter {
    step_ns: f64,
    /// When the next request may go.
    next_ns: f64,
}

/// Which command is next.
#[derive(Debug, Default, Clone, Copy)]
struct Chooser {
    /// Index of the command whose turn it is.
    command: usize,
    /// How often it has been sent in this turn.
    done: u32,
    /// SETs and WAITs so far.
    sets: u64,
    waits: u64,
}

impl Client {
    /// Client `index` of the load, the one at `place` of its thread; connected to the server or, in
    /// a cluster, to all nodes that are known.
    ///
    /// Errors: [`Lost::Open`].
    pub fn open(kit: &Kit<'_>, index: u64, place: usize) -> Result<Self, Lost> {
        let plan = kit.plan;
        let mut client = Self {
            index,
            place,
            nodes: Vec::new(),
            chooser: Chooser::default(),
            pickers: pickers(plan, index),
            random: Random::new(plan.seed_of(index, NUMBERS)),
            left: u64::MAX,
            limiter: plan.rate_limit.map(|rate| Limiter { step_ns: 1e9 / rate, next_ns: 0.0 }),
        };
        for node in 0..kit.map.as_ref().map_or(1, |map| map.nodes().len()) {
            client.connect(kit, node)?;
        }
        Ok(client)
    }

    /// From now on requests count: begins with the first key.
    pub fn begin(&mut self, plan: &Plan) {
        self.left = plan.requests(self.index).unwrap_or(u64::MAX);
        self.chooser = Chooser::default();
        self.pickers = pickers(plan, self.index);
    }

    /// Chooses no new requests, and forgets those that were not sent yet.
    pub fn stop(&mut self) {
        self.left = 0;
        for node in &mut self.nodes {
            node.backlog.clear();
        }
    }

    /// Whether all is sent and answered.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.nodes.iter().all(Node::is_idle)
    }

    /// For how long, at `now_ns`, a connection of it has waited for the next reply.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        let links = self.nodes.iter().filter_map(|node| node.link.as_ref());
        links.map(|link| link.waited_ns(now_ns)).max().unwrap_or(0)
    }

    /// How long, at `now_ns`, it must not send to keep its rate.
    pub fn pause_ns(&self, now_ns: u64) -> u64 {
        let next_ns = self.limiter.as_ref().map_or(0.0, |limiter| limiter.next_ns);
        (next_ns - now_ns as f64).max(0.0) as u64
    }

    /// Takes what a connection has brought and sends what is pending on it; returns the time.
    ///
    /// Errors: [`Lost`], and then the client is of no more use.
    pub fn receive(
        &mut self,
        kit: &mut Kit<'_>,
        node: usize,
        ready: Ready,
        clock: impl Fn() -> u64,
    ) -> Result<u64, Lost> {
        let Some(link) = self.nodes.get_mut(node).and_then(|node| node.link.as_mut()) else {
            return Ok(clock());
        };
        let now_ns = if ready.readable { link.receive(kit, &clock)? } else { clock() };
        if ready.writable && link.is_pending() {
            link.flush()?;
            link.watch(&kit.epoll)?;
        }
        if !kit.redirected.is_empty() {
            self.take_redirected(kit)?;
        }
        Ok(now_ns)
    }

    /// Sends up to `count` requests, no more than there is room for, and all that wait in backlogs;
    /// returns how many of the first.
    ///
    /// Errors: [`Lost`], and then the client is of no more use.
    pub fn send(
        &mut self,
        kit: &mut Kit<'_>,
        count: usize,
        schedule: Option<Schedule>,
        now_ns: u64,
    ) -> Result<usize, Lost> {
        self.renew_worn(kit)?;
        let allowed = self.limiter.as_mut().map_or(usize::MAX, |limiter| limiter.allowed(now_ns));
        let count = count.min(allowed).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let chosen = match kit.map {
            None => self.send_single(kit, count, schedule, now_ns)?,
            Some(_) => self.send_cluster(kit, count, schedule, now_ns)?,
        };
        if let Some(limiter) = &mut self.limiter {
            limiter.next_ns += chosen as f64 * limiter.step_ns;
        }
        for node in &mut self.nodes {
            if let Some(link) = &mut node.link {
                link.watch(&kit.epoll)?;
            }
        }
        Ok(chosen)
    }

    #[inline]
    fn send_single(
        &mut self,
        kit: &mut Kit<'_>,
        count: usize,
        schedule: Option<Schedule>,
        now_ns: u64,
    ) -> Result<usize, Lost> {
        let Some(link) = self.nodes[0].link.as_mut() else { return Ok(0) };
        let (plan, chooser) = (kit.plan, &mut self.chooser);
        let mut maker = Maker { pickers: &mut self.pickers, random: &mut self.random };
        let mut chosen = 0;
        let sent = link.send(kit, &mut maker, now_ns, |maker| {
            if chosen == count {
                return None;
            }
            let flight = chooser.choose(plan, maker.pickers, due(schedule, chosen));
            chosen += 1;
            Some(flight)
        })?;
        self.left -= sent as u64;
        Ok(sent)
    }

    fn send_cluster(
        &mut self,
        kit: &mut Kit<'_>,
        count: usize,
        schedule: Option<Schedule>,
        now_ns: u64,
    ) -> Result<usize, Lost> {
        let mut chosen = 0;
        loop {
            while chosen < count && self.has_room(kit.plan) {
                let flight =
                    self.chooser.choose(kit.plan, &mut self.pickers, due(schedule, chosen));
                let node = self.route(kit, flight);
                self.node(node).backlog.push_back(flight);
                self.left -= 1;
                chosen += 1;
            }
            if self.send_backlogs(kit, now_ns)? == 0 {
                return Ok(chosen);
            }
        }
    }

    /// Whether another request may be chosen: every backlog can take it.
    fn has_room(&self, plan: &Plan) -> bool {
        self.nodes.iter().all(|node| node.backlog.len() < plan.pipeline)
    }

    /// The node that a request goes to; one without a key goes to the first.
    fn route(&self, kit: &mut Kit<'_>, flight: Flight) -> usize {
        let command = &kit.plan.commands[usize::from(flight.command)];
        let slot = command.slot(flight.key, &mut kit.key_text);
        match (slot, &kit.map) {
            (Some(slot), Some(map)) => map.owner(slot),
            _ => 0,
        }
    }

    fn send_backlogs(&mut self, kit: &mut Kit<'_>, now_ns: u64) -> Result<usize, Lost> {
        let mut sent = 0;
        for index in 0..self.nodes.len() {
            if self.nodes[index].backlog.is_empty() {
                continue;
            }
            if self.nodes[index].link.is_none() {
                self.connect(kit, index)?;
            }
            let Node { link: Some(link), backlog } = &mut self.nodes[index] else { continue };
            let mut maker = Maker { pickers: &mut self.pickers, random: &mut self.random };
            sent += link.send(kit, &mut maker, now_ns, |_| backlog.pop_front())?;
        }
        Ok(sent)
    }

    /// Puts requests that were redirected into the backlogs of the nodes they were sent to.
    fn take_redirected(&mut self, kit: &mut Kit<'_>) -> Result<(), Lost> {
        while let Some((redirect, mut flight)) = kit.redirected.pop() {
            let Some(node) = kit.map.as_mut().and_then(|map| map.follow(&redirect)) else {
                kit.stats.errors += 1;
                kit.stats.note_error("the cluster has more than 1024 nodes");
                continue;
            };
            flight.redirects += 1;
            flight.asking = redirect.once;
            self.node(node).backlog.push_front(flight);
        }
        Ok(())
    }

    /// Connects anew where the interval is over and there is more to send.
    fn renew_worn(&mut self, kit: &Kit<'_>) -> Result<(), Lost> {
        if kit.plan.reconnect_interval == u64::MAX {
            return Ok(());
        }
        for index in 0..self.nodes.len() {
            let Node { link, backlog } = &self.nodes[index];
            let needed = self.left > 0 || !backlog.is_empty();
            if needed && link.as_ref().is_some_and(|link| link.is_worn(kit.plan)) {
                self.connect(kit, index)?;
            }
        }
        Ok(())
    }

    fn connect(&mut self, kit: &Kit<'_>, index: usize) -> Result<(), Lost> {
        let address = kit.map.as_ref().map_or(&kit.plan.target.address, |map| &map.nodes()[index]);
        let link = Link::open(kit, address, self.place << NODE_BITS | index)?;
        self.node(index).link = Some(link);
        Ok(())
    }

    fn node(&mut self, index: usize) -> &mut Node {
        if index >= self.nodes.len() {
            self.nodes.resize_with(index + 1, Node::default);
        }
        &mut self.nodes[index]
    }
}

/// When request `index` of those that are sent together was due, if that is not now.
#[inline]
fn due(schedule: Option<Schedule>, index: usize) -> Option<NonZeroU64> {
    let Schedule { first_ns, step_ns } = schedule?;
    NonZeroU64::new((first_ns + index as f64 * step_ns) as u64).or(Some(NonZeroU64::MIN))
}

/// By command; of two patterns that are the same each has its own place.
fn pickers(plan: &Plan, index: u64) -> Vec<KeyPicker> {
    let connections = plan.connections() as u64;
    let picker = |(usage, command): (usize, &crate::command::Command)| {
        let parallel = command.pattern == Pattern::Parallel && plan.keys.count() >= connections;
        let range = if parallel { plan.keys.part(index, connections) } else { plan.keys };
        let seed = plan.seed_of(index, usage as u64);
        KeyPicker::new(command.pattern, range, &plan.shape, seed)
    };
    plan.commands.iter().enumerate().map(picker).collect()
}

impl Node {
    fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.link.as_ref().is_none_or(Link::is_idle)
    }
}

impl Limiter {
    /// How many requests may go at `now_ns`.
    fn allowed(&mut self, now_ns: u64) -> usize {
        let now_ns = now_ns as f64;
        self.next_ns = self.next_ns.max(now_ns - CATCH_UP_NS);
        if now_ns < self.next_ns {
            0
        } else {
            ((now_ns - self.next_ns) / self.step_ns) as usize + 1
        }
    }
}

impl Chooser {
    /// The next request. Always in place: a request that is returned through memory is read back
    /// wider than it was written, and each waits for that.
    #[inline(always)]
    fn choose(
        &mut self,
        plan: &Plan,
        pickers: &mut [KeyPicker],
        sent_ns: Option<NonZeroU64>,
    ) -> Flight {
        let (command, keys) = self.turn(plan);
        let key = pickers[command].pick();
        Flight { sent_ns, key, keys, command: command as u16, redirects: 0, asking: false }
    }

    /// The command whose turn it is, and how many keys it reads.
    #[inline(always)]
    fn turn(&mut self, plan: &Plan) -> (usize, u32) {
        if let Some((wait, ratio)) = plan.wait {
            if self.waits * u64::from(ratio.sets) < self.sets * u64::from(ratio.others) {
                self.waits += 1;
                return (wait, 1);
            }
            self.sets += u64::from(self.peek(plan) == 0);
        }
        let index = self.peek(plan);
        let command = &plan.commands[index];
        let keys = command.keys_max.map_or(1, |max| max.min(command.ratio - self.done));
        self.done += keys;
        (index, keys)
    }

    /// Moves on to the next command when the turn of this one is over.
    #[inline]
    fn peek(&mut self, plan: &Plan) -> usize {
        while self.done >= plan.commands[self.command].ratio {
            self.done = 0;
            self.command += 1;
            if self.command == plan.commands.len() {
                self.command = 0;
            }
        }
        self.command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    /// The commands, and how many keys each reads, that a load sends first.
    fn turns(line: &str, count: usize) -> Vec<(usize, u32)> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let plan = Plan::new(&Options::parse(words).expect("options")).expect("a plan");
        let mut chooser = Chooser::default();
        (0..count).map(|_| chooser.turn(&plan)).collect()
    }

    #[test]
    fn commands_take_turns_by_their_ratios() {
        const SET: (usize, u32) = (0, 1);
        const GET: (usize, u32) = (1, 1);
        const WAIT: (usize, u32) = (2, 1);
        let cases: [(&str, &[(usize, u32)]); 6] = [
            ("--ratio 1:2", &[SET, GET, GET, SET, GET, GET]),
            ("--ratio 0:1", &[GET, GET]),
            ("--ratio 1:0", &[SET, SET]),
            ("--ratio 1:5 --multi-key-get 2", &[SET, (1, 2), (1, 2), (1, 1), SET, (1, 2)]),
            ("--ratio 2:1 --wait-ratio 2:1", &[SET, WAIT, SET, GET, SET, WAIT, SET, GET]),
            (
                "--command PING --command-ratio 2 --command ECHO",
                &[(0, 1), (0, 1), (1, 1), (0, 1), (0, 1), (1, 1)],
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(turns(line, expected.len()), expected, "{line}");
        }
    }

    #[test]
    fn a_limited_client_keeps_its_rate_and_catches_up_a_little() {
        let mut limiter = Limiter { step_ns: 1e7, next_ns: 0.0 };
        assert_eq!(limiter.allowed(0), 1);
        limiter.next_ns += 1e7;
        assert_eq!(limiter.allowed(5_000_000), 0);
        assert_eq!(limiter.allowed(10_000_000), 1);
        assert_eq!(limiter.allowed(10_000_000_000), 11);
    }

    #[test]
    fn tokens_tell_client_and_node() {
        assert_eq!(parties(5 << NODE_BITS | 7), (5, 7));
    }
}
