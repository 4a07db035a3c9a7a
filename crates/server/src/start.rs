//! From the command line to a running server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use flash::JournalError;
use keyspace::{ADDRESS_BITS_MAX, Heap, Keyspace, can_hold_address};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;
use tier::{Budget, Environment, Tier};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::config::{Config, LoadError};
use crate::execution::effects::hear_keyspace;
use crate::family::REGISTRY;
use crate::network::listener::{Accepted, Listeners};
use crate::network::supervisor::Announcement;
use crate::session::flash::{note_options, open_flash};
use crate::session::journal::journal_folder;
use crate::session::last_checkpoint::take_last_checkpoint;
use crate::session::load::{NotLoaded, begin_at_start};
use crate::session::save::{save_and_shut_down, save_points, snapshot_path};
use crate::state::server::{KELVIN_VERSION, Server};

/// Accepted connections on their way to one worker.
const ACCEPTED_MAX: usize = 1024;
/// File descriptors besides those of clients.
const OWN_FILES: u64 = 128;
/// How long the end waits for a snapshot that is called off.
const SAVE_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Why the server does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The options cannot be read.
    #[error(transparent)]
    Options(#[from] LoadError),
    /// The table of keys cannot hold the addresses that the process is given.
    #[error(
        "this machine gives a process addresses like {0:#x}, and Kelvin keeps {ADDRESS_BITS_MAX} \
         bits of an address: it needs a kernel with a smaller address space for processes"
    )]
    Addresses(usize),
}

/// Runs a server with the arguments of `kelvin server` until it is told to stop. `heap` is the
/// allocator of the program, if it can tell how full its pages are.
///
/// Errors: the options make no sense, the flash cannot be opened, an address is taken: each says
/// what to do.
pub fn run(arguments: &[Vec<u8>], heap: Option<Box<dyn Heap>>) -> anyhow::Result<()> {
    let config = Config::default();
    config.load_arguments(arguments).map_err(StartError::Options)?;
    crate::state::log::start(&config)?;
    raise_file_limit(&config);
    check_addresses()?;
    let budget = open_budget(&config)?;
    let workers = worker_count(&config);
    let engine = open_flash(&config, workers)?;
    let environment = Environment::of_machine(heap);
    let tier = Tier::new(Arc::new(Keyspace::default()), engine, environment, budget, workers);
    let tier = Arc::new(tier);
    let server = Arc::new(Server::new(config, &REGISTRY, tier));
    hear_keyspace(&server);
    crate::state::settings::apply_all(&server);
    note_options(&server);
    begin_at_start(&server);
    serve(&server, workers)
}

fn serve(server: &Arc<Server>, workers: usize) -> anyhow::Result<()> {
    let mut senders = Vec::new();
    let mut threads = Vec::new();
    let (loaded_sender, loaded) = oneshot::channel();
    let mut loaded_sender = Some(loaded_sender);
    for index in 0..workers {
        let (sender, receiver) = mpsc::channel(ACCEPTED_MAX);
        senders.push(sender);
        let (server, loaded) = (server.clone(), loaded_sender.take());
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                let result =
                    crate::network::event_loop::run(server.clone(), index, receiver, loaded);
                if let Err(error) = &result {
                    tracing::error!(%error, "a worker cannot run; stopping");
                    server.shut_down();
                }
                result
            })
            .context("cannot start a worker thread")?;
        threads.push(thread);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make the listener's runtime")?;
    let served = runtime.block_on(load_and_listen(server, senders, loaded));
    server.shut_down();
    let mut ended = Ok(());
    for thread in threads {
        let result = thread.join().unwrap_or_else(|_| Err(anyhow!("a worker thread panicked")));
        ended = ended.and(result);
    }
    // A snapshot that is under way sees that it is called off, and removes its file; so does who brings values back.
    let start = Instant::now();
    let is_busy = || server.saves.purpose().is_some() || server.flash_changes.drain().is_some();
    while is_busy() && start.elapsed() < SAVE_ENDS_WITHIN {
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(journal) = server.journaling.journal() {
        journal.close().context("the last writes are not all in the journal")?;
    }
    // Not before: what the journal has in memory is written whatever else went wrong.
    ended?;
    served
}

/// Listens, and serves all that clients ask for once the snapshot's file is loaded.
async fn load_and_listen(
    server: &Arc<Server>,
    workers: Vec<mpsc::Sender<Accepted>>,
    loaded: oneshot::Receiver<Result<(), NotLoaded>>,
) -> anyhow::Result<()> {
    tokio::spawn(crate::network::measure::measure(server.clone()));
    let mut signals = Signals::watch()?;
    Listeners::bind(server)?.accept(server, &workers);
    let served = serve_loaded(server, &mut signals, loaded).await;
    let path = server.config.unixsocket.load();
    if !path.is_empty() {
        let path = String::from_utf8_lossy(&path).into_owned();
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(%error, path, "the socket was gone already");
        }
    }
    served
}

