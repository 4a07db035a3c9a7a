//! Ranges of scores and of members, as the commands on sorted sets name them.

use crate::number::parse_f64_of_any_size;

/// A range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    /// Its lower end.
    pub min: f64,
    /// Whether that is not in it.
    pub excludes_min: bool,
    /// Its upper end.
    pub max: f64,
    /// Whether that is not in it.
    pub excludes_max: bool,
}

impl ScoreRange {
    /// The range of two ends: numbers, behind `(` if they are not in it. None: they are none.
    pub fn parse(min: &[u8], max: &[u8]) -> Option<ScoreRange> {
        let (min, excludes_min) = parse_score_end(min)?;
        let (max, excludes_max) = parse_score_end(max)?;
        Some(ScoreRange { min, excludes_min, max, excludes_max })
    }

    /// Whether a score lies below it.
    #[inline]
    pub fn is_above(&self, score: f64) -> bool {
        if self.excludes_min { score <= self.min } else { score < self.min }
    }

    /// Whether a score lies above it.
    #[inline]
    pub fn is_below(&self, score: f64) -> bool {
        if self.excludes_max { score >= self.max } else { score > self.max }
    }
}

/// As C reads it, which Redis leaves it to: nothing at all is 0, spaces may stand in front, and the text
/// ends at a NUL.
fn parse_score_end(text: &[u8]) -> Option<(f64, bool)> {
    let (text, is_excluded) = match text {
        [b'(', rest @ ..] => (rest, true),
        text => (text, false),
    };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let text = &text[..end];
    if text.is_empty() {
        return Some((0.0, is_excluded));
    }
    let is_space = |byte: &&u8| matches!(**byte, b' ' | b'\t'..=b'\r');
    let spaces = text.iter().take_while(is_space).count();
    Some((parse_f64_of_any_size(&text[spaces..])?, is_excluded))
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEnd<'a> {
    /// Below all members.
    Lowest,
    /// At this member, which is in the range.
    Included(&'a [u8]),
    /// At this member, which is not.
    Excluded(&'a [u8]),
    /// Above all members.
    Highest,
}

impl<'a> MemberEnd<'a> {
    fn parse(text: &'a [u8]) -> Option<MemberEnd<'a>> {
        match text {
            [b'-'] | [b'-', 0, ..] => Some(MemberEnd::Lowest),
            [b'+'] | [b'+', 0, ..] => Some(MemberEnd::Highest),
            [b'[', member @ ..] => Some(MemberEnd::Included(member)),
            [b'(', member @ ..] => Some(MemberEnd::Excluded(member)),
            _ => None,
        }
    }
}

/// A range of members, compared byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRange<'a> {
    /// Its lower end.
    pub min: MemberEnd<'a>,
    /// Its upper end.
    pub max: MemberEnd<'a>,
}

impl<'a> MemberRange<'a> {
    /// The range of two ends: `-`, `+`, or a member behind `[` if it is in the range and behind `(` if
    /// not. None: they are none.
    pub fn parse(min: &'a [u8], max: &'a [u8]) -> Option<MemberRange<'a>> {
        Some(MemberRange { min: MemberEnd::parse(min)?, max: MemberEnd::parse(max)? })
    }

    /// Whether no member can be in it.
    pub fn is_empty(&self) -> bool {
        match (self.min, self.max) {
            (MemberEnd::Highest, _) | (_, MemberEnd::Lowest) => true,
            (MemberEnd::Lowest, _) | (_, MemberEnd::Highest) => false,
            (MemberEnd::Included(min), MemberEnd::Included(max)) => min > max,
            (
                MemberEnd::Included(min) | MemberEnd::Excluded(min),
                MemberEnd::Included(max) | MemberEnd::Excluded(max),
            ) => min >= max,
        }
    }

    /// Whether a member lies below it.
    #[inline]
    pub fn is_above(&self, member: &[u8]) -> bool {
        match self.min {
            MemberEnd::Lowest => false,
            MemberEnd::Included(min) => member < min,
            MemberEnd::Excluded(min) => member <= min,
            MemberEnd::Highest => true,
        }
    }

    /// Whether a member lies above it.
    #[inline]
    pub fn is_below(&self, member: &[u8]) -> bool {
        match self.max {
            MemberEnd::Lowest => true,
            MemberEnd::Included(max) => member > max,
            MemberEnd::Excluded(max) => member >= max,
            MemberEnd::Highest => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What redis-server 7.0 takes.
    #[test]
    fn ends_of_scores_are_read_as_c_reads_them() {
        type Case = (&'static [u8], Option<(f64, bool)>);
        let cases: [Case; 20] = [
            (b"1", Some((1.0, false))),
            (b"(1.5", Some((1.5, true))),
            (b"", Some((0.0, false))),
            (b"(", Some((0.0, true))),
            (b" \t1", Some((1.0, false))),
            (b"( 1", Some((1.0, true))),
            (b" ", None),
            (b"1 ", None),
            (b"((1", None),
            (b"[1", None),
            (b"x", None),
            (b"nan", None),
            (b"inf", Some((f64::INFINITY, false))),
            (b"-Infinity", Some((f64::NEG_INFINITY, false))),
            (b"(+inf", Some((f64::INFINITY, true))),
            (b"1e400", Some((f64::INFINITY, false))),
            (b"-1e-400", Some((0.0, false))),
            (b"0x1p-2000", Some((0.0, false))),
            (b"-0x1p2000", Some((f64::NEG_INFINITY, false))),
            (b"1\0x", Some((1.0, false))),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_score_end(text), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn scores_lie_below_in_or_above() {
        let range = |min: &str, max: &str| {
            ScoreRange::parse(min.as_bytes(), max.as_bytes()).expect("a range")
        };
        let is_in = |range: ScoreRange, score| !range.is_above(score) && !range.is_below(score);
        assert!(is_in(range("1", "2"), 1.0) && is_in(range("1", "2"), 2.0));
        assert!(!is_in(range("(1", "(2"), 1.0) && !is_in(range("(1", "(2"), 2.0));
        assert!(is_in(range("-inf", "inf"), f64::INFINITY) && is_in(range("0", "-0"), -0.0));
        assert!(range("2", "1").is_above(1.5) && range("2", "1").is_below(1.5));
    }

    #[test]
    fn members_lie_below_in_or_above() {
        let range = |min: &'static str, max: &'static str| {
            MemberRange::parse(min.as_bytes(), max.as_bytes()).expect("a range")
        };
        let members = ["", "a", "b", "bb", "c"];
        let cases: [(MemberRange<'_>, &[&str], bool); 9] = [
            (range("-", "+"), &["", "a", "b", "bb", "c"], false),
            (range("[a", "[bb"), &["a", "b", "bb"], false),
            (range("(a", "(bb"), &["b"], false),
            (range("-", "(b"), &["", "a"], false),
            (range("(b", "+"), &["bb", "c"], false),
            (range("+", "-"), &[], true),
            (range("-", "-"), &[], true),
            (range("[b", "(b"), &[], true),
            (range("[b", "[b"), &["b"], false),
        ];
        for (range, expected, is_empty) in cases {
            let is_in = |member: &&str| {
                !range.is_above(member.as_bytes()) && !range.is_below(member.as_bytes())
            };
            let found: Vec<&str> = members.into_iter().filter(is_in).collect();
            assert_eq!(found, expected, "{range:?}");
            assert_eq!(range.is_empty(), is_empty, "{range:?}");
        }
        for text in ["", "a", "++", "-a", "1"] {
            assert_eq!(MemberEnd::parse(text.as_bytes()), None, "{text}");
        }
    }
}
