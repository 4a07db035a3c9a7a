//! Type and encoding of a value in the five bits that a key's record has for them.

use crate::string::{Encoding, encoding_of};

/// Bits of a kind.
pub const KIND_BITS: u32 = 5;

const TYPE_STRING: u8 = 0;
const TYPE_LIST: u8 = 1;
const TYPE_SET: u8 = 2;
const TYPE_SORTED_SET: u8 = 3;
const TYPE_HASH: u8 = 4;
const TYPE_STREAM: u8 = 6;
const ENCODING_SHIFT: u32 = 3;
const TYPE_MASK: u8 = (1 << ENCODING_SHIFT) - 1;

const PACKED: u8 = 0;
const HASHED: u8 = 1;
/// Of no type's encodings: the value is a root, or a branch, of a large collection.
const TREE: u8 = 3;

/// What a value is and how `OBJECT ENCODING` names its form.
///
/// Format: bits 0-2 the type (0 string, 1 list, 2 set, 3 sorted set, 4 hash, 6 stream), bits 3-4 the encoding
/// within the type (string: 0 int, 1 embstr, 2 raw; list, stream: 0; set: 0 intset, 1 hashtable; hash:
/// 0 listpack, 1 hashtable; sorted set: 0 listpack, 1 skiplist;
/// collections: 3 a root, which tells the encoding itself, or a branch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(u8);

impl Kind {
    /// A list.
    pub const LIST: Kind = Kind(TYPE_LIST);
    /// A set that has had integers alone, and few.
    pub const SET_INTEGERS: Kind = Kind(TYPE_SET | PACKED << ENCODING_SHIFT);
    /// A set that has had other members, or many.
    pub const SET: Kind = Kind(TYPE_SET | HASHED << ENCODING_SHIFT);
    /// A sorted set whose members are few and short.
    pub const SORTED_SET_PACKED: Kind = Kind(TYPE_SORTED_SET | PACKED << ENCODING_SHIFT);
    /// A sorted set that has had many members, or long ones.
    pub const SORTED_SET: Kind = Kind(TYPE_SORTED_SET | HASHED << ENCODING_SHIFT);
    /// A hash whose fields are few and short.
    pub const HASH_PACKED: Kind = Kind(TYPE_HASH | PACKED << ENCODING_SHIFT);
    /// A hash that has had many fields, or long ones.
    pub const HASH: Kind = Kind(TYPE_HASH | HASHED << ENCODING_SHIFT);

    /// A stream in one leaf.
    pub const STREAM: Kind = Kind(TYPE_STREAM);

    /// Every kind of stream, a bit for each kind.
    pub const STREAMS: u32 = 0x0101_0101 << TYPE_STREAM;

    /// A root or branch of a hash in many leaves.
    pub const HASH_TREE: Kind = Kind(TYPE_HASH | TREE << ENCODING_SHIFT);

    /// A string with an encoding of its own, such as the raw form that APPEND leaves.
    #[inline]
    pub const fn string(encoding: Encoding) -> Kind {
        Kind(TYPE_STRING | (encoding as u8) << ENCODING_SHIFT)
    }

    /// A string as SET stores it.
    #[inline]
    pub fn of_string(bytes: &[u8]) -> Kind {
        Kind::string(encoding_of(bytes))
    }

    /// The bits as a record keeps them.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The kind that `bits` stand for.
    #[inline]
    pub const fn from_bits(bits: u8) -> Kind {
        Kind(bits)
    }

    /// The kind of a value in one piece that `bits` stand for. None: no value has it.
    pub const fn of_whole(bits: u8) -> Option<Kind> {
        let encodings = match bits & TYPE_MASK {
            TYPE_STRING => 3,
            TYPE_SET | TYPE_SORTED_SET | TYPE_HASH => 2,
            TYPE_LIST | TYPE_STREAM => 1,
            _ => 0,
        };
        if bits >> ENCODING_SHIFT < encodings { Some(Kind(bits)) } else { None }
    }

    /// Whether the value is a string.
    #[inline]
    pub const fn is_string(self) -> bool {
        self.0 & TYPE_MASK == TYPE_STRING
    }

    /// Whether the value is a list.
    #[inline]
    pub const fn is_list(self) -> bool {
        self.0 & TYPE_MASK == TYPE_LIST
    }

    /// Whether the value is a set.
    #[inline]
    pub const fn is_set(self) -> bool {
        self.0 & TYPE_MASK == TYPE_SET
    }

    /// Whether the value is a hash.
    #[inline]
    pub const fn is_hash(self) -> bool {
        self.0 & TYPE_MASK == TYPE_HASH
    }

    /// Whether the value is a sorted set.
    #[inline]
    pub const fn is_sorted_set(self) -> bool {
        self.0 & TYPE_MASK == TYPE_SORTED_SET
    }

    /// Whether the value is a stream.
    #[inline]
    pub const fn is_stream(self) -> bool {
        self.0 & TYPE_MASK == TYPE_STREAM
    }

    /// Whether the value is a root or branch of a collection in many leaves.
    #[inline]
    pub const fn is_tree(self) -> bool {
        self.0 >> ENCODING_SHIFT == TREE
    }

    /// The encoding within the type.
    pub const fn encoding(self) -> u8 {
        self.0 >> ENCODING_SHIFT
    }

    /// A root or branch of the same type.
    pub const fn as_tree(self) -> Kind {
        self.with_encoding(TREE)
    }

    /// The same type in another encoding.
    pub const fn with_encoding(self, encoding: u8) -> Kind {
        assert!(encoding <= TREE);
        Kind((self.0 & TYPE_MASK) | (encoding << ENCODING_SHIFT))
    }

    /// The number that Redis gives the type.
    pub const fn type_number(self) -> u8 {
        self.0 & TYPE_MASK
    }

    /// As `TYPE` names it.
    pub const fn type_name(self) -> &'static str {
        match self.0 & TYPE_MASK {
            TYPE_STRING => "string",
            TYPE_LIST => "list",
            TYPE_SET => "set",
            TYPE_SORTED_SET => "zset",
            TYPE_HASH => "hash",
            TYPE_STREAM => "stream",
            _ => "unknown",
        }
    }

    /// As `OBJECT ENCODING` names it.
    pub const fn encoding_name(self) -> &'static str {
        match (self.0 & TYPE_MASK, self.0 >> ENCODING_SHIFT) {
            (TYPE_LIST, _) => "quicklist",
            (TYPE_STREAM, _) => "stream",
            (TYPE_SET, PACKED) => "intset",
            (TYPE_HASH | TYPE_SORTED_SET, PACKED) => "listpack",
            (TYPE_SORTED_SET, _) => "skiplist",
            (TYPE_SET | TYPE_HASH, _) => "hashtable",
            (_, 0) => "int",
            (_, 1) => "embstr",
            _ => "raw",
        }
    }
}
