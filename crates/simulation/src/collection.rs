//! What collections should be: elements in a value of the model, so that all that holds for the value of
//! a key holds for a collection, too.
//!
//! Nothing of the server's own code. An element is an identifier in a byte, a time in eight, a length in four, and a
//! value; those of hashes, sets and sorted sets ascend by their identifiers. The value of a member of a
//! sorted set is its score. Streams are in `stream.rs`.

use crate::command::{FAR_MS, HASHES, Key, LISTS, SETS, SORTED_SETS, STREAMS};
use crate::machine::START_MS;
use crate::reply::Reply;
use crate::stream::{GroupAction, StreamAction};
use crate::value::Value;

/// Fields of a hash, and members of a set, that clients use: enough for a tree of leaves.
pub(crate) const FIELDS: u8 = 40;
/// Elements of a list beyond which clients push no more, as they see it.
pub(crate) const LIST_LEN_MAX: i64 = 60;
/// Scores that clients use: few, so that many members share one.
pub(crate) const SCORES: u64 = 12;
/// Sequences of entries that clients name.
pub(crate) const SEQUENCES: u64 = 120;
/// Bytes of a member of a set.
const MEMBER_BYTES: usize = 150;
/// For how long clients wait for elements that do so for a while.
pub(crate) const WAIT_US: u64 = 30_000;
const LEN_BYTES: usize = 4;

/// For how long a client waits when there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For [`WAIT_US`].
    Short,
    Endless,
}

impl Patience {
    fn seconds(self) -> Vec<u8> {
        match self {
            Patience::Short => format!("{}", WAIT_US as f64 / 1e6).into_bytes(),
            Patience::Endless => b"0".to_vec(),
        }
    }
}

/// The name of a field.
pub(crate) fn field_name(field: u8) -> Vec<u8> {
    format!("field-{field}").into_bytes()
}

/// The bytes of a member.
pub(crate) fn member_name(member: u8) -> Vec<u8> {
    let mut name = format!("member-{member}").into_bytes();
    name.resize(MEMBER_BYTES, b'.');
    name
}

/// A command on a collection that exists or not.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    HSet(Vec<(u8, Value)>),
    HGet(u8),
    HMGet(Vec<u8>),
    HGetAll,
    HDel(Vec<u8>),
    HLen,
    /// Has fields go at a time, in milliseconds since the start.
    HPExpireAt(u64, Vec<u8>),
    HPersist(Vec<u8>),
    HPExpireTime(Vec<u8>),
    SAdd(Vec<u8>),
    SRem(Vec<u8>),
    SMIsMember(Vec<u8>),
    SMembers,
    SCard,
    /// At the head, or at the tail.
    Push(bool, Vec<Value>),
    Pop(bool),
    /// The same, and waits when there is nothing.
    BPop(bool, Patience),
    LIndex(i64),
    LRange(i64, i64),
    LLen,
    LTrim(i64, i64),
    ZAdd(Vec<(i64, u8)>),
    ZIncrBy(i64, u8),
    ZRem(Vec<u8>),
    /// The first or the last.
    ZPop(bool),
    /// The same, and waits when there is nothing.
    BZPop(bool, Patience),
    ZCard,
    ZMScore(Vec<u8>),
    ZRank(u8),
    /// By rank, with scores.
    ZRange(i64, i64),
    /// By score.
    ZRangeByScore(i64, i64),
    Stream(StreamAction),
}

impl Action {
    /// What reads all of a key's collection.
    pub(crate) fn read_all(key: Key) -> Action {
        match key.0 {
            HASHES..SETS => Action::HMGet((0..FIELDS).collect()),
            SETS..LISTS => Action::SMIsMember((0..FIELDS).collect()),
            LISTS..SORTED_SETS => Action::LRange(0, -1),
            SORTED_SETS..STREAMS => Action::ZRange(0, -1),
            _ => Action::Stream(StreamAction::Range(0, u64::MAX)),
        }
    }

    /// What adds something to a key that clients wait for.
    pub(crate) fn add_to(key: Key, value: Value) -> Action {
        match key.0 {
            LISTS..SORTED_SETS => Action::Push(true, vec![value]),
            STREAMS.. => Action::Stream(StreamAction::Add(value)),
            _ => Action::ZAdd(vec![(0, 0)]),
        }
    }

