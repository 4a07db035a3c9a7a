//! What a chart shows, handed to the script of the page as JSON: axes, series, limits, bands.
//!
//! Invariants:
//!
//! 1. A series has at most [`POINTS_MAX`] points, so that the page stays small whatever was run.
//! 2. What was not measured is a gap (`None`), never zero.

use serde::Serialize;

/// Points of a series; more could not be told apart on a screen.
pub const POINTS_MAX: usize = 400;

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    /// Unique in the page; the place in the page is found by it.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// A sentence or two below it.
    pub note: String,
    /// How it is drawn.
    pub kind: Kind,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// In the order of the legend; of a stack, from the bottom.
    pub series: Vec<Series>,
    /// Lines across, such as the limit of the drive.
    pub limits: Vec<Limit>,
    /// Ranges of x with something to say about each.
    pub bands: Vec<Band>,
    /// Names of x = 0, 1, 2, ... of bars.
    pub categories: Vec<String>,
}

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Lines over time.
    Lines,
    /// Areas on top of each other over time; all series have the same x.
    Stack,
    /// Named points, joined by a line.
    Points,
    /// A bar a series in each category.
    Bars,
}

/// An axis, and how its figures are written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// What it measures, without the unit.
    pub label: &'static str,
    /// Unit of the figures.
    pub unit: Unit,
    /// Both ends, if the data do not give them.
    pub range: Option<[f64; 2]>,
}

/// Unit of the figures of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things, or things a second.
    Count,
    /// Operations a second.
    Ops,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    Throughput,
    /// Milliseconds.
    Ms,
    /// Percent, from 0 to 100.
    Percent,
    /// Seconds, shown as minutes and seconds.
    Seconds,
    /// Nothing: places of categories.
    Category,
}

/// Which colour a series has: its meaning, the same in all charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Colour {
    /// Our figures; values in RAM.
    Ram,
    /// Flash.
    Flash,
    /// A third series.
    Third,
    /// A fourth series.
    Fourth,
    /// The published figures, and what is only there for reference.
    Reference,
}

/// A series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// As in the legend.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// x and y.
    pub points: Vec<(f64, Option<f64>)>,
    /// Name of each point, if they have names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// A line across.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// Beside it.
    pub name: String,
    /// Its height.
    pub y: f64,
}

/// A range of x.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What is said about it.
    pub name: &'static str,
}

impl Chart {
    /// A chart without any series yet.
    pub fn new(id: &'static str, title: &str, kind: Kind, x: Axis, y: Axis) -> Self {
        Self {
            id,
            title: title.to_owned(),
            note: String::new(),
            kind,
            x,
            y,
            series: Vec::new(),
            limits: Vec::new(),
            bands: Vec::new(),
            categories: Vec::new(),
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(Series::is_empty)
    }
}

impl Axis {
    /// An axis that spans its data.
    pub fn new(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, range: None }
    }

    /// An axis with given ends.
    pub fn within(label: &'static str, unit: Unit, range: [f64; 2]) -> Self {
        Self { label, unit, range: Some(range) }
    }
}

impl Series {
    /// A series over time, thinned to [`POINTS_MAX`].
    pub fn over_time(name: &str, colour: Colour, points: Vec<(f64, Option<f64>)>) -> Self {
        Self { name: name.to_owned(), colour, points: thin(&points), names: Vec::new() }
    }

    /// Whether no point has a figure.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(|(_, y)| y.is_none())
    }
}

/// Means of neighbours, as many to one as it takes; a gap only where all of them are gaps.
fn thin(points: &[(f64, Option<f64>)]) -> Vec<(f64, Option<f64>)> {
    let together = points.len().div_ceil(POINTS_MAX).max(1);
    points.chunks(together).map(mean_of).collect()
}

fn mean_of(points: &[(f64, Option<f64>)]) -> (f64, Option<f64>) {
    let known: Vec<f64> = points.iter().filter_map(|(_, y)| *y).collect();
    let y = (!known.is_empty()).then(|| short(known.iter().sum::<f64>() / known.len() as f64));
    // To the tenth, so that the seconds of several series are the same ones.
    ((points[0].0 * 10.0).round() / 10.0, y)
}

/// Six significant digits, so that the page carries no noise.
fn short(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return 0.0;
    }
    let unit = 10f64.powi(5 - figure.abs().log10().floor() as i32);
    if unit >= 1.0 { (figure * unit).round() / unit } else { figure.round() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_are_thinned_and_short_ones_kept() {
        let points: Vec<(f64, Option<f64>)> =
            (0..10_000).map(|second| (f64::from(second), Some(2.0))).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= POINTS_MAX && thinned.len() > POINTS_MAX / 2);
        assert!(thinned.iter().all(|(_, y)| *y == Some(2.0)));
        assert_eq!(thin(&points[..POINTS_MAX]), points[..POINTS_MAX]);
        assert_eq!(thin(&[]), []);
    }

    #[test]
    fn a_gap_stays_a_gap_but_does_not_swallow_its_neighbours() {
        assert_eq!(mean_of(&[(1.0, None), (2.0, None)]), (1.0, None));
        assert_eq!(mean_of(&[(1.04, None), (2.0, Some(4.0))]), (1.0, Some(4.0)));
    }

    #[test]
    fn figures_keep_six_digits() {
        assert_eq!(short(1_234_567_890.4), 1_234_567_890.0);
        assert_eq!(short(0.123_456_789), 0.123_457);
        assert_eq!(short(0.0), 0.0);
    }
}
