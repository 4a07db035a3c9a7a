//! What streams should be, with their consumer groups.
//!
//! Nothing of the server's own code. Entries have the sequences of IDs whose milliseconds are all the same.

use std::collections::BTreeMap;

use crate::collection::{Element, Patience, WAIT_US, decode, encode};
use crate::reply::Reply;
use crate::value::Value;

/// The milliseconds of the IDs of all entries: what follows ascends by itself, whatever the time.
const ENTRY_MS: u64 = 7;
const ENTRY_FIELD: &str = "field";
/// Groups that a stream may have, and consumers of each.
pub(crate) const GROUPS: u8 = 2;
pub(crate) const CONSUMERS: u8 = 3;
/// More entries than a stream has.
const MANY: &str = "100000";

/// A command on a stream that exists or not.
#[derive(Clone, Debug)]
pub(crate) enum StreamAction {
    Add(Value),
    Del(Vec<u64>),
    /// To so many entries.
    Trim(u64),
    Len,
    /// From one sequence to another.
    Range(u64, u64),
    /// The last so many.
    RevRange(u64),
    /// Those behind a sequence, and waits when there are none.
    Read(u64, Option<Patience>),
    /// The ID of the last entry that there was.
    Last,
    /// All groups: up to where each has been read, and how many entries of it are pending.
    Groups,
    /// Of this group.
    Of(u8, GroupAction),
}

/// A command on a group that exists or not.
#[derive(Clone, Debug)]
pub(crate) enum GroupAction {
    /// It will read from the first entry on, or what comes.
    Create {
        from_first: bool,
    },
    Destroy,
    /// So many entries that nobody of the group has read, and waits when there are none.
    Read {
        consumer: u8,
        count: u64,
        patience: Option<Patience>,
    },
    Ack(Vec<u64>),
    Claim {
        consumer: u8,
        sequences: Vec<u64>,
    },
    AutoClaim {
        consumer: u8,
        count: u64,
    },
    /// Entries that were read and not acknowledged.
    Pending,
}

impl StreamAction {
    pub(crate) fn patience(&self) -> Option<Patience> {
        match self {
            StreamAction::Read(_, patience) => *patience,
            StreamAction::Of(_, GroupAction::Read { patience, .. }) => *patience,
            _ => None,
        }
    }

    /// Whether its answer may be the same when the key is gone, and what it leaves is not: the first entry behind XGROUP CREATE
    /// has the same ID without the group.
    pub(crate) fn may_hide_eviction(&self) -> bool {
        matches!(self, StreamAction::Add(_) | StreamAction::Of(_, GroupAction::Create { .. }))
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        use StreamAction::*;
        matches!(
            self,
            Len | Range(..) | RevRange(_) | Read(..) | Last | Groups | Of(_, GroupAction::Pending)
        )
    }

    /// Its reply without what the model does not tell: times, and all of an error but its name.
    pub(crate) fn told(&self, reply: Reply) -> Reply {
        use StreamAction::*;
        match (self, reply) {
            (Last, Reply::Array(facts)) => fact(&facts, "last-generated-id"),
            (Groups, Reply::Array(groups)) => Reply::Array(groups.iter().map(told_group).collect()),
            (Of(_, GroupAction::Pending), Reply::Array(entries)) => {
                Reply::Array(entries.into_iter().map(told_pending).collect())
            }
            (_, Reply::Error(text)) => Reply::Error(told_error(&text)),
            (_, reply) => reply,
        }
    }

    /// The request.
    pub(crate) fn words(&self, key: &str) -> Vec<Vec<u8>> {
        use StreamAction::*;
        let ids = |sequences: &[u64]| sequences.iter().copied().map(entry_id).collect();
        let (name, more): (&str, Vec<Vec<u8>>) = match self {
            Add(value) => {
                let id = format!("{ENTRY_MS}-*").into_bytes();
                ("XADD", vec![id, ENTRY_FIELD.into(), value.bytes().to_vec()])
            }
            Del(sequences) => ("XDEL", ids(sequences)),
            Trim(count) => ("XTRIM", vec![b"MAXLEN".into(), number(*count)]),
            Len => ("XLEN", Vec::new()),
            Range(from, to) => ("XRANGE", vec![entry_id(*from), entry_id(*to)]),
            RevRange(count) => {
                ("XREVRANGE", vec![b"+".into(), b"-".into(), b"COUNT".into(), number(*count)])
            }
            Read(behind, patience) => {
                let streams = [b"STREAMS".to_vec(), key.into(), entry_id(*behind)];
                return [vec![b"XREAD".to_vec()], block(*patience), streams.into()].concat();
            }
            Last => return ["XINFO", "STREAM", key].map(Vec::from).into(),
            Groups => return ["XINFO", "GROUPS", key].map(Vec::from).into(),
            Of(group, action) => return action.words(key, group_name(*group)),
        };
        [name.into(), key.into()].into_iter().chain(more).collect()
    }

