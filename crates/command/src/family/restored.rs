//! What RESTORE has read, before a key is made of it.

use keyspace::{Expiry, Key};
use rdb::{Error, Item, ObjectType, Source, StreamItem, read_object};
use value::Kind;

use super::restored_stream::RestoredStream;
use super::sort::Elements;
use crate::collection::{Encodings, Made, NewField};
use crate::cx::Cx;
use crate::error::CommandResult;

/// Bytes that an element takes while it is on its way, beside twice its own: where it ends, what points at it,
/// what orders it, and what its leaf takes for it.
const ELEMENT_BYTES: u64 = 96;
/// Bytes that a consumer takes so, and a pending entry with each row that it has.
const ROW_BYTES: u64 = 192;

const SAME_TWICE: Error = Error::Malformed("collection: it has an element twice");

/// Reads an object for what it takes to make a value of it. Units: bytes.
///
/// Errors: it is none; [`Error::Stopped`] if that is more than `bytes_max`.
pub(super) fn needed_bytes(
    (object_type, bytes): (ObjectType, &[u8]),
    bytes_max: u64,
) -> Result<u64, Error> {
    let mut needed = 0;
    read_object(&mut &bytes[..], object_type, &mut |item| {
        needed += item_bytes(&item);
        if needed > bytes_max { Err(Error::Stopped) } else { Ok(()) }
    })?;
    Ok(needed)
}

/// Bytes that an item takes on its way.
pub(crate) fn item_bytes(item: &Item<'_>) -> u64 {
    match item {
        Item::String(bytes) => bytes.len() as u64,
        Item::Element(text) | Item::Member(text) | Item::Scored(text, _) => {
            2 * text.len() as u64 + ELEMENT_BYTES
        }
        Item::Field { field, value, .. } => {
            2 * (field.len() + value.len()) as u64 + 2 * ELEMENT_BYTES
        }
        Item::Stream(StreamItem::Entry(entry)) => {
            2 * entry.byte_len() as u64 + ELEMENT_BYTES + 16 * entry.pairs().len() as u64
        }
        Item::Stream(StreamItem::Group { name, .. } | StreamItem::Consumer { name, .. }) => {
            6 * name.len() as u64 + 4 * ROW_BYTES
        }
        Item::Stream(_) => ROW_BYTES,
    }
}

/// A value of elements that are all different, as far as they must be.
pub(crate) enum Restored {
    String(Vec<u8>),
    List(Elements),
    Set(Elements),
    SortedSet {
        members: Elements,
        scores: Vec<f64>,
        made: Made,
    },
    /// Fields, each in front of its value; and when each expires.
    Hash {
        parts: Elements,
        expiries: Vec<u64>,
        is_packed: bool,
    },
    Stream(RestoredStream),
}

/// Items of an object that is no stream, until a value is made of them.
#[derive(Default)]
pub(crate) struct Gathered {
    texts: Elements,
    scores: Vec<f64>,
    expiries: Vec<u64>,
    kind: Option<Kind>,
}

impl Gathered {
    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        if self.expiries.is_empty() { self.texts.len() } else { self.expiries.len() }
    }

    /// Adds an item.
    pub(crate) fn add(&mut self, item: &Item<'_>) {
        match *item {
            Item::String(text) => {
                self.texts.push(text);
                self.kind = Some(Kind::of_string(text));
            }
            Item::Element(text) => self.texts.push(text),
            Item::Member(text) => {
                self.texts.push(text);
                self.kind = Some(Kind::SET);
            }
            Item::Scored(text, score) => {
                self.texts.push(text);
                self.scores.push(score);
            }
            Item::Field { field, value, expire_at_ms } => {
                self.texts.push(field);
                self.texts.push(value);
                self.expiries.push(expire_at_ms);
            }
            Item::Stream(_) => unreachable!("it is no stream"),
        }
    }

    /// Makes a value of them. Errors: two that must differ are the same.
    pub(crate) fn finish(self, object_type: ObjectType) -> Result<Restored, Error> {
        let Gathered { texts, scores, expiries, kind } = self;
        let (is_packed, kind) = (object_type.is_packed(), kind.unwrap_or(Kind::LIST));
        Ok(if !scores.is_empty() {
            let made = if is_packed { Made::Packed } else { Made::AtOnce };
            check_different(texts.iter().collect())?;
            Restored::SortedSet { members: texts, scores, made }
        } else if !expiries.is_empty() {
            check_different(texts.iter().step_by(2).collect())?;
            Restored::Hash { parts: texts, expiries, is_packed }
        } else if kind.is_set() {
            check_different(texts.iter().collect())?;
            Restored::Set(texts)
        } else if kind.is_string() {
            Restored::String(texts.bytes)
        } else {
            Restored::List(texts)
        })
    }
}

