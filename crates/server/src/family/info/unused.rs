//! INFO persistence and replication: what a Redis that neither saves nor replicates says, for
//! there are no snapshots, no append-only file and no replicas.

use crate::state::server::Server;

use super::text::Text;

/// An id that no replication has had.
const NO_REPLICATION_ID: &str = "0000000000000000000000000000000000000000";
/// Redis's default size of a backlog that is not there.
const BACKLOG_BYTES: u64 = 1 << 20;

/// INFO persistence.
pub(super) fn persistence(server: &Server, text: &mut Text) {
    text.fields(&["loading", "async_loading", "current_cow_peak", "current_cow_size"], 0);
    text.field("current_cow_size_age", 0);
    text.field("current_fork_perc", "0.00");
    text.fields(&["current_save_keys_processed", "current_save_keys_total"], 0);
    text.field("rdb_changes_since_last_save", server.sum(|stats| stats.changes.get()));
    text.field("rdb_bgsave_in_progress", 0);
    text.field("rdb_last_save_time", server.started_unix);
    text.field("rdb_last_bgsave_status", "ok");
    text.fields(&["rdb_last_bgsave_time_sec", "rdb_current_bgsave_time_sec"], -1);
    text.fields(&["rdb_saves", "rdb_last_cow_size"], 0);
    text.fields(&["rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"], 0);
    text.fields(&["aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled"], 0);
    text.fields(&["aof_last_rewrite_time_sec", "aof_current_rewrite_time_sec"], -1);
    text.field("aof_last_bgrewrite_status", "ok");
    text.fields(&["aof_rewrites", "aof_rewrites_consecutive_failures"], 0);
    text.field("aof_last_write_status", "ok");
    text.fields(&["aof_last_cow_size", "module_fork_in_progress"], 0);
    text.field("module_fork_last_cow_size", 0);
}

/// INFO replication.
pub(super) fn replication(server: &Server, text: &mut Text) {
    text.field("role", "master");
    text.field("connected_slaves", 0);
    text.field("master_failover_state", "no-failover");
    text.field("master_replid", &server.run_id);
    text.field("master_replid2", NO_REPLICATION_ID);
    text.field("master_repl_offset", 0);
    text.field("second_repl_offset", -1);
    text.field("repl_backlog_active", 0);
    text.field("repl_backlog_size", BACKLOG_BYTES);
    text.fields(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"], 0);
}
