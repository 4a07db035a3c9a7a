//! The leaf of streams: entries in the order of their IDs, each as what tells it from its neighbour.
//!
//! ```text
//! offset 0  what tells it from other leaves, 1 byte
//!        1  entries, 4 bytes
//!        5  entries that it has ever had, 4 bytes
//!        9  ID of the first that it has ever had, 16 bytes: milliseconds, sequence number
//!       25  ID of the last that it has ever had, 16 bytes
//!       41  fields that entries share: their number, and each with its length in front
//!        .  entries
//! entry:    milliseconds since the one before << 2 | has an ID of its own << 1 | has fields of its own
//!        .  milliseconds since the one before, sequence number        if it has an ID of its own
//!        .  number of fields                                          if it has fields of its own
//!        .  values, each with its length in front, behind its field if the entry has its own
//! ```
//!
//! Numbers without a size are of 7 bits a byte, the lowest first. Without an ID of its own, an entry of the
//! same millisecond has the next sequence number, and one of a later millisecond the number 0. So an entry of
//! one value of 16 bytes, with the leaf's fields, is 18 bytes.
//!
//! An entry that is removed leaves nothing behind, but for the last: what is added next builds on its ID. It
//! becomes an entry that has no fields, which is not shown, and goes when an entry of a smaller ID follows (XSETID
//! may have taken the stream's last ID back).

use crate::leaf::rows::Damaged;
use crate::stream_id::StreamId;

/// The first byte: no shape of rows.
const MARK: u8 = 0x40;
const COUNT_AT: usize = 1;
const EVER_AT: usize = 5;
const FIRST_AT: usize = 9;
const LAST_AT: usize = 25;
const FIELDS_AT: usize = 41;

const OWN_FIELDS_BIT: u64 = 1 << 0;
const OWN_ID_BIT: u64 = 1 << 1;
const MS_SHIFT: u32 = 2;
const MS_MAX: u64 = u64::MAX >> MS_SHIFT;
/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 10;

/// The leaf of a large stream that has no entries, the only one of its tree. What is added takes its place.
pub const EMPTY: [u8; FIELDS_AT + 1] = {
    let mut leaf = [0; FIELDS_AT + 1];
    leaf[0] = MARK;
    leaf
};

/// Whether a leaf is one of entries, and not of rows. Panics: there are no bytes.
#[inline]
pub fn is_entries(leaf: &[u8]) -> bool {
    leaf[0] == MARK
}

/// Fields and values of an entry to be added.
pub trait Pairs<'a>: ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone {}

impl<'a, T: ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone> Pairs<'a> for T {}

