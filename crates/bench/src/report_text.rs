//! The result as text: memtier's table and its distribution of latencies, so that scripts which
//! read them go on working, and after them what memtier does not tell.

use crate::report::{Part, Report, ms};
use crate::stats::Row;
use std::fmt;
use std::fmt::Write;

/// Steps of the distribution in each half of what remains above a percentile.
const DISTRIBUTION_STEPS: u32 = 10;
/// Widths of columns of counts and of latencies.
const COUNT_WIDTH: usize = 12;
const LATENCY_WIDTH: usize = 15;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<9} Threads", self.options.threads)?;
        writeln!(f, "{:<9} Connections per thread", self.options.clients)?;
        match self.requests {
            Some(requests) => writeln!(f, "{requests:<9} Requests per client")?,
            None => {
                let seconds = self.options.test_time.unwrap_or_default();
                writeln!(f, "{seconds:<9} Seconds")?;
            }
        }
        for part in self.parts() {
            self.write_table(f, &part)?;
            if !self.options.hide_histogram {
                self.write_distribution(f, &part)?;
            }
        }
        self.write_more(f)
    }
}

/// A column: its heading, its width, and the cell of each row.
struct Column {
    heading: String,
    width: usize,
    cells: Vec<String>,
}

impl Report {
    fn write_table(&self, f: &mut fmt::Formatter<'_>, part: &Part<'_>) -> fmt::Result {
        let totals = part.stats.totals();
        let rows: Vec<&Row> = part.stats.rows.iter().chain([&totals]).collect();
        let columns = self.columns(part, &rows);
        let kinds = self.labels.iter().map(String::as_str).chain(["Totals"]);
        let kind_width = kinds.clone().map(str::len).max().unwrap_or_default().max(6) + 1;
        let width: usize = columns.iter().map(|column| column.width + 1).sum();
        write!(f, "\n\n{}\n{}\n", part.title, "=".repeat(kind_width + 1 + width))?;
        write!(f, "{:<kind_width$} ", "Type")?;
        for Column { heading, width, .. } in &columns {
            write!(f, "{heading:>width$} ")?;
        }
        write!(f, "\n{}\n", "-".repeat(kind_width + 1 + width))?;
        for (index, kind) in kinds.enumerate() {
            write!(f, "{kind:<kind_width$} ")?;
            for Column { width, cells, .. } in &columns {
                write!(f, "{:>width$} ", cells[index])?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// The columns of the table; the last of `rows` is the total.
    fn columns(&self, part: &Part<'_>, rows: &[&Row]) -> Vec<Column> {
        let last = rows.len() - 1;
        let column = |heading: &str, width, cell: &dyn Fn(usize, &Row) -> Option<String>| Column {
            heading: heading.to_owned(),
            width,
            cells: rows
                .iter()
                .enumerate()
                .map(|(index, row)| cell(index, row).unwrap_or_else(|| "---".to_owned()))
                .collect(),
        };
        let rate = |heading: &str, shown: &dyn Fn(usize) -> bool, count: fn(&Row) -> u64| {
            column(heading, COUNT_WIDTH, &|index, row| {
                shown(index).then(|| format!("{:.2}", part.per_second(count(row))))
            })
        };
        let latency = |heading: &str, value_ns: &dyn Fn(&Row) -> f64| {
            column(heading, LATENCY_WIDTH, &|index, row| {
                let shown = index == last || row.count() > 0;
                shown.then(|| format!("{:.5}", ms(value_ns(row))))
            })
        };
        let plain = self.options.commands.is_empty();
        let mut columns = vec![rate("Ops/sec", &|_| true, Row::count)];
        if plain {
            let reads = |index| index == last || index == 1;
            columns.push(rate("Hits/sec", &reads, |row| row.hits));
            columns.push(rate("Misses/sec", &reads, |row| row.misses));
        }
        let keyed = |index| !plain || index != 2;
        if self.options.cluster_mode {
            columns.push(rate("MOVED/sec", &keyed, |row| row.moved));
            columns.push(rate("ASK/sec", &keyed, |row| row.asked));
        }
        columns.push(latency("Avg. Latency", &Row::mean_ns));
        for percentile in &self.options.print_percentiles.0 {
            let heading = format!("p{percentile} Latency");
            columns.push(latency(&heading, &|row| row.percentile_ns(*percentile) as f64));
        }
        columns.push(column("KB/sec", COUNT_WIDTH, &|index, row| {
            let bytes = part.per_second(row.sent_bytes + row.received_bytes);
            keyed(index).then(|| format!("{:.2}", bytes / 1024.0))
        }));
        columns
    }

    fn write_distribution(&self, f: &mut fmt::Formatter<'_>, part: &Part<'_>) -> fmt::Result {
        write!(f, "\n\nRequest Latency Distribution\n")?;
        writeln!(f, "{:<6} {:>12} {:>12}", "Type", "<= msec   ", "Percent")?;
        write!(f, "{}", "-".repeat(72))?;
        for (index, row) in part.stats.rows.iter().enumerate() {
            f.write_str(if index == 0 { "\n" } else { "---\n" })?;
            let kind = self.kind(index);
            for (latency_ms, percent) in distribution(row) {
                writeln!(f, "{kind:<6} {latency_ms:>8.3} {percent:>12.3}")?;
            }
        }
        Ok(())
    }

    /// The name of the command of a row, as the distribution has it: `SET` for `Sets`.
    pub fn kind(&self, index: usize) -> String {
        let label = &self.labels[index];
        label.strip_suffix('s').unwrap_or(label).to_uppercase()
    }

    /// What memtier does not tell; lines that begin with `kelvin:`.
    fn write_more(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stats, cpu) = (self.stats(), self.cpu());
        let mut more = String::new();
        let _ = write!(
            more,
            "{} errors, {} wrong, {} missing, {} connections lost, {} unsent",
            stats.errors,
            stats.wrong,
            stats.misses(),
            stats.connections_lost,
            stats.unsent
        );
        let stall_ms = ms(stats.stall_ns_max as f64);
        writeln!(f, "\nkelvin: {:.3} s; {more}", self.seconds())?;
        writeln!(
            f,
            "kelvin: longest stall of a connection {stall_ms:.3} ms; CPU of the load {:.2} s user, {:.2} s system",
            cpu.user, cpu.system
        )?;
        for text in &stats.error_texts {
            writeln!(f, "kelvin: error: {text}")?;
        }
        if let Some(reason) = self.cut_short() {
            writeln!(f, "kelvin: PARTIAL RESULT: {reason}")?;
        }
        Ok(())
    }
}

/// The distribution of the latencies of a row: milliseconds, and the per cent of replies that took
/// no longer.
pub fn distribution(row: &Row) -> impl Iterator<Item = (f64, f64)> {
    let latency_ns_max = row.latency_ns_max;
    row.latency_ns.iter_quantiles(DISTRIBUTION_STEPS).map(move |step| {
        let latency_ns = step.value_iterated_to().min(latency_ns_max);
        (ms(latency_ns as f64), step.quantile_iterated_to() * 100.0)
    })
}

#[cfg(test)]
mod tests {
    use crate::report::tests::report;
    use crate::stats::{Replies, Stats};

    /// One SET of 2 ms and three GETs of 1 ms, one of them of a missing key, in two seconds.
    fn stats() -> Stats {
        let mut stats = Stats::new(3);
        let replies = |count, latency_ns| Replies { count, latency_ns, received_bytes: 512 };
        stats.rows[0].sent(512, 0);
        stats.rows[0].received(replies(1, 2_000_000), 0);
        stats.rows[1].received(replies(3, 1_000_000), 0);
        (stats.rows[1].hits, stats.rows[1].misses) = (2, 1);
        stats
    }

    #[test]
    fn the_table_is_laid_out_as_memtier_does() {
        let text = report("-t 2 -c 3 -n 7 --hide-histogram", stats()).to_string();
        let expected = "\
2         Threads
3         Connections per thread
7         Requests per client


ALL STATS
========================================================================================================================
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency   p99.9 Latency       KB/sec 
------------------------------------------------------------------------------------------------------------------------
Sets            0.50          ---          ---         2.00000         2.00000         2.00000         2.00000         0.50 
Gets            1.50         1.00         0.50         1.00000         1.00000         1.00000         1.00000         0.25 
Waits           0.00          ---          ---             ---             ---             ---             ---          --- 
Totals          2.00         1.00         0.50         1.25000         1.00045         2.00000         2.00000         0.75 
";
        let (table, more) = text.split_once("\nkelvin: ").expect("two parts");
        let expected: Vec<&str> =
            expected.lines().filter(|line| !line.starts_with(['=', '-'])).collect();
        let table: Vec<&str> = table.lines().filter(|line| !line.starts_with(['=', '-'])).collect();
        assert_eq!(table, expected);
        assert!(more.starts_with("2.000 s; 0 errors, 0 wrong, 1 missing, 0 connections lost"));
    }

    #[test]
    fn the_distribution_ends_at_the_longest() {
        let text = report("", stats()).to_string();
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "Request Latency Distribution")
            .take_while(|line| !line.is_empty())
            .collect();
        assert_eq!(lines[1], "Type     <= msec         Percent");
        assert_eq!(lines[3], "SET       2.000        0.000");
        assert!(lines.contains(&"GET       1.000      100.000"));
        assert_eq!(lines.iter().filter(|line| **line == "---").count(), 2);
    }
}