    /// What it answers, and the stream after it if it changes that.
    pub(crate) fn run(&self, key: &str, old: Option<&Value>) -> (Reply, Option<Option<Value>>) {
        use StreamAction::*;
        let mut stream = Stream::decode(old);
        let len = stream.entries.len();
        let reply = match self {
            Add(value) => {
                let sequence = stream.last.map_or(0, |last| last + 1);
                stream.last = Some(sequence);
                stream.entries.push((sequence, value.clone()));
                return (id_reply(sequence), stream.changed());
            }
            Del(gone) => {
                stream.entries.retain(|(sequence, _)| !gone.contains(sequence));
                return stream.shrunk_from(len);
            }
            Trim(count) => {
                stream.entries.drain(..len.saturating_sub(*count as usize));
                return stream.shrunk_from(len);
            }
            Range(from, to) => {
                stream.entries.retain(|(sequence, _)| (*from..=*to).contains(sequence));
                Reply::Array(stream.entries.iter().map(entry_reply).collect())
            }
            RevRange(count) => {
                let last = stream.entries.iter().rev().take(*count as usize);
                Reply::Array(last.map(entry_reply).collect())
            }
            Read(behind, _) => {
                stream.entries.retain(|(sequence, _)| sequence > behind);
                of_stream(key, &stream.entries)
            }
            Last | Groups if !stream.exists => Reply::Error("ERR no such key".to_owned()),
            Last => Reply::Bulk(Value::new(stream.last.map_or(b"0-0".into(), entry_id))),
            Groups => Reply::Array(stream.groups.iter().map(group_reply).collect()),
            Of(group, action) => return action.run(key, *group, stream),
            Len => Reply::Integer(len as i64),
        };
        (reply, None)
    }
}

impl GroupAction {
    fn words(&self, key: &str, group: String) -> Vec<Vec<u8>> {
        use GroupAction::*;
        let ids = |sequences: &[u64]| sequences.iter().copied().map(entry_id).collect();
        let text = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (group, more): (&str, Vec<Vec<u8>>) = (&group, Vec::new());
        let (first, more): (Vec<Vec<u8>>, Vec<Vec<u8>>) = match self {
            Create { from_first } => {
                let id = if *from_first { "0" } else { "$" };
                (text(&["XGROUP", "CREATE", key, group, id, "MKSTREAM"]), more)
            }
            Destroy => (text(&["XGROUP", "DESTROY", key, group]), more),
            Read { consumer, count, patience } => {
                let count = count.to_string();
                let first = ["XREADGROUP", "GROUP", group, &consumer_name(*consumer)];
                let first = [text(&first), text(&["COUNT", &count]), block(*patience)].concat();
                (first, text(&["STREAMS", key, ">"]))
            }
            Ack(sequences) => (text(&["XACK", key, group]), ids(sequences)),
            Claim { consumer, sequences } => {
                (text(&["XCLAIM", key, group, &consumer_name(*consumer), "0"]), ids(sequences))
            }
            AutoClaim { consumer, count } => {
                let (consumer, count) = (consumer_name(*consumer), count.to_string());
                let words = ["XAUTOCLAIM", key, group, &consumer, "0", "0-0", "COUNT", &count];
                (text(&words), more)
            }
            Pending => (text(&["XPENDING", key, group, "-", "+", MANY]), more),
        };
        [first, more].concat()
    }

