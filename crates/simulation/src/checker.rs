//! Is a history strictly serializable? A search for an order of its operations, each at one moment
//! between its request and its reply, in which the model answers what the server did.
//!
//! After Wing and Gong (1993) and Lowe (2017): operations are taken one at a time, a choice that
//! leads to a state seen before at the same point is not followed again. Values are unique, so few
//! choices are open for long.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::collection::{Patience, WAIT_US};
use crate::command::{Command, Key, Operation};
use crate::limits::{CHECKED_NODES_MAX, EVICTED_TOGETHER_MAX};
use crate::machine::START_MS;
use crate::model::{Place, State};
use crate::reply::Reply;

/// One operation of one session, as it was seen from outside.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) operation: Operation,
    /// When its last request was sent, in microseconds of simulated time. No two steps share one.
    pub(crate) sent: u64,
    /// When its last reply was written, and what that was; none: the connection ended before.
    pub(crate) answered: Option<(u64, Reply)>,
}

impl Event {
    /// Whether it was answered and changed nothing: it only reads, or has waited in vain.
    fn is_read(&self) -> bool {
        let Some((_, reply)) = &self.answered else { return false };
        let is_single = matches!(self.operation, Operation::Single(_));
        self.operation.is_read() || is_single && *reply == Reply::NullArray
    }

    /// Whether it does not matter whether it ran: it was not answered, and changes nothing, not even its session.
    fn is_nothing(&self) -> bool {
        let is_of_session = |one: &Command| {
            matches!(one, Command::Select(_) | Command::Watch(_) | Command::Unwatch)
        };
        self.answered.is_none()
            && matches!(&self.operation, Operation::Single(one) if one.is_read() && !is_of_session(one))
    }

    /// When it was answered if it has waited in vain, and for how long it was to wait.
    fn wait_in_vain(&self) -> Option<(u64, Patience)> {
        match (&self.operation, &self.answered) {
            (Operation::Single(Command::On(_, action)), Some((at, Reply::NullArray))) => {
                Some((*at, action.patience()?))
            }
            _ => None,
        }
    }

    /// The same as two: it found nothing when it began to wait, and nothing when its time was over, since
    /// nobody else is given what it waits for. The server counts from the millisecond in which it ran.
    ///
    /// Errors: that was too soon.
    fn ends_of_wait(&self) -> Result<Vec<Event>, String> {
        let Some((answered, patience)) = self.wait_in_vain() else { return Ok(vec![self.clone()]) };
        let over = self.sent / 1000 * 1000 + WAIT_US;
        if patience == Patience::Endless || answered < over {
            return Err(format!("it gave up too soon: {}", show(self)));
        }
        let begun = Some((answered + 1000 - WAIT_US, Reply::NullArray));
        Ok(vec![
            Event { answered: begun, ..self.clone() },
            Event { sent: over.max(self.sent), ..self.clone() },
        ])
    }
}

/// What the server may do besides what the model does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolerance {
    /// Refuse what needs memory.
    pub(crate) refusals: bool,
    /// Let keys go.
    pub(crate) evictions: bool,
    /// Only those with an expiry.
    pub(crate) volatile_alone: bool,
    /// Fail to read a value.
    pub(crate) unreadable: bool,
    /// Refuse what changes something, since the journal cannot be written.
    pub(crate) unwritable: bool,
    /// Take for the present what was so up to this time ago.
    pub(crate) late_ms: u64,
}

/// What the search came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Serializable,
    /// There is no order; here is how far the search came.
    Broken(String),
    /// Too many orders to try them all.
    Unknown,
}

/// What a look at all data has found, in the order that was found.
pub(crate) struct Found {
    /// The data then.
    pub(crate) state: State,
    /// Operations that changed something and were answered, and that the look has not seen.
    pub(crate) unseen: u64,
}

