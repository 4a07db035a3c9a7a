//! Digests by which two data sets can be told apart, as DEBUG DIGEST defines them: equal keys with
//! equal values give equal digests, in whatever order they are kept.

use std::fmt;
use std::ops::BitXorAssign;

use resp::DoubleText;
use sha1::{Digest as _, Sha1};

use crate::kind::Kind;
use crate::leaf::elements::Elements;
use crate::leaf::entries::{Entries, is_entries};
use crate::leaf::fields::Fields;
use crate::leaf::members::Members;
use crate::leaf::scored::Scored;
use crate::leaf::stream::Packed;

const DIGEST_BYTES: usize = 20;
/// What stands for an expiry, whatever its time.
const EXPIRES: &[u8] = b"!!expire!!";

/// A digest under way or done. It begins with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// Adds one of several things that have no order.
    pub fn add(&mut self, bytes: &[u8]) {
        *self ^= Digest(Sha1::digest(bytes).into());
    }

    /// Adds the next of several things that have an order.
    pub fn chain(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    /// The same of something that came in pieces.
    pub fn chain_long(&mut self, text: LongText) {
        *self ^= Digest(text.0.finalize().into());
        self.0 = Sha1::digest(self.0).into();
    }

    /// Adds a value of a kind, and whether its key expires.
    pub fn chain_value(&mut self, kind: Kind, value: &[u8], expires: bool) {
        self.chain_type(kind);
        self.chain_elements(kind, value);
        self.end_value(expires);
    }

    /// Begins a value with its type.
    pub fn chain_type(&mut self, kind: Kind) {
        self.chain(&u32::from(kind.type_number()).to_be_bytes());
    }

    /// Adds a string, or the elements of a leaf, of which there may be several.
    pub fn chain_elements(&mut self, kind: Kind, bytes: &[u8]) {
        if kind.is_list() {
            Elements::new(bytes).iter().for_each(|element| self.chain(element));
        } else if kind.is_hash() {
            for (field, value) in Fields::new(bytes).iter() {
                let mut pair = Digest::default();
                pair.chain(field);
                pair.chain(value);
                self.add(pair.as_bytes());
            }
        } else if kind.is_sorted_set() {
            for (member, score) in Scored::new(bytes).iter() {
                let mut pair = Digest::default();
                pair.chain(member);
                pair.chain(DoubleText::new(score).as_bytes());
                self.add(pair.as_bytes());
            }
        } else if kind.is_set() {
            Members::new(bytes).iter().for_each(|member| self.add(member));
        } else if kind.is_stream() {
            match kind.is_tree() {
                true => self.chain_entries(bytes),
                false => {
                    let leaves = Packed::new(bytes).leaves().filter(|leaf| is_entries(leaf));
                    leaves.for_each(|leaf| self.chain_entries(leaf));
                }
            }
        } else {
            self.chain(bytes);
        }
    }

    /// Adds the entries of a leaf of a stream. What is known of its groups does not count.
    fn chain_entries(&mut self, leaf: &[u8]) {
        for entry in Entries::new(leaf).iter() {
            self.chain(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
            for (field, value) in entry.iter() {
                self.chain(field);
                self.chain(value);
            }
        }
    }

    /// Ends a value with whether its key expires.
    pub fn end_value(&mut self, expires: bool) {
        if expires {
            self.add(EXPIRES);
        }
    }

    /// The digest as bytes, to be added to another.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that are to be added as one thing, and come in pieces.
#[derive(Clone, Default)]
pub struct LongText(Sha1);

impl LongText {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// Joins the sums of two collections that have no order.
impl BitXorAssign for Digest {
    fn bitxor_assign(&mut self, other: Digest) {
        self.0.iter_mut().zip(other.0).for_each(|(byte, other)| *byte ^= other);
    }
}

/// In hexadecimal digits, 40 of them.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::elements::{self, ElementsMut};
    use crate::leaf::entries::{self, EntriesMut};
    use crate::leaf::members::leaf_of;
    use crate::leaf::scored;
    use crate::leaf::stream::{self, Head};
    use crate::stream_id::StreamId;

    fn of_string(value: &str, expires: bool) -> Digest {
        let mut digest = Digest::default();
        digest.chain_value(Kind::of_string(value.as_bytes()), value.as_bytes(), expires);
        digest
    }

    #[test]
    fn what_comes_in_pieces_has_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..1_000u32).map(|number| number as u8).collect();
        let (mut whole, mut in_pieces, mut text) =
            (Digest::default(), Digest::default(), LongText::default());
        bytes.chunks(130).for_each(|piece| text.add(piece));
        whole.chain(&bytes);
        in_pieces.chain_long(text);
        assert_eq!(in_pieces, whole);
    }

    /// The digests are what redis-server 7.0 answers.
    #[test]
    fn strings_have_the_digests_of_redis() {
        let cases = [
            ("bar", false, "68467c70ae30376e7ce005bcc8827f5ba7fd67dc"),
            ("bar", true, "8ec3828f7209dd3abdf6ee448de8b0c0bd53265f"),
        ];
        for (value, expires, expected) in cases {
            assert_eq!(of_string(value, expires).to_string(), expected, "{value} {expires}");
        }
        assert_eq!(Digest::default().to_string(), "0".repeat(40));
    }

    /// The digests are what redis-server 7.0 answers.
    #[test]
    fn sets_have_the_digests_of_redis_in_any_order() {
        let cases: [(&[&[u8]], Kind, bool, &str); 5] = [
            (&[b"a"], Kind::SET, false, "344e2dce84032272e136053b2083009290148e5e"),
            (&[b"a", b"b", b"1"], Kind::SET, false, "e8f32bbb1ad9bf537c8867de4f19fec9e001296d"),
            (&[b"1", b"a", b"b"], Kind::SET, false, "e8f32bbb1ad9bf537c8867de4f19fec9e001296d"),
            (
                &[b"3", b"1", b"2"],
                Kind::SET_INTEGERS,
                false,
                "2a462a3f51a1db89738ebbeef0c47ce1bbc85246",
            ),
            (
                &[b"1", b"2", b"3"],
                Kind::SET_INTEGERS,
                true,
                "ccc3d4c08d9831ddb2985016b5aeb37aa16613c5",
            ),
        ];
        for (members, kind, expires, expected) in cases {
            let mut digest = Digest::default();
            digest.chain_value(kind, &leaf_of(members), expires);
            assert_eq!(digest.to_string(), expected);
        }
    }

    /// So are these.
    #[test]
    fn lists_have_the_digests_of_redis() {
        let cases: [(&[&str], bool, &str); 2] = [
            (&["a", "b", "", "12"], false, "05ed04c53d204d6309e71f920405acced3d4f966"),
            (&["bar"], true, "11f6b593cd1443004122362da66511482c0a83cc"),
        ];
        for (elements, expires, expected) in cases {
            let mut leaf = elements::SHAPE.empty().to_vec();
            let bytes = elements.iter().map(|element| element.as_bytes());
            ElementsMut::new(&mut leaf).insert(0, bytes);
            let mut digest = Digest::default();
            digest.chain_value(Kind::LIST, &leaf, expires);
            assert_eq!(digest.to_string(), expected, "{elements:?} {expires}");
        }
    }

    /// So are these.
    #[test]
    fn sorted_sets_have_the_digests_of_redis() {
        type Members = &'static [(f64, &'static [u8])];
        let cases: [(Members, &str); 3] = [
            (&[(1.0, b"a")], "430190c6ed5abafff87d97b4f51a92796ed05895"),
            (
                &[(-0.0, b"c"), (0.1, b"a"), (1e17, b"b"), (f64::INFINITY, b"d")],
                "2c3903b8c4d4fd0c7737f36ea46d347d41ba08b1",
            ),
            (
                &[(0.1, b"a"), (1e17, b"b"), (f64::INFINITY, b"d")],
                "6875a9a3e82b35c4e28800f120252dc5370cdced",
            ),
        ];
        for (members, expected) in cases {
            let leaf = scored::leaf_of(members.iter().copied());
            let mut digest = Digest::default();
            digest.chain_value(Kind::SORTED_SET, &leaf, false);
            assert_eq!(digest.to_string(), expected);
        }
    }

    /// And these, of streams in one value and in leaves.
    #[test]
    fn streams_have_the_digests_of_redis() {
        let mut leaf = entries::leaf_of(
            StreamId::new(1, 2),
            [(&b"a"[..], &b"1"[..]), (b"b", b"2")].into_iter(),
        );
        EntriesMut::new(&mut leaf).push(StreamId::new(3, 4), [(&b"c"[..], &b""[..])].into_iter());
        let head = Head { length: 2, added: 2, last: StreamId::new(3, 4), ..Head::default() };
        let cases = [
            (stream::pack(head, [&leaf[..]]), "ea7c187ecbe971fe28a4efd40cd0badca6b754f5"),
            (stream::pack(Head::default(), []), "06bd01623de1d087bbd377851096317b1af476a2"),
        ];
        for (value, expected) in cases {
            let mut digest = Digest::default();
            digest.chain_value(Kind::STREAM, &value, false);
            assert_eq!(digest.to_string(), expected);
        }
        let mut digest = Digest::default();
        digest.chain_value(Kind::STREAM.as_tree(), &leaf, false);
        assert_eq!(digest.to_string(), "ea7c187ecbe971fe28a4efd40cd0badca6b754f5");
    }

    #[test]
    fn only_what_is_chained_has_an_order() {
        let with = |act: fn(&mut Digest, &[u8]), parts: [&str; 2]| {
            let mut digest = Digest::default();
            parts.iter().for_each(|part| act(&mut digest, part.as_bytes()));
            digest
        };
        assert_eq!(with(Digest::add, ["a", "b"]), with(Digest::add, ["b", "a"]));
        assert_ne!(with(Digest::chain, ["a", "b"]), with(Digest::chain, ["b", "a"]));
        let mut joined = with(Digest::add, ["a", "b"]);
        joined ^= with(Digest::add, ["c", "d"]);
        joined ^= with(Digest::add, ["d", "b"]);
        assert_eq!(joined, with(Digest::add, ["c", "a"]));
    }
}