    fn run(&self, key: &str, group: u8, mut stream: Stream) -> (Reply, Option<Option<Value>>) {
        use GroupAction::*;
        match self {
            Create { from_first } => return stream.create(group, *from_first),
            Destroy if !stream.exists => return (Reply::Error("ERR no such key".to_owned()), None),
            Destroy => {
                let was_there = stream.groups.remove(&group).is_some();
                return (Reply::Integer(was_there.into()), was_there.then(|| stream.encode()));
            }
            _ => {}
        }
        let Stream { entries, groups, .. } = &mut stream;
        let Some(found) = groups.get_mut(&group) else {
            let is_ack = matches!(self, Ack(_));
            let nothing = Reply::Error("NOGROUP".to_owned());
            return (if is_ack { Reply::Integer(0) } else { nothing }, None);
        };
        let before = found.clone();
        let reply = match self {
            Read { consumer, count, .. } => of_stream(key, &found.read(entries, *consumer, *count)),
            Ack(sequences) => {
                let len = found.pending.len();
                found.pending.retain(|sequence, _| !sequences.contains(sequence));
                Reply::Integer((len - found.pending.len()) as i64)
            }
            Claim { consumer, sequences } => {
                let claimed =
                    sequences.iter().filter_map(|at| found.claim(entries, *at, *consumer));
                Reply::Array(claimed.filter_map(Result::ok).map(|one| entry_reply(&one)).collect())
            }
            AutoClaim { consumer, count } => found.claim_some(entries, *consumer, *count),
            Pending => Reply::Array(found.pending.iter().map(pending_reply).collect()),
            Create { .. } | Destroy => unreachable!("run before"),
        };
        let is_changed = *found != before;
        (reply, is_changed.then(|| stream.encode()))
    }
}

/// A stream, which is there also when it has no entries.
#[derive(Default)]
struct Stream {
    exists: bool,
    /// The sequence of the last entry that there was.
    last: Option<u64>,
    entries: Vec<(u64, Value)>,
    groups: BTreeMap<u8, Group>,
}

/// A group of consumers.
#[derive(Clone, Default, PartialEq, Eq)]
struct Group {
    /// The sequence of the last entry that was read.
    read: Option<u64>,
    /// What was read and not acknowledged: by whom, and how often it was delivered.
    pending: BTreeMap<u64, (u8, u64)>,
}

impl Group {
    fn read(&mut self, entries: &[(u64, Value)], consumer: u8, count: u64) -> Vec<(u64, Value)> {
        let new = entries.iter().filter(|(sequence, _)| Some(*sequence) > self.read);
        let new: Vec<(u64, Value)> = new.take(count as usize).cloned().collect();
        self.read = new.last().map(|(sequence, _)| *sequence).or(self.read);
        self.pending.extend(new.iter().map(|(sequence, _)| (*sequence, (consumer, 1))));
        new
    }

    /// Gives a pending entry to a consumer. None: it is not pending. Errors: it was deleted, and is pending no more.
    fn claim(
        &mut self,
        entries: &[(u64, Value)],
        sequence: u64,
        consumer: u8,
    ) -> Option<Result<(u64, Value), u64>> {
        let (owner, deliveries) = self.pending.get_mut(&sequence)?;
        let Some(entry) = entries.iter().find(|(at, _)| *at == sequence) else {
            self.pending.remove(&sequence);
            return Some(Err(sequence));
        };
        *owner = consumer;
        *deliveries += 1;
        Some(Ok(entry.clone()))
    }

    fn claim_some(&mut self, entries: &[(u64, Value)], consumer: u8, count: u64) -> Reply {
        let pending: Vec<u64> = self.pending.keys().copied().collect();
        let (some, rest) = pending.split_at(pending.len().min(count as usize));
        let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
        for at in some {
            match self.claim(entries, *at, consumer).expect("it is pending") {
                Ok(entry) => claimed.push(entry_reply(&entry)),
                Err(sequence) => deleted.push(id_reply(sequence)),
            }
        }
        let next = rest.first().map_or(b"0-0".into(), |next| entry_id(*next));
        let next = Reply::Bulk(Value::new(next));
        Reply::Array(vec![next, Reply::Array(claimed), Reply::Array(deleted)])
    }
}

/// What the elements of a stream in the model are.
const HEAD: u8 = 0;
const ENTRY: u8 = 1;
const GROUP: u8 = 2;

impl Stream {
    fn decode(value: Option<&Value>) -> Stream {
        let mut stream = Stream { exists: value.is_some(), ..Stream::default() };
        for one in value.map_or_else(Vec::new, decode) {
            let mut numbers = Numbers(one.value.bytes());
            match one.id {
                HEAD => stream.last = numbers.place(),
                ENTRY => {
                    let sequence = numbers.number();
                    stream.entries.push((sequence, Value::new(numbers.0.to_vec())));
                }
                _ => drop(stream.groups.insert(one.id - GROUP, numbers.group())),
            }
        }
        stream
    }

    fn encode(&self) -> Option<Value> {
        let element = |id: u8, bytes: Vec<u8>| Element::new(id, Value::new(bytes));
        let head = element(HEAD, place_bytes(self.last).into());
        let groups = self.groups.iter().map(|(name, group)| element(GROUP + name, group.bytes()));
        let entries = self.entries.iter().map(|(at, value)| {
            let bytes = [&at.to_le_bytes(), value.bytes()].concat();
            element(ENTRY, bytes)
        });
        encode(&[head].into_iter().chain(groups).chain(entries).collect::<Vec<_>>())
    }

