//! The drive under a folder: its name, and the kernel's counters of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel counts in sectors of this size, whatever the drive's is.
const SECTOR_BYTES: u64 = 512;

/// A block device.
#[derive(Debug, Clone)]
pub struct Drive {
    directory: PathBuf,
}

/// What a drive has done since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveCounters {
    /// Reads.
    pub reads: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
}

impl Drive {
    /// The drive that holds `folder`; none when it is on no block device, as with tmpfs.
    pub fn of_folder(folder: &Path) -> Option<Drive> {
        let device = fs::metadata(folder).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = format!("/sys/dev/block/{major}:{minor}");
        Some(Drive { directory: fs::canonicalize(link).ok()? })
    }

    /// Its counters now.
    pub fn counters(&self) -> Option<DriveCounters> {
        parse_counters(&fs::read_to_string(self.directory.join("stat")).ok()?)
    }

    /// The model that the drive says it is, else the name of the device.
    pub fn model(&self) -> String {
        // A partition's folder is in that of its drive.
        let folders = [Some(self.directory.as_path()), self.directory.parent()];
        let model = folders
            .into_iter()
            .flatten()
            .find_map(|folder| fs::read_to_string(folder.join("device/model")).ok());
        let name = self.directory.file_name().map(|name| name.to_string_lossy().into_owned());
        match (model, name) {
            (Some(model), Some(name)) => format!("{} ({name})", model.trim()),
            (_, name) => name.unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

/// Fields of a `stat` file: reads, merged, sectors, ms, writes, merged, sectors, ...
fn parse_counters(stat: &str) -> Option<DriveCounters> {
    let fields: Vec<u64> = stat.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(DriveCounters {
        reads: *fields.first()?,
        read_bytes: fields.get(2)? * SECTOR_BYTES,
        write_bytes: fields.get(6)? * SECTOR_BYTES,
    })
}

/// File system of a folder, as `/proc/self/mountinfo` names it.
pub fn file_system(folder: &Path) -> String {
    let known = || {
        let device = fs::metadata(folder).ok()?.dev();
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        parse_file_system(&fs::read_to_string("/proc/self/mountinfo").ok()?, &device)
    };
    known().unwrap_or_else(|| "unknown".to_owned())
}

/// The type stands after the ` - ` that ends the optional fields.
fn parse_file_system(mounts: &str, device: &str) -> Option<String> {
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, after) = mount.split_once(" - ")?;
    Some(after.split(' ').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_in_bytes() {
        let stat = "  100 5 2048 7 30 1 4096 9 0 10 11 0 0 0 0";
        let expected = DriveCounters { reads: 100, read_bytes: 1 << 20, write_bytes: 2 << 20 };
        assert_eq!(parse_counters(stat), Some(expected));
        assert_eq!(parse_counters("1 2 3"), None);
        assert_eq!(parse_counters(""), None);
    }

    #[test]
    fn the_file_system_is_that_of_the_device() {
        let mounts = "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n\
                      25 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n";
        assert_eq!(parse_file_system(mounts, "254:0").as_deref(), Some("ext4"));
        assert_eq!(parse_file_system(mounts, "8:1"), None);
    }
}
