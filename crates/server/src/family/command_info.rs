//! What COMMAND INFO tells of a command, as Redis 7.0 writes it.
//!
//! Nearly all of it follows from the command's row. What does not, a few categories and the tips
//! for proxies, stands here in small tables. A test compares the whole with a real redis-server
//! (`crates/kelvin/tests/command.rs`).

use command::{Begin, Find, Flags, KeyFlags, KeySpec, Spec};
use resp::Reply;

use crate::state::registry::Entry;

/// All ACL categories, in Redis's order.
pub(super) const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Categories that follow neither from a command's flags nor from its group.
const MORE_CATEGORIES: &[(&str, &[&str])] = &[
    ("COMMAND", &["connection"]),
    ("DBSIZE", &["keyspace"]),
    ("FLUSHALL", &["keyspace", "dangerous"]),
    ("FLUSHDB", &["keyspace", "dangerous"]),
    ("INFO", &["dangerous"]),
    ("KEYS", &["dangerous"]),
    ("LASTSAVE", &["admin", "dangerous"]),
    ("RESTORE", &["dangerous"]),
    ("ROLE", &["admin", "dangerous"]),
    ("SORT", &["set", "sortedset", "list", "dangerous"]),
    ("SORT_RO", &["set", "sortedset", "list", "dangerous"]),
    ("SWAPDB", &["keyspace", "dangerous"]),
];

/// Commands without the category of their group.
const OF_NO_GROUP: &[&str] = &["SORT", "SORT_RO"];

const UNREPEATABLE: &str = "nondeterministic_output";
const UNORDERED: &str = "nondeterministic_output_order";
const ALL_SHARDS: &str = "request_policy:all_shards";
const ALL_NODES: &str = "request_policy:all_nodes";
const MULTI_SHARD: &str = "request_policy:multi_shard";
const ALL_SUCCEEDED: &str = "response_policy:all_succeeded";
const SUM: &str = "response_policy:agg_sum";
const MINIMUM: &str = "response_policy:agg_min";
const SPECIAL: &str = "response_policy:special";

