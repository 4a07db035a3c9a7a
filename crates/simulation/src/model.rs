//! What the data set should be: two small databases, and who watches what.
//!
//! It shares no code with the server. A command is applied at one moment, and answers what the
//! server would have to.

use std::hash::{Hash, Hasher};

use rapidhash::fast::RapidHasher;

use crate::collection::{Action, times_of_fields, without_fields};
use crate::command::{Command, DATABASES, FAR_MS, HASHES, KEYS, Key, Operation, SETS};
use crate::reply::Reply;
use crate::value::Value;

/// A data set with its sessions.
#[derive(Clone)]
pub(crate) struct State {
    values: [[Option<Value>; KEYS.len()]; DATABASES],
    /// Until when they are there.
    ends: [[End; KEYS.len()]; DATABASES],
    sessions: Vec<Session>,
    /// When the operation that is applied runs.
    now: Span,
    /// When the last of the operations so far was sent, in milliseconds.
    sent_ms: u64,
}

/// A key of one database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) db: usize,
    pub(crate) key: Key,
}

/// Two times in milliseconds between which something happens, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    from: u64,
    to: u64,
}

/// When a key's time has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum End {
    /// It has no expiry.
    #[default]
    Never,
    /// Not in this run.
    Far,
    Within(Span),
}

/// What a connection's state decides.
#[derive(Clone, Default, Hash)]
struct Session {
    db: usize,
    /// Bits of the watched keys, by database.
    watched: [u32; DATABASES],
    /// Whether one of them has changed.
    is_disturbed: bool,
}

impl State {
    pub(crate) fn new(sessions: usize) -> State {
        let values = std::array::from_fn(|_| std::array::from_fn(|_| None));
        State {
            values,
            ends: Default::default(),
            sessions: vec![Session::default(); sessions],
            now: Span::default(),
            sent_ms: 0,
        }
    }

    /// The same data for so many other sessions.
    pub(crate) fn for_sessions(&self, sessions: usize) -> State {
        State { sessions: vec![Session::default(); sessions], ..self.clone() }
    }

    /// Whether the time of keys may come.
    pub(crate) fn is_timed(&self) -> bool {
        let hashes = self.values.iter().flat_map(|values| &values[HASHES.into()..SETS.into()]);
        self.ends.iter().flatten().any(|end| matches!(end, End::Within(_)))
            || hashes.flatten().any(|hash| !times_of_fields(hash).is_empty())
    }

    /// A number that tells states apart.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = RapidHasher::default();
        for value in self.values.iter().flatten() {
            value.as_ref().map(Value::hash).hash(&mut hasher);
        }
        self.ends.hash(&mut hasher);
        self.sessions.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the data sets are the same, whoever watches them.
    pub(crate) fn has_same_values(&self, other: &State) -> bool {
        self.values == other.values && self.ends == other.ends
    }

    /// Where the data sets differ.
    pub(crate) fn differences(&self, other: &State) -> Vec<Place> {
        let keys = (0..KEYS.len() as u8).map(Key);
        let places = keys.flat_map(|key| (0..DATABASES).map(move |db| Place { db, key }));
        places.filter(|at| self.get(at.db, at.key) != other.get(at.db, at.key)).collect()
    }

    /// What reads all that a key holds answers.
    pub(crate) fn read(&self, Place { db, key }: Place) -> Reply {
        let value = self.get(db, key);
        if key.0 < HASHES {
            Reply::value(value)
        } else {
            Action::read_all(key).run(key.name(), value).0
        }
    }

    /// Whether a key of the session's database exists.
    pub(crate) fn has(&self, session: usize, key: Key) -> bool {
        self.get(self.sessions[session].db, key).is_some()
    }

    /// Whether a key has an expiry.
    pub(crate) fn is_volatile(&self, Place { db, key }: Place) -> bool {
        self.expires(db, key)
    }

    /// Where a key of the session's database is.
    pub(crate) fn place(&self, session: usize, key: Key) -> Place {
        Place { db: self.sessions[session].db, key }
    }

    /// The keys of any database that exist, and that a session watches in one of them.
    pub(crate) fn watched(&self) -> Vec<Place> {
        let sessions = self.sessions.iter().filter(|session| !session.is_disturbed);
        let watched = sessions.flat_map(|session| session.watched).fold(0, |all, keys| all | keys);
        let keys = (0..KEYS.len() as u8).filter(|key| watched & 1 << key != 0).map(Key);
        let places = keys.flat_map(|key| (0..DATABASES).map(move |db| Place { db, key }));
        places.filter(|place| self.get(place.db, place.key).is_some()).collect()
    }

