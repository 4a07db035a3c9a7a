//! INFO replication: what a Redis that does not replicate says.

use crate::state::server::Server;

use super::text::Text;

/// An id that no replication has had.
const NO_REPLICATION_ID: &str = "0000000000000000000000000000000000000000";
/// Redis's default size of a backlog that is not there.
const BACKLOG_BYTES: u64 = 1 << 20;

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