/// A leaf to be read.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    /// A leaf that this process has made. Panics, there or later: it is no leaf.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        debug_assert!(Entries::check(bytes).is_ok(), "{}", bytes.escape_ascii());
        Entries { bytes }
    }

    /// A leaf from elsewhere. Cost: linear in its entries.
    ///
    /// Errors: it is none.
    pub fn check(bytes: &'a [u8]) -> Result<Entries<'a>, Damaged> {
        if bytes.len() < FIELDS_AT || bytes[0] != MARK {
            return Err(Damaged);
        }
        let entries = Entries { bytes };
        let mut cursor = Cursor { bytes, at: FIELDS_AT };
        let shared = cursor.check_number()?;
        (0..shared).try_for_each(|_| cursor.check_part())?;
        let (mut id, mut count, mut ever) = (entries.before_first(), 0u64, 0u64);
        while cursor.at < bytes.len() {
            let next = cursor.check_id(id)?;
            if ever > 0 && next.id <= id {
                return Err(Damaged);
            }
            id = next.id;
            let own = if next.own_fields { Some(cursor.check_number()?) } else { None };
            if own.is_none() && shared == 0 {
                // One that was removed says so by a number of its own.
                return Err(Damaged);
            }
            let parts = own.map_or(Some(shared), |own| own.checked_mul(2)).ok_or(Damaged)?;
            (0..parts).try_for_each(|_| cursor.check_part())?;
            ever += 1;
            count += u64::from(parts > 0);
        }
        let is_right = count == u64::from(entries.len())
            && ever <= u64::from(entries.ever())
            && id == entries.last_ever()
            && entries.first_ever() <= id
            && ever > 0;
        if is_right || bytes == EMPTY { Ok(entries) } else { Err(Damaged) }
    }

    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("invariant: 4 bytes"))
    }

    #[inline]
    fn id_at(&self, at: usize) -> StreamId {
        let half = |at: usize| {
            u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("invariant: 8 bytes"))
        };
        StreamId { ms: half(at), seq: half(at + 8) }
    }

    /// How many entries. None may be left.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a leaf without entries is about to go")]
    pub fn len(&self) -> u32 {
        self.u32_at(COUNT_AT)
    }

    /// How many entries it has ever had.
    #[inline]
    pub fn ever(&self) -> u32 {
        self.u32_at(EVER_AT)
    }

    /// The ID of the first that it has ever had.
    #[inline]
    pub fn first_ever(&self) -> StreamId {
        self.id_at(FIRST_AT)
    }

    /// The ID of the last that it has ever had.
    #[inline]
    pub fn last_ever(&self) -> StreamId {
        self.id_at(LAST_AT)
    }

    /// Bytes of the leaf.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// What the first entry builds on.
    #[inline]
    fn before_first(&self) -> StreamId {
        before(self.first_ever())
    }

    fn shared(&self) -> Shared {
        let mut cursor = Cursor { bytes: self.bytes, at: FIELDS_AT };
        let count = cursor.number() as usize;
        let start = cursor.at;
        (0..count).for_each(|_| cursor.skip_part());
        Shared { count, start, end: cursor.at }
    }

    /// All entries.
    #[inline]
    pub fn iter(&self) -> Iter<'a> {
        let shared = self.shared();
        let cursor = Cursor { bytes: self.bytes, at: shared.end };
        Iter { shared, cursor, id: self.before_first() }
    }

    /// The entries from an ID on. Cost: linear in those before it.
    pub fn iter_from(&self, from: StreamId) -> Iter<'a> {
        let mut iter = self.iter();
        loop {
            let here = iter.clone();
            match iter.next() {
                Some(entry) if entry.id < from => {}
                _ => return here,
            }
        }
    }

    /// The entry of an ID.
    pub fn find(&self, id: StreamId) -> Option<Entry<'a>> {
        if id < self.first_ever() || id > self.last_ever() {
            return None;
        }
        self.iter_from(id).next().filter(|entry| entry.id == id)
    }

    /// The ID of the first entry. None: none is left.
    pub fn first(&self) -> Option<StreamId> {
        self.iter().next().map(|entry| entry.id)
    }

    /// The ID of the last entry. None: none is left. Cost: linear if the last was removed.
    pub fn last(&self) -> Option<StreamId> {
        let ends_with_removed = self.bytes.ends_with(&[0]);
        // A value of length 0 ends so, too.
        if ends_with_removed {
            self.iter().last().map(|entry| entry.id)
        } else {
            Some(self.last_ever())
        }
    }
}

/// The ID that one builds on if it is to have none of its own.
fn before(id: StreamId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq.wrapping_sub(1) }
}

/// The fields that entries share.
#[derive(Clone, Copy, Debug)]
struct Shared {
    count: usize,
    start: usize,
    end: usize,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its ID.
    pub id: StreamId,
    /// How many pairs of a field and a value.
    pub pairs: usize,
    bytes: &'a [u8],
    /// Where shared fields begin. None: it has its own.
    fields: Option<usize>,
    values: usize,
}

impl<'a> Entry<'a> {
    /// Its fields with their values, in the order in which they were given.
    pub fn iter(&self) -> PairsIter<'a> {
        let cursor = |at| Cursor { bytes: self.bytes, at };
        let (fields, values) = (self.fields.map(cursor), cursor(self.values));
        PairsIter { left: self.pairs, fields, values }
    }
}

/// The fields of an entry with their values.
#[derive(Clone, Debug)]
pub struct PairsIter<'a> {
    left: usize,
    fields: Option<Cursor<'a>>,
    values: Cursor<'a>,
}

impl<'a> Iterator for PairsIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = match &mut self.fields {
            Some(fields) => fields.part(),
            None => self.values.part(),
        };
        Some((field, self.values.part()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for PairsIter<'_> {}

/// Entries in their order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    shared: Shared,
    cursor: Cursor<'a>,
    id: StreamId,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let step = self.step()?;
            if let Some(entry) = step.entry {
                return Some(entry);
            }
        }
    }
}

/// What stands at a place among the entries.
struct Step<'a> {
    start: usize,
    end: usize,
    /// None: a removed entry.
    entry: Option<Entry<'a>>,
}

