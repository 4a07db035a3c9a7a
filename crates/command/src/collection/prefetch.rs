//! Which leaf a command will look an element up in, so that its cache lines can be on their way when it runs.

use keyspace::{Hint, Key, SlotState, Stored, node_table};
use value::Kind;
use value::leaf::element_hash;
use value::leaf::score_index::MemberHash;

use crate::collection::place::Place;

/// Commands that look elements up, and which of their arguments is the first of these. Only that one is
/// prefetched. Behind options, as ZADD takes them, another argument stands there: a leaf is prefetched in vain.
const ELEMENT_ARGS: &[(&str, usize)] = &[
    ("HDEL", 2),
    ("HEXISTS", 2),
    ("HGET", 2),
    ("HINCRBY", 2),
    ("HINCRBYFLOAT", 2),
    ("HMGET", 2),
    ("HSET", 2),
    ("HSETNX", 2),
    ("HSTRLEN", 2),
    ("SADD", 2),
    ("SISMEMBER", 2),
    ("SMISMEMBER", 2),
    ("SREM", 2),
    ("ZADD", 3),
    ("ZINCRBY", 3),
    ("ZMSCORE", 2),
    ("ZRANK", 2),
    ("ZREM", 2),
    ("ZREVRANK", 2),
    ("ZSCORE", 2),
];

/// An element that is about to be looked up, by its hash.
#[derive(Clone, Copy, Debug)]
pub struct Element(u64);

impl Element {
    /// Hashes an element.
    #[inline]
    pub fn new(bytes: &[u8]) -> Element {
        Element(element_hash(bytes))
    }

    /// Which argument of a command is the element that it looks up, if it does.
    pub fn arg_of(command: &str) -> Option<usize> {
        ELEMENT_ARGS.iter().find(|(name, _)| *name == command).map(|&(_, at)| at)
    }

    /// The leaf in which it is looked up in the collection of a key, which has been prefetched. None: that is no
    /// large one whose elements are found by their hashes. Cost: a look into each branch on the way.
    pub fn leaf(self, slot: &SlotState, key: &Hint) -> Option<Hint> {
        let (at, view) = slot.guessed(key)?;
        let kind = Kind::from_bits(view.kind);
        let (true, Stored::Hot(_)) = (kind.is_tree(), view.stored) else { return None };
        let root = Key { bytes: view.key, slot: key.slot, hash: key.hash };
        let place = Place { seen_at: Some(at), ..Place::new(root, key.table) };
        let order = self.0.to_be_bytes();
        let name = if kind.is_hash() || kind.is_set() {
            place.leaf_name(slot, &order)?
        } else if kind.is_sorted_set() {
            place.of_index(slot).leaf_name(slot, &order[..MemberHash::ORDER_BYTES])?
        } else {
            return None;
        };
        Some(Hint::new(node_table(key.table), &name.key(key.slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::form::{HASH, SCORE_INDEX, SET};
    use crate::harness::Harness;
    use crate::spec::Command;

    const ELEMENTS: usize = 3_000;

    /// The leaf in which an element would be looked up.
    fn leaf_of(server: &Harness, key: &str, element: &str) -> Option<Hint> {
        let key = Key::new(key.as_bytes());
        let mut hints = [Hint::new(0, &key)];
        server.keyspace.prefetch_keys(&mut hints, true);
        Element::new(element.as_bytes()).leaf(&server.keyspace.lock(key.slot), &hints[0])
    }

    #[test]
    fn the_leaf_is_the_one_that_a_command_reads() {
        let mut server = Harness::new(false);
        let elements = |with: fn(usize) -> String| (0..ELEMENTS).map(with).collect::<String>();
        server.run(&format!("HSET hash{}", elements(|number| format!(" {number} value"))));
        server.run(&format!("SADD set{}", elements(|number| format!(" member{number}"))));
        server.run(&format!("ZADD zset{}", elements(|number| format!(" {number} {number}"))));
        for (key, element, form) in
            [("hash", "77", &HASH), ("set", "member77", &SET), ("zset", "77", &SCORE_INDEX)]
        {
            let hint = leaf_of(&server, key, element).expect("it is large");
            let key = Key::new(key.as_bytes());
            let slot = server.keyspace.lock(key.slot);
            let is_index = std::ptr::eq(form, &SCORE_INDEX);
            let place = Place::new(key, 0);
            let place = if is_index { place.of_index(&slot) } else { place };
            let order = Element::new(element.as_bytes()).0.to_be_bytes();
            let order = if is_index { &order[..MemberHash::ORDER_BYTES] } else { &order[..] };
            let name = place.find(&slot, order).name();
            assert_eq!((hint.slot, hint.hash), (key.slot, name.key(key.slot).hash), "{element}");
            assert_eq!(hint.table, node_table(0));
        }
    }

    #[test]
    fn small_collections_and_others_have_none() {
        let mut server = Harness::new(false);
        let elements: String = (0..ELEMENTS).map(|number| format!(" {number}")).collect();
        for line in ["HSET hash a 1", "SET string a", &format!("RPUSH list{elements}")] {
            server.run(line);
        }
        for key in ["hash", "string", "list", "missing"] {
            assert!(leaf_of(&server, key, "a").is_none(), "{key}");
        }
    }

    #[test]
    fn the_commands_exist_and_take_so_many_arguments() {
        for (name, at) in ELEMENT_ARGS {
            let mut rows = crate::family::FAMILIES.iter().flat_map(|family| family.iter());
            let row: &Command = rows.find(|row| row.name == *name).expect(name);
            assert!(row.arity.unsigned_abs() as usize > *at, "{name}");
        }
    }
}
