//! What is counted while a load runs. Each thread has its own; they are added up at the end.
//!
//! There is a row for each kind of request, in the order of the rows of the result table.

use hdrhistogram::Histogram;

/// Most different error texts that are kept.
const ERROR_TEXTS_MAX: usize = 8;
/// Longest time that a latency histogram tells apart, in nanoseconds: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant digits of latencies.
const LATENCY_DIGITS: u8 = 3;
const SECOND_NS: u64 = 1_000_000_000;

/// An empty histogram of latencies in nanoseconds.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
        .expect("invariant: the bounds are constants that a histogram accepts")
}

/// Replies that came together and took equally long: those of a pipeline do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replies {
    /// How many.
    pub count: u64,
    /// How long each took, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes of all of them.
    pub received_bytes: u64,
}

/// What happened in one second of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Second {
    /// Replies that came.
    pub replies: u64,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of replies.
    pub received_bytes: u64,
    /// Sum of the latencies in nanoseconds.
    pub latency_ns_sum: u64,
    /// The shortest latency in nanoseconds, `u64::MAX` when there is none.
    pub latency_ns_min: u64,
    /// The longest latency in nanoseconds.
    pub latency_ns_max: u64,
}

/// Counts and latencies of one kind of request.
#[derive(Debug, Clone)]
pub struct Row {
    /// Latencies in nanoseconds; as many as there were replies.
    pub latency_ns: Histogram<u64>,
    /// Their sum, for an exact average.
    pub latency_ns_sum: u128,
    /// The longest, exactly.
    pub latency_ns_max: u64,
    /// The shortest, exactly; `u64::MAX` when there is none.
    pub latency_ns_min: u64,
    /// Keys that were read and found.
    pub hits: u64,
    /// Keys that were read and not found.
    pub misses: u64,
    /// Replies MOVED, which were obeyed.
    pub moved: u64,
    /// Replies ASK, which were obeyed.
    pub asked: u64,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of replies.
    pub received_bytes: u64,
    /// Second by second.
    pub seconds: Vec<Second>,
}

/// Everything that a thread counts.
#[derive(Debug, Clone)]
pub struct Stats {
    /// By kind of request.
    pub rows: Vec<Row>,
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
}

impl Second {
    const EMPTY: Self = Self {
        replies: 0,
        sent_bytes: 0,
        received_bytes: 0,
        latency_ns_sum: 0,
        latency_ns_min: u64::MAX,
        latency_ns_max: 0,
    };

    fn add(&mut self, other: &Self) {
        self.replies += other.replies;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_min = self.latency_ns_min.min(other.latency_ns_min);
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
    }
}

impl Default for Row {
    fn default() -> Self {
        Self {
            latency_ns: latency_histogram(),
            latency_ns_sum: 0,
            latency_ns_max: 0,
            latency_ns_min: u64::MAX,
            hits: 0,
            misses: 0,
            moved: 0,
            asked: 0,
            sent_bytes: 0,
            received_bytes: 0,
            seconds: Vec::new(),
        }
    }
}

impl Row {
    /// Replies counted.
    pub fn count(&self) -> u64 {
        self.latency_ns.len()
    }

    /// Average latency in nanoseconds, 0 when there is none.
    pub fn mean_ns(&self) -> f64 {
        self.latency_ns_sum as f64 / self.count().max(1) as f64
    }

