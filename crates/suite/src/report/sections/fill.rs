//! The fill: how RAM is shared out while the data set grows beyond it.

use super::Section;
use crate::published;
use crate::report::chart::{Axis, Chart, Colour, Kind, Limit, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Look, Table};
use crate::results::{Results, Sample, Setting, Test};

/// The section of the fill.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "fill",
        "Fill: where the memory goes",
        "Every key is written once. Keys and index stay in RAM; when RAM is full, values that are \
         not used move to flash.",
    );
    let test = results.test("fill");
    let samples = test.and_then(|test| test.rounds.last()).map_or(&[][..], |round| &round.samples);
    section.chart(memory(samples, &results.setting));
    section.chart(values(samples));
    section.tables.push(profile(test, samples.last(), &results.setting));
    section
}

/// A part of a sample, in bytes or values.
type Part = fn(&Sample) -> Option<u64>;

/// The layers of a stack: parts that were measured, over time.
fn layers(parts: &[(&str, Colour, Part)], samples: &[Sample]) -> Vec<Series> {
    let layer = |(name, colour, part): &(&str, Colour, Part)| {
        let point = |sample: &Sample| (sample.second, part(sample).map(|part| part as f64));
        Series::over_time(name, *colour, samples.iter().map(point).collect())
    };
    parts.iter().map(layer).filter(|series| !series.is_empty()).collect()
}

fn memory(samples: &[Sample], setting: &Setting) -> Chart {
    let parts: [(&str, Colour, Part); 4] = [
        ("Keys and index", Colour::Third, |sample| sample.index_bytes),
        ("Values", Colour::Ram, |sample| sample.value_bytes),
        ("Buffers", Colour::Fourth, |sample| sample.buffer_bytes),
        ("Allocator and rest", Colour::Reference, rest),
    ];
    Chart {
        series: layers(&parts, samples),
        limits: vec![Limit { name: "maxmemory".to_owned(), y: setting.ram_bytes as f64 }],
        note: "Resident memory of the server by purpose.".to_owned(),
        ..Chart::new(
            "fill-memory",
            "RAM by purpose",
            Kind::Stack,
            Axis::new("time, min:s", Unit::Seconds),
            Axis::new("RAM", Unit::Bytes),
        )
    }
}

/// Resident memory that no purpose accounts for.
fn rest(sample: &Sample) -> Option<u64> {
    let known = [sample.index_bytes, sample.value_bytes, sample.buffer_bytes];
    let known: u64 = known.into_iter().flatten().sum();
    sample.resident_bytes.map(|resident| resident.saturating_sub(known))
}

fn values(samples: &[Sample]) -> Chart {
    let parts: [(&str, Colour, Part); 2] = [
        ("In RAM", Colour::Ram, |sample| sample.values_in_ram),
        ("In flash", Colour::Flash, |sample| sample.values_in_flash),
    ];
    Chart {
        series: layers(&parts, samples),
        note: "Values with a copy in both are counted as in RAM.".to_owned(),
        ..Chart::new(
            "fill-values",
            "Values in RAM and in flash",
            Kind::Stack,
            Axis::new("time, min:s", Unit::Seconds),
            Axis::new("values", Unit::Count),
        )
    }
}

/// The state after the fill, as the publication gives it.
fn profile(test: Option<&Test>, last: Option<&Sample>, setting: &Setting) -> Table {
    let mut table =
        Table::new("Memory profile after the fill", &["After the fill", "This run", "Published"]);
    let of_limit = |part: Option<u64>| part.map(|part| part as f64 / setting.ram_bytes as f64);
    let in_ram_share = last.and_then(|last| {
        let (ram, flash) = (last.values_in_ram?, last.values_in_flash?);
        Some(ram as f64 / (ram + flash).max(1) as f64)
    });
    let part = |part: Part| last.and_then(part);
    let rate = test.and_then(|test| test.median(|round| round.ops_per_second));
    let count = |name, part: Option<u64>, published| {
        row(name, Cell::figure(part.map(|part| part as f64), figure::count), published)
    };
    let share = |name, share, published: String| {
        row(name, Cell::figure(share, figure::percent), &published)
    };
    table.rows = vec![
        vec![Cell::text("Test"), Cell::state(test), Cell::default()],
        count("Keys", part(|last| last.keys), "6 G"),
        count("Values in RAM", part(|last| last.values_in_ram), "310.86 M"),
        count("Values in flash", part(|last| last.values_in_flash), "4.74 G"),
        share(
            "Share of the values that is in RAM",
            in_ram_share,
            figure::percent(published::FILL_VALUES_IN_RAM_SHARE),
        ),
        share(
            "RAM in use, of its limit",
            of_limit(part(|last| last.resident_bytes)),
            figure::percent(published::FILL_RAM_USED_SHARE),
        ),
        share(
            "RAM of keys and index, of the limit",
            of_limit(part(|last| last.index_bytes)),
            format!("over {}", figure::percent(published::FILL_INDEX_SHARE)),
        ),
        row("SETs a second while filling", Cell::figure(rate, figure::count), "\u{2013}"),
    ];
    table
}

fn row(name: &str, ours: Cell, published: &str) -> Vec<Cell> {
    let published = Cell { look: Look::Figure, ..Cell::text(published) };
    vec![Cell::text(name), ours, published]
}
