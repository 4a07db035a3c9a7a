//! INFO server and cpu: the process and the machine.

use std::sync::atomic::Ordering;

use crate::state::clock::unix_us;
use crate::state::server::{KELVIN_VERSION, REDIS_VERSION, Server};

use super::text::Text;

/// Bits of the clock that Redis keeps in each key.
const LRU_CLOCK_MASK: u64 = 0xFF_FFFF;
const SECONDS_A_DAY: u64 = 86_400;

/// INFO server.
pub(super) fn server(server: &Server, text: &mut Text) {
    let now_us = unix_us();
    let uptime = server.started.elapsed().as_secs();
    text.field("redis_version", REDIS_VERSION);
    text.field("redis_git_sha1", "00000000");
    text.field("redis_git_dirty", 0);
    text.field("redis_build_id", 0);
    text.field("redis_mode", "standalone");
    text.field("os", operating_system());
    text.field("arch_bits", usize::BITS);
    text.field("monotonic_clock", "POSIX clock_gettime");
    text.field("multiplexing_api", "epoll");
    text.field("atomicvar_api", "c11-builtin");
    text.field("gcc_version", "0.0.0");
    text.field("process_id", std::process::id());
    text.field("process_supervised", "no");
    text.field("run_id", &server.run_id);
    text.field("tcp_port", server.tcp_port.load(Ordering::Relaxed));
    text.field("server_time_usec", now_us);
    text.field("uptime_in_seconds", uptime);
    text.field("uptime_in_days", uptime / SECONDS_A_DAY);
    text.field("hz", server.config.hz.load());
    text.field("configured_hz", server.config.hz.load());
    text.field("lru_clock", (now_us / 1_000_000) as u64 & LRU_CLOCK_MASK);
    let executable = std::env::current_exe().unwrap_or_default();
    text.field("executable", executable.display());
    text.field("config_file", server.config.file().unwrap_or_default().display());
    text.field("io_threads_active", 0);
    text.field("kelvin_version", KELVIN_VERSION);
    text.field("workers", server.tier.workers);
}

/// Name and version of the system, and the machine's architecture.
fn operating_system() -> String {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    };
    format!("{} {} {}", read("ostype"), read("osrelease"), std::env::consts::ARCH)
}

/// INFO cpu. The kernel's account, in its ticks of a hundredth of a second.
pub(super) fn cpu(_server: &Server, text: &mut Text) {
    let process = CpuTimes::read("/proc/self/stat");
    let main = CpuTimes::read(&format!("/proc/self/task/{}/stat", std::process::id()));
    let lines = [
        ("used_cpu_sys", process.system),
        ("used_cpu_user", process.user),
        ("used_cpu_sys_children", process.children_system),
        ("used_cpu_user_children", process.children_user),
        ("used_cpu_sys_main_thread", main.system),
        ("used_cpu_user_main_thread", main.user),
    ];
    let ticks_a_second = rustix::param::clock_ticks_per_second() as f64;
    for (name, ticks) in lines {
        text.field(name, format_args!("{:.6}", ticks as f64 / ticks_a_second));
    }
}

/// Processor time in clock ticks.
#[derive(Default)]
struct CpuTimes {
    user: u64,
    system: u64,
    children_user: u64,
    children_system: u64,
}

impl CpuTimes {
    /// Reads a `stat` file of proc(5); zeros when there is none.
    fn read(path: &str) -> CpuTimes {
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        CpuTimes::parse(&stat).unwrap_or_default()
    }

    /// The program's name, in parentheses, may hold anything; the times are fields 14 to 17, and
    /// field 3 is the first behind the name.
    fn parse(stat: &str) -> Option<CpuTimes> {
        let (_, behind_name) = stat.rsplit_once(')')?;
        let mut fields = behind_name.split_ascii_whitespace().skip(14 - 3);
        let mut ticks = || fields.next()?.parse().ok();
        Some(CpuTimes {
            user: ticks()?,
            system: ticks()?,
            children_user: ticks()?,
            children_system: ticks()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 101 102 103 104 20 0";
        let times = CpuTimes::parse(stat).expect("a stat line");
        assert_eq!((times.user, times.system), (101, 102));
        assert_eq!((times.children_user, times.children_system), (103, 104));
        assert!(CpuTimes::parse("").is_none());
        assert!(CpuTimes::parse("7 (a) S 1 2").is_none());
    }

    #[test]
    fn a_process_has_an_account() {
        assert!(
            CpuTimes::parse(&std::fs::read_to_string("/proc/self/stat").expect("/proc")).is_some()
        );
    }
}
