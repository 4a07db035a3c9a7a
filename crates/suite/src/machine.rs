//! Describes the machine, for the report.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use crate::drive::{Drive, file_system};
use crate::info::Info;
use crate::results::{Machine, Version};

/// The machine that this runs on; the drive and the file system are those of `flash_folder`.
pub fn describe(flash_folder: Option<&Path>, server: &Info) -> Machine {
    let unknown = || "unknown".to_owned();
    let kernel = ["ostype", "osrelease"]
        .map(|name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default());
    Machine {
        cpu: fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| cpu_model(&text))
            .unwrap_or_else(unknown),
        cores: available_parallelism().map_or(1, usize::from),
        ram_bytes: fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| memory_bytes(&text))
            .unwrap_or(0),
        drive: flash_folder.and_then(Drive::of_folder).map_or_else(unknown, |drive| drive.model()),
        file_system: flash_folder.map_or_else(unknown, file_system),
        kernel: kernel.map(|part| part.trim().to_owned()).join(" "),
        versions: versions(server),
    }
}

fn versions(server: &Info) -> Vec<Version> {
    let known = [("kelvin server", "kelvin_version"), ("server, as Redis", "redis_version")];
    let mut versions: Vec<Version> = known
        .iter()
        .filter_map(|(program, field)| {
            let version = server.text(field)?.to_owned();
            Some(Version { program: (*program).to_owned(), version })
        })
        .collect();
    versions.push(Version {
        program: "kelvin bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    versions
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nflags\t: fpu\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(cpu_model("processor: 0\n"), None);
        assert_eq!(memory_bytes("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(memory_bytes(""), None);
    }

    #[test]
    fn this_machine_has_a_description() {
        let machine = describe(Some(Path::new("/")), &Info::parse("redis_version:7.2.4\n"));
        assert!(machine.ram_bytes > 1 << 20 && machine.cores > 0);
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        assert_eq!(machine.versions[0].version, "7.2.4");
    }
}
