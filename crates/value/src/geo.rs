//! Places on the earth in the scores of sorted sets, and which of them are near another.
//!
//! A place is 52 bits: 26 of its latitude and 26 of its longitude, interleaved, so that places with the same
//! first bits are in the same cell of a grid, and the members of a cell have scores in one range. Source:
//! G. M. Morton, "A computer oriented geodetic data base and a new technique in file sequencing", IBM 1966.
//!
//! Every result is that of redis-server 7.0 to the last bit: the order of operations on doubles counts.

use std::f64::consts::PI;

/// Radius of the earth in meters, as Redis takes it.
const EARTH_RADIUS: f64 = 6_372_797.560856;
/// Half of the earth's circumference in meters on a Mercator map.
const MERCATOR_MAX: f64 = 20_037_726.37;
/// Bits of either coordinate.
const STEP_MAX: u32 = 26;
const LONGITUDES: (f64, f64) = (-180.0, 180.0);
const LATITUDES: (f64, f64) = (-85.05112878, 85.05112878);
/// Latitudes of the hash that other programs know.
const ALL_LATITUDES: (f64, f64) = (-90.0, 90.0);
const HASH_DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Characters of that hash; the last one lacks bits and is a 0.
const HASH_LEN: usize = 11;

/// A place on the earth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// In degrees.
    pub longitude: f64,
    /// In degrees.
    pub latitude: f64,
}

impl Position {
    /// Whether it may be stored: not near the poles.
    pub fn is_valid(&self) -> bool {
        let is_in = |value: f64, (min, max): (f64, f64)| value >= min && value <= max;
        is_in(self.longitude, LONGITUDES) && is_in(self.latitude, LATITUDES)
    }

    /// The score that stands for it.
    pub fn score(&self) -> f64 {
        Cell::around(*self, STEP_MAX, LATITUDES).bits as f64
    }

    /// The place that a score stands for, the middle of its cell.
    pub fn from_score(score: f64) -> Position {
        let (longitudes, latitudes) = Cell { bits: bits_of(score), step: STEP_MAX }.area();
        let middle = |(min, max): (f64, f64), (least, greatest): (f64, f64)| {
            ((min + max) / 2.0).min(greatest).max(least)
        };
        Position {
            longitude: middle(longitudes, LONGITUDES),
            latitude: middle(latitudes, LATITUDES),
        }
    }

    /// The hash by which other programs know it.
    pub fn hash(&self) -> [u8; HASH_LEN] {
        let bits = Cell::around(*self, STEP_MAX, ALL_LATITUDES).bits;
        let mut text = [HASH_DIGITS[0]; HASH_LEN];
        for (at, digit) in text.iter_mut().enumerate().take(HASH_LEN - 1) {
            *digit = HASH_DIGITS[(bits >> (2 * STEP_MAX as usize - (at + 1) * 5)) as usize % 32];
        }
        text
    }

    /// Meters to another place, along a great circle (haversine formula).
    pub fn distance(&self, other: &Position) -> f64 {
        let (latitude, longitude) = (radians(self.latitude), radians(self.longitude));
        let (other_latitude, other_longitude) = (radians(other.latitude), radians(other.longitude));
        let v = ((other_longitude - longitude) / 2.0).sin();
        if v == 0.0 {
            // Along a meridian, rounded as Redis rounds it there.
            return EARTH_RADIUS * (other_latitude - latitude).abs();
        }
        let u = ((other_latitude - latitude) / 2.0).sin();
        let square = u * u + latitude.cos() * other_latitude.cos() * v * v;
        2.0 * EARTH_RADIUS * square.sqrt().asin()
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// A score as a whole number, as the CPU converts it where C does not say what comes out.
fn bits_of(score: f64) -> u64 {
    const LIMIT: f64 = (1u64 << 63) as f64;
    // What does not fit is the least number.
    let truncated = |number: f64| if number.abs() < LIMIT { number as i64 } else { i64::MIN };
    match score < LIMIT {
        true => truncated(score) as u64,
        false => truncated(score - LIMIT) as u64 ^ 1 << 63,
    }
}

/// The bits of a number, with a 0 in front of each.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The number of every second bit.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// Where a cell begins and ends.
type Area = ((f64, f64), (f64, f64));

/// A cell of the grid that divides each coordinate into `2^step` parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    step: u32,
}

impl Cell {
    /// The cell of a place.
    fn around(position: Position, step: u32, latitudes: (f64, f64)) -> Cell {
        let part = |value: f64, (min, max): (f64, f64)| {
            ((value - min) / (max - min) * (1u64 << step) as f64) as u32
        };
        let latitude = part(position.latitude, latitudes);
        let longitude = part(position.longitude, LONGITUDES);
        Cell { bits: spread(latitude) | spread(longitude) << 1, step }
    }

