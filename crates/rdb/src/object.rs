//! Objects: values of keys, each of a type that says how it is kept.
//!
//! | type | value | since | bytes |
//! | --- | --- | --- | --- |
//! | 0 | string | | a string |
//! | 1 | list | | number, elements |
//! | 2 | set | | number, members |
//! | 3 | sorted set | | number, each: member, score as text |
//! | 4 | hash | | number, each: field, value |
//! | 5 | sorted set | 4.0 | number, each: member, score in 8 bytes |
//! | 6, 7 | of a module | 4.0 | not read |
//! | 9 | hash | | a zipmap in a string |
//! | 10, 12, 13 | list, sorted set, hash | 2.4, 2.6 | a ziplist in a string |
//! | 11 | set | 2.4 | an intset in a string |
//! | 14 | list | 3.2 | number of nodes, each a ziplist in a string |
//! | 15, 19, 21 | stream | 5.0, 7.0, 7.2 | `stream.rs` |
//! | 16, 17, 20 | hash, sorted set, set | 7.0, 7.0, 7.2 | a listpack in a string |
//! | 18 | list | 7.0 | number of nodes, each: 1 and an element, or 2 and a listpack in a string |
//! | 22, 23 | hash with fields that expire | before 7.4 | as 24 and 25, without the first expiry |
//! | 22 | hash with fields that expire | Valkey 9.0 | number, each: field, value, expiry in 8 bytes (-1: none) |
//! | 24 | hash with fields that expire | 7.4 | first expiry in 8 bytes, number, each: expiry, field, value |
//! | 25 | hash with fields that expire | 7.4 | first expiry in 8 bytes, a listpack in a string: field, value, expiry |
//!
//! Numbers are lengths (`length.rs`). In type 24 an expiry is one, too: 0 for none, else how much later than the
//! first, and 1 more; in 22 it is the time itself. All times are Unix milliseconds.

use crate::error::Error;
use crate::source::Source;
use crate::stream::StreamItem;
use crate::{hash, list, set, sorted_set, stream, text};

/// From this version on the format is one of Valkey's own.
const VALKEY_FROM: u16 = 80;

/// Whose types the numbers are, where these differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis's.
    Redis,
    /// Valkey's, from 9.0 on.
    Valkey,
}

impl Dialect {
    /// That of a version of the format.
    pub fn of_version(version: u16) -> Dialect {
        if version >= VALKEY_FROM { Dialect::Valkey } else { Dialect::Redis }
    }
}

/// How an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table above says what each is")]
pub enum ObjectType {
    String,
    List,
    Set,
    SortedSetText,
    Hash,
    SortedSet,
    HashZipmap,
    ListZiplist,
    SetIntset,
    SortedSetZiplist,
    HashZiplist,
    ListQuicklist,
    Stream1,
    HashListpack,
    SortedSetListpack,
    ListQuicklist2,
    Stream2,
    SetListpack,
    Stream3,
    HashExpiringEarly,
    HashListpackExpiringEarly,
    HashExpiring,
    HashListpackExpiring,
    HashExpiringValkey,
}

impl ObjectType {
    /// The type of a number.
    ///
    /// Errors: [`Error::Unsupported`].
    pub fn from_byte(byte: u8, dialect: Dialect) -> Result<ObjectType, Error> {
        Ok(match byte {
            0 => ObjectType::String,
            1 => ObjectType::List,
            2 => ObjectType::Set,
            3 => ObjectType::SortedSetText,
            4 => ObjectType::Hash,
            5 => ObjectType::SortedSet,
            9 => ObjectType::HashZipmap,
            10 => ObjectType::ListZiplist,
            11 => ObjectType::SetIntset,
            12 => ObjectType::SortedSetZiplist,
            13 => ObjectType::HashZiplist,
            14 => ObjectType::ListQuicklist,
            15 => ObjectType::Stream1,
            16 => ObjectType::HashListpack,
            17 => ObjectType::SortedSetListpack,
            18 => ObjectType::ListQuicklist2,
            19 => ObjectType::Stream2,
            20 => ObjectType::SetListpack,
            21 => ObjectType::Stream3,
            22 if dialect == Dialect::Valkey => ObjectType::HashExpiringValkey,
            22 => ObjectType::HashExpiringEarly,
            23 if dialect == Dialect::Redis => ObjectType::HashListpackExpiringEarly,
            24 if dialect == Dialect::Redis => ObjectType::HashExpiring,
            25 if dialect == Dialect::Redis => ObjectType::HashListpackExpiring,
            other => return Err(Error::Unsupported("object type", other.into())),
        })
    }

