//! The page of two runs side by side: a table, in the style of the report.

use askama::Template;

use super::figure;
use super::table::{Cell, Look, Table};
use crate::compare::{Comparison, Row, Verdict, rule};

#[derive(Template)]
#[template(path = "compare.html")]
struct Page<'a> {
    style: &'static str,
    a: &'a str,
    b: &'a str,
    mismatches: &'a [String],
    table: Table,
    rule: String,
}

/// A comparison as HTML, with the names of both runs.
pub fn comparison_html(comparison: &Comparison, a: &str, b: &str) -> String {
    let head = ["Test", "Figure", "a", "b", "b / a", "Rounds", "Chance", "Verdict"];
    let mut table = Table::new("Medians over the rounds", &head);
    table.rows = comparison.rows.iter().map(row).collect();
    let page =
        Page { style: super::STYLE, a, b, mismatches: &comparison.mismatches, table, rule: rule() };
    page.render().expect("the template only writes to a string")
}

fn row(row: &Row) -> Vec<Cell> {
    let look = match row.verdict {
        Verdict::Better | Verdict::NoDifferenceShown => Look::Fine,
        Verdict::TooFewRounds => Look::Text,
        Verdict::Worse | Verdict::Missing => Look::Warning,
    };
    vec![
        Cell::code(&row.test),
        Cell::text(row.figure),
        Cell::figure(row.a, figure::count),
        Cell::figure(row.b, figure::count),
        Cell::figure(row.ratio, |ratio| format!("{ratio:.3}")),
        Cell::figure(Some(row.pairs() as f64), figure::count),
        Cell::figure(row.chance, figure::percent),
        Cell { look, ..Cell::text(row.verdict.text()) },
    ]
}