/// What proxies and clients of clusters should know of a command.
const TIPS: &[(&str, &[&str])] = &[
    ("CLIENT|INFO", &[UNREPEATABLE]),
    ("CLIENT|LIST", &[UNREPEATABLE]),
    ("COMMAND", &[UNORDERED]),
    ("COMMAND|DOCS", &[UNORDERED]),
    ("COMMAND|INFO", &[UNORDERED]),
    ("COMMAND|LIST", &[UNORDERED]),
    ("CONFIG|SET", &[ALL_NODES, ALL_SUCCEEDED]),
    ("DBSIZE", &[ALL_SHARDS, SUM]),
    ("DEL", &[MULTI_SHARD, SUM]),
    ("DUMP", &[UNREPEATABLE]),
    ("EXISTS", &[MULTI_SHARD, SUM]),
    ("FLUSHALL", &[ALL_SHARDS, ALL_SUCCEEDED]),
    ("FLUSHDB", &[ALL_SHARDS, ALL_SUCCEEDED]),
    ("HGETALL", &[UNORDERED]),
    ("HKEYS", &[UNORDERED]),
    ("HRANDFIELD", &[UNREPEATABLE]),
    ("HSCAN", &[UNREPEATABLE]),
    ("HVALS", &[UNORDERED]),
    ("INFO", &[UNREPEATABLE, ALL_SHARDS, SPECIAL]),
    ("KEYS", &[ALL_SHARDS, UNORDERED]),
    ("LASTSAVE", &[UNREPEATABLE]),
    ("LATENCY|DOCTOR", &[UNREPEATABLE, ALL_NODES, SPECIAL]),
    ("LATENCY|GRAPH", &[UNREPEATABLE, ALL_NODES, SPECIAL]),
    ("LATENCY|HISTOGRAM", &[UNREPEATABLE, ALL_NODES, SPECIAL]),
    ("LATENCY|HISTORY", &[UNREPEATABLE, ALL_NODES, SPECIAL]),
    ("LATENCY|LATEST", &[UNREPEATABLE, ALL_NODES, SPECIAL]),
    ("LATENCY|RESET", &[ALL_NODES, ALL_SUCCEEDED]),
    ("MEMORY|DOCTOR", &[UNREPEATABLE, ALL_SHARDS, SPECIAL]),
    ("MEMORY|MALLOC-STATS", &[UNREPEATABLE, ALL_SHARDS, SPECIAL]),
    ("MEMORY|PURGE", &[ALL_SHARDS, ALL_SUCCEEDED]),
    ("MEMORY|STATS", &[UNREPEATABLE, ALL_SHARDS, SPECIAL]),
    ("MGET", &[MULTI_SHARD]),
    ("MSET", &[MULTI_SHARD, ALL_SUCCEEDED]),
    ("MSETNX", &[MULTI_SHARD, MINIMUM]),
    ("OBJECT|ENCODING", &[UNREPEATABLE]),
    ("OBJECT|FREQ", &[UNREPEATABLE]),
    ("OBJECT|IDLETIME", &[UNREPEATABLE]),
    ("OBJECT|REFCOUNT", &[UNREPEATABLE]),
    ("PING", &[ALL_SHARDS, ALL_SUCCEEDED]),
    ("PTTL", &[UNREPEATABLE]),
    ("RANDOMKEY", &[ALL_SHARDS, UNREPEATABLE]),
    ("SCAN", &[UNREPEATABLE, "request_policy:special"]),
    ("SDIFF", &[UNORDERED]),
    ("SINTER", &[UNORDERED]),
    ("SLOWLOG|GET", &[ALL_NODES, UNREPEATABLE]),
    ("SLOWLOG|LEN", &[ALL_NODES, SUM, UNREPEATABLE]),
    ("SLOWLOG|RESET", &[ALL_NODES, ALL_SUCCEEDED]),
    ("SMEMBERS", &[UNORDERED]),
    ("SPOP", &[UNREPEATABLE]),
    ("SRANDMEMBER", &[UNREPEATABLE]),
    ("SSCAN", &[UNREPEATABLE]),
    ("SUNION", &[UNORDERED]),
    ("TIME", &[UNREPEATABLE]),
    ("TOUCH", &[MULTI_SHARD, SUM]),
    ("TTL", &[UNREPEATABLE]),
    ("UNLINK", &[MULTI_SHARD, SUM]),
    ("XADD", &[UNREPEATABLE]),
    ("XAUTOCLAIM", &[UNREPEATABLE]),
    ("XCLAIM", &[UNREPEATABLE]),
    ("XINFO|CONSUMERS", &[UNREPEATABLE]),
    ("XPENDING", &[UNREPEATABLE]),
    ("XTRIM", &[UNREPEATABLE]),
    ("ZRANDMEMBER", &[UNREPEATABLE]),
    ("ZSCAN", &[UNREPEATABLE]),
];

/// The ACL categories of a command, in Redis's order.
pub(super) fn categories(entry: &Entry) -> impl Iterator<Item = &'static str> {
    let spec = entry.spec;
    let has = move |flag| spec.flags.has(flag);
    let container = spec.name.split('|').next().unwrap_or(spec.name);
    let is_whole_container = !entry.subcommands.is_empty() && !spec.takes(1);
    let group = spec.docs.group.category().filter(|_| !is_whole_container);
    let group = group.map(|category| category.trim_start_matches('@'));
    let more = MORE_CATEGORIES.iter().find(|(name, _)| *name == container);
    let group = group.filter(|_| !OF_NO_GROUP.contains(&container));
    CATEGORIES.iter().copied().filter(move |&category| {
        let from_flags = match category {
            "read" => has(Flags::READONLY),
            "write" => has(Flags::WRITE),
            "pubsub" => has(Flags::PUBSUB),
            "admin" | "dangerous" => has(Flags::ADMIN),
            "fast" => has(Flags::FAST),
            "slow" => !has(Flags::FAST),
            "blocking" => has(Flags::BLOCKING),
            _ => false,
        };
        from_flags
            || group == Some(category)
            || more.is_some_and(|(_, categories)| categories.contains(&category))
    })
}

