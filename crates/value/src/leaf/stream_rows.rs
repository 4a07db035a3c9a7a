//! The rows of a stream: its consumer groups, their consumers, and what these have not acknowledged.
//!
//! All are rows (`rows.rs`) of a key and what it stands for, in the order of keys, so that one tree holds them
//! and every command finds what it needs in a few leaves:
//!
//! | key | what it stands for |
//! | --- | --- |
//! | 0, name of a group | [`Group`] |
//! | 1, group, 0, name of a consumer | [`Consumer`] |
//! | 1, group, 1, consumer | the consumer's name |
//! | 1, group, 2, ID | [`Nack`]: an entry that is pending |
//! | 1, group, 3, consumer, ID | nothing: an entry that is pending with this consumer |
//! | 2 | the number of the next group |
//!
//! Groups and consumers have numbers of 4 bytes within their stream and group, which stand for them here.
//! Numbers in keys are big-endian, so that rows of a group, and of a consumer, stand together and IDs in their
//! order; elsewhere they are little-endian.

use crate::leaf::rows::{Row, Rows, RowsBuilder, RowsMut, Shape};
use crate::stream_id::{STREAM_ID_BYTES, StreamId};

/// What a row has.
pub const SHAPE: Shape = Shape { parts: 2, ..Shape::NOTHING };

const GROUP: u8 = 0;
const OF_GROUP: u8 = 1;
const NEXT_GROUP: u8 = 2;
const CONSUMER: u8 = 0;
const CONSUMER_NAME: u8 = 1;
const PENDING: u8 = 2;
const OWNED: u8 = 3;

/// The key of the row that holds the number of the next group.
pub const NEXT_GROUP_KEY: &[u8] = &[NEXT_GROUP];

/// A range of keys: from the first one on, up to the second, which does not belong to it.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// The key of a group.
pub fn group_key(name: &[u8]) -> Vec<u8> {
    [&[GROUP], name].concat()
}

/// The keys of all groups.
pub fn group_keys() -> KeyRange {
    (vec![GROUP], vec![OF_GROUP])
}

/// The name of the group with this key.
pub fn group_name(key: &[u8]) -> &[u8] {
    &key[1..]
}

/// The keys of all rows of a group but its own.
pub fn keys_of_group(group: u32) -> KeyRange {
    let key = |group: u32| [&[OF_GROUP][..], &group.to_be_bytes()].concat();
    (key(group), group.checked_add(1).map_or(vec![NEXT_GROUP], key))
}

fn of_group(group: u32, sort: u8, rest: &[u8]) -> Vec<u8> {
    [&[OF_GROUP][..], &group.to_be_bytes(), &[sort], rest].concat()
}

/// The key of a consumer.
pub fn consumer_key(group: u32, name: &[u8]) -> Vec<u8> {
    of_group(group, CONSUMER, name)
}

/// The keys of all consumers of a group.
pub fn consumer_keys(group: u32) -> KeyRange {
    (of_group(group, CONSUMER, &[]), of_group(group, CONSUMER_NAME, &[]))
}

/// The name of the consumer with this key.
pub fn consumer_name(key: &[u8]) -> &[u8] {
    &key[6..]
}

/// The key of a consumer's name.
pub fn consumer_name_key(group: u32, consumer: u32) -> Vec<u8> {
    of_group(group, CONSUMER_NAME, &consumer.to_be_bytes())
}

/// The key of a pending entry.
pub fn pending_key(group: u32, id: StreamId) -> Vec<u8> {
    of_group(group, PENDING, &id.to_bytes())
}

/// The keys of the pending entries of a group from an ID on.
pub fn pending_keys(group: u32, from: StreamId) -> KeyRange {
    (pending_key(group, from), of_group(group, OWNED, &[]))
}

