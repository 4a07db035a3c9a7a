//! LATENCY: spikes by event, and histograms by command.

use command::{CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};

use super::{container, write_help};
use crate::latency::Event;
use crate::server::{Server, unix_ms};
use crate::session::Session;
use crate::stats::LATENCY_BUCKETS;
use crate::table::{Entry, SessionCommand, SessionHandler, TABLE};

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("LATENCY", Group::Server, "2.8.13", "A container for latency commands."),
    row("LATENCY|LATEST", 2, "Returns the latest spike of each event.", "", latest),
    row("LATENCY|HISTORY", 3, "Returns the spikes of an event.", "event", history),
    row("LATENCY|RESET", -2, "Forgets spikes.", "[event [event ...]]", reset),
    row("LATENCY|GRAPH", 3, "Draws the spikes of an event.", "event", graph),
    row("LATENCY|DOCTOR", 2, "Tells in words what the spikes say.", "", doctor),
    row(
        "LATENCY|HISTOGRAM",
        -2,
        "Returns the latency distributions of commands.",
        "[command [command ...]]",
        histogram,
    ),
    Row {
        flags: Flags::LOADING.and(Flags::STALE),
        ..row("LATENCY|HELP", 2, "Explains the subcommands.", "", help)
    },
];

const fn row(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::Server, since: "2.8.13", summary, complexity: "O(N)", syntax };
    let flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

const HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Tell in words what the spikes say.",
    "GRAPH <event>",
    "    Draw the spikes of <event>.",
    "HISTORY <event>",
    "    Return the time and the duration in ms of the spikes of <event>.",
    "LATEST",
    "    Return the latest spike of each event.",
    "RESET [<event> ...]",
    "    Forget the spikes of the events, or of all.",
    "HISTOGRAM [COMMAND ...]",
    "    Return how many calls took at most so many microseconds, by command.",
    "HELP",
    "    Print this help.",
];

/// Lines of a graph.
const GRAPH_ROWS: usize = 4;
/// Spikes that a graph shows: the latest.
const GRAPH_COLUMNS: usize = 80;

fn latest(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let events = session.server().latency.events();
    reply.array(events.len());
    for (name, event) in events {
        let (at_seconds, duration_ms) = event.spikes.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(at_seconds as i64);
        reply.integer(duration_ms as i64);
        reply.integer(event.max_ms as i64);
    }
    Ok(())
}

fn find(server: &Server, name: &[u8]) -> Option<Event> {
    let mut events = server.latency.events().into_iter();
    events.find(|(event, _)| name == event.as_bytes()).map(|(_, event)| event)
}

fn history(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let event = find(session.server(), &args[2]).unwrap_or_default();
    reply.array(event.spikes.len());
    for (at_seconds, duration_ms) in event.spikes {
        reply.array(2);
        reply.integer(at_seconds as i64);
        reply.integer(duration_ms as i64);
    }
    Ok(())
}

fn reset(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let latency = &session.server().latency;
    let count = match args.len() {
        2 => latency.reset(None),
        _ => args.iter().skip(2).map(|name| latency.reset(Some(name))).sum(),
    };
    reply.integer(count as i64);
    Ok(())
}

fn graph(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let name = String::from_utf8_lossy(&args[2]).into_owned();
    let Some(event) = find(session.server(), &args[2]) else {
        let text = format!("ERR No samples available for event '{name}'");
        return Err(command::CommandError::owned(text));
    };
    reply.verbatim("txt", draw(&name, &event));
    Ok(())
}

fn draw(name: &str, event: &Event) -> String {
    let shown = event.spikes.len().min(GRAPH_COLUMNS);
    let spikes: Vec<u64> =
        event.spikes.iter().skip(event.spikes.len() - shown).map(|spike| spike.1).collect();
    let low = spikes.iter().copied().min().unwrap_or_default();
    let high = spikes.iter().copied().max().unwrap_or_default();
    let mut text = format!(
        "{name} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        event.max_ms,
        "-".repeat(GRAPH_COLUMNS)
    );
    for row in (1..=GRAPH_ROWS as u64).rev() {
        let reaches = |ms: &u64| *ms * GRAPH_ROWS as u64 >= high * row;
        let line: String = spikes.iter().map(|ms| if reaches(ms) { '#' } else { ' ' }).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn doctor(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.server();
    let threshold_ms = server.config.latency_monitor_threshold.load();
    let events = server.latency.events();
    let mut text = String::new();
    if threshold_ms == 0 {
        text.push_str(
            "The latency monitor is off. Turn it on with \
             'CONFIG SET latency-monitor-threshold <milliseconds>'.\n",
        );
    } else if events.is_empty() {
        text.push_str(&format!("No event took {threshold_ms} ms or longer.\n"));
    }
    for (name, event) in &events {
        let count = event.spikes.len().max(1) as u64;
        let mean = event.spikes.iter().map(|spike| spike.1).sum::<u64>() / count;
        let since =
            event.spikes.back().map_or(0, |spike| (unix_ms() / 1000).saturating_sub(spike.0));
        text.push_str(&format!(
            "{name}: {count} spikes, {mean} ms on average, {} ms at most, the last {since} s ago.\n",
            event.max_ms
        ));
    }
    if !events.is_empty() {
        text.push_str(
            "SLOWLOG GET names the commands; INFO tiering tells how long reads from flash took \
             and how long writers waited for room.\n",
        );
    }
    reply.verbatim("txt", text);
    Ok(())
}

fn histogram(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.server();
    let chosen: Vec<&'static Entry> = match args.len() {
        2 => TABLE.entries.clone(),
        _ => args.iter().skip(2).flat_map(entries_of).collect(),
    };
    let called: Vec<(&Entry, u64, [u64; LATENCY_BUCKETS])> = chosen
        .into_iter()
        .map(|entry| {
            let calls = server.sum(|stats| stats.commands[entry.index].calls.get());
            (entry, calls, super::info::latency_counts(server, entry))
        })
        .filter(|(_, calls, _)| *calls > 0)
        .collect();
    reply.map(called.len());
    for (entry, calls, counts) in called {
        reply.bulk(entry.lower.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(calls as i64);
        reply.bulk(b"histogram_usec");
        write_histogram(server, &counts, reply);
    }
    Ok(())
}

/// A command, and its subcommands when it is a container.
fn entries_of(name: &[u8]) -> Vec<&'static Entry> {
    let Some(entry) = TABLE.get(name) else { return Vec::new() };
    std::iter::once(entry).chain(entry.subcommands.iter().copied()).collect()
}

/// Powers of two of microseconds with how many calls took at most that long.
fn write_histogram(server: &Server, counts: &[u64; LATENCY_BUCKETS], reply: &mut Reply) {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut total = 0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        total += count;
        let nanos = server.clock.delta_as_nanos(0, 2 << bucket);
        let us = nanos.div_ceil(1000).next_power_of_two();
        match rows.last_mut() {
            Some(last) if last.0 == us => last.1 = total,
            _ => rows.push((us, total)),
        }
    }
    reply.map(rows.len());
    for (us, count) in rows {
        reply.integer(us as i64);
        reply.integer(count as i64);
    }
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_scale_to_the_highest_spike() {
        let mut event = Event::default();
        event.spikes.extend([(1, 10), (2, 40), (3, 20)]);
        event.max_ms = 40;
        let drawn = draw("command", &event);
        let rows: Vec<&str> = drawn.lines().skip(2).collect();
        assert_eq!(rows, [" #", " #", " ##", "###"]);
    }
}
