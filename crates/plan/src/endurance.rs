//! How long a drive lives at a write rate: `kelvin plan endurance`.
//!
//! `years = PBW x 10^15 / (bytes a second) / seconds in a year`, the year of 365 days. Shown to two
//! decimals that gives every figure of the published table for the rates 100 to 500 MiB/s and the
//! ratings 10 to 40 PBW, which are the defaults here.

use clap::Args;
use serde::Serialize;

use crate::measure::{self, Account, Address, Measured};
use crate::table::{Format, Table};
use crate::units::{ByteRate, ByteSize, DAY_SECONDS, MIB, PB, Positive, Rating, YEAR_SECONDS};
use crate::{PlanError, rounded};

/// What to work out.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Mean rate of writes to the drives, such as 100MiB/s or 8TB/day; more than one makes more
    /// rows.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100MiB/s,200MiB/s,300MiB/s,400MiB/s,500MiB/s"
    )]
    pub write_rate: Vec<ByteRate>,
    /// Measure the rate of a running server instead: HOST:PORT.
    #[arg(long, conflicts_with = "write_rate")]
    pub server: Option<Address>,
    /// How long to measure, in seconds.
    #[arg(long, default_value = "10", requires = "server")]
    pub seconds: Positive,
    /// What one drive is rated for: 10PBW, 600TBW or 1DWPD; more than one makes more columns.
    #[arg(long, value_delimiter = ',', default_value = "10PBW,15PBW,20PBW,30PBW,35PBW,40PBW")]
    pub rating: Vec<Rating>,
    /// Capacity of one drive, which DWPD is about.
    #[arg(long, default_value = "3.2TB")]
    pub drive_size: ByteSize,
    /// Drives that share the writes evenly.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub drives: u32,
    /// Warranty of the drives in years: what they must outlive, and what DWPD counts for.
    #[arg(long, default_value = "3")]
    pub warranty: Positive,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct Endurance {
    /// What the drives must outlive.
    pub warranty_years: f64,
    /// Capacity of one drive.
    pub drive_bytes: f64,
    /// Drives that share the writes.
    pub drives: u32,
    /// Days of the year that lives are given in.
    pub year_days: u32,
    /// Where the write rate comes from, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// One row a write rate.
    pub rates: Vec<Row>,
}

/// A write rate.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Of all drives together.
    pub write_mib_per_second: f64,
    /// The rating at which a drive lives exactly as long as its warranty; none at a rate of 0,
    /// which needs none.
    pub required_pbw: f64,
    /// The same as drive writes a day.
    pub required_dwpd: f64,
    /// One for each rating.
    pub lives: Vec<Life>,
}

/// How long a drive lives.
#[derive(Debug, Clone, Serialize)]
pub struct Life {
    /// As it was asked for.
    pub rating: String,
    /// The same in petabytes.
    pub pbw: f64,
    /// None when nothing is written.
    pub years: Option<f64>,
    /// Whether that is as long as the warranty, at least.
    pub outlives_warranty: bool,
}

/// Years until so many petabytes were written, of 365 days. Units: bytes a second.
pub fn years(pbw: f64, write_rate: f64) -> f64 {
    pbw * PB / write_rate / YEAR_SECONDS
}

/// Petabytes that are written in so many years. Units: bytes a second.
pub fn required_pbw(write_rate: f64, years: f64) -> f64 {
    write_rate * years * YEAR_SECONDS / PB
}

/// How many times a drive is written over in a day. Units: bytes a second, bytes.
pub fn required_dwpd(write_rate: f64, drive_bytes: f64) -> f64 {
    write_rate * DAY_SECONDS / drive_bytes
}

/// Works it out and prints it. Errors: the server cannot be measured, or an option makes no sense.
pub fn run(options: &Options) -> Result<String, PlanError> {
    if options.drive_size.0 == 0.0 {
        return Err(PlanError::Options("--drive-size must not be 0".to_owned()));
    }
    let measured = match &options.server {
        Some(server) => Some(measure::measure(server, options.seconds.0)?),
        None => None,
    };
    let rates = match &measured {
        Some(measured) => vec![measured.write_bytes_per_second],
        None => options.write_rate.iter().map(|rate| rate.0).collect(),
    };
    let endurance = Endurance {
        warranty_years: options.warranty.0,
        drive_bytes: options.drive_size.0,
        drives: options.drives,
        year_days: 365,
        rates: rates.into_iter().map(|rate| row(options, rate)).collect(),
        measured,
    };
    Ok(match options.format {
        Format::Text => text(&endurance),
        Format::Csv => csv(&endurance),
        Format::Json => crate::json(&endurance),
    })
}

