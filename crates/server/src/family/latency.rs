//! LATENCY: spikes that the latency monitor has seen, and how long each command takes.

use std::fmt::Write;

use command::{CommandError, CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use super::help::write_help;
use super::info::commands::latency_counts;
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::Session;
use crate::state::clock::unix_ms;
use crate::state::latency::Event;
use crate::state::registry::{Entry, Registry};
use crate::state::server::Server;
use crate::state::stats::LATENCY_BUCKETS;

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("LATENCY", Group::Server, "2.8.13", "Tells about latency."),
    row("LATENCY|DOCTOR", 2, ADMIN, "2.8.13", "Puts what was seen into words.", "", doctor),
    row("LATENCY|GRAPH", 3, ADMIN, "2.8.13", "Draws the spikes of an event.", "event", graph),
    row("LATENCY|HISTOGRAM", -2, ADMIN, "7.0.0", HISTOGRAM, "[command [command ...]]", histogram),
    row("LATENCY|HISTORY", 3, ADMIN, "2.8.13", "Answers an event's spikes.", "event", history),
    row("LATENCY|LATEST", 2, ADMIN, "2.8.13", "Answers each event's latest spike.", "", latest),
    row("LATENCY|RESET", -2, ADMIN, "2.8.13", "Forgets spikes.", "[event [event ...]]", reset),
    row("LATENCY|HELP", 2, ANYTIME, "2.8.13", "Explains the subcommands.", "", help),
];

const HISTOGRAM: &str = "Answers how long commands take, as cumulative histograms.";
const ANYTIME: Flags = Flags::LOADING.and(Flags::STALE);
const ADMIN: Flags = ANYTIME.and(Flags::ADMIN).and(Flags::NOSCRIPT);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since, summary, complexity: "O(N)", syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

const HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Put what the latency monitor has seen into words.",
    "GRAPH <event>",
    "    Draw the spikes of <event>.",
    "HISTOGRAM [<command> ...]",
    "    Answer how long the named commands take, or all: calls that took at most so many",
    "    microseconds.",
    "HISTORY <event>",
    "    Answer time and milliseconds of the spikes of <event>.",
    "LATEST",
    "    Answer time, milliseconds and highest milliseconds of each event's latest spike.",
    "RESET [<event> ...]",
    "    Forget the spikes of the named events, or all.",
    "HELP",
    "    Print this help.",
];

/// Spikes that GRAPH draws, the latest ones.
const GRAPH_COLUMNS: usize = 80;
/// Levels of a column: each character of a row stands for two.
const GRAPH_ROWS: usize = 4;

fn latest(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let events = session.server().latency.events();
    reply.array(events.len());
    for (name, event) in events {
        let (at_seconds, ms) = event.spikes.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(at_seconds as i64);
        reply.integer(ms as i64);
        reply.integer(event.max_ms as i64);
    }
    Ok(())
}

fn history(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let event = find(session, &args[2]).unwrap_or_default();
    reply.array(event.spikes.len());
    for (at_seconds, ms) in event.spikes {
        reply.array(2);
        reply.integer(at_seconds as i64);
        reply.integer(ms as i64);
    }
    Ok(())
}

fn find(session: &Session, name: &[u8]) -> Option<Event> {
    let events = session.server().latency.events();
    events.into_iter().find(|(event, _)| event.as_bytes() == name).map(|(_, event)| event)
}

fn reset(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let latency = &session.server().latency;
    let count = match args.len() {
        2 => latency.reset(None),
        _ => args.iter().skip(2).map(|event| latency.reset(Some(event))).sum(),
    };
    reply.integer(count as i64);
    Ok(())
}

fn graph(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let Some(event) = find(session, &args[2]) else {
        let name = String::from_utf8_lossy(&args[2]);
        return Err(CommandError::owned(format!("ERR No samples available for event '{name}'")));
    };
    let name = String::from_utf8_lossy(&args[2]);
    reply.verbatim("txt", draw(&name, &event, unix_ms() / 1000));
    Ok(())
}

