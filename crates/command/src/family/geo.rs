//! Places as scores of sorted sets: GEOADD, GEODIST, GEOHASH and GEOPOS.

use resp::{Args, Protocol, Reply};
use smallvec::SmallVec;
use value::geo::Position;
use value::number::parse_f64;

use super::sorted_set::{Options, add_all};
use crate::collection::SortedSet;
use crate::cx::Cx;
use crate::error::{CommandError, CommandResult, fixed};
use crate::spec::{Command, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs};

const ANSWERED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RO.and(KeyFlags::ACCESS), Needs::Value)];

const UNKNOWN_UNIT: CommandError = fixed("ERR unsupported unit provided. please use M, KM, FT, MI");

/// Digits of a coordinate behind the point.
const COORDINATE_DIGITS: usize = 17;
/// Digits of a distance behind the point.
const DISTANCE_DIGITS: usize = 4;

/// The rows of this file.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "GEOADD",
        arity: -5,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::at(1, KeyFlags::RW.and(KeyFlags::UPDATE), Needs::Value)],
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Geo,
            since: "3.2.0",
            summary: "Adds members with their places on the earth to a sorted set.",
            complexity: "O(log(N)) for each member of N",
            syntax: "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        },
        run: geoadd,
    },
    Command {
        name: "GEODIST",
        arity: -4,
        flags: Flags::READONLY,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Geo,
            since: "3.2.0",
            summary: "Returns the distance of two members.",
            complexity: "O(log(N)) for N members",
            syntax: "key member1 member2 [M | KM | FT | MI]",
        },
        run: geodist,
    },
    Command {
        name: "GEOHASH",
        arity: -2,
        flags: Flags::READONLY,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Geo,
            since: "3.2.0",
            summary: "Returns the places of members as hashes that other programs know.",
            complexity: "O(M*log(N)) for M members of N",
            syntax: "key member [member ...]",
        },
        run: geohash,
    },
    Command {
        name: "GEOPOS",
        arity: -2,
        flags: Flags::READONLY,
        keys: ANSWERED,
        locks: Locks::Keys,
        docs: Docs {
            group: Group::Geo,
            since: "3.2.0",
            summary: "Returns the longitudes and latitudes of members.",
            complexity: "O(M*log(N)) for M members of N",
            syntax: "key member [member ...]",
        },
        run: geopos,
    },
];

fn geoadd(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let (options, count) = Options::parse_few(args.from(2)).ok_or(CommandError::SYNTAX)?;
    let places = args.from(2 + count);
    if places.is_empty() || !places.len().is_multiple_of(3) {
        return Err(CommandError::SYNTAX);
    }
    let mut given: SmallVec<[(f64, &[u8]); 4]> = SmallVec::new();
    for at in (0..places.len()).step_by(3) {
        let position = parse_position(&places[at], &places[at + 1])?;
        let member = places.get(at + 2).expect("invariant: they are counted above");
        given.push((position.score(), member));
    }
    add_all(cx, options, &given, reply)
}

/// A place that may be stored or searched.
pub(super) fn parse_position(longitude: &[u8], latitude: &[u8]) -> Result<Position, CommandError> {
    let longitude = parse_f64(longitude).ok_or(CommandError::NOT_FLOAT)?;
    let latitude = parse_f64(latitude).ok_or(CommandError::NOT_FLOAT)?;
    let position = Position { longitude, latitude };
    if !position.is_valid() {
        let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
        return Err(CommandError::owned(text));
    }
    Ok(position)
}

/// The meters of a unit.
pub(super) fn parse_unit(text: &[u8]) -> Result<f64, CommandError> {
    match text.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(UNKNOWN_UNIT),
    }
}

fn geodist(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let unit = match args.len() {
        4 => 1.0,
        5 => parse_unit(&args[4])?,
        _ => return Err(CommandError::SYNTAX),
    };
    let key = cx.key(0);
    let mut set = cx.read_sorted_set(&key)?;
    let found = positions(&mut set, args.from(2), 2)?;
    match found[0].zip(found[1]) {
        Some((one, two)) => write_distance(one.distance(&two) / unit, reply),
        None => reply.null(),
    }
    Ok(())
}

/// The places of the first `count` members of some; none of those that are not there.
fn positions(
    set: &mut Option<SortedSet<'_>>,
    members: Args<'_>,
    count: usize,
) -> Result<Vec<Option<Position>>, CommandError> {
    let Some(set) = set else { return Ok(vec![None; count]) };
    set.announce(members.iter().take(count))?;
    let position = |member| Ok(set.score(member)?.map(Position::from_score));
    members.iter().take(count).map(position).collect()
}

