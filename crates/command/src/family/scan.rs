//! Walks over the keys of a database: KEYS, SCAN and RANDOMKEY.
//!
//! A walk locks one slot at a time, so it delays others by no more than that, and is not a snapshot:
//! keys that are there from its start to its end are found, others may be. None of these commands
//! reads flash. In a transaction every slot has to be held already ([`keyspace::Locked::visit`]).
//!
//! A cursor of SCAN is the place where the next call goes on, and nothing is kept between calls:
//!
//! ```text
//! bits 63-50  zero
//!      49-36  slot
//!      35-0   place within the slot's table (`ScanPosition`)
//! ```
//!
//! 0 is both the start and the end. The place within a table is a hash, so that it stays right
//! when the table grows or shrinks between two calls.

use keyspace::{Db, Key, SLOT_COUNT, ScanPosition, SlotState, View};
use resp::{Args, Reply};
use stdx::Random;
use value::glob::{self, Case};
use value::{Kind, parse_i64};

use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::family::room::{FRAME_BYTES, Room};
use crate::spec::{Command, Docs, Flags, Group, Locks};

/// Keys that SCAN visits when the client does not say.
const SCAN_COUNT_DEFAULT: usize = 10;

/// Keys that one SCAN visits at most, whatever the client says: about a tenth of a second.
const SCAN_COUNT_MAX: usize = 1_000_000;

/// Slots that RANDOMKEY looks into before it looks into all.
const RANDOM_SLOTS: usize = 8;

pub(super) const INVALID_CURSOR: CommandError = fixed("ERR invalid cursor");

const _: () = assert!(SLOT_COUNT.ilog2() + ScanPosition::BITS < 53, "cursors are exact in doubles");

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "KEYS",
        arity: 2,
        flags: Flags::READONLY,
        keys: &[],
        // It lists the keys of one moment, as in Redis, and holds up all others for as long.
        locks: Locks::All,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Lists all keys whose names match a pattern.",
            complexity: "O(N) for N keys in the database; flash is not read",
            syntax: "pattern",
        },
        run: keys,
    },
    Command {
        name: "SCAN",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Generic,
            since: "2.8.0",
            summary: "Lists keys a few at a time; a cursor says where to go on.",
            complexity: "O(1) for a call with a given COUNT, O(N) for a whole walk over N keys; flash is not read",
            syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        },
        run: scan,
    },
    Command {
        name: "RANDOMKEY",
        arity: 1,
        flags: Flags::READONLY,
        keys: &[],
        locks: Locks::None,
        docs: Docs {
            group: Group::Generic,
            since: "1.0.0",
            summary: "Names a key picked at random.",
            complexity: "O(1), or one look into every slot when the database has few keys",
            syntax: "",
        },
        run: random_key,
    },
];

/// Which keys a walk lists.
struct Filter<'a> {
    /// None: any name.
    pattern: Option<&'a [u8]>,
    /// None: any type.
    type_name: Option<&'a [u8]>,
    now_ms: u64,
}

impl<'a> Filter<'a> {
    fn all(now_ms: u64) -> Filter<'a> {
        Filter { pattern: None, type_name: None, now_ms }
    }

    /// `*` alone also matches the empty name, which the matcher itself does not.
    fn set_pattern(&mut self, pattern: &'a [u8]) {
        self.pattern = (pattern != b"*").then_some(pattern);
    }

    fn lists(&self, view: &View<'_>) -> bool {
        let type_name = Kind::from_bits(view.kind).type_name().as_bytes();
        self.pattern.is_none_or(|pattern| glob::matches(pattern, view.key, Case::Sensitive))
            && self.type_name.is_none_or(|wanted| wanted.eq_ignore_ascii_case(type_name))
            && !self.is_expired(view)
    }

    fn is_expired(&self, view: &View<'_>) -> bool {
        view.expire_at_ms != 0 && view.expire_at_ms <= self.now_ms
    }
}

fn keys(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut filter = Filter::all(cx.now_ms);
    filter.set_pattern(&args[1]);
    let (keyspace, db) = (cx.keyspace(), cx.db);
    let mut names = Names::new(cx, reply);
    for slot in 0..SLOT_COUNT as u16 {
        cx.locked.visit(slot, |state| {
            let table = keyspace.table_of(db);
            state.scan(table, ScanPosition::default(), |view| {
                if filter.lists(&view) {
                    names.add(view.key);
                }
                false
            });
        });
    }
    names.end(|_| ())
}

