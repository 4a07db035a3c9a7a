//! Processes that end with the suite: servers, loads, the probe.
//!
//! Invariants:
//! 1. A child is in a process group of its own, so that Ctrl-C reaches the suite alone, which then
//!    ends its children one after the other.
//! 2. The kernel kills it when the thread that started it ends in whatever way: children are
//!    started by the main thread.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::cores::{Cores, start_on};
use crate::error::SuiteError;

/// How often a child that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A child.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts it on these cores, or on any, with its output in `log`.
    pub fn start(
        mut command: Command,
        cores: Option<&Cores>,
        log: &Path,
    ) -> Result<Process, SuiteError> {
        let output = File::create(log).map_err(SuiteError::file(log))?;
        let errors = output.try_clone().map_err(SuiteError::file(log))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        tie(&mut command);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = start_on(cores, &mut command)
            .map_err(|error| SuiteError::Load(format!("cannot start {name}: {error}")))?;
        Ok(Process { child })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end, but no longer than `wait` or until `stop` says so.
    pub fn wait(&mut self, wait: Duration, mut stop: impl FnMut() -> bool) -> Option<ExitStatus> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if stop() || Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks it to end by `signal`, waits, and kills it if it does not.
    pub fn end(&mut self, signal: Signal, wait: Duration) -> Option<ExitStatus> {
        if self.ended().is_none() {
            // It may end at this moment by itself: then there is nobody to signal.
            let _ = i32::try_from(self.id())
                .ok()
                .and_then(Pid::from_raw)
                .map(|pid| kill_process(pid, signal));
        }
        self.wait(wait, || false).or_else(|| {
            let _ = self.child.kill();
            self.child.wait().ok()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Makes what will be started a child by both invariants.
pub fn tie(command: &mut Command) {
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes one system call, `prctl`, which is
    // async-signal-safe; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(log: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Process::start(command, None, log).expect("sleep is there")
    }

    #[test]
    fn a_child_ends_when_it_is_told_to_or_dropped() {
        let log = std::env::temp_dir().join(format!("kelvin-suite-child-{}", std::process::id()));
        let mut process = sleep(&log);
        assert!(process.wait(Duration::from_millis(1), || false).is_none());
        assert!(process.wait(Duration::from_secs(1000), || true).is_none());
        let status = process.end(Signal::TERM, Duration::from_secs(10)).expect("it ends");
        assert!(!status.success());

        let process = sleep(&log);
        let folder = format!("/proc/{}", process.id());
        assert!(Path::new(&folder).exists());
        drop(process);
        assert!(!Path::new(&folder).exists());
        std::fs::remove_file(&log).expect("the log is there");
    }
}