/// A column for each spike, as high as it is long, and its age below.
fn draw(name: &str, event: &Event, now_seconds: u64) -> String {
    let skipped = event.spikes.len().saturating_sub(GRAPH_COLUMNS);
    let spikes: Vec<(u64, u64)> = event.spikes.iter().skip(skipped).copied().collect();
    let high = spikes.iter().map(|spike| spike.1).max().unwrap_or(0);
    let low = spikes.iter().map(|spike| spike.1).min().unwrap_or(0);
    let max = event.max_ms;
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {max} ms)\n");
    text.push_str(&"-".repeat(GRAPH_COLUMNS));
    text.push('\n');
    let levels = 2 * GRAPH_ROWS as u64;
    let height = |ms: u64| match high - low {
        0 => levels,
        range => 1 + (ms - low) * (levels - 1) / range,
    };
    for row in (0..GRAPH_ROWS as u64).rev() {
        let mark = |spike: &(u64, u64)| match height(spike.1).saturating_sub(2 * row) {
            0 => ' ',
            1 => '_',
            _ => '#',
        };
        let line: String = spikes.iter().map(mark).collect();
        writeln!(text, "{}", line.trim_end()).expect("invariant: a string takes any text");
    }
    let ages: Vec<String> = spikes.iter().map(|spike| age(now_seconds, spike.0)).collect();
    let longest = ages.iter().map(String::len).max().unwrap_or(0);
    text.push('\n');
    for row in 0..longest {
        let line: String = ages
            .iter()
            .map(|age| age.as_bytes().get(row).map_or(' ', |byte| *byte as char))
            .collect();
        writeln!(text, "{}", line.trim_end()).expect("invariant: a string takes any text");
    }
    text
}

/// How long ago, in one unit: `7s`, `3m`, `2h`, `9d`.
fn age(now_seconds: u64, at_seconds: u64) -> String {
    const UNITS: [(u64, char); 3] = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let seconds = now_seconds.saturating_sub(at_seconds);
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    let (length, name) = unit.copied().unwrap_or((1, 's'));
    format!("{}{name}", seconds / length)
}

fn doctor(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.server();
    let threshold_ms = server.config.latency_monitor_threshold.load();
    reply.verbatim("txt", diagnosis(threshold_ms, &server.latency.events()));
    Ok(())
}

fn diagnosis(threshold_ms: i64, events: &[(&'static str, Event)]) -> String {
    if threshold_ms == 0 && events.is_empty() {
        return "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> \
                turns it on.\n"
            .to_owned();
    }
    if events.is_empty() {
        return format!("Nothing has taken {threshold_ms} ms or longer.\n");
    }
    let mut text = String::new();
    for (name, event) in events {
        let count = event.spikes.len() as u64;
        let sum: u64 = event.spikes.iter().map(|spike| spike.1).sum();
        let first = event.spikes.front().map_or(0, |spike| spike.0);
        let last = event.spikes.back().map_or(0, |spike| spike.0);
        writeln!(
            text,
            "* {name}: {count} spikes in {} s, {} ms on average, {} ms at most.",
            last - first,
            sum.checked_div(count).unwrap_or(0),
            event.max_ms,
        )
        .expect("invariant: a string takes any text");
    }
    text.push_str(
        "SLOWLOG GET shows the commands. Commands on very long values, on very many keys or on \
         whole databases (KEYS, FLUSHALL) take long by themselves.\n",
    );
    text
}

fn histogram(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.server();
    let entries: Vec<&'static Entry> = match args.len() {
        2 => server.registry.entries.clone(),
        _ => args.iter().skip(2).flat_map(|name| named(server.registry, name)).collect(),
    };
    let counts = entries.into_iter().map(|entry| (entry, latency_counts(server, entry)));
    let called = counts.filter(|(_, counts)| counts.iter().any(|count| *count > 0));
    let called: Vec<(&Entry, [u64; LATENCY_BUCKETS])> = called.collect();
    reply.map(called.len());
    for (entry, counts) in called {
        let buckets = cumulative_us(server, &counts);
        reply.bulk(entry.lower.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(counts.iter().sum::<u64>() as i64);
        reply.bulk(b"histogram_usec");
        reply.map(buckets.len());
        for (us, count) in buckets {
            reply.integer(us as i64);
            reply.integer(count as i64);
        }
    }
    Ok(())
}

/// The command of a name, or all subcommands of a container.
fn named(registry: &Registry, name: &[u8]) -> Vec<&'static Entry> {
    let (name, subcommand) = match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => (&name[..bar], Some(&name[bar + 1..])),
        None => (name, None),
    };
    match (registry.get(name), subcommand) {
        (None, _) => Vec::new(),
        (Some(entry), Some(name)) => entry.subcommand(name).into_iter().collect(),
        (Some(entry), None) => {
            std::iter::once(entry).chain(entry.subcommands.iter().copied()).collect()
        }
    }
}

