//! Groups of keys that are numbered one after another, such as `user:1234:name` and `user:1235:cart`.
//!
//! Their values are asked for together more often than others of the same time: by a job that walks over users, or by one that
//! imports a part of them beside others.

use crate::key::{Key, hash};
use crate::slot::holds_keys;

/// Bits of a group: so many that of the values of a few megabytes few share one by chance.
pub(crate) const GROUP_BITS: u32 = 21;
/// Digits at the end of the last number of a key that its group ignores: a thousand numbers are one group.
const DIGITS_IGNORED: usize = 3;
/// The number is looked for in so many bytes at the end of a key.
const NUMBER_BYTES: usize = 64;
/// The name of a collection's node begins with the number of the collection, in so many bytes.
const COLLECTION_BYTES: usize = 8;

/// The group of a key of a physical table. Cost: a hash of a part of the key.
#[inline]
pub(crate) fn key_group(table: u8, key: &Key<'_>) -> u32 {
    let stem = if holds_keys(table) { stem(key.bytes) } else { key.bytes.get(..COLLECTION_BYTES) };
    (stem.map_or(key.hash, hash) >> (u64::BITS - GROUP_BITS)) as u32
}

/// A key up to the last digits of its last number. None: it has no number, and a group of its own.
#[inline]
fn stem(key: &[u8]) -> Option<&[u8]> {
    let tail = &key[key.len().saturating_sub(NUMBER_BYTES)..];
    let behind_number = tail.iter().rev().position(u8::is_ascii_digit)?;
    let number_end = key.len() - behind_number;
    let digits = key[..number_end].iter().rev().take(DIGITS_IGNORED);
    Some(&key[..number_end - digits.take_while(|byte| byte.is_ascii_digit()).count()])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::slot::node_table;

    #[test]
    fn a_stem_ends_before_the_last_digits_of_the_last_number() {
        let cases = [
            ("key:1234567", Some("key:1234")),
            ("key:123", Some("key:")),
            ("key:7", Some("key:")),
            ("123", Some("")),
            ("7", Some("")),
            ("", None),
            ("user:12345:cart", Some("user:12")),
            ("user:12345:cart:7", Some("user:12345:cart:")),
            ("user:12:3x", Some("user:12:")),
            ("name", None),
        ];
        for (key, expected) in cases {
            assert_eq!(stem(key.as_bytes()), expected.map(str::as_bytes), "{key}");
        }
        let long = |rest: usize| format!("key:1234567{}", "x".repeat(rest));
        assert_eq!(stem(long(NUMBER_BYTES - 1).as_bytes()), Some(&b"key:1234"[..]));
        assert_eq!(stem(long(NUMBER_BYTES).as_bytes()), None);
    }

    /// Groups of these keys of a table, how many differ.
    fn groups(table: u8, keys: impl Iterator<Item = Vec<u8>>) -> usize {
        keys.map(|key| key_group(table, &Key::new(&key))).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn keys_of_a_thousand_numbers_are_a_group_and_few_others_share_one() {
        let numbers = |step: u32| {
            (0..1_000).map(move |number| format!("user:{}:name", 1_000 + number * step).into())
        };
        assert_eq!(groups(0, numbers(1)), 1);
        assert!(groups(0, numbers(1_000)) > 990);
        assert!(groups(0, (0..1_000).map(|number| vec![b'a'; number])) > 990);
    }

    #[test]
    fn nodes_of_a_collection_are_a_group() {
        let node = |collection: u64, node: u32| {
            [&collection.to_be_bytes()[..], &node.to_be_bytes()[..]].concat()
        };
        let table = node_table(0);
        assert_eq!(groups(table, (0..1_000).map(|number| node(5, number))), 1);
        assert!(groups(table, (0..1_000).map(|number| node(number, 5))) > 990);
        assert_eq!(groups(table, std::iter::once(b"short".to_vec())), 1);
    }
}
