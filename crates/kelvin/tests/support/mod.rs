//! Servers for tests, each with a directory and a port of its own, and a client to talk to them.
//!
//! [`Server::kelvin`] starts the program under test, [`Server::redis`] the real redis-server that
//! its answers are compared with. Both choose their port themselves, so that any number of tests
//! run at once; both end, and their directory goes, when the [`Server`] is dropped.

#![allow(dead_code, reason = "every test uses a part of it")]

pub mod kept;
pub mod values;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use resp::{Frame, Reply, parse_frame};

/// A reply that takes longer than this is a hang.
const REPLY_SECONDS_MAX: u64 = 60;

/// Ports that are tried for a server that cannot choose its own.
const PORTS_MAX: usize = 20;

/// Lines of a server's log that are shown when a test fails.
const LOG_LINES_MAX: usize = 40;

/// A running server.
pub struct Server {
    process: Child,
    directory: Directory,
    address: Address,
    log: Log,
    log_reader: Option<JoinHandle<()>>,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(u16),
    Unix(PathBuf),
}

impl Server {
    /// Starts Kelvin with these options (`["--maxmemory", "100mb"]`) on a free port. There is no
    /// flash unless the options say so.
    pub fn kelvin(options: &[&str]) -> Server {
        let directory = Directory::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
        command.args(["server", "--port", "0", "--bind", "127.0.0.1"]).args(options);
        Server::start_kelvin(command, directory)
    }

    /// Starts Kelvin as [`Server::kelvin`] does, with `flash_size` of flash in its directory.
    pub fn kelvin_with_flash(flash_size: &str, options: &[&str]) -> Server {
        let directory = Directory::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
        command.args(["server", "--port", "0", "--bind", "127.0.0.1", "--flash-size", flash_size]);
        command.arg("--flash-path").arg(directory.path()).args(options);
        Server::start_kelvin(command, directory)
    }

    /// Starts Kelvin with a configuration file of this text in its directory, named
    /// `kelvin.conf`.
    pub fn kelvin_with_file(text: &str, options: &[&str]) -> Server {
        let directory = Directory::new();
        let path = directory.path().join("kelvin.conf");
        std::fs::write(&path, text).expect("the configuration file can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
        command.arg("server").arg(&path);
        command.args(["--port", "0", "--bind", "127.0.0.1"]).args(options);
        Server::start_kelvin(command, directory)
    }

    /// Starts Kelvin as [`Server::kelvin`] does, where it does not come so far. Returns its log.
    pub fn failed_kelvin(options: &[&str]) -> String {
        let directory = Directory::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelvin"));
        command.args(["server", "--port", "0", "--bind", "127.0.0.1"]).args(options);
        command.current_dir(directory.path()).stderr(Stdio::piped());
        let output = command.output().expect("it can be started");
        assert!(!output.status.success(), "it is to end with an error");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Ends a server at once, as a failure of power would, but for what the kernel has.
    pub fn kill(&mut self) {
        self.process.kill().expect("a child can be killed");
        self.process.wait().expect("a child can be waited for");
    }

    fn start_kelvin(mut command: Command, directory: Directory) -> Server {
        command.current_dir(directory.path());
        let (process, log, log_reader, ready) = start(command, "ready to accept connections");
        let port = ready.split("port=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let port = port.and_then(|port| port.parse().ok()).expect("the log names the port");
        Server {
            process,
            directory,
            address: Address::Tcp(port),
            log,
            log_reader: Some(log_reader),
        }
    }

    /// Starts the real redis-server with these options, without persistence, on a Unix socket.
    pub fn redis(options: &[&str]) -> Server {
        let directory = Directory::new();
        let path = directory.path().join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&path).args(options);
        command.current_dir(directory.path());
        let (process, log, log_reader, _) = start(command, "ready to accept");
        Server {
            process,
            directory,
            address: Address::Unix(path),
            log,
            log_reader: Some(log_reader),
        }
    }

    /// The same on a free port. Another may take it first: then it is another port.
    pub fn redis_on_port(options: &[&str]) -> Server {
        let mut failures = Vec::new();
        while failures.len() < PORTS_MAX {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
            let port = free.expect("a free port").port();
            let directory = Directory::new();
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--save", ""]).args(options);
            command.current_dir(directory.path());
            match try_start(command, "Ready to accept") {
                Ok((process, log, log_reader, _)) => {
                    let address = Address::Tcp(port);
                    return Server {
                        process,
                        directory,
                        address,
                        log,
                        log_reader: Some(log_reader),
                    };
                }
                Err(failure) => failures.push(failure),
            }
        }
        panic!("{}", failures.join("\n"));
    }

    /// The port of a server that listens on one.
    pub fn port(&self) -> u16 {
        match self.address {
            Address::Tcp(port) => port,
            Address::Unix(_) => panic!("the server listens on a socket file"),
        }
    }

    /// The server's working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process, for signals and for /proc.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        match &self.address {
            Address::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port)).expect("the server listens");
                stream.set_nodelay(true).expect("a socket option");
                let timeout = Some(Duration::from_secs(REPLY_SECONDS_MAX));
                stream.set_read_timeout(timeout).expect("a socket option");
                Client::new(Stream::Tcp(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).expect("the server listens");
                let timeout = Some(Duration::from_secs(REPLY_SECONDS_MAX));
                stream.set_read_timeout(timeout).expect("a socket option");
                Client::new(Stream::Unix(stream))
            }
        }
    }

    /// Waits until the server has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("a child can be waited for")
    }

    /// A connection without a client.
    pub fn stream(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port())).expect("the server accepts")
    }

    /// Resident memory of the server, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.memory_status("VmRSS:")
    }

    /// The most that was ever resident: the kernel's own mark, which no moment escapes.
    pub fn resident_peak(&self) -> u64 {
        self.memory_status("VmHWM:")
    }

    fn memory_status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("the kernel tells it in kB") << 10
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("a child can be asked").is_none()
    }

    /// All that the server has logged, once it has ended by itself.
    pub fn log_to_its_end(mut self) -> String {
        self.wait();
        if let Some(reader) = self.log_reader.take() {
            reader.join().expect("the log can be read");
        }
        self.log()
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("nobody panics with the log").join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LOG_LINES_MAX)..];
            eprintln!("the server's log:\n{}", shown.join("\n"));
        }
    }
}