/// A distance in some unit.
pub(super) fn write_distance(distance: f64, reply: &mut Reply) {
    reply.bulk(format!("{distance:.DISTANCE_DIGITS$}").as_bytes());
}

/// A place as its coordinates.
pub(super) fn write_position(position: &Position, reply: &mut Reply) {
    reply.array(2);
    for coordinate in [position.longitude, position.latitude] {
        let text = format!("{coordinate:.COORDINATE_DIGITS$}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        match reply.protocol() {
            Protocol::Resp2 => reply.bulk(text.as_bytes()),
            Protocol::Resp3 => reply.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}

fn geohash(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let members = args.from(2);
    let key = cx.key(0);
    let found = positions(&mut cx.read_sorted_set(&key)?, members, members.len())?;
    reply.array(found.len());
    for position in found {
        match position {
            Some(position) => reply.bulk(&position.hash()),
            None => reply.null(),
        }
    }
    Ok(())
}

fn geopos(cx: &mut Cx<'_, '_>, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let members = args.from(2);
    let key = cx.key(0);
    let found = positions(&mut cx.read_sorted_set(&key)?, members, members.len())?;
    reply.array(found.len());
    for position in found {
        match position {
            Some(position) => write_position(&position, reply),
            None => reply.null_array(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{check, check_events};

    #[test]
    fn places_are_added_and_asked_for() {
        check(&[
            ("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2"),
            (
                "ZRANGE g 0 -1 WITHSCORES",
                "[[$7 Palermo, ,3479099956230698], [$7 Catania, ,3479447370796909]]",
            ),
            ("GEODIST g Palermo Catania", "$11 166274.1516"),
            ("GEODIST g Palermo Catania km", "$8 166.2742"),
            ("GEODIST g Palermo Catania MI", "$8 103.3182"),
            ("GEODIST g Palermo Catania ft", "$11 545518.8700"),
            ("GEODIST g Palermo none", "_"),
            ("GEODIST missing Palermo Catania", "_"),
            ("GEODIST g Palermo Palermo", "$6 0.0000"),
            ("GEOHASH g Palermo none Catania", "[$11 sqc8b49rny0, _, $11 sqdtr74hyu0]"),
            ("GEOHASH missing a", "[_]"),
            ("GEOHASH g", "[]"),
            ("GEOPOS g Palermo none", "[[,13.36138933897018433, ,38.11555639549629859], _]"),
            ("GEOPOS missing a b", "[_, _]"),
            ("GEOPOS missing", "[]"),
            ("GEOADD g NX CH 1 1 Palermo 2 2 new", ":1"),
            ("GEOADD g XX CH 1 1 Palermo 2 2 newer", ":1"),
            ("GEOADD g xx ch 1 1 Palermo", ":0"),
            ("TYPE g", "+zset"),
        ]);
        check_events(&[("GEOADD g 1 1 a", "new g, zadd g"), ("GEOADD g 1 1 a", "")]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        let syntax = "-ERR syntax error";
        let float = "-ERR value is not a valid float";
        let unit = "-ERR unsupported unit provided. please use M, KM, FT, MI";
        check(&[
            ("SET s text", "+OK"),
            ("GEOADD s 1 1 a", wrong),
            ("GEODIST s a b", wrong),
            ("GEOHASH s a", wrong),
            ("GEOPOS s a", wrong),
            ("GEOADD s NX XX 1 1 a", syntax),
            ("GEOADD s 1 1 a 2", syntax),
            ("GEOADD s NX CH XX", syntax),
            ("GEOADD s NX NX NX", syntax),
            ("GEOADD s GT 1 1 a", syntax),
            ("GEOADD s INCR 1 1", float),
            ("GEOADD s x 1 a", float),
            ("GEOADD s 1 x a", float),
            ("GEOADD s 181 1 a", "-ERR invalid longitude,latitude pair 181.000000,1.000000"),
            ("GEOADD s 1 -86 a", "-ERR invalid longitude,latitude pair 1.000000,-86.000000"),
            ("GEOADD s inf 1 a", "-ERR invalid longitude,latitude pair inf,1.000000"),
            ("GEODIST s a b x", unit),
            ("GEODIST s a b m x", syntax),
            ("GEODIST s a", "-ERR wrong number of arguments for 'geodist' command"),
        ]);
    }
}
