//! Redis's options that have no effect here, so that its files can be read and CONFIG knows them.
//!
//! They concern what is not there, or what cannot be chosen. Values are checked as Redis does, kept
//! and shown. What would promise something that cannot be kept (replicas, encryption,
//! users) is refused. When the server starts it names those that ask for something
//! ([`Config::without_effect`]). An option that gets an effect moves to `options`.

use super::cell::{Atomic, Shared};
use super::check::{self, NO_REPLICATION};
use super::kind::{Choice, Integer, Memory, Names, Text, YesNo};
use super::list::Words;
use super::options::{Config, ProtectedAction};
use super::row::{BYTES_MAX, Flags, INT_MAX, OptionRow, choices, options};

choices! {
    /// How the place is adapted.
    OomScoreAdj {
        No = "no",
        Yes = "yes",
        Relative = "relative",
        Absolute = "absolute",
    }

    /// Facilities of syslog.
    SyslogFacility {
        User = "user",
        Local0 = "local0",
        Local1 = "local1",
        Local2 = "local2",
        Local3 = "local3",
        Local4 = "local4",
        Local5 = "local5",
        Local6 = "local6",
        Local7 = "local7",
    }

    /// What new users may subscribe to.
    PubsubDefault {
        Allchannels = "allchannels",
        Resetchannels = "resetchannels",
    }

    /// Which payloads are checked.
    SanitizePayload {
        No = "no",
        Yes = "yes",
        Clients = "clients",
    }

    /// What an error in the stream does.
    PropagationError {
        Ignore = "ignore",
        Panic = "panic",
        PanicOnReplicas = "panic-on-replicas",
    }

    /// When a snapshot needs no file.
    DisklessLoad {
        Disabled = "disabled",
        OnEmptyDb = "on-empty-db",
        Swapdb = "swapdb",
    }

    /// What clients are told of a node.
    EndpointType {
        Ip = "ip",
        Hostname = "hostname",
        UnknownEndpoint = "unknown-endpoint",
    }

    /// Who needs a certificate.
    TlsAuthClients {
        No = "no",
        Yes = "yes",
        Optional = "optional",
    }
}

