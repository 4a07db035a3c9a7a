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
    recent: Mutex<Recent>,
}

/// What was told since the line was drawn.
struct Recent {
    latencies: Histogram<u64>,
    /// Of all threads together: they tell when it suits them, so that there is more or less of it
    /// than the time that has passed.
    thread_seconds: f64,
}

impl LiveLine {
    /// A line on the standard error.
    ///
    /// Panics: never, the template is a constant.
    pub fn new(title: &str) -> Self {
        let style = ProgressStyle::with_template("{prefix} {elapsed:>4} {wide_bar:.cyan} {msg}")
            .expect("invariant: the template is a constant that is understood");
        let bar = ProgressBar::new(STEPS).with_style(style).with_prefix(title.to_owned());
        let recent = Recent { latencies: latency_histogram(), thread_seconds: 0.0 };
        Self { bar, recent: Mutex::new(recent) }
    }

    /// Begins anew, for another run.
    pub fn begin(&self) {
        self.bar.reset();
    }

    /// Adds what a thread has seen in the `seconds` since it last told.
    pub fn tell(&self, latencies: &Histogram<u64>, seconds: f64) {
        let mut recent = self.recent.lock().unwrap_or_else(|poison| poison.into_inner());
        // All histograms of latencies have the same bounds: this cannot fail.
        let _ = recent.latencies.add(latencies);
        recent.thread_seconds += seconds;
    }

    /// Draws what so many threads have told since the last time; if they have told nothing, the
    /// figures stay. `share` of the load is done. Returns how many replies were told.
    pub fn draw(&self, threads: usize, share: f64) -> u64 {
        let mut recent = self.recent.lock().unwrap_or_else(|poison| poison.into_inner());
        let (count, seconds) = (recent.latencies.len(), recent.thread_seconds / threads as f64);
        let p99_ms = ms(recent.latencies.value_at_percentile(99.0) as f64);
        recent.latencies.reset();
        recent.thread_seconds = 0.0;
        drop(recent);
        self.bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        if seconds > 0.0 {
            let per_second = count as f64 / seconds;
            self.bar.set_message(format!("{per_second:>9.0} ops/s  p99 {p99_ms:>8.3} ms"));
        }
        count
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
