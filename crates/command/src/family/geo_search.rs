//! Members near a place: GEOSEARCH, GEOSEARCHSTORE, and GEORADIUS and its like, which they took the place of.
//!
//! The places around are told by the cell of the middle and its neighbours, a range of scores each: no other
//! members are looked at.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use keyspace::Key;
use resp::{Args, Reply};
use value::geo::{Position, Shape};
use value::leaf::scored::compare;
use value::number::parse_f64;
use value::parse_i64;
use value::range::ScoreRange;

use super::geo::{parse_position, parse_unit, write_distance, write_position};
use super::room::Gathering;
use crate::collection::{Copies, Made, SortedSet};
use crate::cx::Cx;
use crate::effect::Event;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{
    Begin, Command, Docs, Find, Flags, Group, Handler, KeyFlags, KeySpec, Locks, Needs,
};

const READ: Flags = Flags::READONLY.and(Flags::REPLIES_VALUES);
const SEARCHED: KeySpec = KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value);
const STORED: KeyFlags = KeyFlags::OW.and(KeyFlags::UPDATE);

const SEARCHED_ALONE: &[KeySpec] = &[SEARCHED];
const STORED_FROM_6: &[KeySpec] =
    &[SEARCHED, stored_behind("STORE", 6), stored_behind("STOREDIST", 6)];
const STORED_FROM_5: &[KeySpec] =
    &[SEARCHED, stored_behind("STORE", 5), stored_behind("STOREDIST", 5)];

const fn stored_behind(keyword: &'static str, from: isize) -> KeySpec {
    KeySpec {
        flags: STORED,
        needs: Needs::KeyOnly,
        begin: Begin::Keyword(keyword, from),
        find: Find::Range { last: 0, step: 1 },
    }
}

const NO_MEMBER: CommandError = fixed("ERR could not decode requested zset member");
const NO_RADIUS: CommandError = fixed("ERR need numeric radius");
const NEGATIVE_RADIUS: CommandError = fixed("ERR radius cannot be negative");
const NO_WIDTH: CommandError = fixed("ERR need numeric width");
const NO_HEIGHT: CommandError = fixed("ERR need numeric height");
const NEGATIVE_BOX: CommandError = fixed("ERR height or width cannot be negative");
const NO_COUNT: CommandError = fixed("ERR COUNT must be > 0");
const ANY_OF_ALL: CommandError = fixed("ERR the ANY argument requires COUNT argument");

/// Bytes that are held of a member that was found, beside a copy of it.
const FOUND_BYTES: usize = 64;
/// Bytes that are held beside it, and beside the rows of a leaf that are made of it, when it is stored: its
/// place, the numbers of these rows, its hash, its place in the index.
const STORED_BYTES: usize = 96;
/// How often a member that is stored is held at once: a copy, the columns of a leaf while they grow, the leaf
/// of all that is made of them and then becomes a tree.
const STORED_TIMES: usize = 4;
/// Bytes that a reply has of what is told of a member, or around it.
const PART_BYTES: usize = 48;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "GEOSEARCH",
        arity: -7,
        flags: READ,
        keys: SEARCHED_ALONE,
        locks: Locks::Keys,
        docs: docs(
            "6.2.0",
            "Returns the members in a circle or a rectangle.",
            "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        ),
        run: geosearch,
    },
    Command {
        name: "GEOSEARCHSTORE",
        arity: -8,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[
            KeySpec::at(1, STORED, Needs::KeyOnly),
            KeySpec::at(2, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value),
        ],
        locks: Locks::Keys,
        docs: docs(
            "6.2.0",
            "Sets a key to the members in a circle or a rectangle.",
            "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        ),
        run: geosearchstore,
    },
    radius_command(
        "GEORADIUS",
        -6,
        STORED_FROM_6,
        "Returns the members around a place, or sets a key to them.",
        "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
        georadius,
    ),
    radius_command(
        "GEORADIUSBYMEMBER",
        -5,
        STORED_FROM_5,
        "Returns the members around another, or sets a key to them.",
        "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
        georadiusbymember,
    ),
    radius_command(
        "GEORADIUS_RO",
        -6,
        SEARCHED_ALONE,
        "Returns the members around a place.",
        "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        georadius_ro,
    ),
    radius_command(
        "GEORADIUSBYMEMBER_RO",
        -5,
        SEARCHED_ALONE,
        "Returns the members around another.",
        "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        georadiusbymember_ro,
    ),
];