/// Names at the end of a reply, as an array whose length is not known before its end. Those that there is no
/// memory for are counted alone.
struct Names<'r> {
    reply: &'r mut Reply,
    /// Where the first begins.
    start: usize,
    count: usize,
    room: Room,
}

impl<'r> Names<'r> {
    fn new(cx: &Cx<'_, '_>, reply: &'r mut Reply) -> Names<'r> {
        let (start, room) = (reply.len(), Room::new(cx.reply_bytes_max));
        Names { reply, start, count: 0, room }
    }

    fn add(&mut self, name: &[u8]) {
        let bytes = name.len() as u64 + FRAME_BYTES;
        if self.room.takes(bytes, self.reply) {
            self.reply.bulk(name);
            self.count += 1;
        }
    }

    /// Ends the array, behind what `write` writes in front of it.
    ///
    /// Errors: [`CommandError::ReplyTooLong`].
    fn end(self, write: impl FnOnce(&mut Reply)) -> CommandResult {
        self.room.end(&Key::new(b""), self.reply)?;
        self.reply.header_from(self.start, |reply| {
            write(reply);
            reply.array(self.count);
        });
        Ok(())
    }
}

fn scan(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let cursor = args.get(1).and_then(parse_cursor).ok_or(INVALID_CURSOR)?;
    let (filter, count) = scan_options(args, cx.now_ms)?;
    let mut names = Names::new(cx, reply);
    let next = match Walk::from_cursor(cursor) {
        Some(walk) => walk.run(cx, &filter, count, &mut names),
        // A cursor that no call can have given.
        None => 0,
    };
    names.end(|reply| {
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
    })
}

/// A cursor as C's `strtoul` reads it, which Redis leaves it to: signs and no digits at all pass.
pub(super) fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })?;
    Some(if negative { magnitude.wrapping_neg() } else { magnitude })
}

fn scan_options<'a>(args: Args<'a>, now_ms: u64) -> Result<(Filter<'a>, usize), CommandError> {
    let mut filter = Filter::all(now_ms);
    let mut count = SCAN_COUNT_DEFAULT;
    let mut rest = args.from(2).iter();
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or(CommandError::SYNTAX)?;
        if option.eq_ignore_ascii_case(b"COUNT") {
            count = parse_count(value)?;
        } else if option.eq_ignore_ascii_case(b"MATCH") {
            filter.set_pattern(value);
        } else if option.eq_ignore_ascii_case(b"TYPE") {
            filter.type_name = Some(value);
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    Ok((filter, count.min(SCAN_COUNT_MAX)))
}

fn parse_count(text: &[u8]) -> Result<usize, CommandError> {
    let number = parse_i64(text).ok_or(CommandError::NOT_INTEGER)?;
    let number = usize::try_from(number).ok().filter(|&number| number > 0);
    number.ok_or(CommandError::SYNTAX)
}

/// Which elements a walk over a collection lists: the options of HSCAN and its like.
pub(super) struct ElementFilter<'a> {
    /// None: any.
    pattern: Option<&'a [u8]>,
    /// Elements that the walk visits, about.
    pub(super) count: usize,
}

impl<'a> ElementFilter<'a> {
    /// Reads the options behind the cursor.
    pub(super) fn parse(args: Args<'a>) -> Result<ElementFilter<'a>, CommandError> {
        let mut filter = ElementFilter { pattern: None, count: SCAN_COUNT_DEFAULT };
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or(CommandError::SYNTAX)?;
            if option.eq_ignore_ascii_case(b"COUNT") {
                filter.count = parse_count(value)?.min(SCAN_COUNT_MAX);
            } else if option.eq_ignore_ascii_case(b"MATCH") {
                filter.pattern = (value != b"*").then_some(value);
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(filter)
    }

    /// Whether an element is listed.
    pub(super) fn lists(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element, Case::Sensitive))
    }
}

/// The place that a SCAN has come to.
struct Walk {
    slot: u16,
    position: ScanPosition,
}

impl Walk {
    fn from_cursor(cursor: u64) -> Option<Walk> {
        let slot = u16::try_from(cursor >> ScanPosition::BITS).ok()?;
        let position = ScanPosition::unpack(cursor);
        (usize::from(slot) < SLOT_COUNT).then_some(Walk { slot, position })
    }

    fn cursor(&self) -> u64 {
        u64::from(self.slot) << ScanPosition::BITS | self.position.packed()
    }

