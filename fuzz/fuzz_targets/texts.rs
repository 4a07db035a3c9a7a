//! Texts of numbers, IDs and ranges as clients write them: no panic, and what is read is what a simpler reader makes
//! of it, or comes back when it is printed.

#![no_main]

use std::ffi::CString;

use libfuzzer_sys::fuzz_target;
use value::bitfield::{self, IntegerType, Overflow};
use value::long_double::{LongDouble, increment};
use value::number::{parse_f64, parse_f64_of_any_size, parse_i64, parse_u64};
use value::range::{MemberRange, ScoreRange};
use value::{Kind, NewId, StreamId, bits};

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let at = rest.iter().position(|&byte| byte == b'|').unwrap_or(rest.len());
    let (one, two) = (&rest[..at], rest.get(at + 1..).unwrap_or_default());
    match choice % 5 {
        0 => integers(one),
        1 => doubles(one),
        2 => long_doubles(one, two),
        3 => ids_and_ranges(one, two),
        _ => bit_fields(one, two),
    }
});

fn integers(text: &[u8]) {
    let read = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i128>().ok());
    // The one and only spelling.
    let read = read.filter(|number| number.to_string().as_bytes() == text);
    assert_eq!(parse_i64(text), read.and_then(|number| i64::try_from(number).ok()));
    assert_eq!(parse_u64(text), read.and_then(|number| u64::try_from(number).ok()));
    let _ = Kind::of_string(text);
}

/// What C reads, and whether all of the text belongs to it.
fn strtod(text: &[u8]) -> Option<f64> {
    let text = CString::new(text).ok()?;
    let mut end = std::ptr::null_mut();
    // SAFETY: the text ends with a zero, and the end is somewhere in it.
    let (number, used) = unsafe {
        let number = libc::strtod(text.as_ptr(), &mut end);
        (number, end.offset_from(text.as_ptr()))
    };
    (used as usize == text.as_bytes().len()).then_some(number)
}

fn doubles(text: &[u8]) {
    let begins_with_space = text.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
    let read = parse_f64_of_any_size(text);
    let expected =
        strtod(text).filter(|number| !number.is_nan() && !text.is_empty() && !begins_with_space);
    assert_eq!(read.map(f64::to_bits), expected.map(f64::to_bits), "{}", text.escape_ascii());
    if let Some(number) = parse_f64(text) {
        assert_eq!(Some(number), read);
    }
}

fn long_doubles(one: &[u8], two: &[u8]) {
    if let Some(number) = LongDouble::parse(one) {
        let text = number.print();
        let again = LongDouble::parse(text.as_bytes()).expect("what is printed can be read");
        if number.is_finite() {
            assert_eq!(again.print(), text);
        }
    }
    if let Ok(sum) = increment(one, two) {
        assert_eq!(increment(two, one).as_ref(), Ok(&sum));
        assert!(LongDouble::parse(sum.as_bytes()).is_some());
    }
}

fn ids_and_ranges(one: &[u8], two: &[u8]) {
    for seq_missing in [0, 7, u64::MAX] {
        if let Some(id) = StreamId::parse(one, seq_missing) {
            let text = format!("{}-{}", id.ms, id.seq);
            assert_eq!(StreamId::parse_strict(text.as_bytes(), 0), Some(id));
            assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
            assert!(id.next().is_none_or(|next| next > id && next.previous() == Some(id)));
            assert!(id.previous().is_none_or(|previous| previous < id));
        }
        let _ = NewId::parse(one, seq_missing);
    }
    if let Some(range) = ScoreRange::parse(one, two) {
        for score in [range.min, range.max, 0.0, f64::INFINITY, f64::NEG_INFINITY] {
            let is_above = if range.excludes_min { score <= range.min } else { score < range.min };
            assert_eq!(range.is_above(score), is_above);
            let _ = range.is_below(score);
        }
    }
    if let Some(range) = MemberRange::parse(one, two) {
        let members =
            [one.get(1..).unwrap_or_default(), two.get(1..).unwrap_or_default(), one, b""];
        for member in members {
            let is_in = !range.is_above(member) && !range.is_below(member);
            assert!(!is_in || !range.is_empty());
        }
    }
}

fn bit_fields(text: &[u8], rest: &[u8]) {
    let at = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    let (offset, bytes) = (&rest[..at], rest.get(at + 1..).unwrap_or_default());
    let Some(integer) = IntegerType::parse(text) else { return };
    let Some(offset) = bitfield::parse_offset(offset, Some(integer), 1 << 12) else { return };
    let naive = |bytes: &[u8]| {
        let bit = |at: u64| u64::from(bits::get_bit(bytes, at));
        let number = (0..u64::from(integer.bits())).fold(0, |sum, at| sum << 1 | bit(offset + at));
        let unused = 64 - u32::from(integer.bits());
        match text[0] {
            b'i' => ((number << unused) as i64) >> unused,
            _ => number as i64,
        }
    };
    assert_eq!(bitfield::get(bytes, offset, integer), naive(bytes));
    let mut changed = bytes.to_vec();
    let needed = bitfield::bytes_needed(integer, offset) as usize;
    changed.resize(changed.len().max(needed), 0);
    let number = bytes.iter().fold(0i64, |sum, &byte| sum << 5 ^ i64::from(byte));
    for overflow in [Overflow::Wrap, Overflow::Saturate, Overflow::Fail] {
        let old = bitfield::get(&changed, offset, integer);
        let _ = integer.add(old, number, overflow);
        let Some(fitting) = integer.fit(number, overflow) else { continue };
        bitfield::set(&mut changed, offset, integer, fitting);
        assert_eq!(naive(&changed), fitting);
    }
}
