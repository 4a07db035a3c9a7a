//! Where the server's own log goes.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::OnceLock;

use anyhow::Context;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use crate::config::{Config, LogLevel};

/// The level of the process's log, to be changed while it runs.
static LEVEL: OnceLock<Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts logging as `loglevel` and `logfile` say. Errors: the file cannot be opened.
pub(crate) fn start(config: &Config) -> anyhow::Result<()> {
    let (level, handle) = reload::Layer::new(filter(config.loglevel.load()));
    let registry = tracing_subscriber::registry().with(level);
    let path = config.logfile.load();
    let started = if path.is_empty() {
        let layer = fmt::layer().with_target(false).with_ansi(wants_colours());
        // A log that nobody reads any more is no reason to write, let alone fail, elsewhere.
        registry.with(layer.log_internal_errors(false)).try_init()
    } else {
        let path = String::from_utf8_lossy(&path).into_owned();
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot open the log file {path}"))?;
        let writer = std::sync::Mutex::new(file);
        let layer = fmt::layer().with_target(false).with_ansi(false).with_writer(writer);
        registry.with(layer.log_internal_errors(false)).try_init()
    };
    // Another subscriber is there already only when several servers run in one process.
    if started.is_ok() {
        LEVEL.get_or_init(|| handle);
    }
    Ok(())
}

/// Whether the standard output is a person's terminal, who has not asked for no colours
/// (no-color.org).
fn wants_colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !refused
}

/// Changes how much is logged (CONFIG SET loglevel).
pub(crate) fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        handle
            .reload(filter(level))
            .expect("invariant: the subscriber lives as long as the process");
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
    }
}
