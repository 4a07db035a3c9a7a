//! The write rate of a running server: what its drives took between two looks at it.
//!
//! Two accounts are read. The server's own, `flash_device_write_bytes` of `INFO tiering`, is all
//! that Kelvin wrote, garbage collection included. The drive's, which the kernel keeps, also has
//! what others wrote, and that wears it as well: where the server runs on this machine and its
//! drives are found, it is the one that counts. The result says which it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use resp::{Frame, parse_frame};
use serde::Serialize;

use crate::units::MIB;
use crate::{PlanError, rounded};

const CONNECT_WAIT: Duration = Duration::from_secs(5);
const REPLY_WAIT: Duration = Duration::from_secs(10);
/// An INFO is some kilobytes.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The kernel counts a drive's traffic in sectors of so many bytes, whatever the drive's are.
const SECTOR_BYTES: u64 = 512;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        port.and_then(|(_, port)| port.parse::<u16>().ok())
            .map(|_| Self(text.to_owned()))
            .ok_or_else(|| "not HOST:PORT".to_owned())
    }
}

/// What was written between the two looks.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Between them.
    pub seconds: f64,
    /// The rate that counts.
    pub write_bytes_per_second: f64,
    /// Whose account that is.
    pub account: Account,
    /// By the server's account.
    pub server_bytes: u64,
    /// By the drives' own; none where they are not on this machine.
    pub drive_bytes: Option<u64>,
    /// Keys and values that clients wrote.
    pub user_bytes: u64,
}

/// Who counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    /// `flash_device_write_bytes` of the server.
    Server,
    /// The kernel, for these drives.
    Drives(Vec<String>),
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.write_bytes_per_second / MIB;
        let mib = |bytes: u64| bytes as f64 / MIB;
        write!(f, "Measured {rate:.2} MiB/s over {:.1} s, ", self.seconds)?;
        match &self.account {
            Account::Server => write!(f, "by the server's account (flash_device_write_bytes)")?,
            Account::Drives(names) => write!(
                f,
                "by the account of the drive ({}), other programs included;\n\
                 the server's own account has {:.2} MiB of its {:.2} MiB",
                names.join(", "),
                mib(self.server_bytes),
                mib(self.drive_bytes.unwrap_or_default()),
            )?,
        }
        write!(f, ".\nClients wrote {:.2} MiB meanwhile.", mib(self.user_bytes))
    }
}

/// Looks at a server twice. Takes `seconds`. Errors: it cannot be reached or asked, has no flash,
/// or its statistics were reset in between.
pub fn measure(address: &Address, seconds: f64) -> Result<Measured, PlanError> {
    let wait = Duration::try_from_secs_f64(seconds)
        .map_err(|_| PlanError::Options(format!("cannot measure for {seconds} seconds")))?;
    let mut client = Client::connect(address)?;
    let drives = if client.is_local() { drives_of(&mut client)? } else { Vec::new() };
    let before = client.tiering()?;
    let (drives_before, start) = (written_by(&drives), Instant::now());
    std::thread::sleep(wait);
    let after = client.tiering()?;
    let (drives_after, seconds) = (written_by(&drives), start.elapsed().as_secs_f64());
    let grown = |name: &str| {
        let bytes = client.field(&after, name)?.checked_sub(client.field(&before, name)?);
        bytes.ok_or_else(|| client.error(format!("{name} fell: the statistics were reset")))
    };
    let server_bytes = grown("flash_device_write_bytes")?;
    let user_bytes = grown("tier_user_written_bytes")?;
    let drive_bytes =
        drives_before.zip(drives_after).and_then(|(before, after)| after.checked_sub(before));
    let account = match drive_bytes {
        Some(_) => Account::Drives(drives.iter().map(|drive| drive.name.clone()).collect()),
        None => Account::Server,
    };
    let write_bytes_per_second = drive_bytes.unwrap_or(server_bytes) as f64 / seconds;
    let seconds = rounded(seconds, 3);
    Ok(Measured { seconds, write_bytes_per_second, account, server_bytes, drive_bytes, user_bytes })
}

/// A connection to a server.
struct Client {
    address: String,
    stream: TcpStream,
}

impl Client {
    fn connect(address: &Address) -> Result<Self, PlanError> {
        let name = address.0.clone();
        let failed = |source: std::io::Error| PlanError::Server {
            address: name.clone(),
            what: format!("cannot connect: {source}"),
        };
        let found = address.0.to_socket_addrs().map_err(failed)?.next();
        let found = found.ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
        let stream = TcpStream::connect_timeout(&found, CONNECT_WAIT).map_err(failed)?;
        stream.set_read_timeout(Some(REPLY_WAIT)).map_err(failed)?;
        Ok(Self { address: address.0.clone(), stream })
    }

    /// Whether the server runs on this machine, as far as its address tells.
    fn is_local(&self) -> bool {
        let ends = self.stream.local_addr().ok().zip(self.stream.peer_addr().ok());
        ends.is_some_and(|(own, peer)| own.ip() == peer.ip())
    }

    fn error(&self, what: impl Into<String>) -> PlanError {
        PlanError::Server { address: self.address.clone(), what: what.into() }
    }

