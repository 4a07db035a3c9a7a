//! The line that a load shows on a terminal while it runs: operations a second and p99 over the last
//! interval.

use crate::report::ms;
use crate::stats::latency_histogram;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Mutex;
use std::time::Duration;

/// How often the line is drawn, and how often the threads tell what they have done.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// Steps of the bar.
const STEPS: u64 = 1000;

/// The line, and what it will show next.
pub struct LiveLine {
    bar: ProgressBar,
    recent: Mutex<Histogram<u64>>,
}

impl LiveLine {
    /// A line on the standard error.
    ///
    /// Panics: never, the template is a constant.
    pub fn new(title: &str) -> Self {
        let style = ProgressStyle::with_template("{prefix} {elapsed:>4} {wide_bar:.cyan} {msg}")
            .expect("invariant: the template is a constant that is understood");
        let bar = ProgressBar::new(STEPS).with_style(style).with_prefix(title.to_owned());
        Self { bar, recent: Mutex::new(latency_histogram()) }
    }

    /// Adds what a thread has seen since it last told.
    pub fn tell(&self, latencies: &Histogram<u64>) {
        let mut recent = self.recent.lock().unwrap_or_else(|poison| poison.into_inner());
        // All histograms of latencies have the same bounds: this cannot fail.
        let _ = recent.add(latencies);
    }

    /// Draws what was told in the last `seconds`; `share` of the load is done. Returns how many
    /// replies that were.
    pub fn draw(&self, seconds: f64, share: f64) -> u64 {
        let mut recent = self.recent.lock().unwrap_or_else(|poison| poison.into_inner());
        let count = recent.len();
        let per_second = count as f64 / seconds.max(1e-9);
        let p99_ms = ms(recent.value_at_percentile(99.0) as f64);
        recent.reset();
        drop(recent);
        self.bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.bar.set_message(format!("{per_second:>9.0} ops/s  p99 {p99_ms:>8.3} ms"));
        count
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
