//! The journal of `appendonly`: it is switched on and off, and begun anew with a checkpoint.
//!
//! It is on from the moment of a checkpoint on, with every slot held. What was written while it was off is in no record,
//! so a gap stands in front: who reads the journal before that checkpoint is there stops at the gap.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flash::{Journal, JournalOptions, Recovery, SyncPolicy, TornTail};

use crate::config::{AppendFsync, ApplyError, Config, OptionRow};
use crate::session::load_room::make_room_for_load;
use crate::session::save::{forget_references, take_checkpoint};
use crate::state::journaling::Growth;
use crate::state::server::Server;

/// A record of no command, which says that there are changes of which there is none.
pub(crate) const GAP: &[u8] = &[0];

/// Where the journal is.
pub(crate) fn journal_folder(config: &Config) -> PathBuf {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    path(&config.dir.load()).join(path(&config.appenddirname.load()))
}

/// The same, and how it is kept.
pub(crate) fn journal_options(server: &Server) -> JournalOptions {
    JournalOptions {
        folder: journal_folder(&server.config),
        sync: sync_policy(server),
        torn_tail: match server.config.aof_load_truncated.load() {
            true => TornTail::Cut,
            false => TornTail::Refuse,
        },
    }
}

fn sync_policy(server: &Server) -> SyncPolicy {
    match server.config.appendfsync.load() {
        AppendFsync::Always => SyncPolicy::Always,
        AppendFsync::Everysec => SyncPolicy::EverySecond,
        AppendFsync::No => SyncPolicy::Never,
    }
}

/// Has changes journaled from the checkpoint on that begins now. A journal that is cut stays so: the checkpoint may
/// come to nothing. Every slot is held.
pub(super) fn begin_logging(server: &Server, journal: &Journal) {
    if !server.listening.is_logged() {
        journal.append(&[GAP]);
        set_logging(server, true);
    }
}

/// Lets writes run again if the journal was cut: a checkpoint is in place, which has what was loaded. Nothing is loaded
/// while one is taken.
pub(super) fn end_cut(server: &Server) {
    let all = server.tier.keyspace.lock_all();
    server.journaling.set_cut(false);
    drop(all);
}

/// Has nothing more journaled until a checkpoint begins, and writes refused until it is in place: data is about to be
/// loaded, which is in no record.
pub(super) fn cut_logging(server: &Server) {
    let Some(journal) = server.journaling.journal() else { return };
    let all = server.tier.keyspace.lock_all();
    if server.listening.is_logged() {
        journal.append(&[GAP]);
        server.listening.set_logged(false);
        server.journaling.set_cut(true);
    }
    drop(all);
}

/// Has changes journaled behind those that were loaded, unless keys were evicted since there were `evicted_before`:
/// that they have gone is in no record. Whether they are.
pub(super) fn resume_logging(server: &Server, evicted_before: u64) -> bool {
    let all = server.tier.keyspace.lock_all();
    // Evicted keys are counted with their slots held, so none goes between this look and the switch.
    let is_whole = server.tier.counters.evicted.load(Ordering::Relaxed) == evicted_before;
    if is_whole {
        set_logging(server, true);
    }
    drop(all);
    is_whole
}

/// Has no more changes journaled.
fn end_logging(server: &Server) {
    let all = server.tier.keyspace.lock_all();
    set_logging(server, false);
    server.journaling.set_cut(false);
    drop(all);
}

/// Every slot is held.
fn set_logging(server: &Server, is_on: bool) {
    server.listening.set_logged(is_on);
    server.pause.set_journaled(is_on);
}

/// Whether the journal is on, though it may take nothing until there is a checkpoint.
pub(crate) fn is_begun(server: &Server) -> bool {
    server.listening.is_logged() || server.journaling.is_cut()
}