impl Restored {
    /// Reads an object, and returns what it took, as [`needed_bytes`] says.
    ///
    /// Errors: it is none; [`Error::Stopped`] if that is more than `bytes_max`.
    pub(crate) fn read(
        encodings: &dyn Encodings,
        object_type: ObjectType,
        source: &mut impl Source,
        bytes_max: u64,
    ) -> Result<(Restored, u64), Error> {
        let mut needed = 0;
        let mut count = |item: &Item<'_>| {
            needed += item_bytes(item);
            if needed > bytes_max { Err(Error::Stopped) } else { Ok(()) }
        };
        if object_type.is_stream() {
            let mut stream = RestoredStream::new(encodings.stream_leaf());
            read_object(source, object_type, &mut |item| {
                count(&item)?;
                match item {
                    Item::Stream(item) => stream.add(item),
                    _ => unreachable!("a stream has nothing else"),
                }
            })?;
            stream.finish()?;
            return Ok((Restored::Stream(stream), needed));
        }
        let mut gathered = Gathered::default();
        read_object(source, object_type, &mut |item| {
            count(&item)?;
            gathered.add(&item);
            Ok(())
        })?;
        Ok((gathered.finish(object_type)?, needed))
    }

    /// Makes a key of it, whatever that held. It does not expire.
    ///
    /// Errors: [`crate::CommandError::OUT_OF_MEMORY`]; nothing is changed then.
    pub(crate) fn store(self, cx: &mut Cx<'_, '_>, key: &Key<'_>) -> CommandResult {
        match self {
            Restored::String(bytes) => {
                cx.check_memory(bytes.len())?;
                cx.set_string_vec(key, Kind::of_string(&bytes), bytes, Expiry::Clear);
                Ok(())
            }
            Restored::List(elements) => cx.store_list(key, elements.iter()),
            Restored::Set(members) => {
                let members: Vec<&[u8]> = members.iter().collect();
                let mut kind = cx.kind_of_set(members.len() as u64);
                members.iter().for_each(|member| kind.add(member));
                cx.put_set(key, kind.kind(), &members)
            }
            Restored::SortedSet { members, scores, made } => {
                let mut scored: Vec<(f64, &[u8])> =
                    scores.into_iter().zip(members.iter()).collect();
                cx.put_sorted_set(key, &mut scored, made)?;
                drop(scored);
                drop(members);
                cx.settle_sorted_set(key);
                Ok(())
            }
            Restored::Hash { parts, expiries, is_packed } => {
                let fields = expiries.iter().enumerate().map(|(at, &expire_at_ms)| NewField {
                    field: parts.at(2 * at),
                    value: parts.at(2 * at + 1),
                    expire_at_ms,
                });
                let fields: Vec<NewField<'_>> = fields.collect();
                let kind = kind_of_hash(cx, &fields, is_packed);
                cx.store_hash(key, kind, &fields)
            }
            Restored::Stream(stream) => stream.store(cx, key),
        }
    }
}

/// Errors: two are the same.
fn check_different(mut texts: Vec<&[u8]>) -> Result<(), Error> {
    texts.sort_unstable();
    let is_twice = texts.windows(2).any(|pair| pair[0] == pair[1]);
    if is_twice { Err(SAME_TWICE) } else { Ok(()) }
}

/// How Redis would keep a hash: it looks at the fields of one that is packed no more than to count them.
fn kind_of_hash(cx: &Cx<'_, '_>, fields: &[NewField<'_>], is_packed: bool) -> Kind {
    let max = cx.encodings.hash();
    let are_short =
        |new: &NewField<'_>| new.field.len().max(new.value.len()) as u64 <= max.element_bytes;
    let fits = fields.len() as u64 <= max.entries && (is_packed || fields.iter().all(are_short));
    if fits { Kind::HASH_PACKED } else { Kind::HASH }
}
