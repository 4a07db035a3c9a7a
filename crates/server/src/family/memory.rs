//! MEMORY: what memory is used for. (MEMORY USAGE, which is about a key, is in the `command`
//! crate.)

use std::sync::atomic::Ordering;

use command::{CommandResult, Docs, Flags, Group, Locks, Row};
use resp::{Args, Reply};
use tier::AllocatorStats;

use super::{container, write_help};
use crate::session::Session;
use crate::table::{SessionCommand, SessionHandler};

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    container("MEMORY", Group::Server, "4.0.0", "A container for memory diagnostics commands."),
    row("MEMORY|STATS", "Returns what memory is used for.", stats),
    row("MEMORY|DOCTOR", "Tells in words whether memory is in good order.", doctor),
    row("MEMORY|PURGE", "Asks the allocator to return free pages.", purge),
    row("MEMORY|MALLOC-STATS", "Returns the allocator's own account.", malloc_stats),
    row("MEMORY|HELP", "Explains the subcommands.", help),
];

const fn row(name: &'static str, summary: &'static str, run: SessionHandler) -> SessionCommand {
    let docs =
        Docs { group: Group::Server, since: "4.0.0", summary, complexity: "O(1)", syntax: "" };
    Row { name, arity: 2, flags: Flags::NONE, keys: &[], locks: Locks::None, docs, run }
}

const HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Tell in words whether memory is in good order.",
    "MALLOC-STATS",
    "    Return the allocator's own account.",
    "PURGE",
    "    Ask the allocator to return free pages.",
    "STATS",
    "    Return what memory is used for.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return the RAM that <key> takes, its value included when that is in RAM.",
    "HELP",
    "    Print this help.",
];

/// Above this ratio of resident to allocated memory the doctor says something.
const FRAGMENTATION_MAX: f64 = 1.4;
/// Below this many bytes ratios say nothing.
const SMALL_BYTES: u64 = 64 << 20;

/// A figure of MEMORY STATS.
enum Figure {
    Bytes(u64),
    Ratio(f64),
}

fn ratio(one: u64, two: u64) -> f64 {
    if two == 0 { 0.0 } else { one as f64 / two as f64 }
}

fn figures(session: &Session) -> Vec<(&'static str, Figure)> {
    let tier = &session.server().tier;
    let memory = tier.budget.memory_use();
    let allocator = AllocatorStats::read();
    let keys: u64 =
        (0..keyspace::DB_COUNT as u8).map(|table| tier.counters.table(table).keys).sum();
    let index = tier.counters.index_bytes.load(Ordering::Relaxed).max(0) as u64;
    let values = tier.counters.value_bytes.load(Ordering::Relaxed).max(0) as u64;
    let base = tier.budget.base_bytes();
    let clients = memory.client_bytes.max(0) as u64;
    let engine = memory.engine_bytes.max(0) as u64;
    let data_share = 100.0 * ratio(index + values, allocator.allocated);
    vec![
        ("peak.allocated", Figure::Bytes(memory.resident_peak_bytes)),
        ("total.allocated", Figure::Bytes(allocator.allocated)),
        ("startup.allocated", Figure::Bytes(base)),
        ("replication.backlog", Figure::Bytes(0)),
        ("clients.slaves", Figure::Bytes(0)),
        ("clients.normal", Figure::Bytes(clients)),
        ("cluster.links", Figure::Bytes(0)),
        ("aof.buffer", Figure::Bytes(0)),
        ("lua.caches", Figure::Bytes(0)),
        ("functions.caches", Figure::Bytes(0)),
        ("flash.buffers", Figure::Bytes(engine)),
        ("overhead.total", Figure::Bytes(base + clients + engine + index)),
        ("keys.count", Figure::Bytes(keys)),
        ("keys.bytes-per-key", Figure::Bytes((index + values).checked_div(keys).unwrap_or(0))),
        ("index.bytes", Figure::Bytes(index)),
        ("dataset.bytes", Figure::Bytes(values)),
        ("dataset.percentage", Figure::Ratio(data_share)),
        (
            "peak.percentage",
            Figure::Ratio(100.0 * ratio(memory.resident_bytes, memory.resident_peak_bytes)),
        ),
        ("allocator.allocated", Figure::Bytes(allocator.allocated)),
        ("allocator.active", Figure::Bytes(allocator.active)),
        ("allocator.resident", Figure::Bytes(allocator.resident)),
        (
            "allocator-fragmentation.ratio",
            Figure::Ratio(ratio(allocator.active, allocator.allocated)),
        ),
        (
            "allocator-fragmentation.bytes",
            Figure::Bytes(allocator.active.saturating_sub(allocator.allocated)),
        ),
        ("allocator-rss.ratio", Figure::Ratio(ratio(allocator.resident, allocator.active))),
        ("allocator-rss.bytes", Figure::Bytes(allocator.resident.saturating_sub(allocator.active))),
        ("rss-overhead.ratio", Figure::Ratio(ratio(memory.resident_bytes, allocator.resident))),
        (
            "rss-overhead.bytes",
            Figure::Bytes(memory.resident_bytes.saturating_sub(allocator.resident)),
        ),
        ("fragmentation", Figure::Ratio(ratio(memory.resident_bytes, allocator.allocated))),
        (
            "fragmentation.bytes",
            Figure::Bytes(memory.resident_bytes.saturating_sub(allocator.allocated)),
        ),
    ]
}

fn stats(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let figures = figures(session);
    reply.map(figures.len());
    for (name, figure) in figures {
        reply.bulk(name.as_bytes());
        match figure {
            Figure::Bytes(bytes) => reply.integer(bytes as i64),
            Figure::Ratio(ratio) => reply.double(ratio),
        }
    }
    Ok(())
}

fn doctor(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let tier = &session.server().tier;
    let memory = tier.budget.memory_use();
    let allocator = AllocatorStats::read();
    let max = tier.budget.max_bytes();
    let mut findings = Vec::new();
    if memory.resident_bytes > SMALL_BYTES
        && ratio(memory.resident_bytes, allocator.allocated) > FRAGMENTATION_MAX
    {
        findings.push(
            "More memory is resident than allocations explain. Values of changing sizes leave \
             gaps; MEMORY PURGE returns what is free in whole pages.",
        );
    }
    if max != 0 && memory.resident_bytes > max {
        findings.push("Resident memory is above maxmemory.");
    }
    if tier.engine.is_none() && max != 0 && memory.resident_bytes > max - max / 10 {
        findings.push("Memory is nearly full, and there is no flash to move values to.");
    }
    if max == 0 {
        findings.push("There is no maxmemory: nothing bounds what this server takes.");
    }
    if findings.is_empty() {
        findings.push("Memory is in good order.");
    }
    reply.verbatim("txt", findings.join("\n"));
    Ok(())
}

fn purge(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    // The allocator returns free pages within a tenth of a second by itself (see
    // `.cargo/config.toml`): what is left to do is to measure at once what it has returned.
    session.server().tier.measure();
    reply.ok();
    Ok(())
}

fn malloc_stats(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let AllocatorStats { allocated, active, resident, metadata, retained } = AllocatorStats::read();
    let text = format!(
        "Allocated: {allocated}, active: {active}, metadata: {metadata}, resident: {resident}, \
         retained: {retained}\n"
    );
    reply.verbatim("txt", text);
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
