//! Glob patterns: what matches is what matches by Redis's recursive way.

#![no_main]

use libfuzzer_sys::fuzz_target;
use value::glob::{Case, is_literal, matches};

/// Stars multiply what the recursive way tries.
const STARS_MAX: usize = 5;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let at = (usize::from(choice >> 1) * (rest.len() + 1)) >> 7;
    let (pattern, string) = rest.split_at(at);
    let case = if choice & 1 == 0 { Case::Sensitive } else { Case::Insensitive };
    let found = matches(pattern, string, case);
    let stars = pattern.iter().filter(|&&byte| byte == b'*').count();
    if stars <= STARS_MAX && string.len() <= 40 {
        assert_eq!(found, model(pattern, string, case));
    }
    if is_literal(pattern) && case == Case::Sensitive {
        assert_eq!(found, pattern == string);
    }
});

/// As `stringmatchlen` of Redis goes about it.
fn model(mut pattern: &[u8], mut string: &[u8], case: Case) -> bool {
    let fold = |byte: u8| if case == Case::Sensitive { byte } else { byte.to_ascii_lowercase() };
    while let (Some(&first), Some(&byte)) = (pattern.first(), string.first()) {
        match first {
            b'*' => {
                while pattern.get(1) == Some(&b'*') {
                    pattern = &pattern[1..];
                }
                return pattern.len() == 1
                    || (0..string.len()).any(|from| model(&pattern[1..], &string[from..], case));
            }
            b'?' => pattern = &pattern[1..],
            b'[' => {
                let (matched, rest) = class(&pattern[1..], byte, case);
                if !matched {
                    return false;
                }
                pattern = rest;
            }
            _ => {
                if first == b'\\' && pattern.len() >= 2 {
                    pattern = &pattern[1..];
                }
                if fold(pattern[0]) != fold(byte) {
                    return false;
                }
                pattern = &pattern[1..];
            }
        }
        string = &string[1..];
        if string.is_empty() {
            while pattern.first() == Some(&b'*') {
                pattern = &pattern[1..];
            }
        }
    }
    pattern.is_empty() && string.is_empty()
}

/// Whether the class behind a bracket has a byte, and what stands behind the class.
fn class(mut pattern: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let fold = |byte: u8| if case == Case::Sensitive { byte } else { byte.to_ascii_lowercase() };
    let is_negated = pattern.first() == Some(&b'^');
    if is_negated {
        pattern = &pattern[1..];
    }
    let mut matched = false;
    loop {
        match pattern {
            [b'\\', literal, rest @ ..] => {
                matched |= *literal == byte;
                pattern = rest;
            }
            [b']', rest @ ..] => return (matched != is_negated, rest),
            [] => return (matched != is_negated, pattern),
            [start, b'-', end, rest @ ..] => {
                let (mut start, mut end) = (*start as i8, *end as i8);
                if start > end {
                    (start, end) = (end, start);
                }
                let range = fold(start as u8) as i8..=fold(end as u8) as i8;
                matched |= range.contains(&(fold(byte) as i8));
                pattern = rest;
            }
            [literal, rest @ ..] => {
                matched |= fold(*literal) == fold(byte);
                pattern = rest;
            }
        }
    }
}
