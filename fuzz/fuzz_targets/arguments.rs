//! Quantities, patterns and addresses on the command lines of the planner and the load generator, and what nodes of a
//! cluster say where a slot is: refused, or what makes sense.

#![no_main]

use std::str::FromStr;

use bench::arguments::{Patterns, Percentiles, Range, Ratio, Requests, SizeList};
use bench::cluster::Redirect;
use bench::command::words_of;
use bench::target::Address;
use libfuzzer_sys::fuzz_target;
use plan::popularity::Law;
use plan::size::ValueSizes;
use plan::units::{ByteRate, ByteSize, Count, OpRate, Positive, Rating, Share};

fuzz_target!(|input: &[u8]| {
    let asked = Address::Tcp("asked".to_owned(), 6379);
    if let Some(redirect) = Redirect::parse(input, &asked) {
        assert!(redirect.slot < 16_384);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    quantities(text);
    if let Ok(words) = words_of(text) {
        assert!(!words.is_empty());
    }
    if let Some(range) = read::<Range>(text) {
        assert!(range.min <= range.max);
    }
    if let Some(ratio) = read::<Ratio>(text) {
        assert!(ratio.sets.checked_add(ratio.others).is_some_and(|sum| sum > 0));
    }
    if let Some(SizeList(sizes)) = read(text) {
        assert!(sizes.iter().all(|(_, weight)| *weight > 0));
    }
    if let Some(Percentiles(percentiles)) = read(text) {
        assert!(percentiles.iter().all(|number| *number > 0.0 && *number <= 100.0));
    }
    let _ = (read::<Requests>(text), read::<Patterns>(text), read::<ValueSizes>(text));
    if let Some(Law::WorkingSet(groups)) = read(text) {
        assert!(groups.iter().all(|(keys, accesses)| keys.is_finite() && accesses.is_finite()));
    }
});

fn read<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Those that are read are finite and not negative.
fn quantities(text: &str) {
    let sizes = [
        read(text).map(|ByteSize(size)| size),
        read(text).map(|ByteRate(rate)| rate),
        read(text).map(|Count(count)| count),
        read(text).map(|OpRate(rate)| rate),
    ];
    for size in sizes.into_iter().flatten() {
        assert!(size.is_finite() && size >= 0.0, "{text}");
    }
    if let Some(Share(share)) = read(text) {
        assert!((0.0..=1.0).contains(&share), "{text}");
    }
    if let Some(Positive(number)) = read(text) {
        assert!(number.is_finite() && number > 0.0, "{text}");
    }
    if let Some(rating) = read::<Rating>(text) {
        assert!(rating.pbw(1e12, 3.0) >= 0.0, "{text}");
    }
}