async fn serve_loaded(
    server: &Arc<Server>,
    signals: &mut Signals,
    loaded: oneshot::Receiver<Result<(), NotLoaded>>,
) -> anyhow::Result<()> {
    let port = server.tcp_port.load(Ordering::Relaxed);
    tracing::info!(port, "listening");
    tokio::select! {
        biased;
        () = server.stopped() => return Ok(()),
        loaded = loaded => {
            let loaded = loaded.context("the worker that loads has ended")?;
            loaded.map_err(|error| not_loaded(server, error))?;
        }
        name = signals.next() => {
            tracing::info!("{name}: stopping");
            return Ok(());
        }
    }
    tracing::info!(
        version = KELVIN_VERSION,
        pid = std::process::id(),
        port,
        workers = server.tier.workers,
        "ready to accept connections"
    );
    let _announcement = Announcement::make(&server.config);
    loop {
        let name = tokio::select! {
            () = server.stopped() => return Ok(()),
            name = signals.next() => name,
        };
        tokio::select! {
            () = server.stopped() => return Ok(()),
            may_stop = save_for_signal(server, name) => if may_stop {
                tracing::info!("{name}: stopping");
                return Ok(());
            }
        }
    }
}

/// Says what could not be loaded, and what to do.
fn not_loaded(server: &Server, error: NotLoaded) -> anyhow::Error {
    let (dir, name) = snapshot_path(&server.config);
    let path = if error.is_of_journal() { journal_folder(&server.config) } else { dir.join(name) };
    let cause = match &error {
        NotLoaded::Checkpoint { reason, .. } => reason,
        error => error,
    };
    let way_out = match cause {
        // What is there can be had.
        NotLoaded::TooLarge { .. } | NotLoaded::NotSaved => "",
        NotLoaded::Journal(JournalError::InUse { .. }) => "",
        NotLoaded::Key { .. } | NotLoaded::Record { .. } if server.tier.has_flash() => {
            "; if memory is lacking, start with a larger maxmemory or flash-size; if a value cannot be read, kelvin check \
             with the same options tells which are lost"
        }
        NotLoaded::Key { .. } | NotLoaded::Record { .. } => {
            "; if memory is lacking, start with a larger maxmemory"
        }
        NotLoaded::Journal(JournalError::Damaged { .. } | JournalError::Torn { .. })
        | NotLoaded::File(_)
        | NotLoaded::Flash(_) => {
            "; kelvin check with the same options tells what is damaged; to start with empty databases, move it away"
        }
        _ => "; move it away to start with empty databases",
    };
    let what = format!("cannot load {}{way_out}", path.display());
    anyhow::Error::new(error).context(what)
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Watched for, so that a file that may not grow is an error of a write, and not the end of the process.
    _file_too_large: Signal,
}

impl Signals {
    fn watch() -> anyhow::Result<Signals> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
        let terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
        let file_too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
            .context("cannot watch for SIGXFSZ")?;
        Ok(Signals { interrupt, terminate, _file_too_large: file_too_large })
    }

    /// The name of the next.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Takes a snapshot before a signal ends the server, if the options say so, or it has save points. False: it failed,
/// and the server goes on.
async fn save_for_signal(server: &Arc<Server>, name: &str) -> bool {
    let words = match name {
        "SIGINT" => server.config.shutdown_on_sigint.load(),
        _ => server.config.shutdown_on_sigterm.load(),
    };
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let turn = async || tokio::time::sleep(Duration::from_millis(5)).await;
    if !has("now") && !has("nosave") {
        take_last_checkpoint(server, &turn).await;
    }
    if has("nosave") || !has("save") && save_points(server).is_empty() {
        return true;
    }
    if save_and_shut_down(server, turn).await.is_ok() {
        return true;
    }
    match has("force") {
        true => tracing::warn!("Error trying to save the DB, stopping all the same"),
        false => tracing::error!("Error trying to save the DB, can't exit."),
    }
    has("force")
}

fn worker_count(config: &Config) -> usize {
    match config.workers.load() {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        workers => workers as usize,
    }
}

/// The stack and the heap begin near the end of the address space and grow away from it, so what is
/// there now is as high as any address to come.
fn check_addresses() -> Result<(), StartError> {
    let (on_stack, on_heap) = (0u8, Box::new(0u8));
    for address in [(&raw const on_stack).addr(), (&raw const *on_heap).addr()] {
        if !can_hold_address(address) {
            return Err(StartError::Addresses(address));
        }
    }
    Ok(())
}

fn open_budget(config: &Config) -> anyhow::Result<Budget> {
    Budget::new(config.maxmemory.load()).context("cannot read /proc/self/statm")
}

/// Room for `maxclients` sockets, as far as the system allows.
fn raise_file_limit(config: &Config) {
    let wanted = config.maxclients.load() as u64 + OWN_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let maximum = limit.maximum.map_or(wanted, |maximum| maximum.max(wanted));
        let raised = Rlimit { current: Some(wanted), maximum: Some(maximum) };
        let capped = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_err()
            && setrlimit(Resource::Nofile, capped).is_err()
        {
            tracing::warn!(wanted, "cannot raise the limit on open files");
        }
    }
}
