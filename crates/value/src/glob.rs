//! Glob patterns, as in KEYS, SCAN MATCH and CONFIG GET.
//!
//! `*` any bytes, `?` one byte, `[abc]` `[a-z]` `[^abc]` one byte of a class, `\` the next byte
//! as it is. The odd corners are Redis's: an open class ends with the pattern, a range may run
//! backwards and compares bytes as signed, `[^` at the end matches any byte, and no pattern but
//! the empty one matches the empty string.
//!
//! Invariant: at most one position is remembered, that of the last `*`. Every other item takes
//! exactly one byte, so what matches with an earlier `*` taking more also matches with the last
//! one taking more. Cost: at most pattern times string; never exponential.

/// Whether case matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// It does.
    Sensitive,
    /// ASCII letters match in either case.
    Insensitive,
}

/// Whether all of `string` matches `pattern`.
pub fn matches(pattern: &[u8], string: &[u8], case: Case) -> bool {
    if string.is_empty() {
        return pattern.is_empty();
    }
    let (mut pattern_at, mut string_at) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while string_at < string.len() {
        if pattern.get(pattern_at) == Some(&b'*') {
            pattern_at = skip_stars(pattern, pattern_at);
            if pattern_at == pattern.len() {
                return true;
            }
            last_star = Some((pattern_at, string_at));
            continue;
        }
        if let Some(next) = match_byte(pattern, pattern_at, string[string_at], case) {
            pattern_at = next;
            string_at += 1;
            continue;
        }
        let Some((star_pattern_at, star_string_at)) = &mut last_star else {
            return false;
        };
        *star_string_at += 1;
        (pattern_at, string_at) = (*star_pattern_at, *star_string_at);
    }
    skip_stars(pattern, pattern_at) == pattern.len()
}

/// Whether `pattern` matches only itself, so that a lookup can take the place of a walk.
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

fn skip_stars(pattern: &[u8], at: usize) -> usize {
    at + pattern[at..].iter().take_while(|byte| **byte == b'*').count()
}

/// Matches one byte with the item at `at`, which is not `*`, and returns the offset behind it.
fn match_byte(pattern: &[u8], at: usize, byte: u8, case: Case) -> Option<usize> {
    match *pattern.get(at..)? {
        [] => None,
        [b'?', ..] => Some(at + 1),
        [b'[', ..] => match_class(pattern, at + 1, byte, case),
        [b'\\', literal, ..] => equal(literal, byte, case).then_some(at + 2),
        [literal, ..] => equal(literal, byte, case).then_some(at + 1),
    }
}

/// Matches one byte with the class whose `[` stands before `at`.
fn match_class(pattern: &[u8], mut at: usize, byte: u8, case: Case) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut matched = false;
    let end = loop {
        match *pattern.get(at..).unwrap_or(&[]) {
            // An open class ends with the pattern.
            [] => break pattern.len(),
            [b'\\', literal, ..] => {
                // Redis forgets about case here.
                matched |= literal == byte;
                at += 2;
            }
            [b']', ..] => break at + 1,
            [start, b'-', end, ..] => {
                matched |= in_range(start, end, byte, case);
                at += 3;
            }
            [literal, ..] => {
                matched |= equal(literal, byte, case);
                at += 1;
            }
        }
    };
    (matched != negated).then_some(end)
}

fn equal(literal: u8, byte: u8, case: Case) -> bool {
    match case {
        Case::Sensitive => literal == byte,
        Case::Insensitive => literal.eq_ignore_ascii_case(&byte),
    }
}

