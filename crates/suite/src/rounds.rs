//! Medians over the rounds of a test: the one figure that stands for all of them.

use crate::results::{Results, Round, Test};

/// Median of some figures; the mean of the middle two if their number is even.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().filter(|figure| figure.is_finite()).collect();
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = figures[(figures.len() - 1) / 2];
    Some(lower.midpoint(upper))
}

impl Results {
    /// The test with an id.
    pub fn test(&self, id: &str) -> Option<&Test> {
        self.tests.iter().find(|test| test.id == id)
    }
}

impl Test {
    /// Median over the rounds of a figure that each of them has.
    pub fn median(&self, figure: impl Fn(&Round) -> f64) -> Option<f64> {
        median(self.rounds.iter().map(figure))
    }

    /// Median over those rounds that have the figure.
    pub fn median_of_known(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(figure))
    }

    /// Errors of all rounds.
    pub fn errors(&self) -> u64 {
        self.rounds.iter().map(|round| round.errors).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_figure_stands_for_all() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median([f64::NAN, 5.0]), Some(5.0));
    }
}
