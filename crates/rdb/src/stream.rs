//! Streams.
//!
//! ```text
//! number of nodes, each: ID of its first entry (a string of 16 bytes), a listpack in a string
//! number of entries, last ID (2 numbers)
//! from 7.0 on: first ID, greatest ID that was deleted, entries that were ever added
//! number of groups, each:
//!   name, last ID that was delivered; from 7.0 on: entries up to it (2^64 - 1: not known)
//!   number of pending entries, each: ID (16 bytes), when it was delivered (8 bytes), how often
//!   number of consumers, each:
//!     name, when it was last seen (8 bytes); from 7.2 on: when it last got something (8 bytes)
//!     number of its pending entries, each: ID (16 bytes)
//!
//! listpack: entries, deleted entries, number of fields, fields, 0; and entries:
//!   flags (1: deleted, 2: has the fields in front), milliseconds and number since the node's ID,
//!   values; or, unless it has the fields in front, number of fields, each behind its name
//!   values of the listpack that the entry takes without this one
//! ```
//!
//! IDs of 16 bytes have the high byte first, so that they have their order; times are Unix milliseconds, the low
//! byte first.

use value::StreamId;

use crate::error::Error;
use crate::length;
use crate::listpack::Listpack;
use crate::object::{Item, ObjectType, Visit};
use crate::packed::{Packed, Value};
use crate::source::{Source, array, i64_le};
use crate::text;

const MALFORMED: Error = Error::Malformed("stream");
const MALFORMED_ENTRY: Error = Error::Malformed("entry of a stream");
const MALFORMED_GROUP: Error = Error::Malformed("group of a stream");

pub(crate) const DELETED_FLAG: i64 = 1 << 0;
pub(crate) const SAME_FIELDS_FLAG: i64 = 1 << 1;
/// Values of an entry beside those of its fields: flags and the two of its ID.
pub(crate) const ENTRY_VALUES: i64 = 3;
pub(crate) const READ_UNKNOWN: u64 = u64::MAX;
pub(crate) const ID_BYTES: u64 = 16;

/// A part of a stream, in this order: entries, the head, and groups, each with its pending entries and then with
/// its consumers, each with those of them that it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamItem<'a> {
    /// An entry. IDs ascend.
    Entry(Entry<'a>),
    /// What is known of the whole stream.
    Head(Head),
    /// A group.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The last ID that was delivered.
        last: StreamId,
        /// How many entries there are up to that.
        read: EntriesRead,
    },
    /// An entry that is pending with a consumer of the group. IDs ascend.
    Pending {
        /// Its ID. There may be no such entry any more.
        id: StreamId,
        /// When it was last delivered, Unix milliseconds.
        delivered_ms: u64,
        /// How often.
        deliveries: u64,
    },
    /// A consumer of the group.
    Consumer {
        /// Its name.
        name: &'a [u8],
        /// When it was last seen, Unix milliseconds.
        seen_ms: u64,
    },
    /// A pending entry of the consumer. IDs ascend.
    Owned(StreamId),
}

/// Entries up to the last ID of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntriesRead {
    /// So many, deleted ones included.
    Known(u64),
    /// It is not known.
    Unknown,
    /// Redis before 7.0 did not count them.
    NotStored,
}

/// What is known of a stream as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Entries.
    pub length: u64,
    /// The last ID that was given, no smaller than that of any entry.
    pub last: StreamId,
    /// The first ID, the smallest one if there is no entry.
    pub first: StreamId,
    /// The greatest ID that was deleted, the smallest one if none was.
    pub max_deleted: StreamId,
    /// Entries that were ever added.
    pub added: u64,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// Its ID.
    pub id: StreamId,
    /// Whether a node begins with it.
    pub begins_node: bool,
    texts: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Entry<'a> {
    /// Its fields and values, one at least.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let (texts, ends) = (self.texts, self.ends);
        let text = move |at: usize| {
            let start = if at == 0 { 0 } else { ends[at - 1] };
            &texts[start..ends[at]]
        };
        (0..ends.len() / 2).map(move |pair| (text(2 * pair), text(2 * pair + 1)))
    }

    /// Bytes of all of them.
    pub fn byte_len(&self) -> usize {
        self.texts.len()
    }
}

pub(crate) fn read(
    source: &mut impl Source,
    object_type: ObjectType,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let mut entries = Entries::default();
    let mut scratch = Vec::new();
    for _ in 0..length::read(source)? {
        let node: [u8; ID_BYTES as usize] =
            text::read(source, &mut scratch)?.try_into().map_err(|_| MALFORMED)?;
        let listpack = Listpack::new(text::read(source, &mut scratch)?)?;
        entries.read_node(StreamId::from_bytes(node), Packed::Listpack(listpack), visit)?;
    }
    let head = read_head(source, object_type, &entries)?;
    visit(Item::Stream(StreamItem::Head(head)))?;
    for _ in 0..length::read(source)? {
        read_group(source, object_type, visit)?;
    }
    Ok(())
}

fn read_id(source: &mut impl Source) -> Result<StreamId, Error> {
    Ok(StreamId { ms: length::read(source)?, seq: length::read(source)? })
}

fn read_head(
    source: &mut impl Source,
    object_type: ObjectType,
    entries: &Entries,
) -> Result<Head, Error> {
    let length = length::read(source)?;
    let last = read_id(source)?;
    let first = entries.first.unwrap_or(StreamId::MIN);
    let mut head = Head { length, last, first, max_deleted: StreamId::MIN, added: length };
    if object_type != ObjectType::Stream1 {
        // The first ID is that of the first entry.
        read_id(source)?;
        (head.max_deleted, head.added) = (read_id(source)?, length::read(source)?);
    }
    if entries.count != length || entries.last.is_some_and(|entry| entry > last) {
        return Err(MALFORMED);
    }
    Ok(head)
}