/// Calls that took at most so many microseconds. The bounds are Redis's, about powers of two; each
/// of our buckets (see `stats`) counts at the first bound that its end does not exceed.
fn cumulative_us(server: &Server, counts: &[u64; LATENCY_BUCKETS]) -> Vec<(u64, u64)> {
    let ends_nanos = |bucket: usize| server.clock.delta_as_nanos(0, 2 << bucket);
    cumulative(counts, ends_nanos)
}

fn cumulative(
    counts: &[u64; LATENCY_BUCKETS],
    end_nanos: impl Fn(usize) -> u64,
) -> Vec<(u64, u64)> {
    /// Redis counts in steps of 1,024 ns, to an accuracy of two digits.
    const STEP_NANOS: u64 = 1024;
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    let mut total = 0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        total += count;
        let bound = end_nanos(bucket).div_ceil(STEP_NANOS).next_power_of_two() * STEP_NANOS;
        let us = (bound + bound / 128 - 1) / 1000;
        match buckets.last_mut() {
            Some(last) if last.0 == us => last.1 = total,
            _ => buckets.push((us, total)),
        }
    }
    buckets
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(spikes: &[(u64, u64)]) -> Event {
        let max_ms = spikes.iter().map(|spike| spike.1).max().unwrap_or(0);
        Event { spikes: spikes.iter().copied().collect(), max_ms }
    }

    #[test]
    fn histograms_are_cumulative_at_the_bounds_of_redis() {
        let mut counts = [0; LATENCY_BUCKETS];
        counts[3] = 5;
        counts[10] = 2;
        counts[12] = 1;
        counts[24] = 1;
        // A tick of a nanosecond.
        let buckets = cumulative(&counts, |bucket| 2 << bucket);
        assert_eq!(buckets, [(1, 5), (2, 7), (8, 8), (33_816, 9)]);
        // A longer tick moves two buckets to one bound.
        let buckets = cumulative(&counts, |bucket| (2 << bucket) / 64);
        assert_eq!(buckets, [(1, 8), (528, 9)]);
    }

    #[test]
    fn columns_are_as_high_as_spikes_are_long() {
        let text = draw("command", &event(&[(100, 10), (160, 50), (161, 30)]), 161);
        let expected = "\
command - high 50 ms, low 10 ms (all time high 50 ms)
--------------------------------------------------------------------------------
 #
 #
 ##
_##

110
mss
";
        assert_eq!(text, expected);
        assert!(draw("one", &event(&[(1, 7)]), 9).ends_with("#\n#\n#\n#\n\n8\ns\n"));
    }

    #[test]
    fn ages_are_in_the_largest_unit() {
        let cases = [(0, "0s"), (59, "59s"), (60, "1m"), (7_200, "2h"), (200_000, "2d")];
        for (seconds, text) in cases {
            assert_eq!(age(1_000_000 + seconds, 1_000_000), text);
        }
    }

    #[test]
    fn the_doctor_knows_three_states() {
        assert!(diagnosis(0, &[]).contains("is off"));
        assert!(diagnosis(5, &[]).contains("5 ms or longer"));
        let events = [("command", event(&[(10, 20), (13, 40)]))];
        let text = diagnosis(5, &events);
        assert!(
            text.contains("command: 2 spikes in 3 s, 30 ms on average, 40 ms at most"),
            "{text}"
        );
    }
}
