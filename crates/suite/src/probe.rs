//! What the drive can do: random reads of a record's size and sequential writes, past the page
//! cache, with `fio` where it is installed and by threads of our own where not.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::Deserialize;
use stdx::Random;

use crate::child::tie;
use crate::cores::{Cores, start_on};
use crate::error::SuiteError;
use crate::results::DriveLimit;

/// Bytes of a read: a record of 512 B with its head lies across three sectors at most, two mostly,
/// and the server reads all of them.
const BLOCK_BYTES: u32 = 1536;
/// Reads in flight of fio: no drive that Kelvin is for does more with more.
const FIO_DEPTH: u32 = 256;
/// Threads of our own probe, each with a read in flight.
const THREADS: u32 = 64;
/// Threads that write.
const WRITE_THREADS: u32 = 8;
const WRITE_BYTES: usize = 1 << 20;
/// Buffers and places of direct I/O must be multiples of a sector, whatever its size.
const ALIGNMENT: usize = 4096;
/// The file has a name of its own: nothing else is to be overwritten.
const FILE_NAME: &str = "kelvin-suite-probe.tmp";

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// Where the file is made, as large as the flash that is to be measured: a smaller one may be
    /// held by a cache of the drive.
    pub folder: &'a Path,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Length of the reads in seconds.
    pub seconds: u32,
}

impl Probe<'_> {
    /// Measures; `cores` are those that the server will have.
    ///
    /// Errors: the folder is on something that cannot be read past the page cache, or is full.
    pub fn run(&self, cores: Option<&Cores>) -> Result<DriveLimit, SuiteError> {
        let file = Removed(self.folder.join(FILE_NAME));
        match self.by_fio(&file.0, cores) {
            Some(limit) => Ok(limit),
            None => self.by_threads(&file.0).map_err(SuiteError::file(&file.0)),
        }
    }

    fn by_fio(&self, path: &Path, cores: Option<&Cores>) -> Option<DriveLimit> {
        let fio = |arguments: &[String]| {
            let mut command = Command::new("fio");
            command.args(["--name=probe", "--direct=1", "--ioengine=io_uring"]);
            command
                .args(["--output-format=json".to_owned(), format!("--size={}", self.file_bytes)]);
            command.arg(format!("--filename={}", path.display())).args(arguments);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            tie(&mut command);
            let output = start_on(cores, &mut command).ok()?.wait_with_output().ok()?;
            if output.status.success() { parse_fio(&output.stdout) } else { None }
        };
        let text = str::to_owned;
        let write = ["--rw=write", "--bs=1M", "--iodepth=16", "--end_fsync=1"].map(text);
        let written = fio(&write)?;
        let read = fio(&[
            text("--rw=randread"),
            text("--norandommap"),
            text("--randrepeat=0"),
            text("--time_based"),
            format!("--bs={BLOCK_BYTES}"),
            format!("--iodepth={FIO_DEPTH}"),
            format!("--runtime={}", self.seconds),
        ])?;
        Some(DriveLimit {
            probe: read.version.replace("fio-", "fio "),
            block_bytes: BLOCK_BYTES,
            depth: FIO_DEPTH,
            reads_per_second: read.reads_per_second,
            write_bytes_per_second: written.write_bytes_per_second,
        })
    }

    fn by_threads(&self, path: &Path) -> io::Result<DriveLimit> {
        let open = || direct(path);
        let parts = u64::from(WRITE_THREADS);
        let blocks = self.file_bytes.div_ceil(WRITE_BYTES as u64).max(parts);
        let begin = Instant::now();
        on_threads(WRITE_THREADS, |index| {
            let index = u64::from(index);
            write_blocks(&open()?, index * blocks / parts..(index + 1) * blocks / parts)
        })?;
        open()?.sync_all()?;
        let write_seconds = begin.elapsed().as_secs_f64();

        let reads = AtomicU64::new(0);
        let begin = Instant::now();
        let end = begin + Duration::from_secs(u64::from(self.seconds));
        let places = blocks * WRITE_BYTES as u64 / u64::from(BLOCK_BYTES);
        on_threads(THREADS, |index| {
            let count = read_until(&open()?, end, places, u64::from(index))?;
            reads.fetch_add(count, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(DriveLimit {
            probe: "own probe".to_owned(),
            block_bytes: BLOCK_BYTES,
            depth: THREADS,
            reads_per_second: reads.into_inner() as f64 / begin.elapsed().as_secs_f64(),
            write_bytes_per_second: (blocks * WRITE_BYTES as u64) as f64 / write_seconds,
        })
    }
}

/// Runs `work` on so many threads at once; the first failure is the outcome.
fn on_threads(count: u32, work: impl Fn(u32) -> io::Result<()> + Sync) -> io::Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        let outcomes = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the probe failed")))
        });
        outcomes.collect::<Vec<_>>().into_iter().collect()
    })
}

