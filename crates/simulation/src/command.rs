//! What clients ask: the commands whose effect the model knows, and those that must have none.

use std::fmt;

use crate::collection::Action;
use crate::reply::Reply;
use crate::stream::StreamAction;
use crate::value::Value;

/// Which key, by its place in [`KEYS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u8);

/// Names of keys. Some share a slot. The first [`STRINGS`] hold strings; of each other type there are
/// two, one behind another.
pub(crate) const KEYS: [&str; 20] = [
    "{a}0",
    "b",
    "{a}1",
    "c",
    "{d}0",
    "{d}1",
    "e",
    "f",
    "counter",
    "{a}counter",
    "hash",
    "{a}hash",
    "set",
    "{a}set",
    "list",
    "{a}list",
    "zset",
    "{a}zset",
    "stream",
    "{a}stream",
];
/// Keys at the begin of [`KEYS`] that hold strings.
pub(crate) const STRINGS: u64 = 8;
/// Where the keys of a type begin that hold nothing else.
pub(crate) const COUNTERS: u8 = 8;
pub(crate) const HASHES: u8 = 10;
pub(crate) const SETS: u8 = 12;
pub(crate) const LISTS: u8 = 14;
pub(crate) const SORTED_SETS: u8 = 16;
pub(crate) const STREAMS: u8 = 18;
/// Where the keys of each type of collection begin.
pub(crate) const COLLECTIONS: [u8; 5] = [HASHES, SETS, LISTS, SORTED_SETS, STREAMS];
/// How many keys of such a type there are.
pub(crate) const KEYS_OF_TYPE: u8 = 2;
/// Databases that clients use.
pub(crate) const DATABASES: usize = 2;

impl Key {
    pub(crate) fn name(self) -> &'static str {
        KEYS[usize::from(self.0)]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Get(Key),
    GetDel(Key),
    Strlen(Key),
    GetRange(Key, i64, i64),
    Exists(Vec<Key>),
    MGet(Vec<Key>),
    Set(Key, Value),
    /// With the milliseconds after which it goes; those of [`FAR_MS`] do not pass.
    SetPx(Key, Value, u64),
    SetGet(Key, Value),
    SetNx(Key, Value),
    Append(Key, Value),
    SetRange(Key, usize, Value),
    IncrBy(Key, i64),
    MSet(Vec<(Key, Value)>),
    MSetNx(Vec<(Key, Value)>),
    Del(Vec<Key>),
    Rename(Key, Key),
    Copy(Key, Key),
    /// From the head of one list to the tail of another.
    LMove(Key, Key),
    /// On a key that holds a collection or nothing.
    On(Key, Action),
    /// With a time that does not come.
    Expire(Key),
    PExpireTime(Key),
    FlushAll,
    FlushDb,
    SwapDb,
    Select(u8),
    Watch(Vec<Key>),
    Unwatch,
    /// Something that changes no value, whatever it answers.
    Other(Vec<Vec<u8>>),
}

/// Seconds of [`Command::Expire`].
const EXPIRE_SECONDS: &str = "1000000";
/// Milliseconds that no run lasts.
pub(crate) const FAR_MS: u64 = 1_000_000_000;