/// Acts on options of the journal that CONFIG SET has stored, on a thread that may wait.
///
/// Errors: the journal cannot be switched on; the caller puts the old values back and applies again.
pub(crate) fn apply(server: &Arc<Server>, rows: &[&'static OptionRow]) -> Result<(), ApplyError> {
    let is_on = server.config.appendonly.load();
    let has = |name: &str| rows.iter().any(|row| row.name == name);
    let is_changed = has("appendonly");
    if is_on && (has("dir") || is_changed) {
        check_folder(server)?;
    }
    if is_changed && server.saves.is_loading() {
        let reason = "cannot be changed while the data is loaded".to_owned();
        return Err(ApplyError { name: "appendonly", reason });
    }
    if is_changed && is_on != is_begun(server) {
        match is_on {
            true => {
                switch_on(server).map_err(|reason| ApplyError { name: "appendonly", reason })?
            }
            false => switch_off(server),
        }
    }
    apply_sync(server);
    Ok(())
}

/// Whether the journal is where the options say. It stays where it was opened until the process ends, and a start
/// that looks elsewhere would find nothing. Errors: it is not, or is about to be opened.
fn check_folder(server: &Server) -> Result<(), ApplyError> {
    let refused = |reason: String| Err(ApplyError { name: "dir", reason });
    let Some(journal) = server.journaling.journal() else {
        return match server.saves.is_loading() {
            true => refused("cannot be changed while the data is loaded".to_owned()),
            false => Ok(()),
        };
    };
    let is_there =
        |wanted: &Path| Some(journal.folder().canonicalize().ok()? == wanted.canonicalize().ok()?);
    let wanted = journal_folder(&server.config);
    match wanted == journal.folder() || is_there(&wanted).unwrap_or(false) {
        true => Ok(()),
        false => refused(format!(
            "the journal stays in {} while the server runs; to move it, stop the server, move the folder and start with \
             the new dir",
            journal.folder().display()
        )),
    }
}

/// Has the journal sync as the options say.
pub(super) fn apply_sync(server: &Server) {
    let policy = sync_policy(server);
    let waits = server.listening.is_logged() && policy == SyncPolicy::Always;
    if let Some(journal) = server.journaling.journal() {
        journal.set_sync(policy);
        if !waits {
            // Replies that wait for a sync, and would ask for none now.
            server.journaling.set_waits_for_sync(false);
            journal.sync_soon();
        }
    }
    server.journaling.set_waits_for_sync(waits);
}

/// Begins to journal: from a checkpoint on.
fn switch_on(server: &Arc<Server>) -> Result<(), String> {
    if server.journaling.journal().is_none() {
        // What it has is of no interest: a checkpoint follows.
        let journal = Recovery::open(journal_options(server)).and_then(Recovery::start_anew);
        let journal = journal.map_err(|error| {
            tracing::error!(%error, "cannot open the journal");
            error.for_client()
        })?;
        server.journaling.set_journal(journal);
    }
    if take_checkpoint(server) {
        return Ok(());
    }
    end_logging(server);
    forget_references(server);
    Err("the data could not be saved to begin with: the log says why".to_owned())
}

fn switch_off(server: &Server) {
    end_logging(server);
    if let Some(journal) = server.journaling.journal() {
        journal.sync_soon();
    }
    // What it refers to is written over from now on.
    forget_references(server);
}

/// Whether the journal may be rewritten at all: not before what is there is whole.
fn may_rewrite(server: &Server) -> bool {
    is_begun(server) && !server.saves.is_loading() && !server.saves.is_half_loaded()
}

/// Says whether what lacks room on flash waits for a checkpoint: for one that comes, and not behind one that has failed. A load
/// has room made without.
pub(super) fn tell_of_room_to_come(server: &Server) {
    match server.saves.is_loading() {
        true => make_room_for_load(server),
        false => {
            let comes = may_rewrite(server) && !server.journaling.has_failed();
            server.tier.set_checkpoint_comes(comes);
        }
    }
}

/// Bytes of the values that a checkpoint would refer to.
fn referred_bytes(server: &Server) -> u64 {
    let counters = &server.tier.counters;
    let bytes = [&counters.cold_bytes, &counters.clean_bytes];
    match server.config.tier_persistence.load() {
        true => bytes.map(|bytes| bytes.load(Ordering::Relaxed).max(0) as u64).iter().sum(),
        false => 0,
    }
}

/// Whether the journal is to be rewritten now: it was scheduled, or the journal has grown enough, or that makes room on flash.
/// Whoever asks does it.
pub(super) fn take_due_rewrite(server: &Server) -> bool {
    let (journaling, config) = (&server.journaling, &server.config);
    let now = server.tier.clock().unix_ms() / 1_000;
    if !may_rewrite(server) || server.saves.purpose().is_some() {
        return false;
    }
    // Whoever loads takes a checkpoint.
    if journaling.is_cut() && !server.pause.is_loading() && journaling.may_retry(now) {
        return true;
    }
    let growth = Growth {
        current_bytes: journaling.current_bytes(),
        referred_bytes: referred_bytes(server),
        percent: config.auto_aof_rewrite_percentage.load() as u64,
        bytes_min: config.auto_aof_rewrite_min_size.load(),
    };
    let is_due = journaling.is_due(&growth, now);
    let makes_room =
        !is_due && journaling.may_retry_for_room(now) && server.tier.take_wish_for_checkpoint();
    if is_due {
        tracing::info!("Starting automatic rewriting of AOF");
    } else if makes_room {
        tracing::info!("Starting automatic rewriting of AOF: flash is short of free segments");
    }
    let gives_up = journaling.may_retry_for_room(now) && server.tier.is_flash_held_up();
    is_due || makes_room || gives_up || journaling.is_scheduled.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use flash::Position;
    use tier::{Budget, Environment, Tier};

    use super::*;
    use crate::session::save::Begun;
    use crate::state::registry::tests::KEY_COMMANDS;
    use crate::state::saves::Purpose;

    fn server(config: Config) -> Arc<Server> {
        let budget = Budget::new(0).expect("resident memory can be read");
        let tier = Tier::new(Arc::default(), None, Environment::of_machine(None), budget, 1);
        Arc::new(Server::new(config, &KEY_COMMANDS, Arc::new(tier)))
    }

    /// One that is evicted behind the last record is in none.
    #[test]
    fn what_was_loaded_without_all_its_keys_is_not_gone_on_from() {
        let server = server(Config::default());
        for (evicted_since, is_resumed) in [(1, false), (0, true)] {
            let evicted = server.tier.counters.evicted.load(Ordering::Relaxed);
            server.tier.counters.evicted.fetch_add(evicted_since, Ordering::Relaxed);
            assert_eq!(resume_logging(&server, evicted), is_resumed);
            assert_eq!(server.listening.is_logged(), is_resumed);
        }
    }

    /// A directory that goes with this.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let name = format!("kelvin-journal-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).expect("a directory");
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            // What is left of it is nobody's.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// One on a directory, with a journal that was opened.
    fn server_on(directory: &Directory, appendonly: &str) -> Arc<Server> {
        let config = Config::default();
        let dir = directory.0.to_str().expect("a path in UTF-8");
        let words = ["--dir", dir, "--appendonly", appendonly];
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        config.load_arguments(&words).expect("options that there are");
        let server = server(config);
        let journal = Recovery::open(journal_options(&server)).and_then(Recovery::start_anew);
        server.journaling.set_journal(journal.expect("it opens"));
        server
    }

    #[test]
    fn a_checkpoint_switches_the_journal_on_where_the_option_says_so() {
        for (option, is_on) in [("no", false), ("yes", true)] {
            let directory = Directory::new(option);
            let server = server_on(&directory, option);
            assert_eq!(take_checkpoint(&server), is_on);
            assert_eq!(server.listening.is_logged(), is_on);
            server.journaling.journal().expect("it is there").close().expect("it closes");
        }
    }

    /// What is written sooner stands behind a gap, at which a start would stop.
    #[test]
    fn a_journal_is_cut_until_a_checkpoint_is_in_place() {
        let directory = Directory::new("cut");
        let server = server_on(&directory, "yes");
        let journal = server.journaling.journal().expect("it is there");
        let told = || (server.listening.is_logged(), server.journaling.is_cut());
        assert!(take_checkpoint(&server));
        assert_eq!(told(), (true, false));
        cut_logging(&server);
        assert_eq!(told(), (false, true));
        // A checkpoint has its moment, and cannot be put in place: directories are there, wherever that comes.
        let appended = journal.appended().0;
        let name = |bytes| Journal::snapshot_name(Position(appended + bytes));
        let places: Vec<PathBuf> = (0..1_000).map(|at| journal.folder().join(name(at))).collect();
        places.iter().for_each(|place| std::fs::create_dir(place).expect("a directory"));
        assert!(!take_checkpoint(&server));
        assert_eq!(told(), (true, true));
        places.iter().for_each(|place| std::fs::remove_dir(place).expect("it is there"));
        assert!(take_checkpoint(&server));
        assert_eq!(told(), (true, false));
        journal.close().expect("it closes");
    }

    /// Where there is no thread for it, for instance.
    #[test]
    fn a_checkpoint_that_did_not_come_to_run_is_not_tried_again_at_once() {
        let server = server(Config::default());
        set_logging(&server, true);
        server.journaling.is_scheduled.store(true, Ordering::Relaxed);
        assert!(take_due_rewrite(&server));
        assert!(server.saves.begin(Purpose::Checkpoint));
        drop(Begun::new(&server, Purpose::Checkpoint));
        assert!(!take_due_rewrite(&server));
        assert_eq!(server.journaling.rewrites.lock().failures_in_a_row, 1);
    }
}