/// Checks the histories of all sessions, each in the order of its connection, that have begun with this data. With a
/// session that looks at all data by its first operation, also what that has found.
pub(crate) fn check_from(
    begin: &State,
    sessions: &[Vec<Event>],
    tolerance: Tolerance,
    look: Option<usize>,
) -> (Verdict, Option<Found>) {
    let whole = |history: &Vec<Event>| {
        let events = history.iter().filter(|event| !event.is_nothing());
        let parts = events.map(Event::ends_of_wait).collect::<Result<Vec<_>, _>>();
        parts.map(|parts| parts.concat())
    };
    let sessions: Vec<Vec<Event>> = match sessions.iter().map(whole).collect() {
        Ok(sessions) => sessions,
        Err(text) => return (Verdict::Broken(text), None),
    };
    let sessions = sessions.as_slice();
    let frontier = vec![0; sessions.len()];
    let mut commands = sessions.iter().flatten().flat_map(|event| event.operation.commands());
    let begin = begin.for_sessions(sessions.len());
    let sets_times = commands.any(Command::sets_time);
    let mut search = Search {
        sessions,
        tolerance,
        look: look.map(|session| Look::new(session, sessions)),
        found: None,
        is_timed: sets_times || begin.is_timed(),
        seen: HashSet::new(),
        nodes: 0,
        deepest: (0, frontier, begin.clone()),
    };
    let verdict = match search.has_order(begin) {
        Some(true) => Verdict::Serializable,
        Some(false) => Verdict::Broken(search.explain()),
        None => Verdict::Unknown,
    };
    (verdict, search.found)
}

struct Search<'a> {
    sessions: &'a [Vec<Event>],
    tolerance: Tolerance,
    look: Option<Look>,
    /// What that has found, once there is an order.
    found: Option<Found>,
    /// Whether keys may come to the end of their time.
    is_timed: bool,
    seen: HashSet<(Vec<usize>, u64)>,
    nodes: usize,
    /// The longest order so far: its length, where each session stands after it, and the state.
    deepest: (usize, Vec<usize>, State),
}

/// A look at all data.
struct Look {
    /// The session whose first operation it is.
    session: usize,
    /// What it has found at each place.
    seen: BTreeMap<Place, Reply>,
    /// Of each session, so many operations that were not answered must have run, as their values were found.
    needed: Vec<usize>,
}

impl Look {
    fn new(session: usize, sessions: &[Vec<Event>]) -> Look {
        let event = &sessions[session][0];
        let mut look = Look { session, seen: BTreeMap::new(), needed: vec![0; sessions.len()] };
        let Some((_, Reply::Array(replies))) = &event.answered else { return look };
        look.find(event, replies);
        let mut found = HashSet::new();
        look.seen.values().for_each(|reply| gather(reply, &mut found));
        for (events, needed) in sessions.iter().zip(&mut look.needed) {
            let is_found = |event: &Event| {
                let mut values = event.operation.commands().iter().flat_map(Command::values);
                values.any(|value| found.contains(&value.hash()))
            };
            *needed = events.iter().rposition(is_found).map_or(0, |last| last + 1);
        }
        look
    }

    fn find(&mut self, event: &Event, replies: &[Reply]) {
        let (look, mut db) = (self, 0);
        for (command, reply) in event.operation.commands().iter().zip(replies) {
            match (command, reply) {
                (Command::Select(number), _) => db = usize::from(*number),
                (Command::MGet(keys), Reply::Array(values)) => {
                    let places = keys.iter().map(|key| Place { db, key: *key });
                    look.seen.extend(places.zip(values.iter().cloned()));
                }
                (Command::On(key, _), reply) => {
                    look.seen.entry(Place { db, key: *key }).or_insert(reply.clone());
                }
                _ => {}
            }
        }
    }

    /// How soon an operation is to be tried: what need not have run comes last.
    fn rank(&self, before: &State, after: &State, is_needed: bool) -> (bool, u8) {
        (!is_needed, self.rank_change(before, after))
    }

    /// How soon a change is to be tried: those that make what was found come behind others, for what they replace
    /// was there before, and those that change it come last.
    fn rank_change(&self, before: &State, after: &State) -> u8 {
        let has = |state: &State, at: &Place| self.seen.get(at) == Some(&state.read(*at));
        let rank = |at: Place| match (has(before, &at), has(after, &at)) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        before.differences(after).into_iter().map(rank).max().unwrap_or(0)
    }
}

/// A point that the search has come to, and what is left to try from there.
struct Branch<'a> {
    /// Where each session stands.
    frontier: Vec<usize>,
    state: State,
    /// The operations that may come next and were not tried yet.
    next: std::vec::IntoIter<(usize, &'a Event)>,
    /// Of the one that was tried last: its session, and the states after it that are left to try.
    outcomes: (usize, std::vec::IntoIter<State>),
}

