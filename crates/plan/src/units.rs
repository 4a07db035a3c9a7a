//! Quantities as people write them: `100MiB/s`, `3.2TB`, `1 DWPD`, `6e9`, `20%`.
//!
//! Invariants:
//!
//! 1. A quantity that parses is finite and not negative.
//! 2. `kB`, `MB`, `GB`, `TB`, `PB` are powers of 1,000, as drives are sold; `KiB`, `MiB`, ... are
//!    powers of 1,024, as memory is. Case does not matter, nor does a space before the unit.

use std::str::FromStr;

/// Seconds in the year of every endurance rating: 365 days.
pub const YEAR_SECONDS: f64 = 365.0 * DAY_SECONDS;
/// Seconds in a day.
pub const DAY_SECONDS: f64 = 86_400.0;
/// Bytes in a MiB.
pub const MIB: f64 = 1_048_576.0;
/// Bytes in a GB, which is what prices are for.
pub const GB: f64 = 1e9;
/// Bytes in a PB, which is what drives are rated in.
pub const PB: f64 = 1e15;

const BYTE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", 1e3),
    ("kb", 1e3),
    ("m", 1e6),
    ("mb", 1e6),
    ("g", 1e9),
    ("gb", 1e9),
    ("t", 1e12),
    ("tb", 1e12),
    ("p", 1e15),
    ("pb", 1e15),
    ("kib", 1024.0),
    ("mib", MIB),
    ("gib", 1024.0 * MIB),
    ("tib", MIB * MIB),
    ("pib", 1024.0 * MIB * MIB),
];

const COUNT_UNITS: &[(&str, f64)] =
    &[("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("b", 1e9), ("t", 1e12)];

const TIME_UNITS: &[(&str, f64)] = &[
    ("s", 1.0),
    ("sec", 1.0),
    ("min", 60.0),
    ("h", 3_600.0),
    ("d", DAY_SECONDS),
    ("day", DAY_SECONDS),
];

/// Cuts a text into its number and what follows, without the space around.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let rest = &text[digits..];
    let exponent = rest.strip_prefix(['e', 'E']).map_or(0, |rest| {
        rest.find(|c: char| !c.is_ascii_digit()).map_or(text.len() - digits, |end| end + 1)
    });
    // An `e` without digits behind it is no exponent.
    let end = if exponent > 1 { digits + exponent } else { digits };
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = split_number(text)?;
    let unit = unit.to_ascii_lowercase();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number * factor;
    value.is_finite().then_some(value)
}

fn per_second(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (amount, time) = text.split_once('/')?;
    let time = time.trim().to_ascii_lowercase();
    let (_, seconds) = TIME_UNITS.iter().find(|(name, _)| *name == time)?;
    Some(scaled(amount, units)? / seconds)
}

/// A quantity: a type of its own with what it is called when it does not parse.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $parse:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
        pub struct $name(pub f64);

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let parse: fn(&str) -> Option<f64> = $parse;
                parse(text).map(Self).ok_or(concat!("not ", $expected).to_owned())
            }
        }
    };
}

quantity!(
    /// An amount of memory or flash, in bytes.
    ByteSize,
    |text| scaled(text, BYTE_UNITS),
    "a size, such as 512, 512GiB or 6.4TB"
);
quantity!(
    /// Bytes a second.
    ByteRate,
    |text| per_second(text, BYTE_UNITS),
    "a rate, such as 100MiB/s or 8TB/day"
);
quantity!(
    /// A number of things.
    Count,
    |text| scaled(text, COUNT_UNITS),
    "a number, such as 6000000000, 6e9 or 6G"
);
quantity!(
    /// Operations a second.
    OpRate,
    |text| per_second(text, COUNT_UNITS).or_else(|| scaled(text, COUNT_UNITS)),
    "a rate, such as 150000, 150k or 150k/s"
);
quantity!(
    /// A part of a whole, from 0 to 1.
    Share,
    |text| {
        let (number, unit) = split_number(text)?;
        let share = match unit {
            "%" => number / 100.0,
            "" => number,
            _ => return None,
        };
        (share <= 1.0).then_some(share)
    },
    "a share, such as 20% or 0.2"
);
quantity!(
    /// A number without a unit, above zero.
    Positive,
    |text| split_number(text).filter(|(n, unit)| *n > 0.0 && unit.is_empty()).map(|(n, _)| n),
    "a number above zero"
);

/// What a drive's maker says it can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rating {
    /// Petabytes (10^15 bytes) written in its life.
    Pbw(f64),
    /// Times its capacity a day, for as long as its warranty lasts.
    Dwpd(f64),
}

impl FromStr for Rating {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let rating =
            split_number(text).filter(|(number, _)| *number > 0.0).and_then(|(number, unit)| {
                match unit.to_ascii_lowercase().as_str() {
                    "pbw" => Some(Self::Pbw(number)),
                    "tbw" => Some(Self::Pbw(number / 1e3)),
                    "dwpd" => Some(Self::Dwpd(number)),
                    _ => None,
                }
            });
        rating.ok_or("not a rating, such as 10PBW, 600TBW or 1DWPD".to_owned())
    }
}

impl Rating {
    /// In petabytes written. Units: the drive's capacity in bytes, its warranty in years.
    pub fn pbw(self, capacity_bytes: f64, warranty_years: f64) -> f64 {
        match self {
            Self::Pbw(pbw) => pbw,
            Self::Dwpd(dwpd) => dwpd * capacity_bytes * 365.0 * warranty_years / PB,
        }
    }
}

