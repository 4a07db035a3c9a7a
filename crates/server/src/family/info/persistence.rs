//! INFO persistence: snapshots, and the journal.

use std::sync::atomic::{AtomicU64, Ordering};

use flash::Journal;

use crate::session::journal::is_begun;
use crate::state::clock::unix_ms;
use crate::state::saves::{LoadingProgress, Purpose};
use crate::state::server::Server;

use super::text::{Text, ratio};

/// INFO persistence.
pub(super) fn persistence(server: &Server, text: &mut Text) {
    let saves = &server.saves;
    // As long as clients are refused for it, whatever is done meanwhile.
    let is_loading = saves.is_loading() || server.pause.is_loading();
    text.field("loading", u8::from(is_loading));
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
    journal(server, text);
    if saves.is_loading() {
        loading(&saves.loading, text);
    }
}

/// The lines of a load that is under way.
fn loading(progress: &LoadingProgress, text: &mut Text) {
    let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (began, total) = (load(&progress.began_unix), load(&progress.total_bytes));
    let done = load(&progress.done_bytes).min(total);
    text.field("loading_start_time", began);
    text.field("loading_total_bytes", total);
    text.field("loading_rdb_used_mem", load(&progress.used_bytes));
    text.field("loading_loaded_bytes", done);
    text.field("loading_loaded_perc", format_args!("{:.2}", 100.0 * ratio(done, total)));
    let seconds = (unix_ms() / 1_000).saturating_sub(began);
    // As long again for each part as for those that are done.
    let left = (seconds as f64 * ratio(total - done, done)) as u64;
    text.field("loading_eta_seconds", left.max(1));
}

/// The lines of the journal, which INFO calls the append-only file.
fn journal(server: &Server, text: &mut Text) {
    let journaling = &server.journaling;
    let is_on = is_begun(server);
    let is_rewriting = server.saves.purpose() == Some(Purpose::Checkpoint);
    let seconds = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    text.field("aof_enabled", u8::from(is_on));
    text.field("aof_rewrite_in_progress", u8::from(is_rewriting));
    let is_scheduled = journaling.is_scheduled.load(Ordering::Relaxed);
    text.field("aof_rewrite_scheduled", u8::from(is_scheduled));
    {
        let rewrites = journaling.rewrites.lock();
        text.field("aof_last_rewrite_time_sec", seconds(rewrites.last_seconds));
        let now = unix_ms() / 1_000;
        text.field("aof_current_rewrite_time_sec", seconds(rewrites.current_seconds(now)));
        let is_well = rewrites.failures_in_a_row == 0;
        text.field("aof_last_bgrewrite_status", if is_well { "ok" } else { "err" });
        text.field("aof_rewrites", rewrites.count);
        text.field("aof_rewrites_consecutive_failures", rewrites.failures_in_a_row);
    }
    let journal = journaling.journal().filter(|_| is_on);
    let is_failing = journal.is_some_and(Journal::is_failing);
    text.field("aof_last_write_status", if is_failing { "err" } else { "ok" });
    text.fields(&["aof_last_cow_size", "module_fork_in_progress"], 0);
    text.field("module_fork_last_cow_size", 0);
    let Some(journal) = journal else { return };
    let status = journal.status();
    text.field("aof_current_size", journaling.current_bytes());
    text.field("aof_base_size", journaling.rewrites.lock().base_bytes);
    text.field("aof_kept_size", status.kept_bytes);
    text.field("aof_pending_rewrite", 0);
    text.field("aof_buffer_length", status.appended.0 - status.durable.0);
    text.field("aof_pending_bio_fsync", u8::from(status.is_syncing));
    text.field("aof_delayed_fsync", journaling.delayed.load(Ordering::Relaxed));
}