impl Command {
    /// From words that change no value.
    pub(crate) fn other(words: &[&str]) -> Command {
        Command::Other(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    /// Whether it changes nothing that another session could see.
    pub(crate) fn is_read(&self) -> bool {
        use Command::*;
        if let On(_, action) = self {
            return action.is_read();
        }
        matches!(
            self,
            Get(_)
                | Strlen(_)
                | PExpireTime(_)
                | GetRange(..)
                | Exists(_)
                | MGet(_)
                | Select(_)
                | Unwatch
                | Other(_)
        )
    }

    /// Whether it sets a time that comes soon.
    pub(crate) fn sets_time(&self) -> bool {
        matches!(self, Command::SetPx(.., ms) if *ms < FAR_MS)
            || matches!(self, Command::On(_, Action::HPExpireAt(at_ms, _)) if *at_ms < FAR_MS)
    }

    /// Whether it may be refused for want of memory: what it writes takes some, and what it reads
    /// from flash.
    pub(crate) fn may_be_refused(&self) -> bool {
        !self.keys().is_empty() && !matches!(self, Command::Watch(_))
    }

    /// The key that it changes with an answer that may be the same when the key is gone.
    pub(crate) fn may_hide_eviction(&self) -> Option<Key> {
        match self {
            Command::SetRange(key, ..) => Some(*key),
            Command::On(key, action) if action.may_hide_eviction() => Some(*key),
            _ => None,
        }
    }

    /// Its reply, with what comes in an order of the server's own sorted.
    fn sorted(&self, reply: Reply) -> Reply {
        match self {
            Command::On(_, action) => action.sorted(reply),
            _ => reply,
        }
    }

    /// Its keys.
    pub(crate) fn keys(&self) -> Vec<Key> {
        use Command::*;
        match self {
            Get(key)
            | GetDel(key)
            | Strlen(key)
            | GetRange(key, ..)
            | Set(key, _)
            | SetPx(key, ..)
            | PExpireTime(key)
            | SetGet(key, _)
            | SetNx(key, _)
            | Append(key, _)
            | SetRange(key, ..)
            | IncrBy(key, _)
            | On(key, _)
            | Expire(key) => vec![*key],
            Exists(keys) | MGet(keys) | Del(keys) | Watch(keys) => keys.clone(),
            MSet(pairs) | MSetNx(pairs) => pairs.iter().map(|(key, _)| *key).collect(),
            Rename(from, to) | Copy(from, to) | LMove(from, to) => vec![*from, *to],
            FlushAll | FlushDb | SwapDb | Select(_) | Unwatch | Other(_) => Vec::new(),
        }
    }

    /// The values that it leaves as they are.
    pub(crate) fn values(&self) -> Vec<&Value> {
        use Command::*;
        match self {
            Set(_, value) | SetPx(_, value, _) | SetGet(_, value) | SetNx(_, value) => vec![value],
            MSet(pairs) | MSetNx(pairs) => pairs.iter().map(|(_, value)| value).collect(),
            On(_, Action::HSet(pairs)) => pairs.iter().map(|(_, value)| value).collect(),
            On(_, Action::Push(_, values)) => values.iter().collect(),
            On(_, Action::Stream(StreamAction::Add(value))) => vec![value],
            _ => Vec::new(),
        }
    }

    /// The request, as it goes over the wire.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let words = self.words();
        out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(&word);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn words(&self) -> Vec<Vec<u8>> {
        use Command::*;
        let text = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let keyed = |name: &str, keys: &[Key]| {
            let mut words: Vec<Vec<u8>> = vec![name.into()];
            words.extend(keys.iter().map(|key| key.name().into()));
            words
        };
        let paired = |name: &str, pairs: &[(Key, Value)]| {
            let pair = |(key, value): &(Key, Value)| [key.name().into(), value.bytes().to_vec()];
            let mut words: Vec<Vec<u8>> = vec![name.into()];
            words.extend(pairs.iter().flat_map(pair));
            words
        };
        match self {
            Get(key) => text(&["GET", key.name()]),
            GetDel(key) => text(&["GETDEL", key.name()]),
            Strlen(key) => text(&["STRLEN", key.name()]),
            GetRange(key, from, to) => {
                text(&["GETRANGE", key.name(), &from.to_string(), &to.to_string()])
            }
            Exists(keys) => keyed("EXISTS", keys),
            MGet(keys) => keyed("MGET", keys),
            Del(keys) => keyed("DEL", keys),
            Watch(keys) => keyed("WATCH", keys),
            Set(key, value) => paired("SET", &[(*key, value.clone())]),
            SetPx(key, value, ms) => {
                let mut words = paired("SET", &[(*key, value.clone())]);
                words.extend([b"PX".to_vec(), ms.to_string().into_bytes()]);
                words
            }
            PExpireTime(key) => text(&["PEXPIRETIME", key.name()]),
            SetGet(key, value) => {
                let mut words = paired("SET", &[(*key, value.clone())]);
                words.push(b"GET".to_vec());
                words
            }
            SetNx(key, value) => paired("SETNX", &[(*key, value.clone())]),
            Append(key, value) => paired("APPEND", &[(*key, value.clone())]),
            SetRange(key, at, value) => {
                let mut words: Vec<Vec<u8>> = text(&["SETRANGE", key.name(), &at.to_string()]);
                words.push(value.bytes().to_vec());
                words
            }
            IncrBy(key, by) => text(&["INCRBY", key.name(), &by.to_string()]),
            MSet(pairs) => paired("MSET", pairs),
            MSetNx(pairs) => paired("MSETNX", pairs),
            Rename(from, to) => text(&["RENAME", from.name(), to.name()]),
            Copy(from, to) => text(&["COPY", from.name(), to.name()]),
            LMove(from, to) => text(&["LMOVE", from.name(), to.name(), "LEFT", "RIGHT"]),
            On(key, action) => action.words(key.name()),
            Expire(key) => text(&["EXPIRE", key.name(), EXPIRE_SECONDS]),
            FlushAll => text(&["FLUSHALL"]),
            FlushDb => text(&["FLUSHDB"]),
            SwapDb => text(&["SWAPDB", "0", "1"]),
            Select(db) => text(&["SELECT", &db.to_string()]),
            Unwatch => text(&["UNWATCH"]),
            Other(words) => words.clone(),
        }
    }
}

/// What happens at one moment, as far as other clients can see.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Single(Command),
    /// MULTI, these, EXEC.
    Transaction(Vec<Command>),
}

impl Operation {
    /// Its commands, but for those that make it a transaction.
    pub(crate) fn commands(&self) -> &[Command] {
        match self {
            Operation::Single(command) => std::slice::from_ref(command),
            Operation::Transaction(commands) => commands,
        }
    }

    /// Whether it changes nothing that another session could see.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Operation::Single(command) => command.is_read(),
            Operation::Transaction(commands) => commands.iter().all(Command::is_read),
        }
    }

    /// Its reply, with what comes in an order of the server's own sorted.
    pub(crate) fn sorted(&self, reply: Reply) -> Reply {
        match (self, reply) {
            (Operation::Single(command), reply) => command.sorted(reply),
            (Operation::Transaction(commands), Reply::Array(replies)) => {
                let of = |(at, reply): (usize, Reply)| match commands.get(at) {
                    Some(command) => command.sorted(reply),
                    None => reply,
                };
                Reply::Array(replies.into_iter().enumerate().map(of).collect())
            }
            (Operation::Transaction(_), reply) => reply,
        }
    }

    /// Requests of it, and so replies to it.
    pub(crate) fn requests(&self) -> usize {
        match self {
            Operation::Single(_) => 1,
            Operation::Transaction(commands) => commands.len() + 2,
        }
    }

    /// As it goes over the wire.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Single(command) => command.write(out),
            Operation::Transaction(commands) => {
                Command::other(&["MULTI"]).write(out);
                commands.iter().for_each(|command| command.write(out));
                Command::other(&["EXEC"]).write(out);
            }
        }
    }
}
