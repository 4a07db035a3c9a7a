//! Which leaves a command will look an element up in, so that their cache lines can be on their way when it runs.

use keyspace::{FreeSlots, Hint, Key, SlotState, Stored, VALUE_LINES, node_table};
use resp::Args;
use stdx::prefetch::{CACHE_LINE_BYTES, prefetch};
use value::Kind;
use value::leaf::score_index::{MemberHash, ScoreIndex};
use value::leaf::scored::order_of_score;
use value::leaf::{Rows, element_hash};

use crate::collection::list::End;
use crate::collection::place::{LEAF_BYTES_MAX, NodeName, Place, end_of};

/// Lines of a sorted set's leaf that are asked for at once: they have its fingerprints, by which the others are chosen.
const FINGERPRINT_LINES: usize = 4;

/// Lines that are asked for of a leaf where elements move, at most: a leaf with a long member may have very many.
const MOVED_LINES_MAX: usize = LEAF_BYTES_MAX / CACHE_LINE_BYTES;

/// Which element of the collection of its key a command looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementOf {
    /// The one that an argument names: the first where there are several.
    Arg(usize),
    /// The one that an argument names, which gets the score in front of it: the first where there are several. Behind options
    /// another argument stands there, which is no score.
    Scored(usize),
    /// The one at an end of a list.
    End(End),
    /// The one at an end of a sorted set, which is taken from there.
    Popped(End),
}

/// Commands that look elements up by name, and which of their arguments is the first of these.
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
    ("ZINCRBY", 3),
    ("ZMSCORE", 2),
    ("ZRANK", 2),
    ("ZREM", 2),
    ("ZREVRANK", 2),
    ("ZSCORE", 2),
];

/// Commands that give members of a sorted set a score, and which of their arguments is the first of these.
const SCORED_ARGS: &[(&str, usize)] = &[("ZADD", 3)];

/// Commands that put something at an end of a list or take it from there.
const ENDS: &[(&str, End)] = &[
    ("LPOP", End::Left),
    ("LPUSH", End::Left),
    ("LPUSHX", End::Left),
    ("RPOP", End::Right),
    ("RPUSH", End::Right),
    ("RPUSHX", End::Right),
];

/// Commands that take a member from an end of a sorted set.
const POPS: &[(&str, End)] = &[("ZPOPMAX", End::Right), ("ZPOPMIN", End::Left)];

impl ElementOf {
    /// Which element a command looks up, if it does.
    pub fn command(command: &str) -> Option<ElementOf> {
        let arg = |commands: &[(&str, usize)]| {
            commands.iter().find(|(name, _)| *name == command).map(|(_, at)| *at)
        };
        let end = |commands: &[(&str, End)]| {
            commands.iter().find(|(name, _)| *name == command).map(|(_, end)| *end)
        };
        arg(ELEMENT_ARGS)
            .map(ElementOf::Arg)
            .or_else(|| arg(SCORED_ARGS).map(ElementOf::Scored))
            .or_else(|| end(ENDS).map(ElementOf::End))
            .or_else(|| end(POPS).map(ElementOf::Popped))
    }

    /// The element that a request looks up, if it names one.
    #[inline]
    pub fn element(self, args: Args<'_>) -> Option<Element> {
        match self {
            ElementOf::Arg(at) => args.get(at).map(Element::new),
            ElementOf::Scored(at) => {
                let score = std::str::from_utf8(args.get(at - 1)?).ok()?.parse().ok()?;
                Some(Element::Scored(element_hash(args.get(at)?), order_of_score(score)))
            }
            ElementOf::End(end) => Some(Element::AtEnd(end)),
            ElementOf::Popped(end) => Some(Element::Popped(end, 0)),
        }
    }
}

/// An element that is about to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// By its hash.
    Hashed(u64),
    /// By its hash, of a sorted set, where it is to have a score, which stands in this place.
    Scored(u64, [u8; 8]),
    /// At an end of a list.
    AtEnd(End),
    /// At an end of a sorted set, behind as many as are taken from there before.
    Popped(End, usize),
}

impl Element {
    /// Hashes an element.
    #[inline]
    fn new(bytes: &[u8]) -> Element {
        Element::Hashed(element_hash(bytes))
    }

    /// Its hash, as the index of a sorted set has it.
    fn member_hash(self) -> Option<MemberHash> {
        match self {
            Element::Hashed(hash) | Element::Scored(hash, _) => Some(MemberHash::from_hash(hash)),
            Element::AtEnd(_) | Element::Popped(..) => None,
        }
    }