type Log = Arc<Mutex<Vec<String>>>;

/// A process, its log, who reads it, and the line of it that says that the server is ready.
type Started = (Child, Log, JoinHandle<()>, String);

fn start(command: Command, ready: &str) -> Started {
    try_start(command, ready).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Starts a server and waits for the line of its log that says it is ready. Errors: the log of one
/// that ended before.
#[allow(clippy::zombie_processes, reason = "the caller owns the process and waits for it")]
fn try_start(mut command: Command, ready: &str) -> Result<Started, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut process =
        command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let mut output = BufReader::new(process.stdout.take().expect("invariant: it is piped"));
    let log = Log::default();
    let mut line = String::new();
    while !line.contains(ready) {
        line.clear();
        if output.read_line(&mut line).expect("the log can be read") == 0 {
            let status = process.wait().expect("a child can be waited for");
            let lines = log.lock().expect("unshared").join("\n");
            return Err(format!("{command:?} ended, {status}:\n{lines}"));
        }
        line.truncate(line.trim_end().len());
        log.lock().expect("unshared").push(line.clone());
    }
    let reader = keep_reading(output, log.clone());
    Ok((process, log, reader, line))
}

/// Takes the log as it comes, so that the server never waits for its reader.
fn keep_reading(output: BufReader<ChildStdout>, log: Log) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            log.lock().expect("nobody panics with the log").push(line);
        }
    })
}

/// A temporary directory that goes with its owner.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kelvin-test-{}-{number}", std::process::id());
        // On the build's file system: flash wants O_DIRECT, which a tmpfs may not have.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // A run that was killed may have left one of the same number.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Directory(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for Directory {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the build.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection to a server.
pub struct Client {
    stream: Stream,
    received: Vec<u8>,
    /// Bytes of `received` that have been read as replies.
    taken: usize,
}

impl Client {
    /// A client of whoever listens on a socket file; none as long as nobody does.
    pub fn of_socket(path: &Path) -> Option<Client> {
        let stream = UnixStream::connect(path).ok()?;
        let timeout = Some(Duration::from_secs(REPLY_SECONDS_MAX));
        stream.set_read_timeout(timeout).expect("a socket option");
        Some(Client::new(Stream::Unix(stream)))
    }

    fn new(stream: Stream) -> Client {
        Client { stream, received: Vec::new(), taken: 0 }
    }

    /// Sends a request and reads its reply.
    pub fn call(&mut self, words: &[&str]) -> Frame {
        self.send(words);
        self.read()
    }

    /// The same with a line that is cut into words as redis-cli does.
    pub fn line(&mut self, line: &str) -> Frame {
        let mut buffer = line.as_bytes().to_vec();
        let mut ranges = Vec::new();
        resp::split_words(&mut buffer, &mut ranges).expect("balanced quotes");
        let words: Vec<&[u8]> = resp::Args::new(&buffer, &ranges).iter().collect();
        self.send_bytes(&words);
        self.read()
    }

    /// The reply of a line as text, see [`show`].
    pub fn show(&mut self, line: &str) -> String {
        show(&self.line(line))
    }

    /// Sends a request.
    pub fn send(&mut self, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send_bytes(&words);
    }

    /// Sends a request of any bytes.
    pub fn send_bytes(&mut self, words: &[&[u8]]) {
        let mut request = Reply::default();
        request.array(words.len());
        words.iter().for_each(|word| request.bulk(word));
        self.write(request.as_slice());
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(self.try_write(bytes), "the server takes what is sent");
    }