    fn changed(&self) -> Option<Option<Value>> {
        Some(self.encode())
    }

    /// What is answered when it had so many entries before some were deleted, and it after that.
    fn shrunk_from(&self, len: usize) -> (Reply, Option<Option<Value>>) {
        let removed = len - self.entries.len();
        (Reply::Integer(removed as i64), (removed > 0).then(|| self.encode()))
    }

    fn create(&mut self, group: u8, from_first: bool) -> (Reply, Option<Option<Value>>) {
        if self.groups.contains_key(&group) {
            return (Reply::Error("BUSYGROUP".to_owned()), None);
        }
        let read = self.last.filter(|_| !from_first);
        self.groups.insert(group, Group { read, pending: BTreeMap::new() });
        (Reply::ok(), self.changed())
    }
}

impl Group {
    fn bytes(&self) -> Vec<u8> {
        let pending = self.pending.iter().flat_map(|(sequence, (consumer, deliveries))| {
            [*sequence, (*consumer).into(), *deliveries].map(u64::to_le_bytes)
        });
        [place_bytes(self.read)].into_iter().chain(pending).flatten().collect()
    }
}

/// Numbers in a value of the model.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn number(&mut self) -> u64 {
        let (number, rest) = self.0.split_first_chunk().expect("8 bytes");
        self.0 = rest;
        u64::from_le_bytes(*number)
    }

    fn place(&mut self) -> Option<u64> {
        self.number().checked_sub(1)
    }

    fn group(&mut self) -> Group {
        let mut group = Group { read: self.place(), pending: BTreeMap::new() };
        while !self.0.is_empty() {
            let sequence = self.number();
            group.pending.insert(sequence, (self.number() as u8, self.number()));
        }
        group
    }
}