    /// Its longitudes and latitudes.
    fn area(&self) -> Area {
        let parts = (1u64 << self.step) as f64;
        let area = |part: u32, (min, max): (f64, f64)| {
            let at = |part: f64| min + (part / parts) * (max - min);
            (at(f64::from(part)), at(f64::from(part.wrapping_add(1))))
        };
        (area(gather(self.bits >> 1), LONGITUDES), area(gather(self.bits), LATITUDES))
    }

    /// The cell so many to the east and to the north, around the earth.
    fn neighbour(&self, (east, north): (i32, i32)) -> Cell {
        let mask = (1u64 << self.step) as u32 - 1;
        // The greatest coordinate of all has a bit too many, which stays where nothing is added.
        let moved = |part: u32, by: i32| match by {
            0 => part,
            by => part.wrapping_add_signed(by) & mask,
        };
        let longitude = moved(gather(self.bits >> 1), east);
        let latitude = moved(gather(self.bits), north);
        Cell { bits: spread(latitude) | spread(longitude) << 1, step: self.step }
    }

    /// The first score in it, and the first behind it.
    fn scores(&self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

/// What is searched around a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// All within so many meters.
    Circle {
        /// In meters.
        radius: f64,
    },
    /// All in a rectangle.
    Box {
        /// In meters.
        width: f64,
        /// In meters.
        height: f64,
    },
}

impl Shape {
    /// The distance of a place from the middle, in meters. None: it lies outside.
    pub fn distance(&self, middle: &Position, position: &Position) -> Option<f64> {
        match *self {
            Shape::Circle { radius } => {
                let distance = middle.distance(position);
                (distance <= radius).then_some(distance)
            }
            Shape::Box { width, height } => {
                let between = radians(position.latitude) - radians(middle.latitude);
                let to_north = EARTH_RADIUS * between.abs();
                let beside = Position { longitude: middle.longitude, ..*position };
                let is_in = to_north <= height / 2.0 && position.distance(&beside) <= width / 2.0;
                is_in.then(|| middle.distance(position))
            }
        }
    }

    /// Half of its width and of its height, and how far its corners are from the middle, in meters.
    fn extent(&self) -> (f64, f64, f64) {
        match *self {
            Shape::Circle { radius } => (radius, radius, radius),
            Shape::Box { width, height } => {
                let (width, height) = (width / 2.0, height / 2.0);
                (width, height, (width * width + height * height).sqrt())
            }
        }
    }

