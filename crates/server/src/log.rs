//! Where the server's own log goes.

use std::fs::OpenOptions;

use anyhow::Context;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{Config, LogLevel};

/// Starts logging as `loglevel` and `logfile` say. Errors: the file cannot be opened.
pub(crate) fn start(config: &Config) -> anyhow::Result<()> {
    let level = match config.loglevel.load() {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_target(false);
    let path = config.logfile.load();
    if path.is_empty() {
        // Another subscriber is there already only when several servers run in one process.
        let _ = subscriber.try_init();
        return Ok(());
    }
    let path = String::from_utf8_lossy(&path).into_owned();
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot open the log file {path}"))?;
    let _ = subscriber.with_ansi(false).with_writer(std::sync::Mutex::new(file)).try_init();
    Ok(())
}