    /// The element to look up for this one, behind another in the same collection. None: it is the same.
    #[inline]
    pub fn after(self, last: Element) -> Option<Element> {
        match (self, last) {
            (Element::Popped(end, _), Element::Popped(last_end, before)) if end == last_end => {
                Some(Element::Popped(end, before + 1))
            }
            _ => (self != last).then_some(self),
        }
    }

    /// Whether a key, which has been prefetched, may hold a large collection, to look elements up in. Cost: none that
    /// counts, where [`Element::look_up`] takes the slot.
    #[inline]
    pub fn may_be_in(key: &Hint) -> bool {
        key.kind.is_some_and(|kind| Kind::from_bits(kind).is_tree())
    }

    /// Begins to look it up in the collection of a key, which has been prefetched. None: that is no large one whose
    /// elements are found so. Cost: a look into each branch on the way to a leaf.
    pub fn look_up(self, slot: &SlotState, key: &Hint) -> Option<LookUp> {
        let (kind, place) = tree_of(slot, key)?;
        let (name, step) = match self {
            Element::Hashed(hash) if kind.is_hash() || kind.is_set() => {
                (place.leaf_name(slot, |branch| branch.find(&hash.to_be_bytes()))?, Step::Leaf)
            }
            Element::Hashed(_) | Element::Scored(..) if kind.is_sorted_set() => {
                (place.of_index(slot).root_name()?, Step::IndexRoot)
            }
            Element::AtEnd(end) if kind.is_list() => {
                (place.leaf_name(slot, |branch| end_of(branch, end))?, Step::Leaf)
            }
            Element::Popped(end, _) if kind.is_sorted_set() => {
                (place.leaf_name(slot, |branch| end_of(branch, end))?, Step::End)
            }
            _ => return None,
        };
        Some(self.at_node(key, name, step))
    }

    /// The same, of the leaf where it will stand with the score that it is to have.
    pub fn look_up_place(self, slot: &SlotState, key: &Hint) -> Option<LookUp> {
        let Element::Scored(_, order) = self else { return None };
        let (kind, place) = tree_of(slot, key)?;
        let leaf = || place.leaf_name(slot, |branch| branch.find(&order));
        kind.is_sorted_set().then(leaf)?.map(|name| self.at_node(key, name, Step::Place))
    }

    fn at_node(self, key: &Hint, name: NodeName, step: Step) -> LookUp {
        let is_popped = matches!(self, Element::Popped(..));
        LookUp { element: self, key: *key, node: hint_of(name, key), step, is_popped }
    }
}

/// The large collection that a key probably holds.
fn tree_of<'s>(slot: &'s SlotState, key: &Hint) -> Option<(Kind, Place<'s>)> {
    let (at, view) = slot.guessed(key)?;
    let kind = Kind::from_bits(view.kind);
    let (true, Stored::Hot(_)) = (kind.is_tree(), view.stored) else { return None };
    let root = Key { bytes: view.key, slot: key.slot, hash: key.hash };
    Some((kind, Place { seen_at: Some(at), ..Place::new(root, key.table) }))
}

fn hint_of(node: NodeName, key: &Hint) -> Hint {
    Hint::new(node_table(key.table), &node.key(key.slot))
}

/// An element on its way to be looked up in the large collection of a key.
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    element: Element,
    key: Hint,
    /// The node to look into next.
    node: Hint,
    step: Step,
    /// Whether the element was looked for at an end, to be taken from there.
    is_popped: bool,
}

/// What a look-up comes to.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The leaf at an end of a sorted set, which tells the member to look up.
    End,
    /// The root of the index of a sorted set.
    IndexRoot,
    /// A leaf of that.
    IndexLeaf,
    /// The leaf of a sorted set where the element will stand.
    Place,
    /// A leaf of the collection, the last step.
    Leaf,
}

impl AsMut<Hint> for LookUp {
    #[inline]
    fn as_mut(&mut self) -> &mut Hint {
        &mut self.node
    }
}

