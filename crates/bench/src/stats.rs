//! What is counted while a load runs. Each thread has its own; they are added up at the end.

use crate::request::Kind;
use hdrhistogram::Histogram;

/// Most different error texts that are kept.
const ERROR_TEXTS_MAX: usize = 8;
/// Longest time that a latency histogram tells apart, in nanoseconds: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant digits of latencies.
const LATENCY_DIGITS: u8 = 3;

/// Counts and latencies of one kind of request.
#[derive(Debug, Clone)]
pub struct KindStats {
    /// Latencies in nanoseconds; as many as there were replies.
    pub latency_ns: Histogram<u64>,
    /// Their sum, for an exact average.
    pub latency_ns_sum: u128,
    /// The longest, exactly.
    pub latency_ns_max: u64,
    /// The shortest, exactly.
    pub latency_ns_min: u64,
}

/// What happened in one second of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Second {
    /// Replies that came.
    pub replies: u64,
    /// The longest latency among them, in nanoseconds.
    pub latency_ns_max: u64,
}

/// Everything that a thread counts.
#[derive(Debug, Clone)]
pub struct Stats {
    /// About SETs.
    pub set: KindStats,
    /// About GETs.
    pub get: KindStats,
    /// GETs that found no value.
    pub misses: u64,
    /// Values of the wrong length or content.
    pub wrong: u64,
    /// Error replies.
    pub errors: u64,
    /// Texts of the first different errors, of replies and of connections.
    pub error_texts: Vec<String>,
    /// Connections that were lost or that made no sense.
    pub connections_lost: u64,
    /// Requests that were due by the schedule but found no room before the end.
    pub unsent: u64,
    /// Bytes of values that were written.
    pub value_bytes_written: u64,
    /// Bytes of values that were read.
    pub value_bytes_read: u64,
    /// The longest that a connection with requests in flight waited for the next reply, in
    /// nanoseconds.
    pub stall_ns_max: u64,
    /// Second by second.
    pub seconds: Vec<Second>,
}

impl KindStats {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
            .expect("invariant: the bounds are constants that a histogram accepts");
        Self { latency_ns, latency_ns_sum: 0, latency_ns_max: 0, latency_ns_min: u64::MAX }
    }

    /// Replies counted.
    pub fn count(&self) -> u64 {
        self.latency_ns.len()
    }

    /// Average latency in nanoseconds, 0 when there is none.
    pub fn mean_ns(&self) -> f64 {
        self.latency_ns_sum as f64 / self.count().max(1) as f64
    }

    fn record(&mut self, latency_ns: u64, count: u64) {
        self.latency_ns.saturating_record_n(latency_ns, count);
        self.latency_ns_sum += u128::from(latency_ns) * u128::from(count);
        self.latency_ns_max = self.latency_ns_max.max(latency_ns);
        self.latency_ns_min = self.latency_ns_min.min(latency_ns);
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.latency_ns
            .add(&other.latency_ns)
            .expect("invariant: all histograms have the same bounds");
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.latency_ns_min = self.latency_ns_min.min(other.latency_ns_min);
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            set: KindStats::new(),
            get: KindStats::new(),
            misses: 0,
            wrong: 0,
            errors: 0,
            error_texts: Vec::new(),
            connections_lost: 0,
            unsent: 0,
            value_bytes_written: 0,
            value_bytes_read: 0,
            stall_ns_max: 0,
            seconds: Vec::new(),
        }
    }
}

impl Stats {
    /// Counts `count` replies that came `now_ns` after the start and took `latency_ns` each.
    pub fn record(&mut self, kind: Kind, latency_ns: u64, count: u64, now_ns: u64) {
        let stats = match kind {
            Kind::Set => &mut self.set,
            Kind::Get => &mut self.get,
        };
        stats.record(latency_ns, count);
        let index = (now_ns / 1_000_000_000) as usize;
        if index >= self.seconds.len() {
            self.seconds.resize(index + 1, Second::default());
        }
        let second = &mut self.seconds[index];
        second.replies += count;
        second.latency_ns_max = second.latency_ns_max.max(latency_ns);
    }

    /// Keeps the text of an error if it is a new one.
    pub fn note_error(&mut self, text: &str) {
        let known = self.error_texts.iter().any(|known| known == text);
        if !known && self.error_texts.len() < ERROR_TEXTS_MAX {
            self.error_texts.push(text.to_owned());
        }
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        self.set.add(&other.set);
        self.get.add(&other.get);
        self.misses += other.misses;
        self.wrong += other.wrong;
        self.errors += other.errors;
        self.connections_lost += other.connections_lost;
        self.unsent += other.unsent;
        self.value_bytes_written += other.value_bytes_written;
        self.value_bytes_read += other.value_bytes_read;
        self.stall_ns_max = self.stall_ns_max.max(other.stall_ns_max);
        for text in &other.error_texts {
            self.note_error(text);
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (second, other) in self.seconds.iter_mut().zip(&other.seconds) {
            second.replies += other.replies;
            second.latency_ns_max = second.latency_ns_max.max(other.latency_ns_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let (mut one, mut two) = (Stats::default(), Stats::default());
        one.record(Kind::Get, 1_000, 3, 100);
        two.record(Kind::Get, 9_000, 1, 2_500_000_000);
        two.note_error("ERR a");
        two.note_error("ERR a");
        one.add(&two);
        assert_eq!(one.get.count(), 4);
        assert_eq!(one.get.latency_ns_max, 9_000);
        assert_eq!(one.get.latency_ns_min, 1_000);
        assert_eq!(one.get.mean_ns(), 3_000.0);
        assert_eq!(one.error_texts, ["ERR a"]);
        let replies: Vec<u64> = one.seconds.iter().map(|second| second.replies).collect();
        assert_eq!(replies, [3, 0, 1]);
    }
}
