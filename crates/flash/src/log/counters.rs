//! What one worker counts. Only that worker adds, so an addition is a load and a store; everybody
//! may read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::stats::{EngineStats, LatencySummary};

/// A count with one writer.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get() + more, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one worker. The names are those of `EngineStats`.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: Count,
    pub(crate) reads_buffered: Count,
    pub(crate) reads_merged: Count,
    pub(crate) device_reads: Count,
    pub(crate) device_read_bytes: Count,
    pub(crate) read_ahead_bytes: Count,
    pub(crate) read_ahead_used_bytes: Count,
    pub(crate) block_cache_hits: Count,
    pub(crate) block_cache_bytes: Count,
    pub(crate) device_writes: Count,
    pub(crate) device_write_bytes: Count,
    pub(crate) appends: Count,
    pub(crate) append_bytes: Count,
    pub(crate) gc_segments: Count,
    pub(crate) gc_read_bytes: Count,
    pub(crate) gc_relocated: Count,
    pub(crate) gc_relocated_bytes: Count,
    pub(crate) gc_dropped: Count,
    pub(crate) read_errors: Count,
    pub(crate) write_errors: Count,
    pub(crate) checksum_failures: Count,
    pub(crate) buffer_bytes: Count,
    pub(crate) unmade_bytes: Count,
    pub(crate) read_latency: Histogram,
}

impl Counters {
    /// Counters for one more worker: those of one that has ended go on, for else each that comes and goes would leave
    /// some behind.
    pub(crate) fn of_one_more(all: &mut Vec<Arc<Counters>>) -> Arc<Counters> {
        let left = all.iter_mut().find_map(|counters| {
            // Nobody else has it.
            Arc::get_mut(counters)?;
            Some(Arc::clone(counters))
        });
        if let Some(counters) = left {
            return counters;
        }
        let counters = Arc::new(Counters::default());
        all.push(Arc::clone(&counters));
        counters
    }

    /// Adds the counts to a total; the latency is left to the caller, who merges histograms.
    pub(crate) fn add_to(&self, stats: &mut EngineStats) {
        stats.reads += self.reads.get();
        stats.reads_buffered += self.reads_buffered.get();
        stats.reads_merged += self.reads_merged.get();
        stats.device_reads += self.device_reads.get();
        stats.device_read_bytes += self.device_read_bytes.get();
        stats.read_ahead_bytes += self.read_ahead_bytes.get();
        stats.read_ahead_used_bytes += self.read_ahead_used_bytes.get();
        stats.block_cache_hits += self.block_cache_hits.get();
        stats.block_cache_bytes += self.block_cache_bytes.get();
        stats.device_writes += self.device_writes.get();
        stats.device_write_bytes += self.device_write_bytes.get();
        stats.appends += self.appends.get();
        stats.append_bytes += self.append_bytes.get();
        stats.gc_segments += self.gc_segments.get();
        stats.gc_read_bytes += self.gc_read_bytes.get();
        stats.gc_relocated += self.gc_relocated.get();
        stats.gc_relocated_bytes += self.gc_relocated_bytes.get();
        stats.gc_dropped += self.gc_dropped.get();
        stats.read_errors += self.read_errors.get();
        stats.write_errors += self.write_errors.get();
        stats.checksum_failures += self.checksum_failures.get();
        stats.buffer_bytes += self.buffer_bytes.get();
        stats.unmade_bytes += self.unmade_bytes.get();
    }
}

/// Steps of each power of two: a bucket is at most 1/8 wide.
const STEPS: usize = 8;
const STEP_BITS: u32 = 3;

/// Powers of two of microseconds, up to over an hour; what takes longer counts as the last.
const POWERS: usize = 32;

/// A latency histogram of fixed size. Units: microseconds.
pub(crate) struct Histogram {
    buckets: [Count; POWERS * STEPS],
    us_max: Count,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { Count(AtomicU64::new(0)) }; _], us_max: Count::default() }
    }
}

impl Histogram {
    pub(crate) fn add(&self, us: u64) {
        self.buckets[bucket(us)].add(1);
        if us > self.us_max.get() {
            self.us_max.set(us);
        }
    }

    /// The percentiles of all histograms together.
    pub(crate) fn summary<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> LatencySummary {
        let mut counts = [0; POWERS * STEPS];
        let mut us_max = 0;
        for histogram in histograms {
            for (total, bucket) in counts.iter_mut().zip(&histogram.buckets) {
                *total += bucket.get();
            }
            us_max = us_max.max(histogram.us_max.get());
        }
        let count: u64 = counts.iter().sum();
        let percentile = |per_mille: u64| {
            let rank = (count * per_mille).div_ceil(1000);
            let mut seen = 0;
            let found = counts.iter().position(|&samples| {
                seen += samples;
                seen >= rank && seen > 0
            });
            found.map_or(0, |index| bucket_end(index).min(us_max))
        };
        LatencySummary {
            count,
            us_p50: percentile(500),
            us_p99: percentile(990),
            us_p999: percentile(999),
            us_max,
        }
    }
}

fn bucket(us: u64) -> usize {
    if us < STEPS as u64 {
        return us as usize;
    }
    let power = us.ilog2() - STEP_BITS;
    let step = (us >> power) as usize & (STEPS - 1);
    ((power as usize + 1) * STEPS + step).min(POWERS * STEPS - 1)
}

/// The largest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    let (power, step) = (index / STEPS, (index % STEPS) as u64);
    if power == 0 {
        return step;
    }
    ((STEPS as u64 + step + 1) << (power - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_without_gaps() {
        let mut last = 0;
        for us in 0..100_000u64 {
            let index = bucket(us);
            assert!(index == last || index == last + 1, "{us}");
            assert!(us <= bucket_end(index), "{us}");
            assert!(bucket_end(index) as f64 <= us as f64 * 1.125 + 1.0, "{us}");
            last = index;
        }
        assert_eq!(bucket(u64::MAX), POWERS * STEPS - 1);
    }

    #[test]
    fn workers_that_come_and_go_leave_their_counts_alone_behind() {
        let mut all = Vec::new();
        let stays = Counters::of_one_more(&mut all);
        for _ in 0..3 {
            Counters::of_one_more(&mut all).reads.add(2);
        }
        stays.reads.add(1);
        assert_eq!(all.len(), 2);
        let mut stats = EngineStats::default();
        all.iter().for_each(|counters| counters.add_to(&mut stats));
        assert_eq!(stats.reads, 7);
    }

    #[test]
    fn percentiles_of_known_samples() {
        let (one, two) = (Histogram::default(), Histogram::default());
        (1..=500).for_each(|us| one.add(us));
        (501..=1000).for_each(|us| two.add(us));
        let summary = Histogram::summary([&one, &two].into_iter());
        assert_eq!((summary.count, summary.us_max), (1000, 1000));
        assert!((500..=562).contains(&summary.us_p50), "{summary:?}");
        assert!((990..=1000).contains(&summary.us_p99), "{summary:?}");
        assert_eq!(Histogram::summary([].into_iter()), LatencySummary::default());
    }
}