    /// Sends bytes as they are. Returns whether the server takes them: it may have closed the connection.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        let result = match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        };
        result.is_ok()
    }

    /// Reads a reply. Panics: when the server closes the connection instead, or stays silent.
    pub fn read(&mut self) -> Frame {
        self.try_read().expect("the server answers")
    }

    /// Reads a reply; none when the server closes the connection instead.
    pub fn try_read(&mut self) -> Option<Frame> {
        loop {
            let parsed = parse_frame(&self.received[self.taken..]).expect("a reply");
            if let Some((frame, len)) = parsed {
                self.taken += len;
                if self.taken == self.received.len() {
                    self.received.clear();
                    self.taken = 0;
                }
                return Some(frame);
            }
            let mut chunk = [0; 64 << 10];
            match self.receive(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
            self.receive_part(&mut chunk);
        }
    }

    /// Reads an eighth more of a long reply, if it comes at once: to parse it anew after every piece takes
    /// so long that the server sees a client that does not read.
    fn receive_part(&mut self, chunk: &mut [u8]) {
        let len = self.received.len();
        if len < 1 << 20 {
            return;
        }
        self.set_timeout(Duration::from_millis(20));
        while self.received.len() < len + len / 8 {
            match self.receive(chunk) {
                Ok(count) if count > 0 => self.received.extend_from_slice(&chunk[..count]),
                _ => break,
            }
        }
        self.set_timeout(Duration::from_secs(REPLY_SECONDS_MAX));
    }

    /// Reads a reply without waiting longer than `wait`; none when nothing came.
    pub fn read_within(&mut self, wait: Duration) -> Option<Frame> {
        self.set_timeout(wait);
        let mut chunk = [0; 64 << 10];
        loop {
            let parsed = parse_frame(&self.received[self.taken..]).expect("a reply");
            if let Some((frame, len)) = parsed {
                self.taken += len;
                self.set_timeout(Duration::from_secs(REPLY_SECONDS_MAX));
                return Some(frame);
            }
            match self.receive(&mut chunk) {
                Ok(count) if count > 0 => self.received.extend_from_slice(&chunk[..count]),
                _ => {
                    self.set_timeout(Duration::from_secs(REPLY_SECONDS_MAX));
                    return None;
                }
            }
        }
    }

    /// Reads what has come. A process that was stopped and goes on is interrupted in a read that has
    /// a timeout.
    fn receive(&mut self, chunk: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let count = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(chunk),
                Stream::Unix(stream) => stream.read(chunk),
            };
            if !count.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
                return count;
            }
        }
    }

    fn set_timeout(&mut self, timeout: Duration) {
        let result = match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        };
        result.expect("a socket option");
    }
}

/// A reply as one line: `+OK`, `-ERR text`, `:1`, `$text`, `_` for any null, `[a b]` for arrays,
/// `{k=v}` for maps, `~[a b]` for sets.
pub fn show(frame: &Frame) -> String {
    let list = |items: &[Frame]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match frame {
        Frame::Simple(text) => format!("+{}", text.escape_ascii()),
        Frame::Error(text) | Frame::BulkError(text) => {
            format!("-{}", String::from_utf8_lossy(text))
        }
        Frame::Integer(number) => format!(":{number}"),
        Frame::Bulk(bytes) => format!("${}", String::from_utf8_lossy(bytes)),
        Frame::Verbatim(_, text) => format!("={}", String::from_utf8_lossy(text)),
        Frame::NullBulk | Frame::NullArray | Frame::Null => "_".to_owned(),
        Frame::Bool(value) => format!("#{value}"),
        Frame::Double(text) => format!(",{}", text.escape_ascii()),
        Frame::BigNumber(digits) => format!("({}", digits.escape_ascii()),
        Frame::Array(items) => format!("[{}]", list(items)),
        Frame::Set(items) => format!("~[{}]", list(items)),
        Frame::Push(items) => format!(">[{}]", list(items)),
        Frame::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}={}", show(key), show(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
        }
        Frame::Attributed(_, frame) => show(frame),
    }
}

/// The text of a bulk, simple or verbatim reply.
pub fn text(frame: &Frame) -> String {
    match frame {
        Frame::Simple(text) | Frame::Bulk(text) | Frame::Verbatim(_, text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => panic!("not a text: {}", show(other)),
    }
}

/// Runs each line on both servers, in both versions of the protocol, on one connection each, and
/// compares the replies byte by byte. Panics: with all lines whose replies differ.
pub fn assert_same_replies(kelvin: &Server, redis: &Server, lines: &[&str]) {
    let mut differences = Vec::new();
    for version in ["2", "3"] {
        let (mut ours, mut theirs) = (kelvin.connect(), redis.connect());
        ours.call(&["HELLO", version]);
        theirs.call(&["HELLO", version]);
        for line in lines {
            let (own, expected) = (ours.line(line), theirs.line(line));
            if own != expected {
                differences.push(format!(
                    "{line} (RESP{version})\n  kelvin {}\n  redis  {}",
                    show(&own),
                    show(&expected)
                ));
            }
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}