impl<'a> Iter<'a> {
    #[inline]
    fn step(&mut self) -> Option<Step<'a>> {
        let start = self.cursor.at;
        if start >= self.cursor.bytes.len() {
            return None;
        }
        let next = self.cursor.id(self.id);
        self.id = next.id;
        let (pairs, fields) = match next.own_fields {
            true => (self.cursor.number() as usize, None),
            false => (self.shared.count, Some(self.shared.start)),
        };
        let values = self.cursor.at;
        let parts = if fields.is_some() { pairs } else { 2 * pairs };
        (0..parts).for_each(|_| self.cursor.skip_part());
        let entry = Entry { id: next.id, pairs, bytes: self.cursor.bytes, fields, values };
        Some(Step { start, end: self.cursor.at, entry: (pairs > 0).then_some(entry) })
    }
}

/// Where bytes are read.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct NextId {
    id: StreamId,
    own_fields: bool,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn number(&mut self) -> u64 {
        let byte = self.bytes[self.at];
        self.at += 1;
        if byte < 0x80 { u64::from(byte) } else { self.rest_of_number(byte) }
    }

    fn rest_of_number(&mut self, first: u8) -> u64 {
        let (mut number, mut shift) = (u64::from(first & 0x7f), 7);
        loop {
            let byte = self.bytes[self.at];
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    #[inline]
    fn part(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        let start = self.at;
        self.at += len;
        &self.bytes[start..self.at]
    }

    #[inline]
    fn skip_part(&mut self) {
        let len = self.number() as usize;
        self.at += len;
    }

    /// The ID of the entry here, behind one of `before`.
    #[inline]
    fn id(&mut self, before: StreamId) -> NextId {
        let head = self.number();
        let own_fields = head & OWN_FIELDS_BIT != 0;
        let id = if head & OWN_ID_BIT != 0 {
            let ms = before.ms.wrapping_add(self.number());
            StreamId { ms, seq: self.number() }
        } else {
            let ms = head >> MS_SHIFT;
            let seq = if ms == 0 { before.seq.wrapping_add(1) } else { 0 };
            StreamId { ms: before.ms.wrapping_add(ms), seq }
        };
        NextId { id, own_fields }
    }

    fn check_number(&mut self) -> Result<u64, Damaged> {
        let rest = self.bytes.get(self.at..).ok_or(Damaged)?;
        let len = rest.iter().take(NUMBER_BYTES_MAX).position(|byte| byte & 0x80 == 0);
        let len = len.ok_or(Damaged)? + 1;
        if len == NUMBER_BYTES_MAX && rest[len - 1] > 1 {
            return Err(Damaged);
        }
        Ok(self.number())
    }

    fn check_part(&mut self) -> Result<(), Damaged> {
        let len = usize::try_from(self.check_number()?).map_err(|_| Damaged)?;
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        self.at = end.ok_or(Damaged)?;
        Ok(())
    }

    fn check_id(&mut self, before: StreamId) -> Result<NextId, Damaged> {
        let start = self.at;
        if self.check_number()? & OWN_ID_BIT != 0 {
            self.check_number()?;
            self.check_number()?;
        }
        let end = self.at;
        self.at = start;
        let next = self.id(before);
        assert!(self.at == end, "both read the same");
        Ok(next)
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Bytes that a number takes.
fn number_bytes(number: u64) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}

fn put_part(bytes: &mut Vec<u8>, part: &[u8]) {
    put_number(bytes, part.len() as u64);
    bytes.extend_from_slice(part);
}

/// Bytes that a part takes.
fn part_bytes(part: &[u8]) -> usize {
    number_bytes(part.len() as u64) + part.len()
}

/// Whether an ID behind one of `before` is told by the milliseconds in between.
fn follows(before: StreamId, id: StreamId) -> bool {
    match id.ms - before.ms {
        0 => id.seq == before.seq.wrapping_add(1),
        ms => id.seq == 0 && ms <= MS_MAX,
    }
}

/// Bytes that an ID takes behind one of `before`.
fn id_bytes(before: StreamId, id: StreamId) -> usize {
    let ms = id.ms - before.ms;
    match follows(before, id) {
        true => number_bytes(ms << MS_SHIFT),
        false => 1 + number_bytes(ms) + number_bytes(id.seq),
    }
}

/// Writes an ID behind one of `before`.
fn put_id(bytes: &mut Vec<u8>, before: StreamId, id: StreamId, own_fields: bool) {
    let own_fields = if own_fields { OWN_FIELDS_BIT } else { 0 };
    let ms = id.ms - before.ms;
    if follows(before, id) {
        return put_number(bytes, ms << MS_SHIFT | own_fields);
    }
    put_number(bytes, OWN_ID_BIT | own_fields);
    put_number(bytes, ms);
    put_number(bytes, id.seq);
}

/// A leaf of one entry, whose fields those to come may share.
pub fn leaf_of<'p>(id: StreamId, pairs: impl Pairs<'p>) -> Vec<u8> {
    let content: usize = pairs.clone().map(|(field, value)| field.len() + value.len() + 4).sum();
    let mut leaf = Vec::with_capacity(FIELDS_AT + NUMBER_BYTES_MAX + content);
    leaf.resize(FIELDS_AT, 0);
    leaf[0] = MARK;
    put_number(&mut leaf, pairs.len() as u64);
    pairs.clone().for_each(|(field, _)| put_part(&mut leaf, field));
    let mut entries = EntriesMut { leaf: &mut leaf };
    entries.set_id(FIRST_AT, id);
    entries.set_id(LAST_AT, before(id));
    entries.push(id, pairs);
    leaf
}

/// A leaf to be changed.
pub struct EntriesMut<'a> {
    leaf: &'a mut Vec<u8>,
}

