//! Which cores the server and the load run on.
//!
//! A process inherits the cores of the thread that starts it, so [`Cores::start`] changes its own
//! thread's for the moment of the start: no unsafe code between fork and exec.

use std::io;
use std::process::{Child, Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Some cores.
#[derive(Clone)]
pub struct Cores {
    set: CpuSet,
}

impl Cores {
    /// The cores that this process may use, divided: the first half for the server and the second
    /// for the load. None when there is only one.
    pub fn halves() -> Option<(Cores, Cores)> {
        let all = sched_getaffinity(None).ok()?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
        if usable.len() < 2 {
            return None;
        }
        let (server, load) = usable.split_at(usable.len() / 2);
        Some((Cores::of(server), Cores::of(load)))
    }

    fn of(cores: &[usize]) -> Cores {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        Cores { set }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.set.count() as usize
    }

    /// Starts a process on them.
    pub fn start(&self, command: &mut Command) -> io::Result<Child> {
        let mine = sched_getaffinity(None)?;
        sched_setaffinity(None, &self.set)?;
        let child = command.spawn();
        sched_setaffinity(None, &mine)?;
        child
    }
}

/// Starts a process on these cores, or on any.
pub fn start_on(cores: Option<&Cores>, command: &mut Command) -> io::Result<Child> {
    match cores {
        Some(cores) => cores.start(command),
        None => command.spawn(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_process_runs_on_its_cores_and_this_thread_keeps_its_own() {
        let Some((server, load)) = Cores::halves() else { return };
        let before = sched_getaffinity(None).expect("a thread has cores");
        for cores in [server, load] {
            let mut command = Command::new("grep");
            command.args(["Cpus_allowed:", "/proc/self/status"]).stdout(Stdio::piped());
            let child = cores.start(&mut command).expect("grep is there");
            let output = child.wait_with_output().expect("it ends").stdout;
            let text = String::from_utf8_lossy(&output).replace([',', '\n'], "");
            let mask = text.rsplit('\t').next().expect("a mask").to_owned();
            let bits = mask.chars().filter_map(|digit| digit.to_digit(16));
            let count: u32 = bits.map(u32::count_ones).sum();
            assert_eq!(count as usize, cores.count(), "{text}");
        }
        assert_eq!(sched_getaffinity(None).expect("a thread has cores"), before);
    }
}
