//! MEMORY: what memory is used for. MEMORY USAGE is about a key and lives in the command crate.

use std::fmt::Write;

use command::{CommandResult, Docs, Flags, Group, Locks, Row};
use keyspace::DB_COUNT;
use resp::{Args, Reply};
use tier::{AllocatorStats, Pressure};

use super::help::write_help;
use super::info::memory::Memory;
use super::info::text::{human, ratio};
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::Session;
use crate::state::server::Server;

/// Below this there is nothing to diagnose.
const USED_BYTES_MIN: u64 = 5 << 20;
/// Memory that the allocator holds beyond what is used: more than this share is worth a word.
const FRAGMENTATION_MAX: f64 = 1.4;
/// A peak this many times what is used now leaves pages behind for a while.
const PEAK_MAX: f64 = 1.5;

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("MEMORY", Group::Server, "4.0.0", "Tells what memory is used for."),
    row("MEMORY|DOCTOR", Flags::NONE, "Names problems with memory.", doctor),
    row("MEMORY|MALLOC-STATS", Flags::NONE, "Answers the allocator's own report.", malloc_stats),
    row("MEMORY|PURGE", Flags::NONE, "Measures what the allocator has given back.", purge),
    row("MEMORY|STATS", Flags::NONE, "Tells what memory is used for, in figures.", stats),
    row("MEMORY|HELP", Flags::LOADING.and(Flags::STALE), "Explains the subcommands.", help),
];

const fn row(
    name: &'static str,
    flags: Flags,
    summary: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs =
        Docs { group: Group::Server, since: "4.0.0", summary, complexity: "O(1)", syntax: "" };
    Row { name, arity: 2, flags, keys: &[], locks: Locks::None, docs, run }
}

const HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Name problems with memory.",
    "MALLOC-STATS",
    "    Answer the allocator's own report.",
    "PURGE",
    "    Measure what the allocator has given back, which it does by itself.",
    "STATS",
    "    Tell what memory is used for.",
    "USAGE <key> [SAMPLES <count>]",
    "    Tell how many bytes of RAM <key> takes with its value.",
    "HELP",
    "    Print this help.",
];

/// A figure of STATS.
enum Figure {
    Count(u64),
    Difference(i64),
    Ratio(f64),
}

use Figure::{Count, Difference, Ratio};

fn stats(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.server();
    let memory = Memory::measure(server);
    let databases = databases(server);
    let keys: u64 = databases.iter().map(|(_, keys)| keys).sum();
    let (before, after) = (totals(&memory), details(&memory, keys));
    reply.map(before.len() + databases.len() + after.len());
    write_figures(&before, reply);
    let index_bytes = server.tier.counters.index_bytes.load(std::sync::atomic::Ordering::Relaxed);
    for (db, count) in databases {
        // Tables are accounted for together: a database has its share by keys.
        let main = index_bytes.max(0) as f64 * ratio(count, keys);
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(3);
        write_figures(
            &[
                ("overhead.hashtable.main", Count(main as u64)),
                ("overhead.hashtable.expires", Count(0)),
                ("overhead.hashtable.slot-to-keys", Count(0)),
            ],
            reply,
        );
    }
    write_figures(&after, reply);
    Ok(())
}

/// Databases that have keys, and how many.
fn databases(server: &Server) -> Vec<(u8, u64)> {
    let count = |db| (db, server.tier.key_count(db));
    (0..DB_COUNT as u8).map(count).filter(|(_, keys)| *keys > 0).collect()
}

fn totals(memory: &Memory) -> Vec<(&'static str, Figure)> {
    vec![
        ("peak.allocated", Count(memory.used_peak)),
        ("total.allocated", Count(memory.used)),
        ("startup.allocated", Count(memory.startup)),
        ("replication.backlog", Count(0)),
        ("clients.slaves", Count(0)),
        ("clients.normal", Count(memory.clients)),
        ("cluster.links", Count(0)),
        ("aof.buffer", Count(memory.journal)),
        ("lua.caches", Count(0)),
        ("functions.caches", Count(0)),
    ]
}