/// A sequence, or that there is none.
fn place_bytes(sequence: Option<u64>) -> [u8; 8] {
    sequence.map_or(0, |sequence| sequence + 1).to_le_bytes()
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn group_name(group: u8) -> String {
    format!("group-{group}")
}

fn consumer_name(consumer: u8) -> String {
    format!("consumer-{consumer}")
}

/// For how long a read waits, if it does.
fn block(patience: Option<Patience>) -> Vec<Vec<u8>> {
    let ms = match patience {
        None => return Vec::new(),
        Some(Patience::Short) => WAIT_US / 1000,
        Some(Patience::Endless) => 0,
    };
    vec![b"BLOCK".into(), number(ms)]
}

/// The ID of an entry.
fn entry_id(sequence: u64) -> Vec<u8> {
    format!("{ENTRY_MS}-{sequence}").into_bytes()
}

fn id_reply(sequence: u64) -> Reply {
    Reply::Bulk(Value::new(entry_id(sequence)))
}

fn bulk(text: impl Into<Vec<u8>>) -> Reply {
    Reply::Bulk(Value::new(text.into()))
}

pub(crate) fn entry_reply((sequence, value): &(u64, Value)) -> Reply {
    let field = vec![bulk(ENTRY_FIELD), Reply::Bulk(value.clone())];
    Reply::Array(vec![id_reply(*sequence), Reply::Array(field)])
}

/// What a read answers.
fn of_stream(key: &str, entries: &[(u64, Value)]) -> Reply {
    if entries.is_empty() {
        return Reply::NullArray;
    }
    let entries = Reply::Array(entries.iter().map(entry_reply).collect());
    Reply::Array(vec![Reply::Array(vec![bulk(key), entries])])
}

fn group_reply((name, group): (&u8, &Group)) -> Reply {
    let read = group.read.map_or(b"0-0".into(), entry_id);
    let pending = Reply::Integer(group.pending.len() as i64);
    Reply::Array(vec![bulk(group_name(*name)), bulk(read), pending])
}

fn told_group(group: &Reply) -> Reply {
    let Reply::Array(facts) = group else { return group.clone() };
    Reply::Array(["name", "last-delivered-id", "pending"].map(|name| fact(facts, name)).into())
}

fn pending_reply((sequence, (consumer, deliveries)): (&u64, &(u8, u64))) -> Reply {
    let deliveries = Reply::Integer(*deliveries as i64);
    Reply::Array(vec![id_reply(*sequence), bulk(consumer_name(*consumer)), deliveries])
}

/// For how long it has been idle is not of interest.
fn told_pending(entry: Reply) -> Reply {
    match entry {
        Reply::Array(facts) if facts.len() == 4 => {
            Reply::Array(vec![facts[0].clone(), facts[1].clone(), facts[3].clone()])
        }
        entry => entry,
    }
}

fn told_error(text: &str) -> String {
    let name = ["NOGROUP", "BUSYGROUP"].into_iter().find(|name| text.starts_with(name));
    if text.starts_with("UNBLOCKED the stream key no longer exists") {
        // As for whoever had come a moment later.
        return "NOGROUP".to_owned();
    }
    let is_without_key = text.starts_with("ERR The XGROUP subcommand requires the key to exist");
    match (name, is_without_key) {
        (Some(name), _) => name.to_owned(),
        (None, true) => "ERR no such key".to_owned(),
        (None, false) => text.to_owned(),
    }
}

/// What a name stands for in pairs of names and facts.
fn fact(facts: &[Reply], name: &str) -> Reply {
    let found = facts.chunks_exact(2).find(|pair| pair[0] == bulk(name));
    found.map_or(Reply::Null, |pair| pair[1].clone())
}

#[cfg(test)]
mod tests {
    use super::StreamAction::*;
    use super::*;

    fn value(text: &str) -> Value {
        Value::new(text.into())
    }

    #[test]
    fn a_stream_without_entries_is_there_and_goes_on() {
        let (_, stream) = Add(value("a")).run("k", None);
        let stream = stream.expect("a change").expect("a stream");
        let (reply, stream) = Add(value("b")).run("k", Some(&stream));
        assert_eq!(reply, Reply::Bulk(value("7-1")));
        let stream = stream.expect("a change").expect("a stream");
        let all = Range(0, u64::MAX).run("k", Some(&stream)).0;
        let expected = [(0, "a"), (1, "b")].map(|(at, text)| entry_reply(&(at, value(text))));
        assert_eq!(all, Reply::Array(expected.to_vec()));
        assert_eq!(Trim(5).run("k", Some(&stream)), (Reply::Integer(0), None));
        let (reply, stream) = Del(vec![1, 0, 9]).run("k", Some(&stream));
        assert_eq!(reply, Reply::Integer(2));
        let stream = stream.expect("a change").expect("it is there");
        assert_eq!(Len.run("k", Some(&stream)).0, Reply::Integer(0));
        let id = Add(value("c")).run("k", Some(&stream)).0;
        assert_eq!(id, Reply::Bulk(value("7-2")));
    }

    #[test]
    fn what_a_group_reads_is_pending_until_it_is_acknowledged() {
        let of = |action| Of(1, action);
        let run = |action: StreamAction, stream: &mut Option<Value>| {
            let (reply, after) = action.run("k", stream.as_ref());
            *stream = after.unwrap_or(stream.clone());
            reply
        };
        let read = |consumer| of(GroupAction::Read { consumer, count: 2, patience: None });
        let mut stream = None;
        assert_eq!(run(read(0), &mut stream), Reply::Error("NOGROUP".to_owned()));
        assert_eq!(run(of(GroupAction::Create { from_first: true }), &mut stream), Reply::ok());
        assert_eq!(run(read(0), &mut stream), Reply::NullArray);
        for text in ["a", "b", "c"] {
            run(Add(value(text)), &mut stream);
        }
        let entries = |some: &[(u64, &str)]| {
            let entries: Vec<_> = some.iter().map(|(at, text)| (*at, value(text))).collect();
            of_stream("k", &entries)
        };
        assert_eq!(run(read(0), &mut stream), entries(&[(0, "a"), (1, "b")]));
        assert_eq!(run(read(2), &mut stream), entries(&[(2, "c")]));
        assert_eq!(run(of(GroupAction::Ack(vec![1, 1, 9])), &mut stream), Reply::Integer(1));
        run(Del(vec![0]), &mut stream);
        let claimed = run(of(GroupAction::AutoClaim { consumer: 1, count: 1 }), &mut stream);
        let expected = [bulk("7-2"), Reply::Array(Vec::new()), Reply::Array(vec![id_reply(0)])];
        assert_eq!(claimed, Reply::Array(expected.into()));
        run(of(GroupAction::Claim { consumer: 1, sequences: vec![2, 0] }), &mut stream);
        let pending = Reply::Array(vec![pending_reply((&2, &(1, 2)))]);
        assert_eq!(run(of(GroupAction::Pending), &mut stream), pending);
        assert_eq!(run(of(GroupAction::Destroy), &mut stream), Reply::Integer(1));
        assert_eq!(run(Groups, &mut stream), Reply::Array(Vec::new()));
    }
}