    /// For how long it waits if it does.
    pub(crate) fn patience(&self) -> Option<Patience> {
        match self {
            Action::BPop(_, patience) | Action::BZPop(_, patience) => Some(*patience),
            Action::Stream(action) => action.patience(),
            _ => None,
        }
    }

    /// Whether its answer may be the same when the key is gone, and what it leaves is not.
    pub(crate) fn may_hide_eviction(&self) -> bool {
        match self {
            Action::Stream(action) => action.may_hide_eviction(),
            _ => matches!(
                self,
                Action::HSet(_) | Action::SAdd(_) | Action::ZAdd(_) | Action::ZIncrBy(..)
            ),
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        use Action::*;
        if let Stream(action) = self {
            return action.is_read();
        }
        matches!(
            self,
            HGet(_)
                | HMGet(_)
                | HGetAll
                | HLen
                | HPExpireTime(_)
                | SMIsMember(_)
                | SMembers
                | SCard
                | LIndex(_)
                | LRange(..)
                | LLen
                | ZCard
                | ZMScore(_)
                | ZRank(_)
                | ZRange(..)
                | ZRangeByScore(..)
        )
    }

    /// Whether it reads the pending entries of a group.
    pub(crate) fn reads_pending(&self) -> bool {
        matches!(self, Action::Stream(StreamAction::Of(_, GroupAction::Pending)))
    }

    /// Its reply, with the elements sorted if they come in an order of the server's own.
    pub(crate) fn sorted(&self, reply: Reply) -> Reply {
        if let Action::Stream(action) = self {
            return action.told(reply);
        }
        if let (Action::HPExpireAt(..), Reply::Array(codes)) = (self, &reply) {
            return Reply::Array(codes.iter().map(told_code).collect());
        }
        let (Action::HGetAll | Action::SMembers, Reply::Array(replies)) = (self, &reply) else {
            return reply;
        };
        let bytes = |reply: &Reply| match reply {
            Reply::Bulk(value) => value.bytes().to_vec(),
            _ => Vec::new(),
        };
        let words = if matches!(self, Action::HGetAll) { 2 } else { 1 };
        let mut elements: Vec<&[Reply]> = replies.chunks(words).collect();
        elements.sort_by_cached_key(|element| bytes(&element[0]));
        Reply::Array(elements.concat())
    }

    /// The request.
    pub(crate) fn words(&self, key: &str) -> Vec<Vec<u8>> {
        use Action::*;
        let members = |ids: &[u8]| ids.iter().copied().map(member_name).collect();
        let (name, more): (&str, Vec<Vec<u8>>) = match self {
            HSet(pairs) => {
                let pair =
                    |(field, value): &(u8, Value)| [field_name(*field), value.bytes().to_vec()];
                ("HSET", pairs.iter().flat_map(pair).collect())
            }
            HGet(field) => ("HGET", vec![field_name(*field)]),
            HMGet(fields) => ("HMGET", fields.iter().copied().map(field_name).collect()),
            HGetAll => ("HGETALL", Vec::new()),
            HDel(fields) => ("HDEL", fields.iter().copied().map(field_name).collect()),
            HLen => ("HLEN", Vec::new()),
            HPExpireAt(at_ms, fields) => {
                let at_ms = vec![(START_MS + at_ms).to_string().into_bytes()];
                ("HPEXPIREAT", [at_ms, listed(fields)].concat())
            }
            HPersist(fields) => ("HPERSIST", listed(fields)),
            HPExpireTime(fields) => ("HPEXPIRETIME", listed(fields)),
            SAdd(ids) => ("SADD", members(ids)),
            SRem(ids) => ("SREM", members(ids)),
            SMIsMember(ids) => ("SMISMEMBER", members(ids)),
            SMembers => ("SMEMBERS", Vec::new()),
            SCard => ("SCARD", Vec::new()),
            Push(at_head, values) => {
                let name = if *at_head { "LPUSH" } else { "RPUSH" };
                (name, values.iter().map(|value| value.bytes().to_vec()).collect())
            }
            Pop(at_head) => (if *at_head { "LPOP" } else { "RPOP" }, Vec::new()),
            BPop(at_head, patience) => {
                (if *at_head { "BLPOP" } else { "BRPOP" }, vec![patience.seconds()])
            }
            LIndex(at) => ("LINDEX", vec![number(*at)]),
            LRange(from, to) => ("LRANGE", vec![number(*from), number(*to)]),
            LLen => ("LLEN", Vec::new()),
            LTrim(from, to) => ("LTRIM", vec![number(*from), number(*to)]),
            ZAdd(pairs) => {
                let pair = |(score, member): &(i64, u8)| [number(*score), member_name(*member)];
                ("ZADD", pairs.iter().flat_map(pair).collect())
            }
            ZIncrBy(by, member) => ("ZINCRBY", vec![number(*by), member_name(*member)]),
            ZRem(ids) => ("ZREM", members(ids)),
            ZPop(first) => (if *first { "ZPOPMIN" } else { "ZPOPMAX" }, Vec::new()),
            BZPop(first, patience) => {
                (if *first { "BZPOPMIN" } else { "BZPOPMAX" }, vec![patience.seconds()])
            }
            ZCard => ("ZCARD", Vec::new()),
            ZMScore(ids) => ("ZMSCORE", members(ids)),
            ZRank(member) => ("ZRANK", vec![member_name(*member)]),
            ZRange(from, to) => ("ZRANGE", vec![number(*from), number(*to), b"WITHSCORES".into()]),
            ZRangeByScore(from, to) => ("ZRANGEBYSCORE", vec![number(*from), number(*to)]),
            Stream(action) => return action.words(key),
        };
        [name.into(), key.into()].into_iter().chain(more).collect()
    }

    /// What it answers on a key of this name, and the collection after it if it changes that; none of it:
    /// the key is gone.
    pub(crate) fn run(&self, key: &str, old: Option<&Value>) -> (Reply, Option<Option<Value>>) {
        use Action::*;
        if let Stream(action) = self {
            return action.run(key, old);
        }
        let mut elements = old.map_or_else(Vec::new, decode);
        let len = elements.len() as i64;
        let find = |elements: &[Element], id: u8| elements.iter().position(|one| one.id == id);
        let of = |field: &u8| Reply::value(find(&elements, *field).map(|at| &elements[at].value));
        let reply = match self {
            HGet(field) => of(field),
            HMGet(fields) => Reply::Array(fields.iter().map(of).collect()),
            HGetAll => {
                let pair = |one: &Element| {
                    [Reply::Bulk(Value::new(field_name(one.id))), Reply::Bulk(one.value.clone())]
                };
                self.sorted(Reply::Array(elements.iter().flat_map(pair).collect()))
            }
            HLen | SCard | LLen | ZCard => Reply::Integer(len),
            HPExpireTime(fields) => {
                let of = |field: &u8| match find(&elements, *field).map(|at| elements[at].until_ms)
                {
                    None => -2,
                    Some(0) => -1,
                    Some(until_ms) => (START_MS + until_ms) as i64,
                };
                Reply::Array(fields.iter().map(|field| Reply::Integer(of(field))).collect())
            }
            HPExpireAt(until_ms, fields) => return set_until(elements, *until_ms, fields),
            HPersist(fields) => return set_until(elements, 0, fields),
            SMIsMember(members) => {
                let is_there = |id: &u8| Reply::Integer(find(&elements, *id).is_some().into());
                Reply::Array(members.iter().map(is_there).collect())
            }
            SMembers => self.sorted(Reply::Array(elements.iter().map(Element::member).collect())),
            LIndex(at) => Reply::value(place(*at, len).map(|at| &elements[at].value)),
            LRange(from, to) => {
                let range = &elements[span(*from, *to, len)];
                Reply::Array(range.iter().map(|one| Reply::Bulk(one.value.clone())).collect())
            }
            HSet(pairs) => {
                let mut added = 0;
                for (id, value) in pairs {
                    added += i64::from(put(&mut elements, *id, value.clone()));
                }
                return (Reply::Integer(added), Some(encode(&elements)));
            }
            SAdd(members) => {
                let empty = || Value::new(Vec::new());
                let is_new = |id: &&u8| put(&mut elements, **id, empty());
                let added = members.iter().filter(is_new).count() as i64;
                // One that changes nothing disturbs nobody.
                return (Reply::Integer(added), (added > 0).then(|| encode(&elements)));
            }
            HDel(ids) | SRem(ids) | ZRem(ids) => {
                elements.retain(|one| !ids.contains(&one.id));
                let removed = len - elements.len() as i64;
                return (Reply::Integer(removed), (removed > 0).then(|| encode(&elements)));
            }
            Push(at_head, values) => {
                for value in values {
                    let at = if *at_head { 0 } else { elements.len() };
                    elements.insert(at, Element::new(0, value.clone()));
                }
                return (Reply::Integer(elements.len() as i64), Some(encode(&elements)));
            }
            Pop(_) if elements.is_empty() => Reply::Null,
            Pop(at_head) => {
                let popped = elements.remove(if *at_head { 0 } else { elements.len() - 1 });
                return (Reply::Bulk(popped.value), Some(encode(&elements)));
            }
            BPop(..) | BZPop(..) if elements.is_empty() => Reply::NullArray,
            BPop(at_head, _) => {
                let (popped, after) = Pop(*at_head).run(key, old);
                return (Reply::Array(vec![named(key), popped]), after);
            }
            BZPop(first, _) => {
                let (popped, after) = ZPop(*first).run(key, old);
                let Reply::Array(popped) = popped else { unreachable!("a member and its score") };
                return (Reply::Array([vec![named(key)], popped].concat()), after);
            }
            LTrim(..) if elements.is_empty() => Reply::ok(),
            LTrim(from, to) => {
                let kept = elements[span(*from, *to, len)].to_vec();
                return (Reply::ok(), Some(encode(&kept)));
            }
            ZAdd(pairs) => {
                let before = encode(&elements);
                for (score, id) in pairs {
                    put(&mut elements, *id, Value::new(number(*score)));
                }
                let (added, after) = (elements.len() as i64 - len, encode(&elements));
                return (Reply::Integer(added), (before != after).then_some(after));
            }
            ZIncrBy(by, id) => {
                let score = find(&elements, *id).map_or(0, |at| elements[at].score());
                let score = Value::new(number(score + by));
                put(&mut elements, *id, score.clone());
                return (Reply::Bulk(score), Some(encode(&elements)));
            }
            ZPop(_) if elements.is_empty() => Reply::Array(Vec::new()),
            ZPop(first) => {
                let ranked = ranked(&elements);
                let popped = if *first { &ranked[0] } else { &ranked[ranked.len() - 1] };
                elements.retain(|one| one.id != popped.id);
                return (Reply::Array(popped.with_score().into()), Some(encode(&elements)));
            }
            ZMScore(ids) => Reply::Array(ids.iter().map(of).collect()),
            ZRank(id) => match ranked(&elements).iter().position(|one| one.id == *id) {
                Some(rank) => Reply::Integer(rank as i64),
                None => Reply::Null,
            },
            ZRange(from, to) => {
                let range = &ranked(&elements)[span(*from, *to, len)];
                Reply::Array(range.iter().flat_map(Element::with_score).collect())
            }
            ZRangeByScore(from, to) => {
                let mut range = ranked(&elements);
                range.retain(|one| (*from..=*to).contains(&one.score()));
                Reply::Array(range.iter().map(Element::member).collect())
            }
            Stream(_) => unreachable!("run before"),
        };
        (reply, None)
    }
}

/// Fields, and how many they are.
fn listed(fields: &[u8]) -> Vec<Vec<u8>> {
    let count = fields.len().to_string().into_bytes();
    let names = fields.iter().copied().map(field_name);
    [b"FIELDS".to_vec(), count].into_iter().chain(names).collect()
}

/// A field whose time has come already goes at once.
fn told_code(code: &Reply) -> Reply {
    if *code == Reply::Integer(2) { Reply::Integer(1) } else { code.clone() }
}

/// Has fields go at a time, or stay.
fn set_until(
    mut elements: Vec<Element>,
    until_ms: u64,
    fields: &[u8],
) -> (Reply, Option<Option<Value>>) {
    let mut is_changed = false;
    let mut set = |field: &u8| match elements.iter_mut().find(|one| one.id == *field) {
        None => -2,
        Some(one) if until_ms == 0 && one.until_ms == 0 => -1,
        Some(one) => {
            (one.until_ms, is_changed) = (until_ms, true);
            1
        }
    };
    let codes = fields.iter().map(|field| Reply::Integer(set(field))).collect();
    (Reply::Array(codes), is_changed.then(|| encode(&elements)))
}

/// The times at which fields of a hash go, if that is in this run, each once, in their order.
pub(crate) fn times_of_fields(hash: &Value) -> Vec<u64> {
    let mut times: Vec<u64> = decode(hash).iter().map(|one| one.until_ms).collect();
    times.retain(|until_ms| (1..FAR_MS).contains(until_ms));
    times.sort_unstable();
    times.dedup();
    times
}

/// A hash without the fields whose time has come by then.
pub(crate) fn without_fields(hash: &Value, until_ms: u64) -> Option<Value> {
    let mut elements = decode(hash);
    elements.retain(|one| one.until_ms == 0 || one.until_ms > until_ms);
    encode(&elements)
}

fn named(key: &str) -> Reply {
    Reply::Bulk(Value::new(key.into()))
}

/// The members of a sorted set in their order.
fn ranked(elements: &[Element]) -> Vec<Element> {
    let mut ranked = elements.to_vec();
    ranked.sort_by_key(|one| (one.score(), member_name(one.id)));
    ranked
}

fn number(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[derive(Clone)]
pub(crate) struct Element {
    pub(crate) id: u8,
    pub(crate) value: Value,
    /// When a field goes, in milliseconds since the start; 0: it stays.
    until_ms: u64,
}

impl Element {
    pub(crate) fn new(id: u8, value: Value) -> Element {
        Element { id, value, until_ms: 0 }
    }

    /// Of a member of a sorted set.
    fn score(&self) -> i64 {
        let text = std::str::from_utf8(self.value.bytes()).expect("a score");
        text.parse().expect("a score")
    }

    fn member(&self) -> Reply {
        Reply::Bulk(Value::new(member_name(self.id)))
    }

    fn with_score(&self) -> [Reply; 2] {
        [self.member(), Reply::Bulk(self.value.clone())]
    }
}

/// Puts an element in its place. True: there was none.
fn put(elements: &mut Vec<Element>, id: u8, value: Value) -> bool {
    let at = elements.partition_point(|one| one.id < id);
    let is_new = elements.get(at).is_none_or(|one| one.id != id);
    if is_new {
        elements.insert(at, Element::new(id, value));
    } else {
        elements[at] = Element::new(id, value);
    }
    is_new
}

/// Where a position is, which counts from the end if it is negative.
fn place(at: i64, len: i64) -> Option<usize> {
    let at = if at < 0 { at + len } else { at };
    (0..len).contains(&at).then_some(at as usize)
}

/// The positions from one to another, both included, of so many.
fn span(from: i64, to: i64, len: i64) -> std::ops::Range<usize> {
    let from = if from < 0 { (from + len).max(0) } else { from };
    let end = (if to < 0 { to + len } else { to }.min(len - 1)) + 1;
    if from < end { from as usize..end as usize } else { 0..0 }
}

pub(crate) fn decode(value: &Value) -> Vec<Element> {
    let (mut bytes, mut elements) = (value.bytes(), Vec::new());
    while let [id, rest @ ..] = bytes {
        let (until_ms, rest) = rest.split_first_chunk().expect("8 bytes");
        let until_ms = u64::from_le_bytes(*until_ms);
        let (len, rest) = rest.split_at(LEN_BYTES);
        let len = u32::from_le_bytes(len.try_into().expect("4 bytes")) as usize;
        elements.push(Element { id: *id, value: Value::new(rest[..len].to_vec()), until_ms });
        bytes = &rest[len..];
    }
    elements
}

/// None: an empty collection is a key that does not exist.
pub(crate) fn encode(elements: &[Element]) -> Option<Value> {
    if elements.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    for Element { id, value, until_ms } in elements {
        bytes.push(*id);
        bytes.extend_from_slice(&until_ms.to_le_bytes());
        bytes.extend_from_slice(&(value.bytes().len() as u32).to_le_bytes());
        bytes.extend_from_slice(value.bytes());
    }
    Some(Value::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::new(text.into())
    }

    #[test]
    fn a_hash_is_gone_with_its_last_field() {
        let (reply, hash) = Action::HSet(vec![(7, value("a")), (3, value("b"))]).run("k", None);
        assert_eq!(reply, Reply::Integer(2));
        let hash = hash.expect("a change").expect("a hash");
        let (reply, same) = Action::HMGet(vec![3, 4, 7]).run("k", Some(&hash));
        assert!(same.is_none());
        let expected = vec![Reply::Bulk(value("b")), Reply::Null, Reply::Bulk(value("a"))];
        assert_eq!(reply, Reply::Array(expected));
        let (reply, gone) = Action::HDel(vec![3, 3, 7, 9]).run("k", Some(&hash));
        assert_eq!((reply, gone), (Reply::Integer(2), Some(None)));
    }

    #[test]
    fn a_sorted_set_is_in_the_order_of_scores_and_then_of_names() {
        let (reply, set) = Action::ZAdd(vec![(2, 3), (1, 20), (1, 3), (1, 1)]).run("k", None);
        assert_eq!(reply, Reply::Integer(3));
        let set = set.expect("a change").expect("a sorted set");
        let member = |id| Reply::Bulk(Value::new(member_name(id)));
        let all = [1, 20, 3].map(member).to_vec();
        assert_eq!(Action::ZRangeByScore(1, 1).run("k", Some(&set)).0, Reply::Array(all));
        assert_eq!(Action::ZRank(3).run("k", Some(&set)).0, Reply::Integer(2));
        assert_eq!(Action::ZAdd(vec![(1, 20)]).run("k", Some(&set)), (Reply::Integer(0), None));
        let (reply, set) = Action::ZIncrBy(-3, 3).run("k", Some(&set));
        assert_eq!(reply, Reply::Bulk(value("-2")));
        let set = set.expect("a change").expect("a sorted set");
        let (reply, set) = Action::ZPop(true).run("k", Some(&set));
        assert_eq!(reply, Reply::Array(vec![member(3), Reply::Bulk(value("-2"))]));
        let set = set.expect("a change").expect("a sorted set");
        assert_eq!(Action::ZRem(vec![1, 20]).run("k", Some(&set)).1, Some(None));
    }

    #[test]
    fn elements_are_compared_in_whatever_order_they_come() {
        let bulk = |bytes: Vec<u8>| Reply::Bulk(Value::new(bytes));
        let (_, hash) = Action::HSet(vec![(2, value("b")), (1, value("a"))]).run("k", None);
        let hash = hash.expect("a change").expect("a hash");
        let of = |field: u8, text: &str| [bulk(field_name(field)), bulk(text.into())];
        let come = Reply::Array([of(2, "b"), of(1, "a")].concat());
        assert_eq!(Action::HGetAll.sorted(come), Action::HGetAll.run("k", Some(&hash)).0);
        let torn = Reply::Array([of(2, "a"), of(1, "b")].concat());
        assert_ne!(Action::HGetAll.sorted(torn), Action::HGetAll.run("k", Some(&hash)).0);
        let (_, set) = Action::SAdd(vec![10, 9]).run("k", None);
        let set = set.expect("a change").expect("a set");
        let members = |ids: [u8; 2]| Reply::Array(ids.map(|id| bulk(member_name(id))).into());
        for ids in [[9, 10], [10, 9]] {
            let reply = Action::SMembers.sorted(members(ids));
            assert_eq!(reply, Action::SMembers.run("k", Some(&set)).0);
        }
        let error = Reply::Error("OOM".to_owned());
        assert_eq!(Action::SMembers.sorted(error.clone()), error);
    }

    #[test]
    fn a_list_has_two_ends() {
        let (_, list) = Action::Push(true, vec![value("b"), value("a")]).run("k", None);
        let list = list.expect("a change").expect("a list");
        let (_, list) = Action::Push(false, vec![value("c")]).run("k", Some(&list));
        let list = list.expect("a change").expect("a list");
        let all = ["a", "b", "c"].map(|text| Reply::Bulk(value(text))).to_vec();
        assert_eq!(Action::LRange(0, -1).run("k", Some(&list)).0, Reply::Array(all.clone()));
        assert_eq!(Action::LRange(-2, 9).run("k", Some(&list)).0, Reply::Array(all[1..].to_vec()));
        assert_eq!(Action::LIndex(-4).run("k", Some(&list)).0, Reply::Null);
        assert_eq!(Action::Pop(false).run("k", Some(&list)).0, all[2].clone());
        assert_eq!(Action::LTrim(5, 9).run("k", Some(&list)).1, Some(None));
    }
}
