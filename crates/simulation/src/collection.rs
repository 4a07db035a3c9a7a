//! What collections should be: elements in a value of the model, so that all that holds for the value of
//! a key holds for a collection, too.
//!
//! Nothing of the server's own code. An element is an identifier in a byte, a length in four bytes, and a
//! value; those of hashes and sets ascend by their identifiers.

use crate::command::{HASHES, Key, LISTS, SETS};
use crate::reply::Reply;
use crate::value::Value;

/// Fields of a hash, and members of a set, that clients use: enough for a tree of leaves.
pub(crate) const FIELDS: u8 = 40;
/// Elements of a list beyond which clients push no more, as they see it.
pub(crate) const LIST_LEN_MAX: i64 = 60;
/// Bytes of a member of a set.
const MEMBER_BYTES: usize = 150;
const LEN_BYTES: usize = 4;

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
    HDel(Vec<u8>),
    HLen,
    SAdd(Vec<u8>),
    SRem(Vec<u8>),
    SMIsMember(Vec<u8>),
    SCard,
    /// At the head, or at the tail.
    Push(bool, Vec<Value>),
    Pop(bool),
    LIndex(i64),
    LRange(i64, i64),
    LLen,
    LTrim(i64, i64),
}

impl Action {
    /// What reads all of a key's collection.
    pub(crate) fn read_all(key: Key) -> Action {
        match key.0 {
            HASHES..SETS => Action::HMGet((0..FIELDS).collect()),
            SETS..LISTS => Action::SMIsMember((0..FIELDS).collect()),
            _ => Action::LRange(0, -1),
        }
    }

    /// Whether its answer may be the same when the key is gone, and what it leaves is not.
    pub(crate) fn may_hide_eviction(&self) -> bool {
        matches!(self, Action::HSet(_) | Action::SAdd(_))
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        use Action::*;
        matches!(
            self,
            HGet(_) | HMGet(_) | HLen | SMIsMember(_) | SCard | LIndex(_) | LRange(..) | LLen
        )
    }

    /// The request.
    pub(crate) fn words(&self, key: &str) -> Vec<Vec<u8>> {
        use Action::*;
        let (name, more): (&str, Vec<Vec<u8>>) = match self {
            HSet(pairs) => {
                let pair =
                    |(field, value): &(u8, Value)| [field_name(*field), value.bytes().to_vec()];
                ("HSET", pairs.iter().flat_map(pair).collect())
            }
            HGet(field) => ("HGET", vec![field_name(*field)]),
            HMGet(fields) => ("HMGET", fields.iter().copied().map(field_name).collect()),
            HDel(fields) => ("HDEL", fields.iter().copied().map(field_name).collect()),
            HLen => ("HLEN", Vec::new()),
            SAdd(members) => ("SADD", members.iter().copied().map(member_name).collect()),
            SRem(members) => ("SREM", members.iter().copied().map(member_name).collect()),
            SMIsMember(members) => {
                ("SMISMEMBER", members.iter().copied().map(member_name).collect())
            }
            SCard => ("SCARD", Vec::new()),
            Push(at_head, values) => {
                let name = if *at_head { "LPUSH" } else { "RPUSH" };
                (name, values.iter().map(|value| value.bytes().to_vec()).collect())
            }
            Pop(at_head) => (if *at_head { "LPOP" } else { "RPOP" }, Vec::new()),
            LIndex(at) => ("LINDEX", vec![number(*at)]),
            LRange(from, to) => ("LRANGE", vec![number(*from), number(*to)]),
            LLen => ("LLEN", Vec::new()),
            LTrim(from, to) => ("LTRIM", vec![number(*from), number(*to)]),
        };
        [name.into(), key.into()].into_iter().chain(more).collect()
    }