/// The key of an entry that is pending with a consumer.
pub fn owned_key(group: u32, consumer: u32, id: StreamId) -> Vec<u8> {
    let mut rest = [0; 4 + STREAM_ID_BYTES];
    rest[..4].copy_from_slice(&consumer.to_be_bytes());
    rest[4..].copy_from_slice(&id.to_bytes());
    of_group(group, OWNED, &rest)
}

/// The keys of the entries that are pending with a consumer, from an ID on.
pub fn owned_keys(group: u32, consumer: u32, from: StreamId) -> KeyRange {
    let end = match consumer.checked_add(1) {
        Some(next) => of_group(group, OWNED, &next.to_be_bytes()),
        None => of_group(group, OWNED + 1, &[]),
    };
    (owned_key(group, consumer, from), end)
}

/// The ID in the key of a pending entry. Panics: the key is another one.
pub fn id_of_key(key: &[u8]) -> StreamId {
    let id = key.last_chunk::<STREAM_ID_BYTES>().expect("invariant: the key ends with an ID");
    StreamId::from_bytes(*id)
}

/// What the key of a row names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowName<'a> {
    /// A group, by its name.
    Group(&'a [u8]),
    /// A consumer of a group, by its name.
    Consumer(u32, &'a [u8]),
    /// The name of a consumer of a group.
    ConsumerName(u32, u32),
    /// A pending entry of a group.
    Pending(u32, StreamId),
    /// A pending entry of a group with a consumer.
    Owned(u32, u32, StreamId),
    /// The number of the next group.
    NextGroup,
}

/// What a key names. Panics: it is none.
pub fn name_of_key(key: &[u8]) -> RowName<'_> {
    let number =
        |at: usize| u32::from_be_bytes(key[at..at + 4].try_into().expect("invariant: 4 bytes"));
    match key[0] {
        GROUP => RowName::Group(group_name(key)),
        NEXT_GROUP => RowName::NextGroup,
        _ => match key[5] {
            CONSUMER => RowName::Consumer(number(1), consumer_name(key)),
            CONSUMER_NAME => RowName::ConsumerName(number(1), number(6)),
            PENDING => RowName::Pending(number(1), id_of_key(key)),
            _ => RowName::Owned(number(1), number(6), id_of_key(key)),
        },
    }
}

/// Rows whose keys begin alike, up to IDs, are a run, which mostly grows at its end. Returns how a run's keys
/// begin.
fn run_of(key: &[u8]) -> &[u8] {
    match key {
        [OF_GROUP, _, _, _, _, PENDING, ..] => &key[..6],
        [OF_GROUP, _, _, _, _, OWNED, ..] => &key[..10],
        _ => &key[..1],
    }
}

/// A consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// What stands for it in keys.
    pub number: u32,
    /// What will stand for its next consumer.
    pub next_consumer: u32,
    /// Its consumers.
    pub consumers: u64,
    /// Its pending entries.
    pub pending: u64,
    /// The last ID that was delivered.
    pub last: StreamId,
    /// Entries up to that one, deleted ones included. None: that is not known.
    pub read: Option<u64>,
}

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// What stands for it in keys.
    pub number: u32,
    /// Entries that are pending with it.
    pub pending: u64,
    /// When it last asked for anything, Unix milliseconds.
    pub seen_ms: u64,
}

/// An entry that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// With whom.
    pub consumer: u32,
    /// When it was last delivered, Unix milliseconds.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

const NOT_KNOWN: u64 = u64::MAX;

/// Reads numbers one behind another. Panics: the bytes end.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u32(&mut self) -> u32 {
        let (number, rest) = self.0.split_first_chunk().expect("invariant: a whole row");
        self.0 = rest;
        u32::from_le_bytes(*number)
    }

    fn u64(&mut self) -> u64 {
        let (number, rest) = self.0.split_first_chunk().expect("invariant: a whole row");
        self.0 = rest;
        u64::from_le_bytes(*number)
    }
}

