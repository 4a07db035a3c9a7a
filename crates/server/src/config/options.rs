//! The table of options: one row an option, and everything else comes from it.
//!
//! A row is a field of [`Config`] (a cell that commands read), the name that people use with its
//! aliases, the kind with its bounds, the default as one would write it, and flags. Defaults are
//! Redis 7.0's. An option of Redis's that is stored but means nothing here says so in its first
//! line; one of which only a single value is true of us takes no other.

use super::cell::{Atomic, Setting, Shared};
use super::file::{Source, system_text};
use super::kind::{Choice, Integer, Memory, MemoryOrPercent, Names, Permissions, Text, YesNo};
use super::list::{KeyspaceEvents, OutputLimits, Percentiles, Words};

/// Integers of C's `int`, which most of Redis's options are.
const INT_MAX: i64 = i32::MAX as i64;
/// Bytes in a kibibyte.
const KIB: u64 = 1 << 10;
/// Bytes in a mebibyte.
const MIB: u64 = 1 << 20;
/// Bytes that fit into a signed 64-bit integer, Redis's bound of most sizes.
const BYTES_MAX: u64 = i64::MAX as u64;
/// Addresses that one can listen on.
const BIND_ADDRESSES_MAX: usize = 16;
/// Drives that the flash log can be striped over.
const FLASH_PATHS_MAX: usize = 16;

/// What CONFIG may do with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Changeable while running, and shown.
    pub const RUNTIME: Self = Self(0);
    /// Fixed at the start.
    pub const IMMUTABLE: Self = Self(1);
    /// Changeable only where `enable-protected-configs` allows it.
    pub const PROTECTED: Self = Self(2);
    /// Its value must not appear in logs, SLOWLOG or MONITOR.
    pub const SENSITIVE: Self = Self(4);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A row of the table.
pub struct OptionRow {
    /// The name in files, on the command line and in CONFIG.
    pub name: &'static str,
    /// Further names, which CONFIG GET shows too.
    pub aliases: &'static [&'static str],
    /// The default, as one would write it.
    pub default: &'static str,
    /// What CONFIG may do with it.
    pub flags: Flags,
    /// What it is.
    pub doc: &'static str,
    pub(super) setting: fn(&Config) -> &dyn Setting,
}

macro_rules! choices {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$value_doc:meta])* $value:ident = $text:literal, )+ } )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $( $(#[$value_doc])* $value, )+ }

        impl Names for $name {
            const NAMES: &'static [(Self, &'static str)] = &[ $( (Self::$value, $text), )+ ];
        }
    )+ };
}

macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident: $cell:ident<$kind:ty> = $new:expr, $name:literal $(| $alias:literal)*, $default:literal, $flag:ident;
    )+) => {
        /// The values of all options, to be read by any thread at any time.
        pub struct Config {
            $( $(#[doc = $doc])+ pub $field: $cell<$kind>, )+
            pub(super) source: std::sync::Mutex<Source>,
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $( $field: $cell::new($new, $default), )+
                    source: std::sync::Mutex::default(),
                }
            }
        }

        /// All options, in the order of the table.
        pub static OPTIONS: &[OptionRow] = &[ $( OptionRow {
            name: $name,
            aliases: &[ $($alias),* ],
            default: $default,
            flags: Flags::$flag,
            doc: concat!($($doc),+),
            setting: |config| &config.$field,
        }, )+ ];
    };
}

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

    /// When a write to the append-only log counts as done.
    AppendFsync {
        /// When it is on the drive.
        Always = "always",
        /// A second later at most.
        Everysec = "everysec",
        /// When the system sees fit.
        No = "no",
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

    /// Which process supervisor to talk to: none.
    Supervised {
        /// None.
        No = "no",
    }

    /// What new users may subscribe to.
    PubsubDefault {
        /// Every channel.
        Allchannels = "allchannels",
        /// None.
        Resetchannels = "resetchannels",
    }

    /// Whether the payloads of RESTORE are checked in depth.
    SanitizePayload {
        /// No.
        No = "no",
        /// Yes.
        Yes = "yes",
        /// Those that clients send.
        Clients = "clients",
    }
}

