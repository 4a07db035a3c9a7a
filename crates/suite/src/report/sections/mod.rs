//! The sections of the page, in its order: one file each, from results to charts and tables.

pub mod corners;
pub mod fill;
pub mod life;
pub mod run;
pub mod sweep;
pub mod traffic;
pub mod workloads;

use super::chart::Chart;
use super::table::Table;

/// A section.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its anchor.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What to know before looking, a paragraph each.
    pub lead: Vec<String>,
    /// What is missing here, and why.
    pub warnings: Vec<String>,
    /// Its charts, two beside each other where there is room.
    pub charts: Vec<Chart>,
    /// Its tables.
    pub tables: Vec<Table>,
}

impl Section {
    fn new(id: &'static str, title: &'static str, lead: &str) -> Self {
        Self {
            id,
            title,
            lead: Vec::new(),
            warnings: Vec::new(),
            charts: Vec::new(),
            tables: Vec::new(),
        }
        .paragraph(lead)
    }

    /// The same, with one more paragraph before its charts.
    fn paragraph(mut self, text: &str) -> Self {
        // A figure and its unit stay on one line.
        self.lead.push(text.replace(" %", "\u{a0}%"));
        self
    }

    /// Takes a chart, or says that there is nothing to draw.
    fn chart(&mut self, chart: Chart) {
        if chart.is_empty() {
            self.warnings.push(format!("{}: nothing was measured.", chart.title));
        } else {
            self.charts.push(chart);
        }
    }
}
