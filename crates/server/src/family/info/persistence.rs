//! INFO persistence: snapshots. There is no append-only file.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::state::clock::unix_ms;
use crate::state::saves::{Loading, Purpose};
use crate::state::server::Server;

use super::text::{Text, ratio};

/// INFO persistence.
pub(super) fn persistence(server: &Server, text: &mut Text) {
    let saves = &server.saves;
    text.field("loading", u8::from(saves.is_loading()));
    text.fields(&["async_loading", "current_cow_peak", "current_cow_size"], 0);
    text.field("current_cow_size_age", 0);
    text.field("current_fork_perc", "0.00");
    let snapshot = saves.snapshot();
    let saved = snapshot.as_ref().map_or(0, |snapshot| snapshot.keys.load(Ordering::Relaxed));
    let total = snapshot.as_ref().map_or(0, |snapshot| snapshot.keys_at_first);
    text.field("current_save_keys_processed", saved);
    text.field("current_save_keys_total", total);
    text.field("rdb_changes_since_last_save", saves.unsaved(server.changes()));
    let in_background = saves.purpose() == Some(Purpose::Background);
    text.field("rdb_bgsave_in_progress", u8::from(in_background));
    text.field("rdb_last_save_time", saves.last_unix());
    text.field("rdb_last_bgsave_status", if saves.has_failed() { "err" } else { "ok" });
    text.field("rdb_last_bgsave_time_sec", saves.last_seconds());
    text.field("rdb_current_bgsave_time_sec", saves.current_seconds());
    text.field("rdb_saves", saves.count());
    text.field("rdb_last_cow_size", 0);
    text.field("rdb_last_load_keys_expired", saves.loaded_expired.load(Ordering::Relaxed));
    text.field("rdb_last_load_keys_loaded", saves.loaded_keys.load(Ordering::Relaxed));
    text.fields(&["aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled"], 0);
    text.fields(&["aof_last_rewrite_time_sec", "aof_current_rewrite_time_sec"], -1);
    text.field("aof_last_bgrewrite_status", "ok");
    text.fields(&["aof_rewrites", "aof_rewrites_consecutive_failures"], 0);
    text.field("aof_last_write_status", "ok");
    text.fields(&["aof_last_cow_size", "module_fork_in_progress"], 0);
    text.field("module_fork_last_cow_size", 0);
    if saves.is_loading() {
        loading(&saves.loading, text);
    }
}

/// How far a file has been loaded.
fn loading(loading: &Loading, text: &mut Text) {
    let figure = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    let (began, bytes) = (figure(&loading.began_unix), figure(&loading.bytes));
    let total = figure(&loading.total_bytes).max(bytes);
    let seconds = (unix_ms() / 1_000).saturating_sub(began);
    // Redis, too, says a second as long as it does not know better.
    let rest = match seconds {
        0 => 1,
        seconds => u128::from(seconds) * u128::from(total - bytes) / (u128::from(bytes) + 1),
    };
    text.field("loading_start_time", began);
    text.field("loading_total_bytes", total);
    text.field("loading_rdb_used_mem", figure(&loading.used_bytes));
    text.field("loading_loaded_bytes", bytes);
    text.field("loading_loaded_perc", format_args!("{:.2}", 100.0 * ratio(bytes, total)));
    text.field("loading_eta_seconds", rest);
}