/// Writes what is known of a command, with its subcommands.
pub(super) fn write_info(entry: &Entry, reply: &mut Reply) {
    let spec = &entry.spec;
    reply.array(10);
    reply.bulk(entry.lower.as_bytes());
    reply.integer(spec.arity.into());
    let flags = Flags::NAMES.iter().filter(|(flag, _)| spec.flags.has(*flag));
    write_names(flags.map(|(_, name)| *name), reply);
    let (first, last, step) = key_range(spec);
    for number in [first, last, step] {
        reply.integer(number);
    }
    let categories: Vec<String> =
        categories(entry).map(|category| format!("@{category}")).collect();
    write_names(categories.iter().map(String::as_str), reply);
    let tips = TIPS.iter().find(|(name, _)| *name == spec.name).map_or(&[][..], |(_, tips)| *tips);
    reply.set(tips.len());
    tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(spec.keys.len());
    spec.keys.iter().for_each(|keys| write_key_spec(keys, reply));
    if entry.subcommands.is_empty() {
        reply.set(0);
        return;
    }
    reply.array(entry.subcommands.len());
    entry.subcommands.iter().for_each(|entry| write_info(entry, reply));
}

fn write_names<'a>(names: impl Iterator<Item = &'a str>, reply: &mut Reply) {
    let names: Vec<&str> = names.collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

/// Writes the names of key flags.
pub(super) fn write_key_flags(flags: KeyFlags, reply: &mut Reply) {
    let names = KeyFlags::NAMES.iter().filter(|(flag, _)| flags.has(*flag));
    write_names(names.map(|(_, name)| *name), reply);
}

fn write_key_spec(spec: &KeySpec, reply: &mut Reply) {
    reply.map(3);
    reply.bulk(b"flags");
    write_key_flags(spec.flags, reply);
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => write_typed("index", &[("index", index as i64)], reply),
        Begin::Keyword(keyword, from) | Begin::Option(keyword, from, _) => {
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(keyword.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(from as i64);
        }
        Begin::Unknown(_) => write_typed("unknown", &[], reply),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        _ if matches!(spec.begin, Begin::Unknown(_)) => write_typed("unknown", &[], reply),
        Find::Range { last, step } => {
            let fields = [("lastkey", last as i64), ("keystep", step as i64), ("limit", 0)];
            write_typed("range", &fields, reply);
        }
        Find::Half => {
            let fields = [("lastkey", -1), ("keystep", 1), ("limit", 2)];
            write_typed("range", &fields, reply);
        }
        Find::Count { at, first, step } => {
            let fields =
                [("keynumidx", at as i64), ("firstkey", first as i64), ("keystep", step as i64)];
            write_typed("keynum", &fields, reply);
        }
    }
}

fn write_typed(kind: &str, fields: &[(&str, i64)], reply: &mut Reply) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, number) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

/// First key, last key and step, as clients knew the positions of keys before there were key
/// specifications: what these say, when it can be said so.
fn key_range(spec: &Spec) -> (i64, i64, i64) {
    let mut range: Option<(i64, i64, i64)> = None;
    for keys in spec.keys {
        let (Begin::Index(begin), Find::Range { last, step }) = (keys.begin, keys.find) else {
            continue;
        };
        let begin = begin as i64;
        let last = if last < 0 { last as i64 } else { begin + last as i64 };
        range = match range {
            None => Some((begin, last, step as i64)),
            // Ranges that follow on one another are one.
            Some((first, end, 1)) if step == 1 && begin == end + 1 => Some((first, last, 1)),
            Some(range) => return range,
        };
    }
    range.unwrap_or_default()
}
