//! The text of INFO: lines of `name:value`.

use std::fmt::{Display, Write};

/// The answer under construction.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a section, with an empty line after the one before.
    pub(super) fn section(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        self.write(format_args!("# {title}\r\n"));
    }

    /// A line.
    pub(super) fn field(&mut self, name: &str, value: impl Display) {
        self.write(format_args!("{name}:{value}\r\n"));
    }

    /// Lines of one value, such as all that belong to features that are not there.
    pub(super) fn fields(&mut self, names: &[&str], value: impl Display) {
        for name in names {
            self.field(name, &value);
        }
    }

    /// A size, with a second line for people.
    pub(super) fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.write(format_args!("{name}_human:{}\r\n", human(bytes)));
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("invariant: a string takes any text");
    }
}

/// A size as people read it: the largest unit below it, with two decimals.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    format!("{value:.2}{}", UNITS[power as usize - 1])
}

/// `part / whole`, 0 when there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (941_312, "919.25K"),
            (6_746_112, "6.43M"),
            (25_274_793_984, "23.54G"),
            (u64::MAX, "16384.00P"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn sections_are_apart_by_an_empty_line() {
        let mut text = Text::default();
        text.section("One");
        text.bytes("size", 2048);
        text.section("Two");
        text.fields(&["a", "b"], 0);
        assert_eq!(
            text.as_str(),
            "# One\r\nsize:2048\r\nsize_human:2.00K\r\n\r\n# Two\r\na:0\r\nb:0\r\n"
        );
    }
}
