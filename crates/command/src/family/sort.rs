//! SORT and SORT_RO: the elements of a list, a set or a sorted set in an order of their own, or in that of
//! other keys.
//!
//! The keys that patterns (`BY`, `GET`) name follow from the elements, so a request with patterns runs
//! with every slot held ([`Locks::Patterns`]). What they name on flash is asked for at once, again with
//! what was fetched for an earlier run: at most once to sort and once to answer.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use resp::{Args, Reply};
use value::number::parse_f64;
use value::{Kind, parse_i64};

use super::room::{FRAME_BYTES, Gathering};
use super::sort_pattern::{ColdValues, Pattern};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed, until_nul};
use crate::logged::Arg;
use crate::spec::{Begin, Command, Docs, Find, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const SORTED: KeySpec = KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value);
/// Which they are is known once the elements are.
const NAMED_BY_ELEMENTS: KeySpec = KeySpec {
    flags: KeyFlags::RO.and(KeyFlags::ACCESS),
    needs: Needs::Value,
    begin: Begin::Unknown(|_| None),
    find: Find::Range { last: 0, step: 1 },
};
const STORED: KeySpec = KeySpec {
    flags: KeyFlags::OW.and(KeyFlags::UPDATE),
    needs: Needs::KeyOnly,
    begin: Begin::Unknown(position_of_stored),
    find: Find::Range { last: 0, step: 1 },
};

/// Bytes that an element takes while it is sorted, besides its own: where its copy ends, its place in the
/// order, a number that it is sorted by.
const SORTED_BYTES: usize = 32;
/// Bytes that a copied text takes besides its own.
const COPIED_BYTES: usize = 8;

const NOT_DOUBLE: CommandError = fixed("ERR One or more scores can't be converted into double");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "SORT",
        arity: -2,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES),
        keys: &[SORTED, NAMED_BY_ELEMENTS, STORED],
        locks: Locks::Patterns,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Sorts the elements of a list or a set, and returns or stores them.",
            complexity: "O(N*log(N)+M) for N elements of which M are returned",
            syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE destination]",
        },
        run: |cx, args, reply| sort(cx, (args, true), reply),
    },
    Command {
        name: "SORT_RO",
        arity: -2,
        flags: Flags::READONLY.and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES),
        keys: &[SORTED, NAMED_BY_ELEMENTS],
        locks: Locks::Patterns,
        docs: Docs {
            group: Group::Generic,
            since: "7.0.0",
            summary: "Sorts the elements of a list or a set, and returns them.",
            complexity: "O(N*log(N)+M) for N elements of which M are returned",
            syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
        },
        run: |cx, args, reply| sort(cx, (args, false), reply),
    },
];

/// What is answered of an element.
#[derive(Clone, Copy, Debug)]
enum Get<'a> {
    /// Itself.
    Element,
    /// What a pattern names; without one, nothing.
    Named(Option<Pattern<'a>>),
}

/// The options of a request.
#[derive(Debug)]
struct Options<'a> {
    by: Option<Pattern<'a>>,
    /// Whether some `BY` names nothing that depends on the element.
    is_unsorted: bool,
    /// Offset and count; a negative count is all.
    limit: (i64, i64),
    gets: Vec<Get<'a>>,
    descends: bool,
    /// By text rather than by number.
    is_alpha: bool,
    /// Which argument names the key to store in.
    stored_at: Option<usize>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<Options<'a>, CommandError> {
        let (mut is_unsorted, mut descends, mut is_alpha) = (false, false, false);
        let (mut by, mut limit, mut gets, mut stored_at) = (None, (0, -1), Vec::new(), None);
        let mut at = 2;
        while let Some(name) = args.get(at) {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            let (first, second) = (args.get(at + 1), args.get(at + 2));
            at += 1;
            if is("ASC") {
                descends = false;
            } else if is("DESC") {
                descends = true;
            } else if is("ALPHA") {
                is_alpha = true;
            } else if let (true, Some(offset), Some(count)) = (is("LIMIT"), first, second) {
                let number = |text| parse_i64(text).ok_or(CommandError::NOT_INTEGER);
                limit = (number(offset)?, number(count)?);
                at += 2;
            } else if let (true, true, Some(_)) = (may_store, is("STORE"), first) {
                stored_at = Some(at);
                at += 1;
            } else if let (true, Some(pattern)) = (is("BY"), first) {
                by = Pattern::parse(pattern);
                is_unsorted |= by.is_none();
                at += 1;
            } else if let (true, Some(pattern)) = (is("GET"), first) {
                gets.push(match until_nul(pattern) {
                    b"#" => Get::Element,
                    _ => Get::Named(Pattern::parse(pattern)),
                });
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(Options { by, is_unsorted, limit, gets, descends, is_alpha, stored_at })
    }

    /// Which of `len` sorted elements are answered.
    fn range(&self, len: usize) -> Range<usize> {
        let (offset, count) = self.limit;
        let clamp = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(len);
        let first = clamp(offset);
        let count = if count < 0 { len } else { clamp(count) };
        first..len.min(first + count)
    }

    /// Which of `len` elements that have an order are to be loaded, and whether from the last one back.
    fn positions(&self, len: u64) -> (Range<u64>, bool) {
        if !self.is_unsorted {
            return (0..len, false);
        }
        let Range { start, end } = self.range(len as usize);
        let (start, end) = (start as u64, end as u64);
        if self.descends { (len - end..len - start, true) } else { (start..end, false) }
    }
}