impl<'a> EntriesMut<'a> {
    /// A leaf that this process has made. Panics, there or later: it is no leaf.
    pub fn new(leaf: &'a mut Vec<u8>) -> EntriesMut<'a> {
        debug_assert!(Entries::check(leaf).is_ok(), "{}", leaf.escape_ascii());
        EntriesMut { leaf }
    }

    /// The leaf to be read.
    pub fn entries(&self) -> Entries<'_> {
        Entries { bytes: self.leaf }
    }

    fn set_u32(&mut self, at: usize, number: u32) {
        self.leaf[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }

    fn set_id(&mut self, at: usize, id: StreamId) {
        self.leaf[at..at + 8].copy_from_slice(&id.ms.to_le_bytes());
        self.leaf[at + 8..at + 16].copy_from_slice(&id.seq.to_le_bytes());
    }

    /// Adds an entry behind all others. Panics: there is one of that ID or a later one, the ID is below the
    /// first that has ever been there, or there are no pairs. Cost: a pass over the leaf if an entry of that ID or
    /// a later one was removed.
    pub fn push<'p>(&mut self, id: StreamId, pairs: impl Pairs<'p>) {
        if self.entries().ever() > 0 && self.entries().last_ever() >= id {
            self.forget_removed_end();
        }
        let entries = self.entries();
        let (before, count, ever) = (entries.last_ever(), entries.len(), entries.ever());
        assert!(if count > 0 { before < id } else { entries.first_ever() <= id });
        assert!(pairs.len() > 0);
        let shares = self.shares_fields(pairs.clone());
        let content: usize = pairs
            .clone()
            .map(|(field, value)| part_bytes(value) + if shares { 0 } else { part_bytes(field) })
            .sum();
        let count_bytes = if shares { 0 } else { number_bytes(pairs.len() as u64) };
        // No more than the allocation that the leaf will have, which most often is the one that it has.
        self.leaf.reserve_exact(id_bytes(before, id) + count_bytes + content);
        put_id(self.leaf, before, id, !shares);
        if !shares {
            put_number(self.leaf, pairs.len() as u64);
        }
        for (field, value) in pairs {
            if !shares {
                put_part(self.leaf, field);
            }
            put_part(self.leaf, value);
        }
        self.set_u32(COUNT_AT, count + 1);
        self.set_u32(EVER_AT, ever + 1);
        self.set_id(LAST_AT, id);
    }

    /// Takes away what removed entries have left behind the last that there is: the next builds on that one.
    fn forget_removed_end(&mut self) {
        let mut iter = self.entries().iter();
        let (mut end, mut last) = (iter.cursor.at, iter.id);
        while let Some(step) = iter.step() {
            if step.entry.is_some() {
                (end, last) = (step.end, iter.id);
            }
        }
        self.leaf.truncate(end);
        self.set_id(LAST_AT, last);
    }