fn row(options: &Options, write_rate: f64) -> Row {
    let warranty = options.warranty.0;
    let rate = write_rate / f64::from(options.drives);
    let life = |rating: &Rating| {
        let pbw = rating.pbw(options.drive_size.0, warranty);
        let years = years(pbw, rate);
        Life {
            rating: rating.to_string(),
            pbw: rounded(pbw, 3),
            years: years.is_finite().then(|| rounded(years, 2)),
            outlives_warranty: years >= warranty,
        }
    };
    Row {
        write_mib_per_second: rounded(write_rate / MIB, 3),
        required_pbw: rounded(required_pbw(rate, warranty), 3),
        required_dwpd: rounded(required_dwpd(rate, options.drive_size.0), 3),
        lives: options.rating.iter().map(life).collect(),
    }
}

fn text(endurance: &Endurance) -> String {
    let Endurance { warranty_years, drive_bytes, drives, .. } = endurance;
    let mut out = String::new();
    if let Some(measured) = &endurance.measured {
        out += &format!("{measured}\n\n");
    }
    let size = crate::units::show_bytes(*drive_bytes);
    let whose = match drives {
        1 => format!("a drive of {size}"),
        _ => format!("each of {drives} drives of {size} that share the writes"),
    };
    out += &format!(
        "Years of life of {whose}, by rate of writes and rating.\n\
         * outlives the warranty of {warranty_years} years; the rating that it needs for that \
         stands in the last two columns.\n\n"
    );
    let ratings = endurance.rates.first().map(|row| row.lives.as_slice()).unwrap_or_default();
    let names = ratings.iter().map(|life| format!("{} ", life.rating));
    let needed = ["needed PBW", "needed DWPD"].map(str::to_owned);
    let mut table = Table::new(std::iter::once("write rate".to_owned()).chain(names).chain(needed));
    for row in &endurance.rates {
        let lives = row.lives.iter().map(|life| {
            let years = life.years.map_or("endless".to_owned(), |years| format!("{years:.2}"));
            format!("{years}{}", if life.outlives_warranty { '*' } else { ' ' })
        });
        let rate = format!("{} MiB/s", rounded(row.write_mib_per_second, 2));
        let needed = [format!("{:.2}", row.required_pbw), format!("{:.2}", row.required_dwpd)];
        table.row(std::iter::once(rate).chain(lives).chain(needed));
    }
    out + &table.text()
}

