//! What was run and where: every test with its command lines, the comparisons, the machine.

use super::Section;
use crate::report::figure;
use crate::report::table::{Cell, Table};
use crate::results::{Comparison, DriveLimit, Machine, Results, Setting, Test};

/// All tests, so that none that failed goes unseen.
pub fn tests(results: &Results) -> Section {
    let mut section = Section::new(
        "tests",
        "All tests",
        "Figures are medians over the rounds of a test. CPU is user and system time of the \
         server, of one round.",
    );
    let head = [
        "Test",
        "State",
        "Rounds",
        "Length",
        "ops/s",
        "average ms",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "CPU s",
    ];
    let mut table = Table::new("Medians over the rounds", &head);
    table.rows = results.tests.iter().map(test).collect();
    section.tables.push(table);
    section
}

fn test(test: &Test) -> Vec<Cell> {
    let ms = |latency: Option<f64>| Cell::figure(latency, figure::ms);
    vec![
        Cell::code(&test.id).below(&test.title),
        Cell::state(Some(test)),
        Cell::figure(Some(test.rounds.len() as f64), figure::count),
        Cell::figure(test.median(|round| round.seconds), figure::seconds),
        Cell::figure(test.median(|round| round.ops_per_second), figure::count),
        ms(test.median(|round| round.latency.average_ms)),
        ms(test.median(|round| round.latency.p50_ms)),
        ms(test.median(|round| round.latency.p99_ms)),
        ms(test.median(|round| round.latency.p99_9_ms)),
        ms(test.median(|round| round.latency.max_ms)),
        Cell::figure(test.median_of_known(|round| round.server_cpu_seconds), figure::count),
    ]
}

/// Every figure of the run beside its published one.
pub fn comparisons(results: &Results) -> Section {
    let mut section = Section::new(
        "comparisons",
        "Beside the published figures",
        "Only the ratios in the last two columns can be compared between different hardware: each \
         is within its own run.",
    );
    if results.comparisons.is_empty() {
        section.warnings.push("The run ended before its figures were compared.".to_owned());
        return section;
    }
    let head = [
        "Figure",
        "Where",
        "Better if",
        "Unit",
        "This run",
        "Published",
        "Our ratio",
        "Published ratio",
    ];
    let mut table = Table::new("Figures and ratios", &head);
    table.rows = results.comparisons.iter().map(comparison).collect();
    section.tables.push(table);
    section
}

fn comparison(row: &Comparison) -> Vec<Cell> {
    vec![
        Cell::text(&row.name),
        Cell::text(&row.place).below(&row.publication),
        Cell::text(if row.more_is_better { "higher" } else { "lower" }),
        Cell::text(&row.unit),
        Cell::figure(row.ours, figure::count),
        Cell::figure(row.published, figure::count),
        Cell::figure(row.our_share, figure::percent),
        Cell::figure(row.published_share, figure::percent),
    ]
}

/// The machine, the drive, the versions and the command lines.
pub fn machine(results: &Results) -> Section {
    let mut section = Section::new(
        "machine",
        "Machine, versions and command lines",
        "What it takes to repeat this run.",
    );
    section.tables.push(hardware(&results.machine, &results.setting));
    section.tables.push(drive(results.drive_limit.as_ref()));
    section.tables.push(commands(&results.setting, &results.tests));
    section
}

fn pair(name: &str, text: impl Into<String>) -> Vec<Cell> {
    vec![Cell::text(name), Cell::text(text)]
}

fn hardware(machine: &Machine, setting: &Setting) -> Table {
    let mut table = Table::new("Machine and setting", &["", ""]);
    let bytes = |bytes: u64| figure::bytes(bytes as f64);
    table.rows = vec![
        pair("CPU", format!("{}, {} cores", machine.cpu, machine.cores)),
        pair("Memory", bytes(machine.ram_bytes)),
        pair("Drive", format!("{}, {}", machine.drive, machine.file_system)),
        pair("Kernel", &machine.kernel),
    ];
    let version = |version: &crate::results::Version| pair(&version.program, &version.version);
    table.rows.extend(machine.versions.iter().map(version));
    table.rows.extend([
        pair("RAM of the server", bytes(setting.ram_bytes)),
        pair("Flash of the server", bytes(setting.flash_bytes)),
        pair("Keys", figure::count(setting.keys as f64)),
    ]);
    table
}

fn drive(limit: Option<&DriveLimit>) -> Table {
    let mut table = Table::new("What the drive can do", &["", ""]);
    let Some(limit) = limit else {
        table.rows = vec![pair("Limits", "not measured in this run")];
        return table;
    };
    let block = figure::bytes(f64::from(limit.block_bytes));
    let reads = limit.reads_per_second * f64::from(limit.block_bytes);
    table.rows = vec![
        pair("Measured by", &limit.probe),
        pair(
            "Random reads",
            format!(
                "{}/s of {block}, {} in flight ({}/s)",
                figure::count(limit.reads_per_second),
                limit.depth,
                figure::bytes(reads)
            ),
        ),
        pair("Sequential writes", format!("{}/s", figure::bytes(limit.write_bytes_per_second))),
    ];
    table
}

fn commands(setting: &Setting, tests: &[Test]) -> Table {
    let mut table = Table::new("Command lines, in the order they ran", &["Test", "Command line"]);
    table.rows.push(vec![Cell::text("server"), Cell::code(&setting.server)]);
    for test in tests {
        let lines = test.commands.iter().enumerate().map(|(index, line)| {
            let name = if index == 0 { Cell::code(&test.id) } else { Cell::text("") };
            vec![name, Cell::code(line)]
        });
        table.rows.extend(lines);
    }
    table
}
