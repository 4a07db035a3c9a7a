//! The servers of a run: one at a time, started by the suite or running already.
//!
//! Invariant: a server of ours, and its flash, goes when the next one comes or the suite ends.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::child::Process;
use crate::cores::Cores;
use crate::data_set::Tiers;
use crate::drive::Drive;
use crate::error::SuiteError;
use crate::info::{Client, Info};
use crate::sampler::Target;

/// A server reserves its flash before it listens.
const START_SECONDS_MAX: u64 = 60;
/// After this a server is killed: its data is not to last.
const END_SECONDS_MAX: u64 = 10;
const LOOK: Duration = Duration::from_millis(20);
/// Of its log, when it does not start.
const LOG_LINES: usize = 5;

/// Where servers come from.
#[derive(Debug)]
pub enum Source {
    /// Started by the suite.
    Own(Own),
    /// Running at this address, `host:port`.
    Running(String),
}

/// How our own servers are started.
#[derive(Debug)]
pub struct Own {
    /// The program: `kelvin`.
    pub program: PathBuf,
    /// `maxmemory`.
    pub ram_bytes: u64,
    /// `flash-size`.
    pub flash_bytes: u64,
    /// Folder for the flash; made and removed.
    pub flash_folder: PathBuf,
    /// Folder for the logs.
    pub log_folder: PathBuf,
}

/// The server that there is, if any.
pub struct Servers {
    source: Source,
    cores: Option<Cores>,
    drive: Option<Drive>,
    process: Option<Process>,
    address: Option<String>,
    started: usize,
    /// The data set that it has.
    pub holds: Option<&'static str>,
}

impl Servers {
    /// No server yet; `cores` are those of servers that are started.
    pub fn new(source: Source, cores: Option<Cores>, drive: Option<Drive>) -> Servers {
        Servers { source, cores, drive, process: None, address: None, started: 0, holds: None }
    }

    /// Where the server is. Panics: before the first [`Servers::empty`].
    pub fn address(&self) -> &str {
        self.address.as_deref().expect("invariant: a test begins with a server")
    }

    /// What a sampler looks at.
    pub fn target(&self) -> Target {
        Target {
            address: self.address().to_owned(),
            pid: self.process.as_ref().map(Process::id),
            drive: self.drive.clone(),
        }
    }

    /// What INFO says.
    pub fn info(&self) -> Result<Info, SuiteError> {
        Client::connect(self.address())?.info()
    }