impl std::fmt::Display for Rating {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pbw(pbw) => write!(f, "{pbw} PBW"),
            Self::Dwpd(dwpd) => write!(f, "{dwpd} DWPD"),
        }
    }
}

/// A number of bytes for people, in powers of 1,000: `9.12 TB`.
pub fn show_bytes(bytes: f64) -> String {
    format!("{}B", show_count(bytes))
}

/// A number for people, in powers of 1,000: `6.00 G`. Whole below a thousand.
pub fn show_count(count: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (mut scaled, mut prefix) = (count, 0);
    // What would round to 1000.00 is written with the next prefix.
    while scaled >= 999.995 && prefix + 1 < PREFIXES.len() {
        scaled /= 1e3;
        prefix += 1;
    }
    match prefix {
        0 => format!("{scaled:.0} "),
        _ => format!("{scaled:.2} {}", PREFIXES[prefix]),
    }
}

/// A share for people: `6.6 %`.
pub fn show_share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_parse() {
        let sizes = [
            ("512", 512.0),
            ("512B", 512.0),
            ("3.2TB", 3.2e12),
            ("3.2 tb", 3.2e12),
            ("1KiB", 1024.0),
            ("512GiB", 549_755_813_888.0),
            ("1.5MiB", 1_572_864.0),
            ("1e3MB", 1e9),
            ("0", 0.0),
        ];
        for (text, bytes) in sizes {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        let rates = [
            ("100MiB/s", 104_857_600.0),
            ("100 MiB/s", 104_857_600.0),
            ("86.4GB/day", 1e6),
            ("60MB / min", 1e6),
            ("3600kB/h", 1e3),
        ];
        for (text, rate) in rates {
            assert_eq!(text.parse(), Ok(ByteRate(rate)), "{text}");
        }
        for (text, count) in [("6e9", 6e9), ("6G", 6e9), ("6B", 6e9), ("1.5M", 1.5e6), ("7", 7.0)] {
            assert_eq!(text.parse(), Ok(Count(count)), "{text}");
        }
        for (text, rate) in [("150k", 150e3), ("150k/s", 150e3), ("60/min", 1.0)] {
            assert_eq!(text.parse(), Ok(OpRate(rate)), "{text}");
        }
        for (text, share) in [("20%", 0.2), ("20 %", 0.2), ("0.2", 0.2), ("1", 1.0), ("0", 0.0)] {
            assert_eq!(text.parse(), Ok(Share(share)), "{text}");
        }
        let ratings = [
            ("10PBW", Rating::Pbw(10.0)),
            ("10 pbw", Rating::Pbw(10.0)),
            ("600TBW", Rating::Pbw(0.6)),
            ("1 DWPD", Rating::Dwpd(1.0)),
            ("0.3dwpd", Rating::Dwpd(0.3)),
        ];
        for (text, rating) in ratings {
            assert_eq!(text.parse(), Ok(rating), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "x", "-1", "1..2", "1XB", "1 M B", "inf", "nan", "1e999", "e9", "1e"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
            assert!(text.parse::<Count>().is_err(), "{text}");
            assert!(text.parse::<ByteRate>().is_err(), "{text}");
            assert!(text.parse::<Rating>().is_err(), "{text}");
        }
        for text in ["100", "100MiB", "100MiB/", "100MiB/fortnight", "/s"] {
            assert!(text.parse::<ByteRate>().is_err(), "{text}");
        }
        for text in ["101%", "1.1", "-5%", "%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        for text in ["0", "0.0", "-3", "3 years"] {
            assert!(text.parse::<Positive>().is_err(), "{text}");
        }
        for text in ["0 PBW", "10", "10 PB"] {
            assert!(text.parse::<Rating>().is_err(), "{text}");
        }
        let error = "7 parsecs".parse::<ByteSize>().expect_err("no size");
        assert_eq!(error, "not a size, such as 512, 512GiB or 6.4TB");
    }

    #[test]
    fn drive_writes_a_day_and_petabytes_are_two_ways_to_say_it() {
        // 3.2 TB x 5 years of 365 days.
        assert_eq!(Rating::Dwpd(1.0).pbw(3.2e12, 5.0), 5.84);
        assert_eq!(Rating::Pbw(10.0).pbw(3.2e12, 5.0), 10.0);
    }

    #[test]
    fn numbers_are_shown_short() {
        let cases = [(0.0, "0 B"), (999.0, "999 B"), (1e3, "1.00 kB"), (9.123e12, "9.12 TB")];
        for (bytes, text) in cases {
            assert_eq!(show_bytes(bytes), text);
        }
        assert_eq!(show_count(999_999.0), "1.00 M");
        assert_eq!(show_share(0.0656), "6.6 %");
    }

    proptest! {
        #[test]
        fn no_text_makes_a_negative_or_endless_quantity(text in "[-+0-9.eEkKmMgGiIbB%/ s]{0,12}") {
            for value in [
                text.parse::<ByteSize>().map(|it| it.0),
                text.parse::<ByteRate>().map(|it| it.0),
                text.parse::<Count>().map(|it| it.0),
                text.parse::<Share>().map(|it| it.0),
            ].into_iter().flatten() {
                prop_assert!(value >= 0.0 && value.is_finite());
            }
        }
    }
}