options! {
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
    /// Stays in the foreground: supervisors do the rest.
    daemonize: Atomic<YesNo> = YesNo::only_no("running in the background is left to a supervisor"), "daemonize", "no", IMMUTABLE;
    /// Stays in the foreground and signals nobody.
    supervised: Atomic<Choice<Supervised>> = Choice::new(), "supervised", "no", IMMUTABLE;
    /// Where to write the process id; empty writes none.
    pidfile: Shared<Text> = Text::any(), "pidfile", "", IMMUTABLE;
    /// Stored, without effect: the process keeps its name.
    set_proc_title: Atomic<YesNo> = YesNo::either(), "set-proc-title", "yes", RUNTIME;
    /// Stored, without effect: the process keeps its name.
    proc_title_template: Shared<Text> = Text::any(), "proc-title-template", "{title} {listen-addr} {server-mode}", RUNTIME;
    /// Stored, without effect: `workers` says how many threads there are.
    io_threads: Atomic<Integer> = Integer::between(1, 128), "io-threads", "1", IMMUTABLE;
    /// Stored, without effect: there is no logo.
    always_show_logo: Atomic<YesNo> = YesNo::either(), "always-show-logo", "no", IMMUTABLE;
    /// Stored, without effect: the allocator's pages are its own affair.
    disable_thp: Atomic<YesNo> = YesNo::either(), "disable-thp", "yes", IMMUTABLE;
    /// Stored, without effect: the allocator always purges in the background.
    jemalloc_bg_thread: Atomic<YesNo> = YesNo::either(), "jemalloc-bg-thread", "yes", RUNTIME;
    /// Only `no`: one server is not a member of a cluster.
    cluster_enabled: Atomic<YesNo> = YesNo::only_no("cluster mode is not supported"), "cluster-enabled", "no", IMMUTABLE;
    /// How much goes to the log.
    loglevel: Atomic<Choice<LogLevel>> = Choice::new(), "loglevel", "notice", RUNTIME;
    /// The log's file; empty is standard output.
    logfile: Shared<Text> = Text::any(), "logfile", "", IMMUTABLE;
    /// The directory for files.
    dir: Shared<Text> = Text::checked(check_dir), "dir", ".", PROTECTED;
    /// Turns of the housekeeping a second, when there is nothing to do.
    hz: Atomic<Integer> = Integer::between(0, INT_MAX).clamped(1, 500), "hz", "10", RUNTIME;
    /// More turns with more clients.
    dynamic_hz: Atomic<YesNo> = YesNo::either(), "dynamic-hz", "yes", RUNTIME;
    /// Who may use DEBUG.
    enable_debug_command: Atomic<Choice<ProtectedAction>> = Choice::new(), "enable-debug-command", "no", IMMUTABLE;
    /// Who may change protected options such as `dir`.
    enable_protected_configs: Atomic<Choice<ProtectedAction>> = Choice::new(), "enable-protected-configs", "no", IMMUTABLE;
    /// Stored, without effect: there are no modules.
    enable_module_command: Atomic<Choice<ProtectedAction>> = Choice::new(), "enable-module-command", "no", IMMUTABLE;
    /// Milliseconds after which a command that still runs lets others be told so; 0 never.
    busy_reply_threshold: Atomic<Integer> = Integer::between(0, i64::MAX), "busy-reply-threshold" | "lua-time-limit", "5000", RUNTIME;
    /// Seconds that SHUTDOWN waits for replicas.
    shutdown_timeout: Atomic<Integer> = Integer::between(0, INT_MAX), "shutdown-timeout", "10", RUNTIME;

    // Memory.

    /// Bytes of resident memory, all included; 0 is no bound.
    maxmemory: Atomic<Memory> = Memory::between(0, u64::MAX), "maxmemory", "0", RUNTIME;
    /// What to do when memory, and flash if there is any, is full.
    maxmemory_policy: Atomic<Choice<MaxmemoryPolicy>> = Choice::new(), "maxmemory-policy", "noeviction", RUNTIME;
    /// Keys that are looked at to find one to evict.
    maxmemory_samples: Atomic<Integer> = Integer::between(1, INT_MAX), "maxmemory-samples", "5", RUNTIME;
    /// How much time eviction may take, 0 to 100.
    maxmemory_eviction_tenacity: Atomic<Integer> = Integer::between(0, 100), "maxmemory-eviction-tenacity", "10", RUNTIME;
    /// Bytes, or percent of `maxmemory`, that all clients together may hold; 0 is no bound.
    maxmemory_clients: Atomic<MemoryOrPercent> = MemoryOrPercent, "maxmemory-clients", "0", RUNTIME;
    /// How slowly a key's use counter rises.
    lfu_log_factor: Atomic<Integer> = Integer::between(0, INT_MAX), "lfu-log-factor", "10", RUNTIME;
    /// Minutes after which a key's use counter falls by one; 0 never.
    lfu_decay_time: Atomic<Integer> = Integer::between(0, INT_MAX), "lfu-decay-time", "1", RUNTIME;
    /// How much time may go into finding expired keys, 1 to 10.
    active_expire_effort: Atomic<Integer> = Integer::between(1, 10), "active-expire-effort", "1", RUNTIME;
    /// Moves what lies in sparse pages, so that they go back to the machine, while `maxmemory` is
    /// nearly resident.
    activedefrag: Atomic<YesNo> = YesNo::either(), "activedefrag", "yes", RUNTIME;
    /// Stored, without effect: tables grow in small steps anyway.
    activerehashing: Atomic<YesNo> = YesNo::either(), "activerehashing", "yes", RUNTIME;
    /// Stored, without effect: values are freed where it costs least.
    lazyfree_lazy_eviction: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-eviction", "no", RUNTIME;
    /// Stored, without effect: values are freed where it costs least.
    lazyfree_lazy_expire: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-expire", "no", RUNTIME;
    /// Stored, without effect: values are freed where it costs least.
    lazyfree_lazy_server_del: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-server-del", "no", RUNTIME;
    /// Stored, without effect: values are freed where it costs least.
    lazyfree_lazy_user_del: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-user-del", "no", RUNTIME;
    /// Stored, without effect: values are freed where it costs least.
    lazyfree_lazy_user_flush: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-user-flush", "no", RUNTIME;
    /// Keys that client-side caching remembers; 0 is no bound.
    tracking_table_max_keys: Atomic<Integer> = Integer::between(0, i64::MAX), "tracking-table-max-keys", "1000000", RUNTIME;

    // Flash.

    /// Directories that values go to when memory is full, striped; none: no tier. One that is taken
    /// off the list is drained.
    flash_path: Shared<Words> = Words::checked(check_flash_path), "flash-path", "", RUNTIME;
    /// Bytes that all flash paths together may take; 0 is what there is.
    flash_size: Atomic<Memory> = Memory::between(0, BYTES_MAX), "flash-size", "0", RUNTIME;
    /// How flash is read and written.
    flash_io: Atomic<Choice<FlashIo>> = Choice::new(), "flash-io", "auto", IMMUTABLE;
    /// Bytes of a segment of the flash log, a power of two; 0 chooses by the flash size.
    flash_segment_size: Atomic<Memory> = Memory::between(0, 1024 * MIB), "flash-segment-size", "0", IMMUTABLE;
    /// When a value that is read from flash stays in memory.
    tier_promotion: Atomic<Choice<TierPromotion>> = Choice::new(), "tier-promotion", "second-touch", RUNTIME;
    /// Compression of values on flash.
    tier_compression: Atomic<Choice<TierCompression>> = Choice::new(), "tier-compression", "lz4", RUNTIME;
    /// Bytes from which a value is compressed.
    tier_compression_min_bytes: Atomic<Memory> = Memory::between(0, BYTES_MAX), "tier-compression-min-bytes", "1kb", RUNTIME;
    /// Bytes below which a value stays in memory.
    tier_value_bytes_min: Atomic<Memory> = Memory::between(0, 64 * KIB), "tier-value-bytes-min", "64", RUNTIME;

    // Persistence.

    /// Only `no`: the flash log is scratch space.
    appendonly: Atomic<YesNo> = YesNo::only_no("append only persistence is not supported"), "appendonly", "no", RUNTIME;
    /// When a write counts as done, with `appendonly yes`.
    appendfsync: Atomic<Choice<AppendFsync>> = Choice::new(), "appendfsync", "everysec", RUNTIME;
    /// Only `""`: there are no snapshots.
    save: Shared<Words> = Words::checked(check_save), "save", "", RUNTIME;
    /// The snapshot's file name.
    dbfilename: Shared<Text> = Text::checked(check_dbfilename), "dbfilename", "dump.rdb", PROTECTED;
    /// Whether payloads of RESTORE are checked in depth.
    sanitize_dump_payload: Atomic<Choice<SanitizePayload>> = Choice::new(), "sanitize-dump-payload", "no", RUNTIME;

    // Replication.

    /// Replicas that must be there for writes to be taken; 0 takes them always.
    min_replicas_to_write: Atomic<Integer> = Integer::between(0, INT_MAX), "min-replicas-to-write" | "min-slaves-to-write", "0", RUNTIME;
    /// Seconds after which a silent replica is not there.
    min_replicas_max_lag: Atomic<Integer> = Integer::between(0, INT_MAX), "min-replicas-max-lag" | "min-slaves-max-lag", "10", RUNTIME;

    // Watching.

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
    /// Events on keys that are published to subscribers.
    notify_keyspace_events: Atomic<KeyspaceEvents> = KeyspaceEvents, "notify-keyspace-events", "", RUNTIME;
    /// Entries of the log of refused commands.
    acllog_max_len: Atomic<Integer> = Integer::between(0, i64::MAX), "acllog-max-len", "128", RUNTIME;
    /// What new users may subscribe to.
    acl_pubsub_default: Atomic<Choice<PubsubDefault>> = Choice::new(), "acl-pubsub-default", "resetchannels", RUNTIME;

    // Encodings.

    /// Fields of a hash that is kept in one piece.
    hash_max_listpack_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "hash-max-listpack-entries" | "hash-max-ziplist-entries", "512", RUNTIME;
    /// Bytes of a field or value of a hash that is kept in one piece.
    hash_max_listpack_value: Atomic<Memory> = Memory::between(0, BYTES_MAX), "hash-max-listpack-value" | "hash-max-ziplist-value", "64", RUNTIME;
    /// Entries of a list's node; negative: its size, -1 (4 KiB) to -5 (64 KiB).
    list_max_listpack_size: Atomic<Integer> = Integer::between(i32::MIN as i64, INT_MAX), "list-max-listpack-size" | "list-max-ziplist-size", "-2", RUNTIME;
    /// Nodes at either end of a list that are not compressed; 0 compresses none.
    list_compress_depth: Atomic<Integer> = Integer::between(0, INT_MAX), "list-compress-depth", "0", RUNTIME;
    /// Members of a set of integers that is kept in one piece.
    set_max_intset_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "set-max-intset-entries", "512", RUNTIME;
    /// Members of a set that is kept in one piece.
    set_max_listpack_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "set-max-listpack-entries", "128", RUNTIME;
    /// Bytes of a member of a set that is kept in one piece.
    set_max_listpack_value: Atomic<Memory> = Memory::between(0, BYTES_MAX), "set-max-listpack-value", "64", RUNTIME;
    /// Members of a sorted set that is kept in one piece.
    zset_max_listpack_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "zset-max-listpack-entries" | "zset-max-ziplist-entries", "128", RUNTIME;
    /// Bytes of a member of a sorted set that is kept in one piece.
    zset_max_listpack_value: Atomic<Memory> = Memory::between(0, BYTES_MAX), "zset-max-listpack-value" | "zset-max-ziplist-value", "64", RUNTIME;
    /// Bytes of a HyperLogLog's sparse form.
    hll_sparse_max_bytes: Atomic<Memory> = Memory::between(0, BYTES_MAX), "hll-sparse-max-bytes", "3000", RUNTIME;
    /// Bytes of a stream's node; 0 is no bound.
    stream_node_max_bytes: Atomic<Memory> = Memory::between(0, BYTES_MAX), "stream-node-max-bytes", "4096", RUNTIME;
    /// Entries of a stream's node; 0 is no bound.
    stream_node_max_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "stream-node-max-entries", "100", RUNTIME;
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
    Ok(())
}

/// The syntax is Redis's; what it asks for is refused until there are snapshots.
fn check_save(words: &[Vec<u8>]) -> Result<(), String> {
    let number = |word: &Vec<u8>| value::number::parse_u64(word);
    let is_point = |pair: &[Vec<u8>]| {
        pair.len() == 2 && number(&pair[0]).is_some_and(|it| it >= 1) && number(&pair[1]).is_some()
    };
    if !words.chunks(2).all(is_point) {
        return Err("Invalid save parameters".to_owned());
    }
    if !words.is_empty() {
        return Err("snapshots are not supported: the only value is \"\"".to_owned());
    }
    Ok(())
}

fn check_dbfilename(name: &[u8]) -> Result<Vec<u8>, String> {
    if name.contains(&b'/') {
        return Err("dbfilename can't be a path, just a filename".to_owned());
    }
    Ok(name.to_vec())
}

/// The directory must exist; it is kept as an absolute path.
fn check_dir(path: &[u8]) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let absolute = path.canonicalize().map_err(|error| system_text(&error))?;
    // A directory that can be listed, or the system's reason why not.
    std::fs::read_dir(&absolute).map_err(|error| system_text(&error))?;
    Ok(absolute.into_os_string().into_vec())
}