    /// What it answers, and the collection after it if it changes that; none of it: the key is gone.
    pub(crate) fn run(&self, old: Option<&Value>) -> (Reply, Option<Option<Value>>) {
        use Action::*;
        let mut elements = old.map_or_else(Vec::new, decode);
        let len = elements.len() as i64;
        let find = |elements: &[Element], id: u8| elements.iter().position(|one| one.id == id);
        let of = |field: &u8| Reply::value(find(&elements, *field).map(|at| &elements[at].value));
        let reply = match self {
            HGet(field) => of(field),
            HMGet(fields) => Reply::Array(fields.iter().map(of).collect()),
            HLen | SCard | LLen => Reply::Integer(len),
            SMIsMember(members) => {
                let is_there = |id: &u8| Reply::Integer(find(&elements, *id).is_some().into());
                Reply::Array(members.iter().map(is_there).collect())
            }
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
            HDel(ids) | SRem(ids) => {
                elements.retain(|one| !ids.contains(&one.id));
                let removed = len - elements.len() as i64;
                return (Reply::Integer(removed), (removed > 0).then(|| encode(&elements)));
            }
            Push(at_head, values) => {
                for value in values {
                    let at = if *at_head { 0 } else { elements.len() };
                    elements.insert(at, Element { id: 0, value: value.clone() });
                }
                return (Reply::Integer(elements.len() as i64), Some(encode(&elements)));
            }
            Pop(_) if elements.is_empty() => Reply::Null,
            Pop(at_head) => {
                let popped = elements.remove(if *at_head { 0 } else { elements.len() - 1 });
                return (Reply::Bulk(popped.value), Some(encode(&elements)));
            }
            LTrim(..) if elements.is_empty() => Reply::ok(),
            LTrim(from, to) => {
                let kept = elements[span(*from, *to, len)].to_vec();
                return (Reply::ok(), Some(encode(&kept)));
            }
        };
        (reply, None)
    }
}

fn number(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[derive(Clone)]
struct Element {
    id: u8,
    value: Value,
}

/// Puts an element in its place. True: there was none.
fn put(elements: &mut Vec<Element>, id: u8, value: Value) -> bool {
    let at = elements.partition_point(|one| one.id < id);
    let is_new = elements.get(at).is_none_or(|one| one.id != id);
    if is_new {
        elements.insert(at, Element { id, value });
    } else {
        elements[at].value = value;
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

fn decode(value: &Value) -> Vec<Element> {
    let (mut bytes, mut elements) = (value.bytes(), Vec::new());
    while let [id, rest @ ..] = bytes {
        let (len, rest) = rest.split_at(LEN_BYTES);
        let len = u32::from_le_bytes(len.try_into().expect("4 bytes")) as usize;
        elements.push(Element { id: *id, value: Value::new(rest[..len].to_vec()) });
        bytes = &rest[len..];
    }
    elements
}

/// None: an empty collection is a key that does not exist.
fn encode(elements: &[Element]) -> Option<Value> {
    if elements.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    for Element { id, value } in elements {
        bytes.push(*id);
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
        let (reply, hash) = Action::HSet(vec![(7, value("a")), (3, value("b"))]).run(None);
        assert_eq!(reply, Reply::Integer(2));
        let hash = hash.expect("a change").expect("a hash");
        let (reply, same) = Action::HMGet(vec![3, 4, 7]).run(Some(&hash));
        assert!(same.is_none());
        let expected = vec![Reply::Bulk(value("b")), Reply::Null, Reply::Bulk(value("a"))];
        assert_eq!(reply, Reply::Array(expected));
        let (reply, gone) = Action::HDel(vec![3, 3, 7, 9]).run(Some(&hash));
        assert_eq!((reply, gone), (Reply::Integer(2), Some(None)));
    }

    #[test]
    fn a_list_has_two_ends() {
        let (_, list) = Action::Push(true, vec![value("b"), value("a")]).run(None);
        let list = list.expect("a change").expect("a list");
        let (_, list) = Action::Push(false, vec![value("c")]).run(Some(&list));
        let list = list.expect("a change").expect("a list");
        let all = ["a", "b", "c"].map(|text| Reply::Bulk(value(text))).to_vec();
        assert_eq!(Action::LRange(0, -1).run(Some(&list)).0, Reply::Array(all.clone()));
        assert_eq!(Action::LRange(-2, 9).run(Some(&list)).0, Reply::Array(all[1..].to_vec()));
        assert_eq!(Action::LIndex(-4).run(Some(&list)).0, Reply::Null);
        assert_eq!(Action::Pop(false).run(Some(&list)).0, all[2].clone());
        assert_eq!(Action::LTrim(5, 9).run(Some(&list)).1, Some(None));
    }
}