    /// Whether a server of ours has ended without being asked.
    pub fn has_died(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_some())
    }

    /// The last that a server of ours said.
    pub fn log_end(&self) -> String {
        match &self.source {
            Source::Own(own) => last_lines(&own.log_path(self.started.saturating_sub(1)), 1),
            Source::Running(_) => String::new(),
        }
    }

    /// A server without data: a new one of ours, or the running one, emptied.
    ///
    /// Errors: it does not start, is not there, or has flash where none is wanted.
    pub fn empty(&mut self, tiers: Tiers) -> Result<(), SuiteError> {
        self.end();
        match &self.source {
            Source::Own(own) => {
                let (process, address) = own.start(tiers, self.cores.as_ref(), self.started)?;
                self.started += 1;
                self.process = Some(process);
                self.address = Some(address);
            }
            Source::Running(address) => {
                self.address = Some(address.clone());
                let mut client = Client::connect(address)?;
                if tiers == Tiers::RamOnly && client.info()?.text("flash_enabled") == Some("1") {
                    return Err(SuiteError::Server(
                        "needs a server without flash: it is run without --server".to_owned(),
                    ));
                }
                client.call(&["FLUSHALL"])?;
            }
        }
        Ok(())
    }

    /// Ends a server of ours.
    pub fn end(&mut self) {
        self.holds = None;
        if let Some(mut process) = self.process.take() {
            process.end(Signal::TERM, Duration::from_secs(END_SECONDS_MAX));
        }
        if let Source::Own(own) = &self.source {
            // It may not have been made.
            let _ = fs::remove_dir_all(&own.flash_folder);
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Own {
    /// The command line, without the program; `port` is 0 for any that is free.
    pub fn arguments(&self, tiers: Tiers, port: &str, workers: usize) -> Vec<String> {
        let mut arguments = vec!["server".to_owned()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--port", port.to_owned());
        option("--bind", Ipv4Addr::LOCALHOST.to_string());
        option("--workers", workers.to_string());
        option("--maxmemory", self.ram_bytes.to_string());
        if tiers == Tiers::RamAndFlash {
            option("--flash-path", self.flash_folder.display().to_string());
            option("--flash-size", self.flash_bytes.to_string());
        }
        arguments
    }

    fn log_path(&self, index: usize) -> PathBuf {
        self.log_folder.join(format!("server-{index}.log"))
    }

    fn start(
        &self,
        tiers: Tiers,
        cores: Option<&Cores>,
        index: usize,
    ) -> Result<(Process, String), SuiteError> {
        fs::create_dir_all(&self.flash_folder).map_err(SuiteError::file(&self.flash_folder))?;
        let workers = cores.map_or(1, Cores::count);
        let mut command = Command::new(&self.program);
        // It chooses its port itself: one that is chosen here may be taken before it is used.
        command.args(self.arguments(tiers, "0", workers)).env("NO_COLOR", "1");
        let log = self.log_path(index);
        let mut process = Process::start(command, cores, &log)?;
        let port = wait_for_port(&mut process, &log)?;
        Ok((process, format!("{}:{port}", Ipv4Addr::LOCALHOST)))
    }
}

/// The port of a server, once its log says that it is ready.
fn wait_for_port(process: &mut Process, log: &Path) -> Result<u16, SuiteError> {
    let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
    loop {
        // The log may not have been made yet.
        if let Some(port) = ready_port(&fs::read_to_string(log).unwrap_or_default()) {
            return Ok(port);
        }
        if process.ended().is_some() || Instant::now() >= deadline {
            let end = last_lines(log, LOG_LINES);
            return Err(SuiteError::Server(format!("the server does not start: {end}")));
        }
        std::thread::sleep(LOOK);
    }
}

/// The end of a log as one line; empty when it cannot be read.
pub fn last_lines(log: &Path, count: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" / ")
}

/// The port that a log names in a whole line about being ready.
fn ready_port(log: &str) -> Option<u16> {
    let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let line = lines.find(|line| line.contains("ready to accept connections"))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("port="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own {
        Own {
            program: PathBuf::from("/nonexistent/kelvin"),
            ram_bytes: 1 << 30,
            flash_bytes: 10 << 30,
            flash_folder: std::env::temp_dir().join(format!("suite-flash-{}", std::process::id())),
            log_folder: std::env::temp_dir(),
        }
    }

    #[test]
    fn a_server_has_flash_only_where_it_is_wanted() {
        let with = own().arguments(Tiers::RamAndFlash, "1", 2).join(" ");
        assert!(with.starts_with("server --port 1 --bind 127.0.0.1 --workers 2"), "{with}");
        assert!(with.contains("--maxmemory 1073741824 --flash-path "), "{with}");
        let without = own().arguments(Tiers::RamOnly, "1", 2).join(" ");
        assert!(!without.contains("flash"), "{without}");
    }

    #[test]
    fn a_server_that_cannot_be_started_or_reached_is_one_line() {
        let mut servers = Servers::new(Source::Own(own()), None, None);
        let error = servers.empty(Tiers::RamAndFlash).expect_err("no such program").to_string();
        assert!(error.contains("/nonexistent/kelvin"), "{error}");
        let mut servers = Servers::new(Source::Running("127.0.0.1:1".to_owned()), None, None);
        let error = servers.empty(Tiers::RamAndFlash).expect_err("nobody there").to_string();
        assert!(error.starts_with("127.0.0.1:1: "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }

    #[test]
    fn the_port_is_in_a_whole_line_of_the_log() {
        let log = "INFO starting port=1\nINFO ready to accept connections port=4242 workers=2\n";
        assert_eq!(ready_port(log), Some(4242));
        assert_eq!(ready_port(log.trim_end()), None);
        assert_eq!(ready_port(""), None);
    }
}