    /// A key is gone without a client's doing. When it went is not known, so neither is who watched
    /// it then.
    pub(crate) fn evict(&mut self, Place { db, key }: Place) {
        self.values[db][usize::from(key.0)] = None;
        self.set_end(db, key, End::Never);
    }

    /// An operation is next that was sent and answered at these times, by a server that takes for the
    /// present what was so up to `late_ms` before.
    pub(crate) fn begin(&mut self, sent_ms: u64, answered_ms: u64, late_ms: u64) {
        self.sent_ms = self.sent_ms.max(sent_ms);
        self.now = Span { from: self.sent_ms.saturating_sub(late_ms), to: answered_ms };
    }

    /// When the last of the operations so far was sent, in milliseconds.
    pub(crate) fn sent_ms(&self) -> u64 {
        self.sent_ms
    }

    /// The states in which the data set may be when these keys of the session's database are asked
    /// for: the time of some may have come.
    pub(crate) fn settled(&self, session: usize, keys: &[Key]) -> Vec<State> {
        let db = self.sessions[session].db;
        keys.iter().fold(vec![self.clone()], |states, key| {
            states.into_iter().flat_map(|state| state.settle(db, *key)).collect()
        })
    }

    /// The same for the keys that the session watches.
    pub(crate) fn settled_watched(&self, session: usize) -> Vec<State> {
        let watched = self.sessions[session].watched;
        let places = (0..DATABASES).flat_map(|db| (0..KEYS.len()).map(move |key| (db, key)));
        let places = places.filter(|(db, key)| watched[*db] & 1 << key != 0);
        places.fold(vec![self.clone()], |states, (db, key)| {
            states.into_iter().flat_map(|state| state.settle(db, Key(key as u8))).collect()
        })
    }

    /// With the key and without it, as far as its time allows, and that of its fields.
    fn settle(self, db: usize, key: Key) -> Vec<State> {
        let states = self.settle_key(db, key);
        match (HASHES..SETS).contains(&key.0) {
            true => states.into_iter().flat_map(|state| state.settle_fields(db, key)).collect(),
            false => states,
        }
    }

    fn settle_key(self, db: usize, key: Key) -> Vec<State> {
        let End::Within(end) = self.ends[db][usize::from(key.0)] else { return vec![self] };
        if self.now.to < end.from {
            return vec![self];
        }
        let mut without = self.clone();
        without.delete(db, key);
        if self.now.from > end.to { vec![without] } else { vec![self, without] }
    }

    fn settle_fields(self, db: usize, key: Key) -> Vec<State> {
        let Some(hash) = self.get(db, key) else { return vec![self] };
        let times = times_of_fields(hash);
        let gone = times.iter().filter(|at| **at < self.now.from).max();
        let maybe = times.iter().filter(|at| (self.now.from..=self.now.to).contains(at));
        let without = |until_ms: &u64| {
            let mut state = self.clone();
            state.values[db][usize::from(key.0)] = without_fields(hash, *until_ms);
            if state.get(db, key).is_none() {
                state.set_end(db, key, End::Never);
            }
            state
        };
        let settled = gone.map_or_else(|| self.clone(), without);
        [settled].into_iter().chain(maybe.map(without)).collect()
    }

    /// Somebody was told when a key of the session's database goes. None: it cannot be then.
    pub(crate) fn with_end(mut self, session: usize, key: Key, at_ms: u64) -> Option<State> {
        let db = self.sessions[session].db;
        if let End::Within(end) = self.ends[db][usize::from(key.0)] {
            if !(end.from..=end.to).contains(&at_ms) {
                return None;
            }
            self.set_end(db, key, End::Within(Span { from: at_ms, to: at_ms }));
        }
        Some(self)
    }

    /// The session watches nothing any more.
    pub(crate) fn unwatch(&mut self, session: usize) {
        let session = &mut self.sessions[session];
        session.watched = [0; DATABASES];
        session.is_disturbed = false;
    }

    /// Whether EXEC would have to answer that it did nothing.
    pub(crate) fn is_disturbed(&self, session: usize) -> bool {
        self.sessions[session].is_disturbed
    }

    /// Whether the session watches anything.
    pub(crate) fn is_watching(&self, session: usize) -> bool {
        self.sessions[session].watched != [0; DATABASES]
    }