fn csv(endurance: &Endurance) -> String {
    let mut table = Table::new([
        "write_mib_per_second",
        "rating",
        "pbw",
        "years",
        "outlives_warranty",
        "warranty_years",
        "required_pbw",
        "required_dwpd",
        "account",
    ]);
    let account = match endurance.measured.as_ref().map(|measured| &measured.account) {
        None => "given".to_owned(),
        Some(Account::Server) => "server".to_owned(),
        Some(Account::Drives(names)) => names.join(" "),
    };
    for row in &endurance.rates {
        for life in &row.lives {
            table.row([
                row.write_mib_per_second.to_string(),
                life.rating.clone(),
                life.pbw.to_string(),
                life.years.map_or(String::new(), |years| format!("{years:.2}")),
                life.outlives_warranty.to_string(),
                endurance.warranty_years.to_string(),
                row.required_pbw.to_string(),
                row.required_dwpd.to_string(),
                account.clone(),
            ]);
        }
    }
    table.csv()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use proptest::prelude::*;
    use serde_json::Value;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn printed(arguments: &str) -> String {
        let line = Line::try_parse_from(format!("endurance {arguments}").split_whitespace());
        run(&line.expect("options").options).expect("a result")
    }

    const RATINGS: [f64; 6] = [10.0, 15.0, 20.0, 30.0, 35.0, 40.0];
    /// The published table: MiB/s, then years for each rating, as they are printed there.
    const PUBLISHED: [(f64, [&str; 6]); 5] = [
        (100.0, ["3.02", "4.54", "6.05", "9.07", "10.58", "12.10"]),
        (200.0, ["1.51", "2.27", "3.02", "4.54", "5.29", "6.05"]),
        (300.0, ["1.01", "1.51", "2.02", "3.02", "3.53", "4.03"]),
        (400.0, ["0.76", "1.13", "1.51", "2.27", "2.65", "3.02"]),
        (500.0, ["0.60", "0.91", "1.21", "1.81", "2.12", "2.42"]),
    ];

    fn outlives(years: &str) -> bool {
        years.parse::<f64>().expect("a number") >= 3.0
    }

    #[test]
    fn text_is_the_published_table() {
        let text = printed("");
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("MiB/s")).collect();
        assert_eq!(rows.len(), PUBLISHED.len());
        for (row, (rate, cells)) in rows.iter().zip(PUBLISHED) {
            let words: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(words[..2], [rate.to_string().as_str(), "MiB/s"]);
            for (word, cell) in words[2..8].iter().zip(cells) {
                let marked = if outlives(cell) { format!("{cell}*") } else { cell.to_owned() };
                assert_eq!(*word, marked, "{row}");
            }
        }
    }

    #[test]
    fn csv_is_the_published_table() {
        let csv = printed("--format csv");
        let mut lines = csv.lines().skip(1);
        for (rate, cells) in PUBLISHED {
            for (rating, cell) in RATINGS.iter().zip(cells) {
                let expected = format!("{rate},{rating} PBW,{rating},{cell},{}", outlives(cell));
                let line = lines.next().expect("a line a cell");
                assert!(line.starts_with(&format!("{expected},3,")), "{line}");
            }
        }
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn json_is_the_published_table() {
        let json: Value = serde_json::from_str(&printed("--format json")).expect("JSON");
        for (row, (rate, cells)) in PUBLISHED.iter().enumerate() {
            let row = &json["rates"][row];
            assert_eq!(row["write_mib_per_second"], *rate);
            for (column, cell) in cells.iter().enumerate() {
                let life = &row["lives"][column];
                assert_eq!(life["pbw"], RATINGS[column]);
                let years = life["years"].as_f64().expect("a number");
                assert_eq!(format!("{years:.2}"), *cell);
                assert_eq!(life["outlives_warranty"], outlives(cell));
            }
        }
    }

    #[test]
    fn a_year_of_365_and_a_quarter_days_would_not_do() {
        let life = 40.0 * PB / (100.0 * MIB);
        assert_eq!(format!("{:.2}", life / YEAR_SECONDS), "12.10");
        assert_eq!(format!("{:.2}", life / (365.25 * DAY_SECONDS)), "12.09");
    }

    #[test]
    fn ratings_by_the_day_count_for_the_warranty() {
        // 1 DWPD is exactly what a rate of the drive's capacity a day needs, for any warranty.
        for warranty in ["3", "5"] {
            let line = format!(
                "--write-rate 3.2TB/day --rating 1DWPD --warranty {warranty} --format json"
            );
            let json: Value = serde_json::from_str(&printed(&line)).expect("JSON");
            let row = &json["rates"][0];
            assert_eq!(row["required_dwpd"], 1.0);
            assert_eq!(row["lives"][0]["years"].to_string(), format!("{warranty}.0"));
        }
    }

    #[test]
    fn drives_share_the_writes_and_an_idle_drive_lives_for_ever() {
        let json: Value = serde_json::from_str(&printed(
            "--write-rate 200MiB/s,0MiB/s --drives 2 --rating 10PBW --format json",
        ))
        .expect("JSON");
        assert_eq!(json["rates"][0]["lives"][0]["years"], 3.02);
        assert_eq!(json["rates"][1]["lives"][0]["years"], Value::Null);
        assert_eq!(json["rates"][1]["lives"][0]["outlives_warranty"], true);
        assert!(printed("--write-rate 0MiB/s").contains("endless*"));
    }

    proptest! {
        #[test]
        fn more_writes_or_a_lower_rating_never_live_longer(
            rate in 1.0..1e11f64, more in 1.0..10.0f64, pbw in 0.1..100.0f64, years in 0.5..10.0f64
        ) {
            prop_assert!(super::years(pbw, rate * more) <= super::years(pbw, rate));
            prop_assert!(super::years(pbw * more, rate) >= super::years(pbw, rate));
            let needed = required_pbw(rate, years);
            prop_assert!((super::years(needed, rate) / years - 1.0).abs() < 1e-9);
        }
    }
}