fn read_group(
    source: &mut impl Source,
    object_type: ObjectType,
    visit: &mut impl Visit,
) -> Result<(), Error> {
    let (mut scratch, mut name) = (Vec::new(), Vec::new());
    name.extend_from_slice(text::read(source, &mut scratch)?);
    let last = read_id(source)?;
    let read = match object_type {
        ObjectType::Stream1 => EntriesRead::NotStored,
        _ => match length::read(source)? {
            READ_UNKNOWN => EntriesRead::Unknown,
            read => EntriesRead::Known(read),
        },
    };
    visit(Item::Stream(StreamItem::Group { name: &name, last, read }))?;
    let mut order = Ascending::default();
    for _ in 0..length::read(source)? {
        let id = order.next(StreamId::from_bytes(array(source)?), MALFORMED_GROUP)?;
        let (delivered_ms, deliveries) = (read_time(source)?, length::read(source)?);
        visit(Item::Stream(StreamItem::Pending { id, delivered_ms, deliveries }))?;
    }
    for _ in 0..length::read(source)? {
        name.clear();
        name.extend_from_slice(text::read(source, &mut scratch)?);
        let seen_ms = read_time(source)?;
        if object_type == ObjectType::Stream3 {
            read_time(source)?;
        }
        visit(Item::Stream(StreamItem::Consumer { name: &name, seen_ms }))?;
        let mut order = Ascending::default();
        for _ in 0..length::read(source)? {
            let id = order.next(StreamId::from_bytes(array(source)?), MALFORMED_GROUP)?;
            visit(Item::Stream(StreamItem::Owned(id)))?;
        }
    }
    Ok(())
}

/// Unix milliseconds, of which -1 stands for never.
fn read_time(source: &mut impl Source) -> Result<u64, Error> {
    Ok(u64::try_from(i64_le(source)?).unwrap_or(0))
}

#[derive(Default)]
struct Ascending(Option<StreamId>);

impl Ascending {
    fn next(&mut self, id: StreamId, error: Error) -> Result<StreamId, Error> {
        match self.0.replace(id) {
            Some(before) if before >= id => Err(error),
            _ => Ok(id),
        }
    }
}

/// Entries that are read.
#[derive(Default)]
struct Entries {
    count: u64,
    first: Option<StreamId>,
    /// The last, one that was deleted included.
    last: Option<StreamId>,
    texts: Vec<u8>,
    ends: Vec<usize>,
}

impl Entries {
    fn read_node(
        &mut self,
        node: StreamId,
        mut packed: Packed<'_>,
        visit: &mut impl Visit,
    ) -> Result<(), Error> {
        let mut number = || packed.second()?.integer().ok_or(MALFORMED_ENTRY);
        let (count, deleted, field_count) = (number()?, number()?, number()?);
        let fields = packed.clone();
        for _ in 0..field_count {
            packed.second()?;
        }
        if packed.second()? != Value::Integer(0) || count < 0 || deleted < 0 || field_count < 0 {
            return Err(MALFORMED_ENTRY);
        }
        let (mut left, mut left_deleted, mut begins_node) = (count, deleted, true);
        while let Some(flags) = packed.next()? {
            let flags = flags.integer().ok_or(MALFORMED_ENTRY)?;
            let shared = (flags & SAME_FIELDS_FLAG != 0).then(|| (fields.clone(), field_count));
            let id = self.read_entry(node, &mut packed, shared)?;
            let is_deleted = flags & DELETED_FLAG != 0;
            if is_deleted {
                left_deleted -= 1;
                continue;
            }
            left -= 1;
            self.count += 1;
            self.first.get_or_insert(id);
            let entry = Entry { id, begins_node, texts: &self.texts, ends: &self.ends };
            begins_node = false;
            visit(Item::Stream(StreamItem::Entry(entry)))?;
        }
        if left == 0 && left_deleted == 0 { Ok(()) } else { Err(MALFORMED_ENTRY) }
    }

    /// Reads an entry behind its flags. `shared` are the fields in front, if it has these.
    fn read_entry(
        &mut self,
        node: StreamId,
        packed: &mut Packed<'_>,
        shared: Option<(Packed<'_>, i64)>,
    ) -> Result<StreamId, Error> {
        let number = |packed: &mut Packed<'_>| packed.second()?.integer().ok_or(MALFORMED_ENTRY);
        let (ms, seq) = (number(packed)?, number(packed)?);
        let id = StreamId {
            ms: node.ms.wrapping_add_signed(ms),
            seq: node.seq.wrapping_add_signed(seq),
        };
        if id <= self.last.replace(id).unwrap_or(StreamId::MIN) {
            return Err(MALFORMED_ENTRY);
        }
        self.texts.clear();
        self.ends.clear();
        let mut values = ENTRY_VALUES;
        let (mut fields, pairs) = match shared {
            Some((fields, count)) => (Some(fields), count),
            None => {
                values += 1;
                (None, number(packed)?)
            }
        };
        if pairs < 1 {
            return Err(MALFORMED_ENTRY);
        }
        for _ in 0..pairs {
            match &mut fields {
                Some(fields) => self.add(fields.second()?),
                None => {
                    values += 1;
                    self.add(packed.second()?);
                }
            }
            values += 1;
            self.add(packed.second()?);
        }
        if number(packed)? == values { Ok(id) } else { Err(MALFORMED_ENTRY) }
    }

    fn add(&mut self, value: Value<'_>) {
        self.texts.extend_from_slice(value.text(&mut itoa::Buffer::new()));
        self.ends.push(self.texts.len());
    }
}