/// Bounds are put in order first, then folded: `[Z-a]` without case is empty.
fn in_range(start: u8, end: u8, byte: u8, case: Case) -> bool {
    let (start, end) = if start as i8 > end as i8 { (end, start) } else { (start, end) };
    let fold = |byte: u8| match case {
        Case::Sensitive => byte as i8,
        Case::Insensitive => byte.to_ascii_lowercase() as i8,
    };
    (fold(start)..=fold(end)).contains(&fold(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, string: &str, expected: bool) {
        let matched = matches(pattern.as_bytes(), string.as_bytes(), Case::Sensitive);
        assert_eq!(matched, expected, "{pattern:?} against {string:?}");
    }

    #[test]
    fn matches_as_redis_does() {
        for (pattern, matching, others) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["a", "abc"], &[""]),
            ("**", &["a"], &[""]),
            ("h?llo", &["hello", "hallo"], &["hllo", "heello"]),
            ("h*llo", &["hllo", "heeello"], &["hell", "hlloo"]),
            ("a*", &["a", "ab"], &["ba"]),
            ("*a*b*", &["ab", "xaxbx"], &["ba"]),
            ("h[ae]llo", &["hello", "hallo"], &["hillo"]),
            ("h[^e]llo", &["hallo"], &["hello"]),
            ("h[a-b]llo", &["hallo", "hbllo"], &["hcllo"]),
            ("h[b-a]llo", &["hallo", "hbllo"], &["hcllo"]),
            (r"h\*", &["h*"], &["hx", r"h\*"]),
            (r"h\", &[r"h\"], &["h"]),
            (r"[\]]", &["]"], &[r"\"]),
            (r"[\-x]", &["-", "x"], &["a"]),
            ("[abc", &["a", "c"], &["d", "ab"]),
            ("[a-]", &["^", "a", "_"], &["b", "-"]),
            ("[", &[], &["[", "a"]),
            ("[^", &["a", "["], &["ab"]),
            ("[]", &[], &["a", "]"]),
            ("[^]", &["a"], &[""]),
            ("a[]b", &[], &["ab", "a]b"]),
        ] {
            for string in matching {
                check(pattern, string, true);
            }
            for string in others {
                check(pattern, string, false);
            }
        }
    }

    #[test]
    fn ignores_case_when_told() {
        for (pattern, string, expected) in [
            ("HeL*", "hello", true),
            ("[A-C]x", "bX", true),
            (r"\H", "h", true),
            (r"[\H]", "h", false),
            ("[Z-a]", "z", false),
            ("[b]", "B", true),
        ] {
            let matched = matches(pattern.as_bytes(), string.as_bytes(), Case::Insensitive);
            assert_eq!(matched, expected, "{pattern:?} against {string:?}");
        }
    }

    #[test]
    fn many_stars_do_not_blow_up() {
        let pattern = "a*".repeat(500) + "b";
        let string = "a".repeat(20_000);
        check(&pattern, &string, false);
    }

    #[test]
    fn literals_are_told_from_patterns() {
        assert!(is_literal(b"maxmemory-policy"));
        for pattern in ["a*", "a?", "[a]", r"a\b"] {
            assert!(!is_literal(pattern.as_bytes()));
        }
    }

    /// The definition, by trying every length for every star.
    fn matches_by_definition(pattern: &[u8], string: &[u8]) -> bool {
        match pattern {
            [] => string.is_empty(),
            [b'*', rest @ ..] => {
                (0..=string.len()).any(|taken| matches_by_definition(rest, &string[taken..]))
            }
            _ => string.split_first().is_some_and(|(byte, string)| {
                match_byte(pattern, 0, *byte, Case::Sensitive)
                    .is_some_and(|next| matches_by_definition(&pattern[next..], string))
            }),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            pattern in r"[ab*?\[\]^\\-]{0,8}", string in "[ab]{1,10}",
        ) {
            prop_assert_eq!(
                matches(pattern.as_bytes(), string.as_bytes(), Case::Sensitive),
                matches_by_definition(pattern.as_bytes(), string.as_bytes()),
                "{:?} against {:?}", pattern, string
            );
        }

        #[test]
        fn no_bytes_panic(
            pattern in proptest::collection::vec(any::<u8>(), 0..20),
            string in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let _ = matches(&pattern, &string, Case::Insensitive);
        }
    }
}