fn details(memory: &Memory, keys: u64) -> Vec<(&'static str, Figure)> {
    let grown = memory.used.saturating_sub(memory.startup);
    let rss = memory.usage.resident_bytes;
    let AllocatorStats { allocated, active, resident, .. } = memory.allocator;
    let beyond = |outer: u64, inner: u64| Difference(outer as i64 - inner as i64);
    vec![
        ("overhead.total", Count(memory.overhead)),
        ("keys.count", Count(keys)),
        ("keys.bytes-per-key", Count(grown.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", Count(memory.dataset())),
        ("dataset.percentage", Ratio(memory.dataset_percent())),
        ("peak.percentage", Ratio(ratio(memory.used, memory.used_peak) * 100.0)),
        ("allocator.allocated", Count(allocated)),
        ("allocator.active", Count(active)),
        ("allocator.resident", Count(resident)),
        ("allocator-fragmentation.ratio", Ratio(ratio(active, allocated))),
        ("allocator-fragmentation.bytes", beyond(active, allocated)),
        ("allocator-rss.ratio", Ratio(ratio(resident, active))),
        ("allocator-rss.bytes", beyond(resident, active)),
        ("rss-overhead.ratio", Ratio(ratio(rss, resident))),
        ("rss-overhead.bytes", beyond(rss, resident)),
        ("fragmentation", Ratio(ratio(rss, memory.used))),
        ("fragmentation.bytes", beyond(rss, memory.used)),
    ]
}

fn write_figures(figures: &[(&str, Figure)], reply: &mut Reply) {
    for (name, figure) in figures {
        reply.bulk(name.as_bytes());
        match figure {
            Count(count) => reply.integer(*count as i64),
            Difference(difference) => reply.integer(*difference),
            Ratio(ratio) => reply.double(*ratio),
        }
    }
}

fn doctor(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let server = session.server();
    let memory = Memory::measure(server);
    reply.verbatim("txt", diagnosis(&memory, server.tier.pressure()));
    Ok(())
}

fn diagnosis(memory: &Memory, pressure: Pressure) -> String {
    let rss = memory.usage.resident_bytes;
    let mut findings = Vec::new();
    if memory.used < USED_BYTES_MIN {
        findings.push(format!(
            "There is hardly any data yet ({} in use): ask again when there is.",
            human(memory.used)
        ));
    } else {
        if ratio(memory.used_peak, memory.used) > PEAK_MAX {
            findings.push(format!(
                "Memory in use was {} at its peak and is {} now.",
                human(memory.used_peak),
                human(memory.used)
            ));
        }
        if ratio(rss, memory.used) > FRAGMENTATION_MAX {
            findings.push(format!(
                "{} are resident for {} in use: values of changing sizes leave pages partly \
                 empty, which new values will fill.",
                human(rss),
                human(memory.used)
            ));
        }
    }
    let max = memory.max;
    if max == 0 {
        findings.push("There is no maxmemory: nothing bounds what the server takes.".to_owned());
    } else if rss > max {
        findings.push(format!("{} are resident, above maxmemory {}.", human(rss), human(max)));
    }
    if pressure == Pressure::Wait {
        findings.push(
            "Writers wait for memory: values come faster than they can leave for flash, or flash \
             is full. See tier_pressure and flash_free_bytes in INFO tiering."
                .to_owned(),
        );
    }
    if findings.is_empty() {
        return "No problem with memory was found.\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        writeln!(text, "* {finding}").expect("invariant: a string takes any text");
    }
    text
}

fn malloc_stats(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.verbatim("txt", AllocatorStats::report());
    Ok(())
}

fn purge(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    // The allocator returns free pages by itself (see `.cargo/config.toml`): what is left to do is
    // to measure at once what it has returned.
    session.server().tier.measure();
    reply.ok();
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used: u64, used_peak: u64, resident: u64) -> Memory {
        let usage = tier::MemoryUse { resident_bytes: resident, ..tier::MemoryUse::default() };
        let allocator = AllocatorStats::default();
        let max = 160 << 20;
        let (startup, overhead, clients, journal) = (0, 0, 0, 0);
        Memory { allocator, usage, used, used_peak, max, startup, overhead, clients, journal }
    }

    #[test]
    fn the_doctor_names_what_is_wrong() {
        let mib = 1 << 20;
        let cases = [
            (memory(mib, mib, mib), Pressure::None, "hardly any data"),
            (memory(100 * mib, 100 * mib, 105 * mib), Pressure::None, "No problem"),
            (memory(100 * mib, 200 * mib, 105 * mib), Pressure::None, "at its peak"),
            (memory(100 * mib, 100 * mib, 150 * mib), Pressure::Demote, "partly empty"),
            (memory(100 * mib, 100 * mib, 105 * mib), Pressure::Wait, "Writers wait"),
            (memory(140 * mib, 140 * mib, 161 * mib), Pressure::None, "above maxmemory"),
            (
                Memory { max: 0, ..memory(9 * mib, 9 * mib, 9 * mib) },
                Pressure::None,
                "no maxmemory",
            ),
        ];
        for (memory, pressure, expected) in cases {
            let text = diagnosis(&memory, pressure);
            assert!(text.contains(expected) && text.lines().count() == 1, "{expected}: {text}");
        }
    }
}