impl LookUp {
    /// Brings near what look-ups will wait for, each step for all of them before the next. None is left.
    pub fn prefetch_all(look_ups: &mut Vec<LookUp>, slots: &mut FreeSlots<'_>) {
        slots.prefetch_keys(look_ups, VALUE_LINES);
        // In hashes and sets, where there is one step, it costs as much to choose lines as it gains.
        LookUp::all_go_on(look_ups, slots);
        while !look_ups.is_empty() {
            slots.prefetch_keys(look_ups, FINGERPRINT_LINES);
            for look_up in look_ups.iter() {
                slots.get(look_up.key.slot).inspect(|slot| look_up.prefetch_row(slot));
            }
            LookUp::all_go_on(look_ups, slots);
        }
    }

    /// Takes the next step of all; those that have none are left out.
    fn all_go_on(look_ups: &mut Vec<LookUp>, slots: &mut FreeSlots<'_>) {
        look_ups.retain_mut(|look_up| {
            slots.get(look_up.key.slot).is_some_and(|slot| look_up.go_on(slot).is_some())
        });
    }

    /// The rows of what probably is its leaf, of a sorted set, if that is in RAM.
    fn rows<'s>(&self, slot: &'s SlotState) -> Option<Rows<'s>> {
        let (_, view) = slot.guessed(&self.node)?;
        let kind = Kind::from_bits(view.kind);
        match view.stored {
            Stored::Hot(leaf) | Stored::Clean(leaf, _)
                if kind.is_sorted_set() && !kind.is_tree() =>
            {
                Some(Rows::new(leaf))
            }
            _ => None,
        }
    }

    /// Whether the element is removed from its node, or put in: what stands behind it there moves.
    fn moves_others(&self) -> bool {
        let is_leaf = matches!(self.step, Step::Leaf);
        self.is_popped || is_leaf && matches!(self.element, Element::Scored(..))
    }

    /// Asks for the lines of its row, or for all that may move.
    fn prefetch_row(&self, slot: &SlotState) {
        let (Some(rows), Some(hash)) = (self.rows(slot), self.element.member_hash()) else {
            return;
        };
        if self.moves_others() {
            let lines = rows.bytes().chunks(CACHE_LINE_BYTES).take(MOVED_LINES_MAX);
            return lines.for_each(|line| prefetch(line.as_ptr()));
        }
        for at in rows.likely_places(hash.fingerprint()).into_iter().flatten() {
            prefetch(rows.bytes().as_ptr().wrapping_add(at));
        }
    }

    /// Goes on in a sorted set: from the index to the leaf where members with the score stand that it tells. None: it
    /// has been there, or the index does not know the element.
    fn go_on(&mut self, slot: &SlotState) -> Option<()> {
        if let Element::Popped(end, before) = self.element {
            self.element = member_at(self.rows(slot)?, end, before)?;
        }
        let hash = self.element.member_hash()?;
        let (name, step) = match self.step {
            Step::End => {
                let (_, place) = tree_of(slot, &self.key)?;
                (place.of_index(slot).root_name()?, Step::IndexRoot)
            }
            Step::IndexRoot => {
                let (seen_at, _) = slot.guessed(&self.node)?;
                let (_, place) = tree_of(slot, &self.key)?;
                let index = Place { seen_at: Some(seen_at), ..place.of_index(slot) };
                (index.leaf_name(slot, |branch| branch.find(&hash.order()))?, Step::IndexLeaf)
            }
            // It has come from the leaf.
            Step::IndexLeaf if self.is_popped => return None,
            Step::IndexLeaf => {
                let score = ScoreIndex::of(self.rows(slot)?).scores(&hash).next()?;
                let (_, place) = tree_of(slot, &self.key)?;
                (place.leaf_name(slot, |branch| branch.find(&order_of_score(score)))?, Step::Leaf)
            }
            // Its lines are asked for once it is known how many there are.
            Step::Place => {
                self.step = Step::Leaf;
                return Some(());
            }
            Step::Leaf => return None,
        };
        (self.node, self.step) = (hint_of(name, &self.key), step);
        Some(())
    }
}