    /// Visits about `count` keys, whether they are listed or not, and returns the next cursor.
    /// Cost: at most one look into each slot besides.
    fn run(
        mut self,
        cx: &mut Cx<'_, '_>,
        filter: &Filter<'_>,
        count: usize,
        names: &mut Names<'_>,
    ) -> u64 {
        let (keyspace, db) = (cx.keyspace(), cx.db);
        let (now_ms, tally) = (cx.now_ms, &mut *cx.tally);
        let mut visited = 0;
        while visited < count {
            let next = cx.locked.visit(self.slot, |state| {
                let table = keyspace.table_of(db);
                let mut expired: Vec<Box<[u8]>> = Vec::new();
                let next = state.scan(table, self.position, |view| {
                    visited += 1;
                    if filter.lists(&view) {
                        names.add(view.key);
                    } else if filter.is_expired(&view) {
                        expired.push(view.key.into());
                    }
                    visited >= count
                });
                // A look-up removes a key whose time has come.
                for name in expired {
                    Db::new(state, table, now_ms, tally).peek(&Key::new(&name));
                }
                next
            });
            match next {
                Some(position) => self.position = position,
                None if usize::from(self.slot) + 1 == SLOT_COUNT => return 0,
                None => self = Walk { slot: self.slot + 1, position: ScanPosition::default() },
            }
        }
        self.cursor()
    }
}

/// Picks with chances in proportion to the number of keys in each of a few random slots: as good as
/// uniform unless hash tags crowd most keys into few slots. A database with so few keys that those
/// slots are empty is walked whole, and every key has the same chance.
fn random_key(cx: &mut Cx<'_, '_>, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let mut random = Random::new(cx.random);
    let some: [u16; RANDOM_SLOTS] = std::array::from_fn(|_| random.below(SLOT_COUNT as u64) as u16);
    let picked = pick_key(cx, some.into_iter(), &mut random);
    // The number of keys would not tell that there are none: what other workers have added is counted later.
    let picked = picked.or_else(|| pick_key(cx, 0..SLOT_COUNT as u16, &mut random));
    match picked {
        Some(name) => reply.bulk(&name),
        None => reply.null(),
    }
    Ok(())
}