impl<'a> Search<'a> {
    /// Whether the history can be put in order; none: the search gave up. It goes as deep as the history
    /// is long, and so keeps its path itself rather than on the stack.
    fn has_order(&mut self, mut state: State) -> Option<bool> {
        let mut frontier = vec![0; self.sessions.len()];
        let mut path: Vec<Branch<'a>> = Vec::new();
        loop {
            self.nodes += 1;
            if self.nodes > CHECKED_NODES_MAX {
                return None;
            }
            if self.seen.insert((frontier.clone(), state.fingerprint())) {
                let next = self.next(&frontier);
                if next.iter().all(|(_, event)| event.answered.is_none()) {
                    let points = path.iter().map(|branch| (&branch.frontier[..], &branch.state));
                    self.found = self.find_look(points.chain([(&frontier[..], &state)]));
                    return Some(true);
                }
                self.note_depth(&frontier, &state);
                path.push(self.branch(frontier, state, next));
            }
            (frontier, state) = loop {
                let branch = path.last_mut();
                let Some(branch) = branch else { return Some(false) };
                match self.try_next(branch) {
                    Some(point) => break point,
                    None => drop(path.pop()),
                }
            };
        }
    }

    /// What the look has found, on the points of an order.
    fn find_look<'p>(
        &self,
        mut points: impl Iterator<Item = (&'p [usize], &'p State)>,
    ) -> Option<Found> {
        let session = self.look.as_ref()?.session;
        let (frontier, state) = points.find(|(frontier, _)| frontier[session] > 0)?;
        let behind = self.sessions.iter().zip(frontier).flat_map(|(events, at)| &events[*at..]);
        let unseen = behind.filter(|event| event.answered.is_some() && !event.is_read()).count();
        Some(Found { state: state.clone(), unseen: unseen as u64 })
    }

    fn note_depth(&mut self, frontier: &[usize], state: &State) {
        let depth = frontier.iter().sum();
        if depth >= self.deepest.0 {
            self.deepest = (depth, frontier.to_vec(), state.clone());
        }
    }

    /// What there is to try from a point on.
    fn branch(
        &self,
        frontier: Vec<usize>,
        state: State,
        mut next: Vec<(usize, &'a Event)>,
    ) -> Branch<'a> {
        if let Some(look) = self.look.as_ref().filter(|look| frontier[look.session] == 0) {
            next.sort_by_cached_key(|(session, event)| {
                let after = self.outcomes(&state, *session, event).into_iter().next();
                let is_needed =
                    event.answered.is_some() || frontier[*session] < look.needed[*session];
                after.map_or((false, 0), |after| look.rank(&state, &after, is_needed))
            });
        }
        let (next, outcomes) = match self.read_now(&state, &next) {
            Some((session, after)) => (Vec::new(), (session, vec![after])),
            None => (next, (0, Vec::new())),
        };
        let outcomes = (outcomes.0, outcomes.1.into_iter());
        Branch { frontier, state, next: next.into_iter(), outcomes }
    }

    /// Takes one more operation, or another outcome of the last; none when all were tried.
    fn try_next(&self, branch: &mut Branch<'a>) -> Option<(Vec<usize>, State)> {
        loop {
            let (session, outcomes) = &mut branch.outcomes;
            if let Some(state) = outcomes.next() {
                let mut frontier = branch.frontier.clone();
                frontier[*session] += 1;
                return Some((frontier, state));
            }
            let (session, event) = branch.next.next()?;
            branch.outcomes = (session, self.outcomes(&branch.state, session, event).into_iter());
        }
    }

    /// One of the next operations that changes nothing for others and is right where it stands, with
    /// the state after it. If there is an order at all, there is one in which it comes now.
    fn read_now(&self, state: &State, next: &[(usize, &Event)]) -> Option<(usize, State)> {
        next.iter().find_map(|(session, event)| {
            if !event.is_read() {
                return None;
            }
            // Those behind it cannot have run before it was sent.
            if self.is_timed && event.sent / 1000 > state.sent_ms() {
                return None;
            }
            let after = self.outcomes(state, *session, event).into_iter().next()?;
            after.has_same_values(state).then_some((*session, after))
        })
    }

    /// The operations that may come next, the one that was answered first in front: those that were
    /// sent before any that is left was answered.
    fn next(&self, frontier: &[usize]) -> Vec<(usize, &'a Event)> {
        let ends = |event: &Event| event.answered.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let left = self.sessions.iter().zip(frontier).enumerate();
        let left = left.filter_map(|(session, (events, at))| Some((session, events.get(*at)?)));
        let mut next: Vec<(usize, &Event)> = left.collect();
        let first_end = next.iter().map(|(_, event)| ends(event)).min().unwrap_or(u64::MAX);
        next.retain(|(_, event)| event.sent <= first_end);
        next.sort_by_key(|(_, event)| ends(event));
        next
    }

    /// The states in which the data set may be after an operation.
    fn outcomes(&self, state: &State, session: usize, event: &Event) -> Vec<State> {
        if !self.is_timed {
            return self.outcomes_now(state, session, event);
        }
        let mut state = state.clone();
        let answered_ms = event.answered.as_ref().map_or(u64::MAX, |(at, _)| at / 1000);
        state.begin(event.sent / 1000, answered_ms, self.tolerance.late_ms);
        match &event.operation {
            Operation::Transaction(_) => state.settled_watched(session),
            Operation::Single(_) => vec![state],
        }
        .iter()
        .flat_map(|state| self.outcomes_now(state, session, event))
        .collect()
    }

    fn outcomes_now(&self, state: &State, session: usize, event: &Event) -> Vec<State> {
        let Some((_, reply)) = &event.answered else {
            return self.unanswered(state, session, &event.operation);
        };
        match &event.operation {
            Operation::Single(command) => self.after(state, session, command, reply),
            Operation::Transaction(commands) => {
                self.after_transaction(state, session, commands, reply)
            }
        }
    }

    /// An operation whose answer was lost may have run, or have been refused.
    fn unanswered(&self, state: &State, session: usize, operation: &Operation) -> Vec<State> {
        let mut states = vec![state.clone()];
        if operation.commands().iter().any(|one| self.tells_of_evictions(one)) {
            states.extend(self.without_watched(state));
        }
        // What it did, too, depends on which of its keys were there.
        let keys = operation.commands().iter().flat_map(Command::keys).collect();
        states.extend(without(state, self.that_may_go(state, session, keys)));
        let ran = states.into_iter().flat_map(|state| self.applied(state, session, operation));
        let mut states: Vec<State> = ran.collect();
        let Tolerance { refusals, evictions, unreadable, unwritable, .. } = self.tolerance;
        if refusals || evictions || unreadable || unwritable {
            let mut refused = state.clone();
            if let Operation::Transaction(_) = operation {
                refused.unwatch(session);
            }
            states.push(refused);
        }
        states
    }

    /// The states after an operation of which nobody knows what it answered: the time of its keys may have come.
    fn applied(&self, state: State, session: usize, operation: &Operation) -> Vec<State> {
        let is_transaction = matches!(operation, Operation::Transaction(_));
        if !self.is_timed || is_transaction && state.is_disturbed(session) {
            let mut state = state;
            state.apply(session, operation);
            return vec![state];
        }
        let mut states = vec![state];
        for command in operation.commands() {
            let settled = states.iter().flat_map(|state| state.settled(session, &command.keys()));
            states = settled.collect();
            states.iter_mut().for_each(|state| drop(state.run(session, command)));
        }
        if is_transaction {
            states.iter_mut().for_each(|state| state.unwatch(session));
        }
        states
    }

    fn after_transaction(
        &self,
        state: &State,
        session: usize,
        commands: &[Command],
        reply: &Reply,
    ) -> Vec<State> {
        let nothing = || {
            let mut state = state.clone();
            state.unwatch(session);
            vec![state]
        };
        match reply {
            Reply::NullArray => {
                let may_be = self.tolerance.evictions && state.is_watching(session);
                if state.is_disturbed(session) || may_be { nothing() } else { Vec::new() }
            }
            Reply::Error(text)
                if text.starts_with("EXECABORT")
                    && (self.tolerance.refusals || self.tolerance.unwritable) =>
            {
                nothing()
            }
            Reply::Array(replies) if replies.len() == commands.len() => {
                if state.is_disturbed(session) {
                    return Vec::new();
                }
                let mut states = vec![state.clone()];
                for (command, reply) in commands.iter().zip(replies) {
                    let after = |state: &State| self.after(state, session, command, reply);
                    states = states.iter().flat_map(after).collect();
                }
                states.iter_mut().for_each(|state| state.unwatch(session));
                states
            }
            _ => Vec::new(),
        }
    }

    /// The states after one command that was answered so.
    fn after(&self, state: &State, session: usize, command: &Command, reply: &Reply) -> Vec<State> {
        if !self.is_timed {
            return self.after_settled(state, session, command, reply);
        }
        let states = state.settled(session, &command.keys());
        let after = states.iter().flat_map(|one| self.after_settled(one, session, command, reply));
        match (command, reply) {
            (Command::PExpireTime(key), Reply::Integer(at)) if *at > 0 => {
                let at_ms = (*at as u64).saturating_sub(START_MS);
                after.filter_map(|state| state.with_end(session, *key, at_ms)).collect()
            }
            _ => after.collect(),
        }
    }

    /// The same when it is known which of its keys are there.
    fn after_settled(
        &self,
        state: &State,
        session: usize,
        command: &Command,
        reply: &Reply,
    ) -> Vec<State> {
        let run = |mut state: State| {
            let answer = state.run(session, command);
            answer.is_none_or(|answer| answer == *reply).then_some(state)
        };
        if let Some(after) = run(state.clone()) {
            let mut states = vec![after];
            if self.tells_of_evictions(command) {
                states.extend(self.without_watched(state).into_iter().filter_map(run));
            }
            if let Some(key) = command.may_hide_eviction()
                && self.may_go(state, session, key)
            {
                let mut state = state.clone();
                state.evict(state.place(session, key));
                states.extend(run(state));
            }
            return states;
        }
        let refused =
            self.tolerance.refusals && command.may_be_refused() && reply.is_error("OOM command");
        let unread = self.tolerance.unreadable && reply.is_error("ERR cannot read the value");
        let unwritten =
            self.tolerance.unwritable && !command.is_read() && reply.is_error("MISCONF");
        if refused || unread || unwritten {
            return vec![state.clone()];
        }
        if !self.tolerance.evictions {
            return Vec::new();
        }
        // A key that is evicted may as well go when it is next asked for.
        if let (Command::MGet(_), Reply::Array(values)) = (command, reply) {
            // It tells which.
            let answers = command.keys().into_iter().zip(values);
            let gone = answers.filter(|(_, value)| **value == Reply::Null).map(|(key, _)| key);
            let gone = self.that_may_go(state, session, gone.collect());
            let mut state = state.clone();
            gone.iter().for_each(|place| state.evict(*place));
            return run(state).into_iter().collect();
        }
        let evicted = without(state, self.that_may_go(state, session, command.keys()));
        evicted.into_iter().filter_map(run).collect()
    }

    /// Whether a command disturbs who watches a key only if that has not been evicted.
    fn tells_of_evictions(&self, command: &Command) -> bool {
        self.tolerance.evictions
            && matches!(command, Command::SwapDb | Command::FlushDb | Command::FlushAll)
    }

    /// The states in which keys that sessions watch were evicted.
    fn without_watched(&self, state: &State) -> Vec<State> {
        let mut watched = state.watched();
        watched.retain(|place| !self.tolerance.volatile_alone || state.is_volatile(*place));
        without(state, watched)
    }

    /// Where those of a session's keys are that may be evicted.
    fn that_may_go(&self, state: &State, session: usize, mut keys: Vec<Key>) -> Vec<Place> {
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.may_go(state, session, *key));
        keys.iter().map(|key| state.place(session, *key)).collect()
    }

    /// Whether a key of the session's database may be evicted.
    fn may_go(&self, state: &State, session: usize, key: Key) -> bool {
        let Tolerance { evictions, volatile_alone, .. } = self.tolerance;
        let is_volatile = || state.is_volatile(state.place(session, key));
        evictions && (!volatile_alone || is_volatile()) && state.has(session, key)
    }

    /// What could not be put in order.
    fn explain(&mut self) -> String {
        let (depth, frontier, state) = self.deepest.clone();
        let mut text = format!("no order of the history explains it; {depth} operations fit.\n");
        for (session, event) in self.next(&frontier) {
            let mut asked = state.clone();
            let expected = asked.apply(session, &event.operation);
            let _ = writeln!(text, "  next of session {session}: {}", show(event));
            let _ = writeln!(text, "    the model answers {expected:?}");
        }
        for (session, events) in self.sessions.iter().enumerate() {
            let from = frontier[session].saturating_sub(4);
            for event in events.iter().take(frontier[session] + 2).skip(from) {
                let _ = writeln!(text, "  session {session}: {}", show(event));
            }
        }
        text
    }
}