options! {
    /// The values of these options.
    struct Inert in config => config.inert;
    /// The options that have no effect here.
    static INERT;

    // The process.
    /// Running in the background, which is left to a supervisor.
    daemonize: Atomic<YesNo> = YesNo::either(), "daemonize", "no", IMMUTABLE;
    /// Naming the process.
    set_proc_title: Atomic<YesNo> = YesNo::either(), "set-proc-title", "yes", IMMUTABLE;
    /// The name of the process.
    proc_title_template: Shared<Text> = Text::checked(check::title_template), "proc-title-template", "{title} {listen-addr} {server-mode}", RUNTIME;
    /// Threads for sockets: `workers` says how many threads there are.
    io_threads: Atomic<Integer> = Integer::between(1, 128), "io-threads", "1", IMMUTABLE;
    /// Reading in those threads too.
    io_threads_do_reads: Atomic<YesNo> = YesNo::either(), "io-threads-do-reads", "no", IMMUTABLE;
    /// A logo in the log.
    always_show_logo: Atomic<YesNo> = YesNo::either(), "always-show-logo", "no", IMMUTABLE;
    /// Huge pages switched off: the allocator's pages are its own affair.
    disable_thp: Atomic<YesNo> = YesNo::either(), "disable-thp", "yes", IMMUTABLE;
    /// Purging in the background, which the allocator always does.
    jemalloc_bg_thread: Atomic<YesNo> = YesNo::either(), "jemalloc-bg-thread", "yes", RUNTIME;
    /// Adapting the process's place in the line of the out-of-memory killer.
    oom_score_adj: Atomic<Choice<OomScoreAdj>> = Choice::new(), "oom-score-adj", "no", RUNTIME;
    /// The places of a master, a replica and a child.
    oom_score_adj_values: Shared<Words> = Words::checked(check::oom_scores), "oom-score-adj-values", "0 200 800", RUNTIME;
    /// Cores of the main thread.
    server_cpulist: Shared<Text> = Text::any(), "server_cpulist", "", IMMUTABLE;
    /// Cores of background threads.
    bio_cpulist: Shared<Text> = Text::any(), "bio_cpulist", "", IMMUTABLE;
    /// Cores of the child that rewrites the append-only file.
    aof_rewrite_cpulist: Shared<Text> = Text::any(), "aof_rewrite_cpulist", "", IMMUTABLE;
    /// Cores of the child that saves a snapshot.
    bgsave_cpulist: Shared<Text> = Text::any(), "bgsave_cpulist", "", IMMUTABLE;
    /// Logging to syslog.
    syslog_enabled: Atomic<YesNo> = YesNo::either(), "syslog-enabled", "no", IMMUTABLE;
    /// The name in syslog.
    syslog_ident: Shared<Text> = Text::any(), "syslog-ident", "redis", IMMUTABLE;
    /// The facility of syslog.
    syslog_facility: Atomic<Choice<SyslogFacility>> = Choice::new(), "syslog-facility", "local0", IMMUTABLE;
    /// A report in the log when the process crashes.
    crash_log_enabled: Atomic<YesNo> = YesNo::either(), "crash-log-enabled", "yes", RUNTIME;
    /// A test of the memory when the process crashes.
    crash_memcheck_enabled: Atomic<YesNo> = YesNo::either(), "crash-memcheck-enabled", "yes", RUNTIME;
    /// Warnings that do not keep the server from starting.
    ignore_warnings: Shared<Text> = Text::any(), "ignore-warnings", "", RUNTIME;
    /// Who may use MODULE: there are no modules.
    enable_module_command: Atomic<Choice<ProtectedAction>> = Choice::new(), "enable-module-command", "no", IMMUTABLE;
    /// More turns of housekeeping with more clients.
    dynamic_hz: Atomic<YesNo> = YesNo::either(), "dynamic-hz", "yes", RUNTIME;
    /// Milliseconds after which a slow script lets others be told so.
    busy_reply_threshold: Atomic<Integer> = Integer::between(0, i64::MAX), "busy-reply-threshold" | "lua-time-limit", "5000", RUNTIME;
    /// Seconds that SHUTDOWN waits for replicas.
    shutdown_timeout: Atomic<Integer> = Integer::between(0, INT_MAX), "shutdown-timeout", "10", RUNTIME;
    /// The address that outgoing connections come from.
    bind_source_addr: Shared<Text> = Text::any(), "bind-source-addr", "", RUNTIME;
    /// A mark on sockets for the firewall.
    socket_mark_id: Atomic<Integer> = Integer::between(0, u32::MAX.into()), "socket-mark-id", "0", IMMUTABLE;
    /// The file of users besides `default`, of whom there are none.
    aclfile: Shared<Text> = Text::checked(check::aclfile), "aclfile", "", IMMUTABLE;
    /// Entries of the log of refused commands.
    acllog_max_len: Atomic<Integer> = Integer::between(0, i64::MAX), "acllog-max-len", "128", RUNTIME;
    /// What new users may subscribe to.
    acl_pubsub_default: Atomic<Choice<PubsubDefault>> = Choice::new(), "acl-pubsub-default", "resetchannels", RUNTIME;

    // Memory.
    /// How much time eviction may take.
    maxmemory_eviction_tenacity: Atomic<Integer> = Integer::between(0, 100), "maxmemory-eviction-tenacity", "10", RUNTIME;
    /// How slowly a key's use counter rises: it has four values.
    lfu_log_factor: Atomic<Integer> = Integer::between(0, INT_MAX), "lfu-log-factor", "10", RUNTIME;
    /// Minutes after which a key's use counter falls: the demotion hand lowers it.
    lfu_decay_time: Atomic<Integer> = Integer::between(0, INT_MAX), "lfu-decay-time", "1", RUNTIME;
    /// How much time may go into finding expired keys.
    active_expire_effort: Atomic<Integer> = Integer::between(1, 10), "active-expire-effort", "1", RUNTIME;
    /// Moving tables between commands: they grow in small steps anyway.
    activerehashing: Atomic<YesNo> = YesNo::either(), "activerehashing", "yes", RUNTIME;
    /// Freeing in the background: values are freed where it costs least.
    lazyfree_lazy_eviction: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-eviction", "no", RUNTIME;
    /// Freeing in the background: values are freed where it costs least.
    lazyfree_lazy_expire: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-expire", "no", RUNTIME;
    /// Freeing in the background: values are freed where it costs least.
    lazyfree_lazy_server_del: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-server-del", "no", RUNTIME;
    /// Freeing in the background: values are freed where it costs least.
    lazyfree_lazy_user_del: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-user-del", "no", RUNTIME;
    /// Freeing in the background: values are freed where it costs least.
    lazyfree_lazy_user_flush: Atomic<YesNo> = YesNo::either(), "lazyfree-lazy-user-flush", "no", RUNTIME;
    /// Fragmented bytes that are left alone.
    active_defrag_ignore_bytes: Atomic<Memory> = Memory::between(1, BYTES_MAX), "active-defrag-ignore-bytes", "100mb", RUNTIME;
    /// Percent of fragmentation that is left alone.
    active_defrag_threshold_lower: Atomic<Integer> = Integer::between(0, 1000), "active-defrag-threshold-lower", "10", RUNTIME;
    /// Percent of fragmentation from which all effort is made.
    active_defrag_threshold_upper: Atomic<Integer> = Integer::between(0, 1000), "active-defrag-threshold-upper", "100", RUNTIME;
    /// Percent of the CPU that is the least effort.
    active_defrag_cycle_min: Atomic<Integer> = Integer::between(1, 99), "active-defrag-cycle-min", "1", RUNTIME;
    /// Percent of the CPU that is all effort.
    active_defrag_cycle_max: Atomic<Integer> = Integer::between(1, 99), "active-defrag-cycle-max", "25", RUNTIME;
    /// Elements from which a value is moved apart from the others.
    active_defrag_max_scan_fields: Atomic<Integer> = Integer::between(1, i64::MAX), "active-defrag-max-scan-fields", "1000", RUNTIME;
    /// Keys that client-side caching remembers.
    tracking_table_max_keys: Atomic<Integer> = Integer::between(0, i64::MAX), "tracking-table-max-keys", "1000000", RUNTIME;

    // Persistence.
    /// Removing snapshots that only replication needed.
    rdb_del_sync_files: Atomic<YesNo> = YesNo::either(), "rdb-del-sync-files", "no", RUNTIME;
    /// Flushing snapshots as they are written.
    rdb_save_incremental_fsync: Atomic<YesNo> = YesNo::either(), "rdb-save-incremental-fsync", "yes", RUNTIME;
    /// Whether payloads of RESTORE are checked in depth.
    sanitize_dump_payload: Atomic<Choice<SanitizePayload>> = Choice::new(), "sanitize-dump-payload", "no", RUNTIME;
    /// The append-only file's name.
    appendfilename: Shared<Text> = Text::checked(check::appendfilename), "appendfilename", "appendonly.aof", IMMUTABLE;
    /// Not flushing the append-only file while a child writes.
    no_appendfsync_on_rewrite: Atomic<YesNo> = YesNo::either(), "no-appendfsync-on-rewrite", "no", RUNTIME;
    /// A snapshot at the head of the append-only file.
    aof_use_rdb_preamble: Atomic<YesNo> = YesNo::either(), "aof-use-rdb-preamble", "yes", RUNTIME;
    /// Times in the append-only file.
    aof_timestamp_enabled: Atomic<YesNo> = YesNo::either(), "aof-timestamp-enabled", "no", RUNTIME;
    /// Flushing the append-only file as it is rewritten.
    aof_rewrite_incremental_fsync: Atomic<YesNo> = YesNo::either(), "aof-rewrite-incremental-fsync", "yes", RUNTIME;
    /// Keeping old append-only files.
    aof_disable_auto_gc: Atomic<YesNo> = YesNo::either(), "aof-disable-auto-gc", "no", RUNTIME;

    // Replication.
    /// The master: only none.
    replicaof: Shared<Words> = Words::checked(check::replicaof), "replicaof" | "slaveof", "", IMMUTABLE;
    /// The user at the master.
    masteruser: Shared<Text> = Text::any(), "masteruser", "", SENSITIVE;
    /// The password at the master.
    masterauth: Shared<Text> = Text::any(), "masterauth", "", SENSITIVE;
    /// Replicas that must be there for writes to be taken: only 0.
    min_replicas_to_write: Atomic<Integer> = Integer::between(0, INT_MAX).only(0, NO_REPLICATION), "min-replicas-to-write" | "min-slaves-to-write", "0", RUNTIME;
    /// Seconds after which a silent replica is not there.
    min_replicas_max_lag: Atomic<Integer> = Integer::between(0, INT_MAX), "min-replicas-max-lag" | "min-slaves-max-lag", "10", RUNTIME;
    /// Answering from old data while the master is away.
    replica_serve_stale_data: Atomic<YesNo> = YesNo::either(), "replica-serve-stale-data" | "slave-serve-stale-data", "yes", RUNTIME;
    /// Refusing writes of clients on a replica.
    replica_read_only: Atomic<YesNo> = YesNo::either(), "replica-read-only" | "slave-read-only", "yes", RUNTIME;
    /// Not evicting on a replica.
    replica_ignore_maxmemory: Atomic<YesNo> = YesNo::either(), "replica-ignore-maxmemory" | "slave-ignore-maxmemory", "yes", RUNTIME;
    /// Emptying a replica in the background.
    replica_lazy_flush: Atomic<YesNo> = YesNo::either(), "replica-lazy-flush" | "slave-lazy-flush", "no", RUNTIME;
    /// A replica's place in the line of successors.
    replica_priority: Atomic<Integer> = Integer::between(0, INT_MAX), "replica-priority" | "slave-priority", "100", RUNTIME;
    /// Being shown to Sentinel.
    replica_announced: Atomic<YesNo> = YesNo::either(), "replica-announced", "yes", RUNTIME;
    /// The address that a replica names.
    replica_announce_ip: Shared<Text> = Text::any(), "replica-announce-ip" | "slave-announce-ip", "", RUNTIME;
    /// The port that a replica names.
    replica_announce_port: Atomic<Integer> = Integer::between(0, 65_535), "replica-announce-port" | "slave-announce-port", "0", RUNTIME;
    /// A replica that cannot write to its drive goes on.
    replica_ignore_disk_write_errors: Atomic<YesNo> = YesNo::either(), "replica-ignore-disk-write-errors", "no", RUNTIME;
    /// What an error in the stream of replication does.
    propagation_error_behavior: Atomic<Choice<PropagationError>> = Choice::new(), "propagation-error-behavior", "ignore", RUNTIME;
    /// Sending snapshots without a file.
    repl_diskless_sync: Atomic<YesNo> = YesNo::either(), "repl-diskless-sync", "yes", RUNTIME;
    /// Seconds to wait for more replicas before that.
    repl_diskless_sync_delay: Atomic<Integer> = Integer::between(0, INT_MAX), "repl-diskless-sync-delay", "5", RUNTIME;
    /// Replicas that need not be waited for any longer.
    repl_diskless_sync_max_replicas: Atomic<Integer> = Integer::between(0, INT_MAX), "repl-diskless-sync-max-replicas", "0", RUNTIME;
    /// Loading snapshots without a file.
    repl_diskless_load: Atomic<Choice<DisklessLoad>> = Choice::new(), "repl-diskless-load", "disabled", RUNTIME;
    /// Gathering bytes for replicas.
    repl_disable_tcp_nodelay: Atomic<YesNo> = YesNo::either(), "repl-disable-tcp-nodelay", "no", RUNTIME;
    /// Seconds between pings.
    repl_ping_replica_period: Atomic<Integer> = Integer::between(1, INT_MAX), "repl-ping-replica-period" | "repl-ping-slave-period", "10", RUNTIME;
    /// Seconds of silence after which a link is down.
    repl_timeout: Atomic<Integer> = Integer::between(1, INT_MAX), "repl-timeout", "60", RUNTIME;
    /// Bytes kept for replicas that come back.
    repl_backlog_size: Atomic<Memory> = Memory::between(1, BYTES_MAX), "repl-backlog-size", "1mb", RUNTIME;
    /// Seconds for which they are kept without a replica.
    repl_backlog_ttl: Atomic<Integer> = Integer::between(0, i64::MAX), "repl-backlog-ttl", "3600", RUNTIME;

    // Cluster.
    /// Only `no`: a server is not a member of a cluster.
    cluster_enabled: Atomic<YesNo> = YesNo::only_no("cluster mode is not supported"), "cluster-enabled", "no", IMMUTABLE;
    /// The file of what a node knows.
    cluster_config_file: Shared<Text> = Text::any(), "cluster-config-file", "nodes.conf", IMMUTABLE;
    /// Milliseconds of silence after which a node is down.
    cluster_node_timeout: Atomic<Integer> = Integer::between(0, i64::MAX), "cluster-node-timeout", "15000", RUNTIME;
    /// The port of the cluster's bus.
    cluster_port: Atomic<Integer> = Integer::between(0, 65_535), "cluster-port", "0", IMMUTABLE;
    /// The address that a node names.
    cluster_announce_ip: Shared<Text> = Text::any(), "cluster-announce-ip", "", RUNTIME;
    /// The host that a node names.
    cluster_announce_hostname: Shared<Text> = Text::checked(check::hostname), "cluster-announce-hostname", "", RUNTIME;
    /// The port that a node names.
    cluster_announce_port: Atomic<Integer> = Integer::between(0, 65_535), "cluster-announce-port", "0", RUNTIME;
    /// The port for TLS that a node names.
    cluster_announce_tls_port: Atomic<Integer> = Integer::between(0, 65_535), "cluster-announce-tls-port", "0", RUNTIME;
    /// The bus's port that a node names.
    cluster_announce_bus_port: Atomic<Integer> = Integer::between(0, 65_535), "cluster-announce-bus-port", "0", RUNTIME;
    /// Which of them clients are told.
    cluster_preferred_endpoint_type: Atomic<Choice<EndpointType>> = Choice::new(), "cluster-preferred-endpoint-type", "ip", RUNTIME;
    /// Refusing all requests while slots are missing.
    cluster_require_full_coverage: Atomic<YesNo> = YesNo::either(), "cluster-require-full-coverage", "yes", RUNTIME;
    /// Reading from a node that has lost the others.
    cluster_allow_reads_when_down: Atomic<YesNo> = YesNo::either(), "cluster-allow-reads-when-down", "no", RUNTIME;
    /// Publishing on a node that has lost the others.
    cluster_allow_pubsubshard_when_down: Atomic<YesNo> = YesNo::either(), "cluster-allow-pubsubshard-when-down", "yes", RUNTIME;
    /// Replicas that go where they are needed.
    cluster_allow_replica_migration: Atomic<YesNo> = YesNo::either(), "cluster-allow-replica-migration", "yes", RUNTIME;
    /// Replicas that a master keeps.
    cluster_migration_barrier: Atomic<Integer> = Integer::between(0, INT_MAX), "cluster-migration-barrier", "1", RUNTIME;
    /// A replica that never succeeds its master.
    cluster_replica_no_failover: Atomic<YesNo> = YesNo::either(), "cluster-replica-no-failover" | "cluster-slave-no-failover", "no", RUNTIME;
    /// How old the data of a successor may be.
    cluster_replica_validity_factor: Atomic<Integer> = Integer::between(0, INT_MAX), "cluster-replica-validity-factor" | "cluster-slave-validity-factor", "10", RUNTIME;
    /// Bytes that may wait for a node.
    cluster_link_sendbuf_limit: Atomic<Memory> = Memory::between(0, u64::MAX), "cluster-link-sendbuf-limit", "0", RUNTIME;

    // TLS.
    /// The port for TLS: only 0, none.
    tls_port: Atomic<Integer> = Integer::between(0, 65_535).only(0, "TLS is not supported"), "tls-port", "0", RUNTIME;
    /// TLS to the master.
    tls_replication: Atomic<YesNo> = YesNo::either(), "tls-replication", "no", RUNTIME;
    /// TLS on the cluster's bus.
    tls_cluster: Atomic<YesNo> = YesNo::either(), "tls-cluster", "no", RUNTIME;
    /// The certificate.
    tls_cert_file: Shared<Text> = Text::any(), "tls-cert-file", "", RUNTIME;
    /// Its key.
    tls_key_file: Shared<Text> = Text::any(), "tls-key-file", "", RUNTIME;
    /// The key's password.
    tls_key_file_pass: Shared<Text> = Text::any(), "tls-key-file-pass", "", SENSITIVE;
    /// The certificate of outgoing connections.
    tls_client_cert_file: Shared<Text> = Text::any(), "tls-client-cert-file", "", RUNTIME;
    /// Its key.
    tls_client_key_file: Shared<Text> = Text::any(), "tls-client-key-file", "", RUNTIME;
    /// The key's password.
    tls_client_key_file_pass: Shared<Text> = Text::any(), "tls-client-key-file-pass", "", SENSITIVE;
    /// The authority of peers.
    tls_ca_cert_file: Shared<Text> = Text::any(), "tls-ca-cert-file", "", RUNTIME;
    /// The authorities of peers.
    tls_ca_cert_dir: Shared<Text> = Text::any(), "tls-ca-cert-dir", "", RUNTIME;
    /// Parameters of old ciphers.
    tls_dh_params_file: Shared<Text> = Text::any(), "tls-dh-params-file", "", RUNTIME;
    /// Protocols to be taken.
    tls_protocols: Shared<Text> = Text::any(), "tls-protocols", "", RUNTIME;
    /// Ciphers to be taken up to TLS 1.2.
    tls_ciphers: Shared<Text> = Text::any(), "tls-ciphers", "", RUNTIME;
    /// Ciphers to be taken from TLS 1.3 on.
    tls_ciphersuites: Shared<Text> = Text::any(), "tls-ciphersuites", "", RUNTIME;
    /// Whose ciphers come first.
    tls_prefer_server_ciphers: Atomic<YesNo> = YesNo::either(), "tls-prefer-server-ciphers", "no", RUNTIME;
    /// Whether clients need certificates.
    tls_auth_clients: Atomic<Choice<TlsAuthClients>> = Choice::new(), "tls-auth-clients", "yes", RUNTIME;
    /// Sessions that can be resumed.
    tls_session_caching: Atomic<YesNo> = YesNo::either(), "tls-session-caching", "yes", RUNTIME;
    /// How many.
    tls_session_cache_size: Atomic<Integer> = Integer::between(0, INT_MAX), "tls-session-cache-size", "20480", RUNTIME;
    /// For how many seconds.
    tls_session_cache_timeout: Atomic<Integer> = Integer::between(0, INT_MAX), "tls-session-cache-timeout", "300", RUNTIME;

    // Encodings of the types that are not there yet.
    /// Entries of a list's node; negative: its size, -1 (4 KiB) to -5 (64 KiB).
    list_max_listpack_size: Atomic<Integer> = Integer::between(i32::MIN as i64, INT_MAX), "list-max-listpack-size" | "list-max-ziplist-size", "-2", RUNTIME;
    /// Nodes at either end of a list that are not compressed; 0 compresses none.
    list_compress_depth: Atomic<Integer> = Integer::between(0, INT_MAX), "list-compress-depth", "0", RUNTIME;
    /// Members of a set that is kept in one piece.
    set_max_listpack_entries: Atomic<Integer> = Integer::between(0, i64::MAX), "set-max-listpack-entries", "128", RUNTIME;
    /// Bytes of a member of a set that is kept in one piece.
    set_max_listpack_value: Atomic<Memory> = Memory::between(0, BYTES_MAX), "set-max-listpack-value", "64", RUNTIME;
}

impl Config {
    /// The options that were given in a file or on the command line, have no effect here, and ask
    /// for something else than they do by default. Redis's files take snapshots unless they say
    /// otherwise.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let defaults = Config::default();
        let named = &self.lock_source().named;
        let inert = || INERT.iter().filter(|row| named.contains(&row.name));
        let asks = |row: &&OptionRow| {
            let text = |config| (row.setting)(config).text();
            text(self) != text(&defaults)
        };
        let mut names: Vec<&str> = inert().filter(asks).map(|row| row.name).collect();
        if inert().next().is_some() && !named.contains(&"save") {
            names.push("save (by default)");
        }
        names
    }
}