impl Group {
    /// What a row holds. Panics: it holds something else.
    pub fn from_bytes(bytes: &[u8]) -> Group {
        let mut numbers = Numbers(bytes);
        Group {
            number: numbers.u32(),
            next_consumer: numbers.u32(),
            consumers: numbers.u64(),
            pending: numbers.u64(),
            last: StreamId { ms: numbers.u64(), seq: numbers.u64() },
            read: Some(numbers.u64()).filter(|&read| read != NOT_KNOWN),
        }
    }

    /// For a row.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [self.number.to_le_bytes(), self.next_consumer.to_le_bytes()].concat();
        let read = self.read.unwrap_or(NOT_KNOWN);
        for number in [self.consumers, self.pending, self.last.ms, self.last.seq, read] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

impl Consumer {
    /// What a row holds. Panics: it holds something else.
    pub fn from_bytes(bytes: &[u8]) -> Consumer {
        let mut numbers = Numbers(bytes);
        Consumer { number: numbers.u32(), pending: numbers.u64(), seen_ms: numbers.u64() }
    }

    /// For a row.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.pending.to_le_bytes());
        bytes.extend_from_slice(&self.seen_ms.to_le_bytes());
        bytes
    }
}

impl Nack {
    /// What a row holds. Panics: it holds something else.
    pub fn from_bytes(bytes: &[u8]) -> Nack {
        let mut numbers = Numbers(bytes);
        let (consumer, delivered_ms) = (numbers.u32(), numbers.u64());
        // Deliveries are few: the high bytes of their number are left out.
        let mut deliveries = [0; 8];
        deliveries[..numbers.0.len()].copy_from_slice(numbers.0);
        Nack { consumer, delivered_ms, deliveries: u64::from_le_bytes(deliveries) }
    }

    /// For a row.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.consumer.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.delivered_ms.to_le_bytes());
        let len = (u64::BITS - self.deliveries.leading_zeros()).div_ceil(8) as usize;
        bytes.extend_from_slice(&self.deliveries.to_le_bytes()[..len]);
        bytes
    }
}

/// How many rows of a leaf have keys below this one.
pub fn rows_below(rows: &Rows<'_>, key: &[u8]) -> usize {
    let (mut low, mut high) = (0, rows.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if rows.first(middle) < key { low = middle + 1 } else { high = middle }
    }
    low
}

/// What the row of a key holds.
pub fn find<'a>(rows: &Rows<'a>, key: &[u8]) -> Option<&'a [u8]> {
    let at = rows_below(rows, key);
    (at < rows.len() && rows.first(at) == key).then(|| rows.second(at))
}

/// Sets the row of a key, or removes it.
pub fn set(rows: &mut RowsMut<'_>, key: &[u8], value: Option<&[u8]>) {
    let at = rows_below(&rows.rows(), key);
    let is_there = at < rows.rows().len() && rows.rows().first(at) == key;
    match (is_there, value) {
        (true, Some(value)) => rows.set_second(at, value),
        (true, None) => rows.remove(at..at + 1),
        (false, Some(value)) => rows.insert(at, 0, 0, &[key, value]),
        (false, None) => {}
    }
}

/// Divides a leaf of more than `bytes_max` in parts that are no larger, or of one row, each behind the bound
/// where it begins; that of the first is empty. Cost: a few passes over the leaf.
///
/// It is cut where a run ends, or else near its end, since runs grow there.
pub fn divide(leaf: Vec<u8>, bytes_max: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let (mut bound, mut bytes) = (Vec::new(), leaf.len());
    let mut rows = Rows::new(&leaf).iter();
    while bytes > bytes_max && rows.len() > 1 {
        let count = cut(rows.clone(), bytes_max);
        let mut last: &[u8] = &[];
        let mut part = RowsBuilder::new(SHAPE);
        for row in rows.by_ref().take(count) {
            part.push(0, 0, &[row.first, row.second]);
            bytes -= SHAPE.row_bytes(&[row.first, row.second]);
            last = row.first;
        }
        let next = bound_between(last, rows.clone().next().expect("a cut leaves a row").first);
        parts.push((std::mem::replace(&mut bound, next), part.into_leaf()));
    }
    if parts.is_empty() {
        return vec![(bound, leaf)];
    }
    let mut part = RowsBuilder::new(SHAPE);
    rows.for_each(|row| part.push(0, 0, &[row.first, row.second]));
    parts.push((bound, part.into_leaf()));
    parts
}