const fn docs(since: &'static str, summary: &'static str, syntax: &'static str) -> Docs {
    let complexity = "O(N+log(M)) for N members of M in the cells around what is searched";
    Docs { group: Group::Geo, since, summary, complexity, syntax }
}

const fn radius_command(
    name: &'static str,
    arity: i32,
    keys: &'static [KeySpec],
    summary: &'static str,
    syntax: &'static str,
    run: Handler,
) -> Command {
    let is_store = keys.len() > 1;
    let flags = match is_store {
        true => Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS).and(Flags::REPLIES_VALUES),
        false => READ,
    };
    let since = if is_store { "3.2.0" } else { "3.2.10" };
    Command {
        name,
        arity,
        flags,
        keys,
        locks: Locks::Keys,
        docs: docs(since, summary, syntax),
        run,
    }
}

/// How a command names the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Middle {
    /// By two numbers in front of the options.
    Position,
    /// By a member in front of the options.
    Member,
    /// By an option.
    Option,
}

/// What a command is for, as its name says.
#[derive(Clone, Copy)]
struct Form {
    middle: Middle,
    /// GEOSEARCHSTORE.
    stores: bool,
    /// An option may say where to store.
    may_store: bool,
}

impl Form {
    const fn of(middle: Middle) -> Form {
        Form { middle, stores: false, may_store: false }
    }
}

fn geosearch(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    search(cx, args, Form::of(Middle::Option), reply)
}

fn geosearchstore(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    search(cx, args, Form { stores: true, ..Form::of(Middle::Option) }, reply)
}

fn georadius(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    search(cx, args, Form { may_store: true, ..Form::of(Middle::Position) }, reply)
}

fn georadiusbymember(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    search(cx, args, Form { may_store: true, ..Form::of(Middle::Member) }, reply)
}

fn georadius_ro(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    search(cx, args, Form::of(Middle::Position), reply)
}

fn georadiusbymember_ro(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    search(cx, args, Form::of(Middle::Member), reply)
}

/// In which order members are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    NearestFirst,
    FarthestFirst,
}

/// What is searched, and what becomes of it.
#[derive(Default)]
struct Query<'a> {
    /// None: the member that was named is not looked for, since there is no sorted set.
    middle: Option<Position>,
    shape: Option<Shape>,
    /// Meters.
    unit: f64,
    /// 0: all.
    count: u64,
    /// Any of those that are found first.
    any: bool,
    order: Option<Order>,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    store: Option<&'a [u8]>,
    stores_distance: bool,
}