    /// Ranges of scores, each from its first to what is behind its last, that cover it around a place: those
    /// of a cell and of its neighbours. Around the whole earth, one may come twice.
    pub fn ranges(&self, middle: Position) -> Vec<(f64, f64)> {
        let (half_width, half_height, radius) = self.extent();
        let mut step = step_of(radius, middle.latitude);
        let mut cell = Cell::around(middle, step, LATITUDES);
        let bounds = bounds(&middle, half_width, half_height);
        if step > 1 && !covers(&cell, bounds) {
            step -= 1;
            cell = Cell::around(middle, step, LATITUDES);
        }
        let (longitudes, latitudes) = cell.area();
        let (west, east, south, north) = bounds;
        let is_needed = |(to_east, to_north): (i32, i32)| {
            // A coarse grid goes around the earth, so that a neighbour may lie on the other side, too.
            step < 2
                || !((to_north < 0 && latitudes.0 < south)
                    || (to_north > 0 && latitudes.1 > north)
                    || (to_east < 0 && longitudes.0 < west)
                    || (to_east > 0 && longitudes.1 > east))
        };
        let needed = ORDER.into_iter().filter(|direction| is_needed(*direction));
        let mut cells: Vec<(usize, Cell)> = Vec::new();
        for (at, direction) in needed.enumerate() {
            let next = cell.neighbour(direction);
            let is_repeated = cells.last().is_some_and(|(at, last)| *at > 0 && *last == next);
            if !is_repeated {
                cells.push((at, next));
            }
        }
        cells.iter().map(|(_, cell)| cell.scores()).collect()
    }
}

/// In which order Redis goes through a cell and its neighbours: steps to the east and to the north.
const ORDER: [(i32, i32); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// How fine the grid may be so that a cell and its neighbours cover so many meters around.
fn step_of(mut radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEP_MAX;
    }
    let mut step = 1;
    while radius < MERCATOR_MAX {
        radius *= 2.0;
        step += 1;
    }
    // Cells are narrower towards the poles.
    let narrow = i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    (step - 2 - narrow).clamp(1, STEP_MAX as i32) as u32
}

/// Whether the neighbours of a cell reach as far as what is searched.
fn covers(cell: &Cell, (west, east, south, north): (f64, f64, f64, f64)) -> bool {
    let area = |direction| cell.neighbour(direction).area();
    let (_, to_north) = area((0, 1));
    let (_, to_south) = area((0, -1));
    let (to_east, _) = area((1, 0));
    let (to_west, _) = area((-1, 0));
    // Not the other way round: a bound may be no number.
    !(to_north.1 < north || to_south.0 > south || to_east.1 < east || to_west.0 > west)
}

/// How far it reaches to the west, east, south and north, in degrees.
fn bounds(middle: &Position, half_width: f64, half_height: f64) -> (f64, f64, f64, f64) {
    let Position { longitude, latitude } = *middle;
    let to_north = degrees(half_height / EARTH_RADIUS);
    // A degree of longitude is shortest at the side that is nearer to a pole.
    let nearer = if latitude < 0.0 { latitude - to_north } else { latitude + to_north };
    let to_east = degrees(half_width / EARTH_RADIUS / radians(nearer).cos());
    (longitude - to_east, longitude + to_east, latitude - to_north, latitude + to_north)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

    /// What redis-server 7.0 answers.
    #[test]
    fn places_are_scores_and_hashes() {
        assert_eq!(PALERMO.score(), 3_479_099_956_230_698.0);
        assert_eq!(CATANIA.score(), 3_479_447_370_796_909.0);
        let palermo = Position::from_score(PALERMO.score());
        assert_eq!(format!("{:.17}", palermo.longitude), "13.36138933897018433");
        assert_eq!(format!("{:.17}", palermo.latitude), "38.11555639549629859");
        assert_eq!(&palermo.hash(), b"sqc8b49rny0");
        let catania = Position::from_score(CATANIA.score());
        assert_eq!(format!("{:.4}", palermo.distance(&catania)), "166274.1516");
        let equator = Position { longitude: 180.0, latitude: 0.000_001_267_360_580_93 };
        let south = Position { longitude: 180.0, latitude: -85.051_128_78 };
        assert_eq!((south.distance(&equator) / 1000.0).to_string(), "9459.922505986819");
    }

    #[test]
    fn scores_that_are_no_places_are_converted_as_the_cpu_does() {
        let cases = [
            (1.9, 1),
            (-1.0, u64::MAX),
            (-1.5, u64::MAX),
            (9.3e18, 9_300_000_000_000_000_000),
            (f64::INFINITY, 0),
            (f64::NEG_INFINITY, 1 << 63),
        ];
        for (score, bits) in cases {
            assert_eq!(bits_of(score), bits, "{score}");
        }
    }

    fn position() -> impl Strategy<Value = Position> {
        (-180.0..180.0, -85.0..85.0)
            .prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    proptest! {
        #[test]
        fn bits_are_spread_and_gathered(number in any::<u32>()) {
            prop_assert_eq!(gather(spread(number)), number);
            prop_assert_eq!(spread(number) & 0xAAAA_AAAA_AAAA_AAAA, 0);
        }

        #[test]
        fn a_score_is_near_its_place(position in position()) {
            let near = Position::from_score(position.score());
            prop_assert!(position.distance(&near) < 1.0, "{near:?}");
            prop_assert_eq!(near.score(), position.score());
        }

        /// Away from the poles and from the line where longitudes begin again.
        #[test]
        fn ranges_cover_the_shape(
            longitude in -150.0..150.0f64, latitude in -60.0..60.0f64,
            angle in 0.0..2.0 * PI, part in 0.0..0.99f64, radius in 1.0..500_000.0f64,
        ) {
            let middle = Position { longitude, latitude };
            let away = degrees(radius * part / EARTH_RADIUS);
            let other = Position {
                longitude: longitude + away * angle.cos() / radians(latitude).cos(),
                latitude: latitude + away * angle.sin(),
            };
            for shape in [Shape::Circle { radius }, Shape::Box { width: radius, height: radius }] {
                let score = other.score();
                if shape.distance(&middle, &Position::from_score(score)).is_some() {
                    let ranges = shape.ranges(middle);
                    prop_assert!(ranges.iter().any(|(first, end)| score >= *first && score < *end));
                }
            }
        }
    }
}
