//! Garbage collection copies little: a small version of `examples/write_amplification.rs`, with bounds.
//!
//! The flash is 128 MiB here, so that the segments that are open and in reserve weigh more than on
//! a real one, and so do the footers: the bounds are above the figures that count, which the
//! example prints.

#[allow(dead_code)]
#[path = "../examples/write_amplification.rs"]
mod example;

use example::{Setup, measure};

#[test]
fn write_amplification_stays_within_bounds() {
    let cases = [
        ("uniform", 0.0, false, 2.1),
        ("zipf", 0.99, false, 1.9),
        ("zipf, lanes by release", 0.99, true, 1.7),
    ];
    for (name, zipf_exponent, hints, bound) in cases {
        let setup = Setup {
            segments: 512,
            segment_bytes: 256 << 10,
            fill_percent: 70,
            zipf_exponent,
            hints,
            rounds: 3,
        };
        let amplification = measure(&setup);
        println!("{name}: {amplification:.3}");
        assert!(amplification <= bound, "{name}: {amplification:.3}");
    }
}
