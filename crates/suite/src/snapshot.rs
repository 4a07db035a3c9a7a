//! One look at the server and the drive, and what two looks say about the time between them.

use std::fs;
use std::time::Instant;

use crate::drive::{Drive, DriveCounters};
use crate::info::Info;
use crate::results::Sample;

/// The kernel's clock of CPU times, on every Linux that Kelvin runs on.
const CLOCK_TICKS_A_SECOND: f64 = 100.0;
/// The kernel's `/proc/PID/statm` counts pages.
const PAGE_BYTES: u64 = 4096;

/// Counters and levels at one moment. What the server does not tell is `None`.
#[derive(Debug, Clone)]
pub struct Snapshot {
    at: Instant,
    commands: u64,
    cpu_seconds: Option<f64>,
    machine_cpu_seconds: Option<f64>,
    reads: Hits,
    writes: Hits,
    resident_bytes: Option<u64>,
    index_bytes: Option<u64>,
    value_bytes: Option<u64>,
    buffer_bytes: Option<u64>,
    keys: u64,
    values_in_ram: Option<u64>,
    values_in_flash: Option<u64>,
    flash_used_bytes: Option<u64>,
    drive: Option<DriveCounters>,
}

/// Accesses so far, by where the value was.
#[derive(Debug, Clone, Copy, Default)]
struct Hits {
    ram: Option<u64>,
    flash: Option<u64>,
}

impl Hits {
    /// Share in RAM of the accesses between two looks; none when there were none.
    fn ratio_since(self, before: Hits) -> Option<f64> {
        let ram = self.ram?.checked_sub(before.ram?)?;
        let flash = self.flash?.checked_sub(before.flash?)?;
        (ram + flash > 0).then(|| ram as f64 / (ram + flash) as f64)
    }
}

impl Snapshot {
    /// From what the server says now; `pid` if it runs on this machine.
    pub fn take(info: &Info, pid: Option<u32>, drive: Option<&Drive>) -> Snapshot {
        let hits = |kind: &str| Hits {
            ram: info.number(&format!("tier_{kind}_ram")),
            flash: info.number(&format!("tier_{kind}_flash")),
        };
        let sum = |names: [&str; 2]| {
            let [first, second] = names.map(|name| info.number::<u64>(name));
            Some(first? + second?)
        };
        // The kernel's account where there is one: it does not depend on the server's word.
        let cpu_by_info = || {
            let user: f64 = info.number("used_cpu_user")?;
            Some(user + info.number::<f64>("used_cpu_sys")?)
        };
        Snapshot {
            at: Instant::now(),
            commands: info.number("total_commands_processed").unwrap_or(0),
            cpu_seconds: pid.and_then(cpu_seconds).or_else(cpu_by_info),
            machine_cpu_seconds: fs::read_to_string("/proc/stat")
                .ok()
                .and_then(|stat| machine_cpu_seconds(&stat)),
            reads: hits("read"),
            writes: hits("write"),
            resident_bytes: pid.and_then(resident_bytes).or_else(|| info.number("used_memory_rss")),
            index_bytes: info.number("tier_ram_keys_bytes"),
            value_bytes: info.number("tier_ram_values_bytes"),
            buffer_bytes: sum(["tier_ram_clients_bytes", "tier_ram_engine_bytes"]),
            keys: key_count(info),
            values_in_ram: info.number("tier_values_in_ram"),
            values_in_flash: info.number("tier_values_cold"),
            flash_used_bytes: info.number("flash_used_bytes"),
            drive: drive.and_then(Drive::counters),
        }
    }