    fn call(&mut self, line: &str) -> Result<Frame, PlanError> {
        let sent = self.stream.write_all(format!("{line}\r\n").as_bytes());
        sent.map_err(|source| self.error(source.to_string()))?;
        let mut reply = Vec::new();
        let mut chunk = [0; 16 << 10];
        loop {
            match parse_frame(&reply) {
                Ok(Some((Frame::Error(text), _))) => {
                    return Err(self.error(String::from_utf8_lossy(&text)));
                }
                Ok(Some((frame, _))) => return Ok(frame),
                Ok(None) if reply.len() < REPLY_BYTES_MAX => {}
                Ok(None) => return Err(self.error("the reply has no end")),
                Err(source) => return Err(self.error(source.to_string())),
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.error("it closed the connection")),
                Ok(count) => reply.extend_from_slice(&chunk[..count]),
                // Stopped in a read that has a timeout, and continued.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.error(format!("no reply: {source}"))),
            }
        }
    }

    fn tiering(&mut self) -> Result<BTreeMap<String, String>, PlanError> {
        let Frame::Bulk(text) = self.call("INFO tiering")? else {
            return Err(self.error("INFO answers no text"));
        };
        let text = String::from_utf8_lossy(&text);
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let fields: BTreeMap<String, String> =
            fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        match fields.get("flash_enabled").map(String::as_str) {
            Some("1") => Ok(fields),
            Some(_) => Err(self.error("it has no flash, so it writes to no drive")),
            None => Err(self.error("it has no INFO tiering: is it Kelvin?")),
        }
    }

    fn field(&self, fields: &BTreeMap<String, String>, name: &str) -> Result<u64, PlanError> {
        let value = fields.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| self.error(format!("INFO tiering has no {name}")))
    }
}

/// A drive of this machine.
struct Drive {
    name: String,
    stat: PathBuf,
}

/// The drives below the server's `flash-path`, each once; none when any of them is not found, for
/// then their sum would be too small.
fn drives_of(client: &mut Client) -> Result<Vec<Drive>, PlanError> {
    let Frame::Array(pair) = client.call("CONFIG GET flash-path")? else { return Ok(Vec::new()) };
    let Some(Frame::Bulk(paths)) = pair.get(1) else { return Ok(Vec::new()) };
    let (mut paths, mut ranges) = (paths.clone(), Vec::new());
    if resp::split_words(&mut paths, &mut ranges).is_err() {
        return Ok(Vec::new());
    }
    let folders: BTreeSet<Option<PathBuf>> = resp::Args::new(&paths, &ranges)
        .iter()
        .map(|path| drive_folder(Path::new(std::str::from_utf8(path).ok()?)))
        .collect();
    let folders: Option<Vec<PathBuf>> = folders.into_iter().collect();
    let drive = |folder: PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Drive { name, stat: folder.join("stat") }
    };
    Ok(folders.unwrap_or_default().into_iter().map(drive).collect())
}

/// Where the kernel tells of the whole drive under a path.
fn drive_folder(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let device = std::fs::metadata(path).ok()?.dev();
    // The bits of a device number, as glibc's gnu_dev_major and gnu_dev_minor take them apart.
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    let folder = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    match folder.join("partition").exists() {
        true => folder.parent().map(Path::to_owned),
        false => Some(folder),
    }
}

/// Bytes written to these drives so far; none when there are none, or one does not tell.
fn written_by(drives: &[Drive]) -> Option<u64> {
    let written = |drive: &Drive| {
        let stat = std::fs::read_to_string(&drive.stat).ok()?;
        sectors_written(&stat).map(|sectors| sectors * SECTOR_BYTES)
    };
    let sum = drives.iter().map(written).sum::<Option<u64>>();
    sum.filter(|_| !drives.is_empty())
}

/// The seventh number of a drive's `stat` (Documentation/block/stat.rst of the kernel).
fn sectors_written(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses_have_a_port() {
        for text in ["127.0.0.1:6379", "localhost:1", "[::1]:6379"] {
            assert!(text.parse::<Address>().is_ok(), "{text}");
        }
        for text in ["", "localhost", ":6379", "host:", "host:99999", "host:port"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_seventh_field_is_what_was_written() {
        let stat = "  10 0 80 5 20 1 4096 7 0 9 12 0 0 0 0 0 0\n";
        assert_eq!(sectors_written(stat), Some(4096));
        assert_eq!(sectors_written("1 2 3"), None);
    }

    /// The error of measuring a server that answers each request with the next of `replies`.
    fn error_with(replies: &[&str]) -> String {
        let replies: Vec<String> = replies.iter().map(|&reply| reply.to_owned()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for reply in replies {
                let mut request = [0; 100];
                let count = stream.read(&mut request).expect("a request");
                assert!(count > 0);
                stream.write_all(reply.as_bytes()).expect("a listener");
            }
        });
        let address = address.parse().expect("an address");
        let error = measure(&address, 0.01).expect_err("nothing to measure").to_string();
        serving.join().expect("the server saw all requests");
        let (start, what) = error.split_once(": ").expect("address and reason");
        assert!(start.contains("127.0.0.1"));
        what.to_owned()
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    #[test]
    fn a_server_that_cannot_be_measured_is_told_in_a_line() {
        let without_flash = bulk("flash_enabled:0\r\n");
        let cases = [
            ("-NOAUTH Authentication required.\r\n", "NOAUTH Authentication required."),
            ("$0\r\n\r\n", "it has no INFO tiering: is it Kelvin?"),
            (&without_flash, "it has no flash, so it writes to no drive"),
            ("$-1\r\n", "INFO answers no text"),
            ("?\r\n", "Protocol error"),
            ("", "it closed the connection"),
        ];
        for (reply, expected) in cases {
            let error = error_with(&["*0\r\n", reply]);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn statistics_that_were_reset_are_not_taken_for_a_rate() {
        let info = |written: u32| {
            bulk(&format!(
                "flash_enabled:1\r\nflash_device_write_bytes:{written}\r\n\
                 tier_user_written_bytes:0\r\n"
            ))
        };
        let error = error_with(&["*0\r\n", &info(9), &info(2)]);
        assert_eq!(error, "flash_device_write_bytes fell: the statistics were reset");
    }
}