impl<'a> Query<'a> {
    /// Reads what stands behind the searched key.
    ///
    /// Errors: those of the arguments, and [`CommandError::NotResident`] for a member that is named.
    fn parse(
        args: Args<'a>,
        form: Form,
        set: &mut Option<SortedSet<'_>>,
        name: &[u8],
    ) -> Result<Query<'a>, CommandError> {
        let mut query = Query { unit: 1.0, ..Query::default() };
        let options = match form.middle {
            Middle::Option => args,
            Middle::Position => {
                query.middle = Some(parse_position(&args[0], &args[1])?);
                query.set_radius(&args[2], &args[3])?;
                args.from(4)
            }
            // Without a sorted set Redis does not look at the radius.
            Middle::Member if set.is_none() => args.from(3),
            Middle::Member => {
                query.middle = position_of(set, &args[0])?;
                query.set_radius(&args[1], &args[2])?;
                args.from(3)
            }
        };
        let has_middle = query.parse_options(options, form, set)?;
        query.check(form, has_middle, name)?;
        Ok(query)
    }

    /// Reads the options. Returns whether one names a middle.
    fn parse_options(
        &mut self,
        options: Args<'a>,
        form: Form,
        set: &mut Option<SortedSet<'_>>,
    ) -> Result<bool, CommandError> {
        let is_search = form.middle == Middle::Option;
        let (mut from_member, mut from_position) = (false, false);
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            let left = rest.len();
            let mut next = || rest.next().expect("invariant: they are counted");
            if is("WITHDIST") {
                self.with_distance = true;
            } else if is("WITHHASH") {
                self.with_hash = true;
            } else if is("WITHCOORD") {
                self.with_position = true;
            } else if is("ANY") {
                self.any = true;
            } else if is("ASC") {
                self.order = Some(Order::NearestFirst);
            } else if is("DESC") {
                self.order = Some(Order::FarthestFirst);
            } else if is("COUNT") && left >= 1 {
                let count = parse_i64(next()).ok_or(CommandError::NOT_INTEGER)?;
                self.count =
                    u64::try_from(count).ok().filter(|&count| count > 0).ok_or(NO_COUNT)?;
            } else if form.may_store && left >= 1 && (is("STORE") || is("STOREDIST")) {
                self.stores_distance = is("STOREDIST");
                self.store = Some(next());
            } else if is_search && left >= 1 && !from_position && is("FROMMEMBER") {
                self.middle = position_of(set, next())?;
                from_member = true;
            } else if is_search && left >= 2 && !from_member && is("FROMLONLAT") {
                self.middle = Some(parse_position(next(), next())?);
                from_position = true;
            } else if is_search && left >= 2 && !self.is_box() && is("BYRADIUS") {
                self.set_radius(next(), next())?;
            } else if is_search && left >= 3 && !self.is_circle() && is("BYBOX") {
                self.set_box(next(), next(), next())?;
            } else if form.stores && is("STOREDIST") {
                self.stores_distance = true;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(from_member || from_position)
    }

    fn check(&mut self, form: Form, has_middle: bool, name: &[u8]) -> CommandResult {
        let name = String::from_utf8_lossy(name);
        let stores = form.stores || self.store.is_some();
        if stores && (self.with_distance || self.with_hash || self.with_position) {
            let what = if form.stores { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(CommandError::owned(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if form.middle == Middle::Option && !has_middle {
            return Err(CommandError::owned(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if form.middle == Middle::Option && self.shape.is_none() {
            return Err(CommandError::owned(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if self.any && self.count == 0 {
            return Err(ANY_OF_ALL);
        }
        if self.count != 0 && !self.any && self.order.is_none() {
            self.order = Some(Order::NearestFirst);
        }
        Ok(())
    }

    fn is_circle(&self) -> bool {
        matches!(self.shape, Some(Shape::Circle { .. }))
    }

    fn is_box(&self) -> bool {
        matches!(self.shape, Some(Shape::Box { .. }))
    }

    fn set_radius(&mut self, radius: &[u8], unit: &[u8]) -> CommandResult {
        let radius = parse_f64(radius).ok_or(NO_RADIUS)?;
        if radius < 0.0 {
            return Err(NEGATIVE_RADIUS);
        }
        self.unit = parse_unit(unit)?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit });
        Ok(())
    }

    fn set_box(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> CommandResult {
        let width = parse_f64(width).ok_or(NO_WIDTH)?;
        let height = parse_f64(height).ok_or(NO_HEIGHT)?;
        if width < 0.0 || height < 0.0 {
            return Err(NEGATIVE_BOX);
        }
        self.unit = parse_unit(unit)?;
        self.shape = Some(Shape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }
}

/// The place of a member. None: there is no sorted set.
///
/// Errors: it has no such member, [`CommandError::NotResident`].
fn position_of(
    set: &mut Option<SortedSet<'_>>,
    member: &[u8],
) -> Result<Option<Position>, CommandError> {
    let Some(set) = set else { return Ok(None) };
    let score = set.score(member)?.ok_or(NO_MEMBER)?;
    Ok(Some(Position::from_score(score)))
}

/// A member that was found.
struct Found {
    /// Which of the copies it is.
    at: usize,
    /// Meters.
    distance: f64,
}

impl Found {
    /// The first first, and where two are as far away the one that was found first.
    fn compare(&self, other: &Found, order: Order) -> Ordering {
        let by_distance = match order {
            Order::NearestFirst => self.distance.total_cmp(&other.distance),
            Order::FarthestFirst => other.distance.total_cmp(&self.distance),
        };
        by_distance.then(self.at.cmp(&other.at))
    }
}

fn search(cx: &mut Cx<'_, '_>, args: Args<'_>, form: Form, reply: &mut Reply) -> CommandResult {
    let (source, behind) = if form.stores { (cx.key(1), 3) } else { (cx.key(0), 2) };
    let (keys, reply_bytes_max, bytes_max) =
        (cx.keys, cx.reply_bytes_max, cx.limits.memory_bytes_max() as u64);
    let mut memory = Gathering::new(&source, reply_bytes_max, reply).of_copies();
    cx.count_read(&source);
    let mut set = cx.read_sorted_set(&source)?;
    let query = Query::parse(args.from(behind), form, &mut set, &args[0])?;
    let is_stored = form.stores || query.store.is_some();
    let mut copies = Copies::default();
    let mut found = match &mut set {
        Some(set) => find(set, (&query, is_stored), &mut copies, (&mut memory, bytes_max))?,
        None => Vec::new(),
    };
    let count = if query.count == 0 { found.len() } else { found.len().min(query.count as usize) };
    if let Some(order) = query.order {
        found.sort_unstable_by(|one, two| one.compare(two, order));
    }
    found.truncate(count);
    let target = match query.store {
        _ if form.stores => Some(cx.key(0)),
        None => None,
        // One that stands behind the same option again is no key to whoever locked the slots.
        Some(name) => {
            let is_target = |key: &&Key<'_>| key.bytes == name;
            Some(*keys[1..].iter().find(is_target).ok_or(CommandError::SYNTAX)?)
        }
    };
    match target {
        Some(target) => store(cx, &target, (&query, form), (found, copies), reply),
        None => answer(&query, (&found, &copies), memory, reply),
    }
}

/// Copies the members that are searched, as far as there is `memory`; where there is not enough, all are
/// counted. They may take `bytes_max` at most.
///
/// Errors: [`CommandError::NotResident`], [`CommandError::OUT_OF_MEMORY`], [`CommandError::ReplyTooLong`].
fn find(
    set: &mut SortedSet<'_>,
    (query, is_stored): (&Query<'_>, bool),
    copies: &mut Copies,
    (memory, bytes_max): (&mut Gathering<'_>, u64),
) -> Result<Vec<Found>, CommandError> {
    let mut found: Vec<Found> = Vec::new();
    let Some((middle, shape)) = query.middle.zip(query.shape) else { return Ok(found) };
    let ranges = shape.ranges(middle);
    let range =
        |&(min, max): &(f64, f64)| ScoreRange { min, excludes_min: false, max, excludes_max: true };
    let ranges: Vec<ScoreRange> = ranges.iter().map(range).collect();
    let ranks = set.announce_scores(&ranges)?;
    let bytes_of = |member: &[u8]| match is_stored {
        true => STORED_TIMES * member.len() + STORED_BYTES,
        false => member.len() + FOUND_BYTES,
    };
    // As many as are looked at, if there is memory for as many: while a list grows it is there twice.
    let looked_at = ranks.iter().map(|ranks| ranks.end - ranks.start).sum::<u64>();
    let wanted = if query.any { looked_at.min(query.count) } else { looked_at };
    let room = wanted.min(memory.bytes_left() / bytes_of(b"") as u64);
    found.reserve_exact(room as usize);
    copies.reserve(room as usize, if room > 0 { set.bytes_of(room) as usize } else { 0 });
    let is_enough = |found: &[Found]| query.any && found.len() as u64 >= query.count;
    for ranks in ranks {
        if is_enough(&found) {
            break;
        }
        set.visit(ranks, false, |member, score| {
            let position = Position::from_score(score);
            if let Some(distance) = shape.distance(&middle, &position)
                && memory.take(bytes_of(member))
            {
                found.push(Found { at: found.len(), distance });
                copies.push(member, score);
            }
            match is_enough(&found) || memory.bytes() > bytes_max {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if memory.bytes() > bytes_max {
            return Err(CommandError::OUT_OF_MEMORY);
        }
    }
    memory.check()?;
    Ok(found)
}

/// Errors: [`CommandError::ReplyTooLong`].
fn answer(
    query: &Query<'_>,
    (found, copies): (&[Found], &Copies),
    mut memory: Gathering<'_>,
    reply: &mut Reply,
) -> CommandResult {
    let options = [query.with_distance, query.with_hash, query.with_position];
    let parts = 1 + options.into_iter().filter(|is| *is).count();
    let bytes_of = |found: &Found| copies.member(found.at).1.len() + parts * PART_BYTES;
    let bytes = found.iter().map(bytes_of).sum();
    memory.take(bytes);
    memory.check()?;
    reply.reserve(bytes);
    reply.array(found.len());
    for Found { at, distance } in found {
        let (score, member) = copies.member(*at);
        if parts > 1 {
            reply.array(parts);
        }
        reply.bulk(member);
        if query.with_distance {
            write_distance(distance / query.unit, reply);
        }
        if query.with_hash {
            reply.integer(score as i64);
        }
        if query.with_position {
            write_position(&Position::from_score(score), reply);
        }
    }
    Ok(())
}

fn store(
    cx: &mut Cx<'_, '_>,
    target: &Key<'_>,
    (query, form): (&Query<'_>, Form),
    (found, copies): (Vec<Found>, Copies),
    reply: &mut Reply,
) -> CommandResult {
    let stored = |found: &Found| match (query.stores_distance, copies.member(found.at)) {
        (true, (_, member)) => (found.distance / query.unit, member),
        (false, copy) => copy,
    };
    let mut stored: Vec<(f64, &[u8])> = found.iter().map(stored).collect();
    drop(found);
    // Around the whole earth a member may be found twice, with the same score.
    stored.sort_unstable_by(|one, two| compare(*one, *two));
    stored.dedup_by_key(|(_, member)| *member);
    let event = match form.middle {
        Middle::Option => Event::GEOSEARCHSTORE,
        _ => Event::GEORADIUSSTORE,
    };
    let count = stored.len();
    cx.store_sorted_set(target, &mut stored, Made::AtOnce)?;
    drop(stored);
    drop(copies);
    cx.end_stored_sorted_set(target, (event, count as u64));
    reply.integer(count as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check, check_events};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const ADD: &str = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 13.583333 37.316667 Agrigento";

    /// What redis-server 7.0 answers.
    #[test]
    fn members_near_a_place() {
        check(&[
            (ADD, ":3"),
            ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 100 km", "[$7 Catania]"),
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC",
                "[$7 Catania, $9 Agrigento, $7 Palermo]",
            ),
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km DESC COUNT 2",
                "[$7 Palermo, $9 Agrigento]",
            ),
            ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km COUNT 2", "[$7 Catania, $9 Agrigento]"),
            ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1 ANY", "[$9 Agrigento]"),
            ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 m", "[$7 Palermo]"),
            ("GEORADIUSBYMEMBER g Palermo 100 km ASC", "[$7 Palermo, $9 Agrigento]"),
            (
                "GEORADIUSBYMEMBER_RO g Palermo 200 km COUNT 1 ANY ASC WITHDIST",
                "[[$9 Agrigento, $7 90.9778]]",
            ),
            (
                "GEORADIUS g 15 37 200 km WITHDIST WITHCOORD WITHHASH COUNT 1 ASC",
                "[[$7 Catania, $7 56.4413, :3479447370796909, [,15.08726745843887329, ,37.50266842333162032]]]",
            ),
            ("GEORADIUS_RO g 15 37 60 km WITHHASH", "[[$7 Catania, :3479447370796909]]"),
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHDIST",
                "[[$7 Catania, $7 56.4413], [$9 Agrigento, $8 130.4235], [$7 Palermo, $8 190.4424]]",
            ),
            ("GEOSEARCH g FROMLONLAT 15 37 BYBOX 10 400 km", "[]"),
            ("GEOSEARCH missing FROMLONLAT 15 37 BYBOX 400 400 km", "[]"),
            ("GEOSEARCH missing FROMMEMBER a BYBOX 400 400 km", "[]"),
            ("GEORADIUSBYMEMBER missing a x km", "[]"),
        ]);
    }

    #[test]
    fn results_are_stored() {
        check(&[
            (ADD, ":3"),
            ("GEOSEARCHSTORE to g FROMLONLAT 15 37 BYRADIUS 200 km ASC COUNT 2", ":2"),
            (
                "ZRANGE to 0 -1 WITHSCORES",
                "[[$9 Agrigento, ,3479030013248308], [$7 Catania, ,3479447370796909]]",
            ),
            ("GEOSEARCHSTORE to g FROMLONLAT 15 37 BYBOX 400 400 km STOREDIST", ":3"),
            (
                "ZRANGE to 0 -1 WITHSCORES",
                "[[$7 Catania, ,56.441257870158204], [$9 Agrigento, ,130.42348706714702], [$7 Palermo, ,190.44242984775784]]",
            ),
            ("GEORADIUS g 15 37 100 km STORE to", ":1"),
            ("ZRANGE to 0 -1", "[$7 Catania]"),
            ("GEORADIUSBYMEMBER g Catania 1 km STORE other STOREDIST to", ":1"),
            ("ZSCORE to Catania", ",0"),
            ("EXISTS other", ":0"),
            ("GEORADIUS g 0 0 1 km STORE to", ":0"),
            ("EXISTS to", ":0"),
            ("GEORADIUS missing 0 0 1 km STORE g", ":0"),
            ("EXISTS g", ":0"),
        ]);
        check_events(&[
            (ADD, "new g, zadd g"),
            ("GEORADIUS g 15 37 200 km STORE to", "new to, georadiusstore to"),
            ("GEOSEARCHSTORE to g FROMLONLAT 15 37 BYRADIUS 200 km", "geosearchstore to"),
            ("GEOSEARCHSTORE to g FROMLONLAT 0 0 BYRADIUS 1 km", "del to"),
            ("GEOSEARCHSTORE to x FROMLONLAT 0 0 BYRADIUS 1 km", "keymiss x"),
        ]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let syntax = "-ERR syntax error";
        let middle = "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch";
        let shape = "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH";
        let decode = "-ERR could not decode requested zset member";
        let store = "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
        let search_store =
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
        let unit = "-ERR unsupported unit provided. please use M, KM, FT, MI";
        check(&[
            (ADD, ":3"),
            ("SET s text", "+OK"),
            ("GEORADIUS s 1 1 x km", WRONG),
            ("GEOSEARCH s FROMMEMBER a BYRADIUS x km", WRONG),
            ("GEOSEARCHSTORE s s FROMMEMBER a BYRADIUS 1 km", WRONG),
            (
                "GEORADIUS g 200 37 1 km",
                "-ERR invalid longitude,latitude pair 200.000000,37.000000",
            ),
            ("GEORADIUS g x 37 1 km", "-ERR value is not a valid float"),
            ("GEORADIUS g 1 1 x km", "-ERR need numeric radius"),
            ("GEORADIUS g 1 1 -1 km", "-ERR radius cannot be negative"),
            ("GEORADIUS g 1 1 1 parsec", unit),
            ("GEORADIUS g 1 1 1 km COUNT 0", "-ERR COUNT must be > 0"),
            ("GEORADIUS g 1 1 1 km COUNT x", "-ERR value is not an integer or out of range"),
            ("GEORADIUS g 1 1 1 km COUNT", syntax),
            ("GEORADIUS g 1 1 1 km ANY", "-ERR the ANY argument requires COUNT argument"),
            ("GEORADIUS g 1 1 1 km STORE", syntax),
            ("GEORADIUS g 1 1 1 km WITHDIST STORE to", store),
            ("GEORADIUS_RO g 1 1 1 km STORE to", syntax),
            ("GEORADIUSBYMEMBER g none 1 km", decode),
            ("GEORADIUSBYMEMBER g Palermo x km", "-ERR need numeric radius"),
            ("GEOSEARCH g FROMMEMBER none BYRADIUS 1 km", decode),
            ("geosearch g BYRADIUS 1 km ASC DESC COUNT 1", middle),
            ("GEOSEARCH g FROMLONLAT 1 1 ASC DESC", shape),
            ("GEOSEARCH g FROMLONLAT 1 1 FROMMEMBER Palermo BYRADIUS 1 km", syntax),
            ("GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 km BYBOX 1 1 km", syntax),
            ("GEOSEARCH g FROMLONLAT 1 1 BYBOX 1 x km", "-ERR need numeric height"),
            ("GEOSEARCH g FROMLONLAT 1 1 BYBOX x 1 km", "-ERR need numeric width"),
            ("GEOSEARCH g FROMLONLAT 1 1 BYBOX -1 1 km", "-ERR height or width cannot be negative"),
            ("GEOSEARCH g FROMLONLAT 1 1 BYBOX 1 1 x", unit),
            ("GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 km STOREDIST", syntax),
            ("GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 km STORE to", syntax),
            ("GEOSEARCHSTORE to g FROMLONLAT 1 1 BYRADIUS 1 km WITHDIST", search_store),
        ]);
    }

    /// So many members that they are in many leaves, of which a search reads few.
    #[test]
    fn a_large_set_is_searched() {
        let mut server = Harness::new(true);
        let mut expected = 0;
        for row in 0..50 {
            let places = (0..50).map(|column| {
                let (longitude, latitude) =
                    (10.0 + f64::from(column) / 10.0, 40.0 + f64::from(row) / 10.0);
                let distance = (longitude - 12.0f64).hypot(latitude - 42.0);
                expected += u32::from(distance < 0.01);
                format!(" {longitude} {latitude} m{row}-{column}")
            });
            let places: String = places.collect();
            assert_eq!(server.run(&format!("GEOADD g{places}")), ":50");
        }
        assert_eq!(expected, 1);
        assert_eq!(server.run("GEOSEARCH g FROMLONLAT 12 42 BYRADIUS 1 km"), "[$6 m20-20]");
        assert_eq!(
            server.run("GEOSEARCH g FROMLONLAT 12 42 BYRADIUS 9 km ASC COUNT 3"),
            "[$6 m20-20, $6 m20-21, $6 m20-19]"
        );
        assert_eq!(server.run("GEOSEARCHSTORE to g FROMLONLAT 12 42 BYBOX 2000 2000 km"), ":2500");
        assert_eq!(server.run("ZCARD to"), ":2500");
    }
    #[test]
    fn what_is_found_takes_memory() {
        let mut server = Harness::new(false);
        let places: String =
            (0..1_000).map(|number| format!(" 13.{number:03} 38 {number}")).collect();
        server.run(&format!("GEOADD g{places}"));
        let line = "GEOSEARCHSTORE to g FROMLONLAT 13 38 BYRADIUS 999 km";
        server.memory_bytes_max = 100_000;
        assert_eq!(server.run(line), "-OOM command not allowed when used memory > 'maxmemory'.");
        server.memory_bytes_max = 200_000;
        assert_eq!(server.run(line), ":1000");
    }
}