    /// The number of the type, in the dialect that has it.
    pub fn byte(self) -> u8 {
        use ObjectType::*;
        match self {
            String => 0,
            List => 1,
            Set => 2,
            SortedSetText => 3,
            Hash => 4,
            SortedSet => 5,
            HashZipmap => 9,
            ListZiplist => 10,
            SetIntset => 11,
            SortedSetZiplist => 12,
            HashZiplist => 13,
            ListQuicklist => 14,
            Stream1 => 15,
            HashListpack => 16,
            SortedSetListpack => 17,
            ListQuicklist2 => 18,
            Stream2 => 19,
            SetListpack => 20,
            Stream3 => 21,
            HashExpiringEarly | HashExpiringValkey => 22,
            HashListpackExpiringEarly => 23,
            HashExpiring => 24,
            HashListpackExpiring => 25,
        }
    }

    /// Whether it is one of the forms that Redis has for what is small. It stays in that form however long its
    /// elements are, as long as they are few.
    pub fn is_packed(self) -> bool {
        use ObjectType::*;
        matches!(
            self,
            HashZiplist
                | HashListpack
                | HashListpackExpiring
                | HashListpackExpiringEarly
                | SortedSetZiplist
                | SortedSetListpack
        )
    }

    /// Whether it is a stream.
    pub fn is_stream(self) -> bool {
        matches!(self, ObjectType::Stream1 | ObjectType::Stream2 | ObjectType::Stream3)
    }
}

/// What an object has, in its order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// All of a string.
    String(&'a [u8]),
    /// An element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set. The score is a number.
    Scored(&'a [u8], f64),
    /// A field of a hash.
    Field {
        /// Its name.
        field: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires: Unix milliseconds, 0 for never.
        expire_at_ms: u64,
    },
    /// A part of a stream.
    Stream(StreamItem<'a>),
}

/// Takes what an object has. It may stop by [`Error::Stopped`].
pub(crate) trait Visit: FnMut(Item<'_>) -> Result<(), Error> {}

impl<T: FnMut(Item<'_>) -> Result<(), Error>> Visit for T {}

/// Reads an object of a type, and hands over what it has. Two members or fields may be the same: whoever takes
/// them finds out. Cost: linear in what there is; memory for one string, or entry of a stream, at a time.
///
/// Errors: it is none, told where that shows; those of `visit`.
pub fn read_object(
    source: &mut impl Source,
    object_type: ObjectType,
    visit: &mut impl FnMut(Item<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    use ObjectType::*;
    match object_type {
        String => visit(Item::String(text::read(source, &mut Vec::new())?)),
        List => list::read_plain(source, visit),
        ListZiplist => list::read_ziplist(source, visit),
        ListQuicklist | ListQuicklist2 => {
            list::read_nodes(source, object_type == ListQuicklist2, visit)
        }
        Set => set::read_plain(source, visit),
        SetIntset => set::read_intset(source, visit),
        SetListpack => set::read_listpack(source, visit),
        SortedSetText | SortedSet => {
            sorted_set::read_plain(source, object_type == SortedSet, visit)
        }
        SortedSetZiplist | SortedSetListpack => {
            sorted_set::read_packed(source, object_type == SortedSetListpack, visit)
        }
        Hash => hash::read_plain(source, hash::Expiries::None, visit),
        HashExpiringEarly => hash::read_plain(source, hash::Expiries::Absolute, visit),
        HashExpiring => hash::read_plain(source, hash::Expiries::FromFirst, visit),
        HashExpiringValkey => hash::read_plain(source, hash::Expiries::Behind, visit),
        HashZipmap => hash::read_zipmap(source, visit),
        HashZiplist => hash::read_ziplist(source, visit),
        HashListpack => hash::read_listpack(source, hash::Triples::No, visit),
        HashListpackExpiringEarly => hash::read_listpack(source, hash::Triples::Alone, visit),
        HashListpackExpiring => hash::read_listpack(source, hash::Triples::BehindFirst, visit),
        Stream1 | Stream2 | Stream3 => stream::read(source, object_type, visit),
    }
}

/// Errors: there are none.
pub(crate) fn some(count: u64) -> Result<u64, Error> {
    if count == 0 { Err(Error::Empty) } else { Ok(count) }
}