/// A key of some of the slots, each with the same chance (reservoir sampling by slot).
fn pick_key(
    cx: &mut Cx<'_, '_>,
    slots: impl Iterator<Item = u16>,
    random: &mut Random,
) -> Option<Box<[u8]>> {
    let (keyspace, db) = (cx.keyspace(), cx.db);
    let (now_ms, tally) = (cx.now_ms, &mut *cx.tally);
    let (mut total, mut picked) = (0, None);
    for slot in slots {
        cx.locked.visit(slot, |state: &mut SlotState| {
            let table = keyspace.table_of(db);
            if state.may_have_expired(now_ms) {
                state.expire(now_ms, tally);
            }
            let count = state.len(table) as u64;
            total += count;
            let chosen = if total > 0 { random.below(total) } else { 0 };
            if chosen < count {
                picked = state.nth(table, chosen).map(|view| view.key.into());
            }
        });
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Harness, check};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn cursors_are_read_as_strtoul_does() {
        let cases: [(&str, Option<u64>); 12] = [
            ("", Some(0)),
            ("0", Some(0)),
            ("007", Some(7)),
            ("+0", Some(0)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("x", None),
            ("-", None),
            (" 0", None),
            ("0 ", None),
            ("1x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_cursor(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn listing_few_keys() {
        check(&[
            ("KEYS *", "[]"),
            ("SCAN 0", "[$1 0, []]"),
            ("MSET foo 1 bar 2", "+OK"),
            ("KEYS *", "[$3 bar, $3 foo]"),
            ("KEYS f*", "[$3 foo]"),
            ("KEYS foo", "[$3 foo]"),
            ("KEYS F*", "[]"),
            ("SCAN 0", "[$1 0, [$3 bar, $3 foo]]"),
            ("SCAN 0 MATCH b* COUNT 100", "[$1 0, [$3 bar]]"),
            ("SCAN 0 match * type STRING", "[$1 0, [$3 bar, $3 foo]]"),
            ("SCAN 0 TYPE list", "[$1 0, []]"),
            ("SCAN 0 TYPE nosuchtype", "[$1 0, []]"),
            ("SCAN 0 MATCH f* MATCH b*", "[$1 0, [$3 bar]]"),
            ("SCAN 18446744073709551615", "[$1 0, []]"),
            ("SCAN -1", "[$1 0, []]"),
            ("SCAN 0 COUNT 9223372036854775807", "[$1 0, [$3 bar, $3 foo]]"),
            ("SELECT 1", "+OK"),
            ("KEYS *", "[]"),
            ("SCAN 0", "[$1 0, []]"),
            ("RANDOMKEY", "_"),
        ]);
    }

    #[test]
    fn the_empty_name() {
        check(&[
            ("SET \"\" v", "+OK"),
            ("KEYS *", "[$0]"),
            ("KEYS **", "[]"),
            ("KEYS \"\"", "[$0]"),
            ("SCAN 0 MATCH *", "[$1 0, [$0]]"),
            ("RANDOMKEY", "$0"),
        ]);
    }

    #[test]
    fn options_refused() {
        let syntax = "-ERR syntax error";
        check(&[
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN x COUNT x", "-ERR invalid cursor"),
            ("SCAN 0 COUNT", syntax),
            ("SCAN 0 COUNT 0", syntax),
            ("SCAN 0 COUNT -1", syntax),
            ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("SCAN 0 MATCH", syntax),
            ("SCAN 0 FOO bar", syntax),
            ("SCAN 0 TYPE string FOO", syntax),
        ]);
    }

    /// The cursor and the names of a SCAN reply as the harness shows it.
    fn scan_reply(shown: &str) -> (String, Vec<String>) {
        let inner = shown.strip_prefix("[$").and_then(|rest| rest.strip_suffix("]]"));
        let (cursor, names) = inner.expect("a reply of SCAN").split_once(", [").expect("names");
        let bulk = |text: &str| text.split_once(' ').expect("a bulk").1.to_owned();
        (bulk(cursor), names.split(", ").filter(|name| !name.is_empty()).map(bulk).collect())
    }

    #[test]
    fn a_walk_finds_all_that_stays_however_the_keyspace_changes() {
        for count in [1, 10, 700] {
            let mut server = Harness::new(false);
            // Some slots with many keys, most with none or one.
            let name = |number: u32| match number % 2 {
                0 => format!("{{tag{}}}{number}", number % 6),
                _ => number.to_string(),
            };
            (0..2_000).for_each(|number| {
                server.run(&format!("SET {} v", name(number)));
            });
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            let (mut cursor, mut extra) = ("0".to_owned(), 2_000);
            let mut calls = 0;
            loop {
                let shown = server.run(&format!("SCAN {cursor} COUNT {count}"));
                let (next, names) = scan_reply(&shown);
                assert!(names.len() <= count + 4, "a run of equal tags at most on top");
                names.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
                calls += 1;
                cursor = next;
                if cursor == "0" {
                    break;
                }
                if extra < 4_000 {
                    (extra..extra + 20).for_each(|number| {
                        server.run(&format!("SET {} v", name(number)));
                    });
                    (extra..extra + 10).for_each(|number| {
                        server.run(&format!("DEL {}", name(number)));
                    });
                    extra += 20;
                }
            }
            assert!((0..2_000).all(|number| seen.contains_key(&name(number))));
            assert!(calls >= 2_000 / (count + 4));
            if count == 700 {
                assert!(seen.values().all(|&times| times == 1));
            }
        }
    }

    #[test]
    fn expired_keys_are_neither_listed_nor_kept() {
        let mut server = Harness::new(false);
        server.run("SET stays v");
        (0..50).for_each(|number| {
            server.run(&format!("SET {number} v PX 10"));
        });
        server.now_ms += 10;
        assert_eq!(server.run("KEYS *"), "[$5 stays]");
        assert_eq!(server.run("SCAN 0 COUNT 100"), "[$1 0, [$5 stays]]");
        assert_eq!(server.run("DBSIZE"), ":1");
        server.run("SET k v PX 10");
        server.run("DEL stays");
        server.now_ms += 10;
        assert_eq!(server.run("RANDOMKEY"), "_");
        assert_eq!(server.run("DBSIZE"), ":0");
    }

    #[test]
    fn every_key_is_picked_at_random_sooner_or_later() {
        for keys in [3, 3_000] {
            let mut server = Harness::new(false);
            let names: BTreeSet<String> = (0..keys).map(|number| format!("key{number}")).collect();
            for name in &names {
                server.run(&format!("SET {name} v"));
            }
            let mut picked = BTreeSet::new();
            for random in 0..3 * keys {
                server.random = random * 1_000_003;
                let shown = server.run("RANDOMKEY");
                picked.insert(shown.split_once(' ').expect("a name").1.to_owned());
            }
            assert!(picked.is_subset(&names));
            // Uniform picks would leave 5 % out.
            assert!(picked.len() * 100 >= names.len() * 90, "{} of {keys}", picked.len());
        }
    }
}
