//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time, Unix milliseconds.
pub(crate) fn unix_ms() -> u64 {
    unix_us() as u64 / 1000
}

/// The time, Unix microseconds.
pub(crate) fn unix_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros())
}