    fn shares_fields<'p>(&self, pairs: impl Pairs<'p>) -> bool {
        let mut cursor = Cursor { bytes: self.leaf, at: FIELDS_AT };
        let shared = cursor.number() as usize;
        shared == pairs.len() && { pairs }.all(|(field, _)| cursor.part() == field)
    }

    /// Removes an entry. Returns whether it was there. Cost: linear in those before it, and a move of those
    /// behind.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let mut iter = self.entries().iter();
        let mut before = iter.id;
        let removed = loop {
            match iter.step() {
                Some(step) if step.entry.is_some_and(|entry| entry.id == id) => break step,
                Some(_) if iter.id < id => before = iter.id,
                _ => return false,
            }
        };
        let (start, end) = (removed.start, removed.end);
        self.close_gap(before, start..end);
        let count = self.entries().len();
        self.set_u32(COUNT_AT, count - 1);
        true
    }

    /// Removes the first entries. Panics: there are fewer. Cost: linear in those, and a move of those behind.
    pub fn remove_front(&mut self, count: u32) {
        let left = self.entries().len().checked_sub(count).expect("entries that there are");
        let mut iter = self.entries().iter();
        let (before, start) = (iter.id, iter.cursor.at);
        let mut removed = 0;
        while removed < count {
            let step = iter.step().expect("invariant: there are so many");
            removed += u32::from(step.entry.is_some());
        }
        let end = iter.cursor.at;
        if end > start {
            self.close_gap(before, start..end);
            self.set_u32(COUNT_AT, left);
        }
    }

    /// Takes bytes of whole entries away, the first of which stands behind one of the ID `before`: what
    /// comes next is behind that, then.
    fn close_gap(&mut self, before: StreamId, gap: std::ops::Range<usize>) {
        let mut next = Vec::new();
        let mut rest = gap.end;
        if rest < self.leaf.len() {
            // Its ID was relative to the last in the gap: that of the leaf is known from the front alone.
            let mut iter = self.entries().iter();
            while iter.cursor.at < rest {
                iter.step();
            }
            let mut cursor = iter.cursor;
            let id = cursor.id(iter.id);
            rest = cursor.at;
            put_id(&mut next, before, id.id, id.own_fields);
        } else {
            put_id(&mut next, before, self.entries().last_ever(), true);
            put_number(&mut next, 0);
        }
        self.leaf.splice(gap.start..rest, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<StreamId, Vec<(Vec<u8>, Vec<u8>)>>;

    fn pairs_of(pairs: &[(Vec<u8>, Vec<u8>)]) -> impl Pairs<'_> {
        pairs.iter().map(|(field, value)| (&field[..], &value[..]))
    }

    fn assert_same(leaf: &[u8], model: &Model) {
        let entries = Entries::check(leaf).expect("a leaf");
        assert_eq!(entries.len() as usize, model.len());
        let mut expected = model.iter();
        for entry in entries.iter() {
            let (id, pairs) = expected.next().expect("no more than in the model");
            assert_eq!(entry.id, *id);
            assert_eq!(entry.pairs, pairs.len());
            assert!(entry.iter().eq(pairs_of(pairs)));
        }
        assert!(expected.next().is_none());
        assert_eq!(entries.first(), model.keys().next().copied());
        assert_eq!(entries.last(), model.keys().next_back().copied());
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % bound
        }

        fn pairs(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
            let count = if self.below(4) == 0 { 1 + self.below(3) } else { 2 };
            let pair = |at: u64, random: &mut Random| {
                let field = if random.below(5) == 0 { random.below(9) } else { at };
                let len = [0, 1, 16, 16, 16, 127, 128, 300][random.below(8) as usize];
                (format!("field{field}").into_bytes(), vec![b'v'; len])
            };
            (0..count).map(|at| pair(at, self)).collect()
        }

        fn after(&mut self, id: StreamId) -> StreamId {
            match self.below(6) {
                0 => id.next().expect("not the greatest"),
                1 => StreamId::new(id.ms + 1, 0),
                2 => StreamId::new(id.ms + self.below(100_000) + 1, self.below(3)),
                3 => match id.seq.checked_add(2 + self.below(1 << 20)) {
                    Some(seq) => StreamId::new(id.ms, seq),
                    None => StreamId::new(id.ms + 1, 7),
                },
                4 => StreamId::new(id.ms + self.below(40) + 1, 0),
                _ => StreamId::new(id.ms + (1 << self.below(50)), u64::MAX - 5 + self.below(5)),
            }
        }
    }

    /// Its entry would have no fields, as one that was removed, and not say so.
    #[test]
    fn an_entry_without_fields_is_damage() {
        let mut leaf = [0; 43];
        (leaf[0], leaf[7], leaf[25], leaf[42]) = (64, 37, 0, 4);
        assert_eq!(Entries::check(&leaf).err(), Some(Damaged));
    }

    #[test]
    fn a_leaf_holds_what_a_map_holds() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut id = StreamId::new(random.below(3), random.below(3));
            let (mut model, pairs) = (Model::new(), random.pairs());
            let mut leaf = leaf_of(id, pairs_of(&pairs));
            model.insert(id, pairs);
            let (first, mut last) = (id, id);
            for _ in 0..120 {
                match random.below(4) {
                    0..2 => {
                        // Behind all that were ever there, or behind those that are left.
                        let left = model.keys().next_back().copied().unwrap_or(first);
                        let before = if random.below(3) == 0 { left } else { last };
                        id = random.after(before);
                        let pairs = random.pairs();
                        leaf.shrink_to_fit();
                        let old_len = leaf.len();
                        EntriesMut::new(&mut leaf).push(id, pairs_of(&pairs));
                        assert_eq!(leaf.capacity(), leaf.len().max(old_len), "no room behind it");
                        model.insert(id, pairs);
                        last = id;
                    }
                    2 => {
                        let at = random.below(model.len() as u64 + 1) as usize;
                        let id = model.keys().nth(at).copied().unwrap_or(random.after(first));
                        let removed = EntriesMut::new(&mut leaf).remove(id);
                        assert_eq!(removed, model.remove(&id).is_some());
                    }
                    _ => {
                        let count = random.below(3).min(model.len() as u64);
                        EntriesMut::new(&mut leaf).remove_front(count as u32);
                        (0..count).for_each(|_| drop(model.pop_first()));
                    }
                }
                assert_same(&leaf, &model);
                let entries = Entries::new(&leaf);
                assert_eq!((entries.first_ever(), entries.last_ever()), (first, last));
                let from = random.after(first);
                let found: Vec<StreamId> = entries.iter_from(from).map(|entry| entry.id).collect();
                assert!(found.iter().eq(model.range(from..).map(|(id, _)| id)));
                assert_eq!(entries.find(from).is_some(), model.contains_key(&from));
            }
        }
    }

    #[test]
    fn the_edges_of_ids_are_kept() {
        let value = [(&b"f"[..], &b"v"[..])];
        let ids = [
            StreamId::new(0, 1),
            StreamId::new(0, u64::MAX),
            StreamId::new(1, 0),
            StreamId::new(1 << 62, 0),
            StreamId::new(u64::MAX, 0),
            StreamId::MAX,
        ];
        let mut leaf = leaf_of(ids[0], value.into_iter());
        ids[1..].iter().for_each(|id| EntriesMut::new(&mut leaf).push(*id, value.into_iter()));
        let entries = Entries::check(&leaf).expect("a leaf");
        assert!(entries.iter().map(|entry| entry.id).eq(ids));
        assert!(EntriesMut::new(&mut leaf).remove(StreamId::MAX));
        assert_eq!(Entries::new(&leaf).last(), Some(ids[4]));
    }

    #[test]
    fn an_entry_of_sixteen_bytes_takes_eighteen() {
        let value = [(&b"field"[..], &b"0123456789abcdef"[..])];
        let mut leaf = leaf_of(StreamId::new(1_700_000_000_000, 0), value.into_iter());
        let before = leaf.len();
        for ms in 1..100 {
            EntriesMut::new(&mut leaf)
                .push(StreamId::new(1_700_000_000_000 + ms, 0), value.into_iter());
        }
        assert_eq!(leaf.len() - before, 99 * 18);
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_without_panic() {
        let mut random = Random(3);
        let mut id = StreamId::new(5, 5);
        let mut leaf = leaf_of(id, pairs_of(&random.pairs()));
        for _ in 0..12 {
            id = random.after(id);
            EntriesMut::new(&mut leaf).push(id, pairs_of(&random.pairs()));
        }
        EntriesMut::new(&mut leaf).remove(id);
        assert!(Entries::check(&leaf).is_ok());
        for len in 0..leaf.len() {
            assert!(Entries::check(&leaf[..len]).is_err(), "{len} bytes");
        }
        for at in 0..leaf.len() {
            for bit in 0..8 {
                let mut damaged = leaf.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(entries) = Entries::check(&damaged) {
                    let read: usize = entries.iter().map(|entry| entry.iter().count()).sum();
                    assert!(read > 0);
                    let _ = (entries.last(), entries.find(id));
                }
            }
        }
        assert!(Entries::check(&[]).is_err());
    }
}
