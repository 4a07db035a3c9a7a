//! Figures as text, three digits each: what a reader can compare at a glance. Between figure and
//! unit is a space that does not break.

/// A number with a thousands suffix: `1.63 M`, `842 k`, `950`.
pub fn count(figure: f64) -> String {
    scaled(figure, 1000.0, &["", "\u{a0}k", "\u{a0}M", "\u{a0}G", "\u{a0}T"])
}

/// A size: `9.31 GiB`.
pub fn bytes(figure: f64) -> String {
    scaled(figure, 1024.0, &["\u{a0}B", "\u{a0}KiB", "\u{a0}MiB", "\u{a0}GiB", "\u{a0}TiB"])
}

/// Milliseconds without their unit: `0.26`, `12.4`.
pub fn ms(figure: f64) -> String {
    digits(figure)
}

/// A share from 0 to 1 in percent: `56.1 %`; close to 1 with as many digits as tell it from 1.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match share {
        1.0 => "100\u{a0}%".to_owned(),
        0.9995..1.0 => format!("{}\u{a0}%", (percent * 1e4).floor() / 1e4),
        _ if percent < 9.995 => format!("{percent:.2}\u{a0}%"),
        _ => format!("{percent:.1}\u{a0}%"),
    }
}

/// How far a share is from 1: `+3.2 %`, `-8.2 %`.
pub fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let sign = if percent < 0.0 { "\u{2212}" } else { "+" };
    format!("{sign}{:.1}\u{a0}%", percent.abs())
}

/// A time: `45 s`, `7 min 5 s`.
pub fn seconds(figure: f64) -> String {
    let whole = figure.round() as u64;
    if whole < 120 {
        return format!("{}\u{a0}s", digits(figure));
    }
    match (whole / 60, whole % 60) {
        (minutes, 0) => format!("{minutes}\u{a0}min"),
        (minutes, seconds) => format!("{minutes}\u{a0}min {seconds}\u{a0}s"),
    }
}

/// A moment as UTC, `2026-09-21 14:13 UTC`, from milliseconds since 1970.
///
/// The civil calendar from a day number, by counting years from March so that the leap day is
/// the last of its year (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub fn moment(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let day = minutes / 1440 + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    format!("{year}-{month:02}-{day_of_month:02} {hour:02}:{minute:02} UTC")
}

fn scaled(figure: f64, step: f64, suffixes: &[&str]) -> String {
    let mut rest = figure;
    let mut suffix = 0;
    while rest.abs() >= step * 0.9995 && suffix + 1 < suffixes.len() {
        rest /= step;
        suffix += 1;
    }
    format!("{}{}", digits(rest), suffixes[suffix])
}

/// Three significant digits, none after the point from 100 on and none for whole numbers below.
fn digits(figure: f64) -> String {
    let places = match figure.abs() {
        size if size == size.trunc() || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    format!("{figure:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_tell_enough() {
        let cases = [
            (count(1_630_000.0), "1.63 M"),
            (count(842_000.0), "842 k"),
            (count(999_900.0), "1.00 M"),
            (count(12_345.0), "12.3 k"),
            (count(17.0), "17"),
            (bytes(0.0), "0 B"),
            (bytes((10u64 << 30) as f64), "10 GiB"),
            (bytes(1_900_000.0), "1.81 MiB"),
            (ms(0.264), "0.26"),
            (ms(0.0421), "0.042"),
            (ms(123.4), "123"),
            (percent(0.5613), "56.1 %"),
            (percent(0.0656), "6.56 %"),
            (percent(1.0), "100 %"),
            (percent(0.99994), "99.994 %"),
            (percent(0.999_999_9), "99.9999 %"),
            (change(0.918), "\u{2212}8.2 %"),
            (change(1.04), "+4.0 %"),
            (seconds(45.25), "45.2 s"),
            (seconds(420.0), "7 min"),
            (seconds(425.0), "7 min 5 s"),
        ];
        for (ours, expected) in cases {
            assert_eq!(ours.replace('\u{a0}', " "), expected);
        }
    }

    #[test]
    fn moments_follow_the_calendar() {
        let cases = [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00 UTC"),
            (1_735_689_599_000, "2024-12-31 23:59 UTC"),
            (1_790_000_000_000, "2026-09-21 14:13 UTC"),
        ];
        for (unix_ms, expected) in cases {
            assert_eq!(moment(unix_ms), expected);
        }
    }
}