/// The key that a request stores its result in: an argument.
fn position_of_stored(args: Args<'_>) -> Option<usize> {
    Options::parse(args, true).ok()?.stored_at
}

/// Elements, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Elements {
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Elements {
    pub(super) fn push(&mut self, element: &[u8]) {
        self.bytes.extend_from_slice(element);
        self.ends.push(self.bytes.len());
    }

    /// Makes room for all elements of a collection of `len` that takes so many bytes, if there is memory for
    /// them: of a part it is not known before how long they are.
    ///
    /// Errors: [`CommandError::ReplyTooLong`].
    fn make_room(
        &mut self,
        positions: &Range<u64>,
        (len, bytes): (u64, u64),
        memory: &Gathering<'_>,
    ) -> CommandResult {
        if positions.end - positions.start < len {
            return Ok(());
        }
        memory.check_with(bytes + len * SORTED_BYTES as u64)?;
        self.bytes.reserve_exact(bytes as usize);
        self.ends.reserve_exact(len as usize);
        Ok(())
    }

    /// Adds an element to be sorted, unless there is no memory for it.
    fn push_if_fits(&mut self, element: &[u8], memory: &mut Gathering<'_>) {
        if memory.take(element.len() + SORTED_BYTES) {
            self.push(element);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn at(&self, position: usize) -> &[u8] {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.bytes[start..self.ends[position]]
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|position| self.at(position))
    }
}

fn sort(
    cx: &mut Cx<'_, '_>,
    (args, may_store): (Args<'_>, bool),
    reply: &mut Reply,
) -> CommandResult {
    let mut options = Options::parse(args, may_store)?;
    let key = cx.key(0);
    let kind = cx.peek(&key).map(|view| Kind::from_bits(view.kind));
    if options.is_unsorted && options.stored_at.is_some() && kind.is_some_and(Kind::is_set) {
        // So that what is stored does not depend on how the set is kept.
        options = Options { by: None, is_unsorted: false, is_alpha: true, ..options };
    }
    // All that it holds while it runs, its reply among it, is reserved.
    let mut memory = Gathering::new(&key, cx.reply_bytes_max, reply).of_copies();
    if kind.is_some_and(Kind::is_sorted_set) {
        // Redis goes through a skiplist, and leaves it one.
        cx.unpack_sorted_set(&key);
    }
    let elements = load(cx, &options, &mut memory)?;
    let has_order = kind.is_some_and(|kind| kind.is_list() || kind.is_sorted_set());
    let sorted = match options.is_unsorted {
        true => (0..elements.len()).collect(),
        false => order(cx, &options, &elements, &mut memory)?,
    };
    // Of what is answered in its own order no more was loaded.
    let range = match options.is_unsorted && has_order {
        true => 0..sorted.len(),
        false => options.range(sorted.len()),
    };
    let answered = (&elements, &sorted[range]);
    let result = match options.stored_at {
        None => write(cx, &options, answered, (&mut memory, reply)),
        Some(_) => store(cx, &options, answered, (&mut memory, reply)),
    };
    match result {
        Err(CommandError::NotResident(_)) => Err(lacked(cx, &options, answered)),
        result => result,
    }
}

/// A copy of the elements to be sorted; of a list or sorted set that is not, those that are answered, in
/// their order. Where there is no memory for all, they are counted.
///
/// Errors: [`CommandError::ReplyTooLong`]; the key holds something that has none, or is on flash.
fn load(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    memory: &mut Gathering<'_>,
) -> Result<Elements, CommandError> {
    let key = cx.key(0);
    let mut elements = Elements::default();
    cx.count_read(&key);
    match cx.peek(&key).map(|view| Kind::from_bits(view.kind)) {
        // For the statistics.
        None => drop(cx.read(&key)?),
        Some(kind) if kind.is_list() => {
            if let Some(mut list) = cx.read_list(&key)? {
                let (len, bytes) = (list.len(), list.byte_len());
                let (positions, is_backward) = options.positions(len);
                elements.make_room(&positions, (len, bytes), memory)?;
                _ = list.visit(positions, is_backward, |_, element| {
                    elements.push_if_fits(element, memory);
                    ControlFlow::Continue(())
                })?;
            }
        }
        Some(kind) if kind.is_set() => {
            if let Some(mut set) = cx.read_set(&key)? {
                let (len, bytes) = (set.len(), set.byte_len());
                elements.make_room(&(0..len), (len, bytes), memory)?;
                set.visit(|member| elements.push_if_fits(member, memory))?;
            }
        }
        Some(kind) if kind.is_sorted_set() => {
            if let Some(mut set) = cx.read_sorted_set(&key)? {
                let (len, bytes) = (set.len(), set.byte_len());
                let (ranks, is_backward) = options.positions(len);
                elements.make_room(&ranks, (len, bytes), memory)?;
                set.visit(ranks, is_backward, |member, _| {
                    elements.push_if_fits(member, memory);
                    ControlFlow::Continue(())
                })?;
            }
        }
        Some(_) => return Err(CommandError::WRONG_TYPE),
    }
    memory.check()?;
    Ok(elements)
}

/// What elements are sorted by.
enum Weights {
    /// Numbers, and where these are equal the elements.
    Numbers(Vec<f64>),
    /// What a pattern names for each, and whether there is anything.
    Named(Elements, Vec<bool>),
    /// The elements.
    Elements,
}

impl Weights {
    /// Looks up what the elements are sorted by.
    ///
    /// Errors: [`CommandError::NotResident`], [`CommandError::ReplyTooLong`]; there is something that is no
    /// number.
    fn of(
        cx: &mut Cx<'_, '_>,
        options: &Options<'_>,
        elements: &Elements,
        memory: &mut Gathering<'_>,
    ) -> Result<Weights, CommandError> {
        if let (None, true) = (options.by, options.is_alpha) {
            return Ok(Weights::Elements);
        }
        let mut numbers = Vec::new();
        let (mut texts, mut are_there) = (Elements::default(), Vec::new());
        let mut are_numbers = true;
        for element in elements.iter() {
            let mut weigh = |text: Option<&[u8]>| {
                if options.is_alpha {
                    let bytes = text.map_or(0, <[u8]>::len) + COPIED_BYTES + 1;
                    if memory.take(bytes) {
                        texts.push(text.unwrap_or_default());
                        are_there.push(text.is_some());
                    }
                } else {
                    let number = text.map_or(Some(0.0), score);
                    are_numbers &= number.is_some();
                    numbers.push(number.unwrap_or_default());
                }
            };
            match &options.by {
                Some(by) => by.look_up(cx, element, weigh)?,
                None => weigh(Some(element)),
            }
        }
        memory.check()?;
        match (options.is_alpha, are_numbers) {
            (true, _) => Ok(Weights::Named(texts, are_there)),
            (false, true) => Ok(Weights::Numbers(numbers)),
            (false, false) => Err(NOT_DOUBLE),
        }
    }

    fn compare(&self, elements: &Elements, left: usize, right: usize) -> Ordering {
        let by_element = || elements.at(left).cmp(elements.at(right));
        match self {
            Weights::Elements => by_element(),
            Weights::Numbers(numbers) => {
                let by_number = numbers[left].partial_cmp(&numbers[right]);
                by_number.filter(|order| order.is_ne()).unwrap_or_else(by_element)
            }
            Weights::Named(texts, are_there) => {
                let text = |position: usize| (are_there[position], texts.at(position));
                text(left).cmp(&text(right))
            }
        }
    }
}

/// The positions of the elements in the order that is asked for.
fn order(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    elements: &Elements,
    memory: &mut Gathering<'_>,
) -> Result<Vec<usize>, CommandError> {
    let mut positions: Vec<usize> = (0..elements.len()).collect();
    let weights = match Weights::of(cx, options, elements, memory) {
        Err(CommandError::NotResident(_)) => {
            // Where all elements are answered, what is answered of them is known already.
            let are_all = options.range(positions.len()) == (0..positions.len());
            let answered = if are_all { &positions[..] } else { &[] };
            return Err(lacked(cx, options, (elements, answered)));
        }
        weights => weights?,
    };
    let key = cx.key(0);
    // The order in which it was read tells nothing.
    let is_set = cx.peek(&key).is_some_and(|view| Kind::from_bits(view.kind).is_set());
    positions.sort_by(|&left, &right| {
        let mut order = weights.compare(elements, left, right);
        if is_set {
            order = order.then_with(|| elements.at(left).cmp(elements.at(right)));
        }
        if options.descends { order.reverse() } else { order }
    });
    Ok(positions)
}

/// The number that C's `strtod` makes of a text, as Redis asks it here: spaces in front are passed over, and
/// nothing is 0.
fn score(text: &[u8]) -> Option<f64> {
    let text = until_nul(text);
    let is_space = |byte: &&u8| byte.is_ascii_whitespace() || **byte == 0x0b;
    let spaces = text.iter().take_while(is_space).count();
    if text.is_empty() {
        return Some(0.0);
    }
    parse_f64(&text[spaces..]).filter(|score| !score.is_subnormal())
}

/// Every value on flash that is needed to sort, and to answer the elements at some positions.
fn lacked(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    (elements, answered): (&Elements, &[usize]),
) -> CommandError {
    let mut cold = ColdValues::default();
    if let Some(by) = options.by.filter(|_| !options.is_unsorted) {
        elements.iter().for_each(|element| cold.add(cx, &by, element));
    }
    for &position in answered {
        for get in &options.gets {
            if let Get::Named(Some(pattern)) = get {
                cold.add(cx, pattern, elements.at(position));
            }
        }
    }
    cold.not_resident(&cx.key(0), &cx.cold_leaves)
}

/// Hands over everything that is answered of some elements.
///
/// Errors: [`CommandError::NotResident`], and those of `then`.
fn answer(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    (elements, answered): (&Elements, &[usize]),
    mut then: impl FnMut(Option<&[u8]>) -> CommandResult,
) -> CommandResult {
    for &position in answered {
        let element = elements.at(position);
        if options.gets.is_empty() {
            then(Some(element))?;
        }
        for get in &options.gets {
            match get {
                Get::Element => then(Some(element))?,
                Get::Named(None) => then(None)?,
                Get::Named(Some(pattern)) => pattern.look_up(cx, element, &mut then)??,
            }
        }
    }
    Ok(())
}

/// Replies with what is answered.
///
/// Errors: [`CommandError::ReplyTooLong`], [`CommandError::NotResident`].
fn write(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    sorted: (&Elements, &[usize]),
    (memory, reply): (&mut Gathering<'_>, &mut Reply),
) -> CommandResult {
    let framed = |value: &[u8]| value.len() + FRAME_BYTES as usize;
    let is_known = options.gets.is_empty();
    if is_known {
        let (elements, answered) = sorted;
        let bytes = answered.iter().map(|&position| framed(elements.at(position))).sum();
        memory.take(bytes);
        memory.check()?;
        reply.reserve(bytes);
    }
    reply.array(sorted.1.len() * options.gets.len().max(1));
    answer(cx, options, sorted, |value| {
        match value {
            None => reply.null(),
            // Twice, since the reply is copied as it grows.
            Some(value) if is_known || memory.take(2 * framed(value)) => reply.bulk(value),
            Some(_) => {}
        }
        Ok(())
    })?;
    memory.check()
}

/// Stores what is answered as a list, and replies with its length.
///
/// Errors: [`CommandError::OUT_OF_MEMORY`], [`CommandError::ReplyTooLong`], [`CommandError::NotResident`];
/// nothing is changed then.
fn store(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    sorted: (&Elements, &[usize]),
    (memory, reply): (&mut Gathering<'_>, &mut Reply),
) -> CommandResult {
    let target = cx.key(1);
    if options.gets.is_empty() {
        return store_elements(cx, sorted, (memory, reply));
    }
    let mut stored = Elements::default();
    answer(cx, options, sorted, |value| {
        let value = value.unwrap_or_default();
        // A copy of each, twice while these grow, and the list.
        if memory.take(4 * (value.len() + COPIED_BYTES)) {
            stored.push(value);
        }
        Ok(())
    })?;
    memory.check()?;
    if stored.len() == 0 {
        cx.remove(&target);
    } else {
        cx.store_list(&target, stored.iter())?;
        cx.report(&target, Event::SORTSTORE, stored.len() as u64);
    }
    log_stored(cx, stored.iter());
    reply.integer(stored.len() as i64);
    Ok(())
}

/// The same where elements are answered themselves: the list is made of them without another copy.
fn store_elements(
    cx: &mut Cx<'_, '_>,
    (elements, answered): (&Elements, &[usize]),
    (memory, reply): (&mut Gathering<'_>, &mut Reply),
) -> CommandResult {
    let target = cx.key(1);
    let stored = answered.iter().map(|&position| elements.at(position));
    for element in stored.clone() {
        // In the list, of which leaves are there twice while they are divided.
        memory.take(2 * (element.len() + COPIED_BYTES));
    }
    memory.check()?;
    if answered.is_empty() {
        cx.remove(&target);
    } else {
        cx.store_list(&target, stored.clone())?;
        cx.report(&target, Event::SORTSTORE, answered.len() as u64);
    }
    log_stored(cx, stored);
    reply.integer(answered.len() as i64);
    Ok(())
}

/// Logs what was stored where it follows from keys that the request does not name: a snapshot does not have these
/// as they were when they have expired since.
fn log_stored<'e, 'c: 'e>(cx: &mut Cx<'c, '_>, elements: impl Iterator<Item = &'e [u8]>) {
    if !cx.is_logged() || !cx.locked.holds_all() || cx.effects.changes == 0 {
        return;
    }
    let target = cx.key(1);
    cx.log_as(&[Arg::Bytes(b"DEL"), Arg::Bytes(target.bytes)]);
    let mut args = Vec::new();
    args.extend([&b"RPUSH"[..], target.bytes].into_iter().chain(elements).map(Arg::Bytes));
    if args.len() > 2 {
        cx.log_as(&args);
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check, check_events};

    #[test]
    fn changes_are_told() {
        check_events(&[
            ("RPUSH l 2 1", "new l, rpush l"),
            ("SET w_1 1", "new w_1, set w_1"),
            ("SORT l", ""),
            ("SORT x", "keymiss x"),
            ("SORT_RO x", "keymiss x"),
            ("SORT l BY w_* STORE o", "keymiss w_2, new o, sortstore o"),
            ("SORT l STORE o", "sortstore o"),
            ("SORT x STORE o", "keymiss x, del o"),
            ("SORT x STORE o", "keymiss x"),
        ]);
    }

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789";

    /// What is stored must not depend on how the set is kept.
    #[test]
    fn members_of_a_set_with_equal_weights_are_sorted_by_themselves() {
        check(&[
            ("SADD s e d c b a f g h", ":8"),
            ("MSET w_a 2 w_b 1 w_c 2 w_d 1", "+OK"),
            ("SORT s BY w_* ALPHA STORE l", ":8"),
            ("LRANGE l 0 -1", "[$1 e, $1 f, $1 g, $1 h, $1 b, $1 d, $1 a, $1 c]"),
            ("SORT s BY w_* ALPHA DESC LIMIT 0 4", "[$1 c, $1 a, $1 d, $1 b]"),
        ]);
    }

    #[test]
    fn elements_are_sorted_by_number_and_by_text() {
        check(&[
            ("RPUSH l 3 10 -1.5 2e1 0x10", ":5"),
            ("SORT l", "[$4 -1.5, $1 3, $2 10, $4 0x10, $3 2e1]"),
            ("SORT l DESC", "[$3 2e1, $4 0x10, $2 10, $1 3, $4 -1.5]"),
            ("SORT l DESC ASC", "[$4 -1.5, $1 3, $2 10, $4 0x10, $3 2e1]"),
            ("SORT l ALPHA", "[$4 -1.5, $4 0x10, $2 10, $3 2e1, $1 3]"),
            ("SORT_RO l alpha desc", "[$1 3, $3 2e1, $2 10, $4 0x10, $4 -1.5]"),
            ("SORT l LIMIT 1 2", "[$1 3, $2 10]"),
            ("SORT l LIMIT -5 2", "[$4 -1.5, $1 3]"),
            ("SORT l LIMIT 3 100", "[$4 0x10, $3 2e1]"),
            ("SORT l LIMIT 3 -100", "[$4 0x10, $3 2e1]"),
            ("SORT l LIMIT 5 1", "[]"),
            ("SORT l LIMIT 0 0", "[]"),
            ("SORT l LIMIT 9223372036854775807 9223372036854775807", "[]"),
            ("SADD s 30 4 5", ":3"),
            ("SORT s", "[$1 4, $1 5, $2 30]"),
            ("ZADD z 2 b 3 a 1 c 1 d", ":4"),
            ("SORT z ALPHA", "[$1 a, $1 b, $1 c, $1 d]"),
            ("SORT z BY nosort", "[$1 c, $1 d, $1 b, $1 a]"),
            ("SORT z BY nosort DESC", "[$1 a, $1 b, $1 d, $1 c]"),
            ("SORT z BY nosort LIMIT 1 2", "[$1 d, $1 b]"),
            ("SORT z BY nosort DESC LIMIT 1 2", "[$1 b, $1 d]"),
            ("SORT z BY nosort LIMIT 0 3 STORE stored", ":3"),
            ("LRANGE stored 0 -1", "[$1 c, $1 d, $1 b]"),
            ("SORT z", "-ERR One or more scores can't be converted into double"),
            ("SORT missing", "[]"),
            ("SORT l BY nosort", "[$1 3, $2 10, $4 -1.5, $3 2e1, $4 0x10]"),
            ("SORT l BY nosort DESC LIMIT 1 2", "[$3 2e1, $4 -1.5]"),
            ("SORT l BY nosort LIMIT 1 2", "[$2 10, $4 -1.5]"),
            ("RPUSH odd '' ' 7' inf -Infinity", ":4"),
            ("SORT odd", "[$9 -Infinity, $0, $2  7, $3 inf]"),
        ]);
    }

    #[test]
    fn other_keys_give_the_order() {
        check(&[
            ("RPUSH l a b c d", ":4"),
            ("MSET w_a 3 w_b 1 w_c 2", "+OK"),
            ("HSET o_a f 5 x t", ":2"),
            ("HSET o_b f 7 x s", ":2"),
            ("SORT l BY w_*", "[$1 d, $1 b, $1 c, $1 a]"),
            ("SORT l BY w_* DESC", "[$1 a, $1 c, $1 b, $1 d]"),
            ("SORT l BY w_* LIMIT 1 2", "[$1 b, $1 c]"),
            ("SORT l BY o_*->f", "[$1 c, $1 d, $1 a, $1 b]"),
            ("SORT l BY o_*->x ALPHA", "[$1 c, $1 d, $1 b, $1 a]"),
            ("SORT l BY o_*->x ALPHA DESC", "[$1 a, $1 b, $1 c, $1 d]"),
            ("SORT l BY o_*", "[$1 a, $1 b, $1 c, $1 d]"),
            ("SORT l BY w_*->f", "[$1 a, $1 b, $1 c, $1 d]"),
            (
                "SORT l BY w_* GET # GET w_* GET o_*->f GET fixed",
                "[$1 d, _, _, _, $1 b, $1 1, $1 7, _, $1 c, $1 2, _, _, $1 a, $1 3, $1 5, _]",
            ),
            ("SORT_RO l BY nosort LIMIT 0 2 GET w_*", "[$1 3, $1 1]"),
            // One without a star is enough.
            ("SORT l BY nosort BY w_* LIMIT 0 1", "[$1 a]"),
            ("SORT l BY w_* BY nosort LIMIT 0 1", "[$1 a]"),
            ("SET w_c x", "+OK"),
            ("SORT l BY w_*", "-ERR One or more scores can't be converted into double"),
            ("SORT l", "-ERR One or more scores can't be converted into double"),
        ]);
    }

    #[test]
    fn results_are_stored_as_lists() {
        check(&[
            ("SADD s c a b", ":3"),
            ("SORT s BY nosort STORE to", ":3"),
            ("LRANGE to 0 -1", "[$1 a, $1 b, $1 c]"),
            ("MSET w_a 3 w_b 1", "+OK"),
            ("EXPIRE to 100", ":1"),
            ("SORT s BY w_* GET # GET w_* STORE to", ":6"),
            ("LRANGE to 0 -1", "[$1 c, $0, $1 b, $1 1, $1 a, $1 3]"),
            ("TTL to", ":-1"),
            ("SORT to ALPHA STORE to", ":6"),
            ("LRANGE to 0 -1", "[$0, $1 1, $1 3, $1 a, $1 b, $1 c]"),
            ("SET w_a x", "+OK"),
            ("SORT s BY w_* STORE to", "-ERR One or more scores can't be converted into double"),
            ("LLEN to", ":6"),
            ("SORT missing STORE to", ":0"),
            ("EXISTS to", ":0"),
            ("SORT missing STORE to", ":0"),
            ("SORT s ALPHA STORE w_a", ":3"),
            ("TYPE w_a", "+list"),
        ]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        check(&[
            ("SET text x", "+OK"),
            ("HSET h f v", ":1"),
            ("SORT text", WRONG),
            ("SORT h STORE to", WRONG),
            ("SORT missing STORE", "-ERR syntax error"),
            ("SORT_RO missing STORE to", "-ERR syntax error"),
            ("SORT missing LIMIT 1", "-ERR syntax error"),
            ("SORT missing LIMIT 1 x", "-ERR value is not an integer or out of range"),
            ("SORT missing BY", "-ERR syntax error"),
            ("SORT missing GET", "-ERR syntax error"),
            ("SORT text other", "-ERR syntax error"),
            ("SORT", "-ERR wrong number of arguments for 'sort' command"),
        ]);
    }

    /// Everything is on flash when the command comes, in leaves of a large hash, too.
    #[test]
    fn what_patterns_name_comes_from_flash() {
        let mut server = Harness::new(true);
        for number in 0..50 {
            server.run(&format!("RPUSH l {number}"));
            server.run(&format!("SET w_{number} {}", 1_000 - number));
            server.run(&format!("SET v_{number} {LONG}{number}"));
            let fields: String = (0..60).map(|field| format!(" f{field} {LONG}{number}")).collect();
            server.run(&format!("HSET o_{number}{fields}"));
        }
        let last = format!("$72 {LONG}49");
        let expected = format!("[$2 49, {last}, {last}]");
        let gets = "GET # GET v_* GET o_*->f7";
        assert_eq!(server.run(&format!("SORT l BY w_* LIMIT 0 1 {gets}")), expected);
        assert_eq!(server.run(&format!("SORT l BY o_*->f3 ALPHA DESC LIMIT 0 0 {gets}")), "[]");
        let all = server.run(&format!("SORT l BY w_* {gets}"));
        assert!(all.starts_with(&expected[..expected.len() - 1]), "{all}");
        assert_eq!(server.run(&format!("SORT l BY w_* {gets} STORE to")), ":150");
        assert_eq!(server.run("LINDEX to 1"), last);
    }
    /// The sorted list is on flash in many leaves, beside what its elements name.
    #[test]
    fn a_large_list_and_what_it_names_come_from_flash_together() {
        let mut server = Harness::new(true);
        for number in 0..60 {
            server.run(&format!("RPUSH l {number:0200}"));
            server.run(&format!("SET w_{number:0200} {}", 1_000 - number));
            let fields: String = (0..60).map(|field| format!(" f{field} {LONG}{number}")).collect();
            server.run(&format!("HSET o_{number:0200}{fields}"));
        }
        let last = format!("$72 {LONG}59");
        for line in
            ["SORT l BY w_* LIMIT 0 1 GET o_*->f7", "SORT l BY nosort LIMIT 59 1 GET o_*->f7"]
        {
            assert_eq!(server.run(line), format!("[{last}]"));
            assert!(server.runs <= 4, "{line}: {} runs", server.runs);
        }
        let all = server.run("SORT l BY o_*->f3 ALPHA DESC GET o_*->f7 GET w_*");
        assert!(all.starts_with(&format!("[$71 {LONG}9, $3 991, ")), "{all}");
        assert!(server.runs <= 4, "{} runs", server.runs);
    }
}
