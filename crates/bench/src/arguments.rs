//! The forms that the values of options have, as a person writes them.
//!
//! Parsing has no effects, and says what the form is when it is not kept.

use std::str::FromStr;

/// How many requests a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// So many.
    Count(u64),
    /// As many as there are keys; with pattern P, as many as there are in its part.
    AllKeys,
}

impl FromStr for Requests {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "allkeys" {
            return Ok(Self::AllKeys);
        }
        text.parse().map(Self::Count).map_err(|_| format!("'{text}' is not a count or 'allkeys'"))
    }
}

/// So many SETs for so many GETs, or for so many WAITs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// SETs of a round; they come first.
    pub sets: u32,
    /// The others of a round.
    pub others: u32,
}

impl FromStr for Ratio {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (sets, others) = text.split_once(':')?;
            Some(Self { sets: sets.parse().ok()?, others: others.parse().ok()? })
        };
        parse()
            .filter(|ratio| ratio.sets > 0 || ratio.others > 0)
            .filter(|ratio| ratio.sets.checked_add(ratio.others).is_some())
            .ok_or_else(|| format!("'{text}' is not two counts as in 1:10, one of them above 0"))
    }
}

/// From `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: usize,
    /// The most.
    pub max: usize,
}

impl Range {
    /// The range of one number.
    pub fn only(number: usize) -> Self {
        Self { min: number, max: number }
    }
}

impl FromStr for Range {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (min, max) = text.split_once('-')?;
            Some(Self { min: min.parse().ok()?, max: max.parse().ok()? })
        };
        parse()
            .filter(|range| range.min <= range.max)
            .ok_or_else(|| format!("'{text}' is not MIN-MAX"))
    }
}

/// Sizes, each as often as its weight says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeList(pub Vec<(usize, u32)>);

impl FromStr for SizeList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let entry = |text: &str| {
            let (size, weight) = text.split_once(':')?;
            let weight = weight.parse().ok().filter(|weight| *weight > 0)?;
            Some((size.parse().ok()?, weight))
        };
        let list: Option<Vec<(usize, u32)>> = text.split(',').map(entry).collect();
        list.map(Self).ok_or_else(|| format!("'{text}' is not SIZE:WEIGHT,SIZE:WEIGHT,..."))
    }
}

/// Percentiles to show, each above 0 and at most 100.
#[derive(Debug, Clone, PartialEq)]
pub struct Percentiles(pub Vec<f64>);

impl FromStr for Percentiles {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let entry = |text: &str| {
            text.trim().parse().ok().filter(|number: &f64| *number > 0.0 && *number <= 100.0)
        };
        let list: Option<Vec<f64>> = text.split(',').map(entry).collect();
        list.map(Self).ok_or_else(|| format!("'{text}' is not a list of percentiles as in 50,99.9"))
    }
}

/// How keys are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Uniform over the range.
    Random,
    /// One after the other; each connection walks the whole range.
    Sequential,
    /// One after the other; each connection walks its part of the range.
    Parallel,
    /// Normally distributed around a centre.
    Gaussian,
    /// The n-th key is chosen in proportion to 1 / n^exponent.
    Zipf,
}

impl Pattern {
    /// Its letter in an option.
    pub fn letter(self) -> char {
        match self {
            Self::Random => 'R',
            Self::Sequential => 'S',
            Self::Parallel => 'P',
            Self::Gaussian => 'G',
            Self::Zipf => 'Z',
        }
    }
}

impl FromStr for Pattern {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "R" => Ok(Self::Random),
            "S" => Ok(Self::Sequential),
            "P" => Ok(Self::Parallel),
            "G" => Ok(Self::Gaussian),
            "Z" => Ok(Self::Zipf),
            _ => Err(format!("'{text}' is not one of R, S, P, G, Z")),
        }
    }
}

/// The patterns of SETs and of GETs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patterns {
    /// For SETs.
    pub set: Pattern,
    /// For GETs.
    pub get: Pattern,
}

impl FromStr for Patterns {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once(':')
            .and_then(|(set, get)| Some(Self { set: set.parse().ok()?, get: get.parse().ok()? }))
            .ok_or_else(|| format!("'{text}' is not two of R, S, P, G, Z, as in R:R"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_parse() {
        assert_eq!("allkeys".parse(), Ok(Requests::AllKeys));
        assert_eq!("10".parse(), Ok(Requests::Count(10)));
        assert_eq!("3:7".parse(), Ok(Ratio { sets: 3, others: 7 }));
        assert_eq!("4-4".parse(), Ok(Range::only(4)));
        assert_eq!("8:1,16:3".parse(), Ok(SizeList(vec![(8, 1), (16, 3)])));
        assert_eq!("50, 99.9".parse(), Ok(Percentiles(vec![50.0, 99.9])));
        let patterns = Patterns { set: Pattern::Gaussian, get: Pattern::Zipf };
        assert_eq!("G:Z".parse(), Ok(patterns));
    }

    #[test]
    fn what_has_another_form_is_refused() {
        for text in ["", "0:0", "1", "1:", "-1:1", "1:2:3", "4294967295:1"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        for text in ["", "9-1", "1-", "a-b", "5"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
        for text in ["", "8", "8:0", "8:1,", "a:1"] {
            assert!(text.parse::<SizeList>().is_err(), "{text}");
        }
        for text in ["", "0", "101", "50,,99", "NaN"] {
            assert!(text.parse::<Percentiles>().is_err(), "{text}");
        }
        for text in ["", "R", "R:X", "RR:R", "r:r"] {
            assert!(text.parse::<Patterns>().is_err(), "{text}");
        }
        assert!("some".parse::<Requests>().is_err());
    }
}
