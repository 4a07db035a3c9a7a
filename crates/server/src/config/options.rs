//! The table of options that do something here: one row an option, and everything else comes from
//! it. Redis's other options stand in `inert`. Defaults are Redis 7.0's.

use std::sync::Mutex;

use keyspace::DEMOTE_BYTES_MIN;

use super::cell::{Atomic, Shared};
use super::check;
use super::file::Source;
use super::inert::Inert;
use super::kind::{Choice, Integer, Memory, MemoryOrPercent, Names, Permissions, Text, YesNo};
use super::list::{KeyspaceEvents, OutputLimits, Paths, Percentiles, Words};
use super::row::{BYTES_MAX, Flags, INT_MAX, KIB, MIB, OptionRow, choices, options};

/// Addresses that one can listen on.
const BIND_ADDRESSES_MAX: usize = 16;
/// Drives that the flash log can be striped over.
const FLASH_PATHS_MAX: usize = 16;

choices! {
    /// What happens to writes when memory, and flash if there is any, is full.
    MaxmemoryPolicy {
        /// Evict what has an expiry and was not used for longest.
        VolatileLru = "volatile-lru",
        /// Evict what has an expiry and is used least often.
        VolatileLfu = "volatile-lfu",
        /// Evict anything that has an expiry.
        VolatileRandom = "volatile-random",
        /// Evict what expires soonest.
        VolatileTtl = "volatile-ttl",
        /// Evict what was not used for longest.
        AllkeysLru = "allkeys-lru",
        /// Evict what is used least often.
        AllkeysLfu = "allkeys-lfu",
        /// Evict anything.
        AllkeysRandom = "allkeys-random",
        /// Refuse writes.
        Noeviction = "noeviction",
    }

    /// What the log is to contain.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// Much.
        Verbose = "verbose",
        /// What one wants in production.
        Notice = "notice",
        /// What needs attention.
        Warning = "warning",
    }

    /// Who may use something dangerous.
    ProtectedAction {
        /// Nobody.
        No = "no",
        /// Everybody.
        Yes = "yes",
        /// Clients on this machine.
        Local = "local",
    }

    /// How a value comes back to memory.
    TierPromotion {
        /// When it is read.
        Access = "access",
        /// When it was used before within the last passes of the demotion hand, or while there is
        /// free room.
        SecondTouch = "second-touch",
    }

    /// Whether a value that is read from flash brings those that lie beside it to memory.
    TierPromoteNeighbours {
        /// While that saves reads.
        Auto = "auto",
        /// Whenever they may come to memory.
        Always = "always",
        /// Not at all.
        Never = "never",
    }

    /// How values are compressed on flash.
    TierCompression {
        /// Not at all.
        None = "none",
        /// With LZ4.
        Lz4 = "lz4",
    }

    /// How flash is read and written.
    FlashIo {
        /// With io_uring where the system allows it, otherwise with threads.
        Auto = "auto",
        /// With io_uring or not at all.
        Uring = "uring",
        /// With threads.
        Threads = "threads",
    }

    /// When the journal is synced.
    AppendFsync {
        /// Once a second.
        Everysec = "everysec",
        /// Before a reply tells of what it has.
        Always = "always",
        /// When the system does.
        No = "no",
    }

    /// Which process supervisor to talk to.
    Supervised {
        /// Upstart, which nobody uses any more: not supported.
        Upstart = "upstart",
        /// systemd.
        Systemd = "systemd",
        /// systemd if it started the process.
        Auto = "auto",
        /// None.
        No = "no",
    }
}