    /// Carries out an operation whole. None: it answers something that does not matter.
    pub(crate) fn apply(&mut self, session: usize, operation: &Operation) -> Option<Reply> {
        match operation {
            Operation::Single(command) => self.run(session, command),
            Operation::Transaction(_) if self.is_disturbed(session) => {
                self.unwatch(session);
                Some(Reply::NullArray)
            }
            Operation::Transaction(commands) => {
                let mut replies = Vec::new();
                for command in commands {
                    // Inside of a transaction nothing is of no matter.
                    replies.push(self.run(session, command).unwrap_or(Reply::Null));
                }
                self.unwatch(session);
                Some(Reply::Array(replies))
            }
        }
    }

    /// Carries out a command. None: it answers something that does not matter.
    pub(crate) fn run(&mut self, session: usize, command: &Command) -> Option<Reply> {
        use Command::*;
        let db = self.sessions[session].db;
        let len = |value: &Value| value.bytes().len() as i64;
        Some(match command {
            Get(key) => Reply::value(self.get(db, *key)),
            GetDel(key) => {
                let reply = Reply::value(self.get(db, *key));
                self.delete(db, *key);
                reply
            }
            Strlen(key) => Reply::Integer(self.get(db, *key).map_or(0, len)),
            GetRange(key, from, to) => Reply::Bulk(self.range(db, *key, *from, *to)),
            Exists(keys) => {
                let found = keys.iter().filter(|key| self.get(db, **key).is_some());
                Reply::Integer(found.count() as i64)
            }
            MGet(keys) => {
                Reply::Array(keys.iter().map(|key| Reply::value(self.get(db, *key))).collect())
            }
            Set(key, value) => {
                self.put(db, *key, Some(value.clone()));
                self.set_end(db, *key, End::Never);
                Reply::ok()
            }
            SetPx(key, value, ms) => {
                self.put(db, *key, Some(value.clone()));
                self.set_end(db, *key, self.end_in(*ms));
                Reply::ok()
            }
            PExpireTime(key) if self.get(db, *key).is_none() => Reply::Integer(-2),
            PExpireTime(key) if !self.expires(db, *key) => Reply::Integer(-1),
            PExpireTime(_) => return None,
            SetGet(key, value) => {
                let reply = Reply::value(self.get(db, *key));
                self.put(db, *key, Some(value.clone()));
                self.set_end(db, *key, End::Never);
                reply
            }
            SetNx(key, value) => {
                let is_new = self.get(db, *key).is_none();
                if is_new {
                    self.put(db, *key, Some(value.clone()));
                }
                Reply::Integer(is_new.into())
            }
            Append(key, value) => {
                let old = self.get(db, *key).map_or(&[][..], Value::bytes);
                let new = Value::new([old, value.bytes()].concat());
                self.put(db, *key, Some(new.clone()));
                Reply::Integer(len(&new))
            }
            SetRange(key, at, value) => self.set_range(db, *key, *at, value),
            IncrBy(key, by) => {
                let old = self.get(db, *key).map(Value::bytes);
                let old = old.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                let new = old.unwrap_or(0i64) + by;
                self.put(db, *key, Some(Value::new(new.to_string().into_bytes())));
                Reply::Integer(new)
            }
            MSet(pairs) => {
                for (key, value) in pairs {
                    self.put(db, *key, Some(value.clone()));
                    self.set_end(db, *key, End::Never);
                }
                Reply::ok()
            }
            MSetNx(pairs) => {
                let all_new = pairs.iter().all(|(key, _)| self.get(db, *key).is_none());
                for (key, value) in pairs.iter().filter(|_| all_new) {
                    self.put(db, *key, Some(value.clone()));
                }
                Reply::Integer(all_new.into())
            }
            Del(keys) => {
                let deleted = keys.iter().filter(|key| self.delete(db, **key)).count();
                Reply::Integer(deleted as i64)
            }
            Rename(from, to) => self.rename(db, *from, *to),
            Copy(from, to) => {
                let copied = self.get(db, *from).cloned();
                let is_done = copied.is_some() && self.get(db, *to).is_none();
                if is_done {
                    self.put(db, *to, copied);
                    self.set_end(db, *to, self.ends[db][usize::from(from.0)]);
                }
                Reply::Integer(is_done.into())
            }
            LMove(from, to) => {
                let pop = Action::Pop(true);
                let popped = self.run(session, &On(*from, pop));
                if let Some(Reply::Bulk(value)) = &popped {
                    self.run(session, &On(*to, Action::Push(false, vec![value.clone()])));
                }
                return popped;
            }
            On(key, action) => {
                let (reply, after) = action.run(key.name(), self.get(db, *key));
                match after {
                    None => {}
                    Some(None) => drop(self.delete(db, *key)),
                    changed => self.put(db, *key, changed.flatten()),
                }
                reply
            }
            Expire(key) => {
                let found = self.get(db, *key).is_some();
                if found {
                    self.touch(db, *key);
                    self.set_end(db, *key, End::Far);
                }
                Reply::Integer(found.into())
            }
            FlushAll => {
                (0..DATABASES).for_each(|db| self.clear(db));
                Reply::ok()
            }
            FlushDb => {
                self.clear(db);
                Reply::ok()
            }
            SwapDb => self.swap(),
            Select(db) => {
                self.sessions[session].db = usize::from(*db);
                Reply::ok()
            }
            Watch(keys) => {
                for key in keys {
                    self.sessions[session].watched[db] |= 1 << key.0;
                }
                Reply::ok()
            }
            Unwatch => {
                self.unwatch(session);
                Reply::ok()
            }
            Other(_) => return None,
        })
    }