    /// The shortest latency in nanoseconds, 0 when there is none.
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.latency_ns_min }
    }

    /// A percentile in nanoseconds; the histogram rounds up, but not past the exact maximum.
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.latency_ns.value_at_percentile(percentile).min(self.latency_ns_max)
    }

    /// Counts bytes of requests that were sent `now_ns` after the start.
    #[inline]
    pub fn sent(&mut self, bytes: u64, now_ns: u64) {
        self.sent_bytes += bytes;
        self.second(now_ns).sent_bytes += bytes;
    }

    /// Counts replies that came `now_ns` after the start.
    #[inline]
    pub fn received(&mut self, replies: Replies, now_ns: u64) {
        let Replies { count, latency_ns, received_bytes } = replies;
        self.latency_ns.saturating_record_n(latency_ns, count);
        self.latency_ns_sum += u128::from(latency_ns) * u128::from(count);
        self.latency_ns_max = self.latency_ns_max.max(latency_ns);
        self.latency_ns_min = self.latency_ns_min.min(latency_ns);
        self.received_bytes += received_bytes;
        self.second(now_ns).add(&Second {
            replies: count,
            sent_bytes: 0,
            received_bytes,
            latency_ns_sum: latency_ns.saturating_mul(count),
            latency_ns_min: latency_ns,
            latency_ns_max: latency_ns,
        });
    }

    fn second(&mut self, now_ns: u64) -> &mut Second {
        let index = (now_ns / SECOND_NS) as usize;
        if index >= self.seconds.len() {
            self.seconds.resize(index + 1, Second::EMPTY);
        }
        &mut self.seconds[index]
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.latency_ns
            .add(&other.latency_ns)
            .expect("invariant: all histograms have the same bounds");
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.latency_ns_min = self.latency_ns_min.min(other.latency_ns_min);
        self.hits += other.hits;
        self.misses += other.misses;
        self.moved += other.moved;
        self.asked += other.asked;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::EMPTY);
        }
        for (second, other) in self.seconds.iter_mut().zip(&other.seconds) {
            second.add(other);
        }
    }
}

impl Stats {
    /// Nothing counted yet, for so many kinds of request.
    pub fn new(rows: usize) -> Self {
        Self {
            rows: vec![Row::default(); rows],
            wrong: 0,
            errors: 0,
            error_texts: Vec::new(),
            connections_lost: 0,
            unsent: 0,
            value_bytes_written: 0,
            value_bytes_read: 0,
            stall_ns_max: 0,
        }
    }

    /// All rows in one.
    pub fn totals(&self) -> Row {
        let mut totals = Row::default();
        for row in &self.rows {
            totals.add(row);
        }
        totals
    }

    /// Keys that were read and not found.
    pub fn misses(&self) -> u64 {
        self.rows.iter().map(|row| row.misses).sum()
    }

    /// Keeps the text of an error if it is a new one.
    pub fn note_error(&mut self, text: &str) {
        let known = self.error_texts.iter().any(|known| known == text);
        if !known && self.error_texts.len() < ERROR_TEXTS_MAX {
            self.error_texts.push(text.to_owned());
        }
    }

    /// Adds what another thread, or another run of the same load, counted.
    pub fn add(&mut self, other: &Self) {
        assert_eq!(self.rows.len(), other.rows.len());
        for (row, other) in self.rows.iter_mut().zip(&other.rows) {
            row.add(other);
        }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let (mut one, mut two) = (Stats::new(2), Stats::new(2));
        let replies = |count, latency_ns| Replies { count, latency_ns, received_bytes: 10 };
        one.rows[1].received(replies(3, 1_000), 100);
        two.rows[1].received(replies(1, 9_000), 2_500_000_000);
        two.rows[0].sent(7, 1_000_000_000);
        two.note_error("ERR a");
        two.note_error("ERR a");
        one.add(&two);
        assert_eq!(one.rows[1].count(), 4);
        assert_eq!(one.rows[1].latency_ns_max, 9_000);
        assert_eq!(one.rows[1].latency_ns_min, 1_000);
        assert_eq!(one.rows[1].mean_ns(), 3_000.0);
        assert_eq!(one.error_texts, ["ERR a"]);
        let totals = one.totals();
        let seconds: Vec<_> =
            totals.seconds.iter().map(|second| (second.replies, second.sent_bytes)).collect();
        assert_eq!(seconds, [(3, 0), (0, 7), (1, 0)]);
        assert_eq!((totals.sent_bytes, totals.received_bytes), (7, 20));
    }
}