options! {
    /// The values of all options, to be read by any thread at any time.
    struct Config in config => config;
    with inert: Inert;
    with source: Mutex<Source>;
    with changing: Mutex<()>;
    /// The options that do something here, in the order of the table.
    static OPTIONS;

    // Connections.

    /// Addresses to listen on. A `-` in front lets one be missing; `*` is all of IPv4, `::*` all
    /// of IPv6.
    bind: Shared<Words> = Words::checked(check_bind), "bind", "* -::*", RUNTIME;
    /// TCP port; 0 listens on none.
    port: Atomic<Integer> = Integer::between(0, 65_535), "port", "6379", RUNTIME;
    /// Connections that the kernel holds until they are accepted.
    tcp_backlog: Atomic<Integer> = Integer::between(0, INT_MAX), "tcp-backlog", "511", IMMUTABLE;
    /// Path of a Unix socket to listen on; empty is none.
    unixsocket: Shared<Text> = Text::any(), "unixsocket", "", IMMUTABLE;
    /// Permissions of the Unix socket in octal; 0 leaves them as they come.
    unixsocketperm: Atomic<Permissions> = Permissions, "unixsocketperm", "0", IMMUTABLE;
    /// Refuse clients of other machines while there is no password.
    protected_mode: Atomic<YesNo> = YesNo::either(), "protected-mode", "yes", RUNTIME;
    /// The password of the default user; empty is none.
    requirepass: Shared<Text> = Text::any(), "requirepass", "", SENSITIVE;
    /// Connections that are served at once.
    maxclients: Atomic<Integer> = Integer::between(1, u32::MAX as i64), "maxclients", "10000", RUNTIME;
    /// Seconds after which an idle client is closed; 0 never.
    timeout: Atomic<Integer> = Integer::between(0, INT_MAX), "timeout", "0", RUNTIME;
    /// Seconds between TCP keepalive probes; 0 sends none.
    tcp_keepalive: Atomic<Integer> = Integer::between(0, INT_MAX), "tcp-keepalive", "300", RUNTIME;
    /// Bytes that a class of clients may leave unread: class, hard limit, soft limit, seconds.
    client_output_buffer_limit: Shared<OutputLimits> = OutputLimits, "client-output-buffer-limit", "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60", RUNTIME;
    /// Bytes of a client's unprocessed input at which it is closed.
    client_query_buffer_limit: Atomic<Memory> = Memory::between(MIB, BYTES_MAX), "client-query-buffer-limit", "1gb", RUNTIME;
    /// Bytes of the longest argument.
    proto_max_bulk_len: Atomic<Memory> = Memory::between(MIB, BYTES_MAX), "proto-max-bulk-len", "512mb", RUNTIME;

    // The process.

    /// Worker threads; 0 is one for each core that the process may use.
    workers: Atomic<Integer> = Integer::between(0, 1024), "workers", "0", IMMUTABLE;
    /// Databases that SELECT can choose from.
    databases: Atomic<Integer> = Integer::between(1, INT_MAX), "databases", "16", IMMUTABLE;
    /// Whether to tell systemd when the server is ready (a unit of `Type=notify`).
    supervised: Atomic<Choice<Supervised>> = Choice::new(), "supervised", "no", IMMUTABLE;
    /// Where to write the process id, which goes when the server ends; empty writes none.
    pidfile: Shared<Text> = Text::any(), "pidfile", "", IMMUTABLE;
    /// How much goes to the log.
    loglevel: Atomic<Choice<LogLevel>> = Choice::new(), "loglevel", "notice", RUNTIME;
    /// The log's file; empty is standard output.
    logfile: Shared<Text> = Text::any(), "logfile", "", IMMUTABLE;
    /// Turns of the housekeeping a second, when there is nothing to do.
    hz: Atomic<Integer> = Integer::between(0, INT_MAX).clamped(1, 500), "hz", "10", RUNTIME;
    /// Who may use DEBUG.
    enable_debug_command: Atomic<Choice<ProtectedAction>> = Choice::new(), "enable-debug-command", "no", IMMUTABLE;
    /// Who may change protected options such as `dir`.
    enable_protected_configs: Atomic<Choice<ProtectedAction>> = Choice::new(), "enable-protected-configs", "no", IMMUTABLE;

    // Memory.

    /// Bytes of resident memory, all included; 0 is no bound.
    maxmemory: Atomic<Memory> = Memory::between(0, u64::MAX), "maxmemory", "0", RUNTIME;
    /// What to do when memory, and flash if there is any, is full.
    maxmemory_policy: Atomic<Choice<MaxmemoryPolicy>> = Choice::new(), "maxmemory-policy", "noeviction", RUNTIME;
    /// Keys that are looked at to find one to evict.
    maxmemory_samples: Atomic<Integer> = Integer::between(1, INT_MAX), "maxmemory-samples", "5", RUNTIME;
    /// Bytes, or percent of `maxmemory`, that all clients together may hold; 0 is no bound.
    maxmemory_clients: Atomic<MemoryOrPercent> = MemoryOrPercent, "maxmemory-clients", "0", RUNTIME;
    /// Moves what lies in sparse pages, so that they go back to the machine, while `maxmemory` is
    /// nearly resident.
    activedefrag: Atomic<YesNo> = YesNo::either(), "activedefrag", "yes", RUNTIME;

    // Flash.

    /// Directories that values go to when memory is full, striped; none: no tier. One that is taken
    /// off the list is drained.
    flash_path: Shared<Paths> = Paths::checked(check_flash_path), "flash-path", "", RUNTIME;
    /// Bytes that all flash paths together take; 0 where there are none.
    flash_size: Atomic<Memory> = Memory::between(0, BYTES_MAX), "flash-size", "0", RUNTIME;
    /// How flash is read and written.
    flash_io: Atomic<Choice<FlashIo>> = Choice::new(), "flash-io", "auto", IMMUTABLE;
    /// Bytes of a segment of the flash log, a power of two; 0 chooses by the flash size.
    flash_segment_size: Atomic<Memory> = Memory::between(0, 1024 * MIB), "flash-segment-size", "0", IMMUTABLE;
    /// When a value that is read from flash stays in memory.
    tier_promotion: Atomic<Choice<TierPromotion>> = Choice::new(), "tier-promotion", "second-touch", RUNTIME;
    /// Whether a value that is read from flash brings those that lie beside it to memory.
    tier_promote_neighbours: Atomic<Choice<TierPromoteNeighbours>> = Choice::new(), "tier-promote-neighbours", "auto", RUNTIME;
    /// Compression of values on flash.
    tier_compression: Atomic<Choice<TierCompression>> = Choice::new(), "tier-compression", "lz4", RUNTIME;
    /// Bytes from which a value is compressed.
    tier_compression_min_bytes: Atomic<Memory> = Memory::between(0, BYTES_MAX), "tier-compression-min-bytes", "1kb", RUNTIME;
    /// Bytes below which a value stays in memory. Shorter ones than 32 always do.
    tier_value_bytes_min: Atomic<Memory> = Memory::between(DEMOTE_BYTES_MIN as u64, 64 * KIB), "tier-value-bytes-min", "32", RUNTIME;
    /// Whether checkpoints of the journal refer to values on flash, so that these stay there over a restart, rather than have
    /// them as well.
    tier_persistence: Atomic<YesNo> = YesNo::either(), "tier-persistence", "yes", RUNTIME;
    /// Whether values that were hot come back to RAM behind a start that has left them on flash.
    tier_read_back: Atomic<YesNo> = YesNo::either(), "tier-read-back", "yes", RUNTIME;
    /// Whether reads of flash that follow the order of writing bring what lies next to them.
    tier_read_ahead: Atomic<YesNo> = YesNo::either(), "tier-read-ahead", "yes", RUNTIME;

    // Snapshots.

    /// Directory of the snapshot and of the journal. Other paths are relative to where the server was started.
    dir: Shared<Text> = Text::checked(check::dir), "dir", ".", PROTECTED;
    /// The snapshot's file name: it is loaded at the start.
    dbfilename: Shared<Text> = Text::checked(check::dbfilename), "dbfilename", "dump.rdb", PROTECTED;
    /// When a snapshot is taken: after so many seconds if there were so many changes, pair by pair. Redis has
    /// some by default.
    save: Shared<Words> = Words::checked(check::save), "save", "", RUNTIME;
    /// Whether strings in snapshots are compressed.
    rdbcompression: Atomic<YesNo> = YesNo::either(), "rdbcompression", "yes", RUNTIME;
    /// Whether writes are refused after a snapshot in the background has failed, if there are save points.
    stop_writes_on_bgsave_error: Atomic<YesNo> = YesNo::either(), "stop-writes-on-bgsave-error", "yes", RUNTIME;
    /// Whether snapshots end with a checksum.
    rdbchecksum: Atomic<YesNo> = YesNo::either(), "rdbchecksum", "yes", IMMUTABLE;
    /// What SIGINT does besides ending the server.
    shutdown_on_sigint: Shared<Words> = Words::checked(check::shutdown), "shutdown-on-sigint", "default", RUNTIME;
    /// What SIGTERM does besides ending the server.
    shutdown_on_sigterm: Shared<Words> = Words::checked(check::shutdown), "shutdown-on-sigterm", "default", RUNTIME;

    // The journal.

    /// Whether writes are journaled, so that they survive a restart.
    appendonly: Atomic<YesNo> = YesNo::either(), "appendonly", "no", RUNTIME;
    /// When the journal is synced.
    appendfsync: Atomic<Choice<AppendFsync>> = Choice::new(), "appendfsync", "everysec", RUNTIME;
    /// The journal's directory, within `dir`.
    appenddirname: Shared<Text> = Text::checked(check::appenddirname), "appenddirname", "appendonlydir", IMMUTABLE;
    /// Percent by which the journal grows until it is rewritten; 0 never.
    auto_aof_rewrite_percentage: Atomic<Integer> = Integer::between(0, INT_MAX), "auto-aof-rewrite-percentage", "100", RUNTIME;
    /// Bytes of a journal that is worth rewriting.
    auto_aof_rewrite_min_size: Atomic<Memory> = Memory::between(0, BYTES_MAX), "auto-aof-rewrite-min-size", "64mb", RUNTIME;
    /// Whether to start with a journal whose last record was cut off, without that record.
    aof_load_truncated: Atomic<YesNo> = YesNo::either(), "aof-load-truncated", "yes", RUNTIME;

    // Encodings, as OBJECT ENCODING names them.

    /// Fields up to which a hash is called a listpack.
    hash_max_listpack_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "hash-max-listpack-entries" | "hash-max-ziplist-entries", "512", RUNTIME;
    /// Bytes of a field or value up to which it is.
    hash_max_listpack_value: Atomic<Memory> = Memory::between(0, BYTES_MAX), "hash-max-listpack-value" | "hash-max-ziplist-value", "64", RUNTIME;
    /// Members up to which a set of integers is called an intset.
    set_max_intset_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "set-max-intset-entries", "512", RUNTIME;
    /// Bytes up to which a HyperLogLog is sparse.
    hll_sparse_max_bytes: Atomic<Memory> = Memory::between(0, BYTES_MAX), "hll-sparse-max-bytes", "3000", RUNTIME;
    /// Members up to which a sorted set is called a listpack.
    zset_max_listpack_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "zset-max-listpack-entries" | "zset-max-ziplist-entries", "128", RUNTIME;
    /// Bytes of a member up to which it is.
    zset_max_listpack_value: Atomic<Memory> = Memory::between(0, BYTES_MAX), "zset-max-listpack-value" | "zset-max-ziplist-value", "64", RUNTIME;
    /// Bytes up to which a leaf of a stream takes another entry, 2 KiB at most; 0 is those.
    stream_node_max_bytes: Atomic<Memory> = Memory::between(0, BYTES_MAX), "stream-node-max-bytes", "4096", RUNTIME;
    /// Entries up to which a leaf of a stream takes another one; 0 is as many as fit.
    stream_node_max_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "stream-node-max-entries", "100", RUNTIME;

    // Watching.

    /// Events on keys that are published to subscribers.
    notify_keyspace_events: Atomic<KeyspaceEvents> = KeyspaceEvents, "notify-keyspace-events", "", RUNTIME;
    /// Microseconds from which a command goes to the slow log; -1 none, 0 all.
    slowlog_log_slower_than: Atomic<Integer> = Integer::between(-1, i64::MAX), "slowlog-log-slower-than", "10000", RUNTIME;
    /// Entries of the slow log.
    slowlog_max_len: Atomic<Integer> = Integer::between(0, i64::MAX), "slowlog-max-len", "128", RUNTIME;
    /// Milliseconds from which LATENCY remembers an event; 0 none.
    latency_monitor_threshold: Atomic<Integer> = Integer::between(0, i64::MAX), "latency-monitor-threshold", "0", RUNTIME;
    /// Count how long each command takes.
    latency_tracking: Atomic<YesNo> = YesNo::either(), "latency-tracking", "yes", RUNTIME;
    /// Percentiles that INFO latencystats shows.
    latency_tracking_info_percentiles: Shared<Percentiles> = Percentiles, "latency-tracking-info-percentiles", "50 99 99.9", RUNTIME;
}

fn check_bind(addresses: &[Vec<u8>]) -> Result<(), String> {
    if addresses.len() > BIND_ADDRESSES_MAX {
        return Err("Too many bind addresses specified.".to_owned());
    }
    Ok(())
}

fn check_flash_path(paths: &[Vec<u8>]) -> Result<(), String> {
    if paths.len() > FLASH_PATHS_MAX {
        return Err(format!("at most {FLASH_PATHS_MAX} flash paths can be given"));
    }
    // As a shell hands it over that was asked for an empty value in a file's quotes.
    if paths.iter().any(|path| matches!(&path[..], b"\"\"" | b"''")) {
        return Err("a flash path is two quotes: no flash is an empty value".to_owned());
    }
    Ok(())
}
