//! Tables of the page: cells with a figure and, below it, what to hold it against.

use crate::results::{State, Test};

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows; the first cell of each names it.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// Below it, smaller: the published figure, or why there is none.
    pub below: String,
    /// Why the figure is to be doubted, in a word.
    pub mark: String,
    /// How it is set.
    pub look: Look,
}

/// How a cell is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    /// Text.
    #[default]
    Text,
    /// A figure.
    Figure,
    /// A figure that could not be had.
    Missing,
    /// A command line or an id.
    Code,
    /// A mark of a state that is as it should be.
    Fine,
    /// A mark of a state that a reader must know of.
    Warning,
}

impl Look {
    /// Whether it is set in the letters of a terminal.
    pub fn is_code(self) -> bool {
        self == Self::Code
    }

    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Figure => "figure",
            Self::Missing => "figure missing",
            Self::Code => "code",
            Self::Fine => "text fine",
            Self::Warning => "text warning",
        }
    }
}

impl Table {
    /// A table without rows yet.
    pub fn new(caption: &str, head: &[&str]) -> Self {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Self { caption: caption.to_owned(), head, rows: Vec::new() }
    }

    /// Whether a column holds figures, which are set to the right.
    pub fn is_figures(&self, column: &usize) -> bool {
        let is_figure = |row: &Vec<Cell>| matches!(row[*column].look, Look::Figure | Look::Missing);
        self.rows.iter().any(is_figure)
    }

    /// Whether its columns have names.
    pub fn has_head(&self) -> bool {
        self.head.iter().any(|name| !name.is_empty())
    }
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A command line or an id.
    pub fn code(text: impl Into<String>) -> Self {
        Self { look: Look::Code, ..Self::text(text) }
    }

    /// A figure, or a dash if it could not be had.
    pub fn figure(figure: Option<f64>, write: impl Fn(f64) -> String) -> Self {
        match figure {
            Some(figure) => Self { look: Look::Figure, ..Self::text(write(figure)) },
            None => Self { look: Look::Missing, ..Self::text("\u{2013}") },
        }
    }

    /// The same, with text below.
    pub fn below(self, below: impl Into<String>) -> Self {
        Self { below: below.into(), ..self }
    }

    /// The same, with a published figure below.
    pub fn published(self, figure: Option<f64>, write: impl Fn(f64) -> String) -> Self {
        match figure {
            Some(figure) => self.below(write(figure)),
            None => self,
        }
    }

    /// The same, marked if one of the tests that it comes from did not end well.
    pub fn marked(self, tests: &[Option<&Test>]) -> Self {
        Self { mark: doubt(tests).unwrap_or_default(), ..self }
    }

    /// The name of a row whose published figures stand below ours.
    pub fn ours(name: &str) -> Self {
        Self::text(name).below("published")
    }

    /// How far a test came, and what went wrong on the way.
    pub fn state(test: Option<&Test>) -> Self {
        let Some(test) = test else {
            return Self { look: Look::Warning, ..Self::text("not run") };
        };
        let (text, below) = match &test.state {
            State::Done => ("done", String::new()),
            State::Partial => ("partial", "stopped before its end".to_owned()),
            State::Pending => ("not run", "not begun when the run ended".to_owned()),
            State::Failed(why) => ("failed", why.clone()),
        };
        let errors = match test.errors() {
            0 => String::new(),
            errors => format!("{errors} errors"),
        };
        let fine = test.state == State::Done && errors.is_empty();
        let separator = if below.is_empty() || errors.is_empty() { "" } else { "; " };
        Self {
            below: format!("{below}{separator}{errors}"),
            look: if fine { Look::Fine } else { Look::Warning },
            ..Self::text(text)
        }
    }
}

/// Why figures of some tests are to be doubted, in a word: the first that did not end well.
pub fn doubt(tests: &[Option<&Test>]) -> Option<String> {
    tests.iter().flatten().find_map(|test| match &test.state {
        State::Partial => Some("partial".to_owned()),
        State::Pending => Some("not run".to_owned()),
        State::Failed(_) => Some("failed".to_owned()),
        State::Done if test.errors() > 0 => Some("errors".to_owned()),
        State::Done => None,
    })
}
