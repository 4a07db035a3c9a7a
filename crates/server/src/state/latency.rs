//! The latency monitor: spikes above `latency-monitor-threshold`, by event.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

/// Spikes kept of each event.
const SPIKES_MAX: usize = 160;

/// The spikes of one event.
#[derive(Clone, Default, Debug)]
pub(crate) struct Event {
    /// Time (Unix seconds) and duration (ms), oldest first; spikes of one second are merged.
    pub(crate) spikes: VecDeque<(u64, u64)>,
    /// The longest ever, in ms.
    pub(crate) max_ms: u64,
}

/// All events.
#[derive(Default)]
pub(crate) struct LatencyMonitor(Mutex<BTreeMap<&'static str, Event>>);

impl LatencyMonitor {
    /// Adds a spike.
    pub(crate) fn add(&self, name: &'static str, at_seconds: u64, duration_ms: u64) {
        let mut events = self.0.lock();
        let event = events.entry(name).or_default();
        event.max_ms = event.max_ms.max(duration_ms);
        match event.spikes.back_mut() {
            Some(last) if last.0 == at_seconds => last.1 = last.1.max(duration_ms),
            _ => event.spikes.push_back((at_seconds, duration_ms)),
        }
        if event.spikes.len() > SPIKES_MAX {
            event.spikes.pop_front();
        }
    }

    /// All events with what is known of them.
    pub(crate) fn events(&self) -> Vec<(&'static str, Event)> {
        self.0.lock().iter().map(|(name, event)| (*name, event.clone())).collect()
    }

    /// Forgets one event, or all. Returns how many went.
    pub(crate) fn reset(&self, name: Option<&[u8]>) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| {
            name.is_some_and(|name| !name.eq_ignore_ascii_case(event.as_bytes()))
        });
        before - events.len()
    }
}
