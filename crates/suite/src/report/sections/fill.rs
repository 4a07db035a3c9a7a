//! The fill: how RAM is shared out while the data set grows beyond it.

use super::Section;
use crate::published;
use crate::report::chart::{Axis, Chart, Colour, Kind, Limit, Series, Unit};
use crate::report::figure;
use crate::report::table::{Cell, Table};
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

fn memory(samples: &[Sample], setting: &Setting) -> Chart {
    let parts: [(&str, Colour, fn(&Sample) -> Option<u64>); 4] = [
        ("Keys and index", Colour::Third, |sample| sample.index_bytes),
        ("Values", Colour::Ram, |sample| sample.value_bytes),
        ("Buffers", Colour::Fourth, |sample| sample.buffer_bytes),
        ("Allocator and rest", Colour::Reference, rest),
    ];
    Chart {
        series: parts
            .map(|(name, colour, part)| {
                let point = |sample: &Sample| (sample.second, part(sample).map(|part| part as f64));
                Series::over_time(name, colour, samples.iter().map(point).collect())
            })
            .into_iter()
            .filter(|series| !series.is_empty())
            .collect(),
        limits: vec![Limit { name: "maxmemory".to_owned(), y: setting.ram_bytes as f64 }],
        note: "Resident memory of the server by purpose.".to_owned(),
        ..Chart::new(
            "fill-memory",
            "RAM by purpose",
            Kind::Stack,
            Axis::new("time", Unit::Seconds),
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
    let parts: [(&str, Colour, fn(&Sample) -> Option<u64>); 2] = [
        ("In RAM", Colour::Ram, |sample| sample.values_in_ram),
        ("In flash", Colour::Flash, |sample| sample.values_in_flash),
    ];
    Chart {
        series: parts
            .map(|(name, colour, part)| {
                let point = |sample: &Sample| (sample.second, part(sample).map(|part| part as f64));
                Series::over_time(name, colour, samples.iter().map(point).collect())
            })
            .to_vec(),
        note: "Values with a copy in both are counted as in RAM.".to_owned(),
        ..Chart::new(
            "fill-values",
            "Values in RAM and in flash",
            Kind::Stack,
            Axis::new("time", Unit::Seconds),
            Axis::new("values", Unit::Count),
        )
    }
}

/// The state after the fill, as brief A gives it.
fn profile(test: Option<&Test>, last: Option<&Sample>, setting: &Setting) -> Table {
    let head = ["After the fill", "This run", "Published"];
    let mut table = Table::new("Memory profile after the fill", &head);
    let of_limit = |part: u64| part as f64 / setting.ram_bytes as f64;
    let count = |part: Option<u64>| Cell::figure(part.map(|part| part as f64), figure::count);
    let share = |share: Option<f64>| Cell::figure(share, figure::percent);
    let published = |text: &str| Cell::figure(Some(0.0), |_| text.to_owned());
    let in_ram_share = last.and_then(|last| {
        let (ram, flash) = (last.values_in_ram?, last.values_in_flash?);
        Some(ram as f64 / (ram + flash).max(1) as f64)
    });
    let used = last.and_then(|last| last.resident_bytes).map(of_limit);
    let index = last.and_then(|last| last.index_bytes).map(of_limit);
    let rate = test.and_then(|test| test.median(|round| round.ops_per_second));
    let published_share = |share: f64| published(&format!("{:.4}", share * 100.0));
    let trimmed = |share| {
        let cell = published_share(share);
        let text = cell.text.trim_end_matches('0').trim_end_matches('.').to_owned() + " %";
        Cell { text, ..cell }
    };
    let over = trimmed(published::FILL_INDEX_SHARE);
    table.rows = vec![
        vec![Cell::text("Test"), Cell::state(test), Cell::text("")],
        vec![Cell::text("Keys"), count(last.and_then(|last| last.keys)), published("6 G")],
        vec![
            Cell::text("Values in RAM"),
            count(last.and_then(|last| last.values_in_ram)),
            published("310.86 M"),
        ],
        vec![
            Cell::text("Values in flash"),
            count(last.and_then(|last| last.values_in_flash)),
            published("4.74 G"),
        ],
        vec![
            Cell::text("Share of the values that is in RAM"),
            share(in_ram_share),
            trimmed(published::FILL_VALUES_IN_RAM_SHARE),
        ],
        vec![
            Cell::text("RAM in use, of its limit"),
            share(used),
            trimmed(published::FILL_RAM_USED_SHARE),
        ],
        vec![
            Cell::text("RAM of keys and index, of the limit"),
            share(index),
            Cell { text: format!("over {}", over.text), ..over },
        ],
        vec![
            Cell::text("SETs a second while filling"),
            Cell::figure(rate, figure::count),
            Cell::figure(None, figure::count),
        ],
    ];
    table
}