    /// Seconds since an earlier look.
    pub fn seconds_since(&self, before: &Snapshot) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }

    /// Share of reads served from RAM since an earlier look.
    pub fn read_hit_ratio_since(&self, before: &Snapshot) -> Option<f64> {
        self.reads.ratio_since(before.reads)
    }

    /// Share of writes in RAM since an earlier look.
    pub fn write_hit_ratio_since(&self, before: &Snapshot) -> Option<f64> {
        self.writes.ratio_since(before.writes)
    }

    /// CPU of the server since an earlier look.
    pub fn cpu_seconds_since(&self, before: &Snapshot) -> Option<f64> {
        Some(self.cpu_seconds? - before.cpu_seconds?)
    }

    /// CPU of all processes of this machine since an earlier look.
    pub fn machine_cpu_seconds_since(&self, before: &Snapshot) -> Option<f64> {
        Some(self.machine_cpu_seconds? - before.machine_cpu_seconds?)
    }

    /// This look as a sample: levels now, rates since `before`, in a round that began at `start`.
    pub fn sample(&self, before: &Snapshot, start: &Snapshot) -> Sample {
        let seconds = self.seconds_since(before).max(f64::MIN_POSITIVE);
        let rate = |count: fn(&DriveCounters) -> u64| {
            let (now, before) = (self.drive.as_ref()?, before.drive.as_ref()?);
            Some(count(now).saturating_sub(count(before)) as f64 / seconds)
        };
        Sample {
            second: self.seconds_since(start),
            ops_per_second: self.commands.saturating_sub(before.commands) as f64 / seconds,
            resident_bytes: self.resident_bytes,
            index_bytes: self.index_bytes,
            value_bytes: self.value_bytes,
            buffer_bytes: self.buffer_bytes,
            keys: Some(self.keys),
            values_in_ram: self.values_in_ram,
            values_in_flash: self.values_in_flash,
            ram_hit_ratio: self.read_hit_ratio_since(before),
            flash_used_bytes: self.flash_used_bytes,
            drive_read_bytes_per_second: rate(|drive| drive.read_bytes),
            drive_write_bytes_per_second: rate(|drive| drive.write_bytes),
            drive_reads_per_second: rate(|drive| drive.reads),
        }
    }
}

/// Keys of database 0, as `db0:keys=5,expires=0,avg_ttl=0` says; no line is no keys.
fn key_count(info: &Info) -> u64 {
    let keys = info.text("db0").and_then(|text| text.split(',').next());
    keys.and_then(|text| text.strip_prefix("keys=")?.parse().ok()).unwrap_or(0)
}

/// User and system time of all threads of a process, those that ended included.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold spaces; fields are counted from after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<f64> = ticks.filter_map(|word| word.parse().ok()).collect();
    (ticks.len() == 2).then(|| (ticks[0] + ticks[1]) / CLOCK_TICKS_A_SECOND)
}

/// CPU of all processes, from the first line of `/proc/stat`: user, nice, system, ...
fn machine_cpu_seconds(stat: &str) -> Option<f64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(3);
    let ticks: Vec<f64> = fields.filter_map(|word| word.parse().ok()).collect();
    (ticks.len() == 3).then(|| ticks.iter().sum::<f64>() / CLOCK_TICKS_A_SECOND)
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        Snapshot::take(&Info::parse(text), None, None)
    }

    #[test]
    fn a_sample_has_levels_and_rates() {
        let before = snapshot(
            "total_commands_processed:100\ntier_read_ram:10\ntier_read_flash:10\n\
             tier_write_ram:5\ntier_write_flash:0\nused_cpu_user:1.0\nused_cpu_sys:0.5\n",
        );
        let mut now = snapshot(
            "total_commands_processed:700\ntier_read_ram:40\ntier_read_flash:20\n\
             tier_write_ram:5\ntier_write_flash:0\nused_cpu_user:2.0\nused_cpu_sys:1.0\n\
             tier_ram_clients_bytes:3\ntier_ram_engine_bytes:4\ntier_values_in_ram:9\n\
             db0:keys=12,expires=0,avg_ttl=0\n",
        );
        now.at = before.at + std::time::Duration::from_secs(2);
        let sample = now.sample(&before, &before);
        assert_eq!((sample.second, sample.ops_per_second), (2.0, 300.0));
        assert_eq!(sample.ram_hit_ratio, Some(0.75));
        assert_eq!(now.write_hit_ratio_since(&before), None, "nothing was written");
        assert_eq!(now.cpu_seconds_since(&before), Some(1.5));
        assert_eq!((sample.buffer_bytes, sample.keys), (Some(7), Some(12)));
        assert_eq!((sample.values_in_ram, sample.drive_reads_per_second), (Some(9), None));
    }

    #[test]
    fn a_server_without_tiers_has_no_hits() {
        let before = snapshot("total_commands_processed:1\n");
        assert_eq!(before.clone().read_hit_ratio_since(&before), None);
        assert_eq!(before.sample(&before, &before).index_bytes, None);
    }

    #[test]
    fn the_machine_s_cpu_is_that_of_all_processes() {
        let stat = "cpu  100 20 30 9999 1 2 3 0 0 0\ncpu0 50 10 15 9999 1 2 3 0 0 0\n";
        assert_eq!(machine_cpu_seconds(stat), Some(1.5));
        assert_eq!(machine_cpu_seconds("cpu  1 2\n"), None);
        assert_eq!(machine_cpu_seconds(""), None);
    }

    #[test]
    fn this_process_has_memory_and_cpu_time() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).expect("/proc") > 1 << 20);
        assert!(cpu_seconds(pid).expect("/proc") >= 0.0);
        assert_eq!(resident_bytes(u32::MAX), None);
    }
}