    fn get(&self, db: usize, key: Key) -> Option<&Value> {
        self.values[db][usize::from(key.0)].as_ref()
    }

    fn put(&mut self, db: usize, key: Key, value: Option<Value>) {
        self.values[db][usize::from(key.0)] = value;
        self.touch(db, key);
    }

    /// True: it was there.
    fn delete(&mut self, db: usize, key: Key) -> bool {
        let was_there = self.get(db, key).is_some();
        if was_there {
            self.put(db, key, None);
            self.set_end(db, key, End::Never);
        }
        was_there
    }

    fn expires(&self, db: usize, key: Key) -> bool {
        self.ends[db][usize::from(key.0)] != End::Never
    }

    fn set_end(&mut self, db: usize, key: Key, end: End) {
        self.ends[db][usize::from(key.0)] = end;
    }

    /// So many milliseconds from now.
    fn end_in(&self, ms: u64) -> End {
        if ms >= FAR_MS {
            return End::Far;
        }
        let Span { from, to } = self.now;
        End::Within(Span { from: from + ms, to: to.saturating_add(ms) })
    }

    /// Tells the watchers of a key.
    fn touch(&mut self, db: usize, key: Key) {
        for session in &mut self.sessions {
            session.is_disturbed |= session.watched[db] & 1 << key.0 != 0;
        }
    }

    fn clear(&mut self, db: usize) {
        for key in 0..KEYS.len() {
            self.delete(db, Key(key as u8));
        }
    }

    fn swap(&mut self) -> Reply {
        for key in (0..KEYS.len()).map(|key| Key(key as u8)) {
            if self.get(0, key).is_some() || self.get(1, key).is_some() {
                self.touch(0, key);
                self.touch(1, key);
            }
        }
        self.values.swap(0, 1);
        self.ends.swap(0, 1);
        Reply::ok()
    }

    fn rename(&mut self, db: usize, from: Key, to: Key) -> Reply {
        let Some(value) = self.get(db, from).cloned() else {
            return Reply::Error("ERR no such key".to_owned());
        };
        if from != to {
            let end = self.ends[db][usize::from(from.0)];
            self.delete(db, from);
            self.put(db, to, Some(value));
            self.set_end(db, to, end);
        }
        Reply::ok()
    }

    /// Shape: `value` is not empty.
    fn set_range(&mut self, db: usize, key: Key, at: usize, value: &Value) -> Reply {
        let mut bytes = self.get(db, key).map_or(Vec::new(), |old| old.bytes().to_vec());
        let end = at + value.bytes().len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(value.bytes());
        let len = bytes.len() as i64;
        self.put(db, key, Some(Value::new(bytes)));
        Reply::Integer(len)
    }

    /// Both ends count from 0, or from the end when they are negative, and are included.
    fn range(&self, db: usize, key: Key, from: i64, to: i64) -> Value {
        let bytes = self.get(db, key).map_or(&[][..], Value::bytes);
        let len = bytes.len() as i64;
        let place = |index: i64| if index < 0 { (index + len).max(0) } else { index };
        let (from, to) = (place(from), place(to).min(len - 1));
        let is_empty = from > to || len == 0;
        Value::new(if is_empty { Vec::new() } else { bytes[from as usize..=to as usize].to_vec() })
    }
}
