//! Rows and columns, as text for people and as CSV for programs.
//!
//! Invariant: every row has as many cells as there are columns.

use clap::ValueEnum;

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Text,
    /// Comma-separated values with a line of names.
    Csv,
    /// One object.
    Json,
}

/// A table of texts.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose first row names its columns.
    pub fn new<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![names.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row. Panics: when it has not as many cells as there are columns.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.rows[0].len());
        self.rows.push(row);
    }

    /// Two spaces between the columns; the first is flush left, the others flush right.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        self.rows.iter().map(line).collect()
    }

    /// As RFC 4180 has it, with single line feeds.
    pub fn csv(&self) -> String {
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            format!("{}\n", cells.join(","))
        };
        self.rows.iter().map(line).collect()
    }
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_are_quoted_where_they_must() {
        let mut table = Table::new(["what", "a", "bb"]);
        table.row(["x", "1.25", ""]);
        table.row(["longer, \"it\"", "3", "4"]);
        assert_eq!(
            table.text(),
            "what             a  bb\nx             1.25\nlonger, \"it\"     3   4\n"
        );
        assert_eq!(table.csv(), "what,a,bb\nx,1.25,\n\"longer, \"\"it\"\"\",3,4\n");
    }
}