/// The member at an end of a leaf, behind so many others.
fn member_at(members: Rows<'_>, end: End, before: usize) -> Option<Element> {
    let from_right = members.len().checked_sub(before + 1)?;
    Some(Element::new(members.first(if end == End::Left { before } else { from_right })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::ArgRange;
    use value::leaf::scored::order_of;

    use crate::harness::Harness;
    use crate::spec::Command;

    const ELEMENTS: usize = 3_000;

    /// The look-up of an element.
    fn look_up(server: &Harness, key: &str, element: Element) -> Option<LookUp> {
        let key = Key::new(key.as_bytes());
        let mut hints = [Hint::new(0, &key)];
        server.keyspace.prefetch_keys(&mut hints, 1);
        element.look_up(&server.keyspace.lock(key.slot), &hints[0])
    }

    /// The leaves that an element is looked up in, by their hashes.
    fn leaves_of(server: &Harness, key: &str, element: Element) -> Vec<u64> {
        let mut look_ups = vec![look_up(server, key, element).expect("it is large")];
        let mut leaves = Vec::new();
        loop {
            if !matches!(look_ups[0].step, Step::End | Step::IndexRoot) {
                leaves.push(look_ups[0].node.hash);
            }
            server.keyspace.free_slots().prefetch_keys(&mut look_ups, 1);
            let slot = server.keyspace.lock(look_ups[0].key.slot);
            if look_ups[0].go_on(&slot).is_none() {
                return leaves;
            }
        }
    }

    #[test]
    fn the_leaves_are_those_that_a_command_reads() {
        let mut server = Harness::new(false);
        let elements = |with: fn(usize) -> String| (0..ELEMENTS).map(with).collect::<String>();
        server.run(&format!("HSET hash{}", elements(|number| format!(" {number} value"))));
        server.run(&format!("SADD set{}", elements(|number| format!(" member{number}"))));
        server.run(&format!("ZADD zset{}", elements(|number| format!(" {number} {number}"))));
        for (key, element) in [("hash", "77"), ("set", "member77"), ("zset", "77"), ("zset", "-")] {
            let leaves = leaves_of(&server, key, Element::new(element.as_bytes()));
            let key = Key::new(key.as_bytes());
            let slot = server.keyspace.lock(key.slot);
            let leaf =
                |place: Place<'_>, order: &[u8]| place.find(&slot, order).name().key(key.slot).hash;
            let (place, order) =
                (Place::new(key, 0), element_hash(element.as_bytes()).to_be_bytes());
            let expected = match (key.bytes, element) {
                (b"zset", "-") => {
                    vec![leaf(place.of_index(&slot), &order[..MemberHash::ORDER_BYTES])]
                }
                (b"zset", _) => vec![
                    leaf(place.of_index(&slot), &order[..MemberHash::ORDER_BYTES]),
                    leaf(place, &order_of(77.0, element.as_bytes())),
                ],
                _ => vec![leaf(place, &order)],
            };
            assert_eq!(leaves, expected, "{element}");
        }
    }

    #[test]
    fn the_leaf_of_a_list_is_that_at_an_end() {
        let mut server = Harness::new(false);
        let elements: String = (0..ELEMENTS).map(|number| format!(" {number}")).collect();
        server.run(&format!("RPUSH list{elements}"));
        let leaves = [End::Left, End::Right].map(|end| {
            let leaves = leaves_of(&server, "list", Element::AtEnd(end));
            let key = Key::new(b"list");
            let name = Place::new(key, 0).at_end(&server.keyspace.lock(key.slot), end).name();
            assert_eq!(leaves, [name.key(key.slot).hash]);
            leaves
        });
        assert_ne!(leaves[0], leaves[1]);
    }

    #[test]
    fn members_that_are_popped_are_looked_up_as_any() {
        let mut server = Harness::new(false);
        let members: String = (0..ELEMENTS).map(|number| format!(" {number} {number}")).collect();
        server.run(&format!("ZADD zset{members}"));
        for (end, members) in [(End::Left, [0, 1]), (End::Right, [ELEMENTS - 1, ELEMENTS - 2])] {
            let mut element = Element::Popped(end, 0);
            for member in members {
                let expected = Element::new(member.to_string().as_bytes());
                let of_index = leaves_of(&server, "zset", expected)[0];
                assert_eq!(leaves_of(&server, "zset", element), [of_index]);
                element = Element::Popped(end, 0).after(element).expect("the next");
            }
        }
        let beyond = Element::Popped(End::Left, ELEMENTS);
        assert_eq!(leaves_of(&server, "zset", beyond), []);
        assert_eq!(Element::AtEnd(End::Left).after(Element::AtEnd(End::Left)), None);
    }

    #[test]
    fn a_member_that_is_to_have_a_score_is_looked_up_and_its_place() {
        let mut server = Harness::new(false);
        let members: String = (0..ELEMENTS).map(|number| format!(" {number} {number}")).collect();
        server.run(&format!("ZADD zset{members}"));
        server.run("SET string a");
        let element = |line: &str| {
            let offset = |word: &str| word.as_ptr() as usize - line.as_ptr() as usize;
            let range =
                |word: &str| ArgRange { start: offset(word) as u32, len: word.len() as u32 };
            let ranges: Vec<ArgRange> = line.split(' ').map(range).collect();
            ElementOf::command("ZADD")?.element(Args::new(line.as_bytes(), &ranges))
        };
        let member = element("ZADD zset 2000.5 77").expect("it has a score");
        let named = Element::new(b"77");
        assert_eq!(leaves_of(&server, "zset", member), leaves_of(&server, "zset", named));
        let place_of = |key: &str, element: Element| {
            let key = Key::new(key.as_bytes());
            let mut hints = [Hint::new(0, &key)];
            server.keyspace.prefetch_keys(&mut hints, 1);
            element.look_up_place(&server.keyspace.lock(key.slot), &hints[0])
        };
        let key = Key::new(b"zset");
        let expected = {
            let slot = server.keyspace.lock(key.slot);
            Place::new(key, 0).find(&slot, &order_of(2000.5, b"77")).name().key(key.slot).hash
        };
        assert_eq!(place_of("zset", member).map(|place| place.node.hash), Some(expected));
        assert!(place_of("zset", named).is_none() && place_of("string", member).is_none());
        for line in ["ZADD zset NX 1 a", "ZADD zset 1", "ZADD zset a 1"] {
            assert_eq!(element(line), None, "{line}");
        }
        assert!(place_of("zset", element("ZADD zset nan a").expect("a number")).is_some());
    }

    #[test]
    fn each_look_up_ends() {
        let mut server = Harness::new(false);
        let elements = |with: fn(usize) -> String| (0..ELEMENTS).map(with).collect::<String>();
        server.run(&format!("ZADD zset{}", elements(|number| format!(" {number} {number}"))));
        server.run(&format!("RPUSH list{}", elements(|number| format!(" {number}"))));
        let members = ["1", "2999", "-"].map(|member| ("zset", Element::new(member.as_bytes())));
        let ends = [End::Left, End::Right].map(|end| ("list", Element::AtEnd(end)));
        let pops = [End::Left, End::Right].map(|end| ("zset", Element::Popped(end, 0)));
        let mut look_ups: Vec<LookUp> = members
            .into_iter()
            .chain(ends)
            .chain(pops)
            .filter_map(|(key, element)| look_up(&server, key, element))
            .collect();
        assert_eq!(look_ups.len(), 7);
        let key = Key::new(b"zset");
        let mut hints = [Hint::new(0, &key)];
        server.keyspace.prefetch_keys(&mut hints, 1);
        let member = Element::Scored(element_hash(b"1"), order_of_score(2000.0));
        look_ups.extend(member.look_up_place(&server.keyspace.lock(key.slot), &hints[0]));
        assert_eq!(look_ups.len(), 8);
        LookUp::prefetch_all(&mut look_ups, &mut server.keyspace.free_slots());
        assert!(look_ups.is_empty());
    }

    #[test]
    fn small_collections_and_others_have_none() {
        let mut server = Harness::new(false);
        let elements: String = (0..ELEMENTS).map(|number| format!(" {number}")).collect();
        for line in ["HSET hash a 1", "SET string a", &format!("RPUSH list{elements}")] {
            server.run(line);
        }
        for key in ["hash", "string", "list", "missing"] {
            assert!(look_up(&server, key, Element::new(b"a")).is_none(), "{key}");
        }
        for key in ["hash", "string", "missing"] {
            assert!(look_up(&server, key, Element::AtEnd(End::Left)).is_none(), "{key}");
            assert!(look_up(&server, key, Element::Popped(End::Left, 0)).is_none(), "{key}");
        }
    }

    #[test]
    fn the_commands_exist_and_take_so_many_arguments() {
        let ends = ENDS.iter().chain(POPS).map(|(name, _)| (name, &1));
        let args = ELEMENT_ARGS.iter().chain(SCORED_ARGS).map(|(name, at)| (name, at));
        for (name, at) in args.chain(ends) {
            let mut rows = crate::family::FAMILIES.iter().flat_map(|family| family.iter());
            let row: &Command = rows.find(|row| row.name == *name).expect(name);
            assert!(row.arity.unsigned_abs() as usize > *at, "{name}");
        }
    }
}