fn write_blocks(file: &File, blocks: Range<u64>) -> io::Result<()> {
    let mut memory = vec![0; WRITE_BYTES + ALIGNMENT];
    let block = aligned(&mut memory, WRITE_BYTES);
    // A drive that compresses would make little of zeros.
    Random::new(blocks.start).fill(block);
    for index in blocks {
        file.write_all_at(block, index * WRITE_BYTES as u64)?;
    }
    Ok(())
}

fn read_until(file: &File, end: Instant, places: u64, seed: u64) -> io::Result<u64> {
    let mut memory = vec![0; BLOCK_BYTES as usize + ALIGNMENT];
    let block = aligned(&mut memory, BLOCK_BYTES as usize);
    let mut random = Random::new(seed);
    let mut count = 0;
    while Instant::now() < end {
        let place = random.below(places);
        file.read_exact_at(block, place * u64::from(BLOCK_BYTES))?;
        count += 1;
    }
    Ok(count)
}

/// The part of `memory`, which has [`ALIGNMENT`] bytes to spare, that begins at a multiple of it.
fn aligned(memory: &mut [u8], bytes: usize) -> &mut [u8] {
    let offset = memory.as_ptr().align_offset(ALIGNMENT);
    &mut memory[offset..offset + bytes]
}

fn direct(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
}

/// A file that goes when the probe ends, however it ends.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What is used of fio's output.
#[derive(Debug, PartialEq)]
struct FioOutcome {
    version: String,
    reads_per_second: f64,
    write_bytes_per_second: f64,
}

fn parse_fio(output: &[u8]) -> Option<FioOutcome> {
    #[derive(Deserialize)]
    struct Output {
        #[serde(rename = "fio version")]
        version: String,
        jobs: Vec<Job>,
    }
    #[derive(Deserialize)]
    struct Job {
        read: Direction,
        write: Direction,
    }
    #[derive(Deserialize)]
    struct Direction {
        iops: f64,
        bw_bytes: f64,
    }
    // Notes may stand before the object.
    let start = output.iter().position(|byte| *byte == b'{')?;
    let output: Output = serde_json::from_slice(&output[start..]).ok()?;
    let job = output.jobs.first()?;
    Some(FioOutcome {
        version: output.version,
        reads_per_second: job.read.iops,
        write_bytes_per_second: job.write.bw_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_fio_is_read() {
        let output = br#"note: something
            {"fio version": "fio-3.33", "jobs": [{"jobname": "probe",
             "read": {"iops": 1234.5, "bw_bytes": 99, "clat_ns": {}},
             "write": {"iops": 0.0, "bw_bytes": 77}}]}"#;
        let expected = FioOutcome {
            version: "fio-3.33".to_owned(),
            reads_per_second: 1234.5,
            write_bytes_per_second: 77.0,
        };
        assert_eq!(parse_fio(output), Some(expected));
        assert_eq!(parse_fio(b"fio: engine io_uring not loadable"), None);
        assert_eq!(parse_fio(b"{\"jobs\": []}"), None);
    }

    #[test]
    fn our_own_probe_reads_and_writes_a_file() {
        // The drive of the build, not a file system in RAM.
        let binary = std::env::current_exe().expect("this test");
        let folder = binary.parent().expect("a folder").to_owned();
        let path = folder.join(format!("probe-{}", std::process::id()));
        let file = Removed(path.clone());
        let probe = Probe { folder: &folder, file_bytes: 16 << 20, seconds: 1 };
        // Other work may take the second of a probe, but not of all.
        let is_right = (0..10).any(|_| match probe.by_threads(&file.0) {
            // The file system of the build cannot be read past the page cache.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => true,
            outcome => {
                let limit = outcome.expect("a probe");
                println!("{limit:?}");
                limit.reads_per_second > 100.0 && limit.write_bytes_per_second > 1e6
            }
        });
        assert!(is_right);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_without_files_is_an_error() {
        let probe = Probe { folder: Path::new("/proc"), file_bytes: 1 << 20, seconds: 1 };
        let error = probe.run(None).expect_err("no such file");
        assert!(error.to_string().starts_with("/proc/"), "{error}");
    }
}