/// The states in which some of these were evicted, at least one.
fn without(state: &State, mut places: Vec<Place>) -> Vec<State> {
    places.truncate(EVICTED_TOGETHER_MAX);
    let sets = 1u32..1 << places.len();
    let evicted = sets.map(|set| {
        let mut state = state.clone();
        let gone = places.iter().enumerate().filter(|(index, _)| set & 1 << index != 0);
        gone.for_each(|(_, place)| state.evict(*place));
        state
    });
    evicted.collect()
}

/// The values in a reply.
fn gather(reply: &Reply, found: &mut HashSet<u64>) {
    match reply {
        Reply::Bulk(value) => drop(found.insert(value.hash())),
        Reply::Array(replies) => replies.iter().for_each(|reply| gather(reply, found)),
        _ => {}
    }
}

/// One line.
pub(crate) fn show(event: &Event) -> String {
    let Event { operation, sent, answered } = event;
    match answered {
        Some((at, reply)) => format!("[{sent}..{at}] {operation:?} -> {reply:?}"),
        None => format!("[{sent}..] {operation:?} was not answered"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Action;
    use crate::value::Value;

    const A: Key = Key(0);
    const B: Key = Key(1);

    fn value(text: &str) -> Value {
        Value::new(text.as_bytes().to_vec())
    }

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(value(text))
    }

    fn event(sent: u64, answered: u64, command: Command, reply: Reply) -> Event {
        let operation = Operation::Single(command);
        Event { operation, sent, answered: Some((answered, reply)) }
    }

    fn check(sessions: &[Vec<Event>], tolerance: Tolerance) -> Verdict {
        check_from(&State::new(0), sessions, tolerance, None).0
    }

    fn is_serializable(sessions: &[Vec<Event>]) -> bool {
        match check(sessions, Tolerance::default()) {
            Verdict::Serializable => true,
            Verdict::Broken(_) => false,
            Verdict::Unknown => panic!("a short history"),
        }
    }

    #[test]
    fn a_read_sees_what_was_written_before_it_and_nothing_older() {
        for (seen, is_right) in [("new", true), ("old", false)] {
            let writer = vec![
                event(0, 1, Command::Set(A, value("old")), Reply::ok()),
                event(2, 3, Command::Set(A, value("new")), Reply::ok()),
            ];
            let reader = vec![event(4, 5, Command::Get(A), bulk(seen))];
            assert_eq!(is_serializable(&[writer, reader]), is_right);
        }
    }

    #[test]
    fn a_read_beside_a_write_sees_either_but_not_one_after_the_other_backwards() {
        let writer = || vec![event(0, 9, Command::Set(A, value("new")), Reply::ok())];
        let get = |sent, answered, reply| event(sent, answered, Command::Get(A), reply);
        let forwards = vec![get(1, 2, Reply::Null), get(3, 4, bulk("new"))];
        let backwards = vec![get(1, 2, bulk("new")), get(3, 4, Reply::Null)];
        assert!(is_serializable(&[writer(), forwards]));
        assert!(!is_serializable(&[writer(), backwards]));
    }

    #[test]
    fn who_waits_in_vain_finds_nothing_to_the_end() {
        let list = Key(crate::command::LISTS);
        let waits = |patience, answered| {
            let pop = Command::On(list, Action::BPop(true, patience));
            vec![event(500, answered, pop, Reply::NullArray)]
        };
        let pushed = |sent, answered| {
            let push = Command::On(list, Action::Push(true, vec![value("x")]));
            vec![event(sent, answered, push, Reply::Integer(1))]
        };
        let is_right = |waiting, pushing| is_serializable(&[waiting, pushing]);
        assert!(is_right(waits(Patience::Short, 32_000), pushed(31_000, 40_000)));
        // Whoever came before it found nothing, but nobody took this.
        assert!(!is_right(waits(Patience::Short, 32_000), pushed(1_000, 2_000)));
        assert!(!is_right(waits(Patience::Short, 32_000), pushed(100, 200)));
        assert!(!is_right(waits(Patience::Short, 29_000), Vec::new()));
        assert!(!is_right(waits(Patience::Endless, 90_000), Vec::new()));
    }

    #[test]
    fn write_skew_is_seen() {
        let skew = |other: Key, own: Key, sent, replies| {
            let exec = Operation::Transaction(vec![Command::Set(own, value("x"))]);
            let watch = Command::Watch(vec![other, own]);
            vec![
                event(0, 1, watch, Reply::ok()),
                Event { operation: exec, sent, answered: Some((9, replies)) },
            ]
        };
        let done = || Reply::Array(vec![Reply::ok()]);
        assert!(is_serializable(&[skew(A, B, 2, done()), skew(B, A, 2, Reply::NullArray)]));
        assert!(!is_serializable(&[skew(A, B, 2, done()), skew(B, A, 2, done())]));
    }

    #[test]
    fn an_exchange_of_databases_disturbs_nobody_who_watches_what_was_evicted_before() {
        let history = || {
            let exec = Operation::Transaction(vec![Command::Get(A)]);
            let replies = Reply::Array(vec![Reply::Null]);
            let one = vec![
                event(0, 1, Command::Set(A, value("x")), Reply::ok()),
                event(2, 3, Command::Watch(vec![A]), Reply::ok()),
                Event { operation: exec, sent: 6, answered: Some((7, replies)) },
            ];
            [one, vec![event(4, 5, Command::SwapDb, Reply::ok())]]
        };
        assert!(!is_serializable(&history()));
        let evicting = Tolerance { evictions: true, ..Tolerance::default() };
        assert_eq!(check(&history(), evicting), Verdict::Serializable);
    }

    #[test]
    fn what_was_not_answered_may_have_happened_or_not() {
        for seen in [Reply::Null, bulk("x")] {
            let operation = Operation::Single(Command::Set(A, value("x")));
            let lost = vec![Event { operation, sent: 0, answered: None }];
            let reader = vec![event(5, 6, Command::Get(A), seen)];
            assert!(is_serializable(&[lost, reader]));
        }
    }

    #[test]
    fn what_was_not_answered_may_have_found_a_key_evicted() {
        let written = event(0, 1, Command::Set(A, value("x")), Reply::ok());
        let operation = Operation::Single(Command::Append(A, value("y")));
        let lost = Event { operation, sent: 2, answered: None };
        let history = [vec![written, lost], vec![event(3, 4, Command::Get(A), bulk("y"))]];
        assert!(!is_serializable(&history));
        let evicting = Tolerance { evictions: true, ..Tolerance::default() };
        assert_eq!(check(&history, evicting), Verdict::Serializable);
    }

    #[test]
    fn a_key_is_there_until_its_time_has_come_and_no_longer() {
        let is_right = |late_ms, between: (u64, u64), seen: Reply| {
            // Written within the first millisecond: gone after five or six.
            let writer = vec![event(0, 1_000, Command::SetPx(A, value("x"), 5), Reply::ok())];
            let (sent, answered) = between;
            let reader = vec![event(sent, answered, Command::Get(A), seen)];
            let tolerance = Tolerance { late_ms, ..Tolerance::default() };
            check(&[writer, reader], tolerance) == Verdict::Serializable
        };
        for (between, may_be_there, may_be_gone) in [
            ((2_000, 4_999), true, false),
            ((4_000, 5_000), true, true),
            ((6_999, 9_000), true, true),
            ((7_000, 9_000), false, true),
        ] {
            assert_eq!(is_right(0, between, bulk("x")), may_be_there, "{between:?}");
            assert_eq!(is_right(0, between, Reply::Null), may_be_gone, "{between:?}");
        }
        assert!(is_right(1, (7_000, 9_000), bulk("x")));
        assert!(!is_right(1, (8_000, 9_000), bulk("x")));
    }

    #[test]
    fn what_was_told_of_a_time_must_be_so() {
        let at = |ms: u64| Reply::Integer((START_MS + ms) as i64);
        let history = |told: u64, seen: Reply| {
            vec![
                event(0, 3_000, Command::SetPx(A, value("x"), 5), Reply::ok()),
                event(3_001, 3_002, Command::PExpireTime(A), at(told)),
                event(6_000, 6_001, Command::Get(A), seen),
            ]
        };
        assert!(is_serializable(&[history(8, bulk("x"))]));
        assert!(!is_serializable(&[history(8, Reply::Null)]));
        assert!(!is_serializable(&[history(5, bulk("x"))]));
        assert!(!is_serializable(&[history(9, bulk("x"))]));
    }

    #[test]
    fn a_watched_key_whose_time_has_come_has_changed() {
        let history = |exec: (u64, u64), answer: Reply| {
            let operation = Operation::Transaction(vec![Command::Set(B, value("y"))]);
            vec![
                event(0, 1, Command::SetPx(A, value("x"), 5), Reply::ok()),
                event(2, 3, Command::Watch(vec![A]), Reply::ok()),
                Event { operation, sent: exec.0, answered: Some((exec.1, answer)) },
            ]
        };
        let done = || Reply::Array(vec![Reply::ok()]);
        for (exec, may_run, may_refuse) in
            [((10, 20), true, false), ((10, 5_000), true, true), ((6_000, 6_001), false, true)]
        {
            assert_eq!(is_serializable(&[history(exec, done())]), may_run);
            assert_eq!(is_serializable(&[history(exec, Reply::NullArray)]), may_refuse);
        }
    }

    #[test]
    fn keys_vanish_only_where_they_may() {
        let history = || {
            vec![
                event(0, 1, Command::MSet(vec![(A, value("a")), (B, value("b"))]), Reply::ok()),
                event(2, 3, Command::MGet(vec![A, B]), Reply::Array(vec![Reply::Null, bulk("b")])),
            ]
        };
        assert!(!is_serializable(&[history()]));
        let evicting = Tolerance { evictions: true, ..Tolerance::default() };
        assert_eq!(check(&[history()], evicting), Verdict::Serializable);
    }

    /// The first entry has the same ID with and without the group.
    #[test]
    fn a_stream_may_vanish_before_its_first_entry() {
        use crate::collection::Action;
        use crate::stream::{GroupAction, StreamAction};
        let on = |action| Command::On(A, Action::Stream(action));
        let create = || on(StreamAction::Of(1, GroupAction::Create { from_first: true }));
        let add = || on(StreamAction::Add(value("a")));
        let history = || {
            vec![
                event(0, 1, create(), Reply::ok()),
                event(2, 3, add(), bulk("7-0")),
                event(4, 5, create(), Reply::ok()),
                event(6, 7, add(), bulk("7-1")),
            ]
        };
        assert!(!is_serializable(&[history()]));
        let evicting = Tolerance { evictions: true, ..Tolerance::default() };
        assert_eq!(check(&[history()], evicting), Verdict::Serializable);
    }

    /// Whether a look at both keys behind a crash may find these, where all was durable that had been answered by
    /// then, and how much it has not seen.
    fn looks_right(sessions: &[Vec<Event>], durable: u64, seen: [Reply; 2]) -> Option<u64> {
        let look = Operation::Transaction(vec![Command::MGet(vec![A, B])]);
        let answered = Some((1_000, Reply::Array(vec![Reply::Array(seen.into())])));
        let look = vec![Event { operation: look, sent: durable + 1, answered }];
        let sessions = [sessions, &[look]].concat();
        let index = sessions.len() - 1;
        let begin = State::new(0);
        match check_from(&begin, &sessions, Tolerance::default(), Some(index)) {
            (Verdict::Serializable, found) => Some(found.expect("it was answered").unseen),
            _ => None,
        }
    }

    #[test]
    fn a_crash_leaves_a_prefix_with_all_that_was_durable() {
        let set = |at, key, text| event(at, at + 1, Command::Set(key, value(text)), Reply::ok());
        // The second is written by who has seen the first.
        let seen = event(3, 4, Command::Get(A), bulk("a"));
        let history = [vec![set(1, A, "a")], vec![seen, set(5, B, "b")]];
        let (a, b) = (bulk("a"), bulk("b"));
        for (durable, found, unseen) in [
            (0, [Reply::Null, Reply::Null], Some(2)),
            (0, [a.clone(), Reply::Null], Some(1)),
            (0, [a.clone(), b.clone()], Some(0)),
            (0, [Reply::Null, b.clone()], None),
            (2, [Reply::Null, Reply::Null], None),
            (2, [a.clone(), Reply::Null], Some(1)),
            (6, [a.clone(), Reply::Null], None),
            (6, [a.clone(), b.clone()], Some(0)),
        ] {
            assert_eq!(
                looks_right(&history, durable, found.clone()),
                unseen,
                "{durable} {found:?}"
            );
        }
    }

    #[test]
    fn a_transaction_is_whole_behind_a_crash_or_absent() {
        let commands = vec![Command::Set(A, value("a")), Command::Set(B, value("b"))];
        let operation = Operation::Transaction(commands);
        let done = Some((2, Reply::Array(vec![Reply::ok(), Reply::ok()])));
        for answered in [None, done] {
            let history = [vec![Event { operation: operation.clone(), sent: 1, answered }]];
            let (a, b) = (bulk("a"), bulk("b"));
            assert!(looks_right(&history, 0, [Reply::Null, Reply::Null]).is_some());
            assert!(looks_right(&history, 0, [a.clone(), b.clone()]).is_some());
            assert!(looks_right(&history, 0, [a, Reply::Null]).is_none());
            assert!(looks_right(&history, 0, [Reply::Null, b]).is_none());
        }
    }

    #[test]
    fn what_comes_behind_a_crash_begins_with_what_it_has_left() {
        let set = vec![event(1, 2, Command::Set(A, value("a")), Reply::ok())];
        let look = vec![event(
            3,
            9,
            Command::MGet(vec![A, B]),
            Reply::Array(vec![bulk("a"), Reply::Null]),
        )];
        let begin = State::new(0);
        let (verdict, found) = check_from(&begin, &[set, look], Tolerance::default(), Some(1));
        assert_eq!(verdict, Verdict::Serializable);
        let begin = found.expect("it was answered").state;
        for (seen, is_right) in [(bulk("a"), true), (Reply::Null, false)] {
            let reader = vec![event(10, 11, Command::Get(A), seen)];
            let (verdict, _) = check_from(&begin, &[reader], Tolerance::default(), None);
            assert_eq!(verdict == Verdict::Serializable, is_right);
        }
    }
}