/// The shortest bound that stands behind the key of one row, and not behind that of the next.
fn bound_between(last: &[u8], first: &[u8]) -> Vec<u8> {
    let same = last.iter().zip(first).take_while(|(one, two)| one == two).count();
    first[..=same].to_vec()
}

/// Behind how many rows a leaf is cut that has two or more. Cost: linear in those that fit into `bytes_max`.
fn cut<'a>(rows: impl Iterator<Item = Row<'a>>, bytes_max: usize) -> usize {
    let mut bytes = SHAPE.empty().len();
    let (mut last_that_fits, mut nearly_full, mut end_of_run) = (1, None, None);
    let mut previous: Option<&[u8]> = None;
    for (at, row) in rows.enumerate() {
        if at > 0 && bytes > bytes_max {
            break;
        }
        if let Some(previous) = previous {
            last_that_fits = at;
            if bytes >= bytes_max / 4 && run_of(previous) != run_of(row.first) {
                end_of_run = Some(at);
            }
            if nearly_full.is_none() && bytes >= bytes_max / 8 * 7 {
                nearly_full = Some(at);
            }
        }
        bytes += SHAPE.row_bytes(&[row.first, row.second]);
        previous = Some(row.first);
    }
    end_of_run.or(nearly_full).unwrap_or(last_that_fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_rows_hold_comes_back() {
        let group = Group {
            number: 7,
            next_consumer: u32::MAX,
            consumers: 3,
            pending: 1 << 40,
            last: StreamId::MAX,
            read: Some(5),
        };
        for group in [group, Group { read: None, ..group }] {
            assert_eq!(Group::from_bytes(&group.to_bytes()), group);
        }
        let consumer = Consumer { number: 1, pending: 2, seen_ms: 3 };
        assert_eq!(Consumer::from_bytes(&consumer.to_bytes()), consumer);
        for deliveries in [0, 1, 255, 256, i64::MAX as u64] {
            let nack = Nack { consumer: 9, delivered_ms: 1_700_000_000_000, deliveries };
            assert_eq!(Nack::from_bytes(&nack.to_bytes()), nack);
        }
    }

    #[test]
    fn keys_stand_together_and_in_order() {
        let id = StreamId::new;
        let keys = [
            group_key(b""),
            group_key(b"a"),
            group_key(&[255]),
            consumer_key(3, b""),
            consumer_key(3, &[255, 255]),
            consumer_name_key(3, 0),
            consumer_name_key(3, u32::MAX),
            pending_key(3, id(0, 0)),
            pending_key(3, StreamId::MAX),
            owned_key(3, 1, id(5, 5)),
            owned_key(3, 2, id(1, 1)),
            owned_key(3, u32::MAX, StreamId::MAX),
            consumer_key(4, b"x"),
            owned_key(u32::MAX, u32::MAX, StreamId::MAX),
            NEXT_GROUP_KEY.to_vec(),
        ];
        assert!(keys.is_sorted());
        let count =
            |(from, to): KeyRange| keys.iter().filter(|&key| *key >= from && *key < to).count();
        assert_eq!(count(group_keys()), 3);
        assert_eq!(count(keys_of_group(3)), 9);
        assert_eq!(count(keys_of_group(u32::MAX)), 1);
        assert_eq!(count(consumer_keys(3)), 2);
        assert_eq!(count(pending_keys(3, id(0, 1))), 1);
        assert_eq!(count(owned_keys(3, 1, StreamId::MIN)), 1);
        assert_eq!(count(owned_keys(3, u32::MAX, StreamId::MIN)), 1);
        assert_eq!(group_name(&group_key(b"ab")), b"ab");
        assert_eq!(consumer_name(&consumer_key(3, b"ab")), b"ab");
        assert_eq!(id_of_key(&owned_key(3, 1, id(5, 6))), id(5, 6));
        let names = keys.iter().map(|key| name_of_key(key)).collect::<Vec<_>>();
        assert_eq!(names[2], RowName::Group(&[255]));
        assert_eq!(names[4], RowName::Consumer(3, &[255, 255]));
        assert_eq!(names[6], RowName::ConsumerName(3, u32::MAX));
        assert_eq!(names[8], RowName::Pending(3, StreamId::MAX));
        assert_eq!(names[10], RowName::Owned(3, 2, id(1, 1)));
        assert_eq!(names[14], RowName::NextGroup);
    }

    #[test]
    fn rows_are_set_found_removed_and_divided() {
        let mut leaf = SHAPE.empty().to_vec();
        let mut model = BTreeMap::new();
        for step in 0..4_000u64 {
            let group = (step % 2) as u32;
            let id = StreamId::new(step / 7, step % 7);
            let key = match step % 3 {
                0 => pending_key(group, id),
                1 => owned_key(group, (step % 5) as u32, id),
                _ => group_key(format!("{}", step % 20).as_bytes()),
            };
            let value = (step % 11 != 0).then(|| vec![1; step as usize % 300]);
            set(&mut RowsMut::new(&mut leaf), &key, value.as_deref());
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        let rows = Rows::check(&leaf).expect("a leaf");
        assert_eq!(rows.len(), model.len());
        assert!(
            rows.iter()
                .map(|row| (row.first, row.second))
                .eq(model.iter().map(|(key, value)| (&key[..], &value[..])))
        );
        assert!(model.iter().all(|(key, value)| find(&rows, key) == Some(&value[..])));
        assert_eq!(find(&rows, b"none"), None);
        let parts = divide(leaf.clone(), 2_048);
        assert!(parts[0].0.is_empty() && parts.len() > 100);
        for pair in parts.windows(2) {
            let (left, right) = (Rows::new(&pair[0].1), Rows::new(&pair[1].1));
            assert!(pair[0].1.len() <= 2_048);
            assert!(
                left.first(left.len() - 1) < &pair[1].0[..] && &pair[1].0[..] <= right.first(0)
            );
        }
        assert_eq!(Rows::concat(parts.iter().map(|(_, part)| Rows::new(part))), Some(leaf));
    }

    #[test]
    fn a_long_leaf_is_divided_in_one_pass() {
        let mut leaf = RowsBuilder::new(SHAPE);
        (0..300_000)
            .for_each(|ms| leaf.push(0, 0, &[&pending_key(0, StreamId::new(ms, 0)), &[0; 13]]));
        let leaf = leaf.into_leaf();
        let parts = divide(leaf.clone(), 2_048);
        assert!(parts.iter().all(|(_, part)| part.len() <= 2_048));
        assert_eq!(Rows::concat(parts.iter().map(|(_, part)| Rows::new(part))), Some(leaf));
    }

    #[test]
    fn a_run_that_grows_leaves_full_leaves_behind() {
        let mut leaves = vec![SHAPE.empty().to_vec()];
        for ms in 0..10_000 {
            let last = leaves.last_mut().expect("a leaf");
            set(&mut RowsMut::new(last), &pending_key(0, StreamId::new(ms, 0)), Some(&[0; 13]));
            if last.len() > 2_048 {
                let leaf = leaves.pop().expect("a leaf");
                leaves.extend(divide(leaf, 2_048).into_iter().map(|(_, part)| part));
            }
        }
        let bytes: usize = leaves.iter().map(Vec::len).sum();
        assert!(bytes / leaves.len() > 1_700, "{} leaves", leaves.len());
    }
}
