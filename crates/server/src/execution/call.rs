//! What is kept of a call: its counters, the slow log, the latency monitor, MONITOR.

use std::sync::atomic::Ordering;

use command::Flags;
use resp::Args;

use crate::session::Session;
use crate::state::registry::Entry;
use crate::state::secrets::{REDACTED, secret_args};
use crate::state::slowlog::{self, SlowCommand, trimmed, trimmed_name};

/// Counts a call, notes it when it was slow, and shows it to those who watch.
#[inline]
pub(crate) fn count(session: &Session, entry: &Entry, args: Args<'_>, start_ticks: u64) {
    let ticks = session.server().clock.raw() - start_ticks;
    session.worker.stats.commands[entry.index].count(ticks);
    session.worker.turn.add_ticks(ticks);
    note(session, entry, args, ticks);
}

/// Notes a call when it was slow, and shows it to those who watch.
#[inline]
pub(crate) fn note(session: &Session, entry: &Entry, args: Args<'_>, ticks: u64) {
    let server = session.server();
    let client = &session.client;
    client.last_command.store(entry.index as u32 + 1, Ordering::Relaxed);
    if ticks > server.samples.slow_ticks() {
        note_slow(session, entry, args, ticks);
    }
    if server.monitors.are_watching() && !entry.spec.flags.has(Flags::SKIP_MONITOR | Flags::ADMIN) {
        server.monitors.show(server, client, session.db, args);
    }
}

#[cold]
fn note_slow(session: &Session, entry: &Entry, args: Args<'_>, ticks: u64) {
    let server = session.server();
    let duration_us = server.clock.delta_as_nanos(0, ticks) / 1000;
    let at_seconds = session.now_ms / 1000;
    let slower_than = server.config.slowlog_log_slower_than.load();
    let skips = entry.spec.flags.has(Flags::SKIP_SLOWLOG);
    if slower_than >= 0 && duration_us >= slower_than as u64 && !skips {
        let args = redacted(args);
        let command = SlowCommand {
            id: 0,
            at_seconds,
            duration_us,
            args,
            address: session.client.address.clone(),
            client_name: trimmed_name(&session.client.labels.lock().name),
        };
        let bytes_max = slowlog::bytes_max(server.config.maxmemory.load());
        server.slowlog.add(command, server.config.slowlog_max_len.load() as usize, bytes_max);
    }
    let threshold_ms = server.config.latency_monitor_threshold.load();
    if threshold_ms > 0 && duration_us / 1000 >= threshold_ms as u64 {
        let name = if entry.spec.flags.has(Flags::FAST) { "fast-command" } else { "command" };
        server.latency.add(name, at_seconds, duration_us / 1000);
    }
}

/// The arguments for the slow log, secrets left out.
fn redacted(args: Args<'_>) -> Vec<Vec<u8>> {
    let mut shown = trimmed(args);
    for index in secret_args(args) {
        if let Some(arg) = shown.get_mut(index) {
            *arg = REDACTED.to_vec();
        }
    }
    shown
}
