//! Work that a command of the session wants done before it answers, while others are served.
//!
//! A handler is synchronous. One that needs something that takes long leaves an errand with its
//! session and returns; the connection carries it out and runs the request again, and the handler
//! then finds what came of it. Such commands are not allowed in transactions, which cannot wait.

use std::rc::Rc;
use std::sync::Arc;

use tier::Demoted;
use tokio::sync::oneshot;

use crate::config::ConfigError;
use crate::session::digest::{DigestOf, Digests, others};
use crate::session::last_checkpoint::take_last_checkpoint;
use crate::session::load::Load;
use crate::session::save::{save_and_shut_down, start_save};
use crate::state::saves::Purpose;
use crate::state::server::Server;
use crate::state::worker::Worker;

/// A change of options. It may wait for drives, so it has a thread of its own.
pub(crate) type Change = Box<dyn FnOnce(&Arc<Server>) -> Result<(), ConfigError> + Send>;

/// What is to be done, or what came of it.
#[derive(Default)]
pub(crate) enum Errand {
    /// Nothing.
    #[default]
    None,
    /// Demote every value that can be.
    DemoteAll,
    /// Wait until the drive has taken a write.
    DeviceTurn,
    /// Change options.
    Change(Change),
    /// What demoting everything came to.
    Demoted(Demoted),
    /// Read values and work out their digests.
    Digest(DigestOf),
    /// What the digests are.
    Digested(Digests),
    /// Take a snapshot.
    Save(Purpose),
    /// Whether there is its file.
    Saved(bool),
    /// Take a checkpoint of a long journal, before the server ends.
    LastCheckpoint,
    /// It was, as far as may be.
    LastCheckpointTaken,
    /// Read the snapshot's file into the databases.
    Load(Load),
    /// What came of that.
    Loaded(Result<(), String>),
    /// What changing options came to.
    Changed(Result<(), ConfigError>),
}

impl Errand {
    /// Whether it is still to be done.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(
            self,
            Errand::DemoteAll
                | Errand::DeviceTurn
                | Errand::Digest(_)
                | Errand::Change(_)
                | Errand::Save(_)
                | Errand::LastCheckpoint
                | Errand::Load(_)
        )
    }

    /// Does it.
    pub(crate) async fn run(self, worker: &Rc<Worker>) -> Errand {
        match self {
            Errand::DemoteAll => Errand::Demoted(worker.tier.demote_all(others).await),
            Errand::DeviceTurn => {
                worker.tier.device_turn().await;
                Errand::None
            }
            Errand::Digest(what) => Errand::Digested(what.run(worker).await),
            Errand::Change(change) => Errand::Changed(run_change(worker, change).await),
            Errand::LastCheckpoint => {
                let turn = async || worker.upkeep_tick.notified().await;
                take_last_checkpoint(&worker.server, &turn).await;
                Errand::LastCheckpointTaken
            }
            Errand::Save(Purpose::Shutdown) => {
                let turn = async || worker.upkeep_tick.notified().await;
                Errand::Saved(save_and_shut_down(&worker.server, turn).await.is_ok())
            }
            Errand::Save(purpose) => {
                Errand::Saved(matches!(save(worker, purpose).await, Saving::Done))
            }
            Errand::Load(load) => Errand::Loaded(load.run(worker).await),
            done => done,
        }
    }

    /// Takes it out.
    pub(crate) fn take(&mut self) -> Errand {
        std::mem::take(self)
    }
}

/// What came of a snapshot.
enum Saving {
    /// There is its file.
    Done,
    Failed,
    /// It could not begin, since another is under way, for instance.
    NotBegun,
}

/// Takes a snapshot and waits for it.
async fn save(worker: &Worker, purpose: Purpose) -> Saving {
    let (sender, receiver) = oneshot::channel();
    let done = move |is_saved| {
        // A client that has gone does not wait for it any more.
        let _ = sender.send(is_saved);
    };
    match start_save(&worker.server, purpose, done) {
        Ok(true) => match receiver.await.unwrap_or(false) {
            true => Saving::Done,
            false => Saving::Failed,
        },
        Ok(false) => Saving::NotBegun,
        Err(error) => {
            tracing::error!(%error, "cannot start a thread to save");
            Saving::Failed
        }
    }
}

/// The same, once those that are under way have ended. Whether there is its file.
pub(super) async fn save_in_turn(worker: &Worker, purpose: Purpose) -> bool {
    let server = &worker.server;
    loop {
        match save(worker, purpose).await {
            Saving::Done => return true,
            Saving::Failed => return false,
            Saving::NotBegun => {}
        }
        let is_half_loaded = server.saves.is_half_loaded() && purpose != Purpose::Save;
        if server.is_stopping() || is_half_loaded {
            return false;
        }
        worker.upkeep_tick.notified().await;
    }
}

async fn run_change(worker: &Worker, change: Change) -> Result<(), ConfigError> {
    let (sender, receiver) = oneshot::channel();
    let server = worker.server.clone();
    let run = move || {
        // A client that has gone does not wait for it any more.
        let _ = sender.send(change(&server));
    };
    if let Err(error) = worker.server.threads.start("change", Box::new(run)) {
        return Err(ConfigError::NoThread(error.to_string()));
    }
    receiver.await.unwrap_or_else(|_| Err(ConfigError::NoThread("it has ended".to_owned())))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tier::{Budget, Environment, Tier};

    use super::*;
    use crate::config::Config;
    use crate::state::registry::tests::KEY_COMMANDS;

    /// A worker whose snapshots go to a directory.
    fn worker(dir: &str) -> Rc<Worker> {
        let budget = Budget::new(0).expect("resident memory can be read");
        let tier = Tier::new(Arc::default(), None, Environment::of_machine(None), budget, 1);
        let config = Config::default();
        let words = [b"--dir".to_vec(), dir.as_bytes().to_vec()];
        config.load_arguments(&words).expect("options that there are");
        let server = Server::new(config, &KEY_COMMANDS, Arc::new(tier));
        Worker::new(Arc::new(server), 0).expect("a worker without flash")
    }

    /// One that fails is not taken again because another is under way by then, nor one that was never begun for a
    /// failure.
    #[test]
    fn one_that_has_failed_is_told_from_one_that_has_yet_to_begin() {
        let path = std::env::temp_dir().join(format!("kelvin-errand-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        let worker = worker(path.to_str().expect("a path in UTF-8"));
        let saves = &worker.server.saves;
        let cx = &mut Context::from_waker(Waker::noop());
        for (has_directory, is_saved) in [(true, true), (false, false)] {
            if !has_directory {
                std::fs::remove_dir_all(&path).expect("it is there");
            }
            assert!(saves.begin(Purpose::Background));
            let mut save = pin!(save_in_turn(&worker, Purpose::Save));
            assert!(save.as_mut().poll(cx).is_pending());
            saves.end(None, false);
            worker.upkeep_tick.notify_waiters();
            let mut polled = save.as_mut().poll(cx);
            while saves.purpose().is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(saves.begin(Purpose::Background));
            for _ in 0..10_000 {
                if polled.is_pending() {
                    std::thread::sleep(Duration::from_millis(1));
                    polled = save.as_mut().poll(cx);
                }
            }
            assert_eq!(polled, Poll::Ready(is_saved));
            saves.end(None, false);
        }
    }
}
