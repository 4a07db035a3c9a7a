//! The sections of the page, in its order: one file each, from results to charts and tables.

pub mod briefs;
pub mod corners;
pub mod fill;
pub mod run;
pub mod sweep;
pub mod traffic;

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
            lead: vec![lead.to_owned()],
            warnings: Vec::new(),
            charts: Vec::new(),
            tables: Vec::new(),
        }
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
